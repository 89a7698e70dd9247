"""What is told of values beside how well they follow: compliances that cannot be, draws on a bound, wrong units."""

import dataclasses
import re

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.assess.tests.deflections import spring_remarks
from tests.identify import arm
from tests.identify.kr240 import ARM, JOINTS, TRUTH, displaced, loaded, measured_by, study_of, with_arm

FREE = {f"compliance.arm.{entry}": {"lower": -1e-7, "upper": 1e-6} for entry in ("y.y", "rz.rz", "y.rz")}


def compliance(coupling):
    matrix = np.diag(np.array(ARM["diagonal"]))
    matrix[1, 5] = matrix[5, 1] = coupling
    return matrix


@pytest.fixture
def identified(tmp_path):
    """Result of a study of load cases on the KR240 with an elastic arm."""

    def of(change=lambda cases: cases, free=FREE, **part):
        machine = with_arm()
        model = jaxmb.build_model(machine)
        jaxmb.write_machine(machine, tmp_path / "machine.toml")
        cases = change(loaded(model=model, seed=0))
        study = study_of(tmp_path, cases, parts=(part,), free=free, machine="machine.toml", model=model)
        return jaxmb.identify(study)

    return of


def coupled(cases):
    """The load cases with the displacements of an arm whose coupling no matrix with its diagonal can have."""
    wrong = jaxmb.set_parameters(jaxmb.build_model(with_arm()), {"compliance.arm.y.rz": 2e-8})
    return measured_by(wrong, cases)


def test_a_compliance_that_cannot_be_is_named_with_its_eigenvalue(identified):
    told = [r for r in identified(coupled).remarks if "is not positive semi-definite (least" in r]
    assert len(told) == 1
    # the pair (y, rz), scaled: 1 and 1 with 2e-8 / sqrt(2e-9 6e-8) beside
    least = 1.0 - 2e-8 / np.sqrt(2e-9 * 6e-8)
    assert f"virtual spring 'arm' is not positive semi-definite (least eigenvalue {least:.3g}," in told[0]
    assert told[0].endswith("[complete] gives semi-definite compliances, by minimize_over of jaxmb.estimation")


def test_a_compliance_that_can_be_is_not(identified):
    assert not any("semi-definite" in r for r in identified().remarks)


@pytest.mark.parametrize("coupling", [0.0, 1e-8])
def test_spring_remarks_of_possible_machines(coupling):
    whole = compliance(coupling).tolist()
    assert spring_remarks(with_arm(diagonal=None, compliance=whole)) == []


def test_a_coupling_without_a_diagonal_is_named():
    machine = with_arm()
    alone = np.zeros((6, 6))
    alone[1, 5] = alone[5, 1] = 1e-9
    spring = machine.virtual_spring[0].model_copy(update={"diagonal": None, "compliance": tuple(map(tuple, alone))})
    (told,) = spring_remarks(machine.model_copy(update={"virtual_spring": (spring,)}))
    assert "least eigenvalue -1," in told


def test_draws_on_a_bound_are_counted_in_the_result(identified):
    free = {"stiffness.q4": {"lower": 1e4, "upper": 5.7e5}, "stiffness.q2": {"lower": 1e4, "upper": 1e9}}
    result = identified(free=free, instruments={"tracker_mm": 0.03, "draws": 40})
    row = {row["parameter"]: row for row in result.as_json()["metrics"]["table2"]}
    assert row["stiffness.q2"]["clipped"] == 0
    # 5.6e5 to within a few percent: the bound is less than a deviation away
    count = row["stiffness.q4"]["clipped"]
    assert 0 < count < 40
    assert (
        f"stiffness.q4 ended on its bound in {count} of 40 draws, so that its standard deviation is too small"
        in result.remarks
    )


def test_a_reversed_wrench_is_told_in_the_result(identified):
    free = {"stiffness.*": {"lower": 1e4, "upper": 1e9}}
    reverse = identified(lambda cases: [dataclasses.replace(c, wrench=-c.wrench) for c in cases], free)
    assert any("a factor of -1 on the loads of" in r and "(sign reversed)" in r for r in reverse.remarks)


def test_displacements_far_too_large_are_a_factor_in_the_result(identified):
    """All stiffnesses would be below their lower bounds."""
    free = {name: {"lower": k / 3.0, "upper": 10.0 * k} for name, k in zip(JOINTS, TRUTH.tolist(), strict=True)}
    larger = identified(lambda cases: displaced(cases, lambda d: 50.0 * d), free)
    assert any("a factor of 50 on the loads of test 'near', or 0.02 on its displacements" in r for r in larger.remarks)


def test_usual_causes_are_named_where_tolerances_do_not_explain_the_residual(tmp_path):
    """Loads measured 1 % too small in one of two sets, by more than the noise."""

    def told(percent):
        near, far = (loaded(seed=seed, noise=1.0, size=(2e4, 5e3)) for seed in (1, 2))
        study = study_of(tmp_path, displaced(near, lambda d: 1.01 * d), far, tolerances={"load_percent": percent})
        result = jaxmb.identify(study)
        assert not result.metrics.misfit.explained
        return any("usual causes" in text or "would explain" in text for text in result.doubts), result.doubts

    assert told(0.01)[0]
    assert told(0.5)[1] == ()


def test_an_error_that_explains_the_misfit_is_no_error_of_other_numbers(tmp_path):
    """An angle off by 0.1 rad, which the tolerances of axes would absorb in part."""
    wrong = 0.1 * np.eye(6)[2]
    cases = [dataclasses.replace(case, q=case.q - wrong) for case in loaded(seed=1, noise=1.0, size=(2e4, 5e3))]
    doubts = jaxmb.identify(study_of(tmp_path, cases, tolerances={})).doubts
    named = re.search(r"\+(\S+) deg of q3 in the posture of test 'near' would explain 100 % of the misfit", doubts[0])
    assert named is not None
    assert float(named[1]) == pytest.approx(np.degrees(0.1), rel=0.01)
    assert not any("contradict" in text for text in doubts)


def test_held_out_loads_beside_fitted_torques(tmp_path):
    """The linear step is that of the torques, without equations of displacements."""
    motion = {"a": {"sine": [0.4, 0.2]}, "b": {"sine": [0.3, 0.0, 0.3]}}
    how = {"duration_s": 4.0, "rate_hz": 100.0, "base_hz": 0.25, "torque_std": 0.1, "motion": motion}
    torque = {"kind": "torque", "simulate": how, "cutoff_hz": 20.0, "torque_std": 0.1}
    free = {"mass.fore": {"lower": 0.1, "upper": 100.0}}
    held_out = arm.loads(count=4, role="check", name="held out")
    metrics = jaxmb.identify(arm.study_of(tmp_path, torque, held_out, free=free)).metrics
    assert metrics["explained_percent"]["check"] > 95.0
    assert "convergence" not in metrics
