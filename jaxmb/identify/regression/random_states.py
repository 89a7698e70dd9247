"""Random states of a machine over its whole range of motion."""

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
"""Standard deviation of a step of closed chains, rad or relative to the machine's size."""
HALVINGS = 8
"""Largest number of halvings of a step for which the loops do not close."""


class States(NamedTuple):
    """k states of motion: closed postures, rates and accelerations of the independent coordinates, SI units."""

    q: Float[np.ndarray, "k n"]
    qd: Float[np.ndarray, "k m"]
    qdd: Float[np.ndarray, "k m"]


def random_states(model: Model, count: int, seed: int = 0) -> States:
    """Random states within half a turn or the machine's size about the reference posture, rates of 1/s and 1/s^2.

    Coordinates of an open chain are drawn uniformly. A closed chain follows a random walk by `closed_step`; a step that
    fails or leads to another branch is reversed and halved. Locked coordinates are fixed.

    Source: Pyrhonen et al. 2024, eq. 5-6.
    """
    random = np.random.default_rng(seed)
    index = np.array([model.coordinates.index(name) for name in independent_coordinates(model)], dtype=int)
    size = float(np.max(np.abs(np.asarray(frame_poses(model, model.reference))[:, :3, 3]))) or 1.0
    unit = np.array([1.0 if model.revolute[i] else size for i in index]) * ~np.array(model.locked)[index]
    qd, qdd = random.normal(size=(2, count, index.size)) * unit
    reference = np.asarray(model.reference)
    q = np.tile(reference, (count, 1))
    if not model.loops:
        q[:, index] += random.uniform(-math.pi, math.pi, size=(count, index.size)) * unit
        return States(q, qd, qdd)
    posture = reference
    for k in range(count):
        step = STEP * random.normal(size=index.size) * unit
        for _ in range(HALVINGS):
            target = posture[index] + step
            if np.all(np.abs(target - reference[index]) <= math.pi * unit):
                closed, gap = map(np.asarray, closed_step(model, jnp.asarray(posture), jnp.asarray(target)))
                if gap <= CLOSED:
                    posture = closed
                    break
            step = -0.5 * step
        q[k] = posture
    return States(q, qd, qdd)
