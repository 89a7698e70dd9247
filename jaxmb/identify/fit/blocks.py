"""How many points are computed at once: as many as the memory holds."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

POINTS_BYTES = 2**24
"""For one block of points on a CPU: enough work to wake other threads; XLA takes less than what is counted here."""
TESTS_BYTES = 2**20
"""For one block of tests on a CPU: larger ones leave the cache of a core."""
DEVICE_SHARE = 0.25
"""Of the memory of another device, for one block: what XLA takes is only estimated."""
UNKNOWN_BYTES = 2**30
"""For one block on a device that does not say how much memory it has."""


def memory_of_points() -> int:
    """Bytes that the intermediate arrays of one block of candidates may take on the device that computes.

    On a CPU blocks of a sixteenth of this size, which leave the threads of the kernel asleep, take a third longer and a
    tenth less processor time.
    """
    return POINTS_BYTES if _on_cpu() else _of_device()


def memory_of_fits() -> int:
    """Bytes that the intermediate arrays of one block of fits may take, 0 for one fit after the other.

    Each ends after steps of its own number, and on a CPU a block would take as long as if all its fits had the most.
    """
    return 0 if _on_cpu() else _of_device()


def memory_of_tests(derivatives: int) -> int:
    """Bytes that the intermediate arrays of one block of tests may take, with so many derivatives of each."""
    return (TESTS_BYTES if _on_cpu() else _of_device()) // (1 + derivatives)


def _on_cpu() -> bool:
    return jax.local_devices()[0].platform == "cpu"


def _of_device() -> int:
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    return UNKNOWN_BYTES if limit is None else int(DEVICE_SHARE * limit)


def in_blocks(function: Callable[[Any], Any], points: Any, memory: int) -> Any:
    """`function` of every point, in blocks of as many points as the memory holds.

    All blocks are one program: the last one is filled up by the first point.

    Args:
        function: of one point; traced once.
        points: a pytree of arrays with the points along the first axis.
        memory: bytes that the intermediate arrays of one block may take; 0 for one point after the other.
    """
    one, count = Traced(function, points), count_of(points)
    block = block_size(one, count, memory)
    if block == count:
        return one.batch(points)
    blocks = -(-count // block)

    def cut(x: Any) -> Any:
        x = jnp.asarray(x)
        filled = jnp.concatenate([x, jnp.broadcast_to(x[:1], (blocks * block - count, *x.shape[1:]))])
        return filled.reshape(blocks, block, *x.shape[1:])

    found = jax.lax.map(one.batch, jax.tree.map(cut, points))
    return jax.tree.map(lambda x: x.reshape(blocks * block, *x.shape[2:])[:count], found)


class Traced:
    """A function of one point, traced, with the memory that it takes."""

    def __init__(self, function: Callable[[Any], Any], points: Any):
        """Trace it for the first of some points."""
        first = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), points)
        self._program, shape = jax.make_jaxpr(function, return_shape=True)(first)
        self._structure = jax.tree.structure(shape)

    @property
    def bytes(self) -> int:
        """Estimate of the memory that one point takes (`live_bytes`)."""
        return live_bytes(self._program)

    def batch(self, points: Any) -> Any:
        """Its values at several points; at a single one what is chosen at run time is computed alone."""
        if count_of(points) > 1:
            return jax.vmap(self._one)(points)
        return jax.tree.map(lambda x: x[None], self._one(jax.tree.map(lambda x: x[0], points)))

    def _one(self, point: Any) -> Any:
        return jax.tree.unflatten(self._structure, jaxpr_as_fun(self._program)(*jax.tree.leaves(point)))


def count_of(points: Any) -> int:
    """Number of points in a pytree of arrays with the points along the first axis."""
    return int(jax.tree.leaves(points)[0].shape[0])


def block_size(one: Traced, count: int, memory: int) -> int:
    """Points of a block: as many as the memory holds, one at least, spread evenly over the blocks."""
    most = max(1, min(count, memory // max(one.bytes, 1)))
    return -(-count // -(-count // most))


def live_bytes(program: ClosedJaxpr) -> int:
    """Largest memory that the intermediate arrays of a program take together, each kept until it is last used.

    XLA takes less where it fuses steps and more where it copies. Constants are not counted: all points share them.
    """
    return _live(program.jaxpr)


def _live(jaxpr: Jaxpr) -> int:
    last = {var: k for k, equation in enumerate(jaxpr.eqns) for var in _variables(equation.invars)}
    last |= dict.fromkeys(_variables(jaxpr.outvars), len(jaxpr.eqns))
    held: dict[Any, int] = {}
    most = 0
    for k, equation in enumerate(jaxpr.eqns):
        inside = max((_live(inner) for inner in _programs(equation.params.values())), default=0)
        most = max(most, sum(held.values()) + inside)
        held |= {var: _bytes(var.aval) for var in equation.outvars}
        most = max(most, sum(held.values()))
        held = {var: size for var, size in held.items() if last.get(var, -1) > k}
    return most


def _variables(found: Any) -> list[Any]:
    return [var for var in found if not isinstance(var, Literal)]


def _programs(values: Any) -> Iterator[Jaxpr]:
    """The programs among the parameters of an operation."""
    for value in values:
        if isinstance(value, ClosedJaxpr):
            yield value.jaxpr
        elif isinstance(value, Jaxpr):
            yield value
        elif isinstance(value, tuple | list):
            yield from _programs(value)


def _bytes(aval: Any) -> int:
    return int(aval.size) * int(aval.dtype.itemsize) if hasattr(aval, "dtype") else 0
