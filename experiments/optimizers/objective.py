"""What an optimizer sees of a study: its cost on the unit cube, every call counted and timed."""

import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np

import jaxmb
from jaxmb.fitting import Problem, objective


class Ended(Exception):
    """The answer is found, or nothing is left to spend: raised from within an optimizer."""


@dataclasses.dataclass(frozen=True)
class Goal:
    """Costs at which an optimizer has come somewhere."""

    basin: float
    """A tenth of what the stated noise leaves of the data above the least cost: near the right minimum."""
    exact: float
    """A millionth of it above."""


class Objective:
    """The cost of a study over the unit cube of its free parameters, and derivatives; it ends a run by `Ended`.

    Parameters stand on the study's own scale, logarithmic or linear, between their bounds. What takes a residual and
    its Jacobian counts as `jacobian_price` evaluations, a gradient as `gradient_price`, as long as they take here.
    """

    def __init__(self, problem: Problem, goal: Goal, most: int, seconds: float):
        free = problem.free
        self.size = free.size
        self._low, self._high = np.asarray(free.lower), np.asarray(free.upper)
        self._problem, self.goal, self._most, self._limit = problem, goal, most, seconds
        self.prices = prices(problem)
        self.restart()

    def restart(self) -> None:
        """Forget what was found and spent."""
        self.spent, self.seconds, self.best = 0.0, 0.0, np.inf
        self.reached: dict[str, tuple[float, float]] = {}
        """Name of a goal -> evaluations and seconds at which it was reached."""
        self._began = time.perf_counter()

    def __call__(self, x: np.ndarray) -> float:
        """Cost at a point of the cube."""
        return self._told(float(objective(self._problem, self._u(x))), 1.0)

    def many(self, points: np.ndarray) -> np.ndarray:
        """Costs [p] at points [p, d]."""
        costs = np.asarray(_costs(self._problem, self._u(points)))
        costs = np.where(np.isfinite(costs), costs, 1e300)
        self._told(float(costs.min()), float(len(costs)))
        return costs

    def with_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Cost and its gradient [d]."""
        cost, slope = _with_gradient(self._problem, self._u(x))
        return self._told(float(cost), self.prices["gradient"]), np.asarray(slope) * (self._high - self._low)

    def residual(self, x: np.ndarray) -> np.ndarray:
        """Residuals, whose squares sum to the cost."""
        found = np.asarray(_residual(self._problem, self._u(x)))
        self._told(float(found @ found), 1.0)
        return found

    def jacobian(self, x: np.ndarray) -> np.ndarray:
        """Of the residuals [m, d]."""
        found = np.asarray(_jacobian(self._problem, self._u(x)))
        self._told(np.inf, self.prices["jacobian"])
        return found * (self._high - self._low)

    def _u(self, x: np.ndarray) -> jax.Array:
        return jax.device_put(self._low + np.clip(x, 0.0, 1.0) * (self._high - self._low))

    def _told(self, cost: float, price: float) -> float:
        self.spent += price
        self.seconds = time.perf_counter() - self._began
        self.best = min(self.best, cost)
        for name, level in dataclasses.asdict(self.goal).items():
            if self.best <= level:
                self.reached.setdefault(name, (self.spent, self.seconds))
        if "exact" in self.reached or self.spent >= self._most or self.seconds >= self._limit:
            raise Ended
        return cost if np.isfinite(cost) else 1e300


def goal_of(study: jaxmb.Study, least: float) -> Goal:
    """What counts as an answer, from the least cost that is known."""
    problem = study.problem
    noise = float(np.sum(np.asarray(problem.row_weights()))) * float(problem.noise_unit) ** 2
    return Goal(least + 0.1 * noise, least + 1e-6 * noise)


def prices(problem: Problem) -> dict[str, float]:
    """How many evaluations of the cost a gradient and a Jacobian take, by the clock: medians of 15 calls each."""
    u = jnp.asarray(0.5 * (problem.free.lower + problem.free.upper))

    def median(function) -> float:
        times = []
        for _ in range(16):
            began = time.perf_counter()
            jax.block_until_ready(function(problem, u))
            times.append(time.perf_counter() - began)
        return float(np.median(times[1:]))

    one = median(objective)
    return {"gradient": max(1.0, median(_with_gradient) / one), "jacobian": max(1.0, median(_jacobian) / one)}


@jax.jit
def _costs(problem: Problem, points: jax.Array) -> jax.Array:
    return jax.lax.map(problem.objective, points, batch_size=16)


@jax.jit
def _with_gradient(problem: Problem, u: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.value_and_grad(problem.objective)(u)


@jax.jit
def _residual(problem: Problem, u: jax.Array) -> jax.Array:
    return problem.residual(u)


@jax.jit
def _jacobian(problem: Problem, u: jax.Array) -> jax.Array:
    return jax.jacfwd(problem.residual)(u)
