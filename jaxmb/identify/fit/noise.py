"""Noise of tests from the residuals of a fit: reduced chi-square, variances, estimated noise."""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import chdtri

from jaxmb.identify.estimation.identifiability import Jacobian, jacobian_svd, row_blocks
from jaxmb.identify.estimation.least_squares import LeastSquaresState, finished
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.fit.problem import Problem, linearized, objective_at, test_at, with_tests
from jaxmb.identify.fit.refine import least_squares_from
from jaxmb.identify.fit.state import Fit

FALSE_ALARM = 1e-3
"""Significance level: probability of rejecting correctly stated noise."""
ROUNDING = 1e-12
"""Expected sum of squares over that of the errors below which it is rounding."""
REPRODUCED = 1e-3
"""Residual over noise below which data count as reproduced exactly."""


@dataclasses.dataclass(frozen=True)
class ReducedChiSquare:
    """Reduced chi-square of some rows of a fit: sum of squares over its expectation under the stated noise."""

    square: float
    """Ratio of the sums of squares."""
    degrees: float
    """Degrees of freedom: under the stated noise, degrees times square has a chi-square distribution with so many."""

    @property
    def factor(self) -> float:
        """Residual over the stated noise: the root of the reduced chi-square."""
        return float(np.sqrt(self.square))

    @property
    def exact(self) -> bool:
        """Whether the data are reproduced exactly: noise-free data have a nominal stated noise."""
        return self.factor < REPRODUCED

    @property
    def explained(self) -> bool:
        """Whether the stated noise explains the residual."""
        return self.square <= float(chdtri(self.degrees, FALSE_ALARM)) / self.degrees

    @property
    def widening(self) -> float:
        """Factor on standard deviations: 1 where the stated noise explains the residual, else the Birge ratio.

        Source: Birge, "The calculation of errors by the method of least squares", Phys. Rev. 40, 207 (1932).
        """
        return 1.0 if self.explained else self.factor


def reduced_chi_square(
    residual: Float[np.ndarray, "m"],
    stated_variances: Float[np.ndarray, "m"],
    parameters: float,
    robust_weight: Float[np.ndarray, "m"] | None = None,
    lengths: Float[np.ndarray, "m"] | None = None,
) -> ReducedChiSquare:
    """Reduced chi-square of rows of a fit.

    Args:
        residual: in units of the noise, scaled by the roots of the weights (and of the robust weights).
        stated_variances: variance of each residual under the stated noise; 0 for rows that are not used.
        parameters: degrees of freedom of the fit in the rows.
        robust_weight: robust weight of each row; None for 1.
        lengths: correlation length of each row, by which its variance is inflated; None for 1.
    """
    lengths = np.ones(stated_variances.shape) if lengths is None else lengths
    stated_variances = stated_variances / lengths
    counts = (
        (stated_variances > 0.0).astype(float) if robust_weight is None else robust_weight * (stated_variances > 0.0)
    )
    each = float(np.average(stated_variances, weights=counts))
    free = max(float(counts.sum()) - parameters, 1.0)
    evenness = float(np.sum(counts * stated_variances) ** 2 / (np.sum(counts) * np.sum(counts * stated_variances**2)))
    independent = max(free * evenness / float(np.average(lengths, weights=counts)), 1.0)
    return ReducedChiSquare(float(np.sum(residual**2)) / (each * free), independent)


def reduced_chi_squares(
    residual: Float[np.ndarray, "m"],
    jacobian: Jacobian,
    stated_variances: Float[np.ndarray, "m"],
    groups: Sequence[slice],
    nuisance: Sequence[int] = (),
    lengths: Sequence[float] = (),
) -> list[ReducedChiSquare]:
    """Reduced chi-square of each group of rows of one fit, with the degrees of freedom that the fit uses in each.

    With H = J J^+ the fit leaves (I - H) e of errors e of variances W, so the sum of squares over rows g has the mean
    tr C and the variance 2 tr C^2, C the block of (I - H) W (I - H) at g; where all weights are 1, tr C is the number
    of rows less the trace of their block of H. A chi-square of tr(C)^2 / tr(C^2) degrees of freedom has both.

    Args:
        residual: at the fit, in units of the noise, scaled by the roots of the weights.
        jacobian: of the residual; a prior's rows among them.
        stated_variances: variance of each residual under the stated noise; 0 for rows that are not used.
        groups: rows of each.
        nuisance: degrees of freedom of nuisance parameters of each group.
        lengths: correlation length in rows of each group, 1 for independent errors.

    Source: Satterthwaite, "An approximate distribution of estimates of variance components", Biometrics 2, 110 (1946).
    """
    svd = jacobian_svd(jacobian)

    @functools.cache
    def moments(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """U^T W^k U of a block, U its rows of the left singular vectors, and the sum of W^k, for k = 0, 1, 2."""
        block, w = jacobian[start:stop], stated_variances[start:stop]
        # A row that is zero with its derivatives, as of a mode with the measured content, has no noise.
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
            found.append(ReducedChiSquare(0.0, 1.0))
            continue
        mean = float(weight - 2.0 * np.trace(once) + np.sum(whole * own))
        mixed = own @ whole
        square = float(
            squared - 4.0 * np.trace(twice) + 2.0 * np.sum(whole * once) + 2.0 * np.sum(once**2)
            + 2.0 * np.sum(twice * own) - 4.0 * np.sum(once * mixed.T) + np.sum(mixed * mixed.T)
        )  # fmt: skip
        degrees = mean**2 / square if mean > ROUNDING * weight and square > 0.0 else 0.0
        # At least one degree: where the fit can reproduce all rows, the residual has no information on the noise.
        each = mean / degrees if degrees > 0.0 else float(weight / count)
        degrees = max(degrees - (nuisance[k] if nuisance else 0), 1.0)
        independent = max(degrees / (lengths[k] if lengths else 1.0), 1.0)
        found.append(ReducedChiSquare(float(residual[rows] @ residual[rows]) / (each * degrees), independent))
    return found


def reduced_chi_squares_of_tests(
    problem: Problem, residual: np.ndarray, jacobian: Jacobian, stated_variances: np.ndarray
) -> list[ReducedChiSquare]:
    """Reduced chi-square of each test of a problem (see `reduced_chi_squares`)."""
    nuisance = [test.noise.nuisance_rows for test in problem.tests]
    lengths = [noise_correlation_length(test) for test in problem.tests]
    return reduced_chi_squares(
        residual, jacobian, uninflated_variances(problem, stated_variances), problem.row_slices, nuisance, lengths
    )


def uninflated_variances(problem: Problem, stated_variances: np.ndarray) -> np.ndarray:
    """Variance of each residual under the stated noise; less than its weight where the noise of correlated rows is
    inflated so that they enter the fit as if independent."""
    found = np.array(stated_variances)
    for rows, test in zip(problem.row_slices, problem.tests, strict=True):
        found[rows] /= test.noise.correlation_lengths
    return found


def noise_correlation_length(test: Test) -> float:
    """Correlation length of the noise of a test, in rows: that many carry the information of one independent row."""
    return test.noise.degrees_factor * float(np.mean(test.noise.correlation_lengths))


def row_variances(
    problem: Problem,
    residual: np.ndarray,
    jacobian: Jacobian,
    stated_variances: np.ndarray,
    explained: Sequence[bool] | None = None,
) -> np.ndarray:
    """Variance of every residual: its weight, times the reduced chi-square where the noise is estimated.

    The same holds where the noise is stated and the model does not reproduce the test. A systematic residual is
    correlated along frequency: the variance is multiplied by the correlation length. Known correlation of errors, and
    that of a window that the residual shows, increase the variance by their effect on the estimate.

    Args:
        problem: the fitted problem.
        residual: at the fit, in units of the noise.
        jacobian: of the residual.
        stated_variances: variance of each residual under the stated noise.
        explained: whether errors of machine and tests explain the misfit of each test; None for none.
    """
    variances = stated_variances.copy()
    found, svd = reduced_chi_squares_of_tests(problem, residual, jacobian, stated_variances), jacobian_svd(jacobian)
    explained = (False,) * len(found) if explained is None else explained
    for rows, test, own, allowed in zip(problem.row_slices, problem.tests, found, explained, strict=True):
        basis, weights = svd.basis(jacobian[rows]), stated_variances[rows]
        if test.noise.is_known and (own.explained or allowed):
            larger = test.noise.known_factor(basis, residual[rows], weights)
        else:
            larger = own.square * excess_correlation_length(test, residual[rows], weights)
            larger = larger if test.noise.is_one_factor else max(larger, 1.0)
        variances[rows] *= larger * test.noise.variance_factor(basis, weights)
    return variances


def excess_correlation_length(test: Test, residual: np.ndarray, stated_variances: np.ndarray) -> float:
    """Correlation length of the residual of a test over that of its noise, at least 1."""
    return max(test.noise.correlation_length(residual, stated_variances) / test.noise.degrees_factor, 1.0)


def explained_objective(problem: Problem) -> float:
    """Upper limit of the objective at the true values, exceeded with the probability `FALSE_ALARM`.

    inf where a noise is not known.
    """
    degrees = sum(
        float(np.sum(w)) ** 2 / float(np.sum(w**2)) / noise_correlation_length(test)
        for test in problem.tests
        if np.any(w := np.asarray(test.stated_variances()))
    )
    return noise_objective(problem) * float(chdtri(degrees, FALSE_ALARM)) / degrees if degrees else np.inf


def noise_objective(problem: Problem) -> float:
    """Expected objective at the true values under the stated noise; inf where the noise of a test is estimated."""
    if not all(test.noise.is_known for test in problem.tests):
        return float("inf")
    return (
        float(np.sum(uninflated_variances(problem, np.asarray(problem.stated_variances()))))
        * float(problem.noise_unit) ** 2
    )


MOST_PASSES = 20
NEAR = 2.0
"""Cost over the best one above which the convergence of another start is irrelevant."""
NOISE_TOLERANCE = 1e-3
"""Relative change of the noise at convergence."""


def with_estimated_noise(problem: Problem, fit: Fit) -> tuple[Problem, Fit, list[str]]:
    """The problem with noise estimated from its fit and without outlier lines of robust tests, the refined fit, and
    sentences on noise or other starts that did not converge.

    A search uses a nominal noise where that is to be estimated, and additive noise evaluated at the measured FRFs. A
    single nominal noise is only a unit; with another noise, other tests or a prior it determines their relative
    weights. Noise and fit are therefore updated in turn, from the minimum of the search, until the noise agrees with
    the residual (with its correlation along frequency) and additive noise with the FRFs of the machine (iterated
    generalized least squares).

    Args:
        problem: the fitted problem.
        fit: result of the search.
    """
    u, first = fit.best_u, problem
    follows = any(test.noise.follows_fit for test in first.tests)
    robust = any(test.lines is not None and test.lines.robust for test in first.tests)
    if u is None or not (follows or robust or any(weights_tests(problem, test) for test in first.tests)):
        return problem, fit, []
    evaluations, change = 0, np.inf
    for _ in range(MOST_PASSES):
        tests = _with_noise_at(first, problem, u)
        change = max(new.noise.change_from(old) for new, old in zip(tests, problem.tests, strict=True))
        problem = with_tests(problem, tests)
        state = least_squares_from(problem, problem.box, jax.device_put(u))
        u, evaluations = np.asarray(state.u), evaluations + int(state.evaluations)
        if change <= NOISE_TOLERANCE:
            break
    sentences = []
    if change > NOISE_TOLERANCE:
        sentences.append(
            f"the noise estimate did not converge: after {MOST_PASSES} fits it still changes by"
            f" {100.0 * np.expm1(change):.2g} %, and with it the relative weights of the tests"
        )
    best = objective_at(problem, u)
    # Minima of other starts are later compared with this one, so they are refitted with the same noise.
    ends, others = refitted_ends(problem, fit)
    unconverged = sum(not finished(jax.device_get(other)) and float(other.objective) <= NEAR * best for other in others)
    if unconverged:
        sentences.append(
            f"{unconverged} of {len(others)} fits from other starts did not converge with the noise estimated at the"
            " best one: other values with the same fit may exist"
        )
    refined = dataclasses.replace(
        fit, best_u=u, best=best, ends=ends, refine_evaluations=fit.refine_evaluations + evaluations
    )
    return problem, refined, sentences


def refitted_ends(problem: Problem, fit: Fit) -> tuple[list[np.ndarray], list[LeastSquaresState]]:
    """End points of all starts of a fit (objective, then u), refitted to another problem, and the states there."""
    others = [least_squares_from(problem, problem.box, jax.device_put(end[1:])) for end in fit.ends]
    return [np.append(float(other.objective), np.asarray(other.u)) for other in others], others


def weights_tests(problem: Problem, test: Test) -> bool:
    """Whether the estimated noise of a test affects relative weights, so that it is more than a unit."""
    alone = len(problem.tests) == 1 and problem.prior is None and test.noise.is_one_factor
    return not (test.noise.is_known or alone)


def _with_noise_at(first: Problem, problem: Problem, u: np.ndarray) -> list[Test]:
    """The tests of a study without outlier lines, with their noise at u, the end of a fit with another noise."""
    residual, jacobian, stated_variances = linearized(problem, u)
    values, tests = problem.free.values(u), []
    found = reduced_chi_squares_of_tests(problem, residual, jacobian, stated_variances)
    for k, (rows, test) in enumerate(zip(problem.row_slices, problem.tests, strict=True)):
        own = first.tests[k]
        if own.noise.follows_fit:
            own = test_at(own, problem.free, values).noise.at_fit(problem.view(k, values))
        if weights_tests(problem, test) and found[k].square > 0.0:
            # with other known noise, the correlation length would only conceal it
            count = (
                excess_correlation_length(test, residual[rows], stated_variances[rows])
                if test.noise.is_one_factor
                else 1.0
            )
            expected = float(np.sum(residual[rows] ** 2)) / (found[k].square * count)
            own = own.noise.with_level(test.noise.estimated_level(residual[rows], expected))
        lines = test.lines
        if lines is not None and own.lines is not None and lines.robust:
            outliers = np.union1d(lines.excluded, lines.outliers(residual[rows], stated_variances[rows])).astype(int)
            own = own.lines.without(outliers)
        tests.append(own)
    return tests
