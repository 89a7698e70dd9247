"""Beams: their sections, and the flexible links made of them."""

import math
import warnings
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from jaxmb.machine.section import section_properties
from jaxmb.machine.values import GROUND, Name, NonNegative, Origin, Part, Positive

MOST_ELEMENTS = 200
LEAST_MODULUS = 1e6
"""Pa, least plausible Young's modulus (rubber); below it the unit is probably GPa or MPa. A third for shear moduli."""
PRINTED = 0.02
"""Relative rounding error of tabulated section properties."""


def _whole(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("expected a whole number")
    return value


class Beam(Part):
    """A straight uniform beam along x, SI units. In a file, `section` may replace the section properties."""

    length: Positive
    young_modulus: Positive
    shear_modulus: Positive
    area: Positive
    second_moment_y: Positive
    """Of the cross-section, about y: resists deflection along z."""
    second_moment_z: Positive
    torsion_constant: Positive

    @model_validator(mode="before")
    @classmethod
    def _of_section(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "section" not in data:
            return data
        numbers = section_properties(data["section"], data.get("young_modulus"), data.get("shear_modulus"))
        duplicate = [key for key in numbers if key in data and not key.startswith("shear")]
        if duplicate:
            raise ValueError(f"gives section and {duplicate[0]}, expected one of them")
        known = {key: value for key, value in numbers.items() if key in cls.model_fields}
        return known | {key: value for key, value in data.items() if key != "section"}

    @model_validator(mode="after")
    def _check_plausible(self) -> Self:
        for name, modulus, least in (
            ("young_modulus", self.young_modulus, LEAST_MODULUS),
            ("shear_modulus", self.shear_modulus, LEAST_MODULUS / 3.0),
        ):
            if modulus < least:
                raise ValueError(f"{name} is {modulus:g} Pa, expected at least {least:.2g}; is it in GPa or MPa?")
        for message in self._section_warnings():
            warnings.warn(f"beam '{getattr(self, 'name', 'beam')}': {message}", stacklevel=2)
        return self

    def _section_warnings(self) -> list[str]:
        """Warnings about implausible section properties; a beam of given stiffness and any modulus may have them."""
        messages = list[str]()
        moments = math.sqrt(self.second_moment_y * self.second_moment_z)
        least = self.area**2 / (4.0 * math.pi)
        if moments < (1.0 - PRINTED) * least:
            messages.append(
                f"sqrt(second_moment_y * second_moment_z) is {moments:.3g} m^4, expected at least {least:.3g} m^4,"
                f" the value of a solid ellipse of area {self.area:g} m^2; are all lengths in m?"
            )
        radius = math.sqrt(max(self.second_moment_y, self.second_moment_z) / self.area)
        if radius > self.length:
            messages.append(
                f"the radius of gyration of its section, sqrt(second moment / area), is {radius:.3g} m,"
                f" expected less than its length of {self.length:g} m; are all lengths in m?"
            )
        polar = self.second_moment_y + self.second_moment_z
        if self.torsion_constant > (1.0 + PRINTED) * polar:
            messages.append(
                f"torsion_constant is {self.torsion_constant:.3g} m^4, expected at most the sum of the second moments,"
                f" {polar:.3g} m^4, the value of round sections"
            )
        return messages


class FlexibleBeam(Beam):
    """A flexible link: a beam with mass, clamped to its body at one end, to whose nodes other parts may be attached.

    It is divided into elements of equal length. The frame behind the last element has the beam's name, that at the end
    of element k the name with "/k"; bodies, frames and other beams may name any of them as parent. Undeformed, the beam
    lies along the x axis of `origin`; displacements are small.
    """

    name: Name
    body: Name = GROUND
    origin: Origin = Origin()
    """Start of the beam in the body's frame."""
    elements: Annotated[int, BeforeValidator(_whole), Field(ge=1, le=MOST_ELEMENTS)] = 4
    density: NonNegative
    """kg/m^3."""
    theory: Literal["euler-bernoulli", "timoshenko"] = "euler-bernoulli"
    """Timoshenko's theory includes shear deformation and rotary inertia."""
    shear_factor_y: Positive = 5.0 / 6.0
    """Effective shear area over the area for a shear force along y; Timoshenko's theory only."""
    shear_factor_z: Positive = 5.0 / 6.0
    loss_factor: NonNegative = 0.0
    """eta of structural damping."""

    @property
    def shear_flexibility(self) -> tuple[float, float]:
        """1 over the shear factors along y and z; 0 in Euler-Bernoulli's theory."""
        if self.theory == "euler-bernoulli":
            return 0.0, 0.0
        return 1.0 / self.shear_factor_y, 1.0 / self.shear_factor_z

    @property
    def ends(self) -> tuple[str, ...]:
        """Names of the element ends; the last one is the beam's name."""
        return (*(f"{self.name}/{k}" for k in range(1, self.elements)), self.name)


def beam_compliance(beam: Beam) -> np.ndarray:
    """Compliance matrix of a cantilever's end [6, 6] (m/N, rad/N, rad/Nm), in the beam's axes.

    Source: Timoshenko and Goodier, Theory of Elasticity; the template of Klimchik et al. 2014, eq. 13.
    """
    length, young = beam.length, beam.young_modulus
    by, bz = young * beam.second_moment_y, young * beam.second_moment_z
    twist = beam.shear_modulus * beam.torsion_constant
    diagonal = (length / (young * beam.area), length**3 / (3 * bz), length**3 / (3 * by))
    matrix = np.diag([*diagonal, length / twist, length / by, length / bz])
    matrix[1, 5] = matrix[5, 1] = length**2 / (2 * bz)
    matrix[2, 4] = matrix[4, 2] = -(length**2) / (2 * by)
    return matrix
