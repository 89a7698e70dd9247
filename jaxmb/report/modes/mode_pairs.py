"""Pairing of the modes of a machine with measured ones."""

import dataclasses

import jax
import numpy as np

from jaxmb.identify.assess.modal_agreement import ModalAgreement, modal_agreement
from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.experiments.modes_test import ModesTest, predict_modes
from jaxmb.machine.build import Model
from jaxmb.mechanics.tangent import operating_point
from jaxmb.response.modal import Modes, energy_shares, mac, modes, select_modes, spring_matrices


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


def data_label(entry: Entry) -> str:
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


def _with_measured(agreement: ModalAgreement, end_hz: float) -> ModePairs:
    keep = np.asarray(agreement.fitted.frequency_hz) <= end_hz
    keep[[f for f, _ in agreement.pairs]] = True
    of_fitted = dict(agreement.pairs)
    partner = tuple(of_fitted.get(int(f)) for f in np.flatnonzero(keep))
    return ModePairs(agreement.measured, select_modes(agreement.fitted, keep), agreement.likeness[keep], partner)


@dataclasses.dataclass(frozen=True)
class FittedModes:
    """Modes of the identified machine paired with those of a modal test."""

    frequency_hz: np.ndarray
    damping_percent: np.ndarray
    share: np.ndarray
    """Share of the strain energy [mode, spring], springs as in `spring_names`; each row sums to 1."""
    mac: np.ndarray
    """MAC of each shape at the sensors with the measured one; 1 without a measured shape."""
    pairs: ModePairs | None
    """All modes of the machine in the test's band and the measured ones; None without measured shapes."""


def fitted_modes(model: Model, test: ModesTest) -> FittedModes:
    """The modes of a machine paired with the measured ones as in the fit, in the order of the latter."""
    view = test.view(model)
    found, paired = modes(view.tangent), predict_modes(test, view)
    springs = spring_matrices(model, test.q, operating_point(model, test.q, test.at))
    frequency, damping = np.asarray(paired.frequency_hz), np.asarray(paired.damping_ratio)
    # The pairing of the test returns frequencies and damping ratios, which identify the modes.
    distance = np.abs(np.asarray(found.damped_frequency_hz) - frequency[:, None])
    distance += np.abs(np.asarray(found.damping_ratio) - damping[:, None])
    places = np.argmin(distance, axis=1)
    shares = np.asarray(energy_shares(jax.device_put(np.asarray(found.shape)[:, places]), springs)).T
    pairs = _pairs(test, found, np.asarray(view.output_rows), places) if test.outputs else None
    return FittedModes(frequency, 100.0 * damping, shares, np.asarray(paired.mac), pairs)


def _pairs(test: ModesTest, found: Modes, output_rows: np.ndarray, places: np.ndarray) -> ModePairs:
    """Modes of a machine beside those of a modal test, of which the machine's modes at `places` stand for."""
    eigenvalue = 2.0 * np.pi * np.asarray(test.frequency_hz) * (1j - np.asarray(test.damping_ratio))
    measured = Modes(
        frequency_hz=jax.device_put(np.abs(eigenvalue) / (2.0 * np.pi)),
        damped_frequency_hz=test.frequency_hz,
        damping_ratio=test.damping_ratio,
        eigenvalue=jax.device_put(eigenvalue),
        shape=test.shape.T,
        overdamped=jax.device_put(np.zeros(0)),
    )
    keep = np.asarray(found.frequency_hz) <= test.band_end_hz
    keep[places] = True
    partner = {int(f): m for m, f in enumerate(places)}
    fitted = select_modes(found, keep)
    likeness = np.asarray(mac(output_rows @ np.asarray(fitted.shape), np.asarray(measured.shape)))
    return ModePairs(measured, fitted, likeness, tuple(partner.get(int(f)) for f in np.flatnonzero(keep)))
