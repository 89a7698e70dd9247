"""Bounds of inertial numbers hold beside bodies that can exist: the conditions of a minimum."""

import numpy as np
import pytest
from scipy.optimize import nnls

from jaxmb.identify.assess.identify import identify
from jaxmb.identify.assess.linear_estimate import linear_estimate
from jaxmb.identify.fit.linear import linear_step
from jaxmb.identify.fit.physical_consistency import RIDGE, bodies
from tests.identify.fit.test_physical_consistency import INERTIAL, all_rows, arm, made, possible, study_of


def tight(machine):
    """Bounds that shut out first moments of the last body, and an inertia of the one before."""
    last, before = machine.body[-1], machine.body[-2]
    center = np.array(before.center_of_mass)
    inertia = before.central_inertia[1, 1] + before.mass * (center[0] ** 2 + center[2] ** 2)
    half = [0.5 * abs(last.mass * h) for h in last.center_of_mass]
    shut = {f"first_moment.{last.name}.{axis}": {"lower": -h, "upper": h} for axis, h in zip("xyz", half, strict=True)}
    return shut | {f"inertia.{before.name}.yy": {"lower": 1.2 * inertia, "upper": 3.0 * inertia}}


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_conditions_of_a_minimum(tmp_path, seed):
    """The slope of chi^2 is a sum of slopes of bounds that are reached and of bodies on the limit, each with a factor
    that is not negative (Karush, Kuhn and Tucker; of a body v^T P v with vectors v of eigenvalues 0)."""
    draw = np.random.default_rng(seed)
    machine = arm(draw, 3)
    free = INERTIAL | tight(machine)
    study = made(tmp_path, *study_of(machine, draw, free=free))
    estimate = linear_estimate(study)
    found, _, step, start = estimate.linear
    x = step.x
    assert np.all((found.lower <= x) & (x <= found.upper))
    assert possible(study.machine_with(estimate.model))
    at_lower, at_upper = x == found.lower, x == found.upper
    assert at_lower.any() or at_upper.any()
    matrix, measured = all_rows(estimate)
    free_bodies = bodies(study.model, study.free, ())
    slope = 2.0 * matrix.T @ (matrix @ x - measured) * free_bodies.scale
    walls = [np.eye(x.size)[i] * (1.0 if at_lower[i] else -1.0) for i in np.flatnonzero(at_lower | at_upper)]
    for b, size in enumerate(np.sqrt(free_bodies.size)):
        unit = 1.0 / np.outer(size, size)
        own = np.tensordot(free_bodies.scale[:, None, None] * free_bodies.slope[:, b] * unit, np.ones(1), 0)[..., 0]
        values, vectors = np.linalg.eigh((free_bodies.base[b] + np.tensordot(x, free_bodies.slope[:, b], 1)) * unit)
        limit = vectors[:, values < 1e-4]
        tried = np.concatenate([limit.T, draw.normal(size=(300, limit.shape[1])) @ limit.T])
        walls += list(np.einsum("kij,vi,vj->vk", own, tried, tried))
    _, left = nnls(np.array(walls).T, slope)
    # what the data do not determine is drawn to the start; of vectors of the limit only some are tried
    pull = 2.0 * RIDGE * np.linalg.norm((x - start) / free_bodies.scale)
    assert left < pull + 0.01 * np.linalg.norm(slope) < 0.1 * np.linalg.norm(slope)
    # not so at the least squares without a thought of bodies
    assert step.cost > linear_step(found, estimate.linear.equations, start).cost


def test_bounds_that_no_body_keeps_are_named(tmp_path):
    """A moment of inertia that is larger than the two others together: the bounds are at fault, not what is kept."""
    draw = np.random.default_rng(1)
    machine = arm(draw, 3)
    small, large = {"lower": -1.0, "upper": 0.01}, {"lower": 1.0, "upper": 2.0}
    free = INERTIAL | {"inertia.b2.xx": large, "inertia.b2.yy": small, "inertia.b2.zz": small}
    result = identify(made(tmp_path, *study_of(machine, draw, free=free)))
    (remark,) = [text for text in result.doubts if text.startswith("no physically consistent body is within")]
    named = remark.partition(" bounds of ")[2].partition(":")[0].split(", ")
    assert set(named) <= {"inertia.b2.xx", "inertia.b2.yy", "inertia.b2.zz"}
    assert "inertia.b2.xx" in named
    assert all(p.lower <= p.value <= p.upper for p in result.parameters.values())
