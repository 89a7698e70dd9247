"""Figures of maps of postures, in joint space and in the workspace, and of the placement of a task."""

import os
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxmb.maps.maps import Map
from jaxmb.maps.placement.placement import VARIABLES, PlacementResult
from jaxmb.report.map_conditions import map_conditions, wrapped
from jaxmb.report.map_zones import LABELLED, bounded, outline_zones, singular_line
from jaxmb.report.style import ALERT, FITTED, INITIAL, drawing, write_figure
from jaxmb.report.workspace_surface import best_in_cells, fine_patches

BANDS = 12
"""Bands of colour, about."""
LARGE_RATIO = 30.0
"""Of the greatest to the least value, above which the bands are logarithmic."""
SHOWN_AS = {"rad": ("deg", np.degrees(1.0)), "m": ("mm", 1e3), "N/m": ("N/µm", 1e-6), "": ("", 1.0)}
"""Unit in a figure, and its number in one of the unit that is computed in."""
AXIS = dict.fromkeys("xyz", ("m", 1.0)) | dict.fromkeys(("yaw", "spin"), ("deg", float(np.degrees(1.0))))
"""Unit of a variable of a placement, and its number in m or rad."""


def write_map_figures(maps: dict[str, Map], folder: str | os.PathLike[str], plane: str | None = None) -> list[Path]:
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
            if len(found.over) > 1:
                written.append(write_figure(workspace_figure(found, plane), folder / f"{name}-workspace.png"))
    return written


def joint_space_figure(found: Map) -> Figure:
    """Isocontours over the map's coordinates, zones outlined and labelled, singular postures as a line.

    Of more than two coordinates the first two are shown, with the best over the others.
    """
    figure = Figure(figsize=(5.2, 4.4), layout="constrained")
    axes = figure.add_subplot()
    scale = SHOWN_AS[found.about.unit][1]
    grid = [np.degrees(g) if turning else g for g, turning in zip(found.grid, found.revolute, strict=True)]
    names = [f"{n} ({'deg' if turning else 'm'})" for n, turning in zip(found.over, found.revolute, strict=True)]
    if len(grid) == 1:
        axes.plot(grid[0], bounded(found.values) * scale, color=FITTED)
        axes.axhline(found.threshold * scale, color=ALERT, lw=0.8)
        for number, zone in enumerate(found.zones[:LABELLED], 1):
            shown = grid[0][zone.mask]
            axes.axvspan(shown[0], shown[-1], color=FITTED, alpha=0.1, lw=0)
            axes.text(shown.mean(), 0.98, f"Z{number}", transform=axes.get_xaxis_transform(), va="top", ha="center")
        axes.set_xlabel(names[0])
        axes.set_ylabel(_label(found))
    else:
        values = _flat(found) * scale
        norm = _bands(values, found.about.unit == "N/m")
        drawn = axes.contourf(grid[0], grid[1], values.T, levels=norm.boundaries, norm=norm, cmap=_colours(found))
        axes.contour(grid[0], grid[1], values.T, levels=norm.boundaries, colors="0.25", linewidths=0.25)
        x, y = np.meshgrid(grid[0], grid[1], indexing="ij")
        singular_line(axes, x, y, found)
        outline_zones(figure, axes, x, y, found)
        figure.colorbar(drawn, ax=axes, label=_label(found), ticks=norm.boundaries)
        axes.set_xlabel(names[0])
        axes.set_ylabel(names[1])
    figure.suptitle(_title(found, figure), fontsize=8.0)
    return figure


def workspace_figure(found: Map, plane: str | None = None) -> Figure:
    """Isocontours where the shown frame is, in two axes of the ground, zones outlined and labelled.

    Where several postures reach the same place the best of them lies on top. Of a map of more than two coordinates
    each cell of the plane shows the best posture that reaches it; cells without postures are left white.

    Args:
        found: a map of two or more coordinates.
        plane: two of x, y, z; where not given those along which the frame moves most.
    """
    plane = _plane(found) if plane is None else plane
    scale = SHOWN_AS[found.about.unit][1]
    values = bounded(found.values) * scale
    x, y = (found.position[..., "xyz".index(axis)] for axis in plane)
    figure = Figure(figsize=_size_around(x, y), layout="compressed")
    axes = figure.add_subplot()
    _limit(axes, x, y)
    axes.set_aspect("equal")
    norm = _bands(values, found.about.unit == "N/m")
    better = found.about.higher_is_better
    if values.ndim > 2:
        *edges, best = best_in_cells(x, y, values, better)
        drawn = axes.pcolormesh(*edges, best.T, norm=norm, cmap=_colours(found))
    else:
        patches, middle = fine_patches(x, y, values)
        # Drawn in this order, so that the best comes last.
        order = np.argsort(middle if better else -middle, kind="stable")
        drawn = PolyCollection(
            list(patches[order]), array=middle[order], norm=norm, cmap=_colours(found), edgecolors="face", lw=0.3
        )
        axes.add_collection(drawn)
        outline_zones(figure, axes, x, y, found)
        singular_line(axes, x, y, found)
    figure.colorbar(drawn, ax=axes, label=_label(found), ticks=norm.boundaries)
    axes.set_xlabel(f"{plane[0]} of {found.shown} (m)")
    axes.set_ylabel(f"{plane[1]} of {found.shown} (m)")
    figure.suptitle(_title(found, figure, outlined=values.ndim == 2), fontsize=8.0)
    return figure


def placement_figure(result: PlacementResult) -> Figure:
    """Cost over the two variables that were searched most, and the deflection along the path, best and naive."""
    figure = Figure(figsize=(8.2, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    counts = [len(result.grid[name]) for name in VARIABLES]
    first, second = sorted(np.argsort(counts, kind="stable")[-2:].tolist())
    others = tuple(i for i in range(len(VARIABLES)) if i not in (first, second))
    cost = np.min(result.cost, axis=others) * 1e3
    names = (VARIABLES[first], VARIABLES[second])
    grid = [result.grid[name] * AXIS[name][1] for name in names]
    image = np.where(np.isfinite(cost), cost, np.nan)
    drawn = left.pcolormesh(_edges(grid[0]), _edges(grid[1]), image.T, cmap="viridis_r")
    left.set_facecolor("0.85")
    for placement, marker, colour, label in ((result.naive, "s", INITIAL, "naive"), (result.best, "*", ALERT, "best")):
        at = [placement.place[name] * AXIS[name][1] for name in names]
        left.plot(*at, marker, color=colour, mec="white", ms=11 if marker == "*" else 7, label=label, clip_on=False)
        if placement.possible:
            right.plot(
                range(1, len(placement.deflection) + 1),
                placement.deflection * 1e3,
                marker + "-",
                color=colour,
                ms=4,
                label=f"{label}: {placement.cost * 1e3:.3g} mm",
            )
    left.set_xlabel(f"{names[0]} ({AXIS[names[0]][0]})")
    left.set_ylabel(f"{names[1]} ({AXIS[names[1]][0]})")
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    tried = [name for i, name in enumerate(VARIABLES) if i in others and counts[i] > 1]
    left.set_title("tried (grey: not possible)" + (f", best over {', '.join(tried)}" if tried else ""))
    left.grid(False)
    figure.colorbar(drawn, ax=left, label=f"{_criterion(result)} of the deflection (mm)")
    right.set_xlabel("pose along the path")
    right.set_ylabel("deflection (mm)")
    right.set_ylim(bottom=0.0)
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.legend()
    fixed = [f"{n} = {result.grid[n][0] * AXIS[n][1]:.4g} {AXIS[n][0]}" for n in VARIABLES if len(result.grid[n]) == 1]
    figure.suptitle("; ".join([f"{result.machine}, {result.frame}: placement of a task", *fixed]), fontsize=8.0)
    return figure


def _criterion(result: PlacementResult) -> str:
    return {"max": "largest", "rms": "RMS"}[result.criterion]


def _plane(found: Map) -> str:
    """The two axes of the ground along which the shown frame moves most, in the order x, y, z."""
    points = found.position.reshape(-1, 3)
    first, second = sorted(np.argsort(-np.ptp(points, axis=0).round(6), kind="stable")[:2].tolist())
    return "xyz"[first] + "xyz"[second]


def _limit(axes: Axes, x: np.ndarray, y: np.ndarray) -> None:
    """Limits around all points; a frame that moves along one axis only still gets a figure of some height."""
    least = 0.05 * max(float(np.ptp(x)), float(np.ptp(y)), 1e-3)
    for points, limit in ((x, axes.set_xlim), (y, axes.set_ylim)):
        margin = max(0.02 * float(np.ptp(points)), least if np.ptp(points) < least else 0.0)
        limit(float(points.min()) - margin, float(points.max()) + margin)


def _size_around(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Inches of a figure that a workspace fills."""
    ratio = max(float(np.ptp(x)), 1e-3) / max(float(np.ptp(y)), 1e-3)
    height = float(np.clip(4.2 / ratio, 1.4, 4.2))
    return float(np.clip(height * ratio, 1.8, 4.2)) + 1.4, height + 1.0


def _flat(found: Map) -> np.ndarray:
    """Values over the first two coordinates, the best over the others, infinite ones left out."""
    values = bounded(found.values)
    rest = tuple(range(2, values.ndim))
    if not rest:
        return values
    return np.nanmax(values, axis=rest) if found.about.higher_is_better else np.nanmin(values, axis=rest)


def _bands(values: np.ndarray, by_ratio: bool = False) -> BoundaryNorm:
    """Bands at round numbers, or at 1, 2, 5, 10 ... where ratios count and the values differ by large ones."""
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


def _colours(found: Map) -> str:
    """Light is good."""
    return "viridis" if found.about.higher_is_better else "viridis_r"


def _label(found: Map) -> str:
    unit = SHOWN_AS[found.about.unit][0]
    return f"{found.about.label} ({unit})" if unit else found.about.label


def _title(found: Map, figure: Figure, outlined: bool = True) -> str:
    """What is shown, and under which conditions."""
    unit, scale = SHOWN_AS[found.about.unit]
    sense = "at least" if found.about.higher_is_better else "at most"
    said = [f"{found.machine}, {found.frame}"]
    if outlined:
        said.append(f"zones Z: {sense} {found.threshold * scale:.3g} {unit}".rstrip())
    if len(found.over) > 2:
        said.append(f"best over {', '.join(found.over if not outlined else found.over[2:])}")
    if outlined and found.side is not None and found.side.ndim == 2 and np.ptp(found.side):
        said.append("black: singular")
    return wrapped(["; ".join(said), map_conditions(found)], figure.get_figwidth())


def _edges(values: np.ndarray) -> np.ndarray:
    if len(values) == 1:
        return np.array([values[0] - 0.5, values[0] + 0.5])
    middle = 0.5 * (values[:-1] + values[1:])
    return np.concatenate([[2 * values[0] - middle[0]], middle, [2 * values[-1] - middle[-1]]])
