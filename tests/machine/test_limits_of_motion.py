"""Ranges, speed and acceleration limits of coordinates, as files give them."""

import pinocchio as pin
import pytest

import jaxmb
from jaxmb.machine.changed import machine_of
from jaxmb.machine.urdf import machine_from_urdf

URDF = """<robot name="arm"><link name="ground"/><link name="a"/><link name="b"/>
<link name="c"/><link name="d"/>
<joint name="j" type="revolute"><parent link="ground"/><child link="a"/>
<limit lower="-1.5" upper="2" velocity="3" effort="9"/></joint>
<joint name="k" type="continuous"><parent link="a"/><child link="b"/><limit velocity="0" effort="7"/></joint>
<joint name="l" type="prismatic"><parent link="b"/><child link="c"/>
<limit lower="-0.1" upper="0.3" velocity="0.5" effort="0"/></joint>
<joint name="m" type="prismatic"><parent link="c"/><child link="d"/></joint></robot>"""
LIMITS = [((-1.5, 2.0), 3.0, 9.0), (None, None, 7.0), ((-0.1, 0.3), 0.5, None), (None, None, None)]


def limits_of(machine):
    return [(part.range, part.speed_limit, part.effort_limit) for part in machine.moving_parts]


def test_limits_of_a_urdf_are_written_and_read(tmp_path):
    machine = machine_from_urdf(URDF, "arm")
    assert limits_of(machine) == LIMITS
    model = jaxmb.set_parameters(jaxmb.build_model(machine), {"damping.j": 0.7})
    for path in (tmp_path / "arm.urdf", tmp_path / "arm.toml"):  # with an identified number, as a result is written
        changed = machine_of(machine, model)
        (jaxmb.write_urdf if path.suffix == ".urdf" else jaxmb.write_machine)(changed, path)
        assert limits_of(jaxmb.load_machine(path)) == LIMITS
    other = pin.buildModelFromUrdf(str(tmp_path / "arm.urdf"))
    at = {name: other.joints[other.getJointId(name)] for name in "jkl"}
    assert (other.lowerPositionLimit[at["j"].idx_q], other.upperPositionLimit[at["j"].idx_q]) == (-1.5, 2.0)
    assert [other.effortLimit[joint.idx_v] for joint in at.values()] == [9.0, 7.0, 1e9]
    assert [other.velocityLimit[joint.idx_v] for joint in at.values()] == [3.0, 1e9, 0.5]


def test_falling_limits_of_a_urdf():
    text = URDF.replace('lower="-1.5" upper="2"', 'lower="2" upper="-1.5"')
    with pytest.raises(ValueError, match=r"joint '.*', limit: line \d+: found lower=2 above upper=-1\.5, expected"):
        machine_from_urdf(text, "arm")


def test_a_joint_of_a_urdf_may_have_several_turns():
    machine = machine_from_urdf(URDF.replace('lower="-1.5" upper="2"', 'lower="-20" upper="20"'), "arm")
    assert machine.moving_parts[0].range == (-20.0, 20.0)


def test_limits_of_a_table_are_written_and_read(tmp_path):
    row = {
        "name": "q1",
        "a": 0.3,
        "mass": 1.0,
        "range": ["-90 deg", 1.0],
        "speed_limit": 2.0,
        "acceleration_limit": 9.0,
        "effort_limit": 50.0,
    }
    jaxmb.write_machine(jaxmb.machine_from_dh("arm", [row]), tmp_path / "arm.toml")
    (joint,) = jaxmb.load_machine(tmp_path / "arm.toml").moving_parts
    assert joint.range == pytest.approx((-1.5707963267948966, 1.0))
    assert (joint.speed_limit, joint.acceleration_limit, joint.effort_limit) == (2.0, 9.0, 50.0)


def test_descending_range():
    with pytest.raises(ValueError, match=r"range: found \[1.0, -1.0\], expected ascending"):
        jaxmb.machine_from_dh("arm", [{"name": "q1", "a": 0.3, "mass": 1.0, "range": [1.0, -1.0]}])
