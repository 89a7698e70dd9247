"""Linear equations of a recorded motion: filter, rates, loop closure, regressor, decimation."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from jaxmb.identify.estimation.identifiability import RANK_TOLERANCE, scaled_svd, without_rounding
from jaxmb.identify.estimation.linear import linear_fit
from jaxmb.identify.experiments.torque.gears import AT_REST, Gears, drive_rows, elastic_rows, rigid_gears, unloaded
from jaxmb.identify.parameters.model_parameters import parameters
from jaxmb.identify.regression.torque_regressor import load_columns, regressor_names, stacked_torque_regressor
from jaxmb.io.validation import error_location
from jaxmb.machine.build import Model
from jaxmb.measurement.motion.estimate import MotionEstimate, low_passed_motion
from jaxmb.measurement.motion.record import Cutoff, MotionRecord, decimation, edge, low_pass
from jaxmb.mechanics.loops import independent_coordinates
from jaxmb.mechanics.postures import closed_along


def column_names(model: Model, measured: Sequence[str]) -> tuple[str, ...]:
    """Names of the columns of a torque test: `regressor_names`, then the Stribeck speeds of the measured
    coordinates."""
    return (*regressor_names(model), *(f"stribeck_speed.{name}" for name in _stribeck(model, measured)))


def stribeck(velocity: Float[np.ndarray, "..."], speed: float) -> Float[np.ndarray, "..."]:
    """exp(-(v / v_s)^2) sign v."""
    return np.exp(-((velocity / speed) ** 2)) * np.sign(velocity)


def stribeck_slope(velocity: Float[np.ndarray, "..."], speed: float) -> Float[np.ndarray, "..."]:
    """Derivative of `stribeck` by v_s."""
    return stribeck(velocity, speed) * 2.0 * velocity**2 / speed**3


def further_columns(
    model: Model,
    measured: Sequence[str],
    regressor: Float[np.ndarray, "k c p"],
    velocity: Float[np.ndarray, "k c"],
    temperature: Float[np.ndarray, "k"] | None,
    load_parameters: Mapping[str, float] | None,
) -> tuple[Float[np.ndarray, "k c q"], Float[np.ndarray, "k c"]]:
    """The regressor with all columns of `column_names`, and the constant term.

    Temperatures are given. Load-dependent friction c |tau| sign v, tau = Y p, and Stribeck friction in its speed v_s
    are nonlinear. They are linearized about c_0 and v_s0 of the machine and p_0, as (1 + c_0 sign(tau_0 v)) Y p + (c -
    c_0) |tau_0| sign v and ... + c_s0 (v_s - v_s0) d/dv_s exp(-(v / v_s)^2) sign v.

    Args:
        model: the machine.
        measured: coordinates whose effort was measured.
        regressor: Y at these.
        velocity: of these, rad/s or m/s.
        temperature: of the drives; None where not recorded.
        load_parameters: p_0 by name; None for the machine's own values.
    """
    constant = np.zeros(velocity.shape)
    if not any(model.further_friction):
        return regressor, constant
    names, own = regressor_names(model), parameters(model)
    loads = load_columns(names)
    known = own if load_parameters is None else load_parameters
    values = np.array([known.get(name, 0.0) for name in names])
    found, speeds = regressor.copy(), _stribeck(model, measured)
    more = np.zeros((*velocity.shape, len(speeds)))
    for i, name in enumerate(measured):
        terms, v = model.further_friction[model.coordinates.index(name)], velocity[:, i]
        if "load_friction" in terms:
            coefficient, load = own[f"load_friction.{name}"], regressor[:, i, loads] @ values[loads]
            column = np.abs(load) * np.sign(v)
            found[:, i, loads] *= (1.0 + coefficient * np.sign(load * v))[:, None]
            found[:, i, names.index(f"load_friction.{name}")] = column
            constant[:, i] -= coefficient * column
        if "damping_slope" in terms and temperature is not None:
            normal = float(model.friction_temperature[model.coordinates.index(name)])
            found[:, i, names.index(f"damping_slope.{name}")] = (temperature - normal) * v
        if "stribeck" in terms:
            speed = own[f"stribeck_speed.{name}"]
            column = own[f"stribeck.{name}"] * stribeck_slope(v, speed)
            more[:, i, speeds.index(name)] = column
            constant[:, i] -= column * speed
    return np.concatenate([found, more], axis=2), constant


def _stribeck(model: Model, measured: Sequence[str]) -> list[str]:
    return [name for name in measured if "stribeck" in model.further_friction[model.coordinates.index(name)]]


PATH_STEPS = 256
"""Number of steps to the first sample, and its increment."""
LONGEST_STEP = 0.05
"""Largest change of a coordinate in one step to the first sample, rad or m."""


class Samples(NamedTuple):
    """All used samples before filtering of efforts and selection of rows, from which friction columns are computed."""

    regressor: Float[np.ndarray, "k c p"]
    velocity: Float[np.ndarray, "k c"]
    temperature: Float[np.ndarray, "k"] | None
    columns: Float[np.ndarray, "k c q"]
    """The regressor with further columns of friction."""
    constant: Float[np.ndarray, "k c"]
    """Constant term of the prediction."""
    to_rows: Callable[[Float[np.ndarray, "k c ..."]], Float[np.ndarray, "r ..."]]
    """Maps contributions to the efforts of all samples to rows of the equations."""


class EffortRows(NamedTuple):
    """Equations of the efforts at the measured coordinates, by sample: effort = regressor @ values + constant."""

    regressor: Float[np.ndarray, "r p"]
    effort: Float[np.ndarray, "r"]
    coordinate: Int[np.ndarray, "r"]
    """Index of each row's coordinate among the measured ones."""
    time_s: Float[np.ndarray, "r"]
    velocity: Float[np.ndarray, "r"]
    """Of each row's coordinate, rad/s or m/s."""
    measured: tuple[str, ...]
    """Coordinates whose effort was measured."""
    constant: Float[np.ndarray, "r"]
    """Constant term of columns that are linearized."""
    samples: Samples | None = None
    """None unless `keep_samples`."""
    effort_by_drive: Float[np.ndarray, "r d"] | None = None
    """Part of each effort that is due to each recorded drive; None unless a drive acts on several coordinates."""

    @property
    def all_samples(self) -> Samples:
        """`samples`; raises ValueError where they were not kept."""
        if self.samples is None:
            raise ValueError("rows have no samples, expected those of `effort_rows` with keep_samples")
        return self.samples


class RowSettings(NamedTuple):
    """Settings of the equations of a recorded motion."""

    effort_cutoff_hz: Cutoff | None = None
    """Of the filter of the equations; None for no filter."""
    least_speed: Float[np.ndarray, "m"] | float = 0.0
    """rad/s or m/s: rows of an independent coordinate are excluded where it, or a transmission that it drives, is
    slower, and next to reversals blurred by resampling."""
    from_s: float = 0.0
    """Start of the used interval, after the first sample."""
    to_s: float = np.inf
    """End of the used interval."""
    load_parameters: Mapping[str, float] | None = None
    """Parameters that determine the load of load-dependent friction."""
    keep_samples: bool = False
    """Whether to keep `EffortRows.samples`."""
    gears: Gears = Gears({})
    """Between motors and joints."""
    absent: Sequence[int] = ()
    """Columns of the regressor without effect in this record."""


def effort_rows(
    model: Model,
    record: MotionRecord,
    motion: MotionEstimate,
    path: Float[np.ndarray, "k n"],
    settings: RowSettings,
) -> EffortRows:
    """Equations of a recorded motion.

    With `effort_cutoff_hz`, both sides of the equations are filtered (Y p = effort is invariant under linear filters)
    and decimated accordingly.

    Args:
        model: the machine.
        record: of its motion.
        motion: estimated positions, rates and accelerations.
        path: from `recorded_path`.
        settings: filter, selection of samples, gears and friction.

    Raises:
        ValueError: the record is too short, or a loop does not close.

    Source: Pyrhonen et al. 2024, section 2.2; Gautier 1997, "Dynamic identification of robots with power model".
    """
    rate, count, effort_cutoff_hz = record.rate_hz, len(record.time_s), settings.effort_cutoff_hz
    gears, absent, from_s, to_s = settings.gears, list(settings.absent), settings.from_s, settings.to_s
    used = np.arange(motion.first, count - motion.last)
    q, zd, zdd = states_at(model, record, motion, path, used)
    elastic_regressor, elastic_constant = None, np.zeros(zd.shape)
    if gears.fitted is not None:
        speed = np.abs(motion.velocity)
        first = 0 if np.all(speed[0] <= AT_REST * speed.max(axis=0)) else motion.first
        q_all, zd_all, zdd_all = states_at(model, record, motion, path, np.arange(first, count - motion.last))
        parts = elastic_rows(model, gears, absent, q_all, zd_all, zdd_all, rate)
        elastic_regressor, elastic_constant, _ = (part[motion.first - first :] for part in parts)
    regressor, effort, own = equations_at(model, record, q, zd, zdd, used, elastic_regressor)
    regressor[:, :, absent] = 0.0
    measured, speed = tuple(independent_coordinates(model)[i] for i in own), zd[:, own]
    temperature = None if record.temperature is None else record.temperature[used]

    def filtered(part: np.ndarray) -> np.ndarray:
        if effort_cutoff_hz is None:
            return part
        found = part.reshape(len(part), -1).copy()
        acting = found.any(axis=0)
        with error_location("effort_cutoff_hz"):
            found[:, acting] = low_pass(found[:, acting], rate, effort_cutoff_hz)
        return found.reshape(part.shape)

    columns, constant = further_columns(model, measured, regressor, speed, temperature, settings.load_parameters)
    constant = constant + elastic_constant[:, own]
    both_sides = filtered(np.concatenate([columns, constant[:, :, None], effort[:, :, None]], axis=2))
    inside = np.arange(len(used))
    if effort_cutoff_hz is not None:
        ends = edge(rate, effort_cutoff_hz)
        inside = np.arange(ends, len(used) - ends, decimation(rate, effort_cutoff_hz))
    time = record.time_s[used[inside]] - record.time_s[0]
    within = (time >= from_s) & (time <= to_s)
    if not within.any():
        interval = f"after {from_s:g} s" if to_s == np.inf else f"between {from_s:g} and {to_s:g} s"
        covered = f"{time[0]:.3g} to {time[-1]:.3g} s"
        raise ValueError(f"no samples {interval}: without the filters' ends the record covers {covered}")
    inside = inside[within]
    fast = moving_samples(model, zd, settings.least_speed, record.blurred)[inside][:, own]
    sample, coordinate = np.nonzero(fast)
    for i, name in enumerate(measured):
        if not fast[:, i].any():
            text = f"{name} is never faster than least_speed, expected one below {np.abs(speed[inside, i]).max():.3g}"
            raise ValueError(f"the record has {record.doubtful_rate} {text}" if record.doubtful_rate else text)

    def to_rows(part: np.ndarray) -> np.ndarray:
        return filtered(part)[inside[sample], coordinate]

    rows, drives, effort_by_drive = both_sides[inside[sample], coordinate], record.drives, None
    if drives is not None and (np.count_nonzero(drives.ratio, axis=1) > 1).any():
        effort_by_drive = to_rows((drives.gain * drives.signal[used])[:, None, :] * drives.ratio.T)
    return EffortRows(
        regressor=rows[:, :-2],
        effort=rows[:, -1],
        coordinate=coordinate,
        time_s=record.time_s[used[inside[sample]]],
        velocity=speed[inside[sample], coordinate],
        measured=measured,
        constant=rows[:, -2],
        samples=Samples(regressor, speed, temperature, columns, constant, to_rows) if settings.keep_samples else None,
        effort_by_drive=effort_by_drive,
    )


def moving_samples(
    model: Model, zd: Float[np.ndarray, "s m"], least_speed: np.ndarray | float, margin: int
) -> np.ndarray:
    """Mask of the samples at which each independent coordinate, and each transmission that it drives, exceeds its least
    speed and is more than `margin` samples from a reversal. A coordinate that reverses at all its samples, at rest,
    keeps them."""
    speed = np.broadcast_to(least_speed, zd.shape[1:])
    fast = np.abs(zd) >= speed
    turning = fast & ~_reversal(zd, margin)
    fast = np.where(turning.any(axis=0), turning, fast)
    independent = [model.coordinates.index(name) for name in independent_coordinates(model)]
    for rate in np.asarray(model.transmission_rate)[:, independent]:
        turns = rate != 0.0
        if turns.any():
            slow = np.abs(zd @ rate) < np.min(speed[turns])
            fast[:, turns] &= ~slow[:, None]
            turning = fast & ~_reversal(zd @ rate, margin)[:, None]
            fast[:, turns & turning.any(axis=0)] = turning[:, turns & turning.any(axis=0)]
    return fast


def _reversal(rate: Float[np.ndarray, "s ..."], margin: int) -> np.ndarray:
    """Mask of the samples at most `margin` samples from a sign change of a rate."""
    reverses, found = np.diff(np.sign(rate), axis=0) != 0.0, np.zeros(rate.shape, dtype=bool)
    for lag in range(margin):
        found[lag + 1 :] |= reverses[: len(reverses) - lag]
        found[: len(reverses) - lag] |= reverses[lag:]
    return found


def least_norm_solution(matrix: Float[np.ndarray, "r p"], right: Float[np.ndarray, "r"]) -> Float[np.ndarray, "p"]:
    """Least squares solution of smallest norm, with columns scaled to length 1."""
    return scaled_svd(matrix, RANK_TOLERANCE).solve(right)


def recorded_path(model: Model, record: MotionRecord, start: Float[np.ndarray, "n"]) -> Float[np.ndarray, "k n"]:
    """All coordinates at every sample, loops closed on the branch of a posture.

    Args:
        model: the machine.
        record: of its motion.
        start: posture near the first sample, with values of unrecorded coordinates.

    Raises:
        ValueError: a loop does not close at a sample, which is named.
    """
    return closed_from(model, with_recorded(model, record.names, record.position, start), start)


def closed_from(model: Model, z: Float[np.ndarray, "k m"], start: Float[np.ndarray, "n"]) -> Float[np.ndarray, "k n"]:
    """All coordinates along a motion of the independent ones, loops closed on the branch of a posture.

    Raises:
        ValueError: a loop does not close at a sample, which is named.
    """
    if not model.loops:
        return z
    # from the posture to the first sample in short steps; few different step counts, as each is compiled
    before = _independent(model, start)
    count = PATH_STEPS * (1 + int(np.max(np.abs(z[0] - before)) / LONGEST_STEP) // PATH_STEPS)
    path = before + np.linspace(0.0, 1.0, count, endpoint=False)[:, None] * (z[0] - before)
    return closed_along(model, np.concatenate([path, z]), start)[count:]


def states_at(
    model: Model, record: MotionRecord, motion: MotionEstimate, path: np.ndarray, samples: Int[np.ndarray, "s"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All coordinates, and rates and accelerations of the independent ones, at some samples."""
    still = np.zeros(len(model.coordinates))
    z = with_recorded(model, record.names, motion.position[samples], path[0])
    rates = (motion.velocity, motion.acceleration)
    zd, zdd = (with_recorded(model, record.names, part[samples], still) for part in rates)
    z, zd, zdd = (rigid_gears(model, record.names, part) for part in (z, zd, zdd))
    return closed_along(model, z, path[samples]), zd, zdd


def with_recorded(
    model: Model, recorded: Sequence[str], part: Float[np.ndarray, "k c"], others: np.ndarray
) -> Float[np.ndarray, "k m"]:
    """Values of the independent coordinates: columns of recorded ones, the others constant."""
    found = np.tile(_independent(model, others), (len(part), 1))
    names = independent_coordinates(model)
    found[:, [names.index(name) for name in recorded]] = part
    return found


def _independent(model: Model, q: Float[np.ndarray, "n"]) -> Float[np.ndarray, "m"]:
    return q[[model.coordinates.index(name) for name in independent_coordinates(model)]]


def equations_at(
    model: Model,
    record: MotionRecord,
    q: np.ndarray,
    zd: np.ndarray,
    zdd: np.ndarray,
    samples: np.ndarray,
    rows: Float[np.ndarray, "k m p"] | None = None,
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Regressor [k, c, p] and measured efforts [k, c] of the measured coordinates, and their indices among the
    independent ones; the regressor from `rows` of all independent coordinates where given.

    Columns without effect are set to zero: scaled to length 1, their rounding would appear as parameters.
    """
    columns = np.flatnonzero(~np.isnan(record.effort).all(axis=0))
    own = [independent_coordinates(model).index(record.names[i]) for i in columns]
    if rows is None:
        rest = jnp.asarray(unloaded(model)) if model.motors else None
        rows = drive_rows(model, stacked_torque_regressor(model, q, zd, zdd, rest))
    regressor = rows[:, own]
    acting = without_rounding(regressor.reshape(-1, regressor.shape[2])).reshape(regressor.shape)
    return acting, record.effort[samples][:, columns], own


CUTOFFS = 12
"""Number of candidate cut-offs."""
LOWEST_CUTOFF = 20.0
"""Lowest candidate cut-off, in periods of the whole record."""
HIGHEST_CUTOFF = 0.2
"""Highest candidate cut-off, over the sampling rate."""
SEARCH_SAMPLES = 3000
"""Number of samples on which cut-offs are compared."""
BLOCKS = 20
"""Parts of the record for the standard error of a difference of errors."""
ROBUST_STD = 1e-12
"""Standard deviation over the efforts' size, so small that robust weights use the median residual instead."""


def highest_cutoff(
    model: Model,
    record: MotionRecord,
    path: Float[np.ndarray, "k n"],
    settings: RowSettings,
    robust: bool = False,
) -> float:
    """The highest cut-off whose prediction of the recorded efforts is not significantly worse than with the best one,
    Hz.

    Angles are filtered, efforts are not. Too low a cut-off removes fast motion from the accelerations; too high a one
    leaves noise, which biases inertias towards zero. All cut-offs are compared on the same samples, those that a fit
    would use. A cut-off is not worse if its sum of squares is larger by less than the standard error of the difference,
    from the scatter between `BLOCKS` parts of the record, which is valid for coloured noise.

    Of these the highest is chosen. Motion lost by a low cut-off depends on the motion, and another motion may lose
    more; noise passed by a high one does not. An increase of chi^2 by L from lost motion is an error of parameters of
    up to sqrt(L) standard deviations; the same increase from noise is one of about L over the ratio of a parameter to
    its deviation.

    Args:
        model: the machine.
        record: of its motion.
        path: from `recorded_path`.
        settings: selection of samples and of columns.
        robust: outliers of the efforts are excluded.

    Raises:
        ValueError: the record is too short to compare cut-offs.

    Source: Pyrhonen et al. 2024, section 4: the pass band was widened until the variance of the error grew.
    """
    rate, count = record.rate_hz, len(record.time_s)
    least = int(np.ceil(LOWEST_CUTOFF / HIGHEST_CUTOFF))
    if count <= least:
        raise ValueError(
            f"there are {count} samples, too few to search a cut-off: expected more than {least}, or cutoff_hz"
        )
    tried = np.geomspace(LOWEST_CUTOFF * rate / count, HIGHEST_CUTOFF * rate, CUTOFFS).tolist()
    ends, time = edge(rate, tried[0]), record.time_s - record.time_s[0]
    inside = np.arange(ends, count - ends)
    within = inside[(time[inside] >= settings.from_s) & (time[inside] <= settings.to_s)]
    within = within if within.size > BLOCKS else inside
    chosen = within[np.unique(np.linspace(0, within.size - 1, SEARCH_SAMPLES).astype(int))]
    equations = {cutoff: _equations(model, record, cutoff, path, chosen, settings.least_speed) for cutoff in tried}
    closed = {cutoff: each for cutoff, each in equations.items() if each is not None}
    if not closed:
        raise ValueError("loops do not close along the motion for any cut-off, expected cutoff_hz")
    # with the lowest cut-offs hardly anything moves, with the highest everything does
    used = np.mean([fast for _, _, fast in closed.values()], axis=0) > 0.5
    used = used if used.any() else np.ones_like(used)
    block = np.broadcast_to((np.arange(chosen.size) * BLOCKS // chosen.size)[:, None], used.shape)[used]
    rows = [_normalized_rows(regressor, effort, used, settings.absent) for regressor, effort, _ in closed.values()]
    residuals = np.stack([_residual(*each) for each in rows])
    if robust:
        best = rows[int(np.argmin(np.median(residuals**2, axis=1)))]
        root = np.sqrt(linear_fit(*best, np.full(block.size, ROBUST_STD), robust=True).weights)
        residuals = np.stack([_residual(matrix * root[:, None], right * root) for matrix, right in rows])
    squares = np.stack([np.bincount(block, part**2, minlength=BLOCKS) for part in residuals])
    best = int(np.argmin(squares.sum(axis=1)))
    more = squares - squares[best]
    worse = more.sum(axis=1) > np.sqrt(BLOCKS) * np.std(more, axis=1, ddof=1)
    later = np.flatnonzero(worse[best + 1 :])
    return list(closed)[best + int(later[0]) if later.size else -1]


def _equations(
    model: Model,
    record: MotionRecord,
    cutoff_hz: float,
    path: np.ndarray,
    chosen: np.ndarray,
    least_speed: np.ndarray | float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Regressor [s, c, p], efforts [s, c] and mask of moving coordinates [s, c], at some samples.

    None where the filtered motion is so small that loops do not close along it.
    """
    try:
        states = states_at(model, record, low_passed_motion(record, cutoff_hz), path, chosen)
        regressor, effort, own = equations_at(model, record, *states, chosen)
    except ValueError:
        return None
    return regressor, effort, moving_samples(model, states[1], least_speed, 0)[:, own]


def _normalized_rows(
    regressor: np.ndarray, effort: np.ndarray, used: np.ndarray, absent: Sequence[int]
) -> tuple[Float[np.ndarray, "r p"], Float[np.ndarray, "r"]]:
    """Used rows, each divided by the standard deviation of its coordinate's efforts."""
    size = np.std(effort, axis=0)
    size = np.where(size > 0.0, size, size.max() or 1.0)
    matrix = (regressor / size[:, None])[used]
    matrix[:, list(absent)] = 0.0
    return matrix, (effort / size)[used]


def _residual(matrix: np.ndarray, right: np.ndarray) -> Float[np.ndarray, "r"]:
    """Residual of least squares over all parameters."""
    return right - matrix @ least_norm_solution(matrix, right)
