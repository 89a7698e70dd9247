"""Metrics and remarks of torque tests."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxmb.identify.assess.estimate import Estimate
from jaxmb.identify.assess.metrics import KindMetrics
from jaxmb.identify.assess.remarks import grouped
from jaxmb.identify.assess.result import INTERVAL
from jaxmb.identify.estimation.identifiability import (
    RANK_TOLERANCE,
    deviations,
    information_rows,
    scaled_svd,
)
from jaxmb.identify.estimation.reduction import EssentialParameters, essential_parameters
from jaxmb.identify.experiments.components import is_robust
from jaxmb.identify.experiments.torque.source import TorqueEntry
from jaxmb.identify.parameters.free_parameters import FreeParameters, affine_numbers
from jaxmb.identify.parameters.model_parameters import parameters
from jaxmb.identify.regression.torque_regressor import regressor_names

FAR = 0.2
"""Relative change of a Stribeck speed up to which efforts are linear in it."""


@dataclasses.dataclass(frozen=True, eq=False)
class TorqueRow:
    """Measured and predicted efforts at one coordinate."""

    test: str
    role: str
    coordinate: str
    rms: float
    """Root mean square of the measured effort, Nm or N."""
    rms_error: float
    relative_percent: float
    """100 |measured - predicted| / |measured|."""
    essential_percent: float | None = None
    """The same with the essential parameters only; None where these were not determined."""


@dataclasses.dataclass(frozen=True, eq=False)
class BaseRow:
    """A base parameter: a combination of parameters that are identifiable only together."""

    name: str
    """Name of its independent parameter."""
    formula: str
    value: float
    std: float
    """Standard deviation from the free parameters in it; inf where not identifiable from the motions."""
    true: float | None
    """Value of the simulated machine; None for measured data."""
    essential_value: float | None = None
    """Value with all insignificant base parameters set to 0; None for those."""
    essential_std: float | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class CentreRow:
    """A coordinate of the centre of mass of a body or payload whose mass is identified."""

    body: str
    axis: str
    """Axis x, y or z of the body's frame."""
    value: float
    """m."""
    std: float
    """m, with the correlation of first moment and mass; inf where the first moment is unknown."""

    @property
    def interval_95(self) -> tuple[float, float]:
        """95 % interval, m."""
        return self.value - INTERVAL * self.std, self.value + INTERVAL * self.std


class FreeBaseParameters(NamedTuple):
    """Base parameters that depend on free parameters."""

    names: tuple[str, ...]
    """Names of their independent parameters."""
    matrix: Float[np.ndarray, "b p"]
    """Base parameters = matrix @ [all parameters of the regressor]."""
    anything: bool
    """Whether the free values span all values of the base parameters."""


@dataclasses.dataclass(frozen=True, eq=False)
class TorqueMetrics(KindMetrics):
    """Additional metrics of torque tests."""

    torques: tuple[TorqueRow, ...]
    base: tuple[BaseRow, ...] = ()
    centres: tuple[CentreRow, ...] = ()

    @property
    def noise_text(self) -> str:
        """Text on the residual of the fitted tests over the torque, with its range over joints."""
        residual = sorted(row.relative_percent for row in self.torques if row.role == "fit" and row.rms > 0.0)
        ends = dict.fromkeys(f"{percent:.1f}" for percent in (*residual[:1], *residual[-1:]))
        joints = "the torque at each joint" if len(residual) > 1 else "the torque"
        return f"{' to '.join(ends)} % of {joints}" if residual else ""

    @property
    def known_text(self) -> str:
        """Text on the relative standard deviations of base parameters."""
        if not self.base:
            return ""
        share = np.array([row.std / abs(row.value) if row.value else np.inf for row in self.base])
        determined = sum(bool(np.isfinite(row.std)) for row in self.base)
        well, some = int(np.sum(share < 0.1)), int(np.sum((share >= 0.1) & (share < 1.0)))
        return (
            f"{determined} of {len(self.base)} base parameters: {well} with a standard deviation below 10 % of their"
            f" value, {some} more below 100 %"
        )

    @classmethod
    def found(cls, estimate: Estimate, entries: Sequence[TorqueEntry]) -> "TorqueMetrics":
        """Metrics of a fit; see `KindMetrics`."""
        rows = []
        base, free_base = _base_rows(estimate, entries)
        essential, reduce = (
            _essential(estimate, entries, free_base) if _comparable(estimate, entries, free_base) else (None, None)
        )
        for entry in entries:
            test = entry.test
            seen = np.asarray(test.view(estimate.model))
            measured, missed = test.sizes(seen)
            fewer = missed if reduce is None else test.sizes(reduce(seen))[1]
            for name, size, *errors in zip(entry.source.coordinates, measured, missed, fewer, strict=True):
                percent = [100.0 * float(error) / float(size) if size else np.nan for error in errors]
                few = None if reduce is None else percent[1]
                rows.append(TorqueRow(entry.name, entry.role, name, float(size), float(errors[0]), percent[0], few))
        if essential is not None:
            numbers = zip(essential.values.tolist(), essential.std.tolist(), strict=True)
            by_name = dict(zip(essential.names, numbers, strict=True))
            base = tuple(_with_essential(row, *by_name.get(row.name, (None, np.inf))) for row in base)
        return cls(tuple(rows), base, _centres(estimate))


def _with_essential(row: BaseRow, value: float | None, std: float) -> BaseRow:
    return dataclasses.replace(row, essential_value=value, essential_std=std if np.isfinite(std) else None)


def torque_remarks(
    estimate: Estimate, entries: Sequence[TorqueEntry], metrics: TorqueMetrics
) -> tuple[list[str], list[str]]:
    """Sentences on doubtful motions, and on Stribeck speeds far from the values of linearization."""
    causes = grouped((entry.name, text) for entry in entries for text in entry.source.doubts)
    others, first = list[str](), parameters(estimate.study.model)
    for name, value in zip(estimate.study.free.names, estimate.values, strict=True):
        if name.startswith("stribeck_speed.") and abs(value / first[name] - 1.0) > FAR:
            others.append(
                f"{name} changed from {first[name]:.3g}, the value of linearization, to {value:.3g}: bounds or a"
                " prior limit the friction, and efforts of the machine differ from those of the fit"
            )
    return causes, others


def _comparable(estimate: Estimate, entries: Sequence[TorqueEntry], base: FreeBaseParameters) -> bool:
    """Whether least squares over the base parameters is equivalent to the fit without its bounds.

    It is not with a prior, robust weights or tests of other kinds, or where fixed parameters constrain the base
    parameters: with fewer parameters it could then have a smaller residual in these tests.
    """
    tests = estimate.study.tests
    alone = len(tests) == sum(entry.role == "fit" for entry in entries)
    return (
        base.anything
        and alone
        and not estimate.study.free.of_tests
        and estimate.study.problem.prior is None
        and not any(map(is_robust, tests))
    )


def _essential(
    estimate: Estimate, entries: Sequence[TorqueEntry], base_parameters: FreeBaseParameters
) -> tuple[EssentialParameters, Callable[[np.ndarray], np.ndarray]]:
    """Essential base parameters from the fitted torque tests, and a function that reduces a view of the identified
    machine to these."""
    names = regressor_names(estimate.model)
    own = [names.index(name) for name in base_parameters.names]
    parts = [(np.zeros((0, len(own))), np.zeros(0), np.zeros(0))]
    for test in (entry.test for entry in entries if entry.role == "fit"):
        regressor, seen = np.asarray(test.regressor), np.asarray(test.view(estimate.model))
        rest = seen.copy()
        rest[own] -= base_parameters.matrix @ seen[: len(names)]
        without = np.asarray(test.effort) - np.asarray(test.constant) - regressor @ rest
        parts.append((regressor[:, own], without, np.asarray(test.std)))
    matrix, measured, std = (np.concatenate(column) for column in zip(*parts, strict=True))
    found = essential_parameters(matrix, measured, std, base_parameters.names)
    value = dict(zip(found.names, found.values, strict=True))

    def reduce(seen: np.ndarray) -> np.ndarray:
        # the independent parameter of each takes the change of its base parameter
        changed = np.array(seen)
        changed[own] += (
            np.array([value.get(name, 0.0) for name in base_parameters.names])
            - base_parameters.matrix @ changed[: len(names)]
        )
        return changed

    return found, reduce


def _base_rows(estimate: Estimate, entries: Sequence[TorqueEntry]) -> tuple[tuple[BaseRow, ...], FreeBaseParameters]:
    """Base parameters of the identified machine that depend on free parameters."""
    free, names = estimate.study.free, regressor_names(estimate.model)
    test = entries[0].test
    found = test.linear.combinations(estimate.study.model, free)
    by_value = free.slope(estimate.values)
    # derivative of each base parameter by each entry of u
    slope = found.matrix @ affine_numbers(estimate.study.model, free, names)[0] * by_value
    own = np.flatnonzero(slope.any(axis=1))
    freely = slope[own] / np.linalg.norm(slope[own], axis=1, keepdims=True)
    std = _deviations(estimate, slope, _unrelated(freely, free, names))
    if any(entry.source.std_unknown for entry in estimate.study.fitted):
        std = np.full(std.size, np.inf)
    known, true = parameters(estimate.model), next((e.truth.parameters for e in entries if e.truth is not None), None)
    values = found.matrix @ np.array([known[name] for name in names])
    expected = None if true is None else found.matrix @ np.array([true.get(name, np.nan) for name in names])
    rows = tuple(
        BaseRow(found.names[i], found.formulas[i], float(values[i]), float(std[i]),
                None if expected is None else float(expected[i]))
        for i in own
    )  # fmt: skip
    anything = scaled_svd(freely, RANK_TOLERANCE).rank == own.size
    return rows, FreeBaseParameters(tuple(found.names[i] for i in own), found.matrix[own], anything)


def _unrelated(freely: Float[np.ndarray, "b d"], free: FreeParameters, names: Sequence[str]) -> np.ndarray:
    """Directions of the free inertial and friction parameters without effect on base parameters [k, d]."""
    inertial = np.array([tied[0] in names for tied in free.tied], dtype=bool)
    _, values, right = np.linalg.svd(freely[:, inertial])
    found = np.zeros((len(right) - int(np.sum(values > RANK_TOLERANCE)), free.size))
    found[:, inertial] = right[len(right) - len(found) :]
    return found


def _deviations(
    estimate: Estimate, combinations: Float[np.ndarray, "b d"], unrelated: np.ndarray
) -> Float[np.ndarray, "b"]:
    """Standard deviations of base parameters; inf where the tests do not determine them.

    Directions without effect on base parameters are assumed known to the width of their bounds: their effect on the
    data is rounding of angles in the machine description, which would otherwise affect the base parameters.
    """
    weights = estimate.row_weights
    if estimate.linear is not None:
        step = estimate.linear.step
        wide = np.arange(weights.size) < estimate.study.problem.data_rows
        weights = np.where(wide, step.misfit.widening**2, 1.0) * weights
    std = deviations(np.concatenate([information_rows(estimate.jacobian, weights), unrelated]), combinations)
    if estimate.systematic_covariance is None:
        return std
    return np.sqrt(std**2 + np.einsum("bi,ij,bj->b", combinations, estimate.systematic_covariance, combinations))


def _centres(estimate: Estimate) -> tuple[CentreRow, ...]:
    """Centres of mass from free masses and first moments, c = h / m."""
    free, own, found = estimate.study.free, parameters(estimate.model), list[CentreRow]()
    by_value = free.slope(estimate.values)
    single = {name for names in free.tied for name in names}
    for body in estimate.model.masses:
        names = [f"mass.{body}", *(f"first_moment.{body}.{axis}" for axis in "xyz")]
        mass = own[names[0]]
        if names[0] not in single or single.isdisjoint(names[1:]) or not mass > 0.0:
            continue
        share = affine_numbers(estimate.study.model, free, names)[0] * by_value
        known = [bool(np.isfinite(estimate.known.std[row != 0.0]).all()) for row in share]
        for axis, name, is_known, row in zip("xyz", names[1:], known[1:], share[1:], strict=True):
            centre = own[name] / mass
            slope = (row - centre * share[0]) / mass
            std = np.sqrt(slope @ estimate.known.covariance @ slope) if is_known and known[0] else np.inf
            if known[0]:
                found.append(CentreRow(body, axis, centre, float(std)))
    return tuple(found)
