"""Coordinates that bring a frame to a pose, by damped Gauss-Newton, one solution for each start."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmb.machine.build import Model
from jaxmb.mechanics.compliance import elastic_jacobian
from jaxmb.mechanics.kinematics import frame_index, node_poses
from jaxmb.spatial import rotation_vector

LEAST_DAMPING = 1e-12
LARGEST_STEP = 0.7
"""Of a coordinate in one step, rad or m: the Jacobian means nothing farther away."""


def inverse_kinematics(
    model: Model,
    pose: Float[Array, "4 4"],
    frame: str,
    start: Float[Array, "n"],
    joints: Sequence[str] | None = None,
    steps: int = 40,
) -> tuple[Float[Array, "n"], Float[Array, ""]]:
    """Coordinates at which a frame has a pose, near a start, and how far it is from it.

    q <- q + (J^T J + l I)^-1 J^T e with the error e of place and rotation vector and the damping l = |e|^2 / 2, which
    vanishes at the solution, so that the last steps are Gauss-Newton's, and keeps the step finite at singular postures.

    Args:
        model: the machine.
        pose: where the frame should be, T_0frame.
        frame: name of the frame.
        start: coordinates to start from [n], rad or m. The others than `joints` keep their values.
        joints: coordinates that may move; all where not given.
        steps: number of steps, the same for every start, so that it can be batched.

    Returns:
        q [n], not brought into any range of angles, and the distance of its pose from the wanted one: the larger of the
        distance [m] and the angle [rad]. Where it is not small, no solution was found from that start.

    Source: Sugihara 2011, "Solvability-unconcerned inverse kinematics by the Levenberg-Marquardt method".
    """
    moving = jnp.array([joints is None or name in joints for name in model.coordinates])
    node, offset = model.frame_node[frame_index(model, frame)], model.frame_offset[frame_index(model, frame)]

    def error(q: Array) -> Array:
        there = node_poses(model, q)[node] @ offset
        return jnp.concatenate([pose[:3, 3] - there[:3, 3], rotation_vector(pose[:3, :3] @ there[:3, :3].T)])

    def step(_: int, q: Array) -> Array:
        e = error(q)
        jacobian = jnp.where(moving, elastic_jacobian(model, q, frame)[:, : q.shape[0]], 0.0)
        normal = jacobian.T @ jacobian + (0.5 * e @ e + LEAST_DAMPING) * jnp.eye(q.shape[0])
        change = jnp.linalg.solve(normal, jacobian.T @ e)
        return q + change * jnp.minimum(1.0, LARGEST_STEP / jnp.maximum(jnp.max(jnp.abs(change)), 1e-300))

    q = jax.lax.fori_loop(0, steps, step, start)
    there = node_poses(model, q)[node] @ offset
    distance = jnp.linalg.norm(pose[:3, 3] - there[:3, 3])
    # A rotation by theta changes the matrix by sqrt(8) sin(theta / 2), which unlike its vector shows a half turn too.
    apart = jnp.linalg.norm(pose[:3, :3] - there[:3, :3]) / 8.0**0.5
    return q, jnp.maximum(distance, 2.0 * jnp.arcsin(jnp.minimum(apart, 1.0)))


def inverse_kinematics_path(
    model: Model,
    poses: Float[Array, "k 4 4"],
    frame: str,
    start: Float[Array, "n"],
    joints: Sequence[str] | None = None,
    steps: int = 10,
) -> tuple[Float[Array, "k n"], Float[Array, "k"]]:
    """Coordinates along a path of poses, each solved from the one before, so that the branch is kept.

    Args:
        model: the machine.
        poses: poses of the frame, T_0frame, near enough to each other.
        frame: name of the frame.
        start: coordinates near the first pose's [n].
        joints: coordinates that may move; all where not given.
        steps: number of steps at each pose.

    Returns:
        q [k, n] and the distances of `inverse_kinematics` [k].
    """

    def follow(q: Array, pose: Array) -> tuple[Array, tuple[Array, Array]]:
        found, distance = inverse_kinematics(model, pose, frame, q, joints, steps)
        return found, (found, distance)

    return jax.lax.scan(follow, start, poses)[1]
