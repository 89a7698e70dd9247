"""Laws that the equations of motion obey, closed forms, and derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from jax.flatten_util import ravel_pytree

from jaxmb.identify.parameters.model_parameters import set_parameters
from jaxmb.machine.elements import rotation_matrix
from jaxmb.machine.file import load_machine
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.dynamics import (
    gravity_effort,
    gravity_energy,
    inverse_dynamics,
    mass_matrix,
    spring_stretch,
)
from jaxmb.mechanics.kinematics import frame_jacobian, frame_pose
from jaxmb.mechanics.postures import build_model, posture
from jaxmb.mechanics.tangent import linearize, motion_jacobians

CRANE = {
    "name": "crane",
    "body": [
        {
            "name": "column",
            "origin": {"xyz": [0.1, 0.2, 0.3], "rpy": [0.2, 0.1, -0.4]},
            "joint": [{"name": "turn", "axis": [0, 0, 1], "stiffness": 40, "damping": 2, "rotor_inertia": 0.3}],
            "mass": 8,
            "center_of_mass": [0.1, 0.0, 0.5],
            "inertia_tensor": [[0.7, 0.02, 0.01], [0.02, 0.6, -0.03], [0.01, -0.03, 0.3]],
        },
        {
            "name": "jib",
            "parent": "column",
            "origin": {"xyz": [0.0, 0.0, 1.0], "rpy": [1.2, 0.0, 0.3]},
            "joint": [
                {"name": "lift", "axis": [0, 1, 0], "stiffness": 30, "damping": 1},
                {"name": "reach", "type": "prismatic", "axis": [1, 0, 0], "stiffness": 200, "damping": 5},
            ],
            "mass": 4,
            "center_of_mass": [0.6, 0.0, 0.1],
            "inertia_tensor": [[0.05, 0, 0], [0, 0.4, 0], [0, 0, 0.38]],
        },
    ],
    "frame": [
        {"name": "hook", "body": "jib", "origin": {"xyz": [1.2, 0.1, -0.2], "rpy": [0.5, -0.7, 0.2]}},
        {"name": "post", "body": "ground", "origin": {"xyz": [1.0, 1.0, 1.0], "rpy": [0.1, 0.2, 0.3]}},
    ],
    "payload": [
        {
            "name": "load",
            "frame": "hook",
            "mass": 2.5,
            "center_of_mass": [0.05, -0.1, 0.2],
            "inertia_products": {"xx": 0.03, "yy": 0.05, "zz": 0.04, "xy": 0.01},
        }
    ],
    "spring": [
        {
            "name": "rope",
            "frame_a": "post",
            "frame_b": "hook",
            "type": "translation",
            "direction": [0.6, 0.0, 0.8],
            "stiffness": 70,
            "damping": 4,
        },
        {
            "name": "twist",
            "frame_a": "column",
            "frame_b": "hook",
            "type": "rotation",
            "direction": [0.0, 1.0, 0.0],
            "stiffness": 15,
            "damping": 0.6,
        },
    ],
}
MODEL = build_model(Machine.model_validate(CRANE))
# Within 1.3 rad of rest, so that no rotation between frames comes near pi, where its vector jumps.
three = st.lists(st.floats(-1.3, 1.3), min_size=3, max_size=3).map(np.array)
few = settings(max_examples=20, deadline=None, derandomize=True)


@given(q=three)
@few
def test_mass_matrix_is_symmetric_positive_definite(q):
    M = np.asarray(mass_matrix(MODEL, q))
    np.testing.assert_allclose(M, M.T, rtol=0, atol=1e-14 * M.max())
    assert np.linalg.eigvalsh(M).min() > 0.0


@given(q=three, xyz=three, rpy=three)
@few
def test_mass_matrix_does_not_see_where_the_base_stands(q, xyz, rpy):
    column = CRANE["body"][0] | {"origin": {"xyz": xyz, "rpy": rpy}}
    moved = build_model(Machine.model_validate(CRANE | {"body": [column, CRANE["body"][1]]}))
    # Rounding only: entries up to 40 from lengths of a few metres.
    np.testing.assert_allclose(mass_matrix(moved, q), mass_matrix(MODEL, q), rtol=0, atol=1e-12)


@jax.jit
def power_and_energy_rate(q, qd, qdd, rest):
    def energy(x, v):
        springs = MODEL.stiffness @ (x - rest) ** 2 + MODEL.spring_stiffness @ spring_stretch(MODEL, x, rest) ** 2
        return 0.5 * (v @ mass_matrix(MODEL, x) @ v + springs) + gravity_energy(MODEL, x)

    _, rate = jax.jvp(energy, (q, qd), (qd, qdd))
    _, stretching = jax.jvp(lambda x: spring_stretch(MODEL, x, rest), (q,), (qd,))
    lost = MODEL.damping @ qd**2 + MODEL.spring_damping @ stretching**2
    return qd @ inverse_dynamics(MODEL, q, qd, qdd, rest), rate + lost


@given(q=three, qd=three, qdd=three, rest=three.map(lambda x: 0.3 * x))
@few
def test_power_balance(q, qd, qdd, rest):
    power, spent = power_and_energy_rate(q, qd, qdd, rest)
    # Terms of up to some hundred watts cancel.
    assert abs(power - spent) < 1e-10


def test_effort_is_mass_times_acceleration_plus_rest():
    q, qd, qdd = np.random.default_rng(1).uniform(-1, 1, (3, 3))
    still = inverse_dynamics(MODEL, q, qd, jnp.zeros(3))
    np.testing.assert_allclose(inverse_dynamics(MODEL, q, qd, qdd) - still, mass_matrix(MODEL, q) @ qdd, rtol=1e-11)


def test_rotor_inertia_is_reflected_on_the_diagonal():
    machine = Machine.model_validate(CRANE)
    without = CRANE | {
        "body": [
            CRANE["body"][0] | {"joint": [CRANE["body"][0]["joint"][0] | {"rotor_inertia": 0}]},
            CRANE["body"][1],
        ]
    }
    q, qd, qdd = np.random.default_rng(2).uniform(-1, 1, (3, 3))
    a, b = build_model(machine), build_model(Machine.model_validate(without))
    np.testing.assert_allclose(mass_matrix(a, q) - mass_matrix(b, q), np.diag([0.3, 0, 0]), atol=1e-13)
    difference = inverse_dynamics(a, q, qd, qdd) - inverse_dynamics(b, q, qd, qdd)
    np.testing.assert_allclose(difference, [0.3 * qdd[0], 0, 0], atol=1e-12)


def test_payload_is_the_same_mass_merged_into_its_body():
    """Hand calculation: the payload turned into the body's axes, then both about their common centre of mass."""
    jib, load, hook = CRANE["body"][1], CRANE["payload"][0], CRANE["frame"][0]
    rotation = rotation_matrix(hook["origin"]["rpy"])
    centres = [
        np.array(jib["center_of_mass"]),
        np.array(hook["origin"]["xyz"]) + rotation @ load["center_of_mass"],
    ]
    own = np.array([[0.03, -0.01, 0], [-0.01, 0.05, 0], [0, 0, 0.04]])
    tensors = [np.array(jib["inertia_tensor"]), rotation @ own @ rotation.T]
    weights = [jib["mass"], load["mass"]]
    centre = np.average(centres, axis=0, weights=weights)
    merged = sum(
        t + m * ((c - centre) @ (c - centre) * np.eye(3) - np.outer(c - centre, c - centre))
        for t, m, c in zip(tensors, weights, centres, strict=True)
    )
    heavy = jib | {"mass": sum(weights), "center_of_mass": centre, "inertia_tensor": merged}
    by_hand = build_model(Machine.model_validate(CRANE | {"body": [CRANE["body"][0], heavy], "payload": []}))
    q, qd, qdd = np.random.default_rng(4).uniform(-1, 1, (3, 3))
    np.testing.assert_allclose(mass_matrix(MODEL, q), mass_matrix(by_hand, q), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        inverse_dynamics(MODEL, q, qd, qdd), inverse_dynamics(by_hand, q, qd, qdd), rtol=1e-12, atol=1e-12
    )


def test_payload_on_the_ground_and_on_a_body_frame():
    ground = CRANE["payload"][0] | {"frame": "post"}
    bare = build_model(Machine.model_validate(CRANE | {"payload": []}))
    fixed = build_model(Machine.model_validate(CRANE | {"payload": [ground]}))
    q = np.array([0.3, -0.4, 0.2])
    np.testing.assert_allclose(mass_matrix(bare, q), mass_matrix(fixed, q), atol=1e-14)
    assert float(mass_matrix(MODEL, q)[0, 0]) > float(mass_matrix(bare, q)[0, 0])


def test_gravity_of_a_pendulum():
    """m g l sin(q) for a mass hanging at distance l below a horizontal axis."""
    pendulum = Machine.model_validate(
        {
            "name": "pendulum",
            "body": [
                {
                    "name": "bob",
                    "mass": 2.0,
                    "center_of_mass": [0, 0, -0.7],
                    "joint": [{"name": "q", "axis": [1, 0, 0]}],
                }
            ],
        }
    )
    model = build_model(pendulum)
    np.testing.assert_allclose(gravity_effort(model, np.array([0.4])), [2 * 9.81 * 0.7 * np.sin(0.4)], rtol=1e-14)
    np.testing.assert_allclose(mass_matrix(model, np.array([0.4])), [[2 * 0.7**2]], rtol=1e-14)
    tangent = linearize(model, np.array([0.4]))
    np.testing.assert_allclose(tangent.stiffness, [[2 * 9.81 * 0.7 * np.cos(0.4)]], rtol=1e-14)


REST = np.array([0.1, 0.1, 0.1])
STATE, UNRAVEL = ravel_pytree((MODEL, *np.random.default_rng(8).uniform(-1, 1, (3, 3))))


def effort_of(x):
    model, q, qd, qdd = UNRAVEL(x)
    return inverse_dynamics(model, q, qd, qdd, REST)


def tangent_of(x):
    model, q, _, _ = UNRAVEL(x)
    return ravel_pytree(linearize(model, q))[0]


@pytest.mark.parametrize("outputs", [effort_of, tangent_of])
def test_derivatives_by_every_number_of_the_model(outputs):
    """Forward mode against central differences, in a random direction of state and all parameters."""
    rng = np.random.default_rng(9)
    value = jax.jit(outputs)
    direction = rng.normal(size=STATE.size)
    forward = jax.jit(lambda x, d: jax.jvp(outputs, (x,), (d,))[1])(STATE, direction)
    step = 1e-5
    numeric = (value(STATE + step * direction) - value(STATE - step * direction)) / (2 * step)
    # Central differences: rounding 1e-16 / 1e-5 and truncation 1e-10, times the outputs' size and third derivatives.
    np.testing.assert_allclose(forward, numeric, atol=3e-7 * float(jnp.abs(forward).max()))


@pytest.mark.parametrize("outputs", [effort_of, tangent_of])
def test_reverse_derivatives_are_the_forward_ones(outputs):
    """Both modes are exact: they differ by rounding alone."""
    rng = np.random.default_rng(9)
    direction = rng.normal(size=STATE.size)
    forward = jax.jit(lambda x, d: jax.jvp(outputs, (x,), (d,))[1])(STATE, direction)
    weights = rng.normal(size=forward.size)
    (gradient,) = jax.jit(lambda x, w: jax.vjp(outputs, x)[1](w))(STATE, weights)
    np.testing.assert_allclose(gradient @ direction, weights @ forward, rtol=1e-10)


@pytest.mark.parametrize("size", [2, 4])
def test_wrong_sizes_are_refused(size):
    with pytest.raises(ValueError, match=rf"q has shape \({size},\), expected \(3,\)"):
        mass_matrix(MODEL, np.zeros(size))
    with pytest.raises(ValueError, match=rf"qdd has shape \({size},\), expected \(3,\)"):
        inverse_dynamics(MODEL, np.zeros(3), np.zeros(3), np.zeros(size))


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="frame 'hok' does not exist, did you mean 'hook'"):
        frame_pose(MODEL, np.zeros(3), "hok")
    with pytest.raises(ValueError, match="coordinate 'trun' does not exist, did you mean 'turn'"):
        posture(MODEL, {"trun": 1.0})


def test_a_posture_takes_angles_as_text():
    model = build_model(load_machine("kuka-kr90"))
    np.testing.assert_array_equal(posture(model, {"z2": "70 deg"}), posture(model, {"z2": np.radians(70.0)}))
    with pytest.raises(ValueError, match=r"posture: z2: found '70 degs', expected a number in radians or a text"):
        posture(model, {"z2": "70 degs"})
    with pytest.raises(ValueError, match=r"posture: values: expected a dict of coordinates with their values"):
        posture(model, [1.0, 2.0])


def test_a_posture_in_degrees_is_refused():
    model = build_model(load_machine("kuka-kr90"))
    with pytest.raises(ValueError, match='z2 is 80 rad, more than a turn; write "80 deg" for degrees, "80 rad"'):
        posture(model, {"z2": 80.0})


def test_a_spring_between_points_that_coincide_is_named():
    machine = Machine.model_validate({
        "name": "m",
        "body": [{"name": "a", "mass": 1.0, "joint": [{"name": "q"}]}],
        "frame": [{"name": n, "body": b, "origin": {"xyz": [0.2, 0.0, 0.0]}} for n, b in (("g", "ground"), ("t", "a"))],
        "spring": [{"name": "s", "frame_a": "g", "frame_b": "t", "type": "length", "free_length": 0.1}],
    })  # fmt: skip
    model = build_model(machine)
    assert posture(model, {"q": "1 deg"}).shape == (1,)
    with pytest.raises(ValueError, match="posture: the ends of spring 's' coincide there, so that it has no direction"):
        posture(model, {"q": 0.0})


def test_a_motor_shaft_may_turn_many_times_and_a_joint_where_the_unit_is_stated():
    model = build_model(load_machine("manipulator-3r-motors"))
    assert posture(model, {"motor3": 50.0})[5] == 50.0
    assert float(jnp.max(posture(model, {"z2": "400 deg"}))) == pytest.approx(np.radians(400.0))


@pytest.mark.parametrize(
    ("value", "message"),
    [("30 deg", "is an angle, expected a number in m"), (150.0, "is 150 m, expected at most 100 m, is it in mm")],
)
def test_a_travel_in_another_unit_is_refused(value, message):
    model = build_model(load_machine("slider-crank"))
    with pytest.raises(ValueError, match=f"posture: q3 {message}"):
        posture(model, {"q3": value})


def test_jacobians_in_closed_form_are_derivatives_of_the_poses():
    """Also of frames on the way and on the ground, and with scaled readings and displaced origins and frames."""
    model = build_model(Machine.model_validate(CRANE))
    names = model.coordinates
    values = {f"reading_scale.{names[0]}": 1.2, f"zero.{names[1]}": 0.3, f"origin.{names[2]}.rx": 0.2}
    model = set_parameters(model, values | {"frame.hook.z": 0.1, "frame.hook.ry": 0.4})
    q = jnp.asarray(np.random.default_rng(2).normal(size=len(names)))
    found = motion_jacobians(model, q, model.frames)
    expected = [frame_jacobian(model, q, frame) for frame in model.frames]
    assert {bool(np.any(each)) for each in expected} == {True, False}
    np.testing.assert_allclose(found, expected, atol=1e-14)
