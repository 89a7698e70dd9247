"""What is compiled once serves every study of the same form."""

import copy
import dataclasses
from pathlib import Path

import jax.monitoring
import numpy as np
import pytest

import jaxmb
from jaxmb.identify.assess.identify import identify
from jaxmb.identify.experiments.modes_test import predict_modes
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.identify.study.study import make_study
from jaxmb.io.files import find_description, read_toml
from tests.identify.arm import MACHINE, shapes, study_of

LINES = {"first_hz": 1.0, "last_hz": 30.0, "step_hz": 1.0}
TEST = {"kind": "frf", "simulate": {"lines": LINES, "noise_log_std": 0.01, "noise_seed": 1}}
STUDY = {
    "machine": "manipulator-3r", "start": "random", "rounds": 2, "least_rounds": 1, "test": [TEST],
    "free": {"stiffness.*": {"lower": 2e5, "upper": 2e7}, "damping.*": {"lower": 1e2, "upper": 1e4}},
}  # fmt: skip


@pytest.fixture
def programs():
    """Names of the programs that were compiled, or found in the cache of programs, so far."""
    found = []

    def heard(event, duration, **about):
        if event == "/jax/core/compile/backend_compile_duration":
            found.append(about.get("fun_name"))

    jax.monitoring.register_event_duration_secs_listener(heard)
    yield found
    jax.monitoring.unregister_event_duration_listener(heard)


def changed(**changes):
    data = copy.deepcopy(STUDY)
    data["test"][0]["simulate"] |= changes.pop("simulate", {})
    return make_study(StudyFile.model_validate(data | changes), "study", Path())


def test_another_seed_other_bounds_and_other_noise_compile_nothing(programs):
    identify(changed())
    assert programs
    programs.clear()
    identify(changed(), seed=1)
    free = {"stiffness.*": {"lower": 3e5, "upper": 1e7}, "damping.*": {"lower": 2e2, "upper": 9e3, "initial": 5e2}}
    identify(changed(free=free))
    identify(changed(simulate={"noise_seed": 5}), seed=2)
    identify(changed(refine={"gradient_tolerance": 1e-8, "most_steps": 100}))
    assert programs == []


def test_names_and_stated_defaults_compile_nothing(programs, tmp_path):
    model = jaxmb.build_model(jaxmb.load_machine("manipulator-3r"))
    q = jaxmb.reference_posture(model)
    jaxmb.linearize(model, q)
    test = study_of(tmp_path, shapes()).tests[0]
    view = test.view(jaxmb.build_model(MACHINE))
    found = predict_modes(test, view)
    programs.clear()
    jaxmb.linearize(model, q, "posture")
    jaxmb.linearize(model, q, at="posture")
    other = predict_modes(dataclasses.replace(test, name="another"), view)
    assert programs == []
    np.testing.assert_array_equal(other.errors, found.errors)


def test_a_study_is_read_with_few_programs(programs):
    """One for what a test sees of a machine and one for what it predicts; a small operation each would be dozens."""
    data = read_toml(find_description("kr90-modelled", "studies", "study", (".toml",)))
    make_study(StudyFile.model_validate(data), "study", Path())
    assert len(programs) <= 2
