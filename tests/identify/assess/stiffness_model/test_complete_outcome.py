"""Studies of a complete stiffness model: what is judged, what is refused, and what is told beside the numbers."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb
from jaxmb.identify.assess.stiffness_model import (
    angle_remarks,
    compensation_metrics,
    compensation_scatter,
    evaluated_cases,
)
from jaxmb.identify.estimation import semidefinite
from jaxmb.identify.experiments.deflections.load_cases import LoadCase, predicted
from jaxmb.identify.experiments.deflections.table import deflections_csv
from jaxmb.identify.experiments.tolerances import Instruments
from jaxmb.identify.stiffness_model import compensator
from jaxmb.identify.stiffness_model.variants import compensated_joint, fitted_variant, stiffness_models
from tests.identify.kr240 import STD, displaced, entry_of, measured_by
from tests.identify.kr270 import ANGLES, MODEL, RIGID, at_angles, complete_study, fitted_cases, judged


@pytest.fixture(scope="module")
def fit_cases():
    return fitted_cases()


@pytest.fixture(scope="module")
def models(fit_cases):
    return stiffness_models(MODEL, fit_cases, compensated_joint(MODEL, "q2", fit_cases))[1]


@pytest.fixture(scope="module")
def result():
    return judged()


def test_angles_that_were_not_tested_leave_the_others_judged(result):
    metrics = result.as_json()["metrics"]
    percent = metrics["compensated_percent"]
    assert list(percent) == ["J1", "J2", "C1", "C2"]
    assert percent["J2"] is percent["C2"] is None
    assert 50.0 < percent["J1"] < percent["C1"] <= 100.0
    assert [row["model"] for row in metrics["table2_check"]] == ["none", "J1", "C1"]
    assert [row["model"] for row in metrics["table2_fit"]] == ["none", "J1", "J2", "C1", "C2"]
    told = [r for r in result.remarks if r.startswith("J2 and C2 are not judged on the check tests")]
    assert len(told) == 1
    assert "identified at 20, 80, 140 deg" in told[0]
    assert "'c2' at 35 deg, 'c3' at 47.5 deg" in told[0]
    assert "'c0'" not in told[0]


def test_many_such_tests_are_counted(fit_cases, models):
    check = at_angles(fit_cases[:12], 30.0 + np.arange(12))
    check = [dataclasses.replace(case, name=f"c{i}") for i, case in enumerate(check)]
    entries = [entry_of(fit_cases, "fit", model=MODEL), entry_of(check, "check", "check", model=MODEL)]
    variants = {name: fitted_variant(models[name], MODEL, fit_cases) for name in ("J1", "J2")}
    (told,) = angle_remarks(MODEL, entries, variants)
    assert told.endswith("'c9' at 39 deg and 2 more")
    assert compensation_metrics(MODEL, entries, variants).compensated_percent["J2"] is None
    assert evaluated_cases(entries) == check
    assert evaluated_cases(entries[:1]) == list(fit_cases)
    assert angle_remarks(MODEL, entries[:1], variants) == []


def test_the_spring_that_is_left_out_is_told(result):
    told = "machine.toml has no spring 'compensator': its effect is part of the compliances, as in C1"
    assert told in result.remarks
    assert result.machine.spring == ()


def test_draws_are_told_of_the_variants_that_are_judged(result):
    told = result.as_json()["metrics"]["monte_carlo"]
    assert told["draws"] == 5
    assert list(told["compensated_percent_std"]) == list(told["predicted_std_mm"]) == ["J1", "C1"]
    assert any("in 5 draws of the instruments' errors in the fitted tests" in r for r in result.remarks)


def test_scatter_of_the_tracker_is_that_of_the_covariance(fit_cases, models):
    tracker = Instruments(tracker_mm=0.03)
    std = np.full(180, tracker.translation_std)
    spread = np.repeat([tracker.translation_std, tracker.rotation_std], 3)
    cases = [dataclasses.replace(t, std=np.tile(spread, (3, 1))) for t in fit_cases]
    variants = {name: fitted_variant(models[name], MODEL, cases) for name in ("C1", "C2")}

    def scatter(draws=300, **errors):
        entries = [entry_of(cases, "fit", instruments=tracker.model_copy(update=errors), model=MODEL)]
        return compensation_scatter(MODEL, RIGID, entries, variants, "C2", std, draws, 4)

    told = scatter()
    for name, variant in variants.items():
        rows = variant.model.observation(MODEL, cases)
        variance = np.einsum("mi,ij,mj->m", rows, variant.fit.covariance, rows)
        # 300 draws tell a deviation to 4.1 %, the mean of many better; four times that.
        assert told.predicted_std_mm[name] == pytest.approx(1e3 * np.sqrt(3.0 * variance.mean()), rel=0.165)
    assert told.compensated_percent_std["C1"] < 1.0
    heavy = scatter(100, balance_kg=5.0)
    # 5 kg of 255 kg change all displacements of a test alike, by 2 % of 5 mm.
    assert all(heavy.predicted_std_mm[name] > 2.0 * told.predicted_std_mm[name] for name in variants)


@pytest.mark.parametrize(("noise", "status"), [(2e-4, "no parameter identified"), (2e-2, "data not followed")])
def test_data_are_followed_if_their_residual_is_below_half_of_them(fit_cases, noise, status):
    """Of displacements of 5 mm, whose stated errors of 0.03 mm are smaller than the residual in both cases."""
    draw = np.random.default_rng(3)
    result = jaxmb.identify(complete_study(displaced(fit_cases, lambda d: d + noise * draw.normal(size=d.shape))))
    assert result.status.startswith(status)
    assert not any(p.identifiable == "yes" for p in result.parameters.values())


def test_a_joint_that_parallel_loads_do_not_show_is_named(result):
    assert any(r.startswith("q1 is not known: all loads are parallel and move no measured") for r in result.remarks)


def test_parallel_loads_beside_the_compensated_joint_are_refused(fit_cases):
    with pytest.raises(ValueError, match="test 'fit': all loads are parallel and move no measured point by the"
                                         " compensated joint 'q1'"):  # fmt: skip
        jaxmb.identify(complete_study(fit_cases, compensated="q1"))


def test_singular_postures_are_refused(fit_cases):
    # the axes of joints 4 and 6 are one
    wrong = [dataclasses.replace(case, q=np.where(np.arange(6) == 4, 0.0, case.q)) for case in fit_cases]
    with pytest.raises(ValueError, match="its posture is singular"):
        jaxmb.identify(complete_study(wrong))


def test_an_angle_at_which_the_compensated_joint_is_not_loaded(fit_cases):
    # A force along the axis of joint 2 makes no moment about it.
    at = jnp.asarray(np.stack([case.q for case in fit_cases]))
    axes = np.asarray(jax.jit(jax.vmap(lambda q: jaxmb.frame_jacobian(MODEL, q, "load")[3:, 1]))(at))
    beside = [
        dataclasses.replace(case, wrench=np.r_[2500.0 * axis, np.zeros(3)])
        if abs(case.q[1] - ANGLES[0]) < 1e-6
        else case
        for case, axis in zip(fit_cases, axes, strict=True)
    ]
    told = jaxmb.identify(complete_study(measured_by(MODEL, beside))).metrics["compensator"]
    assert len(told["compliance"]) == len(told["std"]) == 3
    assert "spring" not in told
    assert np.isnan(told["compliance"][0])
    assert np.isinf(told["std"][0])
    assert np.isfinite(told["compliance"][1:]).all()


def test_published_numbers_are_those_of_the_study(result):
    assert "published_reduction" not in result.as_json()["metrics"]
    published = dict.fromkeys(result.metrics["reduction"], 7)
    part = result.study.complete.model_copy(update={"published_reduction": published})
    other = jaxmb.identify(dataclasses.replace(result.study, complete=part))
    assert other.as_json()["metrics"]["published_reduction"] == published
    with pytest.raises(ValueError, match="published_reduction has original, M2"):
        type(part)(published_reduction={step: count for step, count in published.items() if step != "M1"})


def test_searches_that_did_not_converge_are_told(result, fit_cases, monkeypatch):
    assert not any("did not converge" in r for r in result.remarks)
    assert "unsettled" not in result.as_json()["metrics"]["compensator"]["spring"]
    monkeypatch.setattr(semidefinite, "MOST_STEPS", 1)
    monkeypatch.setattr(compensator, "MOST_EVALUATIONS", 1)
    told = jaxmb.identify(complete_study(fit_cases))
    search, spring = (r for r in told.doubts if "did not converge" in r)
    assert search.startswith("the search for the machine that agrees best with these values did not converge: ")
    assert spring.startswith("the fit of a spring to the compliance of q2 did not converge: ")
    assert {search, spring} < set(told.remarks)
    assert told.as_json()["metrics"]["compensator"]["spring"]["unsettled"] is True


def test_errors_of_the_load_are_correlated_in_a_complete_model(fit_cases, models):
    """Standard deviations are those of generalized least squares: 5 kg of 2.5 kN scale the displacements of a load."""
    result = jaxmb.identify(complete_study(fit_cases, instruments={"tracker_mm": 0.03, "balance_kg": 5.0}))
    assert result.outcome == "converged"
    rows, information, first = models["C2"].observation(MODEL, fit_cases), 0.0, 0
    for case, moved in zip(fit_cases, predicted(result.model, fit_cases), strict=True):
        common = 5.0 * 9.80665 / 2500.0 * moved[case.measured]
        own, first = rows[first : first + common.size], first + common.size
        covariance = np.diag(case.std[case.measured] ** 2) + np.outer(common, common)
        information = information + own.T @ np.linalg.solve(covariance, own)
    expected = np.sqrt(np.diag(np.linalg.inv(information)))
    names = [f"compliance.{name}" for name in models["C2"].names]
    np.testing.assert_allclose([result.parameters[name].std for name in names], expected, rtol=1e-3)


def test_compliances_of_a_linear_axis_are_in_m_per_n(tmp_path):
    """A robot on a linear axis, whose compliance is a parameter of its own."""
    (tmp_path / "track.toml").write_text(
        'name = "track"\n'
        '[[body]]\nname = "q1"\n[[body.joint]]\nname = "q1"\ntype = "prismatic"\naxis = [1, 0, 0]\nstiffness = 1e7\n'
        '[[body]]\nname = "q2"\nparent = "q1"\norigin = { xyz = [0.3, 0.0, 0.5] }\n'
        '[[body.joint]]\nname = "q2"\naxis = [0, 0, 1]\nstiffness = 1e6\n'
        '[[virtual_spring]]\nname = "link1"\nbody = "q1"\norigin = { xyz = [0.3, 0.0, 0.5] }\n'
        "diagonal = [1e-8, 1e-8, 1e-8, 1e-7, 1e-7, 1e-7]\n"
        '[[frame]]\nname = "tool"\nbody = "q2"\norigin = { xyz = [0.8, 0.1, 0.2] }\n'
    )
    model, draw = jaxmb.build_model(jaxmb.load_machine(tmp_path / "track.toml")), np.random.default_rng(1)
    cases = [
        LoadCase(
            f"t{i}", draw.normal(size=2), "tool", 1e3 * draw.normal(size=6), ("tool",), np.zeros((1, 6)), STD[None]
        )
        for i in range(8)
    ]
    (tmp_path / "fit.csv").write_text(deflections_csv(model, measured_by(model, cases)))
    study = 'machine = "track.toml"\n[complete]\n{}\n[[test]]\nkind = "deflection"\nfile = "fit.csv"\n'
    path = tmp_path / "study.toml"
    path.write_text(study.format(""))
    result = jaxmb.identify(jaxmb.load_study(path))
    assert result.parameters["compliance.q1"].unit == "m/N"
    assert result.parameters["compliance.q1"].value == pytest.approx(1.1e-7, rel=1e-6)  # with x of the link
    path.write_text(study.format('compensated = "q1"'))
    with pytest.raises(ValueError, match=r"\[complete\]: compensated joint 'q1' is prismatic"):
        jaxmb.identify(jaxmb.load_study(path))
