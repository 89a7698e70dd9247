"""A plane arm of two hinges, and studies of it with tests of every kind, for the tests of several rooms."""

import numpy as np

import jaxmb
from jaxmb.identify.assess.identify import search_estimate
from jaxmb.identify.fit.state import Fit
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.identify.study.study import make_study
from jaxmb.machine.file import write_machine
from jaxmb.machine.schema import Machine

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
BRIEF = {"rounds": 3, "least_rounds": 1, "agreement": 1}
"""Settings of a fit that stops at the first minimum that the noise explains."""


def frf(b=0.5, noise=0.0, seed=0, **changes):
    """FRFs of the tool at a posture."""
    lines = {"first_hz": 1.0, "last_hz": 25.0, "step_hz": 0.25}
    simulate = {"lines": lines, "noise_log_std": noise, "noise_seed": seed}
    points = [["tool", "x"], ["tool", "z"]]
    return {"kind": "frf", "posture": {"a": 0.2, "b": b}, "simulate": simulate, "outputs": points} | changes


def measured_frf(folder, data, b=0.5):
    """FRFs of the tool of another arm in a file, with noise of 1 %: the test, and the true model."""
    true, lines, points = jaxmb.build_model(Machine.model_validate(data)), np.arange(1.0, 25.0, 0.25), OUTPUTS[:2]
    exact = np.asarray(jaxmb.frf(true, np.array([0.2, b]), lines, outputs=points, inputs=points))
    noise = np.random.default_rng(0).normal(size=(2, *exact.shape))
    names = [" ".join(point) for point in points]
    measured = jaxmb.FrfSet(lines, exact * np.exp(0.01 * (noise[0] + 1j * noise[1])), "accelerance", names, names)
    jaxmb.write_frf(folder / "h.npz", measured)
    how = {"posture": {"a": 0.2, "b": b}, "noise_log_std": 0.01, "outputs": points, "inputs": points}
    return {"kind": "frf", "file": "h.npz"} | how, true


def shapes(b=0.5, noise=False, **changes):
    """Both modes with their shapes at a posture."""
    return {
        "kind": "modes", "posture": {"a": 0.2, "b": b}, "simulate": {"below_hz": 100.0, "noise": noise},
        "outputs": OUTPUTS, "frequency_std_hz": 0.02, "damping_std_percent": 0.05, "shape_std": 0.02,
    } | changes  # fmt: skip


def loads(noise=0.01, count=6, **changes):
    """Deflections of the tool under some loads."""
    how = {
        "tests": count, "zones": {"all": {"a": [-1.0, 1.0], "b": [-1.0, 1.0]}}, "force_n": [20.0, 40.0],
        "directions": [[0.0, 0.0, -1.0], [1.0, 0.0, 0.0]], "noise_seed": 2,
    }  # fmt: skip
    return {"kind": "deflection", "simulate": how, "instruments": {"tracker_mm": noise}} | changes


def study_of(folder, *tests, free=FREE, noise_seed=None, machine=MACHINE, **settings):
    """The study that some tests make."""
    write_machine(machine, folder / "arm.toml")
    file = StudyFile.model_validate({"machine": "arm.toml", "test": list(tests), "free": free} | settings)
    return make_study(file, "arm", folder, noise_seed=noise_seed)


def estimate_at(study, u):
    """The estimate of a fit that ended at u."""
    return search_estimate(study, Fit(round=3, best_u=np.asarray(u), initial_u=np.asarray(u)), seed=0)


LAWS = {"parameters": ["stiffness.*", "damping.*"], "by": ["b", "amplitude"]}
POSTURES = (-1.2, -0.7, -0.2, 0.4, 0.9, 1.3)
AMPLITUDES = (10.0, 40.0, 20.0, 10.0, 40.0, 20.0)


def true_factor(law, b, amplitude):
    """What a law of b, of the amplitude or of nothing multiplies stiffness.b by."""
    if law == "b":
        return np.exp(0.3 * np.sin(b))
    return (amplitude / 20.0) ** -0.1 if law == "amplitude" else 1.0


def laboratory(law):
    """FRFs at postures and amplitudes, stiffness.b by a law."""
    tests = []
    for k, (b, amplitude) in enumerate(zip(POSTURES, AMPLITUDES, strict=True)):
        test = frf(b=b, noise=0.01, seed=k, amplitude=amplitude)
        lines = {"first_hz": 1.0, "last_hz": 25.0, "step_hz": 0.5}
        true = {"stiffness.b": 9e3 * true_factor(law, b, amplitude)}
        test["simulate"] = test["simulate"] | {"parameters": true, "lines": lines}
        tests.append(test)
    return tests
