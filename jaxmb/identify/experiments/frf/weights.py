"""Resonances of measured FRFs, and weights of their lines."""

from collections.abc import Sequence

import numpy as np

from jaxmb.measurement.frf_set import lines_within

MOST_DAMPING = 0.1
"""Largest damping ratio of a peak that counts as a mode."""
PROMINENCE = 0.1
"""Smallest prominence of a peak that counts as a mode and not as ripple, decades of magnitude: 2 dB."""


def resonances(level: np.ndarray, frequency_hz: np.ndarray, prominence: float = PROMINENCE) -> np.ndarray:
    """Indices of the peaks of a magnitude that are modes rather than ripple or a maximum between antiresonances.

    A peak counts if it has the prominence, and if its width half a prominence (at most 3 dB) below its top is at most
    the half-power bandwidth of a mode of 10 % damping.

    Args:
        level: log10 of the magnitude [f].
        frequency_hz: frequencies [f], Hz.
        prominence: in decades of magnitude.
    """
    # As scipy.signal's find_peaks and peak_widths, whose import takes longer than a fit.
    ends = np.append(np.flatnonzero(np.diff(level)), level.size - 1)
    starts = np.append(0, ends[:-1] + 1)
    runs = level[starts]  # level of each run of equal lines
    tops = 1 + np.flatnonzero((runs[1:-1] > runs[:-2]) & (runs[1:-1] > runs[2:]))
    keep = []
    for peak in (starts[tops] + ends[tops]) // 2:
        flanks = [side[: np.argmax(side > level[peak]) or side.size] for side in (level[peak::-1], level[peak:])]
        height_above = level[peak] - max(flank.min() for flank in flanks)
        if height_above < prominence:
            continue
        height = level[peak] - min(0.5 * height_above, 0.5 * np.log10(2.0))
        lower, upper = (_crossing(flank, height) for flank in flanks)
        low, high = np.interp([peak - lower, peak + upper], np.arange(level.size), frequency_hz)
        if high - low <= 2.0 * MOST_DAMPING * frequency_hz[peak]:
            keep.append(peak)
    return np.array(keep, dtype=int)


def _crossing(flank: np.ndarray, height: float) -> float:
    """Distance down a flank to a level, in lines, linearly interpolated."""
    line = int(np.argmax(flank <= height))
    return line - (height - flank[line]) / (flank[line - 1] - flank[line])


def peaks_hz(level: np.ndarray, frequency_hz: np.ndarray) -> np.ndarray:
    """Frequencies of the peaks of a magnitude, Hz, from a parabola through the logarithms of three lines.

    Args:
        level: log10 of the magnitude [f].
        frequency_hz: frequencies [f], Hz.
    """
    peaks = resonances(level, frequency_hz)
    inner = peaks[(peaks > 0) & (peaks < level.size - 1)]
    before, top, after = (level[inner + k] for k in (-1, 0, 1))
    curvature = before - 2.0 * top + after
    shift = np.where(curvature < 0.0, 0.5 * (before - after) / np.where(curvature < 0.0, curvature, -1.0), 0.0)
    return np.interp(inner + np.clip(shift, -0.5, 0.5), np.arange(level.size), frequency_hz)


SMALLEST_RATIO = 1e-13
"""Magnitude of an FRF over the largest of its line below which it is rounding, such as a cross term that vanishes by
symmetry."""


def usable_lines(frf: np.ndarray) -> np.ndarray:
    """Mask [f, o, i] of the entries with a valid logarithm: finite, not zero, and above the rounding of their line."""
    size = np.abs(np.where(np.isfinite(frf), frf, 0.0))
    return np.isfinite(frf) & (size > SMALLEST_RATIO * size.max(axis=(1, 2), keepdims=True))


def peak_weights(
    frequency_hz: np.ndarray,
    frf: np.ndarray,
    peaks: float,
    half_width_lines: int,
    elsewhere: float,
    prominence: float = PROMINENCE,
) -> np.ndarray:
    """Weights [f, o, i] that emphasize the lines around each FRF's resonances.

    Args:
        frequency_hz: frequencies [f], Hz.
        frf: measured responses [f, o, i].
        peaks: weight at a resonance and up to half_width_lines lines beside it.
        half_width_lines: number of lines to each side.
        elsewhere: weight of all other lines.
        prominence: smallest prominence of a mode, decades of magnitude (0.1 is 2 dB).

    Source: Huynh et al. 2020, sections 4 and 5 (50 or 80 at peaks and two lines beside them, 0.5 elsewhere).
    """
    weights = np.full(frf.shape, float(elsewhere))
    usable = usable_lines(frf)
    for o, i in np.argwhere(usable.any(axis=0)):
        lines = np.flatnonzero(usable[:, o, i])
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
    """Weights [f, o, i] of frequency bands ((low, high) Hz, weight, outputs, inputs), and `elsewhere` outside them."""
    weights = np.full(shape, float(elsewhere))
    for (low, high), weight, outputs, inputs in bands:
        lines = np.flatnonzero(lines_within(frequency_hz, low, high))
        if not lines.size:
            raise ValueError(f"weights: no line lies in the band {low:g} to {high:g} Hz")
        weights[lines[:, None, None], np.array(outputs, dtype=int)[:, None], np.array(inputs, dtype=int)] = weight
    return weights
