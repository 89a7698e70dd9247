"""Inverse kinematics by damped Gauss-Newton steps, one solution for each start."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmb.machine.build import Model
from jaxmb.mechanics.compliance import elastic_jacobian
from jaxmb.mechanics.kinematics import frame_index, frame_offsets, node_poses
from jaxmb.spatial import displacement

LEAST_DAMPING = 1e-12
LARGEST_STEP = 0.7
"""Largest change of a coordinate in one step, rad or m, within which the Jacobian is meaningful."""


def inverse_kinematics(
    model: Model,
    pose: Float[Array, "4 4"],
    frame: str,
    start: Float[Array, "n"],
    joints: Sequence[str] | None = None,
    steps: int = 40,
) -> tuple[Float[Array, "n"], Float[Array, ""]]:
    """Coordinates at which a frame has a pose, near a start, and the remaining pose error.

    q <- q + (J^T J + l I)^-1 J^T e with the error e of position and rotation vector and the damping l = |e|^2 / 2,
    which vanishes at the solution, where the steps become Gauss-Newton's, and bounds the step at singular postures.

    Args:
        model: the machine.
        pose: target pose of the frame, T_0frame.
        frame: name of the frame.
        start: initial coordinates [n], rad or m. Coordinates not in `joints` keep their values.
        joints: coordinates that may change; by default all.
        steps: number of steps, the same for every start, so that it can be batched.

    Returns:
        q [n], angles not normalized, and the pose error: the larger of the distance [m] and the angle [rad]. If it is
        not small, no solution was found from this start.

    Source: Sugihara 2011, "Solvability-unconcerned inverse kinematics by the Levenberg-Marquardt method".
    """
    may_move = jnp.array([joints is None or name in joints for name in model.coordinates])
    node, offset = model.frame_node[frame_index(model, frame)], frame_offsets(model)[frame_index(model, frame)]

    def error(q: Array) -> Array:
        return displacement(node_poses(model, q)[node] @ offset, pose)

    def step(_: int, q: Array) -> Array:
        e = error(q)
        jacobian = jnp.where(may_move, elastic_jacobian(model, q, frame)[:, : q.shape[0]], 0.0)
        normal = jacobian.T @ jacobian + (0.5 * e @ e + LEAST_DAMPING) * jnp.eye(q.shape[0])
        change = jnp.linalg.solve(normal, jacobian.T @ e)
        return q + change * jnp.minimum(1.0, LARGEST_STEP / jnp.maximum(jnp.max(jnp.abs(change)), 1e-300))

    q = jax.lax.fori_loop(0, steps, step, start)
    current = node_poses(model, q)[node] @ offset
    distance = jnp.linalg.norm(pose[:3, 3] - current[:3, 3])
    # A rotation by theta changes the matrix by sqrt(8) sin(theta / 2), which is valid up to half a turn.
    sine = jnp.linalg.norm(pose[:3, :3] - current[:3, :3]) / 8.0**0.5
    return q, jnp.maximum(distance, 2.0 * jnp.arcsin(jnp.minimum(sine, 1.0)))


def inverse_kinematics_path(
    model: Model,
    poses: Float[Array, "k 4 4"],
    frame: str,
    start: Float[Array, "n"],
    joints: Sequence[str] | None = None,
    steps: int = 10,
) -> tuple[Float[Array, "k n"], Float[Array, "k"]]:
    """Coordinates along a path of poses, each solved from the previous one, so that the branch is kept.

    Args:
        model: the machine.
        poses: poses of the frame, T_0frame, closely spaced.
        frame: name of the frame.
        start: coordinates near those of the first pose [n].
        joints: coordinates that may change; by default all.
        steps: number of steps at each pose.

    Returns:
        q [k, n] and the pose errors of `inverse_kinematics` [k].
    """

    def follow(q: Array, pose: Array) -> tuple[Array, tuple[Array, Array]]:
        found, distance = inverse_kinematics(model, pose, frame, q, joints, steps)
        return found, (found, distance)

    return jax.lax.scan(follow, start, poses)[1]
