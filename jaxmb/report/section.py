"""A report as plain data: sections of text, tables and figures, independent of the output medium."""

import dataclasses
import functools
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from jaxmb.io.validation import percentage
from jaxmb.report.charts import Chart, Skeleton


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
    """A figure, computed on demand and once, also where several media show it."""

    name: str
    """File name without suffix, unique within a report."""
    chart: Callable[[], Chart | Skeleton]

    def __post_init__(self) -> None:
        object.__setattr__(self, "chart", functools.cache(self.chart))


@dataclasses.dataclass(frozen=True)
class Group:
    """Parts that a page shows on demand; a terminal does not show them."""

    title: str
    parts: "tuple[Part, ...]"
    shown: bool = False
    """Whether the page shows them at first."""


Part = Lines | Facts | Table | Picture | Group


@dataclasses.dataclass(frozen=True)
class Section:
    """One section of a report."""

    title: str
    parts: tuple[Part, ...]


def table(
    title: str,
    columns: Sequence[Column],
    rows: Iterable[Sequence[str | Cell | None]],
    caption: str = "",
    notes: Mapping[str, str] = types.MappingProxyType({}),
    missing: str = "-",
) -> Table:
    """A table without the columns that are None in all rows.

    Args:
        title: of the table.
        columns: with those that may be left out.
        rows: a cell for each of these columns.
        caption: legend of the table.
        notes: legends of columns by heading, which follow the caption for the columns that are present.
        missing: text of other cells that are None.
    """
    cells = [*rows]
    kept = [k for k in range(len(columns)) if not cells or any(row[k] is not None for row in cells)]
    present = tuple(columns[k] for k in kept)
    shown = tuple(tuple(missing if (cell := row[k]) is None else cell for k in kept) for row in cells)
    legend = (caption, *(notes.get(column.heading, "") for column in present))
    return Table(title, present, shown, "; ".join(filter(None, legend)))


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


def side_by_side(named: Iterable[tuple[str, Iterable[Section]]]) -> list[Section]:
    """Sections of several reports, each title once: with the parts of each report as a group that is shown on demand.

    Args:
        named: name and sections of each report.
    """
    found = dict[str, dict[str, tuple[Part, ...]]]()
    order = list[str]()
    for name, sections in named:
        sections = [*sections]
        at = next((order.index(each.title) for each in sections if each.title in found), len(order))
        for each in sections:
            if each.title in found:
                at = order.index(each.title) + 1
            else:
                order.insert(at, each.title)
                at += 1
            own = found.setdefault(each.title, {})
            own[name] = own.get(name, ()) + each.parts
    return [_beside(title, found[title]) for title in order]


def _beside(title: str, parts: Mapping[str, tuple[Part, ...]]) -> Section:
    first, *others = parts.values()
    if others and all(other == first for other in others):
        return Section(title, first)
    return Section(title, tuple(Group(name, own, shown=not others) for name, own in parts.items()))


def capital(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """The text with a capital first letter and a full stop, unless it ends as a question."""
    return capital(text if text.endswith((".", "?")) else f"{text}.")


def number(value: float, digits: int = 4) -> str:
    """Text with `digits` significant digits, as "2.8e6" for large numbers; "unknown" if not finite."""
    if not math.isfinite(value):
        return "unknown"
    if value != 0.0 and not 1e-3 <= abs(value) < 1e4:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    text = f"{value:z#.{digits}g}"
    return (f"{value:.0f}" if "e" in text else text).removesuffix(".")


def short(value: float) -> str:
    """Text of a number from the input, such as a bound: up to three digits, no trailing zeros."""
    mantissa, e, exponent = number(value, 3).partition("e")
    return (mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa) + e + exponent


def percent(value: float, signed: bool = False) -> str:
    """A percentage with two significant digits, an integer from 10 to 1000, ">1000" above."""
    if abs(value) >= 9.95 and math.isfinite(value):
        return percentage(value, "+.0f" if signed else ".0f")
    return f"{value:+z.2g}" if signed else number(value, 2)


def std_percent(percentage: float) -> str:
    """A standard deviation by `percent`, with three digits where two would reach a limit of "yes" or "weak"."""
    text = percent(percentage)
    if text in ("10", "100") and percentage < float(text):
        return f"{min(float(f'{percentage:.3g}'), 0.999 * float(text)):.3g}"
    return text


def hertz(frequency_hz: float) -> str:
    """A frequency with three decimals, or four significant digits below 1 Hz."""
    return f"{frequency_hz:.3f}" if frequency_hz >= 1.0 else f"{frequency_hz:.4g}"


GEOMETRY_UNITS = {"m": (1e3, "mm"), "rad": (1e3, "mrad"), "1": (1e6, "ppm of 1")}
"""Factor and unit in which deviations from the stated geometry are shown."""


def signed(value: float) -> str:
    """A difference with its sign and three decimals."""
    return f"{value:+z.3f}"


def chance(value: float) -> str:
    """A probability with two significant digits, "<1e-9" below that."""
    return "<1e-9" if value < 1e-9 else number(value, 2)


def pictures(sections: Iterable[Section]) -> list[Picture]:
    """All figures of the sections, in order."""
    return [part for section in sections for part in section.parts if isinstance(part, Picture)]
