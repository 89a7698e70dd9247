"""Compiled functions over any number of postures, in batches of few sizes to limit the number of compilations."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

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
