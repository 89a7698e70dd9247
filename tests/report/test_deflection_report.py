"""Tables and figures of deflection tests: nothing is cut off, and bands say what they are."""

import dataclasses
import types

import numpy as np
import pytest
import tomli_w

import jaxmb
from jaxmb.identify.assess.tests.deflections import Band, DeflectionMetrics
from jaxmb.identify.experiments.deflections.load_cases import LoadCase, predicted
from jaxmb.identify.experiments.deflections.table import deflections_csv
from jaxmb.report.charts import Line
from jaxmb.report.charts_of_tests import convergence_chart, displacement_chart
from jaxmb.report.rendering import figure_of, png_of
from jaxmb.report.result_page import arrow_sections
from jaxmb.report.result_sections import sections
from jaxmb.report.tests import deflection_sections

MODEL = jaxmb.build_model(jaxmb.load_machine("kuka-kr240"))
STD = np.repeat([3e-5, 6e-5], 3)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """Of two tests with long names."""
    draw = np.random.default_rng(0)
    tests = [
        LoadCase(f"a long name of a test, number {i}", np.asarray(MODEL.reference) + 0.2 * i, "tool",
                       draw.uniform(-1.0, 1.0, 6) * np.repeat([2000.0, 500.0], 3), ("tool",), np.zeros((1, 6)),
                       STD[None])
        for i in (1, 2)
    ]  # fmt: skip
    moved = zip(tests, predicted(MODEL, tests), strict=True)
    tests = [dataclasses.replace(t, displacement=d + STD * draw.normal(size=d.shape)) for t, d in moved]
    folder = tmp_path_factory.mktemp("report")
    (folder / "tests.csv").write_text(deflections_csv(MODEL, tests))
    part = {"kind": "deflection", "file": "tests.csv", "instruments": {"tracker_mm": 0.03, "draws": 20}}
    free = {f"stiffness.q{i}": {"lower": 1e4, "upper": 1e9} for i in range(1, 6)}
    free["stiffness.q4"]["upper"] = 5.7e5
    (folder / "two.toml").write_text(tomli_w.dumps({"machine": "kuka-kr240", "test": [part], "free": free}))
    return jaxmb.identify(jaxmb.load_study(folder / "two.toml"))


@pytest.fixture(scope="module")
def figures(result, figures_of):
    found = figures_of(sections(result))
    for figure in found.values():
        figure.draw_without_rendering()
    return found


@pytest.mark.parametrize("name", ["convergence", "displacements", "rotations"])
def test_nothing_is_cut_off(figures, name):
    figure = figures[name]
    box = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    # half a pixel of the files, of rounding
    assert box.x0 > -2.5e-3
    assert box.y0 > -2.5e-3
    assert box.x1 < width + 2.5e-3
    assert box.y1 < height + 2.5e-3


def test_the_band_of_the_orders_is_called_what_it_is(figures):
    (legend,) = figures["convergence"].legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert "central 90 % of the orders, not a confidence band" in labels
    assert "95 % interval of the value" in labels


def test_notebooks_show_it(result):
    assert result._repr_html_().count("<img ") == 2


def test_arrows_as_a_picture(result, overlapping):
    """In the posture of the first test; the longest is a fifth of the machine's size, and all are in view."""
    (section,) = arrow_sections(result)
    skeleton = section.parts[0].chart()
    figure = figure_of(skeleton)
    assert overlapping(figure) == []
    assert {"measured", "predicted"} < {text.get_text() for text in figure.legends[0].get_texts()}
    longest = max(np.linalg.norm(arrows.vector, axis=1).max() for arrows in skeleton.arrows)
    assert f"drawn {0.2 * skeleton.size / longest:.3g} times" in figure.texts[0].get_text()
    for axes in figure.axes:
        low, high = np.array([axes.get_xlim(), axes.get_ylim()]).T
        drawn = [line for line in axes.lines if line.get_color() in {arrows.color for arrows in skeleton.arrows}]
        assert len(drawn) == 4  # lines and tips of both
        for line in drawn:
            points = np.column_stack(line.get_data())
            points = points[np.isfinite(points[:, 0])]
            assert np.all((points > low) & (points < high))
    assert png_of(skeleton).startswith(b"\x89PNG")


def test_arrows_are_at_the_postures_of_their_own_test(result):
    """Another test may have load cases of the same names."""
    drawn = [arrow_sections(result)[0].parts[0].chart().arrows[0].origin]
    (entry,) = result.study.entries
    cases = [dataclasses.replace(case, q=case.q + 0.3) for case in entry.source.cases]
    other = types.SimpleNamespace(name="other", source=types.SimpleNamespace(cases=cases))
    study = types.SimpleNamespace(entries=(entry, other))
    both = types.SimpleNamespace(model=result.model, metrics=result.metrics, study=study)
    drawn += [arrow_sections(both)[0].parts[0].chart().arrows[0].origin]
    np.testing.assert_array_equal(*drawn)


def test_values_that_no_number_of_tests_determines_have_not_converged(result):
    found = result.metrics.of(DeflectionMetrics).convergence
    bands = {name: Band(*np.full((3, len(found.tests)), np.nan)) for name in found.values}
    chart = convergence_chart(result, dataclasses.replace(found, values=bands))
    assert chart.title == "two: no value is identifiable in all orders of the tests"


def test_what_is_missed_is_shown_along_each_axis(result):
    lengths, missed = displacement_chart(result.metrics.of(DeflectionMetrics)).panels
    assert lengths.x.names == missed.x.names
    points = [mark for mark in missed.marks if isinstance(mark, Line)]
    assert [each.label for each in points] == [f"residual along {axis}" for axis in "xyz"]
    rows = result.metrics.of(DeflectionMetrics).deflections
    for i, each in enumerate(points):
        left = [row.measured_mm[i] - row.predicted_mm[i] for row in rows]
        np.testing.assert_allclose(each.y, left, rtol=1e-12)


def test_errors_of_the_instruments_have_a_table_where_they_were_drawn(result, text_of):
    metrics = result.metrics.of(DeflectionMetrics)
    assert "layout of Dumas" in text_of(deflection_sections(result, ()))
    first_order = [dataclasses.replace(row, draws=0) for row in metrics.table2]
    without = dataclasses.replace(metrics, table2=tuple(first_order))
    other = dataclasses.replace(result.metrics, tests=result.metrics.tests | {"deflection": without})
    assert "layout of Dumas" not in text_of(deflection_sections(dataclasses.replace(result, metrics=other), ()))


def test_draws_on_a_bound_stand_in_the_table(result, text_of):
    text = text_of(sections(result), 200)
    assert "on a bound" in text
    row = next(row for row in result.metrics["table2"] if row["parameter"] == "stiffness.q4")
    line = [line.split() for line in text.splitlines() if line.strip().startswith("stiffness.q4")][-1]
    assert str(row["clipped"]) in line
