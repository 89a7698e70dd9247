"""Ranges and thresholds as texts."""

import numpy as np
import pytest

import jaxmb
from jaxmb.maps.workspace_grid import grid_of, path_of, ranges_of, thresholds_of


@pytest.fixture(scope="module")
def robot():
    return jaxmb.build_model(jaxmb.load_machine("kuka-kr90"))


def test_units_of_ranges(robot):
    """A unit after one number is that of both; without a unit angles are radians, places metres."""
    for text, ends in [("z2=0:90 deg", (0.0, np.pi / 2)), ("z2=-90 deg:1 rad", (-np.pi / 2, 1.0)), ("z2=0:1", (0, 1)),
                       ("z2=0 deg:3", (0.0, np.pi / 60))]:  # fmt: skip
        np.testing.assert_allclose(grid_of(robot, [text], 3)["z2"], [ends[0], sum(ends) / 2, ends[1]], rtol=1e-15)
    assert grid_of(robot, ["tool.x=1:2.5"], 2)["tool.x"].tolist() == [1.0, 2.5]
    assert ranges_of(robot, "limits", ["z2=-1:1", "z3=0:2"]) == {"z2": (-1.0, 1.0), "z3": (0.0, 2.0)}


def test_a_path_may_go_down(robot):
    path = path_of(robot, "tool.x=1.0:0.7, tool.y=0:0.1", 4)
    np.testing.assert_allclose(path["tool.x"], [1.0, 0.9, 0.8, 0.7])
    np.testing.assert_allclose(path["tool.y"], [0.0, 0.1 / 3, 0.2 / 3, 0.1])


def test_thresholds():
    assert thresholds_of(["dexterity=0.4", "nu_p = 1e-3"]) == {"dexterity": 0.4, "nu_p": 1e-3}


def test_what_is_no_range(robot):
    for texts, sentence in [
        (["z2"], "over: found 'z2', expected something like"),
        (["z2=0:b"], "over: z2: found 'b', expected a number"),
        (["z2=1:0"], "the lower end first"),
        (["z2=0:1", "z2=0:1"], "'z2' is given twice"),
        (["z2=0:90"], "z2: found '0:90', which exceeds a full turn in rad; degrees"),
        (["tool.x=0:5 deg"], "it is a position, expected metres"),
        (["tool.x=0 deg:5"], "it is a position, expected metres"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            grid_of(robot, texts, 3)
    with pytest.raises(ValueError, match="points is 1, expected a whole number of at least 2"):
        grid_of(robot, ["z2=0:1"], 1)
    with pytest.raises(ValueError, match="good: found 'dexterity', expected something like"):
        thresholds_of(["dexterity"])
    with pytest.raises(ValueError, match="good: dexterity: threshold is 'x', expected a finite number"):
        thresholds_of(["dexterity=x"])
