"""Tests of several kinds and postures in one fit: residuals against their definitions, known truth recovered."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmb.identify.assess.identify import identify
from jaxmb.identify.assess.profile import cost_profile
from jaxmb.identify.experiments.load_cases import predicted
from jaxmb.identify.experiments.modes_test import predict_modes
from jaxmb.identify.experiments.motion import scene
from jaxmb.identify.fit.problem import alike
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.identify.study.study import make_study
from jaxmb.io.validation import InputError
from jaxmb.machine.file import write_machine
from jaxmb.machine.schema import Machine
from jaxmb.response.modal import mac, modes

MACHINE = Machine.model_validate({
    "name": "arm",
    "body": [
        {"name": "upper", "joint": [{"name": "a", "axis": [0.0, 1.0, 0.0], "stiffness": 5e4, "damping": 25.0}],
         "mass": 20.0, "center_of_mass": [0.4, 0.05, 0.1], "inertia_products": {"xx": 0.4, "yy": 1.6, "zz": 1.5}},
        {"name": "fore", "parent": "upper", "origin": {"xyz": [0.8, 0.0, 0.1]},
         "joint": [{"name": "b", "axis": [0.0, 1.0, 0.0], "stiffness": 9e3, "damping": 4.0}],
         "mass": 8.0, "center_of_mass": [0.3, 0.1, 0.0], "inertia_products": {"xx": 0.05, "yy": 0.3, "zz": 0.3}},
    ],
    "frame": [{"name": "tool", "body": "fore", "origin": {"xyz": [0.7, 0.1, 0.05]}},
              {"name": "elbow", "body": "fore"}],
})  # fmt: skip
TRUTH = {"stiffness.a": 5e4, "stiffness.b": 9e3, "damping.a": 25.0, "damping.b": 4.0}
FREE = {"stiffness.*": {"lower": 1e3, "upper": 1e6}, "damping.*": {"lower": 0.1, "upper": 1e3}}
OUTPUTS = [["tool", "x"], ["tool", "z"], ["elbow", "x"], ["elbow", "z"]]


def frf(b=0.5, noise=0.0, seed=0, **changes):
    lines = {"first_hz": 1.0, "last_hz": 25.0, "step_hz": 0.25}
    simulate = {"lines": lines, "noise_log_std": noise, "noise_seed": seed}
    points = [["tool", "x"], ["tool", "z"]]
    return {"kind": "frf", "posture": {"a": 0.2, "b": b}, "simulate": simulate, "outputs": points} | changes


def shapes(b=0.5, noise=False, **changes):
    return {
        "kind": "modes", "posture": {"a": 0.2, "b": b}, "simulate": {"below_hz": 100.0, "noise": noise},
        "outputs": OUTPUTS, "frequency_std_hz": 0.02, "damping_std_percent": 0.05, "shape_std": 0.02,
    } | changes  # fmt: skip


def loads(noise=0.01, count=6, **changes):
    how = {
        "tests": count, "zones": {"all": {"a": [-1.0, 1.0], "b": [-1.0, 1.0]}}, "force_n": [20.0, 40.0],
        "directions": [[0.0, 0.0, -1.0], [1.0, 0.0, 0.0]], "noise_seed": 2,
    }  # fmt: skip
    return {"kind": "deflection", "simulate": how, "instruments": {"tracker_mm": noise}} | changes


def study_of(folder, *tests, free=FREE, **settings):
    write_machine(MACHINE, folder / "arm.toml")
    file = StudyFile.model_validate({"machine": "arm.toml", "test": list(tests), "free": free} | settings)
    return make_study(file, "arm", folder)


def test_postures_together_are_postures_one_by_one(tmp_path):
    """Tests of one form run as one program; the residuals are those of each alone, in the order of the study."""
    study = study_of(tmp_path, frf(), shapes(), frf(b=0.9), loads(), frf(b=-0.4, noise_log_std=0.03), shapes(b=1.1))
    problem = study.problem
    assert alike(problem.tests, problem.scenes) == [[0, 2, 3], [1, 4]]
    u = jnp.log(jnp.array([4e4, 1e4, 30.0, 3.0]))
    model = problem.free.apply(problem.model, problem.free.values(u))
    alone = [np.asarray(test.residual(scene(test, model))) for test in problem.tests]
    alone.append(np.asarray(problem.loads.residual(model)))
    together = np.asarray(problem.residual(u)) / float(problem.noise_unit)
    # sums of a few dozen products in another order
    np.testing.assert_allclose(together, np.concatenate(alone), rtol=1e-9, atol=1e-9)
    assert problem.row_weights().size == together.size


def test_loads_are_those_of_the_deflection_tests(tmp_path):
    study = study_of(tmp_path, loads(rotation_weight=4.0))
    (group,) = study.deflections
    model = study.free.apply(study.model, jnp.array([4e4, 1e4, 30.0, 3.0]))
    moved = np.concatenate([x.ravel() for x in predicted(model, group.tests)])
    displacement = np.concatenate([test.displacement.ravel() for test in group.tests])
    std = np.concatenate([test.std.ravel() for test in group.tests])
    weight = np.tile(np.repeat([1.0, 4.0], 3), 6)
    found = np.asarray(study.problem.loads.residual(model))
    np.testing.assert_allclose(found, np.sqrt(weight) * (moved - displacement) / std, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(study.problem.loads.weight, weight)


def test_loads_with_springs_between_frames(tmp_path):
    """Their stiffness depends on the posture, and so does the compliance."""
    stay = {"name": "stay", "frame_a": "ground", "frame_b": "elbow", "direction": [1.0, 0.0, 0.0],
            "type": "translation", "stiffness": 2e4}  # fmt: skip
    machine = Machine.model_validate(MACHINE.model_dump() | {"spring": [stay]})
    write_machine(machine, tmp_path / "arm.toml")
    file = {"machine": "arm.toml", "test": [loads()], "free": {"stiffness.*": FREE["stiffness.*"]}}
    study = make_study(StudyFile.model_validate(file), "arm", tmp_path)
    assert not study.is_linear
    moved = np.concatenate([x.ravel() for x in predicted(study.model, study.deflections[0].tests)])
    np.testing.assert_allclose(study.problem.loads.predict(study.model), moved, rtol=1e-9, atol=1e-15)


def test_a_weak_prior_leaves_the_linear_fit(tmp_path):
    """Deflections alone are fitted in one linear step; with a prior that knows nothing the search finds the same."""
    free = {"stiffness.*": FREE["stiffness.*"]}
    linear, general = study_of(tmp_path, loads(), free=free), study_of(tmp_path, loads(), free=free, prior={"*": 1e4})
    assert linear.is_linear
    assert not general.is_linear
    a, b = identify(linear), identify(general)
    for name in a.parameters:
        assert b.parameters[name].value == pytest.approx(a.parameters[name].value, rel=1e-6)  # the prior's pull
        assert b.parameters[name].std_log == pytest.approx(a.parameters[name].std_log, rel=1e-6)
    assert b.metrics["explained_percent"] == pytest.approx(a.metrics["explained_percent"], rel=1e-6)


def test_what_a_shape_leaves_is_one_minus_mac(tmp_path):
    """The squared residual of a shape is |a|^2 (1 - MAC) over its variance, whatever the scale and phase of either."""
    study = study_of(tmp_path, shapes())
    (test,) = study.tests
    model = study.free.apply(study.model, jnp.array([2e4, 2e4, 30.0, 3.0]))
    seen = scene(test, model)
    found = predict_modes(test, seen)
    predicted_shapes = seen.output_rows @ modes(seen.tangent).shape
    measured = np.asarray(test.shape)
    likeness = np.diag(np.asarray(mac(jnp.asarray(measured.T), predicted_shapes)))
    np.testing.assert_allclose(found.mac, likeness, rtol=1e-9)
    left = np.sum(np.asarray(found.errors)[:, 3:] ** 2, axis=1)
    expected = np.sum(np.abs(measured) ** 2, axis=1) * (1.0 - likeness) / 0.02**2
    np.testing.assert_allclose(left, expected, rtol=1e-6)
    turned = dataclasses.replace(test, shape=test.shape * jnp.array([[1j], [-1.0]]))
    np.testing.assert_allclose(predict_modes(turned, seen).mac, likeness, rtol=1e-9)


def test_modes_are_paired_by_shape(tmp_path):
    """Where two measured frequencies are exchanged and hardly known, shapes tell which mode is which."""
    study = study_of(tmp_path, shapes(frequency_std_hz=50.0, damping_std_percent=50.0))
    (test,) = study.tests
    seen = scene(test, study.model)
    exchanged = dataclasses.replace(test, frequency_hz=test.frequency_hz[::-1])
    np.testing.assert_allclose(predict_modes(exchanged, seen).frequency_hz, test.frequency_hz, rtol=1e-9)
    without = dataclasses.replace(exchanged, outputs=(), inputs=(), shape=jnp.zeros((2, 0)))
    np.testing.assert_allclose(predict_modes(without, seen).frequency_hz, test.frequency_hz[::-1], rtol=1e-9)


def test_shapes_from_numbers(tmp_path):
    given = {"frequency_hz": [4.0, 14.0], "damping_percent": [1.0, 1.0], "simulate": None}  # none beside numbers
    test = shapes(shapes=[[1.0, [0.5, 0.1], -2.0, 0.0], [1.0, 0.0, 0.0, 0.0]], **given)
    (made,) = study_of(tmp_path, test).tests
    np.testing.assert_allclose(made.shape[0], [-0.5, -0.25 - 0.05j, 1.0, 0.0])
    for changes, message in (
        ({"shapes": [[1.0, 0.0]]}, "shape 1 has 2 entries for 4 outputs"),
        ({"shapes": [[1.0] * 4]}, "shapes has 1 entries for 2 frequencies"),
        ({"shapes": [[1.0] * 4, [0.0] * 4]}, "shape 2 is zero at all outputs"),
        ({"shapes": None}, "shapes and outputs belong together"),
        ({"shapes": None, "outputs": [], "frequency_hz": None}, "expected frequency_hz and damping_percent"),
    ):
        with pytest.raises(ValueError, match=message):
            study_of(tmp_path, test | changes)
    with pytest.raises(InputError, match=r"frequency_std_hz has 3 entries for 2 modes"):
        study_of(tmp_path, shapes(frequency_std_hz=[0.1, 0.1, 0.1]))


def test_known_truth_comes_back_from_tests_of_all_kinds(tmp_path):
    """Noise-free FRFs, modes with shapes and deflections of one machine: to 1e-6, whatever the weights between them."""
    quiet = loads()
    del quiet["instruments"]
    result = identify(study_of(tmp_path, frf(), shapes(b=0.9), quiet))
    assert result.converged
    assert result.study.truth["stiffness.a"] == TRUTH["stiffness.a"]
    for name, true in TRUTH.items():
        assert result.parameters[name].value == pytest.approx(true, rel=1e-6)


def test_each_kind_adds_what_it_knows(tmp_path):
    """Information adds up: the inverse covariance of all tests is the sum of those of each alone."""
    parts = [(frf(),), (shapes(b=0.9),), (loads(),)]
    whole = study_of(tmp_path, *(test for part in parts for test in part))
    u = np.log(list(TRUTH.values()))

    def information(study):
        from jaxmb.identify.fit.loop import final_state

        _, jacobian, _ = final_state(study.problem, jnp.asarray(u))
        return np.asarray(jacobian).T @ np.asarray(jacobian)

    alone = sum(information(study_of(tmp_path, *part)) for part in parts)
    np.testing.assert_allclose(information(whole), alone, rtol=1e-8, atol=1e-6 * np.abs(alone).max())


def test_what_is_held_out_is_predicted_and_not_fitted(tmp_path):
    """Tests of the role "check" and held-out lines move nothing; by an exact fit they are predicted exactly."""
    check = frf(b=-0.5, role="check", name="other")
    alone = study_of(tmp_path, frf())
    study = study_of(tmp_path, frf(check_every=4), check, shapes(b=1.2, role="check", name="shapes"))
    assert [c.test.name for c in study.checks] == ["test 1", "other", "shapes"]
    fitted, held_out = study.tests[0].omega, study.checks[0].test.omega
    np.testing.assert_array_equal(np.sort(np.concatenate([fitted, held_out])), alone.tests[0].omega)
    assert held_out.size == alone.tests[0].omega.size // 4
    told = identify(study).as_json()["metrics"]["holdout"]
    assert told["frac"] == pytest.approx(1.0, abs=1e-9)
    assert told["log_error"] < 1e-6
    assert told["frequency_error_hz"] < 1e-6
    assert told["tests"]["shapes"] == {
        "frac": None, "log_error": None, "frequency_error_hz": told["tests"]["shapes"]["frequency_error_hz"], "modes": 2
    }  # fmt: skip
    with pytest.raises(ValueError, match="check_every holds out lines of a test that is fitted"):
        study_of(tmp_path, frf(check_every=4, role="check"))
    with pytest.raises(InputError, match="check_every is 200, but there are only 97 lines"):
        study_of(tmp_path, frf(check_every=200))


def test_a_wrong_machine_is_seen_in_what_was_held_out(tmp_path):
    """A check at another posture of another machine: its frequencies are off by what the machines differ."""
    other = frf(b=-0.5, role="check", name="other")
    other["simulate"] = other["simulate"] | {"parameters": {"stiffness.a": 6e4}}
    result = identify(study_of(tmp_path, frf(), other))
    assert result.metrics["fit"]["log_error"] < 1e-6
    assert result.metrics["holdout"]["log_error"] > 0.05
    check = result.study.checks[0]
    found = modes(scene(check.test, result.model).tangent).damped_frequency_hz
    true = check.measured.truth.modes.damped_frequency_hz
    below = np.asarray(true) <= 25.0
    expected = float(np.mean(np.abs(found - true)[below]))
    assert result.metrics["holdout"]["frequency_error_hz"] == pytest.approx(expected, rel=1e-9)


def test_what_only_a_bound_holds_back_is_not_known(tmp_path):
    """The truth lies beyond a bound: the Jacobian there knows the value to 1e-4, and the data that it is another."""
    free = FREE | {"stiffness.a": {"lower": 1e3, "upper": 4e4}}
    result = identify(study_of(tmp_path, frf(noise=0.01), free=free))
    found = result.parameters["stiffness.a"]
    assert found.value == pytest.approx(4e4)
    assert found.identifiable == "no"
    assert result.as_json()["parameters"]["stiffness.a"]["std"] is None
    assert any("stiffness.a is held back by its upper bound" in remark for remark in result.remarks)
    # a truth on the bound itself is a minimum there, and known
    free = FREE | {"stiffness.a": {"lower": 1e3, "upper": 5e4}}
    found = identify(study_of(tmp_path, frf(), free=free)).parameters["stiffness.a"]
    assert found.value == pytest.approx(5e4)
    assert found.identifiable == "yes"


def test_one_noise_seed_gives_every_test_its_own_noise(tmp_path):
    write_machine(MACHINE, tmp_path / "arm.toml")
    tests = [frf(noise=0.01), frf(noise=0.01)]  # the same posture, the same seed of its own
    file = StudyFile.model_validate({"machine": "arm.toml", "test": tests, "free": FREE})
    first, second = make_study(file, "arm", tmp_path, noise_seed=3).tests
    assert not np.allclose(first.measured, second.measured, rtol=1e-3)
    np.testing.assert_array_equal(make_study(file, "arm", tmp_path, noise_seed=3).tests[1].measured, second.measured)


def test_noise_to_be_estimated_counts_as_it_is_found(tmp_path):
    """FRFs of 30 % noise beside precise modes: called "estimate", they count as if it had been stated."""
    noisy = frf(noise=0.3, seed=5)
    stated = identify(study_of(tmp_path, noisy | {"noise_log_std": 0.3}, shapes(noise=True)))
    found = identify(study_of(tmp_path, noisy | {"noise_log_std": "estimate"}, shapes(noise=True)))
    assert found.converged
    assert found.metrics["noise_log_std"]["test 1"] == pytest.approx(0.3, rel=0.1)  # of 97 lines, twice four FRFs
    for name, p in stated.parameters.items():
        # the estimate of the noise is some per cent off, and so is what the FRFs count
        assert abs(np.log(found.parameters[name].value / p.value)) < 0.2 * p.std_log
        assert found.parameters[name].std_log == pytest.approx(p.std_log, rel=0.1)


def test_deflections_that_nothing_is_known_of_have_no_deviation(tmp_path):
    """The wrist's stiffness is not in a load at the elbow: a check at the tool cannot be predicted."""
    fit = loads(noise=0.001) | {"frame": "elbow"}
    check = loads(noise=0.001, role="check", name="check")
    result = identify(study_of(tmp_path, fit, check, free={"stiffness.*": FREE["stiffness.*"]}, prior={"*": 1e6}))
    rows = result.metrics["deflections"]
    assert all(np.isfinite(row["predicted_std_mm"]).all() for row in rows if row["role"] == "fit")
    linear = identify(study_of(tmp_path, fit, check, free={"stiffness.*": FREE["stiffness.*"]}))
    rows = linear.metrics["deflections"]
    assert all(np.isfinite(row["predicted_std_mm"]).all() for row in rows if row["role"] == "fit")
    assert not np.isfinite([row["predicted_std_mm"][0] for row in rows if row["role"] == "check"]).any()


def test_what_is_held_out_must_count(tmp_path):
    some = {"bands": [{"band_hz": [1.25, 1.25], "weight": 1.0}], "elsewhere": 0.0}
    with pytest.raises(InputError, match="check_every is 2: no line with a weight is left to fit"):
        study_of(tmp_path, frf(check_every=2, weights=some))
    some = {"bands": [{"band_hz": [1.0, 1.0], "weight": 1.0}], "elsewhere": 0.0}
    with pytest.raises(InputError, match="check_every is 2: no line with a weight is held out"):
        study_of(tmp_path, frf(check_every=2, weights=some))


def test_intervals_of_what_cannot_be_negative_end_at_zero(tmp_path):
    """A mass that modes hardly tell, on a linear scale: value minus 1.96 standard deviations is below zero."""
    free = FREE | {"mass.upper": {"lower": 1.0, "upper": 100.0}}
    test = shapes(noise=False, frequency_std_hz=3.0, damping_std_percent=30.0, shape_std=0.5)
    result = identify(study_of(tmp_path, test, free=free))
    p = result.parameters["mass.upper"]
    assert p.value - 1.96 * p.std < 0.0
    assert result.as_json()["parameters"]["mass.upper"]["interval_95"][0] == 0.0


def test_an_ambiguous_parameter_has_the_profile_of_its_cost(tmp_path):
    """The rise of a profile is that of the cost, also where other fits as good have widened the deviation."""
    result = identify(study_of(tmp_path, frf(noise=0.05, seed=4, noise_log_std=0.05)))
    plain = cost_profile(result, "stiffness.b", points=5)
    wide = {name: p._replace(std_log=3.0) for name, p in result.parameters.items()}
    doubted = cost_profile(dataclasses.replace(result, parameters=wide), "stiffness.b", points=41)
    at = np.interp(np.log(plain.values[1]), np.log(doubted.values), np.sqrt(np.maximum(doubted.rise, 0.0)))
    assert doubted.values[0] < plain.values[0]
    assert at**2 == pytest.approx(plain.rise[1], rel=0.3, abs=1.0)  # the points are wide apart there


def test_a_prior_for_what_the_data_cannot_fix_alone(tmp_path):
    """Deflections tell nothing of damping: its prior stays, and the stiffnesses are what they are without any."""
    quiet = {
        "kind": "modes", "frequency_hz": [4.0], "damping_percent": [1.5], "frequency_std_hz": 5.0,
        "damping_std_percent": 90.0,
    }  # fmt: skip
    free = {"stiffness.*": FREE["stiffness.*"], "damping.a": FREE["damping.*"] | {"initial": 20.0}}
    without = identify(study_of(tmp_path, loads(), quiet, free=free))
    result = identify(study_of(tmp_path, loads(), quiet, free=free, prior={"damping.a": 0.3}))
    assert result.metrics["prior_log_std"] == {"damping.a": 0.3}
    damping = result.parameters["damping.a"]
    assert damping.value == pytest.approx(20.0, rel=0.02)
    assert damping.std_log == pytest.approx(0.3, rel=0.05)
    assert damping.identifiable == "no"
    for name in ("stiffness.a", "stiffness.b"):
        assert result.parameters[name].std_log == pytest.approx(without.parameters[name].std_log, rel=1e-3)
        assert result.parameters[name].identifiable == "yes"
    assert "left to the prior: damping.a" in result.remarks
