"""How well a robot can move its frame at a posture: the inverse condition number of its normalised Jacobian."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.io.validation import known_name
from jaxmb.machine.build import Model
from jaxmb.mechanics.compliance import elastic_jacobian
from jaxmb.mechanics.kinematics import TOOL, moving_joints
from jaxmb.mechanics.loops import check_closed, independent_coordinates, motion_map

DIRECTIONS = ("x", "y", "z", "rx", "ry", "rz")
"""Components of a twist, ground axes."""
SINGULAR = 1e-13
"""Least over largest singular value at and below which a Jacobian is singular to working precision."""


def normalized_jacobian(
    model: Model,
    q: Float[Array, "n"],
    frame: str,
    length: float | Float[Array, ""],
    joints: Sequence[str] | None = None,
    directions: Sequence[str] = DIRECTIONS,
) -> Float[Array, "d j"]:
    """Jacobian of a frame without units: its translations over a characteristic length.

    J_N = diag(I / L, I) J. The travel of a prismatic joint is counted in lengths L as well, so that no unit is left.
    Of a machine with loops J R stands for J, R as in `motion_map`: joints are independent coordinates.

    Args:
        model: the machine.
        q: coordinates [n], rad or m.
        frame: name of the frame.
        length: characteristic length L, m.
        joints: coordinates that count; all that move the frame where not given.
        directions: components of the twist that count, of x y z rx ry rz, ground axes; all six where not given.

    Returns:
        J_N [d, j], joints in the order of q.

    Raises:
        ValueError: a name is unknown.

    Source: Dumas et al. 2011, eq. 8.
    """
    powers = length_power(model, frame, joints, directions)
    return counted_jacobian(model, q, frame, joints, directions) * length**powers


def inverse_condition(matrix: Float[Array, "d j"]) -> Float[Array, ""]:
    """1/kappa_F of a matrix: 1 where all its singular values are equal, 0 where it is singular.

    kappa_F = sqrt(sum s^2 sum s^-2) / m over the m = min(d, j) singular values s, which is eq. 7 for a square matrix.
    For more columns than rows (a redundant robot) this is the condition number of M M^T, for fewer that of M^T M: it
    says how evenly the robot moves in the directions in which it can move at all.

    Source: Dumas et al. 2011, eq. 7.
    """
    size = jnp.linalg.svd(matrix, compute_uv=False)
    regular = size[-1] > SINGULAR * size[0]
    # Both branches of a `where` are differentiated: the unused one must stay finite.
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
        frame: name of the frame that is moved.
        length: characteristic length, m, as given or by `characteristic_length`.
        joints: coordinates that count; all that move the frame where not given.
        directions: components of the twist that count, all six where not given.

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


def counted_jacobian(
    model: Model, q: Float[Array, "n"], frame: str, joints: Sequence[str] | None, directions: Sequence[str]
) -> Float[Array, "d j"]:
    """Jacobian [d, j] of a frame: the joints and the components of the twist that count, with their units."""
    rows, driven = _rows(directions), independent_coordinates(model)
    columns = [driven.index(name) for name in moving_joints(model, frame, joints)]
    twists = elastic_jacobian(model, q, frame)
    if model.loops:
        twists = twists[:, : len(model.coordinates)] @ motion_map(model, q)
    return twists[jnp.array(rows)][:, jnp.array(columns)]


def length_power(
    model: Model, frame: str, joints: Sequence[str] | None, directions: Sequence[str]
) -> Float[np.ndarray, "d j"]:
    """Power of the characteristic length by which each entry of that Jacobian is multiplied to have no unit [d, j]."""
    across = np.array([1.0 if row < 3 else 0.0 for row in _rows(directions)])
    turning = dict(zip(model.coordinates, model.revolute, strict=True))
    travel = np.array([0.0 if turning[name] else 1.0 for name in moving_joints(model, frame, joints)])
    return travel[None, :] - across[:, None]


def _rows(directions: Sequence[str]) -> list[int]:
    rows = [_direction(name) for name in directions]
    if not rows or len(set(rows)) < len(rows):
        raise ValueError(f"directions: {' '.join(directions) or 'none'}, expected some of x y z rx ry rz, each once")
    return rows


def _direction(name: str) -> int:
    if name not in DIRECTIONS:
        raise ValueError(known_name("directions: component", name, DIRECTIONS))
    return DIRECTIONS.index(name)
