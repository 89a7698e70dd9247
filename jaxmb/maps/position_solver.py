"""Postures for given positions of a frame, each solved from the posture of a neighbouring position."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmb.compiled import batch_size, compiled, in_batches
from jaxmb.io.validation import check_known
from jaxmb.machine.build import Model
from jaxmb.mechanics.kinematics import frame_pose, joints_moving_frame
from jaxmb.mechanics.loops import check_closed, loop_gaps
from jaxmb.mechanics.postures import (
    LARGEST_STEP,
    LEAST_DAMPING,
    LONGEST_STEP,
    MOST_BESIDE,
    dependent_for_given,
    inverse_kinematics,
)
from jaxmb.spatial import rotation_vector, transform

REACHED = 1e-8
"""Distance [m] or angle [rad] below which a target is reached; Gauss-Newton converges to about 1e-14."""
SETTLED = 1e-12
"""Distance at which the iteration stops, m."""
STEPS = 40
"""Largest number of steps of the damped Gauss-Newton method."""
CLOSING_STEPS = 12
"""Largest number of steps to a closed posture near the preceding one."""
SHORTEST_PART = 1.0 / 64.0
"""Smallest step to a closed posture over the largest; smaller steps end at a dead point."""
TOGETHER = 64
"""Targets per batch."""
LARGEST_BATCH = 1024
"""Largest batch of postures for forward kinematics."""


@dataclass(frozen=True)
class PositionSolver:
    """Solver for targets: positions of a frame, or values of given coordinates of a machine with loops."""

    model: Model
    start: np.ndarray
    """Posture [n] that selects the branch and the orientation of the frame."""
    frame: str
    moving: tuple[str, ...]
    """Coordinates that vary, including dependent ones of loops."""
    keep: bool
    """Whether the frame keeps its orientation."""
    low: np.ndarray
    high: np.ndarray
    """Limits [n], rad or m, infinite without a limit."""
    given: tuple[str, ...] = ()
    """Coordinates whose values are the targets; empty if targets are positions."""

    def targets(self, coordinates: np.ndarray) -> np.ndarray:
        """Targets at postures [*p, n]: values of the given coordinates, or positions of the frame [*p, 3]."""
        if self.given:
            return coordinates[..., [self.model.coordinates.index(name) for name in self.given]]
        return frame_positions(self.model, coordinates, self.frame)

    def reach(self, targets: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Postures [k, n] at targets [k, t], solved from starts [k, n], and a mask of the targets reached [k]."""
        size = TOGETHER if len(targets) > 1 else 1  # two programs to compile, for fronts and for paths
        if self.model.loops:
            q, reached = self._continue(targets, starts, size)
        else:
            first = jnp.asarray(self.start)
            q, distance = in_batches(
                lambda target, begin: _solve(self.model, target, begin, first, self.frame, self.moving, self.keep),
                size,
                targets,
                starts,
            )
            reached = distance < REACHED
        return q, reached & np.all((q >= self.low) & (q <= self.high), axis=1)

    def _continue(self, targets: np.ndarray, starts: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Postures at targets, regardless of limits, and a mask of the targets reached.

        By continuation along a straight line to each target, with steps halved until a closed posture is found near the
        predicted one, so that loops stay on their branch.
        """
        first, q = jnp.asarray(self.start), starts.copy()
        line = targets - self.targets(starts)
        largest = LONGEST_STEP / np.maximum(np.max(np.abs(line), axis=1), LONGEST_STEP)
        remaining, trial = np.ones(len(q)), largest.copy()
        while np.any(active := (remaining > 0.0) & (trial > SHORTEST_PART * largest)):
            rows = np.flatnonzero(active)
            step = np.minimum(trial, remaining)[rows]
            waypoints = targets[rows] - (remaining[rows] - step)[:, None] * line[rows]
            postures, good = in_batches(
                lambda target, begin: _closed_step(
                    self.model, target, begin, first, self.frame, self.moving, self.keep, self.given
                ),
                size,
                waypoints,
                q[rows],
            )
            q[rows[good]] = postures[good]
            remaining[rows] -= np.where(good, step, 0.0)
            trial[rows] = np.where(good, np.minimum(2.0 * trial, largest)[rows], 0.5 * step)
        return q, remaining == 0.0


def closed_solver(
    model: Model, start: np.ndarray, given: Sequence[str], held: Sequence[str], frame: str,
    limits: Mapping[str, tuple[float, float]] | None,
) -> PositionSolver:  # fmt: skip
    """Solver for values of the given coordinates of a machine with loops, from a closed start posture [n].

    Raises:
        ValueError: given and fixed coordinates overdetermine the loops, or limits are reversed.
    """
    numbers = sorted(model.coordinates.index(name) for name in (*given, *held))
    follow = dependent_for_given(model, start, numbers)
    moving = tuple(name for i, name in enumerate(model.coordinates) if i in follow or name in given)
    return PositionSolver(model, start, frame, moving, False, *_checked_limits(model, limits), tuple(given))


def position_solver(
    model: Model, start: np.ndarray, frame: str, joints: Sequence[str] | None, orientation: bool | None,
    limits: Mapping[str, tuple[float, float]] | None,
) -> PositionSolver:  # fmt: skip
    """Solver for positions of a frame from a start posture [n]; arguments as in `postures_over`.

    Raises:
        ValueError: a name is unknown, limits are reversed, or more than six coordinates move the frame and `joints` is
            not given.
    """
    moving = joints_moving_frame(model, frame, joints)
    if joints is None and len(moving) > 6:
        raise ValueError(
            f"joints: {len(moving)} coordinates move '{frame}', expected the names of six or fewer to position it"
        )
    keep = len(moving) >= 6 if orientation is None else orientation
    moving = tuple(name for i, name in enumerate(model.coordinates) if i in model.dependent or name in moving)
    return PositionSolver(model, start, frame, moving, keep, *_checked_limits(model, limits))


def _checked_limits(
    model: Model, limits: Mapping[str, tuple[float, float]] | None
) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    low, high = (np.full(len(model.coordinates), end) for end in (-np.inf, np.inf))
    for name, (least, most) in (limits or {}).items():
        check_known("limits: coordinate", (name,), model.coordinates)
        if not least < most:
            raise ValueError(f"limits: {name} from {least:g} to {most:g}, expected the lower first")
        low[model.coordinates.index(name)], high[model.coordinates.index(name)] = least, most
    return low, high


def solved_outwards(solver: PositionSolver, targets: np.ndarray) -> np.ndarray:
    """Postures [*grid, n] at targets [*grid, t], solved in fronts from the target closest to the start posture.

    NaN for targets that are not reached.
    """
    shape = targets.shape[:-1]
    flat = targets.reshape(-1, targets.shape[-1])
    found = np.full((len(flat), len(solver.start)), np.nan)
    # The start may be outside the grid: targets are tried in order of their distance until one is reached.
    order = np.argsort(np.linalg.norm(flat - solver.targets(solver.start), axis=1), kind="stable")
    front = np.zeros(0, dtype=int)
    for first in range(0, len(order), TOGETHER):
        tried = order[first : first + TOGETHER]
        solved, ok = solver.reach(flat[tried], np.tile(solver.start, (len(tried), 1)))
        if np.any(ok):
            front = tried[ok][:1]
            found[front] = solved[ok][:1]
            break
    index = np.arange(len(flat)).reshape(shape)
    pairs = [(np.moveaxis(index, k, 0)[:-1].ravel(), np.moveaxis(index, k, 0)[1:].ravel()) for k in range(len(shape))]
    one, other = (np.concatenate([pair[i] for pair in pairs]) for i in (0, 1))
    one, other = np.concatenate([one, other]), np.concatenate([other, one])
    while front.size:
        edge = np.isin(one, front) & np.isnan(found[other, 0])
        # A target is tried from one of its neighbours and, if that fails, from neighbours reached later.
        tried, which = np.unique(other[edge], return_index=True)
        if not tried.size:
            break
        solved, ok = solver.reach(flat[tried], found[one[edge][which]])
        front = tried[ok]
        found[front] = solved[ok]
    return found.reshape(*shape, -1)


def solved_along(solver: PositionSolver, targets: np.ndarray) -> np.ndarray:
    """Postures [k, n] at targets [k, t], solved in sequence; NaN for targets that are not reached."""
    found, last = np.full((len(targets), len(solver.start)), np.nan), solver.start
    for i, target in enumerate(targets):
        solved, ok = solver.reach(target[None], last[None])
        if ok[0]:
            found[i] = last = solved[0]
    return found


def frame_positions(model: Model, coordinates: Float[np.ndarray, "*p n"], frame: str) -> Float[np.ndarray, "*p 3"]:
    """Position of a frame's origin at postures, m, ground axes; NaN for postures that are NaN."""
    rows = np.asarray(coordinates).reshape(-1, coordinates.shape[-1])
    (positions,) = in_batches(lambda q: (_positions(model, q, frame),), batch_size(len(rows), LARGEST_BATCH), rows)
    return positions.reshape(*coordinates.shape[:-1], 3)


def check_all_closed(model: Model, postures: Float[np.ndarray, "p n"]) -> None:
    """Raise ValueError if loops are open at one of the postures."""
    if model.loops and len(postures):
        (gaps,) = in_batches(lambda q: (_gaps(model, q),), batch_size(len(postures), LARGEST_BATCH), postures)
        check_closed(model, postures[np.argmax(gaps)], "postures")


@compiled
def _solve(
    model: Model,
    targets: Float[Array, "b 3"],
    starts: Float[Array, "b n"],
    first: Float[Array, "n"],
    frame: str,
    moving: tuple[str, ...],
    keep: bool,
) -> tuple[Float[Array, "b n"], Float[Array, "b"]]:
    rotation = frame_pose(model, first, frame)[:3, :3]

    def solved(target: Array, start: Array) -> tuple[Array, Array]:
        pose, settled = transform(rotation, target), 0.0 if keep else SETTLED
        return inverse_kinematics(model, pose, frame, start, moving, STEPS, keep, settled)

    return jax.vmap(solved)(targets, starts)


@compiled
def _closed_step(
    model: Model,
    targets: Float[Array, "b t"],
    starts: Float[Array, "b n"],
    first: Float[Array, "n"],
    frame: str,
    moving: tuple[str, ...],
    keep: bool,
    given: tuple[str, ...],
) -> tuple[Float[Array, "b n"], Bool[Array, "b"]]:
    """Closed postures at targets by Gauss-Newton, and whether they are near the prediction of the first step."""
    rotation = frame_pose(model, first, frame)[:3, :3]
    varied, fixed = (jnp.array([model.coordinates.index(name) for name in names], int) for names in (moving, given))

    def residual(q: Array, target: Array) -> Array:
        if given:
            return jnp.concatenate([q[fixed] - target, loop_gaps(model, q)])
        pose = frame_pose(model, q, frame)
        turn = rotation_vector(pose[:3, :3] @ rotation.T) if keep else jnp.zeros(0)
        return jnp.concatenate([pose[:3, 3] - target, turn, loop_gaps(model, q)])

    def same_side(start: Array, q: Array) -> Array:
        """Whether no dead point is between: there the determinant of the gaps by dependent coordinates changes sign."""
        before, after = (jax.jacfwd(loop_gaps, 1)(model, x)[:, np.array(model.dependent)] for x in (start, q))
        return jnp.linalg.slogdet(before.T @ after)[0] > 0.0

    def closed(target: Array, start: Array) -> tuple[Array, Array]:
        def step(state: tuple[Array, ...]) -> tuple[Array, ...]:
            q, predicted, _, count = state
            error, along = jax.linearize(lambda x: residual(q.at[varied].set(x), target), q[varied])
            slope = jax.vmap(along, out_axes=1)(jnp.eye(len(moving)))
            normal = slope.T @ slope + LEAST_DAMPING * jnp.eye(len(moving))
            size, new = jnp.max(jnp.abs(error)), q.at[varied].add(-jnp.linalg.solve(normal, slope.T @ error))
            return jnp.where(size > SETTLED, new, q), jnp.where(count == 0, new, predicted), size, count + 1

        def unfinished(state: tuple[Array, ...]) -> Array:
            return (state[2] > SETTLED) & (state[3] < CLOSING_STEPS)

        begin = (start, start, jnp.asarray(jnp.inf), jnp.asarray(0))
        q, predicted, size, _ = jax.lax.while_loop(unfinished, step, begin)
        change, correction = jnp.max(jnp.abs(predicted - start)), jnp.max(jnp.abs(q - predicted))
        good = (size < REACHED) & (change < LARGEST_STEP) & (correction <= MOST_BESIDE * change + REACHED)
        return (q.at[fixed].set(target), good) if given else (q, good & same_side(start, q))

    return jax.vmap(closed)(targets, starts)


@compiled
def _gaps(model: Model, rows: Float[Array, "p n"]) -> Float[Array, "p"]:
    return jax.vmap(lambda q: jnp.max(jnp.abs(loop_gaps(model, q))))(rows)


@compiled
def _positions(model: Model, rows: Float[Array, "p n"], frame: str) -> Float[Array, "p 3"]:
    return jax.vmap(lambda q: frame_pose(model, q, frame)[:3, 3])(rows)
