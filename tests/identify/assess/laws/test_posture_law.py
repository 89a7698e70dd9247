"""Laws of posture, load and amplitude: residuals against those of each test, known laws found, no false ones."""

import dataclasses
import functools
import importlib

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmb.identify.assess.identify import identify
from jaxmb.identify.assess.laws import law_problem
from jaxmb.identify.assess.laws.law_choice import chosen_laws, unconverged_laws
from jaxmb.identify.assess.laws.law_problem import covariates, model_with_laws, terms_of, values_with_laws
from jaxmb.identify.parameters.model_parameters import parameters
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.identify.study.law_terms import Term, covariate
from jaxmb.identify.study.study import make_study
from jaxmb.io.files import plain
from jaxmb.io.validation import InputError
from jaxmb.machine.file import write_machine
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.postures import build_model, posture
from tests.identify.arm import (
    BRIEF,
    FREE,
    LAWS,
    MACHINE,
    estimate_at,
    frf,
    laboratory,
    loads,
    shapes,
    study_of,
    true_factor,
)  # fmt: skip
from tests.identify.derivatives import residual_alone


def no_search(*_):
    raise AssertionError("laws explain the misfit: no other cause is searched")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Returns the result for a law of b, of the amplitude, or none; each is identified once."""
    folder = tmp_path_factory.mktemp("laws")

    @functools.cache
    def result(law):
        with pytest.MonkeyPatch.context() as patch:
            if law is not None:
                patch.setattr(importlib.import_module("jaxmb.identify.assess.identify"), "model_errors", no_search)
            return identify(study_of(folder, *laboratory(law), laws=LAWS, **BRIEF))

    return result


@pytest.mark.parametrize("at", ["posture", "equilibrium"])
def test_each_test_sees_its_own_values(tmp_path, at):
    """Residuals with laws are those of each test at the values that the laws give it; a held-out test has none."""
    tests = [*laboratory(None)[:3], shapes(b=0.9, amplitude=30.0)]
    study = study_of(tmp_path, *tests, laws=LAWS, linearize_at=at)
    terms = [
        t for t in terms_of(study) if (t.parameter, t.text) in (("stiffness.b", "sin b"), ("damping.a", "ln amplitude"))
    ]
    u, c = np.log([4e4, 1e4, 30.0, 3.0]), np.array([0.0, 0.2, -0.3])[1:]
    keep = np.array([1.0, 1.0, 0.0, 1.0])
    x = jnp.concatenate([u, c, jnp.array([0.5])])  # the third term is none
    residual = np.asarray(eqx.filter_jit(lambda p: p.residual(x))(law_problem.law_problem(study, terms, 3, keep)))
    residual = residual / float(study.problem.noise_unit)
    first = 0
    for k, test in enumerate(study.tests):
        change = {t.parameter: np.exp(x * t.value(covariates(study, t)[k])) for t, x in zip(terms, c, strict=True)}
        values = np.exp(u) * [change.get(name, 1.0) for name in study.free.names]
        alone = residual_alone(test, study.free.apply(study.model, jnp.asarray(values)))
        # sums of a few dozen products in another order
        np.testing.assert_allclose(residual[first : first + test.rows], keep[k] * alone, rtol=1e-7, atol=1e-7)
        first += test.rows
    assert residual.size == first


def test_a_law_of_a_coordinate_is_found(found):
    laws = found("b").metrics["laws"]
    assert [(line["parameter"], line["term"]) for line in laws["chosen"]] == [("stiffness.b", "sin b")]
    (line,) = laws["chosen"]
    assert abs(line["coefficient"] - 0.3) < 4.0 * line["std"]
    assert line["std"] < 0.003
    assert laws["holdout"]["without"] > 3.0
    assert laws["holdout"]["with"] == pytest.approx(
        1.0, abs=0.08
    )  # of 2352 rows, and 5 numbers from five sixths of them
    assert laws["one_model"]["does"]
    assert any(line.startswith("stiffness.b follows exp(0.") for line in found("b").remarks)
    for row in laws["values"]["stiffness.b"]:
        assert abs(np.log(row["law"] / row["truth"])) < 4.0 * row["law_std_log"]
        assert abs(np.log(row["own"] / row["truth"])) < 4.0 * row["own_std_log"]


def test_a_law_of_the_amplitude_is_found(found):
    laws = found("amplitude").metrics["laws"]
    assert [(line["parameter"], line["term"]) for line in laws["chosen"]] == [("stiffness.b", "ln amplitude")]
    (line,) = laws["chosen"]
    assert abs(line["coefficient"] + 0.1) < 4.0 * line["std"]
    assert laws["holdout"]["with"] == pytest.approx(1.0, abs=0.08)


def test_no_law_is_found_where_there_is_none(found):
    result = found(None)
    laws = result.metrics["laws"]
    assert result.metrics["one_model"]["does"]
    assert laws["chosen"] == []
    assert laws["holdout"]["with"] == laws["holdout"]["without"] == pytest.approx(1.0, abs=0.08)
    assert any(line.startswith("no law of b, amplitude predicts") for line in result.remarks)
    for name, value in laws["centre"].items():
        assert value == pytest.approx(result.parameters[name].value, rel=1e-4)  # two ways to the same minimum


def test_the_machine_at_a_posture_has_the_laws_applied(found):
    """At a posture and an amplitude that were not measured the parameters are true to a few standard deviations."""
    for law, (b, amplitude) in (("b", (0.1, None)), ("amplitude", (0.1, 30.0))):
        result = found(law)
        study, laws = result.study, result.metrics["laws"]
        model = model_with_laws(study, laws, posture(study.model, {"b": b}), amplitude)
        assert parameters(model)["stiffness.b"] == pytest.approx(9e3 * true_factor(law, b, amplitude), rel=0.005)
        assert parameters(model)["damping.b"] == laws["centre"]["damping.b"]
    with pytest.raises(ValueError, match="no amplitude is given, expected one"):
        values_with_laws(study, laws, np.zeros(2))


def test_damping_from_modes_follows_the_amplitude(tmp_path, monkeypatch):
    """Modal tests at four levels: the damping of a joint grows with the square root of the amplitude."""
    tests = []
    for k, (amplitude, b) in enumerate([(10.0, 0.5), (20.0, -0.3), (40.0, 1.0), (80.0, 0.2), (10.0, -0.8)]):
        test = shapes(b=b, noise=True, amplitude=amplitude)
        true = {"damping.b": 4.0 * (amplitude / 20.0) ** 0.5}
        test["simulate"] = test["simulate"] | {"parameters": true, "noise_seed": k}
        tests.append(test)
    laws = {"parameters": ["stiffness.*", "damping.*"], "by": ["amplitude"], "most": 1}
    start = np.log([5e4, 9e3, 25.0, 5.0])
    estimate = estimate_at(study_of(tmp_path, *tests, laws=laws), start)
    found = chosen_laws(estimate)
    told = plain(found)
    assert [(line["parameter"], line["term"]) for line in told["chosen"]] == [("damping.b", "ln amplitude")]
    assert abs(told["chosen"][0]["coefficient"] - 0.5) < 4.0 * told["chosen"][0]["std"]
    assert "unsettled" not in told
    assert unconverged_laws(found) == []
    # and where the fits with laws end before
    fit = law_problem._fit
    monkeypatch.setattr(law_problem, "_fit", lambda *given: (*fit(*given)[:2], False))
    (doubt,) = unconverged_laws(chosen_laws(estimate))
    assert doubt.startswith("laws: some of the fits by which they were chosen did not converge: ")


def test_load_is_the_torque_of_gravity_on_the_joint():
    """m g times the horizontal distance of the centre of mass from the joint, in closed form."""
    model = build_model(MACHINE)
    for a, b in ((0.0, 0.0), (0.4, -1.1)):
        # about y, forward and down: x of the centre of the fore arm from its joint
        lever = 0.3 * np.cos(a + b)
        q = np.asarray(posture(model, {"a": a, "b": b}))
        assert covariate(model, "load", "damping.b", q, None) == pytest.approx(8.0 * 9.81 * abs(lever), rel=1e-9)


def test_terms_are_centred_and_those_that_do_not_change_left_out(tmp_path):
    slider = {"name": "s", "type": "prismatic", "axis": [1.0, 0.0, 0.0], "stiffness": 1e5, "damping": 10.0}
    hinge = {"name": "a", "axis": [0.0, 1.0, 0.0], "stiffness": 5e3, "damping": 1.0}
    slide = Machine.model_validate({
        "name": "slide",
        "body": [{"name": "cart", "joint": [slider], "mass": 3.0},
                 {"name": "arm", "parent": "cart", "joint": [hinge], "mass": 2.0, "center_of_mass": [0.3, 0.0, 0.0],
                  "inertia_products": {"xx": 0.1, "yy": 0.1, "zz": 0.1}}],
        "frame": [{"name": "tool", "body": "arm", "origin": {"xyz": [0.5, 0.0, 0.0]}}],
    })  # fmt: skip
    write_machine(slide, tmp_path / "slide.toml")
    tests = [frf() | {"posture": {"s": s, "a": 0.3}} for s in (0.0, 0.2, 0.4)]
    laws = {"parameters": ["stiffness.a"], "by": ["s", "a", "load"]}
    file = StudyFile.model_validate({"machine": "slide.toml", "test": tests, "free": FREE, "laws": laws})
    (term,) = terms_of(make_study(file, "slide", tmp_path))
    assert dataclasses.replace(term, mean=0.0, scale=0.0) == Term("stiffness.a", "s", "linear", 0.0, 0.0)
    np.testing.assert_allclose(term.value(np.array([0.0, 0.2, 0.4])), [-0.5, 0.0, 0.5], atol=1e-12)


def test_what_cannot_be_is_said(tmp_path):
    three = laboratory(None)[:3]
    plain = [{k: v for k, v in test.items() if k != "amplitude"} for test in three]
    for tests, laws, message in (
        (three[:2], LAWS, r"\[laws\]: there are 2 tests to fit, expected at least 3: each is held out once"),
        (three, LAWS | {"parameters": ["mass.*"]}, r"parameters: 'mass\.\*' is not among the free parameters"),
        (three, LAWS | {"by": ["c"]}, "by 'c' does not exist; expected one of: a, b, amplitude, load"),
        (three, LAWS | {"by": ["a"]}, "by: a: the same in all tests, expected something that changes"),
        (plain, LAWS, "by 'amplitude': test 'test 1' has no amplitude, expected one"),
        (three, LAWS | {"by": ["b", "b"]}, "names 'b' twice"),
    ):
        with pytest.raises(ValueError, match=message):
            study_of(tmp_path, *tests, laws=laws)
    free = FREE | {"mass.fore": {"lower": 1.0, "upper": 20.0}}
    with pytest.raises(InputError, match="by 'load': none of the parameters is of a joint"):
        study_of(tmp_path, *three, free=free, laws={"parameters": ["mass.fore"], "by": ["load"]})
    with pytest.raises(NotImplementedError, match="together with test 4, which was made at several postures"):
        study_of(tmp_path, *three, loads(), laws=LAWS)
