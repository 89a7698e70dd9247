"""Noise of measured FRFs as their coherence tells it."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import digamma, polygamma

from jaxmb.measurement.frf_set import FrfSet, without_chance
from jaxmb.measurement.line_noise import lines_of_window

SMALLEST_COHERENCE = 1e-6
"""Below it a value says nothing, and its standard deviation would be no number."""
LEAST_SIGNAL = 1e-3
"""Size of a response over its noise, below which it is nothing but noise."""
NEIGHBOURS = 8
"""Lines on either side whose noise is taken to be much the same."""


class CoherenceNoise(NamedTuple):
    """What a coherence tells of the noise of responses [f, o, i]."""

    std: Float[np.ndarray, "f o i"]
    """Standard deviation of the real and of the imaginary part of H; 0 where it is not known."""
    size: Float[np.ndarray, "f o i"]
    """Magnitude of H without what chance adds to it."""

    @property
    def log_std(self) -> Float[np.ndarray, "f o i"]:
        """Standard deviation of log H, real and imaginary part each; 0 where it is not known."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.std > 0.0, self.std / self.size, 0.0)


def coherence_noise(frf_set: FrfSet) -> CoherenceNoise:
    """Noise of each response as its coherence tells it.

    For one input, var(H) = |H|^2 (1 - c) / (2 n c), real and imaginary part each, for the coherence c of n independent
    averages, without what chance makes of it. A multiple coherence of several inputs tells the noise of an output:
    with inputs of equal spectra sum_k |H_ok|^2 stands for |H|^2. n averages tell this no better than a chi-square of
    2 (n - q) degrees, q inputs, does; so it is drawn towards that of neighbouring lines (see `moderated`).

    Where the set does not say how many averages are behind it, one is taken and nothing taken off for chance: the noise
    is then told too large, and lines count for less than they might.

    Source: Bendat and Piersol, Random Data, 4th ed., eq. 9.90 and section 9.2.
    """
    coherence, averages, size = frf_set.coherence, frf_set.averages, np.abs(frf_set.frf)
    if coherence is None:
        return CoherenceNoise(np.zeros(size.shape), size)
    inputs = 1 if coherence.ndim == 3 else size.shape[2]
    power = size**2 if inputs == 1 else np.nansum(size**2, axis=2, keepdims=True)
    raw = np.maximum(coherence if coherence.ndim == 3 else coherence[:, :, None], SMALLEST_COHERENCE)
    variance = power * (1.0 - without_chance(raw, averages, inputs)) / (2.0 * (averages or 1) * raw)
    variance = np.broadcast_to(np.nan_to_num(variance, nan=0.0), size.shape)
    if averages is not None and averages > inputs:
        alike = lines_of_window(frf_set.frequency_hz, frf_set.decay_1_s)
        variance = moderated(variance, 2 * (averages - inputs), alike)
        size = np.sqrt(np.maximum(size**2 - 2.0 * variance, 0.0))  # the noise adds its power
    std = np.sqrt(variance)
    return CoherenceNoise(std, np.maximum(size, LEAST_SIGNAL * std))


def moderated(variance: np.ndarray, degrees: float, alike: float = 1.0) -> np.ndarray:
    """Variances of lines that were each estimated with a few degrees of freedom, drawn towards their neighbours.

    Each estimate is taken as the true variance times a chi-square over its degrees d, and the true one as s0^2 d0 over
    a chi-square of d0 degrees, s0^2 the geometric mean of the neighbouring lines: d0 follows from how much more the
    logarithms scatter than chance makes them. Its posterior is (d0 s0^2 + d s^2) / (d0 + d), and the mean square of an
    error over it is D / (D - 2), D = d0 + d, by which it is multiplied.

    Args:
        variance: along the lines [f, ...]; lines of 0 or that are not finite stay as they are.
        degrees: d of each estimate.
        alike: number of neighbouring lines that tell no more than one.

    Source: Smyth, "Linear models and empirical Bayes methods for assessing differential expression in microarray
    experiments", Statistical Applications in Genetics and Molecular Biology 3(1), 2004, section 6.
    """
    result = variance.copy()
    for place in np.ndindex(variance.shape[1:]):
        line = variance[(slice(None), *place)]
        good = np.isfinite(line) & (line > 0.0)
        if np.sum(good) > 2 * NEIGHBOURS:
            result[(good, *place)] = _moderated(line[good], degrees, alike)
    return result


def _moderated(variance: Float[np.ndarray, "f"], degrees: float, alike: float) -> Float[np.ndarray, "f"]:
    chance = float(polygamma(1, degrees / 2.0))
    z = np.log(variance) - digamma(degrees / 2.0) + np.log(degrees / 2.0)
    count = np.convolve(np.ones(z.size), np.ones(2 * NEIGHBOURS + 1), "same") - 1.0
    trend = (np.convolve(z, np.ones(2 * NEIGHBOURS + 1), "same") - z) / count
    # the mean of neighbours scatters too: as much as one of them, divided by their number
    scatter = float(np.mean((z - trend) ** 2 / (1.0 + 1.0 / count)))
    prior = _degrees_of_scatter(scatter - chance)
    # the neighbours together have no more degrees than their estimates
    prior = 1.0 / (1.0 / prior + alike / (count * degrees))
    s0 = np.exp(trend + digamma(prior / 2.0) - np.log(prior / 2.0))
    total = prior + degrees
    return (prior * s0 + degrees * variance) / total * total / np.maximum(total - 2.0, 1.0)


def _degrees_of_scatter(variance: float) -> float:
    """d of a chi-square whose logarithm has the variance trigamma(d / 2); inf where that is 0 or less."""
    if variance <= 0.0:
        return np.inf
    half = 0.5 + 1.0 / variance  # Newton's steps on 1 / trigamma, from below, as Smyth has them
    for _ in range(50):
        value = float(polygamma(1, half))
        half += value * (1.0 - value / variance) / float(polygamma(2, half))
    return 2.0 * half
