"""Derivatives of body poses of a rigid machine from joint twists, its mass matrix and its gravity stiffness.

Coordinate j rotates its descendants at the rate w_j about its origin o_j, or translates them at the rate s_j. These are
constant in the joint's own frame, so first and second derivatives of poses are products: less arithmetic, and faster to
compile, than automatic differentiation of the kinematic chain.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.machine.build import Model
from jaxmb.mechanics.kinematics import ancestor_matrix, node_poses
from jaxmb.spatial import skew


def body_motion(
    model: Model, q: Float[Array, "n"], qd: Float[Array, "n"], qdd: Float[Array, "n"]
) -> tuple[Float[Array, "b 3 4 n"], Float[Array, "b 3 4"]]:
    """dT_b / dq_j and T_b'', without the rows of zeros, of the pose T_b of every body and payload of `model.masses`.

    A coordinate moves its descendants by a twist X_j = (v_j, w_j), v_j that of the ground's origin. So dT_b / dq_j =
    X_j T_b, T_b' = V_b T_b, V_b = sum_j q_j' X_j over the ancestor joints of b, and T_b'' = (V_b' + V_b^2) T_b with
    X_j' = V_j X_j - X_j V_j = (W_j x v_j + U_j x w_j, W_j x w_j), V_j = (U_j, W_j) that of the joint.

    Args:
        model: the machine; its beams are rigid.
        q: coordinates [n], rad or m.
        qd: their velocities [n].
        qdd: their accelerations [n].

    Source: Murray, Li and Sastry 1994, "A mathematical introduction to robotic manipulation", section 3.2.
    """
    n, body_node = len(model.coordinates), np.array(model.mass_node, dtype=int)
    nodes, is_ancestor = node_poses(model, q), jnp.asarray(ancestor_matrix(model.parent)[:, :n])
    poses, joints, body_ancestors = nodes[body_node] @ model.mass_offset, nodes[:n], is_ancestor[body_node]
    w, axial = _joint_rates(model, joints)
    v = axial + jnp.cross(joints[:, :3, 3], w)
    W, U = (is_ancestor[:n] @ (part * qd[:, None]) for part in (w, v))
    w_change = w * qdd[:, None] + jnp.cross(W, w) * qd[:, None]
    v_change = v * qdd[:, None] + (jnp.cross(W, v) + jnp.cross(U, w)) * qd[:, None]
    velocity = _twist_matrices(body_ancestors @ (w * qd[:, None]), body_ancestors @ (v * qd[:, None]))
    twist_change = _twist_matrices(body_ancestors @ w_change, body_ancestors @ v_change)
    acceleration = (twist_change + velocity[:, :, :3] @ velocity) @ poses
    pose_slopes = jnp.einsum("jxy,byz->bxzj", _twist_matrices(w, v), poses)
    return body_ancestors[:, None, None, :] * pose_slopes, acceleration


class _Momenta(NamedTuple):
    """Velocities and momenta of every body and payload for a unit rate of each coordinate, in ground axes, about the
    origin of its frame."""

    turn: Float[Array, "n 3"]
    """Angular velocity of the descendants of each coordinate."""
    velocity: Float[Array, "b n 3"]
    angular_velocity: Float[Array, "b n 3"]
    momentum: Float[Array, "b n 3"]
    angular_momentum: Float[Array, "b n 3"]


def rigid_mass_matrix(model: Model, q: Float[Array, "n"]) -> Float[Array, "n n"]:
    """Mass matrix of bodies, payloads and motor rotors, without reflected inertias and transmissions.

    M_ij = sum_b v_bi . p_bj + w_bi . l_bj, v and w the velocities of body b for unit rates of the coordinates, p and l
    its momenta. A rotor adds J theta'^2 / 2 + J theta' (a . omega) to the kinetic energy, see `dynamics.inertias`.

    Args:
        model: the machine; it has no elastic coordinates.
        q: coordinates [n], rad or m.

    Source: Huynh et al. 2020, eq. 8.
    """
    of, shafts = _momenta(model, q), np.array([shaft for _, shaft in model.motors], dtype=int)
    mass = jnp.einsum("bix,bjx->ij", of.velocity, of.momentum)
    mass = mass + jnp.einsum("bix,bjx->ij", of.angular_velocity, of.angular_momentum)
    if not model.motors:
        return mass
    inertia = model.rotor_inertia[shafts]
    rows = inertia[:, None] * ancestor_matrix(model.parent)[shafts, : q.size] * (of.turn[shafts] @ of.turn.T)
    return mass.at[shafts].add(rows).at[:, shafts].add(rows.T).at[shafts, shafts].add(-inertia)


def rigid_gravity_stiffness(model: Model, q: Float[Array, "n"]) -> Float[Array, "n n"]:
    """Geometric stiffness of gravity: the second derivative of its potential energy by the coordinates.

    The first derivative by q_j is -g . p_j, p_j the momentum of all bodies for a unit rate of j. Ancestors i of j, and
    j itself, rotate it: K_ij = -g . (w_i x p_j).

    Args:
        model: the machine; it has no elastic coordinates.
        q: coordinates [n], rad or m.
    """
    momenta, n = _momenta(model, q), len(model.coordinates)
    is_ancestor = jnp.asarray(ancestor_matrix(model.parent)[:n, :n])
    torque_slopes = jnp.cross(momenta.turn, model.gravity) @ jnp.sum(momenta.momentum, axis=0).T
    return is_ancestor.T * torque_slopes + (is_ancestor - jnp.eye(n)) * torque_slopes.T


def _momenta(model: Model, q: Float[Array, "n"]) -> _Momenta:
    n, body_node = len(model.coordinates), np.array(model.mass_node, dtype=int)
    nodes, is_ancestor = node_poses(model, q), jnp.asarray(ancestor_matrix(model.parent)[body_node, :n, None])
    poses, joints = nodes[body_node] @ model.mass_offset, nodes[:n]
    turn, axial = _joint_rates(model, joints)
    rotations = poses[:, :3, :3]
    moment = jnp.einsum("bxy,by->bx", rotations, model.first_moment)[:, None]
    inertia = rotations @ model.inertia @ jnp.swapaxes(rotations, 1, 2)
    velocity = is_ancestor * (axial + jnp.cross(turn, poses[:, None, :3, 3] - joints[:, :3, 3]))
    angular = is_ancestor * turn
    return _Momenta(
        turn,
        velocity,
        angular,
        model.mass[:, None, None] * velocity + jnp.cross(angular, moment),
        jnp.einsum("bxy,bjy->bjx", inertia, angular) + jnp.cross(moment, velocity),
    )


def _joint_rates(model: Model, joints: Float[Array, "n 4 4"]) -> tuple[Float[Array, "n 3"], Float[Array, "n 3"]]:
    """Angular velocity of each revolute joint and velocity of each prismatic joint for a unit rate, in ground axes."""
    axis = jnp.einsum("jxy,jy->jx", joints[:, :3, :3], model.axis)
    revolute = jnp.array(model.revolute, dtype=bool)[:, None]
    return jnp.where(revolute, axis, 0.0), jnp.where(revolute, 0.0, axis)


def _twist_matrices(w: Float[Array, "k 3"], v: Float[Array, "k 3"]) -> Float[Array, "k 3 4"]:
    return jnp.concatenate([jax.vmap(skew)(w), v[:, :, None]], axis=2)
