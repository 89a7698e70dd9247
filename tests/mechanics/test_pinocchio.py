"""Mass matrix, efforts, tangents and kinematics against Pinocchio, which no one here wrote."""

from pathlib import Path

import jax
import numpy as np
import pinocchio as pin
import pytest

from jaxmb.machine.file import load_machine
from jaxmb.mechanics.dynamics import inverse_dynamics, mass_matrix
from jaxmb.mechanics.kinematics import frame_jacobian, frame_poses
from jaxmb.mechanics.postures import build_model
from jaxmb.mechanics.tangent import linearize, linearize_moving

ROBOTS = Path(__file__).parent / "robots"
STATES = 20
# Both sides round in 64-bit floats over a few thousand operations (found: 4e-15); the largest entry sets the scale.
TOLERANCE = 1e-12


@pytest.fixture(scope="module", params=["arm", "tree", "chain"])
def robot(request):
    path = ROBOTS / f"{request.param}.urdf"
    model = build_model(load_machine(path))
    other = pin.buildModelFromXML(path.read_text())
    columns = [other.joints[other.getJointId(name)].idx_v for name in model.coordinates]
    q, qd, qdd = np.random.default_rng(3).uniform(-3, 3, (3, STATES, len(columns)))
    return model, other, columns, q, qd, qdd


def pinocchio_states(model, other, columns, q, qd, qdd):
    """The same states in Pinocchio's order, a continuous joint as (cos, sin)."""
    for values, velocity, acceleration in zip(q, qd, qdd, strict=True):
        configuration = pin.neutral(other)
        for name, value in zip(model.coordinates, values, strict=True):
            joint = other.joints[other.getJointId(name)]
            at = slice(joint.idx_q, joint.idx_q + joint.nq)
            configuration[at] = value if joint.nq == 1 else [np.cos(value), np.sin(value)]
        v, a = np.zeros(other.nv), np.zeros(other.nv)
        v[columns], a[columns] = velocity, acceleration
        yield configuration, v, a


def assert_close(ours, theirs):
    theirs = np.array(theirs)
    assert np.asarray(ours).shape == theirs.shape
    assert np.abs(ours - theirs).max() < TOLERANCE * np.abs(theirs).max()


def test_coordinates_are_all_there(robot):
    model, other, columns, *_ = robot
    assert sorted(columns) == list(range(other.nv))
    assert set(model.frames) - {"ground"} == {f.name for f in other.frames if f.type == pin.BODY}


def test_mass_matrix_and_effort(robot):
    model, other, columns, q, qd, qdd = robot
    M, f = jax.jit(jax.vmap(lambda *x: (mass_matrix(model, x[0]), inverse_dynamics(model, *x))))(q, qd, qdd)
    data = other.createData()
    theirs, efforts = [], []
    for x, v, a in pinocchio_states(*robot):
        upper = np.triu(pin.crba(other, data, x))
        theirs.append((upper + np.triu(upper, 1).T)[np.ix_(columns, columns)])
        efforts.append(pin.rnea(other, data, x, v, a)[columns])
    assert_close(M, theirs)
    # Pinocchio's rnea leaves viscous friction out.
    assert_close(f, np.array(efforts) + np.asarray(model.damping) * qd)


def test_tangents_in_motion(robot):
    model, other, columns, q, qd, qdd = robot
    tangent = jax.jit(jax.vmap(lambda *x: linearize_moving(model, *x)))(q, qd, qdd)
    data = other.createData()
    theirs = []
    for x, v, a in pinocchio_states(*robot):
        pin.computeRNEADerivatives(other, data, x, v, a)
        mass = np.triu(data.M) + np.triu(data.M, 1).T
        theirs.append([d[np.ix_(columns, columns)] for d in (data.dtau_dq, data.dtau_dv, mass)])
    by_q, by_qd, by_qdd = np.moveaxis(theirs, 1, 0)
    assert_close(tangent.stiffness, by_q)
    assert_close(tangent.damping, by_qd + np.diag(model.damping))
    assert_close(tangent.mass, by_qdd)


def test_tangents_at_rest(robot):
    model, other, columns, q, *_ = robot
    tangent = jax.jit(jax.vmap(lambda x: linearize(model, x)))(q)
    data, still = other.createData(), np.zeros(other.nv)
    theirs = []
    for x, *_ in pinocchio_states(*robot):
        pin.computeRNEADerivatives(other, data, x, still, still)
        mass = np.triu(data.M) + np.triu(data.M, 1).T
        theirs.append([d[np.ix_(columns, columns)] for d in (data.dtau_dq, mass)])
    stiffness, masses = np.moveaxis(theirs, 1, 0)
    assert_close(tangent.stiffness, stiffness)
    assert_close(tangent.mass, masses)


def test_frames(robot):
    model, other, columns, q, *_ = robot
    last = model.frames[-1]
    poses, jacobians = jax.jit(jax.vmap(lambda x: (frame_poses(model, x), frame_jacobian(model, x, last))))(q)
    data = other.createData()
    theirs, columns_of_last = [], []
    ids = [other.getFrameId(name, pin.BODY) for name in model.frames[1:]]
    for x, _, _ in pinocchio_states(*robot):
        pin.framesForwardKinematics(other, data, x)
        theirs.append([np.eye(4), *(data.oMf[i].homogeneous for i in ids)])
        jacobian = pin.computeFrameJacobian(other, data, x, ids[-1], pin.LOCAL_WORLD_ALIGNED)
        columns_of_last.append(jacobian[:, columns])
    assert_close(poses, theirs)
    assert_close(jacobians, columns_of_last)
