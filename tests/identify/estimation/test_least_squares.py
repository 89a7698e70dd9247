"""Bounded least squares against SciPy's trust region, on small problems of every kind of minimum."""

import importlib
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import least_squares as scipy_least_squares

from jaxmb.identify.estimation.least_squares import (
    Box,
    bound_limited,
    finished,
    host_minimum,
    normal_equations,
    residual_and_jacobian,
    slope_cosine,
    start,
    step,
)

D, ROWS = 4, 12


class Curve(eqx.Module):
    """Residual tanh(A u) + c (B u)^2 - target: smooth and nonlinear."""

    a: jax.Array
    b: jax.Array
    target: jax.Array

    def __call__(self, u):
        return jnp.tanh(self.a @ u) + 0.1 * (self.b @ u) ** 2 - self.target


class Exponentials(eqx.Module):
    """Residual linear in exp(u): what a logarithmic parameter is to a response."""

    a: jax.Array
    target: jax.Array

    def __call__(self, u):
        return self.a @ jnp.exp(u) - self.target


def curve(seed, noise, rank=D):
    """A random problem whose residual at its `minimum` is noise; `rank` below D leaves directions without effect."""
    random = np.random.default_rng(seed)
    keep = random.normal(size=(D, rank)) @ random.normal(size=(rank, D)) / D if rank < D else np.eye(D)
    a, b = (0.5 * random.normal(size=(ROWS, D)) @ keep for _ in range(2))
    minimum = random.uniform(-1.0, 1.0, size=D)
    zero = Curve(jnp.asarray(a), jnp.asarray(b), jnp.zeros(ROWS))
    target = np.asarray(zero(jnp.asarray(minimum))) + noise * random.normal(size=ROWS)
    return eqx.tree_at(lambda c: c.target, zero, jnp.asarray(target)), minimum


def box(lower, upper, logarithmic=False):
    return Box(jnp.asarray(lower), jnp.asarray(upper), jnp.full(D, logarithmic))


@eqx.filter_jit
def one_step(residual, box, state):
    return step(partial(normal_equations, residual), box, 1e-9, state)


def run(residual, box, u, most=200):
    state = start(jnp.asarray(u, dtype=float))
    for _ in range(most):
        state = one_step(residual, box, state)
        assert (np.asarray(state.u) >= np.asarray(box.lower)).all()
        assert (np.asarray(state.u) <= np.asarray(box.upper)).all()
        if finished(state):
            break
    return state


def by_scipy(residual, box, u):
    jacobian = eqx.filter_jit(lambda x: residual_and_jacobian(residual, x)[1])
    return scipy_least_squares(
        lambda x: np.asarray(residual(x)), u, lambda x: np.asarray(jacobian(x)),
        bounds=(np.asarray(box.lower), np.asarray(box.upper)), method="trf", xtol=1e-15, ftol=1e-15, gtol=1e-15,
        max_nfev=5000,
    )  # fmt: skip


def assert_same_minimum(found, bounds, theirs):
    assert bool(finished(found))
    # A predicted decrease of 1e-14 of the cost is its rounding: where the residual stays, that is a cosine of 1e-7.
    assert float(slope_cosine(found, bounds)) < 1e-6
    # SciPy's iterates stay inside, so that its cost is a little above that of a minimum on a bound.
    cost = 2.0 * theirs.cost
    assert float(found.objective) <= cost * (1.0 + 1e-9) + 1e-20
    assert float(found.objective) >= cost * (1.0 - 1e-6) - 1e-20


@pytest.mark.parametrize("seed", range(6))
def test_minimum_inside(seed):
    residual, minimum = curve(seed, noise=0.05)
    bounds = box(minimum - 2.0, minimum + 2.0)
    found = run(residual, bounds, minimum + 0.3)
    theirs = by_scipy(residual, bounds, minimum + 0.3)
    assert_same_minimum(found, bounds, theirs)
    # SciPy stops where the cost no longer changes, half of the digits in u.
    np.testing.assert_allclose(found.u, theirs.x, atol=1e-6)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("count", [1, 2, 3])
def test_minimum_on_bounds(seed, count):
    residual, minimum = curve(seed, noise=0.05)
    lower, upper = minimum - 2.0, minimum + 2.0
    # The unbounded minimum is cut off, on the upper side of some entries and on the lower of others.
    for i in range(count):
        if i % 2:
            lower[i] = minimum[i] + 0.2
        else:
            upper[i] = minimum[i] - 0.2
    bounds = box(lower, upper)
    first = np.clip(minimum, lower + 0.1, upper - 0.1)
    found = run(residual, bounds, first)
    theirs = by_scipy(residual, bounds, first)
    assert_same_minimum(found, bounds, theirs)
    on_bound = np.asarray((found.u == bounds.lower) | (found.u == bounds.upper))
    near = np.minimum(theirs.x - lower, upper - theirs.x) < 1e-4
    np.testing.assert_array_equal(on_bound, near)
    assert on_bound.any()
    np.testing.assert_array_equal(bound_limited(found.u, found.gradient, bounds), on_bound)


def test_truth_on_a_bound_is_reached_exactly():
    residual, minimum = curve(3, noise=0.0)
    bounds = box(minimum - 1.0, np.where(np.arange(D) == 1, minimum, minimum + 1.0))
    found = run(residual, bounds, minimum - 0.4)
    assert float(found.u[1]) == minimum[1]
    # Quadratic convergence ends at the rounding of the residuals.
    np.testing.assert_allclose(found.u, minimum, atol=1e-12)


def test_start_on_the_wrong_bounds_leaves_them():
    residual, minimum = curve(1, noise=0.0)
    bounds = box(minimum - 0.5, minimum + 0.5)
    for corner in (bounds.lower, bounds.upper):
        found = run(residual, bounds, corner)
        np.testing.assert_allclose(found.u, minimum, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_rank_deficient(seed):
    """Directions without effect do not hinder the others, and the cost is as low as SciPy's."""
    residual, minimum = curve(seed, noise=0.05, rank=2)
    _, jacobian = residual_and_jacobian(residual, jnp.asarray(minimum))
    assert np.linalg.matrix_rank(jacobian) == 2
    bounds = box(minimum - 2.0, minimum + 2.0)
    found = run(residual, bounds, minimum + 0.3)
    assert_same_minimum(found, bounds, by_scipy(residual, bounds, minimum + 0.3))


def test_an_entry_without_any_effect_stays():
    residual, minimum = curve(2, noise=0.05)
    residual = eqx.tree_at(lambda c: (c.a, c.b), residual, (residual.a.at[:, 2].set(0.0), residual.b.at[:, 2].set(0.0)))
    bounds = box(minimum - 2.0, minimum + 2.0)
    found = run(residual, bounds, minimum + 0.3)
    assert float(slope_cosine(found, bounds)) < 1e-6
    assert float(found.u[2]) == minimum[2] + 0.3


@pytest.mark.parametrize("noise", [0.0, 0.05])
@pytest.mark.parametrize("seed", range(3))
def test_logarithmic_entries(seed, noise):
    """Values spread over decades, from starts a factor of 30 off."""
    random = np.random.default_rng(seed)
    truth = random.uniform(-2.0, 2.0, size=D)
    a = random.normal(size=(ROWS, D))
    residual = Exponentials(jnp.asarray(a), jnp.asarray(a @ np.exp(truth) + noise * random.normal(size=ROWS)))
    bounds = box(truth - 4.0, truth + 4.0, logarithmic=True)
    first = truth + 3.4 * np.where(random.uniform(size=D) < 0.5, -1.0, 1.0)
    found = run(residual, bounds, first)
    if noise:
        assert_same_minimum(found, bounds, by_scipy(residual, bounds, first))
    else:
        np.testing.assert_allclose(found.u, truth, atol=1e-10)
    # A step in the value is right at once for what is linear in it; steps of 1 in the logarithm take several.
    assert int(found.evaluations) < 40


def test_scale_of_a_step_shortens_the_way():
    """For a problem linear in the value, the logarithmic entry's upward step is exact where the linear one's is not."""
    residual = Exponentials(jnp.eye(D), jnp.full(D, np.exp(0.6)))
    evaluations = [
        int(run(residual, box(np.full(D, -1.0), np.full(D, 2.0), logarithmic), np.zeros(D)).evaluations)
        for logarithmic in (True, False)
    ]
    assert evaluations[0] < evaluations[1]


def test_start_that_is_not_finite():
    residual, minimum = curve(0, noise=0.05)
    broken = eqx.tree_at(lambda c: c.target, residual, residual.target.at[3].set(jnp.nan))
    bounds = box(minimum - 2.0, minimum + 2.0)
    found = run(broken, bounds, minimum)
    assert bool(found.stalled)
    assert not bool(found.stationary)
    assert np.isinf(float(found.objective))
    assert (int(found.evaluations), int(found.non_finite)) == (1, 1)
    np.testing.assert_array_equal(found.u, minimum)


class Cliff(eqx.Module):
    """A curve whose cost is not a number beyond a cliff."""

    curve: Curve
    cliff: jax.Array

    def __call__(self, u):
        return jnp.where(u[0] > self.cliff, jnp.nan, self.curve(u))


def test_steps_that_are_not_finite_are_counted_and_not_taken():
    residual, minimum = curve(4, noise=0.0)
    bounds = box(minimum - 2.0, minimum + 2.0)
    first = np.where(np.arange(D) == 0, minimum - 1.5, minimum)
    # The undamped path overshoots the minimum; the cliff stands behind it.
    found = run(Cliff(residual, jnp.asarray(minimum[0] + 1e-3)), bounds, first)
    assert int(found.non_finite) > 0
    assert float(found.objective) < 1e-6


def test_nothing_moves_after_the_end():
    residual, minimum = curve(0, noise=0.05)
    bounds = box(minimum - 2.0, minimum + 2.0)
    ended = run(residual, bounds, minimum)
    assert bool(finished(ended))
    for old, new in zip(ended, one_step(residual, bounds, ended), strict=True):
        np.testing.assert_array_equal(old, new)


def test_slope_is_a_cosine():
    """1 where residual and column are parallel; 0 where the only slope leads out of the box."""
    residual = Exponentials(jnp.eye(D), jnp.asarray([np.e, 1.0, 1.0, 1.0]))
    bounds = box(np.zeros(D), np.ones(D), logarithmic=True)
    state = one_step(residual, bounds, start(jnp.zeros(D)))
    assert float(slope_cosine(state, bounds)) == pytest.approx(1.0)
    low = Box(bounds.lower - 1.0, jnp.zeros(D), bounds.logarithmic)
    assert float(slope_cosine(state, low)) == 0.0


def test_a_decomposition_that_does_not_converge(monkeypatch):
    """LAPACK's divide and conquer fails for single well-conditioned matrices."""

    def fails(*_args, **_kwargs):
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr("scipy.optimize._lsq.trf.svd", fails)
    slope, data = np.array([[1.0, 0.2], [0.3, 2.0], [1.0, -1.0]]), np.array([1.0, 2.0, 0.5])
    bound = np.full(2, 10.0)
    x, residual = host_minimum(lambda x: (slope @ x - data, slope), np.zeros(2), -bound, bound)
    np.testing.assert_allclose(x, np.linalg.lstsq(slope, data)[0], atol=1e-6)
    np.testing.assert_allclose(residual, slope @ x - data)


@pytest.mark.parametrize("bound", [10.0, 1.0])
def test_the_minimum_of_many_unknowns(monkeypatch, bound):
    """Unknowns of six tests and common ones: found by iteration as by decompositions, some on their bounds."""
    draw, tests, common, own = np.random.default_rng(5), 6, 3, 5
    slope = np.zeros((20 * tests, common + own * tests))
    for k in range(tests):
        of_test = np.arange(common + own * k, common + own * (k + 1))
        slope[20 * k : 20 * (k + 1), [*range(common), *of_test]] = draw.normal(size=(20, common + own))
    slope *= 10.0 ** draw.uniform(-1.0, 1.0, slope.shape[1])
    truth = draw.uniform(-1.2, 1.2, slope.shape[1])

    def predicted(x):
        return np.sinh(0.2 * slope @ x)

    data = predicted(truth) + 0.1 * draw.normal(size=len(slope))

    def state(x):
        return predicted(x) - data, 0.2 * np.cosh(0.2 * slope @ x)[:, None] * slope

    limits = np.full(truth.size, bound)
    found = []
    for most in (500, 1):
        monkeypatch.setattr(importlib.import_module("jaxmb.identify.estimation.least_squares"), "MANY", most)
        x, residual = host_minimum(state, np.zeros(truth.size), -limits, limits)
        found.append((x, residual @ residual))
    (exact, least), (iterated, reached) = found
    assert np.any(np.abs(exact) > 0.99 * bound) == (bound == 1.0)
    assert np.any(iterated != exact)
    assert reached == pytest.approx(least, rel=1e-4)
    np.testing.assert_allclose(iterated, exact, atol=2e-2)
