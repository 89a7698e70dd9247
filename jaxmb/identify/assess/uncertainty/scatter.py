"""Scatter of an estimate under a misfit: jackknife over groups of rows in which the errors of a model may be common."""

import numpy as np
from jaxtyping import Float

from jaxmb.identify.assess.estimate import Estimate
from jaxmb.identify.estimation.identifiability import COUPLED

LEAST_GROUPS = 3
"""Groups without which a way of grouping says nothing."""


def jackknife_std(estimate: Estimate) -> Float[np.ndarray, "d"]:
    """Standard deviation of u from fits without each group of rows, to first order: the largest of all ways of grouping
    (`Correlation.groups`), 0 for parameters that a group alone determines.

    Args:
        estimate: of a problem whose Jacobian is in memory.

    Source: Wu, "Jackknife, bootstrap and other resampling methods in regression analysis", Ann. Statist. 14, 1261
    (1986); MacKinnon and White, J. Econometrics 29, 305 (1985), HC3.
    """
    jacobian, residual = np.asarray(estimate.jacobian), estimate.residual
    size = np.linalg.norm(jacobian, axis=0)
    scale = np.where(size > 0.0, size, 1.0)
    scaled, found = jacobian / scale, np.zeros(scale.size)
    whole = scaled.T @ scaled
    for labels in _labels(estimate):
        steps = []
        for group in np.unique(labels):
            own = np.flatnonzero(labels == group)
            rest = whole - scaled[own].T @ scaled[own]
            values, vectors = np.linalg.eigh(rest)
            known = values > COUPLED * values[-1]
            step = vectors[:, known] / values[known] @ (vectors[:, known].T @ (scaled[own].T @ residual[own]))
            steps.append(np.where(np.linalg.norm(vectors[:, ~known], axis=1) > COUPLED, 0.0, step))
        count = len(steps)
        if count >= LEAST_GROUPS:
            found = np.maximum(found, np.sqrt((count - 1.0) / count * np.sum(np.square(steps), axis=0)))
    return found / scale


def _labels(estimate: Estimate) -> list[np.ndarray]:
    """Group of each row of the data in several ways; groups of different tests differ. The last is the test itself."""
    problem = estimate.study.problem
    each = [test.noise.correlation.groups for test in problem.tests]
    ways, first = max(map(len, each)), 0
    found = [np.zeros(problem.data_rows, dtype=int) for _ in range(ways + 1)]
    for rows, groups in zip(problem.row_slices, each, strict=True):
        for k in range(ways):
            found[k][rows] = first + groups[min(k, len(groups) - 1)]
        found[ways][rows] = first
        first += int(groups.max(initial=0)) + 1
    return found
