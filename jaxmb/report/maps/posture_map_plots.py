"""Figures of posture maps: written for each map, in the space of the coordinates and in the workspace."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from jaxmb.maps.kinetostatic.posture_maps import PostureMap
from jaxmb.maps.kinetostatic.posture_quantities import QUANTITIES
from jaxmb.report.maps.map_style import (
    LABELLED,
    SHOWN_AS,
    bands,
    bounded,
    colours,
    label,
    outline_zones,
    singular_line,
    title,
)
from jaxmb.report.maps.workspace_plot import workspace_figure
from jaxmb.report.style import ALERT, FITTED, drawing, write_figure

POSTURE_FIGURES = tuple(f"{name}-{space}.png" for name in QUANTITIES for space in ("joints", "workspace"))
"""Names of all files that `write_map_figures` can write."""


def write_map_figures(
    maps: Mapping[str, PostureMap], folder: str | os.PathLike[str], plane: str | None = None
) -> list[Path]:
    """Draw each map in joint space and, over two coordinates, in the workspace, and write them as PNG files.

    Args:
        maps: maps by quantity.
        folder: where the files go; it is made where it does not exist.
        plane: the workspace's axes, as "xz"; where not given those along which the frame moves most.

    Raises:
        OSError: the folder or a file cannot be written; no file is left half-written.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with drawing():
        for name, found in maps.items():
            written.append(write_figure(joint_space_figure(found), folder / f"{name}-joints.png"))
            if len(found.postures.over) > 1:
                written.append(write_figure(workspace_figure(found, plane), folder / f"{name}-workspace.png"))
    return written


def joint_space_figure(found: PostureMap) -> Figure:
    """Values over the map's coordinates, zones outlined and named, singular postures as a line.

    Of more than two coordinates the first two are shown, with the best value over the others.
    """
    figure = Figure(figsize=(5.2, 4.4), layout="constrained")
    axes = figure.add_subplot()
    scale = SHOWN_AS[found.about.unit][1]
    axis = found.postures
    grid = [np.degrees(g) if turning else g for g, turning in zip(axis.grid, axis.revolute, strict=True)]
    names = [f"{n} ({'deg' if turning else 'm'})" for n, turning in zip(axis.over, axis.revolute, strict=True)]
    if len(grid) == 1:
        axes.plot(grid[0], bounded(found.values) * scale, color=FITTED)
        axes.axhline(found.threshold * scale, color=ALERT, lw=0.8)
        for number, zone in enumerate(found.zones[:LABELLED], 1):
            shown = grid[0][zone.mask]
            axes.axvspan(shown[0], shown[-1], color=FITTED, alpha=0.1, lw=0)
            axes.text(shown.mean(), 0.98, f"Z{number}", transform=axes.get_xaxis_transform(), va="top", ha="center")
        axes.set_xlabel(names[0])
        axes.set_ylabel(label(found))
    else:
        values = _flat(found) * scale
        norm = bands(values, found.about.unit == "N/m")
        drawn = axes.contourf(grid[0], grid[1], values.T, levels=norm.boundaries, norm=norm, cmap=colours(found))
        axes.contour(grid[0], grid[1], values.T, levels=norm.boundaries, colors="0.25", linewidths=0.25)
        x, y = np.meshgrid(grid[0], grid[1], indexing="ij")
        singular_line(axes, x, y, found)
        outline_zones(figure, axes, x, y, found)
        figure.colorbar(drawn, ax=axes, label=label(found), ticks=norm.boundaries)
        axes.set_xlabel(names[0])
        axes.set_ylabel(names[1])
    figure.suptitle(title(found, figure), fontsize=8.0)
    return figure


def _flat(found: PostureMap) -> np.ndarray:
    """Values over the first two coordinates, the best over the others, NaN where they are infinite."""
    values = bounded(found.values)
    rest = tuple(range(2, values.ndim))
    if not rest:
        return values
    return np.nanmax(values, axis=rest) if found.about.higher_is_better else np.nanmin(values, axis=rest)
