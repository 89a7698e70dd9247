"""Which test to make next: what candidates tell, choices against random ones, and what is promised against a study."""

import dataclasses
import tomllib
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb
from jaxmb.identify.estimation.design import observability
from jaxmb.identify.estimation.identifiability import information_rows
from jaxmb.identify.fit.problem import final_state
from jaxmb.identify.plan.candidates import (
    Candidate,
    OperatingPoint,
    information_of,
    observation,
    postures_of,
    proposal_toml,
)
from jaxmb.identify.plan.next_tests import (
    NextTests,
    _indices,
    criterion_of,
    improved,
    known_directions,
    objective,
    observability_of,
    plan_poses,
)
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.io.validation import InputError, validated
from jaxmb.machine.file import write_machine
from jaxmb.machine.schema import Machine
from tests.identify.arm import FREE, MACHINE, frf, shapes, study_of
from tests.identify.crane import pendulum_study

RANGES = {"a": ["-60 deg", "60 deg"], "b": ["-120 deg", "120 deg"]}
FREE_AND_MASS = FREE | {"mass.fore": {"lower": 1.0, "upper": 20.0}}


def planned_test(b=0.5, **more):
    """FRFs of the tool with the noise that is expected."""
    return frf(b=b, noise_log_std=0.01) | more


@pytest.fixture
def made(tmp_path):
    def study(*tests, **more):
        return study_of(tmp_path, *tests, **more)

    return study


@pytest.fixture
def made_at(made, tmp_path):
    """The arm at the posture; at the equilibrium the lever of a crane alone, of which less is to be compiled."""

    def study(at):
        if at == "posture":
            tool = {"frame.tool.x": {"lower": -0.01, "upper": 0.03, "initial": 0.01, "scale": "linear"}}
            return made(planned_test(), free=FREE_AND_MASS | tool)
        return pendulum_study(tmp_path, linearize_at=at)

    return study


def place_of(study):
    values = zip(study.free.names, study.start.values, strict=True)
    u = study.free.encode(np.array([study.truth[name] or start for name, start in values]))
    return OperatingPoint(study.model, study.free, jnp.asarray(u))


@pytest.mark.parametrize("at", ["posture", "equilibrium"])
def test_a_candidate_tells_what_the_test_itself_would(made_at, at):
    study = made_at(at)
    place, test = place_of(study), study.tests[0]
    rows = observation(place, Candidate(test.vibration.probe(), np.asarray(test.q)))
    expected = np.asarray(final_state(study.problem, place.u)[1])
    # Rounding only: the same numbers by another way.
    np.testing.assert_allclose(
        rows.T @ rows, expected.T @ expected, rtol=1e-8, atol=1e-10 * np.abs(expected).max() ** 2
    )


def test_chosen_postures_beat_random_ones_and_the_gradient_betters_them(made):
    """Of a hundred sets of three; what is chosen for the KR90 is a claim of experiments/next-posture."""
    study = made(planned_test(), free=FREE_AND_MASS, next={"count": 3, "candidates": 50, "postures": RANGES})
    found = jaxmb.inspect(study)
    chosen = found.next
    assert chosen is not None
    assert (chosen.candidates, chosen.left_out, len(chosen.tests)) == (50, 0, 3)
    place, test = place_of(study), study.tests[0]
    before = information_of(place, [Candidate(test.vibration.probe(), np.asarray(test.q))])[0]
    postures = postures_of(study.next, np.asarray(test.q), study.model)
    told = information_of(place, [Candidate(test.vibration.probe(), q) for q in postures])
    draw = np.random.default_rng(0)
    random = [criterion_of("A", np.concatenate([before, *told[draw.choice(50, 3, replace=False)]])) for _ in range(100)]
    assert chosen.chosen < min(random)
    assert chosen.improved < 0.99 * chosen.chosen
    assert chosen.before > chosen.chosen
    low, high = np.radians([[-60.0, -120.0], [60.0, 120.0]])
    for one in chosen.tests:
        assert (one.q >= low - 1e-12).all()
        assert (one.q <= high + 1e-12).all()


def test_what_is_promised_is_what_a_study_with_the_next_tests_predicts(made):
    asked = {"count": 2, "candidates": 20, "postures": RANGES, "criterion": "D"}
    found = jaxmb.inspect(made(planned_test(), free=FREE_AND_MASS, next=asked))
    assert found.next is not None
    assert "noise_seed" not in found.next.as_toml(found.study)  # noise of its own, also if a study is extended twice
    names = found.study.model.coordinates
    postures = [dict(zip(names, test.q.tolist(), strict=True)) for test in found.next.tests]
    then = jaxmb.inspect(made(planned_test(), *(planned_test(posture=p) for p in postures), free=FREE_AND_MASS))
    for name, p in found.parameters.items():
        # Two Jacobians, computed in two ways.
        assert p.next_std == pytest.approx(then.parameters[name].relative_std, rel=1e-5)
        assert p.std_after_next == pytest.approx(then.parameters[name].std, rel=1e-5)


@pytest.mark.parametrize(
    ("own", "copied"),
    [
        (planned_test(name="own", modal={"max_order": 8, "chosen_hz": [2.8, 10.6]}), {"modal": {"max_order": 8}}),
        ({"kind": "torque", "name": "own", "file": "m.csv", "from_s": 1.0, "to_s": 8.0}, {"file": "next-1.csv"}),
    ],
)
def test_a_proposal_has_neither_poles_nor_times_of_another_record(own, copied):
    file = StudyFile.model_validate({"machine": "arm.toml", "test": [own], "free": FREE})
    study: Any = SimpleNamespace(origin=SimpleNamespace(file=file))
    (test,) = tomllib.loads(proposal_toml(study, "own", [{}]))["test"]
    assert {key: test.get(key) for key in ("modal", "from_s", "to_s", "file") if key in test} == copied


def test_a_band_proposed_for_hits_has_its_step(made):
    hits = {"hits": {"hits": 1, "record_s": 2.0, "decay_1_s": 4.0, "sample_rate_hz": 512.0}}
    lines = {"lines": {"first_hz": 2.0, "last_hz": 20.0, "step_hz": 0.25}}
    text = proposal_toml(made(planned_test(name="hit", simulate=hits)), "hit", [{"simulate": lines}])
    (test,) = made(*tomllib.loads(text)["test"]).tests
    assert np.diff(test.omega) == pytest.approx(2.0 * np.pi * 0.25)


def test_candidates_of_a_closed_chain_are_closed(tmp_path):
    """As the study with the next test does; gradient against finite differences, see below."""
    machine = jaxmb.load_machine("slider-crank").model_dump(mode="json", exclude_unset=True)
    machine["body"][0]["joint"][0] |= {"stiffness": 100.0, "damping": 0.1}
    simulate = {"lines": {"first_hz": 1.0, "last_hz": 20.0, "step_hz": 1.0}}
    test = {"kind": "frf", "outputs": [["slider", "x"]], "posture": {"q1": 0.5}, "simulate": simulate,
            "noise_log_std": 0.01}  # fmt: skip
    more = {"machine": Machine.model_validate(machine), "free": {"stiffness.q1": {"lower": 10.0, "upper": 1e3}}}
    asked = {"postures": {"q1": [0.3, 1.2]}, "candidates": 2}
    found = jaxmb.inspect(study_of(tmp_path, test, next=asked, **more))
    (chosen,) = found.next.tests
    then = jaxmb.inspect(study_of(tmp_path, test, test | {"posture": {"q1": float(chosen.q[0])}}, **more))
    expected = then.parameters["stiffness.q1"].relative_std
    assert found.parameters["stiffness.q1"].next_std == pytest.approx(expected, rel=1e-9)
    made, ends = np.zeros((0, 1)), (np.array([0.3]), np.array([1.2]))
    value = objective(place_of(found.study), [chosen], made, np.eye(1), "D", np.array([0]), ends)
    difference = (value(np.array([0.5 + 1e-5]))[0] - value(np.array([0.5 - 1e-5]))[0]) / 2e-5
    assert value(np.array([0.5]))[1] == pytest.approx(difference, rel=1e-5)
    with pytest.raises(InputError, match="independent coordinate 'q2' does not exist"):
        study_of(tmp_path, test, next={"postures": {"q2": [-0.9, -0.8]}}, **more)


@pytest.mark.parametrize(("postures", "found"), [({"b": [-0.5, 1.3]}, "b = 1.3"), ([{"b": -2.0}], "b = -2")])
def test_postures_beyond_the_range_of_the_machine_are_not_planned(made, postures, found):
    machine = MACHINE.model_dump(mode="json", exclude_unset=True)
    (joint,) = (joint for body in machine["body"] for joint in body.get("joint", ()) if joint.get("name") == "b")
    joint["range"] = [-1.0, 1.2]
    with pytest.raises(InputError, match=rf"\[next\]: postures: {found} rad, expected .* -1 to 1.2 rad"):
        made(planned_test(), machine=Machine.model_validate(machine), next={"postures": postures})


def test_observability_is_of_the_parameters_of_the_machine():
    study = SimpleNamespace(free=SimpleNamespace(names=("zero.q2", "station.t.A.x", "distance_offset.t")))
    rows = np.random.default_rng(1).normal(size=(9, 3))
    assert _indices(study, rows, 9) == observability(rows[:, :1], 9, rows[:, 1:])


def test_poses_beside_other_tests_have_no_observability(made):
    """Poses alone do not determine the parameters of the other tests: their indices would be 0."""
    test = {"kind": "pose", "name": "p", "simulate": {"rows": 6, "ranges": {"a": [-1.0, 1.0], "b": [-1.0, 1.0]}}}
    free = FREE | {"zero.b": {"lower": -0.1, "upper": 0.1}}
    ask = {"kind": "pose", "count": 1, "candidates": 4, "postures": RANGES}
    study = made(shapes(), test, free=free, next=ask)
    chosen, *_ = plan_poses(study, place_of(study), np.eye(study.free.size))
    assert len(chosen.q) == 1
    assert chosen.as_json(study.model)["observability"] is None
    assert observability_of(study, np.zeros((study.problem.data_rows, study.free.size))) is None


def test_ranges_beyond_a_turn_are_reached():
    part = SimpleNamespace(postures=[{"a": np.radians(400.0)}])
    model = jaxmb.build_model(MACHINE)
    np.testing.assert_allclose(postures_of(part, np.zeros(2), model), [[np.radians(400.0), 0.0]])


def test_a_coordinate_moved_to_zero_is_stated():
    """Coordinates that are left out are 0, and those of the reference posture in a study."""
    model = jaxmb.build_model(MACHINE)
    model = dataclasses.replace(model, reference=jnp.array([0.4, 0.0]))
    probe = SimpleNamespace(ends=((), ()), band_hz=(1.0, 2.0), omega=np.ones(1))
    test = SimpleNamespace(probe=probe, q=np.zeros(2))
    numbers = dict.fromkeys(("like", "candidates", "before", "chosen", "known", "left_out", "improved", "directions"))
    found = NextTests(part=SimpleNamespace(seed=0), tests=(test,), drawn=(test,), **numbers).as_json(model)
    assert found["tests"][0]["posture"] == found["tests"][0]["drawn"] == {"a": 0.0}


@pytest.mark.parametrize(("criterion", "at"), [("A", "posture"), ("D", "equilibrium")])
def test_gradient_of_the_criterion(made_at, criterion, at):
    """By all coordinates of all tests, against finite differences; and the way it leads is down."""
    study = made_at(at)
    place, probe = place_of(study), study.tests[0].vibration.probe()
    own = information_of(place, [Candidate(probe, np.asarray(study.tests[0].q))])[0]
    size, n = study.free.size, len(study.model.coordinates)
    start = [Candidate(probe, np.array(q)[:n]) for q in ([0.3, 0.9], [0.0, -1.5])]
    where, ends = np.arange(n), (np.array([-1.0, -2.2])[:n], np.array([1.0, 1.9])[:n])
    value = objective(place, start, own, np.eye(size), criterion, where, ends)
    for x in np.random.default_rng(0).uniform(0.1, 0.9, (3, 2 * n)):
        found = value(x)[1]
        differences = [(value(x + step)[0] - value(x - step)[0]) / 2e-5 for step in 1e-5 * np.eye(2 * n)]
        # Central differences err by the square of the step, times third derivatives of up to a hundred times the slope.
        np.testing.assert_allclose(found, differences, rtol=1e-4, atol=1e-4 * np.abs(found).max())
    better = improved(place, start, own, np.eye(size), criterion, where, ends)

    def told(tests):
        return criterion_of(criterion, np.concatenate([own, *information_of(place, tests)]))

    x = np.concatenate([(c.q[where] - ends[0]) / (ends[1] - ends[0]) for c in better])
    change = told(better) - told(start) if criterion == "D" else np.log(told(better) / told(start))
    first = np.concatenate([(c.q[where] - ends[0]) / (ends[1] - ends[0]) for c in start])
    assert change == pytest.approx(value(x)[0] - value(first)[0], rel=1e-6)
    assert change < 0.0


def test_points_and_bands_are_chosen_from(made):
    """Lines up to 25 Hz tell more than as many up to 5, below both modes, and each chosen test says what it is."""
    asked = {
        "postures": [{"a": 0.2, "b": 0.5}, {"a": "40 deg", "b": "-60 deg"}],
        "points": [
            [["tool", "x"], ["tool", "z"]],
            {"outputs": [["tool", "x"], ["elbow", "x"]], "inputs": [["tool", "z"]]},
        ],
        "bands_hz": [[1.0, 3.0], [1.0, 25.0]],
        "step_hz": [2.0 / 24.0, 1.0],
        "count": 1,
    }
    found = jaxmb.inspect(made(planned_test(), next=asked))
    assert found.next is not None
    assert found.next.candidates == 8
    (test,) = found.next.tests
    assert test.probe.band_hz == pytest.approx((1.0, 25.0))
    assert test.probe.omega.size == 25
    assert found.next.improved == found.next.chosen  # listed postures stay where they are
    assert test.probe.ends in (
        ((("tool", "x"), ("tool", "z")), (("tool", "x"), ("tool", "z"))),
        ((("tool", "x"), ("elbow", "x")), (("tool", "z"),)),
    )


def test_what_nothing_tells_is_left_out():
    """A parameter on which no candidate depends does not hinder the choice among the others."""
    rows = np.random.default_rng(0).normal(size=(6, 4, 3)) * np.array([1.0, 1.0, 0.0])
    basis = known_directions(rows.reshape(-1, 3))
    assert basis.shape == (3, 2)
    np.testing.assert_allclose(basis[2], 0.0)
    np.testing.assert_allclose(basis.T @ basis, np.eye(2), atol=1e-12)
    assert np.isfinite(criterion_of("A", rows[0] @ basis))
    assert np.isinf(criterion_of("A", rows[0]))
    matrix = (rows[0] @ basis).T @ (rows[0] @ basis)
    assert criterion_of("A", rows[0] @ basis) == pytest.approx(np.trace(np.linalg.inv(matrix)))
    assert criterion_of("D", rows[0] @ basis) == pytest.approx(-np.linalg.slogdet(matrix)[1])
    assert information_rows(rows[0], np.ones(4)).shape == (3, 3)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"postures": {"b": ["20 deg", "10 deg"]}},
            'postures, b: found ["20 deg", "10 deg"], expected ascending values',
        ),
        ({"postures": {"q2": ["20 deg", "30 deg"]}}, "coordinate 'q2' does not exist"),
        ({"postures": [{"z9": 0.0}]}, "coordinate 'z9' does not exist"),
        ({"postures": RANGES, "bands_hz": [[1.0, 30.0]]}, "expected bands_hz and step_hz together or none of them"),
        ({"postures": RANGES, "bands_hz": [[1.0, 30.0]], "step_hz": [1, 2]}, "step_hz has 2 entries for 1 bands"),
        ({"postures": RANGES, "bands_hz": [[30.0, 1.0]], "step_hz": 1.0}, "expected it above 0 and ascending"),
        ({"postures": RANGES, "points": [[["hand", "x"]]]}, "'hand'"),
        ({"postures": RANGES, "points": [[["tool", "x"], ["tool", "x"]]]}, "points hold the point 'tool x' twice"),
        ({"postures": RANGES, "like": "other"}, "like: frf test 'other' does not exist"),
        ({"postures": RANGES, "criterion": "E"}, "criterion: found \"E\", expected 'A' or 'D'"),
        ({"postures": RANGES, "count": 0}, "count: found 0"),
        ({"count": 1}, "next, postures: missing"),
        ({"postures": RANGES, "candidates": 0}, "next, candidates: found 0"),
        ({"postures": RANGES, "kind": "modes"}, "next, kind: found \"modes\", expected one of 'frf', 'torque', 'pose'"),
        ([RANGES], "next, kind: missing"),
        ({"postures": RANGES, "candidates": 20000, "points": [[["tool", "x"]]] * 2}, "more than 20000 candidates"),
    ],
)
def test_what_cannot_be_asked_for(asked, message, tmp_path):
    write_machine(MACHINE, tmp_path / "arm.toml")
    data = {"machine": "arm.toml", "test": [planned_test()], "next": asked, "free": FREE}
    with pytest.raises(InputError, match="next") as told:
        jaxmb.make_study(validated(StudyFile, data, "mine.toml"), "mine", tmp_path, "mine.toml")
    assert message in str(told.value)


def test_candidates_need_an_frf_test(made):
    with pytest.raises(InputError, match="the next tests are like a fitted one of kind 'frf', and the study has none"):
        made(shapes(), next={"postures": RANGES})


def test_too_few_tests_are_told(made):
    """One FRF at one line has two numbers: where two postures could tell four directions, one test is too few."""
    postures = [{"a": 0.2, "b": 0.5}, {"a": 0.2, "b": 1.4}]
    lines = {"lines": {"first_hz": 10.0, "last_hz": 10.0, "step_hz": 1.0}}
    line = planned_test(simulate=lines, outputs=[["tool", "x"]])
    free = FREE_AND_MASS | {
        "mass.upper": {"lower": 5.0, "upper": 50.0},
        "rotor_inertia.*": {"lower": 0.0, "upper": 9.0},
    }
    found = jaxmb.inspect(made(line, next={"postures": postures[1:] * 2, "count": 1}, free=free))
    assert found.next is not None
    assert found.next.directions == 4
    assert "for the 4 identifiable of 8 directions of the parameters" in found.next_remark
    more = [*postures, {"a": 0.9, "b": -1.3}]
    found = jaxmb.inspect(made(line, next={"postures": more, "count": 1}, free=free))
    assert found.next is None
    assert found.next_remark == (
        "no next test could be chosen: not all of 6 parameters are identifiable from 1 tests, expected more tests"
    )
