"""Linearized motion of a machine about a posture, as seen by the sensors and shakers of a test."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import eigh

from jaxmb.compiled import compiled
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.linalg.responses import Support
from jaxmb.machine.build import Model
from jaxmb.mechanics.equilibrium import equilibrium_or_nan
from jaxmb.mechanics.kinematics import whole
from jaxmb.mechanics.tangent import LinearizeAt, Tangent, motion_stiffness, tangent_about, with_loaded_stiffness
from jaxmb.response.frf import response_rows, tilt_rows
from jaxmb.response.frf_kind import Point
from jaxmb.response.modal import check_mass_matrix, is_unlocked, spring_matrices
from jaxmb.response.reduction import error_of_basis, interface_basis, reduced_tangent


class MotionView(eqx.Module):
    """The view of a machine by a test at one posture, in m small-amplitude coordinates."""

    tangent: Tangent
    stiffness: Float[Array, "m"] | Float[Array, "s m m"] | None
    """Stiffness of each coordinate's own spring; with gears, springs between frames or beams, the contribution of each
    to the stiffness matrix (`spring_matrices`). None for tests that do not need it."""
    output_rows: Float[Array, "o m"]
    input_rows: Float[Array, "i m"] | None
    """None where the inputs are the outputs."""
    is_unlocked: tuple[bool, ...] = eqx.field(static=True)
    """See `is_unlocked`."""
    tilt_rows: Float[Array, "o m"] | None = None
    """Contribution of gravity to the accelerations at the outputs, by tilt; None where the sensors do not feel it."""
    support: Support | None = eqx.field(static=True, default=None)
    """Entries of the tangent that depend on the free parameters; None where unknown."""


@compiled
def motion_view(
    model: Model,
    q: Float[Array, "n"],
    at: LinearizeAt,
    outputs: tuple[Point, ...],
    inputs: tuple[Point, ...],
    feels_gravity: bool = False,
    shares_energy: bool = False,
    weightless: bool = False,
) -> MotionView:
    """The view of a machine at posture q: its tangent there, and the Jacobian rows of sensors and forces.

    With the stiffness of each spring if `shares_energy`. NaN where the equilibrium of linearization does not exist, so
    that a fit rejects the step. Weightless: see `tangent_about`.
    """
    model = with_loaded_stiffness(model, q) if at == "posture" else model
    point = whole(model, q) if at == "posture" else equilibrium_or_nan(model, q)
    output_rows = response_rows(model, point, outputs)
    input_rows = None if inputs == outputs else response_rows(model, point, inputs)
    tilt = tilt_rows(model, point, outputs) if feels_gravity else None
    tangent = tangent_about(model, q, point, weightless)
    if at == "equilibrium":  # some tangents do not depend on the point, and would look valid without an equilibrium
        there = jnp.all(jnp.isfinite(point))
        tangent = jax.tree.map(lambda part: jnp.where(there, part, jnp.nan), tangent)
    coupled, stiffness = model.springs or model.motors or model.beams or model.following, None
    if shares_energy:
        stiffness = spring_matrices(model, q, point) if coupled else motion_stiffness(model)
    return MotionView(tangent, stiffness, output_rows, input_rows, is_unlocked(model), tilt)


def check_motion(view: MotionView, names: Sequence[str]) -> None:
    """Raise ValueError where the linearized motion is undefined: no equilibrium, or a singular mass matrix.

    Args:
        view: of the machine.
        names: of its small-amplitude coordinates.
    """
    if not np.isfinite(np.asarray(view.tangent.stiffness)).all():
        raise ValueError("no static equilibrium was found: a loaded coordinate has too little stiffness to hold it")
    check_mass_matrix(np.asarray(view.tangent.mass), names)


MANY = 80
"""Degrees of freedom above which a view is reduced."""
LARGEST_INTERFACE = 0.4
"""Largest interface, over the degrees of freedom: with more directions a reduction saves little."""
MOST_POINTS = 12
"""Points that are taken into the interface; more are shapes of modes, which need no displacements of their own."""
SMALLEST_EIGENVALUE = 1e-9
"""Eigenvalue of a slope over its largest one, below which it is rounding."""
LARGEST_FREQUENCY_ERROR = 1e-4
"""Largest relative error of a natural frequency of the reduced machine, where there are no points or too many."""
CHECKED_LOSS = 0.02
"""Loss factor at which the error of a reduction is determined."""
LARGEST_ERROR = 1e-3
"""Largest error of a response of the reduced machine, over the largest response between the same points."""


def reducing_basis(
    base: MotionView, slopes: Sequence[MotionView], free: FreeParameters, highest_hz: float
) -> Float[np.ndarray, "m r"] | None:
    """Reduction basis that preserves the motion seen by a test for all free values within their bounds.

    Free springs, dampers and masses, and the test's points where they are few, form the interface (see
    `interface_basis`). None where the machine has few degrees of freedom, or where the reduction error is too large at
    the bounds of the free values or halfway between them: error of responses, or of natural frequencies where there are
    no points or many.

    Args:
        base: view with all free values at zero.
        slopes: derivative of the view by each of them.
        free: the free parameters.
        highest_hz: up to which the test asks for responses or modes.
    """
    size = base.tangent.mass.shape[0]
    if size <= MANY:
        return None
    outputs = np.asarray(base.output_rows)
    inputs = outputs if base.input_rows is None else np.asarray(base.input_rows)
    changes = [part for s in slopes for part in (s.tangent.mass, s.tangent.damping, s.tangent.stiffness)]
    directions = [directions_of_change(np.asarray(part)) for part in changes]
    # a change with an effect nearly everywhere is no interface; the error of the responses decides whether modes and
    # points suffice
    directions = [found for found in directions if found.shape[0] <= size // 10]
    points = [rows for rows in (inputs, outputs) if rows.shape[0] <= MOST_POINTS]
    interface = np.concatenate([*directions, *points, np.zeros((0, size))])
    if interface.shape[0] > LARGEST_INTERFACE * size:
        return None
    lower, upper = np.asarray(free.lower), np.asarray(free.upper)
    tangents = [_tangent_at(base, slopes, free.values(u)) for u in (0.5 * (lower + upper), lower, upper)]
    basis = interface_basis(np.asarray(tangents[0].mass), np.asarray(tangents[0].stiffness), interface, highest_hz)
    if 0 < inputs.shape[0] <= MOST_POINTS:
        errors = [error_of_basis(tangent, basis, outputs, inputs, highest_hz) for tangent in tangents]
        return basis if max(errors) <= LARGEST_ERROR else None
    errors = [_frequency_error(tangent, basis, highest_hz) for tangent in tangents]
    return basis if max(errors) <= LARGEST_FREQUENCY_ERROR else None


def reduced_view(view: MotionView, basis: Float[np.ndarray, "m r"]) -> MotionView:
    """The view, or its derivative, in the coordinates of a basis."""

    def seen(rows: Any) -> Any:
        return None if rows is None else jax.device_put(np.asarray(rows) @ basis)

    shares = None if view.stiffness is None else jax.device_put(basis.T @ np.asarray(view.stiffness) @ basis)
    return dataclasses.replace(
        view,
        tangent=reduced_tangent(view.tangent, basis),
        stiffness=shares,
        output_rows=seen(view.output_rows),
        input_rows=seen(view.input_rows),
        tilt_rows=seen(view.tilt_rows),
    )


def directions_of_change(change: Float[np.ndarray, "m m"]) -> Float[np.ndarray, "k m"]:
    """Eigenvectors of the non-zero part of a change of a symmetric matrix, as rows."""
    active = np.flatnonzero(np.any(change != 0.0, axis=0))
    found = np.zeros((active.size, change.shape[0]))
    if not active.size:
        return found
    values, vectors = np.linalg.eigh(change[np.ix_(active, active)])
    found[:, active] = vectors.T
    return found[np.abs(values) > SMALLEST_EIGENVALUE * np.abs(values).max()]


def _frequency_error(tangent: Tangent, basis: Float[np.ndarray, "m r"], highest_hz: float) -> float:
    """Largest relative error of the natural frequencies up to the highest."""
    mass, stiffness = np.asarray(tangent.mass), np.asarray(tangent.stiffness)
    exact = eigh(stiffness, mass, eigvals_only=True)
    exact = exact[exact <= (2.0 * np.pi * highest_hz) ** 2]
    near = eigh(basis.T @ stiffness @ basis, basis.T @ mass @ basis, eigvals_only=True)[: exact.size]
    return float(np.max(np.abs(near - exact) / np.abs(exact), initial=0.0)) / 2.0


def _tangent_at(base: MotionView, slopes: Sequence[MotionView], values: Float[np.ndarray, "d"]) -> Tangent:
    """The tangent at free values, with a uniform loss factor of 2 %, as loss factors may be free."""

    def evaluate(part: Any, *changes: Any) -> np.ndarray:
        return np.asarray(part) + sum(v * np.asarray(c) for v, c in zip(values, changes, strict=True))

    found = jax.tree.map(evaluate, base.tangent, *(s.tangent for s in slopes))
    return dataclasses.replace(found, structural=CHECKED_LOSS * np.asarray(found.stiffness))
