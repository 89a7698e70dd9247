"""One linear step: what is found, what is called unknown, and how well it is known."""

import dataclasses

import numpy as np
import pytest
import scipy.optimize

from jaxmb.identify.experiments.deflections.deflection_test import deflection_test
from jaxmb.identify.fit.linear import linear_equations, linear_step, unknowns
from jaxmb.identify.parameters.free_parameters import Bound, free_parameters
from jaxmb.identify.parameters.model_parameters import set_parameters
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.postures import build_model
from tests.identify.kr240 import JOINTS, MACHINE, MODEL, TRUTH, displaced, loaded, with_arm

START = np.full(6, 1e6)
TRANSLATIONS = np.arange(6) < 3


def free_of(model=MODEL, names=JOINTS, lower=1e5, upper=1e9, logarithmic=True):
    return free_parameters(model, [Bound((n,), lower, upper, None, logarithmic) for n in names])


def prepared(cases, model=MODEL, free=None, weight=1.0):
    """What is to be found, and the equations of the load cases."""
    free = free_of(model) if free is None else free
    test = deflection_test("set", model, cases, weight)
    reciprocal = test.linear.reciprocal(model, free)
    assert reciprocal is not None
    return unknowns(free, reciprocal == 1.0), linear_equations(model, free, [test])


def solved(cases, model=MODEL, free=None, robust=False, weight=1.0):
    found, rows = prepared(cases, model, free, weight)
    step = linear_step(found, rows, START[: found.free.size], robust)
    return found.decode(step.x), step


def test_the_values_are_those_of_weighted_least_squares():
    cases = loaded(noise=1.0)
    _, rows = prepared(cases, weight=0.2)
    root = np.sqrt(rows.weight) / rows.std
    expected, _ = scipy.optimize.nnls(rows.matrix * root[:, None], rows.measured * root)
    values, step = solved(cases, weight=0.2)
    # The smallest compliance, 1e-9 of the upper bound, is where this fit ends and not at 0.
    np.testing.assert_allclose(1.0 / values, expected, rtol=1e-9)
    assert step.cost == pytest.approx(np.sum((root * (rows.measured - rows.matrix @ expected)) ** 2), rel=1e-9)


def test_deviations_are_those_of_repeated_measurements():
    found, rows = prepared(loaded(noise=0.0), weight=5.0)
    draw = np.random.default_rng(11)
    runs = [
        found.decode(
            linear_step(found, rows._replace(measured=rows.measured + rows.std * draw.normal(size=72)), START).x
        )
        for _ in range(600)
    ]
    std = linear_step(found, rows, START).identifiability.std
    # 600 draws tell a standard deviation to 2.9 %; four times that.
    np.testing.assert_allclose(np.std(np.log(runs), axis=0), std, rtol=0.12)


def test_what_is_not_free_is_taken_as_it_is():
    values, _ = solved(loaded(), free=free_of(names=("stiffness.q2", "stiffness.q5")))
    np.testing.assert_allclose(values, TRUTH[[1, 4]], rtol=1e-9)


def test_tied_joints_share_one_value():
    model = set_parameters(MODEL, dict.fromkeys(JOINTS[3:], 5e5))
    free = free_parameters(model, [Bound(JOINTS[:1], 1e5, 1e9), Bound(JOINTS[3:], 1e5, 1e9)])
    values, _ = solved(loaded(model=model), model, free)
    np.testing.assert_allclose(values, [3.8e6, 5e5], rtol=1e-9)


def positions_of(cases):
    return displaced(cases, lambda d: np.where(TRANSLATIONS, d, np.nan))


def test_positions_of_points_beside_the_last_axis_are_enough():
    reflector = {"name": "reflector", "body": "q6", "origin": {"xyz": [0.2, 0.0, 0.2]}}
    frames = [*MACHINE.model_dump()["frame"], reflector]
    model = build_model(Machine.model_validate(MACHINE.model_dump() | {"frame": frames}))
    np.testing.assert_allclose(
        solved(positions_of(loaded(model=model, points=("reflector",))), model)[0], TRUTH, rtol=1e-9
    )
    # The tool point lies on the axis of joint 6, and does not move with it.
    values, step = solved(positions_of(loaded()))
    assert step.identifiability.verdict[5] == "no"
    assert np.isfinite(step.identifiability.std[:5]).all()
    np.testing.assert_allclose(values[:5], TRUTH[:5], rtol=1e-9)


def test_compliances_of_virtual_springs():
    model = build_model(with_arm())
    names = ("compliance.arm.y.y", "compliance.arm.z.z", "compliance.arm.y.z")
    values, step = solved(loaded(model=model), model, free_of(model, names, -1e-7, 1e-6, logarithmic=False))
    # Beside the largest of the three the rounding of the others is 1e-16 of all displacements.
    np.testing.assert_allclose(values, [2e-9, 3e-9, 0.0], rtol=1e-6, atol=1e-14)
    assert step.identifiability.verdict == ("yes",) * 3


def test_no_spring_has_a_negative_compliance():
    """With displacements against the loads, its diagonal ends at 0 and what is beside it as in SciPy's `lsq_linear`."""
    model = build_model(with_arm())
    names = ("compliance.arm.y.y", "compliance.arm.z.z", "compliance.arm.y.z")
    found, rows = prepared(loaded(model=model, noise=1.0), model, free_of(model, names, -1e-7, 1e-6, logarithmic=False))
    reversed_sign = rows._replace(measured=-rows.measured)
    values = found.decode(linear_step(found, reversed_sign, np.zeros(3)).x)
    root = np.sqrt(rows.weight) / rows.std
    size = np.linalg.norm(rows.matrix * root[:, None], axis=0)
    scaled = rows.matrix * root[:, None] / size
    bounds = size * [0.0, 0.0, -1e-7], size * 1e-6
    expected = scipy.optimize.lsq_linear(scaled, -rows.measured * root, bounds, tol=1e-14)
    np.testing.assert_allclose(values, expected.x / size, rtol=1e-6, atol=1e-14)
    assert values[0] == 0.0


def test_a_rigid_joint_ends_on_the_upper_bound():
    model = set_parameters(MODEL, {"stiffness.q4": 1e14})
    values, step = solved(loaded(model=model), model, free_of(upper=1e8))
    assert values[3] == pytest.approx(1e8, rel=1e-12)
    assert step.on_bound.tolist() == [False, False, False, True, False, False]


def test_a_joint_that_nothing_loads_is_not_known():
    values, step = solved(loaded(wrench=[0.0, 0.0, -1000.0, 200.0, 300.0, 0.0]))
    assert step.without_effect.tolist() == [True] + [False] * 5
    assert step.identifiability.verdict[0] == "no"
    assert step.identifiability.std[0] == np.inf
    assert values[0] == START[0]
    np.testing.assert_allclose(values[1:], TRUTH[1:], rtol=1e-9)


def test_combinations_use_degrees_of_freedom():
    """One load at one posture determines three combinations of six joints, and none of these by itself."""
    _, step = solved(positions_of(loaded(count=4, reach=0.0, wrench=[0.0, 0.0, -1000.0, 0.0, 0.0, 0.0])))
    assert np.isinf(step.identifiability.std).all()
    assert step.misfit.degrees == pytest.approx(12 - 3)


def test_outliers_count_little_where_asked_for():
    cases = loaded(count=20, noise=1.0)
    for i in (4, 11):
        cases[i] = dataclasses.replace(cases[i], displacement=cases[i].displacement + 0.01)
    plain, _ = solved(cases)
    robust, step = solved(cases, robust=True)
    # Without the outliers the largest deviation of a value is a few percent.
    assert np.abs(np.log(robust / TRUTH)).max() < 4 * step.identifiability.std.max() < 0.2
    assert np.abs(np.log(plain / TRUTH)).max() > 0.5
    assert np.sum(step.robust_weight < 0.01) == 12


@pytest.mark.parametrize(("weight", "length"), [(1.0, 1.0), (5.0, 1.0), (1.0, 9.0)])
def test_correct_noise_has_a_reduced_chi_square_of_one_in_robust_fits(weight, length):
    """That of 4320 errors scatters by 2 %, and is 2 % larger as their scale is never below the stated one; by Tukey's
    weights alone it would be 0.83."""
    found, rows = prepared(loaded(noise=0.0), weight=weight)
    rows = rows._replace(weight=np.full(72, weight))
    rows = type(rows)(*(np.concatenate([part] * 60) for part in rows))
    errors = np.random.default_rng(0).normal(size=4320) / np.sqrt(length)
    step = linear_step(
        found, rows._replace(measured=rows.measured + rows.std * errors), START, True, lengths=np.full(4320, length)
    )
    assert step.misfit.square == pytest.approx(1.0, abs=0.08)
    # the variance of each residual, with which errors of the description are compared
    errors = np.sqrt(step.stated_variances) * step.residual / rows.std
    assert np.sum(errors**2) == pytest.approx(np.sum(step.variances) / length, rel=0.08)


def test_parameters_that_do_not_act_are_told():
    """Their columns are zero, and the test says that it does not depend on them."""
    free = free_of(names=("stiffness.q1", "damping.q1"))
    test = deflection_test("loads", MODEL, loaded())
    np.testing.assert_array_equal(test.linear.reciprocal(MODEL, free), [1.0, np.nan])
    assert not test.linear.equations(MODEL, free).matrix[:, 1].any()
