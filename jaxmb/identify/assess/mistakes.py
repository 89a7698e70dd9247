"""Which single mistake in the description of a machine or of its tests would explain what a fit leaves."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.optimize import least_squares

from jaxmb.compiled import compiled
from jaxmb.identify.assess.finding import Finding
from jaxmb.identify.experiments.components import Hypothesis, own_names
from jaxmb.identify.experiments.names import display_name
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.fit.problem import Problem, is_large, nameless, with_free_numbers
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.machine.build import Model

RIGID = 1e5
"""Stiffness of what is locked, over the largest of all."""


class Stated(NamedTuple):
    """Numbers of coordinates whose elasticity is stated, and not free."""

    stiffness: tuple[int, ...]
    """Those that are locked among them."""
    damping: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.stiffness) + len(self.damping)


def stated_joints(model: Model, free: FreeParameters) -> Stated:
    """What a study states of the elasticity of coordinates."""
    locked, found = np.array(model.locked), []
    for leaf, known in (("stiffness", locked), ("damping", np.zeros_like(locked))):
        of_free = [row for target in free.targets if target.leaf == leaf for (row,) in target.entries]
        held = known | (~locked & (np.asarray(getattr(model, leaf)) > 0.0))
        held[of_free] = False
        found.append(tuple(np.flatnonzero(held).tolist()))
    return Stated(*found)


def machine_changes(model: Model, stated: Stated) -> Iterator[Hypothesis]:
    """What may be wrong: all masses by one factor, a payload at each end frame, compliance and damping that are stated
    of joints."""
    yield Hypothesis("masses", 0.1, lambda x: f"all masses {np.exp(x):.3g} times as large")
    total = float(np.sum(np.asarray(model.mass)))
    for frame in model.end_frames:
        yield Hypothesis(f"payload {frame}", 0.01 * total, functools.partial(_payload_text, frame))
    stiffness = np.asarray(model.stiffness)
    joints = stiffness[: len(model.joints)]
    usual = float(np.median(joints[joints > 0.0])) if np.any(joints > 0.0) else 1.0
    seen = _seen_at_joints(model)
    for i in stated.stiffness:
        name, own = model.coordinates[i], 0.0 if model.locked[i] else 1.0 / float(stiffness[i])
        unit = "N m/rad" if model.revolute[i] else "N/m"
        text = functools.partial(_joint_text, name, unit, own)
        usual_here = usual / float(seen[i])
        starts = (0.3 / usual_here, 1.0 / usual_here, 3.0 / usual_here)
        yield Hypothesis(f"compliance {name}", 0.1 / usual_here, text, -own, starts)
    for i in stated.damping:
        unit = "N m s/rad" if model.revolute[i] else "N s/m"
        text = functools.partial(_damping_text, model.coordinates[i], unit, float(model.damping[i]))
        yield Hypothesis(f"damping {model.coordinates[i]}", 0.1, text)


def changeable(model: Model) -> Model:
    """The model in the form in which `changed_machine` takes it."""
    return _all_elastic(_with_places(model, model.end_frames))


def changed_machine(model: Model, stated: Stated, numbers: Float[Array, "c"]) -> Model:
    """A changeable model with its description changed, by numbers in the order of `machine_changes`."""
    frames, joints = len(model.end_frames), len(stated.stiffness)
    masses, payloads, compliances, dampings = jnp.split(numbers, np.cumsum([1, frames, joints]))
    changed = _softer(_heavier(model, masses[0], payloads), stated.stiffness, compliances)
    factor = jnp.ones_like(model.damping).at[jnp.array(stated.damping, dtype=int)].set(jnp.exp(dampings))
    return dataclasses.replace(changed, damping=changed.damping * factor)


def _heavier(model: Model, masses: Array, payloads: Float[Array, "f"]) -> Model:
    """The model with all masses multiplied by exp(masses), and with payloads at its last places."""
    factor, own = jnp.exp(masses), model.mass.size - payloads.size
    return dataclasses.replace(
        model,
        mass=jnp.concatenate([model.mass[:own] * factor, payloads]),
        first_moment=model.first_moment * factor,
        inertia=model.inertia * factor,
    )


def _softer(model: Model, joints: tuple[int, ...], compliances: Float[Array, "k"]) -> Model:
    """The model with more compliance in some joints, in series with their springs, of the same loss."""
    more = jnp.zeros_like(model.stiffness).at[jnp.array(joints, dtype=int)].set(compliances)
    factor = 1.0 / (1.0 + model.stiffness * more)
    return dataclasses.replace(model, stiffness=model.stiffness * factor, damping=model.damping * factor)


def _all_elastic(model: Model) -> Model:
    """The model with springs in place of locks, so stiff that they are rigid, and with the usual damping."""
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
    """What a stiffness of each coordinate is at its joint: 1, and the square of the ratio at a motor's shaft."""
    seen = np.ones(len(model.coordinates))
    seen[len(model.joints) :] = np.asarray(model.gear_ratio) ** 2
    return seen


def _with_places(model: Model, frames: Sequence[str]) -> Model:
    """The model with a payload of no mass at each of some frames."""
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
"""Mistakes that are fitted: those that explain most to first order."""
MOST_EVALUATIONS = 40
EXPLAINS = 0.9
"""Part of what noise does not explain, from which on a mistake is named."""
ALIKE = 0.02
"""Mistakes whose parts differ by no more than this explain the same."""
MOST_NAMED = 3

State = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Residual at all numbers, in units of the noise, and some columns of its Jacobian."""


@dataclasses.dataclass(frozen=True)
class Mistake:
    """A single mistake, as it would be mended."""

    text: str
    """What would explain the misfit, with its number."""
    explains: float
    """Part of what noise does not explain."""


def mistakes(finding: Finding) -> tuple[Mistake, ...]:
    """Single mistakes that explain most of what a fit leaves beside its noise, the best first.

    Each is one number more: a factor on all masses, a payload, the compliance of a joint that was taken as rigid or
    whose stiffness was stated, or what a test's description may have wrong (`Hypotheses`). Which of them explain most
    is judged to first order, by the Jacobian; those are fitted together with the free parameters. Where none of them
    does, single lines that do not belong are left out. Noise that was to be estimated is what differs from line to
    line. Nothing is looked for where noise explains all, or where what is left cannot be told from noise that was to be
    estimated (`Finding.systematic`), nor for machines with many small motions (`Problem.one_by_one`) or large problems
    (`is_large`).
    """
    problem = finding.study.problem
    if problem.one_by_one or is_large(problem):
        return ()  # each change of a machine with many small motions would take minutes
    scatter = _scatter(finding)
    if scatter is None:
        return ()
    study, size = finding.study, finding.u.size
    stated = stated_joints(finding.model, study.free)
    changes, places = _changes(study.problem, finding.model, stated)
    scale, own_scale = np.array([change.size for change in changes]), 1.0 / np.sqrt(scatter)
    model = changeable(finding.model)

    def state(x: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        residual, jacobian = _state(study.problem, model, stated, places, x[:size], x[size:] * scale, columns)
        jacobian *= np.concatenate([np.ones(size), scale])[columns]
        return residual * own_scale, jacobian * own_scale[:, None]

    first = np.concatenate([finding.u, np.zeros(scale.size)])
    if np.any(scatter != 1.0):
        first[:size] = _fitted(state, first, np.arange(size), study.problem)[0]
    residual, jacobian = state(first, np.arange(first.size))
    noise = float(np.sum(finding.row_weights))
    excess = float(residual @ residual) - noise
    if excess <= 0.0:
        return ()
    drops = _drops(residual, jacobian[:, :size], jacobian[:, size:])
    drops[_repeated(jacobian[:, size:])] = 0.0
    found = []
    likely = np.argsort(drops)[::-1][:TRIED].tolist()
    far = [np.asarray(study.free.encode(study.start.values)), first[:size]]
    for k in dict.fromkeys([*likely, *(k for k, change in enumerate(changes) if change.starts)]):
        starts = [first] + [first.copy() for _ in far for _ in changes[k].starts]
        for start, (u, value) in zip(starts[1:], itertools.product(far, changes[k].starts), strict=True):
            start[:size], start[size + k] = u, value / scale[k]
        active = np.append(np.arange(size), size + k)
        fitted, left = min((_fitted(state, x, active, study.problem) for x in starts), key=lambda end: end[1])
        value, explains = float(fitted[-1] * scale[k]), min(1.0 - (left - noise) / excess, 1.0)
        if explains >= EXPLAINS and value > changes[k].least:
            lower = np.append(fitted[:size], np.zeros(scale.size))
            other, left = _fitted(state, lower, np.arange(size), study.problem)
            if 1.0 - (left - noise) / excess >= explains - ALIKE:
                return (Mistake(_minimum_text(study.free, first[:size], other), explains),)
            found.append(Mistake(changes[k].text(value), explains))
    return _best(found) or _single_lines(finding, state, first, excess)


def _minimum_text(free: FreeParameters, u: np.ndarray, lower: np.ndarray) -> str:
    """A lower minimum of the cost without any change of a description, by the parameter that differs most."""
    most = int(np.argmax(np.abs(lower - u) / (free.upper - free.lower)))
    value = float(np.asarray(free.values(jax.device_put(lower)))[most])
    return f"a lower minimum of the cost that the search did not find, with {free.names[most]} near {value:.4g},"


def _best(found: list[Mistake]) -> tuple[Mistake, ...]:
    """The mistake that explains most, and those that explain nearly the same."""
    found.sort(key=lambda mistake: -mistake.explains)
    return tuple(mistake for mistake in found if mistake.explains >= found[0].explains - ALIKE)[:MOST_NAMED]


def _single_lines(finding: Finding, state: State, first: np.ndarray, excess: float) -> tuple[Mistake, ...]:
    """Single lines that do not belong, where what is left without them is noise."""
    problem, counts, texts = finding.study.problem, np.ones(finding.residual.size), []
    for rows, test in zip(problem.rows, problem.tests, strict=True):
        if test.lines is None:
            continue
        odd = test.lines.outliers(finding.residual[rows], finding.row_weights[rows])
        if odd.size:
            counts[rows] = np.asarray(test.lines.without(odd).row_weights()) > 0.0
            texts.append(f"{test.lines.text(odd)} of {display_name(test.name)}")
    if not texts:
        return ()

    def without(x: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        residual, jacobian = state(x, columns)
        return residual * counts, jacobian * counts[:, None]

    _, left = _fitted(without, first, np.arange(finding.u.size), problem)
    explains = min(1.0 - (left - float(np.sum(counts * finding.row_weights))) / excess, 1.0)
    text = f"leaving out {' and '.join(texts)} (robust = true)"
    return (Mistake(text, explains),) if explains >= EXPLAINS else ()


def mistake_text(found: Sequence[Mistake]) -> str:
    """The mistakes that would explain a misfit, in a sentence; empty where there are none."""
    if not found:
        return ""
    texts = ", or ".join(mistake.text for mistake in found)
    return f"{texts} would explain {100.0 * found[0].explains:.0f} % of the misfit beyond noise"


def _scatter(finding: Finding) -> np.ndarray | None:
    """Variance of each row over that of the noise it has in the fit; None where noise explains what is left."""
    problem, doubtful = finding.study.problem, bool(finding.systematic)
    found = np.ones(finding.residual.size)
    for rows, test, left in zip(problem.rows, problem.tests, finding.misfits, strict=True):
        residual, weights = finding.residual[rows], finding.row_weights[rows]
        if test.noise.is_known:
            doubtful |= not left.explained
        elif test.lines is not None:
            found[rows] = max(test.lines.scatter(residual, weights), np.finfo(float).tiny)
            doubtful |= test.noise.correlation.between_responses or test.lines.outliers(residual, weights).size > 0
    return found if doubtful and any(test.hypotheses is not None for test in problem.tests) else None


def _drops(residual: np.ndarray, own: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """By what the sum of squares falls to first order where each of some columns is added."""
    basis = np.linalg.qr(own)[0]
    r, a = residual - basis @ (basis.T @ residual), columns - basis @ (basis.T @ columns)
    size, slope = np.sum(a**2, axis=0), r @ a
    told = size > 1e-12 * np.sum(columns**2, axis=0)
    return np.where(told, slope**2 / np.where(told, size, 1.0), 0.0)


def _repeated(columns: Float[np.ndarray, "m c"]) -> np.ndarray:
    """Numbers of columns that repeat an earlier one, as those of all tests and of one test where there is only one."""
    unit = columns / np.maximum(np.linalg.norm(columns, axis=0), np.finfo(float).tiny)
    alike = np.triu(np.abs(unit.T @ unit), 1) > 1.0 - 1e-12
    return np.flatnonzero(alike.any(axis=0))


def _fitted(state: State, first: np.ndarray, active: np.ndarray, problem: Problem) -> tuple[np.ndarray, float]:
    """The active numbers and the sum of squares, where all of them are fitted."""
    lower, upper = np.full(first.size, -np.inf), np.full(first.size, np.inf)
    lower[: problem.free.size], upper[: problem.free.size] = problem.free.lower, problem.free.upper
    lower, upper = lower[active], upper[active]

    @functools.lru_cache(maxsize=1)
    def at(key: bytes) -> tuple[np.ndarray, np.ndarray]:
        x = first.copy()
        x[active] = np.frombuffer(key)
        residual, jacobian = state(x, active)
        return np.nan_to_num(residual, nan=1e6), np.nan_to_num(jacobian)

    width = np.where(np.isfinite(upper - lower), upper - lower, 1.0)
    found = least_squares(
        lambda y: at(y.tobytes())[0],
        np.clip(first[active], lower + 1e-9 * width, upper - 1e-9 * width),
        jac=lambda y: at(y.tobytes())[1],  # pyright: ignore[reportArgumentType]  (stubs know names alone)
        bounds=(lower, upper),
        x_scale="jac",
        max_nfev=MOST_EVALUATIONS,
    )
    return found.x, float(2.0 * found.cost)


def _state(
    problem: Problem,
    model: Model,
    stated: Stated,
    places: Sequence[Sequence[int]],
    u: np.ndarray,
    c: np.ndarray,
    columns: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Residual in units of the noise and the columns of its Jacobian by u and c that are asked for.

    Each test is asked for its own columns alone, as many at a time as a fit needs, so that one program does for all.
    """
    prior = np.asarray(problem.prior_residual(jax.device_put(u)))
    residual = np.append(np.zeros(problem.data_rows), prior)
    jacobian = np.zeros((residual.size, columns.size))
    if problem.prior is not None:
        jacobian[problem.data_rows :] = np.diag(1.0 / np.asarray(problem.prior.std)) @ (
            columns == np.arange(u.size)[:, None]
        )
    for rows, test, place in zip(problem.rows, problem.tests, places, strict=True):
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
                nameless(test), entries, model, problem.free, stated, point, jax.device_put(tangents)
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
    """Residual of a test at u and its changes, the machine's first, and its derivatives along some directions."""
    numbers = 1 + len(model.end_frames) + stated.count

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
    """Every change that is tried, and the numbers of those of each test, the machine's first."""
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
