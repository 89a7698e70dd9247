"""What `jaxmb map` says and writes of dexterity and stiffness."""

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from jaxmb.maps.maps import Map


def map_title(found: "Map") -> str:
    """The line above a table."""
    sense = "at least" if found.about.higher_is_better else "at most"
    limit = f"{sense} {found.threshold:.4g} {found.about.unit}".rstrip()
    length = f", length {found.settings['length_m']:.4g} m" if found.quantity == "dexterity" else ""
    return f"{found.quantity} of {found.machine}{length}: zones of {limit}"


def best_of_map(found: "Map") -> str:
    """What a map without zones has to offer."""
    import numpy as np

    known = found.values[~np.isnan(found.values)]
    if not known.size:
        return "no posture has a value"
    best = known.max() if found.about.higher_is_better else known.min()
    text = f"{best:.4g} {found.about.unit}".rstrip()
    return f"the best posture has {text}, expected two neighbours or more that reach the threshold"


def map_remarks(found: "Map") -> list[str]:
    """What is to be thought of a characteristic length that was found."""
    from jaxmb.maps.dexterity import LENGTHS

    if found.quantity != "dexterity" or found.settings["length_m"] not in LENGTHS:
        return []
    return [
        f"length: {found.settings['length_m']:g} m is an end of the search, so that no length is best and the dexterity"
        " says little: choose what counts by --directions (as x,y,rz) and --joints, or give --length"
    ]


def map_table(found: "Map") -> "Table":
    """The zones of a map."""
    from rich.table import Table

    from jaxmb.report.cells import number

    table = Table(box=None, pad_edge=False)
    for name in ("zone", "share", *(f"{c} reaches" for c in found.over), *(f"{c} all good" for c in found.over)):
        table.add_column(name, justify="right")
    table.add_column("best", justify="right")
    for i, zone in enumerate(found.zones, 1):
        ends = [
            f"{low:.0f} to {high:.0f} deg" if turning else f"{low:.3f} to {high:.3f} m"
            for ranges in (zone.extent, zone.box)
            for (low, high), turning in zip(_in_degrees(found, ranges), found.revolute, strict=True)
        ]
        table.add_row(f"Z{i}", f"{100 * zone.share:.1f} %", *ends, number(zone.best))
    return table


def _in_degrees(found: "Map", ranges: tuple[tuple[float, float], ...]) -> list[tuple[float, float]]:
    scale = [math.degrees(1.0) if turning else 1.0 for turning in found.revolute]
    return [(s * low, s * high) for (low, high), s in zip(ranges, scale, strict=True)]


def map_report(maps: dict[str, "Map"]) -> dict[str, Any]:
    """What map.json holds; null where a number is unknown or infinite."""
    first = next(iter(maps.values()))
    return {
        "schema": 1,
        "machine": first.machine,
        "frame": first.frame,
        "shown": first.shown,
        "over": {name: axis.tolist() for name, axis in zip(first.over, first.grid, strict=True)},
        "held": dict(first.held),
        "settings": {name: _plain(value) for name, value in first.settings.items()},
        "position_m": _plain(first.position),
        "det_sign": _plain(first.side),
        "maps": {
            name: {
                "unit": found.about.unit,
                "higher_is_better": found.about.higher_is_better,
                "threshold": _plain(found.threshold),
                "zones": [
                    {
                        "points": zone.points,
                        "share": zone.share,
                        "reaches": dict(zip(found.over, map(list, zone.extent), strict=True)),
                        "all_good": dict(zip(found.over, map(list, zone.box), strict=True)),
                        "best": _plain(zone.best),
                        "worst": _plain(zone.worst),
                        "best_at": dict(zip(found.over, zone.best_at, strict=True)),
                    }
                    for zone in found.zones
                ],
                "values": _plain(found.values),
            }
            for name, found in maps.items()
        },
    }


def _plain(value: Any) -> Any:
    """Lists and numbers, None for what is not finite."""
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
