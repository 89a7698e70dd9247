"""Report of modal quantities over postures and of the placement of a task: tables and figures."""

from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxmb.maps.modal import INTERVAL_95, ModalMap, ModalMaps
from jaxmb.maps.placement import VARIABLES, PlacementResult
from jaxmb.report.maps import fixed_coordinates_text, not_reached, numbers, wrapped
from jaxmb.report.section import Lines, Picture, Row, Section, Table, left, number, right
from jaxmb.report.style import ALERT, FITTED, INITIAL, TRUE

LEVELS = 10
"""Approximate number of colour bands."""
COLOURS = (FITTED, ALERT, TRUE, INITIAL, "#CC79A7", "#56B4E9")
"""Colours of the modes along a path, after Okabe and Ito."""
MOST_COLUMNS = 4
"""Largest number of panels per row."""
SAME = 1e-9
"""Relative range up to which all values are equal and drawn as one band."""
MODAL_SHOWN_AS = {
    "frequency": ("frequency", "Hz", 1.0),
    "damping": ("damping ratio", "%", 100.0),
    "static_compliance": ("static compliance", "µm/N", 1e6),
    "dynamic_compliance": ("largest receptance", "µm/N", 1e6),
}
"""Name and unit of a modal quantity in figures and tables, and conversion factor from the unit of the map."""


def modal_map_sections(found: ModalMaps) -> list[Section]:
    """Section with the smallest and largest value of each quantity, their standard deviations, and the maps."""
    rows: list[Row] = []
    for name, shown in found.maps.items():
        label, unit, scale = MODAL_SHOWN_AS[name]
        count = shown.values.shape[-1] if shown.by_mode else 1
        for m in range(count):
            values = (shown.values[..., m] if shown.by_mode else shown.values) * scale
            std = None if shown.std is None else (shown.std[..., m] if shown.by_mode else shown.std) * scale
            row = [f"{label}{f' {m + 1}' if shown.by_mode else ''} ({unit})"]
            if not np.isfinite(values).any():
                rows.append((*row, "none", "", "", "", ""))
                continue
            for at in (np.nanargmin(values), np.nanargmax(values)):
                row += [number(float(values.flat[at])), "" if std is None else _std(float(std.flat[at]))]
            relative = None if std is None else 100.0 * std / np.abs(values)
            finite = relative is not None and np.isfinite(relative).any()
            row.append("" if relative is None else f"{np.nanmedian(relative):.2g} %" if finite else "unknown")
            rows.append(tuple(row))
    columns = (*left("quantity"), *right("least", "std of least", "greatest", "std of greatest", "median std"))
    remarks = _modal_remarks(found)
    drawn = (Picture(name.replace("_", "-"), partial(modal_map_figure, found, name)) for name in found.maps)
    title = f"{found.machine}: {np.sum(found.postures.reached)} postures"
    return [Section(title, (Table("", columns, tuple(rows)), *([Lines(remarks)] if remarks else []), *drawn))]


def _std(value: float) -> str:
    return f"{value:.2g}" if np.isfinite(value) else "unknown"


def _modal_remarks(found: ModalMaps) -> tuple[str, ...]:
    """Remarks on positions that are not reached and on parameters of unknown or large variance."""
    remarks = not_reached(found.postures)
    if found.hardly_known:
        remarks.append(
            "parameters with large standard deviations, which make those of the maps wrong by a factor of several:"
            f" {', '.join(found.hardly_known)}"
        )
    for name, shown in found.maps.items():
        for parameter, share in shown.unknown.items():
            remarks.append(
                f"{MODAL_SHOWN_AS[name][0]}: {parameter} is not identified, so that the standard deviation of"
                f" {100 * share:.0f} % of the values is unknown"
            )
    return tuple(remarks)


def modal_map_figure(found: ModalMaps, quantity: str) -> Figure:
    """Figure of a quantity: curves with 95 % intervals along a path or one axis, else maps of values and relative std.

    Of more than two axes the first two are shown, at the middle of the others.
    """
    return _curves(found, quantity) if len(found.postures.grid) == 1 else _planes(found, quantity)


def _curves(found: ModalMaps, quantity: str) -> Figure:
    shown = found.maps[quantity]
    scale = MODAL_SHOWN_AS[quantity][2]
    figure = Figure(figsize=(5.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    x, label = _axis(found, 0)
    values, std = _by_mode(shown)
    for m in range(values.shape[-1]):
        name = f"mode {m + 1}" if shown.by_mode else None
        colour = COLOURS[m % len(COLOURS)]
        axes.plot(x, values[:, m] * scale, color=colour, lw=1.2, label=name)
        if std is not None:
            low, high = (values[:, m] + side * INTERVAL_95 * std[:, m] for side in (-1.0, 1.0))
            axes.fill_between(x, low * scale, high * scale, color=colour, alpha=0.25, lw=0)
    axes.set_xlabel(label)
    axes.set_ylabel(f"{MODAL_SHOWN_AS[quantity][0]} ({MODAL_SHOWN_AS[quantity][1]})")
    axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))
    axes.set_xlim(float(x[0]), float(x[-1]))
    if shown.by_mode:
        axes.legend(ncols=min(values.shape[-1], MOST_COLUMNS), loc="lower center", bbox_to_anchor=(0.5, 1.0))
    band = "shaded: 95 % interval" if std is not None and np.isfinite(std).any() else ""
    _entitle(figure, found, f"{_title(found, quantity)}{_unknown(shown)}", band)
    return figure


def _planes(found: ModalMaps, quantity: str) -> Figure:
    shown = found.maps[quantity]
    name, unit, scale = MODAL_SHOWN_AS[quantity]
    values, std = _by_mode(shown)
    values = _first_two(values)
    std = None if std is None else _first_two(std)
    uncertain = std is not None and bool(np.isfinite(std).any())
    count = values.shape[-1]
    columns = min(count, MOST_COLUMNS)
    blocks = -(-count // columns)
    # Standard deviations are drawn below the values, or to the right of a single map.
    wide = count == 1 and uncertain
    rows, columns_shown = (1, 2) if wide else (blocks * (1 + uncertain), columns)
    in_space = not any(found.postures.revolute[:2])
    wide_panel = 3.4 if count == 1 else 2.6
    if in_space:
        ratio = np.ptp(found.postures.grid[0]) / np.ptp(found.postures.grid[1])
        wide_panel = float(np.clip(1.8 * ratio + 0.7, 1.5, wide_panel))
    size = (0.6 + wide_panel * columns_shown, 0.7 + 2.3 * rows)
    figure = Figure(figsize=size, layout="compressed" if in_space else "constrained")
    panels = [list(line) for line in figure.subplots(rows, columns_shown, squeeze=False, sharex=True, sharey=True)]
    (x, x_label), (y, y_label) = _axis(found, 0), _axis(found, 1)
    used = []
    for m in range(count):
        row, column = (1 + uncertain) * (m // columns), m % columns
        title = f"mode {m + 1}" if shown.by_mode else name
        colours = "viridis" if shown.by_mode else "viridis_r"  # light is stiff and well damped
        used.append(panels[row][column])
        _panel(figure, used[-1], x, y, values[..., m] * scale, f"{title} ({unit})", colours)
        if uncertain and std is not None:
            used.append(panels[0][1] if wide else panels[row + 1][column])
            relative = 100.0 * std[..., m] / np.abs(values[..., m])
            _panel(figure, used[-1], x, y, relative, "relative std (%)", "magma_r")
    for axes in panels[-1]:
        axes.set_xlabel(x_label)
    for line in panels:
        line[0].set_ylabel(y_label)
        for axes in line:
            axes.set_visible(axes in used)
            axes.set_aspect("equal" if in_space else "auto")
    middle = ", at the middle of the other axes" if len(found.postures.grid) > 2 else ""
    grey = "; grey: not reached" if not np.all(found.postures.reached) else ""
    _entitle(figure, found, f"{_title(found, quantity)}{middle}{grey}{_unknown(shown)}")
    return figure


def _panel(
    figure: Figure, axes: Axes, x: np.ndarray, y: np.ndarray, values: np.ndarray, title: str, colours: str
) -> None:
    """Isocontours of the finite values, grey elsewhere."""
    axes.set_facecolor("0.85")
    axes.grid(False)
    axes.set_title(title)
    known = values[np.isfinite(values)]
    if not known.size:
        axes.text(0.5, 0.5, "unknown", transform=axes.transAxes, ha="center", va="center")
        return
    low, high = float(known.min()), float(known.max())
    if not high - low > SAME * abs(high):
        low, high = low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0)
    levels = MaxNLocator(LEVELS).tick_values(low, high)
    drawn = axes.contourf(x, y, np.ma.masked_invalid(values).T, levels=levels, cmap=colours)
    axes.contour(x, y, np.ma.masked_invalid(values).T, levels=levels, colors="0.25", linewidths=0.25)
    figure.colorbar(drawn, ax=axes, ticks=levels[:: 2 if len(levels) > 7 else 1])


def _by_mode(shown: ModalMap) -> tuple[np.ndarray, np.ndarray | None]:
    """Values and standard deviations with modes along the last axis, of length 1 for quantities without modes."""
    if shown.by_mode:
        return shown.values, shown.std
    return shown.values[..., None], None if shown.std is None else shown.std[..., None]


def _first_two(values: np.ndarray) -> np.ndarray:
    """Values over the first two axes, at the middle index of the others."""
    while values.ndim > 3:
        values = values[:, :, values.shape[2] // 2]
    return values


def _axis(found: ModalMaps, k: int) -> tuple[np.ndarray, str]:
    postures = found.postures
    if postures.is_path:
        return postures.grid[0], f"distance of {postures.frame} along the path (m)"
    if postures.revolute[k]:
        return np.degrees(postures.grid[k]), f"{postures.over[k]} (deg)"
    return postures.grid[k], f"{postures.over[k]} (m)"


def _title(found: ModalMaps, quantity: str) -> str:
    about = f"{found.machine}, {MODAL_SHOWN_AS[quantity][0]}"
    if not quantity.endswith("compliance"):
        return about
    direction = found.settings.direction
    along = "the softest direction" if direction is None else f"direction {numbers(direction)}"
    return f"{about} of {found.frame} in {along}"


def _entitle(figure: Figure, found: ModalMaps, about: str, band: str = "") -> None:
    conditions = "; ".join(filter(None, [band, fixed_coordinates_text(found.postures)]))
    figure.suptitle(wrapped([about, conditions], figure.get_figwidth()), fontsize=8.0)


def _unknown(shown: ModalMap) -> str:
    """Clause on the parameters of unknown variance."""
    if not shown.unknown:
        return ""
    worst = sorted(shown.unknown, key=lambda name: -shown.unknown[name])
    more = f" and {len(worst) - 2} more" if len(worst) > 2 else ""
    return f"; std unknown where values depend on {', '.join(worst[:2])}{more}"


AXIS = dict.fromkeys("xyz", ("m", 1.0)) | dict.fromkeys(("yaw", "spin"), ("deg", float(np.degrees(1.0))))
"""Unit of a placement variable in a figure and conversion factor from m or rad."""


def placement_figure(result: PlacementResult) -> Figure:
    """Cost over the two variables with most values, and deflections along the path at the best and naive placement."""
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
    left.set_title("placements tried (grey: not possible)" + (f", best over {', '.join(tried)}" if tried else ""))
    left.grid(False)
    figure.colorbar(drawn, ax=left, label=f"{_criterion(result)} deflection along the path (mm)")
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


def _edges(values: np.ndarray) -> np.ndarray:
    if len(values) == 1:
        return np.array([values[0] - 0.5, values[0] + 0.5])
    middle = 0.5 * (values[:-1] + values[1:])
    return np.concatenate([[2 * values[0] - middle[0]], middle, [2 * values[-1] - middle[-1]]])
