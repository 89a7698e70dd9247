"""Candidates, starts and postures shared out over all devices, including those of the run's other processes.

Every process of a run does the same; the state of search and refinement is taken from the first, so that processors of
different make do not part.
"""

import contextlib
import functools
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax._src import distributed  # the key-value store of the processes has no public name
from jax.experimental import multihost_utils
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxmb.io.validation import InputError

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


AXIS = "points"
ADDRESS, COUNT, NUMBER = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
"""Environment variables: host and port of the first process, how many there are, and which one this is."""
HEARTBEAT_S = 30
"""After so many seconds without a sign of life a process is taken for lost."""
INTERRUPTED_BY = "jaxmb/interrupted by"
"""Key under which all processes find the number of the signal that one of them received."""
LOOK_EVERY_S = 0.25
TOGETHER_S = 2.0
"""For which an interrupted process waits until all others know: the first one serves what they ask."""
Tree = TypeVar("Tree")


@functools.lru_cache
def all_devices() -> Mesh | None:
    """All devices of all processes in a row; None where there is one."""
    devices = jax.devices()
    return None if len(devices) == 1 else Mesh(np.array(devices), (AXIS,))


def everywhere(tree: Tree) -> Tree:
    """Arrays on every device; as they are where there is one. The same numbers are given by every process."""
    mesh = all_devices()
    if mesh is None:
        return tree
    whole = NamedSharding(mesh, PartitionSpec())

    def put(leaf: Any) -> Any:
        if not eqx.is_array_like(leaf) or (isinstance(leaf, jax.Array) and leaf.sharding == whole):
            return leaf
        array = np.asarray(leaf)
        return jax.make_array_from_callback(array.shape, whole, lambda index: array[index])

    return jax.tree.map(put, tree)


def more_postures(points: int, postures: int) -> bool:
    """Whether so many postures, of each point, keep more devices busy than so many points do."""
    mesh = all_devices()
    return mesh is not None and min(points, mesh.size) < min(postures, mesh.size)


def shared_out(function: Callable[..., Any], points: Any, filler: Any, *same: Any) -> Any:
    """`function` of points, each device with its share of them; in compiled functions.

    Args:
        function: of some points, to what has as many along the first axis. It must not depend on how many there are.
        points: a pytree of arrays with the points along the first axis.
        filler: one point more, for devices that would have fewer than others.
        same: further arguments, the same for all points; what is differentiated has to be among them, and arrays that
            the function would else find around it: within `jax.shard_map` JAX refuses some operations on those.
    """
    mesh = all_devices()
    if mesh is None:
        return function(points, *same)
    arrays, rest = eqx.partition(same, eqx.is_array)
    count, devices = count_of(points), mesh.size
    missing = -count % devices

    def filled(x: Any, one: Any) -> Any:
        return jnp.concatenate([x, jnp.broadcast_to(one, (missing, *x.shape[1:]))])

    def dealt(x: Any) -> Any:  # neighbours to different devices: what ends early is together
        return x.reshape(-1, devices, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)

    def collected(x: Any) -> Any:
        whole = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec()))
        return whole.reshape(devices, -1, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)[:count]

    def own(points: Any, arrays: Any) -> Any:
        return function(points, *eqx.combine(arrays, rest))

    rows, whole = PartitionSpec(AXIS), PartitionSpec()
    each = jax.shard_map(own, mesh=mesh, in_specs=(rows, whole), out_specs=rows, check_vma=False)
    return jax.tree.map(collected, each(jax.tree.map(lambda x, y: dealt(filled(x, y)), points, filler), arrays))


def agreed(tree: Tree) -> Tree:
    """Arrays as the first device has them; in compiled functions, where all devices compute the same.

    A loop that has all of them compute together must go on for all or none, and rounding differs between processors.
    """
    mesh = all_devices()
    if mesh is None:
        return tree

    def of_first(x: Any) -> Any:
        counted = x.astype(jnp.int32) if x.dtype == bool else x
        return jax.lax.psum(jnp.where(jax.lax.axis_index(AXIS) == 0, counted, 0), AXIS).astype(x.dtype)

    whole = PartitionSpec()
    first = functools.partial(jax.tree.map, of_first)
    return jax.shard_map(first, mesh=mesh, in_specs=whole, out_specs=whole, check_vma=False)(tree)


def join() -> None:
    """Become one of the processes of a run, before JAX computes: under SLURM or Open MPI without more; elsewhere by
    what the environment says (`ADDRESS`, `COUNT`, `NUMBER`).

    Raises:
        ValueError: neither says how many processes there are, or the others do not come.
    """
    address, count, number = (os.environ.get(name) for name in (ADDRESS, COUNT, NUMBER))
    try:
        known, own = (None if text is None else int(text) for text in (count, number))
        # which waits for programs that ask whether they are to end, and keeps SIGTERM from ending others
        jax.config.update("jax_enable_preemption_service", False)
        jax.distributed.initialize(address, known, own, heartbeat_timeout_seconds=HEARTBEAT_S)
    except (ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"this process cannot join a run ({reason}): expected to be started by SLURM or Open MPI, or with"
            f" {ADDRESS}, {COUNT} and {NUMBER} in the environment"
        ) from None


def interrupt_all(number: int) -> bool:
    """Have `wait_for_interruption` return the number of a signal in every process; whether they can be reached."""
    client = distributed.global_state.client
    if client is None:
        return False
    try:
        client.key_value_set(INTERRUPTED_BY, str(number), allow_overwrite=True)
    except jax.errors.JaxRuntimeError:
        return False
    return True


def wait_for_interruption() -> int | None:
    """The number of the signal that a process of this run received, once all of them know it; None at the run's end."""
    while (client := distributed.global_state.client) is not None:
        try:
            number = int(client.key_value_try_get(INTERRUPTED_BY))
        except jax.errors.JaxRuntimeError as error:
            if "NOT_FOUND" not in str(error):
                return None
            time.sleep(LOOK_EVERY_S)
            continue
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # a process that hangs or is lost
            client.wait_at_barrier(INTERRUPTED_BY, int(1000 * TOGETHER_S))
        if is_first():
            time.sleep(LOOK_EVERY_S)  # until its answers are sent
        return number
    return None


def is_first() -> bool:
    """Whether this is the process that writes and speaks for all."""
    return distributed.global_state.process_id == 0  # also while JAX is still busy finding its devices


def from_first(tree: Tree) -> Tree:
    """A tree of numbers and arrays as the first process has it; arrays as those of NumPy where there are others.

    All processes have to call it, with the same shapes.
    """
    if jax.process_count() == 1:
        return tree
    found = multihost_utils.broadcast_one_to_all(jax.tree.map(np.asarray, tree))
    return jax.tree.map(lambda x, y: type(x)(y) if isinstance(x, bool | int | float) else np.asarray(y), tree, found)


def check_shared(path: Path) -> None:
    """Raise InputError where this process does not see the file that the first one sees, or sees that it is not there.

    All processes have to call it.
    """
    if jax.process_count() == 1:
        return
    content = path.read_bytes() if path.exists() else b"none"
    own = np.frombuffer(hashlib.sha256(content).digest(), dtype=np.uint8)
    if not np.array_equal(from_first(own.copy()), own):
        raise InputError(
            f"{path}: process {jax.process_index()} sees another file than process 0, expected a folder that all"
            " processes share"
        )
