"""What can be known before measuring: against bounds computed elsewhere, and against the studies that would follow."""

import dataclasses
import json
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.assess.modal_agreement import ModeShares
from jaxmb.identify.estimation.identifiability import identifiability
from jaxmb.identify.fit import problem
from jaxmb.identify.plan.inspection import _remarks
from jaxmb.identify.plan.why import posture_text, why
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.identify.study.study import Solver
from jaxmb.machine.changed import machine_of
from tests.identify.arm import FREE as ARM_FREE, MACHINE as ARM, estimate_at, frf, loads, shapes, study_of

KR90 = tomllib.loads((Path(__file__).parents[2] / "reference" / "huynh2020_kr90.toml").read_text())
NAMES = [f"{family}.{item}" for family in ("stiffness", "damping") for item in KR90["order"]]
PUBLISHED = {"z1": "0 deg", "z2": "70 deg", "z3": "-100 deg"}
SOFT = {"stiffness.*": {"lower": 1e5, "upper": 1e7}}
FREE = {"stiffness.*": {"lower": 1e5, "upper": 1e9}, "damping.*": {"lower": 1.0, "upper": 1e5}}


def frf_test(first_hz=1.0, last_hz=30.0, **more):
    lines = {"first_hz": first_hz, "last_hz": last_hz, "step_hz": 0.5}
    return {"kind": "frf", "simulate": {"lines": lines}, "posture": PUBLISHED, "noise_log_std": 0.01} | more


def made(*tests):
    data = {"machine": "kuka-kr90", "test": list(tests), "free": FREE}
    return jaxmb.make_study(StudyFile.model_validate(data), "study", Path())


def deviations(inspection):
    return {name: p.relative_std for name, p in inspection.parameters.items()}


@pytest.fixture(scope="module")
def narrow():
    """The published test up to 30 Hz."""
    return jaxmb.inspect(made(frf_test()))


@pytest.mark.parametrize("case", ["one_posture_30hz", "one_posture_100hz"])
def test_bounds_of_one_posture(narrow, case):
    wide = KR90[case]["last_hz"] != 30.0
    found = jaxmb.inspect(made(frf_test(last_hz=KR90[case]["last_hz"]))) if wide else narrow
    assert found.linearized_at == "true values"
    # Four digits are given, of numbers that depend on the machine's printed data alone.
    np.testing.assert_allclose([found.parameters[n].relative_std for n in NAMES], KR90[case]["std_log"], rtol=0.01)
    for name, std in zip(NAMES, KR90[case]["std_log"], strict=True):
        assert found.parameters[name].identifiable == ("yes" if std < 0.1 else "weak" if std < 1.0 else "no")
        assert bool(found.parameters[name].why) == (std >= 0.1)


def test_singular_values_are_deviations_along_directions(narrow):
    """Without weights: the sum of their inverse squares is the trace of the covariance."""
    assert np.sum(narrow.singular_values**-2.0) == pytest.approx(sum(s**2 for s in deviations(narrow).values()))


@pytest.mark.parametrize(
    ("name", "energy"),
    [
        ("young_modulus.boom", "strain energy"),
        ("loss_factor.q1", "damping"),
        ("rayleigh.mass", "damping"),
        ("rotor_inertia.q1", "kinetic energy"),
        ("stiffness.q1", "strain energy"),
    ],
)
def test_the_energy_of_a_mode_that_a_parameter_governs(name, energy):
    test = SimpleNamespace(name="t", vibration=SimpleNamespace(highest_hz=30.0, highest_text="the band's end of"))
    shares = ModeShares(np.array([20.0]), np.array([[1.0]]))
    known = identifiability(np.eye(1), np.ones(1))
    told = why(0, [name], known, np.eye(1), (), [test], [shares], ())
    assert told == f"governs the mode at 20 Hz (100 % of its {energy}), below the band's end of 30 Hz"


def test_why_names_modes_and_what_is_confused(narrow):
    told = narrow.parameters["damping.x3"].why
    model = jaxmb.build_model(jaxmb.load_machine("kuka-kr90"))
    q = jaxmb.posture(model, {"z1": 0.0, "z2": np.radians(70.0), "z3": np.radians(-100.0)})
    frequency_hz = np.asarray(jaxmb.modes(jaxmb.linearize(model, q)).frequency_hz)
    fifth = frequency_hz[np.argmin(np.abs(frequency_hz - 55.6))]
    assert f"governs the modes at {fifth:.3g} Hz (100 % of its damping)" in told
    assert "above the band's end of 30 Hz" in told
    i, j = (narrow.study.free.names.index(f"damping.{c}3") for c in "xy")
    assert f"is correlated with damping.y3 (correlation {narrow.correlation[i, j]:+.2f})" in told
    assert "governs no mode, at most" in narrow.parameters["damping.z1"].why


def test_a_remedy_keeps_what_it_promises(narrow):
    """The deviation that a wider band is said to give, against a study in which the lines beyond are planned too."""
    told = narrow.parameters["damping.x3"].why
    end_hz = float(told.split("the band extended to ")[1].split(" Hz")[0])
    promised = told.split(" to ")[-1]
    wider = jaxmb.inspect(made(frf_test(), frf_test(30.5, np.ceil(2.0 * end_hz) / 2.0)))
    # The promise has two digits, and the sentence gives the band's end in three.
    assert float(promised.split()[0]) == pytest.approx(100.0 * wider.parameters["damping.x3"].relative_std, rel=0.06)


def test_weights_count_as_in_a_fit(narrow):
    """A study with weights is predicted with the covariance of the weighted estimate, which is larger."""
    weights = {"peaks": 80, "half_width_lines": 2, "elsewhere": 0.5}
    plain, weighted = (deviations(found) for found in (narrow, jaxmb.inspect(made(frf_test(weights=weights)))))
    assert all(weighted[name] > plain[name] for name in plain)


@pytest.mark.parametrize("more", [{"cross_axis": 0.1}, {"simulate": {"hits": {}}}])
def test_correlated_noise_counts_as_in_a_fit(tmp_path, more):
    """Leakage has one ratio for all lines; an exponential window correlates them."""
    study = study_of(tmp_path, frf(noise_log_std=0.01, band_hz=[1.0, 25.0], **more))
    found = jaxmb.inspect(study)
    fitted = estimate_at(study, study.free.encode(found.values))
    assert found.known.std == pytest.approx(fitted.std, rel=1e-3)


def test_measured_data_do_not_matter(tmp_path):
    """Only lines, noise and values do: noise in the data moves nothing."""
    first, second = (jaxmb.inspect(study_of(tmp_path, frf(noise=n, noise_log_std=0.01))) for n in (0.0, 0.05))
    assert deviations(first) == pytest.approx(deviations(second), rel=1e-12)


def test_initial_values_where_the_truth_is_not_known(tmp_path):
    truth = study_of(tmp_path, frf())
    jaxmb.write_frf(tmp_path / "frf.npz", truth.fitted[0].source.fitted)
    test = {key: value for key, value in frf(file="frf.npz").items() if key != "simulate"}
    free = {name: bounds | {"initial": 20.0} for name, bounds in ARM_FREE.items() if name == "damping.*"}
    free |= {"stiffness.*": ARM_FREE["stiffness.*"] | {"initial": 1e4}}
    found = jaxmb.inspect(study_of(tmp_path, test, free=free))
    assert found.linearized_at == "initial values"
    assert [p.value for p in found.parameters.values()] == [1e4, 1e4, 20.0, 20.0]


def test_tied_parameters_with_different_true_values_have_no_common_one():
    """The simulated machine has 3e6 and 1.55e6 N m/rad: no value of the tied parameter is true."""
    modes = {"kind": "modes", "frequency_std_hz": 0.02, "damping_std_percent": 0.1, "simulate": {"below_hz": 30.0}}
    bounds = {"lower": 2e5, "upper": 2e7, "initial": 2.5e6, "tied": True}
    for names, at in (("z[23]", "initial values"), ("z2", "true values")):
        data = {"machine": "manipulator-3r", "test": [modes], "free": {f"stiffness.{names}": bounds}}
        assert jaxmb.inspect(jaxmb.make_study(data, "tied")).linearized_at == at


@pytest.fixture(scope="module")
def elbow(tmp_path_factory):
    """Deflections of the elbow under loads there, which the joint behind it does not feel."""
    free = {"stiffness.*": ARM_FREE["stiffness.*"]}
    return jaxmb.inspect(study_of(tmp_path_factory.mktemp("elbow"), loads(noise=0.001, frame="elbow"), free=free))


def test_errors_of_loads_count_as_in_a_fit(tmp_path):
    """Their effect on displacements is that at the values of the prediction, not at those of the machine file."""
    soft = {f"stiffness.z{k}": value for k, value in ((1, 5e5), (2, 8e5), (3, 4e5))}
    nominal = jaxmb.load_machine("manipulator-3r")
    jaxmb.write_machine(
        machine_of(nominal, jaxmb.set_parameters(jaxmb.build_model(nominal), soft)), tmp_path / "soft.toml"
    )
    zone = {"z2": ["20 deg", "90 deg"], "z3": ["-110 deg", "-30 deg"]}
    simulate = {"tests": 4, "force_n": [500.0, 1500.0], "directions": [[0, 0, -1], [0, 1, 0]], "zones": {"a": zone}}
    test = {"kind": "deflection", "instruments": {"tracker_mm": 0.01, "direction_deg": 1.0, "encoder_deg": 0.005}}
    own, other = (
        jaxmb.inspect(
            jaxmb.make_study(
                {"machine": machine, "test": [test | {"simulate": simulate | truth}], "free": SOFT}, "arm", tmp_path
            )
        )
        for machine, truth in (("soft.toml", {}), ("manipulator-3r", {"parameters": soft}))
    )
    assert deviations(other) == pytest.approx(deviations(own), rel=1e-6)


def test_planned_torques_behind_gears_have_their_stated_noise():
    """With rigid gears it was that of the residual, here of simulated torques without noise."""
    simulate = {"duration_s": 2.0, "rate_hz": 50.0, "base_hz": 0.5, "motion": {"z2": {"sine": [0.3]}}}
    bounds = {"lower": -500.0, "upper": 500.0}
    few, more = (
        jaxmb.inspect(
            jaxmb.make_study(
                {
                    "machine": "manipulator-3r-motors",
                    "test": [{"kind": "torque", "cutoff_hz": 10.0, "torque_std": std, "simulate": simulate}],
                    "free": {"inertia.link3.zz": bounds},
                },
                "arm",
            )
        ).parameters["inertia.link3.zz"]
        for std in (10.0, 20.0)
    )
    assert more.std == pytest.approx(2.0 * few.std, rel=1e-9)


def test_a_mode_that_no_sensor_sees(tmp_path):
    """An arm that is symmetric about its plane, in which the elbow is measured; a column turns it out of that plane."""
    column = {"name": "column", "joint": [{"name": "c", "axis": [0.0, 0.0, 1.0], "stiffness": 4e4, "damping": 20.0}]}
    upper, fore = (body.model_dump() for body in ARM.body)
    upper |= {"parent": "column", "center_of_mass": [0.4, 0.0, 0.1]}
    fore |= {"center_of_mass": [0.3, 0.0, 0.0]}
    machine = ARM.model_validate(ARM.model_dump() | {"body": [column, upper, fore]})
    elbow_in_plane = [["elbow", "x"], ["elbow", "z"]]
    found = jaxmb.inspect(study_of(tmp_path, frf(noise=0.01, outputs=elbow_in_plane), machine=machine))
    for name, of in (("stiffness.c", "strain energy"), ("damping.c", "damping")):
        told = found.parameters[name].why
        assert told.startswith("has no effect on the data: it governs the mode at ")
        assert f"Hz (100 % of its {of}), below the band's end of 25 Hz, but no sensor" in told
        assert "in combination" not in told


def test_deflections_alone(elbow):
    """A spring without load has no effect; the others have the standard deviations of the linear fit."""
    assert elbow.without_effect == ("stiffness.b",)
    assert elbow.parameters["stiffness.b"].identifiable == "no"
    assert elbow.parameters["stiffness.b"].why == "has no effect on the data"
    fitted = jaxmb.identify(elbow.study).parameters["stiffness.a"]
    # The fit takes it at what it found, which is within a few standard deviations of 0.2 % of the truth.
    assert fitted.std_log < 0.002
    assert elbow.parameters["stiffness.a"].relative_std == pytest.approx(fitted.std_log, rel=0.01)


def test_a_tolerance_is_named_with_the_parameter_that_the_tests_determine(tmp_path):
    """Positions determine the tool point in its plane, whose tolerance limits a length."""
    simulated = {"rows": 20, "ranges": {"a": [-1.0, 1.0], "b": [-1.0, 1.0]}, "measured": "position"}
    test = {"kind": "pose", "name": "t", "simulate": simulated, "std_mm": 0.01}
    free = {"origin.b.x": {"lower": -2e-3, "upper": 2e-3}}
    found = jaxmb.inspect(study_of(tmp_path, test, free=free, tolerances={"frame_mm": 20.0}))
    assert "a smaller frame_mm helps most, or frame.tool." in found.parameters["origin.b.x"].why


def test_modes_tell_of_themselves_only(tmp_path):
    first_hz = float(study_of(tmp_path, shapes()).tests[0].frequency_hz[0])
    modes = {"kind": "modes", "posture": {"a": 0.2, "b": 0.5}, "frequency_hz": [first_hz], "damping_percent": [1.9],
             "frequency_std_hz": 0.02, "damping_std_percent": 0.05}  # fmt: skip
    found = jaxmb.inspect(study_of(tmp_path, modes))
    assert found.parameters["damping.b"].identifiable == "no"
    assert f"above the highest measured mode at {first_hz:.3g} Hz" in found.parameters["damping.b"].why


def test_json_is_strict_and_complete(narrow, elbow):
    data = json.loads(narrow.json_text())
    assert {"parameters", "singular_values", "groups", "next", "at", "criterion", "correlation"} <= set(data)
    assert data["next"] is None
    assert "[next]" in data["next_remark"]
    assert set(data["parameters"]["stiffness.z1"]) >= {"relative_std", "identifiable", "why"}
    unknown = json.loads(elbow.json_text())
    assert unknown["parameters"]["stiffness.b"]["relative_std"] is None
    assert unknown["groups"][0]["std"] is None


def test_tolerances_of_many_degrees_of_freedom_are_not_predicted(tmp_path, monkeypatch):
    study = study_of(tmp_path, frf(noise=0.01), tolerances={})
    assert _remarks(study) == ()
    monkeypatch.setattr(problem, "FEW", 0)
    (remark,) = _remarks(study)
    assert "do not contain the tolerances" in remark


def test_the_noise_that_stands_for_one_to_be_estimated_is_told(tmp_path):
    (told,) = jaxmb.inspect(study_of(tmp_path, frf(noise_log_std="estimate", name="arm"))).remarks
    assert told.startswith("the noise of arm is to be estimated from a fit: a standard deviation of 0.01 of log H")


@pytest.mark.parametrize("known", [True, False])
def test_each_assumed_noise_is_that_of_its_own_tests(known):
    noise = {"a": "0.01 of log H", "b": "0.1 mm", "c": "0.01 of log H", "d": ""}
    tests = [
        SimpleNamespace(name=name, noise=SimpleNamespace(is_known=not text, level_text=text), lines=None,
                        stated_variances=lambda: np.ones(2))
        for name, text in noise.items() if known or text
    ]  # fmt: skip
    study = SimpleNamespace(note="", remarks=(), entries=(), tests=tests, laws=None, next=None, tolerances=None,
                            solver=Solver.SEARCH)  # fmt: skip
    assert [text.partition(" assumed")[0] for text in _remarks(study)] == [
        "the noise of a, c is to be estimated from a fit: a standard deviation of 0.01 of log H is",
        "the noise of b is to be estimated from a fit: a standard deviation of 0.1 mm is",
    ]
    study.tests = [test for test in tests if test.name != "b"]
    (text,) = _remarks(study)
    assert text.endswith("affects standard deviations" if known else "all standard deviations are proportional")


def test_a_complete_stiffness_model_is_refused(narrow):
    study = dataclasses.replace(narrow.study, solver=Solver.STIFFNESS_MODEL)
    with pytest.raises(NotImplementedError, match="a complete stiffness model cannot be inspected"):
        jaxmb.inspect(study)


def test_postures_of_closed_chains_are_told_by_what_is_given():
    """What follows is left out, where it is rounding of zero too."""
    model = jaxmb.build_model(jaxmb.load_machine("manipulator-3r"))
    q = np.array([0.5, 1e-16, -0.3])
    closed = dataclasses.replace(model, dependent=(1, 2))
    first = f"{model.coordinates[0]} 29 deg"
    assert posture_text(closed, q) == first
    assert posture_text(model, q).startswith(first + ", ")


def test_a_coordinate_at_zero_is_told_where_its_reference_is_not():
    """A study takes coordinates that are left out from the reference posture."""
    model = jaxmb.build_model(jaxmb.load_machine("manipulator-3r"))
    model = dataclasses.replace(model, reference=np.array([0.4, 0.0, 0.0]))
    assert posture_text(model, np.zeros(3)) == f"{model.coordinates[0]} 0 deg"
