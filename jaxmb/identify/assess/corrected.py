"""Residual of all tests with the description of machine and tests corrected, and its joint fit by the free parameters
and all stated errors."""

import dataclasses
import functools
import itertools
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmb.compiled import compiled_partial
from jaxmb.identify.assess.budget import finite, machine_errors_in_tests
from jaxmb.identify.estimation.identifiability import identifiability, inverse_std, triangular_factor
from jaxmb.identify.estimation.least_squares import host_minimum
from jaxmb.identify.experiments.components import own_names
from jaxmb.identify.experiments.machine_errors import (
    FURTHER,
    MachineErrors,
    all_elastic,
    compliance_key,
    corrected_machine,
    damping_key,
    rocking_pairs,
    with_further_springs,
)
from jaxmb.identify.experiments.test import Test, without_name
from jaxmb.identify.experiments.tolerances import StatedError, Tolerances
from jaxmb.identify.fit.problem import Problem, on_some_lines, with_free_values
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.identify.study.study import Study
from jaxmb.linalg.responses import FEW
from jaxmb.machine.build import Model
from jaxmb.mechanics.loops import degrees_of_freedom

NO_SPRING = -1
"""Number of an error that is no further spring."""
PROGRAM_SIZES = 2, 8
"""Numbers of further springs for which a program is compiled: two in one hypothesis, and these with the six of a
foundation, which have tolerances."""
Batch = tuple[Int[np.ndarray, "p"], Float[Array, "t n"], Int[np.ndarray, "k"] | None]
NOT_FINITE = 1e6
"""Residual, in units of the noise, in place of one that is not finite."""


@dataclasses.dataclass(frozen=True, eq=False)
class CorrectedResidual:
    """Residual of all tests as a function of u and the sizes of possible errors, compiled, with derivatives: for tests
    with a `Description`. `DescribedTests` has that of all kinds, at the values of an estimate."""

    problem: Problem
    model: Model
    """With further springs, and springs instead of locks."""
    errors: tuple[StatedError, ...]
    machine: MachineErrors
    """Directions of the errors of the machine, which come first; stacked."""
    own: tuple[tuple[np.ndarray, Any], ...]
    """Indices of the errors of each test, and their directions, stacked; no errors if it has no description."""
    origin: Float[np.ndarray, "e"] | float = 0.0
    """Sizes of the errors from which those of arguments are counted, SI."""
    known: Float[np.ndarray, "m"] | float = 0.0
    """Residual that is subtracted: the effect of the sizes in `origin` to first order."""
    further: Float[np.ndarray, "m e"] | None = None
    """Change of the residual by errors, SI, beside that of the views, to first order: of tests without a `Description`,
    such as torques."""

    @classmethod
    def of(cls, study: Study, identified: Model) -> "CorrectedResidual":
        """All possible errors of an identified machine and of the tests of a study."""
        problem, model = study.problem, with_further_springs(identified)
        # views of tests without vibration have fixed sizes
        if any(test.vibration is None for test in problem.tests) or len(degrees_of_freedom(model)) > FEW:
            model = identified
        initial = problem.free.apply(model, study.start.values)
        of_machine = machine_errors_in_tests(initial, problem.free, study.fitted)
        of_tests = [[] if t.description is None else list(t.description.errors(identified)) for t in problem.tests]
        errors = dict[str, StatedError]()
        for error, _ in itertools.chain(of_machine, *of_tests):
            errors.setdefault(error.key, error)
        number = {key: k for k, key in enumerate(errors)}
        own = ((np.array([number[error.key] for error, _ in each], dtype=int), _stacked(each)) for each in of_tests)
        return cls(problem, all_elastic(model), tuple(errors.values()), _stacked(of_machine), tuple(own))

    def with_effects(
        self,
        errors: Sequence[StatedError],
        columns: Float[np.ndarray, "m e"],
        tolerances: Tolerances | None,
        u: Float[np.ndarray, "d"],
    ) -> "CorrectedResidual":
        """The residual with the effect of errors on tests without a `Description`, such as torques.

        Args:
            errors: of machine and tests.
            columns: change of the residual by one standard deviation of each of them, to first order.
            tolerances: of the study.
            u: where it is linear.
        """
        problem = self.problem
        if all(test.description is not None for test in problem.tests):
            return self
        every = {error.key: error for error in (*self.errors, *errors)}
        whole = dataclasses.replace(self, errors=tuple(every.values()))
        index = [list(every).index(error.key) for error in errors]
        _, jacobian = whole.state(u, np.zeros(len(every)), u.size + np.array(index, int))
        further = np.zeros((problem.data_rows, len(every)))
        for test, rows in zip(problem.tests, problem.row_slices, strict=True):
            if test.description is None:
                further[rows, index] = columns[rows] / [error.std(tolerances) for error in errors] - jacobian[rows]
        return dataclasses.replace(whole, further=further)

    def on_lines(self, problem: Problem, kept: Int[np.ndarray, "r"]) -> "CorrectedResidual":
        """The residual of tests with some of their frequency lines, by their rows."""
        return dataclasses.replace(self, problem=problem, further=None if self.further is None else self.further[kept])

    def about(
        self, joint: "JointFit", errors: Sequence[StatedError], tolerances: Tolerances | None
    ) -> "CorrectedResidual":
        """The residual with the errors of a joint fit, but without their effect to first order, as of a description
        whose tolerances have a linear effect."""
        sizes = {error.key: size * error.std(tolerances) for error, size in zip(errors, joint.sizes, strict=True)}
        origin = np.array([sizes.get(error.key, 0.0) for error in self.errors])
        return dataclasses.replace(self, origin=origin, known=joint.fitted - joint.residual)

    @property
    def described(self) -> list[StatedError]:
        """Errors of the machine and of tests with a `Description`."""
        index = np.concatenate([np.arange(self.of_machine), *(index for index, _ in self.own)]).astype(int)
        return [self.errors[k] for k in dict.fromkeys(index.tolist())]

    @property
    def of_machine(self) -> int:
        """Number of errors of the machine."""
        return len(self.machine.gravity)

    def tolerances(self, study: Study) -> Float[np.ndarray, "t e"]:
        """Standard deviation of each error by its tolerance in the rows of each test, SI; 0 without one.

        Tolerances of the machine count in all rows, those of tests in rows of tests that are not as described
        (`Study.exact_tests`), as in the budget.
        """
        counts = np.zeros((len(self.own), len(self.errors)), dtype=bool)
        counts[:, : self.of_machine] = True
        for own, test, (index, _) in zip(counts, self.problem.tests, self.own, strict=True):
            own[index] |= test.name not in study.exact_tests
        if self.further is not None:
            counts |= [self.further[rows].any(axis=0) for rows in self.problem.row_slices]
        return counts * np.array([error.std(study.tolerances) for error in self.errors])

    def state(
        self, u: np.ndarray, x: np.ndarray, columns: np.ndarray, tests: Mapping[int, Test] = types.MappingProxyType({})
    ) -> tuple[np.ndarray, np.ndarray]:
        """Residual in units of the noise, and some columns of its Jacobian by u and the errors' sizes; see `blocks`."""
        blocks = list(self.blocks(u, x, columns, tests))
        jacobian = np.zeros((sum(len(block.residual) for block in blocks), columns.size))
        for block in blocks:
            jacobian[block.rows, block.columns] = block.jacobian
        return np.concatenate([block.residual for block in blocks]), jacobian

    def blocks(
        self, u: np.ndarray, x: np.ndarray, columns: np.ndarray, tests: Mapping[int, Test] = types.MappingProxyType({})
    ) -> Iterator["ResidualBlock"]:
        """Residual in units of the noise and its Jacobian by u and the errors' sizes, of each test and of the prior.

        Each test is evaluated for its own columns only, in batches of one size, so that one program is compiled. Of the
        further springs only those move whose errors are not 0 or are those of the batch.

        Args:
            u: unknowns.
            x: sizes of the errors, SI.
            columns: indices of the asked columns, of u first.
            tests: alternatives to some tests, by index.
        """
        problem, size = self.problem, u.size
        prior = np.asarray(problem.prior_residual(jax.device_put(u)))
        known = np.broadcast_to(self.known, problem.data_rows + prior.size)
        present = (*self._springs[(x + self.origin != 0.0) & (self._springs != NO_SPRING)].tolist(),)
        for k, rows in enumerate(problem.row_slices):
            along, index = self._partial(_with_slopes, k, tests[k]) if k in tests else self._along[k], self._index(k)
            point = jax.device_put(np.concatenate([u, x + self.origin])[index])
            asked, batches = self._kept_batches(k, tuple(columns.tolist()), present)
            found = [along(point, tangents, moving) for _, tangents, moving in batches]
            jacobian = np.zeros((rows.stop - rows.start, asked.size))
            for (part, *_), (_, slopes) in zip(batches, found, strict=True):
                jacobian[:, part] = np.asarray(slopes)[: part.size].T
            residual = finite(np.asarray(found[0][0]), NOT_FINITE)
            if self.further is not None and (own := self.further[rows]).any():
                slopes = np.pad(own, ((0, 0), (size, 0)))[:, columns]
                slopes[:, asked] += jacobian
                residual, asked, jacobian = residual + own @ (x + self.origin), np.arange(columns.size), slopes
            yield ResidualBlock(rows, asked, residual - known[rows], finite(jacobian))
        rows, by_u = slice(problem.data_rows, len(known)), np.flatnonzero(columns < size)
        of_prior = np.zeros((0, size)) if problem.prior is None else np.asarray(problem.prior.rows)
        yield ResidualBlock(rows, by_u, finite(prior, NOT_FINITE) - known[rows], of_prior[:, columns[by_u]])

    @functools.cached_property
    def _kept_batches(self) -> Callable[..., tuple[np.ndarray, list[Batch]]]:
        """`_batches`, kept for the evaluations of a fit."""
        return functools.lru_cache(maxsize=256)(self._batches)

    def _batches(self, k: int, columns: tuple[int, ...], present: tuple[int, ...]) -> tuple[np.ndarray, list[Batch]]:
        """Positions of the columns that a test depends on, and batches of them: positions, directions, and the degrees
        of freedom that move.

        Args:
            k: number of the test.
            columns: asked.
            present: further springs whose errors are not 0.
        """
        size, index = self.problem.free.size, self._index(k)
        asked = np.flatnonzero(np.isin(columns, index))
        spring = np.append(np.full(size, NO_SPRING), self._springs)[np.array(columns, int)[asked]]
        spring = np.where(np.isin(spring, present), NO_SPRING, spring)
        batches = list[Batch]()
        for own in sorted({NO_SPRING, *spring.tolist()}):
            of_spring, moving = np.flatnonzero(spring == own), self._moving([{*present, own}])
            for first in range(0, max(of_spring.size, own == NO_SPRING), size + 1):
                part = of_spring[first : first + size + 1]
                tangents = np.zeros((size + 1, index.size))
                tangents[: part.size] = np.array(columns, int)[asked[part], None] == index
                batches.append((part, jax.device_put(tangents), None if moving is None else moving[0]))
        return asked, batches

    def residuals(self, u: Float[np.ndarray, "b d"], x: Float[np.ndarray, "b e"]) -> Float[np.ndarray, "b m"]:
        """Residual in units of the noise at several points: unknowns and sizes of the errors, SI."""
        points = np.concatenate([u, x + self.origin], axis=1)
        present = (self._springs[(row != 0.0) & (self._springs != NO_SPRING)] for row in x + self.origin)
        moving = self._moving([each.tolist() for each in present])
        parts = [
            *(at(jax.device_put(points[:, self._index(k)]), moving) for k, at in enumerate(self._at)),
            jax.vmap(self.problem.prior_residual)(jax.device_put(u)),
        ]
        found = finite(np.concatenate(parts, axis=1), NOT_FINITE) - self.known
        if self.further is not None:
            found[:, : len(self.further)] += (x + self.origin) @ self.further.T
        return found

    @functools.cached_property
    def _springs(self) -> Int[np.ndarray, "e"]:
        """Number of the further spring of each error, behind them those of pairs; `NO_SPRING` for other errors."""
        keys = [compliance_key(name) for name in (*self._further, *rocking_pairs(self.model))]
        numbers = {of: k for k, key in enumerate(keys) for of in (key, damping_key(key))}
        return np.array([numbers.get(error.key, NO_SPRING) for error in self.errors], int)

    @functools.cached_property
    def _further(self) -> list[str]:
        """Names of the further springs."""
        return [name for name in self.model.coordinates if name.startswith(FURTHER)]

    @functools.cached_property
    def _of_pairs(self) -> dict[int, tuple[int, ...]]:
        """Numbers of the further springs of each pair of them, by its own; none for `NO_SPRING`."""
        names, count = self.model.coordinates, len(self._further)
        pairs = [tuple(self._further.index(names[i]) for i in pair) for pair in rocking_pairs(self.model).values()]
        return {NO_SPRING: ()} | dict(enumerate(pairs, count))

    @functools.cached_property
    def _freedoms(self) -> tuple[Int[np.ndarray, "m"], Int[np.ndarray, "k"]]:
        """Degrees of freedom of the machine, and those of the further springs."""
        names, found = self.model.coordinates, degrees_of_freedom(self.model)
        is_further = np.array([i < len(names) and names[i].startswith(FURTHER) for i in found], bool)
        return np.flatnonzero(~is_further), np.flatnonzero(is_further)

    def _moving(self, springs: Sequence[Collection[int]]) -> Int[np.ndarray, "b k"] | None:
        """Degrees of freedom with some further springs, and others, nearly rigid, in place of further ones, so that
        few programs are compiled; None without further springs.

        Args:
            springs: numbers of those that move, at each point.
        """
        machine, further = self._freedoms
        if not further.size:
            return None
        springs = [{k for one in each for k in self._of_pairs.get(one, (one,))} for each in springs]
        most = max(map(len, springs))
        count = next((size for size in PROGRAM_SIZES if size >= most), further.size)
        order = [sorted(range(further.size), key=lambda k: k not in each)[:count] for each in springs]
        return np.array([np.append(machine, further[some]) for some in order])

    def _index(self, k: int) -> Int[np.ndarray, "n"]:
        """Indices of u and of the errors of a test, by its number: those of the machine, then its own."""
        size = self.problem.free.size
        return np.concatenate([np.arange(size + self.of_machine), size + self.own[k][0]])

    def _partial(self, function: Callable[..., Any], k: int, test: Test) -> Callable[..., Any]:
        """A program at the description of a test, or of an alternative to it."""
        entries = self.problem.free.entries_of(own_names(self.problem.tests[k]))
        own = _Residual(without_name(test), entries, self.model, self.problem.free, self.machine, self.own[k][1])
        on_device = jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, own)
        return compiled_partial(function, on_device)

    @functools.cached_property
    def _along(self) -> tuple[Callable[..., Any], ...]:
        """Residual of each test, and derivatives along some directions."""
        return tuple(self._partial(_with_slopes, k, test) for k, test in enumerate(self.problem.tests))

    @functools.cached_property
    def _at(self) -> tuple[Callable[..., Any], ...]:
        """Residual of each test at several points."""
        return tuple(self._partial(_at_points, k, test) for k, test in enumerate(self.problem.tests))


def _stacked(found: Sequence[tuple[StatedError, Any]]) -> Any:
    return jax.device_put(jax.tree.map(lambda *parts: np.stack(parts), *(at for _, at in found))) if found else None


class _Residual(NamedTuple):
    """Residual of a test as a function of u and the sizes of its errors, the machine's first."""

    test: Test
    entries: Int[np.ndarray, "k"] | None
    """Of the free parameters, those of the test itself."""
    model: Model
    free: FreeParameters
    machine: MachineErrors
    own: Any
    """Directions of the errors of the test."""

    def __call__(self, x: Float[Array, "n"], moving: Int[Array, "k"] | None) -> Float[Array, "m"]:
        def summed(numbers: Array, directions: Any) -> Any:
            return jax.tree.map(lambda part: jnp.tensordot(numbers, part, 1), directions)

        free = self.free
        u, of_machine, of_test = jnp.split(x, [free.size, free.size + len(self.machine.gravity)])
        values = free.values(u)
        changed = corrected_machine(free.apply(self.model, values), summed(of_machine, self.machine))
        changed, described = free.apply(changed, values), with_free_values(self.test, self.entries, values)
        if described.description is None:
            return described.residual(described.view(changed))
        errors = summed(of_test, self.own)
        if moving is not None:
            errors = errors._replace(moving=moving)
        return described.description.residual(changed, errors)


def _with_slopes(
    residual: _Residual, x: Float[Array, "n"], tangents: Float[Array, "t n"], moving: Int[Array, "k"] | None
) -> tuple[Float[Array, "m"], Float[Array, "t m"]]:
    """Residual of a test, and derivatives along some directions."""
    value, slope = jax.linearize(lambda at: residual(at, moving), x)
    return value, jax.vmap(slope)(tangents)


def _at_points(residual: _Residual, x: Float[Array, "b n"], moving: Int[Array, "b k"] | None) -> Float[Array, "b m"]:
    """Residual of a test at several points."""
    return jax.lax.map(lambda at: residual(*at), (x, moving))


class ResidualBlock(NamedTuple):
    """Rows of a test, or of the prior."""

    rows: slice
    columns: Int[np.ndarray, "k"]
    """Those of the asked columns of the Jacobian that are not 0 there."""
    residual: Float[np.ndarray, "r"]
    jacobian: Float[np.ndarray, "r k"]


FEW_ROWS, ROWS_PER_UNKNOWN = 4000, 20
"""Numbers of rows on which a joint fit of parameters and errors begins."""


def rotated(
    state: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], y: np.ndarray
) -> tuple[Float[np.ndarray, "r"], Float[np.ndarray, "r d"]]:
    """Residual and Jacobian at y, rotated into few rows with the same inner products."""
    residual, jacobian = state(y)
    factor = triangular_factor([np.column_stack([jacobian, residual])])
    return factor[:, -1], factor[:, :-1]


def robust(
    residual: Float[np.ndarray, "m"], jacobian: Float[np.ndarray, "m d"]
) -> tuple[Float[np.ndarray, "m"], Float[np.ndarray, "m d"]]:
    """Residual and Jacobian whose sum of squares is Cauchy's loss of a residual, which hardly counts large entries."""
    found = np.sign(residual) * np.sqrt(np.log1p(residual**2))
    is_small = np.abs(residual) < 1e-6
    slope = np.where(is_small, 1.0, residual / (1.0 + residual**2) / np.where(is_small, 1.0, found))
    return found, jacobian * slope[:, None]


class JointFit(NamedTuple):
    """Joint fit of the residual by the free parameters and all stated errors, and the residual to first order there."""

    u: Float[np.ndarray, "d"]
    std: Float[np.ndarray, "d"]
    """Standard deviations of u with the errors unknown within their tolerances."""
    sizes: Float[np.ndarray, "e"]
    """Errors over their standard deviations."""
    residual: Float[np.ndarray, "m"]
    """Without any error, but for a change of the free parameters."""
    jacobian: Float[np.ndarray, "m d"]
    """By the free parameters."""
    columns: Float[np.ndarray, "r e"]
    """Change of the residual of the tests by an error of one standard deviation each."""

    @property
    def fitted(self) -> Float[np.ndarray, "m"]:
        """The residual with the fitted errors."""
        return self.residual + np.pad(self.columns @ self.sizes, (0, len(self.residual) - len(self.columns)))


def joint_fit(
    corrected: CorrectedResidual,
    study: Study,
    u: Float[np.ndarray, "d"],
    errors: Sequence[StatedError],
    variances: Float[np.ndarray, "m"],
    beside: Sequence[StatedError] = (),
    sizes: Sequence[float] | Float[np.ndarray, "k"] = (),
    tests: Mapping[int, Test] = types.MappingProxyType({}),
) -> JointFit | None:
    """Most likely free parameters and errors of machine and tests, these with their tolerances as a prior.

    Responses near resonances and antiresonances are linear in such errors only next to their true sizes, where this
    fit leads. A second start is the fit of responses instead of their logarithms, with Cauchy's loss: responses whose
    phase an error reverses would keep it in a local minimum. With many frequency lines both begin on some, and the
    better one ends on all. None where a test is as described, or the residual does not contain an error.

    Args:
        corrected: the residual.
        study: with the tolerances.
        u: estimate without errors, where the fit starts.
        errors: those with a tolerance.
        variances: of the noise of each row; rows of variance 0 are left out.
        beside: errors of a hypothesis, without a prior, which are the last of the fit.
        sizes: of these over their typical ones, where the fit starts.
        tests: alternatives to some tests, by index.
    """
    known = [error.key for error in corrected.errors]
    if study.exact_tests or study.tolerances is None or not {error.key for error in errors} <= set(known):
        return None
    std = np.array([*(error.std(study.tolerances) for error in errors), *(error.typical for error in beside)])
    has_prior, errors = np.arange(std.size) < len(errors), [*errors, *beside]
    index, size = np.array([known.index(error.key) for error in errors]), u.size
    columns = np.concatenate([np.arange(size), size + index])
    scale, units = inverse_std(variances), np.append(np.ones(size), std)

    def point(y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x = np.zeros(len(known))
        x[index] = y[size:] * std
        return y[:size], x, columns

    def state(
        y: np.ndarray, of: CorrectedResidual, weights: Float[np.ndarray, "m"], is_robust: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Residual and Jacobian in units of the noise, each test rotated into few rows, with the errors' prior."""
        of_prior, slopes = y[size:][has_prior], np.eye(size + std.size)[size:][has_prior]
        if is_robust:
            of_prior, slopes = robust(of_prior, slopes)
        parts = [np.column_stack([slopes, of_prior])]
        each = [*(tests.get(k, test).description for k, test in enumerate(of.problem.tests)), None]
        for described, block in zip(each, of.blocks(*point(y), tests), strict=True):
            own = weights[block.rows]
            residual, jacobian = block.residual * own, block.jacobian * units[block.columns] * own[:, None]
            if is_robust:
                residual, jacobian = described.additive(residual, jacobian, own) if described else (residual, jacobian)
                residual, jacobian = robust(residual, jacobian)
            factor = triangular_factor([np.column_stack([jacobian, residual])])
            rows = np.zeros((len(factor), columns.size + 1))
            rows[:, [*block.columns, -1]] = factor
            parts.append(rows)
        whole = np.concatenate(parts)
        return whole[:, -1], whole[:, :-1]

    most = max(FEW_ROWS, ROWS_PER_UNKNOWN * columns.size) if not tests else corrected.problem.data_rows
    problem, kept = on_some_lines(corrected.problem, most)
    few = corrected if (is_whole := kept.size == corrected.problem.data_rows) else corrected.on_lines(problem, kept)
    weights = scale[np.append(kept, np.arange(corrected.problem.data_rows, scale.size))]
    every, some = (functools.partial(state, of=of, weights=own) for of, own in ((corrected, scale), (few, weights)))
    least, most = np.array([error.bounds for error in errors]).T / std
    bounds = np.append(np.minimum(study.free.lower, u), least), np.append(np.maximum(study.free.upper, u), most)
    first = np.concatenate([u, np.zeros(std.size - len(sizes)), sizes])
    starts = first, host_minimum(functools.partial(some, is_robust=True), first, *bounds)[0]
    ends = [host_minimum(some, start, *bounds) for start in starts]
    y, _ = min(ends, key=lambda end: float(end[1] @ end[1]))
    if not is_whole:
        y, _ = host_minimum(every, y, *bounds)
    there = every(y)[1]
    residual, jacobian = corrected.state(*point(y), tests)
    of_errors, rows = jacobian[:, size:] * std, corrected.problem.data_rows
    return JointFit(
        u=y[:size],
        std=identifiability(there, np.ones(len(there))).std[:size],
        sizes=y[size:],
        residual=residual - of_errors @ y[size:],
        jacobian=jacobian[:, :size].copy(),
        columns=of_errors[:rows],
    )
