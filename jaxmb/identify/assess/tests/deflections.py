"""Metrics and remarks of deflection tests.

A remark names the common factor of a column that would correct a poor fit, of a wrong unit or a reversed sign.
Displacements are linear in compliances and in loads, so a factor common to all of them is absorbed by the compliances
and is not identifiable. It is identifiable where another quantity fixes the scale: translations with rotations, forces
with moments, one set of tests with the others, or non-negative, fixed or bounded compliances.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jaxtyping import Float

from jaxmb.identify.assess.deflections import (
    Convergence,
    DeflectionRow,
    MonteCarlo,
    SetGaps,
    Unit,
    compared,
    convergence,
    deflection_budgets,
    gaps,
    monte_carlo,
)
from jaxmb.identify.assess.estimate import Estimate, LinearSystem
from jaxmb.identify.assess.metrics import KindMetrics
from jaxmb.identify.experiments.components import is_robust
from jaxmb.identify.experiments.deflections.deflection_test import DeflectionEntry, deflection_test
from jaxmb.identify.experiments.deflections.load_cases import LoadCase, measured_displacements
from jaxmb.identify.experiments.test import Entry
from jaxmb.identify.fit.linear import linear_equations, linear_step
from jaxmb.identify.stiffness_model.variants import StiffnessModel, least_squares
from jaxmb.identify.study.study import Study
from jaxmb.io.files import restored
from jaxmb.io.validation import Table, display_name
from jaxmb.machine.beam import ROUNDING, least_scaled_eigenvalue
from jaxmb.machine.build import Model
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
        rows = [
            row
            for entry in entries
            for row in compared(entry, estimate.study.problem, estimate.u, estimate.identifiability)
        ]

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
    causes = factor_remarks(fitted, unexplained_share(estimate.study, linear))
    causes += size_remarks(fitted)
    if not (causes or linear.step.misfit.explained or estimate.goodness.misfit_tolerated):
        causes = [CAUSES]
    doubts = spring_remarks(estimate.study.machine_with(estimate.model))
    doubts += [
        f"{line.parameter} ended on its bound in {line.clipped} of {line.draws} draws, so that its standard"
        " deviation is too small"
        for line in metrics.table2 or ()
        if line.clipped
    ]
    return causes, doubts


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


def _table2(estimate: Estimate, linear: LinearSystem, drawn: MonteCarlo | None) -> tuple[ErrorRow, ...]:
    study, fit, rows = estimate.study, linear.step, []
    for i, (name, value) in enumerate(zip(study.free.names, estimate.values, strict=True)):
        known = bool(np.isfinite(fit.identifiability.std[i]))
        scale = study.free.slope(estimate.values)[i]
        # from the instruments only, as the draws: not inflated by a misfit
        first_order = float("inf") if fit.on_bound[i] else float(fit.identifiability.std[i] * scale)
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


GROSS = 0.3
"""Residual share of the displacements above which a factor is searched. A wrong factor leaves all of a kind or set,
half of the mean square of two and a fifth of that of five; models of joints without links leave 0.1 to 0.2."""
LARGEST_CORRECTED = 1.0 / 3.0
"""Largest residual share with a factor, over that without, at which the factor is reported."""
EQUIVALENT = 0.01
"""Difference of shares up to which factors are equivalent."""
DEGREE = 180.0 / np.pi
FACTORS = {"-1": -1.0, "1000": 1e3, "1/1000": 1e-3}
OF_ANGLES = {"57.3": DEGREE, "1/57.3": 1.0 / DEGREE}

Cases = Sequence[Sequence[LoadCase]]
"""Load cases of each test."""
UnexplainedShare = Callable[[Cases], float]


def unexplained_share(study: Study, linear: LinearSystem) -> UnexplainedShare:
    """Function that returns the residual share of displacements of load cases in a fit of the free parameters, scaled
    by `share_scale`."""

    def share(cases: Cases) -> float:
        tests = [deflection_test(str(k), study.model, some) for k, some in enumerate(cases)]
        rows = linear_equations(study.model, study.free, tests)
        rows = rows._replace(std=share_scale(cases), weight=np.ones(rows.measured.size))
        return float(np.sqrt(linear_step(linear.unknowns, rows, linear.start).cost))

    return share


def unexplained_share_by(stiffness: StiffnessModel, model: Model) -> UnexplainedShare:
    """Function that returns the residual share of displacements of load cases in a fit of a stiffness model, scaled by
    `share_scale`."""

    def share(cases: Cases) -> float:
        every = [case for some in cases for case in some]
        measured, scale = measured_displacements(every)[0], share_scale(cases)
        fit = least_squares(stiffness, stiffness.observation(model, every), measured, scale)
        return float(np.linalg.norm(fit.residual / scale))

    return share


def share_scale(cases: Cases) -> Float[np.ndarray, "m"]:
    """Scale of each measured displacement with which the squared residuals sum to the mean residual share of the
    translations and rotations of all tests; independent of units."""
    scale, groups = [], 0
    for some in cases:
        values, std = measured_displacements(some)
        turns = np.concatenate([np.broadcast_to(np.arange(6) > 2, c.measured.shape)[c.measured] for c in some])
        size = np.empty(values.size)
        for kind in (turns, ~turns):
            if kind.any():
                size[kind] = np.sqrt(kind.sum()) * (float(np.sqrt(np.mean(values[kind] ** 2))) or float(std.min()))
                groups += 1
        scale.append(size)
    return np.sqrt(groups) * np.concatenate(scale)


def factor_remarks(entries: Sequence[Entry], misfit: UnexplainedShare) -> list[str]:
    """A sentence on the factors of a column that remove gross errors of a fit; empty where there are none.

    Args:
        entries: the fitted deflection tests.
        misfit: returns the residual share of displacements of load cases.
    """
    before = misfit([entry.source.cases for entry in entries])
    if before <= GROSS:
        return []
    tried = [(change, misfit(changed)) for change, changed in _candidates(entries)]
    least = min(share for _, share in tried)
    if least > LARGEST_CORRECTED * before:
        return []
    best = " or ".join(change for change, share in tried if share <= least + EQUIVALENT)
    return [
        f"the residual is {100.0 * before:.3g} % of the displacements, and {100.0 * least:.2g} % with {best}: is a"
        " column in another unit, or its sign reversed?"
    ]


def _candidates(entries: Sequence[Entry]) -> Iterator[tuple[str, Cases]]:
    """Load cases scaled by each factor that is identifiable, with its text."""
    cases = [entry.source.cases for entry in entries]
    every = [case for some in cases for case in some]
    whole, translations, rotations = np.ones(6), np.repeat([1.0, 0.0], 3), np.repeat([0.0, 1.0], 3)
    columns: list[tuple[str, dict[str, float], str, np.ndarray, int | None]]
    columns = [("all displacements", FACTORS, "displacement", whole, None)]
    measured = np.any([case.measured.any(axis=0) for case in every], axis=0)
    if measured[:3].any() and measured[3:].any():
        columns += [
            ("translations", FACTORS, "displacement", translations, None),
            ("rotations", FACTORS | OF_ANGLES, "displacement", rotations, None),
        ]
    loaded = np.any([case.wrench != 0.0 for case in every], axis=0)
    if loaded[:3].any() and loaded[3:].any():
        columns += [("forces", FACTORS, "wrench", translations, None), ("moments", FACTORS, "wrench", rotations, None)]
    columns += [
        (f"the displacements of '{entry.name}'", FACTORS, "displacement", whole, k)
        for k, entry in enumerate(entries if len(entries) > 1 else ())
    ]
    for what, factors, field, which, only in columns:
        for text, factor in factors.items():
            scale = np.where(which, factor, 1.0)
            yield (
                f"{what} times {text}",
                [
                    some if only not in (None, k) else [_scaled(case, field, scale) for case in some]
                    for k, some in enumerate(cases)
                ],
            )


def _scaled(case: LoadCase, field: str, scale: Float[np.ndarray, "6"]) -> LoadCase:
    return dataclasses.replace(case, **{field: getattr(case, field) * scale})
