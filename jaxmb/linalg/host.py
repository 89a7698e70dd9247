"""Arrays outside of compiled programs."""

from typing import Any

import numpy as np
from jax.core import Tracer
from jaxtyping import Array


def on_host(array: Array | np.ndarray) -> Any:
    """The array as a NumPy array; a traced array is returned unchanged.

    Outside of compiled functions JAX compiles a program for every operation and shape, which for small arrays takes a
    thousand times longer than the operation in NumPy.
    """
    return array if isinstance(array, Tracer) else np.asarray(array)
