"""Fits of machines with many small motions: reduced views beside the whole machine."""

import dataclasses

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxmb
from jaxmb.identify.experiments.modes_test import predict_modes
from jaxmb.identify.experiments.vibration_view import MANY
from tests.identify.derivatives import jacobian_of, residual_of

SECTION = {"young_modulus": 7e10, "shear_modulus": 2.6e10, "density": 2700.0, "area": 8e-4, "second_moment_y": 1.6e-7,
           "second_moment_z": 1.6e-7, "torsion_constant": 3.2e-7, "loss_factor": 0.01}  # fmt: skip
ARM = {
    "name": "arm",
    "body": [
        {"name": "hub", "joint": [{"name": "a", "axis": [0.0, 1.0, 0.0], "stiffness": 2e4, "damping": 5.0},
                                  {"name": "b", "axis": [0.0, 0.0, 1.0], "stiffness": 3e4, "damping": 4.0}]},
        {"name": "elbow", "parent": "boom", "mass": 2.0, "joint": [{"name": "c", "axis": [0.0, 1.0, 0.0],
                                                                    "stiffness": 1e4, "damping": 2.0}]},
    ],
    "beam": [SECTION | {"name": "boom", "body": "hub", "length": 0.8, "elements": 8},
             SECTION | {"name": "fore", "body": "elbow", "length": 0.6, "elements": 8}],
    "frame": [{"name": "tool", "body": "fore"}],
    "payload": [{"name": "load", "frame": "tool", "mass": 1.0}],
    "posture": {"c": 0.9},
}  # fmt: skip
FREE = {
    "stiffness.*": {"lower": 5e3, "upper": 1e5}, "damping.*": {"lower": 0.5, "upper": 50.0},
    "loss_factor.*": {"lower": 1e-3, "upper": 0.1, "tied": True},
}  # fmt: skip
LINES = {"first_hz": 1.0, "last_hz": 80.0, "step_hz": 1.0}


def study_of(tmp_path, test, free=FREE):
    jaxmb.write_machine(jaxmb.Machine.model_validate(ARM), tmp_path / "arm.toml")
    return jaxmb.make_study({"machine": "arm.toml", "test": [test], "free": free}, "arm", tmp_path)


def both(study):
    """Residual and Jacobian at random values, by reduced views and by the whole machine."""
    free = study.free
    lower, upper = np.asarray(free.lower), np.asarray(free.upper)
    u = lower + np.random.default_rng(4).uniform(0.2, 0.8, lower.size) * (upper - lower)
    whole = dataclasses.replace(study.problem, views=(None,))
    return [(residual_of(p, u), jacobian_of(p, u)) for p in (study.problem, whole)]


def test_responses_of_the_reduced_arm(tmp_path):
    test = {"kind": "frf", "frame": "tool", "noise_log_std": 0.02, "simulate": {"lines": LINES}}
    study = study_of(tmp_path, test)
    size = study.problem.views[0].base.tangent.mass.shape[0]
    assert size < 40 < MANY < 99 == len(study.model.elements) * 6 + 3
    reduced, whole = both(study)
    noise = np.array(0.02)
    # log H to a thousandth: residuals are in units of the noise of 2 %, weakest responses aside
    np.testing.assert_allclose(reduced[0], whole[0], atol=1e-3 / noise)
    np.testing.assert_allclose(reduced[1], whole[1], atol=2e-3 * np.abs(whole[1]).max())


def test_modes_of_the_reduced_arm(tmp_path):
    frames = [[f"{beam}/{k}", "xyz"] for beam in ("boom", "fore") for k in (2, 4, 6)]
    test = {"kind": "modes", "outputs": frames, "frequency_std_hz": 0.05, "damping_std_percent": 0.1,
            "simulate": {"below_hz": 60.0, "parameters": {"stiffness.[ab]": 2.5e4, "stiffness.b": 2e4}}}  # fmt: skip
    study = study_of(tmp_path, test)
    assert len(study.tests[0].outputs) == 18
    assert [study.truth[f"stiffness.{name}"] for name in "abc"] == [2.5e4, 2e4, 1e4]
    assert study.problem.views[0].base.tangent.mass.shape[0] < 40
    reduced, whole = both(study)
    np.testing.assert_allclose(reduced[0], whole[0], atol=2e-2)
    np.testing.assert_allclose(reduced[1], whole[1], atol=2e-3 * np.abs(whole[1]).max())


def test_modes_without_sensors(tmp_path):
    """Frequencies and damping alone, with what dominates a mode."""
    test = {"kind": "modes", "frequency_hz": [5.0, 20.0], "damping_percent": [1.0, 1.0], "frequency_std_hz": 0.05,
            "content": [["a"], []], "damping_std_percent": 0.1}  # fmt: skip
    study = study_of(tmp_path, test)
    assert study.problem.views[0].base.tangent.mass.shape[0] < 40
    reduced, whole = both(study)
    np.testing.assert_allclose(reduced[0], whole[0], atol=2e-2)
    np.testing.assert_allclose(reduced[1], whole[1], atol=2e-3 * np.abs(whole[1]).max())


def test_moduli_over_a_wide_range_are_fitted_with_the_whole_machine(tmp_path):
    """A basis for one modulus is none for a hundred times as much: the check at the bounds finds it."""
    test = {"kind": "frf", "frame": "tool", "noise_log_std": 0.02, "simulate": {"lines": LINES}}
    study = study_of(tmp_path, test, {"young_modulus.*": {"lower": 1e9, "upper": 1e12}})
    assert study.problem.views[0].base.tangent.mass.shape[0] == 99


def test_shapes_of_one_frequency(tmp_path):
    """A mass on a round rod swings in two directions alike: any measured direction is a mode, and both are found."""
    rod = SECTION | {"name": "rod", "length": 1.0, "elements": 2, "origin": {"rpy": [0.0, -np.pi / 2, 0.0]}}
    machine = {"name": "rod", "beam": [rod], "frame": [{"name": "tip", "body": "rod"}], "gravity": [0.0, 0.0, 0.0],
               "payload": [{"name": "load", "frame": "tip", "mass": 3.0}]}  # fmt: skip
    jaxmb.write_machine(jaxmb.Machine.model_validate(machine), tmp_path / "rod.toml")
    model = jaxmb.build_model(jaxmb.load_machine(tmp_path / "rod.toml"))
    pair = jaxmb.modes(jaxmb.linearize(model, model.reference))
    assert abs(pair.frequency_hz[1] / pair.frequency_hz[0] - 1.0) < 1e-9
    turned = Rotation.from_euler("x", 30, degrees=True).as_matrix()[1:, 1:]  # along y and z of the rod
    test = {"kind": "modes", "outputs": [["tip", "y"], ["tip", "z"]], "shapes": turned.tolist(),
            "frequency_hz": np.asarray(pair.damped_frequency_hz[:2]).tolist(), "frequency_std_hz": 0.01,
            "damping_percent": (100.0 * np.asarray(pair.damping_ratio[:2])).tolist(),
            "damping_std_percent": 0.01}  # fmt: skip
    free = {"young_modulus.rod": {"lower": 1e10, "upper": 3e11}}
    study = jaxmb.make_study({"machine": "rod.toml", "test": [test], "free": free}, "rod", tmp_path)
    (modal,) = study.tests
    found = predict_modes(modal, modal.view(study.model))
    np.testing.assert_allclose(found.mac, 1.0, rtol=1e-9)
    np.testing.assert_allclose(found.errors, 0.0, atol=1e-4)
    # beside a direction that no mode has, they miss
    axial = dataclasses.replace(modal, outputs=(("tip", "y"), ("tip", "x")))
    assert float(predict_modes(axial, axial.view(study.model)).mac.min()) < 0.9


def test_jq(tmp_path):
    """J_Q against its definition."""
    test = {"kind": "frf", "frame": "tool", "noise_log_std": 0.05, "name": "hammer",
            "simulate": {"lines": LINES | {"step_hz": 4.0}, "noise_log_std": 0.05, "noise_seed": 2}}  # fmt: skip
    free = {"stiffness.*": {"lower": 5e3, "upper": 1e5}}
    result = jaxmb.identify(study_of(tmp_path, test, free))
    measured, predicted = np.asarray(result.study.tests[0].measured), result.predicted("hammer")
    used = np.asarray(result.study.tests[0].weight) > 0.0
    expected = np.sum(np.abs(predicted - measured)[used] ** 2) / np.sum(np.abs(measured[used]) ** 2)
    assert result.metrics["jq_percent"]["hammer"] == pytest.approx(100.0 * expected, rel=1e-6)
    assert 0.1 < 100.0 * expected < 2.0
