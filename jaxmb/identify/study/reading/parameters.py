"""Free and fixed parameters of a study, their initial values and their prior."""

import difflib
import math
from collections.abc import Iterable, Sequence

import jax.numpy as jnp
import numpy as np
import scipy

from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.experiments.torque.source import torque_entries
from jaxmb.identify.fit.linear import NO_EFFECT
from jaxmb.identify.fit.problem import Prior, Problem
from jaxmb.identify.parameters.free_parameters import Bound, FreeParameters, matching
from jaxmb.identify.parameters.model_parameters import parameter_table, unit
from jaxmb.identify.study.format.study_format import FreePart, StudyFile
from jaxmb.identify.study.reading.earlier import EarlierResult, whitening
from jaxmb.io.validation import known_name
from jaxmb.machine.build import Model
from jaxmb.machine.families import LOGARITHMIC, OF_BODIES, OF_GEOMETRY
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.tangent import motion_coordinates
from jaxmb.response.modal import check_mass_matrix


def fixed_values(model: Model, file: StudyFile) -> dict[str, float]:
    """Values of parameters that a study holds.

    Raises:
        ValueError: a name or pattern selects nothing.
    """
    fixed: dict[str, float] = {}
    for exact in (False, True):  # a full name overrules a pattern
        for pattern, value in file.hold.items():
            if (pattern in parameter_table(model)) is exact:
                fixed |= dict.fromkeys(_selected(model, list(parameter_table(model)), pattern), value)
    return fixed


def bounds_of(model: Model, parts: dict[str, FreePart], fixed: set[str], of_tests: Sequence[str] = ()) -> list[Bound]:
    """Bounds by parameter in the model's order, numbers of tests after it; a full name overrules a pattern.

    Args:
        model: the machine's.
        parts: entry of `[free]` by name or pattern.
        fixed: names of fixed parameters.
        of_tests: names of numbers of tests.

    Raises:
        ValueError: a name or pattern selects nothing, two select the same, or a fixed one.
    """
    names = [*parameter_table(model), *of_tests]
    by_name: dict[str, tuple[str, FreePart]] = {}
    for exact in (False, True):
        for pattern, part in parts.items():
            if (pattern in names) is not exact:
                continue
            for name in _selected(model, names, pattern):
                if not exact and name in by_name:
                    raise ValueError(f"'{name}' is selected by both '{by_name[name][0]}' and '{pattern}'")
                if exact and name in fixed:
                    raise ValueError(f"'{name}' is both free and held")
                by_name[name] = (pattern, part)
    chosen = {name: by_name[name] for name in names if name in by_name and name not in fixed}
    bounds: list[Bound] = []
    done: set[str] = set()
    for pattern, part in chosen.values():
        together = tuple(n for n, (p, _) in chosen.items() if p == pattern)
        if pattern in done:
            continue
        done.add(pattern)
        units = {unit(model, name): name for name in reversed(together)} if part.tied else {}
        if len(units) > 1:
            different = " and ".join(f"{name} ({own})" for own, name in reversed(units.items()))
            raise ValueError(f"'{pattern}' ties {different}, expected parameters of one unit")
        for each in [together] if part.tied else [(n,) for n in together]:
            logarithmic = each[0].split(".")[0] in LOGARITHMIC if part.scale is None else part.scale == "logarithmic"
            bounds.append(Bound(each, part.lower, part.upper, part.initial, logarithmic, part.needed or math.nan))
    order = {name: i for i, name in enumerate(names)}
    return sorted(bounds, key=lambda b: order[b.names[0]])


def unnamed_bounds(tests: Sequence[Test], bounds: Sequence[Bound]) -> list[Bound]:
    """Bounds of parameters of tests that are free without being named, such as stations of pose tests."""
    named = {name for bound in bounds for name in bound.names}
    own = [bound for test in tests if test.own is not None for bound in test.own.bounds]
    return [bound for bound in own if not named & set(bound.names)]


def check_geometry(model: Model, bounds: Sequence[Bound]) -> None:
    """Raise NotImplementedError where geometry is free of a machine with loops, whose postures would open."""
    found = [name for bound in bounds for name in bound.names if name.split(".")[0] in OF_GEOMETRY]
    if found and model.loops:
        raise NotImplementedError(
            f"'{found[0]}' is free and '{model.name}' has loops ('{model.loops[0]}' ...), expected an open chain"
        )


def idle_bodies(machine: Machine, entries: Sequence[Entry]) -> list[str]:
    """Bodies whose numbers patterns leave out in studies of torque tests alone: no torque depends on any of these, as
    on those of a base that rests, or the body is a frame, without mass and fixed to another one."""
    fitted = [entry for entry in entries if entry.role == "fit"]
    tests = [entry.test for entry in torque_entries(fitted)]
    if len(tests) < len(fitted):
        return []
    effect = dict.fromkeys(tests[0].parameters, 0.0)
    for test in tests:
        size = np.linalg.norm(np.asarray(test.regressor) / np.asarray(test.std)[:, None], axis=0)
        for name, own in zip(test.parameters, size.tolist(), strict=True):
            effect[name] = max(effect[name], own)
    smallest = NO_EFFECT * max(effect.values())
    acting = {name.split(".")[1] for name, own in effect.items() if name.split(".")[0] in OF_BODIES and own > smallest}
    frames = {body.name for body in machine.body if not body.joint and body.mass == 0.0}
    return [item.name for item in (*machine.body, *machine.payload) if item.name in frames or item.name not in acting]


def idle_parameters(model: Model, free: Iterable[str], bodies: Sequence[str]) -> set[str]:
    """Numbers of some bodies, and position loops of motors with a brake, that patterns of `[free]` select and that stay
    as they are.

    Raises:
        ValueError: a pattern selects nothing else.
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
            raise ValueError(f"'{pattern}' selects {', '.join(chosen)}, on which nothing depends")
        found.update(name for name in chosen if name in own and name not in free)
    return found


def _selected(model: Model, known: Sequence[str], pattern: str) -> list[str]:
    names = [pattern] if pattern in known else matching(known, pattern)
    if not names:
        family, _, rest = pattern.partition(".")
        if rest in model.coordinates and model.locked[model.coordinates.index(rest)]:
            raise ValueError(
                f"'{pattern}' is none, for '{rest}' is locked; where that is a drive in series with an elastic"
                " coordinate, both are one joint with stiffness and motor = { inertia, ratio }, whose brake torque"
                " tests release"
            )
        near = difflib.get_close_matches(family, {name.partition(".")[0] for name in known}, n=1)
        if near and near[0] != family and matching(known, f"{near[0]}.{rest}"):
            raise ValueError(f"parameter or pattern '{pattern}' does not exist, did you mean '{near[0]}.{rest}'?")
        raise ValueError(known_name("parameter or pattern", pattern, known))
    return names


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


def prior_of(
    free: FreeParameters,
    patterns: dict[str, float],
    mean: np.ndarray,
    of_values: bool = False,
    earlier: EarlierResult | None = None,
) -> Prior | None:
    """Prior of a study; None where it states none.

    Args:
        free: the free parameters.
        patterns: standard deviation by name or pattern: of the natural logarithm, or of the value, SI, where the scale
            is linear.
        mean: physical values about which it is; NaN where nothing says one.
        of_values: whether the tests take priors of values on a linear scale.
        earlier: prior of the parameters without a pattern.

    Raises:
        ValueError: a pattern selects nothing, a free parameter on a linear scale where tests do not take it, or one of
            which nothing is said.
    """
    if not patterns and earlier is None:
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
    std = np.where(np.isnan(std), np.inf, std)  # nothing is known of the others beforehand
    known = zip(free.names, free.logarithmic, std, strict=True)
    accepted = {*OF_GEOMETRY, "station", "compliance", "guide_exponent", "play"}
    linear = [n for n, log, s in known if not log and np.isfinite(s) and n.split(".")[0] not in accepted]
    if linear and not of_values:
        raise ValueError(f"'{linear[0]}' is on a linear scale, expected a logarithmic one for a prior")
    for name, about, s in zip(free.names, mean, std, strict=True):
        if np.isnan(about) and np.isfinite(s):
            raise ValueError(f"'{name}' has no value of its own for a prior to be about, expected `initial` in [free]")
    std = np.where(np.array(free.logarithmic), std, std / free.width)
    mean = free.encode(np.where(np.isnan(mean), free.lower_value, mean))
    if earlier is None:
        return Prior(jnp.asarray(mean), jnp.asarray(std))
    own = [name for name, s in zip(free.names, std, strict=True) if np.isfinite(s)]
    entries, mean[entries], covariance = earlier.covariance_of(free, own)
    std[entries] = np.sqrt(np.diag(covariance))
    return Prior(jnp.asarray(mean), jnp.asarray(std), jnp.asarray(whitening(std, entries, covariance)))
