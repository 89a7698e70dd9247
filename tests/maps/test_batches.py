"""Batches give what the whole would give, of any length."""

import jax.numpy as jnp
import numpy as np

from jaxmb.compiled import batch_size, in_batches


def test_sizes_are_powers_of_two():
    assert [batch_size(count, 64) for count in (1, 2, 3, 33, 64, 65, 1000)] == [1, 2, 4, 64, 64, 64, 64]


def test_batches_have_one_size_and_lose_nothing():
    seen = []

    def compute(a, b):
        seen.append(a.shape)
        return a + b[:, None], jnp.sum(a, axis=1)

    a, b = np.arange(14.0).reshape(7, 2), np.arange(7.0)
    total, rows = in_batches(compute, 4, a, b)
    np.testing.assert_array_equal(total, a + b[:, None])
    np.testing.assert_array_equal(rows, a.sum(axis=1))
    assert set(seen) == {(4, 2)}
