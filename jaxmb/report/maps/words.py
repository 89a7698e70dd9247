"""Words of maps for tables and figures: names and units of modal quantities, and the conditions of a map."""

import textwrap
from collections.abc import Sequence

import numpy as np

from jaxmb.maps.kinetostatic.posture_maps import PostureMap
from jaxmb.maps.postures.workspace_grid import Postures

LETTERS_PER_INCH = 15
"""Letters that a title has room for, by the width of the figure."""
MOST_ZEROS = 4
"""Number of coordinates at 0 that are named one by one, at most."""
MODAL_SHOWN_AS = {
    "frequency": ("frequency", "Hz", 1.0),
    "damping": ("damping ratio", "%", 100.0),
    "static_compliance": ("static compliance", "µm/N", 1e6),
    "dynamic_compliance": ("largest receptance", "µm/N", 1e6),
}
"""Name of a modal quantity in a figure or table, its unit there, and how many of it are one of the unit of the map."""


def map_conditions(found: PostureMap) -> str:
    """Length and directions of a dexterity, load or direction of the others, and the coordinates that do not vary."""
    said = []
    settings = found.settings
    if found.quantity == "dexterity":
        said.append(f"L = {settings.length_m:.4g} m")
        if len(settings.directions) < 6:
            said.append(f"of {', '.join(settings.directions)}")
    if "wrench" in found.about.needs and settings.wrench is not None:
        force, moment = settings.wrench[:3], settings.wrench[3:]
        said.append(f"load {numbers(force)} N" + (f", {numbers(moment)} Nm" if any(moment) else ""))
    if "direction" in found.about.needs and settings.direction is not None:
        said.append(f"along {numbers(settings.direction)}")
    return "; ".join(filter(None, [*said, held_posture(found.postures)]))


def held_posture(postures: Postures) -> str:
    """The coordinates that do not vary, by value, as "q4 = q5 = 45 deg, q1 = 0"."""
    by_value: dict[str, list[str]] = {}
    for name, value in postures.held.items():
        text = f"{np.degrees(value):.4g} deg" if name in postures.angles else f"{value:.4g} m"
        by_value.setdefault("0" if value == 0.0 else text, []).append(name)
    zeros = by_value.pop("0", [])
    said = [f"{' = '.join(names)} = {value}" for value, names in by_value.items()]
    if zeros:
        said.append(f"{' = '.join(zeros)} = 0" if len(zeros) <= MOST_ZEROS else "all other coordinates 0")
    return ", ".join(said)


def numbers(values: Sequence[float]) -> str:
    """The components of a vector, as "0, 0, -2000"."""
    return ", ".join(f"{x:.4g}" for x in values)


def wrapped(sentences: Sequence[str], width_inches: float) -> str:
    """Sentences broken into lines that a figure of this width has room for."""
    return "\n".join(textwrap.fill(s, max(int(width_inches * LETTERS_PER_INCH), 20)) for s in sentences if s)
