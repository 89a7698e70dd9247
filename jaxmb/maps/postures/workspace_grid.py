"""Postures to map: over a grid of coordinates, over a grid of places of the tool, or along a path of either."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jaxmb.io.validation import known_name
from jaxmb.machine.build import Model
from jaxmb.maps.postures.place_solver import (
    PlaceSolver,
    closed_solver,
    frame_places,
    place_solver,
    solved_along,
    solved_outwards,
)
from jaxmb.mechanics.kinematics import TOOL, frame_name
from jaxmb.mechanics.postures import posture

AXES = ("x", "y", "z")
Axis = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Postures:
    """Postures of a machine in the order of a grid or a path."""

    over: tuple[str, ...]
    """Names of the axes: a coordinate, a place of a frame as "tool.x"; "path" alone for a path."""
    grid: tuple[np.ndarray, ...]
    """Values along the axes, ascending, rad or m; for a path the distance the frame has come, m."""
    revolute: tuple[bool, ...]
    """Whether each axis is an angle."""
    coordinates: np.ndarray
    """Postures [*grid, n], rad or m; NaN where the place is not reached, or the loops do not close."""
    names: tuple[str, ...]
    """Names of the n coordinates."""
    position: np.ndarray
    """Place of the frame [*grid, 3], m, ground axes; the place that was asked for where it is not reached, NaN where
    loops do not close."""
    frame: str
    held: Mapping[str, float]
    """The coordinates that do not vary, rad or m."""
    varied: tuple[str, ...]
    """The coordinates that vary."""
    angles: tuple[str, ...] = ()
    """Coordinates that are angles."""

    @property
    def reached(self) -> np.ndarray:
        """Which of the postures exist [*grid]."""
        return np.all(np.isfinite(self.coordinates), axis=-1)

    @property
    def is_path(self) -> bool:
        """Whether they follow each other along a path."""
        return self.over == ("path",)


def postures_over(
    model: Model,
    over: Mapping[str, Axis],
    held: Mapping[str, float] | None = None,
    frame: str = TOOL,
    joints: Sequence[str] | None = None,
    orientation: bool | None = None,
    limits: Mapping[str, tuple[float, float]] | None = None,
) -> Postures:
    """Postures over a grid of coordinates, or of places of a frame such as "tool.x" and "tool.z".

    A grid of places is solved outwards from the place of the start posture, every place from a neighbour that was
    reached, so that the branch of the inverse kinematics is that of the start. A place that is reached from none of
    its neighbours is left out. So is a grid of coordinates of a machine with loops, where these are closed: coordinates
    that neither vary nor follow stay as in the start posture.

    Args:
        model: the machine.
        over: values of what varies, rad or m, ascending: all coordinates, or all places of one frame. The place along
            the other axes is that of the start posture.
        held: values of other coordinates, rad or m; the rest as in the reference posture. For places it is the start.
        frame: whose place belongs to each posture, where coordinates vary.
        joints: coordinates that move the frame to its places; where not given all that move it, if these are six or
            fewer. Of a machine with loops independent ones; the others follow.
        orientation: whether the frame keeps the orientation of the start; where not given it does if six joints move
            it.
        limits: lowest and highest value of coordinates, rad or m; places, and postures of a machine with loops, beyond
            them count as not reached.

    Raises:
        ValueError: a name is unknown, a grid is not ascending and finite, an angle is more than a turn, no place can
            be reached, or so many coordinates of a machine with loops cannot be given.
    """
    if not over:
        raise ValueError("over: found nothing, expected one or more coordinates, or places such as 'tool.x'")
    start = _start(model, held, over)
    axes = _places_of(model, over, "over")
    grid = tuple(_checked_axis(model, name, values) for name, values in over.items())
    mesh = np.stack(np.meshgrid(*grid, indexing="ij"), axis=-1)
    if axes is None and model.loops:
        solver = closed_solver(model, start, tuple(over), tuple(held or {}), frame, limits)
        found = _some(solver, solved_outwards(solver, mesh), "over")
        return _postures(
            model, tuple(over), grid, found, frame_places(model, found, frame), frame, start, solver.moving
        )
    if axes is None:
        found = np.tile(start, (*mesh.shape[:-1], 1))
        found[..., [model.coordinates.index(name) for name in over]] = mesh
        place = frame_places(model, found, frame)
        return _postures(model, tuple(over), grid, found, place, frame, start, tuple(over))
    frame, rows = axes
    solver = place_solver(model, start, frame, joints, orientation, limits)
    targets = np.tile(frame_places(model, start, frame), (*mesh.shape[:-1], 1))
    targets[..., rows] = mesh
    found = _some(solver, solved_outwards(solver, targets), "over")
    place = np.where(np.isfinite(found[..., :1]), frame_places(model, found, frame), targets)
    return _postures(model, tuple(over), grid, found, place, frame, start, solver.moving)


def postures_along(
    model: Model,
    path: Mapping[str, Axis],
    held: Mapping[str, float] | None = None,
    frame: str = TOOL,
    joints: Sequence[str] | None = None,
    orientation: bool | None = None,
    limits: Mapping[str, tuple[float, float]] | None = None,
) -> Postures:
    """Postures along a path of coordinates, or of places of a frame, point after point.

    Places are solved one from the other, the first from the start posture; after a place that is not reached the next
    is tried from the last one that was. So are coordinates of a machine with loops.

    Args:
        model: the machine.
        path: values of each coordinate, or of "tool.x" and the like, at the points of the path, equally many.
        held: as in `postures_over`.
        frame: as there.
        joints: as there.
        orientation: as there.
        limits: as there.

    Raises:
        ValueError: a name is unknown, numbers are not finite or not equally many, an angle is more than a turn, or no
            place can be reached.
    """
    if not path:
        raise ValueError("path: found nothing, expected one or more coordinates, or places such as 'tool.x'")
    start = _start(model, held, path)
    axes = _places_of(model, path, "path")
    points = _checked_points(model, path)
    if axes is None and model.loops:
        solver = closed_solver(model, start, tuple(path), tuple(held or {}), frame, limits)
        moving, found = solver.moving, _some(solver, solved_along(solver, points), "path")
        place = frame_places(model, found, frame)
    elif axes is None:
        moving = tuple(path)
        found = np.tile(start, (len(points), 1))
        found[:, [model.coordinates.index(name) for name in path]] = points
        place = frame_places(model, found, frame)
    else:
        frame, rows = axes
        solver = place_solver(model, start, frame, joints, orientation, limits)
        moving = solver.moving
        targets = np.tile(frame_places(model, start, frame), (len(points), 1))
        targets[:, rows] = points
        found = _some(solver, solved_along(solver, targets), "path")
        place = np.where(np.isfinite(found[:, :1]), frame_places(model, found, frame), targets)
    known = np.flatnonzero(np.isfinite(place[:, 0]))  # straight over postures that do not close
    passed = np.stack([np.interp(np.arange(len(place)), known, axis[known]) for axis in place.T], axis=1)
    come = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(passed, axis=0), axis=1))])
    return _postures(model, ("path",), (come,), found, place, frame, start, moving)


def _some(solver: PlaceSolver, found: np.ndarray, what: str) -> np.ndarray:
    """Postures of which one or more are reached; ValueError where none is."""
    if np.any(np.isfinite(found)):
        return found
    model, where = solver.model, " on the grid" if what == "over" else ""
    if solver.given:
        raise ValueError(f"{what}: the loops of '{model.name}' close nowhere{where}, from the start posture")
    followers = {model.coordinates[i] for i in model.dependent}
    moving = ", ".join(name for name in solver.moving if name not in followers)
    raise ValueError(f"{what}: no place of '{solver.frame}'{where} is reached by {moving} from the start posture")


def _postures(
    model: Model,
    over: tuple[str, ...],
    grid: tuple[np.ndarray, ...],
    coordinates: np.ndarray,
    position: np.ndarray,
    frame: str,
    start: np.ndarray,
    varied: tuple[str, ...],
) -> Postures:
    angles = tuple(name for name, turns in zip(model.coordinates, model.revolute, strict=True) if turns)
    return Postures(
        over=over,
        grid=grid,
        revolute=tuple(name in varied and name in angles for name in over),
        coordinates=coordinates,
        names=model.coordinates,
        position=position,
        frame=frame_name(model, frame),
        held={name: float(v) for name, v in zip(model.coordinates, start, strict=True) if name not in varied},
        varied=varied,
        angles=angles,
    )


def _start(model: Model, held: Mapping[str, float] | None, varied: Mapping[str, Axis]) -> np.ndarray:
    for name in held or {}:
        if name in varied:
            raise ValueError(f"held: coordinate '{name}' is varied by the map too")
    return np.asarray(posture(model, dict(held or {})))


def _places_of(model: Model, names: Mapping[str, Axis], what: str) -> tuple[str, list[int]] | None:
    """Frame and axes of "tool.x", "tool.z"; None where all names are coordinates."""
    split = [name.rpartition(".") for name in names]
    frames = {*model.frames, TOOL}
    places = [
        name not in model.coordinates and frame in frames and axis in AXES
        for name, (frame, _, axis) in zip(names, split, strict=True)
    ]
    if not any(places):
        for name in names:
            if name not in model.coordinates:
                raise ValueError(known_name(f"{what}: coordinate", name, model.coordinates))
        return None
    if not all(places) or len({frame for frame, _, _ in split}) > 1:
        raise ValueError(f"{what}: found {', '.join(names)}, expected coordinates only or places of one frame only")
    return frame_name(model, split[0][0]), [AXES.index(axis) for _, _, axis in split]


def _checked_axis(model: Model, name: str, values: Axis) -> np.ndarray:
    """Values of one axis of a grid: two or more, ascending and finite."""
    axis = np.asarray(values, dtype=float)
    if axis.ndim != 1 or len(axis) < 2 or not np.all(np.isfinite(axis)) or not np.all(np.diff(axis) > 0.0):
        raise ValueError(f"over: {name} has values {axis}, expected two or more, ascending and finite")
    _check_turn(model, "over", name, axis)
    return axis


def _checked_points(model: Model, path: Mapping[str, Axis]) -> np.ndarray:
    """Points of a path [k, names]: two or more, finite, equally many of each name."""
    columns = []
    for name, values in path.items():
        column = np.asarray(values, dtype=float)
        if column.ndim != 1 or len(column) < 2 or not np.all(np.isfinite(column)):
            raise ValueError(f"path: {name} has values {column}, expected two or more finite numbers")
        _check_turn(model, "path", name, column)
        columns.append(column)
    if len({len(column) for column in columns}) > 1:
        counts = ", ".join(f"{len(column)} of {name}" for name, column in zip(path, columns, strict=True))
        raise ValueError(f"path: found {counts}, expected equally many values of each")
    return np.stack(columns, axis=-1)


def _check_turn(model: Model, what: str, name: str, values: np.ndarray) -> None:
    """Refuse an angle of more than a turn: it was probably given in degrees."""
    angle = name in model.coordinates and model.revolute[model.coordinates.index(name)]
    if angle and np.abs(values).max() > math.tau:
        ends = f"{values[0]:g} to {values[-1]:g} rad"
        raise ValueError(f"{what}: {name} goes from {ends}, more than a turn; np.radians converts degrees to radians")
