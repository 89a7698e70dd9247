"""Gains and a delay of an FRF test's channels as free parameters, against a cart on a spring in NumPy."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import least_squares

from jaxmb.identify.assess.identify import identify
from jaxmb.identify.assess.saved import load_result, write_result
from jaxmb.identify.experiments.machine_errors import total_error
from jaxmb.identify.study.study import make_study
from jaxmb.io.validation import InputError
from jaxmb.machine.file import write_machine
from jaxmb.machine.schema import Machine
from jaxmb.maps.modal import identified, load_identified
from jaxmb.measurement.files.frf_file import write_frf
from jaxmb.measurement.frf_set import FrfSet

MASS, STIFFNESS, DAMPING = 10.0, 4e5, 60.0
CART = Machine.model_validate({
    "name": "cart",
    "body": [{"name": "cart", "mass": MASS, "joint": [
        {"name": "s", "type": "prismatic", "axis": [1.0, 0.0, 0.0], "stiffness": STIFFNESS, "damping": DAMPING}]}],
    "frame": [{"name": "left", "body": "cart"}, {"name": "right", "body": "cart"}],
})  # fmt: skip
OMEGA = 2 * np.pi * np.arange(10.0, 60.1, 0.5)
GAIN, DELAY, NOISE = 1.04, 2e-4, 0.02
FREE = {
    "stiffness.s": {"lower": 1e4, "upper": 1e7}, "damping.s": {"lower": 1.0, "upper": 1e3},
    "gain.hit.right x": {"lower": 0.5, "upper": 2.0}, "delay.hit": {"lower": -1e-3, "upper": 1e-3},
}  # fmt: skip
"""The mass is known and the left sensor is right."""
NAMES = list(FREE)


def closed_form(values):
    """Receptances [f, 2] at both ends of the cart, as its channels read them."""
    stiffness, damping, gain, delay = values
    h = 1.0 / (stiffness - MASS * OMEGA**2 + 1j * damping * OMEGA)
    return (h * np.exp(-1j * OMEGA * delay))[:, None] * np.array([1.0, gain])


def measured(seed):
    random = np.random.default_rng(seed)
    h = closed_form([STIFFNESS, DAMPING, GAIN, DELAY])
    return h * np.exp(NOISE * (random.normal(size=h.shape) + 1j * random.normal(size=h.shape)))


def study(folder, free=FREE, count=1, **keys):
    """Hammer hits on the left end, one test or some with other noise and the same channels."""
    write_machine(CART, folder / "cart.toml")
    tests = []
    for k in range(count):
        frf = FrfSet(OMEGA / (2 * np.pi), measured(k)[:, :, None], "receptance", ("left x", "right x"), ("left x",))
        write_frf(folder / f"hit{k}.npz", frf)
        tests.append({
            "kind": "frf", "name": "hit" if count == 1 else f"hit{k}", "file": f"hit{k}.npz", "noise_log_std": NOISE,
            "outputs": [["left", "x"], ["right", "x"]], "inputs": [["left", "x"]],
        } | keys)  # fmt: skip
    data = {"machine": "cart.toml", "free": free, "test": tests, "rounds": 3, "least_rounds": 1, "agreement": 1,
            "tolerances": "exact"}  # fmt: skip
    return make_study(data, "cart", folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cart")


@pytest.fixture(scope="module")
def found(folder):
    result = identify(study(folder))
    (folder / "out").mkdir()
    write_result(result, folder / "out")
    return result


def test_gain_and_delay_as_numpy_finds_them(found):
    """Values and standard deviations of a least-squares fit of the closed form by SciPy; the truth within 3 of them."""
    scale = np.array([STIFFNESS, DAMPING, GAIN, DELAY])

    def residual(x):
        error = np.log(measured(0) / closed_form(x * scale)).ravel() / NOISE
        return np.concatenate([error.real, error.imag])

    fit = least_squares(residual, np.ones(4), x_scale="jac", xtol=1e-14, ftol=1e-14, gtol=1e-12)
    std = np.sqrt(np.diag(np.linalg.inv(fit.jac.T @ fit.jac))) * scale
    values, truth = fit.x * scale, scale
    for i, name in enumerate(NAMES):
        got = found.parameters[name]
        assert got.value == pytest.approx(values[i], abs=1e-4 * std[i]), name
        assert got.std == pytest.approx(std[i], rel=1e-2), name  # of a logarithm times the value, curvature beside it
        assert abs(got.value - truth[i]) < 3.0 * std[i], name
        assert got.identifiable == "yes", name
    assert found.converged
    assert [found.parameters[name].unit for name in NAMES[2:]] == ["1", "s"]


def test_predictions_hold_the_channels(found):
    values = [found.parameters[name].value for name in NAMES]
    np.testing.assert_allclose(found.predicted("hit")[:, :, 0], closed_form(values), rtol=1e-9)
    assert np.sqrt(np.mean(found.residual("hit") ** 2)) == pytest.approx(1.0, abs=0.15)  # of 404 rows


def test_the_machine_does_not_hold_them_and_the_result_does(found, folder):
    again = load_result(folder / "out")
    assert again.parameters == found.parameters
    np.testing.assert_allclose(again.predicted("hit"), found.predicted("hit"), rtol=1e-12)
    assert "gain" not in (folder / "out" / "machine.toml").read_text()
    for known in (identified(found), load_identified(folder / "out")):
        assert known.free.names == ("stiffness.s", "damping.s")
        np.testing.assert_allclose(known.covariance, found.covariance[:2, :2], rtol=1e-9)


def test_no_mistake_is_named_that_is_free(found):
    """Without its channels free the fit names them."""
    assert not found.metrics.model_errors


def test_one_value_for_several_tests(folder):
    """Tests of one form are one program, each with the numbers that are its own."""
    free = {name: FREE[name] for name in NAMES[:2]} | {
        "delay.*": FREE["delay.hit"] | {"tied": True}, "gain.hit1.right x": FREE["gain.hit.right x"],
    }  # fmt: skip
    made = study(folder, free, count=2)
    values = np.array([STIFFNESS, DAMPING, 3e-4, 1.1])
    assert made.free.names == ("stiffness.s", "damping.s", "delay.hit0", "gain.hit1.right x")
    residual = np.asarray(made.problem.residual(made.free.encode(values))) / NOISE
    expected = []
    for k, gain in enumerate((1.0, 1.1)):
        error = np.log(closed_form([STIFFNESS, DAMPING, gain, 3e-4]) / measured(k)).ravel() / NOISE
        expected += [error.real, error.imag]
    np.testing.assert_allclose(residual, np.concatenate(expected), rtol=1e-9, atol=1e-9)
    result = identify(made)
    assert result.parameters["delay.hit0"].value == result.parameters["delay.hit1"].value
    delay = result.parameters["delay.hit1"]
    assert abs(delay.value - DELAY) < 3.0 * delay.std


def test_a_force_transducer_is_a_channel_of_its_own(folder):
    """At the left end are a sensor and a hammer: what one reads too high the other takes back, and nothing twice."""
    made = study(folder, FREE | {"gain.hit.left x": FREE["gain.hit.right x"], "force_gain.hit.left x": {
        "lower": 0.5, "upper": 2.0}})  # fmt: skip
    u = made.free.encode(np.array([STIFFNESS, DAMPING, 1.2, GAIN * 1.2, 1.2, DELAY]))
    exact = study(folder).problem
    plain = exact.residual(exact.free.encode(np.array([STIFFNESS, DAMPING, GAIN, DELAY])))
    np.testing.assert_allclose(made.problem.residual(u), plain, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("gain.hit.top x", r"\[free\]: parameter or pattern 'gain\.hit\.top x' does not exist, .*gain\.hit\."),
        ("gains.hit.left x", r"did you mean 'gain\.hit\.left x'"),
        ("delay.hat", r"delay\.hit"),
    ],
)
def test_wrong_names(folder, name, sentence):
    with pytest.raises(InputError, match=sentence):
        study(folder, {"stiffness.s": FREE["stiffness.s"], name: {"lower": 0.5, "upper": 2.0}})


def test_a_symmetrized_test_has_no_gains(folder):
    """One response stands for two, of which each had channels of its own."""
    test = dataclasses.replace(study(folder).tests[0], symmetrized=True)
    assert test.own.names == ("delay.hit",)
    late = test.own.with_values(np.array([DELAY]))
    np.testing.assert_array_equal(late.own.values, [DELAY])
    view, shift = late.view(study(folder).model), np.exp(-1j * OMEGA * DELAY)
    np.testing.assert_allclose(late.predict(view), test.predict(view) * shift[:, None, None], rtol=1e-12)


@pytest.mark.parametrize(("what", "factor"), [("output left x", 1.25), ("input left x", 0.8)])
def test_a_gain_is_named_by_the_factor_that_corrects_it(tmp_path, what, factor):
    """Responses too small by 0.8, or forces too large by 1.25."""
    made = study(tmp_path, simulate={"lines": {"first_hz": 10.0, "last_hz": 20.0, "step_hz": 5.0}}, file=None)
    test, model = made.tests[0], made.model
    small = dataclasses.replace(test, measured=0.8 * test.measured)
    chosen = {e.key: (e, at) for e, at in small.description.errors(model)}[f"gain of {what} of hit"]
    text = {v: chosen[0].described(v) for v in (np.log(0.8), -np.log(0.8))}
    (value,) = (v for v in text if text[v] == f"a factor of {factor} on {what} of test 'hit'")
    corrected = small.description.residual(model, total_error([chosen], {chosen[0].key: value}))
    first = np.asarray(corrected).reshape(2, *test.measured.shape)[:, :, 0]
    np.testing.assert_allclose(first, 0.0, atol=1e-9)


def test_an_other_kind_of_frf_behind_an_exponential_window_leaves_nothing(tmp_path):
    made = study(tmp_path, simulate={"lines": {"first_hz": 1.0, "last_hz": 20.0, "step_hz": 1.0}}, file=None)
    windowed = dataclasses.replace(made.tests[0], decay=jnp.asarray(3.0))
    receptance = dataclasses.replace(windowed, derivatives=0).predict(windowed.view(made.model))
    wrong = dataclasses.replace(windowed, measured=receptance)
    (right,) = (t for key, _, t in wrong.description.alternatives(made.model) if key.startswith("receptance stated"))
    np.testing.assert_allclose(right.residual(right.view(made.model)), 0.0, atol=1e-9)


@pytest.mark.parametrize(("key", "where"), [("shift", "all FRF tests"), ("shift of hit", "test 'hit'")])
def test_frequencies_off_by_one_line_are_an_error(tmp_path, key, where):
    lines = {"first_hz": 5.0, "last_hz": 60.0, "step_hz": 0.5}
    made = study(tmp_path, simulate={"lines": lines, "response": "receptance"}, file=None)
    wrong = dataclasses.replace(made.tests[0], omega=made.tests[0].omega + np.pi)
    (found,) = (x for x in wrong.description.errors(made.model) if x[0].key == key)
    size = {key: -np.pi}
    assert np.abs(wrong.residual(wrong.view(made.model))).max() > 1.0
    np.testing.assert_allclose(wrong.description.residual(made.model, total_error([found], size)), 0.0, atol=1e-9)
    assert found[0].described(-np.pi) == f"frequencies of {where} 0.5 Hz lower"


def test_structural_damping_is_an_error(tmp_path):
    made = study(tmp_path)
    h = 1.0 / (STIFFNESS * (1.0 + 0.04j) - MASS * OMEGA**2 + 1j * DAMPING * OMEGA)
    test = dataclasses.replace(made.tests[0], measured=jnp.asarray(np.stack([h, h], 1)[:, :, None]), channels=None)
    (found,) = (x for x in test.description.errors(made.model) if x[0].key == "loss factor")
    corrected = test.description.residual(made.model, total_error([found], {"loss factor": 0.04}))
    np.testing.assert_allclose(corrected, 0.0, atol=1e-9)


def test_errors_of_a_receptance_from_0_hz_have_a_size(tmp_path):
    lines = {"first_hz": 0.0, "last_hz": 20.0, "step_hz": 5.0}
    made = study(tmp_path, simulate={"lines": lines, "response": "receptance"}, file=None)
    description = made.tests[0].description
    errors = list(description.errors(made.model))
    assert min(error.typical for error, _ in errors) > 0.0
    for error, at in errors:
        scaled = total_error([(error, at)], {error.key: 0.1 * error.typical})
        assert np.isfinite(description.residual(made.model, scaled)).all(), error.key
    for _, _, other in description.alternatives(made.model):
        assert np.isfinite(other.residual(other.view(made.model))).all()


def test_noise_is_not_estimated_without_a_residual(tmp_path):
    """One line of two FRFs has four real numbers for four parameters."""
    for count in (1, 2):
        lines = {"first_hz": 10.0, "last_hz": 10.0 * count, "step_hz": 10.0}
        keys = {"simulate": {"lines": lines}, "file": None, "noise_log_std": "estimate"}
        if count == 1:
            with pytest.raises(InputError, match="test 'hit': noise cannot be estimated, as 4 measured values for 4"):
                study(tmp_path, **keys)
        else:
            assert not study(tmp_path, **keys).tests[0].noise.is_known
