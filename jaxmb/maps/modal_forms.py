"""Derivatives of modal quantities as forms in dM, dC and dK: what is posture by posture the same for all parameters."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Complex, Float

DEFECTIVE = 1e-6
"""|phi^T (2 lambda M + C) phi| below which, beside the sizes of its terms, an eigenvalue has no derivative: it is
repeated with one vector only, as at critical damping, which rounding blurs to the root of 1e-16 and more."""


@dataclass(frozen=True)
class Forms:
    """Differentials Re(sum_k w_k l^T dA_k r), A = M, C, K, of s numbers at each of b postures."""

    left: Complex[np.ndarray, "b s n"]
    right: Complex[np.ndarray, "b s n"]
    weight: Complex[np.ndarray, "b s 3"]


def stacked(forms: dict[str, Forms]) -> tuple[Forms, dict[str, int]]:
    """All forms as one, and how many numbers each name has."""
    parts = list(forms.values())
    whole = Forms(*(np.concatenate([getattr(f, k) for f in parts], axis=1) for k in ("left", "right", "weight")))
    return whole, {name: form.left.shape[1] for name, form in forms.items()}


def frequency_forms(
    M: Float[np.ndarray, "b n n"],
    C: Float[np.ndarray, "b n n"],
    lam: Complex[np.ndarray, "b m"],
    phi: Complex[np.ndarray, "b m n"],
) -> tuple[Float[np.ndarray, "b m"], Forms]:
    """|lambda| / 2 pi [Hz] of eigenvalues with vectors phi; differential Re(conj(lambda) dlambda) / (2 pi |lambda|)."""
    size = np.abs(lam)
    return size / (2 * np.pi), _of_eigenvalue(M, C, lam, phi, np.conj(lam) / (2 * np.pi * size))


def damping_forms(
    M: Float[np.ndarray, "b n n"],
    C: Float[np.ndarray, "b n n"],
    lam: Complex[np.ndarray, "b m"],
    phi: Complex[np.ndarray, "b m n"],
) -> tuple[Float[np.ndarray, "b m"], Forms]:
    """-Re(lambda) / |lambda| and its differential, Re((-1 - zeta conj(lambda)/|lambda|) dlambda) / |lambda|."""
    size = np.abs(lam)
    zeta = -np.real(lam) / size
    return zeta, _of_eigenvalue(M, C, lam, phi, -(1.0 + zeta * np.conj(lam) / size) / size)


def _of_eigenvalue(M: np.ndarray, C: np.ndarray, lam: np.ndarray, phi: np.ndarray, factor: np.ndarray) -> Forms:
    """Re(factor dlambda), dlambda = -phi^T (lambda^2 dM + lambda dC + dK) phi / (phi^T (2 lambda M + C) phi)."""
    inertial = 2.0 * lam * np.einsum("bmi,bij,bmj->bm", phi, M, phi, optimize=True)
    viscous = np.einsum("bmi,bij,bmj->bm", phi, C, phi, optimize=True)
    moduli = 2.0 * np.abs(lam) * np.real(np.einsum("bmi,bij,bmj->bm", np.conj(phi), M, phi, optimize=True))
    below = inertial + viscous
    below = np.where(np.abs(below) > DEFECTIVE * moduli, below, np.nan)
    scale = -factor / below
    return Forms(phi, phi, np.stack([scale * lam**2, scale * lam, scale], axis=2))
