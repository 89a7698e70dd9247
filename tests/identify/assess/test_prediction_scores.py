"""What was held out is predicted and not fitted, and scored by what each kind of test can tell."""

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.assess.identify import identify
from jaxmb.identify.assess.metrics import prediction_scores
from jaxmb.io.files import plain
from jaxmb.io.validation import InputError
from jaxmb.report.result_sections import data_sentences
from jaxmb.response.modal import modes
from tests.identify.arm import BRIEF, frf, loads, shapes, study_of


def test_what_is_held_out_is_predicted_and_not_fitted(tmp_path):
    """Tests of the role "check" and held-out lines move nothing; by an exact fit they are predicted exactly."""
    check = frf(b=-0.5, role="check", name="other")
    every = frf(check_every=4)
    every["simulate"] = every["simulate"] | {"lines": {"first_hz": 1.0, "last_hz": 33.0, "step_hz": 0.25}}
    alone = study_of(tmp_path, {key: value for key, value in every.items() if key != "check_every"})
    study = study_of(tmp_path, every, check, shapes(b=1.2, role="check", name="shapes"))
    assert [c.test.name for c in study.checks] == ["test 1", "other", "shapes"]
    fitted, held_out = study.tests[0].omega, study.checks[0].test.omega
    np.testing.assert_array_equal(np.sort(np.concatenate([fitted, held_out])), alone.tests[0].omega)
    assert held_out.size == alone.tests[0].omega.size // 4
    told = identify(study).as_json()["metrics"]["holdout"]
    assert told["frac"] == pytest.approx(1.0, abs=1e-9)
    assert told["log_error"] < 1e-6
    assert told["frequency_error_hz"] < 1e-6
    assert told["tests"]["shapes"] == {
        "frac": None, "log_error": None, "frequency_error_hz": told["tests"]["shapes"]["frequency_error_hz"],
        "explained_percent": None, "modes": 2,
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
    found = modes(check.test.view(result.model).tangent).damped_frequency_hz
    true = check.truth.modes.damped_frequency_hz
    below = np.asarray(true) <= 25.0
    expected = float(np.mean(np.abs(found - true)[below]))
    assert result.metrics["holdout"]["frequency_error_hz"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("b", "has_doubt"), [(9e3, False), (8.1e3, True)])
def test_what_is_held_out_is_compared_with_noise_and_parameters(tmp_path, b, has_doubt):
    """A machine softer by a tenth moves 1.1 times as far, by 1 mm with noise of 0.02 mm: 90 % is explained."""
    other = loads(noise=0.02, name="other", role="check")
    other["simulate"] = other["simulate"] | {"parameters": {"stiffness.b": b}, "noise_seed": 7}
    free = {"stiffness.*": {"lower": 1e3, "upper": 1e6}}
    doubts = identify(study_of(tmp_path, loads(noise=0.02, count=12), other, free=free)).doubts
    assert any("'other', held out: errors of the prediction" in doubt for doubt in doubts) == has_doubt


def test_what_is_held_out_must_count(tmp_path):
    some = {"bands": [{"band_hz": [1.25, 1.25], "weight": 1.0}], "elsewhere": 0.0}
    with pytest.raises(InputError, match="check_every is 2: no line with a weight is left to fit"):
        study_of(tmp_path, frf(check_every=2, weights=some))
    some = {"bands": [{"band_hz": [1.0, 1.0], "weight": 1.0}], "elsewhere": 0.0}
    with pytest.raises(InputError, match="check_every is 2: no line with a weight is held out"):
        study_of(tmp_path, frf(check_every=2, weights=some))


def test_deflections_count_by_what_is_explained_of_them(tmp_path):
    """Beside FRFs too: a machine softer by a tenth moves 1.1 times as far, and the stiff one explains 1 / 1.1 of it.

    That is so without gravity, whose stiffness stays what it is. Of several tests the mean is told, and what fitted and
    held-out tests have is told apart.
    """
    exact = loads(name="exact")
    soft = loads(name="soft", role="check")
    for test in (exact, soft):
        del test["instruments"]
    soft["simulate"] = soft["simulate"] | {"parameters": {"stiffness.a": 5e4 / 1.1, "stiffness.b": 9e3 / 1.1}}
    other = frf(b=-0.5, role="check", name="other")
    study = study_of(tmp_path, frf(), exact, soft, other, gravity=[0.0, 0.0, 0.0])

    def of(entries):
        return prediction_scores(entries, [entry.test.view(study.model) for entry in entries])

    told = {"fit": plain(of(study.fitted)), "holdout": plain(of(study.checks))}
    assert told["fit"]["explained_percent"] == pytest.approx(100.0)
    assert told["fit"]["tests"]["exact"] == {
        "frac": None, "log_error": None, "frequency_error_hz": None, "explained_percent": pytest.approx(100.0),
        "modes": 0,
    }  # fmt: skip
    assert told["fit"]["tests"]["test 1"]["explained_percent"] is None
    assert told["holdout"]["tests"]["soft"]["explained_percent"] == pytest.approx(100.0 / 1.1)
    assert told["holdout"]["explained_percent"] == pytest.approx(100.0 / 1.1)
    assert told["holdout"]["log_error"] < 1e-9
    both = of([entry for entry in study.entries if entry.kind == "deflection"])
    assert both.explained_percent == pytest.approx((100.0 + 100.0 / 1.1) / 2.0)


def test_a_result_tells_what_deflections_in_a_fit_of_several_kinds_explain(tmp_path):
    """In `metrics.fit` and `metrics.holdout` of a study that a search fits."""
    check = loads(name="check", role="check", noise=0.02)
    result = identify(study_of(tmp_path, frf(noise=0.3, seed=5, noise_log_std=0.3), loads(), check, **BRIEF))
    model = result.model
    for role, name in (("fit", "test 2"), ("holdout", "check")):
        entry = next(entry for entry in result.study.entries if entry.name == name)
        moved = np.asarray(entry.test.predict(entry.test.view(model))).reshape(-1, 6)[:, :3]
        measured = np.asarray(entry.test.displacement).reshape(-1, 6)[:, :3]
        explained = 100.0 * (1.0 - np.linalg.norm(measured - moved) / np.linalg.norm(measured))
        assert result.metrics[role]["tests"][name]["explained_percent"] == pytest.approx(explained, rel=1e-9)
        assert result.metrics[role]["explained_percent"] == pytest.approx(explained, rel=1e-9)
        assert explained > 90.0


@pytest.mark.parametrize(("factor", "status"), [(1.0, "converged"), (1.6, "data not followed")])
def test_held_out_modes_decide_the_status(tmp_path, factor, status):
    """Natural frequencies 20 % off are those of another machine or posture."""
    check = shapes(b=1.2, role="check", name="check")
    check["simulate"] = check["simulate"] | {"parameters": {"stiffness.a": 5e4 * factor, "stiffness.b": 9e3 * factor}}
    result = identify(study_of(tmp_path, shapes(noise=True), check, **BRIEF))
    assert result.status.startswith(status)
    assert all(p.identifiable == "yes" for p in result.parameters.values())
    assert data_sentences(result)[0].startswith("followed (held-out tests are NOT), " if factor > 1.0 else "followed, ")
    texts = [text for text in result.doubts if "held out" in text]
    assert ["RMS error of the natural frequencies 21 %" in text for text in texts] == [True] * (factor > 1.0)


def test_noise_and_held_out_lines_of_one_test(tmp_path):
    """The noise of a single test is estimated too, and J_Q of its held-out lines is reported, by hand."""
    result = identify(study_of(tmp_path, frf(noise=0.02, noise_log_std="estimate", check_every=4), **BRIEF))
    assert result.as_json()["estimated_noise"]["test 1"] == pytest.approx(0.02, rel=0.1)
    assert np.sqrt(np.mean(np.square(result.residual("test 1")))) == pytest.approx(1.0, abs=0.01)
    test = result.study.checks[0].test
    hertz, measured = np.asarray(test.omega) / (2.0 * np.pi), np.asarray(test.measured)
    own = np.asarray(jaxmb.frf(result.model, test.q, hertz, outputs=test.outputs, inputs=test.inputs))
    expected = 100.0 * np.sum(np.abs(own - measured) ** 2) / np.sum(np.abs(measured) ** 2)
    assert result.metrics["jq_held_out_percent"] == {"test 1": pytest.approx(expected, rel=1e-9)}
    assert result.metrics["jq_percent"]["test 1"] != pytest.approx(expected, rel=1e-3)
