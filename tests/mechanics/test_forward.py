"""Forward dynamics and simulated motions against Pinocchio and closed forms."""

from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
from scipy.special import ellipk

import jaxmb
from tests.mechanics.test_loops import angles, without_springs
from tests.recovery.test_flexible import ARM as BEAMS

ARM = Path(__file__).parent / "robots" / "arm.urdf"
PENDULUM = {"name": "pendulum", "gravity": [0.0, -9.81, 0.0],
            "body": [{"name": "rod", "mass": 2.0, "center_of_mass": [0.5, 0.0, 0.0],
                      "inertia_products": {"xx": 1e-3, "yy": 0.1, "zz": 0.1}, "joint": [{"name": "q1"}]}],
            "posture": {"q1": "-90 deg"}}  # fmt: skip
SLEDGE = {"name": "sledge",
          "body": [{"name": "sledge", "mass": 2.0, "joint": [
              {"name": "x", "type": "prismatic", "axis": [1.0, 0.0, 0.0], "friction": 3.0}]}]}  # fmt: skip


def built(machine):
    return jaxmb.build_model(jaxmb.Machine.model_validate(machine))


def test_arm_against_pinocchio():
    model, other = jaxmb.build_model(jaxmb.load_machine(ARM)), pin.buildModelFromXML(ARM.read_text())
    names, n = model.coordinates, len(model.coordinates)
    model = jaxmb.set_parameters(model, {f"{what}.{name}": 0.0 for what in ("damping", "friction") for name in names})
    other.damping[:] = 0.0
    other.friction[:] = 0.0
    joints = [other.joints[other.getJointId(name)] for name in names]
    moved = [joint.idx_v for joint in joints]
    draw = np.random.default_rng(0)
    for _ in range(5):
        q, qd, tau = draw.normal(size=(3, n))
        place, v, effort = pin.neutral(other), np.zeros(other.nv), np.zeros(other.nv)
        for joint, value in zip(joints, q, strict=True):
            place[joint.idx_q : joint.idx_q + joint.nq] = value if joint.nq == 1 else [np.cos(value), np.sin(value)]
        v[moved], effort[moved] = qd, tau
        theirs = pin.aba(other, other.createData(), place, v, effort)[moved]
        np.testing.assert_allclose(jaxmb.forward_dynamics(model, q, qd, tau), theirs, rtol=1e-9, atol=1e-9)


def test_period_of_a_pendulum():
    """A quarter of the period K(sin(amplitude / 2)) sqrt(I / (m g c)) after its start it hangs down."""
    amplitude, inertia = 2.0, 0.1 + 2.0 * 0.5**2
    quarter = float(ellipk(np.sin(amplitude / 2) ** 2) * np.sqrt(inertia / (2.0 * 9.81 * 0.5)))
    model = built(PENDULUM)
    found = jaxmb.simulate_motion(model, [amplitude - np.pi / 2], [0.0], quarter, 1.0 / quarter)
    np.testing.assert_allclose(found.q[:, 0], [amplitude - np.pi / 2, -np.pi / 2], atol=1e-7)
    np.testing.assert_allclose(found.qdd[1], 0.0, atol=1e-5)


def test_friction_stops_a_sledge():
    """From 1.5 m/s at 3 / 2 m/s^2 in one second and 0.75 m; with the speed of smoothed friction it still creeps."""
    found = jaxmb.simulate_motion(built(SLEDGE), [0.0], [1.5], 2.0, 10.0, friction_speed=1e-4)
    np.testing.assert_allclose(found.q[5, 0], 1.5 * 0.5 - 0.75 * 0.25, rtol=1e-6)
    np.testing.assert_allclose(found.q[-1, 0], 0.75, rtol=2e-4)


def test_a_driven_four_bar():
    """The efforts that turn its crank in a known way turn it so; the other angles are those of the closed form."""
    model = jaxmb.build_model(without_springs())

    def crank(t):
        return 1.0 + 2.0 * t + 0.3 * np.sin(3.0 * t), 2.0 + 0.9 * np.cos(3.0 * t), -2.7 * np.sin(3.0 * t)

    def effort(t, q, qd):
        angle, rate, acceleration = crank(t)
        return jaxmb.actuator_effort(model, angles(angle), [rate], [acceleration])

    found = jaxmb.simulate_motion(model, angles(1.0), [2.9], 2.0, 20.0, effort)
    expected = crank(found.time_s)
    np.testing.assert_allclose(found.q, [angles(x) for x in expected[0]], atol=1e-5)
    np.testing.assert_allclose(found.qd[:, 0], expected[1], atol=1e-4)
    again = jaxmb.actuator_effort(model, found.q[-1], found.qd[-1], found.qdd[-1])
    np.testing.assert_allclose(again, found.effort[-1], rtol=1e-9)


def test_locked_coordinates_stay():
    locked = PENDULUM | {"body": [PENDULUM["body"][0] | {"joint": [{"name": "q1", "locked": True}]}]}
    found = jaxmb.simulate_motion(built(locked), [0.3], [0.0], 1.0, 10.0)
    np.testing.assert_array_equal(found.q, 0.3)
    with pytest.raises(ValueError, match="qd: 'q1' is locked and has a rate of 1, expected 0"):
        jaxmb.simulate_motion(built(locked), [0.3], [1.0], 1.0, 10.0)


def test_wrong_input():
    model = built(PENDULUM)
    with pytest.raises(ValueError, match=r"qd has shape \(2,\), expected \(1,\): rates of q1"):
        jaxmb.simulate_motion(model, [0.0], [0.0, 0.0], 1.0, 10.0)
    right = {"model": model, "q": [0.0], "qd": [0.0], "duration_s": 1.0, "rate_hz": 9.0}
    for wrong, told in (
        ({"duration_s": -1.0}, "duration_s is -1.0, expected a number above 0"),
        ({"rate_hz": np.inf}, "rate_hz is inf, expected a finite number"),
        ({"friction_speed": 0.0}, "friction_speed is 0.0, expected a number above 0"),
        ({"q": [0.0, 1.0]}, r"q has shape \(2,\), expected \(1,\): one value a coordinate"),
        ({"qd": [np.nan]}, "qd holds nan, expected finite numbers"),
        ({"effort": lambda t, q, qd: [np.nan]}, r"effort\(t, q, qd\) holds nan at 0 s, expected numbers"),
    ):
        with pytest.raises(ValueError, match=told):
            jaxmb.simulate_motion(**right | wrong)
    light = PENDULUM | {"body": [*PENDULUM["body"], {"name": "tip", "parent": "rod", "joint": [{"name": "q2"}]}]}
    with pytest.raises(ValueError, match="mass matrix of 'pendulum' is singular: 'q2' moves without mass or inertia"):
        jaxmb.simulate_motion(built(light), [0.0, 0.0], [0.0, 0.0], 1.0, 10.0)
    with pytest.raises(ValueError, match=r"effort has shape \(2,\), expected that of qd, \(1,\)"):
        jaxmb.forward_dynamics(model, [0.0], [0.0], [0.0, 0.0])
    crank = jaxmb.build_model(jaxmb.load_machine("slider-crank"))
    with pytest.raises(ValueError, match=r"qd has shape \(3,\), expected \(1,\): one rate an independent coordinate"):
        jaxmb.forward_dynamics(crank, crank.reference, np.zeros(3), np.zeros(3))
    with pytest.raises(ValueError, match=r"effort\(t, q, qd\) has shape \(\), expected \(1,\): at q1"):
        jaxmb.simulate_motion(model, [0.0], [0.0], 1.0, 10.0, lambda t, q, qd: 1.0)
    with pytest.warns(UserWarning, match="forward_dynamics: '.*' is flexible and taken as rigid"):
        jaxmb.forward_dynamics(jaxmb.build_model(BEAMS), [0.0, 0.0], [0.0, 0.0], [0.0, 0.0])
    with pytest.raises(NotImplementedError, match="has beams or virtual springs"):
        jaxmb.simulate_motion(jaxmb.build_model(BEAMS), [0.0], [0.0], 1.0, 10.0)
