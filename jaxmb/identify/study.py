"""From a study file to the problem it poses."""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from jaxmb.identify.elastostatic.load_tests import load_tests
from jaxmb.identify.elastostatic.parts import CompletePart, DeflectionTestPart
from jaxmb.identify.elastostatic.sets import DeflectionSet, deflection_set
from jaxmb.identify.experiments import FrfTest, Test, scene
from jaxmb.identify.initial import initial_values
from jaxmb.identify.law_part import LawsPart
from jaxmb.identify.law_terms import law_terms
from jaxmb.identify.measured import Measured
from jaxmb.identify.next_part import NextPart, check_next
from jaxmb.identify.parameters import FreeParameters, free_parameters, set_parameters
from jaxmb.identify.presets import with_preset
from jaxmb.identify.problem import Problem, make_problem
from jaxmb.identify.search import check_algorithm
from jaxmb.identify.simulated import Simulated, check_scene, machine_named
from jaxmb.identify.study_file import FreePart, FrfTestPart, ModesTestPart, RefinePart, SearchPart, StudyFile
from jaxmb.identify.study_modes import modes_test
from jaxmb.identify.study_parameters import bounds_of, held_values, prior_of
from jaxmb.identify.study_tests import called, frf_test, held_out_lines, names_of_tests
from jaxmb.machine.build import Model, build_model, without_coordinates
from jaxmb.machine.file import InputError, find_description, library_names, read_toml, validated
from jaxmb.machine.schema import Machine
from jaxmb.response.modal import Modes


@dataclasses.dataclass(frozen=True)
class Check:
    """A test that the fit does not see."""

    test: Test
    measured: Measured | None


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
    with _place(source):
        whole = machine_named(file.machine, folder)
        if file.gravity is not None:
            whole = whole.model_copy(update={"gravity": file.gravity})
        machine = without_coordinates(whole, file.lock)
        file = with_preset(file, len(machine.coordinates))
        model = build_model(machine)
    with _place(f"{source}: [hold]"):
        held = held_values(model, file)
        model = set_parameters(model, held)
    with _place(f"{source}: [free]"):
        bounds = bounds_of(model, file.free or EVERY_JOINT, set(held))
        free = free_parameters(model, bounds)
    tests: list[Test] = []
    checks: list[Check] = []
    masked: list[str] = []
    measured: list[Measured | None] = []
    simulated: list[Simulated | None] = []
    amplitudes: list[float | None] = []
    deflections: list[DeflectionSet] = []
    names = names_of_tests(file.test)
    _unique_names(source, names)
    with _place(source):
        _check_kinds(file)
    for number, (label, part) in enumerate(zip(names, file.test, strict=True)):
        own_seed = _seed_of(noise_seed, number)
        with _place(f"{source}: {called(label)}"):
            if isinstance(part, FrfTestPart):
                test, notes, data = frf_test(part, label, file, folder, whole, model, own_seed)
                truth = data.truth
                masked += [f"{called(label)}: {note}" for note in notes]
                if part.check_every is not None:
                    test, held_out = held_out_lines(test, part.check_every)
                    checks.append(Check(held_out, data))
            elif isinstance(part, ModesTestPart):
                data = None
                test, truth = modes_test(part, label, file, folder, whole, model, own_seed)
            elif isinstance(part, DeflectionTestPart):
                deflections.append(deflection_set(part, label, folder, whole, model, own_seed, file.complete))
                continue
            else:
                continue
            if part.role == "check":
                checks.append(Check(test, data))
            else:
                tests.append(test)
                measured.append(data)
                simulated.append(truth)
                amplitudes.append(part.amplitude)
    with _place(source):
        if not tests and all(group.role == "check" for group in deflections):
            raise ValueError("every test has the role 'check', expected one to fit")
    with _place(f"{source}: [next]"):
        check_next(file.next, model, [test.name for test in tests if isinstance(test, FrfTest)])
    if file.laws is not None:
        with _place(f"{source}: [laws]"):
            if deflections:
                raise NotImplementedError("laws cannot be found together with deflection tests")
            law_terms(
                file.laws, model, free, np.array([np.asarray(t.q) for t in tests]), amplitudes, [t.name for t in tests]
            )
    with _place(f"{source}: [search]"):
        check_algorithm(file.search.algorithm)
    with _place(source):
        loads = None if file.complete is not None else load_tests(model, deflections)
        if loads is not None and (tests or file.prior) and any(group.robust for group in deflections):
            raise NotImplementedError("robust is for deflection tests alone, with no other tests and no prior")
        problem = make_problem(model, free, tests, loads)
        initial, origin = initial_values(problem, bounds)
    for test in (*tests, *(check.test for check in checks)):
        with _place(f"{source}: {called(test.name)}"):
            check_scene(scene(test, free.apply(model, jnp.asarray(initial))), model)
    with _place(f"{source}: [prior]"):
        prior = prior_of(free, file.prior, initial)
    truth = _common_truth([*simulated, *deflections], model)
    return Study(
        name=name,
        description=file.description,
        machine=machine,
        initial=initial,
        initial_source=origin,
        random_start=file.start == "random",
        problem=dataclasses.replace(problem, prior=prior),
        truth={n: truth[n] for names in free.tied for n in names if n in truth},
        measured=tuple(measured),
        simulated=tuple(simulated),
        masked=tuple(masked),
        search=file.search,
        refine=file.refine,
        rounds=file.rounds,
        least_rounds=file.least_rounds,
        agreement=file.agreement,
        tolerance=_tolerance(file, problem),
        note=file.note,
        deflections=tuple(deflections),
        checks=tuple(checks),
        complete=file.complete,
        next=file.next,
        laws=file.laws,
        amplitudes=tuple(amplitudes),
    )


def _seed_of(noise_seed: int | None, number: int) -> int | None:
    """Seed of one test's noise: that of all for the first, and for each other one that follows from it."""
    if noise_seed is None or number == 0:
        return noise_seed
    return int(np.random.SeedSequence([noise_seed, number]).generate_state(1)[0])


def _unique_names(source: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{source}: the test name '{name}' is used twice, expected each once")


def _check_kinds(file: StudyFile) -> None:
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


def _tolerance(file: StudyFile, problem: Problem) -> float:
    if file.tolerance is not None:
        return file.tolerance
    frfs = [t for t in problem.tests if isinstance(t, FrfTest)]
    if frfs:
        return 2e-16 * sum(float(np.sum(np.asarray(t.weight))) for t in frfs)
    # All else is compared in units of its standard deviations: a millionth of one.
    loads = 0 if problem.loads is None else problem.loads.std.size
    return 1e-12 * (loads + sum(t.rows for t in problem.tests))


def _common_truth(simulated: Sequence[Simulated | DeflectionSet | None], model: Model) -> dict[str, float]:
    """True parameters, where all tests were simulated on one machine with the coordinates of the fitted one."""
    truths: list[dict[str, float] | None] = []
    for one in simulated:
        if isinstance(one, Simulated):
            truths.append(one.parameters if one.coordinates == model.coordinates else None)
        else:
            truths.append(None if one is None else one.truth)
    first = truths[0] if truths else None
    return first if first is not None and all(t == first for t in truths) else {}


@contextmanager
def _place(place: str) -> Iterator[None]:
    """Name the place in the study in front of what is wrong there."""
    try:
        yield
    except NotImplementedError as error:
        raise NotImplementedError(f"{place}: {error}") from None
    except ValueError as error:
        raise InputError(f"{place}: {error}") from None
