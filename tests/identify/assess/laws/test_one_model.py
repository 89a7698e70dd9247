"""Whether one model does: probabilities under one model, against regression done otherwise, and what is told."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.stats import chi2, kstest

from jaxmb.identify.assess.identify import identify
from jaxmb.identify.assess.laws import law_problem
from jaxmb.identify.assess.laws.one_model import (
    OwnValue,
    TestResidual,
    agreement,
    blocks,
    holm,
    one_model,
    one_model_text,
    relative_columns,
    variation_text,
)
from jaxmb.identify.fit.problem import final_state
from tests.identify.arm import BRIEF, TRUTH, estimate_at, frf, loads, shapes, study_of

POSTURES = (-0.9, -0.3, 0.5, 1.1)
U = np.log([5e4, 9e3, 25.0, 4.0])
DRAWS = 200
CHANCE = 1e-3
"""Probability below which a comparison of distributions fails: once in a thousand for a right one."""


def linear(study):
    """Jacobian in units of the noise and row weights at the true parameters."""
    _, jacobian, weights = final_state(study.problem, jnp.asarray(U))
    return np.asarray(jacobian), np.asarray(weights)


def probabilities(study, draw_of, draws=DRAWS):
    """Probabilities of all parameters together, of each, and of chi2, over draws of the residual."""
    jacobian, weights = linear(study)
    rng = np.random.default_rng(0)
    found = []
    for _ in range(draws):
        # The fit stands anywhere nearby: where weights steer it, it is not at the optimum of chi2.
        residual = np.sqrt(weights) * draw_of(rng, weights.size) + jacobian @ rng.normal(scale=0.01, size=U.size)
        told = agreement(blocks(study, residual, jacobian, weights), relative_columns(study, U), study.free.names)
        found.append([told.separate.p, *(p.p for p in told.parameters), np.nan if told.p is None else told.p])
    return np.array(found).T


@pytest.mark.parametrize("weights", [None, {"peaks": 80, "half_width_lines": 2, "elsewhere": 0.5}])
def test_under_one_model_probabilities_are_uniform(tmp_path, weights):
    tests = [frf(b=b, weights=weights) for b in POSTURES]
    for p in probabilities(study_of(tmp_path, *tests), lambda rng, rows: rng.normal(size=rows)):
        assert kstest(p, "uniform").pvalue > CHANCE


def test_noise_that_is_larger_than_stated_is_no_disagreement(tmp_path):
    """Five times: the scatter between lines, known to a tenth, replaces the stated noise."""
    study = study_of(tmp_path, *(frf(b=b) for b in POSTURES[:2]))
    p = probabilities(study, lambda rng, rows: 5.0 * rng.normal(size=rows), draws=50)[0]
    assert np.mean(p < 0.01) < 0.1  # 0.01 with the true noise, 1 with the stated one


def test_with_errors_of_machine_and_tests_probabilities_are_uniform(tmp_path):
    """Errors common to all tests, drawn from their tolerances."""
    study, rng = study_of(tmp_path, *(frf(b=b) for b in POSTURES)), np.random.default_rng(3)
    jacobian, weights = linear(study)
    errors = 0.3 * rng.normal(size=(weights.size, 6))
    found = []
    for _ in range(DRAWS):
        residual = np.sqrt(weights) * rng.normal(size=weights.size) + errors @ rng.normal(size=6)
        told = agreement(
            blocks(study, residual, jacobian, weights, errors.__getitem__), relative_columns(study, U), study.free.names
        )
        found.append([told.separate.p, *(p.p for p in told.parameters), told.p])
    for p in np.array(found).T:
        assert kstest(p, "uniform").pvalue > CHANCE


def test_with_modes_beside_frfs_probabilities_are_uniform(tmp_path):
    """Scale and phase of a shape are no degrees of freedom, and no residual of content is one where none is named."""
    study = study_of(tmp_path, *(frf(b=b) for b in POSTURES[:2]), shapes(b=0.9), shapes(b=-0.5))
    _, weights = linear(study)
    # Errors of a shape along it do not show: drawn where residuals can be, in the space the shape leaves.
    free = np.ones(weights.size, dtype=bool)
    first = sum(t.rows for t in study.tests[:2])
    for test in study.tests[2:]:
        free[first + 4 : first + 6] = False  # content of two modes
        first += test.rows

    def draw(rng, rows):
        residual = np.where(free, rng.normal(size=rows), 0.0)
        at = sum(t.rows for t in study.tests[:2])
        for test in study.tests[2:]:
            part = residual[at : at + test.rows].reshape(-1, 2)  # [row, mode]
            for m in range(2):
                shape = np.asarray(test.shape[m])
                direction = shape / np.linalg.norm(shape)
                error = part[3:7, m] + 1j * part[7:11, m]
                error -= direction * (direction.conj() @ error)
                part[3:7, m], part[7:11, m] = error.real, error.imag
            at += test.rows
        return residual

    for p in probabilities(study, draw):
        assert kstest(p, "uniform").pvalue > CHANCE


def test_with_noise_to_be_estimated_probabilities_are_not_too_small(tmp_path):
    """Noise of any size, alike over several lines: as many false alarms as promised or fewer."""
    study = study_of(tmp_path, *(frf(b=b, noise_log_std="estimate") for b in POSTURES))
    shape = (len(POSTURES) * 2, 97, 4)

    def draw(rng, rows):
        white = rng.normal(size=shape)
        for line in range(1, shape[1]):
            white[:, line] = 0.6 * white[:, line - 1] + 0.8 * white[:, line]
        return 3.0 * white.ravel()[:rows]

    *parts, overall = probabilities(study, draw)
    assert np.isnan(overall).all()  # a noise that is not known cannot be exceeded
    for p in parts:
        assert kstest(p, "uniform", alternative="greater").pvalue > CHANCE


def test_drops_are_those_of_regressions():
    """The drop of chi2 is that of a least-squares fit with a column for each test instead of the common one."""
    rng = np.random.default_rng(1)
    jacobians = [rng.normal(size=(12, 3)) for _ in range(4)]
    jacobians[2][:, 1] = 0.0  # the third test does not see the second parameter
    residuals = [rng.normal(size=12) + 3.0 * t * j[:, 0] for t, j in enumerate(jacobians)]
    found = agreement(
        [
            TestResidual(str(t), r, j, 12, np.inf, 1.0, np.zeros((12, 0)))
            for t, (r, j) in enumerate(zip(residuals, jacobians, strict=True))
        ],
        np.ones(3),
        "abc",
    )
    common, residual = np.concatenate(jacobians), np.concatenate(residuals)

    def left(matrix):
        return float(np.sum((residual - matrix @ np.linalg.lstsq(matrix, residual)[0]) ** 2))

    assert found.chi2 == pytest.approx(left(common), rel=1e-9)
    assert found.degrees == 45
    for i, drop in enumerate(found.parameters):
        apart = np.column_stack([common, block_diag(*(j[:, [i]] for j in jacobians))])
        assert drop.drop == pytest.approx(found.chi2 - left(apart), rel=1e-9)
        assert drop.degrees == (2 if i == 1 else 3)
        assert drop.p == pytest.approx(chi2.sf(drop.drop, drop.degrees), rel=1e-9)
    assert found.separate.drop == pytest.approx(found.chi2 - left(block_diag(*jacobians)), rel=1e-9)
    assert found.separate.degrees == 11 - 3


def test_the_spread_is_right_on_average():
    """tau^2 of DerSimonian and Laird: without bias, however unlike the tests are."""
    rng = np.random.default_rng(2)
    size = [0.3, 1.0, 3.0, 2.0, 0.5]
    squares = []
    for _ in range(2000):
        jacobians = [s * rng.normal(size=(6, 1)) for s in size]
        residuals = [rng.normal(size=6) - j[:, 0] * rng.normal(scale=2.0) for j in jacobians]
        pairs = enumerate(zip(residuals, jacobians, strict=True))
        found = agreement(
            [TestResidual(str(t), r, j, 6, np.inf, 1.0, np.zeros((6, 0))) for t, (r, j) in pairs], np.ones(1), "a"
        )
        squares.append(found.parameters[0].spread ** 2)
    error = np.std(squares) / np.sqrt(len(squares))
    assert np.mean(squares) == pytest.approx(4.0, abs=4.0 * error)


def test_probabilities_are_corrected_for_their_number():
    """Holm's procedure on an example worked by hand."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])


def differing(change, seed=0):
    """FRFs at four postures, stiffness.b another in each."""
    tests = []
    for k, b in enumerate(POSTURES):
        test = frf(b=b, noise=0.01, seed=100 * seed + k)
        factor = np.exp(change * (k - 1.5))
        test["simulate"] = test["simulate"] | {"parameters": {"stiffness.b": 9e3 * factor}}
        tests.append(test)
    return tests


def test_the_parameter_that_differs_is_named(tmp_path, monkeypatch):
    result = identify(study_of(tmp_path, *differing(0.1), **BRIEF))
    told = result.metrics["one_model"]
    assert not told["does"]
    assert told["residual_over_noise"] > 2.0
    first = told["parameters"][0]
    assert first["parameter"] == "stiffness.b"
    assert first["leaves"] == pytest.approx(1.0, abs=0.06)  # 4 / sqrt(2 rows), rows 3104
    assert first["spread"] == pytest.approx(np.std(0.1 * np.arange(4), ddof=1), rel=0.02)  # fitted with noise
    assert any("stiffness.b would have to differ by 13 % between them, which leaves" in text for text in result.doubts)
    assert "unsettled" not in first
    # and where the fits with values of their own end before
    fit = law_problem._fit
    monkeypatch.setattr(law_problem, "_fit", lambda *given: (*fit(*given)[:2], False))
    text = one_model_text(told_of(result.study), result.study, TRUTH)
    assert text.endswith("times the noise (that fit did not converge)")


def told_of(study):
    """`metrics.one_model` about the true mean parameters, where a fit would end but for the noise."""
    return one_model(estimate_at(study, U))


def test_a_difference_of_a_value_near_zero_has_its_unit(tmp_path):
    """4 mrad about a mean of 0.01 mrad, and about 0, where the spread is over the width of the bounds."""
    study = study_of(tmp_path, frf(), free={"zero.b": {"lower": -0.02, "upper": 0.02}})
    for value, spread in ((1e-5, 400.0), (0.0, 0.1)):
        line = OwnValue(drop=1.0, degrees=1, p=0.0, spread=spread, parameter="zero.b", p_holm=0.0, residual=None)
        assert variation_text(line, study, value) == "0.004 rad"


def test_a_small_difference_is_measured_to_first_order(tmp_path):
    """A spread of 0.3 %, which a residual of 1.0 times the noise hides, is still seen for this parameter."""
    first = told_of(study_of(tmp_path, *differing(0.0025))).parameters[0]
    assert first.parameter == "stiffness.b"
    assert first.spread == pytest.approx(np.std(0.0025 * np.arange(4), ddof=1), rel=0.15)  # noise of 0.04 % a test


def test_where_one_model_does_nothing_is_said(tmp_path):
    """FRFs and deflections of one machine; and a single test cannot disagree with itself."""
    study = study_of(tmp_path, *differing(0.0), loads())
    found = told_of(study)
    assert found.is_consistent
    assert found.p > CHANCE
    assert one_model_text(found, study, TRUTH) == ""
    assert [line.drop for line in found.parameters] == sorted((x.drop for x in found.parameters), reverse=True)
    assert told_of(study_of(tmp_path, frf())) is None
