"""Reader of torque tests: an entry of a study file, and the motion it refers to, as a test."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxmb.identify.experiments.entry import Entry, Truth
from jaxmb.identify.experiments.torque.effort_noise import effort_noise, motion_errors
from jaxmb.identify.experiments.torque.gain_fit import DELAY, SLOPE_REACH, Recorded, delay_column, first_delay
from jaxmb.identify.experiments.torque.gears import Gears, at_joints, brakes_released, reversed_at
from jaxmb.identify.experiments.torque.prepared import (
    HIGHEST,
    Prepared,
    RowSettings,
    best_cutoff,
    column_names,
    prepared,
    recorded_path,
)
from jaxmb.identify.experiments.torque.source import TorqueSource, torque_entries
from jaxmb.identify.experiments.torque.torque_test import TorqueTest
from jaxmb.identify.experiments.torque.unexplained import noise_bound
from jaxmb.identify.parameters.free_parameters import matching
from jaxmb.identify.parameters.model_parameters import parameter_table, parameters
from jaxmb.identify.regression.torque_regressor import payload_columns, regressor_names
from jaxmb.identify.study.context import ReadingContext, simulated_machine
from jaxmb.identify.study.format.torque_format import Kalman, TorqueTestPart
from jaxmb.identify.study.reading.friction import free_gains, load_unknown, with_free_gains, with_gains
from jaxmb.identify.study.reading.motion_checks import (
    beyond_range,
    check_columns,
    check_driven,
    check_moves,
    check_ratios,
    motion_remarks,
    parallel_springs,
    rate_remarks,
    travels_too_far,
    unrecorded,
)
from jaxmb.identify.study.simulation.torques import simulated_motion
from jaxmb.io.validation import check_known, error_location, listed
from jaxmb.machine.build import Model
from jaxmb.measurement.motion.csv_motion import read_described, read_motion
from jaxmb.measurement.motion.estimate import MotionEstimate, delayed, low_passed_motion, smoothed_motions
from jaxmb.measurement.motion.record import Cutoff, MotionRecord, Side, check_record, resampled
from jaxmb.mechanics.loops import independent_coordinates
from jaxmb.mechanics.postures import stated_posture

MOTION_DRAWS = 2
"""Of the errors of sensors, each with both signs."""
LARGE_SHARE = 0.25
"""Of the variance of efforts: larger contributions of the motion do not act as independent errors do."""


class _Recording(NamedTuple):
    """A test with its motion and torques, recorded or simulated, at the joints and in even steps."""

    part: TorqueTestPart
    label: str
    posture: Float[np.ndarray, "n"]
    """Posture near the motion."""
    record: MotionRecord
    sides: dict[str, Side]
    truth: Truth | None
    remarks: tuple[str, ...]
    at_shafts: tuple[str, ...] = ()
    """Joints of which the shaft alone was recorded, in columns of its own."""


class _NoisyRows(NamedTuple):
    """Equations of a test with the noise of each."""

    rows: Prepared
    std: Float[np.ndarray, "r"]
    correlation_length: Float[np.ndarray, "r"]
    doubts: tuple[str, ...]


def read_torque_test(part: TorqueTestPart, label: str, context: ReadingContext) -> list[Entry]:
    """A torque test, from a table or simulated.

    Args:
        part: entry of the study file.
        label: its name in messages.
        context: of the tests.

    Raises:
        ValueError: the motion cannot be read, made, or be the machine's.
    """
    model = brakes_released(context.model)
    if model.elements or model.virtual_springs:
        raise NotImplementedError("torque tests are of machines with rigid links, this one has compliant ones")
    return [_torque_entry(_recording(part, label, context, model), context)]


def _torque_entry(
    recording: _Recording, context: ReadingContext, fitted: Model | None = None, reversed_gears: Sequence[str] = ()
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
    cutoff = _searched_cutoff(part, context, model, record, q, not_carried)
    estimated, *drawn = _motions(part, record, cutoff)
    freed = () if record.drives is None else free_gains(record.drives.names, free)
    selects_friction = bool(part.friction_terms) or (part.role == "fit" and load_unknown(model, free))
    is_trial = selects_friction and context.friction is None
    own_delay = f"{DELAY}.{recording.label}"
    is_late = part.role == "fit" and any(matching([own_delay], pattern) for pattern in free)
    if is_late:  # the slope of an effort has a spike where friction changes its sign
        record = dataclasses.replace(record, blurred=max(record.blurred, SLOPE_REACH))
    elastic = None if fitted is None else brakes_released(fitted)
    settings = RowSettings(
        part.effort_cutoff_hz, _least_speed(part, model), part.from_s, _last(part),
        load_parameters=_known_load_parameters(model, context, not_carried),
        keep_samples=is_trial or is_late or bool(freed),
        gears=Gears(sides, part.gears == "dynamic", elastic), absent=not_carried,
    )  # fmt: skip

    def equations(delay_s: float, motion: MotionEstimate = estimated) -> Prepared:
        return prepared(model, record, delayed(motion, record.rate_hz, delay_s), q, settings)

    delay_s, plain = first_delay(equations, record.rate_hz, own_delay) if is_late else (0.0, equations(0.0))
    is_rigid = bool(sides) and fitted is None and not model.dependent
    noisy = _with_noise(part, plain, is_rigid, [equations(delay_s, each) for each in drawn])
    rows, motion = noisy.rows, delayed(estimated, record.rate_hz, delay_s)
    test, signals = _torque_test(part, recording.label, model, noisy), None
    if freed and record.drives is not None:
        if context.gains is None:
            used = record.drives.signal[_used(record, motion)]
            signals = Recorded(_by_known_speeds(model, rows), used, record.drives, part.robust)
        else:
            test = with_free_gains(test, rows, record.drives, freed, context.gains)
    if is_late:
        test = test.with_own([own_delay], np.array([delay_s]), delay_column(rows, record.rate_hz)[:, None])

    filtered = recording
    if cutoff is not None:
        filtered = recording._replace(part=part.model_copy(update={"cutoff_hz": cutoff}))
    source = dataclasses.replace(
        _source(part, context, model, record, motion, noisy, cutoff),
        rebuild=_rebuild(test, model, record, motion, q, settings, plain),
        gravity=np.asarray(model.gravity),
        selection_rows=_by_known_speeds(model, rows) if is_trial else None,
        recorded=signals,
        reversed_gears={} if reversed_gears else _reversed_gears(filtered, context),
        about=(lambda fit: _torque_entry(filtered, context, fit)) if sides and not model.dependent else None,
        after_preliminary_fits=lambda later: _torque_entry(recording, later),
    )
    chosen = [] if cutoff is None else [f"angles are filtered at {cutoff:.3g} Hz{_why(cutoff, part, record)}"]
    parallel = parallel_springs(model, rows.measured, [test.kind for test in context.file.test], list(free))
    own = motion_remarks(context.unlocked_machine, model, record, part.simulate is None)
    remarks = (*recording.remarks, *chosen, *parallel, *own)
    return Entry("torque", test, source, recording.truth, role=part.role, remarks=remarks)


def _rebuild(
    test: TorqueTest,
    model: Model,
    record: MotionRecord,
    motion: MotionEstimate,
    q: Float[np.ndarray, "k n"],
    settings: RowSettings,
    plain: Prepared,
) -> Callable[[Model, Mapping[str, float], Mapping[str, tuple[float, float]]], TorqueTest]:
    """`TorqueSource.rebuild` of a test with its equations before the choice of friction terms."""

    def rebuild(other: Model, zeros: Mapping[str, float], scales: Mapping[str, tuple[float, float]]) -> TorqueTest:
        by = np.array([zeros.get(name, 0.0) for name in record.names])
        angle, rate = np.array([scales.get(name, (1.0, 1.0)) for name in record.names]).T
        there, own = q.copy(), [model.coordinates.index(name) for name in record.names]
        there[:, own] = angle * there[:, own] + by
        moved = motion._replace(
            position=angle * motion.position + by,
            velocity=rate * motion.velocity,
            acceleration=rate * motion.acceleration,
        )
        rates = [scales.get(name, (1.0, 1.0))[1] for name in independent_coordinates(model)]
        same_rows = settings._replace(least_speed=settings.least_speed * np.array(rates))
        rows = prepared(brakes_released(other), record, moved, there, same_rows)
        if rows.regressor.shape != plain.regressor.shape:
            raise ValueError("another speed has other rows")
        constant = np.asarray(test.constant) + rows.constant - plain.constant
        return dataclasses.replace(test, regressor=jax.device_put(rows.regressor), constant=jax.device_put(constant))

    return rebuild


def _recording(part: TorqueTestPart, label: str, context: ReadingContext, model: Model) -> _Recording:
    """The motion of a test, read or simulated.

    Raises:
        ValueError: it is not of the machine's motion or lacks required columns.
    """
    stated, remarks = stated_posture(model, part.posture)
    start, truth, at_shafts = np.asarray(stated), None, ()
    if part.simulate is None:
        read = _recorded(str(part.file), context, part.resample_hz is None)
        check_ratios(model, read)
        record, sides = at_joints(model, read, part.angles_at)
        at_shafts = tuple(name for name in sides if name not in read.names)
        check_columns(str(part.file), context.unlocked_machine, model, record.names, part.posture)
        remarks = (*remarks, *_column_remarks(part, model, read, record, sides))
    else:
        true, seed, truth = simulated_machine(part.simulate, context)
        there = np.asarray(stated_posture(true, part.posture)[0])
        record = simulated_motion(part.simulate, _without(true, part.without), there, seed, part.angles_at)
        check_record(record)
        record, sides = at_joints(model, record, part.angles_at)
    if part.resample_hz is not None:
        steps = np.diff(record.time_s)
        from_steps = f"from steps of {steps.min():.3g} to {steps.max():.3g} s"
        remarks = (*remarks, f"resampled at {part.resample_hz:g} Hz, {from_steps}")
        with error_location("resample_hz"):
            record = resampled(record, part.resample_hz)
    check_moves(model, record, start, list(context.file.free))
    if "temperature" in part.friction_terms and record.temperature is None:
        raise ValueError("friction_terms: found no column 'temperature' in the record, expected one")
    if part.torque_std == "estimate" or (part.kalman is None and part.cutoff_hz == "search"):
        check_driven(record)
    return _Recording(part, label, start, record, sides, truth, tuple(remarks), at_shafts)


def _reversed_gears(recording: _Recording, context: ReadingContext) -> dict[tuple[str, ...], Callable[[], TorqueTest]]:
    """Builders of the test with the opposite sign of the gear ratio of each joint that was recorded at its shaft alone,
    and of all, with rigid gears."""

    def build(joints: tuple[str, ...]) -> Callable[[], TorqueTest]:
        return lambda: cast(TorqueTest, _torque_entry(recording, context, reversed_gears=joints).test)

    at_shafts = recording.at_shafts
    each = [*((name,) for name in at_shafts), at_shafts] if at_shafts else []
    return {joints: build(joints) for joints in dict.fromkeys(each)}


def _column_remarks(
    part: TorqueTestPart, model: Model, read: MotionRecord, record: MotionRecord, sides: Mapping[str, Side]
) -> list[str]:
    """Sentences on columns of a table that are missing, and on angles of which the study does not say the side."""
    shafts = [model.coordinates[shaft] for _, shaft in model.motors]
    efforts = zip(record.names, record.effort.T, strict=True)
    silent = [name for name, own in efforts if np.isnan(own).all() and name not in shafts]
    remarks = [f"{part.file} has no column '{name}.torque': the equation of {name} is left out" for name in silent]
    assumed = [name for name in sides if name in read.names and "angles_at" not in part.model_fields_set]
    if assumed:
        remarks.append(
            f"angles of {listed(assumed)} are taken as those of motors over the ratio; angles_at = 'link' for"
            " sensors behind the gears"
        )
    return remarks


def _known_load_parameters(model: Model, context: ReadingContext, not_carried: Sequence[int]) -> dict[str, float]:
    """Values of the parameters about which the equations are taken, without those of payloads that are not carried."""
    first, names = context.friction or context.gains, regressor_names(model)
    known = parameters(model) if first is None else first.values
    left_out = {names[i] for i in not_carried}
    return {name: value for name, value in known.items() if name not in left_out}


def _with_noise(part: TorqueTestPart, rows: Prepared, rigid: bool, drawn: Sequence[Prepared]) -> _NoisyRows:
    """Equations with their noise, of efforts and where it was drawn of the motion, whose bias is taken off.

    Rigid: gears are taken as rigid, by which efforts err by more than is stated.
    """
    std, length = _noise(part.model_copy(update={"torque_std": "estimate"}) if rigid else part, rows)
    if not drawn:
        return _NoisyRows(rows, std, length, ())
    errors = motion_errors(rows, drawn, std, part.robust)
    rows = rows._replace(constant=rows.constant + rows.regressor @ errors.bias)
    share = np.sqrt(errors.variance[rows.coordinate]) / std
    doubts = tuple(
        f"errors of the motion of {name} are {100.0 * largest:.0f} % of those of its torque: standard deviations"
        " are not reported; a gyroscope or a less noisy encoder reduces these errors"
        for i, name in enumerate(rows.measured)
        if (largest := np.max(share[rows.coordinate == i])) > np.sqrt(LARGE_SHARE)
    )
    counted = errors.share[rows.coordinate] if rigid or part.torque_std == "estimate" else 0.0
    more = std**2 * (1.0 - counted) + errors.variance[rows.coordinate]
    return _NoisyRows(rows, np.sqrt(more), length * more / std**2, doubts)


def _torque_test(part: TorqueTestPart, label: str, model: Model, noisy: _NoisyRows) -> TorqueTest:
    rows, where = noisy.rows, parameter_table(model)
    names = column_names(model, rows.measured)
    return TorqueTest(
        name=label,
        parameters=names,
        targets=tuple(where[name] for name in names),
        regressor=jax.device_put(rows.regressor),
        effort=jax.device_put(rows.effort),
        std=jax.device_put(noisy.std),
        coordinate=jax.device_put(rows.coordinate),
        is_robust=part.robust,
        correlation_length=jax.device_put(noisy.correlation_length),
        constant=jax.device_put(np.broadcast_to(rows.constant, rows.effort.shape)),
    )


def _source(
    part: TorqueTestPart, context: ReadingContext, model: Model, record: MotionRecord, motion: MotionEstimate,
    noisy: _NoisyRows, cutoff_hz: float | None,
) -> TorqueSource:  # fmt: skip
    """Origin of the equations of a test, and doubts about them."""
    rows, used, recorded = noisy.rows, _used(record, motion), part.simulate is None
    beyond = beyond_range(context.unlocked_machine, record, recorded)
    too_far = recorded and travels_too_far(context.unlocked_machine, record)
    return TorqueSource(
        time_s=rows.time_s,
        cutoff_hz=cutoff_hz if part.cutoff_hz == "search" else part.cutoff_hz,
        velocity=rows.velocity,
        coordinates=rows.measured,
        revolute=tuple(model.revolute[model.coordinates.index(name)] for name in rows.measured),
        doubts=(*([] if too_far else beyond), *rate_remarks(record), *noisy.doubts),
        std_unknown=bool(noisy.doubts),
        impossible=" ".join(beyond) if too_far else "",
        kinds=part.friction_terms,
        noise_bound=noise_bound(
            record.effort[used][:, [record.names.index(name) for name in rows.measured]],
            motion.velocity[used],
            record.rate_hz,
            np.max(part.effort_cutoff_hz or record.rate_hz),
        ),
        noise_estimated=part.torque_std == "estimate",
        at_rest=tuple(unrecorded(model, record.names)),
        drives=() if record.drives is None else record.drives.names,
    )


def _used(record: MotionRecord, motion: MotionEstimate) -> slice:
    """Samples of a record at which its motion is estimated."""
    return slice(motion.first, len(record.time_s) - motion.last)


def _last(part: TorqueTestPart) -> float:
    return np.inf if part.to_s is None else part.to_s


def _by_known_speeds(model: Model, rows: Prepared) -> Prepared:
    """The equations with the columns of `regressor_names` alone: Stribeck speeds are the machine's own."""
    own, count = parameters(model), len(regressor_names(model))
    speeds = np.array([own[name] for name in column_names(model, rows.measured)[count:]])
    return rows._replace(
        regressor=rows.regressor[:, :count], constant=rows.constant + rows.regressor[:, count:] @ speeds
    )


def _without(model: Model, payloads: Sequence[str]) -> Model:
    """The machine with payloads that weigh nothing."""
    keep = jnp.array([name not in payloads for name in model.masses], dtype=float)
    return dataclasses.replace(
        model,
        mass=keep * model.mass,
        first_moment=keep[:, None] * model.first_moment,
        inertia=keep[:, None, None] * model.inertia,
    )


def _recorded(file: str, context: ReadingContext, even: bool) -> MotionRecord:
    """The motion in a table of joint angles and torques, or behind a description of recordings at the motors."""
    names = independent_coordinates(context.model)
    if Path(file).suffix.lower() == ".csv":
        return read_motion(context.folder / file, names, even)
    return read_described(file, context.folder, names)


def _searched_cutoff(
    part: TorqueTestPart, context: ReadingContext, model: Model, record: MotionRecord, q: Float[np.ndarray, "k n"],
    not_carried: Sequence[int],
) -> float | None:  # fmt: skip
    """Cut-off of the angles where it is to be searched, None elsewhere. A test that is held out takes the highest of
    those that are fitted."""
    if part.kalman is not None or part.cutoff_hz != "search":
        return None
    fitted = torque_entries(context.fitted) if part.role == "check" else []
    found = [cutoff for entry in fitted if (cutoff := entry.source.cutoff_hz) is not None]
    if found:
        return min(max(np.max(cutoff) for cutoff in found), HIGHEST * record.rate_hz)
    return best_cutoff(model, record, q, _least_speed(part, model), part.from_s, _last(part), part.robust, not_carried)


def _why(cutoff: float, part: TorqueTestPart, record: MotionRecord) -> str:
    """Reason of a cut-off that was not stated."""
    if part.role == "check":
        return ", as in the fitted tests"
    return "" if cutoff >= HIGHEST * record.rate_hz else ": higher ones predict torques worse"


def _motions(part: TorqueTestPart, record: MotionRecord, cutoff_hz: float | None) -> list[MotionEstimate]:
    """The recorded motion, behind a cut-off where it was searched; where a Kalman smoother finds it for a fit, also
    with errors of the sensors drawn once more."""
    if part.kalman is None:
        given_hz = part.cutoff_hz if cutoff_hz is None else cutoff_hz
        return [low_passed_motion(record, cast(Cutoff, given_hz))]
    with error_location("kalman"):
        given = [_by_name(part.kalman, key, record) for key in Kalman.model_fields]
        return smoothed_motions(record, *given, draws=MOTION_DRAWS if part.role == "fit" else 0)


def _by_name(part: Kalman, key: str, record: MotionRecord) -> Any:
    """A number for each recorded coordinate, 1 for those of which nothing is measured; None where not given."""
    given = getattr(part, key)
    if not isinstance(given, dict):
        return given
    measured = getattr(record, key.removesuffix("_std"), None)
    unmeasured = np.zeros(len(record.names)) if measured is None else np.isnan(measured).all(axis=0)
    check_known(f"{key}: coordinate", given, record.names)
    for name, none in zip(record.names, unmeasured, strict=True):
        if name not in given and not none:
            raise ValueError(f"{key}: found none for '{name}', expected one for each coordinate")
    return np.array([given.get(name, 1.0) for name in record.names])


def _least_speed(part: TorqueTestPart, model: Model) -> np.ndarray:
    names = independent_coordinates(model)
    given = part.least_speed if isinstance(part.least_speed, dict) else dict.fromkeys(names, part.least_speed)
    check_known("least_speed: coordinate", given, names)
    return np.array([given.get(name, 0.0) for name in names])


def _noise(part: TorqueTestPart, rows: Prepared) -> tuple[np.ndarray, np.ndarray]:
    """Standard deviation of each row's effort, and the correlation length that inflates its square, in samples."""
    if part.torque_std == "estimate":
        noise = effort_noise(rows, part.robust)
        return noise.std[rows.coordinate], noise.correlation_length[rows.coordinate]
    return _stated_std(part.torque_std, rows), np.ones(rows.effort.size)


def _stated_std(given: float | dict[str, float], rows: Prepared) -> np.ndarray:
    if not isinstance(given, dict):
        return np.full(rows.effort.size, given)
    check_known("torque_std: coordinate", given, rows.measured)
    for name in rows.measured:
        if name not in given:
            raise ValueError(f"torque_std: found none for '{name}', whose torque was measured")
    return np.array([given[name] for name in rows.measured])[rows.coordinate]
