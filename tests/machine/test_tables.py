"""Denavit-Hartenberg tables against products of NumPy matrices and known arms."""

import numpy as np
import pytest

from jaxmb.io.validation import InputError
from jaxmb.machine.elements import origin_matrix
from jaxmb.machine.file import load_machine, write_machine
from jaxmb.machine.tables import machine_from_dh
from jaxmb.mechanics.dynamics import mass_matrix
from jaxmb.mechanics.kinematics import frame_pose
from jaxmb.mechanics.postures import build_model, posture

PI = np.pi
# Corke's PUMA 560, standard: alpha, a, d.
PUMA = [(PI / 2, 0, 0), (0, 0.4318, 0), (-PI / 2, 0.0203, 0.15005), (PI / 2, 0, 0.4318), (-PI / 2, 0, 0), (0, 0, 0)]
# The same arm after Craig, modified: alpha and a of the link before, d.
PUMA_CRAIG = [
    (0, 0, 0),
    (-PI / 2, 0, 0),
    (0, 0.4318, 0.15005),
    (-PI / 2, -0.0203, 0.4318),
    (PI / 2, 0, 0),
    (-PI / 2, 0, 0),
]
# Stanford arm, standard; the third coordinate is prismatic.
STANFORD = [(-PI / 2, 0, 0.4), (PI / 2, 0, 0.15), (0, 0, 0), (-PI / 2, 0, 0), (PI / 2, 0, 0), (0, 0, 0.26)]


def rows(table, prismatic=(), **more):
    return [
        {"name": f"j{i + 1}", "alpha": alpha, "a": a, "d": d, "type": "prismatic" if i in prismatic else "revolute"}
        | {key: values[i] for key, values in more.items()}
        for i, (alpha, a, d) in enumerate(table)
    ]


def rx(a):
    return np.array([[1, 0, 0, 0], [0, np.cos(a), -np.sin(a), 0], [0, np.sin(a), np.cos(a), 0], [0, 0, 0, 1]])


def rz(a):
    return np.array([[np.cos(a), -np.sin(a), 0, 0], [np.sin(a), np.cos(a), 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])


def shift(x, z):
    return np.array([[1, 0, 0, x], [0, 1, 0, 0], [0, 0, 1, z], [0, 0, 0, 1.0]])


def product(table, q, convention, prismatic=(), theta=None):
    """Poses of all DH frames, by the definition of the convention."""
    pose, poses = np.eye(4), []
    for i, (alpha, a, d) in enumerate(table):
        angle = (0.0 if theta is None else theta[i]) + (0.0 if i in prismatic else q[i])
        length = d + (q[i] if i in prismatic else 0.0)
        joint, link = rz(angle) @ shift(0, length), shift(a, 0) @ rx(alpha)
        pose = pose @ (joint @ link if convention == "standard" else link @ joint)
        poses.append(pose)
    return poses


@pytest.mark.parametrize(
    ("table", "convention", "prismatic"),
    [(PUMA, "standard", ()), (PUMA_CRAIG, "modified", ()), (STANFORD, "standard", (2,)), (STANFORD, "modified", (2,))],
    ids=["puma", "puma after Craig", "stanford", "stanford read as modified"],
)
def test_forward_kinematics(table, convention, prismatic):
    theta = [0.3, -1.2, 2.0, 0.0, 0.7, -0.4]
    model = build_model(machine_from_dh("arm", rows(table, prismatic, theta=theta), convention))
    assert model.coordinates == tuple(f"j{i}" for i in range(1, 7))
    for q in np.random.default_rng(0).uniform(-3, 3, (4, 6)):
        expected = product(table, q, convention, prismatic, theta)
        for i in (0, 2, 5):
            # Rounding of products of six matrices with entries of a few metres.
            np.testing.assert_allclose(frame_pose(model, q, f"j{i + 1}_dh"), expected[i], atol=1e-13)


def test_both_pumas_are_the_same_arm():
    standard = build_model(machine_from_dh("a", rows(PUMA), "standard"))
    craig = build_model(machine_from_dh("b", rows(PUMA_CRAIG), "modified"))
    # Corke: at the zero posture the wrist is at (0.4521, -0.15005, 0.4318).
    np.testing.assert_allclose(
        frame_pose(standard, np.zeros(6), "j6_dh")[:3, 3], [0.4521, -0.15005, 0.4318], atol=1e-12
    )
    # Craig counts joints 2 and 3 the other way round, joint 3 from the forearm folded back, and has the shoulder's
    # offset on the other side: height and distance from the column stay the same.
    q = np.array([0.4, 0.5, -0.8, 0.1, 0.2, 0.3])
    x, y, z = np.asarray(frame_pose(standard, q, "j6_dh"))[:3, 3]
    u, v, w = np.asarray(frame_pose(craig, np.array([0.4, -0.5, PI + 0.8, 0.1, 0.2, 0.3]), "j6_dh"))[:3, 3]
    np.testing.assert_allclose([u**2 + v**2, w], [x**2 + y**2, z], atol=1e-12)


def test_stanford_arm_by_hand():
    """Paul: the hand at d3 along the boom, the shoulder d2 aside, the column d1 high; here with the boom horizontal."""
    model = build_model(machine_from_dh("stanford", rows(STANFORD, (2,))))
    q = posture(model, {"j2": PI / 2, "j3": 0.9})
    np.testing.assert_allclose(frame_pose(model, q, "j6_dh")[:3, 3], [0.9 + 0.26, 0.15, 0.4], atol=1e-13)


@pytest.mark.parametrize("convention", ["standard", "modified"])
def test_parts_on_a_dh_frame(convention):
    """The origin of a frame, and of a body and its joint, is in the axes of the row's DH frame."""
    origin = {"xyz": [0.3, -0.2, 0.1], "rpy": [0.5, -0.4, 0.9]}
    more = {"body": [{"name": "hand", "parent": "j2_dh", "origin": origin, "joint": [{"name": "grip"}]}],
            "frame": [{"name": "eye", "body": "j1_dh", "origin": origin}]}  # fmt: skip
    model = build_model(machine_from_dh("arm", rows(PUMA[2:4]), convention, **more))
    q = np.array([0.4, -0.7, 0.6])
    own, poses = origin_matrix(origin), product(PUMA[2:4], q[:2], convention)
    np.testing.assert_allclose(frame_pose(model, q, "eye"), poses[0] @ own, atol=1e-14)
    np.testing.assert_allclose(frame_pose(model, q, "hand"), poses[1] @ own @ rz(0.6), atol=1e-14)


MASS = {"mass": 3.0, "center_of_mass": [-0.2, 0.1, 0.05]}
TENSOR = [[0.3, 0.02, -0.01], [0.02, 0.4, 0.03], [-0.01, 0.03, 0.35]]


@pytest.mark.parametrize("convention", ["standard", "modified"])
def test_mass_data_are_in_the_rows_dh_frame(convention):
    """Kinetic energy from the DH frames alone: their poses by products, velocities by central differences."""
    table = STANFORD[:3]
    some = [row | MASS | {"inertia_tensor": TENSOR} for row in rows(table, (2,))]
    model = build_model(machine_from_dh("arm", some, convention))
    q, step = np.array([0.4, -0.7, 0.5]), 1e-6
    expected = np.zeros((3, 3))
    poses = product(table, q, convention, (2,))
    for k, pose in enumerate(poses):
        centre, spin = np.zeros((3, 3)), np.zeros((3, 3))
        for j in range(3):
            ahead, behind = (product(table, q + s * step * np.eye(3)[j], convention, (2,))[k] for s in (1, -1))
            change = (ahead - behind) / (2 * step)
            centre[:, j] = (change @ [*MASS["center_of_mass"], 1.0])[:3]
            cross = pose[:3, :3].T @ change[:3, :3]
            spin[:, j] = [cross[2, 1], cross[0, 2], cross[1, 0]]
        expected += MASS["mass"] * centre.T @ centre + spin.T @ np.array(TENSOR) @ spin
    # Central differences with a step of 1e-6 leave 1e-10.
    np.testing.assert_allclose(mass_matrix(model, q), expected, atol=1e-8)


def test_products_of_inertia_mean_the_same_as_the_tensor():
    products = {"xx": 0.3, "yy": 0.4, "zz": 0.35, "xy": -0.02, "xz": 0.01, "yz": -0.03}
    row = {"name": "j", "a": 0.4, "alpha": 0.7} | MASS
    a = machine_from_dh("a", [row | {"inertia_tensor": TENSOR}])
    b = machine_from_dh("a", [row | {"inertia_products": products}])
    assert a == b


TEXT = """
name = "scara"
posture = { elbow = "30 deg" }

[dh]
convention = "modified"
origin = { xyz = [0.0, 0.0, 0.5] }

[[dh.row]]
name = "shoulder"
stiffness = 1e5
damping = 20.0
mass = 10.0
center_of_mass = [0.2, 0.0, 0.0]

[[dh.row]]
name = "elbow"
a = 0.4
mass = 5.0

[[dh.row]]
name = "quill"
type = "prismatic"
a = 0.3
alpha = "180 deg"
rotor_inertia = 2.0

[[body]]
name = "gripper"
parent = "quill_dh"
origin = { xyz = [0.0, 0.0, 0.1] }
mass = 0.5

[[frame]]
name = "tool"
body = "quill_dh"
origin = { xyz = [0.0, 0.0, 0.2] }

[[frame]]
name = "camera"
body = "gripper"

[[payload]]
name = "part"
frame = "tool"
mass = 1.0
"""


def test_table_in_a_file(tmp_path):
    path = tmp_path / "scara.toml"
    path.write_text(TEXT)
    machine = load_machine(path)
    model = build_model(machine)
    assert model.coordinates == ("shoulder", "elbow", "quill")
    assert model.frames == (
        *("ground", "shoulder", "elbow", "quill", "gripper"),
        *("shoulder_dh", "elbow_dh", "quill_dh", "tool", "camera"),
    )
    np.testing.assert_allclose(model.stiffness, [1e5, 0, 0])
    np.testing.assert_allclose(model.damping, [20, 0, 0])
    np.testing.assert_allclose(model.rotor_inertia, [0, 0, 2])
    q = posture(model, {"shoulder": 0.0, "elbow": PI / 2, "quill": 0.25})
    # The quill's axis points down; the table's frame 0 stands half a metre high.
    np.testing.assert_allclose(frame_pose(model, q, "tool")[:3, 3], [0.4, 0.3, 0.5 - 0.25 - 0.2], atol=1e-13)
    np.testing.assert_allclose(frame_pose(model, q, "camera")[:3, 3], [0.4, 0.3, 0.5 - 0.25 - 0.1], atol=1e-13)
    write_machine(machine, tmp_path / "copy.toml")
    assert load_machine(tmp_path / "copy.toml") == machine


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('convention = "modified"', "", "dh: convention: missing, expected a value"),
        ('"modified"', '"craig"', "dh: convention: found \"craig\", expected 'standard' or 'modified'"),
        ("a = 0.4", "r = 0.4", "dh: row 'elbow', r: unknown key; expected one of: name, mass"),
        ("a = 0.4", 'a = "0.4"', "dh: row 'elbow', a: found \"0.4\", expected a number"),
        ("a = 0.4", "a = nan", "dh: row 'elbow', a: found NaN, expected a finite number"),
        ('"180 deg"', '"180"', "dh: row 'quill', alpha: found \"180\", expected a number in radians or a text"),
        ('"prismatic"', '"linear"', "dh: row 'quill', type: found \"linear\", expected 'revolute' or 'prismatic'"),
        ("mass = 10.0", "mass = -1.0", "dh: row 'shoulder', mass: found -1.0, expected a number not below 0"),
        (
            "mass = 5.0",
            "mass = 5.0\ninertia_products = { xx = 1.0, yy = 1.0, zz = 3.0 }",
            "dh: row 'elbow': has principal moments of inertia 1, 1, 3 kg m^2",
        ),
        (
            'type = "prismatic"',
            'type = "prismatic"\nrange = ["-10 deg", 0.1]',
            "range is an angle, expected a number in m, since the coordinate is prismatic",
        ),
        ('name = "elbow"\n', "", "dh: row number 2, name: missing, expected a value"),
        ('name = "elbow"', 'name = "shoulder"', "the body or frame name 'shoulder' is used twice, expected each once"),
        ('name = "gripper"', 'name = "elbow_dh"', "the body or frame name 'elbow_dh' is used twice"),
        ('body = "quill_dh"', 'body = "quil_dh"', "frame 'tool': body 'quil_dh' does not exist, did you mean 'quill'"),
        ("origin = { xyz = [0.0, 0.0, 0.2] }", "origin = 3", "frame 'tool', origin: found 3, expected a table"),
        ("origin = { xyz = [0.0, 0.0, 0.5] }", 'parent = "table"', "body 'shoulder': parent 'table' does not exist"),
    ],
)
def test_wrong_tables(old, new, message, tmp_path):
    assert old in TEXT
    path = tmp_path / "scara.toml"
    path.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(InputError) as refused:
        load_machine(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert message in str(refused.value)


def test_wrong_tables_in_python():
    with pytest.raises(
        ValueError, match=r"machine 'arm': dh: row 'j', alpha: found \"x\", expected a number in radians"
    ):
        machine_from_dh("arm", [{"name": "j", "alpha": "x"}])
    with pytest.raises(ValueError, match=r"machine 'arm': dh: row: found \[\], expected at least 1 item"):
        machine_from_dh("arm", [])
    with pytest.raises(ValueError, match=r"machine 'arm': dh: convention: found \"dh\", expected 'standard' or 'modi"):
        machine_from_dh("arm", [{"name": "j"}], "dh")
    with pytest.raises(ValueError, match="machine 'arm': gravty: unknown key, did you mean 'gravity'"):
        machine_from_dh("arm", [{"name": "j"}], gravty=[0, 0, 0])


def test_motors_of_rows(tmp_path):
    motors = [{"inertia": 2e-4, "ratio": 60.0 + i, "name": f"m{i + 1}"} for i in range(6)]
    machine = machine_from_dh("puma", rows(PUMA, motor=motors, stiffness=[1e4] * 6), "standard")
    assert machine.coordinates[6:] == ("m1", "m2", "m3", "m4", "m5", "m6")
    write_machine(machine, tmp_path / "puma.toml")
    assert load_machine(tmp_path / "puma.toml") == machine
    with pytest.raises(InputError, match="'j1' has a motor and no stiffness"):
        machine_from_dh("puma", rows(PUMA, motor=motors), "standard")
