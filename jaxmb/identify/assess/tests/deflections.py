"""Metrics and remarks of deflection tests: predicted and measured displacements by point, shares of elastic elements,
scatter of the identified values with the number of load cases and with the errors of the instruments.

A remark names the common factor of a column that would correct a poor fit, of a wrong unit or a reversed sign.
Displacements are linear in compliances and in loads, so a factor common to all of them is absorbed by the compliances
and is not identifiable. It is identifiable where another quantity fixes the scale: translations with rotations, forces
with moments, one set of tests with the others, or non-negative, fixed or bounded compliances.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmb.compiled import compiled
from jaxmb.identify.assess.estimate import Estimate, LinearSystem
from jaxmb.identify.assess.metrics import KindMetrics
from jaxmb.identify.assess.remarks import INFLATED
from jaxmb.identify.estimation.identifiability import Identifiability, jacobian_svd, propagated_std, scaled_svd
from jaxmb.identify.estimation.linear import linear_fit
from jaxmb.identify.experiments.components import Equations, is_robust
from jaxmb.identify.experiments.deflections.deflection_test import (
    DeflectionEntry,
    DeflectionSource,
    DeflectionTest,
    deflection_test,
)
from jaxmb.identify.experiments.deflections.load_cases import (
    LoadCase,
    common_errors,
    measured_displacements,
    predicted,
)
from jaxmb.identify.experiments.test import Entry
from jaxmb.identify.fit.linear import linear_equations, linear_step, without_effect
from jaxmb.identify.fit.problem import Problem, is_large, state_of_test
from jaxmb.identify.stiffness_model.variants import StiffnessModel, stiffness_fit
from jaxmb.identify.study.reading.deflections import true_displacements
from jaxmb.identify.study.study import Study
from jaxmb.io.files import restored
from jaxmb.io.validation import Table, display_name
from jaxmb.machine.beam import ROUNDING, least_scaled_eigenvalue
from jaxmb.machine.build import Model
from jaxmb.machine.schema import Machine

CAUSES = (
    "usual causes: a moment or an offset of the tool missing in the loads, axes of another frame, other"
    f" compliance (links, the base, the gripper){INFLATED}"
)
"""Usual reasons why linear models of joints do not reproduce deflections."""


def deflection_budget(test: DeflectionTest, model: Model) -> dict[str, float]:
    """Share of each elastic element in the work of the loads of all cases, equal to its share of strain energy, %.

    The work of a load is its magnitude times the deflection along it, so these are shares of that deflection. With W
    the work and k_i the stiffness of element i, its share is -d ln W / d ln k_i (theorem of Castigliano). With gravity
    stiffness the shares do not sum to 100; rigid elements have none.

    Args:
        test: its postures and loads are used.
        model: of the identified machine.
    """
    _, first = np.unique(np.asarray(test.case), return_index=True)
    scales = jnp.zeros(sum(map(len, _elements(model))))
    shares = -100.0 * np.asarray(_logarithmic_slope(test, model, jnp.asarray(first), scales))
    names = [name for part in _elements(model) for name in part]
    return dict(zip(names, shares.tolist(), strict=True))


def _elements(model: Model) -> tuple[tuple[str, ...], ...]:
    """Names of coordinates, springs between frames, virtual springs and beams."""
    return model.coordinates, model.springs, model.virtual_springs, model.beams


@compiled
def _logarithmic_slope(test: DeflectionTest, model: Model, first: Array, scales: Float[Array, "e"]) -> Array:
    """Derivative of the logarithm of the work by the logarithms of all stiffnesses."""
    ends = np.cumsum([len(part) for part in _elements(model)])[:-1]

    def logarithm(scales: Array) -> Array:
        joint, spring, virtual, beam = (jnp.exp(part) for part in jnp.split(scales, ends))
        scaled = dataclasses.replace(
            model,
            stiffness=model.stiffness * joint,
            spring_stiffness=model.spring_stiffness * spring,
            compliance=model.compliance / virtual[:, None, None],
            young_modulus=model.young_modulus * beam,
            shear_modulus=model.shear_modulus * beam,
        )
        view = test.view(scaled)
        return jnp.log(jnp.sum(test.predict(view._replace(at_point=view.effort))[first]))

    return jax.grad(logarithm)(scales)


DEGREES = 180.0 / np.pi

Unit = Literal["mm", "deg"]
"""Unit of translations, and of rotations."""


class Displacement(NamedTuple):
    """Displacement of one point, along or about ground axes."""

    measured: Float[np.ndarray, "3"]
    """NaN where not measured."""
    measured_std: Float[np.ndarray, "3"]
    predicted: Float[np.ndarray, "3"]
    predicted_std: Float[np.ndarray, "3"]
    """NaN where unknown."""

    @property
    def seen(self) -> np.ndarray:
        """Mask of the measured components [3]."""
        return np.isfinite(self.measured)

    @property
    def missed(self) -> np.ndarray:
        """Measured minus predicted."""
        return self.measured - self.predicted


@dataclasses.dataclass(frozen=True, eq=False)
class DeflectionRow:
    """Measured and predicted displacement of one point in one load case; mm and deg."""

    set: str
    """Name of the test."""
    role: str
    test: str
    """Name of the load case."""
    point: str
    measured_mm: np.ndarray
    measured_std_mm: np.ndarray
    predicted_mm: np.ndarray
    predicted_std_mm: np.ndarray
    measured_deg: np.ndarray
    measured_std_deg: np.ndarray
    predicted_deg: np.ndarray
    predicted_std_deg: np.ndarray

    def displacement(self, unit: Unit) -> Displacement:
        """Translation ("mm") or rotation ("deg")."""
        return Displacement(*(getattr(self, f"{name}_{unit}") for name in Displacement._fields))


Lengths = dict[str, float | None]
"""Mean, largest and root mean square of measured displacements ("mean_measured_mm") and of their prediction errors
("max_gap_deg"), and their explained part, "explained_percent": 100 (1 - RMS of the prediction error / RMS of the
measured displacement). None where nothing of the kind was measured."""


@dataclasses.dataclass(frozen=True, eq=False)
class SetGaps:
    """Prediction errors of the identified machine in one test."""

    set: str
    """Name of the test."""
    role: str
    tests: int
    """Number of load cases."""
    translation: Lengths
    rotation: Lengths

    def explained_percent(self, unit: Unit) -> float | None:
        """Explained part of translations ("mm") or rotations ("deg")."""
        return (self.translation if unit == "mm" else self.rotation)["explained_percent"]


def compared(entry: DeflectionEntry, problem: Problem, u: np.ndarray, known: Identifiability) -> list[DeflectionRow]:
    """Measured and predicted displacement of each point in each load case, with standard deviations.

    Those of the measurement contain the errors of load and posture. Those of predictions are propagated from the
    identified values, to first order.

    Args:
        entry: a deflection test.
        problem: the machine and its free parameters.
        u: the identified entries [d].
        known: of u.

    Returns:
        A line for each point of each load case; mm and deg about and along ground axes.
    """
    cases, instruments = entry.source.cases, entry.source.instruments
    # the residual of displacements of 0 with standard deviations of 1 is the prediction
    whole = [
        dataclasses.replace(case, displacement=np.zeros(case.std.shape), std=np.ones(case.std.shape)) for case in cases
    ]
    identified = problem.free.apply(problem.model, problem.free.values(u))  # its geometry may have been free
    own = entry.test
    test = deflection_test("", identified, whole, gravity=own.gravity, at_equilibrium=own.at_equilibrium)
    affine = test.evaluation.affine_view(problem.model, problem.free)
    displacements, slope = state_of_test(problem, test, u, affine)
    of_model = zip(displacements.reshape(-1, 6), propagated_std(slope, known).reshape(-1, 6), strict=True)
    errors = [case.std.copy() for case in cases]
    if instruments is not None:
        common = common_errors(identified, cases, instruments, entry.test.gravity)
        for std, case, changes in zip(errors, cases, common, strict=True):
            std[case.measured] = np.hypot(std[case.measured], np.linalg.norm(changes, axis=1))
    points = [(case, std, p) for case, std in zip(cases, errors, strict=True) for p in range(len(case.points))]
    rows = list[DeflectionRow]()
    for (case, std, p), (moved, moved_std) in zip(points, of_model, strict=True):
        numbers = case.displacement[p], std[p], moved, moved_std
        mm, deg = [1e3 * x[:3] for x in numbers], [DEGREES * x[3:] for x in numbers]
        rows.append(DeflectionRow(entry.name, entry.role, case.name, case.points[p], *mm, *deg))
    return rows


def gaps(rows: Sequence[DeflectionRow], unit: Unit) -> Lengths:
    """Measured displacements and prediction errors.

    Args:
        rows: from `compared`.
        unit: "mm" for translations, "deg" for rotations.
    """
    seen = [each for each in (row.displacement(unit) for row in rows) if each.seen.any()]
    found: Lengths = {}
    for what, vectors in (("measured", [d.measured for d in seen]), ("gap", [d.missed for d in seen])):
        lengths = [np.linalg.norm(vector[d.seen]) for vector, d in zip(vectors, seen, strict=True)]
        for name, size in (("mean", np.mean), ("max", np.max), ("rms", lambda x: np.sqrt(np.mean(np.square(x))))):
            found[f"{name}_{what}_{unit}"] = float(size(lengths)) if seen else None
    total, error = found[f"rms_measured_{unit}"], found[f"rms_gap_{unit}"]
    return found | {"explained_percent": 100.0 * (1.0 - error / total) if total and error is not None else None}


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


def convergence(linear: LinearSystem, seed: int, robust: bool = False) -> Convergence:
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
                insensitive, std = without_effect(some), some.std / np.sqrt(some.weight)
                matrix = np.where(insensitive, 0.0, some.matrix)
                fit = linear_fit(matrix, some.measured, std, found.lower, found.upper, robust)
                x = np.where(insensitive, found.encode(linear.start), fit.values)
                jacobian = matrix * found.slope(x) * (np.sqrt(fit.weights) / std)[:, None]
                values[k, i] = np.where(jacobian_svd(jacobian).unknown, np.nan, found.decode(x))
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

    Raises:
        ValueError: the study is not linear.

    Source: Dumas et al. 2011, section V.B and Table II.
    """
    if estimate.linear is None:
        raise ValueError("the study is not linear, expected one with a linear step")
    found, base, _, start = estimate.linear
    rows = np.concatenate([np.arange(r.start, r.stop) for _, _, r in estimate.fitted_of(entries)])
    read = measured_displacements([case for entry in entries for case in entry.source.cases])[0]
    # All other measurements are resampled from their standard deviations.
    exact, draw = base.matrix @ found.encode(estimate.values), np.random.default_rng(estimate.seed)
    size = found.lower.size
    x, unknown, clipped = np.empty((draws, size)), np.zeros(size, bool), np.zeros(size, int)
    for k, measured in enumerate(drawn_displacements(estimate.model, entries, draws, estimate.seed)):
        again = exact + base.std * draw.normal(size=exact.size) if rows.size < exact.size else exact.copy()
        # Contributions of fixed values are subtracted from every draw as from the measurement.
        again[rows] = base.measured[rows] + independent_rows(entries, measured - read)
        step = linear_step(found, base._replace(measured=again), start, robust)
        x[k] = step.x
        unknown |= ~np.isfinite(step.identifiability.std)
        clipped += step.on_bound
    slope = np.where(found.reciprocal, estimate.values**2, 1.0)
    values = np.stack([found.decode(c) for c in x])
    return MonteCarlo(values, np.where(unknown, np.inf, slope * x.std(axis=0, ddof=1)), clipped)


def independent_rows(entries: Sequence[DeflectionEntry], rows: np.ndarray) -> np.ndarray:
    """Rows [m] or [m, d] of some tests, decorrelated where errors are common."""
    tests = [entry.test for entry in entries]
    parts = np.split(rows, np.cumsum([test.rows for test in tests])[:-1])
    return np.concatenate([test.independent(part) for test, part in zip(tests, parts, strict=True)])


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
    sag = np.concatenate([_effect_of_sag(model, entry) for entry in entries])
    count = sum(len(entry.source.cases) for entry in entries)
    for first in range(0, draws, batch := max(1, AT_ONCE // count)):
        seen = [_resampled(model, entry.source, min(batch, draws - first), draw) for entry in entries]
        for again in zip(*seen, strict=True):
            yield measured_displacements([case for cases in again for case in cases])[0] + sag


def _effect_of_sag(model: Model, entry: DeflectionEntry) -> Float[np.ndarray, "m"]:
    """Displacements of a test from the equilibrium under the weight, less those at the posture."""
    test, cases = entry.test, entry.source.cases
    if not test.at_equilibrium:
        return np.zeros(test.rows)
    stated = [own[case.measured] for own, case in zip(predicted(model, cases), cases, strict=True)]
    return np.asarray(test.predict(test.view(model))) - np.concatenate(stated)


def _resampled(model: Model, source: DeflectionSource, times: int, draw: np.random.Generator) -> list[list[LoadCase]]:
    """Resampled load cases of a test, so many times; the tracker's errors are the stated ones of each displacement."""
    cases = source.cases * times
    seen = [
        dataclasses.replace(
            case, displacement=np.where(case.measured, true + case.std * draw.normal(size=true.shape), np.nan)
        )
        for case, true in zip(cases, true_displacements(model, cases, source.instruments, draw), strict=True)
    ]
    size = len(source.cases)
    return [seen[k * size : (k + 1) * size] for k in range(times)]


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
class ConvergenceBands:
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
    def from_plain(cls, data: Table) -> "ConvergenceBands":
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
    convergence: ConvergenceBands | None = None
    """Convergence of values with the number of load cases; None for nonlinear studies."""

    @classmethod
    def of_fit(cls, estimate: Estimate, entries: Sequence[DeflectionEntry]) -> "DeflectionMetrics":
        """Metrics of a fit; see `KindMetrics`."""
        rows = [
            row
            for entry in entries
            for row in compared(entry, estimate.study.problem, estimate.u, estimate.identifiability)
        ]
        of_role = {entry.role: [row for row in rows if row.role == entry.role] for entry in entries}
        explained = [
            {role: gaps(each, unit)["explained_percent"] for role, each in of_role.items()} for unit in ("mm", "deg")
        ]
        of_set = {entry.name: [row for row in rows if row.set == entry.name] for entry in entries}
        sets = tuple(
            SetGaps(
                entry.name,
                entry.role,
                len(entry.source.cases),
                gaps(of_set[entry.name], "mm"),
                gaps(of_set[entry.name], "deg"),
            )
            for entry in entries
        )
        metrics = cls(
            sets=sets,
            explained_percent=explained[0],
            explained_rotation_percent=explained[1],
            deflections=tuple(rows),
            budget={entry.name: deflection_budget(entry.test, estimate.model) for entry in entries},
        )
        fitted = [entry for entry in entries if entry.role == "fit"]
        if estimate.linear is None or not fitted:
            return metrics
        draws = max((i.draws for entry in fitted if (i := entry.source.instruments) is not None), default=0)
        robust = any(is_robust(entry.test) for entry in fitted)
        drawn = monte_carlo(estimate, fitted, draws, robust) if draws > 1 else None
        return dataclasses.replace(
            metrics,
            table2=_table2(estimate, estimate.linear, drawn),
            convergence=_convergence_bands(estimate.study, convergence(estimate.linear, estimate.seed, robust)),
        )


def deflection_remarks(
    estimate: Estimate, entries: Sequence[DeflectionEntry], metrics: DeflectionMetrics
) -> tuple[list[str], list[str]]:
    """Likely causes of a poor fit of deflections, and doubts on values of linear studies."""
    fitted, linear = [entry for entry in entries if entry.role == "fit"], estimate.linear
    if linear is None or not fitted:
        return size_remarks(fitted), []
    share = functools.partial(unexplained_share, estimate.study, linear)
    causes = [*factor_remarks(fitted, share), *size_remarks(fitted)]
    if not (causes or linear.step.misfit.explained or estimate.goodness.misfit_tolerated):
        causes = [CAUSES]
    return causes, [
        *spring_remarks(estimate.study.machine_with(estimate.model)),
        *(
            f"{line.parameter} ended on its bound in {line.clipped} of {line.draws} draws, so that its standard"
            " deviation is too small"
            for line in metrics.table2 or ()
            if line.clipped
        ),
    ]


SAG = 2.0
"""Change of a parameter by the sag, over its standard deviation without the sag, above which a remark states it: the
95 % interval without it does not contain the true value."""


def errors_by_sag(estimate: Estimate, entries: Sequence[DeflectionEntry]) -> tuple[Float[np.ndarray, "d d"], list[str]]:
    """Covariance of u due to the linearization of measured deflections at the posture: the square of its change, to
    first order, by the deflection under weight and load; and a remark on a large change.

    Args:
        estimate: a fit.
        entries: the deflection tests of its study.
    """
    size, change = estimate.u.size, np.zeros(estimate.residual.size)
    for entry, view, rows in estimate.fitted_of(entries):
        there = None if entry.truth is not None else entry.test.after_sag(estimate.model)
        if there is not None:
            change[rows] = there.residual(there.view(estimate.model)) - entry.test.residual(view)
    if is_large(estimate.study.problem) or not (change.any() and np.isfinite(change).all()):
        return np.zeros((size, size)), []
    shift = -scaled_svd(np.asarray(estimate.jacobian)).solve(change)
    share = np.divide(np.abs(shift), estimate.std, out=np.zeros(size), where=estimate.std > 0.0)
    worst = int(np.argmax(share))
    remark = (
        "deflections are linearized at the stated postures: the sag under weight and load changes"
        f" {estimate.study.free.names[worst]} by {share[worst]:.2g} standard deviations, which contain it"
        ' (linearize_at = "equilibrium" includes the sag)'
    )
    return np.outer(shift, shift), [remark] if share[worst] > SAG else []


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
    least = {spring.name: least_scaled_eigenvalue(spring.matrix) for spring in machine.virtual_spring}
    return [
        f"the compliance of virtual spring '{name}' is not positive semi-definite (least eigenvalue {value:.3g}, scaled"
        " to a diagonal of 1): [complete] gives semi-definite compliances, by minimize_over of jaxmb.estimation"
        for name, value in least.items()
        if value < -ROUNDING
    ]


def _table2(estimate: Estimate, linear: LinearSystem, drawn: MonteCarlo | None) -> tuple[ErrorRow, ...]:
    study, fit, rows, slope = estimate.study, linear.step, [], estimate.study.free.slope(estimate.values)
    for i, (name, value) in enumerate(zip(study.free.names, estimate.values, strict=True)):
        # from the instruments only, as the draws: not inflated by a misfit
        linear_error = float(np.inf if fit.on_bound[i] else (fit.identifiability.std * slope)[i])
        error = float(drawn.std[i]) if drawn is not None else np.nan
        rows.append(
            ErrorRow(
                parameter=name,
                value=float(value) if np.isfinite(fit.identifiability.std[i]) else None,
                error=error,
                percent=100.0 * error / abs(value) if value != 0.0 else np.nan,
                linear_error=linear_error,
                linear_percent=100.0 * linear_error / abs(value) if value != 0.0 else np.nan,
                draws=0 if drawn is None else len(drawn.values),
                clipped=0 if drawn is None else int(drawn.clipped[i]),
            )
        )
    return tuple(rows)


def _convergence_bands(study: Study, found: Convergence) -> ConvergenceBands:
    """Median and central 90 % interval of each value, by number of load cases."""
    # NaN where an order does not determine the value, to avoid a selection bias
    values = np.where(np.isfinite(found.values), found.values, np.nan)
    bands = np.quantile(values, (0.05, 0.5, 0.95), axis=0)
    by_name = {name: Band(*bands[:, :, i]) for i, name in enumerate(study.free.names)}
    return ConvergenceBands(tuple(found.counts.tolist()), len(found.values), by_name)


GROSS = 0.3
"""Residual share of the displacements above which a factor is searched. A wrong factor leaves all of a kind or set,
half of the mean square of two and a fifth of that of five; models of joints without links leave 0.1 to 0.2."""
LARGEST_CORRECTED = 1.0 / 3.0
"""Largest residual share with a factor, over that without, at which the factor is reported."""
EQUIVALENT = 0.01
"""Difference of shares up to which factors are equivalent."""
FACTORS = {"-1": -1.0, "1000": 1e3, "1/1000": 1e-3}
OF_ANGLES = {"57.3": DEGREES, "1/57.3": 1.0 / DEGREES}

Cases = Sequence[Sequence[LoadCase]]
"""Load cases of each test."""


def unexplained_share(study: Study, linear: LinearSystem, cases: Cases) -> float:
    """Residual share of displacements of load cases in a fit of the free parameters, scaled by `share_scale`."""
    tests = [deflection_test(str(k), study.model, some) for k, some in enumerate(cases)]
    rows = linear_equations(study.model, study.free, tests)
    rows = rows._replace(std=share_scale(cases), weight=np.ones(rows.measured.size))
    return float(np.sqrt(linear_step(linear.unknowns, rows, linear.start).cost))


def unexplained_share_by(stiffness: StiffnessModel, model: Model, cases: Cases) -> float:
    """Residual share of displacements of load cases in a fit of a stiffness model, scaled by `share_scale`."""
    every = [case for some in cases for case in some]
    measured, scale = measured_displacements(every)[0], share_scale(cases)
    fit = stiffness_fit(stiffness, stiffness.observation(model, every), measured, scale)
    return float(np.linalg.norm(fit.residual / scale))


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


def factor_remarks(entries: Sequence[Entry], misfit: Callable[[Cases], float]) -> list[str]:
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
    columns: list[tuple[str, dict[str, float], str, np.ndarray, int | None]] = [
        ("all displacements", FACTORS, "displacement", whole, None)
    ]
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
                    some
                    if only not in (None, k)
                    else [dataclasses.replace(case, **{field: getattr(case, field) * scale}) for case in some]
                    for k, some in enumerate(cases)
                ],
            )
