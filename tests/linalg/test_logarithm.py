"""The logarithm of a ratio beside NumPy's and JAX's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmb.linalg import log_ratio
from jaxmb.linalg.logarithm import angle

RANDOM = np.random.default_rng(0)
A, B = (10.0 ** RANDOM.uniform(-9, 3, 200) * np.exp(1j * RANDOM.uniform(-np.pi, np.pi, 200)) for _ in range(2))


def complex_log_ratio(a, b):
    re, im = log_ratio(a, b)
    return re + 1j * im


def test_values():
    np.testing.assert_allclose(complex_log_ratio(A, B), np.log(A / B), rtol=0.0, atol=1e-14)
    near = A * (1.0 + 1e-9 * (1.0 + 1j))
    np.testing.assert_allclose(complex_log_ratio(near, A), np.log1p(1e-9 * (1.0 + 1j)), rtol=0.0, atol=1e-15)


def test_angles():
    """In all eight parts of the turn, on the borders between them, and of numbers of any size."""
    turn = np.arange(-32, 33) * np.pi / 32
    z = np.concatenate([np.exp(1j * turn) * size for size in (1.0, 1e-150, 1e150)])
    z = np.concatenate([z, A, np.array([1, 1j, -1, -1j, 0, 1 + 1j, -1 + 1j, -1 - 1j, 1 - 1j])])
    np.testing.assert_allclose(angle(z.real, z.imag), np.angle(z), rtol=1e-15, atol=0.0)


@pytest.mark.parametrize("derivative", [jax.jacfwd, jax.jacrev, jax.hessian])
def test_derivatives(derivative):
    def real(function, x):
        found = function(A * (1.0 + 1j * x[0]), B * (1.0 + x[1]))
        return jnp.stack([found.real, found.imag])

    x = jnp.array([0.3, -0.2])
    value = derivative(lambda u: real(complex_log_ratio, u))(x)
    np.testing.assert_allclose(
        value, derivative(lambda u: real(lambda a, b: jnp.log(a / b), u))(x), rtol=0.0, atol=1e-13
    )
