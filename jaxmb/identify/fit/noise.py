"""What the residuals of a fit say of the noise of each test."""

import numpy as np

from jaxmb.identify.experiments.test import PLAUSIBLE
from jaxmb.identify.fit.problem import Problem


def noise_factor(
    residual: np.ndarray, row_weights: np.ndarray, parameters: int, robust_weight: np.ndarray | None = None
) -> float:
    """How many times larger than stated the noise of some rows is, judged by what a fit leaves.

    The root of the sum of squared residuals over what noise of the stated size leaves on average, the weights being
    relative: only what they make of errors of the stated deviations says how large a cost may be.

    Args:
        residual: in units of the noise, scaled by the roots of the weights (and of the robust weights).
        row_weights: variance of each residual under the stated noise; 0 for rows that are not used.
        parameters: number of parameters that were fitted to the rows.
        robust_weight: what a robust fit gave each row, 1 without it.
    """
    counts = (row_weights > 0.0).astype(float) if robust_weight is None else robust_weight * (row_weights > 0.0)
    free = max(float(counts.sum()) - parameters, 1.0)
    return float(np.sqrt(np.sum(residual**2) / (np.average(row_weights, weights=counts) * free)))


def widening(factor: float) -> float:
    """By what standard deviations are multiplied where a fit leaves that many times the stated noise: the same where
    its square is above `PLAUSIBLE`, else 1.

    What the stated deviations do not explain is taken as noise of that size.

    Source: Birge, "The calculation of errors by the method of least squares", Phys. Rev. 40, 207 (1932).
    """
    return factor if factor**2 > PLAUSIBLE else 1.0


def row_variances(problem: Problem, residual: np.ndarray, row_weights: np.ndarray) -> np.ndarray:
    """Variance of every residual: its weight, times what the fit leaves where the noise is to be estimated.

    So it is where the noise was stated and the model does not follow the test (`widening`): intervals by the stated
    noise would be those of another fit. What a model cannot follow goes on over many lines, which then tell no more
    than one: their variance counts as many times as there are.
    """
    variances = row_weights.copy()
    for rows, test in zip(problem.rows, problem.tests, strict=True):
        factor = noise_factor(residual[rows], row_weights[rows], problem.free.size)
        if not test.noise_known or widening(factor) > 1.0:
            variances[rows] *= factor**2 * test.correlated_rows(residual[rows], row_weights[rows])
    return variances


def noise_objective(problem: Problem) -> float:
    """What the objective would be on average at the true values, from the noise of the tests alone.

    inf where the noise of a test is not known beforehand.
    """
    if not all(test.noise_known for test in problem.tests):
        return float("inf")
    return float(np.sum(np.asarray(problem.row_weights()))) * float(problem.noise_unit) ** 2
