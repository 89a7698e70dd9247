"""Motors behind gears against MuJoCo: rotors as bodies on hinges of their own, gears as springs between two joints."""

import mujoco
import numpy as np
import pytest

import jaxmb
from jaxmb.identify.stiffness_model.complete_model import complete_model
from jaxmb.machine.changed import with_locked
from jaxmb.mechanics.dynamics import inverse_dynamics, mass_matrix

GRAVITY = [0.7, -1.5, -9.81]


def unit(draw):
    vector = draw.normal(size=3)
    return vector / np.linalg.norm(vector)


def solid(draw, mass):
    """Mass, centre and central inertia of a body that can exist: that of some points."""
    spread = np.cov(draw.normal(scale=0.2, size=(3, 6)))
    return mass, draw.uniform(-0.3, 0.3, 3), mass * (np.trace(spread) * np.eye(3) - spread)


class Drawn:
    """A chain of joints with motors about odd axes, as our machine and as MuJoCo's."""

    def __init__(self, seed, joints, prismatic=()):
        draw = np.random.default_rng(seed)
        self.joints, self.parts = joints, []
        for k in range(joints):
            self.parts.append(
                {
                    "slides": k in prismatic,
                    "xyz": draw.uniform(-0.5, 0.5, 3),
                    "rpy": draw.uniform(-2.0, 2.0, 3),
                    "axis": unit(draw),
                    "body": solid(draw, draw.uniform(3.0, 9.0)),
                    "stiffness": draw.uniform(1e3, 1e4),
                    "damping": draw.uniform(1.0, 10.0),
                    "ratio": draw.choice([-1.0, 1.0]) * draw.uniform(3.0, 30.0),
                    "spin": unit(draw),
                    "inertia": draw.uniform(0.01, 0.1),
                    "across": draw.uniform(0.05, 0.06),
                    "rotor": draw.uniform(0.5, 2.0),
                    "shaft_damping": draw.uniform(0.01, 0.1),
                    "shaft_stiffness": draw.uniform(0.5, 5.0),
                }
            )
        self.rest = draw.uniform(-1.0, 1.0, 2 * joints)
        self.states = draw.uniform(-2.0, 2.0, (6, 3, 2 * joints))

    def machine(self, change=lambda joint, part: joint):
        """Rotors are payloads where they sit: their mass and their inertia belong to what carries them."""
        bodies, frames, payloads = [], [], []
        for k, p in enumerate(self.parts):
            mass, center, inertia = p["body"]
            parent = f"body{k - 1}" if k else "ground"
            origin = {"xyz": p["xyz"].tolist(), "rpy": p["rpy"].tolist()}
            motor = {"inertia": p["inertia"], "ratio": p["ratio"], "axis": p["spin"].tolist(), "name": f"m{k}"}
            motor |= {"stiffness": p["shaft_stiffness"], "damping": p["shaft_damping"]}
            joint = {"name": f"q{k}", "type": "prismatic" if p["slides"] else "revolute", "axis": p["axis"].tolist()}
            joint |= {"stiffness": p["stiffness"], "damping": p["damping"], "motor": motor}
            bodies.append({"name": f"body{k}", "parent": parent, "origin": origin, "joint": [change(joint, p)]})
            bodies[-1] |= {"mass": mass, "center_of_mass": center.tolist(), "inertia_tensor": inertia.tolist()}
            frames.append({"name": f"seat{k}", "body": parent, "origin": origin})
            across = p["across"] * (np.eye(3) - np.outer(p["spin"], p["spin"]))
            whole = p["inertia"] * np.outer(p["spin"], p["spin"]) + across
            payloads.append(
                {"name": f"rotor{k}", "frame": f"seat{k}", "mass": p["rotor"], "inertia_tensor": whole.tolist()}
            )
        data = {"name": "drawn", "gravity": GRAVITY, "body": bodies, "frame": frames, "payload": payloads}
        return jaxmb.Machine.model_validate(data)

    def mujoco(self, armature=False):
        """With `armature` the rotors do not turn, and their reflected inertia is the joints' armature."""

        def text(values):
            return " ".join(f"{v:.17g}" for v in np.atleast_1d(values))

        def inertial(at, mass, i):
            entries = text([i[0, 0], i[1, 1], i[2, 2], i[0, 1], i[0, 2], i[1, 2]])
            return f'<inertial pos="{text(at)}" mass="{mass:.17g}" fullinertia="{entries}"/>'

        inner, tendons = "", ""
        for k in reversed(range(self.joints)):
            p = self.parts[k]
            place = f'pos="{text(p["xyz"])}" euler="{text(p["rpy"])}"'
            spin, joint = np.outer(p["spin"], p["spin"]), "slide" if p["slides"] else "hinge"
            more = f'armature="{p["inertia"] * p["ratio"] ** 2:.17g}"' if armature else ""
            turns = (
                f'<joint name="m{k}" type="hinge" axis="{text(p["spin"])}" stiffness="{p["shaft_stiffness"]:.17g}"'
                f' damping="{p["shaft_damping"]:.17g}" springref="{self.rest[self.joints + k]:.17g}"/>'
            )
            rotor = inertial(np.zeros(3), p["rotor"], p["inertia"] * spin + p["across"] * (np.eye(3) - spin))
            inner = (
                f'<body {place}><joint name="q{k}" type="{joint}" axis="{text(p["axis"])}" {more}/>'
                f"{inertial(p['body'][1], p['body'][0], p['body'][2])}{inner}</body>"
                f"<body {place}>{'' if armature else turns}{rotor}</body>"
            )
            length = self.rest[k] - self.rest[self.joints + k] / p["ratio"]
            tendons += (
                f'<fixed stiffness="{p["stiffness"]:.17g}" damping="{p["damping"]:.17g}"'
                f' springlength="{length:.17g} {length:.17g}"><joint joint="q{k}" coef="1"/>'
                f'<joint joint="m{k}" coef="{-1.0 / p["ratio"]:.17g}"/></fixed>'
            )
        tendons = "" if armature else f"<tendon>{tendons}</tendon>"
        model = mujoco.MjModel.from_xml_string(
            f'<mujoco><compiler angle="radian" eulerseq="XYZ"/><option gravity="{text(GRAVITY)}"/>'
            f"<worldbody>{inner}</worldbody>{tendons}</mujoco>"
        )
        names = [f"q{k}" for k in range(self.joints)] + [f"m{k}" for k in range(0 if armature else self.joints)]
        return model, np.array([model.joint(name).qposadr[0] for name in names])


def effort(mj, data, order, q, qd, qdd):
    data.qpos[order], data.qvel[order], data.qacc[order] = q, qd, qdd
    mujoco.mj_inverse(mj, data)
    return data.qfrc_inverse[order].copy()


def full_mass(mj, data, order):
    full = np.zeros((mj.nv, mj.nv))
    mujoco.mj_fullM(mj, data, full)
    return full[np.ix_(order, order)]


CASES = pytest.mark.parametrize(
    "drawn", [Drawn(1, 2), Drawn(2, 3), Drawn(3, 3, prismatic=(1,))], ids=["2", "3", "slide"]
)


@CASES
def test_mass_matrix_and_effort(drawn):
    model = jaxmb.build_model(drawn.machine())
    mj, order = drawn.mujoco()
    data = mujoco.MjData(mj)
    for q, qd, qdd in drawn.states:
        theirs = effort(mj, data, order, q, qd, qdd)
        full = full_mass(mj, data, order)
        assert np.abs(mass_matrix(model, q) - full).max() < 1e-9 * np.abs(full).max()
        ours = inverse_dynamics(model, q, qd, qdd, drawn.rest)
        assert np.abs(ours - theirs).max() < 1e-9 * np.abs(theirs).max()


@CASES
def test_small_motions(drawn):
    tangent = jaxmb.linearize(jaxmb.build_model(drawn.machine()), drawn.rest)
    mj, order = drawn.mujoco()
    data, rest, step = mujoco.MjData(mj), np.zeros_like(drawn.rest), 1e-4

    def slope(move):
        """Central differences: the efforts are of second order in the step, but for gravity, whose third is small."""
        columns = [(move(step * e) - move(-step * e)) / (2.0 * step) for e in np.eye(rest.size)]
        return np.stack(columns, axis=1)

    stiffness = slope(lambda e: effort(mj, data, order, drawn.rest + e, rest, rest))
    damping = slope(lambda e: effort(mj, data, order, drawn.rest, e, rest))
    scale = np.sqrt(np.outer(np.diagonal(stiffness), np.diagonal(stiffness)))
    assert np.abs((np.asarray(tangent.stiffness) - stiffness) / scale).max() < 1e-7
    scale = np.sqrt(np.outer(np.diagonal(damping), np.diagonal(damping)))
    assert np.abs((np.asarray(tangent.damping) - damping) / scale).max() < 1e-7
    solved = np.linalg.solve(full_mass(mj, data, order), np.hstack([stiffness, damping]))
    values = np.linalg.eigvals(np.vstack([np.hstack([0.0 * stiffness, np.eye(rest.size)]), -solved]))
    found = np.sort(np.asarray(jaxmb.modes(tangent).eigenvalue).imag)
    np.testing.assert_allclose(found, np.sort(values.imag[values.imag > 0.0]), rtol=1e-6)


def test_a_rigid_gear_without_spin_is_an_armature():
    """theta = ratio q; axes of spin are across whatever turns the carrier."""
    drawn = Drawn(4, 2)
    first, second = drawn.parts
    turned = jaxmb.frame_pose(jaxmb.build_model(drawn.machine()), drawn.rest, "seat1")[:3, :3]
    about = np.asarray(jaxmb.frame_jacobian(jaxmb.build_model(drawn.machine()), drawn.rest, "seat1"))[3:, 0]
    across = np.cross(np.asarray(turned).T @ about, [0.3, 0.5, -0.2])
    second["spin"] = across / np.linalg.norm(across)
    mass = np.asarray(mass_matrix(jaxmb.build_model(drawn.machine()), drawn.rest))
    together = np.vstack([np.eye(2), np.diag([first["ratio"], second["ratio"]])])
    mj, order = drawn.mujoco(armature=True)
    data = mujoco.MjData(mj)
    effort(mj, data, order, drawn.rest[:2], np.zeros(2), np.zeros(2))
    np.testing.assert_allclose(together.T @ mass @ together, full_mass(mj, data, order), rtol=1e-10)


def test_a_stiff_gear_tends_to_a_reflected_rotor():
    """What the shaft is held with counts by the square of the ratio at the joint."""
    drawn = Drawn(5, 1)
    (p,) = drawn.parts

    def stiff(joint, _):
        return joint | {"stiffness": 1e11, "damping": 0.0}

    def reflected(joint, _):
        squared = p["ratio"] ** 2
        own = {"stiffness": squared * p["shaft_stiffness"], "damping": squared * p["shaft_damping"]}
        return {k: joint[k] for k in ("name", "type", "axis")} | own | {"rotor_inertia": squared * p["inertia"]}

    lines = np.array([0.5, 3.0, 10.0, 40.0])
    geared, plain = (jaxmb.build_model(drawn.machine(change)) for change in (stiff, reflected))
    ours = jaxmb.frf(geared, drawn.rest, lines, "body0", outputs=[("q0", "angle")])
    theirs = jaxmb.frf(plain, drawn.rest[:1], lines, "body0", outputs=[("q0", "angle")])
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("at", ["posture", "equilibrium"])
def test_with_the_brake_on_a_gear_is_a_spring_to_the_carrier(at):
    drawn = Drawn(6, 2)
    braked = jaxmb.build_model(drawn.machine(lambda joint, _: joint | {"motor": joint["motor"] | {"locked": True}}))
    without = jaxmb.build_model(drawn.machine(lambda joint, _: {k: v for k, v in joint.items() if k != "motor"}))
    ours, theirs = jaxmb.linearize(braked, drawn.rest, at), jaxmb.linearize(without, drawn.rest[:2], at)
    for name in ("mass", "damping", "stiffness"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-9, atol=1e-9)
    assert not {"stiffness.m0", "rotor_inertia.m0", "rotor_inertia.q0"} & jaxmb.parameters(braked).keys()


def test_under_a_load_a_motor_without_stiffness_is_held():
    drawn, load = Drawn(7, 2), np.array([20.0, -10.0, 30.0, 1.0, 2.0, -1.0])
    free = jaxmb.build_model(drawn.machine(lambda joint, _: joint | {"motor": joint["motor"] | {"stiffness": 0.0}}))
    without = jaxmb.build_model(drawn.machine(lambda joint, _: {k: v for k, v in joint.items() if k != "motor"}))
    q = drawn.rest
    np.testing.assert_allclose(
        jaxmb.deflection(free, q, "body1", load), jaxmb.deflection(without, q[:2], "body1", load), rtol=1e-10
    )
    sagged = np.asarray(jaxmb.static_equilibrium(free, q, "body1", load))
    np.testing.assert_allclose(sagged[:2], jaxmb.static_equilibrium(without, q[:2], "body1", load), rtol=1e-9)
    np.testing.assert_array_equal(sagged[2:], q[2:])


def test_a_controller_s_stiffness_and_the_gear_s_are_in_series():
    drawn, load = Drawn(8, 2), np.array([20.0, -10.0, 30.0, 1.0, 2.0, -1.0])

    def in_series(joint, p):
        stiffness = 1.0 / (1.0 / p["stiffness"] + 1.0 / (p["ratio"] ** 2 * p["shaft_stiffness"]))
        return {k: v for k, v in joint.items() if k != "motor"} | {"stiffness": stiffness}

    held, plain = jaxmb.build_model(drawn.machine()), jaxmb.build_model(drawn.machine(in_series))
    q = drawn.rest
    np.testing.assert_allclose(
        jaxmb.deflection(held, q, "body1", load), jaxmb.deflection(plain, q[:2], "body1", load), rtol=1e-10
    )


MOTOR = {"inertia": 0.01, "ratio": 50.0}
JOINT = {"name": "a", "stiffness": 1e4, "motor": MOTOR}


@pytest.mark.parametrize(
    ("joint", "told"),
    [
        (JOINT | {"rotor_inertia": 1.0}, "'a' has a rotor_inertia and a motor, expected one of them"),
        (JOINT | {"stiffness": 0.0}, "'a' has a motor and no stiffness"),
        (JOINT | {"locked": True}, "'a' is locked and its motor is not"),
        (JOINT | {"motor": MOTOR | {"ratio": 0.0}}, "expected another number than 0"),
        (JOINT | {"motor": MOTOR | {"inertia": 0.0}}, "greater than 0"),
        (JOINT | {"motor": MOTOR | {"axis": [1.0, 1.0, 0.0]}}, "expected a unit vector"),
        (JOINT | {"motor": MOTOR | {"name": "a"}}, "the coordinate or spring name 'a' is used twice"),
    ],
)
def test_what_a_motor_cannot_be(joint, told):
    with pytest.raises(ValueError, match=told):
        jaxmb.Machine.model_validate({"name": "arm", "body": [{"name": "arm", "mass": 1.0, "joint": [joint]}]})


def test_a_study_locks_a_joint_with_its_motor_alone():
    machine = Drawn(6, 2).machine()
    with pytest.raises(ValueError, match="locked coordinate 'q0': its motor 'm0' is not locked"):
        with_locked(machine, ["q0"])
    model = jaxmb.build_model(with_locked(machine, ["q0", "m0", "m1"]))
    assert dict(zip(model.coordinates, model.locked, strict=True)) == {"q0": True, "q1": False, "m0": True, "m1": True}


def test_complete_stiffness_models_have_no_motors():
    spring = {"name": "link", "body": "arm", "diagonal": [1e-6] * 6}
    data = {"name": "arm", "body": [{"name": "arm", "mass": 1.0, "joint": [JOINT]}], "virtual_spring": [spring]}
    with pytest.raises(NotImplementedError, match="has motors behind gears"):
        complete_model(jaxmb.build_model(jaxmb.Machine.model_validate(data)), ("arm",))
