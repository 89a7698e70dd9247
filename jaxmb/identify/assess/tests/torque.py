"""Metrics, remarks and systematic errors of torque tests: joints that disagree, friction and delays in the residual."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import chdtri, ndtri

from jaxmb.identify.assess.estimate import Estimate
from jaxmb.identify.assess.metrics import KindMetrics
from jaxmb.identify.assess.remarks import grouped
from jaxmb.identify.assess.result import INTERVAL
from jaxmb.identify.estimation.identifiability import (
    RANK_TOLERANCE,
    combination_std,
    information_rows,
    propagated_std,
    row_blocks,
    scaled_svd,
)
from jaxmb.identify.estimation.reduction import essential_parameters
from jaxmb.identify.experiments.components import is_robust, own_names
from jaxmb.identify.experiments.torque.effort_noise import correlation_length
from jaxmb.identify.experiments.torque.gross_errors import DELAYS
from jaxmb.identify.experiments.torque.preliminary_fits import DELAY_FAMILY, term_effort
from jaxmb.identify.experiments.torque.torque_test import FRICTION, TorqueEntry, delay_text, samples_at
from jaxmb.identify.fit.noise import FALSE_ALARM
from jaxmb.identify.parameters.free_parameters import FreeParameters, affine_map
from jaxmb.identify.parameters.model_parameters import parameters, unit
from jaxmb.identify.regression.torque_regressor import load_columns, regressor_names
from jaxmb.io.validation import display_name, listed, percentage
from jaxmb.machine.elements import FRICTION_KINDS

FAR = 0.2
"""Relative change of a Stribeck speed up to which efforts are linear in it."""
GROSS, ISOLATED = 12.0, 2.0
"""Error of a gross outlier over the median error, which noise reaches in 1e-15 of all samples, and over the errors
beside it."""
SELDOM = 0.1
"""Share of the samples of a coordinate that move in a direction, up to which friction in it is not known."""


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
    expected_error: float | None = None
    """Expected root mean square of the error of a held-out test, Nm or N: of the parameters, and of the residual of the
    fitted tests at this coordinate, which contains noise and errors of the model."""
    covered_percent: float | None = None
    """Share of the samples of a held-out test within the 95 % intervals of their predictions; None where unknown."""


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
    unrelated: Float[np.ndarray, "k d"]
    """Directions of the free parameters without effect on base parameters."""


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
        ends = dict.fromkeys(percentage(percent, ".1f") for percent in (*residual[:1], *residual[-1:]))
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
    def of_fit(cls, estimate: Estimate, entries: Sequence[TorqueEntry]) -> "TorqueMetrics":
        """Metrics of a fit; see `KindMetrics`."""
        rows = []
        base, free_base = _base_rows(estimate, entries)
        essential, reduce = _essential(estimate, entries, free_base)
        for entry in entries:
            test = entry.test
            seen = np.asarray(test.view(estimate.model))
            measured, missed = test.sizes(seen)
            fewer = missed if reduce is None else test.sizes(reduce(seen))[1]
            held_out = dict[str, tuple[float, float]]()
            if entry.role == "check" and estimate.has_std:
                held_out = _expected_prediction_errors(estimate, entries, entry, free_base.unrelated)
            for name, size, *errors in zip(entry.source.coordinates, measured, missed, fewer, strict=True):
                percent = [100.0 * float(error) / float(size) if size else np.nan for error in errors]
                few, expected = None if reduce is None else percent[1], held_out.get(name, (None, None))
                rows.append(
                    TorqueRow(entry.name, entry.role, name, float(size), float(errors[0]), percent[0], few, *expected)
                )
        base = tuple(
            dataclasses.replace(row, essential_value=essential[row.name][0], essential_std=essential[row.name][1])
            if row.name in essential
            else row
            for row in base
        )
        return cls(tuple(rows), base, _centres(estimate))


def _expected_prediction_errors(
    estimate: Estimate, entries: Sequence[TorqueEntry], entry: TorqueEntry, unrelated: np.ndarray
) -> dict[str, tuple[float, float]]:
    """Expected error and share within 95 % intervals, percent, by coordinate of a held-out test (see `TorqueRow`);
    without coordinates that no fitted test has, that move in a new direction or whose prediction has no standard
    deviation.

    Errors within tolerances are left out: the same machine and instruments are wrong by as much in both tests, and a
    torque constant that is 5 % off changes all masses by 5 %, but no prediction of this drive's torque.
    """
    stated, free = estimate.goodness.budget, estimate.study.free
    if stated is not None:
        estimate = dataclasses.replace(
            estimate, systematic_covariance=estimate.systematic_covariance - stated.covariance
        )

    def variance_of(entry: TorqueEntry) -> np.ndarray:
        slope = entry.test.linear.equations(estimate.study.model, free).matrix * free.slope(estimate.values)
        return _base_std(estimate, slope, unrelated) ** 2

    noise = dict[str, list[np.ndarray]]()
    for other in entries:
        if other.role == "fit":
            smaller = variance_of(other)  # by which a fit makes its squared residual smaller than the noise
            for name, rows, error in _errors(estimate, other):
                noise.setdefault(name, []).append(error**2 + smaller[rows])
    variance, found, new = variance_of(entry), {}, new_directions(entries, entry)
    for name, rows, error in _errors(estimate, entry):
        if name in new or name not in noise:
            continue
        own = variance[rows] + np.mean(np.concatenate(noise[name]))
        if error.size and np.isfinite(own).all():
            share = np.mean(np.abs(error) <= INTERVAL * np.sqrt(own))
            found[name] = float(np.sqrt(own.mean())), 100.0 * float(share)
    return found


def new_directions(entries: Sequence[TorqueEntry], entry: TorqueEntry) -> list[str]:
    """Coordinates that a held-out test moves in a direction in which fitted tests do not (`SELDOM`): their friction in
    it is extrapolated."""

    def shares(tests: Sequence[TorqueEntry], name: str) -> np.ndarray:
        """Share of the samples that move forwards, and backwards."""
        velocity = np.concatenate(
            [
                test.source.velocity[np.asarray(test.test.coordinate) == test.source.coordinates.index(name)]
                for test in tests
                if name in test.source.coordinates
            ]
        )
        return np.array([np.mean(velocity > 0.0), np.mean(velocity < 0.0)])

    fitted = [other for other in entries if other.role == "fit"]
    known = [name for name in entry.source.coordinates if any(name in other.source.coordinates for other in fitted)]
    return [name for name in known if np.any((shares([entry], name) > SELDOM) & (shares(fitted, name) <= SELDOM))]


def _errors(estimate: Estimate, entry: TorqueEntry) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Each coordinate of a test with its rows, and predicted minus measured efforts there, Nm or N."""
    test = entry.test
    error = np.asarray(test.predict(test.view(estimate.model)) - test.effort)
    for number, name in enumerate(entry.source.coordinates):
        rows = np.flatnonzero(np.asarray(test.coordinate) == number)
        yield name, rows, error[rows]


def torque_remarks(
    estimate: Estimate, entries: Sequence[TorqueEntry], metrics: TorqueMetrics
) -> tuple[list[str], list[str]]:
    """Sentences on doubtful motions and outliers, and on held-out tests in a new direction and Stribeck speeds far from
    the values of linearization."""
    causes = grouped((entry.name, text) for entry in entries for text in entry.source.doubts)
    causes += [text for entry in entries for text in _outlier_doubt(estimate, entry)]
    new = {entry.name: new_directions(entries, entry) for entry in entries if entry.role == "check"}
    others = [
        f"{display_name(test)} has no intervals of predicted efforts at {listed(names)}: fitted tests do not move in"
        " its direction there, in which friction is extrapolated"
        for test, names in new.items()
        if names
    ]
    first = parameters(estimate.study.model)
    others += [
        f"{name} changed from {first[name]:.3g}, the value of linearization, to {value:.3g}: bounds or a prior limit"
        " the friction, and efforts of the machine differ from those of the fit"
        for name, value in zip(estimate.study.free.names, estimate.values, strict=True)
        if name.startswith("stribeck_speed.") and abs(value / first[name] - 1.0) > FAR
    ]
    return causes, others


def _outlier_doubt(estimate: Estimate, entry: TorqueEntry) -> list[str]:
    """A sentence on single samples of a torque test that are far from its prediction and from their neighbours."""
    found = dict[str, int]()
    for name, rows, error in [] if is_robust(entry.test) else _errors(estimate, entry):
        size, velocity = np.abs(error), entry.source.velocity[rows]
        beside = np.maximum(size[:-2], size[2:])
        far = size[1:-1] > np.maximum(GROSS * np.median(size), ISOLATED * beside)
        far &= velocity[:-2] * velocity[2:] > 0.0  # friction changes where a motion reverses
        if far.any():
            found[name] = int(far.sum())
    if not found:
        return []
    return [
        f"{display_name(entry.name)} has single samples far from the predicted torque at"
        f" {listed([f'{name} ({count})' for name, count in found.items()])}: robust = true gives them no weight"
    ]


def _essential(
    estimate: Estimate, entries: Sequence[TorqueEntry], base_parameters: FreeBaseParameters
) -> tuple[dict[str, tuple[float, float | None]], Callable[[np.ndarray], np.ndarray] | None]:
    """Values and standard deviations of the essential base parameters by name, from the fitted torque tests, and a
    function that reduces a view of the identified machine to these.

    None where least squares over the base parameters is not equivalent to the fit without its bounds: with a prior,
    robust weights or tests of other kinds, or where fixed parameters constrain the base parameters, as with fewer
    parameters it could then have a smaller residual in these tests.
    """
    study = estimate.study
    alone = len(study.tests) == sum(entry.role == "fit" for entry in entries)
    plain = study.problem.prior is None and not (study.free.of_tests or any(map(is_robust, study.tests)))
    if not (base_parameters.anything and alone and plain):
        return {}, None
    names = regressor_names(estimate.model)
    own = [names.index(name) for name in base_parameters.names]

    def with_base(values: Float[np.ndarray, "b"], seen: np.ndarray) -> np.ndarray:
        # the independent parameter of each takes the change of its base parameter
        changed = np.array(seen)
        changed[own] += values - base_parameters.matrix @ changed[: len(names)]
        return changed

    parts = [(np.zeros((0, len(own))), np.zeros(0), np.zeros(0))]
    for test in (entry.test for entry in entries if entry.role == "fit"):
        regressor, rest = (
            np.asarray(test.regressor),
            with_base(np.zeros(len(own)), np.asarray(test.view(estimate.model))),
        )
        without = np.asarray(test.effort) - np.asarray(test.constant) - regressor @ rest
        parts.append((regressor[:, own], without, np.asarray(test.std)))
    matrix, measured, std = (np.concatenate(column) for column in zip(*parts, strict=True))
    found = essential_parameters(matrix, measured, std, base_parameters.names)
    known = [std if estimate.has_std and np.isfinite(std) else None for std in found.std.tolist()]
    by_name = dict(zip(found.names, zip(found.values.tolist(), known, strict=True), strict=True))
    values = np.array([by_name.get(name, (0.0, None))[0] for name in base_parameters.names])
    return by_name, functools.partial(with_base, values)


def _base_rows(estimate: Estimate, entries: Sequence[TorqueEntry]) -> tuple[tuple[BaseRow, ...], FreeBaseParameters]:
    """Base parameters of the identified machine that depend on free parameters."""
    free, names = estimate.study.free, regressor_names(estimate.model)
    found = entries[0].test.linear.combinations(estimate.study.model, free)
    # derivative of each base parameter by each entry of u
    slope = found.matrix @ affine_map(estimate.study.model, free, names)[0] * free.slope(estimate.values)
    own = np.flatnonzero(slope.any(axis=1))
    freely = slope[own] / np.linalg.norm(slope[own], axis=1, keepdims=True)
    unrelated = _unrelated(freely, free, names)
    std = _base_std(estimate, slope, unrelated) if estimate.has_std else np.full(len(slope), np.inf)
    known, true = parameters(estimate.model), next((e.truth.parameters for e in entries if e.truth is not None), None)
    values = found.matrix @ np.array([known[name] for name in names])
    expected = None if true is None else found.matrix @ np.array([true.get(name, np.nan) for name in names])
    rows = tuple(
        BaseRow(found.names[i], found.formulas[i], float(values[i]), float(std[i]),
                None if expected is None else float(expected[i]))
        for i in own
    )  # fmt: skip
    anything = scaled_svd(freely, RANK_TOLERANCE).rank == own.size
    return rows, FreeBaseParameters(tuple(found.names[i] for i in own), found.matrix[own], anything, unrelated)


def _unrelated(freely: Float[np.ndarray, "b d"], free: FreeParameters, names: Sequence[str]) -> np.ndarray:
    """Directions of the free inertial and friction parameters without effect on base parameters [k, d]."""
    inertial = np.array([tied[0] in names for tied in free.tied], dtype=bool)
    _, values, right = np.linalg.svd(freely[:, inertial])
    found = np.zeros((len(right) - int(np.sum(values > RANK_TOLERANCE)), free.size))
    found[:, inertial] = right[len(right) - len(found) :]
    return found


def _base_std(
    estimate: Estimate, combinations: Float[np.ndarray, "b d"], unrelated: np.ndarray
) -> Float[np.ndarray, "b"]:
    """Standard deviations of base parameters; inf where the tests do not determine them.

    Directions without effect on base parameters are assumed known to the width of their bounds: their effect on the
    data is rounding of angles in the machine description, which would otherwise affect the base parameters.
    """
    weights, known = estimate.stated_variances, estimate.identifiability
    if estimate.linear is not None and not estimate.goodness.all_by_errors:
        is_data = np.arange(weights.size) < estimate.study.problem.data_rows
        weights = np.where(is_data, estimate.linear.step.misfit.widening**2, 1.0) * weights
    std = combination_std(np.concatenate([information_rows(estimate.jacobian, weights), unrelated]), combinations)
    inflated = np.where(np.isfinite(known.std), np.maximum(known.std**2 - np.diag(known.covariance), 0.0), 0.0)
    added = estimate.systematic_covariance + np.diag(inflated)
    return np.sqrt(std**2 + np.einsum("bi,ij,bj->b", combinations, added, combinations))


def _centres(estimate: Estimate) -> tuple[CentreRow, ...]:
    """Centres of mass from free masses and first moments, c = h / m."""
    free, own, found = estimate.study.free, parameters(estimate.model), list[CentreRow]()
    single = {name for names in free.tied for name in names}
    for body in estimate.model.masses:
        names = [f"mass.{body}", *(f"first_moment.{body}.{axis}" for axis in "xyz")]
        mass = own[names[0]]
        if names[0] not in single or single.isdisjoint(names[1:]) or not mass > 0.0:
            continue
        share = affine_map(estimate.study.model, free, names)[0] * free.slope(estimate.values)
        known = [bool(np.isfinite(estimate.identifiability.std[row != 0.0]).all()) for row in share]
        for axis, name, is_known, row in zip("xyz", names[1:], known[1:], share[1:], strict=True):
            centre = own[name] / mass
            slope = (row - centre * share[0]) / mass
            std = propagated_std(slope[None], estimate.identifiability)[0] if is_known and known[0] else np.inf
            if known[0]:
                found.append(CentreRow(body, axis, centre, float(std)))
    return tuple(found)


SPEEDS = np.geomspace(0.02, 0.5, 5)
"""Candidate Stribeck speeds over the largest speed."""
COULOMB = "Coulomb"
"""Kind of friction that is a parameter of each coordinate, fixed or free."""
EXACT = 1e-4
"""Ratio of root mean squares of residual and effort below which the residual is rounding and differentiation error."""
SMALL = 0.01
"""Residual over effort that is not reported."""
LOSSES = (*FRICTION, "offset")
NAMED = 3
"""Largest number of parameters in one remark."""
LEAST_SHARE = 0.25
"""Explained part of a squared residual, beyond that of a fit of all parameters, above which friction is reported:
residuals with other causes also correlate a little with friction."""


class JointRows(NamedTuple):
    """Equations of one coordinate in all tests, in units of their noise: residual + jacobian du."""

    name: str
    jacobian: Float[np.ndarray, "r d"]
    residual: Float[np.ndarray, "r"]
    """Predicted minus measured."""
    root: Float[np.ndarray, "r"]
    """Factor that scales an effort to units of the noise."""
    velocity: Float[np.ndarray, "r"]
    load: Float[np.ndarray, "r"]
    """Effort transmitted by the gear."""
    by_delay: Float[np.ndarray, "r k"]
    """Change of the predicted effort by each of some delays over the delay, in units of the noise, 1/s."""
    test: Int[np.ndarray, "r"]
    """Index of the test among the fitted ones."""
    tolerances: Float[np.ndarray, "r e"]
    """Change by each error of machine and tests within its tolerance."""
    absent: frozenset[str]
    """Kinds of friction that are not in the machine and were not candidates."""


def systematic_errors(estimate: Estimate, entries: Sequence[TorqueEntry]) -> tuple[Float[np.ndarray, "d d"], list[str]]:
    """Covariance of u due to systematic errors, and a remark on each cause.

    For significant friction in the residual of a joint, of a kind that `friction_terms` could select, and for a delay
    of its torque or of all torques of a test: the squared change of the parameters in a fit with these. Where estimates
    of a parameter by single joints, each from its own equations and residual, differ significantly from the joint
    estimate: the variance between joints (DerSimonian and Laird) times the squares of their weights in the estimate,
    plus the squared difference of their mean.

    Args:
        estimate: a fit; where it is not linear the covariance is 0.
        entries: the torque tests of its study.

    Source: DerSimonian and Laird 1986, "Meta-analysis in clinical trials", of effects that differ between studies.
    """
    size = estimate.u.size
    sizes = [entry.test.sizes(view) for entry, view, _ in estimate.fitted_of(entries)]
    if estimate.linear is None or all(np.all(missed <= EXACT * measured) for measured, missed in sizes):
        return np.zeros((size, size)), []
    joints = joint_rows(estimate, entries)
    prior = estimate.jacobian[estimate.study.problem.data_rows :]
    small = [np.asarray(np.linalg.qr(np.column_stack([each.jacobian, each.residual]), mode="r")) for each in joints]
    root = scaled_svd(np.concatenate([prior, *(rows[:, :size] for rows in small)]), RANK_TOLERANCE).gain
    spread = root @ root.T
    change, of_terms = _missing_terms(estimate, entries, joints, spread)
    scatter, of_joints = _disagreement(estimate, joints, small, spread)
    return np.outer(change, change) + np.diag(scatter), [*of_joints, *(of_terms or beyond_noise(estimate, entries))]


def joint_rows(estimate: Estimate, entries: Sequence[TorqueEntry]) -> list[JointRows]:
    """Equations of each coordinate with measured effort, over all tests."""
    names = regressor_names(estimate.model)
    loads, parts = load_columns(names), dict[str, list[JointRows]]()
    step = min(float(np.median(np.diff(np.unique(entry.source.time_s)))) for entry in entries)
    delays = step * np.array([sign * count for count in DELAYS for sign in (1.0, -1.0)])
    budget = estimate.goodness.budget
    effects = np.zeros((estimate.study.problem.data_rows, 0)) if budget is None else budget.columns
    for number_of_test, (entry, view, rows) in enumerate(estimate.fitted_of(entries)):
        test, source = entry.test, entry.source
        predicted = np.asarray(test.predict(view))
        seen = np.asarray(view)[: len(names)]
        carried = np.asarray(test.regressor)[:, : len(names)][:, loads] @ seen[loads]
        factor = np.sqrt(estimate.stated_variances[rows]) / np.asarray(test.std)
        for i, name in enumerate(source.coordinates):
            own = np.asarray(test.coordinate) == i
            there = estimate.model.further_friction[estimate.model.coordinates.index(name)]
            parts.setdefault(name, []).append(
                JointRows(
                    name=name,
                    jacobian=estimate.jacobian[rows][own],
                    residual=estimate.residual[rows][own],
                    root=factor[own],
                    velocity=source.velocity[own],
                    load=carried[own],
                    by_delay=factor[own, None] * _by_delay(source.time_s[own], predicted[own], delays),
                    test=np.full(int(own.sum()), number_of_test),
                    tolerances=effects[rows][own],
                    absent=frozenset(k for k, family in FRICTION_KINDS.items() if family not in there)
                    - frozenset(source.friction_kinds),
                )
            )
    return [_of_all_tests(some) for some in parts.values()]


def _by_delay(
    time_s: Float[np.ndarray, "r"], effort: Float[np.ndarray, "r"], delays: Float[np.ndarray, "k"]
) -> Float[np.ndarray, "r k"]:
    """Change of an effort by each of some delays over the delay, 1/s; 0 where the earlier effort is in a gap."""
    found = np.zeros((time_s.size, delays.size))
    for column, delay in zip(found.T, delays, strict=True):
        k, share, is_near = samples_at(time_s, time_s - delay)
        column[is_near] = (((1.0 - share) * effort[k] + share * effort[k + 1] - effort) / delay)[is_near]
    return found


def _of_all_tests(parts: Sequence[JointRows]) -> JointRows:
    """Equations of a coordinate in all tests, from those in each test."""
    names, *columns, absent = zip(*parts, strict=True)
    return JointRows(names[0], *map(np.concatenate, columns), absent=frozenset.intersection(*absent))


def _disagreement(
    estimate: Estimate, joints: Sequence[JointRows], small: Sequence[np.ndarray], spread: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """Variance of each entry of u due to the scatter between joints, and remarks."""
    size, free = estimate.u.size, estimate.study.free
    # bounds, physical consistency and priors change the fit of all joints, which is not a disagreement between them
    every = np.concatenate(small)
    whole = scaled_svd(every[:, :size], RANK_TOLERANCE)
    whole_step, root = -whole.solve(every[:, size]), whole.gain
    steps, stds, weights = (np.zeros((len(small), size)) for _ in range(3))
    # errors within their tolerances also let joints disagree
    effects = [joint.jacobian.T @ joint.tolerances for joint in joints]
    together = root @ (root.T @ sum(effects))
    for j, (joint, rows) in enumerate(zip(joints, small, strict=True)):
        own = scaled_svd(rows[:, :size], RANK_TOLERANCE)
        step, root = -own.solve(rows[:, size]), own.gain
        steps[j] = step - whole_step
        # from the residual of the joint's own fit: the residual of the joint fit contains the disagreement
        missed = joint.residual + joint.jacobian @ step
        noise = missed @ missed / max(1.0, missed.size - own.rank) * correlation_length(missed, own.rank)
        apart = np.linalg.norm(root @ (root.T @ effects[j]) - together, axis=1)
        of_noise = np.sqrt(noise) * np.linalg.norm(root, axis=1)
        stds[j] = np.where(own.unknown, np.inf, np.hypot(of_noise, apart))
        weights[j] = np.einsum("ij,ji->i", spread, rows[:, :size].T @ rows[:, :size])
    values = estimate.values + free.slope(estimate.values) * whole_step
    limit = np.where(np.array(free.logarithmic), 1.0, np.abs(estimate.u + whole_step))
    determined = (stds < limit) & np.isfinite(estimate.identifiability.std) & ~whole.unknown
    compared = np.flatnonzero(determined.any(axis=0))
    scatter, found = np.zeros(size), []
    for i in compared.tolist():
        own = determined[:, i]
        step, precision = steps[own, i], stds[own, i] ** -2.0
        excess, count = float(precision @ step**2), int(own.sum())
        if excess <= float(chdtri(count, FALSE_ALARM / compared.size)):
            continue
        mean = precision @ step / precision.sum()
        between = float(precision @ (step - mean) ** 2) - (count - 1)
        between = max(0.0, between / (precision.sum() - np.sum(precision**2) / precision.sum())) if count > 1 else 0.0
        equal = 1.0 / (between + 1.0 / precision)
        scatter[i] = between * float(np.sum(weights[:, i] ** 2)) + float(equal @ step / equal.sum()) ** 2
        slope = free.slope(estimate.values)[i]
        each = ", ".join(
            f"{values[i] + slope * steps[j, i]:.4g} ± {abs(slope) * stds[j, i]:.2g} by {joints[j].name}"
            for j in np.flatnonzero(own).tolist()
        )
        rise = scatter[i] / estimate.identifiability.std[i] ** 2
        found.append((rise, f"{free.names[i]} is {each}, {values[i]:.4g} by all"))
    worst = [text for _, text in sorted(found, reverse=True)]
    if not worst:
        return scatter, []
    more = f"; and {len(worst) - NAMED} more" if len(worst) > NAMED else ""
    return scatter, [
        f"joints disagree beyond their standard deviations: {'; '.join(worst[:NAMED])}{more}; the standard"
        " deviations contain this scatter"
    ]


def beyond_noise(estimate: Estimate, entries: Sequence[TorqueEntry]) -> list[str]:
    """A sentence where the residual is larger than the recorded torque above the band of the motion."""
    found = [
        f"{name} ({100.0 * missed / measured:.2g} % of its torque)" if measured else f"{name} (torque 0)"
        for entry, view, _ in estimate.fitted_of(entries)
        if entry.source.noise_estimated
        for name, measured, missed, bound in zip(
            entry.source.coordinates, *entry.test.sizes(view), entry.source.noise_bound, strict=True
        )
        if missed > max(bound, SMALL * measured)
    ]
    if not found:
        return []
    return [
        f"the residual at {listed(found)} is larger than the noise above the band of the motion: friction or elasticity"
        " is missing in the model, or torques are late; the standard deviations count the whole residual as noise"
    ]


def _missing_terms(
    estimate: Estimate, entries: Sequence[TorqueEntry], joints: Sequence[JointRows], spread: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """Change of u in a fit with significant friction and delays, and remarks: at most one term of each joint, and a
    delay of each test."""
    widening = 1.0 if estimate.goodness.misfit is None else estimate.goodness.misfit.widening
    restricted = estimate.linear is not None and not estimate.linear.step.misfit.explained
    tests = [entry.test for entry, _, _ in estimate.fitted_of(entries)]
    # wrong fixed values may resemble a delay of a joint
    tried = [[term for term in _candidates(joint) if not (restricted and term[0] == "delay")] for joint in joints]
    shared = len(tests)
    delays = joints[0].by_delay.shape[1]
    kinds = ["delay"] * (shared * delays) + [kind for some in tried for kind, _ in some]
    group = np.repeat(np.arange(shared + len(joints)), [delays] * shared + [len(some) for some in tried])
    acts, right, residual = (
        np.zeros((estimate.u.size, group.size)),
        np.zeros(group.size),
        np.zeros(shared + len(joints)),
    )
    squares = np.zeros((group.size, group.size))
    tolerated = np.zeros((group.size, joints[0].tolerances.shape[1]))
    for j, (joint, some) in enumerate(zip(joints, tried, strict=True)):
        of_tests = [joint.by_delay * (joint.test == k)[:, None] for k in range(shared)]
        columns = np.column_stack([*of_tests, *(column for _, column in some)])
        own = np.flatnonzero((group < shared) | (group == shared + j))
        acts[:, own] += joint.jacobian.T @ columns
        squares[np.ix_(own, own)] += columns.T @ columns
        right[own] -= columns.T @ joint.residual
        tolerated[own] += columns.T @ joint.tolerances
        residual[:shared] += np.bincount(joint.test, joint.residual**2, shared)
        residual[shared + j] = joint.residual @ joint.residual
    # orthogonal to the free parameters
    slope = sum(estimate.jacobian[rows].T @ estimate.residual[rows] for rows in row_blocks(estimate.jacobian))
    right += acts.T @ spread @ slope
    beside = squares - acts.T @ spread @ acts
    determined = np.diag(beside) > RANK_TOLERANCE * np.diag(squares)
    # errors within their tolerances resemble friction and delays
    tolerated -= acts.T @ spread @ sum(joint.jacobian.T @ joint.tolerances for joint in joints)
    wider = np.sqrt(1.0 + np.sum(tolerated**2, axis=1) / np.where(determined, widening**2 * np.diag(beside), 1.0))
    is_free = [k for k, test in enumerate(tests) if f"{DELAY_FAMILY}.{test.name}" in own_names(test)]
    possible = determined & ~np.isin(group, is_free)
    chosen, sizes = _selected(beside, right / widening, group, possible, wider)
    values = np.linalg.solve(beside[np.ix_(chosen, chosen)], right[chosen])
    changes = -spread @ acts[:, chosen] * values
    # limited to 1: residuals of other joints may decrease too
    share = np.minimum((widening * sizes) ** 2 / residual[group[chosen]], 1.0)
    terms = [
        _MissingTerm(
            kinds[k],
            joints[group[k] - shared].name if group[k] >= shared else tests[group[k]].name,
            bool(group[k] < shared),
            value,
            100.0 * of_residual,
            change,
        )
        for k, value, of_residual, change in zip(chosen, values, share, changes.T, strict=True)
    ]
    named = [term for term in terms if not (restricted and term.percent < 100.0 * LEAST_SHARE)]
    return changes.sum(axis=1), _terms_text(estimate, named)


class _MissingTerm(NamedTuple):
    """A term that explains a part of the residual: kind of friction or "delay", joint or test, its value, share of the
    residual in percent and the change of u."""

    kind: str
    name: str
    of_test: bool
    value: float
    percent: float
    change: Float[np.ndarray, "d"]

    def text(self) -> str:
        """The term in words."""
        if self.kind != "delay":
            return f"{self.name} ({self.kind}, {self.percent:.2g} % of its mean square)"
        what = f"the torques of {display_name(self.name)} are" if self.of_test else f"the torque of {self.name} is"
        text = f"{delay_text(what, self.value)}, which explains {self.percent:.2g} % of the residual"
        return f'{text} ("{DELAY_FAMILY}.{self.name}" in [free] identifies the delay)' if self.of_test else text


def _terms_text(estimate: Estimate, terms: Sequence[_MissingTerm]) -> list[str]:
    """Remarks on missing friction, on torques that are smaller near reversals, and on delays."""
    delays = [term for term in terms if term.kind == "delay"]
    smaller = [term for term in terms if term.kind == "stribeck" and term.value < 0.0]
    friction = [term for term in terms if term.kind != "delay" and term not in smaller]
    remarks = list[str]()
    if friction:
        asked = ", ".join(dict.fromkeys(f'"{term.kind}"' for term in friction if term.kind != COULOMB))
        freed = ", ".join(f'"friction.{term.name}"' for term in friction if term.kind == COULOMB)
        remedies = [f"friction_terms = [{asked}] of the tests"] * bool(asked) + [f"{freed} in [free]"] * bool(freed)
        remarks.append(
            f"the residual contains friction: {', '.join(term.text() for term in friction)};"
            f" {' and '.join(remedies)} {_effect(estimate, friction)}"
        )
    if smaller:
        each = ", ".join(f"{term.name} ({term.percent:.2g} % of the mean square of its residual)" for term in smaller)
        remarks.append(
            f"near reversals the torque is smaller than Coulomb friction, as where it was smoothed, at {each}:"
            f" least_speed excludes these samples; a correction {_effect(estimate, smaller)}"
        )
    if delays:
        texts = "; ".join(term.text() for term in delays)
        remarks.append(f"{texts}; a correction {_effect(estimate, delays)}")
    return remarks


def _selected(
    beside: Float[np.ndarray, "k k"],
    right: Float[np.ndarray, "k"],
    group: np.ndarray,
    possible: np.ndarray,
    wider: Float[np.ndarray, "k"],
) -> tuple[list[int], Float[np.ndarray, "s"]]:
    """Forward selection of one column per group, of the significant ones that which explains most first, with the size
    of each in standard deviations of the noise; columns are orthogonal to the free parameters.

    Args:
        beside: products of the columns.
        right: products of the columns with the negative residual.
        group: of each column.
        possible: mask of the columns that may be selected.
        wider: factor on the standard deviation of each product by errors within their tolerances.
    """
    least = -float(ndtri(0.5 * FALSE_ALARM / max(1, group.size)))
    chosen, sizes = list[int](), list[float]()
    while True:
        by_chosen = beside[:, chosen] @ np.linalg.inv(beside[np.ix_(chosen, chosen)])
        own = np.diag(beside) - np.sum(by_chosen * beside[:, chosen], axis=1)
        open_still = possible & ~np.isin(group, group[chosen]) & (own > RANK_TOLERANCE * np.diag(beside))
        size = np.where(open_still, np.abs(right - by_chosen @ right[chosen]), 0.0) / np.sqrt(np.maximum(own, 1e-300))
        size = np.where(size > least * wider, size, 0.0)
        if not size.any():
            return chosen, np.array(sizes)
        chosen.append(int(np.argmax(size)))
        sizes.append(float(size[chosen[-1]]))


def _effect(estimate: Estimate, terms: Sequence[_MissingTerm]) -> str:
    """A clause on the parameter that some terms change most relative to its standard deviation."""
    change = sum((term.change for term in terms), np.zeros_like(estimate.u))
    std, free = estimate.identifiability.std, estimate.study.free
    relative = np.where(np.isfinite(std) & (std > 0.0), np.abs(change) / np.where(std > 0.0, std, 1.0), 0.0)
    # friction of the joint itself changes most; other parameters are preferred in the remark
    i = int(np.argmax(relative * np.array([0.1 if name.split(".")[0] in LOSSES else 1.0 for name in free.names])))
    by = change[i] * free.slope(estimate.values)[i]
    return (
        f"would change {free.names[i]} by {by:.2g} {unit(estimate.model, free.names[i])}; the standard deviations"
        " contain this"
    )


def _candidates(joint: JointRows) -> list[tuple[str, np.ndarray]]:
    """Candidate efforts missing in the model, in units of the noise: kinds of friction with a coefficient of 1, and
    delays, over their size in s."""
    v, speeds = joint.velocity, SPEEDS * np.abs(joint.velocity).max(initial=0.0)
    kinds = [("load", None), ("cubic", None), *(("stribeck", speed) for speed in speeds.tolist() if speed > 0.0)]
    efforts = [(kind, term_effort(kind, speed, v, joint.load)) for kind, speed in kinds if kind in joint.absent]
    efforts.append((COULOMB, np.sign(v)))  # without effect beside a free one
    friction = [(kind, joint.root * effort) for kind, effort in efforts if effort.any()]
    return [*friction, *(("delay", column) for column in joint.by_delay.T)]
