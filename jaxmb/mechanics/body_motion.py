"""How the bodies of a rigid machine move with its coordinates, along the twists of the joints."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.machine.build import Model
from jaxmb.mechanics.kinematics import node_poses, passed_nodes
from jaxmb.spatial import skew


def body_motion(
    model: Model, q: Float[Array, "n"], qd: Float[Array, "n"], qdd: Float[Array, "n"]
) -> tuple[Float[Array, "b 3 4 n"], Float[Array, "b 3 4"]]:
    """dT_b / dq_j and T_b'', without the rows of zeros, of the pose T_b of every body and payload of `model.masses`.

    A coordinate moves all behind it by a twist X_j = (v_j, w_j), constant in its own frame: dT_b / dq_j = X_j T_b. So
    T_b' = V_b T_b, V_b = sum_j q_j' X_j over the joints on the way to b, and T_b'' = (V_b' + V_b^2) T_b with
    X_j' = V_j X_j - X_j V_j = (W_j x v_j + U_j x w_j, W_j x w_j), V_j = (U_j, W_j) that of the joint. This takes less
    arithmetic than derivatives of the product of all steps.

    Args:
        model: the machine; its beams are rigid.
        q: coordinates [n], rad or m.
        qd: their velocities [n].
        qdd: their accelerations [n].

    Source: Murray, Li and Sastry 1994, "A mathematical introduction to robotic manipulation", section 3.2.
    """
    n, at = len(model.coordinates), np.array(model.mass_node, dtype=int)
    nodes, passed = node_poses(model, q), jnp.asarray(passed_nodes(model.parent)[:, :n])
    poses, joints, of_body = nodes[at] @ model.mass_offset, nodes[:n], passed[at]
    axis = jnp.einsum("jxy,jy->jx", joints[:, :3, :3], model.axis)
    turns = jnp.array(model.revolute, dtype=bool)[:, None]
    w = jnp.where(turns, axis, 0.0)
    v = jnp.where(turns, jnp.cross(joints[:, :3, 3], axis), axis)
    W, U = (passed[:n] @ (part * qd[:, None]) for part in (w, v))
    w_change = w * qdd[:, None] + jnp.cross(W, w) * qd[:, None]
    v_change = v * qdd[:, None] + (jnp.cross(W, v) + jnp.cross(U, w)) * qd[:, None]
    velocity = _twist_matrices(of_body @ (w * qd[:, None]), of_body @ (v * qd[:, None]))
    change = _twist_matrices(of_body @ w_change, of_body @ v_change)
    acceleration = (change + velocity[:, :, :3] @ velocity) @ poses
    moved = jnp.einsum("jxy,byz->bxzj", _twist_matrices(w, v), poses)
    return of_body[:, None, None, :] * moved, acceleration


def _twist_matrices(w: Float[Array, "k 3"], v: Float[Array, "k 3"]) -> Float[Array, "k 3 4"]:
    return jnp.concatenate([jax.vmap(skew)(w), v[:, :, None]], axis=2)
