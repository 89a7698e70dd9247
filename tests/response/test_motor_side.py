"""What a motor sees of a machine through its gear, against the two-inertia model in closed form."""

import numpy as np
import pytest

import jaxmb
from jaxmb.response.modal import energy_shares, spring_matrices, spring_names

ROTOR, RATIO, SHAFT_DAMPING, SHAFT_STIFFNESS = 0.002, -50.0, 0.01, 3.0
GEAR, GEAR_DAMPING, ARM = 1e4, 5.0, 3.5
LINES = np.linspace(0.5, 60.0, 120)
S = 2j * np.pi * LINES
Q = np.zeros(2)


def two_inertias(**changes):
    motor = {"inertia": ROTOR, "ratio": RATIO, "damping": SHAFT_DAMPING, "stiffness": SHAFT_STIFFNESS}
    motor |= {k: v for k, v in changes.items() if k in motor}
    joint = {"name": "a", "stiffness": GEAR, "damping": GEAR_DAMPING, "motor": motor}
    joint |= {k: v for k, v in changes.items() if k == "loss_factor"}
    inertia = {"xx": 0.1, "yy": 1.0, "zz": 1.0}
    body = {"name": "arm", "mass": 10.0, "center_of_mass": [0.5, 0, 0], "inertia_products": inertia, "joint": [joint]}
    return jaxmb.build_model(jaxmb.Machine.model_validate({"name": "two", "gravity": [0, 0, 0], "body": [body]}))


def closed_form(gear, shaft):
    """Angle of the motor, and of the arm, for a torque of the motor [f, 2], by Cramer's rule."""
    motor, arm, between = ROTOR * S**2 + shaft + gear / RATIO**2, ARM * S**2 + gear, gear / RATIO
    return np.stack([arm, between], axis=1) / (motor * arm - between**2)[:, None]


POINTS = [("a_motor", "angle"), ("a", "angle")]


@pytest.mark.parametrize(("kind", "power"), [("receptance", 0), ("mobility", 1), ("accelerance", 2)])
def test_angle_rate_and_acceleration_of_a_motor_for_its_torque(kind, power):
    found = jaxmb.frf(two_inertias(), Q, LINES, "arm", kind, POINTS, POINTS[:1])[:, :, 0]
    expected = closed_form(GEAR + GEAR_DAMPING * S, SHAFT_STIFFNESS + SHAFT_DAMPING * S) * S[:, None] ** power
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_gear_with_structural_damping():
    found = jaxmb.frf(two_inertias(loss_factor=0.03), Q, LINES, "arm", "receptance", POINTS, POINTS[:1])[:, :, 0]
    expected = closed_form(GEAR * (1.0 + 0.03j) + GEAR_DAMPING * S, SHAFT_STIFFNESS + SHAFT_DAMPING * S)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_resonance_and_antiresonance_without_damping():
    """The motor stands still where the arm swings on a gear that is held; free, both swing against each other."""
    model = jaxmb.set_parameters(two_inertias(stiffness=0.0, damping=0.0), {"damping.a": 0.0})
    antiresonance = np.sqrt(GEAR / ARM) / (2.0 * np.pi)
    resonance = np.sqrt(GEAR * (1.0 / ARM + 1.0 / (ROTOR * RATIO**2))) / (2.0 * np.pi)
    h = jaxmb.frf(model, Q, [antiresonance, 0.9 * antiresonance], "arm", outputs=POINTS[:1])[:, 0, 0]
    assert abs(h[0] / h[1]) < 1e-9
    found = np.asarray(jaxmb.undamped_modes(jaxmb.linearize(model, Q)).frequency_hz)
    np.testing.assert_allclose(found[-1], resonance, rtol=1e-9)


def test_strain_energy_of_gear_and_shaft():
    model = two_inertias()
    shape = np.asarray(jaxmb.modes(jaxmb.linearize(model, Q)).shape)
    shares = np.asarray(energy_shares(shape, spring_matrices(model, Q)))
    assert spring_names(model) == ("a", "a_motor")
    gear = GEAR * np.abs(shape[0] - shape[1] / RATIO) ** 2
    shaft = SHAFT_STIFFNESS * np.abs(shape[1]) ** 2
    np.testing.assert_allclose(shares, np.stack([gear, shaft]) / (gear + shaft), rtol=1e-9)


def test_names_and_units():
    model = two_inertias()
    parameters = jaxmb.parameters(model)
    expected = {"stiffness.a": GEAR, "stiffness.a_motor": SHAFT_STIFFNESS, "damping.a": GEAR_DAMPING}
    expected |= {"damping.a_motor": SHAFT_DAMPING, "rotor_inertia.a_motor": ROTOR, "loss_factor.a": 0.0}
    expected |= dict.fromkeys(("friction.a", "friction.a_motor", "offset.a", "offset.a_motor", "zero.a"), 0.0)
    expected |= {"reading_scale.a": 1.0} | dict.fromkeys(
        [f"origin.a.{x}" for x in ("x", "y", "z", "rx", "ry", "rz")], 0.0
    )
    assert expected == {k: v for k, v in parameters.items() if k.split(".")[1].startswith("a") and "arm" not in k}


def test_wrong_point():
    with pytest.raises(ValueError, match="expected 'angle' of a coordinate of its type"):
        jaxmb.frf(two_inertias(), Q, LINES, outputs=[("a_motor", "travel")])
