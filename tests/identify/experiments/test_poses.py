"""Pose tests: predictions against closed forms, fits against SciPy on kinematics by Pinocchio, and their intervals."""

import csv
import dataclasses
import json
import re

import jax
import numpy as np
import pinocchio as pin
import pytest
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation

import jaxmb
from jaxmb.identify.assess.identify import identify
from jaxmb.identify.assess.saved import load_result, write_result
from jaxmb.identify.assess.tests.poses import PoseMetrics
from jaxmb.identify.assess.uncertainty.monte_carlo import monte_carlo
from jaxmb.identify.experiments.poses.pose_rows import PoseRows, axes_about, device_pose, station_position
from jaxmb.identify.experiments.poses.pose_test import PoseView, pose_test, predicted_poses, row_poses
from jaxmb.identify.parameters.model_parameters import set_parameters
from jaxmb.identify.plan.inspection import inspect
from jaxmb.identify.study.study import make_study
from jaxmb.machine.schema import Machine
from jaxmb.machine.urdf import write_urdf
from jaxmb.mechanics.compliance import weight_effort
from jaxmb.mechanics.dynamics import gravity_effort
from jaxmb.mechanics.equilibrium import static_equilibrium
from jaxmb.mechanics.kinematics import frame_pose
from jaxmb.mechanics.postures import build_model
from jaxmb.response.static import frame_poses_under_weight
from jaxmb.spatial import rotation_by

L1, L2, G = 0.7, 0.5, 9.81
UPRIGHT = {"xyz": [0.0, 0.0, 0.0], "rpy": [np.pi / 2, 0.0, 0.0]}
"""The arm moves in the plane of x and Z, gravity points down."""
ARM = Machine.model_validate({
    "name": "arm",
    "body": [
        {"name": "upper", "origin": UPRIGHT, "joint": [{"name": "q1", "stiffness": 2e4}], "mass": 6.0,
         "center_of_mass": [0.3, 0.0, 0.0]},
        {"name": "fore", "parent": "upper", "origin": {"xyz": [L1, 0.0, 0.0]},
         "joint": [{"name": "q2", "stiffness": 8e3}], "mass": 4.0, "center_of_mass": [0.2, 0.0, 0.0]},
    ],
    "frame": [{"name": "tool", "body": "fore", "origin": {"xyz": [L2, 0.0, 0.0]}}],
})  # fmt: skip
SPATIAL = Machine.model_validate({
    "name": "spatial",
    "body": [
        {"name": "b1", "origin": {"xyz": [0.0, 0.0, 0.4]}, "joint": [{"name": "q1", "range": [-3.0, 3.0]}]},
        {"name": "b2", "parent": "b1", "origin": {"xyz": [0.1, 0.0, 0.0], "rpy": [np.pi / 2, 0.0, 0.0]},
         "joint": [{"name": "q2", "range": [-3.0, 3.0]}]},
        {"name": "b3", "parent": "b2", "origin": {"xyz": [0.6, 0.0, 0.0]},
         "joint": [{"name": "q3", "range": [-3.0, 3.0]}]},
    ],
    "frame": [{"name": "tool", "body": "b3", "origin": {"xyz": [0.5, 0.05, 0.1]}}],
})  # fmt: skip
RANGES = {"q1": [-2.5, 2.5], "q2": [-0.5, 2.0], "q3": [-2.2, 2.2]}
FREE = {
    **{f"zero.q{k}": {"lower": -0.02, "upper": 0.02} for k in (2, 3)},
    "origin.q2.x": {"lower": -0.01, "upper": 0.01},
    "origin.q2.rx": {"lower": -0.02, "upper": 0.02},
    "origin.q3.x": {"lower": -0.01, "upper": 0.01},
    "reading_scale.q3": {"lower": 0.98, "upper": 1.02},
    "frame.tool.y": {"lower": -0.01, "upper": 0.01},
}  # fmt: skip
TRUTH = {"zero.q2": 3e-3, "zero.q3": -2e-3, "origin.q2.x": 8e-4, "origin.q2.rx": -2e-3, "origin.q3.x": -6e-4,
         "reading_scale.q3": 1.001, "frame.tool.y": 7e-4}  # fmt: skip


def machine_file(folder, machine):
    from jaxmb.machine.file import write_machine

    write_machine(machine, folder / "arm.toml")
    return "arm.toml"


def simulated(**more):
    how = {"rows": 40, "ranges": RANGES, "parameters": TRUTH, "stations": 2, "plan_seed": 3} | more
    return {"kind": "pose", "name": "tracker", "std_mm": 0.05, "simulate": how}


def planar_bend(q, stiffness=(2e4, 8e3)):
    """Deflection of the joints of the arm under its weight, that at the deflected posture."""

    def efforts(a, b):
        fore = 4.0 * G * 0.2 * np.cos(a + b)
        return np.array([(6.0 * 0.3 + 4.0 * L1) * G * np.cos(a) + fore, fore])

    return -efforts(*(q - efforts(*q) / stiffness)) / stiffness


def planar(q, zero=(0.0, 0.0), scale=(1.0, 1.0), stiffness=(2e4, 8e3)):
    """Position in the plane of an arm whose joints deflect under its weight, to first order in the deflection."""
    actual = np.array(scale) * q + zero
    a, b = actual + planar_bend(actual, stiffness)
    return np.array([L1 * np.cos(a) + L2 * np.cos(a + b), 0.0, L1 * np.sin(a) + L2 * np.sin(a + b)])


def test_prediction_of_a_planar_arm_in_closed_form():
    model = set_parameters(build_model(ARM), {"zero.q1": 0.01, "zero.q2": -0.02})
    poses = jax.jit(lambda q: frame_poses_under_weight(model, q, ("tool",)))
    for q in ([0.3, 0.4], [1.2, -0.9]):
        pose = poses(np.array(q))[0]
        np.testing.assert_allclose(pose[:3, 3], planar(q, zero=(0.01, -0.02)), atol=1e-12)


def test_inclination_of_a_planar_arm_in_closed_form():
    """The vertical in the axes of the deflected forearm: its x axis is a + b above the horizontal, its y axis in the
    plane of the arm. Errors are the components across a measured vertical, 1 mrad away."""
    model, q = build_model(ARM), np.array([[0.3, 0.4], [1.2, -0.9]])
    bend = np.array([planar_bend(row) for row in q])
    angle = np.sum(q + bend, axis=1)
    expected = np.stack([np.sin(angle), np.cos(angle), np.zeros(2)], axis=1)
    seen = np.stack([np.sin(angle + 1e-3), np.cos(angle + 1e-3), np.zeros(2)], axis=1)
    measured = np.full((2, 1, 10), np.nan)
    measured[:, 0, 6:9] = 3.0 * seen
    rows = PoseRows(("fore",), q, measured, (), np.zeros(2, bool), ("1", "2"))
    test = pose_test("", rows, (), np.zeros((0, 6)), (1e-4, 1e-4, 2e-4, 1e-5), elastic=True)
    np.testing.assert_allclose(predicted_poses(test, model)[1][:, 0], expected, atol=1e-12)
    errors = np.asarray(test.residual(test.view(model))).reshape(2, 2)
    np.testing.assert_allclose(np.linalg.norm(errors, axis=1), 1e-3 / 2e-4, rtol=1e-6)


def test_distance_of_a_planar_arm_in_closed_form():
    """From a station beside the plane to the drooped tool; the rotation of the device has no effect and is no
    parameter. Errors are predicted minus measured, over the standard deviation."""
    model, q, device = build_model(ARM), np.array([[0.3, 0.4], [1.2, -0.9]]), np.array([0.2, -0.5, 0.1])
    expected = np.array([np.linalg.norm(planar(row) - device) for row in q])
    measured = np.full((2, 2, 10), np.nan)
    measured[:, 0, 9] = expected - [1e-4, -2e-4]
    measured[:, 1, 9] = 1.0, np.nan
    rows = PoseRows(("tool", "fore"), q, measured, ("A", "A"), np.zeros(2, bool), ("1", "2"), by_distance=("A",))
    pose = np.array([[*device, 0.0, 0.0, 0.0]])
    test = pose_test("t", rows, ("A",), pose, (1e-4, 1e-4, 1e-4, 2e-5), elastic=True)
    a = q[0, 0] + planar_bend(q[0])[0]
    fore = np.linalg.norm([L1 * np.cos(a), 0.0, L1 * np.sin(a)] - device)
    residual = np.asarray(test.residual(test.view(model)))
    np.testing.assert_allclose(residual, [1e-4 / 2e-5, (fore - 1.0) / 2e-5, -2e-4 / 2e-5], rtol=1e-8)
    assert test.own.names == ("station.t.A.x", "station.t.A.y", "station.t.A.z", "distance_offset.t")
    moved = test.own.with_values(np.array([1.0, 2.0, 3.0, 0.01]))
    np.testing.assert_array_equal(moved.pose, [[1.0, 2.0, 3.0, 0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(moved.own.values, [1.0, 2.0, 3.0, 0.01])
    longer = dataclasses.replace(test, offset=jax.numpy.asarray(2e-5))
    np.testing.assert_allclose(longer.residual(longer.view(model)) - residual, 1.0, rtol=1e-8)
    assert test.noise.level_text == "0.02 mm of a distance"


def test_position_of_a_station_by_trilateration():
    """The linear start is exact, also of a bar of constant length; points in a plane leave the mirror image."""
    rng, device = np.random.default_rng(3), np.array([0.4, -1.2, 0.8])
    poses = np.tile(np.eye(4), (6, 1, 1))
    poses[:, :3, 3] = rng.uniform(-0.5, 0.5, (6, 3))
    distance = np.linalg.norm(poses[:, :3, 3] - device, axis=1)
    np.testing.assert_allclose(station_position(poses, distance), device, atol=1e-10)
    np.testing.assert_allclose(station_position(poses, np.where(np.arange(6) < 4, distance, np.nan)), device, atol=1e-9)
    assert station_position(poses[:3], distance[:3]) is None
    sphere = poses.copy()
    sphere[:, :3, 3] = device + 0.3 * (poses[:, :3, 3] - device) / distance[:, None]
    np.testing.assert_allclose(station_position(sphere, np.full(6, 0.3)), device, atol=1e-9)
    poses[:, 2, 3] = 0.1
    assert station_position(poses, np.linalg.norm(poses[:, :3, 3] - device, axis=1)) is None


def test_axes_about_a_direction():
    """A rotation whose last row is the direction, for every direction."""
    direction = np.concatenate([np.eye(3), -np.eye(3), np.random.default_rng(1).normal(size=(20, 3))])
    axes = axes_about(direction)
    np.testing.assert_allclose(axes @ np.swapaxes(axes, 1, 2), np.tile(np.eye(3), (26, 1, 1)), atol=1e-14)
    np.testing.assert_allclose(np.linalg.det(axes), 1.0, atol=1e-14)
    np.testing.assert_allclose(axes[:, 2] * np.linalg.norm(direction, axis=1)[:, None], direction, atol=1e-14)


def test_scale_and_zero_of_a_reading():
    model = set_parameters(build_model(ARM), {"reading_scale.q1": 1.02, "zero.q2": 0.05})
    pose = frame_pose(model, np.array([0.5, -0.3]), "tool")
    a, b = 1.02 * 0.5, -0.3 + 0.05
    expected = [L1 * np.cos(a) + L2 * np.cos(a + b), 0.0, L1 * np.sin(a) + L2 * np.sin(a + b)]
    np.testing.assert_allclose(pose[:3, 3], expected, atol=1e-15)


HINGE = {"name": "hinge", "stiffness": 3e3}
TUBE = {"name": "tube", "body": "fore", "length": L2, "young_modulus": 7e10, "shear_modulus": 2.6e10, "density": 2700.0,
        "section": {"tube": [0.02, 0.018]}, "elements": 2}  # fmt: skip
BALANCER = {"name": "balancer", "frame_a": "post", "frame_b": "tool", "type": "length", "free_length": 0.5,
            "stiffness": 20.0}  # fmt: skip
LINK = {"name": "link", "body": "upper", "origin": {"xyz": [L1, 0.0, 0.0]}, "diagonal": [0, 0, 0, 0, 0, 1.0 / 3e3]}


@pytest.mark.parametrize(
    ("more", "least"),
    [({}, 3e-3), ({"beam": [TUBE]}, 3e-3), ({"spring": [BALANCER], "virtual_spring": [LINK]}, 1.5e-3)],
)
def test_weight_deflection_is_the_equilibrium(more, least):
    """Against Newton's method on the full equations, virtual springs being coordinates; the arm droops by millimetres.

    With the load of the undeflected arm the error of the last is 2 um.
    """
    data = ARM.model_dump(mode="json", exclude_defaults=True) | more
    data["frame"] += [{"name": "post", "body": "ground", "origin": {"xyz": [-0.3, 0.1, 1.0]}}]
    if "beam" in more:
        data["frame"][0] = {"name": "tool", "body": "tube"}
    hinged = data | {"virtual_spring": [], "body": [dict(b) for b in data["body"]]}
    extra = [HINGE] if "virtual_spring" in more else []
    hinged["body"][1]["joint"] = extra + hinged["body"][1]["joint"]
    model, full = (build_model(Machine.model_validate(d)) for d in (data, hinged))
    q, whole = np.array([0.2, 0.3]), np.array([0.2, *[0.0] * len(extra), 0.3])
    loaded = frame_pose(full, static_equilibrium(full, whole), "tool")[:3, 3]
    stated = frame_pose(model, q, "tool")[:3, 3]
    drooped = frame_poses_under_weight(model, q, ("tool",))[0, :3, 3]
    assert least < np.linalg.norm(loaded - stated) < 2.0 * least
    assert np.linalg.norm(loaded - drooped) < 1e-7


def test_effort_of_the_weight_is_the_derivative_of_its_energy():
    """Closed form against automatic differentiation, with virtual springs, a slide and deviations."""
    data = ARM.model_dump(mode="json", exclude_defaults=True)
    data["body"].append({"name": "quill", "parent": "fore", "joint": [{"name": "s", "type": "prismatic"}], "mass": 2.0,
                         "origin": {"xyz": [0.4, 0.0, 0.1]}, "center_of_mass": [0.1, 0.2, 0.3]})  # fmt: skip
    data["virtual_spring"] = [{"name": "link", "body": "upper", "diagonal": [1e-7, 1e-7, 1e-7, 1e-6, 1e-6, 1e-6]}]
    values = {"reading_scale.s": 1.1, "zero.q2": 0.1, "origin.q2.ry": 0.2, "origin.s.rx": -0.1}
    model = set_parameters(build_model(Machine.model_validate(data)), values)
    q, e = np.array([0.4, -0.3, 0.2]), 0.1 * np.random.default_rng(1).normal(size=9)
    expected = gravity_effort(model, np.concatenate([q, np.zeros(6)]) + e)
    np.testing.assert_allclose(jax.jit(weight_effort)(model, q, e), expected, atol=1e-12)


def test_derivative_by_geometry_and_stiffness():
    """Forward mode against central differences, through the deflection under weight."""
    names = ["stiffness.q1", "zero.q2", "origin.q2.y", "origin.q2.rx", "reading_scale.q1", "frame.tool.z"]
    values = np.array([2e4, 0.01, 1e-3, 2e-3, 1.001, 1e-3])
    model, q = build_model(ARM), np.array([0.4, 0.6])

    def position(v):
        changed = set_parameters(model, dict(zip(names, v, strict=True)))
        return frame_poses_under_weight(changed, q, ("tool",))[0, :3, 3]

    slope = np.asarray(jax.jacfwd(position)(values))
    for k, size in enumerate([20.0, *[1e-5] * 5]):
        step = size * np.eye(len(names))[k]
        difference = (position(values + step) - position(values - step)) / (2.0 * size)
        np.testing.assert_allclose(slope[:, k], difference, rtol=1e-6, atol=1e-10)


def test_derivatives_of_rows_are_those_of_forward_mode(tmp_path):
    """The rule in reverse mode, by rows, against automatic differentiation in forward mode: geometry, stiffness,
    station and weight of a levelled device, positions, rotations and inclinations of two points."""
    machine = machine_file(tmp_path, ARM)
    how = {"rows": 6, "ranges": {"q1": [-1.0, 2.0], "q2": [-2.0, 2.0]}, "measured": "pose", "points": ["tool", "fore"],
           "inclinations": ["fore"]}  # fmt: skip
    free = {"stiffness.q1": {"lower": 1e3, "upper": 1e6}, "origin.q2.r?": {"lower": -0.1, "upper": 0.1},
            "reading_scale.q1": {"lower": 0.9, "upper": 1.1},
            "frame.tool.y": {"lower": -0.1, "upper": 0.1}}  # fmt: skip
    test = {"kind": "pose", "name": "t", "simulate": how, "levelled": True}
    study = make_study({"machine": machine, "test": [test], "free": free}, "s", tmp_path)
    problem, found = study.problem, study.tests[0]
    u = study.free.encode(study.start.values) + 0.05

    def by_forward_mode(u):
        values = study.free.values(u)
        own, model = found.own.with_values(values[-6:]), study.free.apply(study.model, values)
        poses = jax.vmap(lambda q, device: row_poses(model, q, device, own.points, own.elastic))
        device = own.pose[own.station]
        return own.residual(PoseView(poses(own.q, device), jax.vmap(rotation_by)(device[:, 3:])[:, :, 2]))

    by_rows = np.asarray(jax.jit(jax.jacfwd(problem.residual))(u))
    expected = np.asarray(jax.jit(jax.jacfwd(by_forward_mode))(u))
    assert np.linalg.norm(expected, axis=0).min() > 0.0
    np.testing.assert_allclose(by_rows, expected, atol=1e-9 * np.abs(expected).max())


def test_noise_free_poses_give_the_truth_and_predict_what_is_held_out(tmp_path):
    machine = machine_file(tmp_path, SPATIAL)
    test = simulated(check_rows=10) | {"std_mm": 1e-6}
    study = make_study({"machine": machine, "test": [test], "free": FREE}, "poses", tmp_path)
    result = identify(study)
    for name, true in TRUTH.items():
        found = result.parameters[name]
        assert found.identifiable == "yes"
        assert found.value == pytest.approx(true, abs=5.0 * found.std), name
        assert found.std < 1e-8
    errors = result.metrics["poses"]
    assert errors["points"] == 10
    assert errors["largest"] < 1e-8
    before = next(line for line in result.metrics["pose_sets"] if line["role"] == "check")["before"]
    assert before["mean"] > 1e-4


def poses_by_pinocchio(path, q, frame="tool"):
    """Positions [t, 3] and orientations [t, 3, 3] of a frame of a URDF."""
    model = pin.buildModelFromUrdf(str(path))
    data, index = model.createData(), model.getFrameId(frame)
    order = [model.joints[model.getJointId(f"q{k}")].idx_q for k in (1, 2, 3)]
    found = []
    for row in q:
        values = np.empty(3)
        values[order] = row
        pin.framesForwardKinematics(model, data, values)
        found.append(data.oMf[index].homogeneous.copy())
    return np.array(found)[:, :3, 3], np.array(found)[:, :3, :3]


def test_fit_against_scipy_on_kinematics_by_pinocchio(tmp_path):
    """Zeros, a length and a station from a CSV file: values and standard deviations are those of SciPy."""
    rng = np.random.default_rng(5)
    urdf, std = tmp_path / "arm.urdf", 1e-4
    write_urdf(SPATIAL, urdf)
    q = np.array([[rng.uniform(*RANGES[name]) for name in RANGES] for _ in range(25)])
    turn, shift = Rotation.from_rotvec([0.1, -0.2, 2.6]), np.array([2.0, -1.0, 0.3])
    true_q = q + np.array([0.0, 3e-3, -2e-3])
    seen = turn.inv().apply(poses_by_pinocchio(urdf, true_q)[0] - shift) + std * rng.normal(size=(25, 3))
    with open(tmp_path / "poses.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["q1", "q2", "q3", "tool.x", "tool.y", "tool.z", "station"])
        table.writerows([*row, *point, "A"] for row, point in zip(q.tolist(), seen.tolist(), strict=True))
    free = {"zero.q[23]": {"lower": -0.05, "upper": 0.05}}
    test = {"kind": "pose", "file": "poses.csv", "name": "t", "std_mm": 1e3 * std}
    study = make_study({"machine": "arm.urdf", "test": [test], "free": free, "tolerances": "exact"}, "s", tmp_path)
    result = identify(study)

    def residual(x):
        points, _ = poses_by_pinocchio(urdf, q + np.array([0.0, x[0], x[1]]))
        return ((Rotation.from_rotvec(x[5:]).inv().apply(points - x[2:5]) - seen) / std).ravel()

    names = [*(f"zero.q{k}" for k in (2, 3)), *(f"station.t.A.{a}" for a in ("x", "y", "z", "rx", "ry", "rz"))]
    start = [0.0, 0.0, *shift, *turn.as_rotvec()]
    found = least_squares(residual, start, x_scale="jac", xtol=1e-14, ftol=1e-14, gtol=1e-14)
    deviations = np.sqrt(np.diag(np.linalg.inv(found.jac.T @ found.jac)))
    assert result.metrics.misfit.explained
    for name, value, deviation in zip(names, found.x, deviations, strict=True):
        assert result.parameters[name].value == pytest.approx(value, abs=1e-4 * deviation), name
        assert result.parameters[name].std == pytest.approx(deviation, rel=1e-3), name


def write_inclinations(folder, q, upward, positions=None):
    """Table of readings of an accelerometer at the tool, m/s2, and of positions seen from a station."""
    heads = ["q1", "q2", "q3", "tool.ax", "tool.ay", "tool.az"]
    rows = np.hstack([q, G * upward])
    if positions is not None:
        heads, rows = [*heads, "tool.x", "tool.y", "tool.z"], np.hstack([rows, positions])
    with open(folder / "poses.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow([*heads, *(["station"] if positions is not None else [])])
        table.writerows([*row, *(["A"] if positions is not None else [])] for row in rows.tolist())


def assert_equal_to(found, names, solution):
    """Values and standard deviations of a fit are those of SciPy's."""
    deviations = np.sqrt(np.diag(np.linalg.inv(solution.jac.T @ solution.jac)))
    for name, value, deviation in zip(names, solution.x, deviations, strict=True):
        assert found[name].value == pytest.approx(value, abs=1e-3 * deviation), name
        assert found[name].std == pytest.approx(deviation, rel=1e-3), name


def test_fit_of_inclinations_alone_against_scipy(tmp_path):
    """No measuring device: tilt of the base, a zero and a scale from the vertical in the axes of the tool.

    SciPy compares the cross product of measured and predicted vertical, whose part along them is 0.
    """
    rng, std, true = np.random.default_rng(4), 2e-4, np.array([4e-3, -6e-3, 3e-3, 1.002])
    urdf = tmp_path / "arm.urdf"
    write_urdf(SPATIAL, urdf)
    q = np.array([[rng.uniform(*RANGES[name]) for name in RANGES] for _ in range(25)])

    def upward(x):
        _, turned = poses_by_pinocchio(urdf, q * [1.0, 1.0, x[3]] + [0.0, x[2], 0.0])
        base = Rotation.from_rotvec([x[0], x[1], 0.0]).as_matrix()
        return np.swapaxes(turned, 1, 2) @ base.T @ [0.0, 0.0, 1.0]

    seen = upward(true) + std * rng.normal(size=(25, 3))
    write_inclinations(tmp_path, q, seen)
    seen /= np.linalg.norm(seen, axis=1)[:, None]
    solution = least_squares(lambda x: (np.cross(seen, upward(x)) / std).ravel(), true, x_scale="jac",
                             xtol=1e-14, ftol=1e-14, gtol=1e-14)  # fmt: skip
    test = {"kind": "pose", "file": "poses.csv", "name": "t", "inclination_std_mrad": 1e3 * std}
    free = {name: {"lower": -0.05, "upper": 0.05} for name in ("origin.q1.r[xy]", "zero.q2")}
    free |= {"reading_scale.q3": {"lower": 0.98, "upper": 1.02}}
    study = {"machine": "arm.urdf", "test": [test], "free": free, "tolerances": "exact"}
    result = identify(make_study(study, "s", tmp_path))
    assert result.status == "converged"
    assert result.metrics.misfit.explained
    assert_equal_to(result.parameters, ["origin.q1.rx", "origin.q1.ry", "zero.q2", "reading_scale.q3"], solution)
    line = result.metrics["pose_sets"][0]
    assert line["after"]["inclinations"] == 25
    assert line["after"]["points"] == 0
    angle = np.arccos(np.sum(seen * upward(solution.x), axis=1))
    assert line["after"]["inclination_mean"] == pytest.approx(angle.mean(), rel=1e-3)
    unstated = identify(make_study(study | {"free": free, "test": [test | {"std_mm": "estimate"}]}, "s", tmp_path))
    level = np.sqrt(2.0 * solution.cost / (50 - 4)) * std
    assert unstated.metrics["pose_std_mrad"] == {"t": pytest.approx(1e3 * level, rel=1e-3)}
    assert "pose_std_mm" not in unstated.metrics
    free = {f"zero.q{k}": {"lower": -0.05, "upper": 0.05} for k in (1, 2)}
    found = identify(make_study(study | {"free": free}, "s", tmp_path))  # q1 turns everything about the vertical
    assert found.parameters["zero.q1"].identifiable == "no"
    assert [line["parameters"] for line in found.metrics["known_together"]] == [{"zero.q1": 1.0}]


def test_a_slope_that_is_no_floor_is_no_fit(tmp_path):
    """Inclinations that no tolerance explains, with their angles, also large ones."""
    rng, urdf = np.random.default_rng(5), tmp_path / "arm.urdf"
    write_urdf(SPATIAL, urdf)
    q = np.array([[rng.uniform(*RANGES[name]) for name in RANGES] for _ in range(15)])
    _, turned = poses_by_pinocchio(urdf, q)
    write_inclinations(tmp_path, q, np.swapaxes(turned, 1, 2) @ [np.sin(0.9), 0.0, np.cos(0.9)])
    test = {"kind": "pose", "file": "poses.csv", "name": "t", "inclination_std_mrad": 0.2}
    free = {name: {"lower": -0.05, "upper": 0.05} for name in ("origin.q1.r[xy]", "zero.q2")}
    result = identify(make_study({"machine": "arm.urdf", "test": [test], "free": free}, "s", tmp_path))
    assert result.status == "data not followed: the best fit does not reproduce test 't'"
    assert np.isinf([p.std for p in result.parameters.values()]).all()
    (before,) = (line["before"]["inclination_largest"] for line in result.metrics["pose_sets"])
    assert before == pytest.approx(0.9, rel=1e-9)


def test_fit_of_inclinations_and_positions_against_scipy(tmp_path):
    """A levelled station: the vertical is that of the device, so that inclinations determine its tilt."""
    rng, std, tilt_std = np.random.default_rng(5), 1e-4, 5e-5
    urdf = tmp_path / "arm.urdf"
    write_urdf(SPATIAL, urdf)
    q = np.array([[rng.uniform(*RANGES[name]) for name in RANGES] for _ in range(12)])
    truth = np.array([3e-3, -2e-3, 2.0, -1.0, 0.3, 0.02, -0.03, 0.6])

    def predict(x):
        points, turned = poses_by_pinocchio(urdf, q + np.array([0.0, x[0], x[1]]))
        device = Rotation.from_rotvec(x[5:])
        return device.inv().apply(points - x[2:5]), np.swapaxes(turned, 1, 2) @ device.as_matrix()[:, 2]

    points, upward = (x + s * rng.normal(size=(12, 3)) for x, s in zip(predict(truth), (std, tilt_std), strict=True))
    write_inclinations(tmp_path, q, upward, points)
    upward /= np.linalg.norm(upward, axis=1)[:, None]

    def residual(x):
        a, b = predict(x)
        return np.concatenate([((a - points) / std).ravel(), (np.cross(upward, b) / tilt_std).ravel()])

    solution = least_squares(residual, truth, x_scale="jac", xtol=1e-14, ftol=1e-14, gtol=1e-14)
    test = {"kind": "pose", "file": "poses.csv", "name": "t", "std_mm": 1e3 * std, "levelled": True,
            "inclination_std_mrad": 1e3 * tilt_std}  # fmt: skip
    study = {"machine": "arm.urdf", "test": [test], "free": ZEROS, "tolerances": "exact"}
    result = identify(make_study(study, "s", tmp_path))
    names = [*(f"zero.q{k}" for k in (2, 3)), *(f"station.t.A.{a}" for a in ("x", "y", "z", "rx", "ry", "rz"))]
    assert result.metrics.misfit.explained
    assert_equal_to(result.parameters, names, solution)


def test_simulated_inclinations_of_a_sensor_beside_positions_of_the_tool(tmp_path):
    """Prediction of held-out rows within their intervals, and the columns of `poses.csv`."""
    machine = machine_file(tmp_path, SPATIAL)
    test = simulated(check_rows=30, inclinations=["b3"], stations=1) | {"inclination_std_mrad": 0.05}
    result = identify(make_study({"machine": machine, "test": [test], "free": FREE}, "poses", tmp_path))
    for name, true in TRUTH.items():
        assert abs(result.parameters[name].value - true) < 4.0 * result.parameters[name].std
    errors = result.metrics["poses"]
    assert (errors["points"], errors["inclinations"]) == (30, 30)
    assert 90.0 < errors["covered_percent"] < 99.0  # 150 components
    assert 0.04e-3 < errors["inclination_mean"] < 0.09e-3  # 0.063 mrad of two components of 0.05 mrad
    table = result.table("poses")
    size = np.linalg.norm([table[axis] for axis in ("ax", "ay", "az")], axis=0)
    has_sensor = np.array(table["point"]) == "b3"
    np.testing.assert_allclose(size[has_sensor], 1.0, rtol=1e-12)
    assert np.isfinite(np.array(table["error_inclination"])[has_sensor]).all()
    assert np.isnan(np.array(table["error_inclination"])[~has_sensor]).all()
    assert np.isnan(np.array(table["error_x"])[has_sensor]).all()
    assert "distance" not in table


def test_predictions_do_not_contain_errors_that_the_fitted_rows_exclude(tmp_path):
    """A tool point and zeros with large tolerances, which 40 poses of 0.05 mm determine far better."""
    free, tolerances = {"origin.q3.x": {"lower": -0.01, "upper": 0.01}}, {"frame_mm": 2.0, "joint_zero_deg": 0.2}
    test = simulated(check_rows=30, parameters={"origin.q3.x": -6e-4})
    study = {"machine": machine_file(tmp_path, SPATIAL), "test": [test], "free": free, "tolerances": tolerances}
    rows = identify(make_study(study, "poses", tmp_path)).metrics.of(PoseMetrics).pose_rows
    std = np.array([row.std[:3] for row in rows if row.role == "check"])
    assert 0.05e-3 < np.sqrt(np.mean(std**2)) < 0.065e-3


BARS = np.array([[0.9, 0.3, 0.1], [-0.2, 0.8, 0.9]])
"""Two centres of a telescoping ball bar, m."""


def bar_study(folder, noise, std=2e-5, name="bars", **more):
    """Study of 20 distances of the tool from each of two unknown centres, and SciPy's residual of
    [zero.q2, zero.q3, length of link 2, centres] on kinematics by Pinocchio."""
    rng, urdf = np.random.default_rng(8), folder / "arm.urdf"
    write_urdf(SPATIAL, urdf)
    q = np.array([[rng.uniform(*RANGES[name]) for name in RANGES] for _ in range(40)])
    station = np.arange(40) % 2

    def predict(x):
        points, _ = poses_by_pinocchio(urdf, q + np.array([0.0, x[0], x[1]]))
        _, second = poses_by_pinocchio(urdf, q + np.array([0.0, x[0], x[1]]), "b2")
        points = points + x[2] * second[:, :, 0]  # link 2 is longer along its x axis
        return np.linalg.norm(points - x[3:].reshape(2, 3)[station], axis=1)

    seen = predict(np.array([3e-3, -2e-3, 6e-4, *BARS.ravel()])) + noise * rng.normal(size=40)
    with open(folder / "poses.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["q1", "q2", "q3", "tool.distance", "station"])
        table.writerows([*row, d, "AB"[k]] for row, d, k in zip(q.tolist(), seen.tolist(), station, strict=True))
    test = {"kind": "pose", "file": "poses.csv", "name": "t", "distance_std_mm": 1e3 * std}
    free = ZEROS | {"origin.q3.x": {"lower": -0.01, "upper": 0.01}}
    study = {"machine": "arm.urdf", "test": [test], "free": free, "tolerances": "exact"} | more
    return make_study(study, name, folder), lambda x: (predict(x) - seen) / std


BAR_NAMES = ["zero.q2", "zero.q3", "origin.q3.x", *(f"station.t.{k}.{axis}" for k in "AB" for axis in "xyz")]


def test_distances_from_two_unknown_centres_against_scipy(tmp_path):
    """Without noise the truth; with noise, values and standard deviations are those of SciPy."""
    study, _ = bar_study(tmp_path, 0.0)
    assert set(study.free.names) == set(BAR_NAMES)
    truth = np.array([3e-3, -2e-3, 6e-4, *BARS.ravel()])
    result = identify(study)
    for name, true in zip(BAR_NAMES, truth, strict=True):
        assert result.parameters[name].value == pytest.approx(true, abs=1e-6), name
    study, residual = bar_study(tmp_path, 2e-5)
    result = identify(study)
    solution = least_squares(residual, truth, x_scale="jac", xtol=1e-14, ftol=1e-14, gtol=1e-14)
    assert result.status == "converged"
    assert result.metrics.misfit.explained
    assert_equal_to(result.parameters, BAR_NAMES, solution)
    line = result.metrics["pose_sets"][0]
    assert (line["after"]["points"], line["after"]["distances"]) == (0, 40)
    assert line["after"]["distance_mean"] == pytest.approx(np.abs(2e-5 * solution.fun).mean(), rel=1e-3)
    assert line["before"]["distance_mean"] > 10.0 * line["after"]["distance_mean"]
    table = result.table("poses")
    np.testing.assert_allclose(table["error_distance"], 2e-5 * solution.fun, atol=1e-8)
    position = np.stack([table[axis] for axis in "xyz"], axis=1)
    np.testing.assert_allclose(np.linalg.norm(position, axis=1), table["distance"], rtol=1e-12)


def test_distances_too_long_at_one_station_are_named(tmp_path):
    bar_study(tmp_path, 2e-5)
    lines = (tmp_path / "poses.csv").read_text().splitlines()
    longer = (line.split(",") for line in lines[1:])
    rows = [",".join([*q, str(float(d) + (2e-3 if k == "B" else 0.0)), k]) for *q, d, k in longer]
    (tmp_path / "poses.csv").write_text("\n".join([lines[0], *rows]) + "\n")
    test = {"kind": "pose", "file": "poses.csv", "name": "t", "distance_std_mm": 0.02}
    free = ZEROS | {"origin.q3.x": {"lower": -0.01, "upper": 0.01}}
    result = identify(make_study({"machine": "arm.urdf", "test": [test], "free": free}, "b", tmp_path))
    named = [error.text for error in result.metrics.model_errors]
    assert any(
        re.fullmatch(r"distances of test 't' at station B (1\.9\d|2\.0\d?|2) mm too long", text) for text in named
    )


def test_estimated_noise_of_distances(tmp_path):
    """By one factor on `distance_std_mm`, degrees of freedom counted."""
    test = {"kind": "pose", "file": "poses.csv", "name": "t", "std_mm": "estimate"}
    study, residual = bar_study(tmp_path, 5e-5, test=[test])
    result = identify(study)
    solution = least_squares(residual, [3e-3, -2e-3, 6e-4, *BARS.ravel()], x_scale="jac")
    level = np.sqrt(2.0 * solution.cost / (40 - 9)) * 0.02
    assert result.metrics["pose_std_mm"] == {"t": pytest.approx(level, rel=1e-3)}


def test_distances_do_not_determine_the_zero_of_a_first_axis_through_the_device(tmp_path):
    """Nor, from an unknown centre, its angle about that axis: it is identifiable in combination only."""
    machine = machine_file(tmp_path, SPATIAL)
    free = {"zero.q[12]": {"lower": -0.1, "upper": 0.1}}
    plan = {"points": [], "distances": ["tool"], "parameters": {}}

    def inspected(stations):
        test = simulated(stations=stations, **plan)
        found = inspect(make_study({"machine": machine, "test": [test], "free": free}, "bar", tmp_path))
        names = found.study.free.names
        return found.parameters, [{names[k] for k in group.members} for group in found.groups]

    parameters, together = inspected(0)
    assert together == [{"zero.q1"}]
    assert parameters["zero.q2"].std < 1e-3
    _, together = inspected(1)
    assert {"zero.q1", "station.tracker.station-1.x", "station.tracker.station-1.y"} <= together[0]


def test_positions_from_one_station_and_distances_from_another(tmp_path):
    """Without noise both stations and the zeros are true; the second one has no rotation, and next postures are
    measured from each as it measures: three components or one."""
    rng, urdf = np.random.default_rng(9), tmp_path / "arm.urdf"
    write_urdf(SPATIAL, urdf)
    q = np.array([[rng.uniform(*RANGES[name]) for name in RANGES] for _ in range(30)])
    turn, shift = Rotation.from_rotvec([0.1, -0.2, 0.6]), np.array([2.0, -1.0, 0.3])
    points, _ = poses_by_pinocchio(urdf, q + np.array([0.0, 3e-3, -2e-3]))
    seen, distance = turn.inv().apply(points - shift), np.linalg.norm(points - BARS[0], axis=1)
    with open(tmp_path / "poses.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["q1", "q2", "q3", "tool.x", "tool.y", "tool.z", "tool.distance", "station", "role"])
        table.writerows([*q[i], *seen[i], "", "A", "fit"] for i in range(12))
        table.writerows([*q[i], "", "", "", distance[i], "B", "fit"] for i in range(12, 28))
        table.writerows([*q[i], "", "", "", "", "B", "check"] for i in range(28, 30))
    test = {"kind": "pose", "file": "poses.csv", "name": "t"}
    ask = {"kind": "pose", "count": 3, "candidates": 20, "postures": RANGES}
    study = {"machine": "arm.urdf", "test": [test], "free": ZEROS, "tolerances": "exact"}
    result = identify(make_study(study, "both", tmp_path))
    truth = {"zero.q2": 3e-3, "zero.q3": -2e-3}
    truth |= {f"station.t.A.{axis}": x for axis, x in zip("xyz", shift, strict=True)}
    truth |= {f"station.t.A.r{axis}": x for axis, x in zip("xyz", turn.as_rotvec(), strict=True)}
    truth |= {f"station.t.B.{axis}": x for axis, x in zip("xyz", BARS[0], strict=True)}
    assert set(result.parameters) == set(truth)
    for name, true in truth.items():
        assert result.parameters[name].value == pytest.approx(true, abs=1e-6), name
    np.testing.assert_allclose(result.table("poses")["distance"][-2:], distance[28:], atol=1e-6)
    scores = {}
    for station in "AB":
        found = inspect(make_study(study | {"next": ask | {"station": station}}, "both", tmp_path))
        scores[station] = found.next.chosen
    assert scores["A"] < scores["B"]  # the smaller confidence region


def test_simulated_distances_beside_positions_of_another_point(tmp_path):
    """Prediction of held-out rows within their intervals, and the columns of `poses.csv`."""
    machine = machine_file(tmp_path, SPATIAL)
    test = simulated(check_rows=30, points=["b3"], distances=["tool"], stations=1) | {"distance_std_mm": 0.02}
    result = identify(make_study({"machine": machine, "test": [test], "free": FREE}, "poses", tmp_path))
    for name, true in TRUTH.items():
        assert abs(result.parameters[name].value - true) < 4.0 * result.parameters[name].std
    assert "station.tracker.station-1.rz" in result.parameters
    errors = result.metrics["poses"]
    assert (errors["points"], errors["distances"]) == (30, 30)
    assert 90.0 < errors["covered_percent"] < 99.0  # 120 components
    assert 0.01e-3 < errors["distance_mean"] < 0.03e-3  # 0.016 mm of the noise alone
    table = result.table("poses")
    seen = np.array(table["point"]) == "tool"
    assert np.isfinite(np.array(table["error_distance"])[seen]).all()
    assert np.isnan(np.array(table["error_distance"])[~seen]).all()
    assert np.isnan(np.array(table["distance"])[~seen]).all()
    assert "ax" not in table


def backlash_study(folder, backlash, approach):
    """Positions of the tool at joint values that are behind their readings, from kinematics by Pinocchio."""
    rng, urdf = np.random.default_rng(6), folder / "arm.urdf"
    write_urdf(SPATIAL, urdf)
    q = np.array([[rng.uniform(*RANGES[name]) for name in RANGES] for _ in range(30)])
    sign = rng.choice([-1, 1], size=(30, 2))
    behind = 0.5 * backlash * sign
    points, _ = poses_by_pinocchio(urdf, q + np.array([0.0, 3e-3, -2e-3]) - np.pad(behind, ((0, 0), (1, 0))))
    heads = ["q1", "q2", "q3", "tool.x", "tool.y", "tool.z", *(["q2.approach", "q3.approach"] if approach else [])]
    with open(folder / "poses.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(heads)
        for values, point, signs in zip(q, points + 5e-5 * rng.normal(size=(30, 3)), sign, strict=True):
            table.writerow([*values, *point, *(signs if approach else [])])
    test = {"kind": "pose", "file": "poses.csv", "name": "t", "std_mm": 0.05}
    return make_study({"machine": "arm.urdf", "test": [test], "free": ZEROS, "tolerances": "exact"}, "s", folder)


def test_backlash_by_the_direction_of_approach_is_named(tmp_path):
    """1 mrad of joint 2, with its size; values with it corrected hold the truth."""
    result = identify(backlash_study(tmp_path, np.array([1e-3, 0.0]), approach=True))
    (error,) = result.metrics.model_errors
    size = float(re.fullmatch(r"a backlash of (\S+) mrad of q2", error.text)[1])
    assert size == pytest.approx(1.0, abs=0.1)  # 0.05 mm at 0.6 m, 30 rows of one or two components
    assert error.explains > 0.98
    for name, true in {"zero.q2": 3e-3, "zero.q3": -2e-3}.items():
        assert abs(error.values[name] - true) < 4.0 * error.std[name]


def test_no_backlash_is_named_without_one(tmp_path):
    assert identify(backlash_study(tmp_path, np.zeros(2), approach=True)).metrics.model_errors is None


def measured_set(folder, rows, std, seed, held_out=0, station="A"):
    """Table of positions of the tool with noise; the last rows are to be predicted and not measured."""
    rng = np.random.default_rng(seed)
    urdf = folder / "arm.urdf"
    write_urdf(SPATIAL, urdf)
    q = np.array([[rng.uniform(*RANGES[name]) for name in RANGES] for _ in range(rows)])
    turn, shift = Rotation.from_rotvec(rng.uniform(-1.0, 1.0, 3)), rng.uniform(-2.0, 2.0, 3)
    exact = turn.apply(poses_by_pinocchio(urdf, q + np.array([0.0, 3e-3, -2e-3]))[0]) + shift
    seen = exact + std * rng.normal(size=exact.shape)
    lines = [[*row, *point, station, "fit"] for row, point in zip(q.tolist(), seen.tolist(), strict=True)]
    for line in lines[rows - held_out :]:
        line[3:] = ["", "", "", station, "check"]
    return lines, exact


def write_rows(path, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([["q1", "q2", "q3", "tool.x", "tool.y", "tool.z", "station", "role"], *rows])


ZEROS = {"zero.q[23]": {"lower": -0.05, "upper": 0.05}}


@pytest.mark.parametrize("prior", [{}, {"zero.*": 1.0}])
def test_estimated_noise_is_that_of_the_data(tmp_path, prior):
    """0.3 mm, six times the nominal value: within four standard deviations sigma / sqrt(2 m), and standard deviations
    as with that value stated, up to the correlation length of independent errors."""
    rows, _ = measured_set(tmp_path, 40, 3e-4, seed=1)
    write_rows(tmp_path / "poses.csv", rows)
    test = {"kind": "pose", "name": "t", "file": "poses.csv", "std_mm": "estimate"}
    study = {"machine": machine_file(tmp_path, SPATIAL), "tolerances": "exact", "free": ZEROS, "prior": prior}
    result = identify(make_study(study | {"test": [test]}, "s", tmp_path))
    assert result.status == "converged"
    level = result.metrics["pose_std_mm"]["t"]
    assert abs(level - 0.3) < 4.0 * 0.3 / np.sqrt(2.0 * (120 - 8))
    stated = identify(make_study(study | {"test": [test | {"std_mm": level}]}, "s", tmp_path))
    for name, parameter in stated.parameters.items():
        assert 1.0 - 1e-3 < result.parameters[name].std / parameter.std < 1.2, name


def test_correlation_length_of_rows(tmp_path):
    """Errors that are equal in four neighbouring rows each: about four rows carry the information of one."""
    rows, _ = measured_set(tmp_path, 400, 1e-4, seed=1)
    write_rows(tmp_path / "poses.csv", rows)
    test = {"kind": "pose", "name": "t", "file": "poses.csv"}
    study = make_study({"machine": machine_file(tmp_path, SPATIAL), "test": [test], "free": ZEROS}, "s", tmp_path)
    noise = study.tests[0].noise
    errors = np.random.default_rng(3).normal(size=(400, 3))
    assert noise.correlation_length(errors.ravel(), np.ones(1200)) < 1.3
    assert 3.0 < noise.correlation_length(np.repeat(errors[:100], 4, axis=0).ravel(), np.ones(1200)) < 5.5


def test_an_earlier_result_as_prior_is_one_fit_of_both_sets(tmp_path):
    """Values and standard deviations of two fits in turn are those of all rows together; unmeasured rows are predicted
    within their intervals."""
    std = 1e-4
    first, _ = measured_set(tmp_path, 30, std, seed=1)
    second, exact = measured_set(tmp_path, 24, std, seed=2, held_out=12, station="B")
    for name, rows in (("first", first), ("second", second), ("both", first + second)):
        write_rows(tmp_path / f"{name}.csv", rows)

    def fit(name, **more):
        test = {"kind": "pose", "name": "t", "file": f"{name}.csv", "std_mm": 1e3 * std}
        found = identify(make_study({"tolerances": "exact", "test": [test], **more}, name, tmp_path))
        assert found.status == "converged"
        (tmp_path / name).mkdir()
        write_result(found, tmp_path / name)
        return found

    machine = machine_file(tmp_path, SPATIAL)
    free = ZEROS | {"origin.q2.x": {"lower": -0.01, "upper": 0.01}}
    fit("first", machine=machine, free=free)
    found = fit("second", machine="first/machine.toml", prior_from="first/result.json")
    expected = fit("both", machine=machine, free=free)
    assert set(found.parameters) == {name for name in expected.parameters if ".A." not in name}
    for name, parameter in found.parameters.items():
        assert parameter.std == pytest.approx(expected.parameters[name].std, rel=1e-3), name
        assert abs(parameter.value - expected.parameters[name].value) < 1e-2 * parameter.std, name
    rows = list(csv.DictReader((tmp_path / "second" / "poses.csv").read_text().splitlines()))[12:]
    error = np.array([[float(row[a]) for a in "xyz"] for row in rows]) - exact[12:]
    size = np.array([[float(row[f"std_{a}"]) for a in "xyz"] for row in rows])
    assert (size > std).all()
    assert (size < 2.0 * std).all()
    assert (np.abs(error) < 4.0 * np.sqrt(size**2 - std**2)).all()  # without the noise of a measurement
    assert {row["error_x"] for row in rows} == {""}
    assert load_result(tmp_path / "second").parameters == found.parameters
    with pytest.raises(ValueError, match=r"'origin.q2.x' is 0 in the machine and .* expected the identified machine"):
        fit("second", machine=machine, prior_from="first/result.json")
    earlier = json.loads((tmp_path / "first" / "result.json").read_text())
    del earlier["parameters"]["origin.q2.x"]
    (tmp_path / "first" / "result.json").write_text(json.dumps(earlier))
    with pytest.raises(ValueError, match=r"result.json: .*parameters: lack origin.q2.x"):
        fit("second", machine="first/machine.toml", prior_from="first/result.json")


def test_a_station_of_another_set_with_the_same_label_is_another_one(tmp_path):
    study = {"machine": machine_file(tmp_path, SPATIAL), "tolerances": "exact"}
    test = {"kind": "pose", "name": "t", "file": "poses.csv", "std_mm": 0.1}
    write_rows(tmp_path / "poses.csv", measured_set(tmp_path, 30, 1e-4, seed=1)[0])
    first = identify(make_study(study | {"test": [test], "free": ZEROS}, "first", tmp_path))
    write_result(first, tmp_path / "first")
    rows, exact = measured_set(tmp_path, 20, 1e-4, seed=2, held_out=12)
    write_rows(tmp_path / "poses.csv", rows)
    earlier = {"machine": "first/machine.toml", "prior_from": "first/result.json"}
    second = identify(make_study(study | {"test": [test]} | earlier, "second", tmp_path))
    assert second.status == "converged"
    found = [row["predicted"][:3] for row in second.metrics["pose_rows"] if row["role"] == "check"]
    assert np.abs(np.array(found) - exact[8:]).max() < 1e-3


def test_intervals_contain_the_truth(tmp_path):
    """95 % intervals over 60 draws of the noise, all parameters together: within 3 standard deviations of a binomial
    share, whose draws count as independent."""
    machine = machine_file(tmp_path, SPATIAL)
    study = make_study({"machine": machine, "test": [simulated()], "free": FREE}, "poses", tmp_path)
    draws = monte_carlo(study, 60, seed=2)
    assert draws.converged.all()
    share, count = draws.covered.mean(), draws.covered.shape[0] * len(FREE)
    assert abs(share - 0.95) < 3.0 * np.sqrt(0.95 * 0.05 / count)


def test_stations_alone_are_free(tmp_path):
    """An identified machine predicts a new set; fitted rows determine the stations."""
    machine = machine_file(tmp_path, SPATIAL)
    test = simulated(check_rows=20, parameters={})
    study = make_study({"machine": machine, "test": [test]}, "poses", tmp_path)
    assert study.free.size == 12
    errors = identify(study).metrics["poses"]
    assert 0.05e-3 < errors["mean"] < 0.12e-3  # of three components with noise of 0.05 mm
    assert errors["largest"] < 0.3e-3


def test_inspect_and_the_next_postures(tmp_path):
    """Observability indices are those of the singular values with stations eliminated by hand, and grow with the chosen
    postures."""
    machine = machine_file(tmp_path, SPATIAL)
    ask = {"kind": "pose", "count": 5, "station": "station-2", "candidates": 60, "postures": RANGES}
    study = make_study({"machine": machine, "test": [simulated()], "free": FREE, "next": ask}, "poses", tmp_path)
    found = inspect(study)
    u = study.free.encode(found.values)
    jacobian = np.asarray(jax.jit(jax.jacfwd(study.problem.residual))(u))
    stations = np.array([name.startswith("station.") for name in study.free.names])
    own, others = jacobian[:, ~stations], jacobian[:, stations]
    values = np.linalg.svd(own - others @ np.linalg.lstsq(others, own)[0], compute_uv=False)
    expected = np.prod(values) ** (1.0 / values.size) / np.sqrt(40), values[-1] / values[0], 1.0 / np.sum(1.0 / values)
    indices = found.observability
    np.testing.assert_allclose([indices.O1, indices.O2, indices.O5], expected, rtol=1e-6)
    chosen = found.next
    assert len(chosen.q) == 5
    assert chosen.observability.O3 > found.observability.O3
    assert (chosen.known.std < found.known.std * (1.0 + 1e-9)).all()
    assert chosen.chosen < chosen.before


def test_directions_that_stations_absorb_are_reported(tmp_path):
    """The zero of joint 1 turns all points about its axis, as a station does."""
    machine = machine_file(tmp_path, SPATIAL)
    free = {"zero.q1": {"lower": -0.1, "upper": 0.1}}
    test = simulated(stations=1, parameters={})
    result = identify(make_study({"machine": machine, "test": [test], "free": free}, "poses", tmp_path))
    assert result.parameters["zero.q1"].identifiable == "no"
    together = next(group for group in result.metrics["known_together"] if "zero.q1" in group["parameters"])
    assert "station.tracker.station-1.rz" in together["parameters"]


def test_predictions_do_not_contain_directions_that_stations_absorb(tmp_path):
    """A free zero of joint 1 is absorbed by the station, so that it changes neither predictions nor their intervals."""
    machine, test = machine_file(tmp_path, SPATIAL), simulated(stations=1, parameters={}, check_rows=5)
    std = []
    for free in ({}, {"zero.q1": {"lower": -0.1, "upper": 0.1}}):
        study = make_study({"machine": machine, "test": [test], "free": free}, "poses", tmp_path)
        rows = identify(study).metrics.of(PoseMetrics).pose_rows
        std.append([row.std[:3] for row in rows if row.role == "check"])
    np.testing.assert_allclose(std[1], std[0], rtol=1e-3)


def test_a_prior_of_drawing_tolerances_separates_them(tmp_path):
    machine = machine_file(tmp_path, SPATIAL)
    free = {"zero.q1": {"lower": -0.1, "upper": 0.1}}
    test = simulated(stations=1, parameters={})
    study = {"machine": machine, "test": [test], "free": free, "prior": {"zero.q1": 1e-3}}
    found = identify(make_study(study, "poses", tmp_path)).parameters["zero.q1"]
    assert found.std == pytest.approx(1e-3, rel=1e-6)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["q1,tool.x", "0.1,abc"], r"line 2: tool.x is 'abc', expected a finite number"),
        (["q1,tool.x", "0.1,1_000"], r"line 2: tool.x is '1_000', expected a finite number"),
        (["q1,tol.x", "0.1,1"], r"column 'tol.x': point 'tol' does not exist, did you mean 'tool'"),
        (["q1 deg,tool.x", "5.7,1"], r"column 'q1 deg' has a unit, expected the heading 'q1', in rad or m"),
        (["q1,tool.x mm", "0.1,1"], r"column 'tool.x mm' has a unit, expected the heading 'tool.x', in rad or m"),
        (["q1,q2", "0.1,1"], r"there is no column of a measured point"),
        (["q1,tool.x,tool.rx", "0.1,1,0"], r"point 'tool' has the columns rx, expected rx, ry and rz"),
        (["q1,tool.x,role", "0.1,1,train"], r"line 2: role is 'train', expected fit, check or inclined"),
        (["q1,tool.x,station", "0.1,1,"], r"line 2: station is empty"),
        (["q1,tool.x,station", "0.1,1,1.1", "0.1,1,1_1"], "line 3: station is 1_1 besides 1.1, expected '_' in both"),
        (["q1,tool.x,tool.y,tool.z,station", "0.1,1,2,3,A", "0.2,1,2,4,A"], r"station 'A' has 2 fitted rows"),
        (["q1,tool.x", "0.1"], r"line 2 has 1 cells, expected 2"),
        (["q1;tool.x", "0.1;1"], r"line 1: cells are separated by semicolons, expected commas"),
        (["q1,tool.x", "57.3,1"], r"line 2: q1 is 57.3 rad, expected at most 12.57 rad, is it in deg\?"),
        (
            ["tool.rx,tool.ry,tool.rz", "9,163,7"],
            r"line 2: tool.ry is 163 rad, expected at most 12.57 rad, is it in deg",
        ),
        (["q1,tool.x,tool.y,station", *(f"{k / 10},{k},{k**2},A" for k in range(9))], r"nothing is measured of tool.z"),
        (["q1,tool.x", "0.1,812.5", "0.2,301.5"], r"positions of point 'tool' are up to 511 m apart, .* in mm\?"),
        (["q1,tool.x"], r"found 1 lines, expected a heading and a line for each pose"),
        (["q1,tool.x", "0.1,"], r"poses.csv: line 2: nothing is measured"),
        (["q1,q1.approach,tool.x", "0.1,2,1"], r"line 2: q1.approach is 2, expected 1, -1 or 0"),
        (["q1,q4.approach,tool.x", "0.1,1,1"], r"column 'q4.approach'"),
        (["q1,tool.ax,tool.az", "0.1,1,0"], r"point 'tool' has the columns ax, az, expected ax, ay and az"),
        (["q1,tool.ax,tool.ay,tool.az", "0.1,1,,0"], r"line 2: point 'tool' has some of ax, ay and az, expected all"),
        (["q1,tool.ax,tool.ay,tool.az", "0.1,0,0,0"], r"line 2: tool.ax, ay and az are 0, expected the reading of an"),
        (["q1,tool.ax,tool.ay,tool.az", "0.1,0,-9.8,0"], r"ax, ay and az of point 'tool' are more than 90 deg from"),
        (["q1,tool.distance", "0.1,0"], r"line 2: tool.distance is 0 m, expected one above 0"),
        (["q1,tool.distance", "0.1,812.5"], r"line 2: tool.distance is 812.5 m, expected at most 100 m, is it in mm\?"),
        (["q1,distance", "0.1,1"], r"column 'distance' does not exist, did you mean 'tool.distance'"),
        (["q1,tool.distance,station", "0.1,1,A", "0.2,1,A", "0.3,1,A"], r"'A' has 3 fitted distances, which do"),
        (["q1,tool.distance,station", *(f"{k / 10},1,A" for k in range(9))], r"expected 4 of points that are not in a"),
        (["q1,tool.ax,tool.ay,tool.az,station", "0.1,0,9.8,0,A"], r"'A' has 1 fitted rows.*beside inclinations alone"),
    ],
)
def test_wrong_tables(tmp_path, lines, message):
    (tmp_path / "poses.csv").write_text("\n".join(lines))
    machine = machine_file(tmp_path, SPATIAL)
    free = {"zero.q1": {"lower": -0.1, "upper": 0.1}}
    study = {"machine": machine, "test": [{"kind": "pose", "file": "poses.csv"}], "free": free}
    with pytest.raises(ValueError, match=message):
        make_study(study, "poses", tmp_path)


def test_joints_without_a_column_are_remarked(tmp_path):
    (tmp_path / "poses.csv").write_text("q1,q2,tool.x\n0.1,0.2,0.6\n0.4,0.3,0.5\n")
    test = {"kind": "pose", "file": "poses.csv", "std_mm": 0.05}
    study = {"machine": machine_file(tmp_path, SPATIAL), "test": [test], "free": {"zero.q2": FREE["zero.q2"]}}
    (remark,) = make_study(study, "poses", tmp_path).entries[0].remarks
    assert remark == "poses.csv has no column for q3: the reference posture's q3 = 0 deg is assumed"
    test["posture"] = {"q3": "20 deg"}
    assert make_study(study, "poses", tmp_path).entries[0].remarks == ()


def test_copied_rows_are_remarked(tmp_path):
    """Also between files, and between a fitted and a held-out row; poses measured twice differ by their noise."""
    head, first = "q1,q2,q3,tool.x,tool.y,tool.z,role", "0.1,0.2,0.3,0.6,0.2,0.3"
    again = first.replace("0.6", "0.60001")
    rows = ["0.4,0.3,0.5,0.2,0.1,0.3,", f"{again},fit", f"{first},check", f"{first},fit"]
    (tmp_path / "a.csv").write_text("\n".join([head, f"{first},fit", *rows[:2]]))
    (tmp_path / "b.csv").write_text("\n".join([head, *rows]))
    machine, free = machine_file(tmp_path, SPATIAL), {"zero.q2": FREE["zero.q2"]}
    tests = [{"kind": "pose", "file": name, "std_mm": 0.05} for name in ("a.csv", "b.csv")]
    study = {"machine": machine, "test": tests[:1], "free": free}
    assert not any("count twice" in text for text in make_study(study, "poses", tmp_path).remarks)
    (remark,) = (t for t in make_study(study | {"test": tests}, "poses", tmp_path).remarks if "count twice" in t)
    assert remark.startswith("line 2 of 'b.csv' has the readings of line 3 of 'a.csv' at the same posture and load")
    assert remark.endswith("; and 3 more such rows")


def test_travels_in_mm_are_refused(tmp_path):
    """They would leave the points of a station in line."""
    data = {"name": "slide", "body": [{"name": "b", "joint": [{"name": "x", "type": "prismatic"}]}]}
    (tmp_path / "poses.csv").write_text("x,b.x\n812.5,0.8125\n")
    study = {"machine": machine_file(tmp_path, Machine.model_validate(data)), "free": {},
             "test": [{"kind": "pose", "file": "poses.csv"}]}  # fmt: skip
    with pytest.raises(ValueError, match=r"line 2: x is 812.5 m, expected at most 100 m, is it in mm\?"):
        make_study(study, "poses", tmp_path)


def test_frfs_and_poses_in_one_fit():
    """Poses determine a length, FRFs a stiffness; both hold the truth within four standard deviations."""
    stiffness = jaxmb.parameters(jaxmb.build_model(jaxmb.load_machine("manipulator-3r")))["stiffness.z2"]
    true = {"origin.z2.x": 0.01, "stiffness.z2": 1.1 * stiffness}
    lines = {"first_hz": 1.0, "last_hz": 40.0, "step_hz": 1.0}
    ranges = {"z1": ["-60 deg", "60 deg"], "z2": ["10 deg", "80 deg"], "z3": ["-90 deg", "-10 deg"]}
    frf = {"kind": "frf", "posture": {"z2": "40 deg", "z3": "-30 deg"}, "noise_log_std": 0.01,
           "simulate": {"lines": lines, "parameters": true, "noise_log_std": 0.01, "noise_seed": 1}}  # fmt: skip
    pose = {"kind": "pose", "std_mm": 0.05,
            "simulate": {"rows": 20, "ranges": ranges, "parameters": true, "noise_seed": 2}}  # fmt: skip
    free = {"stiffness.z2": {"lower": 0.2 * stiffness, "upper": 50.0 * stiffness},
            "origin.z2.x": {"lower": -0.05, "upper": 0.05}}  # fmt: skip
    result = identify(make_study({"machine": "manipulator-3r", "test": [frf, pose], "free": free}, "both"))
    assert result.status == "converged"
    for name, value in true.items():
        assert abs(result.parameters[name].value - value) < 4.0 * result.parameters[name].std
    assert result.parameters["origin.z2.x"].std < 2e-5  # by the FRFs alone it is 1.3e-4
    assert result.parameters["stiffness.z2"].std < 1e-3 * stiffness


def test_poses_and_deflections_in_one_fit(tmp_path):
    """Geometry from poses and stiffness from both: the information of the tests adds up."""
    true = {"zero.q2": 4e-3, "origin.q2.x": 1e-3, "stiffness.q1": 2.2e4, "stiffness.q2": 7e3}
    plan = {"rows": 25, "ranges": {"q1": [-1.0, 2.0], "q2": [-2.2, 2.2]}, "parameters": true, "noise_seed": 1}
    pose = {"kind": "pose", "std_mm": 0.05, "simulate": plan}
    loads = {"kind": "deflection", "instruments": {"tracker_mm": 0.02}, "frame": "tool", "simulate": {
        "tests": 8, "zones": {"all": {"q1": [-0.5, 1.0], "q2": [-1.5, 1.5]}}, "force_n": [20.0, 60.0],
        "directions": [[0.0, 0.0, -1.0], [1.0, 0.0, 0.0]], "noise_seed": 1, "parameters": true,
    }}  # fmt: skip
    springs = {"stiffness.*": {"lower": 2e3, "upper": 2e5}}
    geometry = {"zero.q2": {"lower": -0.02, "upper": 0.02}, "origin.q2.x": {"lower": -0.01, "upper": 0.01}}
    machine = machine_file(tmp_path, ARM)

    def fitted(tests, free):
        return identify(make_study({"machine": machine, "test": tests, "free": free}, "arm", tmp_path)).parameters

    poses, deflections = fitted([pose], springs | geometry), fitted([loads], springs)
    both = fitted([pose, loads], springs | geometry)
    for name, value in true.items():
        assert abs(both[name].value - value) < 4.0 * both[name].std
        information = [found[name].std ** -2 for found in (poses, deflections) if name in found]
        assert both[name].std < 1.02 * sum(information) ** -0.5  # less: correlations are resolved as well
        assert both[name].std > 0.8 * sum(information) ** -0.5


def test_levelled_stations_turn_the_weight(tmp_path):
    """A machine on tilted ground: its weight is vertical for the device, and the tilt is that of the station."""
    folder, tilt, lean = tmp_path, 0.08, np.eye(4)
    lean[:3, :3] = Rotation.from_rotvec([0.0, tilt, 0.0]).as_matrix()
    machine_file(folder, ARM)
    gravity = lean[:3, :3].T @ np.array([0.0, 0.0, -G])
    tilted = build_model(ARM.model_copy(update={"gravity": tuple(gravity.tolist())}))
    rng = np.random.default_rng(2)
    rows = np.column_stack([rng.uniform(-1.0, 2.0, 24), rng.uniform(-2.2, 2.2, 24)])
    lines = ["q1,q2,tool.x,tool.y,tool.z,tool.rx,tool.ry,tool.rz,station"]
    for q in rows:
        pose = lean @ np.asarray(frame_poses_under_weight(tilted, q, ("tool",))[0])
        turn = Rotation.from_matrix(pose[:3, :3]).as_rotvec()
        lines.append(",".join(f"{x:.15g}" for x in (*q, *pose[:3, 3], *turn)) + ",A")
    (folder / "poses.csv").write_text("\n".join(lines))
    free = {f"stiffness.q{k}": {"lower": 1e3, "upper": 1e6, "initial": 3e4} for k in (1, 2)}
    test = {"kind": "pose", "name": "tracker", "file": "poses.csv", "std_mm": 0.01, "std_mrad": 0.01}
    test |= {"levelled": True}
    study = {"machine": "arm.toml", "tolerances": "exact", "test": [test], "free": free}
    found = identify(make_study(study, "tilted", folder))
    assert found.status == "converged"
    values = {name: parameter.value for name, parameter in found.parameters.items()}
    assert values["stiffness.q1"] == pytest.approx(2e4, rel=1e-5)
    assert values["stiffness.q2"] == pytest.approx(8e3, rel=1e-5)
    assert values["station.tracker.A.ry"] == pytest.approx(-tilt, abs=1e-7)
    level = identify(make_study(study | {"test": [test | {"levelled": False}]}, "tilted", folder))
    assert level.cost > 1e3  # 144 rows, noise-free: the weight of an upright machine does not explain the poses


def test_levelled_needs_stations(tmp_path):
    machine_file(tmp_path, ARM)
    (tmp_path / "poses.csv").write_text("q1,q2,tool.x,tool.y,tool.z\n0.1,0.2,1.0,0.0,0.1\n")
    study = {"machine": "arm.toml", "test": [{"kind": "pose", "file": "poses.csv", "levelled": True}],
             "free": {"stiffness.q1": {"lower": 1e3, "upper": 1e6}}}  # fmt: skip
    with pytest.raises(ValueError, match="levelled"):
        make_study(study, "level", tmp_path)
    (tmp_path / "poses.csv").write_text("q1,q2,tool.distance,station\n0.1,0.2,1.0,A\n")
    with pytest.raises(ValueError, match="levelled is true, but distances alone are measured from station 'A'"):
        make_study(study, "level", tmp_path)


def test_a_closed_chain_is_refused(tmp_path):
    """Dependent coordinates without a column would keep the values of the reference posture, with the loop open."""
    (tmp_path / "poses.csv").write_text("q1,tool.x\n0.5,0.31\n1.0,0.28\n")
    test = {"kind": "pose", "name": "t", "file": "poses.csv"}
    study = {"machine": "slider-crank", "test": [test], "free": {"stiffness.q1": {"lower": 10.0, "upper": 1e6}}}
    with pytest.raises(NotImplementedError, match="pose test: 'slider-crank' has loops"):
        make_study(study, "s", tmp_path)


def test_rotations_determine_a_station_with_a_position():
    draw, device = np.random.default_rng(0), np.eye(4)
    device[:3, :3], device[:3, 3] = Rotation.from_rotvec([0.3, -0.2, 0.9]).as_matrix(), [1.0, 2.0, 0.5]
    predicted, measured = np.tile(np.eye(4), (3, 1, 1)), np.full((3, 10), np.nan)
    predicted[:, :3, :3], predicted[:, :3, 3] = (
        Rotation.from_rotvec(draw.normal(size=(3, 3))).as_matrix(),
        draw.normal(size=(3, 3)),
    )
    seen = np.linalg.inv(device) @ predicted
    measured[:, 3:6] = Rotation.from_matrix(seen[:, :3, :3]).as_rotvec()
    assert device_pose(predicted, measured, oriented=True) is None
    measured[0, :3] = seen[0, :3, 3]
    np.testing.assert_allclose(
        device_pose(predicted, measured, oriented=True), [1.0, 2.0, 0.5, 0.3, -0.2, 0.9], atol=1e-12
    )
