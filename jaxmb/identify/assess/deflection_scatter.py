"""Scatter of identified values with the number of load cases and with the errors of the instruments."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float, Int

from jaxmb.identify.assess.estimate import Estimate, Linear
from jaxmb.identify.experiments.components import Equations
from jaxmb.identify.experiments.deflections.deflection_test import DeflectionEntry, DeflectionSource
from jaxmb.identify.experiments.deflections.load_cases import LoadCase, measured_displacements, predicted
from jaxmb.identify.fit.linear import linear_step
from jaxmb.identify.study.reading.deflections import measured_with
from jaxmb.machine.build import Model

MOST_COUNTS = 24
"""Largest number of counts of load cases at which convergence is evaluated."""
MOST_ORDERS, LEAST_ORDERS = 50, 4
MOST_ROWS = 200_000
"""Total rows of all fits above which fewer orders are evaluated."""
AT_ONCE = 20_000
"""Batch size of simulated load cases."""


@dataclasses.dataclass(frozen=True, eq=False)
class Convergence:
    """Identified values from increasing numbers of load cases, in random orders."""

    counts: np.ndarray
    """Numbers of load cases [k]."""
    values: Float[np.ndarray, "orders k d"]
    """Physical values; NaN where not identifiable from so few."""


def convergence(linear: Linear, seed: int, robust: bool = False) -> Convergence:
    """Values identified from 1, 2, ... load cases, in random orders without repetition.

    Args:
        linear: solution of the study.
        seed: of the orders.
        robust: see `linear_step`.

    Source: Dumas et al. 2011, Fig. 5.
    """
    found, rows = linear.unknowns, linear.equations
    cases = int(rows.case.max()) + 1
    counts = np.unique(np.round(np.linspace(1, cases, min(cases, MOST_COUNTS))).astype(int))
    orders = int(np.clip(2 * MOST_ROWS // (counts.size * rows.case.size), LEAST_ORDERS, MOST_ORDERS))
    draw = np.random.default_rng(seed)
    size = found.lower.size
    values = np.full((orders, counts.size, size), np.nan)
    for k in range(orders):
        order = draw.permutation(cases)
        for i, count in enumerate(counts):
            chosen = np.isin(rows.case, order[:count])
            some = Equations(*(part[chosen] for part in rows))
            if some.measured.size >= size:
                step = linear_step(found, some, linear.start, robust)
                values[k, i] = np.where(np.isfinite(step.known.std), found.decode(step.x), np.nan)
    return Convergence(counts, values)


@dataclasses.dataclass(frozen=True, eq=False)
class MonteCarlo:
    """Identified values of repeated draws of all errors of the instruments."""

    values: Float[np.ndarray, "draws d"]
    """Physical values."""
    std: Float[np.ndarray, "d"]
    """Standard deviation; inf where the tests do not determine a value. That of a stiffness k = 1 / c is k^2 std(c)."""
    clipped: Int[np.ndarray, "d"]
    """Number of draws in which a compliance ended on a bound. Many such draws make the standard deviation too small."""


def monte_carlo(estimate: Estimate, entries: Sequence[DeflectionEntry], draws: int, robust: bool = False) -> MonteCarlo:
    """Standard deviations of the identified values under the errors of the instruments.

    Measurements of the identified machine are simulated with resampled errors of tracker, balance and encoders, and the
    values identified from each. Tests without instruments have the standard deviations of their displacements.

    The relative scatter of a stiffness is that of its compliance, in which errors are linear: std(k) / k = std(c) / c.
    The scatter of the stiffnesses themselves would be dominated by draws with a compliance on its lower bound.

    Args:
        estimate: of a linear study.
        entries: its fitted tests.
        draws: number of draws.
        robust: see `linear_step`.

    Source: Dumas et al. 2011, section V.B and Table II.
    """
    if estimate.linear is None:
        raise ValueError("the study is not linear, expected one with a linear step")
    found, base, _, start = estimate.linear
    rows = np.concatenate([np.arange(r.start, r.stop) for _, _, r in estimate.of(entries)])
    read = measured_displacements([case for entry in entries for case in entry.source.cases])[0]
    tests = [entry.test for entry, _, _ in estimate.of(entries)]
    ends = np.cumsum([test.rows for test in tests])[:-1]
    # All other measurements are resampled from their standard deviations.
    exact, draw = base.matrix @ found.encode(estimate.values), np.random.default_rng(estimate.seed)
    size = found.lower.size
    x, unknown, clipped = np.empty((draws, size)), np.zeros(size, bool), np.zeros(size, int)
    for k, measured in enumerate(drawn_displacements(estimate.model, entries, draws, estimate.seed)):
        again = exact + base.std * draw.normal(size=exact.size) if rows.size < exact.size else exact.copy()
        # Contributions of fixed values are subtracted from every draw as from the measurement.
        change = np.split(measured - read, ends)
        again[rows] = base.measured[rows] + np.concatenate(
            [test.independent(part) for test, part in zip(tests, change, strict=True)]
        )
        step = linear_step(found, base._replace(measured=again), start, robust)
        x[k] = step.x
        unknown |= ~np.isfinite(step.known.std)
        clipped += step.on_bound
    identified = found.encode(estimate.values)
    slope = np.where(found.reciprocal, 1.0 / np.where(found.reciprocal, identified, 1.0) ** 2, 1.0)
    values = np.stack([found.decode(c) for c in x])
    return MonteCarlo(values, np.where(unknown, np.inf, slope * x.std(axis=0, ddof=1)), clipped)


def drawn_displacements(
    model: Model, entries: Sequence[DeflectionEntry], draws: int, seed: int
) -> Iterator[Float[np.ndarray, "m"]]:
    """Measured displacements of some tests, resampled with errors of the instruments.

    Args:
        model: the measured machine.
        entries: deflection tests; without instruments the standard deviations of displacements are used.
        draws: number of draws.
        seed: of the errors.
    """
    draw = np.random.default_rng(seed)
    count = sum(len(entry.source.cases) for entry in entries)
    for first in range(0, draws, batch := max(1, AT_ONCE // count)):
        seen = [_resampled(model, entry.source, min(batch, draws - first), draw) for entry in entries]
        for again in zip(*seen, strict=True):
            yield measured_displacements([case for cases in again for case in cases])[0]


def _resampled(model: Model, source: DeflectionSource, times: int, draw: np.random.Generator) -> list[list[LoadCase]]:
    """Resampled load cases of a test, so many times."""
    size = len(source.cases)
    if source.instruments is not None:
        seen = measured_with(model, source.cases * times, source.instruments, draw)
        return [seen[k * size : (k + 1) * size] for k in range(times)]
    displacements = predicted(model, source.cases)
    return [
        [
            dataclasses.replace(
                case, displacement=np.where(case.measured, d + case.std * draw.normal(size=d.shape), np.nan)
            )
            for case, d in zip(source.cases, displacements, strict=True)
        ]
        for _ in range(times)
    ]
