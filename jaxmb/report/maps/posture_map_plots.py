"""Figures of posture maps in joint space."""

import numpy as np
from matplotlib.figure import Figure

from jaxmb.maps.kinetostatic.posture_maps import PostureMap
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
from jaxmb.report.style import ALERT, FITTED


def joint_space_figure(found: PostureMap) -> Figure:
    """Values over the map's coordinates with zones outlined and named, and singular postures as a line.

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
        figure.colorbar(drawn, ax=axes, label=label(found), ticks=norm.boundaries, format="%g")
        axes.set_xlabel(names[0])
        axes.set_ylabel(names[1])
    grey = "" if len(grid) == 1 or np.all(axis.reached) else "grey: loops do not close"
    if grey:
        axes.set_facecolor("0.85")
        axes.grid(False)
    figure.suptitle(title(found, figure, more=grey), fontsize=8.0)
    return figure


def _flat(found: PostureMap) -> np.ndarray:
    """Best values over all but the first two coordinates, NaN in place of infinities."""
    values = bounded(found.values)
    rest = tuple(range(2, values.ndim))
    if not rest:
        return values
    return (np.fmax if found.about.higher_is_better else np.fmin).reduce(values, axis=rest)
