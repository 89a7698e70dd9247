"""Predicted and measured deflections: comparison by point, shares of elastic elements, and scatter of the identified
values with the number of load cases and with the errors of the instruments."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmb.compiled import compiled
from jaxmb.identify.assess.estimate import Estimate, LinearSystem
from jaxmb.identify.estimation.identifiability import Identifiability
from jaxmb.identify.experiments.components import Equations
from jaxmb.identify.experiments.deflections.deflection_test import (
    AffineStiffness,
    DeflectionEntry,
    DeflectionSource,
    DeflectionTest,
    deflection_test,
)
from jaxmb.identify.experiments.deflections.load_cases import LoadCase, measured_displacements, predicted
from jaxmb.identify.fit.linear import linear_step
from jaxmb.identify.fit.problem import Problem
from jaxmb.identify.study.reading.deflections import measured_with
from jaxmb.io.validation import Table
from jaxmb.machine.build import Model


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
    with_loaded_stiffness = dataclasses.replace(test, at_point=test.effort)
    scales = jnp.zeros(sum(map(len, _elements(model))))
    shares = -100.0 * np.asarray(_logarithmic_slope(with_loaded_stiffness, model, jnp.asarray(first), scales))
    names = [name for part in _elements(model) for name in part]
    return dict(zip(names, shares.tolist(), strict=True))


def deflection_budgets(entries: Sequence[DeflectionEntry], model: Model) -> dict[str, dict[str, float]]:
    """`deflection_budget` of deflection tests, by name."""
    return {entry.name: deflection_budget(entry.test, model) for entry in entries}


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
        return jnp.log(jnp.sum(test.predict(test.view(scaled))[first]))

    return jax.grad(logarithm)(scales)


DEGREES = 180.0 / np.pi
NO_EFFECT = 1e-9
"""Part of a slope, or of the largest singular value, that counts as rounding."""

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
        if unit == "mm":
            return Displacement(self.measured_mm, self.measured_std_mm, self.predicted_mm, self.predicted_std_mm)
        return Displacement(self.measured_deg, self.measured_std_deg, self.predicted_deg, self.predicted_std_deg)


@dataclasses.dataclass(frozen=True, eq=False)
class Gaps:
    """Measured displacements and prediction errors, mm or deg; None where nothing of the kind was measured."""

    mean_measured: float | None
    max_measured: float | None
    rms_measured: float | None
    mean_gap: float | None
    max_gap: float | None
    rms_gap: float | None
    explained_percent: float | None
    """100 (1 - RMS of the prediction error / RMS of the measured displacement)."""

    def with_unit(self, unit: Unit) -> dict[str, float | None]:
        """The values by names with their unit as suffix."""
        lengths = [field.name for field in dataclasses.fields(self)][:-1]
        named = {f"{name}_{unit}": getattr(self, name) for name in lengths}
        return named | {"explained_percent": self.explained_percent}


@dataclasses.dataclass(frozen=True, eq=False)
class SetGaps:
    """Prediction errors of the identified machine in one test."""

    set: str
    """Name of the test."""
    role: str
    tests: int
    """Number of load cases."""
    translation: Gaps
    rotation: Gaps

    def gaps(self, unit: Unit) -> Gaps:
        """Gaps of translations ("mm") or rotations ("deg")."""
        return self.translation if unit == "mm" else self.rotation

    def as_plain(self) -> dict[str, object]:
        """Plain data in the layout of result.json."""
        translation, rotation = self.translation.with_unit("mm"), self.rotation.with_unit("deg")
        return {**dataclasses.asdict(self), "translation": translation, "rotation": rotation}

    @classmethod
    def from_plain(cls, data: Table) -> "SetGaps":
        """From result.json."""
        translation = {name.removesuffix("_mm"): value for name, value in data["translation"].items()}
        rotation = {name.removesuffix("_deg"): value for name, value in data["rotation"].items()}
        return cls(data["set"], data["role"], data["tests"], Gaps(**translation), Gaps(**rotation))


def compared(entry: DeflectionEntry, problem: Problem, u: np.ndarray, known: Identifiability) -> list[DeflectionRow]:
    """Measured and predicted displacement of each point in each load case, with standard deviations.

    Standard deviations of predictions are propagated from the identified values, to first order.

    Args:
        entry: a deflection test.
        problem: the machine and its free parameters.
        u: the identified entries [d].
        known: of u.

    Returns:
        A line for each point of each load case; mm and deg about and along ground axes.
    """
    cases = entry.source.cases
    whole = [dataclasses.replace(case, displacement=np.zeros_like(case.displacement)) for case in cases]
    test = deflection_test("", problem.model, whole)
    affine = test.evaluation.affine_view(problem.model, problem.free)
    displacements, slope = (np.asarray(x) for x in _predicted(problem, test, affine, jnp.asarray(u)))
    deviations = propagated_std(slope, known)
    pairs = iter(zip(displacements.reshape(-1, 6), deviations.reshape(-1, 6), strict=True))
    rows = []
    for case in cases:
        for p, point in enumerate(case.points):
            predicted, deviation = next(pairs)
            numbers = case.displacement[p], case.std[p], predicted, deviation
            mm, deg = [1e3 * x[:3] for x in numbers], [DEGREES * x[3:] for x in numbers]
            rows.append(DeflectionRow(entry.name, entry.role, case.name, point, *mm, *deg))
    return rows


def propagated_std(slope: Float[np.ndarray, "m d"], known: Identifiability) -> Float[np.ndarray, "m"]:
    """Standard deviation of quantities with some derivatives by u, to first order; NaN where unknown.

    It is unknown where a quantity depends on a direction without effect on the data, or on a parameter whose standard
    deviation was set to infinity. Where a standard deviation was inflated, the additional variance is included.
    """
    variance = np.maximum(np.einsum("mi,ij,mj->m", slope, known.covariance, slope), 0.0)
    stated = np.maximum(np.diag(known.covariance), 0.0)
    finite = np.isfinite(known.std)
    variance += slope[:, finite] ** 2 @ np.maximum(known.std[finite] ** 2 - stated[finite], 0.0)
    open_ = known.directions[:, known.singular_values <= NO_EFFECT * known.singular_values.max(initial=0.0)]
    size = np.linalg.norm(slope, axis=1)
    undetermined = np.abs(slope[:, ~finite & (stated > 0.0)]).sum(axis=1) + np.linalg.norm(slope @ open_, axis=1)
    return np.where(undetermined > NO_EFFECT * size, np.nan, np.sqrt(variance))


@compiled
def _predicted(
    problem: Problem, test: DeflectionTest, affine: AffineStiffness | None, u: Float[Array, "d"]
) -> tuple[Array, Array]:
    """Displacements at u and their derivatives by u, from the reduced view where there is one."""

    def displacements(x: Array) -> Array:
        values = problem.free.values(x)
        return test.predict(test.view(problem.free.apply(problem.model, values)) if affine is None else affine(values))

    return displacements(u), jax.jacfwd(displacements)(u)


def gaps(rows: Sequence[DeflectionRow], unit: Unit) -> Gaps:
    """Mean, largest and root mean square displacement, and prediction error.

    Args:
        rows: from `compared`.
        unit: "mm" for translations, "deg" for rotations.
    """
    displacements = [
        displacement for displacement in (row.displacement(unit) for row in rows) if displacement.seen.any()
    ]
    if not displacements:
        return Gaps(*[None] * 7)
    lengths = []
    for values in (
        [np.linalg.norm(displacement.measured[displacement.seen]) for displacement in displacements],
        [np.linalg.norm(displacement.missed[displacement.seen]) for displacement in displacements],
    ):
        lengths += [float(np.mean(values)), float(np.max(values)), float(np.sqrt(np.mean(np.square(values))))]
    total, error = lengths[2], lengths[5]
    return Gaps(*lengths, explained_percent=100.0 * (1.0 - error / total) if total else None)


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
                step = linear_step(found, some, linear.start, robust)
                values[k, i] = np.where(np.isfinite(step.identifiability.std), found.decode(step.x), np.nan)
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
    identified = found.encode(estimate.values)
    slope = np.where(found.reciprocal, 1.0 / np.where(found.reciprocal, identified, 1.0) ** 2, 1.0)
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
