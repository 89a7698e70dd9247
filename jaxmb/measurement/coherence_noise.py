"""Noise of measured FRFs from their coherence."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import digamma, polygamma

from jaxmb.measurement.frf_set import FrfSet, without_chance
from jaxmb.measurement.line_noise import lines_of_window

SMALLEST_COHERENCE = 1e-6
"""Smaller values are raised to it, so that the standard deviation stays finite."""
LEAST_SIGNAL = 1e-3
"""Smallest magnitude of a response, as a multiple of its standard deviation."""
NEIGHBOURS = 8
"""Lines on either side whose noise is assumed to be similar."""


class CoherenceNoise(NamedTuple):
    """Noise of responses [f, o, i] from their coherence."""

    std: Float[np.ndarray, "f o i"]
    """Standard deviation of the real and of the imaginary part of H; 0 where it is not known."""
    size: Float[np.ndarray, "f o i"]
    """Magnitude of H with the bias by noise removed."""

    @property
    def log_std(self) -> Float[np.ndarray, "f o i"]:
        """Standard deviation of log H, real and imaginary part each; 0 where it is not known."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.std > 0.0, self.std / self.size, 0.0)


def coherence_noise(frf_set: FrfSet) -> CoherenceNoise:
    """Noise of each response from its coherence.

    For one input, var(H) = |H|^2 (1 - c) / (2 n c), real and imaginary part each, with the bias-corrected coherence c
    of n independent averages. A multiple coherence of several inputs determines the noise of an output: with inputs of
    equal spectra, sum_k |H_ok|^2 replaces |H|^2. The estimate scatters as a chi-square of 2 (n - q) degrees of freedom,
    q inputs; it is therefore shrunk towards that of neighbouring lines (see `moderated`).

    Where the number of averages is not known, one is assumed and no bias is removed: the noise is then overestimated
    and the lines are underweighted.

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
        correlated = lines_of_window(frf_set.frequency_hz, frf_set.decay_1_s)
        variance = moderated(variance, 2 * (averages - inputs), correlated)
        size = np.sqrt(np.maximum(size**2 - 2.0 * variance, 0.0))  # noise adds its power to |H|^2
    std = np.sqrt(variance)
    return CoherenceNoise(std, np.maximum(size, LEAST_SIGNAL * std))


def moderated(variance: np.ndarray, degrees: float, alike: float = 1.0) -> np.ndarray:
    """Variances, each estimated with few degrees of freedom, shrunk towards those of neighbouring lines (moderated).

    Each estimate is modelled as the true variance times a chi-square over its degrees of freedom d, the true variance
    as s0^2 d0 over a chi-square of d0 degrees, s0^2 the geometric mean of the neighbouring lines. d0 follows from the
    excess scatter of the logarithms over its expectation. The posterior is (d0 s0^2 + d s^2) / (d0 + d), multiplied by
    D / (D - 2), D = d0 + d, the mean square of an error over it.

    Args:
        variance: along the lines [f, ...]; values that are 0 or not finite are unchanged.
        degrees: d of each estimate.
        alike: correlation length of the noise in lines.

    Source: Smyth, "Linear models and empirical Bayes methods for assessing differential expression in microarray
    experiments", Statistical Applications in Genetics and Molecular Biology 3(1), 2004, section 6.
    """
    result = variance.copy()
    for response in np.ndindex(variance.shape[1:]):
        values = variance[(slice(None), *response)]
        good = np.isfinite(values) & (values > 0.0)
        if np.sum(good) > 2 * NEIGHBOURS:
            result[(good, *response)] = _moderated(values[good], degrees, alike)
    return result


def _moderated(variance: Float[np.ndarray, "f"], degrees: float, alike: float) -> Float[np.ndarray, "f"]:
    chance = float(polygamma(1, degrees / 2.0))
    z = np.log(variance) - digamma(degrees / 2.0) + np.log(degrees / 2.0)
    count = np.convolve(np.ones(z.size), np.ones(2 * NEIGHBOURS + 1), "same") - 1.0
    trend = (np.convolve(z, np.ones(2 * NEIGHBOURS + 1), "same") - z) / count
    # the mean of the neighbours scatters too, with the variance of one divided by their number
    scatter = float(np.mean((z - trend) ** 2 / (1.0 + 1.0 / count)))
    prior = _degrees_of_scatter(scatter - chance)
    # the neighbours together have at most the degrees of freedom of their estimates
    prior = 1.0 / (1.0 / prior + alike / (count * degrees))
    s0 = np.exp(trend + digamma(prior / 2.0) - np.log(prior / 2.0))
    total = prior + degrees
    return (prior * s0 + degrees * variance) / total * total / np.maximum(total - 2.0, 1.0)


def _degrees_of_scatter(variance: float) -> float:
    """Degrees of freedom d for which log chi-square has this variance, trigamma(d / 2); inf where it is 0 or less."""
    if variance <= 0.0:
        return np.inf
    half = 0.5 + 1.0 / variance  # Newton steps on 1 / trigamma, from below (Smyth)
    for _ in range(50):
        value = float(polygamma(1, half))
        half += value * (1.0 - value / variance) / float(polygamma(2, half))
    return 2.0 * half
