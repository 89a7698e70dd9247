"""What a deflection test was made of: its load cases, and what measured them."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.spatial.transform import Rotation

from jaxmb.compiled import compiled
from jaxmb.identify.estimation.identifiability import NOTABLE
from jaxmb.identify.experiments.deflections.instruments import Instruments
from jaxmb.identify.experiments.deflections.load_cases import (
    LoadCase,
    check_cases,
    point_jacobians,
    predicted,
    turning,
)
from jaxmb.identify.experiments.entry import Source
from jaxmb.machine.build import Model
from jaxmb.mechanics.compliance import elastic_jacobian
from jaxmb.mechanics.loops import independent_coordinates
from jaxmb.mechanics.postures import close_loops

SINGULAR = 1e-3
"""Least singular value of the joints' Jacobian over the largest, below which a posture is called singular."""


@dataclasses.dataclass(frozen=True, eq=False)
class DeflectionSource(Source):
    """Load cases that belong together: one table, or one plan."""

    cases: tuple[LoadCase, ...] = ()
    instruments: Instruments | None = None
    rotation_weight: float = 1.0
    """By which the squared error of a rotation counts beside that of a translation."""

    @property
    def loads(self) -> np.ndarray:
        """Wrenches [case, 6] on the machine."""
        return np.stack([case.wrench for case in self.cases])

    def check_linear(self, model: Model) -> None:
        """Raise ValueError where a load case is not the machine's, or its posture is singular; it is named."""
        check_cases(model, self.cases)
        check_postures(model, self.cases)


def true_case(model: Model, case: LoadCase, errors: Instruments, z: Float[np.ndarray, "k"]) -> LoadCase:
    """A load case with its true posture and load, where the stated ones have errors.

    The force has another size, direction and point of application, and its moment goes with it; a pure moment has no
    errors.

    Args:
        model: the machine.
        case: posture and load as stated.
        errors: of the instruments.
        z: errors over their standard deviations [7 + n]: of the balance, of the direction of the force about each
            ground axis, of its point of application along each, and of the encoder of each coordinate.
    """
    q = _with_encoder_errors(model, case.q, errors.coordinate_std * z[7:])
    size = float(np.linalg.norm(case.wrench[:3]))
    if size == 0.0:
        return dataclasses.replace(case, q=q)
    wrench = case.wrench * (1.0 + errors.force_std * z[0] / size)
    force, moment = wrench[:3], wrench[3:]
    turn, offset = errors.direction_std * z[1:4], errors.lever_std * z[4:7]
    if turn.any():
        turned = Rotation.from_rotvec(turn).apply(force)
        moment = moment + np.cross(np.cross(force, moment) / (force @ force), turned - force)
        force = turned
    if offset.any():
        moment = moment + np.cross(offset, force)
    return dataclasses.replace(case, q=q, wrench=np.concatenate([force, moment]))


def _with_encoder_errors(model: Model, q: Float[np.ndarray, "n"], error: Float[np.ndarray, "n"]) -> np.ndarray:
    """A posture with other revolute coordinates, rad; those that follow from loops follow."""
    if not error.any():
        return q
    there = q + error * np.array(model.revolute)
    if not model.loops:
        return there
    given = {name: there[model.coordinates.index(name)] for name in independent_coordinates(model)}
    return np.asarray(close_loops(model, given, jnp.asarray(q)))


def repeat_columns(model: Model, cases: Sequence[LoadCase], std: float) -> list[Float[np.ndarray, "p 6 k"]]:
    """Displacements of the points of each case as each independent revolute coordinate turns by `std`, rad."""
    jacobians = point_jacobians(model, cases)
    turns = [std * turning(model, case.q) for case in cases]
    return [jacobian[..., : len(turn)] @ turn for jacobian, turn in zip(jacobians, turns, strict=True)]


def common_errors(
    model: Model, cases: Sequence[LoadCase], errors: Instruments, gravity: bool
) -> list[Float[np.ndarray, "m k"]]:
    """Changes G of the measured displacements of each case by a standard deviation of each error common to them.

    These are the errors of load and posture (`true_case`), by central differences, and `repeat_deg`. They add G G^T to
    the covariance of the displacements of a case.

    Args:
        model: the machine, whose stiffness gives the displacements; one without stiffness has none.
        cases: loads, and what was measured.
        errors: of the instruments.
        gravity: whether gravity's stiffness acts.
    """
    std = [errors.force_std, *[errors.direction_std] * 3, *[errors.lever_std] * 3]
    acting = np.flatnonzero(np.array([*std, *errors.coordinate_std * np.array(model.revolute)]))
    steps = [sign * row for row in np.eye(len(std) + len(model.coordinates))[acting] for sign in (1.0, -1.0)]
    found = repeat_columns(model, cases, errors.repeat_std)
    if acting.size:
        true = [true_case(model, case, errors, step) for case in cases for step in steps]
        moved = iter(predicted(model, true, gravity))
        for i in range(len(cases)):
            columns = np.stack([0.5 * (next(moved) - next(moved)) for _ in acting], axis=-1)
            found[i] = np.concatenate([found[i], np.where(np.isfinite(columns), columns, 0.0)], axis=-1)
    return [columns[case.measured] for columns, case in zip(found, cases, strict=True)]


def check_postures(model: Model, cases: Sequence[LoadCase]) -> None:
    """Raise ValueError where the posture of a test is singular: there two joints act alike; the test is named."""
    for test, (ratio, alike) in zip(cases, _conditioning(model, cases), strict=True):
        if ratio < SINGULAR:
            raise ValueError(
                f"deflection test '{test.name}': its posture is singular, {' and '.join(alike)} act nearly alike there"
                f" (least over largest singular value of the Jacobian {ratio:.2g}, expected at least {SINGULAR:g}):"
                " expected a posture some degrees away, or the study without this test"
            )


def _conditioning(model: Model, cases: Sequence[LoadCase]) -> list[tuple[float, list[str]]]:
    """Least over largest singular value of the joints' Jacobian at each load, lengths over the longest lever, and the
    joints that the least one is of [t]."""
    conditions: list[tuple[float, list[str]]] = [(1.0, [])] * len(cases)
    for frame in {test.frame for test in cases}:
        of_frame = [i for i, test in enumerate(cases) if test.frame == frame]
        columns = np.array(_joint_columns(model, jnp.asarray(np.stack([cases[i].q for i in of_frame])), frame))
        carrying = np.any(columns != 0.0, axis=(0, 1))  # joints that carry the frame
        columns, names = columns[:, :, carrying], np.array(model.coordinates)[carrying]
        if columns.size:
            length = np.linalg.norm(columns[:, :3], axis=1).max() or 1.0
            columns[:, :3] /= length
            _, size, right = np.linalg.svd(columns, full_matrices=False)
            for i, sizes, parts in zip(of_frame, size, np.abs(right[:, -1]), strict=True):
                conditions[i] = float(sizes[-1] / sizes[0]), names[parts >= NOTABLE * parts.max()].tolist()
    return conditions


@compiled
def _joint_columns(model: Model, q: Float[Array, "t n"], frame: str) -> Float[Array, "t 6 n"]:
    return jax.vmap(lambda at: elastic_jacobian(model, at, frame)[:, : len(model.coordinates)])(q)
