"""From a recorded motion to linear equations: filter, rates, closed loops, regressor, fewer samples."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from jaxmb.identify.estimation.identifiability import without_rounding
from jaxmb.identify.experiments.torque.further_columns import further_columns
from jaxmb.identify.experiments.torque.gears import AT_REST, Gears, drive_rows, elastic_rows, rigid_gears, unloaded
from jaxmb.identify.regression.torque_regressor import stacked_torque_regressor
from jaxmb.io.validation import place
from jaxmb.machine.build import Model
from jaxmb.measurement.motion.estimate import MotionEstimate
from jaxmb.measurement.motion.record import MotionRecord
from jaxmb.measurement.motion.signals import Cutoff, decimation, edge, low_pass
from jaxmb.mechanics.loop_path import closed_along
from jaxmb.mechanics.loops import independent_coordinates

WAY = 256
"""Steps by which the way to the first sample is lengthened."""
LONGEST_STEP = 0.05
"""rad or m, of a coordinate on the way to the first sample."""
RANK = 1e-10
"""Singular value over the largest, of columns of length 1, below which parameters act together."""


class Samples(NamedTuple):
    """All samples that are used, before efforts are filtered and rows left out: of this friction is made."""

    regressor: Float[np.ndarray, "k c p"]
    velocity: Float[np.ndarray, "k c"]
    temperature: Float[np.ndarray, "k"] | None
    columns: Float[np.ndarray, "k c q"]
    """The regressor with further columns of friction."""
    constant: Float[np.ndarray, "k c"]
    """Beside them."""
    kept: Callable[[Float[np.ndarray, "k c ..."]], Float[np.ndarray, "r ..."]]
    """What becomes of something that adds to the efforts of all samples, in the rows of the equations."""


class Prepared(NamedTuple):
    """Rows of efforts at the measured coordinates, sample after sample: effort = regressor @ values + constant."""

    regressor: Float[np.ndarray, "r p"]
    effort: Float[np.ndarray, "r"]
    coordinate: Int[np.ndarray, "r"]
    """Number of each row's coordinate among the measured ones."""
    time_s: Float[np.ndarray, "r"]
    velocity: Float[np.ndarray, "r"]
    """Of each row's coordinate, rad/s or m/s."""
    measured: tuple[str, ...]
    """Coordinates whose effort was measured."""
    temperature: Float[np.ndarray, "r"] | None = None
    """Where it was recorded."""
    constant: Float[np.ndarray, "r"] | float = 0.0
    """Of columns that are not linear in their number, and taken as such about one value of it."""
    samples: Samples | None = None
    """None where nobody asks for them."""


def prepared(
    model: Model,
    record: MotionRecord,
    motion: MotionEstimate,
    path: Float[np.ndarray, "k n"],
    effort_cutoff_hz: Cutoff | None = None,
    least_speed: Float[np.ndarray, "m"] | float = 0.0,
    from_s: float = 0.0,
    to_s: float = np.inf,
    carrying: Mapping[str, float] | None = None,
    keep_samples: bool = False,
    gears: Gears | None = None,
    absent: Sequence[int] = (),
) -> Prepared:
    """Equations of a recorded motion.

    Where asked for, both sides of the equations are filtered, as Y p = effort stays true under any linear filter, and
    so many samples are kept as tell all that passed.

    Args:
        model: the machine.
        record: of its motion.
        motion: what the record tells of positions, rates and accelerations.
        path: from `recorded_path`.
        effort_cutoff_hz: of the filter of the equations, which are taken as they are where not given.
        least_speed: rad/s or m/s: rows of an independent coordinate are left out where it, or a transmission that it
            turns, is slower, and where it reverses within what resampling has blurred.
        from_s: first moment that is used, from the first sample.
        to_s: last one.
        carrying: numbers of the machine by which friction depends on the load that is carried.
        keep_samples: whether `Prepared.samples` are asked for.
        gears: between motors and joints, which are rigid where not given.
        absent: columns of the regressor without effect in this record.

    Raises:
        ValueError: the record is too short, or a loop opens.

    Source: Pyrhonen et al. 2024, section 2.2; Gautier 1997, "Dynamic identification of robots with power model".
    """
    rate, count = record.rate_hz, len(record.time_s)
    used = np.arange(motion.first, count - motion.last)
    q, zd, zdd = states_at(model, record, motion, path, used)
    given, beside = None, np.zeros(1)
    if gears is not None and gears.fitted is not None:
        speed = np.abs(motion.velocity)
        first = 0 if np.all(speed[0] <= AT_REST * speed.max(axis=0)) else motion.first
        q_all, zd_all, zdd_all = states_at(model, record, motion, path, np.arange(first, count - motion.last))
        found = elastic_rows(model, gears, absent, q_all, zd_all, zdd_all, rate)
        given, beside, _ = (part[motion.first - first :] for part in found)
    regressor, effort, measured = equations_at(model, record, q, zd, zdd, used, given)
    regressor[:, :, list(absent)] = 0.0
    places = [independent_coordinates(model).index(name) for name in measured]
    speed = zd[:, places]
    temperature = None if record.temperature is None else record.temperature[used]

    def filtered(part: np.ndarray) -> np.ndarray:
        if effort_cutoff_hz is None:
            return part
        with place("effort_cutoff_hz"):
            return low_pass(part.reshape(len(part), -1), rate, effort_cutoff_hz).reshape(part.shape)

    columns, constant = further_columns(model, measured, regressor, speed, temperature, carrying)
    if given is not None:
        constant = constant + beside[:, places]
    both = filtered(np.concatenate([columns, constant[:, :, None], effort[:, :, None]], axis=2))
    inside = np.arange(len(used))
    if effort_cutoff_hz is not None:
        ends = edge(rate, effort_cutoff_hz)
        inside = np.arange(ends, len(used) - ends, decimation(rate, effort_cutoff_hz))
    time = record.time_s[used[inside]] - record.time_s[0]
    within = (time >= from_s) & (time <= to_s)
    if not within.any():
        wanted = f"after {from_s:g} s" if to_s == np.inf else f"between {from_s:g} and {to_s:g} s"
        raise ValueError(
            f"nothing is left {wanted}: without the filters' ends the record has {time[0]:.3g} to {time[-1]:.3g} s"
        )
    inside = inside[within]
    fast = moving(model, zd, least_speed, record.blurred)[inside][:, places]
    sample, coordinate = np.nonzero(fast)
    for i, name in enumerate(measured):
        if not fast[:, i].any():
            raise ValueError(f"{name} is never faster than its least_speed, expected a lower one")

    def kept(part: np.ndarray) -> np.ndarray:
        return filtered(part)[inside[sample], coordinate]

    rows = both[inside[sample], coordinate]
    return Prepared(
        regressor=rows[:, :-2],
        effort=rows[:, -1],
        coordinate=coordinate,
        time_s=record.time_s[used[inside[sample]]],
        velocity=speed[inside[sample], coordinate],
        measured=measured,
        temperature=None if temperature is None else temperature[inside[sample]],
        constant=rows[:, -2],
        samples=Samples(regressor, speed, temperature, columns, constant, kept) if keep_samples else None,
    )


def moving(model: Model, zd: Float[np.ndarray, "s m"], least_speed: np.ndarray | float, beside: int) -> np.ndarray:
    """Whether each independent coordinate, and each transmission that it turns, is faster than its least speed, and
    so many samples from where its speed reverses; one that reverses all the time, at rest, keeps its samples."""
    speed = np.broadcast_to(least_speed, zd.shape[1:])
    fast = np.abs(zd) >= speed
    turning = fast & ~_reversal(zd, beside)
    fast = np.where(turning.any(axis=0), turning, fast)
    given = [model.coordinates.index(name) for name in independent_coordinates(model)]
    for rate in np.asarray(model.transmission_rate)[:, given]:
        turns = rate != 0.0
        if turns.any():
            slow = np.abs(zd @ rate) < np.min(speed[turns])
            fast[:, turns] &= ~slow[:, None]
            turning = fast & ~_reversal(zd @ rate, beside)[:, None]
            fast[:, turns & turning.any(axis=0)] = turning[:, turns & turning.any(axis=0)]
    return fast


def _reversal(rate: Float[np.ndarray, "s ..."], beside: int) -> np.ndarray:
    """Which samples are at most so many from where a rate changes its sign."""
    turned, found = np.diff(np.sign(rate), axis=0) != 0.0, np.zeros(rate.shape, dtype=bool)
    for lag in range(beside):
        found[lag + 1 :] |= turned[: len(turned) - lag]
        found[: len(turned) - lag] |= turned[lag:]
    return found


def least_squares(matrix: Float[np.ndarray, "r p"], right: Float[np.ndarray, "r"]) -> tuple[np.ndarray, int]:
    """Parameters of smallest norm, columns scaled to length 1, that leave least, and the rank."""
    scale = np.linalg.norm(matrix, axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    found, _, rank, _ = np.linalg.lstsq(matrix / scale, right, rcond=RANK)
    return found / scale, int(rank)


def recorded_path(model: Model, record: MotionRecord, start: Float[np.ndarray, "n"]) -> Float[np.ndarray, "k n"]:
    """All coordinates at every sample, loops closed on the branch of a posture.

    Args:
        model: the machine.
        record: of its motion.
        start: posture near the first sample; it has the coordinates that were not recorded.

    Raises:
        ValueError: a loop opens on the way; the sample is named.
    """
    z = _placed(model, record, record.position, start)
    # from the posture to the first sample in short steps; few different numbers of them, as each is compiled
    before = _independent(model, start)
    count = WAY * (1 + int(np.max(np.abs(z[0] - before)) / LONGEST_STEP) // WAY)
    way = before + np.linspace(0.0, 1.0, count, endpoint=False)[:, None] * (z[0] - before)
    return closed_along(model, np.concatenate([way, z]), start)[count:]


def states_at(
    model: Model, record: MotionRecord, motion: MotionEstimate, path: np.ndarray, samples: Int[np.ndarray, "s"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All coordinates, rates and accelerations of the independent ones, at some samples."""
    still = np.zeros(len(model.coordinates))
    z = _placed(model, record, motion.position[samples], path[0])
    zd, zdd = (_placed(model, record, part[samples], still) for part in (motion.velocity, motion.acceleration))
    z, zd, zdd = (rigid_gears(model, record.names, part) for part in (z, zd, zdd))
    return closed_along(model, z, path[samples]), zd, zdd


def _placed(model: Model, record: MotionRecord, part: Float[np.ndarray, "k c"], others: np.ndarray) -> np.ndarray:
    """Columns of the record at their places among the independent coordinates [k, m], the others constant."""
    found = np.tile(_independent(model, others), (len(part), 1))
    names = independent_coordinates(model)
    found[:, [names.index(name) for name in record.names]] = part
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
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Regressor [k, c, p] and measured efforts [k, c] of those coordinates whose effort was measured, by `rows` of all
    independent coordinates where these are given.

    Columns of numbers without effect are zeros: scaled to length 1, their rounding would be parameters of its own.
    """
    names = independent_coordinates(model)
    there = np.flatnonzero(~np.isnan(record.effort).all(axis=0))
    measured = tuple(record.names[i] for i in there)
    if rows is None:
        rest = jnp.asarray(unloaded(model)) if model.motors else None
        rows = drive_rows(model, stacked_torque_regressor(model, q, zd, zdd, rest))
    regressor = rows[:, [names.index(name) for name in measured]]
    acting = without_rounding(regressor.reshape(-1, regressor.shape[2])).reshape(regressor.shape)
    return acting, record.effort[samples][:, there], measured
