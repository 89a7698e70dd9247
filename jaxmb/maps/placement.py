"""Placement of a task for the smallest deflection of a robot under its loads."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxmb.io.validation import known_name
from jaxmb.machine.build import Model
from jaxmb.maps.kinetostatic import characteristic_length
from jaxmb.maps.path_following import REASONS, Follower, Joints, best_along, make_follower
from jaxmb.mechanics.kinematics import TOOL, frame_name, joints_moving_frame
from jaxmb.mechanics.loops import check_open_chain

VARIABLES = ("x", "y", "z", "yaw", "spin")
"""Variables of a placement: offset of the task's origin [m], rotation of the task about the ground's z axis and of the
tool about its own z axis [rad]."""


@dataclass(frozen=True)
class ToolPath:
    """Desired poses of the tool and loads on it, in the frame of the task."""

    poses: np.ndarray
    """T_task,tool [k, 4, 4], m."""
    wrenches: np.ndarray
    """Force [N] then moment [Nm] on the machine at the tool's origin, in the task's axes [k, 6]."""


def placed_path(
    path: ToolPath, place: Mapping[str, float]
) -> tuple[Float[np.ndarray, "k 4 4"], Float[np.ndarray, "k 6"]]:
    """Poses T_0tool [k, 4, 4] and wrenches in ground axes [k, 6] of a task at a placement."""
    poses, wrenches = placed_paths(path, np.array([[place.get(name, 0.0) for name in VARIABLES]]))
    return poses[0], wrenches[0]


def placed_paths(
    path: ToolPath, places: Float[np.ndarray, "p 5"]
) -> tuple[Float[np.ndarray, "p k 4 4"], Float[np.ndarray, "p k 6"]]:
    """Poses T_0tool [p, k, 4, 4] and wrenches in ground axes [p, k, 6] of a task at placements [p, 5]."""
    base, turn = _about_z(places[:, 3]), _about_z(places[:, 4])
    base[:, :3, 3] = places[:, :3]
    poses = base[:, None] @ path.poses[None] @ turn[:, None]
    rotation = base[:, None, :3, :3]
    parts = (np.squeeze(rotation @ path.wrenches[None, :, part, None], -1) for part in (slice(0, 3), slice(3, 6)))
    return poses, np.concatenate(list(parts), axis=-1)


def _about_z(angle: np.ndarray) -> np.ndarray:
    turn = np.tile(np.eye(4), (len(angle), 1, 1))
    turn[:, 0, 0] = turn[:, 1, 1] = np.cos(angle)
    turn[:, 1, 0] = np.sin(angle)
    turn[:, 0, 1] = -turn[:, 1, 0]
    return turn


def check_tool_path(path: ToolPath) -> None:
    """Raise ValueError if sizes do not match, a number is not finite, or a pose is not a rigid transformation."""
    poses, wrenches = np.asarray(path.poses), np.asarray(path.wrenches)
    if poses.ndim != 3 or poses.shape[1:] != (4, 4) or not len(poses):
        raise ValueError(f"path: poses have shape {poses.shape}, expected (number of poses, 4, 4)")
    if wrenches.shape != (len(poses), 6):
        raise ValueError(f"path: wrenches have shape {wrenches.shape}, expected ({len(poses)}, 6) for as many poses")
    if not (np.all(np.isfinite(poses)) and np.all(np.isfinite(wrenches))):
        raise ValueError("path: a number of its poses or wrenches is not finite")
    for number, pose in enumerate(poses):
        rotation = pose[:3, :3]
        skewed = np.abs(rotation.T @ rotation - np.eye(3)).max() > 1e-6
        if skewed or np.linalg.det(rotation) < 0.0 or np.any(pose[3] != [0.0, 0.0, 0.0, 1.0]):
            raise ValueError(f"path: pose {number} is not a rotation and translation: {pose.tolist()}")


CRITERIA = ("max", "rms")
NOT_POSSIBLE = 1e6
"""Cost of an infeasible placement in the search."""


@dataclass(frozen=True)
class Placement:
    """A placement of a task with the robot's path and deflections."""

    place: Mapping[str, float]
    """Value of each of `VARIABLES`, m or rad."""
    possible: bool
    """Whether it is feasible."""
    reason: str
    """Why it is infeasible, empty if feasible."""
    cost: float
    """Largest or RMS deflection along the path, m; infinite if infeasible."""
    joint_path: np.ndarray
    """Coordinates [k, n], rad or m; NaN if infeasible."""
    deflection: np.ndarray
    """Length of the tool's translation under the load [k], m."""
    dexterity: np.ndarray
    """1/kappa_F along the path [k]."""


@dataclass(frozen=True, kw_only=True)
class PlacementSettings:
    """Settings of the search for a placement."""

    least_dexterity: float = 0.05
    """1/kappa_F below which a posture is treated as singular."""
    length_m: float
    """Characteristic length of the dexterity."""
    starts: int = 32
    """Number of postures within the limits from which the first pose is solved."""
    refine: bool = True
    """Whether the best placement of the grid was refined."""
    limits: Mapping[str, tuple[float, float]]
    """Lower and upper limit of each driven coordinate, rad or m."""


@dataclass(frozen=True)
class PlacementResult:
    """The best placement found, a naive one, and the costs on the whole grid."""

    machine: str
    frame: str
    criterion: str
    best: Placement
    naive: Placement
    grid: Mapping[str, np.ndarray]
    """Grid values of each of `VARIABLES`."""
    cost: np.ndarray
    """Of every placement of the grid, axes as in `VARIABLES`, m; infinite if infeasible."""
    reason: np.ndarray
    """Index into `REASONS` of every placement; 0 if feasible."""
    evaluations: int
    settings: PlacementSettings

    @property
    def possible_share(self) -> float:
        """Share of feasible placements on the grid."""
        return float(np.mean(np.isfinite(self.cost)))


class SearchOptions(TypedDict, total=False):
    """Keyword arguments of `place_task` that become `PlacementSettings`."""

    least_dexterity: float
    starts: int
    refine: bool


def place_task(
    model: Model,
    path: ToolPath,
    search: Mapping[str, Sequence[float] | np.ndarray],
    limits: Mapping[str, tuple[float, float]],
    frame: str = TOOL,
    criterion: str = "max",
    naive: Mapping[str, float] | None = None,
    length: float | None = None,
    **options: Unpack[SearchOptions],
) -> PlacementResult:
    """Placement of a task, and rotation of the tool about its own axis, with the smallest deflection under its loads.

    The desired tool pose is T(x, y, z) R_z(yaw) T_task,tool R_z(spin); the loads rotate with the task by yaw. At every
    placement of the grid, the path is followed on all branches of the inverse kinematics found. A branch is feasible if
    every pose is reached, the limits are met, 1/kappa_F stays above `least_dexterity` and det J keeps its sign. The
    deflection is J_p C J^T w. The best placement is then refined between its grid neighbours by the Nelder-Mead method.

    Args:
        model: the machine.
        path: the task.
        search: grid values of each of `VARIABLES`, ascending; default: 0. A single value is fixed.
        limits: lower and upper limit of each driven coordinate, rad or m. Others keep their values of the reference
            posture.
        frame: the tool; z is its axis.
        criterion: "max" or "rms" of the deflection along the path.
        naive: a placement to compare with; default: the middle of the grid.
        length: characteristic length of 1/kappa_F, m; default: the optimum over postures within the limits.
        options: least_dexterity, starts and refine, see `PlacementSettings`.

    Returns:
        The best placement and the naive one, with joint paths and deflections, and the cost of the whole grid.

    Raises:
        ValueError: sizes, names or numbers are wrong, or no placement of the grid is feasible.
    """
    check_tool_path(path)
    grid = _checked_search(search)
    if criterion not in CRITERIA:
        raise ValueError(known_name("criterion", criterion, CRITERIA))
    settings = PlacementSettings(length_m=1.0 if length is None else length, limits=dict(limits), **options)
    if settings.starts < 1:
        raise ValueError(f"starts: {settings.starts}, expected 1 or more")
    check_open_chain(model, "place_task")
    frame = frame_name(model, frame)
    joints = _checked_limits(model, frame, limits)
    placements = np.array(list(itertools.product(*grid.values())))
    middle = {name: float(values[(len(values) - 1) // 2]) for name, values in grid.items()}
    for name in naive or {}:
        if name not in VARIABLES:
            raise ValueError(known_name("naive: variable", name, VARIABLES))
    naive_values = {name: float((naive or middle).get(name, 0.0)) for name in VARIABLES}
    first = _sample(model, joints, settings.starts)
    if length is None:
        length = characteristic_length(model, jnp.asarray(_sample(model, joints, 256)), frame, joints.names)
        settings = replace(settings, length_m=length)
    follower = make_follower(model, frame, joints, first, settings.least_dexterity, length, criterion)

    cost, reason = np.full(len(placements), math.inf), np.zeros(len(placements), dtype=int)
    for i, found in enumerate(best_along(follower, *placed_paths(path, placements))):
        cost[i], reason[i] = found.cost, found.reason
    shape = tuple(len(values) for values in grid.values())
    if not np.any(np.isfinite(cost)):
        counts = ", ".join(f"{np.sum(reason == k)} {REASONS[k]}" for k in range(1, len(REASONS)) if np.any(reason == k))
        raise ValueError(f"none of the {len(placements)} placements is feasible: {counts}")
    best, evaluations = placements[int(np.argmin(cost))], len(placements)
    if settings.refine:
        best, more = _refine(follower, path, grid, best)
        evaluations += more
    return PlacementResult(
        machine=model.name,
        frame=frame,
        criterion=criterion,
        best=_placement(follower, path, best),
        naive=_placement(follower, path, np.array(list(naive_values.values()))),
        grid=grid,
        cost=cost.reshape(shape),
        reason=reason.reshape(shape),
        evaluations=evaluations,
        settings=settings,
    )


def _refine(
    follower: Follower, path: ToolPath, grid: Mapping[str, np.ndarray], start: np.ndarray
) -> tuple[np.ndarray, int]:
    """The placement refined between its grid neighbours, and the number of evaluations."""
    from scipy.optimize import minimize

    varied = [i for i, values in enumerate(grid.values()) if len(values) > 1]
    if not varied:
        return start, 0
    values = [list(grid.values())[i] for i in varied]
    at = [int(np.argmin(np.abs(v - start[i]))) for v, i in zip(values, varied, strict=True)]
    low = np.array([v[max(k - 1, 0)] for v, k in zip(values, at, strict=True)])
    high = np.array([v[min(k + 1, len(v) - 1)] for v, k in zip(values, at, strict=True)])
    best = [math.inf, start]

    def cost(x: np.ndarray) -> float:
        placement = start.copy()
        placement[varied] = low + x * (high - low)
        value = next(iter(best_along(follower, *placed_paths(path, placement[None])))).cost
        if value < best[0]:
            best[:] = [value, placement]
        return min(value, NOT_POSSIBLE)

    x = (start[varied] - low) / (high - low)
    toward = np.where(x > 0.5, -0.4, 0.4)
    simplex = np.vstack([x, x + np.diag(toward)])
    options = {"initial_simplex": simplex, "xatol": 1e-3, "fatol": 1e-9, "maxfev": 60 * len(varied)}
    found = minimize(cost, x, method="Nelder-Mead", bounds=[(0.0, 1.0)] * len(varied), options=options)
    return np.asarray(best[1]), int(found.nfev)


def _placement(follower: Follower, path: ToolPath, variables: np.ndarray) -> Placement:
    found = next(iter(best_along(follower, *placed_paths(path, variables[None]))))
    return Placement(
        place=dict(zip(VARIABLES, variables.tolist(), strict=True)),
        possible=found.reason == 0,
        reason=REASONS[found.reason],
        cost=found.cost,
        joint_path=found.joint_path,
        deflection=found.deflection,
        dexterity=found.dexterity,
    )


def _sample(model: Model, joints: Joints, count: int) -> np.ndarray:
    """Deterministic low-discrepancy postures within the limits [count, n]: Halton's sequence after its first point."""
    from scipy.stats import qmc

    postures = np.tile(np.asarray(model.reference), (count, 1))
    sample = qmc.Halton(len(joints.names), scramble=False).random(count + 1)[1:]
    postures[:, joints.index] = joints.low + sample * (joints.high - joints.low)
    return postures


def _checked_limits(model: Model, frame: str, limits: Mapping[str, tuple[float, float]]) -> Joints:
    names = joints_moving_frame(model, frame, tuple(limits) if limits else None)
    for name in names:
        if name not in limits:
            raise ValueError(f"limits: coordinate '{name}' has none, expected its lower and upper limit")
        low, high = limits[name]
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"limits: {name} from {low:g} to {high:g}, expected finite numbers, the lower first")
    index = np.array([model.coordinates.index(name) for name in names])
    low, high = np.array([limits[name] for name in names], dtype=float).T
    return Joints(names, index, low, high, np.array([model.revolute[i] for i in index]))


def _checked_search(search: Mapping[str, Sequence[float] | np.ndarray]) -> dict[str, np.ndarray]:
    for name in search:
        if name not in VARIABLES:
            raise ValueError(known_name("search: variable", name, VARIABLES))
    grid = {name: np.atleast_1d(np.asarray(search.get(name, 0.0), dtype=float)) for name in VARIABLES}
    for name, values in grid.items():
        if values.ndim != 1 or not values.size or not np.all(np.isfinite(values)) or np.any(np.diff(values) <= 0.0):
            raise ValueError(f"search: {name} has values {values}, expected one or more, ascending and finite")
    return grid
