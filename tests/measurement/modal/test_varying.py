"""Modes whose poles vary between responses: their initial shifts, and which of them are one mode."""

import numpy as np
import pytest

from jaxmb.measurement.modal.varying import best_shifts, one_mode, peaks, window
from jaxmb.measurement.modal.varying_search import FIRST_STD, VaryingSearch

LINES = np.linspace(8.0, 12.0, 201)
POLE = 2.0 * np.pi * 10.0 * (-0.005 + 1j)


def test_initial_shifts():
    """Of a response at a higher frequency by 0.4 %; a response at a node has no information, and its mode no shift."""
    s = 2j * np.pi * LINES
    shift = np.array([0.0, 0.004, 0.0])
    responses = np.array([1.0, 1.0, 0.0]) * s[:, None] ** 2 / (s[:, None] - POLE * (1.0 + shift)) / np.abs(POLE)
    lines = window(s, 2, responses[:, :, None], np.full((LINES.size, 3, 1), 1e-4))
    found, _ = best_shifts(lines, one_mode(POLE, np.ones(1, complex), FIRST_STD, 3))
    # shifts are tried in steps of half a half-power bandwidth, 0.5 %, up to three standard deviations of 0.3 %
    np.testing.assert_allclose(found.move[:, 0, 0], shift, atol=0.0025)
    assert found.move[0, 0, 0] == pytest.approx(0.0, abs=1e-12)
    assert found.move[2, 0, 0] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("hz", "row", "twins"), [
    (10.02, [1.0, 0.0], True),
    (10.02, [0.0, 1.0], False),
    (11.0, [1.0, 0.0], False),
])  # fmt: skip
def test_two_modes_are_one_within_a_bandwidth_if_the_same_inputs_excite_them(hz, row, twins):
    """A bandwidth of 0.1 Hz by damping, and of 0.07 Hz by the scatter over the hits."""
    search = VaryingSearch(LINES, np.ones((LINES.size, 3, 2), complex), 2, 0.1, 0.0)
    first = one_mode(POLE, np.array([1.0, 0.0], complex), FIRST_STD, 3)
    second = one_mode(POLE * hz / 10.0, np.array(row, complex), FIRST_STD, 3)
    np.testing.assert_array_equal(search._twins(first.and_also(second)), [twins, twins])


def test_peaks_are_higher_than_two_neighbours_on_both_sides():
    """The highest first; none of few lines, or at the ends."""
    assert peaks(np.array([0.0, 1.0, 3.0, 2.0, 1.0, 1.0, 5.0, 5.0, 0.0, 9.0])).tolist() == [6, 2]
    assert not any(peaks(np.arange(count, 0.0, -1.0)).size for count in (1, 3, 4, 6))
