"""Machines written as MJCF, as MuJoCo linearizes them and as they are read back; MJCF files of others."""

import importlib
import re

import mujoco
import numpy as np
import pytest
from scipy.linalg import eig, eigh

import jaxmb
from jaxmb.deflections import compensate
from jaxmb.mechanics.tangent import motion_coordinates

SLIDER = {
    "name": "slider",
    "gravity": [1.0, -2.0, -9.0],
    "posture": {"x": 0.3, "tilt": 0.4, "turn": 0.7, "fixed": 0.5, "wheel": 0.2},
    "body": [
        {"name": "rail", "origin": {"xyz": [0.0, 0.1, 0.2], "rpy": [0.3, 0.0, 1.0]}, "mass": 2.0},
        {"name": "cart", "parent": "rail", "mass": 3.0, "center_of_mass": [0.1, 0.0, 0.2],
         "frame_deviation": [0.0, 0.01, 0.0, 0.0, 0.02, 0.0],
         "inertia_tensor": [[0.2, 0.01, 0.0], [0.01, 0.3, 0.0], [0.0, 0.0, 0.25]],
         "joint": [{"name": "x", "type": "prismatic", "axis": [1.0, 0.0, 0.0], "stiffness": 4e4, "damping": 30.0,
                    "rotor_inertia": 0.7, "range": [-1.0, 1.0], "zero": 0.05},
                   {"name": "fixed", "axis": [0.0, 0.6, 0.8], "locked": True, "stiffness": 1.0},
                   {"name": "tilt", "axis": [0.0, 1.0, 0.0], "stiffness": 900.0, "damping": 1.0, "friction": 0.2,
                    "origin_deviation": [0.01, 0.02, -0.03, 0.1, 0.0, -0.05], "zero": -0.1}]},
        {"name": "arm", "parent": "cart", "origin": {"xyz": [0.4, 0.0, 0.1], "rpy": [0.0, 0.5, 0.2]}, "mass": 1.5,
         "center_of_mass": [0.2, 0.0, 0.0], "inertia_tensor": [[0.01, 0, 0], [0, 0.05, 0], [0, 0, 0.05]],
         "joint": [{"name": "turn", "stiffness": 500.0, "damping": 0.5, "effort_limit": 90.0,
                    "origin_deviation": [0.01, 0.0, 0.02, 0.3, -0.2, 0.1],
                    "motor": {"inertia": 2e-4, "ratio": -30.0, "axis": [0.6, 0.0, 0.8], "damping": 1e-3,
                              "stiffness": 0.4, "friction": 0.01}}]},
        {"name": "disc", "parent": "arm", "mass": 0.4, "inertia_tensor": [[4e-3, 0, 0], [0, 4e-3, 0], [0, 0, 6e-3]],
         "joint": [{"name": "wheel", "axis": [0.0, 0.0, 1.0], "damping": 0.3}]},
    ],
    "frame": [{"name": "tool", "body": "disc", "origin": {"xyz": [0.3, 0.1, 0.0], "rpy": [0.3, 0.0, 0.0]},
               "deviation": [0.0, 0.0, 0.02, 0.0, 0.1, 0.0]}, {"name": "wall", "body": "ground",
               "origin": {"xyz": [1.0, 1.0, 1.0]}}],
    "payload": [{"name": "load", "frame": "tool", "mass": 0.3}],
    "spring": [{"name": "balancer", "frame_a": "wall", "frame_b": "arm", "type": "length", "free_length": 0.4,
                "stiffness": 900.0, "damping": 2.0}],
    "transmission": [{"name": "coupling", "coordinates": {"wheel": 1.0, "tilt": -0.5}, "inertia": 0.02,
                      "damping": 0.3, "friction": 0.1}],
}  # fmt: skip
MACHINES = {
    "kuka-kr90": jaxmb.load_machine("kuka-kr90"),
    "manipulator-3r": jaxmb.load_machine("manipulator-3r"),
    "manipulator-3r-motors": jaxmb.load_machine("manipulator-3r-motors"),
    "slider": jaxmb.Machine.model_validate(SLIDER),
}


@pytest.fixture(scope="module", params=MACHINES)
def written(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("mjcf") / "machine.xml"
    machine = MACHINES[request.param]
    jaxmb.write_mjcf(machine, path)
    return machine, path


def linearized(path):
    """M, C, K and the Jacobian of the tool by MuJoCo, at its keyframe, from mjd_transitionFD: the step of the
    semi-implicit integrator without implicit damping is v' = v + h (A_q q + A_v v), q' = q + h v'."""
    m = mujoco.MjModel.from_xml_path(str(path))
    m.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    m.opt.disableflags = int(mujoco.mjtDisableBit.mjDSBL_EULERDAMP | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
    d = mujoco.MjData(m)
    mujoco.mj_resetDataKeyframe(m, d, 0)
    mujoco.mj_forward(m, d)
    assert np.abs(d.qacc).max() < 1e-8  # the keyframe is an equilibrium
    mass, jacobian = np.zeros((m.nv, m.nv)), np.zeros((3, m.nv))
    mujoco.mj_fullM(m, d, mass)
    mujoco.mj_jacSite(m, d, jacobian, None, m.site("tool").id)
    tool = d.site("tool").xmat.reshape(3, 3).T @ jacobian
    step = np.zeros((2 * m.nv, 2 * m.nv))
    mujoco.mjd_transitionFD(m, d, 1e-5, True, step, None, None, None)
    h, rows, eye = m.opt.timestep, step[m.nv :], np.eye(m.nv)
    names = [m.joint(j).name for j in range(m.njnt)]
    return names, mass, -mass @ (rows[:, m.nv :] - eye) / h, -mass @ rows[:, : m.nv] / h, tool


def test_mujoco_linearizes_it_alike(written):
    """Central differences with a step of 1e-5 have relative errors of about 1e-8."""
    machine, path = written
    model = jaxmb.build_model(machine)
    q = jaxmb.reference_posture(model)
    names, mass, damping, stiffness, tool = linearized(path)
    own = jaxmb.linearize(model, q)
    order = [names.index(name) for name in motion_coordinates(model)]
    for theirs, ours in ((mass, own.mass), (damping, own.damping), (stiffness, own.stiffness)):
        np.testing.assert_allclose(theirs[np.ix_(order, order)], ours, rtol=0.0, atol=1e-6 * np.abs(ours).max())
    n = len(names)
    pencil = np.block([[np.zeros((n, n)), np.eye(n)], [-stiffness, -damping]])
    roots = eig(pencil, np.block([[np.eye(n), np.zeros((n, n))], [np.zeros((n, n)), mass]]), right=False)
    roots = np.sort_complex(roots[np.imag(roots) > 1e-3])
    found = np.sort_complex(np.asarray(jaxmb.modes(own).eigenvalue))
    np.testing.assert_allclose(np.sort(np.abs(roots)), np.sort(np.abs(found)), rtol=1e-6)
    np.testing.assert_allclose(np.sort(-roots.real / np.abs(roots)), np.sort(-found.real / np.abs(found)), atol=1e-6)
    frequency_hz = np.linspace(0.3, 1.2, 7) * np.abs(found).max() / (2.0 * np.pi)
    w = 2.0 * np.pi * frequency_hz[:, None, None]
    theirs = tool @ np.linalg.solve(stiffness + 1j * w * damping - w**2 * mass, tool.T.astype(complex))
    ours = np.asarray(jaxmb.frf(model, q, frequency_hz, kind="receptance"))
    np.testing.assert_allclose(theirs, ours, rtol=0.0, atol=1e-6 * np.abs(ours).max())


def test_read_back(written):
    """Numbers are written to the last digit; masses of rotors of 1e-9 kg are added to the bodies that carry them."""
    machine, path = written
    back = jaxmb.load_machine(path)
    before, after = jaxmb.build_model(machine), jaxmb.build_model(back)
    moving = {name for name, locked in zip(before.coordinates, before.locked, strict=True) if not locked}
    assert moving == set(after.coordinates)
    assert set(before.frames) <= set(after.frames)
    names, other = motion_coordinates(before), motion_coordinates(after)
    order = [other.index(name) for name in names]
    q0, q1 = jaxmb.reference_posture(before), jaxmb.reference_posture(after)
    tangents = jaxmb.linearize(before, q0), jaxmb.linearize(after, q1)
    for key in ("mass", "damping", "stiffness"):
        first, second = (np.asarray(getattr(t, key)) for t in tangents)
        np.testing.assert_allclose(second[np.ix_(order, order)], first, rtol=0.0, atol=1e-9 * np.abs(first).max())
    first, second = (jaxmb.modes(t) for t in tangents)
    np.testing.assert_allclose(second.eigenvalue, first.eigenvalue, rtol=1e-8)
    np.testing.assert_allclose(jaxmb.frame_pose(after, q1, "tool"), jaxmb.frame_pose(before, q0, "tool"), atol=1e-12)


def test_frames_of_bodies_are_read_back(tmp_path):
    """Also behind a locked coordinate, or the deviation of a second one; a deviation of the frame itself is a site."""
    rail, cart, *_ = SLIDER["body"]
    eye = {"name": "eye", "parent": "cart", "origin": {"xyz": [0.1, 0.2, 0.3]}}
    others = {"frame": [], "payload": [], "spring": [], "transmission": [], "posture": {"fixed": 0.5, "x": 0.1}}
    for deviation, name in (([0.0] * 6, "cart"), (cart["frame_deviation"], "cart_site")):
        machine = changed(body=[rail, cart | {"frame_deviation": deviation}, eye], **others)
        jaxmb.write_mjcf(machine, tmp_path / "cart.xml")
        before, after = (jaxmb.build_model(each) for each in (machine, jaxmb.load_machine(tmp_path / "cart.xml")))
        q0, q1 = jaxmb.reference_posture(before), jaxmb.reference_posture(after)
        for own, read in (("rail", "rail"), ("cart", name), ("eye", "eye")):
            pose = jaxmb.frame_pose(before, q0, own)
            np.testing.assert_allclose(jaxmb.frame_pose(after, q1, read), pose, atol=1e-12)


def test_another_posture(tmp_path):
    """Springs carry the weight in the posture that is asked for."""
    path = tmp_path / "arm.xml"
    jaxmb.write_mjcf(MACHINES["manipulator-3r"], path, {"z2": "20 deg"})
    names, *_ = linearized(path)
    model = jaxmb.build_model(jaxmb.load_machine(path))
    assert jaxmb.reference_posture(model)[names.index("z2")] == pytest.approx(np.radians(20.0))


def test_a_gear_is_at_rest_at_any_posture(tmp_path):
    """MuJoCo takes a spring length of -1 as none: it is determined from the reference."""
    motor = {"stiffness": 1e4, "motor": {"inertia": 1e-4, "ratio": 100.0, "axis": [0.0, 0.0, 1.0]}}
    body = {"name": "a", "mass": 3.0, "inertia_products": {"xx": 1.0, "yy": 1.0, "zz": 1.0}}
    machine = jaxmb.Machine.model_validate(
        {"name": "arm", "body": [body | {"joint": [{"name": "q", "axis": [0.0, 0.0, 1.0]} | motor]}]}
    )
    for posture in (-1.0, 1.0):
        jaxmb.write_mjcf(machine, tmp_path / "arm.xml", {"q": posture})
        m = mujoco.MjModel.from_xml_path(str(tmp_path / "arm.xml"))
        data = mujoco.MjData(m)
        mujoco.mj_resetDataKeyframe(m, data, 0)
        mujoco.mj_forward(m, data)
        assert np.abs(data.qacc).max() < 1e-6
    assert jaxmb.load_machine(tmp_path / "arm.xml").drives[0][1].ratio == pytest.approx(100.0)


def changed(**more):
    return jaxmb.Machine.model_validate(SLIDER | more)


def joint(**more):
    return {"body": [{"name": "a", "mass": 1.0, "joint": [{"name": "q", "stiffness": 9.0} | more]}], "posture": {},
            "frame": [], "payload": [], "spring": [], "transmission": []}  # fmt: skip


@pytest.mark.parametrize(
    ("machine", "named"),
    [
        (changed(**joint(loss_factor=0.02)), r"structural damping \(q\)"),
        (changed(**joint(stiffness_slope=0.0)), r"stiffness under load \(q\)"),
        (changed(**joint(further_friction={"cubic_damping": 1.0})), r"friction beyond Coulomb's \(q\)"),
        (changed(rayleigh={"mass": 0.1}), "Rayleigh damping"),
        (changed(fractional={"order": 0.5, "time": 1e-3}), "fractional damping"),
        (jaxmb.load_machine("kuka-kr270"), r"virtual springs \("),
    ],
)
def test_what_mjcf_cannot_describe(tmp_path, machine, named):
    with pytest.raises(NotImplementedError, match=f"machine '{machine.name}': MJCF cannot describe .*{named}"):
        jaxmb.write_mjcf(machine, tmp_path / "arm.xml")
    assert not (tmp_path / "arm.xml").exists()


def test_a_rotor_larger_than_its_carrier(tmp_path):
    bodies = [b | ({"mass": 1e-3, "inertia_tensor": None} if b["name"] == "cart" else {}) for b in SLIDER["body"]]
    with pytest.raises(NotImplementedError, match="motor on body 'cart', whose inertia does not contain"):
        jaxmb.write_mjcf(changed(body=bodies), tmp_path / "arm.xml")


def test_omissions_are_listed(tmp_path):
    path = tmp_path / "arm.xml"
    notes = jaxmb.write_mjcf(changed(**joint(offset=0.3, speed_limit=2.0)), path)
    assert notes[:2] == ("offset of q", "speed limit of q")
    assert f"<!-- {'; '.join(notes)} -->" in path.read_text()


def two_arms(**more):
    arm = {"mass": 1.0, "inertia_products": {"xx": 0.3, "yy": 0.2, "zz": 0.2}}
    bodies = [arm | {"name": name, "joint": [{"name": f"q_{name}", "damping": 1.0}]} for name in "ab"]
    return jaxmb.Machine.model_validate({"name": "two-arms", "body": bodies} | more)


def test_an_inertia_between_branches_is_reported(tmp_path):
    """MuJoCo's mass matrix has entries between joints of one chain only."""
    coupled = {"transmission": [{"name": "belt", "coordinates": {"q_a": 1.0, "q_b": -0.5}, "inertia": 0.2}]}
    notes = jaxmb.write_mjcf(two_arms(**coupled), tmp_path / "arms.xml")
    assert notes == ("no inertial coupling by belt, which MuJoCo has along a chain only",)
    m = mujoco.MjModel.from_xml_path(str(tmp_path / "arms.xml"))
    data, mass = mujoco.MjData(m), np.zeros((2, 2))
    mujoco.mj_forward(m, data)
    mujoco.mj_fullM(m, data, mass)
    assert mass[0, 1] == 0.0


def test_a_transmission_of_locked_coordinates_alone_is_omitted(tmp_path):
    belt = {"name": "belt", "coordinates": {"q_b": 1.0}, "inertia": 0.2}
    bodies = two_arms().model_dump(mode="json", exclude_unset=True)["body"]
    bodies[1]["joint"][0]["locked"] = True
    jaxmb.write_mjcf(two_arms(body=bodies, transmission=[belt]), tmp_path / "arms.xml")
    assert jaxmb.load_machine(tmp_path / "arms.xml").transmission == ()


def test_an_effort_limit_below_the_weight_is_reported(tmp_path):
    body = {"name": "a", "mass": 1.0, "center_of_mass": [1.0, 0.0, 0.0]}
    horizontal = [body | {"joint": [{"name": "q", "axis": [0.0, 1.0, 0.0], "effort_limit": 5.0}]}]
    notes = jaxmb.write_mjcf(two_arms(body=horizontal), tmp_path / "arm.xml")
    assert notes == ("the weight exceeds the effort limit of q",)


def test_a_posture_outside_a_range_is_reported(tmp_path):
    """MuJoCo pushes the joint back into its range."""
    joint = [{"name": "q", "stiffness": 1e3, "range": [0.0, 1.0]}]
    body = {"name": "arm", "joint": joint, "mass": 1.0, "inertia_products": {"xx": 1.0, "yy": 1.0, "zz": 1.0}}
    machine = jaxmb.Machine.model_validate({"name": "arm", "body": [body]})
    assert jaxmb.write_mjcf(machine, tmp_path / "arm.xml", {"q": 1.0}) == ()
    outside = ("no rest at the keyframe, which is outside the range of q",)
    assert jaxmb.write_mjcf(machine, tmp_path / "arm.xml", {"q": 1.1}) == outside


def test_rotors_in_any_direction(tmp_path):
    """MuJoCo checks the triangle inequality to the last digit."""
    for axis in np.random.default_rng(0).normal(size=(5, 3)):
        motor = {"inertia": 2e-4, "ratio": 50.0, "axis": (axis / np.linalg.norm(axis)).tolist()}
        body = {"name": "a", "mass": 1.0, "inertia_products": {"xx": 0.3, "yy": 0.2, "zz": 0.2}}
        machine = two_arms(body=[body | {"joint": [{"name": "q", "stiffness": 100.0, "motor": motor}]}])
        jaxmb.write_mjcf(machine, tmp_path / "arm.xml")
        _, rotor = jaxmb.load_machine(tmp_path / "arm.xml").moving_parts
        assert rotor.rotor_inertia == pytest.approx(2e-4, rel=1e-12)


def test_a_closed_chain(tmp_path):
    """The loop is soft in MuJoCo, and the same mechanism when it is read back."""
    path = tmp_path / "crank.xml"
    selected, note = jaxmb.write_mjcf(jaxmb.load_machine("slider-crank"), path)
    assert selected == "selection of independent coordinates q1"
    assert "soft" in note
    assert note in path.read_text()
    before, after = (jaxmb.build_model(jaxmb.load_machine(source)) for source in ("slider-crank", path))
    assert len(jaxmb.independent_coordinates(after)) == 1
    for angle in (0.4, 1.9):
        one, other = (jaxmb.close_loops(model, {"q1": angle}) for model in (before, after))
        np.testing.assert_allclose(one, other, atol=1e-8)
    m = mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(m)
    mujoco.mj_resetDataKeyframe(m, data, 0)
    m.dof_damping[:] = 2.0  # of the fall, not of the loop
    for _ in range(400):
        mujoco.mj_step(m, data)
    ends = [data.site(name).xpos for name in ("slide/a", "slide/b")]
    assert np.linalg.norm(ends[0] - ends[1]) < 1e-3
    closed = jaxmb.close_loops(before, {"q1": float(data.joint("q1").qpos[0])})
    np.testing.assert_allclose(closed, [data.joint(f"q{k}").qpos[0] for k in (1, 2, 3)], atol=0.01)


def test_a_loop_of_opposite_axes_is_closed(tmp_path):
    """Axes of a hinge are parallel in jaxmb, of either direction; the points on it that MuJoCo connects coincide."""
    arm = {"mass": 1.0, "inertia_products": {"xx": 0.3, "yy": 0.2, "zz": 0.2}}
    bodies = [arm | {"name": "a", "joint": [{"name": "q", "stiffness": 10.0}]},
              arm | {"name": "b", "origin": {"xyz": [0.5, 0.0, 0.0]}, "joint": [{"name": "p"}]}]  # fmt: skip
    frames = [{"name": "pin", "body": "a", "origin": {"xyz": [0.5, 0.0, 0.0]}},
              {"name": "eye", "body": "b", "origin": {"rpy": ["180 deg", 0.0, 0.0]}}]  # fmt: skip
    loop = {"name": "hinge", "frame_a": "pin", "frame_b": "eye", "type": "revolute"}
    jaxmb.write_mjcf(two_arms(body=bodies, frame=frames, loop=[loop]), tmp_path / "arms.xml")
    m = mujoco.MjModel.from_xml_path(str(tmp_path / "arms.xml"))
    data = mujoco.MjData(m)
    mujoco.mj_resetDataKeyframe(m, data, 0)
    mujoco.mj_forward(m, data)
    np.testing.assert_allclose(data.site("hinge/axis/a").xpos, data.site("hinge/axis/b").xpos, atol=1e-12)


ROBOT = """<mujoco model="robot v2">
  <compiler angle="degree" meshdir="assets" eulerseq="XYZ"/>
  <default>
    <default class="arm">
      <joint armature="0.2" damping="1.5" frictionloss="0.4" actuatorfrcrange="-30 40"/>
      <default class="visual"><geom type="mesh" group="2" contype="0" conaffinity="0"/></default>
      <site size="0.001"/>
    </default>
  </default>
  <asset>
    <texture name="grid" type="2d" file="grid.png"/><material name="grey" texture="grid"/>
    <mesh file="link.stl"/>
  </asset>
  <include file="scene.xml"/>
  <worldbody>
    <body name="base" childclass="arm" pos="0.1 0 0.2" euler="10 20 30">
      <geom class="visual" mesh="link" material="grey"/>
      <body name="upper" pos="0 0 0.3">
        <inertial pos="0.1 0.02 0" mass="4" fullinertia="0.1 0.12 0.08 0.01 0.005 -0.01"/>
        <joint name="shoulder" axis="0 3 4" range="-100 120" ref="15" stiffness="20" springref="30"/>
        <joint name="shift" type="slide" axis="1 1 0" range="-0.1 0.2"/>
        <joint name="roll" axis="1 0 0" pos="0.05 0.1 -0.2"/>
        <geom class="visual" mesh="link"/>
        <body name="fore" pos="0.4 0 0" quat="0.8 0 0.6 0">
          <joint name="elbow" axis="0 1 0" pos="0 0.02 0.1"/>
          <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.04" density="2700"/>
          <geom type="box" size="0.02 0.05 0.03" pos="0.3 0 0.1" euler="0 45 0"/>
          <site name="tip" pos="0.35 0 0" euler="0 90 0"/>
          <site name="fore" pos="0.1 0 0"/>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator><position class="arm" joint="elbow" kp="400"/></actuator>
  <keyframe><key name="home" qpos="0.2 0.05 -0.4 0.9"/></keyframe>
</mujoco>"""
SCENE = """<mujocoinclude><worldbody><light pos="0 0 3"/><geom type="plane" size="1 1 1" material="grey"/></worldbody>
</mujocoinclude>"""


def test_a_file_with_classes_includes_and_missing_meshes(tmp_path):
    """Mass matrix and gravity are those that MuJoCo computes, in other postures than those of the file."""
    path = tmp_path / "robot.xml"
    path.write_text(ROBOT)
    (tmp_path / "scene.xml").write_text(SCENE)
    with pytest.warns(UserWarning, match=r"'shoulder': its spring is unloaded at 0.52\d+ .* taken as unloaded at 0.2"):
        machine = jaxmb.load_machine(path)
    model = jaxmb.build_model(machine)
    assert jaxmb.coordinates(model) == ("shoulder", "shift", "roll", "elbow")
    assert {"base", "upper", "fore", "tip", "fore_site"} <= set(jaxmb.frames(model))
    np.testing.assert_allclose(jaxmb.reference_posture(model), [0.2, 0.05, -0.4, 0.9])
    shoulder = machine.moving_parts[0]
    assert (shoulder.stiffness, shoulder.friction, shoulder.effort_limit) == (20.0, 0.4, 40.0)
    np.testing.assert_allclose(shoulder.range, np.radians([-100.0, 120.0]))
    text = ROBOT.replace('<geom class="visual" mesh="link" material="grey"/>', "").replace(
        '<include file="scene.xml"/>', ""
    )
    text = text.replace('<geom class="visual" mesh="link"/>', "").replace('<mesh file="link.stl"/>', "")
    text = text.replace('<texture name="grid" type="2d" file="grid.png"/><material name="grey" texture="grid"/>', "")
    m = mujoco.MjModel.from_xml_string(text)
    m.dof_frictionloss[:], m.jnt_stiffness[:] = 0.0, 0.0
    data, mass = mujoco.MjData(m), np.zeros((4, 4))
    for q in np.random.default_rng(0).uniform(-0.5, 0.5, (3, 4)):
        data.qpos[:] = q
        mujoco.mj_forward(m, data)
        mujoco.mj_fullM(m, data, mass)
        np.testing.assert_allclose(jaxmb.mass_matrix(model, q), mass, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(jaxmb.gravity_effort(model, q), data.qfrc_bias, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(jaxmb.frame_pose(model, q, "tip")[:3, 3], data.site("tip").xpos, atol=1e-12)


def one_joint(joint='<joint name="q"/>', further=""):
    return ('<mujoco><worldbody><body name="a"><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>'
            f'{joint}<site name="s" pos="1 0 0"/><body name="b" pos="1 0 0"><inertial pos="0 0 0" mass="1"'
            f' diaginertia="1 1 1"/><joint name="p"/></body></body></worldbody>{further}</mujoco>')  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<robot/>", "found <robot>, expected <mujoco>; a URDF has the ending .urdf"),
        ("<mujoco", "not valid XML|found no element"),
        ("<mujoco><wordbody/></mujoco>", "MuJoCo cannot read it: .*wordbody"),
        (one_joint("<freejoint/>"), "joint 'joint0': a free joint is not supported"),
        (one_joint('<joint type="ball" name="q"/>'), "joint 'q': a ball joint is not supported, expected hinge"),
        (one_joint(further='<equality><joint name="e" joint1="q" joint2="p" polycoef="0 1 2 0 0"/></equality>'),
         "equality of 'q' and 'p': found a polynomial of higher order, expected a line"),
        (one_joint(further='<tendon><fixed name="t"><joint joint="q" coef="1"/></fixed></tendon><equality><tendon'
         ' name="e" tendon1="t"/></equality>'), "equality 'e': found type tendon, which is not supported"),
        (one_joint(further='<equality><weld name="e" body1="b" torquescale="0"/></equality>'),
         "equality 'e': found torquescale 0, expected a positive one, or connect"),
        (one_joint(further='<tendon><fixed name="t"><joint joint="q" coef="1"/></fixed></tendon><actuator><position'
         ' name="grip" tendon="t" kp="8"/></actuator>'), "actuator 'grip': found a force of stiffness 8, damping 0"),
        (one_joint(further='<actuator><position name="x" site="s" refsite="c" kp="7" kv="2" gear="0 1 0 0 0 0"/>'
         "</actuator>").replace("<worldbody>", '<worldbody><site name="c"/>'), "actuator 'x': found a force of stiff"),
        (one_joint(further='<actuator><pid name="c" joint="q" kp="8" ki="2"/></actuator>'),
         "actuator 'c': a controller with an integrator is not supported"),
        (one_joint(further='<worldbody><flexcomp name="f" type="grid" count="2 2 1" spacing="1 1 1" dim="2" mass="1">'
         '<edge equality="true"/></flexcomp></worldbody>'), r"a deformable body \(flex\) is not supported, expected"),
        (one_joint('<joint/><geom type="mesh" mesh="gone"/>').replace("<worldbody>", '<compiler inertiafromgeom="true'
         '"/><asset><mesh file="gone.stl"/></asset><worldbody>'),
         "MuJoCo cannot read it: .*gone.stl"),
        (one_joint(further='<tendon><fixed name="t" stiffness="3"><joint joint="q" coef="1"/></fixed></tendon>'),
         "tendon 't': a spring on joints is not supported, expected one between the first joint of a body"),
        (one_joint().replace("1 1 1", "1 1 9"), "MuJoCo cannot read it: .*A . B"),
        (one_joint().replace('<joint name="q"/>', "").replace('<joint name="p"/>', ""), "no coordinate"),
        ('<mujoco><asset><mesh file="gone.stl"/></asset><worldbody><body><joint/><geom type="mesh" mesh="gone"/></body>'
         "</worldbody></mujoco>", "MuJoCo cannot read it: .*gone.stl"),
    ],
)  # fmt: skip
def test_wrong_files(tmp_path, text, message):
    path = tmp_path / "robot.xml"
    path.write_text(text)
    with pytest.raises((ValueError, NotImplementedError), match=rf"robot\.xml: .*({message})") as caught:
        jaxmb.load_machine(path)
    assert "\n" not in str(caught.value)


def test_warnings_of_mujoco_leave_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "robot.xml").write_text(one_joint('<joint name="q" stiffness="nan"/>'))
    with pytest.raises(ValueError, match=r"robot\.xml: body 'a', joint 'q', stiffness: found NaN"):
        jaxmb.load_machine("robot.xml")
    assert [path.name for path in tmp_path.iterdir()] == ["robot.xml"]


@pytest.mark.filterwarnings("ignore:Inertia matrix is too close to singular")
def test_a_singular_mass_matrix_leaves_no_file(tmp_path, monkeypatch):
    """Of which MuJoCo warns when it computes forces, on reading those of actuators, on writing the weight."""
    monkeypatch.chdir(tmp_path)
    slides = '<joint name="q" type="slide"/><joint name="r" type="slide"/>'
    (tmp_path / "robot.xml").write_text(one_joint(slides, '<actuator><motor joint="p"/></actuator>'))
    machine = jaxmb.load_machine("robot.xml")
    jaxmb.write_mjcf(machine, "robot.xml")
    assert [path.name for path in tmp_path.iterdir()] == ["robot.xml"]


def test_equalities_are_loops(tmp_path):
    """A connect between bodies, without sites, holds what MuJoCo holds."""
    path = tmp_path / "loop.xml"
    path.write_text(one_joint(further='<equality><connect body1="b" anchor="0.5 0.5 0"/></equality>').replace(
        '<joint name="q"/>', '<joint name="q"/><joint name="r" type="slide" axis="1 0 0"/>'))  # fmt: skip
    model = jaxmb.build_model(jaxmb.load_machine(path))
    assert len(jaxmb.independent_coordinates(model)) == 1
    closed = jaxmb.close_loops(model, {"q": 0.2})
    pose = np.asarray(jaxmb.frame_pose(model, closed, "b"))
    np.testing.assert_allclose(pose @ [0.5, 0.5, 0.0, 1.0], [1.5, 0.5, 0.0, 1.0], atol=1e-9)


@pytest.mark.parametrize(("relpose", "x"), [("", 1.0), ('relpose="1.39 0.3 0 1 0 0 0"', 0.99)])
def test_weld_at_an_anchor(tmp_path, relpose, x):
    """Without `relpose` the bodies keep their reference poses; with it the anchor of the second body lies there."""
    path = tmp_path / "weld.xml"
    path.write_text(
        '<mujoco><compiler angle="radian"/><worldbody><body name="a"><joint name="q" axis="0 0 1"/><geom size="0.1"/>'
        '</body><body name="b" pos="1 0 0"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/>'
        '<joint axis="0 0 1"/><geom size="0.1"/></body></worldbody>'
        f'<equality><weld body1="a" body2="b" anchor="0.4 0.3 0" {relpose}/></equality></mujoco>'
    )
    model = jaxmb.build_model(jaxmb.load_machine(path))
    pose = np.asarray(jaxmb.frame_pose(model, jaxmb.close_loops(model, {"q": 0.0}), "b"))
    np.testing.assert_allclose(pose[:3, :3], np.eye(3), atol=1e-9)
    np.testing.assert_allclose(pose[:3, 3], [x, 0.0, 0.0], atol=1e-9)


def test_a_spring_that_is_unloaded_to_rounding_is_no_loaded_one(tmp_path):
    """Of a file with 13 digits of the keyframe, whose weight the drives carry. Warnings are errors here."""
    path = tmp_path / "slide.xml"
    joint = '<joint name="q" type="slide" axis="0 0 1" stiffness="50" springref="0.2"/>'
    path.write_text(one_joint(joint, '<keyframe><key qpos="0.2000000000001 0.0"/></keyframe>'))
    assert jaxmb.reference_posture(jaxmb.build_model(jaxmb.load_machine(path)))[0] == pytest.approx(0.2)


def test_controllers_are_springs_and_dampers(tmp_path):
    """MuJoCo's linearization has the same matrices; a joint at a constant does not move."""
    further = (
        '<actuator><position joint="q" kp="900" kv="4" gear="3"/><velocity joint="q" kv="2"/><motor joint="p"/>'
        '</actuator><equality><joint joint1="r" polycoef="0.3 0 0 0 0"/></equality>'
        '<keyframe><key qpos="0.2 0.4 0.1" ctrl="0.6 0 0"/></keyframe>'
    )
    path = tmp_path / "servo.xml"
    text = one_joint(
        '<joint name="q" stiffness="50" springref="0.2"/><joint name="r" type="slide" ref="0.1"/>', further
    )
    path.write_text(
        text.replace('name="s"', 'name="tool"').replace(
            "<worldbody>", '<compiler angle="radian"/><option gravity="0 0 0"/><worldbody>'
        )
    )
    machine = jaxmb.load_machine(path)
    model = jaxmb.build_model(machine)
    q = jaxmb.reference_posture(model)
    assert dict(zip(model.coordinates, np.asarray(q).tolist(), strict=True)) == pytest.approx(
        {"q": 0.2, "r": 0.4, "p": 0.1}
    )
    assert [c.name for c in machine.moving_parts if c.locked] == ["r"]
    own, (names, mass, damping, stiffness, _) = jaxmb.linearize(model, q), linearized(path)
    order = [names.index(name) for name in motion_coordinates(model) if name != "r"]
    free = [motion_coordinates(model).index(names[i]) for i in order]
    for theirs, ours in ((mass, own.mass), (damping, own.damping), (stiffness, own.stiffness)):
        expected = theirs[np.ix_(order, order)]
        np.testing.assert_allclose(np.asarray(ours)[np.ix_(free, free)], expected, rtol=1e-6, atol=1e-5)


def test_actuators_add_to_the_matrices(tmp_path):
    """Armature, damping and forces by displacement or speed, at the commands of the keyframe, as MuJoCo linearizes."""
    further = (
        '<tendon><fixed name="t"><joint joint="q" coef="1"/><joint joint="p" coef="2"/></fixed></tendon><actuator>'
        '<motor joint="q" gear="3" armature="0.5" damping="0.2"/><position jointinparent="p" kp="9" kv="2"/>'
        '<motor tendon="t" armature="0.3" damping="0.1" gear="2"/><damper joint="q" kv="5" ctrlrange="0 1"/>'
        '<general joint="p" gaintype="affine" gainprm="0 -3 -2" biastype="affine" biasprm="0 -5 -6"/></actuator>'
        '<keyframe><key qpos="0.2 0.4" ctrl="-1 0.4 -1 0.7 0"/></keyframe>'
    )
    text = one_joint(further=further).replace('name="s"', 'name="tool"')
    path = tmp_path / "driven.xml"
    path.write_text(text.replace("<worldbody>", '<option gravity="0 0 0"/><worldbody>'))
    reference = mujoco.MjModel.from_xml_path(str(path))
    data, mass = mujoco.MjData(reference), np.zeros((2, 2))
    mujoco.mj_resetDataKeyframe(reference, data, 0)
    forces = []
    for velocity, shift in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0)):
        for j in range(2):
            data.qpos[:], data.qvel[:] = [0.2, 0.4], 0.0
            data.qpos[j] += shift
            data.qvel[j] += velocity
            mujoco.mj_forward(reference, data)
            forces.append(data.qfrc_passive + data.qfrc_actuator)
    mujoco.mj_fullM(reference, data, mass)
    rest, damping, stiffness = np.reshape(forces, (3, 2, 2))
    model = jaxmb.build_model(jaxmb.load_machine(path))
    own = jaxmb.linearize(model, jaxmb.reference_posture(model))
    np.testing.assert_allclose(own.damping, rest - damping, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(own.stiffness, rest - stiffness, rtol=1e-9, atol=1e-9)
    data.qpos[:] = [0.2, 0.4]
    mujoco.mj_forward(reference, data)
    mujoco.mj_fullM(reference, data, mass)
    np.testing.assert_allclose(own.mass, mass, rtol=1e-9)


@pytest.mark.parametrize(
    ("flag", "zero"),
    [
        ("gravity", lambda machine: machine.gravity),
        ("spring", lambda machine: [machine.moving_parts[0].stiffness, machine.spring[0].stiffness]),
        ("damper", lambda machine: [machine.moving_parts[0].damping, machine.spring[0].damping]),
        ("frictionloss", lambda machine: [machine.moving_parts[0].friction]),
        ("equality", lambda machine: [machine.moving_parts[1].locked]),
        ("constraint", lambda machine: [machine.moving_parts[0].friction, machine.moving_parts[1].locked]),
        ("actuation", lambda machine: [machine.moving_parts[1].stiffness]),
    ],
)
def test_flags_disable(tmp_path, flag, zero):
    further = (
        '<tendon><spatial damping="2" stiffness="8"><site site="c"/><site site="s"/></spatial></tendon>'
        '<actuator><position joint="p" kp="3"/></actuator><equality><joint joint1="p"/></equality>'
    )
    text = one_joint('<joint name="q" stiffness="4" damping="1" frictionloss="0.1"/>', further)
    text = text.replace('<body name="a">', '<site name="c" pos="0 0 1"/><body name="a">')
    path = tmp_path / "robot.xml"
    path.write_text(text)
    assert all(zero(jaxmb.load_machine(path))[-1:])
    path.write_text(text.replace("<worldbody>", f'<option><flag {flag}="disable"/></option><worldbody>'))
    assert not any(zero(jaxmb.load_machine(path)))


def test_a_viscous_fluid_is_reported(tmp_path):
    option = '<option viscosity="0.1" density="1.2"/><worldbody>'
    (tmp_path / "robot.xml").write_text(one_joint().replace("<worldbody>", option))
    with (
        pytest.warns(UserWarning, match="option viscosity: found 0.1, which is not read"),
        pytest.warns(UserWarning, match="option density: found 1.2, which is not read"),
    ):
        jaxmb.load_machine(tmp_path / "robot.xml")


GEAR = """<mujoco><worldbody><body name="a"><inertial pos="0 0 0" mass="1" diaginertia="1 2 2"/><joint name="q"/></body>
<body name="r"><inertial pos="0 0 0" mass="0.1" diaginertia="0.02 0.02 0.01"/><joint name="shaft"/></body></worldbody>
<tendon><fixed stiffness="100"><joint joint="q" coef="1"/><joint joint="shaft" coef="-0.1"/></fixed>{}</tendon>
{}</mujoco>"""


def test_a_gear_with_further_parts(tmp_path):
    path = tmp_path / "gear.xml"
    path.write_text(GEAR.format("", '<equality><joint joint1="shaft"/></equality>'))
    (joint, shaft) = jaxmb.load_machine(path).moving_parts
    assert (joint.locked, shaft.name, shaft.locked) == (False, "shaft", True)
    second = '<fixed name="t" stiffness="9"><joint joint="q" coef="1"/><joint joint="shaft" coef="-0.2"/></fixed>'
    servo = '<actuator><position joint="q" kp="4"/></actuator>'
    for further, message in (((second, ""), "tendon 't': a second gear"), (("", servo), "a spring on joints")):
        path.write_text(GEAR.format(*further))
        with pytest.raises(NotImplementedError, match=message):
            jaxmb.load_machine(path)


def test_a_hinge_may_have_several_turns(tmp_path):
    joint, key = '<joint name="q" range="-1720 1720" ref="900"/>', '<keyframe><key qpos="20 0.5"/></keyframe>'
    (tmp_path / "robot.xml").write_text(one_joint(joint, key))
    machine = jaxmb.load_machine(tmp_path / "robot.xml")
    assert machine.posture == {"q": 20.0, "p": 0.5}
    assert np.degrees(machine.body[0].joint[0].range) == pytest.approx([-1720, 1720])
    assert machine.body[0].joint[0].zero == 0.0
    assert np.degrees(machine.body[0].origin.rpy) % 360 == pytest.approx([0, 0, 180])


ARM = """<mujoco><worldbody><body name="a" pos="0 0 0.4"><inertial pos="0 0 0.2" mass="3" diaginertia="1 1 1"/>
<joint name="q1" axis="0 0 1" ref="30"/><joint name="q2" axis="0 1 0" ref="-20" pos="0.1 0 0"/>
<joint name="s" type="slide" axis="1 0 0" ref="0.3"/><body name="b" pos="0.5 0.1 0"><inertial pos="0.1 0 0.2" mass="2"
diaginertia="1 1 1"/><joint name="q3" axis="1 2 0" ref="50"/><site name="tool" pos="0.3 0 0"/></body></body></worldbody>
</mujoco>"""


def test_references_of_joints_are_no_errors_of_the_geometry(tmp_path):
    """Poses are those of MuJoCo, and there is nothing to compensate."""
    path = tmp_path / "arm.xml"
    path.write_text(ARM)
    model = jaxmb.build_model(jaxmb.load_machine(path))
    assert jaxmb.coordinates(model) == ("q1", "q2", "s", "q3")
    m = mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(m)
    for q in np.random.default_rng(0).uniform(-1.0, 1.0, (3, 4)):
        data.qpos[:] = q
        mujoco.mj_forward(m, data)
        np.testing.assert_allclose(jaxmb.frame_pose(model, q, "tool")[:3, 3], data.site("tool").xpos, atol=1e-12)
        np.testing.assert_allclose(jaxmb.gravity_effort(model, q), data.qfrc_bias, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(compensate(model, q), q, atol=1e-9)


def test_a_gear_with_backlash_is_refused(tmp_path):
    path = tmp_path / "gear.xml"
    path.write_text(GEAR.format("", "").replace("<fixed ", '<fixed name="t" springlength="-0.01 0.01" '))
    with pytest.raises(NotImplementedError, match="tendon 't': a spring with slack is not supported"):
        jaxmb.load_machine(path)


def test_without_mujoco(tmp_path, monkeypatch):
    known = importlib.import_module

    def missing(name, package=None):
        if name == "mujoco":
            raise ModuleNotFoundError(name)
        return known(name, package)

    (tmp_path / "robot.xml").write_text(one_joint())
    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'jaxmb\[mujoco\]'"):
        jaxmb.write_mjcf(MACHINES["slider"], tmp_path / "arm.xml")
    with pytest.raises(ValueError, match=r"robot\.xml: MJCF needs MuJoCo, which is not installed"):
        jaxmb.load_machine(tmp_path / "robot.xml")


CANTILEVER = {
    "name": "cantilever",
    "gravity": [0.0, 0.0, 0.0],
    "beam": [{"name": "rod", "length": 1.2, "elements": 8, "young_modulus": 7e10, "shear_modulus": 2.6e10,
              "density": 2700.0, "section": {"box": [0.03, 0.05]}, "loss_factor": 0.02}],
    "frame": [{"name": "tool", "body": "rod", "origin": {"xyz": [0.1, 0.0, 0.0]}}],
}  # fmt: skip


def test_beams_are_chains_with_a_stated_error(tmp_path):
    """The first bending frequencies of a slender cantilever: (1.8751 and 4.6941)^2 / L^2 sqrt(E I / (rho A)), and its
    deflections along y and z."""
    path, machine = tmp_path / "rod.xml", jaxmb.Machine.model_validate(CANTILEVER)
    (note,) = jaxmb.write_mjcf(machine, path)
    stated = float(re.search(r"differ by ([\d.]+) %", note)[1]) / 100.0
    assert note in path.read_text()
    _, mass, damping, stiffness, tool = linearized(path)
    squares, shapes = eigh(stiffness, mass)
    beam = machine.beam[0]
    bending = beam.young_modulus * np.array([beam.second_moment_z, beam.second_moment_y])
    wave = np.sqrt(bending / (beam.density * beam.area)) / beam.length**2
    exact = np.sort(np.outer([1.87510, 4.69409], np.ones(2)) ** 2 * wave, axis=None)
    np.testing.assert_allclose(np.sqrt(squares[:4]), exact, rtol=0.02)
    compliance = np.diagonal(tool @ np.linalg.solve(stiffness, tool.T))[1:]
    reach = beam.length + 0.1
    np.testing.assert_allclose(compliance, (reach**3 - 0.1**3) / (3.0 * bending), rtol=5e-3)
    model = jaxmb.build_model(machine)
    own = 2.0 * np.pi * np.asarray(jaxmb.modes(jaxmb.linearize(model, jaxmb.reference_posture(model))).frequency_hz)
    assert np.max(np.abs(np.sqrt(squares[:6]) / own[:6] - 1.0)) == pytest.approx(stated, rel=0.05)  # two digits
    assert stated < 0.1
    ratio = shapes[:, 0] @ damping @ shapes[:, 0] / (2.0 * np.sqrt(squares[0]))
    assert ratio == pytest.approx(0.5 * beam.loss_factor, rel=0.01)
    back = jaxmb.build_model(jaxmb.load_machine(path))
    pose = jaxmb.frame_pose(back, jaxmb.reference_posture(back), "tool")
    np.testing.assert_allclose(pose[:3, 3], [1.3, 0.0, 0.0], atol=1e-12)
