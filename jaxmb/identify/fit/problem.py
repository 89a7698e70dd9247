"""All tests of a study as one least-squares problem in the free parameters."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from jaxmb.compiled import compiled, on_host
from jaxmb.identify.estimation.identifiability import Jacobian, triangular_factor
from jaxmb.identify.estimation.least_squares import Box, NormalEquations, normal_equations, residual_and_jacobian
from jaxmb.identify.experiments.components import AffineView, own_names
from jaxmb.identify.experiments.test import Test, without_name
from jaxmb.identify.fit.devices import FITS_BYTES, TESTS_BYTES, block_memory, in_blocks, sharded
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.linalg.responses import FEW
from jaxmb.machine.build import Model
from jaxmb.mechanics.loops import degrees_of_freedom

MOST_ENTRIES = 2**24
"""Number of entries up to which the Jacobian of all tests is kept in memory, 128 MiB; a larger one is computed test by
test."""


class Prior(eqx.Module):
    """Gaussian prior of the free parameters, in the coordinates u."""

    mean: Float[Array, "d"]
    std: Float[Array, "d"]
    """inf for parameters without prior."""
    rows: Float[Array, "d d"]
    """Derivative W of the prior's residual by u, with the covariance (W^T W)^-1; rows of zeros without prior."""


class StackedTests(eqx.Module):
    """Tests that differ only in the values of their arrays, stacked along a first axis; a single test unstacked."""

    members: tuple[int, ...] = eqx.field(static=True)
    """Indices of the tests."""
    test: Test
    view: AffineView | None
    entries: Int[np.ndarray, "..."] | None
    """See `FreeParameters.entries_of`."""


class Problem(eqx.Module):
    """Residuals of all tests, and of the prior if there is one, as functions of u.

    The cost is eq. 22 of Huynh et al. 2020, sum W |log Hs - log H|^2. FRF tests with another noise than the first one
    are weighted by the squared ratio of the two standard deviations. Other tests contribute their squared error over
    its variance, times the variance of that first noise.
    """

    model: Model
    free: FreeParameters
    tests: tuple[Test, ...]
    views: tuple[AffineView | None, ...]
    """View of each test as an affine function of the free values; None where it is not affine."""
    prior: Prior | None
    noise_unit: Float[Array, ""]
    stacks: tuple[StackedTests, ...]
    """The same tests and views, those of one form stacked; all computations use these."""
    tests_sharded: bool = eqx.field(static=True)
    """Whether the tests of a form are sharded over all devices (`devices.sharded`)."""

    def __init__(
        self,
        model: Model,
        free: FreeParameters,
        tests: Sequence[Test],
        views: Sequence[AffineView | None],
        prior: Prior | None,
        noise_unit: Float[Array, ""],
        stacks: Any = None,
        tests_sharded: bool = False,
    ):
        """Stack the tests of one form once; `stacks` is ignored, as `dataclasses.replace` passes those of the old
        tests."""
        self.model, self.free, self.tests, self.views = model, free, tuple(tests), tuple(views)
        self.prior, self.noise_unit, self.tests_sharded = prior, noise_unit, tests_sharded
        own = [without_name(test) for test in self.tests]
        self.stacks = tuple(
            stack_tests(free, self.tests, own, self.views, members) for members in group_by_form(own, views)
        )

    def residual(self, u: Float[Array, "d"]) -> Float[Array, "m"]:
        """Residuals of all tests, then of the prior; their squares sum to the cost plus the prior's part.

        Raises:
            ValueError: u is not a real vector with one entry for each free parameter.
        """
        if not is_real(u) or jnp.shape(u) != (self.free.size,):
            raise ValueError(
                f"u: found {kind_of(u)}, expected a real array of shape ({self.free.size},), an entry for each of"
                f" {', '.join(self.free.names)}"
            )
        return jnp.concatenate([*self.residuals_by_test(self.free.values(u)), self.prior_residual(u)]) * self.noise_unit

    def objective(self, u: Float[Array, "d"]) -> Float[Array, ""]:
        """Objective of the fit: the sum of squares of `residual`."""
        return jnp.sum(self.residual(u) ** 2)

    def data_residual(self, values: Float[Array, "d"]) -> Float[Array, "m"]:
        """Residuals of all tests at physical values; their squares sum to the cost."""
        return jnp.concatenate(self.residuals_by_test(values)) * self.noise_unit

    @property
    def prior_std(self) -> np.ndarray | None:
        """Standard deviations of the prior of u, None without a prior."""
        return None if self.prior is None else np.asarray(self.prior.std)

    def prior_residual(self, u: Float[Array, "d"]) -> Float[Array, "d"]:
        """Distance to the prior mean in its standard deviations, whitened where entries are correlated; 0 for entries
        without a prior, empty without any."""
        return jnp.zeros(0) if self.prior is None else self.prior.rows @ (u - self.prior.mean)

    def stated_variances(self) -> Float[Array, "m"] | Float[np.ndarray, "m"]:
        """Variance of each residual under the stated noise, over the square of its scale."""
        parts = [test.stated_variances() for test in self.tests]
        if self.prior is not None:
            std = on_host(self.prior.std)
            parts.append(std.__array_namespace__().isfinite(std).astype(float))
        xp = np if all(isinstance(part, np.ndarray) for part in parts) else jnp
        return xp.concatenate(parts)

    @property
    def box(self) -> Box:
        """Bounds of u."""
        return Box(self.free.lower, self.free.upper, jax.device_put(np.array(self.free.logarithmic)))

    @property
    def row_slices(self) -> tuple[slice, ...]:
        """Rows of each test; the rows of the prior follow them."""
        ends = np.cumsum([0, *(test.rows for test in self.tests)]).tolist()
        return tuple(slice(a, b) for a, b in itertools.pairwise(ends))

    @property
    def one_by_one(self) -> bool:
        """Whether several points are evaluated sequentially, as for machines with many degrees of freedom: their solver
        selects a method by the values, and a batch of points would be solved by every method."""
        return len(degrees_of_freedom(self.model)) > FEW

    @property
    def memory_of_fits(self) -> int:
        """Memory limit of one block of fits from several points, bytes (see `in_blocks`)."""
        return 0 if self.one_by_one else block_memory(FITS_BYTES)

    @property
    def data_rows(self) -> int:
        """Number of rows of all tests."""
        return sum(test.rows for test in self.tests)

    def view(self, number: int, values: Float[Array, "d"] | np.ndarray) -> Any:
        """View of the machine by a test at physical values; NumPy in, NumPy out where the view is affine."""
        affine = self.views[number]
        if affine is not None:
            return affine(values)
        return self.tests[number].view(self.free.apply(self.model, on_host(values)))

    def residuals_by_test(self, values: Float[Array, "d"] | Float[Array, "t d"]) -> list[Float[Array, "m"]]:
        """Residual of each test in units of its noise, at physical values common to all tests, or one row a test."""
        values = jnp.asarray(values)  # NumPy arrays cannot be traced with the tests of a form
        parts: list[Array] = [jnp.zeros(0)] * len(self.tests)
        for stack in self.stacks:
            own, common = ((values[jnp.asarray(stack.members)],), ()) if values.ndim == 2 else ((), (values,))
            of_test = functools.partial(_residual_of, self.model, self.free)
            residuals = self._map_tests(stack, of_test, self.free.size, common, own)
            for k, part in zip(stack.members, residuals, strict=True):
                parts[k] = part
        return parts

    def normal_equations(self, u: Float[Array, "d"]) -> NormalEquations:
        """Normal equations of `residual`, summed over the tests: the Jacobian of all tests is never in memory."""

        def of_test(test: Test, entries: Any, view: AffineView | None, u: Array) -> NormalEquations:
            if view is not None and entries is None:
                return test.evaluation.normal_equations(view, self.free.values, u)
            values = self.free.values
            return normal_equations(lambda x: _residual_of(self.model, self.free, test, entries, view, values(x)), u)

        parts = [self._map_tests(stack, of_test, 0, (u,)) for stack in self.stacks]
        if self.prior is not None:
            parts.append(jax.tree.map(lambda x: x[None], normal_equations(self.prior_residual, u)))
        return jax.tree.map(lambda *x: sum(jnp.sum(part, axis=0) for part in x) * self.noise_unit**2, *parts)

    def _map_tests(
        self, stack: StackedTests, of_test: Callable[..., Any], derivatives: int, common: Any, own: Any = ()
    ) -> Any:
        """Values of a function for all tests of a form, stacked along the first axis; one program.

        Args:
            stack: the tests.
            of_test: function of a test, its entries, its view, its own arrays and the common arrays.
            derivatives: number of derivatives of the function, which take memory.
            common: arrays common to all tests.
            own: arrays with the tests along the first axis.
        """
        tests: tuple[Any, ...] = (stack.test, stack.entries, stack.view, *own)
        if len(stack.members) == 1:
            return jax.tree.map(lambda y: y[None], of_test(*tests[:3], *(x[0] for x in own), *common))

        def values(tests: Any, *common: Any) -> Any:
            memory = 0 if self.one_by_one else block_memory(TESTS_BYTES) // (1 + derivatives)
            return in_blocks(lambda test: of_test(*test, *common), tests, memory)

        return sharded(values, tests, *common) if self.tests_sharded else values(tests, *common)


def with_tests_sharded(problem: Problem, points: int) -> Problem:
    """The problem with its tests sharded over the devices, where this uses more of them than sharding the points."""
    devices, most = jax.device_count(), max((len(stack.members) for stack in problem.stacks), default=0)
    is_better = min(points, devices) < min(most, devices)
    return problem if is_better == problem.tests_sharded else dataclasses.replace(problem, tests_sharded=is_better)


def test_at(test: Test, free: FreeParameters, values: Float[Array, "d"] | Float[np.ndarray, "d"]) -> Test:
    """The test with its own free parameters, such as gains, at physical values of the free parameters."""
    return with_free_values(test, free.entries_of(own_names(test)), values)


def with_free_values(
    test: Test, entries: Int[Array, "k"] | Int[np.ndarray, "k"] | None, values: Float[Array, "d"] | np.ndarray
) -> Test:
    """`test_at` for a test of any name.

    Args:
        test: the test.
        entries: of its own parameters among the free ones (`FreeParameters.entries_of`).
        values: of the free parameters.
    """
    if entries is None or test.own is None:
        return test
    xp = values.__array_namespace__()
    return test.own.with_values(xp.where(entries >= 0, values[entries], test.own.values))


def stack_tests(
    free: FreeParameters,
    tests: Sequence[Test],
    unnamed: Sequence[Test],
    views: Sequence[AffineView | None],
    members: Sequence[int],
) -> StackedTests:
    """Tests of one form, on the device.

    Args:
        free: of the problem.
        tests: all tests.
        unnamed: all tests without their names.
        views: all views.
        members: indices of tests of one form (`group_by_form`).
    """
    own, seen = [unnamed[k] for k in members], [views[k] for k in members]
    found = [free.entries_of(own_names(tests[k])) for k in members]
    if len(members) == 1:
        test = jax.tree.map(lambda leaf: jax.device_put(leaf) if isinstance(leaf, np.ndarray) else leaf, own[0])
        return StackedTests(tuple(members), test, seen[0], found[0])
    entries = None
    if any(e is not None for e in found):  # -1 for fixed parameters of a test
        entries = np.array([np.full(len(own_names(own[0])), -1) if e is None else e for e in found])  # fmt: skip
    return StackedTests(tuple(members), jax.tree.map(_stacked, *own), jax.tree.map(_stacked, *seen), entries)


def _stacked(*leaves: Any) -> Array:
    """Leaves stacked, on the host unless one is traced, which avoids a compilation."""
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        return jnp.stack(leaves)
    return jax.device_put(np.stack([np.asarray(leaf) for leaf in leaves]))


def group_by_form(unnamed: Sequence[Test], views: Sequence[AffineView | None]) -> list[list[int]]:
    """Indices of tests of the same form: kind, sizes, points and free entries of the tangent.

    Args:
        unnamed: tests without their names.
        views: their views.
    """
    groups: dict[Any, list[int]] = {}
    for k, (test, affine) in enumerate(zip(unnamed, views, strict=True)):
        leaves, structure = jax.tree.flatten((test, affine))
        groups.setdefault((structure, tuple(jnp.shape(leaf) for leaf in leaves)), []).append(k)
    return list(groups.values())


def make_problem(model: Model, free: FreeParameters, tests: Sequence[Test], prior: Prior | None = None) -> Problem:
    """The least-squares problem of a study.

    Views that are affine functions of the free values are computed once, which is exact and avoids the kinematics in
    each evaluation.
    """
    views = [test.evaluation.affine_view(model, free) for test in tests]
    compatible = [
        None if v is None else v.stackable([w for w in views if w is not None and type(w) is type(v)]) for v in views
    ]
    return Problem(model, free, tests, compatible, prior, noise_unit(tests))


def noise_unit(tests: Sequence[Test]) -> Float[Array, ""]:
    """Standard deviation that is the unit of the cost's residuals: that of the first FRF test, 1 without FRF tests."""
    nominal = (test.noise.nominal for test in tests)
    return jax.device_put(np.asarray(next((level for level in nominal if level is not None), 1.0)))


def with_tests(problem: Problem, tests: Sequence[Test]) -> Problem:
    """The problem with its tests replaced, and `noise_unit` updated; the problem itself if no test differs."""
    if all(new is old for new, old in zip(tests, problem.tests, strict=True)):
        return problem
    return dataclasses.replace(problem, tests=tuple(tests), noise_unit=noise_unit(tests))


@compiled
def objective(problem: Problem, u: Float[Array, "d"] | Float[np.ndarray, "d"]) -> Float[Array, ""]:
    """The objective of a problem, compiled."""
    return problem.objective(jnp.asarray(u))


def objective_at(problem: Problem, u: Float[np.ndarray, "d"]) -> float:
    """The objective at u, by the program of `residual_at`."""
    residual = residual_at(problem, u) * float(problem.noise_unit)
    return float(residual @ residual)


def is_real(value: Any) -> bool:
    """Whether a value is a real number or array, of Python, NumPy or JAX (also a traced one)."""
    return eqx.is_array_like(value) and not jnp.iscomplexobj(value)


def kind_of(value: Any) -> str:
    """Text on a value: the shape of a real array, else its type."""
    if is_real(value):
        return f"shape {jnp.shape(value)}"
    return "a complex number or array" if eqx.is_array_like(value) else f"a {type(value).__name__}"


def is_large(problem: Problem) -> bool:
    """Whether the Jacobian of all tests is too large for the memory (`MOST_ENTRIES`)."""
    return problem.data_rows * problem.free.size > MOST_ENTRIES


def on_some_lines(problem: Problem, most: float) -> tuple[Problem, Int[np.ndarray, "k"]]:
    """The problem on a share of the frequency lines of each test, evenly spaced, and the rows of data that it keeps.

    Args:
        problem: the problem.
        most: number of rows of data that are kept, about.
    """
    rows, share = np.arange(problem.data_rows), most / problem.data_rows
    if share >= 1.0:
        return problem, rows
    tests, kept = list[Test](), list[np.ndarray]()
    for own, test in zip(problem.row_slices, problem.tests, strict=True):
        some, index = (test, rows[: test.rows]) if test.lines is None else test.lines.sample(share)
        tests.append(some)
        kept.append(own.start + index)
    return dataclasses.replace(problem, tests=tuple(tests)), np.concatenate(kept)


def residual_at(problem: Problem, u: Float[np.ndarray, "d"]) -> Float[np.ndarray, "m"]:
    """Residual in units of the noise; unless the problem is large, by a program that every fit compiles anyway."""
    if not is_large(problem):
        return np.asarray(final_state(problem, jax.device_put(u))[0])
    pairs = zip(problem.tests, problem.views, strict=True)
    tests = (state_of_test(problem, test, u, view, derivatives=False) for test, view in pairs)
    return np.concatenate([*tests, _prior(problem, u)[0]])


def linearized(problem: Problem, u: Float[np.ndarray, "d"]) -> tuple[np.ndarray, Jacobian, np.ndarray]:
    """`final_state` in NumPy; the Jacobian of a large problem is a `JacobianByTest`."""
    if is_large(problem):
        return residual_at(problem, u), JacobianByTest(problem, u), np.asarray(problem.stated_variances())
    residual, jacobian, stated_variances = final_state(problem, jax.device_put(u))
    return np.asarray(residual), np.asarray(jacobian), np.asarray(stated_variances)


def compressed(problem: Problem, u: Float[np.ndarray, "d"]) -> tuple[Float[np.ndarray, "k"], Float[np.ndarray, "k d"]]:
    """Residual and Jacobian in units of the noise, rotated to at most d + 1 rows: an equivalent problem."""

    def blocks() -> Iterator[tuple[Any, Any]]:
        if not is_large(problem):
            yield final_state(problem, jax.device_put(u))[:2]
            return
        pairs = zip(problem.tests, problem.views, strict=True)
        yield from (state_of_test(problem, test, u, view) for test, view in pairs)
        yield _prior(problem, u)

    factor = triangular_factor(np.column_stack([jacobian, residual]) for residual, jacobian in blocks())
    return factor[:, -1], factor[:, :-1]


class JacobianByTest:
    """Jacobian of a large problem at u in units of the noise; the rows of a test are computed at each access."""

    def __init__(self, problem: Problem, u: Float[np.ndarray, "d"]):
        """Store the problem and u, without any computation."""
        self._problem, self._u = problem, u
        rows = problem.data_rows + (0 if problem.prior is None else u.size)
        self.shape = rows, u.size
        self.blocks = (*problem.row_slices, slice(problem.data_rows, rows))

    def __getitem__(self, rows: slice) -> Float[np.ndarray, "k d"]:
        """The rows of a test, or of the prior."""
        k = self.blocks.index(slice(*rows.indices(self.shape[0])[:2]))
        if k == len(self._problem.tests):
            return _prior(self._problem, self._u)[1]
        return state_of_test(self._problem, self._problem.tests[k], self._u, self._problem.views[k])[1]


def _prior(problem: Problem, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Residual and Jacobian of the prior; without rows if there is none."""
    if problem.prior is None:
        return np.zeros(0), np.zeros((0, u.size))
    return np.asarray(problem.prior_residual(jax.device_put(u))), np.asarray(problem.prior.rows)


@compiled
def _state_of(
    model: Model, free: FreeParameters, test: Test, entries: Any, view: AffineView | None, u: Array, derivatives: bool
) -> Any:
    def residual(u: Array) -> Array:
        return _residual_of(model, free, test, entries, view, free.values(u))

    return residual_and_jacobian(residual, u) if derivatives else residual(u)


def _residual_of(
    model: Model, free: FreeParameters, test: Test, entries: Any, view: AffineView | None, values: Array
) -> Array:
    described = with_free_values(test, entries, values)
    return described.residual(described.view(free.apply(model, values)) if view is None else view(values))


@compiled
def final_state(problem: Problem, u: Float[Array, "d"]) -> tuple[Array, Array, Array]:
    """Residual and Jacobian at the end of a fit, in units of the noise, and the weight of each row."""
    value, jacobian = residual_and_jacobian(problem.residual, u)
    return value / problem.noise_unit, jacobian / problem.noise_unit, jnp.asarray(problem.stated_variances())


def state_of_test(
    problem: Problem, test: Test, u: np.ndarray, view: AffineView | None = None, derivatives: bool = True
) -> Any:
    """Residual of a test, fitted or held out, with its Jacobian by u if `derivatives`, by automatic differentiation.

    Tests of one form share a program. `view` is the affine view of the test; None where it has none.
    """
    entries = problem.free.entries_of(own_names(test))
    parts = problem.model, problem.free, without_name(test), entries, view, jax.device_put(u)
    return jax.tree.map(np.asarray, _state_of(*parts, derivatives))
