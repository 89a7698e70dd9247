"""What accelerometers record when a machine is hit with a hammer, in the time domain.

The springs may soften with amplitude, as the joints of real robots do; the rest of the machine is linear.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.linalg import eigenpairs
from jaxmb.mechanics.tangent import Tangent
from jaxmb.response.modal import first_order

STEPS_PER_PERIOD = 16
"""Steps of the integration in a period of the fastest mode, at least: the error of its phase is then below 2e-4."""
MOST_STEPS = 2_000_000


class Softening(eqx.Module):
    """Springs that lose stiffness with amplitude: effort k q (1 - loss |q| / (|q| + half)).

    A smooth law with two numbers: k at small amplitude, k (1 - loss) at large, halfway at the deflection `half`.
    """

    loss: Float[Array, ""]
    half: Float[Array, ""]
    """rad or m."""

    def effort(self, stiffness: Float[Array, "n"], q: Float[Array, "n"]) -> Float[Array, "n"]:
        """What the spring's effort differs from k q by."""
        size = jnp.abs(q)
        return -stiffness * q * self.loss * size / (size + self.half)


def half_sine(
    time_s: Float[Array, "t"], impulse: Float[Array, ""], start_s: float, length_s: float
) -> Float[Array, "t"]:
    """Force [N] of a hit: half a period of a sine that holds an impulse [N s]."""
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
    """Force [N] and accelerations at the outputs [m/s^2] that are recorded of hits, each on a machine at rest.

    M q'' + C q' + K q + s(q) = b F(t), s the effort that softening takes from the springs; classical Runge-Kutta steps.

    Args:
        tangent: of the machine, about its posture.
        stiffness: of each coordinate's own spring [n], which softens.
        softening: the law of that.
        output_rows: Jacobian of the sensors [o, n].
        input_rows: Jacobian of each hit's point along its direction [h, n].
        impulse: of each hit [h], N s.
        start_s: when the hammer touches.
        length_s: how long it touches.
        sample_rate_hz: of the records; there is no filter, so it must leave room above the band of the hits.
        samples: of each record.

    Raises:
        ValueError: a record would take more than `MOST_STEPS` steps.
    """
    if tangent.structural is not None:
        raise NotImplementedError("structural damping has no motion in time: records need viscous damping")
    if tangent.fractional is not None:
        raise NotImplementedError("fractional damping has a memory: records need viscous damping")
    fastest = jnp.abs(eigenpairs(first_order(tangent))[0]).max()
    between = max(1, math.ceil(float(fastest) / (2 * math.pi) * STEPS_PER_PERIOD / sample_rate_hz))
    if samples * between > MOST_STEPS:
        raise ValueError(
            f"a record of {samples} samples takes {samples * between} steps, expected at most {MOST_STEPS}"
        )
    hit = (start_s, length_s, sample_rate_hz)
    return _records(tangent, stiffness, softening, output_rows, input_rows, impulse, hit, samples, between)


@compiled
def _records(
    tangent: Tangent, stiffness: Array, softening: Softening, output_rows: Array, input_rows: Array, impulse: Array,
    hit: tuple[float, float, float], samples: int, between: int,
) -> tuple[Array, Array]:  # fmt: skip
    each = lambda row, strength: _record(  # noqa: E731
        tangent, stiffness, softening, output_rows, row, strength, hit, samples, between
    )
    return jax.vmap(each)(input_rows, impulse)


def _record(
    tangent: Tangent, stiffness: Array, softening: Softening, output_rows: Array, input_row: Array, impulse: Array,
    hit: tuple[float, float, float], samples: int, between: int,
) -> tuple[Array, Array]:  # fmt: skip
    start_s, length_s, sample_rate_hz = hit
    inverse = jnp.linalg.inv(tangent.mass)
    step = 1.0 / (sample_rate_hz * between)

    def acceleration(time: Array, q: Array, qd: Array) -> Array:
        force = half_sine(time, impulse, start_s, length_s) * input_row
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
        seen = output_rows @ acceleration(time, *state)
        after, _ = jax.lax.scan(advance, state, time + step * jnp.arange(between))
        return after, (half_sine(time, impulse, start_s, length_s), seen)

    rest = jnp.zeros(stiffness.size)
    _, (force, response) = jax.lax.scan(sample, (rest, rest), jnp.arange(samples, dtype=float))
    return force, response
