"""Charts as plain data, independent of the library that draws them.

A `Chart` is a grid of cells, a cell one or more panels above each other that share their x axis, a panel a pair of axes
with marks. A `Skeleton` is a machine in space with displacement fields. `rendering` draws both as pictures, `page` as
interactive figures. Charts hold numbers and texts only: a new figure is a function that returns one.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

# Colours distinguishable by colour-blind readers, after Okabe and Ito, "Color universal design", 2008.
MEASURED = "#b3b3b3"
INITIAL = "#E69F00"
FITTED = "#0072B2"
TRUE = "#009E73"
ALERT = "#D55E00"
SHADE = "#ebebeb"
SERIES = (FITTED, ALERT, TRUE, INITIAL, "#CC79A7", "#56B4E9")
"""Colours of the members of a series."""
AXIS = ("x", "y", "z")
OF_AXIS = (ALERT, TRUE, FITTED)
"""Colours of the components x, y and z."""

Direction = Literal["x", "y"]
Numbers = np.ndarray | Sequence[float]


@dataclasses.dataclass(frozen=True, eq=False)
class Axis:
    """One axis of a panel."""

    label: str = ""
    """Quantity with its unit."""
    log: bool = False
    limits: tuple[float, float] | None = None
    """Ends; the first may be the larger one. None: those of the marks."""
    ticks: Numbers | None = None
    names: Sequence[str] | None = None
    """Labels of the ticks; numbers by default."""
    whole: bool = False
    """Whether ticks are whole numbers."""


@dataclasses.dataclass(frozen=True, eq=False)
class Line:
    """A curve, or points where `dashes` is empty, which may have intervals along an axis; NaN interrupts it."""

    x: Numbers
    y: Numbers
    label: str = ""
    color: str = FITTED
    width: float = 1.0
    """Of the curve or the intervals, points (1/72 inch)."""
    dashes: str = "-"
    """"-", "--", ":" or "" for none."""
    marker: str = ""
    """A marker of matplotlib: one of o D s ^ v < > x + | _ *."""
    size: float = 3.0
    filled: bool = True
    steps: bool = False
    beyond: bool = False
    """Whether markers on the edge of the panel are drawn whole."""
    reach: Numbers | None = None
    """Half width of the intervals [n], or distances to their lower and upper ends [2, n]; NaN or infinite for none."""
    along: Direction = "y"
    """Axis of the intervals."""
    cap: float = 0.0
    """Width of the ends of the intervals, points (1/72 inch)."""


@dataclasses.dataclass(frozen=True, eq=False)
class Band:
    """The area between two curves."""

    x: Numbers
    low: Numbers
    high: Numbers
    label: str = ""
    color: str = FITTED
    opacity: float = 0.25


@dataclasses.dataclass(frozen=True, eq=False)
class Bars:
    """Bars from `start` to `end` along an axis, at positions `at` of the other one."""

    at: Numbers
    start: Numbers
    end: Numbers
    along: Direction = "y"
    thickness: float = 0.7
    label: str = ""
    color: str = FITTED
    hatched: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Span:
    """A shaded range of one axis."""

    low: float
    high: float
    along: Direction = "x"
    label: str = ""
    color: str = SHADE


@dataclasses.dataclass(frozen=True, eq=False)
class Rule:
    """A line across the panel at a value of one axis."""

    at: float
    along: Direction = "y"
    label: str = ""
    color: str = "#808080"
    width: float = 0.6
    dashes: str = "-"


@dataclasses.dataclass(frozen=True, eq=False)
class Note:
    """Text at a point of a panel."""

    text: str
    x: float
    y: float
    color: str = "#333333"
    inside: bool = False
    """Whether x and y are fractions of the panel instead of values."""
    boxed: bool = False
    align: Literal["left", "center", "right"] = "center"
    offset: tuple[float, float] = (0.0, 0.0)
    """Of the text from the point, points (1/72 inch); a line leads to the point unless 0."""


@dataclasses.dataclass(frozen=True, eq=False)
class Colors:
    """Colour scale of a heat map."""

    name: str
    """Of a colour map of matplotlib."""
    limits: tuple[float, float]
    label: str = ""
    log: bool = False
    levels: Numbers | None = None
    """Limits of colour bands; None: continuous."""
    bar: bool = True
    """Whether a bar beside the panel explains the colours."""


@dataclasses.dataclass(frozen=True, eq=False)
class Cells:
    """A heat map, or filled contours over a plane; NaN is transparent."""

    x: Numbers
    """Edges of the columns [n + 1], or positions of the values [n] of contours."""
    y: Numbers
    values: np.ndarray
    """[row, column]"""
    colors: Colors
    decimals: int | None = None
    """Decimals of the numbers in the cells; None: none."""
    contours: bool = False
    """Whether the values are drawn as contours at the levels of the colours."""


Mark = Line | Band | Bars | Span | Rule | Note | Cells


@dataclasses.dataclass(frozen=True, eq=False)
class Panel:
    """A pair of axes with marks; the first mark is lowest."""

    marks: Sequence[Mark]
    x: Axis = Axis()
    y: Axis = Axis()
    title: str = ""
    height: float = 2.2
    """Inches."""
    background: str = "#ffffff"
    equal: bool = False
    """Whether both axes have the same scale."""


Cell = tuple[Panel, ...]
"""Panels above each other with a common x axis."""


@dataclasses.dataclass(frozen=True, eq=False)
class Chart:
    """A figure as data."""

    title: str
    """The finding, one sentence or a clause."""
    caption: str
    """One sentence on what is drawn and how to read it."""
    rows: Sequence[Sequence[Cell]]
    width: float = 6.0
    """Of each cell, inches."""
    shared_y: bool = False
    """Whether the cells of a row have the same y axes."""
    shared_x: bool = False
    """Whether the cells of a column have the same x axis."""
    note: str = ""
    """Further text below the title."""
    link: str = ""
    """Charts with the same name follow each other's cursor and zoom along x."""

    @property
    def cells(self) -> list[Cell]:
        """All cells, row by row."""
        return [cell for row in self.rows for cell in row]

    @property
    def panels(self) -> list[Panel]:
        """All panels, row by row."""
        return [panel for cell in self.cells for panel in cell]

    @property
    def alternative_text(self) -> str:
        """Text for readers who do not see the figure."""
        axes = dict.fromkeys(f"{cell[-1].x.label} against {panel.y.label}" for cell in self.cells for panel in cell
                             if panel.y.label and cell[-1].x.label)  # fmt: skip
        return f"{self.title}. {self.caption} Axes: {'; '.join(axes)}." if axes else f"{self.title}. {self.caption}"

    def legend(self) -> list[Mark]:
        """The first mark of each label, in the order of the panels."""
        named: dict[str, Mark] = {}
        for mark in (mark for panel in self.panels for mark in panel.marks):
            if label := getattr(mark, "label", ""):
                named.setdefault(label, mark)
        return list(named.values())


class Structure(NamedTuple):
    """Lines and markers of a machine, or of the nodes of a measurement, by indices of points: points on nodes, then the
    sections of all beam elements."""

    node: np.ndarray
    """Node of each point on a node [r]; -1 is the ground."""
    offset: np.ndarray
    """Offset of these points in their node's axes [r, 3], m."""
    lines: tuple[tuple[tuple[int, ...], str], ...]
    """Rigid links, and beams as curves with their names."""
    springs: tuple[tuple[tuple[int, int], str], ...]
    """Lines between the two frames of a spring, with its name, or of a sliding loop joint."""
    joints: tuple[tuple[int, str], ...]
    """With their names; all nodes of a measurement."""
    ground: int | None
    ends: tuple[tuple[int, int, int, int], ...]
    """Origin and tips of the axes, 1 m long, of the tool or end frames."""
    end_names: tuple[str, ...]


class ModeMotion(NamedTuple):
    """The drawn displacements in one mode."""

    number: int
    """1 is the lowest frequency."""
    frequency_hz: float
    """Damped frequency; of measured shapes the natural one, as in the table of modes."""
    damping_ratio: float
    displacement: np.ndarray
    """Complex, of each point [p, 3] in ground axes, m: Re(displacement exp(j phase)) is drawn, largest at phase 0. Zero
    if no drawn point moves, as in a mode of a motor shaft alone."""
    energy: Mapping[str, float] = {}
    """Share of the strain energy by name of a joint, spring or beam."""
    frequency_unit: str = "Hz"

    @property
    def title(self) -> str:
        """Number, frequency and damping."""
        frequency = f"{self.frequency_hz:.4g} {self.frequency_unit}"
        return f"mode {self.number}: {frequency}, damping {100.0 * self.damping_ratio:z.2f} %"


class Arrows(NamedTuple):
    """Displacements of points, drawn as arrows with a common magnification."""

    label: str
    origin: np.ndarray
    """[n, 3], m."""
    vector: np.ndarray
    """[n, 3], m."""
    color: str = FITTED


@dataclasses.dataclass(frozen=True, eq=False)
class Skeleton:
    """A machine in space: lines between points at rest, with the displacements in some modes (animated), or arrows."""

    name: str
    structure: Structure
    points: np.ndarray
    """At rest in the ground frame [p, 3], m."""
    size: float
    """Diagonal of the box around the points, m."""
    modes: tuple[ModeMotion, ...] = ()
    arrows: tuple[Arrows, ...] = ()
    title: str = ""
    caption: str = ""

    @property
    def alternative_text(self) -> str:
        """Text for readers who do not see the figure."""
        return ". ".join(filter(None, [self.title, self.caption, "; ".join(mode.title for mode in self.modes)]))


def single(panel: Panel, title: str, caption: str, width: float = 6.0) -> Chart:
    """A chart of one panel."""
    return Chart(title, caption, (((panel,),),), width)


def named_rows(names: Sequence[str]) -> Axis:
    """An axis with a name at each whole number, the first on top."""
    return Axis("", limits=(len(names) - 0.4, -0.6), ticks=range(len(names)), names=names)


def in_grid(cells: Sequence[Cell], across: int) -> list[list[Cell]]:
    """Cells in rows of at most `across`."""
    return [list(cells[k : k + across]) for k in range(0, len(cells), across)]


def matrix_panel(
    values: np.ndarray, rows: Sequence[str], columns: Sequence[str], colors: Colors, *, cell: float = 0.42,
    labels: tuple[str, str] = ("", ""), decimals: int | None = 2,
) -> Panel:  # fmt: skip
    """A heat map of a matrix with names of rows and columns, the first row on top.

    Args:
        values: [row, column].
        rows: names.
        columns: names.
        colors: scale.
        cell: height of a row, inches.
        labels: of rows and columns.
        decimals: of the numbers in the cells; None: none.
    """
    count, across = values.shape
    x = Axis(labels[1], limits=(-0.5, across - 0.5), ticks=range(across), names=columns)
    y = Axis(labels[0], limits=(count - 0.5, -0.5), ticks=range(count), names=rows)
    mark = Cells(np.arange(across + 1) - 0.5, np.arange(count + 1) - 0.5, values, colors, decimals)
    return Panel((mark,), x, y, height=cell * count)


def spans_of(x: np.ndarray, mask: np.ndarray, label: str) -> Iterator[Span]:
    """Shaded ranges around the points of a mask, each to the middle of its neighbours."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(int)))
    middle = np.concatenate([x[:1], 0.5 * (x[1:] + x[:-1]), x[-1:]])
    for first, end in zip(edges[::2], edges[1::2], strict=True):
        yield Span(float(middle[first]), float(middle[end]), "x", label, SHADE)
