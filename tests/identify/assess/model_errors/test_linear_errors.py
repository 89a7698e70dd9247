"""One error at a time in the description of deflections, and its name in the result."""

import dataclasses
import re
import types
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxmb.identify.assess.estimate import jackknife_covariance
from jaxmb.identify.assess.hypotheses import FittedHypothesis, Hypothesis, Whitening, drops
from jaxmb.identify.assess.identify import identify
from jaxmb.identify.assess.linear_estimate import _columns, _likely
from jaxmb.identify.assess.model_errors import ModelError, best_above_half, model_errors_text, named_hypotheses
from jaxmb.identify.experiments.machine_errors import machine_errors
from jaxmb.identify.experiments.tolerances import StatedError, Tolerances
from jaxmb.identify.parameters.model_parameters import parameters, set_parameters
from jaxmb.mechanics.kinematics import frame_pose
from jaxmb.mechanics.postures import OutOfReachError
from tests.identify import arm
from tests.identify.kr240 import JOINTS, MODEL, TRUTH, displaced, loaded, measured_by, study_of

HELD_OUT = ({}, {"role": "check"})
DOWNWARD = [0.0, 0.0, 2000.0, 500.0, 500.0, 0.0]


def made(change=lambda d: d, seed=2, **fields):
    return [dataclasses.replace(case, **fields) for case in displaced(loaded(seed=seed, noise=1.0), change)]


def exchanged(d):
    return d[:, [1, 0, 2, 3, 4, 5]]


def turned(case):
    return dataclasses.replace(case, q=case.q + np.eye(6)[2] * 0.3)


def one_wrong(cases):
    """The fifth load case displaced in the opposite direction."""
    return [*cases[:4], *displaced(cases[4:5], lambda d: -d), *cases[5:]]


def about_z(d):
    """Displacements in axes turned by -30 deg about Z."""
    turn = Rotation.from_rotvec([0.0, 0.0, np.radians(30.0)])
    return np.concatenate([turn.apply(d[:, :3]), turn.apply(d[:, 3:])], axis=1)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda: one_wrong(made()), "excluding load case 't5' of test 'far'"),
        (lambda: made(about_z), "displacements of test 'far' in axes turned by -"),
        (lambda: made(lambda d: d / np.repeat([25.4, 1.0], 3)), "25.4: inches and millimetres"),
        (lambda: [dataclasses.replace(c, q=c.q[[0, 1, 2, 4, 3, 5]]) for c in made()], "exchanged values of q4 and q5"),
        (lambda: made(exchanged), "exchanged displacements x and y of test 'far'"),
        (lambda: made(lambda d: d * np.array([1, 1, -1, 1, 1, 1])), "the sign of displacement z of test 'far'"),
        (lambda: [turned(case) for case in made()], "of q3 in the posture of test 'far'"),
        (lambda: made(lambda d: d * np.array([1, 0, 1, 1, 1, 1])), "missing displacement y, 0 throughout, of test"),
    ],
)  # fmt: skip
def test_an_error_of_deflections_is_named(tmp_path, wrong, named):
    free = {name: {"lower": 1e4, "upper": 1e9} for name in JOINTS}
    result = identify(study_of(tmp_path, loaded(seed=1, noise=1.0), wrong(), free=free))
    texts = [error.text for error in result.metrics.model_errors]
    assert named in texts[0]
    assert len(texts) <= 4
    assert texts[0] in result.doubts[0]


@pytest.mark.parametrize(("degrees", "zero", "axis"), [(20.0, True, True), (60.0, False, False), (90.0, True, False)])
def test_angles_off_by_an_implausible_size_are_not_named(tmp_path, degrees, zero, axis):
    """The axis of q6 is indistinguishable from the zero of q5, but not off by a right angle."""
    sets = [
        [dataclasses.replace(case, q=case.q - np.eye(6)[4] * np.radians(degrees)) for case in made(seed=seed)]
        for seed in (1, 2)
    ]
    free = {name: {"lower": 1e4, "upper": 1e9} for name in JOINTS}
    text = model_errors_text(identify(study_of(tmp_path, *sets, free=free)).metrics.model_errors or ())
    assert (f"zero of q5 +{degrees:.0f}" in text) is zero
    assert ("axis of q6" in text) is axis


@pytest.mark.parametrize(
    ("height", "axes", "stiffness", "place"),
    [
        (0.0, [0, 1, 0], 2e7, "an elastic foundation about Y"),
        (0.75, [0, 1, 0], 2e7, "a further elastic coordinate at q1 about y"),
        (0.0, [0, 1, 0], 1e8, "an elastic foundation about Y"),  # size 0 fits better than the smallest start
        (0.0, [1, 1, 0], 2e7, "an elastic foundation about X and Y"),
        (0.75, [1, 1, 0], 2e7, "a further elastic coordinate at q1 about x and y"),
    ],
)
def test_an_elastic_foundation_of_deflections_is_ranked_first(tmp_path, height, axes, stiffness, place):
    metrics = on_foundation(tmp_path, stiffness, (height, axes)).metrics
    (error,), first = metrics.model_errors, metrics.further_springs[0]
    assert error.text.startswith(f"{place}, of a stiffness of")  # a link 0.1 m longer explains as much
    assert first.place == place
    assert first.stiffness == pytest.approx(stiffness, rel=0.3)


def test_a_jackknife_of_two_tests_is_half_of_the_difference_of_their_fits():
    """Of 8 rows about 1 and 8 about 4; the residual is that at their mean."""
    rows = np.repeat([1.0, 4.0], 8)
    estimate: Any = types.SimpleNamespace(jacobian=-np.ones((16, 1)), residual=rows - 2.5)
    labels = np.repeat([0, 1], 8)
    assert jackknife_covariance(estimate, labels)[0, 0] ** 0.5 == pytest.approx(1.5)


def test_standard_deviations_contain_the_difference_of_two_tests(tmp_path):
    """The base of the second one is loose: q2 is off by 3.3 standard deviations of the scatter between load cases."""
    result = on_foundation(tmp_path, 2e7, (0.0, [0.0, 1.0, 0.0]), tests=(2,))
    q2 = result.parameters["stiffness.q2"]
    assert 0.2 < 1.0 - q2.value / parameters(MODEL)["stiffness.q2"] < 1.5 * q2.std / parameters(MODEL)["stiffness.q2"]


def on_foundation(folder, stiffness, *turns, tests=(1, 2), loads=1.0):
    """Result of deflections in two tests, of which some are on foundations that turn about axes of the ground, at a
    height, by the moment there, and move the tool with them; the loads of the second one are stated too large."""

    def moved(case):
        more = np.zeros(6)
        for height, axes in turns:
            position = np.asarray(frame_pose(MODEL, case.q, case.frame))[:3, 3] - [0.0, 0.0, height]
            moment = np.cross(position, case.wrench[:3]) + case.wrench[3:]
            turn = moment[:3] * axes / stiffness
            more += np.concatenate([np.cross(turn, position), turn])
        return dataclasses.replace(case, displacement=case.displacement + more)

    sets = [
        [moved(case) if seed in tests else case for case in loaded(seed=seed, noise=1.0, size=(1e4, 2e3))]
        for seed in (1, 2)
    ]
    sets[1] = [dataclasses.replace(case, wrench=loads * case.wrench) for case in sets[1]]
    return identify(study_of(folder, *sets, free={name: {"lower": 1e4, "upper": 1e9} for name in JOINTS}))


def test_standard_deviations_contain_a_hypothesis_that_explains_half_of_the_misfit(tmp_path):
    """Its change of the values, although it is not named: q2 is off by 6.9 of those of the scatter."""
    result = on_foundation(tmp_path, 2e7, (0.0, [0.5, 1.0, 0.0]), (3.0, [1.0, 0.0, 0.0]))
    assert result.metrics.model_errors is None
    assert 0.5 < result.metrics.further_springs[0].explains < 0.9
    q2 = result.parameters["stiffness.q2"]
    assert abs(q2.value - parameters(MODEL)["stiffness.q2"]) < 2.0 * q2.std


@pytest.mark.parametrize("ratio", [0.3, 2.5])
def test_a_foundation_of_two_stiffnesses_is_named_with_both(tmp_path, ratio):
    """Also where one of the springs alone explains more than 90 % of the misfit."""
    result = on_foundation(tmp_path, 2e7, (0.0, [1.0, ratio, 0.0]))
    (error,) = result.metrics.model_errors
    of = re.fullmatch(
        r"an elastic foundation about X, of a stiffness of (\S+) N m/rad and an elastic foundation about Y, of a"
        r" stiffness of (\S+) N m/rad",
        error.text,
    )
    assert [float(text) for text in of.groups()] == pytest.approx([2e7, 2e7 / ratio], rel=0.05)
    assert error.values == pytest.approx({name: parameters(MODEL)[name] for name in JOINTS}, rel=0.1)


def test_two_errors_are_named_together(tmp_path):
    """Of which none explains most of the misfit alone."""
    result = on_foundation(tmp_path, 2e7, (0.0, [0.0, 1.0, 0.0]), loads=1.2)
    of_first, of_second = result.metrics.model_errors  # the loads of the first test may be too small instead
    assert "a factor of 1.2 on the loads of test 'near'" in of_first.text
    assert "an elastic foundation about Y, of a stiffness of 1.99e+07 N m/rad and a factor of 0.83" in of_second.text
    assert of_second.values == pytest.approx({name: parameters(MODEL)[name] for name in JOINTS}, rel=0.1)


def test_a_search_ends_where_an_alternative_has_no_equations_of_some_parameters(tmp_path):
    """As of exchanged axes, by which the displacements of some tests do not depend on them."""
    on_foundation(tmp_path, 2e7, (0.0, [0.0, 1.0, 0.0]), (3.0, [1.0, 1.0, 0.0]))


def test_an_insignificant_hypothesis_explains_no_half_of_a_misfit():
    """Also where there is no misfit, half of which any decrease would be."""
    ends = [FittedHypothesis(Hypothesis(), np.zeros(1), chi_square) for chi_square in (99.0, 97.0)]
    assert best_above_half(ends, 100.0, 110.0, 50) is None
    assert best_above_half(ends, 150.0, 60.0, 50) is ends[1]
    assert best_above_half(ends, 150.0, 30.0, 50) is None


def test_values_beyond_their_bounds_explain_no_misfit(tmp_path):
    """Of reversed displacements negative compliances would leave noise alone; bounds exclude them."""
    free = {name: {"lower": 1e4, "upper": 1e9} for name in JOINTS}
    result = identify(study_of(tmp_path, made(lambda d: -d), free=free))
    assert result.status.startswith("data not followed")
    assert "sign reversed" in result.doubts[0]


def test_a_usual_factor_that_free_stiffnesses_absorb_is_a_doubt(tmp_path):
    """Loads in kg fit as well as loads in N, with stiffnesses that are all 9.81 times too small."""
    free = {name: {"lower": 1e4, "upper": 1e9} for name in JOINTS}
    cases = [dataclasses.replace(case, wrench=case.wrench / 9.80665) for case in made()]
    result = identify(study_of(tmp_path, cases, free=free))
    assert result.status.startswith("no parameter identified: the data are 9.")
    assert "(9.81: kilograms and newtons" in result.doubts[0]
    (error,) = result.metrics.model_errors
    for name, true in zip(JOINTS, TRUTH, strict=True):
        assert error.values[name] == pytest.approx(true, rel=0.2)
    # stated stiffnesses that are a rough guess are no evidence
    for factors in ([0.03, 0.3, 0.05, 0.2, 0.1, 0.06], [0.13, 0.1, 0.08, 0.1, 0.1, 0.1]):
        guess = dict(zip(JOINTS, TRUTH * factors, strict=True))
        rough = measured_by(set_parameters(MODEL, guess), made())
        assert identify(study_of(tmp_path, rough, free=free)).status == "converged"


@pytest.mark.parametrize("name", ["sign", "kilograms"])
def test_a_held_out_test_that_is_not_reproduced_decides_the_status(tmp_path, name):
    """It is no part of the fit, whose values and verdicts stay, and in which no error is sought."""
    free = {name: {"lower": 1e4, "upper": 1e9} for name in JOINTS}
    wrong = made(lambda d: d * np.array([1, 1, -1, 1, 1, 1]), seed=3)
    if name == "kilograms":
        wrong = [dataclasses.replace(case, wrench=case.wrench / 9.81) for case in made(seed=3)]
    result = identify(study_of(tmp_path, loaded(seed=1, noise=1.0), wrong, free=free, parts=HELD_OUT))
    assert result.status == "data not followed: the best fit does not reproduce test 'far'"
    (doubt,) = result.doubts
    assert doubt.startswith("test 'far', held out: not reproduced by the identified machine")
    assert result.metrics.model_errors is None
    assert all(p.identifiable == "yes" for p in result.parameters.values())


def test_a_held_out_test_that_noise_or_a_parameter_that_is_not_identifiable_explains_is_no_doubt(tmp_path):
    """Displacements as small as the noise; the vertical axis, which no vertical force and horizontal moment loads."""
    free = {name: {"lower": 1e4, "upper": 1e9} for name in JOINTS}
    fitted = loaded(seed=1, noise=1.0, wrench=np.random.default_rng(5).uniform(-1, 1, (12, 6)) * DOWNWARD)
    weak = loaded(seed=3, noise=1.0, wrench=[0.0, 0.0, -5.0, 0.0, 0.0, 0.0])
    stiff = set_parameters(MODEL, {JOINTS[0]: 20.0 * TRUTH[0]})
    across = measured_by(stiff, made(seed=4, wrench=np.array([0.0, 800.0, 0.0, 0.0, 0.0, 0.0])))
    for cases in (weak, across):
        result = identify(study_of(tmp_path, fitted, cases, free=free, parts=HELD_OUT))
        assert (result.status, result.doubts) == ("converged", ())
    assert result.metrics.holdout.explained_percent < 50.0


def test_angles_in_degrees_are_an_alternative(tmp_path):
    study = study_of(tmp_path, loaded(seed=1, noise=1.0))
    entry = study.fitted[0]
    wrong = [dataclasses.replace(case, q=np.degrees(case.q)) for case in entry.source.cases]
    source = dataclasses.replace(entry.source, cases=tuple(wrong))
    found = {key: test for key, _, test in source.alternatives(entry.test, study.model)}
    np.testing.assert_allclose(found["joint angles in degrees"].q, entry.test.q, rtol=1e-12)
    np.testing.assert_allclose(found["joint angles in degrees"].effort, entry.test.effort, rtol=1e-9)


def test_an_error_without_unit_is_bounded_in_both_directions():
    """The logarithm of a factor on columns that the machine does not reproduce would otherwise have no lower bound."""
    assert StatedError("moments of fit", size=0.1, most=10.0).bounds == (-10.0, 10.0)


def test_a_factor_on_all_loads_is_as_plausible_as_one_on_all_masses(tmp_path):
    """In a search either may absorb the other, as with poses under the weight: tolerances of loads are a percent."""
    study = arm.study_of(tmp_path, arm.loads())
    (loads, _), *_ = study.tests[0].description.errors(study.model)
    masses = next(error for error, _ in machine_errors(study.model, study.free, {}) if error.key == "masses")
    assert loads.std(Tolerances()) == pytest.approx(0.005)
    assert loads.surprise(9.81 - 1.0) == pytest.approx(masses.surprise(-np.log(9.81)))


def test_displacements_are_not_exchanged_with_unmeasured_ones(tmp_path):
    """Of a dial gauge: zeros in place of its readings would give a stiff machine no residual."""
    study = study_of(tmp_path, made(lambda d: d * np.array([np.nan, np.nan, 1.0, 1.0, 1.0, 1.0])))
    found = {key for key, *_ in study.fitted[0].source.alternatives(study.fitted[0].test, study.model)}
    assert {"the sign of displacement z", "exchanged forces x and z", "forces in the axes of tool"} <= found
    assert found.isdisjoint({
        "exchanged displacements x and z", "exchanged displacements y and z", "displacements in the axes of tool",
        "missing displacement x, 0 throughout,",
    })  # fmt: skip


@pytest.mark.parametrize("tests", [(), (slice(0, 4), slice(4, 6))])
def test_whitening_is_the_inverse_root_of_a_covariance(tests):
    """With errors of all rows, of a single test and of none; also of the rows that are kept."""
    draw = np.random.default_rng(1)
    variances, effects = draw.uniform(0.5, 2.0, size=7), draw.normal(size=(7, 6))
    effects[4:, :2], effects[:4, 2:4], effects[6, 2:4], effects[:, 5] = 0.0, 0.0, 0.0, 0.0
    whiten, covariance = Whitening(variances, effects, tests), np.diag(variances) + effects @ effects.T
    root = whiten(np.eye(7))
    np.testing.assert_allclose(root.T @ root, np.linalg.inv(covariance), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.sum(whiten.over_noise(root) ** 2, axis=0), 1.0 / variances, rtol=1e-9)
    kept = np.array([1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0])
    of_kept, inside = whiten.of_rows(kept)(np.eye(7)), np.ix_(kept > 0.0, kept > 0.0)
    np.testing.assert_allclose((of_kept.T @ of_kept)[inside], np.linalg.inv(covariance[inside]), rtol=1e-9, atol=1e-12)


def test_an_error_that_opens_a_loop_is_not_tried():
    """The other one explains the residual."""
    errors = [StatedError("zero", size=1.0), StatedError("length", size=1.0)]

    def equations(tests, sizes):
        if "zero" in sizes:
            raise OutOfReachError("a loop opens")
        return np.ones((4, 1)), np.arange(4.0) * (1.0 - sizes.get("length", 0.0))

    search: Any = types.SimpleNamespace(
        errors=errors,
        equations=equations,
        scaled_equations=equations,
        whiten=lambda columns: columns,
        solved=lambda tests, sizes: (np.array([1.5]), 1.5 - np.arange(4.0)),
    )
    likely, others = _likely(search, *_columns(search, {}))
    assert [*(hypothesis.error for hypothesis in likely), *others] == errors[1:]


def test_the_drop_of_an_error_is_that_of_its_fit():
    """Also with the effects of tolerances at another point, such as the start of a ranking at the best refit."""
    draw = np.random.default_rng(2)
    residual, jacobian, columns = draw.normal(size=9), draw.normal(size=(9, 2)), draw.normal(size=(9, 3))
    whiten = Whitening(np.ones(9), draw.normal(size=(9, 3)) * np.array([0.5, 2.0, 30.0]))
    own, slopes, errors = whiten(residual), whiten(jacobian), whiten(columns)
    np.testing.assert_allclose(np.sum(whiten.over_noise(errors) ** 2, axis=0), np.sum(columns**2, axis=0), rtol=1e-10)
    rest, less, sizes = drops(own, slopes, errors)
    assert rest == pytest.approx(np.linalg.lstsq(slopes, own, rcond=None)[1][0], rel=1e-9)
    for k in range(3):
        both = np.column_stack([slopes, errors[:, k]])
        fit = np.linalg.lstsq(both, own, rcond=None)
        assert (rest - less[k], -sizes[k]) == pytest.approx((fit[1][0], fit[0][-1]), rel=1e-9)


def test_equivalent_hypotheses_are_one_group():
    sizes = [1.0, -2.0, 3.0, 1.0]
    assert named_hypotheses([130.0, 102.0, 100.0, 500.0], sizes, 1000.0, 100.0, 150.0, 50) == (
        [1, 2],
        1.0,
    )  # the smaller one first
    assert named_hypotheses([995.0], [1.0], 1000.0, 990.0, 999.0, 50)[0] == []  # no significant decrease
    assert named_hypotheses([600.0], [1.0], 1000.0, 100.0, 150.0, 50)[0] == []  # explains half of the misfit


def test_a_group_comes_with_the_measurement_that_separates_it():
    mass, payload = ModelError("mass", 1.0, of_machine=True), ModelError("a payload", 1.0, of_machine=True)
    assert "would separate" not in model_errors_text([mass])
    assert model_errors_text([mass, payload]).endswith("(weighing the payload would separate them)")
    assert "another posture" in model_errors_text([mass, mass])
    either = model_errors_text([ModelError("gain", 1.0)] * 2, {"torque", "pose"})
    assert either.endswith("(a repetition along another motion or from another station would separate them)")
