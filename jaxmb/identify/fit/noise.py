"""What the residuals of a fit say of the noise of each test."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.special import chdtri

from jaxmb.identify.estimation.identifiability import Jacobian, jacobian_svd, row_blocks
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.fit.problem import Problem

FALSE_ALARM = 1e-3
"""Probability with which noise that is as stated is taken for more than that."""
EXACT = 1e-3
"""Times the noise below which data are reproduced exactly."""


@dataclasses.dataclass(frozen=True)
class Misfit:
    """What a fit leaves of some rows, over what noise of the stated size leaves there on average."""

    square: float
    """Ratio of the sums of squares."""
    degrees: float
    """Degrees of freedom: under noise of the stated size degrees times square is a chi-square of so many."""

    @property
    def factor(self) -> float:
        """How many times larger than stated the noise is, judged by what is left."""
        return float(np.sqrt(self.square))

    @property
    def exact(self) -> bool:
        """Whether the data are reproduced exactly: those without noise state a nominal one."""
        return self.factor < EXACT

    @property
    def explained(self) -> bool:
        """Whether noise of the stated size explains it."""
        return self.square <= float(chdtri(self.degrees, FALSE_ALARM)) / self.degrees

    @property
    def widening(self) -> float:
        """By what standard deviations are multiplied: 1 where noise of the stated size explains what is left.

        What the stated deviations do not explain is taken as noise of that size.

        Source: Birge, "The calculation of errors by the method of least squares", Phys. Rev. 40, 207 (1932).
        """
        return 1.0 if self.explained else self.factor


def misfit(
    residual: Float[np.ndarray, "m"],
    row_weights: Float[np.ndarray, "m"],
    parameters: float,
    robust_weight: Float[np.ndarray, "m"] | None = None,
    alike: Float[np.ndarray, "m"] | None = None,
) -> Misfit:
    """Of rows to which so many parameters were fitted.

    Args:
        residual: in units of the noise, scaled by the roots of the weights (and of the robust weights).
        row_weights: variance of each residual under the stated noise; 0 for rows that are not used.
        parameters: degrees of freedom that the fit takes from the rows.
        robust_weight: what a robust fit gave each row, 1 without it.
        alike: by what the variances of rows are above those of their errors, so many of which tell as much as one; 1
            where not given.
    """
    alike = np.ones(row_weights.shape) if alike is None else alike
    row_weights = row_weights / alike
    counts = (row_weights > 0.0).astype(float) if robust_weight is None else robust_weight * (row_weights > 0.0)
    each = float(np.average(row_weights, weights=counts))
    free = max(float(counts.sum()) - parameters, 1.0)
    evenness = float(np.sum(counts * row_weights) ** 2 / (np.sum(counts) * np.sum(counts * row_weights**2)))
    independent = max(free * evenness / float(np.average(alike, weights=counts)), 1.0)
    return Misfit(float(np.sum(residual**2)) / (each * free), independent)


def misfits(
    residual: Float[np.ndarray, "m"],
    jacobian: Jacobian,
    row_weights: Float[np.ndarray, "m"],
    groups: Sequence[slice],
    nuisance: Sequence[int] = (),
    alike: Sequence[float] = (),
) -> list[Misfit]:
    """Of each group of rows of one fit, which takes from every group the degrees of freedom that it spends there.

    With H = J J^+ the fit leaves (I - H) e of errors e of variances W, so the sum of squares over rows g has the mean
    tr C and the variance 2 tr C^2, C the block of (I - H) W (I - H) at g; where all weights are 1, tr C is the number
    of rows less the trace of their block of H. A chi-square of tr(C)^2 / tr(C^2) degrees of freedom has both.

    Args:
        residual: at the fit, in units of the noise, scaled by the roots of the weights.
        jacobian: of the residual; a prior's rows among them.
        row_weights: variance of each residual under the stated noise; 0 for rows that are not used.
        groups: rows of each.
        nuisance: degrees of freedom that numbers of its own take from each group.
        alike: number of rows of each group whose errors are as good as one, 1 where they are independent.

    Source: Satterthwaite, "An approximate distribution of estimates of variance components", Biometrics 2, 110 (1946).
    """
    svd = jacobian_svd(jacobian)

    @functools.cache
    def moments(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """U^T W^k U of a block, U its rows of the left singular vectors, and the sum of W^k, for k = 0, 1, 2."""
        block, w = jacobian[start:stop], row_weights[start:stop]
        # A row that is zero with its derivatives, as of a mode whose content is as measured, is no draw of any noise.
        used = (w > 0.0) & ((residual[start:stop] != 0.0) | np.any(block != 0.0, axis=1))
        u, powers = svd.basis(block[used]), w[used] ** np.arange(3)[:, None]
        return np.array([(u.T * power) @ u for power in powers]), powers.sum(axis=1)

    def of(rows: slice | None) -> list[np.ndarray]:
        parts = [moments(block.start, block.stop) for block in row_blocks(jacobian, rows)]
        return [np.sum(part, axis=0) for part in zip(*parts, strict=True)]

    whole, found = of(None)[0][1], []
    for k, rows in enumerate(groups):
        (own, once, twice), (count, weight, squared) = of(rows)
        if not count:
            found.append(Misfit(0.0, 1.0))
            continue
        mean = float(weight - 2.0 * np.trace(once) + np.sum(whole * own))
        mixed = own @ whole
        square = float(
            squared - 4.0 * np.trace(twice) + 2.0 * np.sum(whole * once) + 2.0 * np.sum(once**2)
            + 2.0 * np.sum(twice * own) - 4.0 * np.sum(once * mixed.T) + np.sum(mixed * mixed.T)
        )  # fmt: skip
        degrees = mean**2 / square if square > 0.0 else 0.0
        # At least one degree: where the fit can follow all rows, nothing is left that says how large the noise is.
        each = mean / degrees if degrees > 0.0 else float(weight / count)
        degrees = max(degrees - (nuisance[k] if nuisance else 0), 1.0)
        independent = max(degrees / (alike[k] if alike else 1.0), 1.0)
        found.append(Misfit(float(residual[rows] @ residual[rows]) / (each * degrees), independent))
    return found


def misfits_of_tests(
    problem: Problem, residual: np.ndarray, jacobian: Jacobian, row_weights: np.ndarray
) -> list[Misfit]:
    """Of each test of a problem (see `misfits`)."""
    nuisance = [test.nuisance_rows for test in problem.tests]
    alike = [test.degrees_factor for test in problem.tests]
    return misfits(residual, jacobian, row_weights, problem.rows, nuisance, alike)


def row_variances(problem: Problem, residual: np.ndarray, jacobian: Jacobian, row_weights: np.ndarray) -> np.ndarray:
    """Variance of every residual: its weight, times what the fit leaves where the noise is to be estimated.

    So it is where the noise was stated and the model does not follow the test: intervals by the stated noise would be
    those of another fit. What a model cannot follow goes on over many lines, which then tell no more than one: their
    variance counts as many times as there are. Errors that are known to be correlated count as many times as that makes
    the estimate scatter.
    """
    variances = row_weights.copy()
    left, svd = misfits_of_tests(problem, residual, jacobian, row_weights), jacobian_svd(jacobian)
    for rows, test, own in zip(problem.rows, problem.tests, left, strict=True):
        if test.noise_known and own.explained:
            larger = 1.0
        else:
            larger = own.square * correlated_by_misfit(test, residual[rows], row_weights[rows])
            larger = larger if test.noise_is_one_factor else max(larger, 1.0)
        variances[rows] *= larger * test.variance_factor(svd.basis(jacobian[rows]), row_weights[rows])
    return variances


def correlated_by_misfit(test: Test, residual: np.ndarray, row_weights: np.ndarray) -> float:
    """Number of rows of a test whose residuals tell no more than one, over that of its noise."""
    return max(test.correlation_length(residual, row_weights) / test.degrees_factor, 1.0)


def explained_objective(problem: Problem) -> float:
    """What the objective is at most at the true values, but for the probability `FALSE_ALARM`.

    inf where a noise is not known beforehand.
    """
    degrees = sum(
        float(np.sum(w)) ** 2 / float(np.sum(w**2)) / test.degrees_factor
        for test in problem.tests
        if np.any(w := np.asarray(test.row_weights()))
    )
    return noise_objective(problem) * float(chdtri(degrees, FALSE_ALARM)) / degrees if degrees else np.inf


def noise_objective(problem: Problem) -> float:
    """What the objective would be on average at the true values, from the noise of the tests alone.

    inf where the noise of a test is not known beforehand.
    """
    if not all(test.noise_known for test in problem.tests):
        return float("inf")
    return float(np.sum(np.asarray(problem.row_weights()))) * float(problem.noise_unit) ** 2
