"""Gears are found from the motors in front of them, and what is said of them holds."""

import numpy as np
import pytest
from scipy.stats import chi2

import jaxmb
from jaxmb.studies import study_data

LINES = {"first_hz": 2.0, "last_hz": 46.0, "step_hz": 2.0}


def motor_side(**simulate):
    """The study on few lines."""
    data = study_data("motor-side")
    data["test"][0]["simulate"] |= {"lines": LINES} | simulate
    return data


def test_gears_are_found_from_motors_alone():
    result = jaxmb.identify(jaxmb.make_study(motor_side(noise_log_std=0.0), "motor-side"))
    assert result.converged, result.status
    assert result.metrics["largest_parameter_error"] < 1e-6


@pytest.mark.parametrize("tests", [("motor side",), ("motor side", "tool")])
def test_with_noise_they_are_found_within_their_intervals(tests):
    """One chi-square of all errors together, by the covariance that the result states."""
    data = study_data("motor-and-tool")
    data["test"] = [test for test in data["test"] if test["name"] in tests]
    for test in data["test"]:
        test["simulate"]["lines"] = LINES
    study = jaxmb.make_study(data, "motors")
    result, truth = jaxmb.identify(study), jaxmb.parameters(study.model)
    assert result.converged, result.status
    off = np.array([np.log(p.value / truth[name]) for name, p in result.parameters.items()])
    square = off @ np.linalg.solve(result.covariance, off)
    assert chi2.sf(square, off.size) > 1e-3
    assert result.parameters["stiffness.z3"].std_log < 0.003


def test_hits_of_a_machine_with_motors_are_refused():
    data = motor_side()
    data["test"][0] |= {"simulate": {"hits": {"hits": 2}}, "outputs": [["tool", "x"]]}
    with pytest.raises(NotImplementedError, match="hits are simulated of machines without motors"):
        jaxmb.make_study(data, "hits")


def test_static_tests_tell_of_gears_and_of_loops_in_series():
    """Deflections of an arm whose controllers give way tell one stiffness of each joint: that of both springs."""
    data = study_data("motor-side")
    load = {"tests": 8, "force_n": [1000.0, 2000.0], "directions": [[0, 0, -1], [1, 0, 0], [0, 1, 0]]}
    load |= {"zones": {"work": {"z2": ["20 deg", "110 deg"], "z3": ["-120 deg", "-30 deg"]}}}
    data["test"] = [{"kind": "deflection", "simulate": load, "std_mm": 1e-5, "std_deg": 1e-6}]
    data["free"] = {name: data["free"][name] for name in ("stiffness.z*",)}
    result = jaxmb.identify(jaxmb.make_study(data, "loads"))
    assert result.metrics["largest_parameter_error"] < 1e-4
    data["free"]["stiffness.motor1"] = {"lower": 0.5, "upper": 20.0}
    both = jaxmb.identify(jaxmb.make_study(data, "loads"))
    known = {name: p.identifiable for name, p in both.parameters.items()}
    assert known == {"stiffness.z1": "no", "stiffness.z2": "yes", "stiffness.z3": "yes", "stiffness.motor1": "no"}


def test_motors_without_loops_are_held_in_static_tests_and_free_in_others():
    data = study_data("motor-side")
    load = {"tests": 8, "force_n": [1000.0, 2000.0], "directions": [[0, 0, -1], [1, 0, 0], [0, 1, 0]]}
    load |= {
        "zones": {"work": {"z2": ["20 deg", "110 deg"]}},
        "parameters": {f"stiffness.motor{k}": 0.0 for k in (1, 2, 3)},
    }
    data["test"] = [
        {"kind": "deflection", "simulate": load, "std_mm": 1e-3, "std_deg": 1e-4},
        data["test"][0],
    ]
    data["test"][1]["simulate"] = {"lines": LINES, "parameters": load["parameters"]}
    data["hold"] = {"stiffness.motor*": 0.0}
    data["free"] = {name: bounds for name, bounds in data["free"].items() if name != "stiffness.motor*"}
    result = jaxmb.identify(jaxmb.make_study(data, "both"))
    assert result.converged, result.status
    assert result.metrics["largest_parameter_error"] < 1e-3
