"""Ranges, speed and acceleration limits of coordinates, as files give them."""

import pytest

import jaxmb
from jaxmb.machine.urdf import machine_from_urdf

URDF = """<robot name="arm"><link name="ground"/><link name="a"/><link name="b"/>
<joint name="j" type="revolute"><parent link="ground"/><child link="a"/>
<limit lower="-1.5" upper="2" velocity="3" effort="9"/></joint>
<joint name="k" type="continuous"><parent link="a"/><child link="b"/><limit velocity="0" effort="9"/></joint></robot>"""


def test_limits_of_a_urdf():
    turning, endless = machine_from_urdf(URDF, "arm").moving_parts
    assert (turning.range, turning.speed_limit, turning.acceleration_limit) == ((-1.5, 2.0), 3.0, None)
    assert (endless.range, endless.speed_limit) == (None, None)


def test_limits_of_a_table_are_written_and_read(tmp_path):
    row = {
        "name": "q1",
        "a": 0.3,
        "mass": 1.0,
        "range": ["-90 deg", 1.0],
        "speed_limit": 2.0,
        "acceleration_limit": 9.0,
    }
    jaxmb.write_machine(jaxmb.machine_from_dh("arm", [row]), tmp_path / "arm.toml")
    (joint,) = jaxmb.load_machine(tmp_path / "arm.toml").moving_parts
    assert joint.range == pytest.approx((-1.5707963267948966, 1.0))
    assert (joint.speed_limit, joint.acceleration_limit) == (2.0, 9.0)


def test_descending_range():
    with pytest.raises(ValueError, match="range is 1 to -1, expected it ascending"):
        jaxmb.machine_from_dh("arm", [{"name": "q1", "a": 0.3, "mass": 1.0, "range": [1.0, -1.0]}])
