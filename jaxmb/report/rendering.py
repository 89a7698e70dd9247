"""Charts drawn by matplotlib, as PNG files.

Margins are computed in inches from the lengths of the texts: a layout engine would draw every figure twice.
"""

import dataclasses
import os
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import matplotlib
import numpy as np
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator
from PIL import Image

from jaxmb.io.files import write_atomically
from jaxmb.io.validation import whole_number
from jaxmb.machine.build import Model
from jaxmb.report.charts import (
    Axis,
    Band,
    Bars,
    Cell,
    Cells,
    Chart,
    Colors,
    Line,
    Mark,
    Note,
    Panel,
    Rule,
    Skeleton,
    Span,
)  # fmt: skip
from jaxmb.report.mode_shapes import (
    check_mode,
    first_modes,
    found_modes,
    machine_motion,
    mode_shape_skeleton,
    skeleton_chart,
)
from jaxmb.report.section import Section, pictures
from jaxmb.response.modal import Modes

_RC = {
    "font.family": "sans-serif",
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.labelsize": 8.0,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.90",
    "grid.linewidth": 0.5,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "text.usetex": False,
    "text.parse_math": False,  # names may contain $, as the variables of a controller
    "text.hinting": "none",  # at 200 dpi without a visible effect, and a twelfth of the time of a figure
}


@contextmanager
def drawing() -> Iterator[None]:
    """Context with the style of the figures."""
    with matplotlib.rc_context(_RC):  # pyright: ignore[reportArgumentType]
        yield


class PowersOfTen(LogFormatter):
    """Ticks of a logarithmic axis as "10⁻³" or "2 × 10⁵", without matplotlib's mathematical text, which is slow."""

    SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Label of a tick; empty for unlabelled ticks."""
        if not super().__call__(x, pos):
            return ""
        mantissa, exponent = f"{x:.2e}".split("e")
        power = "10" + str(int(exponent)).translate(self.SUPERSCRIPT)
        return power if float(mantissa) == 1.0 else f"{float(mantissa):g} × {power}"


DPI, GIF_DPI = 200, 120
PERIOD_S = 2.0
"""Period of the animation of a mode, s."""
EM = 0.6
"""Mean width of a letter over the size of the font."""
TITLE, TEXT, SMALL = 9.0, 8.0, 7.0
"""Sizes of fonts, points."""
EDGE, GAP, STACKED = 0.14, 0.16, 0.07
"""Margin of the figure, gap between cells and between the panels of a cell, inches."""
LINE = 0.16
"""Height of a line of text, inches."""
BAR, BAR_ROOM = 0.14, 0.62
"""Width of a colour bar, and with its labels, inches."""
LABELLED_TICK = 0.4
"""Width of the number at a tick, inches."""


def inches(text: str, size: float) -> float:
    """Estimated width of the longest line of a text."""
    return EM * size / 72.0 * max(map(len, text.split("\n")))


def write_pictures(sections: Iterable[Section], folder: str | os.PathLike[str]) -> list[Path]:
    """Draw all figures of the sections, write them as PNG files, and return their paths.

    Args:
        sections: of a report.
        folder: output folder, created if missing.

    Raises:
        OSError: the folder or a file cannot be written; no partial file remains.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with drawing():
        return [write_figure(p.chart(), folder / f"{p.name}.png") for p in pictures(sections)]


def write_figure(chart: Chart | Skeleton | Figure, path: Path) -> Path:
    """Write a chart or figure as PNG atomically and return its path.

    Raises:
        OSError: the file cannot be written.
    """
    write_atomically(path, png_of(chart))
    return path


def png_of(chart: Chart | Skeleton | Figure, dpi: float = DPI) -> bytes:
    """A chart or figure as the contents of a PNG file."""
    figure = figure_of(chart)
    figure.set_dpi(dpi)
    buffer = BytesIO()
    # savefig draws a figure with a layout twice; level 6, the default, takes 1.5 times as long for files 12 % smaller
    FigureCanvasAgg(figure).print_png(buffer, pil_kwargs={"compress_level": 1})
    return buffer.getvalue()


def figure_of(chart: Chart | Skeleton | Figure) -> Figure:
    """The figure of a chart, in the style of `drawing`, from which its layout follows."""
    if isinstance(chart, Figure):
        return chart
    with drawing():
        return _Sheet(skeleton_chart(chart) if isinstance(chart, Skeleton) else chart).figure()


def mode_shape_figures(model: Model, q: Float[Array, "n"], count: int = 6, found: Modes | None = None) -> list[Figure]:
    """One figure per mode for the first modes of a machine: at rest in grey, displaced in colour.

    Side view and top view, ground axes in m at equal scale. Displacements are drawn at the phase of the largest motion
    and scaled to a tenth of the machine's size.

    Args:
        model: the machine.
        q: posture [n], rad or m.
        count: largest number of modes.
        found: its modes, from `modes` or `undamped_modes` of the machine linearized at q; computed if not given.

    Raises:
        ValueError: count is below 1, q does not have the machine's n coordinates, or a loop is open at q.
    """
    found = found_modes(model, q, found)
    motion = machine_motion(model, q, found, first_modes(found, count))
    return [figure_of(dataclasses.replace(motion, modes=(mode,))) for mode in motion.modes]


def mode_shape_grid(model: Model, q: Float[Array, "n"], count: int = 6, found: Modes | None = None) -> Figure:
    """The first modes of a machine in one figure, three per row, each as in `mode_shape_figures`.

    Raises:
        ValueError: as `mode_shape_figures`, or the machine has no modes.
    """
    return figure_of(mode_shape_skeleton(model, q, count, found))


def write_mode_animation(
    path: str | os.PathLike[str],
    model: Model,
    q: Float[Array, "n"],
    mode: int = 1,
    frames: int = 30,
    found: Modes | None = None,
) -> Path:
    """Write one period of a mode as a looping animated GIF that begins at the largest displacement.

    Frames are as in `mode_shape_figures`; the amplitude is constant despite damping.

    Args:
        path: of the file.
        model: the machine.
        q: posture [n], rad or m.
        mode: number of the mode, 1 is the lowest frequency.
        frames: frames per period.
        found: the machine's modes, from `modes` or `undamped_modes` of the machine linearized at q; computed if not
            given.

    Returns:
        The path.

    Raises:
        ValueError: there is no such mode, frames is below 2, q does not have the machine's n coordinates, or a loop is
            open at q.
        OSError: the file cannot be written; no partial file remains.
    """
    whole_number("frames", frames, 2)
    found = found_modes(model, q, found)
    check_mode(model.name, found, mode)
    motion = machine_motion(model, q, found, [mode])
    phases = np.linspace(0.0, 2.0 * np.pi, frames, endpoint=False)
    first, *others = (Image.open(BytesIO(png_of(skeleton_chart(motion, phase), GIF_DPI))) for phase in phases)
    buffer = BytesIO()
    first.save(buffer, "GIF", save_all=True, append_images=others, duration=1e3 * PERIOD_S / frames, loop=0)
    write_atomically(Path(path), buffer.getvalue())
    return Path(path)


class _Sheet:
    """Layout of a chart, inches."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        columns = [[row[c] for row in chart.rows if c < len(row)] for c in range(max(map(len, chart.rows)))]
        self.left = [max(self._beside(cell, c) for cell in column) for c, column in enumerate(columns)]
        self.right = [max(map(_bar_room, column)) for column in columns]
        self.below = [max(self._under(r, c) for c in range(len(row))) for r, row in enumerate(chart.rows)]
        self.heights = [max(map(_height, row)) for row in chart.rows]
        self.width = 2 * EDGE + sum(self.left) + sum(self.right) + len(columns) * chart.width
        if len(columns) == 1 and self.width < 4.4:
            self.right[0] += 4.4 - self.width
            self.width = 4.4
        self.title_size = title_size(chart.panels, chart.width)
        self.handles = [handle(mark) for mark in chart.legend()]
        self.title = _wrapped(chart.title, self.width - 2 * EDGE, TITLE)
        self.note = _wrapped(chart.note, self.width - 2 * EDGE, SMALL)
        widest = max((0.55 + inches(str(h.get_label()), TEXT) for h in self.handles), default=1.0)
        self.legend_columns = max(min(int((self.width - 2 * EDGE) / widest), len(self.handles)), 1)
        self.legend_rows = -(-len(self.handles) // self.legend_columns)
        self.top = EDGE + LINE * (len(self.title) + len(self.note) + self.legend_rows) + 0.08
        self.height = self.top + sum(self.heights) + sum(self.below) + EDGE

    def _beside(self, cell: Cell, c: int) -> float:
        if c and self.chart.shared_y:
            return GAP
        return max(_tick_width(panel) + _label_room(panel) for panel in cell) + (GAP if c else 0.0)

    def _is_lowest(self, r: int, c: int) -> bool:
        return r + 1 == len(self.chart.rows) or c >= len(self.chart.rows[r + 1])

    def _under(self, r: int, c: int) -> float:
        if self.chart.shared_x and not self._is_lowest(r, c):
            return 0.1
        x = self.chart.rows[r][c][-1].x
        ticks = 0.22
        if x.names is not None:
            upright = is_upright(x.names, self.chart.width)
            lines = max((name.count("\n") + 1 for name in x.names), default=1)
            ticks = 0.12 + (max((inches(n, SMALL) for n in x.names), default=0.0) if upright else 0.13 * lines)
        return ticks + 0.19 * len(label_lines(x, self.chart.width)) + 0.04

    def figure(self) -> Figure:
        """The figure."""
        chart = self.chart
        figure = Figure(figsize=(self.width, self.height))
        y = self.height - EDGE
        for lines, size, color in ((self.title, TITLE, "black"), (self.note, SMALL, "0.35")):
            if lines:
                figure.text(EDGE / self.width, y / self.height, "\n".join(lines), va="top", fontsize=size, color=color,
                            linespacing=1.15)  # fmt: skip
                y -= LINE * len(lines)
        if self.handles:
            n = self.legend_columns
            figure.legend(
                handles=[h for k in range(n) for h in self.handles[k::n]], loc="upper left",
                bbox_to_anchor=(EDGE / self.width, (y - 0.02) / self.height),
                ncols=n, borderpad=0.0, borderaxespad=0.0, columnspacing=1.4, handletextpad=0.5, labelspacing=0.25,
            )  # fmt: skip
        y = self.height - self.top
        for r, row in enumerate(chart.rows):
            x = EDGE
            for c, cell in enumerate(row):
                x += self.left[c]
                self._cell(figure, cell, r, c, (x, y))
                x += chart.width + self.right[c]
            y -= self.heights[r] + self.below[r]
        return figure

    def _cell(self, figure: Figure, cell: Cell, r: int, c: int, corner: tuple[float, float]) -> None:
        x, y = corner
        for k, panel in enumerate(cell):
            y -= _title_room(panel)
            box = (x / self.width, (y - panel.height) / self.height, self.chart.width / self.width,
                   panel.height / self.height)  # fmt: skip
            axes = figure.add_axes(box)
            draw_panel(axes, panel, self.chart.width, self.title_size)
            last = k + 1 == len(cell)
            if not last or (self.chart.shared_x and not self._is_lowest(r, c)):
                axes.tick_params(labelbottom=False)
            else:
                axes.set_xlabel("\n".join(label_lines(cell[-1].x, self.chart.width)))
            if c and self.chart.shared_y:
                axes.tick_params(labelleft=False)
            elif panel.y.label:
                axes.set_ylabel("\n".join(label_lines(panel.y, panel.height)))
                axes.yaxis.set_label_coords(-(_tick_width(panel) + 0.1) / self.chart.width, 0.5)
            for colors in filter(None, map(_colors, panel.marks)):
                if colors.bar:
                    left = (x + self.chart.width + 0.1) / self.width
                    _draw_bar(figure, figure.add_axes((left, box[1], BAR / self.width, box[3])), colors)
            y -= panel.height + (0.0 if last else STACKED)


def _height(cell: Cell) -> float:
    return sum(panel.height + _title_room(panel) for panel in cell) + STACKED * (len(cell) - 1)


def _title_room(panel: Panel) -> float:
    return 0.2 + 0.13 * panel.title.count("\n") if panel.title else 0.0


def label_lines(axis: Axis, length: float) -> list[str]:
    """Lines of the label of an axis, about as long as the axis [inches]."""
    return _wrapped(axis.label, length, TEXT, 8, break_words=False)


def _label_room(panel: Panel) -> float:
    count = len(label_lines(panel.y, panel.height))
    return 0.04 + LINE * count if count else 0.0


def _tick_width(panel: Panel) -> float:
    if panel.y.names is None:
        return LABELLED_TICK
    return 0.1 + max((inches(name, SMALL) for name in panel.y.names), default=0.0)


def _bar_room(cell: Cell) -> float:
    bars = [c for panel in cell for c in map(_colors, panel.marks) if c is not None and c.bar]
    return max((0.1 + BAR_ROOM + (0.16 if c.label else 0.0) for c in bars), default=0.0)


def _colors(mark: Mark) -> Colors | None:
    return mark.colors if isinstance(mark, Cells) else None


def is_upright(names: Sequence[str], width: float) -> bool:
    """Whether the names of ticks do not fit beside each other on an axis of a width [inches]."""
    return len(names) * (max((inches(name, SMALL) for name in names), default=0.0) + 0.08) > width


def _wrapped(text: str, width: float, size: float, least: int = 20, break_words: bool = True) -> list[str]:
    """Lines of a text about as long as a width [inches], of at least some characters."""
    most = max(int(1.08 * width / (EM * size / 72.0)), least)
    return [line for part in text.split("\n") for line in textwrap.wrap(part, most, break_long_words=break_words)]


def title_size(panels: Iterable[Panel], width: float) -> float:
    """Size of the font of all titles of panels of a given width [inches], points."""
    return TEXT if all(inches(panel.title, TEXT) <= width for panel in panels) else SMALL


def draw_panel(axes: Axes, panel: Panel, width: float, size: float) -> None:
    """Draw the marks and axes of a panel of a given width [inches] and size of the title [points]."""
    both = {"x": panel.x, "y": panel.y}
    axes.set(**{f"{direction}scale": "log" for direction, axis in both.items() if axis.log})
    for order, mark in enumerate(panel.marks):
        draw_mark(mark, axes, 1.0 + 0.01 * order)
    if panel.background != "#ffffff":
        axes.set_facecolor(panel.background)
    if any(isinstance(mark, Cells) for mark in panel.marks):
        axes.grid(False)
    if panel.title:
        axes.set_title(panel.title, pad=3, y=1.0, fontsize=size)
    for direction in both:
        _draw_axis(axes, direction, panel, width)
    axes.set(**{f"{direction}lim": axis.limits for direction, axis in both.items() if axis.limits is not None})


def _draw_axis(axes: Axes, direction: str, panel: Panel, width: float) -> None:
    axis, drawn = (panel.x, axes.xaxis) if direction == "x" else (panel.y, axes.yaxis)
    if axis.ticks is not None:
        names = axis.names if axis.names is not None else [f"{t:g}" for t in axis.ticks]
        drawn.set_ticks(list(axis.ticks), names)
        drawn.set_minor_locator(NullLocator())
        if axis.names is not None:
            axes.grid(False, axis=direction)  # pyright: ignore[reportArgumentType]
        if direction == "x" and axis.names is not None and is_upright(axis.names, width):
            axes.tick_params(axis="x", rotation=90)
    elif axis.log:
        drawn.set_major_formatter(PowersOfTen())
        drawn.set_minor_formatter(PowersOfTen())
        low, high = drawn.get_view_interval() if axis.limits is None else axis.limits
        if high / low > 10.0**1.5:
            drawn.set_major_locator(LogLocator(numticks=7 if panel.height > 1.0 or direction == "x" else 4))
            drawn.set_minor_formatter(NullFormatter())
        if high / low > 1e3:  # a third of the time of a figure of FRFs is its minor ticks
            drawn.set_minor_locator(NullLocator())
    elif direction == "x" or axis.whole or panel.height < 1.2:
        most = max(4, int(2.0 * width)) if direction == "x" else max(2, int(4.0 * panel.height))
        drawn.set_major_locator(MaxNLocator(min(most, 8), integer=axis.whole, steps=[1, 2, 5, 10]))


def handle(mark: Mark) -> Line2D | Patch:
    """Entry of a legend."""
    label = getattr(mark, "label", "")
    match mark:
        case Line():
            line = mark.dashes or ("none" if mark.reach is None else "-")
            return Line2D(
                [], [], ls=line, lw=mark.width, color=mark.color, marker=mark.marker or "none", ms=max(mark.size, 3.0),
                mfc=mark.color if mark.filled else "white", mew=_edge(mark), label=label,
            )  # fmt: skip
        case Rule():
            return Line2D([], [], ls=mark.dashes, lw=mark.width, color=mark.color, label=label)
        case Bars(hatched=True):
            return Patch(facecolor="white", edgecolor=mark.color, hatch="////", label=label)
        case _:
            color, opacity = getattr(mark, "color", "0.5"), getattr(mark, "opacity", 1.0)
            return Patch(facecolor=color, alpha=opacity, lw=0.0, label=label)


def _edge(mark: Line) -> float:
    return (1.6 if mark.size > 6.0 else 1.1) if mark.marker in ("x", "|", "_", "+") or not mark.filled else 0.0


def draw_mark(mark: Mark, axes: Axes, order: float) -> None:
    """Draw a mark; later ones have a higher `order`."""
    match mark:
        case Line():
            above = order + (1.0 if mark.reach is None else 1.1)
            axes.plot(
                mark.x, mark.y, ls=mark.dashes or "none", lw=mark.width, color=mark.color, marker=mark.marker or "none",
                ms=mark.size, mfc=mark.color if mark.filled else "white", mew=_edge(mark), zorder=above,
                drawstyle="steps-post" if mark.steps else "default", clip_on=not mark.beyond,
            )  # fmt: skip
            if mark.reach is not None:
                reach = np.nan_to_num(np.asarray(mark.reach, dtype=float), posinf=0.0)
                errors = (None, reach) if mark.along == "x" else (reach, None)
                axes.errorbar(mark.x, mark.y, *errors, fmt="none", ecolor=mark.color, elinewidth=mark.width,
                              capsize=mark.cap, capthick=_edge(mark), zorder=order + 1.0)  # fmt: skip
        case Band():
            axes.fill_between(mark.x, mark.low, mark.high, color=mark.color, alpha=mark.opacity, lw=0.0, zorder=order)
        case Bars():
            start, end = np.asarray(mark.start, dtype=float), np.asarray(mark.end, dtype=float)
            face, edge, hatch = ("white", mark.color, "////") if mark.hatched else (mark.color, "none", None)
            bars = axes.bar if mark.along == "y" else axes.barh
            bars(mark.at, end - start, mark.thickness, start, facecolor=face, edgecolor=edge, hatch=hatch,
                 linewidth=0.8, zorder=order)  # fmt: skip
        case Span():
            across = axes.axvspan if mark.along == "x" else axes.axhspan
            across(mark.low, mark.high, color=mark.color, lw=0, zorder=0)
        case Rule():
            line = axes.axvline if mark.along == "x" else axes.axhline
            line(mark.at, color=mark.color, lw=mark.width, ls=mark.dashes, zorder=order + 0.5)
        case Note():
            box = {"boxstyle": "round,pad=0.2", "fc": mark.color, "ec": "none"} if mark.boxed else None
            arrow = {"arrowstyle": "-", "color": mark.color, "lw": 0.8} if any(mark.offset) else None
            axes.annotate(
                mark.text, (mark.x, mark.y), xycoords="axes fraction" if mark.inside else "data", xytext=mark.offset,
                textcoords="offset points", color="white" if mark.boxed else mark.color, ha=mark.align, va="center",
                fontsize=SMALL, bbox=box, zorder=order + 2.0, weight="bold" if mark.boxed else "normal",
                arrowprops=arrow,
            )  # fmt: skip
        case Cells(contours=True):
            values, levels, colors = np.ma.masked_invalid(mark.values), mark.colors.levels, mark.colors.name
            axes.contourf(mark.x, mark.y, values, levels=levels, norm=_norm(mark.colors), cmap=colors, zorder=order)
            axes.contour(mark.x, mark.y, values, levels=levels, colors="0.25", linewidths=0.25, zorder=order + 0.1)
        case Cells():
            axes.pcolormesh(mark.x, mark.y, mark.values, cmap=mark.colors.name, norm=_norm(mark.colors), zorder=order)
            if mark.decimals is not None:
                _write_numbers(mark, axes, order + 1.0)


def _write_numbers(mark: Cells, axes: Axes, order: float) -> None:
    """Write the numbers in the cells of a heat map."""
    x, y = (np.convolve(edges, (0.5, 0.5), "valid") for edges in (mark.x, mark.y))
    for (row, column), value in np.ndenumerate(mark.values):
        if np.isfinite(value):
            dark = abs(value) > 0.6 * max(map(abs, mark.colors.limits))
            axes.text(
                float(x[column]), float(y[row]), f"{value:z.{mark.decimals}f}", ha="center", va="center", fontsize=6.0,
                color="white" if dark else "0.15", zorder=order,
            )  # fmt: skip


def _norm(colors: Colors) -> Normalize:
    if colors.levels is not None:
        return BoundaryNorm(np.asarray(colors.levels), 256)
    return (LogNorm if colors.log else Normalize)(*colors.limits)


def _draw_bar(figure: Figure, axes: Axes, colors: Colors) -> None:
    mappable, levels = ScalarMappable(_norm(colors), matplotlib.colormaps[colors.name]), colors.levels
    ticks = None if levels is None else levels[:: max(1, len(levels) // 7)]
    extend = "both" if colors.log else "neither"
    bar = figure.colorbar(mappable, cax=axes, ticks=ticks, extend=extend, format="%g", label=colors.label)
    bar.ax.minorticks_off()
