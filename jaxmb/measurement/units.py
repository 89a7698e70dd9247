"""Units of frequency responses."""

import functools
import math
import re
import tokenize
from collections.abc import Mapping
from typing import TYPE_CHECKING

from jaxmb.response.frf_kind import FrfKind

if TYPE_CHECKING:
    import pint

SI_UNITS: Mapping[FrfKind, str] = {"receptance": "m/N", "mobility": "m/s/N", "accelerance": "m/s^2/N"}
"""Unit of a response to a force in SI; rotations and moments have rad for m and N m for N."""
LONGEST_UNIT = 80
NO_UNIT = (
    ValueError, TypeError, AttributeError, ArithmeticError, LookupError, RuntimeError, AssertionError, SyntaxError,
    tokenize.TokenError,
)  # fmt: skip
"""Exceptions that pint raises, besides its own, on a string that is no unit."""
UNKNOWN = "unknown"
"""Unit of responses whose sensor or force transducer is not specified in the file."""


def unit_scale(unit: str, kind: FrfKind) -> float:
    """Factor from `unit` to the SI unit of `kind`: 9.80665 for "g/N" and accelerance.

    A digit after a letter is an exponent: "m/s2/N" is "m/s^2/N".

    Raises:
        ValueError: the unit is invalid, or not that of the kind.
    """
    import pint  # imported here: its import takes a third of a second

    wanted = SI_UNITS[kind]
    if len(unit) > LONGEST_UNIT:
        raise ValueError(f"unit '{unit[:20]}...' has {len(unit)} characters, expected one such as '{wanted}'")
    try:
        return float(_registry().Quantity(1.0, _spelt(unit)).to(wanted).magnitude)
    except (pint.PintError, *NO_UNIT) as error:
        raise ValueError(f"unit {unit!r} is not one of {kind} such as '{wanted}': {error}") from None


def unit_over(above: str, below: str) -> str:
    """Unit of a response over that of a force, with brackets where needed: "g/N", "m/s^2/(N m)"."""
    return f"{above}/{below}" if re.fullmatch(r"[\w^]+", below) else f"{above}/({below})"


def same_unit(a: str, b: str, kind: FrfKind) -> bool:
    """Whether two units are equal, irrespective of spelling."""
    return a == b or (UNKNOWN not in (a, b) and math.isclose(unit_scale(a, kind), unit_scale(b, kind), rel_tol=1e-9))


def _spelt(unit: str) -> str:
    """A unit in pint's spelling; ValueError where pint would misread it."""
    if not unit.isprintable():
        raise ValueError("it holds a character that cannot be printed")
    if re.search(r"/\s*/", unit):
        raise ValueError("two slashes follow each other")
    if re.search(r"\bG\b", unit):
        raise ValueError("'G' is a unit of magnetism, did you mean 'g'?")
    unit = re.sub(r"(?<=[A-Za-z])(?<![\d.][eE])(-?\d)", r"^\1", unit)
    if re.search(r"[\d)]\s*(\^|\*\*)", unit):  # 9^9^9 would be computed
        raise ValueError("a number has a power")
    return unit


@functools.cache
def _registry() -> "pint.UnitRegistry":
    import pint

    # g is the standard acceleration of gravity here, not the gram; kg is not a thousand of it
    registry = pint.UnitRegistry(cache_folder=None)
    registry.define("g = 9.80665 * meter / second**2")
    registry.define("kg = kilogram")
    return registry
