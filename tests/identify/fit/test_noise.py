"""What residuals tell of the noise, on noise that is known."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmb.identify.experiments.frf_test import FrfTest
from jaxmb.identify.fit.noise import noise_factor

LINES = 400
POINTS = tuple(("tool", axis) for axis in "xyz")
TEST = FrfTest(
    name="a", q=jnp.zeros(1), outputs=POINTS, inputs=POINTS, derivatives=2, at="posture", phase="safe",
    omega=jnp.arange(LINES) + 1.0, measured=jnp.zeros((LINES, 3, 3), complex), weight=jnp.ones((LINES, 3, 3)),
    noise_std=jnp.ones((LINES, 3, 3)), nominal_std=jnp.ones(()), decay=jnp.zeros(()),
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
    found = [TEST.correlated_rows(*residuals(rho, weight, seed)) for seed in range(5)]
    # 18 series of 400 lines: the sum of estimated correlations scatters by some percent of its length
    assert np.mean(found) == pytest.approx((1.0 + rho) / (1.0 - rho), rel=0.15)


def test_the_size_is_found():
    weight = np.where(np.arange(LINES) % 7 == 0, 80.0, 0.5)
    residual, weights = residuals(0.0, weight, 1)
    # the heavy lines carry the estimate: 1026 values, so 2 %
    assert noise_factor(3.0 * residual, weights, 0) == pytest.approx(3.0, rel=0.06)


def test_residuals_of_nothing():
    assert TEST.correlated_rows(np.zeros(18 * LINES), np.ones(18 * LINES)) == 1.0
