"""Contents of files that would control a terminal reach it as escape sequences, in whichever message they stand."""

import re

import numpy as np
import pytest

from jaxmb.cli import main

HOSTILE = "[red]\x1b]0;owned\x07\x1b[2J\x9b31m\r\u202e\nforged: line"
QUOTED = '"[red]\\u001b]0;owned\\u0007\\u001b[2J\\u009b31m\\r\\u202e\\nforged: line"'
"""The same in TOML."""
MACHINE = """name = {name}
[[body]]
name = "arm"
joint = [{{ name = {joint}, axis = [0.0, 1.0, 0.0], stiffness = 1e4, damping = 5.0 }}]
mass = 5.0
center_of_mass = [0.3, 0.0, 0.0]
inertia = {{ xx = 0.1, yy = 0.2, zz = 0.2 }}
[[frame]]
name = {frame}
body = "arm"
origin = {{ xyz = [0.6, 0.0, 0.0] }}
"""
STUDY = """machine = {machine}
description = {text}
source = {text}
rounds = 1
refine = {{ starts = 1, coarse_lines = 0 }}
[[test]]
kind = {kind}
name = {text}
simulate = {{ lines = {{ first_hz = 1.0, last_hz = 20.0, step_hz = 0.5 }} }}
outputs = [["tool", "z"]]
{more}
[free]
{free} = {{ lower = 1e3, upper = 1e5 }}
"""
URDF = '<robot name="&#10;{0}"><link name="{0}"/><joint name="{0}" type="{0}"><child link="b"/></joint></robot>'
PLAIN = {"name": '"plain"', "joint": '"j"', "frame": '"tool"'}
OF_STUDY = {"machine": '"arm.toml"', "text": '"test"', "kind": '"frf"', "more": "", "free": '"stiffness.*"'}
FRFS = {"frequency_hz": np.arange(1.0, 40.0), "frf": np.full((39, 1, 1), 1.0 + 1.0j), "kind": "accelerance",
        "outputs": ["tool z"], "inputs": ["tool z"]}  # fmt: skip


def no_control(capsys):
    output = "".join(capsys.readouterr())
    assert output.strip()
    found = {c for c in output if not c.isprintable() and c != "\n"}
    assert not found, output
    assert not re.search(r"^\W*forged: line", output, re.MULTILINE), output


@pytest.mark.filterwarnings("ignore:Glyph")  # of figures
@pytest.mark.parametrize("key", ["kind", "outputs", "unit", HOSTILE])
def test_of_arrays(tmp_path, capsys, key):
    np.savez(tmp_path / "hammer.npz", **(FRFS | {key: [HOSTILE] if key == "outputs" else HOSTILE}))
    main(["modal", str(tmp_path / "hammer.npz"), "--out", str(tmp_path / "out")])
    no_control(capsys)


@pytest.mark.parametrize("ending", ["csv", "uff", "mat", "toml", "npz"])
def test_of_other_files_and_their_names(tmp_path, capsys, ending):
    path = tmp_path / f"a\x1b[2J\x9b\u202e\n[red].{ending}"
    path.write_text(f"# kind = {HOSTILE}\nfrequency_hz,{HOSTILE}\n    -1\n    58\n{HOSTILE}\n    -1\n")
    main(["modal", str(path)])
    no_control(capsys)
