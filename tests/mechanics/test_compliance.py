"""Elastic Jacobians, Cartesian stiffness and deflections against automatic differentiation and nonlinear equilibria."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb
from jaxmb.identify.study.study import make_study
from jaxmb.machine.beam import Beam, VirtualSpring, beam_compliance
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.compliance import cartesian_compliance, compliance_matrix, elastic_deflection, elastic_jacobian
from jaxmb.mechanics.kinematics import frame_index, node_poses, pose_change_to_twist, whole
from jaxmb.response.static import cartesian_stiffness, deflection
from jaxmb.spatial import vee

Q = jnp.array([0.1, 1.5, -2.9, 0.8, 0.8, 0.7])
LOAD = jnp.array([1000.0, -500.0, -2500.0, 300.0, 100.0, -200.0])


@pytest.fixture(scope="module")
def rigid():
    return jaxmb.build_model(jaxmb.load_machine("kuka-kr240"))


@pytest.fixture(scope="module")
def elastic():
    """The KR240 with a full random compliance at the end of three links, and in one joint."""
    data, rng = jaxmb.load_machine("kuka-kr240").model_dump(), np.random.default_rng(0)
    springs = []
    for number, body in enumerate(("ground", "q2", "q6")):
        factor = rng.normal(size=(6, 6))
        origin = {"xyz": rng.normal(size=3).tolist(), "rpy": rng.normal(size=3).tolist()}
        springs.append({"name": f"link{number}", "body": body, "origin": origin,
                        "compliance": (1e-9 * factor @ factor.T).tolist()})  # fmt: skip
    springs.append({"name": "bearing3", "body": "q3", "at": "joint", "diagonal": [1e-9] * 6})
    return jaxmb.build_model(Machine.model_validate(data | {"virtual_spring": springs}))


def pose_at(model, q, e):
    index = frame_index(model, "tool")
    poses = node_poses(model, whole(model, q) + e)
    return poses[model.frame_node[index]] @ model.frame_offset[index]


@pytest.mark.parametrize("size", [0.0, 0.1])
def test_jacobian_is_the_derivative_of_the_pose(elastic, size):
    e = jnp.asarray(size * np.random.default_rng(1).normal(size=6 + 4 * 6))

    @jax.jit
    def both(x):
        change = jax.jacfwd(lambda y: pose_at(elastic, Q, y))(x)
        expected = pose_change_to_twist(pose_at(elastic, Q, x), change)
        return expected, elastic_jacobian(elastic, Q, "tool", x), elastic_jacobian(elastic, Q, "tool")

    expected, found, straight = both(e)
    assert np.allclose(found, expected, atol=1e-13)
    if size == 0.0:
        assert np.allclose(straight, expected, atol=1e-13)


@pytest.mark.parametrize("which", ["rigid", "elastic"])
@pytest.mark.parametrize("load", [0.0, 1.0])
def test_stiffness_is_the_derivative_of_the_nonlinear_equilibrium(which, load, request):
    model = request.getfixturevalue(which)
    wrench = load * LOAD

    @jax.jit
    def equilibrium(load):
        e = elastic_deflection(model, Q, "tool", load)
        return e, pose_at(model, Q, e)

    found, there = equilibrium(wrench)
    numeric = np.zeros((6, 6))
    for i in range(6):
        step = 10.0 * np.eye(6)[i]
        ends = [np.asarray(equilibrium(wrench + s)[1]) for s in (step, -step)]
        change = (ends[0] - ends[1]) / 20.0
        numeric[:, i] = np.concatenate([change[:3, 3], vee(change[:3, :3] @ np.asarray(there)[:3, :3].T)])
    stiffness = np.asarray(cartesian_stiffness(model, Q + found[:6], "tool", wrench if load else None))
    expected = np.linalg.inv(numeric)
    # the difference of two equilibria is known to rounding over its size, 1e-16 / 1e-6
    assert np.abs(stiffness - expected).max() <= 1e-7 * np.abs(expected).max()


def test_six_joints_by_the_printed_formula(rigid):
    jacobian = np.asarray(jaxmb.frame_jacobian(rigid, Q, "tool"))
    load = np.asarray(jax.jacfwd(lambda q: jaxmb.frame_jacobian(rigid, q, "tool").T @ LOAD)(Q))
    inverse = np.linalg.inv(jacobian)
    expected = inverse.T @ (np.diag(rigid.stiffness) - load) @ inverse
    assert np.allclose(cartesian_stiffness(rigid, Q, "tool", LOAD), expected, rtol=1e-9)


def test_beam_tip_against_the_cantilever():
    beam = Beam(length=2.0, young_modulus=2.1e11, shear_modulus=8e10, area=1e-3, second_moment_y=2e-6,
                second_moment_z=5e-6, torsion_constant=6e-6)  # fmt: skip
    machine = Machine.model_validate({
        "name": "cantilever", "body": [{"name": "mast", "joint": [{"name": "q", "stiffness": 1e3}]}],
        "frame": [{"name": "tip", "body": "mast", "origin": {"xyz": [2.0, 0.0, 0.0]}},
                  {"name": "root", "body": "ground"}],
        "virtual_spring": [{"name": "beam", "body": "mast", "origin": {"xyz": [2.0, 0, 0]}, "beam": beam}],
    })  # fmt: skip
    model = jaxmb.set_parameters(jaxmb.build_model(machine), {"stiffness.q": 0.0})
    force = jnp.array([0.0, 100.0, -50.0, 0.0, 0.0, 0.0])
    tip, root = deflection(model, jnp.zeros(1), "tip", force, ("tip", "root"))
    # w L^3 / 3 E I and w L^2 / 2 E I, Timoshenko
    expected = [0.0, 100 * 8 / (3 * 2.1e11 * 5e-6), -50 * 8 / (3 * 2.1e11 * 2e-6),
                0.0, 50 * 4 / (2 * 2.1e11 * 2e-6), 100 * 4 / (2 * 2.1e11 * 5e-6)]  # fmt: skip
    assert np.allclose(tip, expected, rtol=1e-12)
    assert not np.any(root)
    assert np.linalg.eigvalsh(beam_compliance(beam)).min() > 0.0


def test_against_pinocchio(rigid):
    import pinocchio as pin

    other = pin.Model()
    parent = 0
    for i, name in enumerate(rigid.coordinates):
        origin = np.asarray(rigid.origin[i])
        parent = other.addJoint(parent, pin.JointModelRZ(), pin.SE3(origin[:3, :3], origin[:3, 3]), name)
    offset = np.asarray(rigid.frame_offset[rigid.frames.index("tool")])
    tool = other.addFrame(pin.Frame("tool", parent, 0, pin.SE3(offset[:3, :3], offset[:3, 3]), pin.FrameType.OP_FRAME))
    jacobian = pin.computeFrameJacobian(other, other.createData(), np.asarray(Q), tool, pin.LOCAL_WORLD_ALIGNED)
    expected = np.linalg.inv(jacobian @ np.diag(1.0 / np.asarray(rigid.stiffness)) @ jacobian.T)
    stiffness = np.asarray(cartesian_stiffness(rigid, Q, "tool"))
    assert np.abs(stiffness - expected).max() <= 1e-11 * np.abs(expected).max()


def test_nonlinear_deflection_is_linear_for_small_loads(elastic):
    small = 1e-3 * LOAD
    linear = np.asarray(deflection(elastic, Q, "tool", small, ("tool", "q4")))
    assert np.allclose(deflection(elastic, Q, "tool", small, ("tool", "q4"), linear=False), linear, rtol=1e-5)
    large = np.asarray(deflection(elastic, Q, "tool", LOAD, linear=False) - deflection(elastic, Q, "tool", LOAD))
    assert 1e-8 < np.abs(large).max() < 1e-5


def test_springs_between_frames_share_the_load():
    machine = Machine.model_validate({
        "name": "slide", "body": [{"name": "cart", "joint": [{"name": "x", "type": "prismatic", "axis": [1, 0, 0],
                                                             "stiffness": 1000.0}]}],
        "spring": [{"name": "side", "frame_a": "ground", "frame_b": "cart", "type": "translation",
                    "direction": [1, 0, 0], "stiffness": 500.0}],
    })  # fmt: skip
    model = jaxmb.build_model(machine)
    load = jnp.array([30.0, 0, 0, 0, 0, 0])
    assert deflection(model, jnp.zeros(1), "cart", load)[0, 0] == pytest.approx(30.0 / 1500.0, rel=1e-14)


def slide(spring, compliance, origin=(0.0, 0.0, 0.0), **body):
    """A cart on a spring of 1000 N/m that carries a tip, behind a virtual spring, and a spring from there to ground."""
    joint = {"name": "x", "type": "prismatic", "axis": [1, 0, 0], "stiffness": 1000.0}
    return jaxmb.build_model(Machine.model_validate({
        "name": "slide", "body": [{"name": "cart", "joint": [joint]}, {"name": "tip", "parent": "cart", **body}],
        "frame": [{"name": "wall", "body": "ground", "origin": {"xyz": list(origin)}}],
        "virtual_spring": [{"name": "link", "body": "cart", "diagonal": compliance}],
        "spring": [{"name": "side", "frame_a": "wall", "frame_b": "tip", **spring}],
    }))  # fmt: skip


def test_a_spring_across_a_virtual_spring_is_parallel_to_both():
    model = slide({"type": "translation", "direction": [1, 0, 0], "stiffness": 500.0}, [1e-3, 0, 0, 0, 0, 0])

    @jax.jit
    def deflections(c):
        changed = jaxmb.set_parameters(model, {"compliance.link.x.x": c})
        at, load = jnp.zeros(1), jnp.array([1.0, 0, 0, 0, 0, 0])
        linear, nonlinear = (deflection(changed, at, "tip", load, ("tip",), linear) for linear in (True, False))
        # the load on the cart's side of the virtual spring
        return jnp.stack([linear[0, 0], nonlinear[0, 0], deflection(changed, at, "cart", load, ("tip",))[0, 0]])

    for c in (1e-3, 0.0):
        tip = 1.0 / (500.0 + 1.0 / (1e-3 + c))
        expected = [tip, tip, 1.0 / (1000.0 + 1.0 / (1.0 / 500.0 + c)) / (1.0 + 500.0 * c)]
        assert np.allclose(deflections(c), expected, rtol=1e-13)
        assert jax.jit(jax.grad(lambda c: deflections(c)[0]))(c) == pytest.approx((tip / (1e-3 + c)) ** 2, rel=1e-12)


@pytest.mark.parametrize("tension", [300.0, -300.0, -2500.0])
def test_the_tension_of_a_spring_across_a_virtual_spring(tension):
    """The transverse stiffness T / L of a spring of 0.5 m, beside 1000 N/m; -5000 N/m is unstable."""
    spring = {"type": "length", "free_length": 0.5 - tension / 1e4, "stiffness": 1e4}
    model = slide(spring, [0, 1e-3, 0, 0, 0, 0], origin=(0.5, 0.0, 0.0))
    found = deflection(model, jnp.zeros(1), "tip", jnp.array([0.0, 1.0, 0, 0, 0, 0]))[0, 1]
    assert found == pytest.approx(1.0 / (1000.0 + tension / 0.5), rel=1e-12) if tension > -500 else np.isnan(found)


def test_gravity_is_a_stiffness_of_a_virtual_spring():
    spring = {"type": "translation", "direction": [1, 0, 0], "stiffness": 0.0}
    model = slide(spring, [0, 0, 0, 1e-3, 0, 0], mass=10.0, center_of_mass=[0, 0, -2.0])
    for gravity, stiffness in ((False, 1000.0), (True, 1000.0 + 9.81 * 10.0 * 2.0)):
        compliance = eqx.filter_jit(compliance_matrix)(model, jnp.zeros(1), gravity)
        assert compliance[4, 4] == pytest.approx(1.0 / stiffness, rel=1e-12)


def test_springs_across_singular_virtual_springs_against_the_least_energy():
    """Displacements z of coordinates and of unit springs y, virtual ones being R y with R R^T their compliance."""
    data, rng = jaxmb.load_machine("kuka-kr240").model_dump(), np.random.default_rng(2)
    roots = [1e-4 * rng.normal(size=(6, rank)) for rank in (6, 2, 4)]
    springs = [{"name": f"link{i}", "body": body, "compliance": (root @ root.T).tolist(),
                "origin": {"xyz": rng.normal(size=3).tolist(), "rpy": rng.normal(size=3).tolist()}}
               for i, (body, root) in enumerate(zip(("ground", "q2", "q4"), roots, strict=True))]  # fmt: skip
    between, direction = (("ground", "tool"), ("q2", "q6"), ("q1", "q4")), np.eye(3)[[2, 0, 1]]
    types, k = ("translation", "translation", "rotation"), np.array([1e7, 3e6, 5e6])
    data |= {"virtual_spring": springs, "spring": [
        {"name": f"s{i}", "frame_a": a, "frame_b": b, "type": kind, "direction": d.tolist(), "stiffness": stiffness}
        for i, ((a, b), kind, d, stiffness) in enumerate(zip(between, types, direction, k.tolist(), strict=True))
    ]}  # fmt: skip
    model = jaxmb.build_model(Machine.model_validate(data))
    jacobian = {frame: np.asarray(elastic_jacobian(model, Q, frame)) for frame in ("tool", "q1", "q2", "q4", "q6")}
    jacobian["ground"] = np.zeros((6, 24))
    poses = {frame: np.asarray(jaxmb.frame_pose(model, Q, frame)) for frame in jacobian}
    energy = np.diag([*model.stiffness, *np.ones(12)])
    root = np.zeros((24, 18))
    root[:6, :6] = np.eye(6)
    for i, part in enumerate(roots):
        column = 6 + sum(other.shape[1] for other in roots[:i])
        root[6 + 6 * i : 12 + 6 * i, column : column + part.shape[1]] = part
    for (a, b), kind, d, stiffness in zip(between, types, direction, k, strict=True):
        twist, arm = jacobian[b] - jacobian[a], poses[b][:3, 3] - poses[a][:3, 3]
        axis = poses[a][:3, :3] @ d
        # of the displacement in the turning axes of frame a: the rotation w of a adds - w x arm
        rate = axis @ (twist[3:] if kind == "rotation" else twist[:3] + np.cross(arm, jacobian[a][3:].T).T)
        energy += stiffness * np.outer(root.T @ rate, root.T @ rate)
    for loaded in ("tool", "q4"):
        e = root @ np.linalg.solve(energy, root.T @ jacobian[loaded].T @ np.asarray(LOAD))
        expected = np.stack([jacobian[point] @ e for point in ("tool", "q2")])
        found = np.asarray(deflection(model, Q, loaded, LOAD, ("tool", "q2")))
        assert np.allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_what_cannot_give_way(rigid):
    with pytest.raises(ValueError, match="rigid in 1 of six directions at this posture"):
        cartesian_stiffness(rigid, Q.at[4].set(0.0), "tool")
    stiff = jaxmb.set_parameters(rigid, {"stiffness.q1": 0.0})
    with pytest.raises(ValueError, match="the elastic Jacobian has rank 5"):
        cartesian_stiffness(stiff, Q, "tool")
    with pytest.raises(ValueError, match=r"wrench has shape \(3,\), expected \(6,\)"):
        cartesian_stiffness(rigid, Q, "tool", jnp.zeros(3))


def test_rigid_directions_of_a_closed_chain_and_of_a_singular_virtual_spring():
    axes = [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    arms = [[0.0, 0.0, 0.3], [0.0, 0.1, 0.4], [0.5, 0.0, 0.1], [0.3, 0.0, 0.0], [0.1, 0.05, 0.0], [0.1, 0.0, 0.1]]
    body = [
        {"name": f"b{i}", "parent": f"b{i - 1}" if i else "ground", "origin": {"xyz": arm}}
        | {"joint": [{"name": f"q{i}", "axis": axis, "stiffness": 1e4}]}
        for i, (axis, arm) in enumerate(zip(axes, arms, strict=True))
    ]
    machine = {"name": "arm", "body": body, "posture": {f"q{i}": 0.2 + 0.1 * i for i in range(6)}}
    arm = jaxmb.build_model(Machine.model_validate(machine))
    q = jaxmb.reference_posture(arm)
    assert np.linalg.matrix_rank(jaxmb.cartesian_stiffness(arm, q, "b5")) == 6
    end = {"name": "end", "body": "ground", "origin": {"xyz": jaxmb.frame_pose(arm, q, "b5")[:3, 3].tolist()}}
    loop = {"name": "ball", "frame_a": "end", "frame_b": "b5", "type": "spherical"}
    closed = jaxmb.build_model(Machine.model_validate(machine | {"frame": [end], "loop": [loop]}))
    with pytest.raises(ValueError, match="rigid in 3 of six directions"):
        jaxmb.cartesian_stiffness(closed, q, "b5")

    along = np.array([0.0, 2e-3, 0.0, 0.0, 0.0, 1e-2])  # a rotation about an axis beside the spring
    spring = {"name": "bearing", "body": "b1", "compliance": np.outer(along, along).tolist()}
    body[1]["joint"] = body[2]["joint"] = []
    machine["posture"] = {"q0": 0.1, "q3": 0.4, "q4": 0.5, "q5": 0.6}
    hinged = jaxmb.build_model(Machine.model_validate(machine | {"virtual_spring": [spring]}))
    with pytest.raises(ValueError, match="rigid in 1 of six directions"):
        jaxmb.cartesian_stiffness(hinged, jaxmb.reference_posture(hinged), "b5")


def test_batches(rigid):
    many = jnp.stack([Q, Q + 0.1])
    stiffness = jax.jit(jax.vmap(lambda q: cartesian_stiffness(rigid, q, "tool")))(many)
    assert np.allclose(stiffness[1], cartesian_stiffness(rigid, Q + 0.1, "tool"), rtol=1e-9)
    slope = jax.jacrev(lambda k: cartesian_compliance(jaxmb.set_parameters(rigid, {"stiffness.q2": k}), Q, "tool"))
    expected = -np.outer(*(np.asarray(elastic_jacobian(rigid, Q, "tool"))[:, 1],) * 2) / 6.6e6**2
    assert np.allclose(jax.jit(slope)(6.6e6), expected, rtol=1e-9, atol=1e-25)


def test_virtual_springs_have_no_motion_of_their_own(elastic):
    with pytest.raises(NotImplementedError, match="has virtual springs"):
        jaxmb.linearize(elastic, Q)
    with pytest.raises(NotImplementedError, match="has virtual springs"):
        jaxmb.linearize_moving(elastic, Q, jnp.zeros(6), jnp.zeros(6))


@pytest.mark.parametrize("kind", ["frf", "modes"])
def test_a_study_of_motions_says_what_to_do_about_virtual_springs(kind):
    frf = {"kind": "frf", "name": "bench", "simulate": {"lines": {"first_hz": 1.0, "last_hz": 9.0, "step_hz": 1.0}}}
    modes = {
        "kind": "modes",
        "name": "bench",
        "simulate": {"below_hz": 99.0},
        "frequency_std_hz": 0.1,
        "damping_std_percent": 0.1,
    }
    study = {"machine": "kuka-kr270", "free": {"stiffness.q1": {"lower": 1e4, "upper": 1e8}},
             "test": [frf if kind == "frf" else modes]}  # fmt: skip
    told = r"test 'bench': 'kuka-kr270' has virtual springs \('link0' \.\.\.\).* as coordinates with stiffness"
    with pytest.raises(NotImplementedError, match=told):
        make_study(study, "bench")


def test_wrong_virtual_springs():
    for part, message in (
        ({"diagonal": [1e-9] * 6, "compliance": np.eye(6).tolist()}, "gives both compliance and diagonal"),
        ({"compliance": np.triu(np.ones((6, 6))).tolist()}, "compliance is not symmetric"),
        ({"diagonal": [1, 1, 1, 1, 1, -1]}, "on its diagonal, expected none below 0"),
        ({"compliance": (2.0 * np.ones((6, 6)) - np.eye(6)).tolist()}, "not positive semi"),
        # a coupling beside a diagonal of 0, as small as compliances are
        ({"compliance": (1e-8 * np.eye(6)[::-1]).tolist()}, "not positive semi"),
        ({"body": "ground", "at": "joint"}, "the ground has none"),
    ):
        with pytest.raises(ValueError, match=message):
            VirtualSpring.model_validate({"name": "a", "body": "b"} | part)


def test_compliances_are_parameters_and_go_back_into_the_file(elastic, tmp_path):
    machine = jaxmb.load_machine("kuka-kr240").model_dump()
    machine |= {"virtual_spring": [{"name": "arm", "body": "q3", "diagonal": [1e-9, 2e-9, 3e-9, 1e-8, 1e-8, 1e-8]}]}
    machine = Machine.model_validate(machine)
    model = jaxmb.build_model(machine)
    assert jaxmb.parameters(model)["compliance.arm.y.y"] == 2e-9
    model = jaxmb.set_parameters(model, {"compliance.arm.y.rz": 1e-9})
    assert model.compliance[0, 1, 5] == model.compliance[0, 5, 1] == 1e-9
    from jaxmb.machine.changed import machine_of

    jaxmb.write_machine(machine_of(machine, model), tmp_path / "arm.toml")
    again = jaxmb.build_model(jaxmb.load_machine(tmp_path / "arm.toml"))
    assert np.array_equal(again.compliance, model.compliance)


@pytest.mark.parametrize(("own", "spring"), [
    ((2e4, 1e4), {"type": "length", "stiffness": 3e4, "free_length": 0.3}),
    ((0.0, 0.0), {"type": "translation", "direction": [1, 0, 0], "stiffness": 1e4}),
])  # fmt: skip
def test_what_does_not_hold_itself_has_no_compliance(own, spring):
    """A compensator that pushes its joints over, and one spring for two motions."""
    machine = Machine.model_validate({
        "name": "arm",
        "body": [{"name": "a", "joint": [{"name": "q1", "stiffness": own[0]}]},
                 {"name": "b", "parent": "a", "origin": {"xyz": [1, 0, 0]},
                  "joint": [{"name": "q2", "stiffness": own[1]}]}],
        "frame": [{"name": "tip", "body": "b", "origin": {"xyz": [1, 0, 0]}},
                  {"name": "post", "body": "ground", "origin": {"xyz": [-1, 0, 0]}}],
        "spring": [{"name": "s", "frame_a": "post", "frame_b": "tip"} | spring],
    })  # fmt: skip
    model = jaxmb.build_model(machine)
    assert np.all(np.isnan(deflection(model, jnp.array([0.05, 0.0]), "tip", LOAD)))
    with pytest.raises(ValueError, match="is unstable at this posture"):
        cartesian_stiffness(model, jnp.array([0.05, 0.0]), "tip")
