"""docs/study-format.md names every key there is, with the default that it has, and its example is a study."""

import re
import tomllib
from pathlib import Path

import pytest
from pydantic_core import PydanticUndefined

from jaxmb.identify.experiments.deflections.source import Instruments
from jaxmb.identify.experiments.tolerances import Tolerances
from jaxmb.identify.fit.settings import RefinePart, SearchPart
from jaxmb.identify.study.format.deflection_format import (
    CompletePart,
    DeflectionTestPart,
    DesignPart,
    SimulateDeflections,
)
from jaxmb.identify.study.format.frf_format import BandWeight, FrfTestPart, ModalPart, Weights
from jaxmb.identify.study.format.modes_format import ModesTestPart
from jaxmb.identify.study.format.pose_format import PoseTestPart, SimulatePoses
from jaxmb.identify.study.format.study_format import FreePart, StudyFile
from jaxmb.identify.study.format.test_format import Hits, Lines, Simulate, SimulateModes

TEXT = (Path(__file__).parents[2] / "docs" / "study-format.md").read_text()
PARTS = [
    StudyFile, FrfTestPart, ModesTestPart, ModalPart, FreePart, SearchPart, RefinePart, Simulate, Hits, Weights,
    BandWeight, Lines, DeflectionTestPart, Instruments, SimulateDeflections, CompletePart, DesignPart,
    SimulateModes, PoseTestPart, SimulatePoses, Tolerances,
]  # fmt: skip


def test_the_example_is_a_study():
    example = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)[0]
    assert len(StudyFile.model_validate(tomllib.loads(example)).test) == 2


def test_keys_of_the_short_version_are_keys():
    short = TEXT.split("## In short")[1].split("\n## ")[0]
    cells = re.findall(r"^\| ([^|]*) \|", short, re.MULTILINE)
    keys = {key for cell in cells for key in re.findall(r"`\[*(\w+)\]*`", cell)}
    assert keys <= {key for part in PARTS for key in part.model_fields}
    assert {"machine", "kind", "posture", "file", "noise_log_std", "free"} <= keys


@pytest.mark.parametrize("part", PARTS)
def test_every_key_is_described(part):
    missing = [key for key in part.model_fields if not re.search(rf"\b{key}\b", TEXT)]
    assert missing == []


@pytest.mark.parametrize("part", [p for p in PARTS if p not in (BandWeight, Lines, DesignPart)])
def test_defaults_are_those_of_the_code(part):
    rows = re.findall(r"^\| (`[^|]*`) \| ([^|]*) \|", TEXT, re.MULTILINE)
    told: dict[str, list[str]] = {}
    for keys, default in rows:
        for key in re.findall(r"`(\w+)`", keys):
            told.setdefault(key, []).append(default)
    for key, field in part.model_fields.items():
        if field.default is PydanticUndefined or not isinstance(field.default, bool | int | float | str):
            continue
        if field.default == "":
            continue
        literal = str(field.default).lower() if isinstance(field.default, bool) else field.default
        written = f'"{literal}"' if isinstance(literal, str) and not isinstance(field.default, bool) else str(literal)
        values = [t.strip().strip("`") for t in told[key]]
        assert any(v == written or _same_number(v, field.default) for v in values), (key, values, written)


def _same_number(text: str, value: object) -> bool:
    try:
        return not isinstance(value, str | bool) and float(text) == value
    except ValueError:
        return False
