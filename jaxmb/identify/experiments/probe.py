"""An FRF test that could be made at any posture."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmb.mechanics.tangent import LinearizeAt
from jaxmb.response.frf_kind import Point


class Probe(eqx.Module):
    """An FRF test that could be made at any posture."""

    points: tuple[Point, ...] = eqx.field(static=True)
    """All points that outputs and inputs are taken from: alternatives of one size are one program."""
    outputs: Int[Array, "o"]
    inputs: Int[Array, "i"] | None
    """None where they are the outputs."""
    derivatives: int = eqx.field(static=True)
    at: LinearizeAt = eqx.field(static=True)
    omega: Float[Array, "f"]
    decay: Float[Array, ""]
    noise_std: Float[Array, ""]
    """Standard deviation of log H, real and imaginary part each."""

    @property
    def ends(self) -> tuple[tuple[Point, ...], tuple[Point, ...]]:
        """Outputs and inputs by name."""
        outputs = tuple(self.points[i] for i in np.asarray(self.outputs))
        return outputs, outputs if self.inputs is None else tuple(self.points[i] for i in np.asarray(self.inputs))

    @property
    def band_hz(self) -> tuple[float, float]:
        """First and last line."""
        return float(self.omega[0]) / (2 * np.pi), float(self.omega[-1]) / (2 * np.pi)

    def changed(
        self,
        omega: Float[np.ndarray, "f"] | None = None,
        ends: tuple[Sequence[Point], Sequence[Point]] | None = None,
        points: Sequence[Point] | None = None,
    ) -> "Probe":
        """The probe with other lines and points where such are given.

        Args:
            omega: angular frequencies, rad/s.
            ends: outputs and inputs.
            points: more points than those, so that probes of other ends share a program.
        """
        outputs, inputs = self.ends if ends is None else (tuple(ends[0]), tuple(ends[1]))
        known = tuple(dict.fromkeys([*(points or ()), *outputs, *inputs]))
        return Probe(
            points=known,
            outputs=jnp.asarray([known.index(p) for p in outputs]),
            inputs=None if inputs == outputs else jnp.asarray([known.index(p) for p in inputs]),
            derivatives=self.derivatives,
            at=self.at,
            omega=self.omega if omega is None else jnp.asarray(omega),
            decay=self.decay,
            noise_std=self.noise_std,
        )
