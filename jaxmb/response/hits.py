"""Simulated time records of hammer tests.

Springs may soften with amplitude, as in joints of real robots; the rest of the machine is linear.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.linalg.responses import eigenpairs
from jaxmb.mechanics.tangent import Tangent
from jaxmb.response.modal import first_order

STEPS_PER_PERIOD = 16
"""Least number of integration steps per period of the fastest mode, for a phase error below 2e-4."""
MOST_STEPS = 2_000_000


class Softening(eqx.Module):
    """Softening springs with the effort k q (1 - loss |q| / (|q| + half)).

    The secant stiffness is k at small amplitude and k (1 - loss) at large amplitude, halfway at the deflection `half`.
    """

    loss: Float[Array, ""]
    half: Float[Array, ""]
    """rad or m."""

    def effort(self, stiffness: Float[Array, "n"], q: Float[Array, "n"]) -> Float[Array, "n"]:
        """Difference of the spring's effort from k q, Nm or N."""
        size = jnp.abs(q)
        return -stiffness * q * self.loss * size / (size + self.half)


def half_sine(
    time_s: Float[Array, "t"], impulse: Float[Array, ""], start_s: float, length_s: float
) -> Float[Array, "t"]:
    """Force [N] of a hit: half a period of a sine with an impulse [N s]."""
    phase = (time_s - start_s) / length_s
    inside = (phase >= 0.0) & (phase <= 1.0)
    return jnp.where(inside, impulse * jnp.pi / (2.0 * length_s) * jnp.sin(jnp.pi * phase), 0.0)


def record_hits(
    tangent: Tangent,
    stiffness: Float[Array, "n"],
    softening: Softening,
    output_rows: Float[Array, "o n"],
    input_rows: Float[Array, "h n"],
    impulse: Float[Array, "h"],
    start_s: float,
    length_s: float,
    sample_rate_hz: float,
    samples: int,
) -> tuple[Float[Array, "h t"], Float[Array, "h t o"]]:
    """Records of force [N] and of accelerations at the outputs [m/s^2], each hit on a machine at rest.

    M q'' + C q' + K q + s(q) = b F(t), s the softening effort; classical Runge-Kutta steps.

    Args:
        tangent: of the machine, about its posture.
        stiffness: of each coordinate's own spring [n], which softens.
        softening: softening law.
        output_rows: Jacobian of the sensors [o, n].
        input_rows: Jacobian of each hit's point along its direction [h, n].
        impulse: of each hit [h], N s.
        start_s: start of contact, s.
        length_s: duration of contact, s.
        sample_rate_hz: of the records; without an anti-aliasing filter, so well above the band of the hits.
        samples: of each record.

    Raises:
        ValueError: a record would take more than `MOST_STEPS` steps.
        NotImplementedError: the machine has structural or fractional damping.
    """
    if tangent.structural is not None or tangent.fractional is not None:
        law = "fractional" if tangent.structural is None else "structural"
        raise NotImplementedError(f"{law} damping is not simulated in time: records need viscous damping")
    fastest = jnp.abs(eigenpairs(first_order(tangent))[0]).max()
    substeps = max(1, math.ceil(float(fastest) / (2 * math.pi) * STEPS_PER_PERIOD / sample_rate_hz))
    if samples * substeps > MOST_STEPS:
        raise ValueError(
            f"a record of {samples} samples takes {samples * substeps} steps, expected at most {MOST_STEPS}"
        )
    return _records(
        tangent, stiffness, softening, output_rows, input_rows, impulse, (start_s, length_s, sample_rate_hz), samples,
        substeps,
    )  # fmt: skip


@compiled
def _records(
    tangent: Tangent, stiffness: Array, softening: Softening, output_rows: Array, input_rows: Array, impulse: Array,
    hit: tuple[float, float, float], samples: int, substeps: int,
) -> tuple[Array, Array]:  # fmt: skip
    start_s, length_s, sample_rate_hz = hit
    inverse = jnp.linalg.inv(tangent.mass)
    step = 1.0 / (sample_rate_hz * substeps)

    def record(input_row: Array, strength: Array) -> tuple[Array, Array]:
        def acceleration(time: Array, q: Array, qd: Array) -> Array:
            force = half_sine(time, strength, start_s, length_s) * input_row
            return inverse @ (force - tangent.damping @ qd - tangent.stiffness @ q - softening.effort(stiffness, q))

        def advance(state: tuple[Array, Array], time: Array) -> tuple[tuple[Array, Array], None]:
            q, qd = state
            v1, a1 = qd, acceleration(time, q, qd)
            v2, a2 = qd + 0.5 * step * a1, acceleration(time + 0.5 * step, q + 0.5 * step * v1, qd + 0.5 * step * a1)
            v3, a3 = qd + 0.5 * step * a2, acceleration(time + 0.5 * step, q + 0.5 * step * v2, qd + 0.5 * step * a2)
            v4, a4 = qd + step * a3, acceleration(time + step, q + step * v3, qd + step * a3)
            return (q + step / 6.0 * (v1 + 2 * v2 + 2 * v3 + v4), qd + step / 6.0 * (a1 + 2 * a2 + 2 * a3 + a4)), None

        def sample(state: tuple[Array, Array], number: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
            time = number / sample_rate_hz
            next_state, _ = jax.lax.scan(advance, state, time + step * jnp.arange(substeps))
            return next_state, (half_sine(time, strength, start_s, length_s), output_rows @ acceleration(time, *state))

        rest = jnp.zeros(stiffness.size)
        _, (force, response) = jax.lax.scan(sample, (rest, rest), jnp.arange(samples, dtype=float))
        return force, response

    return jax.vmap(record)(input_rows, impulse)
