"""What a result says of itself: intervals, predictions, and a short line."""

import dataclasses

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.assess.result import Outcome, Parameter, with_interval
from jaxmb.studies import study_data


@pytest.fixture(scope="module")
def result():
    return jaxmb.identify(jaxmb.load_study("validation-3r"))


def test_intervals_of_logarithms_are_unsymmetric():
    p = Parameter(100.0, 50.0, 0.5, "N m/rad", 1.0, 1e4, 10.0, "weak")
    low, high = with_interval("stiffness.a", p, logarithmic=True).interval_95
    assert low * high == pytest.approx(100.0**2)
    assert with_interval("inertia.a.xx", p, logarithmic=False).interval_95 == pytest.approx((2.0, 198.0))
    wide = p._replace(std=60.0)
    assert with_interval("stiffness.a", wide, logarithmic=False).interval_95[0] == 0.0
    assert with_interval("inertia.a.xx", wide, logarithmic=False).interval_95[0] < 0.0
    unknown = p._replace(std=np.inf, std_log=np.inf)
    assert with_interval("stiffness.a", unknown, logarithmic=True).interval_95 is None


def test_what_is_needed_decides(result):
    """A study that needs less than the standard deviations it gets says "weak" and "no" of the same values."""
    std = {name: p.std_log for name, p in result.parameters.items()}
    data = study_data("validation-3r")
    data["free"] = {
        name: {"lower": 0.1 * p.value, "upper": 10.0 * p.value, "needed": need * std[name]}
        for (name, p), need in zip(result.parameters.items(), (0.5, 2.0, 0.05, 0.5, 2.0, 0.05), strict=True)
    }
    found = jaxmb.identify(jaxmb.make_study(data, "needs")).parameters
    assert [found[name].identifiable for name in result.parameters] == ["weak", "yes", "no"] * 2


def test_what_is_predicted_and_what_is_left(result):
    (test,) = result.study.tests
    predicted = result.predicted(test.name)
    np.testing.assert_allclose(predicted, test.predict(test.view(result.model)))
    left = result.residual(test.name)
    assert left.shape == (test.rows,)
    assert np.abs(left).max() < 1e-6
    with pytest.raises(ValueError, match=r"test 'miling posture'.*milling posture"):
        result.predicted("miling posture")
    with pytest.raises(ValueError, match="test"):
        result.residual(test.name, role="check")


def test_a_result_in_a_line(result):
    line = repr(result)
    assert len(line) < 300
    for part in ("validation-3r", "converged", "6 parameters: 6 yes", "least known", "std "):
        assert part in line
    long = dataclasses.replace(result, status="not converged after 3 rounds: " + 500 * "x")
    assert len(repr(long)) < 400


def test_a_status_begins_with_its_outcome(result):
    assert result.converged
    stopped = dataclasses.replace(result, status="not converged after 3 rounds: the cost still falls")
    assert stopped.outcome is Outcome.NOT_CONVERGED
    assert not stopped.converged
