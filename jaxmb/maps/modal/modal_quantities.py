"""Frequencies, damping and compliance of a machine at any number of postures, and their parameter sensitivities."""

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
"""Mapped quantities and their units."""
BY_MODE = ("frequency", "damping")
MOST_MODES = 4
"""Default number of modes."""
CHUNK = 256
"""Postures per batch."""
AHEAD = 2
"""Queued batches per worker, which limits the memory."""

Matrices = tuple[np.ndarray, ...]
"""M, C and K, each [b, n, n], and D with structural damping."""
Vary = Callable[[Float[Array, "d"]], Model]
"""The machine as a function of a vector u; an equinox Module, so that its numbers are traced."""


@dataclass(frozen=True)
class ModalQuantities:
    """Quantities at p postures and their derivatives by the d entries of u."""

    values: dict[str, np.ndarray]
    """By name [p, modes] or [p]; NaN without such a mode or peak, or for an unstable machine."""
    gradients: dict[str, np.ndarray]
    """By name [p, modes, d] or [p, d]; empty without parameters u."""
    peak_hz: np.ndarray | None
    """Frequency of the dynamic compliance [p], Hz."""


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
    """Modal quantities at postures with springs unloaded there, and their gradients by u, computed in batches.

    The n-th mode of a posture is its n-th oscillating one by ascending |lambda|, as in `modes`. Where two cross, the
    n-th changes its character.

    "frequency" is |lambda| / 2 pi and "damping" -Re(lambda) / |lambda|. "static_compliance" is d^T J K^-1 J^T d along
    a direction d, K with the geometric stiffness of gravity, or the largest eigenvalue of J K^-1 J^T without a
    direction. "dynamic_compliance" is the largest |d^T H d|, or singular value of H, of the receptance
    H = J (K + j w C - w^2 M)^-1 J^T over all frequencies of the band.

    Every differential is linear in dM, dC and dK: for an eigenvalue
    d lambda = -phi^T (lambda^2 dM + lambda dC + dK) phi / (phi^T (2 lambda M + C) phi), M, C and K being symmetric; for
    a peak it is that of H at the frequency of the peak, as the slope over frequency is zero there. With structural
    damping K + j D replaces K, except in the static compliance.

    Args:
        model: the machine.
        postures: coordinates [p, n], rad or m, all finite.
        quantities: of `MODAL_QUANTITIES`.
        modes: number of modes; default: `MOST_MODES`, or all of a machine with fewer.
        frame: the tool; J is the Jacobian of the translation of its origin, ground axes.
        direction: d, ground axes, any length.
        band_hz: band of the dynamic compliance; default: 0 Hz to infinity.
        vary: the machine as a function of u, for gradients by u.
        u: values at which the gradients are evaluated; `vary(u)` is the model.
        at: linearization point, "posture" or "equilibrium" under gravity; without an equilibrium, values are NaN.
        report: callback after every batch with the number of finished postures and their total number.

    Raises:
        ValueError: a name or a number is wrong, loops are open at a posture, or its mass matrix is singular.
        NotImplementedError: the machine has virtual springs, which have no mass, or fractional damping.

    Source: Huynh et al. 2020, eq. 15-20; Lancaster 1964, "On eigenvalues of matrices dependent on a parameter".
    """
    check_no_virtual_springs(model)
    if model.fractional:
        raise NotImplementedError(
            f"modal maps support viscous and structural damping only, '{model.name}' has fractional damping"
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
    directions = np.eye(3) if along is None else along[None]

    def solve(matrices: Matrices, jacobian: np.ndarray, rows: np.ndarray) -> Solution:
        exists = np.asarray(np.isfinite(matrices[2]).all(axis=(1, 2)) & np.isfinite(jacobian).all(axis=(1, 2)))
        # Postures without an equilibrium are computed with finite dummy matrices and set to NaN at the end.
        matrices = tuple(np.where(exists[:, None, None], part, np.eye(part.shape[1])) for part in matrices)
        if set(quantities) - {"static_compliance"}:
            check_masses(model, matrices[0], rows)
        observed = directions @ np.where(exists[:, None, None], jacobian, 0.0)
        values, differentials = _solve(matrices, observed, quantities, modes, band_hz)
        for value in values.values():
            value[~exists] = np.nan
        return values, {name: part.in_space(directions) for name, part in differentials.items()}

    found: list[dict[str, np.ndarray]] = []
    slopes: list[dict[str, np.ndarray]] = []
    done = 0
    with threadpool_limits(1, user_api="blas"):  # for small matrices threads within LAPACK only add overhead
        for rows, (values, differentials) in _solve_batches(model, postures, frame, at, solve):
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
    """Number of mapped modes; None selects the default.

    Raises:
        ValueError: the number is not between 1 and the machine's degrees of freedom.
    """
    most = len(motion_coordinates(model))
    if modes is None:
        return min(MOST_MODES, most)
    if not 1 <= modes <= most:
        raise ValueError(f"modes: {modes}, expected 1 to {most}, the machine's degrees of freedom")
    return modes


def _checked_direction(
    model: Model,
    quantities: Sequence[str],
    frame: str,
    direction: Sequence[float] | np.ndarray | None,
    band_hz: tuple[float, float] | None,
) -> np.ndarray | None:
    """The unit direction, or None for the softest one; ValueError if a name or a number is wrong."""
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


Solution = tuple[dict[str, np.ndarray], dict[str, Differentials]]
"""Quantities of a batch by name, and their differentials."""


def _solve_batches(
    model: Model,
    postures: np.ndarray,
    frame: str,
    at: LinearizeAt,
    solve: Callable[[Matrices, np.ndarray, np.ndarray], Solution],
) -> Iterator[tuple[np.ndarray, Solution]]:
    """Postures of each batch and the result of `solve` for their matrices, Jacobians and themselves, in order.

    NumPy's LAPACK is called on threads to use all cores; within XLA it uses one (see `jaxmb.runtime`).
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
    """Tangent of a machine whose springs are unloaded at q, and the Jacobian of the frame's translation; NaN without an
    equilibrium."""
    point = q if at == "posture" else equilibrium_or_nan(model, q)
    tangent, jacobian = tangent_about(model, q, point, at), motion_jacobian(model, point, frame)[:3]
    if at == "posture":
        return tangent, jacobian
    # tangents that do not depend on the point would be finite without an equilibrium
    exists = jnp.all(jnp.isfinite(point))
    return jax.tree.map(lambda part: jnp.where(exists, part, jnp.nan), (tangent, jacobian))


def _solve(
    matrices: Matrices,
    rows: np.ndarray,
    quantities: Sequence[str],
    modes: int,
    band_hz: tuple[float, float] | None,
) -> Solution:
    """Quantities of a batch; rows [b, k, n] are the observed displacements of the frame."""
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
            with np.errstate(invalid="ignore"):  # of missing modes
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
    """Gradients [b, ..., d] by u of the quantities with these differentials."""
    whole, widths = stacked(differentials)
    if at == "posture":
        sides = (whole.left, whole.right, whole.weight)
    else:
        sides = tuple(getattr(whole, side.name) for side in fields(whole))

    def gradient_of(*parts: Array) -> tuple[Array]:
        found = _pull_back(vary, u, *parts) if at == "posture" else _push_forward(vary, u, frame, *parts)
        return (found,)

    (gradient,) = in_batches(gradient_of, batch_size_for(len(rows), CHUNK, whole.left.shape[2]), rows, *sides)
    parts = np.split(gradient, np.cumsum(list(widths.values()))[:-1], axis=1)
    return {name: part if name in BY_MODE else part[:, 0] for name, part in zip(widths, parts, strict=True)}


@compiled
def _pull_back(
    vary: Vary,
    u: Float[Array, "d"],
    postures: Float[Array, "b n"],
    left: Complex[Array, "b s n"],
    right: Complex[Array, "b s n"],
    weight: Complex[Array, "b s 4"],
) -> Float[Array, "b s d"]:
    """Derivatives by u of Re(sum_k w_k l^T A_k r) over A = M, C, K and, if any, D, with l, r and w constant."""

    def at(q: Array, left: Array, right: Array, weight: Array) -> Array:
        tangent, pull = jax.vjp(lambda x: tangent_about(vary(x), q, q), u)
        # Only the real part of (w l) r^T is needed, which halves the products.
        scaled = weight[:, : len(jax.tree.leaves(tangent)), None] * left[:, None, :]
        outer = jnp.einsum("ski,sj->ksij", scaled.real, right.real) - jnp.einsum(
            "ski,sj->ksij", scaled.imag, right.imag
        )
        return jax.vmap(pull)(Tangent(*outer))[0]

    return jax.vmap(at)(postures, left, right, weight)


@compiled
def _push_forward(
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
    """`_pull_back` at the equilibrium, with p^T J l + q^T J r: the equilibrium and the tool's Jacobian depend on u.

    Forward mode, as the equilibrium is an implicit function.
    """

    def at(q: Array, x: Array, y: Array, w: Array, of_x: Array, of_y: Array) -> Array:
        slope, of_jacobian = jax.jacfwd(lambda v: _tangent(vary(v), q, frame, "equilibrium"))(u)
        matrices = jnp.stack(jax.tree.leaves(slope))
        whole = jnp.einsum("sk,si,kijd,sj->sd", w[:, : len(matrices)], x, matrices, y)
        whole += jnp.einsum("sa,aid,si->sd", of_x, of_jacobian, x)
        whole += jnp.einsum("sa,aid,si->sd", of_y, of_jacobian, y)
        return whole.real

    return jax.vmap(at)(postures, left, right, weight, of_left, of_right)
