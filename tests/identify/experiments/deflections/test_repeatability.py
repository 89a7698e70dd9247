"""Coordinates that turn between the readings without and with the load, against generalized least squares in NumPy."""

import numpy as np
import pytest
from scipy.linalg import block_diag

from jaxmb.identify.assess.identify import identify
from jaxmb.identify.experiments.deflections.instruments import Instruments
from jaxmb.identify.study.file import study_data
from jaxmb.identify.study.simulation.deflections import measured_with
from jaxmb.identify.study.study import make_study
from tests.identify.arm import FREE, loads, study_of

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


def gls(cases):
    """Stiffnesses and their standard deviations, linear in compliances."""
    matrix = np.concatenate([jacobian(c.q) * (jacobian(c.q).T @ c.wrench) for c in cases])
    weight = np.linalg.inv(block_diag(*(covariance(c.q) for c in cases)))
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


def test_not_with_a_complete_stiffness_model():
    data = study_data("kr270-complete-stiffness")
    for test in data["test"]:
        test["instruments"] = {"tracker_mm": 0.03, "repeat_deg": 0.001}
    with pytest.raises(NotImplementedError, match=r"instruments: repeat_deg cannot be used with \[complete\]"):
        make_study(data, "complete")
