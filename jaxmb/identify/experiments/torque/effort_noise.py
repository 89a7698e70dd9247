"""Noise of measured efforts (joint torques or forces): its size, correlation and an upper bound."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_toeplitz

from jaxmb.identify.estimation.identifiability import RANK_TOLERANCE, scaled_svd, triangular_factor
from jaxmb.identify.estimation.linear import linear_fit, tukey, tukey_square
from jaxmb.identify.experiments.torque.effort_rows import EffortRows, least_norm_solution

ROUNDS = 3
ROBUST_ROUNDS = 20
CONVERGED = 1e-3
"""Relative change of robust deviations at convergence, far below their sampling error."""
SMALLEST = 1e-12
"""Standard deviation over the largest effort, below which it is rounding."""
MOST_ORDER = 10
"""Largest order of the autoregressive process."""
MOST_SHARE = 0.9
"""Upper limit of the share of motion errors in the variance of a residual."""
SAMPLES_PER_COEFFICIENT = 10
"""Smallest number of samples for each coefficient of the autoregressive process."""
NORMAL_MEDIAN = 0.674490
"""Median size of normal errors of deviation 1."""
NORMAL_SQUARE = float(tukey_square(np.ones(1))[0])
"""Mean square of normal errors of deviation 1 by Tukey's weights, 0.828."""


class EffortNoise(NamedTuple):
    """Noise of the efforts at each coordinate."""

    std: Float[np.ndarray, "c"]
    """Standard deviation with which samples enter as if independent, Nm or N: scatter times
    the root of `correlation_length`."""
    correlation_length: Float[np.ndarray, "c"]
    """Correlation length in samples: that many carry the information of one independent sample."""


def effort_noise(rows: EffortRows, robust: bool = False) -> EffortNoise:
    """Noise of the efforts at each coordinate, from the residual of a fit of all parameters.

    Iteratively reweighted least squares. At each coordinate the residual sum of squares is divided by its degrees of
    freedom: samples minus the sum of their leverages. For an autocorrelated residual the deviation is inflated by the
    root of the correlation length, so that samples can be treated as independent.

    Args:
        rows: equations of the motion.
        robust: outliers are excluded. Each residual has Tukey's weight by the median absolute residual of its
            coordinate, and the weighted mean square is divided by its value for normal errors, so that it estimates
            their variance.

    Source: Horn, Horn and Duncan 1975, "Estimating heteroscedastic variances in linear models"; of the robust scale
    Huber and Ronchetti, Robust Statistics (2009), chapter 5.
    """
    effort, smallest = rows.effort - rows.constant, SMALLEST * float(np.abs(rows.effort).max())
    groups = [np.flatnonzero(rows.coordinate == i) for i in range(len(rows.measured))]
    std = np.array([np.std(effort[own]) or 1.0 for own in groups])
    lengths, weight = np.ones(len(groups)), np.ones(effort.size)
    for _ in range(ROBUST_ROUNDS if robust else ROUNDS):
        before, scale = std.copy(), np.sqrt(weight) / std[rows.coordinate]
        scaled = rows.regressor * scale[:, None]
        residual = effort - rows.regressor @ least_norm_solution(scaled, effort * scale)
        for i, (own, used) in enumerate(zip(groups, _degrees_used(scaled, rows.coordinate), strict=True)):
            part = residual[own]
            if robust:
                std[i], weight[own], part = _robust_scale(part, weight[own], used, smallest)
            else:
                std[i] = max(np.sqrt(np.sum(part**2) / max(1.0, part.size - used)), smallest)
            lengths[i] = correlation_length(part, used)
        if robust and np.all(np.abs(std - before) <= CONVERGED * std):
            break
    return EffortNoise(std * np.sqrt(lengths), lengths)


def _robust_scale(
    residual: Float[np.ndarray, "k"], weight: Float[np.ndarray, "k"], used: float, smallest: float
) -> tuple[float, Float[np.ndarray, "k"], Float[np.ndarray, "k"]]:
    """Standard deviation and Tukey's weights of a residual, fitted with other weights and so many degrees of freedom,
    and the residual with outliers interpolated, as they carry no information on the correlation."""
    counted = max(1.0, np.sum(weight > 0.0))
    shrunk = np.sqrt(max(1.0, counted - used) / counted)  # expected residual over error
    size = max(float(np.median(np.abs(residual)) / (NORMAL_MEDIAN * shrunk)), smallest)
    weight = tukey(residual / size)
    square = float(weight @ residual**2 / weight.sum()) / NORMAL_SQUARE
    at, good = np.arange(residual.size), weight > 0.0
    return max(np.sqrt(square) / shrunk, smallest), weight, np.interp(at, at[good], residual[good])


def motion_errors(
    rows: EffortRows, others: Sequence[EffortRows], std: Float[np.ndarray, "r"], robust: bool = False
) -> tuple[Float[np.ndarray, "p"], Float[np.ndarray, "c"], Float[np.ndarray, "c"]]:
    """Bias and scatter of the parameters due to errors of the motion, from fits with motion errors resampled.

    Errors of a motion are small and slow compared with the noise of efforts, so that they hardly appear in the
    residual. The mean over both signs of the errors is quadratic in them: it estimates the attenuation bias of errors
    in the regressor, which reduces inertias. Half the difference is linear in the errors and has the scatter of the
    parameters.

    Args:
        rows: equations of the motion.
        others: equations with added motion errors, each draw followed by the one of opposite sign.
        std: of the efforts, Nm or N.
        robust: outliers of the efforts are excluded.

    Returns:
        Bias of the parameters; variance of independent errors of the efforts at each coordinate that would give the
        same scatter of parameters; share of motion errors in the residual variance at each coordinate.

    Source: Cook and Stefanski 1994, "Simulation-extrapolation estimation in parametric measurement error models".
    """
    size = np.array([std[rows.coordinate == i][0] for i in range(len(rows.measured))])
    found, variances = [], []
    for each in (rows, *others):
        fit = linear_fit(each.regressor, each.effort - each.constant, size[each.coordinate], robust=robust)
        found.append(fit.values)
        squares = fit.weights * fit.residual**2
        variances.append(np.bincount(each.coordinate, squares) / np.bincount(each.coordinate, fit.weights))
    own, drawn = found[0], found[1:]
    plus, minus = np.array(drawn[::2]), np.array(drawn[1::2])
    scatter = rows.regressor @ (0.5 * (plus - minus)).T
    squares = np.bincount(rows.coordinate, np.mean(scatter**2, axis=1))
    degrees = _degrees_used(rows.regressor / size[rows.coordinate, None], rows.coordinate)
    # the added errors double the error variance
    share = np.clip(np.mean(variances[1:], axis=0) / variances[0] - 1.0, 0.0, MOST_SHARE)
    return np.mean(0.5 * (plus + minus), axis=0) - own, squares / np.maximum(degrees, 1e-9), share


def _degrees_used(matrix: Float[np.ndarray, "r p"], coordinate: np.ndarray) -> Float[np.ndarray, "c"]:
    """Degrees of freedom of a fit used by the rows of each coordinate: sums of leverages, in total the rank."""
    svd = scaled_svd(triangular_factor([matrix]), RANK_TOLERANCE)
    return np.bincount(coordinate, np.sum(svd.basis(matrix) ** 2, axis=1))


def correlation_length(residual: Float[np.ndarray, "k"], fitted: float = 0.0) -> float:
    """Correlation length of a residual in samples, at least 1: that many carry the information of one independent
    sample.

    The sum of all correlations of an autoregressive process, s^2 / (1 - sum a)^2 over its variance, its order chosen by
    the Schwarz criterion. A fit of p parameters reduces the correlation: sum a is biased by -(p (1 + sum a) + 2 sum a)
    / k, which is corrected.

    Args:
        residual: of k samples.
        fitted: number p of fitted parameters.

    Source: Andrews and Monahan 1992, "An improved heteroskedasticity and autocorrelation consistent covariance matrix
    estimator"; Marriott and Pope 1954, "Bias in the estimation of autocorrelations", for the mean, p = 1.
    """
    count = len(residual)
    order = min(MOST_ORDER, count // SAMPLES_PER_COEFFICIENT)
    covariance = np.array([residual[lag:] @ residual[: count - lag] / count for lag in range(order + 1)])
    if not covariance[0] > 0.0:
        return 1.0
    best, coefficients, noise = np.inf, np.zeros(0), covariance[0]
    for p in range(order + 1):
        a = solve_toeplitz(covariance[:p], covariance[1 : p + 1]) if p else np.zeros(0)
        variance = max(covariance[0] - a @ covariance[1 : p + 1], 1e-15 * covariance[0])
        criterion = count * np.log(variance) + p * np.log(count)
        if criterion < best:
            best, coefficients, noise = criterion, a, variance
    total = float(np.sum(coefficients))
    if coefficients.size:
        total += max(0.0, (fitted * (1.0 + total) + 2.0 * total) / count)
    # limited, as few samples do not distinguish such a process from a drift
    total = min(total, 1.0 - min(1.0, 2.0 * (fitted + 1.0) / count))
    if total >= 1.0:
        return 1.0
    degrees = max(1.0, count - fitted) / max(1.0, count - fitted - coefficients.size)
    return float(max(1.0, degrees * noise / covariance[0] / (1.0 - total) ** 2))


MOTION = 0.99
"""Part of the variance of velocities within the band of the motion."""
HARMONICS = 4.0
"""Multiple of the band above which torques contain little of the motion: rigid bodies double frequencies, friction is
odd."""
RISE = 6.0
"""Allowance for more noise below the band in which it is estimated, in widths of that band: a spectrum of 1 / f^2 over
two octaves, as of a first order process with a correlation of 0.95 between neighbours."""


def noise_bound(
    effort: Float[np.ndarray, "k c"], velocity: Float[np.ndarray, "k m"], rate_hz: float, bandwidth_hz: float
) -> Float[np.ndarray, "c"]:
    """Upper bound of the standard deviation of the noise of filtered efforts, Nm or N [c].

    The largest mean power spectral density of any octave of the recorded efforts above the band of the motion is
    assumed over the whole bandwidth, with the allowance `RISE` below. For a record filtered before it was written, the
    octave next to the motion decides.

    Args:
        effort: as recorded, at the used samples.
        velocity: of all recorded coordinates, at the same samples.
        rate_hz: samples per second.
        bandwidth_hz: of the filter of the efforts.
    """
    window = np.hanning(len(effort) + 2)[1:-1, None]
    frequency = np.fft.rfftfreq(len(effort), 1.0 / rate_hz)
    speeds, efforts = (
        np.abs(np.fft.rfft(window * (part - part.mean(axis=0)), axis=0)) ** 2 for part in (velocity, effort)
    )
    share = np.cumsum(np.sum(speeds, axis=1))
    within = float(frequency[int(np.searchsorted(share, MOTION * share[-1]))])
    first, density = np.clip(HARMONICS * within, frequency[1], rate_hz / 4.0), np.zeros(effort.shape[1])
    low = first
    while low < rate_hz / 2.0:
        octave = (frequency >= low) & (frequency < 2.0 * low)
        if octave.any():
            density = np.maximum(density, efforts[octave].mean(axis=0))
        low *= 2.0
    width = min(bandwidth_hz, rate_hz / 2.0)
    return np.sqrt(2.0 * density * (width + RISE * min(first, width)) / (rate_hz * np.sum(window**2)))
