"""From a study file to the problem it poses."""

import dataclasses
import difflib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from jaxmb.identify.elastostatic.parts import CompletePart, DeflectionTestPart
from jaxmb.identify.elastostatic.sets import DeflectionSet, deflection_set
from jaxmb.identify.experiments import FrfTest, Test, scene
from jaxmb.identify.initial import initial_values
from jaxmb.identify.measured import Measured
from jaxmb.identify.next_part import NextPart, check_next
from jaxmb.identify.parameters import (
    Bound,
    FreeParameters,
    free_parameters,
    matching,
    places,
    set_parameters,
)
from jaxmb.identify.presets import with_preset
from jaxmb.identify.problem import Prior, Problem, make_problem
from jaxmb.identify.search import check_algorithm
from jaxmb.identify.simulated import Simulated, check_scene, machine_named
from jaxmb.identify.study_file import FreePart, FrfTestPart, ModesTestPart, RefinePart, SearchPart, StudyFile
from jaxmb.identify.study_tests import called, frf_test, modes_test, names_of_tests
from jaxmb.machine.build import Model, build_model, without_coordinates
from jaxmb.machine.file import InputError, find_description, library_names, read_toml, validated
from jaxmb.machine.schema import Machine, known_name
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
    """For each FRF test what was measured: the FRFs, their modal analysis, and the machine that was simulated."""
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
    """Deflection tests, fitted in one linear step; a study has these or the others."""
    complete: CompletePart | None = None
    """What is said of a complete stiffness model of joints and links, where it is that which is to be found."""
    next: NextPart | None = None
    """Out of which candidates `inspect` is to choose the next tests."""

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
    def true_modes(self) -> tuple[Modes | None, ...]:
        """For each test the modes of the machine that was simulated, where it was."""
        return tuple(None if m is None or m.truth is None else m.truth.modes for m in self.measured)

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
        held = _held(model, file)
        model = set_parameters(model, held)
    with _place(f"{source}: [free]"):
        bounds = _bounds(model, file.free or EVERY_JOINT, set(held))
        free = free_parameters(model, bounds)
    tests: list[Test] = []
    masked: list[str] = []
    measured: list[Measured | None] = []
    deflections: list[DeflectionSet] = []
    names = names_of_tests(file.test)
    _unique_names(source, names)
    with _place(source):
        _one_kind(file)
    for label, part in zip(names, file.test, strict=True):
        with _place(f"{source}: {called(label)}"):
            if isinstance(part, FrfTestPart):
                test, notes, data = frf_test(part, label, file, folder, whole, model, noise_seed)
                masked += [f"{called(label)}: {note}" for note in notes]
                tests.append(test)
                measured.append(data)
            elif isinstance(part, ModesTestPart):
                tests.append(modes_test(part, label, file, model))
                measured.append(None)
            elif isinstance(part, DeflectionTestPart):
                deflections.append(deflection_set(part, label, folder, whole, model, noise_seed, file.complete))
    with _place(f"{source}: [next]"):
        check_next(file.next, model, [test.name for test in tests if isinstance(test, FrfTest)])
    with _place(f"{source}: [search]"):
        check_algorithm(file.search.algorithm)
    problem = make_problem(model, free, tests)
    with _place(source):
        initial, origin = initial_values(problem, bounds)
    for test in tests:
        with _place(f"{source}: {called(test.name)}"):
            check_scene(scene(test, free.apply(model, jnp.asarray(initial))), model)
    with _place(f"{source}: [prior]"):
        prior = _prior(free, file.prior, initial)
    truth = _common_truth([None if data is None else data.truth for data in measured], model)
    if deflections and all(s.truth is not None and s.truth == deflections[0].truth for s in deflections):
        truth = deflections[0].truth or {}
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
        masked=tuple(masked),
        search=file.search,
        refine=file.refine,
        rounds=file.rounds,
        least_rounds=file.least_rounds,
        agreement=file.agreement,
        tolerance=_tolerance(file, tests),
        note=file.note,
        deflections=tuple(deflections),
        complete=file.complete,
        next=file.next,
    )


def _unique_names(source: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{source}: the test name '{name}' is used twice, expected each once")


def _one_kind(file: StudyFile) -> None:
    count = sum(isinstance(part, DeflectionTestPart) for part in file.test)
    if 0 < count < len(file.test):
        raise NotImplementedError("deflection tests and tests of another kind in one study cannot be fitted together")
    if file.complete is not None and not count:
        raise ValueError("[complete] is for deflection tests, and there are none")
    if count and file.lock:
        raise NotImplementedError(
            f"lock: '{file.lock[0]}' cannot be locked in deflection tests, whose postures name it;"
            f' write "stiffness.{file.lock[0]}" = 0.0 in [hold] for a joint that does not give way'
        )
    if count and file.prior:
        raise NotImplementedError("a prior cannot be used with deflection tests")


def _tolerance(file: StudyFile, tests: list[Test]) -> float:
    if file.tolerance is not None:
        return file.tolerance
    frfs = [t for t in tests if isinstance(t, FrfTest)]
    if frfs:
        return 2e-16 * sum(float(np.sum(np.asarray(t.weight))) for t in frfs)
    # Modes are compared in units of their standard deviations: a millionth of one.
    return 1e-12 * sum(t.rows for t in tests)


def _held(model: Model, file: StudyFile) -> dict[str, float]:
    held: dict[str, float] = {}
    for exact in (False, True):  # a full name overrules a pattern
        for pattern, value in file.hold.items():
            if (pattern in places(model)) is exact:
                held |= dict.fromkeys(_selected(model, pattern), value)
    return held


def _bounds(model: Model, parts: dict[str, FreePart], held: set[str]) -> list[Bound]:
    """Bounds by parameter in the model's order; a full name overrules a pattern."""
    by_name: dict[str, tuple[str, FreePart]] = {}
    for exact in (False, True):
        for pattern, part in parts.items():
            if (pattern in places(model)) is not exact:
                continue
            for name in _selected(model, pattern):
                if not exact and name in by_name:
                    raise ValueError(f"'{name}' is selected by both '{by_name[name][0]}' and '{pattern}'")
                if exact and name in held:
                    raise ValueError(f"'{name}' is both free and held")
                by_name[name] = (pattern, part)
    chosen = {name: by_name[name] for name in places(model) if name in by_name and name not in held}
    bounds: list[Bound] = []
    done: set[str] = set()
    for pattern, part in chosen.values():
        together = tuple(n for n, (p, _) in chosen.items() if p == pattern)
        if pattern in done:
            continue
        done.add(pattern)
        for names in [together] if part.tied else [(n,) for n in together]:
            elastic = names[0].split(".")[0] in ("stiffness", "damping")
            logarithmic = elastic if part.scale is None else part.scale == "logarithmic"
            bounds.append(Bound(names, part.lower, part.upper, part.initial, logarithmic))
    order = {name: i for i, name in enumerate(places(model))}
    return sorted(bounds, key=lambda b: order[b.names[0]])


def _selected(model: Model, pattern: str) -> list[str]:
    names = matching(list(places(model)), pattern)
    if not names:
        family, _, rest = pattern.partition(".")
        near = difflib.get_close_matches(family, {name.partition(".")[0] for name in places(model)}, n=1)
        if near and near[0] != family and matching(list(places(model)), f"{near[0]}.{rest}"):
            raise ValueError(f"parameter or pattern '{pattern}' does not exist, did you mean '{near[0]}.{rest}'?")
        raise ValueError(known_name("parameter or pattern", pattern, places(model)))
    return names


def _prior(free: FreeParameters, patterns: dict[str, float], initial: np.ndarray) -> Prior | None:
    if not patterns:
        return None
    std = np.full(free.size, np.nan)
    for exact in (False, True):
        for pattern, value in patterns.items():
            if (pattern in free.names) is not exact:
                continue
            names = matching(list(free.names), pattern)
            if not names:
                raise ValueError(known_name("free parameter or pattern", pattern, free.names))
            std[[free.names.index(n) for n in names]] = value
    missing = [name for name, s in zip(free.names, std, strict=True) if np.isnan(s)]
    if missing:
        raise ValueError(f"'{missing[0]}' has no prior, expected one for every free parameter or for none")
    linear = [name for name, log in zip(free.names, free.logarithmic, strict=True) if not log]
    if linear:
        raise ValueError(f"'{linear[0]}' is on a linear scale, expected a logarithmic one for a prior")
    return Prior(jnp.asarray(free.encode(initial)), jnp.asarray(std))


def _common_truth(simulated: list[Simulated | None], model: Model) -> dict[str, float]:
    """True parameters, where all tests were simulated on one machine with the coordinates of the fitted one."""
    first = simulated[0] if simulated else None
    if first is None or first.coordinates != model.coordinates:
        return {}
    same = all(s is not None and s.parameters == first.parameters for s in simulated)
    return first.parameters if same else {}


@contextmanager
def _place(place: str) -> Iterator[None]:
    """Name the place in the study in front of what is wrong there."""
    try:
        yield
    except NotImplementedError as error:
        raise NotImplementedError(f"{place}: {error}") from None
    except ValueError as error:
        raise InputError(f"{place}: {error}") from None
