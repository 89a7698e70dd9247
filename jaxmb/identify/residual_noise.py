"""What the residuals of a fit say of the noise: its size, and over how many lines it goes on."""

import numpy as np

from jaxmb.identify.experiments import FrfTest
from jaxmb.identify.study import Study
from jaxmb.measurement.line_noise import correlated_lines


def log_error(test: FrfTest, residual: np.ndarray, row_weights: np.ndarray) -> float:
    """Root mean square error of log H, each line counting by its noise and not by its weight."""
    noise = np.tile(np.asarray(test.noise_std).ravel(), 2)
    used = row_weights > 0.0
    squares = residual[used] ** 2 / row_weights[used]  # in units of each line's noise
    return float(np.sqrt(2.0 * np.sum(squares) / np.sum(noise[used] ** -2.0)))


def noise_factor(residual: np.ndarray, row_weights: np.ndarray, parameters: int) -> float:
    """How many times larger than stated the noise of a test is, judged by what the fit leaves."""
    rows = int(np.sum(row_weights > 0.0))
    free = max(rows - parameters, 1)
    return float(np.sqrt(np.sum(residual**2) / np.sum(row_weights) * rows / free))


def lines_as_one(test: FrfTest, residual: np.ndarray, row_weights: np.ndarray) -> float:
    """Number of neighbouring lines of a test whose residuals are one (see `correlated_lines`)."""
    used = row_weights > 0.0
    plain = np.where(used, residual / np.sqrt(np.where(used, row_weights, 1.0)), 0.0)
    errors, present = (x.reshape(2, *test.measured.shape) for x in (plain, used))
    return correlated_lines(errors, present)


def row_variances(study: Study, residual: np.ndarray, row_weights: np.ndarray) -> np.ndarray:
    """Variance of every residual: its weight, times what the fit leaves where the noise is to be estimated.

    What a model cannot follow goes on over many lines, which then tell no more than one: their variance counts as many
    times as there are.
    """
    variances, first_row = row_weights.copy(), 0
    for test in study.tests:
        rows = slice(first_row, first_row + test.rows)
        first_row += test.rows
        if isinstance(test, FrfTest) and not test.noise_known:
            factor = noise_factor(residual[rows], row_weights[rows], study.free.size)
            variances[rows] *= factor**2 * lines_as_one(test, residual[rows], row_weights[rows])
    return variances
