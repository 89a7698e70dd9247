"""The examples of docs/machine-format.md are machines, and its tables have every key there is."""

import re
import tomllib
from pathlib import Path

import pytest

from jaxmb.machine.beam import Beam, FlexibleBeam, VirtualSpring
from jaxmb.machine.elements import Fractional, FurtherFriction, Loop, Rayleigh, Transmission
from jaxmb.machine.file import load_machine
from jaxmb.machine.schema import Body, Coordinate, Frame, Machine, Motor, Payload, Spring
from jaxmb.machine.tables import DhRow, DhTable

TEXT = (Path(__file__).parents[2] / "docs" / "machine-format.md").read_text()
PARTS = (
    Machine, Body, Coordinate, Motor, Frame, Payload, Spring, VirtualSpring, Beam, FlexibleBeam, Loop, DhTable, DhRow,
    Rayleigh, Fractional, Transmission, FurtherFriction,
)  # fmt: skip
EXAMPLES = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize(
    ("number", "coordinates"),
    [
        (0, ("turn", "lift", "sway")),
        (2, ("swing",)),
        (3, ()),
        (4, ("q1", "q2", "q2_rx")),
        (5, ("shoulder", "quill")),
    ],
)
def test_examples(number, coordinates, tmp_path):
    (tmp_path / "example.toml").write_text(EXAMPLES[number])
    assert load_machine(tmp_path / "example.toml").coordinates == coordinates


@pytest.mark.parametrize("part", PARTS)
def test_every_key_is_described(part):
    missing = [key for key in part.model_fields if f"`{key}`" not in TEXT and f"[[{key}]]" not in TEXT and key != "row"]
    assert missing == []


def test_the_joint_with_a_motor():
    joint = tomllib.loads(EXAMPLES[1])["joint"]
    machine = Machine.model_validate({"name": "arm", "body": [{"name": "arm", "mass": 1.0, "joint": joint}]})
    assert machine.coordinates == ("turn", "turn_motor")
