"""Drives coupled to several coordinates."""

from typing import Annotated, Self

from pydantic import model_validator

from jaxmb.machine.values import SOME, Name, NonNegative, Number, Part


class Transmission(Part):
    """A drive with the rate s' = sum_i c_i q_i' of several coordinates, as in a coupled wrist.

    Its effort I s'' + d s' + f sign(s'), times c_i, is added to the effort of each coordinate.
    """

    name: Name
    coordinates: Annotated[dict[Name, Number], SOME]
    """c_i by coordinate: dimensionless, or m/rad or rad/m between translation and rotation."""
    inertia: NonNegative = 0.0
    """I, referred to s: kg m^2 or kg."""
    damping: NonNegative = 0.0
    """d, N m s/rad or N s/m."""
    friction: NonNegative = 0.0
    """f of Coulomb friction, N m or N; omitted in the linearized equations."""

    @model_validator(mode="after")
    def _check_factors(self) -> Self:
        for name, factor in self.coordinates.items():
            if factor == 0.0:
                raise ValueError(f"coordinates: '{name}' has the factor 0, expected another value, or no entry")
        return self
