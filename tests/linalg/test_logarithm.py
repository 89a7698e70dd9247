"""The logarithm of a ratio beside NumPy's and JAX's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmb.linalg.responses import angle, log_of_positive, log_ratio

RANDOM = np.random.default_rng(0)
A, B = (10.0 ** RANDOM.uniform(-9, 3, 200) * np.exp(1j * RANDOM.uniform(-np.pi, np.pi, 200)) for _ in range(2))


@jax.jit
def complex_log_ratio(a, b):
    re, im = log_ratio(a, b)
    return re + 1j * im


def test_values():
    np.testing.assert_allclose(complex_log_ratio(A, B), np.log(A / B), rtol=0.0, atol=1e-14)
    near = A * (1.0 + 1e-9 * (1.0 + 1j))
    np.testing.assert_allclose(complex_log_ratio(near, A), np.log1p(1e-9 * (1.0 + 1j)), rtol=0.0, atol=1e-15)


def test_logarithms():
    """Of numbers of any size, near 1 and at its borders, and of those that are none."""
    near = 1.0 + RANDOM.normal(size=2000) * 10.0 ** RANDOM.uniform(-16, 0, 2000)
    x = np.concatenate([10.0 ** RANDOM.uniform(-307, 308, 2000), np.abs(near), 2.0 ** np.arange(-1022, 1024)])
    x = np.concatenate([x, np.nextafter(x, 0.0)[:4000], np.sqrt([0.5, 2.0]), [0.0, np.inf, np.nan]])
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(jax.jit(log_of_positive)(x), np.log(x), rtol=3e-16, atol=0.0)


def test_angles():
    """In all eight parts of the turn, on the borders between them, and of numbers of any size."""
    turn = np.arange(-32, 33) * np.pi / 32
    z = np.concatenate([np.exp(1j * turn) * size for size in (1.0, 1e-150, 1e150)])
    z = np.concatenate([z, A, np.array([1, 1j, -1, -1j, 0, 1 + 1j, -1 + 1j, -1 - 1j, 1 - 1j])])
    np.testing.assert_allclose(jax.jit(angle)(z.real, z.imag), np.angle(z), rtol=1e-15, atol=0.0)


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
