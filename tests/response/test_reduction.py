"""Responses of reduced machines beside those of the whole ones."""

import numpy as np

import jaxmb
from jaxmb.response.reduction import reduced_frf

SECTION = {"young_modulus": 7e10, "shear_modulus": 2.6e10, "density": 2700.0, "area": 8e-4, "second_moment_y": 1.6e-7,
           "second_moment_z": 3.2e-7, "torsion_constant": 3.2e-7, "elements": 6, "loss_factor": 0.02}  # fmt: skip
ARM = jaxmb.Machine.model_validate({
    "name": "arm",
    "body": [{"name": "hub", "joint": [{"name": "q", "axis": [0.0, 1.0, 0.0], "stiffness": 2e4, "damping": 20.0}]}],
    "beam": [SECTION | {"name": "boom", "body": "hub", "length": 1.5}],
    "frame": [{"name": "tool", "body": "boom", "origin": {"xyz": [0.0, 0.1, 0.0]}}],
})  # fmt: skip
LINES = np.linspace(1.0, 120.0, 60)


def test_a_reduced_arm_responds_as_the_whole_one():
    model = jaxmb.build_model(ARM)
    points = [("tool", "x"), ("tool", "z"), ("boom/3", "rx"), ("q", "angle")]
    found = reduced_frf(model, np.zeros(1), LINES, outputs=points)
    whole = np.asarray(jaxmb.frf(model, np.zeros(1), LINES, outputs=points))
    size = np.abs(whole).max(axis=0)
    moves = size > 1e-9 * size.max()  # what twists does not bend
    error = np.where(moves, np.abs(found.frf - whole).max(axis=0), 0.0) / np.where(moves, size, 1.0)
    assert found.basis.shape[1] < 15 < found.basis.shape[0]
    assert error.max() < 1e-3
    assert 0.3 * error.max() < found.error < 1.5 * error.max()


def test_a_machine_that_nothing_holds():
    free = ARM.model_dump(exclude_none=True)
    free["body"][0]["joint"] = [{"name": "q", "axis": [0.0, 1.0, 0.0]}]
    model = jaxmb.build_model(jaxmb.Machine.model_validate(free | {"gravity": [0.0, 0.0, 0.0]}))
    found = reduced_frf(model, np.zeros(1), LINES, outputs=[("tool", "z")])
    whole = np.asarray(jaxmb.frf(model, np.zeros(1), LINES, outputs=[("tool", "z")]))
    np.testing.assert_allclose(found.frf, whole, rtol=2e-3, atol=1e-3 * np.abs(whole).max())
