"""Checks of recorded motions against the machine: moving coordinates, columns, units, zeros and gear ratios."""

from collections.abc import Container, Sequence

import numpy as np
import scipy
from jaxtyping import Float

from jaxmb.identify.parameters.free_parameters import matching
from jaxmb.identify.parameters.model_parameters import parameters
from jaxmb.identify.regression.torque_regressor import regressor_names, stacked_torque_regressor
from jaxmb.io.validation import listed
from jaxmb.machine.build import Model
from jaxmb.machine.schema import Machine
from jaxmb.measurement.motion.record import MotionRecord
from jaxmb.mechanics.loops import independent_coordinates

STILL = 1e-6
"""rad or m: a coordinate that moves by less rests."""
MOST_TURNS = 2.0
"""Of a recorded joint without a range, beyond which it is asked whether its unit is right."""
OTHER_UNIT = 3.0
"""Times that a measured rate is larger or smaller than the motion, beyond which its unit is in doubt."""
CORRELATED = 0.9
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
        part, lowest, highest = own[name], float(column.min()), float(column.max())
        if part.range is None:
            continue
        low, high = part.range
        more = BEYOND * (high - low)
        if lowest < low - more or highest > high + more:
            unit = "rad" if part.type == "revolute" else "m"
            units.add("in degrees" if unit == "rad" else "in mm")
            found.append(
                f"{name} goes from {lowest:.3g} to {highest:.3g} {unit}, beyond its range of"
                f" {low:.3g} to {high:.3g} {unit}"
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


def rate_remarks(record: MotionRecord) -> list[str]:
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
        if not (q @ q > STILL**2 * q.size and abs(q @ theta) > CORRELATED * size):
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
    travel = dict(zip(record.names, np.ptp(record.position, axis=0).tolist(), strict=True))
    for name, distance in travel.items():
        turns = distance / (2.0 * np.pi)
        is_joint = model.revolute[model.coordinates.index(name)] and name in model.joints
        if recorded and ranges[name] is None and is_joint and turns > MOST_TURNS:
            found.append(f"{name} turns {turns:.3g} times: are its angles in degrees, or is a gear ratio missing?")
    still = [name for name, distance in travel.items() if distance < STILL]
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
