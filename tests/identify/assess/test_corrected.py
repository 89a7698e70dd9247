"""Joint fit of parameters and errors of the description."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from jaxmb.identify.assess.corrected import ResidualBlock, joint_fit
from jaxmb.identify.experiments.frf.frf_test import FrfDescription
from jaxmb.identify.experiments.tolerances import StatedError, Tolerances


def test_a_minimum_behind_two_reversed_phases_is_reached():
    """400 rows are zero at an error of 3 tolerances, two have a half wave before it, in which squares are stuck, also
    beside a hypothesis."""
    error, load = StatedError("mass of fore", "mass_percent", 0.01), StatedError("payload", size=1.0)

    def state(u, x, columns, tests):
        size = x[0] / 0.01
        wave = np.pi / 3.0
        rows = np.full(400, 0.5 * (size - 3.0)), np.full(2, 30.0 * np.sin(wave * size))
        by_size = np.array([0.0, *np.full(400, 0.5), *np.full(2, 30.0 * wave * np.cos(wave * size)), 0.0]) / 0.01
        jacobian = np.column_stack([np.eye(404)[0], by_size, np.eye(404)[-1]])
        return np.array([u[0] - 1.0, *np.concatenate(rows), x[1] - 7.0]), jacobian[:, columns]

    def blocks(u, x, columns, tests):
        return [ResidualBlock(slice(0, 404), np.arange(columns.size), *state(u, x, columns, tests))]

    corrected: Any = SimpleNamespace(
        errors=(error, load), state=state, blocks=blocks, problem=SimpleNamespace(data_rows=404, tests=())
    )
    free = SimpleNamespace(lower=np.zeros(1), upper=np.full(1, 2.0))
    study: Any = SimpleNamespace(exact_tests=(), tolerances=Tolerances(mass_percent=1.0), free=free)
    u = np.array([0.5])
    alone = joint_fit(corrected, study, u, [error], np.ones(404))
    beside = joint_fit(corrected, study, u, [error], np.ones(404), [load], [6.0])
    assert alone is not None
    assert beside is not None
    np.testing.assert_allclose((*alone.u, *alone.sizes), (1.0, 3.0), atol=1e-2)  # the prior moves the size by 0.002
    np.testing.assert_allclose((*beside.u, *beside.sizes), (1.0, 3.0, 7.0), atol=1e-2)


def test_a_response_that_passes_zero_is_followed():
    """200 responses of 0.5 - 0.5 x where -1 is measured: the logarithm is infinite at an error x of one tolerance,
    between the start and the minimum at three."""
    error = StatedError("direction of tool x", "mass_percent", 0.01)
    lines, size_of = 200, 0.01

    def blocks(u, x, columns, tests):
        response = 0.5 - 0.5 * x[0] / size_of
        log = np.log(complex(response) / -1.0)
        residual = np.concatenate([np.full(lines, log.real), np.full(lines, log.imag), [u[0] - 1.0]])
        slope = np.concatenate([np.full(lines, -0.5 / size_of / response), np.zeros(lines + 1)])
        jacobian = np.column_stack([np.eye(residual.size)[-1], slope])[:, columns]
        yield ResidualBlock(slice(0, 2 * lines), np.arange(columns.size), residual[:-1], jacobian[:-1])
        yield ResidualBlock(slice(2 * lines, 2 * lines + 1), np.arange(columns.size), residual[-1:], jacobian[-1:])

    def state(u, x, columns, tests):
        found = list(blocks(u, x, columns, tests))
        return np.concatenate([b.residual for b in found]), np.concatenate([b.jacobian for b in found])

    parts = {"weight": np.ones((lines, 1, 1)), "noise_std": np.ones((lines, 1, 1))}
    test: Any = SimpleNamespace(description=FrfDescription(cast(Any, SimpleNamespace(**parts))))
    problem = SimpleNamespace(data_rows=2 * lines, tests=(test,))
    corrected: Any = SimpleNamespace(errors=(error,), state=state, blocks=blocks, problem=problem)
    free = SimpleNamespace(lower=np.zeros(1), upper=np.full(1, 2.0))
    study: Any = SimpleNamespace(exact_tests=(), tolerances=Tolerances(mass_percent=1.0), free=free)
    found = joint_fit(corrected, study, np.array([0.5]), [error], np.ones(2 * lines + 1))
    assert found is not None
    np.testing.assert_allclose((*found.u, *found.sizes), (1.0, 3.0), atol=0.1)  # the prior moves the size by 0.06
