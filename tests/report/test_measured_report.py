"""Tables and figures of a fit to measured FRFs: what was made of them, what was measured, modes that stand alone."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.assess.modal_agreement import UnpairedMode
from jaxmb.identify.assess.tests.frf import FrfMetrics
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.identify.study.study import make_study
from jaxmb.measurement.frf_set import FrfSet
from jaxmb.measurement.modal.analysis import modal_analysis
from jaxmb.report import tests
from jaxmb.report.frf_charts import frf_overview, residual_overview
from jaxmb.report.modes import mac_panels, modes_of_all_tests
from jaxmb.report.parameters import parameter_table
from jaxmb.report.rendering import figure_of
from jaxmb.report.result_page import mode_sections
from jaxmb.report.result_sections import sections
from jaxmb.report.section import Picture, Table
from jaxmb.report.tests import frf_sections

POSTURE = {"z2": "70 deg", "z3": "-100 deg"}


def fitted(folder, test, free):
    data = {
        "machine": "manipulator-3r",
        "test": [{"kind": "frf", "name": "hammer", "posture": POSTURE, **test}],
        "free": free,
        "rounds": 1,
        "refine": {"coarse_lines": 0, "starts": 1},
    }
    return jaxmb.identify(make_study(StudyFile.model_validate(data), "m", folder))


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    test = {
        "simulate": {"hits": {"hits": 2, "decay_1_s": 3.0, "noise": 0.002}},
        "modal": {"band_hz": (4.0, 30.0), "max_order": 20},
        "fit": "synthesized",
        "symmetrize": "upper",
        "noise_log_std": "estimate",
    }
    free = {"stiffness.z[12]": {"lower": 2e5, "upper": 2e7, "initial": 1.9e6}}
    return fitted(tmp_path_factory.mktemp("hits"), test, free)


def test_a_fit_on_synthesized_responses_is_not_called_measured(result, overlapping, figures_of):
    figures = figures_of(sections(result))
    overlaps = {name: overlapping(figure) for name, figure in figures.items()}
    assert overlaps == {name: [] for name in figures}
    assert set(figures) == {
        "cost", "parameters", "frf-hammer", "residual-hammer", "stabilization-hammer", "synthesized-hammer",
    }  # fmt: skip
    frf = figures["frf-hammer"]
    labels = sorted(text.get_text() for text in frf.legends[0].get_texts())
    assert labels == ["as simulated, exponential window", "fitted", "initial", "synthesized and mirrored"]
    assert len(frf.axes) == 3 * 9  # magnitude, phase and coherence
    by_title = {axes.get_title(): axes.lines[0].get_ydata() for axes in frf.axes}
    np.testing.assert_array_equal(by_title["tool y / tool x"], by_title["tool x / tool y"])  # mirrored
    drawn = [text.get_text() for text in figures["synthesized-hammer"].legends[0].get_texts()]
    assert drawn == ["simulated", "synthesized"]


def test_modes_that_stand_alone_have_rows(result, text_of):
    alone = (UnpairedMode("hammer", "fitted", 12.345, 0.5), UnpairedMode("hammer", "measured", 29.5, 0.7))
    record = dataclasses.replace(result.metrics.of(FrfMetrics), unmatched_modes=alone)
    metrics = dataclasses.replace(result.metrics, tests=result.metrics.tests | {"frf": record})
    rows = [line.split() for line in text_of(sections(dataclasses.replace(result, metrics=metrics))).splitlines()]
    # by frequency: 10.2, 11.2, 12.345, 22.6, 29.5 Hz
    assert ["3", "-", "12.345", "-", "-", "0.500", "-"] in rows
    assert ["5", "29.500", "-", "-", "0.700", "-", "-"] in rows


def test_charts_of_the_modal_analysis_have_the_unit_of_frequency_of_the_test(monkeypatch):
    monkeypatch.setattr(tests, "measured_pairs", lambda *_: None)
    s, omega = 2j * np.pi * np.arange(6.0, 16.0, 0.1)[:, None, None], 2 * np.pi * 11.0
    frf = s**2 / (s**2 + 0.02 * omega * s + omega**2)
    measured = FrfSet(s[:, 0, 0].imag / (2 * np.pi), frf, "accelerance", ("tool z",), ("tool z",))
    source = SimpleNamespace(
        modal=modal_analysis(measured, max_order=6), measured=measured, frequency_unit="cycles per sample"
    )
    entry = SimpleNamespace(name="hammer", role="fit", source=source, truth=None)
    result = SimpleNamespace(model=None, metrics=SimpleNamespace(misfit=None))
    parts = tests.frf_parts(result, entry, "hammer", "")
    charts = {part.name: part.chart() for part in parts[2:] if isinstance(part, Picture)}
    for name in ("stabilization", "synthesized"):
        assert charts[f"{name}-hammer"].panels[-1].x.label == "frequency (cycles per sample)"
    assert charts["stabilization-hammer"].title.endswith(" cycles per sample")


def test_mac_of_several_fits_beside_each_other(overlapping):
    columns = ("measured: modes (Hz)", np.array([10.0, 20.0]))
    panels = [
        ("one (Hz)", np.eye(2), np.array([10.0, 20.0]), ()),
        ("two (Hz)", np.eye(3)[:, :2], np.array([10.0, 20.0, 25.0]), (2,)),
    ]
    figure = figure_of(mac_panels("MAC", panels, columns))
    assert figure.axes[1].get_yticklabels()[2].get_text() == "25.0 *"
    assert "not measured" in figure.axes[1].get_ylabel()
    assert overlapping(figure) == []


def test_one_sensor_has_no_mac_and_its_own_unit_of_frequency(tmp_path, text_of, figures_of):
    """The true stiffness is the upper bound, where the fit ends."""
    test = {
        "simulate": {"lines": {"first_hz": 5.0, "last_hz": 30.0, "step_hz": 0.5}},
        "outputs": [("tool", "y")],
        "frequency_unit": "cycles per sample",
    }
    truth = jaxmb.parameters(jaxmb.build_model(jaxmb.load_machine("manipulator-3r")))["stiffness.z1"]
    result = fitted(tmp_path, test, {"stiffness.z1": {"lower": 0.5 * truth, "upper": truth, "initial": 0.9 * truth}})
    figures = figures_of(sections(result))
    assert figures["frf-hammer"].axes[-1].get_xlabel() == "frequency (cycles per sample)"
    for overview in (frf_overview(result, result.study.fitted, ""), residual_overview(result, result.study.fitted)):
        assert overview.panels[-1].x.label == "frequency (cycles per sample)"
    table = next(part for part in frf_sections(result, result.study.fitted)[0].parts[1:] if isinstance(part, Table))
    assert [each.heading for each in table.columns[1:3]] == ["true cycles per sample", "identified cycles per sample"]
    many = modes_of_all_tests(result, result.study.entries, ())
    assert [each.heading for each in many.columns[1:3]] == [
        "identified modes, cycles per sample", "largest error cycles per sample"
    ]  # fmt: skip
    shapes = mode_sections(result)[0].parts[0].parts[0].chart()
    assert "cycles per sample, damping" in shapes.modes[0].title
    assert "Hz" not in text_of(sections(result))
    assert " bound " in text_of(parameter_table(result))
