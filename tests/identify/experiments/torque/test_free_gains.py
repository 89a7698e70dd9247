"""Free gains of drives, one of which turns two joints: currents of a simulated arm with known gains give them back."""

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.assess.tests.torque import TorqueMetrics
from jaxmb.identify.study.study import make_study
from tests.identify.experiments.torque.test_torque_recovery import (
    ARM,
    FREE,
    LENGTH,
    TEST as ARM_TEST,
    TRUE,
    efforts_by_hand,
)

GAINS = {"shoulder": 0.21, "wrist": -0.08}
"""Nm of the motor for one ampere."""
RATIO = {"shoulder": {"a": 60.0}, "wrist": {"a": 32.0, "b": 45.0}}
N = np.array([[60.0, 0.0], [32.0, 45.0]])
LOAD = {"name": "load", "frame": "fore", "mass": 1.5, "center_of_mass": [0.3, 0.05, 0.0],
        "inertia_products": {"xx": 0.001, "yy": 0.002, "zz": 0.003}}  # fmt: skip
RATE = 100.0
BOUNDS = {"drive_gain.*": {"lower": -1.0, "upper": 1.0}}


def motion(time, slow):
    """Angles, rates and accelerations of both joints; another motion for another `slow`."""
    terms = {0: [(1.2, 0.2, 0.3), (0.3, 0.6, 1.0)], 1: [(0.9, 0.3, 1.3), (0.3, 0.8, 0.2)]}
    w = {j: [(size, 2.0 * np.pi * hz / slow, phase) for size, hz, phase in some] for j, some in terms.items()}
    return tuple(
        np.array([sum(a * n**k * np.sin(n * time + p + 0.5 * k * np.pi) for a, n, p in w[j]) for j in (0, 1)])
        for k in (0, 1, 2)
    )


def loaded():
    """The numbers of the links with the payload as a part of them; what hangs at the end of the upper link is one."""
    mass, (x, y, _) = LOAD["mass"], LOAD["center_of_mass"]
    return TRUE | {
        "first_moment.upper.x": TRUE["first_moment.upper.x"] + mass * LENGTH,
        "inertia.upper.zz": TRUE["inertia.upper.zz"] + mass * LENGTH**2,
        "first_moment.fore.x": TRUE["first_moment.fore.x"] + mass * x,
        "first_moment.fore.y": TRUE["first_moment.fore.y"] + mass * y,
        "inertia.fore.zz": TRUE["inertia.fore.zz"] + 0.003 + mass * (x * x + y * y),
    }


def records(folder, noise=0.0, seed=0, runs=(True, False), outliers=0.0):
    """Files of runs with and without the payload: angles and currents at the motors, N^T (gain i) = tau."""
    draw, tests = np.random.default_rng(seed), []
    time = np.arange(round(10.0 * RATE)) / RATE
    for number, carries in enumerate(runs):
        q, qd, qdd = motion(time, 1.0 + 0.2 * number)
        tau = efforts_by_hand(q, qd, qdd, loaded() if carries else TRUE)
        current = np.linalg.solve(N.T, tau) / np.array(list(GAINS.values()))[:, None]
        current = current + noise * current.std(axis=1, keepdims=True) * draw.normal(size=current.shape)
        current = current + 6.0 * current.std() * (draw.random(current.shape) < outliers)
        name = f"run{number}"
        np.savetxt(folder / f"{name}.csv", np.concatenate([N @ q, current]).T, fmt="%.17g", delimiter=",")
        columns = "\n".join(f'[{of}]\nfile = "{name}.csv"\ncolumns = {given}'
                            for of, given in (("position", [1, 2]), ("effort", [3, 4])))  # fmt: skip
        drives = "\n".join(
            f'[[drive]]\nname = "{drive}"\nratio = {{ {", ".join(f"{k} = {v}" for k, v in ratio.items())} }}'
            for drive, ratio in RATIO.items()
        )
        (folder / f"{name}.toml").write_text(f"rate_hz = {RATE}\n{columns}\n{drives}\n")
        test = {"kind": "torque", "name": name, "file": f"{name}.toml", "cutoff_hz": 20.0, "least_speed": 0.02}
        tests.append(test | ({} if carries else {"without": ["load"]}))
    return tests


def study(folder, tests, free=FREE | BOUNDS, **settings):
    machine = jaxmb.Machine.model_validate(ARM.model_dump(exclude_unset=True) | {"payload": [LOAD]})
    jaxmb.write_machine(machine, folder / "arm.toml")
    return make_study(
        {"machine": "arm.toml", "test": tests, "free": free, "tolerances": "exact"} | settings, "arm", folder
    )


def test_exact_currents(tmp_path):
    """Differences make rates smaller by (w dt)^4 / 30 = 2e-7 at the fastest 0.8 Hz, the filter angles by 3e-6."""
    result = jaxmb.identify(study(tmp_path, records(tmp_path)))
    assert result.status == "converged"
    for drive, gain in GAINS.items():
        assert result.parameters[f"drive_gain.{drive}"].value == pytest.approx(gain, rel=1e-5)
    assert result.parameters["first_moment.fore.x"].value == pytest.approx(TRUE["first_moment.fore.x"], rel=1e-2)


def test_a_search_sees_the_same_equations(tmp_path):
    """Beside tests of other kinds the residuals are those of the linear step."""
    own = study(tmp_path, records(tmp_path))
    true = TRUE | {f"drive_gain.{drive}": gain for drive, gain in GAINS.items()}
    values = np.array([true[name] for name in own.free.names])
    for test, residual in zip(own.tests, own.problem.residuals_by_test(values), strict=True):
        rows = test.linear.equations(own.model, own.free)
        np.testing.assert_allclose(residual, (rows.matrix @ values - rows.measured) / rows.std, atol=1e-7)


def test_deviations_hold(tmp_path):
    """Currents with 5 % of noise, 12 draws: gains and parameters, by the one covariance of both."""
    wanted = {f"drive_gain.{drive}": gain for drive, gain in GAINS.items()} | {
        name: TRUE[name] for name in ("first_moment.fore.x", "inertia.upper.zz", "damping.a", "friction.b")
    }
    errors = []
    for seed in range(12):
        found = jaxmb.identify(study(tmp_path, records(tmp_path, 0.05, seed))).parameters
        errors.append([(found[name].value - true) / found[name].std for name, true in wanted.items()])
    # four standard deviations of the mean and of the mean square of 12 normal numbers
    assert np.abs(np.mean(errors, axis=0)).max() < 4.0 / np.sqrt(12)
    assert np.abs(np.mean(np.square(errors), axis=0) - 1.0).max() < 4.0 * np.sqrt(2.0 / 12)


def test_gains_that_nothing_tells(tmp_path):
    for runs in ([True], [False]):
        with pytest.raises(ValueError, match=r"drive_gain\.shoulder, drive_gain\.wrist not identifiable"):
            study(tmp_path, records(tmp_path, runs=runs))


def test_held_out_motion_is_predicted_by_gains_that_were_found(tmp_path):
    """And those of the files, 1 Nm, do not matter: errors are those of the noise, 1 % of each current."""
    tests = records(tmp_path, 0.01, 1, (True, False, True))
    tests[2] |= {"role": "check"}
    result = jaxmb.identify(study(tmp_path, tests))
    held = [row for row in result.metrics.of(TorqueMetrics).torques if row.role == "check"]
    assert [row.coordinate for row in held] == ["a", "b"]
    assert max(row.relative_percent for row in held) < 2.0
    for row in held:
        assert row.expected_error is not None
        assert row.expected_error == pytest.approx(row.rms_error, rel=0.2)
        assert 88.0 < row.covered_percent < 99.5
    (tmp_path / "out").mkdir()
    jaxmb.write_result(result, tmp_path / "out")
    again, own = (r.metrics.of(TorqueMetrics).torques for r in (jaxmb.load_result(tmp_path / "out"), result))
    assert [row.rms_error for row in again] == pytest.approx([row.rms_error for row in own])


def test_one_gain_is_told_by_another_that_is_given(tmp_path):
    """Without a payload: both motors move the same links, and the other's gain stands in its file."""
    tests = records(tmp_path, runs=[False])
    text = (tmp_path / "run0.toml").read_text().replace('name = "wrist"', 'name = "wrist"\ngain = -0.08')
    (tmp_path / "run0.toml").write_text(text)
    bounds = {"drive_gain.shoulder": {"lower": -1.0, "upper": 1.0}}
    found = jaxmb.identify(study(tmp_path, tests, FREE | bounds)).parameters
    assert set(found) == set(FREE) | set(bounds)
    assert found["drive_gain.shoulder"].value == pytest.approx(GAINS["shoulder"], rel=1e-2)


def test_gains_alone_of_a_machine_that_is_known(tmp_path):
    """Friction and all else held at the truth."""
    found = jaxmb.identify(study(tmp_path, records(tmp_path, runs=[False]), BOUNDS, hold=TRUE)).parameters
    for drive, gain in GAINS.items():
        assert found[f"drive_gain.{drive}"].value == pytest.approx(gain, rel=1e-5)


def test_outliers_count_neither_in_the_first_fit(tmp_path):
    """One current in twenty is far too large: the step about the first fit is no cure for that."""
    tests = [test | {"robust": True} for test in records(tmp_path, 0.02, 4, outliers=0.05)]
    found = jaxmb.identify(study(tmp_path, tests)).parameters
    true = TRUE | {f"drive_gain.{drive}": gain for drive, gain in GAINS.items()}
    errors = np.array([(found[name].value - value) / found[name].std for name, value in true.items()])
    assert np.abs(errors).max() < 4.0  # one in a thousand draws of fifteen has a larger one
    assert found["drive_gain.shoulder"].std < 2e-3 * GAINS["shoulder"]


def test_friction_that_the_machine_has(tmp_path):
    """Its Stribeck speed is no number of the regressor, and known."""
    tests = records(tmp_path)
    further = {"stribeck": 0.5, "stribeck_speed": 1e-4}  # slower than all samples that are used: it does nothing
    data = ARM.model_dump(exclude_unset=True) | {"payload": [LOAD]}
    data["body"][0]["joint"][0]["further_friction"] = further
    jaxmb.write_machine(jaxmb.Machine.model_validate(data), tmp_path / "rough.toml")
    own = make_study({"machine": "rough.toml", "test": tests, "free": FREE | BOUNDS}, "arm", tmp_path)
    found = jaxmb.identify(own).parameters
    assert found["drive_gain.wrist"].value == pytest.approx(GAINS["wrist"], rel=1e-3)


def test_wrong_requests(tmp_path):
    tests = records(tmp_path)
    with pytest.raises(ValueError, match=r"gain or pattern 'drive_gain\.elbow' does not exist"):
        study(tmp_path, tests, FREE | {"drive_gain.elbow": {"lower": 0.0, "upper": 1.0}})
    with pytest.raises(ValueError, match=r"'drive_gain\.wrist' has no value as the mean of its prior"):
        study(tmp_path, tests, FREE | BOUNDS, prior={"drive_gain.wrist": 0.1})
    simulated = ARM_TEST | {"name": "joints"}
    with pytest.raises(NotImplementedError, match="of the same motors in all torque tests"):
        study(tmp_path, [*tests, simulated])
    with pytest.raises(
        ValueError,
        match=r"fitted recordings at motors, gain or pattern 'drive_gain.* does not exist, and there is no other",
    ):
        study(tmp_path, [simulated])


def test_an_error_of_a_torque_constant_is_that_of_a_drive(tmp_path):
    """A drive that acts on both joints: the equations are those of a file with its other gain."""
    records(tmp_path, runs=(False,))
    text, efforts = (tmp_path / "run0.toml").read_text(), list[np.ndarray]()
    for gain in (1.0, 1.05):
        drives = text.split("[[drive]]")
        coupled = next(k for k, drive in enumerate(drives) if "a =" in drive and "b =" in drive)
        drives[coupled] += f"gain = {gain}\n"
        (tmp_path / "run0.toml").write_text("[[drive]]".join(drives))
        part = {"kind": "torque", "file": "run0.toml", "cutoff_hz": 20.0, "least_speed": 0.02, "without": ["load"]}
        own = study(tmp_path, [part], FREE)
        (entry,) = own.entries
        efforts.append(np.asarray(entry.test.effort))
    keys = [error.key for error in entry.source.errors(entry.test, own.model)]
    constants = [f"torque constant of {name}" for name in RATIO]
    of_test = [f"{constant} in run0" for constant in constants]
    assert [key for key in keys if key.startswith("torque constant")] == constants + of_test
    (key,) = (key for key, ratio in zip(constants, RATIO.values(), strict=True) if len(ratio) == 2)
    for each in (key, f"{key} in run0"):
        corrected = entry.source.corrected(entry.test, own.model, {each: np.log(1.05)})
        np.testing.assert_allclose(corrected.effort, efforts[0], rtol=1e-12, atol=1e-12)
