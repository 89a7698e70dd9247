"""Kinds of frequency responses, and names of their outputs and inputs, without JAX."""

from collections.abc import Iterable, Sequence
from typing import Literal

from jaxmb.io.validation import check_choice

FrfKind = Literal["receptance", "mobility", "accelerance"]
DERIVATIVES: dict[str, int] = {"receptance": 0, "mobility": 1, "accelerance": 2}
"""Number of time derivatives of the displacement."""

Direction = str
"""At a frame x y z (translation, force) or rx ry rz (rotation, moment) in its own axes, X Y Z RX RY RZ in the ground's;
of a coordinate "angle" or "travel". A leading - reverses the sign."""
DIRECTIONS = ("x", "y", "z", "rx", "ry", "rz")
GROUND_DIRECTIONS = tuple(axis.upper() for axis in DIRECTIONS)
JOINT_DIRECTIONS = {True: "angle", False: "travel"}
"""By whether a coordinate is revolute."""
ALL_DIRECTIONS = (*DIRECTIONS, *GROUND_DIRECTIONS, *JOINT_DIRECTIONS.values())
Point = tuple[str, Direction]
"""A degree of freedom of a sensor or a shaker: (frame, direction) or (coordinate, "angle" or "travel")."""


def check_kind(kind: str) -> int:
    """Number of time derivatives of a kind of FRF.

    Raises:
        ValueError: there is no such kind.
    """
    check_choice("kind", kind, DERIVATIVES)
    return DERIVATIVES[kind]


def endpoints(
    frame: str, outputs: Sequence[Point] | None, inputs: Sequence[Point] | None
) -> tuple[tuple[Point, ...], tuple[Point, ...]]:
    """Outputs and inputs of a test; if only one is given it serves as both, by default x, y, z of the frame.

    Raises:
        ValueError: they are no lists of pairs of texts.
    """
    first = outputs if outputs is not None else inputs
    second = inputs if inputs is not None else outputs
    at_frame = tuple((frame, axis) for axis in "xyz")
    return at_frame if first is None else _pairs(first), at_frame if second is None else _pairs(second)


def _pairs(points: object) -> tuple[Point, ...]:
    pairs = list[Point]()
    for point in points if isinstance(points, Iterable) and not isinstance(points, str) else [points]:
        match point:
            case [str() as name, str() as direction]:
                pairs.append((name, direction))
            case _:
                raise ValueError(f'point {point!r}: expected a list of pairs (frame, direction), as [("tool", "x")]')
    return tuple(pairs)


def turns(direction: Direction) -> bool:
    """Whether a direction is a rotation."""
    return direction.removeprefix("-").lower().startswith(("r", "angle"))


def dof_names(points: Iterable[Point]) -> tuple[str, ...]:
    """Names of points such as "tool x", the format of degrees of freedom in measured sets."""
    return tuple(" ".join(point) for point in points)
