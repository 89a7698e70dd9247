"""Report of `jaxmb map`: tables, and figures of quantities over joint space and workspace."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxmb.maps.kinetostatic import LENGTHS
from jaxmb.maps.kinetostatic_maps import PostureMap
from jaxmb.maps.workspace_grid import Postures
from jaxmb.maps.zones import Ranges
from jaxmb.report.section import Lines, Picture, Section, Table, left, number, right
from jaxmb.report.style import ALERT, FITTED

LETTERS_PER_INCH = 15
"""Characters of a title per inch of the figure's width."""
MOST_ZEROS = 4
"""Largest number of coordinates at 0 that are named one by one."""


def map_conditions(found: PostureMap) -> str:
    """Text on the characteristic length and directions, the load or direction, and the fixed coordinates of a map."""
    parts = []
    settings = found.settings
    if found.quantity == "dexterity":
        parts.append(f"L = {settings.length_m:.4g} m")
        if len(settings.directions) < 6:
            parts.append(f"of {', '.join(settings.directions)}")
    if "wrench" in found.about.needs and settings.wrench is not None:
        force, moment = settings.wrench[:3], settings.wrench[3:]
        parts.append(f"load {numbers(force)} N" + (f", {numbers(moment)} Nm" if any(moment) else ""))
    if "direction" in found.about.needs and settings.direction is not None:
        parts.append(f"along {numbers(settings.direction)}")
    return "; ".join(filter(None, [*parts, fixed_coordinates_text(found.postures)]))


def fixed_coordinates_text(postures: Postures) -> str:
    """Text on the fixed coordinates, grouped by value, as "q4 = q5 = 45 deg, q1 = 0"."""
    by_value: dict[str, list[str]] = {}
    for name, value in postures.held.items():
        text = f"{np.degrees(value):.4g} deg" if name in postures.angles else f"{value:.4g} m"
        by_value.setdefault("0" if value == 0.0 else text, []).append(name)
    zeros = by_value.pop("0", [])
    parts = [f"{' = '.join(names)} = {value}" for value, names in by_value.items()]
    if zeros:
        parts.append(f"{' = '.join(zeros)} = 0" if len(zeros) <= MOST_ZEROS else "all other coordinates 0")
    return ", ".join(parts)


def numbers(values: Sequence[float]) -> str:
    """Text of the components of a vector, as "0, 0, -2000"."""
    return ", ".join(f"{x:.4g}" for x in values)


def wrapped(sentences: Sequence[str], width_inches: float) -> str:
    """Sentences wrapped to the width of a figure."""
    return "\n".join(textwrap.fill(s, max(int(width_inches * LETTERS_PER_INCH), 20)) for s in sentences if s)


def posture_map_sections(
    maps: Mapping[str, PostureMap], plane: str | None = None, length_given: bool = False
) -> list[Section]:
    """Sections of each map with its zones, or its best value without any, and its figures in joint space and workspace.

    Args:
        maps: maps by quantity.
        plane: the workspace's axes, as "xz"; default: those along which the frame moves most.
        length_given: whether the characteristic length was set by the user, so that no remark on it is needed.
    """
    sections = []
    for name, found in maps.items():
        drawn = [Picture(f"{name}-joints", partial(joint_space_figure, found))]
        if len(found.postures.over) > 1:
            drawn.append(Picture(f"{name}-workspace", partial(workspace_figure, found, plane)))
        at_end = name == "dexterity" and found.settings.length_m in LENGTHS and not length_given
        remark = (
            f"length: {found.settings.length_m:g} m is an end of the search: there is no optimal length and the"
            " dexterity is not meaningful; restrict --directions (as x,y,rz) and --joints, or give --length"
        )
        zones = zone_table(found) if found.zones else Lines((f"no zone: {_best(found)}",))
        remarks = [*not_reached(found.postures), *([remark] if at_end else [])]
        sections.append(Section(_title(found), (zones, *([Lines(tuple(remarks))] if remarks else []), *drawn)))
    return sections


def zone_table(found: PostureMap) -> Table:
    """Zones of a map: share of the postures, ranges and best value."""
    over, revolute = found.postures.over, found.postures.revolute
    ranges = left(*(f"{c} reaches" for c in over), *(f"{c} all good" for c in over))
    rows = []
    for i, zone in enumerate(found.zones, 1):
        ends = [*_ranges(zone.extent, revolute), *_ranges(zone.box, revolute)]
        rows.append((f"Z{i}", f"{100 * zone.share:.1f} %", *ends, number(zone.best)))
    return Table("", (*left("zone"), *right("share"), *ranges, *right("best")), tuple(rows))


def not_reached(postures: Postures) -> list[str]:
    """Remark on positions that are not reached, or on postures where loops do not close."""
    reached = postures.reached
    noun = "postures" if set(postures.over) <= set(postures.names) else "positions"
    return (
        [] if reached.all() else [f"{np.sum(~reached)} of {reached.size} {noun} are not reached from the start posture"]
    )


def _title(found: PostureMap) -> str:
    sense = "at least" if found.about.higher_is_better else "at most"
    limit = f"{sense} {found.threshold:.4g} {found.about.unit}".rstrip()
    length = f", length {found.settings.length_m:.4g} m" if found.quantity == "dexterity" else ""
    return f"{found.quantity} of {found.machine}{length}: zones of {limit}"


def _best(found: PostureMap) -> str:
    """Clause on the best value of a map without zones."""
    values = found.values[~np.isnan(found.values)]
    if not values.size:
        return "no posture has a value"
    best = values.max() if found.about.higher_is_better else values.min()
    text = f"{best:.4g} {found.about.unit}".rstrip()
    return f"the best posture has {text}, expected two neighbours or more that reach the threshold"


def _ranges(ranges: Ranges, revolute: tuple[bool, ...]) -> list[str]:
    return [
        f"{math.degrees(low):.0f} to {math.degrees(high):.0f} deg" if turning else f"{low:.3f} to {high:.3f} m"
        for (low, high), turning in zip(ranges, revolute, strict=True)
    ]


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
    for count, zone in enumerate(found.zones[:LABELLED], 1):
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
        _name_zone(figure, axes, x, y, mask, f"Z{count}")


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
        for count, zone in enumerate(found.zones[:LABELLED], 1):
            shown = grid[0][zone.mask]
            axes.axvspan(shown[0], shown[-1], color=FITTED, alpha=0.1, lw=0)
            axes.text(shown.mean(), 0.98, f"Z{count}", transform=axes.get_xaxis_transform(), va="top", ha="center")
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
