"""Tests at one posture, and possible errors in their description: frequencies, channels, points, posture, payload."""

import abc
import dataclasses
import functools
import itertools
import math
from collections.abc import Collection, Iterator
from typing import Any, ClassVar, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmb.identify.experiments.components import Attached, Description, Evaluation, Vibration
from jaxmb.identify.experiments.machine_errors import MOST_FACTOR, loaded, payload_errors, turned
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.experiments.tolerances import (
    MOST_GAIN,
    TIME_BASE,
    StatedError,
    error_with_text,
    factor_number,
    factor_text,
    joint_tolerance,
    posture_text,
    times_text,
    zero_error,
)
from jaxmb.identify.experiments.vibration_view import (
    AffineVibration,
    VibrationView,
    ViewArguments,
    affine_vibration,
    restricted_view,
    vibration_view,
)
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.io.validation import display_name
from jaxmb.machine.build import Model
from jaxmb.mechanics.kinematics import FULL_TURN
from jaxmb.mechanics.loops import independent_coordinates, loop_closure, nearby_motion_map
from jaxmb.mechanics.tangent import LinearizeAt
from jaxmb.response.frf_kind import DIRECTIONS, GROUND_DIRECTIONS, Point, dof_names

P = TypeVar("P", bound="PostureTest")


class VibrationEvaluation(Evaluation[P]):
    """Evaluation with a precomputed affine view, where there is one."""

    def affine_view(self, model: Model, free: FreeParameters) -> AffineVibration | None:
        """The view as an affine function of the free values; None where it is not affine."""
        return affine_vibration(self.test.view_arguments, self.test.vibration.band_end_hz, model, free)


class PostureTest(Test[VibrationView]):
    """A test of linearized motion at one posture. Abstract."""

    q: eqx.AbstractVar[Float[Array, "n"]]
    at: eqx.AbstractVar[LinearizeAt]
    outputs: eqx.AbstractVar[tuple[Point, ...]]
    inputs: eqx.AbstractVar[tuple[Point, ...]]

    def view(self, model: Model) -> VibrationView:
        """Linearized motion of the machine at the test's posture."""
        return vibration_view(model, *self.view_arguments)

    @property
    def view_arguments(self) -> ViewArguments:
        """Arguments of `vibration_view` after the machine."""
        return self.q, self.at, self.outputs, self.inputs, self.feels_gravity, self.shares_energy

    evaluation = Attached[VibrationEvaluation[Any]](VibrationEvaluation)
    """Evaluation of its residual in a fit."""
    vibration: ClassVar[Attached[Vibration[Any]]]
    """Linearized motion at its posture."""

    @property
    def feels_gravity(self) -> bool:
        """Whether its sensors feel gravity as they tilt."""
        return False

    @property
    def shares_energy(self) -> bool:
        """Whether it needs the share of each spring in the strain energy of modes."""
        return False


FAR_ANGLES = tuple(np.radians([3.5, -3.5, 12.0, -12.0]).tolist())
"""rad, starts of joint angles: of arms of two and three joints, errors of 8 and 15 deg were reached from starts of half
to twice their size, also from others, but never from 0."""
FAR_LENGTHS = (0.03, -0.03, 0.1, -0.1)
"""m, starts of prismatic coordinates."""


class PostureErrors(NamedTuple):
    """Errors in the description of a test at one posture, 0 for a correct description.

    Posture and payload, gains, delays and frequencies, directions and positions of points.
    """

    log_frequency: Float[np.ndarray, ""] | Array
    """Logarithm of true over stated frequencies."""
    shift: Float[np.ndarray, ""] | Array
    """True minus stated frequencies of FRFs, rad/s."""
    loss: Float[np.ndarray, ""] | Array
    """True minus stated loss factor of all springs and beams, in FRFs."""
    log_damping: Float[np.ndarray, ""] | Array
    """Logarithm of stated over true damping ratios."""
    log_gain: Float[np.ndarray, "o"] | Array
    """Logarithm of true over stated gain of each output."""
    log_force_gain: Float[np.ndarray, "i"] | Array
    """Logarithm of true over stated gain of each input."""
    response: dict[str, Float[np.ndarray, "o"] | Array]
    """Sizes of errors in the response of each output, by name (`PostureDescription.responses`)."""
    decay: Float[np.ndarray, ""] | Array
    """True minus stated decay rate of the exponential window, 1/s."""
    posture: Float[np.ndarray, "n"] | Array
    """True minus stated joint coordinates, rad or m."""
    log_stiffness: Float[np.ndarray, "n"] | Array
    """Logarithm of the stiffness of each joint over that in other tests."""
    payload: Float[np.ndarray, "f"] | Array
    """Point mass at each frame of the machine, kg."""
    output_turn: Float[np.ndarray, "o 3"] | Array
    """Rotation of each output's direction about the axes it is stated in, rad."""
    output_shift: Float[np.ndarray, "o 3"] | Array
    """Displacement of each output along these axes, m."""
    input_turn: Float[np.ndarray, "i 3"] | Array
    input_shift: Float[np.ndarray, "i 3"] | Array
    moving: Int[Array, "k"] | None = None
    """Degrees of freedom of the machine, the others at rest; None: all."""


class PostureDescription(Description[P]):
    """Possible errors in the description of a test at one posture. Abstract."""

    responses: ClassVar[Collection[str]] = ()
    """Names of its errors in the responses of outputs."""

    def none(self, model: Model) -> PostureErrors:
        """No errors, for the joint coordinates of the machine as it is described."""
        outputs, inputs, number = len(self.test.outputs), len(self.test.inputs), np.zeros(())
        return PostureErrors(
            log_frequency=number,
            shift=number,
            loss=number,
            log_damping=number,
            log_gain=np.zeros(outputs),
            log_force_gain=np.zeros(inputs),
            response={name: np.zeros(outputs) for name in self.responses},
            decay=number,
            posture=np.zeros(min(len(model.joints), int(jnp.size(self.test.q)))),
            log_stiffness=np.zeros(len(model.joints)),
            payload=np.zeros(len(model.frames)),
            output_turn=np.zeros((outputs, 3)),
            output_shift=np.zeros((outputs, 3)),
            input_turn=np.zeros((inputs, 3)),
            input_shift=np.zeros((inputs, 3)),
        )

    @abc.abstractmethod
    def of_kind(self) -> Iterator[tuple[StatedError, str]]:
        """Errors of all channels or modes that its kind has alone, and their field of `PostureErrors` or name among
        `responses`."""

    def of_output(self, key: str, text: str) -> Iterator[tuple[StatedError, str]]:
        """Errors of an output beside its gain that its kind has alone, and their field or name; this default: none.

        Args:
            key: end of the keys.
            text: of the output.
        """
        return iter(())

    def errors(self, model: Model) -> Iterator[tuple[StatedError, PostureErrors]]:
        """Single errors, those common to all tests first."""
        test, none = self.test, self.none(model)
        where = display_name(test.name)
        own = error_with_text(
            f"frequencies of {test.name}", times_text, f"frequencies of {where}", size=0.01, starts=TIME_BASE.starts
        )
        for error, field in ((TIME_BASE, "log_frequency"), (own, "log_frequency"), *self.of_kind()):
            yield error, _with(none, field)
        ends = (("output", test.outputs, "log_gain"), ("input", test.inputs, "log_force_gain"))
        for what, points, gain in ends:
            for k, point in enumerate(dof_names(points)):
                of_point = np.eye(len(points))[k]
                for key, at, tolerance in (("", "", "gain_percent"), (f" of {test.name}", f" of {where}", "")):
                    error = error_with_text(
                        f"gain of {what} {point}{key}", factor_text, f"{what} {point}{at}", tolerance=tolerance,
                        unit=0.01, size=0.1, most=MOST_GAIN,
                    )  # fmt: skip
                    yield error, none._replace(**{gain: of_point})
                    for error, field in self.of_output(point + key, point + at) if what == "output" else ():
                        yield error, _with(none, field, of_point)
        yield from _posture_errors(test, model, none)
        for what, points, *_ in ends:
            yield from _point_errors(test, none, what, points)


def _with(none: PostureErrors, field: str, size: Float[np.ndarray, "o"] | float = 1.0) -> PostureErrors:
    """One error, by its field or its name among the responses."""
    if field in none.response:
        return none._replace(response=none.response | {field: none.response[field] + size})
    return none._replace(**{field: getattr(none, field) + size})


def _posture_errors(
    test: PostureTest, model: Model, none: PostureErrors
) -> Iterator[tuple[StatedError, PostureErrors]]:
    """Errors of the posture of a test, of joint zeros, payloads and stiffnesses: of 1 rad, m or kg, or a factor of e.

    In a machine with loops, of the independent coordinates.
    """
    n = len(model.coordinates)
    columns = np.asarray(nearby_motion_map(model, jnp.asarray(test.q))) if model.loops else np.eye(n)
    for name, column in zip(independent_coordinates(model), columns.T, strict=True):
        if name in model.joints[: none.posture.size]:
            displaced = none._replace(posture=column[: none.posture.size])
            revolute = model.revolute[model.coordinates.index(name)]
            tolerance, unit = joint_tolerance("posture", revolute)
            starts = FAR_ANGLES if revolute else FAR_LENGTHS
            error = error_with_text(
                f"posture of {test.name} {name}", posture_text, name, display_name(test.name), revolute,
                tolerance=tolerance, unit=unit, starts=starts,
            )  # fmt: skip
            yield error, displaced
            yield zero_error(name, revolute)._replace(starts=starts), displaced
    for error, payload in payload_errors(model, test.name):
        yield error, none._replace(payload=payload)
    elastic = [k for k in range(len(model.joints)) if model.stiffness[k] > 0.0 and not model.locked[k]]
    for name, some in (*((model.joints[k], [k]) for k in elastic), ("all joints", elastic)):
        error = error_with_text(
            f"stiffness of {name} in {test.name}", _stiffer_text, name, display_name(test.name),
            size=0.1, starts=(-2.0, 2.0), least=-MOST_FACTOR, most=MOST_FACTOR,
        )  # fmt: skip
        yield error, none._replace(log_stiffness=np.isin(np.arange(len(model.joints)), some).astype(float))


def _stiffer_text(joints: str, test: str, value: float) -> str:
    return f"a stiffness of {joints} {factor_number(math.exp(value))} times as large in {test}"


def _point_errors(
    test: PostureTest, none: PostureErrors, which: str, points: tuple[Point, ...]
) -> Iterator[tuple[StatedError, PostureErrors]]:
    """Errors of direction and position of each output or input, of this test and of all tests."""
    for k, (point, name) in enumerate(zip(points, dof_names(points), strict=True)):
        changes = direction_changes(point)
        for i in np.flatnonzero(changes.any(axis=1)):
            unit, axis = np.outer(np.eye(len(points))[k], np.eye(3)[i]), axes_of(point)[i]
            possible = [("direction of", "about", "sensor_direction_deg", np.pi / 180.0, "turn")]
            if changes[i, :3].any():
                possible.append(("position of", "along", "sensor_position_mm", 1e-3, "shift"))
            for end, (what, how, tolerance, size, field) in itertools.product((f" of {test.name}", ""), possible):
                error = StatedError(f"{what} {which} {name}{end} {how} {axis}", tolerance, size)
                if not end:  # one common to all tests has no tolerance, as sensors are mounted anew
                    least, most = error.bounds
                    error = error._replace(
                        tolerance="", size=error.typical, text=error.described, least=least, most=most
                    )
                yield error, none._replace(**{f"{which}_{field}": unit})


def posture_alternatives(test: P, model: Model) -> Iterator[tuple[str, str, P]]:
    """The test with radians for degrees in its posture, with degrees for radians, and with a joint angle reversed."""
    q = np.asarray(test.q)
    turns = np.array(model.revolute[: q.size])
    if not model.loops:
        if np.abs(q[turns]).max(initial=0.0) > FULL_TURN:
            yield (
                "degrees",
                "a posture in degrees that is stated in radians",
                dataclasses.replace(test, q=jax.device_put(np.where(turns, np.radians(q), q))),
            )
        for i in np.flatnonzero(turns & (np.abs(q) > 0.0)).tolist():
            name, sign = model.coordinates[i], np.where(np.arange(q.size) == i, -1.0, 1.0)
            there = dataclasses.replace(test, q=jax.device_put(sign * q))
            yield f"sign of {name}", f"the sign of {name} in the posture", there


def displaced_view(test: PostureTest, model: Model, errors: PostureErrors) -> VibrationView:
    """The view of a machine with errors of posture, stiffness, payload, directions and positions corrected, to first
    order in the last one."""
    further = jnp.zeros(len(model.coordinates) - jnp.size(test.q))  # coordinates that a hypothesis adds
    q = jnp.concatenate([jnp.asarray(test.q), further]).at[: errors.posture.size].add(errors.posture)
    wide = (_with_axes(test.outputs), _with_axes(test.inputs))
    q = loop_closure(model, q)
    changed, joints = loaded(model, jnp.asarray(errors.payload)), slice(errors.log_stiffness.size)
    stiffness = jnp.asarray(model.stiffness).at[joints].multiply(jnp.exp(errors.log_stiffness))
    changed = dataclasses.replace(changed, stiffness=stiffness)
    view = vibration_view(changed, q, test.at, wide[0], wide[1], test.feels_gravity, test.shares_energy)
    rows = [view.output_rows, view.output_rows if view.input_rows is None else view.input_rows]
    turns, shifts = (errors.output_turn, errors.input_turn), (errors.output_shift, errors.input_shift)
    ends = zip(rows, (test.outputs, test.inputs), wide, turns, shifts, strict=True)
    output_rows, input_rows = (_displaced_rows(*end) for end in ends)
    tilt = None if view.tilt_rows is None else view.tilt_rows[: len(test.outputs)]
    view = dataclasses.replace(view, output_rows=output_rows, input_rows=input_rows, tilt_rows=tilt)
    return view if errors.moving is None else restricted_view(view, errors.moving)


def axes_of(point: Point) -> tuple[str, ...]:
    """The six axes among which the direction of a point is; empty at a coordinate."""
    base = point[1].removeprefix("-")
    return next((axes for axes in (DIRECTIONS, GROUND_DIRECTIONS) if base in axes), ())


def direction(point: Point) -> Float[np.ndarray, "6"]:
    """Direction of a point in its six axes; 0 at a coordinate."""
    axes, base = axes_of(point), point[1].removeprefix("-")
    return (1.0 if base == point[1] else -1.0) * np.eye(6)[axes.index(base)] if axes else np.zeros(6)


def direction_changes(point: Point) -> Float[np.ndarray, "3 6"]:
    """Change of a point's direction, in its six axes, by a small rotation about each of the first three; 0 at a
    coordinate."""
    return np.concatenate([np.cross(np.eye(3), part) for part in np.split(direction(point), 2)], axis=1)


def _with_axes(points: tuple[Point, ...]) -> tuple[Point, ...]:
    """Points, and all axes of their frames."""
    return tuple(dict.fromkeys([*points, *((name, axis) for name, base in points for axis in axes_of((name, base)))]))


def _displaced_rows(
    rows: Float[Array, "w m"],
    points: tuple[Point, ...],
    wide: tuple[Point, ...],
    turn: Float[np.ndarray, "p 3"] | Array,
    shift: Float[np.ndarray, "p 3"] | Array,
) -> Float[Array, "p m"]:
    """Rows of points with other directions and positions, from the rows of all axes of their frames."""
    stated, axes = (
        np.array([direction(point) for point in points]).reshape(-1, 6),
        np.zeros((len(points), 6, len(wide))),
    )
    for own, point in zip(axes, points, strict=True):
        for k, axis in enumerate(axes_of(point)):
            own[k, wide.index((point[0], axis))] = 1.0
    turn_of = jax.vmap(functools.partial(turned, jnp))
    parts = [turn_of(jnp.asarray(turn), part) - part for part in (stated[:, :3], stated[:, 3:])]
    # a point off the origin moves by w x r: along a it moves by w . (r x a); rotations are equal there
    parts[1] = parts[1] + jnp.cross(jnp.asarray(shift), stated[:, :3])
    return rows[: len(points)] + jnp.einsum("pi,piw->pw", jnp.concatenate(parts, axis=1), axes) @ rows
