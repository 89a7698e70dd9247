"""Indicators against their definitions, closed forms and sdypy-EMA's."""

import dataclasses

import numpy as np
import pytest

from jaxmb.measurement.frf_set import point_names
from jaxmb.measurement.modal.data import (
    cmif,
    frac,
    modal_mass,
    modal_phase_collinearity,
    modal_phase_deviation,
    modal_scaling,
)
from jaxmb.measurement.modal.model import ModalModel

RNG = np.random.default_rng(8)


def random_complex(*shape):
    return RNG.normal(size=shape) + 1j * RNG.normal(size=shape)


def test_frac_is_one_for_what_differs_by_a_factor_and_falls_with_noise():
    h = random_complex(50, 3, 2)
    np.testing.assert_allclose(frac(h, (0.3 - 2j) * h), 1.0)
    assert np.all(frac(h, random_complex(50, 3, 2)) < 0.3)
    broken = h.copy()
    broken[4, 0, 0] = np.nan
    np.testing.assert_allclose(frac(broken, h), 1.0)
    broken[:, 1, 1] = np.nan
    assert np.isnan(frac(broken, h)[1, 1])
    with pytest.raises(ValueError, match="expected the same"):
        frac(h, h[:, :2])


def test_cmif_squared_are_the_eigenvalues():
    h = random_complex(7, 5, 2)
    for line, values in zip(h, cmif(h), strict=True):
        np.testing.assert_allclose(np.sort(values**2), np.linalg.eigvalsh(line.conj().T @ line))


def test_collinearity_of_real_turned_and_circular_shapes():
    real = RNG.normal(size=9)
    for shape in (real, real * np.exp(0.7j), 1j * real):
        assert modal_phase_collinearity(shape) == pytest.approx(1.0)
        assert modal_phase_deviation(shape) == pytest.approx(0.0, abs=1e-7)
    circle = np.exp(2j * np.pi * np.arange(8) / 8)
    assert modal_phase_collinearity(circle) == pytest.approx(0.0, abs=1e-12)
    assert modal_phase_deviation(circle) == pytest.approx(np.pi / 4)


def test_deviation_of_a_known_spread():
    """Components of equal size at +-delta about a line deviate from it by delta."""
    delta = 0.2
    shape = np.exp(1j * (0.5 + delta * np.array([1, -1, 1, -1]))) * np.array([1, 1, -1, -1])
    assert modal_phase_deviation(shape) == pytest.approx(delta)
    assert modal_phase_collinearity(shape) == pytest.approx(np.cos(2 * delta) ** 2)


def proportional(signs):
    """A modal model of a system with known modal masses, its first two outputs also hit."""
    shape = RNG.normal(size=(5, 3)).astype(complex)
    mass, omega, zeta = np.array([2.0, 0.5, 7.0]), np.array([60.0, 110.0, 190.0]), np.array([0.01, 0.02, 0.005])
    damped = omega * np.sqrt(1.0 - zeta**2)
    q = 1.0 / (2j * damped * mass)
    outputs = ("1 x", "2 y", "3 z", "4 x", "5 x")
    participation = q[:, None] * shape[:2].T * signs
    nothing = np.zeros((5, 2))
    model = ModalModel(
        eigenvalue=-zeta * omega + 1j * damped, shape=shape, participation=participation,
        pole_covariance=np.full((3, 2, 2), np.nan), upper_residual=nothing, lower_residual=nothing,
        beyond_eigenvalue=np.zeros(0), beyond_shape=np.zeros((5, 0)), beyond_participation=np.zeros((0, 2)),
        kind="receptance", unit="m/N", outputs=outputs, inputs=tuple(
            name if s > 0 else name.replace(" ", " -") for name, s in zip(outputs, signs, strict=False)
        ), band_hz=(1.0, 50.0),
    )  # fmt: skip
    return model, q, mass


@pytest.mark.parametrize("signs", [(1.0, 1.0), (1.0, -1.0)])
def test_modal_masses_come_back(signs):
    model, q, mass = proportional(np.array(signs))
    np.testing.assert_allclose(modal_scaling(model), q)
    np.testing.assert_allclose(modal_mass(model), mass + 0j)
    # residues in g/N: those in m/s^2/N over 9.80665
    in_g = dataclasses.replace(model, kind="accelerance", unit="g/N", participation=model.participation / 9.80665)
    np.testing.assert_allclose(modal_mass(in_g), mass + 0j)
    np.testing.assert_allclose(modal_mass(dataclasses.replace(model, unit="unknown")), mass + 0j)


def test_scaling_needs_a_driving_point():
    model, _, _ = proportional(np.array([1.0, 1.0]))
    with pytest.raises(ValueError, match="expected a driving point"):
        modal_scaling(dataclasses.replace(model, inputs=("8 x", "9 x")))
    numbered = dataclasses.replace(model, outputs=point_names(None, len(model.outputs)), inputs=("1", "2"))
    with pytest.raises(ValueError, match="expected a driving point"):
        modal_scaling(numbered)
