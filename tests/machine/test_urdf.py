"""URDF: what is read, and what is refused with one clear sentence."""

from pathlib import Path

import numpy as np
import pytest

from jaxmb.io.validation import InputError
from jaxmb.machine.elements import rotation_matrix
from jaxmb.machine.file import load_machine
from jaxmb.machine.urdf import machine_from_urdf
from jaxmb.mechanics.dynamics import mass_matrix
from jaxmb.mechanics.kinematics import coordinates, frames
from jaxmb.mechanics.postures import build_model, posture

INERTIAL = """<inertial><origin xyz="0.1 0 0" rpy="0.3 -0.2 0.5"/><mass value="2"/>
<inertia ixx="0.5" ixy="0.01" ixz="0.02" iyy="0.4" iyz="0.03" izz="0.3"/></inertial>"""
JOINT = """<joint name="hip" type="revolute"><parent link="base"/><child link="leg"/>
<origin xyz="0 0 1" rpy="0 0 0.5"/><axis xyz="0 3 4"/><limit effort="1" velocity="1"/>
<dynamics damping="0.7" friction="0.0"/></joint>"""
TEXT = f"""<?xml version="1.0" encoding="UTF-8"?>
<robot name="walker">
<link name="base"/>
<link name="leg">{INERTIAL}</link>
{JOINT}
</robot>"""


def test_what_is_read():
    machine = machine_from_urdf(TEXT, "walker")
    base, leg = machine.body
    assert (base.name, base.joint, base.mass) == ("base", (), 0.0)
    assert (leg.name, leg.parent, leg.mass, leg.center_of_mass) == ("leg", "base", 2.0, (0.1, 0.0, 0.0))
    (hip,) = leg.joint
    assert (hip.name, hip.type, hip.damping, hip.stiffness) == ("hip", "revolute", 0.7, 0.0)
    np.testing.assert_allclose(hip.axis, [0, 0.6, 0.8], rtol=1e-15)
    assert leg.origin.xyz == (0.0, 0.0, 1.0)
    assert leg.origin.rpy == (0.0, 0.0, 0.5)
    # The inertial frame is turned against the link: I_link = R I R^T.
    own = np.array([[0.5, 0.01, 0.02], [0.01, 0.4, 0.03], [0.02, 0.03, 0.3]])
    rotation = rotation_matrix([0.3, -0.2, 0.5])
    np.testing.assert_allclose(leg.central_inertia, rotation @ own @ rotation.T, rtol=1e-14)


def test_names_of_coordinates_and_frames(tmp_path):
    path = tmp_path / "two words v1.2.urdf"
    path.write_text(TEXT.replace('"leg"', '"left/leg"').replace('"hip"', '"1-hip"'))
    machine = load_machine(path)
    model = build_model(machine)
    assert machine.name == "two_words_v1_2"
    assert coordinates(model) == ("1-hip",)
    assert frames(model) == ("ground", "base", "left/leg")
    assert float(posture(model, {"1-hip": 0.3})[0]) == 0.3


def test_a_root_called_ground_is_the_ground():
    machine = machine_from_urdf(TEXT.replace('"base"', '"ground"'), "walker")
    assert [b.name for b in machine.body] == ["leg"]
    assert machine.body[0].parent == "ground"


def test_coordinates_are_in_the_order_of_the_joints():
    machine = load_machine(Path(__file__).parents[1] / "mechanics" / "robots" / "tree.urdf")
    assert machine.coordinates == ("right_1", "left_1", "waist", "right_0", "left_2", "grip")


def test_the_default_axis_is_x():
    machine = machine_from_urdf(TEXT.replace('<axis xyz="0 3 4"/>', ""), "walker")
    assert machine.body[1].joint[0].axis == (1.0, 0.0, 0.0)


def test_axes_of_any_length_are_directions():
    for axis in ("0 3e-200 4e-200", "0 3e200 4e200"):
        joint = machine_from_urdf(TEXT.replace("0 3 4", axis), "walker").body[1].joint[0]
        np.testing.assert_allclose(joint.axis, [0, 0.6, 0.8], rtol=1e-14)


@pytest.mark.parametrize(
    ("old", "new", "mass", "moment"),
    [
        (INERTIAL, "", 0.0, 0.0),
        (INERTIAL, '<inertial><mass value="2"/></inertial>', 2.0, 0.0),
        ('<mass value="2"/>', '<mass value="0"/>', None, None),
        # The determinant of the xy block is -1e-12: a thin rod, rounded.
        ('ixx="0.5" ixy="0.01" ixz="0.02"', 'ixx="1e-6" ixy="6.33e-4" ixz="0"', 2.0, 0.7),
    ],
    ids=["massless", "point mass", "inertia without mass", "rod"],
)
def test_quirks_of_real_files(old, new, mass, moment):
    text = TEXT.replace(old, new)
    if old.startswith("ixx"):
        text = text.replace('iyz="0.03" izz="0.3"', 'iyz="0" izz="0.4"')
    assert text != TEXT
    if mass is None:
        with pytest.raises(ValueError, match="body 'leg': has an inertia but no mass"):
            machine_from_urdf(text, "walker")
        return
    leg = machine_from_urdf(text, "walker").body[1]
    assert leg.mass == mass
    assert np.trace(leg.central_inertia) == pytest.approx(0.8 + 1e-6 if moment else 0.0, rel=1e-12)


def test_geometry_and_everything_else_is_left_alone():
    extra = """<material name="red"><color rgba="1 0 0 1"/></material>
    <transmission name="t"><joint name="hip"/></transmission>
    <gazebo><plugin name="x" filename="/bin/sh"><a><b><c/></b></a></plugin></gazebo></robot>"""
    visual = '<link name="base"><visual><geometry><mesh filename="package://a/b.stl"/></geometry></visual></link>'
    text = TEXT.replace("</robot>", extra).replace('<link name="base"/>', visual)
    assert machine_from_urdf(text, "walker") == machine_from_urdf(TEXT, "walker")


def test_damping_and_friction():
    (hip,) = machine_from_urdf(TEXT.replace('friction="0.0"', 'friction="0.3"'), "walker").body[1].joint
    assert (hip.damping, hip.friction) == (0.7, 0.3)


@pytest.mark.parametrize("kind", ["floating", "planar"])
def test_joints_that_are_not_supported(kind, tmp_path):
    path = tmp_path / "robot.urdf"
    path.write_text(TEXT.replace("revolute", kind))
    with pytest.raises(
        NotImplementedError, match=rf"robot\.urdf: joint 'hip': a {kind} joint is not supported, expected "
    ):
        load_machine(path)


def test_quaternions_are_not_supported():
    with pytest.raises(NotImplementedError, match="joint 'hip', origin: a rotation by quat_xyzw is not supported"):
        machine_from_urdf(TEXT.replace('rpy="0 0 0.5"', 'quat_xyzw="0 0 0 1"'), "walker")


TOE = '<link name="toe"/><joint name="ankle" type="fixed"><parent link="leg"/><child link="toe"/></joint></robot>'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0 3 4", "0 0 0", "joint 'hip', axis: found xyz=\"0 0 0\", expected a direction, not zero"),
        ("0 3 4", "0 3", "joint 'hip', axis: line 7: found xyz=\"0 3\", expected 3 finite numbers"),
        ("0 3 4", "0 3 4 5", "joint 'hip', axis: line 7: found xyz=\"0 3 4 5\", expected 3 finite numbers"),
        ("0 3 4", "0 nan 4", "joint 'hip', axis: line 7: found xyz=\"0 nan 4\", expected 3 finite numbers"),
        ("0 0 1", "0 0 inf", "joint 'hip', origin: line 7: found xyz=\"0 0 inf\", expected 3 finite numbers"),
        ("0 0 0.5", "0 0 1e400", "joint 'hip', origin: line 7: found rpy=\"0 0 1e400\", expected 3 finite numbers"),
        ("0 0 0.5", "0 0 1_0", "joint 'hip', origin: line 7: found rpy=\"0 0 1_0\", expected 3 finite numbers"),
        ("0 0 0.5", "0 0 ${x}", "joint 'hip', origin: line 7: found rpy=\"0 0 ${x}\", expected 3 finite numbers"),
        ('value="2"', 'value="2 kg"', "link 'leg', inertial, mass: line 4: found value=\"2 kg\", expected one finite"),
        (
            'value="2"',
            'value="-2"',
            "link 'leg', inertial, mass: line 4: found value=\"-2\", expected a number not below",
        ),
        ('value="2"', "", "link 'leg', inertial, mass: line 4: <mass> has no value, expected value=\"...\""),
        ('<mass value="2"/>', "", "link 'leg', inertial: line 4: <mass> is missing, expected one"),
        (
            'ixx="0.5"',
            'ixx="0x5"',
            "link 'leg', inertial, inertia: line 5: found ixx=\"0x5\", expected one finite number",
        ),
        ('ixx="0.5"', "", "link 'leg', inertial, inertia: line 5: <inertia> has no ixx, expected ixx=\"...\""),
        (
            'ixx="0.5"',
            'ixx="5"',
            "body 'leg': has principal moments of inertia 0.291632, 0.408261, 5.00011 kg m^2",
        ),
        ('damping="0.7"', 'damping="-1"', "joint 'hip', dynamics: line 8: found damping=\"-1\", expected a number not"),
        (
            '"revolute"',
            '"hinge"',
            "joint 'hip': found type=\"hinge\", expected one of: revolute, continuous, prismatic",
        ),
        ('type="revolute"', "", "joint 'hip': line 6: <joint> has no type, expected type=\"...\""),
        ('<joint name="hip"', "<joint", "joint '': line 6: <joint> has no name, expected name=\"...\""),
        ('name="hip"', 'name="left hip"', 'line 6: <joint>: found name="left hip", expected a name of letters'),
        (
            '<child link="leg"/>',
            '<child link="log"/>',
            "joint 'hip': child link 'log' does not exist, did you mean 'leg'? expected one of:",
        ),
        (
            '<parent link="base"/>',
            '<parent link="bas"/>',
            "joint 'hip': parent link 'bas' does not exist, did you mean 'base'? expected one",
        ),
        ('<parent link="base"/>', "", "joint 'hip': line 6: <parent> is missing, expected one"),
        ("<parent ", '<parent link="base"/><parent ', "joint 'hip': line 6: found a second <parent>, expected one"),
        (JOINT, "", "the robot has 2 root links (base, leg), expected one"),
        (JOINT, JOINT + JOINT, "the joint name 'hip' is used twice, expected each once"),
        (JOINT, JOINT + JOINT.replace("hip", "knee"), "link 'leg' is the child of two joints, 'hip' and 'knee'"),
        ('<link name="base"/>', '<link name="leg"/>', "line 4: the link name 'leg' is used twice, expected each once"),
        (
            "</robot>",
            JOINT.replace("hip", "k").replace("leg", "x").replace("base", "leg").replace("x", "base") + "</robot>",
            "the parents of links form a cycle: leg -> base -> leg; expected none",
        ),
        (
            "</robot>",
            '<link name="a"/><joint name="k" type="fixed"><parent link="a"/><child link="a"/></joint></robot>',
            "the parents of links form a cycle: a -> a; expected none",
        ),
        ("</robot>", TOE.replace("toe", "ground"), "the body or frame name 'ground' is used twice, expected each once"),
        ('"revolute"', '"fixed"', "the machine has no coordinate: every joint is fixed"),
        ("<robot", "<sdf", "line 9, column 3: not valid XML: mismatched tag"),
        ("</robot>", "", "line 9, column 1: not valid XML: no element found"),
        ('<link name="base"/>', '<xacro:macro xmlns:xacro="x"/>', "line 3: found <xacro:macro>, expected plain URDF"),
        (TEXT, "<sdf/>", "line 1: found <sdf>, expected <robot>"),
        (TEXT, "", "line 1, column 1: not valid XML: no element found"),
        (TEXT, '<robot name="a"/>', "the robot has no link, expected at least one"),
    ],
)
def test_wrong_files(old, new, message, tmp_path):
    assert old in TEXT
    path = tmp_path / "robot.urdf"
    path.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(InputError) as refused:
        load_machine(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


LAUGHS = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 12))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'<!DOCTYPE r [<!ENTITY l0 "ha">{LAUGHS}]><robot name="&l11;"/>', "found a document type declaration"),
        ('<!DOCTYPE r SYSTEM "file:///etc/hostname"><robot/>', "found a document type declaration"),
        ("<a>" * 500_000, "line 1, column 1500001: not valid XML"),
        ("<robot>" + "<a/>" * 500_000 + "</robot>", "the robot has no link"),
        (
            "<robot>" + '<link name="a"/>' * 1 + "".join(f'<link name="l{i}"/>' for i in range(9000)),
            "9001 root links",
        ),
        (TEXT.replace('value="2"', f'value="{"1" * 1_000_000}"'), "1111111..., expected one finite number"),
        (TEXT.replace('"leg"', f'"{"l" * 1_000_000}"'), "llllllll..., expected a name of letters"),
    ],
    ids=["billion laughs", "external entity", "deep", "wide", "links", "digits", "name"],
)
def test_hostile_files_are_refused_at_once(text, message):
    if "root links" in message:
        text += "</robot>"
    with pytest.raises(ValueError, match=message.replace(".", r"\.")) as refused:
        machine_from_urdf(text, "robot")
    assert len(str(refused.value)) < 400


def test_byte_order_mark_and_declared_encoding(tmp_path):
    path = tmp_path / "robot.urdf"
    path.write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    assert load_machine(path).coordinates == ("hip",)


def test_mass_matrix_of_a_leg_by_hand():
    """M = axis . (I + m (|c|^2 - c c^T)) axis about the joint, in the leg's own axes."""
    machine = machine_from_urdf(TEXT, "walker")
    tensor, c, axis = machine.body[1].central_inertia, np.array([0.1, 0, 0]), np.array([0, 0.6, 0.8])
    about_joint = tensor + 2 * (c @ c * np.eye(3) - np.outer(c, c))
    np.testing.assert_allclose(
        mass_matrix(build_model(machine), np.zeros(1)), [[axis @ about_joint @ axis]], rtol=1e-13
    )
