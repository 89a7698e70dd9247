"""Torque tests that cannot be: one sentence that names the test and the place."""

import dataclasses
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

import jaxmb
from jaxmb.cli import main
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.identify.study.format.torque_format import SimulateTorques
from jaxmb.identify.study.reading.motions import simulated_motion
from tests.identify.experiments.torque.test_torque_recovery import (
    ARM,
    FREE,
    HOW,
    MOTION,
    TEST,
    changed,
    identified,
    study_of,
)
from tests.recovery.test_flexible import ARM as BEAMS

FOUR_BAR = jaxmb.Machine.model_validate({
    "name": "four-bar",
    "independent": ["q1"],
    "body": [{"name": "crank", "mass": 1.0, "joint": [{"name": "q1"}]},
             {"name": "coupler", "parent": "crank", "mass": 1.0, "origin": {"xyz": [0.6, 0.0, 0.0]},
              "joint": [{"name": "q2"}]},
             {"name": "rocker", "mass": 1.0, "origin": {"xyz": [0.9, 0.0, 0.0]}, "joint": [{"name": "q3"}]}],
    "frame": [{"name": "end", "body": "coupler", "origin": {"xyz": [0.5, 0.0, 0.0]}},
              {"name": "pin", "body": "rocker", "origin": {"xyz": [0.5, 0.0, 0.0]}}],
    "loop": [{"name": "closure", "frame_a": "end", "frame_b": "pin"}],
    "posture": {"q1": 1.0, "q2": -1.0, "q3": 1.5},
})  # fmt: skip
"""Its crank of 0.6 m cannot turn through: at 180 degrees the pins are 1.5 m apart, and two rods of 0.5 m between."""


@pytest.mark.parametrize(
    ("test", "told"),
    [
        (changed(motion={"z": {"sine": [1.0]}}), "motion: coordinate 'z' does not exist; expected one of: a, b"),
        (TEST | {"least_speed": {"z": 1.0}}, "least_speed: coordinate 'z' does not exist; expected one of: a, b"),
        (TEST | {"torque_std": {"z": 1.0}}, "torque_std: coordinate 'z' does not exist; expected one of: a, b"),
        (TEST | {"torque_std": {"a": 1.0}}, "torque_std: found none for 'b', whose torque was measured"),
        (
            changed(motion={"a": {"sine": [0.0]}}),
            r"nothing moves \(a, b\), expected a motion that excites the parameters: at rest no torque depends on"
            r" damping.a, damping.b, rotor_inertia.b, friction.a, friction.b, inertia.upper.zz, inertia.fore.zz$",
        ),
        (TEST | {"cutoff_hz": 100.0}, "cutoff_hz: the cut-off is 100 Hz, expected below half the sampling rate of 200"),
        (TEST | {"effort_cutoff_hz": 100.0}, "effort_cutoff_hz: the cut-off is 100 Hz, expected below half"),
        (
            changed(duration_s=0.3) | {"cutoff_hz": 10.0},
            "cutoff_hz: there are 61 samples, too few for a cut-off at 10 Hz",
        ),
        (changed(duration_s=0.05), "there are 11 samples, expected at least 20"),
        (TEST | {"effort_cutoff_hz": 0.5}, "effort_cutoff_hz: there are 971 samples, too few for a cut-off at 0.5 Hz"),
        (TEST | {"least_speed": 99.0}, r"test 1: a is never faster than least_speed, expected one below \d"),
        (
            TEST | {"from_s": 30.0, "to_s": 40.0},
            "no samples between 30 and 40 s: without the filters' ends the record covers 0.075 to 4.92 s",
        ),
        (
            TEST | {"from_s": 20.0, "to_s": None},
            "test 1: no samples after 20 s: without the filters' ends the record",
        ),
        (TEST | {"from_s": 3.0, "to_s": 2.0}, "from_s is 3 and to_s 2, expected the first before the last"),
        (TEST | {"without": ["load"]}, "without: payload 'load' does not exist, and there is no other$"),
        (TEST | {"file": "motion.csv"}, "expected either file or simulate"),
        ({"kind": "torque"}, "expected either file or simulate"),
        ({"kind": "torque", "file": "absent.csv"}, "absent.csv: cannot be read"),
    ],
)
def test_wrong_tests(tmp_path, test, told):
    with pytest.raises(ValueError, match=told) as raised:
        identified(tmp_path, test)
    assert "test 1" in str(raised.value) or "absent" in str(raised.value) or "test.0" in str(raised.value)


def test_a_loop_that_opens(tmp_path):
    how = {"duration_s": 2.0, "rate_hz": 200.0, "motion": {"q1": {"speed": 1.5}}}
    test = {"kind": "torque", "simulate": how}
    with pytest.raises(ValueError, match=r"test 1: a loop of 'four-bar' opens at sample \d+, q1 = .*out of reach"):
        identified(tmp_path, test, machine=FOUR_BAR, free={"friction.q1": {"lower": 0.0, "upper": 9.0}})


def written(folder, motion=MOTION, **columns):
    """A test of a recording of the arm, some of its columns replaced."""
    how = SimulateTorques.model_validate(HOW | {"motion": motion})
    record = simulated_motion(how, jaxmb.build_model(ARM), np.zeros(2), 0)
    jaxmb.write_motion(folder / "motion.csv", dataclasses.replace(record, **columns))
    return {name: value for name, value in TEST.items() if name != "simulate"} | {"file": "motion.csv"}


def with_range(low, high):
    data = ARM.model_dump(exclude_unset=True)
    data["body"][0]["joint"][0]["range"] = [low, high]
    return jaxmb.Machine.model_validate(data)


def told_of(folder, word, test, machine=ARM):
    """Sentences with a word on the motion of a test."""
    (entry,) = study_of(folder, test, machine=machine).fitted
    return [text for text in (*entry.remarks, *entry.source.doubts) if word in text]


def remarks(result, word):
    return [text for text in result.as_json()["remarks"] if word in text]


def test_joints_that_turn_often(tmp_path):
    """Angles in degrees look like that; a crank may turn, in a simulation or where its range allows it."""
    often = MOTION | {"a": {"speed": 3.0}}
    recorded = written(tmp_path, often)
    told = "a turns 2.39 times: are its angles in degrees, or is a gear ratio missing?"
    assert told_of(tmp_path, "turns", recorded) == [told]
    assert not told_of(tmp_path, "turns", recorded, machine=with_range("-20 rad", "20 rad"))
    assert not told_of(tmp_path, "turns", changed(motion=often))


def test_angles_in_degrees_are_named(tmp_path):
    record = simulated_motion(SimulateTorques.model_validate(HOW), jaxmb.build_model(ARM), np.zeros(2), 0)
    result = identified(tmp_path, written(tmp_path, position=record.position * [1.0, 180.0 / np.pi]))
    assert [error.text for error in result.metrics.model_errors] == ["angle b in deg, with its rates of test 'motion'"]


def test_joints_beyond_their_range(tmp_path):
    recorded = written(tmp_path)
    column = np.genfromtxt(tmp_path / "motion.csv", delimiter=",", names=True, deletechars="")["a"]
    low, high = column.min(), column.max()
    width = high - low
    (told,) = told_of(tmp_path, "range", recorded, machine=with_range(low + 0.05 * width, high))
    assert told == (
        f"a ranges from {low:.3g} to {high:.3g} rad, beyond its range of {low + 0.05 * width:.3g} to"
        f" {high:.3g} rad: is it in degrees, or counted from another zero?"
    )
    # as far beyond as zeros of encoders are off
    assert not told_of(tmp_path, "range", recorded, machine=with_range(low + 0.01 * width, high))


def test_a_range_that_no_zero_of_a_joint_meets(tmp_path):
    recorded = written(tmp_path)
    column = np.genfromtxt(tmp_path / "motion.csv", delimiter=",", names=True, deletechars="")["a"]
    far = identified(tmp_path, recorded, machine=with_range(column.min(), 0.6 * column.min() + 0.4 * column.max()))
    assert far.status == "data not followed: the best fit does not reproduce test 'motion'"
    assert len(remarks(far, "beyond its range")) == 1


def test_a_joint_without_torque(tmp_path):
    how = SimulateTorques.model_validate(HOW)
    effort = simulated_motion(how, jaxmb.build_model(ARM), np.zeros(2), 0).effort
    effort[:, 0] = np.nan
    result = identified(tmp_path, written(tmp_path, effort=effort))
    told = remarks(result, "torque'")
    assert told == ["test 'motion': motion.csv has no column 'a.torque': the equation of a is left out"]


def without_column(folder, of_b, posture):
    """A study of a record of the arm that lacks all columns of its joint b, with other properties of b."""
    recorded = written(folder)
    record = jaxmb.read_motion(folder / "motion.csv", ("a", "b"))
    some = {part: getattr(record, part)[:, :1] for part in ("position", "effort")}
    jaxmb.write_motion(folder / "motion.csv", dataclasses.replace(record, names=("a",), **some))
    data = ARM.model_dump(exclude_unset=True)
    data["body"][1]["joint"] = [{"name": "b"} | of_b]
    jaxmb.write_machine(jaxmb.Machine.model_validate(data), folder / "arm.toml")
    free = {"damping.a": {"lower": 0.0, "upper": 9.0, "scale": "linear"}}
    file = {"machine": "arm.toml", "test": [recorded | {"posture": posture}], "free": free}
    return jaxmb.make_study(StudyFile.model_validate(file), "arm", folder)


@pytest.mark.parametrize(
    ("of_b", "expected"),
    [
        ({}, "a column 'b'"),
        ({"stiffness": 1e5, "rotor_inertia": 0.1}, "a column 'b'"),
        ({"stiffness": 1e5, "motor": {"inertia": 1e-4, "ratio": 100.0}}, "a column 'b' or 'b_motor'"),
    ],
)
def test_a_joint_without_column_is_not_taken_at_rest(tmp_path, of_b, expected):
    message = (
        f"test 'motion': 'motion.csv' has no motion of joint 'b': expected {expected}, or the value of b in posture"
        " where it does not move"
    )
    with pytest.raises(jaxmb.InputError, match=re.escape(message)):
        without_column(tmp_path, of_b, {"a": -0.3})


@pytest.mark.parametrize(
    ("of_b", "posture"),
    [({}, {"b": 0.5}), ({"locked": True}, {}), ({"stiffness": 1e5, "damping": 10.0}, {})],
    ids=["stated", "locked", "elastic"],
)
def test_a_joint_that_cannot_move_needs_no_column(tmp_path, of_b, posture):
    (entry,) = without_column(tmp_path, of_b, posture).entries
    assert entry.source.coordinates == ("a",)
    assert any("no motion was recorded of b" in text for text in entry.remarks) == ("locked" not in of_b)


def test_a_motion_without_record_is_a_cause(tmp_path):
    study = without_column(tmp_path, {}, {"b": 0.5})
    result = jaxmb.identify(study)
    assert result.status.startswith("data not followed")
    assert any("usual causes: a motion of b, of which there is no record, order" in doubt for doubt in result.doubts)


def test_the_stiffness_of_gears_without_motor_is_a_cause(tmp_path):
    data = ARM.model_dump(exclude_unset=True)
    for body, stiffness in zip(data["body"], (1e5, 5e4), strict=True):
        body["joint"][0]["stiffness"] = stiffness
    damping = {"damping.*": {"lower": 0.0, "upper": 9.0, "scale": "linear"}}
    result = identified(tmp_path, written(tmp_path), machine=jaxmb.Machine.model_validate(data), free=damping)
    assert result.status.startswith("data not followed")
    (told,) = [doubt for doubt in result.doubts if "usual causes" in doubt]
    assert "usual causes: the stiffness of a, b, which acts parallel to the drive (that of a gear needs" in told


def test_a_torque_without_values(tmp_path):
    recorded = written(tmp_path, effort=np.sin(np.arange(1001.0))[:, None] * [-0.0, 1.0])
    with pytest.raises(
        ValueError, match="test 'motion': the torque of a is 0 throughout while it moves, expected the measured one"
    ):
        identified(tmp_path, recorded)


def test_lengths_of_springs(tmp_path):
    spring = {"name": "balancer", "frame_a": "wall", "frame_b": "hand", "type": "length", "stiffness": 100.0,
              "free_length": 0.3}  # fmt: skip
    ends = [{"name": "wall", "body": "ground", "origin": {"xyz": [0.0, 0.5, 0.0]}}, {"name": "hand", "body": "fore"}]
    machine = jaxmb.Machine.model_validate(ARM.model_dump(exclude_unset=True) | {"spring": [spring], "frame": ends})
    free = FREE | {"free_length.balancer": {"lower": 0.1, "upper": 1.0}}
    with pytest.raises(NotImplementedError, match=r"test 1: efforts are not linear in 'free_length.balancer'"):
        identified(tmp_path, TEST, machine=machine, free=free)


def test_machines_with_beams(tmp_path):
    test = {"kind": "torque", "simulate": HOW | {"motion": {"q1": {"sine": [0.3]}}, "parameters": {}}}
    with pytest.raises(NotImplementedError, match="torque tests are of machines with rigid links"):
        identified(tmp_path, test, machine=BEAMS, free={"damping.*": {"lower": 1.0, "upper": 1e3}})


def test_a_parameter_that_does_not_act(tmp_path):
    """A moment of inertia about an axis that nothing turns about. With what is found of the others the body can have
    the machine's own."""
    idle, thick = "inertia.upper.xx", {"xx": 0.1, "yy": 0.1, "zz": 0.02}
    data = ARM.model_dump(exclude_unset=True)
    upper = data["body"][0] | {"inertia_products": thick}
    machine = jaxmb.Machine.model_validate(data | {"body": [upper, data["body"][1]]})
    result = identified(tmp_path, TEST, free=FREE | {idle: {"lower": -1.0, "upper": 1.0}}, machine=machine)
    assert result.parameters[idle].identifiable == "no"
    assert not np.isfinite(result.parameters[idle].std)
    assert result.parameters[idle].value == result.parameters[idle].initial
    assert f"{idle} is not known: no measurement depends on it" in " ".join(result.as_json()["remarks"])


def test_tx40_without_its_data(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("JAXMB_DATA", raising=False)
    assert main(["identify", "tx40", "--out", str(tmp_path)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert "JAXMB_DATA is not set" in shown.err
    assert "https://github.com/thanhndv212/figaroh-examples" in shown.err


@pytest.mark.skipif(
    not (Path(os.environ.get("JAXMB_DATA", "/nowhere")) / "staubli-tx40").is_dir(),
    reason="the public recording is not there: JAXMB_DATA does not name its folder",
)
def test_tx40(tmp_path):
    """Friction beside that of the recording's publisher, fv and fs in its TX40_config.yaml; joints 5 and 6 share theirs
    with motor 6 in another way there. What a rigid machine does not explain of each joint's torque, in per cent, has
    not grown."""
    assert main(["identify", "tx40", "--out", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    found = {name: p["value"] for name, p in result["parameters"].items()}
    viscous, coulomb = (np.array([found[f"{what}.q{i}"] for i in range(1, 5)]) for what in ("damping", "friction"))
    np.testing.assert_allclose(viscous, [8.05, 5.53, 1.97, 1.11], rtol=0.05)
    np.testing.assert_allclose(coulomb, [7.14, 8.26, 6.34, 2.48], rtol=0.08)
    rows = result["metrics"]["torques"]
    errors = [row["relative_percent"] for row in rows]
    assert [row["coordinate"] for row in rows] == ["q1", "q2", "q3", "q4", "q5", "q6"]
    assert np.all(np.array(errors) <= [6.6, 8.0, 10.1, 12.2, 25.0, 17.0]), errors


def test_a_record_of_the_machine_itself(tmp_path):
    """No noise, and bodies that are thin plates: at the limit of what can exist, where the search starts."""
    result = identified(tmp_path, written(tmp_path))
    own = jaxmb.parameters(jaxmb.build_model(ARM))
    assert result.status == "converged"
    found = {name: p.value for name, p in result.parameters.items()}
    assert found == pytest.approx({name: own[name] for name in found}, rel=1e-6, abs=1e-7)
