"""What residuals tell of the noise, on noise that is known."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

from jaxmb.identify.experiments.frf.frf_test import FrfTest
from jaxmb.identify.fit.noise import FALSE_ALARM, explained_objective, reduced_chi_square, reduced_chi_squares
from jaxmb.identify.fit.state import distinct
from tests.identify.arm import frf, shapes, study_of

LINES = 400
POINTS = tuple(("tool", axis) for axis in "xyz")
TEST = FrfTest(
    name="a", q=jnp.zeros(1), outputs=POINTS, inputs=POINTS, derivatives=2, at="posture", phase="safe",
    omega=jnp.arange(LINES) + 1.0, measured=jnp.zeros((LINES, 3, 3), complex), weight=jnp.ones((LINES, 3, 3)),
    noise_std=jnp.ones((LINES, 3, 3)), known_std=jnp.zeros((LINES, 3, 3)),
    additive_std=jnp.zeros((LINES, 3, 3)), magnitude=jnp.ones((LINES, 3, 3)), nominal_std=jnp.ones(()),
    leak=jnp.zeros((LINES, 3, 3), complex),
    excluded=jnp.zeros(LINES, bool), decay=jnp.zeros(()),
)  # fmt: skip


def residuals(rho, weight, seed):
    """Residuals [2, f, 3, 3] of a first-order autoregression along the lines, of unit variance times the weight."""
    rng = np.random.default_rng(seed)
    errors = np.zeros((2, LINES, 3, 3))
    errors[:, 0] = rng.normal(size=(2, 3, 3))
    for line in range(1, LINES):
        errors[:, line] = rho * errors[:, line - 1] + np.sqrt(1.0 - rho**2) * rng.normal(size=(2, 3, 3))
    return (errors * np.sqrt(weight)[:, None, None]).ravel(), np.tile(
        np.broadcast_to(weight[:, None, None], (LINES, 3, 3)).ravel(), 2
    )


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_the_autocorrelation_is_found(rho):
    """An AR(1) process has the integrated autocorrelation (1 + rho) / (1 - rho)."""
    weight = np.where(np.arange(LINES) % 7 == 0, 80.0, 0.5)
    weight[100:110] = 0.0
    found = [TEST.noise.correlation_length(*residuals(rho, weight, seed)) for seed in range(5)]
    # 18 series of 400 lines: the sum of estimated correlations scatters by some percent of its length
    assert np.mean(found) == pytest.approx((1.0 + rho) / (1.0 - rho), rel=0.15)


def test_the_size_is_found():
    weight = np.where(np.arange(LINES) % 7 == 0, 80.0, 0.5)
    residual, weights = residuals(0.0, weight, 1)
    # the heavy lines carry the estimate: 1026 values, so 2 %
    found = reduced_chi_square(3.0 * residual, weights, 0)
    assert found.factor == pytest.approx(3.0, rel=0.06)
    assert not found.explained
    assert found.widening == found.factor


@pytest.mark.parametrize("weights", [(1.0,), (80.0, 0.5, 0.5)], ids=["even", "peaks"])
def test_small_tests_of_one_fit_are_explained_by_their_noise(weights):
    """Eight tests of 12 rows each, 18 parameters: none gives more degrees of freedom than the fit spends on it.

    Against noise drawn by NumPy: the mean is 1, and there are as many alarms as are stated.
    """
    rng = np.random.default_rng(4)
    w = np.tile(np.resize(weights, 12), 8)
    jacobian = rng.normal(size=(96, 18)) * np.sqrt(w)[:, None]
    groups = [slice(12 * t, 12 * t + 12) for t in range(8)]
    draws = 2000
    noise = rng.normal(size=(96, draws)) * np.sqrt(w)[:, None]
    left = noise - jacobian @ np.linalg.lstsq(jacobian, noise, rcond=None)[0]
    found = [reduced_chi_squares(r, jacobian, w, groups) for r in left.T]
    squares = np.array([[each.square for each in draw] for draw in found])
    degrees = np.array([each.degrees for each in found[0]])
    np.testing.assert_allclose(squares.mean(axis=0), 1.0, atol=5.0 * np.sqrt(2.0 / degrees.min() / draws))
    np.testing.assert_allclose(squares.var(axis=0), 2.0 / degrees, rtol=0.3)
    alarms = np.mean([[not each.explained for each in draw] for draw in found])
    # the sum of squares of unequal variances has a heavier tail than the chi-square of its mean and variance
    assert 0.0 < alarms < (3.0 if len(weights) == 1 else 10.0) * FALSE_ALARM


def test_as_many_values_as_parameters_leave_no_degree_of_freedom():
    """What is left is rounding, whose ratio to the rounding of its expectation may have any size and sign."""
    draw = np.random.default_rng(1)
    for size in np.tile(range(2, 8), 10).tolist():
        jacobian, residual = draw.normal(size=(size, size)), draw.normal(size=size)
        (found,) = reduced_chi_squares(residual, jacobian, np.full(size, 80.0), [slice(0, size)])
        assert found.square == pytest.approx(residual @ residual / 80.0, rel=1e-9)
        assert found.degrees == 1.0


def test_residuals_of_nothing():
    assert TEST.noise.correlation_length(np.zeros(18 * LINES), np.ones(18 * LINES)) == 1.0


def test_an_objective_that_the_noise_explains(tmp_path):
    """At true parameters the objective is a chi-square of as many degrees as there are rows."""
    problem = study_of(tmp_path, frf(noise=0.02, noise_log_std=0.02)).problem
    rows = problem.data_rows
    expected = 0.02**2 * chi2.isf(FALSE_ALARM, rows)
    assert explained_objective(problem) == pytest.approx(expected, rel=1e-6)
    unknown = study_of(tmp_path, frf(noise=0.02, noise_log_std="estimate")).problem
    assert explained_objective(unknown) == np.inf
    # two modes without stated content: frequencies, damping ratios, and shapes at four sensors
    modal = study_of(tmp_path, shapes()).problem
    assert explained_objective(modal) == pytest.approx(chi2.isf(FALSE_ALARM, 2 + 2 + 16), rel=1e-6)


def test_ends_at_one_place_are_one():
    ends = [np.array([1.0, 0.0, 2.0]), np.array([1.0, 5e-5, 2.0]), np.array([1.0, 0.5, 2.0]), np.array([3.0, 0.5, 2.0])]
    assert [end.tolist() for end in distinct(ends)] == [[1.0, 0.0, 2.0], [1.0, 0.5, 2.0]]
