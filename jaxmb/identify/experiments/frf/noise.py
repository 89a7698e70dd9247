"""Noise of the logarithms of FRFs: of additive noise, as large as a fit leaves, behind an exponential window."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Complex, Float
from scipy.optimize import linear_sum_assignment, root_scalar

from jaxmb.measurement.line_noise import window_correlation

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


BEYOND = 5.0
"""Standard deviations of additive noise, beyond which a value of H is one time in 3e5 by that alone."""
CHUNK = 512
"""Lines whose correlation with all others is held at a time."""
LARGEST = 0.2
"""Relative noise up to which log H scatters as its noise does: a logarithm of less than a fifth of it is another."""
SMALLEST = 1e-6
"""Part of what leaks below which a response says nothing."""
NEGLIGIBLE = 0.05
"""Noise, over another one beside it, that adds no more than 0.2 % to its size."""

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
    """`level`, `known_std`, `noise_std` and `weight` with additive noise taken of the FRFs of the machine that fits.

    Lines count for more where noise happened to make them large, if the noise is taken of what was measured: that
    biases a fit. Where the machine's FRFs are so small that log H is no longer as scattered as its noise (`LARGEST`),
    they do not count. What no noise makes of the machine's FRF (`BEYOND`) stays as it is: the machine does not follow
    it.

    Args:
        predicted: FRFs of the machine that fits.
        measured: those that were measured.
        additive_std: standard deviation of the additive noise of H, real and imaginary part each.
        level: magnitude of H of which it was taken.
        known_std: standard deviation of log H by it and by what else is known of each line.
        noise_std: by all.
        weight: of each line.
    """
    beyond = np.abs(predicted - measured) > BEYOND * additive_std
    now = np.where(beyond, level, np.abs(predicted))
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(additive_std > 0.0, additive_std / now, 0.0)
        change = np.where(additive_std > 0.0, relative**2 - (additive_std / level) ** 2, 0.0)
    counts = beyond | (relative <= LARGEST)
    known, noise = (np.sqrt(np.maximum(std**2 + np.where(counts, change, 0.0), 0.0)) for std in (known_std, noise_std))
    return {
        "known_std": known,
        "noise_std": noise,
        "level": np.where(counts, now, level),
        "weight": np.where(counts, weight, 0.0),
    }


def most_likely_factor(
    squares: Float[np.ndarray, "n"],
    known: Float[np.ndarray, "n"],
    rest: Float[np.ndarray, "n"],
    weight: Float[np.ndarray, "n"],
) -> float:
    """The most likely factor f of weighted squares whose variance is weight (known + f^2 rest).

    Where what is known explains all squares, it makes the rest `NEGLIGIBLE` beside it.
    """
    most = float(np.sqrt(np.max(squares / (weight * rest), initial=0.0)))
    least = float(np.finfo(float).eps)
    if known.size and np.all(known > 0.0):
        least = NEGLIGIBLE / float(np.sqrt(np.mean(rest / known)))

    def slope(factor: float) -> float:
        """Of the logarithm of the likelihood, over the variance."""
        variance = known + factor**2 * rest
        return float(np.sum((squares - weight * variance) * rest / variance**2)) * factor**4

    if most <= least or slope(least) <= 0.0:
        return least
    return root_scalar(slope, bracket=(least, most), xtol=1e-9 * least).root


def leak_std(leak: Complex[np.ndarray, "f o i"], frf: Complex[np.ndarray, "f o i"]) -> Lines:
    """Standard deviation of log H, real and imaginary part each, by a leak into H."""
    size = np.maximum(np.abs(np.where(np.isfinite(frf), frf, 0.0)), SMALLEST * np.abs(leak))
    return np.where(leak != 0.0, np.abs(leak) / np.where(size > 0.0, size, 1.0) / np.sqrt(2.0), 0.0)


def leak_factor(scaled: Float[np.ndarray, "m r"], leak: Complex[np.ndarray, "f o i"]) -> float:
    """How many times larger it makes the variance of errors along some directions that a leak is one for all lines.

    Args:
        scaled: directions as columns, in units of the noise; real parts of all lines, then imaginary parts.
        leak: what one standard deviation of the leak adds to log H, in units of the noise.
    """
    real, imaginary = scaled.reshape(2, len(leak), -1, scaled.shape[1])
    each: np.ndarray = leak.reshape(len(leak), -1, 1)
    squares = real**2 + imaginary**2
    independent = float(np.sum(squares))
    together = float(np.sum(np.sum(np.real(each) * real + np.imag(each) * imaginary, axis=0) ** 2))
    apart = float(np.sum(squares * np.abs(each) ** 2)) / 2.0
    return max(1.0 + (together - apart) / independent, 1.0) if independent > 0.0 else 1.0


def window_factor(
    scaled: Float[np.ndarray, "m r"],
    measured: Complex[np.ndarray, "f o i"],
    omega: Float[np.ndarray, "f"],
    decay: float,
) -> float:
    """How many times larger an exponential window makes the variance of errors along some directions.

    Behind the window lines have noise in common (see `window_correlation`), which is turned by the phase of their
    response in log H.

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
