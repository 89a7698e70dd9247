"""From a study file to the problem it poses."""

import dataclasses
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxmb.identify.experiments import FrfTest, ModesTest, Test, observe, predict_frf
from jaxmb.identify.initial import initial_values
from jaxmb.identify.parameters import (
    Bound,
    FreeParameters,
    free_parameters,
    matching,
    parameters,
    places,
    set_parameters,
)
from jaxmb.identify.presets import with_preset
from jaxmb.identify.problem import Prior, Problem, make_problem
from jaxmb.identify.stages import check_algorithm
from jaxmb.identify.study_file import FreePart, FrfTestPart, ModesTestPart, RefinePart, SearchPart, Simulate, StudyFile
from jaxmb.identify.weights import band_weights, peak_weights, usable_lines
from jaxmb.machine.build import Model, build_model, without_coordinates
from jaxmb.machine.file import InputError, find_description, library_names, load_machine, read_toml, validated
from jaxmb.machine.schema import Machine, known_name
from jaxmb.measurement.frf_set import FrfSet, in_band, read_frf
from jaxmb.mechanics.kinematics import check_coordinates, posture
from jaxmb.response.frf import DERIVATIVES, check_points, endpoints
from jaxmb.response.modal import Modes, modes


class Simulated(NamedTuple):
    """The machine behind a simulated test."""

    coordinates: tuple[str, ...]
    parameters: dict[str, float]
    modes: Modes


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
    true_modes: tuple[Modes | None, ...]
    """For each test the modes of the machine that was simulated, where it was."""
    masked: tuple[str, ...]
    """Sentences on lines that are not used."""
    search: SearchPart
    refine: RefinePart
    rounds: int
    least_rounds: int
    agreement: int
    tolerance: float

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
    def noise_objective(self) -> float:
        """What the objective would be on average at the true values, from the noise of the tests alone."""
        rows = np.asarray(self.problem.row_weights())
        return float(np.sum(rows)) * float(self.problem.noise_unit) ** 2


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
        whole = _machine(file.machine, folder)
        if file.gravity is not None:
            whole = whole.model_copy(update={"gravity": file.gravity})
        machine = without_coordinates(whole, file.lock)
        file = with_preset(file, len(machine.coordinates))
        model = build_model(machine)
    with _place(f"{source}: [hold]"):
        held = _held(model, file)
        model = set_parameters(model, held)
    with _place(f"{source}: [free]"):
        bounds = _bounds(model, file.free, set(held))
        free = free_parameters(model, bounds)
    tests: list[Test] = []
    masked: list[str] = []
    simulated: list[Simulated | None] = []
    _unique_names(source, file)
    for number, part in enumerate(file.test, 1):
        label = part.name or f"number {number}"
        with _place(f"{source}: test {label!r}" if part.name else f"{source}: test {label}"):
            if isinstance(part, FrfTestPart):
                test, notes, true = _frf_test(part, label, file, folder, whole, model, noise_seed)
                masked += [f"test {label}: {note}" for note in notes]
                tests.append(test)
                simulated.append(true)
            elif isinstance(part, ModesTestPart):
                tests.append(_modes_test(part, label, file, model))
                simulated.append(None)
    with _place(f"{source}: [search]"):
        check_algorithm(file.search.algorithm)
    problem = make_problem(model, free, tests)
    initial, origin = initial_values(problem, bounds)
    with _place(f"{source}: [prior]"):
        prior = _prior(free, file.prior, initial)
    truth = _common_truth(simulated, model)
    return Study(
        name=name,
        description=file.description,
        machine=machine,
        initial=initial,
        initial_source=origin,
        random_start=file.start == "random",
        problem=dataclasses.replace(problem, prior=prior),
        truth={n: truth[n] for names in free.tied for n in names if n in truth},
        true_modes=tuple(None if s is None else s.modes for s in simulated),
        masked=tuple(masked),
        search=file.search,
        refine=file.refine,
        rounds=file.rounds,
        least_rounds=file.least_rounds,
        agreement=file.agreement,
        tolerance=_tolerance(file, tests),
    )


def _unique_names(source: str, file: StudyFile) -> None:
    names = [part.name for part in file.test if part.name is not None]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{source}: the test name '{name}' is used twice, expected each once")


def _tolerance(file: StudyFile, tests: list[Test]) -> float:
    if file.tolerance is not None:
        return file.tolerance
    frfs = [t for t in tests if isinstance(t, FrfTest)]
    if frfs:
        return 2e-16 * sum(float(np.sum(np.asarray(t.weight))) for t in frfs)
    # Modes are compared in units of their standard deviations: a millionth of one.
    return 1e-12 * sum(t.rows for t in tests)


def _machine(name: str, folder: Path) -> Machine:
    beside = folder / name
    return load_machine(beside if beside.suffix in (".toml", ".urdf") else name)


def _held(model: Model, file: StudyFile) -> dict[str, float]:
    held: dict[str, float] = {}
    for pattern, value in file.hold.items():
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


def _frf_test(
    part: FrfTestPart, label: str, file: StudyFile, folder: Path, whole: Machine, model: Model, noise_seed: int | None
) -> tuple[FrfTest, list[str], Simulated | None]:
    q = posture(model, part.posture)
    outputs, inputs = endpoints(part.frame, part.outputs, part.inputs)
    check_points(model, (*outputs, *inputs))
    truth = None
    if part.simulate is not None:
        measured, truth = _simulated(part, part.simulate, file, folder, whole, noise_seed)
    else:
        measured = read_frf(folder / str(part.file))
    if measured.frf.shape[1:] != (len(outputs), len(inputs)):
        raise ValueError(
            f"'{measured.source}' has {measured.frf.shape[1]} outputs and {measured.frf.shape[2]} inputs,"
            f" expected {len(outputs)} and {len(inputs)} for {_points(outputs)} from {_points(inputs)}"
        )
    if part.band_hz is not None:
        measured = in_band(measured, part.band_hz)
    weight = _weights(part, measured, outputs, inputs)
    weight, notes = _masked(measured, weight, outputs, inputs)
    test = FrfTest(
        name=label,
        q=q,
        outputs=outputs,
        inputs=inputs,
        derivatives=DERIVATIVES[measured.kind],
        at=file.linearize_at,
        phase=part.phase,
        omega=jnp.asarray(2 * np.pi * measured.frequency_hz),
        measured=jnp.asarray(np.where(weight > 0.0, measured.frf, 1.0)),
        weight=jnp.asarray(weight),
        noise_std=jnp.asarray(part.noise_log_std),
    )
    return test, notes, truth


def _simulated(
    part: FrfTestPart, how: Simulate, file: StudyFile, folder: Path, whole: Machine, noise_seed: int | None
) -> tuple[FrfSet, Simulated]:
    model = build_model(_machine(how.machine, folder) if how.machine is not None else whole)
    model = set_parameters(model, how.parameters)
    count = int(np.floor((how.lines.last_hz - how.lines.first_hz) / how.lines.step_hz + 1e-9)) + 1
    frequency_hz = how.lines.first_hz + how.lines.step_hz * np.arange(count)
    outputs, inputs = endpoints(part.frame, part.outputs, part.inputs)
    q = posture(model, part.posture)
    seen = observe(model, q, file.linearize_at, outputs, inputs)
    h = np.asarray(predict_frf(seen, jnp.asarray(2 * np.pi * frequency_hz), DERIVATIVES[how.response]))
    if how.noise_log_std > 0.0:
        draw = np.random.default_rng(how.noise_seed if noise_seed is None else noise_seed)
        real, imaginary = draw.normal(scale=how.noise_log_std, size=(2, *h.shape))
        h = h * np.exp(real + 1j * imaginary)
    truth = Simulated(model.coordinates, parameters(model), modes(seen.tangent))
    return FrfSet(frequency_hz, h, how.response, source="simulated"), truth


def _common_truth(simulated: list[Simulated | None], model: Model) -> dict[str, float]:
    """True parameters, where all tests were simulated on one machine with the coordinates of the fitted one."""
    first = simulated[0]
    if first is None or first.coordinates != model.coordinates:
        return {}
    same = all(s is not None and s.parameters == first.parameters for s in simulated)
    return first.parameters if same else {}


def _weights(part: FrfTestPart, measured: FrfSet, outputs: tuple, inputs: tuple) -> np.ndarray:
    weights = part.weights
    if weights is None:
        return np.ones(measured.frf.shape)
    if weights.peaks is not None:
        return peak_weights(
            measured.frequency_hz,
            measured.frf,
            weights.peaks,
            weights.half_width_lines,
            weights.elsewhere,
            weights.prominence,
        )
    bands = []
    for band in weights.bands:
        if not band.band_hz[0] <= band.band_hz[1]:
            raise ValueError(f"weights: band_hz {band.band_hz[0]:g} to {band.band_hz[1]:g} Hz is reversed")
        rows = _indices("weights: output", band.outputs, outputs)
        columns = _indices("weights: input", band.inputs, inputs)
        bands.append((band.band_hz, band.weight, rows, columns))
    return band_weights(measured.frequency_hz, measured.frf.shape, bands, weights.elsewhere)


def _indices(what: str, wanted: tuple | None, points: tuple) -> list[int]:
    if wanted is None:
        return list(range(len(points)))
    for point in wanted:
        if tuple(point) not in points:
            raise ValueError(f"{what} {_points([point])} is not in the test, expected one of {_points(points)}")
    return [points.index(tuple(p)) for p in wanted]


def _masked(measured: FrfSet, weight: np.ndarray, outputs: tuple, inputs: tuple) -> tuple[np.ndarray, list[str]]:
    """Weights with what cannot enter a logarithm at 0, and a sentence on it."""
    usable = usable_lines(measured.frf)
    lines, notes = measured.frequency_hz.size, []
    for o in range(len(outputs)):
        for i in range(len(inputs)):
            lost = lines - int(usable[:, o, i].sum())
            if lost == 0:
                continue
            what = f"the FRF from {_points([inputs[i]])} to {_points([outputs[o]])}"
            values = measured.frf[:, o, i]
            if lost == lines and (outputs[o] == inputs[i] or not np.isfinite(values).any()):
                raise ValueError(f"{what} has no finite non-zero value in {lines} lines")
            notes.append(f"{lost} of {lines} lines of {what} are zero or not finite and are not used")
    weight = np.where(usable, weight, 0.0)
    if not usable.any():
        raise ValueError("no FRF has a finite non-zero value")
    if not weight.any():
        raise ValueError("all weights are zero, expected at least one line that counts")
    return weight, notes


def _modes_test(part: ModesTestPart, label: str, file: StudyFile, model: Model) -> ModesTest:
    q = posture(model, part.posture)
    check_coordinates(model, q=q)
    count = len(part.frequency_hz)
    if count > len(model.coordinates):
        raise ValueError(f"{count} modes were measured, but the machine has only {len(model.coordinates)} coordinates")
    content = np.zeros((count, len(model.coordinates)), dtype=bool)
    for mode, names in enumerate(part.content or ()):
        for name in names:
            if name not in model.coordinates:
                raise ValueError(known_name(f"content of mode {mode + 1}: coordinate", name, model.coordinates))
            content[mode, model.coordinates.index(name)] = True
    return ModesTest(
        name=label,
        q=q,
        at=file.linearize_at,
        frequency_hz=jnp.asarray(part.frequency_hz),
        damping_ratio=jnp.asarray(part.damping_percent) / 100.0,
        content=jnp.asarray(content),
        frequency_std=jnp.broadcast_to(jnp.asarray(part.frequency_std_hz), (count,)),
        damping_std=jnp.broadcast_to(jnp.asarray(part.damping_std_percent) / 100.0, (count,)),
        content_share=jnp.asarray(part.content_share),
        content_std=jnp.asarray(part.content_std),
    )


def _points(points: object) -> str:
    return ", ".join(f"{frame} {direction}" for frame, direction in points)  # pyright: ignore[reportGeneralTypeIssues]


@contextmanager
def _place(place: str) -> Iterator[None]:
    """Name the place in the study in front of what is wrong there."""
    try:
        yield
    except NotImplementedError as error:
        raise NotImplementedError(f"{place}: {error}") from None
    except ValueError as error:
        raise InputError(f"{place}: {error}") from None
