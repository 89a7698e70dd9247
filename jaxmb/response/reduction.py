"""Model reduction of machines with many elastic coordinates, by modes and static displacements of interface points."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float
from scipy.linalg import cho_factor, cho_solve, cholesky, eigh, null_space, qr, solve_triangular

from jaxmb.compiled import compiled, numeric_arguments
from jaxmb.io.validation import finite_number, typed_arguments
from jaxmb.machine.build import Model
from jaxmb.mechanics.loops import at_closed_posture
from jaxmb.mechanics.tangent import LinearizeAt, Tangent, linearize, operating_point
from jaxmb.response.frf import response_rows, tangent_receptance
from jaxmb.response.frf_kind import FrfKind, Point, check_kind, endpoints

MODES_TO = 4.0
"""Ratio to the highest frequency up to which modes are kept."""
CHECKED_LINES = 5
"""Frequencies at which the full machine is solved to evaluate the error."""
DEPENDENT = 1e-9
"""Relative size of a direction's independent part up to which it is attributed to rounding."""
RIGID_BODY = 1e-3
"""Ratio to the highest frequency up to which a mode is a rigid-body mode."""
LEAST_RESPONSE = 1e-3
"""Errors of smaller responses are relative to this part of the largest one of the same output or input."""
ROUNDING = 1e-9
"""Ratio to the largest response up to which a response is attributed to rounding."""


class ReducedMotion(NamedTuple):
    """Reduced linearized machine, with the rows of its outputs and inputs."""

    tangent: Tangent
    """[r, r]."""
    output_rows: Float[Array, "o r"]
    input_rows: Float[Array, "i r"]
    basis: Float[np.ndarray, "m r"]
    """Degrees of freedom of the full machine for each reduced coordinate."""
    error: float
    """Largest error of a response, relative to the largest response of each output and input, at `CHECKED_LINES`
    frequencies up to the highest, from solutions of the full machine."""


@typed_arguments
@numeric_arguments("q")
@at_closed_posture
def reduce_motion(
    model: Model,
    q: Float[Array, "n"],
    highest_hz: float,
    frame: str = "tool",
    outputs: Sequence[Point] | None = None,
    inputs: Sequence[Point] | None = None,
    at: LinearizeAt = "posture",
) -> ReducedMotion:
    """Linearized machine about a posture, reduced by `interface_basis` with the outputs and inputs as interface.

    Args:
        model: the machine.
        q: posture [n], rad or m.
        highest_hz: highest frequency of interest, Hz.
        frame: frame whose x, y, z are the default outputs and inputs (see `frf`).
        outputs: sensors.
        inputs: forces.
        at: linearize at the "posture" or at the "equilibrium".

    Raises:
        ValueError: a shape, a frame, a direction or `at` is wrong, a loop is open at q, or highest_hz is not above 0.
        RuntimeError: no equilibrium was found.
        NotImplementedError: as of `linearize`.
    """
    finite_number("highest_hz", highest_hz, above=0.0)
    outputs, inputs = endpoints(frame, outputs, inputs)
    full, point = linearize(model, q, at), operating_point(model, q, at)
    rows = [np.asarray(response_rows(model, point, points)) for points in (outputs, inputs)]
    mass, stiffness = np.asarray(full.mass), np.asarray(full.stiffness)
    basis = interface_basis(mass, stiffness, np.concatenate(rows), float(highest_hz))
    error = error_of_basis(full, basis, rows[0], rows[1], highest_hz)
    interface_rows = [jax.device_put(each @ basis) for each in rows]
    return ReducedMotion(reduced_tangent(full, basis), interface_rows[0], interface_rows[1], basis, error)


def error_of_basis(
    tangent: Tangent,
    basis: Float[np.ndarray, "m r"],
    outputs: Float[np.ndarray, "o m"],
    inputs: Float[np.ndarray, "i m"],
    highest_hz: float,
) -> float:
    """Largest error of the responses with a reduced basis, as `ReducedMotion.error`."""
    omega = jax.device_put(2.0 * np.pi * np.linspace(highest_hz / CHECKED_LINES, highest_hz, CHECKED_LINES))
    exact, approximate = (
        np.asarray(_receptance(t, omega, jax.device_put(interface_rows[0]), jax.device_put(interface_rows[1])))
        for t, interface_rows in (
            (jax.tree.map(jax.device_put, tangent), (outputs, inputs)),
            (reduced_tangent(tangent, basis), (outputs @ basis, inputs @ basis)),
        )
    )
    largest = np.abs(exact).max(axis=0)
    least = LEAST_RESPONSE * np.minimum(largest.max(axis=1, keepdims=True), largest.max(axis=0, keepdims=True))
    return float(np.max(np.abs(approximate - exact) / np.maximum(largest, np.maximum(least, ROUNDING * largest.max()))))


@numeric_arguments("frequency_hz", least=0.0)
def reduced_frf(
    reduced: ReducedMotion, frequency_hz: Float[Array, "f"], kind: FrfKind = "accelerance"
) -> Complex[Array, "f o i"]:
    """Frequency responses [freq, output, input] of a reduced machine, as `frf` of the full one.

    Args:
        reduced: from `reduce_motion`.
        frequency_hz: frequencies [f], Hz, up to `highest_hz` of the reduction.
        kind: "receptance", "mobility" or "accelerance".

    Raises:
        ValueError: the kind is wrong, or there is a NaN or a frequency below 0.
    """
    derivatives = check_kind(kind)
    omega = 2.0 * jnp.pi * frequency_hz
    h = _receptance(reduced.tangent, omega, reduced.output_rows, reduced.input_rows)
    return h * ((1j * omega) ** derivatives)[:, None, None]


_receptance = compiled(tangent_receptance)


def interface_basis(
    mass: Float[np.ndarray, "m m"],
    stiffness: Float[np.ndarray, "m m"],
    interface: Float[np.ndarray, "p m"],
    highest_hz: float,
) -> Float[np.ndarray, "m r"]:
    """Reduction basis [m, r] of static displacements under forces on an interface, and of modes.

    The modes are undamped ones up to four times the highest frequency; the static displacements represent the modes
    above. The columns are combined so that each of the first ones displaces one direction of the interface by 1, and no
    other column displaces it: springs, dampers and masses on the interface remain single matrix entries, and the basis
    is nearly as accurate for any value of them. Without an interface it is modal truncation.

    Args:
        mass: M [m, m].
        stiffness: K [m, m].
        interface: directions, rows; linearly dependent ones are omitted.
        highest_hz: highest frequency of interest, Hz.

    Source: residual flexibility, MacNeal 1971, Rubin 1975; interface coordinates as Craig and Bampton 1968.
    """
    rows, highest = _independent(interface), 2.0 * np.pi * highest_hz
    values, modes = eigh(stiffness, mass)
    modes = modes[:, values <= (MODES_TO * highest) ** 2]
    if not rows.shape[0]:
        return modes
    if values[0] <= (RIGID_BODY * highest) ** 2:
        # static displacements of rigid-body and unstable modes are unbounded: shift the stiffness
        stiffness = stiffness + max((0.1 * highest) ** 2, -2.0 * values[0]) * mass
    static_shapes = cho_solve(cho_factor(stiffness), rows.T)
    scale = np.sqrt(np.einsum("ij,ij->j", static_shapes, mass @ static_shapes).max(initial=0.0))
    for _ in range(2):
        static_shapes = static_shapes - modes @ (modes.T @ (mass @ static_shapes))
    basis = np.column_stack([modes, _orthonormal(static_shapes, mass, scale)])
    interface_rows = rows @ basis
    return basis @ np.column_stack([np.linalg.pinv(interface_rows), null_space(interface_rows)])


def _orthonormal(
    columns: Float[np.ndarray, "m p"], mass: Float[np.ndarray, "m m"], scale: float
) -> Float[np.ndarray, "m k"]:
    """Columns orthonormalized in the mass matrix, without those that are linearly dependent up to rounding."""
    upper = cholesky(mass)
    factored: Any = qr(upper @ columns, mode="economic", pivoting=True)
    independent = np.abs(np.diagonal(factored[1])) > DEPENDENT * scale
    return solve_triangular(upper, factored[0][:, independent])


def reduced_tangent(tangent: Tangent, basis: Float[np.ndarray, "m r"]) -> Tangent:
    """Tangent projected onto a basis."""

    def reduced(part: Array) -> Array:
        matrix = np.asarray(part)
        return jax.device_put(basis.T @ matrix @ basis if matrix.ndim == 2 else matrix)

    return jax.tree.map(reduced, tangent)


def _independent(rows: Float[np.ndarray, "p m"]) -> Float[np.ndarray, "p m"]:
    """Linearly independent rows."""
    scale = np.linalg.norm(rows, axis=1, keepdims=True)
    factored: Any = qr((rows / np.where(scale > 0.0, scale, 1.0)).T, mode="r", pivoting=True)
    count = int(np.sum(np.abs(np.diagonal(factored[0])) > DEPENDENT))
    return rows[np.sort(factored[1][:count])]
