"""Coordinates that follow others: against Pinocchio, which reads `<mimic>`, MuJoCo's equalities and closed forms."""

import jax.numpy as jnp
import mujoco
import numpy as np
import pinocchio as pin
import pytest

import jaxmb
from jaxmb.machine.schema import Machine
from jaxmb.machine.urdf import machine_from_urdf, write_urdf

COLUMN = Machine.model_validate({
    "name": "column",
    "body": [
        {"name": "lower", "joint": [{"name": "lift", "type": "prismatic", "axis": [0.0, 0.0, 1.0]}], "mass": 16.0,
         "center_of_mass": [0.0, 0.1, 0.7], "inertia_tensor": np.diag([1.0, 1.2, 0.3]).tolist()},
        {"name": "upper", "parent": "lower", "origin": {"xyz": [0.1, 0.0, 0.2]}, "mass": 14.0,
         "joint": [{"name": "stage", "type": "prismatic", "axis": [0.0, 0.0, 1.0]}],
         "center_of_mass": [0.0, 0.0, 0.6], "inertia_tensor": np.diag([0.9, 0.9, 0.2]).tolist()},
        {"name": "arm", "parent": "upper", "origin": {"xyz": [0.0, 0.0, 1.4], "rpy": [0.3, 0.0, 0.0]}, "mass": 6.0,
         "joint": [{"name": "q1", "axis": [0.0, 1.0, 0.0], "range": [-3.0, 3.0]}], "center_of_mass": [0.4, 0.0, 0.1],
         "inertia_tensor": np.diag([0.1, 0.4, 0.5]).tolist()},
        {"name": "hand", "parent": "arm", "origin": {"xyz": [0.8, 0.0, 0.0]}, "mass": 2.0,
         "joint": [{"name": "q2", "axis": [0.0, 1.0, 0.0], "range": [-3.0, 3.0]}], "center_of_mass": [0.1, 0.02, 0.0],
         "inertia_tensor": np.diag([0.01, 0.02, 0.02]).tolist()},
    ],
    "frame": [{"name": "tool", "body": "hand", "origin": {"xyz": [0.3, 0.0, 0.0]}}],
    "coupling": [
        {"coordinate": "stage", "follows": "lift", "ratio": 0.5, "offset": -0.2},
        {"coordinate": "q2", "follows": "q1", "ratio": -1.5, "offset": 0.1},
    ],
})  # fmt: skip
Q1, LIFT = 0.6, 0.9
POSTURE = {"lift": LIFT, "q1": Q1}


def reduced(model, q, rates):
    """Mass matrix and efforts of the independent coordinates."""
    R = jaxmb.motion_map(model, q)
    M = R.T @ jaxmb.mass_matrix(model, q) @ R
    return np.asarray(M), np.asarray(R.T @ jaxmb.inverse_dynamics(model, q, R @ rates[0], R @ rates[1]))


def test_posture_of_coupled_coordinates():
    model = jaxmb.build_model(COLUMN)
    assert jaxmb.independent_coordinates(model) == ("lift", "q1")
    q = jaxmb.posture(model, POSTURE)
    np.testing.assert_allclose(q, [LIFT, 0.5 * LIFT - 0.2, Q1, 0.1 - 1.5 * Q1], atol=1e-14)
    np.testing.assert_allclose(jaxmb.motion_map(model, q), [[1, 0], [0.5, 0], [0, 1], [0, -1.5]], atol=1e-14)
    np.testing.assert_allclose(jaxmb.reference_posture(model), [0.0, -0.2, 0.0, 0.1], atol=1e-14)


def test_dynamics_against_pinocchio_with_mimic_joints(tmp_path):
    write_urdf(COLUMN, tmp_path / "column.urdf")
    machine = jaxmb.load_machine(tmp_path / "column.urdf")
    assert machine.coupling == COLUMN.coupling
    model = jaxmb.build_model(machine)
    q = jaxmb.posture(model, POSTURE)
    rates = jnp.array([[0.4, -0.7], [1.3, 2.1]])
    M, effort = reduced(model, q, rates)
    peer = pin.buildModelFromUrdf(str(tmp_path / "column.urdf"), mimic=True)
    data, order = peer.createData(), [peer.joints[peer.getJointId(name)] for name in ("lift", "q1")]
    assert peer.nv == 2
    values = np.zeros((3, 2))
    for k, joint in enumerate(order):
        values[:, joint.idx_q] = [[LIFT, Q1][k], *np.asarray(rates[:, k])]
    pin.framesForwardKinematics(peer, data, values[0])
    pose = data.oMf[peer.getFrameId("tool")].homogeneous
    np.testing.assert_allclose(jaxmb.frame_pose(model, q, "tool"), pose, atol=1e-12)
    index = [joint.idx_v for joint in order]
    expected = pin.rnea(peer, data, values[0], values[1], values[2])[index]
    np.testing.assert_allclose(effort, expected, rtol=1e-10)
    columns = [pin.rnea(peer, data, values[0], np.zeros(2), e) - pin.rnea(peer, data, values[0], np.zeros(2), 0 * e)
               for e in np.eye(2)]  # fmt: skip
    np.testing.assert_allclose(M, np.array(columns).T[np.ix_(index, index)], rtol=1e-10, atol=1e-12)


def test_equalities_of_mujoco(tmp_path):
    """Written and read again; MuJoCo's mass matrix, reduced by its equality, is that of the machine."""
    jaxmb.write_mjcf(COLUMN, tmp_path / "column.xml", POSTURE)
    machine = jaxmb.load_machine(tmp_path / "column.xml")
    assert machine.coupling == COLUMN.coupling
    peer = mujoco.MjModel.from_xml_path(str(tmp_path / "column.xml"))
    data = mujoco.MjData(peer)
    R = np.zeros((4, 2))
    for name, k in (("lift", 0), ("q1", 1)):
        address = peer.joint(name).qposadr[0]
        data.qpos[address], R[peer.joint(name).dofadr[0], k] = list(POSTURE.values())[k], 1.0
    for first, second, (constant, ratio, *_) in zip(peer.eq_obj1id, peer.eq_obj2id, peer.eq_data, strict=True):
        data.qpos[peer.jnt_qposadr[first]] = constant + ratio * data.qpos[peer.jnt_qposadr[second]]
        R[peer.jnt_dofadr[first]] = ratio * R[peer.jnt_dofadr[second]]
    mujoco.mj_forward(peer, data)
    M = np.zeros((4, 4))
    mujoco.mj_fullM(peer, data, M)
    model = jaxmb.build_model(machine)
    q = jaxmb.posture(model, POSTURE)
    np.testing.assert_allclose(jaxmb.frame_pose(model, q, "tool")[:3, 3], data.site("tool").xpos, atol=1e-10)
    np.testing.assert_allclose(reduced(model, q, jnp.zeros((2, 2)))[0], R.T @ M @ R, rtol=1e-9)


def test_frequency_of_a_geared_disc():
    """Two discs on one gear: omega^2 = k1 / (J1 + r^2 J2), and a spring on the follower counts r^2 times."""
    J1, J2, r, k1, k2 = 0.5, 0.2, 3.0, 4e4, 1e3
    bodies = [
        {
            "name": name,
            "mass": 1.0,
            "inertia_tensor": np.diag([J, J, J]).tolist(),
            "joint": [{"name": q, "stiffness": k}],
        }
        for name, q, J, k in (("a", "qa", J1, k1), ("b", "qb", J2, k2))
    ]
    data = {"name": "gears", "gravity": [0.0, 0.0, 0.0], "body": bodies,
            "coupling": [{"coordinate": "qb", "follows": "qa", "ratio": r}]}  # fmt: skip
    model = jaxmb.build_model(Machine.model_validate(data))
    found = jaxmb.modes(jaxmb.linearize(model, jaxmb.reference_posture(model)))
    expected = np.sqrt((k1 + r**2 * k2) / (J1 + r**2 * J2)) / (2 * np.pi)
    np.testing.assert_allclose(found.frequency_hz, [expected], rtol=1e-10)


@pytest.mark.parametrize(
    ("coupling", "message"),
    [
        ({"coordinate": "q3", "follows": "q1"}, "coupling: coordinate 'q3' does not exist"),
        ({"coordinate": "q1", "follows": "q1"}, "follows 'q1', a dependent one, expected an independent one"),
        ({"coordinate": "stage", "follows": "q1"}, "coupling: coordinate 'stage' occurs twice|used twice"),
    ],
)
def test_wrong_couplings(coupling, message):
    data = COLUMN.model_dump(mode="json", exclude_defaults=True)
    data["coupling"] = [data["coupling"][0], coupling]
    with pytest.raises(ValueError, match=message):
        Machine.model_validate(data)


def test_mimic_of_a_joint_that_does_not_exist():
    text = '<robot name="r"><link name="a"/><link name="b"/><joint name="j" type="revolute"><parent link="a"/>' \
           '<child link="b"/><mimic joint="k"/></joint></robot>'  # fmt: skip
    with pytest.raises(ValueError, match="joint 'j', mimic: joint 'k' does not exist"):
        machine_from_urdf(text, "r")
