"""What is common to errors is no noise: along the lines, or across the FRFs of different inputs."""

import numpy as np
import pytest

from jaxmb.measurement.noise import smooth_share, systematic


def noise(seed, lines=80, outputs=3, inputs=3):
    return np.random.default_rng(seed).normal(size=(2, lines, outputs, inputs))


def everywhere(errors):
    return np.ones(errors.shape, dtype=bool)


def test_noise_is_not_systematic():
    """Neither white noise, nor noise that a window spreads over three lines, or that all outputs of a hit share."""
    for seed in range(300):
        white = noise(seed)
        smoothed = (white[:, 2:] + white[:, 1:-1] + white[:, :-2]) / np.sqrt(3.0)
        shared = white + 2.0 * noise(seed + 1000, outputs=1)
        uneven = white * np.exp(2.0 * noise(seed + 2000))
        for errors in (white, smoothed, shared, uneven):
            assert systematic(errors, everywhere(errors)) == 0.0


def test_its_part_of_the_variance():
    """A wave along the lines of variance 1 beside noise of variance 1 is half of all."""
    lines = 2000
    wave = np.sqrt(2.0) * np.sin(np.arange(lines) / 80.0)[None, :, None, None] * np.array([1.0, -1.0, 1.0])
    assert systematic(wave + noise(0, lines), everywhere(noise(0, lines))) == pytest.approx(0.5, abs=0.03)
    line = noise(1, lines, 1, 1)
    common = line + noise(2, lines)  # what all FRFs of a line share, without a link to other lines
    assert systematic(common, everywhere(common)) == pytest.approx(0.5, abs=0.03)
    assert systematic(np.zeros((2, 80, 3, 3)), np.zeros((2, 80, 3, 3), dtype=bool)) == 0.0


def test_at_few_peaks():
    """A misfit of two peaks of four lines each, ten times the noise, the same in all FRFs."""
    errors = noise(3)
    for first in (20, 50):
        errors[:, first : first + 4] += np.array([[5.0, 10.0, -12.0, 8.0], [-9.0, 11.0, 10.0, -4.0]])[:, :, None, None]
    assert systematic(errors, everywhere(errors)) > 0.5


def test_errors_on_few_lines():
    """A wave of ten times the noise is smooth on lines too few for a correlation, noise behind a Hann window is not."""
    wave = 10.0 * np.sin(np.arange(20) / 3.0)[None, :, None, None] * np.array([[1.0, -1.0]]) * np.array([[1.0], [-1.0]])
    errors = noise(5, 20, 2, 2) + wave
    assert systematic(errors, everywhere(errors)) == 0.0
    assert smooth_share(errors, everywhere(errors)) == pytest.approx(0.98, abs=0.02)
    for seed in range(300):
        white = noise(seed, 14, 2, 2)
        behind = sum(weight * white[:, k : k + 12] for k, weight in enumerate((0.5, 1.0, 0.5)))
        assert smooth_share(behind, everywhere(behind)) == 0.0


def test_single_odd_lines_of_one_frf_are_not():
    errors = noise(4)
    errors[:, 20, 1, 2] += 30.0
    errors[:, 55, 0, 0] -= 30.0
    assert systematic(errors, everywhere(errors)) == 0.0
