"""Linear least squares against NumPy and SciPy, with bounds, outliers and missing rank."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from scipy.optimize import lsq_linear, nnls

from jaxmb.identify.estimation.linear import linear_fit


def problem(seed: int, m: int = 40, d: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    # Columns of very different units, as of translations and rotations.
    matrix = rng.normal(size=(m, d)) * 10.0 ** rng.integers(-7, 3, d)
    truth = rng.uniform(0.5, 2.0, d) / np.linalg.norm(matrix, axis=0)
    return matrix, truth, rng.uniform(0.01, 0.1, m)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_is_weighted_least_squares(seed: int) -> None:
    matrix, truth, std = problem(seed)
    measured = matrix @ truth + std * np.random.default_rng(seed).normal(size=std.size)
    fit = linear_fit(matrix, measured, std)
    rows = matrix / std[:, None]
    # Normal equations of columns scaled here, too: rounding times their condition of a few.
    scale = np.linalg.norm(rows, axis=0)
    inverse = np.linalg.inv((rows / scale).T @ (rows / scale)) / np.outer(scale, scale)
    np.testing.assert_allclose(fit.values, inverse @ rows.T @ (measured / std), rtol=1e-9, atol=1e-11 / scale.max())
    size = np.sqrt(np.diagonal(inverse))
    np.testing.assert_allclose(fit.covariance / np.outer(size, size), inverse / np.outer(size, size), atol=1e-10)
    np.testing.assert_allclose(fit.std, size, rtol=1e-10)
    np.testing.assert_array_equal(fit.residual, measured - matrix @ fit.values)
    assert fit.rank == 5
    assert not fit.on_bound.any()
    assert np.all(fit.weights == 1.0)


def test_deviations_are_those_of_repeated_measurements() -> None:
    matrix, truth, std = problem(3)
    rng = np.random.default_rng(4)
    found = [linear_fit(matrix, matrix @ truth + std * rng.normal(size=40), std).values for _ in range(2000)]
    # The deviation of a deviation of 2000 samples is 1.6 %; four of them.
    np.testing.assert_allclose(np.std(found, axis=0), linear_fit(matrix, matrix @ truth, std).std, rtol=0.065)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_smallest_scaled_norm_where_rank_is_missing(seed: int) -> None:
    matrix, truth, _ = problem(seed)
    # 5 and 6 are one direction, 7 acts on nothing.
    matrix = np.column_stack([matrix, matrix[:, :2] @ [1.0, 0.0], np.zeros(40)])
    measured = matrix[:, :5] @ truth
    fit = linear_fit(matrix, measured, np.ones(40))
    scale = np.linalg.norm(matrix, axis=0)
    scale[6] = 1.0
    expected = np.linalg.pinv(matrix / scale, rcond=1e-10) @ measured / scale
    np.testing.assert_allclose(fit.values * scale, expected * scale, atol=1e-11 * np.abs(expected * scale).max())
    assert fit.rank == 5
    np.testing.assert_array_equal(np.isinf(fit.std), [True, False, False, False, False, True, True])
    np.testing.assert_allclose(fit.values[1:5], truth[1:], rtol=1e-9)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=50, deadline=None)
def test_not_below_zero(seed: int) -> None:
    matrix, truth, std = problem(seed)
    truth[:3] *= [-1.0, 0.0, -0.2]
    rng = np.random.default_rng(seed)
    measured = matrix @ truth + std * rng.normal(size=40)
    fit = linear_fit(matrix, measured, std, np.zeros(5))
    assert fit.active_set_found
    rows = matrix / std[:, None]
    scale = np.linalg.norm(rows, axis=0)
    expected, _ = nnls(rows / scale, measured / std)
    np.testing.assert_allclose(fit.values * scale, expected, atol=1e-9 * np.abs(expected).max())
    # a value that rounding takes for zero may be on its bound or just off it
    told = (expected == 0.0) & (fit.values == 0.0) | (expected > 1e-9 * np.abs(expected).max())
    np.testing.assert_array_equal(fit.on_bound[told], expected[told] == 0.0)
    # With what is on the bound held, the others are the free fit's.
    alone = linear_fit(matrix[:, ~fit.on_bound], measured, std)
    np.testing.assert_allclose(fit.std[~fit.on_bound], alone.std, rtol=1e-9)
    assert np.all(fit.std[fit.on_bound] == 0.0)


@given(seed=st.integers(0, 10**6))
@example(seed=323)  # with AVX-512 the solver ends a rounding off a bound
@settings(max_examples=50, deadline=None)
def test_within_bounds(seed: int) -> None:
    matrix, truth, std = problem(seed)
    rng = np.random.default_rng(seed)
    measured = matrix @ truth + std * rng.normal(size=40)
    scale = np.linalg.norm(matrix / std[:, None], axis=0)
    # some bounds hold the values, some leave them alone, some exclude 0; one side of some is open
    ends = np.sort(truth[:, None] * rng.uniform(-0.5, 2.5, (5, 2)), axis=1) + [0.0, 1e-3] / scale[:, None]
    ends = np.where(rng.random((5, 2)) < 0.2, [-np.inf, np.inf], ends)
    fit = linear_fit(matrix, measured, std, *ends.T)
    assert fit.active_set_found
    expected = lsq_linear(
        matrix / std[:, None] / scale, measured / std, (ends * scale[:, None]).T, "bvls", tol=1e-14, max_iter=1000
    )
    np.testing.assert_allclose(fit.values * scale, expected.x, atol=1e-9 * np.abs(expected.x).max())
    assert np.all((ends[:, 0] <= fit.values) & (fit.values <= ends[:, 1]))
    # conditions of Karush, Kuhn and Tucker: the slope is 0 inside, and leads out where a value is held
    slope = (matrix / std[:, None] / scale).T @ ((matrix @ fit.values - measured) / std)
    size = 1e-9 * np.linalg.norm(measured / std)
    np.testing.assert_allclose(slope[~fit.on_bound], 0.0, atol=size)
    at_lower, at_upper = fit.values == ends[:, 0], fit.values == ends[:, 1]
    assert np.all(slope[fit.on_bound & at_lower] > 0.0)
    assert np.all(slope[fit.on_bound & at_upper] < 0.0)
    assert np.all((at_lower | at_upper)[fit.on_bound])
    assert np.all(fit.std[fit.on_bound] == 0.0)


def test_a_bound_moves_what_the_data_do_not_determine_and_no_more() -> None:
    # Of two equal columns the data fix the sum, 1: halves are nearest to 0, and 0.2 and 0.8 where one is at most 0.2.
    rng = np.random.default_rng(1)
    a = rng.normal(size=(20, 2))
    matrix, measured = np.column_stack([a[:, 0], a[:, 0], a[:, 1]]), a @ [1.0, 3.0]
    bounds = np.full(3, -np.inf), np.array([0.2, np.inf, np.inf])
    fit = linear_fit(matrix, measured, np.ones(20), *bounds)
    np.testing.assert_allclose(fit.values, [0.2, 0.8, 3.0], rtol=1e-12)
    # the data would not move the first beyond
    assert not fit.on_bound.any()
    assert np.isinf(fit.std).tolist() == [True, True, False]
    # with at most 0.7 in all they would
    fit = linear_fit(matrix, measured, np.ones(20), np.full(3, -np.inf), np.array([0.2, 0.5, np.inf]))
    np.testing.assert_allclose(fit.values[:2], [0.2, 0.5], rtol=0.0)
    assert fit.on_bound.tolist() == [True, True, False]


def test_only_the_parameters_named_are_bounded() -> None:
    matrix, truth, std = problem(1)
    truth[:2] *= -1.0
    fit = linear_fit(matrix, matrix @ truth, std, np.array([0.0, *[-np.inf] * 4]))
    assert fit.values[0] == 0.0
    assert fit.values[1] < 0.0
    np.testing.assert_array_equal(fit.on_bound, [True, False, False, False, False])


def test_a_parameter_that_is_zero_by_chance_is_not_called_determined() -> None:
    # Of two equal columns the data fix the sum alone, whatever a bound holds the third at.
    rng = np.random.default_rng(0)
    a = rng.normal(size=(20, 2))
    fit = linear_fit(np.column_stack([a[:, 0], a[:, 0], a[:, 1]]), a @ [1.0, -1.0], np.ones(20), np.zeros(3))
    assert np.all(np.isinf(fit.std[:2]))
    assert fit.on_bound.tolist() == [False, False, True]


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_a_fifth_of_gross_outliers(seed: int, bounded: bool) -> None:
    rng = np.random.default_rng(seed)
    matrix, truth, _ = problem(seed, 200)
    std = np.full(200, 0.01 * np.abs(matrix @ truth).max())
    clean = matrix @ truth + std * rng.normal(size=200)
    wrong = rng.permutation(200) < 40
    # All on one side, which a convex loss would follow.
    measured = np.where(wrong, clean + 100.0 * std, clean)
    lower = np.full(5, 0.0 if bounded else -np.inf)
    fit = linear_fit(matrix, measured, std, lower, robust=True)
    assert np.all(fit.weights[wrong] == 0.0)
    # Within five standard deviations: a chance of 1e-6 for each of 50 numbers.
    assert np.all(np.abs(fit.values - truth) < 5.0 * fit.std)
    plain = linear_fit(matrix, measured, std, lower)
    assert np.any(np.abs(plain.values - truth) > 5.0 * plain.std)
    # Without noise what is left is exact.
    exact = linear_fit(matrix, np.where(wrong, matrix @ truth + 100.0 * std, matrix @ truth), std, robust=True)
    np.testing.assert_allclose(exact.values, truth, rtol=1e-9)


@pytest.mark.parametrize("shortest", [2e-14, 1.0, 1e13])
def test_units_that_keep_columns_above_the_smallest_change_nothing(shortest: float) -> None:
    rng = np.random.default_rng(0)
    matrix, std = rng.normal(size=(40, 3)), rng.uniform(0.5, 2.0, 40)
    measured = matrix @ [1.0, 2.0, 3.0] + std * rng.normal(size=40)
    length = np.linalg.norm(matrix / std[:, None], axis=0)
    units = np.array([1.0, length[0] / length[1], shortest * length[0] / length[2]])
    plain, other = linear_fit(matrix, measured, std), linear_fit(matrix * units, measured, std)
    np.testing.assert_allclose(other.values * units, plain.values, rtol=1e-12)
    np.testing.assert_allclose(other.std * units, plain.std, rtol=1e-12)
    assert other.rank == 3


@pytest.mark.parametrize("bounded", [False, True])
def test_a_column_below_the_smallest_counts_as_zeros(bounded: bool) -> None:
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(40, 3)) * [1.0, 1e-12, 1e-15]
    # Bounded, the longest column is held at 0, and still is what the shortest is measured by.
    measured = matrix @ [-1.0 if bounded else 1.0, 2.0, 1.0]
    fit = linear_fit(matrix, measured, np.ones(40), np.full(3, 0.0 if bounded else -np.inf))
    assert fit.on_bound[0] == bounded
    assert fit.values[2] == 0.0
    assert fit.std[2] == np.inf
    assert fit.rank == 2


def test_robust_on_good_data_is_nearly_least_squares() -> None:
    matrix, truth, std = problem(2, 500)
    measured = matrix @ truth + std * np.random.default_rng(0).normal(size=500)
    robust, plain = linear_fit(matrix, measured, std, robust=True), linear_fit(matrix, measured, std)
    assert np.all(np.abs(robust.values - plain.values) < plain.std)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"measured": np.ones(3)}, r"measured has shape \(3,\), expected \(4,\) for a matrix of shape \(4, 2\)"),
        ({"std": np.ones(3)}, r"std has shape \(3,\)"),
        ({"lower": np.ones(3)}, r"lower has shape \(3,\), expected \(2,\)"),
        ({"upper": np.ones(3)}, r"upper has shape \(3,\), expected \(2,\)"),
        ({"lower": np.ones(2), "upper": np.array([2.0, 1.0])}, "'1' has the bounds 1 and 1, expected lower < upper"),
        ({"names": ("a",)}, r"names has shape \(1,\), expected \(2,\)"),
        ({"matrix": np.ones(4)}, r"matrix has shape \(4,\), expected \(measurements, parameters\)"),
        ({"matrix": np.array([[1.0, 2.0]] * 3 + [[1.0, np.nan]])}, "matrix has nan in row 3 of parameter '1'"),
        ({"measured": np.array([1.0, np.inf, 1.0, 1.0])}, "measured has inf in row 1"),
        ({"std": np.array([1.0, 1.0, 0.0, 1.0])}, "std has 0 in row 2, expected a number above 0"),
        (
            {"matrix": np.ones((1, 2)), "measured": np.ones(1), "std": np.ones(1)},
            "there are 1 equations for 2 parameters, expected at least as many",
        ),
    ],
)
def test_wrong_input(change: dict[str, Any], sentence: str) -> None:
    problem: dict[str, Any] = {"matrix": np.ones((4, 2)), "measured": np.ones(4), "std": np.ones(4)} | change
    with pytest.raises(ValueError, match=sentence):
        linear_fit(**problem)
