"""Noise of measured FRFs: correlation along frequency, outlier lines, cross-axis leakage, noise from coherence."""

import itertools
import warnings
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from jaxtyping import Complex, Float
from numpy.lib.stride_tricks import sliding_window_view

from jaxmb.measurement.frf_set import FrfSet, chance_correlation, largest_of_rows, split_dof, unbiased_coherence
from jaxmb.response.frf_kind import turns

FALSE_ALARM = 1e-4
"""Probability that one line or more of a good test is reported as an outlier."""
MOST_OUTLIERS = 0.05
"""Largest share of outlier lines; above it none is reported."""
NEIGHBOURS = 3
NORMAL, CLIPPED_AT = 1.4826, 3.0
"""Standard deviation of a normal variable over its median magnitude; standard deviations at which errors are clipped
before they are tested for correlation, so that a single outlier does not decide."""
SIGNIFICANT = 5.0
"""Standard deviations above which a sum of products is significant: one false alarm in a million."""
FIRST_LAG, LAGS = 4, 6
"""Lag in lines beyond which no window correlates noise, and number of lags tested from there."""
LARGER = 1e-3
"""Probability of a larger sum of squares of independent errors."""
SMOOTH = 36.0
"""Square of errors over that of their scatter from line to line above which they are smooth; of noise behind a Hann
window it is 6."""


def correlation_length(errors: np.ndarray, present: np.ndarray) -> float:
    """Correlation length of errors in lines: the integrated autocorrelation 1 + 2 sum rho_k.

    The sum ends at the first lag with no positive correlation (Geyer, Statistical Science 7(4), 1992).

    Args:
        errors: in units of their standard deviation [part, f, ...], 0 where missing.
        present: mask of the errors that exist, same shape.
    """
    power = np.sum(errors**2) / max(int(np.sum(present)), 1)
    count = 1.0
    for lag in range(1, errors.shape[1]):
        pairs = int(np.sum(present[:, lag:] & present[:, :-lag]))
        shared = np.sum(errors[:, lag:] * errors[:, :-lag]) / max(pairs, 1)
        if power == 0.0 or shared <= 0.0:
            break
        count += 2.0 * float(shared / power)
    return count


def window_correlation_of(errors: np.ndarray, present: np.ndarray) -> Float[np.ndarray, "lag"]:
    """Correlation of errors one line apart, two lines, ... by the window of the spectra (Hann: 4 / 9, 1 / 36, 0).

    The autocorrelation over the lags below `FIRST_LAG`, less the mean of those beyond, which a window does not explain;
    0 where that of neighbouring lines is not significant, and where the errors exceed their standard deviation: a model
    error that does not is not significant either.

    Args:
        errors: in units of their standard deviation [part, f, ...], 0 where missing.
        present: mask of the errors that exist, same shape.
    """
    count, square, lags = int(np.sum(present)), float(np.sum(errors**2)), range(1, FIRST_LAG + LAGS)
    usual_square = count + NormalDist().inv_cdf(1.0 - LARGER) * np.sqrt(2.0 * count)
    if not 0.0 < square <= usual_square or errors.shape[1] <= lags.stop:
        return np.zeros(FIRST_LAG - 1)
    usual = CLIPPED_AT * NORMAL * float(np.median(np.abs(errors[present])))
    clipped = np.clip(errors, -usual, usual) / np.sqrt(square / count)
    pairs = [max(int(np.sum(present[:, k:] & present[:, :-k])), 1) for k in lags]
    rho = np.array([np.sum(clipped[:, k:] * clipped[:, :-k]) / of for k, of in zip(lags, pairs, strict=True)])
    own = rho[: FIRST_LAG - 1] - max(float(np.mean(rho[FIRST_LAG - 1 :])), 0.0)
    is_significant = float(own[0]) * np.sqrt(pairs[0]) > SIGNIFICANT
    return np.maximum(own, 0.0) if is_significant else np.zeros(own.size)


def systematic(errors: np.ndarray, present: np.ndarray, window: float = 1.0) -> float:
    """Systematic share of the variance of errors; 0 where it is not significant.

    Model error is correlated along frequency beyond the correlation length of any window (`FIRST_LAG`), or common to
    the FRFs of different inputs at a line, which were measured at different times. The larger of the two shares is
    returned where it is significant by `SIGNIFICANT` standard deviations.

    Args:
        errors: in units of their standard deviation [part, f, output, input], 0 where missing.
        present: mask of the errors that exist, same shape.
        window: correlation length of the window in lines.
    """
    power = float(np.sum(errors**2)) / max(int(np.sum(present)), 1)
    if power == 0.0:
        return 0.0
    usual, largest = float(np.median(np.abs(errors[present]))) * NORMAL, 0.0
    for products in (lambda each: _along(each, int(np.ceil(FIRST_LAG * window))), _across):
        clipped = products(np.clip(errors, -CLIPPED_AT * usual, CLIPPED_AT * usual))
        # standard deviation of a sum of independent products, whatever their sizes
        std = np.sqrt(sum(float(np.sum(each**2)) for each in clipped))
        if sum(float(np.sum(each)) for each in clipped) > SIGNIFICANT * std:
            shared, count = (sum(float(np.sum(each)) for each in products(of)) for of in (errors, present.astype(int)))
            largest = max(largest, shared / count / power)
    return largest


def smooth_share(errors: np.ndarray, present: np.ndarray) -> float:
    """Share of the typical square of errors above that of their second differences along the lines, sums of medians of
    all FRFs; 0 unless the ratio is above `SMOOTH`.

    It shows that the errors of few lines are no noise, unless these are interpolated, as by zeros behind the records.

    Args:
        errors: [part, f, output, input], 0 where missing.
        present: mask of the errors that exist, same shape.
    """
    known = np.where(present, errors, np.nan)
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # of FRFs without three lines
        squares = np.nanmedian(known**2, axis=(0, 1))
        scatter = np.nanmedian(np.diff(known, 2, axis=1) ** 2, axis=(0, 1)) / 6.0
    of_errors, of_scatter = (float(np.sum(each[np.isfinite(scatter)])) for each in (squares, scatter))
    return 1.0 - of_scatter / of_errors if of_errors > SMOOTH * of_scatter else 0.0


def _along(errors: np.ndarray, first: int) -> list[np.ndarray]:
    """Products of errors `first` to `first + LAGS - 1` lines apart, summed over blocks of `first` lines."""
    count = errors.shape[1] - first - LAGS
    if count <= 0:
        return []
    later = sum(errors[:, k : k + count] for k in range(first, first + LAGS))
    return [np.add.reduceat(errors[:, :count] * later, np.arange(0, count, first), axis=1)]


def _across(errors: np.ndarray) -> list[np.ndarray]:
    """Products of the errors of different inputs at a line, each summed over the outputs first."""
    of_input = errors.sum(axis=2)
    return [of_input[..., i] * of_input[..., j] for i, j in itertools.combinations(range(errors.shape[3]), 2)]


def outlier_lines(errors: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Indices of outlier lines; empty where they exceed `MOST_OUTLIERS` of all lines.

    An error is compared with the median of the mean errors of up to `NEIGHBOURS` pairs of lines, one on either side,
    which removes a slope; the difference is divided by 1.48 times the median magnitude of all such differences of its
    FRF. A line is an outlier where this exceeds the bound that noise passes in `FALSE_ALARM` of all tests. The worst
    line is removed first, and the others are judged again without it.

    Args:
        errors: in any unit [part, f, ...].
        present: mask of the errors that exist, same shape.
    """
    count, found = errors.shape[1], []
    remaining = np.where(present, errors, np.nan).reshape(len(errors), count, -1)
    bound = -NormalDist().inv_cdf(0.5 * FALSE_ALARM / max(int(np.sum(present)), 1))
    while True:  # one at a time: an outlier must not count against its neighbours
        deviation = _deviations(remaining) if count > 2 * NEIGHBOURS else np.zeros_like(remaining)
        worst = int(np.argmax(np.max(deviation, axis=(0, 2))))
        if np.max(deviation[:, worst]) <= bound:
            return np.array(sorted(found), dtype=int)
        found.append(worst)
        remaining[:, worst] = np.nan
        if len(found) > MOST_OUTLIERS * count:
            return np.zeros(0, dtype=int)


def _deviations(errors: Float[np.ndarray, "p f e"]) -> Float[np.ndarray, "p f e"]:
    """Deviation of each error from its neighbours over 1.48 times the median deviation; 0 where not known."""
    padded = np.pad(errors, ((0, 0), (NEIGHBOURS, NEIGHBOURS), (0, 0)), constant_values=np.nan)
    window = sliding_window_view(padded, 2 * NEIGHBOURS + 1, axis=1)
    pairs = 0.5 * (window + window[..., ::-1])[..., :NEIGHBOURS]
    # of lines without neighbours, and FRFs without lines
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        deviation = np.abs(errors - np.nanmedian(pairs, axis=-1))
        usual = np.nanmedian(deviation, axis=1, keepdims=True) / NormalDist().inv_cdf(0.75)
    return np.nan_to_num(deviation / np.where(usual > 0.0, usual, np.inf))


def window_correlation(
    omega: Float[np.ndarray, "f"], decay_1_s: float, rows: slice = slice(None)
) -> Complex[np.ndarray, "r f"]:
    """Correlation E[N_k N_l*] / var N between lines of white noise under the exponential window exp(-sigma t).

    It is 2 sigma / (2 sigma + j (omega_k - omega_l)), the Fourier transform of the squared window.

    Args:
        omega: the lines, rad/s.
        decay_1_s: sigma, 1/s.
        rows: the lines k to compute.
    """
    return 2.0 * decay_1_s / (2.0 * decay_1_s + 1j * (omega[rows, None] - omega))


def lines_of_window(frequency_hz: Float[np.ndarray, "f"], decay_1_s: float) -> float:
    """Correlation length in lines of noise under an exponential window, 1 + 2 sum |rho_k|^2."""
    if decay_1_s == 0.0 or frequency_hz.size < 2:
        return 1.0
    step = 2.0 * np.pi * float(np.median(np.diff(frequency_hz)))
    return 1.0 + 2.0 * float(np.sum(1.0 / (1.0 + (np.arange(1, frequency_hz.size) * step / (2.0 * decay_1_s)) ** 2)))


def cross_axis_leak(frf_set: FrfSet, share: float) -> np.ndarray:
    """Error of H [f, o, i] by a share of the largest response at each line that leaks into all others.

    Accelerometers have a few percent of transverse sensitivity, and a hammer a few degrees off axis excites a few
    percent in the other directions: a small cross response beside a large direct one is dominated by this leakage.
    Responses are compared with those of the same unit.

    Args:
        frf_set: the responses.
        share: of the largest response; 0.03 to 0.05 for common sensors and manual hits.
    """
    frf = np.where(frf_set.finite, frf_set.frf, 0.0)
    rotates = [np.array([turns(split_dof(name)[1]) for name in names]) for names in (frf_set.outputs, frf_set.inputs)]
    leak = np.zeros(frf.shape, complex)
    for o, i in itertools.product((False, True), repeat=2):
        block = np.ix_(np.arange(len(frf)), rotates[0] == o, rotates[1] == i)
        if frf[block].size:
            leak[block] = largest_of_rows(frf[block].reshape(len(frf), -1))[:, :, None]
    return share * leak


def misalignment_leak(frf_set: FrfSet, angle: float) -> np.ndarray:
    """Error of H [f, o, i] by sensors and forces that are askew: each response holds the angle times the largest
    response across it, of another direction at the point of its output or of its input. 0 where none was measured.

    Args:
        frf_set: the responses.
        angle: standard deviation of the directions, rad.
    """
    frf = np.where(frf_set.finite, frf_set.frf, 0.0)
    parts = []
    for axis, names in ((1, frf_set.outputs), (2, frf_set.inputs)):
        along, found = np.moveaxis(frf, axis, 1), np.zeros(np.moveaxis(frf, axis, 1).shape, complex)
        # translations, or rotations, of one point; a name without a direction has no other
        kinds = [(node, turns(direction)) if direction else node for node, direction, _ in map(split_dof, names)]
        for k, kind in enumerate(kinds):
            others = [j for j, other in enumerate(kinds) if j != k and other == kind]
            if others:
                found[:, k] = largest_of_rows(along[:, others])[:, 0]
        parts.append(np.moveaxis(found, 1, axis))
    size = np.hypot(*(np.abs(part) for part in parts))
    larger = np.where(np.abs(parts[0]) >= np.abs(parts[1]), *parts)
    return angle * size * larger / np.where(larger != 0.0, np.abs(larger), 1.0)


SMALLEST_COHERENCE = 1e-6
"""Smaller values are raised to it, so that the standard deviation stays finite."""
LEAST_SIGNAL = 1e-3
"""Smallest magnitude of a response, as a multiple of its standard deviation."""
SIMILAR_LINES = 8
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
    equal spectra, sum_k |H_ok|^2 (n - 1) / (n - q) replaces |H|^2, q independent inputs (see `chance_correlation`). The
    estimate scatters as a chi-square of 2 (n - q) degrees of freedom; it is therefore shrunk towards that of
    neighbouring lines (see `moderated`).

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
    power = power * chance_correlation(averages, inputs)
    variance = power * (1.0 - unbiased_coherence(raw, averages, inputs)) / (2.0 * (averages or 1) * raw)
    variance = np.broadcast_to(np.nan_to_num(variance, nan=0.0), size.shape)
    if averages is not None and averages > inputs:
        correlated = lines_of_window(frf_set.frequency_hz, frf_set.decay_1_s)
        variance = moderated(variance, 2 * (averages - inputs), correlated)
        size = np.sqrt(np.maximum(size**2 - 2.0 * variance, 0.0))  # noise adds its power to |H|^2
    std = np.sqrt(variance)
    return CoherenceNoise(std, np.maximum(size, LEAST_SIGNAL * std))


def moderated(variance: np.ndarray, degrees: float, length: float = 1.0) -> np.ndarray:
    """Variances, each estimated with few degrees of freedom, shrunk towards those of neighbouring lines (moderated).

    Each estimate is modelled as the true variance times a chi-square over its degrees of freedom d, the true variance
    as s0^2 d0 over a chi-square of d0 degrees, s0^2 the geometric mean of the neighbouring lines. d0 follows from the
    excess scatter of the logarithms over its expectation. The posterior is (d0 s0^2 + d s^2) / (d0 + d), multiplied by
    D / (D - 2), D = d0 + d, the mean square of an error over it.

    Args:
        variance: along the lines [f, ...]; values that are 0 or not finite are unchanged.
        degrees: d of each estimate.
        length: correlation length of the noise in lines.

    Source: Smyth, "Linear models and empirical Bayes methods for assessing differential expression in microarray
    experiments", Statistical Applications in Genetics and Molecular Biology 3(1), 2004, section 6.
    """
    result = variance.copy()
    for response in np.ndindex(variance.shape[1:]):
        values = variance[(slice(None), *response)]
        good = np.isfinite(values) & (values > 0.0)
        if np.sum(good) > 2 * SIMILAR_LINES:
            result[(good, *response)] = _moderated(values[good], degrees, length)
    return result


def _moderated(variance: Float[np.ndarray, "f"], degrees: float, length: float) -> Float[np.ndarray, "f"]:
    from scipy.optimize import root_scalar  # imported here: each takes a tenth of a second
    from scipy.special import digamma, polygamma

    chance = float(polygamma(1, degrees / 2.0))
    z = np.log(variance) - digamma(degrees / 2.0) + np.log(degrees / 2.0)
    count = np.convolve(np.ones(z.size), np.ones(2 * SIMILAR_LINES + 1), "same") - 1.0
    trend = (np.convolve(z, np.ones(2 * SIMILAR_LINES + 1), "same") - z) / count
    # the mean of the neighbours scatters too, with the variance of one divided by their number
    excess = float(np.mean((z - trend) ** 2 / (1.0 + 1.0 / count))) - chance
    prior = np.inf
    if excess > 0.0:  # the degrees of freedom d for which log chi-square has this variance, trigamma(d / 2)
        bounds = 0.5 / excess, (1.0 + np.sqrt(1.0 + 4.0 * excess)) / excess
        prior = 2.0 * root_scalar(lambda half: polygamma(1, half) / excess - 1.0, bracket=bounds).root
    # the neighbours together have at most the degrees of freedom of their estimates
    prior = 1.0 / (1.0 / prior + length / (count * degrees))
    s0 = np.exp(trend + digamma(prior / 2.0) - np.log(prior / 2.0))
    total = prior + degrees
    return (prior * s0 + degrees * variance) / total * total / np.maximum(total - 2.0, 1.0)
