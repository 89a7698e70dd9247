"""The weighting function W of the cost, by frequency line and by FRF (eq. 22 of Huynh et al. 2020)."""

from collections.abc import Sequence

import numpy as np

from jaxmb.identify.experiments.frf.peaks import PROMINENCE, resonances

SMALLEST_RATIO = 1e-13
"""An FRF this far below the largest of its line is rounding: a cross term that symmetry makes zero."""


def usable_lines(frf: np.ndarray) -> np.ndarray:
    """Which entries [f, o, i] can enter a logarithm: finite, not zero, and above the rounding of their line."""
    size = np.abs(np.where(np.isfinite(frf), frf, 0.0))
    largest = size.max(axis=(1, 2), keepdims=True)
    return np.isfinite(frf) & (size > SMALLEST_RATIO * largest)


def peak_weights(
    frequency_hz: np.ndarray,
    frf: np.ndarray,
    peaks: float,
    half_width_lines: int,
    elsewhere: float,
    prominence: float = PROMINENCE,
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
