"""Tables and figures of a complete stiffness model: what is not judged has dashes, all models have one scale."""

import dataclasses
import io

import numpy as np
import pytest
from rich.console import Console

from jaxmb.report.interactive import traces_of
from jaxmb.report.rendering import figure_of, png_of
from jaxmb.report.result_sections import sections
from jaxmb.report.section import Picture, number
from jaxmb.report.stiffness_model import compliance_chart, error_chart, stiffness_model_sections
from jaxmb.report.terminal import on_terminal
from tests.identify.kr270 import judged


@pytest.fixture(scope="module")
def result():
    return judged()


def text_of(result):
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(on_terminal(sections(result), 200))
    return " ".join(console.export_text().split())


@pytest.fixture(scope="module")
def text(result):
    return text_of(result)


def test_remarks_are_shown(result, text):
    starts = ("J2 and C2 are not judged on the check tests", "machine.toml has no spring 'compensator'",
              "in 5 draws of the instruments' errors")  # fmt: skip
    for start in starts:
        (told,) = [r for r in result.remarks if r.startswith(start)]
        assert told in text


def test_published_numbers_are_shown_where_there_are_some(result, text):
    assert "published" not in text
    model = result.metrics.stiffness_model
    own = dataclasses.replace(model, published_reduction=dict.fromkeys(model.reduction, 7))
    other = dataclasses.replace(result, metrics=dataclasses.replace(result.metrics, stiffness_model=own))
    assert "parameters published" in text_of(other)


def test_models_that_are_not_judged_have_dashes_and_draws_a_scatter(result, text):
    check, fit = text.split("tests used in the fit")
    fit = fit.split("remark")[0]
    metrics = result.as_json()["metrics"]
    assert f"J2: joints and compensator {metrics['parameters']['J2']} - - - - - - -" in check
    assert "scatter % scatter mm" in check
    assert "scatter" not in fit
    assert number(metrics["monte_carlo"]["predicted_std_mm"]["C1"], 2) in check


def test_histograms_of_all_models_have_one_scale(result):
    (section,) = stiffness_model_sections(result)
    charts = {part.name: part.chart() for part in section.parts if isinstance(part, Picture)}
    figures = {name: figure_of(chart) for name, chart in charts.items()}
    limits = {axes.get_xlim() for name in ("errors-check", "errors-fit") for axes in figures[name].axes}
    assert len(limits) == 1
    for name in ("errors-check", "errors-fit"):
        titles = [axes.get_title() for axes in figures[name].axes]
        assert [t[:2] for t in titles if t] == ["J1", "J2", "C1", "C2"]
        for axes in figures[name].axes:
            bars = [patch.get_window_extent() for patch in axes.patches]
            # the middle bin is about 0
            assert len(bars) in (0, 31)
            if bars:
                middle = axes.transData.transform((0.0, 0.0))[0]
                assert bars[15].x0 + bars[15].x1 == pytest.approx(2.0 * middle, abs=1e-6)
    assert [t.get_text() for axes in figures["errors-check"].axes for t in axes.texts] == ["not judged"] * 6
    for axes in figures["compliances"].axes:
        below, above = axes.get_ylim()
        assert above < -0.5
        assert below > len(axes.get_yticks()) - 0.5
    assert "95 % intervals" in charts["compliances"].caption


def test_the_title_of_a_histogram_has_the_percentage_of_its_own_tests(result):
    metrics = result.metrics.stiffness_model
    for role in ("check", "fit"):
        percent = {row.model: row.compensated_percent for row in metrics.rows(role)[1:]}
        best = max(percent, key=percent.__getitem__)
        title = error_chart("s", metrics, role).title
        assert title.startswith(f"s: {best} compensates {percent[best]:.1f} % of the deflections; errors in the tests")


def test_compliances_of_unknown_deviation_have_no_interval(result):
    """As of a model that does not reproduce the data."""
    unknown = {name: p._replace(std=np.inf, std_log=np.inf) for name, p in result.parameters.items()}
    chart = compliance_chart(dataclasses.replace(result, parameters=type(result.parameters)(unknown)))
    assert png_of(chart).startswith(b"\x89PNG")
    (trace,) = traces_of(chart.panels[0].marks[1])
    assert set(trace["error_x"]["array"]) == {0.0}
