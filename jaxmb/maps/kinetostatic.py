"""Dexterity, stiffness and deflection at any number of postures, computed in batches."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import batch_size, batch_size_for, compiled, in_batches, numeric_arguments
from jaxmb.io.validation import check_known, finite_number
from jaxmb.machine.build import Model
from jaxmb.maps.position_solver import check_all_closed
from jaxmb.mechanics.compliance import (
    cartesian_compliance,
    compliance_matrix,
    elastic_jacobian,
)
from jaxmb.mechanics.kinematics import TOOL, check_coordinates, check_wrench, joints_moving_frame
from jaxmb.mechanics.loops import at_closed_posture, check_open_chain, independent_coordinates, motion_map


@numeric_arguments("q", "wrench")
@compiled
def load_influence(
    model: Model, q: Float[Array, "n"], frame: str, wrench: Float[Array, "6"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Indices nu_p and nu_r of the influence of the complementary stiffness K_C on the displacement under a wrench.

    With d = K_X^-1 w and d0 the displacement without K_C, nu_p is the difference of the lengths of their translations
    over the larger one, and nu_r the largest difference of their rotations about x, y and z.

    Args:
        model: the machine.
        q: posture under the load [n], rad or m.
        frame: frame of the wrench.
        wrench: force then moment on the machine at the frame's origin, ground axes [6].

    Returns:
        nu_p, dimensionless (0 without displacement), and nu_r in rad.

    Raises:
        ValueError: shapes or names are wrong, or a number is not finite.
        NotImplementedError: the machine has loops, a coordinate has a `stiffness_slope`, or a virtual spring has play.

    Source: Dumas et al. 2011, eq. 10-11.
    """
    check_open_chain(model, "load_influence")
    check_coordinates(model, q=q)
    check_wrench(wrench)
    compliance, jacobian = compliance_matrix(model, q), elastic_jacobian(model, q, frame)
    elastic = compliance @ (jacobian.T @ wrench)  # displacement of the joints and springs
    without = jacobian @ elastic
    if model.elastic_nodes:  # displaced by the load relative to the posture
        loaded = cartesian_compliance(model, q, frame, wrench) @ wrench
    else:
        load = loaded_joints_stiffness(model, jacobian, wrench)
        loaded = jacobian @ jnp.linalg.solve(jnp.eye(elastic.size) - compliance @ load, elastic)
    lengths = jnp.stack([jnp.linalg.norm(without[:3]), jnp.linalg.norm(loaded[:3])])
    longest = jnp.max(lengths)
    nu_p = jnp.where(longest > 0.0, jnp.abs(lengths[1] - lengths[0]) / jnp.where(longest > 0.0, longest, 1.0), 0.0)
    return nu_p, jnp.max(jnp.abs(loaded[3:] - without[3:]))


def loaded_joints_stiffness(
    model: Model, jacobian: Float[Array, "6 n"], wrench: Float[Array, "6"]
) -> Float[Array, "n n"]:
    """K_C = d(J^T w)/dq of a machine without virtual springs and beams, in closed form (ten times as fast as automatic
    differentiation).

    Of two coordinates the proximal one rotates the distal one's axis and lever arm; the distal one moves the frame and
    with it the lever arm of the proximal one. With the columns (v, a) of J, translation and rotation, and the wrench
    (f, m), the entry [i, j] is f . (a_proximal x v_distal) in both cases, plus m . (a_j x a_i) if j is proximal to i.

    Args:
        model: the machine.
        jacobian: of the loaded frame by all coordinates, `elastic_jacobian`.
        wrench: on that frame, ground axes [6].

    Returns:
        K_C [n, n].

    Source: Dumas et al. 2011, eq. 6.
    """
    n = len(model.coordinates)
    depth = np.zeros(n, dtype=int)
    for node in model.order:
        depth[node] = 0 if model.parent[node] < 0 else depth[model.parent[node]] + 1
    linear, angular = jacobian[:3].T, jacobian[3:].T
    force = jnp.cross(linear, wrench[:3]) @ angular.T  # [i, j] = f . (a_j x v_i)
    moment = jnp.cross(angular, wrench[3:]) @ angular.T
    proximal = jnp.asarray(depth[None, :] < depth[:, None])  # [i, j]: j is closer to the ground than i
    return jnp.where(proximal | jnp.eye(n, dtype=bool), force, force.T) + jnp.where(proximal, moment, 0.0)


def translational_compliance(model: Model, q: Float[Array, "n"], frame: str) -> Float[Array, "3 6"]:
    """Translation of a frame's origin per unit wrench on it, J_p C J^T, ground axes: m/N, then m/Nm.

    Raises:
        ValueError: q does not have the machine's n coordinates, or there is no such frame.
        NotImplementedError: a coordinate has a `stiffness_slope`, or a virtual spring has play.
    """
    check_coordinates(model, q=q)
    jacobian = elastic_jacobian(model, q, frame)
    return jacobian[:3] @ compliance_matrix(model, q) @ jacobian.T


def stiffness_along(compliance: Float[Array, "3 3"], direction: Float[Array, "3"]) -> Float[Array, ""]:
    """Stiffness 1 / (u^T C u) along a direction u, N/m, with the other displacements unconstrained.

    Infinite for a direction without compliance, NaN for a compliance of NaN, that of an unstable machine.
    """
    along = direction / jnp.linalg.norm(direction)
    compliant = along @ compliance @ along
    # Along a rigid direction J C J^T is not 0 but of the order of the rounding of its largest entry.
    is_rigid = compliant <= 1e-14 * jnp.trace(compliance)
    return jnp.where(is_rigid, jnp.inf, 1.0 / jnp.where(is_rigid, 1.0, compliant))


def principal_stiffness(compliance: Float[Array, "3 3"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Stiffness in the softest and in the stiffest direction, N/m: inverses of the extreme eigenvalues of C.

    Infinite for a direction without compliance, NaN for a compliance of NaN, that of an unstable machine.
    """
    values = jnp.linalg.eigvalsh(compliance)
    is_rigid = values <= 1e-14 * values[2]
    stiffness = jnp.where(is_rigid, jnp.inf, 1.0 / jnp.where(is_rigid, 1.0, values))
    return stiffness[2], stiffness[0]


DIRECTIONS = ("x", "y", "z", "rx", "ry", "rz")
"""Components of a twist, ground axes."""
SHORTEST_LENGTH = 1e-9
"""Shortest characteristic length, m."""
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
    """Dimensionless Jacobian of a frame, normalized by a characteristic length.

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
        ValueError: a name is unknown, or q does not have the machine's n coordinates.

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


@numeric_arguments("q")
@numeric_arguments("length", least=SHORTEST_LENGTH)
@at_closed_posture
@compiled
def dexterity(
    model: Model,
    q: Float[Array, "n"],
    frame: str = TOOL,
    length: float | Float[Array, ""] = 1.0,
    joints: Sequence[str] | None = None,
    directions: Sequence[str] = DIRECTIONS,
) -> Float[Array, ""]:
    """Inverse condition number 1/kappa_F(J_N) of the normalized Jacobian, 0 (singular) to 1 (isotropic).

    Args:
        model: the machine.
        q: coordinates [n], rad or m.
        frame: name of the frame.
        length: characteristic length, m, for example from `characteristic_length`.
        joints: coordinates in the Jacobian; default: all that move the frame.
        directions: components of the twist; default: all six.

    Raises:
        ValueError: a name is unknown, q does not have the machine's n coordinates, a loop is open there, or the length
            is below 1e-9 m.

    Source: Dumas et al. 2011, eq. 7-8.
    """
    return inverse_condition(normalized_jacobian(model, q, frame, length, joints, directions))


def selected_jacobian(
    model: Model, q: Float[Array, "n"], frame: str, joints: Sequence[str] | None, directions: Sequence[str]
) -> Float[Array, "d j"]:
    """Jacobian [d, j] of a frame for the selected joints and components of the twist, SI units."""
    check_coordinates(model, q=q)
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
    check_known("directions: component", directions, DIRECTIONS)
    if not directions or len(set(directions)) < len(directions):
        raise ValueError(f"directions: {' '.join(directions) or 'none'}, expected some of x y z rx ry rz, each once")
    return [DIRECTIONS.index(name) for name in directions]


LENGTHS = (1e-3, 1e3)
"""Shortest and longest characteristic length of the search, m."""
CHUNK = 1024
"""Postures per batch: more do not fit the cache."""
STEPS = 12
"""Steps of the golden-section search between two eliminations of postures that cannot be optimal."""
SHORTEST = 1e-6
"""Final width of the bracket of log L: rounding determines a flat optimum to its square root only."""


def characteristic_length(
    model: Model,
    postures: Float[Array, "p n"] | Float[np.ndarray, "p n"],
    frame: str = TOOL,
    joints: Sequence[str] | None = None,
    directions: Sequence[str] = DIRECTIONS,
) -> float:
    """Length L [m] that maximizes the largest 1/kappa_F over the postures.

    At one posture log kappa_F is convex in log L (unless the robot has fewer joints than directions), so that a
    golden-section search over `LENGTHS` finds the optimum. All postures are searched together; every `STEPS` steps
    those that cannot be optimal are eliminated. If kappa_F decreases up to an end of `LENGTHS`, there is no optimum and
    that end is returned. If all entries of the Jacobian have the same unit, L has no effect and 1 m is returned.

    Args:
        model: the machine.
        postures: coordinates of each posture [p, n], rad or m.
        frame: name of the frame.
        joints: coordinates in the Jacobian; default: all that move the frame.
        directions: components of the twist in the Jacobian.

    Raises:
        ValueError: a name is unknown, the postures have another shape, or all are singular.
    """
    rows, n = np.asarray(postures), len(model.coordinates)
    if rows.ndim != 2 or rows.shape[1] != n or not len(rows):
        raise ValueError(f"postures have shape {rows.shape}, expected (number of postures, {n})")
    joints, directions = joints_moving_frame(model, frame, joints), tuple(directions)
    # A factor on the length changes a condition number at most by the factor to this power.
    steepest = float(np.ptp(length_power(model, frame, joints, directions)))
    ends = np.tile(np.log(LENGTHS) if steepest else np.zeros(2), (len(rows), 1))
    size = batch_size(len(rows), CHUNK)
    while True:
        value, ends = in_batches(lambda q, e: _narrow(model, q, e, frame, joints, directions), size, rows, ends)
        width = ends[:, 1] - ends[:, 0]
        best = int(value.argmax())
        if width[best] < SHORTEST:
            break
        kept = value * np.exp(steepest * width) >= value[best]
        rows, ends = rows[kept], ends[kept]
    length = float(np.exp(ends[best].mean()))
    if not dexterity(model, jnp.asarray(rows[best]), frame, length, joints, directions) > 0.0:
        raise ValueError(
            f"length: frame '{frame}' is singular at all postures of the map, no characteristic length exists"
        )
    return next((end for end in LENGTHS if math.isclose(length, end, rel_tol=SHORTEST)), length)


@compiled
def _narrow(
    model: Model,
    postures: Float[Array, "p n"],
    ends: Float[Array, "p 2"],
    frame: str,
    joints: tuple[str, ...],
    directions: tuple[str, ...],
) -> tuple[Float[Array, "p"], Float[Array, "p 2"]]:
    """Largest 1/kappa_F in the brackets of log L after `STEPS` golden sections, and the new brackets."""
    golden = (5.0**0.5 - 1.0) / 2.0
    power = length_power(model, frame, joints, directions)[..., None]
    jacobian = jax.vmap(lambda q: selected_jacobian(model, q, frame, joints, directions), out_axes=-1)(postures)

    def value(log_length: Array) -> Array:
        return _inverse_condition_by_gram(jacobian * jnp.exp(log_length * power))

    def inside(low: Array, high: Array) -> tuple[Array, Array]:
        return high - golden * (high - low), low + golden * (high - low)

    def narrow(_: int, found: tuple[Array, ...]) -> tuple[Array, ...]:
        low, high, at_a, at_b = found
        a, b = inside(low, high)
        lower = at_a >= at_b
        low, high = jnp.where(lower, low, a), jnp.where(lower, b, high)
        a, b = inside(low, high)
        new = value(jnp.where(lower, a, b))  # the other value is reused
        return low, high, jnp.where(lower, new, at_b), jnp.where(lower, at_a, new)

    low, high = ends.T
    at_a, at_b = jax.lax.map(value, jnp.stack(inside(low, high)))
    low, high, at_a, at_b = jax.lax.fori_loop(0, STEPS, narrow, (low, high, at_a, at_b))
    return jnp.maximum(at_a, at_b), jnp.stack([low, high], axis=1)


def _inverse_condition_by_gram(matrices: Float[Array, "d j p"]) -> Float[Array, "p"]:
    """1/kappa_F of a batch of matrices, for condition numbers up to about 1e7; beyond, it is 0 or rounding.

    With the Cholesky factor R of the Gram matrix, sum s^-2 is the sum of the squared entries of R^-1. Written by
    entries, each operation is vectorised over the batch: forty times as fast as LAPACK's singular values.
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
    inverse_squares = jnp.zeros(())
    for j in range(size):
        column = {j: scale[j]}
        for i in range(j + 1, size):
            column[i] = -scale[i] * sum(factor[i, k] * column[k] for k in range(j, i))
        inverse_squares += sum(entry**2 for entry in column.values())
    # The sum is NaN if rounding makes the Gram matrix indefinite.
    return jnp.where(inverse_squares >= 1.0, size / jnp.sqrt(inverse_squares), 0.0)


@dataclass(frozen=True)
class Quantity:
    """Label, unit and sense of a quantity."""

    label: str
    unit: str
    higher_is_better: bool
    needs: tuple[str, ...] = ()
    """Required settings: "wrench", "direction"."""


QUANTITIES = {
    "dexterity": Quantity("inverse condition number 1/κ_F", "", True),
    "nu_p": Quantity("influence of K_C on the translation ν_p", "", False, ("wrench",)),
    "nu_r": Quantity("influence of K_C on the rotation ν_r", "rad", False, ("wrench",)),
    "deflection": Quantity("deflection under the load", "m", False, ("wrench",)),
    "stiffness": Quantity("stiffness along the direction", "N/m", True, ("direction",)),
    "least_stiffness": Quantity("stiffness in the softest direction", "N/m", True),
    "greatest_stiffness": Quantity("stiffness in the stiffest direction", "N/m", True),
}
"""Quantities by name. Translational stiffness and deflection are of the frame's origin, to first order in the load."""


@dataclass(frozen=True)
class MapSettings:
    """Settings of the quantities other than the posture."""

    length_m: float
    """Characteristic length of the dexterity."""
    joints: tuple[str, ...]
    """Coordinates of the dexterity."""
    directions: tuple[str, ...] = DIRECTIONS
    """Components of the twist of the dexterity."""
    wrench: tuple[float, ...] | None = None
    """Force [N] then moment [Nm] on the frame, ground axes."""
    direction: tuple[float, ...] | None = None
    """Direction of "stiffness", ground axes, any length."""


class SettingOptions(TypedDict, total=False):
    """Keyword arguments of `posture_maps` that become `MapSettings`."""

    length: float | None
    """Characteristic length of the dexterity, m; default: by `characteristic_length`."""
    wrench: Sequence[float] | np.ndarray | None
    """Force [N] then moment [Nm] at the frame's origin, ground axes. Postures are those under the load."""
    direction: Sequence[float] | np.ndarray | None
    """Of "stiffness", ground axes, any length."""
    joints: Sequence[str] | None
    """Coordinates of the dexterity; default: all that move the frame."""
    directions: Sequence[str]
    """Components of the twist of the dexterity; default: all six."""


@numeric_arguments("wrench")
def checked_settings(
    model: Model,
    quantities: Sequence[str],
    frame: str,
    length: float | None = None,
    wrench: Sequence[float] | np.ndarray | None = None,
    direction: Sequence[float] | np.ndarray | None = None,
    joints: Sequence[str] | None = None,
    directions: Sequence[str] = DIRECTIONS,
) -> MapSettings:
    """Settings for quantities of a frame, after validation, see `SettingOptions`; without a length it is 1 m.

    Raises:
        ValueError: a name is unknown, a number is out of its range, a required setting is missing, or the machine has
            no compliance for a map of stiffness or deflection.
        NotImplementedError: a quantity is a change of stiffness under load and the machine has loops.
    """
    check_quantities(quantities, QUANTITIES)
    given = {"wrench": wrench, "direction": direction}
    for name in quantities:
        if name not in GROUPS["dexterity"]:
            check_compliant(model, f"a map of '{name}'")
        if name in GROUPS["influence"]:
            check_open_chain(model, f"a map of '{name}'")
        for need in QUANTITIES[name].needs:
            if given[need] is None:
                raise ValueError(f"a map of '{name}' needs a {need}, found none")
    length = finite_number("length", 1.0 if length is None else length, above=0.0)
    load = None if wrench is None else np.asarray(wrench)
    check_wrench(load)
    along = None if direction is None else checked_direction(direction)
    return MapSettings(
        length_m=length,
        joints=joints_moving_frame(model, frame, joints),
        directions=tuple(directions),
        wrench=None if load is None else tuple(load.tolist()),
        direction=None if along is None else tuple(along.tolist()),
    )


def check_compliant(model: Model, label: str) -> None:
    """Raise ValueError where a machine has no compliance, so that every load deflects it by 0."""
    if not (np.any(np.asarray(model.stiffness) > 0.0) or model.springs or model.elastic_nodes):
        raise ValueError(
            f"{label}: '{model.name}' has neither springs nor beams and is rigid, expected the stiffness of its"
            " coordinates, which a URDF does not contain"
        )


def check_quantities(quantities: Sequence[str], known: Collection[str]) -> None:
    """Raise ValueError without a quantity, or for one that does not exist."""
    if not quantities:
        raise ValueError(f"quantities: found none, expected some of {', '.join(known)}")
    check_known("quantity", quantities, known)


def checked_direction(direction: Sequence[float] | np.ndarray) -> Float[np.ndarray, "3"]:
    """The direction as an array.

    Raises:
        ValueError: it is not three finite numbers, or all are 0.
    """
    along = np.asarray(direction, dtype=float)
    if along.shape != (3,) or not np.all(np.isfinite(along)) or not np.any(along):
        raise ValueError(f"direction: {along}, expected three numbers, not all 0")
    return along


def posture_quantities(
    model: Model, postures: Float[np.ndarray, "p n"], quantities: Sequence[str], frame: str, settings: MapSettings
) -> dict[str, Float[np.ndarray, "p"]]:
    """Quantities of a frame at postures, arrays [p] by name, computed in batches.

    Args:
        model: the machine.
        postures: coordinates of each posture [p, n], rad or m.
        quantities: of `QUANTITIES`; and "determinant", det J_N, 0 if J_N is not square.
        frame: name of the frame.
        settings: length, joints, components, wrench and direction.

    Raises:
        ValueError: loops of the machine are open at a posture.
    """
    check_all_closed(model, postures)
    size = batch_size_for(len(postures), CHUNK, len(model.coordinates) + 6 * len(model.elastic_nodes))
    wrench = jnp.zeros(6) if settings.wrench is None else jnp.asarray(settings.wrench)
    direction = jnp.array([0.0, 0.0, 1.0]) if settings.direction is None else jnp.asarray(settings.direction)
    arrays = (jnp.asarray(settings.length_m), wrench, direction)
    names = (frame, settings.joints, settings.directions)
    # One program per group, so that another selection of quantities reuses the compiled ones.
    groups = [group for group, given in GROUPS.items() if set(given) & set(quantities)]
    found = {}
    for group in groups:
        values = in_batches(lambda q, group=group: _batch(model, q, *arrays, group, *names), size, postures)
        found |= dict(zip(GROUPS[group], values, strict=True))
    return {name: found[name] for name in quantities}


GROUPS = {
    "dexterity": ("dexterity",),
    "determinant": ("determinant",),
    "influence": ("nu_p", "nu_r"),
    "compliance": ("deflection", "stiffness", "least_stiffness", "greatest_stiffness"),
}
"""Quantities computed by one program."""


@compiled
def _batch(
    model: Model,
    postures: Float[Array, "p n"],
    length: Float[Array, ""],
    wrench: Float[Array, "6"],
    direction: Float[Array, "3"],
    group: str,
    frame: str,
    joints: tuple[str, ...],
    directions: tuple[str, ...],
) -> tuple[Array, ...]:
    def at(q: Array) -> tuple[Array, ...]:
        match group:
            case "compliance":
                c = translational_compliance(model, q, frame)
                least, greatest = principal_stiffness(c[:, :3])
                return jnp.linalg.norm(c @ wrench), stiffness_along(c[:, :3], direction), least, greatest
            case "influence":
                return load_influence(model, q, frame, wrench)
            case "determinant" if len(joints) != len(directions):
                return (jnp.zeros(()),)
            case _:
                matrix = normalized_jacobian(model, q, frame, length, joints, directions)
                return (inverse_condition(matrix) if group == "dexterity" else jnp.linalg.det(matrix),)

    return jax.vmap(at)(postures)
