"""What follows from a fit: noise that it leaves, or that is relative to the machine's FRFs, and lines left out."""

import dataclasses

import jax
import numpy as np

from jaxmb.identify.estimation.least_squares import Box, finished
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.fit.noise import correlated_by_misfit, misfits_of_tests
from jaxmb.identify.fit.problem import Problem, linearized, objective_at, test_at, with_tests
from jaxmb.identify.fit.refine import least_squares_from
from jaxmb.identify.fit.state import Fit

MOST_PASSES = 20
NEAR = 2.0
"""Times the best cost: another start that stays above it would not have come to fit as well."""
SETTLED = 1e-3
"""Relative change of the noise at which it is found."""


def with_estimated_noise(problem: Problem, fit: Fit) -> tuple[Problem, Fit, list[str]]:
    """The problem with the noise as it follows from its fit and without odd lines of robust tests, the fit to that, and
    a sentence on what did not come to rest: the noise, or fits from other starts. That the fit itself did not is in its
    slope.

    A search runs with a nominal noise, where that is to be estimated, and takes additive noise of the measured FRFs.
    Alone a nominal noise is only a unit; beside another noise, other tests or a prior it decides what they count
    against each other. So noise and fit are found in turn, from the minimum that the search came to, until the noise is
    what the fit leaves, neighbouring lines that err alike counted as one, and additive noise is that of the machine's
    FRFs (iterated generalized least squares).

    Args:
        problem: what was fitted.
        fit: as the search left it.
    """
    u, free, first = fit.best_u, problem.free, problem
    follows = any(test.noise_follows_fit for test in first.tests)
    if u is None or not (follows or any(test.robust or _decides(problem, test) for test in first.tests)):
        return problem, fit, []
    box = Box(free.lower, free.upper, jax.device_put(np.array(free.logarithmic)))
    evaluations, change = 0, np.inf
    for _ in range(MOST_PASSES):
        tests = _with_noise_left(first, problem, u)
        change = max(new.noise_change(old) for new, old in zip(tests, problem.tests, strict=True))
        problem = with_tests(problem, tests)
        state = least_squares_from(problem, box, jax.device_put(u))
        u, evaluations = np.asarray(state.u), evaluations + int(state.evaluations)
        if change <= SETTLED:
            break
    sentences = []
    if change > SETTLED:
        sentences.append(
            f"the noise that is to be estimated did not settle: after {MOST_PASSES} fits it still changes by"
            f" {100.0 * np.expm1(change):.2g} %, and with it what its tests count beside the others"
        )
    best = objective_at(problem, u)
    # Where other starts came to is asked afterwards, for fits as good as this one: they are fitted to that noise too.
    others = [least_squares_from(problem, box, jax.device_put(end[1:])) for end in fit.ends]
    ends = [np.append(float(other.objective), np.asarray(other.u)) for other in others]
    left = sum(not finished(jax.device_get(other)) and float(other.objective) <= NEAR * best for other in others)
    if left:
        sentences.append(
            f"{left} of {len(others)} fits from other starts did not converge with the noise as it follows from the"
            " best one: what is ambiguous may not all be said"
        )
    refined = dataclasses.replace(
        fit, best_u=u, best=best, ends=ends, refine_evaluations=fit.refine_evaluations + evaluations
    )
    return problem, refined, sentences


def _decides(problem: Problem, test: Test) -> bool:
    """Whether noise that is to be estimated is more than a unit."""
    alone = len(problem.tests) == 1 and problem.prior is None and test.noise_is_one_factor
    return not (test.noise_known or alone)


def _with_noise_left(first: Problem, problem: Problem, u: np.ndarray) -> list[Test]:
    """The tests of a study without odd lines, with their noise as it is at u, where a fit to some other noise ended."""
    residual, jacobian, row_weights = linearized(problem, u)
    values, tests = problem.free.values(u), []
    left = misfits_of_tests(problem, residual, jacobian, row_weights)
    for k, (rows, test) in enumerate(zip(problem.rows, problem.tests, strict=True)):
        own = first.tests[k]
        if own.noise_follows_fit:
            own = test_at(own, problem.free, values).at_fit(problem.view(k, values))
        if _decides(problem, test) and left[k].square > 0.0:
            # beside a noise that is known, lines that err alike would only hide that
            count = correlated_by_misfit(test, residual[rows], row_weights[rows]) if test.noise_is_one_factor else 1.0
            expected = float(np.sum(residual[rows] ** 2)) / (left[k].square * count)
            own = own.with_noise(test.estimated_noise(residual[rows], expected))
        if test.robust:
            odd = np.union1d(test.lines_left_out, test.outlier_lines(residual[rows], row_weights[rows])).astype(int)
            own = own.without_lines(odd)
        tests.append(own)
    return tests
