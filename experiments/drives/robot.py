"""A robot of three joints with motors behind elastic gears, simulated without jaxmb.

Links by Pinocchio, gears, rotors, friction and the controller here, integrated by SciPy's Radau IIA. Motors 2 and 3 lie
along their joints' axes: the rotor of motor 3 also turns with link 2, which makes the one inertial coupling J_3.
"""

import functools
import importlib
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

pin: Any = importlib.import_module("pinocchio")  # its stubs name nothing of what it holds
RATIO = np.array([120.0, -150.0, 100.0])
STIFFNESS = np.array([4.0e5, 5.0e5, 1.6e5])
"""Nm/rad, of the gears at the joints."""
DAMPING = np.array([300.0, 350.0, 90.0])
ROTOR = np.array([2.6e-3, 2.2e-3, 1.4e-3])
"""kg m^2, at the shafts."""
VISCOUS = np.array([4e-3, 3e-3, 3e-3])
COULOMB = np.array([0.25, 0.22, 0.15])
OFFSET = np.array([0.02, -0.03, 0.01])
SMOOTH = 0.05
"""rad/s at the shaft, at which Coulomb friction turns over: 4e-4 rad/s at the joint."""
ORIGIN = np.array([[0.0, 0.0, 0.3], [0.25, 0.0, 0.4], [0.9, 0.0, 0.0]])
AXES = "zyy"
TOOL = np.array([0.8, 0.0, 0.1])
MASS = np.array([80.0, 45.0, 30.0])
CENTRE = np.array([[0.05, 0.0, 0.1], [0.4, 0.05, 0.02], [0.35, 0.02, 0.06]])
PRINCIPAL = np.array([[2.0, 2.2, 1.9], [0.6, 4.0, 3.9], [0.4, 2.4, 2.3]])
"""Moments of inertia about the centres of mass, kg m^2."""
MIDDLE = np.radians([0.0, -50.0, 80.0])
RATE = 250.0
DURATION = 8.0
TRUE = {
    **{
        f"{family}.q{i + 1}": part[i]
        for family, part in (("stiffness", STIFFNESS), ("damping", DAMPING))
        for i in range(3)
    },
    **{
        f"{family}.q{i + 1}_motor": part[i]
        for family, part in (("rotor_inertia", ROTOR), ("damping", VISCOUS), ("friction", COULOMB), ("offset", OFFSET))
        for i in range(3)
    },
}  # fmt: skip


@functools.cache
def links() -> tuple[Any, Any]:
    """Pinocchio's model of the links."""
    model = pin.Model()
    parent = 0
    for i, axis in enumerate(AXES):
        joint = {"z": pin.JointModelRZ, "y": pin.JointModelRY}[axis]()
        parent = model.addJoint(parent, joint, pin.SE3(np.eye(3), ORIGIN[i]), f"q{i + 1}")
        model.appendBodyToJoint(parent, pin.Inertia(MASS[i], CENTRE[i], np.diag(PRINCIPAL[i])), pin.SE3.Identity())
    model.addFrame(pin.Frame("tool", parent, pin.SE3(np.eye(3), TOOL), pin.FrameType.OP_FRAME))
    return model, model.createData()


def mass(q: np.ndarray) -> np.ndarray:
    """Mass matrix of the links."""
    model, data = links()
    found = np.array(pin.crba(model, data, q))
    return np.triu(found) + np.triu(found, 1).T


def needed(q: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> np.ndarray:
    """Torques that the links need."""
    return np.array(pin.rnea(*links(), q, qd, qdd))


def tool_jacobian(q: np.ndarray, axes: Any = pin.LOCAL_WORLD_ALIGNED) -> np.ndarray:
    """Of the tool's position, in the ground's axes or (`pin.LOCAL`) in the tool's."""
    model, data = links()
    return np.array(pin.computeFrameJacobian(model, data, q, model.getFrameId("tool"), axes))[:3]


def gravity_stiffness(q: np.ndarray) -> np.ndarray:
    """Derivative of gravity's torques by central differences."""
    steps = 1e-5 * np.eye(3)
    still = np.zeros(3)
    columns = [(needed(q + s, still, still) - needed(q - s, still, still)) / 2e-5 for s in steps]
    return np.stack(columns, axis=1)


def reference(time: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Planned angles, rates and accelerations of the joints: a Fourier series that a ramp of 1.5 s brings in."""
    a = np.array([[0.5, 0.2, -0.12, 0.1], [-0.35, 0.15, 0.12, -0.06], [0.4, -0.25, 0.1, 0.1]])
    b = np.array([[0.1, -0.15, 0.1, 0.05], [0.15, 0.1, -0.08, 0.05], [-0.2, 0.15, 0.12, -0.05]])
    w = 2.0 * np.pi * 0.15 * np.array([1.0, 2.0, 4.0, 7.0])
    s, c = np.sin(w * time), np.cos(w * time)
    f = (a @ s + b @ (c - 1.0), (a * w) @ c - (b * w) @ s, -(a * w**2) @ s - (b * w**2) @ c)
    x = min(time / 1.5, 1.0)
    g = np.array(
        [10 * x**3 - 15 * x**4 + 6 * x**5, 30 * x**2 - 60 * x**3 + 30 * x**4, 60 * x - 180 * x**2 + 120 * x**3]
    )
    g /= 1.5 ** np.arange(3)
    return MIDDLE + g[0] * f[0], g[1] * f[0] + g[0] * f[1], g[2] * f[0] + 2.0 * g[1] * f[1] + g[0] * f[2]


def motor_torque(time: float, theta: np.ndarray, thetad: np.ndarray) -> np.ndarray:
    """Of a PD controller at the motors with the torques of rigid links as feed-forward, Nm at the shafts."""
    q, qd, qdd = reference(time)
    inertia = np.array([90.0, 90.0, 25.0])
    back = inertia * (
        (2.0 * np.pi * 5.0) ** 2 * (q - theta / RATIO) + 2.0 * 0.7 * 2.0 * np.pi * 5.0 * (qd - thetad / RATIO)
    )
    return (needed(q, qd, qdd) + RATIO**2 * ROTOR * qdd + back) / RATIO


def accelerations(time: float, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of links and motors."""
    q, theta, qd, thetad = state.reshape(4, 3)
    gear = STIFFNESS * (q - theta / RATIO) + DAMPING * (qd - thetad / RATIO)
    rubs = VISCOUS * thetad + COULOMB * np.tanh(thetad / SMOOTH) + OFFSET
    whole = np.zeros((6, 6))
    whole[:3, :3], whole[3:, 3:] = mass(q), np.diag(ROTOR)
    whole[1, 5] = whole[5, 1] = ROTOR[2]
    right = np.concatenate(
        [-gear - needed(q, qd, np.zeros(3)), motor_torque(time, theta, thetad) - rubs + gear / RATIO]
    )
    found = np.linalg.solve(whole, right)
    return found[:3], found[3:]


@functools.cache
def motion() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Time, angles of links, angles of motors over the ratio, torques of motors at the joints."""
    time = np.arange(round(DURATION * RATE) + 1) / RATE
    still = np.zeros(3)
    # at rest each gear carries its load, and the controller's error the rest
    q = MIDDLE - needed(MIDDLE, still, still) / STIFFNESS
    start = np.concatenate([q, RATIO * (q + needed(q, still, still) / STIFFNESS), still, still])

    def slope(t: float, state: np.ndarray) -> np.ndarray:
        return np.concatenate([state[6:], *accelerations(t, state)])

    run = solve_ivp(slope, (0.0, time[-1]), start, "Radau", time, rtol=1e-7, atol=1e-9)
    theta, thetad = run.y[3:6].T, run.y[9:].T
    torque = np.stack([motor_torque(*at) for at in zip(time, theta, thetad, strict=True)])
    return time, run.y[:3].T, theta / RATIO, torque * RATIO


def tool_frf(q: np.ndarray, frequency_hz: np.ndarray) -> np.ndarray:
    """Accelerance of the tool [f, 3, 3] in its own axes, with the brakes of all motors on."""
    stiffness, jacobian = np.diag(STIFFNESS) + gravity_stiffness(q), tool_jacobian(q, pin.LOCAL)
    omega = 2.0 * np.pi * frequency_hz[:, None, None]
    dynamic = stiffness + 1j * omega * np.diag(DAMPING) - omega**2 * mass(q)
    return -(omega**2) * (jacobian @ np.linalg.solve(dynamic, np.broadcast_to(jacobian.T, (len(omega), 3, 3))))


def tool_deflection(q: np.ndarray, force: np.ndarray) -> np.ndarray:
    """Displacement of the tool under a force with the brakes on, gravity acting: both equilibria by Newton steps."""
    model, data = links()
    still, theta = np.zeros(3), q + needed(q, np.zeros(3), np.zeros(3)) / STIFFNESS

    def place(at: np.ndarray) -> np.ndarray:
        pin.framesForwardKinematics(model, data, at)
        return np.array(data.oMf[model.getFrameId("tool")].translation)

    loaded = q.copy()
    for _ in range(20):
        left = STIFFNESS * (loaded - theta) + needed(loaded, still, still) - tool_jacobian(loaded).T @ force
        loaded = loaded - np.linalg.solve(np.diag(STIFFNESS) + gravity_stiffness(loaded), left)
    return place(loaded) - place(q)


def machine(scale: float = 1.0) -> dict[str, Any]:
    """jaxmb's description of the robot, the numbers of its drives off by a factor."""
    bodies = []
    for i, axis in enumerate(AXES):
        motor = {
            "inertia": scale * ROTOR[i], "ratio": RATIO[i], "damping": scale * VISCOUS[i],
            "friction": scale * COULOMB[i], "offset": 0.0, "locked": True,
        }  # fmt: skip
        joint = {"name": f"q{i + 1}", "axis": [0.0, 0.0, 1.0] if axis == "z" else [0.0, 1.0, 0.0], "motor": motor}
        joint |= {"stiffness": STIFFNESS[i] / scale, "damping": DAMPING[i] * scale}
        bodies.append(
            {
                "name": f"link{i + 1}", "origin": {"xyz": ORIGIN[i].tolist()}, "joint": [joint], "mass": MASS[i],
                "center_of_mass": CENTRE[i].tolist(), "inertia_tensor": np.diag(PRINCIPAL[i]).tolist(),
            }
            | ({"parent": f"link{i}"} if i else {})
        )  # fmt: skip
    tool = {"name": "tool", "body": "link3", "origin": {"xyz": TOOL.tolist()}}
    return {"name": "elastic-drives", "body": bodies, "frame": [tool]}
