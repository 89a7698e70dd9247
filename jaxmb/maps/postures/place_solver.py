"""Postures at which a frame is at given places, each solved from the posture of a neighbouring place."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.io.validation import known_name
from jaxmb.machine.build import Model
from jaxmb.maps.batches import batch_size, in_batches
from jaxmb.mechanics.compliance import elastic_jacobian
from jaxmb.mechanics.inverse_kinematics import LARGEST_STEP, LEAST_DAMPING, inverse_kinematics
from jaxmb.mechanics.kinematics import frame_pose, moving_joints
from jaxmb.spatial import transform

REACHED = 1e-8
"""Distance from a place [m], or angle [rad], below which it is reached: Gauss-Newton ends near 1e-14."""
SETTLED = 1e-12
"""Distance [m] at and below which the iteration ends."""
STEPS = 40
"""Largest number of steps of the damped Gauss-Newton method."""
TOGETHER = 64
"""Places that are solved together."""
LARGEST_BATCH = 1024
"""Postures whose places are computed together."""


@dataclass(frozen=True)
class PlaceSolver:
    """How places of a frame are reached."""

    model: Model
    start: np.ndarray
    """Posture [n] whose branch, and orientation of the frame, are kept."""
    frame: str
    moving: tuple[str, ...]
    """Coordinates that move."""
    keep: bool
    """Whether the frame keeps its orientation."""
    low: np.ndarray
    high: np.ndarray
    """Limits [n], rad or m, infinite where there are none."""

    def reach(self, targets: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Postures [k, n] at targets [k, 3], solved from starts [k, n], and which of the targets are reached [k]."""
        size = TOGETHER if len(targets) > 1 else 1  # two programs to compile, for fronts and for paths
        first = jnp.asarray(self.start)
        q, distance = in_batches(
            lambda there, begin: _solve(self.model, there, begin, first, self.frame, self.moving, self.keep),
            size,
            targets,
            starts,
        )
        return q, (distance < REACHED) & np.all((q >= self.low) & (q <= self.high), axis=1)


def place_solver(
    model: Model, start: np.ndarray, frame: str, joints: Sequence[str] | None, orientation: bool | None,
    limits: Mapping[str, tuple[float, float]] | None,
) -> PlaceSolver:  # fmt: skip
    """How the places of a frame are reached from a start posture [n]: see `postures_over` for the arguments.

    Raises:
        ValueError: a name is unknown, limits are reversed, or more than six coordinates move the frame and `joints`
            does not say which of them drive it.
    """
    moving = moving_joints(model, frame, joints)
    if joints is None and len(moving) > 6:
        raise ValueError(
            f"joints: {len(moving)} coordinates move '{frame}', expected the names of those that drive it there"
        )
    low, high = np.full(len(start), -math.inf), np.full(len(start), math.inf)
    for name, (least, most) in (limits or {}).items():
        if name not in model.coordinates:
            raise ValueError(known_name("limits: coordinate", name, model.coordinates))
        if not least < most:
            raise ValueError(f"limits: {name} from {least:g} to {most:g}, expected the lower first")
        low[model.coordinates.index(name)], high[model.coordinates.index(name)] = least, most
    keep = len(moving) >= 6 if orientation is None else orientation
    return PlaceSolver(model, start, frame, moving, keep, low, high)


def solved_outwards(solver: PlaceSolver, targets: np.ndarray) -> np.ndarray:
    """Postures [*grid, n] at targets [*grid, 3], solved in fronts outwards from the target nearest to the start.

    NaN where a target is not reached.
    """
    shape = targets.shape[:-1]
    flat = targets.reshape(-1, 3)
    found = np.full((len(flat), len(solver.start)), math.nan)
    there = frame_places(solver.model, solver.start, solver.frame)
    # The start may lie outside of the grid: targets are tried by their distance from it, until one is reached.
    order = np.argsort(np.linalg.norm(flat - there, axis=1), kind="stable")
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
        # A target is tried from one of its neighbours; where that fails it is tried again from those reached later.
        tried, which = np.unique(other[edge], return_index=True)
        if not tried.size:
            break
        solved, ok = solver.reach(flat[tried], found[one[edge][which]])
        front = tried[ok]
        found[front] = solved[ok]
    return found.reshape(*shape, -1)


def solved_along(solver: PlaceSolver, targets: np.ndarray) -> np.ndarray:
    """Postures at the targets [k, n], one after the other; NaN where one is not reached."""
    found, last = np.full((len(targets), len(solver.start)), math.nan), solver.start
    for i, target in enumerate(targets):
        solved, ok = solver.reach(target[None], last[None])
        if ok[0]:
            found[i] = last = solved[0]
    return found


def frame_places(model: Model, coordinates: Float[np.ndarray, "*p n"], frame: str) -> Float[np.ndarray, "*p 3"]:
    """Place of a frame's origin at postures, m, ground axes; NaN where a posture is NaN."""
    rows = np.asarray(coordinates).reshape(-1, coordinates.shape[-1])
    (places,) = in_batches(lambda q: (_places(model, q, frame),), batch_size(len(rows), LARGEST_BATCH), rows)
    return places.reshape(*coordinates.shape[:-1], 3)


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
    mask = jnp.array([name in moving for name in model.coordinates])

    def place_only(target: Array, start: Array) -> tuple[Array, Array]:
        # As `inverse_kinematics`, without the rotation, and ending once all places are reached.
        def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            q, e, count = state
            jacobian = jnp.where(mask, elastic_jacobian(model, q, frame)[:3, : q.shape[0]], 0.0)
            normal = jacobian.T @ jacobian + (0.5 * e @ e + LEAST_DAMPING) * jnp.eye(q.shape[0])
            change = jnp.linalg.solve(normal, jacobian.T @ e)
            q = q + change * jnp.minimum(1.0, LARGEST_STEP / jnp.maximum(jnp.max(jnp.abs(change)), 1e-300))
            return q, target - frame_pose(model, q, frame)[:3, 3], count + 1

        def going(state: tuple[Array, Array, Array]) -> Array:
            return (jnp.linalg.norm(state[1]) > SETTLED) & (state[2] < STEPS)

        begin = (start, target - frame_pose(model, start, frame)[:3, 3], jnp.asarray(0))
        q, e, _ = jax.lax.while_loop(going, step, begin)
        return q, jnp.linalg.norm(e)

    def pose(target: Array, start: Array) -> tuple[Array, Array]:
        return inverse_kinematics(model, transform(rotation, target), frame, start, moving, STEPS)

    return jax.vmap(pose if keep else place_only)(targets, starts)


@compiled
def _places(model: Model, rows: Float[Array, "p n"], frame: str) -> Float[Array, "p 3"]:
    return jax.vmap(lambda q: frame_pose(model, q, frame)[:3, 3])(rows)
