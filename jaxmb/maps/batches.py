"""Compiled functions over any number of postures, in batches of few sizes, so that few programs are compiled."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

ENTRIES = 2**20
"""Of one matrix for each posture of a batch, at most: there are a hundred arrays of that size in memory."""


def batch_size_for(count: int, most: int, size: int) -> int:
    """`batch_size` where matrices of so many rows and columns belong to each posture."""
    return batch_size(count, max(1, min(most, ENTRIES // size**2)))


def batch_size(count: int, most: int) -> int:
    """The smallest power of two that is not less than a count, and at most `most`."""
    return min(most, 1 << max(count - 1, 0).bit_length())


def in_batches(compute: Callable[..., tuple[Array, ...]], size: int, *arrays: np.ndarray) -> list[np.ndarray]:
    """What a function of batches returns for arrays of any length.

    Args:
        compute: from arrays [size, ...] to a tuple of arrays [size, ...].
        size: rows of a batch; the last batch repeats its last row up to that.
        arrays: one or more arrays [p, ...], p of 1 or more.

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
    """Rows, and the last of them repeated up to a size."""
    return np.concatenate([rows, np.repeat(rows[-1:], size - len(rows), axis=0)])
