"""Friction of a coordinate beyond viscous and Coulomb friction."""

from typing import Self

from pydantic import model_validator

from jaxmb.machine.values import Number, Part, Positive

TERMS = ("stribeck", "cubic_damping", "load_friction", "damping_slope")
"""Terms, in whose coefficients efforts are linear; in the order of `Model.friction_terms`."""


class FurtherFriction(Part):
    """Friction terms of the effort at speed v, which the linearized equations omit.

    c_s exp(-(v / v_s)^2) sign v + c_3 v^3 + c_l |tau| sign v + c_T (T - T_0) v, tau the effort without friction and T
    the temperature of the drive. A term that is not given has no parameter, unlike one with the coefficient 0.
    """

    stribeck: Number | None = None
    """c_s, Nm or N."""
    stribeck_speed: Positive | None = None
    """v_s, rad/s or m/s."""
    cubic_damping: Number | None = None
    """c_3, Nm s^3/rad^3 or N s^3/m^3."""
    load_friction: Number | None = None
    """c_l, dimensionless."""
    damping_slope: Number | None = None
    """c_T, slope of the viscous damping over temperature: Nm s/(rad K) or N s/(m K)."""
    temperature: Number | None = None
    """T_0, reference temperature of `damping`; predictions use it where no temperature was recorded."""

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        for term, partner in (("stribeck", "stribeck_speed"), ("damping_slope", "temperature")):
            given = getattr(self, term) is not None, getattr(self, partner) is not None
            if given[0] != given[1]:
                present, missing = (term, partner) if given[0] else (partner, term)
                raise ValueError(f"further_friction has a {present} and no {missing}, expected both or none")
        return self

    @property
    def terms(self) -> tuple[str, ...]:
        """The given terms, in the order of `TERMS`."""
        return tuple(term for term in TERMS if getattr(self, term) is not None)
