"""The ways to lower a cost, all driven alike: begin from candidates, advance a while, hand on what was found.

A stage's state is a pytree of arrays, so that any of them can be saved between two advances and taken up again.
"""

from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.identify.fit.problem import Problem

STEPS_AT_ONCE = 10
NOT_FINITE = 1e300
"""Cost of a candidate whose objective is not finite, for methods that compare costs."""


class Progress(NamedTuple):
    """Where a stage stands."""

    u: np.ndarray
    """Best candidate so far [d]."""
    objective: float
    """What the stage minimizes, there."""
    evaluations: int
    non_finite: int
    finished: bool
    costs: np.ndarray = np.zeros(0)
    """Of each evaluation of the last advance, in their order, by stages that evaluate the objective alone."""


class Stage(Protocol):
    """One way to lower the objective of a problem."""

    name: str

    def begin(self, seed: int, candidates: Float[np.ndarray, "s d"]) -> Any:
        """State at the start, from candidates with the best first; the seed decides what is drawn."""
        ...

    def advance(self, state: Any, goal: float) -> Any:
        """State some evaluations later; `goal` is the lowest objective that is known already, from elsewhere."""
        ...

    def progress(self, state: Any) -> Progress:
        """Where the state stands."""
        ...

    def outcome(self, state: Any) -> tuple[Float[np.ndarray, "k d"], Float[np.ndarray, "k"]]:
        """Candidates handed on and their objectives, the best first."""
        ...


class Refinement(Stage, Protocol):
    """The last stage, on all lines and with the study's own weights."""

    def objective_at(self, u: Float[np.ndarray, "d"]) -> float:
        """What it minimizes, at u, by a program that it runs anyway."""
        ...


@compiled
def objective(problem: Problem, u: Float[Array, "d"] | Float[np.ndarray, "d"]) -> Float[Array, ""]:
    """The objective of a problem, compiled."""
    return problem.objective(jnp.asarray(u))
