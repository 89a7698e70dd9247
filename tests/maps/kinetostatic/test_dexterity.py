"""Dexterity against NumPy, Pinocchio and closed forms; the published zones of the KR240."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb
from jaxmb.machine.schema import Machine
from jaxmb.maps import (
    characteristic_length,
    dexterity,
    inverse_condition,
    load_influence,
    principal_stiffness,
    stiffness_along,
    translational_compliance,
)
from jaxmb.maps.kinetostatic import loaded_joints_stiffness
from jaxmb.mechanics.compliance import complementary_stiffness, elastic_jacobian
from jaxmb.mechanics.kinematics import joints_moving_frame
from jaxmb.response.static import cartesian_stiffness

Q = jnp.array([0.1, 1.5, -2.9, 0.8, 0.8, 0.7])
LOAD = jnp.array([1000.0, -500.0, -2500.0, 300.0, 100.0, -200.0])


@pytest.fixture(scope="module")
def robot():
    return jaxmb.build_model(jaxmb.load_machine("kuka-kr240"))


def planar(count, last="revolute"):
    """Links of 1 m in the plane, with a frame at the end."""
    body = [
        {
            "name": f"b{i}",
            "parent": f"b{i - 1}" if i else "ground",
            "origin": {"xyz": [1.0 if i else 0.0, 0.0, 0.0]},
            "joint": [{"name": f"q{i}", "axis": [0, 0, 1], "stiffness": 1e4}],
        }
        for i in range(count)
    ]
    if last == "prismatic":
        body[-1]["joint"][0] |= {"type": "prismatic", "axis": [1, 0, 0]}
    frame = [{"name": "tool", "body": f"b{count - 1}", "origin": {"xyz": [1.0, 0.0, 0.0]}}]
    return jaxmb.build_model(Machine.model_validate({"name": "planar", "body": body, "frame": frame}))


def test_printed_formula(robot):
    jacobian = np.asarray(jaxmb.frame_jacobian(robot, Q, "tool"))
    normal = np.diag([1 / 0.8] * 3 + [1] * 3) @ jacobian
    gram = normal.T @ normal
    expected = 6 / np.sqrt(np.trace(gram) * np.trace(np.linalg.inv(gram)))
    # eq. 7 squares the Jacobian, and with it the rounding
    assert float(dexterity(robot, Q, "tool", 0.8)) == pytest.approx(expected, rel=1e-12)


def test_isotropic_two_link_arm():
    # Angeles, Fundamentals of robotic mechanical systems: links in the ratio sqrt(2) : 1 at 135 deg are isotropic
    data = {
        "name": "two",
        "body": [
            {"name": "a", "joint": [{"name": "q1"}]},
            {"name": "b", "parent": "a", "origin": {"xyz": [2**0.5, 0, 0]}, "joint": [{"name": "q2"}]},
        ],
        "frame": [{"name": "tool", "body": "b", "origin": {"xyz": [1.0, 0, 0]}}],
    }
    model = jaxmb.build_model(Machine.model_validate(data))
    q = jnp.array([0.3, np.radians(135.0)])
    for length in (0.1, 1.0, 7.0):  # which does not matter where only translations count
        assert float(dexterity(model, q, "tool", length, directions=("x", "y"))) == pytest.approx(1.0, abs=1e-12)


def test_singular_is_zero_without_nan(robot):
    wrist = Q.at[4].set(0.0)
    assert float(dexterity(robot, wrist)) == 0.0
    gradient = jax.jit(jax.grad(lambda q: dexterity(robot, q)))
    assert np.all(np.isfinite(gradient(wrist)))
    assert np.all(np.isfinite(gradient(Q)))
    assert float(inverse_condition(jnp.zeros((6, 6)))) == 0.0


@pytest.mark.parametrize(("count", "directions", "smaller"), [(3, ("x", "y", "rz"), 3), (5, ("x", "y", "rz"), 3),
                                                              (3, None, 3), (2, None, 2)])  # fmt: skip
def test_other_sizes_by_the_smaller_gram_matrix(count, directions, smaller):
    model = planar(count)
    q = jnp.asarray(np.random.default_rng(0).uniform(0.3, 1.2, count))
    rows = [0, 1, 5] if directions else range(6)
    matrix = np.diag([0.5] * 3 + [1] * 3)[rows] @ np.asarray(jaxmb.frame_jacobian(model, q, "tool"))
    gram = matrix @ matrix.T if len(matrix) == smaller else matrix.T @ matrix
    expected = smaller / np.sqrt(np.trace(gram) * np.trace(np.linalg.inv(gram)))
    found = dexterity(model, q, "tool", 2.0, directions=directions or ("x", "y", "z", "rx", "ry", "rz"))
    assert float(found) == pytest.approx(expected, rel=1e-12)


def test_units_do_not_matter_with_a_prismatic_joint():
    # the same machine drawn twice as large, with twice the length, is as dextrous
    small = planar(3, "prismatic")
    large = jaxmb.build_model(
        Machine.model_validate(
            {
                "name": "large",
                "body": [
                    {"name": "a", "joint": [{"name": "q0"}]},
                    {"name": "b", "parent": "a", "origin": {"xyz": [2.0, 0, 0]}, "joint": [{"name": "q1"}]},
                    {"name": "c", "parent": "b", "origin": {"xyz": [2.0, 0, 0]},
                     "joint": [{"name": "q2", "type": "prismatic", "axis": [1, 0, 0]}]},
                ],
                "frame": [{"name": "tool", "body": "c", "origin": {"xyz": [2.0, 0, 0]}}],
            }
        )
    )  # fmt: skip
    a = dexterity(small, jnp.array([0.2, 0.7, 0.4]), "tool", 0.9)
    b = dexterity(large, jnp.array([0.2, 0.7, 0.8]), "tool", 1.8)
    assert 0.0 < float(a) == pytest.approx(float(b), rel=1e-12)


def test_characteristic_length_against_its_closed_form(robot):
    postures = np.random.default_rng(3).uniform(-1.5, 1.5, (200, 6))
    jacobian = np.asarray(jax.jit(jax.vmap(lambda q: elastic_jacobian(robot, q, "tool")))(postures))
    inverse = np.linalg.inv(jacobian)
    # kappa^2 m^2 = (a / L^2 + b) (c L^2 + d) is least at L^4 = a d / b c
    a, b = np.sum(jacobian[:, :3] ** 2, (1, 2)), np.sum(jacobian[:, 3:] ** 2, (1, 2))
    c, d = np.sum(inverse[:, :, :3] ** 2, (1, 2)), np.sum(inverse[:, :, 3:] ** 2, (1, 2))
    best = int(np.argmax(6 / (np.sqrt(a * c) + np.sqrt(b * d))))
    expected = (a * d / (b * c))[best] ** 0.25
    # a minimum is flat: its place is known to the root of the rounding
    assert characteristic_length(robot, jnp.asarray(postures)) == pytest.approx(expected, rel=1e-6)


def test_characteristic_length_of_all_postures_of_a_map(robot):
    # the best posture of this map is one of 40 425, which no even subsample of some thousand meets
    q2, q3 = np.meshgrid(np.radians(np.arange(0, 147)), np.radians(np.arange(-245, 30)), indexing="ij")
    postures = np.tile(np.asarray(jaxmb.reference_posture(robot)), (q2.size, 1))
    postures[:, 1], postures[:, 2] = q2.ravel(), q3.ravel()
    jacobian = np.asarray(jax.jit(jax.vmap(lambda q: elastic_jacobian(robot, q, "tool")))(jnp.asarray(postures)))
    jacobian = jacobian[np.abs(np.linalg.det(jacobian)) > 1e-9]
    inverse = np.linalg.inv(jacobian)
    a, b = np.sum(jacobian[:, :3] ** 2, (1, 2)), np.sum(jacobian[:, 3:] ** 2, (1, 2))
    c, d = np.sum(inverse[:, :, :3] ** 2, (1, 2)), np.sum(inverse[:, :, 3:] ** 2, (1, 2))
    best = int(np.argmax(6 / (np.sqrt(a * c) + np.sqrt(b * d))))
    expected = (a * d / (b * c))[best] ** 0.25
    assert characteristic_length(robot, jnp.asarray(postures)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("count", "last", "directions"),
    [
        (3, "prismatic", ("x", "y", "rz")),
        (5, "prismatic", ("x", "y", "rz")),
        (4, "revolute", ("x", "y", "rz")),
        (2, "revolute", ("x", "y", "rz")),
    ],
)
def test_characteristic_length_of_other_sizes(count, last, directions):
    model = planar(count, last)
    postures = jnp.asarray(np.random.default_rng(5).uniform(0.3, 2.4, (40, count)))
    length = characteristic_length(model, postures, "tool", directions=directions)

    @jax.jit
    def best(length):
        return jnp.max(jax.vmap(lambda q: dexterity(model, q, "tool", length, directions=directions))(postures))

    # no length of a fine grid is better, to the square of the width at which the search ends
    assert float(best(length)) >= max(float(best(x)) for x in np.geomspace(1e-2, 1e2, 400)) * (1.0 - 1e-12)


def test_characteristic_length_where_none_is_best():
    postures = jnp.asarray(np.random.default_rng(6).uniform(0.3, 1.2, (20, 2)))
    assert characteristic_length(planar(2), postures, "tool", directions=("x", "y")) == 1.0  # of one unit
    # three joints judged by six directions: at the best posture rotations are best not counted
    arm = jaxmb.build_model(jaxmb.load_machine("manipulator-3r"))
    z2, z3 = np.meshgrid(np.linspace(-2, 2, 20), np.linspace(-2, 2, 21))
    postures = jnp.stack([jnp.zeros(z2.size), jnp.asarray(z2.ravel()), jnp.asarray(z3.ravel())], axis=-1)
    assert characteristic_length(arm, postures) == 1e-3


def test_against_pinocchio(robot):
    import pinocchio as pin

    other, parent = pin.Model(), 0
    for i, name in enumerate(robot.coordinates):
        origin = np.asarray(robot.origin[i])
        parent = other.addJoint(parent, pin.JointModelRZ(), pin.SE3(origin[:3, :3], origin[:3, 3]), name)
    offset = np.asarray(robot.frame_offset[robot.frames.index("tool")])
    tool = other.addFrame(pin.Frame("tool", parent, 0, pin.SE3(offset[:3, :3], offset[:3, 3]), pin.FrameType.OP_FRAME))
    data = other.createData()
    for q in np.random.default_rng(1).uniform(-2, 2, (20, 6)):
        jacobian = pin.computeFrameJacobian(other, data, q, tool, pin.LOCAL_WORLD_ALIGNED)
        size = np.linalg.svd(np.diag([1 / 1.3] * 3 + [1] * 3) @ jacobian, compute_uv=False)
        expected = 6 / np.sqrt(np.sum(size**2) * np.sum(size**-2.0))
        assert float(dexterity(robot, jnp.asarray(q), "tool", 1.3)) == pytest.approx(expected, rel=1e-9)


def test_moving_joints_and_wrong_names(robot):
    assert joints_moving_frame(robot, "q3") == ("q1", "q2", "q3")
    assert joints_moving_frame(robot, "tool", ("q5", "q2")) == ("q2", "q5")
    for change, sentence in [
        ({"joints": ("q9",)}, "joints: coordinate 'q9' does not exist"),
        ({"joints": ("q1", "q1")}, "every coordinate once"),
        ({"frame": "ground"}, "none of them moves frame 'ground'"),
        ({"frame": "tol"}, "frame 'tol' does not exist"),
        ({"directions": ("x", "w")}, "directions: component 'w'"),
        ({"directions": ()}, "directions: none"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            dexterity(robot, Q, **change)
    with pytest.raises(ValueError, match="singular at all postures"):
        characteristic_length(robot, jnp.zeros((3, 6)).at[:, 1].set(jnp.arange(3.0)))
    with pytest.raises(ValueError, match="length holds -1, expected finite numbers of at least 1e-09"):
        dexterity(robot, Q, length=-1.0)
    with pytest.raises(ValueError, match=r"postures have shape \(6,\), expected \(number of postures, 6\)"):
        characteristic_length(robot, Q)
    for call in (
        lambda q: dexterity(robot, q),
        lambda q: load_influence(robot, q, "tool", LOAD),
        lambda q: translational_compliance(robot, q, "tool"),
    ):
        with pytest.raises(ValueError, match=r"q has shape \(7,\), expected \(6,\): one value a coordinate"):
            call(np.zeros(7))
    with pytest.raises(ValueError, match="wrench holds nan, expected finite numbers"):
        load_influence(robot, Q, "tool", [np.nan] * 6)


def test_closed_form_of_the_complementary_stiffness():
    rng = np.random.default_rng(2)
    for name in ("kuka-kr240", "kuka-kr90"):  # the second has prismatic joints, and several to a body
        model = jaxmb.build_model(jaxmb.load_machine(name))
        q = jnp.asarray(rng.normal(size=len(model.coordinates)))
        for frame in ("tool", model.frames[2]):
            jacobian = jax.jit(lambda q, m=model, f=frame: elastic_jacobian(m, q, f))(q)
            found = loaded_joints_stiffness(model, jacobian, LOAD)
            expected = np.asarray(jax.jit(lambda q, m=model, f=frame: complementary_stiffness(m, q, f, LOAD))(q))
            assert np.allclose(found, expected, atol=1e-13 * max(np.abs(expected).max(), 1.0))


def test_influence_of_the_load_by_the_stiffness_matrices(robot):
    with_load = np.linalg.solve(np.asarray(cartesian_stiffness(robot, Q, "tool", LOAD)), LOAD)
    without = np.linalg.solve(np.asarray(cartesian_stiffness(robot, Q, "tool")), LOAD)
    sizes = [np.linalg.norm(d[:3]) for d in (with_load, without)]
    influence = jax.jit(lambda load: load_influence(robot, Q, "tool", load))
    nu_p, nu_r = influence(LOAD)
    # differences of 1e-3 of the displacements, which K_X by two inversions has to some 1e-11
    assert float(nu_p) == pytest.approx(abs(sizes[0] - sizes[1]) / max(sizes), rel=1e-7)
    assert float(nu_r) == pytest.approx(np.abs(with_load - without)[3:].max(), rel=1e-7)
    assert [float(x) for x in influence(jnp.zeros(6))] == [0.0, 0.0]


def test_influence_with_virtual_springs(robot):
    data = jaxmb.load_machine("kuka-kr240").model_dump()
    spring = {"name": "link3", "body": "q3", "origin": {"xyz": [1.0, 0, 0]}, "diagonal": [1e-8] * 3 + [1e-7] * 3}
    elastic = jaxmb.build_model(Machine.model_validate(data | {"virtual_spring": [spring]}))
    with_load = np.linalg.solve(np.asarray(cartesian_stiffness(elastic, Q, "tool", LOAD)), LOAD)
    without = np.linalg.solve(np.asarray(cartesian_stiffness(elastic, Q, "tool")), LOAD)
    influence = jax.jit(lambda q: load_influence(elastic, q, "tool", LOAD))(Q)
    assert float(influence[1]) == pytest.approx(np.abs(with_load - without)[3:].max(), rel=1e-7)


def test_stiffness_by_direction(robot):
    """Of two links at a right angle by hand, J = [-1 -1; 1 0] m and C = J J^T / 1e4; of a robot by NumPy."""

    @jax.jit
    def compliance(model, q):
        return translational_compliance(model, q, "tool")[:, :3]

    along, principal = jax.jit(stiffness_along), jax.jit(principal_stiffness)
    flat = compliance(planar(2), np.array([0.0, np.pi / 2]))
    for direction, expected in (([1.0, 0.0, 0.0], 5e3), ([0.0, -2.0, 0.0], 1e4), ([3.0, 3.0, 0.0], 2e4)):
        assert float(along(flat, np.array(direction))) == pytest.approx(expected, rel=1e-12)
    assert float(along(flat, np.array([0.0, 0.0, 1.0]))) == np.inf
    assert float(principal(flat)[0]) == pytest.approx(2e4 / (3.0 + np.sqrt(5.0)), rel=1e-12)
    assert float(principal(flat)[1]) == np.inf
    unknown = np.full((3, 3), np.nan)  # of an unstable machine
    assert np.isnan([along(unknown, np.array([1.0, 0.0, 0.0])), *principal(unknown)]).all()
    jacobian = np.asarray(jaxmb.frame_jacobian(robot, Q, "tool"))[:3]
    values = np.linalg.eigvalsh(jacobian @ np.diag(1.0 / np.asarray(robot.stiffness)) @ jacobian.T)
    np.testing.assert_allclose(principal(compliance(robot, Q)), [1.0 / values[2], 1.0 / values[0]], rtol=1e-9)
