"""Where a fit starts when the study does not say."""

from collections.abc import Sequence

import numpy as np
import scipy.linalg
from scipy.optimize import brentq

from jaxmb.identify.fit.problem import Problem
from jaxmb.identify.parameters.free_parameters import Bound
from jaxmb.mechanics.tangent import motion_coordinates
from jaxmb.response.modal import check_mass_matrix


def initial_values(problem: Problem, bounds: Sequence[Bound]) -> tuple[np.ndarray, np.ndarray]:
    """Initial physical value of every free parameter, and whether it was given or estimated.

    What is not given starts in the middle of its bounds. Stiffnesses among it are then multiplied by one common factor,
    within their bounds, for which the first natural frequency of the machine is the first that was measured: the first
    peak of the FRFs, as Huynh et al. 2020 (section 5) find their guess of the first joint's stiffness.
    """
    middle = [np.sqrt(b.lower * b.upper) if b.logarithmic else 0.5 * (b.lower + b.upper) for b in bounds]
    values = np.array([m if b.initial is None else b.initial for b, m in zip(bounds, middle, strict=True)])
    given = np.array([b.initial is not None for b in bounds])
    scaled = [i for i, b in enumerate(bounds) if b.initial is None and b.names[0].startswith("stiffness.")]
    measured = [(i, f) for i, t in enumerate(problem.tests) if (f := t.first_frequency_hz) is not None]
    if not scaled or not measured:
        return values, given
    number, target_hz = measured[0]
    low = np.array([bounds[i].lower for i in scaled])
    high = np.array([bounds[i].upper for i in scaled])

    def with_factor(log_factor: float) -> np.ndarray:
        changed = values.copy()
        changed[scaled] = np.clip(values[scaled] * np.exp(log_factor), low, high)
        return changed

    def mismatch(log_factor: float) -> float:
        return _first_natural_frequency_hz(problem, number, with_factor(log_factor)) - target_hz

    ends = [float(np.log(x).max()) for x in (values[scaled] / low, high / values[scaled])]
    if mismatch(-ends[0]) >= 0.0 or mismatch(ends[1]) <= 0.0:
        return values, given  # the first peak lies outside of what the bounds allow
    root = brentq(mismatch, -ends[0], ends[1], xtol=1e-3)
    return with_factor(float(root)), given  # pyright: ignore[reportArgumentType]


def _first_natural_frequency_hz(problem: Problem, number: int, values: np.ndarray) -> float:
    test, view = problem.tests[number], problem.view(number, values)
    tangent = test.tangent(view)
    if tangent is None:
        return 0.0
    mass, stiffness = np.asarray(tangent.mass), np.asarray(tangent.stiffness)
    if not (np.isfinite(mass).all() and np.isfinite(stiffness).all()):
        return 0.0  # no equilibrium: too soft
    check_mass_matrix(mass, motion_coordinates(problem.model))
    first = scipy.linalg.eigh(stiffness, mass, eigvals_only=True, subset_by_index=[0, 0])[0]
    return float(np.sqrt(max(first, 0.0)) / (2 * np.pi))
