"""Standard deviations of natural frequencies and damping ratios, by those of the parameters."""

import jax
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.identify.estimation.identifiability import deviations
from jaxmb.identify.experiments.motion import PostureTest, without_weight
from jaxmb.identify.experiments.motion_view import motion_view
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.machine.build import Model
from jaxmb.mechanics.tangent import LinearizeAt, Tangent
from jaxmb.response.modal import Modes


def mode_deviations(
    test: PostureTest,
    model: Model,
    free: FreeParameters,
    u: Float[np.ndarray, "d"],
    tangent: Tangent,
    found: Modes,
    rows: Float[np.ndarray, "k d"],
) -> Float[np.ndarray, "mode 2"]:
    """Standard deviations of natural frequency (Hz) and damping ratio of each mode, to first order.

    dlambda = -phi^T (lambda^2 dM + lambda dC + dK) phi / phi^T (2 lambda M + C) phi, with K + j D + E lambda^a for K
    where there is structural or fractional damping.

    Args:
        test: at whose posture the modes are.
        model: to which the free parameters are applied.
        free: the free parameters.
        u: their fitted entries.
        tangent: of the identified machine at the test's posture.
        found: some of its modes.
        rows: information of the fit about u, `information_rows`.

    Returns:
        inf where a mode depends on a direction of u that has no effect on the data.
    """
    slope = _slope(test.q, test.at, model, free, jax.device_put(u))
    M, phi, root = tangent.mass, np.asarray(found.shape), np.asarray(found.eigenvalue)[:, None]

    def along(matrix: Array) -> np.ndarray:
        return np.einsum("im,ijd,jm->md", phi, np.asarray(matrix).reshape(*M.shape, -1), phi, optimize=True)

    changes = root**2 * along(slope.mass) + root * along(slope.damping) + along(slope.stiffness)
    below = 2.0 * root * along(tangent.mass) + along(tangent.damping)
    if slope.structural is not None:
        changes = changes + 1j * along(slope.structural)
    if tangent.fractional is not None and slope.fractional is not None:
        E, order = along(tangent.fractional.matrix), float(tangent.fractional.order)
        of_order = np.log(root) * E * np.asarray(slope.fractional.order)
        changes = changes + root**order * (along(slope.fractional.matrix) + of_order)
        below = below + order * root ** (order - 1.0) * E
    changes = -changes / below
    size, ratio = np.abs(root), -np.real(root) / np.abs(root)
    growth = (np.conj(root) * changes).real / size
    of_ratio = -(changes.real + ratio * growth) / size
    return np.stack([deviations(rows, part) for part in (growth / (2.0 * np.pi), of_ratio)], axis=1)


@compiled
def _slope(q: Array, at: LinearizeAt, model: Model, free: FreeParameters, u: Float[Array, "d"]) -> Tangent:
    """Derivatives of the tangent matrices by u [n, n, d]."""
    light = at == "posture" and without_weight(model, free)

    def tangent(u: Array) -> Tangent:
        return motion_view(free.apply(model, free.values(u)), q, at, (), (), weightless=light).tangent

    return jax.jacfwd(tangent)(u)
