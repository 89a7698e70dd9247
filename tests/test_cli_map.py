"""`jaxmb map` from a robot to zones, files and figures, and what it says of wrong input."""

import json

import numpy as np
import pytest

from jaxmb.cli import main

PLANE = ["--over", "q2=0:146 deg", "--over", "q3=-245:29 deg", "--points", "25"]


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
    assert values.shape == (25, 25) == np.shape(found["det_sign"])
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
        (["--over", "q2=0:1", "--points", "1"], "points: 1"),
        (["--over", "q2=0:1", "--plane", "zx"], "plane: 'zx'"),
        (["--over", "q2=0:1", "--good", "dexterity"], "good: found 'dexterity'"),
        (["--over", "q2=0:1", "--show", "nu_p"], "needs a wrench"),
        (["--over", "q2=0:1", "--posture", "q2=1"], "'q2' is varied"),
        ([], "over"),
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
