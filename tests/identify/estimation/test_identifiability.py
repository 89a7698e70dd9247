"""What is known of a parameter: against closed forms and Monte-Carlo."""

import numpy as np
import pytest

from jaxmb.identify.estimation.identifiability import identifiability


def random_jacobian(seed, rows=40, columns=5):
    random = np.random.default_rng(seed)
    return random.normal(size=(rows, columns)) @ random.normal(size=(columns, columns))


@pytest.mark.parametrize("seed", range(4))
def test_closed_form(seed):
    jacobian = random_jacobian(seed)
    known = identifiability(jacobian, np.ones(40))
    covariance = np.linalg.inv(jacobian.T @ jacobian)
    # Both lose the square of the condition number, here below 1e3.
    np.testing.assert_allclose(known.covariance, covariance, rtol=1e-8, atol=1e-10 * covariance.max())
    np.testing.assert_allclose(known.std, np.sqrt(np.diag(covariance)), rtol=1e-8)
    np.testing.assert_allclose(known.singular_values, np.linalg.svd(jacobian, compute_uv=False), rtol=1e-10)
    # A unit step along a direction changes the prediction by its singular value.
    moved = np.linalg.norm(jacobian @ known.directions, axis=0)
    np.testing.assert_allclose(moved, known.singular_values, rtol=1e-10)


def test_units_do_not_matter():
    """Columns of very different size, as stiffness beside mass on linear scales."""
    jacobian, units = random_jacobian(1), np.array([1e8, 1e-7, 1.0, 1e3, 1e-5])
    plain, scaled = identifiability(jacobian, np.ones(40)), identifiability(jacobian * units, np.ones(40))
    np.testing.assert_allclose(scaled.std * units, plain.std, rtol=1e-9)


def test_weights_against_monte_carlo():
    """The estimate of a linear problem with rows scaled by sqrt(W), its errors scaled likewise.

    Weights of a thousand and more make (J^T J)^-1 wrong by a large factor, so that the test can tell the two apart.
    """
    random = np.random.default_rng(5)
    plain, weights = random_jacobian(2), np.where(np.arange(40) % 8 == 0, 1000.0, 0.5)
    jacobian = np.sqrt(weights)[:, None] * plain
    draws = 20_000
    errors = np.sqrt(weights)[:, None] * random.normal(size=(40, draws))
    estimates = np.linalg.lstsq(jacobian, errors, rcond=None)[0]
    known = identifiability(jacobian, weights)
    # The variance of n draws is itself known to sqrt(2 / n) = 1 %: five times that.
    np.testing.assert_allclose(estimates.var(axis=1), known.std**2, rtol=0.05)
    correlation = known.covariance / np.outer(known.std, known.std)
    np.testing.assert_allclose(np.corrcoef(estimates), correlation, atol=0.05)
    unweighted = np.sqrt(np.diag(np.linalg.inv(jacobian.T @ jacobian)))
    assert (known.std > 2.0 * unweighted).all()
    # No weighting can do better than the right one, which is none.
    assert (known.std >= identifiability(plain, np.ones(40)).std).all()


def test_a_zero_weight_leaves_its_row_out():
    jacobian, weights = random_jacobian(3), np.where(np.arange(40) < 10, 0.0, 1.0)
    with_rows = identifiability(np.sqrt(weights)[:, None] * jacobian, weights)
    np.testing.assert_allclose(with_rows.std, identifiability(jacobian[10:], np.ones(30)).std, rtol=1e-9)


def test_what_does_not_act_is_not_known():
    jacobian = random_jacobian(4)
    jacobian[:, 2] = 0.0
    known = identifiability(jacobian, np.ones(40))
    assert np.isinf(known.std[2])
    assert known.verdict[2] == "no"
    others = [0, 1, 3, 4]
    np.testing.assert_allclose(known.std[others], identifiability(jacobian[:, others], np.ones(40)).std, rtol=1e-9)


def test_what_acts_only_together_is_not_known_apart():
    """Two springs in parallel: their sum is known and neither of them."""
    jacobian = random_jacobian(4)
    jacobian[:, 3] = 2.0 * jacobian[:, 1]
    known = identifiability(jacobian, np.ones(40))
    assert np.isinf(known.std[[1, 3]]).all()
    assert [known.verdict[i] for i in (1, 3)] == ["no", "no"]
    assert np.isfinite(known.std[[0, 2, 4]]).all()
    np.testing.assert_allclose(np.abs(known.directions[:, -1]), [0, 2 / np.sqrt(5), 0, 1 / np.sqrt(5), 0], atol=1e-10)


def test_nothing_acts():
    known = identifiability(np.zeros((4, 2)), np.ones(4))
    assert np.isinf(known.std).all()
    assert known.verdict == ("no", "no")


def test_fewer_rows_than_parameters():
    """One row fixes one direction and no parameter, unless it lies along it."""
    known = identifiability(np.array([[1.0, 1.0, 0.0]]), np.ones(1))
    assert np.isinf(known.std).all()
    np.testing.assert_allclose(known.singular_values, [np.sqrt(2.0), 0.0, 0.0])
    np.testing.assert_allclose(known.directions @ known.directions.T, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(identifiability(np.array([[0.0, 4.0]]), np.ones(1)).std, [np.inf, 0.25])


def test_verdicts():
    std = np.array([0.05, 0.2, 2.0])
    assert identifiability(np.diag(1.0 / std), np.ones(3)).verdict == ("yes", "weak", "no")
    # With a prior, what counts is how much the tests add to it.
    prior = np.array([0.2, 0.2, 0.2])
    data = np.diag([1.0 / 0.05, 1.0 / 0.2, 1.0 / 2.0])
    known = identifiability(np.vstack([data, np.diag(1.0 / prior)]), np.ones(6), prior)
    np.testing.assert_allclose(known.std, (1.0 / np.array([0.05, 0.2, 2.0]) ** 2 + 25.0) ** -0.5)
    assert known.verdict == ("yes", "weak", "no")


def test_verdicts_by_what_is_needed():
    """A stated need comes before 10 % and before the prior; "weak" ends at ten times it."""
    std = np.array([0.05, 0.05, 0.3, 3.1])
    needed = np.array([0.04, np.nan, 0.31, 0.3])
    assert identifiability(np.diag(1.0 / std), np.ones(4), None, needed).verdict == ("weak", "yes", "yes", "no")
    known = identifiability(np.diag(1.0 / std), np.ones(4), np.full(4, 0.06), needed)
    assert known.verdict == ("weak", "weak", "yes", "no")
    assert known.with_std(np.array([0.03, 0.02, 0.4, 0.2])).verdict == ("yes", "yes", "weak", "yes")
