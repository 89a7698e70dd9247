"""Postures for maps: over a grid of coordinates, over a grid of tool positions, or along a path of either."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

import numpy as np

from jaxmb.io.files import number_of_cell
from jaxmb.io.validation import check_known, whole_number
from jaxmb.machine.build import Model
from jaxmb.machine.values import assignments, check_travel, number_of_text
from jaxmb.maps.position_solver import (
    PositionSolver,
    closed_solver,
    frame_positions,
    position_solver,
    solved_along,
    solved_outwards,
)
from jaxmb.mechanics.kinematics import TOOL, frame_name
from jaxmb.mechanics.postures import posture

UNITS = ("deg", "rad")


def grid_of(model: Model, texts: Sequence[str], points: int) -> dict[str, np.ndarray]:
    """Equidistant values by coordinate or position, rad or m, from texts such as "q2=0:146 deg".

    Raises:
        ValueError: a text is not such a range, its lower end is not first, or an angle exceeds a turn.
    """
    whole_number("points", points, 2)
    return {name: np.linspace(low, high, points) for name, (low, high) in ranges_of(model, "over", texts).items()}


def path_of(model: Model, text: str, points: int) -> dict[str, np.ndarray]:
    """Points of a straight path, as "q2=0:90 deg,q3=-90:0 deg", from the first to the second end of each range.

    Raises:
        ValueError: a part of the text is not a range.
    """
    whole_number("points", points, 2)
    ends = ranges_of(model, "path", [part.strip() for part in text.split(",")], ascending=False)
    return {name: np.linspace(first, last, points) for name, (first, last) in ends.items()}


def thresholds_of(texts: Sequence[str]) -> dict[str, float]:
    """Threshold by quantity from texts such as "dexterity=0.4".

    Raises:
        ValueError: a text is not "quantity=number" with a finite number, or a quantity is given twice.
    """
    values = assignments("good", texts, "dexterity=0.4")
    return {name: number_of_cell(f"good: {name}: threshold", value) for name, value in values.items()}


def ranges_of(
    model: Model, option: str, texts: Sequence[str], ascending: bool = True
) -> dict[str, tuple[float, float]]:
    """The two ends by coordinate or position, rad or m, from texts such as "z2=-5:140 deg"; errors name `option`.

    Raises:
        ValueError: a text is not such a range, or its lower end is not first.
    """
    revolute = dict(zip(model.coordinates, model.revolute, strict=True))
    found: dict[str, tuple[float, float]] = {}
    for name, range_text in assignments(option, texts, "q2=0:146 deg").items():
        low_text, colon, high_text = (part.strip() for part in range_text.partition(":"))
        if not colon:
            raise ValueError(f"{option}: found '{name}={range_text}', expected something like \"q2=0:146 deg\"")
        # A unit after one of the numbers applies to both.
        unit = next((u for end in (high_text, low_text) for u in UNITS if end.endswith(u)), "")
        texts_of_ends = (end if end.endswith(UNITS) else f"{end} {unit}".strip() for end in (low_text, high_text))
        low, high = (number_of_text(f"{option}: {name}", end) for end in texts_of_ends)
        if ascending and not low < high:
            raise ValueError(f"{option}: {name}: found '{range_text}', expected the lower end first")
        if unit and not revolute.get(name, "." not in name):
            kind = "prismatic coordinate" if name in revolute else "position"
            raise ValueError(
                f"{option}: {name}: found '{range_text}', but it is a {kind}, expected metres without a unit"
            )
        if revolute.get(name, False) and max(abs(low), abs(high)) > math.tau:
            hint = "" if unit else f"; degrees? write '{range_text} deg'"
            raise ValueError(f"{option}: {name}: found '{range_text}', which exceeds a full turn in rad{hint}")
        found[name] = (low, high)
    return found


AXES = ("x", "y", "z")
SCHEMA = 1
"""Version of `map.json`: strict JSON, SI units, null for unknown, infinite or undefined numbers."""
Axis = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Postures:
    """Postures of a machine in the order of a grid or a path."""

    over: tuple[str, ...]
    """Names of the axes: coordinates, or positions of a frame as "tool.x"; ("path",) for a path."""
    grid: tuple[np.ndarray, ...]
    """Values along the axes, ascending, rad or m; for a path the arc length of the frame, m."""
    revolute: tuple[bool, ...]
    """Whether each axis is an angle."""
    coordinates: np.ndarray
    """Postures [*grid, n], rad or m; NaN where the position is not reached or the loops do not close."""
    names: tuple[str, ...]
    """Names of the n coordinates."""
    position: np.ndarray
    """Position of the frame [*grid, 3], m, ground axes; the target where it is not reached, NaN where loops do not
    close."""
    frame: str
    held: Mapping[str, float]
    """The fixed coordinates, rad or m."""
    varied: tuple[str, ...]
    """The coordinates that vary."""
    angles: tuple[str, ...] = ()
    """The revolute coordinates."""

    @property
    def reached(self) -> np.ndarray:
        """Mask of the postures that exist [*grid]."""
        return np.all(np.isfinite(self.coordinates), axis=-1)

    def on_grid(self, values: np.ndarray) -> np.ndarray:
        """Values [r, ...] of the r reached postures over the grid [*grid, ...], NaN elsewhere."""
        found = np.full((*self.reached.shape, *values.shape[1:]), math.nan)
        found[self.reached] = values
        return found

    @property
    def is_path(self) -> bool:
        """Whether the postures are along a path."""
        return self.over == ("path",)


class PostureOptions(TypedDict, total=False):
    """Keyword arguments of `postures_over` and `postures_along` that functions of maps pass on."""

    held: Mapping[str, float] | None
    joints: Sequence[str] | None
    orientation: bool | None
    limits: Mapping[str, tuple[float, float]] | None


def postures_over(
    model: Model,
    over: Mapping[str, Axis],
    held: Mapping[str, float] | None = None,
    frame: str = TOOL,
    joints: Sequence[str] | None = None,
    orientation: bool | None = None,
    limits: Mapping[str, tuple[float, float]] | None = None,
) -> Postures:
    """Postures over a grid of coordinates, or of positions of a frame such as "tool.x" and "tool.z".

    A grid of positions is solved outwards from the start posture, each position from a reached neighbour, so that all
    postures are on the same branch of the inverse kinematics. A position reached from none of its neighbours is
    excluded. The same holds for a grid of coordinates of a machine with loops: independent coordinates that do not vary
    stay as in the start posture.

    Args:
        model: the machine.
        over: values of the varying quantities, rad or m, ascending: coordinates only, or positions of one frame only.
            The position along the other axes is that of the start posture.
        held: values of other coordinates, rad or m; default: the reference posture. For positions it is the start.
        frame: frame of the positions, if coordinates vary.
        joints: coordinates that position the frame; default: all that move it, if these are six or fewer. For a machine
            with loops independent ones. Only for positions, as is `orientation`.
        orientation: whether the frame keeps the orientation of the start; default: if six joints move it.
        limits: lower and upper limit of coordinates, rad or m; positions, and postures of a machine with loops, beyond
            them are not reached.

    Raises:
        ValueError: a name is unknown, a grid is not ascending and finite, an angle exceeds a turn, a travel 100 m,
            no position is reached, an option has no effect on a grid of coordinates, or the given coordinates
            overdetermine the loops.
    """
    return _postures(model, "over", over, held, frame, joints, orientation, limits)


def postures_along(
    model: Model,
    path: Mapping[str, Axis],
    held: Mapping[str, float] | None = None,
    frame: str = TOOL,
    joints: Sequence[str] | None = None,
    orientation: bool | None = None,
    limits: Mapping[str, tuple[float, float]] | None = None,
) -> Postures:
    """Postures along a path of coordinates, or of positions of a frame.

    Positions, and coordinates of a machine with loops, are solved in sequence, each from the last posture reached, the
    first from the start posture.

    Args:
        model: the machine.
        path: values of each coordinate, or of positions such as "tool.x", at the points of the path, equally many.
        held: as in `postures_over`.
        frame: as there.
        joints: as there.
        orientation: as there.
        limits: as there.

    Raises:
        ValueError: a name is unknown, numbers are not finite or not equally many, an angle exceeds a turn, a travel
            100 m, an option has no effect on a path of coordinates, or no position is reached.
    """
    return _postures(model, "path", path, held, frame, joints, orientation, limits)


def _postures(
    model: Model,
    option: Literal["over", "path"],
    varied: Mapping[str, Axis],
    held: Mapping[str, float] | None,
    frame: str,
    joints: Sequence[str] | None,
    orientation: bool | None,
    limits: Mapping[str, tuple[float, float]] | None,
) -> Postures:
    """Postures over a grid or along a path, arguments as in `postures_over`; `option` is named in errors."""
    if not varied:
        raise ValueError(f"{option}: found nothing, expected one or more coordinates, or positions such as 'tool.x'")
    for name in held or {}:
        if name in varied:
            raise ValueError(f"held: coordinate '{name}' is both fixed and varied by the map")
    start, axes = np.asarray(posture(model, dict(held or {}))), _frame_axes(model, varied, option)
    grid = tuple(_checked_values(model, option, name, values) for name, values in varied.items())
    if option == "over":
        over, solve = tuple(varied), solved_outwards
        points = np.stack(np.meshgrid(*grid, indexing="ij"), axis=-1)
    else:
        over, solve = ("path",), solved_along
        if len({len(column) for column in grid}) > 1:
            counts = ", ".join(f"{len(column)} of {name}" for name, column in zip(varied, grid, strict=True))
            raise ValueError(f"path: found {counts}, expected equally many values of each")
        points = np.stack(grid, axis=-1)
    solver, targets, moving = None, points, tuple(varied)
    if axes is not None:
        frame, rows = axes
        solver = position_solver(model, start, frame, joints, orientation, limits)
        targets = np.tile(frame_positions(model, start, frame), (*points.shape[:-1], 1))
        targets[..., rows] = points
    elif joints is not None or orientation is not None:
        raise ValueError(f"{option}: joints and orientation apply to positions of a frame only, found coordinates")
    elif model.loops:
        solver = closed_solver(model, start, moving, tuple(held or {}), frame, limits)
    elif limits is not None:
        raise ValueError(f"limits: apply only to positions, and to machines with loops: restrict '{option}' instead")
    if solver is None:
        found = np.tile(start, (*points.shape[:-1], 1))
        found[..., [model.coordinates.index(name) for name in varied]] = points
    else:
        moving, found = solver.moving, _check_reached(solver, solve(solver, targets), option)
    position = frame_positions(model, found, frame)
    if axes is not None:
        position = np.where(np.isfinite(found[..., :1]), position, targets)
    if option == "path":
        closed = np.flatnonzero(np.isfinite(position[:, 0]))  # interpolate over postures with open loops
        filled = np.stack([np.interp(np.arange(len(position)), closed, axis[closed]) for axis in position.T], axis=1)
        grid = (np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(filled, axis=0), axis=1))]),)
    angles = tuple(name for name, turns in zip(model.coordinates, model.revolute, strict=True) if turns)
    return Postures(
        over=over,
        grid=grid,
        revolute=tuple(name in moving and name in angles for name in over),
        coordinates=found,
        names=model.coordinates,
        position=position,
        frame=frame_name(model, frame),
        held={name: float(v) for name, v in zip(model.coordinates, start, strict=True) if name not in moving},
        varied=moving,
        angles=angles,
    )


def _check_reached(solver: PositionSolver, found: np.ndarray, option: str) -> np.ndarray:
    """The postures if at least one is reached, else ValueError."""
    if np.any(np.isfinite(found)):
        return found
    model, where = solver.model, " on the grid" if option == "over" else ""
    if solver.given:
        raise ValueError(f"{option}: the loops of '{model.name}' close nowhere{where}, from the start posture")
    dependent = {model.coordinates[i] for i in model.dependent}
    moving = ", ".join(name for name in solver.moving if name not in dependent)
    raise ValueError(f"{option}: no position of '{solver.frame}'{where} is reached by {moving} from the start posture")


def _frame_axes(model: Model, names: Mapping[str, Axis], option: str) -> tuple[str, list[int]] | None:
    """Frame and axes of "tool.x", "tool.z"; None if all names are coordinates."""
    split = [name.rpartition(".") for name in names]
    frames = {*model.frames, TOOL}
    is_position = [
        name not in model.coordinates and frame in frames and axis in AXES
        for name, (frame, _, axis) in zip(names, split, strict=True)
    ]
    if not any(is_position):
        check_known(f"{option}: coordinate", names, model.coordinates)
        return None
    if not all(is_position) or len({frame for frame, _, _ in split}) > 1:
        raise ValueError(
            f"{option}: found {', '.join(names)}, expected only coordinates or only positions of one frame"
        )
    return frame_name(model, split[0][0]), [AXES.index(axis) for _, _, axis in split]


def _checked_values(model: Model, option: str, name: str, values: Axis) -> np.ndarray:
    """Values of one axis of a grid, or of one coordinate or position along a path: two or more, finite."""
    found, is_axis = np.asarray(values, dtype=float), option == "over"
    valid = found.ndim == 1 and len(found) > 1 and np.all(np.isfinite(found))
    if not valid or (is_axis and not np.all(np.diff(found) > 0.0)):
        expected = "two or more, ascending and finite" if is_axis else "two or more finite numbers"
        raise ValueError(f"{option}: {name} has values {found}, expected {expected}")
    angle = name in model.coordinates and model.revolute[model.coordinates.index(name)]
    if name in model.coordinates and not angle:
        check_travel(f"{option}: {name}", float(np.abs(found).max()))
    if angle and np.abs(found).max() > math.tau:  # probably in degrees
        ends = f"{found[0]:g} to {found[-1]:g} rad"
        raise ValueError(f"{option}: {name} from {ends} exceeds a full turn; np.radians converts degrees to radians")
    return found
