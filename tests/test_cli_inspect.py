"""The command `jaxmb inspect`: what it prints and writes, and one line for what is wrong."""

import json

from jaxmb.cli import main

STUDY = """
machine = "manipulator-3r"
[[test]]
kind = "frf"
name = "arm"
simulate = { lines = { first_hz = 1.0, last_hz = 12.0, step_hz = 0.5 } }
posture = { z2 = "70 deg", z3 = "-100 deg" }
[free]
"stiffness.*" = { lower = 2e5, upper = 2e7 }
"damping.*" = { lower = 10.0, upper = 1e4 }
"damping.z1" = { lower = 10.0, upper = 1e4, needed = 0.02 }
[next]
criterion = "D"
candidates = 4
postures = { z2 = ["20 deg", "110 deg"] }
"""


def refuse(name):
    raise AssertionError(name)


def test_inspect_writes_and_prints(tmp_path, capsys):
    (tmp_path / "mine.toml").write_text(STUDY)
    assert main(["inspect", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "mine: expected standard deviations at the true values" in shown.out
    assert "for weak: damping.z1 2.0 %" in " ".join(shown.out.split())
    assert "written in" in shown.out
    data = json.loads((tmp_path / "out" / "inspect.json").read_text(), parse_constant=refuse)
    assert (data["schema"], data["study"], data["at"], data["criterion"]) == (1, "mine", "true values", "D")
    assert len(data["singular_values"]) == len(data["parameters"]) == 6
    assert data["next"]["criterion_improved"] <= data["next"]["criterion_chosen"] < data["next"]["criterion_before"]
    assert list(data["next"]["tests"][0]["posture"]) == ["z2", "z3"]
    assert {"singular-values.png", "standard-deviations.png"} <= {
        f.name for f in (tmp_path / "out" / "figures").iterdir()
    }


def test_without_a_folder_nothing_is_written(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(STUDY.split("[next]")[0])
    assert main(["inspect", "mine.toml"]) == 0
    assert "a table [next] in the study lists" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


def test_wrong_input_is_one_line(tmp_path, capsys):
    (tmp_path / "mine.toml").write_text(STUDY.replace("z2 = [", "q9 = ["))
    for arguments, message in (
        (["inspect", str(tmp_path / "mine.toml")], "[next]: posture: coordinate 'q9' does not exist"),
        (["inspect", "nothing"], "nothing"),
    ):
        assert main(arguments) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.count("\n") == 1
        assert message in shown.err
