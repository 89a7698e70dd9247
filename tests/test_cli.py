"""The command line: exit codes, what is written, and one line for what is wrong."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import jaxmb
import jaxmb.cli.run_study
from jaxmb.cli import console, main
from jaxmb.identify.fit import loop as fit

FILES = {"result.json", "parameters.csv", "machine.toml", "machine.xml", "study.toml", "report.json", "figures"}
FREQUENCY = np.arange(1.0, 11.0)
STUDY = """
machine = "manipulator-3r"
[[test]]
kind = "frf"
file = "hammer.npz"
[free]
"stiffness.*" = { lower = 2e5, upper = 2e7 }
"""
SIMULATED = """
machine = "manipulator-3r"
rounds = 1
tolerance = 0.0
[[test]]
kind = "frf"
simulate = { lines = { first_hz = 0.2, last_hz = 30.0, step_hz = 0.2 } }
[free]
"stiffness.*" = { lower = 2e5, upper = 2e7 }
[refine]
method = "nelder-mead"
most_steps = 5
"""


def strict(path: Path) -> dict:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} in {path}")

    return json.loads(path.read_text(), parse_constant=refuse)


@pytest.fixture(scope="module")
def identified(tmp_path_factory):
    """Folder of a finished identification of validation-3r."""
    folder = tmp_path_factory.mktemp("validation") / "deep" / "out"
    assert main(["identify", "validation-3r", "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def refused(capsys):
    """Runs a command that must end with exit code 2 and one line on stderr; gives back the line."""

    def run(*arguments: str) -> str:
        assert main(list(arguments)) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.startswith("jaxmb: ")
        assert shown.err.count("\n") == 1
        assert shown.err.endswith("\n")
        return shown.err

    return run


def test_identify_writes_its_results(identified):
    assert {path.name for path in identified.iterdir()} == FILES  # no state and no temporary file is left
    result = strict(identified / "result.json")
    assert result["schema"] == 1
    assert (result["study"], result["status"], result["seed"]) == ("validation-3r", "converged", 0)
    assert set(result["parameters"]) == {f"{k}.{c}" for k in ("stiffness", "damping") for c in ("z1", "z2", "z3")}
    assert result["metrics"]["largest_parameter_error"] < 1e-6
    pictures = {path.name for path in (identified / "figures").iterdir()}
    assert {"cost.png", "parameters.png", "frf-milling-posture.png"} <= pictures
    assert not {name for name in pictures if name.startswith(("mac", "residual"))}  # of a fit without noise


def test_the_machine_written_is_the_identified_one(identified):
    found = jaxmb.parameters(jaxmb.build_model(jaxmb.load_machine(identified / "machine.toml")))
    for name, parameter in strict(identified / "result.json")["parameters"].items():
        assert found[name] == parameter["value"]


def test_the_result_is_read_back(identified):
    result = jaxmb.load_result(identified)
    assert json.loads(result.json_text()) == strict(identified / "result.json")


def test_what_is_printed(identified, capsys, tmp_path):
    # The same fit again, as output is not captured inside of a module's fixture.
    assert main(["identify", "validation-3r", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    for text in ("stiffness.z1", "N m/rad", "2.000e6", "identifiable", "10.17", "largest parameter error", "converged"):
        assert text in shown
    assert max(len(line) for line in shown.splitlines() if "written in" not in line) <= 120
    before, after = (strict(folder / "result.json") for folder in (identified, tmp_path))
    assert before["parameters"] == after["parameters"]


def test_seeds_decide_starts_and_noise(tmp_path, capsys):
    (tmp_path / "mine.toml").write_text(SIMULATED.replace("simulate = { ", "simulate = { noise_log_std = 0.1, "))
    found = []
    for number, seeds in enumerate(([], ["--noise-seed", "7"], ["--seed", "3"])):
        folder = tmp_path / str(number)
        assert main(["identify", str(tmp_path / "mine.toml"), "--out", str(folder), *seeds]) == 3
        found.append(strict(folder / "result.json"))
    assert [r["seed"] for r in found] == [0, 0, 3]
    assert found[0]["initial_cost"] != found[1]["initial_cost"]
    assert found[0]["initial_cost"] == found[2]["initial_cost"]  # the data are the same
    # What went wrong is said on stderr, and everything is written all the same.
    for line in capsys.readouterr().err.splitlines():
        assert line.startswith("jaxmb: not converged")
    assert {path.name for path in (tmp_path / "0").iterdir()} == FILES


def interrupting() -> Callable[[object], str]:
    """In place of the text on the progress: Ctrl-C at the second report."""
    seen: list[object] = []

    def stage(report: object) -> str:
        seen.append(report)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return ""

    return stage


def test_interrupted_and_resumed(identified, tmp_path, monkeypatch, capsys, refused):
    command = ["identify", "validation-3r", "--out", str(tmp_path)]
    assert main([*command, "--resume"]) == 0  # there is nothing to go on from
    assert f"no saved state in {tmp_path}" in capsys.readouterr().out
    with monkeypatch.context() as patched:
        patched.setattr(fit, "SAVE_EVERY_S", 0.0)
        patched.setattr(jaxmb.cli.run_study, "_stage", interrupting())
        assert main(command) == 130
    shown = capsys.readouterr().err
    assert "--resume" in shown
    assert shown.count("\n") == 1
    assert (tmp_path / "state.npz").exists()
    assert "another study, setting or seed" in refused(*command, "--seed", "1", "--resume")
    assert main([*command, "--resume"]) == 0
    assert not (tmp_path / "state.npz").exists()
    assert jaxmb.load_result(tmp_path / "previous-1").status == "converged"  # of the first command
    once, twice = (strict(folder / "result.json") for folder in (identified, tmp_path))
    assert once["parameters"] == twice["parameters"]
    assert once["history"] == twice["history"]


def test_a_state_that_is_none(tmp_path, refused):
    (tmp_path / "state.npz").write_bytes(b"\x00\x01 not a state")
    assert "state.npz" in refused("identify", "validation-3r", "--out", str(tmp_path), "--resume")
    assert (tmp_path / "state.npz").exists()  # it may be what the user was looking for


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("[free]", "[fre]", "did you mean 'free'"),
        ("upper", "uper", "did you mean 'upper'"),
        ("manipulator-3r", "manipulator-4r", "manipulator-4r"),
        ('"stiffness.*"', '"stifness.*"', "stifness"),
        ("lower = 2e5, upper = 2e7", "lower = 2e7, upper = 2e5", "lower bound"),
        ("lower = 2e5", "lower = 0.0", "logarithmic"),
        ("lower = 2e5", "lower = -1.0", "logarithmic"),
        ("upper = 2e7", "upper = 2e7, initial = 1e3", "outside its bounds"),
        ("upper = 2e7", "upper = nan", "finite"),
        ("[free]", 'frame = "tol"\n[free]', "frame 'tol'"),
        ("[free]", "posture = { z9 = 1.0 }\n[free]", "z9"),
        ("[free]", 'outputs = [["tool", "up"]]\n[free]', "direction"),
        ("[free]", "band_hz = [30.0, 1.0]\n[free]", "band_hz is 30 to 1 Hz"),
        ("[free]", "weights = { elsewhere = 0.0 }\n[free]", "weights are zero"),
        ('kind = "frf"\nfile = "hammer.npz"', 'kind = "torque"', "expected either file or simulate"),
        ('file = "hammer.npz"', 'file = "none.npz"', "none.npz"),
        ("machine =", "machine", "TOML"),
    ],
)
def test_wrong_study(old, new, told, tmp_path, refused):
    h = np.full((10, 3, 3), 1.0 + 1.0j)
    np.savez(tmp_path / "hammer.npz", frequency_hz=FREQUENCY, frf=h, kind="accelerance")
    (tmp_path / "mine.toml").write_text(STUDY.replace(old, new))
    line = refused("identify", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "out"))
    assert told in line
    assert "mine.toml" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"frequency_hz": FREQUENCY[::-1]}, "increasing"),
        ({"frf": np.ones((9, 3, 3))}, "frf has shape (9, 3, 3)"),
        ({"frf": np.ones((10, 2, 3))}, "has 2 outputs and 3 inputs, expected 3 and 3"),
        ({"frf": np.full((10, 3, 3), np.nan)}, "finite"),
        ({"frf": np.zeros((10, 3, 3))}, "zero"),
        ({"kind": "accelaration"}, "accelaration"),
        ({"frf": np.full((10, 3, 3), "one")}, "numbers"),
    ],
)
def test_wrong_measurement(arrays, told, tmp_path, refused):
    given = {"frequency_hz": FREQUENCY, "frf": np.ones((10, 3, 3)), "kind": "accelerance"} | arrays
    np.savez(tmp_path / "hammer.npz", **given)
    (tmp_path / "mine.toml").write_text(STUDY)
    assert told in refused("identify", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("data", [b"", b"no archive", b"PK\x03\x04 half an archive"])
def test_a_measurement_that_is_no_archive(data, tmp_path, refused):
    (tmp_path / "hammer.npz").write_bytes(data)
    (tmp_path / "mine.toml").write_text(STUDY)
    assert "hammer.npz" in refused("identify", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["identify", "validation-4r"], "validation-3r"),
        (["identify", "missing.toml"], "missing.toml"),
        (["identify", "."], "expected a file"),
        (["identify", "validation-3r", "--seed", "-1"], "--seed"),
        (["identify", "validation-3r", "--seed", "nan"], "--seed"),
        (["identify", "validation-3r", "--seed", "inf"], "--seed"),
        (["identify", "validation-3r", "--noise-seed", "1.5"], "--noise-seed"),
        (["identify", "validation-3r", "--sed", "1"], "--sed"),
        (["identfy"], "identfy"),
        (["identify"], "Missing argument 'study'; `jaxmb studies` lists"),
        (["identify", "validation-3r", "--search", "cmas"], "--search: search algorithm 'cmas' does not exist"),
        (["compensate", "manipulator-3r", "joints.csv", "--out", "."], ".: is a folder, expected a CSV file or none"),
        (["compensate", "kuka-kr90"], "Missing argument 'joints'; expected a CSV file"),
        (["predict", "kuka-kr91"], "kuka-kr90"),
        (["predict", "manipulator-3r", "--posture", "z9=1"], "z9"),
        (["predict", "manipulator-3r", "--posture", "z2=7 degrees"], "7 degrees"),
        (["predict", "manipulator-3r", "--posture", "z2"], "found 'z2', expected something like"),
        (["predict", "manipulator-3r", "--posture", "z2=1,z2=2"], "twice"),
        (["predict", "manipulator-3r", "--posture", "z9=1", "--posture", "z2=1"], "z9"),
        (["predict", "manipulator-3r", "--frame", "tol"], "tol"),
        (
            ["predict", "manipulator-3r", "--frame", "ground"],
            "frame 'ground' does not move, so that all its FRFs are zero",
        ),
        (["predict", "manipulator-3r", "--kind", "velocity"], "velocity"),
        (["predict", "manipulator-3r", "--band-hz", "30", "1"], "band_hz is 30 to 1 Hz"),
        (["predict", "manipulator-3r", "--band-hz", "1", "nan"], "band_hz is nan"),
        (["predict", "manipulator-3r", "--band-hz", "-1", "10"], "band_hz is -1.0, expected a number of at least 0"),
        (["predict", "manipulator-3r", "--animate", "4"], "mode 4: 'manipulator-3r' has no such mode, expected 1 to 3"),
        (["predict", "manipulator-3r", "--animate", "0"], "mode 0: 'manipulator-3r' has no such mode, expected 1 to 3"),
        (["predict", "manipulator-3r", "--animate", "first"], "--animate"),
    ],
)
def test_wrong_arguments(arguments, told, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    assert told in refused(*arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_binary_file_is_no_study(tmp_path, refused):
    (tmp_path / "mine.toml").write_bytes(bytes(range(256)))
    assert "UTF-8" in refused("identify", str(tmp_path / "mine.toml"))


@pytest.mark.parametrize("command", [["identify", "validation-3r"], ["predict", "manipulator-3r"]])
def test_a_folder_that_cannot_be_written(command, tmp_path, refused):
    (tmp_path / "file").write_text("here first")
    assert "cannot be written" in refused(*command, "--out", str(tmp_path / "file" / "out"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "figures").write_text("here first")
    assert "cannot be written" in refused(*command, "--out", str(tmp_path / "out"))
    (tmp_path / "other" / ("result.json" if command[0] == "identify" else "frf.npz")).mkdir(parents=True)
    assert "is a folder" in refused(*command, "--out", str(tmp_path / "other"))


def test_predict(tmp_path, capsys):
    posture = "z1=0, z2=70 deg, z3 = -100 deg"
    command = ["predict", "manipulator-3r", "--posture", posture, "--band-hz", "1", "30", "--kind", "receptance"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "replaces" not in shown
    for frequency in ("10.180", "11.243", "22.592"):  # Huynh et al. 2020, section 4, recomputed
        assert frequency in shown
    written = jaxmb.read_frf(tmp_path / "frf.npz")
    assert written.kind == "receptance"
    assert written.outputs == written.inputs == ("tool x", "tool y", "tool z")
    assert written.posture == pytest.approx({"z1": 0.0, "z2": np.radians(70.0), "z3": np.radians(-100.0)})
    assert (written.frequency_hz[0], written.frequency_hz[-1]) == (1.0, 30.0)
    model = jaxmb.build_model(jaxmb.load_machine("manipulator-3r"))
    q = jaxmb.posture(model, {"z1": 0.0, "z2": np.radians(70.0), "z3": np.radians(-100.0)})
    expected = jaxmb.frf(model, q, written.frequency_hz, kind="receptance")
    np.testing.assert_allclose(written.frf, expected, rtol=1e-12)
    assert {path.name for path in tmp_path.iterdir()} == {
        "frf.npz", "state-space.mat", "machine.xml", "report.json", "figures",
    }  # fmt: skip
    for figure in ("frf.png", "mode-shapes.png"):
        assert (tmp_path / "figures" / figure).stat().st_size > 10_000
    before = (tmp_path / "frf.npz").read_bytes()
    for k in (1, 2):  # nothing that is there is lost
        assert main([*command, "--out", str(tmp_path)]) == 0
        written = (
            "machine.xml, report.json, figures/frf.png, figures/mode-shapes.png;"
            f" the earlier result was moved to previous-{k}\n"
        )
        assert written in capsys.readouterr().out
        assert {path.name for path in (tmp_path / f"previous-{k}").iterdir()} == {
            "frf.npz",
            "state-space.mat",
            "machine.xml",
            "report.json",
            "figures",
        }
        assert (tmp_path / f"previous-{k}" / "figures" / "frf.png").exists()
    assert (tmp_path / "previous-1" / "frf.npz").read_bytes() == before


def test_predict_animates_a_mode(tmp_path, capsys):
    assert main(["predict", "manipulator-3r", "--animate", "2", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith("figures/mode-shapes.png, figures/mode-2.gif\n")
    with Image.open(tmp_path / "figures" / "mode-2.gif") as image:
        assert image.n_frames == 30


def test_predict_the_machine_of_a_result(tmp_path, capsys, refused):
    """A folder with machine.toml names the machine, as for `jaxmb map`; by default the files go into it. It is
    linearized as in the tests of the result, whose status is reported."""
    jaxmb.write_machine(jaxmb.load_machine("manipulator-3r"), tmp_path / "machine.toml")
    (tmp_path / "result.json").write_text('{"linearize_at": "equilibrium", "status": "data not followed: test"}')
    assert main(["predict", str(tmp_path), "--band-hz", "1", "30"]) == 0
    model, found = jaxmb.build_model(jaxmb.load_machine(tmp_path)), jaxmb.read_frf(tmp_path / "predict" / "frf.npz")
    expected = jaxmb.frf(model, jaxmb.reference_posture(model), found.frequency_hz, at="equilibrium")
    np.testing.assert_allclose(found.frf, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    mujoco = pytest.importorskip("mujoco").MjModel.from_xml_path(str(tmp_path / "predict" / "machine.xml"))
    at_rest = jaxmb.static_equilibrium(model, jaxmb.reference_posture(model))
    np.testing.assert_allclose(mujoco.key_qpos[0], at_rest, atol=1e-12)
    np.testing.assert_allclose(mujoco.qpos_spring, jaxmb.reference_posture(model), atol=1e-12)
    out, err = capsys.readouterr()
    assert "Modes of manipulator-3r" in out
    assert f"jaxmb: {tmp_path}: status of the identified machine: data not followed: test\n" in err
    assert {path.name for path in (tmp_path / "predict").iterdir()} == {
        "frf.npz",
        "figures",
        "state-space.mat",
        "machine.xml",
        "report.json",
    }
    assert jaxmb.load_machine(tmp_path / "predict" / "machine.xml").coordinates == ("z1", "z2", "z3")
    (tmp_path / "empty").mkdir()
    assert "a folder without machine.toml, expected a file ending in .toml or .urdf or .xml, or a folder" in refused(
        "predict", str(tmp_path / "empty")
    )


def test_predict_without_an_equilibrium(monkeypatch, refused):
    def linearize(*_):
        raise RuntimeError("no equilibrium was found")

    monkeypatch.setattr(jaxmb, "linearize", linearize)
    assert "no equilibrium" in refused("predict", "manipulator-3r")


def test_predict_takes_the_only_end_frame_of_a_urdf(tmp_path, capsys, refused):
    robots = Path(__file__).parent / "mechanics" / "robots"
    assert main(["predict", str(robots / "arm.urdf"), "--out", str(tmp_path)]) == 0
    assert "Modes of arm" in capsys.readouterr().out
    assert jaxmb.read_frf(tmp_path / "frf.npz").outputs == ("flange x", "flange y", "flange z")
    assert "expected the name of one of them" in refused("predict", str(robots / "tree.urdf"))


def test_studies(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["studies"]) == 0
    narrow = capsys.readouterr().out
    assert "…" not in narrow
    assert max(map(len, narrow.splitlines())) <= 60
    monkeypatch.delenv("COLUMNS")
    assert main(["studies"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in jaxmb.study_names())
    text = " ".join(shown.split())
    assert "Validation: six known parameters of a three-joint manipulator, from its FRFs (simulated, " in text
    assert "the four modes that were measured on the real robot (measured, " in text
    assert text.count("(measured, ") == 4
    assert text.count("s, needs JAXMB_DATA)") == 3


def test_progress_without_a_terminal(tmp_path, capsys, monkeypatch):
    """A line after two seconds and then every ten, whatever the work: here at once and every 50 ms."""
    monkeypatch.setattr(console, "FIRST_LINE_AFTER_S", 0.0)
    monkeypatch.setattr(console, "LINE_EVERY_S", 0.05)
    (tmp_path / "poses.csv").write_text("measured")
    assert main(["identify", "validation-3r", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "previous-1" / "poses.csv").read_text() == "measured"  # of the name of predicted poses
    lines = capsys.readouterr().err.splitlines()
    assert all(re.fullmatch(r"validation-3r: .*, \d+ s", line) for line in lines)
    for activity in ("reading the study", "compiling", "drawing figures"):
        assert any(line.startswith(f"validation-3r: {activity}, ") for line in lines)
    seconds = strict(tmp_path / "result.json")["seconds"]
    assert 0.0 < seconds["read"] < seconds["total"]
    assert seconds["total"] >= sum(seconds[part] for part in ("read", "compile", "search", "refine")) - 1e-6


def test_no_command_truncates_in_a_narrow_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    for command in (
        ["predict", "manipulator-3r", "--band-hz", "1", "30"],
        ["modal", str(tmp_path / "predict" / "frf.npz"), "--order", "8"],
        ["map", "manipulator-3r", "--over", "z2=0:1", "--points", "3", "--show", "frequency"],
        ["map", "kuka-kr240", "--over", "q2=0:1", "--over", "q3=-1:0", "--points", "5", "--length", "1"],
    ):
        assert main([*command, "--out", str(tmp_path / command[0])]) == 0
        shown = [line.rstrip() for line in capsys.readouterr().out.splitlines() if not line.startswith("written in")]
        assert "…" not in "".join(shown)
        assert max(map(len, shown)) <= 60


def test_as_a_program():
    """A process of its own: exit codes arrive, and no drawing is loaded for what draws nothing."""
    code = (
        "import sys; from jaxmb.cli import main; c = main(['studies']); print('matplotlib' in sys.modules); sys.exit(c)"
    )
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert listed.returncode == 0
    assert listed.stdout.endswith("False\n")
    assert listed.stderr == ""
    wrong = subprocess.run(
        [sys.executable, "-m", "jaxmb", "identify", "x"], capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2
    assert wrong.stderr.count("\n") == 1
    assert wrong.stdout == ""


def test_the_version(capsys):
    assert main(["--version"]) == 0
    version, kernel = capsys.readouterr().out.splitlines()
    assert version == f"jaxmb {jaxmb.__version__}"
    assert kernel.startswith(("FRF kernel: native, ", "FRF kernel: by JAX: "))


def test_draws_are_shown_and_written(tmp_path, capsys):
    """Draws of the stated noise and of the residual."""
    lines = "lines = { first_hz = 5.0, last_hz = 30.0, step_hz = 1.0 }, noise_log_std = 0.01, noise_seed = 1"
    study = SIMULATED.split("[refine]")[0].replace("lines = { first_hz = 0.2, last_hz = 30.0, step_hz = 0.2 }", lines)
    (tmp_path / "noisy.toml").write_text(study.replace('kind = "frf"', 'kind = "frf"\nnoise_log_std = 0.01'))
    out = tmp_path / "out"
    assert main(["identify", str(tmp_path / "noisy.toml"), "--draws", "5", "--bootstrap", "6", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "5 fits to draws of the noise" in shown
    assert "6 fits to draws of the residual" in shown
    found = jaxmb.load_result(out)
    for name, count in (("draws", 5), ("bootstrap", 6)):
        with np.load(out / f"{name}.npz") as stored:
            assert stored["values"].shape == (count, 3)
            np.testing.assert_allclose(stored["truth"][0], [p.value for p in found.parameters.values()], rtol=1e-9)


@pytest.mark.parametrize(("command", "ending"), [
    *(("modal", ending) for ending in ("npz", "csv", "uff", "mat", "toml")),
    ("identify", "toml"), ("predict", "toml"), ("predict", "urdf"),
])  # fmt: skip
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "device"])
def test_pipes_and_devices_are_refused(tmp_path, capsys, command, ending, make):
    """Opening the one, or reading the other, would never end."""
    path = tmp_path / f"data.{ending}"
    make(path)
    signal.alarm(60)
    try:
        assert main([command, str(path)]) == console.WRONG_INPUT
    finally:
        signal.alarm(0)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"jaxmb: {path}: is a pipe or a device, expected a regular file")


def test_a_folder_that_does_not_exist_has_the_closest_one(tmp_path, refused):
    (tmp_path / "robot").mkdir()
    line = refused("report", str(tmp_path / "robt"))
    assert "does not exist, did you mean 'robot'? expected the output folder of a command" in line
