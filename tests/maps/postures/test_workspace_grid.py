"""Postures over places of the tool and along paths are where they were asked for, and on one branch."""

import math

import numpy as np
import pytest

import jaxmb
from jaxmb.machine.schema import Machine
from jaxmb.maps import postures_along, postures_over

A, B = 0.7, 0.5


@pytest.fixture(scope="module")
def planar():
    """Two links of 0.7 and 0.5 m in the plane."""
    return jaxmb.build_model(Machine.model_validate({
        "name": "planar",
        "body": [{"name": "upper", "mass": 1.0, "joint": [{"name": "q1"}]},
                 {"name": "fore", "parent": "upper", "mass": 1.0, "origin": {"xyz": [A, 0.0, 0.0]},
                  "joint": [{"name": "q2"}]}],
        "frame": [{"name": "tool", "body": "fore", "origin": {"xyz": [B, 0.0, 0.0]}}],
    }))  # fmt: skip


@pytest.fixture(scope="module")
def kr240():
    return jaxmb.build_model(jaxmb.load_machine("kuka-kr240"))


START = {"q1": 0.2, "q2": 1.0}


def test_a_plane_of_two_links(planar):
    """Reached is the ring between |A - B| and A + B, with q2 = acos((r^2 - A^2 - B^2) / 2 A B) of the start's sign."""
    axis = np.linspace(-1.25, 1.25, 26)
    found = postures_over(planar, {"tool.x": axis, "tool.y": axis}, START)
    assert found.over == ("tool.x", "tool.y")
    assert found.revolute == (False, False)
    assert found.varied == ("q1", "q2")
    assert found.held == {}
    x, y = np.meshgrid(axis, axis, indexing="ij")
    radius = np.hypot(x, y)
    assert min(np.abs(radius - A - B).min(), np.abs(radius - A + B).min()) > 1e-3  # no place is on the edge
    np.testing.assert_array_equal(found.reached, (radius < A + B) & (radius > A - B))
    elbow = np.arccos((radius[found.reached] ** 2 - A**2 - B**2) / (2 * A * B))
    np.testing.assert_allclose(found.coordinates[found.reached][:, 1], elbow, atol=1e-8 / (A * B * math.sin(0.05)))
    np.testing.assert_allclose(found.position[..., 0], x, atol=1e-8)
    np.testing.assert_allclose(found.position[..., 1], y, atol=1e-8)


def test_limits_leave_places_out(planar):
    axis = np.linspace(0.3, 1.1, 9)
    limits = {"q2": (0.0, 1.2)}
    whole = postures_over(planar, {"tool.x": axis}, START)
    found = postures_over(planar, {"tool.x": axis}, START, limits=limits)
    assert 0 < found.reached.sum() < whole.reached.sum()
    assert np.all(found.coordinates[found.reached][:, 1] <= 1.2)
    assert np.isnan(found.coordinates[~found.reached]).all()
    # what was asked for is still told
    np.testing.assert_allclose(found.position[:, 0], axis, atol=1e-8)


@pytest.mark.parametrize("options", [{"limits": {"q2": (0.5, 0.6)}}, {"joints": ("q2",)}, {"orientation": True}])
def test_options_of_positions_with_coordinates(planar, options):
    """They would be without effect."""
    with pytest.raises(ValueError, match=next(iter(options))):
        postures_over(planar, {"q1": [0.0, 1.0]}, **options)
    with pytest.raises(ValueError, match=next(iter(options))):
        postures_along(planar, {"q1": [0.0, 1.0]}, **options)


def test_the_tool_keeps_its_orientation(kr240):
    """Six joints: by default the pose but for the place; three of them reach the place alone."""
    start = {"q2": math.radians(60), "q3": math.radians(-90), "q5": 0.5}
    over = {"tool.x": np.linspace(1.2, 1.6, 4), "tool.z": np.linspace(1.0, 1.4, 3)}
    turn = np.asarray(jaxmb.frame_pose(kr240, jaxmb.posture(kr240, start), "tool"))[:3, :3]
    held, free = postures_over(kr240, over, start), postures_over(kr240, over, start, joints=("q1", "q2", "q3"))
    for found, same in ((held, True), (free, False)):
        assert found.reached.any()
        places = np.stack(np.meshgrid(*found.grid, indexing="ij"), axis=-1)[found.reached]
        for q, place in zip(found.coordinates[found.reached], places, strict=True):
            pose = np.asarray(jaxmb.frame_pose(kr240, q, "tool"))
            np.testing.assert_allclose(pose[[0, 2], 3], place, atol=1e-8)
            assert (np.abs(pose[:3, :3] - turn).max() < 1e-8) == same
    assert set(free.held) == {"q4", "q5", "q6"}


def test_a_grid_of_coordinates(kr240):
    over = {"q2": np.linspace(0.0, 1.0, 3), "q3": np.linspace(-2.0, -1.0, 4)}
    found = postures_over(kr240, over, {"q5": 0.3}, frame="q6")
    assert found.reached.all()
    assert found.coordinates.shape == (3, 4, 6)
    assert found.revolute == (True, True)
    assert found.held["q5"] == 0.3
    q = found.coordinates[2, 1]
    assert (q[1], q[2]) == (1.0, over["q3"][1])
    np.testing.assert_allclose(found.position[2, 1], np.asarray(jaxmb.frame_pose(kr240, q, "q6"))[:3, 3], atol=1e-14)


def test_a_path_of_the_tool_leaves_out_what_is_too_far(planar):
    x = np.concatenate([np.linspace(0.81, 1.41, 13), np.linspace(1.36, 0.81, 12)])
    found = postures_along(planar, {"tool.x": x, "tool.y": np.zeros(25)}, START)
    assert found.is_path
    np.testing.assert_array_equal(found.reached, x < A + B)
    assert np.all(found.coordinates[found.reached][:, 1] > 0.0)  # the branch of the start
    assert found.grid[0][-1] == pytest.approx(1.2, abs=1e-8)  # there and back, 0.6 m each


def test_a_path_of_coordinates(planar):
    found = postures_along(planar, {"q1": np.linspace(0.0, 1.0, 101), "q2": np.zeros(101)})
    # The chords of an arc of 1.2 m are shorter by the square of their angle over 24.
    assert found.grid[0][-1] == pytest.approx(A + B, rel=1e-5)
    np.testing.assert_allclose(found.coordinates[:, 0], np.linspace(0.0, 1.0, 101))


def test_wrong_arguments(planar):
    axis = np.linspace(0.5, 0.9, 3)
    for over, more, sentence in [
        ({}, {}, "over: found nothing"),
        ({"q3": axis}, {}, "over: coordinate 'q3'"),
        ({"q1": axis, "tool.x": axis}, {}, "only coordinates or only positions of one frame"),
        ({"tool.x": axis, "fore.y": axis}, {}, "only coordinates or only positions of one frame"),
        ({"tool.w": axis}, {}, "over: coordinate 'tool.w'"),
        ({"tool.xy": axis}, {}, "over: coordinate 'tool.xy'"),
        ({"q1": 100 * axis}, {}, "over: q1 from 50 to 90 rad exceeds a full turn"),
        ({"tool.x": axis[::-1]}, {}, "two or more, ascending"),
        ({"tool.x": axis + 5.0}, {}, "no position of 'tool' on the grid is reached by q1, q2"),
        ({"q1": axis}, {"held": {"q1": 0.0}}, "held: coordinate 'q1'"),
        ({"tool.x": axis}, {"limits": {"q": (0, 1)}}, "limits: coordinate 'q'"),
        ({"tool.x": axis}, {"limits": {"q1": (1, 0)}}, "limits: q1 from 1 to 0"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            postures_over(planar, over, **more)
    for path, sentence in [
        ({}, "path: found nothing"),
        ({"q1": axis, "q2": axis[:2]}, "3 of q1, 2 of q2"),
        ({"q1": [0.0, np.nan]}, "two or more finite"),
        ({"q1": 100 * axis}, "path: q1 from 50 to 90 rad exceeds a full turn"),
        ({"tool.x": axis + 5.0}, "no position of 'tool' is reached"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            postures_along(planar, path)
    robot = jaxmb.build_model(jaxmb.load_machine("kuka-kr90"))
    with pytest.raises(ValueError, match="9 coordinates move 'tool'"):
        postures_over(robot, {"tool.x": [1.0, 2.0]})


def test_travels_in_millimetres_are_refused():
    body = {"name": "tool", "joint": [{"name": "lift", "type": "prismatic"}]}
    slide = jaxmb.build_model(jaxmb.Machine.model_validate({"name": "slide", "body": [body]}))
    with pytest.raises(ValueError, match=r"over: lift is 200 m, expected at most 100 m, is it in mm\?"):
        postures_over(slide, {"lift": [-200.0, 50.0]})
    with pytest.raises(ValueError, match=r"path: lift is 200 m, expected at most 100 m"):
        postures_along(slide, {"lift": [200.0, 0.0]})
