"""Context of the tests of a study: the machine, the study file and preliminary fits."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy

from jaxmb.identify.experiments.entry import Entry, Truth
from jaxmb.identify.experiments.torque.friction_fit import FrictionChoice
from jaxmb.identify.experiments.torque.gain_fit import GainChoice
from jaxmb.identify.fit.problem import Problem
from jaxmb.identify.parameters.free_parameters import Bound, matching
from jaxmb.identify.parameters.model_parameters import parameter_table, parameters, set_parameters
from jaxmb.identify.study.file import machine_named
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.identify.study.format.test_format import Simulation
from jaxmb.machine.build import Model
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.postures import build_model
from jaxmb.mechanics.tangent import motion_coordinates
from jaxmb.response.modal import check_mass_matrix


def initial_values(problem: Problem, bounds: Sequence[Bound]) -> tuple[np.ndarray, np.ndarray]:
    """Initial physical value of every free parameter, and whether it was given or estimated.

    What is not given starts in the middle of its bounds. Stiffnesses among it are then multiplied by one common factor,
    within their bounds, for which the first natural frequency of the machine is the first that was measured: the first
    peak of the FRFs, as Huynh et al. 2020 (section 5) find their guess of the first joint's stiffness.
    """
    middle = [np.sqrt(b.lower * b.upper) if b.logarithmic else 0.5 * (b.lower + b.upper) for b in bounds]
    values = np.array([m if b.initial is None else b.initial for b, m in zip(bounds, middle, strict=True)])
    given = np.array([b.initial is not None for b in bounds])
    scaled = [i for i, b in enumerate(bounds) if b.initial is None and b.names[0].startswith("stiffness.")]
    seen = ((t.vibration, i) for i, t in enumerate(problem.tests) if t.vibration is not None)
    measured = [(i, f) for vibration, i in seen if (f := vibration.first_frequency_hz) is not None]
    if not scaled or not measured:
        return values, given
    number, target_hz = measured[0]
    low = np.array([bounds[i].lower for i in scaled])
    high = np.array([bounds[i].upper for i in scaled])

    def with_factor(log_factor: float) -> np.ndarray:
        changed = values.copy()
        changed[scaled] = np.clip(values[scaled] * np.exp(log_factor), low, high)
        return changed

    def mismatch(log_factor: float) -> float:
        return _first_natural_frequency_hz(problem, number, with_factor(log_factor)) - target_hz

    ends = [float(np.log(x).max()) for x in (values[scaled] / low, high / values[scaled])]
    if mismatch(-ends[0]) >= 0.0 or mismatch(ends[1]) <= 0.0:
        return values, given  # the first peak lies outside of what the bounds allow
    root = scipy.optimize.brentq(mismatch, -ends[0], ends[1], xtol=1e-3)
    return with_factor(float(root)), given  # pyright: ignore[reportArgumentType]


def _first_natural_frequency_hz(problem: Problem, number: int, values: np.ndarray) -> float:
    vibration = problem.tests[number].vibration
    if vibration is None:
        return 0.0
    tangent = vibration.tangent(problem.view(number, values))
    mass, stiffness = np.asarray(tangent.mass), np.asarray(tangent.stiffness)
    if not (np.isfinite(mass).all() and np.isfinite(stiffness).all()):
        return 0.0  # no equilibrium: too soft
    check_mass_matrix(mass, motion_coordinates(problem.model))
    first = scipy.linalg.eigh(stiffness, mass, eigvals_only=True, subset_by_index=[0, 0])[0]
    return float(np.sqrt(max(first, 0.0)) / (2 * np.pi))


class Setting(NamedTuple):
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
    true_machine: Machine | None = None
    """Machine of simulated tests that name none; `unlocked_machine` where not given."""
    fitted: tuple[Entry, ...] = ()
    """Tests that are fitted, when those that are held out are read."""
    gains: GainChoice | None = None
    """Gains of drives from a preliminary fit."""
    friction: FrictionChoice | None = None
    """Friction terms chosen in a preliminary fit; `unlocked_machine` has them."""
    about: Model | None = None
    """The machine of a fit with rigid gears, about which torque tests are linearized."""
    reversed_gears: tuple[str, ...] = ()
    """Joints whose record at the shaft is read with the opposite sign of the gear ratio."""


def study_model(machine: Machine, file: StudyFile) -> Model:
    """Model of a machine in a study, in whose torque tests brakes of motors are released."""
    released = any(test.kind == "torque" for test in file.test)
    model = build_model(machine)
    return dataclasses.replace(model, brakes_release=True) if released and model.motors else model


class Simulated(NamedTuple):
    """The machine that a simulated test is made of, with the seed of its noise."""

    model: Model
    noise_seed: int
    truth: Truth


def simulated_machine(how: Simulation, setting: Setting) -> Simulated:
    """The machine that a simulated test is made of: another one, or the study's own with nothing locked.

    Args:
        how: entry of the study file; of its parameters a name overrules a pattern.
        setting: of the test.

    Raises:
        ValueError: a name or pattern is none of a parameter.
    """
    own = setting.true_machine or setting.unlocked_machine
    machine = own if how.machine is None else machine_named(how.machine, setting.folder)
    model = study_model(machine, setting.file)
    names = list(parameter_table(model))
    given: dict[str, float] = {}
    for pattern, value in how.parameters.items():
        if pattern not in names:
            given |= dict.fromkeys(matching(names, pattern) or [pattern], value)
    model = set_parameters(model, given | {name: value for name, value in how.parameters.items() if name in names})
    seed = how.noise_seed if setting.noise_seed is None else setting.noise_seed
    return Simulated(model, seed, Truth(motion_coordinates(model), parameters(model)))
