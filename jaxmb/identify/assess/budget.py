"""Uncertainty budget: effect of the tolerances of machine and tests on the estimate.

Source: JCGM 100, Guide to the expression of uncertainty in measurement, type B evaluation; JCGM 101, propagation of
distributions by draws.
"""

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import chdtri

from jaxmb.identify.estimation.identifiability import Jacobian, jacobian_svd, row_blocks, scaled_svd
from jaxmb.identify.estimation.least_squares import host_minimum
from jaxmb.identify.experiments.deflections.source import DeflectionSource
from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.experiments.motion import PostureTest
from jaxmb.identify.experiments.tolerances import StatedError, Tolerances
from jaxmb.identify.fit.noise import FALSE_ALARM, misfits
from jaxmb.identify.fit.problem import Problem, final_state
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.identify.parameters.model_parameters import assigned, parameter_table, parameters
from jaxmb.machine.build import Model
from jaxmb.machine.changed import central_inertia
from jaxmb.machine.families import FAMILIES

NAMED = 5
"""Sources of a parameter's uncertainty that a result names."""
CURVED = np.sqrt(3.0)
"""Root mean square of the square of a normal variable."""
TRIED, NONLINEAR = 4, 0.2
"""Draws that are refitted in any case, and largest difference of a refit from the linear effect, over the standard
deviation, up to which the effect of stated errors counts as linear."""
DRAWS = 48
"""Refits where it does not; a standard deviation from so many has an error of a tenth."""
FARTHEST = 4.0
"""Size of a fitted error over its tolerance above which it is none within its tolerance."""
SETTLED = 1e-5
"""Relative decrease of the cost in the last step of a refit."""


@dataclasses.dataclass(frozen=True, eq=False)
class Contribution:
    """Part of a parameter's standard deviation due to one source."""

    source: str
    kind: str
    """Key of its tolerance in `[tolerances]`."""
    std: float
    """SI."""


@dataclasses.dataclass(frozen=True, eq=False)
class ParameterBudget:
    """Parts of a parameter's standard deviation, SI."""

    noise: float | None
    """Of the noise, and of a misfit that no tolerance explains; None where unknown."""
    tolerances: float | None
    """Of the tolerances; None where the noise part is unknown."""
    sources: tuple[Contribution, ...]
    """The largest contributions, to first order."""


class Budget(NamedTuple):
    """Effect of the errors of machine and tests on the estimate."""

    errors: tuple[StatedError, ...]
    effect: Float[np.ndarray, "d e"]
    """Change of u by one standard deviation of each error, to first order."""
    covariance: Float[np.ndarray, "d d"]
    """Covariance of u due to all errors."""
    columns: Float[np.ndarray, "m e"]
    """Change of the residual by each error."""
    squares: Float[np.ndarray, "k t"] | None = None
    """Sum of squares of the residual of each test in refits to drawn errors without noise; None without refits."""


@dataclasses.dataclass(frozen=True, eq=False)
class DescribedTests:
    """Fitted tests with the machine of the estimate."""

    entries: Sequence[Entry]
    model: Model
    """At the values of the estimate."""
    exact: Collection[str] = ()
    """Names of tests that are as described, such as simulated ones."""

    @functools.cached_property
    def _own(self) -> list[dict[str, StatedError]]:
        """Errors of the description of each test by key."""
        return [
            {} if entry.name in self.exact else {e.key: e for e in entry.source.errors(entry.test, self.model)}
            for entry in self.entries
        ]

    def errors(self, free: FreeParameters) -> tuple[StatedError, ...]:
        """Errors of the stated numbers of machine and tests, except the free parameters; equal keys are one error."""
        found = {error.key: error for error in machine_errors(self.model, free, list(_frames(self.entries)))}
        for own in self._own:
            found |= own
        return tuple(found.values())

    def residual(self, errors: Mapping[str, float]) -> Float[np.ndarray, "m"]:
        """Residual of all tests with some errors corrected, SI."""
        model = with_machine_errors(self.model, errors)
        parts = []
        for entry, keys in zip(self.entries, self._own, strict=True):
            own = {key: x for key, x in errors.items() if key in keys}
            parts.append(entry.source.residual_with(entry.test, model, own))
        return np.concatenate(parts)


def _frames(entries: Sequence[Entry]) -> Iterator[str]:
    """Frames that the tests use."""
    for entry in entries:
        if isinstance(entry.test, PostureTest):
            known = (*entry.test.outputs, *entry.test.inputs)
            yield from (name for name, direction in known if direction.removeprefix("-") not in ("angle", "travel"))
        if isinstance(entry.source, DeflectionSource):
            yield from (name for case in entry.source.cases for name in (case.frame, *case.points))


def budget(
    tests: DescribedTests,
    problem: Problem,
    u: Float[np.ndarray, "d"],
    jacobian: Jacobian,
    std: Float[np.ndarray, "d"],
    tolerances: Tolerances,
    seed: int | None = 0,
    factor: Float[np.ndarray, "m"] | float = 1.0,
    misfit: bool = False,
) -> Budget:
    """Effect of the errors of machine and tests on a least-squares estimate.

    To first order S c, S = -(J^T J)^-1 J^T and c the change of the residual by an error of one standard deviation, half
    the difference of both signs. Where refits of noise-free data with all errors drawn differ from that, the covariance
    is that of the refits: responses near resonances and antiresonances are not linear in such errors.

    Args:
        tests: fitted tests.
        problem: of these.
        u: the estimate.
        jacobian: of the residual; rows of a prior last.
        std: standard deviations of u by noise.
        tolerances: standard deviations of the errors.
        seed: of the draws; None for the first order alone.
        factor: of each row of the tests in the Jacobian, such as the root of a robust weight.
        misfit: whether noise leaves a misfit unexplained, which is then compared with those of all refits.
    """
    known = [(error, size) for error in tests.errors(problem.free) if (size := error.std(tolerances)) > 0.0]
    plain = tests.residual({})
    columns = np.zeros((plain.size, len(known)))
    for k, (error, size) in enumerate(known):
        plus, minus = (tests.residual({error.key: sign * size}) for sign in (1.0, -1.0))
        columns[:, k] = factor * _finite(0.5 * (plus - minus))
    svd = jacobian_svd(jacobian)
    blocks = ((jacobian[block], columns[block]) for block in row_blocks(jacobian))
    along = sum(svd.basis(rows[: len(own)]).T @ own for rows, own in blocks)
    effect = -svd.gain @ along
    found = Budget(tuple(error for error, _ in known), effect, effect @ effect.T, columns)
    if not known or seed is None or not isinstance(jacobian, np.ndarray):
        return found
    return _drawn(tests, problem, u, found, std, [size for _, size in known], plain, seed, misfit)


def _finite(change: np.ndarray) -> np.ndarray:
    """A change of residuals; 0 where an error leaves no prediction."""
    return np.where(np.isfinite(change), change, 0.0)


def _drawn(
    tests: DescribedTests,
    problem: Problem,
    u: np.ndarray,
    found: Budget,
    std: np.ndarray,
    sizes: Sequence[float],
    plain: np.ndarray,
    seed: int,
    misfit: bool,
) -> Budget:
    """The budget with the covariance of refits to drawn errors where their effect is not linear, and with their
    residuals."""
    rng, linear = np.random.default_rng(seed), np.sqrt(np.diag(found.covariance))
    whole = np.hypot(linear, np.where(np.isfinite(std), std, 0.0))
    is_linear = False
    changes, linear_changes, squares = list[np.ndarray](), list[np.ndarray](), list[list[float]]()
    for draw in range(DRAWS):
        z = rng.normal(size=len(sizes))
        errors = {error.key: x * size for error, x, size in zip(found.errors, z, sizes, strict=True)}
        change, residual = _refit(problem, u, _finite(plain - tests.residual(errors)))
        changes.append(change)
        squares.append([float(residual[rows] @ residual[rows]) for rows in problem.row_slices])
        linear_changes.append(-found.effect @ z)
        if draw == TRIED - 1:
            difference = np.abs(np.array(changes) - np.array(linear_changes))
            is_linear = bool(np.all(difference <= NONLINEAR * whole))
            if is_linear and not misfit:
                return found
    if is_linear:
        return found._replace(squares=np.array(squares))
    covariance = np.array(changes).T @ np.array(changes) / DRAWS
    return found._replace(covariance=covariance, squares=np.array(squares))


def _refit(
    problem: Problem, u: Float[np.ndarray, "d"], change: Float[np.ndarray, "m"]
) -> tuple[Float[np.ndarray, "d"], Float[np.ndarray, "m"]]:
    """Change of u in a fit to noise-free data whose residual at u is changed, and the residual at its
    end."""
    lower, upper = np.asarray(problem.free.lower), np.asarray(problem.free.upper)
    lower, upper = np.minimum(lower, u), np.maximum(upper, u)

    def state(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        residual, jacobian, _ = final_state(problem, jax.device_put(x))
        return np.asarray(residual), np.asarray(jacobian)

    offset = state(u)[0]
    offset = offset - np.pad(change, (0, offset.size - change.size))

    def displaced(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        residual, jacobian = state(x)
        return residual - offset, jacobian

    x, residual = host_minimum(displaced, u, lower, upper, SETTLED)
    return x - u, residual


def explained(
    found: Budget,
    rows: Sequence[slice],
    residual: Float[np.ndarray, "m"],
    jacobian: Jacobian,
    row_weights: Float[np.ndarray, "m"],
    expected: Sequence[float] | None = None,
) -> tuple[bool, ...]:
    """Whether stated errors within their tolerances explain the residual of each test beyond its noise.

    With refits to drawn errors, where their residual is larger in at least one; else where the noise explains what a
    joint fit of the parameters and all errors leaves.

    Args:
        found: the budget.
        rows: rows of each test.
        residual: at the estimate; rows of a prior last.
        jacobian: of the residual.
        row_weights: variance of each residual under the stated noise.
        expected: sum of squares of each test by its noise alone; None for the sum of its weights.
    """
    if not found.errors or not isinstance(jacobian, np.ndarray):
        return (False,) * len(rows)
    if found.squares is not None:
        expected = [float(np.sum(row_weights[own])) for own in rows] if expected is None else expected
        excess = [float(np.sum(residual[own] ** 2)) - noise for own, noise in zip(rows, expected, strict=True)]
        return tuple(bool(drawn.max() >= own) for drawn, own in zip(found.squares.T, excess, strict=True))
    rest, errors = joint_residual(residual, jacobian, row_weights, found.columns)
    # errors fitted with their prior scatter less than the prior does
    if float(errors @ errors) > float(chdtri(errors.size, FALSE_ALARM)) or np.abs(errors).max() > FARTHEST:
        return (False,) * len(rows)
    return tuple(each.explained for each in misfits(rest, jacobian, row_weights, rows))


def joint_residual(
    residual: Float[np.ndarray, "m"],
    jacobian: Float[np.ndarray, "m d"],
    row_weights: Float[np.ndarray, "m"],
    columns: Float[np.ndarray, "m e"],
) -> tuple[Float[np.ndarray, "m"], Float[np.ndarray, "e"]]:
    """Residual of a joint fit of the parameters and of all stated errors, these with their tolerances as a prior, to
    first order, and the errors over their tolerances.

    Args:
        residual: at the estimate; rows of a prior last.
        jacobian: of the residual.
        row_weights: variance of each residual under the stated noise.
        columns: change of the residual of the tests by each error.
    """
    size = columns.shape[1]
    scale = np.sqrt(np.where(row_weights > 0.0, row_weights, np.inf)) ** -1.0
    padded = np.pad(columns, ((0, residual.size - len(columns)), (0, 0)))
    both = np.concatenate([jacobian, padded], axis=1)
    rows = np.concatenate([both * scale[:, None], np.pad(np.eye(size), ((0, 0), (jacobian.shape[1], 0)))])
    change = scaled_svd(rows).solve(-np.concatenate([residual * scale, np.zeros(size)]))
    return residual + both @ change, change[jacobian.shape[1] :]


def parameter_budgets(
    found: Budget, free: FreeParameters, std: np.ndarray, slope: np.ndarray
) -> dict[str, ParameterBudget]:
    """Budget of each free parameter by name.

    Args:
        found: effect of all stated errors on u.
        free: the free parameters.
        std: standard deviations of u without stated errors [d].
        slope: derivative of each physical value by its entry of u [d].
    """
    by_name, whole = dict[str, ParameterBudget](), np.sqrt(np.diag(found.covariance))
    for i, names in enumerate(free.tied):
        parts, scale = np.abs(found.effect[i] * slope[i]), abs(slope[i])
        sources = tuple(
            Contribution(found.errors[k].key, found.errors[k].kind, float(parts[k]))
            for k in np.argsort(-parts)[:NAMED].tolist()
            if parts[k] > 0.0
        )
        noise = float(std[i] * scale) if np.isfinite(std[i]) else None
        own = ParameterBudget(noise, None, ()) if noise is None else ParameterBudget(noise, whole[i] * scale, sources)
        by_name |= dict.fromkeys(names, own)
    return by_name


def machine_errors(model: Model, free: FreeParameters, frames: Collection[str]) -> Iterator[StatedError]:
    """Errors of all numbers of a machine that have a tolerance and are not free.

    Args:
        model: the machine.
        free: the free parameters.
        frames: names of the frames that tests use.
    """
    own, named = parameters(model), {name for names in free.tied for name in names}
    for name, place in parameter_table(model).items():
        kind = next(
            (row.tolerance for row in FAMILIES if row.name == name.split(".")[0] and row.leaf == place.leaf), ""
        )
        if kind and own[name] != 0.0 and name not in named:
            yield StatedError(name, kind, 0.01 * own[name])
    free_of = {tuple(name.split(".")[:2]) for name in named}
    for i in np.flatnonzero(np.asarray(model.mass) > 0.0).tolist():
        body, (_, about_centre) = model.masses[i], central_inertia(*_inertial(model, i))
        if ("mass", body) not in free_of:
            yield StatedError(f"mass of {body}", "mass_percent", 0.01)
        if ("first_moment", body) not in free_of:
            yield from (StatedError(key, "center_of_mass_mm", 1e-3) for key in _keys("centre of mass", body))
        if ("inertia", body) not in free_of:
            sizes = zip(_keys("moment of inertia", body), 0.01 * np.diag(about_centre), strict=True)
            yield from (StatedError(key, "inertia_percent", float(size)) for key, size in sizes if size > 0.0)
    for frame in dict.fromkeys(frames):
        if model.frame_node[model.frames.index(frame)] >= 0:
            yield from (StatedError(f"position of {frame} along {axis}", "frame_mm", 1e-3) for axis in "xyz")
    if np.any(np.asarray(model.gravity)):
        yield from (StatedError(f"tilt about {axis}", "tilt_deg", np.pi / 180.0) for axis in "XY")


def _keys(what: str, body: str) -> list[str]:
    return [f"{what} of {body} {axis}" for axis in "xyz"]


def _inertial(model: Model, i: int) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass, first moment and inertia of a body about its origin."""
    return float(model.mass[i]), np.asarray(model.first_moment)[i], np.asarray(model.inertia)[i]


def with_machine_errors(model: Model, errors: Mapping[str, float]) -> Model:
    """The model with errors of `machine_errors` by key, SI; other keys have no effect.

    An error of the centre of mass leaves the inertia about it, one of the mass changes it in proportion.
    """
    if not errors:
        return model
    table = parameter_table(model)
    names = [name for name in errors if name in table]
    own = parameters(model) if names else {}
    model = assigned(model, [table[name] for name in names], [own[name] + errors[name] for name in names])
    mass, moment, inertia, offset = map(np.array, (model.mass, model.first_moment, model.inertia, model.frame_offset))
    for i, body in enumerate(model.masses):
        factor = 1.0 + errors.get(f"mass of {body}", 0.0)
        shift, more = (
            np.array([errors.get(key, 0.0) for key in _keys(what, body)])
            for what in ("centre of mass", "moment of inertia")
        )
        if factor != 1.0 or shift.any() or more.any():
            centre, about_centre = central_inertia(*_inertial(model, i))
            there, mass[i] = centre + shift, factor * mass[i]
            moment[i] = mass[i] * there
            steiner = there @ there * np.eye(3) - np.outer(there, there)
            inertia[i] = factor * (about_centre + np.diag(more)) + mass[i] * steiner
    for i, frame in enumerate(model.frames):
        by = np.array([errors.get(f"position of {frame} along {axis}", 0.0) for axis in "xyz"])
        offset[i, :3, 3] += offset[i, :3, :3] @ by
    turn = np.array([errors.get(f"tilt about {axis}", 0.0) for axis in "XYZ"])
    gravity = np.asarray(model.gravity)
    leaves = {
        "mass": mass,
        "first_moment": moment,
        "inertia": inertia,
        "frame_offset": offset,
        "gravity": gravity + np.cross(turn, gravity),
    }
    changed = {name: new for name, new in leaves.items() if not np.array_equal(new, np.asarray(getattr(model, name)))}
    return dataclasses.replace(model, **jax.device_put(changed))
