"""Context of the tests of a study: the machine, the study file and preliminary fits."""

import dataclasses
from pathlib import Path
from typing import NamedTuple

from jaxmb.identify.experiments.entry import Entry, Truth
from jaxmb.identify.experiments.torque.preliminary_fits import FrictionChoice, GainChoice
from jaxmb.identify.parameters.free_parameters import matching
from jaxmb.identify.parameters.model_parameters import parameter_table, parameters, set_parameters
from jaxmb.identify.study.file import machine_named
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.identify.study.format.test_format import Simulation
from jaxmb.machine.build import Model
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.postures import build_model
from jaxmb.mechanics.tangent import motion_coordinates


class ReadingContext(NamedTuple):
    """Context of the tests of a study: the machine, the study file and preliminary fits."""

    file: StudyFile
    """The whole study."""
    folder: Path
    """Paths are relative to it."""
    unlocked_machine: Machine
    """The study's machine, nothing locked."""
    model: Model
    """The machine that is fitted."""
    noise_seed: int | None
    """Seed of simulated noise instead of the study's own."""
    fitted: tuple[Entry, ...] = ()
    """Tests that are fitted, when those that are held out are read."""
    gains: GainChoice | None = None
    """Gains of drives from a preliminary fit."""
    friction: FrictionChoice | None = None
    """Friction terms chosen in a preliminary fit; `unlocked_machine` has them."""


def study_model(machine: Machine, file: StudyFile) -> Model:
    """Model of a machine in a study, whose brakes are released in tests that require it."""
    released = any(test.releases_brakes for test in file.test)
    model = build_model(machine)
    return dataclasses.replace(model, brakes_release=True) if released and model.motors else model


class Simulated(NamedTuple):
    """The machine that a simulated test is made of, with the seed of its noise."""

    model: Model
    noise_seed: int
    truth: Truth


def simulated_machine(how: Simulation, context: ReadingContext) -> Simulated:
    """The machine that a simulated test is made of: another one, or the study's own with nothing locked.

    Args:
        how: entry of the study file; of its parameters a name overrules a pattern.
        context: of the tests.

    Raises:
        ValueError: a name or pattern is none of a parameter.
    """
    machine = context.unlocked_machine if how.machine is None else machine_named(how.machine, context.folder)
    model = study_model(machine, context.file)
    names = list(parameter_table(model))
    given: dict[str, float] = {}
    for pattern, value in how.parameters.items():
        if pattern not in names:
            given |= dict.fromkeys(matching(names, pattern) or [pattern], value)
    model = set_parameters(model, given | {name: value for name, value in how.parameters.items() if name in names})
    seed = how.noise_seed if context.noise_seed is None else context.noise_seed
    return Simulated(model, seed, Truth(motion_coordinates(model), parameters(model)))
