"""The modes of an identified machine beside those that modal analysis found in the FRFs of a test."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.optimize import linear_sum_assignment

from jaxmb.identify.experiments import FrfTest, Scene
from jaxmb.machine.build import Model
from jaxmb.measurement.frf_set import split_dof
from jaxmb.measurement.modal.model import ModalModel
from jaxmb.response.frf import response_rows
from jaxmb.response.modal import Modes, mac, modes


class ModalAgreement(NamedTuple):
    """Fitted modes, measured modes, their shapes at the sensors, and which belongs to which."""

    fitted: Modes
    """All modes of the machine; shapes [sensor, mode]."""
    measured: Modes
    """Shapes [sensor, mode]."""
    likeness: np.ndarray
    """MAC [fitted, measured] over all sensors."""
    partner: np.ndarray
    """Fitted mode of each measured one: one to one, with the largest sum of MACs."""


def modal_agreement(test: FrfTest, measured: ModalModel, seen: Scene, model: Model) -> ModalAgreement | None:
    """Measured and fitted modes of a test; None where nothing was measured.

    Args:
        test: whose posture it is.
        measured: from the modal analysis of its FRFs; outputs named by frame and direction.
        seen: the identified machine as the test sees it.
        model: the identified machine.
    """
    if measured.frequency_hz.size == 0:
        return None
    found = modes(seen.tangent)
    points = []
    for name in measured.outputs:
        node, direction, sign = split_dof(name)
        points.append((node, direction if sign > 0 else f"-{direction}"))
    at_sensors = response_rows(model, test.q, points) @ found.shape
    fitted = Modes(
        found.frequency_hz,
        found.damped_frequency_hz,
        found.damping_ratio,
        found.eigenvalue,
        at_sensors,
        found.overdamped,
    )
    reference = Modes(
        frequency_hz=jnp.asarray(measured.frequency_hz),
        damped_frequency_hz=jnp.asarray(measured.damped_frequency_hz),
        damping_ratio=jnp.asarray(measured.damping_ratio),
        eigenvalue=jnp.asarray(measured.eigenvalue),
        shape=jnp.asarray(measured.shape),
        overdamped=jnp.zeros(0),
    )
    likeness = np.asarray(mac(at_sensors, reference.shape))
    if likeness.shape[0] < likeness.shape[1]:
        likeness = likeness[:, : likeness.shape[0]]  # more was measured than the machine has
    rows, columns = linear_sum_assignment(-likeness)
    partner = np.zeros(columns.size, dtype=int)
    partner[columns] = rows
    return ModalAgreement(fitted, reference, likeness, partner)


def agreement_metrics(name: str, agreement: ModalAgreement) -> list[dict[str, Any]]:
    """A line for each measured mode: frequency and damping, measured and fitted, and the MAC of their shapes."""
    fitted, measured = agreement.fitted, agreement.measured
    return [
        {
            "posture": name,
            "measured_frequency_hz": float(measured.damped_frequency_hz[m]),
            "frequency_hz": float(fitted.damped_frequency_hz[f]),
            "measured_damping_percent": 100.0 * float(measured.damping_ratio[m]),
            "damping_percent": 100.0 * float(fitted.damping_ratio[f]),
            "mac": float(agreement.likeness[f, m]),
        }
        for m, f in enumerate(agreement.partner)
    ]
