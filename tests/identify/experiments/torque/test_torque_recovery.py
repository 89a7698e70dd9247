"""Torque tests of an arm give back the machine that was simulated, and what is held out does not count."""

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.assess.tests.torque import TorqueMetrics
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.identify.study.reading import torque
from jaxmb.identify.study.study import make_study

LENGTH = 0.4
TRUE = {
    "inertia.upper.zz": 0.09, "first_moment.upper.x": 0.3, "first_moment.upper.y": 0.05, "inertia.fore.zz": 0.05,
    "first_moment.fore.x": 0.25, "first_moment.fore.y": -0.02, "rotor_inertia.b": 0.011, "damping.a": 0.8,
    "damping.b": 0.3, "friction.a": 1.5, "friction.b": 0.6, "offset.a": 0.4, "offset.b": -0.2,
}  # fmt: skip
"""About the joints' axes; the study starts from other values. Bodies of 2 kg can have them: |first moment|^2 / mass is
below each inertia."""
FREE = {name: {"lower": -9.0, "upper": 9.0} for name in TRUE} | {
    f"{family}.{joint}": {"lower": 0.0, "upper": 9.0, "scale": "linear"}
    for family, joint in (("damping", "a"), ("damping", "b"), ("friction", "a"), ("friction", "b"),
                          ("rotor_inertia", "b"))
}  # fmt: skip
BODY = {"mass": 2.0, "center_of_mass": [0.1, 0.0, 0.0], "inertia_products": {"xx": 0.01, "yy": 0.01, "zz": 0.02}}
ARM = jaxmb.Machine.model_validate({
    "name": "arm",
    "gravity": [0.0, -9.81, 0.0],
    "body": [
        BODY | {"name": "upper", "joint": [{"name": "a", "damping": 0.1, "friction": 0.1, "rotor_inertia": 0.02}]},
        BODY | {"name": "fore", "parent": "upper", "origin": {"xyz": [LENGTH, 0.0, 0.0]},
                "joint": [{"name": "b", "damping": 0.1, "friction": 0.1, "rotor_inertia": 0.1}]},
    ],
})  # fmt: skip
MOTION = {"a": {"sine": [1.5, 0.0, 0.3], "cosine": [0.0, 0.4]}, "b": {"sine": [-0.8, 0.5], "cosine": [0.6, 0.0, 0.3]}}
HOW = {"duration_s": 5.0, "rate_hz": 200.0, "base_hz": 0.2, "motion": MOTION, "parameters": TRUE}
TEST = {"kind": "torque", "posture": {"a": -0.3, "b": 0.5}, "cutoff_hz": 40.0, "least_speed": 0.02,
        "from_s": 0.3, "to_s": 4.7, "simulate": HOW}  # fmt: skip


def study_of(folder, *tests, free=FREE, machine=ARM, **settings):
    jaxmb.write_machine(machine, folder / "arm.toml")
    data = {"machine": "arm.toml", "test": list(tests), "free": free} | settings
    return make_study(StudyFile.model_validate(data), "arm", folder)


def identified(folder, *tests, **settings):
    return jaxmb.identify(study_of(folder, *tests, **settings))


def changed(**changes):
    return TEST | {"simulate": HOW | changes}


def efforts_by_hand(q, qd, qdd, p=TRUE):
    """Lagrange's equations of a plane arm of two links, with friction; the machine's 0.02 of rotor_inertia.a too."""
    (a, b), (va, vb), (ga, gb), mass, g = q, qd, qdd, 2.0, 9.81
    i1, i2 = p["inertia.upper.zz"] + 0.02 + mass * LENGTH**2, p["inertia.fore.zz"]
    x1, y1 = p["first_moment.upper.x"] + mass * LENGTH, p["first_moment.upper.y"]
    x2, y2 = p["first_moment.fore.x"], p["first_moment.fore.y"]
    # along and across the upper link, of the fore link's first moment
    along, across = x2 * np.cos(b) - y2 * np.sin(b), x2 * np.sin(b) + y2 * np.cos(b)
    weight = g * (x2 * np.cos(a + b) - y2 * np.sin(a + b))
    tau_b = i2 * (ga + gb) + LENGTH * (along * ga + across * va**2) + weight + p["rotor_inertia.b"] * gb
    tau_a = (i1 * ga + i2 * (ga + gb) + LENGTH * (along * (2 * ga + gb) - across * (2 * va * vb + vb**2)) + weight
             + g * (x1 * np.cos(a) - y1 * np.sin(a)))  # fmt: skip
    loss = {j: p[f"damping.{j}"] * v + p[f"friction.{j}"] * np.sign(v) + p[f"offset.{j}"]
            for j, v in (("a", va), ("b", vb))}  # fmt: skip
    return np.array([tau_a + loss["a"], tau_b + loss["b"]])


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    """Without noise, beside a test of another machine that is held out."""
    other = changed(parameters=TRUE | {"first_moment.fore.x": 0.5}) | {"name": "other", "role": "check"}
    return identified(tmp_path_factory.mktemp("exact"), TEST | {"name": "own"}, other)


def test_without_noise(exact):
    """Central differences of five samples of a motion at 0.6 Hz, 200 times a second, make rates smaller by
    (w dt)^4 / 30 = 4e-9. What the small rotor has not, the other inertias of 20 times its size have. The given inertias
    about x and y are moved for the bodies to be possible, which must not cost the free ones their digits."""
    assert exact.status.endswith("the best fit does not reproduce test 'other'")  # which is of another machine
    found = {name: exact.parameters[name].value for name in TRUE}
    np.testing.assert_allclose(list(found.values()), list(TRUE.values()), rtol=1e-7, err_msg=str(list(found)))


def test_patterns_leave_out_bodies_without_effect(tmp_path):
    """A base that rests, and a frame; by its own name a number is free, and said to be unknown."""
    data = ARM.model_dump(exclude_unset=True)
    upper, fore = (body | {"parent": parent} for body, parent in zip(data["body"], ("base", "upper"), strict=True))
    bodies = [{"name": "world"}, BODY | {"name": "base", "parent": "world"}, upper, fore,
              {"name": "flange", "parent": "fore"}]  # fmt: skip
    machine = jaxmb.Machine.model_validate(data | {"body": bodies})
    some = {"mass.*": {"lower": 0.0, "upper": 9.0}, "first_moment.*.x": {"lower": -9.0, "upper": 9.0}}
    result = identified(tmp_path, TEST, free=some, machine=machine)
    assert list(result.parameters) == ["mass.upper", "mass.fore", "first_moment.upper.x", "first_moment.fore.x"]
    result = identified(tmp_path, TEST, free=FREE | {"mass.base": {"lower": 0.0, "upper": 9.0}}, machine=machine)
    assert "mass.base is not known: no measurement depends on it, it keeps the machine's own value" in result.remarks
    with pytest.raises(ValueError, match=r"\[free\]: 'mass.bas\?' selects mass.base, without effect on any test"):
        identified(tmp_path, TEST, free={"mass.bas?": {"lower": 0.0, "upper": 9.0}}, machine=machine)


def test_base_parameters(exact):
    base = {row.name: row for row in exact.metrics.of(TorqueMetrics).base}
    assert set(base) == set(TRUE)
    assert base["inertia.upper.zz"].formula == "inertia.upper.zz + rotor_inertia.a + 0.16 mass.fore"
    by_hand = TRUE | {"inertia.upper.zz": TRUE["inertia.upper.zz"] + 0.02 + 2.0 * LENGTH**2,
                      "first_moment.upper.x": TRUE["first_moment.upper.x"] + 2.0 * LENGTH}  # fmt: skip
    for name, value in by_hand.items():
        assert base[name].true == pytest.approx(value, rel=1e-9)
        assert base[name].value == pytest.approx(value, rel=1e-7)


def test_predicted_efforts_by_hand(exact):
    """Of the simulation, and of what was identified from it."""
    entry = exact.study.fitted[0]
    time = np.asarray(entry.source.time_s)
    parts = []
    for name in "ab":
        q, qd, qdd = np.full(time.size, TEST["posture"][name]), np.zeros(time.size), np.zeros(time.size)
        for amplitudes, phase in zip(MOTION[name].values(), (0.0, np.pi / 2), strict=True):
            for k, size in enumerate(amplitudes, 1):
                w = 2 * np.pi * 0.2 * k
                q += size * (np.sin(w * time + phase) - np.sin(phase))
                qd += size * w * np.cos(w * time + phase)
                qdd -= size * w**2 * np.sin(w * time + phase)
        parts.append((q, qd, qdd))
    expected = efforts_by_hand(*zip(*parts, strict=True))[np.asarray(entry.test.coordinate), np.arange(time.size)]
    np.testing.assert_allclose(np.asarray(entry.test.effort), expected, atol=1e-9)
    np.testing.assert_allclose(exact.predicted("own"), expected, atol=1e-6)


def test_what_is_held_out_does_not_count(exact):
    """The other machine's fore link is twice as heavy: more of the elbow's torque, and none of the fit."""
    rows = {(row.test, row.coordinate): row for row in exact.metrics.of(TorqueMetrics).torques}
    assert {row.role for row in rows.values() if row.test == "other"} == {"check"}
    assert rows["own", "b"].relative_percent < 1e-4
    assert rows["other", "b"].relative_percent > 30.0
    assert rows["own", "b"].covered_percent is None  # fitted
    assert rows["other", "b"].covered_percent < 10.0  # of another machine


def test_a_fit_makes_its_residual_smaller_than_the_noise(tmp_path):
    """The same record held out: the expected error has the noise, not the mean square of the residual, which is smaller
    by the p degrees of freedom of the fit, and the variance of the prediction, p / n of that of the noise on average.
    """
    own = changed(torque_std=0.2, duration_s=3.0) | {"effort_cutoff_hz": 8.0, "torque_std": 0.2, "least_speed": 0.0,
                                                    "to_s": 2.8}  # fmt: skip
    own["simulate"]["motion"] = {"a": MOTION["a"]}
    free = {name: FREE[name] for name in ("first_moment.upper.x", "damping.a", "friction.a", "offset.a")}
    simulated = {name: TRUE[name] for name in free}
    own["simulate"]["parameters"] = simulated
    found = identified(tmp_path, own | {"name": "own"}, own | {"name": "same", "role": "check"}, free=free)
    assert found.metrics.misfit.explained
    rows = {(row.test, row.coordinate): row for row in found.metrics.of(TorqueMetrics).torques}
    count = np.count_nonzero(np.asarray(found.study.tests[0].coordinate) == 0)
    expected = rows["own", "a"].rms_error ** 2 + 2.0 * 0.2**2 * len(free) / count
    assert rows["same", "a"].expected_error == pytest.approx(np.sqrt(expected), rel=1e-9)
    assert 4.0 * len(free) < count < 12.0 * len(free)


def test_with_noise(tmp_path):
    """13 values, 12.35 of them expected within their 95 % intervals; fewer than 10 have a chance of 0.3 % were they
    independent. The noise of the angles, 1e-3 of the motion's accelerations, makes them no smaller than that."""
    result = identified(tmp_path, changed(torque_std=0.1, angle_std=1e-6, noise_seed=1))
    within = [p.interval_95[0] <= TRUE[name] <= p.interval_95[1] for name, p in result.parameters.items()]
    assert len(within) == len(TRUE)
    assert sum(within) >= 10
    std = np.asarray(result.study.tests[0].std)
    np.testing.assert_allclose(std, 0.1, rtol=0.15)  # 1 / sqrt(2 n) is 2.5 %; that samples are alike is estimated too
    assert max(p.std / abs(TRUE[name]) for name, p in result.parameters.items() if name != "offset.b") < 0.2


CART = jaxmb.Machine.model_validate({
    "name": "cart",
    "gravity": [0.0, 0.0, -9.81],
    "body": [{"name": "cart", "mass": 3.0, "joint": [{"name": "x", "type": "prismatic", "axis": [1.0, 0.0, 0.0],
                                                     "stiffness": 500.0, "damping": 5.0, "friction": 1.0}]}],
    "frame": [{"name": "tool", "body": "cart"}],
})  # fmt: skip


def test_beside_frfs(tmp_path):
    """A mass on a spring: friction is seen by torques alone, the loss factor by FRFs alone, the others by both."""
    true = {"mass.cart": 4.0, "stiffness.x": 900.0, "damping.x": 8.0, "friction.x": 3.0, "loss_factor.x": 0.05}
    motion = {"x": {"sine": [0.3, 0.0, 0.2]}}
    free = {"mass.cart": {"lower": 1.0, "upper": 20.0}, "stiffness.x": {"lower": 1e2, "upper": 1e4},
            "damping.x": {"lower": 1.0, "upper": 50.0}, "friction.x": {"lower": 0.0, "upper": 10.0},
            "loss_factor.x": {"lower": 1e-3, "upper": 0.5}}  # fmt: skip
    torque = {"kind": "torque", "cutoff_hz": 40.0, "least_speed": 0.02, "from_s": 0.3, "to_s": 4.7,
              "simulate": HOW | {"motion": motion, "parameters": true}}  # fmt: skip
    frf = {"kind": "frf", "outputs": [["tool", "x"]],
           "simulate": {"lines": {"first_hz": 0.5, "last_hz": 10.0, "step_hz": 0.25}, "parameters": true}}  # fmt: skip
    result = identified(tmp_path, torque, frf, free=free, machine=CART, rounds=3, least_rounds=1, agreement=1)
    assert result.status == "converged"
    assert any("the stiffness of x acts parallel to the drive" in remark for remark in result.remarks)
    np.testing.assert_allclose([result.parameters[name].value for name in true], list(true.values()), rtol=1e-6)


def test_a_joint_that_rests_tells_nothing_of_its_friction(tmp_path):
    """What the motion does not tell has no standard deviation, as a base parameter too."""
    resting = changed(motion={"a": MOTION["a"]}) | {"least_speed": 0.0, "torque_std": 0.1}
    metrics = identified(tmp_path, resting).metrics.of(TorqueMetrics)
    std = {row.name: row.std for row in metrics.base}
    assert np.isinf([std["damping.b"], std["friction.b"]]).all()
    assert np.isfinite([std["damping.a"], std["friction.a"], std["offset.a"]]).all()
    assert metrics.known_text.startswith(f"{np.isfinite(list(std.values())).sum()} of {len(std)} base parameters")


def test_a_value_on_its_bound_stays_part_of_its_sum(tmp_path):
    """The rotor ends at 0, whose column is that of the link's inertia: what the motion determines is their sum, as well
    as where the rotor is anything else."""
    rotor = {"lower": 0.0, "upper": 9.0, "scale": "linear"}
    noisy = changed(torque_std=0.1)
    rows = []
    for lower in (-9.0, 0.112):  # the data have 0.111 for both together
        free = FREE | {"rotor_inertia.a": rotor, "inertia.upper.zz": {"lower": lower, "upper": 9.0}}
        result = identified(tmp_path, noisy, free=free)
        assert (result.parameters["rotor_inertia.a"].value == 0.0) == (lower > 0.0)
        rows.append({row.name: row for row in result.metrics.of(TorqueMetrics).base})
    inside, on_bound = rows
    assert on_bound.keys() == inside.keys()
    for name, row in on_bound.items():
        assert row.formula == inside[name].formula
        assert row.std == pytest.approx(inside[name].std, rel=1e-2)  # by the estimate of the noise alone
    assert "rotor_inertia.a" in on_bound["inertia.upper.zz"].formula


def test_rounded_angles_cost_no_base_parameter(tmp_path):
    """A right angle as 1.5708 rad lets the motion act on what has no effect otherwise, 4e-6 as much: what is known of
    base parameters is what it is with an exact one, but for 4e-6 times the bounds' width of 18, beside 1e-3."""
    no_effect = ("first_moment.fore.z", *(f"inertia.fore.{axes}" for axes in ("xx", "yy", "xy", "xz", "yz")))
    free = FREE | {name: {"lower": -9.0, "upper": 9.0} for name in no_effect}
    found = []
    for lean in (0.0, 1.5708 - np.pi / 2):
        upper, fore = ARM.model_dump(exclude_unset=True)["body"]
        fore["origin"] = {"xyz": [LENGTH, 0.0, 0.0], "rpy": [lean, lean, 0.0]}
        machine = jaxmb.Machine.model_validate(ARM.model_dump(exclude_unset=True) | {"body": [upper, fore]})
        noisy = changed(torque_std=0.1) | {"torque_std": 0.1}
        result = identified(tmp_path, noisy, free=free, machine=machine)
        found.append(result.metrics.of(TorqueMetrics).base)
    exact, rounded = found
    assert [row.formula for row in rounded] == [row.formula for row in exact]
    np.testing.assert_allclose([row.std for row in rounded], [row.std for row in exact], rtol=1e-2)


@pytest.mark.parametrize("bands", [{"cutoff_hz": [20.0, 40.0]}, {"cutoff_hz": 26.0, "effort_cutoff_hz": [10.0, 20.0]}])
def test_pass_and_stop_band(tmp_path, bands):
    """Of the filter of angles and of that of both sides of the equations: without noise the same is found as behind
    cut-offs, to the accuracy of the differences."""
    result = identified(tmp_path, TEST | bands | {"from_s": 1.0, "to_s": 4.0})
    np.testing.assert_allclose([result.parameters[name].value for name in TRUE], list(TRUE.values()), rtol=1e-6)


def test_equations_of_a_fast_record(tmp_path, monkeypatch):
    """Of a record at 40 samples per period of the cut-offs every second one gives the equations, which identify what
    all of them do, within a tenth of the standard deviations, and the machine that was simulated."""
    motion = HOW | {"rate_hz": 1600.0, "torque_std": 0.02}
    fast = TEST | {"simulate": motion, "effort_cutoff_hz": 40.0, "least_speed": 0.3}
    found = identified(tmp_path, fast)
    monkeypatch.setattr(torque, "OVERSAMPLED", 1e6)
    whole = identified(tmp_path, fast)
    for name, true in TRUE.items():
        own, other = found.parameters[name], whole.parameters[name]
        assert own.value != other.value
        assert own.value == pytest.approx(other.value, abs=0.1 * other.std)
        assert own.std == pytest.approx(other.std, rel=0.05)
        assert abs(own.value - true) < 3.0 * own.std
