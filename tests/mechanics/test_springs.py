"""Springs between frames, and where a machine comes to rest, against closed forms."""

import equinox as eqx
import jax
import numpy as np
import pytest
from scipy.optimize import brentq

from jaxmb.machine.schema import Machine, Spring
from jaxmb.mechanics import dynamics
from jaxmb.mechanics.compliance import compliance_matrix
from jaxmb.mechanics.equilibrium import static_equilibrium
from jaxmb.mechanics.postures import build_model
from jaxmb.mechanics.tangent import linearize

K, D = 250.0, 7.0
elastic_effort = eqx.filter_jit(dynamics.elastic_effort)


def chain(kinds, axis, spring, frames=()):
    """Bodies in series, each on one coordinate along or about `axis`, and one spring."""
    bodies = [
        {
            "name": f"b{i}",
            "parent": f"b{i - 1}" if i else "ground",
            "mass": 1.0,
            "inertia_tensor": np.eye(3),
            "joint": [{"name": f"q{i}", "type": kind, "axis": axis}],
        }
        for i, kind in enumerate(kinds)
    ]
    spring = {"name": "spring", "stiffness": K, "damping": D} | spring
    return build_model(Machine.model_validate({"name": "m", "body": bodies, "frame": list(frames), "spring": [spring]}))


def test_translation_between_two_moving_bodies():
    model = chain(
        ["prismatic", "prismatic"],
        [1, 0, 0],
        {"type": "translation", "frame_a": "b0", "frame_b": "b1", "direction": [1, 0, 0]},
    )
    # In relative coordinates the second one is the stretch itself.
    effort = elastic_effort(model, np.array([0.3, 0.2]), np.array([1.0, -2.0]), np.array([0.1, 0.05]))
    np.testing.assert_allclose(effort, [0.0, K * 0.15 - D * 2.0], rtol=1e-12, atol=1e-12)


def test_translation_along_a_slanted_direction_of_a_turned_frame():
    """The direction (0.6, 0.8, 0) of a frame turned by 90 degrees about z is (-0.8, 0.6, 0) on the ground."""
    model = chain(
        ["prismatic"],
        [1, 0, 0],
        {"type": "translation", "frame_a": "wall", "frame_b": "b0", "direction": [0.6, 0.8, 0]},
        frames=[{"name": "wall", "body": "ground", "origin": {"xyz": [1, 2, 3], "rpy": [0, 0, "90 deg"]}}],
    )
    effort = elastic_effort(model, np.array([0.5]), np.array([0.4]), np.array([0.2]))
    np.testing.assert_allclose(effort, [0.8**2 * (K * 0.3 + D * 0.4)], rtol=1e-12)


def test_translation_at_a_lever():
    """Stretch r (sin q - sin q_rest) of a spring along y at radius r; effort k s r cos q + d r^2 cos^2 q qd."""
    r, q, qd, rest = 0.4, 0.9, 1.3, 0.2
    model = chain(
        ["revolute"],
        [0, 0, 1],
        {"type": "translation", "frame_a": "ground", "frame_b": "tip", "direction": [0, 1, 0]},
        frames=[{"name": "tip", "body": "b0", "origin": {"xyz": [r, 0, 0]}}],
    )
    stretch = r * (np.sin(q) - np.sin(rest))
    expected = K * stretch * r * np.cos(q) + D * (r * np.cos(q)) ** 2 * qd
    effort = elastic_effort(model, np.array([q]), np.array([qd]), np.array([rest]))
    np.testing.assert_allclose(effort, [expected], rtol=1e-12)
    tangent = linearize(model, np.array([q]))
    np.testing.assert_allclose(tangent.stiffness, [[K * (r * np.cos(q)) ** 2]], rtol=1e-10)
    np.testing.assert_allclose(tangent.damping, [[D * (r * np.cos(q)) ** 2]], rtol=1e-10)


def test_rotation_to_ground_over_two_joints():
    """A torsion spring from the ground to the second body feels the sum of both angles, large ones too."""
    model = chain(
        ["revolute", "revolute"],
        [0, 0, 1],
        {"type": "rotation", "frame_a": "ground", "frame_b": "b1", "direction": [0, 0, 1]},
    )
    q, qd, rest = np.array([1.5, 0.9]), np.array([0.3, 0.5]), np.array([0.1, -0.2])
    expected = K * 2.5 + D * 0.8
    np.testing.assert_allclose(elastic_effort(model, q, qd, rest), [expected, expected], rtol=1e-12)
    np.testing.assert_allclose(linearize(model, q).stiffness, K * np.ones((2, 2)), rtol=1e-10)


def test_rotation_of_a_turned_frame_sees_its_own_axis_only():
    """Rotation about z, direction z of a frame tilted by 60 degrees about x: half of it is felt, and half fed back."""
    model = chain(
        ["revolute"],
        [0, 0, 1],
        {"type": "rotation", "frame_a": "tilted", "frame_b": "b0", "direction": [0, 0, 1]},
        frames=[{"name": "tilted", "body": "ground", "origin": {"rpy": ["60 deg", 0, 0]}}],
    )
    effort = elastic_effort(model, np.array([0.8]), np.array([0.5]), np.array([0.3]))
    np.testing.assert_allclose(effort, [0.25 * (K * 0.5 + D * 0.5)], rtol=1e-12)


MASS, LENGTH, STIFFNESS = 5.0, 0.8, 90.0


@pytest.fixture(scope="module")
def pendulum():
    """A mass at a distance along x from a horizontal axis y: gravity gives k (q - q_rest) = m g l cos q."""
    return build_model(
        Machine.model_validate(
            {
                "name": "pendulum",
                "body": [
                    {
                        "name": "bob",
                        "mass": MASS,
                        "center_of_mass": [LENGTH, 0, 0],
                        "joint": [{"name": "q", "axis": [0, 1, 0], "stiffness": STIFFNESS}],
                    }
                ],
                "frame": [{"name": "tip", "body": "bob", "origin": {"xyz": [LENGTH, 0, 0]}}],
            }
        )
    )


def test_pendulum_on_a_spring_comes_to_rest(pendulum):
    rest, weight = 0.2, MASS * 9.81 * LENGTH
    expected = brentq(lambda q: STIFFNESS * (q - rest) - weight * np.cos(q), -1, 2, xtol=1e-15)
    q = static_equilibrium(pendulum, np.array([rest]))
    # Newton's last step is below 1e-10 and converges quadratically.
    np.testing.assert_allclose(q, [expected], atol=1e-10)
    tangent = linearize(pendulum, np.array([rest]), at="equilibrium")
    np.testing.assert_allclose(tangent.stiffness, [[STIFFNESS + weight * np.sin(expected)]], rtol=1e-9)
    tangent = linearize(pendulum, np.array([rest]))
    np.testing.assert_allclose(tangent.stiffness, [[STIFFNESS + weight * np.sin(rest)]], rtol=1e-12)


def test_pendulum_under_a_wrench(pendulum):
    """A force f along -z at the tip adds f l cos q, a moment about y adds itself."""
    force, moment = 12.0, 3.0
    pull = (MASS * 9.81 + force) * LENGTH
    expected = brentq(lambda q: STIFFNESS * q - pull * np.cos(q) - moment, -1, 2, xtol=1e-15)
    wrench = np.array([0, 0, -force, 0, moment, 0])
    np.testing.assert_allclose(static_equilibrium(pendulum, np.zeros(1), "tip", wrench), [expected], atol=1e-10)


def test_equilibrium_is_differentiated_implicitly(pendulum):
    """dq/dk = -(q - q_rest) / (k + m g l sin q)."""
    rest, weight = np.array([0.2]), MASS * 9.81 * LENGTH

    def equilibrium(k):
        return static_equilibrium(eqx.tree_at(lambda m: m.stiffness, pendulum, k), rest)[0]

    k = np.array([STIFFNESS])
    q = float(equilibrium(k))
    expected = -(q - 0.2) / (STIFFNESS + weight * np.sin(q))
    np.testing.assert_allclose(jax.grad(equilibrium)(k), [expected], rtol=1e-8)
    np.testing.assert_allclose(jax.jacfwd(equilibrium)(k), [expected], rtol=1e-8)


def test_no_equilibrium_without_stiffness():
    falling = build_model(
        Machine.model_validate(
            {
                "name": "falling",
                "body": [{"name": "stone", "mass": 1.0, "joint": [{"name": "z", "type": "prismatic"}]}],
            }
        )
    )
    with pytest.raises(RuntimeError, match="no static equilibrium was found"):
        static_equilibrium(falling, np.zeros(1))


def test_wrong_loads_are_refused(pendulum):
    with pytest.raises(ValueError, match="both a frame and a wrench"):
        static_equilibrium(pendulum, np.zeros(1), frame="tip")
    with pytest.raises(ValueError, match=r"wrench has shape \(3,\), expected \(6,\)"):
        static_equilibrium(pendulum, np.zeros(1), "tip", np.zeros(3))
    with pytest.raises(ValueError, match="at is 'rest', expected one of posture, equilibrium"):
        linearize(pendulum, np.zeros(1), at="rest")


def test_a_spring_along_a_line():
    """A gravity compensator: cylinder at the origin's side, piston on the arm; all by its energy k (s - s0)^2 / 2."""
    ends = [{"name": "cylinder", "body": "ground", "origin": {"xyz": [-0.4, 0.0, 0.0]}},
            {"name": "piston", "body": "b0", "origin": {"xyz": [0.0, 0.3, 0.0]}}]  # fmt: skip
    model = chain(["revolute"], [0, 0, 1], {"type": "length", "frame_a": "cylinder", "frame_b": "piston",
                                            "free_length": 0.35}, ends)  # fmt: skip

    def length(q):
        return np.hypot(0.4 - 0.3 * np.sin(q), 0.3 * np.cos(q))

    q, h = np.array([0.4]), 1e-4
    energy = [0.5 * K * (length(q[0] + s * h) - 0.35) ** 2 for s in (-1, 0, 1)]
    effort = elastic_effort(model, q, np.zeros(1), q)
    assert effort[0] == pytest.approx((energy[2] - energy[0]) / (2 * h), rel=1e-7)
    second = (energy[2] - 2 * energy[1] + energy[0]) / h**2
    assert linearize(model, q).stiffness[0, 0] == pytest.approx(second, rel=1e-5)
    assert 1.0 / eqx.filter_jit(compliance_matrix)(model, q)[0, 0] == pytest.approx(second, rel=1e-5)


def test_what_a_spring_needs():
    with pytest.raises(ValueError, match="type is 'length', expected free_length and no direction"):
        Spring(name="a", frame_a="x", frame_b="y", type="length", direction=(1, 0, 0))
    with pytest.raises(ValueError, match="type is 'rotation', expected direction and no free_length"):
        Spring(name="a", frame_a="x", frame_b="y", type="rotation", direction=(1, 0, 0), free_length=1.0)
