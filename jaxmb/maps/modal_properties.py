"""Frequencies, damping and compliance of a machine at any number of postures, and their parameter sensitivities."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from threading import Lock
from typing import TypedDict, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float, Inexact
from scipy.optimize.elementwise import find_root
from threadpoolctl import threadpool_limits

from jaxmb.compiled import batch_size_for, compiled, in_batches, padded
from jaxmb.io.validation import check_choice, error_location
from jaxmb.machine.build import Model
from jaxmb.maps.kinetostatic import check_quantities, checked_direction
from jaxmb.maps.position_solver import check_all_closed
from jaxmb.measurement.frf_set import band_of
from jaxmb.mechanics.equilibrium import equilibrium_or_nan
from jaxmb.mechanics.kinematics import TOOL, check_no_virtual_springs, frame_index
from jaxmb.mechanics.tangent import LinearizeAt, Tangent, motion_coordinates, motion_jacobian, tangent_about
from jaxmb.response.modal import REAL, check_mass_matrix, first_order_modes, singular_mass_matrices, unit_diagonal

DEFECTIVE = 1e-6
"""|phi^T (2 lambda M + C) phi| over the size of its terms, below which an eigenvalue is defective (double with a single
eigenvector, as at critical damping) and has no derivative. Rounding of an exact zero is of order 1e-8."""


@dataclass(frozen=True)
class Differentials:
    """Differentials Re(sum_k w_k l^T dA_k r + p^T dJ l + q^T dJ r), A_k = M, C, K, D, of s numbers at b postures.

    J are the translations of the frame along all three axes; they change with the operating point.
    """

    left: Complex[np.ndarray, "b s n"]
    right: Complex[np.ndarray, "b s n"]
    weight: Complex[np.ndarray, "b s 4"]
    of_left: Complex[np.ndarray, "b s 3"]
    """p."""
    of_right: Complex[np.ndarray, "b s 3"]
    """q."""


def check_masses(model: Model, masses: Float[np.ndarray, "b n n"], postures: Float[np.ndarray, "b n"]) -> None:
    """Raise ValueError for the first posture of a batch with a singular mass matrix."""
    singular = singular_mass_matrices(masses)
    if np.any(singular):
        first = int(np.argmax(singular))
        at = ", ".join(f"{name} = {value:.4g}" for name, value in zip(model.coordinates, postures[first], strict=True))
        with error_location(f"posture {at}"):
            check_mass_matrix(masses[first], motion_coordinates(model))


def lowest_modes(
    eigenvalue: Complex[np.ndarray, "b 2n"], shape: Complex[np.ndarray, "b n 2n"], modes: int
) -> tuple[Complex[np.ndarray, "b m"], Complex[np.ndarray, "b m n"]]:
    """The first modes of each posture by |lambda| [b, m] and their shapes [b, m, n], NaN for missing modes."""
    size = np.abs(eigenvalue)
    size = np.where(np.imag(eigenvalue) > REAL * size, size, np.inf)
    order = np.argsort(size, axis=1, kind="stable")[:, :modes]
    exists = np.isfinite(np.take_along_axis(size, order, axis=1))
    lam = np.where(exists, np.take_along_axis(eigenvalue, order, axis=1), np.nan)
    return lam, np.swapaxes(np.take_along_axis(shape, order[:, None, :], axis=2), 1, 2)


def _of_eigenvalue(M: np.ndarray, C: np.ndarray, lam: np.ndarray, phi: np.ndarray, factor: np.ndarray) -> Differentials:
    """Re(factor dlambda), dlambda = -phi^T (lambda^2 dM + lambda dC + dK + j dD) phi / (phi^T (2 lambda M + C) phi)."""
    inertial = 2.0 * lam * np.einsum("bmi,bij,bmj->bm", phi, M, phi, optimize=True)
    viscous = np.einsum("bmi,bij,bmj->bm", phi, C, phi, optimize=True)
    moduli = 2.0 * np.abs(lam) * np.real(np.einsum("bmi,bij,bmj->bm", np.conj(phi), M, phi, optimize=True))
    below = inertial + viscous
    below = np.where(np.abs(below) > DEFECTIVE * moduli, below, np.nan)
    scale = -factor / below
    weight = np.stack([scale * lam**2, scale * lam, scale, 1j * scale], axis=2)
    return Differentials(phi, phi, weight, *np.zeros((2, *lam.shape, 3), complex))


HALF_WIDTHS = np.array([-8.0, -4.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 4.0, 8.0])
"""Frequencies of the coarse search for a peak: distance from each mode over half of its half-power bandwidth."""
REFINED = 2
"""Number of local maxima of the coarse search that are refined: a peak exceeds its neighbouring samples by at most
3 %."""
LEAST_DAMPED = 1e-9
"""Damping ratio up to which the peak of a mode is treated as infinite."""
LEAST_STABLE = 1e-12
"""Smallest eigenvalue of K, scaled to a unit diagonal, up to which the machine is unstable."""


def static_compliance(
    K: Float[np.ndarray, "b n n"], rows: Float[np.ndarray, "b k n"], directions: Float[np.ndarray, "k 3"]
) -> tuple[Float[np.ndarray, "b"], Differentials]:
    """Largest eigenvalue of R K^-1 R^T [m/N], the compliance in the softest direction, and its differential.

    R are displacements along directions. The differential is -x^T dK x + 2 v^T dR x, x = K^-1 R^T v with v the softest
    direction. NaN where K is not positive definite.
    """
    stable = is_stable(K)
    solved = np.linalg.solve(np.where(stable[:, None, None], K, np.eye(K.shape[1])), np.swapaxes(rows, 1, 2))
    values, vectors = np.linalg.eigh(rows @ solved)
    x = np.squeeze(solved @ vectors[:, :, -1:], 2)[:, None, :].astype(complex)
    v = (vectors[:, None, :, -1] @ directions).astype(complex)
    weight = np.broadcast_to(np.array([0.0, 0.0, -1.0, 0.0], dtype=complex), (len(K), 1, 4))
    return np.where(stable, values[:, -1], np.nan), Differentials(x, x, weight, v, v)


def is_stable(K: Float[np.ndarray, "b n n"]) -> Bool[np.ndarray, "b"]:
    """Whether each stiffness matrix is positive definite."""
    return np.linalg.eigvalsh(unit_diagonal(K))[:, 0] > LEAST_STABLE


def receptance_peak(
    M: Float[np.ndarray, "b n n"],
    C: Float[np.ndarray, "b n n"],
    K: Inexact[np.ndarray, "b n n"],
    rows: Float[np.ndarray, "b k n"],
    directions: Float[np.ndarray, "k 3"],
    eigenvalue: Complex[np.ndarray, "b 2n"],
    shape: Complex[np.ndarray, "b n 2n"],
    band_hz: tuple[float, float] | None,
) -> tuple[Float[np.ndarray, "b"], Float[np.ndarray, "b"], Differentials]:
    """Largest singular value of H = R (K + j w C - w^2 M)^-1 R^T over frequency, its frequency [Hz], its differential.

    The peak is searched around every mode on the modal sum of H, phi phi^T / (a (j w - lambda)) with
    a = phi^T (2 lambda M + C) phi, and refined by golden section; H is then evaluated at its frequency. With singular
    vectors u, v the differential is Re(-x^T dZ y + v^T dR x + u^H dR y), x = Z^-1 R^T conj(u), y = Z^-1 R^T v.

    Args:
        M: mass matrices [b, n, n].
        C: damping matrices.
        K: stiffness matrices, or K + j D with structural damping.
        rows: R [b, k, n], of 1 or 3 displacements.
        directions: of these displacements.
        eigenvalue: all eigenvalues of lambda^2 M + lambda C + K.
        shape: the displacement parts of their eigenvectors.
        band_hz: search band; default: 0 Hz to infinity.

    Returns:
        Values [b] in m/N, NaN where K is not positive definite or a mode is undamped; frequencies [b]; differentials of
        one number per posture.
    """
    low, high = (0.0, np.inf) if band_hz is None else (2 * np.pi * band_hz[0], 2 * np.pi * band_hz[1])
    # Eigenvalues with negative imaginary part are far from positive frequencies, and unstable by structural damping.
    far = np.imag(eigenvalue) < 0.0
    damped = np.all(far | (-np.real(eigenvalue) > LEAST_DAMPED * np.abs(eigenvalue)), axis=1)
    peaks = is_stable(np.real(K)) & damped
    # Postures without a peak are computed with finite dummy eigenvalues and set to NaN at the end.
    eigenvalue = np.where(peaks[:, None], eigenvalue, -1.0)
    below = np.einsum("bir,bir->br", shape, 2.0 * eigenvalue[:, None] * (M @ shape) + C @ shape)
    below = np.where(below == 0.0, np.inf, below)
    at_rows = rows @ shape  # [b, k, 2n]
    residue = at_rows[:, :, None, :] * at_rows[:, None, :, :] / below[:, None, None, :]
    omega = _best_frequency(residue, eigenvalue, low, high)

    dynamic = K + 1j * omega[:, None, None] * C - omega[:, None, None] ** 2 * M
    solved = np.linalg.solve(
        np.where(peaks[:, None, None], dynamic, np.eye(K.shape[1])), np.swapaxes(rows, 1, 2).astype(complex)
    )
    left, size, right = np.linalg.svd(rows @ solved)
    x = np.swapaxes(solved @ np.conj(left[:, :, :1]), 1, 2)
    y = np.swapaxes(solved @ np.conj(np.swapaxes(right, 1, 2)[:, :, :1]), 1, 2)
    one = np.ones_like(omega)
    weight = np.stack([omega**2, -1j * omega, -one, -1j * one], axis=1)[:, None, :].astype(complex)
    value, omega = (np.where(peaks, found, np.nan) for found in (size[:, 0], omega))
    of_x, of_y = (np.conj(part[:, None]) @ directions for part in (right[:, 0, :], left[:, :, 0]))
    peak_hz = omega / (2 * np.pi)
    # a bound times 2 pi over 2 pi may differ from it by rounding
    peak_hz = peak_hz if band_hz is None else np.clip(peak_hz, *band_hz)
    return value, peak_hz, Differentials(x, y, weight, of_x, of_y)


def _best_frequency(residue: np.ndarray, eigenvalue: np.ndarray, low: float, high: float) -> np.ndarray:
    """Angular frequency [b] of the largest singular value of sum_r residue_r / (j w - lambda_r)."""

    b, k = residue.shape[:2]
    by_root = np.swapaxes(residue.reshape(b, k * k, -1), 1, 2)

    def gain(omega: np.ndarray) -> np.ndarray:
        h = ((1.0 / (1j * omega[:, :, None] - eigenvalue[:, None])) @ by_root).reshape(*omega.shape, k, k)
        return np.linalg.eigvalsh(np.conj(np.swapaxes(h, -1, -2)) @ h)[..., -1]  # a third faster than by svd

    first = np.array([low]) if np.isinf(high) else np.array([low, high])
    frequency, decay = np.imag(eigenvalue)[:, :, None], np.real(eigenvalue)[:, :, None]
    around, oscillating = np.abs(frequency) + np.abs(decay) * HALF_WIDTHS, frequency > 0.0
    around = np.where(oscillating, around, low).reshape(len(residue), -1)
    ends = np.broadcast_to(first, (len(residue), len(first)))
    omega = np.sort(np.clip(np.concatenate([ends, around], axis=1), low, high), axis=1)
    size = gain(omega)
    before, after = (np.pad(size, ((0, 0), pad), constant_values=-1.0) for pad in ((1, 0), (0, 1)))
    peaks = np.where((size >= before[:, :-1]) & (size >= after[:, 1:]), size, -1.0)
    best = np.argsort(-peaks, axis=1, kind="stable")[:, :REFINED]
    left, middle, right = (
        np.take_along_axis(omega, np.clip(best + k, 0, omega.shape[1] - 1), axis=1).ravel() for k in (-1, 0, 1)
    )

    def slope(omega: np.ndarray, posture: np.ndarray) -> np.ndarray:
        near = 1.0 / (1j * omega[:, None] - eigenvalue[posture])
        h, change = (np.einsum("bijr,br->bij", residue[posture], part) for part in (near, -1j * near**2))
        u, _, v = np.linalg.svd(h)
        return np.real(np.einsum("bi,bij,bj->b", np.conj(u[:, :, 0]), change, np.conj(v[:, 0])))

    posture = np.repeat(np.arange(b), best.shape[1])
    rises = slope(middle, posture) > 0.0
    # the slope at 0 Hz is 0 by symmetry
    bracket = np.where(rises, middle, np.maximum(left, 1e-6 * middle)), np.where(rises, right, middle)
    root = find_root(slope, bracket, args=(posture,))
    # without a root between them the maximum is at the end of the band
    found = np.where(root.success, root.x, np.where(rises, right, left)).reshape(b, -1)
    return np.take_along_axis(found, np.argmax(gain(found), axis=1)[:, None], axis=1)[:, 0]


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


class ComplianceOptions(TypedDict, total=False):
    """Keyword arguments of `modal_quantities` for compliances."""

    direction: Sequence[float] | np.ndarray | None
    """d, ground axes, any length; default: the softest one."""
    band_hz: tuple[float, float] | None
    """Band of the dynamic compliance; default: 0 Hz to infinity."""


def modal_quantities(
    model: Model,
    postures: Float[np.ndarray, "p n"],
    quantities: Sequence[str] = ("frequency", "damping"),
    modes: int | None = None,
    frame: str = TOOL,
    vary: Vary | None = None,
    u: Float[np.ndarray, "d"] | None = None,
    at: LinearizeAt = "posture",
    report: Callable[[int, int], None] | None = None,
    **compliance: Unpack[ComplianceOptions],
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
        vary: the machine as a function of u, for gradients by u.
        u: values at which the gradients are evaluated; `vary(u)` is the model.
        at: linearization point, "posture" or "equilibrium" under gravity; without an equilibrium, values are NaN.
        report: callback after every batch with the number of finished postures and their total number.
        compliance: direction and band_hz, see `ComplianceOptions`.

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
    check_quantities(quantities, MODAL_QUANTITIES)
    if model.frame_node[frame_index(model, frame)] < 0 and not set(quantities).issubset(BY_MODE):
        raise ValueError(f"frame '{frame}' does not move, expected one that the machine moves")
    direction, band_hz = compliance.get("direction"), compliance.get("band_hz")
    along = None if direction is None else checked_direction(direction)
    band_hz = None if band_hz is None else band_of(band_hz, 0.0)
    postures = np.asarray(postures, dtype=float)
    if postures.ndim != 2 or postures.shape[1] != n or not np.all(np.isfinite(postures)):
        raise ValueError(f"postures have shape {postures.shape}, expected (number of postures, {n}), all finite")
    check_all_closed(model, postures)
    check_choice("at", at, ("posture", "equilibrium"))
    directions = np.eye(3) if along is None else (along / np.linalg.norm(along))[None]

    def solve(first: int) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, Differentials]]:
        """A batch of postures with its quantities and their differentials."""
        rows = postures[first : first + size]
        with alone:
            found = jax.tree.map(np.asarray, _tangents(model, jnp.asarray(padded(rows, size)), frame, at))
        tangent, jacobian = jax.tree.map(lambda part: part[: len(rows)], found)
        exists = np.asarray(np.isfinite(tangent.stiffness).all(axis=(1, 2)) & np.isfinite(jacobian).all(axis=(1, 2)))
        # Postures without an equilibrium are computed with finite dummy matrices and set to NaN at the end.
        matrices = [np.where(exists[:, None, None], part, np.eye(part.shape[1])) for part in jax.tree.leaves(tangent)]
        if set(quantities) - {"static_compliance"}:
            check_masses(model, matrices[0], rows)
        observed = directions @ np.where(exists[:, None, None], jacobian, 0.0)
        values, differentials = _solve(matrices, observed, directions, quantities, modes, band_hz)
        for value in values.values():
            value[~exists] = np.nan
        return rows, values, differentials

    found: list[dict[str, np.ndarray]] = []
    slopes: list[dict[str, np.ndarray]] = []
    size, done = batch_size_for(len(postures), CHUNK, len(motion_coordinates(model))), 0
    # NumPy's LAPACK is called on threads to use all cores; within XLA it uses one, and concurrent calls can deadlock
    # (see `jaxmb.runtime`). For small matrices threads within LAPACK only add overhead.
    alone = Lock()
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(os.cpu_count()) as pool:
        for rows, values, differentials in pool.map(solve, range(0, len(postures), size)):
            found.append(values)
            if vary is not None and u is not None:
                with alone:
                    slopes.append(_gradients(vary, jnp.asarray(u), rows, frame, at, differentials))
            done += len(rows)
            if report is not None:
                report(done, len(postures))
    values, gradients = (
        {name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else ())}
        for parts in (found, slopes)
    )
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


@compiled
def _tangents(
    model: Model, postures: Float[Array, "b n"], frame: str, at: LinearizeAt
) -> tuple[Tangent, Float[Array, "b 3 n"]]:
    return jax.vmap(lambda q: _tangent(model, q, frame, at))(postures)


def _tangent(model: Model, q: Array, frame: str, at: LinearizeAt) -> tuple[Tangent, Array]:
    """Tangent of a machine whose springs are unloaded at q, and the Jacobian of the frame's translation; NaN without an
    equilibrium."""
    point = q if at == "posture" else equilibrium_or_nan(model, q)
    tangent, jacobian = tangent_about(model, q, point), motion_jacobian(model, point, frame)[:3]
    if at == "posture":
        return tangent, jacobian
    # tangents that do not depend on the point would be finite without an equilibrium
    exists = jnp.all(jnp.isfinite(point))
    return jax.tree.map(lambda part: jnp.where(exists, part, jnp.nan), (tangent, jacobian))


def _solve(
    matrices: Sequence[np.ndarray],
    rows: np.ndarray,
    directions: np.ndarray,
    quantities: Sequence[str],
    modes: int,
    band_hz: tuple[float, float] | None,
) -> tuple[dict[str, np.ndarray], dict[str, Differentials]]:
    """Quantities of a batch by name, and their differentials.

    Args:
        matrices: M, C and K, each [b, n, n], and D with structural damping.
        rows: observed displacements of the frame [b, k, n].
        directions: along these directions [k, 3].
        quantities: as of `modal_quantities`.
        modes: their number.
        band_hz: band of the dynamic compliance.
    """
    M, C, K, *structural = matrices
    values: dict[str, np.ndarray] = {}
    differentials: dict[str, Differentials] = {}
    if "static_compliance" in quantities:
        values["static_compliance"], differentials["static_compliance"] = static_compliance(K, rows, directions)
    if set(quantities) - {"static_compliance"}:
        K = K + 1j * structural[0] if structural else K
        eigenvalue, shape = first_order_modes(M, C, K)
        if set(BY_MODE) & set(quantities):
            lam, phi = lowest_modes(eigenvalue, shape, modes)
            size = np.abs(lam)
            with np.errstate(invalid="ignore"):  # of missing modes
                zeta, slope = -np.real(lam) / size, np.conj(lam) / size  # d|lambda| = Re(slope dlambda)
                factors = slope / (2 * np.pi), -(1.0 + zeta * slope) / size
                for name, value, factor in zip(BY_MODE, (size / (2 * np.pi), zeta), factors, strict=True):
                    if name in quantities:
                        values[name], differentials[name] = value, _of_eigenvalue(M, C, lam, phi, factor)
        if "dynamic_compliance" in quantities:
            peak = receptance_peak(M, C, K, rows, directions, eigenvalue, shape, band_hz)
            values["dynamic_compliance"], values["peak_hz"], differentials["dynamic_compliance"] = peak
    return values, differentials


def _gradients(
    vary: Vary, u: Array, rows: np.ndarray, frame: str, at: LinearizeAt, differentials: dict[str, Differentials]
) -> dict[str, np.ndarray]:
    """Gradients [b, ..., d] by u of the quantities with these differentials."""
    names = [side.name for side in fields(Differentials)]
    sides = [np.concatenate([getattr(part, name) for part in differentials.values()], axis=1) for name in names]
    (gradient,) = in_batches(
        lambda q, *parts: (_slopes(vary, u, frame, at, q, parts),),
        batch_size_for(len(rows), CHUNK, sides[0].shape[2]),
        rows,
        *sides,
    )
    ends = np.cumsum([part.left.shape[1] for part in differentials.values()])
    parts = np.split(gradient, ends[:-1], axis=1)
    return {name: part if name in BY_MODE else part[:, 0] for name, part in zip(differentials, parts, strict=True)}


@compiled
def _slopes(
    vary: Vary,
    u: Float[Array, "d"],
    frame: str,
    at: LinearizeAt,
    postures: Float[Array, "b n"],
    sides: tuple[Complex[Array, "b s _"], ...],
) -> Float[Array, "b s d"]:
    """Derivatives by u of Re(sum_k w_k l^T A_k r + p^T J l + q^T J r) over A = M, C, K and, if any, D.

    Sides are l, r, w, p and q, as in `Differentials`. Forward mode, as an equilibrium is an implicit function.
    """

    def at_posture(q: Array, x: Array, y: Array, w: Array, of_x: Array, of_y: Array) -> Array:
        slope, of_jacobian = jax.jacfwd(lambda v: _tangent(vary(v), q, frame, at))(u)
        matrices = jnp.stack(jax.tree.leaves(slope))
        whole = (
            jnp.einsum("sk,si,kijd,sj->sd", w[:, : len(matrices)], x, matrices, y)
            + jnp.einsum("sa,aid,si->sd", of_x, of_jacobian, x)
            + jnp.einsum("sa,aid,si->sd", of_y, of_jacobian, y)
        )
        return whole.real

    return jax.vmap(at_posture)(postures, *sides)
