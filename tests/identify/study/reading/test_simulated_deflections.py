"""Simulated deflection tests: plans as asked for, errors of the size that was stated."""

import sys

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.spatial.transform import Rotation

from jaxmb.identify.estimation.design import Design
from jaxmb.identify.experiments.deflections.load_cases import predicted
from jaxmb.identify.experiments.tolerances import Instruments
from jaxmb.identify.study.format.static_format import DeflectionTestPart
from jaxmb.identify.study.reading.deflections import designed, measured_with, planned_tests
from jaxmb.machine.file import load_machine
from jaxmb.mechanics.kinematics import frame_pose
from jaxmb.mechanics.postures import build_model

MODEL = build_model(load_machine("kuka-kr240"))
STD = np.repeat([3e-5, 1e-4], 3)
HOW = {
    "tests": 7,
    "zones": {"low": {"q2": ["0 deg", "20 deg"]}, "high": {"q2": ["100 deg", "120 deg"], "q3": ["10 deg", "20 deg"]}},
    "force_n": [500.0, 900.0],
    "directions": [[0.0, 0.0, -2.0], [1.0, 0.0, 0.0]],
    "offset_m": [0.1, 0.2, 0.3],
}


def part(**more):
    simulate = HOW | more.pop("simulate", {})
    whole = {"kind": "deflection", "posture": {"q1": 0.3}, "simulate": simulate} | more
    found = DeflectionTestPart.model_validate(whole)
    assert found.simulate is not None
    return found.simulate, found


def test_the_plan_is_what_was_asked_for():
    tests = planned_tests(*part(points=["tool", "q6"]), STD, MODEL)
    assert [t.name for t in tests] == ["low 1", "low 2", "low 3", "low 4", "high 1", "high 2", "high 3"]
    for test in tests:
        angle = np.degrees(test.q[1])
        assert 0.0 <= angle <= 20.0 if test.name.startswith("low") else 100.0 <= angle <= 120.0
        assert test.q[0] == 0.3
        assert test.q[4] == MODEL.reference[4]
        force, moment = test.wrench[:3], test.wrench[3:]
        assert 500.0 <= np.linalg.norm(force) <= 900.0
        assert np.count_nonzero(force) == 1
        arm = np.asarray(frame_pose(MODEL, test.q, "tool"))[:3, :3] @ [0.1, 0.2, 0.3]
        np.testing.assert_allclose(moment, np.cross(arm, force), rtol=1e-12, atol=1e-9)
        assert test.points == ("tool", "q6")
        assert test.displacement.shape == (2, 6)
    assert {tuple(np.sign(t.wrench[:3])) for t in tests} == {(0.0, 0.0, -1.0), (1.0, 0.0, 0.0)}


def test_positions_alone_can_be_measured():
    tests = planned_tests(*part(simulate={"measured": "position"}), STD, MODEL)
    assert all(t.measured.tolist() == [[True] * 3 + [False] * 3] for t in tests)


def test_the_load_of_a_design_turns_with_the_tool(monkeypatch):
    """The moment at a test posture is that of the force at its arm there, not that of a candidate elsewhere."""
    design = {"candidates": 9, "criterion": "test-pose", "test_postures": [{"q2": "60 deg", "q5": "70 deg"}]}
    spec, whole = part(simulate={"design": design})
    purposes = []

    def chosen(model, candidates, count, criterion, stiffness, purpose):
        purposes.extend(purpose)
        return Design(tuple(range(count)), criterion, 0.0, 0.0, np.eye(6))

    monkeypatch.setattr(sys.modules[designed.__module__], "choose_load_cases", chosen)
    candidates = planned_tests(spec, whole, STD, MODEL)
    designed(spec.design, whole, spec.tests, candidates, MODEL, None)
    (test,) = purposes
    np.testing.assert_array_equal(test.wrench[:3], candidates[0].wrench[:3])
    arm = np.asarray(frame_pose(MODEL, test.q, "tool"))[:3, :3] @ [0.1, 0.2, 0.3]
    np.testing.assert_allclose(test.wrench[3:], np.cross(arm, test.wrench[:3]), rtol=1e-12, atol=1e-9)


def test_without_instruments_the_machine_s_own_deflections_are_seen():
    """J C J^T w of each point and load, the Jacobians by central differences of poses (their error 1e-9)."""
    how, whole = part(points=["tool", "q5"])
    planned = planned_tests(how, whole, STD, MODEL)
    tests = measured_with(MODEL, planned, whole.instruments, np.random.default_rng(0))
    for test in tests:
        at_tool, at_wrist = (jacobian_by_differences(test.q, frame) for frame in ("tool", "q5"))
        turned = (at_tool.T @ test.wrench) / np.asarray(MODEL.stiffness)
        expected = np.array([at_tool @ turned, at_wrist @ turned])
        np.testing.assert_allclose(test.displacement, expected, rtol=0.0, atol=1e-7 * np.abs(expected).max())


def jacobian_by_differences(q, frame, step=1e-4):
    """Velocity of a frame's origin, then its angular velocity, for each coordinate [6, n]."""
    columns = []
    for change in step * np.eye(q.size):
        after, before = (np.asarray(frame_pose(MODEL, q + sign * change, frame)) for sign in (1, -1))
        turn = Rotation.from_matrix(after[:3, :3] @ before[:3, :3].T).as_rotvec()
        columns.append(np.concatenate([after[:3, 3] - before[:3, 3], turn]) / (2 * step))
    return np.array(columns).T


def test_the_plan_does_not_depend_on_the_noise():
    how, whole = part(instruments={"tracker_mm": 0.03})
    planned = planned_tests(how, whole, STD, MODEL)
    first, second = (measured_with(MODEL, planned, whole.instruments, np.random.default_rng(seed)) for seed in (0, 1))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a.q, b.q)
        np.testing.assert_array_equal(a.wrench, b.wrench)
        assert not np.array_equal(a.displacement, b.displacement)


@pytest.mark.parametrize(
    ("errors", "share"),
    [
        ({"tracker_mm": 0.03, "reflectors_m": 0.5}, "tracker"),
        ({"tracker_mm": 1e-9, "balance_kg": 2.0}, "balance"),
        ({"tracker_mm": 1e-9, "encoder_deg": 0.5}, "encoder"),
        ({"tracker_mm": 1e-9, "direction_deg": 1.5}, "direction"),
        ({"tracker_mm": 1e-9, "lever_mm": 20.0}, "lever"),
    ],
)
def test_errors_have_the_stated_size(errors, share):
    instruments = Instruments.model_validate(errors)
    (test, *_) = planned_tests(*part(), STD, MODEL)
    count = 2000
    exact = predicted(MODEL, [test])[0][0]
    seen = measured_with(MODEL, [test] * count, instruments, np.random.default_rng(5))
    error = np.stack([t.displacement[0] for t in seen]) - exact
    # Of a standard deviation of 2000 draws: 1.6 %; four times that.
    if share == "tracker":
        expected = np.repeat([np.sqrt(2.0) * 3e-5, np.sqrt(2.0) * 6e-5], 3)
        np.testing.assert_allclose(error.std(axis=0), expected, rtol=0.064)
    elif share == "balance":
        size = np.linalg.norm(test.wrench[:3])
        np.testing.assert_allclose(error.std(axis=0), np.abs(exact) * 2.0 * 9.80665 / size, rtol=0.064)
    elif share in ("direction", "lever"):
        # the load hangs at r from the frame's origin: its moment is r x f, also after either of both errors
        force, moment = test.wrench[:3], test.wrench[3:]
        lever = np.cross(force, moment) / (force @ force)
        jacobian = jacobian_by_differences(test.q, "tool")
        slopes = []
        for axis in np.eye(3):
            change = np.cross(axis, force) if share == "direction" else np.zeros(3)
            turning = np.cross(lever, change) if share == "direction" else np.cross(axis, force)
            loaded = np.concatenate([change, turning])
            slopes.append(jacobian @ ((jacobian.T @ loaded) / np.asarray(MODEL.stiffness)))
        size = np.radians(1.5) if share == "direction" else 0.02
        expected = np.linalg.norm(slopes, axis=0) * size
        np.testing.assert_allclose(error.std(axis=0), expected, rtol=0.08, atol=1e-3 * expected.max())
    else:
        slopes = []
        for i in range(6):
            moved = []
            for step in (-1e-5, 1e-5):
                q = test.q.copy()
                q[i] += step
                moved.append(predicted(MODEL, [type(test)(**(vars(test) | {"q": q}))])[0][0])
            slopes.append((moved[1] - moved[0]) / 2e-5)
        expected = np.linalg.norm(slopes, axis=0) * np.radians(0.5)
        # Half a degree leaves second-order terms of up to a hundredth beside the scatter.
        np.testing.assert_allclose(error.std(axis=0), expected, rtol=0.08, atol=1e-3 * expected.max())


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"simulate": {"force_n": [2.0, 1.0]}}, "force_n\n .*expected ascending values"),
        ({"simulate": {"directions": [[0.0, 0.0, 0.0]]}}, "where the force points to"),
        ({"simulate": {"zones": {"a": {"q2": [1.0, 0.0]}}}}, "zones.a.q2\n .*expected ascending values"),
        ({"simulate": {"zones": {"a": {}}}}, "zones.a\n .*at least 1 item"),
        ({"simulate": {"zones": {}}}, "at least 1"),
        ({"file": "tests.csv"}, "expected either file or simulate"),
        ({"instruments": {"tracker_mm": 0.0}}, "greater than 0"),
    ],
)
def test_plans_that_cannot_be_meant_are_refused(more, told):
    with pytest.raises(ValidationError, match=told):
        part(**more)


def test_names_that_are_not_the_machine_s_are_refused():
    with pytest.raises(ValueError, match="zone 'a': coordinate 'q7'"):
        planned_tests(*part(simulate={"zones": {"a": {"q7": [0.0, 1.0]}}}), STD, MODEL)
    with pytest.raises(ValueError, match="frame 'hand'"):
        planned_tests(*part(frame="hand"), STD, MODEL)


def test_a_zone_of_a_slide_in_degrees_is_refused():
    slides = build_model(load_machine("slider-crank"))
    with pytest.raises(ValueError, match="zone 'a': q3 is an angle, expected a number in m"):
        planned_tests(*part(posture={}, simulate={"zones": {"a": {"q3": ["1 deg", 0.1]}}}), STD, slides)
