"""Contents of `map.json`: strict JSON, SI units, null for unknown, infinite or undefined numbers."""

import json
from collections.abc import Mapping
from dataclasses import asdict

import numpy as np

from jaxmb.io.records import strict
from jaxmb.maps.kinetostatic_maps import PostureMap
from jaxmb.maps.modal import ModalMap, ModalMaps
from jaxmb.maps.zones import Zone

SCHEMA = 1


def posture_maps_json(maps: Mapping[str, PostureMap]) -> str:
    """Text of `map.json` for maps of dexterity, stiffness and deflection over one grid of coordinates."""
    first = next(iter(maps.values()))
    postures = first.postures
    settings = {name: value for name, value in asdict(first.settings).items() if value is not None}
    return _text(
        {
            "schema": SCHEMA,
            "machine": first.machine,
            "frame": first.frame,
            "shown": postures.frame,
            "over": dict(zip(postures.over, postures.grid, strict=True)),
            "held": dict(postures.held),
            "settings": settings,
            "position_m": postures.position,
            "det_sign": None if first.determinant is None else np.sign(first.determinant),
            "maps": {name: _posture_map(found) for name, found in maps.items()},
        }
    )


def modal_maps_json(found: ModalMaps) -> str:
    """Text of `map.json` for maps of frequencies, damping and compliance over a grid or along a path."""
    postures = found.postures
    axes = (
        {"path_m": postures.grid[0]}
        if postures.is_path
        else {"over": dict(zip(postures.over, postures.grid, strict=True))}
    )
    peak = {} if found.peak_hz is None else {"peak_hz": found.peak_hz}
    return _text(
        {
            "schema": SCHEMA,
            "machine": found.machine,
            "frame": found.frame,
            "shown": postures.frame,
            **axes,
            "held": dict(postures.held),
            "postures": {name: postures.coordinates[..., postures.names.index(name)] for name in postures.varied},
            "reached": postures.reached,
            "settings": found.settings,
            "hardly_known": found.hardly_known,
            "position_m": postures.position,
            "maps": {name: _modal_map(one) for name, one in found.maps.items()},
            **peak,
        }
    )


def _posture_map(found: PostureMap) -> dict[str, object]:
    return {
        "unit": found.about.unit,
        "higher_is_better": found.about.higher_is_better,
        "threshold": found.threshold,
        "zones": [_zone(zone, found.postures.over) for zone in found.zones],
        "values": found.values,
    }


def _zone(zone: Zone, over: tuple[str, ...]) -> dict[str, object]:
    return {
        "points": zone.points,
        "share": zone.share,
        "reaches": dict(zip(over, zone.extent, strict=True)),
        "all_good": dict(zip(over, zone.box, strict=True)),
        "best": zone.best,
        "worst": zone.worst,
        "best_at": dict(zip(over, zone.best_at, strict=True)),
    }


def _modal_map(found: ModalMap) -> dict[str, object]:
    return {
        "unit": found.unit,
        "by_mode": found.by_mode,
        "values": found.values,
        "std": found.std,
        "unknown": dict(found.unknown),
    }


def _text(content: dict[str, object]) -> str:
    return json.dumps(strict(content), allow_nan=False)
