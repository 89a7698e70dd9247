"""A locked coordinate is a joint that is not there, its turn taken up by the joint's origin."""

import copy

import numpy as np
import pytest

import jaxmb
from jaxmb.mechanics.compliance import cartesian_compliance

ANGLE = 0.7
BODY = {"mass": 20.0, "center_of_mass": [0.3, 0.05, 0.1], "inertia_products": {"xx": 0.4, "yy": 0.9, "zz": 1.1}}
ARM = {
    "name": "arm",
    "body": [
        BODY | {"name": "first", "parent": "ground", "joint": [{"name": "a", "axis": [0, 1, 0], "stiffness": 3e4}]},
        BODY
        | {
            "name": "second",
            "parent": "first",
            "origin": {"xyz": [0.8, 0.0, 0.0]},
            "joint": [
                {"name": "turn", "axis": [0, 0, 1], "stiffness": 9e3, "rotor_inertia": 3.0, "locked": True},
                {"name": "b", "axis": [0, 1, 0], "stiffness": 2e4, "damping": 7.0},
            ],
        },
    ],
    "frame": [{"name": "tool", "body": "second", "origin": {"xyz": [0.7, 0.0, 0.2]}}],
}


@pytest.fixture
def locked():
    return jaxmb.build_model(jaxmb.Machine.model_validate(ARM))


@pytest.fixture
def without():
    data = copy.deepcopy(ARM)
    second = data["body"][1]
    second["origin"]["rpy"] = [0.0, 0.0, ANGLE]
    second["joint"] = second["joint"][1:]
    return jaxmb.build_model(jaxmb.Machine.model_validate(data))


Q, QS = np.array([0.3, ANGLE, -0.5]), np.array([0.3, -0.5])


@pytest.mark.parametrize("at", ["posture", "equilibrium"])
def test_small_motions(locked, without, at):
    ours, theirs = jaxmb.linearize(locked, Q, at), jaxmb.linearize(without, QS, at)
    for name in ("mass", "damping", "stiffness"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-10, atol=1e-9)


def test_frf(locked, without):
    points = [("tool", "x"), ("tool", "y"), ("tool", "rz")]
    lines = [1.0, 5.0, 9.0]
    ours, theirs = (jaxmb.frf(m, q, lines, outputs=points) for m, q in ((locked, Q), (without, QS)))
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_equilibrium(locked, without):
    found = jaxmb.static_equilibrium(locked, Q, "tool", [100.0, 50.0, -200.0, 0.0, 3.0, 0.0])
    np.testing.assert_allclose(
        np.asarray(found)[[0, 2]], jaxmb.static_equilibrium(without, QS, "tool", [100.0, 50.0, -200.0, 0.0, 3.0, 0.0])
    )
    assert found[1] == ANGLE


def test_deflection(locked, without):
    ours, theirs = (cartesian_compliance(m, q, "tool") for m, q in ((locked, Q), (without, QS)))
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-18)


def test_it_has_no_elastic_parameters(locked):
    assert not {"stiffness.turn", "damping.turn", "rotor_inertia.turn"} & jaxmb.parameters(locked).keys()
    assert {"stiffness.a", "stiffness.b"} <= jaxmb.parameters(locked).keys()


def test_a_closed_chain_with_a_locked_joint_moves_without_it():
    def bar(name, parent, xyz, joint, **keys):
        return BODY | {
            "name": name, "parent": parent, "origin": {"xyz": xyz},
            "joint": [{"name": joint, "stiffness": 3e3, "damping": 2.0} | keys],
        }  # fmt: skip

    five_bar = {
        "name": "five-bar",
        "gravity": [0.0, -9.81, 0.0],
        "independent": ["b", "c"],
        "posture": {"a": 2.0, "b": -1.2, "c": 1.1, "d": 1.0},
        "body": [
            bar("left", "ground", [0.0, 0.0, 0.0], "a", locked=True),
            bar("far-left", "left", [0.5, 0.0, 0.0], "b"),
            bar("right", "ground", [0.6, 0.0, 0.0], "c"),
            bar("far-right", "right", [0.5, 0.0, 0.0], "d"),
        ],
        "frame": [{"name": f"end-{side}", "body": f"far-{side}", "origin": {"xyz": [0.7, 0.0, 0.0]}}
                  for side in ("left", "right")],
        "loop": [{"name": "pin", "frame_a": "end-left", "frame_b": "end-right"}],
    }  # fmt: skip
    model = jaxmb.build_model(jaxmb.Machine.model_validate(five_bar))
    q = jaxmb.reference_posture(model)
    names = jaxmb.independent_coordinates(model)
    assert names[0] == "a"
    body = copy.deepcopy(five_bar["body"])
    body[0] |= {"joint": [], "origin": {"rpy": [0.0, 0.0, float(q[0])]}}
    posture = dict(zip("bcd", q[1:].tolist(), strict=True))
    four_bar = jaxmb.build_model(
        jaxmb.Machine.model_validate(five_bar | {"body": body, "posture": posture, "independent": [names[1]]})
    )
    found = jaxmb.forward_dynamics(model, q, [0.0, 0.5], [0.0, 20.0])
    expected = jaxmb.forward_dynamics(four_bar, q[1:], [0.5], [20.0])
    np.testing.assert_allclose(found, [0.0, expected[0]], rtol=1e-9)
    body[0] = bar("left", "ground", [0.0, 0.0, 0.0], "a")
    body[3]["joint"][0]["locked"] = body[2]["joint"][0]["locked"] = True
    fixed = jaxmb.Machine.model_validate(five_bar | {"body": body, "independent": ["a", "b"]})
    with pytest.raises(ValueError, match="with its loops and locks no coordinate can move"):
        jaxmb.build_model(fixed)
