"""What `[next]` asks for and what is found for it, whatever kind of test it is."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxmb.identify.experiments.test import Sums
from jaxmb.identify.plan.candidates import Candidate


class Known(NamedTuple):
    """What is known before the next tests."""

    values: Float[np.ndarray, "d"]
    """Physical values of the free parameters."""
    made: Float[np.ndarray, "m d"]
    """Rows of what is planned and known, by u."""
    prior_std: Float[np.ndarray, "d"] | None
    """The prior's standard deviations, where there is one; its rows are in `made`."""
    sums: Sums | None
    """Base parameters, where there are torque tests."""


class Planned(NamedTuple):
    """The next tests, or why there are none."""

    chosen: Any
    """They have `part`, `known` and `as_json`; None where there are none."""
    remark: str
    """A sentence on them."""
    pool: tuple[Candidate, ...] = ()
    """Candidates that they were chosen from."""
    information: Float[np.ndarray, "c r d"] | None = None
    """What each of them tells."""
