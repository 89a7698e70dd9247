"""Noise that is found together with the fit, where it decides what tests count."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmb.identify.estimation.least_squares import Box
from jaxmb.identify.fit import noise as noise_estimation
from jaxmb.identify.fit.noise import with_estimated_noise
from jaxmb.identify.fit.problem import final_state
from jaxmb.identify.fit.refine import least_squares_from
from jaxmb.identify.fit.state import Fit
from tests.identify.arm import TRUTH, frf, loads, study_of

NOISE = 0.3
U = np.log(list(TRUTH.values()))


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    """FRFs of 30 % noise, which is to be estimated, beside precise deflections."""
    noisy = frf(noise=NOISE, seed=5, noise_log_std="estimate")
    return study_of(tmp_path_factory.mktemp("noise"), noisy, loads()).problem


def at_the_end(problem, u):
    """Standard deviations of u by the noise of the problem."""
    _, jacobian, _ = final_state(problem, jnp.asarray(u))
    return np.sqrt(np.diag(np.linalg.inv(np.asarray(jacobian).T @ np.asarray(jacobian))))


def test_it_counts_as_it_is_found(problem):
    """Called "estimate", FRFs count as if their noise had been stated."""
    found, fit, told = with_estimated_noise(problem, Fit(best_u=U, refine_evaluations=3, ends=[np.append(0.0, U)]))
    assert told == []
    assert float(found.tests[0].nominal_std) == pytest.approx(NOISE, rel=0.1)  # of 97 lines, twice four FRFs
    assert found.tests[1] is problem.tests[1]
    assert fit.refine_evaluations > 3
    frfs, deflections = problem.tests
    stated = dataclasses.replace(frfs, noise_std=jnp.full((97, 2, 2), NOISE), nominal_std=jnp.asarray(NOISE))
    stated = dataclasses.replace(problem, tests=(stated, deflections), noise_unit=jnp.asarray(NOISE))
    box = Box(problem.free.lower, problem.free.upper, jnp.asarray(problem.free.logarithmic))
    best = np.asarray(least_squares_from(stated, box, jnp.asarray(U)).u)
    std = at_the_end(stated, best)
    # the estimate of the noise is some per cent off, and so is what the FRFs count
    assert np.all(np.abs(fit.best_u - best) < 0.2 * std)
    np.testing.assert_allclose(at_the_end(found, fit.best_u), std, rtol=0.1)
    # ends of other starts are fitted to that noise too
    np.testing.assert_allclose(fit.ends[0], [fit.best, *fit.best_u], rtol=1e-6)


def test_what_did_not_settle_is_said(problem, monkeypatch):
    """After one pass the noise has just changed from the nominal one to thirty times it."""
    monkeypatch.setattr(noise_estimation, "MOST_PASSES", 1)
    found, fit, told = with_estimated_noise(problem, Fit(best_u=U))
    (sentence,) = told
    assert sentence.startswith("the noise estimate did not converge: after 1 fits it still changes by ")
    change = float(sentence.split("changes by ")[1].split(" %")[0])
    factor = float(found.tests[0].nominal_std) / float(problem.tests[0].nominal_std)
    assert change == pytest.approx(100.0 * (factor - 1.0), rel=0.05)  # it is told in two digits
    assert fit.best == pytest.approx(float(found.objective(jnp.asarray(fit.best_u))))


def test_other_starts_that_did_not_converge_are_told(problem, monkeypatch):
    """Of those that stop near the best cost: one that stops far above it tells nothing."""

    def stopped(problem, box, u):
        state = least_squares_from(problem, box, u)
        far = np.allclose(u, U + 1.0)
        return state._replace(stationary=False, stalled=False, objective=1e9 if far else state.objective)

    monkeypatch.setattr(noise_estimation, "least_squares_from", stopped)
    ends = [np.append(0.0, U), np.append(0.0, U + 1.0)]
    _, _, (sentence,) = with_estimated_noise(problem, Fit(best_u=U, ends=ends))
    assert sentence.startswith("1 of 2 fits from other starts did not converge with the noise")


def test_nothing_is_estimated_where_it_decides_nothing(problem):
    """Alone a noise is only a unit; and one that is known stays."""
    fit = Fit(best_u=U)
    alone = dataclasses.replace(problem, tests=problem.tests[:1], views=problem.views[:1])
    known = dataclasses.replace(
        problem, tests=(dataclasses.replace(problem.tests[0], noise_is_known=True), problem.tests[1])
    )
    for given in (alone, known):
        assert with_estimated_noise(given, fit) == (given, fit, [])
