"""Windows: how many averages they leave, and what an exponential one does to poles."""

import numpy as np
import pytest
from scipy import signal

from jaxmb.measurement.records.spectra import (
    decay_of_end_level,
    effective_averages,
    exponential_window,
    force_window,
    segment_window,
    without_window_damping,
)


@pytest.mark.parametrize(("name", "half", "three_quarters"), [("hann", 0.167, 0.659), ("boxcar", 0.5, 0.75)])
def test_correlation_of_overlapping_segments(name, half, three_quarters):
    # Correlations of two segments as printed by Harris 1978, table 1, to three digits.
    w = segment_window(name, 1024)
    assert effective_averages(w, 512, 2) == pytest.approx(2 / (1 + half**2), rel=1e-3)
    assert effective_averages(w, 256, 2) == pytest.approx(2 / (1 + three_quarters**2), rel=2e-3)
    assert effective_averages(w, 1024, 7) == 7.0


@pytest.mark.parametrize(("name", "overlap"), [("hann", 0.0), ("hann", 0.5), ("hann", 0.75), ("boxcar", 0.5)])
def test_independent_averages_are_what_the_scatter_says(name, overlap):
    # Power of white noise over n averages scatters by 1 / n; 4000 records, 25 lines: it is known to 1 %.
    rng = np.random.default_rng(0)
    segment = 64
    step = segment - round(overlap * segment)
    count = 9
    x = rng.normal(size=(4000, segment + (count - 1) * step))
    power = signal.welch(x, 1.0, name, segment, segment - step, detrend=False, axis=1)[1][:, 4:-4]
    scatter = np.mean(power.var(axis=0) / power.mean(axis=0) ** 2)
    assert 1 / scatter == pytest.approx(effective_averages(segment_window(name, segment), step, count), rel=0.03)


def test_exponential_window_moves_poles_by_its_rate():
    # y exp(-sigma t) of a mode is exactly a mode whose pole lies sigma further left.
    pole, sigma = -2.0 + 60.0j, 3.5
    t = np.arange(400) / 100.0
    windowed = np.exp(pole * t) * exponential_window(t, sigma)
    apparent = np.log(windowed[1] / windowed[0]) * 100.0
    assert without_window_damping(apparent, sigma) == pytest.approx(pole, rel=1e-12)
    np.testing.assert_allclose(without_window_damping(np.array([apparent, 2 * apparent]), sigma)[0], pole, rtol=1e-12)


def test_rate_from_the_level_at_the_end():
    assert exponential_window(np.array([4.0]), decay_of_end_level(0.01, 4.0))[0] == pytest.approx(0.01, rel=1e-12)
    assert decay_of_end_level(1.0, 4.0) == 0.0
    for level in (0.0, 1.1, -1.0, np.nan):
        with pytest.raises(ValueError, match="end_level is"):
            decay_of_end_level(level, 1.0)
    with pytest.raises(ValueError, match=r"length_s is 0\.0, expected a number above 0"):
        decay_of_end_level(0.1, 0.0)


def test_force_window():
    window = force_window(12, 2, 5, 3)
    np.testing.assert_array_equal(window[:5], [0, 0, 1, 1, 1])
    np.testing.assert_allclose(window[5:8], 0.5 * (1 + np.cos(np.pi * np.array([1, 2, 3]) / 4)))
    np.testing.assert_array_equal(window[8:], 0.0)
    np.testing.assert_array_equal(force_window(6, 2, 5, 3)[5], window[5])
