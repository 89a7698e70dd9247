"""Report on mode shapes."""

from jaxtyping import Array, Float

from jaxmb.machine.build import Model
from jaxmb.report.section import Picture, Section, drawn_by
from jaxmb.response.modal import Modes

MOST_MODES = 6
"""Largest number of modes in a figure."""


def mode_shape_sections(model: Model, q: Float[Array, "n"], found: Modes) -> list[Section]:
    """Section with the shapes of the first modes of a machine; empty for a machine without modes.

    Args:
        model: the machine.
        q: posture [n], rad or m.
        found: its modes at q.
    """
    if not found.frequency_hz.size:
        return []
    draw = drawn_by("jaxmb.report.mode_shapes.structure_figure:mode_shape_grid", model, q, MOST_MODES, found)
    return [Section(f"Mode shapes of {model.name}", (Picture("mode-shapes", draw),))]
