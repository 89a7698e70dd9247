"""Closed kinematic chains: loop constraints, closed postures and the motion map of the independent coordinates.

A machine is a tree, and each loop a joint between two of its frames, with constraints C(q) = 0. The dependent
coordinates are determined by the independent ones, C_d dq_d + C_i dq_i = 0: coordinate partitioning, as in Rognant et
al. 2010, eq. 29-32, and Pyrhonen et al. 2024, eq. 5-6. Redundant constraints are counted once.
"""

import dataclasses
import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float
from scipy.linalg import qr

from jaxmb.compiled import Arguments, Value, compiled, numeric_arguments
from jaxmb.io.validation import typed_arguments
from jaxmb.machine.build import Model
from jaxmb.mechanics.kinematics import check_coordinates, frame_poses, whole
from jaxmb.spatial import rotation_vector

CLOSED = 1e-12
"""Largest gap of a closed loop, m or rad; rounding errors are 1e-16 of the machine's size."""
OPEN = 1e-6
"""Gap above which a given posture is open, m or rad."""
ROUNDED = 1e-3
"""Largest change, rad or m, of a dependent coordinate that is attributed to rounding; times the largest rate of a
dependent coordinate, where that is above 1."""
MOST_STEPS = 60
CLOSING_STEPS = 4
"""Newton steps from a posture whose loops are a little open; they converge quadratically."""
LEAST_RANK = 1e-8
"""Singular value of the constraints, relative to the largest, at or below which they are redundant."""


class Gap(NamedTuple):
    """Gaps of the loops at a posture, m and rad, and their derivatives by the coordinates."""

    size: np.ndarray
    slope: np.ndarray


@typed_arguments
def independent_coordinates(model: Model) -> tuple[str, ...]:
    """Names of the m independent coordinates, which determine a posture; all n without loops."""
    return tuple(name for i, name in enumerate(model.coordinates) if i not in model.dependent)


def independent_joints(model: Model) -> list[tuple[int, str, bool]]:
    """Index and name of each independent coordinate of a joint, and whether it is an angle."""
    indices = [model.coordinates.index(name) for name in independent_coordinates(model) if name in model.joints]
    return [(k, model.coordinates[k], model.revolute[k]) for k in indices]


def at_closed_posture(function: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
    """Decorate a function of a model and a posture q: gaps due to rounding are closed with a warning, larger ones raise
    ValueError, before the function is compiled."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
        bound = signature.bind(*args, **kwargs)
        model, q = bound.arguments["model"], bound.arguments["q"]
        if model.loops and not is_traced(model, q):
            bound.arguments["q"], change = close_rounded(model, q, "q")
            if change:
                warnings.warn(change, stacklevel=3)
        return function(*bound.args, **bound.kwargs)

    return call


@typed_arguments
@numeric_arguments("q")
@at_closed_posture
def motion_map(model: Model, q: Float[Array, "n"]) -> Float[Array, "n m"]:
    """R [n, m] with qd = R zd, zd the rates of the independent coordinates, in a posture whose loops are closed.

    Its rows are those of the identity for independent coordinates, and of -C_d^-1 C_i for dependent ones.

    Raises:
        ValueError: q does not have the machine's n coordinates, or a loop is open there.

    Source: Rognant et al. 2010, eq. 29-30; Pyrhonen et al. 2024, eq. 5.
    """
    check_coordinates(model, q=q)
    return nearby_motion_map(model, q)


@compiled
def nearby_motion_map(model: Model, q: Float[Array, "n"]) -> Float[Array, "n m"]:
    """`motion_map` where loops may be open, as if the geometry differs a little from that of the posture."""
    n = len(model.coordinates)
    return _columns(model, q[:n], model.dependent, range(n), rigid_only=False)


def loop_motion(
    model: Model, q: Float[Array, "n"], zd: Float[Array, "m"]
) -> tuple[Float[Array, "n m"], Float[Array, "n"]]:
    """R [n, m] of a closed posture (`motion_map`), and the velocity-dependent accelerations R' zd [n].

    Source: Rognant et al. 2010, eq. 30-32; Pyrhonen et al. 2024, eq. 5-7.
    """

    def rates(x: Array) -> Array:
        return _columns(model, x, model.dependent, range(len(model.coordinates)), rigid_only=False)

    R = rates(q)
    _, R_rate = jax.jvp(rates, (q,), (R @ zd,))
    return R, R_rate @ zd


def motion_basis(model: Model, x: Float[Array, "x"]) -> Float[Array, "x m"]:
    """Derivatives of all coordinates, elastic ones last, by the degrees of freedom of the linearized equations."""
    return _columns(model, x, model.following, _moving(model), rigid_only=True)


def constraint_forces(model: Model, x: Float[Array, "x"], effort: Float[Array, "x"]) -> Float[Array, "c"]:
    """Constraint forces lambda of the loops, C_d^T lambda = effort_d, d the dependent coordinates."""
    _, basis, triangle = _factored(model, x, model.following, rigid_only=True)
    return basis @ jax.scipy.linalg.solve_triangular(triangle, effort[np.array(model.following, dtype=int)], trans=1)


def closing(model: Model, x: Float[Array, "x"], dependent: Sequence[int], rigid_only: bool) -> Float[Array, "d"]:
    """First-order correction, sign reversed, of dependent coordinates that closes the loops."""
    _, basis, triangle = _factored(model, x, dependent, rigid_only)
    return jax.scipy.linalg.solve_triangular(triangle, basis.T @ loop_gaps(model, x, rigid_only))


def loop_closure(model: Model, q: Float[Array, "n"]) -> Float[Array, "n"]:
    """A posture after Newton steps of the dependent coordinates, where its loops are a little open."""
    if not model.dependent:
        return q
    dependent = np.array(model.dependent, dtype=int)

    def close(_: int, x: Array) -> Array:
        return x.at[dependent].add(-closing(model, x, model.dependent, rigid_only=False))

    return jax.lax.fori_loop(0, CLOSING_STEPS, close, q)


def degrees_of_freedom(model: Model) -> list[int]:
    """Indices of the degrees of freedom of the linearized equations among the coordinates, elastic ones last."""
    return [i for i in _moving(model) if i not in set(model.following)]


def loop_gaps(model: Model, x: Float[Array, "x"], rigid_only: bool = False) -> Float[Array, "c"]:
    """Constraints C(q): gaps between the frames of the loops, and of the couplings of coordinates, m and rad."""
    follower, followed = np.array(model.couplings, dtype=int).reshape(-1, 2).T
    coupled = x[follower] - model.coupling_ratio * x[followed] - model.coupling_offset
    chosen = [i for i, rigid in enumerate(model.loop_rigid) if rigid or not rigid_only]
    if not chosen:
        return coupled
    kinds = [model.loop_type[i] for i in chosen]
    poses, axis = frame_poses(model, x), model.loop_axis[np.array(chosen)]
    a, b = (poses[np.array([model.loop_frames[i][k] for i in chosen])] for k in (0, 1))
    offset = jnp.einsum("lji,lj->li", a[:, :3, :3], b[:, :3, 3] - a[:, :3, 3])
    relative = jnp.einsum("lji,ljk->lik", a[:, :3, :3], b[:, :3, :3])
    is_sliding = np.array([kind in ("prismatic", "cylindrical") for kind in kinds])[:, None]
    gaps = offset - is_sliding * axis * jnp.sum(axis * offset, axis=1, keepdims=True)
    axial = np.array([i for i, kind in enumerate(kinds) if kind in ("revolute", "cylindrical")], dtype=int)
    tilts = jnp.cross(jnp.einsum("lij,lj->li", relative[axial], axis[axial]), axis[axial])
    fixed = np.array([i for i, kind in enumerate(kinds) if kind in ("fixed", "prismatic")], dtype=int)
    return jnp.concatenate([coupled, gaps.ravel(), tilts.ravel(), jax.vmap(rotation_vector)(relative[fixed]).ravel()])


def check_closed(model: Model, q: Float[Array, "n"] | np.ndarray, label: str = "posture") -> None:
    """Raise ValueError where loops are open, or at a dead point, at a posture; traced arguments are not checked."""
    if not model.loops or is_traced(model, q):
        return
    check_coordinates(model, q=q)
    current = gap(model, np.asarray(q)[: len(model.coordinates)])
    largest_gap = float(np.max(np.abs(current.size)))
    if not largest_gap <= OPEN:
        raise ValueError(
            f"{label}: the loops of '{model.name}' are open by {largest_gap:.3g}; `close_loops` closes them, or state"
            f" {', '.join(independent_coordinates(model))} only, from which the other coordinates follow"
        )
    if constraint_rank(current.slope[:, list(model.dependent)]) < len(model.dependent):
        raise ValueError(
            f"{label}: the loops of '{model.name}' are at a dead point, {', '.join(independent_coordinates(model))} do"
            " not determine the motion; expected another posture, or others as `independent`"
        )


def close_rounded(model: Model, q: Float[Array, "n"] | np.ndarray, label: str) -> tuple[np.ndarray, str]:
    """A posture of a machine with loops, closed where it is open by rounding, and a message on the change, else "".

    Only dependent coordinates change.

    Raises:
        ValueError: the loops are open by more, or at a dead point.
    """
    check_coordinates(model, q=q)
    n, dependent, q = len(model.coordinates), list(model.dependent), np.asarray(q, dtype=float)
    opening = float(np.max(np.abs(gap(model, q[:n]).size)))
    if opening > OPEN:
        closed, remaining = newton(model, q[:n], dependent)
        slope = gap(model, closed).slope
        independent = [i for i in range(n) if i not in dependent]
        rates = np.linalg.lstsq(slope[:, dependent], slope[:, independent], rcond=LEAST_RANK)[0]
        change = np.abs(closed - q[:n])
        if remaining <= CLOSED and change.max() <= ROUNDED * max(1.0, float(np.abs(rates).max(initial=0.0))):
            largest = int(np.argmax(change))
            check_closed(model, closed, label)
            return np.concatenate([closed, q[n:]]), (
                f"{label}: the loops of '{model.name}' are open by {opening:.2g}, as with rounded values: closed with"
                f" {', '.join(independent_coordinates(model))} as given, '{model.coordinates[largest]}' changes by"
                f" {change[largest]:.2g} {'rad' if model.revolute[largest] else 'm'}"
            )
    check_closed(model, q, label)
    return q, ""


def is_traced(model: Model, q: object) -> bool:
    """Whether JAX traces a model or a posture."""
    return any(isinstance(leaf, Tracer) for leaf in (q, *jax.tree.leaves(model)))


def check_open_chain(model: Model, label: str) -> None:
    """Raise NotImplementedError where a machine has loops."""
    if model.loops:
        raise NotImplementedError(
            f"{label}: '{model.name}' has loops ('{model.loops[0]}' ...), expected an open machine"
        )


@compiled
def _compiled_gap(model: Model, x: Float[Array, "x"], rigid_only: bool) -> tuple[Array, Array]:
    return loop_gaps(model, x, rigid_only), jax.jacfwd(lambda y: loop_gaps(model, y, rigid_only))(x)


def gap(model: Model, x: np.ndarray, rigid_only: bool = False) -> Gap:
    """`Gap` at a posture, with or without elastic coordinates, outside of compiled functions."""
    # the partition of coordinates has no effect here: one program before and after it is chosen
    tree = dataclasses.replace(model, dependent=(), following=(), bent_loops=False, as_built=None)
    return Gap(*(np.asarray(part) for part in _compiled_gap(tree, jnp.asarray(x), rigid_only)))


def newton(model: Model, q: np.ndarray, free: list[int]) -> tuple[np.ndarray, float]:
    """Posture with the least gap reached by Gauss-Newton steps of the free coordinates, and the largest gap."""
    current = gap(model, q)
    for _ in range(MOST_STEPS):
        size = float(np.linalg.norm(current.size))
        if not free or np.max(np.abs(current.size), initial=0.0) <= 0.01 * CLOSED:
            break
        step = np.linalg.lstsq(current.slope[:, free], -current.size, rcond=LEAST_RANK)[0]
        step *= min(1.0, 0.5 / max(float(np.max(np.abs(step), initial=0.0)), 1e-300))
        for _ in range(12):
            trial = q.copy()
            trial[free] += step
            trial_gap = gap(model, trial)
            if float(np.linalg.norm(trial_gap.size)) < size:
                q, current = trial, trial_gap
                break
            step = 0.5 * step
        else:
            break
    return q, float(np.max(np.abs(current.size), initial=0.0))


def constraint_rank(slope: np.ndarray) -> int:
    """Rank of the constraints' derivative [c, x], or of another Jacobian."""
    values = np.linalg.svd(slope, compute_uv=False)
    return int(np.sum(values > LEAST_RANK * values.max(initial=0.0)))


def dependent_coordinates(slope: np.ndarray, groups: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Indices of dependent coordinates, as many as the rank, from earlier groups first, by pivoted QR."""
    remainder, chosen = slope.copy(), list[int]()
    scale = LEAST_RANK * np.linalg.norm(slope, 2) if slope.size else 0.0
    for group in groups:
        factored: Any = qr(remainder[:, list(group)], mode="r", pivoting=True)
        factor, pivots = np.asarray(factored[0]), np.asarray(factored[1])
        count = int(np.sum(np.abs(np.diagonal(factor)) > scale))
        pivot_columns = [group[p] for p in pivots[:count]]
        chosen += pivot_columns
        basis = np.linalg.qr(remainder[:, pivot_columns])[0]
        remainder = remainder - basis @ (basis.T @ remainder)
    return tuple(sorted(chosen))


def followers(model: Model) -> tuple[int, ...]:
    """Dependent coordinates of the linearized equations: those of postures, and elastic ones where loops need them."""
    if not (any(model.loop_rigid) or model.couplings):
        return ()
    moving = _moving(model)
    slope = gap(model, np.asarray(whole(model, model.reference)), rigid_only=True).slope
    first = [i for i in model.dependent if i in moving]
    return dependent_coordinates(slope, [first, [i for i in moving if i not in first]])


def _moving(model: Model) -> list[int]:
    n = len(model.coordinates)
    return [i for i in range(n + 6 * len(model.elastic_nodes)) if i >= n or not model.locked[i]]


def _columns(
    model: Model, x: Float[Array, "x"], dependent: Sequence[int], moving: Sequence[int], rigid_only: bool
) -> Float[Array, "x m"]:
    independent = [i for i in moving if i not in set(dependent)]
    columns = jnp.eye(x.shape[0])[:, np.array(independent, dtype=int)]
    if not dependent:
        return columns
    slope, basis, triangle = _factored(model, x, dependent, rigid_only)
    rates = -jax.scipy.linalg.solve_triangular(triangle, basis.T @ slope[:, np.array(independent, dtype=int)])
    return columns.at[np.array(dependent)].set(rates)


def _factored(
    model: Model, x: Float[Array, "x"], dependent: Sequence[int], rigid_only: bool
) -> tuple[Float[Array, "c x"], Float[Array, "c d"], Float[Array, "d d"]]:
    """Derivative of the gaps, and QR factors of its columns of the dependent coordinates, whose least-squares solution
    covers redundant constraints."""
    slope = _compiled_gap(model, x, rigid_only)[1]
    basis, triangle = jnp.linalg.qr(slope[:, np.array(dependent, dtype=int)])
    return slope, basis, triangle
