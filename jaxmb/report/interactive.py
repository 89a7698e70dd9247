"""Charts as figures of plotly, in its JSON: one figure for each cell, whose panels share their x axis.

plotly's Python classes are not used: only its JavaScript is needed, and that by the page alone.
"""

import math
from collections.abc import Iterable, Sequence
from functools import singledispatch
from html import escape
from typing import TypeAlias

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex

from jaxmb.report.charts import (
    Axis,
    Band,
    Bars,
    Cell,
    Cells,
    Chart,
    Colors,
    Direction,
    Line,
    Mark,
    Note,
    Panel,
    Rule,
    Span,
)
from jaxmb.report.rendering import is_upright, label_lines

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | dict[str, Json] | None"
Table: TypeAlias = dict[str, Json]

PIXELS = 88.0
"""Pixels per inch of a chart."""
MOST_POINTS = 2000
"""Points of a curve, or without one, above which they are decimated."""
LETTER = 6.5
"""Mean width of a letter of the names of ticks, pixels."""
DIGITS = 6
"""Significant digits of numbers in a page."""
SYMBOLS = {"o": "circle", "D": "diamond", "s": "square", "^": "triangle-up", "v": "triangle-down", "<": "triangle-left",
           ">": "triangle-right", "x": "x-thin", "+": "cross-thin", "|": "line-ns", "_": "line-ew", "*": "star",
           ".": "circle"}  # fmt: skip
OPEN = ("x-thin", "cross-thin", "line-ns", "line-ew")
"""Symbols that consist of lines only."""
DASHES = {"-": "solid", "--": "dash", ":": "dot"}
STOPS = 8
"""Intervals of a colour scale."""


def cell_figure(chart: Chart, cell: Cell) -> Table:
    """Traces, layout and height of one cell of a chart."""
    rooms = [0.26 if panel.title else 0.1 for panel in cell]
    total = sum(panel.height for panel in cell) + sum(rooms)
    traces, shapes, notes = list[Table](), list[Table](), list[Table]()
    x = cell[-1].x
    upright: Table = {"tickangle": 90} if x.names is not None and is_upright(x.names, chart.width) else {}
    frame: Table = {"mirror": "all"} if len(cell) > 1 else {}  # lines above and below each panel
    layout: Table = {
        "xaxis": _axis(x, chart.width) | upright | frame | {"anchor": f"y{len(cell) if len(cell) > 1 else ''}"}
    }
    top = 1.0
    for number, (panel, room) in enumerate(zip(cell, rooms, strict=True), 1):
        top -= room / total
        name, low = f"y{number if number > 1 else ''}", max(top - panel.height / total, 0.0)
        equal = {"scaleanchor": "x", "constrain": "domain"} if panel.equal else {}
        layout[name.replace("y", "yaxis", 1)] = (
            _axis(panel.y, panel.height) | {"domain": [low, top], "anchor": "x"} | equal
        )
        if panel.title:
            notes.append(_text(panel.title, 0.5, top, "paper", "paper") | {"yanchor": "bottom", "font": {"size": 12}})
        if panel.background != "#ffffff":
            shapes.append(_box("x domain", f"{name} domain", (0, 0, 1, 1)) | _filled(panel.background))
        for mark in panel.marks:
            _add(mark, panel, name, traces, shapes, notes)
        top = low
    below = _room_below(x, chart.width)
    layout |= {
        "shapes": shapes,
        "annotations": notes,
        "margin": {"l": _room_beside(chart), "r": 18, "t": 6, "b": below},
    }
    return {"data": traces, "layout": layout, "height": round(PIXELS * total + 24.0) + below, "link": chart.link}


def _room_beside(chart: Chart) -> int:
    """Margin left of all cells of a chart, pixels: the names of ticks, if there are any."""
    longest = max((len(name) for panel in chart.panels for name in panel.y.names or ()), default=0)
    label = 36 if any(panel.y.label for panel in chart.panels) else 12
    return label + round(LETTER * longest) if longest else 48


def _room_below(x: Axis, width: float) -> int:
    """Margin below a cell, pixels."""
    label = 14 * max(len(label_lines(x, width)) - 1, 0)
    if x.names is None:
        return 38 + label
    lines = max((name.count("\n") + 1 for name in x.names), default=1)
    longest = LETTER * max(map(len, x.names), default=0)
    return 26 + label + round(longest if is_upright(x.names, width) else 13.0 * lines)


def _add(mark: Mark, panel: Panel, axis: str, traces: list[Table], shapes: list[Table], notes: list[Table]) -> None:
    """Append the traces, shapes or notes of a mark."""
    match mark:
        case Span():
            shapes.append(_across(mark, axis, mark.low, mark.high, _filled(mark.color)))
        case Rule():
            line: Table = {"color": mark.color, "width": max(mark.width, 1.0), "dash": DASHES[mark.dashes]}
            # plotly draws its grid over shapes below, which would hide dashes
            look: Table = {"type": "line", "line": line, "layer": "below" if mark.dashes == "-" else "above"}
            shapes.append(_across(mark, axis, mark.at, mark.at, look))
        case Note():
            ends = ((panel.x, mark.x), (panel.y, mark.y))
            x, y = (math.log10(value) if of.log and not mark.inside else value for of, value in ends)
            refs = ("x domain", f"{axis} domain") if mark.inside else ("x", axis)
            color = "#ffffff" if mark.boxed else mark.color
            note = _text(mark.text, x, y, *refs) | {"font": {"size": 10, "color": color}, "xanchor": mark.align}
            note |= {"bgcolor": mark.color} if mark.boxed else {}
            right, up = mark.offset
            arrow: Table = {"showarrow": True, "ax": right, "ay": -up, "arrowcolor": mark.color, "arrowhead": 0}
            notes.append(note | (arrow if any(mark.offset) else {}))
        case _:
            traces += [trace | {"xaxis": "x", "yaxis": axis} for trace in traces_of(mark)]


def _across(mark: Span | Rule, axis: str, low: float, high: float, look: Table) -> Table:
    """A mark across the panel."""
    box = _box("x", f"{axis} domain", (low, 0, high, 1))
    if mark.along == "y":
        box = _box("x domain", axis, (0, low, 1, high))
    return box | look | ({"name": mark.label} if mark.label else {})


def _box(xref: str, yref: str, box: Sequence[float]) -> Table:
    x0, y0, x1, y1 = map(_number, box)
    return {"xref": xref, "yref": yref, "x0": x0, "y0": y0, "x1": x1, "y1": y1}


def _filled(color: str) -> Table:
    return {"type": "rect", "fillcolor": color, "line": {"width": 0}, "layer": "below"}


def _text(text: str, x: float, y: float, xref: str, yref: str) -> Table:
    return {"text": markup(text), "x": _number(x), "y": _number(y), "xref": xref, "yref": yref, "showarrow": False}


def markup(text: str) -> str:
    """A text for plotly, which reads a subset of HTML in all texts, but no `&quot;`."""
    return escape(text, quote=False).replace("\n", "<br>")


def _axis(axis: Axis, length: float) -> Table:
    found: Table = {"title": {"text": markup("\n".join(label_lines(axis, length)))}}
    if axis.log:
        found |= {"type": "log", "exponentformat": "power", "minexponent": 2}
    if axis.limits is not None:
        ends = [math.log10(end) if axis.log else end for end in axis.limits]
        found["range"] = [_number(end) for end in ends]
        decades = abs(ends[1] - ends[0])
        if axis.log and decades >= 2.0:
            # not the distance of the ticks, which would leave none after zooming in; plotly enlarges powers by 1.25
            found |= {"nticks": math.ceil(decades / math.ceil(decades / 6.0)), "tickfont": {"size": 9}}
    if axis.ticks is not None:
        found["tickvals"] = numbers(axis.ticks)
        if axis.names is not None:
            found |= {"ticktext": [*map(markup, axis.names)], "showgrid": False, "automargin": False}
    elif axis.whole:
        found["tickformat"] = "d"
    return found


def _number(value: float) -> float | None:
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def numbers(values: Iterable[float]) -> list[Json]:
    """Rounded numbers, null where they are not finite."""
    return [_number(float(value)) for value in np.ravel(np.asarray(values, dtype=float))]


def decimated(x: np.ndarray, y: np.ndarray, most: int = MOST_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """A curve of at most about `most` points with the extremes and the first gap of each group of neighbouring ones."""
    if y.size <= most:
        return x, y
    size = 3 * y.size // most
    groups = np.minimum(np.arange(-(-y.size // size) * size), y.size - 1).reshape(-1, size)
    own, gaps = y[groups], ~np.isfinite(y[groups])
    picks = (
        np.where(gaps, np.inf, own).argmin(axis=1),
        np.where(gaps, -np.inf, own).argmax(axis=1),
        gaps.argmax(axis=1),
    )
    index = np.unique(np.concatenate([[0, y.size - 1], *(groups[np.arange(len(groups)), k] for k in picks)]))
    return x[index], y[index]


def _hover(label: str, along: Direction = "y") -> Table:
    if not label:
        return {"hoverinfo": "skip"}
    return {"name": label, "hovertemplate": f"%{{{along}:.4~g}}<extra>{markup(label)}</extra>"}


@singledispatch
def traces_of(mark: Mark) -> list[Table]:
    """Traces of plotly for a mark."""
    raise TypeError(f"no mark of a chart: {type(mark).__name__}")


def _marker(marker: str, size: float, color: str, filled: bool) -> Table:
    symbol = SYMBOLS[marker]
    found: Table = {"symbol": symbol, "size": max(1.5 * size, 2.5), "color": color}
    if symbol in OPEN:
        found["line"] = {"color": color, "width": 2.0 if size > 6.0 else 1.3}
    elif not filled:
        found |= {"color": "#ffffff", "line": {"color": color, "width": 1.4}}
    return found


@traces_of.register
def _(mark: Line) -> list[Table]:
    x, y = np.asarray(mark.x, dtype=float), np.asarray(mark.y, dtype=float)
    has_curve = bool(mark.dashes and mark.width)
    step = -(-y.size // MOST_POINTS) or 1  # the extremes of points without a curve would exaggerate their scatter
    x, y = decimated(x, y) if has_curve else (x[::step], y[::step])
    trace: Table = {"type": "scatter", "x": numbers(x), "y": numbers(y), "cliponaxis": not mark.beyond}
    mode = ("lines" if has_curve else "", "markers" if mark.marker else "")
    if has_curve:
        line: Table = {"color": mark.color, "width": 1.3 * mark.width, "dash": DASHES[mark.dashes]}
        trace["line"] = line | ({"shape": "hv"} if mark.steps else {})
    if mark.marker:
        trace["marker"] = _marker(mark.marker, mark.size, mark.color, mark.filled)
    if mark.reach is not None:
        reach = np.atleast_2d(np.nan_to_num(np.asarray(mark.reach, dtype=float), posinf=0.0))[:, ::step]
        bars: Table = {"type": "data", "array": numbers(reach[-1]), "arrayminus": numbers(reach[0]), "symmetric": False}
        bars |= {"color": mark.color, "thickness": 1.3 * mark.width, "width": 1.4 * mark.cap}
        trace[f"error_{mark.along}"] = bars
    return [trace | {"mode": "+".join(filter(None, mode)) or "none"} | _hover(mark.label, mark.along)]


@traces_of.register
def _(mark: Band) -> list[Table]:
    x, low, high = (np.asarray(values, dtype=float) for values in (mark.x, mark.low, mark.high))
    known, outline = np.isfinite(low + high), list[np.ndarray]()
    for part in np.split(np.arange(x.size), np.flatnonzero(~known)):  # an area would cross gaps between two curves
        own = part[known[part]]
        there, back = (np.stack([x[own], ends[own]]) for ends in (low, high))
        outline += [there, back[:, ::-1], np.full((2, 1), np.nan)]
    red, green, blue = (int(mark.color[k : k + 2], 16) for k in (1, 3, 5))
    around = np.concatenate(outline, axis=1)
    area: Table = {"fill": "toself", "fillcolor": f"rgba({red},{green},{blue},{mark.opacity:g})", "line": {"width": 0}}
    name: Table = {"name": mark.label} if mark.label else {}
    trace: Table = {"type": "scatter", "mode": "lines", "x": numbers(around[0]), "y": numbers(around[1])}
    return [trace | area | name | {"hoverinfo": "skip"}]


@traces_of.register
def _(mark: Bars) -> list[Table]:
    start, end = np.asarray(mark.start, dtype=float), np.asarray(mark.end, dtype=float)
    look: Table = {"color": mark.color, "line": {"width": 0}}
    if mark.hatched:
        look = {"color": "#ffffff", "line": {"width": 1, "color": mark.color},
                "pattern": {"shape": "/", "fgcolor": mark.color, "size": 6}}  # fmt: skip
    along, across = mark.along, "x" if mark.along == "y" else "y"
    sizes: Table = {along: numbers(end - start), across: numbers(mark.at), "base": numbers(start)}
    orientation = "v" if mark.along == "y" else "h"
    trace: Table = {"type": "bar", "orientation": orientation, "width": mark.thickness, "marker": look}
    return [trace | sizes | _hover(mark.label, mark.along)]


@traces_of.register
def _(mark: Cells) -> list[Table]:
    values = np.asarray(mark.values, dtype=float)
    trace: Table = {
        "type": "contour" if mark.contours else "heatmap",
        "x": numbers(mark.x),
        "y": numbers(mark.y),
        "z": [numbers(row) for row in values],
        "hovertemplate": "%{z:.4~g}<extra></extra>",
    }
    if mark.contours:
        contours: Table = {"start": 0, "end": np.asarray(mark.colors.levels).size - 1, "size": 1}
        trace |= {"connectgaps": False, "contours": contours, "line": {"width": 0.5, "color": "#404040"}}
    if mark.decimals is not None:
        trace["texttemplate"] = f"%{{z:.{mark.decimals}f}}"
    return [trace | _shades(mark.colors, values, trace)]


def _shades(colors: Colors, values: np.ndarray, trace: Table) -> Table:
    """Colour scale of a trace; values on a logarithmic scale or in bands are drawn by position in the scale."""
    bar: Table = {"title": {"text": markup(colors.label), "side": "right"}, "thickness": 12, "outlinewidth": 0}
    continuous: list[Json] = [[k / STOPS, color] for k, color in enumerate(_colors(colors.name, STOPS + 1))]
    found: Table = {"showscale": colors.bar, "colorscale": continuous}
    (low, high), place = colors.limits, None
    if colors.levels is not None:
        levels = np.asarray(colors.levels, dtype=float)
        count, step = levels.size - 1, max(1, levels.size // 7)
        place, low, high = np.interp(values, levels, np.arange(levels.size)), 0.0, float(count)
        bar |= {"tickvals": list(range(0, levels.size, step)), "ticktext": [f"{x:g}" for x in levels[::step]]}
        if trace["type"] == "heatmap":
            bands = enumerate(_colors(colors.name, count))
            found["colorscale"] = [[end / count, color] for k, color in bands for end in (k, k + 1)]
    elif colors.log:
        place, low, high = np.log10(np.clip(values, low, high)), math.log10(low), math.log10(high)
        ticks = [low, 0.5 * (low + high), high]
        bar |= {"tickvals": ticks, "ticktext": [f"{10.0**x:g}" for x in ticks]}
    if place is not None:
        found |= {
            "z": [numbers(row) for row in place],
            "text": [numbers(row) for row in values],
            "hovertemplate": "%{text}<extra></extra>",
        }
    return found | {"zmin": low, "zmax": high, "zauto": False, "colorbar": bar}


def _colors(name: str, count: int) -> list[str]:
    """Colours at equal distances of a colour map of matplotlib."""
    return [to_hex(color) for color in colormaps[name](np.linspace(0.0, 1.0, count))]
