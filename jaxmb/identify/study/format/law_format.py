"""What a study may say of laws that its parameters may follow."""

from typing import Annotated

from pydantic import Field, field_validator

from jaxmb.machine.values import Name, Part

AMPLITUDE, LOAD = "amplitude", "load"


class LawsPart(Part):
    """`[laws]`: parameters that may follow a smooth law of posture, load or amplitude, if what is held out says so."""

    parameters: Annotated[tuple[str, ...], Field(min_length=1, max_length=1000)]
    """Names or patterns of free parameters."""
    by: Annotated[tuple[Name, ...], Field(min_length=1, max_length=100)]
    """Coordinates, "amplitude" (of each test) and "load" (gravity on the parameter's own joint)."""
    most: Annotated[int, Field(ge=1, le=10, strict=True)] = 3
    """Most coefficients of all laws together."""

    @field_validator("parameters", "by")
    @classmethod
    def _once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if value.count(name) > 1:
                raise ValueError(f"names '{name}' twice")
        return value
