"""What was done to a machine and what was measured: each test predicts its measurement and compares.

A test is data at one posture. It sees the machine as a `Scene` (its small motions there, and the sensors' Jacobians),
and returns a residual in units of its noise, so that tests of all kinds add up to one cost.
"""

from typing import Literal, NamedTuple

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
SMALLEST = 1e-300

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


class PairedModes(NamedTuple):
    """Of the predicted mode paired with each measured one, what a modal test compares."""

    frequency_hz: Float[Array, "m"]
    """Damped."""
    damping_ratio: Float[Array, "m"]
    share: Float[Array, "m"]
    """Of the coordinates that the measurement names, in its strain energy."""
    mac: Float[Array, "m"]
    """Of its shape at the sensors with the measured one."""
    errors: Float[Array, "m r"]
    """Of all that was measured, in units of the noise."""


class ModesTest(eqx.Module):
    """Modes measured at one posture: frequencies, damping ratios, what moves in each, and shapes at sensors."""

    name: str = eqx.field(static=True)
    q: Float[Array, "n"]
    at: LinearizeAt = eqx.field(static=True)
    frequency_hz: Float[Array, "m"]
    """Damped frequencies, as modal analysis gives them (eq. 20)."""
    damping_ratio: Float[Array, "m"]
    content: Bool[Array, "m n"]
    """Coordinates that dominate each mode; all False where that is not known."""
    shape: Complex[Array, "m o"]
    """What each output moves in each mode, the largest component 1."""
    frequency_std: Float[Array, "m"]
    damping_std: Float[Array, "m"]
    shape_std: Float[Array, ""]
    """Of each component, real and imaginary part."""
    content_share: Float[Array, ""]
    """Share of a mode's strain energy that its named coordinates hold at least."""
    content_std: Float[Array, ""]

    outputs: tuple[Point, ...] = eqx.field(static=True, default=())
    """Sensors of the shapes."""
    inputs: tuple[Point, ...] = eqx.field(static=True, default=())
    """The same: no force is needed."""

    def predict(self, scene: Scene) -> PairedModes:
        """The predicted mode that stands for each measured one.

        Of all one-to-one pairings the one with the smallest sum of squared errors counts, of frequencies, damping,
        content and shapes together, so that the cost stays continuous where two predicted modes change places.
        """
        eigenvalue, shape, oscillates = oscillating_modes(scene.tangent)
        frequency = eigenvalue.imag / (2 * jnp.pi)
        damping = -eigenvalue.real / jnp.abs(eigenvalue)
        shares = self.content.astype(float) @ energy_shares(shape, scene.stiffness)
        mac, apart = self._compared_shapes(scene.output_rows @ shape)
        missing = jnp.where(jnp.any(self.content, axis=1)[:, None], jnp.maximum(self.content_share - shares, 0.0), 0.0)
        errors = jnp.concatenate([
            ((frequency[None, :] - self.frequency_hz[:, None]) / self.frequency_std[:, None])[..., None],
            ((damping[None, :] - self.damping_ratio[:, None]) / self.damping_std[:, None])[..., None],
            (missing / self.content_std)[..., None],
            apart / self.shape_std,
        ], axis=-1)  # fmt: skip
        squares = jnp.where(oscillates, jnp.sum(errors**2, axis=-1), UNPAIRABLE)
        rows, columns = hungarian_algorithm(jax.lax.stop_gradient(jnp.minimum(squares, UNPAIRABLE)))
        pairs = jnp.zeros(self.frequency_hz.size, dtype=columns.dtype).at[rows].set(columns)
        shares, mac = (jnp.take_along_axis(x, pairs[:, None], axis=1)[:, 0] for x in (shares, mac))
        errors = jnp.take_along_axis(errors, pairs[:, None, None], axis=1)[:, 0]
        return PairedModes(frequency[pairs], damping[pairs], shares, mac, errors)

    def _compared_shapes(self, predicted: Complex[Array, "o n"]) -> tuple[Float[Array, "m n"], Float[Array, "m n r"]]:
        """MAC of each measured with each predicted shape, and what the measured one keeps beside the predicted one.

        a - b (b^H a) / (b^H b), real then imaginary parts: its square is |a|^2 (1 - MAC), whatever the scale of b.
        """
        if not self.outputs:
            pairs = (self.frequency_hz.size, predicted.shape[1])
            return jnp.ones(pairs), jnp.zeros((*pairs, 0))
        size = jnp.maximum(jnp.sum(jnp.abs(predicted) ** 2, axis=0), SMALLEST)
        along = (self.shape @ jnp.conj(predicted)) / size
        apart = self.shape[:, None, :] - along[..., None] * predicted.T[None, :, :]
        mac = jnp.abs(along) ** 2 * size / jnp.sum(jnp.abs(self.shape) ** 2, axis=1)[:, None]
        return mac, jnp.concatenate([apart.real, apart.imag], axis=-1)

    def residual(self, scene: Scene) -> Float[Array, "r"]:
        """Errors of all frequencies, then of all damping ratios, content, and shapes, in units of their noise."""
        return self.predict(scene).errors.T.ravel()

    @property
    def rows(self) -> int:
        """Number of residuals."""
        return (3 + 2 * len(self.outputs)) * self.frequency_hz.size

    def row_weights(self) -> Float[Array, "r"]:
        """Variance of every residual under the test's own noise: 1."""
        return jnp.ones(self.rows)


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
def predict_modes(test: ModesTest, scene: Scene) -> PairedModes:
    """`ModesTest.predict`, compiled."""
    return test.predict(scene)
