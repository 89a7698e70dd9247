"""Intervals where the cost is no parabola, beside a cost whose profile is written out."""

from types import SimpleNamespace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmb.identify.assess.curvature import ENOUGH, LEVEL, with_curvature
from jaxmb.identify.estimation.identifiability import knowledge
from jaxmb.identify.fit.problem import final_state

TAU = 0.04


class TwoThatMakeUp(eqx.Module):
    """u_0 + u_1 is known well, u_1 alone by a measurement that flattens: the profile of u_0 is shape(u_0 / TAU)^2."""

    shape: str = eqx.field(static=True)
    noise_unit: float = 1.0

    @property
    def free(self):
        return SimpleNamespace(lower=np.full(2, -3.0), upper=np.full(2, 3.0))

    def residual(self, u):
        alone = jnp.arcsinh(u[1] / TAU) if self.shape == "flattens" else u[1] / TAU
        return jnp.array([1e4 * (u[0] + u[1]), alone, 1.0])

    def row_weights(self):
        return jnp.ones(3)


def found(shape):
    problem = TwoThatMakeUp(shape)
    residual, jacobian, weights = (np.asarray(x) for x in final_state(problem, jnp.zeros(2)))
    known = knowledge(jacobian, weights)
    finding = SimpleNamespace(
        study=SimpleNamespace(problem=problem, free=problem.free), u=np.zeros(2), residual=residual, jacobian=jacobian,
        known=known, with_std=lambda std: SimpleNamespace(known=known._replace(std=std)),
    )  # fmt: skip
    np.testing.assert_allclose(known.std, TAU, rtol=1e-5)
    return with_curvature(finding).known.std


def test_a_parabola_stays():
    np.testing.assert_allclose(found("parabola"), TAU, rtol=1e-5)


def test_a_profile_that_flattens():
    # the cost has risen by LEVEL^2 where arcsinh(u / TAU) = LEVEL, and nearly so from ENOUGH of that on
    least, most = (np.sinh(np.sqrt(share) * LEVEL) / LEVEL for share in (ENOUGH, 1.0))
    for std in found("flattens"):
        assert least <= std / TAU <= 1.3 * most
        assert std / TAU == pytest.approx(most, rel=0.35)
