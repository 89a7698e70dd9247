"""Responses and modes of machines with many coordinates, beside SciPy's general solvers."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import eig, eigh

from jaxmb.linalg.responses import FEW, receptance
from jaxmb.mechanics.tangent import Tangent
from jaxmb.response.modal import modes, oscillating_modes, selected_modes

SIZE = FEW + 5
RANDOM = np.random.default_rng(0)
PART = RANDOM.normal(size=(3, SIZE, SIZE))
MASS = np.eye(SIZE) + 0.1 * PART[0] @ PART[0].T / SIZE
STIFFNESS = np.diag(np.linspace(1.0, 40.0, SIZE)) + 0.1 * PART[1] @ PART[1].T / SIZE
TIP = np.eye(SIZE)[:1]
DAMPING = {
    "none": np.zeros((SIZE, SIZE)),
    "Rayleigh": 0.01 * MASS + 1e-3 * STIFFNESS,
    "damper": 0.1 * TIP.T @ TIP,
    "dampers": 0.01 * PART[2, :, :30] @ PART[2, :, :30].T,
}
STRUCTURAL = {"eta": 0.02 * STIFFNESS, "spring": 0.3 * TIP.T @ TIP}
CASES = [
    ("Rayleigh", None),
    ("none", "eta"),
    ("Rayleigh", "eta"),
    ("damper", None),
    ("none", "spring"),
    ("damper", "eta"),
    ("dampers", "eta"),
]
HEAVY = 0.4 * STIFFNESS
OMEGA = np.linspace(0.5, 7.0, 30)


def tangent(damping, structural):
    lost = None if structural is None else jnp.asarray(STRUCTURAL[structural])
    return Tangent(jnp.asarray(MASS), jnp.asarray(DAMPING[damping]), jnp.asarray(STIFFNESS), lost)


def dense(t):
    """K + j D, C and M."""
    lost = 0.0 if t.structural is None else np.asarray(t.structural)
    return np.asarray(t.stiffness) + 1j * lost, np.asarray(t.damping), np.asarray(t.mass)


@pytest.mark.parametrize(("damping", "structural"), CASES)
def test_responses(damping, structural):
    t = tangent(damping, structural)
    K, C, M = dense(t)
    rows = np.eye(SIZE)[[0, 3, SIZE - 1]]
    found = receptance(t.mass, t.damping, t.stiffness, jnp.asarray(OMEGA), rows, rows, structural=t.structural)
    expected = [rows @ np.linalg.solve(K + 1j * w * C - w**2 * M, rows.T) for w in OMEGA]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_dampers_at_resonance():
    """Lines on undamped natural frequencies, also on triple ones, of machines that dampers hardly hold."""
    triple = np.kron(np.eye(3), np.diag(np.linspace(1.0, 40.0, SIZE // 3)) + 0.1)
    ends = np.zeros((SIZE, SIZE))
    ends[[0, 15, 30], [0, 15, 30]] = 1e-3, 2e-3, 3e-3
    rows = np.eye(SIZE)[[0, 3, SIZE - 1]]
    everywhere = 1e-3 * np.outer(PART[2, 0], PART[2, 0])
    for K, M, C in ((STIFFNESS, MASS, everywhere), (triple, np.eye(SIZE), ends)):
        omega = np.sqrt(eigh(K, M, eigvals_only=True)[[0, 3, 6]])
        found = receptance(M, C, K, jnp.asarray(omega), rows, rows)
        expected = [rows @ np.linalg.solve(K + 1j * w * C - w**2 * M, rows.T) for w in omega]
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7 * np.abs(expected).max())


@pytest.mark.parametrize(("damping", "structural"), CASES)
def test_modes(damping, structural):
    t = tangent(damping, structural)
    K, C, M = dense(t)
    zero, one = np.zeros_like(M), np.eye(SIZE)
    values = eig(np.block([[zero, one], [-K, -C]]), np.block([[one, zero], [zero, M]]), right=False)
    expected = values[values.imag > 0.0]
    expected = expected[np.argsort(np.abs(expected))]
    np.testing.assert_allclose(modes(t).eigenvalue, expected, rtol=1e-8)
    root, shapes, oscillates = oscillating_modes(t)
    np.testing.assert_allclose(root, expected, rtol=1e-8)
    assert bool(np.all(oscillates))
    left = [(s**2 * M + s * C + K) @ v for s, v in zip(np.asarray(root), np.asarray(shapes).T, strict=True)]
    assert np.abs(left).max() < 1e-8


def test_overdamped_modes_stand_apart():
    """Damping in proportion to stiffness is heavy in high modes: both roots of each are told, and none oscillates."""
    t = Tangent(jnp.asarray(MASS), jnp.asarray(HEAVY), jnp.asarray(STIFFNESS))
    zero, one = np.zeros((SIZE, SIZE)), np.eye(SIZE)
    values = eig(np.block([[zero, one], [-STIFFNESS, -HEAVY]]), np.block([[one, zero], [zero, MASS]]), right=False)
    found = modes(t)
    real = np.abs(values.imag) < 1e-9
    assert 10 < real.sum() < 2 * SIZE - 10
    np.testing.assert_allclose(found.overdamped, np.sort(values[real].real), rtol=1e-8)
    oscillating = values[values.imag > 1e-9]
    np.testing.assert_allclose(found.eigenvalue, oscillating[np.argsort(np.abs(oscillating))], rtol=1e-8)
    root, _, oscillates = oscillating_modes(t)
    assert np.asarray(oscillates).tolist() == [True] * oscillating.size + [False] * (SIZE - oscillating.size)
    np.testing.assert_allclose(root[: oscillating.size], found.eigenvalue, rtol=1e-8)


@pytest.mark.parametrize(("damping", "structural"), [("Rayleigh", None), ("none", "eta"), ("damper", "eta")])
def test_derivatives_of_modes(damping, structural):
    """By differences; the change is no multiple of M or K, and makes damping not proportional."""
    t = tangent(damping, structural)
    change = Tangent(*(0.5 * (p + p.T) for p in PART), None if structural is None else jnp.asarray(TIP.T @ TIP))

    def seen(h):
        root, shapes, _ = oscillating_modes(jax.tree.map(lambda part, moved: part + h * moved, t, change))
        return jnp.concatenate([root[:6], (shapes[3] / shapes[7])[:6]])

    step = 1e-6
    expected = (seen(step) - seen(-step)) / (2.0 * step)
    found = jax.jvp(seen, (0.0,), (1.0,))[1]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(("damping", "structural"), [("none", "eta"), ("damper", "eta")])
def test_derivatives_of_selected_modes(damping, structural):
    """Those of all modes, up to the scale of each shape; the change couples the modes."""
    t = tangent(damping, structural)
    change = Tangent(*(0.5 * (p + p.T) for p in PART), jnp.asarray(TIP.T @ TIP))
    numbers = jnp.array([4, 0, 11])

    def seen(h, few):
        moved = jax.tree.map(lambda part, change: part + h * change, t, change)
        root, shapes, _ = oscillating_modes(moved)
        root, shapes = selected_modes(moved, root, shapes, numbers) if few else (root[numbers], shapes[:, numbers])
        return root, shapes / shapes[7]

    expected, found = (jax.jvp(lambda h, few=few: seen(h, few), (0.0,), (1.0,)) for few in (False, True))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(b).max())


def test_repeated_frequencies_have_derivatives():
    mass = np.eye(SIZE)
    t = Tangent(
        jnp.asarray(mass), jnp.zeros_like(mass), jnp.asarray(np.diag(np.repeat(np.arange(1.0, SIZE), 2)[:SIZE]))
    )
    change = dataclasses.replace(t, mass=jnp.zeros_like(mass), stiffness=jnp.asarray(mass))

    def lowest(h):
        return oscillating_modes(jax.tree.map(lambda part, moved: part + h * moved, t, change))[0][:4].imag

    np.testing.assert_allclose(jax.jvp(lowest, (0.0,), (1.0,))[1], 0.5 / np.sqrt([1.0, 1.0, 2.0, 2.0]), rtol=1e-9)


@pytest.mark.parametrize("ground", [0.0, 1e-9, 1e-4, 1.0])
def test_a_train_that_is_hardly_held(ground):
    """Masses in a row on springs, free or nearly so: rounding of its flexibility must not hide elastic modes."""
    stiffness = 1e5
    K = 2.0 * np.eye(SIZE) - np.eye(SIZE, k=1) - np.eye(SIZE, k=-1)
    K[0, 0] = K[-1, -1] = 1.0
    K, M = stiffness * K, np.eye(SIZE)
    K[0, 0] += ground
    omega = 2.0 * np.pi * np.array([0.2, 1.0, 3.0, 10.0, 50.0])
    found = receptance(M, np.zeros_like(M), K, jnp.asarray(omega), TIP, TIP)
    expected = [TIP @ np.linalg.solve(K - w**2 * M, TIP.T) for w in omega]
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    # of the free train sqrt(k/m)/pi sin(i pi / 2n)
    exact = np.sqrt(stiffness) / np.pi * np.sin(np.arange(1, 6) * np.pi / (2 * SIZE))
    hz = modes(Tangent(jnp.asarray(M), jnp.zeros_like(M), jnp.asarray(K))).frequency_hz
    np.testing.assert_allclose(hz[hz > 1.0][:5], exact, rtol=1e-4 if ground == 1.0 else 1e-7)
