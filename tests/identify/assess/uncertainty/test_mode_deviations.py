"""Standard deviations of modes follow from differences of the modes, and are infinite where nothing is known."""

import jax
import numpy as np
import pytest

import jaxmb
from jaxmb.identify.assess.uncertainty.mode_deviations import mode_deviations
from jaxmb.response.modal import modes


@pytest.mark.parametrize("name", ["validation-3r", "flexible-arm"])
def test_modes_by_differences(name):
    """The flexible arm has structural damping. A step of 1e-4 leaves 1e-8 of the curvature, and 1e-6 of rounding."""
    study = jaxmb.load_study(name)
    test, free = study.tests[0], study.free
    u = free.encode(np.sqrt(np.asarray(free.lower_value) * np.asarray(free.upper_value)))

    def numbers(u):
        tangent = test.tangent(test.view(free.apply(study.model, free.values(u))))
        found = jax.tree.map(np.asarray, modes(tangent))
        return tangent, found, np.stack([found.frequency_hz, found.damping_ratio], axis=1)

    tangent, found, values = numbers(u)
    std = np.random.default_rng(0).uniform(0.01, 0.1, free.size)
    variance = np.zeros_like(values)
    for i in range(free.size):
        step = 1e-4 * np.eye(free.size)[i]
        variance += ((numbers(u + step)[2] - numbers(u - step)[2]) / 2e-4 * std[i]) ** 2
    shown = mode_deviations(test, study.model, free, u, tangent, found, np.diag(1.0 / std))
    np.testing.assert_allclose(shown, np.sqrt(variance), rtol=1e-5)

    rows = np.diag(1.0 / std)
    rows[0, 0] = 0.0  # a stiffness that the data do not determine
    assert np.isinf(mode_deviations(test, study.model, free, u, tangent, found, rows)[:, 0]).any()
