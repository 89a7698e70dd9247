"""Paths of tool poses followed on every branch of the inverse kinematics, and the deflections along them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.machine.build import Model
from jaxmb.maps.batches import batch_size, in_batches
from jaxmb.maps.kinetostatic.dexterity import DIRECTIONS, inverse_condition, normalized_jacobian
from jaxmb.mechanics.compliance import compliance_matrix, elastic_jacobian
from jaxmb.mechanics.inverse_kinematics import inverse_kinematics, inverse_kinematics_path

REASONS = (
    "",
    "where a pose is not reached",
    "outside the joint limits",
    "at or across a singular posture",
)
"""Why a path is not possible, by number; 0 where it is. Of several branches the one that gets farthest counts."""
REACHED = 1e-8
"""Distance from a pose, m or rad, below which it is reached: Gauss-Newton ends near 1e-14."""
SAME = 1e-5
"""Postures nearer to each other than this in every coordinate are one solution."""
SOLVES, FOLLOWED = 512, 64
"""Number of solutions and of paths that are computed together."""


@dataclass(frozen=True)
class Joints:
    """Coordinates that drive the robot, and their limits, rad or m."""

    names: tuple[str, ...]
    index: np.ndarray
    """Of each in q."""
    low: np.ndarray
    high: np.ndarray
    revolute: np.ndarray


@dataclass(frozen=True)
class Follower:
    """A robot and the conditions under which it has to follow paths."""

    model: Model
    frame: str
    joints: Joints
    starts: np.ndarray
    """Postures from which the first pose is solved [s, n]."""
    least_dexterity: float
    """1/kappa_F below which a posture counts as singular."""
    length: float
    """Characteristic length of the dexterity, m."""
    criterion: str
    """"max" or "rms" of the deflection along the path."""


@dataclass(frozen=True)
class Followed:
    """The best branch along a path."""

    cost: float
    """Largest or RMS deflection, m; infinite where the path is not possible."""
    reason: int
    """Index into `REASONS`."""
    joint_path: np.ndarray
    deflection: np.ndarray
    dexterity: np.ndarray


def make_follower(
    model: Model, frame: str, joints: Joints, starts: np.ndarray, least_dexterity: float, length: float, criterion: str
) -> Follower:
    """The robot and the conditions, with numbers that are checked.

    Raises:
        ValueError: a number is out of its range.
    """
    if not (math.isfinite(length) and length > 0.0):
        raise ValueError(f"length: {length:g} m, expected more than 0")
    if not 0.0 <= least_dexterity < 1.0:
        raise ValueError(f"least_dexterity: {least_dexterity:g}, expected 0 or more and less than 1")
    return Follower(model, frame, joints, starts, least_dexterity, length, criterion)


def best_along(follower: Follower, poses: np.ndarray, wrenches: np.ndarray) -> Iterator[Followed]:
    """The branch with the least cost of each path: poses [paths, k, 4, 4] and wrenches [paths, k, 6] in ground axes.

    Of branches with the same deflections, as those with the wrist turned over, the one nearest to the middle of the
    limits is taken.
    """
    names = (follower.frame, follower.joints.names)
    count, starts = len(poses), follower.starts
    which, begin = np.divmod(np.arange(count * len(starts)), len(starts))
    first, distance = in_batches(
        lambda p, q: _solve(follower.model, p, q, *names),
        batch_size(len(which), SOLVES),
        poses[which, 0],
        starts[begin],
    )
    branches = [_distinct(follower, first[which == i][distance[which == i] < REACHED]) for i in range(count)]
    owner = np.repeat(np.arange(count), [len(b) for b in branches])
    if not len(owner):
        yield from (_failed(follower, poses.shape[1], 1) for _ in range(count))
        return
    found = in_batches(
        lambda p, w, q: _follow(follower.model, p, w, q, *names, follower.length),
        batch_size(len(owner), FOLLOWED),
        poses[owner],
        wrenches[owner],
        np.concatenate(branches),
    )
    for i in range(count):
        yield _best(follower, poses.shape[1], [array[owner == i] for array in found])


def _best(follower: Follower, poses: int, found: list[np.ndarray]) -> Followed:
    joints = follower.joints
    paths, distance, deflection, dexterity, side = found
    best, reason, chosen = math.inf, 1, -1
    nearest = math.inf
    shifted = [_within(joints, path) for path in paths]
    for b, path in enumerate(shifted):
        if np.any(distance[b] >= REACHED):
            continue
        inside = np.all((path[:, joints.index] >= joints.low) & (path[:, joints.index] <= joints.high))
        if not inside:
            reason = max(reason, 2)
            continue
        if np.any(dexterity[b] < follower.least_dexterity) or np.any(dexterity[b] == 0.0) or np.ptp(side[b]) > 0.0:
            reason = max(reason, 3)
            continue
        cost = float(np.max(deflection[b]) if follower.criterion == "max" else np.sqrt(np.mean(deflection[b] ** 2)))
        middle = (path[:, joints.index] - 0.5 * (joints.low + joints.high)) / (joints.high - joints.low)
        away = float(np.abs(middle).max())
        if cost < best * (1.0 - 1e-9) or (cost < best * (1.0 + 1e-9) and away < nearest):
            best, chosen, nearest = cost, b, away
    if chosen < 0:
        return _failed(follower, poses, reason)
    return Followed(best, 0, shifted[chosen], deflection[chosen], dexterity[chosen])


def _failed(follower: Follower, poses: int, reason: int) -> Followed:
    nothing = np.full(poses, math.nan)
    return Followed(math.inf, reason, np.full((poses, len(follower.model.coordinates)), math.nan), nothing, nothing)


def _distinct(follower: Follower, solutions: np.ndarray) -> np.ndarray:
    """The different solutions, of those that differ by whole turns or rounding only the first, in the given order."""
    index, revolute = follower.joints.index, follower.joints.revolute
    moved = solutions[:, index]
    middle = 0.5 * (follower.joints.low + follower.joints.high)
    near = np.where(revolute, middle + np.remainder(moved - middle + np.pi, 2.0 * np.pi) - np.pi, moved)
    kept: list[int] = []
    for i in range(len(near)):
        apart = near[kept] - near[i]
        apart = np.where(revolute, np.remainder(apart + np.pi, 2.0 * np.pi) - np.pi, apart)
        if not np.any(np.all(np.abs(apart) < SAME, axis=1)):
            kept.append(i)
    found = solutions[kept].copy()
    found[:, index] = near[kept]
    return found


def _within(joints: Joints, path: np.ndarray) -> np.ndarray:
    """The path with its angles shifted by whole turns to the middle of the limits."""
    moved = path[:, joints.index]
    between = 0.5 * (moved.min(axis=0) + moved.max(axis=0))
    turns = np.where(joints.revolute, np.round((0.5 * (joints.low + joints.high) - between) / (2.0 * np.pi)), 0.0)
    shifted = path.copy()
    shifted[:, joints.index] = moved + 2.0 * np.pi * turns
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
        moved = jnp.linalg.norm(jacobian[:3] @ (compliance_matrix(model, q) @ (jacobian.T @ wrench)))
        matrix = normalized_jacobian(model, q, frame, length, names)
        good = inverse_condition(matrix)
        square = matrix.shape[0] == matrix.shape[1] == len(DIRECTIONS)
        return moved, good, jnp.sign(jnp.linalg.det(matrix)) if square else jnp.zeros(())

    def along(pose: Array, wrench: Array, start: Array) -> tuple[Array, Array, Array, Array, Array]:
        path, distance = inverse_kinematics_path(model, pose, frame, start, names)
        return path, distance, *jax.vmap(at)(path, wrench)

    return jax.vmap(along)(poses, wrenches, starts)
