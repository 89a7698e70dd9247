"""Compliance compensation: joint targets with which a loaded frame reaches its unloaded pose."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.machine.build import Model
from jaxmb.mechanics.compliance import elastic_deflection
from jaxmb.mechanics.kinematics import check_coordinates, frame_index, frame_jacobian, frame_pose, node_poses, whole
from jaxmb.response.static import check_wrench
from jaxmb.spatial import rotation_vector

MOST_STEPS = 20


@compiled
def loaded_pose(
    model: Model, q: Float[Array, "n"], frame: str, wrench: Float[Array, "6"], load_frame: str | None = None
) -> Float[Array, "4 4"]:
    """Pose of a frame of a machine whose drives hold q, under a load.

    Args:
        model: the machine.
        q: targets of the drives [n], rad or m.
        frame: name of the frame.
        wrench: force [N] then moment [Nm], ground axes [6].
        load_frame: frame at whose origin it acts; by default the frame itself.

    Returns:
        T [4, 4] in the ground frame, NaN without an equilibrium.
    """
    check_coordinates(model, q=q)
    check_wrench(wrench)
    index = frame_index(model, frame)
    e = elastic_deflection(model, q, frame if load_frame is None else load_frame, wrench)
    poses = node_poses(model, whole(model, q) + e)
    return poses[model.frame_node[index]] @ model.frame_offset[index]


@compiled
def corrected_target(
    model: Model, q: Float[Array, "n"], frame: str, wrench: Float[Array, "6"], load_frame: str | None = None
) -> Float[Array, "n"]:
    """Targets of the drives with which the loaded frame has the pose of the unloaded machine at q.

    Newton steps q_c <- q_c + J^+ d, d the twist from the loaded pose to the target pose; use `vmap` for off-line
    compensation of a trajectory.

    Args:
        model: the machine, its stiffness identified.
        q: targets without compensation [n], rad or m.
        frame: the tool.
        wrench: process load [6], N and Nm, ground axes.
        load_frame: frame at whose origin it acts; by default the tool.

    Returns:
        q_c [n]; NaN where the pose cannot be reached under the load.

    Source: Klimchik et al. 2013, "Compliance error compensation technique for parallel robots composed of non-perfect
    serial chains".
    """
    target_pose = frame_pose(model, q, frame)

    def error(target: Array) -> Array:
        current = loaded_pose(model, target, frame, wrench, load_frame)
        rotation = rotation_vector(target_pose[:3, :3] @ current[:3, :3].T)
        return jnp.concatenate([target_pose[:3, 3] - current[:3, 3], rotation])

    def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        target, _, count = state
        change = jnp.linalg.pinv(frame_jacobian(model, target, frame), rtol=1e-9) @ error(target)
        return target + change, jnp.max(jnp.abs(change)), count + 1

    def not_converged(state: tuple[Array, Array, Array]) -> Array:
        return (state[1] > 1e-13) & (state[2] < MOST_STEPS)

    target, _, _ = jax.lax.while_loop(not_converged, step, (q, jnp.asarray(jnp.inf, q.dtype), jnp.asarray(0)))
    return jnp.where(jnp.max(jnp.abs(error(target))) <= 1e-9, target, jnp.nan)
