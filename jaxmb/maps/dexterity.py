"""How well a robot can move its frame at a posture: the inverse condition number of its normalised Jacobian."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.io.validation import known_name
from jaxmb.machine.build import Model
from jaxmb.mechanics.compliance import elastic_jacobian
from jaxmb.mechanics.kinematics import frame_index

DIRECTIONS = ("x", "y", "z", "rx", "ry", "rz")
"""Components of a twist, ground axes."""
SINGULAR = 1e-13
"""Least over largest singular value at and below which a Jacobian is singular to working precision."""
LENGTHS = (1e-3, 1e3)
"""Between which the characteristic length is looked for, m."""
CHUNK = 1024
"""Postures that are computed together: more do not fit the cache."""
STEPS = 12
"""Of a golden-section search, after each of which postures that cannot be the best are left out."""
SHORTEST = 1e-6
"""Between the ends of log L at which the search ends: the optimum is flat, and known to the root of the rounding."""


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
    return _jacobian(model, q, frame, joints, directions) * length ** _power(model, frame, joints, directions)


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

    At one posture log kappa_F is convex in log L (unless the robot has fewer joints than directions), so that a
    golden-section search over `LENGTHS` finds its best length. All postures are searched, `STEPS` at a time, and those
    that cannot be the best are left out. Where kappa_F only falls towards an end of `LENGTHS`, no length is best, and
    that end comes back. Where the length has no part, all entries of the Jacobian having one unit, it is 1 m.

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
    joints, directions = moving_joints(model, frame, joints), tuple(directions)
    # A length off by a factor changes no condition number by more than that factor to this power.
    steepest = float(np.ptp(_power(model, frame, joints, directions)))
    ends = np.tile(np.log(LENGTHS) if steepest else np.zeros(2), (len(rows), 1))
    size = min(CHUNK, len(rows))
    while True:
        value, ends = _narrowed(model, rows, ends, size, frame, joints, directions)
        width = ends[:, 1] - ends[:, 0]
        best = int(value.argmax())
        if width[best] < SHORTEST:
            break
        kept = value * np.exp(steepest * width) >= value[best]
        rows, ends = rows[kept], ends[kept]
    length = float(np.exp(ends[best].mean()))
    if not dexterity(model, jnp.asarray(rows[best]), frame, length, joints, directions) > 0.0:
        raise ValueError(f"length: frame '{frame}' is singular at all postures of the map, so there is no best length")
    return next((end for end in LENGTHS if math.isclose(length, end, rel_tol=SHORTEST)), length)


def _narrowed(
    model: Model,
    rows: np.ndarray,
    ends: np.ndarray,
    size: int,
    frame: str,
    joints: tuple[str, ...],
    directions: tuple[str, ...],
) -> tuple[np.ndarray, np.ndarray]:
    """1/kappa_F [p] inside narrower ends [p, 2] of log L, computed in chunks of one size."""
    parts = []
    for first in range(0, len(rows), size):
        taken = np.arange(first, first + size).clip(max=len(rows) - 1)
        q, between = jnp.asarray(rows[taken]), jnp.asarray(ends[taken].T)
        found = _narrow(model, q, between, frame, joints, directions)
        parts.append([np.asarray(x)[..., : len(rows) - first] for x in found])
    value, ends = (np.concatenate(x, axis=-1) for x in zip(*parts, strict=True))
    return value, ends.T


@eqx.filter_jit
def _narrow(
    model: Model, postures: Array, ends: Array, frame: str, joints: tuple[str, ...], directions: tuple[str, ...]
) -> tuple[Array, Array]:
    golden = (5.0**0.5 - 1.0) / 2.0
    power = _power(model, frame, joints, directions)[..., None]
    jacobian = jax.vmap(lambda q: _jacobian(model, q, frame, joints, directions), out_axes=-1)(postures)

    def value(log_length: Array) -> Array:
        return _inverse_condition_by_gram(jacobian * jnp.exp(log_length * power))

    def inside(low: Array, high: Array) -> tuple[Array, Array]:
        return high - golden * (high - low), low + golden * (high - low)

    def narrow(_: int, found: tuple[Array, ...]) -> tuple[Array, ...]:
        low, high, at_a, at_b = found
        a, b = inside(low, high)
        left = at_a >= at_b
        low, high = jnp.where(left, low, a), jnp.where(left, b, high)
        a, b = inside(low, high)
        new = value(jnp.where(left, a, b))  # the other one is already known
        return low, high, jnp.where(left, new, at_b), jnp.where(left, at_a, new)

    at_a, at_b = jax.lax.map(value, jnp.stack(inside(ends[0], ends[1])))
    low, high, at_a, at_b = jax.lax.fori_loop(0, STEPS, narrow, (ends[0], ends[1], at_a, at_b))
    return jnp.maximum(at_a, at_b), jnp.stack([low, high])


def _inverse_condition_by_gram(matrices: Float[Array, "d j p"]) -> Float[Array, "p"]:
    """1/kappa_F of many matrices at once, for conditions up to some 1e7, beyond which it is 0 or rounding.

    With a Cholesky factor R of the Gram matrix, sum s^-2 is the sum of the squared entries of R^-1. Written out by
    entries, each operation is on all matrices: forty times as fast as LAPACK's singular values, one matrix at a time.
    """
    m = matrices if len(matrices) <= matrices.shape[1] else matrices.transpose(1, 0, 2)
    m = m / jnp.sqrt(jnp.sum(m**2, axis=(0, 1)))
    size = len(m)
    factor: dict[tuple[int, int], Array] = {}
    scale: list[Array] = []
    for j in range(size):
        for i in range(j, size):
            factor[i, j] = jnp.sum(m[i] * m[j], axis=0) - sum(factor[i, k] * factor[j, k] for k in range(j))
        scale.append(1.0 / jnp.sqrt(factor[j, j]))
        for i in range(j, size):
            factor[i, j] *= scale[j]
    spread = jnp.zeros(())
    for j in range(size):
        column = {j: scale[j]}
        for i in range(j + 1, size):
            column[i] = -scale[i] * sum(factor[i, k] * column[k] for k in range(j, i))
        spread += sum(entry**2 for entry in column.values())
    # Not a number where rounding has left no Cholesky factor.
    return jnp.where(spread >= 1.0, size / jnp.sqrt(spread), 0.0)


def _jacobian(model: Model, q: Array, frame: str, joints: Sequence[str] | None, directions: Sequence[str]) -> Array:
    """Jacobian of the counted components and joints [d, j]."""
    rows = _rows(directions)
    columns = [model.coordinates.index(name) for name in moving_joints(model, frame, joints)]
    return elastic_jacobian(model, q, frame)[jnp.array(rows)][:, jnp.array(columns)]


def _power(model: Model, frame: str, joints: Sequence[str] | None, directions: Sequence[str]) -> np.ndarray:
    """Power of the length that takes the unit of each entry of that Jacobian away [d, j]."""
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
