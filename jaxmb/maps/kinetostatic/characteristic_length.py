"""Characteristic length of a robot, which maximises its dexterity over postures."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.machine.build import Model
from jaxmb.maps.batches import batch_size, in_batches
from jaxmb.maps.kinetostatic.dexterity import DIRECTIONS, dexterity, length_power, selected_jacobian
from jaxmb.mechanics.kinematics import TOOL, joints_moving_frame

LENGTHS = (1e-3, 1e3)
"""Shortest and longest characteristic length of the search, m."""
CHUNK = 1024
"""Postures per batch: more do not fit the cache."""
STEPS = 12
"""Steps of the golden-section search between two eliminations of postures that cannot be optimal."""
SHORTEST = 1e-6
"""Final width of the bracket of log L: rounding determines a flat optimum to its square root only."""


def characteristic_length(
    model: Model,
    postures: Float[Array, "p n"] | Float[np.ndarray, "p n"],
    frame: str = TOOL,
    joints: Sequence[str] | None = None,
    directions: Sequence[str] = DIRECTIONS,
) -> float:
    """Length L [m] that maximises the largest 1/kappa_F over the postures.

    At one posture log kappa_F is convex in log L (unless the robot has fewer joints than directions), so that a
    golden-section search over `LENGTHS` finds the optimum. All postures are searched together; every `STEPS` steps
    those that cannot be optimal are eliminated. If kappa_F decreases up to an end of `LENGTHS`, there is no optimum and
    that end is returned. If all entries of the Jacobian have the same unit, L has no effect and 1 m is returned.

    Args:
        model: the machine.
        postures: coordinates of each posture [p, n], rad or m.
        frame: name of the frame.
        joints: coordinates in the Jacobian; default: all that move the frame.
        directions: components of the twist in the Jacobian.

    Raises:
        ValueError: a name is unknown, or all postures are singular.
    """
    rows = np.asarray(postures)
    joints, directions = joints_moving_frame(model, frame, joints), tuple(directions)
    # A factor on the length changes a condition number at most by the factor to this power.
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
        raise ValueError(
            f"length: frame '{frame}' is singular at all postures of the map, no characteristic length exists"
        )
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
    """Largest 1/kappa_F in the brackets of log L after `STEPS` golden sections, and the new brackets."""
    golden = (5.0**0.5 - 1.0) / 2.0
    power = length_power(model, frame, joints, directions)[..., None]
    jacobian = jax.vmap(lambda q: selected_jacobian(model, q, frame, joints, directions), out_axes=-1)(postures)

    def value(log_length: Array) -> Array:
        return _inverse_condition_by_gram(jacobian * jnp.exp(log_length * power))

    def inside(low: Array, high: Array) -> tuple[Array, Array]:
        return high - golden * (high - low), low + golden * (high - low)

    def narrow(_: int, found: tuple[Array, ...]) -> tuple[Array, ...]:
        low, high, at_a, at_b = found
        a, b = inside(low, high)
        lower = at_a >= at_b
        low, high = jnp.where(lower, low, a), jnp.where(lower, b, high)
        a, b = inside(low, high)
        new = value(jnp.where(lower, a, b))  # the other value is reused
        return low, high, jnp.where(lower, new, at_b), jnp.where(lower, at_a, new)

    low, high = ends.T
    at_a, at_b = jax.lax.map(value, jnp.stack(inside(low, high)))
    low, high, at_a, at_b = jax.lax.fori_loop(0, STEPS, narrow, (low, high, at_a, at_b))
    return jnp.maximum(at_a, at_b), jnp.stack([low, high], axis=1)


def _inverse_condition_by_gram(matrices: Float[Array, "d j p"]) -> Float[Array, "p"]:
    """1/kappa_F of a batch of matrices, for condition numbers up to about 1e7; beyond, it is 0 or rounding.

    With the Cholesky factor R of the Gram matrix, sum s^-2 is the sum of the squared entries of R^-1. Written by
    entries, each operation is vectorised over the batch: forty times as fast as LAPACK's singular values.
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
    inverse_squares = jnp.zeros(())
    for j in range(size):
        column = {j: scale[j]}
        for i in range(j + 1, size):
            column[i] = -scale[i] * sum(factor[i, k] * column[k] for k in range(j, i))
        inverse_squares += sum(entry**2 for entry in column.values())
    # The sum is NaN if rounding makes the Gram matrix indefinite.
    return jnp.where(inverse_squares >= 1.0, size / jnp.sqrt(inverse_squares), 0.0)
