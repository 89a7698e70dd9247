"""The examples of the pages of the machine format are machines."""

import re
import tomllib
from pathlib import Path

import pytest

from jaxmb.machine.file import load_machine
from jaxmb.machine.schema import Machine

DOCS = Path(__file__).parents[2] / "docs"


def examples(page):
    return re.findall(r"```toml\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


@pytest.mark.parametrize(
    ("page", "number", "coordinates"),
    [
        ("machine-format.md", 0, ("turn", "lift", "sway")),
        ("machine/beams.md", 0, ("swing",)),
        ("machine/beams.md", 1, ()),
        ("machine/tables.md", 0, ("shoulder", "quill")),
        ("machine/tables.md", 1, ("q1", "q2", "q2_rx")),
    ],
)
def test_examples(page, number, coordinates, tmp_path):
    (tmp_path / "example.toml").write_text(examples(page)[number])
    assert load_machine(tmp_path / "example.toml").coordinates == coordinates


def test_the_joint_with_a_motor():
    joint = tomllib.loads(examples("machine/bodies.md")[0])["joint"]
    machine = Machine.model_validate({"name": "arm", "body": [{"name": "arm", "mass": 1.0, "joint": joint}]})
    assert machine.coordinates == ("turn", "turn_motor")
