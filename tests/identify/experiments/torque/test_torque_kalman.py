"""Torque tests whose motion is found by a causal Kalman filter, from an encoder alone and with other sensors."""

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


def test_a_gyroscope_makes_causal_accelerations_usable(tmp_path):
    """With the encoder alone accelerations lag and scatter, and inertias are off by a percent; a
    gyroscope of 0.01 rad/s takes most of that away, an accelerometer more."""
    alone, result = errors(tmp_path, {"position_std": 1e-3})
    settings = {"position_std": 1e-3, "velocity_std": 1e-2}
    with_gyro, _ = errors(tmp_path, settings, velocity_std=1e-2)
    both, _ = errors(tmp_path, settings | {"acceleration_std": 0.5}, velocity_std=1e-2, acceleration_std=0.5)
    assert np.linalg.norm(with_gyro) < 0.5 * np.linalg.norm(alone) < 0.02
    assert np.linalg.norm(both) < 0.3 * np.linalg.norm(alone)
    assert result.study.fitted[0].source.time_s[-1] == 4.0  # causal: nothing is left out at the end


def test_a_given_density_is_used(tmp_path):
    """One so small that the filter lags behind: the parameters are off by several percent."""
    slow, _ = errors(tmp_path, {"position_std": 1e-3, "jerk_density": {"q1": 10.0}})
    assert np.linalg.norm(slow) > 0.04


@pytest.mark.parametrize(
    ("kalman", "sensors", "told"),
    [
        ({"position_std": {"a": 1e-3}}, {}, "kalman: position_std: found none for 'b'"),
        ({"position_std": {"z": 1e-3}}, {}, "kalman: position_std: coordinate 'z' does not exist"),
        ({"position_std": 1e-3}, {"velocity_std": 0.1}, "kalman: velocity_std is not given"),
    ],
)
def test_wrong_settings(tmp_path, kalman, sensors, told):
    test = {key: value for key, value in TEST.items() if key != "cutoff_hz"}
    with pytest.raises(ValueError, match=told):
        identified_arm(tmp_path, test | {"kalman": kalman, "simulate": TEST["simulate"] | sensors})
    with pytest.raises(ValueError, match="kalman and cutoff_hz are given, expected one of them"):
        identified_arm(tmp_path, TEST | {"kalman": {"position_std": 1e-3}})
