"""Deflection tests as part of a fit with tests of other kinds: residuals as functions of the machine."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmb.identify.experiments.load_cases import (
    DeflectionTest,
    check_tests,
    jacobians_of,
    measured_displacements,
)
from jaxmb.identify.study.reading.deflections import DeflectionSet
from jaxmb.machine.build import Model
from jaxmb.mechanics.compliance import compliance_matrix


class LoadTests(eqx.Module):
    """Displacements under loads, row by row: displacement = J_p C J_l^T w, linear in the compliance C.

    Postures are given and geometry is not free, so both Jacobians are numbers.
    """

    q: Float[Array, "t n"]
    """Postures."""
    of_test: Int[Array, "m"]
    """Posture of each row."""
    at_point: Float[Array, "m e"]
    """Row of the measured point's elastic Jacobian."""
    effort: Float[Array, "m e"]
    """J_l^T w of the loaded frame."""
    displacement: Float[Array, "m"]
    std: Float[Array, "m"]
    weight: Float[Array, "m"]
    """By which the squared error of a row counts, over its variance."""

    def predict(self, model: Model) -> Float[Array, "m"]:
        """Displacements of all rows, m and rad, to first order in the loads."""
        if model.springs:  # their stiffness depends on the posture
            compliance = jax.vmap(lambda q: compliance_matrix(model, q))(self.q)[self.of_test]
            return jnp.einsum("me,mef,mf->m", self.at_point, compliance, self.effort)
        compliance = compliance_matrix(model, self.q[0])
        return jnp.sum((self.at_point @ compliance) * self.effort, axis=1)

    def residual(self, model: Model) -> Float[Array, "m"]:
        """sqrt(weight) (predicted - measured) / standard deviation."""
        return jnp.sqrt(self.weight) * (self.predict(model) - self.displacement) / self.std


def load_tests(model: Model, sets: Sequence[DeflectionSet]) -> LoadTests | None:
    """The rows of all sets that are fitted; None where there is none.

    Raises:
        ValueError: a test cannot be the machine's.
    """
    fitted = [group for group in sets if group.role == "fit"]
    if not fitted:
        return None
    tests = [test for group in fitted for test in group.tests]
    check_tests(model, tests)
    return rows_of(model, tests, [group.rotation_weight for group in fitted for _ in group.tests])


def rows_of(
    model: Model, tests: Sequence[DeflectionTest], rotation_weights: Sequence[float] | None = None
) -> LoadTests:
    """Every measured displacement of some tests as a row; rotations count as translations do where not said."""
    displacement, std = measured_displacements(tests)
    at_point, effort, weight = [], [], []
    weights = [1.0] * len(tests) if rotation_weights is None else rotation_weights
    for test, (at_points, load), rotation_weight in zip(tests, jacobians_of(model, tests), weights, strict=True):
        rows = at_points[test.measured]
        at_point.append(rows)
        effort.append(np.tile(load, (len(rows), 1)))
        weight.append(np.tile(np.repeat([1.0, rotation_weight], 3), (len(test.points), 1))[test.measured])
    return LoadTests(
        q=jnp.asarray(np.stack([test.q for test in tests])),
        of_test=jnp.asarray(np.repeat(np.arange(len(tests)), [len(rows) for rows in at_point])),
        at_point=jnp.asarray(np.concatenate(at_point)),
        effort=jnp.asarray(np.concatenate(effort)),
        displacement=jnp.asarray(displacement),
        std=jnp.asarray(std),
        weight=jnp.asarray(np.concatenate(weight)),
    )
