"""Where a fit starts when the study does not say."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
import scipy.linalg
from scipy.optimize import brentq

from jaxmb.identify.experiments.frf_weights import resonances
from jaxmb.identify.experiments.modes_test import ModesTest
from jaxmb.identify.experiments.motion import scene
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.fit.problem import LinearScene, Problem
from jaxmb.identify.parameters.free_parameters import Bound
from jaxmb.response.modal import check_mass_matrix


def initial_values(problem: Problem, bounds: Sequence[Bound]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Initial physical value of every free parameter, and whether it was given or estimated.

    What is not given starts in the middle of its bounds. Stiffnesses among it are then multiplied by one common factor,
    within their bounds, for which the first natural frequency of the machine is the first that was measured: the first
    peak of the FRFs, as Huynh et al. 2020 (section 5) find their guess of the first joint's stiffness.
    """
    middle = [np.sqrt(b.lower * b.upper) if b.logarithmic else 0.5 * (b.lower + b.upper) for b in bounds]
    values = np.array([m if b.initial is None else b.initial for b, m in zip(bounds, middle, strict=True)])
    origin = tuple("estimated" if b.initial is None else "given" for b in bounds)
    scaled = [i for i, b in enumerate(bounds) if b.initial is None and b.names[0].startswith("stiffness.")]
    measured = [(i, f) for i, t in enumerate(problem.tests) if (f := first_frequency_hz(t)) is not None]
    if not scaled or not measured:
        return values, origin
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
        return values, origin  # the first peak lies outside of what the bounds allow
    root = brentq(mismatch, -ends[0], ends[1], xtol=1e-3)
    return with_factor(float(root)), origin  # pyright: ignore[reportArgumentType]


def first_frequency_hz(test: Test) -> float | None:
    """Frequency of the first measured mode of a test: its lowest mode, or the first clear peak of its FRFs."""
    if isinstance(test, ModesTest):
        return float(jnp.min(test.frequency_hz))
    used = np.asarray(test.weight) > 0.0
    size = np.where(used, np.abs(np.asarray(test.measured)), 0.0)
    level = np.log10(np.sqrt((size**2).sum(axis=(1, 2))) + 1e-300)
    peaks = resonances(level, np.asarray(test.omega) / (2 * np.pi), prominence=0.1)
    return float(test.omega[peaks[0]]) / (2 * np.pi) if peaks.size else None


def _first_natural_frequency_hz(problem: Problem, number: int, values: np.ndarray) -> float:
    linear = problem.scenes[number]
    if linear is None:
        tangent = scene(problem.tests[number], problem.free.apply(problem.model, jnp.asarray(values))).tangent
        mass, stiffness = np.asarray(tangent.mass), np.asarray(tangent.stiffness)
    else:
        mass, stiffness = _matrices(linear, values)
    if not (np.isfinite(mass).all() and np.isfinite(stiffness).all()):
        return 0.0  # no equilibrium: too soft
    check_mass_matrix(mass, problem.model.coordinates)
    first = scipy.linalg.eigh(stiffness, mass, eigvals_only=True, subset_by_index=[0, 0])[0]
    return float(np.sqrt(max(first, 0.0)) / (2 * np.pi))


def _matrices(linear: LinearScene, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    base, slope = linear.base.tangent, linear.slope.tangent
    mass = np.asarray(base.mass) + np.asarray(slope.mass) @ values
    return mass, np.asarray(base.stiffness) + np.asarray(slope.stiffness) @ values
