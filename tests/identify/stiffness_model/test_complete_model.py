"""The complete model of serial machines with elastic links, and its reduction to what the tests tell apart."""

import dataclasses
from typing import Any

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.estimation.linear import linear_fit
from jaxmb.identify.experiments.deflections.load_cases import LoadCase, observation_matrix, spring_term
from jaxmb.identify.stiffness_model.complete_model import complete_model, complete_reduction, original_values
from jaxmb.machine.build import Model
from jaxmb.machine.schema import Machine
from tests.identify.kr240 import measured_by
from tests.identify.kr270 import RIGID, vertical

RANGES = ((-1.5, 1.5), (0.5, 2.2), (-3.6, -1.8), (-3.0, 3.0), (-1.8, 1.8), (-3.0, 3.0))
"""Coordinates of the KR 270, rad."""


def documented_tests(count: int, seed: int = 0) -> list[LoadCase]:
    """The measurement that `kuka-kr270` is made for: a vertical force of 2.5 kN at its load frame, positions of three
    points, displaced by the machine's own compliances."""
    rng = np.random.default_rng(seed)
    return measured_by(RIGID, vertical([[rng.uniform(*r) for r in RANGES] for _ in range(count)]))


def displacements(tests: list[LoadCase]) -> np.ndarray:
    return np.concatenate([t.displacement[t.measured] for t in tests])


def chain(seed: int, joints: int, **changes: Any) -> Model:
    """A serial machine of random links and joints of both kinds, springs aligned with the joints behind them."""
    rng = np.random.default_rng(seed)
    bodies, springs = [], []
    for i in range(joints):
        # The joint sits where the spring before it is, about or along one of its axes.
        place = {"xyz": rng.normal(size=3).tolist(), "rpy": rng.normal(size=3).tolist()}
        axis = (np.sign(rng.normal()) * np.eye(3)[rng.integers(3)]).tolist()
        kind = "prismatic" if rng.uniform() < 0.3 else "revolute"
        joint = {"name": f"q{i}", "type": kind, "axis": axis, "stiffness": 1e6 * rng.uniform(0.5, 2.0)}
        parent = f"b{i - 1}" if i else "ground"
        bodies.append({"name": f"b{i}", "parent": parent, "origin": place, "joint": [joint]})
        factor = rng.normal(size=(6, 6))
        compliance = (1e-8 * factor @ factor.T).tolist()
        springs.append({"name": f"s{i}", "body": parent, "origin": place, "compliance": compliance})
    tip = {"name": "tip", "body": bodies[-1]["name"], "origin": {"xyz": [0.3, 0.2, 0.1]}}
    machine = {"name": "chain", "body": bodies, "frame": [tip], "virtual_spring": springs} | changes
    return jaxmb.build_model(Machine.model_validate(machine))


def pose_tests(model: Model, count: int, points: tuple[str, ...] = ("tip",)) -> list[LoadCase]:
    rng = np.random.default_rng(1)
    n, shape = len(model.coordinates), (len(points), 6)
    tests = [
        LoadCase(str(i), rng.uniform(-2.0, 2.0, n), "tip", 100.0 * rng.normal(size=6), points, np.zeros(shape),
                       np.full(shape, 1e-5))
        for i in range(count)
    ]  # fmt: skip
    return measured_by(model, tests)


def test_counts_of_the_published_robot() -> None:
    # Klimchik et al. 2014, Table 1: they depend on the numbers of joints and links alone.
    assert complete_reduction(RIGID, documented_tests(20))[1].counts | {"M4": 0, "M5": 0} == {
        "original": 258, "M1": 153, "M2": 62, "M3": 56, "M4": 0, "M5": 0,
    }  # fmt: skip


@pytest.mark.parametrize(("count", "seed"), [(20, 0), (60, 1)])
def test_documented_measurement_has_the_published_rank(count: int, seed: int) -> None:
    tests = documented_tests(count, seed)
    complete, reduced = complete_reduction(RIGID, tests)
    # The same from singular vectors: what acts has a column, what is known alone has no part in the null space.
    at = observation_matrix(RIGID, tests, complete.terms)
    size = np.linalg.norm(at, axis=0)
    acts = np.flatnonzero(size > 1e-12 * size.max())
    values, right = np.linalg.svd(at[:, acts] / size[acts])[1:]
    assert values[25] > 1e-4 * values[0]
    assert values[26] < 1e-10 * values[0]
    alone = acts[np.linalg.norm(right[26:], axis=0) < 1e-6]
    assert set(reduced.partition.identifiable) == set(alone)
    assert set(reduced.partition.semi_identifiable) == set(acts) - set(alone)
    kept = np.array([complete.names.index(name) for name in reduced.names])
    assert np.linalg.svd(at[:, kept] / size[kept])[1][-1] > 1e-4
    assert reduced.partition.rank == len(reduced.names) == 26
    groups = (reduced.partition.identifiable, reduced.partition.nonidentifiable, reduced.partition.semi_identifiable)
    # Printed: 1, 10, 45 and 46 after elimination; for frames and points that are not printed.
    assert [len(g) for g in groups] == [2, 9, 45]
    assert reduced.counts["M4"] == 47
    # By preference what holds a joint is kept; a vertical force does not act on joint 1.
    held = {"link1 ry,ry", "link2 rz,rz", "link3 rx,rx", "link4 ry,ry", "link5 rx,rx"}
    assert held <= set(reduced.names)
    assert reduced.follow("q1").keys() <= set(reduced.names) - held
    assert reduced.follow("q2") == {"link1 ry,ry": 1.0}


def test_predictions_are_kept_through_every_step() -> None:
    tests = documented_tests(20)
    complete, reduced = complete_reduction(RIGID, tests)
    x, at = original_values(RIGID, complete), observation_matrix(RIGID, tests, complete.original_terms)
    expected = displacements(tests)
    for step in reduced.steps:
        x, at = step.reduce @ x, at @ step.expand
        np.testing.assert_allclose(at @ x, expected, atol=1e-9 * np.abs(expected).max())
    # The physical steps in one are the terms of the model that is left.
    direct = observation_matrix(RIGID, tests, complete.terms)
    physical = np.linalg.multi_dot([step.expand for step in reduced.steps[:3]])
    whole = observation_matrix(RIGID, tests, complete.original_terms)
    np.testing.assert_allclose(direct, whole @ physical, atol=1e-12 * np.abs(whole).max())


def test_identified_on_some_postures_predicts_others() -> None:
    tests, others = documented_tests(20), documented_tests(20, seed=5)
    complete, reduced = complete_reduction(RIGID, tests)
    columns = [complete.names.index(name) for name in reduced.names]
    fit = linear_fit(observation_matrix(RIGID, tests, complete.terms)[:, columns], displacements(tests), np.ones(180))
    expected = displacements(others)
    found = observation_matrix(RIGID, others, complete.terms)[:, columns] @ fit.values
    np.testing.assert_allclose(found, expected, atol=1e-9 * np.abs(expected).max())
    np.testing.assert_allclose(fit.values, reduced.reduce @ original_values(RIGID, complete), rtol=1e-9, atol=1e-17)


@pytest.mark.parametrize("seed", range(2))
def test_any_chain(seed: int) -> None:
    model = chain(seed, 3)
    tests = pose_tests(model, 60)
    complete, reduced = complete_reduction(model, tests, sparse=False)
    assert reduced.counts | {"M4": 0, "M5": 0} == {"original": 111, "M1": 66, "M3": 63, "M4": 0, "M5": 0}
    assert not complete.kept
    at = observation_matrix(model, tests, complete.terms)
    last = reduced.reduce @ original_values(model, complete)
    columns = [complete.names.index(name) for name in reduced.names]
    expected = displacements(tests)
    np.testing.assert_allclose(at[:, columns] @ last, expected, atol=1e-9 * np.abs(expected).max())
    size = np.linalg.norm(at, axis=0)
    assert np.linalg.matrix_rank(at / np.where(size > 1e-12 * size.max(), size, np.inf), tol=1e-10) == len(columns)
    assert complete_reduction(model, tests)[1].counts["M2"] == 3 + 3 * 8


def test_a_joint_beside_the_axes_of_the_spring_is_kept() -> None:
    joint = {"name": "q", "axis": [1.0, 0.0, 0.0], "stiffness": 1e5}
    tip = {"name": "tip", "body": "b", "origin": {"xyz": [0.0, 1.0, 0.0]}}
    for origin, why in (
        ({"xyz": [0.0, 0.0, 0.1]}, "the axis of joint 'q' is 0.1 m off the preceding virtual spring 'mast'"),
        ({"rpy": [0.0, 0.0, 0.3]}, "the axis of joint 'q' is not along an axis of the preceding virtual spring 'mast'"),
    ):
        spring = {"name": "mast", "body": "ground", "diagonal": [1e-7] * 6, "origin": origin}
        model = chain(0, 1, body=[{"name": "b", "joint": [joint]}], frame=[tip], virtual_spring=[spring])
        complete = complete_model(model)
        assert complete.aggregated == {}
        assert why in complete.kept["q"]
        assert len(complete.names) == 9
    behind = {"name": "arm", "body": "b", "diagonal": [1e-7] * 6}
    model = chain(0, 1, body=[{"name": "b", "joint": [joint]}], frame=[tip], virtual_spring=[behind])
    assert "no virtual spring directly precedes joint 'q'" in complete_model(model).kept["q"]


def test_a_point_between_link_and_joint_tells_them_apart() -> None:
    joint = {"name": "q", "axis": [0.0, 0.0, 1.0], "stiffness": 1e5}
    spring = {"name": "mast", "body": "post", "diagonal": [1e-7] * 6}
    frames = [{"name": "tip", "body": "b", "origin": {"xyz": [0.0, 1.0, 0.0]}}, {"name": "top", "body": "post"}]
    bodies = [{"name": "post"}, {"name": "b", "parent": "post", "joint": [joint]}]
    model = chain(0, 1, body=bodies, frame=frames, virtual_spring=[spring])
    apart = pose_tests(model, 20, ("tip", "top"))
    complete, reduced = complete_reduction(model, apart)
    assert "frame 'top' is between virtual spring 'mast' and joint 'q'" in complete.kept["q"]
    assert {"q", "mast rz,rz"} <= set(reduced.names)
    assert complete_model(model, ("tip",)).aggregated == {"q": "mast rz,rz"}


def test_what_is_no_chain_with_springs() -> None:
    rigid = jaxmb.build_model(jaxmb.load_machine("kuka-kr240"))
    with pytest.raises(ValueError, match="machine 'kuka-kr240' has no virtual spring"):
        complete_model(rigid)
    two = [{"name": name, "joint": [{"name": f"q{name}"}]} for name in "ab"]
    spring = {"name": "s", "body": "a"}
    tree = chain(0, 1, body=two, frame=[], virtual_spring=[spring])
    with pytest.raises(ValueError, match="is not a serial chain: 'qa' and 'qb' have the same parent 'the ground'"):
        complete_model(tree)


def test_a_term_of_an_axis_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="axis 'qq' does not exist; expected one of: x, y, z, rx, ry, rz"):
        spring_term(RIGID, RIGID.virtual_springs[0], "x", "qq")


def test_a_locked_joint_has_no_compliance():
    """Without the refusal its compliance would be a parameter, which the machine with the lock does not reproduce."""
    locked = dataclasses.replace(RIGID, locked=(False, False, False, False, True, False))
    with pytest.raises(NotImplementedError, match="has the locked coordinate 'q5', which is rigid"):
        complete_model(locked)
