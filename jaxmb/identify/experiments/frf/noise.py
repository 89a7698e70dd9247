"""Noise of the logarithms of FRFs: of additive noise, as large as a fit leaves, behind an exponential window."""

import numpy as np
from jaxtyping import Complex, Float
from scipy.optimize import root_scalar

from jaxmb.measurement.line_noise import window_correlation

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
