"""States of a machine spread over its whole space of motions."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.machine.build import Model
from jaxmb.mechanics.kinematics import frame_poses
from jaxmb.mechanics.loops import independent_coordinates, loop_gaps, loop_motion
from jaxmb.mechanics.postures import CLOSED, MOST_BESIDE

STEP = 0.3
"""Standard deviation of a step of closed chains, rad, or in parts of the machine's size."""
NEWTON_STEPS = 8
HALVINGS = 8
"""How often a step is shortened that the loops cannot follow."""


class States(NamedTuple):
    """k states of motion: postures whose loops are closed, rates and accelerations of the independent coordinates."""

    q: Float[np.ndarray, "k n"]
    qd: Float[np.ndarray, "k m"]
    qdd: Float[np.ndarray, "k m"]


def random_states(model: Model, count: int, seed: int = 0) -> States:
    """Random states, half a turn or the machine's size about the reference posture, rates of 1/s and 1/s^2 of these.

    Coordinates of an open chain are drawn. A closed chain walks from posture to posture, q + R dz closed by Newton's
    method; where that leads far beside, to another branch or nowhere, the step is taken back, turned round and halved.
    Locked coordinates stay where they are.

    Source: Pyrhonen et al. 2024, eq. 5-6.
    """
    random = np.random.default_rng(seed)
    moved = np.array([model.coordinates.index(name) for name in independent_coordinates(model)], dtype=int)
    size = float(np.max(np.abs(np.asarray(frame_poses(model, model.reference))[:, :3, 3]))) or 1.0
    unit = np.array([1.0 if model.revolute[i] else size for i in moved]) * ~np.array(model.locked)[moved]
    qd, qdd = random.normal(size=(2, count, moved.size)) * unit
    reference = np.asarray(model.reference)
    q = np.tile(reference, (count, 1))
    if not model.loops:
        q[:, moved] += random.uniform(-math.pi, math.pi, size=(count, moved.size)) * unit
        return States(q, qd, qdd)
    place = reference
    for k in range(count):
        step = STEP * random.normal(size=moved.size) * unit
        for _ in range(HALVINGS):
            if np.all(np.abs(place[moved] + step - reference[moved]) <= math.pi * unit):
                found = _stepped(model, jnp.asarray(place), jnp.asarray(step))
                ahead, closed, left = (np.asarray(part) for part in found)
                beside = np.max(np.abs(closed - ahead))
                if left <= CLOSED and beside <= MOST_BESIDE * np.max(np.abs(ahead - place)) + CLOSED:
                    place = closed
                    break
            step = -0.5 * step
        q[k] = place
    return States(q, qd, qdd)


@compiled
def _stepped(
    model: Model, q: Float[Array, "n"], step: Float[Array, "m"]
) -> tuple[Float[Array, "n"], Float[Array, "n"], Float[Array, ""]]:
    """q + R dz, the posture near it whose loops are closed, and what is still open there, m or rad."""
    ahead = q + loop_motion(model, q, step)[0] @ step
    follow = jnp.array(model.dependent, dtype=int)

    def nearer(_: int, x: Array) -> Array:
        basis, triangle = jnp.linalg.qr(jax.jacfwd(lambda y: loop_gaps(model, y))(x)[:, follow])
        return x.at[follow].add(-jax.scipy.linalg.solve_triangular(triangle, basis.T @ loop_gaps(model, x)))

    closed = jax.lax.fori_loop(0, NEWTON_STEPS, nearer, ahead)
    return ahead, closed, jnp.max(jnp.abs(loop_gaps(model, closed)))
