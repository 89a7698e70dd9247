"""The residual of a study by names of parameters: its derivatives, and that its squares are the cost of a result."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.identify.study.study import make_study
from tests.identify.arm import BRIEF, frf, study_of
from tests.identify.experiments.torque import test_torque_pendulum

POSTURE = {"z2": "70 deg", "z3": "-100 deg"}
SPRINGS = {"stiffness.*": {"lower": 2e5, "upper": 2e7}}
TESTS = {
    "modes": {
        "frequency_hz": [10.18, 11.3, 22.6], "damping_percent": [1.9, 1.8, 1.6],
        "frequency_std_hz": 0.05, "damping_std_percent": 0.1,
    },
    "deflection": {
        "instruments": {"tracker_mm": 0.01, "reflectors_m": 0.2},
        "simulate": {"tests": 6, "force_n": [2000.0, 2500.0], "directions": [[0, 0, -1], [0, 1, 0]], "plan_seed": 1,
                     "noise_seed": 1, "zones": {"work": {"z2": ["20 deg", "110 deg"], "z3": ["-130 deg", "-20 deg"]}}},
    },
    "pose": {
        "std_mm": 0.001,
        "simulate": {"rows": 12, "stations": 0, "noise_seed": 1, "measured": "pose",
                     "ranges": {"z1": [-1.0, 1.0], "z2": ["20 deg", "110 deg"], "z3": ["-130 deg", "-20 deg"]}},
    },
}  # fmt: skip


def study(kind, folder):
    if kind == "frf":
        return study_of(folder, frf(noise=0.02, noise_log_std=0.02, weights={"elsewhere": 0.5}), **BRIEF)
    if kind == "torque":
        effort = 0.1 * np.random.default_rng(0).standard_normal(test_torque_pendulum.TIME.size)
        return test_torque_pendulum.study(folder, effort)
    test = {"kind": kind, **TESTS[kind]} | ({} if kind == "deflection" else {"posture": POSTURE})
    data = {"machine": "manipulator-3r", "test": [test], "free": SPRINGS}
    if kind == "modes":
        data["prior"] = {"*": 0.5}  # whose rows are no part of it
    return make_study(StudyFile.model_validate(data), kind, folder)


@pytest.mark.parametrize("kind", ["frf", "modes", "deflection", "torque", "pose"])
def test_residual(kind, tmp_path):
    result = jaxmb.identify(study(kind, tmp_path))
    f = jaxmb.residual(result.study)
    found = {name: p.value for name, p in result.parameters.items()}
    r, jacobian = np.asarray(f(found)), jax.jacobian(f)(found)
    assert r @ r == pytest.approx(result.cost, rel=1e-8)
    np.testing.assert_allclose(jax.jit(f)(found), r, rtol=1e-9, atol=1e-12)
    slope = jax.grad(lambda p: jnp.sum(f(p) ** 2))(found)
    for name, value in found.items():
        step = 1e-6 * abs(value)
        by_steps = np.asarray(f(found | {name: value + step}) - f(found | {name: value - step})) / (2 * step)
        np.testing.assert_allclose(jacobian[name], by_steps, rtol=1e-5, atol=1e-6 * np.abs(by_steps).max())
        assert slope[name] == pytest.approx(2.0 * r @ np.asarray(jacobian[name]), rel=1e-6, abs=1e-9 * np.abs(r).sum())
    name, value = next(iter(found.items()))
    several = jax.vmap(f)({name: value * jnp.array([1.0, 1.1])})
    others = {n: float(v) for n, v in zip(result.study.free.names, result.study.start.values, strict=True)}
    np.testing.assert_allclose(several[1], f(others | {name: 1.1 * value}), rtol=1e-9, atol=1e-12)


def test_a_result_read_again_has_the_residual_of_its_fit(tmp_path):
    """The effect of errors of loads is that on the fitted machine, not on the stated one."""
    instruments = TESTS["deflection"]["instruments"] | {"direction_deg": 2.0}
    simulate = TESTS["deflection"]["simulate"] | {"parameters": {"stiffness.z1": 4e5}}
    test = {"kind": "deflection", "instruments": instruments, "simulate": simulate}
    data = {"machine": "manipulator-3r", "test": [test], "free": SPRINGS}
    result = jaxmb.identify(make_study(StudyFile.model_validate(data), "both", tmp_path))
    jaxmb.write_result(result, tmp_path / "out")
    again = jaxmb.load_result(tmp_path / "out")
    r = np.asarray(jaxmb.residual(again.study)({name: p.value for name, p in again.parameters.items()}))
    assert r @ r == pytest.approx(result.cost, rel=1e-5)


def test_wrong_names_and_shapes_are_sentences(tmp_path):
    of = study("frf", tmp_path)
    f = jaxmb.residual(of)
    with pytest.raises(ValueError, match=r"^free parameter 'stiffnes.a' does not exist, did you mean 'stiffness.a'"):
        f({"stiffnes.a": 1e6})
    for value, told in ((np.ones(2), "shape (2,)"), ("1e6", "a str"), (None, "a NoneType"), (1j, "a complex number")):
        with pytest.raises(ValueError, match=rf"^stiffness.a: found {re.escape(told)}.*, expected a real scalar"):
            f({"stiffness.a": value})
    for parameters in ([1e6], None, 1e6 * np.ones(4)):
        with pytest.raises(ValueError, match=r"^parameters: found .*, expected a dictionary of values by name"):
            f(parameters)
    with pytest.raises(ValueError, match=r"^free parameter '3' does not exist"):
        f({3: 1e6})
    complex_u = (1j * np.ones(4), "a complex number or array")
    for u, told in ((np.ones(2), "shape (2,)"), (np.ones((4, 1)), "shape (4, 1)"), ({"a": 1.0}, "a dict"), complex_u):
        sentence = re.escape(f"u: found {told}, expected a real array of shape (4,), an entry for each of stiffness.a")
        for function in (of.problem.residual, of.problem.objective):
            with pytest.raises(ValueError, match=sentence):
                function(u)


def test_a_result_suggests_names(tmp_path):
    result = jaxmb.identify(study("frf", tmp_path))
    with pytest.raises(KeyError, match=r"did you mean 'stiffness.a'"):
        _ = result.parameters["stiffnes.a"]
    assert "stiffnes.a" not in result.parameters
    assert result.parameters.get("stiffnes.a") is None
    with pytest.raises(ValueError, match=r"test 'tets 1' does not exist, did you mean 'test 1'"):
        result.predicted("tets 1")
    with pytest.raises(KeyError, match=r"did you mean 'stiffness.a'"):
        _ = jaxmb.inspect(result.study).parameters["stiffnes.a"]
