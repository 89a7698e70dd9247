"""Normal equations summed over tests are those of the whole Jacobian."""

import jax
import numpy as np
import pytest

from jaxmb.identify.estimation.least_squares import normal_equations
from tests.identify.arm import frf, study_of


@pytest.mark.parametrize("prior", [False, True])
def test_sums_over_tests(tmp_path, prior):
    """Of three tests in two forms, with a prior and without."""
    coarse = frf(b=0.4)
    coarse["simulate"] |= {"lines": {"first_hz": 1.0, "last_hz": 20.0, "step_hz": 1.0}}
    study = study_of(tmp_path, frf(), frf(b=0.9), coarse, **({"prior": {"stiffness.a": 0.1}} if prior else {}))
    problem = study.problem
    assert len(problem.forms) == 2
    assert (problem.prior is not None) == prior
    u = np.asarray(problem.free.lower) * 0.6 + np.asarray(problem.free.upper) * 0.4
    found = jax.jit(lambda x: problem.normal_equations(x))(u)
    whole = jax.jit(lambda x: normal_equations(problem.residual, x))(u)
    for part, expected in zip(found, whole, strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-12, atol=1e-12 * np.max(np.abs(expected)))
