"""How the bodies of a rigid machine move with its coordinates, along the twists of the joints, and their mass matrix.

A coordinate j turns all behind it at the rate w_j about its own origin o_j, or slides it at the rate s_j. These are
constant in the joint's own frame, so derivatives of poses, second ones too, are products: less arithmetic, and less to
compile, than differentiation of the product of all steps.
"""

from typing import NamedTuple

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

    A coordinate moves all behind it by a twist X_j = (v_j, w_j), v_j that of the ground's origin. So dT_b / dq_j =
    X_j T_b, T_b' = V_b T_b, V_b = sum_j q_j' X_j over the joints on the way to b, and T_b'' = (V_b' + V_b^2) T_b with
    X_j' = V_j X_j - X_j V_j = (W_j x v_j + U_j x w_j, W_j x w_j), V_j = (U_j, W_j) that of the joint.

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
    w, slide = _turn_and_slide(model, joints)
    v = slide + jnp.cross(joints[:, :3, 3], w)
    W, U = (passed[:n] @ (part * qd[:, None]) for part in (w, v))
    w_change = w * qdd[:, None] + jnp.cross(W, w) * qd[:, None]
    v_change = v * qdd[:, None] + (jnp.cross(W, v) + jnp.cross(U, w)) * qd[:, None]
    velocity = _twist_matrices(of_body @ (w * qd[:, None]), of_body @ (v * qd[:, None]))
    change = _twist_matrices(of_body @ w_change, of_body @ v_change)
    acceleration = (change + velocity[:, :, :3] @ velocity) @ poses
    moved = jnp.einsum("jxy,byz->bxzj", _twist_matrices(w, v), poses)
    return of_body[:, None, None, :] * moved, acceleration


class _Momenta(NamedTuple):
    """Of every body and payload for a unit rate of each coordinate, in ground axes, about the origin of its frame."""

    turn: Float[Array, "n 3"]
    """Angular velocity that each coordinate gives what is behind it."""
    velocity: Float[Array, "b n 3"]
    angular_velocity: Float[Array, "b n 3"]
    momentum: Float[Array, "b n 3"]
    angular_momentum: Float[Array, "b n 3"]


def rigid_mass_matrix(model: Model, q: Float[Array, "n"]) -> Float[Array, "n n"]:
    """Mass matrix of bodies, payloads and the rotors of motors, without what adds to it at joints and transmissions.

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
    rows = inertia[:, None] * passed_nodes(model.parent)[shafts, : q.size] * (of.turn[shafts] @ of.turn.T)
    return mass.at[shafts].add(rows).at[:, shafts].add(rows.T).at[shafts, shafts].add(-inertia)


def rigid_gravity_stiffness(model: Model, q: Float[Array, "n"]) -> Float[Array, "n n"]:
    """Second derivative of the energy of gravity by the coordinates.

    The first derivative by q_j is -g . p_j, p_j the momentum of all bodies for a unit rate of j. Coordinates i on the
    way to j, and j itself, turn it with them: K_ij = -g . (w_i x p_j).

    Args:
        model: the machine; it has no elastic coordinates.
        q: coordinates [n], rad or m.
    """
    found, n = _momenta(model, q), len(model.coordinates)
    passed = jnp.asarray(passed_nodes(model.parent)[:n, :n])
    ahead = jnp.cross(found.turn, model.gravity) @ jnp.sum(found.momentum, axis=0).T
    return passed.T * ahead + (passed - jnp.eye(n)) * ahead.T


def _momenta(model: Model, q: Float[Array, "n"]) -> _Momenta:
    n, at = len(model.coordinates), np.array(model.mass_node, dtype=int)
    nodes, on_way = node_poses(model, q), jnp.asarray(passed_nodes(model.parent)[at, :n, None])
    poses, joints = nodes[at] @ model.mass_offset, nodes[:n]
    turn, slide = _turn_and_slide(model, joints)
    rotations = poses[:, :3, :3]
    moment = jnp.einsum("bxy,by->bx", rotations, model.first_moment)[:, None]
    inertia = rotations @ model.inertia @ jnp.swapaxes(rotations, 1, 2)
    velocity = on_way * (slide + jnp.cross(turn, poses[:, None, :3, 3] - joints[:, :3, 3]))
    angular = on_way * turn
    return _Momenta(
        turn,
        velocity,
        angular,
        model.mass[:, None, None] * velocity + jnp.cross(angular, moment),
        jnp.einsum("bxy,bjy->bjx", inertia, angular) + jnp.cross(moment, velocity),
    )


def _turn_and_slide(model: Model, joints: Float[Array, "n 4 4"]) -> tuple[Float[Array, "n 3"], Float[Array, "n 3"]]:
    """Angular velocity and velocity along its own axis of each joint for a unit rate, in ground axes."""
    axis = jnp.einsum("jxy,jy->jx", joints[:, :3, :3], model.axis)
    turns = jnp.array(model.revolute, dtype=bool)[:, None]
    return jnp.where(turns, axis, 0.0), jnp.where(turns, 0.0, axis)


def _twist_matrices(w: Float[Array, "k 3"], v: Float[Array, "k 3"]) -> Float[Array, "k 3 4"]:
    return jnp.concatenate([jax.vmap(skew)(w), v[:, :, None]], axis=2)
