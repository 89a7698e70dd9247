"""Ranges and thresholds in the syntax of the command line: "q2=0:146 deg", "tool.x=1:2.5", "dexterity=0.4"."""

import math
from collections.abc import Sequence

import numpy as np

from jaxmb.machine.build import Model
from jaxmb.machine.values import number_of_text

UNITS = ("deg", "rad")


def grid_of(model: Model, texts: Sequence[str], points: int) -> dict[str, np.ndarray]:
    """Equidistant values by coordinate or position, rad or m, from texts such as "q2=0:146 deg".

    Raises:
        ValueError: a text is not such a range, its lower end is not first, or an angle exceeds a turn.
    """
    _check_points(points)
    return {name: np.linspace(low, high, points) for name, (low, high) in _ranges(model, "over", texts).items()}


def path_of(model: Model, text: str, points: int) -> dict[str, np.ndarray]:
    """Points of a straight path, as "q2=0:90 deg,q3=-90:0 deg", from the first to the second end of each range.

    Raises:
        ValueError: a part of the text is not a range.
    """
    _check_points(points)
    parts = [part.strip() for part in text.split(",")]
    ends = _ranges(model, "path", parts, ascending=False)
    return {name: np.linspace(first, last, points) for name, (first, last) in ends.items()}


def limits_of(model: Model, texts: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Lower and upper limit by coordinate, rad or m, from texts such as "z2=-5:140 deg".

    Raises:
        ValueError: a text is not such a range, or its lower end is not first.
    """
    return _ranges(model, "limits", texts)


def thresholds_of(texts: Sequence[str]) -> dict[str, float]:
    """Threshold by quantity from texts such as "dexterity=0.4".

    Raises:
        ValueError: a text is not "quantity=number" with a finite number.
    """
    found = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"good: found '{text}', expected something like \"dexterity=0.4\"")
        found[name] = number
    return found


def _check_points(points: int) -> None:
    if points < 2:
        raise ValueError(f"points: {points}, expected 2 or more")


def _ranges(model: Model, option: str, texts: Sequence[str], ascending: bool = True) -> dict[str, tuple[float, float]]:
    """The two ends by name; `option` is named in errors."""
    revolute = dict(zip(model.coordinates, model.revolute, strict=True))
    found: dict[str, tuple[float, float]] = {}
    for text in texts:
        name, equals, range_text = (part.strip() for part in text.partition("="))
        low_text, colon, high_text = (part.strip() for part in range_text.partition(":"))
        if not (equals and colon):
            raise ValueError(f"{option}: found '{text}', expected something like \"q2=0:146 deg\"")
        if name in found:
            raise ValueError(f"{option}: '{name}' is given twice")
        # A unit after the second number applies to both.
        unit = next((u for u in UNITS if high_text.endswith(u)), "")
        if unit and not low_text.endswith(UNITS):
            low_text = f"{low_text} {unit}"
        low, high = (_end(f"{option}: {name}", end) for end in (low_text, high_text))
        if ascending and not low < high:
            raise ValueError(f"{option}: {name}: found '{range_text}', expected the lower end first")
        if unit and not revolute.get(name, "." not in name):
            kind = "prismatic coordinate" if name in revolute else "position"
            raise ValueError(
                f"{option}: {name}: found '{range_text}', but it is a {kind}, expected metres without a unit"
            )
        if revolute.get(name, False) and max(abs(low), abs(high)) > math.tau:
            hint = "" if unit else f"; degrees? write '{range_text} deg'"
            raise ValueError(f"{option}: {name}: found '{range_text}', which exceeds a full turn in rad{hint}")
        found[name] = (low, high)
    return found


def _end(location: str, text: str) -> float:
    try:
        return number_of_text(text)
    except ValueError as error:
        raise ValueError(f"{location}: found '{text}', {error}") from None
