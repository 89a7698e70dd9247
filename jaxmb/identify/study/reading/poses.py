"""Reader of pose tests of a study file, with their tables of joint values and measured poses; simulated poses."""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxmb.identify.experiments.poses.pose_rows import (
    LEAST_DISTANCES,
    LENGTH,
    ROTATION,
    UPWARD,
    PoseRows,
    device_pose,
    measured_kinds,
    rotation_of,
    rotation_vector_of,
)
from jaxmb.identify.experiments.poses.pose_test import PoseSource, PoseTest, pose_test, predicted_poses, with_scatter
from jaxmb.identify.experiments.test import Entry, Role, Truth
from jaxmb.identify.study.context import ReadingContext, assumed_std, assumed_values, check_moving, simulated_machine
from jaxmb.identify.study.format.static_format import MOST_ROWS, PoseTestPart, SimulatePoses
from jaxmb.io.files import csv_table, number_of_cell
from jaxmb.io.validation import InputError, check_distinct, check_known, check_without_unit, error_location, known_name
from jaxmb.machine.build import Model
from jaxmb.machine.values import LARGEST_TRAVEL, check_angle, check_travel
from jaxmb.mechanics.kinematics import ELASTIC_AXES
from jaxmb.mechanics.loops import check_open_chain
from jaxmb.mechanics.postures import candidate_postures, stated_posture

DISTANCE_M = (2.0, 4.0)
"""Distance of simulated stations from the origin of the ground frame."""


def planned_rows(spec: SimulatePoses, model: Model, posture: np.ndarray) -> tuple[PoseRows, np.ndarray]:
    """Rows without measured values, and the true pose [s, 6] of the device at each station.

    Args:
        spec: entry of the study file.
        model: the machine.
        posture: values of the coordinates without a range.

    Raises:
        ValueError: a coordinate or a frame does not exist, or too few postures are possible.
    """
    points = tuple(dict.fromkeys((*spec.points, *spec.inclinations, *spec.distances)))
    check_known("points, inclinations and distances: frame", points, model.frames)
    count = spec.rows + spec.check_rows
    fixed = dict(zip(model.coordinates, ((x, x) for x in posture.tolist()), strict=True))
    floor = -np.inf if spec.floor_m is None else spec.floor_m
    draw = np.random.default_rng([spec.plan_seed, 1])
    pose = np.zeros((spec.stations, 6))
    for station in pose:
        angle, distance = draw.uniform(-np.pi, np.pi), draw.uniform(*DISTANCE_M)
        station[:3] = distance * np.cos(angle), distance * np.sin(angle), draw.uniform(0.5, 1.5)
        station[3:] = np.array([0.02, 0.02, 1.0]) * draw.uniform(-1.0, 1.0, size=3)
    labels = [f"station-{k + 1}" for k in range(spec.stations)]
    chosen = [[point in spec.points, point in spec.points and spec.measured == "pose", point in spec.inclinations,
               point in spec.distances] for point in points]  # fmt: skip
    return PoseRows(
        points=points,
        q=candidate_postures(model, fixed | spec.ranges, count, spec.plan_seed, floor),
        measured=np.tile(np.where(np.repeat(chosen, (3, 3, 3, 1), axis=1), 1.0, np.nan), (count, 1, 1)),
        station=tuple(labels[i % spec.stations] for i in range(count)) if labels else (),
        held_out=np.arange(count) >= spec.rows,
        row=tuple(str(i + 1) for i in range(count)),
        by_distance=() if spec.points else tuple(labels),
    ), pose


def measured_rows(
    model: Model, rows: PoseRows, pose: np.ndarray, std: Sequence[float], elastic: bool, seed: int,
    levelled: bool = False,
) -> PoseRows:  # fmt: skip
    """The rows as a device would measure them on a machine.

    Args:
        model: the measured machine.
        rows: the plan.
        pose: of the device at each station [s, 6].
        std: as `PoseTest.kind_std`.
        elastic: whether the machine deflects under its weight.
        seed: of the noise.
        levelled: whether the device's z axis is vertical.
    """
    test = pose_test("", rows, tuple(dict.fromkeys(rows.station)), pose, std, elastic, levelled)
    seen, upward = predicted_poses(test, model)
    draw = np.random.default_rng(seed)
    noise = np.concatenate(
        [s * draw.normal(size=(*seen.shape[:2], width)) for s, width in zip(std, (3, 3, 3, 1), strict=True)], axis=-1
    )
    turn = rotation_vector_of(rotation_of(noise[..., ROTATION]) @ seen[..., :3, :3])
    distance = np.linalg.norm(seen[..., :3, 3], axis=-1, keepdims=True)
    noise[..., ROTATION] = 0.0  # the turn contains it
    measured = np.concatenate([seen[..., :3, 3], turn, upward, distance], axis=-1) + noise
    return rows._replace(measured=np.where(np.isfinite(rows.measured), measured, np.nan))


STATION, ROLE, APPROACH, DISTANCE = "station", "role", ".approach", "distance"
ROLES = ("fit", "check", "inclined")
"""Roles of a line: fitted, predicted only, or predicted from its fitted inclinations."""
FREE_COMPLIANCE = ("stiffness.", "compliance.", "young_modulus.", "shear_modulus.")
"""Families of parameters whose patterns in `[free]` make a machine elastic."""
ACCELERATION = ("ax", "ay", "az")
"""Columns of the reading of an accelerometer at rest."""
COLUMNS = (*ELASTIC_AXES, *ACCELERATION, DISTANCE)
"""Columns of a point."""
LEAST_ROWS = 3
"""Fewest fitted points that determine the pose of a device, without rotations."""


def read_pose_test(part: PoseTestPart, label: str, context: ReadingContext) -> list[Entry]:
    """The fitted and the held-out rows of a pose test, from a table or simulated.

    Args:
        part: table of the study file.
        label: its name, unique in the study.
        context: of the test.

    Raises:
        ValueError: the table is invalid, or a station cannot be determined; the message names it.
    """
    model = context.model
    check_open_chain(model, "pose test")
    at, changed = stated_posture(model, part.posture)
    std, known = part.nominal_std, part.std_mm != "estimate"
    truth: Truth | None = None
    if part.simulate is None:
        rows, absent = read_poses(context.folder / str(part.file), model, np.asarray(at))
        changed += assumed_values(part, model, absent, np.asarray(at))
        changed += _assumed(part, np.any(measured_kinds(rows.measured), axis=0).tolist())
    else:
        rows, truth = _simulated(part.simulate, part, label, std, context, np.asarray(at))
    held_out = np.ones(len(rows.q), bool) if part.role == "check" else rows.held_out
    rows = rows._replace(kinds=measured_kinds(rows.measured), held_out=held_out)
    for name, measured, predicted in zip(rows.row, rows.measured, held_out, strict=True):
        if not (predicted or np.isfinite(measured).any()):
            raise ValueError(f"{part.file}: {name}: nothing is measured, expected numbers for a point, or role check")
    check_moving(model, "point", rows.points)
    elastic = any(pattern.startswith(FREE_COMPLIANCE) for pattern in context.file.free) or _is_elastic(model)
    stations = tuple(dict.fromkeys(rows.station))
    if part.levelled and not stations:
        raise ValueError("levelled is true, but no row has a station: expected the column 'station' in the table")
    if part.levelled and rows.by_distance:
        raise ValueError(
            f"levelled is true, but distances alone are measured from station '{rows.by_distance[0]}', which have no"
            " vertical: expected false"
        )
    pose = _station_poses(model, label, rows, stations, std, elastic)
    if np.isfinite(rows.measured[..., UPWARD]).any():
        _check_upward(model, pose_test(label, rows, stations, pose, std, elastic=False, levelled=part.levelled), rows)

    def entry(chosen: np.ndarray, role: Role, remarks: tuple[str, ...]) -> Entry:
        some, beside = rows.chosen(chosen), tuple(np.roll(rows.q, by, axis=0)[chosen] for by in (1, -1))
        test = pose_test(label, some, stations, pose, std, elastic, part.levelled, known)
        test = with_scatter(test, model, part.scatter)
        return Entry(part.kind, test, PoseSource(rows=some, beside=beside), truth, role=role, remarks=remarks)

    found = [entry(~held_out, "fit", changed)] if not held_out.all() else []
    return found + ([entry(held_out, "check", () if found else changed)] if held_out.any() else [])


def _is_elastic(model: Model) -> bool:
    """Whether a machine deflects under its weight."""
    return bool(np.any(np.asarray(model.stiffness) > 0.0)) or any((model.virtual_springs, model.beams, model.springs))


def _check_upward(model: Model, test: PoseTest, rows: PoseRows) -> None:
    """Raise ValueError where most measured verticals of a point are closer to downwards than to upwards."""
    if not np.any(np.asarray(model.gravity)):
        raise ValueError(f"machine '{model.name}' has gravity 0, expected its direction for measured inclinations")
    _, upward = predicted_poses(test, model)
    for p, point in enumerate(rows.points):
        seen = np.isfinite(rows.measured[:, p, UPWARD]).all(axis=1)
        reversed_rows = np.sum(rows.measured[seen, p, UPWARD] * upward[seen, p], axis=1) < 0.0
        if reversed_rows.sum() > 0.5 * seen.sum():
            raise ValueError(
                f"ax, ay and az of point '{point}' are more than 90 deg from the vertical of the machine as stated in"
                f" {reversed_rows.sum()} of {seen.sum()} rows: expected the reading of an accelerometer at rest, which"
                " points upwards, in the axes of that frame"
            )


def _assumed(part: PoseTestPart, measured: Sequence[bool]) -> tuple[str, ...]:
    """A sentence on default standard deviations of the kinds that were measured: positions, rotations, inclinations and
    distances."""
    units = {
        "std_mm": "mm",
        "std_mrad": "mrad of a rotation",
        "inclination_std_mrad": "mrad of an inclination",
        "distance_std_mm": "mm of a distance",
    }
    return () if part.std_mm == "estimate" else assumed_std("poses", part, units, measured)


def _simulated(
    spec: SimulatePoses,
    part: PoseTestPart,
    label: str,
    std: Sequence[float],
    context: ReadingContext,
    at: np.ndarray,
) -> tuple[PoseRows, Truth]:
    """Simulated rows at the coordinates of the fitted machine, and the truth with the poses of the device."""
    true, seed, truth = simulated_machine(spec, context)
    if true.coordinates != context.model.coordinates:
        raise ValueError("the simulated machine has other coordinates than the fitted one, expected the same")
    rows, pose = planned_rows(spec, true, at)
    elastic = _is_elastic(true)
    rows = measured_rows(true, rows, pose, std, elastic, seed, part.levelled)
    if not spec.stations:
        return rows, truth
    named = pose_test(label, rows, tuple(dict.fromkeys(rows.station)), pose, std, elastic).own
    values = {} if named is None else dict(zip(named.names, np.asarray(named.values).tolist(), strict=True))
    return rows, dataclasses.replace(truth, parameters=truth.parameters | values)


def _station_poses(
    model: Model, label: str, rows: PoseRows, stations: Sequence[str], std: Sequence[float], elastic: bool
) -> np.ndarray:
    """Initial pose of the device at each station [s, 6], from the fitted rows and the machine as stated."""
    fitted, found = rows.chosen(~rows.held_out), np.zeros((len(stations), 6))
    if not stations:
        return found
    if not fitted.row:
        raise ValueError(f"no row of station '{stations[0]}' is fitted, expected some that determine its pose")
    test = pose_test(label, fitted, stations, found, std, elastic)
    poses = np.asarray(test.view(model).poses)
    if not np.isfinite(poses).all():  # without a stiffness before the fit
        poses = np.asarray(dataclasses.replace(test, elastic=False).view(model).poses)
    for k, station in enumerate(stations):
        own = np.array([name == station for name in fitted.station], dtype=bool)
        at, measured = poses[own].reshape(-1, 4, 4), fitted.measured[own].reshape(-1, LENGTH + 1)
        device = device_pose(at, measured, oriented=station not in rows.by_distance)
        if device is None and station in rows.by_distance:
            raise ValueError(
                f"station '{station}' has {np.isfinite(measured[:, LENGTH]).sum()} fitted distances, which do not"
                f" determine its position: expected {LEAST_DISTANCES} of points that are not in a plane, since a plane"
                " leaves a mirror image"
            )
        if device is None:
            kinds = np.any(measured_kinds(fitted.measured), axis=0)
            alone = kinds[2] and not kinds[[0, 1, 3]].any()
            columns = [
                f"{point}.{axis}"
                for p, point in enumerate(fitted.points)
                for k, axis in enumerate(COLUMNS[:3])
                if np.isfinite(fitted.measured[:, p, :3]).any() and np.isnan(fitted.measured[:, p, k]).all()
            ]
            raise ValueError(
                f"station '{station}' has {int(own.sum())} fitted rows, which do not determine its pose: expected"
                f" {LEAST_ROWS} positions that are not in line, or a position and rotations"
                + (", or no column 'station' beside inclinations alone" if alone else "")
                + (f"; nothing is measured of {', '.join(columns)}" if columns else "")
            )
        found[k] = device
    return found


def read_poses(path: Path, model: Model, posture: np.ndarray) -> tuple[PoseRows, tuple[str, ...]]:
    """Rows of a CSV file: coordinates by name [rad, m], `<point>.x|y|z` [m], `<point>.rx|ry|rz` [rad],
    `<point>.ax|ay|az` [any], `<point>.distance` [m], `<coordinate>.approach`, station, role; joints without a column.

    Args:
        path: the file.
        model: the machine.
        posture: values of coordinates without a column [n].

    Raises:
        InputError: the file is not such a table; one sentence names the line.
    """
    heads, lines = csv_table(path, "a line for each pose")
    if len(lines) > MOST_ROWS:
        raise InputError(f"{path}: found {len(lines)} poses, expected at most {MOST_ROWS}")
    with error_location(str(path)):
        absent = tuple(name for name in model.joints if name not in heads)
        return _rows(heads, _check_heads(heads, model), lines, model, posture), absent


def _check_heads(heads: Sequence[str], model: Model) -> tuple[str, ...]:
    """Measured points of a heading."""
    points: dict[str, set[str]] = {}
    check_distinct(heads, "column '{}' occurs twice, expected it once")
    lengths = (f"{frame}.{axis}" for frame in model.frames for axis in (*ELASTIC_AXES, DISTANCE))
    check_without_unit(heads, {*model.coordinates, *lengths})
    for head in heads:
        if head not in (STATION, ROLE) and head.removesuffix(APPROACH) not in model.coordinates:
            point, dot, axis = head.rpartition(".")
            if not dot or axis not in COLUMNS:
                names = (*model.coordinates, *(f"tool.{axis}" for axis in COLUMNS), STATION, ROLE)
                raise ValueError(known_name("column", head, names))
            check_known(f"column '{head}': point", [point], model.frames)
            points.setdefault(point, set()).add(axis)
    if not points:
        raise ValueError("there is no column of a measured point, expected tool.x, tool.y and tool.z for example")
    for point, axes in points.items():
        for together in (ELASTIC_AXES[3:], ACCELERATION):
            some = [axis for axis in together if axis in axes]
            if 0 < len(some) < 3:
                raise ValueError(
                    f"point '{point}' has the columns {', '.join(some)}, expected {together[0]}, {together[1]} and"
                    f" {together[2]}"
                )
    return tuple(points)


def _rows(
    heads: Sequence[str], points: tuple[str, ...], lines: Sequence[tuple[int, list[str]]], model: Model,
    posture: np.ndarray,
) -> PoseRows:  # fmt: skip
    q = np.tile(posture, (len(lines), 1))
    approach = np.zeros(q.shape)
    measured = np.full((len(lines), len(points), len(COLUMNS)), np.nan)
    station, held_out, inclined = list[str](), np.zeros(len(lines), bool), np.zeros(len(lines), bool)
    label_of = dict[str, str]()
    for i, (number, row) in enumerate(lines):
        cells = dict(zip(heads, row, strict=True))
        with error_location(f"line {number}"):
            numbers = {
                head: number_of_cell(head, cell)
                for head, cell in cells.items()
                if head not in (STATION, ROLE) and (cell or head in model.coordinates)
            }
            for k, name in enumerate(model.coordinates):
                if name in model.joints and name in numbers:
                    (check_angle if model.revolute[k] else check_travel)(name, numbers[name])
                q[i, k], approach[i, k] = numbers.get(name, q[i, k]), numbers.get(name + APPROACH, 0.0)
                if approach[i, k] not in (-1.0, 0.0, 1.0):
                    raise ValueError(f"{name}{APPROACH} is {approach[i, k]:g}, expected 1, -1 or 0 (unknown)")
            measured[i] = [[numbers.get(f"{point}.{axis}", np.nan) for axis in COLUMNS] for point in points]
            for p, point in enumerate(points):
                if measured[i, p, LENGTH] <= 0.0:
                    raise ValueError(f"{point}.{DISTANCE} is {measured[i, p, LENGTH]:g} m, expected one above 0")
                check_travel(f"{point}.{DISTANCE}", measured[i, p, LENGTH])
                for axis, angle in zip(COLUMNS[ROTATION], measured[i, p, ROTATION].tolist(), strict=True):
                    check_angle(f"{point}.{axis}", angle)
                for k in (3, 6):
                    if 0 < np.isfinite(measured[i, p, k : k + 3]).sum() < 3:
                        raise ValueError(
                            f"point '{point}' has some of {COLUMNS[k]}, {COLUMNS[k + 1]} and {COLUMNS[k + 2]}, expected"
                            " all or none"
                        )
                if not measured[i, p, UPWARD].any():
                    raise ValueError(f"{point}.ax, ay and az are 0, expected the reading of an accelerometer at rest")
            if STATION in cells:
                if not cells[STATION]:
                    raise ValueError("station is empty, expected a label in every line or no such column")
                station.append(cells[STATION].replace(".", "_"))  # points separate the parts of names
                if (other := label_of.setdefault(station[-1], cells[STATION])) != cells[STATION]:
                    raise ValueError(f"station is {cells[STATION]} besides {other}, expected '_' in both, or others")
            role = cells.get(ROLE) or ROLES[0]
            if role not in ROLES:
                raise ValueError(f"role is '{role[:40]}', expected {', '.join(ROLES[:-1])} or {ROLES[-1]}")
            inclined[i], held_out[i] = role == ROLES[2], role != ROLES[0]
            if inclined[i] and not np.isfinite(measured[i, :, UPWARD]).any():
                raise ValueError(f"role is {ROLES[2]} without ax, ay and az of any point, expected some")
    _check_extent(points, measured, station)
    is_stated = bool(approach.any())
    if not is_stated:
        approach[1:] = np.sign(np.diff(q, axis=0))
        for before, own in itertools.pairwise(approach):  # a coordinate that does not move stays at its side
            own[own == 0.0] = before[own == 0.0]
    rows = PoseRows(
        points, q, measured, tuple(station), held_out, tuple(f"line {number}" for number, _ in lines), approach,
        is_stated, by_distance=_by_distance(measured, station),
    )  # fmt: skip
    return _split(rows, inclined) if inclined.any() else rows


def _split(rows: PoseRows, inclined: np.ndarray) -> PoseRows:
    """The rows, those whose inclinations are fitted twice: held out without them, and fitted with them alone."""
    both = rows.chosen(np.ones(len(inclined), bool)), rows.chosen(inclined)
    measured = [each.measured.copy() for each in both]
    measured[0][inclined, :, UPWARD] = np.nan
    measured[1][..., : UPWARD.start] = measured[1][..., LENGTH] = np.nan
    return rows._replace(
        q=np.concatenate([each.q for each in both]),
        measured=np.concatenate(measured),
        station=both[0].station + both[1].station,
        held_out=np.concatenate([rows.held_out, np.zeros(int(inclined.sum()), bool)]),
        row=both[0].row + both[1].row,
        approach=None if rows.approach is None else np.concatenate([rows.approach, rows.approach[inclined]]),
    )


def _by_distance(measured: np.ndarray, station: Sequence[str]) -> tuple[str, ...]:
    """Stations from which distances alone are measured, without positions and rotations."""
    labels = np.array(station)
    kinds = {name: np.any(measured_kinds(measured[labels == name]), axis=0) for name in dict.fromkeys(station)}
    return tuple(name for name, kind in kinds.items() if kind[3] and not kind[:2].any())


def _check_extent(points: Sequence[str], measured: np.ndarray, station: Sequence[str]) -> None:
    """Raise ValueError where positions of a point from one station are further apart than any machine travels."""
    labels = np.array(station or len(measured) * [""])
    for label in dict.fromkeys(labels.tolist()):
        for point, positions in zip(points, measured[labels == label, :, :3].swapaxes(0, 1), strict=True):
            seen = (column[np.isfinite(column)] for column in positions.T)
            spread = max((float(np.ptp(column)) for column in seen if column.size), default=0.0)
            if spread > LARGEST_TRAVEL:
                raise ValueError(
                    f"positions of point '{point}' are up to {spread:.4g} m apart, expected at most"
                    f" {LARGEST_TRAVEL:g} m, are they in mm?"
                )
