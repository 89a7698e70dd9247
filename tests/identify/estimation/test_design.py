"""Chosen tests against all choices there are."""

import itertools

import numpy as np
import pytest

from jaxmb.identify.estimation.design import choose_tests

RNG = np.random.default_rng(0)
CANDIDATES = RNG.normal(size=(14, 2, 3)) * np.array([1.0, 1e-3, 1e6])
PURPOSE = np.array([[1.0, 0.0, 1e6], [0.0, 1e-3, 0.0]])


def value(chosen, criterion):
    matrix = sum(CANDIDATES[i].T @ CANDIDATES[i] for i in chosen)
    if criterion == "D":
        return -np.linalg.slogdet(matrix)[1]
    rows = np.eye(3) if criterion == "A" else PURPOSE
    return np.trace(rows @ np.linalg.solve(matrix, rows.T))


@pytest.mark.parametrize("criterion", ["D", "A", "test-pose"])
def test_as_good_as_the_best_of_all_choices(criterion):
    design = choose_tests(CANDIDATES, 3, criterion, PURPOSE if criterion == "test-pose" else None)
    best = min(value(c, criterion) for c in itertools.combinations(range(14), 3))
    assert design.value == pytest.approx(value(design.chosen, criterion), rel=1e-9)
    # exchanges end in an optimum of single exchanges; here, as mostly, it is the best of all
    assert design.value == pytest.approx(best, rel=1e-9)
    assert design.value <= design.greedy_value


def test_better_than_random_choices():
    rng = np.random.default_rng(1)
    many = rng.normal(size=(300, 6, 20))
    design = choose_tests(many, 8)
    values = []
    for _ in range(100):
        matrix = sum(many[i].T @ many[i] for i in rng.choice(300, 8, replace=False))
        values.append(-np.linalg.slogdet(matrix)[1])
    assert design.value < min(values)
    assert len(set(design.chosen)) == 8
    matrix = sum(many[i].T @ many[i] for i in design.chosen)
    assert np.allclose(design.covariance, np.linalg.inv(matrix), rtol=1e-6)


def test_tests_that_were_made_count():
    only = np.zeros((2, 1, 2))
    only[0, 0, 0] = only[1, 0, 1] = 1.0
    assert choose_tests(only, 1, made=np.array([[3.0, 0.0]])).chosen == (1,)
    assert choose_tests(only, 5, repeat=True).chosen.count(0) in (2, 3)


def test_what_cannot_be_chosen():
    for arguments, message in (
        ((CANDIDATES, 15), "15 tests are to be chosen out of 14 candidates"),
        ((CANDIDATES, 1), "1 tests leave some of 3 parameters unknown"),
        ((CANDIDATES, 3, "test-pose"), "purpose is for the criterion 'test-pose'"),
        ((CANDIDATES, 3, "E"), "expected 'D', 'A' or 'test-pose'"),
        ((np.where(np.arange(3) == 1, 0.0, CANDIDATES), 3), "parameter 1 acts on no candidate"),
        ((CANDIDATES[:, :, [0, 0]], 3), "all 14 candidates together leave some of 2 parameters unknown"),
        ((np.where(np.arange(14)[:, None, None] == 4, np.nan, CANDIDATES), 3), "candidate 4 is not finite"),
        ((CANDIDATES[0], 1), r"candidates have shape \(2, 3\), expected three axes"),
        ((CANDIDATES, 3, "test-pose", PURPOSE[:, :2]), r"purpose has shape \(2, 2\), expected rows of 3 parameters"),
        ((CANDIDATES, 3, "test-pose", np.nan * PURPOSE), "purpose: row 0 is not finite"),
        ((CANDIDATES, 3, "D", None, np.ones((1, 4))), r"made has shape \(1, 4\), expected rows of 3 parameters"),
        ((CANDIDATES, 3, "D", None, np.full((1, 3), np.inf)), "made: row 0 is not finite"),
    ):
        with pytest.raises(ValueError, match=message):
            choose_tests(*arguments)
