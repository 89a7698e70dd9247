"""Machines written as URDF, read back here and by Pinocchio."""

import numpy as np
import pinocchio as pin
import pytest
from pydantic import create_model

import jaxmb
from jaxmb.machine import urdf
from jaxmb.machine.schema import Coordinate, Frame
from jaxmb.machine.values import omitted
from jaxmb.mechanics import mjcf

DRAW = np.random.default_rng(1)


def body(name, parent, joint, **more):
    factor = DRAW.normal(size=(3, 3))
    tensor = factor @ factor.T  # of points, so that a body can have it
    tensor = np.trace(tensor) * np.eye(3) - tensor
    return {"name": name, "parent": parent, "mass": float(DRAW.uniform(0.1, 9.0)), "joint": joint,
            "center_of_mass": DRAW.normal(size=3).tolist(), "inertia_tensor": (0.5 * (tensor + tensor.T)).tolist(),
            "origin": {"xyz": DRAW.normal(size=3).tolist(), "rpy": DRAW.normal(size=3).tolist()}} | more  # fmt: skip


ARM = {
    "name": "arm",
    "body": [
        body("base", "ground", []),
        body("upper", "base", [{"name": "a", "axis": [0.0, 0.6, -0.8], "damping": 0.7, "friction": 0.2}]),
        body("slide", "upper", [{"name": "b", "type": "prismatic", "axis": [1.0, 0.0, 0.0], "damping": 3.0}]),
        body("side", "upper", [{"name": "c"}]),
        body("flange", "slide", []),
    ],
    "frame": [{"name": "tool", "body": "flange", "origin": {"xyz": [0.1, 0.2, 0.3], "rpy": [0.3, 0.0, 0.0]}}],
    "payload": [{"name": "load", "frame": "tool", "mass": 1.5, "center_of_mass": [0.0, 0.1, 0.0]}],
}
MACHINE = jaxmb.Machine.model_validate(ARM)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("urdf") / "arm.urdf"
    jaxmb.write_urdf(MACHINE, path)
    return path


def test_read_back(written):
    """Numbers are written to the last digit; only the order of a few sums differs."""
    before, after = (jaxmb.build_model(m) for m in (MACHINE, jaxmb.load_machine(written)))
    assert jaxmb.coordinates(before) == jaxmb.coordinates(after) == ("a", "b", "c")
    assert set(jaxmb.frames(before)) <= set(jaxmb.frames(after))
    old, new = jaxmb.parameters(before), jaxmb.parameters(after)
    for name, value in old.items():
        assert new[name] == pytest.approx(value, rel=1e-13, abs=1e-13), name
    q, still = np.array([0.3, -0.8, 2.0]), np.zeros(3)
    for function in (lambda m: jaxmb.mass_matrix(m, q), lambda m: jaxmb.inverse_dynamics(m, q, still, still),
                     lambda m: jaxmb.frame_pose(m, q, "tool")):  # fmt: skip
        np.testing.assert_allclose(function(after), function(before), rtol=1e-12, atol=1e-12)


def test_the_geometry_is_the_actual_one(tmp_path):
    """Zeros and deviations are written as part of the origins; payloads keep the stated pose of their frame."""
    first, second = DRAW.normal(scale=0.1, size=(2, 6)).tolist()
    turned = {"name": "a", "axis": [0.0, 0.6, -0.8], "zero": 0.3, "origin_deviation": first}
    slid = {"name": "b", "type": "prismatic", "axis": [0.6, 0.8, 0.0], "zero": -0.2, "origin_deviation": second}
    bodies = [b | {"joint": {"upper": [turned], "slide": [slid]}.get(b["name"], b["joint"])} for b in ARM["body"]]
    frame = ARM["frame"][0] | {"deviation": second}
    machine = jaxmb.Machine.model_validate(ARM | {"body": bodies, "frame": [frame]})
    assert jaxmb.write_urdf(machine, tmp_path / "arm.urdf") == ()
    before, after = (jaxmb.build_model(m) for m in (machine, jaxmb.load_machine(tmp_path / "arm.urdf")))
    q, still = np.array([0.3, -0.8, 2.0]), np.zeros(3)
    for function in (lambda m: jaxmb.mass_matrix(m, q), lambda m: jaxmb.inverse_dynamics(m, q, still, still),
                     lambda m: jaxmb.frame_pose(m, q, "tool")):  # fmt: skip
        np.testing.assert_allclose(function(after), function(before), rtol=1e-12, atol=1e-12)


def test_pinocchio_reads_it(written):
    model = jaxmb.build_model(MACHINE)
    other = pin.buildModelFromUrdf(str(written))
    data = other.createData()
    q = np.array([0.3, -0.8, 2.0])
    there, columns = pin.neutral(other), []
    for name, value in zip(jaxmb.coordinates(model), q, strict=True):
        joint = other.joints[other.getJointId(name)]
        columns.append(joint.idx_v)
        there[joint.idx_q : joint.idx_q + joint.nq] = value if joint.nq == 1 else [np.cos(value), np.sin(value)]
    mass = pin.crba(other, data, there)
    mass = np.triu(mass) + np.triu(mass, 1).T
    gravity = pin.computeGeneralizedGravity(other, data, there)
    still = np.zeros(3)
    np.testing.assert_allclose(mass[np.ix_(columns, columns)], jaxmb.mass_matrix(model, q), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(gravity[columns], jaxmb.inverse_dynamics(model, q, still, still), rtol=1e-9, atol=1e-9)


def changed(name, **more):
    return ARM | {"body": [b | more if b["name"] == name else b for b in ARM["body"]]}


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (changed("side", joint=[{"name": "c"}, {"name": "d"}]), r"several coordinates between two bodies \(side\)"),
        (
            changed("side", joint=[{"name": "c", "stiffness": 3.0, "motor": {"inertia": 1e-4, "ratio": 50.0}}]),
            r"motors \(c\)",
        ),
    ],
)
def test_what_a_urdf_cannot_say(tmp_path, data, told):
    with pytest.raises(NotImplementedError, match=told):
        jaxmb.write_urdf(jaxmb.Machine.model_validate(data), tmp_path / "arm.urdf")
    assert not (tmp_path / "arm.urdf").exists()


def test_what_is_left_out_is_said(tmp_path):
    joint = {"name": "c", "stiffness": 3.0, "rotor_inertia": 0.2, "offset": 0.1}
    machine = jaxmb.Machine.model_validate(changed("side", joint=[joint]) | {"gravity": [0.0, -9.81, 0.0]})
    told = ("stiffness of c", "rotor inertia of c", "offset of c", "gravity 0.0, -9.81, 0.0")
    assert jaxmb.write_urdf(machine, tmp_path / "arm.urdf") == told
    assert f"<!-- omitted, without a URDF element: {'; '.join(told)} -->" in (tmp_path / "arm.urdf").read_text()
    model = jaxmb.build_model(jaxmb.load_machine(tmp_path / "arm.urdf"))
    bare = jaxmb.set_parameters(jaxmb.build_model(machine), {"rotor_inertia.c": 0.0})
    q = np.array([0.3, -0.8, 2.0])
    np.testing.assert_allclose(jaxmb.mass_matrix(model, q), jaxmb.mass_matrix(bare, q), rtol=1e-12)


@pytest.mark.parametrize(
    ("joint", "more", "told"),
    [
        ({"reading_scale": 1.1}, {}, ("reading scale of c",)),
        ({}, {"posture": {"c": 0.3}, "rayleigh": {"mass": 0.1}}, ("Rayleigh damping", "reference posture")),
        ({}, {"transmission": [{"name": "belt", "coordinates": {"c": 1.0}}]}, ("transmission belt",)),
    ],
)
def test_every_key_that_a_urdf_does_not_carry_is_named(tmp_path, joint, more, told):
    machine = jaxmb.Machine.model_validate(changed("side", joint=[{"name": "c", **joint}]) | more)
    assert jaxmb.write_urdf(machine, tmp_path / "arm.urdf") == told


class Worn(Coordinate):
    """A coordinate with a parameter that no format knows."""

    backlash: float = 0.0


@pytest.mark.parametrize("carried", [urdf.CARRIED, mjcf.CARRIED])
def test_a_new_parameter_and_a_new_element_are_named(carried):
    machine = jaxmb.Machine.model_validate(changed("side", joint=[{"name": "c"}]))
    assert omitted(machine, carried) == ()
    worn = machine.body[-1].model_copy(update={"joint": (Worn(name="c", backlash=1e-3), Worn(name="d"))})
    kind = create_model("Newer", __base__=jaxmb.Machine, rope=(tuple[Frame, ...], ()))
    newer = kind.model_construct(**dict(machine) | {"body": (worn,), "rope": (Frame(name="long", body="side"),)})
    assert omitted(newer, carried) == ("backlash of c", "rope long")


def test_loops_are_named(tmp_path):
    with pytest.raises(NotImplementedError, match=r"machine 'slider-crank': .* loops \(slide\)"):
        jaxmb.write_urdf(jaxmb.load_machine("slider-crank"), tmp_path / "arm.urdf")
