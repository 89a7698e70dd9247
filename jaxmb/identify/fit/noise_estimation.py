"""Noise that is to be estimated from what a fit leaves, where it decides how much a test counts."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from jaxmb.identify.estimation.least_squares import Box
from jaxmb.identify.experiments.frf_test import FrfTest
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.fit.loop import Fit, final_state
from jaxmb.identify.fit.noise import lines_as_one, noise_factor
from jaxmb.identify.fit.problem import Problem
from jaxmb.identify.fit.refine import least_squares_from
from jaxmb.identify.fit.stage import objective
from jaxmb.identify.study.study import Study

MOST_PASSES = 20
SETTLED = 1e-3
"""Relative change of the noise at which it is found."""


def with_estimated_noise(study: Study, fit: Fit) -> tuple[Study, Fit]:
    """The study with the noise that its fit leaves instead of the nominal one, and the fit to that.

    A search runs with a nominal noise. Alone that is only a unit; beside other tests or a prior it decides what they
    count against each other. So noise and fit are found in turn, from the minimum that the search came to, until the
    noise is what the fit leaves, neighbouring lines that err alike counted as one (iterated generalized least squares).

    Args:
        study: what was fitted.
        fit: as the search left it.
    """
    problem, u = study.problem, fit.best_u
    alone = len(problem.tests) == 1 and problem.loads is None and problem.prior is None
    if u is None or alone or not any(isinstance(t, FrfTest) and not t.noise_known for t in problem.tests):
        return study, fit
    box = Box(study.free.lower, study.free.upper, jnp.asarray(study.free.logarithmic))
    evaluations = 0
    for _ in range(MOST_PASSES):
        factors = _factors(problem, u)
        problem = _scaled(problem, factors)
        state = least_squares_from(problem, box, jnp.asarray(u))
        u, evaluations = np.asarray(state.u), evaluations + int(state.evaluations)
        if np.max(np.abs(np.log(factors))) <= SETTLED:
            break
    best = float(objective(problem, jnp.asarray(u)))
    # Where other starts came to is asked afterwards, for fits as good as this one: they are fitted to that noise too.
    others = [least_squares_from(problem, box, jnp.asarray(end[1:])) for end in fit.ends]
    ends = [np.append(float(other.objective), np.asarray(other.u)) for other in others]
    refined = dataclasses.replace(
        fit, best_u=u, best=best, ends=ends, refine_evaluations=fit.refine_evaluations + evaluations
    )
    return dataclasses.replace(study, problem=problem), refined


def _factors(problem: Problem, u: np.ndarray) -> np.ndarray:
    """How many times larger than it is taken the noise of each test is; 1 where it is known."""
    residual, _, row_weights = (np.asarray(x) for x in final_state(problem, jnp.asarray(u)))
    factors, first = np.ones(len(problem.tests)), 0
    for k, test in enumerate(problem.tests):
        rows = slice(first, first + test.rows)
        first += test.rows
        if isinstance(test, FrfTest) and not test.noise_known:
            factor = noise_factor(residual[rows], row_weights[rows], problem.free.size)
            # rounding is left where there is no noise at all
            factor = max(factor, np.finfo(float).eps)
            factors[k] = factor * np.sqrt(lines_as_one(test, residual[rows], row_weights[rows]))
    return factors


def _scaled(problem: Problem, factors: np.ndarray) -> Problem:
    """The problem with the noise of its tests multiplied; its unit stays that of the first FRF test."""

    def louder(test: Test, factor: float) -> Test:
        if not isinstance(test, FrfTest):
            return test
        changed = eqx.tree_at(lambda t: t.noise_std, test, test.noise_std * factor)
        return eqx.tree_at(lambda t: t.nominal_std, changed, test.nominal_std * factor)

    tests = tuple(louder(t, float(f)) for t, f in zip(problem.tests, factors, strict=True))
    units = [t.nominal_std for t in tests if isinstance(t, FrfTest)]
    return dataclasses.replace(problem, tests=tests, noise_unit=units[0])
