"""Modal damping."""

from collections.abc import Sequence

import jax
import numpy as np
from scipy.linalg import eigh

from jaxmb.mechanics.tangent import Tangent
from jaxmb.response.modal import check_mass_matrix

UNSYMMETRIC = 1e-9
"""Difference to the transpose, relative to the largest entry, up to which a matrix is symmetric."""
LEAST_STIFFNESS = 1e-12
"""Ratio of the smallest to the largest omega^2 at and below which a mode is a rigid-body mode."""


def with_modal_damping(tangent: Tangent, damping_ratio: float | Sequence[float] | np.ndarray) -> Tangent:
    """The tangent with a damping ratio for each undamped mode instead of all its damping, of any kind.

    C = M Phi diag(2 zeta omega) Phi^T M, with K Phi = M Phi diag(omega^2) and Phi^T M Phi = I: the modes keep their
    undamped frequencies and shapes, and `modes` returns zeta where it is below 1.

    Args:
        tangent: from `linearize`, or of a `ReducedMotion`.
        damping_ratio: zeta of all modes, or of the lowest ones by ascending frequency, the last one applying to the
            others as well.

    Raises:
        ValueError: a damping ratio is negative or not finite, there are none or more than modes, the matrices are not
            symmetric, the mass matrix is singular, or the stiffness matrix is not positive definite.

    Source: Caughey, "Classical normal modes in damped linear dynamic systems", J. Appl. Mech. 27, 1960; Géradin and
    Rixen, Mechanical Vibrations, 2015.
    """
    M, K = np.asarray(tangent.mass), np.asarray(tangent.stiffness)
    n = M.shape[0]
    zeta = np.asarray(damping_ratio, dtype=float)
    if zeta.ndim > 1 or not 0 < zeta.size <= n:
        raise ValueError(
            f"damping_ratio has shape {zeta.shape}, expected one number, or one for each of at most {n} modes"
        )
    zeta = np.atleast_1d(zeta)
    wrong = zeta[~(np.isfinite(zeta) & (zeta >= 0.0))]
    if wrong.size:
        raise ValueError(f"damping_ratio is {wrong[0]:g}, expected finite numbers of 0 or more")
    check_mass_matrix(M)
    if any(not np.abs(part - part.T).max() <= UNSYMMETRIC * np.abs(part).max() for part in (M, K)):
        raise ValueError("the mass or stiffness matrix is not symmetric, expected a machine at rest for modal damping")
    values, modes = eigh(0.5 * (K + K.T), 0.5 * (M + M.T))
    if not values[0] > LEAST_STIFFNESS * values[-1]:
        raise ValueError(
            f"the stiffness matrix is not positive definite: a mode has omega^2 = {values[0]:.3g} (rad/s)^2, expected"
            " no rigid-body or unstable modes for modal damping"
        )
    zeta = np.concatenate([zeta, np.full(n - zeta.size, zeta[-1])])
    mass_shapes = M @ modes
    damping = (mass_shapes * (2.0 * zeta * np.sqrt(values))) @ mass_shapes.T
    return Tangent(tangent.mass, jax.device_put(damping), tangent.stiffness)
