"""Axes in space, m at the same scale along x, y and z, that fill the places which they are given."""

from itertools import product
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox
from mpl_toolkits.mplot3d import proj3d
from mpl_toolkits.mplot3d.axes3d import Axes3D

AXES: dict[str, Any] = {"projection": "3d", "proj_type": "ortho", "computed_zorder": False, "elev": 22.0, "azim": -45.0}
"""Seen from far away, from these angles in degrees; what is drawn last is in front."""
TITLE_ROOM = 0.22
"""Above the axes, inches."""
TITLE_GAP = 0.05
SIDE_ROOM = 0.1
ROUNDS = 4
"""Labels do not grow with the axes, so the largest size is found in a few rounds; the last one only centres."""


class Fit(NamedTuple):
    """How axes of one box are placed in their cells, inches."""

    width: float
    """Of a cell; the axes are placed as squares of this side."""
    height: float
    """Of a cell, with its title."""
    offset: np.ndarray
    """From the lower left corner of the cell to that of the square [2]."""
    zoom: float


def fit(low: np.ndarray, high: np.ndarray, width: float) -> Fit:
    """Axes of a box from low [3] to high [3], m, as large as a cell leaves room for with their labels.

    Axes in space fill only a part of the place that they are given, a part that depends on the box. The cell is as
    high as they then need, no higher than it is wide.
    """
    figure = Figure(figsize=(width, width))
    axes: Any = _axes(figure, low, high)
    room = np.array([width - 2.0 * SIDE_ROOM, width - TITLE_ROOM])
    zoom, seen = 1.0, Bbox.unit()
    for round_ in range(ROUNDS):
        axes.set_box_aspect(tuple(high - low), zoom=zoom)
        seen = _extents(figure, axes)
        if round_ + 1 < ROUNDS:
            zoom *= float(np.min(room / seen.size))
    offset = [SIDE_ROOM + 0.5 * (room[0] - seen.width) - seen.x0, -seen.y0]
    return Fit(width, float(seen.height) + TITLE_ROOM, np.array(offset), zoom)


def add_panel(
    figure: Figure, corner: tuple[float, float], fitted: Fit, low: np.ndarray, high: np.ndarray, title: str
) -> Axes3D:
    """Axes in the cell of a figure whose lower left corner is given, inches."""
    axes: Any = _axes(figure, low, high)
    size = np.array(figure.get_size_inches())
    side = fitted.width / size
    axes.set_box_aspect(tuple(high - low), zoom=fitted.zoom)
    axes.set_position((*((corner + fitted.offset) / size), *side))
    axes.set_title(title, y=1.0, pad=0)  # a given y is left alone when the figure is drawn
    above = np.array([0.5 * fitted.width, fitted.height - TITLE_ROOM + TITLE_GAP])
    axes.title.set_position(tuple((above - fitted.offset) / fitted.width))
    return axes


def _axes(figure: Figure, low: np.ndarray, high: np.ndarray) -> Axes3D:
    axes: Any = figure.add_axes((0.0, 0.0, 1.0, 1.0), **AXES)
    axes.patch.set_visible(False)  # it would hide the labels of the axes beside it
    for name, a, b in zip("xyz", low, high, strict=True):
        axis = getattr(axes, f"{name}axis")
        getattr(axes, f"set_{name}lim")(a, b)
        fewest = 2 if name == "z" else 1  # more labels of a short axis that is not upright would lie on each other
        most = max(fewest, round(4.0 * (b - a) / np.max(high - low)))
        axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10], min_n_ticks=fewest))
        axis.set_tick_params(pad=-2.5, labelsize=6.5)
        axis.set_label_text(f"{name} (m)", fontsize=7)
        axis.labelpad = -4
    return axes


def _extents(figure: Figure, axes: Any) -> Bbox:
    """What axes without anything in them cover of a figure, with their labels, inches."""
    figure.draw_without_rendering()
    corners = np.array(list(product(axes.get_xlim(), axes.get_ylim(), axes.get_zlim())))
    x, y, _ = proj3d.proj_transform(corners[:, 0], corners[:, 1], corners[:, 2], axes.get_proj())
    box = Bbox.null()
    box.update_from_data_xy(axes.transData.transform(np.column_stack([x, y])), ignore=True)
    labels: list[Any] = [axis.get_tightbbox() for axis in (axes.xaxis, axes.yaxis, axes.zaxis)]
    whole = Bbox.union([box, *(label for label in labels if label is not None)])
    return Bbox(whole.get_points() / figure.dpi)
