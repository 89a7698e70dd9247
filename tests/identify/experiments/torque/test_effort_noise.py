"""The deviation of measured efforts, where outliers are among them and where not."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.signal import lfilter

import jaxmb
from jaxmb.identify.experiments.torque import effort_rows as module
from jaxmb.identify.experiments.torque.effort_noise import effort_noise, motion_errors
from jaxmb.identify.experiments.torque.effort_rows import EffortRows, least_norm_solution
from jaxmb.identify.fit.noise import reduced_chi_square

COUNT = 4000
TRUE = np.array([0.5, 3.0])


def rows_of(seed: int, rho: float = 0.0, outliers: float = 0.0) -> EffortRows:
    """Efforts of two coordinates in turn, noise of each an autoregressive process, a share 50 deviations off."""
    draw = np.random.default_rng(seed)
    matrix = draw.normal(size=(2 * COUNT, 8))
    coordinate = np.tile([0, 1], COUNT)
    noise = lfilter([np.sqrt(1.0 - rho**2)], [1.0, -rho], draw.normal(size=(COUNT + 100, 2)), axis=0)[100:]
    wrong = draw.random((COUNT, 2)) < outliers
    noise = TRUE * (noise + 50.0 * wrong)
    effort = matrix @ draw.normal(size=8) + noise.ravel()
    time = np.repeat(np.arange(COUNT) * 1e-3, 2)
    return EffortRows(matrix, effort, coordinate, time, np.ones(2 * COUNT), ("q1", "q2"), np.zeros(2 * COUNT))


@pytest.mark.parametrize("rho", [0.0, 0.8])
def test_outliers_do_not_count(rho: float) -> None:
    clean, mixed = rows_of(0, rho), rows_of(0, rho, outliers=0.02)
    expected = effort_noise(clean).std
    # Neighbours of an outlier stand for it, and correlations are told to a tenth: the deviation moves by less.
    np.testing.assert_allclose(effort_noise(mixed, robust=True).std, expected, rtol=0.12)
    # one in fifty of 50 deviations is a deviation of 7 in all
    assert np.all(effort_noise(mixed).std > 2.0 * expected)


def test_it_is_that_of_normal_noise() -> None:
    """Weighted mean squares of 4000 normal errors scatter by 2.3 %, the deviation by half of that: four times it."""
    for seed in range(3):
        np.testing.assert_allclose(effort_noise(rows_of(seed), robust=True).std, TRUE, rtol=0.046)


def test_exact_efforts_have_a_deviation_of_rounding() -> None:
    rows = rows_of(1)
    rows = rows._replace(effort=rows.regressor @ np.arange(1.0, 9.0))
    assert np.all(effort_noise(rows, robust=True).std <= 1e-10)
    assert np.all(effort_noise(rows, robust=True).std > 0.0)


def test_what_is_left_is_the_noise_where_samples_are_alike() -> None:
    """The deviation is that of fewer samples, three times what scatters at rho = 0.8, and what is left is still once
    the noise. Of 8000 / 9 independent samples the ratio is told to 2.4 %: three times that."""
    rows = rows_of(2, rho=0.8)
    noise = effort_noise(rows)
    std, lengths = (part[rows.coordinate] for part in noise)
    left = (rows.effort - rows.regressor @ least_norm_solution(rows.regressor, rows.effort)) / std
    assert np.sqrt(np.mean(left**2)) < 0.4
    found = reduced_chi_square(left, np.ones(left.size), 8.0, lengths=lengths)
    assert found.factor == pytest.approx(1.0, rel=0.072)
    assert found.explained
    # a model that misses half as much again is told from noise
    assert not reduced_chi_square(1.5 * left, np.ones(left.size), 8.0, lengths=lengths).explained


@pytest.mark.parametrize("robust", [False, True])
def test_a_joint_that_alone_moves_most_parameters_leaves_fewer_degrees(robust: bool) -> None:
    """12 of 15 parameters act on 30 samples of the first joint, which leaves 18 degrees of freedom there.

    Of 400 draws the mean square is known to 1.7 %: four times that. By Tukey's weights of so few samples it is 4 % too
    small, and known to 2 %.
    """
    draw = np.random.default_rng(3)
    matrix = draw.normal(size=(60, 15))
    coordinate = np.tile([0, 1], 30)
    matrix[coordinate == 0, 12:], matrix[coordinate == 1, :12] = 0.0, 0.0
    squares = []
    for _ in range(400):
        effort = matrix @ draw.normal(size=15) + TRUE[coordinate] * draw.normal(size=60)
        rows = EffortRows(matrix, effort, coordinate, np.arange(60.0), np.ones(60), ("q1", "q2"), np.zeros(60))
        noise = effort_noise(rows, robust)
        squares.append(noise.std**2 / noise.correlation_length)
    np.testing.assert_allclose(np.mean(squares, axis=0), TRUE**2, rtol=0.12 if robust else 0.068)


def test_rounding_of_parameters_without_effect_is_not_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scaled to length 1 it took part in the fit, so that the deviation depended on the last digits of a filter."""
    columns = np.random.default_rng(0).normal(size=(300, 1, 8)) * [1.0, 1.0, 1e-3, 1.0, 1e3, 1e-16, 1e-15, 1e-13]
    monkeypatch.setattr(module, "stacked_torque_regressor", lambda *_: columns)
    model = jaxmb.build_model(jaxmb.load_machine("slider-crank"))
    record: Any = SimpleNamespace(names=("q1",), effort=np.ones((300, 1)))
    none = np.zeros(0)
    regressor, _, _ = module.equations_at(model, record, none, none, none, np.arange(300))
    assert np.count_nonzero(regressor[:, 0].any(axis=0)) == 5
    assert not regressor[..., 5:].any()


def test_errors_of_the_regressor_shrink_parameters_and_scatter_them() -> None:
    """Columns of variance 1 with errors of 0.2 make parameters too small by 1 - 1 / 1.04, and scatter them by errors of
    the efforts of 0.2 times the length of the parameters. Limits: 4.5 standard errors, and what a bias of second order
    (0.04^2) leaves."""
    clean, draw = rows_of(0), np.random.default_rng(1)
    values = least_norm_solution(clean.regressor, clean.effort)
    effort = clean.regressor @ values

    def with_errors(matrix, sign=1.0, errors=None):
        errors = draw.normal(scale=0.2, size=matrix.shape) if errors is None else errors
        return clean._replace(regressor=matrix + sign * errors, effort=effort), errors

    rows, _ = with_errors(clean.regressor)
    others = []
    for _ in range(20):
        plus, errors = with_errors(rows.regressor)
        others += [plus, with_errors(rows.regressor, -1.0, errors)[0]]
    bias, variance, share = motion_errors(rows, others, np.ones(effort.size))
    fitted = least_norm_solution(rows.regressor, effort)
    size = np.linalg.norm(values)
    limit = 4.5 * 0.2 * size / np.sqrt(effort.size) + 0.04**2 * 2.0 * np.abs(values)
    assert np.all(np.abs(fitted - bias - values) < limit)
    assert np.linalg.norm(fitted - values) > 0.03 * size
    # 20 draws of 8 parameters, half of them told by either coordinate: 80 squares
    np.testing.assert_allclose(variance, (0.2 * size) ** 2, rtol=0.5)
    # nothing else is in these residuals
    assert np.all(share > 0.8)
