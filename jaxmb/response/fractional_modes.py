"""Modes of machines with fractional damping, a nonlinear eigenvalue problem."""

import numpy as np
from jaxtyping import Complex, Float
from scipy.linalg import eigh

MOST_STEPS = 40
"""Largest number of Newton steps."""
CONTINUATION = 20
"""Continuation steps in which damping is increased where Newton's method does not converge directly."""
CONVERGED = 1e-12
"""Last relative change of s."""
NEAR = 1e-5
"""Relative distance of undamped frequencies below which shapes do not change within their common subspace."""


class _NotFoundError(Exception):
    pass


def fractional_modes(
    mass: Float[np.ndarray, "n n"],
    damping: Float[np.ndarray, "n n"],
    stiffness: Complex[np.ndarray, "n n"],
    fractional: Float[np.ndarray, "n n"],
    order: float,
) -> tuple[Complex[np.ndarray, "m"], Complex[np.ndarray, "n m"]]:
    """Eigenvalues with Im > 0 by ascending size, and shapes, of (s^2 M + s C + K + s^a E) v = 0.

    Each starts from an undamped mode: first s is solved for that fixed shape, then s and v together by Newton's method,
    with a fixed scale along the start. Rigid-body and non-oscillating modes are omitted.

    Args:
        mass: M.
        damping: C.
        stiffness: K + j D.
        fractional: E, the factor of s^a.
        order: a.

    Raises:
        RuntimeError: a mode was not found.

    Source: Ruhe, "Algorithms for the nonlinear eigenvalue problem", SIAM J. Numer. Anal. 10, 1973.
    """
    parts = mass, damping, stiffness, fractional
    omega, starts = _undamped(mass, np.real(stiffness))
    roots, shapes = list[complex](), list[np.ndarray]()
    for r, start in enumerate(starts.T):
        repeated = bool(np.any(np.abs(np.delete(omega, r) - omega[r]) <= NEAR * omega[r]))
        try:
            mode = _from_start(parts, order, 1j * omega[r], start.astype(complex), repeated, 1)
            if _is_duplicate(mode, roots, shapes):
                raise _NotFoundError
        except _NotFoundError:
            mode = _continued(parts, order, 1j * omega[r], start.astype(complex), repeated, (roots, shapes))
        roots.append(mode[0])
        shapes.append(mode[1])
    root, shape = np.array(roots, dtype=complex), np.array(shapes, dtype=complex).reshape(-1, mass.shape[0]).T
    by_size = np.argsort(np.abs(root), kind="stable")
    by_size = by_size[np.imag(root)[by_size] > 0.0]
    return root[by_size], shape[:, by_size]


def _undamped(mass: np.ndarray, stiffness: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Angular frequencies, ascending, and shapes of undamped modes."""
    symmetric = all(np.abs(part - part.T).max() <= NEAR * np.abs(part).max() for part in (mass, stiffness))
    try:
        if not symmetric:
            raise np.linalg.LinAlgError
        inverse, vectors = eigh(mass, stiffness)  # most accurate for the lowest modes
        values = 1.0 / inverse
    except np.linalg.LinAlgError:  # rigid-body modes, or a machine in motion
        solution = np.linalg.eig(np.linalg.solve(mass, stiffness))
        values, vectors = np.real(solution.eigenvalues), np.real(solution.eigenvectors)
    chosen = np.argsort(values, kind="stable")
    chosen = chosen[values[chosen] > 0.0]
    return np.sqrt(values[chosen]), vectors[:, chosen]


Parts = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _continued(
    parts: Parts,
    order: float,
    s: complex,
    v: np.ndarray,
    repeated: bool,
    previous: tuple[list[complex], list[np.ndarray]],
) -> tuple[complex, np.ndarray]:
    hertz = abs(s) / (2.0 * np.pi)
    try:
        mode = _from_start(parts, order, s, v, repeated, CONTINUATION)
    except _NotFoundError:
        mode = None
    if mode is None or _is_duplicate(mode, *previous):
        raise RuntimeError(
            f"fractional damping: the mode with the undamped frequency {hertz:.4g} Hz was not found; its damping is too"
            " large"
        )
    return mode


def _from_start(
    parts: Parts, order: float, s: complex, v: np.ndarray, repeated: bool, steps: int
) -> tuple[complex, np.ndarray]:
    mass, damping, stiffness, fractional = parts
    elastic, structural = np.real(stiffness), 1j * np.imag(stiffness)
    for fraction in np.linspace(0.0, 1.0, steps + 1)[1:]:
        part = mass, fraction * damping, elastic + fraction * structural, fraction * fractional
        s, v = _newton(part, order, _scalar(part, order, s, v), v, repeated)
    return s, v


def _scalar(parts: Parts, order: float, s: complex, v: np.ndarray) -> complex:
    """s for a fixed shape, by fixed-point iteration of s^2 = -(k + s c + s^a e)."""
    m, c, k, e = (np.vdot(v, part @ v) for part in parts)
    for _ in range(MOST_STEPS):
        update = 1j * np.sqrt((k + s * c + s**order * e) / m)
        if not np.isfinite(update) or abs(update - s) <= CONVERGED * abs(s):
            break
        s = update
    return s


def _newton(parts: Parts, order: float, s: complex, v: np.ndarray, repeated: bool) -> tuple[complex, np.ndarray]:
    mass, damping, stiffness, fractional = parts
    n, v = v.size, v / np.linalg.norm(v)
    scale = v.conj()
    bordered = np.zeros((n + 1, n + 1), dtype=complex)
    for _ in range(MOST_STEPS):
        power = s**order
        dynamic = s**2 * mass + s * damping + stiffness + power * fractional
        bordered[:n, :n] = dynamic
        bordered[:n, n] = (2.0 * s * mass + damping + order * power / s * fractional) @ v
        bordered[n, :n] = scale * abs(s) ** 2 * np.abs(mass).max()
        residual = -np.append(dynamic @ v, 0.0)
        if repeated:
            step = np.linalg.lstsq(bordered, residual, rcond=1e-10)[0]
        else:
            try:
                step = np.linalg.solve(bordered, residual)
            except np.linalg.LinAlgError:
                raise _NotFoundError from None
        v, s = v + step[:n], s + step[n]
        if not np.isfinite(s) or s == 0.0:
            break
        if abs(step[n]) <= CONVERGED * abs(s) and np.linalg.norm(step[:n]) <= 1e-6 * np.linalg.norm(v):
            return complex(s), v
    raise _NotFoundError


def _is_duplicate(mode: tuple[complex, np.ndarray], roots: list[complex], shapes: list[np.ndarray]) -> bool:
    """Whether a mode is among those found previously."""
    s, v = mode
    for root, shape in zip(roots, shapes, strict=True):
        similarity = abs(np.vdot(shape, v)) ** 2 / (np.linalg.norm(shape) * np.linalg.norm(v)) ** 2
        if abs(s - root) <= 1e-8 * abs(s) and similarity > 1.0 - 1e-6:
            return True
    return False
