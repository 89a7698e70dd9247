"""Reading of all tests of a study by the reader of their kind, and checks across tests."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from jaxmb.identify.experiments.test import Entry
from jaxmb.identify.study.context import ReadingContext
from jaxmb.identify.study.format.next_format import AnyNextPart, NextMotionPart, NextPart
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.identify.study.format.test_format import TestPart
from jaxmb.identify.study.reading.deflections import read_deflection_test
from jaxmb.identify.study.reading.motions import beyond_range
from jaxmb.identify.study.reading.poses import read_pose_test
from jaxmb.identify.study.reading.torque import read_torque_test
from jaxmb.identify.study.reading.vibration import read_frf_test, read_modes_test
from jaxmb.io.validation import check_distinct, check_known, display_name, error_location
from jaxmb.machine.build import Model
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.compliance import elastic_springs
from jaxmb.mechanics.loops import independent_coordinates
from jaxmb.mechanics.postures import posture
from jaxmb.response.frf import check_points
from jaxmb.response.frf_kind import dof_names

READERS: dict[str, Callable[..., Sequence[Entry]]] = {
    "frf": read_frf_test,
    "modes": read_modes_test,
    "deflection": read_deflection_test,
    "torque": read_torque_test,
    "pose": read_pose_test,
}
"""(part, label, context) -> entries: tests with their sources, by kind."""


def read_tests(file: StudyFile, context: ReadingContext) -> list[Entry]:
    """All tests of a study, read or simulated, the fitted ones first.

    Args:
        file: the study.
        context: study file, machine and preliminary fits.

    Raises:
        InputError: a test is invalid; the message names it.
    """
    names = test_names(file.test)
    check_distinct(names, "the test name '{}' is used twice, expected each once")
    _warn_of_repeated_data(names, file.test)
    found: list[Entry] = []
    for number in sorted(range(len(names)), key=lambda i: file.test[i].role == "check"):
        label, part = names[number], file.test[number]
        fitted = tuple(found) if part.role == "check" else ()
        own = context._replace(noise_seed=_seed_of(context.noise_seed, part, number), fitted=fitted)
        with error_location(display_name(label)):
            read = READERS[part.kind](part, label, own)
        if part.simulate is None:
            _warn_of_ranges(label, read, context)
        found += read
    _warn_of_repeated_rows(found, dict(zip(names, (part.source_file for part in file.test), strict=True)))
    if all(entry.role == "check" for entry in found):
        raise ValueError("every test has the role 'check', expected one to fit")
    return found


def after_preliminary_fits(entries: Sequence[Entry], context: ReadingContext) -> list[Entry]:
    """All tests of a study, with updated equations where preliminary fits have an effect.

    Args:
        entries: from `read_tests`.
        context: with the preliminary fits.

    Raises:
        InputError: a test is invalid; the message names it.
    """
    found: list[Entry] = []
    for entry in entries:
        build = entry.source.after_preliminary_fits
        if build is not None:
            with error_location(display_name(entry.name)):
                entry = build(context._replace(fitted=tuple(found) if entry.role == "check" else ()))
        found.append(entry)
    return found


def test_names(parts: Sequence[TestPart]) -> list[str]:
    """Display name of each test: its name, else the stem of its file if unique, else "test 1"."""
    numbered = [f"test {number}" for number in range(1, len(parts) + 1)]
    files = [part.source_file if part.name is None else None for part in parts]
    stems = [None if file is None else Path(file).stem for file in files]
    taken = [*stems, *(part.name for part in parts), *numbered]
    return [
        part.name or (stem if stem and taken.count(stem) == 1 else number)
        for part, stem, number in zip(parts, stems, numbered, strict=True)
    ]


def _warn_of_ranges(label: str, entries: Sequence[Entry], context: ReadingContext) -> None:
    """Warn of measured postures beyond the ranges of coordinates; recorded motions have doubts of their own."""
    q = [np.atleast_2d(entry.test.q) for entry in entries if hasattr(entry.test, "q")]
    there = beyond_range(context.unlocked_machine, context.model.coordinates, np.concatenate(q), True)[0] if q else ()
    for text in there:
        warnings.warn(f"{display_name(label)}: {text}", stacklevel=2)


def _warn_of_repeated_data(names: Sequence[str], parts: Sequence[TestPart]) -> None:
    """Warn of tests with the same data, whatever their posture and role."""
    seen = dict[str, str]()
    for name, part in zip(names, parts, strict=True):
        if part.source_file is not None:
            first = seen.setdefault(part.model_dump_json(exclude={"name", "role", "posture"}), name)
            if first != name:
                warnings.warn(
                    f"{display_name(name)} has the data of {display_name(first)}, '{part.source_file}',"
                    " which count twice; expected another file, or other rows of it",
                    stacklevel=2,
                )


def _warn_of_repeated_rows(entries: Sequence[Entry], files: Mapping[str, str | None]) -> None:
    """Warn of poses and load cases that are in the files twice, fitted or held out."""
    seen, repeated = dict[object, tuple[str, str]](), list[str]()
    for entry in entries:
        file = files[entry.name]
        for row, content in () if file is None else entry.source.readings(entry.test):
            first = seen.setdefault(content, (entry.name, row))
            if first == (entry.name, row) or (first[0] != entry.name and files[first[0]] == file):
                continue  # a file in two tests is reported as such
            repeated.append(f"{row} of '{file}' has the readings of {first[1]} of '{files[first[0]]}'")
    if repeated:
        more = f"; and {len(repeated) - 1} more such rows" if len(repeated) > 1 else ""
        warnings.warn(
            f"{repeated[0]} at the same posture and load, which count twice: expected each measurement once{more}",
            stacklevel=2,
        )


def check_stiffness(file: StudyFile, model: Model) -> None:
    """Raise where a coordinate would move freely in one test and be rigid in another."""
    if len({part.static for part in file.test}) == 2 and not elastic_springs(model):
        # except shafts, whose drives hold them under a constant load, and dependent coordinates of rigid loops, which
        # follow the others in both kinds of tests
        for i, (name, stiffness, locked) in enumerate(zip(model.joints, model.stiffness, model.locked, strict=False)):
            if stiffness == 0.0 and not locked and i not in model.following:
                raise ValueError(
                    f"coordinate '{name}' has no stiffness, so it would be free in some tests and rigid under the loads"
                    f" of the deflection tests: expected a stiffness, or '{name}' in lock"
                )


def check_next(part: AnyNextPart, machine: Machine, model: Model, tests: Sequence[str]) -> None:
    """Raise ValueError where no test is a template of the next ones, or the machine has no such posture or point.

    Args:
        part: the table `[next]`.
        machine: its coordinates may have a `range`.
        model: of the machine.
        tests: names of the fitted tests of its kind.
    """
    if not tests:
        raise ValueError(f"the next tests are like a fitted one of kind '{part.kind}', and the study has none")
    check_known(f"like: {part.kind} test", [part.like or tests[0]], tests)
    if isinstance(part, NextMotionPart):
        return
    stated = part.postures
    if model.loops and isinstance(stated, dict):
        check_known("postures: independent coordinate", stated, independent_coordinates(model))
    ends = [{name: ends[k] for name, ends in stated.items()} for k in (0, 1)] if isinstance(stated, dict) else stated
    ranges = {part.name: part.range for part in machine.moving_parts}
    for values in ends:
        posture(model, values)
        for name, value in values.items():
            low, high = ranges.get(name) or (-np.inf, np.inf)
            if not low <= float(value) <= high:
                unit = "rad" if model.revolute[model.coordinates.index(name)] else "m"
                raise ValueError(
                    f"postures: {name} = {float(value):.4g} {unit}, expected a value within its range of {low:.4g} to"
                    f" {high:.4g} {unit} in the machine description"
                )
    for points in part.points if isinstance(part, NextPart) else ():
        for end in points.ends:
            check_points(model, end)
            check_distinct(dof_names(end), "points hold the point '{}' twice, expected it once")


def common_truth(entries: Sequence[Entry], coordinates: tuple[str, ...]) -> dict[str, float]:
    """True parameters, where all fitted tests were simulated on one machine with equal degrees of freedom; else empty.

    True values of a test's own parameters come from that test alone.
    """
    joint: dict[str, float] = {}
    for truth in (entry.truth for entry in entries):
        if (
            truth is None
            or truth.coordinates != coordinates
            or any(joint.get(name, value) != value for name, value in truth.parameters.items())
        ):
            return {}
        joint |= truth.parameters
    return joint


def _seed_of(noise_seed: int | None, part: TestPart, number: int) -> int | None:
    """Seed of the noise of one test: the stated seed for the first test, derived ones for the others.

    None where only the test itself states one.
    """
    if noise_seed is None and part.simulate is not None and "noise_seed" in part.simulate.model_fields_set:
        return None
    base = 0 if noise_seed is None else noise_seed
    return base if number == 0 else int(np.random.SeedSequence([base, number]).generate_state(1)[0])
