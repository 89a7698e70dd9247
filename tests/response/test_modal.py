"""Modes against closed forms and SciPy, and their derivatives against finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from jaxmb.linalg.responses import eigenpairs, symmetric_pencil
from jaxmb.machine.schema import Frame, Machine
from jaxmb.mechanics.postures import build_model
from jaxmb.mechanics.tangent import Tangent, linearize
from jaxmb.response.modal import (
    energy_shares,
    mac,
    modes,
    oscillating_modes,
    spring_matrices,
    spring_names,
    undamped_modes,
)
from tests.identify.crane import MACHINE as CRANE

M1, M2, K1, K2 = 3.0, 2.0, 5000.0, 1300.0
FOOT = np.array([0.2, 0.0, -0.9])


@pytest.fixture(scope="module")
def two_masses():
    """Two masses on springs in series, by relative coordinates."""
    return linearize(
        build_model(
            Machine.model_validate(
                {
                    "name": "oscillator",
                    "body": [
                        {"name": "a", "mass": M1, "joint": [{"name": "u", "type": "prismatic", "stiffness": K1}]},
                        {
                            "name": "b",
                            "parent": "a",
                            "mass": M2,
                            "joint": [{"name": "v", "type": "prismatic", "stiffness": K2}],
                        },
                    ],
                }
            )
        ),
        np.zeros(2),
    )


def two_mass_omegas():
    """Roots of m1 m2 w^4 - (m1 k2 + m2 (k1 + k2)) w^2 + k1 k2."""
    b, c = -(M1 * K2 + M2 * (K1 + K2)) / (M1 * M2), K1 * K2 / (M1 * M2)
    return np.sqrt([(-b - np.sqrt(b * b - 4 * c)) / 2, (-b + np.sqrt(b * b - 4 * c)) / 2])


def some_tangent(n=5, seed=0):
    """Random symmetric positive definite matrices with non-proportional damping; modes between 2 and 20 Hz."""
    rng = np.random.default_rng(seed)
    a, b, c = rng.normal(size=(3, n, n))
    mass = a @ a.T + n * np.eye(n)
    return Tangent(jnp.array(mass), jnp.array(c @ c.T), jnp.array(2000 * (b @ b.T + n * np.eye(n))))


def test_two_masses(two_masses):
    omega = two_mass_omegas()
    for found in (modes(two_masses), undamped_modes(two_masses)):
        np.testing.assert_allclose(found.frequency_hz, omega / (2 * np.pi), rtol=1e-12)
        np.testing.assert_allclose(found.damping_ratio, [0, 0], atol=1e-12)
        np.testing.assert_allclose(jnp.max(jnp.abs(found.shape), axis=0), [1, 1], rtol=1e-12)
        # Second row of the equations: (k2 - m2 w^2) v = m2 w^2 u.
        u, v = np.asarray(found.shape)
        np.testing.assert_allclose((K2 - M2 * omega**2) * v, M2 * omega**2 * u, rtol=1e-9)


def test_proportional_damping(two_masses):
    """C = a M + b K gives the damping ratio a / 2 w + b w / 2 and leaves |lambda| = w."""
    a, b = 1.1, 3e-4
    damped = Tangent(two_masses.mass, a * two_masses.mass + b * two_masses.stiffness, two_masses.stiffness)
    found, omega = modes(damped), two_mass_omegas()
    ratio = a / (2 * omega) + b * omega / 2
    np.testing.assert_allclose(found.damping_ratio, ratio, rtol=1e-10)
    np.testing.assert_allclose(found.frequency_hz, omega / (2 * np.pi), rtol=1e-12)
    np.testing.assert_allclose(found.damped_frequency_hz, omega * np.sqrt(1 - ratio**2) / (2 * np.pi), rtol=1e-12)
    assert found.overdamped.shape == (0,)


def test_overdamped_roots_stand_apart():
    """s^2 + 6 s + 5 = (s + 1)(s + 5), beside an oscillator of 10 rad/s."""
    tangent = Tangent(jnp.eye(2), jnp.diag(jnp.array([6.0, 0.4])), jnp.diag(jnp.array([5.0, 100.0])))
    found = modes(tangent)
    np.testing.assert_allclose(found.frequency_hz, [10 / (2 * np.pi)], rtol=1e-12)
    np.testing.assert_allclose(found.damping_ratio, [0.02], rtol=1e-10)
    np.testing.assert_allclose(found.overdamped, [-5.0, -1.0], rtol=1e-12)
    np.testing.assert_allclose(found.shape, [[0], [1]], atol=1e-12)
    _, _, oscillates = oscillating_modes(tangent)
    assert oscillates.tolist() == [True, False]


def test_rounding_of_real_roots_displaces_no_mode():
    """Complex arithmetic gives real roots small imaginary parts of either sign: shafts without springs, beside loss
    factors."""
    rng, omega = np.random.default_rng(0), np.array([100.0, 200.0, 300.0, 400.0])
    damping = np.diag([400.0, 90.0, 700.0, 8.0, 10.0, 12.0, 20.0])
    stiffness = np.diag([1.0, 2.0, 3.0, *omega**2])
    for _ in range(10):
        mix = np.eye(7) + 0.3 * rng.normal(size=(7, 7))
        parts = [jnp.array(mix.T @ part @ mix) for part in (np.eye(7), damping, stiffness, np.zeros((7, 7)))]
        eigenvalue, _, oscillates = oscillating_modes(Tangent(*parts))
        found = modes(Tangent(*parts))
        assert oscillates.tolist() == [True] * 4 + [False] * 3
        np.testing.assert_allclose(jnp.abs(eigenvalue[:4]), omega, rtol=1e-9)
        np.testing.assert_allclose(2 * np.pi * found.frequency_hz, omega, rtol=1e-9)
        assert found.overdamped.shape == (6,)


def test_undamped_modes_against_scipy():
    tangent = some_tangent()
    values, vectors = scipy.linalg.eigh(tangent.stiffness, tangent.mass)
    found = undamped_modes(tangent)
    np.testing.assert_allclose(found.frequency_hz, np.sqrt(values) / (2 * np.pi), rtol=1e-11)
    # Both sets of vectors are real and alike up to their scale; modes here are well apart.
    np.testing.assert_allclose(mac(found.shape, vectors), mac(vectors, vectors), atol=1e-10)
    ours, normalized = symmetric_pencil(tangent.stiffness, tangent.mass)
    np.testing.assert_allclose(normalized.T @ tangent.mass @ normalized, np.eye(5), atol=1e-12)
    np.testing.assert_allclose(ours, values, rtol=1e-11)


def test_unstable_and_free_directions_are_left_out():
    found = undamped_modes(Tangent(jnp.eye(3), jnp.zeros((3, 3)), jnp.diag(jnp.array([-4.0, 0.0, 9.0]))))
    np.testing.assert_allclose(found.frequency_hz, [3 / (2 * np.pi)], rtol=1e-12)
    # two free masses with a spring between them: rounding decides the sign of the eigenvalue of their common motion
    for heavy in np.linspace(0.3, 3.0, 20):
        between = 1.3 * jnp.array([[1.0, -1.0], [-1.0, 1.0]])
        found = undamped_modes(Tangent(jnp.diag(jnp.array([0.7, heavy])), jnp.zeros((2, 2)), between))
        omega = np.sqrt(1.3 * (1.0 / 0.7 + 1.0 / heavy))
        np.testing.assert_allclose(found.frequency_hz, [omega / (2 * np.pi)], rtol=1e-12)
        # rounding made it a mode of 1e-9 Hz with any damping ratio
        lossy = Tangent(jnp.diag(jnp.array([0.7, heavy])), jnp.zeros((2, 2)), between, 0.02 * between)
        found = modes(lossy)
        np.testing.assert_allclose(found.frequency_hz, [omega / (2 * np.pi) * (1.0 + 0.02**2) ** 0.25], rtol=1e-10)
        assert modes(Tangent(lossy.mass, 0.1 * between, between)).frequency_hz.shape == (1,)


def test_complex_modes_against_scipy():
    """The symmetric pencil [[C, M], [M, 0]] s + [[K, 0], [0, -M]], another first-order form than the one used."""
    tangent = some_tangent()
    M, C, K = (np.asarray(x) for x in (tangent.mass, tangent.damping, tangent.stiffness))
    zero = np.zeros_like(M)
    values, vectors = scipy.linalg.eig(-np.block([[K, zero], [zero, -M]]), np.block([[C, M], [M, zero]]))
    above = values.imag > 0
    order = np.argsort(np.abs(values[above]))
    values, shapes = values[above][order], vectors[:5, above][:, order]
    found = modes(tangent)
    np.testing.assert_allclose(found.eigenvalue, values, rtol=1e-10)
    np.testing.assert_allclose(np.diag(mac(found.shape, shapes)), np.ones(5), rtol=1e-10)
    np.testing.assert_allclose(found.damping_ratio, -values.real / np.abs(values), rtol=1e-9)
    assert (np.diff(found.frequency_hz) > 0).all()


def test_mac():
    a = np.random.default_rng(0).normal(size=(4, 2)) + 1j * np.random.default_rng(1).normal(size=(4, 2))
    np.testing.assert_allclose(np.diag(mac(a, a * (2 - 3j))), [1, 1], rtol=1e-12)
    np.testing.assert_allclose(mac(np.eye(3)[:, :2], np.eye(3)[:, 1:]), [[0, 0], [1, 0]], atol=1e-15)
    np.testing.assert_allclose(mac(np.array([[1.0], [1.0]]), np.array([[1.0], [0.0]])), [[0.5]], rtol=1e-12)
    with pytest.raises(ValueError, match=r"shapes are \(4, 2\) and \(3, 1\), expected \[n, modes\] with the same n"):
        mac(a, np.ones((3, 1)))


def test_energy_shares():
    shares = energy_shares(jnp.array([[1.0, 2j], [1.0, 1.0]]), jnp.array([3.0, 1.0]))
    with pytest.raises(ValueError, match=r"stiffness has shape \(1,\), expected \(2,\) or \(springs, 2, 2\)"):
        energy_shares(jnp.array([[1.0, 2j], [1.0, 1.0]]), jnp.array([3.0]))
    np.testing.assert_allclose(shares, [[0.75, 12 / 13], [0.25, 1 / 13]], rtol=1e-12)


@pytest.mark.parametrize("kind", ["translation", "length"])
def test_springs_between_frames_have_their_share(kind):
    """Energies of the crane's springs as they follow from where its wrist is by hand; a length under load turns."""
    spring = {"direction": (0.0, 0.6, 0.8)} if kind == "translation" else {"direction": None, "free_length": 0.7}
    stay = CRANE.spring[0].model_copy(update={"type": kind, "frame_a": "foot", "stiffness": 1e5} | spring)
    foot = Frame.model_validate({"name": "foot", "body": "ground", "origin": {"xyz": FOOT.tolist()}})
    changed = {"spring": (stay,), "frame": (*CRANE.frame, foot), "gravity": (0.0, 0.0, 0.0)}
    model = build_model(CRANE.model_copy(update=changed))
    q, tangent = np.array([0.0, 0.3, -0.4]), linearize(model, jnp.array([0.0, 0.3, -0.4]))

    def stretch(s, r):
        wrist = np.array([s + 0.8 * np.cos(r) + 0.1 * np.sin(r), 0.0, 0.1 * np.cos(r) - 0.8 * np.sin(r)])
        return 0.8 * wrist[2] if kind == "translation" else np.linalg.norm(wrist - FOOT) - 0.7

    def energy(s, r):
        unloaded = stretch(q[0], q[1]) if kind == "translation" else 0.0
        return 0.5 * 1e5 * (stretch(s, r) - unloaded) ** 2

    def second(i, j, step=1e-3):
        a, b = step * np.eye(2)[i], step * np.eye(2)[j]
        at = [energy(*(q[:2] + x)) for x in (a + b, a - b, b - a, -a - b)]
        return (at[0] - at[1] - at[2] + at[3]) / (4 * step**2)

    between = np.zeros((3, 3))
    between[:2, :2] = [[second(i, j) for j in range(2)] for i in range(2)]
    shape = np.asarray(modes(tangent).shape)
    own = np.array([8e5, 5e4, 6e3])[:, None] * np.abs(shape) ** 2
    of_stay = np.real(np.sum(shape.conj() * (between @ shape), axis=0))
    total = np.real(np.sum(shape.conj() * (np.asarray(tangent.stiffness) @ shape), axis=0))
    shares = energy_shares(jnp.asarray(shape), spring_matrices(model, jnp.asarray(q)))
    assert spring_names(model) == ("s", "r", "w", "stay")
    with pytest.raises(ValueError, match=r"q has shape \(2,\), expected \(3,\): one value a coordinate"):
        spring_matrices(model, jnp.zeros(2))
    np.testing.assert_allclose(shares, np.vstack([own, of_stay]) / total, rtol=1e-4, atol=1e-5)
    assert np.abs(shares[3]).max() > 0.2


def test_derivatives_of_modes():
    """Forward and reverse mode against central differences, of eigenvalues and of shapes scaled to a largest 1."""
    tangent, rng = some_tangent(3, seed=2), np.random.default_rng(3)

    @jax.jit
    def outputs(x):
        changed = jax.tree.map(lambda m, d: m + x[0] * d + x[1] * d @ d, tangent, directions)
        values, shapes, _ = oscillating_modes(changed)
        return jnp.concatenate([jnp.ravel(part) for part in (values.real, values.imag, shapes.real, shapes.imag)])

    directions = jax.tree.map(lambda m: 0.1 * m + np.diag(rng.normal(size=3)), tangent)
    x = np.array([0.2, 1e-4])
    forward = jax.jacfwd(outputs)(x)
    reverse = jax.jacrev(outputs)(x)
    steps = np.diag([1e-5, 1e-8])
    numeric = np.stack([(outputs(x + s) - outputs(x - s)) / (2 * s.max()) for s in steps], axis=1)
    # Columns have scales of their own; rounding of eigenvalues of 1e2 over steps of 1e-5 and 1e-8 leaves 1e-9 and 1e-6.
    scale = np.abs(forward).max(axis=0)
    assert (np.abs(forward - numeric) < 1e-6 * scale).all()
    assert (np.abs(forward - reverse) < 1e-10 * scale).all()


def test_derivative_of_eigenvalues_is_finite_where_they_repeat():
    """A multiple of the identity moves all eigenvalues alike; vectors of a repeated one are left unmoved."""
    (values, vectors), (d_values, d_vectors) = jax.jvp(eigenpairs, (2.0 * jnp.eye(3),), (jnp.eye(3),))
    np.testing.assert_allclose(d_values, np.ones(3), rtol=1e-12)
    assert np.isfinite(d_vectors).all()
    np.testing.assert_allclose(values, 2 * np.ones(3))
    assert vectors.shape == (3, 3)


def test_a_locked_machine_has_no_modes():
    nothing = jnp.zeros((0, 0))
    found = modes(Tangent(nothing, nothing, nothing))
    assert (found.frequency_hz.size, found.shape.shape, found.overdamped.size) == (0, (0, 0), 0)


def test_a_spring_whose_ends_coincide_has_no_modes():
    body = {"name": "bar", "mass": 1.0, "center_of_mass": [0.2, 0.0, 0.0], "joint": [{"name": "q", "stiffness": 9.0}]}
    origin = {"xyz": [0.0, 0.0, 0.1]}
    frames = [{"name": name, "body": at, "origin": origin} for name, at in (("a", "ground"), ("b", "bar"))]
    spring = {"name": "s", "frame_a": "a", "frame_b": "b", "type": "length", "free_length": 0.1, "stiffness": 3.0}
    machine = Machine.model_validate({"name": "bar", "body": [body], "frame": frames, "spring": [spring]})
    model = build_model(machine)
    with pytest.raises(ValueError, match="the stiffness matrix is not finite, as where the ends of a spring"):
        modes(linearize(model, model.reference))
