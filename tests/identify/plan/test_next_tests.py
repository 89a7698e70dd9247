"""Which test to make next: what candidates tell, choices against random ones, and what is promised against a study."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb
from jaxmb.identify.estimation.design import choose_tests
from jaxmb.identify.estimation.identifiability import information_rows, knowledge
from jaxmb.identify.fit.problem import final_state
from jaxmb.identify.plan.candidates import Candidate, Place, information_of, observation, postures_of
from jaxmb.identify.plan.improve_posture import improved, objective
from jaxmb.identify.plan.next_tests import criterion_of, known_directions
from jaxmb.identify.study.format.next_format import NextPart
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.io.validation import InputError, validated

PUBLISHED = {"z1": "0 deg", "z2": "70 deg", "z3": "-100 deg"}
RANGES = {"z1": ["-90 deg", "90 deg"], "z2": ["20 deg", "110 deg"], "z3": ["-130 deg", "-20 deg"]}
FREE = {"stiffness.*": {"lower": 1e5, "upper": 1e9}, "damping.*": {"lower": 1.0, "upper": 1e5}}


def frf_test(first_hz=1.0, last_hz=30.0, step_hz=0.5, posture=PUBLISHED, **more):
    lines = {"first_hz": first_hz, "last_hz": last_hz, "step_hz": step_hz}
    return {"kind": "frf", "simulate": {"lines": lines}, "posture": posture, "noise_log_std": 0.01} | more


def made(*tests, machine="kuka-kr90", free=FREE, **more):
    data = {"machine": machine, "test": list(tests), "free": free} | more
    return jaxmb.make_study(StudyFile.model_validate(data), "study", Path(), "mine.toml")


def place_of(study):
    u = study.free.encode(np.array([study.truth[name] for name in study.free.names]))
    return Place(study.model, study.free, jnp.asarray(u))


@pytest.fixture(scope="module")
def wide():
    """The published test up to 100 Hz, its rows, and those of candidates like it."""
    study = made(frf_test(last_hz=100.0))
    place, test = place_of(study), study.tests[0]
    published = information_of(place, [Candidate(test.probe(), np.asarray(test.q))])[0]

    def told(count, seed):
        part = NextPart.model_validate({"postures": RANGES, "candidates": count, "seed": seed})
        postures = postures_of(part, np.asarray(test.q), study.model.coordinates)
        return information_of(place, [Candidate(test.probe(), q) for q in postures])

    return published, told


@pytest.mark.parametrize(("machine", "at"), [("manipulator-3r", "equilibrium")])
def test_a_candidate_tells_what_the_test_itself_would(machine, at):
    study = made(frf_test(), machine=machine, free={"stiffness.*": {"lower": 2e5, "upper": 2e7},
                 "damping.*": {"lower": 10.0, "upper": 1e4}, "mass.link3": {"lower": 100.0, "upper": 300.0}},
                 linearize_at=at)  # fmt: skip
    place, test = place_of(study), study.tests[0]
    rows = observation(place, Candidate(test.probe(), np.asarray(test.q)))
    expected = np.asarray(final_state(study.problem, place.u)[1])
    # Rounding only: the same numbers by another way.
    np.testing.assert_allclose(
        rows.T @ rows, expected.T @ expected, rtol=1e-8, atol=1e-10 * np.abs(expected).max() ** 2
    )


def test_eight_postures_up_to_100_hz(wide):
    """Known before: eight random postures bring the worst parameter below 10 % in 34 of 40 draws."""
    published, told = wide
    sets = told(40 * 7, seed=77).reshape(40, 7 * 18, 18)

    def worst(rows):
        return knowledge(np.concatenate([published, rows]), np.ones(len(rows) + 18)).std.max()

    random = [worst(rows) for rows in sets]
    assert np.mean(np.array(random) < 0.1) >= 0.8
    for seed in range(3):
        pool = told(60, seed)
        chosen = choose_tests(pool, 7, "A", made=published).chosen
        assert worst(pool[list(chosen)].reshape(-1, 18)) < 0.1


def test_chosen_postures_beat_random_ones_and_the_gradient_betters_them():
    study = made(frf_test(step_hz=1.0), next={"count": 3, "candidates": 50, "postures": RANGES})
    found = jaxmb.inspect(study)
    chosen = found.next
    assert chosen is not None
    assert (chosen.candidates, chosen.left_out, len(chosen.tests)) == (50, 0, 3)
    place, test = place_of(study), study.tests[0]
    before = information_of(place, [Candidate(test.probe(), np.asarray(test.q))])[0]
    postures = postures_of(study.next, np.asarray(test.q), study.model.coordinates)
    told = information_of(place, [Candidate(test.probe(), q) for q in postures])
    draw = np.random.default_rng(0)
    random = [criterion_of("A", np.concatenate([before, *told[draw.choice(50, 3, replace=False)]])) for _ in range(100)]
    assert chosen.chosen < min(random)
    # What the gradient gained on the suite's candidates was 10 % and more in all that was tried.
    assert chosen.improved < 0.99 * chosen.chosen
    assert chosen.before > chosen.chosen
    where = [study.model.coordinates.index(name) for name in RANGES]
    low, high = np.radians([[-90.0, 20.0, -130.0], [90.0, 110.0, -20.0]])
    for one in chosen.tests:
        assert (one.q[where] >= low - 1e-12).all()
        assert (one.q[where] <= high + 1e-12).all()


def test_what_is_promised_is_what_a_study_with_the_next_tests_predicts():
    asked = {"count": 2, "candidates": 20, "postures": RANGES, "criterion": "D"}
    found = jaxmb.inspect(made(frf_test(step_hz=1.0), next=asked))
    assert found.next is not None
    names = found.study.model.coordinates
    postures = [dict(zip(names, test.q.tolist(), strict=True)) for test in found.next.tests]
    then = jaxmb.inspect(made(frf_test(step_hz=1.0), *(frf_test(step_hz=1.0, posture=p) for p in postures)))
    for name, p in found.parameters.items():
        # Two Jacobians of condition 1e5, computed in two ways.
        assert p.next_std == pytest.approx(then.parameters[name].relative_std, rel=1e-5)


@pytest.mark.parametrize(("criterion", "at"), [("A", "posture"), ("D", "equilibrium")])
def test_gradient_of_the_criterion(criterion, at):
    """By all coordinates of all tests, against finite differences; and the way it leads is down."""
    free = {"stiffness.*": {"lower": 2e5, "upper": 2e7}, "damping.*": {"lower": 10.0, "upper": 1e4}}
    study = made(frf_test(step_hz=1.0), machine="manipulator-3r", free=free, linearize_at=at)
    place, probe = place_of(study), study.tests[0].probe()
    own = information_of(place, [Candidate(probe, np.asarray(study.tests[0].q))])[0]
    start = [Candidate(probe, np.array(q)) for q in ([0.3, 0.9, -1.2], [0.0, 1.5, -2.0])]
    where, ends = np.array([1, 2]), (np.array([0.5, -2.2]), np.array([1.9, -0.5]))
    value = objective(place, start, own, np.eye(6), criterion, where, ends)
    for x in np.random.default_rng(0).uniform(0.1, 0.9, (3, 4)):
        found = value(x)[1]
        differences = [(value(x + step)[0] - value(x - step)[0]) / 2e-5 for step in 1e-5 * np.eye(4)]
        # Central differences err by the square of the step, times third derivatives of up to a hundred times the slope.
        np.testing.assert_allclose(found, differences, rtol=1e-4, atol=1e-4 * np.abs(found).max())
    better = improved(place, start, own, np.eye(6), criterion, where, ends)

    def told(tests):
        return criterion_of(criterion, np.concatenate([own, *information_of(place, tests)]))

    x = np.concatenate([(c.q[where] - ends[0]) / (ends[1] - ends[0]) for c in better])
    change = told(better) - told(start) if criterion == "D" else np.log(told(better) / told(start))
    first = np.concatenate([(c.q[where] - ends[0]) / (ends[1] - ends[0]) for c in start])
    assert change == pytest.approx(value(x)[0] - value(first)[0], rel=1e-6)
    assert change < 0.0


def test_points_and_bands_are_chosen_from():
    """Lines up to 100 Hz tell more than as many up to 30, and each chosen test says what it is."""
    asked = {
        "postures": [{"z1": 0.0, "z2": "70 deg", "z3": "-100 deg"}, {"z1": "40 deg", "z2": "45 deg", "z3": "-60 deg"}],
        "points": [
            [["tool", "x"], ["tool", "z"]],
            {"outputs": [["tool", "x"], ["tool", "y"]], "inputs": [["tool", "y"]]},
        ],
        "bands_hz": [[1.0, 30.0], [1.0, 100.0]],
        "step_hz": [1.0, 99.0 / 29.0],
        "count": 1,
    }
    found = jaxmb.inspect(made(frf_test(step_hz=1.0), next=asked))
    assert found.next is not None
    assert found.next.candidates == 8
    (test,) = found.next.tests
    assert test.probe.band_hz == pytest.approx((1.0, 100.0))
    assert test.probe.omega.size == 30
    assert found.next.improved == found.next.chosen  # listed postures stay where they are
    assert test.probe.ends in (
        ((("tool", "x"), ("tool", "z")), (("tool", "x"), ("tool", "z"))),
        ((("tool", "x"), ("tool", "y")), (("tool", "y"),)),
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
        ({"postures": {"z2": ["20 deg", "10 deg"]}}, "the range of z2 is 0.349066 to 0.174533, expected it ascending"),
        ({"postures": {"q2": ["20 deg", "30 deg"]}}, "coordinate 'q2' does not exist"),
        ({"postures": [{"z9": 0.0}]}, "coordinate 'z9' does not exist"),
        ({"postures": RANGES, "bands_hz": [[1.0, 30.0]]}, "expected bands_hz and step_hz together or none of them"),
        ({"postures": RANGES, "bands_hz": [[1.0, 30.0]], "step_hz": [1, 2]}, "step_hz has 2 entries for 1 bands"),
        ({"postures": RANGES, "bands_hz": [[30.0, 1.0]], "step_hz": 1.0}, "expected it above 0 and ascending"),
        ({"postures": RANGES, "points": [[["hand", "x"]]]}, "'hand'"),
        ({"postures": RANGES, "like": "other"}, "like: FRF test 'other' does not exist"),
        ({"postures": RANGES, "criterion": "E"}, "criterion: found \"E\", expected 'A' or 'D'"),
        ({"postures": RANGES, "count": 0}, "count: found 0"),
        ({"count": 1}, "postures: missing"),
        ({"postures": RANGES, "candidates": 20000, "points": [[["tool", "x"]]] * 2}, "more than 20000 candidates"),
    ],
)
def test_what_cannot_be_asked_for(asked, message, tmp_path):
    data = {"machine": "kuka-kr90", "test": [frf_test()], "next": asked,
            "free": {"stiffness.*": {"lower": 1e5, "upper": 1e9}}}  # fmt: skip
    with pytest.raises(InputError, match="next") as told:
        jaxmb.make_study(validated(StudyFile, data, "mine.toml"), "mine", tmp_path, "mine.toml")
    assert message in str(told.value)


def test_candidates_need_an_frf_test():
    modes = {"kind": "modes", "posture": PUBLISHED, "frequency_hz": [10.0], "damping_percent": [1.0],
             "frequency_std_hz": 0.02, "damping_std_percent": 0.05}  # fmt: skip
    with pytest.raises(InputError, match="candidates are like an FRF test, and the study has none"):
        made(modes, next={"postures": RANGES})


def test_too_few_tests_are_told():
    """One FRF at one line has two numbers: where two postures could tell four directions, one test is too few."""
    postures = [{"z1": 0.0, "z2": "70 deg", "z3": "-100 deg"}, {"z1": 0.3, "z2": "45 deg", "z3": "-60 deg"}]
    line = frf_test(first_hz=10.0, last_hz=10.0, outputs=[["tool", "x"]])
    found = jaxmb.inspect(made(line, next={"postures": postures[1:] * 2, "count": 1}))
    assert found.next is not None
    assert found.next.directions == 4
    assert "for the 4 of 18 directions of the parameters that they can tell" in found.next_remark
    more = [*postures, {"z1": 0.6, "z2": "30 deg", "z3": "-90 deg"}]
    found = jaxmb.inspect(made(line, next={"postures": more, "count": 1}))
    assert found.next is None
    assert found.next_remark == (
        "no next test could be chosen: 1 tests leave some of 6 parameters unknown, expected more tests"
    )
