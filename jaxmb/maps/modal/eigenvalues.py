"""Eigenvalues of a machine at many postures, and differentials of frequencies and damping by its matrices.

With structural damping K + j D replaces K throughout, and D is the last of the matrices.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
from jaxtyping import Complex, Float, Inexact

from jaxmb.io.validation import place
from jaxmb.machine.build import Model
from jaxmb.mechanics.tangent import motion_coordinates
from jaxmb.response.modal import check_mass_matrix, singular_mass_matrices

DEFECTIVE = 1e-6
"""|phi^T (2 lambda M + C) phi| over the size of its terms, below which an eigenvalue is defective (double with a single
eigenvector, as at critical damping) and has no derivative. Rounding of an exact zero is of order 1e-8."""


@dataclass(frozen=True)
class Differentials:
    """Differentials Re(sum_k w_k l^T dA_k r + p^T dR l + q^T dR r), A_k = M, C, K, D, of s numbers at b postures.

    R are the observed displacements; they change with the operating point.
    """

    left: Complex[np.ndarray, "b s n"]
    right: Complex[np.ndarray, "b s n"]
    weight: Complex[np.ndarray, "b s 4"]
    of_left: Complex[np.ndarray, "b s k"] | None = None
    """p; None for 0."""
    of_right: Complex[np.ndarray, "b s k"] | None = None
    """q."""

    def in_space(self, rows: Float[np.ndarray, "k 3"]) -> "Differentials":
        """The same for R = rows J, with J the translations along all three axes."""
        of_left, of_right = (
            np.zeros((*self.left.shape[:2], 3), complex) if part is None else part @ rows
            for part in (self.of_left, self.of_right)
        )
        return replace(self, of_left=of_left, of_right=of_right)


def stacked(parts: dict[str, Differentials]) -> tuple[Differentials, dict[str, int]]:
    """Differentials of several quantities concatenated along s, and the size of each quantity."""
    whole = (
        np.concatenate([getattr(part, side.name) for part in parts.values()], axis=1) for side in fields(Differentials)
    )
    return Differentials(*whole), {name: part.left.shape[1] for name, part in parts.items()}


def check_masses(model: Model, masses: Float[np.ndarray, "b n n"], postures: Float[np.ndarray, "b n"]) -> None:
    """Raise ValueError for the first posture of a batch with a singular mass matrix."""
    singular = singular_mass_matrices(masses)
    if np.any(singular):
        first = int(np.argmax(singular))
        at = ", ".join(f"{name} = {value:.4g}" for name, value in zip(model.coordinates, postures[first], strict=True))
        with place(f"posture {at}"):
            check_mass_matrix(masses[first], motion_coordinates(model))


def eigenpairs(
    M: Float[np.ndarray, "b n n"], C: Float[np.ndarray, "b n n"], K: Inexact[np.ndarray, "b n n"]
) -> tuple[Complex[np.ndarray, "b 2n"], Complex[np.ndarray, "b n 2n"]]:
    """All 2n eigenvalues [b, 2n] of lambda^2 M + lambda C + K, and their shapes [b, n, 2n]."""
    b, n, _ = M.shape
    solved = np.linalg.solve(M, np.concatenate([K, C], axis=2))
    upper = np.broadcast_to(np.concatenate([np.zeros((n, n)), np.eye(n)], axis=1), (b, n, 2 * n))
    found = np.linalg.eig(np.concatenate([upper, -solved], axis=1))
    return found.eigenvalues.astype(complex), found.eigenvectors[:, :n].astype(complex)


def lowest_modes(
    eigenvalue: Complex[np.ndarray, "b 2n"], shape: Complex[np.ndarray, "b n 2n"], modes: int
) -> tuple[Complex[np.ndarray, "b m"], Complex[np.ndarray, "b m n"]]:
    """The first modes of each posture by |lambda| [b, m] and their shapes [b, m, n], NaN for missing modes."""
    size = np.where(np.imag(eigenvalue) > 0.0, np.abs(eigenvalue), np.inf)
    order = np.argsort(size, axis=1, kind="stable")[:, :modes]
    exists = np.isfinite(np.take_along_axis(size, order, axis=1))
    lam = np.where(exists, np.take_along_axis(eigenvalue, order, axis=1), np.nan)
    phi = np.take_along_axis(shape, order[:, None, :], axis=2)
    return lam, np.swapaxes(phi, 1, 2)


def frequency_differentials(
    M: Float[np.ndarray, "b n n"],
    C: Float[np.ndarray, "b n n"],
    lam: Complex[np.ndarray, "b m"],
    phi: Complex[np.ndarray, "b m n"],
) -> tuple[Float[np.ndarray, "b m"], Differentials]:
    """Frequencies |lambda| / 2 pi [Hz] and their differentials Re(conj(lambda) dlambda) / (2 pi |lambda|)."""
    size = np.abs(lam)
    return size / (2 * np.pi), _of_eigenvalue(M, C, lam, phi, np.conj(lam) / (2 * np.pi * size))


def damping_differentials(
    M: Float[np.ndarray, "b n n"],
    C: Float[np.ndarray, "b n n"],
    lam: Complex[np.ndarray, "b m"],
    phi: Complex[np.ndarray, "b m n"],
) -> tuple[Float[np.ndarray, "b m"], Differentials]:
    """Damping ratios zeta = -Re(lambda) / |lambda| and differentials Re((-1 - zeta conj(lambda)/|lambda|) dlambda) /
    |lambda|."""
    size = np.abs(lam)
    zeta = -np.real(lam) / size
    return zeta, _of_eigenvalue(M, C, lam, phi, -(1.0 + zeta * np.conj(lam) / size) / size)


def _of_eigenvalue(M: np.ndarray, C: np.ndarray, lam: np.ndarray, phi: np.ndarray, factor: np.ndarray) -> Differentials:
    """Re(factor dlambda), dlambda = -phi^T (lambda^2 dM + lambda dC + dK + j dD) phi / (phi^T (2 lambda M + C) phi)."""
    inertial = 2.0 * lam * np.einsum("bmi,bij,bmj->bm", phi, M, phi, optimize=True)
    viscous = np.einsum("bmi,bij,bmj->bm", phi, C, phi, optimize=True)
    moduli = 2.0 * np.abs(lam) * np.real(np.einsum("bmi,bij,bmj->bm", np.conj(phi), M, phi, optimize=True))
    below = inertial + viscous
    below = np.where(np.abs(below) > DEFECTIVE * moduli, below, np.nan)
    scale = -factor / below
    return Differentials(phi, phi, np.stack([scale * lam**2, scale * lam, scale, 1j * scale], axis=2))
