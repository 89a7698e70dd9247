"""Report on a machine at one posture: predicted modes, FRFs and mode shapes."""

import dataclasses
import os
import tempfile
import textwrap
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float
from matplotlib.animation import PillowWriter
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from jaxmb.io.files import write_atomically
from jaxmb.io.validation import whole_number
from jaxmb.machine.build import Model
from jaxmb.report.charts import FITTED, ModeMotion, Skeleton
from jaxmb.report.frf_charts import Curve, Responses, frf_chart
from jaxmb.report.modes import predicted_modes_table
from jaxmb.report.section import Lines, Picture, Section
from jaxmb.report.structure import (
    AXES_PART,
    DRAWN_PART,
    check_mode,
    energy_of_parts,
    first_modes,
    found_modes,
    machine_motion,
)
from jaxmb.report.style import drawing
from jaxmb.response.modal import Modes

AT_REST = "0.62"
DISPLACED = FITTED
GROUND = "0.25"
LEAST_EXTENT = 0.3
"""Smallest extent of the drawn box along an axis, over the largest."""
MARGIN = 0.04
COLUMNS = 3
CELL, SINGLE = 2.4, 4.0
"""Width of the views of a mode in a figure of several modes and of a single mode, inches."""
TALLEST = 1.6
"""Largest height of both views of a mode over their width."""
LEFT, RIGHT, TITLE, GAP, BELOW = 0.55, 0.1, 0.3, 0.12, 0.4
"""Margins around the views of a mode and gap between them, inches."""
LETTERS_PER_INCH = 12
LONGEST_ARROW = 0.2
"""Length of the longest arrow over the size of the machine, as on pages."""
NOTE = f"displaced by at most {100 * DRAWN_PART:.0f} % of its size"


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
    motion, figures = machine_motion(model, q, found, first_modes(found, count)), list[Figure]()
    for mode in motion.modes:
        figure, (views,) = _modes_figure(motion, [mode], SINGLE)
        draw_displaced(views, motion, mode)
        figures.append(figure)
    return figures


def mode_shape_grid(model: Model, q: Float[Array, "n"], count: int = 6, found: Modes | None = None) -> Figure:
    """The first modes of a machine in one figure, three per row, each as in `mode_shape_figures`.

    Raises:
        ValueError: as `mode_shape_figures`, or the machine has no modes.
    """
    return skeleton_figure(mode_shape_skeleton(model, q, count, found))


def skeleton_figure(motion: Skeleton) -> Figure:
    """The modes of a skeleton in one figure, three per row; of a skeleton without modes its arrows."""
    if not motion.modes:
        return _arrows_figure(motion)
    figure, every = _modes_figure(motion, motion.modes, CELL)
    for views, mode in zip(every, motion.modes, strict=True):
        draw_displaced(views, motion, mode)
    return figure


def mode_shape_skeleton(
    model: Model, q: Float[Array, "n"], count: int = 6, found: Modes | None = None, energy: bool = False
) -> Skeleton:
    """A machine with the displacements in its first modes.

    Args:
        model: the machine.
        q: posture [n], rad or m.
        count: largest number of modes.
        found: its modes at q; computed if not given.
        energy: whether the share of each part in the strain energy is computed.

    Raises:
        ValueError: as `mode_shape_figures`, or the machine has no modes.
    """
    found = found_modes(model, q, found)
    numbers = first_modes(found, count)
    check_mode(model.name, found, 1)
    motion = machine_motion(model, q, found, numbers)
    modes = motion.modes
    if energy:
        shares = energy_of_parts(model, q, found, numbers)
        modes = tuple(mode._replace(energy=share) for mode, share in zip(modes, shares, strict=True))
    lowest, highest = modes[0].frequency_hz, modes[-1].frequency_hz
    return dataclasses.replace(
        motion,
        modes=modes,
        title=f"{model.name}: first {len(modes)} modes, {lowest:.4g} to {highest:.4g} Hz",
        caption=f"Mode shapes, {NOTE}.",
    )


class View(NamedTuple):
    """Axes and the indices of the two drawn directions, 0 for x."""

    axes: Axes
    shown: list[int]


def draw_displaced(views: Sequence[View], motion: Skeleton, mode: ModeMotion, phase: float = 0.0) -> list[Any]:
    """Draw the machine at a phase [rad] of a mode over the machine at rest; returns the removable artists."""
    return _draw(views, motion, displaced(motion, mode, phase), DISPLACED, 1.3)


def displaced(motion: Skeleton, mode: ModeMotion, phase: float = 0.0) -> Float[np.ndarray, "p 3"]:
    """Drawn positions [m] of the points of a machine at a phase [rad] of a mode; frame axes keep their length."""
    points = motion.points + (mode.displacement * np.exp(1j * phase)).real
    for origin, *tips in motion.structure.ends:
        along = points[tips] - points[origin]
        points[tips] = points[origin] + AXES_PART * motion.size * along / np.linalg.norm(along, axis=1, keepdims=True)
    return points


def _modes_figure(motion: Skeleton, modes: Sequence[ModeMotion], width: float) -> tuple[Figure, list[list[View]]]:
    """A figure of the machine at rest with views of the given width [inches] for each mode."""
    reach = np.max([np.abs(mode.displacement) for mode in motion.modes], axis=0)
    shown = np.concatenate([motion.points - reach, motion.points + reach])  # at all phases of all modes
    titles = [mode.title + ("" if np.any(mode.displacement) else "\nno drawn point moves") for mode in modes]
    return _figure(motion, shown, NOTE, titles, {"displaced": DISPLACED}, width)


def _arrows_figure(motion: Skeleton) -> Figure:
    """The machine at rest with its arrows at one scale, from the side and from above."""
    longest = max((float(np.linalg.norm(a.vector, axis=1).max(initial=0.0)) for a in motion.arrows), default=0.0)
    scale = LONGEST_ARROW * motion.size / longest if longest > 0.0 else 1.0
    tips = [a.origin + scale * a.vector for a in motion.arrows]
    shown = np.concatenate([motion.points, *(a.origin for a in motion.arrows), *tips])
    note = f"displacements drawn {scale:.3g} times as long"
    figure, (views,) = _figure(motion, shown, note, [""], {a.label: a.color for a in motion.arrows}, SINGLE)
    for axes, across in views:
        for a in motion.arrows:
            axes.quiver(*a.origin[:, across].T, *scale * a.vector[:, across].T, color=a.color, angles="xy",
                        scale_units="xy", scale=1.0, width=0.005, zorder=3.0)  # fmt: skip
    return figure


def _figure(
    motion: Skeleton,
    shown_points: Float[np.ndarray, "p 3"],
    note: str,
    titles: Sequence[str],
    colors: Mapping[str, str],
    width: float,
) -> tuple[Figure, list[list[View]]]:
    """A figure of the machine at rest with a pair of views for each title.

    Args:
        motion: the machine.
        shown_points: all points that the views contain, m.
        note: on the scale of the displacements.
        titles: of the pairs of views.
        colors: of displacements by their label in the legend.
        width: of a view, inches.
    """
    low, high = _box(shown_points)
    extent = high - low
    along, across = (0, 1) if extent[0] >= extent[1] else (1, 0)
    scale = min(width / extent[along], TALLEST * width / (extent[2] + extent[across]))
    wide, heights = scale * extent[along], (scale * extent[2], scale * extent[across])
    columns = min(COLUMNS, len(titles))
    rows = -(-len(titles) // columns)
    cell = np.array([LEFT + width + RIGHT, TITLE + heights[0] + GAP + heights[1] + BELOW])
    size = cell * (columns, rows)
    title = textwrap.wrap(f"{motion.name}: {note}", int(LETTERS_PER_INCH * size[0]))
    size[1] += 0.6 + 0.16 * len(title)
    figure = Figure(figsize=tuple(size))
    figure.text(0.5, 1 - 0.08 / size[1], "\n".join(title), ha="center", va="top", fontsize=9)
    _legend(figure, motion, colors)
    every = []
    for m, title_of_views in enumerate(titles):
        row, column = divmod(m, columns)
        x = cell[0] * column + LEFT + 0.5 * (width - wide)
        y, views = 0.4 + cell[1] * (rows - 1 - row) + BELOW, list[View]()
        for bottom, height, up in ((y + heights[1] + GAP, heights[0], 2), (y, heights[1], across)):
            axes = figure.add_axes((x / size[0], bottom / size[1], wide / size[0], height / size[1]))
            axes.set_xlim(low[along], high[along])
            axes.set_ylim(low[up], high[up])
            axes.set_ylabel(f"{'xyz'[up]} (m)")
            for axis, length in ((axes.xaxis, wide), (axes.yaxis, height)):
                axis.set_major_locator(MaxNLocator(max(2, round(2.0 * length)), steps=[1, 2, 5, 10]))
            views.append(View(axes, [along, up]))
        views[0].axes.set_title(title_of_views)
        views[0].axes.tick_params(labelbottom=False)
        views[1].axes.set_xlabel(f"{'xyz'[along]} (m)")
        figure.align_ylabels([view.axes for view in views])
        _draw(views, motion, motion.points, AT_REST, 0.9)
        for axes, shown in views:
            axes.plot(*motion.points[[motion.structure.ground]][:, shown].T, "^", ms=6, color=GROUND)
        every.append(views)
    return figure, every


def _legend(figure: Figure, motion: Skeleton, colors: Mapping[str, str]) -> None:
    structure = motion.structure
    end_label = structure.end_names[0] if len(structure.ends) == 1 else "end frames"
    handles = [
        Line2D([], [], color=AT_REST, lw=0.9, label="at rest"),
        *(Line2D([], [], color=color, lw=1.3, label=label) for label, color in colors.items()),
        Line2D([], [], color="0.4", marker="o", ms=3.5, lw=0, label="joint"),
        Line2D([], [], color=GROUND, marker="^", ms=5, lw=0, label="ground"),
        *([Line2D([], [], color="0.4", marker="1", ms=8, lw=0, label=end_label)] if structure.ends else []),
    ]
    columns = 5 if figure.get_figwidth() > 4.0 else 3
    figure.legend(
        handles=handles, loc="lower center", ncols=columns, columnspacing=1.0, handlelength=1.5, handletextpad=0.4
    )


def _box(points: Float[np.ndarray, "p 3"]) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest x, y, z [m] of a box around some points."""
    low, high = points.min(axis=0), points.max(axis=0)
    middle, extent = 0.5 * (low + high), high - low
    half = (0.5 + MARGIN) * np.maximum(extent, LEAST_EXTENT * extent.max())
    return middle - half, middle + half


def _draw(views: Sequence[View], motion: Skeleton, points: np.ndarray, color: str, width: float) -> list[Any]:
    structure = motion.structure
    triads = [(origin, tip) for origin, *tips in structure.ends for tip in tips]
    drawn: list[Any] = []
    for axes, shown in views:
        seen = points[:, shown]
        drawn += [
            axes.add_collection(LineCollection([seen[list(line)] for line in lines], colors=color, lw=lw, ls=dashes))
            for lines, lw, dashes in (
                (structure.lines, width, "-"),
                (structure.springs, 0.6 * width, "--"),
                (triads, 0.8 * width, "-"),
            )
            if lines
        ]
        if structure.joints:
            drawn += axes.plot(*seen[list(structure.joints)].T, "o", ms=2.3 * width, color=color, mec="none")
    return drawn


FRAMES = 30
PERIOD_S = 2.0
"""Period of the animation, s."""
DPI = 120


def write_mode_animation(
    path: str | os.PathLike[str],
    model: Model,
    q: Float[Array, "n"],
    mode: int = 1,
    frames: int = FRAMES,
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
    (shown,) = motion.modes
    path = Path(path)
    with drawing(), tempfile.TemporaryDirectory() as folder:
        figure, (views,) = _modes_figure(motion, [shown], SINGLE)
        part, rate = Path(folder) / "mode.gif", frames / PERIOD_S
        writer = PillowWriter(fps=rate)  # pyright: ignore[reportArgumentType]  (need not be whole)
        with writer.saving(figure, part, DPI):
            for phase in np.linspace(0.0, 2.0 * np.pi, frames, endpoint=False):
                drawn = draw_displaced(views, motion, shown, phase)
                writer.grab_frame()
                for artist in drawn:
                    artist.remove()
        write_atomically(path, part.read_bytes())
    return path


MOST_MODES = 6
"""Largest number of modes in a figure."""


def mode_shape_sections(model: Model, q: Float[Array, "n"], found: Modes) -> list[Section]:
    """Section with the shapes of the first modes of a machine; empty for a machine without modes.

    Args:
        model: the machine.
        q: posture [n], rad or m.
        found: its modes at q.
    """
    if not found.frequency_hz.size:
        return []
    shapes = partial(mode_shape_skeleton, model, q, MOST_MODES, found)
    return [Section(f"Mode shapes of {model.name}", (Picture("mode-shapes", shapes),))]


LISTED_MODES = 20
"""Number of modes that are all shown; of more, such as with beams, only those in the band."""


def predicted_sections(
    name: str,
    found: Modes,
    frequency_hz: np.ndarray,
    frf: np.ndarray,
    points: tuple[Sequence[str], ...],
    derivatives: int,
    posture: Mapping[str, float],
    angles: Collection[str],
) -> list[Section]:
    """Section on the modes and FRFs of a machine.

    Args:
        name: of the machine.
        found: its modes.
        frequency_hz: lines [f].
        frf: FRFs [f, point, point].
        points: of motion and force.
        derivatives: 0 receptance, 1 mobility, 2 accelerance.
        posture: coordinate name -> value, rad or m.
        angles: names of the revolute coordinates.
    """
    stated = [
        f"{coordinate} {np.degrees(value):.4g} deg" if coordinate in angles else f"{coordinate} {value:.4g} m"
        for coordinate, value in posture.items()
        if value != 0.0
    ]
    at = f"at {', '.join(stated) or 'the zero posture'}"
    curves = [Curve("predicted", frf, FITTED, 1.0, "-")]
    modes_hz = np.asarray(found.frequency_hz)
    count = modes_hz.size
    first = f": lowest mode at {modes_hz[0]:.4g} Hz" if count else ""
    draw = partial(
        frf_chart,
        f"{name} {at}{first}",
        Responses(frequency_hz, curves, points, points, derivatives),
    )
    shown = count if count <= LISTED_MODES else max(int(np.sum(modes_hz <= frequency_hz[-1])), 1)
    more = (Lines((f"and {count - shown} more above {modes_hz[shown - 1]:.6g} Hz",)),) if shown < count else ()
    return [Section(f"Modes of {name}", (predicted_modes_table(found, at, shown), *more, Picture("frf", draw)))]
