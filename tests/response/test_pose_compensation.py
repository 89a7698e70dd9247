"""Compensated commands bring the tool of a loaded machine with deviations where the nominal one would be."""

import jax
import numpy as np
import pytest

from jaxmb.cli import main
from jaxmb.identify.parameters.model_parameters import set_parameters
from jaxmb.machine.changed import machine_of
from jaxmb.machine.file import load_machine, write_machine
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.kinematics import frame_pose
from jaxmb.mechanics.postures import build_model
from jaxmb.response.static import actual_pose, compensate, nominal_values

MACHINE = load_machine("staubli-tx40")
DEVIATIONS = {"origin.q2.x": 4e-4, "origin.q4.rx": 9e-4, "zero.q3": -2e-3, "reading_scale.q5": 1.0004,
              "frame.tool.y": 7e-4, "stiffness.q2": 2.2e4, "stiffness.q3": 1.4e4, "stiffness.q5": 3e3}  # fmt: skip
LOAD = np.array([20.0, -10.0, -60.0, 1.0, 2.0, 0.5])
POSTURES = np.array([[0.3, 0.4, 1.2, -0.5, 0.9, 0.2], [-1.0, -0.6, 1.6, 0.8, -1.1, 2.0]])


def test_closed_loop():
    """The nominal pose by the kinematics without deviations; without compensation the error is 0.5 mm and more."""
    nominal = build_model(MACHINE)
    model = set_parameters(nominal, DEVIATIONS)
    for q, command in zip(POSTURES, jax.vmap(lambda x: compensate(model, x, "tool", LOAD))(POSTURES), strict=True):
        wanted = frame_pose(nominal, q, "tool")
        assert np.linalg.norm((actual_pose(model, q, "tool", LOAD) - wanted)[:3, 3]) > 5e-4
        np.testing.assert_allclose(actual_pose(model, command, "tool", LOAD), wanted, atol=1e-9)
        np.testing.assert_allclose(nominal_values(model, command, "tool", LOAD), q, atol=1e-9)


def test_singular_posture_is_nan():
    """At q5 = 0 axes 4 and 6 are in line and a displacement across them is out of reach."""
    model = set_parameters(build_model(MACHINE), DEVIATIONS | {"origin.q5.rx": 5e-3})
    assert not np.isfinite(compensate(model, np.array([0.3, 0.4, 1.2, -0.5, 0.0, 0.2]))).all()


def test_parallel_axes_that_an_identified_tilt_makes_different():
    """Lift, three parallel axes and quill move in four directions: no command uses the tilt of 3e-4 rad as a fifth one,
    which would take motions of 0.3 m, and where the arm is straight there are fewer than four."""
    parts = [("lift", "ground", [0, 0, 0.3]), ("a", "lift", [0, 0, 0]), ("b", "a", [0.5, 0, 0.1]),
             ("c", "b", [0.4, 0, 0]), ("quill", "c", [0.1, 0, 0])]  # fmt: skip
    body = [
        {"name": name, "parent": parent, "origin": {"xyz": origin}, "mass": 1.0, "center_of_mass": [0.0, 0.0, 0.0],
         "joint": [{"name": name, "type": "revolute" if len(name) == 1 else "prismatic", "axis": [0, 0, 1]}]}
        for name, parent, origin in parts
    ]  # fmt: skip
    tool = {"name": "tool", "body": "quill", "origin": {"xyz": [0.05, 0.0, -0.1]}}
    nominal = build_model(Machine.model_validate({"name": "scara", "body": body, "frame": [tool]}))
    model = set_parameters(nominal, {"origin.b.rx": 3e-4, "origin.c.y": 1e-4})
    postures = np.random.default_rng(3).uniform([-0.2, -1.0, 0.3, -1.0, -0.2], [0.2, 1.0, 2.0, 1.0, 0.2], (8, 5))
    for q, command in zip(postures, jax.vmap(lambda x: compensate(model, x))(postures), strict=True):
        there, wanted = frame_pose(model, command, "tool"), frame_pose(nominal, q, "tool")
        assert np.max(np.abs(command - q)) < 1e-3
        np.testing.assert_allclose(there[:3, 3], wanted[:3, 3], atol=1e-9)
        np.testing.assert_allclose(there[:3, :3] @ wanted[:3, :3].T, np.eye(3), atol=3.1e-4)  # the tilt stays
    assert np.isnan(compensate(model, np.array([0.0, 0.3, 0.0, 0.0, 0.1]))).all()


def test_coordinates_without_a_drive_stay(tmp_path, capsys):
    """A gantry on an elastic foundation with an elastic tilt of its ram: no drive commands them."""
    inertia = {"mass": 50.0, "inertia_products": {"xx": 5.0, "yy": 5.0, "zz": 5.0}}
    joints = {"base": [("bz", [0, 0, 1], 1e6), ("bry", [0, 1, 0], 1e6)],
              "ram": [("x", [1, 0, 0], 1e6), ("z", [0, 0, 1], 1e6), ("ry", [0, 1, 0], 1e5)]}  # fmt: skip
    body = [
        {"name": name, "parent": parent, "origin": {"xyz": [0, 0, 1]}, **inertia, "center_of_mass": [0.2, 0, 0],
         "joint": [{"name": c, "type": "revolute" if "r" in c else "prismatic", "axis": axis, "stiffness": k}
                   for c, axis, k in joints[name]]}
        for name, parent in (("base", "ground"), ("ram", "base"))
    ]  # fmt: skip
    frame = [{"name": "tool", "body": "ram", "origin": {"xyz": [0, 0, -2]}}]
    machine = Machine.model_validate({"name": "gantry", "body": body, "frame": frame})
    model, q, drives = build_model(machine), np.array([0.0, 0.0, 0.4, 0.1, 0.0]), ["x", "z"]
    found = np.asarray(compensate(model, q, joints=drives))
    np.testing.assert_array_equal(found[[0, 1, 4]], 0.0)
    left, before = (actual_pose(model, x) - frame_pose(model, q, "tool") for x in (found, q))
    np.testing.assert_allclose(left[[0, 2], 3], 0.0, atol=1e-9)
    assert np.abs(before[[0, 2], 3]).max() > 1e-3
    np.testing.assert_allclose(nominal_values(model, found, joints=drives), q, atol=1e-9)
    write_machine(machine, tmp_path / "gantry.toml")
    (tmp_path / "path.csv").write_text("z,x\n0.1,0.4\n")
    out = tmp_path / "commands.csv"
    assert main(["compensate", str(tmp_path / "gantry.toml"), str(tmp_path / "path.csv"), "--out", str(out)]) == 0
    assert out.read_text().startswith("z,x\n")
    np.testing.assert_allclose(np.loadtxt(out, delimiter=",", skiprows=1), found[[3, 2]], atol=1e-12)
    # the tilt of the ram remains
    assert "largest displacement of tool that remains: " in capsys.readouterr().out


def test_command(tmp_path, capsys):
    model = set_parameters(build_model(MACHINE), DEVIATIONS)
    write_machine(machine_of(MACHINE, model), tmp_path / "found.toml")
    joints, out = tmp_path / "path.csv", tmp_path / "commands.csv"
    joints.write_text(",".join(model.coordinates) + "\n" + "\n".join(",".join(map(repr, q)) for q in POSTURES.tolist()))
    assert main(["compensate", str(tmp_path / "found.toml"), str(joints), "--out", str(out)]) == 0
    found = np.loadtxt(out, delimiter=",", skiprows=1)
    np.testing.assert_allclose(found, [compensate(model, q) for q in POSTURES], atol=1e-12)
    load = [str(x) for x in LOAD.tolist()]
    assert main(["compensate", str(tmp_path / "found.toml"), str(joints), "--out", str(out), "--wrench", *load]) == 0
    loaded = np.loadtxt(out, delimiter=",", skiprows=1)
    np.testing.assert_allclose(loaded, [compensate(model, q, wrench=LOAD) for q in POSTURES], atol=1e-12)
    np.savetxt(out, found, "%.17g", ",", header=",".join(model.coordinates), comments="")
    back = tmp_path / "new" / "back.csv"
    assert main(["compensate", str(tmp_path / "found.toml"), str(out), "--out", str(back), "--reverse"]) == 0
    np.testing.assert_allclose(np.loadtxt(back, delimiter=",", skiprows=1), POSTURES, atol=1e-9)
    said = capsys.readouterr().out
    assert "2 postures written" in said
    assert "remark" not in said
    assert main(["compensate", str(tmp_path / "found.toml"), str(out), "--out", str(out), "--reverse"]) == 2
    assert "commands.csv: is the file of the postures, expected another --out" in capsys.readouterr().err
    assert main(["compensate", str(tmp_path / "found.toml"), str(out), "--out", str(out / "there.csv")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    name = model.coordinates[0]
    write_machine(machine_of(MACHINE, set_parameters(model, {f"zero.{name}": 0.5})), tmp_path / "found.toml")
    assert main(["compensate", str(tmp_path / "found.toml"), str(joints), "--out", str(out)]) == 0
    assert f"remark: the zero of {name}, 0.5 (rad or m), is compensated as an error" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q1,q9\n0,0\n", "'q9' does not exist"),
        ("q1\n", "found 1 lines"),
        ("q1\nabc\n", "line 2: q1 is 'abc', expected a finite number"),
        ("q1\nnan\n", "line 2: q1 is 'nan', expected a finite number"),
        ("q1,q2\n1,2\n45,90\n", "line 3: q1 is 45 rad, expected at most 12.57 rad, is it in deg?"),
        ("q1,q1\n0,1\n", "column 'q1' occurs twice, expected it once"),
    ],
)
def test_wrong_files(tmp_path, capsys, text, message):
    (tmp_path / "path.csv").write_text(text)
    assert main(["compensate", "staubli-tx40", str(tmp_path / "path.csv")]) == 2
    assert message in capsys.readouterr().err
