"""Joints that close a loop of bodies, of which a tree has none."""

from typing import Literal, Self

from pydantic import model_validator

from jaxmb.machine.values import Name, Part, Vector, check_unit

LoopType = Literal["revolute", "prismatic", "cylindrical", "spherical", "fixed"]


class Loop(Part):
    """A joint between two frames of the tree: where the machine closes.

    revolute: the origins stay together and the axes parallel. prismatic: frame_b moves along the axis and does not
    turn. cylindrical: it moves along the axis and turns about it. spherical: the origins stay together. fixed: the
    frames stay together.
    """

    name: Name
    frame_a: Name
    frame_b: Name
    type: LoopType = "revolute"
    axis: Vector = (0.0, 0.0, 1.0)
    """Unit vector, with these components in both frames."""
    rigid: bool = True
    """False: it closes postures only, and springs between its frames hold it in small motions."""

    @model_validator(mode="after")
    def _joins_two(self) -> Self:
        check_unit("axis", self.axis)
        if self.frame_a == self.frame_b:
            raise ValueError(f"joins frame '{self.frame_a}' to itself")
        return self
