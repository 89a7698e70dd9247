"""Settings of search, refinement, start and stopping of a fit."""

import dataclasses
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Bool, Float
from pydantic import Field, model_validator

from jaxmb.machine.values import Name, NonNegative, Part

Count = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]


class SearchPart(Part):
    """Population search that proposes starts. A string is short for a table with only the algorithm."""

    algorithm: Name = "auto"
    """`"auto"`: random starts within the bounds, and in late rounds CMA-ES from the best minimum if starts disagree or
    the noise does not explain it. `"random"`: random starts only. Or the name of an evosax algorithm, which begins
    every round; letter case, `_` and `-` are ignored."""
    population: Count = 32
    """Number of candidates of a generation."""
    generations: Count = 30
    """Number of generations of a round."""

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, data: Any) -> Any:
        return {"algorithm": data} if isinstance(data, str) else data


class RefinePart(Part):
    """Refinement from the best candidates."""

    method: Literal["least-squares", "nelder-mead", "adam", "l-bfgs"] = "least-squares"
    """Method of refinement."""
    starts: Annotated[Count, Field(le=10_000)] = 2
    """Number of candidates of each round."""
    coarse_lines: Annotated[int, Field(ge=0, le=10_000, strict=True)] = 32
    """Number of evenly weighted lines of each FRF test in the first fit of all starts; fewer for many tests, 0: no such
    fit."""
    coarse_steps: Count = 150
    """Largest number of steps of that fit."""
    keep: Annotated[Count, Field(le=1000)] = 2
    """Number of starts that are refined on all lines with the study's weights."""
    most_steps: Count = 200
    """Largest number of least-squares steps, or of evaluations of another method."""
    gradient_tolerance: NonNegative = 1e-9
    """Cosine between residual and Jacobian at which a start has converged [1]."""


@dataclasses.dataclass(frozen=True)
class FitSettings:
    """Settings of search and refinement, and stopping criteria."""

    search: SearchPart = dataclasses.field(default_factory=SearchPart)
    refine: RefinePart = dataclasses.field(default_factory=RefinePart)
    rounds: int = 40
    least_rounds: int = 8
    """Smallest number of rounds, unless the cost is below the tolerance."""
    agreement: int = 3
    """Stop when this many starts have converged to the same best minimum, and noise explains its cost."""
    tolerance: float = 0.0
    """Cost below which the fit stops."""


@dataclasses.dataclass(frozen=True, eq=False)
class Start:
    """First start of a fit."""

    values: Float[np.ndarray, "d"]
    """Physical values."""
    given: Bool[np.ndarray, "d"]
    """Mask of the values stated by the user; the others are estimates."""
    random: bool = False
    """Whether values that were not given start at random instead of at the estimate."""
