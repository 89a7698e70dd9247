"""Metrics and remarks of deflection tests."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxmb.identify.assess.deflection_scatter import Convergence, MonteCarlo, convergence, monte_carlo
from jaxmb.identify.assess.deflections import DeflectionRow, SetGaps, Unit, compared, deflection_budgets, gaps
from jaxmb.identify.assess.estimate import Estimate, Linear
from jaxmb.identify.assess.metrics import KindMetrics
from jaxmb.identify.assess.wrong_units import (
    bound_remarks,
    factor_remarks,
    unexplained,
    values_by_upper_bounds,
)
from jaxmb.identify.experiments.components import is_robust
from jaxmb.identify.experiments.deflections.deflection_test import DeflectionEntry
from jaxmb.identify.study.study import Study
from jaxmb.io.records import restored
from jaxmb.io.validation import Table, display_name
from jaxmb.machine.beam import ROUNDING, least_scaled_eigenvalue
from jaxmb.machine.schema import Machine

CAUSES = (
    "usual causes: a moment or an offset of the tool missing in the loads, axes of another frame, other"
    " compliance (links, the base, the gripper); standard deviations were inflated accordingly"
)
"""Usual reasons why linear models of joints do not reproduce deflections."""


@dataclasses.dataclass(frozen=True, eq=False)
class ErrorRow:
    """A value with its error: a row of Table II of Dumas et al. 2011."""

    parameter: str
    value: float | None
    """None where not identifiable."""
    error: float
    """Standard deviation over Monte-Carlo draws of the errors of the instruments; NaN without draws."""
    percent: float
    linear_error: float
    """Standard deviation propagated from those of the displacements to first order; inf where unknown."""
    linear_percent: float
    draws: int
    clipped: int
    """Number of draws that ended on a bound, which makes the scatter too small."""


@dataclasses.dataclass(frozen=True, eq=False)
class Band:
    """Median and central 90 % interval of a value [k]; NaN where some orders do not determine it."""

    lower: np.ndarray
    median: np.ndarray
    upper: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Settling:
    """Convergence of values with the number of load cases, over random orders."""

    tests: tuple[int, ...]
    """Numbers of load cases [k]."""
    orders: int
    values: dict[str, Band]
    """Intervals by parameter, on the same level in result.json."""

    def as_plain(self) -> dict[str, object]:
        """Plain data in the layout of result.json."""
        return {"tests": self.tests, "orders": self.orders, **self.values}

    @classmethod
    def from_plain(cls, data: Table) -> "Settling":
        """From result.json."""
        values = {name: restored(Band, value) for name, value in data.items() if name not in ("tests", "orders")}
        return cls(tuple(data["tests"]), data["orders"], values)


@dataclasses.dataclass(frozen=True, eq=False)
class DeflectionMetrics(KindMetrics):
    """Additional metrics of deflection tests."""

    sets: tuple[SetGaps, ...]
    explained_percent: dict[str, float | None]
    """Explained part of all translations, by role."""
    explained_rotation_percent: dict[str, float | None]
    deflections: tuple[DeflectionRow, ...]
    budget: dict[str, dict[str, float]] | None = None
    """Share of each elastic element in the deflections along the loads of each test, %."""
    table2: tuple[ErrorRow, ...] | None = None
    """Effect of the errors of the instruments on the values; None for nonlinear studies."""
    convergence: Settling | None = None
    """Convergence of values with the number of load cases; None for nonlinear studies."""

    @classmethod
    def found(cls, estimate: Estimate, entries: Sequence[DeflectionEntry]) -> "DeflectionMetrics":
        """Metrics of a fit; see `KindMetrics`."""
        rows = [row for entry in entries for row in compared(entry, estimate.study.problem, estimate.u, estimate.known)]

        def of_role(unit: Unit) -> dict[str, float | None]:
            roles = dict.fromkeys(entry.role for entry in entries)
            return {role: gaps([row for row in rows if row.role == role], unit).explained_percent for role in roles}

        sets = []
        for entry in entries:
            mine = [row for row in rows if row.set == entry.name]
            sets.append(SetGaps(entry.name, entry.role, len(entry.source.cases), gaps(mine, "mm"), gaps(mine, "deg")))
        metrics = cls(
            tuple(sets), of_role("mm"), of_role("deg"), tuple(rows), deflection_budgets(entries, estimate.model)
        )
        if estimate.linear is None:
            return metrics
        fitted = [entry for entry in entries if entry.role == "fit"]
        draws = max((i.draws for entry in fitted if (i := entry.source.instruments) is not None), default=0)
        robust = any(is_robust(entry.test) for entry in fitted)
        settled = convergence(estimate.linear, estimate.seed, robust)
        drawn = monte_carlo(estimate, fitted, draws, robust) if draws > 1 else None
        return dataclasses.replace(
            metrics, table2=_table2(estimate, estimate.linear, drawn), convergence=_settling(estimate.study, settled)
        )


def deflection_remarks(
    estimate: Estimate, entries: Sequence[DeflectionEntry], metrics: DeflectionMetrics
) -> tuple[list[str], list[str]]:
    """Likely causes of a poor fit of deflections, and doubts on values of linear studies."""
    fitted, linear = [entry for entry in entries if entry.role == "fit"], estimate.linear
    if linear is None:
        return size_remarks(fitted), []
    causes = factor_remarks(fitted, unexplained(estimate.study, linear))
    if linear.step.on_bound.any():
        values = values_by_upper_bounds(linear)
        causes += bound_remarks(linear.unknowns, values, np.isfinite(linear.step.known.std))
    causes += size_remarks(fitted)
    if not causes and not linear.step.misfit.explained:
        causes = [CAUSES]
    springs = spring_remarks(estimate.study.machine_with(estimate.model))
    return causes, springs + _clipped_remarks(metrics.table2 or ())


def size_remarks(entries: Sequence[DeflectionEntry]) -> list[str]:
    """A sentence on each test with all translations, or all rotations, below their standard deviations."""
    sentences = []
    for entry in entries:
        for kind, columns in (("translations", slice(0, 3)), ("rotations", slice(3, 6))):
            share = np.concatenate([np.abs(c.displacement / c.std)[:, columns].ravel() for c in entry.source.cases])
            share = share[np.isfinite(share)]
            if share.size and share.max() < 1.0:
                sentences.append(
                    f"{display_name(entry.name)}: {kind} are smaller than their standard deviation throughout (at most"
                    f" {share.max():.2g} of it): is it the unit?"
                )
    return sentences


def spring_remarks(machine: Machine) -> list[str]:
    """A sentence on each virtual spring whose fitted compliance is not positive semi-definite.

    A linear fit only constrains diagonals to be non-negative.
    """
    sentences = []
    for spring in machine.virtual_spring:
        least = least_scaled_eigenvalue(spring.matrix)
        if least < -ROUNDING:
            sentences.append(
                f"the compliance of virtual spring '{spring.name}' is not positive semi-definite (least eigenvalue"
                f" {least:.3g}, scaled to a diagonal of 1): [complete] gives semi-definite compliances,"
                " by minimise_over of jaxmb.estimation"
            )
    return sentences


def _clipped_remarks(lines: Sequence[ErrorRow]) -> list[str]:
    """A sentence on each value that ended on a bound in some Monte-Carlo draws."""
    return [
        f"{line.parameter} ended on its bound in {line.clipped} of {line.draws} draws, so that its standard"
        " deviation is too small"
        for line in lines
        if line.clipped
    ]


def _table2(estimate: Estimate, linear: Linear, drawn: MonteCarlo | None) -> tuple[ErrorRow, ...]:
    study, fit, rows = estimate.study, linear.step, []
    for i, (name, value) in enumerate(zip(study.free.names, estimate.values, strict=True)):
        known = bool(np.isfinite(fit.known.std[i]))
        scale = study.free.slope(estimate.values)[i]
        # from the instruments only, as the draws: not inflated by a misfit
        first_order = float("inf") if fit.on_bound[i] else float(fit.known.std[i] * scale)
        error = float(drawn.std[i]) if drawn is not None else np.nan
        rows.append(
            ErrorRow(
                parameter=name,
                value=float(value) if known else None,
                error=error,
                percent=100.0 * error / abs(value) if value != 0.0 else np.nan,
                linear_error=first_order,
                linear_percent=100.0 * first_order / abs(value) if value != 0.0 else np.nan,
                draws=0 if drawn is None else len(drawn.values),
                clipped=0 if drawn is None else int(drawn.clipped[i]),
            )
        )
    return tuple(rows)


def _settling(study: Study, settled: Convergence) -> Settling:
    """Median and central 90 % interval of each value, by number of load cases."""
    by_name = {}
    for i, name in enumerate(study.free.names):
        by_count = settled.values[:, :, i].T
        # Only where all orders determine the value, to avoid a selection bias.
        determined = np.isfinite(by_count).all(axis=1)
        bands = np.full((3, len(settled.counts)), np.nan)
        bands[:, determined] = np.quantile(by_count[determined], (0.05, 0.5, 0.95), axis=1)
        by_name[name] = Band(*bands)
    return Settling(tuple(settled.counts.tolist()), len(settled.values), by_name)
