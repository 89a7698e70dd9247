"""Reader of torque tests: an entry of a study file, and the motion it refers to, as a test."""

import dataclasses
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import scipy
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
from jaxmb.identify.experiments.torque.source import TorqueSource
from jaxmb.identify.experiments.torque.torque_test import TorqueTest
from jaxmb.identify.experiments.torque.unexplained import noise_bound
from jaxmb.identify.parameters.free_parameters import matching
from jaxmb.identify.parameters.model_parameters import parameter_table, parameters
from jaxmb.identify.regression.torque_regressor import payload_columns, regressor_names, stacked_torque_regressor
from jaxmb.identify.study.format.torque_format import Kalman, TorqueTestPart
from jaxmb.identify.study.reading.friction import free_gains, load_unknown, with_free_gains, with_gains
from jaxmb.identify.study.setting import Setting, simulated_machine
from jaxmb.identify.study.simulation.torques import simulated_motion
from jaxmb.io.validation import check_known, error_location, listed
from jaxmb.machine.build import Model
from jaxmb.machine.schema import Machine
from jaxmb.measurement.motion.csv_motion import read_described, read_motion
from jaxmb.measurement.motion.estimate import MotionEstimate, delayed, low_passed_motion, smoothed_motions
from jaxmb.measurement.motion.record import Cutoff, MotionRecord, Side, check_record, resampled
from jaxmb.mechanics.loops import independent_coordinates
from jaxmb.mechanics.postures import stated_posture

STILL = 1e-6
"""rad or m: a coordinate that moves by less rests."""
MOST_TURNS = 2.0
"""Of a recorded joint without a range, beyond which it is asked whether its unit is right."""
OTHER_UNIT = 3.0
"""Times that a measured rate is larger or smaller than the motion, beyond which its unit is in doubt."""
ALIKE = 0.9
"""Least correlation of a motion and an integral that are compared."""
BEYOND = 0.03
"""Of its width, by which a motion may leave a range: zeros of encoders are not set better."""
TOO_FAR = 2.0
"""Travel over the width of a range, from which on it is not the machine's motion, whatever the zero and the limits."""


def check_moves(model: Model, record: MotionRecord, start: Float[np.ndarray, "n"], free: Sequence[str]) -> None:
    """Raise ValueError where nothing moves; it names what of the free parameters is lost.

    Args:
        model: the machine.
        record: of its motion.
        start: posture near it.
        free: names or patterns of the free parameters.
    """
    if np.any(np.ptp(record.position, axis=0) >= STILL):
        return
    rest = np.zeros((1, len(independent_coordinates(model))))
    acts = dict(
        zip(regressor_names(model), stacked_torque_regressor(model, start[None], rest, rest)[0].any(0), strict=True)
    )
    wanted = [name for name in parameters(model) if any(matching([name], pattern) for pattern in free)]
    lost = [name for name in wanted if not acts.get(name, False)]
    said = f": at rest no torque depends on {', '.join(lost)}" if lost else ""
    raise ValueError(f"nothing moves ({', '.join(record.names)}), expected a motion that excites the parameters{said}")


def check_driven(record: MotionRecord) -> None:
    """Raise ValueError where all torques are 0: neither a cut-off nor their noise is found from them."""
    if not np.nan_to_num(record.effort).any():
        raise ValueError(
            "all torques are 0, expected those that moved the machine; where nothing drove it, cutoff_hz and torque_std"
        )


def beyond_range(machine: Machine, record: MotionRecord, recorded: bool) -> list[str]:
    """A sentence on coordinates that leave the range which the machine gives them.

    Args:
        machine: it has `range` of its coordinates.
        record: of its motion.
        recorded: not simulated, so that its unit and zero may be wrong.
    """
    own, found, units = {part.name: part for part in machine.moving_parts}, list[str](), set[str]()
    for name, column in zip(record.names, record.position.T, strict=True):
        part, least, most = own[name], float(column.min()), float(column.max())
        if part.range is None:
            continue
        low, high = part.range
        more = BEYOND * (high - low)
        if least < low - more or most > high + more:
            unit = "rad" if part.type == "revolute" else "m"
            units.add("in degrees" if unit == "rad" else "in mm")
            found.append(
                f"{name} goes from {least:.3g} to {most:.3g} {unit}, beyond its range of {low:.3g} to {high:.3g} {unit}"
            )
    asked = (
        f": {'is it' if len(found) == 1 else 'are they'} {' or '.join(sorted(units))}, or counted from another zero?"
    )
    return [listed(found) + (asked if recorded else "")] if found else []


def travels_too_far(machine: Machine, record: MotionRecord) -> bool:
    """Whether a coordinate travels further than its range allows from any zero: it is not the machine's motion."""
    ranges = {part.name: part.range for part in machine.moving_parts if part.range is not None}
    travel = dict(zip(record.names, np.ptp(record.position, axis=0).tolist(), strict=True))
    return any(travel[name] > TOO_FAR * (high - low) for name, (low, high) in ranges.items() if name in travel)


def rates_beside_angles(record: MotionRecord) -> list[str]:
    """Sentences on measured rates and accelerations whose integrals are of another size than the motion.

    Of q = k integral, but for what an unknown start and a bias add, least squares gives a |k| that is too small where
    the integral has noise, and one that is too large where q has it: both have to be off by `OTHER_UNIT`. Nothing is
    said where noise makes both unlike each other.
    """
    found, time = list[str](), (record.time_s - record.time_s[0]) / np.ptp(record.time_s)
    for what, order, measured in (("velocity", 1, record.velocity), ("acceleration", 2, record.acceleration)):
        for i, name in enumerate(record.names):
            if measured is None or np.isnan(measured[:, i]).any():
                continue
            path = measured[:, i]
            for _ in range(order):
                path = scipy.integrate.cumulative_trapezoid(path, record.time_s, initial=0.0)
            start = np.linalg.qr(np.vander(time, order + 2))[0]
            x, q = (part - start @ (start.T @ part) for part in (path, record.position[:, i]))
            if not (x @ x > 0.0 and q @ q > STILL**2 * q.size) or abs(x @ q) < ALIKE * np.sqrt((x @ x) * (q @ q)):
                continue
            least, most = sorted((abs(x @ q) / (x @ x), (q @ q) / abs(x @ q)))
            if least > OTHER_UNIT or most < 1.0 / OTHER_UNIT or x @ q < 0.0:
                times = np.sign(x @ q) / np.sqrt(least * most)
                found.append(
                    f"{name}.{what} is {times:.3g} times what the motion of {name} says: is it in another unit?"
                )
    return found


def parallel_springs(model: Model, measured: Sequence[str], kinds: Sequence[str], free: Sequence[str]) -> list[str]:
    """A sentence on joints whose stiffness acts parallel to their drive in torque tests of a study with tests of other
    kinds, in which it may be that of a gear.

    Args:
        model: the machine.
        measured: coordinates whose effort was measured.
        kinds: of all tests of the study.
        free: names or patterns of the free parameters.
    """
    joints = {model.coordinates[joint] for joint, _ in model.motors}
    found = [
        name
        for name in measured
        if name not in joints
        and (
            float(model.stiffness[model.coordinates.index(name)]) > 0.0
            or any(matching([f"stiffness.{name}"], pattern) for pattern in free)
        )
    ]
    if not found or all(kind == "torque" for kind in kinds):
        return []
    return [
        f"in torque tests the stiffness of {listed(found)} acts parallel to the drive, with k (q - q_rest): a joint"
        " whose stiffness is that of the gear between drive and link needs motor = { inertia, ratio }"
    ]


def unrecorded(model: Model, recorded: Sequence[str]) -> list[str]:
    """Independent coordinates without a column, but locked ones and shafts, which turn with their joints."""
    turned = {model.coordinates[shaft] for _, shaft in model.motors}
    names = [name for name in independent_coordinates(model) if name not in (*recorded, *turned)]
    return [name for name in names if not model.locked[model.coordinates.index(name)]]


def check_columns(
    file: str, machine: Machine, model: Model, recorded: Sequence[str], stated: Container[str]
) -> None:  # fmt: skip
    """Raise ValueError where a joint has neither a column in the record nor a fixed value in the study.

    The elasticity of a joint or link needs no column: a coordinate with a stiffness and nothing that drives have.

    Args:
        file: that was read.
        machine: with the joints.
        model: of it.
        recorded: joints with a column.
        stated: coordinates whose value the test states.
    """
    parts = {part.name: part for part in machine.moving_parts}
    for name in unrecorded(model, recorded):
        part = parts[name]
        driven = part.motor or part.rotor_inertia or part.friction or part.range or part.speed_limit
        if name in stated or (part.stiffness and not driven):
            continue
        shaft = f" or '{part.shaft.name}'" if part.shaft is not None else ""
        wanted = f"a column '{name}'{shaft}" if file.lower().endswith(".csv") else f"a drive that turns {name}"
        raise ValueError(
            f"'{file}' has no motion of joint '{name}': expected {wanted}, or the value of {name} in posture where it"
            " does not move"
        )


def check_ratios(model: Model, record: MotionRecord) -> None:
    """Raise ValueError where a shaft and its joint were recorded and turn by another ratio, or in another sense."""
    angles = dict(zip(record.names, (record.position - record.position.mean(axis=0)).T, strict=True))
    for (joint, shaft), ratio in zip(model.motors, np.asarray(model.gear_ratio), strict=True):
        name, motor = model.coordinates[joint], model.coordinates[shaft]
        if name not in angles or motor not in angles:
            continue
        q, theta = angles[name], angles[motor]
        size = float(np.sqrt((q @ q) * (theta @ theta)))
        if not (q @ q > STILL**2 * q.size and abs(q @ theta) > ALIKE * size):
            continue
        found = float(np.sign(q @ theta) * np.sqrt((theta @ theta) / (q @ q)))
        if not 1.0 / OTHER_UNIT < found / ratio < OTHER_UNIT:
            raise ValueError(
                f"'{motor}' turns {found:.4g} times for one of '{name}', and the machine's ratio is {ratio:g}: expected"
                " the sign and size of the ratio, and the units of both angles, to agree"
            )


def motion_remarks(machine: Machine, model: Model, record: MotionRecord, recorded: bool) -> list[str]:
    """Sentences on coordinates that turn often where no range says that they may, that rest, or were not recorded.

    And on a temperature that was not recorded, on which friction depends.
    """
    ranges, found = {part.name: part.range for part in machine.moving_parts}, []
    moved = dict(zip(record.names, np.ptp(record.position, axis=0).tolist(), strict=True))
    for name, way in moved.items():
        turns = way / (2.0 * np.pi)
        is_joint = model.revolute[model.coordinates.index(name)] and name in model.joints
        if recorded and ranges[name] is None and is_joint and turns > MOST_TURNS:
            found.append(f"{name} turns {turns:.3g} times: are its angles in degrees, or is a gear ratio missing?")
    still = [name for name, way in moved.items() if way < STILL]
    if still:
        found.append(f"{', '.join(still)} rest: parameters that act only in motion are not excited")
    lacking = unrecorded(model, record.names)
    if lacking:
        found.append(f"no motion was recorded of {', '.join(lacking)}: they rest at the posture")
    warm = [name for name in record.names if "damping_slope" in model.further_friction[model.coordinates.index(name)]]
    if recorded and warm and record.temperature is None:
        found.append(
            f"no temperature was recorded: damping of {', '.join(warm)} is that at the machine's own temperature"
        )
    return found


MOTION_DRAWS = 2
"""Of the errors of sensors, each with both signs."""
LARGE_SHARE = 0.25
"""Of the variance of efforts: larger contributions of the motion do not act as independent errors do."""


class _Recording(NamedTuple):
    """Motion and torques of a test, recorded or simulated."""

    record: MotionRecord
    sides: dict[str, Side]
    truth: Truth | None
    remarks: tuple[str, ...]
    """How it was found."""
    at_shafts: tuple[str, ...] = ()
    """Joints of which the shaft alone was recorded, in columns of its own."""


class _NoisyRows(NamedTuple):
    """Equations of a test with the noise of each."""

    rows: Prepared
    std: Float[np.ndarray, "r"]
    alike: Float[np.ndarray, "r"]
    doubts: tuple[str, ...]


def read_torque_test(part: TorqueTestPart, label: str, setting: Setting) -> list[Entry]:
    """A torque test, from a table or simulated.

    Args:
        part: entry of the study file.
        label: its name in messages.
        setting: of the test.

    Raises:
        ValueError: the motion cannot be read, made, or be the machine's.
    """
    model = brakes_released(setting.model)
    if model.elements or model.virtual_springs:
        raise NotImplementedError("torque tests are of machines with rigid links, this one has compliant ones")
    stated, changed = stated_posture(model, part.posture)
    start = np.asarray(stated)
    absent = payload_columns(
        model, part.without, [payload.name for payload in setting.unlocked_machine.payload], "without: payload"
    )
    record, sides, truth, how_found, at_shafts = _recording(part, setting, model)
    _check_recording(part, setting, model, record, start)
    path = recorded_path(model, record, start)
    cutoff = _searched_cutoff(part, setting, model, record, path, absent)
    motion, *drawn = _motions(part, record, cutoff)
    freed = () if record.drives is None else free_gains(record.drives.names, setting.file.free)
    selects_friction = bool(part.friction_terms) or (part.role == "fit" and load_unknown(model, setting.file.free))
    is_trial = selects_friction and setting.friction is None
    own_delay = f"{DELAY}.{label}"
    is_late = part.role == "fit" and any(matching([own_delay], pattern) for pattern in setting.file.free)
    if is_late:  # the slope of an effort has a spike where friction changes its sign
        record = dataclasses.replace(record, blurred=max(record.blurred, SLOPE_REACH))
    elastic = None if setting.about is None else brakes_released(setting.about)
    settings = RowSettings(
        part.effort_cutoff_hz, _least_speed(part, model), part.from_s, _last(part),
        load_parameters=_known_load_parameters(model, setting, absent), keep_samples=is_trial or is_late or bool(freed),
        gears=Gears(sides, part.gears == "dynamic", elastic), absent=absent,
    )  # fmt: skip

    def equations(delay_s: float, motion: MotionEstimate = motion) -> Prepared:
        return prepared(model, record, delayed(motion, record.rate_hz, delay_s), path, settings)

    with error_location("[free]"):
        delay_s, rows = first_delay(equations, record.rate_hz, own_delay) if is_late else (0.0, equations(0.0))
    rigid = bool(sides) and setting.about is None and not model.dependent
    plain, noisy = rows, _with_noise(part, rows, rigid, [equations(delay_s, each) for each in drawn])
    rows, moved = noisy.rows, delayed(motion, record.rate_hz, delay_s)
    test, recordings = _torque_test(part, label, model, noisy), None
    if freed and record.drives is not None:
        if setting.gains is None:
            used = record.drives.signal[_used(record, moved)]
            recordings = Recorded(_by_known_speeds(model, rows), used, record.drives, part.robust)
        else:
            test = with_free_gains(test, rows, record.drives, freed, setting.gains)
    if is_late:
        test = test.with_own([own_delay], np.array([delay_s]), delay_column(rows, record.rate_hz)[:, None])
    source = _source(part, setting, model, record, moved, noisy, cutoff)

    def rebuild(other: Model, zeros: Mapping[str, float]) -> TorqueTest:
        by = np.array([zeros.get(name, 0.0) for name in record.names])
        placed = path.copy()
        placed[:, [model.coordinates.index(name) for name in record.names]] += by
        rows = prepared(brakes_released(other), record, moved._replace(position=moved.position + by), placed, settings)
        constant = np.asarray(test.constant) + rows.constant - plain.constant
        return dataclasses.replace(test, regressor=jax.device_put(rows.regressor), constant=jax.device_put(constant))

    source = dataclasses.replace(source, rebuild=rebuild, gravity=np.asarray(model.gravity))
    source = dataclasses.replace(source, tried=_by_known_speeds(model, rows) if is_trial else None, recorded=recordings)
    settled = part if cutoff is None else part.model_copy(update={"cutoff_hz": cutoff})
    if at_shafts and not setting.reversed_gears:
        source = dataclasses.replace(source, reversed_gears=_reversed_gears(settled, label, setting, at_shafts))
    if sides and not model.dependent:
        source = dataclasses.replace(
            source, about=lambda fit: read_torque_test(settled, label, setting._replace(about=fit))[0]
        )
    chosen = [] if cutoff is None else [f"angles are filtered at {cutoff:.3g} Hz{_why(cutoff, part, record)}"]
    kinds = [test.kind for test in setting.file.test]
    parallel = parallel_springs(model, rows.measured, kinds, list(setting.file.free))
    own = motion_remarks(setting.unlocked_machine, model, record, part.simulate is None)
    remarks = (*changed, *how_found, *chosen, *parallel, *own)
    return [Entry("torque", test, source, truth, role=part.role, remarks=remarks)]


def _recording(part: TorqueTestPart, setting: Setting, model: Model) -> _Recording:
    """The record that a test is of: read or simulated, at the joints, in even steps, efforts by gains found before."""
    truth, remarks, at_shafts = None, list[str](), ()
    if part.simulate is None:
        read = _recorded(str(part.file), setting, part.resample_hz is None)
        check_ratios(model, read)
        record, sides = at_joints(model, read, part.angles_at)
        at_shafts = tuple(name for name in sides if name not in read.names)
        if setting.reversed_gears:
            record = reversed_at(record, setting.reversed_gears)
        check_columns(str(part.file), setting.unlocked_machine, model, record.names, part.posture)
        remarks += _column_remarks(part, model, read, record, sides)
    else:
        how = part.simulate
        true, seed, truth = simulated_machine(how, setting)
        there = np.asarray(stated_posture(true, part.posture)[0])
        record = simulated_motion(how, _without(true, part.without), there, seed, part.angles_at)
        check_record(record)
        record, sides = at_joints(model, record, part.angles_at)
    if part.resample_hz is not None:
        steps = np.diff(record.time_s)
        remarks.append(f"resampled at {part.resample_hz:g} Hz, from steps of {steps.min():.3g} to {steps.max():.3g} s")
        with error_location("resample_hz"):
            record = resampled(record, part.resample_hz)
    return _Recording(with_gains(record, setting.gains), sides, truth, tuple(remarks), at_shafts)


def _reversed_gears(
    part: TorqueTestPart, label: str, setting: Setting, at_shafts: tuple[str, ...]
) -> dict[tuple[str, ...], Callable[[], TorqueTest]]:
    """Readers of the test with the opposite sign of the gear ratio of each joint, and of all, with rigid gears."""

    def reader(joints: tuple[str, ...]) -> Callable[[], TorqueTest]:
        changed = setting._replace(about=None, reversed_gears=joints)
        return lambda: cast(TorqueTest, read_torque_test(part, label, changed)[0].test)

    return {joints: reader(joints) for joints in dict.fromkeys([*((name,) for name in at_shafts), at_shafts])}


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


def _check_recording(
    part: TorqueTestPart, setting: Setting, model: Model, record: MotionRecord, start: Float[np.ndarray, "n"]
) -> None:
    """Raise ValueError where a record is not of the machine's motion or lacks required columns."""
    check_moves(model, record, start, list(setting.file.free))
    if "temperature" in part.friction_terms and record.temperature is None:
        raise ValueError("friction_terms: found no column 'temperature' in the record, expected one")
    if part.torque_std == "estimate" or (part.kalman is None and part.cutoff_hz == "search"):
        check_driven(record)


def _known_load_parameters(model: Model, setting: Setting, absent: Sequence[int]) -> dict[str, float]:
    """Values of the parameters about which the equations are taken, without those of payloads that are not carried."""
    first, names = setting.friction or setting.gains, regressor_names(model)
    known = parameters(model) if first is None else first.values
    left_out = {names[i] for i in absent}
    return {name: value for name, value in known.items() if name not in left_out}


def _with_noise(part: TorqueTestPart, rows: Prepared, rigid: bool, drawn: Sequence[Prepared]) -> _NoisyRows:
    """Equations with their noise, of efforts and where it was drawn of the motion, whose bias is taken off.

    Rigid: gears are taken as rigid, by which efforts err by more than is stated.
    """
    std, alike = _noise(part.model_copy(update={"torque_std": "estimate"}) if rigid else part, rows)
    if not drawn:
        return _NoisyRows(rows, std, alike, ())
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
    return _NoisyRows(rows, np.sqrt(more), alike * more / std**2, doubts)


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
        alike=jax.device_put(noisy.alike),
        constant=jax.device_put(np.broadcast_to(rows.constant, rows.effort.shape)),
    )


def _source(
    part: TorqueTestPart, setting: Setting, model: Model, record: MotionRecord, moved: MotionEstimate,
    noisy: _NoisyRows, cutoff_hz: float | None,
) -> TorqueSource:  # fmt: skip
    """Origin of the equations of a test, and doubts about them."""
    rows, used, recorded = noisy.rows, _used(record, moved), part.simulate is None
    beyond = beyond_range(setting.unlocked_machine, record, recorded)
    too_far = recorded and travels_too_far(setting.unlocked_machine, record)
    return TorqueSource(
        time_s=rows.time_s,
        cutoff_hz=cutoff_hz if part.cutoff_hz == "search" else part.cutoff_hz,
        velocity=rows.velocity,
        coordinates=rows.measured,
        revolute=tuple(model.revolute[model.coordinates.index(name)] for name in rows.measured),
        doubts=(*([] if too_far else beyond), *rates_beside_angles(record), *noisy.doubts),
        std_unknown=bool(noisy.doubts),
        impossible=" ".join(beyond) if too_far else "",
        kinds=part.friction_terms,
        noise_bound=noise_bound(
            record.effort[used][:, [record.names.index(name) for name in rows.measured]],
            moved.velocity[used],
            record.rate_hz,
            np.max(part.effort_cutoff_hz or record.rate_hz),
        ),
        noise_estimated=part.torque_std == "estimate",
        at_rest=tuple(unrecorded(model, record.names)),
        drives=() if record.drives is None else record.drives.names,
    )


def _used(record: MotionRecord, moved: MotionEstimate) -> slice:
    """Samples of a record that its motion is known at."""
    return slice(moved.first, len(record.time_s) - moved.last)


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


def _recorded(file: str, setting: Setting, even: bool) -> MotionRecord:
    """The motion in a table of joint angles and torques, or behind a description of recordings at the motors."""
    names = independent_coordinates(setting.model)
    if Path(file).suffix.lower() == ".csv":
        return read_motion(setting.folder / file, names, even)
    return read_described(file, setting.folder, names)


def _searched_cutoff(
    part: TorqueTestPart, setting: Setting, model: Model, record: MotionRecord, path: Float[np.ndarray, "k n"],
    absent: Sequence[int],
) -> float | None:  # fmt: skip
    """Cut-off of the angles where it is to be searched, None elsewhere. A test that is held out takes the highest of
    those that are fitted."""
    if part.kalman is not None or part.cutoff_hz != "search":
        return None
    sources = [entry.source for entry in setting.fitted] if part.role == "check" else []
    found = [s.cutoff_hz for s in sources if isinstance(s, TorqueSource) and s.cutoff_hz is not None]
    if found:
        return min(max(np.max(cutoff) for cutoff in found), HIGHEST * record.rate_hz)
    return best_cutoff(model, record, path, _least_speed(part, model), part.from_s, _last(part), part.robust, absent)


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
    absent = np.zeros(len(record.names)) if measured is None else np.isnan(measured).all(axis=0)
    check_known(f"{key}: coordinate", given, record.names)
    for name, nothing in zip(record.names, absent, strict=True):
        if name not in given and not nothing:
            raise ValueError(f"{key}: found none for '{name}', expected one for each coordinate")
    return np.array([given.get(name, 1.0) for name in record.names])


def _least_speed(part: TorqueTestPart, model: Model) -> np.ndarray:
    names = independent_coordinates(model)
    given = part.least_speed if isinstance(part.least_speed, dict) else dict.fromkeys(names, part.least_speed)
    check_known("least_speed: coordinate", given, names)
    return np.array([given.get(name, 0.0) for name in names])


def _noise(part: TorqueTestPart, rows: Prepared) -> tuple[np.ndarray, np.ndarray]:
    """Standard deviation of each row's effort, and by how many samples that are alike its square is larger."""
    if part.torque_std == "estimate":
        noise = effort_noise(rows, part.robust)
        return noise.std[rows.coordinate], noise.alike[rows.coordinate]
    return _stated_std(part.torque_std, rows), np.ones(rows.effort.size)


def _stated_std(given: float | dict[str, float], rows: Prepared) -> np.ndarray:
    if not isinstance(given, dict):
        return np.full(rows.effort.size, given)
    check_known("torque_std: coordinate", given, rows.measured)
    for name in rows.measured:
        if name not in given:
            raise ValueError(f"torque_std: found none for '{name}', whose torque was measured")
    return np.array([given[name] for name in rows.measured])[rows.coordinate]
