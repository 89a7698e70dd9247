"""Random rotations of virtual springs in rows of pose tests, and errors that differ between stations."""

import csv

import numpy as np
import pytest

from jaxmb.identify.assess.identify import identify
from jaxmb.identify.experiments.poses.pose_rows import PoseRows
from jaxmb.identify.experiments.poses.pose_test import pose_test, predicted_poses, with_scatter
from jaxmb.identify.parameters.model_parameters import set_parameters
from jaxmb.identify.plan.inspection import inspect
from jaxmb.identify.study.study import make_study
from jaxmb.machine.file import write_machine
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.postures import build_model

L1, L2 = 0.7, 0.5
ARM = Machine.model_validate({
    "name": "arm",
    "body": [
        {"name": "upper", "origin": {"xyz": [0.0, 0.0, 0.0], "rpy": [np.pi / 2, 0.0, 0.0]},
         "joint": [{"name": "q1", "range": [-3.0, 3.0]}], "mass": 6.0, "center_of_mass": [0.3, 0.0, 0.0]},
        {"name": "fore", "parent": "upper", "origin": {"xyz": [L1, 0.0, 0.0]},
         "joint": [{"name": "q2", "range": [-3.0, 3.0]}]},
        {"name": "hand", "parent": "fore", "origin": {"xyz": [0.2, 0.0, 0.1], "rpy": [0.0, np.pi / 2, 0.0]},
         "joint": [{"name": "q3", "range": [-3.0, 3.0]}]},
    ],
    "virtual_spring": [{"name": "guide", "body": "upper", "at": "joint", "diagonal": [0.0] * 6}],
    "frame": [{"name": "tool", "body": "hand", "origin": {"xyz": [0.1, 0.2, 0.3]}},
              {"name": "sensor", "body": "upper", "origin": {"xyz": [L2, 0.0, 0.0]}}],
})  # fmt: skip
"""The first joint turns about the Y axis; its guide is at the origin of the ground."""
STD, TILT = (1e-4, 1e-4, 2e-5, 1e-4), 5e-4
"""Of positions, rotations, inclinations and distances, and of the guide about the axis of the joint; m, rad."""


def rows_of(q, station, inclined):
    """Positions of the tool, and inclinations of the sensor where `inclined`."""
    measured = np.full((len(q), 2, 10), np.nan)
    measured[:, 0, :3] = 1.0
    measured[inclined, 1, 6:9] = [0.0, 0.0, 1.0]
    return PoseRows(("tool", "sensor"), q, measured, tuple(station), np.zeros(len(q), bool), ("",) * len(q))


def drawn_postures(count, seed):
    return np.random.default_rng(seed).uniform([-0.6, -1.5, -2.0], [0.6, 1.5, 2.0], size=(count, 3))


def test_residual_has_the_covariance_of_rotations_about_the_guide():
    model, q, inclined = build_model(ARM), drawn_postures(3, 1), [True, False, True]
    rows = rows_of(q, (), np.array(inclined))
    poses, upward = predicted_poses(pose_test("", rows, (), np.zeros((0, 6)), STD, False), model)
    errors = 3e-4 * np.random.default_rng(4).normal(size=(3, 3))
    rows.measured[:, 0, :3] = poses[:, 0, :3, 3] - errors
    rows.measured[inclined, 1, 6:9] = upward[inclined, 1]
    test = with_scatter(pose_test("", rows, (), np.zeros((0, 6)), STD, False), model, {"guide.rz": TILT})
    residual, expected = np.asarray(test.residual(test.view(model))), 0.0
    for at, error, seen in zip(poses[:, 0, :3, 3], errors, inclined, strict=True):
        # of the tool by rotation about Y through the origin, then of the vertical about Y and across it
        effect = TILT * np.array([at[2], 0.0, -at[0], *([1.0, 0.0] if seen else [])])
        std = np.array([STD[0]] * 3 + ([STD[2]] * 2 if seen else []))
        whole = np.pad(error, (0, effect.size - 3))
        expected += whole @ np.linalg.solve(np.diag(std**2) + np.outer(effect, effect), whole)
    assert residual @ residual == pytest.approx(expected, rel=1e-6)


def write_table(path, q, tool, upward, station, role):
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        heads = [*(f"q{k}" for k in (1, 2, 3)), *(f"tool.{k}" for k in "xyz"), *(f"sensor.a{k}" for k in "xyz")]
        table.writerow([*heads, "station", "role"])
        for row in zip(q, tool, upward, station, role, strict=True):
            table.writerow([*row[0], *row[1], *row[2], row[3], row[4]])


def test_positions_are_predicted_with_the_inclinations_of_their_rows(tmp_path):
    draw, count = np.random.default_rng(2), 160
    q = drawn_postures(count, 3)
    model = set_parameters(build_model(ARM), {"zero.q2": 2e-3})
    tilt = TILT * draw.normal(size=count)
    # the guide turns about the axis of the joint, so that its rotation is an error of the joint's reading
    test = pose_test("", rows_of(q + np.outer(tilt, [1.0, 0.0, 0.0]), (), np.ones(count, bool)), (), np.zeros((0, 6)),
                     STD, False)  # fmt: skip
    poses, up = predicted_poses(test, model)
    tool = poses[:, 0, :3, 3] + STD[0] * draw.normal(size=(count, 3))
    upward = up[:, 1] + STD[2] * draw.normal(size=(count, 3))
    write_machine(ARM, tmp_path / "arm.toml")
    part = {"kind": "pose", "file": "poses.csv", "std_mm": 0.1, "inclination_std_mrad": 0.02, "levelled": True,
            "scatter_mrad": {"guide.rz": 0.5}}  # fmt: skip
    study = {"machine": "arm.toml", "tolerances": "exact", "test": [part],
             "free": {"zero.q2": {"lower": -0.01, "upper": 0.01}}}  # fmt: skip
    found = {}
    for role in ("inclined", "check"):
        roles = ["fit" if k < 20 else role for k in range(count)]
        write_table(tmp_path / "poses.csv", q, tool, upward, ["a"] * count, roles)
        found[role] = identify(make_study(study, "s", tmp_path)).metrics["poses"]
    assert found["check"]["points"] == found["inclined"]["points"] == count - 20
    assert found["inclined"]["mean"] < 0.7 * found["check"]["mean"]
    for errors in found.values():
        assert 92.0 < errors["covered_percent"] < 98.0


def test_standard_deviations_contain_differences_between_stations(tmp_path):
    draw, size, each = np.random.default_rng(5), 6, 20
    zero, q = 1e-3 * draw.normal(size=size), drawn_postures(each, 6)
    tool, station = [], []
    for k in range(size):
        model = set_parameters(build_model(ARM), {"zero.q2": zero[k]})
        test = pose_test("", rows_of(q, (), np.zeros(each, bool)), (), np.zeros((0, 6)), STD, False)
        poses, _ = predicted_poses(test, model)
        tool += (poses[:, 0, :3, 3] + STD[0] * draw.normal(size=(each, 3))).tolist()
        station += [f"s{k}"] * each
    write_machine(ARM, tmp_path / "arm.toml")
    count = size * each
    write_table(tmp_path / "poses.csv", np.tile(q, (size, 1)), tool, [("", "", "")] * count, station, ["fit"] * count)
    study = {"machine": "arm.toml", "tolerances": "exact",
             "test": [{"kind": "pose", "file": "poses.csv", "std_mm": "estimate"}],
             "free": {"zero.q2": {"lower": -0.01, "upper": 0.01}}}  # fmt: skip
    found = identify(make_study(study, "s", tmp_path)).parameters["zero.q2"]
    assert found.value == pytest.approx(zero.mean(), abs=1e-4)
    # of the mean of six values, and of noise, which is small
    assert found.std == pytest.approx(np.std(zero, ddof=1) / np.sqrt(size), rel=0.25)


def test_next_postures_have_the_scatter_of_their_own(tmp_path):
    """The information on one parameter is the sum of that of the planned rows and that of the next ones alone."""
    write_machine(ARM, tmp_path / "arm.toml")
    part = {"kind": "pose", "file": "poses.csv", "inclination_std_mrad": 0.02, "scatter_mrad": {"guide.rz": 5.0}}
    study = {"machine": "arm.toml", "tolerances": "exact", "test": [part],
             "free": {"zero.q2": {"lower": -0.01, "upper": 0.01}}}  # fmt: skip
    heads = [f"{name}{axis}" for name, axes in (("q", "123"), ("tool.", "xyz"), ("sensor.a", "xyz")) for axis in axes]

    def inspected(q, **more):
        test = pose_test("", rows_of(q, (), np.ones(len(q), bool)), (), np.zeros((0, 6)), STD, False)
        poses, upward = predicted_poses(test, build_model(ARM))
        table = np.hstack([q, poses[:, 0, :3, 3], upward[:, 1]])
        np.savetxt(tmp_path / "poses.csv", table, delimiter=",", header=",".join(heads), comments="")
        return inspect(make_study(study | more, "s", tmp_path))

    planned, other = drawn_postures(3, 3), drawn_postures(3, 7)
    listed = [dict(zip(("q1", "q2", "q3"), row, strict=True)) for row in other.tolist()]
    found = inspected(planned, next={"kind": "pose", "count": 3, "postures": listed})
    assert found.next is not None
    information = found.known.std[0] ** -2 + inspected(other).known.std[0] ** -2
    assert found.next.known.std[0] == pytest.approx(information**-0.5, rel=1e-9)
