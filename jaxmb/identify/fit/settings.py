"""How a fit searches and refines, from where, and when it stops."""

import dataclasses
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Bool, Float
from pydantic import Field, model_validator

from jaxmb.machine.values import Name, NonNegative, Part

Count = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]


class SearchPart(Part):
    """Population search that proposes starts; its algorithm's name alone stands for a table with nothing else."""

    algorithm: Name = "auto"
    """"auto": starts drawn evenly within the bounds, and a population search from the best minimum in later rounds, if
    there are any; "random": drawn starts only; or an evosax algorithm, which then begins every round."""
    population: Count = 32
    generations: Count = 30

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, data: Any) -> Any:
        return {"algorithm": data} if isinstance(data, str) else data


class RefinePart(Part):
    """Refinement from the best candidates."""

    method: Literal["least-squares", "nelder-mead", "adam", "l-bfgs"] = "least-squares"
    starts: Annotated[Count, Field(le=10_000)] = 2
    """Candidates of each round."""
    coarse_lines: Annotated[int, Field(ge=0, le=10_000, strict=True)] = 32
    """Lines of each FRF test that all starts are first fitted to, evenly weighted, of many tests fewer; 0 leaves that
    out."""
    coarse_steps: Count = 150
    keep: Annotated[Count, Field(le=1000)] = 2
    """How many of the starts go on to all lines and the study's own weights."""
    most_steps: Count = 200
    """Most steps of least squares, or evaluations of another method."""
    gradient_tolerance: NonNegative = 1e-9


@dataclasses.dataclass(frozen=True)
class FitSettings:
    """How a fit searches and refines, and when it stops."""

    search: SearchPart = dataclasses.field(default_factory=SearchPart)
    refine: RefinePart = dataclasses.field(default_factory=RefinePart)
    rounds: int = 40
    least_rounds: int = 8
    """Rounds before the fit may stop for another reason than its tolerance."""
    agreement: int = 3
    """Stop where this many starts came to the same best minimum, and the noise explains its cost."""
    tolerance: float = 0.0
    """Cost below which the fit is good enough to stop."""


@dataclasses.dataclass(frozen=True, eq=False)
class Start:
    """Where the first start of a fit is."""

    values: Float[np.ndarray, "d"]
    """Physical values."""
    given: Bool[np.ndarray, "d"]
    """Which of them a user stated; the others are estimates."""
    random: bool = False
    """Whether what was not given starts at random instead of at the estimate."""
