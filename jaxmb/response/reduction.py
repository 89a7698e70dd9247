"""Machines with many elastic coordinates, reduced to a few: modes, and static displacements of chosen points."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float
from scipy.linalg import cho_factor, cho_solve, eigh, null_space, qr

from jaxmb.compiled import compiled, takes_numbers
from jaxmb.machine.build import Model
from jaxmb.mechanics.tangent import LinearizeAt, Tangent, linearize, working_point
from jaxmb.response.frf import response_rows, tangent_receptance
from jaxmb.response.frf_kind import FrfKind, Point, check_kind, endpoints

MODES_TO = 4.0
"""Modes are kept up to so many times the highest frequency."""
CHECKED_LINES = 5
"""At which the whole machine is solved to state the error."""
DEPENDENT = 1e-9
"""Of a direction, that others do not say already: less is rounding."""
LEAST_HELD = 1e-3
"""Of the highest frequency: what swings more slowly is not held at all."""
LEAST_RESPONSE = 1e-3
"""Of the largest one of the same output or input: errors of smaller responses count beside that."""
ROUNDING = 1e-9
"""Of the largest response: what stays below it is none."""


class ReducedMotion(NamedTuple):
    """Small motions of a machine by few coordinates, as seen from some points."""

    tangent: Tangent
    """[r, r]."""
    output_rows: Float[Array, "o r"]
    input_rows: Float[Array, "i r"]
    basis: Float[np.ndarray, "m r"]
    """Small motion of the machine for each reduced coordinate."""
    error: float
    """Largest error of a response at some frequencies spread up to the highest, as a part of the largest response there
    of each output and input: the whole machine is solved at these."""


@takes_numbers("q")
def reduce_motion(
    model: Model,
    q: Float[Array, "n"],
    highest_hz: float,
    frame: str = "tool",
    outputs: Sequence[Point] | None = None,
    inputs: Sequence[Point] | None = None,
    at: LinearizeAt = "posture",
) -> ReducedMotion:
    """Small motions of a machine about a posture by `interface_basis`, the points being the interface.

    Args:
        model: the machine.
        q: posture [n], rad or m.
        highest_hz: up to which responses are asked for.
        frame: where outputs and inputs are x, y, z, unless they are given (see `frf`).
        outputs: sensors.
        inputs: forces.
        at: linearize at the "posture" or at the "equilibrium".

    Raises:
        ValueError: sizes, a frame or a direction is wrong, or highest_hz is not above 0.
    """
    if not (np.isfinite(highest_hz) and highest_hz > 0.0):
        raise ValueError(f"highest_hz is {highest_hz}, expected a frequency above 0")
    outputs, inputs = endpoints(frame, outputs, inputs)
    whole, place = linearize(model, q, at), working_point(model, q, at)
    rows = [np.asarray(response_rows(model, place, points)) for points in (outputs, inputs)]
    mass, stiffness = np.asarray(whole.mass), np.asarray(whole.stiffness)
    basis = interface_basis(mass, stiffness, np.concatenate(rows), float(highest_hz))
    error = error_of_basis(whole, basis, rows[0], rows[1], highest_hz)
    seen = [jax.device_put(each @ basis) for each in rows]
    return ReducedMotion(reduced_tangent(whole, basis), seen[0], seen[1], basis, error)


def error_of_basis(
    tangent: Tangent,
    basis: Float[np.ndarray, "m r"],
    outputs: Float[np.ndarray, "o m"],
    inputs: Float[np.ndarray, "i m"],
    highest_hz: float,
) -> float:
    """Largest error of the responses that a basis leaves, as `ReducedMotion.error`."""
    omega = jax.device_put(2.0 * np.pi * np.linspace(highest_hz / CHECKED_LINES, highest_hz, CHECKED_LINES))
    exact, near = (
        np.asarray(_receptance(t, omega, jax.device_put(seen[0]), jax.device_put(seen[1])))
        for t, seen in (
            (jax.tree.map(jax.device_put, tangent), (outputs, inputs)),
            (reduced_tangent(tangent, basis), (outputs @ basis, inputs @ basis)),
        )
    )
    largest = np.abs(exact).max(axis=0)
    least = LEAST_RESPONSE * np.minimum(largest.max(axis=1, keepdims=True), largest.max(axis=0, keepdims=True))
    return float(np.max(np.abs(near - exact) / np.maximum(largest, np.maximum(least, ROUNDING * largest.max()))))


@takes_numbers("frequency_hz", least=0.0)
def reduced_frf(
    reduced: ReducedMotion, frequency_hz: Float[Array, "f"], kind: FrfKind = "accelerance"
) -> Complex[Array, "f o i"]:
    """Frequency responses [freq, output, input] of a reduced machine, as `frf` of the whole one.

    Args:
        reduced: from `reduce_motion`.
        frequency_hz: frequencies [f], Hz, up to its highest one.
        kind: "receptance", "mobility" or "accelerance".

    Raises:
        ValueError: the kind is wrong, or there is a NaN or a frequency below 0.
    """
    derivatives = check_kind(kind)
    omega = 2.0 * jnp.pi * frequency_hz
    h = _receptance(reduced.tangent, omega, reduced.output_rows, reduced.input_rows)
    return h * ((1j * omega) ** derivatives)[:, None, None]


@compiled
def _receptance(t: Tangent, omega: Array, outputs: Array, inputs: Array) -> Array:
    return tangent_receptance(t, omega, outputs, inputs)


def interface_basis(
    mass: Float[np.ndarray, "m m"],
    stiffness: Float[np.ndarray, "m m"],
    interface: Float[np.ndarray, "p m"],
    highest_hz: float,
) -> Float[np.ndarray, "m r"]:
    """Basis of small motions: static displacements under forces on an interface, and modes.

    The modes are undamped ones up to four times the highest frequency; the displacements stand for all above. The
    columns are combined so that each of the first ones moves one direction of the interface by 1, and no other column
    moves it: springs, dampers and masses that act on the interface alone stay entries of their own, and the basis is
    nearly as good for any value of them. With no interface it is modal truncation.

    Args:
        mass: M [m, m].
        stiffness: K [m, m].
        interface: directions, rows; what follows from others is left out.
        highest_hz: up to which motions are asked for.

    Source: residual flexibility, MacNeal 1971, Rubin 1975; interface coordinates as Craig and Bampton 1968.
    """
    rows, highest = _independent(interface), 2.0 * np.pi * highest_hz
    values, modes = eigh(stiffness, mass)
    modes = modes[:, values <= (MODES_TO * highest) ** 2]
    if not rows.shape[0]:
        return modes
    if values[0] <= (LEAST_HELD * highest) ** 2:
        # what nothing holds would follow without limit: displacements at a small rate of growth instead
        stiffness = stiffness + (0.1 * highest) ** 2 * mass
    moved = cho_solve(cho_factor(stiffness), rows.T)
    size = np.sqrt(np.einsum("ij,ij->j", moved, mass @ moved).max(initial=0.0))
    for _ in range(2):
        moved = moved - modes @ (modes.T @ (mass @ moved))
    basis = np.column_stack([modes, _orthonormal(moved, mass, size)])
    seen = rows @ basis
    return basis @ np.column_stack([np.linalg.pinv(seen), null_space(seen)])


def _orthonormal(
    columns: Float[np.ndarray, "m p"], mass: Float[np.ndarray, "m m"], size: float
) -> Float[np.ndarray, "m k"]:
    """Columns orthonormal in the mass matrix, without those that follow from others but for rounding of a size."""
    kept = np.zeros((columns.shape[0], 0))
    for column in columns.T:
        for _ in range(2):
            column = column - kept @ (kept.T @ (mass @ column))
        length = np.sqrt(column @ mass @ column)
        if length > DEPENDENT * size:
            kept = np.column_stack([kept, column / length])
    return kept


def reduced_tangent(tangent: Tangent, basis: Float[np.ndarray, "m r"]) -> Tangent:
    """Tangent of the motions that a basis spans."""

    def reduced(part: Array) -> Array:
        matrix = np.asarray(part)
        return jax.device_put(basis.T @ matrix @ basis if matrix.ndim == 2 else matrix)

    return jax.tree.map(reduced, tangent)


def _independent(rows: Float[np.ndarray, "p m"]) -> Float[np.ndarray, "p m"]:
    """As many rows as say something of their own."""
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    if not size.any():
        return rows[:0]
    found: Any = qr((rows / np.where(size > 0.0, size, 1.0)).T, mode="r", pivoting=True)
    count = int(np.sum(np.abs(np.diagonal(found[0])) > DEPENDENT))
    return rows[np.sort(found[1][:count])]
