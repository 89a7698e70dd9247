"""Further terms of friction: found where the truth has them, not taken where it has not."""

import dataclasses

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.assess.tests.torque import TorqueMetrics
from jaxmb.identify.experiments.torque.effort_rows import EffortRows, Samples
from jaxmb.identify.experiments.torque.preliminary_fits import friction_terms
from jaxmb.identify.study.format.study_format import FreePart
from jaxmb.identify.study.reading.motions import motion_remarks
from jaxmb.identify.study.study import make_study
from jaxmb.machine.elements import FurtherFriction
from jaxmb.measurement.motion.csv_motion import read_motion, write_motion
from jaxmb.measurement.motion.record import MotionRecord
from tests.identify.experiments.torque.test_torque_pendulum import (
    FREE as PENDULUM_FREE,
    PENDULUM,
    TEST,
    TIME,
    columns,
    motion,
    study,
)
from tests.identify.experiments.torque.test_torque_recovery import (
    ARM,
    FREE,
    HOW,
    TEST as ARM_TEST,
    TRUE as ARM_TRUE,
    identified,
    study_of,
)

NAMES = ("inertia.bob.zz", "first_moment.bob.x", "damping.q", "friction.q")
TRUE = np.array([0.5, 1.2, 0.7, 0.9])
KINDS = ("stribeck", "load", "cubic", "temperature")
NOISE = 0.05
WARM = 30.0 + 15.0 * np.linspace(0.0, 1.0, 4001)


def rows(extra=None, seed=0):
    """Equations of the pendulum along 20 s, with a further torque of the speed, the load and the temperature."""
    time = np.arange(4001) / 200.0
    Y, v = columns(time), motion(time)[1]
    effort = Y @ TRUE + NOISE * np.random.default_rng(seed).normal(size=time.size)
    if extra is not None:
        effort = effort + extra(v, np.abs(Y[:, :2] @ TRUE[:2]), WARM)
    zero = np.zeros((len(v), 1))
    samples = Samples(Y[:, None], v[:, None], WARM, Y[:, None], zero, lambda part: part[:, 0])
    return EffortRows(Y, effort, np.zeros(time.size, dtype=int), time, v, ("q",), np.zeros(time.size), samples)


@pytest.mark.parametrize(
    ("kind", "size", "law"),
    [
        ("stribeck", 0.4, lambda v, load, warm: np.exp(-((v / 0.4) ** 2)) * np.sign(v)),
        ("load", 0.05, lambda v, load, warm: load * np.sign(v)),
        ("cubic", 0.02, lambda v, load, warm: v**3),
        ("temperature", -0.05, lambda v, load, warm: (warm - warm.mean()) * v),
    ],
)
def test_a_term_that_is_there(kind, size, law):
    choice = friction_terms(rows(lambda *state: size * law(*state)), NAMES, KINDS)
    found = choice.terms
    assert found[0].kind == kind
    assert len(found) == 1
    term = found[0]
    assert abs(term.coefficient - size) < 5.0 * term.std
    assert term.after < term.before
    assert term.after == pytest.approx(NOISE, rel=0.05)
    if kind == "stribeck":
        assert term.speed == pytest.approx(0.4, rel=0.05)
    else:
        assert term.speed is None


def test_no_term_where_there_is_none():
    """Five draws of the noise, four kinds each: by chance one in twenty studies of these would take one."""
    taken = [friction_terms(rows(seed=seed), NAMES, KINDS).terms for seed in range(5)]
    assert sum(len(found) > 0 for found in taken) <= 1


def test_what_a_study_says(tmp_path):
    _, v, _ = motion(TIME)
    noise = NOISE * np.random.default_rng(1).normal(size=TIME.size)
    tried = {"friction_terms": ["stribeck", "cubic"]}
    entry = study(tmp_path, noise + 0.2 * v**3, **tried).fitted[0]
    (told,) = [remark for remark in entry.remarks if "friction" in remark]
    assert told.startswith("q: cubic friction of 0.2")
    assert told.endswith("it is part of the fit")
    entry = study(tmp_path, noise, **tried).fitted[0]
    assert any("no further friction (stribeck, cubic) predicts" in remark for remark in entry.remarks)


def test_wrong_requests(tmp_path):
    with pytest.raises(ValueError, match="expected none in a test with the role 'check'"):
        study(tmp_path, friction_terms=["cubic"], role="check")
    with pytest.raises(ValueError, match="found no column 'temperature' in the record"):
        study(tmp_path, friction_terms=["temperature"])
    assert TEST["cutoff_hz"] == 40.0


def test_a_test_without_the_temperature_on_which_friction_depends(tmp_path):
    """It is told of, beside one that has it and one of friction that does not depend on it."""
    joint = (
        PENDULUM.body[0]
        .joint[0]
        .model_copy(update={"further_friction": FurtherFriction(damping_slope=-0.01, temperature=30.0)})
    )
    machine = PENDULUM.model_copy(update={"body": (PENDULUM.body[0].model_copy(update={"joint": (joint,)}),)})
    model, cold = jaxmb.build_model(machine), jaxmb.build_model(PENDULUM)
    record = MotionRecord(TIME, ("q",), motion(TIME)[0][:, None], columns(TIME) @ TRUE[:, None])
    warm = dataclasses.replace(record, temperature=30.0 + TIME)
    (told,) = motion_remarks(machine, model, record, recorded=True)
    assert told.startswith("no temperature was recorded: damping of q ")
    assert not motion_remarks(machine, model, warm, recorded=True)
    assert not motion_remarks(PENDULUM, cold, record, recorded=True)


def test_temperatures_in_tables(tmp_path):
    time = np.arange(30) / 10.0
    record = MotionRecord(time, ("q",), np.sin(time)[:, None], np.cos(time)[:, None], temperature=20.0 + time)
    write_motion(tmp_path / "warm.csv", record)
    np.testing.assert_array_equal(read_motion(tmp_path / "warm.csv", ["q"]).temperature, record.temperature)


STRIBECK = FurtherFriction(stribeck=1.0, stribeck_speed=0.25)
GRIP = FurtherFriction(load_friction=0.08)
MORE = {"stribeck.a": 1.0, "stribeck_speed.a": 0.25, "load_friction.b": 0.08}
OTHER = {"a": {"sine": [0.9, 0.3, 0.2], "cosine": [0.2, 0.2]}, "b": {"sine": [0.5, -0.6], "cosine": [0.3, 0.3]}}


@pytest.fixture(scope="module")
def arm(tmp_path_factory):
    """An arm with Stribeck friction at one joint and friction by load at the other, by the machine that has neither."""
    folder = tmp_path_factory.mktemp("arm")
    body = [
        part.model_copy(update={"joint": (part.joint[0].model_copy(update={"further_friction": further}),)})
        for part, further in zip(ARM.body, (STRIBECK, GRIP), strict=True)
    ]
    true = ARM.model_copy(update={"body": tuple(body)})
    jaxmb.write_machine(true, folder / "true.toml")
    how = HOW | {"duration_s": 10.0, "torque_std": NOISE, "machine": "true.toml"}
    plain = {key: value for key, value in ARM_TEST.items() if key not in ("from_s", "to_s")}
    seen = plain | {"name": "seen", "simulate": how}
    held = plain | {"name": "held", "role": "check", "simulate": how | {"motion": OTHER, "noise_seed": 2}}
    tries = seen | {"friction_terms": ["stribeck", "load", "cubic"]}
    return identified(folder, seen, held), identified(folder, tries, held), folder


def test_what_is_there_is_part_of_the_fit(arm):
    """Without it viscous and Coulomb friction are off by more than four of the deviations that they have with it, which
    their own contain. With it all numbers are within four of theirs, of which one in a thousand draws of seventeen
    would have one outside."""
    plain, found, _ = arm
    for name in ("friction.a", "damping.a"):
        off = abs(plain.parameters[name].value - ARM_TRUE[name])
        assert off > 4.0 * found.parameters[name].std
        assert off < 1.96 * plain.parameters[name].std
    assert any("the residual contains friction: a (" in text for text in plain.doubts)
    assert set(found.parameters) == set(ARM_TRUE) | set(MORE)
    for name, value in (ARM_TRUE | MORE).items():
        assert abs(found.parameters[name].value - value) < 4.0 * found.parameters[name].std, name
    assert found.parameters["stribeck.a"].unit == "N m"


def test_held_out_motion_is_predicted_with_it(arm):
    """To the noise, which is all that is left."""
    plain, found, _ = arm
    for result, limit in ((plain, 2.0), (found, 1.05)):
        errors = [row.rms_error for row in result.metrics.of(TorqueMetrics).torques if row.test == "held"]
        assert (max(errors) < limit * NOISE) is (limit == 1.05)


def test_the_machine_that_is_written_has_it(arm):
    _, found, folder = arm
    jaxmb.write_machine(found.machine, folder / "found.toml")
    model = jaxmb.build_model(jaxmb.load_machine(folder / "found.toml"))
    expected = jaxmb.actuator_effort(found.model, [0.2, -0.4], [0.3, 0.5], [1.0, 2.0])
    np.testing.assert_allclose(jaxmb.actuator_effort(model, [0.2, -0.4], [0.3, 0.5], [1.0, 2.0]), expected, rtol=1e-9)
    assert jaxmb.parameters(model)["load_friction.b"] == pytest.approx(found.parameters["load_friction.b"].value)


def test_a_search_sees_the_same_equations(arm):
    """Beside tests of other kinds the residual is that of the linear step."""
    study_of_it = arm[1].study
    (test,) = study_of_it.tests
    values = np.array([(ARM_TRUE | MORE)[name] for name in study_of_it.free.names])
    rows = test.linear.equations(study_of_it.model, study_of_it.free)
    expected = (rows.matrix @ values - rows.measured) / rows.std
    np.testing.assert_allclose(study_of_it.problem.residuals_by_test(values)[0], expected, atol=1e-9)


def test_beside_a_term_that_the_machine_has(arm, tmp_path):
    """Stribeck friction of the first joint stands in its file, with its speed; the other joint's is looked for."""
    true = jaxmb.load_machine(arm[2] / "true.toml")
    there = true.model_copy(update={"body": (true.body[0], ARM.body[1])})
    jaxmb.write_machine(true, tmp_path / "true.toml")
    how = HOW | {"duration_s": 10.0, "torque_std": NOISE, "machine": "true.toml"}
    found = identified(
        tmp_path, ARM_TEST | {"simulate": how, "friction_terms": ["stribeck", "load", "cubic"]}, machine=there
    ).parameters
    assert set(found) == {*ARM_TRUE, "load_friction.b"}
    assert abs(found["load_friction.b"].value - 0.08) < 4.0 * found["load_friction.b"].std


def test_load_of_friction_that_the_machine_has(tmp_path):
    """By the machine's own first moments, of the other sign, joints would carry the opposite of what they do."""
    joint = ARM.body[1].joint[0].model_copy(update={"further_friction": GRIP})
    true = ARM.model_copy(update={"body": (ARM.body[0], ARM.body[1].model_copy(update={"joint": (joint,)}))})
    jaxmb.write_machine(true, tmp_path / "true.toml")
    wrong = [part.model_copy(update={"center_of_mass": (-0.2, 0.0, 0.0)}) for part in true.body]
    how = HOW | {"duration_s": 10.0, "torque_std": NOISE, "machine": "true.toml"}
    result = identified(tmp_path, ARM_TEST | {"simulate": how}, machine=true.model_copy(update={"body": tuple(wrong)}))
    for name, value in ARM_TRUE.items():
        assert abs(result.parameters[name].value - value) < 4.0 * result.parameters[name].std, name
    rows = result.metrics.of(TorqueMetrics).torques
    assert max(row.rms_error for row in rows) < 1.05 * NOISE


def test_what_a_study_cannot_free_by_itself(tmp_path):
    for name, kind in (("load_friction.b", "load"), ("stribeck_speed.a", "stribeck")):
        with pytest.raises(NotImplementedError, match=f'which friction_terms = ."{kind}". of a torque test determines'):
            identified(tmp_path, ARM_TEST, free=FREE | {name: {"lower": 0.1, "upper": 1.0}})


def test_bounds_that_a_study_gives_a_term(tmp_path):
    """They are those of the fit: without them the coefficient is 0.2."""
    v, noise = motion(TIME)[1], NOISE * np.random.default_rng(3).normal(size=TIME.size)
    own = study(tmp_path, noise + 0.2 * v**3, friction_terms=["cubic"]).origin.file
    few = FreePart(lower=0.0, upper=0.1, scale="linear")
    found = make_study(own.model_copy(update={"free": own.free | {"cubic_damping.q": few}}), "bounds", tmp_path)
    assert jaxmb.identify(found).parameters["cubic_damping.q"].value == 0.1


def test_several_tests_choose_together(tmp_path):
    """Each by itself and both together; the machine has the term once."""
    v, noise = motion(TIME)[1], NOISE * np.random.default_rng(3).normal(size=TIME.size)
    one = study(tmp_path, noise + 0.2 * v**3, friction_terms=["cubic"])
    file = one.origin.file
    both = file.model_copy(update={"test": (*file.test, file.test[0].model_copy(update={"name": "again"}))})
    two = make_study(both, "two", tmp_path)
    assert two.free.names == one.free.names
    assert set(two.free.names) == {*NAMES, "cubic_damping.q"}
    assert sum("cubic friction" in remark for entry in two.fitted for remark in entry.remarks) == 1


def test_friction_that_bounds_keep_from_where_its_equations_hold(tmp_path):
    """A bound far below the Coulomb friction makes the Stribeck term take its place, at another speed."""
    _, v, _ = motion(TIME)
    noise = NOISE * np.random.default_rng(1).normal(size=TIME.size)
    extra = noise + 0.6 * np.exp(-((v / 0.6) ** 2)) * np.sign(v)
    for most, doubted in ((5.0, False), (0.4, True)):
        free = PENDULUM_FREE | {"friction.q": {"lower": 0.0, "upper": most}}
        found = jaxmb.identify(study(tmp_path, extra, free=free, friction_terms=["stribeck"]))
        assert any(name.startswith("stribeck_speed.") for name in found.parameters)
        assert any("stribeck_speed.q" in remark for remark in found.doubts) == doubted


def test_stribeck_friction_of_a_joint_whose_torque_only_one_test_has(tmp_path):
    """Its speed is a number of that test alone."""
    joint = ARM.body[1].joint[0].model_copy(update={"further_friction": STRIBECK})
    machine = ARM.model_copy(update={"body": (ARM.body[0], ARM.body[1].model_copy(update={"joint": (joint,)}))})
    time = np.arange(801) / 200.0
    q = np.stack([np.sin(2.0 * time), np.cos(3.0 * time)], axis=1)
    effort = np.stack([np.cos(5.0 * time), np.sin(4.0 * time)], axis=1)
    for name, own in (("one", np.where([True, False], effort, np.nan)), ("both", effort)):
        write_motion(tmp_path / f"{name}.csv", MotionRecord(time, ("a", "b"), q, own))
    tests = [{"kind": "torque", "file": f"{name}.csv", "cutoff_hz": 20.0} for name in ("one", "both")]
    assert set(study_of(tmp_path, *tests, machine=machine).free.names) == set(FREE)
