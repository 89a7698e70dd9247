"""What a report says of a machine that is not fitted to anything."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from jaxmb.report.modes.tables import predicted_modes_table
from jaxmb.report.section import Lines, Picture, Section, drawn_by
from jaxmb.response.modal import Modes

MOST_MODES = 20
"""Of a machine with more, such as one of beams, those in the band are shown."""


def predicted_sections(
    name: str,
    found: Modes,
    frequency_hz: np.ndarray,
    frf: np.ndarray,
    points: tuple[Sequence[str], ...],
    derivatives: int,
    posture: Mapping[str, float],
    angles: Collection[str],
) -> list[Section]:
    """Modes and FRFs of a machine.

    Args:
        name: of the machine.
        found: its modes.
        frequency_hz: lines [f].
        frf: FRFs [f, point, point].
        points: where motion and force are.
        derivatives: 0 receptance, 1 mobility, 2 accelerance.
        posture: coordinate name -> value, rad or m.
        angles: those of the coordinates that are angles.
    """
    at = [
        f"{coordinate} {np.degrees(value):.4g} deg" if coordinate in angles else f"{coordinate} {value:.4g} m"
        for coordinate, value in posture.items()
        if value != 0.0
    ]
    title = f"{name} at {', '.join(at) or 'the zero posture'}"
    draw = drawn_by("jaxmb.report.frf.frf_figure:predicted_figure", title, frequency_hz, frf, points, derivatives)
    known = np.asarray(found.frequency_hz)
    shown = known.size if known.size <= MOST_MODES else max(int(np.sum(known <= frequency_hz[-1])), 1)
    left = (Lines((f"and {known.size - shown} more above {known[shown - 1]:.6g} Hz",)),) if shown < known.size else ()
    return [Section(f"Modes of {name}", (predicted_modes_table(found, "", shown), *left, Picture("frf", draw)))]
