"""Rayleigh damping beside closed forms, matrices by hand, and dampers beside the springs."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import eigh

import jaxmb
from jaxmb.identify.assess.identify import identify
from jaxmb.machine.changed import machine_of
from tests.identify.arm import BRIEF, FREE, MACHINE, frf, study_of
from tests.identify.derivatives import assert_jacobian

ALPHA, BETA = 0.7, 2e-4
LAW = {"mass": ALPHA, "stiffness": BETA}
RAYLEIGH = {"rayleigh.mass": {"lower": 0.01, "upper": 10.0}, "rayleigh.stiffness": {"lower": 1e-6, "upper": 1e-2}}
STIFFNESS = {"stiffness.*": {"lower": 1e3, "upper": 1e6}}
MASS = {"mass.*": {"lower": 1.0, "upper": 50.0}}
Q = np.array([0.2, 0.5])


def changed(machine, **changes):
    return jaxmb.Machine.model_validate(machine.model_dump(mode="json", exclude_unset=True) | changes)


def slider(name, parent, mass, stiffness, damping):
    joint = {"name": name, "type": "prismatic", "axis": [1, 0, 0], "stiffness": stiffness, "damping": damping}
    return {"name": f"body_{name}", "parent": parent, "mass": mass, "joint": [joint]}


def test_one_mass():
    k, m, c = 800.0, 2.0, 3.0
    data = {"name": "slider", "body": [slider("x", "ground", m, k, c)], "rayleigh": LAW}
    model = jaxmb.build_model(jaxmb.Machine.model_validate(data))
    omega = 2.0 * np.pi * np.array([0.5, 3.0, 20.0])
    found = jaxmb.frf(model, [0.0], omega / (2.0 * np.pi), kind="receptance", outputs=[("x", "travel")])[:, 0, 0]
    whole = c + ALPHA * m + BETA * k
    np.testing.assert_allclose(found, 1.0 / (k + 1j * omega * whole - m * omega**2), rtol=1e-12)
    at = np.sqrt(k / m)
    (zeta,) = np.asarray(jaxmb.modes(jaxmb.linearize(model, [0.0])).damping_ratio)
    assert zeta == pytest.approx(0.5 * (ALPHA / at + BETA * at) + c / (2.0 * m * at), rel=1e-12)


def test_two_masses_by_hand():
    m1, m2, k1, k2 = 3.0, 1.5, 9e3, 4e3
    body = [slider("x", "ground", m1, k1, 5.0), slider("y", "body_x", m2, k2, 0.0)]
    model = jaxmb.build_model(jaxmb.Machine.model_validate({"name": "two", "body": body, "rayleigh": LAW}))
    mass, stiffness = np.array([[m1 + m2, m2], [m2, m2]]), np.diag([k1, k2])
    tangent = jaxmb.linearize(model, np.zeros(2))
    expected = np.diag([5.0, 0.0]) + ALPHA * mass + BETA * stiffness
    np.testing.assert_allclose(tangent.damping, expected, rtol=1e-13)
    moving = jaxmb.linearize_moving(model, np.zeros(2), np.array([0.3, 0.1]), np.zeros(2))
    np.testing.assert_allclose(moving.damping, expected, rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match=r"q has shape \(1,\), expected \(2,\): one value a coordinate"):
        jaxmb.linearize_moving(model, np.zeros(1), np.array([0.3, 0.1]), np.zeros(2))
    undamped = jaxmb.set_parameters(model, {"damping.x": 0.0})
    omega = np.sqrt(eigh(stiffness, mass, eigvals_only=True))
    modes = jaxmb.modes(jaxmb.linearize(undamped, np.zeros(2)))
    np.testing.assert_allclose(modes.damping_ratio, 0.5 * (ALPHA / omega + BETA * omega), rtol=1e-11)
    np.testing.assert_allclose(modes.frequency_hz, omega / (2.0 * np.pi), rtol=1e-11)


def test_gravity_is_no_elastic_stiffness():
    m, length, k = 4.0, 0.6, 500.0
    joint = {"name": "q", "axis": [0, 1, 0], "stiffness": k}
    body = {"name": "bob", "mass": m, "center_of_mass": [0, 0, -length], "joint": [joint]}
    model = jaxmb.build_model(jaxmb.Machine.model_validate({"name": "pendulum", "body": [body], "rayleigh": LAW}))
    for at in ("posture", "equilibrium"):
        tangent = jaxmb.linearize(model, [0.0], at)
        np.testing.assert_allclose(tangent.stiffness, [[k + m * 9.81 * length]], rtol=1e-12)
        np.testing.assert_allclose(tangent.damping, [[ALPHA * m * length**2 + BETA * k]], rtol=1e-12)


STRUT = {"name": "strut", "frame_a": "ground", "frame_b": "tool", "type": "translation", "direction": [0, 0, 1.0]}
CABLE = {"name": "cable", "frame_a": "ground", "frame_b": "elbow", "type": "length", "free_length": 0.4}
MOTOR = {"name": "m", "inertia": 2e-3, "ratio": -40.0, "stiffness": 3.0}


def with_springs():
    """The arm with springs between frames, one of them under load, and a motor behind a gear."""
    data = MACHINE.model_dump(mode="json", exclude_unset=True)
    data["body"][1]["joint"][0]["motor"] = MOTOR
    return data | {"spring": [STRUT | {"stiffness": 4e3}, CABLE | {"stiffness": 7e3, "damping": 2.0}]}


def four_bar():
    def rod(name, parent, joint, length, start):
        inertia = {"xx": 1e-3, "yy": length**2 / 12, "zz": length**2 / 12}
        return {"name": name, "parent": parent, "origin": {"xyz": [start, 0.0, 0.0]}, "mass": 1.0, "joint": [joint],
                "center_of_mass": [length / 2, 0.0, 0.0], "inertia_products": inertia}  # fmt: skip

    return {
        "name": "four-bar", "gravity": [0.0, -9.81, 0.0],
        "body": [rod("crank", "ground", {"name": "q1", "stiffness": 3e3, "damping": 2.0}, 0.3, 0.0),
                 rod("coupler", "crank", {"name": "q2", "stiffness": 100.0}, 0.8, 0.3),
                 rod("rocker", "ground", {"name": "q3"}, 0.6, 0.9)],
        "frame": [{"name": "a", "body": "coupler", "origin": {"xyz": [0.8, 0.0, 0.0]}},
                  {"name": "b", "body": "rocker", "origin": {"xyz": [0.6, 0.0, 0.0]}}],
        "loop": [{"name": "pin", "frame_a": "a", "frame_b": "b"}], "independent": ["q1"],
        "posture": {"q1": 1.0, "q2": -0.7, "q3": 1.6},
    }  # fmt: skip


@pytest.mark.parametrize("make", [with_springs, four_bar])
@pytest.mark.parametrize("at", ["posture", "equilibrium"])
def test_beta_is_a_damper_beside_each_spring(make, at):
    """And alpha times the mass matrix of small motions, where loops close too."""
    machine = jaxmb.Machine.model_validate(make())
    plain, damped = (jaxmb.build_model(m) for m in (machine, changed(machine, rayleigh=LAW)))
    q = jaxmb.reference_posture(plain)
    by_dampers = dataclasses.replace(
        plain,
        damping=plain.damping + BETA * plain.stiffness,
        spring_damping=plain.spring_damping + BETA * plain.spring_stiffness,
    )
    expected, found = jaxmb.linearize(by_dampers, q, at), jaxmb.linearize(damped, q, at)
    want = np.asarray(expected.damping) + ALPHA * np.asarray(expected.mass)
    np.testing.assert_allclose(found.damping, want, rtol=1e-11, atol=1e-11 * np.abs(want).max())
    np.testing.assert_array_equal(found.stiffness, expected.stiffness)


def test_beams():
    """In a machine without gravity all modes: zeta = (alpha / omega + beta omega) / 2."""
    section = {"young_modulus": 7e10, "shear_modulus": 2.6e10, "density": 2700.0, "area": 8e-4,
               "second_moment_y": 1.6e-7, "second_moment_z": 3.2e-7, "torsion_constant": 3.2e-7}  # fmt: skip
    beam = section | {"name": "boom", "length": 1.5, "elements": 3}
    data = {"name": "mast", "gravity": [0, 0, 0], "beam": [beam], "rayleigh": {"mass": ALPHA, "stiffness": 2e-6}}
    tangent = jaxmb.linearize(jaxmb.build_model(jaxmb.Machine.model_validate(data)), np.zeros(0))
    omega = np.sqrt(eigh(tangent.stiffness, tangent.mass, eigvals_only=True))
    np.testing.assert_allclose(jaxmb.modes(tangent).damping_ratio, 0.5 * (ALPHA / omega + 2e-6 * omega), rtol=1e-8)


def test_time_domain_has_none():
    model = jaxmb.build_model(MACHINE)
    motion = Q, np.array([0.3, -0.2]), np.array([1.0, 2.0])
    damped = jaxmb.build_model(changed(MACHINE, rayleigh=LAW))
    np.testing.assert_array_equal(jaxmb.inverse_dynamics(damped, *motion), jaxmb.inverse_dynamics(model, *motion))


def test_files_and_models(tmp_path):
    machine = changed(MACHINE, rayleigh=LAW)
    jaxmb.write_machine(machine, tmp_path / "arm.toml")
    assert jaxmb.load_machine(tmp_path / "arm.toml") == machine
    found = jaxmb.set_parameters(jaxmb.build_model(machine), {"rayleigh.mass": 1.25, "rayleigh.stiffness": 3e-5})
    written = machine_of(machine, found)
    assert (written.rayleigh.mass, written.rayleigh.stiffness) == (1.25, 3e-5)
    assert jaxmb.parameters(jaxmb.build_model(written)) == pytest.approx(jaxmb.parameters(found))
    assert "rayleigh" not in machine_of(MACHINE, jaxmb.build_model(MACHINE)).model_dump(exclude_defaults=True)


@pytest.mark.parametrize("key", ["mass", "stiffness"])
@pytest.mark.parametrize("wrong", ["-0.1", "nan", "inf", "true", '"1"'])
def test_wrong_numbers(tmp_path, key, wrong):
    jaxmb.write_machine(MACHINE, tmp_path / "arm.toml")
    text = f"rayleigh = {{ {key} = {wrong} }}\n" + (tmp_path / "arm.toml").read_text()
    (tmp_path / "arm.toml").write_text(text)
    with pytest.raises(jaxmb.InputError, match=rf"arm\.toml: rayleigh, {key}: .*expected"):
        jaxmb.load_machine(tmp_path / "arm.toml")


def test_wrong_parameters():
    model = jaxmb.build_model(MACHINE)
    for wrong, expected in ((-1.0, "expected 0 or more"), (np.nan, "expected a finite number")):
        with pytest.raises(ValueError, match=rf"parameter 'rayleigh\.mass' is .*, {expected}"):
            jaxmb.set_parameters(model, {"rayleigh.mass": wrong})


@pytest.mark.parametrize(
    ("free", "table", "affine"),
    [
        (FREE, LAW, True),
        (FREE | MASS, LAW, True),
        (RAYLEIGH, {}, True),
        (RAYLEIGH | {"damping.*": FREE["damping.*"]}, LAW, True),
        ({"rayleigh.mass": RAYLEIGH["rayleigh.mass"]} | STIFFNESS, LAW, True),
        ({"rayleigh.stiffness": RAYLEIGH["rayleigh.stiffness"]} | MASS, LAW, True),
        ({"rayleigh.mass": RAYLEIGH["rayleigh.mass"]} | MASS, LAW, False),
        ({"rayleigh.mass": RAYLEIGH["rayleigh.mass"], "rotor_inertia.a": {"lower": 0.0, "upper": 2.0}}, LAW, False),
        ({"rayleigh.stiffness": RAYLEIGH["rayleigh.stiffness"]} | STIFFNESS, LAW, False),
        (RAYLEIGH | FREE, LAW, False),
    ],
)
def test_when_small_motions_are_affine(tmp_path, free, table, affine):
    """What is precomputed is the tangent of the changed machine, and nothing is where products are free."""
    study = study_of(tmp_path, frf(), free=free, machine=changed(MACHINE, rayleigh=table))
    (view,) = study.problem.views
    assert (view is not None) is affine
    if view is None:
        return
    random = np.random.default_rng(0)
    low, high = study.free.lower_value, study.free.upper_value
    for _ in range(3):
        values = low + random.uniform(size=low.size) * (high - low)
        direct = study.tests[0].view(study.free.apply(study.model, jnp.asarray(values))).tangent
        for ours, theirs in zip(
            (view(values).tangent.mass, view(values).tangent.damping, view(values).tangent.stiffness),
            (direct.mass, direct.damping, direct.stiffness), strict=True,
        ):  # fmt: skip
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * np.abs(np.asarray(theirs)).max())


def test_derivatives_of_products(tmp_path):
    study = study_of(tmp_path, frf(), free=RAYLEIGH | FREE, machine=changed(MACHINE, rayleigh=LAW))
    names = list(study.free.names)
    values = {"stiffness.a": 4e4, "stiffness.b": 1e4, "damping.a": 20.0, "damping.b": 5.0, "rayleigh.mass": 0.5}
    u = np.log([(values | {"rayleigh.stiffness": 1e-4})[name] for name in names])
    assert_jacobian(study.problem, u, step=1e-5, reverse=False)


@pytest.mark.parametrize("others", [STIFFNESS, STIFFNESS | {"mass.fore": {"lower": 2.0, "upper": 20.0}}])
def test_a_fit_finds_it(tmp_path, others):
    truth = {"stiffness.a": 5e4, "stiffness.b": 9e3, "rayleigh.mass": ALPHA, "rayleigh.stiffness": BETA}
    undamped = MACHINE.model_dump(mode="json", exclude_unset=True)
    for body in undamped["body"]:
        body["joint"][0]["damping"] = 0.0
    machine = jaxmb.Machine.model_validate(undamped | {"rayleigh": LAW})
    result = identify(study_of(tmp_path, frf(), free=others | RAYLEIGH, machine=machine, **BRIEF))
    for name, true in truth.items():
        assert result.parameters[name].value == pytest.approx(true, rel=1e-6)
    assert result.parameters["rayleigh.mass"].unit == "1/s"
    assert result.parameters["rayleigh.stiffness"].unit == "s"
    assert result.machine.rayleigh.mass == pytest.approx(ALPHA, rel=1e-6)
    assert result.machine.rayleigh.stiffness == pytest.approx(BETA, rel=1e-6)
