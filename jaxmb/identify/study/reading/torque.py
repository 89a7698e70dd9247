"""Reader of torque tests: from a recorded or simulated motion to filtered linear equations with their noise."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import jax
import numpy as np
from jaxtyping import Float

from jaxmb.identify.experiments.test import Entry
from jaxmb.identify.experiments.torque.effort_noise import effort_noise, motion_errors, noise_bound
from jaxmb.identify.experiments.torque.effort_rows import (
    HIGHEST_CUTOFF,
    EffortRows,
    RowSettings,
    column_names,
    effort_rows,
    highest_cutoff,
    recorded_path,
)
from jaxmb.identify.experiments.torque.gears import Gears, brakes_released, reversed_at
from jaxmb.identify.experiments.torque.preliminary_fits import (
    DELAY_FAMILY,
    SLOPE_REACH,
    DriveRecording,
    delay_column,
    fit_delay,
)
from jaxmb.identify.experiments.torque.torque_test import (
    Rebuild,
    TorqueSource,
    TorqueTest,
    torque_entries,
)
from jaxmb.identify.parameters.free_parameters import matching
from jaxmb.identify.parameters.model_parameters import parameter_table, parameters
from jaxmb.identify.regression.torque_regressor import payload_columns, regressor_names
from jaxmb.identify.study.context import ReadingContext
from jaxmb.identify.study.format.torque_format import Kalman, TorqueTestPart
from jaxmb.identify.study.reading.friction_and_gains import free_gains, load_unknown, with_free_gains, with_gains
from jaxmb.identify.study.reading.motions import (
    Recording,
    beyond_range,
    by_coordinate,
    motion_remarks,
    parallel_springs,
    rate_remarks,
    read_recording,
    saturation_remarks,
    unrecorded,
)
from jaxmb.io.validation import error_location, listed
from jaxmb.machine.build import Model
from jaxmb.measurement.motion.estimate import MotionEstimate, decimated, delayed, low_passed_motion, smoothed_motions
from jaxmb.measurement.motion.record import Cutoff, MotionRecord
from jaxmb.mechanics.loops import independent_coordinates

MOTION_DRAWS = 2
"""Number of draws of the sensor errors, each with both signs."""
LARGE_SHARE = 0.25
"""Share of motion errors in the variance of efforts above which they no longer act like independent errors."""


def read_torque_test(part: TorqueTestPart, label: str, context: ReadingContext) -> list[Entry]:
    """A torque test, from a table or simulated.

    Args:
        part: table of the study file.
        label: its name, unique in the study.
        context: study file, machine and preliminary fits.

    Raises:
        ValueError: the motion cannot be read or simulated, or does not match the machine.
    """
    model = brakes_released(context.model)
    if model.elements or model.virtual_springs:
        raise NotImplementedError("torque tests are of machines with rigid links, this one has compliant ones")
    return [_torque_entry(read_recording(part, label, context, model), context)]


def _torque_entry(
    recording: Recording, context: ReadingContext, fitted: Model | None = None, reversed_gears: Sequence[str] = ()
) -> Entry:
    """A recorded motion as a test.

    Args:
        recording: of the motion.
        context: with the preliminary fits made so far.
        fitted: machine about which elastic gears are linearized; gears are rigid where None.
        reversed_gears: joints recorded at their shafts whose gear ratio gets the opposite sign.
    """
    part, sides, model = recording.part, recording.sides, brakes_released(context.model)
    free, payloads = context.file.free, [payload.name for payload in context.unlocked_machine.payload]
    not_carried = payload_columns(model, part.without, payloads, "without: payload")
    record = with_gains(reversed_at(recording.record, reversed_gears), context.gains)
    q = recorded_path(model, record, recording.posture)
    free_drives = () if record.drives is None else free_gains(record.drives.names, free)
    selects_friction = bool(part.friction_terms) or (part.role == "fit" and load_unknown(model, free))
    is_selecting = selects_friction and context.friction is None
    own_delay = f"{DELAY_FAMILY}.{recording.label}"
    has_free_delay = part.role == "fit" and any(matching([own_delay], pattern) for pattern in free)
    if has_free_delay:  # the derivative of an effort has a spike where friction changes its sign
        record = dataclasses.replace(record, blurred=max(record.blurred, SLOPE_REACH))
    least_speed = by_coordinate("least_speed", part.least_speed, independent_coordinates(model), rest=0.0)
    settings = RowSettings(
        part.effort_cutoff_hz, least_speed, part.from_s, part.to_s or np.inf,
        load_parameters=_known_load_parameters(model, context, not_carried),
        keep_samples=is_selecting or has_free_delay or bool(free_drives),
        gears=Gears(sides, part.gears == "dynamic", None if fitted is None else brakes_released(fitted)),
        absent=not_carried,
    )  # fmt: skip
    cutoff = _searched_cutoff(part, context, model, record, q, settings)
    part = part if cutoff is None else part.model_copy(update={"cutoff_hz": cutoff})
    full, motions = record, _motions(part, record)
    step = _decimation(part, record)
    q, (record, estimated) = q[::step], decimated(record, motions[0], step)
    drawn = [decimated(full, motion, step)[1] for motion in motions[1:]]

    def equations(delay_s: float, motion: MotionEstimate = estimated) -> EffortRows:
        return effort_rows(model, record, delayed(motion, record.rate_hz, delay_s), q, settings)

    delay_s, uncorrected = fit_delay(equations, record.rate_hz, own_delay) if has_free_delay else (0.0, equations(0.0))
    is_rigid = bool(sides) and fitted is None and not model.dependent
    rows, *noise, doubts = _with_noise(part, uncorrected, is_rigid, [equations(delay_s, each) for each in drawn])
    motion = delayed(estimated, record.rate_hz, delay_s)
    test, drive_recording = _torque_test(part, recording.label, model, rows, *noise), None
    if free_drives and record.drives is not None:
        if context.gains is None:
            signal = record.drives.signal[_used(record, motion)]
            drive_recording = DriveRecording(_by_known_speeds(model, rows), signal, record.drives, part.robust)
        else:
            test = with_free_gains(test, rows, record.drives, free_drives, context.gains)
    if has_free_delay:
        test = test.with_own([own_delay], np.array([delay_s]), delay_column(rows, record.rate_hz)[:, None])
    filtered = recording._replace(part=part)
    # equations with elastic gears are linearized about the masses of the machine
    mounted = () if sides else (name for name in payloads if name not in part.without)
    rebuild = _rebuild(test, model, record, motion, q, settings, uncorrected)
    source = dataclasses.replace(
        _source(part, context, model, full, motions[0], rows, rebuild, doubts),
        payloads={name: payload_columns(model, [name], payloads) for name in mounted},
        selection_rows=_by_known_speeds(model, rows) if is_selecting else None,
        drive_recording=drive_recording,
        reversed_gears={} if reversed_gears else _reversed_gears(filtered, context),
        linearized_about=(lambda fit: _torque_entry(filtered, context, fit)) if sides and not model.dependent else None,
        after_preliminary_fits=lambda later: _torque_entry(recording, later),
    )
    by_error = (
        "" if (cutoff or 0.0) >= HIGHEST_CUTOFF * full.rate_hz else ": higher cut-off frequencies predict torques worse"
    )
    reason = ", as in the fitted tests" if part.role == "check" else by_error
    chosen = [] if cutoff is None else [f"angles are filtered at {cutoff:.3g} Hz{reason}"]
    parallel = parallel_springs(model, rows.measured, [test.kind for test in context.file.test], list(free))
    own = motion_remarks(context.unlocked_machine, model, full, part.simulate is None)
    behind = _friction_behind_gears(sides, model, settings, list(free))
    remarks = (*recording.remarks, *chosen, *parallel, *own, *behind)
    return Entry(part.kind, test, source, recording.truth, role=part.role, remarks=remarks)


def _friction_behind_gears(
    sides: Mapping[str, str], model: Model, settings: RowSettings, free: Sequence[str]
) -> list[str]:
    """A sentence on Coulomb friction of links behind elastic gears, whose motions are those of their motors."""
    coordinates = independent_coordinates(model)
    speed = np.broadcast_to(settings.least_speed, len(coordinates))
    joints = [
        name
        for name, side in sides.items()
        if side == "motor" and not speed[coordinates.index(name)]
        if model.friction[model.coordinates.index(name)] or any(matching([f"friction.{name}"], p) for p in free)
    ]  # fmt: skip
    text = (
        f"Coulomb friction of {listed(joints)} acts behind an elastic gear, where the link reverses at other times than"
        " its recorded motor: without least_speed, which excludes these samples, it is biased"
    )
    return [text] if joints else []


SMALL_SCALE, SMALL_ZERO = 0.1, 0.2
"""Largest error of a scale, and of a zero (rad or m), whose effect is that with rigid gears: its product with the
deflection of gears, of some milliradians, is left out."""


def _rebuild(
    test: TorqueTest,
    model: Model,
    record: MotionRecord,
    motion: MotionEstimate,
    q: Float[np.ndarray, "k n"],
    settings: RowSettings,
    uncorrected: EffortRows,
) -> Rebuild:
    """`TorqueSource.rebuild` of a test: the regressor of a corrected motion, and the test's constant with the change of
    that of the equations `uncorrected`. Behind elastic gears small errors change both as with rigid ones, whose
    equations take a tenth of the time."""

    names, unblurred = list(record.names), dataclasses.replace(record, blurred=0)
    every = settings._replace(least_speed=0.0)
    with_rigid_gears = every._replace(gears=settings.gears._replace(fitted=None))

    @functools.cache
    def rigid_as_stated() -> EffortRows:
        return effort_rows(brakes_released(model), unblurred, motion, q, with_rigid_gears)

    def rebuild(
        other: Model,
        *,
        zeros: Mapping[str, float] | None = None,
        factors: Mapping[str, tuple[float, float]] | None = None,
        exchanged: tuple[str, ...] = (),
        sampling: float = 1.0,
    ) -> TorqueTest:
        swapped = dict(zip(exchanged, reversed(exchanged), strict=True)) if set(exchanged) <= set(names) else {}
        order = [names.index(swapped.get(name, name)) for name in names]
        zero = np.array([(zeros or {}).get(name, 0.0) for name in names])
        angle, rate = np.array([(factors or {}).get(name, (1.0, 1.0)) for name in names]).T
        corrected = motion._replace(
            position=angle * motion.position[:, order] + zero,
            velocity=sampling * rate * motion.velocity[:, order],
            acceleration=sampling**2 * rate * motion.acceleration[:, order],
        )
        scales = np.abs(np.concatenate([angle, rate]) - 1.0).max()
        is_small = sampling == 1.0 and not exchanged and scales <= SMALL_SCALE and np.abs(zero).max() <= SMALL_ZERO
        as_rigid = is_small and settings.gears.fitted is not None
        # loops are closed from the stated path, on which they are
        found = effort_rows(brakes_released(other), unblurred, corrected, q, with_rigid_gears if as_rigid else every)
        count = len(found.measured)
        # with the readings as stated some samples are at rest
        rows = count * np.searchsorted(found.time_s[::count], uncorrected.time_s) + uncorrected.coordinate
        regressor, constant = found.regressor[rows], found.constant[rows]
        if as_rigid:
            stated = rigid_as_stated()
            regressor = np.asarray(test.regressor) + regressor - stated.regressor[rows]
            constant = uncorrected.constant + constant - stated.constant[rows]
        constant = np.asarray(test.constant) + constant - uncorrected.constant
        return dataclasses.replace(test, regressor=jax.device_put(regressor), constant=jax.device_put(constant))

    return rebuild


def _reversed_gears(recording: Recording, context: ReadingContext) -> dict[tuple[str, ...], Callable[[], TorqueTest]]:
    """Builders of the test with the gear ratio reversed in sign, for each joint recorded only at its shaft and for all
    of them, with rigid gears."""

    at_shafts = recording.at_shafts
    each = [*((name,) for name in at_shafts), at_shafts] if at_shafts else []
    return {
        joints: lambda joints=joints: cast(TorqueTest, _torque_entry(recording, context, reversed_gears=joints).test)
        for joints in dict.fromkeys(each)
    }


def _known_load_parameters(model: Model, context: ReadingContext, not_carried: Sequence[int]) -> dict[str, float]:
    """Values of the parameters at which the equations are linearized, without those of payloads not mounted."""
    first, names = context.friction or context.gains, regressor_names(model)
    known = parameters(model) if first is None else first.values
    left_out = {names[i] for i in not_carried}
    return {name: value for name, value in known.items() if name not in left_out}


def _with_noise(
    part: TorqueTestPart, rows: EffortRows, rigid: bool, drawn: Sequence[EffortRows]
) -> tuple[EffortRows, Float[np.ndarray, "r"], Float[np.ndarray, "r"], tuple[str, ...]]:
    """Equations, corrected for the bias of a motion whose noise was drawn, standard deviation and correlation length of
    each, with the noise of efforts and of the motion, and doubts.

    With `rigid` gears in place of elastic ones the noise is estimated: errors are larger than the stated noise.
    """
    if rigid or part.torque_std == "estimate":
        noise = effort_noise(rows, part.robust)
        std, length = noise.std[rows.coordinate], noise.correlation_length[rows.coordinate]
    else:
        each = by_coordinate("torque_std", part.torque_std, rows.measured, why="whose torque was measured")
        std, length = each[rows.coordinate], np.ones(rows.effort.size)
    if not drawn:
        return rows, std, length, ()
    bias, variance, of_motion = motion_errors(rows, drawn, std, part.robust)
    rows = rows._replace(constant=rows.constant + rows.regressor @ bias)
    share = np.sqrt(variance[rows.coordinate]) / std
    doubts = tuple(
        f"errors of the motion of {name} are {100.0 * largest:.0f} % of those of its torque: standard deviations"
        " are not reported; a gyroscope or a less noisy encoder reduces these errors"
        for i, name in enumerate(rows.measured)
        if (largest := np.max(share[rows.coordinate == i])) > np.sqrt(LARGE_SHARE)
    )
    counted = of_motion[rows.coordinate] if rigid or part.torque_std == "estimate" else 0.0
    more = std**2 * (1.0 - counted) + variance[rows.coordinate]
    return rows, np.sqrt(more), length * more / std**2, doubts


def _torque_test(
    part: TorqueTestPart, label: str, model: Model, rows: EffortRows, std: np.ndarray, correlation_length: np.ndarray
) -> TorqueTest:
    where, names = parameter_table(model), column_names(model, rows.measured)
    return TorqueTest(
        name=label,
        parameters=names,
        targets=tuple(where[name] for name in names),
        regressor=jax.device_put(rows.regressor),
        effort=jax.device_put(rows.effort),
        std=jax.device_put(std),
        coordinate=jax.device_put(rows.coordinate),
        own_values=jax.device_put(np.zeros(0)),
        own_columns=jax.device_put(np.zeros((rows.effort.size, 0))),
        is_robust=part.robust,
        correlation_length=jax.device_put(correlation_length),
        constant=jax.device_put(rows.constant),
    )


def _source(
    part: TorqueTestPart, context: ReadingContext, model: Model, record: MotionRecord, motion: MotionEstimate,
    rows: EffortRows, rebuild: Rebuild, doubts: tuple[str, ...],
) -> TorqueSource:  # fmt: skip
    """Metadata of the record of a test, and doubts about its motion."""
    used, recorded = _used(record, motion), part.simulate is None
    beyond, too_far = beyond_range(context.unlocked_machine, record.names, record.position, recorded)
    saturated = saturation_remarks(record) if recorded else []
    return TorqueSource(
        time_s=rows.time_s,
        cutoff_hz=_cutoff(part),
        velocity=rows.velocity,
        coordinates=rows.measured,
        revolute=tuple(model.revolute[model.coordinates.index(name)] for name in rows.measured),
        doubts=(*([] if too_far else beyond), *rate_remarks(record), *saturated, *doubts),
        std_unknown=bool(saturated or doubts),
        impossible_motion=" ".join(beyond) if too_far else "",
        friction_kinds=part.friction_terms,
        rebuild=rebuild,
        gravity=np.asarray(model.gravity),
        origin=np.asarray(model.origin),
        noise_bound=noise_bound(
            record.effort[used][:, [record.names.index(name) for name in rows.measured]],
            motion.velocity[used],
            record.rate_hz,
            np.max(part.effort_cutoff_hz or record.rate_hz),
        ),
        noise_estimated=part.torque_std == "estimate",
        joints_at_rest=tuple(unrecorded(model, record.names)),
        drives=() if record.drives is None else record.drives.names,
        effort_by_drive=rows.effort_by_drive,
    )


def _used(record: MotionRecord, motion: MotionEstimate) -> slice:
    """Samples of a record at which its motion is estimated."""
    return slice(motion.first, len(record.time_s) - motion.last)


def _by_known_speeds(model: Model, rows: EffortRows) -> EffortRows:
    """The equations with the columns of `regressor_names` alone, at the machine's Stribeck speeds."""
    own, count = parameters(model), len(regressor_names(model))
    speeds = np.array([own[name] for name in column_names(model, rows.measured)[count:]])
    return rows._replace(
        regressor=rows.regressor[:, :count], constant=rows.constant + rows.regressor[:, count:] @ speeds
    )


def _searched_cutoff(
    part: TorqueTestPart, context: ReadingContext, model: Model, record: MotionRecord, q: Float[np.ndarray, "k n"],
    settings: RowSettings,
) -> float | None:  # fmt: skip
    """Selected cut-off of the angles, in held-out tests the highest one of the fitted tests; None where stated."""
    if part.kalman is not None or part.cutoff_hz != "search":
        return None
    fitted = torque_entries(context.fitted) if part.role == "check" else []
    found = [cutoff for entry in fitted if (cutoff := entry.source.cutoff_hz) is not None]
    if found:
        return min(max(np.max(cutoff) for cutoff in found), HIGHEST_CUTOFF * record.rate_hz)
    return highest_cutoff(model, record, q, settings, part.robust)


OVERSAMPLED = 20.0
"""Samples of the equations per period of the higher cut-off, where they are filtered."""


def _cutoff(part: TorqueTestPart) -> Cutoff | None:
    """Cut-off of the angles, stated or searched; None with a Kalman smoother."""
    return None if part.cutoff_hz == "search" else part.cutoff_hz


def _decimation(part: TorqueTestPart, record: MotionRecord) -> int:
    """Step between the samples of the record at which the equations are made: all where they are not filtered."""
    cutoff_hz = _cutoff(part)
    if part.effort_cutoff_hz is None or cutoff_hz is None:
        return 1
    highest_hz = max(np.max(cutoff_hz), np.max(part.effort_cutoff_hz))
    return max(1, int(record.rate_hz / (OVERSAMPLED * highest_hz)))


def _motions(part: TorqueTestPart, record: MotionRecord) -> list[MotionEstimate]:
    """The filtered motion of a record; with a Kalman smoother in fitted tests, followed by motions with added sensor
    errors."""
    if part.kalman is None:
        return [low_passed_motion(record, cast(Cutoff, part.cutoff_hz))]
    with error_location("kalman"):
        given = [_by_name(part.kalman, key, record) for key in Kalman.model_fields]
        return smoothed_motions(record, *given, draws=MOTION_DRAWS if part.role == "fit" else 0)


def _by_name(part: Kalman, key: str, record: MotionRecord) -> Any:
    """A number for each recorded coordinate, 1 for unmeasured ones; None where it is not stated.

    Raises:
        ValueError: it is stated of a sensor that was not recorded, or lacks a coordinate.
    """
    given, sensor = getattr(part, key), key.removesuffix("_std")
    measured = getattr(record, sensor, None)
    if given is not None and sensor != key and measured is None:
        raise ValueError(
            f"{key} is given, and no {sensor} was recorded: expected a column '{record.names[0]}.{sensor}'"
        )
    if not isinstance(given, dict):
        return given
    unmeasured = np.zeros(len(record.names)) if measured is None else np.isnan(measured).all(axis=0)
    rest = {name: 1.0 for name, none in zip(record.names, unmeasured, strict=True) if none}
    return by_coordinate(key, rest | given, record.names, why="expected one for each coordinate")
