"""Common elements of the figures of posture maps: colour bands, labels, titles, zones and singular postures."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxmb.maps.kinetostatic.posture_maps import PostureMap
from jaxmb.report.maps.words import map_conditions, wrapped
from jaxmb.report.style import ALERT

BANDS = 12
"""Approximate number of colour bands."""
LARGE_RATIO = 10.0
"""Ratio of largest to smallest stiffness above which the bands are logarithmic."""
SHOWN_AS = {"rad": ("deg", np.degrees(1.0)), "m": ("mm", 1e3), "N/m": ("N/µm", 1e-6), "": ("", 1.0)}
"""SI unit -> unit in a figure and conversion factor to it."""
LEAST_ZONE = 30.0
"""Smallest height and width of a zone with its name inside, points (1/72 inch)."""
LABELLED = 6
"""Number of zones that are outlined and named, largest first."""


def bounded(values: np.ndarray) -> np.ndarray:
    """Values with NaN in place of infinities."""
    return np.where(np.isfinite(values), values, np.nan)


def bands(values: np.ndarray, by_ratio: bool = False) -> BoundaryNorm:
    """Bands at round numbers, or at 1, 2, 5, 10 ... if `by_ratio` and the range exceeds `LARGE_RATIO`."""
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    if not low < high:
        low, high = low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0)
    if by_ratio and low > 0.0 and high / low > LARGE_RATIO:
        decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)))
        levels = np.append(np.outer(decades, [1.0, 2.0, 5.0]).ravel(), 10.0 * decades[-1])
        levels = levels[np.searchsorted(levels, low, "right") - 1 : np.searchsorted(levels, high) + 1]
    else:
        levels = MaxNLocator(BANDS).tick_values(low, high)
    return BoundaryNorm(levels, 256)


def colours(found: PostureMap) -> str:
    """Name of the colour map; light is good."""
    return "viridis" if found.about.higher_is_better else "viridis_r"


def label(found: PostureMap) -> str:
    """Name of the quantity with its unit."""
    unit = SHOWN_AS[found.about.unit][0]
    return f"{found.about.label} ({unit})" if unit else found.about.label


def title(found: PostureMap, figure: Figure, outlined: bool = True, more: str = "") -> str:
    """Title with machine, frame, zones and conditions."""
    unit, scale = SHOWN_AS[found.about.unit]
    sense = "at least" if found.about.higher_is_better else "at most"
    over = found.postures.over
    parts = [f"{found.machine}, {found.frame}"]
    if outlined and found.zones:
        parts.append(f"zones Z: {sense} {found.threshold * scale:.3g} {unit}".rstrip())
    if len(over) > 2:
        parts.append(f"best over {', '.join(over[2:] if outlined else over)}")
    if outlined and _changes_sign(found):
        parts.append("black line: singular")
    parts += [more] if more else []
    return wrapped(["; ".join(parts), map_conditions(found)], figure.get_figwidth())


def singular_line(axes: Axes, x: np.ndarray, y: np.ndarray, found: PostureMap) -> None:
    """Draw the zero contour of det J on a map of two coordinates."""
    if _changes_sign(found):
        axes.contour(x, y, found.determinant, levels=[0.0], colors="black", linewidths=1.0)


def _changes_sign(found: PostureMap) -> bool:
    sign = np.sign(found.determinant) if found.determinant is not None else np.zeros(1)
    return sign.ndim == 2 and bool(np.nanmax(sign) > np.nanmin(sign))


def outline_zones(figure: Figure, axes: Axes, x: np.ndarray, y: np.ndarray, found: PostureMap) -> None:
    """Draw the edge of each zone, a contour of the threshold or an end of the grid, and its name."""
    values = bounded(found.values)
    sign = 1.0 if found.about.higher_is_better else -1.0
    for number, zone in enumerate(found.zones[:LABELLED], 1):
        mask = np.asarray(np.any(zone.mask.reshape(*x.shape, -1), axis=-1))
        if values.ndim > 2:
            above = np.where(mask, 1.0, -1.0)
        else:
            above = np.nan_to_num(sign * (values - found.threshold), nan=-np.inf)
            # Outside the zone's points values are clipped below the threshold, so that zones do not merge at corners.
            # Infinite stiffness is clipped as well, so that the contour can be interpolated.
            least = max(float(np.abs(above[np.isfinite(above)]).max(initial=0.0)), np.finfo(float).tiny)
            above = np.where(mask, np.clip(above, 1e-9 * least, least), np.clip(above, -least, -1e-9 * least))
        # One more point on every side, below the threshold, closes the outline at the edge of the grid.
        framed = np.pad(above, 1, constant_values=-np.abs(above).max())
        axes.contour(*(np.pad(c, 1, mode="edge") for c in (x, y)), framed, levels=[0.0], colors=ALERT, linewidths=1.2)
        _name_zone(figure, axes, x, y, mask, f"Z{number}")


def _name_zone(figure: Figure, axes: Axes, x: np.ndarray, y: np.ndarray, mask: np.ndarray, name: str) -> None:
    """Write the zone's name inside it, or next to a small zone with a leader line."""
    at = _deepest(mask)
    corners = axes.transData.transform(np.column_stack([x[mask], y[mask]]))
    points = np.ptp(corners, axis=0) * 72.0 / figure.dpi
    small = bool(np.min(points) < LEAST_ZONE)
    across = axes.transAxes.inverted().transform(axes.transData.transform((x[at], y[at])))
    offset = (-22.0 if across[0] > 0.5 else 22.0, -22.0 if across[1] > 0.5 else 22.0)
    axes.annotate(
        name, (float(x[at]), float(y[at])), xytext=offset if small else (0.0, 0.0), textcoords="offset points",
        color="white", ha="center", va="center", weight="bold", fontsize=8.0,
        bbox={"boxstyle": "round,pad=0.2", "fc": ALERT, "ec": "none"},
        arrowprops={"arrowstyle": "-", "color": ALERT, "lw": 0.8} if small else None,
    )  # fmt: skip


def _deepest(mask: np.ndarray) -> tuple[int, ...]:
    """Index of the point of a region farthest from its edge."""
    from scipy.ndimage import distance_transform_edt

    depth = np.asarray(distance_transform_edt(np.pad(mask, 1)))[1:-1, 1:-1]
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(depth)), mask.shape))
