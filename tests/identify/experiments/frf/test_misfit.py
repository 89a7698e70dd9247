"""Measurements that are not what the study takes them for are told by what the fit leaves."""

import dataclasses
import re

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb
from jaxmb.identify.assess.tests.frf import frf_misfit
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.identify.study.study import make_study

POSTURE = {"z2": "70 deg", "z3": "-100 deg"}
FREE = {
    "stiffness.*": {"lower": 2e5, "upper": 2e7, "initial": 1.5e6},
    "damping.*": {"lower": 1e2, "upper": 1e4, "initial": 8e2},
}


def study(folder, **keys):
    """Study of FRFs with 3 % of noise."""
    simulate = {"lines": {"first_hz": 0.2, "last_hz": 30.0, "step_hz": 0.2}, "noise_log_std": 0.03}
    test = {"kind": "frf", "name": "a", "posture": POSTURE, "noise_log_std": "estimate", "simulate": simulate} | keys
    settings = {"machine": "manipulator-3r", "test": [test], "free": FREE, "rounds": 2, "least_rounds": 1}
    return make_study(StudyFile.model_validate(settings), "s", folder)


def changed(made, how):
    """The study with `how` something else made of what was measured."""
    [seen] = made.tests
    seen = eqx.tree_at(lambda t: t.measured, seen, jnp.asarray(how(np.array(seen.measured))))
    return made.with_problem(dataclasses.replace(made.problem, tests=(seen,)))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return study(tmp_path_factory.mktemp("misfit"))


def at_truth(made, undamped=False):
    """What is said of the true parameters, which fit the FRFs as they were before they were changed."""
    [test] = made.tests
    view = test.view(made.free.apply(made.model, jnp.asarray([made.truth[name] for name in made.free.names])))
    predicted = np.asarray(test.predict(view))
    poor = not test.noise.is_known and test.score(view, None).poor
    return frf_misfit(test, predicted, poor, undamped)


def output_turned(h):
    h[:, 1] *= -1.0
    return h


def input_turned(h):
    h[:, :, 2] *= -1.0
    return h


ORDER = "check posture, unit, frame, sign and order of points"


@pytest.mark.parametrize(
    ("how", "told"),
    [
        (
            lambda h: 9.80665 * h,
            r"measured over fitted is 9\.[78]\d* throughout",
        ),
        (lambda h: 1e-3 * h, r"measured over fitted is 0\.00\d+ throughout"),
        (np.conj, r"are the FRFs for exp\(-j omega t\)\?"),
        (output_turned, "opposite at output tool y: is a sensor or hammer reversed"),
        (input_turned, "opposite at input tool z: is a sensor or hammer reversed"),
        (lambda h: h[:, [1, 2, 0]], ORDER),
        (lambda h: -h, ORDER),
    ],
)
def test_what_it_may_be(made, how, told):
    assert re.search(told, at_truth(changed(made, how)).cause)


@pytest.mark.parametrize(("true", "stated"), [(1, 0), (1, 2), (0, 1), (2, 1)])
def test_another_kind_of_frf_is_told_by_the_power_at_driven_points(made, true, stated):
    """However bad the fit: here its phases are random. The FRFs of `made` are accelerances."""
    [test] = made.tests
    measured = np.asarray(test.measured) * (1j * np.asarray(test.omega)[:, None, None]) ** (true - 2)
    fitted = measured * np.exp(2j * np.pi * np.random.default_rng(0).random(measured.shape))
    told = frf_misfit(dataclasses.replace(test, measured=measured, derivatives=stated), fitted, True, False).cause
    kind = ("receptance", "mobility", "accelerance")[true]
    assert f"absorb power only as {kind}" in told
    right = frf_misfit(dataclasses.replace(test, measured=measured, derivatives=true), fitted, True, False).cause
    assert "absorb power" not in right


def test_how_far_it_is_off(made):
    off = at_truth(changed(made, lambda h: 9.80665 * h))
    assert off.factor == pytest.approx(9.80665, rel=0.05)
    assert off.degrees < 10.0


def test_a_fit_that_follows_is_not_remarked(made):
    assert at_truth(made) is None
    # With half of the size as noise, log H errs by that: more than the limit, and as stated.
    rng = np.random.default_rng(0)
    noisy = changed(made, lambda h: h * np.exp(0.5 * (rng.normal(size=h.shape) + 1j * rng.normal(size=h.shape))))
    assert at_truth(noisy) is not None
    [test] = noisy.tests
    stated = dataclasses.replace(
        test, noise_std=jnp.full(test.measured.shape, 0.5), nominal_std=jnp.asarray(0.5), noise_is_known=True
    )
    assert at_truth(noisy.with_problem(dataclasses.replace(noisy.problem, tests=(stated,)))) is None


def test_the_other_sign_of_time_where_no_force_acts_at_a_sensor(tmp_path):
    """There is no driving point whose power tells: the fitted signs of real and imaginary part do."""
    cross = study(tmp_path, outputs=[["tool", "z"]], inputs=[["tool", "x"]])
    assert "exp(-j omega t)" in at_truth(changed(cross, np.conj)).cause
    assert at_truth(cross, undamped=True) is None


def test_a_fit_to_the_wrong_unit_says_so(made):
    """The fit converges, for all noise is what it leaves, but the user is told."""
    result = jaxmb.identify(changed(made, lambda h: 9.80665 * h))
    assert result.status == "data not followed: the best fit does not reproduce test 'a'"
    assert "yes" not in {p.identifiable for p in result.parameters.values()}
    assert {std for mode in result.modes for std in (mode.frequency_std_hz, mode.damping_ratio_std)} == {np.inf}
    assert result.metrics.one_model is None
    assert "a factor of 0.102 on the FRFs of test 'a'" in result.remarks[0]
    assert sum(result.seconds[part] for part in ("compile", "search", "refine")) <= result.seconds["total"]


def test_a_reversed_sensor_is_no_noise(made):
    """Half a turn off, noise decides on which side of the cut each phase is: the errors change sign all the time."""

    def share(made):
        [test] = made.tests
        view = test.view(made.free.apply(made.model, jnp.asarray([made.truth[name] for name in made.free.names])))
        return test.lines.systematic(np.asarray(test.residual(view)), np.asarray(test.stated_variances()))

    assert share(made) < 0.05
    assert share(changed(made, output_turned)) > 0.9
    rng = np.random.default_rng(1)
    assert share(changed(made, lambda h: h * np.exp(2j * np.pi * rng.random(h.shape)))) < 0.05
