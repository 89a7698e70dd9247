"""Which frame is meant by "tool" where no frame is called so."""

from pathlib import Path

import numpy as np
import pytest

import jaxmb
from jaxmb.mechanics.kinematics import frame_name

ROBOTS = Path(__file__).parent / "robots"


def robot(name):
    return jaxmb.build_model(jaxmb.load_machine(ROBOTS / f"{name}.urdf"))


def test_the_only_end_frame_is_the_tool():
    """The flange stands on link6 by a fixed joint: both move with the last coordinate, and the flange is the end."""
    arm = robot("arm")
    assert "tool" not in jaxmb.frames(arm)
    assert frame_name(arm, "tool") == "flange"
    assert frame_name(arm, "link6") == "link6"
    q = np.full(6, 0.3)
    np.testing.assert_array_equal(jaxmb.frame_pose(arm, q, "tool"), jaxmb.frame_pose(arm, q, "flange"))
    frequency_hz = np.array([1.0, 3.0])
    np.testing.assert_array_equal(jaxmb.frf(arm, q, frequency_hz), jaxmb.frf(arm, q, frequency_hz, frame="flange"))


def test_a_frame_called_tool_comes_first():
    model = jaxmb.build_model(jaxmb.load_machine("kuka-kr240"))
    assert frame_name(model, "tool") == "tool"
    assert "q3_dh" in model.frames
    assert model.end_frames == ("q6_dh", "tool")


def test_of_several_end_frames_none_is_taken():
    with pytest.raises(ValueError, match=r"frame 'tool' does not exist and 'tree' has \d end frames \(.*finger.*\)"):
        frame_name(robot("tree"), "tool")
    with pytest.raises(ValueError, match="frame 'tol' does not exist"):
        frame_name(robot("arm"), "tol")
