"""Friction of a coordinate beyond the viscous and the Coulomb friction that every coordinate may have."""

from typing import Self

from pydantic import model_validator

from jaxmb.machine.values import Number, Part, Positive

TERMS = ("stribeck", "cubic_damping", "load_friction", "damping_slope")
"""Each with a coefficient in which efforts are linear, in the order of `Model.friction_terms`."""


class FurtherFriction(Part):
    """Terms of the effort at speed v; small motions have none of them.

    c_s exp(-(v / v_s)^2) sign v + c_3 v^3 + c_l |tau| sign v + c_T (T - T_0) v, tau the effort that is carried without
    friction and T the temperature of the drive. What is not given is not there, which differs from a coefficient of 0
    in that it has no parameter.
    """

    stribeck: Number | None = None
    """c_s, Nm or N."""
    stribeck_speed: Positive | None = None
    """v_s, rad/s or m/s."""
    cubic_damping: Number | None = None
    """c_3, Nm s^3/rad^3 or N s^3/m^3."""
    load_friction: Number | None = None
    """c_l, without a unit."""
    damping_slope: Number | None = None
    """c_T, of the viscous damping by temperature: Nm s/(rad K) or N s/(m K)."""
    temperature: Number | None = None
    """T_0, at which `damping` is that of the coordinate; machines are predicted at it where none was recorded."""

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        for term, beside in (("stribeck", "stribeck_speed"), ("damping_slope", "temperature")):
            given = getattr(self, term) is not None, getattr(self, beside) is not None
            if given[0] != given[1]:
                there, lacks = (term, beside) if given[0] else (beside, term)
                raise ValueError(f"further_friction has a {there} and no {lacks}, expected both or none")
        return self

    @property
    def terms(self) -> tuple[str, ...]:
        """Those of `TERMS` that are there."""
        return tuple(term for term in TERMS if getattr(self, term) is not None)
