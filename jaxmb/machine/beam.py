"""Beams: their sections, and the flexible links made of them."""

from typing import Annotated, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from jaxmb.machine.values import GROUND, Name, NonNegative, Origin, Part, Positive

MOST_ELEMENTS = 200


def _whole(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("expected a whole number")
    return value


class Beam(Part):
    """A straight beam along x of one material and section, SI units."""

    length: Positive
    young_modulus: Positive
    shear_modulus: Positive
    area: Positive
    second_moment_y: Positive
    """Of the cross-section, about y: what resists bending along z."""
    second_moment_z: Positive
    torsion_constant: Positive


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
