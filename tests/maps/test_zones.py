"""Zones and their largest boxes, of masks and fields that are known."""

import itertools

import numpy as np
import pytest

from jaxmb.maps import find_zones, largest_box


def test_largest_box_against_trying_all():
    rng = np.random.default_rng(0)
    for shape in ((12,), (7, 9), (5, 4, 6)):
        for _ in range(20):
            mask = rng.uniform(size=shape) < 0.7
            mask.flat[0] = True
            ranges = [[slice(a, b) for a in range(n) for b in range(a + 1, n + 1)] for n in shape]
            expected = max(mask[box].size for box in itertools.product(*ranges) if mask[box].all())
            box = largest_box(mask)
            assert mask[box].all()
            assert mask[box].size == expected


def test_zones_of_a_known_field():
    values = np.array([[3.0, 3.0, 0.0, 2.0], [3.0, 0.0, np.nan, 0.0], [0.0, 0.0, 0.0, 0.0]])
    grid = (np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 2.0, 3.0]))
    first, second = find_zones(values, grid, 2.0, True)
    assert (first.points, first.extent, first.best_at) == (3, ((1.0, 2.0), (0.0, 1.0)), (1.0, 0.0))
    assert first.box in (((1.0, 2.0), (0.0, 0.0)), ((1.0, 1.0), (0.0, 1.0)))
    assert (second.points, second.best) == (1, 2.0)
    assert len(find_zones(values, grid, 2.0, True, least_points=2)) == 1
    assert find_zones(values, grid, 0.0, False)[0].best == 0.0
    assert find_zones(values, grid, 9.0, True) == ()
    with pytest.raises(ValueError, match=r"values have shape .*, expected that of the grid, \("):
        find_zones(values.T, grid, 2.0, True)
