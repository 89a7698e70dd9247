"""Report of modal quantities over postures and of the placement of a task: tables and figures."""

from collections.abc import Sequence
from functools import partial
from itertools import zip_longest

import numpy as np
from jaxtyping import Float

from jaxmb.identify.assess.result import INTERVAL
from jaxmb.io.validation import listed
from jaxmb.maps.modal import ModalMap, ModalMaps
from jaxmb.maps.placement import VARIABLES, PlacementResult
from jaxmb.report.charts import (
    ALERT,
    INITIAL,
    SERIES,
    Axis,
    Band,
    Cells,
    Chart,
    Colors,
    Line,
    Mark,
    Note,
    Panel,
    in_grid,
)  # fmt: skip
from jaxmb.report.maps import bands, fixed_coordinates_text, grid_axis, not_reached, numbers
from jaxmb.report.section import Lines, Picture, Section, capital, left, number, right, table

LEVELS = 10
"""Approximate number of colour bands."""
MOST_COLUMNS = 4
"""Largest number of panels per row."""
MOST_ASPECT = 3.0
"""Largest ratio of the sides of a panel with lengths at the same scale along both axes."""
MODAL_SHOWN_AS = {
    "frequency": ("frequency", "Hz", 1.0),
    "damping": ("damping ratio", "%", 100.0),
    "static_compliance": ("static compliance", "µm/N", 1e6),
    "dynamic_compliance": ("largest receptance", "µm/N", 1e6),
}
"""Name and unit of a modal quantity in figures and tables, and conversion factor from the unit of the map."""


def modal_map_sections(found: ModalMaps) -> list[Section]:
    """Section with the smallest and largest value of each quantity, their standard deviations, and the maps."""
    rows: list[Sequence[str | None]] = []
    for name, shown in found.maps.items():
        label, unit, scale = MODAL_SHOWN_AS[name]
        all_values, all_std = _by_mode(shown)
        for m in range(all_values.shape[-1]):
            values, std = all_values[..., m] * scale, all_std[..., m] * scale
            least, greatest, ends, median = "none", "", [None, None], None
            if np.isfinite(values).any():
                at = np.array([np.nanargmin(values), np.nanargmax(values)])
                least, greatest = (number(float(value)) for value in values.flat[at])
                if shown.std is not None:
                    ends, relative = [_std(float(value)) for value in std.flat[at]], _relative(std, values)
                    median = f"{np.nanmedian(relative):.2g} %" if np.isfinite(relative).any() else "unknown"
            mode = f" {m + 1}" if shown.by_mode else ""
            rows.append((f"{label}{mode} ({unit})", least, ends[0], greatest, ends[1], median))
    columns = (*left("quantity"), *right("least", "std of least", "greatest", "std of greatest", "median std"))
    remarks = _modal_remarks(found)
    drawn = (Picture(name.replace("_", "-"), partial(modal_map_chart, found, name)) for name in found.maps)
    title = f"{found.machine}: {np.sum(found.postures.reached)} postures"
    return [Section(title, (table("", columns, rows, missing=""), *([Lines(remarks)] if remarks else []), *drawn))]


def _relative(std: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Standard deviations relative to their values, %; NaN for a value of 0, as the damping of an undamped machine."""
    return 100.0 * std / np.where(values == 0.0, np.nan, np.abs(values))


def _std(value: float) -> str:
    return f"{value:.2g}" if np.isfinite(value) else "unknown"


def _modal_remarks(found: ModalMaps) -> tuple[str, ...]:
    """Remarks on positions that are not reached and on parameters of unknown or large variance."""
    hardly_known = (
        "parameters with large standard deviations, which make those of the maps wrong by a factor of several:"
        f" {', '.join(found.hardly_known)}"
    )
    unknown = (
        f"{MODAL_SHOWN_AS[name][0]}: {parameter} is not identified, so that the standard deviation of"
        f" {100 * share:.0f} % of the values is unknown"
        for name, shown in found.maps.items()
        for parameter, share in shown.unknown.items()
    )
    return (*not_reached(found.postures), *([hardly_known] if found.hardly_known else []), *unknown)


def modal_map_chart(found: ModalMaps, quantity: str) -> Chart:
    """Chart of a quantity: curves with 95 % intervals along a path or one axis, else maps of values and relative std.

    Of more than two axes the first two are shown, at the middle of the others.
    """
    return _curves(found, quantity) if len(found.postures.grid) == 1 else _planes(found, quantity)


def _curves(found: ModalMaps, quantity: str) -> Chart:
    shown = found.maps[quantity]
    name, unit, scale = MODAL_SHOWN_AS[quantity]
    x, along = grid_axis(found.postures, 0)
    values, std = _by_mode(shown)
    curves, shades = list[Mark](), list[Mark]()
    for m in range(values.shape[-1]):
        color = SERIES[m % len(SERIES)]
        curves.append(Line(x, values[:, m] * scale, f"mode {m + 1}" if shown.by_mode else name, color, 1.2))
        if np.isfinite(std[:, m]).any():
            low, high = (values[:, m] + side * INTERVAL * std[:, m] for side in (-1.0, 1.0))
            shades.append(Band(x, low * scale, high * scale, "95 % interval", color))
    known = values[np.isfinite(values)] * scale
    limits = (0.0, 1.1 * known.max()) if known.size and known.min() < 0.3 * known.max() else None
    return Chart(
        f"{_title(found, quantity)}{_range(known, unit)}{_unknown(shown)}",
        f"{capital(name)} along the path or coordinate, with 95 % intervals where they are known.",
        [[(Panel([*shades, *curves], along, Axis(f"{name} ({unit})", limits=limits), height=2.7),)]],
        4.8,
        note=fixed_coordinates_text(found.postures),
    )


def _range(known: Float[np.ndarray, "k"], unit: str) -> str:
    return f": {known.min():.3g} to {known.max():.3g} {unit}" if known.size else ": unknown"


def _planes(found: ModalMaps, quantity: str) -> Chart:
    shown = found.maps[quantity]
    name, unit, scale = MODAL_SHOWN_AS[quantity]
    values, std = map(_first_two, _by_mode(shown))
    uncertain = bool(np.isfinite(std).any())
    (x, along_x), (y, along_y) = grid_axis(found.postures, 0), grid_axis(found.postures, 1)
    count = values.shape[-1]
    aspect, width = float(np.ptp(y) / np.ptp(x)), 2.4 if count == 1 else 1.8
    in_space = not any(found.postures.revolute[:2]) and 1.0 / MOST_ASPECT < aspect < MOST_ASPECT
    height = width * aspect if in_space else 0.85 * width

    def plane(values: np.ndarray, title: str, colours: str) -> tuple[Panel]:
        """Isocontours of the finite values, grey elsewhere."""
        mark: Mark = Note("unknown", 0.5, 0.5, inside=True)
        if np.isfinite(values).any():
            levels = bands(values, count=LEVELS)
            colors = Colors(colours, (float(levels[0]), float(levels[-1])), levels=levels)
            mark = Cells(x, y, values.T, colors, contours=True)
        return (Panel((mark,), along_x, along_y, title, height, "#d9d9d9", in_space),)

    titles = [f"mode {m + 1} ({unit})" for m in range(count)] if shown.by_mode else [f"{name} ({unit})"]
    colours = "viridis" if shown.by_mode else "viridis_r"  # light is stiff and well damped
    above = [plane(values[..., m] * scale, title, colours) for m, title in enumerate(titles)]
    relative = _relative(std, values)
    below = [plane(relative[..., m], "relative std (%)", "magma_r") for m in range(count)] if uncertain else []
    # standard deviations are beside a single map and below several
    blocks = zip_longest(in_grid(above, MOST_COLUMNS), in_grid(below, MOST_COLUMNS), fillvalue=[])
    rows = [above + below] if count == 1 else [row for pair in blocks for row in pair if row]
    middle = ", at the middle of the other axes" if len(found.postures.grid) > 2 else ""
    grey = "grey: not reached" if not np.all(found.postures.reached) else ""
    size = _range(values[np.isfinite(values)] * scale, unit)
    return Chart(
        f"{_title(found, quantity)}{middle}{size}{_unknown(shown)}",
        f"{capital(name)} over the postures" + (", and its relative standard deviation." if uncertain else "."),
        rows,
        width,
        note="; ".join(filter(None, [grey, fixed_coordinates_text(found.postures)])),
    )


def _by_mode(shown: ModalMap) -> tuple[np.ndarray, np.ndarray]:
    """Values and standard deviations, NaN where unknown, with modes along the last axis, of length 1 for quantities
    without modes."""
    values, std = shown.values, np.full(shown.values.shape, np.nan) if shown.std is None else shown.std
    return (values, std) if shown.by_mode else (values[..., None], std[..., None])


def _first_two(values: np.ndarray) -> np.ndarray:
    """Values over the first two axes, at the middle index of the others."""
    while values.ndim > 3:
        values = values[:, :, values.shape[2] // 2]
    return values


def _title(found: ModalMaps, quantity: str) -> str:
    about = f"{found.machine}, {MODAL_SHOWN_AS[quantity][0]}"
    if not quantity.endswith("compliance"):
        return about
    direction = found.settings.direction
    along = "the softest direction" if direction is None else f"direction {numbers(direction)}"
    return f"{about} of {found.frame} in {along}"


def _unknown(shown: ModalMap) -> str:
    """Clause on the parameters of unknown variance."""
    if not shown.unknown:
        return ""
    worst = sorted(shown.unknown, key=lambda name: -shown.unknown[name])
    return f"; std unknown where values depend on {listed(worst, 2)}"


AXIS = dict.fromkeys("xyz", ("m", 1.0)) | dict.fromkeys(("yaw", "spin"), ("deg", float(np.degrees(1.0))))
"""Unit of a placement variable in a figure and conversion factor from m or rad."""
CRITERIA = {"max": "largest", "rms": "RMS"}


def placement_chart(result: PlacementResult) -> Chart:
    """Cost over the two variables with most values, and deflections along the path at the best and naive placement."""
    counts = [len(result.grid[name]) for name in VARIABLES]
    first, second = sorted(np.argsort(counts, kind="stable")[-2:].tolist())
    others = tuple(i for i in range(len(VARIABLES)) if i not in (first, second))
    cost = np.min(result.cost, axis=others) * 1e3
    names = (VARIABLES[first], VARIABLES[second])
    edges = [_edges(result.grid[name] * AXIS[name][1]) for name in names]
    image = np.where(np.isfinite(cost), cost, np.nan)
    ends = (float(np.nanmin(image)), float(np.nanmax(image))) if np.isfinite(image).any() else (0.0, 1.0)
    colors = Colors("viridis_r", ends, f"{CRITERIA[result.criterion]} deflection along the path (mm)")
    left, right = list[Mark]([Cells(edges[0], edges[1], image.T, colors)]), list[Mark]()
    for placement, marker, color, label in ((result.naive, "s", INITIAL, "naive"), (result.best, "*", ALERT, "best")):
        at = [placement.place[name] * AXIS[name][1] for name in names]
        left.append(Line(at[:1], at[1:], label, color, 0.0, "", marker, 11.0 if marker == "*" else 7.0, beyond=True))
        if placement.possible:
            deflection = placement.deflection * 1e3
            text = f"{label}: {placement.cost * 1e3:.3g} mm"
            right.append(Line(range(1, deflection.size + 1), deflection, text, color, marker=marker, size=4.0))
    tried = [name for i, name in enumerate(VARIABLES) if i in others and counts[i] > 1]
    heading = "placements tried (grey: not possible)" + (f", best over {', '.join(tried)}" if tried else "")
    axes = [Axis(f"{n} ({AXIS[n][0]})", limits=(float(e[0]), float(e[-1]))) for n, e in zip(names, edges, strict=True)]
    top = max((float(np.max(p.deflection)) for p in (result.naive, result.best) if p.possible), default=1.0)
    curves = Panel(right, Axis("pose along the path", whole=True), Axis("deflection (mm)", limits=(0.0, 1.1e3 * top)),
                   height=2.6)  # fmt: skip
    fixed = [f"{n} = {result.grid[n][0] * AXIS[n][1]:.4g} {AXIS[n][0]}" for n in VARIABLES if len(result.grid[n]) == 1]
    return Chart(
        f"{result.machine}, {result.frame}: the best placement has {result.best.cost * 1e3:.3g} mm",
        "Deflection along the path over the placements of a task, and at each pose of the best and the naive one.",
        [[(Panel(left, axes[0], axes[1], heading, 2.6, "#d9d9d9"),), (curves,)]],
        2.9,
        note="; ".join(fixed),
    )


def _edges(values: np.ndarray) -> np.ndarray:
    if len(values) == 1:
        return np.array([values[0] - 0.5, values[0] + 0.5])
    middle = 0.5 * (values[:-1] + values[1:])
    return np.concatenate([[2 * values[0] - middle[0]], middle, [2 * values[-1] - middle[-1]]])
