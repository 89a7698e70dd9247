"""The modes of an identified machine beside those that modal analysis found in the FRFs of a test."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment

from jaxmb.compiled import compiled
from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.experiments.motion_view import MotionView
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.machine.build import Model
from jaxmb.measurement.frf_set import split_dof
from jaxmb.response.frf import response_rows
from jaxmb.response.modal import Modes, mac, modes

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
        if test.vibration is None:
            return np.zeros(0, complex)
        tangent = test.vibration.tangent(test.view(free.apply(model, jnp.asarray(at))))
        return np.asarray(modes(tangent).eigenvalue)

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


FARTHEST = 1.25
"""Ratio of two frequencies above which a fitted mode does not stand for a measured one, however alike their shapes."""
UNPAIRABLE = 1e6
"""Cost of a pair that must not be, beside costs of about 1."""


_rows = compiled(response_rows)
"""Compiled as a whole: operation by operation, dozens of sensors cost many seconds."""


class ModalAgreement(NamedTuple):
    """Fitted modes, measured modes, their shapes at the sensors, and which belongs to which."""

    fitted: Modes
    """All modes of the machine; shapes [sensor, mode]."""
    measured: Modes
    """Shapes [sensor, mode]."""
    likeness: np.ndarray
    """MAC [fitted, measured] over all sensors."""
    partner: tuple[int | None, ...]
    """Fitted mode of each measured one: one to one, with the largest sum of MACs; None where there is none."""
    unmeasured: tuple[int, ...]
    """Fitted modes in the band of the modal analysis that belong to no measured one."""

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """(fitted, measured) modes that belong together, in the order of the measured ones."""
        return tuple((f, m) for m, f in enumerate(self.partner) if f is not None)


def modal_agreement(entry: Entry, view: MotionView, model: Model) -> ModalAgreement | None:
    """Measured and fitted modes of a test; None where none were measured.

    Args:
        entry: a test with the modal analysis of its FRFs, outputs named by frame and direction.
        view: of the identified machine.
        model: the identified machine.
    """
    vibration = entry.test.vibration
    if entry.source.modal is None or vibration is None:
        return None
    tangent, q = vibration.tangent(view), vibration.q
    measured = entry.source.modal.model
    if measured.frequency_hz.size == 0:
        return None
    found = modes(tangent)
    points = []
    for name in measured.outputs:
        node, direction, sign = split_dof(name)
        points.append((node, direction if sign > 0 else f"-{direction}"))
    at_sensors = np.asarray(_rows(model, q, tuple(points))) @ np.asarray(found.shape)
    fitted = Modes(
        found.frequency_hz,
        found.damped_frequency_hz,
        found.damping_ratio,
        found.eigenvalue,
        jax.device_put(at_sensors),
        found.overdamped,
    )
    reference = Modes(
        frequency_hz=jax.device_put(measured.frequency_hz),
        damped_frequency_hz=jax.device_put(measured.damped_frequency_hz),
        damping_ratio=jax.device_put(measured.damping_ratio),
        eigenvalue=jax.device_put(measured.eigenvalue),
        shape=jax.device_put(measured.shape),
        overdamped=jax.device_put(np.zeros(0)),
    )
    likeness = np.asarray(mac(at_sensors, np.asarray(measured.shape)))
    partner = _partners(fitted, reference, likeness)
    low, high = measured.band_hz
    frequency_hz = np.asarray(fitted.damped_frequency_hz)
    in_band = np.flatnonzero((frequency_hz >= low) & (frequency_hz <= high))
    unmeasured = tuple(int(f) for f in in_band if int(f) not in partner)
    return ModalAgreement(fitted, reference, likeness, partner, unmeasured)


def _partners(fitted: Modes, measured: Modes, likeness: np.ndarray) -> tuple[int | None, ...]:
    """Fitted mode of each measured one, by likeness of shape among those of a frequency not too far off.

    One sensor tells nothing of a shape: its MAC is 1 for any two, and frequencies alone pair the modes.
    """
    apart = np.abs(np.log(np.asarray(fitted.frequency_hz)[:, None] / np.asarray(measured.frequency_hz)))
    cost = apart if fitted.shape.shape[0] == 1 else 1.0 - likeness
    cost = np.where(apart > np.log(FARTHEST), UNPAIRABLE, cost)
    of_measured = {int(m): int(f) for f, m in zip(*linear_sum_assignment(cost), strict=True) if cost[f, m] < UNPAIRABLE}
    return tuple(of_measured.get(m) for m in range(likeness.shape[1]))


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ModePair:
    """A measured mode of a test beside the mode of the identified machine that stands for it."""

    posture: str
    """Name of the test."""
    measured_frequency_hz: float
    """Damped, as `frequency_hz`."""
    frequency_hz: float
    measured_damping_percent: float
    damping_percent: float
    content: tuple[str, ...] | None = None
    """Coordinates, or springs between frames, that dominate the measured mode, where a modal test tells."""
    energy_share: float | None = None
    """Of these, in the strain energy of the identified mode."""
    mac: float | None
    """Of the two shapes at the sensors; None where nothing is known of the shape."""


@dataclasses.dataclass(frozen=True, eq=False)
class UnpairedMode:
    """A mode that stands alone: nothing like it was measured, or the identified machine has nothing like it."""

    posture: str
    of: str
    """Whose mode it is: "fitted" or "measured"."""
    frequency_hz: float
    damping_percent: float

    @property
    def text(self) -> str:
        """The mode in a sentence."""
        return f"{self.frequency_hz:.4g} Hz ({self.damping_percent:.2g} % damping)"


def agreement_metrics(name: str, agreement: ModalAgreement) -> list[ModePair]:
    """A line for each measured mode that has a fitted one: frequency and damping of both, and the MAC of their shapes.

    The MAC is None where one sensor only tells nothing of shapes.
    """
    fitted, measured = agreement.fitted, agreement.measured
    shapes = fitted.shape.shape[0] > 1
    return [
        ModePair(
            posture=name,
            measured_frequency_hz=float(measured.damped_frequency_hz[m]),
            frequency_hz=float(fitted.damped_frequency_hz[f]),
            measured_damping_percent=100.0 * float(measured.damping_ratio[m]),
            damping_percent=100.0 * float(fitted.damping_ratio[f]),
            mac=float(agreement.likeness[f, m]) if shapes else None,
        )
        for f, m in agreement.pairs
    ]


def unmatched_metrics(name: str, agreement: ModalAgreement) -> list[UnpairedMode]:
    """A line for each mode without a partner, "fitted" where nothing like it was measured, and "measured" otherwise."""
    alone = [("measured", agreement.measured, m) for m, f in enumerate(agreement.partner) if f is None]
    alone += [("fitted", agreement.fitted, f) for f in agreement.unmeasured]
    return [
        UnpairedMode(name, which, float(found.damped_frequency_hz[k]), 100.0 * float(found.damping_ratio[k]))
        for which, found, k in alone
    ]
