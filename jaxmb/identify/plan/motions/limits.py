"""Limits of range, speed and acceleration of a machine's coordinates."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxmb.identify.study.format.next_format import LimitsPart
from jaxmb.io.validation import known_name
from jaxmb.machine.schema import Machine


class Limits(NamedTuple):
    """Limits of m coordinates, rad or m and s; infinite without a limit."""

    lower: Float[np.ndarray, "m"]
    upper: Float[np.ndarray, "m"]
    speed: Float[np.ndarray, "m"]
    acceleration: Float[np.ndarray, "m"]


def limits_of(machine: Machine, names: Sequence[str], given: Mapping[str, LimitsPart]) -> Limits:
    """Limits of coordinates: those of the machine, or the given ones in their place.

    Args:
        machine: with `range`, `speed_limit` and `acceleration_limit` of its coordinates.
        names: of the coordinates.
        given: limits by coordinate that replace those of the machine.

    Raises:
        ValueError: a coordinate is unknown, or one has no speed limit.
    """
    for name in given:
        if name not in names:
            raise ValueError(known_name("limits: coordinate", name, names))
    own = {c.name: c for c in machine.moving_parts}
    rows = []
    for name in names:
        part, coordinate = given.get(name, LimitsPart()), own[name]
        low, high = part.range or coordinate.range or (-np.inf, np.inf)
        speed = part.speed or coordinate.speed_limit
        if speed is None:
            raise ValueError(f"'{name}' has no speed limit, expected one in the machine or in limits")
        rows.append((low, high, speed, part.acceleration or coordinate.acceleration_limit or np.inf))
    return Limits(*np.array(rows, dtype=float).T)
