"""Context in which the tests of a study are read: machine, study file, preliminary fits; true machines of simulated
tests."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxmb.identify.experiments.test import Entry, Truth
from jaxmb.identify.experiments.torque.preliminary_fits import FrictionChoice, PreliminaryGains
from jaxmb.identify.parameters.free_parameters import values_by_name
from jaxmb.identify.parameters.model_parameters import parameter_table, parameters, set_parameters
from jaxmb.identify.study.format.study_format import StudyFile, machine_named
from jaxmb.identify.study.format.test_format import RecordedTestPart, Simulation
from jaxmb.machine.build import Model
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.postures import build_model
from jaxmb.mechanics.tangent import motion_coordinates


class ReadingContext(NamedTuple):
    """Context in which the tests of a study are read: the machine, the study file and preliminary fits."""

    file: StudyFile
    """The whole study."""
    folder: Path
    """Paths are relative to it."""
    unlocked_machine: Machine
    """The study's machine without the locks of the study."""
    model: Model
    """The machine that is fitted."""
    noise_seed: int | None
    """Seed of simulated noise instead of the study's own."""
    fitted: tuple[Entry, ...] = ()
    """The fitted tests, while held-out tests are read; empty before."""
    gains: PreliminaryGains | None = None
    """Gains of drives from a preliminary fit."""
    friction: FrictionChoice | None = None
    """Friction terms chosen in a preliminary fit; `unlocked_machine` has them."""


def study_model(machine: Machine, file: StudyFile) -> Model:
    """Model of a machine in a study, whose brakes are released in tests that require it."""
    released = any(test.releases_brakes for test in file.test)
    model = build_model(machine)
    return dataclasses.replace(model, brakes_release=True) if released and model.motors else model


def simulated_machine(spec: Simulation, context: ReadingContext) -> tuple[Model, int, Truth]:
    """The true machine of a simulated test (the stated one, else the study's own without its locks), the seed of its
    noise, and its true parameters.

    Args:
        spec: entry of the study file; a full name of a parameter overrules a pattern.
        context: study file, machine and preliminary fits.

    Raises:
        ValueError: a name or pattern selects no parameter.
    """
    machine = context.unlocked_machine if spec.machine is None else machine_named(spec.machine, context.folder)
    model = study_model(machine, context.file)
    model = set_parameters(model, values_by_name(list(parameter_table(model)), spec.parameters, "parameter"))
    seed = spec.noise_seed if context.noise_seed is None else context.noise_seed
    return model, seed, Truth(motion_coordinates(model), parameters(model))


def check_moving(model: Model, label: str, frames: Iterable[str]) -> None:
    """Raise ValueError for a frame that is fixed to the ground; the label precedes its name."""
    for frame in frames:
        if model.frame_node[model.frames.index(frame)] < 0:
            raise ValueError(f"{label} '{frame}' does not move, expected one that the machine moves")


def assumed_std(
    quantity: str, part: RecordedTestPart, units: Mapping[str, str], measured: Sequence[bool]
) -> tuple[str, ...]:
    """A sentence on default standard deviations of values that were measured without one; empty for none.

    Args:
        quantity: noun of the values.
        part: table of the study file.
        units: unit by key of a standard deviation in the entry.
        measured: for each key, whether there are such values.
    """
    keys = [key for key, seen in zip(units, measured, strict=True) if seen and key not in part.model_fields_set]
    texts = [f"{getattr(part, key):g} {units[key]}" for key in keys]
    remark = (
        f"no standard deviation is stated for its {quantity}: {' and '.join(texts)}"
        f" {'is' if len(texts) == 1 else 'are'} assumed, and all standard deviations follow from it"
    )
    return (remark,) if texts else ()


def assumed_values(part: RecordedTestPart, model: Model, absent: Sequence[str], q: np.ndarray) -> tuple[str, ...]:
    """A sentence on coordinates whose values neither the table of a test nor its posture states; empty for none.

    Args:
        part: table of the study file.
        model: the machine.
        absent: coordinates without a column in the table.
        q: posture whose values they have [n].
    """
    names = [name for name in absent if name not in part.posture]
    values = {
        name: f"{name} = {math.degrees(value):.4g} deg" if turns else f"{name} = {1e3 * value:.4g} mm"
        for name, value, turns in zip(model.coordinates, q.tolist(), model.revolute, strict=True)
    }
    remark = (
        f"{part.file} has no column for {', '.join(names)}: the reference posture's"
        f" {', '.join(values[name] for name in names)} is assumed"
    )
    return (remark,) if names else ()
