"""Errors of a machine's description."""

import dataclasses

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


def test_a_released_joint_has_its_own_ratio_of_damping():
    """The machine states it for a; a further spring, of which nothing is known, has that of b."""
    model = build_model(Machine.model_validate(MACHINE))
    locked = dataclasses.replace(model, locked=(True, False))
    released = all_elastic(with_further_springs(locked))
    ratio = np.asarray(released.damping) / np.asarray(released.stiffness)
    own = np.asarray(model.damping) / np.asarray(model.stiffness)
    np.testing.assert_allclose(ratio, np.where(np.arange(len(ratio)) == 0, own[0], own[1]), rtol=1e-12)
