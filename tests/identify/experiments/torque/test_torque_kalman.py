"""Torque tests whose motion is found by a Kalman smoother, from an encoder alone and with other sensors."""

import numpy as np
import pytest

import jaxmb
from tests.identify.experiments.torque.test_torque_recovery import TEST, identified as identified_arm

HOW = {
    "duration_s": 4.0, "rate_hz": 500.0, "base_hz": 0.5, "angle_std": 1e-3, "torque_std": 1e-3,
    "motion": {"q1": {"speed": 6.0, "sine": [3.0, 1.0], "cosine": [1.0]}},
}  # fmt: skip
PRINTED = ("inertia.crank.zz", "first_moment.crank.x", "inertia.coupler.zz", "first_moment.coupler.x")
"""Base parameters of Table 2 of Pyrhonen et al. that are not 0."""
FREE = {name: {"lower": -0.1, "upper": 0.1} for name in (*PRINTED, "first_moment.crank.y", "first_moment.coupler.y")}


def errors(folder, kalman, **sensors):
    """Relative errors of the four base parameters, for errors of the motion above all, and the result."""
    test = {"kind": "torque", "simulate": HOW | sensors, "kalman": kalman}
    data = {"machine": "slider-crank", "test": [test], "free": FREE}
    result = jaxmb.identify(jaxmb.make_study(data, "slider-crank", folder))
    base = {row.name: row for row in result.metrics.tests["torque"].base}
    return np.array([base[name].value / base[name].true - 1.0 for name in PRINTED]), result


def test_no_lag_biases_the_parameters(tmp_path):
    """A filter alone lags, and inertias are off by a percent; behind the smoother an encoder of 1 mrad suffices. Its
    errors are more than those of the torques, which leaves the standard deviations unknown."""
    for sensors in ({}, {"velocity_std": 1e-2}):
        found, result = errors(tmp_path, {"position_std": 1e-3} | sensors, **sensors)
        assert np.linalg.norm(found) < 0.005
        base = {row.name: row for row in result.metrics.tests["torque"].base}
        assert all(np.isinf(base[name].std) for name in PRINTED)
        assert all(p.interval_95 is None and p.identifiable == "no" for p in result.parameters.values())
        assert result.status.startswith("no parameter identified: test 1: errors of the motion of q1 are")
        test = result.study.fitted[0].test
        # torques have 1e-3 Nm of noise, and what 1 mrad does to them is more
        assert np.min(test.std) > 1.3e-3


def test_errors_of_the_motion_beside_larger_ones_of_the_torques(tmp_path):
    """What errors of the motion do is in the standard deviations: four errors in units of these, of which one above 3.5
    has a chance of 0.2 %."""
    _, result = errors(tmp_path, {"position_std": 1e-3}, torque_std=1e-2)
    base = {row.name: row for row in result.metrics.tests["torque"].base}
    assert max(abs(base[name].value - base[name].true) / base[name].std for name in PRINTED) < 3.5
    assert not any("errors of the motion" in doubt for doubt in result.doubts)


def test_a_given_density_is_used(tmp_path):
    """One so small that the smoother does not follow: the parameters are off by several percent."""
    slow, _ = errors(tmp_path, {"position_std": 1e-3, "jerk_density": {"q1": 1e-4}})
    assert np.linalg.norm(slow) > 0.04


@pytest.mark.parametrize(
    ("kalman", "sensors", "told"),
    [
        ({"position_std": {"a": 1e-3}}, {}, "kalman: position_std: found none for 'b'"),
        ({"position_std": {"z": 1e-3}}, {}, "kalman: position_std: coordinate 'z' does not exist"),
        ({"position_std": 1e-3}, {"velocity_std": 0.1}, "kalman: velocity_std is not given"),
        ({"position_std": 1e-3, "velocity_std": 0.1}, {}, "velocity_std is given, and no velocity was recorded"),
    ],
)
def test_wrong_settings(tmp_path, kalman, sensors, told):
    test = {key: value for key, value in TEST.items() if key != "cutoff_hz"}
    with pytest.raises(ValueError, match=told):
        identified_arm(tmp_path, test | {"kalman": kalman, "simulate": TEST["simulate"] | sensors})
    with pytest.raises(ValueError, match="kalman and cutoff_hz are given, expected one of them"):
        identified_arm(tmp_path, TEST | {"kalman": {"position_std": 1e-3}})
