"""Simulated tests: what a hammer can do."""

import pytest

import jaxmb
from jaxmb.identify.study.format.study_format import StudyFile


@pytest.mark.parametrize("direction", ["rx", "-rz"])
def test_a_hammer_gives_no_moment(tmp_path, direction):
    part = {
        "kind": "frf", "outputs": [("tool", "x"), ("tool", "ry")], "inputs": [("tool", "z"), ("tool", direction)],
        "simulate": {"hits": {"hits": 1, "record_s": 0.5}},
    }  # fmt: skip
    data = {"machine": "manipulator-3r", "test": [part], "free": {"stiffness.*": {"lower": 1.0, "upper": 1e9}}}
    with pytest.raises(
        jaxmb.InputError, match=f"input 'tool {direction}': a hammer gives no moment, expected x, y or z"
    ):
        jaxmb.make_study(StudyFile.model_validate(data), "s", tmp_path)
