"""Preliminary fits of torque tests: friction terms chosen on held-out motion, and drive gains."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from jaxmb.identify.experiments.test import Entry
from jaxmb.identify.experiments.torque.effort_noise import effort_noise
from jaxmb.identify.experiments.torque.effort_rows import EffortRows, Samples
from jaxmb.identify.experiments.torque.preliminary_fits import (
    GAIN_FAMILY,
    FrictionChoice,
    FrictionTerm,
    PreliminaryGains,
    fit_gains,
    fitted_terms,
    friction_terms,
    gain_columns,
)
from jaxmb.identify.experiments.torque.torque_test import TorqueTest, torque_entries
from jaxmb.identify.parameters.free_parameters import affine_map, free_parameters, matching, matching_any, nothing_free
from jaxmb.identify.regression.torque_regressor import load_columns, regressor_names
from jaxmb.identify.study.format.study_format import FreePart, StudyFile
from jaxmb.identify.study.reading.parameters import bounds_of
from jaxmb.machine.build import Model
from jaxmb.machine.elements import FRICTION_KINDS, FurtherFriction
from jaxmb.machine.schema import Machine
from jaxmb.measurement.motion.record import Drives, MotionRecord

WIDTH = 10.0
"""Half the width of a coefficient's bounds, at least, in standard deviations."""
TIMES = 4.0
"""Factor between the bounds of a Stribeck speed and its value in the preliminary fit."""


def friction_choice(model: Model, entries: Sequence[Entry]) -> FrictionChoice | None:
    """Friction terms selected jointly for all tests of a study with `friction_terms`; None without such tests.

    If the machine has load-dependent friction and the load is unknown, the load follows from the values of a fit of
    all parameters, whether terms are selected or not.

    Raises:
        ValueError: a test selects a temperature term, and another one has no temperature.
    """
    sources = [entry.source for entry in torque_entries(entries) if entry.source.selection_rows is not None]
    rows = [s.selection_rows for s in sources if s.selection_rows is not None]
    if not rows:
        return None
    kinds = tuple(dict.fromkeys(kind for s in sources for kind in s.friction_kinds))
    if "temperature" in kinds and any(part.all_samples.temperature is None for part in rows):
        raise ValueError(
            "friction_terms: a test asks for temperature and another has no such column, expected it of all"
        )
    existing = [
        (name, kind)
        for name, terms in zip(model.coordinates, model.further_friction, strict=True)
        for kind, family in FRICTION_KINDS.items()
        if family in terms
    ]
    whole, names = _stacked(rows), regressor_names(model)
    choice = friction_terms(whole, names, kinds, existing)
    if choice.terms or not any(kind == "load" for _, kind in existing):
        return choice
    return fitted_terms(whole, names, (), effort_noise(whole).std[whole.coordinate])


def load_unknown(model: Model, free: Iterable[str]) -> bool:
    """Whether load-dependent friction of the machine depends on a free parameter of the load."""
    if not any("load_friction" in terms for terms in model.further_friction):
        return False
    names = regressor_names(model)
    carried = [name for name, loads in zip(names, load_columns(names), strict=True) if loads]
    return any(matching(carried, pattern) for pattern in free)


def with_friction(machine: Machine, choice: FrictionChoice) -> Machine:
    """The machine with the selected terms, which are those of joints: shafts of motors have no recorded effort."""

    def changed(name: str, there: FurtherFriction | None) -> FurtherFriction | None:
        found = {} if there is None else there.model_dump(exclude_none=True)
        for term in choice.terms:
            if term.coordinate == name:
                found[FRICTION_KINDS[term.kind]] = term.coefficient
                found |= {} if term.speed is None else {"stribeck_speed": term.speed}
                found |= {} if term.temperature is None else {"temperature": term.temperature}
        return FurtherFriction.model_validate(found) if found else there

    body = tuple(
        part.model_copy(
            update={
                "joint": tuple(
                    joint.model_copy(update={"further_friction": changed(joint.name, joint.further_friction)})
                    for joint in part.joint
                )
            }
        )
        for part in machine.body
    )
    return machine.model_copy(update={"body": body})


def friction_bounds(choice: FrictionChoice | None) -> dict[str, FreePart]:
    """Bounds of the parameters of selected terms, about the values of the preliminary fit."""
    found: dict[str, FreePart] = {}
    for term in () if choice is None else choice.terms:
        size, half = term.coefficient, max(WIDTH * term.std, abs(term.coefficient))
        found[f"{FRICTION_KINDS[term.kind]}.{term.coordinate}"] = _linear(size - half, size + half, size)
        if term.speed is not None:
            found[f"stribeck_speed.{term.coordinate}"] = _linear(term.speed / TIMES, term.speed * TIMES, term.speed)
    return found


def check_free_friction(free: Mapping[str, FreePart]) -> None:
    """Raise NotImplementedError where free parameters can only be initialized by `friction_terms`."""
    for family, kind in (("stribeck_speed", "stribeck"), ("load_friction", "load")):
        for name in free:
            if name.startswith(f"{family}."):
                raise NotImplementedError(
                    f"efforts are not linear in '{name}', which friction_terms = [\"{kind}\"] of a torque test"
                    " determines: expected no bounds of it"
                )


def with_friction_remarks(entries: Iterable[Entry], choice: FrictionChoice | None) -> list[Entry]:
    """Entries, with remarks on the selection at the first test with `friction_terms`."""
    found = list(entries)
    asked = [entry for entry in torque_entries(found) if entry.source.friction_kinds]
    if choice is not None and asked:
        nothing = f"no further friction ({', '.join(asked[0].source.friction_kinds)}) predicts held-out motion better"
        remarks = (*asked[0].remarks, *([_remark(term) for term in choice.terms] or [nothing]))
        found[found.index(asked[0])] = dataclasses.replace(asked[0], remarks=remarks)
    return found


def _remark(term: FrictionTerm) -> str:
    speed = "" if term.speed is None else f" at {term.speed:.2g} rad/s or m/s"
    return (
        f"{term.coordinate}: {term.kind} friction of {term.coefficient:.3g}{speed} reduces the error of"
        f" held-out motion from {term.before:.3g} to {term.after:.3g}; it is part of the fit"
    )


def _linear(lower: float, upper: float, initial: float) -> FreePart:
    return FreePart(lower=lower, upper=upper, initial=initial, scale="linear")


def _stacked(parts: Sequence[EffortRows]) -> EffortRows:
    """Equations of several tests, stacked in time like those of one record."""
    if len(parts) == 1:
        return parts[0]
    measured = tuple(dict.fromkeys(name for part in parts for name in part.measured))
    all_samples = [part.all_samples for part in parts]
    warm = all(samples.temperature is not None for samples in all_samples)
    ends = np.cumsum([0, *(len(samples.velocity) for samples in all_samples)])
    columns = [[measured.index(name) for name in part.measured] for part in parts]

    def stack(arrays: Iterable[np.ndarray]) -> np.ndarray:
        """Samples of all parts with a column for each measured coordinate, zero where a part has none."""
        found = []
        for array, own in zip(arrays, columns, strict=True):
            found.append(np.zeros((len(array), len(measured), *array.shape[2:])))
            found[-1][:, own] = array
        return np.concatenate(found)

    def to_rows(part: np.ndarray) -> np.ndarray:
        own = [part[a:b][:, some] for a, b, some in zip(ends, ends[1:], columns, strict=False)]
        return np.concatenate([samples.to_rows(some) for samples, some in zip(all_samples, own, strict=True)])

    starts = np.cumsum([0.0, *(np.ptp(part.time_s) + 1.0 for part in parts)])
    return EffortRows(
        regressor=np.concatenate([part.regressor for part in parts]),
        effort=np.concatenate([part.effort for part in parts]),
        coordinate=np.concatenate([np.array(own)[part.coordinate] for part, own in zip(parts, columns, strict=True)]),
        time_s=np.concatenate([part.time_s - part.time_s[0] + t for part, t in zip(parts, starts, strict=False)]),
        velocity=np.concatenate([part.velocity for part in parts]),
        measured=measured,
        constant=np.concatenate([part.constant for part in parts]),
        samples=Samples(
            regressor=stack(samples.regressor for samples in all_samples),
            velocity=stack(samples.velocity for samples in all_samples),
            temperature=np.concatenate([np.asarray(samples.temperature) for samples in all_samples]) if warm else None,
            columns=stack(samples.columns for samples in all_samples),
            constant=stack(samples.constant for samples in all_samples),
            to_rows=to_rows,
        ),
    )


def free_gains(drives: Sequence[str], free: Iterable[str]) -> tuple[str, ...]:
    """Drives of a record whose gains are free in a study."""
    patterns = [pattern for pattern in free if pattern.startswith(f"{GAIN_FAMILY}.")]
    return tuple(name for name in drives if any(matching([f"{GAIN_FAMILY}.{name}"], p) for p in patterns))


def preliminary_gains(
    model: Model, file: StudyFile, fixed: set[str], entries: Sequence[Entry]
) -> PreliminaryGains | None:
    """Drive gains of a preliminary fit; None where none is free.

    Raises:
        ValueError: a gain is not identifiable.
        NotImplementedError: the fitted tests are not recordings of the same motors.
    """
    fitted = [entry for entry in torque_entries(entries) if entry.role == "fit"]
    known = dict.fromkeys(f"{GAIN_FAMILY}.{name}" for entry in fitted for name in entry.source.drives)
    own = {pattern: part for pattern, part in file.free.items() if not pattern.startswith(f"{GAIN_FAMILY}.")}
    gains = [pattern for pattern in file.free if pattern not in own]
    matching_any(list(known), gains, "in the fitted recordings at motors, gain or pattern")
    tests = [entry.source.drive_recording for entry in fitted if entry.source.drive_recording is not None]
    if not tests:
        return None
    wanted = [free_gains(test.drives.names, file.free) for test in tests]
    if len(tests) < len(fitted) or any(some != wanted[0] for some in wanted):
        raise NotImplementedError(
            "free gains of drives are those of recordings of the same motors in all torque tests, found other tests"
        )
    free = free_parameters(model, bounds_of(model, own, fixed)) if own else nothing_free()
    names = regressor_names(model)
    share, constant = affine_map(model, free, names)
    return fit_gains(tests, names, wanted[0], share, constant)


def with_gains(record: MotionRecord, choice: PreliminaryGains | None) -> MotionRecord:
    """The record with the efforts of identified gains."""
    drives = record.drives
    if choice is None or drives is None:
        return record
    gains = np.array([choice.gains.get(name, gain) for name, gain in zip(drives.names, drives.gain, strict=True)])
    own = drives._replace(gain=gains)
    return dataclasses.replace(record, drives=own, effort=own.effort)


def with_free_gains(
    test: TorqueTest, rows: EffortRows, drives: Drives, freed: Sequence[str], choice: PreliminaryGains
) -> TorqueTest:
    """The test with gains as its own parameters; its efforts are those of the gains of a preliminary fit."""
    samples = rows.all_samples
    freed = [name for name in freed if name in choice.gains]
    if not freed:  # a held-out test with other motors
        return test
    gains = np.array([choice.gains[name] for name in freed])
    values = np.array([choice.values.get(name, 0.0) for name in test.parameters[: samples.regressor.shape[-1]]])
    columns = gain_columns(samples, drives, freed, gains, values)
    return test.with_own([f"{GAIN_FAMILY}.{name}" for name in freed], gains, columns)
