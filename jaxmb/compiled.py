"""Functions that XLA compiles, and whose errors read like those of any other function."""

import functools
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

import equinox as eqx

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


def _raised_here(traceback: TracebackType | None) -> bool:
    """Whether a function of jaxmb raised it."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is not None and traceback.tb_frame.f_globals.get("__name__", "").startswith("jaxmb.")
