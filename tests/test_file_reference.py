"""The pages of file formats have every key of the schemas, from the docstrings, and their examples are valid."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from jaxmb.identify.study.format.study_format import StudyFile

DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS / "site"))
import keys  # noqa: E402  (part of the site, not of the package)

PAGES = {path: path.read_text() for path in sorted(DOCS.rglob("*.md"))}
EXAMPLES = [
    pytest.param(text, id=f"{path.stem}-{number}")
    for path in (DOCS / "study-format.md", *sorted((DOCS / "study").glob("*.md")))
    if path.stem not in ("motion-files", "records")
    for number, text in enumerate(re.findall(r"```toml\n(.*?)```", path.read_text(), re.DOTALL))
]


def test_tables_are_those_of_the_schemas():
    old = [str(path.relative_to(DOCS)) for path, text in PAGES.items() if keys.with_tables(text) != text]
    assert old == [], "write them anew: python docs/site/keys.py"


@pytest.mark.parametrize("part", keys.all_schemas(), ids=lambda part: f"{part.__module__}.{part.__name__}")
def test_every_key_is_listed(part):
    listed = keys.documented(list(PAGES.values()))
    owners = [c for c in part.__mro__ if c in listed]
    assert [key for key in part.model_fields if not any(key in c.__annotations__ for c in owners)] == []


@pytest.mark.parametrize("part", keys.all_schemas(), ids=lambda part: f"{part.__module__}.{part.__name__}")
def test_every_key_has_a_text_and_every_number_a_unit(part):
    found = keys.keys_of(part)
    assert [key.name for key in found if not key.text] == []
    assert [key.name for key in found if key.is_number and not key.unit] == []


@pytest.mark.parametrize("text", EXAMPLES)
def test_examples_are_parts_of_studies(text):
    study = {
        "machine": "arm.toml",
        "test": [{"kind": "frf", "file": "a.npz"}],
        "free": {"stiffness.*": {"lower": 1, "upper": 2}},
    }
    example = tomllib.loads(text)
    if "complete" in example:
        study = {"machine": "arm.toml", "test": [{"kind": "deflection", "file": "a.csv"}]}
    StudyFile.model_validate(study | example)
