"""Frequencies, damping and compliance of a machine at any number of postures, and how its parameters move them."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float
from threadpoolctl import threadpool_limits

from jaxmb.compiled import compiled
from jaxmb.io.validation import known_name
from jaxmb.machine.build import Model
from jaxmb.maps.batches import batch_size_for, in_batches, padded
from jaxmb.maps.modal.compliance import receptance_peak, static_compliance
from jaxmb.maps.modal.eigenvalues import (
    Differentials,
    check_masses,
    damping_differentials,
    eigenpairs,
    frequency_differentials,
    lowest_modes,
    stacked,
)
from jaxmb.maps.postures.place_solver import check_all_closed
from jaxmb.mechanics.equilibrium import equilibrium_or_nan
from jaxmb.mechanics.kinematics import TOOL, check_no_virtual_springs, frame_index
from jaxmb.mechanics.tangent import LinearizeAt, Tangent, motion_coordinates, motion_jacobian, tangent_about

MODAL_QUANTITIES = {
    "frequency": "Hz",
    "damping": "",
    "static_compliance": "m/N",
    "dynamic_compliance": "m/N",
}
"""What can be mapped, and its unit; the first two by mode."""
BY_MODE = ("frequency", "damping")
MOST_MODES = 4
"""Number of modes where none is given."""
CHUNK = 256
"""Postures that are computed together."""
AHEAD = 2
"""Chunks for each worker that are computed or wait for it, so that not all chunks are in memory at once."""

Matrices = tuple[np.ndarray, ...]
"""M, C and K, each [b, n, n], and D where a machine has structural damping."""
Vary = Callable[[Float[Array, "d"]], Model]
"""The machine as a function of a vector u; an equinox Module, so that one program is compiled for all its numbers."""


@dataclass(frozen=True)
class ModalQuantities:
    """Quantities at p postures and their derivatives by the d entries of u."""

    values: dict[str, np.ndarray]
    """By name [p, modes] or [p]; NaN where there is no such mode, no peak, or the machine is not stable."""
    gradients: dict[str, np.ndarray]
    """By name [p, modes, d] or [p, d]; empty where nothing varies."""
    peak_hz: np.ndarray | None
    """Frequency at which the dynamic compliance is reached [p], Hz."""


def modal_quantities(
    model: Model,
    postures: Float[np.ndarray, "p n"],
    quantities: Sequence[str] = ("frequency", "damping"),
    modes: int | None = None,
    frame: str = TOOL,
    direction: Sequence[float] | np.ndarray | None = None,
    band_hz: tuple[float, float] | None = None,
    vary: Vary | None = None,
    u: Float[np.ndarray, "d"] | None = None,
    at: LinearizeAt = "posture",
    report: Callable[[int, int], None] | None = None,
) -> ModalQuantities:
    """Modal quantities at postures, springs unloaded there, computed in chunks, with their gradients by u.

    The n-th mode of a posture is its n-th oscillating one by ascending |lambda|, as in `modes`. Where two cross, the
    n-th changes its character.

    "frequency" is |lambda| / 2 pi and "damping" -Re(lambda) / |lambda|. "static_compliance" is d^T J K^-1 J^T d along
    a direction d, K with the geometric stiffness of gravity, or the largest eigenvalue of J K^-1 J^T where no direction
    is given. "dynamic_compliance" is the largest |d^T H d|, or singular value of H, of the receptance
    H = J (K + j w C - w^2 M)^-1 J^T over all frequencies of the band.

    Every differential is linear in dM, dC and dK: for an eigenvalue
    d lambda = -phi^T (lambda^2 dM + lambda dC + dK) phi / (phi^T (2 lambda M + C) phi), M, C and K being symmetric; for
    a peak it is that of H at the frequency of the peak, as the slope over frequency is zero there. With structural
    damping K + j D stands for K, except in the static compliance.

    Args:
        model: the machine.
        postures: coordinates [p, n], rad or m, all finite.
        quantities: of `MODAL_QUANTITIES`.
        modes: how many modes; `MOST_MODES`, or all where the machine has fewer coordinates, where not given.
        frame: the tool whose origin's compliance is taken; J is the Jacobian of its translation, ground axes.
        direction: d, ground axes; its size does not count.
        band_hz: frequencies of the dynamic compliance; from 0 Hz without end where not given.
        vary: the machine as a function of u, for gradients by u.
        u: where the gradients are taken; `vary(u)` is the model.
        at: where the machine is linearized: at the postures, or at the equilibrium under gravity behind each. What does
            not exist without an equilibrium is NaN.
        report: called after every chunk with the number of postures that are done, and of all.

    Raises:
        ValueError: a name or a number is wrong, loops are open at a posture, or its mass matrix is singular.
        NotImplementedError: the machine has virtual springs, which have no mass, or fractional damping.

    Source: Huynh et al. 2020, eq. 15-20; Lancaster 1964, "On eigenvalues of matrices dependent on a parameter".
    """
    check_no_virtual_springs(model)
    if model.fractional:
        raise NotImplementedError(
            f"modal maps are of machines with viscous or structural damping, '{model.name}' has fractional damping"
        )
    n, d = len(model.coordinates), 0 if u is None else len(u)
    modes = number_of_modes(model, modes)
    along = _checked_direction(model, quantities, frame, direction, band_hz)
    postures = np.asarray(postures, dtype=float)
    if postures.ndim != 2 or postures.shape[1] != n or not np.all(np.isfinite(postures)):
        raise ValueError(f"postures have shape {postures.shape}, expected (number of postures, {n}), all finite")
    check_all_closed(model, postures)
    if at not in ("posture", "equilibrium"):
        raise ValueError(f"at is '{at}', expected 'posture' or 'equilibrium'")
    counted = np.eye(3) if along is None else along[None]

    def solve(matrices: Matrices, jacobian: np.ndarray, rows: np.ndarray) -> Solved:
        there = np.asarray(np.isfinite(matrices[2]).all(axis=(1, 2)) & np.isfinite(jacobian).all(axis=(1, 2)))
        # Postures without an equilibrium are computed too, with matrices that stay finite, and left out at the end.
        matrices = tuple(np.where(there[:, None, None], part, np.eye(part.shape[1])) for part in matrices)
        if set(quantities) - {"static_compliance"}:
            check_masses(model, matrices[0], rows)
        seen = counted @ np.where(there[:, None, None], jacobian, 0.0)
        values, differentials = _solve(matrices, seen, quantities, modes, band_hz)
        for value in values.values():
            value[~there] = np.nan
        return values, {name: part.in_space(counted) for name, part in differentials.items()}

    found: list[dict[str, np.ndarray]] = []
    slopes: list[dict[str, np.ndarray]] = []
    done = 0
    with threadpool_limits(1, user_api="blas"):  # small matrices: more threads in LAPACK only wait for each other
        for rows, (values, differentials) in _solved(model, postures, frame, at, solve):
            found.append(values)
            if vary is not None and u is not None:
                slopes.append(_gradients(vary, jnp.asarray(u), rows, frame, at, differentials))
            done += len(rows)
            if report is not None:
                report(done, len(postures))
    names = list(found[0]) if found else []
    values = {name: np.concatenate([part[name] for part in found]) for name in names}
    gradients = {name: np.concatenate([part[name] for part in slopes]) for name in (slopes[0] if slopes else ())}
    return ModalQuantities(values, gradients if d else {}, values.pop("peak_hz", None))


def number_of_modes(model: Model, modes: int | None) -> int:
    """How many modes are mapped, where so many or none are asked for.

    Raises:
        ValueError: the machine does not have so many.
    """
    most = len(motion_coordinates(model))
    if modes is None:
        return min(MOST_MODES, most)
    if not 1 <= modes <= most:
        raise ValueError(f"modes: {modes}, expected 1 to {most}, as many as the machine has")
    return modes


def _checked_direction(
    model: Model,
    quantities: Sequence[str],
    frame: str,
    direction: Sequence[float] | np.ndarray | None,
    band_hz: tuple[float, float] | None,
) -> np.ndarray | None:
    """The unit direction, or None for the softest one; ValueError where a name or a number is wrong."""
    if not quantities:
        raise ValueError(f"quantities: found none, expected some of {', '.join(MODAL_QUANTITIES)}")
    for name in quantities:
        if name not in MODAL_QUANTITIES:
            raise ValueError(known_name("quantity", name, MODAL_QUANTITIES))
    frame_index(model, frame)
    if band_hz is not None and not (0.0 <= band_hz[0] < band_hz[1] < np.inf):
        raise ValueError(f"band_hz: {band_hz[0]:g} to {band_hz[1]:g} Hz, expected finite numbers, the lower first")
    if direction is None:
        return None
    along = np.asarray(direction, dtype=float)
    if along.shape != (3,) or not np.all(np.isfinite(along)) or not np.any(along):
        raise ValueError(f"direction: {along}, expected three numbers, not all 0")
    return along / np.linalg.norm(along)


Solved = tuple[dict[str, np.ndarray], dict[str, Differentials]]
"""Quantities of a chunk by name, and their differentials."""


def _solved(
    model: Model,
    postures: np.ndarray,
    frame: str,
    at: LinearizeAt,
    solve: Callable[[Matrices, np.ndarray, np.ndarray], Solved],
) -> Iterator[tuple[np.ndarray, Solved]]:
    """Postures of each chunk and what `solve` returns for their matrices, Jacobians and themselves, in order.

    LAPACK runs in NumPy on threads, which uses all cores; within XLA's programs it uses one (see `jaxmb.runtime`).
    """
    size = batch_size_for(len(postures), CHUNK, len(motion_coordinates(model)))
    workers = os.cpu_count() or 1
    waiting: deque[tuple[np.ndarray, Future]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for first in range(0, len(postures), size):
            rows = postures[first : first + size]
            tangent, jacobian = jax.tree.map(np.asarray, _tangents(model, jnp.asarray(padded(rows, size)), frame, at))
            count = len(rows)
            matrices = tuple(part[:count] for part in jax.tree.leaves(tangent))
            waiting.append((rows, pool.submit(solve, matrices, jacobian[:count], rows)))
            if len(waiting) >= AHEAD * workers:
                rows, future = waiting.popleft()
                yield rows, future.result()
        while waiting:
            rows, future = waiting.popleft()
            yield rows, future.result()


@compiled
def _tangents(
    model: Model, postures: Float[Array, "b n"], frame: str, at: LinearizeAt
) -> tuple[Tangent, Float[Array, "b 3 n"]]:
    return jax.vmap(lambda q: _tangent(model, q, frame, at))(postures)


def _tangent(model: Model, q: Array, frame: str, at: LinearizeAt) -> tuple[Tangent, Array]:
    """Tangent of a machine whose springs are unloaded at q, and the Jacobian of the frame's translation; NaN where it
    has no equilibrium."""
    point = q if at == "posture" else equilibrium_or_nan(model, q)
    tangent, jacobian = tangent_about(model, q, point, at), motion_jacobian(model, point, frame)[:3]
    if at == "posture":
        return tangent, jacobian
    # some tangents do not depend on the point, and would look right without one
    there = jnp.all(jnp.isfinite(point))
    return jax.tree.map(lambda part: jnp.where(there, part, jnp.nan), (tangent, jacobian))


def _solve(
    matrices: Matrices,
    rows: np.ndarray,
    quantities: Sequence[str],
    modes: int,
    band_hz: tuple[float, float] | None,
) -> Solved:
    """Quantities of a chunk; rows [b, k, n] are the displacements of the frame that count."""
    M, C, K, *structural = matrices
    values: dict[str, np.ndarray] = {}
    differentials: dict[str, Differentials] = {}
    if "static_compliance" in quantities:
        values["static_compliance"], differentials["static_compliance"] = static_compliance(K, rows)
    if {"frequency", "damping", "dynamic_compliance"} & set(quantities):
        K = K + 1j * structural[0] if structural else K
        eigenvalue, shape = eigenpairs(M, C, K)
        if {"frequency", "damping"} & set(quantities):
            lam, phi = lowest_modes(eigenvalue, shape, modes)
            with np.errstate(invalid="ignore"):  # of modes that are not there
                if "frequency" in quantities:
                    values["frequency"], differentials["frequency"] = frequency_differentials(M, C, lam, phi)
                if "damping" in quantities:
                    values["damping"], differentials["damping"] = damping_differentials(M, C, lam, phi)
        if "dynamic_compliance" in quantities:
            peak = receptance_peak(M, C, K, rows, eigenvalue, shape, band_hz)
            values["dynamic_compliance"], values["peak_hz"], differentials["dynamic_compliance"] = peak
    return values, differentials


def _gradients(
    vary: Vary, u: Array, rows: np.ndarray, frame: str, at: LinearizeAt, differentials: dict[str, Differentials]
) -> dict[str, np.ndarray]:
    """Gradients [b, ..., d] by u of the quantities that have these differentials."""
    whole, widths = stacked(differentials)
    if at == "posture":
        sides = (whole.left, whole.right, whole.weight)
    else:
        sides = tuple(getattr(whole, side.name) for side in fields(whole))

    def pulled(*parts: Array) -> tuple[Array]:
        found = _pulled_back(vary, u, *parts) if at == "posture" else _carried(vary, u, frame, *parts)
        return (found,)

    (gradient,) = in_batches(pulled, batch_size_for(len(rows), CHUNK, whole.left.shape[2]), rows, *sides)
    parts = np.split(gradient, np.cumsum(list(widths.values()))[:-1], axis=1)
    return {name: part if name in BY_MODE else part[:, 0] for name, part in zip(widths, parts, strict=True)}


@compiled
def _pulled_back(
    vary: Vary,
    u: Float[Array, "d"],
    postures: Float[Array, "b n"],
    left: Complex[Array, "b s n"],
    right: Complex[Array, "b s n"],
    weight: Complex[Array, "b s 4"],
) -> Float[Array, "b s d"]:
    """Derivatives by u of Re(sum_k w_k l^T A_k r) over A = M, C, K, and D where there is one, with l, r and w held."""

    def at(q: Array, left: Array, right: Array, weight: Array) -> Array:
        tangent, pull = jax.vjp(lambda x: tangent_about(vary(x), q, q), u)
        # Only the real part of (w l) r^T is needed: half the products of the complex one.
        scaled = weight[:, : len(jax.tree.leaves(tangent)), None] * left[:, None, :]
        outer = jnp.einsum("ski,sj->ksij", scaled.real, right.real) - jnp.einsum(
            "ski,sj->ksij", scaled.imag, right.imag
        )
        return jax.vmap(pull)(Tangent(*outer))[0]

    return jax.vmap(at)(postures, left, right, weight)


@compiled
def _carried(
    vary: Vary,
    u: Float[Array, "d"],
    frame: str,
    postures: Float[Array, "b n"],
    left: Complex[Array, "b s n"],
    right: Complex[Array, "b s n"],
    weight: Complex[Array, "b s 4"],
    of_left: Complex[Array, "b s 4"],
    of_right: Complex[Array, "b s 3"],
) -> Float[Array, "b s d"]:
    """`_pulled_back` at the equilibrium, with p^T J l + q^T J r: the point moves with u, and the tool's Jacobian too.

    Forwards, as the equilibrium is an implicit function.
    """

    def at(q: Array, x: Array, y: Array, w: Array, of_x: Array, of_y: Array) -> Array:
        slope, turned = jax.jacfwd(lambda v: _tangent(vary(v), q, frame, "equilibrium"))(u)
        matrices = jnp.stack(jax.tree.leaves(slope))
        whole = jnp.einsum("sk,si,kijd,sj->sd", w[:, : len(matrices)], x, matrices, y)
        whole += jnp.einsum("sa,aid,si->sd", of_x, turned, x) + jnp.einsum("sa,aid,si->sd", of_y, turned, y)
        return whole.real

    return jax.vmap(at)(postures, left, right, weight, of_left, of_right)
