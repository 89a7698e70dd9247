"""How well a robot can move its frame at a posture: the inverse condition number of its normalised Jacobian."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.machine.build import Model
from jaxmb.machine.schema import known_name
from jaxmb.mechanics.compliance import elastic_jacobian
from jaxmb.mechanics.kinematics import frame_index

DIRECTIONS = ("x", "y", "z", "rx", "ry", "rz")
"""Components of a twist, ground axes."""
SINGULAR = 1e-13
"""Least over largest singular value at and below which a Jacobian is singular to working precision."""
MOST_LOOKED_AT = 4096
GOLDEN_STEPS = 40


def moving_joints(model: Model, frame: str, joints: Sequence[str] | None = None) -> tuple[str, ...]:
    """Names of the coordinates that move a frame, in the order of q; or the given ones, checked.

    Raises:
        ValueError: a name is not a coordinate or stands twice, none moves the frame, or there is no such frame.
    """
    node = model.frame_node[frame_index(model, frame)]
    behind: set[int] = set()
    while node >= 0:
        behind.add(node)
        node = model.parent[node]
    for name in joints or ():
        if name not in model.coordinates:
            raise ValueError(known_name("joints: coordinate", name, model.coordinates))
    if joints is not None and len(set(joints)) < len(joints):
        raise ValueError(f"joints: {', '.join(joints)}, expected every coordinate once")
    found = tuple(c for i, c in enumerate(model.coordinates) if i in behind and (joints is None or c in joints))
    if not found:
        raise ValueError(f"joints: none of them moves frame '{frame}' of '{model.name}'")
    return found


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
    jacobian, power = _jacobian(model, q, frame, joints, directions)
    return jacobian * length**power


def inverse_condition(matrix: Float[Array, "d j"]) -> Float[Array, ""]:
    """1/kappa_F of a matrix: 1 where all its singular values are equal, 0 where it is singular.

    kappa_F = sqrt(sum s^2 sum s^-2) / m over the m = min(d, j) singular values s, which is eq. 7 for a square matrix.
    With more columns than rows (a redundant robot) the Gram matrix in it is M M^T, with fewer M^T M: what is asked is
    how evenly the robot moves in the directions in which it can move at all.

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
    frame: str = "tool",
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
        ValueError: a name is unknown.

    Source: Dumas et al. 2011, eq. 7-8.
    """
    return inverse_condition(normalized_jacobian(model, q, frame, length, joints, directions))


def characteristic_length(
    model: Model,
    postures: Float[Array, "p n"],
    frame: str = "tool",
    joints: Sequence[str] | None = None,
    directions: Sequence[str] = DIRECTIONS,
) -> float:
    """Length L that makes the best 1/kappa_F among postures as large as it can be, m.

    kappa_F^2 at one posture is convex in log L, so that a golden-section search over 1 mm to 1 km finds its best
    length. Of many postures 4096, evenly taken, are looked at: the length is a scale, on which the place of the good
    zones hardly depends.

    Args:
        model: the machine.
        postures: coordinates of each posture [p, n].
        frame: name of the frame.
        joints: coordinates that count.
        directions: components of the twist that count.

    Raises:
        ValueError: a name is unknown, or all postures are singular.
    """
    rows = np.asarray(postures)
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, MOST_LOOKED_AT).round().astype(int))]
    joints, directions = moving_joints(model, frame, joints), tuple(directions)
    value, log_length = (np.asarray(x) for x in _best_length(model, jnp.asarray(rows), frame, joints, directions))
    if not value.max() > 0.0:
        raise ValueError(f"length: frame '{frame}' is singular at all postures of the map, so there is no best length")
    return float(np.exp(log_length[int(value.argmax())]))


@eqx.filter_jit
def _best_length(
    model: Model, postures: Array, frame: str, joints: tuple[str, ...], directions: tuple[str, ...]
) -> tuple[Array, Array]:
    golden = (5.0**0.5 - 1.0) / 2.0

    def best(q: Array) -> tuple[Array, Array]:
        jacobian, power = _jacobian(model, q, frame, joints, directions)

        def value(log_length: Array) -> Array:
            return inverse_condition(jacobian * jnp.exp(log_length * power))

        def narrow(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            a, b = high - golden * (high - low), low + golden * (high - low)
            left = value(a) >= value(b)
            return jnp.where(left, low, a), jnp.where(left, b, high)

        low, high = jax.lax.fori_loop(0, GOLDEN_STEPS, narrow, (jnp.log(1e-3), jnp.log(1e3)))
        middle = 0.5 * (low + high)
        return value(middle), middle

    return jax.vmap(best)(postures)


def _jacobian(
    model: Model, q: Array, frame: str, joints: Sequence[str] | None, directions: Sequence[str]
) -> tuple[Array, Array]:
    """Jacobian of the counted components and joints, and the power of the length that takes each entry's unit away."""
    rows = [_direction(name) for name in directions]
    if not rows or len(set(rows)) < len(rows):
        raise ValueError(f"directions: {' '.join(directions) or 'none'}, expected some of x y z rx ry rz, each once")
    columns = [model.coordinates.index(name) for name in moving_joints(model, frame, joints)]
    jacobian = elastic_jacobian(model, q, frame)[jnp.array(rows)][:, jnp.array(columns)]
    across = np.array([1.0 if row < 3 else 0.0 for row in rows])
    travel = np.array([0.0 if model.revolute[column] else 1.0 for column in columns])
    return jacobian, jnp.asarray(travel[None, :] - across[:, None])


def _direction(name: str) -> int:
    if name not in DIRECTIONS:
        raise ValueError(known_name("directions: component", name, DIRECTIONS))
    return DIRECTIONS.index(name)
