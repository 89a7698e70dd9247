"""Reduction of linear models to full rank: against NumPy's rank, and laws that hold for any matrix."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from jaxmb.identify.estimation.reduction import Group, coupled_groups, partition, reduction, select


def coupled(seed: int) -> tuple[np.ndarray, list[set[int]]]:
    """A matrix of 2 identifiable columns, 2 zeros, groups of 3 columns of rank 1, 4 of rank 2 and 4 of rank 3, shuffled
    and in units of very different size; the groups, G1 and G2 first."""
    rng = np.random.default_rng(seed)
    blocks = [rng.normal(size=(30, 2)), np.zeros((30, 2))]
    blocks += [rng.normal(size=(30, r)) @ rng.uniform(0.5, 2.0, (r, n)) for r, n in ((1, 3), (2, 4), (3, 4))]
    order = rng.permutation(15)
    matrix = np.concatenate(blocks, axis=1)[:, order] * 10.0 ** rng.integers(-4, 4, 15)
    ends = np.cumsum([0] + [block.shape[1] for block in blocks])
    return matrix, [set(np.flatnonzero((order >= a) & (order < b)).tolist()) for a, b in itertools.pairwise(ends)]


def rank(matrix: np.ndarray) -> int:
    size = np.linalg.norm(matrix, axis=0)
    return int(np.linalg.matrix_rank(matrix / np.where(size > 0.0, size, 1.0), tol=1e-10)) if matrix.size else 0


@given(seed=st.integers(0, 10**6))
@settings(max_examples=50, deadline=None)
def test_groups_are_found(seed: int) -> None:
    matrix, sets = coupled(seed)
    parts = partition(matrix)
    assert set(parts.identifiable) == sets[0]
    assert set(parts.nonidentifiable) == sets[1]
    assert parts.rank == rank(matrix) == 8
    groups = coupled_groups(matrix, parts)
    assert sorted(sorted(g.columns) for g in groups) == sorted(sorted(s) for s in sets[2:])
    for group in groups:
        own = list(group.columns)
        assert group.rank == rank(matrix[:, own])
        # Conditions (b) and (c) as they are printed.
        assert all(rank(matrix[:, [c for c in own if c != j]]) == group.rank for j in own)
        others = [c for g in groups if g is not group for c in g.columns]
        assert all(rank(matrix[:, [*own, k]]) > group.rank for k in others)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=50, deadline=None)
def test_rank_and_predictions_are_kept(seed: int) -> None:
    matrix, _ = coupled(seed)
    names = [f"p{i}" for i in range(15)]
    found = reduction(matrix, names)
    assert found.counts == {"original": 15, "M4": 13, "M5": 8}
    at, size = matrix, np.linalg.norm(matrix, axis=0)
    x = np.random.default_rng(seed).normal(size=15) / np.where(size > 0.0, size, 1.0)
    whole = matrix @ x
    for step in found.steps:
        x, at = step.reduce @ x, at @ step.expand
        # Rounding of couplings by condition numbers up to 1e4, far below the promised 1e-9.
        np.testing.assert_allclose(at @ x, whole, atol=1e-10 * np.abs(whole).max())
        assert rank(at) == 8
    assert at.shape[1] == 8
    np.testing.assert_allclose(found.reduce @ found.expand, np.eye(8), atol=1e-12)
    np.testing.assert_array_equal(at, matrix[:, [names.index(name) for name in found.names]])


def test_preference_decides_and_equals_go_to_the_first() -> None:
    a, b = np.random.default_rng(0).normal(size=(2, 10))
    matrix = np.column_stack([a, 3.0 * a, b, a + b])
    names = ("a", "3a", "b", "sum")
    assert reduction(matrix, names, {"sum": 1.0, "b": 2.0}).names == ("b", "sum")
    assert reduction(matrix, names, {"sum": 1.0, "a": 2.0}).names == ("a", "sum")
    # Long columns by themselves.
    assert reduction(matrix, names).names[0] == "3a"
    # Equal in length once scaled: the first of them, each time.
    same = np.column_stack([a, a, a * (1.0 + 1e-15)])
    assert reduction(same, "xyz", {}).names == ("x",)
    assert reduction(same, "xyz", {"z": 1.0}).follow("x") == {"z": pytest.approx(1.0)}


def test_the_choice_has_the_highest_sum_of_preferences() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        matrix = rng.normal(size=(10, 3)) @ rng.integers(-1, 2, (3, 7))
        group = Group(tuple(np.flatnonzero(np.linalg.norm(matrix, axis=0)).tolist()), rank(matrix))
        wanted = rng.permutation(7).astype(float)
        every = itertools.combinations(group.columns, group.rank)
        best = max((c for c in every if rank(matrix[:, list(c)]) == group.rank), key=lambda c: wanted[list(c)].sum())
        assert select(matrix, group, wanted) == best


def test_a_preferred_column_that_hardly_stands_out_is_passed_over() -> None:
    a, b = np.linalg.qr(np.random.default_rng(2).normal(size=(10, 2)))[0].T
    matrix = np.column_stack([a, a + 1e-6 * b, a + b])
    assert reduction(matrix, "abc", {"a": 2.0, "b": 1.0}).names == ("a", "c")


def test_constants_are_taken_along() -> None:
    matrix, sets = coupled(5)
    names = [f"p{i}" for i in range(15)]
    constants = {name: 0.1 * i for i, name in enumerate(names)}
    found = reduction(matrix, names, constants=constants)
    x = np.random.default_rng(0).normal(size=15)
    last = found.reduce @ (x - found.constant)
    again = found.expand @ last + found.constant
    np.testing.assert_allclose(matrix @ again, matrix @ x, atol=1e-10 * np.abs(matrix @ x).max())
    held = [i for i, name in enumerate(names) if name not in found.names]
    np.testing.assert_array_equal(again[held], [constants[names[i]] for i in held])
    assert sets[1] <= set(held)


def test_follows_a_parameter() -> None:
    a, b = np.random.default_rng(0).normal(size=(2, 10))
    found = reduction(np.column_stack([a, -2.0 * a, b, 0.0 * a]), ("joint", "link", "other", "none"))
    assert found.names == ("link", "other")
    assert found.follow("joint") == {"link": pytest.approx(-0.5)}
    assert found.follow("other") == {"other": 1.0}
    assert found.follow("none") == {}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"names": ("a",)}, r"matrix has shape \(3, 2\), expected one column for each of 1 names"),
        ({"names": ("a", "a")}, "two parameters have the same name"),
        ({"matrix": np.array([[1.0, 2.0], [1.0, np.inf], [0.0, 1.0]])}, "matrix has inf in row 1 of parameter 'b'"),
        ({"preference": {"c": 1.0}}, "preference: parameter 'c' does not exist; expected one of: "),
        ({"constants": {"b": np.nan}}, "constants: parameter 'b' has nan, expected a finite number"),
    ],
)
def test_wrong_input(change: dict[str, Any], sentence: str) -> None:
    right: dict[str, Any] = {"matrix": np.ones((3, 2)), "names": ("a", "b")}
    with pytest.raises(ValueError, match=sentence):
        reduction(**(right | change))


def test_columns_too_close_to_dependent() -> None:
    rng = np.random.default_rng(0)
    a, b, c = np.linalg.qr(rng.normal(size=(10, 3)))[0].T
    # The coupling of a with b lies at the edge of what counts as one.
    with pytest.raises(ValueError, match="too close to dependent"):
        reduction(np.column_stack([a, a + 5e-7 * b, b, c, c, a]), "abcdef")
