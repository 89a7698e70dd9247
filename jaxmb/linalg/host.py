"""What runs outside of compiled programs."""

from typing import Any

import numpy as np
from jax.core import Tracer
from jaxtyping import Array


def on_host(array: Array | np.ndarray) -> Any:
    """The array as a NumPy array, or itself where it is traced.

    JAX compiles a program for every operation on every shape that it meets outside of a compiled function, which for a
    few numbers takes a thousand times longer than the operation in NumPy.
    """
    return array if isinstance(array, Tracer) else np.asarray(array)
