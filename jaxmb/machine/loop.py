"""Joints that close kinematic loops."""

from typing import Literal, Self

from pydantic import model_validator

from jaxmb.machine.values import Name, Part, Vector, check_unit

LoopType = Literal["revolute", "prismatic", "cylindrical", "spherical", "fixed"]


class Loop(Part):
    """A joint between two frames of the tree, which closes a loop.

    revolute: the origins coincide and the axes are parallel. prismatic: frame_b translates along the axis and does not
    rotate. cylindrical: it translates along the axis and rotates about it. spherical: the origins coincide. fixed: the
    frames coincide.
    """

    name: Name
    frame_a: Name
    frame_b: Name
    type: LoopType = "revolute"
    axis: Vector = (0.0, 0.0, 1.0)
    """Unit vector, with these components in both frames."""
    rigid: bool = True
    """False: the loop is closed in postures only; in the linearized equations springs connect its frames."""

    @model_validator(mode="after")
    def _check_frames(self) -> Self:
        check_unit("axis", self.axis)
        if self.frame_a == self.frame_b:
            raise ValueError(f"joins frame '{self.frame_a}' to itself")
        return self
