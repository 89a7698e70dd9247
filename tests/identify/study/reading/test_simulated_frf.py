"""Simulated tests: what a hammer can do, and the noise of each."""

import numpy as np
import pytest

import jaxmb
from tests.identify.arm import frf, study_of


@pytest.mark.parametrize("direction", ["rx", "-rz"])
def test_a_hammer_gives_no_moment(tmp_path, direction):
    hit = frf(
        outputs=[["tool", "x"], ["tool", "ry"]], inputs=[["tool", "z"], ["tool", direction]],
        simulate={"hits": {"hits": 1, "record_s": 0.5}},
    )  # fmt: skip
    with pytest.raises(
        jaxmb.InputError, match=f"input 'tool {direction}': a hammer gives no moment, expected x, y or z"
    ):
        study_of(tmp_path, hit)


def test_one_noise_seed_gives_every_test_its_own_noise(tmp_path):
    tests = [frf(noise=0.01), frf(noise=0.01)]  # the same posture, the same seed of its own
    first, second = study_of(tmp_path, *tests, noise_seed=3).tests
    assert not np.allclose(first.measured, second.measured, rtol=1e-3)
    np.testing.assert_array_equal(study_of(tmp_path, *tests, noise_seed=3).tests[1].measured, second.measured)


def test_tests_that_state_no_seed_have_different_noise(tmp_path):
    tests = [frf(noise=0.01), frf(noise=0.01)]  # the same posture
    stated = study_of(tmp_path, *tests).tests
    np.testing.assert_array_equal(stated[0].measured, stated[1].measured)
    for test in tests:
        test["simulate"].pop("noise_seed")
    first, second = study_of(tmp_path, *tests).tests
    assert not np.allclose(first.measured, second.measured, rtol=1e-3)
