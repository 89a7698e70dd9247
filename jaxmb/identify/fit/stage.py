"""Interface of the stages of a fit: begin from candidates, advance, return improved candidates.

The state of a stage is a pytree of arrays, so that it can be saved and restored between two advances.
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
    """Progress of a stage."""

    u: np.ndarray
    """Best candidate so far [d]."""
    objective: float
    """Objective of the stage at `u`."""
    evaluations: int
    non_finite: int
    finished: bool
    costs: np.ndarray = np.zeros(0)
    """Cost of each evaluation of the last advance, in order, for stages that only evaluate the objective."""


class Stage(Protocol):
    """A method that minimizes the objective of a problem."""

    name: str

    def begin(self, seed: int, candidates: Float[np.ndarray, "s d"]) -> Any:
        """Initial state, from candidates with the best first; the seed determines random draws."""
        ...

    def advance(self, state: Any, goal: float) -> Any:
        """State after some further evaluations; `goal` is the lowest objective already known."""
        ...

    def progress(self, state: Any) -> Progress:
        """Progress of the state."""
        ...

    def outcome(self, state: Any) -> tuple[Float[np.ndarray, "k d"], Float[np.ndarray, "k"]]:
        """Resulting candidates and their objectives, the best first."""
        ...


class Refinement(Stage, Protocol):
    """The last stage, on all lines and with the study's weights."""

    def objective_at(self, u: Float[np.ndarray, "d"]) -> float:
        """Its objective at u, by a program that is compiled anyway."""
        ...


@compiled
def objective(problem: Problem, u: Float[Array, "d"] | Float[np.ndarray, "d"]) -> Float[Array, ""]:
    """The objective of a problem, compiled."""
    return problem.objective(jnp.asarray(u))
