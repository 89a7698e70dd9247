"""Refinement from candidates: bounded least squares, and for comparison Nelder-Mead and gradient descent."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float, Int

from jaxmb.compiled import compiled, compiled_partial
from jaxmb.identify.estimation.least_squares import (
    Box,
    LeastSquaresState,
    NormalEquations,
    Residual,
    finished,
    normal_equations,
    start,
    step,
)
from jaxmb.identify.fit.devices import from_first_device, in_blocks, replicated, sharded
from jaxmb.identify.fit.problem import Problem, compressed, objective, with_tests_sharded
from jaxmb.identify.fit.state import NOT_FINITE, STEPS_AT_ONCE, Progress

MOST_STEPS = 60
"""Largest number of steps from a point near a minimum."""
NEGLIGIBLE_CHI2 = 1e-3
"""Decrease of chi-square in `STEPS_AT_ONCE` steps, over its mean for a row, that is negligible: estimates change by a
few hundredths of a standard deviation at most."""
CREEPING_AFTER = 4 * STEPS_AT_ONCE
"""Smallest number of evaluations before a start ends for that reason: identifiable problems converge fully in fewer."""
STATIONARY = 1e-9
"""Cosine between residual and Jacobian at convergence."""


class LeastSquares:
    """Bounded least squares from several candidates at once (see `least_squares`).

    The number of starts is constant, so that one program serves any number of candidates: missing ones are padded with
    ended starts that are never evaluated.
    """

    def __init__(
        self,
        name: str,
        problem: Problem,
        box: Box,
        most_steps: int,
        starts: int,
        gradient_tolerance: float,
        exact: float = 0.0,
    ):
        """Store the settings; once one start is below the objective `exact`, all others stop."""
        self.name = name
        self.starts = starts
        # The tolerance is an array, so that another value does not recompile.
        problem = with_tests_sharded(problem, starts)
        self._advance = compiled_partial(
            _advance_least_squares, *replicated((problem, box, jax.device_put(np.asarray(gradient_tolerance))))
        )
        self._most_steps, self._exact = most_steps, exact
        self._negligible = NEGLIGIBLE_CHI2 / max(problem.data_rows, 1)
        one_by_one = exact > 0.0 and problem.memory_of_fits == 0
        self._at_once = (1 if problem.tests_sharded else jax.device_count()) if one_by_one else starts

    def begin(self, seed: int, candidates: Float[np.ndarray, "s d"]) -> LeastSquaresState:
        known = np.asarray(candidates)[: self.starts]
        state = start(np.concatenate([known, np.repeat(known[:1], self.starts - len(known), axis=0)]))
        return state._replace(stalled=np.arange(self.starts) >= len(known))

    def advance(self, state: LeastSquaresState, goal: float) -> LeastSquaresState:
        before, waiting = np.asarray(state.objective), self._waiting(state)
        state = state._replace(stalled=np.asarray(state.stalled) | waiting)
        # running starts first, so that they are distributed evenly and blocks of ended ones finish immediately
        resting = np.asarray(state.stationary) | state.stalled
        order = np.argsort(resting, kind="stable")
        left = self._most_steps - int(np.max(np.asarray(state.evaluations), where=~resting, initial=0))
        state = self._advance(*replicated((_taken(state, order), np.asarray(min(STEPS_AT_ONCE, left)))))
        state = _taken(state, np.argsort(order))
        after, stalled = np.asarray(state.objective), np.asarray(state.stalled) & ~waiting
        ended = np.asarray(state.stationary) | stalled
        # A slow start far above the best known objective is stopped, and all others once one is exact.
        goal = np.min(after, where=ended | (after <= self._exact), initial=goal)
        with np.errstate(invalid="ignore"):  # of starts that were never finite
            creeps = before - after < 1e-3 * after
            negligible = before - after < self._negligible * after
        stalled |= negligible & ~ended & (np.asarray(state.evaluations) >= CREEPING_AFTER) & ~waiting
        hopeless = ~ended & (after > 2.0 * goal) & (creeps | (goal <= self._exact))
        return state._replace(stalled=stalled | hopeless)

    def objective_at(self, u: Float[np.ndarray, "d"]) -> float:
        begin = self.begin(0, u[None])  # whose first step does not move
        return float(np.asarray(self._advance(*replicated((begin, np.asarray(1)))).objective)[0])

    def _waiting(self, state: LeastSquaresState) -> np.ndarray:
        """Mask of unfinished starts that are not advanced now: those with the most steps, and, where one exact start
        would stop the others, all but the first `_at_once`."""
        going = ~(np.asarray(state.stationary) | np.asarray(state.stalled))
        turn = going & (np.asarray(state.evaluations) < self._most_steps)
        return going & ~(turn & (np.cumsum(turn) <= self._at_once))

    def progress(self, state: LeastSquaresState) -> Progress:
        objectives = _ranked(state.objective)
        best = int(np.argmin(objectives))
        evaluations = np.asarray(state.evaluations)
        return Progress(
            np.asarray(state.u)[best],
            float(objectives[best]),
            int(evaluations.sum()),
            int(np.asarray(state.non_finite).sum()),
            bool(np.all(np.asarray(state.stationary) | np.asarray(state.stalled) | (evaluations >= self._most_steps))),
        )

    def outcome(self, state: LeastSquaresState) -> tuple[np.ndarray, np.ndarray]:
        evaluated = np.asarray(state.evaluations) > 0
        objectives = _ranked(state.objective)[evaluated]
        order = np.argsort(objectives, kind="stable")
        return np.asarray(state.u)[evaluated][order], objectives[order]


def _advance_least_squares(
    problem: Problem,
    box: Box,
    gradient_tolerance: Float[Array, ""],
    state: LeastSquaresState,
    most_steps: Int[Array, ""] | Int[np.ndarray, ""],
) -> LeastSquaresState:
    def all_advanced(states: LeastSquaresState, problem: Problem, box: Box, tolerance: Array, most_steps: Any) -> Any:
        def advanced(s: LeastSquaresState) -> LeastSquaresState:
            return _some_steps_of(problem.normal_equations, box, tolerance, s, most_steps, problem.tests_sharded)

        return in_blocks(advanced, states, problem.memory_of_fits)

    same = problem, box, gradient_tolerance, most_steps
    return all_advanced(state, *same) if problem.tests_sharded else sharded(all_advanced, state, *same)


def _taken(state: LeastSquaresState, order: Int[np.ndarray, "s"]) -> LeastSquaresState:
    """The starts in another order."""
    return jax.tree.map(lambda x: np.asarray(x)[order], state)


@compiled
def least_squares_from(problem: Problem, box: Box, u: Float[Array, "d"]) -> LeastSquaresState:
    """Bounded least squares from one point until convergence (`finished`) or `MOST_STEPS`; compiled as a whole."""
    return _some_steps_of(problem.normal_equations, box, STATIONARY, start(u), MOST_STEPS)


def least_squares_to_end(
    residual: Residual,
    box: Box,
    u: Float[Array, "d"],
    most_steps: int = MOST_STEPS,
    gradient_tolerance: float = STATIONARY,
) -> LeastSquaresState:
    """`least_squares_from` of any residual, in compiled functions."""
    return _some_steps_of(functools.partial(normal_equations, residual), box, gradient_tolerance, start(u), most_steps)


def _some_steps_of(
    equations: Callable[[Array], NormalEquations],
    box: Box,
    gradient_tolerance: float | Float[Array, ""],
    state: LeastSquaresState,
    most_steps: int | Array | np.ndarray,
    tests_sharded: bool = False,
) -> LeastSquaresState:
    """State after at most so many steps; with tests sharded over devices, with the numbers of the first device."""

    def is_running(counted: tuple[Array, LeastSquaresState]) -> Array:
        return (counted[0] < most_steps) & ~finished(counted[1])

    def one(counted: tuple[Array, LeastSquaresState]) -> tuple[Array, LeastSquaresState]:
        new = step(equations, box, gradient_tolerance, counted[1])
        return counted[0] + 1, from_first_device(new) if tests_sharded else new

    return jax.lax.while_loop(is_running, one, (jnp.asarray(0), state))[1]


class OptimizerState(NamedTuple):
    """State of one of the optimizers for comparison."""

    u: Any
    memory: Any
    """Vertices of the simplex [v, d], or the state of optax's optimizer."""
    best_u: Any
    best: Any
    evaluations: Any
    non_finite: Any
    converged: Any


class Optimizer:
    """An optimizer from the best candidate, for comparison with `LeastSquares`."""

    name = "refine"
    latest: Sequence[float] = ()
    """Costs of the last evaluations, where the method reports them."""

    def __init__(self, problem: Problem, box: Box, most_evaluations: int):
        self.problem, self.box, self.most_evaluations = problem, box, most_evaluations

    def objective_at(self, u: Float[np.ndarray, "d"]) -> float:
        return float(objective(self.problem, u))

    def progress(self, state: OptimizerState) -> Progress:
        evaluations = int(state.evaluations)
        ended = bool(state.converged) or evaluations >= self.most_evaluations
        found = np.asarray(state.best_u), float(state.best), evaluations, int(state.non_finite), ended
        return Progress(*found, np.array(self.latest))

    def outcome(self, state: OptimizerState) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(state.best_u)[None], np.asarray(state.best)[None]


class NelderMead(Optimizer):
    """SciPy's bounded Nelder-Mead method."""

    def begin(self, seed: int, candidates: Float[np.ndarray, "s d"]) -> OptimizerState:
        u, low, high = (np.asarray(part) for part in (candidates[0], self.box.lower, self.box.upper))
        # A twentieth of the bounds' width along each axis, inwards, as fminsearch takes a twentieth of the value.
        edge = 0.05 * (high - low)
        corners = u + np.diag(np.where(u + edge <= high, edge, -edge))
        simplex, zero = np.vstack([u, corners]), np.asarray(0)
        return OptimizerState(u, simplex, u, np.asarray(np.inf), zero, zero, np.asarray(False))

    def advance(self, state: OptimizerState, goal: float) -> OptimizerState:
        self.latest = latest = list[float]()

        def cost(u: np.ndarray) -> float:
            value = self.objective_at(u)
            latest.append(value if np.isfinite(value) else NOT_FINITE)
            return latest[-1]

        left = min(1000, self.most_evaluations - int(state.evaluations))
        options = {
            "initial_simplex": state.memory, "maxfev": left, "maxiter": left, "xatol": 1e-12, "fatol": 1e-15,
        }  # fmt: skip
        bounds = list(zip(np.asarray(self.box.lower), np.asarray(self.box.upper), strict=True))
        found = scipy.optimize.minimize(cost, state.u, method="Nelder-Mead", bounds=bounds, options=options)
        simplex, evaluations = found.final_simplex[0], state.evaluations + found.nfev
        non_finite, converged = state.non_finite + latest.count(NOT_FINITE), np.asarray(found.status == 0)
        return OptimizerState(
            simplex[0], simplex, simplex[0], np.asarray(found.fun), evaluations, non_finite, converged
        )


class Descent(Optimizer):
    """optax's Adam or L-BFGS, projected onto the box."""

    def __init__(self, problem: Problem, box: Box, method: str, most_steps: int):
        super().__init__(problem, box, most_steps)
        self._optimizer = _optimizer(method, most_steps)

    def begin(self, seed: int, candidates: Float[np.ndarray, "s d"]) -> OptimizerState:
        u, zero = jnp.asarray(candidates)[0], jnp.asarray(0)
        return OptimizerState(u, self._optimizer.init(u), u, jnp.asarray(jnp.inf), zero, zero, jnp.asarray(False))

    def advance(self, state: OptimizerState, goal: float) -> OptimizerState:
        count = np.asarray(min(10 * STEPS_AT_ONCE, self.most_evaluations - int(state.evaluations)))
        return _some_steps(self._optimizer, self.problem, self.box, state, count)


@functools.lru_cache
def _optimizer(method: str, most_steps: int) -> Any:
    """optax's optimizer, cached for all fits with the same settings, so that compiled programs are reused."""
    import optax  # a tenth of a second to import

    return optax.lbfgs() if method == "l-bfgs" else optax.adam(optax.cosine_decay_schedule(0.1, most_steps))


@compiled
def _some_steps(
    optimizer: Any, problem: Problem, box: Box, state: OptimizerState, count: Int[np.ndarray, ""]
) -> OptimizerState:
    def one(_: int, s: OptimizerState) -> OptimizerState:
        value, gradient = jax.value_and_grad(problem.objective)(s.u)
        finite = jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient))
        updates, memory = optimizer.update(
            gradient, s.memory, s.u, value=value, grad=gradient, value_fn=problem.objective
        )  # fmt: skip
        better = finite & (value < s.best)
        return OptimizerState(
            jnp.where(finite, jnp.clip(s.u + updates, box.lower, box.upper), s.best_u),
            memory,
            jnp.where(better, s.u, s.best_u),
            jnp.where(better, value, s.best),
            s.evaluations + 1,
            s.non_finite + ~finite,
            s.converged,
        )

    return jax.lax.fori_loop(0, count, one, state)


def _ranked(objective: Array) -> np.ndarray:
    values = np.asarray(objective)
    return np.where(np.isfinite(values), values, np.inf)


MOST_PASSES = 3
INSENSITIVE = 1e-12
"""Length of a column of the Jacobian, relative to the longest, up to which its parameter has no effect."""
LARGEST_LAST_STEP = 1e-6
"""Largest change of any entry of u in the last step: beyond, the point is not an accurate minimum."""


def polished(problem: Problem, u: Float[np.ndarray, "d"]) -> Float[np.ndarray, "d"]:
    """The minimum, to the accuracy of the residual.

    A search ends within sqrt(1e-16) of the minimum, limited by rounding of the objective, so that results differ
    between computers. Gauss-Newton steps use the gradient, which is still accurate there.

    Args:
        problem: the problem.
        u: end of a search; entries on a bound stay there.
    """
    lower, upper = np.asarray(problem.free.lower), np.asarray(problem.free.upper)
    free = (u > lower) & (u < upper)
    best, slope = u, np.inf
    for _ in range(MOST_PASSES + 1):
        residual, jacobian = compressed(problem, u)
        jacobian = jacobian[:, free]
        gradient_norm = float(np.linalg.norm(jacobian.T @ residual))
        if not gradient_norm < slope:
            return best
        best, slope = u, gradient_norm
        step = np.zeros(u.size)
        step[free] = np.linalg.lstsq(jacobian, -residual)[0]
        u = np.clip(u + step, lower, upper)
        if not np.max(np.abs(step), initial=0.0) <= LARGEST_LAST_STEP:
            return best
    return best


def insensitive_restored(
    problem: Problem, u: Float[np.ndarray, "d"], initial: Float[np.ndarray, "d"]
) -> Float[np.ndarray, "d"]:
    """The minimum u with the initial values of all parameters without effect on the data or the prior.

    The start that led to the minimum may have random values of these.
    """
    size = np.linalg.norm(compressed(problem, u)[1], axis=0)
    return np.where(size <= INSENSITIVE * size.max(initial=0.0), initial, u)
