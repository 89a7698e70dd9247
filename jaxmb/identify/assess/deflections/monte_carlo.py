"""How far identified values scatter: with the number of tests, and with the errors of the instruments."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float, Int

from jaxmb.identify.assess.deflections.solve import Equations, Unknowns, equations, fit_deflections
from jaxmb.identify.experiments.load_cases import DeflectionTest, measured_displacements, predicted
from jaxmb.identify.study.reading.deflections import DeflectionSet
from jaxmb.identify.study.simulation.deflections import measured_with
from jaxmb.machine.build import Model
from jaxmb.mechanics.compliance import compliance_matrix

MOST_COUNTS = 24
"""Numbers of tests at which convergence is looked at."""
MOST_ORDERS, LEAST_ORDERS = 50, 4
MOST_ROWS = 200_000
"""Rows of all fits together that convergence may take before it looks at fewer orders."""
AT_ONCE = 20_000
"""Tests that are simulated together."""


@dataclasses.dataclass(frozen=True, eq=False)
class Convergence:
    """Identified values from the first tests of random orders."""

    counts: np.ndarray
    """Numbers of tests [k]."""
    values: Float[np.ndarray, "orders k d"]
    """Physical values; NaN where so few tests do not determine one."""


def convergence(
    found: Unknowns, rows: Equations, initial: Float[np.ndarray, "d"], seed: int, robust: bool = False
) -> Convergence:
    """Values from 1, 2, ... tests out of all, in random orders without repetition.

    Args:
        found: what is to be found.
        rows: of all tests.
        initial: see `fit_deflections`.
        seed: of the orders.
        robust: see `fit_deflections`.

    Source: Dumas et al. 2011, Fig. 5.
    """
    tests = int(rows.test.max()) + 1
    counts = np.unique(np.round(np.linspace(1, tests, min(tests, MOST_COUNTS))).astype(int))
    orders = int(np.clip(2 * MOST_ROWS // (counts.size * rows.test.size), LEAST_ORDERS, MOST_ORDERS))
    draw = np.random.default_rng(seed)
    size = len(found.terms)
    values = np.full((orders, counts.size, size), np.nan)
    for k in range(orders):
        order = draw.permutation(tests)
        for i, count in enumerate(counts):
            some = rows.of_tests(order[:count])
            if some.displacement.size >= size:
                fit = fit_deflections(found, some, initial, robust)
                values[k, i] = np.where(np.isfinite(fit.known.std), found.values(fit.compliance), np.nan)
    return Convergence(counts, values)


@dataclasses.dataclass(frozen=True, eq=False)
class MonteCarlo:
    """Identified values of repeated draws of all errors of the instruments."""

    values: Float[np.ndarray, "draws d"]
    """Physical values."""
    std: Float[np.ndarray, "d"]
    """Standard deviation; inf where the tests do not determine a value. That of a stiffness k = 1 / c is k^2 std(c)."""
    clipped: Int[np.ndarray, "d"]
    """Number of draws in which noise took a compliance to its least, which is the upper bound of a stiffness. Where
    they are many, the standard deviation is too small."""


def monte_carlo(
    model: Model,
    found: Unknowns,
    sets: Sequence[DeflectionSet],
    initial: Float[np.ndarray, "d"],
    draws: int,
    seed: int,
) -> MonteCarlo:
    """Standard deviations of the identified values under the errors of the instruments.

    The tests are measured again and again on the machine as it was identified, each time with other errors of tracker,
    balance and encoders, and the values identified anew from what was read. A set without instruments is measured with
    the standard deviations of its displacements.

    The scatter of a stiffness is that of its compliance, in which errors are linear: std(k) / k = std(c) / c. That of
    the drawn stiffnesses would be the upper bound's where noise takes a compliance to its least.

    Args:
        model: the identified machine's.
        found: what is to be found.
        sets: whose tests are fitted.
        initial: see `fit_deflections`.
        draws: how many times.
        seed: of the errors.

    Source: Dumas et al. 2011, section V.B and Table II.
    """
    robust = any(group.robust for group in sets)
    base = equations(model, found, sets)
    # What is not free is subtracted from every draw as it was from the measurement.
    held = measured_displacements([test for group in sets for test in group.tests])[0] - base.displacement
    compliance, unknown = np.empty((draws, len(found.terms))), np.zeros(len(found.terms), bool)
    clipped = np.zeros(len(found.terms), int)
    for k, measured in enumerate(drawn_displacements(model, sets, draws, seed)):
        fit = fit_deflections(found, dataclasses.replace(base, displacement=measured - held), initial, robust)
        compliance[k] = fit.compliance
        unknown |= ~np.isfinite(fit.known.std)
        clipped += fit.on_bound
    whole = np.asarray(compliance_matrix(model, model.reference))
    identified = np.array([whole[term[0]] for term in found.terms])
    slope = np.where(found.stiffness, 1.0 / np.where(found.stiffness, identified, 1.0) ** 2, 1.0)
    values = np.stack([found.values(c) for c in compliance])
    return MonteCarlo(values, np.where(unknown, np.inf, slope * compliance.std(axis=0, ddof=1)), clipped)


def drawn_displacements(
    model: Model, sets: Sequence[DeflectionSet], draws: int, seed: int
) -> Iterator[Float[np.ndarray, "m"]]:
    """What was measured in the tests of some sets, read again so many times with other errors of the instruments.

    Args:
        model: the machine that is measured.
        sets: tests and instruments; one without instruments has the standard deviations of its displacements.
        draws: how many times.
        seed: of the errors.
    """
    draw = np.random.default_rng(seed)
    count = sum(len(group.tests) for group in sets)
    for first in range(0, draws, batch := max(1, AT_ONCE // count)):
        seen = [_again(model, group, min(batch, draws - first), draw) for group in sets]
        for again in zip(*seen, strict=True):
            yield measured_displacements([test for tests in again for test in tests])[0]


def _again(model: Model, group: DeflectionSet, times: int, draw: np.random.Generator) -> list[list[DeflectionTest]]:
    """The tests of a set, so many times, each with errors of its own."""
    size = len(group.tests)
    if group.instruments is not None:
        seen = measured_with(model, group.tests * times, group.instruments, draw)
        return [seen[k * size : (k + 1) * size] for k in range(times)]
    moved = predicted(model, group.tests)
    return [
        [
            dataclasses.replace(
                test, displacement=np.where(test.measured, d + test.std * draw.normal(size=d.shape), np.nan)
            )
            for test, d in zip(group.tests, moved, strict=True)
        ]
        for _ in range(times)
    ]
