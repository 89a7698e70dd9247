"""Instruments of a deflection test."""

import math
from typing import Annotated

from pydantic import Field

from jaxmb.machine.values import NonNegative, Part, Positive

MOST_DRAWS = 100_000


class Instruments(Part):
    """Errors of the instruments, standard deviations of normal laws."""

    tracker_mm: Positive
    """Of each component of a measured position; a displacement is the difference of two."""
    reflectors_m: Positive = 0.2
    """How far from the point its reflectors sit: a rotation has the error of a translation over this."""
    balance_kg: NonNegative = 0.0
    """Of the size of the load."""
    direction_deg: NonNegative = 0.0
    """Of the direction of the force, about each axis."""
    lever_mm: NonNegative = 0.0
    """Of each component of the position at which the force acts."""
    encoder_deg: NonNegative = 0.0
    """Of each coordinate; a prismatic one has none."""
    repeat_deg: NonNegative = 0.0
    """Of each revolute coordinate from one reading to the next: drives hold it by encoders that err anew without and
    with the load, and the points move with it."""
    draws: Annotated[int, Field(ge=0, le=MOST_DRAWS, strict=True)] = 0
    """Monte-Carlo draws that tell what these errors do to the identified values."""

    def with_scatter(self, kind: int, factor: float) -> "Instruments":
        """The instruments with larger errors of measured translations (0) or rotations (1)."""
        if kind == 1:
            return self.model_copy(update={"reflectors_m": self.reflectors_m / factor})
        changed = {"tracker_mm": factor * self.tracker_mm, "reflectors_m": factor * self.reflectors_m}
        return self.model_copy(update=changed)

    @property
    def translation_std(self) -> float:
        """Of each component of a displacement, m."""
        return math.sqrt(2.0) * 1e-3 * self.tracker_mm

    @property
    def rotation_std(self) -> float:
        """rad."""
        return self.translation_std / self.reflectors_m

    @property
    def force_std(self) -> float:
        """N."""
        return 9.80665 * self.balance_kg

    @property
    def direction_std(self) -> float:
        """rad."""
        return math.radians(self.direction_deg)

    @property
    def lever_std(self) -> float:
        """m."""
        return 1e-3 * self.lever_mm

    @property
    def coordinate_std(self) -> float:
        """rad."""
        return math.radians(self.encoder_deg)

    @property
    def changes_cases(self) -> bool:
        """Whether true loads or postures differ from the stated ones."""
        return self.balance_kg + self.direction_deg + self.lever_mm + self.encoder_deg > 0.0

    @property
    def repeat_std(self) -> float:
        """rad, of what a coordinate turns between two readings."""
        return math.sqrt(2.0) * math.radians(self.repeat_deg)
