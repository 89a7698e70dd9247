"""Beams between two frames, against closed forms and the same structures written out."""

import re

import numpy as np
import pytest
import tomli_w
from scipy.linalg import eigh

import jaxmb
from jaxmb.machine.elements import rotation_matrix

TUBE = {"young_modulus": 2.1e11, "shear_modulus": 8e10, "density": 7800.0, "section": {"tube": [0.03, 0.02]}}
BENDING = 2.1e11 * np.pi / 64.0 * (0.03**4 - 0.02**4)
PER_METRE = 7800.0 * np.pi / 4.0 * (0.03**2 - 0.02**2)
FROM, TO = np.array([0.2, -0.1, 0.3]), np.array([0.6, 0.5, -0.2])


def built(machine):
    return jaxmb.build_model(jaxmb.Machine.model_validate({"name": "m", "gravity": [0.0, 0.0, 0.0]} | machine))


def hz(machine):
    model = built(machine)
    tangent = jaxmb.linearize(model, model.reference)
    return model, np.sqrt(eigh(tangent.stiffness, tangent.mass, eigvals_only=True)) / (2.0 * np.pi)


def at(name, place, body="ground", **turned):
    return {"name": name, "body": body, "origin": {"xyz": list(place)} | turned}


def bending(root):
    return root**2 * np.sqrt(BENDING / PER_METRE) / np.sum((TO - FROM) ** 2) / (2.0 * np.pi)


def test_a_beam_between_two_frames_of_the_ground_is_clamped_at_both():
    frames = [at("a", FROM, rpy=[0.4, -1.0, 2.0]), at("b", TO)]
    model, found = hz({"frame": frames, "beam": [TUBE | {"name": "rod", "from": "a", "to": "b", "elements": 6}]})
    np.testing.assert_allclose(found[:4], np.repeat(bending(np.array([4.730041, 7.853205])), 2), rtol=2e-3)
    np.testing.assert_allclose(jaxmb.frame_pose(model, model.reference, "rod/3")[:3, 3], (FROM + TO) / 2, atol=1e-12)


def test_a_beam_to_a_point_is_free_there():
    """The point is in the axes of the frame that it begins at."""
    frame = at("a", FROM, rpy=[0.4, -1.0, 2.0])
    turned = rotation_matrix(frame["origin"]["rpy"])
    rod = TUBE | {"name": "rod", "from": "a", "to": (turned.T @ (TO - FROM)).tolist(), "elements": 6}
    model, found = hz({"frame": [frame], "beam": [rod]})
    np.testing.assert_allclose(found[:2], np.repeat(bending(1.875104), 2), rtol=1e-4)
    np.testing.assert_allclose(jaxmb.frame_pose(model, np.zeros(0), "rod")[:3, 3], TO, atol=1e-12)


def test_a_portal_is_the_same_written_out():
    """Flat sections, turned by `roll`; the bar hangs on a column, and the other column is clamped to its end."""
    flat = TUBE | {"section": {"box": [0.01, 0.03]}, "elements": 2}
    up, down = {"rpy": [0.0, -np.pi / 2, 0.0]}, {"rpy": [0.0, np.pi / 2, 0.0]}
    written = {
        "beam": [
            flat | {"name": "left", "length": 1.0, "origin": up},
            flat | {"name": "bar", "body": "left", "length": 0.8, "origin": down},
            flat | {"name": "right", "length": 1.0, "origin": {"xyz": [0.8, 0.0, 0.0]} | up},
        ],
        "frame": [at("corner", [0.0] * 3, "bar", **up)],
        "loop": [{"name": "corner", "frame_a": "corner", "frame_b": "right", "type": "fixed"}],
    }
    between = {
        "frame": [at("foot", [0.8, 0.0, 0.0])],
        "beam": [
            # a beam along z has its z axis in the plane of the x axis: along it
            flat | {"name": "left", "from": "ground", "to": [0.0, 0.0, 1.0], "roll": "180 deg"},
            flat | {"name": "bar", "from": "left", "to": [0.0, 0.0, -0.8]},
            flat | {"name": "right", "from": "foot", "to": "bar"},
        ],
    }
    np.testing.assert_allclose(hz(between)[1][:8], hz(written)[1][:8], rtol=1e-6)


def test_a_frame_without_joints_is_tested(tmp_path):
    """A loop, and no coordinate whose value a posture could state."""
    machine = {"name": "m", "gravity": [0.0, 0.0, 0.0], "frame": [at("a", FROM), at("b", TO)],
               "beam": [TUBE | {"name": "rod", "from": "a", "to": "b", "elements": 2}]}  # fmt: skip
    (tmp_path / "m.toml").write_text(tomli_w.dumps(machine))
    test = {"kind": "modes", "frequency_hz": hz(machine)[1][[0, 2]].tolist(), "damping_percent": [1e-6, 1e-6],
            "frequency_std_hz": 0.1, "damping_std_percent": 0.1}  # fmt: skip
    free = {"young_modulus.rod": {"lower": 1e11, "upper": 4e11}}
    study = jaxmb.make_study({"machine": "m.toml", "test": [test], "free": free}, "frame", tmp_path)
    value = jaxmb.identify(study).parameters["young_modulus.rod"].value
    np.testing.assert_allclose(value, 2.1e11, rtol=1e-6)


def test_between_bodies_in_the_reference_posture(tmp_path):
    """A rod from the ground to a hinged arm holds it; a file of it is read back."""
    arm = {"name": "arm", "mass": 2.0, "center_of_mass": [0.3, 0.0, 0.0], "joint": [{"name": "q", "axis": [0, 1, 0]}]}
    machine = {"body": [arm], "frame": [at("tip", [0.5, 0.0, 0.0], "arm"), at("foot", [0.4, 0.0, -0.8])],
               "beam": [TUBE | {"name": "rod", "from": "foot", "to": "tip"}], "posture": {"q": "30 deg"}}  # fmt: skip
    model = built(machine)
    expected = 0.5 * np.array([np.cos(np.pi / 6), 0.0, -np.sin(np.pi / 6)])
    np.testing.assert_allclose(jaxmb.frame_pose(model, model.reference, "rod")[:3, 3], expected, atol=1e-12)
    path = tmp_path / "m.toml"
    path.write_text(tomli_w.dumps({"name": "m", "gravity": [0.0, 0.0, 0.0]} | machine))
    read = jaxmb.load_machine(path)
    jaxmb.write_machine(read, path)
    assert jaxmb.load_machine(path) == read
    assert read.beam == jaxmb.Machine.model_validate({"name": "m", "gravity": [0.0, 0.0, 0.0]} | machine).beam


def test_between_bodies_whose_joints_deviate_the_loop_closes_in_the_reference_posture():
    joint = {"name": "q", "axis": [0, 1, 0], "zero": "10 deg", "reading_scale": 1.5,
             "origin_deviation": [0.01, 0.0, 0.0, 0.0, 0.1, 0.0]}  # fmt: skip
    arm = {"name": "arm", "mass": 2.0, "center_of_mass": [0.3, 0.0, 0.0], "joint": [joint]}
    machine = {"body": [arm], "frame": [at("tip", [0.5, 0.0, 0.0], "arm"), at("foot", [0.4, 0.0, -0.8])],
               "beam": [TUBE | {"name": "rod", "from": "foot", "to": "tip"}], "posture": {"q": "30 deg"}}  # fmt: skip
    model = built(machine)
    np.testing.assert_allclose(model.reference, np.pi / 6, atol=1e-12)


def test_a_coupled_stage_is_where_the_coupling_holds_it():
    slide = {"type": "prismatic", "stiffness": 1e5}
    bodies = [{"name": "lower", "mass": 9.0, "joint": [slide | {"name": "z1"}]},
              {"name": "upper", "parent": "lower", "mass": 5.0, "joint": [slide | {"name": "z2"}]}]  # fmt: skip
    coupling = {"coordinate": "z2", "follows": "z1", "ratio": 2.0, "offset": 0.1}
    machine = {"name": "m", "body": bodies, "coupling": [coupling], "posture": {"z1": 0.3}}
    rod = TUBE | {"name": "rod", "from": "lower", "to": "upper"}
    assert jaxmb.Machine.model_validate(machine | {"beam": [rod]}).beam[0].length == pytest.approx(0.7, rel=1e-12)


@pytest.mark.parametrize(
    ("rod", "message"),
    [
        ({"from": "a"}, "beam 'rod': has from or to alone, expected both from and to"),
        ({"from": "a", "to": "b", "length": 1.0}, "beam 'rod': has length, expected both from and to in place of"),
        ({"length": 1.0, "roll": 0.1}, "beam 'rod': roll turns a beam that has from and to, expected both beside it"),
        ({"from": "a", "to": "c"}, "beam 'rod': to: frame 'c' does not exist"),
        ({"from": "rod", "to": "b"}, "the pose of 'rod' depends on itself"),
        ({"from": "a", "to": "a"}, "beam 'rod': from and to coincide"),
        (
            {"from": "a", "to": "b", "roll": 45},
            "beam 'rod': roll is 45 rad, expected at most two turns; write \"45 deg\"",
        ),
        ({"from": "a", "to": [1.0, 0.0]}, "beam 'rod': to: found [1.0, 0.0], expected the name of a frame or a point"),
    ],
)
def test_wrong_ends(rod, message):
    machine = {"name": "m", "frame": [at("a", FROM), at("b", TO)], "beam": [TUBE | {"name": "rod"} | rod]}
    with pytest.raises(ValueError, match=re.escape(message)):
        jaxmb.Machine.model_validate(machine)


@pytest.mark.parametrize(
    ("to", "changes", "message"),
    [
        ("arm", {"body": [{"name": "arm", "joint": [{"name": "q", "axis": [0, 1]}]}]},
         "body 'arm', joint 'q', axis: found [0, 1], expected at least 3 items"),
        ("arm", {"body": [{"name": "arm", "joint": [{"name": "q"}]}], "posture": {"q": "30"}},
         "posture: q: expected a number in radians"),
        ("b", {"frame": [at("b", [0.0, 1.0])]}, "frame 'b', origin, xyz: found [0.0, 1.0], expected at least 3 items"),
        ("c", {"beam": [TUBE | {"name": "c", "length": 1.0, "origin": 0.0}]}, "beam 'c', origin: found 0.0, expected"),
    ],
)  # fmt: skip
def test_errors_in_parts_on_which_the_ends_depend_are_located(to, changes, message):
    rods = [*changes.get("beam", ()), TUBE | {"name": "rod", "from": "ground", "to": to}]
    with pytest.raises(ValueError, match=re.escape(message)):
        jaxmb.Machine.model_validate({"name": "m"} | changes | {"beam": rods})
