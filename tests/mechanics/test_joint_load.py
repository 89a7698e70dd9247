"""Joints that stiffen under load: beside statics by hand, through fits, and where they are refused."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb
from jaxmb.identify.assess.identify import identify
from jaxmb.identify.study.law_terms import covariate
from jaxmb.machine.changed import machine_of
from jaxmb.mechanics.tangent import with_loaded_stiffness
from tests.identify.arm import BRIEF, FREE, MACHINE, frf, loads, study_of
from tests.identify.derivatives import assert_jacobian

SLOPE = {"a": 2e-3, "b": 8e-3}
SLOPES = {"stiffness_slope.*": {"lower": 0.0, "upper": 0.05}}
STIFFNESS = {"stiffness.*": {"lower": 1e3, "upper": 1e6}}
MASS = {"mass.*": {"lower": 1.0, "upper": 50.0}}
Q = np.array([0.2, 0.5])
G = 9.81


def sloped(slope=SLOPE, **changes):
    data = MACHINE.model_dump(mode="json", exclude_unset=True)
    for body in data["body"]:
        joint = body["joint"][0]
        joint["stiffness_slope"] = slope[joint["name"]]
    return jaxmb.Machine.model_validate(data | changes)


def test_one_joint():
    """A horizontal arm of length l: the torque is m g l cos q, the axis turning it down."""
    m, length, k, c = 4.0, 0.6, 500.0, 3e-2
    joint = {"name": "q", "axis": [0, 1, 0], "stiffness": k, "stiffness_slope": c, "damping": 1.0, "loss_factor": 0.1}
    body = {"name": "arm", "mass": m, "center_of_mass": [length, 0, 0], "joint": [joint]}
    data = {"name": "arm", "body": [body], "rayleigh": {"stiffness": 1e-3}}
    model = jaxmb.build_model(jaxmb.Machine.model_validate(data))
    for q in (-0.7, 0.0, 1.2, 2.5):
        stiff = k * (1.0 + c * abs(m * G * length * np.cos(q)))
        t = jaxmb.linearize(model, [q])
        np.testing.assert_allclose(t.stiffness, [[stiff + m * G * length * np.sin(q)]], rtol=1e-12)
        np.testing.assert_allclose(t.structural, [[0.1 * stiff]], rtol=1e-12)
        np.testing.assert_allclose(t.damping, [[1.0 + 1e-3 * stiff]], rtol=1e-12)


def test_a_compensator_takes_load_off():
    """Its force by the derivative of its energy; the joint's stiffness is what is left of K without springs."""
    m, length, k, c, ks, free = 40.0, 0.6, 5e4, 3e-3, 1e3, 0.3
    joint = {"name": "q", "axis": [0, 1, 0], "stiffness": k, "stiffness_slope": c}
    body = {"name": "arm", "mass": m, "center_of_mass": [length, 0, 0], "joint": [joint]}
    spring = {"name": "s", "frame_a": "post", "frame_b": "eye", "type": "length", "free_length": free, "stiffness": ks}
    frames = [{"name": "post", "body": "ground", "origin": {"xyz": [-0.2, 0, 0.8]}},
              {"name": "eye", "body": "arm", "origin": {"xyz": [0.3, 0, 0]}}]  # fmt: skip
    data = {"name": "arm", "body": [body], "frame": frames, "spring": [spring]}
    model = jaxmb.build_model(jaxmb.Machine.model_validate(data))

    def energy(q):
        distance = np.hypot(0.3 * np.cos(q) + 0.2, -0.3 * np.sin(q) - 0.8)
        return -m * G * length * np.sin(q) + 0.5 * ks * (distance - free) ** 2

    stiffness = eqx.filter_jit(lambda model, q: with_loaded_stiffness(model, q).stiffness)
    for q in (-0.3, 0.1, 0.6):
        effort = (energy(q + 1e-6) - energy(q - 1e-6)) / 2e-6
        assert abs(effort) < 0.9 * m * G * length * np.cos(q)
        np.testing.assert_allclose(stiffness(model, jnp.array([q])), [k * (1.0 + c * abs(effort))], rtol=1e-7)
        curvature = (energy(q + 1e-4) - 2.0 * energy(q) + energy(q - 1e-4)) / 1e-8
        np.testing.assert_allclose(
            jaxmb.linearize(model, [q]).stiffness, [[k * (1.0 + c * abs(effort)) + curvature]], rtol=1e-6
        )


def efforts(q):
    """Of gravity on the two hinges of the arm, by moments of weights about them; the axes are y, and turn x to -z."""
    a, b = q

    def turned(angle, x, z):
        return np.array([np.cos(angle) * x + np.sin(angle) * z, -np.sin(angle) * x + np.cos(angle) * z])

    elbow = turned(a, 0.8, 0.1)
    upper, fore = turned(a, 0.4, 0.1), elbow + turned(a + b, 0.3, 0.0)
    return np.array([G * (20.0 * upper[0] + 8.0 * fore[0]), G * 8.0 * (fore[0] - elbow[0])])


@pytest.mark.parametrize("q", [Q, np.array([-1.0, 2.5]), np.array([2.8, -0.4])])
def test_two_joints(q):
    plain = jaxmb.build_model(MACHINE)
    stiffness = np.array([5e4, 9e3]) * (1.0 + np.array([SLOPE["a"], SLOPE["b"]]) * np.abs(efforts(q)))
    expected = jaxmb.set_parameters(plain, {"stiffness.a": stiffness[0], "stiffness.b": stiffness[1]})
    model, hertz = jaxmb.build_model(sloped()), np.linspace(1.0, 25.0, 9)
    np.testing.assert_allclose(jaxmb.linearize(model, q).stiffness, jaxmb.linearize(expected, q).stiffness, rtol=1e-12)
    np.testing.assert_allclose(jaxmb.frf(model, q, hertz), jaxmb.frf(expected, q, hertz), rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(jaxmb.spring_matrices(model, q), jaxmb.spring_matrices(expected, q), rtol=1e-12)
    assert np.all(stiffness > 1.01 * np.array([5e4, 9e3]))


M, LENGTH, BASE = 6.0, 0.5, 0.8


def parallelogram(stiffness, slope, **of_left):
    """Two cranks and a coupler that stays level: its weight is carried by the cranks' drives alone."""
    joints = [{"name": n, "axis": [0, 1, 0], "stiffness": k, "stiffness_slope": c}
              for n, k, c in zip("ab", stiffness, slope, strict=True)]  # fmt: skip
    for joint in joints:
        if joint["stiffness"] == 0.0:
            del joint["stiffness_slope"]
    return jaxmb.build_model(jaxmb.Machine.model_validate({
        "name": "parallelogram", "posture": {"a": 0.6, "b": 0.6, "c": -0.6},
        "body": [
            {"name": "left", "joint": [joints[0] | of_left]},
            {"name": "right", "joint": [joints[1]], "origin": {"xyz": [BASE, 0, 0]}},
            {"name": "coupler", "parent": "left", "origin": {"xyz": [LENGTH, 0, 0]}, "mass": M,
             "center_of_mass": [0.2, 0, 0], "inertia_products": {"yy": 0.1, "xx": 0.05, "zz": 0.05},
             "joint": [{"name": "c", "axis": [0, 1, 0]}]},
        ],
        "frame": [{"name": "end", "body": "coupler", "origin": {"xyz": [BASE, 0, 0]}},
                  {"name": "tip", "body": "right", "origin": {"xyz": [LENGTH, 0, 0]}}],
        "loop": [{"name": "pin", "frame_a": "end", "frame_b": "tip", "type": "revolute", "axis": [0, 1, 0]}],
    }))  # fmt: skip


@pytest.mark.parametrize("stiffness", [(4e3, 0.0), (4e3, 1e3)])
def test_members_of_a_loop_share_the_load(stiffness):
    """M g l cos a turns both cranks by one angle: each carries its share k / (k_a + k_b) of it."""
    model = parallelogram(stiffness, slope := (0.02, 0.05))
    k, c = np.array(stiffness), np.array(slope)
    for angle in (-0.4, 0.6, 1.1):
        q = np.array([angle, angle, -angle])[[model.coordinates.index(name) for name in "abc"]]
        found = np.asarray(with_loaded_stiffness(model, jnp.asarray(q)).stiffness)
        effort = M * G * LENGTH * np.cos(angle) * k / k.sum()
        assert covariate(model, "load", "stiffness.a", q, None) == pytest.approx(effort[0], rel=1e-9)
        expected = dict(zip("abc", [*(k * (1.0 + c * effort)), 0.0], strict=True))
        np.testing.assert_allclose(found, [expected[name] for name in model.coordinates], rtol=1e-9)
        t = jaxmb.linearize(model, q)
        whole = k @ (1.0 + c * effort) + M * G * LENGTH * np.sin(angle)
        np.testing.assert_allclose(t.stiffness, [[whole]], rtol=1e-9)


@pytest.mark.parametrize(("of_shaft", "series"), [(0.0, 4e3), (0.4, 2e3)])
def test_a_gear_in_a_loop_carries_its_share(of_shaft, series):
    """Its drive holds the shaft, or is in series with the gear: 0.4 N m/rad at a ratio of 100 are 4e3 N m/rad."""
    motor = {"inertia": 1e-4, "ratio": -100.0, "stiffness": of_shaft}
    model = parallelogram((4e3, 1e3), (0.02, 0.05), motor=motor)
    found = with_loaded_stiffness(model, model.reference).stiffness[model.coordinates.index("a")]
    effort = M * G * LENGTH * np.cos(0.6) * series / (series + 1e3)
    np.testing.assert_allclose(found, 4e3 * (1.0 + 0.02 * effort), rtol=1e-9)


def test_files_and_models(tmp_path):
    machine = sloped()
    jaxmb.write_machine(machine, tmp_path / "arm.toml")
    assert jaxmb.load_machine(tmp_path / "arm.toml") == machine
    found = jaxmb.set_parameters(jaxmb.build_model(machine), {"stiffness_slope.a": 0.0, "stiffness_slope.b": 0.01})
    written = machine_of(machine, found)
    assert [body.joint[0].stiffness_slope for body in written.body] == [0.0, 0.01]
    assert jaxmb.parameters(jaxmb.build_model(written)) == pytest.approx(jaxmb.parameters(found))
    plain = jaxmb.build_model(MACHINE)
    assert not [name for name in jaxmb.parameters(plain) if name.startswith("stiffness_slope")]
    assert all(body.joint[0].stiffness_slope is None for body in machine_of(MACHINE, plain).body)


@pytest.mark.parametrize("wrong", [-0.1, np.nan, np.inf, "1", True])
def test_wrong_numbers(wrong):
    with pytest.raises(ValueError, match=r"(?s)stiffness_slope.*(greater than or equal to 0|expected)"):
        sloped({"a": wrong, "b": 0.0})


def test_wrong_machines_and_parameters():
    data = sloped().model_dump(mode="json", exclude_none=True)
    data["body"][0]["joint"][0]["stiffness"] = 0.0
    with pytest.raises(ValueError, match="'a' has a stiffness_slope and no stiffness"):
        jaxmb.Machine.model_validate(data)
    with pytest.raises(ValueError, match=r"parameter 'stiffness_slope\.a' is -1, expected 0 or more"):
        jaxmb.set_parameters(jaxmb.build_model(sloped()), {"stiffness_slope.a": -1.0})


def test_where_the_load_is_not_known(tmp_path):
    model = jaxmb.build_model(sloped())
    told = "'a' of 'arm' has a stiffness_slope, expected joints of constant stiffness"
    calls = (
        lambda: jaxmb.linearize(model, Q, "equilibrium"),
        lambda: jaxmb.static_equilibrium(model, Q),
        lambda: jaxmb.linearize_moving(model, Q, np.ones(2), np.ones(2)),
        lambda: jaxmb.cartesian_stiffness(model, Q, "tool"),
        lambda: jaxmb.deflection(model, Q, "tool", np.ones(6)),
        lambda: identify(study_of(tmp_path, loads(), free=STIFFNESS, machine=sloped(), **BRIEF)),
        lambda: identify(study_of(tmp_path, frf(), free=STIFFNESS, machine=sloped(), linearize_at="equilibrium")),
    )
    for call in calls:
        with pytest.raises(NotImplementedError, match=told):
            call()


@pytest.mark.parametrize(
    ("free", "affine"),
    [
        (FREE, True),
        (SLOPES, True),
        (SLOPES | {"damping.*": FREE["damping.*"]}, True),
        (SLOPES | STIFFNESS, False),
        (SLOPES | MASS, False),
        (MASS, False),
        ({"rotor_inertia.a": {"lower": 0.0, "upper": 2.0}} | STIFFNESS, True),
        (SLOPES | {"rayleigh.stiffness": {"lower": 1e-6, "upper": 1e-2}}, False),
    ],
)
def test_when_small_motions_are_affine(tmp_path, free, affine):
    study = study_of(tmp_path, frf(), free=free, machine=sloped())
    (view,) = study.problem.views
    assert (view is not None) is affine
    if view is None:
        return
    low, high = study.free.lower_value, study.free.upper_value
    values = low + np.random.default_rng(0).uniform(size=low.size) * (high - low)
    direct = study.tests[0].view(study.free.apply(study.model, jnp.asarray(values))).tangent
    for name in ("mass", "damping", "stiffness"):
        ours, theirs = (np.asarray(getattr(t, name)) for t in (view(values).tangent, direct))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * np.abs(theirs).max())


def test_jacobian_of_a_fit(tmp_path):
    free = SLOPES | STIFFNESS | {"mass.fore": {"lower": 2.0, "upper": 20.0}}
    study = study_of(tmp_path, frf(), free=free, machine=sloped())
    values = {"stiffness.a": 4e4, "stiffness.b": 1e4, "stiffness_slope.a": 1e-3, "stiffness_slope.b": 1e-2,
              "mass.fore": 7.0}  # fmt: skip
    u = study.free.encode(np.array([values[name] for name in study.free.names]))
    assert_jacobian(study.problem, u, step=1e-5, reverse=False)


def test_a_fit_finds_it(tmp_path):
    """Of FRFs at three postures of other loads."""
    postures = {"a": 0.2, "b": 0.5}, {"a": 1.2, "b": 0.3}, {"a": -1.3, "b": 0.9}
    tests = [frf(posture=posture, name=f"test {i}") for i, posture in enumerate(postures)]
    result = identify(study_of(tmp_path, *tests, free=SLOPES | STIFFNESS, machine=sloped(), **BRIEF))
    truth = {"stiffness.a": 5e4, "stiffness.b": 9e3, "stiffness_slope.a": SLOPE["a"], "stiffness_slope.b": SLOPE["b"]}
    for name, true in truth.items():
        assert result.parameters[name].value == pytest.approx(true, rel=1e-5)
    assert result.parameters["stiffness_slope.a"].unit == "1/(N m)"
    assert result.machine.body[1].joint[0].stiffness_slope == pytest.approx(SLOPE["b"], rel=1e-5)
