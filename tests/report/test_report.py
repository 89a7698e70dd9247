"""Tables hold the numbers of a result, and figures are drawn of whatever a study can be."""

import dataclasses
import re
import struct
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.assess.budget import ParameterBudget
from jaxmb.identify.assess.result import Mode, Parameter
from jaxmb.identify.assess.tests.frf import ModesMetrics
from jaxmb.identify.estimation.identifiability import KnownTogether
from jaxmb.identify.fit.noise import ReducedChiSquare
from jaxmb.identify.fit.problem import Prior
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.identify.study.study import make_study
from jaxmb.io.validation import percentage
from jaxmb.machine.schema import Machine
from jaxmb.measurement.modal.data import distinguishable
from jaxmb.report import figure_of, write_report
from jaxmb.report.charts import Line
from jaxmb.report.frf_charts import (
    MOST_POINTS,
    Curve,
    Responses,
    _unlike,
    continuous_deg,
    frf_chart,
    residual_chart,
    standard_residuals,
    unbroken,
)
from jaxmb.report.mode_shapes import predicted_sections
from jaxmb.report.modes import (
    fitted_modes,
    identified_modes_table,
    marks,
    measured_modes_chart,
    measured_modes_table,
    pairs_chart,
    predicted_modes_table,
)
from jaxmb.report.parameters import (
    _error,
    budget_table,
    cost_chart,
    parameter_chart,
    parameter_sections,
    together_lines,
)
from jaxmb.report.result_sections import data_sentences, fit_section, sections
from jaxmb.report.section import Lines, Picture, Table, number, percent, pictures, sentence, short, std_percent
from jaxmb.report.tests import SECTIONS, frf_sections, geometry_table, score_table
from jaxmb.response.modal import Modes
from tests.identify.crane import FREE, MODES, crane_study

POSTURE = {"z2": "70 deg", "z3": "-100 deg"}
LINES = {"first_hz": 1.0, "last_hz": 30.0, "step_hz": 0.5}
BOUNDS = {"lower": 2e5, "upper": 2e7, "initial": 1.9e6}


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """Fit of two stiffnesses to FRFs (one test of the machine itself) and to modes that were written down."""
    tests = [
        {"kind": "frf", "name": "FRF, 1", "posture": POSTURE, "simulate": {"lines": LINES}, "weights": {"peaks": 50}},
        {
            "kind": "modes",
            "name": "FRF 1",
            "posture": POSTURE,
            "frequency_hz": [10.18, 11.24, 22.59],
            "damping_percent": [1.89, 1.80, 1.66],
            "content": [["z1"], ["z2"], ["z3"]],
            "frequency_std_hz": 0.05,
            "damping_std_percent": 0.1,
        },
    ]
    file = StudyFile.model_validate(
        {
            "machine": "manipulator-3r",
            "test": tests,
            "free": {"stiffness.z[12]": BOUNDS},
            "rounds": 1,
            "refine": {"coarse_lines": 0, "starts": 1},  # one stage, one compilation
            "tolerances": "exact",
        }
    )
    return jaxmb.identify(make_study(file, "two", tmp_path_factory.mktemp("study")))


def test_lines_of_combinations_say_that_their_std_is_that_of_noise(result):
    groups = (KnownTogether(0.1, 1, {"a": 0.8, "b": -0.6}), KnownTogether(np.inf, 2, {"a": 1.0, "b": 1.0}))
    metrics = dataclasses.replace(result.metrics, known_together=groups)
    assert together_lines(dataclasses.replace(result, metrics=metrics)) == [
        "identifiable only in combination: +0.80 a  -0.60 b, std of this sum due to noise 10 %",
        "not identifiable: a, b (2 directions)",
    ]


def test_table_of_scores_counts_the_values_that_are_used(result):
    of_frf, of_modes = result.study.entries
    weight = of_frf.test.weight.at[:10].set(0.0)
    partial = dataclasses.replace(of_frf, test=dataclasses.replace(of_frf.test, weight=weight))
    without_content = dataclasses.replace(of_modes.test, content=np.zeros_like(of_modes.test.content))
    table = score_table(result, (partial, dataclasses.replace(of_modes, test=without_content)))
    assert [row[2] for row in table.rows] == [str(2 * 9 * (59 - 10)), "6"]


def test_tables(result, text_of):
    shown = text_of(sections(result))
    for name, parameter in result.parameters.items():
        row = next(line for line in shown.splitlines() if line.strip().startswith(name))
        assert number(parameter.value) in row
        assert number(parameter.std, 2) in row
        assert parameter.identifiable in row
        assert parameter.unit in row
    measured = [line.split() for line in shown.splitlines() if line.strip().startswith("3")][-1]
    assert measured[1] == "22.59"
    assert measured[2] == f"{result.metrics.of(ModesMetrics).measured_modes[2].frequency_hz:.2f}"
    assert "z3*" in measured
    assert f"status: {result.status}" in shown


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(2e6, 4, "2.000e6"), (340.0, 4, "340.0"), (1545.0, 4, "1545"), (38650.2, 2, "3.9e4"), (0.0094, 2, "0.0094"),
     (1e-15, 2, "1.0e-15"), (0.0, 4, "0.000"), (np.inf, 4, "unknown"), (np.nan, 4, "unknown"), (-2e6, 2, "-2.0e6"),
     (9999.9, 4, "10000"), (2589.0, 2, "2589"), (-0.0, 4, "0.000")],
)  # fmt: skip
def test_numbers(value, digits, text):
    assert number(value, digits) == text


def test_undamped_modes_have_no_negative_damping():
    """Rounding of an undamped machine is of either sign."""
    one = np.ones(2)
    found = Modes(one, one, np.array([-1e-17, 1e-17]), 1j * one, np.ones((2, 2)), np.zeros(0))
    assert [row[-1] for row in predicted_modes_table(found, "", 2).rows] == ["0.000"] * 2


@pytest.mark.parametrize(
    ("value", "text", "signed"),
    [(150.0, "150", "+150"), (-100.0, "-100", "-100"), (1.2e4, ">1000", ">1000"), (-2e3, "<-1000", "<-1000"),
     (5.9e7, ">1000", ">1000"), (9.96, "10", "+10"), (3.64, "3.6", "+3.6"), (-0.0123, "-0.012", "-0.012"),
     (np.inf, "unknown", "+inf")],
)  # fmt: skip
def test_percentages(value, text, signed):
    assert percent(value) == text
    assert percent(value, signed=True) == signed


def test_what_the_verdicts_mean_stands_below_the_table(result, text_of):
    assert "identifiable: yes where std is below 10 %, weak below 100 %, else no" in text_of(sections(result))
    prior = dataclasses.replace(result.study.problem, prior=Prior(np.zeros(2), np.ones(2), np.eye(2)))
    guided = dataclasses.replace(result, study=dataclasses.replace(result.study, problem=prior))
    shown = text_of(sections(guided))
    assert "yes where the data halve the prior's std, weak where they reduce it by 5 %, else no" in shown
    assert "on a bound" not in shown


def test_values_on_a_bound_are_marked(result, text_of):
    name, other = result.parameters
    p = result.parameters[name]
    parameters = result.parameters | {name: p._replace(value=p.lower)}
    shown = text_of(sections(dataclasses.replace(result, parameters=parameters)))
    assert f" *{number(p.lower)} " in shown
    assert f" {number(result.parameters[other].value)} " in shown
    assert "; * on a bound" in shown


def test_times_add_up(result, text_of):
    """To the last digit that is told, each part rounded to the nearest and the total to two units of that digit."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        spent = dict(zip(("read", "compile", "search", "refine", "else"), rng.exponential(3.0, size=5), strict=True))
        seconds = {name: spent[name] for name in ("read", "compile", "search", "refine")} | {
            "total": sum(spent.values())
        }
        shown = text_of([fit_section(dataclasses.replace(result, seconds=seconds))])
        total, parts = re.search(r"time: (\d+\.\d) s \((.*?)\)", shown).groups()
        told = {name: Decimal(x) for name, x in (part.split() for part in parts.split(", "))}
        assert list(told) == list(spent)
        assert sum(told.values()) == Decimal(total)
        assert all(abs(float(told[name]) - spent[name]) <= 0.05 + 1e-9 for name in ("compile", "search", "refine"))
        assert float(total) == pytest.approx(seconds["total"], abs=0.2)


def test_names_are_not_taken_for_styles(result, text_of):
    odd = dataclasses.replace(result, remarks=("the point [red] is [/] not a style",))
    assert "the point [red] is [/] not a style" in text_of(sections(odd))


def test_figures_are_written(result, tmp_path):
    paths = write_report(result, tmp_path / "new" / "figures")
    # The two tests have the same letters in their names, so their files are numbered. Without noise nothing is left.
    assert {path.name for path in paths} == {
        "cost.png", "parameters.png", "frf-1-frf-1.png", "modes-2-frf-1.png",
    }  # fmt: skip
    assert set((tmp_path / "new" / "figures").iterdir()) == set(paths)
    for path in paths:
        data = path.read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", data[16:24])
        assert min(width, height) > 300
        assert len(data) > 5_000


def test_a_folder_that_cannot_be(result, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        write_report(result, tmp_path / "file" / "figures")


def test_energy_is_that_of_the_measured_modes(result):
    test = result.study.tests[1]
    fitted = fitted_modes(result.model, test)
    np.testing.assert_allclose(fitted.share.sum(axis=1), 1.0)
    for m, told in enumerate(result.metrics.of(ModesMetrics).measured_modes):
        assert fitted.share[m][np.asarray(test.content[m])].sum() == pytest.approx(told.energy_share)


def test_repeated_modes_are_all_paired(tmp_path):
    """Of equal modes only the span of the shapes is determined, and the measured ones are others in it."""
    joints = [{"name": axis, "type": "prismatic", "axis": [float(axis == each) for each in "xyz"], "stiffness": k,
               "damping": 5.0} for axis, k in zip("xyz", (4e4, 4e4, 1e5), strict=True)]  # fmt: skip
    table = {"name": "table", "mass": 10.0, "joint": joints}
    machine = Machine.model_validate({"name": "table", "body": [table], "frame": [{"name": "tool", "body": "table"}]})
    test = {
        "kind": "modes", "frequency_hz": [10.05, 10.08, 15.9], "damping_percent": [0.4, 0.4, 0.2],
        "frequency_std_hz": 0.05, "damping_std_percent": 0.1, "outputs": [["tool", "xyz"]],
        "shapes": [[1.0, 0.9, 0.0], [-0.9, 1.0, 0.0], [0.0, 0.1, 1.0]],
    }  # fmt: skip
    study = crane_study(tmp_path, [test], {"stiffness.*": FREE["stiffness.*"]}, machine)
    fitted = fitted_modes(study.model, study.fitted[0].test)
    assert sorted(fitted.pairs.partner) == [0, 1, 2]
    title = pairs_chart(SimpleNamespace(modes=()), "test", fitted.pairs, "Hz").title
    assert title == "test: smallest MAC of 3 paired modes 0.99"


def test_springs_that_hold_the_energy_of_a_mode_are_named(tmp_path):
    """One between frames too; a star where the measurement names it."""
    study = crane_study(tmp_path, [MODES | {"content": [["stay"], ["w"]]}], {"stiffness.w": FREE["stiffness.*"]})
    result, entry = SimpleNamespace(study=study, model=study.model, modes=()), study.fitted[0]
    fitted = fitted_modes(result.model, entry.test)
    share = 100.0 * fitted.share
    for row, named, in_mode in zip(measured_modes_table(result, entry, fitted).rows, ("stay", "w"), share, strict=True):
        told = {name: float(percent) for name, percent in (part.split() for part in row[6].split(", "))}
        expected = dict(zip(("s", "r", "w", "stay"), in_mode, strict=True))
        assert told == {
            name + "*" * (name == named): float(f"{percent:.0f}")
            for name, percent in expected.items() if percent >= 10.0 or name == named
        }  # fmt: skip


def test_figures_of_a_fit_that_knows_little(result):
    """Infinite standard deviations, no history, costs of zero: there is a figure all the same, but of intervals."""
    unknown = {
        name: p._replace(std=np.inf, std_log=np.inf, identifiable="no", lower=-1.0, interval_95=None)
        for name, p in result.parameters.items()
    }
    odd = dataclasses.replace(result, parameters=unknown, history=[(5, 0.0)], initial_cost=0.0, status="not converged")
    assert [picture.name for picture in pictures(parameter_sections(result))] == ["parameters"]
    assert pictures(parameter_sections(odd)) == []
    for chart in (cost_chart(odd), parameter_chart(result)):
        figure_of(chart).draw_without_rendering()


def test_deviations_of_the_geometry_are_those_from_the_stated_machine():
    """A machine may state zeros and scales itself, as one that was identified before."""
    joint = {"name": "q", "zero": 0.5, "reading_scale": 1.01}
    model = jaxmb.build_model(jaxmb.Machine.model_validate({"name": "m", "body": [{"name": "b", "joint": [joint]}]}))
    known = {"lower": -1.0, "upper": 2.0, "initial": 0.5, "identifiable": "yes", "std_log": 0.1}
    found = {
        "zero.q": Parameter(0.502, 1e-3, unit="rad", **known),
        "reading_scale.q": Parameter(1.0101, 1e-5, unit="1", **known),
    }
    table = geometry_table(SimpleNamespace(parameters=found, study=SimpleNamespace(model=model)))
    assert [row[:6] for row in table.rows] == [
        ("zero.q", "mrad", "2.000", "1.0", "0.04000", "3.960"),
        ("reading_scale.q", "ppm of 1", "100.0", "10", "80.40", "119.6"),
    ]


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        ("not converged after 3 rounds", "not converged"),
        ("data not followed: the best fit does not reproduce test 1", "data not followed"),
        ("no parameter identified: a doubt", "converged"),
    ],
)
def test_the_title_of_the_cost_is_that_of_the_fit(result, status, ended):
    title = cost_chart(dataclasses.replace(result, status=status)).title
    assert title.startswith(f"{result.study.name}: {ended} after ")


@pytest.mark.parametrize(("outputs", "inputs", "lines"), [(1, 1, 50), (2, 1, 1), (8, 7, 20)])
def test_grids_of_any_size(outputs, inputs, lines):
    points = [("tool", d) for d in ("x", "y", "z", "rx", "ry", "rz", "-x", "-y")]
    h = np.exp(1j * np.linspace(0.0, 9.0, lines))[:, None, None] * np.ones((outputs, inputs))
    h[:, 0, 0] = np.nan
    curves = [Curve("measured", h, "0.7", 3.0, "-")]
    weight = np.linspace(0.0, 1.0, lines)[:, None, None] * np.ones((outputs, inputs))
    lines_hz = np.arange(1.0, 1.0 + lines)
    chart = frf_chart("name", Responses(lines_hz, curves, points[:outputs], points[:inputs], 2, weight))
    assert len(chart.panels) == 2 * min(outputs, MOST_POINTS) * min(inputs, MOST_POINTS)
    assert ("first 6 of 8 outputs" in chart.note) == (outputs == 8)
    figure_of(chart).draw_without_rendering()


@pytest.mark.parametrize(
    ("percentage", "text"),
    [
        (9.97, "9.97"),
        (9.9996, "9.99"),
        (99.99996, "99.9"),
        (10.0, "10"),
        (10.04, "10"),
        (99.7, "99.7"),
        (50.4, "50"),
        (np.inf, "unknown"),
    ],
)
def test_a_deviation_below_a_limit_is_not_rounded_up_to_it(percentage, text):
    """Beside "yes below 10 %" stands no 10 that is called "yes"."""
    assert std_percent(percentage) == text


def test_what_kept_its_true_value_has_no_error(result):
    """A parameter that no data act on is not found to a billionth."""
    p = next(iter(result.parameters.values()))
    kept = p._replace(value=2.0 * p.lower)
    assert _error(kept._replace(std=np.inf), kept.value) == "-"
    assert _error(kept._replace(std=1.0), kept.value) == "<1e-9"


def test_zero_frfs_have_no_scale():
    """Rounding is zero too, and a row of zeros has no ticks."""
    h = np.ones((5, 2, 2), dtype=complex)
    h[:, 0, 1] = 0.0
    h[:, 1] = 1e-17
    points = (("tool", "x"), ("tool", "y"))
    (section,) = predicted_sections(
        "arm", Modes(*[np.zeros(0)] * 6), np.arange(1.0, 6.0), h, points, 2,
        {"a": 0.25 * np.pi, "b": 0.0, "c": 0.2}, ["a", "b"],
    )  # fmt: skip
    chart = next(part for part in section.parts if isinstance(part, Picture)).chart()
    figure = figure_of(chart)
    magnitudes = figure.axes[::2]
    assert [[t.get_text() for t in axes.texts] for axes in magnitudes] == [[], ["zero"], ["zero"], ["zero"]]
    assert [bool(len(axes.get_yticks())) for axes in magnitudes] == [True, True, False, False]
    assert chart.title == "arm at a 45 deg, c 0.2 m"
    assert section.parts[0].caption == "at a 45 deg, c 0.2 m"
    assert chart.note == "accelerance, output / input"
    figure.draw_without_rendering()


def test_an_unstable_machine_is_named():
    tangent = jaxmb.Tangent(np.diag([1.0, 2.0]), np.zeros((2, 2)), np.diag([-9.0, 800.0]))
    parts = []
    for stiffness in (tangent.stiffness, np.diag([0.0, 800.0])):
        found = jaxmb.modes(dataclasses.replace(tangent, stiffness=stiffness))
        h = np.ones((3, 1, 1), dtype=complex)
        (section,) = predicted_sections("arm", found, np.arange(1.0, 4.0), h, (("tool", "x"),), 2, {"a": 0.0}, ["a"])
        parts.append([line for part in section.parts if isinstance(part, Lines) for line in part.lines])
    assert len(parts[0]) == 1
    assert parts[0][0].startswith("unstable: the weight or a loaded spring exceeds the stiffness; ")
    assert parts[0][0].endswith("a motion grows as exp(3 t), t in s")
    assert parts[1] == []


@pytest.mark.parametrize(
    ("weight", "shaded", "label"),
    [([1, 1, 80, 1], [0, 0, 1, 0], "lines of higher weight"), ([1, 0.02, 1, 0], [0, 1, 0, 0], "lines of lower weight"),
     ([1, 1, 1, 0], [0, 0, 0, 0], ""), ([3, 3, 1, 2, 3], [0, 0, 1, 1, 0], "lines of lower weight"),
     ([0, 0], [0, 0], "")],
)  # fmt: skip
def test_the_fewer_lines_are_shaded(weight, shaded, label):
    found, display_name = _unlike(np.array(weight, dtype=float)[:, None, None])
    np.testing.assert_array_equal(found[:, 0, 0], shaded)
    assert display_name == label


def test_what_figures_say(result, figures_of):
    figures = figures_of(sections(result))
    colors = [patch.get_facecolor() for patch in figures["modes-2-frf-1"].legends[0].get_patches()]
    assert len(set(colors)) == len(colors) == 2
    entry = result.study.entries[1]
    for truth, word in ((None, "measured"), (result.study.entries[0].truth, "simulated")):
        fitted = fitted_modes(result.model, entry.test)
        chart = measured_modes_chart(result, dataclasses.replace(entry, truth=truth), fitted)
        assert chart.title.startswith(f"FRF 1: {word} and fitted modes")
        assert word in [mark.label for mark in chart.legend()]
    # A legend within the axes lies on curves sooner or later.
    assert all(axes.get_legend() is None for axes in figures["cost"].axes)


def test_labels_do_not_overlap(result, overlapping, figures_of):
    """Titles, labels and legends of every figure, as they are drawn."""
    for name, figure in figures_of(sections(result)).items():
        assert overlapping(figure) == [], name


def test_modes_that_unknown_parameters_act_on_are_marked(result, text_of):
    known = [Mode("FRF, 1", 10.0, 10.0, 0.01, 0.1, 5e-4), Mode("FRF, 1", 20.0, 20.0, 0.01, np.inf, 2e-3)]
    marked = identified_modes_table(dataclasses.replace(result, modes=tuple(known)), "FRF, 1")
    assert [row[1:] for row in marked.rows] == [
        ("10.000", "0.10", "1.000", "0.050"), ("?20.000", "unknown", "?1.000", "0.20")
    ]  # fmt: skip
    assert "?: standard deviation above 10 %" in marked.caption
    assert "?:" not in text_of(sections(result))
    assert all(0.0 < m.frequency_std_hz < 1e-3 * m.frequency_hz for m in result.modes)


def test_undamped_modes_are_not_marked(result):
    """Their damping and its standard deviation are rounding of any sign."""
    modes = tuple(Mode("hammer", hz, hz, zeta, 1e-3, 1e-17) for hz, zeta in ((5.0, -1e-17), (9.0, 1e-18)))
    assert {marks(dataclasses.replace(result, modes=modes), "hammer", hz) for hz in (5.0, 9.0)} == {("", "")}


def test_many_tests_share_a_table_and_figures(result, figures_of, overlapping):
    entry = result.study.fitted[0]
    noisy = dataclasses.replace(
        result, metrics=dataclasses.replace(result.metrics, misfit=ReducedChiSquare(1.0, 100.0))
    )
    found = frf_sections(noisy, [entry] * 4)
    tables = [part.title for part in found[0].parts if isinstance(part, Table)]
    assert tables == ["", "Modes of all tests"]
    figures = figures_of(found)
    assert set(figures) == {"frf-all-tests", "residual-all-tests", "frf-1-frf-1", "residual-1-frf-1"}
    assert [overlapping(figures[name]) for name in ("frf-all-tests", "residual-all-tests")] == [[], []]
    drawn = figures["frf-all-tests"].axes[3].lines[0].get_ydata()
    np.testing.assert_allclose(drawn, np.linalg.norm(np.asarray(entry.test.measured), axis=(1, 2)))
    (map_,) = figures["residual-all-tests"].axes[0].collections
    left = standard_residuals(result, entry)
    np.testing.assert_allclose(map_.get_array()[0, 0], np.sqrt(np.mean(left[:, 0] ** 2)))
    assert "residual-1-frf-1" not in figures_of(frf_sections(result, [entry]))


@pytest.mark.parametrize(("sensors", "modes", "shown"), [(3, 2, False), (4, 4, True), (4, 5, False), (9, 0, False)])
def test_sensors_that_distinguish_shapes(sensors, modes, shown):
    assert distinguishable(sensors, modes) == shown


def test_phase_is_cut_where_it_wraps():
    x, angle = unbroken(np.array([1.0, 2.0, 3.0]), np.array([170.0, -170.0, -160.0]))
    np.testing.assert_array_equal(x, [1.0, 2.0, 2.0, 3.0])
    np.testing.assert_array_equal(angle, [170.0, np.nan, -170.0, -160.0])


def wrapped(angle):
    return (np.asarray(angle) + 180.0) % 360.0 - 180.0


def test_a_phase_about_half_a_turn_does_not_flip():
    noise = np.random.default_rng(0).normal(size=(2, 300)) * 8.0
    measured = continuous_deg(wrapped(180.0 + noise[0]))
    fitted = continuous_deg(wrapped(180.0 + noise[1]), measured)
    assert np.abs(np.diff(measured)).max() < 60.0
    assert np.abs(np.diff(fitted)).max() < 60.0
    assert np.abs(fitted - measured).max() < 60.0
    np.testing.assert_allclose(wrapped(measured), wrapped(180.0 + noise[0]), atol=1e-9)


def test_a_phase_that_goes_on_falling_stays_on_the_axis():
    falling = np.linspace(-10.0, -900.0, 400)
    shown = continuous_deg(wrapped(falling))
    assert np.abs(shown).max() <= 270.0
    assert np.sum(np.abs(np.diff(shown)) > 180.0) == 2
    beside = continuous_deg(wrapped(falling + 20.0), shown)
    assert np.abs(beside - shown).max() < 30.0  # it goes on a turn away where the other does


def test_a_phase_is_drawn_on_the_turn_with_the_fewest_gaps():
    """From -180 down to -360 is the same as from 180 to 0, which fits on the axis."""
    shown = continuous_deg(wrapped(np.linspace(-175.0, -355.0, 50)))
    assert np.abs(np.diff(shown)).max() < 10.0
    assert np.isnan(continuous_deg(np.full(3, np.nan))).all()
    np.testing.assert_array_equal(continuous_deg(np.array([np.nan, 170.0, np.nan, -170.0]))[[1, 3]], [170.0, 190.0])


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_the_terminal(result, width, text_of):
    known = dataclasses.replace(result.study, truth={"stiffness.z1": 2e6, "stiffness.z2": 3e6})
    # The widest that there is: on a bound, with the longer unit of a damping.
    widest = {n: p._replace(value=p.upper, unit="N m s/rad", std_log=1e9) for n, p in result.parameters.items()}
    shown = text_of(sections(dataclasses.replace(result, study=known, parameters=widest)), width)
    assert "…" not in shown
    assert ("lower" in shown.split("FRF tests")[0]) == (width == 120)


def test_bounds_are_written_short():
    assert [short(x) for x in (2e5, 5.5e5, 1.25e6, 100.0, 0.001, -1e-7, np.inf)] == [
        "2e5", "5.5e5", "1.25e6", "100", "0.001", "-1e-7", "unknown",
    ]  # fmt: skip


def test_the_verdict_comes_first(result, text_of):
    first, *_ = sections(result)
    shown = text_of([first])
    assert "two: the verdict" in shown
    for part in ("fit:", "converged", "data:", "FRAC", "identifiable:", "2 of 2 parameters"):
        assert part in shown
    assert "inspect" not in shown
    name, _ = result.parameters
    doubtful = dataclasses.replace(
        result,
        status="not converged after 3 rounds: the cost still falls",
        metrics=dataclasses.replace(result.metrics, misfit=ReducedChiSquare(1e6, 100.0)),
        parameters=result.parameters | {name: result.parameters[name]._replace(identifiable="no", std_log=np.inf)},
        doubts=tuple(f"doubt {k}" for k in range(8)),
    )
    shown = text_of([sections(doubtful)[0]])
    parts = (
        "not converged after 3 rounds", "NOT followed within the noise", "1 of 2 parameters", f"1: {name}", "doubt 4",
        "3 more remarks", "more rounds or starts", "`jaxmb inspect` of this study",
    )  # fmt: skip
    for part in parts:
        assert part in shown
    assert "doubt 5" not in shown


def test_a_kind_without_sections_is_shown_by_what_all_tests_offer(result, text_of, monkeypatch):
    monkeypatch.delitem(SECTIONS, "modes")
    shown = text_of(sections(result))
    assert "Tests of kind modes" in shown
    row = next(line.split() for line in shown.split("Tests of kind modes")[1].splitlines() if line.startswith(" FRF 1"))
    assert row[:4] == ["FRF", "1", "fitted", "9"]


def test_residuals_stand_in_standard_deviations(result, figures_of):
    entry = result.study.fitted[0]
    left = standard_residuals(result, entry)
    test = entry.test
    log_ratio = np.log(np.asarray(test.predict(test.view(result.model))) / np.asarray(test.measured))
    np.testing.assert_allclose(left[0], log_ratio.real / np.asarray(test.noise_std), atol=1e-12)
    np.testing.assert_allclose(left[1], log_ratio.imag / np.asarray(test.noise_std), atol=1e-12)
    chart = residual_chart(result, entry)
    assert len(chart.panels) == 9
    assert all(panel.y.limits == (-4.0, 4.0) for panel in chart.panels)
    drawn = next(mark for mark in chart.panels[0].marks if isinstance(mark, Line))
    np.testing.assert_allclose(drawn.y, left[0, :, 0, 0])
    assert all(panel.y.label == "residual / std" for panel in chart.panels)
    assert chart.note == "standard deviation (std) of log H: 0.01, stated"


def test_the_noise_of_a_figure_is_not_that_of_leakage(result):
    entry = result.study.fitted[0]
    leak = np.zeros(entry.test.measured.shape)
    leak[:, 0, 1] = 0.1
    known = np.where(leak > 0.0, 0.3, 0.0)
    wide = dataclasses.replace(entry.test, leak=leak, known_std=known, noise_std=np.hypot(0.01, 0.3 + 0.0 * known))
    chart = residual_chart(result, dataclasses.replace(entry, test=wide))
    expected = (
        "standard deviation (std) of log H: 0.01, stated; with leakage between directions 0.3, median of all lines"
    )
    assert chart.note == expected


def test_titles_of_panels_have_one_size(result):
    frf = np.ones((3, 1, 2), complex)
    inputs = [["tool", "x"], ["a frame with a name that is longer than a panel is wide", "x"]]
    figure = figure_of(
        frf_chart("a", Responses(np.arange(3.0), [Curve("b", frf, "k", 1.0, "-")], [["tool", "x"]], inputs, 2))
    )
    assert {axes.title.get_fontsize() for axes in figure.axes if axes.get_title()} == {7.0}


def test_a_budget_lists_what_is_known_over_the_value_or_in_its_unit():
    free = SimpleNamespace(names=("a", "b", "zero.c"), logarithmic=(True, True, False))
    assert budget_table(free, {"a": (1.0, "m", np.inf)}, {}) == Lines(("no standard deviation is known",))
    own = ParameterBudget(0.1, 0.0, ())
    found = budget_table(free, {"a": (1.0, "m", np.inf), "b": (2.0, "m", 0.1)}, {"b": own})
    assert "; 1 parameter of unknown" in found.caption
    assert found.rows == (("b", "%", "5.0", "5.0", "0.0", ""),)
    in_mrad = budget_table(free, {"zero.c": (0.0, "rad", 2e-3)}, {"zero.c": ParameterBudget(1e-3, 0.0, ())})
    assert in_mrad.rows == (("zero.c", "mrad", "2.0", "1.0", "0.0", ""),)


def test_what_explains_nothing_has_no_percentage(result):
    scores = dataclasses.replace(result.metrics.fit, explained_percent=-231093.2)
    wrong = dataclasses.replace(result, metrics=dataclasses.replace(result.metrics, fit=scores))
    assert "none of the measured values explained" in " ".join(data_sentences(wrong))


def test_few_parameters_without_an_interval_are_named(result):
    """Of many, the first dozen."""
    name, one = next(iter(result.parameters.items()))
    assert parameter_chart(result).note == ""
    unknown = dataclasses.replace(result, parameters=result.parameters | {name: one._replace(interval_95=None)})
    assert parameter_chart(unknown).note == f"no interval: {name}"


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [(1e6, ".1f", ">1000"), (-4e5, ".0f", "<-1000"), (12.34, ".1f", "12.3"), (np.inf, ".1f", "inf")],
)
def test_large_percentages_are_capped(value, form, text):
    assert percentage(value, form) == text


def test_a_question_ends_as_a_question():
    assert sentence("is it in degrees?") == "Is it in degrees?"
    assert sentence("it is in degrees") == "It is in degrees."


@pytest.mark.parametrize(
    ("std_log", "text"), [(np.inf, "(std unknown)"), (0.0123, "(std 1.2 %)"), (123.0, "(std >1000 %)")]
)
def test_the_least_known_parameter_of_a_result(result, std_log, text):
    name, one = next(iter(result.parameters.items()))
    changed = dataclasses.replace(result, parameters=result.parameters | {name: one._replace(std_log=std_log)})
    assert f"least known {name} {text}" in repr(changed)
