"""All tests of a study as one least-squares problem in the free parameters."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmb.compiled import compiled
from jaxmb.identify.estimation.least_squares import residual_and_jacobian
from jaxmb.identify.experiments.test import AffineView, Test, View
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.linalg import FEW, on_host
from jaxmb.machine.build import Model
from jaxmb.mechanics.loops import moving_independently


class Prior(eqx.Module):
    """Gaussian knowledge of the free parameters before the tests, in the coordinates u."""

    mean: Float[Array, "d"]
    std: Float[Array, "d"]
    """inf where nothing is known."""


class Problem(eqx.Module):
    """Residuals of all tests and of the prior where there is one, as functions of u.

    The cost is eq. 22 of Huynh et al. 2020, sum W |log Hs - log H|^2. Tests with another noise than the first FRF test
    count by the square of the ratio of the two, so that weights follow from noise; what is no FRF counts by its
    squared error over its variance, times that first noise's variance.
    """

    model: Model
    free: FreeParameters
    tests: tuple[Test, ...]
    views: tuple[AffineView | None, ...]
    """Of each test as an affine function of the free values, where it is one."""
    prior: Prior | None
    noise_unit: Float[Array, ""]

    def residual(self, u: Float[Array, "d"]) -> Float[Array, "m"]:
        """Residuals of all tests, then of the prior; their squares sum to the cost plus the prior's."""
        parts = self.measured(self.free.values(u))
        if self.prior is not None:
            parts.append(self.prior_residual(u))
        return jnp.concatenate(parts) * self.noise_unit

    def objective(self, u: Float[Array, "d"]) -> Float[Array, ""]:
        """What the fit minimizes: the sum of squares of `residual`."""
        return jnp.sum(self.residual(u) ** 2)

    def cost(self, u: Float[Array, "d"]) -> Float[Array, ""]:
        """The cost of eq. 22, the prior left out."""
        return jnp.sum(jnp.concatenate(self.measured(self.free.values(u))) ** 2) * self.noise_unit**2

    def prior_residual(self, u: Float[Array, "d"]) -> Float[Array, "d"]:
        """Distance to the prior in its standard deviations; 0 where there is no prior."""
        return jnp.zeros(0) if self.prior is None else (u - self.prior.mean) / self.prior.std

    def row_weights(self) -> Float[Array, "m"] | Float[np.ndarray, "m"]:
        """Variance of each residual under the stated noise, over the square of its scale."""
        parts = [test.row_weights() for test in self.tests]
        if self.prior is not None:
            std = on_host(self.prior.std)
            parts.append(std.__array_namespace__().isfinite(std).astype(float))
        xp = np if all(isinstance(part, np.ndarray) for part in parts) else jnp
        return xp.concatenate(parts)

    @property
    def rows(self) -> tuple[slice, ...]:
        """Rows of each test; those of the prior are the last ones."""
        ends = np.cumsum([0, *(test.rows for test in self.tests)]).tolist()
        return tuple(slice(a, b) for a, b in itertools.pairwise(ends))

    @property
    def one_by_one(self) -> bool:
        """Whether several points are better taken one after the other: a machine with many small motions is solved in
        the way that its numbers ask for, and several at once would be solved in all ways."""
        return len(moving_independently(self.model)) > FEW

    @property
    def data_rows(self) -> int:
        """Number of rows of all tests."""
        return sum(test.rows for test in self.tests)

    def view(self, number: int, values: Float[Array, "d"] | np.ndarray) -> View:
        """What a test sees of the machine at physical values; NumPy in, NumPy out where the view is affine."""
        affine = self.views[number]
        if affine is not None:
            return affine(values)
        return self.tests[number].view(self.free.apply(self.model, on_host(values)))

    def measured(self, values: Float[Array, "d"] | Float[Array, "t d"]) -> list[Float[Array, "m"]]:
        """Residual of each test in units of its noise, at the same physical values in all of them or at its own."""
        values = jnp.asarray(values)  # tests of one form are traced together, where NumPy cannot be
        parts: list[Array] = [jnp.zeros(0)] * len(self.tests)
        for members in alike(self.tests, self.views):
            mine = values[jnp.asarray(members)] if values.ndim == 2 else values
            for k, part in zip(members, self._together(members, mine), strict=True):
                parts[k] = part
        return parts

    def _together(self, members: Sequence[int], values: Array) -> Sequence[Array]:
        """Residuals of tests of one form: one program for all postures."""
        tests, views = [self.tests[k] for k in members], [self.views[k] for k in members]
        if len(members) == 1:
            own = values[0] if values.ndim == 2 else values
            seen = tests[0].view(self.free.apply(self.model, own)) if views[0] is None else views[0](own)
            return [test_at(tests[0], self.free, own).residual(seen)]
        entries = _together_free(self.free, tests)
        test = jax.tree.map(lambda *x: jnp.stack(x), *(nameless(t) for t in tests))
        axis = 0 if values.ndim == 2 else None
        if views[0] is None:

            def seen_by(t: Test, e: Any, v: Array) -> Array:
                return with_free_numbers(t, e, v).residual(t.view(self.free.apply(self.model, v)))

            return list(self._each(seen_by, (0, 0, axis))(test, entries, values))
        affine = jax.tree.map(lambda *x: jnp.stack(x), *views)

        def seen_affinely(t: Test, e: Any, s: AffineView, v: Array) -> Array:
            return with_free_numbers(t, e, v).residual(s(v))

        return list(self._each(seen_affinely, (0, 0, 0, axis))(test, entries, affine, values))

    def _each(self, function: Callable[..., Array], axes: tuple[int | None, ...]) -> Callable[..., Array]:
        """`jax.vmap`, or the same one after the other (`one_by_one`)."""
        if not self.one_by_one:
            return jax.vmap(function, axes)

        def mapped(*args: Any) -> Array:
            def one(some: list[Any]) -> Array:
                left = iter(some)
                return function(*(next(left) if axis == 0 else arg for arg, axis in zip(args, axes, strict=True)))

            return jax.lax.map(one, [arg for arg, axis in zip(args, axes, strict=True) if axis == 0])

        return mapped


def test_at(test: Test, free: FreeParameters, values: Float[Array, "d"] | Float[np.ndarray, "d"]) -> Test:
    """The test with those of its own numbers that are free at physical values of the free parameters."""
    return with_free_numbers(test, free.entries_of(test.number_names), values)


def with_free_numbers(
    test: Test, entries: Int[Array, "k"] | Int[np.ndarray, "k"] | None, values: Float[Array, "d"] | np.ndarray
) -> Test:
    """`test_at` for a test of any name.

    Args:
        test: the test.
        entries: of the free parameters, behind its numbers (`FreeParameters.entries_of`).
        values: of the free parameters.
    """
    if entries is None:
        return test
    xp = values.__array_namespace__()
    return test.with_numbers(xp.where(entries >= 0, values[entries], test.numbers))


def _together_free(free: FreeParameters, tests: Sequence[Test]) -> Int[np.ndarray, "t k"] | None:
    """`FreeParameters.entries_of` for tests of one form; None where nothing of any of them is free."""
    each = [free.entries_of(test.number_names) for test in tests]
    if all(entries is None for entries in each):
        return None
    return np.array([np.full(len(t.number_names), -1) if e is None else e for t, e in zip(tests, each, strict=True)])


def nameless(test: Test) -> Test:
    """The test without its name, which is all that tells the form of two tests alike apart."""
    return dataclasses.replace(test, name="")


def alike(tests: Sequence[Test], views: Sequence[AffineView | None]) -> list[list[int]]:
    """Numbers of the tests that have the same form: kind, sizes, points, and entries of the tangent that move."""
    groups: dict[Any, list[int]] = {}
    for k, (test, affine) in enumerate(zip(tests, views, strict=True)):
        leaves, structure = jax.tree.flatten((nameless(test), affine))
        groups.setdefault((structure, tuple(jnp.shape(leaf) for leaf in leaves)), []).append(k)
    return list(groups.values())


def make_problem(model: Model, free: FreeParameters, tests: Sequence[Test], prior: Prior | None = None) -> Problem:
    """The least-squares problem of a study.

    Where what a test sees is an affine function of the free values, it is computed once: exact, and the kinematics
    leave the inner loop.
    """
    views = [test.affine_view(model, free) for test in tests]
    joined = [
        None if v is None else v.joined([w for w in views if w is not None and type(w) is type(v)]) for v in views
    ]
    return Problem(model, free, tuple(tests), tuple(joined), prior, noise_unit(tests))


def noise_unit(tests: Sequence[Test]) -> Float[Array, ""]:
    """Standard deviation in units of which the cost counts: that of the first FRF test, 1 where there is none."""
    nominal = (test.nominal_noise for test in tests)
    return jax.device_put(np.asarray(next((level for level in nominal if level is not None), 1.0)))


def with_tests(problem: Problem, tests: Sequence[Test]) -> Problem:
    """The problem with other data of the same tests, in units of their noise."""
    return dataclasses.replace(problem, tests=tuple(tests), noise_unit=noise_unit(tests))


def objective_at(problem: Problem, u: Float[np.ndarray, "d"]) -> float:
    """The objective at u, by the program of `final_state`, which every fit compiles anyway."""
    residual = np.asarray(final_state(problem, jax.device_put(u))[0]) * float(problem.noise_unit)
    return float(residual @ residual)


@compiled
def final_state(problem: Problem, u: Float[Array, "d"]) -> tuple[Array, Array, Array]:
    """Residual and Jacobian at the end of a fit, in units of the noise, and the weight of each row."""
    value, jacobian = residual_and_jacobian(problem.residual, u)
    return value / problem.noise_unit, jacobian / problem.noise_unit, jnp.asarray(problem.row_weights())
