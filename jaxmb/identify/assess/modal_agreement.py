"""Pairing of the modes of an identified machine with those of a modal analysis of the FRFs of a test."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxmb.compiled import compiled
from jaxmb.identify.experiments.test import Entry, Test
from jaxmb.identify.experiments.vibration_view import VibrationView
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.machine.build import Model
from jaxmb.machine.families import OF_DAMPING
from jaxmb.measurement.frf_set import split_dof
from jaxmb.response.frf import response_rows
from jaxmb.response.modal import Modes, mac, modes_of, paired_modes, possible_modes

GOVERNS = 0.5
"""Share of a mode's stiffness or damping above which a parameter governs the mode, as a coordinate with half of the
strain energy dominates it."""
STEP = 1e-4
"""Relative step of a value for the derivative of modes."""


class ModeShares(NamedTuple):
    """Modes at the posture of a test, and the share of each free parameter in them."""

    frequency_hz: Float[np.ndarray, "m"]
    """Natural frequencies |eigenvalue| / 2 pi, ascending."""
    share: Float[np.ndarray, "m d"]


def mode_shares(model: Model, free: FreeParameters, test: Test, values: Float[np.ndarray, "d"]) -> ModeShares:
    """Share of each free parameter in each mode.

    Shares of strain energy for stiffnesses, of kinetic energy for masses, of dissipated energy for dampings: the
    derivatives of log frequency (times two) and of log damping ratio by the logarithm of the value.

    Args:
        model: the machine, with its fixed parameters.
        free: the free parameters.
        test: determines the posture.
        values: physical values of the free parameters.
    """

    def eigenvalues(at: np.ndarray) -> np.ndarray:
        if test.vibration is None:
            return np.zeros(0, complex)
        tangent = test.view(free.apply(model, jnp.asarray(at))).tangent
        return np.asarray(possible_modes(tangent).eigenvalue)

    before = eigenvalues(values)
    share = np.zeros((before.size, values.size))
    for i, name in enumerate(free.names):
        if values[i] == 0.0 or not before.size:
            continue
        after = eigenvalues(np.where(np.arange(values.size) == i, values * (1.0 + STEP), values))
        after = after[np.argmin(np.abs(after[:, None] - before), axis=0)]
        if name.split(".")[0] in OF_DAMPING:
            ratio = (np.real(after) / np.abs(after)) / (np.real(before) / np.abs(before))
            share[:, i] = np.log(ratio) / STEP
        else:
            share[:, i] = 2.0 * np.log(np.abs(after) / np.abs(before)) / STEP
    return ModeShares(np.abs(before) / (2 * np.pi), np.abs(share))


FARTHEST = 1.25
"""Largest ratio of the frequencies of a fitted and a measured mode that may be paired, for any MAC."""
_rows = compiled(response_rows)
"""Compiled as one program: evaluated operation by operation, dozens of sensors take many seconds."""


class ModalAgreement(NamedTuple):
    """Fitted modes, measured modes, their shapes at the sensors, and their pairing."""

    fitted: Modes
    """All modes of the machine; shapes [sensor, mode]."""
    measured: Modes
    """Shapes [sensor, mode]."""
    likeness: np.ndarray
    """MAC [fitted, measured] over all sensors."""
    partner: tuple[int | None, ...]
    """Fitted mode paired with each measured one, one to one with the largest sum of MACs; None where unpaired."""
    unmeasured: tuple[int, ...]
    """Unpaired fitted modes in the band of the modal analysis."""

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Paired (fitted, measured) modes, in the order of the measured ones."""
        return tuple((f, m) for m, f in enumerate(self.partner) if f is not None)


def modal_agreement(entry: Entry, view: VibrationView, model: Model) -> ModalAgreement | None:
    """Pairing of measured and fitted modes of a test; None where no modes were measured.

    Args:
        entry: a test with the modal analysis of its FRFs, outputs named by frame and direction.
        view: of the identified machine.
        model: the identified machine.
    """
    vibration = entry.test.vibration
    if entry.source.modal is None or vibration is None or entry.source.modal.model.frequency_hz.size == 0:
        return None
    measured, found = entry.source.modal.model, possible_modes(view.tangent)
    points = tuple(
        (node, direction if sign > 0 else f"-{direction}") for node, direction, sign in map(split_dof, measured.outputs)
    )
    at_sensors = np.asarray(_rows(model, vibration.q, points)) @ np.asarray(found.shape)
    fitted = dataclasses.replace(found, shape=jax.device_put(at_sensors))
    reference = modes_of(measured.eigenvalue, measured.shape, np.zeros(0))
    likeness = np.asarray(mac(at_sensors, np.asarray(measured.shape)))
    # with one sensor the MAC of any two shapes is 1
    shapes = likeness if len(points) > 1 else None
    pairs = paired_modes(np.asarray(fitted.frequency_hz), np.asarray(reference.frequency_hz), shapes, FARTHEST)
    of_measured = {m: f for f, m in pairs}
    partner = tuple(of_measured.get(m) for m in range(likeness.shape[1]))
    (low, high), frequency_hz = measured.band_hz, np.asarray(fitted.damped_frequency_hz)
    in_band = np.flatnonzero((frequency_hz >= low) & (frequency_hz <= high)).tolist()
    unmeasured = tuple(f for f in in_band if f not in partner)
    return ModalAgreement(fitted, reference, likeness, partner, unmeasured)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ModePair:
    """A measured mode of a test and the paired mode of the identified machine."""

    posture: str
    """Name of the test."""
    measured_frequency_hz: float
    """Damped, as `frequency_hz`."""
    frequency_hz: float
    measured_damping_percent: float
    damping_percent: float
    content: tuple[str, ...] | None = None
    """Coordinates, or springs between frames, that dominate the measured mode, where stated by a modal test."""
    energy_share: float | None = None
    """Their share in the strain energy of the identified mode."""
    mac: float | None
    """MAC of the two shapes at the sensors; None where no shape was measured."""


@dataclasses.dataclass(frozen=True, eq=False)
class UnpairedMode:
    """A fitted mode without a measured counterpart, or a measured mode without a fitted one."""

    posture: str
    of: str
    """Origin of the mode: "fitted" or "measured"."""
    frequency_hz: float
    damping_percent: float

    def text(self, frequency_unit: str) -> str:
        """Frequency and damping of the mode, for messages."""
        return f"{self.frequency_hz:.4g} {frequency_unit} ({self.damping_percent:.2g} % damping)"


def agreement_metrics(name: str, agreement: ModalAgreement) -> list[ModePair]:
    """Paired modes of a test: frequency and damping of both, and the MAC of their shapes.

    The MAC is None for a single sensor.
    """
    fitted, measured = agreement.fitted, agreement.measured
    return [
        ModePair(
            posture=name,
            measured_frequency_hz=float(measured.damped_frequency_hz[m]),
            frequency_hz=float(fitted.damped_frequency_hz[f]),
            measured_damping_percent=100.0 * float(measured.damping_ratio[m]),
            damping_percent=100.0 * float(fitted.damping_ratio[f]),
            mac=float(agreement.likeness[f, m]) if len(fitted.shape) > 1 else None,
        )
        for f, m in agreement.pairs
    ]


def unmatched_metrics(name: str, agreement: ModalAgreement) -> list[UnpairedMode]:
    """Unpaired modes of a test, measured and fitted."""
    unpaired = [("measured", agreement.measured, m) for m, f in enumerate(agreement.partner) if f is None]
    unpaired += [("fitted", agreement.fitted, f) for f in agreement.unmeasured]
    return [
        UnpairedMode(name, which, float(found.damped_frequency_hz[k]), 100.0 * float(found.damping_ratio[k]))
        for which, found, k in unpaired
    ]
