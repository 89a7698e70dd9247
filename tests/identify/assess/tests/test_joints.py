"""A payload of an arm whose equations are written by hand: joints that disagree, and friction that is not modelled."""

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.assess.kinds import with_systematic_errors
from jaxmb.identify.assess.linear_estimate import linear_estimate
from jaxmb.identify.assess.tests.torque import TorqueMetrics, joint_rows, new_directions
from jaxmb.identify.study.study import make_study
from tests.identify.experiments.torque.test_free_gains import LOAD, loaded, motion
from tests.identify.experiments.torque.test_torque_recovery import ARM, FREE, TRUE, efforts_by_hand

RATE = 100.0
NOISE = 0.03
"""Nm."""
OF_LOAD = ("mass.load", "first_moment.load.x", "first_moment.load.y", "inertia.load.zz")
CENTRE = (0.3, 0.05)
PAYLOAD = {name: {"lower": -9.0, "upper": 9.0} for name in OF_LOAD} | {"mass.load": {"lower": 0.0, "upper": 9.0}}


def same(load, velocity):
    return load


def recorded(folder, changed=same, seed=0, late_s=((0.0, 0.0), (0.0, 0.0)), **settings):
    """Runs with and without the payload; `changed` makes of the efforts without losses those that are recorded, which
    are late, those of each run and joint by so much."""
    time, draw, tests = np.arange(round(10.0 * RATE)) / RATE, np.random.default_rng(seed), []
    lossless = {name: 0.0 for name in TRUE if name.split(".")[0] in ("damping", "friction", "offset")}
    for number, carries in enumerate((True, False)):
        states = motion(time, 1.0 + 0.2 * number)
        p = loaded() if carries else TRUE
        load = efforts_by_hand(*states, p | lossless)
        tau = efforts_by_hand(*states, p) - load + changed(load, states[1])
        for j in np.flatnonzero(late_s[number]):
            earlier = motion(time - late_s[number][j], 1.0 + 0.2 * number)
            tau[j] += (efforts_by_hand(*earlier, p) - efforts_by_hand(*states, p))[j]
        table = np.stack([time, *states[0], *(tau + NOISE * draw.normal(size=tau.shape))], axis=1)
        heads = "time_s,a,b,a.torque,b.torque"
        np.savetxt(folder / f"run{number}.csv", table, fmt="%.17g", delimiter=",", header=heads, comments="")
        test = {"kind": "torque", "file": f"run{number}.csv", "cutoff_hz": 20.0, "least_speed": 0.02}
        tests.append(test | ({} if carries else {"without": ["load"]}))
    machine = jaxmb.Machine.model_validate(ARM.model_dump(exclude_unset=True) | {"payload": [LOAD]})
    jaxmb.write_machine(machine, folder / "arm.toml")
    return make_study(
        {"machine": "arm.toml", "test": tests, "free": FREE | PAYLOAD, "tolerances": "exact"} | settings, "arm", folder
    )


def identified(folder, changed=same, **settings):
    return jaxmb.identify(recorded(folder, changed, **settings))


def gear_friction(load, velocity):
    return load + np.array([[0.1], [0.0]]) * np.abs(load) * np.sign(velocity)


def told(result, word):
    return [text for text in result.doubts if word in text]


@pytest.fixture(scope="module")
def correct(tmp_path_factory):
    return identified(tmp_path_factory.mktemp("correct"))


def test_a_correct_study(correct):
    assert not told(correct, "disagree")
    assert not correct.doubts
    for name, true in (("mass.load", 1.5), ("first_moment.load.x", 0.45)):
        assert abs(correct.parameters[name].value - true) < 4.0 * correct.parameters[name].std


def test_the_centre_of_mass(correct):
    rows = {row.axis: row for row in correct.metrics.of(TorqueMetrics).centres}
    found, covariance = (
        correct.parameters,
        correct.covariance * np.outer(correct.study.free.width, correct.study.free.width),
    )
    i, j = (correct.study.free.names.index(name) for name in OF_LOAD[:2])
    mass, moment = found[OF_LOAD[0]].value, found[OF_LOAD[1]].value
    slope = np.array([-moment / mass**2, 1.0 / mass])
    std = np.sqrt(slope @ covariance[np.ix_([i, j], [i, j])] @ slope)
    assert rows["x"].value == pytest.approx(moment / mass, rel=1e-12)
    assert rows["x"].std == pytest.approx(std, rel=1e-9)
    assert rows["x"].interval_95[0] == pytest.approx(rows["x"].value - 1.96 * std, rel=1e-12)
    for axis, true in zip("xy", CENTRE, strict=True):
        assert abs(rows[axis].value - true) < 4.0 * rows[axis].std
    assert correct.as_json()["metrics"]["centres"][0]["body"] == "load"


def test_joints_that_disagree(tmp_path, correct):
    """Torques of the second joint are 15 % too large, which only the first moments of the payload can tell from others:
    the joints' own values are 0.45 and 1.15 times that, and the reported deviation contains their scatter."""
    result = identified(tmp_path, lambda load, v: load * np.array([[1.0], [1.15]]))
    (text,) = told(result, "disagree")
    own = next(part for part in text.split("; ") if "first_moment.load.x" in part)
    assert "by a, " in own
    assert "by b, " in own
    by_b = float(own.split("by a, ")[1].split(" ± ")[0])
    assert by_b == pytest.approx(1.15 * 0.45, rel=0.05)
    x = result.parameters["first_moment.load.x"]
    assert x.std > 3.0 * correct.parameters["first_moment.load.x"].std
    assert abs(x.value - 0.45) < 1.96 * x.std


def test_friction_that_is_not_modelled(tmp_path, correct):
    """0.1 of the load at the first joint, as gears have."""
    result = identified(tmp_path, gear_friction)
    (text,) = told(result, "the residual contains friction: a (load")
    assert 'friction_terms = ["load"' in text
    mass = result.parameters["mass.load"]
    assert mass.std > 1.1 * correct.parameters["mass.load"].std
    assert abs(mass.value - 1.5) < 1.96 * mass.std


def test_coulomb_friction_that_is_not_free(tmp_path):
    """The machine states none."""
    fixed = {name: bound for name, bound in (FREE | PAYLOAD).items() if not name.startswith("friction")}
    (text,) = told(identified(tmp_path, free=fixed), "the residual contains friction: ")
    assert "(Coulomb, " in text
    assert '"friction.a", "friction.b" in [free] would change' in text.replace(
        '"friction.b", "friction.a"', '"friction.a", "friction.b"'
    )


EXPLAINS = "against the angles, which explains {1} % of the residual"


@pytest.mark.parametrize(
    ("late_s", "sentence"),
    [([(0.005, 0.005), (0.0, 0.0)],
      f"the torques of test 'run0' are {{0}} ms late {EXPLAINS} (\"delay.run0\" in [free] identifies the delay)"),
     ([(0.0, -0.01), (0.0, -0.01)], f"the torque of b is {{0}} ms early {EXPLAINS}")],
)  # fmt: skip
def test_torques_that_are_not_simultaneous_with_the_angles(tmp_path, correct, late_s, sentence):
    result = identified(tmp_path, late_s=late_s)
    (text,) = result.doubts
    numbers = re.findall(r"[\d.]+(?= ms| % of)", text)
    assert text.startswith(sentence.format(*numbers) + "; a correction would change ")
    assert float(numbers[0]) == pytest.approx(1e3 * np.abs(late_s).max(), rel=0.2)
    for name, true in (("mass.load", 1.5), ("first_moment.load.x", 0.45)):
        assert abs(result.parameters[name].value - true) < 3.0 * result.parameters[name].std
    assert any(result.parameters[name].std > 1.3 * correct.parameters[name].std for name in correct.parameters)


def test_friction_beside_a_prior(tmp_path):
    """The change is that between two least-squares fits, without and with a column of friction, the prior in both."""
    free = FREE | PAYLOAD | {"mass.load": PAYLOAD["mass.load"] | {"initial": 1.9}}
    estimate = linear_estimate(recorded(tmp_path, gear_friction, free=free, prior={"mass.load": 0.02}))
    added, (text, *_) = with_systematic_errors(estimate)
    assert "friction: a (load" in text
    assert " b (" not in text
    joint, column, at = joint_rows(estimate, estimate.study.fitted)[0], np.zeros(estimate.residual.size), 0
    for entry, _, rows in estimate.fitted_of(estimate.study.fitted):
        own = rows.start + np.flatnonzero(np.asarray(entry.test.coordinate) == 0)
        part = slice(at, at + own.size)
        column[own] = (joint.root * np.abs(joint.load) * np.sign(joint.velocity))[part]
        at += own.size
    before = np.linalg.lstsq(estimate.jacobian, -estimate.residual)[0]
    change = np.linalg.lstsq(np.column_stack([estimate.jacobian, column]), -estimate.residual)[0][:-1] - before
    expected, apart = np.outer(change, change), ~np.eye(change.size, dtype=bool)
    found = added.systematic_covariance
    np.testing.assert_allclose(found[apart], expected[apart], rtol=1e-4, atol=1e-9 * expected.max())


def test_a_prior_is_no_disagreement_of_joints(tmp_path):
    """A narrow prior keeps the payload from the value on which the joints agree, 70 of their deviations away."""
    free = FREE | PAYLOAD | {"mass.load": PAYLOAD["mass.load"] | {"initial": 1.55}}
    result = jaxmb.identify(recorded(tmp_path, free=free, prior={"mass.load": 1e-5}))
    assert result.parameters["mass.load"].value > 1.54
    assert not told(result, "disagree")


def test_a_direction_that_fitted_tests_lack_has_no_interval():
    """a moves forwards alone in the fitted test but for two of 40 samples, b in both directions."""

    def entry(role, a, b):
        velocity = np.concatenate([np.repeat([1.0, -1.0], a), np.repeat([1.0, -1.0], b)])
        test = SimpleNamespace(coordinate=np.repeat([0, 1], [sum(a), sum(b)]))
        return SimpleNamespace(role=role, test=test, source=SimpleNamespace(coordinates=("a", "b"), velocity=velocity))

    fit: Any = entry("fit", (38, 2), (20, 20))
    backwards: Any = entry("check", (1, 39), (5, 35))
    forwards: Any = entry("check", (40, 0), (40, 0))
    forwards.source.velocity[:30] = 0.0  # rest is no direction
    assert new_directions([fit, backwards], backwards) == ["a"]
    assert new_directions([fit, forwards], forwards) == []
