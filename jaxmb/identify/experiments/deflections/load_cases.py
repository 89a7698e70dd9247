"""Load cases of a machine with the measured displacements of points, and their observation matrix for compliances."""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmb.compiled import compiled
from jaxmb.io.validation import check_known
from jaxmb.machine.build import Model
from jaxmb.mechanics.compliance import compliance_matrix, elastic_jacobian
from jaxmb.mechanics.kinematics import ELASTIC_AXES, frame_index
from jaxmb.mechanics.loops import check_closed, independent_coordinates, motion_map
from jaxmb.response.static import deflection

Term = tuple[tuple[int, int], ...]
"""Entries (row, column) of the compliance of all elastic degrees of freedom that one parameter represents."""


LARGEST_DISPLACEMENT = 0.2
"""m or rad; a larger value indicates a wrong unit."""
LARGEST_WRENCH = 1e9
"""N or Nm."""
LEAST_STD, LARGEST_STD = 1e-12, 10.0
"""m or rad: below the resolution of any instrument, above any useful measurement."""
LARGEST_ANGLE, LARGEST_TRAVEL = 4.0 * math.pi, 100.0
"""rad and m, of a coordinate; a larger value indicates a wrong unit."""


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
            raise ValueError(f"{location}: wrench has {load:g} N or Nm, expected at most {LARGEST_WRENCH:g}")
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
        if not np.all(stds > 0.0):
            raise ValueError(f"{location}: a standard deviation is not above 0")
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


def check_names(cases: Sequence[LoadCase]) -> None:
    """Raise ValueError where two cases of one set have the same name."""
    seen: set[str] = set()
    for test in cases:
        if test.name in seen:
            raise ValueError(f"deflection test '{test.name}' is there twice, expected a name for each test")
        seen.add(test.name)


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
    """Measured displacements of all cases, stacked [rows], and their standard deviations."""
    values = [test.displacement[test.measured] for test in cases]
    return np.concatenate(values), np.concatenate([test.std[test.measured] for test in cases])


def joint_terms(model: Model, names: Sequence[str]) -> list[Term]:
    """Terms of the compliances of coordinates."""
    check_known("coordinate", names, model.coordinates)
    return [((model.coordinates.index(name), model.coordinates.index(name)),) for name in names]


def spring_term(model: Model, spring: str, a: str, b: str, symmetric: bool = True) -> Term:
    """Term of one entry of a virtual spring's compliance, in both triangles if symmetric."""
    check_known("virtual spring", [spring], model.virtual_springs)
    first = len(model.coordinates) + 6 * model.virtual_springs.index(spring)
    row, column = first + ELASTIC_AXES.index(a), first + ELASTIC_AXES.index(b)
    return ((row, column), (column, row)) if symmetric and row != column else ((row, column),)


class ElasticRows(NamedTuple):
    """Stacked measured displacements: displacement = a C b, with C the compliance of all e elastic degrees of
    freedom."""

    at_point: Float[np.ndarray, "m e"]
    """a: row of the measured point's elastic Jacobian."""
    effort: Float[np.ndarray, "m e"]
    """b = J_l^T w of the loaded frame."""
    case: Int[np.ndarray, "m"]
    """Load case of each row."""


def elastic_rows(model: Model, cases: Sequence[LoadCase]) -> ElasticRows:
    """The rows of all measured displacements of some load cases."""
    at_point, effort = [np.zeros(0)] * len(cases), [np.zeros(0)] * len(cases)
    for members, (jacobians, efforts) in _grouped(model, cases):
        for k, i in enumerate(members):
            at_point[i] = jacobians[k][cases[i].measured]
            effort[i] = np.broadcast_to(efforts[k], at_point[i].shape)
    number = np.repeat(np.arange(len(cases)), [len(rows) for rows in at_point])
    return ElasticRows(np.concatenate(at_point), np.concatenate(effort), number)


def point_jacobians(model: Model, cases: Sequence[LoadCase]) -> list[Float[np.ndarray, "p 6 e"]]:
    """Elastic Jacobian of all points of each load case; its first columns are those of the coordinates."""
    found: dict[int, np.ndarray] = {}
    for members, (jacobians, _) in _grouped(model, cases):
        found |= dict(zip(members, jacobians, strict=True))
    return [found[i] for i in range(len(cases))]


def turning(model: Model, q: np.ndarray) -> Float[np.ndarray, "n k"]:
    """Derivative of all coordinates by each independent revolute one; dependent coordinates of loops included."""
    given = [model.coordinates.index(name) for name in independent_coordinates(model)]
    return np.asarray(motion_map(model, jnp.asarray(q)))[:, [model.revolute[i] for i in given]]


def observation(rows: ElasticRows, terms: Sequence[Term]) -> Float[np.ndarray, "m d"]:
    """Observation matrix A [rows, parameter]: displacements are A times the compliances.

    The column of the entry (a, b) is J_p[:, a] (J_l[:, b]^T w).

    Raises:
        ValueError: a term has an entry outside the machine's degrees of freedom.

    Source: Klimchik et al. 2014, eq. 3-6 and 12; Dumas et al. 2011, eq. 16-17.
    """
    size = rows.at_point.shape[1]
    matrix = np.zeros((len(rows.case), len(terms)))
    for i, term in enumerate(terms):
        for a, b in term:
            if not (0 <= a < size and 0 <= b < size):
                raise ValueError(f"term {i} has the entry ({a}, {b}), expected indices below {size}")
            matrix[:, i] += rows.at_point[:, a] * rows.effort[:, b]
    return matrix


def observation_matrix(model: Model, cases: Sequence[LoadCase], terms: Sequence[Term]) -> Float[np.ndarray, "m d"]:
    """`observation` of all load cases."""
    return observation(elastic_rows(model, cases), terms)


def _grouped(model: Model, cases: Sequence[LoadCase]) -> list[tuple[list[int], tuple[np.ndarray, np.ndarray]]]:
    """Load cases grouped by frames, with their Jacobians [t, p, 6, e] and generalized forces J_l^T w [t, e]."""
    groups: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for i, test in enumerate(cases):
        groups.setdefault((test.frame, test.points), []).append(i)
    found = []
    for (frame, points), members in groups.items():
        q = jnp.asarray(np.stack([cases[i].q for i in members]))
        wrench = jnp.asarray(np.stack([cases[i].wrench for i in members]))
        parts = _jacobians(model, q, wrench, frame_index(model, frame), tuple(frame_index(model, p) for p in points))
        found.append((members, tuple(np.asarray(part) for part in parts)))
    return found


@compiled
def _jacobians(
    model: Model, q: Float[Array, "t n"], wrench: Float[Array, "t 6"], frame: int, points: tuple[int, ...]
) -> tuple[Array, Array]:
    def one(at: Array, load: Array) -> tuple[Array, Array]:
        loaded = elastic_jacobian(model, at, model.frames[frame])
        jacobians = [loaded if p == frame else elastic_jacobian(model, at, model.frames[p]) for p in points]
        return jnp.stack(jacobians), loaded.T @ load

    return jax.vmap(one)(q, wrench)


def equilibria(model: Model, cases: Sequence[LoadCase]) -> list[np.ndarray]:
    """Displacements [p, 6] of the points of each load case at the nonlinear equilibrium under the load.

    Raises:
        ValueError: no equilibrium was found; the load case is named.
    """
    found = []
    for test in cases:
        displacements = np.asarray(
            deflection(model, jnp.asarray(test.q), test.frame, jnp.asarray(test.wrench), test.points, linear=False)
        )
        if not np.all(np.isfinite(displacements)):
            raise ValueError(f"deflection test '{test.name}': no equilibrium under the load was found")
        found.append(displacements)
    return found


def predicted(model: Model, cases: Sequence[LoadCase], gravity: bool = False) -> list[np.ndarray]:
    """Displacements [p, 6] of the points of each load case, to first order in the load."""
    found: dict[int, np.ndarray] = {}
    for group, (at_points, effort) in _grouped(model, cases):
        c = np.asarray(compliances(model, jnp.asarray(np.stack([cases[i].q for i in group])), gravity))
        displacements = np.einsum("tpxe,tef,tf->tpx", at_points, c, effort)
        found |= dict(zip(group, displacements, strict=True))
    return [found[i] for i in range(len(cases))]


@compiled
def compliances(model: Model, q: Float[Array, "t n"], gravity: bool = False) -> Float[Array, "t e e"]:
    """Compliance of all elastic degrees of freedom at some postures [t, e, e] (see `compliance_matrix`)."""
    return jax.vmap(lambda at: compliance_matrix(model, at, gravity))(q)
