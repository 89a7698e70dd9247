"""Tables and figures of an inspection: what they say, and that nothing lies on anything else."""

import re
import tomllib
from pathlib import Path

import pytest
from matplotlib.image import imread

import jaxmb
from jaxmb.identify.study.format.next_format import NextPart, PointsPart
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.report.inspection.sections import inspection_sections
from jaxmb.report.pictures import write_pictures


def study(prior=False):
    lines = {"first_hz": 1.0, "last_hz": 12.0, "step_hz": 0.5}
    posture = {"z1": "0 deg", "z2": "70 deg", "z3": "-100 deg"}
    data = {
        "machine": "kuka-kr90",
        "test": [{"kind": "frf", "name": "narrow", "simulate": {"lines": lines}, "posture": posture}],
        "free": {"stiffness.*": {"lower": 1e5, "upper": 1e9}, "damping.*": {"lower": 1.0, "upper": 1e5}},
        "next": {"count": 2, "candidates": 5, "postures": {"z2": ["20 deg", "110 deg"], "z3": ["-130 deg", "-20 deg"]}},
    }
    if prior:
        data |= {"prior": {"*": 0.5}, "next": None}
    return jaxmb.make_study(StudyFile.model_validate(data), "narrow band", Path())


@pytest.fixture(scope="module")
def inspected():
    return jaxmb.inspect(study())


@pytest.fixture(scope="module")
def with_prior():
    return jaxmb.inspect(study(prior=True))


@pytest.fixture(scope="module")
def deflections():
    return jaxmb.inspect(jaxmb.load_study("kr240-joint-stiffness"))


def test_tables(inspected, with_prior, deflections, text_of):
    shown = text_of(inspection_sections(inspected))
    for text in (
        "at the true values",
        "std % after next",
        "Why, and what would help",
        "remedies tried",
        "Weak directions",
        "Next tests, like narrow",
        "tool x, y, z",
        "2 tests chosen out of 5 candidates",
        "improved by gradient",
        "least known after them: ",
    ):
        assert text in shown
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 120
    shown = text_of(inspection_sections(with_prior))
    assert "yes where the tests halve the prior's std" in shown
    assert "% of prior" in shown
    assert "a table [next] in the study says out of which" in shown
    shown = text_of(inspection_sections(deflections))
    assert "stiffness.q1: does not act on what is measured" in shown
    assert "unknown" in shown
    assert "stiffness.q1 alone" in shown


@pytest.mark.parametrize("which", ["inspected", "with_prior", "deflections"])
def test_nothing_overlaps_in_the_figures(which, overlapping, figures_of, request):
    figures = figures_of(inspection_sections(request.getfixturevalue(which)))
    assert ("weak-directions" in figures) == (which != "deflections")
    for name, figure in figures.items():
        assert not overlapping(figure), name


def test_every_key_of_next_is_described():
    text = (
        (Path(__file__).parents[2] / "docs" / "study-format.md").read_text().split("## `[next]`")[1].split("\n## ")[0]
    )
    assert [key for key in (*NextPart.model_fields, *PointsPart.model_fields) if f"`{key}`" not in text] == []


def test_the_example_of_the_documentation_is_a_study():
    page = (Path(__file__).parents[2] / "docs" / "inspect.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert StudyFile.model_validate(tomllib.loads(example)).next is not None


def test_figures_are_written(inspected, tmp_path):
    files = write_pictures(inspection_sections(inspected), tmp_path / "deep")
    assert [f.name for f in files] == ["singular-values.png", "standard-deviations.png", "weak-directions.png"]
    for file in files:
        assert imread(file).shape[0] > 300
