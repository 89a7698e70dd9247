"""Errors of the description of pose tests: budgets against refits by SciPy on NumPy kinematics, and their diagnosis."""

import csv
import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation

from jaxmb.identify.assess.budget import DescribedTests
from jaxmb.identify.assess.corrected import CorrectedResidual
from jaxmb.identify.assess.identify import identify
from jaxmb.identify.assess.saved import write_result
from jaxmb.identify.assess.tests.poses import PoseMetrics
from jaxmb.identify.experiments.tolerances import Tolerances
from jaxmb.identify.parameters.model_parameters import set_parameters
from jaxmb.identify.study.study import make_study
from jaxmb.machine.file import write_machine
from jaxmb.mechanics.kinematics import frame_pose
from jaxmb.mechanics.postures import build_model
from jaxmb.spatial import rotation_by
from tests.identify.arm import estimate_at
from tests.identify.experiments.test_poses import ARM, L1, L2, RANGES, SPATIAL, ZEROS, G

EXACT = dict.fromkeys(Tolerances.model_fields, 0.0)
ORIGINS = np.array([[0.0, 0.0, 0.4], [0.1, 0.0, 0.0], [0.6, 0.0, 0.0]])
TOOL = np.array([0.5, 0.05, 0.1])


def seen(q, zero=(0.0, 0.0, 0.0), scale=(1.0, 1.0, 1.0), origin=None, turn=None, tool=TOOL):
    """Positions [t, 2, 3] of the tool and of the third joint of `SPATIAL` by NumPy kinematics.

    Args:
        q: readings [t, 3].
        zero: of each joint, rad.
        scale: of each reading.
        origin: displacement of the origin of each joint in its own axes [3, 3], m.
        turn: its rotation vector in these axes [3, 3], rad.
        tool: in the axes of the third body, m.
    """
    found = []
    for row in np.asarray(scale) * q + zero:
        rotation, position = np.eye(3), np.zeros(3)
        for k, stated in enumerate(ORIGINS):
            position = position + rotation @ stated
            rotation = rotation @ Rotation.from_rotvec([np.pi / 2 if k == 1 else 0.0, 0.0, 0.0]).as_matrix()
            position = position + rotation @ (np.zeros(3) if origin is None else origin[k])
            rotation = rotation @ Rotation.from_rotvec(np.zeros(3) if turn is None else turn[k]).as_matrix()
            rotation = rotation @ Rotation.from_rotvec([0.0, 0.0, row[k]]).as_matrix()
        found.append([position + rotation @ tool, position])
    return np.array(found)


def refitted(q, points, scale=1.0):
    """Change of zero.q2 and zero.q3 in a fit of the stated machine and a station to positions of the tool."""
    start = Rotation.from_rotvec([0.1, -0.2, 0.4]), np.array([2.0, -1.0, 0.3])
    data = scale * start[0].inv().apply(points[:, 0] - start[1])

    def residual(x):
        there = seen(q, zero=(0.0, x[0], x[1]))[:, 0]
        return (Rotation.from_rotvec(x[5:]).inv().apply(there - x[2:5]) - data).ravel()

    first = [0.0, 0.0, *start[1], *start[0].as_rotvec()]
    return least_squares(residual, first, x_scale="jac", xtol=1e-14, ftol=1e-14, gtol=1e-14).x[:2]


def single_errors(kind, q):
    """Positions for each error of one standard deviation of a kind with tolerance 0.1, and the scale of the device."""
    axes, degree, mm, percent = np.eye(3), 0.1 * np.pi / 180.0, 1e-4, 1e-3
    for k in (1, 2):
        for axis in axes[:2]:
            at = np.outer(axes[k], axis)
            if kind == "origin_mm":
                yield seen(q, origin=mm * at), 1.0
            if kind == "origin_deg":
                yield seen(q, turn=degree * at), 1.0
    for axis in axes:
        if kind == "frame_mm":
            yield seen(q, tool=TOOL + mm * axis), 1.0
        if kind == "gear_ratio_percent":
            yield seen(q, scale=1.0 + percent * axis), 1.0
    if kind == "device_scale_ppm":
        yield seen(q), 1.0 + 1e-7


@pytest.mark.parametrize("kind", ["origin_mm", "origin_deg", "frame_mm", "gear_ratio_percent", "device_scale_ppm"])
def test_budget_of_a_tolerance_against_scipy(tmp_path, kind):
    """Root of the sum of squares of the changes of two zeros in refits to data with each error."""
    write_machine(SPATIAL, tmp_path / "arm.toml")
    how = {"rows": 20, "ranges": RANGES, "plan_seed": 3}
    test = {"kind": "pose", "name": "t", "std_mm": 0.3, "simulate": how}
    study = make_study({"machine": "arm.toml", "test": [test], "free": ZEROS, "tolerances": EXACT | {kind: 0.1}}, "s",
                       tmp_path)  # fmt: skip
    q = np.asarray(study.tests[0].q)
    changes = np.array([refitted(q, points, scale) for points, scale in single_errors(kind, q)])
    budget = identify(study).metrics.uncertainty
    for k, name in enumerate(("zero.q2", "zero.q3")):
        assert budget[name].tolerances == pytest.approx(np.linalg.norm(changes[:, k]), rel=0.03), name


def test_free_parameters_and_stations_replace_tolerances(tmp_path):
    write_machine(SPATIAL, tmp_path / "arm.toml")
    free = {"zero.q3": [-0.1, 0.1], "reading_scale.q2": [0.9, 1.1], "origin.q2.x": [-0.01, 0.01],
            "origin.q3.rx": [-0.01, 0.01], "frame.tool.ry": [-0.01, 0.01],
            "distance_offset.t": [-0.1, 0.1]}  # fmt: skip
    free = {name: {"lower": low, "upper": high} for name, (low, high) in free.items()}
    keys = []
    for stations, held in ((1, ()), (0, ()), (0, tuple(free)[1:])):
        how = {"rows": 20, "ranges": RANGES, "measured": "pose", "distances": ["b3"], "stations": stations}
        test = {"kind": "pose", "name": "t", "simulate": how}
        some = {name: part for name, part in free.items() if name not in held}
        study = make_study({"machine": "arm.toml", "test": [test], "free": some}, "s", tmp_path)
        described = DescribedTests(study.fitted, study.model, study.free, Tolerances())
        keys.append({error.key for error in described.errors if error.tolerance})
    of_base = {f"axis of q1 {what} {axis}" for what in ("along", "about") for axis in "xy"}
    of_free = {"gear ratio of q2", "axis of q2 along x", "axis of q3 about x", "rotation of tool about y",
               "offset of the distances of t"}  # fmt: skip
    assert keys[1] - keys[0] == of_base
    assert keys[2] - keys[1] == of_free
    assert "zero of q3" not in keys[2]
    assert {"zero of q2", "axis of q2 along y", "axis of q3 about y", "rotation of tool about x"} < keys[0]
    assert "rotation of b3 about x" not in keys[0]  # its distance alone is measured


def test_predictions_contain_tolerances_that_the_station_does_not_absorb(tmp_path):
    """A zero of the first joint turns the station with it, and no prediction from there; an error of its gear ratio
    that is in the data does, one that the fitted rows exclude does not."""
    write_machine(SPATIAL, tmp_path / "arm.toml")
    how = {"rows": 20, "check_rows": 5, "ranges": RANGES, "plan_seed": 3}
    std = []
    gear = {"gear_ratio_percent": 0.1}
    for tolerance, true in (({}, {}), ({"joint_zero_deg": 0.1}, {}), (gear, {}), (gear, {"reading_scale.q1": 1.001})):
        test = {"kind": "pose", "name": "t", "simulate": how | {"parameters": true}}
        study = {"machine": "arm.toml", "test": [test], "free": ZEROS, "tolerances": EXACT | tolerance}
        result = identify(make_study(study, "s", tmp_path))
        std.append(np.array([row["std"][:3] for row in result.metrics["pose_rows"]]))
        if "joint_zero_deg" in tolerance:
            assert result.parameters["station.t.station-1.rz"].std > 1.7e-3
    np.testing.assert_allclose(std[1], std[0], rtol=1e-3)
    exact, excluded, present = (each[-5:].max(axis=1) for each in (std[0], *std[2:]))
    assert np.all(excluded < 1.5 * exact)
    assert np.all(present > 2.0 * exact)


def test_intervals_grow_with_the_misfit_of_their_own_test(tmp_path):
    """One of two tests is of a machine with another zero, which the fit does not reproduce."""
    write_machine(SPATIAL, tmp_path / "arm.toml")
    how = {"rows": 20, "ranges": RANGES, "plan_seed": 3}
    tests = [
        {"kind": "pose", "name": name, "std_mm": 0.05, "simulate": how | {"parameters": {"zero.q2": zero}}}
        for name, zero in (("right", 0.0), ("wrong", 0.05))
    ]
    study = make_study({"machine": "arm.toml", "test": tests, "free": ZEROS}, "s", tmp_path)
    estimate = estimate_at(study, study.free.encode(np.asarray(study.start.values)))
    rows = PoseMetrics.of_fit(estimate, study.fitted).pose_rows
    right, wrong = (np.array([row.std[:3] for row in rows if row.test == name]) for name in ("right", "wrong"))
    assert right.max() <= 5e-5
    assert wrong.min() > 5e-4


def table(folder, q, points, names=("tool", "b3"), stations=2, std=5e-5, change=None, free=ZEROS, machine=SPATIAL):
    """A study of positions of two points from stations elsewhere, with noise, changed before they are written."""
    rng, rows = np.random.default_rng(8), len(q)
    station = np.arange(rows) % stations
    seen_there = np.empty_like(points)
    for k in range(stations):
        turn, shift = Rotation.from_rotvec(rng.uniform(-1.0, 1.0, 3)), rng.uniform(-2.0, 2.0, 3)
        flat = turn.inv().apply((points[station == k] - shift).reshape(-1, 3))
        seen_there[station == k] = flat.reshape(-1, 2, 3)
    seen_there += std * rng.normal(size=seen_there.shape)
    if change is not None:
        q, seen_there = change(q.copy(), seen_there, station)
    with open(folder / "poses.csv", "w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["q1", "q2", "q3", *(f"{name}.{axis}" for name in names for axis in "xyz"), "station"])
        for row, there, k in zip(q, seen_there.reshape(rows, 6), station, strict=True):
            lines.writerow([*row, *there, f"S{k}"])
    write_machine(machine, folder / "arm.toml")
    test = {"kind": "pose", "file": "poses.csv", "name": "t", "std_mm": 1e3 * std}
    return make_study({"machine": "arm.toml", "test": [test], "free": free}, "s", folder)


def drawn(rows=30):
    """Postures."""
    rng = np.random.default_rng(6)
    return np.array([[rng.uniform(*RANGES[name]) for name in RANGES] for _ in range(rows)])


def mirrored(q, points, station):
    """y with the opposite sign."""
    return q, points * [1.0, -1.0, 1.0]


def exchanged(q, points, station):
    """The points at one station."""
    points[station == 1] = points[station == 1][:, ::-1]
    return q, points


def swapped(q, points, station):
    """Columns x and y exchanged at one station."""
    points[station == 1] = points[station == 1][..., [1, 0, 2]]
    return q, points


def inches(q, points, station):
    """Lengths of the first station."""
    points[station == 0] /= 0.0254
    return q, points


def outlying(q, points, station):
    """A tool 4 mm off in the line of the eighth row."""
    points[7, 0, 1] += 4e-3
    return q, points


def misread(q, points, station):
    """The angle of q2 in the line of the eighth row 60 deg too large."""
    q = q.copy()
    q[7, 1] += np.radians(60.0)
    return q, points


def mislabelled(q, points, station):
    """The labels of the stations of the eighth and the ninth row exchanged."""
    order = np.arange(len(q))
    order[[7, 8]] = 8, 7
    return q[order], points[order]


ZERO = (0.0, 3e-3, -2e-3)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (mirrored, "the sign of x, y or z, or two of them exchanged, of test 't'"),
        (exchanged, "exchanged points tool and b3 at station S1 of test 't'"),
        (swapped, "the sign of x, y or z, or two of them exchanged, at station S1 of test 't'"),
        (inches, "lengths in inches instead of m at station S0 of test 't'"),
        (lambda q, points, station: (q * [1.0, 1.0, -1.0], points), "the sign of q3 of test 't'"),
        (
            lambda q, points, station: (q - [0.0, np.pi / 2, 0.0], points),
            "a zero of q2 +90 deg from the stated one of test 't'",
        ),
        (lambda q, points, station: (q[:, [0, 2, 1]], points), "exchanged values of q2 and q3 of test 't'"),
        (lambda q, points, station: (np.roll(q, 1, 0), points), "joint values shifted down by one line of test 't'"),
        (
            lambda q, points, station: (q + q[:, [1]] * [0, 0, 1], points),
            "the sum of q3 and q2 in place of q3 of test 't'",
        ),
        (lambda q, points, station: (q, 1e-3 * points), "lengths 1000 times too small of test 't'"),
        (lambda q, points, station: (q, points / 0.0254), "lengths in inches instead of m of test 't'"),
        (outlying, "excluding line 9 of test 't'"),
        (misread, "excluding line 9 of test 't'"),
        (mislabelled, "excluding line 9 of test 't' and line 10 of test 't'"),
    ],
    ids=[
        "mirror",
        "points",
        "columns-at-station",
        "inches-at-station",
        "sign",
        "zero",
        "coordinates",
        "lines",
        "sum",
        "units",
        "inches",
        "outlier",
        "posture",
        "labels",
    ],
)
def test_a_wrong_table_is_named(tmp_path, change, text):
    q = drawn()
    result = identify(table(tmp_path, q, seen(q, zero=ZERO), change=change))
    (error,) = result.metrics.model_errors
    assert error.text == text
    assert error.explains > 0.99
    if error.values:  # with the table corrected; stated axes and frames within their tolerances
        for name, true in zip(("zero.q2", "zero.q3"), ZERO[1:], strict=True):
            assert abs(error.values[name] - true) < 4.0 * error.std[name] + 1e-3


def test_smaller_lengths_that_the_machine_does_not_reproduce_are_no_explanation(tmp_path):
    """Joint values of another row: positions 39 or 1000 times smaller have a smaller residual."""
    q = drawn()
    result = identify(table(tmp_path, q, seen(q, zero=ZERO), change=lambda q, *others: (np.roll(q, 7, 0), others[0])))
    assert not result.metrics.model_errors
    assert result.status != "converged"


@pytest.mark.parametrize(
    ("errors", "pattern", "size"),
    [
        ({"origin": [[0, 0, 0], [0, 0, 0], [4e-3, 0, 0]]}, r"axis of q3 along x (\S+) mm from the stated one", 4.0),
        ({"turn": [[0, 0, 0], [8e-3, 0, 0], [0, 0, 0]]}, r"axis of q2 about x (\S+) deg from the stated one", 0.458),
        ({"scale": [1.0, 1.01, 1.0]}, r"gear ratio of q2 (\S+) % from the stated one", 1.0),
        ({"tool": [0.5, 0.05, 0.106]}, r"position of tool along z (\S+) mm from the stated one", 6.0),
    ],
    ids=["length", "direction", "scale", "frame"],
)
def test_a_wrong_number_is_named_with_its_size(tmp_path, errors, pattern, size):
    q = drawn()
    result = identify(table(tmp_path, q, seen(q, zero=ZERO, **{k: np.array(x, float) for k, x in errors.items()})))
    found = [re.fullmatch(pattern, error.text) for error in result.metrics.model_errors]
    named = [float(match[1]) for match in found if match]
    assert named == [pytest.approx(size, rel=0.1)]


MASSES, CENTER, WEIGHT = (0.0, 30.0, 15.0), [0.3, 0.02, 0.0], 9.81


def heavy(gravity=(0.0, 0.0, -WEIGHT)):
    """`SPATIAL` with masses."""
    data = SPATIAL.model_dump()
    for body, mass in zip(data["body"], MASSES, strict=True):
        inertia = {"xx": 0.1, "yy": 0.1, "zz": 0.1} if mass else None
        body |= {"mass": mass, "center_of_mass": CENTER if mass else [0.0, 0.0, 0.0], "inertia_products": inertia}
    return type(SPATIAL).model_validate(data | {"gravity": list(gravity)})


def under_weight(q, compliance):
    """Joint values that drives at q have behind compliances, by differences of the potential energy."""

    def energy(row):
        heights = [seen(row[None], tool=CENTER)[0, 0, 2], _centre_of_boom(row)[2]]
        return WEIGHT * float(np.dot(heights, MASSES[:0:-1]))

    torque = np.array([[(energy(row + 1e-5 * e) - energy(row - 1e-5 * e)) / 2e-5 for e in np.eye(3)] for row in q])
    return q - np.asarray(compliance) * torque


def _centre_of_boom(row):
    """Centre of mass of the second body of `SPATIAL`."""
    first = Rotation.from_rotvec([0.0, 0.0, row[0]])
    second = first * Rotation.from_rotvec([np.pi / 2, 0.0, 0.0]) * Rotation.from_rotvec([0.0, 0.0, row[1]])
    return ORIGINS[0] + first.apply(ORIGINS[1]) + second.apply(CENTER)


@pytest.mark.parametrize(
    ("compliance", "named"), [((0, 1e-5, 0), {"q2": 1e5}), ((0, 5e-6, 2e-5), {"q2": 2e5, "q3": 5e4})]
)
def test_rigid_joints_that_yield_under_the_weight_are_named_with_their_stiffness(tmp_path, compliance, named):
    """Not the gear ratios, which a sag resembles."""
    q = drawn()
    points = seen(under_weight(q, compliance), zero=ZERO)
    result = identify(table(tmp_path, q, points, machine=heavy(), free={"zero.q3": ZEROS["zero.q[23]"]}))
    error = result.metrics.model_errors[0]
    found = re.findall(r"a stiffness of (\S+) N m/rad of (\S+), which is rigid,", error.text)
    assert {joint: float(value) for value, joint in found} == {k: pytest.approx(v, rel=0.1) for k, v in named.items()}
    assert "gear ratio" not in " ".join(result.doubts)


def test_a_payload_that_was_not_mounted_is_named(tmp_path):
    """Beside free stiffnesses; its centre is beside the frame. Not a link with a multiple of its mass."""
    q, compliance = drawn(), (0.0, 2e-5, 1e-4)
    data = heavy().model_dump()
    for body, value in zip(data["body"], compliance, strict=True):
        body["joint"][0]["stiffness"] = 1.0 / value if value else 0.0
    data["payload"] = [{"name": "spindle", "frame": "tool", "mass": 20.0, "center_of_mass": [0.1, 0.0, 0.2]}]
    free = {f"stiffness.{name}": {"lower": 1e3, "upper": 1e7} for name in ("q2", "q3")}
    points = seen(under_weight(q, compliance))
    result = identify(table(tmp_path, q, points, machine=type(SPATIAL).model_validate(data), free=free))
    assert result.metrics.model_errors[0].text == "payload spindle, which was not mounted,"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda upward: upward[:, [1, 0, 2]], r"exchanged ax and ay of b2 of test 't'"),
        (
            lambda upward: np.add(upward, [0.01, 0.0, 0.0]),
            r"an offset of 0.0\d+ times the acceleration .* of ax of b2 of test 't'",
        ),
        (lambda upward: upward * [1.0, 1.03, 1.0], r"a factor of 1.03\d* on ay of b2 of test 't'"),
    ],
    ids=["exchanged", "offset", "gain"],
)
def test_an_error_of_one_of_two_accelerometers_is_named(tmp_path, change, text):
    """Each has axes of its own."""
    how = {"rows": 25, "ranges": RANGES, "inclinations": ["tool", "b2"], "points": [], "stations": 0}
    test = {"kind": "pose", "name": "t", "inclination_std_mrad": 0.2}
    write_machine(SPATIAL, tmp_path / "arm.toml")
    study = make_study({"machine": "arm.toml", "test": [test | {"simulate": how}], "free": ZEROS}, "s", tmp_path)
    source = study.fitted[0].source.rows
    heads = [*SPATIAL.coordinates, *(f"{name}.a{axis}" for name in source.points for axis in "xyz")]
    upward, k = source.measured[..., 6:9].copy(), source.points.index("b2")
    upward[:, k] = change(upward[:, k])
    numbers = np.hstack([source.q, upward.reshape(len(upward), -1)])
    np.savetxt(tmp_path / "poses.csv", numbers, delimiter=",", header=",".join(heads), comments="")
    data = {"machine": "arm.toml", "test": [test | {"file": "poses.csv"}], "free": ZEROS}
    result = identify(make_study(data, "w", tmp_path))
    assert any(re.fullmatch(text, error.text) for error in result.metrics.model_errors)


def test_noise_that_is_estimated_from_the_residual_leaves_no_misfit_to_explain(tmp_path, monkeypatch):
    """Of joints that yield: no hypothesis is compared with noise that contains it, as of each real robot."""

    def compared(*arguments):
        raise AssertionError("hypotheses were compared")

    monkeypatch.setattr(CorrectedResidual, "of", compared)
    q = drawn()
    table(tmp_path, q, seen(under_weight(q, (0, 1e-5, 0)), zero=ZERO), machine=heavy())
    test = {"kind": "pose", "file": "poses.csv", "name": "t", "std_mm": "estimate"}
    data = {"machine": "arm.toml", "test": [test], "free": ZEROS, "tolerances": "exact"}
    result = identify(make_study(data | {"prior": {"zero.*": 1.0}}, "s", tmp_path))
    assert result.metrics.model_errors is None
    assert result.metrics["pose_std_mm"]["t"] > 0.1


def test_the_weight_turns_rigid_joints_by_their_compliance(tmp_path):
    """Against differences of the potential energy; joints with a stiffness have a tolerance of it instead."""
    compliance, machine = np.array([0.0, 5e-6, 2e-5]), heavy()
    study = pose_study(tmp_path, drawn(), lambda turn: turn.as_rotvec(), machine)
    (test,), model = study.tests, study.model
    sagging = dataclasses.replace(test, q=jnp.asarray(under_weight(np.asarray(test.q), compliance)))
    errors = test.description.none(model)._replace(compliance=compliance)
    np.testing.assert_allclose(
        test.description.residual(model, errors), sagging.residual(sagging.view(model)), atol=1e-4
    )
    of_rigid = [error.key for error, _ in test.description.errors(model) if error.key.startswith("compliance")]
    assert of_rigid == ["compliance of q2", "compliance of q3"]  # the axis of the first joint is vertical
    elastic = set_parameters(model, {"stiffness.q2": 1e5})
    of_rigid = [error.key for error, _ in test.description.errors(elastic) if error.key.startswith("compliance")]
    assert of_rigid == ["compliance of q3"]
    locked = dataclasses.replace(model, locked=(False, True, False))  # of which tests of vibrations have one
    of_rigid = [error.key for error, _ in test.description.errors(locked) if error.key.startswith("compliance")]
    assert of_rigid == ["compliance of q3"]


READ_AS_VECTORS = {
    "rotation vectors in degrees": lambda turn: np.degrees(turn.as_rotvec()),
    "rotation vectors of the inverse rotations": lambda turn: turn.inv().as_rotvec(),
    "angles about fixed axes x, y and z instead of rotation vectors": lambda turn: turn.as_euler("xyz"),
    "angles A, B and C about moving axes z, y and x instead of rotation vectors": lambda turn: turn.as_euler("ZYX"),
    "quaternions w, x, y, z read as x, y, z, w": lambda turn: Rotation.from_quat(
        turn.as_quat()[:, [3, 0, 1, 2]]
    ).as_rotvec(),
    "quaternions x, y, z, w read as w, x, y, z": lambda turn: Rotation.from_quat(
        turn.as_quat()[:, [1, 2, 3, 0]]
    ).as_rotvec(),
}


def pose_study(folder, q, turns_of, machine=SPATIAL, role=lambda k: "fit"):
    """A study of poses of the tool in the ground frame, whose rotations are written as some numbers."""
    model = build_model(machine)
    poses = np.array([np.asarray(frame_pose(model, jnp.asarray(row), "tool")) for row in q])
    numbers = turns_of(Rotation.from_matrix(poses[:, :3, :3]))
    heads = ["q1", "q2", "q3", *(f"tool.{axis}" for axis in ("x", "y", "z", "rx", "ry", "rz")), "role"]
    lines = [
        [*row, *pose[:3, 3], *turn, role(k)] for k, (row, pose, turn) in enumerate(zip(q, poses, numbers, strict=True))
    ]
    (folder / "poses.csv").write_text("\n".join(",".join(map(str, line)) for line in [heads, *lines]) + "\n")
    write_machine(machine, folder / "arm.toml")
    test = {"kind": "pose", "file": "poses.csv", "name": "t"}
    return make_study({"machine": "arm.toml", "test": [test], "free": ZEROS}, "s", folder)


def alternatives_of(study, words=""):
    """Root mean square residual, in units of the noise, of each alternative to the test of a study with some words."""
    (entry,) = study.fitted
    found = (each for each in entry.source.alternatives(entry.test, study.model) if words in each[0])
    return {text: float(np.sqrt(np.mean(np.square(test.residual(test.view(study.model)))))) for text, _, test in found}


@pytest.mark.parametrize("text", READ_AS_VECTORS)
def test_another_convention_of_rotations_is_an_alternative(tmp_path, text):
    small = 0.002 if "degrees" in text else 1.0  # larger numbers are refused
    rms = alternatives_of(pose_study(tmp_path, small * drawn(), READ_AS_VECTORS[text], machine=UPRIGHT))
    assert rms[text] < 1e-3
    assert sum(x < 1.0 for x in rms.values()) == 1


UPRIGHT = type(SPATIAL).model_validate(
    SPATIAL.model_dump()
    | {
        "body": [body | {"origin": {"xyz": body["origin"]["xyz"]}} for body in SPATIAL.model_dump()["body"]],
        "frame": [
            {"name": "tool", "body": "b3", "origin": {"xyz": [0.5, 0.05, 0.1], "rpy": [0.0, 0.02, 0.0]}},
            {"name": "flange", "body": "b3", "origin": {"xyz": [0.4, 0.0, 0.0], "rpy": [0.3, 0.0, 0.0]}},
            {"name": "plate", "body": "b3", "origin": {"xyz": [0.4, 0.0, 0.0], "rpy": [0.3, 0.0, 0.0]}},
        ],
    }
)


def test_frames_that_coincide_are_one_alternative(tmp_path):
    """Rotations of the flange and positions of the tool."""
    turn = Rotation.from_euler("xyz", [0.0, 0.02, 0.0]).inv() * Rotation.from_euler("xyz", [0.3, 0.0, 0.0])
    rms = alternatives_of(pose_study(tmp_path, drawn(), lambda of_tool: (of_tool * turn).as_rotvec(), UPRIGHT))
    assert {text for text in rms if "instead of tool" in text} == {
        "frame b3 instead of tool", "frame flange or plate instead of tool", "rotations of b3 instead of tool",
        "rotations of flange or plate instead of tool",
    }  # fmt: skip
    assert rms["rotations of flange or plate instead of tool"] < 1e-3
    assert sum(x < 1.0 for x in rms.values()) == 1


def test_lines_are_shifted_in_the_order_of_the_table(tmp_path):
    """Between fitted lines some are held out."""
    q, every = drawn(), lambda k: "check" if k % 3 == 1 else "fit"
    rms = alternatives_of(pose_study(tmp_path, q, lambda turn: turn.as_rotvec(), role=every), "shifted")
    text = tmp_path / "poses.csv"
    heads, *lines = text.read_text().splitlines()
    cells = [line.split(",") for line in lines]
    moved = [[*above[:3], *own[3:]] for above, own in zip([cells[-1], *cells[:-1]], cells, strict=True)]
    text.write_text("\n".join([heads, *map(",".join, moved)]) + "\n")
    test = {"kind": "pose", "file": "poses.csv", "name": "t"}
    study = make_study({"machine": "arm.toml", "test": [test], "free": ZEROS}, "s", tmp_path)
    there = alternatives_of(study, "shifted")
    assert there["joint values shifted down by one line"] < 1e-3 < rms["joint values shifted down by one line"]


@pytest.mark.parametrize(("error_m", "poor"), [(0.02, False), (0.2, True)])
def test_a_tenth_of_the_scatter_is_not_reproduced(tmp_path, error_m, poor):
    """Positions that are wrong in half of the rows, of a tool that travels some metres."""
    study = pose_study(tmp_path, drawn(), lambda turn: turn.as_rotvec())
    (test,), wrong = study.tests, error_m * np.sign(np.arange(30) % 2 - 0.5)[:, None, None]
    moved = dataclasses.replace(test, position=test.position + wrong * [1.0, 1.0, 1.0])
    assert moved.score(moved.view(study.model), None).poor == poor


@pytest.mark.parametrize(("stations", "station", "row"), [(1, 0, 12), (2, 1, 17)])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_station_that_moved_is_named_with_its_rows(tmp_path, stations, station, row, seed):
    """All its later rows are displaced by one rigid motion."""
    shift, turn = np.random.default_rng(seed).normal(size=(2, 3)) * [[5e-3], [1e-3]]
    q = drawn()

    def moved(q, points, label):
        own = (np.arange(len(q)) >= row) & (label == station)
        points[own] = points[own] @ Rotation.from_rotvec(turn).as_matrix().T + shift
        return q, points

    (error,) = identify(table(tmp_path, q, seen(q, zero=ZERO), stations=stations, change=moved)).metrics.model_errors
    named = re.fullmatch(
        rf"station S{station} of test 't' that moved by (\S+) mm and (\S+) mrad between line (\d+) and line (\d+)",
        error.text,
    )
    own = np.flatnonzero(np.arange(30) % stations == station)
    assert (int(named[3]), int(named[4])) == (own[own < row].max() + 2, own[own >= row].min() + 2)
    # 0.1 mrad by noise and tolerances, at points 3 m from the device
    assert float(named[1]) == pytest.approx(1e3 * np.linalg.norm(shift), abs=0.3)
    assert float(named[2]) == pytest.approx(1e3 * np.linalg.norm(turn), abs=0.1)
    assert error.explains > 0.99


def test_a_point_that_moved_on_its_body_is_named_with_its_rows(tmp_path):
    q, free = drawn(), ZEROS | {"frame.tool.[xyz]": {"lower": -0.01, "upper": 0.01}}
    points = np.where(
        np.arange(len(q))[:, None, None] < 12, seen(q, ZERO), seen(q, ZERO, tool=np.array([0.5, 0.051, 0.1]))
    )
    (error,) = identify(table(tmp_path, q, points, free=free)).metrics.model_errors
    named = re.fullmatch(r"point tool of test 't' that moved by (\S+) mm between line 13 and line 14", error.text)
    assert float(named[1]) == pytest.approx(1.0, abs=0.05)
    assert error.explains > 0.99


def test_backlash_between_rows_is_named_without_columns_of_approach(tmp_path):
    q = drawn()
    behind = 1e-3 * np.sign(np.diff(q, axis=0, prepend=q[:1])) * [0.0, 1.0, 0.0]
    result = identify(table(tmp_path, q, seen(q - behind, zero=ZERO)))
    (error,) = result.metrics.model_errors
    size = float(re.fullmatch(r"a backlash of (\S+) mrad of q2 approached from the row before", error.text)[1])
    assert size == pytest.approx(2.0, rel=0.05)


def test_a_joint_that_does_not_move_stays_at_its_side(tmp_path):
    q = drawn()
    q[:, 1] = np.repeat([0.1, 0.4, 0.2, 0.5, 0.3], 6)
    (entry,) = table(tmp_path, q, seen(q)).entries
    np.testing.assert_array_equal(entry.test.approach[:, 1], np.repeat([0, 1, -1, 1, -1], 6))


def test_a_machine_upside_down_is_named(tmp_path):
    """Stiffnesses end on their bounds, where they explain no residual: errors within tolerances do not explain it."""
    rng, q = np.random.default_rng(4), np.random.default_rng(3).uniform([-0.5, -2.0], [1.5, 2.0], (30, 2))
    actual = q.copy()
    for _ in range(20):  # drives hold the readings, the weight acts upwards
        fore = 4.0 * G * 0.2 * np.cos(actual.sum(axis=1))
        actual = q + np.column_stack([(6.0 * 0.3 + 4.0 * L1) * G * np.cos(actual[:, 0]) + fore, fore]) / [1.5e4, 5e3]
    first, second = actual[:, 0], actual.sum(axis=1)
    x, z = L1 * np.cos(first) + L2 * np.cos(second), L1 * np.sin(first) + L2 * np.sin(second)
    data = np.column_stack([x, np.zeros(30), z]) + 5e-5 * rng.normal(size=(30, 3))
    with open(tmp_path / "poses.csv", "w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["q1", "q2", "tool.x", "tool.y", "tool.z", "station"])
        lines.writerows([*row, *there, "A"] for row, there in zip(q, data, strict=True))
    write_machine(ARM, tmp_path / "arm.toml")
    free = {"stiffness.*": {"lower": 1e3, "upper": 1e7}, "zero.q2": {"lower": -0.05, "upper": 0.05}}
    test = {"kind": "pose", "file": "poses.csv", "name": "t", "std_mm": 0.05}
    result = identify(make_study({"machine": "arm.toml", "test": [test], "free": free}, "s", tmp_path))
    assert result.metrics.tolerated is False
    texts = "\n".join(error.text for error in result.metrics.model_errors)
    # in a plane, seen from a free station, both are one error
    named = r"^a (gravity of -1 times the stated one|zero of q1 \+180 deg from the stated one of test 't')$"
    assert re.search(named, texts, re.MULTILINE), texts
    (error, *_) = result.metrics.model_errors
    for name, true in {"stiffness.q1": 1.5e4, "stiffness.q2": 5e3}.items():
        assert abs(error.values[name] - true) < 0.1 * true  # masses and lengths are stated within tolerances


def test_the_score_does_not_depend_on_the_distance_of_the_device(tmp_path):
    write_machine(SPATIAL, tmp_path / "arm.toml")
    how = {"rows": 20, "ranges": RANGES, "plan_seed": 3, "stations": 2}
    test = {"kind": "pose", "name": "t", "simulate": how}
    study = make_study({"machine": "arm.toml", "test": [test], "free": ZEROS}, "s", tmp_path)
    near = dataclasses.replace(study.tests[0], q=jnp.roll(study.tests[0].q, 1, axis=0))
    shift = jnp.tile(jnp.array([10.0, 0.0, 0.0]), (2, 1))
    turned = jnp.einsum("sji,sj->si", jax.vmap(rotation_by)(near.pose[:, 3:]), shift)
    far = dataclasses.replace(near, pose=near.pose.at[:, :3].add(shift),
                              position=near.position - turned[near.station][:, None])  # fmt: skip
    scores = [each.score(each.view(study.model), None) for each in (near, far)]
    assert scores[0].poor
    assert scores[1].explained_percent == pytest.approx(scores[0].explained_percent, rel=1e-9)


def test_a_free_offset_of_distances_against_scipy(tmp_path):
    """The length of a draw wire at its zero beside the position of its device and a zero of a joint."""
    rng, q, std, device = np.random.default_rng(2), drawn(40), 2e-5, np.array([1.5, -0.4, 0.2])
    data = np.linalg.norm(seen(q, zero=ZERO)[:, 0] - device, axis=1) - 0.15 + std * rng.normal(size=40)
    with open(tmp_path / "poses.csv", "w", newline="") as file:
        csv.writer(file).writerows([["q1", "q2", "q3", "tool.distance", "station"],
                                    *([*row, d, "A"] for row, d in zip(q, data, strict=True))])  # fmt: skip
    write_machine(SPATIAL, tmp_path / "arm.toml")
    test = {"kind": "pose", "file": "poses.csv", "name": "t", "distance_std_mm": 1e3 * std}
    free = ZEROS | {"distance_offset.t": {"lower": -0.3, "upper": 0.3}}
    result = identify(make_study({"machine": "arm.toml", "test": [test], "free": free, "tolerances": "exact"}, "s",
                                 tmp_path))  # fmt: skip

    def residual(x):
        there = np.linalg.norm(seen(q, zero=(0.0, x[0], x[1]))[:, 0] - x[2:5], axis=1)
        return (there + x[5] - data) / std

    found = least_squares(residual, [0.0, 0.0, *device, -0.15], x_scale="jac", xtol=1e-14, ftol=1e-14, gtol=1e-14)
    deviations = np.sqrt(np.diag(np.linalg.inv(found.jac.T @ found.jac)))
    names = ("zero.q2", "zero.q3", *(f"station.t.A.{axis}" for axis in "xyz"), "distance_offset.t")
    for name, value, deviation in zip(names, found.x, deviations, strict=True):
        assert result.parameters[name].value == pytest.approx(value, abs=1e-2 * deviation), name
        assert result.parameters[name].std == pytest.approx(deviation, rel=1e-3), name
    rows = result.table("poses")
    np.testing.assert_allclose(rows["distance"], residual(found.x) * std + data, atol=1e-8)
    # a later test has its own offset, unless stated otherwise, whatever its name
    (tmp_path / "s").mkdir()
    write_result(result, tmp_path / "s")
    second = {"machine": "s/machine.toml", "prior_from": "s/result.json", "test": [test], "tolerances": "exact",
              "free": {"distance_offset.t": free["distance_offset.t"]}}  # fmt: skip
    later = make_study(second, "later", tmp_path)
    stds = dict(zip(later.free.names, np.asarray(later.problem.prior.std).tolist(), strict=True))
    assert np.isfinite(stds["zero.q2"])
    assert np.isinf(stds["distance_offset.t"])
    second["free"] = {"distance_offset.t": free["distance_offset.t"] | {"initial": 0.0}}
    stated = make_study(second | {"prior": {"distance_offset.t": 0.01}}, "stated", tmp_path)
    at = stated.free.names.index("distance_offset.t")
    assert stated.problem.prior.std[at] * stated.free.width[at] == pytest.approx(0.01)
