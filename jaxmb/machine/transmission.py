"""Drives that turn with several coordinates at once."""

from typing import Annotated, Self

from pydantic import model_validator

from jaxmb.machine.values import SOME, Name, NonNegative, Number, Part


class Transmission(Part):
    """A drive whose rate s' = sum_i c_i q_i' is that of several coordinates together, as of a coupled wrist.

    Its effort I s'' + d s' + f sign(s') adds c_i times itself to that of each coordinate.
    """

    name: Name
    coordinates: Annotated[dict[Name, Number], SOME]
    """c_i by coordinate: 1, or m/rad or rad/m where a coordinate slides and the drive turns or the reverse."""
    inertia: NonNegative = 0.0
    """I, seen at s: kg m^2 or kg."""
    damping: NonNegative = 0.0
    """d, N m s/rad or N s/m."""
    friction: NonNegative = 0.0
    """f of Coulomb friction, N m or N; small motions do not have it."""

    @model_validator(mode="after")
    def _moves(self) -> Self:
        for name, factor in self.coordinates.items():
            if factor == 0.0:
                raise ValueError(f"coordinates: '{name}' has the factor 0, expected another, or none of it")
        return self
