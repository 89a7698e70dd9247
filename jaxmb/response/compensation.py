"""Joint targets at which a loaded machine stands where an unloaded one should."""

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
        load_frame: where it acts; the frame itself where not given.

    Returns:
        T [4, 4] in the ground frame, NaN where there is no equilibrium.
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
    """Targets of the drives with which the loaded frame stands where it would stand at q unloaded.

    Newton steps q_c <- q_c + J^+ d, d the twist from the loaded pose to the wanted one; off-line compensation of a
    trajectory is its `vmap`.

    Args:
        model: the machine, its stiffness identified.
        q: targets without compensation [n], rad or m.
        frame: the tool.
        wrench: the load of the process [6], ground axes.
        load_frame: where it acts; the tool where not given.

    Returns:
        q_c [n]; NaN where the pose cannot be reached under the load.

    Source: Klimchik et al. 2013, "Compliance error compensation technique for parallel robots composed of non-perfect
    serial chains".
    """
    wanted = frame_pose(model, q, frame)

    def error(target: Array) -> Array:
        there = loaded_pose(model, target, frame, wrench, load_frame)
        turn = rotation_vector(wanted[:3, :3] @ there[:3, :3].T)
        return jnp.concatenate([wanted[:3, 3] - there[:3, 3], turn])

    def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        target, _, count = state
        change = jnp.linalg.pinv(frame_jacobian(model, target, frame), rtol=1e-9) @ error(target)
        return target + change, jnp.max(jnp.abs(change)), count + 1

    def going(state: tuple[Array, Array, Array]) -> Array:
        return (state[1] > 1e-13) & (state[2] < MOST_STEPS)

    target, _, _ = jax.lax.while_loop(going, step, (q, jnp.asarray(jnp.inf, q.dtype), jnp.asarray(0)))
    return jnp.where(jnp.max(jnp.abs(error(target))) <= 1e-9, target, jnp.nan)
