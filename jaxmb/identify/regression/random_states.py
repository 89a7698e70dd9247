"""States of a machine spread over its whole space of motions."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxmb.machine.build import Model
from jaxmb.mechanics.kinematics import frame_poses
from jaxmb.mechanics.loop_path import closed_step
from jaxmb.mechanics.loops import independent_coordinates
from jaxmb.mechanics.postures import CLOSED

STEP = 0.3
"""Standard deviation of a step of closed chains, rad, or in parts of the machine's size."""
HALVINGS = 8
"""How often a step is shortened that the loops cannot follow."""


class States(NamedTuple):
    """k states of motion: postures whose loops are closed, rates and accelerations of the independent coordinates."""

    q: Float[np.ndarray, "k n"]
    qd: Float[np.ndarray, "k m"]
    qdd: Float[np.ndarray, "k m"]


def random_states(model: Model, count: int, seed: int = 0) -> States:
    """Random states, half a turn or the machine's size about the reference posture, rates of 1/s and 1/s^2 of these.

    Coordinates of an open chain are drawn. A closed chain walks from posture to posture by `closed_step`;
    where that leads to another branch or nowhere, the step is taken back, turned round and halved.
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
                closed, left = map(np.asarray, closed_step(model, jnp.asarray(place), jnp.asarray(place[moved] + step)))
                if left <= CLOSED:
                    place = closed
                    break
            step = -0.5 * step
        q[k] = place
    return States(q, qd, qdd)
