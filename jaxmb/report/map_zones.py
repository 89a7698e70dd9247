"""Zones and singular postures of a map of two or more coordinates, drawn over its values."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxmb.maps.maps import Map
from jaxmb.report.style import ALERT

LEAST_ZONE = 30.0
"""Points (1/72 inch) of height and width that a zone's name needs."""
LABELLED = 6
"""Zones that are outlined and labelled: the largest."""


def bounded(values: np.ndarray) -> np.ndarray:
    """NaN where a value is infinite."""
    return np.where(np.isfinite(values), values, np.nan)


def singular_line(axes: Axes, x: np.ndarray, y: np.ndarray, found: Map) -> None:
    """The line along which det J changes its sign, of a map of two coordinates."""
    if found.side is not None and found.side.ndim == 2 and np.ptp(found.side) > 0.0:
        # The dexterity falls to 0 there, and tells where between two points it is.
        signed = found.side * found.values if found.quantity == "dexterity" else found.side
        axes.contour(x, y, signed, levels=[0.0], colors="black", linewidths=1.0)


def outline_zones(figure: Figure, axes: Axes, x: np.ndarray, y: np.ndarray, found: Map) -> None:
    """The zones, where the value is that of the threshold, or at the edge of the grid."""
    values = bounded(found.values)
    sign = 1.0 if found.about.higher_is_better else -1.0
    for number, zone in enumerate(found.zones[:LABELLED], 1):
        mask = np.asarray(np.any(zone.mask.reshape(*x.shape, -1), axis=-1))
        if values.ndim > 2:
            above = np.where(mask, 1.0, -1.0)
        else:
            above = np.nan_to_num(sign * (values - found.threshold), nan=-np.inf)
            # Zones do not join across a corner, and those of infinite stiffness end somewhere too.
            least = max(float(np.abs(above[np.isfinite(above)]).max(initial=0.0)), np.finfo(float).tiny)
            above = np.where(mask, np.clip(above, 1e-9 * least, least), np.clip(above, -least, -1e-9 * least))
        # A frame of points outside, so that the outline closes at the edge of the grid.
        framed = np.pad(above, 1, constant_values=-np.abs(above).max())
        axes.contour(*(np.pad(c, 1, mode="edge") for c in (x, y)), framed, levels=[0.0], colors=ALERT, linewidths=1.2)
        _name_zone(figure, axes, x, y, mask, f"Z{number}")


def _name_zone(figure: Figure, axes: Axes, x: np.ndarray, y: np.ndarray, mask: np.ndarray, name: str) -> None:
    """The zone's name inside it, or beside it where it would cover the zone."""
    at = _deepest(mask)
    corners = axes.transData.transform(np.column_stack([x[mask], y[mask]]))
    points = np.ptp(corners, axis=0) * 72.0 / figure.dpi
    covered = bool(np.min(points) < LEAST_ZONE)
    across = axes.transAxes.inverted().transform(axes.transData.transform((x[at], y[at])))
    offset = (-22.0 if across[0] > 0.5 else 22.0, -22.0 if across[1] > 0.5 else 22.0)
    axes.annotate(
        name, (float(x[at]), float(y[at])), xytext=offset if covered else (0.0, 0.0), textcoords="offset points",
        color="white", ha="center", va="center", weight="bold", fontsize=8.0,
        bbox={"boxstyle": "round,pad=0.2", "fc": ALERT, "ec": "none"},
        arrowprops={"arrowstyle": "-", "color": ALERT, "lw": 0.8} if covered else None,
    )  # fmt: skip


def _deepest(mask: np.ndarray) -> tuple[int, ...]:
    """The point of a region that is farthest from its edge, where a label stands well."""
    from scipy.ndimage import distance_transform_edt

    depth = np.asarray(distance_transform_edt(np.pad(mask, 1)))[1:-1, 1:-1]
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(depth)), mask.shape))
