"""Free and fixed parameters of a study, their initial values, and their prior, also from an earlier result."""

import itertools
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Literal, Self

import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Float
from pydantic import BaseModel, model_validator

from jaxmb.identify.experiments.test import Entry, Test
from jaxmb.identify.experiments.torque.torque_test import torque_entries
from jaxmb.identify.fit.linear import NO_EFFECT
from jaxmb.identify.fit.problem import Prior, Problem
from jaxmb.identify.parameters.free_parameters import Bound, FreeParameters, matching, unknown_pattern, values_by_name
from jaxmb.identify.parameters.model_parameters import parameter_table, parameters, unit
from jaxmb.identify.study.format.study_format import FreePart, StudyFile
from jaxmb.io.files import read_strict
from jaxmb.io.validation import validated
from jaxmb.machine.build import Model
from jaxmb.machine.families import DISTANCE_OFFSET, LOGARITHMIC, OF_BODIES, OF_GEOMETRY, OF_TESTS, STATION
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.tangent import motion_coordinates
from jaxmb.response.modal import check_mass_matrix, singular_mass_matrices

ROUNDING = 1e-9
"""Relative difference of values that are equal to the digits of a machine file."""


class EarlierValue(BaseModel):
    """A parameter in result.json."""

    value: float
    lower: float
    upper: float


class EarlierCovariance(BaseModel):
    """Covariance in result.json: of natural logarithms ("log") or of values in SI units ("linear")."""

    names: tuple[str, ...]
    tied: tuple[tuple[str, ...], ...]
    scale: tuple[Literal["log", "linear"], ...]
    matrix: tuple[tuple[float | None, ...], ...]

    @model_validator(mode="after")
    def _same_size(self) -> Self:
        size = len(self.names)
        if not {len(self.tied), len(self.scale), len(self.matrix), *map(len, self.matrix)} == {size}:
            raise ValueError(f"covariance: has {size} names, expected as many scales, tied names, rows and columns")
        return self


class EarlierResult(BaseModel):
    """The part of result.json that describes an identified machine."""

    parameters: dict[str, EarlierValue]
    covariance: EarlierCovariance

    @model_validator(mode="after")
    def _values_of_all(self) -> Self:
        names = {*self.covariance.names, *itertools.chain(*self.covariance.tied)}
        if missing := sorted(names - set(self.parameters)):
            raise ValueError(f"parameters: lack {', '.join(missing)}, expected those of the covariance")
        return self

    @property
    def matrix(self) -> Float[np.ndarray, "k k"]:
        """The covariance; NaN where unknown."""
        return np.array(self.covariance.matrix, dtype=float)

    def bounds(self, model: Model, others: Sequence[Bound], fixed: Collection[str]) -> list[Bound]:
        """Bounds of the machine's parameters with a standard deviation, without those that a study names itself.

        Args:
            model: the identified machine, without values of `[hold]`.
            others: bounds of the study.
            fixed: names of held parameters.

        Raises:
            ValueError: no parameter has a standard deviation, or the machine is not the identified one.
        """
        known, own = np.isfinite(np.diag(self.matrix)), parameters(model)
        named = {name for bound in others for name in bound.names} | set(fixed)
        found = []
        for tied, scale, is_known in zip(self.covariance.tied, self.covariance.scale, known.tolist(), strict=True):
            first = self.parameters[tied[0]]
            value = own.get(tied[0], first.value)  # not of the machine: a station, a gain
            if not np.isclose(value, first.value, rtol=ROUNDING, atol=ROUNDING * (first.upper - first.lower)):
                raise ValueError(
                    f"'{tied[0]}' is {value:g} in the machine and {first.value:g} in the earlier result,"
                    " expected the identified machine (machine.toml beside it)"
                )
            if is_known and tied[0] in own and not named & set(tied):
                found.append(Bound(tied, first.lower, first.upper, first.value, logarithmic=scale == "log"))
        if not known.any():
            raise ValueError("no parameter of the earlier result has a standard deviation, expected some")
        return found

    def covariance_of(
        self, free: FreeParameters, others: Collection[str]
    ) -> tuple[list[int], Float[np.ndarray, "k"], Float[np.ndarray, "k k"]]:
        """Entries of u with a prior from the result, its mean, and its covariance in u; stations, offsets of distances,
        gains and delays of channels have none, as those of another test are others, whatever its name.

        Args:
            free: the free parameters of a study.
            others: names of those with a prior of their own.

        Raises:
            ValueError: a parameter was fitted on another scale, or is tied to others.
        """
        known = np.isfinite(np.diag(self.matrix)).tolist()
        names = enumerate(self.covariance.names)
        of = {n: k for k, n in names if known[k] and n not in others and n.split(".")[0] not in OF_TESTS}
        entries = [i for i, name in enumerate(free.names) if name in of]
        rows = [of[free.names[i]] for i in entries]
        for i, row in zip(entries, rows, strict=True):
            scale = "log" if free.logarithmic[i] else "linear"
            if (scale, free.tied[i]) != (self.covariance.scale[row], self.covariance.tied[row]):
                raise ValueError(
                    f"'{free.names[i]}' has another scale or is tied to others than in the earlier result, expected the"
                    " same, or a standard deviation in [prior]"
                )
        width = np.where(free.logarithmic, 1.0, free.width)[entries]
        values = free.lower_value.copy()
        values[entries] = [self.parameters[free.names[i]].value for i in entries]
        return entries, free.encode(values)[entries], self.matrix[np.ix_(rows, rows)] / np.outer(width, width)


def earlier_result(path: Path) -> EarlierResult:
    """The identified machine of a result.json.

    Raises:
        InputError: the file cannot be read, or is no result of `jaxmb identify`.
    """
    return validated(EarlierResult, read_strict(path, "a result of an identification"), str(path))


def whitening(
    std: Float[np.ndarray, "d"], entries: Sequence[int], covariance: Float[np.ndarray, "k k"]
) -> Float[np.ndarray, "d d"]:
    """W [d, d] with covariance (W^T W)^-1 of independent parameters and of correlated ones.

    Args:
        std: standard deviations, inf without prior.
        entries: correlated parameters.
        covariance: of these.
    """
    found, size = np.diag(1.0 / std), np.sqrt(np.diag(covariance))
    lower = np.linalg.cholesky(covariance / np.outer(size, size))
    found[np.ix_(entries, entries)] = scipy.linalg.solve_triangular(lower, np.eye(len(size)), lower=True) / size
    return found


def fixed_values(model: Model, file: StudyFile) -> dict[str, float]:
    """Values of the held parameters of a study.

    Raises:
        ValueError: a name or pattern selects nothing.
    """
    names, fixed = list(parameter_table(model)), dict[str, float]()
    for pattern in sorted(file.hold, key=names.__contains__):  # a full name overrules a pattern
        fixed |= dict.fromkeys(_selected(model, names, pattern), file.hold[pattern])
    return fixed


def bounds_of(model: Model, parts: dict[str, FreePart], fixed: set[str], of_tests: Sequence[str] = ()) -> list[Bound]:
    """Bounds of the free parameters in the model's order, then of those of tests; a full name overrules a pattern.

    Args:
        model: the machine's.
        parts: entry of `[free]` by name or pattern.
        fixed: names of fixed parameters.
        of_tests: names of the tests' own parameters.

    Raises:
        ValueError: a name or pattern selects no parameter, a fixed one, or one that another pattern selects.
    """
    names = [*parameter_table(model), *of_tests]
    pattern_of: dict[str, str] = {}
    for pattern in sorted(parts, key=names.__contains__):  # full names last
        for name in _selected(model, names, pattern):
            if pattern not in names and name in pattern_of:
                raise ValueError(f"'{name}' is selected by both '{pattern_of[name]}' and '{pattern}'")
            if pattern in names and name in fixed:
                raise ValueError(f"'{name}' is both free and held")
            pattern_of[name] = pattern
    bounds: list[Bound] = []
    for pattern, part in parts.items():
        together = tuple(name for name in names if pattern_of.get(name) == pattern and name not in fixed)
        units = {unit(model, name): name for name in reversed(together)} if part.tied else {}
        if len(units) > 1:
            different = " and ".join(f"{name} ({own})" for own, name in reversed(units.items()))
            raise ValueError(f"'{pattern}' ties {different}, expected parameters of one unit")
        for each in ([together] if together else []) if part.tied else [(n,) for n in together]:
            logarithmic = each[0].split(".")[0] in LOGARITHMIC if part.scale is None else part.scale == "logarithmic"
            bounds.append(Bound(each, part.lower, part.upper, part.initial, logarithmic, part.needed or np.nan))
    return sorted(bounds, key=lambda b: names.index(b.names[0]))


def unnamed_bounds(tests: Sequence[Test], bounds: Sequence[Bound]) -> list[Bound]:
    """Bounds of parameters of tests that are free without being named, such as stations of pose tests."""
    named = {name for bound in bounds for name in bound.names}
    own = [bound for test in tests if test.own is not None for bound in test.own.bounds]
    return [bound for bound in own if not named & set(bound.names)]


def check_geometry(model: Model, bounds: Sequence[Bound]) -> None:
    """Raise NotImplementedError where geometry of a machine with loops is free: its closed postures would open."""
    found = [name for bound in bounds for name in bound.names if name.split(".")[0] in OF_GEOMETRY]
    if found and model.loops:
        raise NotImplementedError(
            f"'{found[0]}' is free and '{model.name}' has loops ('{model.loops[0]}' ...), expected an open chain"
        )


def bodies_without_effect(machine: Machine, fitted: Sequence[Entry]) -> list[str]:
    """Bodies that patterns of `[free]` skip in studies of torque tests alone: bodies without any effect on torques,
    such as a base at rest, and frames, massless bodies fixed to another one."""
    tests = [entry.test for entry in torque_entries(fitted)]
    if len(tests) < len(fitted):
        return []
    effect = dict[str, float]()
    for test in tests:
        size = np.linalg.norm(np.asarray(test.regressor) / np.asarray(test.std)[:, None], axis=0)
        for name, own in zip(test.parameters, size.tolist(), strict=True):
            effect[name] = max(effect.get(name, 0.0), own)
    smallest = NO_EFFECT * max(effect.values())
    acting = {name.split(".")[1] for name, own in effect.items() if name.split(".")[0] in OF_BODIES and own > smallest}
    frames = {body.name for body in machine.body if not body.joint and body.mass == 0.0}
    return [item.name for item in (*machine.body, *machine.payload) if item.name in frames or item.name not in acting]


def parameters_without_effect(model: Model, free: Iterable[str], bodies: Sequence[str]) -> set[str]:
    """Parameters that patterns of `[free]` select but that are not freed: those of the given bodies, and stiffnesses of
    position loops of motors with a brake.

    Raises:
        ValueError: a pattern selects only such parameters.
    """
    names = list(parameter_table(model))
    loops = [f"stiffness.{model.coordinates[shaft]}" for _, shaft in model.motors if model.locked[shaft]]
    own = [
        name for name in names if name in loops or (name.split(".")[0] in OF_BODIES and name.split(".")[1] in bodies)
    ]
    found = set[str]()
    for pattern in free:
        chosen = [] if pattern in names else matching(names, pattern)
        if chosen and set(chosen) <= set(own):
            raise ValueError(f"'{pattern}' selects {', '.join(chosen)}, without effect on any test")
        found.update(name for name in chosen if name in own and name not in free)
    return found


def _selected(model: Model, known: Sequence[str], pattern: str) -> list[str]:
    names = [pattern] if pattern in known else matching(known, pattern)
    if not names:
        rest = pattern.partition(".")[2]
        if rest in model.coordinates and model.locked[model.coordinates.index(rest)]:
            raise ValueError(
                f"'{pattern}' does not exist: '{rest}' is locked; where that is a drive in series with an elastic"
                " coordinate, both are one joint with stiffness and motor = { inertia, ratio }, whose brake torque"
                " tests release"
            )
        raise ValueError(unknown_pattern("parameter or pattern", pattern, known))
    return names


def initial_values(problem: Problem, bounds: Sequence[Bound]) -> tuple[np.ndarray, np.ndarray]:
    """Initial physical value of every free parameter, and a mask of the stated ones.

    The others start in the middle of their bounds; those of bodies at the machine's values, within their bounds, if in
    the middle the mass matrix is singular at the posture of a test, as with inertias of 0. Stiffnesses among them are
    multiplied by one common factor, within their bounds, with which the first natural frequency of the machine equals
    the first measured one, the first peak of the FRFs, as Huynh et al. 2020 (section 5) estimate the stiffness of the
    first joint.
    """
    middle = [np.sqrt(b.lower * b.upper) if b.logarithmic else 0.5 * (b.lower + b.upper) for b in bounds]
    values = np.array([m if b.initial is None else b.initial for b, m in zip(bounds, middle, strict=True)])
    given = np.array([b.initial is not None for b in bounds], dtype=bool)
    scaled = [i for i, b in enumerate(bounds) if b.initial is None and b.names[0].startswith("stiffness.")]
    of_bodies = [i for i, b in enumerate(bounds) if b.initial is None and b.names[0].split(".")[0] in OF_BODIES]
    shaken = [i for i, test in enumerate(problem.tests) if test.vibration is not None] if of_bodies else []
    if any(singular_mass_matrices(np.asarray(problem.view(i, values).tangent.mass)) for i in shaken):
        own = parameters(problem.model)
        values[of_bodies] = [np.clip(own[bounds[i].names[0]], bounds[i].lower, bounds[i].upper) for i in of_bodies]
    seen = ((t.vibration, i) for i, t in enumerate(problem.tests) if t.vibration is not None)
    measured = [(i, f) for vibration, i in seen if (f := vibration.first_frequency_hz) is not None]
    if not scaled or not measured:
        return values, given
    number, target_hz = measured[0]
    low, high = np.array([(bounds[i].lower, bounds[i].upper) for i in scaled]).T

    def with_factor(log_factor: float) -> np.ndarray:
        changed = values.copy()
        changed[scaled] = np.clip(values[scaled] * np.exp(log_factor), low, high)
        return changed

    def mismatch(log_factor: float) -> float:
        return _first_natural_frequency_hz(problem, number, with_factor(log_factor)) - target_hz

    ends = [float(np.log(x).max()) for x in (values[scaled] / low, high / values[scaled])]
    if mismatch(-ends[0]) >= 0.0 or mismatch(ends[1]) <= 0.0:
        return values, given  # no factor within the bounds gives the measured frequency
    root = scipy.optimize.brentq(mismatch, -ends[0], ends[1], xtol=1e-3)
    return with_factor(float(root)), given  # pyright: ignore[reportArgumentType]


def _first_natural_frequency_hz(problem: Problem, number: int, values: np.ndarray) -> float:
    tangent = problem.view(number, values).tangent
    mass, stiffness = np.asarray(tangent.mass), np.asarray(tangent.stiffness)
    if not (np.isfinite(mass).all() and np.isfinite(stiffness).all()):
        return 0.0  # no equilibrium: too soft
    check_mass_matrix(mass, motion_coordinates(problem.model))
    first = scipy.linalg.eigh(stiffness, mass, eigvals_only=True, subset_by_index=[0, 0])[0]
    return float(np.sqrt(max(first, 0.0)) / (2 * np.pi))


def prior_of(
    free: FreeParameters,
    patterns: dict[str, float],
    mean: np.ndarray,
    of_values: bool,
    earlier: EarlierResult | None,
) -> Prior | None:
    """Prior of a study; None where it states none.

    Args:
        free: the free parameters.
        patterns: standard deviation by name or pattern: of the natural logarithm, or of the value, SI, where the scale
            is linear.
        mean: physical values; NaN where unknown.
        of_values: whether the tests accept priors on a linear scale (see `accepts_prior`).
        earlier: prior of the parameters without a pattern.

    Raises:
        ValueError: a pattern selects no free parameter, one on a linear scale that the tests do not accept, or one
            without a mean.
    """
    if not patterns and earlier is None:
        return None
    stated = values_by_name(free.names, patterns, "free parameter or pattern")
    std = np.array([stated.get(name, np.inf) for name in free.names])  # inf: no prior
    known = zip(free.names, free.logarithmic, std, strict=True)
    accepted = {*OF_GEOMETRY, STATION, DISTANCE_OFFSET, "compliance", "guide_exponent", "play"}
    linear = [n for n, log, s in known if not log and np.isfinite(s) and n.split(".")[0] not in accepted]
    if linear and not of_values:
        raise ValueError(f"'{linear[0]}' is on a linear scale, expected a logarithmic one for a prior")
    for name, about, s in zip(free.names, mean, std, strict=True):
        if np.isnan(about) and np.isfinite(s):
            raise ValueError(f"'{name}' has no value as the mean of its prior, expected `initial` in [free]")
    std = np.where(np.array(free.logarithmic), std, std / free.width)
    mean = free.encode(np.where(np.isnan(mean), free.lower_value, mean))
    if earlier is None:
        return Prior(*map(jnp.asarray, (mean, std, np.diag(1.0 / std))))
    own = [name for name, s in zip(free.names, std, strict=True) if np.isfinite(s)]
    entries, mean[entries], covariance = earlier.covariance_of(free, own)
    std[entries] = np.sqrt(np.diag(covariance))
    return Prior(*map(jnp.asarray, (mean, std, whitening(std, entries, covariance))))
