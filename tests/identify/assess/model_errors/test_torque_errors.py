"""One gross error at a time in a torque test whose noise is estimated, and its name in the result."""

import re
import tomllib

import numpy as np
import pytest
import scipy
import tomli_w

import jaxmb
from jaxmb.identify.assess.hypotheses import Hypothesis, Whitening
from jaxmb.identify.assess.linear_estimate import LinearHypothesisSearch
from jaxmb.identify.assess.tests.torque import TorqueMetrics
from jaxmb.identify.experiments.tolerances import StatedError
from jaxmb.identify.study.reading.motions import saturation_remarks
from jaxmb.measurement.motion.record import MotionRecord

MASS, CENTER, INERTIA, LENGTH = (14.0, 9.0), (0.3, 0.25), (0.5, 0.3), 0.6
DAMPING, FRICTION = np.array([9.0, 4.0]), np.array([12.0, 6.0])
BODIES = [
    {"name": name, "parent": parent, "origin": {"xyz": [start, 0.0, 0.0]}, "mass": MASS[k],
     "center_of_mass": [CENTER[k], 0.0, 0.0],
     "inertia_products": {"xx": INERTIA[k], "yy": INERTIA[k], "zz": INERTIA[k]},
     "joint": [{"name": f"q{k + 1}", "axis": [0.0, 1.0, 0.0]}]}
    for k, (name, parent, start) in enumerate((("upper", "ground", 0.0), ("fore", "upper", LENGTH)))
]  # fmt: skip
TOOL = {"name": "tool", "body": "fore", "origin": {"xyz": [0.5, 0.0, 0.0]}}
FREE = {
    "damping.*": {"lower": 0.0, "upper": 100.0, "scale": "linear"},
    "friction.*": {"lower": 0.0, "upper": 100.0},
}


def torques(q, v, a, gravity, payload, at=(0.5, 0.0)):
    """Of two links about parallel y axes, along x at q = 0, closed form; gravity along X and Z of the ground, a payload
    at x and z of the second link."""
    mass = MASS[1] + payload
    along, across = MASS[1] * CENTER[1] + payload * at[0], payload * at[1]
    first, turn = np.hypot(along, across), -np.arctan2(across, along)
    own = INERTIA[1] + MASS[1] * CENTER[1] ** 2 + payload * (at[0] ** 2 + at[1] ** 2)
    first_upper = MASS[0] * CENTER[0] + mass * LENGTH
    upper = INERTIA[0] + MASS[0] * CENTER[0] ** 2 + mass * LENGTH**2
    c, s, both = np.cos(q[:, 1] + turn), np.sin(q[:, 1] + turn), q.sum(axis=1) + turn
    coupled = first * LENGTH
    load = [-(gravity[0] * -np.sin(at) + gravity[1] * -np.cos(at)) for at in (q[:, 0], both)]
    tau_2 = (own + coupled * c) * a[:, 0] + own * a[:, 1] + coupled * s * v[:, 0] ** 2 + first * load[1]
    tau_1 = (upper + own + 2.0 * coupled * c) * a[:, 0] + (own + coupled * c) * a[:, 1] + first_upper * load[0]
    tau_1 += -coupled * s * (2.0 * v[:, 0] * v[:, 1] + v[:, 1] ** 2) + first * load[1]
    return np.column_stack([tau_1, tau_2]) + DAMPING * v + FRICTION * np.sign(v)


def motion(time):
    """Angles, speeds and accelerations."""
    size, omega = np.array([[0.9, 1.1], [0.5, -0.4]]), 2.0 * np.pi * np.array([[0.33, 0.5], [0.83, 1.0]])
    phase = omega * time[:, None, None]
    q = np.sum(size * np.sin(phase), axis=1) + np.array([0.3, -0.4])
    return q, np.sum(size * omega * np.cos(phase), axis=1), -np.sum(size * omega**2 * np.sin(phase), axis=1)


def written(
    folder, change=lambda q, tau: (q, tau), gravity=(0.0, -9.81), payload=0.0, least_speed=0.1, friction=None, seed=3,
    noise=(1.5, 0.8), rate_hz=100.0, at=(0.5, 0.0), free=FREE, **settings,
):  # fmt: skip
    """Study of a record of the arm, with friction free unless it is stated."""
    rng, time = np.random.default_rng(seed), np.arange(600) / 100.0
    q, v, a = motion(time)
    tau = torques(q, v, a, gravity, payload, at) + rng.normal(scale=noise, size=q.shape)
    q, tau = change(q + rng.normal(scale=1e-5, size=q.shape), tau)
    head = "time_s,q1,q2,q1.torque,q2.torque"
    table = np.column_stack([time * 100.0 / rate_hz, q, tau])
    np.savetxt(folder / "run.csv", table, delimiter=",", header=head, comments="")
    bodies = BODIES
    if friction is not None:
        free = {"damping.*": FREE["damping.*"]}
        bodies = [
            body | {"joint": [body["joint"][0] | {"friction": own}]} for body, own in zip(BODIES, friction, strict=True)
        ]
    machine = {"name": "arm", "body": bodies, "frame": [TOOL]}
    test = {"kind": "torque", "file": "run.csv", "least_speed": least_speed} | settings
    (folder / "arm.toml").write_text(tomli_w.dumps(machine))
    (folder / "study.toml").write_text(tomli_w.dumps({"machine": "arm.toml", "test": [test], "free": free}))
    return jaxmb.load_study(folder / "study.toml")


def identified(folder, change=lambda q, tau: (q, tau), **settings):
    return jaxmb.identify(written(folder, change, **settings))


def test_a_correct_torque_test_has_no_doubt(tmp_path):
    result = identified(tmp_path)
    assert result.status == "converged"
    assert not result.doubts
    for name, true in zip(("damping.q1", "friction.q2"), (DAMPING[0], FRICTION[1]), strict=True):
        assert abs(result.parameters[name].value - true) < 4.0 * result.parameters[name].std


def test_a_payload_whose_centre_is_at_no_frame_is_named(tmp_path):
    """8 kg at 150 and 200 mm from the tool."""
    result = identified(tmp_path, payload=8.0, at=(0.65, 0.2))
    (error,) = result.metrics.model_errors
    found = re.fullmatch(r"a payload of (\S+) kg, its centre (\S+) mm from tool,", error.text)
    assert [float(x) for x in found.groups()] == [pytest.approx(8.0, rel=0.1), pytest.approx(250.0, rel=0.1)]
    assert error.explains > 0.97


def test_a_machine_without_any_friction_is_one_cause(tmp_path):
    """Not the friction of a joint, which explains a part."""
    free = {"first_moment.fore.x": {"lower": -9.0, "upper": 9.0}}
    result = identified(tmp_path, free=free, noise=(0.3, 0.2))
    (error,) = result.metrics.model_errors
    assert error.text == "missing friction and offsets of the torques of all joints"
    assert error.of_machine


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"change": lambda q, tau: (q * [1.0, -1.0], tau)}, "the sign of angle q2 of test 'run'"),
        ({"change": lambda q, tau: (q, tau[:, ::-1])}, "exchanged torques of q1 and q2 of test 'run'"),
        ({"change": lambda q, tau: (np.degrees(q), tau)}, "all angles in deg, with their rates of test 'run'"),
        ({"gravity": (9.81, 0.0)}, "tilt about Y -90"),
        ({"payload": 10.0}, "at tool"),
        ({"rate_hz": 80.0}, "a sampling rate 1.25"),
        ({"change": lambda q, tau: (q[:, ::-1], tau)}, "exchanged angles of q1 and q2 of test 'run'"),
        ({"change": lambda q, tau: (q, tau + np.array([0.0, 40.0]))}, "missing offset of the torque of q2 (40 N m)"),
        ({"change": lambda q, tau: (q, 1e-3 * tau)}, "a factor of 1e+03 on the torques of test 'run' (1000: "),
        ({"change": lambda q, tau: (q, tau * [1e-3, 1.0])}, "a factor of 1e+03 on the torque of q1 (1000: "),
        ({"change": lambda q, tau: (q, -tau)}, "the sign of all torques of test 'run' would explain 100 %"),
    ],
)
def test_a_gross_error_of_torques_is_named(tmp_path, wrong, named):
    result = identified(tmp_path, **wrong)
    assert result.status.startswith("data not followed")
    assert named in result.doubts[0]
    assert {row["std"] for row in result.metrics["base"]} == {np.inf}
    assert not any("essential_std" in row for row in result.metrics["base"])
    assert {group["std"] for group in result.metrics["known_together"]} <= {np.inf}
    assert not any("identifiable 'yes'" in remark for remark in result.remarks)


def test_exchanged_torques_keep_their_noise(tmp_path):
    """The error increases the estimates from the residual unequally; upper bounds from recorded spectra hold."""
    study = written(tmp_path, lambda q, tau: (q, tau[:, ::-1]))
    entry = study.fitted[0]
    alternatives = {text: test for _, text, test in entry.source.alternatives(entry.test, study.model)}
    bound = np.minimum(entry.source.variance_bound(entry.test), entry.test.noise.correlation_lengths)
    before, after = (
        [np.median((np.asarray(test.std) * np.sqrt(bound))[np.asarray(test.coordinate) == k]) for k in range(2)]
        for test in (entry.test, alternatives["exchanged torques of q1 and q2"])
    )
    assert np.allclose(after, before[::-1], rtol=1e-6)


def test_a_tilt_across_the_plane_of_motion_is_named_beside_a_smaller_gravity(tmp_path):
    """Both have the same effect, that of a tilt to second order: from 0 no derivative shows it."""
    fixed = {"friction": FRICTION, "torque_std": {"q1": 1.5, "q2": 0.8}}
    result = identified(tmp_path, gravity=(0.0, -9.81 * np.cos(np.radians(20.0))), **fixed)
    found = re.search(r"a gravity of 0.9\d+ times the stated one, or tilt about X \+(\S+) deg", result.doubts[0])
    assert abs(float(found[1]) - 20.0) < 1.0


@pytest.mark.parametrize("robust", [False, True])
def test_single_samples_that_are_far_off_ask_for_a_robust_fit(tmp_path, robust):
    def with_spikes(q, tau):
        tau[100:600:100] *= -20.0
        return q, tau

    result = identified(tmp_path, with_spikes, robust=robust)
    asked = [doubt for doubt in result.doubts if "robust = true" in doubt]
    assert len(asked) == (0 if robust else 1)
    if not robust:
        assert asked[0].startswith("test 'run' has single samples far from the predicted torque at q1 (")


def test_times_in_milliseconds_are_named_before_the_least_speed(tmp_path):
    written(tmp_path)
    columns = np.loadtxt(tmp_path / "run.csv", delimiter=",", skiprows=1) * [1e3, 1.0, 1.0, 1.0, 1.0]
    head = "time_s,q1,q2,q1.torque,q2.torque"
    np.savetxt(tmp_path / "run.csv", columns, delimiter=",", header=head, comments="")
    with pytest.raises(
        ValueError, match=r"0\.1 samples per second over 5.99e\+03 s: is time_s in ms\? q1 is never faster"
    ):
        jaxmb.load_study(tmp_path / "study.toml")


@pytest.mark.parametrize(
    ("factors", "named"),
    [
        ((-1.0, -1.0, 1.0), "the sign of the torques of q1 and q2 of test 'run' would explain 100 %"),
        ((1.0, 9.80665, 9.80665), "a factor of 1 / 9.81 (kilograms and newtons) on the torques of q2 and q3 of test"),
    ],
)
def test_an_error_of_some_torques_is_named(tmp_path, factors, named):
    """A pendulum beside the arm, whose torque is a tenth of that of the first joint, is measured by a third drive."""
    written(tmp_path)
    time, q, tau = np.split(np.loadtxt(tmp_path / "run.csv", delimiter=",", skiprows=1), [1, 3], axis=1)
    size, omega = np.array([0.8, 0.5]), 2.0 * np.pi * np.array([0.4, 0.7])
    angle, rate = size @ np.sin(omega * time).T, (size * omega) @ np.cos(omega * time).T
    torque = -1.135 * (size * omega**2) @ np.sin(omega * time).T - 20.601 * np.cos(angle) + 5.0 * rate
    torque += 7.0 * np.sign(rate) + np.random.default_rng(4).normal(scale=0.8, size=rate.size)
    columns = np.column_stack([time, q, angle, np.column_stack([tau, torque]) * factors])
    head = "time_s,q1,q2,q3,q1.torque,q2.torque,q3.torque"
    np.savetxt(tmp_path / "run.csv", columns, delimiter=",", header=head, comments="")
    pendulum = BODIES[0] | {"name": "pendulum", "mass": 6.0, "center_of_mass": [0.35, 0.0, 0.0],
                            "inertia_products": {"xx": 0.4, "yy": 0.4, "zz": 0.4},
                            "joint": [{"name": "q3", "axis": [0.0, 1.0, 0.0]}]}  # fmt: skip
    (tmp_path / "arm.toml").write_text(tomli_w.dumps({"name": "arm", "body": [*BODIES, pendulum]}))
    result = jaxmb.identify(jaxmb.load_study(tmp_path / "study.toml"))
    assert named in result.doubts[0]


def test_a_payload_that_one_test_lacked_is_named(tmp_path):
    """A factor on the torques of that test explains most of its gravity; other tests state that it was not mounted."""
    written(tmp_path, payload=10.0)
    data = tomllib.loads((tmp_path / "study.toml").read_text())
    machine = tomllib.loads((tmp_path / "arm.toml").read_text())
    (tmp_path / "run.csv").rename(tmp_path / "loaded.csv")
    written(tmp_path, seed=4)
    machine["payload"] = [{"name": "load", "frame": "tool", "mass": 8.0}]
    names = {"loaded": {"file": "loaded.csv"}, "empty": {}, "stated": {"without": ["load"]}}
    data["test"] = [data["test"][0] | {"name": name} | own for name, own in names.items()]
    data["free"]["mass.load"] = {"lower": 0.0, "upper": 50.0}
    (tmp_path / "arm.toml").write_text(tomli_w.dumps(machine))
    (tmp_path / "study.toml").write_text(tomli_w.dumps(data))
    result = jaxmb.identify(jaxmb.load_study(tmp_path / "study.toml"))
    assert result.doubts[0].startswith("payload load, which was not mounted, of test 'empty' would explain 100 %")
    (error,) = result.metrics["mistakes"]
    assert error["values"]["mass.load"] == pytest.approx(10.0, rel=0.02)


def of_three(folder, wrong=None, **settings):
    """Result of three motions of the arm, of which `wrong` changes or describes the second wrongly."""
    rng, tests, (time, pace) = np.random.default_rng(5), [], (np.arange(600) / 100.0, (1.0, 0.8, 1.15))
    for name, faster in zip("abc", pace, strict=True):
        q, v, a = motion(faster * time)
        change = wrong if wrong is not None and name == "b" else lambda t, q, tau, of: (t, q, tau(0.0))

        def measured(payload, q=q, v=faster * v, a=faster**2 * a):
            return torques(q, v, a, (0.0, -9.81), payload) + rng.normal(scale=(1.5, 0.8), size=q.shape)

        table = np.column_stack(change(time, q, measured, faster * v))
        head = "time_s,q1,q2,q1.torque,q2.torque"
        np.savetxt(folder / f"{name}.csv", table, delimiter=",", header=head, comments="")
        tests.append({"kind": "torque", "file": f"{name}.csv", "least_speed": 0.1})
    (folder / "arm.toml").write_text(tomli_w.dumps({"name": "arm", "body": BODIES, "frame": [TOOL]}))
    free = FREE | {"first_moment.fore.*": {"lower": -10.0, "upper": 10.0}}
    study = {"machine": "arm.toml", "test": tests, "free": free} | settings
    (folder / "study.toml").write_text(tomli_w.dumps(study))
    return jaxmb.identify(jaxmb.load_study(folder / "study.toml"))


def late(time, q, measured, _):
    return time, q, np.stack([np.interp(time - 0.03, time, torque) for torque in measured(0.0).T], axis=1)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda t, q, tau, of: (t, q, tau(0.0) * [1.0, 1.15]), "a factor of 0.868 on the torque of q2 in test 'b'"),
        (lambda t, q, tau, of: (t, q, tau(0.0) / [1.0, 100.0]), "the torque of q2 in test 'b' (100: percent)"),
        (lambda t, q, tau, of: (t, np.add(q, [0.02, 0.0]), tau(0.0)), "zero of q1 -1.1"),
        (lambda t, q, tau, of: (t, q, tau(3.0)), "a payload of 3 kg at tool in test 'b'"),
        (lambda t, q, tau, of: (1.1 * t, q, tau(0.0)), "a sampling rate 1.1 times the stated one in test 'b'"),
        (lambda t, q, tau, of: (t, q, np.add(tau(0.0), [20.0, 0.0])), "missing offset of the torque of q1 in test 'b'"),
        (lambda t, q, tau, v: (t, q, tau(0.0) + 0.8 * FRICTION * np.sign(v)), "Coulomb friction 1.79 times as"),
        (late, "torques in test 'b' that are 30 ms late"),
    ],
)  # fmt: skip
def test_an_error_of_one_of_several_torque_tests_is_named(tmp_path, wrong, named):
    """The other tests are not blamed, nor tolerances, zeros or gear ratios of the machine."""
    result = of_three(tmp_path, wrong)
    assert named in result.doubts[0]
    assert "would explain" in result.doubts[0]
    assert not any("test 'a'" in doubt or "test 'c'" in doubt or "contradict" in doubt for doubt in result.doubts)


def test_gravity_that_is_not_stated_is_named(tmp_path):
    assert not of_three(tmp_path).doubts
    result = of_three(tmp_path, gravity=[0.0, 0.0, 0.0])
    assert result.doubts[0].startswith("a gravity of -9.81 m/s^2 along Z, where none is stated, would explain 100 %")


def test_a_saturated_torque_is_a_doubt(tmp_path):
    """Damping and friction absorb most of it. Torques of a held-out test have no standard deviation either."""
    written(tmp_path, lambda q, tau: (q, np.clip(tau, -np.inf, 0.5 * np.max(tau, axis=0))))
    data = tomllib.loads((tmp_path / "study.toml").read_text())
    data["test"].append(data["test"][0] | {"name": "again", "role": "check"})
    (tmp_path / "study.toml").write_text(tomli_w.dumps(data))
    result = jaxmb.identify(jaxmb.load_study(tmp_path / "study.toml"))
    assert not any("covered_percent" in row for row in result.metrics["torques"])
    assert sum("it saturates and is not that of the motion" in doubt for doubt in result.doubts) == 2
    assert {parameter.identifiable for parameter in result.parameters.values()} == {"no"}
    assert {row["std"] for row in result.metrics["base"]} == {np.inf}
    assert not any("essential_std" in row for row in result.metrics["base"])
    assert not any("identifiable 'yes'" in remark for remark in result.remarks)


@pytest.mark.parametrize(
    ("limit", "noise", "named"), [(50.0, 0.01, False), (50.0, 1.0, False), (40.0, 0.01, True), (20.0, 0.4, True)]
)
def test_a_limit_is_tried_where_torques_pile_up_there(tmp_path, limit, noise, named):
    """Without those near its peaks any torque is explained; a sine is above 97 % of its peak in 16 % of the time. Noise
    spreads saturated torques."""
    phase, scatter = 0.02 * np.arange(600), np.random.default_rng(1).normal(scale=noise, size=(600, 2))
    peaks = np.clip(50.0 * np.sin(phase), -limit, limit)
    study = written(
        tmp_path, lambda q, tau: (q, peaks[:, None] + scatter), least_speed=0.0, torque_std={"q1": noise, "q2": noise}
    )
    (entry,) = study.fitted
    tried = [test for _, text, test in entry.source.alternatives(entry.test, study.model) if "saturates" in text]
    assert len(tried) == (2 if named else 0)
    number, at_limit = np.asarray(entry.test.coordinate), np.abs(np.asarray(entry.test.effort)) > limit - 4.0 * noise
    for i, test in enumerate(tried):
        assert np.all(np.asarray(test.std)[(number == i) & at_limit] > 1e6)


@pytest.mark.parametrize("resolution", [0.01, 0.5])
def test_a_rounded_peak_is_no_saturation(resolution):
    """Of 5 N m in steps of the resolution, which stays at its largest value for up to 20 % of a period."""
    time = np.linspace(0.0, 10.0, 2001)[:, None]
    torque = resolution * np.round(5.0 * np.sin(2.0 * time) / resolution)

    def told(signal):
        return saturation_remarks(MotionRecord(time[:, 0], ("q",), np.sin(time), signal))

    assert not told(torque)
    assert not told(np.zeros_like(time))
    (remark,) = told(np.clip(5.0 * np.sin(2.0 * time), -np.inf, 4.0))
    assert "is exactly 4 in" in remark  # the smallest value is a peak


def test_friction_that_is_stated_too_small_is_named(tmp_path):
    """Its effect is also part of the standard deviations of base parameters."""
    result = identified(tmp_path, friction=(12.0, 2.0))
    assert "missing Coulomb friction of q2 (4" in result.doubts[0]
    base = {row.name: row.std for row in result.metrics.of(TorqueMetrics).base}
    assert base == pytest.approx({name: p.std for name, p in result.parameters.items()})


def test_missing_viscous_friction_is_one_coefficient_in_tests_of_different_speed(tmp_path):
    rng, time, tests = np.random.default_rng(3), np.arange(600) / 100.0, []
    for name, slower in (("fast", 1.0), ("slow", 4.0)):
        q, v, a = motion(time)
        tau = torques(q, v / slower, a / slower**2, (0.0, -9.81), 0.0) + rng.normal(scale=0.2, size=q.shape)
        head = "time_s,q1,q2,q1.torque,q2.torque"
        table = np.column_stack([slower * time, q + rng.normal(scale=1e-5, size=q.shape), tau])
        np.savetxt(tmp_path / f"{name}.csv", table, delimiter=",", header=head, comments="")
        tests.append({"kind": "torque", "name": name, "file": f"{name}.csv", "least_speed": 0.05})
    (tmp_path / "arm.toml").write_text(tomli_w.dumps({"name": "arm", "body": BODIES, "frame": [TOOL]}))
    free = {"damping.q1": FREE["damping.*"], "friction.*": FREE["friction.*"]}
    (tmp_path / "study.toml").write_text(tomli_w.dumps({"machine": "arm.toml", "test": tests, "free": free}))
    result = jaxmb.identify(jaxmb.load_study(tmp_path / "study.toml"))
    assert result.doubts[0].startswith("missing viscous friction of q2 (4 N m s/rad) would explain 100 %")


def test_smoothed_torques_are_no_missing_friction(tmp_path):
    """They are smaller than Coulomb friction near reversals."""
    smoothed = scipy.signal.butter(4, 10.0, fs=100.0)
    result = identified(tmp_path, lambda q, tau: (q, scipy.signal.filtfilt(*smoothed, tau, axis=0)), least_speed=0.0)
    assert any(doubt.startswith("near reversals the torque is smaller than Coulomb") for doubt in result.doubts)
    assert not any("the residual contains friction" in doubt for doubt in result.doubts)


STATED = {"torque_std": {"q1": 0.1, "q2": 0.1}, "noise": 0.1}


@pytest.mark.parametrize("seed", [3, 4])
@pytest.mark.parametrize(
    ("settings", "friction", "joint", "late_s"),
    [(STATED, 4.0, 0, 0.015), (STATED, 4.0, 1, -0.015), ({}, 1.0, 0, 0.04), ({}, 1.0, 1, -0.025)],
)
def test_the_delay_of_one_torque_is_no_missing_friction(tmp_path, settings, friction, joint, late_s, seed):
    """Friction reverses at once, so that the effect of a delay has kinks at each sample."""
    time = np.arange(600) / 100.0

    def later(q, tau):
        tau = tau + (friction - 1.0) * FRICTION * np.sign(motion(time)[1])
        tau[:, joint] = np.interp(time - late_s, time, tau[:, joint])
        return q, tau

    result = identified(tmp_path, later, least_speed=0.0, seed=seed, **settings)
    named = re.fullmatch(
        rf".*torque of q{joint + 1} (?:that )?is ([\d.]+) ms {'late' if late_s > 0.0 else 'early'} against.*",
        result.doubts[0],
    )
    assert named
    assert float(named[1]) == pytest.approx(1e3 * abs(late_s), rel=0.2)
    assert not any("residual contains friction" in doubt or "near reversals" in doubt for doubt in result.doubts)


def test_delayed_torques_are_those_of_an_earlier_motion(tmp_path):
    """Friction reverses in the gaps of slow motion: rows that a delay moves there have no prediction."""
    result = identified(tmp_path)
    (entry,) = result.study.fitted
    later = entry.source.corrected(entry.test, result.model, {"delay of the torques": 0.05})
    predicted, known = np.asarray(later.predict(later.view(result.model))), np.isfinite(np.asarray(later.std))
    earlier = torques(*motion(entry.source.time_s - 0.05), (0.0, -9.81), 0.0)
    expected = np.take_along_axis(earlier, np.asarray(later.coordinate)[:, None], axis=1)[:, 0]
    assert 0.7 < np.mean(known) < 1.0
    # apart from reversals within a sample
    assert np.quantile(np.abs(predicted - expected)[known], 0.95) < 0.1 * FRICTION.min()


class Rounded(LinearHypothesisSearch):
    """One residual, 0 at a size of 2000, to the accuracy of a bounded least-squares fit of dependent columns."""

    def solved(self, tests, errors):
        (size,) = errors.values()
        return np.zeros(1), np.array([1e-3 * (size - 2000.0) - 1e-7 * np.sin(1e9 * size)])


def test_the_size_of_an_error_is_fitted_from_a_residual_with_rounding_errors():
    """A zero that is 90 deg off has 1800 times its typical size; no small step shows its effect."""
    search = Rounded(None, None, None, (), Whitening(np.ones(1), np.zeros((1, 0))))
    end = search.fitted(Hypothesis(StatedError("zero", size=1.0)))
    assert abs(end.size - 2000.0) < 1.0
