"""Tables of Khalil and Kleinfinger in machine files."""

import csv

import numpy as np
import pytest
import tomli_w
from scipy.spatial.transform import Rotation

import jaxmb

HEADS = ("joint", "a", "mu", "sigma", "gamma", "b", "alpha", "d", "theta", "r")
ROWS = [["1", 0, 1, 0, 0, 0, "-pi/2", 0, "q1", 0], ["2", 1, 1, 0, 0, 0, 0, "L", "q2", 0],
        ["E", 2, 0, 2, 0, 0, 0, "L", 0, 0]]  # fmt: skip
TUBE = {"young_modulus": 7e10, "shear_modulus": 2.6e10, "density": 2700.0, "area": 8e-4, "second_moment_y": 1.6e-7,
        "second_moment_z": 1.6e-7, "torsion_constant": 3.2e-7}  # fmt: skip
TABLES = {
    "geometry": ROWS, "beams": [[1, 1, "L", "tube", 0, 0, 0]], "symbols": {"L": 0.5}, "sections": {"tube": TUBE},
    "stiffness": {"2": {"rz": 1e4, "rx": 3e4}}, "damping": {"1": {"rz": 5.0}}, "loss_factor": 0.02,
}  # fmt: skip


def load(folder, tables=TABLES, **more):
    (folder / "arm.toml").write_text(tomli_w.dumps({"name": "arm", "khalil": tables} | more))
    return jaxmb.load_machine(folder / "arm.toml")


def test_what_a_file_describes(tmp_path):
    model = jaxmb.build_model(load(tmp_path, frame=[{"name": "tool", "body": "body2", "origin": {"xyz": [0.5, 0, 0]}}]))
    assert model.coordinates == ("q1", "q2", "q2_rx")
    values = jaxmb.parameters(model)
    told = {name: values[name] for name in ("stiffness.q2", "stiffness.q2_rx", "damping.q1", "loss_factor.q2_rx",
                                            "loss_factor.beam1_1", "loss_factor.q1")}  # fmt: skip
    assert list(told.values()) == [1e4, 3e4, 5.0, 0.02, 0.02, 0.0]
    # a plane arm whose first axis lies along y: q1 turns it down
    q = jaxmb.posture(model, {"q1": "90 deg", "q2": "-90 deg"})
    np.testing.assert_allclose(jaxmb.frame_pose(model, q, "tool")[:3, 3], [0.5, 0.0, -0.5], atol=1e-15)


def test_springs_have_the_axes_of_their_joints_frame(tmp_path):
    """With the second link upright, its x axis is the ground's z axis, and a spring about x turns about that."""
    model = jaxmb.build_model(load(tmp_path))
    twist = jaxmb.frame_jacobian(model, jaxmb.posture(model, {"q2": "-90 deg"}), "RE")
    np.testing.assert_allclose(twist[3:, model.coordinates.index("q2_rx")], [0.0, 0.0, 1.0], atol=1e-15)


def turned(axis, angle):
    pose = np.eye(4)
    pose[:3, :3] = Rotation.from_euler(axis, angle).as_matrix()
    return pose


def moved(*xyz):
    pose = np.eye(4)
    pose[:3, 3] = xyz
    return pose


def test_every_column_of_both_tables():
    """T = Rz(gamma) Tz(b) Rx(alpha) Tx(d) Rz(theta) Tz(r) of a hinge, a slide behind its beams, and a fixed frame."""
    numbers = np.random.default_rng(4).uniform(-1.0, 1.0, (3, 6)).round(3)
    rows = [[str(k + 1), k, 0, (0, 1, 2)[k], *row.tolist()] for k, row in enumerate(numbers)]
    rows[0][8], rows[1][9] = f"q1 + {numbers[0, 4]}", f"{numbers[1, 5]} + q2"
    numbers[0, 4], numbers[1, 5] = numbers[0, 4] + 0.35, numbers[1, 5] + 0.15
    beams = [[1, 1, 0.3, "tube", 0.4, -0.5, 0.6], [1, 2, 0.2, "tube", -0.7, 0.8, 0.9]]
    model = jaxmb.build_model(jaxmb.machine_from_tables("arm", rows, beams, sections={"tube": TUBE}))
    q = jaxmb.posture(model, {"q1": 0.35, "q2": 0.15})
    steps = [
        turned("z", gamma) @ moved(0, 0, b) @ turned("x", alpha) @ moved(d, 0, 0) @ turned("z", theta) @ moved(0, 0, r)
        for gamma, b, alpha, d, theta, r in numbers
    ]
    ends, pose = np.eye(4), {}
    for row in beams:
        length, phi, theta, psi = row[2], *row[4:]
        start = moved(*ends[:3, 3]) @ turned("z", phi) @ turned("y", theta) @ turned("x", psi)
        ends = start @ moved(length, 0, 0)
        pose[f"beam1_{row[1]}"] = steps[0] @ ends
    pose |= {"R1": steps[0], "R2": steps[0] @ steps[1], "R3": steps[0] @ steps[1] @ steps[2]}
    for name, expected in pose.items():
        np.testing.assert_allclose(jaxmb.frame_pose(model, q, name), expected, atol=1e-14)


def test_a_body_attached_at_the_end_of_its_beam():
    """Joint 2 is on the end of the first beam, and the post of body 2 hangs from there down to the origin of R2."""
    rows = [["1", 0, 1, 0, 0, 0, 0, 0, "q1", 0], ["2", 1, 1, 0, 0, 0, 0, 0.5, "q2", -0.3]]
    beams = [[1, 1, 0.5, "tube", 0, 0, 0], [2, 1, 0.3, "tube", 0.2, "-pi/2", 0.7], [2, 2, 0.4, "tube", 0.4, 0, 0]]
    machine = jaxmb.machine_from_tables("arm", rows, beams, sections={"tube": TUBE})
    assert [(beam.name, beam.body) for beam in machine.beam] == [
        ("beam1_1", "body1"), ("beam2_2", "body2"), ("beam2_1", "body2")
    ]  # fmt: skip
    assert [body.parent for body in machine.body] == ["ground", "beam1_1"]
    model = jaxmb.build_model(machine)
    q = jaxmb.posture(model, {"q1": 0.3, "q2": -0.8})
    second = turned("z", 0.3) @ moved(0.5, 0, -0.3) @ turned("z", -0.8)
    np.testing.assert_allclose(jaxmb.frame_pose(model, q, "R2"), second, atol=1e-14)
    foot = jaxmb.frame_pose(model, q, "beam2_1")  # as in the table, but x points down
    axes = second @ turned("z", 0.2) @ turned("y", -np.pi / 2) @ turned("x", 0.7) @ np.diag([-1.0, -1.0, 1.0, 1.0])
    np.testing.assert_allclose(foot, axes, atol=1e-14)
    far = second @ moved(0, 0, 0.3) @ turned("z", 0.4) @ moved(0.4, 0, 0)
    np.testing.assert_allclose(jaxmb.frame_pose(model, q, "beam2_2"), far, atol=1e-14)


def test_tables_beside_the_file(tmp_path):
    with open(tmp_path / "geometry.csv", "w", newline="") as file:
        csv.writer(file).writerows([HEADS, *ROWS])
    inside = load(tmp_path)
    assert load(tmp_path, TABLES | {"geometry": "geometry.csv"}) == inside


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"geometri": []}, "khalil: geometri: unknown key, did you mean 'geometry'? expected one of: geometry, beams"),
        ({"geometry": "no.csv"}, "no.csv: cannot be read"),
        ({"geometry": [["1", 0]]}, "geometry: row 1 is ['1', 0], expected joint, a, mu"),
        ({"geometry": 5}, "geometry: found 5, expected rows or the name of a CSV file"),
        ({"symbols": ["L"]}, 'khalil: symbols: found ["L"], expected a table'),
        ({"sections": {"tube": 3}}, "khalil: sections, tube: found 3, expected a table"),
        ({"loops": [["R1"]]}, 'khalil: loops number 1: found ["R1"], expected at least 2 items'),
        ({"stiffness": {"7": {"rz": 1.0}}}, "stiffness: moving joint '7' does not exist; expected one of: 1, 2"),
        (
            {"damping": {"1": {"about z": 1.0}}},
            "khalil: damping, 1, about z: found \"about z\", expected 'x', 'y', 'z'",
        ),
        ({"stiffness": {"2": {"rx": -1.0}}}, "stiffness: found -1.0, expected a number not below 0"),
        ({"geometry": [*ROWS[:2], ["2", "E", *ROWS[2][2:]], ROWS[2]]}, "geometry: joint '2' occurs twice"),
        ({"geometry": [ROWS[0], [*ROWS[1][:-2], "-q2", 0]]}, "joint 2: theta: found '-q2', expected the joint's coord"),
        ({"geometry": [ROWS[0], [*ROWS[1][:-2], "q2 - q1", 0]]}, "joint 2: theta: found 'q2 - q1', expected the joint"),
        ({"geometry": [ROWS[0], [*ROWS[1][:-1], "q2"]]}, "geometry: joint 2: r: 'q2': the symbol 'q2' has no value"),
    ],
)
def test_wrong_tables(tmp_path, change, message):
    with pytest.raises(jaxmb.InputError) as raised:
        load(tmp_path, TABLES | change)
    assert message in str(raised.value)
