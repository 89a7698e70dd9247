"""Variants of a stiffness model on tests without noise, and tests chosen by design."""

import dataclasses

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.experiments.load_cases import LoadCase, predicted
from jaxmb.identify.stiffness_model.variants import (
    compensated_joint,
    compensated_percent,
    fitted,
    predict,
    residual_norms,
    stiffness_models,
)
from jaxmb.identify.study.simulation.deflection_design import choose
from jaxmb.identify.study.simulation.postures import candidate_postures

ANGLES = tuple(np.radians([20.0, 80.0, 140.0]))
RANGES = {"q1": (-1.5, 1.5), "q2": ANGLES, "q3": (-4.0, -1.8), "q4": (-3.0, 3.0), "q5": (-1.8, 1.8), "q6": (-3.0, 3.0)}
LOAD = np.array([0.0, 0.0, -2500.0, 0.0, 0.0, 0.0])


def deflections_of(model, count, seed):
    postures = candidate_postures(model, RANGES, count, seed)
    blank = np.where([True] * 3 + [False] * 3, 0.0, np.nan) * np.ones((3, 1))
    tests = [LoadCase(f"t{i}", q, "load", LOAD, ("p1", "p2", "p3"), blank, np.full((3, 6), 3e-5))
             for i, q in enumerate(postures)]  # fmt: skip
    moved = predicted(model, tests)
    return [
        dataclasses.replace(t, displacement=np.where(t.measured, p, np.nan)) for t, p in zip(tests, moved, strict=True)
    ]


@pytest.fixture(scope="module")
def model():
    return jaxmb.build_model(jaxmb.load_machine("kuka-kr270"))


@pytest.fixture(scope="module")
def fit_tests(model):
    return deflections_of(model, 20, 1)


@pytest.fixture(scope="module")
def models(model, fit_tests):
    return stiffness_models(model, fit_tests, compensated_joint(model, "q2", fit_tests))[1]


def test_with_its_compensator_the_machine_is_followed_exactly(model, models, fit_tests):
    checks = deflections_of(model, 10, 2)
    # three angles of joint 2 make three parameters of one
    assert [len(models[name].names) for name in ("J1", "J2", "C1", "C2")] == [5, 7, 26, 28]
    found = {name: compensated_percent(checks, predict(fitted(m, model, fit_tests), model, checks))
             for name, m in models.items()}  # fmt: skip
    assert found["C2"] == pytest.approx(100.0, abs=1e-7)
    assert 99.0 < found["C1"] < found["C2"]
    assert max(found["J1"], found["J2"]) < 95.0


def test_an_angle_that_was_not_tested(model, models, fit_tests):
    variant = fitted(models["C2"], model, fit_tests)
    other = dataclasses.replace(fit_tests[0], q=fit_tests[0].q + np.array([0.0, 0.1, 0.0, 0.0, 0.0, 0.0]))
    with pytest.raises(
        ValueError, match=r"deflection test 't0': q2 is .* deg, where its compliance was not identified"
    ):
        predict(variant, model, [other])
    with pytest.raises(ValueError, match="compensated joint 'q9' does not exist"):
        compensated_joint(model, "q9", fit_tests)


def test_what_is_left_by_hand(fit_tests):
    rows = np.concatenate([t.displacement[t.measured] for t in fit_tests])
    left, whole = residual_norms(fit_tests, 0.9 * rows)
    assert np.allclose(left, 0.1 * whole, rtol=1e-12)
    assert compensated_percent(fit_tests, 0.9 * rows) == pytest.approx(90.0, rel=1e-12)


@pytest.mark.parametrize("criterion", ["D", "test-pose"])
def test_chosen_tests_teach_more_than_the_first_ones(model, models, criterion):
    candidates = deflections_of(model, 120, 3)
    purpose = candidates[:3] if criterion == "test-pose" else None
    design = choose(model, candidates, 12, criterion, models["C1"], purpose)
    chosen = [candidates[i] for i in design.chosen]

    def value(tests):
        rows = models["C1"].observation(model, tests) / 3e-5
        information = rows.T @ rows
        if purpose is None:
            return -np.linalg.slogdet(information)[1]
        wanted = models["C1"].observation(model, purpose)
        return np.trace(wanted @ np.linalg.solve(information, wanted.T))

    # the normal matrix has the square of the condition of its rows, 1e12
    assert design.value == pytest.approx(value(chosen), rel=1e-3)
    rng = np.random.default_rng(0)
    others = [value([candidates[i] for i in rng.choice(120, 12, replace=False)]) for _ in range(30)]
    assert design.value < min(others)


def test_candidates_that_do_not_measure_alike(model, fit_tests):
    less = dataclasses.replace(fit_tests[0], displacement=np.where([[1], [1], [0]], fit_tests[0].displacement, np.nan))
    with pytest.raises(ValueError, match=r"candidates measure \[6, 9\] displacements"):
        choose(model, [*fit_tests, less], 3)


def test_what_explains_anything_is_no_fit(model, fit_tests):
    one = dataclasses.replace(
        fit_tests[0], points=("p1",), displacement=np.full((1, 6), 1e-3), std=np.full((1, 6), 1e-5)
    )
    stiffness = stiffness_models(model, [one])[1]["C1"]
    with pytest.raises(ValueError, match="'t0' to 't0': 6 displacements are explained by 6 parameters of C1"):
        fitted(stiffness, model, [one])


def test_a_dial_gauge_measures_one_direction(fit_tests):
    heights = [
        dataclasses.replace(t, displacement=np.where(np.arange(6) == 2, t.displacement, np.nan)) for t in fit_tests
    ]
    rows = np.concatenate([t.displacement[t.measured] for t in heights])
    left, whole = residual_norms(heights, 0.5 * rows)
    assert np.allclose(left, 0.5 * np.abs(rows))
    assert np.allclose(whole, np.abs(rows))
