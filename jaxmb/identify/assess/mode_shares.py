"""Which parameters govern which modes of a machine."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxmb.identify.experiments.test import Test
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.machine.build import Model
from jaxmb.response.modal import modes

GOVERNS = 0.5
"""Share of a mode's stiffness or damping from which on a parameter governs it, as a coordinate "dominates" a mode that
holds half of its strain energy."""
STEP = 1e-4
"""Relative change of a value, of which the change of a mode is taken."""


class ModeShares(NamedTuple):
    """Modes at the posture of a test, and how much of each the free parameters hold."""

    frequency_hz: Float[np.ndarray, "m"]
    """Natural frequencies |eigenvalue| / 2 pi, ascending."""
    share: Float[np.ndarray, "m d"]


def mode_shares(model: Model, free: FreeParameters, test: Test, values: Float[np.ndarray, "d"]) -> ModeShares:
    """How much of each mode each free parameter holds.

    Shares of strain energy for stiffnesses, of kinetic energy for masses, of what is dissipated for dampings: the
    derivatives of log frequency (times two) and of log damping ratio by the logarithm of the value.

    Args:
        model: the machine, its held parameters set.
        free: the free parameters.
        test: at whose posture.
        values: physical values of the free parameters.
    """

    def eigenvalues(at: np.ndarray) -> np.ndarray:
        tangent = test.tangent(test.view(free.apply(model, jnp.asarray(at))))
        return np.zeros(0, complex) if tangent is None else np.asarray(modes(tangent).eigenvalue)

    before = eigenvalues(values)
    share = np.zeros((before.size, values.size))
    for i, name in enumerate(free.names):
        if values[i] == 0.0 or not before.size:
            continue
        moved = values.copy()
        moved[i] *= 1.0 + STEP
        after = eigenvalues(moved)
        after = after[np.argmin(np.abs(after[:, None] - before), axis=0)]
        if name.startswith("damping."):
            ratio = (np.real(after) / np.abs(after)) / (np.real(before) / np.abs(before))
            share[:, i] = np.log(ratio) / STEP
        else:
            share[:, i] = 2.0 * np.log(np.abs(after) / np.abs(before)) / STEP
    return ModeShares(np.abs(before) / (2 * np.pi), np.abs(share))
