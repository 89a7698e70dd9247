"""The weighting function W of the cost, by frequency line and by FRF (eq. 22 of Huynh et al. 2020)."""

from collections.abc import Sequence

import numpy as np

MOST_DAMPING = 0.1
"""A peak wider than that of a mode with this damping ratio is no mode."""
SMALLEST_RATIO = 1e-13
"""An FRF this far below the largest of its line is rounding: a cross term that symmetry makes zero."""


def usable_lines(frf: np.ndarray) -> np.ndarray:
    """Which entries [f, o, i] can enter a logarithm: finite, not zero, and above the rounding of their line."""
    size = np.abs(np.where(np.isfinite(frf), frf, 0.0))
    largest = size.max(axis=(1, 2), keepdims=True)
    return np.isfinite(frf) & (size > SMALLEST_RATIO * largest)


def resonances(level: np.ndarray, frequency_hz: np.ndarray, prominence: float) -> np.ndarray:
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


def peak_weights(
    frequency_hz: np.ndarray,
    frf: np.ndarray,
    peaks: float,
    half_width_lines: int,
    elsewhere: float,
    prominence: float = 0.1,
) -> np.ndarray:
    """Weights [f, o, i] that magnify the lines around each FRF's resonances.

    Args:
        frequency_hz: frequencies [f], Hz.
        frf: measured responses [f, o, i].
        peaks: weight at a resonance and up to half_width_lines lines beside it.
        half_width_lines: how many lines to each side.
        elsewhere: weight of all other lines.
        prominence: how far a peak stands out of its surroundings to count as a mode and not as a ripple, in decades of
            magnitude (0.1 is 2 dB).

    Source: Huynh et al. 2020, sections 4 and 5 (50 or 80 at peaks and two lines beside them, 0.5 elsewhere).
    """
    weights = np.full(frf.shape, float(elsewhere))
    usable = usable_lines(frf)
    for o in range(frf.shape[1]):
        for i in range(frf.shape[2]):
            lines = np.flatnonzero(usable[:, o, i])
            if not lines.size:
                continue
            level = np.log10(np.abs(frf[lines, o, i]))
            for peak in lines[resonances(level, frequency_hz[lines], prominence)]:
                weights[max(0, peak - half_width_lines) : peak + half_width_lines + 1, o, i] = peaks
    return weights


def band_weights(
    frequency_hz: np.ndarray,
    shape: tuple[int, int, int],
    bands: Sequence[tuple[tuple[float, float], float, Sequence[int], Sequence[int]]],
    elsewhere: float,
) -> np.ndarray:
    """Weights [f, o, i] given by hand: for each ((low, high) Hz, weight, outputs, inputs), `elsewhere` between them."""
    weights = np.full(shape, float(elsewhere))
    for (low, high), weight, outputs, inputs in bands:
        lines = np.flatnonzero((frequency_hz >= low) & (frequency_hz <= high))
        if not lines.size:
            raise ValueError(f"weights: no line lies in the band {low:g} to {high:g} Hz")
        weights[lines[:, None, None], np.array(outputs, dtype=int)[:, None], np.array(inputs, dtype=int)] = weight
    return weights
