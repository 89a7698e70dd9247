"""Tables and figures of an inspection: what they say, and that nothing lies on anything else."""

import dataclasses
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.image import imread

import jaxmb
from jaxmb.identify.assess.saved import study_toml
from jaxmb.identify.study.format.next_format import NextPart, PointsPart
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.report.charts import Bars
from jaxmb.report.inspection import deviation_chart, group_table, inspection_sections, next_report
from jaxmb.report.rendering import write_pictures
from jaxmb.report.section import Lines, Table, pictures


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


@pytest.mark.parametrize(
    ("prior_std", "unit"), [(None, "std %"), ([0.5, 0.5], "% of prior"), ([0.5, np.inf], "% of prior, if any")]
)
def test_unit_of_weak_directions(prior_std, unit):
    problem = SimpleNamespace(prior_std=prior_std)
    found = SimpleNamespace(study=SimpleNamespace(problem=problem), groups=())
    assert unit in str(group_table(found))  # pyright: ignore[reportArgumentType]


def test_tables(inspected, with_prior, deflections, text_of):
    shown = text_of(inspection_sections(inspected))
    for text in (
        "at the true values",
        "std % after next",
        "Causes and remedies",
        "remedies tried",
        "Weak directions",
        "Next tests, like narrow",
        "tool x, y, z",
        "2 tests chosen out of 5 candidates",
        "improved by gradient",
        "largest standard deviation due to noise after them: ",
    ):
        assert text in shown
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 120
    shown = text_of(inspection_sections(with_prior))
    assert "yes where the tests halve the prior's std" in shown
    assert "% of prior" in shown
    assert "a table [next] in the study lists candidate" in shown
    shown = text_of(inspection_sections(deflections))
    assert "stiffness.q1: has no effect on the data" in shown
    assert "unknown" in shown
    assert "stiffness.q1 alone" in shown


def test_the_largest_deviation_after_the_next_tests_names_its_scale(inspected):
    assert next_report(inspected).lines[-1].endswith(" %")
    problem = inspected.study.problem
    linear = dataclasses.replace(problem.free, logarithmic=(False,) * problem.free.size)
    study = inspected.study.with_problem(dataclasses.replace(problem, free=linear))
    lines = next_report(dataclasses.replace(inspected, study=study)).lines
    assert lines[-1].endswith(" % of the width of its bounds")


def test_a_parameter_that_the_next_tests_do_not_identify_has_no_percentage(inspected):
    std = inspected.next.known.std.copy()
    std[1] = np.inf
    known = inspected.next.known._replace(std=std)
    report = next_report(dataclasses.replace(inspected, next=dataclasses.replace(inspected.next, known=known)))
    assert report.lines[-1].endswith(f"after them: {inspected.study.free.names[1]}, not identifiable")


def test_bars_of_standard_deviations_are_on_the_scale_of_their_limits(inspected):
    """On a linear scale that is the width of the bounds, not the value, which may be small."""
    problem = inspected.study.problem
    linear = dataclasses.replace(problem.free, logarithmic=(False,) * problem.free.size)
    study = inspected.study.with_problem(dataclasses.replace(problem, free=linear))
    near_zero = {name: p._replace(relative_std=50.0 * p.relative_std) for name, p in inspected.parameters.items()}
    chart = deviation_chart(dataclasses.replace(inspected, study=study, parameters=near_zero))
    (panel,) = chart.panels
    assert panel.x.label == "predicted standard deviation over the width of the bounds"
    (drawn,) = (mark for mark in panel.marks if getattr(mark, "label", "") == "yes")
    std = inspected.known.std
    np.testing.assert_array_equal(drawn.end, std[np.array(inspected.known.verdict) == "yes"])
    assert deviation_chart(inspected).panels[0].x.label == "predicted standard deviation of the logarithm"


def test_the_figure_says_where_tolerances_are_not_part_of_the_bars_after_the_next_tests(inspected):
    budgeted = dataclasses.replace(inspected, uncertainty={})
    for found, label in ((inspected, "after the next tests"), (budgeted, "after the next tests, noise alone")):
        bars = [mark for mark in deviation_chart(found).panels[0].marks if isinstance(mark, Bars)]
        assert bars[-1].label == label


def test_the_proposed_tests_are_toml_for_the_study(inspected):
    origin = inspected.study.origin
    parts = [part for section in inspection_sections(inspected) for part in section.parts]
    (block,) = (part for part in parts if isinstance(part, Lines) and part.verbatim)
    toml = "\n".join(block.lines)
    data = tomllib.loads(study_toml(origin)) | {"next": None}
    data["test"] += tomllib.loads(toml)["test"]
    again = jaxmb.make_study(StudyFile.model_validate(data), "pasted", Path())
    assert [test.name for test in again.tests] == ["narrow", "next-1", "next-2"]
    for test, chosen in zip(again.tests[1:], inspected.next.tests, strict=True):
        np.testing.assert_allclose(np.asarray(test.q), chosen.q, atol=1e-5)
        np.testing.assert_allclose(np.asarray(test.omega), np.asarray(chosen.probe.omega), rtol=1e-8)
    assert toml.splitlines()[-1] in "\n".join(
        line for part in inspection_sections(inspected)[-1].parts for line in getattr(part, "lines", ())
    )


def test_a_proposed_test_of_other_points_and_lines_that_is_to_be_measured(inspected):
    measured = {"kind": "frf", "name": "narrow", "file": "hammer.uff", "frame": "tool", "check_every": 5}
    file = inspected.study.origin.file
    part = type(file.test[0]).model_validate(measured)
    origin = inspected.study.origin._replace(file=file.model_copy(update={"test": (part,)}))
    study = dataclasses.replace(inspected.study, origin=origin)
    points = PointsPart(outputs=(("p02", "x"), ("p02", "y")), inputs=(("tool", "z"),))
    asked = NextPart(postures=[{"z2": 0.3}], points=(points,), bands_hz=((1.0, 3.0),), step_hz=(0.25,))
    like = inspected.next.tests[0]
    omega = 2 * np.pi * np.arange(1.0, 3.1, 0.25)
    test = dataclasses.replace(like, probe=like.probe.changed(omega, points.ends, points.outputs + points.inputs))
    chosen = dataclasses.replace(inspected.next, part=asked, tests=(test,))
    (found,) = tomllib.loads(chosen.as_toml(study))["test"]
    assert found.pop("posture").keys() == {"z2", "z3"}
    assert found == {
        "kind": "frf", "name": "next-1", "file": "next-1.uff", "outputs": [["p02", "x"], ["p02", "y"]],
        "inputs": [["tool", "z"]], "band_hz": [1.0, 3.0],
    }  # fmt: skip
    type(part).model_validate(found)


def test_weak_directions_have_the_same_percentages_in_figure_and_table(inspected):
    (found,) = (each for each in inspection_sections(inspected) if each.title.startswith("Weak directions"))
    (table,) = (part for part in found.parts if isinstance(part, Table))
    (picture,) = pictures([found])
    chart = picture.chart()
    assert list(chart.panels[0].x.names) == [row[1] for row in table.rows]
    assert f"standard deviation {table.rows[0][1]} % in the weakest" in chart.title


def test_singular_values_are_not_counted_as_the_weak_directions(inspected):
    """Both are right and differ: the ones of all parameters together, the others of sets of correlated ones."""
    (chart,) = (each.chart() for each in pictures(inspection_sections(inspected)) if each.name == "singular-values")
    values = inspected.singular_values
    assert f"std below 10 % along {np.sum(values > 10.0)} of {values.size} directions" in chart.title
    assert "identifiable" not in chart.title


@pytest.mark.parametrize("which", ["inspected", "with_prior", "deflections"])
def test_nothing_overlaps_in_the_figures(which, overlapping, figures_of, request):
    figures = figures_of(inspection_sections(request.getfixturevalue(which)))
    assert ("weak-directions" in figures) == (which != "deflections")
    for name, figure in figures.items():
        assert not overlapping(figure), name


def test_the_example_of_the_documentation_is_a_study():
    page = (Path(__file__).parents[2] / "docs" / "inspect.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert StudyFile.model_validate(tomllib.loads(example)).next is not None


def test_figures_are_written(inspected, tmp_path):
    files = write_pictures(inspection_sections(inspected), tmp_path / "deep")
    assert [f.name for f in files] == ["singular-values.png", "standard-deviations.png", "weak-directions.png"]
    for file in files:
        assert imread(file).shape[0] > 300
