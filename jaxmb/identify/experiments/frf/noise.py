"""Noise of the logarithms of FRFs: additive noise, noise estimated from the residual, exponential windows; peaks and
weights."""

from collections.abc import Sequence

import numpy as np
import scipy
from jaxtyping import Complex, Float

from jaxmb.measurement.noise import window_correlation

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
    """Weights [f, o, i] of frequency bands ((low, high) Hz, weight, outputs, inputs), and `elsewhere` outside them."""
    weights = np.full(shape, float(elsewhere))
    for (low, high), weight, outputs, inputs in bands:
        lines = np.flatnonzero((frequency_hz >= low) & (frequency_hz <= high))
        if not lines.size:
            raise ValueError(f"weights: no line lies in the band {low:g} to {high:g} Hz")
        weights[lines[:, None, None], np.array(outputs, dtype=int)[:, None], np.array(inputs, dtype=int)] = weight
    return weights


BEYOND = 5.0
"""Error of H, in standard deviations of additive noise, that noise alone exceeds once in 3e5."""
CHUNK = 512
"""Batch size of lines for their correlation with all others."""
LARGEST = 0.2
"""Relative noise up to which the noise of log H is linear in that of H."""
SMALLEST = 1e-6
"""Response over leakage below which a response carries no information."""
NEGLIGIBLE = 0.05
"""Ratio of two independent noises at which the smaller adds 0.2 % to the total."""

Lines = Float[np.ndarray, "f o i"]


def noise_at_fit(
    predicted: Complex[np.ndarray, "f o i"],
    measured: Complex[np.ndarray, "f o i"],
    additive_std: Lines,
    level: Lines,
    known_std: Lines,
    noise_std: Lines,
    weight: Lines,
) -> dict[str, Lines]:
    """`level`, `known_std`, `noise_std` and `weight` with additive noise evaluated at the FRFs of the fitted machine.

    Noise of log H evaluated at the measured FRFs biases a fit: lines that noise made large would get more weight. Lines
    whose relative noise at the fit exceeds `LARGEST` get zero weight. Lines that differ from the fit by more than
    `BEYOND` keep their noise: the machine does not reproduce them.

    Args:
        predicted: FRFs of the fitted machine.
        measured: measured FRFs.
        additive_std: standard deviation of the additive noise of H, real and imaginary part each.
        level: magnitude of H at which it was converted to noise of log H.
        known_std: standard deviation of log H from all known noise of each line, additive noise included.
        noise_std: standard deviation of log H from all noise.
        weight: of each line.
    """
    beyond = np.abs(predicted - measured) > BEYOND * additive_std
    magnitude = np.where(beyond, level, np.abs(predicted))
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(additive_std > 0.0, additive_std / magnitude, 0.0)
        change = np.where(additive_std > 0.0, relative**2 - (additive_std / level) ** 2, 0.0)
    is_valid = beyond | (relative <= LARGEST)
    known, noise = (
        np.sqrt(np.maximum(std**2 + np.where(is_valid, change, 0.0), 0.0)) for std in (known_std, noise_std)
    )
    return {
        "known_std": known,
        "noise_std": noise,
        "level": np.where(is_valid, magnitude, level),
        "weight": np.where(is_valid, weight, 0.0),
    }


def most_likely_factor(
    squares: Float[np.ndarray, "n"],
    known: Float[np.ndarray, "n"],
    rest: Float[np.ndarray, "n"],
    weight: Float[np.ndarray, "n"],
) -> float:
    """Maximum-likelihood factor f of weighted squares whose variance is weight (known + f^2 rest).

    Where the known variance explains all squares, f makes the rest `NEGLIGIBLE` relative to it.
    """
    most = float(np.sqrt(np.max(squares / (weight * rest), initial=0.0)))
    least = float(np.finfo(float).eps)
    if known.size and np.all(known > 0.0):
        least = NEGLIGIBLE / float(np.sqrt(np.mean(rest / known)))

    def slope(factor: float) -> float:
        """Derivative of the log-likelihood by the variance, scaled."""
        variance = known + factor**2 * rest
        return float(np.sum((squares - weight * variance) * rest / variance**2)) * factor**4

    if most <= least or slope(least) <= 0.0:
        return least
    return scipy.optimize.root_scalar(slope, bracket=(least, most), xtol=1e-9 * least).root


def leak_std(leak: Complex[np.ndarray, "f o i"], frf: Complex[np.ndarray, "f o i"]) -> Lines:
    """Standard deviation of log H, real and imaginary part each, due to leakage into H."""
    size = np.maximum(np.abs(np.where(np.isfinite(frf), frf, 0.0)), SMALLEST * np.abs(leak))
    return np.where(leak != 0.0, np.abs(leak) / np.where(size > 0.0, size, 1.0) / np.sqrt(2.0), 0.0)


def leak_factor(scaled: Float[np.ndarray, "m r"], leak: Complex[np.ndarray, "f o i"]) -> float:
    """Factor by which a leakage ratio common to all lines increases the variance of the errors projected onto some
    directions.

    Args:
        scaled: directions as columns, in units of the noise; real parts of all lines, then imaginary parts.
        leak: contribution of one standard deviation of the leakage ratio to log H, in units of the noise.
    """
    real, imaginary = scaled.reshape(2, len(leak), -1, scaled.shape[1])
    each: np.ndarray = leak.reshape(len(leak), -1, 1)
    squares = real**2 + imaginary**2
    independent = float(np.sum(squares))
    common = float(np.sum(np.sum(np.real(each) * real + np.imag(each) * imaginary, axis=0) ** 2))
    separate = float(np.sum(squares * np.abs(each) ** 2)) / 2.0
    return max(1.0 + (common - separate) / independent, 1.0) if independent > 0.0 else 1.0


def window_factor(
    scaled: Float[np.ndarray, "m r"],
    measured: Complex[np.ndarray, "f o i"],
    omega: Float[np.ndarray, "f"],
    decay: float,
) -> float:
    """Factor by which an exponential window increases the variance of the errors projected onto some directions.

    The window correlates the noise of H between lines (see `window_correlation`); in log H it is rotated by the phase
    of the response.

    Args:
        scaled: directions as columns, in units of the noise; real parts of all lines, then imaginary parts.
        measured: FRFs.
        omega: lines, rad/s.
        decay: of the window, 1/s.
    """
    real, imaginary = scaled.reshape(2, omega.size, -1, scaled.shape[1])
    h = measured.reshape(omega.size, -1, 1)
    columns, both = ((real + 1j * imaginary) * h / np.abs(h)).reshape(omega.size, -1), 0.0
    for k in range(0, omega.size, CHUNK):
        rows = slice(k, k + CHUNK)
        both += float(np.sum((columns[rows].conj() * (window_correlation(omega, decay, rows) @ columns)).real))
    independent = float(np.sum(np.abs(columns) ** 2))
    return both / independent if independent > 0.0 else 1.0
