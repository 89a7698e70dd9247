"""Standard deviations of modes follow from differences of the modes, and are infinite where nothing is known."""

import jax
import numpy as np
import pytest

import jaxmb
from jaxmb.identify.assess.uncertainty.nonlinear import mode_deviations
from jaxmb.response.modal import modes
from tests.identify.arm import MACHINE, frf, study_of


def fractional(folder):
    free = {
        "fractional.order": {"lower": 0.1, "upper": 1.0}, "fractional.time": {"lower": 1e-8, "upper": 1e-2},
        "stiffness.*": {"lower": 1e3, "upper": 1e6},
    }  # fmt: skip
    law = {"fractional": {"order": 0.4, "time": 2e-5}}
    machine = jaxmb.Machine.model_validate(MACHINE.model_dump(mode="json", exclude_unset=True) | law)
    return study_of(folder, frf(), free=free, machine=machine)


@pytest.mark.parametrize("name", ["validation-3r", "flexible-arm", "fractional"])
def test_modes_by_differences(name, tmp_path):
    """With structural damping (the flexible arm) and fractional damping too.

    A step of 1e-4 leaves 1e-8 of the curvature, and 1e-6 of rounding.
    """
    study = fractional(tmp_path) if name == "fractional" else jaxmb.load_study(name)
    test, free = study.tests[0], study.free
    u = free.encode(np.sqrt(np.asarray(free.lower_value) * np.asarray(free.upper_value)))

    def numbers(u):
        tangent = test.view(free.apply(study.model, free.values(u))).tangent
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
    affine = study.problem.views[0]
    assert (affine is None) == (name == "fractional")
    # the affine view without a derivative; differences of its matrices round to about 1e-12 of a slope
    again = mode_deviations(test, study.model, free, u, tangent, found, np.diag(1.0 / std), affine)
    np.testing.assert_allclose(again, shown, rtol=1e-10)

    rows = np.diag(1.0 / std)
    first = next(i for i, name in enumerate(free.names) if name.startswith("stiffness"))
    rows[first, first] = 0.0  # a stiffness that the data do not determine
    assert np.isinf(mode_deviations(test, study.model, free, u, tangent, found, rows)[:, 0]).any()
