"""Validated values: numbers, angles, names, vectors and poses of frames."""

import math
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WrapValidator

GROUND = "ground"
MOST_PARTS = 2000
"""Bodies, frames, payloads or springs of one machine."""
LARGEST_NUMBER = 1e90
"""Products of three numbers up to this size, such as m c^2, are finite."""

_ANGLE = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(deg|rad)\s*")
_LONGEST_TEXT = 200
OUTSIDE_NAME = re.compile(r"[^A-Za-z0-9_\-/]|^[\-/]")
"""A character that a name cannot have, or not first."""
_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_\-/]{{0,{_LONGEST_TEXT - 1}}}")


LARGEST_ANGLE = 4.0 * math.pi
"""Largest angle without a unit, rad; a larger number is probably in degrees."""


class AngleText(float):
    """Radians of a text such as "70 deg", which are no value of a prismatic coordinate."""


LARGEST_TRAVEL = 100.0
"""Largest value of a prismatic coordinate, and distance in the geometry of a machine, m."""


def check_no_angle(label: str, value: object) -> None:
    """Raise ValueError where the value of a prismatic coordinate was written as an angle."""
    if isinstance(value, AngleText):
        raise ValueError(f"{label} is an angle, expected a number in m, since the coordinate is prismatic")


def check_travel(label: str, value: float) -> None:
    """Raise ValueError where the value of a prismatic coordinate was written as an angle or is too large for m."""
    check_no_angle(label, value)
    if abs(value) > LARGEST_TRAVEL:
        raise ValueError(f"{label} is {value:g} m, expected at most {LARGEST_TRAVEL:g} m, is it in mm?")


def check_angle(label: str, value: float) -> None:
    """Raise ValueError where the value of a revolute coordinate in a table of radians is too large."""
    if abs(value) > LARGEST_ANGLE:
        raise ValueError(f"{label} is {value:g} rad, expected at most {LARGEST_ANGLE:.4g} rad, is it in deg?")


def check_turns(label: str, value: float) -> None:
    """Raise ValueError where an angle of a revolute coordinate without a unit is probably in degrees."""
    if abs(value) > LARGEST_ANGLE and not isinstance(value, AngleText):
        raise ValueError(f'{label} is {value:g} rad, expected at most two turns; write "{value:g} deg" for degrees')


def angle(value: Any) -> Any:
    """Angle in radians from a number (radians) or a text such as "70 deg" or "1.2 rad"."""
    if isinstance(value, str):
        # The pattern's time grows with the square of the length.
        match = _ANGLE.fullmatch(value) if len(value) <= _LONGEST_TEXT else None
        if match is None:
            travel = "; a travel is a number in m" if value.rstrip().endswith("m") else ""
            raise ValueError(f'expected a number in radians or a text such as "70 deg" or "1.2 rad"{travel}')
        number = float(match[1])
        return AngleText(math.radians(number) if match[2] == "deg" else number)
    return _number(value)


def coordinate_values(text: str) -> dict[str, float]:
    """Values by coordinate, rad or m, from a text such as "z2=70 deg, z3=-1.7".

    Raises:
        ValueError: a part of the text is not a coordinate with its value, or a coordinate is given twice.
    """
    parts = filter(None, (part.strip() for part in text.split(",")))
    values = assignments("posture", parts, "z2=70 deg")
    return {name: number_of_text(f"posture: {name}", value) for name, value in values.items()}


def assignments(option: str, texts: Iterable[str], example: str) -> dict[str, str]:
    """Value by name of texts such as "z2=70 deg"; option and example are those of errors.

    Raises:
        ValueError: a text is not a name with a value, or a name is given twice.
    """
    values: dict[str, str] = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        if not value:
            raise ValueError(f"{option}: found '{text}', expected something like \"{example}\"")
        if name in values:
            raise ValueError(f"{option}: '{name}' is given twice")
        values[name] = value
    return values


def number_of_text(location: str, text: str) -> float:
    """Number of a text as a user types it: "0.5", or an angle such as "70 deg", in radians.

    Raises:
        ValueError: the text is neither; the message begins with the location.
    """
    try:
        number: float | str = float(text)
    except ValueError:
        number = text
    try:
        return angle(number)
    except ValueError as error:
        raise ValueError(f"{location}: found '{text}', {error}") from None


def numbers_text(values: Iterable[float]) -> str:
    """Numbers as text that is read back exactly."""
    return " ".join(repr(float(value)) for value in values)


def _number(value: Any) -> Any:
    # bool is an int in Python, and pydantic would also read "1.0": a physical number is written as a number.
    if isinstance(value, bool | str) or value is None:
        raise ValueError("expected a number")
    # The comparison is False for nan, and valid for an int too long for a float.
    if isinstance(value, int | float) and not abs(value) <= LARGEST_NUMBER:
        raise ValueError(f"expected a finite number, at most {LARGEST_NUMBER:g} in size")
    return value


def valid_name(value: Any) -> Any:
    """The value, if it is a valid name; ValueError if not."""
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        raise ValueError("expected a name of letters, digits, _, - and /, not starting with - or /")
    return value


def _not_too_many(value: Any) -> Any:
    # Checked before the items: validating a million wrong ones would take a minute.
    if isinstance(value, list | tuple | dict) and len(value) > MOST_PARTS:
        raise ValueError(f"expected at most {MOST_PARTS} items, not {len(value)}")
    return value


def unused_name(name: str, used: set[str], suffix: str) -> str:
    """The name, with the suffix as often as it is in use, added to those in use."""
    while name in used:
        name += suffix
    used.add(name)
    return name


def in_order_of_need(needs: Mapping[str, Iterable[str]], label: str) -> tuple[str, ...]:
    """Names, each behind those that it needs.

    Raises:
        ValueError: they form a cycle; the message names it, "a -> b -> a".
    """
    try:
        return tuple(TopologicalSorter(needs).static_order())
    except CycleError as error:
        cycle = " -> ".join(reversed(error.args[1]))
        raise ValueError(f"{label} form a cycle: {cycle}; expected none") from None


Member = TypeVar("Member")


def by_level(parts: Iterable[Member], carrier: Callable[[Member], str], known: Container[str]) -> Iterator[Member]:
    """The parts of a tree, level by level: those whose carrier is known, to which the caller adds each part."""
    remaining = list(parts)
    while remaining:
        ready = [part for part in remaining if carrier(part) in known]
        remaining = [part for part in remaining if carrier(part) not in known]
        yield from ready


Name = Annotated[str, BeforeValidator(valid_name)]
Number = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
Positive = Annotated[float, BeforeValidator(_number), Field(gt=0.0, allow_inf_nan=False)]
NonNegative = Annotated[float, BeforeValidator(_number), Field(ge=0.0, allow_inf_nan=False)]


def _as_written(value: Any, check: Callable[[Any], float]) -> float:
    checked = check(value)
    return value if isinstance(value, AngleText) else checked


def _with_unit(value: float) -> float | str:
    """An angle that would be refused as a number as text, other values as numbers."""
    is_large = isinstance(value, AngleText) and abs(value) > LARGEST_ANGLE
    return f"{float(value)!r} rad" if is_large else float(value)


def _at_most_two_turns(value: Any) -> Any:
    if isinstance(value, int | float) and abs(value) > LARGEST_ANGLE:
        if isinstance(value, AngleText):
            return math.remainder(value, 2.0 * math.pi)  # the same rotation, which a file may have in radians
        raise ValueError(f'expected at most two turns in radians; write "{value:g} deg" for degrees')
    return value


def _where(holds: Callable[[Any], bool], expected: str) -> AfterValidator:
    """Validator of values for which a condition holds."""

    def check(value: Any) -> Any:
        if not holds(value):
            raise ValueError(expected)
        return value

    return AfterValidator(check)


def _of_unit_length(vector: tuple[float, float, float]) -> tuple[float, float, float]:
    if not math.isclose(length := math.hypot(*vector), 1.0, abs_tol=1e-6):
        raise ValueError(f"has length {length:.6g}, expected a unit vector")
    return vector


Angle = Annotated[float, BeforeValidator(_at_most_two_turns), BeforeValidator(angle), Field(allow_inf_nan=False)]
CoordinateValue = Annotated[
    float, WrapValidator(_as_written), BeforeValidator(angle), PlainSerializer(_with_unit, when_used="json"),
    Field(allow_inf_nan=False),
]  # fmt: skip
"""Value of a coordinate, which stays an `AngleText` where it was written so."""
Length = Annotated[
    Number, _where(lambda value: abs(value) <= LARGEST_TRAVEL, f"expected at most {LARGEST_TRAVEL:g} m, is it in mm?")
]
"""Distance in the geometry of a machine."""
NonZero = Annotated[Number, _where(bool, "expected another number than 0")]
RISING = _where(lambda ends: ends[0] < ends[1], "expected ascending values")
"""Validator of two ends of a range, the lower one first."""
NOT_FALLING = _where(lambda ends: ends[0] <= ends[1], "expected ascending values")
"""The same for ends that may be equal."""
FEW = BeforeValidator(_not_too_many)
SOME = Field(min_length=1)
ROWS = BeforeValidator(lambda value: value.tolist() if isinstance(value, np.ndarray) else value)
"""Validator that passes arrays as nested lists."""
Vector = Annotated[tuple[Number, Number, Number], ROWS]
Position = Annotated[tuple[Length, Length, Length], ROWS]
UnitVector = Annotated[Vector, AfterValidator(_of_unit_length)]
Row6 = Annotated[tuple[Number, Number, Number, Number, Number, Number], ROWS]
Tensor = Annotated[tuple[Vector, Vector, Vector], ROWS]


class Part(BaseModel):
    """Base of all entries of machine and study files: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def omitted(machine: Part, carried: Mapping[type[Part], Collection[str]]) -> tuple[str, ...]:
    """Properties of a machine that a format does not carry: those of its parts, then its own.

    A key that differs from its default is named unless the format carries it, so that no new element or parameter is
    lost without a word.

    Args:
        machine: the machine.
        carried: keys that the format carries, by class; of other classes all.
    """
    found, own = _omitted_keys(machine, carried, ""), type(machine).model_fields
    of_parts = [f"{name_of(key)} of {', '.join(found[key])}" for key in found if key not in own]
    return (*of_parts, *(_own_text(machine, key) for key in found if key in own))


def _omitted_keys(part: Part, carried: Mapping[type[Part], Collection[str]], name: str) -> dict[str, list[str]]:
    """Omitted keys with the names of their owners; a part without a name has that of its owner."""
    fields = type(part).model_fields
    keys = next((carried[cls] for cls in type(part).__mro__ if cls in carried), fields)
    name, found = getattr(part, "name", None) or name, dict[str, list[str]]()
    for key, field in fields.items():
        value = getattr(part, key)
        if key in keys:
            for each in value if isinstance(value, tuple) else (value,):
                for inner, names in _omitted_keys(each, carried, name).items() if isinstance(each, Part) else ():
                    found.setdefault(inner, []).extend(names)
        elif field.is_required() or value != field.get_default():
            found.setdefault(key, []).append(name)
    return found


def _own_text(machine: Part, key: str) -> str:
    """An omitted key of the machine itself, with the names of its parts or its numbers."""
    value = getattr(machine, key)
    entries = value if isinstance(value, tuple) else ()
    return f"{name_of(key)} {', '.join(str(getattr(each, 'name', each)) for each in entries)}".rstrip()


LABELS = {
    "locked": "lock", "rayleigh": "Rayleigh damping", "fractional": "fractional damping",
    "posture": "reference posture", "independent": "selection of independent coordinates",
}  # fmt: skip
"""Names of keys in texts, where they differ from the keys."""


def name_of(key: str) -> str:
    """Name of a key in texts."""
    return LABELS.get(key, key.replace("_", " "))


class Origin(Part):
    """Pose of a frame in another: translation [m], then fixed-axis roll, pitch, yaw [rad] (as in URDF)."""

    xyz: Position = (0.0, 0.0, 0.0)
    """Translation [m]."""
    rpy: Annotated[tuple[Angle, Angle, Angle], ROWS] = (0.0, 0.0, 0.0)
    """Rotations about the fixed axes x, y, z in this order, as in URDF [rad]."""
