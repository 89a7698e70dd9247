"""Search for the single model error, in the description of a machine or its tests, that explains the misfit of a
fit."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmb.compiled import compiled
from jaxmb.identify.assess.estimate import Estimate
from jaxmb.identify.estimation.identifiability import first_order_drops, identifiability
from jaxmb.identify.estimation.least_squares import host_minimum
from jaxmb.identify.experiments.components import Hypothesis, own_names
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.fit.problem import Problem, is_large, with_free_numbers, without_name
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.io.validation import display_name
from jaxmb.machine.build import Model

RIGID = 1e5
"""Stiffness of locked coordinates over the largest of all others."""


class Stated(NamedTuple):
    """Indices of coordinates whose stiffness or damping is stated and not free."""

    stiffness: tuple[int, ...]
    """Locked coordinates included."""
    damping: tuple[int, ...]


def stated_joints(model: Model, free: FreeParameters) -> Stated:
    """Coordinates whose stiffness or damping a study states and does not free."""
    locked, found = np.array(model.locked), []
    for leaf, known in (("stiffness", locked), ("damping", np.zeros_like(locked))):
        of_free = [row for target in free.targets if target.leaf == leaf for (row,) in target.entries]
        stated = known | (~locked & (np.asarray(getattr(model, leaf)) > 0.0))
        stated[of_free] = False
        found.append(tuple(np.flatnonzero(stated).tolist()))
    return Stated(*found)


def machine_changes(model: Model, stated: Stated) -> Iterator[Hypothesis]:
    """Model-error hypotheses on a machine: a factor on all masses, a payload at each end frame, stated compliances and
    dampings of joints."""
    yield Hypothesis("masses", 0.1, lambda x: f"all masses {np.exp(x):.3g} times as large")
    total = float(np.sum(np.asarray(model.mass)))
    for frame in model.end_frames:
        yield Hypothesis(f"payload {frame}", 0.01 * total, functools.partial(_payload_text, frame))
    stiffness = np.asarray(model.stiffness)
    joints = stiffness[: len(model.joints)]
    typical = float(np.median(joints[joints > 0.0])) if np.any(joints > 0.0) else 1.0
    seen = _seen_at_joints(model)
    for i in stated.stiffness:
        name, own = model.coordinates[i], 0.0 if model.locked[i] else 1.0 / float(stiffness[i])
        unit = "N m/rad" if model.revolute[i] else "N/m"
        text = functools.partial(_joint_text, name, unit, own)
        typical_here = typical / float(seen[i])
        starts = (0.3 / typical_here, 1.0 / typical_here, 3.0 / typical_here)
        yield Hypothesis(f"compliance {name}", 0.1 / typical_here, text, -own, starts)
    for i in stated.damping:
        unit = "N m s/rad" if model.revolute[i] else "N s/m"
        text = functools.partial(_damping_text, model.coordinates[i], unit, float(model.damping[i]))
        yield Hypothesis(f"damping {model.coordinates[i]}", 0.1, text)


def changeable(model: Model) -> Model:
    """The model prepared for `changed_machine`: with payloads at end frames, and springs instead of locks."""
    return _all_elastic(_with_payloads(model, model.end_frames))


def changed_machine(model: Model, stated: Stated, numbers: Float[Array, "c"]) -> Model:
    """A changeable model corrected by numbers in the order of `machine_changes`: a logarithmic factor on all masses,
    payloads as its last masses, compliances in series with springs at the same loss factor, logarithmic factors on
    dampings."""
    frames, joints = len(model.end_frames), len(stated.stiffness)
    masses, payloads, compliances, dampings = jnp.split(numbers, np.cumsum([1, frames, joints]))
    heavier = jnp.exp(masses[0])
    more = jnp.zeros_like(model.stiffness).at[jnp.array(stated.stiffness, dtype=int)].set(compliances)
    softer = 1.0 / (1.0 + model.stiffness * more)
    damped = jnp.ones_like(model.damping).at[jnp.array(stated.damping, dtype=int)].set(jnp.exp(dampings))
    return dataclasses.replace(
        model,
        mass=jnp.concatenate([model.mass[: model.mass.size - frames] * heavier, payloads]),
        first_moment=model.first_moment * heavier,
        inertia=model.inertia * heavier,
        stiffness=model.stiffness * softer,
        damping=model.damping * softer * damped,
    )


def _all_elastic(model: Model) -> Model:
    """The model with springs in place of locks, nearly rigid and with the median damping."""
    locked, stiffness, damping = np.array(model.locked), np.asarray(model.stiffness), np.asarray(model.damping)
    if not locked.any():
        return model
    elastic = ~locked & (stiffness > 0.0)
    seen = _seen_at_joints(model)
    rigid = RIGID * float(np.max(stiffness * seen, where=elastic, initial=1.0)) / seen
    loss = float(np.median(damping[elastic] / stiffness[elastic])) if elastic.any() else 0.0
    return dataclasses.replace(
        model,
        locked=(False,) * locked.size,
        stiffness=jnp.asarray(np.where(locked, rigid, stiffness)),
        damping=jnp.asarray(np.where(locked, rigid * loss, damping)),
    )


def _seen_at_joints(model: Model) -> Float[np.ndarray, "n"]:
    """Factor that converts a stiffness of each coordinate to its joint: 1, and the squared gear ratio for motor
    shafts."""
    seen = np.ones(len(model.coordinates))
    seen[len(model.joints) :] = np.asarray(model.gear_ratio) ** 2
    return seen


def _with_payloads(model: Model, frames: Sequence[str]) -> Model:
    """The model with a payload of zero mass at each of some frames."""
    places = [model.frames.index(frame) for frame in frames]
    count = len(places)
    return dataclasses.replace(
        model,
        masses=(*model.masses, *(f"at {frame}" for frame in frames)),
        mass_node=(*model.mass_node, *(model.frame_node[k] for k in places)),
        mass_offset=jnp.concatenate([model.mass_offset, model.frame_offset[jnp.array(places, dtype=int)]]),
        mass=jnp.concatenate([model.mass, jnp.zeros(count)]),
        first_moment=jnp.concatenate([model.first_moment, jnp.zeros((count, 3))]),
        inertia=jnp.concatenate([model.inertia, jnp.zeros((count, 3, 3))]),
    )


def _damping_text(name: str, unit: str, own: float, value: float) -> str:
    return f"a damping of {own * np.exp(value):.3g} {unit} of {name} instead of {own:.3g}"


def _joint_text(name: str, unit: str, own: float, value: float) -> str:
    instead = f" instead of {1.0 / own:.3g}" if own else ", which is locked,"
    return f"a stiffness of {1.0 / (own + value):.3g} {unit} of {name}{instead}"


def _payload_text(frame: str, value: float) -> str:
    return f"a payload of {value:.3g} kg at {frame}" if value > 0.0 else f"{-value:.3g} kg less at {frame}"


TRIED = 5
"""Number of hypotheses that are fitted: those that explain most to first order."""
EXPLAINS = 0.9
"""Part of the misfit beyond noise above which a hypothesis is reported."""
EQUIVALENT = 0.02
"""Difference of explained parts up to which hypotheses are equivalent."""
MOST_NAMED = 3

State = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Returns the residual at given numbers, in units of the noise, and some columns of its Jacobian."""


@dataclasses.dataclass(frozen=True)
class ModelError:
    """A model-error hypothesis with its fitted number."""

    text: str
    """The error and its number, for messages."""
    explains: float
    """Part of the misfit beyond noise that it explains."""
    values: dict[str, float] = dataclasses.field(default_factory=dict)
    """Values of the free parameters in a fit with the error corrected, SI."""
    std: dict[str, float] = dataclasses.field(default_factory=dict)
    """Their standard deviations there, SI; of the noise alone."""


def model_errors(estimate: Estimate) -> tuple[ModelError, ...]:
    """Model-error hypotheses that each explain most of the misfit beyond noise, the best first.

    Each adds one number: a factor on all masses, a payload, the compliance of a joint modelled as rigid or with a
    stated stiffness, or an error in the description of a test (`Hypotheses`). They are ranked to first order, by the
    Jacobian; the best are fitted jointly with the free parameters. If none explains the misfit, outlier lines are
    excluded instead. Noise that is not stated is estimated from the line-to-line scatter. There is no search where
    noise explains the residual, where the residual cannot be distinguished from estimated noise
    (`GoodnessOfFit.systematic`), for machines with many degrees of freedom (`Problem.one_by_one`), and for large
    problems (`is_large`).
    """
    problem = estimate.study.problem
    if problem.one_by_one or is_large(problem):
        return ()  # each evaluation of a machine with many degrees of freedom would take minutes
    scatter = _scatter(estimate)
    if scatter is None:
        return ()
    study, size = estimate.study, estimate.u.size
    stated = stated_joints(estimate.model, study.free)
    changes, places = _changes(study.problem, estimate.model, stated)
    scale, own_scale = np.array([change.size for change in changes]), 1.0 / np.sqrt(scatter)
    model = changeable(estimate.model)

    def state(x: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        residual, jacobian = _state(study.problem, model, stated, places, x[:size], x[size:] * scale, columns)
        jacobian *= np.concatenate([np.ones(size), scale])[columns]
        return residual * own_scale, jacobian * own_scale[:, None]

    first = np.concatenate([estimate.u, np.zeros(scale.size)])
    if np.any(scatter != 1.0):
        first[:size] = _fitted(state, first, np.arange(size), study.problem)[0]
    residual, jacobian = state(first, np.arange(first.size))
    noise = float(np.sum(estimate.row_weights))
    excess = float(residual @ residual) - noise
    if excess <= 0.0:
        return ()
    drops = first_order_drops(residual, jacobian[:, :size], jacobian[:, size:])
    drops[_repeated(jacobian[:, size:])] = 0.0
    found = []
    likely = np.argsort(drops)[::-1][:TRIED].tolist()
    far = [np.asarray(study.free.encode(study.start.values)), first[:size]]
    for k in dict.fromkeys([*likely, *(k for k, change in enumerate(changes) if change.starts)]):
        starts = [first] + [first.copy() for _ in far for _ in changes[k].starts]
        for start, (u, value) in zip(starts[1:], itertools.product(far, changes[k].starts), strict=True):
            start[:size], start[size + k] = u, value / scale[k]
        active = np.append(np.arange(size), size + k)
        fitted, chi_square = min((_fitted(state, x, active, study.problem) for x in starts), key=lambda end: end[1])
        value, explains = float(fitted[-1] * scale[k]), min(1.0 - (chi_square - noise) / excess, 1.0)
        if explains >= EXPLAINS and value > changes[k].least:
            lower = np.append(fitted[:size], np.zeros(scale.size))
            other, chi_square = _fitted(state, lower, np.arange(size), study.problem)
            if 1.0 - (chi_square - noise) / excess >= explains - EQUIVALENT:
                text = _minimum_text(study.free, first[:size], other)
                return (_with_values(study.free, text, explains, other, state(lower, np.arange(size))[1]),)
            end = first.copy()
            end[active] = fitted
            text = changes[k].text(value)
            found.append(_with_values(study.free, text, explains, fitted[:size], state(end, active)[1]))
    return _best(found) or _single_lines(estimate, state, first, excess)


def _with_values(
    free: FreeParameters, text: str, explains: float, u: np.ndarray, jacobian: Float[np.ndarray, "m k"]
) -> ModelError:
    """A model error with the values of a fit with it; the first columns of the Jacobian are those of u."""
    values = free.values(u)
    std = identifiability(jacobian, np.ones(len(jacobian))).std[: u.size] * np.abs(free.slope(values))
    return ModelError(text, explains, free.named(values), free.named(std))


def _minimum_text(free: FreeParameters, u: np.ndarray, lower: np.ndarray) -> str:
    """Text on a lower minimum of the cost with the description unchanged, by the parameter that differs most."""
    most = int(np.argmax(np.abs(lower - u) / (free.upper - free.lower)))
    value = float(np.asarray(free.values(jax.device_put(lower)))[most])
    return f"a lower minimum of the cost that the search did not find, with {free.names[most]} near {value:.4g},"


def _best(found: list[ModelError]) -> tuple[ModelError, ...]:
    """The hypothesis that explains most, and those equivalent to it."""
    found.sort(key=lambda error: -error.explains)
    return tuple(error for error in found if error.explains >= found[0].explains - EQUIVALENT)[:MOST_NAMED]


def _single_lines(estimate: Estimate, state: State, first: np.ndarray, excess: float) -> tuple[ModelError, ...]:
    """Outlier lines, where the residual without them is noise."""
    problem, counts, texts = estimate.study.problem, np.ones(estimate.residual.size), []
    for rows, test in zip(problem.row_slices, problem.tests, strict=True):
        if test.lines is None:
            continue
        outliers = test.lines.outliers(estimate.residual[rows], estimate.row_weights[rows])
        if outliers.size:
            counts[rows] = np.asarray(test.lines.without(outliers).row_weights()) > 0.0
            texts.append(f"{test.lines.lines_text(outliers)} of {display_name(test.name)}")
    if not texts:
        return ()

    def without(x: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        residual, jacobian = state(x, columns)
        return residual * counts, jacobian * counts[:, None]

    _, chi_square = _fitted(without, first, np.arange(estimate.u.size), problem)
    explains = min(1.0 - (chi_square - float(np.sum(counts * estimate.row_weights))) / excess, 1.0)
    text = f"excluding {' and '.join(texts)} (robust = true)"
    return (ModelError(text, explains),) if explains >= EXPLAINS else ()


def model_errors_text(found: Sequence[ModelError]) -> str:
    """A sentence on the errors that would explain a misfit; empty where there are none."""
    if not found:
        return ""
    texts = ", or ".join(error.text for error in found)
    return f"{texts} would explain {100.0 * found[0].explains:.0f} % of the misfit beyond noise"


def _scatter(estimate: Estimate) -> np.ndarray | None:
    """Variance of each row over that of its noise in the fit; None where noise explains the residual."""
    problem, doubtful = estimate.study.problem, bool(estimate.goodness.systematic)
    found = np.ones(estimate.residual.size)
    for rows, test, misfit in zip(problem.row_slices, problem.tests, estimate.goodness.excesses, strict=True):
        residual, weights = estimate.residual[rows], estimate.row_weights[rows]
        if test.noise.is_known:
            doubtful |= not misfit.explained
        elif test.lines is not None:
            found[rows] = max(test.lines.scatter(residual, weights), np.finfo(float).tiny)
            doubtful |= test.noise.correlation.between_responses or test.lines.outliers(residual, weights).size > 0
    return found if doubtful and any(test.hypotheses is not None for test in problem.tests) else None


def _repeated(columns: Float[np.ndarray, "m c"]) -> np.ndarray:
    """Indices of columns parallel to an earlier one, such as those of all tests and of a single test."""
    unit = columns / np.maximum(np.linalg.norm(columns, axis=0), np.finfo(float).tiny)
    parallel = np.triu(np.abs(unit.T @ unit), 1) > 1.0 - 1e-12
    return np.flatnonzero(parallel.any(axis=0))


def _fitted(state: State, first: np.ndarray, active: np.ndarray, problem: Problem) -> tuple[np.ndarray, float]:
    """Fitted values of the active numbers, and the sum of squares."""
    lower, upper = np.full(first.size, -np.inf), np.full(first.size, np.inf)
    lower[: problem.free.size], upper[: problem.free.size] = problem.free.lower, problem.free.upper

    def of_active(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = first.copy()
        x[active] = y
        return state(x, active)

    x, residual = host_minimum(of_active, first[active], lower[active], upper[active])
    return x, float(residual @ residual)


def _state(
    problem: Problem,
    model: Model,
    stated: Stated,
    places: Sequence[Sequence[int]],
    u: np.ndarray,
    c: np.ndarray,
    columns: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Residual in units of the noise, and the given columns of its Jacobian by u and c.

    Each test is evaluated for its own columns only, in batches of one size, so that one program is compiled.
    """
    prior = np.asarray(problem.prior_residual(jax.device_put(u)))
    residual = np.append(np.zeros(problem.data_rows), prior)
    jacobian = np.zeros((residual.size, columns.size))
    if problem.prior is not None:
        jacobian[problem.data_rows :] = np.diag(1.0 / np.asarray(problem.prior.std)) @ (
            columns == np.arange(u.size)[:, None]
        )
    for rows, test, place in zip(problem.row_slices, problem.tests, places, strict=True):
        entries = problem.free.entries_of(own_names(test))
        own, point = (
            np.append(np.arange(u.size), u.size + np.array(place)),
            jax.device_put(np.append(u, c[list(place)])),
        )
        asked, together = np.flatnonzero(np.isin(columns, own)), u.size + 1
        for k in range(0, asked.size, together):
            part = asked[k : k + together]
            tangents = np.zeros((together, own.size))
            tangents[: part.size] = columns[part, None] == own
            value, slopes = _along(
                without_name(test), entries, model, problem.free, stated, point, jax.device_put(tangents)
            )
            residual[rows], jacobian[rows, part] = value, np.asarray(slopes)[: part.size].T
    return residual, jacobian


@compiled
def _along(
    test: Test,
    entries: Int[np.ndarray, "k"] | None,
    model: Model,
    free: FreeParameters,
    stated: Stated,
    x: Float[Array, "n"],
    tangents: Float[Array, "t n"],
) -> tuple[Float[Array, "m"], Float[Array, "t m"]]:
    """Residual of a test at u and the numbers of its hypotheses, the machine's first, and derivatives along some
    directions."""
    numbers = 1 + len(model.end_frames) + len(stated.stiffness) + len(stated.damping)

    def residual(x: Array) -> Array:
        u, machine, own = jnp.split(x, [free.size, free.size + numbers])
        values = free.values(u)
        changed = changed_machine(free.apply(model, values), stated, machine)
        described = with_free_numbers(test, entries, values)
        if described.hypotheses is None:
            return described.residual(described.view(changed))
        return described.hypotheses.residual(changed, own)

    value, slope = jax.linearize(residual, x)
    return value, jax.vmap(slope)(tangents)


def _changes(problem: Problem, model: Model, stated: Stated) -> tuple[list[Hypothesis], tuple[tuple[int, ...], ...]]:
    """All hypotheses, and the indices of those of each test, the machine's first."""
    changes = list(machine_changes(model, stated))
    number = {change.key: k for k, change in enumerate(changes)}
    machine, places = tuple(range(len(changes))), []
    for test in problem.tests:
        own = () if test.hypotheses is None else test.hypotheses.of(model)
        for change in own:
            if change.key not in number:
                number[change.key] = len(changes)
                changes.append(change)
        places.append((*machine, *(number[change.key] for change in own)))
    return changes, tuple(places)
