"""Single lines that do not belong to their neighbours."""

import numpy as np

from jaxmb.measurement.noise import outlier_lines


def errors(seed, lines=120):
    """A smooth misfit, some of it large, and noise of different size in each FRF."""
    draw = np.random.default_rng(seed)
    smooth = np.sin(np.linspace(0.0, 6.0, lines))[None, :, None, None] * np.array([5.0, 40.0, 0.0])[:, None]
    return smooth + draw.normal(size=(2, lines, 3, 1)) * np.array([1.0, 2.0, 0.5])[:, None]


def test_they_are_found_in_what_is_smooth():
    found = errors(0)
    found[1, 30, 2, 0] += 8.0
    found[0, 77:79, 0, 0] -= 12.0
    assert outlier_lines(found, np.ones(found.shape, dtype=bool)).tolist() == [30, 77, 78]


def test_good_lines_are_not_called_odd():
    present = np.ones((2, 120, 3, 1), dtype=bool)
    present[:, 40:60, 1] = False
    for seed in range(200):
        assert outlier_lines(errors(seed), present).size == 0


def test_many_are_no_single_lines():
    found = errors(1)
    found[:, 10::8] += 50.0
    assert outlier_lines(found, np.ones(found.shape, dtype=bool)).size == 0
