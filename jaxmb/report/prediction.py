"""Report on the predicted modes and FRFs of a machine."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial

import numpy as np

from jaxmb.report.frf_figures import predicted_figure
from jaxmb.report.modes import predicted_modes_table
from jaxmb.report.section import Lines, Picture, Section
from jaxmb.response.modal import Modes

MOST_MODES = 20
"""Number of modes that are all shown; of more, such as with beams, only those in the band."""


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
    """Section on the modes and FRFs of a machine.

    Args:
        name: of the machine.
        found: its modes.
        frequency_hz: lines [f].
        frf: FRFs [f, point, point].
        points: of motion and force.
        derivatives: 0 receptance, 1 mobility, 2 accelerance.
        posture: coordinate name -> value, rad or m.
        angles: names of the revolute coordinates.
    """
    at = [
        f"{coordinate} {np.degrees(value):.4g} deg" if coordinate in angles else f"{coordinate} {value:.4g} m"
        for coordinate, value in posture.items()
        if value != 0.0
    ]
    title = f"{name} at {', '.join(at) or 'the zero posture'}"
    draw = partial(predicted_figure, title, frequency_hz, frf, points, derivatives)
    modes_hz = np.asarray(found.frequency_hz)
    count = modes_hz.size
    shown = count if count <= MOST_MODES else max(int(np.sum(modes_hz <= frequency_hz[-1])), 1)
    more = (Lines((f"and {count - shown} more above {modes_hz[shown - 1]:.6g} Hz",)),) if shown < count else ()
    return [Section(f"Modes of {name}", (predicted_modes_table(found, "", shown), *more, Picture("frf", draw)))]
