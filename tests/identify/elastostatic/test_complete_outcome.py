"""Studies of a complete stiffness model: what is judged, what is refused, and what is told beside the numbers."""

import dataclasses
import io

import numpy as np
import pytest
import tomli_w
from rich.console import Console

import jaxmb
from jaxmb.identify.assess.stiffness_model.compensation import angle_remarks, compensation_metrics, judged_tests
from jaxmb.identify.assess.stiffness_model.scatter import compensation_scatter
from jaxmb.identify.experiments.deflection_table import deflections_csv
from jaxmb.identify.experiments.load_cases import LoadCase, predicted
from jaxmb.identify.stiffness_model.variants import compensated_joint, fitted, stiffness_models
from jaxmb.identify.study.format.deflection_format import Instruments
from jaxmb.identify.study.reading.deflections import DeflectionSet
from jaxmb.identify.study.simulation.postures import candidate_postures
from jaxmb.report.cells import number
from jaxmb.report.complete_plots import complete_figures
from jaxmb.report.style import drawing
from jaxmb.report.tables import result_tables

MODEL = jaxmb.build_model(jaxmb.load_machine("kuka-kr270"))
ANGLES = tuple(np.radians([20.0, 80.0, 140.0]))
RANGES = {"q1": (-1.5, 1.5), "q2": ANGLES, "q3": (-4.0, -1.8), "q4": (-3.0, 3.0), "q5": (0.4, 1.8), "q6": (-3.0, 3.0)}
DOWN = np.array([0.0, 0.0, -2500.0, 0.0, 0.0, 0.0])


def made(count, seed, load=DOWN, ranges=RANGES, prefix="t"):
    """Positions of three points, displaced by the machine's own compliances."""
    blank = np.where([True] * 3 + [False] * 3, 0.0, np.nan) * np.ones((3, 1))
    tests = [
        LoadCase(f"{prefix}{i}", q, "load", load, ("p1", "p2", "p3"), blank, np.full((3, 6), 3e-5))
        for i, q in enumerate(candidate_postures(MODEL, ranges, count, seed))
    ]
    moved = zip(tests, predicted(MODEL, tests), strict=True)
    return [dataclasses.replace(t, displacement=np.where(t.measured, p, np.nan)) for t, p in moved]


def at_angle(test, name, degrees):
    """The test as it would be made at another angle of joint 2."""
    other = dataclasses.replace(test, name=name, q=np.where(np.arange(6) == 1, np.radians(degrees), test.q))
    return dataclasses.replace(other, displacement=np.where(other.measured, predicted(MODEL, [other])[0], np.nan))


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study of tests in tables."""
    folder = tmp_path_factory.mktemp("complete")

    def of(fit, check=(), compensated="q2", instruments=None):
        entries = []
        for name, tests in (("fit", fit), ("check", check)):
            if len(tests):
                (folder / f"{name}.csv").write_text(deflections_csv(MODEL, tests))
                entries.append({"kind": "deflection", "name": name, "role": name, "file": f"{name}.csv"})
        if instruments is not None:
            entries[0]["instruments"] = instruments
        complete = {} if compensated is None else {"compensated": compensated}
        path = folder / "study.toml"
        path.write_text(tomli_w.dumps({"machine": "kuka-kr270", "complete": complete, "test": entries}))
        return jaxmb.load_study(path)

    return of


@pytest.fixture(scope="module")
def fit_tests():
    return made(20, 1)


@pytest.fixture(scope="module")
def checks():
    """Two at angles that were tested, two at others."""
    tests = made(4, 2, prefix="c")
    return [*tests[:2], at_angle(tests[2], "c2", 35.0), at_angle(tests[3], "c3", 47.5)]


@pytest.fixture(scope="module")
def result(study, fit_tests, checks):
    return jaxmb.identify(study(fit_tests, checks, instruments={"tracker_mm": 0.03, "draws": 5}))


@pytest.fixture(scope="module")
def text(result):
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(result_tables(result, 200))
    return " ".join(console.export_text().split())


def test_angles_that_were_not_tested_leave_the_others_judged(result, text):
    percent = result.metrics["compensated_percent"]
    assert list(percent) == ["J1", "J2", "C1", "C2"]
    assert percent["J2"] is percent["C2"] is None
    assert 50.0 < percent["J1"] < percent["C1"] <= 100.0
    assert [row["model"] for row in result.metrics["table2_check"]] == ["none", "J1", "C1"]
    assert [row["model"] for row in result.metrics["table2_fit"]] == ["none", "J1", "J2", "C1", "C2"]
    told = [r for r in result.remarks if r.startswith("J2 and C2 are not judged on the check tests")]
    assert len(told) == 1
    assert "identified at 20, 80, 140 deg" in told[0]
    assert "'c2' at 35 deg, 'c3' at 47.5 deg" in told[0]
    assert "'c0'" not in told[0]
    assert told[0] in text
    assert result.as_json()["metrics"]["compensated_percent"]["C2"] is None


def test_many_such_tests_are_counted(fit_tests):
    sets = [
        DeflectionSet("fit", tuple(fit_tests)),
        DeflectionSet("check", tuple(at_angle(fit_tests[0], f"c{i}", 30.0 + i) for i in range(12)), "check"),
    ]
    models = stiffness_models(MODEL, fit_tests, compensated_joint(MODEL, "q2", fit_tests))[1]
    variants = {name: fitted(models[name], MODEL, fit_tests) for name in ("J1", "J2")}
    (told,) = angle_remarks(MODEL, sets, variants)
    assert told.endswith("'c9' at 39 deg and 2 more")
    assert compensation_metrics(MODEL, sets, variants)["compensated_percent"]["J2"] is None
    assert judged_tests(sets) == list(sets[1].tests)
    assert judged_tests(sets[:1]) == list(fit_tests)
    assert angle_remarks(MODEL, sets[:1], variants) == []


def test_the_spring_that_is_left_out_is_told(result, text):
    told = "machine.toml has no spring 'compensator': what it does is part of the compliances, as in C1"
    assert told in result.remarks
    assert told in text
    assert result.machine.spring == ()


def test_draws_are_told_of_the_variants_that_are_judged(result, text):
    told = result.metrics["monte_carlo"]
    assert told["draws"] == 5
    assert list(told["compensated_percent_std"]) == list(told["predicted_std_mm"]) == ["J1", "C1"]
    assert "in 5 draws of the instruments' errors in the fitted tests" in text
    assert not any("are not made of a complete model" in r for r in result.remarks)


def test_scatter_of_the_tracker_is_that_of_the_covariance(fit_tests):
    rigid = jaxmb.build_model(jaxmb.load_machine("kuka-kr270").model_copy(update={"spring": ()}))
    tracker = Instruments(tracker_mm=0.03)
    std = np.full(180, tracker.translation_std)
    spread = np.repeat([tracker.translation_std, tracker.rotation_std], 3)
    tests = [dataclasses.replace(t, std=np.tile(spread, (3, 1))) for t in fit_tests]
    models = stiffness_models(MODEL, tests, compensated_joint(MODEL, "q2", tests))[1]
    variants = {name: fitted(models[name], MODEL, tests) for name in ("C1", "C2")}

    def scatter(**errors):
        instruments = tracker.model_copy(update=errors)
        sets = [DeflectionSet("fit", tuple(tests), instruments=instruments)]
        return compensation_scatter(MODEL, rigid, sets, variants, "C2", std, 300, 4)

    told = scatter()
    for name, variant in variants.items():
        rows = variant.model.observation(MODEL, tests)
        variance = np.einsum("mi,ij,mj->m", rows, variant.fit.covariance, rows)
        # 300 draws tell a deviation to 4.1 %, the mean of many better; four times that.
        assert told["predicted_std_mm"][name] == pytest.approx(1e3 * np.sqrt(3.0 * variance.mean()), rel=0.165)
    assert told["compensated_percent_std"]["C1"] < 1.0
    heavy = scatter(balance_kg=5.0)
    # 5 kg of 255 kg change all displacements of a test alike, by 2 % of 5 mm.
    assert all(heavy["predicted_std_mm"][name] > 2.0 * told["predicted_std_mm"][name] for name in variants)


def test_a_joint_that_parallel_loads_do_not_show_is_named(result):
    assert any(r.startswith("q1 is not known: all loads are parallel and move no measured") for r in result.remarks)


def test_parallel_loads_beside_the_compensated_joint_are_refused(study, fit_tests):
    with pytest.raises(ValueError, match="'t0' to 't19': all loads are parallel and move no measured point by the"
                                         " compensated joint 'q1'"):  # fmt: skip
        jaxmb.identify(study(fit_tests, compensated="q1"))


def test_a_singular_posture_is_refused(study, fit_tests):
    q = np.where(np.arange(6) == 4, 0.0, fit_tests[5].q)  # the axes of joints 4 and 6 are one
    wrong = [dataclasses.replace(t, q=q) if t.name == "t5" else t for t in fit_tests]
    with pytest.raises(ValueError, match="deflection test 't5': its posture is singular"):
        jaxmb.identify(study(wrong))


def test_an_angle_at_which_the_compensated_joint_is_not_loaded(study, fit_tests):
    def beside(test):
        """A force along the axis of joint 2 makes no moment about it."""
        axis = np.asarray(jaxmb.frame_jacobian(MODEL, test.q, "load"))[3:, 1]
        other = dataclasses.replace(test, wrench=np.r_[2500.0 * axis, np.zeros(3)])
        return dataclasses.replace(other, displacement=np.where(other.measured, predicted(MODEL, [other])[0], np.nan))

    loads = [beside(t) if abs(t.q[1] - ANGLES[0]) < 1e-6 else t for t in fit_tests]
    told = jaxmb.identify(study(loads)).metrics["compensator"]
    assert len(told["compliance"]) == len(told["std"]) == 3
    assert "spring" not in told
    assert np.isnan(told["compliance"][0])
    assert np.isinf(told["std"][0])
    assert np.isfinite(told["compliance"][1:]).all()


def test_published_numbers_are_shown_for_the_published_machine_alone(result, text):
    assert "parameters published" in text
    machine = result.study.machine.model_copy(update={"name": "mine"})
    study = dataclasses.replace(result.study, machine=machine)
    other = jaxmb.identify(study)
    assert "published_reduction" not in other.metrics
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(result_tables(other, 200))
    assert "published" not in console.export_text()


def test_models_that_are_not_judged_have_dashes_and_draws_a_scatter(result, text):
    check, fit = text.split("tests used in the fit")
    assert f"J2: joints and compensator {result.metrics['parameters']['J2']} - - - - - - -" in " ".join(check.split())
    assert "scatter % scatter mm" in check
    assert "scatter" not in fit.split("remark")[0]
    drawn = result.metrics["monte_carlo"]
    assert number(drawn["predicted_std_mm"]["C1"], 2) in check


def test_histograms_of_all_models_have_one_scale(result):
    with drawing():
        figures = dict(complete_figures(result))
    limits = {axes.get_xlim() for name in ("errors-check", "errors-fit") for axes in figures[name].axes}
    assert len(limits) == 1
    for name in ("errors-check", "errors-fit"):
        titles = [axes.get_title(loc="left") for axes in figures[name].axes]
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
    assert "95 % intervals" in figures["compliances"].get_suptitle()
