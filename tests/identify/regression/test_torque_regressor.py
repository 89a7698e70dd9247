"""Efforts of drives and their regressor against Pinocchio, MuJoCo and formulas by hand."""

from pathlib import Path

import mujoco
import numpy as np
import pinocchio as pin
import pytest

import jaxmb
from jaxmb.machine.changed import machine_of
from tests.mechanics.test_loops import BASE, COUPLER, CRANK, FOUR_BAR, angles

ARM = Path(__file__).parents[2] / "mechanics" / "robots" / "arm.urdf"
OF_BODY = ("mass", "first_moment.x", "first_moment.y", "first_moment.z", "inertia.xx", "inertia.xy", "inertia.yy",
           "inertia.xz", "inertia.yz", "inertia.zz")  # fmt: skip
"""Pinocchio's order of the ten numbers of a body, about the origin of its frame."""
DRIVEN = {
    "name": "driven",
    "gravity": [0.0, -9.81, 0.0],
    "body": [
        {"name": "arm", "mass": 2.0, "center_of_mass": [0.2, 0.1, 0.0], "inertia_products": {"xx": 1, "yy": 1, "zz": 1},
         "joint": [{"name": "a", "stiffness": 30.0, "damping": 2.0, "friction": 3.0, "offset": -0.4}]},
        {"name": "slide", "parent": "arm", "mass": 1.5, "origin": {"xyz": [0.5, 0.0, 0.0]},
         "joint": [{"name": "s", "type": "prismatic", "axis": [1.0, 0.0, 0.0], "rotor_inertia": 0.7, "damping": 5.0,
                    "friction": 8.0, "motor": None}]},
        {"name": "hand", "parent": "slide", "mass": 0.5, "center_of_mass": [0.0, 0.3, 0.0],
         "joint": [{"name": "b", "stiffness": 9.0, "friction": 1.0, "motor": {
             "inertia": 1e-3, "ratio": 50.0, "damping": 1e-3, "friction": 2e-3, "offset": 1e-3}}]},
    ],
    "frame": [{"name": "anchor", "body": "ground", "origin": {"xyz": [0.0, 1.0, 0.3]}},
              {"name": "tip", "body": "hand", "origin": {"xyz": [0.0, 0.4, 0.0]}}],
    "payload": [{"name": "load", "frame": "tip", "mass": 0.2, "center_of_mass": [0.01, 0.0, 0.0]}],
    "spring": [{"name": "balancer", "frame_a": "anchor", "frame_b": "tip", "type": "length", "free_length": 0.3,
                "stiffness": 40.0, "damping": 3.0}],
    "transmission": [{"name": "wrist", "coordinates": {"a": 1.0, "b": -2.0}, "inertia": 0.3, "damping": 0.6,
                      "friction": 0.9}],
}  # fmt: skip


def built(machine, **changes):
    return jaxmb.build_model(jaxmb.Machine.model_validate(machine | changes))


def by_names(model, values):
    return np.array([values[name] for name in jaxmb.regressor_names(model)])


@pytest.fixture(scope="module")
def driven():
    return built(DRIVEN)


def states(model, count, seed=0):
    sizes = np.array([len(model.coordinates), *2 * [len(jaxmb.independent_coordinates(model))]])
    return [np.random.default_rng(seed).normal(size=(count, size)) for size in sizes]


def test_arm_against_pinocchio():
    machine = jaxmb.load_machine(ARM)
    model, other = jaxmb.build_model(machine), pin.buildModelFromXML(ARM.read_text())
    names, data = jaxmb.regressor_names(model), other.createData()
    joints = {body.joint[0].name: body.name for body in machine.body if body.joint}
    moved = [other.joints[other.getJointId(name)].idx_v for name in model.coordinates]
    q, qd, qdd = states(model, 20)
    found = jaxmb.stacked_torque_regressor(model, q, qd, qdd)
    for k in range(20):
        place, v, a = pin.neutral(other), np.zeros(other.nv), np.zeros(other.nv)
        for name, value in zip(model.coordinates, q[k], strict=True):
            joint = other.joints[other.getJointId(name)]
            place[joint.idx_q : joint.idx_q + joint.nq] = value if joint.nq == 1 else [np.cos(value), np.sin(value)]
        v[moved], a[moved] = qd[k], qdd[k]
        theirs = pin.computeJointTorqueRegressor(other, data, place, v, a)[moved]
        for joint, body in joints.items():
            first = 10 * (other.getJointId(joint) - 1)
            of_body = [
                f"{what.split('.')[0]}.{body}{what[what.find('.') :] if '.' in what else ''}" for what in OF_BODY
            ]
            ours = found[k][:, [names.index(name) for name in of_body]]
            np.testing.assert_allclose(ours, theirs[:, first : first + 10], rtol=0.0, atol=1e-11)
        np.testing.assert_allclose(found[k][:, names.index("damping.axis2")], np.eye(6)[1] * qd[k, 1], atol=1e-14)


def test_effort_is_the_regressor_times_all_values(driven):
    """Springs, dampers, motors, loads, transmissions, friction and offsets, and any values of them."""
    names = jaxmb.regressor_names(driven)
    q, qd, qdd = (part[0] for part in states(driven, 1))
    Y = np.asarray(jaxmb.torque_regressor(driven, q, qd, qdd))
    assert Y.shape == (4, len(names))
    effort = jaxmb.actuator_effort(driven, q, qd, qdd)
    np.testing.assert_allclose(Y @ by_names(driven, jaxmb.parameters(driven)), effort, atol=1e-12)
    values = dict(zip(names, np.random.default_rng(1).uniform(0.1, 2.0, len(names)).tolist(), strict=True))
    changed = jaxmb.set_parameters(driven, values)
    effort = jaxmb.actuator_effort(changed, q, qd, qdd)
    np.testing.assert_allclose(Y @ by_names(driven, values), effort, atol=1e-12)
    np.testing.assert_array_equal(jaxmb.torque_regressor(changed, q, qd, qdd), Y)
    assert {"friction.b_motor", "offset.s", "rotor_inertia.wrist", "stiffness.balancer", "mass.load"} <= set(names)
    assert not {"free_length.balancer", "rotor_inertia.b"} & set(names)


def test_friction_and_offset(driven):
    q, qd, qdd = (part[0] for part in states(driven, 1))
    c = np.array([1.0, 0.0, -2.0, 0.0])
    bare = jaxmb.inverse_dynamics(driven, q, qd, qdd)
    frictions, offsets = np.array([3.0, 8.0, 1.0, 2e-3]), np.array([-0.4, 0.0, 0.0, 1e-3])
    for speed, direction in ((None, np.sign), (0.3, lambda rate: np.tanh(rate / 0.3))):
        expected = bare + frictions * direction(qd) + offsets + c * 0.9 * direction(c @ qd)
        found = jaxmb.actuator_effort(driven, q, qd, qdd, friction_speed=speed)
        np.testing.assert_allclose(found, expected, atol=1e-12)
    at_rest = jaxmb.actuator_effort(driven, q, 0.0 * qd, qdd)
    np.testing.assert_allclose(at_rest - jaxmb.inverse_dynamics(driven, q, 0.0 * qd, qdd), offsets, atol=1e-12)


def test_a_transmission(driven):
    """It adds c (I s'' + d s') to efforts, c I c^T to masses and c d c^T to dampers, nothing to stiffness."""
    q, qd, qdd = (part[0] for part in states(driven, 1))
    without = jaxmb.set_parameters(driven, dict.fromkeys(("rotor_inertia.wrist", "damping.wrist"), 0.0))
    c = np.array([1.0, 0.0, -2.0, 0.0])
    effort = jaxmb.inverse_dynamics(driven, q, qd, qdd) - jaxmb.inverse_dynamics(without, q, qd, qdd)
    np.testing.assert_allclose(effort, c * (0.3 * c @ qdd + 0.6 * c @ qd), atol=1e-12)
    ours, others = jaxmb.linearize(driven, q), jaxmb.linearize(without, q)
    np.testing.assert_allclose(ours.mass - others.mass, 0.3 * np.outer(c, c), atol=1e-12)
    np.testing.assert_allclose(ours.damping - others.damping, 0.6 * np.outer(c, c), atol=1e-12)
    np.testing.assert_allclose(ours.stiffness, others.stiffness, atol=1e-12)
    moving, at_rest = jaxmb.linearize_moving(driven, q, 0.0 * qd, 0.0 * qdd, q), ours
    np.testing.assert_allclose(moving.mass, at_rest.mass, atol=1e-12)
    np.testing.assert_allclose(moving.damping, at_rest.damping, atol=1e-12)


def test_a_machine_is_written_with_what_was_found(driven, tmp_path):
    values = {"friction.s": 9.0, "offset.a": 0.3, "friction.b_motor": 1e-2, "offset.b_motor": -1e-3,
              "rotor_inertia.wrist": 0.4, "damping.wrist": 0.7, "friction.wrist": 1.1}  # fmt: skip
    changed = jaxmb.set_parameters(driven, values)
    jaxmb.write_machine(machine_of(jaxmb.Machine.model_validate(DRIVEN), changed), tmp_path / "found.toml")
    found = jaxmb.parameters(jaxmb.build_model(jaxmb.load_machine(tmp_path / "found.toml")))
    assert {name: found[name] for name in values} == values


def test_closed_chain_against_mujoco():
    """MuJoCo's inverse dynamics of the tree, brought to the crank by differences of the closed form."""

    def body(mass, length, start, inner=""):
        across = mass * length**2 / 12
        return (f'<body pos="{start} 0 0"><joint type="hinge" axis="0 0 1" armature="0.02" damping="0.3"/>'
                f'<inertial pos="{length / 2} 0 0" mass="{mass}" diaginertia="1e-3 {across} {across}"/>{inner}'
                "</body>")  # fmt: skip

    text = (
        '<mujoco><option gravity="0 -9.81 0"/><compiler balanceinertia="false"/><worldbody>'
        + body(1.0, CRANK, 0.0, body(2.0, COUPLER, CRANK)) + body(1.5, 0.6, BASE) + "</worldbody></mujoco>"
    )  # fmt: skip
    theirs = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(theirs)
    joints = [body | {"joint": [{"name": f"q{i}", "rotor_inertia": 0.02, "damping": 0.3, "friction": i}]}
              for i, body in enumerate(FOUR_BAR["body"], 1)]  # fmt: skip
    model = built(FOUR_BAR, body=joints, independent=["q1"])
    values, h = by_names(model, jaxmb.parameters(model)), 1e-4
    for crank, rate, acceleration in ((1.3, 0.9, -0.3), (1.9, -0.5, 0.9), (0.4, 0.2, -0.4)):
        a, b, c, d, e = (angles(crank + k * h) for k in (-2, -1, 0, 1, 2))
        first = (a - 8 * b + 8 * d - e) / (12 * h)
        second = (-a + 16 * b - 30 * c + 16 * d - e) / (12 * h**2)
        data.qpos[:], data.qvel[:], data.qacc[:] = c, first * rate, first * acceleration + second * rate**2
        mujoco.mj_inverse(theirs, data)
        expected = first @ (data.qfrc_inverse + np.array([1.0, 2.0, 3.0]) * np.sign(data.qvel))
        q = jaxmb.close_loops(model, {"q1": crank})
        found = jaxmb.actuator_effort(model, q, [rate], [acceleration])
        np.testing.assert_allclose(found, [expected], rtol=1e-6)
        np.testing.assert_allclose(jaxmb.actuator_effort(model, q, data.qvel, data.qacc), [expected], rtol=1e-6)
        Y = jaxmb.torque_regressor(model, q, [rate], [acceleration])
        np.testing.assert_allclose(Y @ values, found, rtol=1e-12)


def test_stacked(driven):
    q, qd, qdd = states(driven, 5)
    names = ("friction.wrist", "mass.hand")
    chosen = [jaxmb.regressor_names(driven).index(name) for name in names]
    found = jaxmb.stacked_torque_regressor(driven, q, qd, qdd, names=names)
    one = jaxmb.torque_regressor(driven, q[3], qd[3], qdd[3])
    np.testing.assert_allclose(found[3], one[:, chosen], atol=1e-13)
    with pytest.raises(ValueError, match=r"parameter of the regressor 'mass\.foot' does not exist"):
        jaxmb.stacked_torque_regressor(driven, q, qd, qdd, names=["mass.foot"])
    with pytest.raises(ValueError, match=r"qd has shape \(3, 4\), expected a row for each of the 5 samples of q"):
        jaxmb.stacked_torque_regressor(driven, q, qd[:3], qdd)
    with pytest.raises(ValueError, match="q holds nan"):
        jaxmb.stacked_torque_regressor(driven, np.full_like(q, np.nan), qd, qdd)


def test_open_loops_are_refused():
    model = built(FOUR_BAR, independent=["q1"])
    q = np.tile(np.asarray(model.reference), (3, 1))
    q[2, 1] += 0.1
    with pytest.raises(ValueError, match=r"the loops of 'four-bar' are open by .* at sample 2"):
        jaxmb.stacked_torque_regressor(model, q, np.zeros((3, 1)), np.zeros((3, 1)))
    with pytest.raises(ValueError, match="q: the loops of 'four-bar' are open"):
        jaxmb.actuator_effort(model, q[2], [0.0], [0.0])
    with pytest.raises(ValueError, match=r"qd has shape \(2,\), expected \(1,\) or \(3,\)"):
        jaxmb.actuator_effort(model, q[0], [0.0, 0.0], [0.0])
    with pytest.raises(ValueError, match="friction_speed holds 0, expected finite numbers of at least 1e-09"):
        jaxmb.torque_regressor(model, q[0], [0.0], [0.0], friction_speed=0.0)


def test_a_locked_coordinate_is_held_by_its_brake(driven):
    body = [DRIVEN["body"][0] | {"joint": [DRIVEN["body"][0]["joint"][0] | {"locked": True}]}, *DRIVEN["body"][1:]]
    locked = built(DRIVEN, body=body)
    q, qd, qdd = (part[0] for part in states(driven, 1))
    qd[0] = qdd[0] = 0.0
    Y = jaxmb.torque_regressor(locked, q, qd, qdd)
    effort = jaxmb.actuator_effort(locked, q, qd, qdd)
    np.testing.assert_allclose(Y @ by_names(locked, jaxmb.parameters(locked)), effort, atol=1e-12)
    of_drive = 30.0 * (q[0] - np.asarray(driven.reference)[0]) - 0.4
    difference = jaxmb.actuator_effort(driven, q, qd, qdd) - effort
    np.testing.assert_allclose(difference, [of_drive, 0.0, 0.0, 0.0], atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"coordinates": {"z": 1.0}}, "transmission 'wrist': coordinate 'z' does not exist"),
        ({"coordinates": {}}, "at least 1 item"),
        ({"coordinates": {"a": 0.0}}, "coordinates.a\n .*expected another number than 0"),
        ({"name": "balancer"}, "'balancer' is used twice"),
        ({"friction": -1.0}, "greater than or equal to 0"),
    ],
)
def test_wrong_transmissions(change, message):
    with pytest.raises(ValueError, match=message):
        jaxmb.Machine.model_validate(DRIVEN | {"transmission": [DRIVEN["transmission"][0] | change]})
