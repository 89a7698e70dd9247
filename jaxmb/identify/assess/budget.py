"""Uncertainty budget: effect of the tolerances of machine and tests on the estimate.

Source: JCGM 100, Guide to the expression of uncertainty in measurement, type B evaluation; JCGM 101, propagation of
distributions by draws.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import chdtri

from jaxmb.identify.estimation.identifiability import inverse_std, jacobian_svd, rotated_rows, scaled_svd
from jaxmb.identify.estimation.least_squares import host_minimum
from jaxmb.identify.estimation.variance_components import (
    Excess,
    Statistics,
    excess,
    likely_factors,
    marginal,
    sufficient_statistics,
)
from jaxmb.identify.experiments.machine_errors import (
    ABSENT,
    SPRING,
    MachineErrors,
    all_elastic,
    machine_errors,
    with_further_springs,
    with_machine_errors,
)
from jaxmb.identify.experiments.test import Entry
from jaxmb.identify.experiments.tolerances import StatedError, Tolerances
from jaxmb.identify.fit.noise import FALSE_ALARM, reduced_chi_squares
from jaxmb.identify.fit.problem import Problem, final_state, on_some_lines
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.machine.build import Model
from jaxmb.mechanics.postures import OutOfReachError

NAMED = 5
"""Sources of a parameter's uncertainty that a result names."""
TRIED, NONLINEAR = 4, 0.2
"""Draws that are refitted in any case, and largest difference of a refit from the linear effect up to which the effect
of stated errors counts as linear: of the parameters over their standard deviation, of the residual over the noise."""
WIDE_PRIOR = 100.0
"""Standard deviation of a weak prior of each parameter in refits, in widths of its bounds. Without it, directions that
have no effect on the data would drift by rounding, or end a refit early. It reduces the standard deviation of a
parameter that is known to a width by 5e-5."""
REFIT_ROWS = 6000
"""Rows of data to which refits are made, about; residuals of their ends are of all rows."""
SMALL = 0.1
"""Largest change of the parameters over their standard deviation, and of the residual's sum of squares over its
standard deviation by noise, by the part of an effect that is not linear, up to which a test needs no further draws."""
DRAWS = 48
"""Refits where it does not; a standard deviation from so many has an error of a tenth."""


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
    """The largest contributions, to first order, with the most likely sizes of the errors."""


@dataclasses.dataclass(frozen=True, eq=False)
class ToleranceCheck:
    """Comparison of the residual with one tolerance."""

    factor: float
    """Most likely size of the errors over their tolerance, root mean square, at least 1."""
    observable: float
    """Share of the errors that the residual shows, 0 to 1."""
    exceeded: bool
    """Whether an error is larger than its tolerance beyond chance."""


Refitted = tuple[Float[np.ndarray, "d"], Float[np.ndarray, "m"]]
"""Change of u in a refit, and the residual at its end."""
Refit = Callable[[Float[np.ndarray, "m"]], Refitted]
"""Refit of an estimate to noise-free data by the residual of these data at the estimate."""


class Budget(NamedTuple):
    """Effect of the errors of machine and tests on the estimate."""

    errors: tuple[StatedError, ...]
    effect: Float[np.ndarray, "d e"]
    """Change of u by one standard deviation of each error, to first order."""
    covariance: Float[np.ndarray, "d d"]
    """Covariance of u due to all errors."""
    columns: Float[np.ndarray, "m e"]
    """Change of the residual by each error."""
    curvature: Float[np.ndarray, "m k"]
    """Residuals of refits to drawn errors beyond the linear effect, over the root of their number: columns of the
    covariance of the residual in addition to `columns`. No columns where the effect is linear."""
    draws: Float[np.ndarray, "k e"] | None = None
    """Errors of these refits over their tolerances; None where the effect is linear."""
    excess: Excess | None = None
    """Comparison of the residual with the tolerances; None where there is no residual."""

    @property
    def factors(self) -> Float[np.ndarray, "e"]:
        """Most likely factor on the standard deviation of each error; 1 where there is no residual."""
        return np.ones(len(self.errors)) if self.excess is None else self.excess.factors[: len(self.errors)]

    @property
    def exceeding(self) -> list[int]:
        """Indices of the errors that exceed their tolerance beyond chance."""
        return [] if self.excess is None else [k for each in self.excess.exceeded for k in each.members.tolist()]

    def all_columns(self, rows: slice) -> Float[np.ndarray, "m c"]:
        """Columns of the covariance of some rows of the residual by all errors: linear ones with their most likely
        sizes, and those of the curvature; zeros in rows of a prior."""
        found = np.concatenate([self.columns[rows] * self.factors, self.curvature[rows]], axis=1)
        return found if len(found) else np.zeros((rows.stop - rows.start, found.shape[1]))

    def linearized(self, columns: Float[np.ndarray, "m e"]) -> "Budget":
        """The budget with the change of the residual by errors next to their most likely sizes, where it is linear."""
        return self._replace(columns=columns, curvature=np.zeros((len(columns), 0)), draws=None)


@dataclasses.dataclass(frozen=True, eq=False)
class DescribedTests:
    """Fitted tests with the machine of the estimate: their residual as a function of possible errors, by key."""

    entries: Sequence[Entry]
    model: Model
    """At the values of the estimate."""
    free: FreeParameters
    tolerances: Tolerances
    """Standard deviations of the errors."""
    exact_tests: Collection[str] = ()
    """Names of tests that are as described, such as simulated ones."""

    @functools.cached_property
    def _own(self) -> list[dict[str, StatedError]]:
        """Errors of the description of each test by key, without those whose parameter is free: free geometry has no
        effect on torques."""
        freed = {name for names in self.free.tied for name in names}
        return [
            {}
            if entry.name in self.exact_tests
            else {
                error.key: error
                for error in entry.source.errors(entry.test, self.model)
                if not (entry.source.follows_geometry and error.parameter in freed)
            }
            for entry in self.entries
        ]

    @property
    def errors(self) -> tuple[StatedError, ...]:
        """Possible errors of machine and tests, except the free parameters; equal keys are one error."""
        of_machine = (error for error, _ in self._machines[-1][1])
        every = itertools.chain(of_machine, *(own.values() for own in self._own))
        return tuple({error.key: error for error in every}.values())

    @functools.cached_property
    def _machines(self) -> list[tuple[Model, list[tuple[StatedError, MachineErrors]]]]:
        """The machine, its errors and their directions; behind it the same on a nearly rigid foundation, where its
        compliance has a tolerance."""
        found = [(self.model, machine_errors_in_tests(self.model, self.free, self.entries))]
        if self.tolerances.foundation_um_per_kn or self.tolerances.foundation_urad_per_knm:
            model = with_further_springs(self.model)
            found.append((all_elastic(model), machine_errors_in_tests(model, self.free, self.entries)))
        return found

    @functools.cached_property
    def as_described(self) -> Float[np.ndarray, "m"]:
        """Residual of all tests without errors."""
        return self.residual({})

    @property
    def rows(self) -> list[slice]:
        """Rows of each test."""
        ends = np.cumsum([0, *(entry.test.rows for entry in self.entries)]).tolist()
        return [slice(*own) for own in itertools.pairwise(ends)]

    def residual(self, errors: Mapping[str, float], left_out: Collection[int] = ()) -> Float[np.ndarray, "m"]:
        """Residual of all tests with some errors corrected, SI, or as described in those that are left out."""
        of_machine = {error.key for error, _ in self._machines[-1][1]}
        of_tests = bool(errors) and not of_machine & errors.keys()
        models = [with_machine_errors(model, self.free, own, errors) for model, own in self._machines]
        parts = []
        for k, (entry, keys, rows) in enumerate(zip(self.entries, self._own, self.rows, strict=True)):
            own = {key: x for key, x in errors.items() if key in keys}
            if k in left_out or (of_tests and not own):
                parts.append(self.as_described[rows])
                continue
            there = models[-1 if entry.test.vibration is not None or len(entry.source.loads) else 0]
            try:
                parts.append(entry.source.residual_with(entry.test, there, own))
            except OutOfReachError:
                parts.append(np.full(entry.test.rows, np.nan))
        return np.concatenate(parts)


def machine_errors_in_tests(
    model: Model, free: FreeParameters, entries: Sequence[Entry]
) -> list[tuple[StatedError, MachineErrors]]:
    """Possible errors of a machine in some tests; see `machine_errors`. Errors of axes need a test that follows the
    geometry, and absent payloads too: torque tests have them as alternatives."""
    frames = dict[str, bool]()
    for entry in entries:
        for name, turns in entry.source.frames(entry.test).items():
            frames[name] = turns or frames.get(name, False)
    has_axes = any(entry.source.follows_geometry for entry in entries)
    vibrates = any(entry.test.vibration is not None for entry in entries)
    return [
        each
        for each in machine_errors(model, free, frames)
        if (has_axes or not (each[0].tolerance.startswith("origin_") or each[0].key.startswith(ABSENT)))
        and (vibrates or not each[0].key.startswith(SPRING))
    ]


def budget(
    tests: DescribedTests,
    refit: Refit,
    jacobian: Float[np.ndarray, "m d"],
    std: Float[np.ndarray, "d"],
    seed: int = 0,
    factor: Float[np.ndarray, "m"] | float = 1.0,
) -> Budget:
    """Effect of the errors of machine and tests on a least-squares estimate.

    To first order S c, S = -(J^T J)^-1 J^T and c the change of the residual by an error of one standard deviation, half
    the difference of both signs where it has two. Where refits of noise-free data with all errors drawn differ from
    that, the covariance is that of the refits: responses near resonances and antiresonances are not linear in such
    errors.

    Args:
        tests: fitted tests.
        refit: of the estimate to changed data.
        jacobian: of the residual; rows of a prior last.
        std: standard deviations of u by noise.
        seed: of the draws.
        factor: of each row of the tests in the Jacobian, such as the root of a robust weight.
    """
    known = [(error, size) for error in tests.errors if (size := error.std(tests.tolerances)) > 0.0]
    plain = tests.as_described
    columns = error_columns(tests, [error for error, _ in known], factor)
    svd = jacobian_svd(jacobian)
    effect = -svd.gain @ (svd.basis(jacobian[: len(columns)]).T @ columns)
    found = Budget(
        tuple(error for error, _ in known), effect, effect @ effect.T, columns, curvature=np.zeros((plain.size, 0))
    )
    if not known:
        return found

    rows = tests.rows

    def change(z: np.ndarray, linear: Collection[int]) -> np.ndarray:
        """Residual of noise-free data with errors, these over their tolerances; to first order in some tests."""
        errors = {error.key: x * size for (error, size), x in zip(known, z, strict=True)}
        changed = factor * finite(plain - tests.residual(errors, linear))
        for k in linear:
            changed[rows[k]] = -columns[rows[k]] @ z
        return changed

    slow = {k: rows[k] for k, entry in enumerate(tests.entries) if entry.test.description is None}
    return _drawn(change, slow, refit, jacobian, found, std, seed)


def error_columns(
    tests: DescribedTests, errors: Sequence[StatedError], factor: Float[np.ndarray, "m"] | float = 1.0
) -> Float[np.ndarray, "m e"]:
    """Change of the residual by one standard deviation of each error: half the difference of both signs where it has
    two.

    Args:
        tests: fitted tests.
        errors: with a tolerance.
        factor: see `budget`.
    """
    columns = np.zeros((tests.as_described.size, len(errors)))
    for k, error in enumerate(errors):
        size = error.std(tests.tolerances)
        least = -size if error.bounds[0] < 0.0 else 0.0  # a compliance has one sign
        plus, minus = (tests.residual({error.key: x}) for x in (size, least))
        columns[:, k] = factor * finite((plus - minus) * size / (size - least))
    return columns


def finite(values: np.ndarray, instead: float = 0.0) -> np.ndarray:
    """Values with a number in place of those that are not finite, as where an error leaves no prediction."""
    return np.nan_to_num(values, nan=instead, posinf=instead, neginf=-instead)


def _drawn(
    change: Callable[[np.ndarray, Collection[int]], np.ndarray],
    slow: Mapping[int, slice],
    refit: Refit,
    jacobian: np.ndarray,
    found: Budget,
    std: np.ndarray,
    seed: int,
) -> Budget:
    """The budget with covariance and curvature of refits to drawn errors where their effect is not linear.

    After `TRIED` draws, the effect on slow tests is taken to first order if it was linear in these.

    Args:
        change: residual of noise-free data with drawn errors, to first order in some tests.
        slow: rows of each test of which an effect takes long, by number.
        refit: of the estimate to changed data.
        jacobian: of the residual; rows of a prior last.
        found: the budget to first order.
        std: standard deviations of u by noise.
        seed: of the draws.
    """
    linear, count = np.sqrt(np.diag(found.covariance)), len(found.columns)
    normal = np.random.default_rng(seed).normal(size=(DRAWS, len(found.errors)))
    draws = np.where([error.bounds[0] < 0.0 for error in found.errors], normal, np.abs(normal))
    whole = np.hypot(linear, std)
    svd, is_linear, linear_tests = jacobian_svd(jacobian), False, frozenset[int]()
    basis = svd.basis(jacobian)
    changes, curvature, beyond = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
    for z in draws:
        changed = change(z, linear_tests)
        beyond.append(changed + found.columns @ z)
        by_errors, residual = refit(changed)
        changes.append(by_errors)
        residual[:count] += found.columns @ z
        curvature.append((residual - basis @ (basis.T @ residual))[:count])
        if len(changes) == TRIED:
            for k, own in slow.items():
                moved = np.abs(svd.gain @ (basis[own].T @ np.array(beyond)[:, own].T))
                left = np.sum(np.array(beyond)[:, own] ** 2, axis=1).max(initial=0.0)
                if np.all(moved <= SMALL * whole[:, None]) and left <= SMALL * np.sqrt(2.0 * (own.stop - own.start)):
                    linear_tests |= {k}
            difference = np.abs(np.array(changes) + draws[:TRIED] @ found.effect.T)
            is_linear = bool(np.all(difference <= NONLINEAR * whole))
            if is_linear and np.linalg.norm(curvature, axis=1).max() <= NONLINEAR:
                return found
    found = found._replace(curvature=np.array(curvature).T / np.sqrt(DRAWS), draws=draws)
    if is_linear:
        return found
    return found._replace(covariance=np.array(changes).T @ np.array(changes) / DRAWS)


def linear_refit(jacobian: Float[np.ndarray, "m d"]) -> Refit:
    """Refit of a linear least-squares estimate.

    Args:
        jacobian: of the residual; rows of a prior last.
    """
    svd = jacobian_svd(jacobian)
    basis = svd.basis(jacobian)

    def refit(change: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        along = basis[: change.size].T @ change
        return -svd.gain @ along, np.pad(change, (0, len(basis) - change.size)) - basis @ along

    return refit


def nonlinear_refit(problem: Problem, u: Float[np.ndarray, "d"]) -> Refit:
    """Refit of an estimate to noise-free data with a residual at u, with a wide prior as in linear studies; to some of
    the lines of long FRFs."""
    some, kept = on_some_lines(problem, REFIT_ROWS)
    whole, there = (np.asarray(final_state(each, jax.device_put(u))[0]) for each in (problem, some))
    scale, prior = np.ones((there.size, 1)), wide_prior(problem.free)
    scale[: kept.size] = np.sqrt(problem.data_rows / kept.size)

    def refit(change: np.ndarray) -> Refitted:
        offset = there - np.pad(change[kept], (0, there.size - kept.size))

        def displaced(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            residual, jacobian, _ = final_state(some, jax.device_put(x))
            rows = scale[:, 0] * (np.asarray(residual) - offset)
            return np.append(rows, prior @ (x - u)), np.concatenate([scale * np.asarray(jacobian), prior])

        x, _ = host_minimum(displaced, u, np.minimum(problem.free.lower, u), np.maximum(problem.free.upper, u))
        residual = np.asarray(final_state(problem, jax.device_put(x))[0])
        return x - u, residual - whole + np.pad(change, (0, whole.size - change.size))

    return refit


def wide_prior(free: FreeParameters) -> Float[np.ndarray, "d d"]:
    """Rows of `WIDE_PRIOR`."""
    return np.diag(1.0 / (WIDE_PRIOR * (np.asarray(free.upper) - np.asarray(free.lower))))


def with_excess(
    found: Budget,
    rows: Sequence[slice],
    residual: Float[np.ndarray, "m"],
    jacobian: Float[np.ndarray, "m d"],
    variances: Float[np.ndarray, "m"],
) -> Budget:
    """The budget with its tolerances compared with a residual, and its covariance that of the most likely errors.

    Rows of a prior are left out: values far from a rough prior contradict no tolerance.

    Args:
        found: the budget.
        rows: rows of each test, or of all.
        residual: at the estimate; rows of a prior last.
        jacobian: of the residual.
        variances: of the noise of each row.
    """
    if not found.errors:
        return found
    kinds = np.array([error.tolerance for error in found.errors])
    members = {kind: np.flatnonzero(kinds == kind) for kind in dict.fromkeys(kinds.tolist())}
    count, size = len(found.errors), jacobian.shape[1]
    few = _in_few_rows(found, rows, residual[:, None], jacobian, variances)
    data = sufficient_statistics(few[:, -1], few[:, :size], np.ones(len(few)), few[:, size:-1])
    data = data._replace(degrees=data.degrees + np.count_nonzero(variances[: len(found.columns)]) - len(few))
    if found.draws is not None:  # residuals of the refits are their curvature less their linear effect
        linear, curvature = np.split(data.effects, [count], axis=1)
        data = data._replace(drawn=np.sqrt(DRAWS) * curvature - linear @ found.draws.T)
    found = found._replace(excess=excess(data, members, _noise_factor(data, list(members.values()))))
    return found._replace(covariance=found.covariance + (found.effect * (found.factors**2 - 1.0)) @ found.effect.T)


def tolerance_checks(found: Budget) -> dict[str, ToleranceCheck] | None:
    """Comparison of the residual with each tolerance; None where there was no residual to compare."""
    if found.excess is None:
        return None
    beyond = {found.errors[k].tolerance for each in found.excess.exceeded for k in each.members}
    kinds = np.array([error.tolerance for error in found.errors])
    return {
        kind: ToleranceCheck(float(np.sqrt(np.mean(found.factors[kinds == kind] ** 2))), share, kind in beyond)
        for kind, share in found.excess.observable.items()
    }


def _noise_factor(data: Statistics, groups: Sequence[np.ndarray]) -> float:
    """Factor on the variances of the noise where neither noise nor any size of the errors explains a residual."""
    if not data.degrees:
        return 1.0
    factors = likely_factors(data, groups, np.ones(data.effects.shape[1]))
    rest = float(marginal(data, factors).square) / data.degrees
    return max(rest, 1.0) if rest > float(chdtri(data.degrees, FALSE_ALARM)) / data.degrees else 1.0


def explained_tests(
    found: Budget,
    rows: Sequence[slice],
    residual: Float[np.ndarray, "m"],
    jacobian: Float[np.ndarray, "m d"],
    stated_variances: Float[np.ndarray, "m"],
) -> tuple[bool, ...]:
    """Whether errors of their most likely sizes explain the residual of each test beyond its noise.

    With refits to drawn errors, also where their curvature leaves a larger residual in at least one.

    Args:
        found: the budget, compared with the residual.
        rows: rows of each test.
        residual: at the estimate; rows of a prior last.
        jacobian: of the residual.
        stated_variances: variance of each residual under the stated noise.
    """
    if found.excess is None:
        return (False,) * len(rows)
    count = len(found.columns)
    both = np.column_stack([residual, np.pad(found.curvature, ((0, residual.size - count), (0, 0)))])
    rest, squares, _ = joint_residual(found, rows, both, jacobian, stated_variances)
    explained = [own.explained for own in reduced_chi_squares(rest[:, 0], jacobian, stated_variances, rows)]
    if found.draws is not None:  # curvature of each draw that the errors and the other draws do not explain
        drawn = np.sqrt(DRAWS) * rest[:count, 1:] / np.maximum(1.0 - squares[1:], np.finfo(float).eps)
        explained = [
            yes
            or bool(np.sum(rest[own, 0] ** 2) - np.sum(stated_variances[own]) <= np.sum(drawn[own] ** 2, axis=0).max())
            for yes, own in zip(explained, rows, strict=True)
        ]
    return tuple(explained)


def joint_residual(
    found: Budget,
    rows: Sequence[slice],
    residuals: Float[np.ndarray, "m k"],
    jacobian: Float[np.ndarray, "m d"],
    stated_variances: Float[np.ndarray, "m"],
) -> tuple[Float[np.ndarray, "m k"], Float[np.ndarray, "k"], Float[np.ndarray, "d"]]:
    """Residuals of joint fits of the parameters and of all stated errors, these with their tolerances as a prior, to
    first order; the sums of squares of residuals and errors in units of noise and tolerances; and the change of u for
    the first one.

    Args:
        found: the budget.
        rows: rows of each test, or of all.
        residuals: at the estimate; rows of a prior last.
        jacobian: of the residual.
        stated_variances: variance of each residual under the stated noise.
    """
    size, parts = jacobian.shape[1], [*rows, slice(len(found.columns), len(jacobian))]
    parts = [own for own in parts if own.start < own.stop]
    few = _in_few_rows(found, parts, residuals, jacobian, stated_variances)
    slopes, right = with_error_prior(few[:, :size], few[:, size : -residuals.shape[1]]), few[:, -residuals.shape[1] :]
    svd, right = scaled_svd(slopes, rows=len(jacobian)), np.pad(right, ((0, len(slopes) - len(few)), (0, 0)))
    along = svd.gain @ (svd.range(len(right)).T @ right)
    rest = residuals * (stated_variances > 0.0)[:, None]
    for own in parts:
        used = (stated_variances[own] > 0.0)[:, None]
        rest[own] -= used * (jacobian[own] @ along[:size] + found.all_columns(own) @ along[size:])
    return rest, np.sum(svd.beside(right) ** 2, axis=0), -along[:size, 0]


def _in_few_rows(
    found: Budget, rows: Sequence[slice], residuals: np.ndarray, jacobian: np.ndarray, variances: np.ndarray
) -> Float[np.ndarray, "r c"]:
    """Jacobian, columns of all errors and residuals in units of the noise, those of each test rotated into few rows:
    of many tests, each has errors of its own."""
    scale = inverse_std(variances)[:, None]
    each = (np.column_stack([jacobian[own], found.all_columns(own), residuals[own]]) * scale[own] for own in rows)
    return np.concatenate(list(map(rotated_rows, each)))


def with_error_prior(jacobian: Float[np.ndarray, "m d"], columns: Float[np.ndarray, "m e"]) -> Float[np.ndarray, "k c"]:
    """Derivatives by parameters and errors, with a row below for each error, whose standard deviation is 1."""
    prior = np.pad(np.eye(columns.shape[1]), ((0, 0), (jacobian.shape[1], 0)))
    return np.concatenate([np.concatenate([jacobian, columns], axis=1), prior])


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
    effect = found.effect * found.factors
    for i, names in enumerate(free.tied):
        parts, scale = np.abs(effect[i] * slope[i]), abs(slope[i])
        sources = tuple(
            Contribution(found.errors[k].key, found.errors[k].tolerance, float(parts[k]))
            for k in np.argsort(-parts)[:NAMED].tolist()
            if parts[k] > 0.0
        )
        noise = float(std[i] * scale) if np.isfinite(std[i]) else None
        own = ParameterBudget(noise, None, ()) if noise is None else ParameterBudget(noise, whole[i] * scale, sources)
        by_name |= dict.fromkeys(names, own)
    return by_name
