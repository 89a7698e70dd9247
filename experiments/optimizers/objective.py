"""What an optimizer sees of a study: its cost on the unit cube, every call counted and timed."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmb
from jaxmb.fitting import Problem

AT_ONCE = 64
"""Points of a population that are computed by one call at most."""
BLOCK = 16


class Ended(Exception):
    """The answer is found, or nothing is left to spend: raised from within an optimizer."""


@dataclasses.dataclass(frozen=True)
class Goal:
    """Costs, with the phase taken safely, at which an optimizer has come somewhere."""

    near: float
    """A tenth of what the stated noise leaves of the data above the least cost: in the right minimum."""
    exact: float
    """A millionth of it above."""


class Objective:
    """The cost of a study over the unit cube of its free parameters, and derivatives; it ends a run by `Ended`.

    Parameters stand on the study's own scale, logarithmic or linear, between their bounds. Whatever the study
    minimizes, what counts is the goal of `judge`. Prices are in evaluations of the cost, by the clock (`prices`);
    seconds are those of the processor.
    """

    def __init__(self, study: jaxmb.Study, judge: Problem | None, goal: Goal, most: float, seconds: float):
        """Compile what all optimizers use.

        Args:
            study: what is minimized.
            judge: the same problem with the phase taken safely; None where the study takes it so.
            goal: costs of it to reach.
            most: evaluations of a run.
            seconds: of a run.
        """
        problem = study.problem
        self.study, self.goal, self.most, self.limit = study, goal, most, seconds
        low, high = (jnp.asarray(x) for x in (problem.free.lower, problem.free.upper))
        self.size = int(low.size)

        def on_cube(function: Callable[[jax.Array], Any]) -> Callable[[jax.Array], Any]:
            return lambda x: function(low + jnp.clip(x, 0.0, 1.0) * (high - low))

        self.traced = on_cube(problem.objective)
        """The cost at a point of the cube, for compiled functions; not counted."""
        residual = on_cube(problem.residual)
        self._cost, self._residual = jax.jit(self.traced), jax.jit(residual)
        self._costs = jax.jit(lambda points: jax.lax.map(self.traced, points, batch_size=BLOCK))
        self._gradient = jax.jit(jax.value_and_grad(self.traced))
        self._jacobian = jax.jit(jax.jacfwd(residual))
        self._judge = None if judge is None else jax.jit(on_cube(judge.objective))
        self._low, self._high = np.asarray(low), np.asarray(high)
        self._kept: dict[Any, Any] = {}
        self.prices = prices(self._cost, {"gradient": self._gradient, "jacobian": self._jacobian}, self.size)
        for count in range(BLOCK, AT_ONCE + 1, BLOCK):
            self._costs(np.zeros((count, self.size)))
        self.restart()

    def restart(self) -> None:
        """Forget what was found and spent."""
        self.spent, self.seconds, self.best = 0.0, 0.0, np.inf
        self.reached: dict[str, tuple[float, float]] = {}
        """Name of a goal -> evaluations and seconds at which it was reached."""
        self._began = time.process_time()

    def __call__(self, x: np.ndarray) -> float:
        """Cost at a point of the cube."""
        return self.told(float(self._cost(x)), 1.0, x)

    def many(self, points: np.ndarray) -> np.ndarray:
        """Costs [p] at points [p, d]."""
        if len(points) == 1:
            return np.array([self(points[0])])
        parts = []
        for some in np.split(points, range(AT_ONCE, len(points), AT_ONCE)):
            filled = np.concatenate([some, np.repeat(some[:1], -len(some) % BLOCK, axis=0)])
            parts.append(np.asarray(self._costs(filled))[: len(some)])
        costs = np.concatenate(parts)
        costs = np.where(np.isfinite(costs), costs, 1e300)
        best = int(np.argmin(costs))
        self.told(float(costs[best]), float(len(costs)), points[best])
        return costs

    def with_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Cost and its gradient [d]."""
        cost, slope = self._gradient(x)
        return self.told(float(cost), self.prices["gradient"], x), np.asarray(slope)

    def residual(self, x: np.ndarray) -> np.ndarray:
        """Residuals, whose squares sum to the cost."""
        found = np.asarray(self._residual(x))
        self.told(float(found @ found), 1.0, x)
        return found

    def jacobian(self, x: np.ndarray) -> np.ndarray:
        """Of the residuals [m, d]."""
        found = np.asarray(self._jacobian(x))
        self.told(np.inf, self.prices["jacobian"])
        return found

    def told(self, cost: float, price: float, x: np.ndarray | None = None) -> float:
        """Count what an optimizer computed by itself: the cost, the price, and the point where it is known.

        Raises:
            Ended: the answer is found, or nothing is left to spend.
        """
        self.spent += price
        self.seconds = time.process_time() - self._began
        better, self.best = cost < self.best, min(cost, self.best)
        if better and (x is not None or self._judge is None):
            self._judged(cost, x)
        if "exact" in self.reached or self.spent >= self.most or self.seconds >= self.limit:
            raise Ended
        return cost if np.isfinite(cost) else 1e300

    def _judged(self, cost: float, x: np.ndarray | None) -> None:
        if self._judge is not None:
            began = time.process_time()
            cost = float(self._judge(x))
            self._began += time.process_time() - began  # is not the optimizer's work
        for name, level in dataclasses.asdict(self.goal).items():
            if cost <= level:
                self.reached.setdefault(name, (self.spent, self.seconds))

    def cube(self, u: np.ndarray) -> np.ndarray:
        """The point of the cube of free parameters u."""
        return (u - self._low) / (self._high - self._low)

    def kept(self, key: Any, make: Callable[[], Any]) -> Any:
        """What an optimizer compiled for this study, made once."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]


def goal_of(problem: Problem, least: float) -> Goal:
    """What counts as an answer, from the least cost that is known."""
    noise = float(np.sum(np.asarray(problem.stated_variances()))) * float(problem.noise_unit) ** 2
    return Goal(least + 0.1 * noise, least + 1e-6 * noise)


def prices(one: Callable[..., Any], others: dict[str, Callable[..., Any]], size: int) -> dict[str, float]:
    """How many evaluations of the cost other functions of a point take, by the clock: medians of 15 calls each."""
    x = np.full(size, 0.5)

    def median(function: Callable[..., Any]) -> float:
        times = []
        for _ in range(16):
            began = time.process_time()
            jax.block_until_ready(function(x))
            times.append(time.process_time() - began)
        return float(np.median(times[1:]))

    unit = median(one)
    return {name: max(1.0, median(function) / unit) for name, function in others.items()}
