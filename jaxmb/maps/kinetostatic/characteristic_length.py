"""Characteristic length of a robot, which makes its dexterity at the best of some postures as large as it can be."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.machine.build import Model
from jaxmb.maps.batches import batch_size, in_batches
from jaxmb.maps.kinetostatic.dexterity import DIRECTIONS, counted_jacobian, dexterity, length_power
from jaxmb.mechanics.kinematics import TOOL, moving_joints

LENGTHS = (1e-3, 1e3)
"""Shortest and longest characteristic length of the search, m."""
CHUNK = 1024
"""Postures that are computed together: more do not fit the cache."""
STEPS = 12
"""Steps of a golden-section search, after which the postures that cannot be the best are left out."""
SHORTEST = 1e-6
"""Width of the bracket of log L at which the search ends: a flat optimum is known to the root of the rounding only."""


def characteristic_length(
    model: Model,
    postures: Float[Array, "p n"] | Float[np.ndarray, "p n"],
    frame: str = TOOL,
    joints: Sequence[str] | None = None,
    directions: Sequence[str] = DIRECTIONS,
) -> float:
    """Length L that makes the best 1/kappa_F among postures as large as it can be, m.

    At one posture log kappa_F is convex in log L (unless the robot has fewer joints than directions), so that a
    golden-section search over `LENGTHS` finds its best length. All postures are searched together, and after every
    `STEPS` steps those that cannot be the best are left out. Where kappa_F falls all the way to an end of `LENGTHS`, no
    length is best, and that end is returned. Where all entries of the Jacobian have the same unit, the length does not
    matter, and 1 m is returned.

    Args:
        model: the machine.
        postures: coordinates of each posture [p, n].
        frame: name of the frame.
        joints: coordinates that count.
        directions: components of the twist that count.

    Raises:
        ValueError: a name is unknown, or all postures are singular.
    """
    rows = np.asarray(postures)
    joints, directions = moving_joints(model, frame, joints), tuple(directions)
    # A length off by a factor changes no condition number by more than that factor to this power.
    steepest = float(np.ptp(length_power(model, frame, joints, directions)))
    ends = np.tile(np.log(LENGTHS) if steepest else np.zeros(2), (len(rows), 1))
    size = batch_size(len(rows), CHUNK)
    while True:
        value, ends = in_batches(lambda q, e: _narrow(model, q, e, frame, joints, directions), size, rows, ends)
        width = ends[:, 1] - ends[:, 0]
        best = int(value.argmax())
        if width[best] < SHORTEST:
            break
        kept = value * np.exp(steepest * width) >= value[best]
        rows, ends = rows[kept], ends[kept]
    length = float(np.exp(ends[best].mean()))
    if not dexterity(model, jnp.asarray(rows[best]), frame, length, joints, directions) > 0.0:
        raise ValueError(f"length: frame '{frame}' is singular at all postures of the map, so there is no best length")
    return next((end for end in LENGTHS if math.isclose(length, end, rel_tol=SHORTEST)), length)


@compiled
def _narrow(
    model: Model,
    postures: Float[Array, "p n"],
    ends: Float[Array, "p 2"],
    frame: str,
    joints: tuple[str, ...],
    directions: tuple[str, ...],
) -> tuple[Float[Array, "p"], Float[Array, "p 2"]]:
    """1/kappa_F inside ends of log L that have become narrower by `STEPS` golden sections, and these ends."""
    golden = (5.0**0.5 - 1.0) / 2.0
    power = length_power(model, frame, joints, directions)[..., None]
    jacobian = jax.vmap(lambda q: counted_jacobian(model, q, frame, joints, directions), out_axes=-1)(postures)

    def value(log_length: Array) -> Array:
        return _inverse_condition_by_gram(jacobian * jnp.exp(log_length * power))

    def inside(low: Array, high: Array) -> tuple[Array, Array]:
        return high - golden * (high - low), low + golden * (high - low)

    def narrow(_: int, found: tuple[Array, ...]) -> tuple[Array, ...]:
        low, high, at_a, at_b = found
        a, b = inside(low, high)
        left = at_a >= at_b
        low, high = jnp.where(left, low, a), jnp.where(left, b, high)
        a, b = inside(low, high)
        new = value(jnp.where(left, a, b))  # the other one is already known
        return low, high, jnp.where(left, new, at_b), jnp.where(left, at_a, new)

    low, high = ends.T
    at_a, at_b = jax.lax.map(value, jnp.stack(inside(low, high)))
    low, high, at_a, at_b = jax.lax.fori_loop(0, STEPS, narrow, (low, high, at_a, at_b))
    return jnp.maximum(at_a, at_b), jnp.stack([low, high], axis=1)


def _inverse_condition_by_gram(matrices: Float[Array, "d j p"]) -> Float[Array, "p"]:
    """1/kappa_F of many matrices at once, for conditions up to some 1e7, beyond which it is 0 or rounding.

    With a Cholesky factor R of the Gram matrix, sum s^-2 is the sum of the squared entries of R^-1. Written out by
    entries, each operation is on all matrices: forty times as fast as LAPACK's singular values, one matrix at a time.
    """
    m = matrices if len(matrices) <= matrices.shape[1] else matrices.transpose(1, 0, 2)
    m = m / jnp.sqrt(jnp.sum(m**2, axis=(0, 1)))
    size = len(m)
    factor: dict[tuple[int, int], Array] = {}
    scale: list[Array] = []
    for j in range(size):
        for i in range(j, size):
            factor[i, j] = jnp.sum(m[i] * m[j], axis=0) - sum(factor[i, k] * factor[j, k] for k in range(j))
        scale.append(1.0 / jnp.sqrt(factor[j, j]))
        for i in range(j, size):
            factor[i, j] *= scale[j]
    spread = jnp.zeros(())
    for j in range(size):
        column = {j: scale[j]}
        for i in range(j + 1, size):
            column[i] = -scale[i] * sum(factor[i, k] * column[k] for k in range(j, i))
        spread += sum(entry**2 for entry in column.values())
    # The sum is not a number where rounding has left no Cholesky factor.
    return jnp.where(spread >= 1.0, size / jnp.sqrt(spread), 0.0)
