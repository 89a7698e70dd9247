"""Beams: their sections, and the flexible links made of them."""

import math
import warnings
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from jaxmb.machine.section import section_numbers
from jaxmb.machine.values import GROUND, Name, NonNegative, Origin, Part, Positive

MOST_ELEMENTS = 200
LEAST_MODULUS = 1e6
"""Pa, of Young's modulus; rubber has as much. Less is a number in GPa or MPa. A third of it for the shear modulus."""
PRINTED = 0.02
"""Relative error of a section's numbers that are printed with a few digits."""


def _whole(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("expected a whole number")
    return value


class Beam(Part):
    """A straight beam along x of one material and section, SI units. `section` stands for the numbers of a section."""

    length: Positive
    young_modulus: Positive
    shear_modulus: Positive
    area: Positive
    second_moment_y: Positive
    """Of the cross-section, about y: what resists bending along z."""
    second_moment_z: Positive
    torsion_constant: Positive

    @model_validator(mode="before")
    @classmethod
    def _of_section(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "section" not in data:
            return data
        numbers = section_numbers(data["section"], data.get("young_modulus"), data.get("shear_modulus"))
        twice = [key for key in numbers if key in data and not key.startswith("shear")]
        if twice:
            raise ValueError(f"gives section and {twice[0]}, expected one of them")
        known = {key: value for key, value in numbers.items() if key in cls.model_fields}
        return known | {key: value for key, value in data.items() if key != "section"}

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for what, modulus, least in (
            ("young_modulus", self.young_modulus, LEAST_MODULUS),
            ("shear_modulus", self.shear_modulus, LEAST_MODULUS / 3.0),
        ):
            if modulus < least:
                raise ValueError(f"{what} is {modulus:g} Pa, expected at least {least:.2g}; is it in GPa or MPa?")
        for doubt in self._doubts():
            warnings.warn(f"beam '{getattr(self, 'name', 'beam')}': {doubt}", stacklevel=2)
        return self

    def _doubts(self) -> list[str]:
        """Sentences on numbers that no section has; a beam of given stiffness and any modulus may have them."""
        doubts = list[str]()
        moments = math.sqrt(self.second_moment_y * self.second_moment_z)
        least = self.area**2 / (4.0 * math.pi)
        if moments < (1.0 - PRINTED) * least:
            doubts.append(
                f"the root of second_moment_y times second_moment_z is {moments:.3g} m^4, expected at least"
                f" {least:.3g}, which a full ellipse of area {self.area:g} m^2 has; are all in m?"
            )
        radius = math.sqrt(max(self.second_moment_y, self.second_moment_z) / self.area)
        if radius > self.length:
            doubts.append(
                f"the radius of gyration of its section is {radius:.3g} m, the root of a second moment over the area,"
                f" expected less than its length of {self.length:g} m; are all in m?"
            )
        polar = self.second_moment_y + self.second_moment_z
        if self.torsion_constant > (1.0 + PRINTED) * polar:
            doubts.append(
                f"torsion_constant is {self.torsion_constant:.3g} m^4, expected at most the sum of the second moments,"
                f" {polar:.3g}, which round sections have"
            )
        return doubts


class FlexibleBeam(Beam):
    """A link that bends: a beam with mass, clamped to its body at one end and carrying what names it as parent.

    It is divided into elements of equal length. Its own frame, behind the last element, has its name, the end of
    element k the name with "/k"; bodies, frames and other beams hang on any of them. Unloaded it lies along the x axis
    of `origin`, small displacements are added to that.
    """

    name: Name
    body: Name = GROUND
    origin: Origin = Origin()
    """Where it begins in the body's frame."""
    elements: Annotated[int, BeforeValidator(_whole), Field(ge=1, le=MOST_ELEMENTS)] = 4
    density: NonNegative
    """kg/m^3."""
    theory: Literal["euler-bernoulli", "timoshenko"] = "euler-bernoulli"
    """Timoshenko's beam shears, and its sections have inertia when they tilt."""
    shear_factor_y: Positive = 5.0 / 6.0
    """Part of the area that carries a shear force along y, for Timoshenko's beam."""
    shear_factor_z: Positive = 5.0 / 6.0
    loss_factor: NonNegative = 0.0
    """eta of structural damping."""

    @property
    def shear_flexibility(self) -> tuple[float, float]:
        """1 over the part of the area that carries shear along y and z; 0 in Euler-Bernoulli's beam."""
        if self.theory == "euler-bernoulli":
            return 0.0, 0.0
        return 1.0 / self.shear_factor_y, 1.0 / self.shear_factor_z

    @property
    def ends(self) -> tuple[str, ...]:
        """Names of the ends of its elements; that of the last one is the beam's own."""
        return (*(f"{self.name}/{k}" for k in range(1, self.elements)), self.name)


def beam_compliance(beam: Beam) -> np.ndarray:
    """Displacement and rotation of a beam's end for a force and moment there [6, 6], in its own axes.

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
