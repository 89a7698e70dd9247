"""Deflection tests of a machine whose compliance depends on the posture, against the closed form."""

import dataclasses

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.experiments.deflections.deflection_test import deflection_test
from jaxmb.identify.experiments.deflections.load_cases import LoadCase, singular_postures
from jaxmb.identify.parameters.free_parameters import Bound, free_parameters
from jaxmb.identify.stiffness_model.compensator import Compensator, added_stiffness

JOINT, REACH = 6.6e6, 1.5
SPRING = Compensator(stiffness=4.0e5, free_length=0.45, carrier_radius=0.5, arm_radius=0.2, angle=0.0)
ANGLES = np.array([-0.7, 0.2, 1.5])
FORCE = 1000.0


@pytest.fixture(scope="module")
def model():
    """An arm with a gravity compensator."""
    frames = [{"name": "cylinder", "body": "ground", "origin": {"xyz": [0.5, 0.0, 0.0]}},
              {"name": "piston", "body": "arm", "origin": {"xyz": [-0.2, 0.0, 0.0]}},
              {"name": "tip", "body": "arm", "origin": {"xyz": [0.0, REACH, 0.0]}}]  # fmt: skip
    spring = {"name": "c", "frame_a": "cylinder", "frame_b": "piston", "type": "length", "stiffness": 4.0e5,
              "free_length": 0.45}  # fmt: skip
    joint = {"name": "q", "stiffness": JOINT}
    machine = {"name": "m", "body": [{"name": "arm", "joint": [joint]}], "frame": frames, "spring": [spring]}
    return jaxmb.build_model(jaxmb.Machine.model_validate(machine))


@pytest.fixture(scope="module")
def test(model):
    """Forces across the arm, whose tip moves along them by the machine's own compliance."""
    moved = FORCE * REACH**2 / (JOINT + np.asarray(added_stiffness(SPRING, ANGLES)))
    cases = []
    for angle, distance in zip(ANGLES, moved, strict=True):
        across = np.array([-np.cos(angle), -np.sin(angle), 0.0])
        wrench, seen = np.r_[FORCE * across, np.zeros(3)], np.r_[distance * across, np.full(3, np.nan)]
        cases.append(
            LoadCase(f"{angle:g}", np.array([angle]), "tip", wrench, ("tip",), seen[None], np.full((1, 6), 1e-5))
        )
    return deflection_test("set", model, cases)


def test_the_compensator_s_closed_form_is_predicted(model, test):
    np.testing.assert_allclose(np.asarray(test.predict(test.view(model))), np.asarray(test.displacement), rtol=1e-9,
                               atol=1e-18)  # fmt: skip
    softer = jaxmb.set_parameters(model, {"stiffness.q": 0.5 * JOINT})
    assert np.abs(np.asarray(test.residual(test.view(softer)))).max() > 1.0


def test_it_is_not_linear_with_springs_between_frames(model, test):
    free = free_parameters(model, [Bound(("stiffness.q",), 1e5, 1e9)])
    assert test.linear.reciprocal(model, free) is None
    without = jaxmb.build_model(jaxmb.load_machine("kuka-kr240"))
    joints = free_parameters(without, [Bound(("stiffness.q1",), 1e5, 1e9), Bound(("damping.q1",), 1.0, 2.0)])
    # linear in the reciprocal of the stiffness, and without any damping
    np.testing.assert_array_equal(test.linear.reciprocal(without, joints), [1.0, np.nan])


def test_a_damper_between_frames_leaves_it_linear(model, test):
    """With the spring's stiffness 0 the deflection is that of the joint alone, and linear in its compliance."""
    damper = jaxmb.set_parameters(model, {"stiffness.c": 0.0, "damping.c": 50.0})
    free = free_parameters(damper, [Bound(("stiffness.q",), 1e5, 1e9)])
    np.testing.assert_array_equal(test.linear.reciprocal(damper, free), [1.0])
    rows = test.linear.equations(damper, free)
    np.testing.assert_allclose(rows.matrix[:, 0] / JOINT, np.asarray(test.predict(test.view(damper))), rtol=1e-9,
                               atol=1e-18)  # fmt: skip
    both = free_parameters(damper, [Bound(("stiffness.q",), 1e5, 1e9), Bound(("stiffness.c",), 1.0, 1e6)])
    assert test.linear.reciprocal(damper, both) is None


def load_case(q):
    return LoadCase("a", np.array(q), "tool", np.ones(6), ("tool",), np.full((1, 6), 1e-4), np.full((1, 6), 1e-5))


def test_parallel_axes_and_locked_joints_are_not_singular():
    """Only joints about one axis are; the loads on four parallel ones determine each compliance."""
    bodies = [
        {"name": f"b{i}", "origin": {"xyz": [0.3, 0.0, 0.0]}, "joint": [{"name": f"q{i}", "stiffness": 1e4}]}
        | ({"parent": f"b{i - 1}"} if i else {})
        for i in range(4)
    ]
    tool = {"name": "tool", "body": "b3", "origin": {"xyz": [0.3, 0.0, 0.0]}}
    planar = jaxmb.build_model(jaxmb.Machine.model_validate({"name": "planar", "body": bodies, "frame": [tool]}))
    assert singular_postures(planar, [load_case([0.1, 0.7, -0.4, 0.9])]) == []
    robot = jaxmb.build_model(jaxmb.load_machine("kuka-kr240"))
    wrist = [load_case([0.1, 0.7, -0.4, 0.9, 0.0, 0.2])]
    (found,) = singular_postures(robot, wrist)
    assert "q4 and q6 have nearly equal effect" in found
    assert singular_postures(dataclasses.replace(robot, locked=tuple(i == 3 for i in range(6))), wrist) == []
