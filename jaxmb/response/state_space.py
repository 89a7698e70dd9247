"""State-space models of linearized machines, their reduction, and files for other programs."""

import os
import warnings
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.io
import scipy.linalg
from jaxtyping import Array, Float

from jaxmb.compiled import compiled, numeric_arguments
from jaxmb.io.files import write_atomically
from jaxmb.io.validation import check_choice, typed_arguments
from jaxmb.machine.build import Model
from jaxmb.mechanics.loops import at_closed_posture, is_traced
from jaxmb.mechanics.tangent import LinearizeAt, linearize, motion_coordinates, operating_point, warns_of_mounting
from jaxmb.response.frf import response_rows
from jaxmb.response.frf_kind import FrfKind, Point, check_kind, dof_names, endpoints
from jaxmb.response.modal import check_mass_matrix

Reduction = Literal["balanced", "modal"]
LEAST_DECAY = 1e-9
"""Real part of an eigenvalue, relative to the largest eigenvalue, above which a state does not decay."""
MOST_CONDITION = 1e12
"""Condition number of the eigenvectors above which they are linearly dependent to working precision."""
ERROR_LINES = 2000
"""Frequencies at which the error of a reduction is evaluated, besides those of the modes."""


class StateSpace(NamedTuple):
    """Matrices of x' = A x + B u, y = C x + D u."""

    A: Float[Array, "x x"] | np.ndarray
    B: Float[Array, "x i"] | np.ndarray
    C: Float[Array, "o x"] | np.ndarray
    D: Float[Array, "o i"] | np.ndarray


class ReducedStateSpace(NamedTuple):
    """A state-space model with fewer states, and its error."""

    system: StateSpace
    error: float
    """Largest singular value of the difference of the FRFs over all frequencies but those of undamped modes, relative
    to the largest of the FRF."""
    bound: float | None
    """Upper bound of the same by twice the sum of the discarded Hankel singular values; None for modal truncation."""


@typed_arguments
@warns_of_mounting
@numeric_arguments("q")
@at_closed_posture
def state_space(
    model: Model,
    q: Float[Array, "n"],
    inputs: Sequence[Point] | None = None,
    outputs: Sequence[Point] | None = None,
    kind: FrfKind = "receptance",
    frame: str = "tool",
    at: LinearizeAt = "posture",
) -> StateSpace:
    """State-space model (A, B, C, D) of the machine at rest in a posture, whose transfer function is `frf`.

    The states are the `motion_coordinates` z and their velocities: M z'' + C z' + K z = I^T u, y = O z, O z' or O z''
    for a receptance, mobility or accelerance. Gravity and springs are those of `linearize`.

    Args:
        model: the machine, with viscous damping.
        q: posture [n], rad or m.
        inputs: forces, as those of `frf`; by default x, y, z of the frame.
        outputs: sensors, as those of `frf`.
        kind: quantity of the outputs.
        frame: frame of the default inputs and outputs.
        at: linearize at the "posture" or at the static "equilibrium" under gravity.

    Raises:
        ValueError: a shape, a frame, a direction, `at` or the kind is wrong, a loop is open at q, or the mass matrix is
            singular.
        RuntimeError: no equilibrium was found.
        NotImplementedError: structural or fractional damping, which no state-space model has; or virtual springs.
    """
    system, mass = _system_and_mass(model, q, inputs, outputs, kind, frame, at)
    if not is_traced(model, q):
        check_mass_matrix(np.asarray(mass), motion_coordinates(model))
    return system


@compiled
def _system_and_mass(
    model: Model,
    q: Float[Array, "n"],
    inputs: Sequence[Point] | None,
    outputs: Sequence[Point] | None,
    kind: FrfKind,
    frame: str,
    at: LinearizeAt,
) -> tuple[StateSpace, Float[Array, "m m"]]:
    outputs, inputs = endpoints(frame, outputs, inputs)
    derivatives = check_kind(kind)
    if model.structural or model.fractional:
        law = "structural" if model.structural else "fractional"
        raise NotImplementedError(f"'{model.name}' has {law} damping, expected viscous damping for a state-space model")
    tangent = linearize(model, q, at)
    point = operating_point(model, q, at)
    output_rows, input_rows = response_rows(model, point, outputs), response_rows(model, point, inputs)
    count = tangent.mass.shape[0]
    right = jnp.concatenate([tangent.stiffness, tangent.damping, -input_rows.T], axis=1)
    acceleration = -jnp.linalg.solve(tangent.mass, right)  # z'' of [z, z', u]
    none, eye = jnp.zeros((count, count)), jnp.eye(count)
    motion = jnp.concatenate([none, eye, jnp.zeros_like(input_rows.T)], axis=1)
    rates = jnp.concatenate([motion, acceleration])
    still = jnp.concatenate([eye, none, jnp.zeros_like(input_rows.T)], axis=1)
    observed = output_rows @ (still, motion, acceleration)[derivatives]
    states = 2 * count
    system = StateSpace(rates[:, :states], rates[:, states:], observed[:, :states], observed[:, states:])
    return system, tangent.mass


def reduce_state_space(system: StateSpace, states: int, method: Reduction = "balanced") -> ReducedStateSpace:
    """A state-space model with at most this many states, and its error.

    "balanced" removes the states with the smallest Hankel singular values (square-root algorithm in modal coordinates).
    "modal" keeps the slowest modes, and adds the static response of the others to D.

    Args:
        system: a state-space model, from `state_space`.
        states: number of states to keep; one less, with a warning, where a pair of a mode would be divided.
        method: of the reduction.

    Raises:
        ValueError: `states` or `method` is invalid, motions that do not decay, such as rigid-body motions, are to be
            removed or balanced, or a motion has neither stiffness nor damping.

    Source: Antoulas, Approximation of Large-Scale Dynamical Systems, 2005, section 7.2; Laub et al. 1987.
    """
    a, b, c, d = (np.asarray(part) for part in system)
    check_choice("method", method, ("balanced", "modal"))
    if not 1 <= states <= a.shape[0]:
        raise ValueError(f"states is {states}, expected 1 to {a.shape[0]}")
    eigenvalue, block, t = _modal_form(a)
    b, c = np.linalg.solve(t, b), c @ t
    still = np.real(eigenvalue) > -LEAST_DECAY * np.abs(eigenvalue).max()
    if method == "balanced":
        if np.any(still):
            raise ValueError(
                "a motion of the machine does not decay: balanced truncation needs damping of every motion; expected"
                " method 'modal'"
            )
        reduced, discarded = _balanced(block, b, c, d, states)
        peak, error = _peak_and_error(StateSpace(block, b, c, d), reduced, eigenvalue)
        return ReducedStateSpace(reduced, error, 2.0 * float(discarded.sum()) / peak if peak else 0.0)
    if eigenvalue[states - 1].imag > 0.0:
        warnings.warn(
            f"{states - 1} states are kept, not {states}: the last one is half of the pair of a mode", stacklevel=2
        )
        states -= 1
    if np.any(still[states:]):
        raise ValueError(f"{states} states leave out a motion that does not decay, expected more states")
    kept, rest = slice(states), slice(states, None)
    static = c[:, rest] @ np.linalg.solve(block[rest, rest], b[rest]) if states < a.shape[0] else 0.0
    reduced = StateSpace(*(jnp.asarray(part) for part in (block[kept, kept], b[kept], c[:, kept], d - static)))
    return ReducedStateSpace(reduced, _peak_and_error(StateSpace(block, b, c, d), reduced, eigenvalue)[1], None)


def _modal_form(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eigenvalues by ascending size, that with Im > 0 first of each pair, the real block-diagonal matrix, and its basis
    T, A = T block T^-1."""
    found, vectors = np.linalg.eig(a)
    first = np.flatnonzero(np.imag(found) >= 0.0)  # LAPACK returns the conjugate of an eigenvalue behind it
    first = first[np.lexsort((np.imag(found[first]), np.round(np.abs(found[first]), 9)))]
    order = [k for i in first.tolist() for k in range(i, i + 1 + bool(np.imag(found[i]) > 0.0))]
    found, vectors = found[order], vectors[:, order]
    if not np.linalg.cond(vectors) < MOST_CONDITION:
        raise ValueError(
            "the modes are no basis of the states, as with a motion of the machine without stiffness and damping:"
            " expected one of them for every motion"
        )
    # columns of a pair: sqrt(2) times the real and the imaginary part of its first vector
    scale = np.where(np.imag(found) == 0.0, 1.0, -1j * np.sqrt(2.0) * np.sign(np.imag(found)))
    return found, *scipy.linalg.cdf2rdf(found, scale * vectors)


def _balanced(
    block: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray, states: int
) -> tuple[StateSpace, np.ndarray]:
    """Balanced truncation of a system in modal form, and the discarded Hankel singular values."""
    controllable = scipy.linalg.solve_continuous_lyapunov(block, -b @ b.T)
    observable = scipy.linalg.solve_continuous_lyapunov(block.T, -c.T @ c)
    roots = []
    for gramian in (controllable, observable):
        values, vectors = np.linalg.eigh(0.5 * (gramian + gramian.T))
        roots.append(vectors * np.sqrt(np.maximum(values, 0.0)))
    left, hankel, right = np.linalg.svd(roots[1].T @ roots[0])
    states = min(states, int(np.count_nonzero(hankel > 1e-12 * hankel[0])))
    scale = 1.0 / np.sqrt(hankel[:states])
    forward, back = roots[0] @ right[:states].T * scale, (roots[1] @ left[:, :states] * scale).T
    parts = back @ block @ forward, back @ b, c @ forward, d
    return StateSpace(*(jnp.asarray(part) for part in parts)), hankel[states:]


def _frf(system: StateSpace, omega: np.ndarray) -> np.ndarray:
    a, b, c, d = (np.asarray(part) for part in system)
    pencil = 1j * omega[:, None, None] * np.eye(a.shape[0]) - a
    return c @ np.linalg.solve(pencil, np.broadcast_to(b.astype(complex), (omega.size, *b.shape))) + d


def _peak_and_error(system: StateSpace, reduced: StateSpace, eigenvalue: np.ndarray) -> tuple[float, float]:
    """Largest singular value of the FRFs of a system, and of their difference to those of the reduced one relative to
    it, at frequencies from below the first to above the last mode, each damped mode among them."""
    size = np.abs(eigenvalue)
    nonzero = size > 1e-6 * size.max()
    steps = np.geomspace(0.01 * size[nonzero].min(), 100.0 * size.max(), ERROR_LINES)
    damped = nonzero & (np.real(eigenvalue) < -LEAST_DECAY * size.max())
    peaks = np.abs(np.imag(eigenvalue[damped & (np.imag(eigenvalue) != 0.0)]))
    omega = np.unique(np.concatenate([steps, size[damped], peaks]))
    whole = _frf(system, omega)
    peak = float(np.linalg.norm(whole, 2, axis=(1, 2)).max())
    difference = float(np.linalg.norm(whole - _frf(reduced, omega), 2, axis=(1, 2)).max())
    return peak, difference / peak if peak else 0.0


def write_state_space(
    path: str | os.PathLike[str],
    system: StateSpace,
    inputs: Sequence[Point],
    outputs: Sequence[Point],
    kind: FrfKind = "receptance",
) -> None:
    """Write a state-space model as a MATLAB file (.mat, version 5) or NPZ, by the extension.

    Both hold A, B, C, D, the names of `inputs` and `outputs` such as "tool x", and `kind`. In MATLAB `load` and
    `ss(A, B, C, D, 'InputName', cellstr(inputs), 'OutputName', cellstr(outputs))`.

    Args:
        path: of the file.
        system: from `state_space` or `reduce_state_space`.
        inputs: those of the model.
        outputs: those of the model.
        kind: that of the model.

    Raises:
        ValueError: another extension, or names that do not match the matrices.
        OSError: the file cannot be written; no partial file remains.
    """
    check_kind(kind)
    path = Path(path)
    names = {"inputs": dof_names(inputs), "outputs": dof_names(outputs)}
    for key, length in (("inputs", system.B.shape[1]), ("outputs", system.C.shape[0])):
        if len(names[key]) != length:
            raise ValueError(f"{key}: {len(names[key])} names, expected {length}, as of the matrices")
    arrays = {key: np.asarray(part) for key, part in system._asdict().items()}
    data = arrays | {key: np.array(value) for key, value in names.items()} | {"kind": np.array(kind)}
    buffer = BytesIO()
    match path.suffix:
        case ".mat":
            scipy.io.savemat(buffer, data)
        case ".npz":
            np.savez(buffer, **data)  # pyright: ignore[reportArgumentType]
        case _:
            raise ValueError(f"{path}: expected a file ending in .mat or .npz")
    write_atomically(path, buffer.getvalue())
