"""Metrics and remarks of pose tests."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
from jaxtyping import Float

from jaxmb.identify.assess.budget import Budget, DescribedTests
from jaxmb.identify.assess.estimate import Estimate, jackknife_covariance
from jaxmb.identify.assess.metrics import KindMetrics
from jaxmb.identify.assess.result import INTERVAL
from jaxmb.identify.estimation.identifiability import COUPLED, propagated_std
from jaxmb.identify.experiments.poses.pose_rows import (
    DISTANCE,
    INCLINATION,
    KIND,
    POSITION,
    ROTATION,
    rotation_of,
    rotation_vector_of,
)
from jaxmb.identify.experiments.poses.pose_test import (
    LEAST_STATIONS,
    PoseEntry,
    PoseTest,
    compiled_errors,
    predicted_poses,
    with_angles,
)
from jaxmb.identify.experiments.tolerances import Tolerances
from jaxmb.identify.fit.noise import excess_correlation_length
from jaxmb.identify.fit.problem import is_large, state_of_test, test_at

PoseErrorStatistics = dict[str, float | None]
"""Errors of predicted poses: lengths, m, and angles, rad; None where nothing of the kind was measured.

"points", "inclinations" and "distances" are numbers of measured ones, a position or pose for each row and point.
"mean", "percentile_95" and "largest" are those of positions; "angle_mean", "inclination_mean", "distance_mean", ... the
same of rotations, inclinations and distances, the latter two only where measured. "covered_percent" is the share of the
components within the 95 % intervals of their predictions, noise included; None before a fit, and where standard
deviations are unknown.
"""


@dataclasses.dataclass(frozen=True, eq=False)
class PoseSet:
    """Errors of the poses of one test before and after the fit."""

    test: str
    role: str
    before: PoseErrorStatistics
    """Of the machine as stated, stations fitted to it."""
    after: PoseErrorStatistics


@dataclasses.dataclass(frozen=True, eq=False)
class PoseRow:
    """Predicted and measured pose of a point in one row, in the axes of the device."""

    test: str
    role: str
    row: str
    point: str
    station: str
    """Empty for a device in the ground frame."""
    before: np.ndarray
    """Predicted minus measured position, rotation vector, inclination in two directions across the vertical, and
    distance, by the machine as stated [9], m and rad; NaN where not measured."""
    error: np.ndarray
    """The same of the identified machine [9]."""
    std: np.ndarray
    """Standard deviation of `error`, of the prediction and of the noise [9]; NaN where unknown."""
    predicted: np.ndarray
    """Position, rotation vector, upward direction in the axes of the point, and distance predicted by the identified
    machine [10], m, rad and 1, also where not measured; NaN of directions and distances where the test measures none of
    the point."""

    @property
    def is_measured(self) -> bool:
        """Whether anything is measured of the point in this row."""
        return bool(np.isfinite(self.error).any())


@dataclasses.dataclass(frozen=True, eq=False)
class PoseMetrics(KindMetrics):
    """Additional metrics of pose tests."""

    poses: PoseErrorStatistics | None
    """Errors of all held-out rows; None without any."""
    pose_sets: tuple[PoseSet, ...]
    pose_rows: tuple[PoseRow, ...]
    pose_std_mm: dict[str, float] | None = None
    """Estimated standard deviation of a component of a position, by name of the tests without a stated one; of a
    distance where nothing else is measured."""
    pose_std_mrad: dict[str, float] | None = None
    """The same of a rotation or inclination, of tests without positions."""

    @classmethod
    def of_fit(cls, estimate: Estimate, entries: Sequence[PoseEntry]) -> "PoseMetrics":
        """Metrics of a fit; see `KindMetrics`."""
        rows, sets, estimated = list[PoseRow](), list[PoseSet](), dict[str, _Estimated]()
        mm, mrad = dict[str, float](), dict[str, float]()
        for entry, _, own in estimate.fitted_of(entries):
            test: PoseTest = entry.test
            if not test.noise.is_known:
                length = excess_correlation_length(test, estimate.residual[own], estimate.stated_variances[own])
                factor = estimate.goodness.misfits[entry.name].factor
                estimated[entry.name] = _Estimated(factor * np.asarray(test.kind_std), length)
                (mrad if test.noise.kind in (1, 2) else mm)[entry.name] = 1e3 * estimate.noise_levels[entry.name]
        for entry in entries:
            own = _rows(estimate, entry, estimated.get(entry.name))
            sets.append(PoseSet(entry.name, entry.role, pose_errors(own, "before"), pose_errors(own, "error")))
            rows += own
        held_out = [row for row in rows if row.role == "check" and row.is_measured]
        return cls(
            poses=pose_errors(held_out, "error") if held_out else None,
            pose_sets=tuple(sets),
            pose_rows=tuple(rows),
            pose_std_mm=mm or None,
            pose_std_mrad=mrad or None,
        )


class _Estimated(NamedTuple):
    """Noise estimated from the residual of a test."""

    kind_std: np.ndarray
    """As `PoseTest.kind_std` [4]."""
    length: float
    """Correlation length in rows, by which the variance of estimates is increased."""


def _rows(estimate: Estimate, entry: PoseEntry, found: _Estimated | None) -> list[PoseRow]:
    """Errors of every point of a test before and after the fit, with standard deviations, also of positions that were
    not measured.

    Args:
        estimate: the fit.
        entry: the test.
        found: its estimated noise; None for the stated one.
    """
    study, whole = estimate.study, entry.test.at_all_points(estimate.model)
    test = dataclasses.replace(whole, scatter=None)
    initial = cast(PoseTest, test_at(test, study.free, estimate.run.initial))
    before = np.asarray(compiled_errors(initial, initial.view(study.free.apply(study.model, estimate.run.initial))))
    residual, slope = _residual_and_slope(estimate, entry, test)
    std = np.asarray(test.std)
    random = _random_displacement(estimate, entry, whole)
    residual, slope = (each - random.change @ own for each, own in zip((residual, slope), random.fitted, strict=True))
    # the misfit of its own fitted rows, if it has any, not that of other tests
    excess = estimate.goodness.untolerated_misfits.get(entry.name, estimate.goodness.untolerated_misfit)
    if found is not None:
        noise = np.asarray(dataclasses.replace(test, kind_std=found.kind_std).std)
    else:
        noise = std * (1.0 if excess is None or excess.explained else excess.factor)
    noise = noise * np.sqrt(1.0 + random.variance)
    # A parameter that is not known, as on a bound, lies somewhere within its bounds; fitted rows did not move it. If it
    # is identifiable in combination with others, the covariance contains the combination.
    unknown = np.subtract(study.free.upper, study.free.lower) / np.sqrt(12.0) if entry.role == "check" else 0.0
    known, by_tolerances = estimate.identifiability, 0.0
    budget, moments = estimate.goodness.budget, estimate.error_moments
    if budget is not None and moments is not None:
        change = np.column_stack([slope, _by_errors(budget, estimate, entry, test)])
        by_tolerances = np.einsum("mi,ij,mj->m", change, moments, change)
        by_noise = np.sqrt(np.maximum(known.std**2 - np.diag(budget.covariance), 0.0))
        known = known._replace(covariance=known.covariance - budget.covariance, std=by_noise)
    unknown = np.where(np.linalg.norm(known.without_effect, axis=1) > COUPLED, 0.0, unknown)
    known = known._replace(std=np.where(np.isinf(estimate.std), unknown, known.std))
    # The noise of a fitted row is a part of what determined its prediction.
    propagated = propagated_std(slope * std[:, None], known) ** 2
    if entry.role == "check":
        variance = noise**2 + propagated
    else:
        variance = np.maximum(noise**2 - propagated / (1.0 if found is None else found.length), 0.0)
    variance = variance + std**2 * by_tolerances
    size = len(entry.source.row), len(test.points)
    measured = np.isin(test.component, entry.test.component)
    errors = (np.where(measured, values, np.nan) for values in (before, residual * std))
    change = -std * (random.change @ random.fitted[0])
    poses, upward = _displaced(test, *predicted_poses(test, estimate.model), change)
    length = np.linalg.norm(poses[..., :3, 3], axis=-1)[..., None] + float(test.offset)
    turns = [[rotation_vector_of(pose) for pose in row] for row in poses[..., :3, :3]]
    predicted = np.concatenate([poses[..., :3, 3], np.reshape(turns, (*size, 3)), upward, length], axis=-1)
    predicted[..., 6:] = np.where(np.repeat(test.kinds, (0, 0, 3, 1), axis=1), predicted[..., 6:], np.nan)
    columns = [*(with_angles(test.by_point(each)) for each in errors), test.by_point(np.sqrt(variance)), predicted]
    names = [test.stations[k] if test.stations else "" for k in np.asarray(test.station).tolist()]
    return [
        PoseRow(entry.name, entry.role, row, point, names[t], *(column[t, p] for column in columns))
        for t, row in enumerate(entry.source.row)
        for p, point in enumerate(test.points)
        if entry.role == "check" or np.isfinite(columns[1][t, p]).any()
    ]


def _by_errors(budget: Budget, estimate: Estimate, entry: PoseEntry, test: PoseTest) -> Float[np.ndarray, "m e"]:
    """Change of the residual of a test by the errors of a budget, each of its likely size.

    Args:
        budget: of the fit.
        estimate: the fit.
        entry: the test.
        test: the same with other components.
    """
    study, there = estimate.study, dataclasses.replace(entry, test=test)
    described = DescribedTests([there], estimate.model, study.free, Tolerances(), study.exact_tests)
    plain, sizes = described.as_described, {error.key: error.std(study.tolerances) for error in budget.errors}
    own = np.reshape([described.residual({key: size}) - plain for key, size in sizes.items()], (-1, test.rows)).T
    return own * budget.factors


def _residual_and_slope(estimate: Estimate, entry: PoseEntry, test: PoseTest) -> tuple[np.ndarray, np.ndarray]:
    """Residual of the components of a test and its derivative by u; that of the fit where it has the same ones."""
    plain = entry.test.scatter is None and test.rows == entry.test.rows
    if entry.role == "fit" and plain and not is_large(estimate.study.problem):
        rows = next(rows for own, _, rows in estimate.fitted_of([entry]) if own is entry)
        return estimate.residual[rows], np.asarray(estimate.jacobian[rows])
    return state_of_test(estimate.study.problem, test, estimate.u)


class _Random(NamedTuple):
    """Random displacements of virtual springs in the rows of a test, as far as fitted components of the same rows
    determine them. Components are in units of their noise."""

    fitted: tuple[Float[np.ndarray, "f"], Float[np.ndarray, "f d"]]
    """Fitted components of the same rows: residual, and its derivative by u."""
    change: Float[np.ndarray, "m f"]
    """Derivative of the conditional mean of the test's components by those residuals."""
    variance: Float[np.ndarray, "m"]
    """Conditional variance of the displacements' effect on the test's components."""


def _random_displacement(estimate: Estimate, entry: PoseEntry, test: PoseTest) -> _Random:
    """Random displacements in the rows of a test, given the fitted rows of the same lines of its table.

    Args:
        estimate: the fit.
        entry: the test.
        test: the same with other components.
    """
    nothing = (np.zeros(0), np.zeros((0, estimate.u.size)))
    if test.scatter is None:
        return _Random(nothing, np.zeros((test.rows, 0)), np.zeros(test.rows))
    own = _effects(test)
    fitted = [each for each in estimate.study.fitted if each.name == entry.name and entry.role == "check"]
    common = [name for name in entry.source.row if fitted and name in fitted[0].source.row]
    if not common:
        return _Random(nothing, np.zeros((test.rows, 0)), np.sum(own**2, axis=1))
    plain = dataclasses.replace(fitted[0].test, scatter=None)
    number = {name: k for k, name in enumerate(fitted[0].source.row)}
    line = np.array([number.get(name, -1) for name in entry.source.row])[_row_of(test)]
    used = np.flatnonzero(np.isin(_row_of(plain), line))
    line_of_fitted, other = _row_of(plain)[used], _effects(fitted[0].test)[used]
    residual, slope = (each[used] for each in state_of_test(estimate.study.problem, plain, estimate.u))
    change, variance = np.zeros((test.rows, used.size)), np.sum(own**2, axis=1)
    for k in np.unique(line_of_fitted):
        at, of = np.flatnonzero(line == k), np.flatnonzero(line_of_fitted == k)
        covariance = np.eye(of.size) + other[of] @ other[of].T
        gain = np.linalg.solve(covariance, other[of] @ own[at].T).T
        change[np.ix_(at, of)] = gain
        variance[at] -= np.sum(gain * (own[at] @ other[of].T), axis=1)
    return _Random((residual, slope), change, np.maximum(variance, 0.0))


def _row_of(test: PoseTest) -> np.ndarray:
    """Row of each measured component [m]."""
    return np.asarray(test.component) // (KIND.size * len(test.points))


def _effects(test: PoseTest) -> Float[np.ndarray, "m r"]:
    """Effects of one standard deviation of the random displacements on the components of a test, in units of noise."""
    scatter = np.asarray(test.scatter)
    return scatter.reshape(-1, scatter.shape[-1])[np.asarray(test.component)] / np.asarray(test.std)[:, None]


def _displaced(
    test: PoseTest, poses: np.ndarray, upward: np.ndarray, change: Float[np.ndarray, "m"]
) -> tuple[np.ndarray, np.ndarray]:
    """Poses and upward directions after a change of the components of a test, m and rad."""
    if not change.any():
        return poses, upward
    poses, upward, rows = poses.copy(), upward.copy(), poses.shape[:2]
    by = np.nan_to_num(test.by_point(change))
    poses[..., :3, 3] += by[..., POSITION]
    for at in np.ndindex(*rows):
        poses[at][:3, :3] = rotation_of(by[at][ROTATION]) @ poses[at][:3, :3]
    upward += np.einsum("tpij,tpi->tpj", np.asarray(test.vertical)[..., :2, :], by[..., INCLINATION])
    return poses, upward / np.maximum(np.linalg.norm(upward, axis=-1, keepdims=True), 1e-12)


def errors_between_stations(
    estimate: Estimate, entries: Sequence[PoseEntry]
) -> tuple[Float[np.ndarray, "d d"], list[str]]:
    """Covariance of u due to errors that rows of a station have in common: from fits without each station, for tests
    whose noise is estimated and which have at least `LEAST_STATIONS`; and a remark.

    What the machine does not reproduce is no independent noise. It may be common to the rows of a station, such as
    those at an extension of the machine, and differs between stations.

    Args:
        estimate: a fit.
        entries: the pose tests of its study.
    """
    labels, remarks = np.full(estimate.study.problem.data_rows, -1), list[str]()
    for entry, _, rows in estimate.fitted_of(entries):
        test: PoseTest = entry.test
        if test.noise.is_known or len(test.stations) < LEAST_STATIONS or is_large(estimate.study.problem):
            continue
        labels[rows] = labels.max() + 1 + test.noise.groups[0]
        remarks.append(
            f"standard deviations contain the differences between fits without each of the {len(test.stations)}"
            f" stations of {entry.name}"
        )
    if not remarks:
        return np.zeros((estimate.u.size, estimate.u.size)), []
    return jackknife_covariance(estimate, labels), remarks


def pose_errors(rows: Sequence[PoseRow], what: str) -> PoseErrorStatistics:
    """Statistics of the errors of some rows.

    Args:
        rows: the rows.
        what: "before" or "error".
    """
    rows = [row for row in rows if row.is_measured]
    errors, std = (np.array([getattr(row, name) for row in rows]).reshape(-1, KIND.size) for name in (what, "std"))
    known = np.isfinite(errors) & np.isfinite(std)
    found: PoseErrorStatistics = {"covered_percent": None}
    if what == "error" and known.any():
        found["covered_percent"] = 100.0 * float(np.mean(np.abs(errors[known]) <= INTERVAL * std[known]))
    parts = {"points": slice(0, ROTATION.stop), "inclinations": INCLINATION, "distances": DISTANCE}
    found |= {name: int(np.isfinite(errors[:, part]).any(axis=1).sum()) for name, part in parts.items()}
    parts = {"": POSITION, "angle_": ROTATION, "inclination_": INCLINATION, "distance_": DISTANCE}
    for prefix, part in parts.items():
        sizes = lengths_of(errors[:, part])
        sizes = sizes[np.isfinite(sizes)]
        names = [f"{prefix}{name}" for name in ("mean", "percentile_95", "largest")]
        if sizes.size:
            found |= zip(names, map(float, (sizes.mean(), np.percentile(sizes, 95.0), sizes.max())), strict=True)
        elif prefix in ("", "angle_"):
            found |= dict.fromkeys(names)
    return found


def lengths_of(vectors: np.ndarray) -> np.ndarray:
    """Length of the measured components of each vector; NaN where none is measured."""
    seen = np.isfinite(vectors).any(axis=1)
    return np.where(seen, np.sqrt(np.nansum(vectors**2, axis=1)), np.nan)
