"""Mode shapes as figures: the machine at rest in grey, and displaced in colour."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from mpl_toolkits.mplot3d.art3d import Line3DCollection
from mpl_toolkits.mplot3d.axes3d import Axes3D

from jaxmb.machine.build import Model
from jaxmb.report.mode_shapes.mode_motion import (
    AXES_PART,
    DRAWN_PART,
    MachineMotion,
    ModeMotion,
    check_mode,
    first_modes,
    found_modes,
    machine_motion,
)
from jaxmb.report.mode_shapes.panel import add_panel, fit
from jaxmb.report.style import FITTED
from jaxmb.response.modal import Modes

AT_REST = "0.62"
DISPLACED = FITTED
GROUND = "0.25"
LEAST_EXTENT = 0.3
"""Of the box that is drawn, along each axis, as a part of the largest."""
MARGIN = 0.04
COLUMNS = 3
CELL, SINGLE = 2.7, 4.2
"""Width of the axes of a figure of several modes, and of one, inches."""
LEAST_WIDTH = 4.2
"""Of a figure, inches: the legend's."""
LETTERS_PER_INCH = 12
NOTE = f"displaced by at most {100 * DRAWN_PART:.0f} % of its size"


def mode_shape_figures(model: Model, q: Float[Array, "n"], count: int = 6, found: Modes | None = None) -> list[Figure]:
    """A figure for each of the first modes of a machine: at rest in grey, displaced as in the mode in colour.

    The machine is drawn in space, x, y and z of the ground frame in m at the same scale, displacements at the phase of
    the largest motion and multiplied so that the largest is a tenth of the machine's size.

    Args:
        model: the machine.
        q: posture [n], rad or m.
        count: how many modes, or all where there are fewer.
        found: its modes, from `modes` or `undamped_modes` of the machine linearized at q; computed where not given.

    Raises:
        ValueError: count is not 1 or more, q does not have the machine's n coordinates, or a loop is open there.
    """
    found = found_modes(model, q, found)
    motion, figures = machine_motion(model, q, found, first_modes(found, count)), list[Figure]()
    for mode in motion.modes:
        figure, axes = single_figure(motion, mode)
        draw_displaced(axes, motion, mode)
        figures.append(figure)
    return figures


def mode_shape_grid(model: Model, q: Float[Array, "n"], count: int = 6, found: Modes | None = None) -> Figure:
    """The first modes of a machine in one figure, three beside each other, each as in `mode_shape_figures`.

    Raises:
        ValueError: as `mode_shape_figures`, or the machine has no modes.
    """
    found = found_modes(model, q, found)
    numbers = first_modes(found, count)
    check_mode(model.name, found, 1)
    motion = machine_motion(model, q, found, numbers)
    figure, every = _figure(motion, motion.modes, CELL)
    for axes, mode in zip(every, motion.modes, strict=True):
        draw_displaced(axes, motion, mode)
    return figure


def single_figure(motion: MachineMotion, mode: ModeMotion) -> tuple[Figure, Axes3D]:
    """A machine at rest with the title of one of its modes."""
    figure, (axes,) = _figure(motion, [mode], SINGLE)
    return figure, axes


def draw_displaced(axes: Axes3D, motion: MachineMotion, mode: ModeMotion, phase: float = 0.0) -> list[Any]:
    """Draw the machine at a phase of a mode, rad, over its picture at rest; returns what can be removed again."""
    return _draw(axes, motion, displaced(motion, mode, phase), DISPLACED, 1.3)


def displaced(motion: MachineMotion, mode: ModeMotion, phase: float = 0.0) -> Float[np.ndarray, "p 3"]:
    """Points of a machine as they are drawn at a phase of a mode, rad; the axes of frames keep their length."""
    moved = motion.points + (mode.displacement * np.exp(1j * phase)).real
    for origin, *tips in motion.structure.ends:
        along = moved[tips] - moved[origin]
        moved[tips] = moved[origin] + AXES_PART * motion.size * along / np.linalg.norm(along, axis=1, keepdims=True)
    return moved


def mode_title(mode: ModeMotion) -> str:
    """Number, frequency and damping of a mode."""
    percent = round(100.0 * mode.damping_ratio, 2) + 0.0  # no "-0.00"
    still = "" if np.any(mode.displacement) else "\nmoves nothing that is drawn"
    return f"mode {mode.number}: {mode.frequency_hz:.4g} Hz, damping {percent:.2f} %{still}"


def _figure(motion: MachineMotion, modes: Sequence[ModeMotion], width: float) -> tuple[Figure, list[Axes3D]]:
    """A figure with the machine at rest, axes of that width, inches, for each mode."""
    low, high = _box(motion)
    fitted = fit(low, high, width)
    columns = min(COLUMNS, len(modes))
    rows = -(-len(modes) // columns)
    across = max(width * columns, LEAST_WIDTH)
    title = textwrap.wrap(f"{motion.name}: {NOTE}", int(LETTERS_PER_INCH * across))
    top, bottom = 0.2 + 0.16 * len(title), 0.4
    whole = fitted.height * rows + top + bottom
    figure = Figure(figsize=(across, whole))
    figure.text(0.5, 1 - 0.08 / whole, "\n".join(title), ha="center", va="top", fontsize=9)
    _legend(figure, motion)
    every = []
    for m, mode in enumerate(modes):
        row, column = divmod(m, columns)
        corner = 0.5 * (across - width * columns) + width * column, bottom + fitted.height * (rows - 1 - row)
        axes = add_panel(figure, corner, fitted, low, high, mode_title(mode))
        _draw(axes, motion, motion.points, AT_REST, 0.9)
        axes.plot(*motion.points[[motion.structure.ground]].T, "^", ms=6, color=GROUND)
        every.append(axes)
    return figure, every


def _legend(figure: Figure, motion: MachineMotion) -> None:
    structure = motion.structure
    handles = [
        Line2D([], [], color=AT_REST, lw=0.9, label="at rest"),
        Line2D([], [], color=DISPLACED, lw=1.3, label="displaced"),
        Line2D([], [], color="0.4", marker="o", ms=3.5, lw=0, label="joint"),
        Line2D([], [], color=GROUND, marker="^", ms=5, lw=0, label="ground"),
    ]
    if structure.spokes:
        handles.append(Line2D([], [], color="0.4", marker="o", ms=2.0, lw=0.5, label="frame"))
    if structure.ends:
        label = structure.end_names[0] if len(structure.ends) == 1 else "end frames"
        handles.append(Line2D([], [], color="0.4", marker="1", ms=8, lw=0, label=label))
    figure.legend(handles=handles, loc="lower center", ncols=6, columnspacing=1.0, handlelength=1.5, handletextpad=0.4)


def _box(motion: MachineMotion) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest x, y, z of a box that holds the machine in all phases of all modes."""
    reach = np.max([np.abs(mode.displacement) for mode in motion.modes], axis=0)
    low, high = np.min(motion.points - reach, axis=0), np.max(motion.points + reach, axis=0)
    middle, extent = 0.5 * (low + high), high - low
    half = (0.5 + MARGIN) * np.maximum(extent, LEAST_EXTENT * extent.max())
    return middle - half, middle + half


def _draw(axes: Any, motion: MachineMotion, points: np.ndarray, color: str, width: float) -> list[Any]:
    structure = motion.structure
    triads = [(origin, tip) for origin, *tips in structure.ends for tip in tips]
    drawn = [
        axes.add_collection3d(Line3DCollection([points[list(line)] for line in lines], colors=color, lw=lw, ls=dashes))
        for lines, lw, dashes in (
            (structure.lines, width, "-"),
            (structure.spokes, 0.35 * width, "-"),
            (structure.springs, 0.6 * width, "--"),
            (triads, 0.8 * width, "-"),
        )
        if lines
    ]
    joints, sensors = list(structure.joints), [b for _, b in structure.spokes]
    for which, size in ((joints, 2.3 * width), (sensors, 1.3 * width)):
        if which:
            drawn += axes.plot(*points[which].T, "o", ms=size, color=color, mec="none")
    return drawn
