"""A report as plain data: sections of text, tables and figures, which a screen, files of pictures or a page show."""

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
    """Whether a long line stays one line, as in a file."""


@dataclasses.dataclass(frozen=True)
class Facts:
    """What is to be said, by what it is about; lines about the same thing follow each other with "" for it."""

    rows: tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True)
class Column:
    """One column of a table."""

    heading: str
    align: Literal["left", "right"] = "right"
    minor: int = 0
    """Rank in which it is left out where there is little room, the highest first; 0 where it always stays."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell that is coloured by what it says."""

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
    """What its marks mean."""


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure that is drawn when it is asked for, so that nobody else waits for the drawing to load."""

    name: str
    """Of its file, without ending; no two of a report have the same."""
    draw: "Callable[[], Figure]"


Part = Lines | Facts | Table | Picture


@dataclasses.dataclass(frozen=True)
class Section:
    """One section of a report."""

    title: str
    parts: tuple[Part, ...]


def drawn_by(function: str, *arguments: Any) -> "Callable[[], Figure]":
    """A figure by a function that is imported when it is drawn.

    Args:
        function: "module:name".
        arguments: what it is called with.
    """
    return functools.partial(_draw, function, arguments)


def _draw(function: str, arguments: tuple[Any, ...]) -> "Figure":
    return pkgutil.resolve_name(function)(*arguments)


def left(*headings: str) -> tuple[Column, ...]:
    """Columns of names."""
    return tuple(Column(heading, "left") for heading in headings)


def right(*headings: str, minor: int = 0) -> tuple[Column, ...]:
    """Columns of numbers."""
    return tuple(Column(heading, minor=minor) for heading in headings)


def section(title: str, parts: Iterable[Part | None]) -> list[Section]:
    """A section of those parts that there are; none where there are none."""
    there = tuple(part for part in parts if part is not None)
    return [Section(title, there)] if there else []
