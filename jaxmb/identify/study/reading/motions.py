"""Recorded and simulated motions of torque tests, and their checks against the machine: columns, units, ranges."""

from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.identify.experiments.test import Truth
from jaxmb.identify.experiments.torque.effort_rows import with_recorded
from jaxmb.identify.experiments.torque.gears import (
    Gears,
    at_joints,
    brakes_released,
    drives_of,
    elastic_rows,
    rigid_gears,
    shaft_names,
    without_masses,
)
from jaxmb.identify.parameters.free_parameters import matching
from jaxmb.identify.parameters.model_parameters import parameters
from jaxmb.identify.regression.torque_regressor import regressor_names, stacked_torque_regressor
from jaxmb.identify.study.context import ReadingContext, simulated_machine
from jaxmb.identify.study.format.torque_format import MotionPart, SimulateTorques, TorqueTestPart
from jaxmb.io.validation import check_known, error_location, listed
from jaxmb.machine.build import Model
from jaxmb.machine.schema import Machine
from jaxmb.measurement.motion.csv_motion import read_described, read_motion
from jaxmb.measurement.motion.record import MotionRecord, Side, check_record, resampled
from jaxmb.mechanics.forward import actuator_effort
from jaxmb.mechanics.loops import independent_coordinates
from jaxmb.mechanics.postures import closed_along, stated_posture


def simulated_motion(
    spec: SimulateTorques,
    model: Model,
    start: np.ndarray,
    noise_seed: int,
    angles_at: Side | Mapping[str, Side] = "motor",
) -> MotionRecord:
    """A motion about a posture as it would be recorded on a machine, with errors.

    Args:
        spec: the motion and its measurement.
        model: the machine that is measured.
        start: posture at the first sample [n].
        noise_seed: seed of the errors.
        angles_at: side of the gear on which angles of joints with motors are recorded; the motion is that of the links.

    Raises:
        ValueError: a coordinate is not independent, or a loop opens along the motion.
    """
    model = brakes_released(model)
    names = [name for name in independent_coordinates(model) if name not in shaft_names(model)]
    check_known("motion: coordinate", spec.motion, names)
    time = np.arange(round(spec.duration_s * spec.rate_hz) + 1) / spec.rate_hz
    z, zd, zdd = states_along(spec.motion, spec.base_hz, time, names)
    z += start[[model.coordinates.index(name) for name in names]]
    torque_std = by_coordinate("torque_std", spec.torque_std, names, rest=0.0)
    if model.motors:
        z, effort = _behind_gears(model, names, z, zd, zdd, spec.rate_hz, angles_at)
    else:
        effort = np.asarray(_efforts(model, *map(jnp.asarray, (closed_along(model, z, start), zd, zdd))))
    draw = np.random.default_rng(noise_seed)
    return MotionRecord(
        time_s=time,
        names=tuple(names),
        position=z + spec.angle_std * draw.normal(size=z.shape),
        effort=effort + torque_std * draw.normal(size=z.shape),
        velocity=None if spec.velocity_std is None else zd + spec.velocity_std * draw.normal(size=z.shape),
        acceleration=None if spec.acceleration_std is None else zdd + spec.acceleration_std * draw.normal(size=z.shape),
    )


def by_coordinate(
    key: str, given: float | Mapping[str, float], names: Sequence[str], rest: float | None = None, why: str = ""
) -> Float[np.ndarray, "c"]:
    """A number for each coordinate from a key of a study file: one for all, or by name.

    Args:
        key: in the study file.
        given: value of the key.
        names: of the coordinates.
        rest: the number for coordinates that are not named; None where all must be named.
        why: end of the message on a coordinate that is not named.
    """
    each = dict.fromkeys(names, given) if isinstance(given, int | float) else given
    check_known(f"{key}: coordinate", each, names)
    lacking = [name for name in names if name not in each]
    if lacking and rest is None:
        raise ValueError(f"{key}: found none for '{lacking[0]}', {why}")
    return np.array([each.get(name, rest) for name in names])


def states_along(
    motion: Mapping[str, MotionPart], base_hz: float, time_s: Float[np.ndarray, "k"], names: Sequence[str]
) -> tuple[Float[np.ndarray, "k m"], Float[np.ndarray, "k m"], Float[np.ndarray, "k m"]]:
    """Coordinates relative to their start, rates and accelerations along a motion, in the order of `names`."""
    z, zd, zdd = (np.zeros((len(time_s), len(names))) for _ in range(3))
    for name, series in motion.items():
        i = names.index(name)
        z[:, i] += series.speed * time_s
        zd[:, i] += series.speed
        for amplitudes, phase in ((series.sine, 0.0), (series.cosine, np.pi / 2)):
            for k, amplitude in enumerate(amplitudes, 1):
                w = 2.0 * np.pi * k * base_hz
                z[:, i] += amplitude * (np.sin(w * time_s + phase) - np.sin(phase))
                zd[:, i] += amplitude * w * np.cos(w * time_s + phase)
                zdd[:, i] -= amplitude * w**2 * np.sin(w * time_s + phase)
    return z, zd, zdd


def _behind_gears(
    model: Model,
    names: Sequence[str],
    z: np.ndarray,
    zd: np.ndarray,
    zdd: np.ndarray,
    rate_hz: float,
    angles_at: Side | Mapping[str, Side],
) -> tuple[Float[np.ndarray, "k c"], Float[np.ndarray, "k c"]]:
    """Recorded angles and efforts of the drives for a motion of the links, with the deflection of the gears."""
    if model.dependent:
        raise NotImplementedError("motions of machines with loops and motors cannot be simulated")
    every, driven = independent_coordinates(model), drives_of(model)
    own, still = [every.index(name) for name in names], np.zeros(len(model.coordinates))
    gears = Gears({every[joint]: "link" for joint, _, _ in driven}, fitted=model)
    z, zd, zdd = (rigid_gears(model, (), with_recorded(model, names, part, still)) for part in (z, zd, zdd))
    matrix, constant, angles = elastic_rows(model, gears, (), z, zd, zdd, rate_hz)
    known = parameters(model)
    effort = matrix @ np.array([known[name] for name in regressor_names(model)]) + constant
    for joint, shaft, ratio in driven:
        if (angles_at if isinstance(angles_at, str) else angles_at.get(every[joint], "motor")) == "motor":
            angles[:, joint] = angles[:, shaft] / ratio
    return angles[:, own], effort[:, own]


@compiled
def _efforts(
    model: Model, q: Float[Array, "k n"], qd: Float[Array, "k m"], qdd: Float[Array, "k m"]
) -> Float[Array, "k m"]:
    return jax.vmap(lambda *at: actuator_effort(model, *at))(q, qd, qdd)


STILL = 1e-6
"""Travel, rad or m, below which a coordinate is at rest."""
MOST_TURNS = 2.0
"""Turns of a recorded joint without a range above which its unit is in doubt."""
OTHER_UNIT = 3.0
"""Ratio of a measured rate to the rate of the motion, or its reciprocal, above which the unit is in doubt."""
CORRELATED = 0.9
"""Smallest correlation of a motion and an integrated rate that are compared."""
BEYOND = 0.03
"""Distance by which a motion may leave a range, over its width: zeros of encoders are not set better."""
TOO_FAR = 2.0
"""Travel over the width of a range, from which on it is not the machine's motion, whatever the zero and the limits."""


def check_moves(model: Model, record: MotionRecord, start: Float[np.ndarray, "n"], free: Sequence[str]) -> None:
    """Raise ValueError where no coordinate moves; it names the free parameters without effect at rest.

    Args:
        model: the machine.
        record: of its motion.
        start: posture near it.
        free: names or patterns of the free parameters.
    """
    if np.any(np.ptp(record.position, axis=0) >= STILL):
        return
    rest = np.zeros((1, len(independent_coordinates(model))))
    acting = stacked_torque_regressor(model, start[None], rest, rest)[0].any(axis=0)
    acts = {name for name, own in zip(regressor_names(model), acting, strict=True) if own}
    lost = [name for name in parameters(model) if name not in acts and any(matching([name], p) for p in free)]
    said = f": at rest no torque depends on {', '.join(lost)}" if lost else ""
    raise ValueError(f"nothing moves ({', '.join(record.names)}), expected a motion that excites the parameters{said}")


def beyond_range(
    machine: Machine, names: Sequence[str], position: Float[np.ndarray, "t n"], recorded: bool
) -> tuple[list[str], bool]:
    """A sentence on coordinates that leave their `range`, and whether one travels further than its range permits for
    any zero, which the machine cannot do.

    Args:
        machine: with `range` of its coordinates.
        names: of the coordinates.
        position: their values along a motion, or in some postures.
        recorded: whether they were recorded rather than simulated, so that unit and zero may be wrong.
    """
    own, found, too_far = {part.name: part for part in machine.moving_parts}, list[str](), False
    for name, column in zip(names, position.T, strict=True):
        low, high = own[name].range or (-np.inf, np.inf)
        lowest, highest, width = float(column.min()), float(column.max()), high - low
        too_far |= recorded and highest - lowest > TOO_FAR * width
        if lowest < low - BEYOND * width or highest > high + BEYOND * width:
            unit, wrong = ("rad", "degrees") if own[name].type == "revolute" else ("m", "mm")
            asked = f": is it in {wrong}, or counted from another zero?" if recorded else ""
            at = f"is {lowest:.3g}" if lowest == highest else f"ranges from {lowest:.3g} to {highest:.3g}"
            found.append(f"{name} {at} {unit}, beyond its range of {low:.3g} to {high:.3g} {unit}{asked}")
    return [listed(found)] if found else [], too_far


def rate_remarks(record: MotionRecord) -> list[str]:
    """Sentences on measured rates and accelerations whose integrals differ in size from the motion.

    The factor k of q = k integral + polynomial (unknown start and bias) is estimated by regression of q on the
    integral, which is too small under noise of the integral, and by the reverse regression, which is too large under
    noise of q: both must differ from 1 by `OTHER_UNIT`. Signals with a correlation below `CORRELATED` are not compared.
    """
    found, time = list[str](), (record.time_s - record.time_s[0]) / np.ptp(record.time_s)
    for what, order, measured in (("velocity", 1, record.velocity), ("acceleration", 2, record.acceleration)):
        for i, name in enumerate(record.names):
            if measured is None or np.isnan(measured[:, i]).any():
                continue
            integral = measured[:, i]
            for _ in range(order):
                integral = scipy.integrate.cumulative_trapezoid(integral, record.time_s, initial=0.0)
            start = np.linalg.qr(np.vander(time, order + 2))[0]
            x, q = (part - start @ (start.T @ part) for part in (integral, record.position[:, i]))
            size = np.sqrt((x @ x) * (q @ q))
            if not (x @ x > 0.0 and q @ q > STILL**2 * q.size) or abs(x @ q) < CORRELATED * size:
                continue
            smallest, largest = sorted((abs(x @ q) / (x @ x), (q @ q) / abs(x @ q)))
            if smallest > OTHER_UNIT or largest < 1.0 / OTHER_UNIT or x @ q < 0.0:
                times = np.sign(x @ q) / np.sqrt(smallest * largest)
                found.append(f"{name}.{what} is {times:.3g} times the rate of its motion: is it in another unit?")
    return found


PLATEAU, LIMITED = 5, 0.01
"""Least number of equal samples in a row of a torque that is limited, and part of all samples above which they are
reported, as they displace parameters."""


def saturation_remarks(record: MotionRecord) -> list[str]:
    """Sentences on torques that stay at exactly their largest or smallest value, and reach it by more than two steps of
    their resolution, unlike the rounded peak of a smooth torque."""
    drives, found = record.drives, list[str]()
    names, signals = (record.names, record.effort) if drives is None else (drives.names, drives.signal)
    for name, signal in zip(names, signals.T, strict=True):
        steps = np.abs(np.diff(signal))
        least, equal = float(np.min(steps, where=steps > 0.0, initial=np.inf)), dict[float, int]()
        for limit in (float(np.min(signal)), float(np.max(signal))):
            ends = np.flatnonzero(np.diff(np.concatenate([[False], signal == limit, [False]])))
            for first, last in ends.reshape(-1, 2).tolist():
                reached = [steps[k] for k in (first - 1, last - 1) if 0 <= k < steps.size]
                if last - first >= PLATEAU and reached and np.mean(reached) > 2.0 * least:
                    equal[limit] = equal.get(limit, 0) + last - first
        share = sum(equal.values()) / signal.size
        if share > LIMITED:
            found.append(
                f"the torque of {name} is exactly {' or '.join(f'{limit:.4g}' for limit in equal)} in"
                f" {100.0 * share:.2g} % of its samples: it saturates and is not that of the motion;"
                " standard deviations are not reported, record a slower motion"
            )
    return found


def parallel_springs(model: Model, measured: Sequence[str], kinds: Sequence[str], free: Sequence[str]) -> list[str]:
    """A sentence on joints whose stiffness acts parallel to their drive in torque tests; in tests of other kinds in the
    same study it may be that of a gear.

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
    remark = (
        f"in torque tests the stiffness of {listed(found)} acts parallel to the drive, with k (q - q_rest): a joint"
        " whose stiffness is that of the gear between drive and link needs motor = { inertia, ratio }, or 0 in [hold]"
    )
    return [remark] if found and any(kind != "torque" for kind in kinds) else []


def unrecorded(model: Model, recorded: Sequence[str]) -> list[str]:
    """Independent coordinates without a column, except locked ones and shafts, which turn with their joints."""
    names = [name for name in independent_coordinates(model) if name not in (*recorded, *shaft_names(model))]
    return [name for name in names if not model.locked[model.coordinates.index(name)]]


def check_columns(
    file: str, machine: Machine, model: Model, recorded: Sequence[str], stated: Container[str]
) -> None:  # fmt: skip
    """Raise ValueError where a joint has neither a column in the record nor a fixed value in the study.

    Coordinates of elastic joints or links need no column: those with a stiffness and no property of a drive.

    Args:
        file: name of the record's file.
        machine: with the joints.
        model: of the machine.
        recorded: joints with a column.
        stated: coordinates whose value the test states.
    """
    parts = {part.name: part for part in machine.moving_parts}
    for name in unrecorded(model, recorded):
        part = parts[name]
        driven = part.motor or part.rotor_inertia or part.friction or part.range or part.speed_limit
        if name not in stated and (driven or not part.stiffness):
            shaft = f" or '{part.shaft.name}'" if part.shaft is not None else ""
            wanted = f"a column '{name}'{shaft}" if file.lower().endswith(".csv") else f"a drive that turns {name}"
            raise ValueError(
                f"'{file}' has no motion of joint '{name}': expected {wanted}, or the value of {name} in posture where"
                " it does not move"
            )


def check_ratios(model: Model, record: MotionRecord) -> None:
    """Raise ValueError where recorded angles of a shaft and its joint contradict the gear ratio in size or sign."""
    angles = dict(zip(record.names, (record.position - record.position.mean(axis=0)).T, strict=True))
    for (joint, shaft), ratio in zip(model.motors, np.asarray(model.gear_ratio), strict=True):
        name, motor = model.coordinates[joint], model.coordinates[shaft]
        if name in angles and motor in angles:
            q, theta = angles[name], angles[motor]
            size = float(np.sqrt((q @ q) * (theta @ theta)))
            moves = q @ q > STILL**2 * q.size and abs(q @ theta) > CORRELATED * size
            found = float(np.sign(q @ theta) * np.sqrt((theta @ theta) / (q @ q))) if moves else ratio
            if not 1.0 / OTHER_UNIT < found / ratio < OTHER_UNIT:
                raise ValueError(
                    f"'{motor}' turns {found:.4g} times for one of '{name}', and the machine's ratio is {ratio:g}:"
                    " expected the sign and size of the ratio, and the units of both angles, to agree"
                )


def motion_remarks(machine: Machine, model: Model, record: MotionRecord, recorded: bool) -> list[str]:
    """Sentences on coordinates without a range that turn often, on those at rest or not recorded, and on a missing
    temperature on which friction depends."""
    ranges, found = {part.name: part.range for part in machine.moving_parts}, []
    travel = dict(zip(record.names, np.ptp(record.position, axis=0).tolist(), strict=True))
    for name, distance in travel.items():
        turns = distance / (2.0 * np.pi)
        is_joint = model.revolute[model.coordinates.index(name)] and name in model.joints
        if recorded and ranges[name] is None and is_joint and turns > MOST_TURNS:
            found.append(f"{name} turns {turns:.3g} times: are its angles in degrees, or is a gear ratio missing?")
    still = [name for name, distance in travel.items() if distance < STILL]
    lacking = unrecorded(model, record.names)
    warm = [name for name in record.names if "damping_slope" in model.further_friction[model.coordinates.index(name)]]
    texts = (
        (still, f"{', '.join(still)} rest: parameters that act only in motion are not excited"),
        (lacking, f"no motion was recorded of {', '.join(lacking)}: they rest at the posture"),
        (
            warm if recorded and record.temperature is None else (),
            f"no temperature was recorded: damping of {', '.join(warm)} is that at the machine's own temperature",
        ),
    )
    return [*found, *(text for names, text in texts if names)]


class Recording(NamedTuple):
    """A test with its motion and torques, recorded or simulated, converted to the joints, evenly sampled."""

    part: TorqueTestPart
    label: str
    posture: Float[np.ndarray, "n"]
    """Posture near the motion."""
    record: MotionRecord
    sides: dict[str, Side]
    truth: Truth | None
    remarks: tuple[str, ...]
    at_shafts: tuple[str, ...] = ()
    """Joints of which only the shaft was recorded."""


def read_recording(part: TorqueTestPart, label: str, context: ReadingContext, model: Model) -> Recording:
    """The motion of a test, read or simulated.

    Raises:
        ValueError: the motion does not match the machine, or required columns are missing.
    """
    stated, remarks = stated_posture(model, part.posture)
    start, truth, at_shafts = np.asarray(stated), None, ()
    if part.simulate is None:
        file, names = str(part.file), independent_coordinates(context.model)
        ratios = dict(zip(shaft_names(model), np.asarray(model.gear_ratio).tolist(), strict=True))
        if Path(file).suffix.lower() == ".csv":  # joint angles and torques
            read = read_motion(context.folder / file, names, part.resample_hz is None, ratios)
            remarks = (*remarks, f"{file} has {read.doubtful_rate}") if read.doubtful_rate else remarks
        else:  # a description of recordings at the motors
            read = read_described(file, context.folder, names, ratios)
        check_ratios(model, read)
        record, sides = at_joints(model, read, part.angles_at)
        at_shafts = tuple(name for name in sides if name not in read.names)
        check_columns(file, context.unlocked_machine, model, record.names, part.posture)
        remarks = (*remarks, *_column_remarks(part, model, read, record, sides))
    else:
        true, seed, truth = simulated_machine(part.simulate, context)
        there = np.asarray(stated_posture(true, part.posture)[0])
        record = simulated_motion(part.simulate, without_masses(true, part.without), there, seed, part.angles_at)
        check_record(record)
        record, sides = at_joints(model, record, part.angles_at)
    if part.resample_hz is not None:
        steps = np.diff(record.time_s)
        text = f"resampled at {part.resample_hz:g} Hz, from steps of {steps.min():.3g} to {steps.max():.3g} s"
        remarks = (*remarks, text)
        with error_location("resample_hz"):
            record = resampled(record, part.resample_hz)
    check_moves(model, record, start, list(context.file.free))
    if "temperature" in part.friction_terms and record.temperature is None:
        raise ValueError("friction_terms: found no column 'temperature' in the record, expected one")
    derived = part.torque_std == "estimate" or (part.kalman is None and part.cutoff_hz == "search")
    for name, travel, effort in zip(record.names, np.ptp(record.position, axis=0), record.effort.T, strict=True):
        # it determines neither a cut-off nor its noise
        if derived and travel >= STILL and np.ptp(effort) == 0.0:
            raise ValueError(
                f"the torque of {name} is {effort[0] + 0.0:g} throughout while it moves, expected the measured one:"
                " omit its column where it was not measured; where nothing drove it, state cutoff_hz and torque_std"
            )
    return Recording(part, label, start, record, sides, truth, tuple(remarks), at_shafts)


def _column_remarks(
    part: TorqueTestPart, model: Model, read: MotionRecord, record: MotionRecord, sides: Mapping[str, Side]
) -> list[str]:
    """Sentences on missing columns of a table, and on angles whose side of the gear the study does not state."""
    efforts = zip(record.names, record.effort.T, strict=True)
    silent = [name for name, own in efforts if np.isnan(own).all() and name not in shaft_names(model)]
    remarks = [f"{part.file} has no column '{name}.torque': the equation of {name} is left out" for name in silent]
    assumed = [name for name in sides if name in read.names and "angles_at" not in part.model_fields_set]
    if assumed:
        remarks.append(
            f"angles of {listed(assumed)} are assumed to be motor angles over the gear ratio; angles_at = 'link' for"
            " sensors behind the gears"
        )
    return remarks
