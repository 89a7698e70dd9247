"""Small motions of a machine about a posture, as the sensors and shakers of a test see them."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.linalg import Support
from jaxmb.machine.build import Model
from jaxmb.mechanics.equilibrium import equilibrium_or_nan
from jaxmb.mechanics.kinematics import whole
from jaxmb.mechanics.tangent import LinearizeAt, Tangent, motion_coordinates, motion_stiffness, tangent_about
from jaxmb.response.frf import response_rows
from jaxmb.response.frf_kind import Point
from jaxmb.response.modal import check_mass_matrix, giving_way, spring_matrices
from jaxmb.response.sensor import tilt_rows

LINEAR_LEAVES = frozenset({
    "stiffness", "damping", "spring_stiffness", "spring_damping", "rotor_inertia", "mass", "first_moment", "inertia",
    "young_modulus", "shear_modulus", "density",
})  # fmt: skip
"""Leaves of the model in which the equations of motion, and so the tangent at a fixed posture, are linear."""
ROUNDING = 1e-13
"""Change of a matrix over the whole range of a value, beside the matrix itself, that is taken for rounding."""


class MotionView(eqx.Module):
    """What a test at one posture sees of a machine: m coordinates of small motions."""

    tangent: Tangent
    stiffness: Float[Array, "m"] | Float[Array, "s m m"]
    """Stiffness of each coordinate's own spring; where there are gears, springs between frames or beams, what each of
    them adds to the stiffness matrix (`spring_matrices`)."""
    output_rows: Float[Array, "o m"]
    input_rows: Float[Array, "i m"] | None
    """None where the inputs are the outputs."""
    giving_way: tuple[bool, ...] = eqx.field(static=True)
    """See `giving_way`."""
    tilt_rows: Float[Array, "o m"] | None = None
    """What gravity adds to the accelerations at the outputs; None where the sensors do not feel it."""
    support: Support | None = eqx.field(static=True, default=None)
    """Entries of the tangent that the free parameters move, where that is known."""


@compiled
def motion_view(
    model: Model,
    q: Float[Array, "n"],
    at: LinearizeAt,
    outputs: tuple[Point, ...],
    inputs: tuple[Point, ...],
    feels_gravity: bool = False,
) -> MotionView:
    """What a test at posture q sees of a machine: its tangent there, and the rows of sensors and shakers.

    NaN where the test is linearized at an equilibrium that does not exist, so that a fit counts it and goes elsewhere.
    """
    point = whole(model, q) if at == "posture" else equilibrium_or_nan(model, q)
    output_rows = response_rows(model, point, outputs)
    input_rows = None if inputs == outputs else response_rows(model, point, inputs)
    tilt = tilt_rows(model, point, outputs) if feels_gravity else None
    tangent = tangent_about(model, q, point, at)
    if at == "equilibrium":  # some tangents do not depend on the point, and would look right without one
        there = jnp.all(jnp.isfinite(point))
        tangent = jax.tree.map(lambda part: jnp.where(there, part, jnp.nan), tangent)
    coupled = model.springs or model.motors or model.beams or model.following
    stiffness = spring_matrices(model, q, point) if coupled else motion_stiffness(model)
    return MotionView(tangent, stiffness, output_rows, input_rows, giving_way(model), tilt)


def check_motion(view: MotionView, names: Sequence[str]) -> None:
    """Raise ValueError where a test cannot see a machine: no equilibrium, or a motion without mass.

    Args:
        view: of the machine.
        names: of the coordinates of its small motions.
    """
    if not np.isfinite(np.asarray(view.tangent.stiffness)).all():
        raise ValueError("no static equilibrium was found: a loaded coordinate has too little stiffness to hold it")
    check_mass_matrix(np.asarray(view.tangent.mass), names)


class AffineMotion(eqx.Module):
    """A `MotionView` as an affine function of the free values: its value at zero and its slopes."""

    base: MotionView
    slope: MotionView

    def __call__(self, values: Float[Array, "d"]) -> MotionView:
        """The view at physical values, exactly; NumPy in, NumPy out."""
        numpy = isinstance(values, np.ndarray)

        def moved(base: Array, slope: Array) -> Any:
            change = (np if numpy else jnp).einsum("...d,d->...", slope, values)
            return np.asarray(base) + change if numpy else base + change

        tangent = jax.tree.map(moved, self.base.tangent, self.slope.tangent)
        stiffness = moved(self.base.stiffness, self.slope.stiffness)
        return dataclasses.replace(self.base, tangent=tangent, stiffness=stiffness)

    def joined(self, others: "Sequence[AffineMotion]") -> "AffineMotion":
        """The same with the entries that move in any of the others."""
        known = [view.base.support for view in (self, *others) if view.base.support is not None]
        support = tuple(sorted({entry for entries in known for entry in entries}))
        return dataclasses.replace(self, base=dataclasses.replace(self.base, support=support))


def affine_motion(
    model: Model, free: FreeParameters, q: Float[Array, "n"], at: LinearizeAt, outputs: tuple[Point, ...],
    inputs: tuple[Point, ...], feels_gravity: bool = False,
) -> AffineMotion | None:  # fmt: skip
    """`motion_view` as an affine function of the free values, with the entries of the tangent that they move.

    None where it is not affine: away from the posture itself, or where a free parameter enters otherwise. The function
    is affine to the last bit but rounding, so its slopes are differences, taken over the whole range of each value: no
    differentiation to compile, and no error but that of the sums themselves.
    """
    shears = "timoshenko" in model.beam_theory  # whose stiffness is a fraction of both moduli
    if at != "posture" or shears or not all(place.leaf in LINEAR_LEAVES for place in free.targets):
        return None
    size = free.size
    base = motion_view(free.apply(model, np.zeros(size)), q, at, outputs, inputs, feels_gravity)
    if not size:
        return None
    columns = []
    reach = np.maximum(np.abs(np.asarray(free.lower_value)), np.abs(np.asarray(free.upper_value)))
    for i, length in enumerate(reach):
        there = motion_view(free.apply(model, length * np.eye(size)[i]), q, at, outputs, inputs, feels_gravity)
        slope = jax.tree.map(lambda b, t, r=length: (np.asarray(t) - np.asarray(b)) / r, base, there)
        columns.append(dataclasses.replace(slope, tangent=_without_rounding(slope.tangent, there.tangent, length)))
    slope = jax.tree.map(lambda *c: jax.device_put(np.stack(c, axis=-1)), *columns)
    parts = [np.abs(np.asarray(part)).sum(axis=-1) for part in jax.tree.leaves(slope.tangent)]
    moved = np.sum(parts, axis=0)
    support = tuple((int(i), int(j)) for i, j in zip(*np.nonzero(moved), strict=True))
    return AffineMotion(dataclasses.replace(base, support=support), slope)


def _without_rounding(slope: Tangent, there: Tangent, length: float) -> Tangent:
    """Slopes of a tangent with what rounding leaves of those that are zero set to zero.

    A value that does not act would otherwise be driven through its whole range by rounding, and not be reported.
    """

    def cleaned(change: np.ndarray, matrix: Array) -> np.ndarray:
        size = np.sqrt(np.abs(np.diagonal(np.asarray(matrix))))
        return np.where(np.abs(change) * length > ROUNDING * np.outer(size, size), change, 0.0)

    return jax.tree.map(cleaned, slope, there)


class PostureTest(Test):
    """A test at one posture, which sees the machine's small motions there. Abstract."""

    q: eqx.AbstractVar[Float[Array, "n"]]
    at: eqx.AbstractVar[LinearizeAt]
    outputs: eqx.AbstractVar[tuple[Point, ...]]
    inputs: eqx.AbstractVar[tuple[Point, ...]]

    def view(self, model: Model) -> MotionView:
        """Small motions of the machine at the test's posture."""
        return motion_view(model, self.q, self.at, self.outputs, self.inputs, self.feels_gravity)

    def check(self, model: Model) -> None:
        """Raise ValueError where a machine has no equilibrium at the posture, or a motion without mass."""
        check_motion(self.view(model), motion_coordinates(model))

    def affine_view(self, model: Model, free: FreeParameters) -> AffineMotion | None:
        """`view` as an affine function of the free values; None where it is not one."""
        return affine_motion(model, free, self.q, self.at, self.outputs, self.inputs, self.feels_gravity)

    @property
    def feels_gravity(self) -> bool:
        """Whether its sensors feel gravity as they tilt."""
        return False

    @property
    def posture(self) -> Float[Array, "n"]:
        """Posture of the test."""
        return self.q

    @property
    def linearized_at(self) -> LinearizeAt:
        """Where small motions are taken: at the posture, or at the equilibrium under gravity."""
        return self.at

    def tangent(self, view: MotionView) -> Tangent:
        """Small motions of the machine at the test's posture."""
        return view.tangent
