"""Placement of a task for the smallest deflection of a robot under its loads."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.spatial.transform import RigidTransform, Rotation

from jaxmb.compiled import batch_size, compiled, in_batches
from jaxmb.io.validation import check_known, finite_number, whole_number
from jaxmb.machine.build import Model
from jaxmb.maps.kinetostatic import (
    DIRECTIONS,
    characteristic_length,
    check_compliant,
    inverse_condition,
    normalized_jacobian,
)
from jaxmb.mechanics.compliance import compliance_matrix, elastic_jacobian
from jaxmb.mechanics.kinematics import TOOL, frame_name, joints_moving_frame
from jaxmb.mechanics.loops import check_open_chain
from jaxmb.mechanics.postures import inverse_kinematics, inverse_kinematics_path

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
    yaw, spin = (Rotation.from_euler("z", places[:, k, None]) for k in (3, 4))
    base = RigidTransform.from_components(places[:, :3], yaw).as_matrix()
    turn = RigidTransform.from_rotation(spin).as_matrix()
    poses = base[:, None] @ path.poses[None] @ turn[:, None]
    rotation = base[:, None, :3, :3]
    parts = (np.squeeze(rotation @ path.wrenches[None, :, part, None], -1) for part in (slice(0, 3), slice(3, 6)))
    return poses, np.concatenate(list(parts), axis=-1)


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


REASONS = (
    "",
    "where a pose is not reached",
    "outside the joint limits",
    "at or across a singular posture",
    "where the machine is unstable",
)
"""Reason why a path is infeasible, by index, 0 for a feasible one; over several branches the largest index."""
REACHED = 1e-8
"""Distance from a pose below which it is reached, m or rad; Gauss-Newton converges to about 1e-14."""
SAME = 1e-5
"""Rounding of coordinates, rad or m, to which two postures are the same solution."""
SOLVES, FOLLOWED = 512, 64
"""Solutions and paths per batch."""


@dataclass(frozen=True)
class Joints:
    """Driven coordinates and their limits, rad or m."""

    names: tuple[str, ...]
    index: np.ndarray
    """Indices in q."""
    low: np.ndarray
    high: np.ndarray
    revolute: np.ndarray


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


@dataclass(frozen=True)
class Follower:
    """A robot and the constraints on the paths that it follows."""

    model: Model
    frame: str
    joints: Joints
    starts: np.ndarray
    """Postures from which the first pose is solved [s, n]."""
    settings: PlacementSettings
    criterion: str
    """"max" or "rms" of the deflection along the path."""


def best_along(follower: Follower, path: ToolPath, places: Float[np.ndarray, "p 5"]) -> Iterator[Placement]:
    """The branch of smallest cost along a path at each of its placements.

    Of branches with equal deflections, such as those with a flipped wrist, the one closest to the middle of the limits
    is chosen.
    """
    poses, wrenches = placed_paths(path, places)
    names = (follower.frame, follower.joints.names)
    count, starts = len(places), follower.starts
    which, begin = np.divmod(np.arange(count * len(starts)), len(starts))
    first, distance = in_batches(
        lambda p, q: _solve(follower.model, p, q, *names),
        batch_size(len(which), SOLVES),
        poses[which, 0],
        starts[begin],
    )
    branches = [_distinct(follower, first[which == i][distance[which == i] < REACHED]) for i in range(count)]
    owner = np.repeat(np.arange(count), [len(b) for b in branches])
    shape = 0, poses.shape[1]
    found = [np.zeros((*shape, starts.shape[1])), *[np.zeros(shape)] * 4]
    if len(owner):
        found = in_batches(
            lambda p, w, q: _follow(follower.model, p, w, q, *names, follower.settings.length_m),
            batch_size(len(owner), FOLLOWED),
            poses[owner],
            wrenches[owner],
            np.concatenate(branches),
        )
    for i, place in enumerate(places):
        named: dict[str, float] = dict(zip(VARIABLES, place.tolist(), strict=True))
        yield _best(follower, named, poses.shape[1], [array[owner == i] for array in found])


def _best(follower: Follower, place: Mapping[str, float], poses: int, found: Sequence[np.ndarray]) -> Placement:
    joints, (paths, distance, deflection, dexterity, side) = follower.joints, found
    paths = _within(joints, paths)
    driven = paths[:, :, joints.index]
    inside = np.all((driven >= joints.low) & (driven <= joints.high), axis=(1, 2))
    singular = np.any((dexterity < follower.settings.least_dexterity) | (dexterity == 0.0), axis=1)
    crossing = np.ptp(side, axis=1) > 0.0
    unstable = np.any(np.isnan(deflection), axis=1)
    reason = np.select([np.any(distance >= REACHED, axis=1), ~inside, singular | crossing, unstable], [1, 2, 3, 4])
    if np.all(reason):
        nothing = np.full(poses, np.nan)
        postures = np.full((poses, len(follower.model.coordinates)), np.nan)
        return Placement(place, False, REASONS[reason.max(initial=1)], np.inf, postures, nothing, nothing)
    cost = np.max(deflection, axis=1) if follower.criterion == "max" else np.sqrt(np.mean(deflection**2, axis=1))
    cost = np.where(reason == 0, cost, np.inf)
    away = np.abs((driven - 0.5 * (joints.low + joints.high)) / (joints.high - joints.low)).max(axis=(1, 2))
    b = int(np.argmin(np.where(cost <= cost.min() * (1.0 + 1e-9), away, np.inf)))
    return Placement(place, True, "", float(cost[b]), paths[b], deflection[b], dexterity[b])


def _distinct(follower: Follower, solutions: np.ndarray) -> np.ndarray:
    """The solutions up to whole turns, each once but for rounding, in the given order."""
    index, revolute = follower.joints.index, follower.joints.revolute
    driven = solutions[:, index]
    middle = 0.5 * (follower.joints.low + follower.joints.high)
    near = np.where(revolute, middle + np.remainder(driven - middle + np.pi, 2.0 * np.pi) - np.pi, driven)
    kept = np.sort(np.unique(np.round(near / SAME), axis=0, return_index=True)[1])
    found = solutions[kept]
    found[:, index] = near[kept]
    return found


def _within(joints: Joints, paths: np.ndarray) -> np.ndarray:
    """Paths [b, k, n] with their angles shifted by whole turns to the middle of the limits."""
    driven = paths[:, :, joints.index]
    between = 0.5 * (driven.min(axis=1, keepdims=True) + driven.max(axis=1, keepdims=True))
    turns = np.where(joints.revolute, np.round((0.5 * (joints.low + joints.high) - between) / (2.0 * np.pi)), 0.0)
    shifted = paths.copy()
    shifted[:, :, joints.index] = driven + 2.0 * np.pi * turns
    return shifted


@compiled
def _solve(
    model: Model, poses: Float[Array, "b 4 4"], starts: Float[Array, "b n"], frame: str, names: tuple[str, ...]
) -> tuple[Array, Array]:
    return jax.vmap(lambda pose, start: inverse_kinematics(model, pose, frame, start, names))(poses, starts)


@compiled
def _follow(
    model: Model,
    poses: Float[Array, "b k 4 4"],
    wrenches: Float[Array, "b k 6"],
    starts: Float[Array, "b n"],
    frame: str,
    names: tuple[str, ...],
    length: float,
) -> tuple[Array, Array, Array, Array, Array]:
    def at(q: Array, wrench: Array) -> tuple[Array, Array, Array]:
        jacobian = elastic_jacobian(model, q, frame)
        deflection = jnp.linalg.norm(jacobian[:3] @ (compliance_matrix(model, q) @ (jacobian.T @ wrench)))
        matrix = normalized_jacobian(model, q, frame, length, names)
        dexterity = inverse_condition(matrix)
        square = matrix.shape[0] == matrix.shape[1] == len(DIRECTIONS)
        return deflection, dexterity, jnp.sign(jnp.linalg.det(matrix)) if square else jnp.zeros(())

    def along(pose: Array, wrench: Array, start: Array) -> tuple[Array, Array, Array, Array, Array]:
        path, distance = inverse_kinematics_path(model, pose, frame, start, names)
        return path, distance, *jax.vmap(at)(path, wrench)

    return jax.vmap(along)(poses, wrenches, starts)


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
    every pose is reached, the limits are met, 1/kappa_F stays above `least_dexterity`, det J keeps its sign and springs
    between frames do not make the machine unstable. The deflection is J_p C J^T w. The best placement is then refined
    between its grid neighbours by the Nelder-Mead method.

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
        ValueError: sizes, names or numbers are wrong, the machine has no compliance, or no placement of the grid is
            feasible.
    """
    check_tool_path(path)
    grid = _checked_search(search)
    check_known("criterion", (criterion,), CRITERIA)
    settings = PlacementSettings(length_m=1.0 if length is None else length, limits=dict(limits), **options)
    whole_number("starts", settings.starts, 1)
    finite_number("length", settings.length_m, above=0.0)
    finite_number("least_dexterity", settings.least_dexterity, least=0.0, below=1.0)
    check_open_chain(model, "place_task")
    check_compliant(model, "place_task")
    frame = frame_name(model, frame)
    joints = _checked_limits(model, frame, limits)
    placements = np.array(list(itertools.product(*grid.values())))
    middle = {name: float(values[(len(values) - 1) // 2]) for name, values in grid.items()}
    check_known("naive: variable", naive or {}, VARIABLES)
    naive_place = np.array([(naive or middle).get(name, 0.0) for name in VARIABLES], dtype=float)
    first = _sample(model, joints, settings.starts)
    if length is None:
        length = characteristic_length(model, jnp.asarray(_sample(model, joints, 256)), frame, joints.names)
        settings = replace(settings, length_m=length)
    follower = Follower(model, frame, joints, first, settings, criterion)

    cost, reason = np.full(len(placements), np.inf), np.zeros(len(placements), dtype=int)
    for i, found in enumerate(best_along(follower, path, placements)):
        cost[i], reason[i] = found.cost, REASONS.index(found.reason)
    shape = tuple(len(values) for values in grid.values())
    if not np.any(np.isfinite(cost)):
        counts = ", ".join(f"{np.sum(reason == k)} {REASONS[k]}" for k in range(1, len(REASONS)) if np.any(reason == k))
        raise ValueError(f"none of the {len(placements)} placements is feasible: {counts}")
    best, evaluations = placements[int(np.argmin(cost))], len(placements)
    if settings.refine:
        best, more = _refine(follower, path, grid, best)
        evaluations += more
    at_best, at_naive = (next(best_along(follower, path, each[None])) for each in (best, naive_place))
    return PlacementResult(
        machine=model.name,
        frame=frame,
        criterion=criterion,
        best=at_best,
        naive=at_naive,
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

    def placed(x: np.ndarray) -> np.ndarray:
        placement = start.copy()
        placement[varied] = low + x * (high - low)
        return placement

    def cost(x: np.ndarray) -> float:
        return min(next(best_along(follower, path, placed(x)[None])).cost, NOT_POSSIBLE)

    x = (start[varied] - low) / (high - low)
    toward = np.where(x > 0.5, -0.4, 0.4)
    simplex = np.vstack([x, x + np.diag(toward)])
    options = {"initial_simplex": simplex, "xatol": 1e-3, "fatol": 1e-9, "maxfev": 60 * len(varied)}
    found = minimize(cost, x, method="Nelder-Mead", bounds=[(0.0, 1.0)] * len(varied), options=options)
    return placed(found.x), int(found.nfev)


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
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise ValueError(f"limits: {name} from {low:g} to {high:g}, expected finite numbers, the lower first")
    index = np.array([model.coordinates.index(name) for name in names])
    low, high = np.array([limits[name] for name in names], dtype=float).T
    return Joints(names, index, low, high, np.array([model.revolute[i] for i in index]))


def _checked_search(search: Mapping[str, Sequence[float] | np.ndarray]) -> dict[str, np.ndarray]:
    check_known("search: variable", search, VARIABLES)
    grid = {name: np.atleast_1d(np.asarray(search.get(name, 0.0), dtype=float)) for name in VARIABLES}
    for name, values in grid.items():
        if values.ndim != 1 or not values.size or not np.all(np.isfinite(values)) or np.any(np.diff(values) <= 0.0):
            raise ValueError(f"search: {name} has values {values}, expected one or more, ascending and finite")
    return grid
