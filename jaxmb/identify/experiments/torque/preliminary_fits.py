"""Preliminary fits of torque tests: drive gains and delays, and selection of friction terms."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtr

from jaxmb.identify.estimation.identifiability import RANK_TOLERANCE, identifiability, scaled_svd
from jaxmb.identify.estimation.linear import tukey
from jaxmb.identify.experiments.torque.effort_noise import NORMAL_MEDIAN, correlation_length, effort_noise
from jaxmb.identify.experiments.torque.effort_rows import (
    EffortRows,
    Samples,
    least_norm_solution,
    stribeck,
    stribeck_slope,
)
from jaxmb.identify.regression.torque_regressor import load_columns
from jaxmb.measurement.motion.record import Drives, rates

GAIN_FAMILY = "drive_gain"
"""Prefix of the names of free gains: "drive_gain.motor5"."""
GAIN_ROUNDS = 50
GAIN_SETTLED = 1e-9
"""Largest relative change of a gain at convergence of the first fit."""
LARGEST_LAST_GAIN_STEP = 1e-3
"""Relative change of a gain above which the first fit counts as not converged."""
SMALLEST_RESIDUAL = 1e-6
"""Residual of the known efforts after a fit of the free parameters, over their size, below which gains are not
identifiable."""
LEAST_WEIGHT = 1e-8
"""Smallest weight of an outlier."""
LARGEST_GAIN_STEP = 2.0
"""Largest factor on a gain in one step."""


class DriveRecording(NamedTuple):
    """Equations of a test and the recorded drive signals, at all used samples."""

    rows: EffortRows
    signal: Float[np.ndarray, "k d"]
    drives: Drives
    robust: bool = False
    """Whether outliers are down-weighted."""


class PreliminaryGains(NamedTuple):
    """Drive gains of a preliminary fit, about which the equations are linearized."""

    gains: dict[str, float]
    """Free gains by drive."""
    values: dict[str, float]
    """Values of the regressor's parameters."""


def fit_gains(
    tests: Sequence[DriveRecording],
    names: Sequence[str],
    free_drives: Sequence[str],
    share: Float[np.ndarray, "p d"],
    known: Float[np.ndarray, "p"],
) -> PreliminaryGains:
    """Drive gains fitted jointly with the free parameters to the recorded drive signals.

    Gauss-Newton fit of i = G^-1 N^-T Y p, N the ratios and G the gains. The noise is that of i, on the left: with
    efforts N^T G i among the columns, it would bias gains towards zero. Such a biased linear fit gives the initial
    values. For robust tests each effort has Tukey's weight by the median absolute residual of its coordinate, as in the
    linear step of the study.

    Args:
        tests: fitted tests.
        names: of the p columns of their regressors.
        free_drives: drives whose gains are free.
        share: derivative of the regressor's parameters by the free ones.
        known: fixed part of the regressor's parameters, 0 for free ones.

    Raises:
        ValueError: a drive gain is not identifiable, or the iteration did not converge.

    Source: Gautier and Briot 2014, "Global identification of joint drive gains and dynamic parameters of robots".
    """
    regressor = np.concatenate([test.rows.regressor @ share for test in tests])
    rest = np.concatenate([test.rows.regressor @ known + test.rows.constant for test in tests])
    each = [_efforts(test, free_drives) for test in tests]
    effort, given = np.concatenate([a for a, _ in each]), np.concatenate([b for _, b in each])
    rest = rest - given
    coordinates = [name for test in tests for name in np.array(test.rows.measured)[test.rows.coordinate]]
    group = np.unique(coordinates, return_inverse=True)[1]
    std = _rms_by_group(effort, group)
    right = rest / std
    unexplained = right - regressor / std[:, None] @ least_norm_solution(regressor / std[:, None], right)
    if not np.linalg.norm(unexplained) > SMALLEST_RESIDUAL * np.linalg.norm(right):
        raise ValueError(_not_identifiable_text(free_drives))
    found = least_norm_solution(np.concatenate([regressor, -effort], axis=1) / std[:, None], -rest / std)
    p, gains = np.split(found, [share.shape[1]])
    gains = np.where(gains == 0.0, 1.0, gains)
    robust = any(test.robust for test in tests)
    for _ in range(GAIN_ROUNDS):
        slope = np.concatenate([
            gain_columns(test.rows.all_samples, test.drives, free_drives, gains, share @ p + known) for test in tests
        ])  # fmt: skip
        matrix = np.concatenate([regressor, slope], axis=1)
        found = least_norm_solution(matrix / std[:, None], (effort @ gains - rest) / std)
        residual = effort @ gains - rest - matrix @ found
        p, steps = np.split(found, [share.shape[1]])
        std = _robust_std(residual, group) if robust else _rms_by_group(residual[:, None], group)
        # a gain keeps its sign and order of size in one step
        factor = np.clip(1.0 + steps / gains, 1.0 / LARGEST_GAIN_STEP, LARGEST_GAIN_STEP)
        gains = gains * factor
        if np.abs(factor - 1.0).max() < GAIN_SETTLED:
            break
    else:
        if np.abs(factor - 1.0).max() > LARGEST_LAST_GAIN_STEP:
            raise ValueError(
                f"{', '.join(f'{GAIN_FAMILY}.{name}' for name in free_drives)}: not converged after {GAIN_ROUNDS} steps"
            )
    unknown = ~np.isfinite(identifiability(matrix / std[:, None], np.ones(len(matrix))).std[share.shape[1] :])
    if unknown.any():
        raise ValueError(_not_identifiable_text(np.array(free_drives)[unknown].tolist()))
    by_name = dict(zip(names, (share @ p + known).tolist(), strict=True))
    return PreliminaryGains(dict(zip(free_drives, gains.tolist(), strict=True)), by_name)


def gain_columns(
    samples: Samples,
    drives: Drives,
    free_drives: Sequence[str],
    gains: Float[np.ndarray, "g"],
    values: Float[np.ndarray, "p"],
) -> Float[np.ndarray, "r g"]:
    """Derivative of the predicted drive signals by gains, converted to efforts by the gains of linearization.

    d(N^T G_0 i) / dg_m = -N_m i_m with i = G_0^-1 N^-T Y p, the noise-free prediction.

    Args:
        samples: of the test.
        drives: of its record.
        free_drives: drives whose gains are free.
        gains: of these.
        values: p.
    """
    torque = np.linalg.solve(drives.ratio.T, (samples.regressor @ values).T).T
    chosen = [drives.names.index(name) for name in free_drives]
    efforts = [torque[:, [m]] / gain * drives.ratio[m] for m, gain in zip(chosen, gains, strict=True)]
    return -np.stack([samples.to_rows(effort) for effort in efforts], axis=1)


def _efforts(test: DriveRecording, free_drives: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the efforts of each drive with a free gain, for a gain of 1, and the sum of all others."""
    samples, drives = test.rows.all_samples, test.drives
    each = [samples.to_rows(test.signal[:, [m]] * drives.ratio[m]) for m in range(len(drives.names))]
    own = [each[drives.names.index(name)] for name in free_drives]
    others = [drives.gain[m] * each[m] for m, name in enumerate(drives.names) if name not in free_drives]
    return np.stack(own, axis=1), np.sum([np.zeros(len(each[0])), *others], axis=0)


def _rms_by_group(parts: Float[np.ndarray, "r k"], group: np.ndarray) -> Float[np.ndarray, "r"]:
    """Root mean square over all columns and the rows of the same coordinate, for each row."""
    size = np.sqrt(np.bincount(group, np.sum(parts**2, axis=1)) / np.bincount(group))
    return np.maximum(size, 1e-12 * size.max())[group]


def _robust_std(residual: Float[np.ndarray, "r"], group: np.ndarray) -> Float[np.ndarray, "r"]:
    """Robust standard deviation at the coordinate of each row, divided by the root of Tukey's weight."""
    size = np.array([np.median(np.abs(residual[group == i])) for i in range(group.max() + 1)]) / NORMAL_MEDIAN
    size = np.maximum(size, 1e-12 * max(float(size.max()), float(np.abs(residual).max())))[group]
    return size / np.sqrt(np.maximum(tukey(residual / size), LEAST_WEIGHT))


def _not_identifiable_text(drives: Sequence[str]) -> str:
    return (
        f"{', '.join(f'{GAIN_FAMILY}.{name}' for name in drives)} not identifiable: the free parameters reproduce all"
        " known efforts, expected one run with a payload whose parameters are fixed, and one without it"
    )


DELAY_FAMILY = "delay"
"""Prefix of the names of free delays: "delay.TEST"."""
SLOPE_REACH = 2
"""Samples on either side of a jump on which the slope depends."""
DELAY_ROUNDS = 20
DELAY_TOLERANCE = 1e-4
"""Step of the delay at convergence, in samples."""
LARGEST_LAST_DELAY_STEP = 0.1
"""The same where steps do not decrease: with noise, the samples that pass `least_speed` vary with the delay."""
LONGEST_DELAY_STEP = 5.0
"""Largest step of a delay, in samples."""


def fit_delay(equations: Callable[[float], EffortRows], rate_hz: float, name: str) -> tuple[float, EffortRows]:
    """Delay, s, of the best fit of all parameters to the efforts, and the equations at that delay.

    Gauss-Newton fit of effort(t) = (Y p)(t - d). The motion is delayed, which leaves the noise of the efforts
    unchanged.

    Args:
        equations: returns the equations, with samples, of the motion delayed by so many seconds.
        rate_hz: samples per second.
        name: of the delay, for messages.

    Raises:
        ValueError: the iteration did not converge.
    """
    delay_s, before = 0.0, np.inf
    for _ in range(DELAY_ROUNDS):
        rows = equations(delay_s)
        matrix = np.concatenate([rows.regressor, delay_column(rows, rate_hz)[:, None]], axis=1)
        right = rows.effort - rows.constant
        weight = np.ones(right.size)
        for _ in range(2):  # by the residual of the previous fit at each coordinate
            found = least_norm_solution(matrix * weight[:, None], right * weight)
            residual = right - matrix @ found
            size = np.sqrt(np.bincount(rows.coordinate, residual**2) / np.bincount(rows.coordinate))
            weight = 1.0 / np.maximum(size, 1e-9 * np.abs(right).max())[rows.coordinate]
        step = abs(found[-1]) * rate_hz
        if step <= (LARGEST_LAST_DELAY_STEP if step > 0.5 * before else DELAY_TOLERANCE):
            return delay_s, rows
        before = step
        delay_s += float(np.clip(found[-1], -LONGEST_DELAY_STEP / rate_hz, LONGEST_DELAY_STEP / rate_hz))
    raise ValueError(
        f"[free]: {name} still changes after {DELAY_ROUNDS} steps, from {delay_s:.3g} s by {found[-1]:.3g} s"
    )


def delay_column(rows: EffortRows, rate_hz: float) -> Float[np.ndarray, "r"]:
    """Derivative of the predicted efforts by their delay, -d(Y p)/dt, with p from a fit of all parameters."""
    samples = rows.all_samples
    values = least_norm_solution(rows.regressor, rows.effort - rows.constant)
    return -samples.to_rows(rates(samples.columns @ values + samples.constant, rate_hz)[0])


FRICTION_ROUNDS = 30
"""Iterations of the fit with all selected terms."""
FRICTION_SETTLED = 1e-6
"""Relative change of all coefficients and speeds at convergence."""


class FrictionTerm(NamedTuple):
    """A term of the friction of one coordinate."""

    coordinate: str
    kind: str
    """One of `FRICTION_KINDS`."""
    coefficient: float
    """Nm or N for "stribeck", without a unit for "load", Nm s^3 for "cubic" and Nm s/K for "temperature"."""
    std: float
    speed: float | None
    """Stribeck speed, rad/s or m/s."""
    before: float
    """Root mean square error of the coordinate's effort on held-out motion, Nm or N."""
    after: float
    temperature: float | None = None
    """Mean recorded temperature, the reference of the damping slope."""

    @property
    def name(self) -> tuple[str, str]:
        """Coordinate and kind."""
        return self.coordinate, self.kind


class FrictionChoice(NamedTuple):
    """Selected friction terms, and the machine fitted with them."""

    terms: tuple[FrictionTerm, ...]
    """Terms by decreasing improvement."""
    values: dict[str, float]
    """Values of the regressor's parameters fitted with the terms; they determine the load of the gears."""


def fitted_terms(
    rows: EffortRows, names: Sequence[str], terms: Sequence[FrictionTerm], std: Float[np.ndarray, "r"]
) -> FrictionChoice:
    """Joint weighted least squares fit of friction terms and all parameters.

    Gauss-Newton steps in the coefficients and Stribeck speeds; the load of the gears is that of the previous step.

    Args:
        rows: equations of the motion, with its samples.
        names: of the regressor's columns.
        terms: with initial coefficients and speeds.
        std: of each row, Nm or N.
    """
    right = (rows.effort - rows.constant) / std
    best = least_norm_solution(rows.regressor / std[:, None], right)
    choice = FrictionChoice(tuple(terms), dict(zip(names, best.tolist(), strict=True)))
    for _ in range(FRICTION_ROUNDS):
        columns, slopes = term_columns(rows, names, choice)
        best = least_norm_solution(np.concatenate([rows.regressor, columns, slopes], axis=1) / std[:, None], right)
        values, sizes, steps = np.split(best, [len(names), len(names) + len(terms)])
        curved = iter(steps.tolist())
        found = [
            term._replace(coefficient=float(size), speed=_limited_step(term.speed, curved))
            for term, size in zip(choice.terms, sizes, strict=True)
        ]
        changes = [
            (old, new)
            for before, after in zip(choice.terms, found, strict=True)
            for old, new in ((before.coefficient, after.coefficient), (before.speed or 0.0, after.speed or 0.0))
        ]
        choice = FrictionChoice(tuple(found), dict(zip(names, values.tolist(), strict=True)))
        if all(abs(new - old) <= FRICTION_SETTLED * abs(new) for old, new in changes):
            break
    return choice


def term_columns(rows: EffortRows, names: Sequence[str], choice: FrictionChoice) -> tuple[np.ndarray, np.ndarray]:
    """Regressor columns of the coefficients of terms [r, k], and of Stribeck speeds [r, s]."""
    loads, samples = load_columns(names), rows.all_samples
    values = np.array([choice.values[name] for name in names])
    columns, slopes = [], []
    for term in choice.terms:
        i = rows.measured.index(term.coordinate)
        v, load = samples.velocity[:, i], samples.regressor[:, i, loads] @ values[loads]
        columns.append(term_column(rows, i, term_effort(term.kind, term.speed, v, load, samples.temperature)))
        if term.speed is not None:
            slopes.append(term_column(rows, i, term.coefficient * stribeck_slope(v, term.speed)))
    empty = np.zeros((len(rows.effort), 0))
    return np.column_stack([empty, *columns]), np.column_stack([empty, *slopes])


def _limited_step(speed: float | None, steps: Iterator[float]) -> float | None:
    """A Stribeck speed after the next of the steps, limited to a factor of 1.5; None for a term without one."""
    return None if speed is None else float(np.clip(speed + next(steps), speed / 1.5, 1.5 * speed))


def term_column(rows: EffortRows, coordinate: int, effort: Float[np.ndarray, "k"]) -> Float[np.ndarray, "r"]:
    """Rows of the equations for an effort at one coordinate."""
    samples = rows.all_samples
    whole = np.zeros(samples.velocity.shape)
    whole[:, coordinate] = effort
    return samples.to_rows(whole)


def term_effort(
    kind: str,
    speed: float | None,
    velocity: Float[np.ndarray, "k"],
    load: Float[np.ndarray, "k"],
    temperature: Float[np.ndarray, "k"] | None = None,
) -> Float[np.ndarray, "k"]:
    """Effort of a kind of term with a coefficient of 1, at samples of one coordinate.

    Args:
        kind: one of `FRICTION_KINDS`.
        speed: Stribeck speed, rad/s or m/s.
        velocity: of the coordinate.
        load: effort transmitted by its gear.
        temperature: where recorded.
    """
    if kind == "stribeck" and speed is not None:
        return stribeck(velocity, speed)
    if kind == "cubic":
        return velocity**3
    if kind == "load":
        return np.abs(load) * np.sign(velocity)
    return np.zeros(velocity.shape) if temperature is None else (temperature - temperature.mean()) * velocity


FOLDS = 5
"""Consecutive parts of the record, each held out once."""
SIGNIFICANCE = 0.01
"""Significance level of a term, corrected for the number of candidates."""
MOST_ROWS = 10_000
"""Largest number of rows used, evenly spaced over the record."""
MOST_TERMS = 6
"""Largest number of selected terms."""
SPEEDS = np.geomspace(0.02, 0.5, 9)
"""Candidate Stribeck speeds over the largest speed."""


def friction_terms(
    rows: EffortRows,
    names: Sequence[str],
    kinds: Sequence[str],
    existing: Collection[tuple[str, str]] = (),
) -> FrictionChoice:
    """Friction terms that improve the prediction of held-out motion, by decreasing improvement.

    Beside viscous and Coulomb friction and an offset, effort at a coordinate of speed v may have c exp(-(v / v_s)^2)
    sign v ("stribeck"), c |tau| sign v with tau the effort that the gear carries without friction ("load"), c v^3
    ("cubic") and c (T - mean T) v ("temperature"). All are linear in c, and fitted jointly with all parameters of the
    machine, free or not, so that no term absorbs effects of masses or inertias; v_s is selected from a grid. Terms are
    selected one at a time: cross-validation errors must decrease by more than the standard error of the mean of their
    logarithms, and the coefficient must be significant for that many candidates. After each selection all terms are
    refitted, with Stribeck speeds and the load tau of the fitted parameters: the residual of a grid of speeds would
    resemble a further term.

    Args:
        rows: equations of the motion, with its samples.
        names: of the regressor's columns.
        kinds: candidates among `FRICTION_KINDS`.
        existing: coordinates and kinds of the terms that the machine already has.

    Source: Armstrong-Helouvry, Dupont and Canudas de Wit 1994, "A survey of models, analysis tools and compensation
    methods for the control of machines with friction"; Bittencourt and Axelsson 2014, "Modeling and experiment design
    for identification of wear in a robot joint under load and temperature uncertainties".
    """
    rows = _fewer(rows)
    std = effort_noise(rows).std[rows.coordinate]
    matrix, right = rows.regressor / std[:, None], (rows.effort - rows.constant) / std
    candidates = [c for c in _candidates(rows, kinds) if c.name not in existing]
    if not candidates:
        return FrictionChoice((), {})
    plain = least_norm_solution(rows.regressor, rows.effort - rows.constant)
    at_plain = FrictionChoice(tuple(candidates), dict(zip(names, plain.tolist(), strict=True)))
    columns = term_columns(rows, names, at_plain)[0] / std[:, None]
    fold = FOLDS * np.argsort(np.argsort(rows.time_s, kind="stable"), kind="stable") // len(right)
    choice, remaining = FrictionChoice((), {}), list(range(len(candidates)))
    while remaining and len(choice.terms) < MOST_TERMS:
        whole = _Split(matrix, right, np.arange(0), columns[:, remaining])
        splits = [_Split(matrix, right, np.flatnonzero(fold == k), columns[:, remaining]) for k in range(FOLDS)]
        best, best_gain = None, 0.0
        for name in dict.fromkeys(candidates[i].name for i in remaining):
            members = [n for n, i in enumerate(remaining) if candidates[i].name == name]
            of_coordinate = rows.coordinate == rows.measured.index(name[0])
            errors = np.array([split.errors(members, of_coordinate) for split in splits])
            gains = np.log(errors[:, 0] / errors[:, 1])
            gain, strongest = float(gains.mean()), members[int(np.argmax(whole.drop[members]))]
            is_predictive = gain > gains.std(ddof=1) / np.sqrt(FOLDS)
            coefficient_std = whole.coefficient_std(strongest, of_coordinate)
            chance = 2.0 * len(candidates) * ndtr(-abs(whole.coefficient[strongest]) / coefficient_std)
            if is_predictive and gain > best_gain and chance < SIGNIFICANCE:
                best, best_gain = (strongest, errors, coefficient_std), gain
        if best is None:
            break
        n, errors, coefficient_std = best
        selected = candidates[remaining[n]]
        unit = float(np.mean(std[rows.coordinate == rows.measured.index(selected.coordinate)]))
        before, after = (unit * float(np.sqrt(np.mean(part**2))) for part in errors.T)
        warm = selected.kind == "temperature"
        temperature = float(np.asarray(rows.all_samples.temperature).mean()) if warm else None
        new = selected._replace(
            coefficient=float(whole.coefficient[n]), std=coefficient_std, before=before, after=after,
            temperature=temperature,
        )  # fmt: skip
        choice = fitted_terms(rows, names, [*choice.terms, new], std)
        matrix = np.concatenate([rows.regressor, *term_columns(rows, names, choice)], axis=1) / std[:, None]
        remaining = [i for i in remaining if candidates[i].name != selected.name]
    return choice


def _fewer(rows: EffortRows) -> EffortRows:
    """At most `MOST_ROWS` of the rows, evenly decimated; of each sample all coordinates."""
    step = -(-len(rows.effort) // MOST_ROWS)
    some, samples = np.isin(rows.time_s, np.unique(rows.time_s)[::step]), rows.all_samples
    return rows._replace(
        regressor=rows.regressor[some],
        effort=rows.effort[some],
        coordinate=rows.coordinate[some],
        time_s=rows.time_s[some],
        velocity=rows.velocity[some],
        constant=rows.constant[some],
        samples=samples._replace(to_rows=lambda part: samples.to_rows(part)[some]),
    )


class _Split:
    """Fits to some rows, without and with each candidate; the other rows are held out."""

    def __init__(
        self, matrix: np.ndarray, right: np.ndarray, held_out: Int[np.ndarray, "o"], columns: np.ndarray
    ) -> None:
        fitted = np.setdiff1d(np.arange(len(right)), held_out)
        self.held_out = held_out
        svd = scaled_svd(matrix[fitted], RANK_TOLERANCE)
        self.rank, basis = svd.rank, svd.range(fitted.size)
        self.residual = residual = svd.beside(right[fitted])
        self.columns = orthogonal = svd.beside(columns[fitted])
        length = np.sum(orthogonal**2, axis=0)
        acts = length > RANK_TOLERANCE * np.sum(columns[fitted] ** 2, axis=0)
        self.coefficient = np.where(acts, orthogonal.T @ residual / np.where(acts, length, 1.0), 0.0)
        self.drop = self.coefficient**2 * length
        self.std = np.where(acts, 1.0 / np.sqrt(np.where(acts, length, 1.0)), np.inf)
        predict = svd.basis(matrix[held_out])
        self.held_out_residual = right[held_out] - predict @ (basis.T @ right[fitted])
        self.held_out_columns = columns[held_out] - predict @ (basis.T @ columns[fitted])

    def coefficient_std(self, n: int, of_coordinate: np.ndarray) -> float:
        """Standard deviation of a coefficient, from the residual of the coordinate, without held-out rows."""
        residual = (self.residual - self.coefficient[n] * self.columns[:, n])[of_coordinate]
        degrees_used = (self.rank + 1) * residual.size / len(self.residual)
        variance = np.sum(residual**2) / max(1.0, residual.size - degrees_used)
        return float(self.std[n] * np.sqrt(variance * correlation_length(residual, degrees_used)))

    def errors(self, candidates: list[int], of_coordinate: np.ndarray) -> tuple[float, float]:
        """Root mean square error of the held-out rows of a coordinate, without and with the best of some candidates."""
        n = candidates[int(np.argmax(self.drop[candidates]))]
        own = of_coordinate[self.held_out]
        if not own.any():
            return 1.0, 1.0
        without = self.held_out_residual[own]
        with_it = without - self.coefficient[n] * self.held_out_columns[own, n]
        return float(np.sqrt(np.mean(without**2))), float(np.sqrt(np.mean(with_it**2)))


def _candidates(rows: EffortRows, kinds: Sequence[str]) -> list[FrictionTerm]:
    """Terms of each coordinate, with a coefficient of 1; those of Stribeck friction differ in their speed."""
    fastest = np.abs(rows.all_samples.velocity).max(axis=0)
    return [
        FrictionTerm(name, kind, 1.0, np.inf, speed, np.nan, np.nan)
        for name, most in zip(rows.measured, fastest, strict=True)
        for kind in kinds
        for speed in ((SPEEDS * most).tolist() if kind == "stribeck" else (None,))
    ]
