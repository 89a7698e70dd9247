"""How far measured efforts scatter, where neighbouring samples may be alike."""

import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_toeplitz

from jaxmb.identify.experiments.torque.prepared import Prepared, least_squares

ROUNDS = 3
SMALLEST = 1e-12
"""Of the largest effort: a smaller deviation is rounding."""
MOST_ORDER = 10
"""Of the autoregressive process."""
SAMPLES_EACH = 10
"""Samples for each of its coefficients, at least."""


def effort_std(rows: Prepared) -> Float[np.ndarray, "c"]:
    """Standard deviation of the efforts at each coordinate, from what a fit of all parameters leaves.

    Weighted least squares, the weights from the fit before. What is left of neighbouring samples may be alike: then the
    deviation is so much larger that as many independent samples would tell as much.
    """
    count = len(rows.measured)
    effort = rows.effort - rows.constant
    std = np.array([np.std(effort[rows.coordinate == i]) or 1.0 for i in range(count)])
    alike = np.ones(count)
    for _ in range(ROUNDS):
        weight = 1.0 / std[rows.coordinate]
        found, rank = least_squares(rows.regressor * weight[:, None], effort * weight)
        left = effort - rows.regressor @ found
        free = max(1.0, len(left) - rank) / len(left)
        own = [left[rows.coordinate == i] for i in range(count)]
        alike = np.array([samples_alike(part, rank * part.size / len(left)) for part in own])
        size = [np.sqrt(np.mean(part**2) / free) for part in own]
        std = np.maximum(size, SMALLEST * np.abs(rows.effort).max())
    return std * np.sqrt(alike)


def samples_alike(left: Float[np.ndarray, "k"], fitted: float = 0.0) -> float:
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
    # no process is told from one that drifts away by so few samples
    total = min(total, 1.0 - min(1.0, 2.0 * (fitted + 1.0) / count))
    if total >= 1.0:
        return 1.0
    degrees = max(1.0, count - fitted) / max(1.0, count - fitted - coefficients.size)
    return float(max(1.0, degrees * noise / covariance[0] / (1.0 - total) ** 2))
