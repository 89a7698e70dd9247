"""A validated study: machine, tests, free parameters, solver and least-squares problem, made from a study file."""

import dataclasses
import enum
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from jaxmb.identify.experiments.components import accepts_prior, is_robust, own_names
from jaxmb.identify.experiments.test import ROLES, Entry, Test
from jaxmb.identify.experiments.tolerances import Tolerances
from jaxmb.identify.fit.problem import Problem, make_problem, test_at, with_tests
from jaxmb.identify.fit.search import algorithm_named
from jaxmb.identify.fit.settings import FitSettings, Start
from jaxmb.identify.fit.two_steps import check_two_steps
from jaxmb.identify.parameters.free_parameters import FreeParameters, free_parameters, nothing_free
from jaxmb.identify.parameters.model_parameters import parameters, set_parameters
from jaxmb.identify.study.context import ReadingContext, study_model
from jaxmb.identify.study.format.next_format import AnyNextPart
from jaxmb.identify.study.format.static_format import CompletePart
from jaxmb.identify.study.format.study_format import (
    LawsPart,
    StudyFile,
    machine_named,
    read_study_file,
    stated_tolerances,
    study_digest,
    with_one_start,
    with_preset,
)
from jaxmb.identify.study.law_terms import law_terms
from jaxmb.identify.study.reading.friction_and_gains import (
    check_free_friction,
    friction_bounds,
    friction_choice,
    preliminary_gains,
    with_friction,
    with_friction_remarks,
)
from jaxmb.identify.study.reading.parameters import (
    EarlierResult,
    bodies_without_effect,
    bounds_of,
    check_geometry,
    earlier_result,
    fixed_values,
    initial_values,
    parameters_without_effect,
    prior_of,
    unnamed_bounds,
)
from jaxmb.identify.study.reading.tests import (
    after_preliminary_fits,
    check_next,
    check_stiffness,
    common_truth,
    read_tests,
)
from jaxmb.identify.study.reading.vibration import without_absent_frfs
from jaxmb.io.validation import Table, display_name, error_location, listed, validated, warnings_as_remarks
from jaxmb.machine.build import Model
from jaxmb.machine.changed import machine_of, with_locked
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.tangent import motion_coordinates


class StudyOrigin(NamedTuple):
    """Description from which a study was made, to make it again."""

    file: StudyFile
    """As it was given, before the settings of a preset."""
    folder: Path
    """Paths in it are relative to this folder."""
    noise_seed: int | None
    """Seed of simulated noise instead of the description's own."""
    digest: str
    """See `study_digest`."""


class Solver(enum.Enum):
    """Method by which the parameters of a study are estimated."""

    SEARCH = "search"
    """Population search and refinement."""
    TWO_STEPS = "two steps"
    """Stiffness from modes, then damping from FRFs (Rognant et al. 2010)."""
    LINEAR_STEP = "linear step"
    """Weighted linear least squares: all predictions are linear in the same numbers."""
    STIFFNESS_MODEL = "stiffness model"
    """Reduction of a complete stiffness model of joints and links to its identifiable parameters, then a linear step;
    no other parameters are free."""

    @property
    def is_linear(self) -> bool:
        """Whether the estimate is that of a linear step: neither starts nor bounds."""
        return self in (Solver.LINEAR_STEP, Solver.STIFFNESS_MODEL)


MOST_SHOWN = 9
"""Names in the representation of a study."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Study:
    """A study, read and checked: machine, tests, free parameters and settings of the fit."""

    name: str
    description: str
    machine: Machine
    problem: Problem
    """The fitted tests, and the prior where there is one, as a least-squares problem."""
    entries: tuple[Entry, ...]
    """All tests, in the order of the file, those that are fitted before those that are held out."""
    solver: Solver
    settings: FitSettings
    start: Start
    truth: dict[str, float]
    """True values of the free parameters where the tests were simulated on a machine of the same build, by name."""
    origin: StudyOrigin
    """Description from which it was made."""
    note: str = ""
    """A remark for readers of the results."""
    complete: CompletePart | None = None
    """Options of a complete stiffness model; None for other solvers."""
    next: AnyNextPart | None = None
    """Candidate tests from which `inspect` selects the next ones."""
    laws: LawsPart | None = None
    """Which parameters may follow a law of posture, load or amplitude."""
    tolerances: Tolerances | None = None
    """Standard deviations of the stated numbers of machine and tests; None where all is exact."""
    source: str = ""
    """Origin of the study, such as a publication."""
    remarks: tuple[str, ...] = ()
    """Warnings raised while it was read, of its machine for instance."""
    read_seconds: float = 0.0
    """Duration of its reading, s."""

    def __repr__(self) -> str:
        """Machine, tests with their kind and role, and number of free parameters."""
        tests = [f"{entry.name} ({entry.kind}, {ROLES[entry.role]})" for entry in self.entries]
        free = f"{len(self.free.names)} free parameters: {listed(self.free.names, MOST_SHOWN)}"
        return f"<Study {self.name} of {self.machine.name}: tests {listed(tests, MOST_SHOWN)}; {free}>"

    @property
    def model(self) -> Model:
        """Model of the machine, with the fixed parameters of the study."""
        return self.problem.model

    @property
    def free(self) -> FreeParameters:
        """The free parameters."""
        return self.problem.free

    @property
    def tests(self) -> tuple[Test, ...]:
        """The fitted tests."""
        return self.problem.tests

    @property
    def fitted(self) -> tuple[Entry, ...]:
        """Entries of `tests`."""
        return tuple(entry for entry in self.entries if entry.role == "fit")

    @property
    def checks(self) -> tuple[Entry, ...]:
        """Entries of held-out tests: predicted and compared, without effect on the fit."""
        return tuple(entry for entry in self.entries if entry.role == "check")

    def machine_with(self, model: Model) -> Machine:
        """The machine with the numbers of a model of it."""
        return machine_of(self.machine, model)

    def with_problem(self, problem: Problem) -> "Study":
        """The study with another problem, from which its fitted entries take their tests."""
        tests = iter(problem.tests)
        entries = tuple(
            dataclasses.replace(entry, test=next(tests)) if entry.role == "fit" else entry for entry in self.entries
        )
        return dataclasses.replace(self, problem=problem, entries=entries)

    @property
    def exact_tests(self) -> tuple[str, ...]:
        """Names of the fitted tests whose description is exact: simulated ones, unless the study states tolerances."""
        by_default = self.origin.file.tolerances is None
        return tuple(entry.name for entry in self.fitted if by_default and entry.truth is not None)

    @property
    def relinearized(self) -> bool:
        """Whether tests are linearized about a fitted machine (`linearized_about`)."""
        return any(entry.source.linearized_about is not None for entry in self.entries)

    def linearized_about(self, model: Model) -> "Study":
        """The study with its nonlinear tests linearized about a fitted machine."""
        found = list[Entry]()
        for entry in self.entries:
            if entry.source.linearized_about is not None:
                with error_location(display_name(entry.name)):
                    new = entry.source.linearized_about(model)
                entry = dataclasses.replace(entry, test=new.test, source=new.source)
            found.append(entry)
        return self._with_entries(found)

    def at_values(self, values: Float[np.ndarray, "d"]) -> "Study":
        """The study with the tests' own free parameters at physical values."""
        if not self.free.of_tests:
            return self
        return self._with_entries(
            [dataclasses.replace(entry, test=test_at(entry.test, self.free, values)) for entry in self.entries]
        )

    def _with_entries(self, entries: Sequence[Entry]) -> "Study":
        fitted = [entry.test for entry in entries if entry.role == "fit"]
        return dataclasses.replace(self, entries=tuple(entries), problem=with_tests(self.problem, fitted))


def known_values(model: Model, free: FreeParameters, start: Start) -> Float[np.ndarray, "d"]:
    """Physical values of the free parameters before any test: the study's `initial`, else the machine's own values if
    they are inside the bounds, else those at which a fit starts.

    Parameters without effect on any test keep them, so that the machine file does not change there.
    """
    own = parameters(model)
    machine = np.array([own.get(name, np.nan) for name in free.names])  # NaN for parameters of tests
    inside = (machine >= np.array(free.lower_value)) & (machine <= np.array(free.upper_value))
    return np.where(inside & ~start.given, machine, start.values)


def solver_of(file: StudyFile, problem: Problem) -> Solver:
    """Solver of a study.

    One linear step requires predictions of all tests that are linear in the same numbers, and a prior, if any, of
    values on a linear scale and of tests that accept its rows.

    Raises:
        ValueError: a fit in two steps lacks tests or parameters of one of them.
        NotImplementedError: a test down-weights outliers, which this solver or a prior does not support.
    """
    if file.complete is not None:
        return Solver.STIFFNESS_MODEL
    if file.preset == "rognant2010":
        check_two_steps(problem)
        return Solver.TWO_STEPS
    solver = Solver.LINEAR_STEP if _is_linear(problem) else Solver.SEARCH
    robust = next((test.name for test in problem.tests if is_robust(test)), None)
    if robust is not None and solver is Solver.SEARCH:
        raise NotImplementedError(
            f"{display_name(robust)}: robust = true is for linear studies, expected no other kind of test and"
            " no prior beside it"
        )
    if robust is not None and problem.prior is not None:
        raise NotImplementedError("robust torque tests have no prior beside them, expected robust = true or a prior")
    return solver


def _is_linear(problem: Problem) -> bool:
    reciprocal, prior = linear_in(problem), problem.prior
    if reciprocal is None or prior is None:
        return reciprocal is not None
    by_value = ~np.array(problem.free.logarithmic) & ~reciprocal
    return all(map(accepts_prior, problem.tests)) and bool(by_value[np.isfinite(np.asarray(prior.std))].all())


def linear_in(problem: Problem) -> np.ndarray | None:
    """Mask [d] of the free values in whose reciprocals all predictions are linear; they are linear in the other values.

    None where the predictions are not all linear in the same numbers.
    """
    forms = [test.linear for test in problem.tests if test.linear is not None]
    each = [r for form in forms if (r := form.reciprocal(problem.model, problem.free)) is not None]
    if len(each) < len(problem.tests):
        return None
    table = np.array(each)
    by_reciprocal, by_value = np.any(table == 1.0, axis=0), np.any(table == 0.0, axis=0)
    return None if np.any(by_reciprocal & by_value) else by_reciprocal


def load_study(
    name_or_path: str | os.PathLike[str],
    noise_seed: int | None = None,
    preset: str | None = None,
    search: str | None = None,
) -> Study:
    """Study from a built-in name or a TOML file; paths in it are relative to the file.

    Args:
        name_or_path: "kr90-modelled", "studies/mine.toml".
        noise_seed: seed of simulated noise instead of the study's own.
        preset: method instead of the study's own: "default", "huynh2020" or "rognant2010".
        search: algorithm of the population search instead of the study's own, such as "cmaes".

    Raises:
        InputError: (a ValueError) the file, or a file it names, is invalid; one sentence names the location.
        NotImplementedError: the study needs a feature that this version lacks.
    """
    file, path = read_study_file(name_or_path, preset, search)
    return make_study(file, path.stem, path.parent, str(path), noise_seed)


@threadpool_limits.wrap(limits=1, user_api="blas")  # as in `identify`: the noise of torques is estimated by a fit
def make_study(
    file: StudyFile | Table,
    name: str,
    folder: str | os.PathLike[str] = ".",
    source: str = "study",
    noise_seed: int | None = None,
) -> Study:
    """Study from a description built in Python.

    Args:
        file: the description, also as the plain data that a study file holds.
        name: name of the study.
        folder: folder to which paths in the description are relative.
        source: name of the description in messages.
        noise_seed: seed of simulated noise instead of the description's own.

    Raises:
        InputError: see `load_study`.
    """
    began, folder = time.monotonic(), Path(folder)
    with warnings_as_remarks() as remarks, error_location(source):
        given = file if isinstance(file, StudyFile) else validated(StudyFile, file, source)
        context, fixed, entries = _context_and_tests(given, folder, noise_seed)
        earlier = None if given.prior_from is None else earlier_result(folder / given.prior_from)
        problem, start, entries = _problem_and_start(context, fixed, entries, earlier)
        file, tolerance = context.file, context.file.tolerance
        if tolerance is None:
            tolerance = float(problem.noise_unit) ** 2 * sum(test.noise.exact_cost for test in problem.tests)
        truth = common_truth([entry for entry in entries if entry.role == "fit"], motion_coordinates(context.model))
        study = Study(
            name=name,
            description=file.description,
            machine=with_locked(context.unlocked_machine, file.lock),
            problem=problem,
            entries=tuple(entries),
            solver=solver_of(file, problem),
            settings=FitSettings(file.search, file.refine, file.rounds, file.least_rounds, file.agreement, tolerance),
            start=start,
            truth={n: truth[n] for names in problem.free.tied for n in names if n in truth},
            note=file.note,
            complete=file.complete,
            next=file.next,
            laws=file.laws,
            tolerances=stated_tolerances(file),
            source=file.source,
            origin=StudyOrigin(given, folder, noise_seed, study_digest(given, folder)),
        )
    return dataclasses.replace(study, remarks=tuple(remarks), read_seconds=time.monotonic() - began)


def _context_and_tests(
    file: StudyFile, folder: Path, noise_seed: int | None
) -> tuple[ReadingContext, dict[str, float], list[Entry]]:
    """Context of the tests of a description after preliminary fits, the values of `[hold]`, and the tests."""
    whole = machine_named(file.machine, folder)
    whole = whole if file.gravity is None else whole.model_copy(update={"gravity": file.gravity})
    machine = with_locked(whole, file.lock)
    file = with_one_start(with_preset(file, len(machine.coordinates)))
    model = study_model(machine, file)
    with error_location("[hold]"):
        fixed = fixed_values(model, file)
        model = set_parameters(model, fixed)
    context = ReadingContext(file, folder, whole, model, noise_seed)
    entries = read_tests(file, context)
    with error_location("[free]"):
        gains = preliminary_gains(model, file, set(fixed), entries)
    if gains is not None:
        context = context._replace(gains=gains)
        entries = after_preliminary_fits(entries, context)
    choice = friction_choice(model, entries)
    if choice is not None and choice.values:
        whole = with_friction(whole, choice)
        model = set_parameters(study_model(with_locked(whole, file.lock), file), fixed)
        context = context._replace(unlocked_machine=whole, model=model, friction=choice)
        entries = after_preliminary_fits(entries, context)
    with error_location("[search]"):
        search = file.search.model_copy(update={"algorithm": algorithm_named(file.search.algorithm)})
    context = context._replace(file=file.model_copy(update={"search": search}))
    return context, fixed, with_friction_remarks(entries, choice)


def _problem_and_start(
    context: ReadingContext, fixed: dict[str, float], entries: Sequence[Entry], earlier: EarlierResult | None
) -> tuple[Problem, Start, list[Entry]]:
    """Problem of a description with its prior, the start of its fit, and the tests without FRFs that vanish in the
    machine."""
    file, model, fitted = context.file, context.model, [entry for entry in entries if entry.role == "fit"]
    tests = [entry.test for entry in fitted]
    with error_location("[free]"):
        of_tests = list(dict.fromkeys(name for test in tests for name in own_names(test)))
        check_free_friction(file.free)
        insensitive = parameters_without_effect(
            model, file.free, bodies_without_effect(context.unlocked_machine, fitted)
        )
        bounds = bounds_of(model, friction_bounds(context.friction) | file.free, fixed.keys() | insensitive, of_tests)
        bounds += unnamed_bounds(tests, bounds)
        if earlier is not None:
            machine = with_locked(context.unlocked_machine, file.lock)
            bounds += earlier.bounds(study_model(machine, file), bounds, fixed.keys())
        check_geometry(model, bounds)
        free = free_parameters(model, bounds, of_tests) if file.complete is None else nothing_free()
    if file.next is not None:
        with error_location("[next]"):
            check_next(
                file.next,
                context.unlocked_machine,
                model,
                [entry.name for entry in fitted if entry.kind == file.next.kind],
            )
    if file.laws is not None:
        with error_location("[laws]"):
            law_terms(file.laws, model, free, fitted)
    problem = make_problem(model, free, tests)
    start = Start(*initial_values(problem, bounds), random=file.start == "random")
    at_start = free.apply(model, start.values)
    check_stiffness(file, at_start)
    # away from the start too, where a parameter such as a first moment may be 0
    box = problem.box
    anywhere = free.apply(model, free.values(np.random.default_rng(0).uniform(box.lower, box.upper)))
    found = list[Entry]()
    for entry in entries:
        with error_location(display_name(entry.name)):
            if entry.test.vibration is not None:
                entry.test.vibration.check(at_start)
            found.append(without_absent_frfs(entry, (at_start, anywhere)))
    problem = with_tests(problem, [entry.test for entry in found if entry.role == "fit"])
    with error_location("[prior]"):
        of_machine = parameters(model)
        # a drive gain starts from a preliminary fit, which a prior must not use as its mean
        is_estimated = ~start.given & np.array([name not in of_machine for name in free.names], dtype=bool)
        linear_mean = np.where(is_estimated, np.nan, known_values(model, free, start))
        mean = np.where(free.logarithmic, start.values, linear_mean)
        prior = prior_of(free, file.prior, mean, all(map(accepts_prior, tests)), earlier)
    unknown = next((test.name for test in tests if not test.noise.is_known), None)
    count = np.count_nonzero(np.asarray(problem.stated_variances()))
    if unknown is not None and prior is None and count <= free.size:
        raise ValueError(
            f"{display_name(unknown)}: noise cannot be estimated, as {count} measured values for {free.size} free"
            " parameters leave no residual: expected more values, or a standard deviation"
        )
    return dataclasses.replace(problem, prior=prior), start, found
