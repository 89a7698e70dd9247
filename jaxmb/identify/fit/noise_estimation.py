"""Noise that is to be estimated from what a fit leaves, where it decides how much a test counts."""

import dataclasses

import jax
import numpy as np

from jaxmb.identify.estimation.least_squares import Box, finished
from jaxmb.identify.fit.noise import misfits_of_tests
from jaxmb.identify.fit.problem import Problem, final_state, objective_at, with_tests
from jaxmb.identify.fit.refine import least_squares_from
from jaxmb.identify.fit.state import Fit

MOST_PASSES = 20
NEAR = 2.0
"""Times the best cost: another start that stays above it would not have come to fit as well."""
SETTLED = 1e-3
"""Relative change of the noise at which it is found."""


def with_estimated_noise(problem: Problem, fit: Fit) -> tuple[Problem, Fit, list[str]]:
    """The problem with the noise that its fit leaves instead of the nominal one, the fit to that, and a sentence on
    what did not come to rest: the noise, or fits from other starts. That the fit itself did not is in its slope.

    A search runs with a nominal noise. Alone that is only a unit; beside other tests or a prior it decides what they
    count against each other. So noise and fit are found in turn, from the minimum that the search came to, until the
    noise is what the fit leaves, neighbouring lines that err alike counted as one (iterated generalized least squares).

    Args:
        problem: what was fitted.
        fit: as the search left it.
    """
    u, free = fit.best_u, problem.free
    alone = len(problem.tests) == 1 and problem.prior is None
    if u is None or alone or all(test.noise_known for test in problem.tests):
        return problem, fit, []
    box = Box(free.lower, free.upper, jax.device_put(np.array(free.logarithmic)))
    evaluations, change = 0, np.inf
    for _ in range(MOST_PASSES):
        factors = _factors(problem, u)
        change = float(np.max(np.abs(np.log(factors))))
        tests = [
            test if test.noise_known else test.with_noise(float(f))
            for test, f in zip(problem.tests, factors, strict=True)
        ]
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
            f"{left} of {len(others)} fits from other starts did not converge with the noise that was estimated: what"
            " is ambiguous may not all be said"
        )
    refined = dataclasses.replace(
        fit, best_u=u, best=best, ends=ends, refine_evaluations=fit.refine_evaluations + evaluations
    )
    return problem, refined, sentences


def _factors(problem: Problem, u: np.ndarray) -> np.ndarray:
    """How many times larger than it is taken the noise of each test is; 1 where it is known."""
    residual, jacobian, row_weights = (np.asarray(x) for x in final_state(problem, jax.device_put(u)))
    left = misfits_of_tests(problem, residual, jacobian, row_weights)
    factors = np.ones(len(problem.tests))
    for k, (rows, test) in enumerate(zip(problem.rows, problem.tests, strict=True)):
        if not test.noise_known:
            factor = max(left[k].factor, np.finfo(float).eps)  # rounding is left where there is no noise at all
            factors[k] = factor * np.sqrt(test.correlated_rows(residual[rows], row_weights[rows]))
    return factors
