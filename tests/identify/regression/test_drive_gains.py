"""Gains of drives: currents of a simulated arm with known gains give them back, and intervals hold them."""

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.regression.torque_regressor import CurrentRun
from tests.identify.experiments.torque.test_torque_recovery import ARM, TRUE

GAINS = {"a": 12.5, "b": -3.2}
LOAD = {"name": "load", "frame": "fore", "mass": 1.5, "center_of_mass": [0.3, 0.05, 0.0],
        "inertia_products": {"xx": 0.001, "yy": 0.002, "zz": 0.003}}  # fmt: skip


@pytest.fixture(scope="module")
def model():
    data = ARM.model_dump(exclude_unset=True) | {"payload": [LOAD]}
    return jaxmb.build_model(jaxmb.Machine.model_validate(data))


@pytest.fixture(scope="module")
def runs(model):
    """With and without the load, by the equations of a machine that has other parameters than the model."""
    limits = {"a": {"speed": 3.0}, "b": {"speed": 3.0}}
    motion = jaxmb.exciting_motion(ARM, list(TRUE), limits=limits, base_hz=0.2, starts=1, steps=0)
    q, qd, qdd = motion.states(np.arange(0.01, 5.0, 0.01))
    names = jaxmb.regressor_names(model)
    Y = jaxmb.stacked_torque_regressor(model, q, qd, qdd)
    found = []
    for without in ((), ("load",)):
        true = jaxmb.parameters(model) | TRUE
        true |= {name: 0.0 for name in names if name.endswith(".load") or ".load." in name} if without else {}
        effort = Y @ np.array([true[name] for name in names])
        found.append(CurrentRun(q, qd, qdd, effort / list(GAINS.values()), without))
    return found


def test_exact_currents_give_exact_gains(model, runs):
    found = jaxmb.drive_gains(model, runs, "load")
    for name, gain in GAINS.items():
        assert found[name].gain == pytest.approx(gain, rel=1e-6)


def test_no_bias_and_deviations_that_hold(model, runs):
    """60 draws of noise of 5 % of the current: errors over their deviations have mean 0 and mean square 1."""
    draw = np.random.default_rng(0)
    size = [0.05 * np.std(run.signal, axis=0) for run in runs]
    errors = []
    for _ in range(60):
        noisy = [run._replace(signal=run.signal + s * draw.normal(size=run.signal.shape))
                 for run, s in zip(runs, size, strict=True)]  # fmt: skip
        found = jaxmb.drive_gains(model, noisy, "load")
        errors.append([(found[name].gain - gain) / found[name].std for name, gain in GAINS.items()])
    # four standard deviations of either statistic of 120 normal numbers
    assert abs(np.mean(errors)) < 4.0 / np.sqrt(120)
    assert abs(np.mean(np.square(errors)) - 1.0) < 4.0 * np.sqrt(2.0 / 120)


def test_motors_that_turn_several_joints(model, runs):
    """tau = N^T (gain i): the same efforts by other motors, exact and with noise of 5 % in 60 draws."""
    ratio, gains = {"one": {"a": 60.0}, "two": {"a": 32.0, "b": 45.0}}, {"one": 0.2, "two": -0.07}
    N = np.array([[60.0, 0.0], [32.0, 45.0]])
    efforts = [run.signal * list(GAINS.values()) for run in runs]
    currents = [np.linalg.solve(N.T, effort.T).T / list(gains.values()) for effort in efforts]
    coupled = [run._replace(signal=signal) for run, signal in zip(runs, currents, strict=True)]
    found = jaxmb.drive_gains(model, coupled, "load", ratio=ratio)
    assert list(found) == ["one", "two"]
    for name, gain in gains.items():
        assert found[name].gain == pytest.approx(gain, rel=1e-6)
    draw, errors = np.random.default_rng(0), []
    for _ in range(60):
        noisy = [
            run._replace(signal=run.signal + 0.05 * run.signal.std(axis=0) * draw.normal(size=run.signal.shape))
            for run in coupled
        ]
        found = jaxmb.drive_gains(model, noisy, "load", ratio=ratio)
        errors.append([(found[name].gain - gain) / found[name].std for name, gain in gains.items()])
    assert abs(np.mean(errors)) < 4.0 / np.sqrt(120)
    assert abs(np.mean(np.square(errors)) - 1.0) < 4.0 * np.sqrt(2.0 / 120)
    with pytest.raises(ValueError, match="ratio: 1 drives do not determine a, b"):
        jaxmb.drive_gains(model, coupled, "load", ratio={"one": {"a": 60.0}})
    with pytest.raises(ValueError, match="ratio of 'one': coordinate 'c' does not exist"):
        jaxmb.drive_gains(model, coupled, "load", ratio={"one": {"c": 60.0}, "two": {"b": 1.0}})


def test_what_cannot_be_told(model, runs):
    with pytest.raises(ValueError, match="the gain of 'a' is not identifiable: the torque of payload 'load'"):
        jaxmb.drive_gains(model, runs[:1], "load")
    with pytest.raises(ValueError, match="payload 'lod'"):
        jaxmb.drive_gains(model, runs, "lod")
    with pytest.raises(ValueError, match="signal of run 1 has shape"):
        jaxmb.drive_gains(model, [runs[0]._replace(signal=runs[0].signal[:, :1]), runs[1]], "load")
    left_out = [run._replace(signal=np.where([True, False], np.nan, run.signal)) for run in runs]
    assert list(jaxmb.drive_gains(model, left_out, "load")) == ["b"]


def test_wrong_runs(model, runs):
    for changed, told in (
        ([], "runs is empty"),
        ([runs[0], runs[1]._replace(without=("laod",))], "payload that run 2 is without 'laod' does not exist"),
        ([runs[0], runs[1]._replace(signal=np.where(np.arange(len(runs[1].q))[:, None] == 3, np.nan, runs[1].signal))],
         "signal of run 2: 'a' is NaN at sample 3, expected all or none"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=told):
            jaxmb.drive_gains(model, changed, "load")
    with pytest.raises(ValueError, match="unknown parameter 'mas"):
        jaxmb.drive_gains(model, runs, "load", unknown=["mas.*"])
