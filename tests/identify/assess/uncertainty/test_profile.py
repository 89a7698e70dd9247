"""Profiles of the cost against SciPy, against the parabola that the standard deviation stands for, and at bounds."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from jaxmb.identify.assess.identify import identify
from jaxmb.identify.assess.uncertainty import nonlinear
from jaxmb.identify.assess.uncertainty.nonlinear import RISE, cost_profile, with_profiles
from jaxmb.identify.fit.refine import least_squares_from
from tests.identify.arm import FREE, frf, loads, study_of


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    return identify(study_of(tmp_path_factory.mktemp("noisy"), frf(noise=0.05, seed=4, noise_log_std=0.05)))


def test_a_profile_is_the_least_cost_at_each_value(noisy):
    """SciPy's trust region over the other three parameters, at the ends of the profile."""
    found = cost_profile(noisy, "damping.b", points=7)
    problem = noisy.study.problem
    i = problem.free.names.index("damping.b")
    best = problem.free.encode(np.array([noisy.parameters[n].value for n in problem.free.names]))
    noise = float(problem.noise_unit)

    def residual(others, value):
        return np.asarray(problem.residual(jnp.asarray(np.insert(others, i, value)))) / noise

    at_best = np.sum(residual(np.delete(best, i), best[i]) ** 2)
    for place in (0, -1):
        solved = scipy.optimize.least_squares(
            residual, np.delete(best, i), args=(np.log(found.values[place]),), xtol=1e-12, ftol=1e-12
        )
        # SciPy's finite differences leave 1e-8 of a cost of about 1000
        assert found.rise[place] == pytest.approx(2.0 * solved.cost - at_best, rel=1e-3, abs=1e-4)


def test_near_the_fit_a_profile_is_its_standard_deviation(noisy):
    """With 5 % noise on 97 lines all parameters are known to some per cent: the cost is nearly a parabola in them."""
    for found in with_profiles(noisy, ["stiffness.*"]).metrics.profiles.values():
        np.testing.assert_allclose(found.rise, found.expected, rtol=0.05, atol=0.05)
        np.testing.assert_allclose(found.interval, found.linear_interval, rtol=2e-3)
        (at_best,) = found.rise[found.values == noisy.parameters[found.name].value]
        assert at_best == pytest.approx(0.0, abs=1e-9)
        assert found.lowest > -1e-6


def test_an_interval_ends_where_the_cost_rises(noisy):
    found = cost_profile(noisy, "damping.a", points=41)
    rise = np.interp(np.log(found.interval), np.log(found.values), found.rise)
    np.testing.assert_allclose(rise, RISE, rtol=0.02)  # between points the rise is taken as linear here


def test_an_ambiguous_parameter_has_the_profile_of_its_cost(noisy):
    """The rise of a profile is that of the cost, also where other fits as good have widened the deviation."""
    plain = cost_profile(noisy, "stiffness.b", points=5)
    wide = {name: p._replace(std_log=3.0) for name, p in noisy.parameters.items()}
    doubted = cost_profile(dataclasses.replace(noisy, parameters=wide), "stiffness.b", points=41)
    at = np.interp(np.log(plain.values[1]), np.log(doubted.values), np.sqrt(np.maximum(doubted.rise, 0.0)))
    assert doubted.values[0] < plain.values[0]
    assert at**2 == pytest.approx(plain.rise[1], rel=0.3, abs=1.0)  # the points are wide apart there


def test_a_side_without_rise_is_open(tmp_path):
    """FRFs with noise of five hundred times their size tell nothing: the cost is flat, and neither side has an end."""
    result = identify(study_of(tmp_path, frf(noise_log_std=500.0)))
    found = cost_profile(result, "damping.a", points=9)
    assert found.interval == (None, None)
    told = with_profiles(result, ["damping.a"], points=5).as_json()["metrics"]["profiles"]["damping.a"]
    assert told["interval"] == [None, None]


def test_the_interval_by_standard_deviation_is_that_of_the_parameter(tmp_path):
    """On a linear scale it is cut at 0, below which there is no damping."""
    free = {"damping.a": FREE["damping.*"] | {"scale": "linear"}}
    result = identify(study_of(tmp_path, frf(noise_log_std=50.0), free=free))
    found = cost_profile(result, "damping.a", points=3)
    assert found.linear_interval == result.parameters["damping.a"].interval_95
    assert found.linear_interval[0] == 0.0


def test_fits_along_a_profile_that_did_not_converge_are_told(noisy, monkeypatch):
    plain = with_profiles(noisy, ["stiffness.b"], points=5)
    assert (plain.remarks, plain.doubts) == (noisy.remarks, noisy.doubts)
    assert "unsettled" not in plain.as_json()["metrics"]["profiles"]["stiffness.b"]

    def stopped(problem, box, u):
        return least_squares_from(problem, box, u)._replace(stationary=False, stalled=False)

    monkeypatch.setattr(nonlinear, "least_squares_from", stopped)
    told = with_profiles(noisy, ["stiffness.b"], points=5)
    assert told.remarks[-1].startswith("the profile of stiffness.b may be too steep: at 4 of 5 values the fit of the ")
    assert told.doubts[-1] == told.remarks[-1]
    assert told.as_json()["metrics"]["profiles"]["stiffness.b"]["unsettled"] == 4


def test_wrong_names_are_refused(noisy, tmp_path):
    with pytest.raises(ValueError, match=r"profile: free parameter or pattern 'stiffness\.q' does not exist"):
        with_profiles(noisy, ["stiffness.q"])
    free = {"stiffness.*": FREE["stiffness.*"]}
    with pytest.raises(NotImplementedError, match="profiles are for nonlinear fits"):
        with_profiles(identify(study_of(tmp_path, loads(), free=free)), ["*"])


def test_intervals_of_logarithms_are_not_symmetric(noisy):
    told = noisy.as_json()["parameters"]["damping.a"]
    low, high = told["interval_95"]
    assert high / told["value"] == pytest.approx(told["value"] / low)
    assert np.log(high / low) == pytest.approx(2 * 1.96 * told["std_log"])
