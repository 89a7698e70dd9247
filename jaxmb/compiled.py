"""Functions that XLA compiles, and that take arguments and tell errors as any other function does."""

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

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")


def compiled(function: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
    """`equinox.filter_jit`, but what jaxmb says of a wrong argument ends no traceback of JAX and Equinox.

    Wrong names and shapes are found while JAX traces a function, deep below the call that has them. Errors that JAX
    itself raises there keep their tracebacks.
    """
    jitted = eqx.filter_jit(function)

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
        try:
            return jitted(*args, **kwargs)
        except (ValueError, NotImplementedError) as error:
            if not _raised_here(error.__traceback__):
                raise
            plain = type(error)(*error.args)
        raise plain

    return call


def with_fixed(function: Callable[..., Value], *fixed: Any) -> Callable[..., Value]:
    """A function compiled, with its first arguments given: what is called often need not take large ones apart each
    time, which takes longer than many a computation.

    Args:
        function: of the fixed arguments, then of arrays.
        fixed: pytrees of arrays and of what can be hashed.
    """
    leaves, structure = jax.tree.flatten(fixed)
    arrays = [leaf for leaf in leaves if eqx.is_array(leaf)]
    others = tuple(None if eqx.is_array(leaf) else leaf for leaf in leaves)
    return functools.partial(_program(function, structure, others), arrays)


@functools.lru_cache(maxsize=128)
def _program(function: Callable[..., Any], structure: Any, others: tuple[Any, ...]) -> Callable[..., Any]:
    """One for all arguments of the same structure, so that what is compiled is found again."""

    def call(arrays: list[Array], *changing: Any) -> Any:
        rest = iter(arrays)
        leaves = [next(rest) if leaf is None else leaf for leaf in others]
        return function(*jax.tree.unflatten(structure, leaves), *changing)

    return jax.jit(call)


def takes_numbers(
    *names: str, least: float = -np.inf
) -> Callable[[Callable[Arguments, Value]], Callable[Arguments, Value]]:
    """Lets a function take lists for some of its arrays, and tells what is no finite number of at least `least`.

    Values that JAX traces are not looked at.
    """

    def around(function: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
            bound = signature.bind(*args, **kwargs)
            for name in names:
                given = bound.arguments.get(name, signature.parameters[name].default)
                if given is not signature.parameters[name].default:
                    bound.arguments[name] = _numbers(name, given, least)
            return function(*bound.args, **bound.kwargs)

        return call

    return around


def _numbers(name: str, values: Any, least: float) -> Array:
    try:
        array = jnp.asarray(values, float)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {values!r}, expected an array of numbers") from None
    if not isinstance(array, Tracer):
        known = np.asarray(array)
        wrong = known[~(np.isfinite(known) & (known >= least))]
        if wrong.size:
            at_least = f" of at least {least:g}" if np.isfinite(least) else ""
            raise ValueError(f"{name} holds {wrong[0]:g}, expected finite numbers{at_least}")
    return array


def _raised_here(traceback: TracebackType | None) -> bool:
    """Whether a function of jaxmb raised it."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is not None and traceback.tb_frame.f_globals.get("__name__", "").startswith("jaxmb.")
