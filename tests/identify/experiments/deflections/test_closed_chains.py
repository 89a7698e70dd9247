"""Deflections of closed chains in few degrees of freedom, against the whole machine."""

import dataclasses
import math
import re

import jax.numpy as jnp
import numpy as np
import pytest
import tomli_w

import jaxmb
from jaxmb.identify.experiments.deflections.deflection_test import deflection_test
from jaxmb.identify.experiments.deflections.load_cases import (
    LoadCase,
    check_cases,
    displaced_posture,
    turning,
)
from jaxmb.identify.experiments.deflections.table import read_deflections
from jaxmb.identify.experiments.tolerances import Instruments
from jaxmb.identify.experiments.vibration_view import vibration_view
from jaxmb.identify.parameters.free_parameters import Bound, free_parameters
from jaxmb.identify.study.reading.deflections import measured_with
from jaxmb.mechanics.loops import check_closed, loop_closure
from jaxmb.mechanics.postures import OutOfReachError

SECTION = {"young_modulus": 7e10, "shear_modulus": 2.6e10, "density": 2700.0, "area": 1e-4, "second_moment_y": 2e-9,
           "second_moment_z": 3e-9, "torsion_constant": 4e-9, "elements": 2}  # fmt: skip
FIVE_BAR = {
    "name": "five-bar",
    "body": [
        {"name": "left", "mass": 1.0, "joint": [{"name": "q1", "stiffness": 2e3}]},
        {"name": "elbow", "parent": "upper-left", "mass": 0.2, "joint": [{"name": "q2"}]},
        {"name": "right", "mass": 1.0, "origin": {"xyz": [0.4, 0.0, 0.0]}, "joint": [{"name": "q3", "stiffness": 3e3}]},
        {"name": "knee", "parent": "upper-right", "mass": 0.2, "joint": [{"name": "q4", "stiffness": 5.0}]},
    ],
    "beam": [
        SECTION | {"name": "upper-left", "body": "left", "length": 0.5},
        SECTION | {"name": "fore-left", "body": "elbow", "length": 0.6},
        SECTION | {"name": "upper-right", "body": "right", "length": 0.5},
        SECTION | {"name": "fore-right", "body": "knee", "length": 0.6},
    ],
    "frame": [{"name": "tool", "body": "fore-left"}, {"name": "end", "body": "fore-right"}],
    "loop": [{"name": "closure", "frame_a": "tool", "frame_b": "end"}],
    "independent": ["q1", "q3"],
    "posture": {"q1": 2.0, "q2": -1.3, "q3": 1.1, "q4": 1.3},
}  # fmt: skip
STIFFNESS = [Bound((f"stiffness.{name}",), 0.5 * value, 4.0 * value) for name, value in (("q1", 2e3), ("q3", 3e3))]
FOLLOWING = [Bound(("stiffness.q4",), 1.0, 50.0)]
MODULI = [Bound(("young_modulus.upper-left", "young_modulus.fore-right"), 3e10, 2e11)]


@pytest.fixture(scope="module")
def model():
    return jaxmb.build_model(jaxmb.Machine.model_validate(FIVE_BAR))


@pytest.fixture(scope="module")
def deflections(model):
    postures = [jaxmb.posture(model, {"q1": a, "q3": b}) for a, b in ((2.0, 1.1), (1.8, 0.9))]
    loads = np.array([[30.0, -20.0, 10.0, 1.0, 0.0, 2.0], [0.0, 0.0, -50.0, 0.0, 0.0, 0.0]])
    cases = [
        LoadCase(
            f"load {i}", np.asarray(q), "tool", load, ("tool", "end"), np.full((2, 6), 1e-4), np.full((2, 6), 1e-5)
        )
        for i, (q, load) in enumerate(zip(postures, loads, strict=True))
    ]
    return deflection_test("loads", model, cases)


@pytest.mark.parametrize(("bounds", "size"), [(STIFFNESS, 3), (STIFFNESS + FOLLOWING, 4), (STIFFNESS + MODULI, None)])
def test_few_degrees_of_freedom_say_what_all_say(model, deflections, bounds, size):
    """One for each load of a posture, and one for each joint that is free; a modulus acts on all of its beam."""
    free = free_parameters(model, bounds)
    affine = deflections.evaluation.affine_view(model, free)
    assert affine is not None
    assert size is None or affine.base.shape[1] == size
    random = np.random.default_rng(0)
    for _ in range(3):
        values = free.values(random.uniform(np.asarray(free.lower), np.asarray(free.upper)))
        whole = deflections.predict(deflections.view(free.apply(model, values)))
        np.testing.assert_allclose(deflections.predict(affine(values)), whole, rtol=1e-9, atol=1e-16)


def test_where_it_cannot_be_so(model, deflections):
    length = free_parameters(model, [Bound(("density.upper-left",), 1e3, 5e3)])
    assert deflections.evaluation.affine_view(model, length) is not None  # acts on nothing: no slope
    open_chain = dataclasses.replace(model, following=())
    assert deflections.evaluation.affine_view(open_chain, length) is None


def test_drives_that_do_not_repeat(model):
    """Points move by the platform's own motion map, by differences of closed postures; the loop stays closed."""
    q = jaxmb.posture(model, {"q1": 1.9, "q3": 1.0})
    columns = turning(model, np.asarray(q))
    assert columns.shape == (4, 2)
    for i, name in enumerate(("q1", "q3")):
        value = {"q1": 1.9, "q3": 1.0}[name]
        steps = [np.asarray(jaxmb.close_loops(model, {name: value + h}, q)) for h in (1e-5, -1e-5)]
        np.testing.assert_allclose(columns[:, i], (steps[0] - steps[1]) / 2e-5, atol=1e-8)
    case = LoadCase("load", np.asarray(q), "tool", np.eye(6)[0], ("tool",), np.zeros((1, 6)), np.full((1, 6), 1e-5))
    errors = Instruments.model_validate({"tracker_mm": 1e-9, "reflectors_m": 1.0, "repeat_deg": 1.0})
    seen = measured_with(model, [case] * 200, errors, np.random.default_rng(0))
    moved = np.stack([one.displacement[0] for one in seen])
    there = np.asarray(jaxmb.frame_jacobian(model, q, "tool")) @ columns
    expected = errors.repeat_std**2 * there @ there.T
    plane = np.ix_([0, 1, 5], [0, 1, 5])
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))[plane]
    # 200 draws tell a variance to 10 %
    np.testing.assert_allclose(np.cov(moved.T)[plane] / scale, expected[plane] / scale, atol=0.3)
    tilted = Instruments.model_validate({"tracker_mm": 1e-9, "reflectors_m": 1.0, "encoder_deg": 2.0})
    assert np.isfinite(measured_with(model, [case], tilted, np.random.default_rng(0))[0].displacement).all()


def test_a_posture_that_is_open(model):
    q = np.array(jaxmb.posture(model, {"q1": 1.9, "q3": 1.0}))
    case = LoadCase("load", q, "tool", np.eye(6)[0], ("tool",), np.full((1, 6), 1e-4), np.full((1, 6), 1e-5))
    check_cases(model, [case])
    with pytest.raises(ValueError, match=r"deflection test 'load': posture: the loops of 'five-bar' are open by"):
        check_cases(model, [dataclasses.replace(case, q=q + 0.01)])


def tip_and_elbows(left, right, length=0.5):
    """The tips meet where circles about the elbows intersect. `length` is that of the left upper link."""
    upper = (0.0, left, length), (0.4, right, 0.5)
    elbows = [np.array([x + own * math.cos(a), own * math.sin(a)]) for x, a, own in upper]
    across = elbows[1] - elbows[0]
    half = np.linalg.norm(across) / 2
    return elbows[0] + across / 2 + math.sqrt(0.36 - half**2) * np.array([-across[1], across[0]]) / (2 * half), elbows


def closed_form(left, right):
    """All four angles."""
    tip, elbows = tip_and_elbows(left, right)
    first, second = (math.atan2(*(tip - elbow)[::-1]) for elbow in elbows)
    return np.array([left, first - left, right, second - right])


def test_drives_alone_and_rounded_postures_in_a_table(model, tmp_path):
    path, expected = tmp_path / "loads.csv", closed_form(1.8, 0.9)
    path.write_text("test,q1 rad,q3 rad,fx N,dx mm\na,1.8,0.9,50,0.1\n")
    (drives,) = read_deflections(model, path)
    np.testing.assert_allclose(drives.q, expected, atol=1e-10)
    rounded = ",".join(f"{value:.4f}" for value in expected)
    path.write_text(f"test,q1 rad,q2 rad,q3 rad,q4 rad,fx N,dx mm,point\na,{rounded},50,0.1,tool\n"
                    f"a,{rounded},50,0.1,end\n")  # fmt: skip
    with pytest.warns(UserWarning, match=r"loads.csv: .*test 'a': posture: .* are open by .*'q[24]' changes by"):
        (every,) = read_deflections(model, path)
    np.testing.assert_allclose(every.q, expected, atol=1e-10)
    path.write_text(path.read_text().replace(f"{expected[1]:.4f}", f"{expected[1] + 0.01:.4f}"))
    with pytest.raises(ValueError, match="line 2, deflection test 'a': posture: the loops of 'five-bar' are open by"):
        read_deflections(model, path)


def test_rounded_postures_are_closed(model):
    """On the branch that the rounded values are on, be it another than the reference posture's."""
    for expected in (closed_form(1.9, 1.0), closed_form(1.9, 1.0) + 2.0 * np.pi * np.eye(4)[1]):
        with pytest.warns(UserWarning, match="closed with q1, q3 as given"):
            q = jaxmb.close_loops(model, dict(zip(model.coordinates, np.round(expected, 4), strict=True)))
        np.testing.assert_allclose(q, expected, atol=1e-10)
    with pytest.warns(UserWarning, match="q: the loops of 'five-bar' are open by"):
        R = jaxmb.motion_map(model, np.round(closed_form(1.9, 1.0), 4))
    np.testing.assert_allclose(R, jaxmb.motion_map(model, closed_form(1.9, 1.0)), rtol=1e-12)


def test_beside_frfs_with_passive_joints(model, tmp_path):
    """They follow from the others in both."""
    jaxmb.write_machine(jaxmb.Machine.model_validate(FIVE_BAR), tmp_path / "five-bar.toml")
    (tmp_path / "loads.csv").write_text("test,q1 rad,q3 rad,fx N,fz N,dx mm\na,1.8,0.9,50,30,0.1\n")
    study = {
        "machine": "five-bar.toml",
        "test": [
            {
                "kind": "modes",
                "frequency_hz": [3.0],
                "damping_percent": [0.1],
                "frequency_std_hz": 0.1,
                "damping_std_percent": 0.1,
            },
            {"kind": "deflection", "file": "loads.csv"},
        ],
        "free": {"stiffness.q1": {"lower": 1e3, "upper": 1e4}},
    }
    made = jaxmb.make_study(study, "five-bar", tmp_path)
    assert made.tests[1].gravity
    # slopes are taken without gravity, and the view with it
    values = np.array([3e3])
    view, whole = made.problem.views[0](values), made.tests[0].view(made.free.apply(model, values))
    scale = np.abs(np.asarray(whole.tangent.stiffness)).max()
    np.testing.assert_allclose(view.tangent.stiffness, whole.tangent.stiffness, atol=1e-12 * scale)
    bare = vibration_view(made.free.apply(model, values), *made.tests[0].view_arguments, weightless=True)
    assert np.abs(np.asarray(bare.tangent.stiffness - whole.tangent.stiffness)).max() > 1e-9 * scale
    # held by springs in place of a joint, the loop lets them move freely
    loose = FIVE_BAR | {"loop": [FIVE_BAR["loop"][0] | {"rigid": False}]}
    jaxmb.write_machine(jaxmb.Machine.model_validate(loose), tmp_path / "five-bar.toml")
    with pytest.raises(ValueError, match="coordinate 'q2' has no stiffness, so it would be free in some tests"):
        jaxmb.make_study(study, "five-bar", tmp_path)


def test_a_posture_is_closed_with_the_corrected_description(model):
    """A frame of the loop that is 2 mm off, and a zero of a joint, leave a loop of which other coordinates follow."""
    at = model.frames.index("tool")
    offset = np.array(model.frame_offset)
    offset[at, 0, 3] += 0.002
    other = dataclasses.replace(model, frame_offset=offset)
    q = np.asarray(jaxmb.posture(model, {"q1": 1.9, "q3": 1.0}))
    for error in (np.zeros(4), np.array([0.01, 0.0, -0.02, 0.0])):
        there = displaced_posture(other, q, error)
        np.testing.assert_allclose(there[[0, 2]], q[[0, 2]] + error[[0, 2]])
        check_closed(other, there)
        near = np.asarray(loop_closure(other, jnp.asarray(q + error)))
        np.testing.assert_allclose(near, there, atol=1e-9)
    with pytest.raises(OutOfReachError, match="cannot close"):
        displaced_posture(model, q, np.array([1.5, 0.0, -1.5, 0.0]))


def compliant(folder, length):
    """Study of deflections of the tool of a five-bar of rigid links, whose left upper link has another length."""
    rng, rows = np.random.default_rng(4), []
    for i in range(12):
        angles, step = np.array([2.1, 1.0]) + rng.uniform(-0.25, 0.25, 2), 1e-5
        ends = [[tip_and_elbows(*(angles + h), length)[0] for h in (d, -d)] for d in step * np.eye(2)]
        motion = np.transpose([(up - down) / (2.0 * step) for up, down in ends])
        force = rng.uniform(-6.0, 6.0, 2)  # that hardly moves the links from their posture
        moved = motion @ np.diag([1.0 / 2e3, 1.0 / 3e3]) @ motion.T @ force + rng.normal(scale=2e-6, size=2)
        rows.append([i, *angles, *force, *moved])
    head = "test,q1 rad,q3 rad,fx N,fy N,dx m,dy m"
    np.savetxt(folder / "loads.csv", rows, delimiter=",", header=head, comments="")
    links = {"left": 0.5, "elbow": 0.6, "right": 0.5, "knee": 0.6}
    bodies = [{**body, "parent": "ground"} for body in FIVE_BAR["body"]]
    bodies[1] |= {"parent": "left", "origin": {"xyz": [links["left"], 0.0, 0.0]}}
    bodies[3] |= {"parent": "right", "origin": {"xyz": [links["right"], 0.0, 0.0]}}
    bodies[3]["joint"] = [{"name": "q4"}]
    frames = [
        {"name": name, "body": body, "origin": {"xyz": [links[body], 0.0, 0.0]}}
        for name, body in (("tool", "elbow"), ("end", "knee"))
    ]
    kept = {key: FIVE_BAR[key] for key in ("name", "loop", "independent", "posture")}
    (folder / "five-bar.toml").write_text(tomli_w.dumps(kept | {"body": bodies, "frame": frames}))
    test = {"kind": "deflection", "name": "loads", "file": "loads.csv", "frame": "tool", "std_mm": 0.002}
    free = {"stiffness.q[13]": {"lower": 200.0, "upper": 2e4}}
    return jaxmb.make_study({"machine": "five-bar.toml", "test": [test], "free": free}, "five-bar", folder)


@pytest.mark.parametrize(
    ("length", "named"),
    [(0.5, None), (0.475, r"^reduced chi-square .*: axis of q2 along x -2\d(\.\d)? mm from the stated")],
)
def test_a_wrong_length_of_a_link_in_a_loop_is_named(tmp_path, length, named):
    """The loop is closed again with the corrected length. The measured frame is one of those that close it."""
    result = jaxmb.identify(compliant(tmp_path, length))
    assert [bool(re.search(named, text)) for text in result.doubts[:1]] == [True] if named else not result.doubts
    for name, true in (("stiffness.q1", 2e3), ("stiffness.q3", 3e3)):
        low, high = result.parameters[name].interval_95
        assert low <= true <= high
