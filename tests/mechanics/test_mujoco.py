"""Mass matrix and efforts of joints in series, springs, dampers, rotors and transmissions against MuJoCo."""

import jax
import mujoco
import numpy as np

from jaxmb.machine.schema import Machine
from jaxmb.mechanics.dynamics import inverse_dynamics, mass_matrix
from jaxmb.mechanics.postures import build_model

MJCF = """
<mujoco>
  <compiler angle="radian" eulerseq="XYZ"/>
  <option gravity="0.5 -1 -9.81"/>
  <worldbody>
    <body pos="0.1 0 0.4" euler="0.3 -0.2 0.5">
      <joint name="z1" type="hinge" axis="0 0 1" stiffness="50" springref="0.2" damping="3" armature="0.7"/>
      <joint name="x1" type="hinge" axis="1 0 0" stiffness="80" springref="-0.1" damping="1"/>
      <joint name="y1" type="hinge" axis="0 1 0" stiffness="20" springref="0.3" damping="2"/>
      <inertial pos="0.1 -0.2 0.3" mass="7" fullinertia="0.5 0.4 0.3 0.05 -0.02 0.01"/>
      <body pos="0.5 0.2 0" euler="-0.4 0.1 1.2">
        <joint name="slide" type="slide" axis="0.6 0 0.8" stiffness="300" springref="0.05" damping="9" armature="2"/>
        <inertial pos="0 0.1 -0.1" mass="3" fullinertia="0.2 0.1 0.15 0.01 0.02 -0.03"/>
      </body>
    </body>
  </worldbody>
  <tendon>
    <fixed armature="0.4" damping="0.6"><joint joint="x1" coef="1.5"/><joint joint="slide" coef="-2"/></fixed>
  </tendon>
</mujoco>
"""

MACHINE = {
    "name": "serial",
    "gravity": [0.5, -1.0, -9.81],
    "body": [
        {
            "name": "arm",
            "origin": {"xyz": [0.1, 0.0, 0.4], "rpy": [0.3, -0.2, 0.5]},
            "joint": [
                {"name": "z1", "axis": [0, 0, 1], "stiffness": 50, "damping": 3, "rotor_inertia": 0.7},
                {"name": "x1", "axis": [1, 0, 0], "stiffness": 80, "damping": 1},
                {"name": "y1", "axis": [0, 1, 0], "stiffness": 20, "damping": 2},
            ],
            "mass": 7,
            "center_of_mass": [0.1, -0.2, 0.3],
            "inertia_tensor": [[0.5, 0.05, -0.02], [0.05, 0.4, 0.01], [-0.02, 0.01, 0.3]],
        },
        {
            "name": "slider",
            "parent": "arm",
            "origin": {"xyz": [0.5, 0.2, 0.0], "rpy": [-0.4, 0.1, 1.2]},
            "joint": [
                {
                    "name": "slide",
                    "type": "prismatic",
                    "axis": [0.6, 0, 0.8],
                    "stiffness": 300,
                    "damping": 9,
                    "rotor_inertia": 2,
                }
            ],
            "mass": 3,
            "center_of_mass": [0, 0.1, -0.1],
            "inertia_products": {"xx": 0.2, "yy": 0.1, "zz": 0.15, "xy": -0.01, "xz": -0.02, "yz": 0.03},
        },
    ],
    "transmission": [{"name": "wrist", "coordinates": {"x1": 1.5, "slide": -2.0}, "inertia": 0.4, "damping": 0.6}],
}


def test_mass_matrix_and_effort():
    model = build_model(Machine.model_validate(MACHINE))
    states = np.random.default_rng(5).uniform(-2, 2, (20, 3, 4))
    rest = np.array([0.2, -0.1, 0.3, 0.05])
    both = jax.jit(jax.vmap(lambda s: (mass_matrix(model, s[0]), inverse_dynamics(model, *s, rest))))
    masses, efforts = both(states)
    mj = mujoco.MjModel.from_xml_string(MJCF)
    data = mujoco.MjData(mj)
    for state, M, f in zip(states, masses, efforts, strict=True):
        data.qpos[:], data.qvel[:], data.qacc[:] = state
        mujoco.mj_inverse(mj, data)
        full = np.zeros((4, 4))
        mujoco.mj_fullM(mj, data, full)
        # MuJoCo keeps inertias as principal moments and a quaternion, rounded in 64-bit floats.
        assert np.abs(M - full).max() < 1e-9 * np.abs(full).max()
        assert np.abs(f - data.qfrc_inverse).max() < 1e-9 * np.abs(data.qfrc_inverse).max()
