"""What was done to a machine and what was measured: each test predicts its measurement and compares.

A test is data at one posture. It sees the machine as a `Scene` (its small motions there, and the sensors' Jacobians),
and returns a residual in units of its noise, so that tests of all kinds add up to one cost.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Complex, Float
from optax.assignment import hungarian_algorithm

from jaxmb.linalg import Support, receptance
from jaxmb.machine.build import Model
from jaxmb.mechanics.equilibrium import equilibrium_or_nan
from jaxmb.mechanics.tangent import LinearizeAt, Tangent, tangent_about
from jaxmb.response.frf import Point, response_rows
from jaxmb.response.modal import energy_shares, oscillating_modes

UNPAIRABLE = 1e12
"""Squared error of a pair that cannot be: larger than that of any other, and still finite."""

Phase = Literal["safe", "principal"]


class Scene(eqx.Module):
    """What a test sees of a machine at its posture."""

    tangent: Tangent
    stiffness: Float[Array, "n"]
    """Stiffness of each coordinate's own spring."""
    output_rows: Float[Array, "o n"]
    input_rows: Float[Array, "i n"] | None
    """None where the inputs are the outputs."""
    support: Support | None = eqx.field(static=True, default=None)
    """Entries of the tangent that the free parameters move, where that is known."""


class FrfTest(eqx.Module):
    """Frequency responses measured at one posture."""

    name: str = eqx.field(static=True)
    q: Float[Array, "n"]
    outputs: tuple[Point, ...] = eqx.field(static=True)
    inputs: tuple[Point, ...] = eqx.field(static=True)
    derivatives: int = eqx.field(static=True)
    """0 receptance, 1 mobility, 2 accelerance."""
    at: LinearizeAt = eqx.field(static=True)
    phase: Phase = eqx.field(static=True)
    omega: Float[Array, "f"]
    measured: Complex[Array, "f o i"]
    weight: Float[Array, "f o i"]
    """W of eq. 22; 0 for lines that are not used."""
    noise_std: Float[Array, "f o i"]
    """Standard deviation of log H, real and imaginary part each."""
    nominal_std: Float[Array, ""]
    """Standard deviation of log H that the study states: the unit of its cost."""
    decay: Float[Array, ""]
    """Decay rate sigma of an exponential window behind the responses, 1/s: they are H(j omega + sigma)."""
    noise_known: bool = eqx.field(static=True, default=True)
    """Whether the noise is as stated, and not to be judged by what the fit leaves."""

    def predict(self, scene: Scene) -> Complex[Array, "f o i"]:
        """Frequency responses [f, o, i] of the machine, of the kind that was measured."""
        return predict_frf(scene, self.omega, self.derivatives, self.decay)

    def residual(self, scene: Scene) -> Float[Array, "m"]:
        """sqrt(W) (log Hs - log H) / noise, real parts then imaginary parts, of eq. 22 of Huynh et al. 2020.

        "safe" takes the logarithm of the ratio Hs / H, whose phase lies within half a turn. "principal" subtracts the
        principal branches as printed: where the two phases lie on either side of the cut, a small error becomes 2 pi.
        """
        used = self.weight > 0.0
        predicted = jnp.where(used, self.predict(scene), 1.0)
        measured = jnp.where(used, self.measured, 1.0)
        if self.phase == "safe":
            difference = jnp.log(predicted / measured)
        else:
            difference = jnp.log(predicted) - jnp.log(measured)
        scaled = difference * (jnp.sqrt(self.weight) / self.noise_std)
        return jnp.concatenate([scaled.real.ravel(), scaled.imag.ravel()])

    @property
    def rows(self) -> int:
        """Number of residuals."""
        return 2 * self.measured.size

    def row_weights(self) -> Float[Array, "m"]:
        """W of every residual, which is also the variance of the residual under the test's own noise."""
        return jnp.tile(self.weight.ravel(), 2)


class ModesTest(eqx.Module):
    """Natural frequencies and damping ratios measured at one posture, and what moves in each mode."""

    name: str = eqx.field(static=True)
    q: Float[Array, "n"]
    at: LinearizeAt = eqx.field(static=True)
    frequency_hz: Float[Array, "m"]
    """Damped frequencies, as modal analysis gives them (eq. 20)."""
    damping_ratio: Float[Array, "m"]
    content: Bool[Array, "m n"]
    """Coordinates that dominate each mode; all False where that is not known."""
    frequency_std: Float[Array, "m"]
    damping_std: Float[Array, "m"]
    content_share: Float[Array, ""]
    """Share of a mode's strain energy that its named coordinates hold at least."""
    content_std: Float[Array, ""]

    outputs: tuple[Point, ...] = eqx.field(static=True, default=())
    inputs: tuple[Point, ...] = eqx.field(static=True, default=())

    def predict(self, scene: Scene) -> tuple[Float[Array, "m"], Float[Array, "m"], Float[Array, "m"]]:
        """Damped frequency [Hz], damping ratio and content share of the predicted mode paired with each measured one.

        Of all one-to-one pairings the one with the smallest sum of squared errors counts, so that the cost stays
        continuous where two predicted modes change places.
        """
        eigenvalue, shape, oscillates = oscillating_modes(scene.tangent)
        frequency = eigenvalue.imag / (2 * jnp.pi)
        damping = -eigenvalue.real / jnp.abs(eigenvalue)
        shares = self.content.astype(float) @ energy_shares(shape, scene.stiffness)
        each = jax.vmap(self._errors, in_axes=(1, 1, 1), out_axes=1)
        count = self.frequency_hz.size
        errors = each(*(jnp.broadcast_to(x, (count, x.shape[-1])) for x in (frequency, damping, shares)))
        squares = jnp.where(oscillates, jnp.sum(errors**2, axis=-1), UNPAIRABLE)
        rows, columns = hungarian_algorithm(jax.lax.stop_gradient(jnp.minimum(squares, UNPAIRABLE)))
        pairs = jnp.zeros(count, dtype=columns.dtype).at[rows].set(columns)
        return frequency[pairs], damping[pairs], jnp.take_along_axis(shares, pairs[:, None], axis=1)[:, 0]

    def _errors(
        self, frequency: Float[Array, "m"], damping: Float[Array, "m"], share: Float[Array, "m"]
    ) -> Float[Array, "m 3"]:
        """Errors of frequency, damping and content over their standard deviations; content errs only from below."""
        missing = jnp.where(jnp.any(self.content, axis=1), jnp.maximum(self.content_share - share, 0.0), 0.0)
        return jnp.stack([
            (frequency - self.frequency_hz) / self.frequency_std,
            (damping - self.damping_ratio) / self.damping_std,
            missing / self.content_std,
        ], axis=-1)  # fmt: skip

    def residual(self, scene: Scene) -> Float[Array, "r"]:
        """Errors of all frequencies, then of all damping ratios, then of the content, in units of their noise."""
        return self._errors(*self.predict(scene)).T.ravel()

    @property
    def rows(self) -> int:
        """Number of residuals."""
        return 3 * self.frequency_hz.size

    def row_weights(self) -> Float[Array, "r"]:
        """Variance of every residual under the test's own noise: 1."""
        return jnp.ones(3 * self.frequency_hz.size)


Test = FrfTest | ModesTest


@eqx.filter_jit
def observe(
    model: Model, q: Float[Array, "n"], at: LinearizeAt, outputs: tuple[Point, ...], inputs: tuple[Point, ...]
) -> Scene:
    """What a test at posture q sees of a machine: its tangent there, and the rows of sensors and shakers.

    NaN where the test is linearized at an equilibrium that does not exist, so that a fit counts it and goes elsewhere.
    """
    point = q if at == "posture" else equilibrium_or_nan(model, q)
    output_rows = response_rows(model, point, outputs) if outputs else jnp.zeros((0, q.size))
    input_rows = None if inputs == outputs else response_rows(model, point, inputs)
    tangent = tangent_about(model, q, point)
    if at == "equilibrium":  # some tangents do not depend on the point, and would look right without one
        there = jnp.all(jnp.isfinite(point))
        tangent = jax.tree.map(lambda part: jnp.where(there, part, jnp.nan), tangent)
    return Scene(tangent, model.stiffness, output_rows, input_rows)


def scene(test: Test, model: Model) -> Scene:
    """What a test sees of a machine."""
    return observe(model, test.q, test.at, test.outputs, test.inputs)


@eqx.filter_jit
def predict_frf(
    scene: Scene, omega: Float[Array, "f"], derivatives: int, decay: Float[Array, ""] | float = 0.0
) -> Complex[Array, "f o i"]:
    """Frequency responses [f, o, i] of a scene at s = j omega + decay; 0 derivatives for receptance, 2 for accelerance.

    M s^2 + C s + K with a real part in s is that of another machine at j omega, with C + 2 decay M for C and
    K + decay C + decay^2 M for K.
    """
    t, outputs = scene.tangent, scene.output_rows
    inputs = outputs if scene.input_rows is None else scene.input_rows
    damping = t.damping + 2.0 * decay * t.mass
    stiffness = t.stiffness + decay * t.damping + decay**2 * t.mass
    h = receptance(t.mass, damping, stiffness, omega, outputs, inputs, scene.support)
    s = jax.lax.complex(jnp.broadcast_to(jnp.asarray(decay, dtype=omega.dtype), omega.shape), omega)
    return h * (s**derivatives)[:, None, None]


@eqx.filter_jit
def predict_modes(test: ModesTest, scene: Scene) -> tuple[Array, Array, Array]:
    """`ModesTest.predict`, compiled."""
    return test.predict(scene)
