"""Where a fit starts when the study does not say."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq
from scipy.signal import find_peaks

from jaxmb.identify.experiments import ModesTest, Test
from jaxmb.identify.parameters import Bound, set_parameters
from jaxmb.linalg import symmetric_pencil
from jaxmb.machine.build import Model
from jaxmb.mechanics.tangent import linearize


def initial_values(
    model: Model, bounds: Sequence[Bound], tests: Sequence[Test]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Initial physical value of every free parameter, and whether it was given or estimated.

    What is not given starts in the middle of its bounds. Stiffnesses among it are then multiplied by one common factor,
    within their bounds, for which the first natural frequency of the machine is the first that was measured: the first
    peak of the FRFs, as Huynh et al. 2020 (section 5) find their guess of the first joint's stiffness.
    """
    middle = [np.sqrt(b.lower * b.upper) if b.logarithmic else 0.5 * (b.lower + b.upper) for b in bounds]
    values = np.array([m if b.initial is None else b.initial for b, m in zip(bounds, middle, strict=True)])
    origin = tuple("estimated" if b.initial is None else "given" for b in bounds)
    scaled = [i for i, b in enumerate(bounds) if b.initial is None and b.names[0].startswith("stiffness.")]
    measured = [first for test in tests if (first := first_frequency_hz(test)) is not None]
    if not scaled or not measured:
        return values, origin
    low = np.array([bounds[i].lower for i in scaled])
    high = np.array([bounds[i].upper for i in scaled])

    def with_factor(log_factor: float) -> np.ndarray:
        changed = values.copy()
        changed[scaled] = np.clip(values[scaled] * np.exp(log_factor), low, high)
        return changed

    def mismatch(log_factor: float) -> float:
        changed = with_factor(log_factor)
        named = {name: changed[i] for i, b in enumerate(bounds) for name in b.names}
        tangent = linearize(set_parameters(model, named), tests[0].q)
        first, _ = symmetric_pencil(tangent.stiffness, tangent.mass)
        return float(jnp.sqrt(jnp.maximum(first[0], 0.0)) / (2 * jnp.pi)) - measured[0]

    ends = [float(np.log(x).max()) for x in (values[scaled] / low, high / values[scaled])]
    if mismatch(-ends[0]) >= 0.0 or mismatch(ends[1]) <= 0.0:
        return values, origin  # the first peak lies outside of what the bounds allow
    return with_factor(float(brentq(mismatch, -ends[0], ends[1], xtol=1e-3))), origin  # pyright: ignore[reportArgumentType]


def first_frequency_hz(test: Test) -> float | None:
    """Frequency of the first measured mode of a test: its lowest mode, or the first clear peak of its FRFs."""
    if isinstance(test, ModesTest):
        return float(jnp.min(test.frequency_hz))
    weight = np.asarray(test.weight) > 0.0
    size = np.where(weight, np.abs(np.asarray(test.measured)), 0.0)
    level = np.log10(np.sqrt((size**2).sum(axis=(1, 2))) + 1e-300)
    peaks, _ = find_peaks(level, prominence=0.1)
    return float(test.omega[peaks[0]]) / (2 * np.pi) if peaks.size else None
