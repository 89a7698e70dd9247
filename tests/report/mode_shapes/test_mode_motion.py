"""Drawn points of a machine move as its modes say: closed forms, the forward kinematics, and what the scale is."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb
from jaxmb.mechanics.kinematics import whole
from jaxmb.mechanics.loops import motion_basis
from jaxmb.report.mode_shapes import (
    AXES_PART,
    DRAWN_PART,
    MOST_TURN,
    displaced,
    energy_of_parts,
    found_modes,
    machine_motion,
    phase_of_largest_motion,
    structure_of,
)
from jaxmb.response.modal import undamped_modes

STEEL = {"young_modulus": 2.1e11, "shear_modulus": 8.0e10, "density": 7800.0}
SECTION = {"area": 1e-4, "second_moment_y": 2e-8, "second_moment_z": 1e-8, "torsion_constant": 1.5e-8}


def model_of(**parts):
    return jaxmb.build_model(jaxmb.Machine.model_validate({"name": "machine", "gravity": [0.0, 0.0, 0.0]} | parts))


def cantilever(**changes):
    return model_of(beam=[{"name": "beam", "length": 2.0, "elements": 4} | STEEL | SECTION | changes])


def rod(name, parent, start, length, stiffness):
    across = length**2 / 12
    return {"name": name, "parent": parent, "origin": {"xyz": start}, "mass": 1.0, "center_of_mass": [length / 2, 0, 0],
            "inertia_products": {"xx": 1e-3, "yy": across, "zz": across},
            "joint": [{"name": f"q-{name}", "stiffness": stiffness}]}  # fmt: skip


def undamped_motion(model, numbers):
    found = undamped_modes(jaxmb.linearize(model, model.reference))
    return machine_motion(model, model.reference, found, numbers)


def test_a_pendulum_has_no_strain_energy():
    model = model_of(gravity=[9.81, 0.0, 0.0], body=[rod("a", "ground", [0.0, 0.0, 0.0], 1.0, 0.0)])
    found = undamped_modes(jaxmb.linearize(model, model.reference))
    assert energy_of_parts(model, model.reference, found, [1]) == [{"q-a": 0.0}]


def test_bending_of_a_cantilever():
    """cosh - cos - sigma (sinh - sin) of k x / l, between the ends of elements too. The shapes of its four elements are
    wrong by 1e-4 of the tip's displacement in the first mode, by 3e-3 in the second."""
    motion = undamped_motion(cantilever(), (1, 3))  # bending about the weaker axis; 2 is that about the other one
    ((line, _),) = motion.structure.lines
    x = motion.points[list(line), 0]
    np.testing.assert_allclose(x, np.linspace(0.0, 2.0, 33), atol=1e-12)
    assert motion.size == pytest.approx(2.0)
    for mode, k in zip(motion.modes, (1.8751041, 4.6940911), strict=True):
        moved = mode.displacement[list(line)]
        sigma = (np.cosh(k) + np.cos(k)) / (np.sinh(k) + np.sin(k))
        at = k * x / 2.0
        exact = np.cosh(at) - np.cos(at) - sigma * (np.sinh(at) - np.sin(at))
        drawn = np.real(moved[:, 1])
        np.testing.assert_allclose(drawn / drawn[-1], exact / exact[-1], atol=0.005)
        np.testing.assert_allclose(np.real(moved[:, [0, 2]]), 0.0, atol=1e-9)
        assert abs(drawn[-1]) == pytest.approx(DRAWN_PART * 2.0)


def test_torsion_turns_the_axes_of_the_end():
    """Nothing moves along the axis, so the drawn turn of the end's axes is what limits the picture."""
    motion = undamped_motion(cantilever(second_moment_y=1e-4, second_moment_z=1e-4), (1,))
    (mode,), ((origin, *tips),) = motion.modes, motion.structure.ends
    (line,) = (line for line, _ in motion.structure.lines if len(line) > 2)
    np.testing.assert_allclose(mode.displacement[list(line)], 0.0, atol=1e-6 * motion.size)
    turned = displaced(motion, mode)[tips] - displaced(motion, mode)[origin]
    np.testing.assert_allclose(np.linalg.norm(turned, axis=1), AXES_PART * motion.size)  # the axes keep their length
    cosine = np.sum(turned * (motion.points[tips] - motion.points[origin]), axis=1) / (AXES_PART * motion.size) ** 2
    np.testing.assert_allclose(cosine, np.cos([0.0, np.arctan(MOST_TURN), np.arctan(MOST_TURN)]), atol=1e-9)


def test_the_tool_of_a_pendulum_moves_across_it():
    tool = {"name": "tool", "body": "arm", "origin": {"xyz": [0.6, 0.0, 0.0]}}
    model = model_of(body=[rod("arm", "ground", [0.1, 0.2, 0.3], 0.6, 100.0)], frame=[tool], posture={"q-arm": 0.5})
    motion = machine_motion(model, model.reference, found_modes(model, model.reference), [1])
    origin = motion.structure.ends[0][0]
    np.testing.assert_allclose(motion.points[origin], [0.1 + 0.6 * np.cos(0.5), 0.2 + 0.6 * np.sin(0.5), 0.3])
    moved = np.real(motion.modes[0].displacement[origin])
    assert np.linalg.norm(moved) == pytest.approx(DRAWN_PART * motion.size)
    np.testing.assert_allclose(
        moved / np.linalg.norm(moved) * np.sign(moved[1]), [-np.sin(0.5), np.cos(0.5), 0.0], atol=1e-9
    )


def test_points_move_with_the_forward_kinematics():
    """A millionth of each damped mode: the difference of poses is that of the Jacobian but for its square."""
    model = jaxmb.build_model(jaxmb.load_machine("two-flexible-links"))
    found = jaxmb.modes(jaxmb.linearize(model, model.reference))
    motion = machine_motion(model, model.reference, found, range(1, 7))
    x = whole(model, model.reference)
    columns = np.asarray(motion_basis(model, x))
    origin, scale = motion.structure.ends[0][0], 1e-6
    before = np.asarray(jaxmb.frame_pose(model, x, "tool"))[:3, 3]
    for mode, shape in zip(motion.modes, np.asarray(found.shape).T, strict=False):
        parts = [np.asarray(jaxmb.frame_pose(model, x + scale * (columns @ part), "tool"))[:3, 3] - before
                 for part in (shape.real, shape.imag)]  # fmt: skip
        expected = (parts[0] + 1j * parts[1]) / scale
        drawn = mode.displacement[origin]
        ratio = np.vdot(expected, drawn) / np.vdot(expected, expected)  # scale and phase
        np.testing.assert_allclose(drawn, ratio * expected, atol=1e-4 * np.linalg.norm(drawn))


def test_loops_stay_closed():
    """The coupler of a parallelogram moves as one, across the cranks."""
    joints = [{"name": "end", "body": "coupler", "origin": {"xyz": [0.8, 0.0, 0.0]}},
              {"name": "pin", "body": "rocker", "origin": {"xyz": [0.3, 0.0, 0.0]}}]  # fmt: skip
    body = [rod("crank", "ground", [0, 0, 0], 0.3, 100.0), rod("coupler", "crank", [0.3, 0, 0], 0.8, 0.0),
            rod("rocker", "ground", [0.8, 0, 0], 0.3, 0.0)]  # fmt: skip
    model = model_of(
        body=body, frame=joints, loop=[{"name": "closure", "frame_a": "end", "frame_b": "pin"}],
        posture={"q-crank": 1.0, "q-coupler": -1.0, "q-rocker": 1.0},
    )  # fmt: skip
    motion = undamped_motion(model, (1,))
    top = np.flatnonzero(np.abs(motion.points[:, 1] - 0.3 * np.sin(1.0)) < 1e-9)
    assert len(top) == 4  # crank's end, coupler's both, rocker's end
    moved = np.real(motion.modes[0].displacement[top])
    np.testing.assert_allclose(moved, np.broadcast_to(moved[0], moved.shape), atol=1e-9)
    assert moved[0] @ [np.cos(1.0), np.sin(1.0), 0.0] == pytest.approx(0.0, abs=1e-9)
    assert np.linalg.norm(moved[0]) == pytest.approx(DRAWN_PART * motion.size)
    assert motion.structure.ends == ()  # all ends close the loop


def test_phase_of_the_largest_motion():
    rng = np.random.default_rng(0)
    for moved in (rng.normal(size=(5, 3)) + 1j * rng.normal(size=(5, 3)) for _ in range(5)):
        phases = np.linspace(0.0, np.pi, 2001)
        sizes = [np.sum(np.real(moved * np.exp(1j * phase)) ** 2) for phase in phases]
        best = np.real(moved * np.exp(1j * phase_of_largest_motion(moved)))
        assert np.sum(best**2) >= max(sizes)
        assert np.sum(best**2) == pytest.approx(max(sizes), rel=1e-5)
    in_phase = np.array([[1.0, -2.0, 3.0]]) * np.exp(0.7j)
    np.testing.assert_allclose(np.abs(np.real(in_phase * np.exp(1j * phase_of_largest_motion(in_phase)))), [[1, 2, 3]])


def test_a_scale_does_not_change_the_picture():
    """Shapes have no scale and no phase of their own."""
    model = jaxmb.build_model(jaxmb.load_machine("manipulator-3r"))
    found = jaxmb.modes(jaxmb.linearize(model, model.reference))
    other = dataclasses.replace(found, shape=found.shape * jnp.array([3.0, -1j, 0.2 + 0.1j]))
    for one, two in zip(
        *(machine_motion(model, model.reference, f, (1, 2, 3)).modes for f in (found, other)), strict=True
    ):
        sign = np.sign(np.sum(np.real(one.displacement) * np.real(two.displacement)))
        np.testing.assert_allclose(one.displacement, sign * two.displacement, atol=1e-9)


def test_what_turns_about_its_own_axis_alone():
    flywheel = {
        "name": "wheel",
        "mass": 1.0,
        "inertia_products": {"xx": 1, "yy": 1, "zz": 1},
        "joint": [{"name": "q", "stiffness": 9.0}],
    }
    frame = {"name": "tool", "body": "ground", "origin": {"xyz": [1.0, 0.0, 0.0]}}
    motion = undamped_motion(model_of(body=[flywheel], frame=[frame]), (1,))
    assert not np.any(motion.modes[0].displacement)


def test_lines():
    """Links go from joint to joint; a body without a frame has a line to its centre of mass."""
    structure = structure_of(jaxmb.build_model(jaxmb.load_machine("kuka-kr90")))
    lengths = [np.linalg.norm(structure.offset[b] - structure.offset[a]) for (a, b), _ in structure.lines]
    assert sorted(np.round(lengths, 6)) == pytest.approx([0.35, 1.35, np.linalg.norm([1.566, 0.042, 0.005])], abs=1e-6)
    assert structure.end_names == ("tool",)
    bare = structure_of(model_of(body=[rod("arm", "ground", [0, 0, 0], 0.6, 100.0)]))
    np.testing.assert_allclose(bare.offset[bare.lines[0][0][1]], [0.3, 0.0, 0.0])


def test_springs_and_slides():
    slide = {"name": "slide", "mass": 1.0, "joint": [{"name": "x", "type": "prismatic", "axis": [1.0, 0.0, 0.0]}]}
    spring = {
        "name": "spring",
        "frame_a": "ground",
        "frame_b": "slide",
        "type": "length",
        "stiffness": 100.0,
        "free_length": 0.5,
    }
    model = model_of(body=[slide], spring=[spring], posture={"x": 0.5})
    motion = undamped_motion(model, (1,))
    structure = motion.structure
    for pairs in (structure.lines, structure.springs):
        (((a, b), _),) = pairs
        np.testing.assert_allclose(motion.points[[a, b]], [[0.0, 0.0, 0.0], [0.5, 0.0, 0.0]])
        np.testing.assert_allclose(np.abs(motion.modes[0].displacement[[a, b], 0]), [0.0, DRAWN_PART * motion.size])


def test_modes_of_another_machine():
    arm, links = (jaxmb.build_model(jaxmb.load_machine(name)) for name in ("manipulator-3r", "two-flexible-links"))
    found = jaxmb.modes(jaxmb.linearize(arm, arm.reference))
    with pytest.raises(
        ValueError, match="found has shapes of 3 components, expected the 38 degrees of freedom of 'two"
    ):
        found_modes(links, links.reference, found)
