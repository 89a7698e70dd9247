"""From the tests that a study describes to what its fit compares with, and what is known beside that."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxmb.identify.experiments.test import Test
from jaxmb.identify.study.format.deflection_format import DeflectionTestPart
from jaxmb.identify.study.format.study_format import FrfTestPart, ModesTestPart, StudyFile
from jaxmb.identify.study.reading.deflections import DeflectionSet, deflection_set
from jaxmb.identify.study.reading.frf import called, frf_test, held_out_lines, names_of_tests
from jaxmb.identify.study.reading.frf_source import Measured
from jaxmb.identify.study.reading.modes import modes_test
from jaxmb.identify.study.simulation.frf import Setting, Simulated
from jaxmb.io.validation import InputError, place
from jaxmb.machine.build import Model


@dataclasses.dataclass(frozen=True)
class Check:
    """A test that the fit does not see."""

    test: Test
    measured: Measured | None


@dataclasses.dataclass(frozen=True)
class Contents:
    """The tests of a study; what is listed by test is in the order of `tests`."""

    tests: list[Test] = dataclasses.field(default_factory=list)
    measured: list[Measured | None] = dataclasses.field(default_factory=list)
    simulated: list[Simulated | None] = dataclasses.field(default_factory=list)
    amplitudes: list[float | None] = dataclasses.field(default_factory=list)
    checks: list[Check] = dataclasses.field(default_factory=list)
    deflections: list[DeflectionSet] = dataclasses.field(default_factory=list)
    masked: list[str] = dataclasses.field(default_factory=list)
    """Sentences on lines that are not used."""


def read_tests(file: StudyFile, source: str, setting: Setting) -> Contents:
    """All tests of a study, read or simulated.

    Args:
        file: the study.
        source: what messages call it.
        setting: what its tests stand in.

    Raises:
        InputError: a test cannot be; it is named.
    """
    found = Contents()
    names = names_of_tests(file.test)
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{source}: the test name '{name}' is used twice, expected each once")
    for number, (label, part) in enumerate(zip(names, file.test, strict=True)):
        own = setting._replace(noise_seed=_seed_of(setting.noise_seed, number))
        with place(f"{source}: {called(label)}"):
            if isinstance(part, FrfTestPart):
                test, notes, data = frf_test(part, label, own)
                truth = data.truth
                found.masked.extend(f"{called(label)}: {note}" for note in notes)
                if part.check_every is not None:
                    test, held_out = held_out_lines(test, part.check_every)
                    found.checks.append(Check(held_out, data))
            elif isinstance(part, ModesTestPart):
                data = None
                test, truth = modes_test(part, label, own)
            elif isinstance(part, DeflectionTestPart):
                found.deflections.append(
                    deflection_set(part, label, own.folder, own.whole, own.model, own.noise_seed, file.complete)
                )
                continue
            else:
                continue
        if part.role == "check":
            found.checks.append(Check(test, data))
            continue
        found.tests.append(test)
        found.measured.append(data)
        found.simulated.append(truth)
        found.amplitudes.append(part.amplitude)
    if not found.tests and all(group.role == "check" for group in found.deflections):
        raise InputError(f"{source}: every test has the role 'check', expected one to fit")
    return found


def check_kinds(file: StudyFile) -> None:
    """Raise where the tests of a study cannot stand beside each other, or beside what else it says."""
    count = sum(isinstance(part, DeflectionTestPart) for part in file.test)
    if file.complete is not None and count < len(file.test):
        raise ValueError("[complete] is for deflection tests alone, expected no others")
    if file.complete is not None and file.prior:
        raise NotImplementedError("a prior cannot be used with [complete]")
    if count and file.lock:
        raise NotImplementedError(
            f"lock: '{file.lock[0]}' cannot be locked in deflection tests, whose postures name it;"
            f' write "stiffness.{file.lock[0]}" = 0.0 in [hold] for a joint that does not give way'
        )


def common_truth(simulated: Sequence[Simulated | DeflectionSet | None], model: Model) -> dict[str, float]:
    """True parameters, where all tests were simulated on one machine with the coordinates of the fitted one."""
    truths: list[dict[str, float] | None] = []
    for one in simulated:
        if isinstance(one, Simulated):
            truths.append(one.parameters if one.coordinates == model.coordinates else None)
        else:
            truths.append(None if one is None else one.truth)
    first = truths[0] if truths else None
    return first if first is not None and all(t == first for t in truths) else {}


def _seed_of(noise_seed: int | None, number: int) -> int | None:
    """Seed of one test's noise: that of all for the first, and for each other one that follows from it."""
    if noise_seed is None or number == 0:
        return noise_seed
    return int(np.random.SeedSequence([noise_seed, number]).generate_state(1)[0])
