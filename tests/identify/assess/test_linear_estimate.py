"""Results of linear studies: what is said to be known, what stays as it was, and which tests are refused."""

import dataclasses

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.assess.linear_estimate import check_equations, linear_estimate
from jaxmb.identify.assess.remarks import data_remarks
from jaxmb.identify.fit.linear import linear_equations
from jaxmb.identify.fit.noise import reduced_chi_square
from jaxmb.identify.parameters.free_parameters import Bound, free_parameters
from tests.identify.kr240 import (
    FREE,
    JOINTS,
    MODEL,
    TRUTH,
    displaced,
    entry_of,
    loaded,
    measured_by,
    study_of,
    with_arm,
)

DOWN = np.array([0.0, 0.0, -1000.0, 0.0, 300.0, 0.0]) + 30.0 * np.arange(12)[:, None] * np.eye(6)[4]
"""Loads that do not act on joint 1, and are not all parallel."""


@pytest.fixture
def study(tmp_path):
    """A study of load cases in tables; see `study_of`."""

    def of(*sets, **how):
        return study_of(tmp_path, *sets, **how)

    return of


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Result of twelve load cases with noise, and of the same ones held out."""
    folder = tmp_path_factory.mktemp("plain")
    cases = loaded(noise=1.0)
    return jaxmb.identify(study_of(folder, cases, cases, parts=({"name": "fit"}, {"name": "same", "role": "check"})))


def told(result, words):
    return [r for r in result.remarks if words in r]


def test_a_table_becomes_a_result(plain):
    assert plain.converged
    written = plain.as_json()
    assert written["modes"] == []
    assert len(written["history"]) == 1
    assert written["metrics"]["explained_percent"]["fit"] == written["metrics"]["explained_percent"]["check"]
    assert 90.0 < written["metrics"]["explained_percent"]["fit"] < 100.0
    for name, true in zip(JOINTS, TRUTH, strict=True):
        p = plain.parameters[name]
        # Six values of one draw: four standard deviations hold all of them but once in 2600.
        assert abs(np.log(p.value / true)) < 4.0 * p.std_log
        assert p.identifiable == "yes"
    assert [row["parameter"] for row in written["metrics"]["table2"]] == list(JOINTS)
    assert written["metrics"]["convergence"]["tests"] == list(range(1, 13))
    assert not any("throughout" in r or "no standard deviation is stated" in r for r in plain.remarks)


def test_a_value_on_a_bound_is_not_determined(study):
    free = FREE | {"stiffness.q4": {"lower": 1e4, "upper": 5e5}}
    result = jaxmb.identify(study(loaded(noise=1.0), free=free, tolerances="exact"))
    parameter = result.as_json()["parameters"]["stiffness.q4"]
    assert parameter["value"] == pytest.approx(5e5, rel=1e-12)
    assert (parameter["std"], parameter["std_log"], parameter["identifiable"]) == (None, None, "no")
    assert told(result, "stiffness.q4 ends on its upper bound: the data would move it beyond")
    row = next(r for r in result.as_json()["metrics"]["table2"] if r["parameter"] == "stiffness.q4")
    assert row["value"] == pytest.approx(5e5, rel=1e-12)
    assert row["linear_error"] is None
    assert np.isnan(result.covariance[3]).all()


def test_a_bound_within_the_uncertainty_is_no_doubt(study, plain):
    whole = plain.parameters["stiffness.q4"]
    bounds = {"lower": 1e4, "upper": whole.value * np.exp(-0.5 * whole.std_log)}
    result = jaxmb.identify(study(loaded(noise=1.0), free=FREE | {"stiffness.q4": bounds}))
    assert result.parameters["stiffness.q4"].identifiable == "no"
    assert told(result, "stiffness.q4 ends on its upper bound; values beyond it do not fit significantly better")
    assert result.doubts == plain.doubts


def test_what_no_test_loads_stays_as_the_machine_has_it(study):
    result = jaxmb.identify(study(loaded(wrench=DOWN, noise=1.0)))
    assert told(result, "stiffness.q1 is not known: no measurement depends on it, it keeps the machine's own value")
    assert result.parameters["stiffness.q1"].value == MODEL.stiffness[0] == 3.8e6
    assert result.parameters["stiffness.q1"].initial == 3.8e6
    assert jaxmb.parameters(jaxmb.build_model(result.machine))["stiffness.q1"] == 3.8e6
    unknown = result.as_json()["parameters"]["stiffness.q1"]
    assert (unknown["std"], unknown["std_log"], unknown["identifiable"]) == (None, None, "no")


@pytest.mark.parametrize(
    ("bounds", "value"),
    [
        ({"lower": 1e4, "upper": 1e6}, 1e5),  # the machine's own value is outside
        ({"lower": 1e4, "upper": 1e9, "initial": 2e6}, 2e6),
    ],
)
def test_what_no_test_loads_stays_at_its_initial_value_otherwise(study, bounds, value):
    result = jaxmb.identify(study(loaded(wrench=DOWN, noise=1.0), free=FREE | {"stiffness.q1": bounds}))
    assert result.parameters["stiffness.q1"].value == pytest.approx(value, rel=1e-12)
    assert told(result, "stiffness.q1 is not known: no measurement depends on it, it keeps its initial value")


def test_values_on_their_lower_bounds_are_told(study):
    """5 % beyond the bounds; three of them are within their noise."""
    bounds = dict(zip(JOINTS, (4e6, 1e4, 4e6, 6e5, 7e5, 5e5), strict=True))
    free = {name: {"lower": lower, "upper": 1e9} for name, lower in bounds.items()}
    result = jaxmb.identify(study(loaded(), free=free, tolerances="exact"))
    texts = (
        "end on their lower bounds: the data would move them beyond",
        "end on their lower bounds; values beyond them do not fit significantly better",
    )
    (doubt,), (remark,) = (
        [r for r in of if text in r] for of, text in zip((result.doubts, result.remarks), texts, strict=True)
    )
    held = [name for name, p in result.parameters.items() if p.value == pytest.approx(bounds[name], rel=1e-12)]
    assert doubt.partition(" end on")[0].split(", ") == ["stiffness.q1", "stiffness.q4"]
    assert remark.partition(" end on")[0].split(", ") == ["stiffness.q3", "stiffness.q5", "stiffness.q6"]
    assert len(held) == 5
    assert all(bounds[name] * (1.0 - 1e-12) <= p.value <= 1e9 for name, p in result.parameters.items())
    assert all(np.isinf(result.parameters[name].std) for name in held)


def test_a_misfit_widens_deviations(study, plain):
    wrong = displaced(loaded(noise=1.0), lambda d: d + 1e-3 * np.array([1.0, -1.0, 1.0, 0.0, 0.0, 0.0]))
    result = jaxmb.identify(study(wrong))
    degrees = 12 * 6 - 6
    factor = np.sqrt(result.cost / degrees)
    assert factor > 5.0
    (remark,) = told(result, "reduced chi-square ")
    assert f"{factor**2:.3g} (residual {factor:.3g} times the stated noise)" in remark
    assert "inflated" not in remark  # none is known
    assert result.status == "data not followed: the best fit does not reproduce test 'near'"
    assert "offset of the tool" in remark
    assert sum("offset of the tool" in text or "chi-square" in text for text in result.remarks) == 1
    # what does not reproduce its data has no standard deviations
    assert all(np.isinf(p.std) for p in result.parameters.values())
    assert told(result, "no standard deviation is known")
    louder = jaxmb.identify(study(loaded(noise=3.0)))
    assert told(louder, "(links, the base, the gripper); standard deviations were inflated accordingly")
    assert all(np.isfinite(p.std) for p in louder.parameters.values())
    estimate = linear_estimate(study(wrong))
    narrow = dict(zip(plain.study.free.names, linear_estimate(plain.study).identifiability.std, strict=True))
    for name, std in zip(result.study.free.names, estimate.identifiability.std, strict=True):
        # each relative deviation is proportional to the stiffness: that of the compliance is the same in both
        ratio = result.parameters[name].value / plain.parameters[name].value
        assert std == pytest.approx(factor * ratio * narrow[name], rel=1e-6)


def widened(cost, weight):
    """What a cost makes of standard deviations, of 72 rows with 6 parameters."""
    return reduced_chi_square(np.full(72, np.sqrt(cost / 72)), np.full(72, weight), 6).widening


def test_noise_widens_nothing():
    assert widened(60.0, 1.0) == 1.0
    assert widened(4.0 * 66.0, 1.0) == pytest.approx(2.0)
    # a weight of 9 on the squared errors makes 9 of every error's 1
    assert widened(9.0 * 66.0, 9.0) == 1.0


def test_linear_scales_are_told_beside_the_value(study, tmp_path):
    machine = with_arm()
    jaxmb.write_machine(machine, tmp_path / "machine.toml")
    model = jaxmb.build_model(machine)
    free = {"compliance.arm.y.y": {"lower": 0.0, "upper": 1e-6}, "compliance.arm.rz.rz": {"lower": 0.0, "upper": 1e-6}}
    result = jaxmb.identify(study(loaded(model=model), free=free, machine="machine.toml", model=model))
    p = result.parameters["compliance.arm.y.y"]
    assert p.identifiable == "yes"
    (remark,) = told(result, "identifiable 'yes' relative to the width of the bounds")
    assert p.std_log > 10.0
    assert "compliance.arm.y.y (>1000 %)" in remark
    assert ("compliance.arm.rz.rz" in remark) == (result.parameters["compliance.arm.rz.rz"].std_log > 0.1)


def test_a_reversed_sign_is_the_first_remark(study):
    for free in (FREE, {"stiffness.*": {"lower": 1e4, "upper": 1e7}}):
        result = jaxmb.identify(study(displaced(loaded(noise=1.0), np.negative), free=free))
        assert (
            "a factor of -1 on the loads of test 'near', or -1 on its displacements (sign reversed)"
            in result.remarks[0]
        )
        assert all(p.identifiable == "no" and not np.isfinite(p.std) for p in result.parameters.values())


def test_metres_under_millimetres_are_told(study):
    result = jaxmb.identify(study(displaced(loaded(noise=1.0), lambda d: d * np.repeat([1e-3, 1.0], 3))))
    assert told(result, "on the translations of test 'near' (1000: millimetres and metres")
    alone = displaced(loaded(noise=1.0), lambda d: d * np.repeat([1e-3, np.nan], 3))
    told_alone = told(jaxmb.identify(study(alone)), "throughout")
    assert told_alone[0].startswith("test 'near': translations are smaller than their standard deviation throughout")


def without_deviations(text):
    lines = [line.split(",") for line in text.splitlines()]
    kept = [i for i, heading in enumerate(lines[0]) if not heading.startswith("s")]
    return "\n".join(",".join(line[i] for i in kept) for line in lines) + "\n"


def test_deviations_that_nobody_stated_are_told(study):
    def remarks(**how):
        return data_remarks(study(loaded(noise=1.0), **how))

    assert remarks() == []
    (both,) = remarks(cells=without_deviations)
    assert both.startswith("test 'near': no standard deviation is stated for its displacements: 0.03 mm and 0.01 deg")
    assert both in jaxmb.identify(study(loaded(noise=1.0), cells=without_deviations)).remarks
    (one,) = remarks(cells=without_deviations, parts=({"std_mm": 0.03},))
    assert ": 0.01 deg is assumed" in one
    assert remarks(cells=without_deviations, parts=({"instruments": {"tracker_mm": 0.03}},)) == []


def test_coordinates_without_a_column_are_told(study):
    def without(text):
        lines = [line.split(",") for line in text.splitlines()]
        kept = [i for i, heading in enumerate(lines[0]) if not heading.startswith("q2 ")]
        return "\n".join(",".join(line[i] for i in kept) for line in lines) + "\n"

    (told,) = data_remarks(study(loaded(noise=1.0), cells=without))
    assert told == "test 'near': near.csv has no column for q2: the reference posture's q2 = 90 deg is assumed"
    assert data_remarks(study(loaded(noise=1.0), cells=without, parts=({"posture": {"q2": "20 deg"}},))) == []


def singular(cases, angle=3.5e-4, which=range(12)):
    """Load cases where the axes of joints 4 and 6 are nearly one."""
    there = [dataclasses.replace(case, q=np.where(np.arange(6) == 4, angle, case.q)) for case in cases]
    return measured_by(MODEL, [there[i] if i in which else case for i, case in enumerate(cases)])


def test_messages_name_study_and_test(study):
    with pytest.raises(jaxmb.InputError) as error:
        jaxmb.identify(study(loaded(), singular(loaded(seed=4))))
    assert str(error.value).startswith(
        "study 'mine': test 'far': deflection test 't1': its posture is singular, q4 and q6"
    )
    assert "expected at least 0.001" in str(error.value)
    with pytest.raises(jaxmb.InputError, match=r"^study 'mine': \[free\]: free parameter 'damping.q1' has no effect"):
        jaxmb.identify(study(loaded(), free={"damping.q1": {"lower": 1.0, "upper": 2.0}}))
    parallel = loaded(wrench=[0.0, 0.0, -1000.0, 0.0, 0.0, 0.0])
    with pytest.raises(jaxmb.InputError, match=r"^study 'mine': tests 'near', 'far': all loads are parallel and"):
        jaxmb.identify(study(parallel, parallel))
    few = displaced(loaded(count=1), lambda d: np.where(np.arange(6) < 4, d, np.nan))
    with pytest.raises(
        jaxmb.InputError,
        match=r"^study 'mine': test 'near': 4 measured values give fewer equations than there are free",
    ):
        jaxmb.identify(study(few))
    with pytest.raises(jaxmb.InputError, match=r"^study 'mine': \[complete\]: machine 'kuka-kr240' has no virtual spr"):
        jaxmb.identify(study(loaded(), free=None, complete={}))


def test_a_frame_that_does_not_exist_is_refused(study):
    with pytest.raises(
        jaxmb.InputError, match=r"mine.toml: test 'near': frame 'tol' does not exist, did you mean 'tool'"
    ):
        study(loaded(), parts=({"frame": "tol"},))
    with pytest.raises(jaxmb.InputError, match=r"test 'a': .*near.csv: line 2, deflection test 't1': frame 'hand'"):
        study([dataclasses.replace(loaded()[0], frame="hand")], parts=({"name": "a"},))


def check(entry, names=JOINTS):
    free = free_parameters(MODEL, [Bound((n,), 1e5, 1e9) for n in names])
    check_equations(linear_equations(MODEL, free, [entry.test]), free.names, (entry,))


def test_parallel_loads_that_leave_a_joint_unknown_are_refused():
    entry = entry_of(loaded(wrench=[0.0, 0.0, -1000.0, 0.0, 0.0, 0.0]))
    with pytest.raises(ValueError, match=r"all loads are parallel and do not determine stiffness.q1, stiff"):
        check(entry)
    check(entry, JOINTS[1:5])  # what they do load is found


def test_singular_postures_alone_are_refused():
    with pytest.raises(ValueError, match="deflection test 't1': its posture is singular"):
        entry_of(singular(loaded(), 0.0)).source.check_linear(MODEL)


def test_a_singular_posture_beside_others_is_fitted(study):
    """It determines a combination of two joints, which the others separate."""
    result = jaxmb.identify(study(singular(loaded(), 0.0, which=[3])))
    assert len(told(result, "deflection test 't4': its posture is singular, q4 and q6")) == 1
    for name, true in zip(JOINTS, TRUTH, strict=True):
        assert result.parameters[name].value == pytest.approx(true, rel=1e-6)


def test_studies_that_cannot_be_fitted_are_refused(study):
    with pytest.raises(NotImplementedError, match="robust = true is for linear studies"):
        study(loaded(), parts=({"robust": True},), prior={"*": 1.0})
    with pytest.raises(ValueError, match="every test has the role 'check'"):
        study(loaded(), parts=({"role": "check"},))


def test_a_check_test_is_checked_too(study):
    wrong = displaced(loaded(), lambda d: d + 5.0)
    with pytest.raises(jaxmb.InputError, match=r"test 'far': .*is too large for a deflection"):
        study(loaded(), wrong, parts=({}, {"role": "check"}))
