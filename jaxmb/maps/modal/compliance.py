"""Static compliance of the tool, and its dynamic compliance at the frequency of the largest receptance."""

import numpy as np
from jaxtyping import Bool, Complex, Float, Inexact

from jaxmb.maps.modal.eigenvalues import Differentials

HALF_WIDTHS = np.array([-8.0, -4.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 4.0, 8.0])
"""Frequencies of the coarse search for a peak: distance from each mode over half of its half-power bandwidth."""
REFINED = 2
"""Number of local maxima of the coarse search that are refined: a peak exceeds its neighbouring samples by at most
3 %."""
GOLDEN_STEPS = 16
"""Steps of golden section, which reduce the bracket to 5e-4 of its width."""
SECANT_STEPS = 5
"""Subsequent secant steps on the slope, which determines the frequency to rounding, unlike the value."""
LEAST_DAMPED = 1e-9
"""Damping ratio up to which the peak of a mode is treated as infinite."""
LEAST_STABLE = 1e-12
"""Smallest eigenvalue of K, scaled to a unit diagonal, up to which the machine is unstable."""


def static_compliance(
    K: Float[np.ndarray, "b n n"], rows: Float[np.ndarray, "b k n"]
) -> tuple[Float[np.ndarray, "b"], Differentials]:
    """Largest eigenvalue of R K^-1 R^T [m/N], the compliance in the softest direction, and its differential.

    The differential is -x^T dK x + 2 v^T dR x, x = K^-1 R^T v with v the softest direction. NaN where K is not positive
    definite.
    """
    stable = is_stable(K)
    solved = np.linalg.solve(np.where(stable[:, None, None], K, np.eye(K.shape[1])), np.swapaxes(rows, 1, 2))
    values, vectors = np.linalg.eigh(rows @ solved)
    x = np.squeeze(solved @ vectors[:, :, -1:], 2)[:, None, :].astype(complex)
    v = vectors[:, None, :, -1].astype(complex)
    weight = np.broadcast_to(np.array([0.0, 0.0, -1.0, 0.0], dtype=complex), (len(K), 1, 4))
    return np.where(stable, values[:, -1], np.nan), Differentials(x, x, weight, v, v)


def is_stable(K: Float[np.ndarray, "b n n"]) -> Bool[np.ndarray, "b"]:
    """Whether each stiffness matrix is positive definite."""
    diagonal = np.diagonal(K, axis1=1, axis2=2)
    scale = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    return np.linalg.eigvalsh(K * scale[:, :, None] * scale[:, None, :])[:, 0] > LEAST_STABLE


def receptance_peak(
    M: Float[np.ndarray, "b n n"],
    C: Float[np.ndarray, "b n n"],
    K: Inexact[np.ndarray, "b n n"],
    rows: Float[np.ndarray, "b k n"],
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
    of_x, of_y = right[:, None, 0, :].conj(), np.conj(left[:, None, :, 0])
    peak_hz = omega / (2 * np.pi)
    # a bound times 2 pi over 2 pi may differ from it by rounding
    peak_hz = peak_hz if band_hz is None else np.clip(peak_hz, *band_hz)
    return value, peak_hz, Differentials(x, y, weight, of_x, of_y)


def _best_frequency(residue: np.ndarray, eigenvalue: np.ndarray, low: float, high: float) -> np.ndarray:
    """Angular frequency [b] of the largest singular value of sum_r residue_r / (j w - lambda_r)."""

    b, k = residue.shape[:2]
    by_root = np.swapaxes(residue.reshape(b, k * k, -1), 1, 2)

    def gain(omega: np.ndarray) -> np.ndarray:
        h = (1.0 / (1j * omega[:, :, None] - eigenvalue[:, None])) @ by_root
        return _largest_square(h.reshape(*omega.shape, k, k))

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
    left = np.take_along_axis(omega, np.maximum(best - 1, 0), axis=1)
    right = np.take_along_axis(omega, np.minimum(best + 1, omega.shape[1] - 1), axis=1)
    ratio = (np.sqrt(5.0) - 1.0) / 2.0
    inner, outer = right - ratio * (right - left), left + ratio * (right - left)
    at_inner, at_outer = gain(inner), gain(outer)
    for _ in range(GOLDEN_STEPS):
        rises = at_inner < at_outer
        left, right = np.where(rises, inner, left), np.where(rises, right, outer)
        kept, at_kept = np.where(rises, outer, inner), np.where(rises, at_outer, at_inner)
        fresh = np.where(rises, left + ratio * (right - left), right - ratio * (right - left))
        at_fresh = gain(fresh)
        inner, outer = np.where(rises, kept, fresh), np.where(rises, fresh, kept)
        at_inner, at_outer = np.where(rises, at_kept, at_fresh), np.where(rises, at_fresh, at_kept)
    # The highest one; a maximum at the end of the band is kept.
    which = np.argmax(gain(0.5 * (left + right)), axis=1)[:, None]
    left, right = (np.take_along_axis(end, which, axis=1)[:, 0] for end in (left, right))
    return _flattest(residue, eigenvalue, left, right)


def _flattest(residue: np.ndarray, eigenvalue: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Frequency [b] of zero slope of the largest singular value between two frequencies [b], else one of these."""

    def slope(omega: np.ndarray) -> np.ndarray:
        near = 1.0 / (1j * omega[:, None] - eigenvalue)
        h, change = (np.einsum("bijr,br->bij", residue, part) for part in (near, -1j * near**2))
        u, _, v = np.linalg.svd(h)
        return np.real(np.einsum("bi,bij,bj->b", np.conj(u[:, :, 0]), change, np.conj(v[:, 0])))

    low, high = left, right
    at_left, at_right = slope(left), slope(right)
    for _ in range(SECANT_STEPS):
        rise = at_right - at_left
        step = np.where(rise != 0.0, at_right * (right - left) / np.where(rise != 0.0, rise, 1.0), 0.0)
        left, at_left, right = right, at_right, np.clip(right - step, low, high)
        at_right = slope(right)
    return right


def _largest_square(h: Complex[np.ndarray, "... k k"]) -> Float[np.ndarray, "..."]:
    """Largest eigenvalue of H^H H, for one row or for three, the latter by the trigonometric solution of the cubic."""
    if h.shape[-1] == 1:
        return np.abs(h[..., 0, 0]) ** 2
    gram = np.einsum("...ki,...kj->...ij", np.conj(h), h)
    diagonal = np.real(np.diagonal(gram, axis1=-2, axis2=-1))
    mean = diagonal.mean(axis=-1)
    off = np.abs(gram[..., 0, 1]) ** 2 + np.abs(gram[..., 0, 2]) ** 2 + np.abs(gram[..., 1, 2]) ** 2
    scale = np.sqrt((np.sum((diagonal - mean[..., None]) ** 2, axis=-1) + 2.0 * off) / 6.0)
    unit = (gram - mean[..., None, None] * np.eye(3)) / np.where(scale > 0.0, scale, 1.0)[..., None, None]
    half = np.clip(0.5 * _determinant(unit), -1.0, 1.0)
    return mean + 2.0 * scale * np.cos(np.arccos(half) / 3.0)


def _determinant(h: np.ndarray) -> np.ndarray:
    """Determinants of Hermitian 3 x 3 matrices."""
    a, b, c = (np.real(h[..., i, i]) for i in range(3))
    d, e, f = h[..., 0, 1], h[..., 0, 2], h[..., 1, 2]
    return a * (b * c - np.abs(f) ** 2) - b * np.abs(e) ** 2 - c * np.abs(d) ** 2 + 2.0 * np.real(d * f * np.conj(e))
