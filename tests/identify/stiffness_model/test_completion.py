"""Whole compliances of joints and links from reduced values: possible, in agreement, and as free as they are."""

from typing import Any

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.estimation import semidefinite
from jaxmb.identify.estimation.reduction import Reduction
from jaxmb.identify.experiments.deflections.load_cases import LoadCase, predicted
from jaxmb.identify.stiffness_model import completion as limits
from jaxmb.identify.stiffness_model.complete_model import CompleteModel, complete_reduction, original_values
from jaxmb.identify.stiffness_model.completion import completed_model, completion, compliance_intervals
from jaxmb.machine.beam import VirtualSpring
from jaxmb.machine.build import Model
from jaxmb.machine.schema import Machine
from tests.identify.kr270 import MODEL, RIGID

STD = 0.02
"""Of the reduced values, in units of the largest of their kind."""


def mast() -> Model:
    """One joint on one link, of which the tip's pose under any wrench tells all but how they share the rotation."""
    joint = {"name": "q", "axis": [0.0, 0.0, 1.0], "stiffness": 1e5}
    spring = {"name": "link", "body": "ground", "diagonal": [1e-7, 2e-7, 3e-7, 1e-6, 2e-6, 3e-6]}
    tip = {"name": "tip", "body": "b", "origin": {"xyz": [0.0, 1.0, 0.0]}}
    machine = {"name": "mast", "body": [{"name": "b", "joint": [joint]}], "frame": [tip], "virtual_spring": [spring]}
    return jaxmb.build_model(Machine.model_validate(machine))


def reduced_model(model: Model, points: tuple[str, ...], load: str, vertical: bool) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    blank = np.where([True] * 3 + [not vertical] * 3, 0.0, np.nan) * np.ones((len(points), 1))
    wrenches = [np.array([0.0, 0.0, -2500.0, 0, 0, 0]) if vertical else rng.normal(size=6) for _ in range(20)]
    tests = [
        LoadCase(str(i), rng.uniform(-2.0, 2.0, len(model.coordinates)), load, wrench, points, blank,
                       np.full(blank.shape, 3e-5))
        for i, wrench in enumerate(wrenches)
    ]  # fmt: skip
    complete, reduced = complete_reduction(model, tests)
    truth = reduced.reduce @ original_values(model, complete)
    # Deviations and correlations as of a fit.
    factor = rng.normal(size=(truth.size, 3 * truth.size)) / np.sqrt(3 * truth.size)
    rotation = np.array([name.endswith(("rx", "ry", "rz")) for name in reduced.names])
    size = STD * np.where(rotation, np.abs(truth[rotation]).max(), np.abs(truth[~rotation]).max())
    return tests, complete, reduced, truth, factor @ factor.T * np.outer(size, size)


@pytest.fixture(scope="module")
def robot() -> tuple[Any, ...]:
    return RIGID, *reduced_model(RIGID, ("p1", "p2", "p3"), "load", vertical=True)


@pytest.fixture(scope="module")
def simple() -> tuple[Any, ...]:
    model = mast()
    return model, *reduced_model(model, ("tip",), "tip", vertical=False)


def moved(model: Model, tests: list[LoadCase]) -> np.ndarray:
    return np.concatenate([p[t.measured] for t, p in zip(tests, predicted(model, tests), strict=True)])


def check_possible(found: Any) -> None:
    assert all(value >= 0.0 for value in found.joints.values())
    for matrix in found.links.values():
        np.testing.assert_array_equal(matrix, matrix.T)
        # By the measure of machine files, which refuse what is not positive semi-definite.
        VirtualSpring.model_validate({"name": "link", "body": "b", "compliance": matrix})


def test_exact_values_are_met(robot: tuple[Any, ...]) -> None:
    model, tests, complete, reduced, truth, covariance = robot
    found = completion(complete, reduced, truth, covariance)
    assert found.possible
    assert found.freedom == 62 - 26
    check_possible(found)
    assert set(found.links) == set(model.virtual_springs)
    expected = moved(model, tests)
    np.testing.assert_allclose(
        moved(completed_model(model, found), tests), expected, atol=1e-9 * np.abs(expected).max()
    )


def test_nominal_values_fill_what_is_free(robot: tuple[Any, ...]) -> None:
    model, _, complete, reduced, truth, covariance = robot
    own = dict(zip(complete.steps[0].before, original_values(model, complete).tolist(), strict=True))
    names = complete.steps[-1].before
    found = completion(complete, reduced, truth, covariance, {name: own[name] for name in names})
    assert found.chi_square == 0.0
    # The truth itself is the nearest: an objective within 1e-12 at a weight of 1e-6 is within 1e-3 of the size.
    for name in names:
        assert found.values[name] == pytest.approx(own[name], rel=3e-3, abs=3e-3 * max(own.values()))
    joints = [found.joints[name] for name in model.coordinates]
    np.testing.assert_allclose(joints, 1.0 / np.asarray(model.stiffness), rtol=3e-3)


@pytest.mark.parametrize("seed", range(3))
def test_noisy_values_are_met_as_well_as_by_the_truth(robot: tuple[Any, ...], seed: int) -> None:
    _, _, complete, reduced, truth, covariance = robot
    noise = np.linalg.cholesky(covariance) @ np.random.default_rng(seed).normal(size=truth.size)
    found = completion(complete, reduced, truth + noise, covariance)
    check_possible(found)
    # The truth is possible, so the best is no worse; 1e-4 is what nearness to zero may cost, 1e-6 of some tens.
    assert found.chi_square <= noise @ np.linalg.solve(covariance, noise) + 1e-4


def test_values_of_no_machine(robot: tuple[Any, ...]) -> None:
    _, _, complete, reduced, truth, covariance = robot
    index = reduced.names.index("link6 y,y")
    wrong = truth.copy()
    wrong[index] = -20.0 * np.sqrt(covariance[index, index])
    found = completion(complete, reduced, wrong, covariance)
    assert not found.possible
    check_possible(found)
    with pytest.raises(ValueError, match="the values are not physically consistent: the closest machine"):
        compliance_intervals(complete, reduced, wrong, covariance, names=("q2",))


def test_searches_that_end_before_say_so(simple: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, complete, reduced, truth, covariance = simple
    assert completion(complete, reduced, truth, covariance).converged
    monkeypatch.setattr(semidefinite, "MOST_STEPS", 1)
    assert not completion(complete, reduced, truth, covariance).converged
    with pytest.raises(ValueError, match="the search for the closest machine did not converge"):
        compliance_intervals(complete, reduced, truth, 1e-6 * covariance)
    monkeypatch.undo()
    monkeypatch.setattr(limits, "NEAR", 0.0)
    assert np.isnan(compliance_intervals(complete, reduced, truth, covariance, names=("q",))["q"]).all()


def test_intervals_hold_the_truth(robot: tuple[Any, ...]) -> None:
    model, _, complete, reduced, truth, covariance = robot
    own = dict(zip(complete.steps[0].before, original_values(model, complete).tolist(), strict=True))
    asked = ("q1", "q2", "link1 y,y", "link2 z,ry", "link6 rz,rz")
    found = compliance_intervals(complete, reduced, truth, covariance, names=asked)
    for name in asked:
        low, high = found[name]
        assert low <= own[name] <= high
    # No vertical load acts on joint 1 or along y of the carousel.
    assert found["q1"][1] == found["link1 y,y"][1] == np.inf
    assert np.isfinite(found["q2"][1])


def test_intervals_in_closed_form(simple: tuple[Any, ...]) -> None:
    _, _, complete, reduced, truth, _ = simple
    by_name = dict(zip(reduced.names, truth, strict=True))
    assert reduced.follow("q") == {"link rz,rz": 1.0}
    exact = np.diag((1e-6 * np.abs(truth).max()) ** 2 * np.ones(truth.size))
    found = compliance_intervals(complete, reduced, truth, exact)
    whole = by_name["link rz,rz"]
    # Joint and link share the rotation. The ball of the values is 1e-6 times a few wide.
    for name in ("q", "link rz,rz"):
        np.testing.assert_allclose(found[name], [0.0, whole], atol=1e-5 * whole)
    # What the data tell alone is as wide as the noise: 4.1 is the root of chi-square of 8 at 95 %.
    half = np.sqrt(15.507) * 1e-6 * np.abs(truth).max()
    x = by_name["link rx,rx"]
    np.testing.assert_allclose(found["link rx,rx"], [x - half, x + half], atol=0.01 * half)
    completed = completion(complete, reduced, truth, exact)
    assert completed.joints["q"] + completed.links["link"][5, 5] == pytest.approx(whole, rel=1e-9)


def test_completed_machine(simple: tuple[Any, ...]) -> None:
    model, _, complete, reduced, truth, covariance = simple
    found = completion(complete, reduced, truth, covariance)
    again = completed_model(model, found)
    assert again.stiffness[0] == pytest.approx(1.0 / found.joints["q"])
    np.testing.assert_array_equal(again.compliance[0], found.links["link"])
    with pytest.raises(ValueError, match="has the spring 'compensator' between frames"):
        completed_model(MODEL, found)


def test_wrong_input(simple: tuple[Any, ...]) -> None:
    complete: CompleteModel
    reduced: Reduction
    _, _, complete, reduced, truth, covariance = simple
    with pytest.raises(ValueError, match=r"values of shape \(3,\) and covariance of shape \(8, 8\), expected \(8,\)"):
        completion(complete, reduced, truth[:3], covariance)
    with pytest.raises(ValueError, match="has the standard deviation inf, expected a finite number above 0"):
        completion(complete, reduced, truth, covariance + np.diag([np.inf] + [0.0] * 7))
    with pytest.raises(ValueError, match="covariance is not positive definite"):
        completion(complete, reduced, truth, np.ones((8, 8)))
    with pytest.raises(ValueError, match="nominal compliance 'p' does not exist"):
        completion(complete, reduced, truth, covariance, {"p": 1.0})
    with pytest.raises(ValueError, match="compliance 'link x,q' does not exist, did you mean"):
        compliance_intervals(complete, reduced, truth, covariance, names=("link x,q",))
