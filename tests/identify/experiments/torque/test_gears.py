"""Drives behind elastic gears, against a pendulum whose link SciPy integrates behind its gear."""

import re
import sys

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxmb
from jaxmb.identify.experiments.torque.gears import at_joints, reversed_at
from jaxmb.measurement.motion.csv_motion import read_described

RATIO, GRAVITY, LENGTH = -80.0, 9.81, 0.5
TRUE = {
    "inertia.bob.zz": 4.0, "first_moment.bob.x": 5.0, "stiffness.q": 8e3, "damping.q": 8.0,
    "rotor_inertia.q_motor": 5e-4, "damping.q_motor": 1e-3, "friction.q_motor": 0.02, "offset.q_motor": -0.01,
}  # fmt: skip
RATE = 200.0
TIME = np.arange(round(8.0 * RATE) + 1) / RATE
MOTOR = {"inertia": 8e-4, "ratio": RATIO, "damping": 2e-3, "friction": 0.01, "locked": True}
MACHINE = jaxmb.Machine.model_validate({
    "name": "pendulum",
    "gravity": [0.0, -GRAVITY, 0.0],
    "body": [{
        "name": "bob", "mass": 12.0, "center_of_mass": [0.4, 0.0, 0.0],
        "inertia_products": {"xx": 1.0, "yy": 1.0, "zz": 1.5},
        "joint": [{"name": "q", "stiffness": 1.2e4, "damping": 12.0, "motor": MOTOR}],
    }],
    "frame": [{"name": "tool", "body": "bob", "origin": {"xyz": [LENGTH, 0.0, 0.0]}}],
})  # fmt: skip
MODEL = jaxmb.build_model(MACHINE)
FREE = {
    "inertia.bob.zz": {"lower": 2.0, "upper": 8.0}, "first_moment.bob.x": {"lower": 1.0, "upper": 8.0},
    "stiffness.q": {"lower": 1e3, "upper": 1e5}, "damping.q": {"lower": 1.0, "upper": 100.0},
    "rotor_inertia.*": {"lower": 0.0, "upper": 5e-3},
    "damping.q_motor": {"lower": 0.0, "upper": 0.1, "scale": "linear"},
    "friction.q_motor": {"lower": 0.0, "upper": 0.1}, "offset.q_motor": {"lower": -1.0, "upper": 1.0},
}  # fmt: skip


def motor_angle(time, ramp_s):
    """Planned at the joint, from rest on, in full swing after `ramp_s`: angle, rate and acceleration."""
    ramp = np.polynomial.Polynomial([0.0, 0.0, 0.0, 10.0, -15.0, 6.0])
    x = np.minimum(time / ramp_s, 1.0)
    w, a = 2.0 * np.pi * np.array([0.3, 0.8, 1.6]), np.array([0.7, -0.3, 0.12])
    f = [(a * w**k) @ np.sin(w[:, None] * time + 0.5 * np.pi * k) for k in range(3)]
    g = [(ramp.deriv(k)(x) if k else ramp(x)) / ramp_s**k for k in range(3)]
    return g[0] * f[0], g[1] * f[0] + g[0] * f[1], g[2] * f[0] + 2.0 * g[1] * f[1] + g[0] * f[2]


@pytest.fixture(scope="module")
def motion():
    return recorded(1.0)


def recorded(ramp_s):
    """Angles of motor and link and the drive's torque, at the joint."""
    i, h, k, d, j, b, coulomb, offset = TRUE.values()

    def slope(t, state):
        angle, rate, _ = motor_angle(np.array([t]), ramp_s)
        gear = k * (state[0] - angle[0]) + d * (state[1] - rate[0])
        return [state[1], (-gear - h * GRAVITY * np.cos(state[0])) / i]

    start = -h * GRAVITY / k
    for _ in range(9):
        start = -h * GRAVITY * np.cos(start) / k
    q, rate = solve_ivp(slope, (0.0, TIME[-1]), [start, 0.0], "DOP853", TIME, rtol=1e-8, atol=1e-11).y
    angle, speed, acceleration = motor_angle(TIME, ramp_s)
    shaft = j * RATIO * acceleration + b * RATIO * speed + coulomb * np.sign(RATIO * speed) + offset
    return angle, q, RATIO * shaft - k * (q - angle) - d * (rate - speed)


EXACT = {"tolerances": "exact"}
"""Of a study that is about something else: each drawn error makes the equations of an elastic drive anew."""


def make(folder, heads, columns, *tests, free=FREE, hold=None, study=None, **settings):
    jaxmb.write_machine(MACHINE, folder / "machine.toml")
    table = np.column_stack([TIME, *columns])
    np.savetxt(folder / "motion.csv", table, "%.15g", ",", header=",".join(["time_s", *heads]), comments="")
    torque = {"kind": "torque", "file": "motion.csv", "cutoff_hz": 40.0, "least_speed": 0.3} | settings
    data = {"machine": "machine.toml", "test": [torque, *tests], "free": free, "hold": hold or {}} | (study or {})
    return jaxmb.make_study(data, "gears", folder)


def missed(study, model):
    """Root mean square of the residual over that of the torque."""
    test = study.entries[0].test
    left = np.asarray(test.predict(test.view(model))) - np.asarray(test.effort)
    return np.sqrt(np.mean(left**2) / np.mean(np.asarray(test.effort) ** 2))


@pytest.mark.parametrize("errors", [{"zero of q": 2e-3}, {"gear ratio of q": 0.01}])
def test_small_errors_change_the_equations_as_behind_rigid_gears(tmp_path, motion, monkeypatch, errors):
    """The product of error and deflection is left out: here of a resonance of 7 Hz in a motion of 1.6 Hz."""
    angle, _, torque = motion
    study = make(tmp_path, ["q", "q.torque"], [angle, torque])
    true = jaxmb.set_parameters(study.model, TRUE)
    (entry,) = study.linearized_about(true).fitted
    plain = entry.source.residual_with(entry.test, true, {})
    quick = entry.source.residual_with(entry.test, true, errors) - plain
    monkeypatch.setattr(sys.modules["jaxmb.identify.study.reading.torque"], "SMALL_ZERO", -1.0)
    exact = entry.source.residual_with(entry.test, true, errors) - plain
    assert 0.0 < np.linalg.norm(quick - exact) < 0.03 * np.linalg.norm(exact)


def test_torques_of_an_elastic_drive(tmp_path, motion):
    """Either side, by columns of the joint or of the shaft. The residual is that of the filter beside friction's jumps;
    with a rigid gear it is 2 % of the torque."""
    angle, q, torque = motion
    cases = [
        (["q", "q.torque"], [angle, torque], {}),
        (["q_motor", "q_motor.torque"], [RATIO * angle, torque / RATIO], {}),
        (["q", "q.torque"], [q, torque], {"angles_at": {"q": "link"}}),
    ]
    for heads, columns, settings in cases:
        study = make(tmp_path, heads, columns, **settings)
        true = jaxmb.set_parameters(study.model, TRUE)
        assert missed(study, true) > 0.015
        assert missed(study.linearized_about(true), true) < 1e-3


def test_currents_of_a_drive_described_at_its_shaft(tmp_path, motion):
    """Ratios of a description may be those to the shaft of the machine's motor; a resampled record has torques of its
    joint too."""
    angle, _, torque = motion
    np.savetxt(tmp_path / "shaft.csv", np.column_stack([RATIO * angle, torque / RATIO / 0.5]), "%.15g", ",")
    signals = 'position = {file = "shaft.csv", columns = [1]}\neffort = {file = "shaft.csv", columns = [2]}\n'
    drive = 'drive = [{name = "m", ratio = {q_motor = 1.0}, gain = 0.5}]\n'
    (tmp_path / "shaft.toml").write_text(f"rate_hz = {RATE}\n{signals}{drive}")
    both = [
        make(tmp_path, ["q", "q.torque"], [angle, torque], file=file, resample_hz=RATE).entries[0].test.effort
        for file in ("motion.csv", "shaft.toml")
    ]
    np.testing.assert_allclose(both[1], both[0], rtol=1e-9, atol=1e-9 * np.abs(torque).max())
    record, _ = at_joints(MODEL, read_described("shaft.toml", tmp_path, MODEL.coordinates), "motor")
    for each in (record, reversed_at(record, ["q"])):
        np.testing.assert_allclose(each.drives.effort, each.effort, rtol=1e-12)


def test_a_record_that_begins_with_the_motion(tmp_path):
    """From rest without a standstill before it, links begin in equilibrium; a start without free vibration from the
    load of the first tenth of a second missed 9 % of the torque."""
    angle, _, torque = recorded(0.2)
    study = make(tmp_path, ["q", "q.torque"], [angle, torque], cutoff_hz=80.0)
    true = jaxmb.set_parameters(study.model, TRUE)
    assert missed(study.linearized_about(true), true) < 3e-3


def test_both_sides_recorded(tmp_path, motion):
    """Then the gear's stiffness has no part in it."""
    angle, q, torque = motion
    study = make(tmp_path, ["q", "q_motor", "q.torque"], [q, RATIO * angle, torque])
    assert not study.relinearized
    assert missed(study, jaxmb.set_parameters(study.model, TRUE)) < 1e-3


def test_columns_are_derivatives(tmp_path, motion):
    """Of the efforts about a machine, by differences between machines. The deflection's own part is taken at the motion
    of a rigid gear, which is off by a few per cent of it."""
    angle, q, torque = motion
    for column, settings, names in (
        (angle, {}, ("stiffness.q", "inertia.bob.zz")),
        (q, {"angles_at": "link"}, ("stiffness.q",)),
        (angle, {"gears": "quasi-static"}, ("stiffness.q",)),
    ):
        study = make(tmp_path, ["q", "q.torque"], [column, torque], **settings)

        def efforts(values, study=study):
            model = jaxmb.set_parameters(study.model, values)
            test = study.linearized_about(model).entries[0].test
            return np.asarray(test.predict(test.view(model))), test

        at_truth, test = efforts(TRUE)
        for name in names:
            change = (efforts(TRUE | {name: 1.001 * TRUE[name]})[0] - at_truth) / (1e-3 * TRUE[name])
            own = np.asarray(test.regressor)[:, test.parameters.index(name)]
            assert np.linalg.norm(own - change) <= 0.03 * np.linalg.norm(change), name


def test_one_robot_in_one_study(tmp_path, motion):
    """Torques, an FRF and deflections with the brake on give back gear, motor and link without noise."""
    angle, _, torque = motion
    lines = {"first_hz": 1.0, "last_hz": 20.0, "step_hz": 0.5}
    frf = {"kind": "frf", "outputs": [["tool", "y"]], "posture": {"q": 0.4},
           "simulate": {"lines": lines, "parameters": TRUE}}  # fmt: skip
    how = {"tests": 4, "zones": {"all": {"q": [-1.0, 1.0]}}, "force_n": [50.0, 100.0], "directions": [[0, 1, 0]]}
    loads = {"kind": "deflection", "simulate": how | {"parameters": TRUE}}
    study = make(tmp_path, ["q", "q.torque"], [angle, torque], frf, loads, torque_std=0.5)
    result = jaxmb.identify(study)
    assert result.status == "converged"
    for name, value in TRUE.items():
        assert result.parameters[name].value == pytest.approx(value, rel=0.02), name


def test_friction_of_a_warmer_test_is_not_the_damping_of_its_gear(tmp_path, motion):
    """A factor on all friction is then one on free parameters, which it cannot improve."""
    angle, _, torque = motion
    study = make(tmp_path, ["q", "q.torque"], [angle, torque])
    (entry,) = study.linearized_about(jaxmb.set_parameters(study.model, TRUE)).fitted
    test = entry.source.corrected(entry.test, study.model, {"viscous friction in motion": 1.0})
    changed = np.abs(np.asarray(test.regressor) - np.asarray(entry.test.regressor)).max(axis=0) > 0.0
    assert [name for name, own in zip(test.parameters, changed, strict=True) if own] == ["damping.q_motor"]


def test_torques_alone(tmp_path, motion):
    """Linear steps, each about the machine of the one before; gear and rotor are known, as of a data sheet."""
    angle, _, torque = motion
    hold = {name: TRUE[name] for name in ("stiffness.q", "damping.q", "rotor_inertia.q_motor")}
    free = {name: bounds for name, bounds in FREE.items() if name in TRUE and name not in hold}
    study = make(tmp_path, ["q", "q.torque"], [angle, torque], free=free, hold=hold, torque_std=0.5)
    assert study.solver.is_linear
    result = jaxmb.identify(study)
    assert result.status == "converged"
    for name in free:
        assert result.parameters[name].value == pytest.approx(TRUE[name], rel=0.02), name


def test_simulated_motions_are_those_of_the_links(tmp_path):
    """Recorded at the motors, the same equations as of recorded motions explain them."""
    motion = {"q": {"sine": [0.3, 0.0, 0.1]}}
    how = {"duration_s": 4.0, "rate_hz": 200.0, "base_hz": 0.5, "motion": motion, "parameters": TRUE}
    for side in ("motor", "link"):
        study = make(tmp_path, [], [], simulate=how, angles_at=side, file=None)
        true = jaxmb.set_parameters(study.model, TRUE)
        assert missed(study.linearized_about(true), true) < 2e-3 < 0.01 < missed(study, true)


@pytest.mark.parametrize(("offset", "status"), [(1.0, "converged"), (0.05, "data not followed")])
def test_the_sign_of_a_ratio_is_named(tmp_path, motion, offset, status):
    """Of a shaft without its joint; a large offset may take up most of the weight."""
    angle, _, torque = motion
    heads, columns = ["q_motor", "q_motor.torque"], [-RATIO * angle, -torque / RATIO]
    hold = {name: TRUE[name] for name in ("stiffness.q", "damping.q", "rotor_inertia.q_motor")}
    free = {name: bounds for name, bounds in FREE.items() if name in TRUE and name not in hold}
    free["offset.q_motor"] = {"lower": -offset, "upper": offset}
    result = jaxmb.identify(make(tmp_path, heads, columns, free=free, hold=hold, study=EXACT))
    assert result.status.startswith(status)
    named = "the opposite sign of the gear ratio of q of test 'motion' would explain (9[0-9]|100) % of the misfit"
    assert re.search(named, result.doubts[0])
    columns[0] = RATIO * angle  # the sign of the torque is another error
    result = jaxmb.identify(make(tmp_path, heads, columns, free=free, hold=hold, study=EXACT))
    assert result.status.startswith("data not followed")
    assert not any("gear ratio" in text for text in result.doubts)


def test_the_sign_of_a_ratio_between_two_columns(tmp_path, motion):
    angle, q, torque = motion
    with pytest.raises(jaxmb.InputError, match=r"'q_motor' turns 79.* times for one of 'q', .* ratio is -80: expected"):
        make(tmp_path, ["q", "q_motor", "q.torque"], [q, -RATIO * angle, torque])


def test_many_turns_of_a_shaft_and_time_in_ms(tmp_path, motion, monkeypatch):
    """A shaft turns by more than 1000 rad where its joint does not; a record of 0.2 Hz is asked about its time."""
    angle, _, torque = motion
    monkeypatch.setattr(sys.modules[__name__], "TIME", 1e3 * TIME)
    heads, settings = ["q_motor", "q_motor.torque"], {"cutoff_hz": 0.04, "least_speed": 0.0}
    (entry,) = make(tmp_path, heads, [RATIO * (angle + 15.0), torque / RATIO], **settings).entries
    assert "motion.csv has 0.2 samples per second over 8e+03 s: is time_s in ms?" in entry.remarks
    with pytest.raises(jaxmb.InputError, match=r"q_motor goes to 8\d{4}, expected rad or m: is it in degrees"):
        make(tmp_path, heads, [RATIO * (angle + 1050.0), torque / RATIO], **settings)


def test_wrong_columns(tmp_path, motion):
    """A sentence each."""
    angle, _, torque = motion
    with pytest.raises(jaxmb.InputError, match=r"'q\.torque' and 'q_motor\.torque' are the same, expected one of them"):
        make(tmp_path, ["q", "q_motor", "q.torque", "q_motor.torque"], [angle, RATIO * angle, torque, torque])
    with pytest.raises(jaxmb.InputError, match="angles_at: joint with a motor"):
        make(tmp_path, ["q", "q.torque"], [angle, torque], angles_at={"p": "link"})


@pytest.mark.parametrize(
    ("free", "options", "told"),
    [
        ("friction.q", {"least_speed": 0.0}, True),
        ("friction.q", {"least_speed": 0.0, "gears": "quasi-static"}, True),
        ("friction.q", {"least_speed": 0.0, "angles_at": "link"}, False),
        ("friction.q", {}, False),
        ("friction.q_motor", {"least_speed": 0.0}, False),
    ],
)
def test_friction_of_a_link_whose_motor_was_recorded_needs_a_least_speed(tmp_path, motion, free, options, told):
    q, _, torque = motion
    study = make(tmp_path, ["q", "q.torque"], [q, torque], free=FREE | {free: {"lower": 0.0, "upper": 50.0}}, **options)
    (entry,) = study.fitted
    assert any("acts behind an elastic gear" in remark for remark in entry.remarks) == told
