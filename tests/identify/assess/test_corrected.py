"""Joint fit of parameters and errors of the description."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from jaxmb.identify.assess.corrected import ResidualBlock, joint_fit
from jaxmb.identify.experiments.tolerances import StatedError, Tolerances


def test_a_minimum_behind_two_reversed_phases_is_reached():
    """400 rows are zero at an error of 3 tolerances, two have a half wave before it, in which squares are stuck."""
    error = StatedError("mass of fore", "mass_percent", 0.01)

    def state(u, x, columns, tests):
        size = x[0] / 0.01
        wave = np.pi / 3.0
        residual = np.array([u[0] - 1.0, *np.full(400, 0.5 * (size - 3.0)), *np.full(2, 30.0 * np.sin(wave * size))])
        by_size = np.array([0.0, *np.full(400, 0.5), *np.full(2, 30.0 * wave * np.cos(wave * size))]) / 0.01
        return residual, np.column_stack([np.eye(403)[0], by_size])[:, columns]

    def blocks(u, x, columns, tests):
        return [ResidualBlock(slice(0, 403), columns, *state(u, x, columns, tests))]

    corrected: Any = SimpleNamespace(
        errors=(error,), state=state, blocks=blocks, problem=SimpleNamespace(data_rows=403)
    )
    free = SimpleNamespace(lower=np.zeros(1), upper=np.full(1, 2.0))
    study: Any = SimpleNamespace(exact_tests=(), tolerances=Tolerances(mass_percent=1.0), free=free)
    found = joint_fit(corrected, study, np.array([0.5]), [error], np.ones(403))
    assert found is not None
    np.testing.assert_allclose((*found.u, *found.sizes), (1.0, 3.0), atol=1e-2)  # the prior moves the size by 0.002
