"""Gains of drives that a study frees: a first fit to all its torque tests, about which their equations are taken."""

import dataclasses
import fnmatch
from collections.abc import Iterable, Sequence

import numpy as np

from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.experiments.torque.gain_fit import FAMILY, GainChoice, first_gains, gain_columns
from jaxmb.identify.experiments.torque.prepared import Prepared
from jaxmb.identify.experiments.torque.source import TorqueSource
from jaxmb.identify.experiments.torque.torque_test import TorqueTest
from jaxmb.identify.parameters.free_parameters import affine_numbers, free_parameters, nothing_free
from jaxmb.identify.regression.torque_regressor import regressor_names
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.identify.study.reading.parameters import bounds_of
from jaxmb.io.validation import known_name
from jaxmb.machine.build import Model
from jaxmb.measurement.motion.record import Drives, MotionRecord


def free_gains(drives: Sequence[str], free: Iterable[str]) -> tuple[str, ...]:
    """Drives whose gains a study frees, out of those of a record."""
    patterns = [pattern for pattern in free if pattern.startswith(f"{FAMILY}.")]
    return tuple(name for name in drives if any(fnmatch.fnmatchcase(f"{FAMILY}.{name}", p) for p in patterns))


def gain_choice(model: Model, file: StudyFile, held: set[str], entries: Sequence[Entry]) -> GainChoice | None:
    """Gains of a first fit; None where none is free.

    Raises:
        ValueError: nothing tells a gain.
        NotImplementedError: some of the tests that are fitted have drives and others have none of them.
    """
    fitted = [entry for entry in entries if entry.role == "fit" and isinstance(entry.source, TorqueSource)]
    known = [f"{FAMILY}.{name}" for entry in fitted for name in entry.source.drives]
    for pattern in file.free:
        if pattern.startswith(f"{FAMILY}.") and not fnmatch.filter(known, pattern):
            if not known:
                raise ValueError(f"'{pattern}': no test that is fitted is of recordings at the motors, expected one")
            raise ValueError(known_name("gain or pattern", pattern, list(dict.fromkeys(known))))
    tests = [entry.source.recorded for entry in fitted if entry.source.recorded is not None]
    if not tests:
        return None
    wanted = [free_gains(test.drives.names, file.free) for test in tests]
    if len(tests) < len(fitted) or any(some != wanted[0] for some in wanted):
        raise NotImplementedError(
            "free gains of drives are those of recordings of the same motors in all torque tests, found other tests"
        )
    own = {pattern: part for pattern, part in file.free.items() if not pattern.startswith(f"{FAMILY}.")}
    free = free_parameters(model, bounds_of(model, own, held)) if own else nothing_free()
    names = regressor_names(model)
    share, constant = affine_numbers(model, free, names)
    return first_gains(tests, names, wanted[0], share, constant)


def with_gains(record: MotionRecord, choice: GainChoice | None) -> MotionRecord:
    """A record by gains that were found."""
    drives = record.drives
    if choice is None or drives is None:
        return record
    pairs = zip(drives.names, drives.gain.tolist(), strict=True)
    gains = np.array([choice.gains.get(name, gain) for name, gain in pairs])
    own = drives._replace(gain=gains)
    return dataclasses.replace(record, drives=own, effort=own.effort)


def with_free_gains(
    test: TorqueTest, rows: Prepared, drives: Drives, freed: Sequence[str], choice: GainChoice
) -> TorqueTest:
    """The test with gains as numbers of its own, its efforts those by the gains of a first fit."""
    samples = rows.samples
    if samples is None:
        raise ValueError("rows have no samples, expected those of `prepared` with keep_samples")
    freed = [name for name in freed if name in choice.gains]
    if not freed:  # of a test that is held out, by other motors
        return test
    gains = np.array([choice.gains[name] for name in freed])
    values = np.array([choice.values.get(name, 0.0) for name in test.parameters[: samples.regressor.shape[-1]]])
    columns = gain_columns(samples, drives, freed, gains, values)
    return test.with_own([f"{FAMILY}.{name}" for name in freed], gains, columns)
