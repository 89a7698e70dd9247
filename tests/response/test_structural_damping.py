"""Structural damping beside closed forms and matrices by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb
from jaxmb.identify.assess.identify import identify
from jaxmb.mechanics.tangent import Tangent
from jaxmb.response.modal import oscillating_modes
from tests.identify.arm import BRIEF, MACHINE, frf, study_of

ETA = {"loss_factor.a": 0.06, "loss_factor.b": 0.11}
FREE = {"stiffness.*": {"lower": 1e3, "upper": 1e6}, "loss_factor.*": {"lower": 1e-3, "upper": 1.0}}
Q = np.array([0.2, 0.5])


def arm(damping=0.0):
    return jaxmb.set_parameters(jaxmb.build_model(MACHINE), {"damping.a": damping, "damping.b": damping} | ETA)


def test_one_mass():
    k, m, eta = 800.0, 2.0, 0.3
    machine = jaxmb.Machine.model_validate({
        "name": "slider",
        "body": [{"name": "mass", "mass": m, "joint": [
            {"name": "x", "type": "prismatic", "axis": [1, 0, 0], "stiffness": k, "loss_factor": eta}]}],
        "frame": [{"name": "tool", "body": "mass"}],
    })  # fmt: skip
    model = jaxmb.build_model(machine)
    hertz = np.array([0.5, 3.0, 20.0])
    found = jaxmb.frf(model, [0.0], hertz, kind="receptance", outputs=[("tool", "x")])[:, 0, 0]
    np.testing.assert_allclose(found, 1.0 / (k * (1.0 + 1j * eta) - m * (2.0 * np.pi * hertz) ** 2), rtol=1e-12)
    (eigenvalue,) = np.asarray(jaxmb.modes(jaxmb.linearize(model, [0.0])).eigenvalue)
    np.testing.assert_allclose(eigenvalue, 1j * np.sqrt(k / m * (1.0 + 1j * eta)), rtol=1e-12)
    assert -eigenvalue.real / abs(eigenvalue) == pytest.approx(np.sin(0.5 * np.arctan(eta)), rel=1e-12)


def test_matrices_by_hand():
    model = arm(damping=3.0)
    tangent = jaxmb.linearize(model, Q)
    m, c, k = (np.asarray(x) for x in (tangent.mass, tangent.damping, tangent.stiffness))
    lossy = np.diag(np.asarray(model.stiffness) * [ETA["loss_factor.a"], ETA["loss_factor.b"]])
    rows = np.asarray(jaxmb.response_rows(model, Q, [("tool", "x"), ("tool", "z")]))
    hertz = np.array([2.0, 6.0, 13.0])
    expected = [
        -((2 * np.pi * f) ** 2)
        * rows
        @ np.linalg.inv(k + 1j * lossy + 2j * np.pi * f * c - (2 * np.pi * f) ** 2 * m)
        @ rows.T
        for f in hertz
    ]
    found = jaxmb.frf(model, Q, hertz, outputs=[("tool", "x"), ("tool", "z")])
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    modes = jaxmb.modes(tangent)
    assert modes.eigenvalue.size == 2
    for value, shape in zip(np.asarray(modes.eigenvalue), np.asarray(modes.shape).T, strict=True):
        left = (value**2 * m + value * c + k + 1j * lossy) @ shape
        assert np.abs(left).max() < 1e-9 * np.abs(k).max()
        assert value.imag > 0.0 > value.real


def test_springs_between_frames():
    data = MACHINE.model_dump(mode="json", exclude_unset=True)
    spring = {"name": "strut", "frame_a": "ground", "frame_b": "tool", "type": "translation", "direction": [0, 0, 1]}
    data["spring"] = [spring | {"stiffness": 4e3, "loss_factor": 0.2}]
    model = jaxmb.build_model(jaxmb.Machine.model_validate(data))
    with_spring, without = (
        np.asarray(jaxmb.linearize(jaxmb.set_parameters(model, {"stiffness.strut": k}), Q).stiffness)
        for k in (4e3, 0.0)
    )
    np.testing.assert_allclose(
        jaxmb.linearize(model, Q).structural, 0.2 * (with_spring - without), rtol=1e-9, atol=1e-9 * 4e3
    )


def test_preload_dissipates_nothing():
    """As of a damper eta k: a compressed spring has a negative geometric stiffness, not a negative damping."""
    data = MACHINE.model_dump(mode="json", exclude_unset=True)
    spring = {"name": "strut", "frame_a": "ground", "frame_b": "tool", "type": "length", "free_length": 9.0}
    data["spring"] = [spring | {"stiffness": 4e3, "damping": 0.2 * 4e3, "loss_factor": 0.2}]
    for body in data["body"]:
        body["joint"][0]["damping"] = 0.0
    tangent = jaxmb.linearize(jaxmb.build_model(jaxmb.Machine.model_validate(data)), Q)
    np.testing.assert_allclose(tangent.structural, tangent.damping, rtol=1e-12, atol=1e-9)


def test_a_fit_finds_loss_factors(tmp_path):
    truth = {"stiffness.a": 5e4, "stiffness.b": 9e3} | ETA
    write = MACHINE.model_dump(mode="json", exclude_unset=True)
    for body in write["body"]:
        joint = body["joint"][0]
        joint |= {"damping": 0.0, "loss_factor": ETA[f"loss_factor.{joint['name']}"]}
    made = study_of(tmp_path, frf(), free=FREE, machine=jaxmb.Machine.model_validate(write), **BRIEF)
    result = identify(made)
    for name, true in truth.items():
        assert result.parameters[name].value == pytest.approx(true, rel=1e-6)
    assert jaxmb.parameters(jaxmb.build_model(result.machine)) == pytest.approx(jaxmb.parameters(result.model))


def test_what_has_no_structural_damping():
    with pytest.raises(NotImplementedError, match=r"structural damping .* viscous"):
        jaxmb.record_hits(jaxmb.linearize(arm(), Q), *(np.zeros((1, 2)),) * 5, 0.0, 0.1, 100.0, 10)


def test_many_coordinates_that_structural_damping_couples():
    """Beside the eigenvalues of the first-order matrix and their differences, and with dampers too."""
    draw, n = np.random.default_rng(4), 44
    m, k, d = (a @ a.T + n * np.eye(n) for a in draw.normal(size=(3, n, n)))
    step = draw.normal(size=(n, n))
    d, step = 0.02 * d, step + step.T

    def values(t, dampers):
        tangent = Tangent(jnp.asarray(m), dampers * jnp.asarray(d), k + t * step, jnp.asarray(d), None)
        return oscillating_modes(tangent)[0]

    for dampers in (0.0, 0.5):
        lossy = k + 1j * d
        matrix = np.block(
            [[np.zeros((n, n)), np.eye(n)], [-np.linalg.solve(m, lossy), -np.linalg.solve(m, dampers * d)]]
        )
        expected = np.linalg.eigvals(matrix)
        expected = expected[expected.imag > 0.0]
        expected = expected[np.argsort(np.abs(expected))]
        np.testing.assert_allclose(values(0.0, dampers), expected, rtol=1e-10)
        slope = jax.jacfwd(values)(0.0, dampers)
        differences = (values(1e-5, dampers) - values(-1e-5, dampers)) / 2e-5
        np.testing.assert_allclose(slope, differences, rtol=1e-6, atol=1e-8)
