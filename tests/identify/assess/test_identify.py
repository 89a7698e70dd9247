"""Results of studies with tests of several kinds: known truth, bounds, priors, and what is said of values."""

import importlib

import numpy as np
import pytest

import jaxmb
from jaxmb import Machine, build_model, posture
from jaxmb.identify.assess.estimate import Diagnosis
from jaxmb.identify.assess.identify import _doubts, assess, identify, search_status
from jaxmb.identify.assess.kinds import fit_metrics
from jaxmb.identify.fit.state import Fit
from jaxmb.measurement.files.frf_file import write_frf
from jaxmb.measurement.frf_set import FrfSet
from jaxmb.report.result_page import mode_sections
from tests.identify.arm import BRIEF, FREE, MACHINE, TRUTH, estimate_at, frf, loads, shapes, study_of

STIFF = {"stiffness.*": FREE["stiffness.*"]}


def test_known_truth_comes_back_from_tests_of_all_kinds(tmp_path):
    """Noise-free FRFs, modes with shapes and deflections of one machine: to 1e-6, whatever the weights between them."""
    quiet = loads()
    del quiet["instruments"]
    result = identify(study_of(tmp_path, frf(), shapes(b=0.9), quiet, refine={"coarse_lines": 0}))
    assert result.converged
    assert result.study.truth["stiffness.a"] == TRUTH["stiffness.a"]
    for name, true in TRUTH.items():
        assert result.parameters[name].value == pytest.approx(true, rel=1e-6)


def test_what_only_a_bound_holds_back_is_not_known(tmp_path):
    """The truth lies beyond a bound: the Jacobian there knows the value to 1e-4, and the data that it is another."""
    free = FREE | {"stiffness.a": {"lower": 1e3, "upper": 4e4}}
    result = identify(study_of(tmp_path, frf(noise=0.01), free=free, **BRIEF))
    found = result.parameters["stiffness.a"]
    assert found.value == pytest.approx(4e4)
    assert found.identifiable == "no"
    assert result.as_json()["parameters"]["stiffness.a"]["std"] is None
    assert any("stiffness.a (upper)" in remark for remark in result.remarks)
    # a truth on the bound itself is a minimum there, and known
    free = FREE | {"stiffness.a": {"lower": 1e3, "upper": 5e4}}
    found = identify(study_of(tmp_path, frf(), free=free, **BRIEF)).parameters["stiffness.a"]
    assert found.value == pytest.approx(5e4)
    assert found.identifiable == "yes"


def test_noise_to_be_estimated_counts_as_it_is_found(tmp_path):
    """FRFs of 30 % noise beside precise deflections: called "estimate", they count as if it had been stated."""
    noisy = frf(noise=0.3, seed=5)
    stated, found = (
        identify(study_of(tmp_path, noisy | {"noise_log_std": noise}, loads(), **BRIEF)) for noise in (0.3, "estimate")
    )
    assert found.converged
    assert found.metrics["noise_log_std"]["test 1"] == pytest.approx(0.3, rel=0.1)  # of 97 lines, twice four FRFs
    for name, p in stated.parameters.items():
        # the estimate of the noise is some per cent off, and so is what the FRFs count
        assert abs(np.log(found.parameters[name].value / p.value)) < 0.2 * p.std_log
        assert found.parameters[name].std_log == pytest.approx(p.std_log, rel=0.1)


def test_a_misfit_beside_noise_to_be_estimated_is_a_doubt(tmp_path):
    """The deflections are those of another arm; the noise of the FRFs is no measure of them."""
    other = loads()["simulate"] | {"parameters": {"stiffness.b": 8e3}}
    study = study_of(tmp_path, frf(noise=0.01, noise_log_std="estimate"), loads(simulate=other, name="loads"))
    estimate = estimate_at(study, study.free.encode(np.array([TRUTH[name] for name in study.free.names])))
    doubts = _doubts(estimate, Diagnosis(estimate, True, (), ()), fit_metrics(estimate), study.machine)
    (misfit,) = [text for text in doubts if "stated noise" in text]
    assert misfit.startswith("test 'loads': reduced chi-square")


def test_a_misfit_of_many_degrees_of_freedom_remarks_that_no_error_was_searched_for(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.import_module("jaxmb.identify.fit.problem"), "FEW", 0)
    other = loads()["simulate"] | {"parameters": {"stiffness.b": 8e3}}
    study = study_of(tmp_path, frf(noise=0.01), loads(simulate=other))
    estimate = estimate_at(study, study.free.encode(np.array([TRUTH[name] for name in study.free.names])))
    assert any(text.startswith("errors in the description were not searched for") for text in assess(estimate).remarks)


@pytest.mark.parametrize(("tolerances", "remarked"), [({}, True), ("exact", False)])
def test_tolerances_that_are_not_propagated_are_remarked(tmp_path, monkeypatch, tolerances, remarked):
    monkeypatch.setattr(importlib.import_module("jaxmb.identify.fit.problem"), "FEW", 0)
    study = study_of(tmp_path, frf(noise=0.01), tolerances=tolerances)
    estimate = estimate_at(study, study.free.encode(np.array([TRUTH[name] for name in study.free.names])))
    assert any("do not contain the tolerances" in r for r in assess(estimate).remarks) == remarked


def test_a_test_without_standard_deviations_leaves_none_in_a_search(tmp_path, monkeypatch):
    """As saturated torques beside FRFs; in a linear study alone they did."""
    study = study_of(tmp_path, frf(noise=0.01), tolerances="exact")
    estimate = estimate_at(study, study.free.encode(np.array([TRUTH[name] for name in study.free.names])))
    assert np.isfinite(estimate.std).all()
    monkeypatch.setattr(type(study.fitted[0].source), "std_unknown", True)
    result = assess(estimate)
    assert all(np.isinf(p.std) for p in result.parameters.values())
    assert all(np.isinf(mode.frequency_std_hz) for mode in result.modes)


def test_inertias_that_no_body_has_leave_a_result_without_modes(tmp_path):
    """The mass matrix is indefinite at the minimum, as beside torques of the wrong sign: no modes, and a status."""
    free = FREE | {"inertia.fore.yy": {"lower": -9.0, "upper": 9.0, "initial": 0.3, "scale": "linear"}}
    study = study_of(tmp_path, frf(noise=0.01), free=free, tolerances="exact")
    values = [{**TRUTH, "inertia.fore.yy": -8.0}[name] for name in study.free.names]
    result = assess(estimate_at(study, study.free.encode(np.array(values))))
    assert not result.converged
    assert result.modes == ()
    assert any("its mass matrix is not positive definite" in text for text in result.doubts)
    assert all(np.isinf(p.std) for p in result.parameters.values())
    assert mode_sections(result) == []


def test_deflections_that_nothing_is_known_of_have_no_deviation(tmp_path):
    """The wrist's stiffness is not in a load at the elbow: a check at the tool cannot be predicted."""
    fit = loads(noise=0.001) | {"frame": "elbow"}
    check = loads(noise=0.001, role="check", name="check")
    result = identify(study_of(tmp_path, fit, check, free=STIFF, prior={"*": 1e6}))
    rows = result.metrics["deflections"]
    assert all(np.isfinite(row["predicted_std_mm"]).all() for row in rows if row["role"] == "fit")
    linear = identify(study_of(tmp_path, fit, check, free=STIFF))
    rows = linear.metrics["deflections"]
    assert all(np.isfinite(row["predicted_std_mm"]).all() for row in rows if row["role"] == "fit")
    assert not np.isfinite([row["predicted_std_mm"][0] for row in rows if row["role"] == "check"]).any()


def test_intervals_of_what_cannot_be_negative_end_at_zero(tmp_path):
    """Stiffnesses that deflections hardly tell, on a linear scale: value minus 1.96 standard deviations is below 0."""
    rough = loads() | {"std_mm": 20.0, "std_deg": 20.0}
    del rough["instruments"]
    free = {name: bounds | {"scale": "linear"} for name, bounds in STIFF.items()}
    result = identify(study_of(tmp_path, rough, free=free))
    for name, told in result.as_json()["parameters"].items():
        p = result.parameters[name]
        assert p.value == pytest.approx(TRUTH[name])
        assert p.value - 1.96 * p.std < 0.0
        assert told["interval_95"] == [0.0, pytest.approx(p.value + 1.96 * p.std)]


def test_a_prior_for_what_the_data_cannot_fix_alone(tmp_path):
    """Deflections tell nothing of damping: its prior stays, and the stiffnesses are what they are without any."""
    free = STIFF | {"damping.a": FREE["damping.*"] | {"initial": 20.0}}
    without = identify(study_of(tmp_path, loads(), free=STIFF))
    result = identify(study_of(tmp_path, loads(), free=free, prior={"damping.a": 0.3}))
    assert result.metrics["prior_log_std"] == {"damping.a": 0.3}
    damping = result.parameters["damping.a"]
    assert damping.value == pytest.approx(20.0, rel=1e-9)
    assert damping.std_log == pytest.approx(0.3, rel=1e-9)
    assert damping.identifiable == "no"
    for name in ("stiffness.a", "stiffness.b"):
        assert result.parameters[name].std_log == pytest.approx(without.parameters[name].std_log, rel=1e-3)
        assert result.parameters[name].identifiable == "yes"
    assert "determined by the prior: damping.a" in result.remarks


@pytest.mark.parametrize(("share", "is_leakage"), [(0.01, True), (0.5, False)])
def test_an_frf_that_the_machine_lacks_is_left_out(tmp_path, share, is_leakage):
    """A plane arm does not move across its plane: its FRF there is 0 and has no logarithm to compare with."""
    lines, model = np.linspace(1.0, 25.0, 80), build_model(MACHINE)
    h = np.asarray(jaxmb.frf(model, posture(model, {"a": 0.2, "b": 0.5}), lines, "tool"))[:, :1, :1]
    written = FrfSet(lines, np.concatenate([h, share * h], axis=1), "accelerance", ("tool x", "tool y"), ("tool x",))
    write_frf(tmp_path / "leak.npz", written)
    test = {"kind": "frf", "file": "leak.npz", "posture": {"a": 0.2, "b": 0.5}, "noise_log_std": 0.01}
    test |= {"outputs": [["tool", "x"], ["tool", "y"]], "inputs": [["tool", "x"]]}
    result = identify(study_of(tmp_path, test, **BRIEF))
    assert all(result.parameters[name].value == pytest.approx(true, rel=1e-3) for name, true in TRUTH.items())
    which = "test 'leak': tool y from tool x (1 FRF): the machine has no response"
    assert sum(text.startswith(which) for text in result.remarks) == 2 - is_leakage
    assert any(text.startswith(which) for text in result.doubts) is not is_leakage
    with pytest.raises(ValueError, match="test 'leak': the machine has no response from tool x to tool y"):
        study_of(tmp_path, test | {"outputs": [["tool", "y"]]})


@pytest.mark.parametrize("free", [False, True])
def test_an_frf_that_is_zero_at_the_start_alone_is_fitted(tmp_path, free):
    """A first moment couples a slide and a hinge; it is 0 where the fit starts."""
    slide = {"name": "s", "type": "prismatic", "axis": [1.0, 0.0, 0.0], "stiffness": 1e5}
    inertia = {"xx": 1.0, "yy": 1.0, "zz": 1.0}
    bodies = [{"name": "cart", "joint": [slide], "mass": 5.0},
              {"name": "head", "parent": "cart", "joint": [{"name": "t", "stiffness": 1e4}], "mass": 5.0,
               "inertia_products": inertia}]  # fmt: skip
    tool = {"name": "tool", "body": "head", "origin": {"xyz": [0.3, 0.0, 0.0]}}
    machine = Machine.model_validate({"name": "cross", "body": bodies, "frame": [tool]})
    lines = np.linspace(1.0, 25.0, 5)
    write_frf(tmp_path / "m.npz", FrfSet(lines, np.full((5, 2, 2), 0.1 + 0.1j), "accelerance"))
    points = [["tool", "x"], ["tool", "y"]]
    own = {"stiffness.*": FREE["stiffness.*"]} | (
        {"first_moment.head.y": {"lower": -3.0, "upper": 3.0}} if free else {}
    )
    study = study_of(tmp_path, {"kind": "frf", "file": "m.npz", "outputs": points}, machine=machine, free=own)
    assert np.array_equal(study.tests[0].weight[0] > 0.0, [[True, free], [free, True]])


def status_near_minimum(folder, noise, deviations):
    """The status of a fit that ends this many standard deviations beside the minimum, along stiffness.a."""
    study = study_of(folder, frf(noise=noise, seed=3) | {"noise_log_std": 0.01}, **BRIEF)
    result = identify(study)
    u = study.free.encode(np.array([result.parameters[name].value for name in study.free.names]))
    at_minimum = estimate_at(study, u)
    u[0] += deviations / np.linalg.norm(at_minimum.jacobian[:, 0])
    return search_status(estimate_at(study, u), Fit(round=3), "converged")


@pytest.mark.parametrize(("noise", "deviations", "converged"), [
    (0.01, 0.05, True), (0.01, 0.2, False),
    (1e-6, 0.05, False),  # without noise nothing but the slope says that a fit has come to its minimum
])  # fmt: skip
def test_a_fit_within_a_tenth_of_a_deviation_of_its_minimum_converged(tmp_path, noise, deviations, converged):
    status = status_near_minimum(tmp_path, noise, deviations)
    assert (status == "converged") == converged
    if not converged:
        assert status.startswith("not converged after 3 rounds: the cost still falls along stiffness.a (slope cosine ")


def test_a_column_of_rounding_has_no_slope(tmp_path):
    """As of a joint whose axis a force intersects: such a column is parallel to any residual by chance."""
    study = study_of(tmp_path, frf(noise=0.01, seed=3) | {"noise_log_std": 0.01}, **BRIEF)
    result = identify(study)
    u = study.free.encode(np.array([result.parameters[name].value for name in study.free.names]))
    found = estimate_at(study, u)
    residual, jacobian = found.compressed
    with_rounding = np.column_stack([jacobian[:, :-1], 1e-20 * residual])
    vars(found)["compressed"] = residual, with_rounding
    assert search_status(found, Fit(round=3), "converged") == "converged"
