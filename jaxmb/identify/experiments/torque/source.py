"""Source of a torque test: samples of its record, and diagnosis of gross errors."""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from jaxmb.identify.experiments.entry import Entry, Source
from jaxmb.identify.experiments.tolerances import MOST_GAIN, StatedError, joint_kind, usual
from jaxmb.identify.experiments.torque.gain_fit import Recorded
from jaxmb.identify.experiments.torque.prepared import Prepared, stribeck
from jaxmb.identify.experiments.torque.torque_test import TorqueTest
from jaxmb.identify.experiments.torque.unexplained import unexplained
from jaxmb.io.validation import listed
from jaxmb.machine.build import Model
from jaxmb.measurement.motion.record import Cutoff
from jaxmb.mechanics.loops import independent_coordinates


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

    rebuild: Callable[[Model, Mapping[str, float], Mapping[str, tuple[float, float]]], TorqueTest] | None = None
    """Returns the test for the gravity of another model, zeros of coordinates, rad or m, and factors on the angle and
    on the rates of coordinates; None without a record. Raises ValueError where other rows would be selected."""
    gravity: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(3))
    """Gravity that its equations were made with [3]."""

    def errors(self, test: Any, model: Model) -> Iterator[StatedError]:
        """Errors of torque constants where no gain of a drive is free, of the delays of the torques, of the zeros of
        coordinates, and missing friction."""
        if not any(name.startswith("drive_gain.") for name in test.own_names):
            yield from (_torque_constant(name) for name in self.coordinates)
        if self.time_s.size:
            yield DELAY
            yield from (_delay(name) for name in self.coordinates)
        if self.rebuild is not None:
            yield from _zeros(model).values()
        if self.velocity.size:
            yield from (error for error, _ in self._friction(test))

    def _friction(self, test: TorqueTest) -> Iterator[tuple[StatedError, Float[np.ndarray, "r"]]]:
        """Friction that the machine may lack, and the effort of each for a size of 1."""
        number, effort = np.asarray(test.coordinate), np.asarray(test.effort)
        for i, name in enumerate(self.coordinates):
            own = number == i
            speed, level = np.where(own, self.velocity, 0.0), float(np.sqrt(np.mean(effort[own] ** 2)))
            most = float(np.abs(speed).max(initial=0.0))
            if not most > 0.0 or not level > 0.0:
                continue
            terms = [("cubic", (speed / most) ** 3)]
            terms += [("Stribeck", stribeck(speed, share * most)) for share in STRIBECK_SPEEDS]
            for k, (kind, shape) in enumerate(terms):
                text = functools.partial(_friction_text, kind, name, "N m" if self.revolute[i] else "N")
                yield StatedError(f"friction {k} of {name}", size=0.1 * level, text=text), shape

    def corrected(self, test: Any, model: Model, errors: Mapping[str, float]) -> Any:
        """The test with its description corrected; see `Source`."""
        zeros = {name: errors[error.key] for name, error in _zeros(model).items() if errors.get(error.key)}
        moved = bool(zeros) or not np.array_equal(self.gravity, np.asarray(model.gravity))
        there = test if self.rebuild is None or not moved else self.rebuild(model, zeros, {})
        gains = np.array([errors.get(_torque_constant(name).key, 0.0) for name in self.coordinates])
        late = np.array([errors.get(_delay(name).key, 0.0) for name in self.coordinates]) + errors.get(DELAY.key, 0.0)
        effort, std, number = np.asarray(there.effort), np.asarray(there.std), np.asarray(test.coordinate)
        if self.velocity.size and any(key.startswith("friction ") for key in errors):
            effort = effort - sum(errors.get(error.key, 0.0) * shape for error, shape in self._friction(test))
        if gains.any():  # of the measured effort with its noise
            factor = np.exp(-gains)[number]
            effort, std = effort * factor, std * factor
        if late.any():
            there = self._delayed(there, late)
        if effort is np.asarray(there.effort):
            return there
        return dataclasses.replace(there, effort=jax.device_put(effort), std=jax.device_put(std))

    def _delayed(self, test: TorqueTest, late: Float[np.ndarray, "c"]) -> TorqueTest:
        """The test with the predicted efforts of each coordinate so many seconds later, between neighbouring rows."""
        regressor, number = np.array(test.regressor), np.asarray(test.coordinate)
        constant = np.array(np.broadcast_to(np.asarray(test.constant), number.shape))
        for i in np.flatnonzero(late).tolist():
            own = np.flatnonzero(number == i)
            time_s = self.time_s[own]
            at = np.clip(time_s - late[i], time_s[0], time_s[-1])
            k = np.clip(np.searchsorted(time_s, at, side="right") - 1, 0, own.size - 2)
            share = (at - time_s[k]) / np.maximum(time_s[k + 1] - time_s[k], 1e-12)
            for values in (regressor, constant):
                old = values[own]
                weight = share.reshape(-1, *(1,) * (old.ndim - 1))
                values[own] = (1.0 - weight) * old[k] + weight * old[k + 1]
        return dataclasses.replace(test, regressor=jax.device_put(regressor), constant=jax.device_put(constant))

    def alternatives(self, test: Any, model: Model) -> Iterator[tuple[str, str, Any]]:
        """Reversed, exchanged and saturated torques, reversed angles, those in degrees and those of reversed gears."""
        number, effort, std = (np.asarray(x) for x in (test.coordinate, test.effort, test.std))
        rows = [np.flatnonzero(number == i) for i in range(len(self.coordinates))]

        def measuring(order: np.ndarray | None, sign: np.ndarray, there: TorqueTest = test) -> TorqueTest:
            each = effort if order is None else effort[order]
            own = std if order is None else std[order]
            return dataclasses.replace(there, effort=jax.device_put(sign * each), std=jax.device_put(own))

        for i, name in enumerate(self.coordinates):
            sign = np.where(number == i, -1.0, 1.0)
            text = f"the sign of the torque of {name}"
            yield text, text, measuring(None, sign)
            if self.rebuild is not None and name in model.coordinates and not model.loops:
                # about the opposite axis by the opposite angle
                k = model.coordinates.index(name)
                axis = np.array(model.axis)
                axis[k] *= -1.0
                there = self.rebuild(dataclasses.replace(model, axis=jax.device_put(axis)), {}, {})
                yield f"the sign of angle {name}", f"the sign of angle {name}", measuring(None, sign, there)
                text = f"the sign of angle {name} and of its torque"
                yield text, text, measuring(None, np.ones(effort.size), there)
                for text, rate in ((f"angle {name} in deg", 1.0), (f"angle {name} in deg, with its rates", DEGREE)):
                    with contextlib.suppress(ValueError):
                        yield text, text, self.rebuild(model, {}, {name: (DEGREE, rate)})
            most = np.abs(effort[rows[i]]).max(initial=0.0)
            flat = (number == i) & (np.abs(effort) > FLAT * most)
            if np.sum(flat) > MOST_FLAT * rows[i].size:
                text = f"the torque of {name}, which saturates at {most:.3g} {'N m' if self.revolute[i] else 'N'},"
                yield text, text, dataclasses.replace(test, std=jax.device_put(np.where(flat, 1e6 * most, std)))
        for i, k in itertools.combinations(range(len(rows)), 2):
            if rows[i].size == rows[k].size:
                order = np.arange(effort.size)
                order[rows[i]], order[rows[k]] = rows[k], rows[i]
                text = f"exchanged torques of {self.coordinates[i]} and {self.coordinates[k]}"
                yield text, text, measuring(order, np.ones(effort.size))
        for joints, read in self.reversed_gears.items():
            there = read()
            if np.asarray(there.effort).size == effort.size:
                text = f"the opposite sign of the gear ratio of {listed(joints)}"
                yield text, text, there

    def gross_errors(self, test: Any, model: Model, jacobian: np.ndarray | None = None) -> str:
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
        cause = found.cause or (
            f"usual causes: {rest_text}order, sign or unit of columns, sign or zero of an angle, torque and angle"
            " at different times, the direction of gravity, the stiffness of a gear on a joint without motor"
        )
        return f"the fit does not reproduce the torque of {listed(joints)}; {cause}"


STRIBECK_SPEEDS = (0.03, 0.06, 0.12, 0.25, 0.5)
"""Candidate Stribeck speeds over the largest speed."""
DEGREE = np.pi / 180.0
FLAT, MOST_FLAT = 0.97, 0.08
"""Share of the largest torque above which a sample may be saturated, and share of such samples in a motion without
saturation: 8 % for a sine."""


def _late_text(what: str, value: float) -> str:
    return f"{what} {1e3 * abs(value):.2g} ms {'late' if value > 0.0 else 'early'} against the angles"


def _friction_text(kind: str, name: str, unit: str, value: float) -> str:
    return f"missing {kind} friction of {name} ({value:.2g} {unit})"


def _factor_text(name: str, value: float) -> str:
    return f"a factor of {np.exp(-value):.3g} on the torque of {name}{usual(float(np.exp(-value)))}"


DELAY = StatedError(
    "delay of the torques", "torque_delay_ms", 1e-3, text=functools.partial(_late_text, "torques that are")
)


def _delay(name: str) -> StatedError:
    text = functools.partial(_late_text, f"torque of {name} that is")
    return StatedError(f"delay of the torque of {name}", size=1e-3, text=text)


def _torque_constant(name: str) -> StatedError:
    """Logarithm of measured over true torque."""
    text = functools.partial(_factor_text, name)
    return StatedError(f"torque constant of {name}", "torque_percent", 0.01, text=text, most=MOST_GAIN)


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
