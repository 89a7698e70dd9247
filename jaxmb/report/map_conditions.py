"""What a map holds beside its axes, in words for the title of a figure: loads, directions, the rest of the posture."""

import textwrap
from collections.abc import Mapping, Sequence

import numpy as np

from jaxmb.maps.maps import Map

LETTERS_PER_INCH = 15
"""Of a figure's width, in its title."""
MOST_ZEROS = 4
"""Coordinates at 0 that are named one by one."""


def map_conditions(found: Map) -> str:
    """Length and directions of a dexterity, load or direction of the others, and the coordinates that are held."""
    said = []
    settings = found.settings
    if found.quantity == "dexterity":
        said.append(f"L = {settings['length_m']:.4g} m")
        directions = settings["directions"]
        if isinstance(directions, tuple) and len(directions) < 6:
            said.append(f"of {', '.join(directions)}")
    wrench = settings.get("wrench")
    if "wrench" in found.about.needs and isinstance(wrench, tuple):
        said.append(f"load {numbers(wrench[:3])} N" + (f", {numbers(wrench[3:])} Nm" if any(wrench[3:]) else ""))
    if "direction" in found.about.needs:
        said.append(f"along {numbers(settings['direction'])}")
    return "; ".join(filter(None, [*said, held_posture(found.held, found.angles)]))


def held_posture(held: Mapping[str, float], angles: Sequence[str]) -> str:
    """The coordinates by value, as "q4 = q5 = 45 deg, q1 = 0"."""
    by_value: dict[str, list[str]] = {}
    for name, value in held.items():
        text = f"{np.degrees(value):.4g} deg" if name in angles else f"{value:.4g} m"
        by_value.setdefault("0" if value == 0.0 else text, []).append(name)
    zeros = by_value.pop("0", [])
    said = [f"{' = '.join(names)} = {value}" for value, names in by_value.items()]
    if zeros:
        said.append(f"{' = '.join(zeros)} = 0" if len(zeros) <= MOST_ZEROS else "the other coordinates 0")
    return ", ".join(said)


def numbers(values: object) -> str:
    """A vector in short."""
    return ", ".join(f"{x:.4g}" for x in values) if isinstance(values, tuple) else ""


def wrapped(sentences: Sequence[str], width_inches: float) -> str:
    """Lines that a figure of this width has room for."""
    return "\n".join(textwrap.fill(s, max(int(width_inches * LETTERS_PER_INCH), 20)) for s in sentences if s)
