"""Source of a deflection test: its load cases and instruments; effect of instrument errors."""

import dataclasses
import functools
import itertools
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
    measured_displacements,
    point_jacobians,
    predicted,
    turning,
)
from jaxmb.identify.experiments.test import Source
from jaxmb.identify.experiments.tolerances import (
    USUAL_FACTORS,
    Instruments,
    StatedError,
    joint_kind,
    posture_text,
    usual,
)
from jaxmb.io.validation import display_name
from jaxmb.machine.build import Model
from jaxmb.mechanics.compliance import elastic_jacobian
from jaxmb.mechanics.kinematics import frame_pose
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
        """Errors of the loads, common to all cases, and of the zeros of coordinates and the postures."""
        return (error for error, _ in self._errors(test.name, model))

    def _errors(self, name: str, model: Model) -> Iterator[tuple[StatedError, int]]:
        """Errors with their index in the errors of `true_case`; 0 for the size of the loads."""
        text = functools.partial(loads_text, name)
        yield StatedError(f"size of loads of {name}", "load_percent", 0.01, text=text, most=np.inf, starts=FACTORS), 0
        for i, axis in enumerate("XYZ"):
            error = StatedError(f"direction of loads of {name} about {axis}", "load_direction_deg", np.pi / 180.0)
            yield error, 1 + i
            yield StatedError(f"lever of loads of {name} along {axis}", "load_lever_mm", 1e-3), 4 + i
        for coordinate in independent_coordinates(model):
            k = model.coordinates.index(coordinate)
            if model.revolute[k] and coordinate in model.joints:
                error = StatedError(f"zero of {coordinate}", *joint_kind("joint_zero", True))
                yield error, 7 + k
                of_test = error._replace(key=f"posture of {name} {coordinate}", kind="", size=np.pi / 180.0)
                yield (
                    of_test._replace(text=functools.partial(posture_text, coordinate, display_name(name), True)),
                    7 + k,
                )

    def corrected(self, test: Any, model: Model, errors: Mapping[str, float]) -> Any:
        """The test with its description corrected; see `Source`."""
        z, larger = np.zeros(7 + len(model.coordinates)), 1.0
        for error, i in self._errors(test.name, model):
            if i:
                z[i] += errors.get(error.key, 0.0)
            else:
                larger += errors.get(error.key, 0.0)
        cases = [true_case(model, _wide(model, c, larger), ONE, z) for c in self.cases]
        return self.with_cases(test, model, cases)

    def alternatives(self, test: Any, model: Model) -> Iterator[tuple[str, str, Any]]:
        """Reversed and exchanged axes of displacements and forces, displacements in the axes of the frame, columns
        without values, reversed joint angles, angles in degrees."""
        one, plain = np.eye(6), self.cases
        for what, field in (("displacement", "displacement"), ("force", "wrench")):
            for k, axis in enumerate("xyz"):
                text = f"the sign of {what} {axis}"
                yield text, text, self._turned(test, model, field, one - 2.0 * np.outer(one[k], one[k]))
            for i, k in itertools.combinations(range(3), 2):
                order = np.arange(6)
                order[[i, k]] = k, i
                text = f"exchanged {what}s {'xyz'[i]} and {'xyz'[k]}"
                yield text, text, self._turned(test, model, field, one[order])
            text = f"{what}s in the axes of {plain[0].frame}"
            yield text, text, self._turned(test, model, field, None)
        for k, axis in enumerate("xyz"):
            if not any(np.nan_to_num(case.displacement)[:, k].any() for case in plain):
                text, there = (
                    f"missing displacement {axis}, 0 throughout,",
                    self._turned(test, model, "displacement", one),
                )
                axes = np.concatenate([np.broadcast_to(np.arange(6), c.measured.shape)[c.measured] for c in plain])
                yield text, text, dataclasses.replace(there, std=jnp.where(jnp.asarray(axes == k), 1e3, there.std))
        if model.loops:
            return
        wide, factors = [_wide(model, case, 1.0) for case in plain], dict[str, np.ndarray]()
        revolute = np.array(model.revolute)
        for k in np.flatnonzero(revolute & np.any([case.q != 0.0 for case in wide], axis=0)).tolist():
            factors[f"the sign of angle {model.coordinates[k]}"] = np.where(np.arange(revolute.size) == k, -1.0, 1.0)
        if factors:
            factors["joint angles in degrees"] = np.where(revolute, np.pi / 180.0, 1.0)
        for text, factor in factors.items():
            yield text, text, self.with_cases(test, model, [dataclasses.replace(c, q=factor * c.q) for c in wide])

    def _turned(self, test: Any, model: Model, field: str, matrix: np.ndarray | None) -> Any:
        """The test with displacements or wrenches times a matrix; None for the axes of the frame of each case."""
        cases = list[LoadCase]()
        for case in self.cases:
            wide = _wide(model, case, 1.0)
            turn = matrix
            if turn is None:
                rotation = np.asarray(frame_pose(model, jnp.asarray(wide.q), case.frame))[:3, :3]
                turn = scipy.linalg.block_diag(rotation, rotation)
            if field == "wrench":
                cases.append(dataclasses.replace(wide, wrench=turn @ case.wrench))
            else:
                turned = np.nan_to_num(case.displacement) @ turn.T
                cases.append(dataclasses.replace(wide, displacement=np.where(case.measured, turned, np.nan)))
        displacement = jnp.asarray(measured_displacements(cases)[0])
        return dataclasses.replace(self.with_cases(test, model, cases), displacement=displacement)

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


FACTORS = tuple(sign * size**power - 1.0 for size in USUAL_FACTORS for power in (1, -1) for sign in (1.0, -1.0))
"""Starting values of the size of the loads: usual wrong factors."""


def loads_text(name: str, change: float) -> str:
    """Text of a factor on the loads of a test."""
    factor = 1.0 + change
    text = f"a factor of {factor:.3g} on the loads of {display_name(name)}, or {1.0 / factor:.3g} on its displacements"
    return text + usual(factor)


def _wide(model: Model, case: LoadCase, larger: float) -> LoadCase:
    """A load case for a machine with further coordinates behind those stated, under a larger load."""
    further = np.zeros(len(model.coordinates) - case.q.size)
    return dataclasses.replace(case, q=np.append(case.q, further), wrench=larger * case.wrench)


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
    for frame in dict.fromkeys(test.frame for test in cases):
        of_frame = [test for test in cases if test.frame == frame]
        columns = np.array(_joint_columns(model, jnp.asarray(np.stack([test.q for test in of_frame])), frame))
        carrying = np.any(columns != 0.0, axis=(0, 1))  # joints between ground and the frame
        columns, names = columns[:, :, carrying], np.array(model.coordinates)[carrying]
        if not columns.size:
            continue
        columns[:, :3] /= np.linalg.norm(columns[:, :3], axis=1).max() or 1.0  # by the longest lever
        _, size, right = np.linalg.svd(columns, full_matrices=False)
        for test, sizes, parts in zip(of_frame, size, np.abs(right[:, -1]), strict=True):
            ratio = float(sizes[-1] / sizes[0])
            if ratio < SINGULAR:
                joints = names[parts >= NOTABLE * parts.max()].tolist()
                raise ValueError(
                    f"deflection test '{test.name}': its posture is singular, {' and '.join(joints)} have nearly equal"
                    f" effect (least over largest singular value of the Jacobian {ratio:.2g}, expected at least"
                    f" {SINGULAR:g}): change the posture by some degrees, or remove this test"
                )


@compiled
def _joint_columns(model: Model, q: Float[Array, "t n"], frame: str) -> Float[Array, "t 6 n"]:
    return jax.vmap(lambda at: elastic_jacobian(model, at, frame)[:, : len(model.coordinates)])(q)
