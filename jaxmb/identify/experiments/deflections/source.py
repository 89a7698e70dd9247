"""Source of a deflection test: its load cases and instruments; effect of instrument errors."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.identify.estimation.identifiability import NOTABLE
from jaxmb.identify.experiments.deflections.load_cases import (
    LoadCase,
    check_cases,
    elastic_rows,
    point_jacobians,
    predicted,
    turning,
)
from jaxmb.identify.experiments.entry import Source
from jaxmb.identify.experiments.tolerances import Instruments, StatedError, joint_kind
from jaxmb.machine.build import Model
from jaxmb.mechanics.compliance import elastic_jacobian
from jaxmb.mechanics.loops import independent_coordinates
from jaxmb.mechanics.postures import close_loops

SINGULAR = 1e-3
"""Least over largest singular value of the joints' Jacobian below which a posture counts as singular."""


@dataclasses.dataclass(frozen=True, eq=False)
class DeflectionSource(Source):
    """Load cases of one table or one plan."""

    cases: tuple[LoadCase, ...] = ()
    instruments: Instruments | None = None
    rotation_weight: float = 1.0
    """Weight of the squared error of a rotation, relative to that of a translation."""

    @property
    def loads(self) -> np.ndarray:
        """Wrenches [case, 6] on the machine."""
        return np.stack([case.wrench for case in self.cases])

    def errors(self, test: Any, model: Model) -> Iterator[StatedError]:
        """Errors of the loads, common to all cases, and of the zeros of coordinates."""
        return (error for error, _ in self._errors(test.name, model))

    def _errors(self, name: str, model: Model) -> Iterator[tuple[StatedError, int]]:
        """Errors with their index in the errors of `true_case`; 0 for the size of the loads."""
        yield StatedError(f"size of loads of {name}", "load_percent", 0.01), 0
        for i, axis in enumerate("XYZ"):
            error = StatedError(f"direction of loads of {name} about {axis}", "load_direction_deg", np.pi / 180.0)
            yield error, 1 + i
            yield StatedError(f"lever of loads of {name} along {axis}", "load_lever_mm", 1e-3), 4 + i
        for coordinate in independent_coordinates(model):
            k = model.coordinates.index(coordinate)
            if model.revolute[k] and coordinate in model.joints:
                yield StatedError(f"zero of {coordinate}", *joint_kind("joint_zero", True)), 7 + k

    def residual_with(self, test: Any, model: Model, errors: Mapping[str, float]) -> np.ndarray:
        """Residual of the test with its description corrected; see `Source`."""
        z, larger = np.zeros(7 + len(model.coordinates)), 1.0
        for error, i in self._errors(test.name, model):
            if i:
                z[i] = errors.get(error.key, 0.0)
            else:
                larger += errors.get(error.key, 0.0)
        cases = [true_case(model, dataclasses.replace(c, wrench=larger * c.wrench), ONE, z) for c in self.cases]
        there = self.with_cases(test, model, cases)
        return np.asarray(there.residual(there.view(model)))

    def with_cases(self, test: Any, model: Model, cases: Sequence[LoadCase]) -> Any:
        """The test with its postures, points and loads as those of other cases on a machine."""
        rows = elastic_rows(model, cases)
        return dataclasses.replace(
            test,
            q=jnp.asarray(np.stack([case.q for case in cases])),
            at_point=jnp.asarray(rows.at_point),
            effort=jnp.asarray(rows.effort),
        )

    def check_linear(self, model: Model) -> None:
        """Raise ValueError, naming the load case, where it does not match the machine or its posture is singular."""
        check_cases(model, self.cases)
        check_postures(model, self.cases)


ONE = Instruments(tracker_mm=1.0, direction_deg=180.0 / np.pi, lever_mm=1e3, encoder_deg=180.0 / np.pi)
"""Instruments whose errors of direction, lever and encoders are 1 rad and 1 m."""


def true_case(model: Model, case: LoadCase, errors: Instruments, z: Float[np.ndarray, "k"]) -> LoadCase:
    """A load case with the posture and load displaced by instrument errors.

    Errors of the force are in magnitude, direction and point of application; its moment follows. A pure moment has
    none.

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
        turned = scipy.spatial.transform.Rotation.from_rotvec(turn).apply(force)
        moment = moment + np.cross(np.cross(force, moment) / (force @ force), turned - force)
        force = turned
    if offset.any():
        moment = moment + np.cross(offset, force)
    return dataclasses.replace(case, q=q, wrench=np.concatenate([force, moment]))


def _with_encoder_errors(model: Model, q: Float[np.ndarray, "n"], error: Float[np.ndarray, "n"]) -> np.ndarray:
    """A posture with errors (rad) of its independent revolute coordinates, loops closed."""
    if not error.any():
        return q
    displaced = q + error * np.array(model.revolute)
    if not model.loops:
        return displaced
    given = {name: displaced[model.coordinates.index(name)] for name in independent_coordinates(model)}
    return np.asarray(close_loops(model, given, jnp.asarray(q)))


def repeat_columns(model: Model, cases: Sequence[LoadCase], std: float) -> list[Float[np.ndarray, "p 6 k"]]:
    """Displacements of the points of each case for a rotation of each independent revolute coordinate by `std`, rad."""
    jacobians = point_jacobians(model, cases)
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
    std = [errors.force_std, *[errors.direction_std] * 3, *[errors.lever_std] * 3]
    acting = np.flatnonzero(np.array([*std, *errors.coordinate_std * np.array(model.revolute)]))
    steps = [sign * row for row in np.eye(len(std) + len(model.coordinates))[acting] for sign in (1.0, -1.0)]
    found = repeat_columns(model, cases, errors.repeat_std)
    if acting.size:
        true = [true_case(model, case, errors, step) for case in cases for step in steps]
        displacements = iter(predicted(model, true, gravity))
        for i in range(len(cases)):
            columns = np.stack([0.5 * (next(displacements) - next(displacements)) for _ in acting], axis=-1)
            found[i] = np.concatenate([found[i], np.where(np.isfinite(columns), columns, 0.0)], axis=-1)
    return [columns[case.measured] for columns, case in zip(found, cases, strict=True)]


def check_postures(model: Model, cases: Sequence[LoadCase]) -> None:
    """Raise ValueError, naming the load case, where its posture is singular: two joints have nearly equal effect."""
    for test, (ratio, joints) in zip(cases, _conditioning(model, cases), strict=True):
        if ratio < SINGULAR:
            raise ValueError(
                f"deflection test '{test.name}': its posture is singular, {' and '.join(joints)} have nearly equal"
                f" effect (least over largest singular value of the Jacobian {ratio:.2g}, expected at least"
                f" {SINGULAR:g}):"
                " change the posture by some degrees, or remove this test"
            )


def _conditioning(model: Model, cases: Sequence[LoadCase]) -> list[tuple[float, list[str]]]:
    """Least over largest singular value of the joints' Jacobian at each load, lengths scaled by the longest lever, and
    the joints of the least one [t]."""
    conditions: list[tuple[float, list[str]]] = [(1.0, [])] * len(cases)
    for frame in {test.frame for test in cases}:
        of_frame = [i for i, test in enumerate(cases) if test.frame == frame]
        columns = np.array(_joint_columns(model, jnp.asarray(np.stack([cases[i].q for i in of_frame])), frame))
        carrying = np.any(columns != 0.0, axis=(0, 1))  # joints between ground and the frame
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
