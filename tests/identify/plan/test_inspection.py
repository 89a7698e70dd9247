"""What can be known before measuring: against bounds computed elsewhere, and against the studies that would follow."""

import dataclasses
import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.study.format.deflection_format import CompletePart
from jaxmb.identify.study.format.study_format import StudyFile

KR90 = tomllib.loads((Path(__file__).parents[2] / "reference" / "huynh2020_kr90.toml").read_text())
NAMES = [f"{family}.{item}" for family in ("stiffness", "damping") for item in KR90["order"]]
PUBLISHED = {"z1": "0 deg", "z2": "70 deg", "z3": "-100 deg"}
RANGES = {"z1": ["-90 deg", "90 deg"], "z2": ["20 deg", "110 deg"], "z3": ["-130 deg", "-20 deg"]}
FREE = {"stiffness.*": {"lower": 1e5, "upper": 1e9}, "damping.*": {"lower": 1.0, "upper": 1e5}}


def frf_test(first_hz=1.0, last_hz=30.0, step_hz=0.5, posture=PUBLISHED, **more):
    lines = {"first_hz": first_hz, "last_hz": last_hz, "step_hz": step_hz}
    return {"kind": "frf", "simulate": {"lines": lines}, "posture": posture, "noise_log_std": 0.01} | more


def made(*tests, machine="kuka-kr90", free=FREE, **more):
    data = {"machine": machine, "test": list(tests), "free": free} | more
    return jaxmb.make_study(StudyFile.model_validate(data), "study", Path())


def deviations(inspection):
    return {name: p.relative_std for name, p in inspection.parameters.items()}


@pytest.fixture(scope="module")
def narrow():
    """The published test up to 30 Hz."""
    return jaxmb.inspect(made(frf_test()))


@pytest.mark.parametrize("case", ["one_posture_30hz", "one_posture_100hz"])
def test_bounds_of_one_posture(case):
    found = jaxmb.inspect(made(frf_test(last_hz=KR90[case]["last_hz"])))
    assert found.at == "true values"
    # Four digits are given, of numbers that depend on the machine's printed data alone.
    np.testing.assert_allclose([found.parameters[n].relative_std for n in NAMES], KR90[case]["std_log"], rtol=0.01)
    for name, std in zip(NAMES, KR90[case]["std_log"], strict=True):
        assert found.parameters[name].identifiable == ("yes" if std < 0.1 else "weak" if std < 1.0 else "no")
        assert bool(found.parameters[name].why) == (std >= 0.1)


def test_singular_values_are_deviations_along_directions(narrow):
    """Without weights: the sum of their inverse squares is the trace of the covariance."""
    assert np.sum(narrow.singular_values**-2.0) == pytest.approx(sum(s**2 for s in deviations(narrow).values()))


def test_why_names_modes_and_what_is_confused(narrow):
    told = narrow.parameters["damping.x3"].why
    model = jaxmb.build_model(jaxmb.load_machine("kuka-kr90"))
    q = jaxmb.posture(model, {"z1": 0.0, "z2": np.radians(70.0), "z3": np.radians(-100.0)})
    frequency_hz = np.asarray(jaxmb.modes(jaxmb.linearize(model, q)).frequency_hz)
    fifth = frequency_hz[np.argmin(np.abs(frequency_hz - 55.6))]
    assert f"governs the modes at {fifth:.3g} Hz (100 % of its damping)" in told
    assert "above the band's end of 30 Hz" in told
    i, j = (narrow.study.free.names.index(f"damping.{c}3") for c in "xy")
    assert f"is confused with damping.y3 (correlation {narrow.correlation[i, j]:+.2f})" in told
    assert "governs no mode, at most" in narrow.parameters["damping.z1"].why


def test_a_remedy_keeps_what_it_promises(narrow):
    """The deviation that a wider band is said to give, against a study in which the lines beyond are planned too."""
    told = narrow.parameters["damping.x3"].why
    end_hz = float(told.split("the band extended to ")[1].split(" Hz")[0])
    promised = told.split("becomes ")[1].split(" instead of ")[0]
    wider = jaxmb.inspect(made(frf_test(), frf_test(30.5, np.ceil(2.0 * end_hz) / 2.0)))
    # The promise has two digits, and the sentence gives the band's end in three.
    assert float(promised.split()[0]) == pytest.approx(100.0 * wider.parameters["damping.x3"].relative_std, rel=0.06)


def test_weights_count_as_in_a_fit():
    """A study with weights is predicted with the covariance of the weighted estimate, which is larger."""
    plain, weighted = (
        deviations(jaxmb.inspect(made(frf_test(step_hz=0.2, **more))))
        for more in ({}, {"weights": {"peaks": 80, "half_width_lines": 2, "elsewhere": 0.5}})
    )
    assert all(weighted[name] > plain[name] for name in plain)


def test_measured_data_do_not_matter():
    """Only lines, noise and values do: noise in the data moves nothing."""
    test = frf_test(last_hz=20.0)
    noisy = test | {"simulate": test["simulate"] | {"noise_log_std": 0.05}}
    small = {"stiffness.*": {"lower": 2e5, "upper": 2e7}}
    first, second = (jaxmb.inspect(made(t, machine="manipulator-3r", free=small)) for t in (test, noisy))
    assert deviations(first) == pytest.approx(deviations(second), rel=1e-12)


def test_initial_values_where_the_truth_is_not_known(tmp_path):
    truth = made(frf_test(), machine="manipulator-3r", free={"stiffness.*": {"lower": 2e5, "upper": 2e7}})
    jaxmb.write_frf(tmp_path / "frf.npz", truth.fitted[0].source.fitted)
    free = {"stiffness.*": {"lower": 2e5, "upper": 2e7, "initial": 1e6}}
    test = {"kind": "frf", "file": "frf.npz", "posture": PUBLISHED}
    file = StudyFile.model_validate({"machine": "manipulator-3r", "test": [test], "free": free})
    found = jaxmb.inspect(jaxmb.make_study(file, "measured", tmp_path))
    assert found.at == "initial values"
    assert [p.value for p in found.parameters.values()] == [1e6] * 3


def test_deflections_alone():
    """Joint 1 is not loaded by a hanging mass; the others as the linear fit's covariance tells."""
    found = jaxmb.inspect(jaxmb.load_study("kr240-joint-stiffness"))
    assert found.without_effect == ("stiffness.q1",)
    assert found.parameters["stiffness.q1"].identifiable == "no"
    assert found.parameters["stiffness.q1"].why == "does not act on what is measured"
    fitted = jaxmb.identify(found.study).parameters
    for name in [f"stiffness.q{i}" for i in range(2, 7)]:
        # The fit takes it at what it found, which is within a few standard deviations of 4 % of the truth.
        assert found.parameters[name].relative_std == pytest.approx(fitted[name].std_log, rel=0.2)


def test_modes_tell_of_themselves_only():
    modes = {"kind": "modes", "posture": PUBLISHED, "frequency_hz": [10.18, 11.24], "damping_percent": [1.9, 1.8],
             "frequency_std_hz": 0.02, "damping_std_percent": 0.05}  # fmt: skip
    free = {"stiffness.*": {"lower": 2e5, "upper": 2e7}, "damping.*": {"lower": 10.0, "upper": 1e4}}
    found = jaxmb.inspect(made(modes, machine="manipulator-3r", free=free))
    assert found.parameters["damping.z3"].identifiable == "no"
    assert "above the highest measured mode at 11.2 Hz" in found.parameters["damping.z3"].why


def test_json_is_strict_and_complete(narrow):
    data = json.loads(narrow.json_text())
    assert {"parameters", "singular_values", "groups", "next", "at", "criterion", "correlation"} <= set(data)
    assert data["next"] is None
    assert "[next]" in data["next_remark"]
    assert set(data["parameters"]["stiffness.z1"]) >= {"relative_std", "identifiable", "why"}
    unknown = json.loads(jaxmb.inspect(jaxmb.load_study("kr240-joint-stiffness")).json_text())
    assert unknown["parameters"]["stiffness.q1"]["relative_std"] is None
    assert unknown["groups"][0]["std"] is None


def test_the_noise_that_stands_for_one_to_be_estimated_is_told():
    small = {"stiffness.*": {"lower": 2e5, "upper": 2e7}}
    test = frf_test(last_hz=20.0) | {"noise_log_std": "estimate", "name": "arm"}
    (told,) = jaxmb.inspect(made(test, machine="manipulator-3r", free=small)).remarks
    assert told.startswith("the noise of arm is to be estimated from a fit: here a standard deviation of 0.01 of log H")


def test_a_complete_stiffness_model_is_refused():
    study = dataclasses.replace(made(frf_test()), complete=CompletePart())
    with pytest.raises(NotImplementedError, match="reduced to what its tests can tell by `identify`"):
        jaxmb.inspect(study)
