"""Peaks of frequency responses, and which of two sets of frequencies belong together."""

import numpy as np
from scipy.optimize import linear_sum_assignment

MOST_DAMPING = 0.1
"""A peak wider than that of a mode with this damping ratio is no mode."""
PROMINENCE = 0.1
"""Decades of magnitude by which a peak stands out to count as a mode and not as a ripple: 2 dB."""


def resonances(level: np.ndarray, frequency_hz: np.ndarray, prominence: float = PROMINENCE) -> np.ndarray:
    """Indices of the peaks of a magnitude that look like modes and not like ripple or a hump between antiresonances.

    A peak counts where it stands out of its surroundings by the prominence, and is no wider, half a prominence (at most
    3 dB) below its top, than a mode of 10 % damping is at its half-power points.

    Args:
        level: log10 of the magnitude [f].
        frequency_hz: frequencies [f], Hz.
        prominence: in decades of magnitude.
    """
    # As scipy.signal's find_peaks and peak_widths, whose import takes longer than a fit.
    ends = np.append(np.flatnonzero(np.diff(level)), level.size - 1)
    starts = np.append(0, ends[:-1] + 1)
    runs = level[starts]  # lines of one level in a row
    tops = 1 + np.flatnonzero((runs[1:-1] > runs[:-2]) & (runs[1:-1] > runs[2:]))
    keep = []
    for peak in (starts[tops] + ends[tops]) // 2:
        flanks = [side[: np.argmax(side > level[peak]) or side.size] for side in (level[peak::-1], level[peak:])]
        stands_out = level[peak] - max(flank.min() for flank in flanks)
        if stands_out < prominence:
            continue
        height = level[peak] - min(0.5 * stands_out, 0.5 * np.log10(2.0))
        left, right = (_crossing(flank, height) for flank in flanks)
        low, high = np.interp([peak - left, peak + right], np.arange(level.size), frequency_hz)
        if high - low <= 2.0 * MOST_DAMPING * frequency_hz[peak]:
            keep.append(peak)
    return np.array(keep, dtype=int)


def _crossing(flank: np.ndarray, height: float) -> float:
    """How many lines down a flank the level falls to a height, lines between two interpolated."""
    line = int(np.argmax(flank <= height))
    return line - (height - flank[line]) / (flank[line - 1] - flank[line])


def peaks_hz(level: np.ndarray, frequency_hz: np.ndarray) -> np.ndarray:
    """Frequencies of the peaks of a magnitude: of the parabola through the logarithms of three lines.

    Args:
        level: log10 of the magnitude [f].
        frequency_hz: frequencies [f], Hz.
    """
    peaks = resonances(level, frequency_hz)
    inner = peaks[(peaks > 0) & (peaks < level.size - 1)]
    before, top, after = (level[inner + k] for k in (-1, 0, 1))
    bend = before - 2.0 * top + after
    shift = np.where(bend < 0.0, 0.5 * (before - after) / np.where(bend < 0.0, bend, -1.0), 0.0)
    return np.interp(inner + np.clip(shift, -0.5, 0.5), np.arange(level.size), frequency_hz)


def paired_errors_hz(reference: np.ndarray, found: np.ndarray) -> tuple[float, ...]:
    """Absolute differences of frequencies that belong together, by the smallest sum of ratios, however far they are."""
    if not (reference.size and found.size):
        return ()
    distance = np.abs(np.log(reference[:, None] / found))
    return tuple(float(abs(found[j] - reference[i])) for i, j in zip(*linear_sum_assignment(distance), strict=True))
