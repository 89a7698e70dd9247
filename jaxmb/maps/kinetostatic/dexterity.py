"""Dexterity of a robot at a posture: inverse condition number of its normalised Jacobian."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.io.validation import known_name
from jaxmb.machine.build import Model
from jaxmb.mechanics.compliance import elastic_jacobian
from jaxmb.mechanics.kinematics import TOOL, joints_moving_frame
from jaxmb.mechanics.loops import check_closed, independent_coordinates, motion_map

DIRECTIONS = ("x", "y", "z", "rx", "ry", "rz")
"""Components of a twist, ground axes."""
SINGULAR = 1e-13
"""Ratio of smallest to largest singular value up to which a Jacobian is singular to working precision."""


def normalized_jacobian(
    model: Model,
    q: Float[Array, "n"],
    frame: str,
    length: float | Float[Array, ""],
    joints: Sequence[str] | None = None,
    directions: Sequence[str] = DIRECTIONS,
) -> Float[Array, "d j"]:
    """Dimensionless Jacobian of a frame, normalised by a characteristic length.

    J_N = diag(I / L, I) J; prismatic joint travel is divided by L as well. With loops J R replaces J, R as in
    `motion_map` and joints being independent coordinates.

    Args:
        model: the machine.
        q: coordinates [n], rad or m.
        frame: name of the frame.
        length: characteristic length L, m.
        joints: coordinates in the Jacobian; default: all that move the frame.
        directions: components of the twist, of x y z rx ry rz, ground axes; default: all six.

    Returns:
        J_N [d, j], joints in the order of q.

    Raises:
        ValueError: a name is unknown.

    Source: Dumas et al. 2011, eq. 8.
    """
    powers = length_power(model, frame, joints, directions)
    return selected_jacobian(model, q, frame, joints, directions) * length**powers


def inverse_condition(matrix: Float[Array, "d j"]) -> Float[Array, ""]:
    """Inverse Frobenius condition number 1/kappa_F of a matrix: 1 for equal singular values, 0 for a singular matrix.

    kappa_F = sqrt(sum s^2 sum s^-2) / m over the m = min(d, j) singular values s, which is eq. 7 for a square matrix.
    With more columns than rows (a redundant robot) it is based on M M^T, with fewer on M^T M: only the directions in
    which the robot can move are considered.

    Source: Dumas et al. 2011, eq. 7.
    """
    size = jnp.linalg.svd(matrix, compute_uv=False)
    regular = size[-1] > SINGULAR * size[0]
    # Both branches of `where` are differentiated: the unused one must be finite.
    safe = jnp.where(regular, size, 1.0)
    return jnp.where(regular, size.shape[0] / jnp.sqrt(jnp.sum(safe**2) * jnp.sum(safe**-2)), 0.0)


def dexterity(
    model: Model,
    q: Float[Array, "n"],
    frame: str = TOOL,
    length: float | Float[Array, ""] = 1.0,
    joints: Sequence[str] | None = None,
    directions: Sequence[str] = DIRECTIONS,
) -> Float[Array, ""]:
    """Inverse condition number 1/kappa_F(J_N) of the normalised Jacobian, 0 (singular) to 1 (isotropic).

    Args:
        model: the machine.
        q: coordinates [n], rad or m.
        frame: name of the frame.
        length: characteristic length, m, for example from `characteristic_length`.
        joints: coordinates in the Jacobian; default: all that move the frame.
        directions: components of the twist; default: all six.

    Raises:
        ValueError: a name is unknown, or a loop is open at q.

    Source: Dumas et al. 2011, eq. 7-8.
    """
    check_closed(model, q, "q")
    return _dexterity(model, q, frame, jnp.asarray(length, dtype=float), joints, directions)


@compiled
def _dexterity(
    model: Model, q: Array, frame: str, length: Array, joints: Sequence[str] | None, directions: Sequence[str]
) -> Array:
    return inverse_condition(normalized_jacobian(model, q, frame, length, joints, directions))


def selected_jacobian(
    model: Model, q: Float[Array, "n"], frame: str, joints: Sequence[str] | None, directions: Sequence[str]
) -> Float[Array, "d j"]:
    """Jacobian [d, j] of a frame for the selected joints and components of the twist, SI units."""
    rows, driven = _rows(directions), independent_coordinates(model)
    columns = [driven.index(name) for name in joints_moving_frame(model, frame, joints)]
    twists = elastic_jacobian(model, q, frame)
    if model.loops:
        twists = twists[:, : len(model.coordinates)] @ motion_map(model, q)
    return twists[jnp.array(rows)][:, jnp.array(columns)]


def length_power(
    model: Model, frame: str, joints: Sequence[str] | None, directions: Sequence[str]
) -> Float[np.ndarray, "d j"]:
    """Powers [d, j] of the characteristic length that make the entries of `selected_jacobian` dimensionless."""
    translation = np.array([1.0 if row < 3 else 0.0 for row in _rows(directions)])
    revolute = dict(zip(model.coordinates, model.revolute, strict=True))
    prismatic = np.array([0.0 if revolute[name] else 1.0 for name in joints_moving_frame(model, frame, joints)])
    return prismatic[None, :] - translation[:, None]


def _rows(directions: Sequence[str]) -> list[int]:
    rows = [_direction(name) for name in directions]
    if not rows or len(set(rows)) < len(rows):
        raise ValueError(f"directions: {' '.join(directions) or 'none'}, expected some of x y z rx ry rz, each once")
    return rows


def _direction(name: str) -> int:
    if name not in DIRECTIONS:
        raise ValueError(known_name("directions: component", name, DIRECTIONS))
    return DIRECTIONS.index(name)
