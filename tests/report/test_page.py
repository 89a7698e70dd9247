"""The page of a report is one file that needs no network, and names in it are text."""

import dataclasses
import importlib.util
import json
import re
import shlex
import shutil
import tomllib
from functools import partial
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest

import jaxmb
from jaxmb.cli import main
from jaxmb.identify.assess.estimate import CovarianceWithErrors
from jaxmb.identify.assess.saved import write_result
from jaxmb.identify.fit.problem import with_tests
from jaxmb.identify.study.format.next_format import NextPart
from jaxmb.identify.study.reading.tests import check_next
from jaxmb.report.charts import Axis, Band, Bars, Chart, Colors, Line, Panel, Rule, matrix_panel
from jaxmb.report.charts_of_tests import QUANTITIES, pose_chart
from jaxmb.report.inspection import _why_none, next_sections
from jaxmb.report.interactive import cell_figure, traces_of
from jaxmb.report.page import REPORT, Page, notebook_html, page_html, read_sections, write_sections
from jaxmb.report.rendering import png_of
from jaxmb.report.result_page import comparison_page, mode_sections, page_of_folders, result_page
from jaxmb.report.section import Cell, Facts, Group, Lines, Picture, Section, Table, left, pictures, side_by_side
from tests.report.browser import chromium

pytestmark = pytest.mark.skipif(importlib.util.find_spec("plotly") is None, reason="plotly is not installed")

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
LARGEST = 8e6
"""Size of a page, bytes."""


class Loaded(HTMLParser):
    """Elements of a page, and what a browser would load for it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.references = list[str](), list[str]()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Saved result of a short identification."""
    folder = tmp_path_factory.mktemp("results") / "three"
    folder.mkdir()
    write_result(jaxmb.identify(jaxmb.load_study("validation-3r")), folder)
    return folder


@pytest.fixture(scope="module")
def html(folder):
    return page_html(page_of_folders([folder]))


def test_one_file_that_loads_nothing(html):
    assert len(html.encode()) < LARGEST
    own = ("#", "data:")
    assert [each for each in Loaded(html).references if not each.startswith(own)] == []
    styles = "".join(re.findall(r"<style>(.*?)</style>", html, re.DOTALL))
    assert not re.search(r"@import|url\(\s*['\"]?(?!data:)", styles)


def test_verdict_and_parameters(html, folder):
    saved = json.loads((folder / "result.json").read_text())
    assert "The fit converged; 6 of 6 parameters are identified, 0 weakly, 0 not." in html
    assert [name for name in saved["parameters"] if f">{name}</td>" not in html] == []
    assert 'data-skeleton="0"' in html


def test_the_command_in_a_page_repeats_the_fit(folder, tmp_path):
    """Options of the command are in the study of the folder, and the name of a study is no path."""
    (facts,) = result_page(jaxmb.load_result(folder), folder).sections[-1].parts
    rows = dict(facts.rows)
    assert rows["seed"] == "0"
    program, *command = shlex.split(rows["repeat the fit"])
    assert program == "jaxmb"
    assert main([*command, "--out", str(tmp_path / "again")]) == 0
    before, after = (json.loads((each / "result.json").read_text()) for each in (folder, tmp_path / "again"))
    assert after["machine_digest"] == before["machine_digest"]
    (facts,) = result_page(jaxmb.load_result(folder)).sections[-1].parts
    assert "repeat the fit" not in dict(facts.rows)


def test_mode_shapes_are_in_the_order_of_the_tests():
    """Each posture once, with the name of its first test."""
    tests = (("a", 0.0), ("b", 1.0), ("c", 0.0))
    model = jaxmb.build_model(jaxmb.load_machine("manipulator-3r"))
    view = SimpleNamespace(tangent=jaxmb.linearize(model, jaxmb.reference_posture(model)))
    of_tests = [(n, SimpleNamespace(vibration=SimpleNamespace(q=[q]), view=lambda _: view)) for n, q in tests]
    entries = [SimpleNamespace(name=n, test=test) for n, test in of_tests]
    (section,) = mode_sections(SimpleNamespace(study=SimpleNamespace(entries=entries), model=model))
    assert [part.title for part in section.parts] == ["Modes at the posture of a", "Modes at the posture of b"]


def test_mode_shapes_are_at_the_linearization_point_of_the_test(folder):
    result = jaxmb.load_result(folder)
    test = dataclasses.replace(result.study.fitted[0].test, at="equilibrium")
    study = result.study.with_problem(with_tests(result.study.problem, [test]))
    ((group,),) = (each.parts for each in mode_sections(dataclasses.replace(result, study=study)))
    shown = [mode.frequency_hz for mode in group.parts[0].chart().modes]
    expected = jaxmb.modes(jaxmb.linearize(result.model, test.q, "equilibrium")).damped_frequency_hz
    np.testing.assert_allclose(shown, expected, rtol=1e-9)  # at the posture up to 4e-4 away


@pytest.mark.parametrize("doubtful", [False, True])
def test_a_page_without_a_proposal_states_how_to_get_one_and_repeats_nothing(folder, doubtful):
    result = jaxmb.load_result(folder)
    unknown = {name: p._replace(identifiable="no") for name, p in result.parameters.items()}
    given = result.study.origin
    without_postures = given._replace(file=given.file.model_copy(update={"test": []}))
    study = dataclasses.replace(result.study, origin=without_postures, next=None)
    status = "not converged after 3 rounds" if doubtful else "converged"
    result = dataclasses.replace(result, study=study, parameters=type(result.parameters)(unknown), status=status)
    page = result_page(result)
    (found,) = [each for each in page.sections if each.title == "What to measure next"]
    ((text,),) = (part.lines for part in found.parts)
    assert not any(each.removeprefix("To do: ") in text for each in page.sentences)
    assert text.startswith("No next test is proposed") is doubtful
    part = NextPart.model_validate(tomllib.loads(text.split("`")[1])["next"])
    check_next(part, study.machine, study.model, ["test"])


def test_a_proposal_states_that_its_prediction_is_without_the_weights(folder):
    result = jaxmb.load_result(folder)
    weak = {name: p._replace(identifiable="weak") for name, p in result.parameters.items()}
    study = dataclasses.replace(result.study, next=NextPart.model_validate({"postures": [{"z2": "20 deg"}]}))
    (found,) = next_sections(dataclasses.replace(result, study=study, parameters=type(result.parameters)(weak)))
    sentences = next(part.lines for part in found.parts if isinstance(part, Lines))
    assert any(text.startswith("Weights: ") for text in sentences)


def test_example_candidates_of_a_linear_axis_are_in_metres():
    """And a machine of beams alone has no candidate postures."""
    for names, expected in ((("rail",), {"rail": [-0.1, 0.1]}), ((), None)):
        model = SimpleNamespace(coordinates=names, revolute=(False,) * len(names))
        study = SimpleNamespace(fitted=[SimpleNamespace(kind="frf")], solver=None, next=None, model=model)
        text = _why_none(SimpleNamespace(study=study, converged=True))
        assert tomllib.loads(text.split("`")[1])["next"].get("postures") == expected


def hostile_sections():
    """Every kind of part, with a text that is no harmless name."""
    line = Line([0.0, 1.0], [0.0, 1.0], HOSTILE)
    bars = Bars([0.0], [0.0], [1.0], "x", 0.7, HOSTILE)
    x, y = Axis(HOSTILE), Axis(HOSTILE, limits=(0.0, 1.0), ticks=[0.0], names=[HOSTILE])
    chart = Chart(HOSTILE, HOSTILE, [[(Panel((line, bars), x, y, HOSTILE),)]], 3.0, note=HOSTILE)
    table = Table(HOSTILE, left(HOSTILE), ((HOSTILE,), (Cell(HOSTILE, "yes"),)), HOSTILE)
    parts = (Lines((HOSTILE,)), Lines((HOSTILE,), verbatim=True), Facts(((HOSTILE, HOSTILE),)), table,
             Picture(HOSTILE, lambda: chart))  # fmt: skip
    return [Section(HOSTILE, (*parts, Group(HOSTILE, parts, shown=True)))]


def test_names_are_text():
    plain, named = (
        page_html(Page(text, text, "", [text], sections))
        for text, sections in (("name", []), (HOSTILE, hostile_sections()))
    )
    assert HOSTILE not in named
    assert "<script>alert" not in named
    assert "img" not in Loaded(named).tags
    # one more script: that of the charts
    assert Loaded(named).tags.count("script") == Loaded(plain).tags.count("script") + 1


def test_saved_sections_are_read_as_written(tmp_path):
    before = hostile_sections()
    write_sections(tmp_path / REPORT, HOSTILE, "jaxmb modal", before)
    title, origin, after = read_sections(tmp_path)
    assert (title, origin.rows[0]) == (HOSTILE, ("command", "jaxmb modal"))
    assert f"jaxmb {jaxmb.__version__}" in dict(origin.rows)["versions"]
    (chart,) = (picture.chart() for picture in pictures(after))
    assert chart.title == HOSTILE
    assert page_html(Page("name", "", "", [], after)) == page_html(Page("name", "", "", [], before))


def test_results_beside_each_other(folder):
    """A parameter that moved by more than its standard deviation is named."""
    result = jaxmb.load_result(folder)
    one = result.parameters["stiffness.z1"]
    moved = one._replace(value=one.value * (1.0 + 10.0 * one.std_log))
    other = dataclasses.replace(result, parameters=result.parameters | {"stiffness.z1": moved})
    page = comparison_page([result, other], ["three", "moved"])
    every = "1 of 6 common identifiable parameters differ by more than 2 standard deviations from three."
    assert page.sentences[0] == every
    assert page.sentences[1].startswith("stiffness.z1: ")
    assert "7.07 standard deviations" in page.sentences[1]  # 10 / sqrt 2
    unknown = dataclasses.replace(
        other, parameters=other.parameters | {"stiffness.z1": moved._replace(identifiable="no")}
    )
    sentences = comparison_page([result, unknown], ["three", "moved"]).sentences
    assert sentences == [every.replace("1 of 6", "0 of 5")]


@pytest.mark.parametrize(("error", "apart"), [("mass of l1", 10.0 / 2.0**0.5), ("zero of z1", 10.0 / 20.0**0.5)])
def test_masses_are_wrong_by_as_much_in_both_results(folder, error, apart):
    """Noise of 1 and an effect of 3 of a tolerance: their difference has the noise of both alone, 2^0.5, if the
    error is one of the design of the machine."""
    result = jaxmb.load_result(folder)
    one, count = result.parameters["stiffness.z1"], result.study.free.size
    std = one.std_log * 10.0**0.5
    matrix = np.pad(np.eye(count), ((0, 1), (0, 1)))
    i = result.study.free.names.index("stiffness.z1")
    matrix[i, i], matrix[i, -1], matrix[-1, i], matrix[-1, -1] = 10.0, 3.0, 3.0, 1.0
    known = CovarianceWithErrors((error,), np.ones(1), matrix)
    pair = [
        dataclasses.replace(
            result, parameters=result.parameters | {"stiffness.z1": one._replace(value=value, std_log=std)},
            covariance_with_errors=known,
        )
        for value in (one.value, one.value * np.exp(10.0 * one.std_log))
    ]  # fmt: skip
    sentence = comparison_page(pair, ["before", "after"]).sentences[1]
    assert float(re.findall(r"([\d.]+) standard deviations", sentence)[0]) == pytest.approx(apart, rel=0.01)


def test_stations_are_not_compared(folder):
    """The measuring device stood elsewhere: no parameter of the machine has changed."""
    result = jaxmb.load_result(folder)
    station = result.parameters["stiffness.z1"]._replace(unit="m")
    one, other = (
        dataclasses.replace(result, parameters=result.parameters | {"station.t.A.x": station._replace(value=x)})
        for x in (1.0, 2.0)
    )
    assert comparison_page([one, other], ["one", "other"]).sentences[0].startswith("0 of 6 common")


def test_tied_parameters_count_once_beside_another_result(folder):
    result = jaxmb.load_result(folder)
    problem = result.study.problem
    first, second, *others = problem.free.tied
    free = dataclasses.replace(problem.free, tied=(first + second, *others))
    tied = dataclasses.replace(result, study=result.study.with_problem(dataclasses.replace(problem, free=free)))
    facts, *_ = comparison_page([result, tied], ["three", "tied"]).sections[0].parts
    assert [sentence.split(";")[1].split(",")[0] for _, sentence in facts.rows] == [
        " 6 of 6 parameters are identified",
        " 5 of 5 parameters are identified",
    ]
    assert comparison_page([tied, tied], ["one", "two"]).sentences[0].startswith("0 of 5 common")


def test_results_of_different_machines_beside_each_other(folder):
    """They are named; a name with another unit is not the same parameter, and large differences have no exponents."""
    result = jaxmb.load_result(folder)
    moved = result.parameters["stiffness.z1"]
    slide = result.parameters["damping.z1"]._replace(unit="N s/m")
    moved = moved._replace(value=2.5 * moved.value, interval_95=tuple(2.5 * end for end in moved.interval_95))
    parameters = {"stiffness.z1": moved, "damping.z1": slide}
    machine = result.machine.model_copy(update={"name": "gantry"})
    other = dataclasses.replace(result, parameters=result.parameters | parameters, machine=machine)
    page = comparison_page([result, other], ["three", "other"])
    assert page.sentences[0].startswith("1 of 5 common identifiable parameters")
    (apart,) = re.findall(r"\+150 % in other, (\d{4}) standard deviations", page.sentences[1])
    assert page.sentences[2:] == ["The results are of different machines: manipulator-3r, gantry."]
    table = next(part for part in page.sections[0].parts if isinstance(part, Table))
    rows = {row[0]: row[2:] for row in table.rows}
    assert "damping.z1" not in rows
    assert float(rows["stiffness.z1"][-1]) == pytest.approx(float(apart), abs=1.0)
    (picture,) = pictures(page.sections[:1])
    assert picture.chart().panels[0].x.limits == (0.1, 10.0)
    every = {name: p._replace(unit="m") for name, p in result.parameters.items()}
    page = comparison_page([result, dataclasses.replace(other, parameters=every)], ["three", "other"])
    assert page.sentences[0] == "No parameter is identifiable both in three and in another result."
    assert not [part for part in page.sections[0].parts if isinstance(part, Table | Picture)]


def test_modes_of_another_posture_are_not_compared(folder):
    """Tests without a name have their number as one, whatever their posture."""
    result = jaxmb.load_result(folder)
    test = dataclasses.replace(result.study.fitted[0].test, q=result.study.fitted[0].test.q + 0.1)
    other = dataclasses.replace(result, study=result.study.with_problem(with_tests(result.study.problem, [test])))
    shown = [
        {each.title for each in comparison_page(pair, ["one", "two"]).sections}
        for pair in ([result, result], [result, other])
    ]
    assert shown[0] - shown[1] == {"Modes compared"}


def test_logarithmic_axes_have_two_labels_and_dashes_on_their_grid_are_visible():
    """plotly labels powers of ten at distances of the decades over `nticks`, rounded up, and its grid hides shapes
    below it."""
    line = Line([1.0, 2.0], [1.0, 2.0], "a")

    def layout(*limits: float):
        panel = Panel((line, Rule(1.0, "y", dashes="--")), Axis("x"), Axis("y", True, limits))
        return cell_figure(Chart("c", "", [[(panel,)]], 3.0), (panel,))["layout"]

    assert "nticks" not in layout(0.12, 9.0)["yaxis"]
    assert layout(0.02, 4.0)["yaxis"]["nticks"] == 3  # 2.3 decades, of which plotly would label one by 2
    assert [shape["layer"] for shape in layout(0.12, 9.0)["shapes"]] == ["above"]


def test_many_points_keep_their_scatter_and_curves_their_peaks():
    noise = np.random.default_rng(0).normal(size=20_000)
    noise[777] = 9.0
    x = np.arange(noise.size)
    (points,), (curve,) = (traces_of(Line(x, noise, "a", dashes=dashes, marker="o")) for dashes in ("", "-"))
    assert len(points["x"]) == len(points["y"]) <= 2000
    assert np.mean(np.abs(points["y"]) > 2.0) == pytest.approx(0.046, abs=0.02)  # four standard deviations of the mean
    assert max(curve["y"]) == 9.0


def test_bands_end_at_gaps():
    (trace,) = traces_of(Band([0.0, 1.0, 2.0, 3.0], [1.0, 2.0, np.nan, 4.0], [5.0, 6.0, 7.0, 8.0]))
    assert trace["x"] == [0.0, 1.0, 1.0, 0.0, None, 3.0, 3.0, None]
    assert trace["y"] == [1.0, 2.0, 6.0, 5.0, None, 4.0, 8.0, None]
    assert trace["fill"] == "toself"


def test_texts_of_charts_are_no_markup():
    """matplotlib would read text between dollars as mathematics, and plotly shows `&quot;` as it is."""
    name = '$a^$ 6" <b>'
    panel = Panel((Line([0.0], [0.0], name),), Axis(name), Axis("", ticks=[0.0], names=[name]), name)
    chart = Chart(name, "", [[(panel,)]], 3.0, note=name)
    png_of(chart)
    assert cell_figure(chart, (panel,))["layout"]["yaxis"]["ticktext"] == ['$a^$ 6" &lt;b&gt;']


def test_the_axis_of_pose_errors_has_the_limits_of_its_values():
    """So that its labels are powers of ten; rows that were not measured have no length."""
    lengths = ((2e-3, 3e-5), (1e-3, 2e-5), (np.nan, np.nan))
    rows = [
        SimpleNamespace(point="tool", before=np.full(9, a), error=np.full(9, b), std=np.full(9, 1e-5))
        for a, b in lengths
    ]
    low, high = pose_chart(rows, "tracker", QUANTITIES[0]).panels[0].y.limits
    ends = np.sqrt(3.0) * np.array([2e-2, 2.0])  # mm
    assert (low, high) == pytest.approx((ends[0] / 1.5, 1.5 * ends[1]))


def test_a_result_that_cannot_be_compared_says_why(folder, tmp_path):
    moved = shutil.copytree(folder, tmp_path / "moved")
    write_sections(moved / REPORT, "moved", "jaxmb identify", [Section("The fit", (Facts((("fit", "converged"),)),))])
    (moved / "study.toml").unlink()
    first, *others = page_of_folders([folder, moved]).sentences
    assert first.startswith("three: The fit converged")
    assert others[0] == "moved: Fit: converged"
    assert re.match(r"Tables and charts are those that were saved with the result: .*study\.toml", others[1])


def test_sections_of_several_reports_appear_once():
    same = Section("Same", (Lines(("text",)),))
    one, other = (Section("Both", (Lines((text,)),)) for text in ("one", "other"))
    found = side_by_side(
        [("a", [same, one, Section("End", ())]), ("b", [other, Section("Own", (Lines(("b",)),)), same])]
    )
    assert [each.title for each in found] == ["Same", "Both", "Own", "End"]
    assert [each.title for each in side_by_side([("a", [one]), ("b", [same])])] == ["Both", "Same"]
    assert found[0].parts == same.parts
    assert found[1].parts == (Group("a", one.parts), Group("b", other.parts))
    assert found[2].parts == (Group("b", (Lines(("b",)),), shown=True),)


def test_results_show_themselves_in_notebooks(folder):
    found = jaxmb.load_result(folder)._repr_html_()
    tags = Loaded(found)
    assert "The fit converged; 6 of 6 parameters are identified" in found
    assert ">stiffness.z1</td>" in found
    assert 1 < tags.tags.count("img") <= 4
    assert [each[:22] for each in tags.references] == ["data:image/png;base64,"] * tags.tags.count("img")
    assert len(found) < 1e6
    hostile = notebook_html(Page(HOSTILE, HOSTILE, "", [HOSTILE], hostile_sections()))
    assert HOSTILE not in hostile
    assert "script" not in Loaded(hostile).tags


@pytest.mark.parametrize("given", ["absent", "empty", "broken"])
def test_folders_without_a_result(given, tmp_path, capsys):
    folder = tmp_path / given
    if given != "absent":
        folder.mkdir()
    if given == "broken":
        (folder / REPORT).write_text("{}\n")
    assert main(["report", str(folder), "--out", str(tmp_path / "page.html")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert str(folder) in line
    assert not (tmp_path / "page.html").exists()


def test_in_a_browser(folder, tmp_path):
    """All charts that can be seen are drawn, nothing is requested or complained about, and no name is run."""
    result = jaxmb.load_result(folder)
    page = result_page(dataclasses.replace(result, study=dataclasses.replace(result.study, name=HOSTILE)), folder)
    path = tmp_path / "page.html"
    path.write_text(page_html(dataclasses.replace(page, sections=[*page.sections, *hostile_sections()])))
    with chromium(tmp_path) as tab:
        tab.open(path)
        assert tab.run("document.body.dataset.state") == "ready"
        seen = "[...document.querySelectorAll('.plot')].filter(each => each.offsetParent !== null)"
        assert tab.run(f"{seen}.length") > 10
        assert tab.run(f"{seen}.filter(each => !each.querySelector('svg.main-svg')).length") == 0
        assert tab.run("[...document.querySelectorAll('.skeleton')].every(each => each.dataset.state === 'drawn')")
        assert tab.run("document.querySelectorAll('img').length") == 0
        assert tab.complaints() == []
        tab.open(path, width=400)
        assert tab.run("document.documentElement.scrollWidth") == 400
        assert tab.complaints() == []


OVERLAPPING = """[...document.querySelectorAll('.plot')].flatMap((plot) => {
  const boxes = [...plot.querySelectorAll('.xtick text, .xtitle')].map((text) => text.getBoundingClientRect());
  return boxes.flatMap((a, i) => boxes.slice(i + 1).filter((b) => Math.min(a.right, b.right) - Math.max(a.left, b.left)
    > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2));
}).length"""


def test_charts_and_tables_fit(tmp_path):
    """Names stand upright where they do not fit beside each other; some are omitted where they still do not fit, and so
    are digits between powers of ten."""
    pictures_of = []
    for names, width in (((">1000", ">1000", "241", "145", "20", "12"), 2.6), (40 * ("origin.q3.x",), 8.0)):
        values, colors = np.zeros((3, len(names))), Colors("RdBu_r", (-1.0, 1.0), "component")
        panel = matrix_panel(values, 3 * ["stiffness.q1"], names, colors, labels=("", "standard deviation"))
        pictures_of.append(Picture("matrix", partial(Chart, "title", "caption", [[(panel,)]], width)))
    path = tmp_path / "page.html"
    panel = Panel((Line([0.04, 0.7], [9e3, 1e4], "std"),), Axis("%", log=True, limits=(0.03, 0.8)), Axis("", log=True))
    pictures_of.append(Picture("powers", partial(Chart, "title", "caption", [[(panel,)]], 2.6)))
    wide = Table("", left(*"abcdefghijk"), (11 * ("7.001e10",),))
    path.write_text(page_html(Page("title", "", "", [], [Section("charts", (*pictures_of, wide))])))
    with chromium(tmp_path) as tab:
        for pixels in (1200, 400):
            tab.open(path, width=pixels)
            assert tab.run(OVERLAPPING) == 0
        tab.call("Emulation.setEmulatedMedia", media="print")
        assert tab.run("document.querySelector('table').offsetWidth") < 690  # A4 with margins of 14 mm


def test_keys_legends_and_paper(html, tmp_path):
    """Keys zoom all linked charts, legends hide lines across a panel too, and printed charts are no wider than the
    paper."""
    path = tmp_path / "page.html"
    path.write_text(html)
    plots = "[...document.querySelectorAll('figure[data-name^=frf] .plot')]"
    ranges = f"{plots}.map(plot => plot._fullLayout.xaxis.range.join())"
    with chromium(tmp_path) as tab:
        tab.open(path)
        before = tab.run(ranges)
        tab.run(f"{plots}[0].dispatchEvent(new KeyboardEvent('keydown', {{key: '+'}}))")
        tab.wait(f"{ranges}.every(each => each !== '{before[0]}')")
        assert len(set(tab.run(ranges))) == 1
        tab.run(f"{plots}[0].dispatchEvent(new KeyboardEvent('keydown', {{key: '0'}}))")
        tab.wait(f"{ranges}.every(each => each === '{before[0]}')")
        shapes = "document.querySelector('figure[data-name=cost] .plot').layout.shapes.map(s => s.visible ?? true)"
        for shown in (False, True):
            tab.run("document.querySelector('figure[data-name=cost] button[data-name=tolerance]').click()")
            tab.wait(f"{shapes}.every(each => each === {str(shown).lower()})")
        width = f"{plots}[0].querySelector('svg.main-svg').getBoundingClientRect().width"
        assert tab.run(width) > 300
        tab.run("dispatchEvent(new Event('beforeprint'))")
        assert 3 * tab.run(width) < 690  # three columns on A4 with margins of 14 mm
        tab.run("dispatchEvent(new Event('afterprint'))")
        tab.wait(f"{width} > 300")
        assert tab.complaints() == []
