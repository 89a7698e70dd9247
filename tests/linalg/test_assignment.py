"""The pairs with the smallest sum of costs, beside SciPy's."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from jaxmb.linalg.assignment import assignment


@pytest.mark.parametrize("shape", [(5, 5), (3, 7), (7, 3), (0, 4), (4, 0), (1, 1)])
@pytest.mark.parametrize("near", [0.0, 3.0])
def test_pairs_are_those_of_scipy(shape, near):
    """Also where the smallest costs of the rows are in different columns, as `near` makes those of the diagonal."""
    cost = np.random.default_rng(sum(shape)).uniform(size=shape) + near * (1.0 - np.eye(*shape))
    for found, expected in zip(assignment(cost), linear_sum_assignment(cost), strict=True):
        np.testing.assert_array_equal(found, expected)
