"""Load cases of a machine: measured displacements, observation matrix for compliances, instrument errors, repeats."""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float, Int

from jaxmb.compiled import compiled
from jaxmb.identify.estimation.identifiability import SMALLEST_COLUMN
from jaxmb.identify.experiments.tolerances import Instruments
from jaxmb.io.validation import check_known
from jaxmb.machine.build import Model
from jaxmb.machine.values import LARGEST_ANGLE, LARGEST_TRAVEL
from jaxmb.mechanics.compliance import compliance_matrix, elastic_jacobian
from jaxmb.mechanics.kinematics import ELASTIC_AXES, frame_index
from jaxmb.mechanics.loops import check_closed, independent_coordinates, nearby_motion_map
from jaxmb.mechanics.postures import close_loops, nearest_posture
from jaxmb.response.static import deflection

Term = tuple[tuple[int, int], ...]
"""Entries (row, column) of the compliance of all elastic degrees of freedom that one parameter represents."""


LARGEST_DISPLACEMENT = 0.2
"""Largest plausible displacement, m or rad: a larger one indicates a wrong unit."""
LARGEST_WRENCH = 1e9
"""Largest plausible component of a load, N or Nm."""
LEAST_STD, LARGEST_STD = 1e-12, 10.0
"""Plausible standard deviations, m or rad: the resolution of any instrument to the limit of use."""


@dataclasses.dataclass(frozen=True, eq=False)
class LoadCase:
    """One load on a machine in one posture, with the measured displacements of points."""

    name: str
    q: np.ndarray
    """Coordinates held by the drives [n], rad or m."""
    frame: str
    """Frame at which the wrench acts."""
    wrench: np.ndarray
    """Force then moment on the machine at the frame's origin, ground axes [6], N and Nm."""
    points: tuple[str, ...]
    """Frames whose motion was measured."""
    displacement: np.ndarray
    """Translation then rotation vector of each point, ground axes [p, 6], m and rad; NaN where not measured."""
    std: np.ndarray
    """Standard deviation of each displacement [p, 6]."""

    @property
    def measured(self) -> np.ndarray:
        """Mask of the measured displacements [p, 6]."""
        return np.isfinite(self.displacement)


def check_cases(model: Model, cases: Sequence[LoadCase]) -> None:
    """Raise ValueError, naming the load case, where it does not match the machine or has implausible values.

    Implausible are a displacement above 0.2 m or rad (probably mm or deg), a coordinate beyond 4 pi rad or 100 m, a
    wrench beyond 1e9 N or Nm, and a standard deviation outside 1e-12 to 10 m or rad.
    """
    if not len(cases):
        raise ValueError("there are no deflection tests, expected at least one")
    for test in cases:
        location = f"deflection test '{test.name}'"
        if test.q.shape != (len(model.coordinates),):
            raise ValueError(f"{location}: posture has shape {test.q.shape}, expected ({len(model.coordinates)},)")
        _check_posture(model, location, test.q)
        check_closed(model, test.q, f"{location}: posture")
        if test.wrench.shape != (6,) or not np.all(np.isfinite(test.wrench)):
            raise ValueError(f"{location}: wrench is {test.wrench.tolist()}, expected six finite numbers")
        if not test.wrench.any():
            raise ValueError(f"{location}: wrench is zero, expected a load")
        load = float(np.abs(test.wrench).max())
        if load > LARGEST_WRENCH:
            raise ValueError(f"{location}: wrench has {load:g} N or N m, expected at most {LARGEST_WRENCH:g}")
        check_known(f"{location}: frame", (test.frame, *test.points), model.frames)
        expected = (len(test.points), 6)
        if test.displacement.shape != expected or test.std.shape != expected:
            raise ValueError(
                f"{location}: {len(test.points)} points have displacements of shape {test.displacement.shape} and"
                f" deviations of shape {test.std.shape}, expected {expected}"
            )
        if np.isinf(test.displacement).any():
            raise ValueError(f"{location}: a displacement is infinite, expected a number, or NaN where not measured")
        if not test.measured.any():
            raise ValueError(f"{location}: no displacement was measured")
        stds = test.std[test.measured]
        for std in (float(stds.min()), float(stds.max())):
            if not LEAST_STD <= std <= LARGEST_STD:
                raise ValueError(
                    f"{location}: a standard deviation is {std:g} m or rad, expected {LEAST_STD:g} to {LARGEST_STD:g}"
                )
        largest = float(np.abs(test.displacement[test.measured]).max())
        if largest > LARGEST_DISPLACEMENT:
            raise ValueError(
                f"{location}: a displacement of {largest:g} m or rad is too large for a deflection, is it in mm or deg?"
            )


def _check_posture(model: Model, location: str, q: np.ndarray) -> None:
    for name, revolute, value in zip(model.coordinates, model.revolute, q.tolist(), strict=True):
        most, unit = (LARGEST_ANGLE, "rad") if revolute else (LARGEST_TRAVEL, "m")
        if not abs(value) <= most:  # NaN too
            other = {"rad": "deg", "m": "mm"}[unit]
            raise ValueError(
                f"{location}: {name} is {value:g} {unit}, expected a finite number of at most {most:.4g} {unit}"
                + (f", is it in {other}?" if math.isfinite(value) else "")
            )


def measured_displacements(cases: Sequence[LoadCase]) -> tuple[np.ndarray, np.ndarray]:
    """Measured displacements of all cases, stacked [rows], and their standard deviations, m and rad."""
    values = [test.displacement[test.measured] for test in cases]
    return np.concatenate(values), np.concatenate([test.std[test.measured] for test in cases])


def joint_terms(model: Model, names: Sequence[str]) -> list[Term]:
    """Term of the compliance of each named coordinate, for `observation_matrix`.

    Raises:
        ValueError: the machine has no such coordinate.
    """
    check_known("coordinate", names, model.coordinates)
    return [((model.coordinates.index(name), model.coordinates.index(name)),) for name in names]


def spring_term(model: Model, spring: str, a: str, b: str, symmetric: bool = True) -> Term:
    """Term of the entry (a, b) of a virtual spring's compliance, axes as "x" and "rx"; with (b, a) if symmetric.

    Raises:
        ValueError: the machine has no such virtual spring, or there is no such axis.
    """
    check_known("virtual spring", [spring], model.virtual_springs)
    check_known("axis", (a, b), ELASTIC_AXES)
    first = len(model.coordinates) + 6 * model.virtual_springs.index(spring)
    row, column = first + ELASTIC_AXES.index(a), first + ELASTIC_AXES.index(b)
    return ((row, column), (column, row)) if symmetric and row != column else ((row, column),)


def elastic_rows(
    model: Model, cases: Sequence[LoadCase]
) -> tuple[Float[np.ndarray, "m e"], Float[np.ndarray, "m e"], Int[np.ndarray, "m"]]:
    """Stacked measured displacements a C b, with C the compliance of all e elastic degrees of freedom: a, row of the
    measured point's elastic Jacobian; b = J_l^T w of the loaded frame; load case of each row."""
    jacobians, efforts = case_jacobians(model, cases)
    number = np.repeat(np.arange(len(cases)), [np.count_nonzero(case.measured) for case in cases])
    at_point = [jacobian[case.measured] for jacobian, case in zip(jacobians, cases, strict=True)]
    return np.concatenate(at_point), np.stack(efforts)[number], number


def case_jacobians(
    model: Model, cases: Sequence[LoadCase]
) -> tuple[list[Float[np.ndarray, "p 6 e"]], list[Float[np.ndarray, "e"]]]:
    """Elastic Jacobian of all points of each load case, whose first columns are those of the coordinates, and
    generalized forces J_l^T w."""
    names = frames_of(cases)
    frames = np.array([frame_index(model, name) for name in names])
    q = jnp.asarray(np.stack([case.q for case in cases]))
    every = np.asarray(elastic_jacobians(model, q, jnp.asarray(frames)))
    points = [own[[names.index(name) for name in case.points]] for own, case in zip(every, cases, strict=True)]
    return points, [own[names.index(case.frame)].T @ case.wrench for own, case in zip(every, cases, strict=True)]


def frames_of(cases: Sequence[LoadCase]) -> list[str]:
    """Loaded and measured frames."""
    return list(dict.fromkeys(name for case in cases for name in (case.frame, *case.points)))


def turning(model: Model, q: np.ndarray) -> Float[np.ndarray, "n k"]:
    """Derivative of all coordinates by each independent revolute one; dependent coordinates of loops included."""
    given = [model.coordinates.index(name) for name in independent_coordinates(model)]
    return np.asarray(nearby_motion_map(model, jnp.asarray(q)))[:, [model.revolute[i] for i in given]]


def observation(
    at_point: Float[np.ndarray, "m e"], effort: Float[np.ndarray, "m e"], terms: Sequence[Term]
) -> Float[np.ndarray, "m d"]:
    """Observation matrix A [rows, parameter]: displacements are A times the compliances.

    The column of the entry (a, b) is J_p[:, a] (J_l[:, b]^T w). See `elastic_rows`.

    Raises:
        ValueError: a term has an entry outside the machine's degrees of freedom.

    Source: Klimchik et al. 2014, eq. 3-6 and 12; Dumas et al. 2011, eq. 16-17.
    """
    size = at_point.shape[1]
    matrix = np.zeros((len(at_point), len(terms)))
    for i, term in enumerate(terms):
        for a, b in term:
            if not (0 <= a < size and 0 <= b < size):
                raise ValueError(f"term {i} has the entry ({a}, {b}), expected indices below {size}")
            matrix[:, i] += at_point[:, a] * effort[:, b]
    return matrix


def observation_matrix(model: Model, cases: Sequence[LoadCase], terms: Sequence[Term]) -> Float[np.ndarray, "m d"]:
    """Observation matrix A [rows, parameter] of all load cases: `measured_displacements` are A times the compliances
    [m/N, m/(N m) or rad/(N m)] of the terms, to first order in the load; see `observation`."""
    return observation(*elastic_rows(model, cases)[:2], terms)


@compiled
def elastic_jacobians(
    model: Model, q: Float[Array, "t n"], frames: Int[Array, "f"], e: Float[Array, "t e"] | None = None
) -> Float[Array, "t f 6 e"]:
    """Elastic Jacobians of frames, given by their indices, at some postures and deflections, by default 0."""

    def of_frames(at: Array, deflection: Array | None) -> Array:
        return jax.vmap(lambda index: elastic_jacobian(model, at, index, deflection))(frames)

    return jax.vmap(of_frames, (0, None if e is None else 0))(q, e)


def equilibria(model: Model, cases: Sequence[LoadCase], weight: bool = False) -> list[np.ndarray]:
    """Displacements [p, 6], m and rad, of the points of each load case at the nonlinear equilibrium under the load.

    Args:
        model: the machine.
        cases: load cases.
        weight: whether it deflects under its weight before; see `deflection`.

    Raises:
        ValueError: no equilibrium was found; the load case is named.
    """
    found = [
        np.asarray(
            deflection(model, jnp.asarray(case.q), case.frame, jnp.asarray(case.wrench), case.points, False, weight)
        )
        for case in cases
    ]
    for case, displacements in zip(cases, found, strict=True):
        if not np.all(np.isfinite(displacements)):
            raise ValueError(f"deflection test '{case.name}': no equilibrium under the load was found")
    return found


def predicted(model: Model, cases: Sequence[LoadCase], gravity: bool = False) -> list[np.ndarray]:
    """Displacements [p, 6], m and rad, of the points of each load case, to first order in the load."""
    c = np.asarray(compliances(model, jnp.asarray(np.stack([case.q for case in cases])), gravity))
    parts = zip(*case_jacobians(model, cases), c, strict=True)
    return [np.einsum("pxe,ef,f->px", jacobian, own, effort) for jacobian, effort, own in parts]


@compiled
def compliances(model: Model, q: Float[Array, "t n"], gravity: bool = False) -> Float[Array, "t e e"]:
    """Compliance of all elastic degrees of freedom at some postures [t, e, e] (see `compliance_matrix`)."""
    return jax.vmap(lambda at: compliance_matrix(model, at, gravity))(q)


SINGULAR = 1e-3
"""Least over largest singular value of the Jacobian columns of two joints, of length 1, below which a posture counts as
singular."""


def true_case(model: Model, case: LoadCase, errors: Float[np.ndarray, "k"]) -> LoadCase:
    """A load case with the posture and load displaced by errors of the instruments.

    Errors of the force are in magnitude, direction and point of application; its moment follows. A pure moment has
    none.

    Args:
        model: the machine.
        case: posture and load as stated.
        errors: [7 + n], in the order of `Instruments.case_std`, N, rad and m.
    """
    q = displaced_posture(model, case.q, errors[7:])
    size = float(np.linalg.norm(case.wrench[:3]))
    if size == 0.0:
        return dataclasses.replace(case, q=q)
    wrench = case.wrench * (1.0 + errors[0] / size)
    force, moment = wrench[:3], wrench[3:]
    turn, offset = errors[1:4], errors[4:7]
    turned = scipy.spatial.transform.Rotation.from_rotvec(turn).apply(force)
    moment = moment + np.cross(np.cross(force, moment) / (force @ force), turned - force) + np.cross(offset, turned)
    return dataclasses.replace(case, q=q, wrench=np.concatenate([turned, moment]))


def displaced_posture(model: Model, q: Float[np.ndarray, "n"], error: Float[np.ndarray, "n"]) -> np.ndarray:
    """A posture with errors (rad, m) of its independent coordinates, loops closed."""
    displaced = q + error
    if not model.loops:
        return displaced
    q = nearest_posture(model, q)
    if not error.any():
        return q
    given = {name: displaced[model.coordinates.index(name)] for name in independent_coordinates(model)}
    return np.asarray(close_loops(model, given, jnp.asarray(q)))


def repeat_columns(model: Model, cases: Sequence[LoadCase], std: float) -> list[Float[np.ndarray, "p 6 k"]]:
    """Displacements of the points of each case for a rotation of each independent revolute coordinate by `std`, rad."""
    jacobians, _ = case_jacobians(model, cases)
    turns = [std * turning(model, case.q) for case in cases]
    return [jacobian[..., : len(turn)] @ turn for jacobian, turn in zip(jacobians, turns, strict=True)]


def common_errors(
    model: Model, cases: Sequence[LoadCase], errors: Instruments, gravity: bool
) -> list[Float[np.ndarray, "m k"]]:
    """Changes G of the measured displacements of each case by one standard deviation of each common error.

    These are the errors of load and posture (`true_case`), by central differences, and `repeat_deg`. They add G G^T to
    the covariance of the displacements of a case.

    Args:
        model: the machine; its stiffness determines the displacements, which are 0 without stiffness.
        cases: load cases.
        errors: of the instruments.
        gravity: whether gravity stiffness is included.
    """
    std = errors.case_std(model.revolute)
    acting = np.flatnonzero(std)
    steps = [sign * row for row in np.diag(std)[acting] for sign in (1.0, -1.0)]
    found = repeat_columns(model, cases, errors.repeat_std)
    if acting.size:
        true = [true_case(model, case, step) for case in cases for step in steps]
        displacements = iter(predicted(model, true, gravity))
        for i in range(len(cases)):
            columns = np.stack([0.5 * (next(displacements) - next(displacements)) for _ in acting], axis=-1)
            found[i] = np.concatenate([found[i], np.where(np.isfinite(columns), columns, 0.0)], axis=-1)
    return [columns[case.measured] for columns, case in zip(found, cases, strict=True)]


def singular_postures(model: Model, cases: Sequence[LoadCase]) -> list[str]:
    """A clause on each load case whose posture is singular: two joints have nearly equal effect.

    Columns of three or more joints may be dependent, as of parallel axes: displacements under several loads still
    determine the compliance of each, since the matrices j j^T of columns j in different directions are independent.
    """
    found = list[str]()
    for frame in dict.fromkeys(case.frame for case in cases):
        of_frame = [case for case in cases if case.frame == frame]
        columns = np.array(_joint_columns(model, jnp.asarray(np.stack([case.q for case in of_frame])), frame))
        # compliant joints between ground and the frame
        carrying = np.any(columns != 0.0, axis=(0, 1)) & ~np.array(model.locked)
        columns, names = columns[:, :, carrying], np.array(model.coordinates)[carrying]
        if not columns.size:
            continue
        columns[:, :3] /= np.linalg.norm(columns[:, :3], axis=1).max() or 1.0  # by the longest lever
        columns /= np.maximum(np.linalg.norm(columns, axis=1, keepdims=True), SMALLEST_COLUMN)
        cosine = np.triu(np.abs(np.swapaxes(columns, 1, 2) @ columns), 1)
        for case, each in zip(of_frame, cosine, strict=True):
            pair = np.unravel_index(np.argmax(each), each.shape)
            ratio = math.sqrt(max(1.0 - float(each[pair]), 0.0) / (1.0 + float(each[pair])))
            if ratio < SINGULAR:
                found.append(
                    f"deflection test '{case.name}': its posture is singular, {' and '.join(names[list(pair)])} have"
                    f" nearly equal effect (least over largest singular value of their Jacobian {ratio:.2g}, expected"
                    f" at least {SINGULAR:g})"
                )
    return found


@compiled
def _joint_columns(model: Model, q: Float[Array, "t n"], frame: str) -> Float[Array, "t 6 n"]:
    return jax.vmap(lambda at: elastic_jacobian(model, at, frame)[:, : len(model.coordinates)])(q)


class Decorrelation(eqx.Module):
    """Combinations of the rows of each load case with independent errors of the rows' own standard deviations.

    With S the covariance of the errors of a case and D their independent part, diagonal, row i becomes sum_k W_ik x_k,
    W = D^(1/2) L^-1, S = L L^T. Least squares of these rows is generalized least squares of the measured ones.
    """

    factor: Float[Array, "m k"] | Float[np.ndarray, "m k"]
    row: Int[Array, "m k"] | Int[np.ndarray, "m k"]

    def of(self, x: np.ndarray | Array) -> np.ndarray | Array:
        """The combinations of rows [m] or [m, d]."""
        xp = x.__array_namespace__()
        factor, row = (xp.asarray(part) for part in (self.factor, self.row))
        return xp.einsum("mk,mk...->m...", factor, x[row])


def decorrelation(common: Sequence[Float[np.ndarray, "m k"]], std: Float[np.ndarray, "m"]) -> Decorrelation:
    """Combinations of the rows of each load case with independent errors, for S = diag(std^2) + G G^T.

    Args:
        common: G of each case, from `common_errors`.
        std: of the independent errors of all rows, m and rad.
    """
    most = max(map(len, common))
    factor, row, first = np.zeros((std.size, most)), np.zeros((std.size, most), dtype=int), 0
    for columns in common:
        size = len(columns)
        own, first = slice(first, first + size), first + size
        # S = D^(1/2) R^T R D^(1/2); unlike a factorization of S, this one is stable for any size of G
        _, upper = np.linalg.qr(np.concatenate([np.eye(size), (columns / std[own, None]).T]))
        upper *= np.sign(np.diag(upper))[:, None]
        factor[own, :size] = np.linalg.solve(upper.T, np.eye(size)) * std[own, None] / std[own]
        row[own, :size] = np.arange(own.start, own.stop)
    return Decorrelation(factor, row)


LEAST_DEGREES = 10
"""Smallest number of degrees of freedom for a standard deviation: its relative error is then 22 %."""


class Repeatability(NamedTuple):
    """Repeatability of translations and of rotations: scatter of repeated tests about their means."""

    std: tuple[float, float]
    """Pooled standard deviation, m and rad; NaN where there were no repetitions."""
    degrees: tuple[int, int]
    """Degrees of freedom."""
    chi_square: tuple[float, float]
    """Sums of squares over the stated variances."""
    groups: int
    """Number of combinations of posture and load that were repeated."""


def repeatability(cases: Sequence[LoadCase]) -> Repeatability:
    """Repeatability of load cases; cases with equal postures, loads and points are repetitions.

    Args:
        cases: load cases with their stated standard deviations.

    Source: pooled variance of ISO 5725-2.
    """
    known: dict[tuple, list[LoadCase]] = {}
    for case in cases:
        numbers = (tuple(float(f"{x:.9g}") for x in part) for part in (case.q, case.wrench))
        known.setdefault((case.frame, case.points, *numbers), []).append(case)
    groups = [group for group in known.values() if len(group) > 1]
    squares, over, degrees = np.zeros(2), np.zeros(2), np.zeros(2, dtype=int)
    for group in groups:
        displacements = np.stack([case.displacement for case in group])
        seen = np.isfinite(displacements)
        count = seen.sum(axis=0)
        # from the smallest one, so that equal displacements have no scatter by rounding of their mean
        above = np.where(seen, displacements - np.min(np.where(seen, displacements, np.inf), axis=0), 0.0)
        errors = np.where(seen, above - above.sum(axis=0) / np.maximum(count, 1), 0.0)
        scaled = np.where(seen, errors / np.stack([case.std for case in group]), 0.0)
        for kind, columns in enumerate((slice(0, 3), slice(3, 6))):
            squares[kind] += np.sum(errors[..., columns] ** 2)
            over[kind] += np.sum(scaled[..., columns] ** 2)
            degrees[kind] += int(np.sum(np.maximum(count[:, columns] - 1, 0)))
    std = np.where(degrees > 0, np.sqrt(squares / np.maximum(degrees, 1)), np.nan)
    return Repeatability((float(std[0]), float(std[1])), (int(degrees[0]), int(degrees[1])),
                         (float(over[0]), float(over[1])), len(groups))  # fmt: skip
