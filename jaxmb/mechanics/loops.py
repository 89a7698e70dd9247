"""Machines whose bodies close loops: postures in which they are closed, and how the coordinates move together.

A machine is a tree, and each loop a joint between two of its frames, which asks for constraints C(q) = 0. Of the
coordinates some, the dependent ones, follow from the others by C_d dq_d + C_i dq_i = 0: coordinate partitioning, as in
Rognant et al. 2010, eq. 29-32, and Pyrhonen et al. 2024, eq. 5-6. Constraints that say what others say already are
counted once.
"""

import dataclasses
import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float
from scipy.linalg import qr

from jaxmb.compiled import compiled, takes_numbers
from jaxmb.machine.build import Model
from jaxmb.mechanics.dynamics import inverse_dynamics
from jaxmb.mechanics.kinematics import check_coordinates, frame_poses, whole
from jaxmb.spatial import rotation_vector

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")

CLOSED = 1e-12
"""Largest gap of a closed loop, m or rad; rounding leaves 1e-16 of the machine's size."""
OPEN = 1e-6
"""Gap from which on a given posture is open."""
ROUNDED = 1e-3
"""Largest change, rad or m, of a dependent coordinate that is closed as rounded; times the largest rate of such a
coordinate, where that is above 1."""
MOST_STEPS = 60
LEAST_RANK = 1e-8
"""Singular value of the constraints, beside the largest one, at or below which they say the same."""


class Gap(NamedTuple):
    """What is open at a posture, and its derivative."""

    size: np.ndarray
    slope: np.ndarray


def independent_coordinates(model: Model) -> tuple[str, ...]:
    """Names of the m coordinates that a posture gives; loops make the others follow. All n where there is no loop."""
    return tuple(name for i, name in enumerate(model.coordinates) if i not in model.dependent)


def at_closed_posture(function: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
    """Closes the loops of a posture q that is open by rounding, with a warning, and refuses one that is open by more,
    before a function of a model and q is compiled."""
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


@takes_numbers("q")
@at_closed_posture
@compiled
def motion_map(model: Model, q: Float[Array, "n"]) -> Float[Array, "n m"]:
    """R [n, m] with qd = R zd, zd the rates of the independent coordinates, in a posture whose loops are closed.

    R is the identity for these, and -C_d^-1 C_i for the dependent ones.

    Raises:
        ValueError: q does not have the machine's n coordinates, or a loop is open there.

    Source: Rognant et al. 2010, eq. 29-30; Pyrhonen et al. 2024, eq. 5.
    """
    check_coordinates(model, q=q)
    n = len(model.coordinates)
    return _columns(model, q[:n], model.dependent, range(n), rigid_only=False)


def loop_inverse_dynamics(
    model: Model,
    q: Float[Array, "n"],
    zd: Float[Array, "m"],
    zdd: Float[Array, "m"],
    q_rest: Float[Array, "n"] | None = None,
) -> Float[Array, "m"]:
    """Effort [m] at the independent coordinates that gives the closed machine this motion.

    R^T f(q, R zd, R zdd + R' zd), f the residual of the tree (`inverse_dynamics`).

    Args:
        model: the machine.
        q: coordinates [n] of a posture whose loops are closed.
        zd: rates of the independent coordinates [m].
        zdd: their accelerations [m].
        q_rest: where all springs are unloaded [n]; the reference posture where not given.

    Source: Rognant et al. 2010, eq. 30-32; Pyrhonen et al. 2024, eq. 5-7.
    """
    R, turning = loop_motion(model, q, zd)
    return R.T @ inverse_dynamics(model, q, R @ zd, R @ zdd + turning, q_rest)


def loop_motion(
    model: Model, q: Float[Array, "n"], zd: Float[Array, "m"]
) -> tuple[Float[Array, "n m"], Float[Array, "n"]]:
    """R [n, m] of a closed posture (`motion_map`), and R' zd [n], the accelerations that the rates alone make."""
    n = len(model.coordinates)

    def rates(x: Array) -> Array:
        return _columns(model, x, model.dependent, range(n), rigid_only=False)

    R = rates(q)
    if not model.dependent:
        return R, jnp.zeros(n)
    _, turning = jax.jvp(rates, (q,), (R @ zd,))
    return R, turning @ zd


def motion_columns(model: Model, x: Float[Array, "x"]) -> Float[Array, "x m"]:
    """How coordinates, with the elastic ones behind them, move with each unit of small motion."""
    return _columns(model, x, model.following, _moving(model), rigid_only=True)


def closing_forces(model: Model, x: Float[Array, "x"], effort: Float[Array, "x"]) -> Float[Array, "c"]:
    """Forces lambda on the gaps of the loops that hold the following coordinates: C_d^T lambda = effort_d."""
    _, basis, triangle = _factored(model, x, model.following, rigid_only=True)
    held = effort[np.array(model.following, dtype=int)]
    return basis @ jax.scipy.linalg.solve_triangular(triangle, held, trans=1)


def closing_steps(model: Model, x: Float[Array, "x"]) -> Float[Array, "d"]:
    """How far the following coordinates of small motions are from where they would close the loops, to first order."""
    _, basis, triangle = _factored(model, x, model.following, rigid_only=True)
    return jax.scipy.linalg.solve_triangular(triangle, basis.T @ loop_gaps(model, x, rigid_only=True))


def closing(model: Model, q: Float[Array, "n"]) -> Float[Array, "d"]:
    """How far the dependent coordinates of a posture are from where they would close the loops, to first order."""
    _, basis, triangle = _factored(model, q, model.dependent, rigid_only=False)
    return jax.scipy.linalg.solve_triangular(triangle, basis.T @ loop_gaps(model, q))


def moving_independently(model: Model) -> list[int]:
    """Which coordinates, with the elastic ones behind them, those of small motions are."""
    return [i for i in _moving(model) if i not in set(model.following)]


def loop_gaps(model: Model, x: Float[Array, "x"], rigid_only: bool = False) -> Float[Array, "c"]:
    """C(q): what is open between the frames of the loops, m and rad."""
    chosen = [i for i, rigid in enumerate(model.loop_rigid) if rigid or not rigid_only]
    if not chosen:
        return jnp.zeros(0)
    kinds = [model.loop_type[i] for i in chosen]
    poses, axis = frame_poses(model, x), model.loop_axis[np.array(chosen)]
    a, b = (poses[np.array([model.loop_frames[i][k] for i in chosen])] for k in (0, 1))
    apart = jnp.einsum("lji,lj->li", a[:, :3, :3], b[:, :3, 3] - a[:, :3, 3])
    turned = jnp.einsum("lji,ljk->lik", a[:, :3, :3], b[:, :3, :3])
    sliding = np.array([kind in ("prismatic", "cylindrical") for kind in kinds])[:, None]
    gaps = [(apart - sliding * axis * jnp.sum(axis * apart, axis=1, keepdims=True)).ravel()]
    turning = np.array([i for i, kind in enumerate(kinds) if kind in ("revolute", "cylindrical")], dtype=int)
    if turning.size:
        gaps.append(jnp.cross(jnp.einsum("lij,lj->li", turned[turning], axis[turning]), axis[turning]).ravel())
    held = np.array([i for i, kind in enumerate(kinds) if kind in ("fixed", "prismatic")], dtype=int)
    if held.size:
        gaps.append(jax.vmap(rotation_vector)(turned[held]).ravel())
    return jnp.concatenate(gaps)


def check_closed(model: Model, q: Float[Array, "n"] | np.ndarray, what: str = "posture") -> None:
    """Raise ValueError where loops are open at a posture; what is traced is not looked at."""
    if not model.loops or is_traced(model, q):
        return
    check_coordinates(model, q=q)
    found = gap(model, np.asarray(q)[: len(model.coordinates)])
    left = float(np.max(np.abs(found.size)))
    if not left <= OPEN:
        raise ValueError(f"{what}: the loops of '{model.name}' are open by {left:.3g} there; `close_loops` closes them")
    if constraint_rank(found.slope[:, list(model.dependent)]) < len(model.dependent):
        follow = ", ".join(independent_coordinates(model))
        raise ValueError(
            f"{what}: the loops of '{model.name}' are at a dead point there, {follow} do not decide how it moves;"
            " expected another posture, or others as `independent`"
        )


def close_rounded(model: Model, q: Float[Array, "n"] | np.ndarray, what: str) -> tuple[np.ndarray, str]:
    """A posture of a machine with loops, closed where it is open by rounding, and a sentence on the change; "" where
    there is none.

    The independent coordinates stay as they are, elastic ones behind them too.

    Raises:
        ValueError: the loops are open by more, or at a dead point.
    """
    check_coordinates(model, q=q)
    n, follow, q = len(model.coordinates), list(model.dependent), np.asarray(q, dtype=float)
    left = float(np.max(np.abs(gap(model, q[:n]).size)))
    if left > OPEN:
        closed, rest = newton(model, q[:n], follow)
        slope = gap(model, closed).slope
        lead = [i for i in range(n) if i not in follow]
        rates = np.linalg.lstsq(slope[:, follow], slope[:, lead], rcond=LEAST_RANK)[0]
        change = np.abs(closed - q[:n])
        if rest <= CLOSED and change.max() <= ROUNDED * max(1.0, float(np.abs(rates).max(initial=0.0))):
            most = int(np.argmax(change))
            unit = "rad" if model.revolute[most] else "m"
            check_closed(model, closed, what)
            return np.concatenate([closed, q[n:]]), (
                f"{what}: the loops of '{model.name}' are open by {left:.2g}, as of rounded values: closed with"
                f" {', '.join(independent_coordinates(model))} as given, '{model.coordinates[most]}' changes by"
                f" {change[most]:.2g} {unit}"
            )
    check_closed(model, q, what)
    return q, ""


def is_traced(model: Model, q: object) -> bool:
    """Whether JAX traces a model or a posture."""
    return any(isinstance(leaf, Tracer) for leaf in (q, *jax.tree.leaves(model)))


def check_open_chain(model: Model, what: str) -> None:
    """Raise NotImplementedError where a machine has loops, which what is asked for does not close."""
    if model.loops:
        raise NotImplementedError(
            f"{what}: '{model.name}' has loops ('{model.loops[0]}' ...), expected an open machine"
        )


@compiled
def _compiled_gap(model: Model, x: Float[Array, "x"], rigid_only: bool) -> tuple[Array, Array]:
    return loop_gaps(model, x, rigid_only), jax.jacfwd(lambda y: loop_gaps(model, y, rigid_only))(x)


def gap(model: Model, x: np.ndarray, rigid_only: bool = False) -> Gap:
    """What is open at a posture, with the elastic coordinates behind it or not, outside of compiled functions."""
    # which coordinates follow changes nothing here: one program before and after they are chosen
    tree = dataclasses.replace(model, dependent=(), following=(), bent_loops=False, as_built=None)
    return Gap(*(np.asarray(part) for part in _compiled_gap(tree, jnp.asarray(x), rigid_only)))


def newton(model: Model, q: np.ndarray, free: list[int]) -> tuple[np.ndarray, float]:
    """Posture with the least gap that Gauss-Newton steps of the free coordinates reach, and the gap."""
    now = gap(model, q)
    for _ in range(MOST_STEPS):
        size = float(np.linalg.norm(now.size))
        if np.max(np.abs(now.size), initial=0.0) <= 0.01 * CLOSED:
            break
        if not free:
            break
        step = np.linalg.lstsq(now.slope[:, free], -now.size, rcond=LEAST_RANK)[0]
        step *= min(1.0, 0.5 / max(float(np.max(np.abs(step), initial=0.0)), 1e-300))
        for _ in range(12):
            tried = q.copy()
            tried[free] += step
            there = gap(model, tried)
            if float(np.linalg.norm(there.size)) < size:
                q, now = tried, there
                break
            step = 0.5 * step
        else:
            break
    return q, float(np.max(np.abs(now.size), initial=0.0))


def constraint_rank(slope: np.ndarray) -> int:
    """Number of constraints [c, x] that say something of their own."""
    values = np.linalg.svd(slope, compute_uv=False)
    return int(np.sum(values > LEAST_RANK * values.max(initial=0.0)))


def dependent_coordinates(slope: np.ndarray, groups: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """As many columns as the constraints have rank, of the first group while they go, by QR with column pivoting."""
    left, chosen = slope.copy(), list[int]()
    scale = LEAST_RANK * np.linalg.norm(slope, 2) if slope.size else 0.0
    for group in groups:
        if not len(group):
            continue
        found: Any = qr(left[:, list(group)], mode="r", pivoting=True)
        factor, pivots = np.asarray(found[0]), np.asarray(found[1])
        count = int(np.sum(np.abs(np.diagonal(factor)) > scale))
        taken = [group[p] for p in pivots[:count]]
        chosen += taken
        if taken:
            basis = np.linalg.qr(left[:, taken])[0]
            left = left - basis @ (basis.T @ left)
    return tuple(sorted(chosen))


def followers(model: Model) -> tuple[int, ...]:
    """Dependent coordinates of small motions: those of postures, and elastic ones where loops hold these too."""
    if not any(model.loop_rigid):
        return ()
    x = np.asarray(whole(model, model.reference))
    moving = _moving(model)
    slope = gap(model, x, rigid_only=True).slope
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
    follow = -jax.scipy.linalg.solve_triangular(triangle, basis.T @ slope[:, np.array(independent, dtype=int)])
    return columns.at[np.array(dependent)].set(follow)


def _factored(
    model: Model, x: Float[Array, "x"], dependent: Sequence[int], rigid_only: bool
) -> tuple[Float[Array, "c x"], Float[Array, "c d"], Float[Array, "d d"]]:
    """Derivative of the gaps, and the QR factors of its columns of the dependent coordinates: least squares, as of
    constraints that say the same any one may be taken."""
    slope = jax.jacfwd(lambda y: loop_gaps(model, y, rigid_only))(x)
    basis, triangle = jnp.linalg.qr(slope[:, np.array(dependent, dtype=int)])
    return slope, basis, triangle
