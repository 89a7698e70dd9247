"""A test whose accelerometers feel gravity."""

import numpy as np
import pytest

from jaxmb.identify.assess.identify import identify
from jaxmb.io.validation import InputError
from tests.identify.arm import BRIEF, TRUTH, frf, study_of

SENSOR = {"gravity": True, "high_pass_hz": 0.3}
LOW = {"lines": {"first_hz": 0.5, "last_hz": 15.0, "step_hz": 0.25}}


def test_a_fit_takes_gravity_into_account(tmp_path):
    found = identify(study_of(tmp_path, frf(simulate=LOW, sensor=SENSOR), **BRIEF))
    for name, true in TRUTH.items():
        assert found.parameters[name].value == pytest.approx(true, rel=1e-6)


def test_the_view_is_the_same_by_differences_and_directly(tmp_path):
    made = study_of(tmp_path, frf(simulate=LOW, sensor=SENSOR))
    values = np.array([3e4, 8e3, 10.0, 3.0])
    (test,) = made.tests
    direct = test.residual(test.view(made.free.apply(made.model, values)))
    np.testing.assert_allclose(test.residual(made.problem.view(0, values)), direct, rtol=1e-8, atol=1e-8)


def test_hits_are_measured_by_ideal_sensors(tmp_path):
    with pytest.raises(InputError, match="simulated hits are measured by ideal sensors"):
        study_of(tmp_path, frf(simulate={"hits": {}}, sensor=SENSOR))
