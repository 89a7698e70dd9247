"""Instruments of a deflection test."""

import math
from typing import Annotated

from pydantic import Field

from jaxmb.machine.values import NonNegative, Part, Positive

MOST_DRAWS = 100_000


class Instruments(Part):
    """Standard deviations of the normally distributed errors of the instruments."""

    tracker_mm: Positive
    """Each component of a measured position; a displacement is the difference of two."""
    reflectors_m: Positive = 0.2
    """Distance of the reflectors from the point: the error of a rotation is that of a translation over this."""
    balance_kg: NonNegative = 0.0
    """Magnitude of the load."""
    direction_deg: NonNegative = 0.0
    """Direction of the force, about each axis."""
    lever_mm: NonNegative = 0.0
    """Each component of the point of application of the force."""
    encoder_deg: NonNegative = 0.0
    """Each revolute coordinate; prismatic ones have no error."""
    repeat_deg: NonNegative = 0.0
    """Repeatability of each revolute coordinate: drives position it anew without and with the load, and the points move
    with it."""
    draws: Annotated[int, Field(ge=0, le=MOST_DRAWS, strict=True)] = 0
    """Monte-Carlo draws for the effect of these errors on the identified values."""

    def with_scatter(self, kind: int, factor: float) -> "Instruments":
        """The instruments with the errors of measured translations (0) or rotations (1) scaled."""
        if kind == 1:
            return self.model_copy(update={"reflectors_m": self.reflectors_m / factor})
        changed = {"tracker_mm": factor * self.tracker_mm, "reflectors_m": factor * self.reflectors_m}
        return self.model_copy(update=changed)

    @property
    def translation_std(self) -> float:
        """Standard deviation of each component of a displacement, m."""
        return math.sqrt(2.0) * 1e-3 * self.tracker_mm

    @property
    def rotation_std(self) -> float:
        """Standard deviation of each component of a rotation, rad."""
        return self.translation_std / self.reflectors_m

    @property
    def force_std(self) -> float:
        """Standard deviation of the magnitude of the force, N."""
        return 9.80665 * self.balance_kg

    @property
    def direction_std(self) -> float:
        """Standard deviation of the direction of the force about each axis, rad."""
        return math.radians(self.direction_deg)

    @property
    def lever_std(self) -> float:
        """Standard deviation of each component of the point of application, m."""
        return 1e-3 * self.lever_mm

    @property
    def coordinate_std(self) -> float:
        """Standard deviation of each revolute coordinate, rad."""
        return math.radians(self.encoder_deg)

    @property
    def changes_cases(self) -> bool:
        """Whether loads or postures have errors, so that the true ones differ from those stated."""
        return self.balance_kg + self.direction_deg + self.lever_mm + self.encoder_deg > 0.0

    @property
    def repeat_std(self) -> float:
        """Standard deviation of the change of a coordinate between two readings, rad."""
        return math.sqrt(2.0) * math.radians(self.repeat_deg)
