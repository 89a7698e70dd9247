"""Fitted beside measured modes: which belong together, and which stand alone."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.assess.modal_agreement import (
    agreement_metrics,
    modal_agreement,
    unmatched_metrics,
)
from jaxmb.identify.experiments.test import Entry, Source
from jaxmb.measurement.modal.model import ModalModel
from jaxmb.response.frf import response_rows

STUDY = jaxmb.load_study("validation-3r")
TEST = STUDY.tests[0]
MODEL = jaxmb.build_model(jaxmb.load_machine("manipulator-3r"))
VIEW = TEST.view(MODEL)
FOUND = jaxmb.modes(VIEW.tangent)


def measured(eigenvalue, points):
    """A modal model with the machine's own shapes, of eigenvalues that need not be its own."""
    rows = np.asarray(response_rows(MODEL, TEST.q, points))
    shape = (rows @ np.asarray(FOUND.shape))[:, : len(eigenvalue)]
    count, none = len(eigenvalue), np.zeros(0, dtype=complex)
    return ModalModel(
        eigenvalue=np.asarray(eigenvalue), shape=shape, participation=np.ones((count, 1)),
        pole_covariance=np.full((count, 2, 2), np.nan), upper_residual=np.zeros((len(points), 1)),
        lower_residual=np.zeros((len(points), 1)), beyond_eigenvalue=none,
        beyond_shape=np.zeros((len(points), 0)), beyond_participation=np.zeros((0, 1)), kind="accelerance",
        unit="m/s^2/N", outputs=tuple(" ".join(p) for p in points), inputs=("tool x",), band_hz=(3.0, 30.0),
    )  # fmt: skip


def agreement_with(modal):
    """Fitted beside measured modes of a test whose modal analysis came to some model."""
    return modal_agreement(Entry("frf", TEST, Source(modal=SimpleNamespace(model=modal))), VIEW, MODEL)


TRIAXIAL = (("tool", "x"), ("tool", "y"), ("tool", "z"))


def test_a_fitted_mode_that_was_not_measured_stands_alone():
    agreement = agreement_with(measured(np.asarray(FOUND.eigenvalue)[:2], TRIAXIAL))
    assert agreement.pairs == ((0, 0), (1, 1))
    assert agreement.unmeasured == (2,)
    assert [line.mac for line in agreement_metrics("t", agreement)] == pytest.approx([1.0, 1.0])
    (line,) = unmatched_metrics("t", agreement)
    assert line.of == "fitted"
    assert line.frequency_hz == pytest.approx(float(FOUND.damped_frequency_hz[2]))


def test_a_measured_mode_far_from_every_fitted_one_stands_alone():
    eigenvalue = np.asarray(FOUND.eigenvalue) * np.array([0.5, 1.0, 1.0])
    agreement = agreement_with(measured(eigenvalue, TRIAXIAL))
    assert agreement.partner == (None, 1, 2)
    lines = unmatched_metrics("t", agreement)
    assert [line.of for line in lines] == ["measured", "fitted"]


def test_more_measured_than_the_machine_has():
    found = np.asarray(FOUND.eigenvalue)
    more = dataclasses.replace(
        (first := measured(found, TRIAXIAL)),
        eigenvalue=np.append(found, 1.02 * found[2]), shape=np.column_stack([first.shape, first.shape[:, 0]]),
    )  # fmt: skip
    agreement = agreement_with(more)
    assert agreement.partner == (0, 1, 2, None)
    assert agreement.unmeasured == ()


def test_one_sensor_pairs_by_frequency():
    """The MAC of one sensor is 1 for any two modes."""
    agreement = agreement_with(measured(np.asarray(FOUND.eigenvalue), TRIAXIAL[:1]))
    assert agreement.partner == (0, 1, 2)
    assert [line.mac for line in agreement_metrics("t", agreement)] == [None] * 3


def test_without_modal_analysis_or_modes_there_is_nothing_beside():
    assert modal_agreement(Entry("frf", TEST), VIEW, MODEL) is None
    assert agreement_with(measured(np.zeros(0, complex), TRIAXIAL)) is None
