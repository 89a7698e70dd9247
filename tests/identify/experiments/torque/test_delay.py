"""A free delay of the torques against the angles: an arm whose equations are written by hand gives it back."""

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.study.study import make_study
from tests.identify.experiments.torque.test_free_gains import motion
from tests.identify.experiments.torque.test_torque_recovery import ARM, FREE, TRUE, efforts_by_hand

RATE = 100.0
DELAY = {"delay.*": {"lower": -0.05, "upper": 0.05}}


def identified(folder, delay_s, noise=0.0, seed=0, free=FREE | DELAY):
    time, draw = np.arange(1001) / RATE, np.random.default_rng(seed)
    q, late = motion(time, 1.0)[0], efforts_by_hand(*motion(time - delay_s, 1.0))
    table = np.stack([time, *q, *(late + noise * draw.normal(size=late.shape))], axis=1)
    np.savetxt(
        folder / "run.csv", table, fmt="%.17g", delimiter=",", header="time_s,a,b,a.torque,b.torque", comments=""
    )
    jaxmb.write_machine(ARM, folder / "arm.toml")
    test = {"kind": "torque", "file": "run.csv", "cutoff_hz": 20.0, "least_speed": 0.02}
    return jaxmb.identify(
        make_study({"machine": "arm.toml", "test": [test], "free": free, "tolerances": "exact"}, "arm", folder)
    )


@pytest.mark.parametrize("delay_s", [0.0034, -0.031])
def test_without_noise(tmp_path, delay_s):
    """The filter takes (0.8 / 20)^8 of the fastest motion, 6e-6 of a rate that 1e-6 s is 5e-6 of."""
    found = identified(tmp_path, delay_s).parameters
    assert found["delay.run"].value == pytest.approx(delay_s, abs=1e-5)
    assert found["delay.run"].unit == "s"
    assert found["inertia.upper.zz"].value == pytest.approx(TRUE["inertia.upper.zz"], rel=1e-3)


def test_deviations_hold(tmp_path):
    true, errors = TRUE | {"delay.run": 0.0034}, []
    for seed in range(10):
        found = identified(tmp_path, 0.0034, 0.05, seed).parameters
        errors.append([(found[name].value - value) / found[name].std for name, value in true.items()])
    # of 14 numbers and 10 draws, four standard deviations of the mean square, with the correlation of as many
    assert np.abs(np.mean(np.square(errors)) - 1.0) < 4.0 * np.sqrt(2.0 / 10)
    assert np.abs(np.mean(errors, axis=0)).max() < 4.0 / np.sqrt(10)
    own = np.array(errors)[:, -1]
    assert 0.3 < np.sqrt(np.mean(own**2)) < 1.7  # within 2.5 standard deviations of that of ten normal numbers


def test_an_unknown_test(tmp_path):
    with pytest.raises(ValueError, match=r"parameter or pattern 'delay.other' does not exist"):
        identified(tmp_path, 0.0, free=FREE | {"delay.other": DELAY["delay.*"]})
