"""What the residuals of a fit say of the noise: its size, and over how many lines it goes on."""

import numpy as np

from jaxmb.identify.assess.remarks import prior_size
from jaxmb.identify.experiments.frf_test import FrfTest
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.fit.loop import PLAUSIBLE
from jaxmb.identify.study.study import Study
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

    So it is where the noise was stated and the fit leaves more than `PLAUSIBLE` times its variance: the model does not
    follow the test, and intervals by the stated noise would be those of another fit (Birge, "The calculation of errors
    by the method of least squares", 1932). What a model cannot follow goes on over many lines, which then tell no more
    than one: their variance counts as many times as there are.
    """
    variances = row_weights.copy()
    for rows, test in _parts(study, residual.size):
        factor = noise_factor(residual[rows], row_weights[rows], study.free.size)
        estimated = isinstance(test, FrfTest) and not test.noise_known
        if estimated or factor**2 > PLAUSIBLE:
            together = lines_as_one(test, residual[rows], row_weights[rows]) if isinstance(test, FrfTest) else 1.0
            variances[rows] *= factor**2 * together
    return variances


def _parts(study: Study, size: int) -> list[tuple[slice, Test | None]]:
    """Rows of each test, and those of the deflections where there are such; the prior's, the last ones, left out."""
    parts: list[tuple[slice, Test | None]] = []
    first = 0
    for test in study.tests:
        parts.append((slice(first, first + test.rows), test))
        first += test.rows
    last = size - prior_size(study)
    return [*parts, (slice(first, last), None)] if last > first else parts
