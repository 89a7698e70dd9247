"""What a report shows of mode shapes."""

from jaxtyping import Array, Float

from jaxmb.machine.build import Model
from jaxmb.report.section import Picture, Section, drawn_by
from jaxmb.response.modal import Modes

MOST_MODES = 6
"""Modes that one figure shows."""


def mode_shape_sections(model: Model, q: Float[Array, "n"], found: Modes) -> list[Section]:
    """Picture of the shapes of the first modes of a machine; nothing of one that has no modes.

    Args:
        model: the machine.
        q: posture [n], rad or m.
        found: its modes there.
    """
    if not found.frequency_hz.size:
        return []
    draw = drawn_by("jaxmb.report.mode_shapes.structure_figure:mode_shape_grid", model, q, MOST_MODES, found)
    return [Section(f"Mode shapes of {model.name}", (Picture("mode-shapes", draw),))]
