"""Variants of a stiffness model on load cases without noise, and load cases chosen by design."""

import dataclasses

import numpy as np
import pytest

from jaxmb.identify.stiffness_model.variants import (
    compensated_joint,
    compensated_percent,
    fitted_variant,
    predict,
    residual_norms,
    stiffness_models,
)
from jaxmb.identify.study.reading.deflections import choose_load_cases
from jaxmb.machine.schema import Body
from jaxmb.mechanics.postures import build_model
from tests.identify.kr240 import displaced, measured_by
from tests.identify.kr270 import MACHINE, MODEL, fitted_cases, made


@pytest.fixture(scope="module")
def fit_cases():
    return fitted_cases()


@pytest.fixture(scope="module")
def models(fit_cases):
    return stiffness_models(MODEL, fit_cases, compensated_joint(MODEL, "q2", fit_cases))[1]


def compensator_at_the_root():
    """The machine with the spring of link 2 behind the compensator's piston, which then acts on joint 2 alone."""
    bodies = [b.model_copy(update={"parent": "elbow"}) if b.name == "q3" else b for b in MACHINE.body]
    bodies.append(Body(name="elbow", parent="q2"))
    links = [s.model_copy(update={"body": "elbow"}) if s.name == "link2" else s for s in MACHINE.virtual_spring]
    return build_model(MACHINE.model_copy(update={"body": tuple(bodies), "virtual_spring": tuple(links)}))


@pytest.mark.parametrize("at_root", [True, False])
def test_with_its_compensator_the_machine_is_followed(models, fit_cases, at_root):
    fit, checks = fit_cases, made(20, 2)
    if at_root:
        machine = compensator_at_the_root()
        fit, checks = measured_by(machine, fit), measured_by(machine, checks)
    # three angles of joint 2 make three parameters of one
    assert [len(models[name].names) for name in ("J1", "J2", "C1", "C2")] == [5, 7, 26, 28]
    found = {name: compensated_percent(checks, predict(fitted_variant(m, MODEL, fit), MODEL, checks))
             for name, m in models.items()}  # fmt: skip
    # a piston at the end of the elastic link adds to the link's stiffness too, by an amount that depends on the angle
    assert found["C2"] == pytest.approx(100.0, abs=1e-7) if at_root else 99.9 < found["C2"] < 100.0 - 1e-3
    assert 99.0 < found["C1"] < found["C2"]
    assert max(found["J1"], found["J2"]) < 95.0


def test_an_angle_that_was_not_tested(models, fit_cases):
    variant = fitted_variant(models["C2"], MODEL, fit_cases)
    other = dataclasses.replace(fit_cases[0], q=fit_cases[0].q + np.array([0.0, 0.1, 0.0, 0.0, 0.0, 0.0]))
    with pytest.raises(
        ValueError, match=r"deflection test 't0': q2 is .* deg, where its compliance was not identified"
    ):
        predict(variant, MODEL, [other])
    with pytest.raises(ValueError, match="compensated joint 'q9' does not exist"):
        compensated_joint(MODEL, "q9", fit_cases)


def test_readings_of_one_angle_are_one_angle(fit_cases):
    """Recorded angles of the compensated joint scatter by the resolution of the encoder and the deflection."""
    scatter = np.random.default_rng(0).uniform(-2e-4, 2e-4, (len(fit_cases), 1)) * [0, 1, 0, 0, 0, 0]
    read = [dataclasses.replace(case, q=case.q + by) for case, by in zip(fit_cases, scatter, strict=True)]
    assert len(compensated_joint(MODEL, "q2", read).angles) == 3


def test_what_is_left_by_hand(fit_cases):
    rows = np.concatenate([t.displacement[t.measured] for t in fit_cases])
    left, whole = residual_norms(fit_cases, 0.9 * rows)
    assert np.allclose(left, 0.1 * whole, rtol=1e-12)
    assert compensated_percent(fit_cases, 0.9 * rows) == pytest.approx(90.0, rel=1e-12)


@pytest.mark.parametrize("criterion", ["D", "test-pose"])
def test_chosen_tests_teach_more_than_the_first_ones(models, criterion):
    candidates = made(60, 3)
    purpose = candidates[:3] if criterion == "test-pose" else None
    design = choose_load_cases(MODEL, candidates, 12, criterion, models["C1"], purpose)
    rows = models["C1"].observation(MODEL, candidates).reshape(60, 9, -1) / 3e-5

    def value(chosen):
        information = np.einsum("cra,crb->ab", rows[chosen], rows[chosen])
        if purpose is None:
            return -np.linalg.slogdet(information)[1]
        wanted = 3e-5 * rows[:3].reshape(27, -1)
        return np.trace(wanted @ np.linalg.solve(information, wanted.T))

    # the normal matrix has the square of the condition of its rows, 1e12
    assert design.value == pytest.approx(value(list(design.chosen)), rel=1e-3)
    rng = np.random.default_rng(0)
    assert design.value < min(value(rng.choice(60, 12, replace=False)) for _ in range(30))


def test_a_locked_joint_takes_no_part_in_a_design():
    locked = dataclasses.replace(MODEL, locked=(False, False, False, False, True, False))
    candidates = made(10, 3)
    sizes = [choose_load_cases(model, candidates, 4).covariance.shape[0] for model in (MODEL, locked)]
    assert sizes == [5, 4]  # vertical forces do not load joint 1


def test_candidates_that_do_not_measure_alike(fit_cases):
    less = dataclasses.replace(fit_cases[0], displacement=np.where([[1], [1], [0]], fit_cases[0].displacement, np.nan))
    with pytest.raises(ValueError, match=r"candidates measure \[6, 9\] displacements"):
        choose_load_cases(MODEL, [*fit_cases, less], 3)


def test_what_explains_anything_is_no_fit(models, fit_cases):
    def cut(case, count):
        """The load case with so many of its displacements."""
        rows = np.where(case.measured, np.cumsum(case.measured).reshape(3, 6), 99)
        return dataclasses.replace(case, displacement=np.where(rows <= count, case.displacement, np.nan))

    as_many = [*fit_cases[:2], cut(fit_cases[2], 8)]
    with pytest.raises(ValueError, match="'t0' to 't2': 26 displacements for 26 parameters of C1"):
        fitted_variant(models["C1"], MODEL, as_many)


def test_a_dial_gauge_measures_one_direction(fit_cases):
    heights = displaced(fit_cases, lambda d: np.where(np.arange(6) == 2, d, np.nan))
    rows = np.concatenate([t.displacement[t.measured] for t in heights])
    left, whole = residual_norms(heights, 0.5 * rows)
    assert np.allclose(left, 0.5 * np.abs(rows))
    assert np.allclose(whole, np.abs(rows))
