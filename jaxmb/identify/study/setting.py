"""What the tests of a study stand in."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.experiments.torque.friction_fit import FrictionChoice
from jaxmb.identify.experiments.torque.gain_fit import GainChoice
from jaxmb.identify.parameters.free_parameters import matching
from jaxmb.identify.parameters.model_parameters import parameter_table, set_parameters
from jaxmb.identify.study.file import machine_named
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.machine.build import Model
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.postures import build_model


class Setting(NamedTuple):
    """What the tests of a study stand in."""

    file: StudyFile
    """The whole study."""
    folder: Path
    """What paths are relative to."""
    whole: Machine
    """The study's machine, nothing locked."""
    model: Model
    """The machine that is fitted."""
    noise_seed: int | None
    """Seed of simulated noise instead of the study's own."""
    measured: Machine | None = None
    """What simulated tests are made of where they name no machine; `whole` where not given."""
    fitted: tuple[Entry, ...] = ()
    """Tests that are fitted, when those that are held out are read."""
    gains: GainChoice | None = None
    """Gains of drives of a first fit."""
    friction: FrictionChoice | None = None
    """Terms of friction that were found in a first look at the tests, which `whole` has."""
    fit: Model | None = None
    """The machine of a fit with rigid gears, about which torque tests are linearized."""


def study_model(machine: Machine, file: StudyFile) -> Model:
    """Model of a machine in a study, in whose torque tests brakes of motors are released."""
    released = any(test.kind == "torque" for test in file.test)
    model = build_model(machine)
    return dataclasses.replace(model, brakes_release=True) if released and model.motors else model


def measured_model(machine: str | None, values: Mapping[str, float], setting: Setting) -> Model:
    """The machine that a simulated test is made of: another one, or the study's own with nothing locked.

    Args:
        machine: name or path of another one.
        values: of its parameters, by name or pattern; a name overrules a pattern.
        setting: of the test.

    Raises:
        ValueError: a name or pattern is none of a parameter.
    """
    own = setting.measured or setting.whole
    model = study_model(own if machine is None else machine_named(machine, setting.folder), setting.file)
    names = list(parameter_table(model))
    given: dict[str, float] = {}
    for pattern, value in values.items():
        if pattern not in names:
            given |= dict.fromkeys(matching(names, pattern) or [pattern], value)
    return set_parameters(model, given | {name: value for name, value in values.items() if name in names})
