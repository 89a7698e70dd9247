"""Maps of dexterity, stiffness and deflection over a grid of coordinates, and zones, the connected good postures."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Unpack

import numpy as np

from jaxmb.io.files import strict
from jaxmb.io.validation import check_known
from jaxmb.machine.build import Model
from jaxmb.maps.kinetostatic import (
    QUANTITIES,
    MapSettings,
    Quantity,
    SettingOptions,
    characteristic_length,
    checked_settings,
    posture_quantities,
)
from jaxmb.maps.workspace_grid import SCHEMA, Axis, Postures, postures_over
from jaxmb.mechanics.kinematics import TOOL, frame_name

Ranges = tuple[tuple[float, float], ...]
"""Lowest and highest value along each axis of a grid."""


@dataclass(frozen=True)
class Zone:
    """A connected region of good points of a grid."""

    mask: np.ndarray
    """True at the points of the zone [*grid]."""
    points: int
    """Number of its points."""
    share: float
    """Number of its points over the number of points of the grid."""
    extent: Ranges
    """Lowest and highest value of its points along each axis: a bounding box that may contain other points."""
    box: Ranges
    """The largest box, by number of points, within the zone."""
    best: float
    worst: float
    """Values at its best and worst point."""
    best_at: tuple[float, ...]
    """Values along the axes of the grid at its best point."""


def find_zones(
    values: np.ndarray, grid: tuple[np.ndarray, ...], threshold: float, higher_is_better: bool, least_points: int = 1
) -> tuple[Zone, ...]:
    """Connected regions with values at least (or at most) a threshold, largest first.

    Points are connected along the axes of the grid, not diagonally, and not across the ends of an axis of a full turn.
    NaN is not good.

    Args:
        values: at the grid points [*grid].
        grid: values of each axis, ascending.
        threshold: smallest good value, or largest if smaller is better.
        higher_is_better: whether good is above the threshold.
        least_points: smallest number of points of a region.

    Raises:
        ValueError: the values do not have the shape of the grid.
    """
    if np.shape(values) != (shape := tuple(len(axis) for axis in grid)):
        raise ValueError(f"values have shape {np.shape(values)}, expected that of the grid, {shape}")
    from scipy.ndimage import label

    good = values >= threshold if higher_is_better else values <= threshold
    labels, count = label(good)  # pyright: ignore[reportGeneralTypeIssues]
    masks = (labels == number for number in range(1, count + 1))
    zones = [_zone(mask, values, grid, higher_is_better) for mask in masks if np.count_nonzero(mask) >= least_points]
    return tuple(sorted(zones, key=lambda zone: -zone.points))


def largest_box(mask: np.ndarray) -> tuple[slice, ...]:
    """Slices of the largest all-True box, by number of points, of a mask with at least one True."""
    ranges = _largest_box(mask if mask.ndim > 1 else mask[None])[1]
    return tuple(slice(low, high + 1) for low, high in ranges[-mask.ndim :])


def _zone(mask: np.ndarray, values: np.ndarray, grid: tuple[np.ndarray, ...], higher_is_better: bool) -> Zone:
    indices = np.nonzero(mask)
    inside = values[indices]
    order = inside if higher_is_better else -inside
    best, worst = int(order.argmax()), int(order.argmin())
    bounds = tuple(slice(int(i.min()), int(i.max()) + 1) for i in indices)
    box = largest_box(mask[bounds])
    return Zone(
        mask=mask,
        points=int(mask.sum()),
        share=float(mask.mean()),
        extent=tuple((float(g[b][0]), float(g[b][-1])) for g, b in zip(grid, bounds, strict=True)),
        box=tuple((float(g[b][c][0]), float(g[b][c][-1])) for g, b, c in zip(grid, bounds, box, strict=True)),
        best=float(inside[best]),
        worst=float(inside[worst]),
        best_at=tuple(float(g[i[best]]) for g, i in zip(grid, indices, strict=True)),
    )


def _largest_box(mask: np.ndarray) -> tuple[int, list[tuple[int, int]]]:
    """Number of points and index ranges of the largest box, by exhaustive search along the shortest axis."""
    if mask.ndim == 2:
        return _largest_rectangle(mask)
    axis = int(np.argmin(mask.shape))
    layers = np.moveaxis(mask, axis, 0)
    best: tuple[int, list[tuple[int, int]]] = (0, [(0, -1)] * mask.ndim)
    for low in range(len(layers)):
        common = np.ones_like(layers[0])
        for high in range(low, len(layers)):
            common &= layers[high]
            if (high - low + 1) * np.count_nonzero(common) > best[0]:
                points, ranges = _largest_box(common)
                if points * (high - low + 1) > best[0]:
                    best = points * (high - low + 1), [*ranges[:axis], (low, high), *ranges[axis:]]
    return best


def _largest_rectangle(mask: np.ndarray) -> tuple[int, list[tuple[int, int]]]:
    """Number of points and index ranges of the largest all-True rectangle: largest rectangle in a histogram, by row."""
    best: tuple[int, list[tuple[int, int]]] = (0, [(0, -1), (0, -1)])
    height = np.zeros(mask.shape[1] + 1, dtype=int)  # the last stays 0 and empties the stack
    for row, line in enumerate(mask):
        height[:-1] = np.where(line, height[:-1] + 1, 0)
        stack: list[tuple[int, int]] = []  # first column and height, ascending heights
        for column, tall in enumerate(height.tolist()):
            start = column
            while stack and stack[-1][1] >= tall:
                start, top = stack.pop()
                if top * (column - start) > best[0]:
                    best = top * (column - start), [(row - top + 1, row), (start, column - 1)]
            stack.append((start, tall))
    return best


GOOD_SHARE = 0.25
"""Share of good postures that defines the default threshold."""


@dataclass(frozen=True)
class PostureMap:
    """One quantity over a grid of coordinates."""

    machine: str
    quantity: str
    values: np.ndarray
    """At each point of the grid, in its unit; NaN where loops do not close or the machine is unstable."""
    frame: str
    """Frame of the quantity."""
    postures: Postures
    """The grid; its frame is the one whose position represents the posture in the workspace."""
    determinant: np.ndarray | None
    """det J_N [*grid], which changes sign across a singular posture; None if the Jacobian is not square."""
    threshold: float
    """Smallest good value, or largest if smaller is better."""
    zones: tuple[Zone, ...]
    """Connected regions of good postures, largest first."""
    settings: MapSettings

    @property
    def about(self) -> Quantity:
        """Label, unit and sense of the quantity."""
        return QUANTITIES[self.quantity]


def posture_maps(
    model: Model,
    over: Mapping[str, Axis],
    quantities: Sequence[str] = ("dexterity",),
    frame: str = TOOL,
    held: Mapping[str, float] | None = None,
    shown: str | None = None,
    good: Mapping[str, float] | None = None,
    least_points: int = 2,
    **options: Unpack[SettingOptions],
) -> dict[str, PostureMap]:
    """Maps of quantities over a common grid of postures.

    Args:
        model: the machine.
        over: values of each varying coordinate, rad or m, ascending; the grid is their Cartesian product.
        quantities: of `QUANTITIES`.
        frame: frame of the quantities.
        held: values of other coordinates, rad or m; default: the reference posture.
        shown: frame whose position represents a posture in the workspace; default: `frame`.
        good: threshold by quantity; default: the value that the best quarter of the postures reaches.
        least_points: smallest number of grid points of a zone.
        options: length, wrench, direction, joints and directions, see `SettingOptions`.

    Returns:
        Maps by quantity.

    Raises:
        ValueError: a name is unknown, a grid is not ascending and finite, an angle exceeds a turn, the wrench or
            direction of a quantity is missing, or loops close at no posture of the grid.
        NotImplementedError: a quantity is a change of stiffness under load and the machine has loops.

    Source: Dumas et al. 2011, eq. 7-11, Fig. 2-3.
    """
    frame = frame_name(model, frame)
    check_known("over: coordinate", over, model.coordinates)
    check_known("good: quantity", good or {}, quantities)
    settings = checked_settings(model, quantities, frame, **options)
    postures = postures_over(model, over, held, frame if shown is None else shown)
    rows = postures.coordinates[postures.reached]
    if options.get("length") is None and "dexterity" in quantities:
        found = characteristic_length(model, rows, frame, settings.joints, settings.directions)
        settings = replace(settings, length_m=found)
    values = posture_quantities(model, rows, (*quantities, "determinant"), frame, settings)
    fields = {name: postures.on_grid(found) for name, found in values.items()}
    square = len(settings.joints) == len(settings.directions)
    maps = {}
    for name in quantities:
        field = fields[name]
        better = QUANTITIES[name].higher_is_better
        known, share = field[~np.isnan(field)], 1.0 - GOOD_SHARE if better else GOOD_SHARE
        best_share = np.quantile(known, share, method="nearest") if known.size else np.nan
        threshold = float((good or {}).get(name, best_share))
        maps[name] = PostureMap(
            machine=model.name,
            quantity=name,
            values=field,
            frame=frame,
            postures=postures,
            determinant=fields["determinant"] if square else None,
            threshold=threshold,
            zones=find_zones(field, postures.grid, threshold, better, least_points),
            settings=settings,
        )
    return maps


def posture_maps_json(maps: Mapping[str, PostureMap]) -> str:
    """Text of `map.json` for maps of dexterity, stiffness and deflection over one grid of coordinates."""
    first = next(iter(maps.values()))
    postures, over = first.postures, first.postures.over
    content = {
        "schema": SCHEMA,
        "machine": first.machine,
        "frame": first.frame,
        "shown": postures.frame,
        "over": dict(zip(over, postures.grid, strict=True)),
        "held": dict(postures.held),
        "settings": {name: value for name, value in asdict(first.settings).items() if value is not None},
        "position_m": postures.position,
        "det_sign": None if first.determinant is None else np.sign(first.determinant),
        "maps": {
            name: {
                "unit": found.about.unit,
                "higher_is_better": found.about.higher_is_better,
                "threshold": found.threshold,
                "zones": [
                    {
                        "points": zone.points,
                        "share": zone.share,
                        "reaches": dict(zip(over, zone.extent, strict=True)),
                        "all_good": dict(zip(over, zone.box, strict=True)),
                        "best": zone.best,
                        "worst": zone.worst,
                        "best_at": dict(zip(over, zone.best_at, strict=True)),
                    }
                    for zone in found.zones
                ],
                "values": found.values,
            }
            for name, found in maps.items()
        },
    }
    return json.dumps(strict(content), allow_nan=False)
