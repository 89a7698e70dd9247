"""Texts of maps for tables and figures: names and units of modal quantities, and the conditions of a map."""

import textwrap
from collections.abc import Sequence

import numpy as np

from jaxmb.maps.kinetostatic.posture_maps import PostureMap
from jaxmb.maps.postures.workspace_grid import Postures

LETTERS_PER_INCH = 15
"""Characters of a title per inch of the figure's width."""
MOST_ZEROS = 4
"""Largest number of coordinates at 0 that are named one by one."""
MODAL_SHOWN_AS = {
    "frequency": ("frequency", "Hz", 1.0),
    "damping": ("damping ratio", "%", 100.0),
    "static_compliance": ("static compliance", "µm/N", 1e6),
    "dynamic_compliance": ("largest receptance", "µm/N", 1e6),
}
"""Name and unit of a modal quantity in figures and tables, and conversion factor from the unit of the map."""


def map_conditions(found: PostureMap) -> str:
    """Text on the characteristic length and directions, the load or direction, and the fixed coordinates of a map."""
    parts = []
    settings = found.settings
    if found.quantity == "dexterity":
        parts.append(f"L = {settings.length_m:.4g} m")
        if len(settings.directions) < 6:
            parts.append(f"of {', '.join(settings.directions)}")
    if "wrench" in found.about.needs and settings.wrench is not None:
        force, moment = settings.wrench[:3], settings.wrench[3:]
        parts.append(f"load {numbers(force)} N" + (f", {numbers(moment)} Nm" if any(moment) else ""))
    if "direction" in found.about.needs and settings.direction is not None:
        parts.append(f"along {numbers(settings.direction)}")
    return "; ".join(filter(None, [*parts, fixed_coordinates_text(found.postures)]))


def fixed_coordinates_text(postures: Postures) -> str:
    """Text on the fixed coordinates, grouped by value, as "q4 = q5 = 45 deg, q1 = 0"."""
    by_value: dict[str, list[str]] = {}
    for name, value in postures.held.items():
        text = f"{np.degrees(value):.4g} deg" if name in postures.angles else f"{value:.4g} m"
        by_value.setdefault("0" if value == 0.0 else text, []).append(name)
    zeros = by_value.pop("0", [])
    parts = [f"{' = '.join(names)} = {value}" for value, names in by_value.items()]
    if zeros:
        parts.append(f"{' = '.join(zeros)} = 0" if len(zeros) <= MOST_ZEROS else "all other coordinates 0")
    return ", ".join(parts)


def numbers(values: Sequence[float]) -> str:
    """Text of the components of a vector, as "0, 0, -2000"."""
    return ", ".join(f"{x:.4g}" for x in values)


def wrapped(sentences: Sequence[str], width_inches: float) -> str:
    """Sentences wrapped to the width of a figure."""
    return "\n".join(textwrap.fill(s, max(int(width_inches * LETTERS_PER_INCH), 20)) for s in sentences if s)
