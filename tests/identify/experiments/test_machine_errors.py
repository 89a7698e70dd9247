"""Errors of a machine's description."""

import numpy as np

from jaxmb import Machine, build_model, linearize, modes
from jaxmb.identify.experiments.machine_errors import all_elastic, with_further_springs
from tests.identify.arm import MACHINE


def test_nearly_rigid_further_springs_leave_the_modes():
    """A foundation about the axis of the first joint moves the machine as the joint does, which must not make the mass
    matrix singular."""
    model = build_model(Machine.model_validate(MACHINE))
    further = all_elastic(with_further_springs(model))
    n, count = len(model.coordinates), len(further.coordinates)
    q = np.append(np.full(n, 0.3), np.zeros(count - n))
    own, found = (np.asarray(modes(linearize(m, at)).eigenvalue) for m, at in ((model, q[:n]), (further, q)))
    np.testing.assert_allclose(found[:n], own, rtol=1e-5)  # RIGID and the springs' number in series
