"""Modes of the identified machine beside those that its numbers are judged by: measured, true or initial ones."""

import dataclasses
from typing import Any

import jax
import numpy as np
from scipy.optimize import linear_sum_assignment

from jaxmb.identify.assess.modal_agreement import ModalAgreement, modal_agreement
from jaxmb.identify.assess.result import Result, initial_model
from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.experiments.modes_test import ModesTest, predict_modes
from jaxmb.machine.build import Model
from jaxmb.mechanics.tangent import working_point
from jaxmb.response.modal import Modes, energy_shares, mac, modes, spring_matrices


@dataclasses.dataclass(frozen=True)
class ModePairs:
    """Modes of a machine at the posture of one test, against those of a reference."""

    reference_name: str
    """"measured", or "true" or "initial" (parameters)."""
    reference: Modes
    fitted: Modes
    likeness: np.ndarray
    """MAC [fitted, reference]."""
    partner: tuple[int | None, ...]
    """Reference mode of each fitted one, by the largest sum of MACs; None where the reference has no more."""

    @property
    def unmeasured(self) -> tuple[int, ...]:
        """Fitted modes that stand alone beside measured ones."""
        return tuple(f for f, m in enumerate(self.partner) if m is None) if self.reference_name == "measured" else ()


def data_word(entry: Entry) -> str:
    """What the data of a test are called: "measured" or "simulated"."""
    return "measured" if entry.truth is None else "simulated"


def pairs_of_frf_test(result: Result, entry: Entry) -> ModePairs:
    """Modes of the identified machine beside those that modal analysis found in the FRFs of a test, compared at the
    sensors; where there was none, beside known ones.

    Args:
        result: the identification.
        entry: the test.
    """
    return measured_pairs(entry, result.model) or _known_pairs(result, entry)


def pairs_of_modes_test(result: Result, entry: Entry) -> ModePairs:
    """Modes of the identified machine beside those of a modal test, paired as the fit pairs them; where it measured no
    shapes, beside known ones."""
    test: Any = entry.test
    return _with_measured_shapes(test, result.model) if test.outputs else _known_pairs(result, entry)


def _known_pairs(result: Result, entry: Entry) -> ModePairs:
    """Modes of the identified machine beside those of the machine that was simulated, where one was and it has the same
    coordinates, or of the initial machine; below the band's end of a test, by coordinates."""
    test: Any = entry.test
    if entry.truth is not None and entry.truth.modes is not None and result.study.truth:
        name, reference = "true", entry.truth.modes
    else:
        name, reference = "initial", modes(test.view(initial_model(result)).tangent)
    reference, fitted = (_below(m, test.band_end_hz) for m in (reference, modes(test.view(result.model).tangent)))
    likeness = np.zeros((fitted.frequency_hz.size, reference.frequency_hz.size))
    if likeness.size:
        likeness = np.asarray(mac(fitted.shape, reference.shape))
    partner: list[int | None] = [None] * likeness.shape[0]
    for row, column in zip(*linear_sum_assignment(-likeness), strict=True):
        partner[row] = int(column)
    return ModePairs(name, reference, fitted, likeness, tuple(partner))


def measured_pairs(entry: Entry, model: Model) -> ModePairs | None:
    """Modes of any machine beside those that modal analysis found in the FRFs of a test; None where there are none.

    Args:
        entry: the test.
        model: the machine.
    """
    agreement = modal_agreement(entry, entry.test.view(model), model)
    return None if agreement is None else _with_measured(agreement, entry.test.band_end_hz)


def _with_measured_shapes(test: ModesTest, model: Model) -> ModePairs:
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
    fitted = _some(found, keep)
    at_sensors = np.asarray(seen.output_rows) @ np.asarray(fitted.shape)
    likeness = np.asarray(mac(at_sensors, np.asarray(measured.shape)))
    return ModePairs("measured", measured, fitted, likeness, tuple(partner.get(int(f)) for f in np.flatnonzero(keep)))


def _with_measured(agreement: ModalAgreement, end_hz: float) -> ModePairs:
    keep = np.asarray(agreement.fitted.frequency_hz) <= end_hz
    keep[[f for f, _ in agreement.pairs]] = True
    of_fitted = dict(agreement.pairs)
    partner = tuple(of_fitted.get(int(f)) for f in np.flatnonzero(keep))
    return ModePairs("measured", agreement.measured, _some(agreement.fitted, keep), agreement.likeness[keep], partner)


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


def _below(found: Modes, end_hz: float) -> Modes:
    return _some(found, np.asarray(found.frequency_hz) <= end_hz)


def _some(found: Modes, keep: np.ndarray) -> Modes:
    found = jax.tree.map(np.asarray, found)  # indexing JAX's arrays compiles a program for every shape
    return Modes(
        frequency_hz=found.frequency_hz[keep],
        damped_frequency_hz=found.damped_frequency_hz[keep],
        damping_ratio=found.damping_ratio[keep],
        eigenvalue=found.eigenvalue[keep],
        shape=found.shape[:, keep],
        overdamped=found.overdamped,
    )
