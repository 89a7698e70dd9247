"""One error in a test of deflections or torques that is fitted together with FRFs, and its name in the result."""

import copy

import numpy as np
import pytest
import tomli_w

import jaxmb
from jaxmb.identify.assess.budget import DescribedTests, error_columns
from jaxmb.identify.assess.corrected import CorrectedResidual
from tests.identify import arm
from tests.identify.assess.model_errors.test_torque_errors import BODIES, DAMPING, FRICTION, TOOL, motion, torques


def responses(folder, model, name, posture, lines, points):
    """FRF test with measured accelerances of a machine, noise 1 %."""
    rng, names = np.random.default_rng(ord(name)), [" ".join(point) for point in points]
    exact = np.asarray(jaxmb.frf(model, jaxmb.posture(model, posture), lines, outputs=points, inputs=points))
    noise = rng.normal(scale=0.01, size=(2, *exact.shape))
    measured = exact * np.exp(noise[0] + 1j * noise[1])
    jaxmb.write_frf(folder / f"{name}.npz", jaxmb.FrfSet(lines, measured, "accelerance", names, names))
    how = {"posture": posture, "noise_log_std": 0.01, "outputs": points, "inputs": points}
    return {"kind": "frf", "name": name, "file": f"{name}.npz"} | how


def heights(q):
    """Tool (x, z), and potential energy of the weight, of the arm at angles about y, closed form."""
    turned = [np.array([[np.cos(at), np.sin(at)], [-np.sin(at), np.cos(at)]]) for at in (q[0], q[0] + q[1])]
    elbow = turned[0] @ [0.8, 0.1]
    weight = 20.0 * (turned[0] @ [0.4, 0.1])[1] + 8.0 * (elbow + turned[1] @ [0.3, 0.0])[1]
    return elbow + turned[1] @ [0.7, 0.05], 9.81 * weight


def moved_by(q, force):
    """Displacement of the tool by a force, with the geometric stiffness of the weight."""
    step = 1e-4 * np.eye(2)
    jacobian = np.transpose([(heights(q + h)[0] - heights(q - h)[0]) / 2e-4 for h in step])
    signs = (1.0, 1.0), (-1.0, -1.0), (1.0, -1.0), (-1.0, 1.0)
    bent = [[sum(a * b * heights(q + a * h + b * g)[1] for a, b in signs) for g in step] for h in step]
    x, z = jacobian @ np.linalg.solve(np.diag([5e4, 9e3]) + np.array(bent) / 4e-8, jacobian.T @ force[[0, 2]])
    return np.array([x, 0.0, z])


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda q, force, moved: (q, force, moved), None),
        (lambda q, force, moved: (np.add(q, [0.05, 0.0]), force, moved), "-2.8"),
        (lambda q, force, moved: (q, force, moved * [-1, 1, 1]), "the sign of displacement x of test 'loads'"),
        (lambda q, force, moved: (q, force[[2, 1, 0]], moved), "exchanged forces x and z of test 'loads'"),
    ],
)
def test_an_error_of_deflections_beside_frfs_is_named(tmp_path, wrong, named):
    """Postures, loads and columns of the load cases are errors in a search as well as in a linear step."""
    model, rng, rows = jaxmb.build_model(arm.MACHINE), np.random.default_rng(3), []
    for i in range(16):
        q, force = rng.uniform(-1.0, 1.0, 2), rng.uniform(-60.0, 60.0, 3) * [1.0, 0.0, 1.0]
        found = moved_by(q, force) + rng.normal(scale=5e-6, size=3)
        rows.append([i, *np.concatenate(wrong(q, force, found))])
    head = "test,a rad,b rad,fx N,fy N,fz N,dx m,dy m,dz m"
    np.savetxt(tmp_path / "loads.csv", rows, delimiter=",", header=head, comments="")
    loads = {"kind": "deflection", "name": "loads", "file": "loads.csv", "frame": "tool", "std_mm": 0.005}
    lines, points = np.arange(1.0, 25.0, 0.25), arm.OUTPUTS[:2]
    tests = [
        responses(tmp_path, model, name, {"a": 0.2, "b": b}, lines, points) for name, b in (("h", 0.5), ("g", 1.3))
    ]
    result = jaxmb.identify(arm.study_of(tmp_path, *tests, loads))
    judged(result, named)
    if named is None:
        for name, p in result.parameters.items():
            assert p.interval_95[0] < arm.TRUTH[name] < p.interval_95[1]


def judged(result, named):
    """There is no doubt, or the first one names the error, with one parameter or alternative alone."""
    if named is None:
        assert (result.status, result.doubts) == ("converged", ())
    else:
        (error,) = result.metrics["mistakes"]
        assert named in error["text"]
        assert error["explains"] > 0.99


STIFFNESS, GEARS = (2e5, 6e4), (60.0, 25.0)
"""Of the gears, N m/rad, and their damping, N m s/rad."""


def geared():
    """The arm of the torque tests with motors behind gears."""
    bodies = copy.deepcopy(BODIES)
    for k, body in enumerate(bodies):
        shaft = {"inertia": 1e-4, "ratio": 100.0, "damping": DAMPING[k] / 1e4, "friction": FRICTION[k] / 100.0}
        body["joint"][0] |= {"stiffness": STIFFNESS[k], "damping": GEARS[k], "motor": shaft | {"locked": True}}
    return {"name": "arm", "body": bodies, "frame": [TOOL]}


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda time, q, tau: (q, tau), None),
        (lambda time, q, tau: (q, tau * [1.0, 1.15]), "a factor of 0.869 on the torque of q2 in test 'b'"),
        (lambda time, q, tau: (np.add(q, [0.02, 0.0]), tau), "zero of q1 -1.1"),
        (lambda time, q, tau: (q, tau[:, ::-1]), "exchanged torques of q1 and q2 of test 'b'"),
        (
            lambda time, q, tau: (q, np.stack([np.interp(time - 0.02, time, own) for own in tau.T], axis=1)),
            "torques in test 'b' that are 20 ms late",
        ),
    ],
)
def test_an_error_of_one_of_several_torque_tests_beside_frfs_is_named(tmp_path, wrong, named):
    """FRFs know the stiffness of the gears and the masses; the other torque tests are not blamed."""
    judged(jaxmb.identify(of_gears(tmp_path, wrong, FORE)), named)


FORE = {"mass.fore": {"lower": 4.0, "upper": 20.0}, "first_moment.fore.x": {"lower": 0.5, "upper": 5.0}}


def of_gears(folder, wrong, free):
    """Study of two FRF tests and three torque tests, of which one is wrong."""
    model, rng = jaxmb.build_model(jaxmb.Machine.model_validate(geared())), np.random.default_rng(11)
    lines, points = np.arange(1.0, 60.0, 0.5), [["tool", "x"], ["tool", "z"]]
    tests = [
        responses(folder, model, name, {"q1": 0.2, "q2": b}, lines, points) for name, b in (("h", 0.5), ("g", 1.4))
    ]
    time = np.arange(1200) / 200.0
    for name, pace in zip("abc", (1.0, 0.8, 1.15), strict=True):
        q, v, a = motion(pace * time)
        rotors = pace**2 * a  # of 1 kg m^2 behind the gears
        tau = torques(q, pace * v, pace**2 * a, (0.0, -9.81), 0.0) + rotors + rng.normal(scale=(1.5, 0.8), size=q.shape)
        q, tau = wrong(time, q, tau) if name == "b" else (q, tau)
        head = "time_s,q1,q2,q1.torque,q2.torque"
        np.savetxt(folder / f"{name}.csv", np.column_stack([time, q, tau]), delimiter=",", header=head, comments="")
        tests.append({"kind": "torque", "name": name, "file": f"{name}.csv", "least_speed": 0.1})
    (folder / "arm.toml").write_text(tomli_w.dumps(geared()))
    free |= {
        "stiffness.*": {"lower": 1e4, "upper": 1e6}, "damping.q[12]": {"lower": 1.0, "upper": 1e3},
        "damping.*_motor": {"lower": 0.0, "upper": 0.1, "scale": "linear"}, "friction.*": {"lower": 0.0, "upper": 10.0},
    }  # fmt: skip
    study = {"machine": "arm.toml", "test": tests, "free": free}
    return jaxmb.make_study(study, "arm", folder)


def test_errors_have_their_effect_on_torques_beside_frfs(tmp_path):
    """Torques have no derivatives by a tilt of the base, or by errors of their own; to first order, a joint fit has
    their effect all the same."""
    made = of_gears(tmp_path, lambda time, *data: data, {})
    u = np.asarray(made.free.encode(made.start.values))
    machine = made.free.apply(made.model, made.start.values)
    described = DescribedTests(made.fitted, machine, made.free, made.tolerances)
    errors = [error for error in described.errors if error.std(made.tolerances) > 0.0]
    std = np.array([error.std(made.tolerances) for error in errors])
    plain = CorrectedResidual.of(made, machine)
    corrected = plain.with_effects(errors, error_columns(described, errors), made.tolerances, u)
    keys, rows = [error.key for error in corrected.errors], slice(made.problem.row_slices[2].start, None)
    assert {"tilt about Y", "torque constant of q1"} <= set(keys)
    assert "torque constant of q1" not in {error.key for error in plain.errors}
    for error, size in zip(errors, 0.1 * std, strict=True):
        x = np.zeros(len(keys))
        x[keys.index(error.key)] = size
        change = described.residual({error.key: size})[rows] - described.as_described[rows]
        points = (corrected.residuals(u[None], each[None])[0][rows] for each in (x, 0.0 * x))
        found = np.subtract(*points)
        close = 0.15 if "delay" in error.key else 1e-3  # a delay interpolates between samples, on either side
        assert np.linalg.norm(found - change) <= close * np.linalg.norm(change) + 1e-5 * np.sqrt(change.size)
        residual, jacobian = corrected.state(u, x, u.size + np.array([keys.index(error.key)]))
        np.testing.assert_allclose(residual[rows], corrected.residuals(u[None], x[None])[0][rows], atol=1e-9)
        assert np.linalg.norm(jacobian[rows, 0] * size - found) <= 1e-6 + 5e-3 * np.linalg.norm(found)  # exp(mass)
