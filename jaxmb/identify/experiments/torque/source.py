"""What a torque test was made of."""

import dataclasses

import numpy as np

from jaxmb.identify.experiments.entry import Source
from jaxmb.identify.experiments.torque.gain_fit import Recorded
from jaxmb.identify.experiments.torque.prepared import Prepared


@dataclasses.dataclass(frozen=True, eq=False)
class TorqueSource(Source):
    """The samples that a torque test keeps of its record."""

    time_s: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    """Of each row."""
    cutoff_hz: float | None = None
    """Of the filter of its angles, where it was searched."""
    velocity: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    """Of the coordinate of each row, rad/s or m/s."""
    coordinates: tuple[str, ...] = ()
    """Whose effort was measured, in the order of the test's numbers."""
    revolute: tuple[bool, ...] = ()
    """Which of them are angles."""
    doubts: tuple[str, ...] = ()
    """Sentences on what may be wrong with the motion."""
    tried: Prepared | None = None
    """Its equations, where further terms of friction are to be tried on them."""
    kinds: tuple[str, ...] = ()
    """Which."""
    drives: tuple[str, ...] = ()
    """Names of those whose recordings it is."""
    recorded: Recorded | None = None
    """Its equations with the recordings of its drives, where gains of these are to be found first."""
