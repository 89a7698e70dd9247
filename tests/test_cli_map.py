"""`jaxmb map` from a robot to zones, files and figures, and what it says of wrong input."""

import json
from pathlib import Path

import numpy as np
import pytest

from jaxmb.cli import main

PLANE = ["--over", "q2=0:146 deg", "--over", "q3=-245:29 deg", "--points", "11"]


def mapped(tmp_path, *options):
    assert main(["map", "kuka-kr240", *PLANE, "--out", str(tmp_path), *options]) == 0
    text = (tmp_path / "map.json").read_text()
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in map.json"))


def test_zones_files_and_figures(tmp_path, capsys):
    found = mapped(tmp_path, "--posture", "q1=10 deg", "--length", "1.0", "--good", "dexterity=0.39", "--shown", "q6")
    assert found["settings"]["length_m"] == 1.0
    assert found["held"]["q1"] == pytest.approx(np.radians(10))
    assert found["shown"] == "q6"
    values = np.array(found["maps"]["dexterity"]["values"])
    assert values.shape == (11, 11) == np.shape(found["det_sign"])
    zones = found["maps"]["dexterity"]["zones"]
    assert sum(zone["points"] for zone in zones) <= np.sum(values >= 0.39)
    assert zones[0]["reaches"]["q2"][0] == 0.0
    for name in ("dexterity-joints", "dexterity-workspace"):
        assert (tmp_path / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "Z1" in capsys.readouterr().out


def test_options_change_what_they_say(tmp_path):
    found = mapped(tmp_path, "--show", "nu_r", "--show", "stiffness", "--wrench", *["0", "0", "-1000", "0", "0", "0"],
                   "--direction", "1", "0", "0", "--plane", "xy", "--frame", "q6")  # fmt: skip
    assert list(found["maps"]) == ["nu_r", "stiffness"]
    assert found["settings"]["wrench"] == [0, 0, -1000, 0, 0, 0]
    assert found["settings"]["direction"] == [1, 0, 0]
    assert found["frame"] == "q6"
    assert not found["maps"]["nu_r"]["higher_is_better"]
    assert (tmp_path / "figures" / "stiffness-workspace.png").exists()


def test_wrong_input(tmp_path, capsys):
    good = ["map", "kuka-kr240", "--out", str(tmp_path)]
    for options, sentence in [
        (["--over", "q2"], "over: found 'q2'"),
        (["--over", "q2=0:b"], "over: q2: found 'b'"),
        (["--over", "q2=2:1"], "expected the lower end first"),
        (["--over", "q2=0:1", "--over", "q2=0:1"], "over: 'q2' is given twice"),
        (["--over", "q9=0:1"], "over: coordinate 'q9' does not exist"),
        (["--over", "q2=0:146"], "exceeds a full turn in rad; degrees? write '0:146 deg'"),
        (["--over", "q2=0:400 deg"], "q2: found '0:400 deg', which exceeds a full turn"),
        (["--over", "q2=0:146", "--show", "damping"], "degrees? write"),
        (["--over", "q2=0:1", "--directions", "x,w"], "directions: component 'w'"),
        (["--over", "q2=0:1", "--joints", "q9"], "joints: coordinate 'q9'"),
        (["--over", "q2=0:1", "--show", "damping", "--directions", "x"], "directions: not used by a map of damping"),
        (["--over", "q2=0:1", "--points", "1"], "points is 1"),
        (["--over", "q2=0:1", "--plane", "zx"], "plane: 'zx'"),
        (["--over", "q2=0:1", "--plane", "xz"], "plane: not used by a map over one coordinate"),
        (["--over", "q2=0:1", "--good", "dexterity"], "good: found 'dexterity', expected something like"),
        (["--over", "q2=0:1", "--good", "dexterity=1", "--good", "dexterity=2"], "good: 'dexterity' is given twice"),
        (["--over", "q2=0:1", "--show", "freq"], "least_stiffness, greatest_stiffness, frequency, damping, "),
        (["--over", "q2=0:1", "--show", "nu_p"], "needs a wrench"),
        (["--over", "q2=0:1", "--posture", "q2=1"], "held: coordinate 'q2'"),
        ([], "over"),
        (["--over", "q2=0:1", "--show", "frequency", "--show", "dexterity"], "show: 'frequency' and 'dexterity'"),
        (["--over", "q2=0:1", "--modes", "2"], "modes: not used by a map of dexterity"),
        (["--over", "q2=0:1", "--show", "damping", "--good", "x=1"], "good: not used by a map of damping"),
        (["--over", "q2=0:1", "--show", "least_stiffness", "--wrench", *"001000"], "wrench: not used by a map of"),
        (["--over", "q2=0:1", "--show", "damping", "--direction", *"001"], "direction: not used by a map of damping"),
        (["--over", "q2=0:1", "--show", "least_stiffness", "--length", "1"], "length: not used by a map of least"),
        (["--over", "q2=0:1", "--path", "q2=0:1", "--show", "damping"], "path: found 'over' as well"),
        (["--path", "q2=0", "--show", "damping"], "path: found 'q2=0'"),
        (["--over", "tool.x=0:5 deg", "--show", "damping"], "but it is a position, expected metres"),
        (["--over", "q2=0:1", "--show", "damping", "--limits", "q2=1:0"], "limits: q2: found '1:0'"),
        (["--over", "q2=0:1", "--show", "damping", "--limits", "q2=0:1"], "limits: apply only to positions"),
    ]:
        assert main([*good, *options]) == 2
        said = capsys.readouterr().err
        assert sentence in said
        assert said.count("\n") == 1
    slide = tmp_path / "slide.toml"
    joint = '[[body.joint]]\nname = "s"\ntype = "prismatic"\naxis = [1.0, 0.0, 0.0]\n'
    slide.write_text(f'name = "slide"\n[[body]]\nname = "b"\n{joint}')
    assert main(["map", str(slide), "--over", "s=0:5 deg", "--frame", "b"]) == 2
    assert "expected metres" in capsys.readouterr().err


def test_figures_of_an_earlier_map_do_not_stay(tmp_path, capsys):
    load = ["--wrench", "0", "0", "-1000", "0", "0", "0", "--length", "1"]
    mapped(tmp_path, "--show", "dexterity", "--show", "nu_p", *load)
    figures = tmp_path / "figures"
    for name in ("damping.png", "mine.png"):  # of a modal map, and of nobody's
        (figures / name).write_bytes(b"")
    assert len(list(figures.iterdir())) == 6
    assert main(["map", "kuka-kr240", "--over", "q2=0:1", "--length", "1", "--out", str(tmp_path), "--points", "5",
                 "--good", "dexterity=0.999"]) == 0  # fmt: skip
    assert [path.name for path in figures.iterdir()] == ["dexterity-joints.png"]
    assert len(list((tmp_path / "previous-1" / "figures").iterdir())) == 6
    said = capsys.readouterr().out
    assert said.endswith(
        "map.json, report.json, figures/dexterity-joints.png; the earlier result was moved to previous-1\n"
    )
    assert said.count("moved") == 1  # not of the first
    assert "no zone: the best posture has 0." in said
    assert sum(line.split()[:1] == ["zone"] for line in said.splitlines()) == 2  # tables of the first command's maps


def test_a_dexterity_without_a_best_length(tmp_path, capsys):
    """Three joints judged by six directions; by two of translation it has no part."""
    plane = ["map", "manipulator-3r", "--over", "z2=-2:2", "--over", "z3=-2:2", "--points", "9", "--out", str(tmp_path)]
    assert main(plane) == 0
    said = capsys.readouterr().out
    assert "length: 0.001 m is an end of the search" in said
    assert "--directions" in said
    assert main([*plane, "--directions", "x,z", "--joints", "z2,z3"]) == 0
    assert "end of the search" not in capsys.readouterr().out
    settings = json.loads((tmp_path / "map.json").read_text())["settings"]
    assert settings == {"length_m": 1.0, "joints": ["z2", "z3"], "directions": ["x", "z"]}


ARM = """name = "arm"
[[body]]
name = "a"
mass = 3.0
center_of_mass = [0.2, 0.0, 0.0]
joint = [{ name = "p", axis = [0.0, 0.0, 1.0], stiffness = 4e3, damping = 9.0 }]
[[body]]
name = "c"
parent = "a"
mass = 2.0
origin = { xyz = [0.6, 0.0, 0.0] }
center_of_mass = [0.2, 0.0, 0.0]
joint = [{ name = "r", axis = [0.0, 0.0, 1.0], stiffness = 2e3, damping = 4.0 }]
[[frame]]
name = "tool"
body = "c"
origin = { xyz = [0.5, 0.0, 0.0] }
"""
NAMES = ["stiffness.p", "stiffness.r", "damping.p", "damping.r"]


def write_result(folder, machine, names, variances):
    """Of what `jaxmb identify` writes what a map reads; `tests/maps/modal` maps a whole result."""
    (folder / "machine.toml").write_text(machine)
    covariance = {"names": names, "tied": [[name] for name in names], "scale": ["log"] * len(names),
                  "matrix": np.diag(variances).tolist()}  # fmt: skip
    parameters = {name: {"lower": 1e-3, "upper": 1e5} for name in names}
    told = {"linearize_at": "posture", "parameters": parameters, "covariance": covariance}
    (folder / "result.json").write_text(json.dumps(told))
    return folder


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A result of a small arm."""
    return write_result(tmp_path_factory.mktemp("arm"), ARM, NAMES, [1e-6, 1e-6, 1e-4, 1e-4])


def modal_map(folder):
    return json.loads((folder / "map.json").read_text(), parse_constant=lambda name: pytest.fail(name))


def test_a_result_is_mapped_with_its_uncertainty(saved, capsys):
    """Over places of the tool, some out of reach, which are null; by default in the result's own folder."""
    options = ["--over", "tool.x=0.7:1.3", "--over", "tool.y=-0.2:0.2", "--posture", "r=0.5", "--points", "7"]
    shows = [part for name in ("frequency", "static_compliance", "dynamic_compliance") for part in ("--show", name)]
    assert main(["map", str(saved), *options, *shows, "--modes", "1", "--direction", "0", "1", "0"]) == 0
    said = capsys.readouterr().out
    assert "positions are not reached" in said
    found = modal_map(saved / "map")
    assert list(found["over"]) == ["tool.x", "tool.y"]
    reached = np.array(found["reached"])
    assert 0 < reached.sum() < 49
    for name, shape in (("frequency", (7, 7, 1)), ("static_compliance", (7, 7)), ("dynamic_compliance", (7, 7))):
        for part in ("values", "std"):
            numbers = np.array(found["maps"][name][part], dtype=float)
            assert numbers.shape == shape
            np.testing.assert_array_equal(np.isfinite(numbers.reshape(7, 7)), reached)
            assert np.all(numbers[reached] > 0.0)
        assert (saved / "map" / "figures" / f"{name.replace('_', '-')}.png").read_bytes().startswith(b"\x89PNG")
    assert np.shape(found["postures"]["p"]) == (7, 7)
    assert np.shape(found["peak_hz"]) == (7, 7)


def test_a_path_of_a_machine(saved, tmp_path):
    """A machine alone has no uncertainty; limits and band change what they say."""
    arm = saved / "machine.toml"
    assert main(["map", str(arm), "--path", "tool.x=1.0:0.7,tool.y=0:0.1", "--posture", "r=0.5", "--points", "9",
                 "--show", "damping", "--show", "dynamic_compliance", "--out", str(tmp_path), "--modes", "2",
                 "--limits", "r=0:1.5", "--joints", "p,r", "--band-hz", "1", "2"]) == 0  # fmt: skip
    found = modal_map(tmp_path)
    assert found["path_m"][-1] == pytest.approx(np.hypot(0.3, 0.1))
    assert found["maps"]["damping"]["std"] is None
    reached = np.array(found["reached"])
    assert reached[0]
    assert not reached[-1]  # the elbow would be at more than 1.5 rad
    assert np.nanmax(np.array(found["peak_hz"], dtype=float)) <= 2.0
    assert (tmp_path / "figures" / "damping.png").exists()


def test_the_only_end_frame_of_a_urdf(tmp_path, capsys):
    robots = Path(__file__).parent / "mechanics" / "robots"
    options = ["--over", "axis2=-1:1", "--points", "5", "--length", "1", "--out", str(tmp_path)]
    assert main(["map", str(robots / "arm.urdf"), *options]) == 0
    found = modal_map(tmp_path)
    assert found["frame"] == found["shown"] == "flange"
    assert main(["map", str(robots / "tree.urdf"), "--over", "q=0:1"]) == 2
    assert "expected the name of one of them" in capsys.readouterr().err


def test_a_folder_that_is_no_result(saved, tmp_path, capsys):
    (tmp_path / "machine.toml").write_text(ARM)
    options = ["--over", "r=0:1", "--points", "3", "--out", str(tmp_path / "out")]
    assert main(["map", str(tmp_path), *options, "--show", "frequency", "--modes", "2"]) == 2
    assert "result.json: cannot be read" in capsys.readouterr().err


def rod(name, parent, joint, length, x=0.0):
    return f"""[[body]]
name = "{name}"
parent = "{parent}"
mass = 1.0
origin = {{ xyz = [{x}, 0.0, 0.0] }}
center_of_mass = [{length / 2}, 0.0, 0.0]
joint = [{{ {joint} }}]
[[frame]]
name = "{name}-end"
body = "{name}"
origin = {{ xyz = [{length}, 0.0, 0.0] }}
"""


FIVE_BAR = "\n".join([
    'name = "five-bar"',
    "posture = { a = 2.0, b = -1.36, c = 1.1, d = 1.39 }",
    rod("left", "ground", 'name = "a", stiffness = 2e3, damping = 2.0, loss_factor = 0.05', 0.3),
    rod("left-rod", "left", 'name = "b"', 0.6, 0.3),
    rod("right", "ground", 'name = "c", stiffness = 3e3, damping = 3.0', 0.3, 0.7),
    rod("right-rod", "right", 'name = "d"', 0.6, 0.3),
    '[[loop]]\nname = "closure"\nframe_a = "left-rod-end"\nframe_b = "right-rod-end"',
])  # fmt: skip


def test_maps_of_a_closed_chain(tmp_path, capsys):
    """A result with a loss factor over places, then over both drives: what is out of reach is null, and told."""
    folder = write_result(tmp_path, FIVE_BAR, ["stiffness.a", "stiffness.c", "loss_factor.a"], [1e-4, 1e-4, 1e-2])
    frame = ["--frame", "left-rod-end"]
    over = ["--over", "left-rod-end.x=-0.2:0.9", "--over", "left-rod-end.y=0.3:1", "--points", "8"]
    shows = [part for name in ("frequency", "damping", "dynamic_compliance") for part in ("--show", name)]
    assert main(["map", str(folder), *over, *shows, *frame]) == 0
    assert "positions are not reached from the start posture" in capsys.readouterr().out
    found = modal_map(folder / "map")
    reached = np.array(found["reached"])
    assert 0 < reached.sum() < 64
    assert list(found["postures"]) == ["a", "b", "c", "d"]
    for name in ("frequency", "damping", "dynamic_compliance"):
        for part in ("values", "std"):
            numbers = np.array(found["maps"][name][part], dtype=float)
            np.testing.assert_array_equal(np.isfinite(numbers.reshape(8, 8, -1)).any(axis=-1), reached)
    machine = str(folder / "machine.toml")
    drives = ["--over", "a=30:240 deg", "--over", "c=-60:150 deg", "--points", "9", "--directions", "x,y", *frame]
    out = tmp_path / "drives"
    assert main(["map", machine, *drives, "--show", "dexterity", "--show", "stiffness",
                 "--direction", "0", "1", "0", "--out", str(out)]) == 0  # fmt: skip
    assert "postures are not reached from the start posture" in capsys.readouterr().out
    found = modal_map(out)
    known = np.isfinite(np.array(found["maps"]["stiffness"]["values"], dtype=float))
    assert 0 < known.sum() < 81
    np.testing.assert_array_equal(np.isfinite(np.array(found["det_sign"], dtype=float)), known)
    for name in ("dexterity-joints", "dexterity-workspace", "stiffness-workspace"):
        assert (out / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert main(["map", machine, "--over", "a=30:240 deg", "--show", "nu_p", "--wrench", *"000000", *frame]) == 2
    assert "a map of 'nu_p': 'five-bar' has loops" in capsys.readouterr().err
