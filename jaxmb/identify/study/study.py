"""From a study file to the problem it poses."""

import dataclasses
import os
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from jaxmb.identify.assess.laws.law_terms import law_terms
from jaxmb.identify.experiments.deflection_test import load_tests
from jaxmb.identify.experiments.frf_test import FrfTest
from jaxmb.identify.experiments.motion import scene
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.fit.problem import Problem, make_problem
from jaxmb.identify.fit.search import check_algorithm
from jaxmb.identify.parameters.free_parameters import FreeParameters, free_parameters
from jaxmb.identify.parameters.model_parameters import set_parameters
from jaxmb.identify.study.format.deflection_format import CompletePart
from jaxmb.identify.study.format.law_format import LawsPart
from jaxmb.identify.study.format.next_format import NextPart, check_next
from jaxmb.identify.study.format.study_format import FreePart, RefinePart, SearchPart, StudyFile
from jaxmb.identify.study.initial import initial_values
from jaxmb.identify.study.presets import with_preset
from jaxmb.identify.study.reading.deflections import DeflectionSet
from jaxmb.identify.study.reading.frf import called
from jaxmb.identify.study.reading.frf_source import Measured
from jaxmb.identify.study.reading.parameters import bounds_of, held_values, prior_of
from jaxmb.identify.study.reading.tests import Check, check_kinds, common_truth, read_tests
from jaxmb.identify.study.simulation.frf import Setting, Simulated, check_scene, machine_named
from jaxmb.io.files import find_description, library_names, read_toml
from jaxmb.io.validation import place, validated
from jaxmb.machine.build import Model, build_model, without_coordinates
from jaxmb.machine.schema import Machine
from jaxmb.response.modal import Modes


@dataclasses.dataclass(frozen=True)
class Study:
    """A study, read and checked: what is to be fitted to what, and how."""

    name: str
    description: str
    machine: Machine
    initial: np.ndarray
    """Physical values at which the fit is said to start [d]."""
    initial_source: tuple[str, ...]
    """Where each initial value is from: "given" or "estimated"."""
    random_start: bool
    """Whether what was not given starts at random instead of at the estimate."""
    problem: Problem
    """The tests, and the prior where there is one, as a least-squares problem."""
    truth: dict[str, float]
    """True values of the free parameters where the tests were simulated on a machine of the same build, by name."""
    measured: tuple[Measured | None, ...]
    """For each test, where it is of FRFs, what was measured: the FRFs and their modal analysis."""
    simulated: tuple[Simulated | None, ...]
    """For each test the machine that was simulated, where one was."""
    masked: tuple[str, ...]
    """Sentences on lines that are not used."""
    search: SearchPart
    refine: RefinePart
    rounds: int
    least_rounds: int
    agreement: int
    tolerance: float
    note: str = ""
    """What a reader of the results has to know."""
    deflections: tuple[DeflectionSet, ...] = ()
    """Deflection tests."""
    checks: tuple[Check, ...] = ()
    """What is held out: predicted and compared, and not seen by the fit."""
    complete: CompletePart | None = None
    """What is said of a complete stiffness model of joints and links, where it is that which is to be found."""
    next: NextPart | None = None
    """Out of which candidates `inspect` is to choose the next tests."""
    laws: LawsPart | None = None
    """Which parameters may follow a law of posture, load or amplitude."""
    amplitudes: tuple[float | None, ...] = ()
    """Of each test."""

    @property
    def model(self) -> Model:
        """The machine's, held parameters set."""
        return self.problem.model

    @property
    def free(self) -> FreeParameters:
        """The parameters that the fit moves."""
        return self.problem.free

    @property
    def tests(self) -> tuple[Test, ...]:
        """What was measured."""
        return self.problem.tests

    @property
    def is_linear(self) -> bool:
        """Whether it is fitted in one linear step: deflections alone, which are linear in compliances."""
        return bool(self.deflections) and not self.tests and self.problem.prior is None and not self.model.springs

    @property
    def true_modes(self) -> tuple[Modes | None, ...]:
        """For each test the modes of the machine that was simulated, where it was."""
        return tuple(None if one is None else one.modes for one in self.simulated)

    @property
    def noise_objective(self) -> float:
        """What the objective would be on average at the true values, from the noise of the tests alone.

        inf where the noise of a test is not known beforehand.
        """
        if any(isinstance(t, FrfTest) and not t.noise_known for t in self.tests):
            return float("inf")
        rows = np.asarray(self.problem.row_weights())
        return float(np.sum(rows)) * float(self.problem.noise_unit) ** 2


EVERY_JOINT = {"stiffness.*": FreePart(lower=1.0, upper=1e15)}
"""What a complete stiffness model is said to free, which finds compliances of its own."""


def study_names() -> tuple[str, ...]:
    """Names of the studies that come with jaxmb."""
    return library_names("studies")


def load_study(name_or_path: str | os.PathLike[str], noise_seed: int | None = None, preset: str | None = None) -> Study:
    """Study from a built-in name or a TOML file; paths in it are relative to the file.

    Args:
        name_or_path: "kr90-modelled", "studies/mine.toml".
        noise_seed: seed of simulated noise instead of the study's own.
        preset: method instead of the study's own: "default" or "huynh2020".

    Raises:
        InputError: (a ValueError) anything in the file, or in the files it names, cannot be; one sentence says where.
        NotImplementedError: the study asks for something this version does not have.
    """
    path = find_description(name_or_path, "studies", "study", (".toml",))
    data = read_toml(path) | ({} if preset is None else {"preset": preset})
    file = validated(StudyFile, data, str(path))
    return make_study(file, path.stem, path.parent, str(path), noise_seed)


def make_study(file: StudyFile, name: str, folder: Path, source: str = "study", noise_seed: int | None = None) -> Study:
    """Study from its description, for those who build one in Python.

    Args:
        file: the description.
        name: name of the study.
        folder: what paths in the description are relative to.
        source: what messages call the description.
        noise_seed: seed of simulated noise instead of the description's own.

    Raises:
        InputError: see `load_study`.
    """
    with place(source):
        whole = machine_named(file.machine, folder)
        if file.gravity is not None:
            whole = whole.model_copy(update={"gravity": file.gravity})
        machine = without_coordinates(whole, file.lock)
        file = with_preset(file, len(machine.coordinates))
        model = build_model(machine)
    with place(f"{source}: [hold]"):
        held = held_values(model, file)
        model = set_parameters(model, held)
    with place(f"{source}: [free]"):
        bounds = bounds_of(model, file.free or EVERY_JOINT, set(held))
        free = free_parameters(model, bounds)
    with place(source):
        check_kinds(file)
    found = read_tests(file, source, Setting(file, folder, whole, model, noise_seed))
    tests = found.tests
    with place(f"{source}: [next]"):
        check_next(file.next, model, [test.name for test in tests if isinstance(test, FrfTest)])
    if file.laws is not None:
        with place(f"{source}: [laws]"):
            if found.deflections:
                raise NotImplementedError("laws cannot be found together with deflection tests")
            law_terms(
                file.laws,
                model,
                free,
                np.array([np.asarray(t.q) for t in tests]),
                found.amplitudes,
                [t.name for t in tests],
            )
    with place(f"{source}: [search]"):
        check_algorithm(file.search.algorithm)
    with place(source):
        loads = None if file.complete is not None else load_tests(model, found.deflections)
        if loads is not None and (tests or file.prior) and any(group.robust for group in found.deflections):
            raise NotImplementedError("robust is for deflection tests alone, with no other tests and no prior")
        problem = make_problem(model, free, tests, loads)
        initial, origin = initial_values(problem, bounds)
    for test in (*tests, *(check.test for check in found.checks)):
        with place(f"{source}: {called(test.name)}"):
            check_scene(scene(test, free.apply(model, jnp.asarray(initial))), model)
    with place(f"{source}: [prior]"):
        prior = prior_of(free, file.prior, initial)
    truth = common_truth([*found.simulated, *found.deflections], model)
    return Study(
        name=name,
        description=file.description,
        machine=machine,
        initial=initial,
        initial_source=origin,
        random_start=file.start == "random",
        problem=dataclasses.replace(problem, prior=prior),
        truth={n: truth[n] for names in free.tied for n in names if n in truth},
        measured=tuple(found.measured),
        simulated=tuple(found.simulated),
        masked=tuple(found.masked),
        search=file.search,
        refine=file.refine,
        rounds=file.rounds,
        least_rounds=file.least_rounds,
        agreement=file.agreement,
        tolerance=_tolerance(file, problem),
        note=file.note,
        deflections=tuple(found.deflections),
        checks=tuple(found.checks),
        complete=file.complete,
        next=file.next,
        laws=file.laws,
        amplitudes=tuple(found.amplitudes),
    )


def _tolerance(file: StudyFile, problem: Problem) -> float:
    if file.tolerance is not None:
        return file.tolerance
    frfs = [t for t in problem.tests if isinstance(t, FrfTest)]
    if frfs:
        return 2e-16 * sum(float(np.sum(np.asarray(t.weight))) for t in frfs)
    # All else is compared in units of its standard deviations: a millionth of one.
    loads = 0 if problem.loads is None else problem.loads.std.size
    return 1e-12 * (loads + sum(t.rows for t in problem.tests))
