"""Fractional damping beside closed forms, matrices by hand, and roots of polynomials in a root of s."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import eig

import jaxmb
from jaxmb.identify.assess.identify import identify
from jaxmb.linalg.responses import receptance
from jaxmb.machine.changed import machine_of
from jaxmb.response.frf import IDEAL, sensed_receptance
from jaxmb.response.modal import fractional_modes
from tests.identify.arm import BRIEF, FREE, MACHINE, frf, shapes, study_of
from tests.identify.derivatives import assert_jacobian

ORDER, TIME = 0.4, 2e-5
LAW = {"order": ORDER, "time": TIME}
FRACTIONAL = {"fractional.order": {"lower": 0.1, "upper": 1.0}, "fractional.time": {"lower": 1e-8, "upper": 1e-2}}
STIFFNESS = {"stiffness.*": {"lower": 1e3, "upper": 1e6}}
Q = np.array([0.2, 0.5])


def changed(machine, **changes):
    return jaxmb.Machine.model_validate(machine.model_dump(mode="json", exclude_unset=True) | changes)


def slider(name, parent, mass, stiffness, damping=0.0, **more):
    joint = {"name": name, "type": "prismatic", "axis": [1, 0, 0], "stiffness": stiffness, "damping": damping} | more
    return {"name": f"body_{name}", "parent": parent, "mass": mass, "joint": [joint]}


def model_of(law, *body):
    return jaxmb.build_model(jaxmb.Machine.model_validate({"name": "sliders", "body": body, "fractional": law}))


def half_roots(m, c, k, e):
    """s of (s^2 M + s C + K + s^(1/2) E) v = 0 by the polynomial of z = s^(1/2), of degree four."""
    n, zero = len(m), np.zeros_like(m)
    shift = np.hstack([np.zeros((3 * n, n)), np.eye(3 * n)])
    companion = np.vstack([shift, np.hstack([-k, -e, -c, zero])]).astype(complex)
    whole = np.eye(4 * n, dtype=complex)
    whole[3 * n :, 3 * n :] = m
    z = np.asarray(eig(companion, whole, right=False))
    z = z[(np.abs(np.angle(z)) < 0.5 * np.pi) & (np.imag(z**2) > 0.0)]  # the branch of s^(1/2)
    return np.sort_complex(z**2)


def test_one_mass():
    k, m, c, eta = 800.0, 2.0, 3.0, 0.05
    model = model_of({"order": 0.6, "time": 3e-3}, slider("x", "ground", m, k, c, loss_factor=eta))
    hertz = np.array([0.0, 0.5, 3.0, 20.0])
    w = 2.0 * np.pi * hertz
    found = jaxmb.frf(model, [0.0], hertz, kind="receptance", outputs=[("x", "travel")])[:, 0, 0]
    law = 1.0 + (w * 3e-3) ** 0.6 * (np.cos(0.3 * np.pi) + 1j * np.sin(0.3 * np.pi))
    np.testing.assert_allclose(found, 1.0 / (k * (law + 1j * eta) + 1j * w * c - m * w**2), rtol=1e-12)


@pytest.mark.parametrize("time", [1e-5, 1e-3, 0.05, 2.0])
def test_mode_of_one_mass(time):
    k, m, c = 800.0, 2.0, 3.0
    model = model_of({"order": 0.5, "time": time}, slider("x", "ground", m, k, c))
    found = np.asarray(jaxmb.modes(jaxmb.linearize(model, [0.0])).eigenvalue)
    expected = half_roots(*(np.array([[part]]) for part in (m, c, k, k * np.sqrt(time))))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("time", [1e-5, 1e-3, 0.02])
def test_modes_of_three_masses(time):
    """With a damper that couples them."""
    k = 9e3, 4e3, 2e4
    body = [slider("x", "ground", 3.0, k[0], 8.0), slider("y", "body_x", 1.5, k[1]), slider("z", "body_y", 1.0, k[2])]
    tangent = jaxmb.linearize(model_of({"order": 0.5, "time": time}, *body), np.zeros(3))
    m = np.array([[5.5, 2.5, 1.0], [2.5, 2.5, 1.0], [1.0, 1.0, 1.0]])
    c, stiffness = np.diag([8.0, 0.0, 0.0]), np.diag(k)
    modes = jaxmb.modes(tangent)
    found = np.asarray(modes.eigenvalue)
    np.testing.assert_allclose(
        np.sort_complex(found), half_roots(m, c, stiffness, np.sqrt(time) * stiffness), rtol=1e-9
    )
    for s, shape in zip(found, np.asarray(modes.shape).T, strict=True):
        left = (s**2 * m + s * c + stiffness * (1.0 + np.sqrt(s * time))) @ shape
        assert np.abs(left).max() < 1e-9 * np.abs(stiffness).max()
    assert modes.overdamped.size == 0


def test_free_masses():
    """Rounding decides whether their stiffness matrix has a Cholesky factor; their relative motion is that of one."""
    between = np.array([[1.0, -1.0], [-1.0, 1.0]])
    for heavy in np.linspace(0.3, 3.0, 13):
        found, _ = fractional_modes(np.diag([0.7, heavy]), 0.0 * between, 1.3 * between + 0j, 0.1 * between, 0.5)
        reduced = np.array([[1.0 / (1.0 / 0.7 + 1.0 / heavy)]])
        one = half_roots(reduced, 0.0 * reduced, np.array([[1.3]]), np.array([[0.1]]))
        np.testing.assert_allclose(found, one, rtol=1e-10)


def test_order_one_is_viscous():
    """a = 1 is Rayleigh damping of beta = tau, in responses and modes."""
    one = jaxmb.build_model(changed(MACHINE, fractional={"order": 1.0, "time": 3e-4}))
    other = jaxmb.build_model(changed(MACHINE, rayleigh={"stiffness": 3e-4}))
    hertz = np.linspace(0.5, 30.0, 20)
    np.testing.assert_allclose(jaxmb.frf(one, Q, hertz), jaxmb.frf(other, Q, hertz), rtol=1e-10, atol=1e-14)
    found, expected = (jaxmb.modes(jaxmb.linearize(m, Q)).eigenvalue for m in (one, other))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


STRUT = {"name": "strut", "frame_a": "ground", "frame_b": "tool", "type": "translation", "direction": [0, 0, 1.0]}
CABLE = {"name": "cable", "frame_a": "ground", "frame_b": "elbow", "type": "length", "free_length": 0.4}


def test_springs_between_frames_and_exponential_windows():
    """All springs, without gravity's stiffness and that of preload; behind a window at s = j omega + sigma."""
    springs = [STRUT | {"stiffness": 4e3}, CABLE | {"stiffness": 7e3}]
    plain = jaxmb.build_model(changed(MACHINE, spring=springs))
    model = jaxmb.build_model(changed(MACHINE, spring=springs, fractional=LAW))
    by_dampers = dataclasses.replace(plain, damping=plain.stiffness, spring_damping=plain.spring_stiffness)
    elastic = np.asarray(jaxmb.linearize(by_dampers, Q).damping)
    t, rows = jaxmb.linearize(plain, Q), np.asarray(jaxmb.response_rows(plain, Q, [("tool", "x"), ("tool", "z")]))
    hertz, sigma = np.array([0.7, 6.0, 13.0]), 1.5
    expected = []
    for s in 2j * np.pi * hertz + sigma:
        dynamic = s**2 * t.mass + s * t.damping + t.stiffness + (s * TIME) ** ORDER * elastic
        expected.append(s**2 * rows @ np.linalg.inv(dynamic) @ rows.T)
    omega = jnp.asarray(2.0 * np.pi * hertz)
    seen = jnp.asarray(rows)
    found = sensed_receptance(jaxmb.linearize(model, Q), omega, sigma, 2, seen, seen, None, IDEAL)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def beam_model(**changes):
    section = {"young_modulus": 7e10, "shear_modulus": 2.6e10, "density": 2700.0, "area": 8e-4,
               "second_moment_y": 1.6e-7, "second_moment_z": 1.6e-7, "torsion_constant": 3.2e-7}  # fmt: skip
    beam = section | {"name": "boom", "length": 1.5, "elements": 8}
    data = {"name": "mast", "gravity": [0, 0, 0], "beam": [beam]} | changes
    return jaxmb.build_model(jaxmb.Machine.model_validate(data))


def test_a_beam_of_many_coordinates():
    """Proportional, by modes, and each mode twice: s^2 = -omega^2 (1 + (s tau)^a)."""
    model = beam_model(fractional=LAW)
    hertz = np.linspace(1.0, 200.0, 15)
    t = jaxmb.linearize(model, np.zeros(0))
    assert t.mass.shape[0] == 48
    rows = np.asarray(jaxmb.response_rows(model, np.zeros(0), [("boom", "y"), ("boom", "z")]))
    found = jaxmb.frf(model, np.zeros(0), hertz, "boom", "receptance", [("boom", "y"), ("boom", "z")])
    expected = [
        rows @ np.linalg.solve(np.asarray(t.stiffness) * (1.0 + (1j * w * TIME) ** ORDER) - w**2 * t.mass, rows.T)
        for w in 2.0 * np.pi * hertz
    ]
    size = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-12 * size)
    modes = jaxmb.modes(t)
    s, omega = np.asarray(modes.eigenvalue), 2.0 * np.pi * np.asarray(jaxmb.undamped_modes(t).frequency_hz)
    np.testing.assert_allclose(s**2, -(omega**2) * (1.0 + (s * TIME) ** ORDER), rtol=1e-7)
    pairs = np.asarray(modes.shape)[:, :2]
    assert np.linalg.svd(pairs, compute_uv=False)[1] > 0.1


def test_reduced_machines_and_finite_forces():
    model = beam_model(fractional=LAW)
    hertz, points = np.linspace(1.0, 60.0, 10), [("boom", "y"), ("boom", "z")]
    reduced = jaxmb.reduced_frf(jaxmb.reduce_motion(model, np.zeros(0), 60.0, outputs=points), hertz)
    whole = np.asarray(jaxmb.frf(model, np.zeros(0), hertz, outputs=points))
    np.testing.assert_allclose(reduced, whole, rtol=0, atol=1e-3 * np.abs(whole).max())
    arm = jaxmb.build_model(changed(MACHINE, fractional=LAW))
    small = jaxmb.frf_finite_force(arm, Q, hertz, force_n=1e-4)
    there = np.asarray(jaxmb.frf(arm, Q, hertz))
    np.testing.assert_allclose(small, there, rtol=1e-5, atol=1e-6 * np.abs(there).max())


def test_derivatives_beside_differences():
    rng = np.random.default_rng(3)
    part = rng.normal(size=(4, 4))
    m, k = part @ part.T + 4.0 * np.eye(4), 1e3 * (part.T @ part + np.eye(4))
    rows, omega = jnp.asarray(rng.normal(size=(2, 4))), jnp.asarray([3.0, 11.0, 25.0])

    @jax.jit
    def seen(order, scale):
        power = (1j * omega * 1e-3) ** order
        return receptance(jnp.asarray(m), jnp.zeros((4, 4)), jnp.asarray(k), omega, rows, rows,
                          fractional=(scale * jnp.asarray(k), power))  # fmt: skip

    at, step = (0.4, 0.8), 1e-6
    for i, found in enumerate(jax.jacfwd(seen, argnums=(0, 1))(*at)):
        up, down = (seen(*(x + sign * step * (i == j) for j, x in enumerate(at))) for sign in (1, -1))
        np.testing.assert_allclose(found, (up - down) / (2.0 * step), rtol=1e-6, atol=1e-9 * np.abs(found).max())


def test_files_and_models(tmp_path):
    machine = changed(MACHINE, fractional=LAW)
    jaxmb.write_machine(machine, tmp_path / "arm.toml")
    assert jaxmb.load_machine(tmp_path / "arm.toml") == machine
    found = jaxmb.set_parameters(jaxmb.build_model(machine), {"fractional.order": 0.7, "fractional.time": 3e-5})
    written = machine_of(machine, found)
    assert (written.fractional.order, written.fractional.time) == (0.7, 3e-5)
    assert jaxmb.parameters(jaxmb.build_model(written)) == pytest.approx(jaxmb.parameters(found))
    plain = jaxmb.build_model(MACHINE)
    assert machine_of(MACHINE, plain).fractional is None
    assert not [name for name in jaxmb.parameters(plain) if name.startswith("fractional")]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("order = -0.1, time = 1.0", "fractional, order: .*-0.1"),
        ("order = 0.0, time = 1.0", "fractional, order: .*0"),
        ("order = 1.5, time = 1.0", "fractional, order: .*1.5"),
        ("order = nan, time = 1.0", "fractional, order: found NaN, expected a finite number"),
        ("order = 0.5, time = -1.0", "fractional, time: .*-1"),
        ("order = 0.5, time = nan", "fractional, time: found NaN, expected a finite number"),
        ("order = 0.5", "fractional, time: "),
    ],
)
def test_wrong_numbers(tmp_path, wrong, sentence):
    jaxmb.write_machine(MACHINE, tmp_path / "arm.toml")
    text = f"fractional = {{ {wrong} }}\n" + (tmp_path / "arm.toml").read_text()
    (tmp_path / "arm.toml").write_text(text)
    with pytest.raises(jaxmb.InputError, match=rf"arm\.toml: {sentence}"):
        jaxmb.load_machine(tmp_path / "arm.toml")


def test_wrong_parameters(tmp_path):
    model = jaxmb.build_model(changed(MACHINE, fractional=LAW))
    for name, wrong, expected in (
        ("order", 1.2, "1 or less"),
        ("order", -0.1, "0 or more"),
        ("time", np.nan, "a finite number"),
    ):
        with pytest.raises(ValueError, match=rf"parameter 'fractional\.{name}' is .*, expected {expected}"):
            jaxmb.set_parameters(model, {f"fractional.{name}": wrong})
    free = {"fractional.order": {"lower": 0.1, "upper": 2.0}}
    with pytest.raises(ValueError, match=r"'fractional\.order': upper bound 2, expected 1 or less"):
        study_of(tmp_path, frf(), free=free, machine=changed(MACHINE, fractional=LAW))
    with pytest.raises(ValueError, match=r"'fractional\.order'"):
        study_of(tmp_path, frf(), free=FRACTIONAL)


def test_what_there_is_not(tmp_path):
    machine = changed(MACHINE, fractional=LAW)
    model = jaxmb.build_model(machine)
    with pytest.raises(NotImplementedError, match=r"fractional damping .* viscous"):
        jaxmb.record_hits(jaxmb.linearize(model, Q), *(np.zeros((1, 2)),) * 5, 0.0, 0.1, 100.0, 10)
    with pytest.raises(NotImplementedError, match="'arm' has fractional damping"):
        jaxmb.maps.modal_quantities(model, Q[None], ("frequency_hz",))
    with pytest.raises(NotImplementedError, match="fractional damping: modes"):
        identify(study_of(tmp_path, shapes(), free=STIFFNESS, machine=machine, **BRIEF))


def test_modal_damping_takes_its_place():
    tangent = jaxmb.linearize(jaxmb.build_model(changed(MACHINE, fractional=LAW)), Q)
    assert jaxmb.with_modal_damping(tangent, 0.01).fractional is None


def test_the_affine_view_is_the_view(tmp_path):
    """Stiffnesses are free and the law is not: what is precomputed is the tangent of the changed machine."""
    study = study_of(tmp_path, frf(), free=FREE, machine=changed(MACHINE, fractional=LAW))
    (view,) = study.problem.views
    low, high = study.free.lower_value, study.free.upper_value
    values = low + np.random.default_rng(0).uniform(size=low.size) * (high - low)
    direct = study.tests[0].view(study.free.apply(study.model, jnp.asarray(values))).tangent
    for ours, theirs in zip(jax.tree.leaves(view(values).tangent), jax.tree.leaves(direct), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * np.abs(np.asarray(theirs)).max())
    freed = study_of(tmp_path, frf(), free=FRACTIONAL | FREE, machine=changed(MACHINE, fractional=LAW))
    assert freed.problem.views == (None,)


def test_jacobian_of_a_fit(tmp_path):
    study = study_of(tmp_path, frf(), free=FRACTIONAL | STIFFNESS, machine=changed(MACHINE, fractional=LAW))
    values = {"stiffness.a": 4e4, "stiffness.b": 1e4, "fractional.order": 0.5, "fractional.time": 3e-5}
    assert_jacobian(study.problem, np.log([values[name] for name in study.free.names]), step=1e-5, reverse=False)


def test_a_fit_finds_it(tmp_path):
    truth = {"stiffness.a": 5e4, "stiffness.b": 9e3, "fractional.order": ORDER, "fractional.time": TIME}
    data = MACHINE.model_dump(mode="json", exclude_unset=True)
    for body in data["body"]:
        body["joint"][0]["damping"] = 0.0
    machine = jaxmb.Machine.model_validate(data | {"fractional": LAW})
    result = identify(study_of(tmp_path, frf(), free=FRACTIONAL | STIFFNESS, machine=machine, **BRIEF))
    for name, true in truth.items():
        assert result.parameters[name].value == pytest.approx(true, rel=1e-6)
    assert (result.parameters["fractional.order"].unit, result.parameters["fractional.time"].unit) == ("1", "s")
    assert result.machine.fractional.order == pytest.approx(ORDER, rel=1e-6)
