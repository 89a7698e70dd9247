"""How far measured efforts scatter, where neighbouring samples may be alike."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_toeplitz

from jaxmb.identify.estimation.linear import linear_fit, tukey
from jaxmb.identify.experiments.torque.prepared import RANK, Prepared, least_squares

ROUNDS = 3
ROBUST_ROUNDS = 20
SETTLED = 1e-3
"""Relative change of robust deviations, far below what samples tell of them."""
SMALLEST = 1e-12
"""Of the largest effort: a smaller deviation is rounding."""
MOST_ORDER = 10
"""Of the autoregressive process."""
MOST_SHARE = 0.9
"""Of errors of the motion in residuals: what efforts scatter beside them is no better known."""
SAMPLES_EACH = 10
"""Samples for each of its coefficients, at least."""
NORMAL_MEDIAN = 0.674490
"""Median size of normal errors of deviation 1."""
NORMAL_SQUARE = 0.828073
"""Mean square of normal errors of deviation 1 by Tukey's weights: E[w z^2] / E[w]."""


class EffortNoise(NamedTuple):
    """Noise of the efforts at each coordinate."""

    std: Float[np.ndarray, "c"]
    """With which samples count as if they were independent, Nm or N: scatter times the root of `alike`."""
    alike: Float[np.ndarray, "c"]
    """How many neighbouring samples tell as much as one that is independent."""


def effort_std(rows: Prepared) -> Float[np.ndarray, "c"]:
    """`effort_noise(rows).std`."""
    return effort_noise(rows).std


def effort_noise(rows: Prepared, robust: bool = False) -> EffortNoise:
    """Standard deviation of the efforts at each coordinate, from what a fit of all parameters leaves.

    Weighted least squares, the weights from the fit before. At each coordinate the squares of what is left are divided
    by its samples less those parameters that they tell, the sum of their leverages: a joint that alone moves many
    parameters leaves few. What is left of neighbouring samples may be alike: then the deviation is so much larger that
    as many independent samples would tell as much.

    Args:
        rows: of the motion.
        robust: outliers do not count. Each residual has Tukey's weight by the median size of those of its coordinate,
            and the weighted mean square is divided by what it is of normal errors, so that it tends to their variance.

    Source: Horn, Horn and Duncan 1975, "Estimating heteroscedastic variances in linear models"; of the robust scale
    Huber and Ronchetti, Robust Statistics (2009), chapter 5.
    """
    if robust:
        return _robust_noise(rows)
    count = len(rows.measured)
    effort = rows.effort - rows.constant
    std = np.array([np.std(effort[rows.coordinate == i]) or 1.0 for i in range(count)])
    alike = np.ones(count)
    for _ in range(ROUNDS):
        weight = 1.0 / std[rows.coordinate]
        weighted = rows.regressor * weight[:, None]
        left = effort - rows.regressor @ least_squares(weighted, effort * weight)[0]
        own, taken = (
            [left[rows.coordinate == i] for i in range(count)],
            _degrees_used(weighted, rows.coordinate),
        )
        alike = np.array([correlation_length(part, fitted) for part, fitted in zip(own, taken, strict=True)])
        size = [np.sqrt(np.sum(part**2) / max(1.0, part.size - n)) for part, n in zip(own, taken, strict=True)]
        std = np.maximum(size, SMALLEST * np.abs(rows.effort).max())
    return EffortNoise(std * np.sqrt(alike), alike)


class MotionErrors(NamedTuple):
    """Effect of errors of the motion on a fit of all parameters."""

    bias: Float[np.ndarray, "p"]
    """Of the parameters."""
    variance: Float[np.ndarray, "c"]
    """Of independent errors of the efforts at each coordinate that make parameters scatter as much."""
    share: Float[np.ndarray, "c"]
    """Of the variance of residuals that errors of the motion have at each coordinate."""


def motion_errors(
    rows: Prepared, others: Sequence[Prepared], std: Float[np.ndarray, "r"], robust: bool = False
) -> MotionErrors:
    """Bias and scatter of the parameters from fits to the same efforts with the motion's errors drawn once more.

    Errors of a motion are small and slow beside the noise of efforts, so that the residual of a fit hardly shows them.
    The mean over both signs of the errors changes by their square: the bias of errors in the regressor, which shrinks
    inertias. Half the difference is linear in the errors, and scatters as the parameters do.

    Args:
        rows: of the motion.
        others: of the same with errors on top, each draw followed by the one with opposite sign.
        std: of the efforts.
        robust: outliers of the efforts do not count.

    Source: Cook and Stefanski 1994, "Simulation-extrapolation estimation in parametric measurement error models".
    """
    size = np.array([std[rows.coordinate == i][0] for i in range(len(rows.measured))])
    found, left = [], []
    for each in (rows, *others):
        fit = linear_fit(each.regressor, each.effort - each.constant, size[each.coordinate], robust=robust)
        found.append(fit.values)
        squares = fit.weights * fit.residual**2
        left.append(np.bincount(each.coordinate, squares) / np.bincount(each.coordinate, fit.weights))
    own, drawn = found[0], found[1:]
    plus, minus = np.array(drawn[::2]), np.array(drawn[1::2])
    along = rows.regressor @ (0.5 * (plus - minus)).T
    squares = np.bincount(rows.coordinate, np.mean(along**2, axis=1))
    degrees = _degrees_used(rows.regressor / size[rows.coordinate, None], rows.coordinate)
    # twice the errors have twice their variance
    share = np.clip(np.mean(left[1:], axis=0) / left[0] - 1.0, 0.0, MOST_SHARE)
    return MotionErrors(np.mean(0.5 * (plus + minus), axis=0) - own, squares / np.maximum(degrees, 1e-9), share)


def _robust_noise(rows: Prepared) -> EffortNoise:
    count, weight = len(rows.measured), np.ones(rows.effort.size)
    effort = rows.effort - rows.constant
    std = np.array([np.std(effort[rows.coordinate == i]) or 1.0 for i in range(count)])
    alike = np.ones(count)
    for _ in range(ROBUST_ROUNDS):
        before = std.copy()
        scale = np.sqrt(weight) / std[rows.coordinate]
        scaled = rows.regressor * scale[:, None]
        left = effort - rows.regressor @ least_squares(scaled, effort * scale)[0]
        taken = _degrees_used(scaled, rows.coordinate)
        for i in range(count):
            own = rows.coordinate == i
            part, counted = left[own], max(1.0, np.sum(weight[own] > 0.0))
            shrunk = np.sqrt(max(1.0, counted - taken[i]) / counted)  # by the fit, over the errors of the samples
            size = np.median(np.abs(part)) / (NORMAL_MEDIAN * shrunk)
            size = max(float(size), SMALLEST * float(np.abs(rows.effort).max()))
            weight[own] = tukey(part / size)
            square = float(weight[own] @ part**2 / weight[own].sum()) / NORMAL_SQUARE
            std[i] = max(np.sqrt(square) / shrunk, SMALLEST * np.abs(rows.effort).max())
            at, good = np.arange(part.size), weight[own] > 0.0
            # between its neighbours an outlier tells nothing of how alike they are
            alike[i] = correlation_length(np.interp(at, at[good], part[good]), taken[i])
        if np.all(np.abs(std - before) <= SETTLED * std):
            break
    return EffortNoise(std * np.sqrt(alike), alike)


def _degrees_used(matrix: Float[np.ndarray, "r p"], coordinate: np.ndarray) -> Float[np.ndarray, "c"]:
    """Of the parameters of a fit, how many the rows of each coordinate tell: sums of leverages, together the rank."""
    scale = np.linalg.norm(matrix, axis=0)
    scaled = matrix / np.where(scale > 0.0, scale, 1.0)
    _, singular, turned = np.linalg.svd(np.linalg.qr(scaled, mode="r"))
    kept = singular > RANK * singular[0]
    root = turned[: singular.size][kept].T / singular[kept]
    return np.array([np.sum((scaled[coordinate == i] @ root) ** 2) for i in range(coordinate.max() + 1)])


def correlation_length(left: Float[np.ndarray, "k"], fitted: float = 0.0) -> float:
    """How many samples tell as much as one that is independent: at least 1.

    The sum of all correlations of an autoregressive process, s^2 / (1 - sum a)^2 over its variance, whose order has the
    least information criterion of Schwarz. A fit of p parameters takes some of what is alike, which makes the estimate
    of sum a too small by (p (1 + sum a) + 2 sum a) / k: that is added.

    Args:
        left: what a fit leaves of k samples.
        fitted: p.

    Source: Andrews and Monahan 1992, "An improved heteroskedasticity and autocorrelation consistent covariance matrix
    estimator"; Marriott and Pope 1954, "Bias in the estimation of autocorrelations", for the mean, p = 1.
    """
    count = len(left)
    order = min(MOST_ORDER, count // SAMPLES_EACH)
    covariance = np.array([left[lag:] @ left[: count - lag] / count for lag in range(order + 1)])
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
    # so few samples do not distinguish such a process from a drift
    total = min(total, 1.0 - min(1.0, 2.0 * (fitted + 1.0) / count))
    if total >= 1.0:
        return 1.0
    degrees = max(1.0, count - fitted) / max(1.0, count - fitted - coefficients.size)
    return float(max(1.0, degrees * noise / covariance[0] / (1.0 - total) ** 2))
