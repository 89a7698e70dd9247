"""Sizes of errors against dense likelihoods, and score tests against draws."""

import numpy as np
import pytest
from scipy.optimize import minimize

from jaxmb.identify.estimation.variance_components import (
    ERROR_RATE,
    excess,
    likely_factors,
    marginal,
    score_test,
    sufficient_statistics,
)

RNG = np.random.default_rng(0)
ROWS, FREE, ERRORS = 80, 4, 9
JACOBIAN = RNG.normal(size=(ROWS, FREE))
EFFECTS = RNG.normal(size=(ROWS, ERRORS)) * np.geomspace(0.03, 1.0, ERRORS)
VARIANCES = RNG.uniform(0.5, 2.0, size=ROWS)
KINDS = {"a": np.arange(3), "b": np.arange(3, 8), "c": np.array([8])}
WHITE = 1.0 / np.sqrt(VARIANCES)[:, None]
# an orthonormal basis of the rows without the directions of the free parameters
BASIS = np.linalg.qr(JACOBIAN * WHITE, mode="complete")[0][:, FREE:]
PROJECTED = BASIS.T @ (EFFECTS * WHITE)


def drawn(factors, rng=RNG):
    return rng.normal(size=ROWS) * np.sqrt(VARIANCES) + EFFECTS @ (factors * rng.normal(size=ERRORS))


def of(residual):
    return sufficient_statistics(residual, JACOBIAN, VARIANCES, EFFECTS)


def dense(factors, noise=1.0):
    return noise * np.eye(ROWS - FREE) + PROJECTED @ np.diag(factors**2) @ PROJECTED.T


def test_score_and_information_are_those_of_the_dense_covariance():
    factors, residual = RNG.uniform(0.5, 3.0, size=ERRORS), drawn(np.ones(ERRORS))
    found, inverse = marginal(of(residual), factors, 1.3), np.linalg.inv(dense(factors, 1.3))
    np.testing.assert_allclose(found.information, PROJECTED.T @ inverse @ PROJECTED, atol=1e-12)
    np.testing.assert_allclose(found.score, PROJECTED.T @ inverse @ BASIS.T @ (residual * WHITE[:, 0]), atol=1e-12)


def test_large_factors_do_not_amplify_rounding():
    """Of errors with nearly equal effects: r^T V^-1 r is the least sum of squares of a fit with the errors, these over
    their deviations."""
    rng = np.random.default_rng(3)
    some, factors = rng.normal(size=(ROWS, 3)), np.full(5, 1e4)
    effects = 100.0 * np.column_stack([some, some[:, :2] + 1e-5 * rng.normal(size=(ROWS, 2))])
    residual = rng.normal(size=ROWS) + effects @ (factors * rng.normal(size=5))
    found = marginal(sufficient_statistics(residual, JACOBIAN, VARIANCES, effects), factors)
    above = np.concatenate([JACOBIAN * WHITE, np.zeros((5, FREE))])
    joint = np.column_stack([above, np.concatenate([effects * WHITE * factors, np.eye(5)])])
    right = np.append(residual * WHITE[:, 0], np.zeros(5))
    least = right - joint @ np.linalg.lstsq(joint, right)[0]
    assert found.square == pytest.approx(least @ least, rel=1e-6)


@pytest.mark.parametrize("degrees", [0.0, 2.0])
def test_factors_maximize_the_restricted_likelihood(degrees):
    """Times the density of a stated variance of so many degrees of freedom about the true one."""
    residual = drawn(np.where(np.isin(np.arange(ERRORS), KINDS["b"]), 4.0, 2.0))
    y, kind = BASIS.T @ (residual * WHITE[:, 0]), np.repeat([0, 1, 2], [3, 5, 1])

    def deviance(log):
        covariance = dense(np.exp(log)[kind])
        prior = degrees * np.sum(2.0 * log + np.exp(-2.0 * log))
        return np.linalg.slogdet(covariance)[1] + y @ np.linalg.solve(covariance, y) + prior

    best = minimize(deviance, np.ones(3), bounds=[(0.0, 5.0)] * 3, options={"ftol": 1e-12})
    found = likely_factors(of(residual), list(KINDS.values()), np.ones(ERRORS), degrees=[degrees] * 3)
    assert deviance(np.log(found[[0, 3, 8]])) == pytest.approx(best.fun, abs=1e-3)


def test_probability_of_a_larger_score_is_that_of_draws():
    rng, ones = np.random.default_rng(1), np.ones(ERRORS)
    p = np.array([score_test(marginal(of(drawn(ones, rng)), ones), KINDS["b"], ones).p for _ in range(1500)])
    for level in (0.5, 0.1, 0.01):
        assert np.mean(p < level) == pytest.approx(level, abs=4.0 * np.sqrt(level / p.size))


def test_an_error_beyond_its_deviation_is_named_and_correct_ones_are_not():
    rng = np.random.default_rng(2)
    accused = sum(bool(excess(of(drawn(np.ones(ERRORS), rng)), KINDS).exceeded) for _ in range(200))
    assert accused <= 200 * ERROR_RATE + 3.0 * np.sqrt(200 * ERROR_RATE)
    x = rng.normal(size=ERRORS)
    x[7] = 9.0
    judged = excess(of(rng.normal(size=ROWS) * np.sqrt(VARIANCES) + EFFECTS @ x), KINDS)
    (only,) = judged.exceeded
    assert only.members.tolist() == [7]
    assert only.sizes[0] == pytest.approx(9.0, abs=1.0)
    assert judged.factors[7] > 5.0


def test_errors_within_the_free_parameters_are_not_observable():
    data = sufficient_statistics(drawn(np.ones(ERRORS)), JACOBIAN, VARIANCES, JACOBIAN[:, :2] @ RNG.normal(size=(2, 3)))
    judged = excess(data, {"x": np.arange(3)})
    assert judged.observable["x"] < 1e-6
    assert not judged.exceeded
    np.testing.assert_array_equal(judged.factors, 1.0)
