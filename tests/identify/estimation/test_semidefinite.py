"""Convex problems over positive semi-definite matrices against closed forms."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from jaxmb.identify.estimation import semidefinite
from jaxmb.identify.estimation.semidefinite import Cone, minimize_over


def symmetric(n: int) -> np.ndarray:
    """All symmetric matrices of size n [k, 1, n, n]."""
    found = []
    for i in range(n):
        for j in range(i, n):
            one = np.zeros((1, n, n))
            one[0, i, j] = one[0, j, i] = 1.0
            found.append(one)
    return np.stack(found)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_nearest_matrix(seed: int) -> None:
    # Higham 1988: the nearest in the Frobenius norm has the negative eigenvalues set to zero.
    given = np.random.default_rng(seed).normal(size=(4, 4))
    given = given + given.T
    slope = symmetric(4)
    weight = np.array([np.sum(s**2) for s in slope])
    target = np.array([np.sum(s[0] * given) / np.sum(s**2) for s in slope])
    cone = Cone(np.zeros((1, 4, 4)), slope, np.zeros(10))
    start = np.array([s[0].trace() for s in slope])
    w, left = minimize_over(cone, np.diag(weight), -weight * target, start)
    assert left < 2e-12
    found = cone.matrices(w)[0]
    values, vectors = np.linalg.eigh(given)
    # An objective within 1e-12 of the least is within 1e-6 in the distance.
    np.testing.assert_allclose(found, (vectors * np.maximum(values, 0.0)) @ vectors.T, atol=3e-6)
    assert np.linalg.eigvalsh(found).min() > 0.0


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_what_couples_two_is_bounded_by_their_root(sign: float) -> None:
    base = np.diag([4.0, 9.0])[None]
    cone = Cone(base, np.array([[[[0.0, 1.0], [1.0, 0.0]]]]), np.zeros(1))
    found, _ = minimize_over(cone, np.zeros((1, 1)), np.array([sign]), np.zeros(1))
    assert found[0] == pytest.approx(-6.0 * sign, abs=1e-9)


def test_farthest_in_a_ball() -> None:
    cone = Cone(np.ones((1, 1, 1)), np.zeros((3, 1, 1, 1)), np.ones(3), radius=2.0)
    direction = np.array([1.0, -2.0, 2.0])
    found, _ = minimize_over(cone, np.zeros((3, 3)), direction, np.zeros(3))
    # The objective is within 1e-12 of the least, which is flat across: the square root of that beside it.
    np.testing.assert_allclose(found, -2.0 * direction / 3.0, atol=3e-6)
    assert direction @ found == pytest.approx(-6.0, abs=1e-9)


def test_a_ball_of_some_entries_and_matrices_together() -> None:
    # The least of x + y with x > -1 and |y| < 2.
    cone = Cone(np.ones((1, 1, 1)), np.array([[[[1.0]]], [[[0.0]]]]), np.array([0.0, 1.0]), radius=2.0)
    found, _ = minimize_over(cone, np.zeros((2, 2)), np.ones(2), np.zeros(2))
    np.testing.assert_allclose(found, [-1.0, -2.0], atol=1e-9)


def test_a_search_that_ends_before_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least of x over x > -1, which is -1, after one step out of many."""
    monkeypatch.setattr(semidefinite, "MOST_STEPS", 1)
    cone = Cone(np.ones((1, 1, 1)), np.ones((1, 1, 1, 1)), np.zeros(1))
    found, left = minimize_over(cone, np.zeros((1, 1)), np.ones(1), np.zeros(1))
    assert 1e-3 < found[0] + 1.0 <= left


def test_start_outside() -> None:
    cone = Cone(-np.ones((1, 1, 1)), np.ones((1, 1, 1, 1)), np.zeros(1))
    with pytest.raises(ValueError, match="the start is not an interior point"):
        minimize_over(cone, np.eye(1), np.zeros(1), np.zeros(1))
