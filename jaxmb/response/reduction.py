"""Frequency responses of machines with many elastic coordinates, by a few modes and static displacements."""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float
from scipy.linalg import cho_factor, cho_solve, eigh

from jaxmb.compiled import takes_numbers
from jaxmb.linalg import receptance
from jaxmb.machine.build import Model
from jaxmb.mechanics.tangent import LinearizeAt, Tangent, linearize, working_point
from jaxmb.response.frf import response_rows
from jaxmb.response.frf_kind import FrfKind, Point, check_kind, endpoints

MODES_TO = 4.0
"""Modes are kept up to so many times the highest line."""
CHECKED_LINES = 5
"""At which the whole machine is solved to state the error."""
LEAST_PART = 1e-10
"""Of a static displacement, that is not in the modes: less is rounding."""
LEAST_HELD = 1e-3
"""Of the highest line: a machine with a mode below that swings freely, its static displacements are rounding."""
ROUNDING = 1e-9
"""Of the largest response: what stays below it is none."""


class ReducedFrf(NamedTuple):
    """Frequency responses of a reduced machine."""

    frf: Complex[np.ndarray, "f o i"]
    tangent: Tangent
    """Of the reduced machine [r, r]."""
    basis: Float[np.ndarray, "m r"]
    """Small motion of the machine for each coordinate of the reduced one."""
    error: float
    """Largest error at some lines spread over the band, as a part of the largest response there of each output and
    input: the whole machine is solved at these."""


@takes_numbers("q")
@takes_numbers("frequency_hz", least=0.0)
def reduced_frf(
    model: Model,
    q: Float[Array, "n"],
    frequency_hz: Float[Array, "f"],
    frame: str = "tool",
    kind: FrfKind = "accelerance",
    outputs: Sequence[Point] | None = None,
    inputs: Sequence[Point] | None = None,
    at: LinearizeAt = "posture",
) -> ReducedFrf:
    """`frf` of a machine with many elastic coordinates, by its modes up to four times the highest line.

    M, C and K are projected on the undamped modes below that frequency and on the displacements that constant forces at
    the points make, which stand for all modes above. Of a machine that nothing holds they are displacements at the
    highest line instead.

    Args:
        model: the machine.
        q: posture [n], rad or m.
        frequency_hz: frequencies [f], Hz.
        frame: see `frf`, as for what follows.
        kind: "receptance", "mobility" or "accelerance".
        outputs: points.
        inputs: points.
        at: linearize at the "posture" or at the "equilibrium".

    Raises:
        ValueError: see `frf`.

    Source: modal truncation with residual flexibility, MacNeal 1971; Rubin 1975.
    """
    outputs, inputs = endpoints(frame, outputs, inputs)
    derivatives = check_kind(kind)
    omega = 2.0 * np.pi * np.asarray(frequency_hz, dtype=float)
    tangent, place = linearize(model, q, at), working_point(model, q, at)
    rows = [np.asarray(response_rows(model, place, points)) for points in (outputs, inputs)]
    basis = _basis(tangent, np.concatenate(rows), float(omega.max(initial=0.0)))
    small = jax.tree.map(lambda part: jax.device_put(basis.T @ np.asarray(part) @ basis), tangent)
    seen = [jax.device_put(each @ basis) for each in rows]
    factor = (1j * omega[:, None, None]) ** derivatives
    h = np.asarray(_receptance(small, jax.device_put(omega), *seen)) * factor
    checked = np.unique(np.linspace(0, omega.size - 1, CHECKED_LINES).astype(int))
    whole = np.asarray(_receptance(tangent, jax.device_put(omega[checked]), *(jax.device_put(each) for each in rows)))
    whole = whole * factor[checked]
    largest = np.abs(whole).max(axis=0)
    largest = np.where(largest > ROUNDING * largest.max(initial=0.0), largest, np.inf)
    return ReducedFrf(h, small, basis, float(np.max(np.abs(h[checked] - whole) / largest)))


@eqx.filter_jit
def _receptance(t: Tangent, omega: Array, outputs: Array, inputs: Array) -> Array:
    return receptance(t.mass, t.damping, t.stiffness, jnp.asarray(omega), outputs, inputs, structural=t.structural)


def _basis(tangent: Tangent, rows: Float[np.ndarray, "p m"], highest: float) -> Float[np.ndarray, "m r"]:
    """Modes up to `MODES_TO` times an angular frequency, and static displacements, orthonormal in the mass matrix."""
    M, K = np.asarray(tangent.mass), np.asarray(tangent.stiffness)
    values, modes = eigh(K, M)
    modes = modes[:, values <= (MODES_TO * highest) ** 2]
    held = values[0] > (LEAST_HELD * highest) ** 2
    static = cho_solve(cho_factor(K), rows.T) if held else np.linalg.solve(K - highest**2 * M, rows.T)
    basis = modes
    for column in static.T:
        size = np.sqrt(column @ M @ column)
        for _ in range(2):
            column = column - basis @ (basis.T @ (M @ column))
        left = np.sqrt(column @ M @ column)
        if left > LEAST_PART * size:
            basis = np.column_stack([basis, column / left])
    return basis
