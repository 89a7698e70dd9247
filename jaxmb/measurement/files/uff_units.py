"""What a universal file says of kind and units: data types and labels of a function's axes, and dataset 164."""

import dataclasses
import math
import re
from typing import Any

from jaxmb.measurement.files.uff_function import Function
from jaxmb.measurement.units import SI_UNITS, UNKNOWN, unit_over, unit_scale
from jaxmb.response.frf_kind import FrfKind

KINDS: dict[int, FrfKind] = {8: "receptance", 11: "mobility", 12: "accelerance"}
"""By specific data type of the ordinate: displacement, velocity, acceleration."""
NOT_SAID = (0, 1)
"""Specific data types "unknown" and "general"."""
FORCES = (9, 13)
"""Reaction force, excitation force."""
SYSTEMS: dict[int, tuple[str, str, float, float]] = {
    1: ("m", "N", 1.0, 1.0),
    2: ("ft", "lbf", 3.280839895, 0.2248089431),
    3: ("m", "kgf", 1.0, 0.1019716213),
    4: ("ft", "poundal", 3.280839895, 7.233013851),
    5: ("mm", "mN", 1e3, 1e3),
    6: ("cm", "cN", 1e2, 1e2),
    7: ("in", "lbf", 39.37007874, 0.2248089431),
    8: ("mm", "kgf", 1e3, 0.1019716213),
}
"""Units of length and force by the code of dataset 164, and how many of them one m and one N are."""
SAME = 1e-4
"""Relative difference below which two factors of units are one: files state four digits of them at least."""
_SPELT = {"lb": "lbf", "lbs": "lbf", "g's": "g", "gn": "g", "G": "g"}


@dataclasses.dataclass(frozen=True)
class Units:
    """Units of a file that are not said function by function."""

    length: str
    force: str
    per_metre: float
    """How many of the file's lengths one metre has."""


def units_of_dataset(fields: dict[str, Any], place: str) -> Units:
    """Units that dataset 164 states.

    Raises:
        ValueError: the code is none, or the factors are not those of the code.
    """
    code, length, force = fields["units_code"], fields["length"], fields["force"]
    if not (0.0 < length < math.inf and 0.0 < force < math.inf):
        raise ValueError(f"{place}: factors of length and force are {length} and {force}, expected positive numbers")
    candidates = SYSTEMS if code in (0, 9) else {code: SYSTEMS[code]} if code in SYSTEMS else {}
    for length_unit, force_unit, per_metre, per_newton in candidates.values():
        if math.isclose(length, per_metre, rel_tol=SAME) and math.isclose(force, per_newton, rel_tol=SAME):
            return Units(length_unit, force_unit, length)
    if candidates and code not in (0, 9):
        name = f"{candidates[code][0]} and {candidates[code][1]}"
        raise ValueError(f"{place}: code {code} means {name}, but the factors {length:g} and {force:g} are not theirs")
    if code in (0, 9):
        return Units("", "", length)  # a system of the user's own: lengths are known, responses need labels
    raise ValueError(f"{place}: units code is {code}, expected 1 to 9")


def kind_and_unit(function: Function, system: Units | None) -> tuple[FrfKind, str]:
    """Kind of a frequency response and the unit it stands in; "unknown" where the file does not tell.

    Labels of the axes go before the units of the file, as the format's description has it.

    Raises:
        ValueError: it is not the response of a displacement, velocity or acceleration to a force, or the unit is not
            that of the kind.
    """
    (type_above, above), (type_below, below) = function.numerator, function.denominator
    where = f"{function.place}, record 9, line {function.dataset.line + 9}"
    if type_below not in (*FORCES, *NOT_SAID):
        raise ValueError(
            f"{function.place}, record 10, line {function.dataset.line + 10}: denominator has data type {type_below},"
            f" expected excitation force (13)"
        )
    above, below = _spelt(above, function.response_rotates), _spelt(below, False)
    if function.reference_rotates and re.sub(r"[ *.()]", "", below) == "Nm":
        below = "N"  # a moment in SI; with rad for m, responses of rotations have the units of those of translations
    if type_above in KINDS:
        return KINDS[type_above], _unit(KINDS[type_above], above, below, system, where)
    if type_above not in NOT_SAID:
        raise ValueError(f"{where}: ordinate has data type {type_above}, expected displacement (8), velocity (11)"
                         f" or acceleration (12)")  # fmt: skip
    for kind in KINDS.values():
        if above:
            try:
                return kind, _unit(kind, above, below, system, where)
            except ValueError:
                continue
    raise ValueError(f"{where}: ordinate has data type {type_above} (not said) and unit '{above}',"
                     f" expected displacement (8), velocity (11) or acceleration (12)")  # fmt: skip


def motion_unit(function: Function) -> str:
    """Unit of the motion alone, as pint reads it; "" where the file does not tell."""
    return _spelt(function.numerator[1], function.response_rotates)


def _unit(kind: FrfKind, above: str, below: str, system: Units | None, where: str) -> str:
    seconds = {"receptance": "", "mobility": "/s", "accelerance": "/s^2"}[kind]
    if system is not None and system.length:
        above, below = above or f"{system.length}{seconds}", below or system.force
    if not above:
        return UNKNOWN
    candidates = [unit_over(above, below)] if below else []
    candidates.append(above)  # some programs write the unit of the whole ratio there
    for unit in candidates:
        if unit == SI_UNITS[kind]:
            return unit
    reasons = []
    for unit in candidates:
        try:
            unit_scale(unit, kind)
        except ValueError as error:
            reasons.append(str(error))
        else:
            return unit
    if not below and kind == _motion(above):
        return UNKNOWN  # the unit of the force is missing
    raise ValueError(f"{where}: {reasons[0]}")


def _motion(unit: str) -> FrfKind | None:
    """Kind of a unit that is one of displacement, velocity or acceleration."""
    for kind in KINDS.values():
        try:
            unit_scale(f"{unit}/N", kind)
        except ValueError:
            continue
        return kind
    return None


def _spelt(label: str, rotates: bool) -> str:
    """A unit's label as pint reads it: m/s2 as m/s^2, lb as lbf, and rad as m where it is a rotation."""
    label = label.strip("[] ")
    label = label.replace("²", "^2").replace("³", "^3").replace("·", "*").replace("**", "^")
    label = re.sub(r"(?<=[A-Za-z])(-?\d)", r"^\1", label)
    label = re.sub(r"[A-Za-z']+", lambda word: _SPELT.get(word[0], word[0]), label)
    return re.sub(r"\brad\b", "m", label) if rotates else label
