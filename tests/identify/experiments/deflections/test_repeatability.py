"""Errors that displacements of one load have in common, against generalized least squares in NumPy."""

import numpy as np
import pytest
from scipy.linalg import block_diag

from jaxmb.identify.assess.identify import identify
from jaxmb.identify.assess.tests.deflections import DeflectionMetrics
from jaxmb.identify.experiments.tolerances import Instruments
from jaxmb.identify.study.reading.deflections import measured_with
from tests.identify.arm import FREE, loads, shapes, study_of

TRACKER, REFLECTORS, REPEAT = 1e-5, 0.2, np.radians(1e-3)
INSTRUMENTS = {"tracker_mm": 1e3 * TRACKER, "reflectors_m": REFLECTORS, "repeat_deg": 1e-3}
STIFFNESS = {"stiffness.*": FREE["stiffness.*"]}
TRUTH = np.array([5e4, 9e3])


def jacobian(q):
    """Of the tool of the plane arm by a and b, by hand: turning about y moves it by (z, 0, -x) of what lies behind."""

    def turned(angle, x, z):
        return np.array([np.cos(angle) * x + np.sin(angle) * z, np.cos(angle) * z - np.sin(angle) * x])

    elbow, fore = turned(q[0], 0.8, 0.1), turned(q[0] + q[1], 0.7, 0.05)
    columns = []
    for x, z in (elbow + fore, fore):
        columns.append([z, 0.0, -x, 0.0, 1.0, 0.0])
    return np.array(columns).T


def covariance(q):
    """Of the six displacements: two readings, each with errors of the tracker and of both encoders."""
    alone = 2.0 * np.repeat([TRACKER**2, (TRACKER / REFLECTORS) ** 2], 3)
    return np.diag(alone) + 2.0 * REPEAT**2 * jacobian(q) @ jacobian(q).T


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("arm")


def study(folder, seed=None):
    return study_of(folder, loads(count=8, instruments=INSTRUMENTS), free=STIFFNESS, noise_seed=seed)


def gls(cases, weights=None):
    """Stiffnesses and their standard deviations, linear in compliances, by the inverse covariance of each case."""
    matrix = np.concatenate([jacobian(c.q) * (jacobian(c.q).T @ c.wrench) for c in cases])
    weight = block_diag(*([np.linalg.inv(covariance(c.q)) for c in cases] if weights is None else weights))
    information = matrix.T @ weight @ matrix
    compliance = np.linalg.solve(information, matrix.T @ weight @ np.concatenate([c.displacement[0] for c in cases]))
    return 1.0 / compliance, np.sqrt(np.diag(np.linalg.inv(information))) / compliance**2


def test_errors_are_common_to_a_load(folder):
    made = study(folder)
    case, count = made.entries[0].source.cases[0], 4000
    errors = Instruments.model_validate(INSTRUMENTS)
    seen = measured_with(made.model, [case] * count, errors, np.random.default_rng(3))
    moved = np.array([s.displacement[0] for s in seen])
    expected = covariance(case.q)
    size = np.sqrt(np.diag(expected))
    # An entry of the correlation of 4000 draws scatters by 0.016 to 0.022; four times that.
    np.testing.assert_allclose(np.cov(moved.T) / np.outer(size, size), expected / np.outer(size, size), atol=0.09)


def test_values_and_deviations_are_those_of_generalized_least_squares(folder):
    result = identify(study(folder))
    values, std = gls(result.study.entries[0].source.cases)
    found = [result.parameters[name] for name in ("stiffness.a", "stiffness.b")]
    np.testing.assert_allclose([p.value for p in found], values, rtol=1e-9)
    np.testing.assert_allclose([p.std for p in found], std, rtol=1e-6)


def test_beside_a_search_the_residual_is_the_same(folder):
    """Its squares sum to that of the whitened errors."""
    made = study(folder)
    u = np.asarray(made.free.encode(TRUTH))
    total = 0.0
    for case in made.entries[0].source.cases:
        error = case.displacement[0] - jacobian(case.q) @ ((jacobian(case.q).T @ case.wrench) / TRUTH)
        total += error @ np.linalg.solve(covariance(case.q), error)
    assert float(np.sum(np.asarray(made.problem.residual(u)) ** 2)) == pytest.approx(total, rel=1e-9)


def test_intervals_hold_the_truth_as_often_as_they_say(folder):
    """Of 2000 draws: errors over their standard deviation, and how many lie within 1.96 of them; without what the
    displacements of a load have in common only two thirds would."""
    made, draw, scaled = study(folder), np.random.default_rng(11), []
    errors = Instruments.model_validate(INSTRUMENTS)
    for _ in range(2000):
        values, std = gls(measured_with(made.model, made.entries[0].source.cases, errors, draw))
        scaled.append((1.0 / values - 1.0 / TRUTH) * values**2 / std)
    # a standard deviation of 2000 draws scatters by 1.6 %, a share of 0.95 by 0.005; four times that
    np.testing.assert_allclose(np.sqrt(np.mean(np.square(scaled), axis=0)), 1.0, atol=0.064)
    np.testing.assert_allclose(np.mean(np.abs(scaled) < 1.96, axis=0), 0.95, atol=0.02)


LOAD_ERRORS = {"balance_kg": 0.2, "direction_deg": 1.0, "lever_mm": 20.0, "encoder_deg": 0.1}
SOFTER = np.array([2e4, 3e4])
"""Stiffnesses of a machine that is measured and not the one described."""


def covariance_of_all(case, stiffness):
    """Of the six displacements, with errors of load and posture to first order, by hand."""

    def moved(q, wrench):
        return jacobian(q) @ (jacobian(q).T @ wrench / stiffness)

    force, still, axes, step = case.wrench[:3], np.zeros(3), np.eye(3), 1e-6
    loads = [np.r_[0.2 * 9.80665 * force / np.linalg.norm(force), still]]
    loads += [np.r_[np.radians(1.0) * np.cross(axis, force), still] for axis in axes]
    loads += [np.r_[still, 0.02 * np.cross(axis, force)] for axis in axes]
    changes = [moved(case.q, load) for load in loads]
    for turn in np.eye(2):
        slope = moved(case.q + step * turn, case.wrench) - moved(case.q - step * turn, case.wrench)
        changes.append(np.radians(0.1) * slope / (2.0 * step))
    return covariance(case.q) + np.transpose(changes) @ changes


@pytest.fixture(scope="module")
def with_load_errors(folder):
    test = loads(count=8, instruments=INSTRUMENTS | LOAD_ERRORS)
    test["simulate"]["parameters"] = dict(zip(("stiffness.a", "stiffness.b"), SOFTER.tolist(), strict=True))
    return study_of(folder, test, free=STIFFNESS)


def test_simulated_errors_of_loads_and_postures_have_their_covariance(with_load_errors):
    case, count = with_load_errors.entries[0].source.cases[0], 4000
    errors = Instruments.model_validate(INSTRUMENTS | LOAD_ERRORS)
    seen = measured_with(with_load_errors.model, [case] * count, errors, np.random.default_rng(3))
    expected = covariance_of_all(case, TRUTH)
    size = np.sqrt(np.diag(expected))
    found = np.cov(np.array([s.displacement[0] for s in seen]).T)
    np.testing.assert_allclose(found / np.outer(size, size), expected / np.outer(size, size), atol=0.09)


def test_a_fit_counts_errors_of_loads_and_postures(with_load_errors):
    """By the covariance about the machine that is found, from one of other stiffness on."""
    result = identify(with_load_errors)
    cases = result.study.entries[0].source.cases
    found = [result.parameters[name] for name in ("stiffness.a", "stiffness.b")]
    weights = [np.linalg.inv(covariance_of_all(case, np.array([p.value for p in found]))) for case in cases]
    values, std = gls(cases, weights)
    # central differences over standard deviations of up to 1 deg differ from derivatives by their square
    np.testing.assert_allclose([p.value for p in found], values, rtol=1e-4)
    np.testing.assert_allclose([p.std for p in found], std, rtol=1e-3)
    errors = [c.displacement[0] - jacobian(c.q) @ (jacobian(c.q).T @ c.wrench / values) for c in cases]
    chi_square = sum(error @ weight @ error for error, weight in zip(errors, weights, strict=True))
    assert result.cost == pytest.approx(chi_square, rel=1e-3)
    bars = [
        [*row.measured_std_mm / 1e3, *np.radians(row.measured_std_deg)]
        for row in result.metrics.of(DeflectionMetrics).deflections
    ]
    np.testing.assert_allclose(bars, [np.sqrt(np.diag(np.linalg.inv(weight))) for weight in weights], rtol=1e-3)
    assert result.converged


def test_beside_other_tests_errors_of_loads_and_postures_count_too(folder, with_load_errors):
    """About any machine: W S W^T is the diagonal of independent errors."""
    test = with_load_errors.origin.file.test[0]
    study = study_of(folder, test, shapes(), free=STIFFNESS, gravity=(0.0, 0.0, 0.0))
    assert not study.solver.is_linear
    assert study.relinearized
    there = study.linearized_about(study.free.apply(study.model, SOFTER)).entries[0]
    expected = block_diag(*(covariance_of_all(case, SOFTER) for case in there.source.cases))
    white = there.test.independent(there.test.independent(expected).T) / np.outer(there.test.std, there.test.std)
    np.testing.assert_allclose(white, np.eye(48), atol=2e-3)
