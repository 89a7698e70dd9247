"""Rigid-body geometry: rotations, homogeneous transforms and pseudo-inertias.

Conventions: a twist is [linear velocity, angular velocity], a wrench is [force, moment], and `T_ab` maps coordinates in
frame b to coordinates in frame a.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float


def skew(vector: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """Matrix [v]x with [v]x w = v x w."""
    x, y, z = vector
    zero = jnp.zeros_like(x)
    return jnp.stack([jnp.stack([zero, -z, y]), jnp.stack([z, zero, -x]), jnp.stack([-y, x, zero])])


def vee(matrix: Float[Array, "3 3"]) -> Float[Array, "3"]:
    """Vector of the skew-symmetric part of a matrix, the inverse of `skew`."""
    return 0.5 * jnp.stack(
        [
            matrix[2, 1] - matrix[1, 2],
            matrix[0, 2] - matrix[2, 0],
            matrix[1, 0] - matrix[0, 1],
        ]
    )


def rotation_about_axis(axis: Float[Array, "3"], angle: Float[Array, ""]) -> Float[Array, "3 3"]:
    """Rotation matrix by `angle` [rad] about the unit vector `axis` (Rodrigues' formula)."""
    cross = skew(axis)
    return jnp.eye(3) + jnp.sin(angle) * cross + (1.0 - jnp.cos(angle)) * (cross @ cross)


def rotation_by(vector: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """Rotation matrix of a rotation vector (axis times angle, rad), smooth at zero; inverse of `rotation_vector`."""
    square = vector @ vector
    small = square < 1e-8
    # Both branches of a `where` are differentiated: the unused one must stay finite.
    angle = jnp.sqrt(jnp.where(small, 1.0, square))
    first = jnp.where(small, 1.0 - square / 6.0 + square**2 / 120.0, jnp.sin(angle) / angle)
    second = jnp.where(small, 0.5 - square / 24.0 + square**2 / 720.0, (1.0 - jnp.cos(angle)) / angle**2)
    cross = skew(vector)
    return jnp.eye(3) + first * cross + second * (cross @ cross)


def rotation_vector(rotation: Float[Array, "3 3"]) -> Float[Array, "3"]:
    """Rotation vector (axis times angle, rad) of a rotation matrix.

    theta / sin(theta) * vee(R), differentiable below theta = pi. There the axis is a column of a a^T = (R + E) / 2.
    """
    sine_axis = vee(rotation)
    sine_squared = jnp.dot(sine_axis, sine_axis)
    small = sine_squared < 1e-12
    # Both branches of a `where` are differentiated: the unused one must stay finite.
    sine = jnp.sqrt(jnp.where(small, 1.0, sine_squared))
    angle = jnp.arctan2(sine, 0.5 * (jnp.trace(rotation) - 1.0))
    near_zero = small & (jnp.trace(rotation) > 1.0)
    below = jnp.where(near_zero, 1.0 + sine_squared / 6.0, angle / sine) * sine_axis
    outer = 0.5 * (rotation + jnp.eye(3))
    largest = jnp.argmax(jnp.diagonal(outer))
    return jnp.where(small & ~near_zero, jnp.pi * outer[:, largest] / jnp.sqrt(outer[largest, largest]), below)


def displacement(start: Float[Array, "4 4"], end: Float[Array, "4 4"]) -> Float[Array, "6"]:
    """Translation of the origin, then rotation vector, that take one pose to another, in the axes of their base."""
    return jnp.concatenate([end[:3, 3] - start[:3, 3], rotation_vector(end[:3, :3] @ start[:3, :3].T)])


def transform(rotation: Float[Array, "3 3"], translation: Float[Array, "3"]) -> Float[Array, "4 4"]:
    """Homogeneous transform of a rotation and a translation."""
    return jnp.block([[rotation, translation[:, None]], [jnp.zeros((1, 3)), jnp.ones((1, 1))]])


def pseudo_inertia(
    mass: Float[Array, ""], first_moment: Float[Array, "3"], inertia: Float[Array, "3 3"]
) -> Float[Array, "4 4"]:
    """Second moment of a body's mass over homogeneous coordinates, integral of [r; 1] [r; 1]^T dm.

    The kinetic energy of a body at pose T is trace(T' P T'^T) / 2. P is linear in mass [kg], first moment m c [kg m]
    and the inertia tensor [kg m^2], the last two about the origin of the body's frame.

    Source: Wensing, Kim, Slotine 2018, "Linear matrix inequalities for physically consistent inertial parameters".
    """
    second_moment = 0.5 * jnp.trace(inertia) * jnp.eye(3) - inertia
    return jnp.block([[second_moment, first_moment[:, None]], [first_moment[None, :], mass[None, None]]])
