"""Closed chains along motions, against the closed form of a slider-crank."""

import numpy as np
import pytest

import jaxmb
from jaxmb.mechanics.postures import closed_along

CRANK, ROD = 0.08, 0.25
SLIDER_CRANK = {
    "name": "slider-crank",
    "body": [
        {"name": "crank", "mass": 0.18, "joint": [{"name": "q1"}]},
        {
            "name": "rod",
            "parent": "crank",
            "mass": 0.22,
            "origin": {"xyz": [CRANK, 0.0, 0.0]},
            "joint": [{"name": "q2"}],
        },
        {"name": "slider", "mass": 0.25, "joint": [{"name": "q3", "type": "prismatic", "axis": [1.0, 0.0, 0.0]}]},
    ],
    "frame": [{"name": "end", "body": "rod", "origin": {"xyz": [ROD, 0.0, 0.0]}}, {"name": "pin", "body": "slider"}],
    "loop": [{"name": "closure", "frame_a": "end", "frame_b": "pin"}],
    "independent": ["q1"],
    "posture": {"q1": 0.0, "q2": 0.0, "q3": 0.33},
}


def closed_form(crank):
    tilt = -np.arcsin(CRANK / ROD * np.sin(crank))
    return np.stack([crank, tilt - crank, CRANK * np.cos(crank) + ROD * np.cos(tilt)], axis=1)


def test_many_turns_of_a_slider_crank():
    model = jaxmb.build_model(jaxmb.Machine.model_validate(SLIDER_CRANK))
    crank = np.linspace(0.0, 5 * 2 * np.pi, 2000)
    found = closed_along(model, crank[:, None], np.asarray(model.reference))
    np.testing.assert_allclose(found, closed_form(crank), atol=1e-12)


def test_a_motion_out_of_reach():
    model = jaxmb.build_model(jaxmb.Machine.model_validate(SLIDER_CRANK | {"independent": ["q3"], "posture": {
        "q1": 1.0, "q2": -1.3, "q3": 0.29}}))  # fmt: skip
    slide = np.linspace(float(model.reference[2]), 0.36, 200)
    with pytest.raises(ValueError, match=r"a loop of 'slider-crank' opens at sample \d+, q3 = 0.3.*: .* out of reach"):
        closed_along(model, slide[:, None], np.asarray(model.reference))
