"""The cut-off that is searched costs nothing that matters, however long the record, and whatever outliers there are."""

import dataclasses

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.experiments.torque.effort_rows import RowSettings, highest_cutoff, recorded_path
from jaxmb.identify.study.format.torque_format import SimulateTorques
from jaxmb.identify.study.reading.motions import simulated_motion
from tests.identify.experiments.torque.test_torque_recovery import ARM, TRUE, identified

SLOW = {"a": {"sine": [0.4, 0, 0.3, 0, 0, 0, 0.1, 0.1], "cosine": [0.1, 0.2, 0.05]},
        "b": {"sine": [0.3, 0, -0.2, 0, 0, 0, 0.1, 0.1], "cosine": [-0.1, 0.1, 0.08, 0.03]}}  # fmt: skip
HOW = {"duration_s": 100.0, "rate_hz": 400.0, "base_hz": 0.1, "torque_std": 0.3, "motion": SLOW, "noise_seed": 1}
FREE = {name: {"lower": -9.0, "upper": 9.0} for name in TRUE if name.split(".")[0] in ("inertia", "first_moment")}


def test_long_records(tmp_path):
    """The motion has up to 0.8 Hz and angles have no noise: behind a cut-off of 10 Hz nothing of it is lost, and from
    the same samples the same is found. A parameter that is off by 0.3 standard deviations raises chi^2 by 0.1."""
    test = {"kind": "torque", "simulate": HOW, "from_s": 3.0, "to_s": 97.0}
    searched, wide = (identified(tmp_path, test | how, free=FREE) for how in ({}, {"cutoff_hz": 10.0}))
    off = {name: (p.value - wide.parameters[name].value) / p.std for name, p in searched.parameters.items()}
    assert max(map(abs, off.values())) < 0.3, off


def test_outliers():
    """One sample in fifty is off by a thousand times the noise, beside which the noise of angles behind a high cut-off
    is nothing: a robust search ends where it ends without them."""
    model = jaxmb.build_model(ARM)
    how = SimulateTorques.model_validate(
        HOW | {"duration_s": 40.0, "rate_hz": 100.0, "torque_std": 0.003, "angle_std": 1e-5}
    )
    start = np.zeros(2)
    record = simulated_motion(how, model, start, 0)
    path = recorded_path(model, record, start)
    rng = np.random.default_rng(0)
    odd = rng.random(record.effort.shape) < 0.02
    spoilt = dataclasses.replace(record, effort=record.effort + odd * rng.normal(scale=3.0, size=odd.shape))
    clean = highest_cutoff(model, record, path, RowSettings())
    assert highest_cutoff(model, spoilt, path, RowSettings()) > 1.2 * clean
    assert highest_cutoff(model, spoilt, path, RowSettings(), robust=True) == pytest.approx(clean)


def test_noise_of_angles_and_motion_bound_it():
    """Behind the highest cut-offs accelerations are noise, behind the lowest the motion is lost: the one that is found
    predicts as well as the best, and half of it or three times it worse or no better. Held-out samples near rest, where
    the sign of the rate is noise, do not count."""
    model = jaxmb.build_model(ARM)
    start, errors = np.zeros(2), {}
    for angle_std in (1e-3, 1e-5):
        how = HOW | {"duration_s": 40.0, "rate_hz": 100.0, "torque_std": 0.03, "angle_std": angle_std}
        record = simulated_motion(SimulateTorques.model_validate(how), model, start, 0)
        path = recorded_path(model, record, start)
        errors[angle_std] = highest_cutoff(model, record, path, RowSettings(least_speed=0.05))
    assert 1.5 < errors[1e-3] < 5.0
    assert errors[1e-5] > 1.5 * errors[1e-3]


def test_what_is_held_out_takes_the_cutoff_of_the_fit(tmp_path):
    """Its own, of slower motion with noisier angles, would be another."""
    how = HOW | {"duration_s": 20.0, "rate_hz": 100.0, "angle_std": 1e-4}
    other = how | {"angle_std": 1e-2, "noise_seed": 5}
    tests = [
        {"kind": "torque", "name": "held out", "role": "check", "simulate": other},
        {"kind": "torque", "name": "own", "simulate": how},
    ]
    sources = {entry.name: entry.source for entry in identified(tmp_path, *tests, free=FREE).study.entries}
    assert sources["held out"].cutoff_hz == sources["own"].cutoff_hz
    alone = identified(tmp_path, tests[0] | {"role": "fit"}, free=FREE).study.entries[0].source
    assert alone.cutoff_hz < sources["own"].cutoff_hz


def test_short_records(tmp_path):
    how = HOW | {"duration_s": 0.25, "rate_hz": 200.0}
    with pytest.raises(ValueError, match="test 1: there are 51 samples, too few to search a cut-off: expected more"):
        identified(tmp_path, {"kind": "torque", "simulate": how}, free=FREE)
