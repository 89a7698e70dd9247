"""Paths of tool poses on all branches of the inverse kinematics, and the deflections along them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import batch_size, compiled, in_batches
from jaxmb.machine.build import Model
from jaxmb.maps.kinetostatic import DIRECTIONS, inverse_condition, normalized_jacobian
from jaxmb.mechanics.compliance import compliance_matrix, elastic_jacobian
from jaxmb.mechanics.postures import inverse_kinematics, inverse_kinematics_path

REASONS = (
    "",
    "where a pose is not reached",
    "outside the joint limits",
    "at or across a singular posture",
)
"""Reason why a path is infeasible, by index, 0 for a feasible one; over several branches the largest index."""
REACHED = 1e-8
"""Distance from a pose below which it is reached, m or rad; Gauss-Newton converges to about 1e-14."""
SAME = 1e-5
"""Largest difference of coordinates of two postures that are the same solution."""
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


@dataclass(frozen=True)
class Follower:
    """A robot and the constraints on the paths that it follows."""

    model: Model
    frame: str
    joints: Joints
    starts: np.ndarray
    """Postures from which the first pose is solved [s, n]."""
    least_dexterity: float
    """1/kappa_F below which a posture is treated as singular."""
    length: float
    """Characteristic length of the dexterity, m."""
    criterion: str
    """"max" or "rms" of the deflection along the path."""


@dataclass(frozen=True)
class Followed:
    """The best branch along a path."""

    cost: float
    """Largest or RMS deflection, m; infinite for an infeasible path."""
    reason: int
    """Index into `REASONS`."""
    joint_path: np.ndarray
    deflection: np.ndarray
    dexterity: np.ndarray


def make_follower(
    model: Model, frame: str, joints: Joints, starts: np.ndarray, least_dexterity: float, length: float, criterion: str
) -> Follower:
    """A follower with validated settings.

    Raises:
        ValueError: a number is out of its range.
    """
    if not (math.isfinite(length) and length > 0.0):
        raise ValueError(f"length: {length:g} m, expected more than 0")
    if not 0.0 <= least_dexterity < 1.0:
        raise ValueError(f"least_dexterity: {least_dexterity:g}, expected 0 or more and less than 1")
    return Follower(model, frame, joints, starts, least_dexterity, length, criterion)


def best_along(follower: Follower, poses: np.ndarray, wrenches: np.ndarray) -> Iterator[Followed]:
    """The branch of smallest cost for each path: poses [paths, k, 4, 4] and wrenches [paths, k, 6] in ground axes.

    Of branches with equal deflections, such as those with a flipped wrist, the one closest to the middle of the limits
    is chosen.
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
    """The distinct solutions up to whole turns and rounding, in the given order."""
    index, revolute = follower.joints.index, follower.joints.revolute
    driven = solutions[:, index]
    middle = 0.5 * (follower.joints.low + follower.joints.high)
    near = np.where(revolute, middle + np.remainder(driven - middle + np.pi, 2.0 * np.pi) - np.pi, driven)
    kept: list[int] = []
    for i in range(len(near)):
        difference = near[kept] - near[i]
        difference = np.where(revolute, np.remainder(difference + np.pi, 2.0 * np.pi) - np.pi, difference)
        if not np.any(np.all(np.abs(difference) < SAME, axis=1)):
            kept.append(i)
    found = solutions[kept].copy()
    found[:, index] = near[kept]
    return found


def _within(joints: Joints, path: np.ndarray) -> np.ndarray:
    """The path with its angles shifted by whole turns to the middle of the limits."""
    driven = path[:, joints.index]
    between = 0.5 * (driven.min(axis=0) + driven.max(axis=0))
    turns = np.where(joints.revolute, np.round((0.5 * (joints.low + joints.high) - between) / (2.0 * np.pi)), 0.0)
    shifted = path.copy()
    shifted[:, joints.index] = driven + 2.0 * np.pi * turns
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
