"""Known truth comes back: every family of parameters without noise, and with noise inside its own interval."""

import numpy as np
import pytest
from scipy.stats import chi2

from jaxmb.identify.assess.identify import identify
from jaxmb.identify.parameters.model_parameters import set_parameters
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.identify.study.study import load_study, make_study
from jaxmb.machine.file import load_machine, write_machine
from jaxmb.machine.schema import Machine
from jaxmb.measurement.files.frf_file import write_frf
from jaxmb.measurement.frf_set import FrfSet
from jaxmb.mechanics.kinematics import reference_posture
from jaxmb.mechanics.postures import build_model, posture
from jaxmb.mechanics.tangent import linearize
from jaxmb.response.frf import frf
from jaxmb.response.modal import modes
from tests.identify.crane import PENDULUM

EXACT = 1e-6
"""Relative error of what is recovered without noise."""
POSTURE = {"z1": "0 deg", "z2": "70 deg", "z3": "-100 deg"}

CRANE = Machine.model_validate({
    "name": "crane",
    "body": [
        {"name": "cart", "joint": [{"name": "s", "type": "prismatic", "axis": [1.0, 0.0, 0.0], "stiffness": 8e5,
                                    "damping": 300.0, "rotor_inertia": 30.0}], "mass": 60.0},
        {"name": "lever", "parent": "cart", "joint": [{"name": "r", "axis": [0.0, 1.0, 0.0], "stiffness": 5e4,
                                                       "damping": 25.0, "rotor_inertia": 0.6}],
         "mass": 20.0, "center_of_mass": [0.4, 0.05, 0.1],
         "inertia_products": {"xx": 0.4, "yy": 1.6, "zz": 1.5, "xy": 0.05, "xz": -0.08, "yz": 0.02}},
    ],
    "frame": [{"name": "tool", "body": "lever", "origin": {"xyz": [0.9, 0.1, 0.05], "rpy": [0.1, 0.2, 0.3]}}],
    "payload": [{"name": "bag", "frame": "tool", "mass": 3.0, "center_of_mass": [0.05, 0.0, -0.1]}],
    "spring": [{"name": "stay", "frame_a": "ground", "frame_b": "tool", "type": "translation",
                "direction": [0.6, 0.0, 0.8], "stiffness": 1e5, "damping": 40.0}],
})  # fmt: skip
STIFF, DAMP = {"lower": 1e3, "upper": 1e7}, {"lower": 0.1, "upper": 1e4}


def study_of(data, folder):
    return make_study(StudyFile.model_validate(data), "recovery", folder)


def crane_study(folder, free, angles=(0.3,), response="accelerance", **settings):
    write_machine(CRANE, folder / "crane.toml")
    lines = {"first_hz": 1.0, "last_hz": 40.0, "step_hz": 1.0}
    # What moves in the plane of the crane; across it nothing does.
    points = [["tool", "x"], ["tool", "z"]]
    tests = [
        {"kind": "frf", "simulate": {"lines": lines, "response": response}, "posture": {"r": r}, "outputs": points}
        for r in angles
    ]
    return study_of({"machine": "crane.toml", "start": "random", "test": tests, "free": free} | settings, folder)


def assert_recovered(result):
    assert result.converged, result.status
    assert set(result.metrics["parameter_error"]) == set(result.parameters)
    assert result.metrics["largest_parameter_error"] < EXACT, result.metrics["parameter_error"]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_stiffness_and_damping_of_the_manipulator(seed):
    assert_recovered(identify(load_study("validation-3r"), seed))


@pytest.fixture(scope="module")
def kr90():
    return load_study("kr90-modelled")


def test_kr90(kr90):
    """All 18, one of them on its bound, where it comes back to the last digit but rounding."""
    result = identify(kr90)
    assert_recovered(result)
    # a fit knows its logarithm, 15.4, to one unit of the last digit, 1.8e-15, and responses to a few roundings, which
    # may leave the least of all costs, 1e-24, that far inside of the bound
    assert result.parameters["stiffness.z1"].value == pytest.approx(5e6, rel=2e-14, abs=0.0)
    assert any(remark.startswith("on their upper bound:") and "stiffness.z1" in remark for remark in result.remarks)


def test_another_truth_of_the_kr90(kr90, tmp_path):
    """A truth drawn evenly over the logarithms of the bounds, as an FRF file, and nothing said of where to start."""
    random = np.random.default_rng(12)
    lower, upper = np.array(kr90.free.lower_value), np.array(kr90.free.upper_value)
    names = kr90.free.names
    truth = dict(zip(names, np.exp(random.uniform(np.log(lower), np.log(upper))).tolist(), strict=True))
    frequency_hz = 1.0 + 0.2 * np.arange(146)
    model = set_parameters(kr90.model, truth)
    h = np.asarray(frf(model, posture(model, {"z2": np.deg2rad(70.0), "z3": np.deg2rad(-100.0)}), frequency_hz))
    write_frf(tmp_path / "h.npz", FrfSet(frequency_hz, h, "accelerance"))
    weights = {"peaks": 80, "half_width_lines": 2, "elsewhere": 0.5}
    test = {"kind": "frf", "file": "h.npz", "posture": POSTURE, "weights": weights}
    free = {n: {"lower": a, "upper": b} for n, a, b in zip(names, lower.tolist(), upper.tolist(), strict=True)}
    study = study_of({"machine": "kuka-kr90", "start": "random", "test": [test], "free": free}, tmp_path)
    assert study.truth == {}
    result = identify(study)
    assert result.converged
    error = {n: abs(result.parameters[n].value / truth[n] - 1.0) for n in names}
    # A damping that the data hardly know (a standard deviation of 1000 % at 1 % of noise) keeps fewer digits.
    scale = {n: max(1.0, result.parameters[n].std_log) for n in names}
    assert max(error[n] / scale[n] for n in names) < EXACT, error


# One posture of two coordinates shows three entries each of mass, damping and stiffness matrix: so many can be free.
FAMILIES = {
    "accelerance": {"stiffness.*": STIFF, "damping.*": DAMP, "rotor_inertia.s": {"lower": 1.0, "upper": 200.0},
                    "inertia.lever.yy": {"lower": 0.5, "upper": 20.0},
                    "first_moment.lever.x": {"lower": -5.0, "upper": 20.0}},
    "mobility": {"stiffness.stay": STIFF, "damping.stay": DAMP, "mass.bag": {"lower": 0.1, "upper": 20.0},
                 "rotor_inertia.r": {"lower": 0.01, "upper": 10.0}},
    "receptance": {"stiffness.?": STIFF, "damping.?": DAMP},
}  # fmt: skip


@pytest.mark.parametrize("response", FAMILIES)
def test_every_family_and_kind_of_response(response, tmp_path):
    """Elastic joints, one of them prismatic, a spring between frames, and inertial parameters of all kinds."""
    study = crane_study(tmp_path, FAMILIES[response], response=response)
    assert study.tests[0].derivatives == ["receptance", "mobility", "accelerance"].index(response)
    assert_recovered(identify(study))


def test_a_second_posture_separates_what_one_cannot(tmp_path):
    """Along one posture only one direction of a first moment acts; the result says so, and two postures give both."""
    free = {f"first_moment.lever.{axis}": {"lower": -5.0, "upper": 20.0} for axis in "xz"}
    one = identify(crane_study(tmp_path, free, gravity=[0.0, 0.0, 0.0]))
    assert [p.identifiable for p in one.parameters.values()] == ["no", "no"]
    assert all(np.isinf(p.std) for p in one.parameters.values())
    assert_recovered(identify(crane_study(tmp_path, free, (0.3, 1.2))))


def test_all_moments_and_products_of_inertia(tmp_path):
    """The third body turns about its own z and about the vertical, which three postures show from three sides."""
    lines = {"first_hz": 1.0, "last_hz": 30.0, "step_hz": 1.0}
    tests = [
        {"kind": "frf", "simulate": {"lines": lines}, "posture": POSTURE | {"z3": f"{angle} deg"}}
        for angle in (-100, -60, -10)
    ]
    free = {"inertia.link3.*": {"lower": -40.0, "upper": 120.0}}
    assert_recovered(identify(study_of({"machine": "manipulator-3r", "start": "random", "test": tests, "free": free},
                                       tmp_path)))  # fmt: skip


def test_modes(tmp_path):
    """Three modes of the manipulator as measured: three stiffnesses and three dampings."""
    model = build_model(load_machine("manipulator-3r"))
    found = modes(linearize(model, reference_posture(model)))
    test = {
        "kind": "modes", "posture": POSTURE, "frequency_hz": np.asarray(found.damped_frequency_hz).tolist(),
        "damping_percent": (100.0 * np.asarray(found.damping_ratio)).tolist(), "frequency_std_hz": 0.01,
        "damping_std_percent": 0.01,
    }  # fmt: skip
    # Which joint a mode belongs to is not measured: bounds that leave one answer. Another exact one has 1.18 and 0.84
    # times the stiffness of the first two joints.
    free = {
        f"stiffness.{n}": {"lower": 0.9 * k, "upper": 1.1 * k} for n, k in (("z1", 2e6), ("z2", 3e6), ("z3", 1.55e6))
    }
    free |= {"damping.*": {"lower": 1e2, "upper": 1e4}}
    result = identify(
        study_of({"machine": "manipulator-3r", "start": "random", "test": [test], "free": free}, tmp_path)
    )
    truth = {"stiffness.z1": 2e6, "stiffness.z2": 3e6, "stiffness.z3": 1.55e6, "damping.z1": 1200.0,
             "damping.z2": 1545.0, "damping.z3": 340.0}  # fmt: skip
    assert result.converged, result.status
    for name, value in truth.items():
        assert result.parameters[name].value == pytest.approx(value, rel=EXACT), name


def test_errors_are_of_the_size_that_is_claimed(tmp_path):
    """With 2 % of noise, 200 times: the errors over their standard deviations are standard normal.

    The squares of errors that are whitened by the claimed covariance, and those of each parameter, add up to
    chi-squares of 400 and 200. Where all is well one of the three leaves its bounds once in 1000 times; they are 12 %
    and 17 % of a standard deviation apart from 1.
    """
    draws, free = 200, {"stiffness.r": {"lower": 1e4, "upper": 2e5}, "damping.r": {"lower": 2.0, "upper": 300.0}}
    settings = {"outputs": [["tool", "x"], ["tool", "z"]], "posture": {"r": 0.3}, "noise_log_std": 0.02}
    settings["weights"] = {"peaks": 20, "half_width_lines": 2, "elsewhere": 0.5}
    simulated = {"lines": {"first_hz": 1.0, "last_hz": 30.0, "step_hz": 1.0}, "noise_log_std": 0.02}
    write_machine(PENDULUM, tmp_path / "pendulum.toml")
    together, each = [], []
    for seed in range(draws):
        test = {"kind": "frf", "simulate": simulated | {"noise_seed": seed}} | settings
        data = {"machine": "pendulum.toml", "test": [test], "free": free, "agreement": 1, "least_rounds": 1}
        study = study_of(data, tmp_path)
        result = identify(study)
        assert result.converged, result.status
        names = study.free.names
        error = np.array([np.log(result.parameters[n].value / study.truth[n]) for n in names])
        standard = error / np.array([result.parameters[n].std_log for n in names])
        together.append(standard @ np.linalg.solve(result.correlation, standard))
        each.append(standard**2)
    for total, freedom in ((np.sum(together), 2 * draws), *((x, draws) for x in np.sum(each, axis=0))):
        low, high = chi2.ppf([1e-3 / 6, 1.0 - 1e-3 / 6], freedom)
        assert low < total < high, total / freedom
