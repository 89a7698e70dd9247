"""Bounded least squares with the exact Jacobian.

A Levenberg-Marquardt method on the box: coordinates limited by a bound are fixed, those that a step would take out of
the box are set to their bound and the others solved again, and the damping follows the ratio of actual to predicted
decrease (Nielsen's rule). A minimum on a bound is reached exactly, in contrast to a change of variables to an open
interval.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Bool, Float, Int

LARGEST_STEP = 1.0
"""Largest change of any u in one step: a factor e of a logarithmic parameter."""
BOUND_PASSES = 5
"""Largest number of solutions of a step with further coordinates set to their bound."""
SMALLEST = 1e-300
MOST_EVALUATIONS, SETTLED = 40, 1e-5
"""Evaluations of a minimum found by SciPy, and relative decrease of the cost in its last step."""
MANY = 500
"""Number of unknowns beyond which SciPy finds steps by iteration: most of the Jacobian of many tests is 0, and the time
of its decomposition grows with the cube of their number."""

Residual = Callable[[Float[Array, "d"]], Float[Array, "m"]]


class NormalEquations(NamedTuple):
    """Objective, gradient and normal matrix of a residual r with Jacobian J."""

    objective: Float[Array, ""]
    """r^T r."""
    gradient: Float[Array, "d"]
    """J^T r."""
    normal: Float[Array, "d d"]
    """J^T J."""


class Box(NamedTuple):
    """Bounds of u, and a mask of its logarithmic entries."""

    lower: Float[Array, "d"]
    upper: Float[Array, "d"]
    logarithmic: Bool[Array, "d"]


class LeastSquaresState(NamedTuple):
    """State of the iteration from one start; arrays only, so that starts can be batched and saved."""

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
    """Number of trial steps without a finite cost."""
    stationary: Bool[Array, ""]
    """The gradient vanishes along all coordinates not limited by a bound."""
    stalled: Bool[Array, ""]
    """No step decreases the objective although the gradient does not vanish; or the start is not finite."""


def residual_and_jacobian(residual: Residual, u: Float[Array, "d"]) -> tuple[Float[Array, "m"], Float[Array, "m d"]]:
    """Residual [m] and its Jacobian [m, d] in one pass."""
    jacobian, value = jax.jacfwd(lambda x: (residual(x),) * 2, has_aux=True)(u)
    return value, jacobian


def normal_equations(residual: Residual, u: Float[Array, "d"]) -> NormalEquations:
    """Normal equations of a residual at u."""
    value, jacobian = residual_and_jacobian(residual, u)
    return NormalEquations(value @ value, jacobian.T @ value, jacobian.T @ jacobian)


def start(u: Any) -> LeastSquaresState:
    """State of a start at u [d], or of several [s, d], before its first evaluation, which is a step of length 0. NumPy
    in, NumPy out.
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
    """State after one trial step; unchanged once the start is stationary or stalled.

    Args:
        equations: normal equations as a function of u (`normal_equations` of a residual).
        box: bounds.
        gradient_tolerance: cosine between residual and Jacobian up to which a point is a minimum.
        state: before the step.
    """
    move = _box_step(state, box)
    # A response is nearly linear in a stiffness or damping, so an increasing logarithm is stepped in the value,
    # e^u (1 + move). A decreasing one could pass zero.
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
    # The predicted decrease of even the undamped step is below the rounding of the objective.
    rounding = (state.damping < 1.0) & (predicted >= 0.0) & (predicted < 1e-14 * state.objective)
    no_decrease = (trial.damping > 1e12) | (~first & (rounding | (jnp.max(jnp.abs(change)) < 1e-15)))
    stalled = ~stationary & (no_decrease | (first & ~finite))
    trial = trial._replace(stationary=stationary, stalled=stalled)
    end = finished(state)
    return jax.tree.map(lambda old, now: jnp.where(end, old, now), state, trial)


def bound_limited(u: Float[Array, "d"], gradient: Float[Array, "d"], box: Box) -> Bool[Array, "d"]:
    """Mask of the coordinates limited by their bound: on it, with the negative gradient pointing out of the box."""
    return ((u <= box.lower) & (gradient > 0.0)) | ((u >= box.upper) & (gradient < 0.0))


def slope_cosine(state: LeastSquaresState, box: Box) -> Float[Array, ""]:
    """Largest cosine between the residual and a column of the Jacobian not limited by a bound: 0 at a minimum."""
    size = jnp.sqrt(jnp.maximum(jnp.diagonal(state.normal), SMALLEST) * jnp.maximum(state.objective, SMALLEST))
    return jnp.max(jnp.where(bound_limited(state.u, state.gradient, box), 0.0, jnp.abs(state.gradient) / size))


def finished(state: LeastSquaresState) -> Bool[Array, ""]:
    """Whether the iteration has ended, at a minimum or not."""
    return state.stationary | state.stalled


def _box_step(state: LeastSquaresState, box: Box) -> Float[Array, "d"]:
    """Damped Gauss-Newton step within the box and within `LARGEST_STEP`.

    Coordinates that would leave are set to their bound and the others are solved again: a merely clipped step need not
    be a descent direction and makes slow progress along the bound.
    """
    scale = 1.0 / jnp.sqrt(jnp.maximum(jnp.diagonal(state.normal), SMALLEST))
    scaled = state.normal * scale[:, None] * scale[None, :]
    damped = scaled + state.damping * jnp.eye(state.u.size)
    room = jnp.minimum(box.upper - state.u, LARGEST_STEP)
    high = jnp.where(box.logarithmic, jnp.expm1(room), room) / scale
    low = jnp.maximum(box.lower - state.u, -LARGEST_STEP) / scale
    slope = state.gradient * scale

    def fix_outside(found: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        count, _, fixed, move = found
        free = ~fixed
        both = free[:, None] & free[None, :]
        given = jnp.where(fixed, move, 0.0)
        right = jnp.where(free, -slope - scaled @ given, 0.0)
        factor = jax.scipy.linalg.cho_factor(jnp.where(both, damped, jnp.eye(move.size)))
        move = jnp.where(free, jax.scipy.linalg.cho_solve(factor, right), given)
        outside = (move < low) | (move > high)
        return count + 1, jnp.any(outside), fixed | outside, jnp.clip(move, low, high)

    first = (jnp.asarray(0), jnp.asarray(True), bound_limited(state.u, state.gradient, box), jnp.zeros_like(slope))
    *_, move = jax.lax.while_loop(lambda found: found[1] & (found[0] < BOUND_PASSES), fix_outside, first)
    return jnp.where(jnp.isfinite(move), move, 0.0) * scale


def host_minimum(
    state: Callable[[Float[np.ndarray, "d"]], tuple[Float[np.ndarray, "m"], Float[np.ndarray, "m d"]]],
    first: Float[np.ndarray, "d"],
    lower: Float[np.ndarray, "d"],
    upper: Float[np.ndarray, "d"],
    evaluations: int = MOST_EVALUATIONS,
    settled: float = SETTLED,
) -> tuple[Float[np.ndarray, "d"], Float[np.ndarray, "m"]]:
    """Bounded least squares by SciPy, without compiling a program of its own, and the residual at its end.

    Args:
        state: residual and Jacobian at a point.
        first: start; moved into the bounds.
        lower: bounds.
        upper: bounds.
        evaluations: largest number of evaluations of the residual.
        settled: relative decrease of the sum of squares by a step with which it ends.
    """

    @functools.lru_cache(maxsize=1)
    def at(key: bytes) -> tuple[np.ndarray, np.ndarray]:
        residual, jacobian = state(np.frombuffer(key))
        return np.nan_to_num(residual, nan=1e6), np.nan_to_num(jacobian)

    def slopes(x: np.ndarray) -> Any:
        found = at(x.tobytes())[1]
        return found if x.size <= MANY else scipy.sparse.csr_array(found)

    def minimum(method: Literal["trf", "dogbox"]) -> Any:
        return scipy.optimize.least_squares(
            lambda x: at(x.tobytes())[0],
            np.clip(first, lower + 1e-9 * width, upper - 1e-9 * width),
            jac=slopes,  # pyright: ignore[reportArgumentType]  (stubs know names alone)
            bounds=(lower, upper),
            method=method,
            x_scale="jac",
            ftol=settled,
            max_nfev=evaluations,
        )

    width = np.where(np.isfinite(upper - lower), upper - lower, 1.0)
    try:
        found = minimum("trf")
    except np.linalg.LinAlgError:  # LAPACK's divide and conquer fails for single well-conditioned matrices
        found = minimum("dogbox")
    return found.x, found.fun
