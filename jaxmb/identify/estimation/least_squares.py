"""Bounded least squares with the exact Jacobian.

A Levenberg-Marquardt method on the box: coordinates that lie on a bound and are pushed against it are held, what a step
would carry out of the box is put on its bound and the rest solved for again, and the ratio of achieved to predicted
decrease steers the damping (Nielsen's rule). A minimum on a bound is reached exactly, which no change of variables onto
an open interval can do.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

LARGEST_STEP = 1.0
"""Largest change of any u in one step: a factor e of a logarithmic parameter."""
BOUND_PASSES = 5
"""How often a step is solved again with what left the box put on its bound."""
SMALLEST = 1e-300

Residual = Callable[[Float[Array, "d"]], Float[Array, "m"]]


class NormalEquations(NamedTuple):
    """What a step needs of residual r and Jacobian J."""

    objective: Float[Array, ""]
    """r^T r."""
    gradient: Float[Array, "d"]
    """J^T r."""
    normal: Float[Array, "d d"]
    """J^T J."""


class Box(NamedTuple):
    """Bounds of u, and which of its entries are logarithms."""

    lower: Float[Array, "d"]
    upper: Float[Array, "d"]
    logarithmic: Bool[Array, "d"]


class LeastSquaresState(NamedTuple):
    """One start on its way; all of it is an array, so that starts are batched and saved."""

    u: Float[Array, "d"]
    objective: Float[Array, ""]
    gradient: Float[Array, "d"]
    """J^T r."""
    normal: Float[Array, "d d"]
    """J^T J."""
    damping: Float[Array, ""]
    growth: Float[Array, ""]
    evaluations: Int[Array, ""]
    non_finite: Int[Array, ""]
    """How many trial steps had no finite cost."""
    stationary: Bool[Array, ""]
    """The gradient vanishes along all coordinates that may move."""
    stalled: Bool[Array, ""]
    """No step makes it better, though the gradient does not vanish; or the start is not finite."""


def residual_and_jacobian(residual: Residual, u: Float[Array, "d"]) -> tuple[Float[Array, "m"], Float[Array, "m d"]]:
    """Residual and its Jacobian in one pass."""
    jacobian, value = jax.jacfwd(lambda x: (residual(x),) * 2, has_aux=True)(u)
    return value, jacobian


def normal_equations(residual: Residual, u: Float[Array, "d"]) -> NormalEquations:
    """Those of a residual at u."""
    value, jacobian = residual_and_jacobian(residual, u)
    return NormalEquations(value @ value, jacobian.T @ value, jacobian.T @ jacobian)


def start(u: Any) -> LeastSquaresState:
    """State of a start at u [d], or of several [s, d], not evaluated yet: with nothing known its first step does not
    move. NumPy in, NumPy out.
    """
    xp, batch, size = u.__array_namespace__(), u.shape[:-1], u.shape[-1]
    return LeastSquaresState(
        u=u,
        objective=xp.full(batch, xp.inf, dtype=u.dtype),
        gradient=xp.zeros_like(u),
        normal=xp.broadcast_to(xp.eye(size, dtype=u.dtype), (*batch, size, size)),
        damping=xp.full(batch, 1e-2, dtype=u.dtype),
        growth=xp.full(batch, 2.0, dtype=u.dtype),
        evaluations=xp.zeros(batch, dtype=xp.int32),
        non_finite=xp.zeros(batch, dtype=xp.int32),
        stationary=xp.zeros(batch, dtype=bool),
        stalled=xp.zeros(batch, dtype=bool),
    )


def step(
    equations: Callable[[Float[Array, "d"]], NormalEquations],
    box: Box,
    gradient_tolerance: float | Float[Array, ""],
    state: LeastSquaresState,
) -> LeastSquaresState:
    """One trial step; nothing changes once the start is stationary or stalled.

    Args:
        equations: the normal equations at any u (`normal_equations` of a residual).
        box: bounds.
        gradient_tolerance: cosine between residual and Jacobian at which a point is a minimum.
        state: before the step.
    """
    move = _box_step(state, box)
    # A response is nearly linear in a stiffness or damping itself, so upwards the step of a logarithm is taken in the
    # value: e^u (1 + move). Downwards that could pass zero.
    change = jnp.where(box.logarithmic & (move > 0.0), jnp.log1p(jnp.maximum(move, 0.0)), move)
    new = jnp.clip(state.u + change, box.lower, box.upper)
    predicted = -(2.0 * state.gradient @ move + move @ state.normal @ move)
    objective, gradient, normal = equations(new)
    finite = jnp.isfinite(objective)
    first = jnp.isinf(state.objective)
    gain = jnp.where(first, 0.5, (state.objective - objective) / jnp.maximum(predicted, SMALLEST))
    better = finite & (objective < state.objective)
    shrink = jnp.clip(1.0 - (2.0 * gain - 1.0) ** 3, 0.1, 2.0)
    trial = LeastSquaresState(
        u=jnp.where(better, new, state.u),
        objective=jnp.where(better, objective, state.objective),
        gradient=jnp.where(better, gradient, state.gradient),
        normal=jnp.where(better, normal, state.normal),
        damping=jnp.maximum(jnp.where(better, state.damping * shrink, state.damping * state.growth), 1e-15),
        growth=jnp.where(better, 2.0, state.growth * 2.0),
        evaluations=state.evaluations + 1,
        non_finite=state.non_finite + jnp.where(finite, 0, 1),
        stationary=state.stationary,
        stalled=state.stalled,
    )
    stationary = better & (slope_cosine(trial, box) <= gradient_tolerance)
    # Where even the undamped step promises less than the objective's rounding, there is nothing left to gain.
    rounding = (state.damping < 1.0) & (predicted >= 0.0) & (predicted < 1e-14 * state.objective)
    no_way = (trial.damping > 1e12) | (~first & (rounding | (jnp.max(jnp.abs(change)) < 1e-15)))
    stalled = ~stationary & (no_way | (first & ~finite))
    trial = trial._replace(stationary=stationary, stalled=stalled)
    end = finished(state)
    return jax.tree.map(lambda old, now: jnp.where(end, old, now), state, trial)


def held(u: Float[Array, "d"], gradient: Float[Array, "d"], box: Box) -> Bool[Array, "d"]:
    """Which coordinates lie on a bound and would leave the box downhill."""
    return ((u <= box.lower) & (gradient > 0.0)) | ((u >= box.upper) & (gradient < 0.0))


def slope_cosine(state: LeastSquaresState, box: Box) -> Float[Array, ""]:
    """Largest cosine between the residual and a movable column of the Jacobian: 0 at a minimum, whatever the units."""
    columns = jnp.maximum(jnp.diagonal(state.normal), SMALLEST)
    size = jnp.sqrt(columns * jnp.maximum(state.objective, SMALLEST))
    return jnp.max(jnp.where(held(state.u, state.gradient, box), 0.0, jnp.abs(state.gradient) / size))


def finished(state: LeastSquaresState) -> Bool[Array, ""]:
    """Whether a start has come to its end, at a minimum or not."""
    return state.stationary | state.stalled


def _box_step(state: LeastSquaresState, box: Box) -> Float[Array, "d"]:
    """Damped Gauss-Newton step within the box and within LARGEST_STEP.

    What would leave is put on its bound and the others are solved for again, given that: a step that is merely clipped
    need not lead downhill, and the search then creeps along the bound.
    """
    scale = 1.0 / jnp.sqrt(jnp.maximum(jnp.diagonal(state.normal), SMALLEST))
    scaled = state.normal * scale[:, None] * scale[None, :]
    damped = scaled + state.damping * jnp.eye(state.u.size)
    room = jnp.minimum(box.upper - state.u, LARGEST_STEP)
    high = jnp.where(box.logarithmic, jnp.expm1(room), room) / scale
    low = jnp.maximum(box.lower - state.u, -LARGEST_STEP) / scale
    slope = state.gradient * scale

    def settle(found: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        count, _, fixed, move = found
        free = ~fixed
        both = free[:, None] & free[None, :]
        given = jnp.where(fixed, move, 0.0)
        right = jnp.where(free, -slope - scaled @ given, 0.0)
        factor = jax.scipy.linalg.cho_factor(jnp.where(both, damped, jnp.eye(move.size)))
        move = jnp.where(free, jax.scipy.linalg.cho_solve(factor, right), given)
        outside = (move < low) | (move > high)
        return count + 1, jnp.any(outside), fixed | outside, jnp.clip(move, low, high)

    first = (jnp.asarray(0), jnp.asarray(True), held(state.u, state.gradient, box), jnp.zeros_like(slope))
    *_, move = jax.lax.while_loop(lambda found: found[1] & (found[0] < BOUND_PASSES), settle, first)
    return jnp.where(jnp.isfinite(move), move, 0.0) * scale
