"""Compiled functions: argument handling, error messages, batches of few sizes, and arrays outside of them."""

import functools
import inspect
from collections.abc import Callable
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from jaxmb.exported import Programs

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")


def compiled(function: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
    """`equinox.filter_jit` that re-raises errors of jaxmb without the traceback of JAX and Equinox.

    Wrong names and shapes are found while JAX traces a function, deep below the call. Errors raised by JAX itself keep
    their tracebacks. Calls that state the default of an argument share the program of calls that leave it out.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        try:
            return programs(*bound.args, **bound.kwargs)
        except (ValueError, NotImplementedError) as error:
            if not _raised_here(error.__traceback__):
                raise
            raise type(error)(*error.args) from None

    programs = Programs(call, function, eqx.filter_jit(function))
    return call


def compiled_partial(function: Callable[..., Value], *fixed: Any) -> Callable[..., Value]:
    """Compiled partial application: large fixed arguments are flattened once instead of at every call.

    Args:
        function: of the fixed arguments, then of arrays.
        fixed: pytrees of arrays and hashable leaves.
    """
    leaves, structure = jax.tree.flatten(fixed)
    arrays = [leaf for leaf in leaves if eqx.is_array(leaf)]
    static_leaves = tuple(None if eqx.is_array(leaf) else leaf for leaf in leaves)
    return functools.partial(_program(function, structure, static_leaves), arrays)


@functools.lru_cache(maxsize=128)
def _program(function: Callable[..., Any], structure: Any, static_leaves: tuple[Any, ...]) -> Callable[..., Any]:
    """One jitted function for all arguments of the same structure, so that compiled programs are reused."""

    def call(arrays: list[Array], *arguments: Any) -> Any:
        array_iterator = iter(arrays)
        leaves = [next(array_iterator) if leaf is None else leaf for leaf in static_leaves]
        return function(*jax.tree.unflatten(structure, leaves), *arguments)

    return Programs(function, call, jax.jit(call), (structure, static_leaves))


def on_host(array: Array | np.ndarray) -> Any:
    """The array as a NumPy array; a traced array is returned unchanged.

    Outside of compiled functions JAX compiles a program for every operation and shape, which for small arrays takes a
    thousand times longer than the operation in NumPy.
    """
    return array if isinstance(array, Tracer) else np.asarray(array)


def numeric_arguments(
    *names: str, least: float = -np.inf
) -> Callable[[Callable[Arguments, Value]], Callable[Arguments, Value]]:
    """Decorator: converts the named arguments to arrays and checks that they are finite and at least `least`.

    Traced values are not checked.
    """

    def decorate(function: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
            bound = signature.bind(*args, **kwargs)
            for name in names:
                value = bound.arguments.get(name, signature.parameters[name].default)
                if value is not signature.parameters[name].default:
                    bound.arguments[name] = _numbers(name, value, least)
            return function(*bound.args, **bound.kwargs)

        return call

    return decorate


def _numbers(name: str, values: Any, least: float) -> Array:
    try:
        array = jnp.asarray(values)
        if (array.size and not jnp.issubdtype(array.dtype, jnp.number)) or jnp.iscomplexobj(array):
            raise ValueError
        array = array.astype(float)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {values!r}, expected an array of numbers") from None
    if not isinstance(array, Tracer):
        numbers = np.asarray(array)
        wrong = numbers[~(np.isfinite(numbers) & (numbers >= least))]
        if wrong.size:
            at_least = f" of at least {least:g}" if np.isfinite(least) else ""
            raise ValueError(f"{name} holds {wrong[0]:g}, expected finite numbers{at_least}")
    return array


def _raised_here(traceback: TracebackType | None) -> bool:
    """Whether an error was raised by a function of jaxmb."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is not None and traceback.tb_frame.f_globals.get("__name__", "").startswith("jaxmb.")


ENTRIES = 2**20
"""Largest number of entries of one matrix per posture in a batch; about a hundred such arrays are in memory."""


def batch_size_for(count: int, most: int, size: int) -> int:
    """`batch_size` for postures with matrices of `size` rows and columns each."""
    return batch_size(count, max(1, min(most, ENTRIES // size**2)))


def batch_size(count: int, most: int) -> int:
    """The smallest power of two that is at least `count`, but at most `most`."""
    return min(most, 1 << max(count - 1, 0).bit_length())


def in_batches(compute: Callable[..., tuple[Array, ...]], size: int, *arrays: np.ndarray) -> list[np.ndarray]:
    """Results of a function of batches for arrays of any length.

    Args:
        compute: from arrays [size, ...] to a tuple of arrays [size, ...].
        size: rows of a batch; the last batch is padded by its last row.
        arrays: one or more arrays [p, ...], p >= 1.

    Returns:
        Arrays [p, ...], as many as `compute` returns.
    """
    parts = []
    for start in range(0, len(arrays[0]), size):
        rows = [array[start : start + size] for array in arrays]
        found = compute(*(jnp.asarray(padded(part, size)) for part in rows))
        parts.append([np.asarray(values)[: len(rows[0])] for values in found])
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def padded(rows: np.ndarray, size: int) -> np.ndarray:
    """Rows padded to `size` by repeating the last one."""
    return np.concatenate([rows, np.repeat(rows[-1:], size - len(rows), axis=0)])
