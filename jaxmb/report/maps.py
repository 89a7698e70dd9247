"""Report of `jaxmb map`: tables, and figures of quantities over joint space and workspace."""

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
from matplotlib.ticker import LogLocator, MaxNLocator

from jaxmb.maps.kinetostatic import LENGTHS
from jaxmb.maps.kinetostatic_maps import PostureMap, Ranges
from jaxmb.maps.workspace_grid import Postures
from jaxmb.report.charts import (
    ALERT,
    FITTED,
    Axis,
    Cells,
    Chart,
    Colors,
    Line,
    Mark,
    Note,
    Panel,
    Rule,
    Span,
)  # fmt: skip
from jaxmb.report.section import Lines, Picture, Section, Table, capital, left, number, right, section

MOST_ZEROS = 4
"""Largest number of coordinates at 0 that are named one by one."""


def map_conditions(found: PostureMap) -> str:
    """Text on the characteristic length and directions, the load or direction, and the fixed coordinates of a map."""
    settings, needs, is_dexterity = found.settings, found.about.needs, found.quantity == "dexterity"
    force, moment = np.split(np.array(settings.wrench or np.zeros(6)), 2)
    parts = (
        f"L = {settings.length_m:.4g} m" if is_dexterity else "",
        f"of {', '.join(settings.directions)}" if is_dexterity and len(settings.directions) < 6 else "",
        f"load {numbers(force)} N" + (f", {numbers(moment)} N m" if any(moment) else "") if "wrench" in needs else "",
        f"along {numbers(settings.direction or ())}" if "direction" in needs else "",
        fixed_coordinates_text(found.postures),
    )
    return "; ".join(filter(None, parts))


def fixed_coordinates_text(postures: Postures) -> str:
    """Text on the fixed coordinates, grouped by value, as "q4 = q5 = 45 deg, q1 = 0"."""
    by_value: dict[str, list[str]] = {}
    for name, value in postures.held.items():
        text = f"{np.degrees(value):.4g} deg" if name in postures.angles else f"{value:.4g} m"
        by_value.setdefault("0" if value == 0.0 else text, []).append(name)
    zeros = by_value.pop("0", [])
    parts = [f"{' = '.join(names)} = {value}" for value, names in by_value.items()]
    rest = f"{' = '.join(zeros)} = 0" if len(zeros) <= MOST_ZEROS else "all other coordinates 0"
    return ", ".join([*parts, rest] if zeros else parts)


def numbers(values: Iterable[float]) -> str:
    """Text of the components of a vector, as "0, 0, -2000"."""
    return ", ".join(f"{x:.4g}" for x in values)


def posture_map_sections(
    maps: Mapping[str, PostureMap], plane: str | None = None, length_given: bool = False
) -> list[Section]:
    """Sections of each map with its zones, or its best value without any, and its figures in joint space and workspace.

    Args:
        maps: maps by quantity.
        plane: the workspace's axes, as "xz"; default: those along which the frame moves most.
        length_given: whether the characteristic length was set by the user, so that no remark on it is needed.
    """
    sections = list[Section]()
    for name, found in maps.items():
        remarks, workspace = not_reached(found.postures), partial(workspace_chart, found, plane)
        if name == "dexterity" and found.settings.length_m in LENGTHS and not length_given:
            remarks.append(
                f"length: {found.settings.length_m:g} m is an end of the search: there is no optimal length and the"
                " dexterity is not meaningful; restrict --directions (as x,y,rz) and --joints, or give --length"
            )
        parts = (
            zone_table(found) if found.zones else Lines((f"no zone: {_best(found)}",)),
            Lines(tuple(remarks)) if remarks else None,
            Picture(f"{name}-joints", partial(joint_space_chart, found)),
            Picture(f"{name}-workspace", workspace) if len(found.postures.over) > 1 else None,
        )
        sections += section(_title(found), parts)
    return sections


def zone_table(found: PostureMap) -> Table:
    """Zones of a map: share of the postures, ranges and best value."""
    over, revolute = found.postures.over, found.postures.revolute
    ranges = left(*(f"{c} reaches" for c in over), *(f"{c} all good" for c in over))
    rows = [
        (
            f"Z{i}", f"{100 * zone.share:.1f} %", *_ranges(zone.extent, revolute), *_ranges(zone.box, revolute),
            "infinite" if math.isinf(zone.best) else number(zone.best),
        )
        for i, zone in enumerate(found.zones, 1)
    ]  # fmt: skip
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
        f"{math.degrees(low):z.0f} to {math.degrees(high):z.0f} deg" if turning else f"{low:z.3f} to {high:z.3f} m"
        for (low, high), turning in zip(ranges, revolute, strict=True)
    ]


def grid_axis(postures: Postures, k: int) -> tuple[np.ndarray, Axis]:
    """Values along an axis of a grid or path, deg or m, and the axis of a panel over them."""
    values, unit = (np.degrees(postures.grid[k]), "deg") if postures.revolute[k] else (postures.grid[k], "m")
    name = f"distance of {postures.frame} along the path" if postures.is_path else postures.over[k]
    return values, Axis(f"{name} ({unit})", limits=(float(values[0]), float(values[-1])))


BANDS = 12
"""Approximate number of colour bands."""
LARGE_RATIO = 10.0
"""Ratio of largest to smallest stiffness above which the bands are logarithmic."""
SHOWN_AS = {"rad": ("deg", np.degrees(1.0)), "m": ("mm", 1e3), "N/m": ("N/µm", 1e-6), "": ("", 1.0)}
"""SI unit -> unit in a figure and conversion factor to it."""
LEAST_ZONE = 30.0
"""Smallest height and width of a zone with its name inside, points (1/72 inch)."""
SAME = 1e-9
"""Relative range up to which all values are equal and drawn as one band."""
LABELLED = 6
"""Number of zones that are outlined and named, largest first."""


def bounded(values: np.ndarray) -> np.ndarray:
    """Values with NaN in place of infinities."""
    return np.where(np.isfinite(values), values, np.nan)


def bands(values: np.ndarray, by_ratio: bool = False, count: int = BANDS) -> np.ndarray:
    """Limits of about `count` bands at round numbers, or at 1, 2, 5, 10 ... if `by_ratio` and the range exceeds
    `LARGE_RATIO`."""
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    if not high - low > SAME * abs(high):
        low, high = low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0)
    if by_ratio and low > 0.0 and high / low > LARGE_RATIO:
        levels = np.asarray(LogLocator(subs=(1.0, 2.0, 5.0), numticks=99).tick_values(low, high))
        return levels[np.searchsorted(levels, low, "right") - 1 : np.searchsorted(levels, high) + 1]
    return np.asarray(MaxNLocator(count, steps=[1.0, 2.0, 2.5, 5.0, 10.0]).tick_values(low, high))


def _colors(found: PostureMap, values: np.ndarray) -> Colors:
    """Colour scale of a map; light is good."""
    levels = bands(values, found.about.unit == "N/m")
    name = "viridis" if found.about.higher_is_better else "viridis_r"
    return Colors(name, (float(levels[0]), float(levels[-1])), label(found), levels=levels)


def label(found: PostureMap) -> str:
    """Name of the quantity with its unit."""
    unit = SHOWN_AS[found.about.unit][0]
    return f"{found.about.label} ({unit})" if unit else found.about.label


def title(found: PostureMap) -> str:
    """Title with machine, frame, and the share of the postures in zones."""
    unit, scale = SHOWN_AS[found.about.unit]
    sense = "at least" if found.about.higher_is_better else "at most"
    limit = f"{found.about.label} {sense} {found.threshold * scale:.3g} {unit}".rstrip()
    share = 100.0 * sum(zone.share for zone in found.zones)
    zones = f"{len(found.zones)} zone{'s' if len(found.zones) > 1 else ''} of {limit}, {share:.3g} % of the postures"
    return f"{found.machine}, {found.frame}: {zones if found.zones else f'no zone of {limit}'}"


def conditions(found: PostureMap, outlined: bool = True, more: str = "") -> str:
    """Clauses below the title on what is drawn."""
    over = found.postures.over
    parts = [f"best over {', '.join(over[2:] if outlined else over)}"] if len(over) > 2 else []
    parts += ["black line: singular"] if outlined and _changes_sign(found) else []
    return "; ".join(filter(None, [*parts, more, map_conditions(found)]))


def singular_lines(x: np.ndarray, y: np.ndarray, found: PostureMap) -> list[Mark]:
    """Zero contour of det J on a map of two coordinates."""
    if not _changes_sign(found) or found.determinant is None:
        return []
    return [Line(line[:, 0], line[:, 1], "", "#000000", 1.0) for line in contour_lines(x, y, found.determinant)]


def contour_lines(x: np.ndarray, y: np.ndarray, values: np.ndarray) -> list[np.ndarray]:
    """Lines [n, 2] along which values over a grid of points are 0."""
    from contourpy import contour_generator

    return [np.asarray(line) for line in contour_generator(x, y, np.ma.masked_invalid(values)).lines(0.0)]


def _changes_sign(found: PostureMap) -> bool:
    sign = np.sign(found.determinant) if found.determinant is not None else np.zeros(1)
    return sign.ndim == 2 and bool(np.nanmax(sign) > np.nanmin(sign))


def outlined_zones(x: np.ndarray, y: np.ndarray, found: PostureMap, size: tuple[float, float]) -> list[Mark]:
    """Edge of each zone, a contour of the threshold or an end of the grid, and its name.

    Args:
        x: of the points of the grid.
        y: likewise.
        found: the map.
        size: width and height of the panel, inches.
    """
    values = bounded(found.values)
    sign = 1.0 if found.about.higher_is_better else -1.0
    lines, names = list[Mark](), list[Mark]()
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
        around = contour_lines(np.pad(x, 1, mode="edge"), np.pad(y, 1, mode="edge"), framed)
        lines += [Line(line[:, 0], line[:, 1], "", ALERT, 1.2) for line in around]
        names.append(_zone_name(x, y, mask, f"Z{count}", size))
    return lines + names


def _zone_name(x: np.ndarray, y: np.ndarray, mask: np.ndarray, name: str, size: tuple[float, float]) -> Note:
    """The zone's name inside it, or next to a small zone with a leader line."""
    from scipy.ndimage import distance_transform_edt

    depth = np.asarray(distance_transform_edt(np.pad(mask, 1)))[1:-1, 1:-1]
    at = np.unravel_index(int(np.argmax(depth)), mask.shape)  # the point farthest from the zone's edge
    reach = [float(np.ptp(c)) or 1.0 for c in (x, y)]
    points = [72.0 * s * float(np.ptp(c[mask])) / r for s, c, r in zip(size, (x, y), reach, strict=True)]
    across = [(float(c[at]) - float(c.min())) / r for c, r in zip((x, y), reach, strict=True)]
    beside = (-22.0 if across[0] > 0.5 else 22.0, -22.0 if across[1] > 0.5 else 22.0)
    offset = beside if min(points) < LEAST_ZONE else (0.0, 0.0)
    return Note(name, float(x[at]), float(y[at]), ALERT, boxed=True, offset=offset)


JOINT_SIZE = 3.9, 3.5
"""Width and height of a map over joint space, inches."""


def joint_space_chart(found: PostureMap) -> Chart:
    """Values over the map's coordinates with zones outlined and named, and singular postures as a line.

    Of more than two coordinates the first two are shown, with the best value over the others.
    """
    scale = SHOWN_AS[found.about.unit][1]
    along = [grid_axis(found.postures, k) for k in range(len(found.postures.over))]
    grid, axes = [values for values, _ in along], [axis for _, axis in along]
    grey = len(grid) > 1 and not np.all(found.postures.reached)
    marks: list[Mark] = []
    if len(grid) == 1:
        values = bounded(found.values) * scale
        marks.append(Line(grid[0], values, label(found)))
        if np.isfinite(found.threshold):
            marks.append(Rule(found.threshold * scale, "y", "threshold", ALERT, 0.8))
        top = float(np.max(values, initial=0.0, where=np.isfinite(values)))
        for count, zone in enumerate(found.zones[:LABELLED], 1):
            shown = grid[0][zone.mask]
            marks.insert(0, Span(float(shown[0]), float(shown[-1]), "x", "zones", "#dcebf5"))
            marks.append(Note(f"Z{count}", float(shown.mean()), top, FITTED))
        y = Axis(label(found))
    else:
        best = np.fmax if found.about.higher_is_better else np.fmin
        values = best.reduce(bounded(found.values), axis=tuple(range(2, found.values.ndim))) * scale
        x, z = np.meshgrid(grid[0], grid[1], indexing="ij")
        marks.append(Cells(grid[0], grid[1], values.T, _colors(found, values), contours=True))
        marks += singular_lines(x, z, found) + outlined_zones(x, z, found, JOINT_SIZE)
        y = axes[1]
    return Chart(
        title(found),
        f"{capital(label(found))} over joint space; zones Z are outlined.",
        [[(Panel(marks, axes[0], y, height=JOINT_SIZE[1], background="#d9d9d9" if grey else "#ffffff"),)]],
        JOINT_SIZE[0],
        note=conditions(found, more="grey: loops do not close" if grey else ""),
    )


MOST_CELLS = 200
"""Largest number of cells along the longer axis of the workspace."""
MOST_FINE = 1500
"""Largest number of points along a coordinate of the finer grid of a map of two coordinates."""
POSTURES_PER_CELL = 4.0
"""Mean number of postures per cell."""


def workspace_chart(found: PostureMap, plane: str | None = None) -> Chart:
    """Values at the positions of the shown frame in two ground axes, with zones outlined and named.

    Each cell of the plane shows its best posture; cells without postures stay white. Maps of two coordinates are
    interpolated linearly between the postures.

    Args:
        found: a map of two or more coordinates.
        plane: two of x, y, z; default: those along which the frame moves most.
    """
    plane = _plane(found) if plane is None else plane
    values = bounded(found.values) * SHOWN_AS[found.about.unit][1]
    positions = _filled_positions(found)
    x, y = (positions[..., "xyz".index(axis)] for axis in plane)
    ends, colors, better = _limits(x, y), _colors(found, values), found.about.higher_is_better
    width, height = (abs(high - low) for low, high in ends)
    scale = 4.2 / max(width, height)  # the aspect ratio of the workspace, at most 4.2 inches
    size = max(scale * width, 0.4), max(scale * height, 0.4)
    outlines: list[Mark] = []
    if values.ndim == 2:
        outlines = [*outlined_zones(x, y, found, size), *singular_lines(x, y, found)]
        x, y, values = interpolated(x, y, values)
    *edges, best = best_in_cells(x, y, values, better)
    marks = [Cells(edges[0], edges[1], best.T, colors), *outlines]
    axes = [Axis(f"{a} of {found.postures.frame} (m)", limits=e) for a, e in zip(plane, ends, strict=True)]
    return Chart(
        title(found),
        f"{capital(label(found))} where the frame {found.postures.frame} is; of several postures the best.",
        [[(Panel(marks, axes[0], axes[1], height=size[1], equal=True),)]],
        size[0],
        note=conditions(found, outlined=values.ndim == 2),
    )


def interpolated(x: np.ndarray, y: np.ndarray, values: np.ndarray) -> list[np.ndarray]:
    """Positions and values of a map of two coordinates at points closer than half a cell of the workspace."""
    near = 0.5 * max(float(np.ptp(x)), float(np.ptp(y)), 1e-3) / MOST_CELLS
    parts = [x, y, values]
    for axis in (0, 1):
        farthest = max(float(np.abs(np.diff(c, axis=axis)).max()) for c in parts[:2])
        factor = int(np.clip(farthest / near + 1.0, 1, max(MOST_FINE // values.shape[axis], 1)))
        parts = [_finer(c, axis, factor) for c in parts]
    return parts


def best_in_cells(
    x: np.ndarray, y: np.ndarray, values: np.ndarray, higher_is_better: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges along x and y, and the best value of the postures in each square cell [x, y]; NaN in empty cells."""
    x, y, values = x.ravel(), y.ravel(), values.ravel()
    width, height = max(float(np.ptp(x)), 1e-3), max(float(np.ptp(y)), 1e-3)
    size = max(np.sqrt(width * height * POSTURES_PER_CELL / len(x)), max(width, height) / MOST_CELLS)
    columns, rows = int(width / size) + 1, int(height / size) + 1
    at = tuple(((c - c.min()) / size).astype(int) for c in (x, y))
    best = np.full((columns, rows), -np.inf if higher_is_better else np.inf)
    (np.fmax if higher_is_better else np.fmin).at(best, at, values)
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

    nearest: Any = distance_transform_edt(~found.postures.reached, return_distances=False, return_indices=True)
    return found.postures.position[tuple(nearest)]


def _limits(x: np.ndarray, y: np.ndarray) -> list[tuple[float, float]]:
    """Limits of the axes around all points, with a minimum range for a frame that moves along one axis only."""
    least = 0.05 * max(float(np.ptp(x)), float(np.ptp(y)), 1e-3)
    margins = (max(0.02 * float(np.ptp(c)), least if np.ptp(c) < least else 0.0) for c in (x, y))
    return [(float(c.min()) - margin, float(c.max()) + margin) for c, margin in zip((x, y), margins, strict=True)]
