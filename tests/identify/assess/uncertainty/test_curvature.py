"""Intervals where the cost is no parabola, beside a cost whose profile is written out."""

from types import SimpleNamespace

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from jaxmb.identify.assess.result import INTERVAL
from jaxmb.identify.assess.uncertainty.nonlinear import ENOUGH, with_curvature
from jaxmb.identify.estimation.identifiability import identifiability
from jaxmb.identify.fit.problem import final_state

TAU = 0.04
WEAK = 0.67
"""Standard deviation of a "weak" parameter."""


class TwoThatMakeUp(eqx.Module):
    """u_0 + u_1 is known well, u_1 alone by a measurement that flattens: the profile of u_0 is shape(u_0 / tau)^2.

    In the shape "compliance" u_0 is the logarithm of a stiffness, the compliance of which is measured.
    """

    shape: str = eqx.field(static=True)
    tau: float = eqx.field(static=True, default=TAU)
    bound: float = eqx.field(static=True, default=3.0)
    noise_unit: float = 1.0
    data_rows: int = eqx.field(static=True, default=3)

    @property
    def free(self):
        return SimpleNamespace(size=2, names=("a", "b"), lower=np.full(2, -self.bound), upper=np.full(2, self.bound))

    def residual(self, u):
        alone = {
            "flattens": jnp.arcsinh(u[1] / self.tau),
            "compliance": jnp.expm1(u[1]) / self.tau,
            "parabola": u[1] / self.tau,
        }[self.shape]
        return jnp.array([1e4 * (u[0] + u[1]), alone, 1.0])

    def stated_variances(self):
        return jnp.ones(3)


def found(shape, bound=3.0, tau=TAU):
    problem = TwoThatMakeUp(shape, tau, bound)
    residual, jacobian, weights = (np.asarray(x) for x in final_state(problem, jnp.zeros(2)))
    known = identifiability(jacobian, weights)
    estimate = SimpleNamespace(
        study=SimpleNamespace(problem=problem, free=problem.free), u=np.zeros(2), residual=residual,
        compressed=(residual, jacobian),
        identifiability=known, with_std=lambda std: SimpleNamespace(identifiability=known._replace(std=std)),
    )  # fmt: skip
    np.testing.assert_allclose(known.std, tau, rtol=1e-5)
    return with_curvature(estimate).identifiability.std


def test_a_parabola_stays():
    np.testing.assert_allclose(found("parabola"), TAU, rtol=1e-5)


def test_an_interval_ends_at_the_bound():
    np.testing.assert_allclose(found("flattens", 0.1), 0.1 / INTERVAL, rtol=1e-9)
    np.testing.assert_allclose(found("flattens", 0.05), TAU, rtol=1e-5)


def test_a_profile_that_flattens():
    # the cost has risen by INTERVAL^2 where arcsinh(u / TAU) = INTERVAL, and nearly so from ENOUGH of that on
    least, most = (np.sinh(np.sqrt(share) * INTERVAL) / INTERVAL for share in (ENOUGH, 1.0))
    for std in found("flattens"):
        assert least <= std / TAU <= 1.3 * most


def test_weak_stiffness_that_may_be_rigid():
    # a rigid joint, of compliance 0, raises the cost by 1 / WEAK^2, less than INTERVAL^2: the interval has no upper end
    assert 1.0 / WEAK**2 < ENOUGH * INTERVAL**2
    np.testing.assert_allclose(found("compliance", tau=WEAK)[0], 3.0 / INTERVAL, rtol=1e-9)
