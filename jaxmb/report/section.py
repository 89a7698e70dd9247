"""A report as plain data: sections of text, tables and figures, independent of the output medium."""

import dataclasses
import functools
import pkgutil
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Lines:
    """Lines of text."""

    lines: tuple[str, ...]
    verbatim: bool = False
    """Whether long lines are not wrapped, as in a file."""


@dataclasses.dataclass(frozen=True)
class Facts:
    """Pairs of subject and sentence; further sentences on the same subject have "" as theirs."""

    rows: tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True)
class Column:
    """One column of a table."""

    heading: str
    align: Literal["left", "right"] = "right"
    minor: int = 0
    """Rank for dropping the column from a narrow table, the highest first; 0: never dropped."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell coloured by its verdict."""

    text: str
    verdict: str
    """"yes", "weak" or "no"."""


Row = tuple["str | Cell", ...]


@dataclasses.dataclass(frozen=True)
class Table:
    """A table as data."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    caption: str = ""
    """Legend of its marks."""


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure drawn on demand, so that matplotlib is imported only then."""

    name: str
    """File name without suffix, unique within a report."""
    draw: "Callable[[], Figure]"


Part = Lines | Facts | Table | Picture


@dataclasses.dataclass(frozen=True)
class Section:
    """One section of a report."""

    title: str
    parts: tuple[Part, ...]


def drawn_by(function: str, *arguments: Any) -> "Callable[[], Figure]":
    """Function that imports and calls the drawing function.

    Args:
        function: "module:name".
        arguments: its arguments.
    """
    return functools.partial(_draw, function, arguments)


def _draw(function: str, arguments: tuple[Any, ...]) -> "Figure":
    return pkgutil.resolve_name(function)(*arguments)


def left(*headings: str) -> tuple[Column, ...]:
    """Left-aligned columns, for names."""
    return tuple(Column(heading, "left") for heading in headings)


def right(*headings: str, minor: int = 0) -> tuple[Column, ...]:
    """Right-aligned columns, for numbers."""
    return tuple(Column(heading, minor=minor) for heading in headings)


def section(title: str, parts: Iterable[Part | None]) -> list[Section]:
    """A section of the parts that are not None; empty list without any."""
    present = tuple(part for part in parts if part is not None)
    return [Section(title, present)] if present else []
