"""Frequency responses against NumPy's inverse and closed forms, and their derivatives against finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from jaxmb.linalg.responses import receptance
from jaxmb.machine.file import load_machine
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.kinematics import frame_jacobian, frame_pose, reference_posture
from jaxmb.mechanics.postures import build_model
from jaxmb.mechanics.tangent import linearize
from jaxmb.response.frf import convert_frf, frf, frf_finite_force

MODEL = build_model(load_machine("manipulator-3r"))
POSTURE = reference_posture(MODEL)
FREQUENCY = np.array([0.0, 5.0, 10.2, 11.2, 22.6, 40.0])


def by_inverse(q, outputs, inputs, derivatives):
    tangent = linearize(MODEL, q)
    M, C, K = (np.asarray(x) for x in (tangent.mass, tangent.damping, tangent.stiffness))
    lines = []
    for f in FREQUENCY:
        s = 2j * np.pi * f
        lines.append(s**derivatives * outputs @ np.linalg.inv(K + s * C + s**2 * M) @ inputs.T)
    return np.array(lines)


def tool_rows(q):
    rotation = np.asarray(frame_pose(MODEL, q, "tool"))[:3, :3]
    twist = np.asarray(frame_jacobian(MODEL, q, "tool"))
    return np.concatenate([rotation.T @ twist[:3], rotation.T @ twist[3:]])


def assert_close(ours, theirs):
    # Near a resonance the solve loses the two digits of 1 / damping.
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-11 * np.abs(theirs).max())


@pytest.mark.parametrize(("kind", "derivatives"), [("receptance", 0), ("mobility", 1), ("accelerance", 2)])
def test_against_inverse(kind, derivatives):
    rows = tool_rows(POSTURE)[:3]
    assert_close(frf(MODEL, POSTURE, FREQUENCY, kind=kind), by_inverse(POSTURE, rows, rows, derivatives))


def test_accelerance_is_the_default():
    assert_close(frf(MODEL, POSTURE, FREQUENCY), frf(MODEL, POSTURE, FREQUENCY, kind="accelerance"))


def test_outputs_and_inputs_elsewhere():
    """Hammer on the second body's own frame, moments at the tool, a reversed sensor."""
    tool = tool_rows(POSTURE)
    rotation = np.asarray(frame_pose(MODEL, POSTURE, "link2"))[:3, :3]
    link2 = rotation.T @ np.asarray(frame_jacobian(MODEL, POSTURE, "link2"))[:3]
    outputs, inputs = [("tool", "-x"), ("link2", "y"), ("tool", "rz")], [("tool", "z"), ("link2", "-y")]
    found = frf(MODEL, POSTURE, FREQUENCY, outputs=outputs, inputs=inputs, kind="receptance")
    out_rows, in_rows = np.stack([-tool[0], link2[1], tool[5]]), np.stack([tool[2], -link2[1]])
    assert_close(found, by_inverse(POSTURE, out_rows, in_rows, 0))
    # Where only one end is given the other is the same.
    both = frf(MODEL, POSTURE, FREQUENCY, inputs=inputs, kind="receptance")
    assert_close(both, by_inverse(POSTURE, in_rows, in_rows, 0))


@given(q=st.lists(st.floats(-3.1, 3.1), min_size=3, max_size=3).map(np.array))
@settings(max_examples=15, deadline=None, derandomize=True)
def test_reciprocity(q):
    H = np.asarray(frf(MODEL, q, FREQUENCY, kind="receptance"))
    assert_close(H, H.transpose(0, 2, 1))


def test_one_mass():
    """H = 1 / (k + j w c - w^2 m)."""
    machine = {
        "name": "m",
        "body": [
            {
                "name": "b",
                "mass": 2.0,
                "joint": [{"name": "x", "axis": [1, 0, 0], "type": "prismatic", "stiffness": 800, "damping": 3}],
            }
        ],
    }
    model = build_model(Machine.model_validate(machine))
    w = 2 * np.pi * FREQUENCY
    expected = 1 / (800 + 3j * w - 2 * w**2)
    found = frf(model, np.zeros(1), FREQUENCY, frame="b", kind="receptance")
    np.testing.assert_allclose(found[:, 0, 0], expected, rtol=1e-12)
    assert float(jnp.abs(found[:, 1:, :]).max()) == 0.0


def test_equilibrium_changes_the_response_a_little():
    """The machine sags by less than a milliradian, so the response moves, by less than a per cent far from peaks."""
    at_posture = np.asarray(frf(MODEL, POSTURE, FREQUENCY, kind="receptance"))
    sagged = np.asarray(frf(MODEL, POSTURE, FREQUENCY, kind="receptance", at="equilibrium"))
    change = np.abs(sagged - at_posture)[1].max() / np.abs(at_posture[1]).max()
    assert 1e-6 < change < 1e-2


def test_finite_force_of_a_hinge():
    """A lever of length L turns by a + j b = F L / (k + j w c - w^2 I); the parts of H F are L sin and L (cos - 1) of
    a and of b."""
    length, inertia, k, c, force = 0.8, 2.0 + 5.0 * 0.3**2, 3e3, 40.0, 900.0
    joint = {"name": "q", "axis": [0.0, 0.0, 1.0], "stiffness": k, "damping": c}
    lever = {"name": "lever", "joint": [joint], "mass": 5.0, "center_of_mass": [0.3, 0.0, 0.0]}
    lever["inertia_products"] = {"xx": 2.0, "yy": 2.0, "zz": 2.0}
    frame = [{"name": "tool", "body": "lever", "origin": {"xyz": [length, 0.0, 0.0]}}]
    machine = Machine.model_validate({"name": "lever", "gravity": [0.0] * 3, "body": [lever], "frame": frame})
    omega = 2 * np.pi * FREQUENCY
    angle = force * length / (k + 1j * c * omega - inertia * omega**2)
    expected = np.zeros((FREQUENCY.size, 3, 3), complex)
    expected[:, 1, 1] = length * (np.sin(angle.real) + 1j * np.sin(angle.imag)) / force
    expected[:, 0, 1] = length * (np.cos(angle.real) - 1.0 + 1j * (np.cos(angle.imag) - 1.0)) / force
    found = frf_finite_force(build_model(machine), np.zeros(1), FREQUENCY, kind="receptance", force_n=force)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12 * np.abs(expected).max())
    with pytest.raises(ValueError, match="force_n holds 0, expected finite numbers of at least 1e-09"):
        frf_finite_force(build_model(machine), np.zeros(1), FREQUENCY, force_n=0)


@pytest.mark.parametrize(("machine", "each_newton"), [("manipulator-3r", 1.000e-5), ("kuka-kr90", 8.855e-6)])
def test_how_far_a_finite_force_is_off(machine, each_newton):
    """Over the largest value, from 1 to 30 Hz: linear in the force up to 10 kN, to 1 %."""
    model = build_model(load_machine(machine))
    q, frequency = reference_posture(model), np.arange(1.0, 30.1, 0.2)
    exact = np.asarray(frf(model, q, frequency))
    for force in (0.1, 1.0, 1e4):
        off = np.abs(np.asarray(frf_finite_force(model, q, frequency, force_n=force)) - exact).max()
        assert off / np.abs(exact).max() == pytest.approx(each_newton * force, rel=0.01 if force > 1.0 else 1e-3)


def test_convert():
    accelerance = frf(MODEL, POSTURE, FREQUENCY)
    receptances = frf(MODEL, POSTURE, FREQUENCY, kind="receptance")
    assert_close(convert_frf(receptances, FREQUENCY, "receptance", "accelerance"), accelerance)
    back = convert_frf(accelerance[1:], FREQUENCY[1:], "accelerance", "receptance")
    assert_close(back, receptances[1:])
    assert_close(convert_frf(accelerance, FREQUENCY, "accelerance", "accelerance"), accelerance)
    with pytest.raises(ValueError, match="a mobility at 0 Hz has no receptance"):
        convert_frf(accelerance, FREQUENCY, "mobility", "receptance")
    with pytest.raises(ValueError, match="kind is 'inertance', expected one of receptance, mobility, accelerance"):
        convert_frf(accelerance, FREQUENCY, "inertance", "receptance")


def test_wrong_input_is_refused():
    with pytest.raises(ValueError, match=r"frequency_hz: found a single number, expected a list of frequencies"):
        frf(MODEL, POSTURE, 5.0)
    with pytest.raises(ValueError, match="frame 'tol' does not exist, did you mean 'tool'"):
        frf(MODEL, POSTURE, FREQUENCY, frame="tol")
    with pytest.raises(
        ValueError, match=r"point \('tool', 'w'\): expected \(frame, direction\), direction one of x, y"
    ):
        frf(MODEL, POSTURE, FREQUENCY, outputs=[("tool", "w")])
    with pytest.raises(ValueError, match="kind is 'inertance', expected one of receptance, mobility, accelerance"):
        frf(MODEL, POSTURE, FREQUENCY, kind="inertance")
    with pytest.raises(ValueError, match=r"q has shape \(2,\), expected \(3,\)"):
        frf(MODEL, np.zeros(2), FREQUENCY)


@pytest.mark.parametrize("same_rows", [True, False])
def test_derivative_of_receptance(same_rows):
    """Every argument moved at once, in both modes, against central differences."""
    rng = np.random.default_rng(0)

    def symmetric(scale):
        a = rng.normal(size=(4, 4))
        return jnp.array(scale * (a @ a.T + 4 * np.eye(4)))

    arguments = (symmetric(1.0), symmetric(1.0), symmetric(50.0), jnp.array([0.5, 4.0, 9.0]))
    rows = (jnp.array(rng.normal(size=(2, 4))), jnp.array(rng.normal(size=(3, 4))))
    tangents = (symmetric(0.3), symmetric(0.3), symmetric(20.0), jnp.array([0.3, -0.2, 1.0]))
    row_tangents = (jnp.array(rng.normal(size=(2, 4))), jnp.array(rng.normal(size=(3, 4))))
    if same_rows:
        rows, row_tangents = rows[:1], row_tangents[:1]

    @jax.jit
    def response(*x):
        h = receptance(*x, x[-1]) if same_rows else receptance(*x)
        return jnp.stack([h.real, h.imag])

    x, dx = (*arguments, *rows), (*tangents, *row_tangents)
    _, forward = jax.jvp(response, x, dx)
    step = 1e-5
    ahead, behind = ([a + sign * step * d for a, d in zip(x, dx, strict=True)] for sign in (1, -1))
    numeric = (response(*ahead) - response(*behind)) / (2 * step)
    # Central differences: 1e-16 / 1e-5 from rounding, 1e-10 from truncation, times condition and third derivatives.
    np.testing.assert_allclose(forward, numeric, atol=1e-8 * float(jnp.abs(forward).max()))
    value, pull_back = jax.vjp(response, *x)
    weights = rng.normal(size=value.shape)
    gradient = pull_back(jnp.array(weights))
    together = sum(jnp.sum(g * d) for g, d in zip(gradient, dx, strict=True))
    np.testing.assert_allclose(together, np.sum(weights * forward), rtol=1e-10)
