"""All tests of a study as one least-squares problem in the free parameters."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.identify.experiments.deflection_test import LoadTests
from jaxmb.identify.experiments.frf_test import FrfTest
from jaxmb.identify.experiments.motion import Scene, scene
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.machine.build import Model
from jaxmb.mechanics.tangent import Tangent

LINEAR_LEAVES = frozenset({
    "stiffness", "damping", "spring_stiffness", "spring_damping", "rotor_inertia", "mass", "first_moment", "inertia",
})  # fmt: skip
"""Leaves of the model in which the equations of motion, and so the tangent at a fixed posture, are linear."""


class Prior(eqx.Module):
    """Gaussian knowledge of the free parameters before the tests, in the coordinates u."""

    mean: Float[Array, "d"]
    std: Float[Array, "d"]
    """inf where nothing is known."""


class LinearScene(eqx.Module):
    """A scene that is an affine function of the free values: its value at zero and its slopes."""

    base: Scene
    slope: Scene

    def __call__(self, values: Float[Array, "d"]) -> Scene:
        """The scene at physical values, exactly."""
        t, s = self.base.tangent, self.slope.tangent
        tangent = jax.tree.map(lambda b, c: b + jnp.einsum("...d,d->...", c, values), t, s)
        stiffness = self.base.stiffness + self.slope.stiffness @ values
        return Scene(tangent, stiffness, self.base.output_rows, self.base.input_rows, self.base.support)


class Problem(eqx.Module):
    """Residuals of all tests, of the deflections and of the prior where there are such, as functions of u.

    The cost is eq. 22 of Huynh et al. 2020, sum W |log Hs - log H|^2. Tests with another noise than the first FRF test
    count by the square of the ratio of the two, so that weights follow from noise; what is no FRF counts by its
    squared error over its variance, times that first noise's variance.
    """

    model: Model
    free: FreeParameters
    tests: tuple[Test, ...]
    scenes: tuple[LinearScene | None, ...]
    loads: LoadTests | None
    """Deflections under loads."""
    prior: Prior | None
    noise_unit: Float[Array, ""]

    def residual(self, u: Float[Array, "d"]) -> Float[Array, "m"]:
        """Residuals of all tests, of the loads, then of the prior; their squares sum to the cost plus the prior's."""
        parts = self._measured(u)
        if self.prior is not None:
            parts.append((u - self.prior.mean) / self.prior.std)
        return jnp.concatenate(parts) * self.noise_unit

    def objective(self, u: Float[Array, "d"]) -> Float[Array, ""]:
        """What the fit minimizes: the sum of squares of `residual`."""
        return jnp.sum(self.residual(u) ** 2)

    def cost(self, u: Float[Array, "d"]) -> Float[Array, ""]:
        """The cost of eq. 22, the prior left out."""
        return jnp.sum(jnp.concatenate(self._measured(u)) ** 2) * self.noise_unit**2

    def row_weights(self) -> Float[Array, "m"]:
        """Variance of each residual over the square of its scale: W for FRFs and loads, 1 for all else."""
        parts = [test.row_weights() for test in self.tests]
        if self.loads is not None:
            parts.append(self.loads.weight)
        if self.prior is not None:
            parts.append(jnp.isfinite(self.prior.std).astype(float))
        return jnp.concatenate(parts)

    def _measured(self, u: Float[Array, "d"]) -> list[Array]:
        """Residual of each test, and of the loads, in units of their noise."""
        values = self.free.values(u)
        model = self.free.apply(self.model, values)
        parts: list[Array] = [jnp.zeros(0)] * len(self.tests)
        for members in alike(self.tests, self.scenes):
            for k, part in zip(members, self._together(members, model, values), strict=True):
                parts[k] = part
        if self.loads is not None:
            parts.append(self.loads.residual(model))
        return parts

    def _together(self, members: Sequence[int], model: Model, values: Float[Array, "d"]) -> Sequence[Array]:
        """Residuals of tests of one form: one program for all postures."""
        tests, scenes = [self.tests[k] for k in members], [self.scenes[k] for k in members]
        if len(members) == 1:
            seen = scene(tests[0], model) if scenes[0] is None else scenes[0](values)
            return [tests[0].residual(seen)]
        test = jax.tree.map(lambda *x: jnp.stack(x), *(nameless(t) for t in tests))
        if scenes[0] is None:
            return list(jax.vmap(lambda t: t.residual(scene(t, model)))(test))
        linear = jax.tree.map(lambda *x: jnp.stack(x), *scenes)
        return list(jax.vmap(lambda t, s: t.residual(s(values)))(test, linear))


def nameless(test: Test) -> Test:
    """The test without its name, which is all that tells the form of two tests alike apart."""
    return dataclasses.replace(test, name="")


def alike(tests: Sequence[Test], scenes: Sequence[LinearScene | None]) -> list[list[int]]:
    """Numbers of the tests that have the same form: kind, sizes, points, and entries of the tangent that move."""
    groups: dict[Any, list[int]] = {}
    for k, (test, linear) in enumerate(zip(tests, scenes, strict=True)):
        leaves, structure = jax.tree.flatten((nameless(test), linear))
        groups.setdefault((structure, tuple(jnp.shape(leaf) for leaf in leaves)), []).append(k)
    return list(groups.values())


def make_problem(
    model: Model,
    free: FreeParameters,
    tests: Sequence[Test],
    loads: LoadTests | None = None,
    prior: Prior | None = None,
) -> Problem:
    """The least-squares problem of a study.

    Where every free parameter enters the equations of motion linearly and a test is linearized at a fixed posture, its
    tangent is precomputed as an affine function of the values: exact, and the kinematics leave the inner loop.
    """
    linear = all(place.leaf in LINEAR_LEAVES for place in free.targets)
    scenes = [linear_scene(test, model, free) if linear and test.at == "posture" else None for test in tests]
    noise = [test.nominal_std for test in tests if isinstance(test, FrfTest)]
    unit = noise[0] if noise else jnp.asarray(1.0)
    return Problem(model, free, tuple(tests), with_one_support(scenes), loads, prior, unit)


def with_one_support(scenes: Sequence[LinearScene | None]) -> tuple[LinearScene | None, ...]:
    """The scenes with the entries that move in any of them, so that tests of one form stay of one form."""
    known = [s.base.support for s in scenes if s is not None and s.base.support is not None]
    support = tuple(sorted({entry for entries in known for entry in entries}))
    return tuple(
        None if s is None else dataclasses.replace(s, base=dataclasses.replace(s.base, support=support)) for s in scenes
    )


ROUNDING = 1e-13
"""Change of a matrix over the whole range of a value, beside the matrix itself, that is taken for rounding."""


def linear_scene(test: Test, model: Model, free: FreeParameters) -> LinearScene:
    """What a test sees as an affine function of the free values, with the entries of the tangent that they move.

    The function is affine to the last bit but rounding, so its slopes are differences, taken over the whole range of
    each value: no differentiation to compile, and no error but that of the sums themselves.
    """
    base = scene(test, free.apply(model, jnp.zeros(free.size)))
    reach = np.maximum(np.abs(free.lower_value), np.abs(free.upper_value))
    columns = []
    for i, length in enumerate(reach):
        there = scene(test, free.apply(model, jnp.zeros(free.size).at[i].set(length)))
        slope = jax.tree.map(lambda b, t, r=length: (np.asarray(t) - np.asarray(b)) / r, base, there)
        columns.append(dataclasses.replace(slope, tangent=_without_rounding(slope.tangent, there.tangent, length)))
    slope = jax.tree.map(lambda *c: jnp.asarray(np.stack(c, axis=-1)), *columns)
    parts = [np.abs(np.asarray(part)).sum(axis=-1) for part in jax.tree.leaves(slope.tangent)]
    moved = np.sum(parts, axis=0)
    support = tuple((int(i), int(j)) for i, j in zip(*np.nonzero(moved), strict=True))
    return LinearScene(dataclasses.replace(base, support=support), slope)


def _without_rounding(slope: Tangent, there: Tangent, length: float) -> Tangent:
    """Slopes of a tangent with what rounding leaves of those that are zero set to zero.

    A value that does not act would otherwise be driven through its whole range by rounding, and not be reported.
    """

    def cleaned(change: np.ndarray, matrix: Array) -> np.ndarray:
        size = np.sqrt(np.abs(np.diagonal(np.asarray(matrix))))
        return np.where(np.abs(change) * length > ROUNDING * np.outer(size, size), change, 0.0)

    return jax.tree.map(cleaned, slope, there)
