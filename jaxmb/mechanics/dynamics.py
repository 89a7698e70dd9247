"""Equations of motion of a tree of bodies and beams, by differentiation of poses.

With P_b the pseudo-inertia of body b (`spatial.pseudo_inertia`) and T_b(q) its pose, the virtual power of inertia is
sum_b trace(dT_b P_b T_b''^T), which contains the mass matrix and the gyroscopic terms of Huynh et al. 2020, eq. 8-9.
Beam sections are bodies whose poses depend on the elastic coordinates. These may follow the coordinates in every q;
without them beams are rigid. The mass matrix of machines without elastic nodes is computed by `body_motion`.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled, numeric_arguments
from jaxmb.io.validation import typed_arguments
from jaxmb.machine.build import Model
from jaxmb.mechanics.beams import (
    element_centers,
    element_stiffness,
    section_inertias,
    section_poses,
)
from jaxmb.mechanics.kinematics import (
    ancestor_matrix,
    check_coordinates,
    frame_poses,
    joint_axes,
    node_poses,
    whole,
)
from jaxmb.spatial import pseudo_inertia, rotation_vector, skew


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
    w, axial = joint_rates(model, joints)
    v = axial + jnp.cross(joints[:, :3, 3], w)
    W, U = (is_ancestor[:n] @ (part * qd[:, None]) for part in (w, v))
    w_change = w * qdd[:, None] + jnp.cross(W, w) * qd[:, None]
    v_change = v * qdd[:, None] + (jnp.cross(W, v) + jnp.cross(U, w)) * qd[:, None]
    velocity = _twist_matrices(body_ancestors @ (w * qd[:, None]), body_ancestors @ (v * qd[:, None]))
    twist_change = _twist_matrices(body_ancestors @ w_change, body_ancestors @ v_change)
    acceleration = (twist_change + velocity[:, :, :3] @ velocity) @ poses
    pose_slopes = jnp.einsum("jxy,byz->bxzj", _twist_matrices(w, v), poses)
    return body_ancestors[:, None, None, :] * pose_slopes, acceleration


def rigid_mass_matrix(model: Model, q: Float[Array, "n"]) -> Float[Array, "n n"]:
    """Mass matrix of bodies, payloads and motor rotors, without reflected inertias and transmissions.

    M_ij = sum_b v_bi . p_bj + w_bi . l_bj, v and w the velocities of body b for unit rates of the coordinates, p and l
    its momenta. A rotor adds J theta'^2 / 2 + J theta' (a . omega) to the kinetic energy, see `dynamics.inertias`.

    Args:
        model: the machine; it has no elastic coordinates.
        q: coordinates [n], rad or m.

    Source: Huynh et al. 2020, eq. 8.
    """
    turn, velocity, angular_velocity, momentum, angular_momentum = _momenta(model, q)
    shafts = np.array([shaft for _, shaft in model.motors], dtype=int)
    mass = jnp.einsum("bix,bjx->ij", velocity, momentum)
    mass = mass + jnp.einsum("bix,bjx->ij", angular_velocity, angular_momentum)
    inertia = model.rotor_inertia[shafts]
    rows = inertia[:, None] * ancestor_matrix(model.parent)[shafts, : q.size] * (turn[shafts] @ turn.T)
    return mass.at[shafts].add(rows).at[:, shafts].add(rows.T).at[shafts, shafts].add(-inertia)


def rigid_gravity_stiffness(model: Model, q: Float[Array, "n"]) -> Float[Array, "n n"]:
    """Geometric stiffness of gravity: the second derivative of its potential energy by the coordinates.

    The first derivative by q_j is -g . p_j, p_j the momentum of all bodies for a unit rate of j. Ancestors i of j, and
    j itself, rotate it: K_ij = -g . (w_i x p_j).

    Args:
        model: the machine; it has no elastic coordinates.
        q: coordinates [n], rad or m.
    """
    (turn, _, _, momentum, _), n = _momenta(model, q), len(model.coordinates)
    is_ancestor = jnp.asarray(ancestor_matrix(model.parent)[:n, :n])
    torque_slopes = jnp.cross(turn, model.gravity) @ jnp.sum(momentum, axis=0).T
    return is_ancestor.T * torque_slopes + (is_ancestor - jnp.eye(n)) * torque_slopes.T


@compiled
def _momenta(model: Model, q: Float[Array, "n"]) -> tuple[Array, Array, Array, Array, Array]:
    """Angular velocity of the descendants of each coordinate [n, 3], then velocity, angular velocity, momentum and
    angular momentum of every body and payload [b, n, 3] for a unit rate of each coordinate, in ground axes, about the
    origin of its frame."""
    n, body_node = len(model.coordinates), np.array(model.mass_node, dtype=int)
    nodes, is_ancestor = node_poses(model, q), jnp.asarray(ancestor_matrix(model.parent)[body_node, :n, None])
    poses, joints = nodes[body_node] @ model.mass_offset, nodes[:n]
    turn, axial = joint_rates(model, joints)
    rotations = poses[:, :3, :3]
    moment = jnp.einsum("bxy,by->bx", rotations, model.first_moment)[:, None]
    inertia = rotations @ model.inertia @ jnp.swapaxes(rotations, 1, 2)
    velocity = is_ancestor * (axial + jnp.cross(turn, poses[:, None, :3, 3] - joints[:, :3, 3]))
    angular = is_ancestor * turn
    momentum = model.mass[:, None, None] * velocity + jnp.cross(angular, moment)
    return turn, velocity, angular, momentum, jnp.einsum("bxy,bjy->bjx", inertia, angular) + jnp.cross(moment, velocity)


def joint_rates(model: Model, joints: Float[Array, "n 4 4"]) -> tuple[Float[Array, "n 3"], Float[Array, "n 3"]]:
    """Angular velocity of each revolute joint and velocity of each prismatic joint for a unit rate, in ground axes."""
    axis = jnp.einsum("jxy,jy->jx", joints[:, :3, :3], joint_axes(model))
    revolute = jnp.array(model.revolute, dtype=bool)[:, None]
    return jnp.where(revolute, axis, 0.0), jnp.where(revolute, 0.0, axis)


def _twist_matrices(w: Float[Array, "k 3"], v: Float[Array, "k 3"]) -> Float[Array, "k 3 4"]:
    return jnp.concatenate([jax.vmap(skew)(w), v[:, :, None]], axis=2)


def inertias(model: Model) -> Float[Array, "k 4 4"]:
    """Pseudo-inertia at each of the `inertia_poses` [k, 4, 4].

    A rotor adds J theta'^2 / 2 + J theta' (a . omega) to the kinetic energy, omega the angular velocity of its carrier.
    That is an inertia J a a^T that rotates with the shaft, minus the same inertia fixed to the carrier.

    Source: De Luca and Book, "Robots with flexible elements", Springer Handbook of Robotics, the model of flexible
    joints with inertial couplings between motors and links.
    """
    bodies = jax.vmap(pseudo_inertia)(model.mass, model.first_moment, model.inertia)
    if model.beams:  # tracing the sections takes long
        bodies = jnp.concatenate([bodies, section_inertias(model).reshape(-1, 4, 4)])
    shafts = np.array([shaft for _, shaft in model.motors], dtype=int)
    axis, nothing = model.axis[shafts], jnp.zeros(3)
    about_axis = model.rotor_inertia[shafts, None, None] * axis[:, :, None] * axis[:, None, :]
    rotors = jax.vmap(lambda inertia: pseudo_inertia(jnp.zeros(()), nothing, inertia))(about_axis)
    return jnp.concatenate([bodies, rotors, -rotors])


def inertia_poses(model: Model, q: Float[Array, "n"]) -> Float[Array, "k 4 4"]:
    """Pose of every body and payload, every beam section, every rotor, and every rotor without its shaft's rotation."""
    poses = node_poses(model, q)
    bodies = poses[jnp.array(model.mass_node, dtype=int)] @ model.mass_offset
    if model.beams:
        begin, deflection = _elements(model, poses, q)
        bodies = jnp.concatenate([bodies, (begin[:, None] @ section_poses(model, deflection)).reshape(-1, 4, 4)])
    shafts = np.array([shaft for _, shaft in model.motors], dtype=int)
    return jnp.concatenate([bodies, poses[shafts], poses[np.array(model.parent)[shafts]] @ model.origin[shafts]])


def _elements(
    model: Model, poses: Float[Array, "nodes 4 4"], q: Float[Array, "n"]
) -> tuple[Float[Array, "w 4 4"], Float[Array, "w 6"]]:
    """Pose of the start of each beam element, and the elastic displacement of its end."""
    n, springs = len(model.coordinates), len(model.virtual_springs)
    begin = poses[np.array(model.parent[n + springs :], dtype=int)] @ model.beam_start
    return begin, whole(model, q)[n + 6 * springs :].reshape(-1, 6)


def reflected_inertia(model: Model, q: Float[Array, "n"]) -> Float[Array, "n"]:
    """Rotor inertias reflected to the joints [n], which are added to the diagonal of the mass matrix."""
    own = model.rotor_inertia.at[jnp.array([s for _, s in model.motors], dtype=int)].set(0.0)
    return jnp.concatenate([own, jnp.zeros(q.shape[0] - own.size)])


def transmission_rates(model: Model, q: Float[Array, "n"]) -> Float[Array, "t n"]:
    """c of each transmission [t, n], 0 at the elastic coordinates that q may contain."""
    return jnp.pad(model.transmission_rate, ((0, 0), (0, q.shape[0] - len(model.coordinates))))


def own_stretch(model: Model, change: Float[Array, "n"]) -> Float[Array, "n"]:
    """Deformation of each coordinate's own spring for a change of the coordinates; of a gear, q - theta / ratio."""
    change = jnp.asarray(change)[: len(model.coordinates)]
    for (joint, shaft), ratio in zip(model.motors, model.gear_ratio, strict=True):
        change = change.at[joint].add(-change[shaft] / ratio)
    return change


def own_springs(model: Model) -> Float[Array, "n n"]:
    """S [spring, coordinate] with `own_stretch` S q: the stiffness matrix of all own springs is S^T diag(k) S."""
    return jax.vmap(lambda unit: own_stretch(model, unit), out_axes=1)(jnp.eye(len(model.coordinates)))


@typed_arguments
@numeric_arguments("q")
@compiled
def mass_matrix(model: Model, q: Float[Array, "n"]) -> Float[Array, "n n"]:
    """Mass matrix of the machine at q, symmetric positive definite.

    M(q) = sum_i m_i J_i^T J_i + W_i^T R_i Phi_i R_i^T W_i, J_i and W_i the Jacobians of body i's centre of mass and
    of its orientation, Phi_i its central inertia in its own frame; plus the reflected rotor inertias on the diagonal,
    the motors' rotors with their coupling to the carrier (`inertias`), and c^T I c of transmissions.

    Args:
        model: the machine.
        q: coordinates [n], rad or m.

    Returns:
        M [n, n], in kg m^2, kg m or kg by coordinate pair.

    Raises:
        ValueError: q does not have the machine's n coordinates.

    Source: Huynh et al. 2020, eq. 8.
    """
    check_coordinates(model, q=q)
    if model.elastic_nodes:
        change = jax.jacfwd(lambda x: inertia_poses(model, x))(q)
        weighted = jnp.einsum("bxyi,byz->bxzi", change, inertias(model))
        mass = jnp.einsum("bxzi,bxzj->ij", weighted, change)
    else:
        mass = rigid_mass_matrix(model, q)
    c = transmission_rates(model, q)
    return mass + jnp.diag(reflected_inertia(model, q)) + c.T @ (model.transmission_inertia[:, None] * c)


def inertial_effort(
    model: Model, q: Float[Array, "n"], qd: Float[Array, "n"], qdd: Float[Array, "n"]
) -> Float[Array, "n"]:
    """Generalized effort [n] of inertia: M(q) qdd + h(q, qd), h by eq. 9 of Huynh et al. 2020."""

    def pose(x: Array) -> Array:
        return inertia_poses(model, x)

    _, (_, acceleration) = jax.jvp(lambda x, xd: jax.jvp(pose, (x,), (xd,)), (q, qd), (qd, qdd))
    _, pull_back = jax.vjp(pose, q)
    (effort,) = pull_back(acceleration @ inertias(model))
    c = transmission_rates(model, q)
    return effort + reflected_inertia(model, q) * qdd + c.T @ (model.transmission_inertia * (c @ qdd))


def gravity_energy(model: Model, q: Float[Array, "n"]) -> Float[Array, ""]:
    """Potential energy of gravity at q [J]: - sum_b g . (m_b c_b), zero with all masses at the ground's origin."""
    nodes = node_poses(model, q)
    poses = nodes[jnp.array(model.mass_node, dtype=int)] @ model.mass_offset
    moments = jnp.einsum("bxy,by->x", poses[:, :3, :3], model.first_moment) + model.mass @ poses[:, :3, 3]
    begin, deflection = _elements(model, nodes, q)
    centers = jnp.einsum("wxy,wy->wx", begin[:, :3, :3], element_centers(model, deflection)) + begin[:, :3, 3]
    masses = (model.density * model.beam_area * model.beam_length)[model.element_beam]
    return -(moments + masses @ centers) @ model.gravity


@typed_arguments
@numeric_arguments("q")
@compiled
def gravity_effort(model: Model, q: Float[Array, "n"]) -> Float[Array, "n"]:
    """Generalized effort [n] that balances gravity at q, in Nm or N by coordinate.

    Args:
        model: the machine.
        q: coordinates [n], rad or m, optionally followed by the elastic ones.

    Raises:
        ValueError: q does not have the machine's n coordinates.

    Source: Huynh et al. 2020, eq. 10-11, with the sign of the residual (eq. 14).
    """
    check_coordinates(model, q=q)
    return jax.grad(gravity_energy, argnums=1)(model, q)


def elastic_effort(
    model: Model, q: Float[Array, "n"], qd: Float[Array, "n"], q_rest: Float[Array, "n"]
) -> Float[Array, "n"]:
    """Generalized effort [n] of springs, dampers and beams, in Nm or N by coordinate.

    S^T (K S (q - q_rest) + D S qd) for the coordinates' own, S q the deformation of each (`own_stretch`); for springs
    between frames the force k s + d s' along or about their direction, projected by the Jacobian of s(q); for beam
    elements the stiffness of each.

    Source: Huynh et al. 2020, eq. 12-13, with the sign of the residual (eq. 14).
    """
    check_coordinates(model, q=q, qd=qd, q_rest=q_rest)
    return spring_effort(model, q, qd, q_rest) + beam_effort(model, q - q_rest)


def spring_effort(
    model: Model, q: Float[Array, "n"], qd: Float[Array, "n"], q_rest: Float[Array, "n"]
) -> Float[Array, "n"]:
    """Generalized effort [n] of springs and dampers, on coordinates and between frames."""
    own, pull_back = jax.vjp(lambda x: own_stretch(model, x), q - q_rest)
    (effort,) = pull_back(model.stiffness * own + model.damping * own_stretch(model, qd))
    stretch, rate = jax.jvp(lambda x: spring_stretch(model, x, q_rest), (q,), (qd,))
    _, pull_back = jax.vjp(lambda x: spring_stretch(model, x, q_rest), q)
    (from_frames,) = pull_back(model.spring_stiffness * stretch + model.spring_damping * rate)
    return effort + from_frames


def beam_effort(
    model: Model, displacement: Float[Array, "n"], factor: Float[Array, "c"] | float = 1.0
) -> Float[Array, "n"]:
    """Generalized effort [n] of beam elements for a displacement, times a factor for each beam."""
    first = len(model.coordinates) + 6 * len(model.virtual_springs)
    if displacement.shape[0] <= first:
        return jnp.zeros_like(displacement)
    each = jnp.broadcast_to(jnp.asarray(factor), len(model.beams))[model.element_beam]
    forces = jnp.einsum("w,wij,wj->wi", each, element_stiffness(model), displacement[first:].reshape(-1, 6))
    return jnp.concatenate([jnp.zeros(first), forces.ravel()])


def spring_stretch(model: Model, q: Float[Array, "n"], q_rest: Float[Array, "n"]) -> Float[Array, "s"]:
    """Deformation of every spring between frames [s], m or rad, relative to q_rest or to its free length."""
    if not model.springs:
        return jnp.zeros(0)
    poses, rest = frame_poses(model, q), frame_poses(model, q_rest)
    stretches = []
    for i, ((a, b), kind) in enumerate(zip(model.spring_frames, model.spring_type, strict=True)):
        match kind:
            case "length":
                stretches.append(jnp.linalg.norm(poses[b, :3, 3] - poses[a, :3, 3]) - model.spring_free_length[i])
            case "rotation":
                current, initial = (at[a, :3, :3].T @ at[b, :3, :3] for at in (poses, rest))
                stretches.append(model.spring_direction[i] @ rotation_vector(current @ initial.T))
            case _:
                current, initial = (at[a, :3, :3].T @ (at[b, :3, 3] - at[a, :3, 3]) for at in (poses, rest))
                stretches.append(model.spring_direction[i] @ (current - initial))
    return jnp.stack(stretches)


def spring_energy(model: Model, q: Float[Array, "n"], q_rest: Float[Array, "n"]) -> Float[Array, ""]:
    """Potential energy of the springs between frames [J]."""
    return 0.5 * jnp.sum(model.spring_stiffness * spring_stretch(model, q, q_rest) ** 2)


def total_energy(
    model: Model, q: Float[Array, "n"], qd: Float[Array, "n"], q_rest: Float[Array, "n"]
) -> Float[Array, ""]:
    """Kinetic and potential energy of the machine with rigid beams [J]: of masses, gravity and springs."""
    own = 0.5 * jnp.sum(model.stiffness * own_stretch(model, q - q_rest) ** 2)
    return 0.5 * qd @ mass_matrix(model, q) @ qd + gravity_energy(model, q) + own + spring_energy(model, q, q_rest)


@typed_arguments
@numeric_arguments("q", "qd", "qdd", "q_rest")
@compiled
def inverse_dynamics(
    model: Model,
    q: Float[Array, "n"],
    qd: Float[Array, "n"],
    qdd: Float[Array, "n"],
    q_rest: Float[Array, "n"] | None = None,
) -> Float[Array, "n"]:
    """Effort [n] at the coordinates for a motion: the residual f(q, qd, qdd) of the equations of motion.

    f = M(q) qdd + h(q, qd) + gravity(q) + K (q - q_rest) + D qd, with springs and dampers between frames and
    transmissions. Rayleigh damping and loss factors belong to the linearized equations (`linearize`) only, as does the
    load dependence of stiffness; `actuator_effort` adds Coulomb friction and offsets.

    Args:
        model: the machine.
        q: coordinates [n], rad or m, optionally followed by the elastic ones (`elastic_coordinates`), without which
            beams are rigid.
        qd: their velocities [n], rad/s or m/s.
        qdd: their accelerations [n], rad/s^2 or m/s^2.
        q_rest: posture [n] in which all springs are unloaded; by default the reference posture.

    Returns:
        f [n], Nm or N by coordinate.

    Raises:
        ValueError: an argument does not have the machine's n coordinates.

    Source: Huynh et al. 2020, eq. 9-14.
    """
    q_rest = model.reference if q_rest is None else q_rest
    check_coordinates(model, q=q, qd=qd, qdd=qdd, q_rest=q_rest)
    q_rest = whole(model, q_rest)[: q.shape[0]]
    c = transmission_rates(model, q)
    static = gravity_effort(model, q) + elastic_effort(model, q, qd, q_rest)
    return inertial_effort(model, q, qd, qdd) + static + c.T @ (model.transmission_damping * (c @ qd))
