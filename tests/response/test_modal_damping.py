"""Damping ratios that are stated for modes, beside sums over modes by SciPy."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import eigh

import jaxmb
from tests.identify.arm import MACHINE

Q = np.array([0.2, 0.5])
RNG = np.random.default_rng(4)
PART = RNG.normal(size=(5, 5))
MASS, STIFFNESS = PART @ PART.T + 5.0 * np.eye(5), 1e3 * (PART.T @ PART + np.eye(5))


def tangent(damping=0.0, **changes):
    parts = {"mass": MASS, "damping": damping * np.eye(5), "stiffness": STIFFNESS} | changes
    return jaxmb.Tangent(**{name: jnp.asarray(part) for name, part in parts.items()})


@pytest.mark.parametrize(
    ("ratio", "each"),
    [(0.02, [0.02] * 5), ([0.01, 0.05], [0.01] + [0.05] * 4), ([0.01, 0.02, 0.0, 0.04, 0.05],) * 2, (1e-12, [0.0] * 5)],
)
def test_modes_have_the_ratios(ratio, each):
    found = jaxmb.modes(jaxmb.with_modal_damping(tangent(damping=7.0, structural=STIFFNESS), ratio))
    omega = np.sqrt(eigh(STIFFNESS, MASS, eigvals_only=True))
    np.testing.assert_allclose(found.damping_ratio, each, atol=1e-11)
    np.testing.assert_allclose(found.frequency_hz, omega / (2.0 * np.pi), rtol=1e-11)


def test_one_mass():
    one = jaxmb.Tangent(jnp.array([[2.0]]), jnp.zeros((1, 1)), jnp.array([[800.0]]))
    np.testing.assert_allclose(jaxmb.with_modal_damping(one, 0.03).damping, [[2.0 * 0.03 * 20.0 * 2.0]], rtol=1e-14)


def test_equal_frequencies():
    """Any two shapes of a repeated frequency give the same damping matrix."""
    twice = jaxmb.Tangent(jnp.diag(jnp.array([2.0, 3.0])), jnp.zeros((2, 2)), jnp.diag(jnp.array([8.0, 12.0])))
    np.testing.assert_allclose(
        jaxmb.with_modal_damping(twice, 0.1).damping, np.diag([0.8, 1.2]), rtol=1e-13, atol=1e-13
    )


def test_responses_are_sums_over_modes():
    """The example of docs/machine/damping.md agrees with a sum over modes."""
    model = jaxmb.build_model(MACHINE)
    ratio, hertz = np.array([0.015, 0.04]), np.linspace(1.0, 25.0, 40)
    points = [("tool", "x"), ("tool", "z")]
    reduced = jaxmb.reduce_motion(model, Q, 25.0, outputs=points)
    damped = reduced._replace(tangent=jaxmb.with_modal_damping(reduced.tangent, ratio))
    found = jaxmb.reduced_frf(damped, hertz, "receptance")
    t, rows = jaxmb.linearize(model, Q), np.asarray(jaxmb.response_rows(model, Q, points))
    values, shapes = eigh(t.stiffness, t.mass)
    w, seen = 2.0 * np.pi * hertz, rows @ shapes
    factor = 1.0 / (values - w[:, None] ** 2 + 2j * ratio * np.sqrt(values) * w[:, None])
    np.testing.assert_allclose(found, np.einsum("or,ir,fr->foi", seen, seen, factor), rtol=1e-9)


def test_a_beam_reduced():
    """Of a beam with many motions, the modes in the band."""
    section = {"young_modulus": 7e10, "shear_modulus": 2.6e10, "density": 2700.0, "area": 8e-4,
               "second_moment_y": 1.6e-7, "second_moment_z": 3.2e-7, "torsion_constant": 3.2e-7}  # fmt: skip
    beam = section | {"name": "boom", "length": 1.5, "elements": 6}
    model = jaxmb.build_model(jaxmb.Machine.model_validate({"name": "mast", "beam": [beam]}))
    reduced = jaxmb.reduce_motion(model, np.zeros(0), 120.0, frame="boom")
    found = jaxmb.modes(jaxmb.with_modal_damping(reduced.tangent, [0.01, 0.02]))
    np.testing.assert_allclose(found.damping_ratio[:3], [0.01, 0.02, 0.02], rtol=1e-8)
    whole = jaxmb.undamped_modes(jaxmb.linearize(model, np.zeros(0)))
    np.testing.assert_allclose(found.frequency_hz[:3], whole.frequency_hz[:3], rtol=1e-8)


@pytest.mark.parametrize(
    ("ratio", "sentence"),
    [
        (-0.01, "damping_ratio holds -0.01, expected finite numbers of at least 0"),
        ([0.01, np.nan], "damping_ratio holds nan, expected finite numbers of at least 0"),
        (np.inf, "damping_ratio holds inf"),
        ([], r"damping_ratio has shape \(0,\), expected one number, or one for each of at most 5 modes"),
        ([0.01] * 6, r"damping_ratio has shape \(6,\)"),
        ([[0.01]], r"damping_ratio has shape \(1, 1\)"),
    ],
)
def test_wrong_ratios(ratio, sentence):
    with pytest.raises(ValueError, match=sentence):
        jaxmb.with_modal_damping(tangent(), ratio)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"stiffness": STIFFNESS - 2e3 * np.eye(5)}, "stiffness matrix is not positive definite: a mode has"),
        ({"stiffness": np.diag([0.0, 1.0, 1.0, 1.0, 1.0])}, "stiffness matrix is not positive definite"),
        ({"stiffness": np.full((5, 5), np.nan)}, "not symmetric"),
        ({"stiffness": STIFFNESS + PART}, "not symmetric, expected a machine at rest"),
        ({"mass": np.diag([1.0, 1.0, 1.0, 1.0, 0.0])}, "mass matrix is singular"),
    ],
)
def test_wrong_tangents(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        jaxmb.with_modal_damping(tangent(**changes), 0.01)
