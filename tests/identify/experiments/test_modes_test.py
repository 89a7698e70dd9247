"""Residuals of modal tests against their definition: pairs, content, and shapes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmb.identify.experiments.machine_errors import all_elastic, with_further_springs
from jaxmb.identify.experiments.modes_test import predict_modes
from jaxmb.mechanics.tangent import linearize
from jaxmb.response.modal import mac, modes
from tests.identify.arm import shapes, study_of
from tests.identify.crane import FREE, MODES, POSTURE, crane_study
from tests.identify.derivatives import assert_jacobian, residual_of


@pytest.fixture(scope="module")
def modal(tmp_path_factory):
    """Two measured modes of the crane, the second with a content that it does not have enough of."""
    free = {k: v for k, v in FREE.items() if k.startswith(("stiffness", "damping"))}
    test = MODES | {"content": [[], ["r", "stay"]], "content_share": 0.99, "content_std": 0.05}
    settings = {"hold": {"stiffness.s": 8e5, "damping.s": 300.0}}
    return crane_study(tmp_path_factory.mktemp("modal"), [test], free, **settings)


def modal_u(study):
    values = {"r": 5e4, "w": 6e3, "stay": 1e5}
    dampings = {"r": 25.0, "w": 2.0, "stay": 40.0}
    named = {f"stiffness.{n}": v for n, v in values.items()} | {f"damping.{n}": v for n, v in dampings.items()}
    return np.asarray(study.free.encode(np.array([named[n] for n in study.free.names])))


def test_modal_residual(modal):
    """Frequencies, damping ratios and missing content over their deviations, of the pairs with the least error."""
    u = modal_u(modal)
    model = modal.free.apply(modal.model, jnp.asarray(modal.free.values(u)))
    tangent = linearize(model, modal.tests[0].q)
    found = modes(tangent)
    f, z = np.asarray(found.damped_frequency_hz), np.asarray(found.damping_ratio)
    # The stay resists 0.8 of what lifts the wrist; s has no part in that, and all beside s and w is the named content.
    lift = -0.8 * (0.8 * np.cos(POSTURE["r"]) + 0.1 * np.sin(POSTURE["r"]))
    size = np.abs(np.asarray(found.shape)) ** 2
    named = (5e4 + 1e5 * lift**2) * size[1]
    share = named / (named + 8e5 * size[0] + 6e3 * size[2])

    def errors(a, b):
        pair = np.array([a, b])
        missing = max(0.99 - share[b], 0.0) / 0.05
        frequency = (f[pair] - [11.0, 16.0]) / 0.05
        return np.concatenate([frequency, (z[pair] - [0.02, 0.015]) / [0.001, 0.002], [0.0, missing]])

    pairings = [errors(a, b) for a in range(f.size) for b in range(f.size) if a != b]
    best = min(pairings, key=lambda r: r @ r)
    residual = np.asarray(residual_of(modal.problem, jnp.asarray(u)))
    np.testing.assert_allclose(residual, best, rtol=1e-8, atol=1e-8)
    assert residual.size == modal.tests[0].rows == 6
    assert best[-1] > 0.1  # the content counts in this test


def test_jacobian_of_modes(modal):
    """Away from where two pairings cost the same and from where content is just enough."""
    assert_jacobian(modal.problem, modal_u(modal))


def test_content_counts_from_below_only(modal):
    u = jnp.asarray(modal_u(modal))
    tests = (dataclasses.replace(modal.tests[0], content_share=jnp.asarray(1e-3)),)
    residual = np.asarray(residual_of(dataclasses.replace(modal.problem, tests=tests), u))
    np.testing.assert_array_equal(residual[4:], [0.0, 0.0])


@pytest.fixture(scope="module")
def arm(tmp_path_factory):
    """Both modes of the arm, with shapes at four sensors."""
    return study_of(tmp_path_factory.mktemp("arm"), shapes())


def test_what_a_shape_leaves_is_one_minus_mac(arm):
    """The squared residual of a shape is |a|^2 (1 - MAC) over its variance, whatever the scale and phase of either."""
    (test,) = arm.tests
    model = arm.free.apply(arm.model, jnp.array([2e4, 2e4, 30.0, 3.0]))
    view = test.view(model)
    found = predict_modes(test, view)
    predicted_shapes = view.output_rows @ modes(view.tangent).shape
    measured = np.asarray(test.shape)
    likeness = np.diag(np.asarray(mac(jnp.asarray(measured.T), predicted_shapes)))
    np.testing.assert_allclose(found.mac, likeness, rtol=1e-9)
    left = np.sum(np.asarray(found.errors)[:, 3:] ** 2, axis=1)
    expected = np.sum(np.abs(measured) ** 2, axis=1) * (1.0 - likeness) / 0.02**2
    np.testing.assert_allclose(left, expected, rtol=1e-6)
    turned = dataclasses.replace(test, shape=test.shape * jnp.array([[1j], [-1.0]]))
    np.testing.assert_allclose(predict_modes(turned, view).mac, likeness, rtol=1e-9)


def test_modes_are_paired_by_shape(arm):
    """Where two measured frequencies are exchanged and hardly known, shapes tell which mode is which."""
    unsure = jnp.full(2, 50.0), jnp.full(2, 0.5)
    test = dataclasses.replace(arm.tests[0], frequency_std=unsure[0], damping_std=unsure[1])
    view = test.view(arm.model)
    exchanged = dataclasses.replace(test, frequency_hz=test.frequency_hz[::-1])
    np.testing.assert_allclose(predict_modes(exchanged, view).frequency_hz, test.frequency_hz, rtol=1e-9)
    without = dataclasses.replace(exchanged, outputs=(), inputs=(), shape=jnp.zeros((2, 0)))
    np.testing.assert_allclose(predict_modes(without, view).frequency_hz, test.frequency_hz[::-1], rtol=1e-9)


def test_a_gain_does_not_scale_the_noise_of_a_sensor(arm):
    """A sensor at a node measures noise: a gain of it explains nothing."""
    test = dataclasses.replace(arm.tests[0], shape=arm.tests[0].shape.at[:, 0].set(0.01))
    none = test.description.none(arm.model)
    low = none._replace(log_gain=-20.0 * np.eye(none.log_gain.size)[0])
    parts = np.asarray(test.description.residual(arm.model, low)).reshape(-1, test.frequency_hz.size)
    np.testing.assert_allclose(parts[3], 0.01 / test.shape_std, rtol=1e-6)  # as measured, with no prediction


def test_frequencies_in_rad_per_s_are_a_start_of_one_test_and_of_all(arm):
    """Far from 1 the response to a factor on frequencies is not linear."""
    errors = {error.key: error for error, _ in arm.tests[0].description.errors(arm.model)}
    for key in ("time base", f"frequencies of {arm.tests[0].name}"):
        np.testing.assert_allclose(sorted(np.exp(errors[key].starts)), [1.0 / (2.0 * np.pi), 2.0 * np.pi], rtol=1e-12)


def test_dominant_coordinates_beside_further_springs(modal):
    """Columns of a spring between frames stay its own where a hypothesis adds coordinates."""
    (test,), model = modal.tests, modal.free.apply(modal.model, modal.free.values(modal_u(modal)))
    own = np.asarray(jax.jit(lambda at: test.residual(test.view(at)))(model))
    assert own[5] > 0.1  # the second mode has less of its dominant coordinates than stated
    for other in (model, all_elastic(with_further_springs(model))):
        found = np.asarray(jax.jit(lambda at: test.description.residual(at, test.description.none(at)))(other))
        np.testing.assert_allclose(found, own, rtol=1e-3, atol=1e-3 * np.abs(own).max())  # springs in series
