"""Normal equations summed over tests, and those by entries of the tangent, are those of the whole Jacobian."""

import dataclasses

import jax
import numpy as np
import pytest

from jaxmb.identify.estimation.least_squares import normal_equations
from jaxmb.identify.experiments.frf.frf_test import Channels, varying_matrices
from jaxmb.machine.schema import Machine
from jaxmb.response.frf import Sensor
from tests.identify.arm import FREE, frf, study_of


@pytest.mark.parametrize("prior", [False, True])
def test_sums_over_tests(tmp_path, prior):
    """Of three tests in two forms, with a prior and without."""
    coarse = frf(b=0.4)
    coarse["simulate"] |= {"lines": {"first_hz": 1.0, "last_hz": 20.0, "step_hz": 1.0}}
    study = study_of(tmp_path, frf(), frf(b=0.9), coarse, **({"prior": {"stiffness.a": 0.1}} if prior else {}))
    problem = study.problem
    assert len(problem.stacks) == 2
    assert (problem.prior is not None) == prior
    u = np.asarray(problem.free.lower) * 0.6 + np.asarray(problem.free.upper) * 0.4
    found = jax.jit(lambda x: problem.normal_equations(x))(u)
    whole = jax.jit(lambda x: normal_equations(problem.residual, x))(u)
    for part, expected in zip(found, whole, strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-12, atol=1e-12 * np.max(np.abs(expected)))


LOSSES = {"loss_factor.a": {"lower": 1e-3, "upper": 0.5}}
MASSES = {"inertia.*": {"lower": -20.0, "upper": 20.0}, "mass.fore": {"lower": 1.0, "upper": 30.0},
          "rotor_inertia.*": {"lower": 1e-3, "upper": 9.0}}  # fmt: skip


@pytest.mark.parametrize(
    ("free", "matrices"),
    [
        (FREE, ("stiffness", "damping")),
        (FREE | LOSSES, ("stiffness", "damping", "structural")),
        (FREE | MASSES, ("stiffness", "damping", "mass")),
        ({name: FREE[name] for name in ("damping.*",)}, ("damping",)),
    ],
)
@pytest.mark.parametrize("same", [True, False])
def test_by_entries(tmp_path, free, matrices, same):
    """They are those of the residual: of FRFs with some lines left out, behind a high-pass where the outputs are the
    inputs, else behind a window and channels."""
    inputs = [["tool", "x"], ["tool", "z"]]
    outputs = inputs if same else [*inputs, ["elbow", "x"]]
    study = study_of(tmp_path, frf(outputs=outputs, inputs=inputs), free=free)
    problem = study.problem
    test = problem.tests[0]
    weight = np.array(test.weight)
    weight[3:7, 1], weight[10] = 0.0, 0.0
    channels = None if same else Channels(np.array([1.1, -0.9, 2.0]), np.array([1.0, 1.2]), np.asarray(1e-3))
    changed = dataclasses.replace(
        test, weight=jax.device_put(weight), channels=channels, sensor=Sensor(high_pass_hz=2.0 if same else 0.0),
        decay=jax.device_put(np.asarray(0.0 if same else 1.5)),
    )  # fmt: skip
    problem = dataclasses.replace(problem, tests=(changed,))
    assert varying_matrices(problem.views[0], problem.free.size) == matrices
    u = np.asarray(problem.free.lower) * 0.4 + np.asarray(problem.free.upper) * 0.6
    found = jax.jit(lambda x: problem.normal_equations(x))(u)
    whole = jax.jit(lambda x: normal_equations(problem.residual, x))(u)
    for part, expected in zip(found, whole, strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-10, atol=1e-11 * np.max(np.abs(expected)))


TURNTABLE = Machine.model_validate({
    "name": "turntable",
    "body": [
        {"name": "table", "joint": [{"name": "a", "axis": [0.0, 0.0, 1.0]}],
         "mass": 20.0, "center_of_mass": [0.4, 0.05, 0.0], "inertia_products": {"xx": 0.4, "yy": 1.6, "zz": 1.5}},
        {"name": "fore", "parent": "table", "origin": {"xyz": [0.8, 0.0, 0.0]},
         "joint": [{"name": "b", "axis": [0.0, 0.0, 1.0], "stiffness": 9e3, "damping": 4.0}],
         "mass": 8.0, "center_of_mass": [0.3, 0.1, 0.0], "inertia_products": {"xx": 0.05, "yy": 0.3, "zz": 0.3}},
    ],
    "frame": [{"name": "tool", "body": "fore", "origin": {"xyz": [0.7, 0.1, 0.0]}}],
})  # fmt: skip
"""Nothing holds its first hinge, so that at 0 Hz it has no response."""


def test_a_line_at_which_there_is_no_response_and_none_is_asked_for(tmp_path):
    lines = {"first_hz": 0.0, "last_hz": 25.0, "step_hz": 0.5}
    test = frf(outputs=[["tool", "x"], ["tool", "y"]], simulate={"lines": lines})
    free = {name: {"lower": low, "upper": high} for name, low, high in
            (("stiffness.b", 1e3, 1e5), ("damping.b", 0.1, 1e2))}  # fmt: skip
    problem = study_of(tmp_path, test, free=free, machine=TURNTABLE).problem
    assert not np.any(problem.tests[0].weight[0])
    assert np.all(problem.tests[0].weight[1:])
    assert varying_matrices(problem.views[0], problem.free.size) == ("stiffness", "damping")
    u = np.asarray(problem.free.lower) * 0.4 + np.asarray(problem.free.upper) * 0.6
    assert not np.isfinite(problem.tests[0].predict(problem.view(0, problem.free.values(u)))[0]).any()
    found = jax.jit(lambda x: problem.normal_equations(x))(u)
    whole = jax.jit(lambda x: normal_equations(problem.residual, x))(u)
    for part, expected in zip(found, whole, strict=True):
        assert np.isfinite(expected).all()
        np.testing.assert_allclose(part, expected, rtol=1e-10, atol=1e-11 * np.max(np.abs(expected)))
