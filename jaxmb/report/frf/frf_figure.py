"""Frequency response functions as a grid of magnitude and phase, outputs in rows and inputs in columns."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullFormatter

from jaxmb.report.frf.phase import continuous_deg, unbroken
from jaxmb.report.style import FITTED, PowersOfTen
from jaxmb.response.frf_kind import DERIVATIVES, turns

MOST_POINTS = 6
"""Largest number of outputs and of inputs in a figure."""
MOST_DECADES = 8
LONGEST_TITLE = 40
"""Characters of a title that fit a narrow figure; a wide one fits `LETTERS_PER_INCH`."""
LETTERS_PER_INCH = 13
ROUNDING = 1e-13
"""Magnitude relative to the largest of the set up to which an FRF is zero to rounding."""
HIGHEST_PHASE = 285.0
"""End of the phase axis, degrees: a continuous phase may pass 180 and reach 270."""
KIND = {count: kind for kind, count in DERIVATIVES.items()}


class Curve(NamedTuple):
    """One line of every panel."""

    label: str
    frf: np.ndarray
    """[f, o, i]; entries that are not finite are not drawn."""
    color: str
    width: float
    dashes: str


def frf_figure(
    title: str,
    frequency_hz: np.ndarray,
    curves: list[Curve],
    outputs: tuple[Sequence[str], ...],
    inputs: tuple[Sequence[str], ...],
    derivatives: int,
    weight: np.ndarray | None = None,
    unit: str | None = None,
    notes: Sequence[Sequence[str]] | None = None,
    coherence: np.ndarray | None = None,
    frequency_unit: str = "Hz",
) -> Figure:
    """Magnitude over phase for each output (rows) and input (columns).

    Args:
        title: of the figure.
        frequency_hz: lines [f], Hz.
        curves: curves to draw; the first one sets the range of each row.
        outputs: of the FRFs, (frame, direction) or one name; the first `MOST_POINTS` are shown.
        inputs: likewise.
        derivatives: 0 receptance, 1 mobility, 2 accelerance.
        weight: of every line [f, o, i]; lines above the smallest weight are shaded or, if these are the majority, lines
            below the median weight.
        unit: of all FRFs; default: SI unit of the kind and the directions.
        notes: text after the name of each panel [output][input].
        coherence: of every line [f, o, i], or multiple coherence [f, o]; drawn below the phase.
        frequency_unit: of the frequency axis.
    """
    curves = [c._replace(frf=_without_rounding(c.frf)) for c in curves]
    if coherence is not None and coherence.ndim == 2:
        coherence = np.repeat(coherence[:, :, None], len(inputs), axis=2)
    if coherence is not None and not np.isfinite(coherence).any():
        coherence = None
    rows, columns = min(len(outputs), MOST_POINTS), min(len(inputs), MOST_POINTS)
    cell = (3.0, 2.75) if max(rows, columns) <= 3 else (2.3, 2.3)
    if coherence is not None:
        cell = cell[0], cell[1] + 0.45
    # Margins are set in inches: a layout engine takes seconds for so many axes.
    shaded, shade_label = (None, "") if weight is None else _unlike(weight)
    entries = len(curves) + bool(shade_label)
    across = 4 if columns > 1 else 3 if entries == 3 else 2  # columns of the legend
    left, right, bottom, top = 0.75, 0.15, 0.45, 0.6 + 0.15 * -(-entries // across)
    width, height = left + right + cell[0] * columns, top + bottom + cell[1] * rows
    width = max(width, 4.6)
    figure = Figure(figsize=(width, height))
    outer = figure.add_gridspec(
        rows, columns, left=left / width, right=1 - right / width, bottom=bottom / height, top=1 - top / height,
        hspace=0.17, wspace=0.1,
    )  # fmt: skip
    units = [[unit or unit_in_si(o, i, derivatives) for i in inputs[:columns]] for o in outputs[:rows]]
    same_unit = len({u for row in units for u in row}) == 1
    for o in range(rows):
        limits = _magnitude_limits([c.frf[:, o, :columns] for c in curves])
        for i in range(columns):
            ratios = (2.1, 1.0) if coherence is None else (2.1, 1.0, 0.5)
            inner = outer[o, i].subgridspec(len(ratios), 1, height_ratios=ratios, hspace=0.07)
            magnitude, phase = figure.add_subplot(inner[0]), figure.add_subplot(inner[1])
            panels = [magnitude, phase]
            if coherence is not None:
                panels.append(figure.add_subplot(inner[2]))
                _coherence(panels[2], frequency_hz, coherence[:, o, i])
            _magnitude(magnitude, frequency_hz, [c._replace(frf=c.frf[:, o, i]) for c in curves], limits)
            _phase(phase, frequency_hz, [c._replace(frf=c.frf[:, o, i]) for c in curves])
            heading = f"{' '.join(outputs[o])} / {' '.join(inputs[i])}" + ("" if same_unit else f" ({units[o][i]})")
            magnitude.set_title(heading if notes is None else f"{heading}: {notes[o][i]}", pad=3, y=1.0)
            if shaded is not None:
                _shade(magnitude, phase, frequency_hz, shaded[:, o, i])
            for axes in panels:
                axes.set_xlim(*_span(frequency_hz))
                axes.tick_params(labelleft=i == 0, labelbottom=o == rows - 1 and axes is panels[-1])
            if o == rows - 1:
                panels[-1].set_xlabel(f"frequency ({frequency_unit})")
            if i == 0:
                if coherence is not None:
                    panels[2].set_ylabel("coh.")
                magnitude.set_ylabel(f"magnitude ({units[o][i]})" if same_unit else "magnitude")
                phase.set_ylabel("phase (°)")
                figure.align_ylabels(panels)
    shown = "" if (rows, columns) == (len(outputs), len(inputs)) else (
        f" (first {rows} of {len(outputs)} outputs, first {columns} of {len(inputs)} inputs)"
    )  # fmt: skip
    what = f": {KIND[derivatives]}, output / input{shown}"
    room = max(LONGEST_TITLE, int(LETTERS_PER_INCH * (width - left - right)) - len(what))
    title = title if len(title) <= room else title[: room - 3] + "..."
    figure.text(left / width, 1 - 0.12 / height, f"{title}{what}", va="top", fontsize=9)
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=c.color, lw=c.width, ls=c.dashes, label=c.label) for c in curves
    ]
    if shade_label:
        handles.append(Patch(color="0.93", label=shade_label))
    by_rows = [
        handle for column in range(across) for handle in handles[column::across]
    ]  # a legend is filled by columns
    figure.legend(
        handles=by_rows, loc="upper left", bbox_to_anchor=(left / width, 1 - 0.27 / height), ncols=across,
        borderpad=0.0, borderaxespad=0.0, columnspacing=1.5,
    )  # fmt: skip
    return figure


def predicted_figure(
    title: str, frequency_hz: np.ndarray, frf: np.ndarray, points: tuple[Sequence[str], ...], derivatives: int
) -> Figure:
    """Predicted FRFs [f, point, point] of a machine."""
    return frf_figure(title, frequency_hz, [Curve("predicted", frf, FITTED, 1.0, "-")], points, points, derivatives)


def _without_rounding(frf: np.ndarray) -> np.ndarray:
    """FRFs [f, o, i], with those at the level of rounding set to zero."""
    size = np.where(np.isfinite(frf), np.abs(frf), 0.0)
    return np.where(size.max(axis=0, initial=0.0) <= ROUNDING * size.max(initial=0.0), 0.0 * frf, frf)


def _magnitude(axes: Axes, frequency_hz: np.ndarray, curves: list[Curve], limits: tuple[float, float] | None) -> None:
    for curve in curves:
        size = np.abs(curve.frf)
        seen = np.where(np.isfinite(size) & (size > 0.0), size, np.nan)
        axes.semilogy(
            frequency_hz, seen, color=curve.color, lw=curve.width, ls=curve.dashes, marker=_marker(frequency_hz)
        )
    finite = np.isfinite(curves[0].frf).any()
    if not (finite and any(np.nan_to_num(curve.frf).any() for curve in curves)):
        text = "zero" if finite else "no usable line"
        axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color="0.4")
    if limits is None:
        axes.set_yticks([])
        axes.set_yticks([], minor=True)
        return
    axes.set_ylim(*limits)
    axes.yaxis.set_major_locator(LogLocator(numticks=6))
    axes.yaxis.set_minor_locator(LogLocator(subs=(1.0,), numticks=20))
    axes.yaxis.set_major_formatter(PowersOfTen())
    axes.yaxis.set_minor_formatter(NullFormatter())


def _phase(axes: Axes, frequency_hz: np.ndarray, curves: list[Curve]) -> None:
    first = None
    for curve in curves:
        seen = np.isfinite(curve.frf) & (curve.frf != 0.0)
        angle = continuous_deg(np.where(seen, np.degrees(np.angle(np.where(seen, curve.frf, 1.0))), np.nan), first)
        first = angle if first is None else first
        x, y = unbroken(frequency_hz, angle)
        axes.plot(x, y, color=curve.color, lw=curve.width, ls=curve.dashes, marker=_marker(frequency_hz))
    axes.set_ylim(-HIGHEST_PHASE, HIGHEST_PHASE)
    axes.set_yticks([-180, 0, 180])


def _coherence(axes: Axes, frequency_hz: np.ndarray, coherence: np.ndarray) -> None:
    axes.plot(frequency_hz, coherence, color="0.35", lw=0.8, marker=_marker(frequency_hz))
    axes.set_ylim(-0.05, 1.05)
    axes.set_yticks([0, 1])


def _marker(frequency_hz: np.ndarray) -> str:
    """A marker for a single line, which has no curve."""
    return "o" if frequency_hz.size == 1 else "none"


def _shade(magnitude: Axes, phase: Axes, frequency_hz: np.ndarray, shaded: np.ndarray) -> None:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], shaded, [False]]).astype(int)))
    middle = np.concatenate([frequency_hz[:1], 0.5 * (frequency_hz[1:] + frequency_hz[:-1]), frequency_hz[-1:]])
    for first, end in zip(edges[::2], edges[1::2], strict=True):
        for axes in (magnitude, phase):
            axes.axvspan(float(middle[first]), float(middle[end]), color="0.93", lw=0, zorder=0)


def _unlike(weight: np.ndarray) -> tuple[np.ndarray, str]:
    """Mask [f, o, i] of the used lines whose weight differs from that of most, and its label; "" without any."""
    used = weight > 0.0
    if not used.any():
        return used, ""
    raised = used & (weight > 1.001 * weight[used].min())
    if 2 * raised.sum() <= used.sum():
        return raised, "lines of higher weight" if raised.any() else ""
    # Shading the higher weights would shade most lines.
    return used & (weight < 0.999 * np.median(weight[used])), "lines of lower weight"


def _magnitude_limits(sets: list[np.ndarray]) -> tuple[float, float] | None:
    """Range of the first set, slightly widened for the others; None where all are zero."""

    def finite(frf: np.ndarray) -> np.ndarray:
        size = np.abs(frf[np.isfinite(frf)])
        return size[size > 0.0]

    own, every = finite(sets[0]), np.concatenate([finite(s) for s in sets])
    if every.size == 0:
        return None
    own = own if own.size else every
    high = min(every.max(), 10.0 * own.max())
    low = max(min(own.min(), every.min()), 0.3 * own.min(), high / 10.0**MOST_DECADES)
    margin = max(1.6, float(np.sqrt(10.0 * low / high)))  # a power of ten is within
    return low / margin, high * margin


def _span(frequency_hz: np.ndarray) -> tuple[float, float]:
    first, last = float(frequency_hz[0]), float(frequency_hz[-1])
    return (first, last) if last > first else (first - 1.0, first + 1.0)


def unit_in_si(output: Sequence[str], force: Sequence[str], derivatives: int) -> str:
    """SI unit of one FRF."""
    response = "rad" if turns(output[1]) else "m"
    load = "N m" if turns(force[1]) else "N"
    per = ["", "/s", "/s²"][derivatives]
    return f"{response}{per}/{load}" if load == "N" else f"{response}{per}/({load})"
