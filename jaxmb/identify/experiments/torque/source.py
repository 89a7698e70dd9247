"""Source of a torque test: samples of its record, and diagnosis of gross errors."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import scipy

from jaxmb.identify.experiments.entry import Entry, Source
from jaxmb.identify.experiments.tolerances import StatedError, joint_kind
from jaxmb.identify.experiments.torque.gain_fit import Recorded
from jaxmb.identify.experiments.torque.prepared import Prepared
from jaxmb.identify.experiments.torque.torque_test import TorqueTest
from jaxmb.identify.experiments.torque.unexplained import effort_rate, unexplained
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.io.validation import listed
from jaxmb.machine.build import Model
from jaxmb.measurement.motion.record import Cutoff
from jaxmb.mechanics.loops import independent_coordinates

EXPLAINS = 0.9
"""Part of the variance of a residual above which the opposite sign of a gear ratio explains it."""


@dataclasses.dataclass(frozen=True, eq=False)
class TorqueSource(Source):
    """Samples and metadata of the record of a torque test."""

    time_s: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    """Time of each row."""
    cutoff_hz: Cutoff | None = None
    """Cut-off of the filter of its angles, stated or searched; None for another estimate of the motion."""
    velocity: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    """Velocity of the coordinate of each row, rad/s or m/s."""
    coordinates: tuple[str, ...] = ()
    """Coordinates with measured effort, in the order of the test's indices."""
    revolute: tuple[bool, ...] = ()
    """Whether each of them is an angle."""
    doubts: tuple[str, ...] = ()
    """Sentences on possible errors of the motion."""
    impossible: str = ""
    """A sentence on a motion that is impossible for the machine; empty where there is none."""
    selection_rows: Prepared | None = None
    """Its equations, for the selection of friction terms; None where none are requested."""
    kinds: tuple[str, ...] = ()
    """Candidate kinds of friction terms."""
    drives: tuple[str, ...] = ()
    """Names of the recorded drives."""
    noise_bound: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    """Upper bound of the noise of each effort, Nm or N, from the recorded spectrum above the band of the motion."""
    noise_estimated: bool = False
    """Whether the noise is estimated from the residual of a fit, so that chi-square is uninformative."""
    at_rest: tuple[str, ...] = ()
    """Joints without a column, assumed at rest at the posture."""
    std_unknown: bool = False
    """Whether errors of a motion from a Kalman smoother are a large part of the noise, so that standard deviations are
    unknown."""
    reversed_gears: Mapping[tuple[str, ...], Callable[[], TorqueTest]] = dataclasses.field(default_factory=dict)
    """Builders of the test with gear ratios of the opposite sign, by joints recorded at their shafts."""
    recorded: Recorded | None = None
    """Its equations with the recorded drive signals, for a first fit of drive gains; None where gains are fixed."""

    rebuild: Callable[[Model, Mapping[str, float]], TorqueTest] | None = None
    """Returns the test for the gravity of another model and zeros of coordinates, rad or m; None without a record."""
    gravity: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(3))
    """Gravity that its equations were made with [3]."""

    def errors(self, test: Any, model: Model) -> Iterator[StatedError]:
        """Errors of torque constants where no gain of a drive is free, of the torques' delay, and of the zeros of
        coordinates."""
        if not any(name.startswith("drive_gain.") for name in test.own_names):
            yield from (_torque_constant(name) for name in self.coordinates)
        if self.time_s.size:
            yield DELAY
        if self.rebuild is not None:
            yield from _zeros(model).values()

    def residual_with(self, test: Any, model: Model, errors: Mapping[str, float]) -> np.ndarray:
        """Residual of the test with its description corrected; see `Source`."""
        zeros = {name: errors[error.key] for name, error in _zeros(model).items() if error.key in errors}
        moved = bool(zeros) or not np.array_equal(self.gravity, np.asarray(model.gravity))
        there = test if self.rebuild is None or not moved else self.rebuild(model, zeros)
        view, number = there.view(model), np.asarray(test.coordinate)
        torque = np.asarray(there.predict(view))
        change = np.array([errors.get(_torque_constant(name).key, 0.0) for name in self.coordinates])[number] * torque
        if late := errors.get(DELAY.key, 0.0):
            for own in (number == i for i in range(len(self.coordinates))):
                change[own] -= late * effort_rate(self.time_s[own], torque[own], self.velocity[own])
        return np.asarray(there.residual(view)) + change / np.asarray(test.std)

    def gross_errors(
        self, test: Any, model: Model, jacobian: np.ndarray | None = None, free: FreeParameters | None = None
    ) -> str:
        """A sentence on joints whose torque is not reproduced; see `Source.gross_errors`."""
        if self.impossible or not self.noise_bound.size:
            return self.impossible  # without a time record
        predicted = np.asarray(test.predict(test.view(model)))
        found = unexplained(test, predicted, self.time_s, self.noise_bound, self.coordinates, jacobian)
        if found is None:
            return ""
        joints = [
            f"{name} (residual {p:.0f} % of its standard deviation)"
            for name, p in zip(found.joints, found.percent, strict=True)
        ]
        rest_text = f"a motion of {listed(self.at_rest)}, of which there is no record, " if self.at_rest else ""
        named = "" if free is None else self.cause(test, model, free)
        cause = (
            named
            or found.cause
            or (
                f"usual causes: {rest_text}order, sign or unit of columns, sign or zero of an angle, torque and angle"
                " at different times, the direction of gravity, the stiffness of a gear on a joint without motor"
            )
        )
        return f"the fit does not reproduce the torque of {listed(joints)}; {cause}"

    def cause(self, test: TorqueTest, model: Model, free: FreeParameters) -> str:
        """A clause on the gear ratios whose opposite sign explains the residual; see `Source.cause`."""
        best, text, effort = EXPLAINS, "", np.asarray(test.effort)
        own = [np.asarray(test.coordinate) == i for i in range(len(self.coordinates))]
        stds = [float(np.std(effort[rows])) or np.inf for rows in own]

        def size(residual: np.ndarray) -> float:
            return sum(float(np.mean((residual[rows] / s) ** 2)) for rows, s in zip(own, stds, strict=True))

        before = size(effort - np.asarray(test.predict(test.view(model))))
        for joints, read in self.reversed_gears.items():
            rows = read().linear.equations(model, free)
            if len(rows.measured) != effort.size:
                continue
            matrix, measured = rows.matrix / rows.std[:, None], rows.measured / rows.std
            found = scipy.optimize.lsq_linear(matrix, measured, (free.lower_value, free.upper_value))
            explains = 1.0 - size((measured - matrix @ found.x) * rows.std) / before
            if explains > best:
                best, text = explains, f"the opposite sign of the gear ratio of {listed(joints)}"
        return text and f"{text} would explain {100.0 * best:.0f} % of the residual"


DELAY = StatedError("delay of the torques", "torque_delay_ms", 1e-3)


def _torque_constant(name: str) -> StatedError:
    return StatedError(f"torque constant of {name}", "torque_percent", 0.01)


def _zeros(model: Model) -> dict[str, StatedError]:
    """Errors of the zeros of independent joint coordinates, by coordinate."""
    names = [name for name in independent_coordinates(model) if name in model.joints]
    kinds = (joint_kind("joint_zero", model.revolute[model.coordinates.index(name)]) for name in names)
    return {name: StatedError(f"zero of {name}", *kind) for name, kind in zip(names, kinds, strict=True)}


TorqueEntry = Entry[TorqueTest, TorqueSource]
"""A torque test of a study."""


def torque_entries(entries: Iterable[Entry]) -> list[TorqueEntry]:
    """The torque tests among the tests of a study."""
    return [entry for entry in entries if isinstance(entry.source, TorqueSource)]
