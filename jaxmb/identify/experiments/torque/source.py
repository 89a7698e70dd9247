"""What a torque test was made of."""

import dataclasses

import numpy as np

from jaxmb.identify.experiments.entry import Source


@dataclasses.dataclass(frozen=True, eq=False)
class TorqueSource(Source):
    """The samples that a torque test keeps of its record."""

    time_s: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    """Of each row."""
    coordinates: tuple[str, ...] = ()
    """Whose effort was measured, in the order of the test's numbers."""
    revolute: tuple[bool, ...] = ()
    """Which of them are angles."""
    doubts: tuple[str, ...] = ()
    """Sentences on what may be wrong with the motion."""
