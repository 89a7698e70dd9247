"""Input and output of the selection of next tests, for all kinds of tests."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxmb.identify.experiments.test import Sums
from jaxmb.identify.plan.candidates import Candidate


class Known(NamedTuple):
    """Information before the next tests."""

    values: Float[np.ndarray, "d"]
    """Physical values of the free parameters."""
    made: Float[np.ndarray, "m d"]
    """Information rows of the planned tests and the prior, by u."""
    prior_std: Float[np.ndarray, "d"] | None
    """The prior's standard deviations, if any; its rows are in `made`."""
    sums: Sums | None
    """Base parameters; None without torque tests."""


class Planned(NamedTuple):
    """The next tests, or why there are none."""

    chosen: Any
    """An object with `part`, `known` and `as_json`; None without next tests."""
    remark: str
    """A sentence on them."""
    pool: tuple[Candidate, ...] = ()
    """Feasible candidates."""
    information: Float[np.ndarray, "c r d"] | None = None
    """Information rows of each candidate."""
