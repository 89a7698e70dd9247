"""An FRF test: frequency responses measured at one posture."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from jaxmb.identify.experiments.motion import Scene
from jaxmb.linalg import receptance
from jaxmb.mechanics.tangent import LinearizeAt
from jaxmb.response.frf import Point

Phase = Literal["safe", "principal"]


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
