"""Pairing of the modes of a machine with measured ones."""

import dataclasses

import jax
import numpy as np

from jaxmb.identify.assess.modal_agreement import ModalAgreement, modal_agreement
from jaxmb.identify.assess.result import Result
from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.experiments.modes_test import ModesTest, predict_modes
from jaxmb.machine.build import Model
from jaxmb.mechanics.tangent import working_point
from jaxmb.response.modal import Modes, energy_shares, mac, modes, some_modes, spring_matrices


@dataclasses.dataclass(frozen=True)
class ModePairs:
    """Modes of a machine at the posture of one test, paired with measured ones at the sensors."""

    reference: Modes
    """Measured modes."""
    fitted: Modes
    likeness: np.ndarray
    """MAC [fitted, reference]."""
    partner: tuple[int | None, ...]
    """Index of the measured mode paired with each fitted one; None if unpaired."""

    @property
    def unmeasured(self) -> tuple[int, ...]:
        """Indices of the unpaired fitted modes."""
        return tuple(f for f, m in enumerate(self.partner) if m is None)


def data_word(entry: Entry) -> str:
    """Label of the data of a test: "measured" or "simulated"."""
    return "measured" if entry.truth is None else "simulated"


def measured_pairs(entry: Entry, model: Model) -> ModePairs | None:
    """Modes of a machine paired with those of the modal analysis of a test's FRFs; None without a modal analysis.

    Args:
        entry: the test.
        model: the machine.
    """
    agreement = modal_agreement(entry, entry.test.view(model), model)
    return None if agreement is None else _with_measured(agreement, entry.test.band_end_hz)


def pairs_of_modes_test(test: ModesTest, model: Model) -> ModePairs | None:
    """Modes of a machine paired with those of a modal test as in the fit; None without measured shapes."""
    if not test.outputs:
        return None
    view = test.view(model)
    found = modes(view.tangent)
    eigenvalue = 2.0 * np.pi * np.asarray(test.frequency_hz) * (1j - np.asarray(test.damping_ratio))
    measured = Modes(
        frequency_hz=jax.device_put(np.abs(eigenvalue) / (2.0 * np.pi)),
        damped_frequency_hz=test.frequency_hz,
        damping_ratio=test.damping_ratio,
        eigenvalue=jax.device_put(eigenvalue),
        shape=test.shape.T,
        overdamped=jax.device_put(np.zeros(0)),
    )
    paired_hz = np.asarray(predict_modes(test, view).frequency_hz)
    nearest = np.argmin(np.abs(np.asarray(found.damped_frequency_hz) - paired_hz[:, None]), axis=1)
    keep = np.asarray(found.frequency_hz) <= test.band_end_hz
    keep[nearest] = True
    partner = {int(f): m for m, f in enumerate(nearest)}
    fitted = some_modes(found, keep)
    at_sensors = np.asarray(view.output_rows) @ np.asarray(fitted.shape)
    likeness = np.asarray(mac(at_sensors, np.asarray(measured.shape)))
    return ModePairs(measured, fitted, likeness, tuple(partner.get(int(f)) for f in np.flatnonzero(keep)))


def _with_measured(agreement: ModalAgreement, end_hz: float) -> ModePairs:
    keep = np.asarray(agreement.fitted.frequency_hz) <= end_hz
    keep[[f for f, _ in agreement.pairs]] = True
    of_fitted = dict(agreement.pairs)
    partner = tuple(of_fitted.get(int(f)) for f in np.flatnonzero(keep))
    return ModePairs(agreement.measured, some_modes(agreement.fitted, keep), agreement.likeness[keep], partner)


@dataclasses.dataclass(frozen=True)
class FittedModes:
    """Modes of the identified machine paired with those of a modal test."""

    frequency_hz: np.ndarray
    damping_percent: np.ndarray
    share: np.ndarray
    """Share of the strain energy [mode, spring], springs as in `spring_names`; each row sums to 1."""
    mac: np.ndarray
    """MAC of each shape at the sensors with the measured one; 1 without a measured shape."""


def fitted_modes(result: Result, test: ModesTest) -> FittedModes:
    """The modes of the identified machine paired with the measured ones, in the order of the latter."""
    view = test.view(result.model)
    paired = predict_modes(test, view)
    springs = spring_matrices(result.model, test.q, working_point(result.model, test.q, test.at))
    frequency, damping = np.asarray(paired.frequency_hz), np.asarray(paired.damping_ratio)
    found = modes(view.tangent)
    shares = np.asarray(energy_shares(found.shape, springs)).T
    # The pairing of the test returns frequencies and damping ratios, which identify the modes.
    distance = np.abs(np.asarray(found.damped_frequency_hz) - frequency[:, None])
    distance += np.abs(np.asarray(found.damping_ratio) - damping[:, None])
    return FittedModes(frequency, 100.0 * damping, shares[np.argmin(distance, axis=1)], np.asarray(paired.mac))
