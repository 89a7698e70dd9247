"""Pseudo-measured poses of a machine whose geometry and stiffness are known."""

from collections.abc import Sequence

import numpy as np

from jaxmb.identify.experiments.pose_test import (
    POSITION,
    ROTATION,
    PoseRows,
    pose_test,
    predicted,
    rotation_of,
    rotation_vector_of,
)
from jaxmb.identify.study.format.pose_format import SimulatePoses
from jaxmb.identify.study.simulation.postures import candidate_postures
from jaxmb.io.validation import check_known
from jaxmb.machine.build import Model

DISTANCE_M = (2.0, 4.0)
"""Distance of simulated stations from the origin of the ground frame."""
STATION = "station-{}"


def planned_rows(how: SimulatePoses, model: Model, posture: np.ndarray) -> tuple[PoseRows, np.ndarray]:
    """Rows without measured values, and the true pose [s, 6] of the device at each station.

    Args:
        how: the plan.
        model: the machine.
        posture: values of the coordinates without a range.

    Raises:
        ValueError: a coordinate or a frame does not exist, or too few postures are possible.
    """
    check_known("ranges: coordinate", how.ranges, model.coordinates)
    points = tuple(dict.fromkeys((*how.points, *how.inclinations)))
    check_known("points and inclinations: frame", points, model.frames)
    count = how.rows + how.check_rows
    fixed = dict(zip(model.coordinates, ((x, x) for x in posture.tolist()), strict=True))
    floor = -np.inf if how.floor_m is None else how.floor_m
    q = candidate_postures(model, fixed | how.ranges, count, how.plan_seed, floor)
    draw = np.random.default_rng([how.plan_seed, 1])
    pose = np.zeros((how.stations, 6))
    for station in pose:
        angle, distance = draw.uniform(-np.pi, np.pi), draw.uniform(*DISTANCE_M)
        station[:3] = distance * np.cos(angle), distance * np.sin(angle), draw.uniform(0.5, 1.5)
        station[3:] = np.array([0.02, 0.02, 1.0]) * draw.uniform(-1.0, 1.0, size=3)
    labels = [STATION.format(k + 1) for k in range(how.stations)]
    chosen = [[point in how.points, point in how.points and how.measured == "pose", point in how.inclinations]
              for point in points]  # fmt: skip
    return PoseRows(
        points=points,
        q=q,
        measured=np.tile(np.where(np.repeat(chosen, 3, axis=1), 1.0, np.nan), (count, 1, 1)),
        station=tuple(labels[i % how.stations] for i in range(count)) if labels else (),
        held_out=np.arange(count) >= how.rows,
        row=tuple(str(i + 1) for i in range(count)),
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
        std: of a component of a position [m], of a rotation about an axis and of an inclination [rad].
        elastic: whether the machine deflects under its weight.
        seed: of the noise.
        levelled: whether the device's z axis is vertical.
    """
    test = pose_test("", rows, tuple(dict.fromkeys(rows.station)), pose, std, elastic, levelled)
    seen, upward = predicted(test, model)
    draw = np.random.default_rng(seed)
    noise = np.concatenate([s * draw.normal(size=(*seen.shape[:2], 3)) for s in std], axis=-1)
    measured = np.full(rows.measured.shape, np.nan)
    for at in np.ndindex(*seen.shape[:2]):
        turn = rotation_of(noise[at][ROTATION]) @ seen[at][:3, :3]
        position = seen[at][:3, 3] + noise[at][POSITION]
        measured[at] = [*position, *rotation_vector_of(turn), *(upward[at] + noise[at][6:])]
    return rows._replace(measured=np.where(np.isfinite(rows.measured), measured, np.nan))
