"""Recursive least squares against NumPy's least squares of all rows at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb

SAME = 1e-10
"""Relative: rounding times the condition of the base columns, 1e-16 times some 1e4."""


def driven_round(model, count):
    """Postures, rates and accelerations of a motion of one period."""
    t = np.linspace(0.0, 2.0 * np.pi, count, endpoint=False)[:, None]
    m = len(jaxmb.independent_coordinates(model))
    k, phase = np.arange(m) % 3 + 1, np.arange(m)
    z = np.asarray(jaxmb.reference_posture(model))[:m] + np.sin(k * t + phase) + 0.3 * np.sin(5 * t - phase)
    zd = k * np.cos(k * t + phase) + 1.5 * np.cos(5 * t - phase)
    zdd = -(k**2) * np.sin(k * t + phase) - 7.5 * np.sin(5 * t - phase)
    if m == len(model.coordinates):
        return z, zd, zdd
    q, near = [], None
    for angle in z[:, 0]:
        near = np.asarray(jaxmb.close_loops(model, {"q1": float(angle)}, near=near))
        q.append(near)
    return np.array(q), zd, zdd


def base_rows(model, count):
    base = jaxmb.base_parameters(model)
    Y = jaxmb.stacked_torque_regressor(model, *driven_round(model, count), names=base.names)
    known = jaxmb.parameters(model)
    values = base.matrix @ [known[name] for name in jaxmb.regressor_names(model)]
    noise = 0.01 * np.random.default_rng(0).normal(size=Y.shape[:2])
    return Y, Y @ values + noise


@pytest.fixture(scope="module", params=["slider-crank", "staubli-tx40"])
def rows(request):
    model = jaxmb.build_model(jaxmb.load_machine(request.param))
    return base_rows(model, 120)


def batch(Y, tau, weights=1.0):
    """NumPy's solution and standard deviations, by textbook formulas, weights of each sample."""
    root = np.sqrt(weights * np.ones(len(Y)))[:, None]
    A, b = (Y * root[..., None]).reshape(-1, Y.shape[2]), (tau * root).ravel()
    found = np.linalg.lstsq(A, b, rcond=None)[0]
    degrees = tau.shape[1] * np.sum(weights * np.ones(len(Y))) - A.shape[1]
    covariance = np.linalg.inv(A.T @ A) * np.sum((b - A @ found) ** 2) / degrees
    return found, np.sqrt(np.diag(covariance))


def close(found, expected, tolerance=SAME):
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("block", [1, 7, 120])
@pytest.mark.parametrize("forgetting", [1.0, 0.98])
def test_all_samples_in_one_pass(rows, block, forgetting):
    Y, tau = rows
    state = jaxmb.recursive_least_squares(Y.shape[2], forgetting)
    for first in range(0, len(Y), block):
        state = jaxmb.update_least_squares(state, Y[first : first + block], tau[first : first + block])
    found = jaxmb.least_squares_estimate(state)
    values, std = batch(Y, tau, forgetting ** np.arange(len(Y) - 1, -1, -1))
    assert isinstance(found.values, np.ndarray)
    assert found.rank == Y.shape[2]
    close(found.values, values)
    np.testing.assert_allclose(found.std, std, rtol=1e-6)  # the oracle inverts A^T A, of the squared condition


@pytest.mark.parametrize("forgetting", [1.0, 0.999])
def test_a_long_block(forgetting):
    """More samples than are decomposed at a time."""
    draw = np.random.default_rng(0)
    Y, tau = draw.normal(size=(600, 2, 3)), draw.normal(size=(600, 2))
    state = jaxmb.update_least_squares(jaxmb.recursive_least_squares(3, forgetting), Y, tau)
    found = jaxmb.least_squares_estimate(state)
    values, std = batch(Y, tau, forgetting ** np.arange(599, -1, -1))
    close(found.values, values)
    np.testing.assert_allclose(found.std, std, rtol=1e-9)


def test_in_compiled_programs(rows):
    Y, tau = rows
    start = jax.tree.map(jnp.asarray, jaxmb.recursive_least_squares(Y.shape[2]))

    @jax.jit
    def passed(Y, tau):
        def step(state, sample):
            state = jaxmb.update_least_squares(state, *sample)
            return state, jaxmb.least_squares_estimate(state).values

        return jax.lax.scan(step, start, (Y, tau))[1]

    estimates = passed(Y, tau)
    close(estimates[-1], batch(Y, tau)[0])
    close(estimates[59], batch(Y[:60], tau[:60])[0])


def test_before_everything_is_known(rows):
    """Fewer rows than parameters, and columns of zeros: what is known has finite deviations, the rest is told."""
    Y, tau = rows
    wide = np.concatenate([Y, Y[..., :1], np.zeros_like(Y[..., :1])], axis=2)
    state = jaxmb.recursive_least_squares(wide.shape[2])
    found = jaxmb.least_squares_estimate(state)
    assert found.rank == 0
    assert not found.values.any()
    assert np.isinf(found.std).all()
    state = jaxmb.update_least_squares(state, wide[0], tau[0])
    few = jaxmb.least_squares_estimate(state)
    assert few.rank <= tau.shape[1]
    np.testing.assert_allclose(wide[0] @ few.values, tau[0], atol=1e-9 * np.abs(tau[0]).max() + 1e-12)
    for sample in zip(wide[1:], tau[1:], strict=True):
        state = jaxmb.update_least_squares(state, *sample)
    found = jaxmb.least_squares_estimate(state)
    assert found.rank == Y.shape[2]
    assert np.flatnonzero(np.isinf(found.std)).tolist() == [0, Y.shape[2], Y.shape[2] + 1]
    expected, std = batch(Y, tau)
    close(found.values[1:-2], expected[1:])
    np.testing.assert_allclose(found.std[1:-2], std[1:], rtol=1e-6)
    close([found.values[0], found.values[-2], found.values[-1]], [expected[0] / 2, expected[0] / 2, 0.0])


def test_a_prior_is_a_sample(rows):
    Y, tau = rows
    prior, std = np.full(Y.shape[2], 0.1), 0.05
    state = jaxmb.update_least_squares(jaxmb.recursive_least_squares(Y.shape[2]), np.eye(Y.shape[2]), prior, std)
    close(jaxmb.least_squares_estimate(state).values, prior)
    few = slice(0, 1)
    found = jaxmb.least_squares_estimate(jaxmb.update_least_squares(state, Y[few], tau[few], 0.01))
    A, b = Y[few].reshape(-1, Y.shape[2]) / 0.01, tau[few].ravel() / 0.01
    inverse = np.linalg.inv(A.T @ A + np.eye(Y.shape[2]) / std**2)
    close(found.values, inverse @ (A.T @ b + prior / std**2), 1e-8)  # squared condition in the oracle


def test_a_payload_that_is_taken_up_midway():
    """What forgets follows it, what does not ends between the two."""
    model = jaxmb.build_model(jaxmb.load_machine("staubli-tx40"))
    base = jaxmb.base_parameters(model)
    motion, names = driven_round(model, 400), jaxmb.regressor_names(model)
    light = np.array([jaxmb.parameters(model)[name] for name in names])
    heavy = light.copy()
    heavy[names.index("mass.q6")] += 2.0
    Y = jaxmb.stacked_torque_regressor(model, *motion, names=base.names)
    tau = np.concatenate([Y[:200] @ base.matrix @ light, Y[200:] @ base.matrix @ heavy])
    weights = 0.95 ** np.arange(len(Y) - 1, -1, -1)
    moved = np.linalg.norm(base.matrix @ (heavy - light))
    errors = []
    for forgetting, expected in ((0.95, batch(Y, tau, weights)[0]), (1.0, batch(Y, tau)[0])):
        state = jaxmb.recursive_least_squares(len(base.names), forgetting)
        state = jaxmb.update_least_squares(jaxmb.update_least_squares(state, Y[:200], tau[:200]), Y[200:], tau[200:])
        found = jaxmb.least_squares_estimate(state).values
        close(found, expected)
        errors.append(np.linalg.norm(found - base.matrix @ heavy) / moved)
    assert errors[0] < 0.01 < 0.1 < errors[1]  # 0.95^200 = 3.5e-5 of the old samples is left


def test_wrong_requests():
    state = jaxmb.recursive_least_squares(3)
    with pytest.raises(ValueError, match=r"forgetting is 1\.1, expected above 0 and at most 1"):
        jaxmb.recursive_least_squares(3, 1.1)
    with pytest.raises(ValueError, match="count is 0, expected at least one parameter"):
        jaxmb.recursive_least_squares(0)
    with pytest.raises(ValueError, match=r"regressor has shape \(2, 4\), expected \(2, 3\) as effort has \(2,\)"):
        jaxmb.update_least_squares(state, np.ones((2, 4)), np.ones(2))
    with pytest.raises(ValueError, match=r"std has shape \(3,\), expected one number or \(2,\)"):
        jaxmb.update_least_squares(state, np.ones((2, 3)), np.ones(2), np.ones(3))
    with pytest.raises(ValueError, match="effort holds nan, expected finite numbers"):
        jaxmb.update_least_squares(state, np.ones((2, 3)), np.array([1.0, np.nan]))
