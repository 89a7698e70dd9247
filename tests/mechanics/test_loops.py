"""Closed chains against closed forms of a four-bar and of a Delta, finite differences and MuJoCo."""

import dataclasses
import re
import warnings

import equinox as eqx
import jax
import mujoco
import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.optimize import brentq
from scipy.spatial.transform import Rotation

import jaxmb
from jaxmb.machine.build import tree_model
from jaxmb.machine.elements import origin_matrix
from jaxmb.maps import ToolPath, place_task
from jaxmb.mechanics import tangent
from jaxmb.mechanics.compliance import cartesian_compliance, compliance_matrix
from jaxmb.mechanics.dynamics import gravity_energy
from jaxmb.mechanics.loops import loop_gaps, loop_motion, nearby_motion_map
from jaxmb.mechanics.tangent import mounting_warning
from tests.mechanics.beam_assembly import assembled

CRANK, COUPLER, ROCKER, BASE = 0.3, 0.8, 0.6, 0.9


def rod(name, parent, joint, length, mass, start=0.0, **spring):
    across = mass * length**2 / 12
    return {"name": name, "parent": parent, "origin": {"xyz": [start, 0.0, 0.0]}, "mass": mass,
            "center_of_mass": [length / 2, 0.0, 0.0], "inertia_products": {"xx": 1e-3, "yy": across, "zz": across},
            "joint": [{"name": joint} | spring]}  # fmt: skip


FOUR_BAR = {
    "name": "four-bar",
    "gravity": [0.0, -9.81, 0.0],
    "body": [
        rod("crank", "ground", "q1", CRANK, 1.0, stiffness=100.0, damping=0.1),
        rod("coupler", "crank", "q2", COUPLER, 2.0, CRANK),
        rod("rocker", "ground", "q3", ROCKER, 1.5, BASE),
    ],
    "frame": [
        {"name": "end", "body": "coupler", "origin": {"xyz": [COUPLER, 0.0, 0.0]}},
        {"name": "pin", "body": "rocker", "origin": {"xyz": [ROCKER, 0.0, 0.0]}},
    ],
    "loop": [{"name": "closure", "frame_a": "end", "frame_b": "pin"}],
    "posture": {"q1": 1.0, "q2": -0.5, "q3": 1.8},
}


def machine_of(**changes):
    return jaxmb.Machine.model_validate(FOUR_BAR | changes)


def without_springs():
    bare = [body | {"joint": [{"name": body["joint"][0]["name"]}]} for body in FOUR_BAR["body"]]
    return machine_of(body=bare, independent=["q1"])


@pytest.fixture(scope="module")
def four_bar():
    return jaxmb.build_model(machine_of())


def angles(crank):
    """All three by the law of cosines, the coupler above the line from crank to base."""
    joint = CRANK * np.array([np.cos(crank), np.sin(crank)])
    across = np.array([BASE, 0.0]) - joint
    far = np.linalg.norm(across)
    opening = np.arccos((far**2 + COUPLER**2 - ROCKER**2) / (2 * far * COUPLER))
    coupler = np.arctan2(across[1], across[0]) + opening
    pin = joint + COUPLER * np.array([np.cos(coupler), np.sin(coupler)]) - [BASE, 0.0]
    return np.array([crank, coupler - crank, np.arctan2(pin[1], pin[0])])


def test_the_reference_posture_is_closed(four_bar):
    np.testing.assert_allclose(four_bar.reference, angles(1.0), atol=1e-12)
    assert jaxmb.independent_coordinates(four_bar) == ("q1",)


@pytest.mark.parametrize("crank", [-2.5, 0.1, 2.0, 3.5])
def test_postures_of_a_four_bar(four_bar, crank):
    q = jaxmb.close_loops(four_bar, {"q1": crank})
    expected = angles(crank)
    turns = np.round((np.asarray(q) - expected) / (2 * np.pi))
    np.testing.assert_allclose(q - 2 * np.pi * turns, expected, atol=1e-12)
    np.testing.assert_allclose(eqx.filter_jit(loop_gaps)(four_bar, q), 0.0, atol=1e-12)
    np.testing.assert_allclose(jaxmb.posture(four_bar, {"q1": crank}), q, atol=1e-12)
    difference = (angles(crank + 1e-6) - angles(crank - 1e-6)) / 2e-6
    np.testing.assert_allclose(jaxmb.motion_map(four_bar, q)[:, 0], difference, atol=1e-8)


ALONG = np.array([0.48, 0.6, 0.64])


@pytest.mark.parametrize(
    ("kind", "constraints", "shift", "turn"),
    [
        ("revolute", 5, np.zeros(3), 0.7 * ALONG),
        ("prismatic", 5, 0.3 * ALONG, np.zeros(3)),
        ("cylindrical", 4, 0.3 * ALONG, -0.7 * ALONG),
        ("spherical", 3, np.zeros(3), np.array([0.4, 0.5, -0.6])),
        ("fixed", 6, np.zeros(3), np.zeros(3)),
    ],
)
def test_motions_that_a_loop_allows(kind, constraints, shift, turn):
    """A body that moves in space, placed so that frame b has such a motion in frame a: no gap, and the joint's rank."""
    base, near, far = (
        {"xyz": list(xyz), "rpy": list(rpy)} for xyz, rpy in np.random.default_rng(6).normal(size=(3, 2, 3))
    )
    axes = ("x", "prismatic", 0), ("y", "prismatic", 1), ("z", "prismatic", 2), ("c", "revolute", 2), (
        "b", "revolute", 1), ("a", "revolute", 0)  # fmt: skip
    joints = [{"name": name, "type": of, "axis": np.eye(3)[i].tolist()} for name, of, i in axes]
    loop = {"name": "loop", "frame_a": "a", "frame_b": "b", "type": kind, "axis": ALONG.tolist()}
    model = tree_model(machine_of(
        body=[{"name": "body", "origin": base, "joint": joints}], loop=[loop], posture={},
        frame=[{"name": "a", "body": "ground", "origin": near}, {"name": "b", "body": "body", "origin": far}],
    ))  # fmt: skip
    motion = np.eye(4)
    motion[:3, :3], motion[:3, 3] = Rotation.from_rotvec(turn).as_matrix(), shift
    first, a, b = (origin_matrix(origin) for origin in (base, near, far))
    pose = np.linalg.inv(first) @ a @ motion @ np.linalg.inv(b)
    q = np.array([*pose[:3, 3], *Rotation.from_matrix(pose[:3, :3]).as_euler("ZYX")])
    gaps = eqx.filter_jit(lambda x: (loop_gaps(model, x), jax.jacfwd(lambda y: loop_gaps(model, y))(x)))
    size, slope = gaps(q)
    np.testing.assert_allclose(size, 0.0, atol=1e-14)
    assert np.linalg.matrix_rank(slope, tol=1e-9) == constraints


LINE = {"q1": 0.0, "q2": 0.0, "q3": 0.0}


@pytest.mark.parametrize(
    ("lengths", "posture"),
    [
        ((0.3, 0.9, 0.3), LINE),  # a parallelogram, at the point where it may turn over
        ((0.3, 0.3, 0.3), LINE | {"q3": np.pi}),  # it can close in line only
        ((0.3, 0.3, 0.3), {"q1": 0.1, "q2": -0.1, "q3": 3.0}),
    ],
)
def test_links_in_line(lengths, posture):
    """The number of independent coordinates is undetermined."""
    parts = (("crank", "ground", "q1", 0.0), ("coupler", "crank", "q2", lengths[0]), ("rocker", "ground", "q3", BASE))
    body = [rod(a, b, c, length, 1.0, at) for (a, b, c, at), length in zip(parts, lengths, strict=True)]
    ends = [{"name": name, "body": of, "origin": {"xyz": [length, 0.0, 0.0]}}
            for name, of, length in (("end", "coupler", lengths[1]), ("pin", "rocker", lengths[2]))]  # fmt: skip
    with pytest.raises(ValueError, match=r"the loops of 'four-bar' .* are singular in the reference posture"):
        jaxmb.build_model(machine_of(body=body, frame=ends, posture=posture))


def test_reference_postures_far_from_closed_ones():
    """What changes is reported, and a posture on another branch is refused."""
    with pytest.warns(UserWarning, match=r"the loops of 'four-bar' close with q3 from 2 to 1\.6, q2 from"):
        jaxmb.build_model(machine_of(posture={"q1": 1.0, "q2": -0.4, "q3": 2.0}))
    other = {"q1": 2.7, "q2": -1.3, "q3": 3.1}
    with pytest.raises(ValueError, match=r"close on another branch .*q2 from -1\.3 to -2\.3"):
        jaxmb.build_model(machine_of(posture=other))


def test_a_dependent_coordinate_may_be_given(four_bar):
    wanted = float(angles(1.4)[2])
    np.testing.assert_allclose(jaxmb.close_loops(four_bar, {"q3": wanted}), angles(1.4), atol=1e-11)


def test_small_motions(four_bar):
    """Stiffness is the second derivative of the energy along the closed form; mass what moves with the crank."""
    q = jaxmb.close_loops(four_bar, {"q1": 2.0})
    tangent = jaxmb.linearize(four_bar, q)

    def energy(crank):
        return float(gravity_energy(four_bar, angles(crank))) + 50.0 * (crank - 2.0) ** 2

    h = 1e-3
    wide, narrow = ((energy(2 + s) - 2 * energy(2.0) + energy(2 - s)) / s**2 for s in (2 * h, h))
    assert float(tangent.stiffness[0, 0]) == pytest.approx((4 * narrow - wide) / 3, rel=1e-7)
    R = np.asarray(jaxmb.motion_map(four_bar, q))
    np.testing.assert_allclose(tangent.mass, R.T @ jaxmb.mass_matrix(four_bar, q) @ R, rtol=1e-12)
    np.testing.assert_allclose(tangent.damping, [[0.1]], rtol=1e-12)
    h = jaxmb.frf(four_bar, q, [1.0, 4.0], outputs=[("q3", "angle")], inputs=[("q1", "angle")], kind="receptance")
    s = 2j * np.pi * np.array([1.0, 4.0])
    dynamic = float(tangent.mass[0, 0]) * s**2 + 0.1 * s + float(tangent.stiffness[0, 0])
    np.testing.assert_allclose(h[:, 0, 0], R[2, 0] / dynamic, rtol=1e-10)


def test_motion_beside_a_closed_posture(four_bar):
    """An error of a frame that closes a loop opens it by as much, at the posture of the stated machine."""
    q = four_bar.reference
    other = dataclasses.replace(four_bar, frame_offset=four_bar.frame_offset.at[:, 0, 3].add(2e-3))
    with pytest.raises(ValueError, match="loops of 'four-bar' are open"):
        jaxmb.motion_map(other, q)
    np.testing.assert_allclose(nearby_motion_map(other, q), jaxmb.motion_map(four_bar, q), atol=0.05)
    np.testing.assert_allclose(nearby_motion_map(four_bar, q), jaxmb.motion_map(four_bar, q), atol=1e-14)


def test_equilibrium_and_deflection(four_bar):
    at_rest = jaxmb.static_equilibrium(four_bar, four_bar.reference)
    np.testing.assert_allclose(at_rest, angles(float(at_rest[0])), atol=1e-12)
    above, below = (float(gravity_energy(four_bar, angles(at_rest[0] + h))) for h in (1e-5, -1e-5))
    assert 100.0 * (at_rest[0] - 1.0) == pytest.approx(-(above - below) / 2e-5, rel=1e-8)
    moved = jaxmb.deflection(four_bar, four_bar.reference, "end", np.array([10.0, 0.0, 0.0, 0.0, 0.0, 0.0]))[0]
    there = jaxmb.frame_jacobian(four_bar, four_bar.reference, "end") @ jaxmb.motion_map(four_bar, four_bar.reference)
    np.testing.assert_allclose(moved, there[:, 0] * float(there[0, 0]) * 10.0 / 100.0, rtol=1e-9, atol=1e-15)


def test_deflection_under_a_large_load(four_bar):
    """The crank turns until its spring balances the load along the closed form; gravity is not part of a deflection."""

    def end(crank):
        return CRANK * np.array([np.cos(crank), np.sin(crank)]) + COUPLER * np.array(
            [np.cos(np.sum(angles(crank)[:2])), np.sin(np.sum(angles(crank)[:2]))]
        )

    force, start = np.array([60.0, -40.0]), 2.0
    q = jaxmb.close_loops(four_bar, {"q1": start})
    h = 1e-6

    def unbalanced(crank):
        return 100.0 * (crank - start) - force @ (end(crank + h) - end(crank - h)) / (2 * h)

    turned = brentq(unbalanced, start - 0.8, start + 0.8, xtol=1e-14)
    assert abs(turned - start) > 0.05
    moved = jaxmb.deflection(four_bar, q, "end", np.array([*force, 0.0, 0.0, 0.0, 0.0]), linear=False)[0]
    np.testing.assert_allclose(moved[:2], end(turned) - end(start), atol=1e-8)
    bare = jaxmb.build_model(without_springs())
    held = jaxmb.deflection(bare, q, "end", np.array([*force, 0.0, 0.0, 0.0, 0.0]), linear=False)
    np.testing.assert_allclose(held, 0.0, atol=1e-14)


@pytest.mark.parametrize("force", [(-3e3, 800.0), (-2e3, 500.0), (-474.0, -349.0), (1500.0, 900.0), (-600.0, 0.0)])
def test_deflection_follows_a_growing_load(four_bar, force):
    """The equilibrium that the crank comes to as the load grows, in small steps along the closed form."""
    start, h = 1.0, 1e-4

    def work(crank):
        q = angles(crank)
        end = CRANK * np.array([np.cos(q[0]), np.sin(q[0])])
        return np.array(force) @ (end + COUPLER * np.array([np.cos(q[0] + q[1]), np.sin(q[0] + q[1])]))

    crank, stable = start, True
    for share in np.linspace(0.0, 1.0, 1001):
        for _ in range(3):
            below, at, above = (work(crank + s) for s in (-h, 0.0, h))
            stiffness = 100.0 - share * (above - 2.0 * at + below) / h**2
            stable &= stiffness > 0.0
            crank -= (100.0 * (crank - start) - share * (above - below) / (2.0 * h)) / stiffness
        if not stable:
            break
    q = jaxmb.close_loops(four_bar, {"q1": start})
    moved = jaxmb.deflection(four_bar, q, "end", np.array([*force, 0.0, 0.0, 0.0, 0.0]), linear=False)[0]
    if not stable:
        assert np.isnan(moved).all()
        return
    expected = [
        CRANK * np.array([np.cos(a[0]), np.sin(a[0])]) + COUPLER * np.array([np.cos(a[0] + a[1]), np.sin(a[0] + a[1])])
        for a in (angles(crank), angles(start))
    ]
    np.testing.assert_allclose(moved[:2], expected[0] - expected[1], atol=1e-5)


def test_compliance_with_gravity_is_that_of_small_motions(four_bar):
    """The forces that keep the loop closed turn with it, in both."""
    q = jaxmb.close_loops(four_bar, {"q1": 2.0})
    stiffness = float(jaxmb.linearize(four_bar, q).stiffness[0, 0])
    compliance = eqx.filter_jit(compliance_matrix)(four_bar, q, gravity=True)
    assert float(compliance[0, 0]) == pytest.approx(1.0 / stiffness, rel=1e-10)


def test_a_posture_near_a_closed_one_of_constraints_that_say_the_same():
    """A planar four-bar whose rocker could tilt out of the plane: only in the plane do the constraints say the same."""
    tilt = {"name": "tilt", "axis": [1.0, 0.0, 0.0]}
    rocker = FOUR_BAR["body"][2] | {"joint": [{"name": "q3"}, tilt]}
    body = [*without_springs().model_dump(exclude_unset=True)["body"][:2], rocker]
    posture = FOUR_BAR["posture"] | {"tilt": 1e-3}
    model = jaxmb.build_model(machine_of(body=body, posture=posture, independent=["q1"]))
    np.testing.assert_allclose(model.reference[:3], angles(1.0), atol=1e-6)


def test_a_motor_without_stiffness_is_held_in_a_closed_chain():
    crank = FOUR_BAR["body"][0] | {
        "joint": [{"name": "q1", "stiffness": 100.0, "motor": {"inertia": 1e-3, "ratio": 50.0}}]
    }
    geared = jaxmb.build_model(machine_of(body=[crank, *FOUR_BAR["body"][1:]]))
    plain = jaxmb.build_model(machine_of())
    found = jaxmb.static_equilibrium(geared, geared.reference)
    np.testing.assert_allclose(found[:3], jaxmb.static_equilibrium(plain, plain.reference), atol=1e-10)


def test_a_small_mechanism_driven_by_its_slide():
    """Radians of the crank are many more than metres of the slide."""
    r, length, away = 0.005, 0.015, 1.0

    def slide(angle):
        return r * np.cos(angle) + np.sqrt(length**2 - (r * np.sin(angle)) ** 2)

    machine = jaxmb.Machine.model_validate({
        "name": "slider-crank",
        "body": [
            {"name": "slider", "mass": 1.0, "joint": [{"name": "s", "type": "prismatic", "axis": [1.0, 0.0, 0.0]}]},
            {"name": "crank", "mass": 1.0, "joint": [{"name": "a"}]},
            {"name": "rod", "parent": "crank", "origin": {"xyz": [r, 0.0, 0.0]}, "joint": [{"name": "b"}], "mass": 1.0},
        ],
        "frame": [{"name": "end", "body": "rod", "origin": {"xyz": [length, 0.0, 0.0]}}],
        "loop": [{"name": "pin", "frame_a": "end", "frame_b": "slider"}],
        "independent": ["s"],
        "posture": {"s": slide(away), "a": away, "b": -away - np.arcsin(r * np.sin(away) / length)},
    })  # fmt: skip
    model = jaxmb.build_model(machine)
    q = jaxmb.close_loops(model, {"s": slide(1.6)})
    assert float(q[1]) == pytest.approx(1.6, abs=1e-10)
    stretched = np.array([slide(0.0), 0.0, 0.0])
    with pytest.raises(ValueError, match="at a dead point, s do not determine"):
        jaxmb.motion_map(model, stretched)


def test_the_reference_posture_closes_with_springs_in_its_joints():
    body = [FOUR_BAR["body"][0], rod("coupler", "crank", "q2", COUPLER, 2.0, CRANK, stiffness=1.0), FOUR_BAR["body"][2]]
    model = jaxmb.build_model(machine_of(body=body, independent=["q1"]))
    np.testing.assert_allclose(model.reference, angles(1.0), atol=1e-12)


def test_what_is_for_open_machines_only(four_bar):
    wrench = np.array([1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    for asked in (
        lambda: cartesian_compliance(four_bar, four_bar.reference, "end", wrench),
        lambda: place_task(four_bar, ToolPath(np.eye(4)[None], wrench[None]), {"x": 0.0}, {}, frame="end"),
    ):
        with pytest.raises(NotImplementedError, match="has loops"):
            asked()


def test_effort_along_a_motion_against_mujoco(four_bar):
    """MuJoCo's loop is a soft constraint: its inverse dynamics of the tree, projected on the motions that it allows."""

    def body(mass, length, start, inner=""):
        across = mass * length**2 / 12
        return (f'<body pos="{start} 0 0"><joint type="hinge" axis="0 0 1"/>'
                f'<inertial pos="{length / 2} 0 0" mass="{mass}" diaginertia="1e-3 {across} {across}"/>{inner}'
                "</body>")  # fmt: skip

    text = (
        '<mujoco><option gravity="0 -9.81 0"/><compiler balanceinertia="false"/><worldbody>'
        + body(1.0, CRANK, 0.0, body(2.0, COUPLER, CRANK)) + body(1.5, ROCKER, BASE) + "</worldbody></mujoco>"
    )  # fmt: skip
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    t, h = np.array([0.3, 1.1, 2.7]), 1e-4
    loose = jaxmb.build_model(without_springs())
    for crank, rate, acceleration in zip(1.0 + np.sin(t), np.cos(t), -np.sin(t), strict=True):
        # motions of all three angles by differences of the closed form, of fourth order
        a, b, c, d, e = (angles(crank + k * h) for k in (-2, -1, 0, 1, 2))
        first = (a - 8 * b + 8 * d - e) / (12 * h)
        second = (-a + 16 * b - 30 * c + 16 * d - e) / (12 * h**2)
        data.qpos[:], data.qvel[:], data.qacc[:] = angles(crank), first * rate, first * acceleration + second * rate**2
        mujoco.mj_inverse(model, data)
        expected = first @ data.qfrc_inverse
        q = jaxmb.close_loops(loose, {"q1": crank})
        found = effort_with_loops(loose, q, np.array([rate]), np.array([acceleration]))
        np.testing.assert_allclose(found, [expected], rtol=1e-6)


def effort_with_loops(model, q, zd, zdd):
    """Effort at the independent coordinates: R^T f(q, R zd, R zdd + R' zd), f the residual of the tree."""
    R, bias = loop_motion(model, q, zd)
    return R.T @ jaxmb.inverse_dynamics(model, q, R @ zd, R @ zdd + bias)


def test_a_loop_of_beams():
    """A portal frame: two columns and a crossbar, clamped everywhere, against the same as an assembly by hand."""
    section = {"young_modulus": 2.1e11, "shear_modulus": 8e10, "density": 7800.0, "area": 1e-4,
               "second_moment_y": 2e-8, "second_moment_z": 1e-8, "torsion_constant": 1.5e-8, "elements": 2}  # fmt: skip
    up, down = {"rpy": [0.0, 0.0, np.pi / 2]}, {"rpy": [0.0, 0.0, -np.pi / 2]}
    portal = {
        "name": "portal", "gravity": [0.0, 0.0, 0.0],
        "beam": [
            section | {"name": "left", "length": 1.0, "origin": up},
            section | {"name": "bar", "body": "left", "length": 0.8, "origin": down},
            section | {"name": "right", "body": "bar", "length": 1.0, "origin": down},
        ],
        "frame": [{"name": "foot", "body": "ground", "origin": {"xyz": [0.8, 0.0, 0.0]} | down}],
        "loop": [{"name": "clamp", "frame_a": "foot", "frame_b": "right", "type": "fixed"}],
    }  # fmt: skip
    model = jaxmb.build_model(jaxmb.Machine.model_validate(portal))
    tangent = jaxmb.linearize(model, np.zeros(0))
    assert tangent.mass.shape == (30, 30)
    found = np.asarray(jaxmb.modes(tangent).frequency_hz)

    def turned(angle):
        return np.array([[np.cos(angle), -np.sin(angle), 0.0], [np.sin(angle), np.cos(angle), 0.0], [0.0, 0.0, 1.0]])

    elements = [(0, 1, turned(np.pi / 2), 0.5), (1, 2, turned(np.pi / 2), 0.5), (2, 3, turned(0.0), 0.4),
                (3, 4, turned(0.0), 0.4), (4, 5, turned(-np.pi / 2), 0.5), (5, 6, turned(-np.pi / 2), 0.5)]  # fmt: skip
    M, K = assembled(7, elements)
    expected = np.sqrt(eigh(K[6:36, 6:36], M[6:36, 6:36], eigvals_only=True)) / (2 * np.pi)
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_gravity_in_loops_with_beams():
    """A bar on two swinging beams, and a rigid pendulum beside it: both by the formula of a pendulum."""
    tube = {"young_modulus": 2.1e11, "shear_modulus": 8e10, "density": 7800.0, "section": {"tube": [0.03, 0.02]},
            "length": 0.5, "elements": 2}  # fmt: skip
    bar = {"mass": 4.0, "center_of_mass": [0.0, 0.2, 0.0], "inertia_products": {"xx": 0.1, "yy": 0.1, "zz": 0.1}}
    pendulum = {"mass": 2.0, "center_of_mass": [0.3, 0.0, 0.0]}
    swing = {
        "name": "swing", "gravity": [9.81, 0.0, 0.0], "independent": ["q1"],
        "body": [
            {"name": "left", "joint": [{"name": "q1"}]},
            bar | {"name": "bar", "parent": "left-rod", "joint": [{"name": "q2"}]},
            {"name": "right", "origin": {"xyz": [0.0, 0.4, 0.0]}, "joint": [{"name": "q3"}]},
            pendulum | {"name": "pendulum", "joint": [{"name": "p"}]},
        ],
        "beam": [tube | {"name": "left-rod", "body": "left"}, tube | {"name": "right-rod", "body": "right"}],
        "frame": [{"name": "pin", "body": "bar", "origin": {"xyz": [0.0, 0.4, 0.0]}}],
        "loop": [{"name": "closure", "frame_a": "pin", "frame_b": "right-rod"}],
    }  # fmt: skip
    model = jaxmb.build_model(jaxmb.Machine.model_validate(swing))
    found = jaxmb.modes(jaxmb.linearize(model, model.reference)).frequency_hz
    rods = 2.0 * 7800.0 * np.pi / 4.0 * (0.03**2 - 0.02**2) * 0.5
    square = 9.81 * (4.0 * 0.5 + rods * 0.25) / (4.0 * 0.25 + rods * 0.25 / 3.0)
    assert float(found[0]) == pytest.approx(np.sqrt(square) / (2 * np.pi), rel=1e-5)
    assert float(found[1]) == pytest.approx(np.sqrt(9.81 / 0.3) / (2 * np.pi), rel=1e-8)
    assert float(found[2]) > 10.0


@pytest.mark.parametrize(("width", "reported"), [(0.02, False), (0.004, True)])
def test_beams_that_share_their_weight_as_they_were_mounted(width, reported, monkeypatch):
    """A portal with 5 kg on its crossbar: of stout columns it does not matter, of limp ones it is said."""
    section = {"young_modulus": 2.1e11, "shear_modulus": 8e10, "density": 7800.0, "section": {"box": [width, 0.02]},
               "elements": 2}  # fmt: skip
    up, down = {"rpy": [0.0, -np.pi / 2, 0.0]}, {"rpy": [0.0, np.pi / 2, 0.0]}
    portal = {
        "name": "portal",
        "beam": [
            section | {"name": "left", "length": 1.0, "origin": up},
            section | {"name": "bar", "body": "left", "length": 0.8, "origin": down},
            section | {"name": "right", "body": "bar", "length": 1.0, "origin": down},
        ],
        "body": [{"name": "load", "parent": "bar/1", "mass": 5.0}],
        "frame": [{"name": "foot", "body": "ground", "origin": {"xyz": [0.8, 0.0, 0.0]} | down}],
        "loop": [{"name": "clamp", "frame_a": "foot", "frame_b": "right", "type": "fixed"}],
    }  # fmt: skip
    model = jaxmb.build_model(jaxmb.Machine.model_validate(portal))
    doubts = mounting_warning(model, model.reference)
    assert bool(doubts) is reported
    if reported:
        assert "natural frequencies of 'portal' depend on the mounting" in doubts[0]
        monkeypatch.setattr(tangent, "_mounting_change", lambda *_: (np.eye(1), np.eye(1), np.eye(1)))  # not compiled
        assert "of 'gate' depend" in mounting_warning(dataclasses.replace(model, name="gate"), model.reference)[0]
        monkeypatch.undo()
        with pytest.warns(UserWarning, match="'portal' depend on the mounting"):
            found = jaxmb.linearize(model, model.reference)
        # the weight is shared half by half, as in the equilibrium
        at_rest = jaxmb.linearize(model, model.reference, at="equilibrium")
        squares = [eigh(part.stiffness, part.mass, eigvals_only=True)[:3] for part in (found, at_rest)]
        np.testing.assert_allclose(squares[0], squares[1], rtol=5e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"frame": [FOUR_BAR["frame"][0], {"name": "pin", "body": "rocker", "origin": {"xyz": [3.0, 0.0, 0.0]}}]},
         "the loops of 'four-bar' (closure) cannot close near the reference posture"),
        ({"independent": ["q1", "q2"]}, "independent: q1, q2 cannot all be given: only 1 of 3"),
        ({"independent": ["q9"]}, "independent: coordinate 'q9' does not exist"),
        ({"loop": [{"name": "closure", "frame_a": "end", "frame_b": "nowhere"}]}, "frame_b 'nowhere' does not exist"),
        ({"loop": [{"name": "closure", "frame_a": "end", "frame_b": "end"}]}, "joins frame 'end' to itself"),
        ({"loop": [{"name": "closure", "frame_a": "end", "frame_b": "pin"},
                   {"name": "stop", "frame_a": "ground", "frame_b": "crank", "type": "fixed"}],
          "posture": {}}, "cannot close"),
        ({"body": FOUR_BAR["body"][:1], "posture": {},
          "frame": [{"name": "turned", "body": "crank", "origin": {"rpy": ["180 deg", 0.0, 0.0]}}],
          "loop": [{"name": "stop", "frame_a": "ground", "frame_b": "turned", "type": "fixed"}]},
         "the smallest gap reached is 3.14 m or rad"),
    ],
)  # fmt: skip
def test_wrong_loops(change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        jaxmb.build_model(machine_of(**change))


def test_independent_coordinates_that_are_not_named():
    """Four joints and one loop in the plane: two are independent."""
    stand, rocker = rod("stand", "ground", "q4", BASE, 1.0), rod("rocker", "stand", "q3", ROCKER, 1.5, BASE)
    body = [*FOUR_BAR["body"][:2], stand, rocker]
    with pytest.warns(UserWarning, match="independent: q. was selected besides q1, expected 2 names"):
        model = jaxmb.build_model(machine_of(body=body, independent=["q1"]))
    names = jaxmb.independent_coordinates(model)
    assert len(names) == 2
    with warnings.catch_warnings(action="error"):
        jaxmb.build_model(machine_of(body=body, independent=names))
        jaxmb.build_model(machine_of(body=body, independent=["q4"]))  # the one with a spring is the default


def test_wrong_postures(four_bar):
    crank = {"q1": 1.0}
    with pytest.raises(ValueError, match="q1, q2 cannot all be given"):
        jaxmb.close_loops(four_bar, crank | {"q2": 0.2})
    with pytest.raises(ValueError, match=r"cannot close there, only up to q3 = 1\.5337"):
        jaxmb.close_loops(four_bar, {"q3": 0.3})  # where crank and coupler are one line
    with pytest.raises(ValueError, match="q1 is nan, expected a finite number"):
        jaxmb.close_loops(four_bar, {"q1": float("nan")})
    locked = FOUR_BAR["body"][0] | {"joint": [{"name": "q1", "stiffness": 1.0, "locked": True}]}
    with pytest.raises(ValueError, match="with its loops and locks no coordinate can move"):
        jaxmb.build_model(machine_of(body=[locked, *FOUR_BAR["body"][1:]]))
    with pytest.raises(
        ValueError, match=r"the loops of 'four-bar' are open by .*; `close_loops` closes them, or state q1 only, from"
    ):
        jaxmb.linearize(four_bar, np.array([1.0, 0.0, 1.0]))
