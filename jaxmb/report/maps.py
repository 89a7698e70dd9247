"""Report on maps: zones of good postures, smallest and largest values, remarks and figures."""

import math
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np

from jaxmb.maps.kinetostatic import LENGTHS
from jaxmb.maps.kinetostatic_maps import PostureMap
from jaxmb.maps.modal import ModalMaps
from jaxmb.maps.workspace_grid import Postures
from jaxmb.maps.zones import Ranges
from jaxmb.report.section import Lines, Picture, Row, Section, Table, drawn_by, left, number, right

LETTERS_PER_INCH = 15
"""Characters of a title per inch of the figure's width."""
MOST_ZEROS = 4
"""Largest number of coordinates at 0 that are named one by one."""
MODAL_SHOWN_AS = {
    "frequency": ("frequency", "Hz", 1.0),
    "damping": ("damping ratio", "%", 100.0),
    "static_compliance": ("static compliance", "µm/N", 1e6),
    "dynamic_compliance": ("largest receptance", "µm/N", 1e6),
}
"""Name and unit of a modal quantity in figures and tables, and conversion factor from the unit of the map."""


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
        drawn = [Picture(f"{name}-joints", _drawn_by("map_figures:joint_space_figure", found))]
        if len(found.postures.over) > 1:
            drawn.append(Picture(f"{name}-workspace", _drawn_by("map_figures:workspace_figure", found, plane)))
        at_end = name == "dexterity" and found.settings.length_m in LENGTHS and not length_given
        remark = (
            f"length: {found.settings.length_m:g} m is an end of the search: there is no optimal length and the"
            " dexterity is not meaningful; restrict --directions (as x,y,rz) and --joints, or give --length"
        )
        zones = zone_table(found) if found.zones else Lines((f"no zone: {_best(found)}",))
        remarks = [*_not_reached(found.postures), *([remark] if at_end else [])]
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
    drawn = (
        Picture(name.replace("_", "-"), _drawn_by("modal_map_figures:modal_map_figure", found, name))
        for name in found.maps
    )
    title = f"{found.machine}: {np.sum(found.postures.reached)} postures"
    return [Section(title, (Table("", columns, tuple(rows)), *([Lines(remarks)] if remarks else []), *drawn))]


def _modal_remarks(found: ModalMaps) -> tuple[str, ...]:
    """Remarks on positions that are not reached and on parameters of unknown or large variance."""
    remarks = _not_reached(found.postures)
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


def _not_reached(postures: Postures) -> list[str]:
    """Remark on positions that are not reached, or on postures where loops do not close."""
    reached = postures.reached
    noun = "postures" if set(postures.over) <= set(postures.names) else "positions"
    return (
        [] if reached.all() else [f"{np.sum(~reached)} of {reached.size} {noun} are not reached from the start posture"]
    )


def _drawn_by(function: str, *arguments: object):
    return drawn_by(f"jaxmb.report.{function}", *arguments)


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


def _std(value: float) -> str:
    return f"{value:.2g}" if np.isfinite(value) else "unknown"
