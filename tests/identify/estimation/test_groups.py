"""What is known only together: against couplings that were put in, and the covariance of the weighted estimate."""

import numpy as np
import pytest

from jaxmb.identify.estimation.identifiability import correlation, groups, identifiability, information_rows


def random_jacobian(seed, rows=40, columns=5):
    random = np.random.default_rng(seed)
    return random.normal(size=(rows, columns)) @ random.normal(size=(columns, columns))


@pytest.mark.parametrize("seed", range(3))
def test_information_rows_tell_what_the_weighted_estimate_tells(seed):
    jacobian = random_jacobian(seed)
    weights = np.random.default_rng(seed).uniform(0.5, 80.0, len(jacobian))
    known = identifiability(np.sqrt(weights)[:, None] * jacobian, weights)
    rows = information_rows(np.sqrt(weights)[:, None] * jacobian, weights)
    assert rows.shape == (5, 5)
    # The condition number is below 1e3, and the covariance is squared.
    np.testing.assert_allclose(np.linalg.inv(rows.T @ rows), known.covariance, rtol=1e-8)
    np.testing.assert_allclose(identifiability(rows, np.ones(5)).std, known.std, rtol=1e-9)


def test_information_rows_keep_what_is_unknown():
    jacobian = random_jacobian(0)
    jacobian[:, 3] = 2.0 * jacobian[:, 1]
    rows = information_rows(jacobian, np.ones(40))
    np.testing.assert_allclose(rows.T @ rows, jacobian.T @ jacobian, rtol=1e-9, atol=1e-9)
    assert np.isinf(identifiability(rows, np.ones(5)).std[[1, 3]]).all()


def test_parameters_that_act_only_together():
    """Two pairs and a triple that act together, one parameter that does not act, and one that is well known."""
    random = np.random.default_rng(0)
    a, b, c, d = (1e3 * random.normal(size=50) for _ in range(4))
    triple = np.stack([c, 2.0 * c, -3.0 * c], axis=1)
    jacobian = np.concatenate([np.stack([a, 2.0 * a, b, -b], axis=1), triple, np.zeros((50, 1)), d[:, None]], axis=1)
    found = groups(jacobian)
    assert [set(group.members) for group in found] == [{0, 1}, {2, 3}, {4, 5, 6}, {7}]
    assert [group.dimension for group in found] == [1, 1, 2, 1]
    assert all(np.isinf(group.std) for group in found)
    # Moving along the direction of a group changes nothing.
    for group in (found[0], found[1], found[3]):
        assert np.linalg.norm(group.parts) == pytest.approx(1.0)
        assert np.linalg.norm(jacobian @ group.parts) < 1e-9
    np.testing.assert_allclose(found[0].parts[:2], np.array([2.0, -1.0]) / np.sqrt(5.0), atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_what_does_not_act_is_alone(seed):
    """A column of zeros is neither coupled to nor correlated with another parameter by rounding."""
    jacobian = random_jacobian(seed) * np.array([1e4, 1.0, 1e2, 1.0, 1.0])
    jacobian[:, 3] = 0.0
    rows = information_rows(jacobian, np.ones(40))
    assert groups(rows)[0].members == (3,)
    for known in (identifiability(jacobian, np.ones(40)), identifiability(rows, np.ones(5))):
        assert np.isinf(known.std).tolist() == [False, False, False, True, False]
        assert not np.delete(correlation(known.covariance)[3], 3).any()


def test_weak_directions_are_principal_axes_of_the_covariance():
    jacobian = random_jacobian(2) * np.array([1.0, 1.0, 0.02, 1.0, 1.0])
    known = identifiability(jacobian, np.ones(40))
    found = groups(jacobian)
    assert found
    for group in found:
        along = np.sqrt(group.parts @ known.covariance @ group.parts)
        assert group.std == pytest.approx(along, rel=1e-9)
        assert group.std > 0.1
    assert sorted((g.std for g in found), reverse=True) == [g.std for g in found]


def test_parameters_of_one_deviation_are_not_mixed():
    """Uncorrelated but for a trifle, and of the same deviation: principal axes alone would mix them evenly."""
    covariance = np.array([[4.0, 1e-3, 0.0], [1e-3, 4.0, 0.0], [0.0, 0.0, 1e-6]])
    found = groups(np.linalg.cholesky(np.linalg.inv(covariance)).T)
    assert sorted(group.members for group in found) == [(0,), (1,)]
    np.testing.assert_allclose([group.std for group in found], 2.0)


def test_a_prior_is_the_measure():
    """Directions are weak where the tests leave more than half of the prior's deviation."""
    prior = np.array([0.05, 0.05])
    rows = np.concatenate([np.diag([1.0 / 0.02, 1.0 / 0.5]), np.diag(1.0 / prior)])
    (weak,) = groups(rows, prior)
    assert weak.members == (1,)
    assert weak.std == pytest.approx((0.05**2 / 0.5**2 + 1.0) ** -0.5)


def test_a_small_part_in_several_directions_without_effect():
    """Two pairs act together but for a millionth of a fifth parameter, which couples with neither."""
    a, b, c = np.linalg.qr(np.random.default_rng(0).normal(size=(50, 3)))[0].T
    found = groups(1e3 * np.stack([a, a + 1.5e-6 * c, b, b + 1.5e-6 * c, c], axis=1))
    assert sorted(sorted(group.members) for group in found) == [[0, 1], [2, 3]]
    assert all(group.dimension == 1 and np.isinf(group.std) for group in found)


@pytest.mark.parametrize(("share", "weak"), [(0.25, 0), (0.6, 1)])
def test_a_parameter_with_a_prior_beside_one_without(share, weak):
    """The limit of each is that of its verdict: half of the prior's standard deviation, and 10 % without a prior."""
    rows, prior_std = np.diag([1.0 / (0.2 * share), 1.0 / 0.02]), np.array([0.2, np.inf])
    found = groups(rows, prior_std)
    assert identifiability(rows, np.ones(2), prior_std).verdict.count("weak") == len(found) == weak
    assert all(group.members == (0,) for group in found)
