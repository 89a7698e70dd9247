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
from jaxmb.identify.experiments.test import Change, Test
from jaxmb.identify.fit.noise import correlated_by_misfit
from jaxmb.identify.fit.problem import Problem, nameless
from jaxmb.identify.parameters.free_parameters import FreeParameters
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

    def state(x: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        residual, jacobian = _state(study.problem, model, places, x[:size], x[size:] * scale, columns)
        jacobian *= np.concatenate([np.ones(size), scale])[columns]
        return residual * own_scale, jacobian * own_scale[:, None]

    first = np.concatenate([finding.u, np.zeros(scale.size)])
    residual, jacobian = state(first, np.arange(first.size))
    before, noise = float(residual @ residual), float(np.sum(finding.row_weights))
    drops = _drops(residual, jacobian[:, :size], jacobian[:, size:])
    found = []
    for k in np.argsort(drops)[::-1][:TRIED]:
        value, after = _fitted(state, first, np.append(np.arange(size), size + k), study.problem)
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


def _drops(residual: np.ndarray, own: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """By what the sum of squares falls to first order where each of some columns is added."""
    basis = np.linalg.qr(own)[0]
    r, a = residual - basis @ (basis.T @ residual), columns - basis @ (basis.T @ columns)
    size, slope = np.sum(a**2, axis=0), r @ a
    told = size > 1e-12 * np.sum(columns**2, axis=0)
    return np.where(told, slope**2 / np.where(told, size, 1.0), 0.0)


def _fitted(
    state: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
    first: np.ndarray,
    active: np.ndarray,
    problem: Problem,
) -> tuple[float, float]:
    """The last of the active numbers and the sum of squares, where all of them are fitted."""
    lower, upper = (np.append(np.asarray(bound), sign * np.inf)
                    for bound, sign in ((problem.free.lower, -1.0), (problem.free.upper, 1.0)))  # fmt: skip

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
    return float(found.x[-1]), float(2.0 * found.cost)


def _state(
    problem: Problem, model: Model, places: Sequence[Sequence[int]], u: np.ndarray, c: np.ndarray, columns: np.ndarray
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
        own, point = (
            np.append(np.arange(u.size), u.size + np.array(place)),
            jax.device_put(np.append(u, c[list(place)])),
        )
        asked, together = np.flatnonzero(np.isin(columns, own)), u.size + 1
        for k in range(0, asked.size, together):
            part = asked[k : k + together]
            tangents = np.zeros((together, own.size))
            tangents[: part.size] = columns[part, None] == own
            value, slopes = _along(nameless(test), model, problem.free, point, jax.device_put(tangents))
            residual[rows], jacobian[rows, part] = value, np.asarray(slopes)[: part.size].T
    return residual, jacobian


@compiled
def _along(
    test: Test,
    model: Model,
    free: FreeParameters,
    x: Float[Array, "n"],
    tangents: Float[Array, "t n"],
) -> tuple[Float[Array, "m"], Float[Array, "t m"]]:
    """Residual of a test at u and its changes, the machine's first, and its derivatives along some directions."""
    size, frames = free.size, len(model.end_frames)

    def residual(x: Array) -> Array:
        u, masses, payloads, own = jnp.split(x, np.cumsum([size, 1, frames]))
        changed = _heavier(free.apply(model, free.values(u)), masses[0], payloads)
        return test.changed_residual(changed, own)

    value, slope = jax.linearize(residual, x)
    return value, jax.vmap(slope)(tangents)


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
    """Every change that is tried, and the numbers of those of each test, the machine's first."""
    changes = list(_of_machine(model))
    number = {change.key: k for k, change in enumerate(changes)}
    machine, places = tuple(range(len(changes))), []
    for test in problem.tests:
        own = test.changes(model)
        for change in own:
            if change.key not in number:
                number[change.key] = len(changes)
                changes.append(change)
        places.append((*machine, *(number[change.key] for change in own)))
    return changes, tuple(places)


def _of_machine(model: Model) -> Iterator[Change]:
    yield Change("masses", 0.1, lambda x: f"all masses {np.exp(x):.3g} times as large")
    total = float(np.sum(np.asarray(model.mass)))
    for frame in model.end_frames:
        yield Change(f"payload {frame}", 0.01 * total, functools.partial(_payload_text, frame))


def _payload_text(frame: str, value: float) -> str:
    return f"a payload of {value:.3g} kg at {frame}" if value > 0.0 else f"{-value:.3g} kg less at {frame}"
