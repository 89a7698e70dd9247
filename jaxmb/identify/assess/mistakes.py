"""Which single mistake in the description of a machine or of its tests would explain what a fit leaves."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import least_squares

from jaxmb.compiled import compiled
from jaxmb.identify.assess.finding import GOES_ON, Finding
from jaxmb.identify.experiments.test import Change
from jaxmb.identify.fit.noise import correlated_by_misfit
from jaxmb.identify.fit.problem import Problem
from jaxmb.machine.build import Model

TRIED = 5
"""Mistakes that are fitted: those that explain most to first order."""
MOST_EVALUATIONS = 40
EXPLAINS = 0.9
"""Part of what noise does not explain, from which on a mistake is named."""
ALIKE = 0.02
"""Mistakes whose parts differ by no more than this explain the same."""
MOST_NAMED = 3


@dataclasses.dataclass(frozen=True)
class Mistake:
    """A single mistake, as it would be mended."""

    text: str
    """What would explain the misfit, with its number."""
    explains: float
    """Part of what noise does not explain."""


def mistakes(finding: Finding) -> tuple[Mistake, ...]:
    """Single mistakes that explain most of what a fit leaves beside its noise, the best first.

    Each is one number more: a factor on all masses, a payload, or what a test's description may have wrong
    (`Test.changes`). Which of them explain most is judged to first order, by the Jacobian; those are fitted together
    with the free parameters. Noise that was to be estimated is what differs from line to line. Nothing is looked for
    where noise explains all, or where noise that was to be estimated does not go on from line to line.
    """
    scatter = _scatter(finding)
    if scatter is None:
        return ()
    study, size = finding.study, finding.u.size
    changes, places = _changes(study.problem, finding.model)
    scale, own_scale = np.array([change.size for change in changes]), 1.0 / np.sqrt(scatter)
    model = _with_places(finding.model, finding.model.end_frames)

    def state(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        parts = _state(study.problem, model, places, jnp.asarray(x[:size]), jnp.asarray(x[size:] * scale))
        residual, jacobian = (np.asarray(part) for part in parts)
        jacobian = jacobian * np.concatenate([np.ones(size), scale]) * own_scale[:, None]
        return residual * own_scale, jacobian

    first = np.concatenate([finding.u, np.zeros(scale.size)])
    residual, jacobian = state(first)
    before, noise = float(residual @ residual), float(np.sum(finding.row_weights))
    drops = [_drop(residual, jacobian[:, :size], jacobian[:, size + k]) for k in range(scale.size)]
    found = []
    for k in np.argsort(drops)[::-1][:TRIED]:
        value, after = _fitted(state, first, [*range(size), size + int(k)], study.problem)
        explains = (before - after) / (before - noise) if before > noise else 0.0
        if explains >= EXPLAINS:
            found.append(Mistake(changes[k].text(value * scale[k]), float(min(explains, 1.0))))
    found.sort(key=lambda mistake: -mistake.explains)
    return tuple(mistake for mistake in found if mistake.explains >= found[0].explains - ALIKE)[:MOST_NAMED]


def mistake_remarks(found: Sequence[Mistake]) -> list[str]:
    """A sentence on the mistakes that would explain a misfit."""
    if not found:
        return []
    texts = ", or ".join(mistake.text for mistake in found)
    return [f"{texts} would explain {100.0 * found[0].explains:.0f} % of what noise does not"]


def _scatter(finding: Finding) -> np.ndarray | None:
    """Variance of each row over that of the noise it has in the fit; None where noise explains what is left."""
    problem, doubtful = finding.study.problem, False
    found = np.ones(finding.residual.size)
    for rows, test, left in zip(problem.rows, problem.tests, finding.misfits, strict=True):
        residual, weights = finding.residual[rows], finding.row_weights[rows]
        if test.noise_known:
            doubtful |= not left.explained
        else:
            found[rows] = max(test.scatter(residual, weights), np.finfo(float).tiny)
            doubtful |= correlated_by_misfit(test, residual, weights) >= GOES_ON
    return found if doubtful and any(test.changes(finding.model) for test in problem.tests) else None


def _drop(residual: np.ndarray, own: np.ndarray, column: np.ndarray) -> float:
    """By what the sum of squares falls to first order where a column is added."""
    basis = np.linalg.qr(own)[0]
    r, a = (x - basis @ (basis.T @ x) for x in (residual, column))
    size = float(a @ a)
    return float(a @ r) ** 2 / size if size > 1e-12 * float(column @ column) else 0.0


def _fitted(
    state: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    first: np.ndarray,
    active: list[int],
    problem: Problem,
) -> tuple[float, float]:
    """The last of the active numbers and the sum of squares, where all of them are fitted."""
    lower, upper = (np.append(np.asarray(bound), sign * np.inf)
                    for bound, sign in ((problem.free.lower, -1.0), (problem.free.upper, 1.0)))  # fmt: skip

    @functools.lru_cache(maxsize=1)
    def at(key: bytes) -> tuple[np.ndarray, np.ndarray]:
        x = first.copy()
        x[active] = np.frombuffer(key)
        residual, jacobian = state(x)
        return np.nan_to_num(residual, nan=1e6), np.nan_to_num(jacobian[:, active])

    width = np.where(np.isfinite(upper - lower), upper - lower, 1.0)
    found = least_squares(
        lambda y: at(y.tobytes())[0],
        np.clip(first[active], lower + 1e-9 * width, upper - 1e-9 * width),
        jac=lambda y: at(y.tobytes())[1],  # pyright: ignore[reportArgumentType]  (stubs know names alone)
        bounds=(lower, upper),
        x_scale="jac",
        max_nfev=MOST_EVALUATIONS,
    )
    return float(found.x[-1]), float(2.0 * found.cost)


@compiled
def _state(
    problem: Problem, model: Model, places: tuple[tuple[int, ...], ...], u: Float[Array, "d"], c: Float[Array, "e"]
) -> tuple[Array, Array]:
    """Residual in units of the noise and its Jacobian by u and by the changes."""
    size, frames = u.size, len(model.end_frames)

    def residual(x: Array) -> Array:
        values, changes = problem.free.values(x[:size]), x[size:]
        changed = _heavier(problem.free.apply(model, values), changes[0], changes[1 : 1 + frames])
        parts = [
            test.changed_residual(changed, changes[jnp.array(place, dtype=int)])
            for test, place in zip(problem.tests, places, strict=True)
        ]
        return jnp.concatenate([*parts, problem.prior_residual(x[:size])])

    jacobian, value = jax.jacfwd(lambda x: (residual(x),) * 2, has_aux=True)(jnp.concatenate([u, c]))
    return value, jacobian


def _heavier(model: Model, masses: Array, payloads: Float[Array, "f"]) -> Model:
    """The model with all masses multiplied by exp(masses), and with payloads at its last places."""
    factor, own = jnp.exp(masses), model.mass.size - payloads.size
    return dataclasses.replace(
        model,
        mass=jnp.concatenate([model.mass[:own] * factor, payloads]),
        first_moment=model.first_moment * factor,
        inertia=model.inertia * factor,
    )


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


def _changes(problem: Problem, model: Model) -> tuple[list[Change], tuple[tuple[int, ...], ...]]:
    """Every change that is tried, and the numbers of those of each test."""
    changes = list(_of_machine(model))
    number = {change.key: k for k, change in enumerate(changes)}
    places = []
    for test in problem.tests:
        own = test.changes(model)
        for change in own:
            if change.key not in number:
                number[change.key] = len(changes)
                changes.append(change)
        places.append(tuple(number[change.key] for change in own))
    return changes, tuple(places)


def _of_machine(model: Model) -> Iterator[Change]:
    yield Change("masses", 0.1, lambda x: f"all masses {np.exp(x):.3g} times as large")
    total = float(np.sum(np.asarray(model.mass)))
    for frame in model.end_frames:
        yield Change(f"payload {frame}", 0.01 * total, functools.partial(_payload_text, frame))


def _payload_text(frame: str, value: float) -> str:
    return f"a payload of {value:.3g} kg at {frame}" if value > 0.0 else f"{-value:.3g} kg less at {frame}"
