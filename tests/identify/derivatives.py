"""Derivatives of a problem's residual against finite differences."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxmb.identify.experiments.test import without_name


@eqx.filter_jit
def residual_of(problem, u):
    """Residual, compiled."""
    return problem.residual(u)


@eqx.filter_jit
def cost_of(problem, u):
    """Cost, compiled: operation by operation each is a program of its own."""
    return jnp.sum(problem.data_residual(problem.free.values(u)) ** 2)


@eqx.filter_jit
def _seen(test, model):
    return test.residual(test.view(model))


def residual_alone(test, model):
    """Residual of a test of a model, compiled once for tests of one form."""
    return np.asarray(_seen(without_name(test), model))


@eqx.filter_jit
def jacobian_of(problem, u):
    """Its derivative, forward."""
    return jax.jacfwd(problem.residual)(u)


@eqx.filter_jit
def gradient_of(problem, u):
    """Derivative of the objective, in reverse."""
    return jax.grad(problem.objective)(u)


def assert_jacobian(problem, u, step=1e-4, reverse=True):
    """Fourth-order central differences, good to some 1e-8 of a column; rounding over the step limits small ones."""
    jacobian = np.asarray(jacobian_of(problem, jnp.asarray(u)))
    residual = np.asarray(residual_of(problem, jnp.asarray(u)))
    rounding = 1e-14 * max(np.abs(residual).max(), 1.0) / step
    for i in range(u.size):
        e = np.zeros(u.size)
        e[i] = step
        r = {k: np.asarray(residual_of(problem, jnp.asarray(u + k * e))) for k in (-2, -1, 1, 2)}
        slope = (8.0 * (r[1] - r[-1]) - (r[2] - r[-2])) / (12.0 * step)
        size = np.abs(slope).max()
        assert size > 0.0
        np.testing.assert_allclose(jacobian[:, i], slope, rtol=0, atol=1e-6 * size + rounding, err_msg=str(i))
    if not reverse:
        return
    # Reverse mode, the other way through the same derivative.
    by_columns = 2.0 * jacobian.T @ residual
    gradient = np.asarray(gradient_of(problem, jnp.asarray(u)))
    np.testing.assert_allclose(gradient, by_columns, rtol=0, atol=1e-9 * np.abs(by_columns).max())
