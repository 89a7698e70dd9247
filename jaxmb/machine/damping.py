"""Damping laws of a whole machine."""

from typing import Annotated

from pydantic import Field

from jaxmb.machine.values import NonNegative, Part, Positive


class Rayleigh(Part):
    """Rayleigh damping of the linearized equations: C = alpha M + beta K_e is added to the viscous damping matrix."""

    mass: NonNegative = 0.0
    """alpha, 1/s."""
    stiffness: NonNegative = 0.0
    """beta, s."""


class Fractional(Part):
    """Fractional Kelvin-Voigt damping: the stiffness K_e of springs and beams becomes K_e (1 + (j omega tau)^a)."""

    order: Annotated[Positive, Field(le=1.0)]
    """a; 1 is viscous damping."""
    time: Positive
    """tau, s."""
