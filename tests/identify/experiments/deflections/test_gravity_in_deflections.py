"""Gravity's stiffness in deflections beside FRFs: the machine's energy, minimized under small loads by SciPy."""

import jax.numpy as jnp
import numpy as np
from scipy.optimize import root

import jaxmb
from jaxmb.identify.assess.tests.deflections import compared
from jaxmb.identify.estimation.identifiability import identifiability
from jaxmb.identify.experiments.deflections.load_cases import LoadCase, predicted
from tests.identify.arm import FREE, MACHINE, frf, loads, study_of

MODEL = jaxmb.set_parameters(jaxmb.build_model(MACHINE), {"stiffness.a": 900.0, "stiffness.b": 200.0})
Q = np.array([0.3, -0.9])
G = 9.81


def gravity_torque(q):
    """dV/dq of the arm by hand: masses 20 and 8 kg, rotations about y turn x towards -z."""
    a, b = q[0], q[0] + q[1]

    def height(angle, x, z):  # change of the height of (x, z) with its angle
        return -x * np.cos(angle) - z * np.sin(angle)

    upper = 20.0 * G * height(a, 0.4, 0.1) + 8.0 * G * height(a, 0.8, 0.1)
    fore = 8.0 * G * height(b, 0.3, 0.0)
    return np.array([upper + fore, fore])


def test_beside_equilibria_of_a_loaded_arm():
    force, k = np.array([0.3, 0.0, -0.5]), np.array([900.0, 200.0])

    def tool(q):
        return np.asarray(jaxmb.frame_pose(MODEL, jnp.asarray(q), "tool"))[:3, 3]

    def imbalance(q, sign):
        jacobian = np.asarray(jaxmb.frame_jacobian(MODEL, jnp.asarray(q), "tool"))[:3]
        return k * (q - Q) + gravity_torque(q) - gravity_torque(Q) - sign * 1e-3 * jacobian.T @ force

    ends = [tool(root(imbalance, Q, (sign,), tol=1e-14).x) for sign in (1.0, -1.0)]
    expected = (ends[0] - ends[1]) / 2e-3
    case = LoadCase("t", Q, "tool", np.array([*force, 0.0, 0.0, 0.0]), ("tool",), np.zeros((1, 6)), np.ones((1, 6)))
    with_gravity, without = (predicted(MODEL, [case], gravity)[0][0, :3] for gravity in (True, False))
    np.testing.assert_allclose(with_gravity, expected, rtol=1e-5, atol=1e-9)
    assert np.abs(without[[0, 2]] / expected[[0, 2]] - 1.0).max() > 0.05


def test_it_acts_beside_other_tests_alone(tmp_path):
    alone, beside = (study_of(tmp_path, *tests).tests[-1] for tests in ([loads()], [frf(), loads()]))
    assert (alone.gravity, beside.gravity) == (False, True)


def test_displacements_of_a_result_contain_it(tmp_path):
    """They are those of the fit, also where the geometry is free."""
    assert study_of(tmp_path, frf(), loads()).fitted[1].source.linearized_about is None
    free = FREE | {"*ero.b": {"lower": -0.1, "upper": 0.1}}
    study = study_of(tmp_path, frf(), loads(), free=free)
    values = np.array([0.05 if name == "zero.b" else study.truth[name] for name in study.free.names])
    model, u = study.free.apply(study.model, values), study.free.encode(values)
    fitted = study.linearized_about(model).tests[1]
    expected = np.asarray(fitted.predict(fitted.view(model))).reshape(-1, 6)
    exact = identifiability(np.eye(u.size), np.ones(u.size))
    rows = compared(study.fitted[1], study.problem, u, exact)
    np.testing.assert_allclose([row.predicted_mm for row in rows], 1e3 * expected[:, :3], rtol=1e-9, atol=1e-12)
