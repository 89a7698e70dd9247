"""Figures of posture maps in the workspace, where several postures may reach the same position."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from jaxmb.maps.kinetostatic.posture_maps import PostureMap
from jaxmb.report.maps.map_style import SHOWN_AS, bands, bounded, colours, label, outline_zones, singular_line, title

FINE = 240
"""Approximate number of patches along each axis of a map of two coordinates: with fewer, edges of bands are jagged."""
MOST_FACTOR = 12
"""Largest number of patches between two points of the grid."""
MOST_CELLS = 160
"""Largest number of cells along the longer axis of the workspace for a map of more than two coordinates."""
POSTURES_PER_CELL = 4.0
"""Mean number of postures per cell for a map of more than two coordinates."""


def workspace_figure(found: PostureMap, plane: str | None = None) -> Figure:
    """Values at the positions of the shown frame in two ground axes, with zones outlined and named.

    If several postures reach the same position, the best one is on top. For a map of more than two coordinates each
    cell of the plane shows its best posture; cells without postures stay white.

    Args:
        found: a map of two or more coordinates.
        plane: two of x, y, z; default: those along which the frame moves most.
    """
    plane = _plane(found) if plane is None else plane
    scale = SHOWN_AS[found.about.unit][1]
    values = bounded(found.values) * scale
    positions = _filled_positions(found)
    x, y = (positions[..., "xyz".index(axis)] for axis in plane)
    figure = Figure(figsize=_size_around(x, y), layout="compressed")
    axes = figure.add_subplot()
    _limit(axes, x, y)
    axes.set_aspect("equal")
    norm = bands(values, found.about.unit == "N/m")
    better = found.about.higher_is_better
    if values.ndim > 2:
        *edges, best = best_in_cells(x, y, values, better)
        drawn = axes.pcolormesh(*edges, best.T, norm=norm, cmap=colours(found))
    else:
        patches, middle = fine_patches(x, y, values)
        # The best is drawn last, on top.
        order = np.argsort(middle if better else -middle, kind="stable")
        drawn = PolyCollection(
            patches[order],  # pyright: ignore[reportArgumentType]  (much faster than a list)
            array=middle[order],
            norm=norm,
            cmap=colours(found),
            edgecolors="face",
            lw=0.3,
        )
        drawn.set_in_layout(False)  # saves the bounding box of tens of thousands of patches; axes limits are set
        axes.add_collection(drawn, autolim=False)
        outline_zones(figure, axes, x, y, found)
        singular_line(axes, x, y, found)
    figure.colorbar(drawn, ax=axes, label=label(found), ticks=norm.boundaries, format="%g")
    axes.set_xlabel(f"{plane[0]} of {found.postures.frame} (m)")
    axes.set_ylabel(f"{plane[1]} of {found.postures.frame} (m)")
    figure.suptitle(title(found, figure, outlined=values.ndim == 2), fontsize=8.0)
    return figure


def fine_patches(x: np.ndarray, y: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Corners [patch, 4, 2] and values [patch] of a surface over two coordinates, linearly interpolated."""
    for axis in (0, 1):
        factor = int(np.clip(-(-FINE // (values.shape[axis] - 1)), 1, MOST_FACTOR))
        x, y, values = (_finer(c, axis, factor) for c in (x, y, values))
    corners = [np.stack([c[:-1, :-1], c[1:, :-1], c[1:, 1:], c[:-1, 1:]], axis=-1).reshape(-1, 4) for c in (x, y)]
    middle = 0.25 * (values[:-1, :-1] + values[1:, :-1] + values[1:, 1:] + values[:-1, 1:]).ravel()
    return np.stack(corners, axis=-1), middle


def best_in_cells(
    x: np.ndarray, y: np.ndarray, values: np.ndarray, higher_is_better: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges along x and y, and the best value of the postures in each square cell [x, y]; NaN in empty cells."""
    x, y, values = x.ravel(), y.ravel(), values.ravel()
    known = np.isfinite(values)
    x, y, values = x[known], y[known], values[known]
    width, height = max(float(np.ptp(x)), 1e-3), max(float(np.ptp(y)), 1e-3)
    size = max(np.sqrt(width * height * POSTURES_PER_CELL / len(x)), max(width, height) / MOST_CELLS)
    columns, rows = int(width / size) + 1, int(height / size) + 1
    at = tuple(((c - c.min()) / size).astype(int) for c in (x, y))
    worst = -np.inf if higher_is_better else np.inf
    best = np.full((columns, rows), worst)
    (np.maximum if higher_is_better else np.minimum).at(best, at, values)
    edges = tuple(c.min() + size * np.arange(n + 1) for c, n in ((x, columns), (y, rows)))
    return *edges, np.where(np.isfinite(best), best, np.nan)


def _finer(values: np.ndarray, axis: int, factor: int) -> np.ndarray:
    """Values linearly interpolated to `factor` points per interval of an axis."""
    values = np.moveaxis(values, axis, 0)
    share = (np.arange(factor) / factor)[:, None]
    inside = values[:-1, None] * (1.0 - share) + values[1:, None] * share
    return np.moveaxis(np.concatenate([inside.reshape(-1, values.shape[1]), values[-1:]]), 0, axis)


def _plane(found: PostureMap) -> str:
    """The two ground axes along which the shown frame moves most, in the order x, y, z."""
    points = _filled_positions(found).reshape(-1, 3)
    first, second = sorted(np.argsort(-np.ptp(points, axis=0).round(6), kind="stable")[:2].tolist())
    return "xyz"[first] + "xyz"[second]


def _filled_positions(found: PostureMap) -> np.ndarray:
    """Position of the shown frame at each point of the grid; for open loops that of the nearest closed posture."""
    from scipy.ndimage import distance_transform_edt

    reached = found.postures.reached
    nearest: Any = distance_transform_edt(~reached, return_distances=False, return_indices=True)
    return found.postures.position[tuple(nearest)]


def _limit(axes: Axes, x: np.ndarray, y: np.ndarray) -> None:
    """Set axis limits around all points, with a minimum range for a frame that moves along one axis only."""
    least = 0.05 * max(float(np.ptp(x)), float(np.ptp(y)), 1e-3)
    for points, limit in ((x, axes.set_xlim), (y, axes.set_ylim)):
        margin = max(0.02 * float(np.ptp(points)), least if np.ptp(points) < least else 0.0)
        limit(float(points.min()) - margin, float(points.max()) + margin)


def _size_around(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Width and height [inches] of a figure with the aspect ratio of the workspace."""
    ratio = max(float(np.ptp(x)), 1e-3) / max(float(np.ptp(y)), 1e-3)
    height = float(np.clip(4.2 / ratio, 1.4, 4.2))
    return float(np.clip(height * ratio, 1.8, 4.2)) + 1.4, height + 0.8
