"""Stribeck, cubic and load-dependent friction: closed forms on a pendulum, the regressor, and files."""

import numpy as np
import pytest

import jaxmb

TERMS = {
    "stribeck": 1.5, "stribeck_speed": 0.2, "cubic_damping": 0.03, "load_friction": 0.1, "damping_slope": -0.02,
    "temperature": 30.0,
}  # fmt: skip


def pendulum(further=None):
    """m = 2 kg at 0.5 m on a horizontal axis, with damping and friction."""
    joint = {"name": "q", "axis": [0.0, 1.0, 0.0], "damping": 0.4, "friction": 0.7, "offset": 0.2}
    joint |= {} if further is None else {"further_friction": further}
    bob = {"name": "bob", "parent": "ground", "mass": 2.0, "center_of_mass": [0.5, 0.0, 0.0], "joint": [joint]}
    return jaxmb.Machine.model_validate({"name": "pendulum", "body": [bob]})


@pytest.fixture(scope="module")
def model():
    return jaxmb.build_model(pendulum(TERMS))


@pytest.mark.parametrize("v", [0.1, -0.3, 2.0])
def test_efforts_are_those_of_the_closed_form(model, v):
    """m l^2 a - m g l cos q + d v + f sign v + o, and each term of further friction."""
    q, a = 0.3, 1.7
    carried = 2.0 * 0.5**2 * a - 2.0 * 9.81 * 0.5 * np.cos(q)
    plain = carried + 0.4 * v + 0.7 * np.sign(v) + 0.2
    expected = plain + 1.5 * np.exp(-((v / 0.2) ** 2)) * np.sign(v) + 0.03 * v**3 + 0.1 * abs(carried) * np.sign(v)
    assert float(jaxmb.actuator_effort(model, [q], [v], [a])[0]) == pytest.approx(expected, rel=1e-12)


def test_regressor_times_values_is_the_effort(model):
    names, values = jaxmb.regressor_names(model), jaxmb.parameters(model)
    assert [n for n in names if n.split(".")[0] in TERMS] == [
        "stribeck.q", "cubic_damping.q", "load_friction.q", "damping_slope.q"
    ]  # fmt: skip
    assert "stribeck_speed.q" in values
    assert "stribeck_speed.q" not in names
    Y = jaxmb.torque_regressor(model, [0.3], [0.25], [1.7])
    effort = jaxmb.actuator_effort(model, [0.3], [0.25], [1.7])
    np.testing.assert_allclose(np.asarray(Y) @ [values[name] for name in names], effort, rtol=1e-12)


def test_a_machine_without_it_has_no_names_of_it():
    plain = jaxmb.build_model(pendulum())
    assert not any(name.split(".")[0] in TERMS for name in jaxmb.parameters(plain))


def test_a_motion_follows_from_efforts_without_friction_by_load(model):
    with pytest.raises(NotImplementedError, match="has load_friction"):
        jaxmb.forward_dynamics(model, [0.3], [0.25], [0.0])
    rest = {key: value for key, value in TERMS.items() if key != "load_friction"}
    other = jaxmb.build_model(pendulum(rest))
    effort = jaxmb.actuator_effort(other, [0.3], [0.25], [1.7])
    np.testing.assert_allclose(jaxmb.forward_dynamics(other, [0.3], [0.25], effort), [1.7], rtol=1e-12)


def test_friction_by_load_of_a_joint_with_a_motor_is_refused():
    """Its effort is the difference of load and gear, not the load."""
    joint = {"name": "q", "stiffness": 1e4, "motor": {"inertia": 1e-3, "ratio": 80.0}, "further_friction": TERMS}
    bob = {"name": "bob", "mass": 2.0, "center_of_mass": [0.5, 0.0, 0.0], "joint": [joint]}
    with pytest.raises(NotImplementedError, match="'q' has load_friction and a motor"):
        jaxmb.build_model(jaxmb.Machine.model_validate({"name": "pendulum", "body": [bob]}))


@pytest.mark.parametrize(
    ("further", "told"),
    [
        ({"stribeck": 1.0}, "has a stribeck and no stribeck_speed"),
        ({"temperature": 20.0}, "has a temperature and no damping_slope"),
        ({"stribeck": 1.0, "stribeck_speed": 0.0}, "stribeck_speed"),
    ],
)
def test_wrong_input(further, told):
    with pytest.raises(ValueError, match=told):
        pendulum(further)
