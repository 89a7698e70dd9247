"""Modes of a machine beside measured ones."""

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
    """Modes of a machine at the posture of one test, beside measured ones, compared at the sensors."""

    reference: Modes
    """Measured ones."""
    fitted: Modes
    likeness: np.ndarray
    """MAC [fitted, reference]."""
    partner: tuple[int | None, ...]
    """Measured mode of each fitted one, None where it belongs to none."""

    @property
    def unmeasured(self) -> tuple[int, ...]:
        """Fitted modes that stand alone beside measured ones."""
        return tuple(f for f, m in enumerate(self.partner) if m is None)


def data_word(entry: Entry) -> str:
    """What the data of a test are called: "measured" or "simulated"."""
    return "measured" if entry.truth is None else "simulated"


def measured_pairs(entry: Entry, model: Model) -> ModePairs | None:
    """Modes of any machine beside those that modal analysis found in the FRFs of a test; None where there are none.

    Args:
        entry: the test.
        model: the machine.
    """
    agreement = modal_agreement(entry, entry.test.view(model), model)
    return None if agreement is None else _with_measured(agreement, entry.test.band_end_hz)


def pairs_of_modes_test(test: ModesTest, model: Model) -> ModePairs | None:
    """Modes of a machine beside those of a modal test, paired as in the fit; None where it has no shapes."""
    if not test.outputs:
        return None
    seen = test.view(model)
    found = modes(seen.tangent)
    eigenvalue = 2.0 * np.pi * np.asarray(test.frequency_hz) * (1j - np.asarray(test.damping_ratio))
    measured = Modes(
        frequency_hz=jax.device_put(np.abs(eigenvalue) / (2.0 * np.pi)),
        damped_frequency_hz=test.frequency_hz,
        damping_ratio=test.damping_ratio,
        eigenvalue=jax.device_put(eigenvalue),
        shape=test.shape.T,
        overdamped=jax.device_put(np.zeros(0)),
    )
    paired = np.asarray(predict_modes(test, seen).frequency_hz)
    places = np.argmin(np.abs(np.asarray(found.damped_frequency_hz) - paired[:, None]), axis=1)
    keep = np.asarray(found.frequency_hz) <= test.band_end_hz
    keep[places] = True
    partner = {int(f): m for m, f in enumerate(places)}
    fitted = some_modes(found, keep)
    at_sensors = np.asarray(seen.output_rows) @ np.asarray(fitted.shape)
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
    """What a modal test measured, and the same of the identified machine."""

    frequency_hz: np.ndarray
    damping_percent: np.ndarray
    share: np.ndarray
    """Strain energy by spring [mode, spring], as `spring_names`; each row 1 in sum."""
    mac: np.ndarray
    """Of each shape at the sensors with the measured one; 1 where none was measured."""


def fitted_modes(result: Result, test: ModesTest) -> FittedModes:
    """The modes of the identified machine that stand for the measured ones, in their order."""
    seen = test.view(result.model)
    paired = predict_modes(test, seen)
    springs = spring_matrices(result.model, test.q, working_point(result.model, test.q, test.at))
    frequency, damping = np.asarray(paired.frequency_hz), np.asarray(paired.damping_ratio)
    found = modes(seen.tangent)
    shares = np.asarray(energy_shares(found.shape, springs)).T
    # The pairing is the test's own; it gives frequencies, by which each mode is found again.
    distance = np.abs(np.asarray(found.damped_frequency_hz) - frequency[:, None])
    distance += np.abs(np.asarray(found.damping_ratio) - damping[:, None])
    return FittedModes(frequency, 100.0 * damping, shares[np.argmin(distance, axis=1)], np.asarray(paired.mac))
