"""Tables and remarks of `jaxmb map`: zones of good postures, least and greatest values over the postures."""

import math
from collections.abc import Mapping

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from jaxmb.maps.kinetostatic.characteristic_length import LENGTHS
from jaxmb.maps.kinetostatic.posture_maps import PostureMap
from jaxmb.maps.modal.modal_maps import ModalMaps
from jaxmb.maps.zones import Ranges
from jaxmb.report.cells import number
from jaxmb.report.maps.words import MODAL_SHOWN_AS


def posture_map_tables(maps: Mapping[str, PostureMap]) -> Group:
    """The zones of each map below what is mapped; for a map without zones its best value."""
    parts: list[RenderableType] = []
    for found in maps.values():
        parts.append(Text(_title(found), style="italic"))
        parts.append(zone_table(found) if found.zones else Text(f"no zone: {_best(found)}"))
    return Group(*parts)


def posture_map_remarks(maps: Mapping[str, PostureMap]) -> list[str]:
    """A sentence where the characteristic length is an end of the range in which it was looked for."""
    found = maps.get("dexterity")
    if found is None or found.settings.length_m not in LENGTHS:
        return []
    return [
        f"length: {found.settings.length_m:g} m is an end of the search, so that no length is best and the dexterity"
        " says little: choose what counts by --directions (as x,y,rz) and --joints, or give --length"
    ]


def zone_table(found: PostureMap) -> Table:
    """The zones of a map: their share of the postures, their ranges and their best value."""
    table = Table(box=None, pad_edge=False)
    over, revolute = found.postures.over, found.postures.revolute
    for name in ("zone", "share", *(f"{c} reaches" for c in over), *(f"{c} all good" for c in over), "best"):
        table.add_column(name, justify="right")
    for i, zone in enumerate(found.zones, 1):
        ends = [*_ranges(zone.extent, revolute), *_ranges(zone.box, revolute)]
        table.add_row(f"Z{i}", f"{100 * zone.share:.1f} %", *ends, number(zone.best))
    return table


def modal_map_tables(found: ModalMaps) -> Group:
    """Number of postures; least and greatest value of each quantity, with their standard deviations."""
    table = Table(box=None, pad_edge=False)
    table.add_column("quantity")
    for name in ("least", "std", "greatest", "std", "median std"):
        table.add_column(name, justify="right")
    for name, shown in found.maps.items():
        label, unit, scale = MODAL_SHOWN_AS[name]
        count = shown.values.shape[-1] if shown.by_mode else 1
        for m in range(count):
            values = (shown.values[..., m] if shown.by_mode else shown.values) * scale
            std = None if shown.std is None else (shown.std[..., m] if shown.by_mode else shown.std) * scale
            row = [f"{label}{f' {m + 1}' if shown.by_mode else ''} ({unit})"]
            if not np.isfinite(values).any():
                table.add_row(*row, "none")
                continue
            for at in (np.nanargmin(values), np.nanargmax(values)):
                row += [number(float(values.flat[at])), "" if std is None else _std(float(std.flat[at]))]
            relative = None if std is None else 100.0 * std / np.abs(values)
            known = relative is not None and np.isfinite(relative).any()
            row.append("" if relative is None else f"{np.nanmedian(relative):.2g} %" if known else "unknown")
            table.add_row(*row)
    return Group(Text(f"{found.machine}: {np.sum(found.postures.reached)} postures", style="italic"), table)


def modal_map_remarks(found: ModalMaps) -> list[str]:
    """Sentences on places that are not reached and on parameters that are not, or hardly, known."""
    said = []
    reached = found.postures.reached
    if not reached.all():
        said.append(f"{int(np.sum(~reached))} of {reached.size} places are not reached from the start posture")
    if found.hardly_known:
        said.append(
            "hardly known parameters, because of which standard deviations may be several times too small or too large:"
            f" {', '.join(found.hardly_known)}"
        )
    for name, shown in found.maps.items():
        for parameter, share in shown.unknown.items():
            said.append(
                f"{MODAL_SHOWN_AS[name][0]}: nothing is known of {parameter}, so that the standard deviation of"
                f" {100 * share:.0f} % of the values is unknown"
            )
    return said


def _title(found: PostureMap) -> str:
    sense = "at least" if found.about.higher_is_better else "at most"
    limit = f"{sense} {found.threshold:.4g} {found.about.unit}".rstrip()
    length = f", length {found.settings.length_m:.4g} m" if found.quantity == "dexterity" else ""
    return f"{found.quantity} of {found.machine}{length}: zones of {limit}"


def _best(found: PostureMap) -> str:
    """The best value of a map without zones."""
    known = found.values[~np.isnan(found.values)]
    if not known.size:
        return "no posture has a value"
    best = known.max() if found.about.higher_is_better else known.min()
    text = f"{best:.4g} {found.about.unit}".rstrip()
    return f"the best posture has {text}, expected two neighbours or more that reach the threshold"


def _ranges(ranges: Ranges, revolute: tuple[bool, ...]) -> list[str]:
    return [
        f"{math.degrees(low):.0f} to {math.degrees(high):.0f} deg" if turning else f"{low:.3f} to {high:.3f} m"
        for (low, high), turning in zip(ranges, revolute, strict=True)
    ]


def _std(value: float) -> str:
    return f"{value:.2g}" if np.isfinite(value) else "unknown"
