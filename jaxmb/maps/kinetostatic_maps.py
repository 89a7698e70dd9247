"""Maps of dexterity, stiffness and deflection over a grid of coordinates, with zones of good postures."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

import numpy as np

from jaxmb.io.validation import known_name
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
from jaxmb.maps.workspace_grid import Axis, Postures, postures_over
from jaxmb.maps.zones import Zone, find_zones
from jaxmb.mechanics.kinematics import TOOL, frame_name

GOOD_SHARE = 0.25
"""Share of good postures that defines the default threshold."""


@dataclass(frozen=True)
class PostureMap:
    """One quantity over a grid of coordinates."""

    machine: str
    quantity: str
    values: np.ndarray
    """At each point of the grid, in the unit of the quantity; NaN where loops do not close."""
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
    for name in over:
        if name not in model.coordinates:
            raise ValueError(known_name("over: coordinate", name, model.coordinates))
    for name in good or {}:
        if name not in quantities:
            raise ValueError(known_name("good: quantity", name, quantities))
    settings = checked_settings(model, quantities, frame, **options)
    postures = postures_over(model, over, held, frame if shown is None else shown)
    reached = postures.reached
    rows = postures.coordinates[reached]
    if options.get("length") is None and "dexterity" in quantities:
        found = characteristic_length(model, rows, frame, settings.joints, settings.directions)
        settings = replace(settings, length_m=found)
    values = posture_quantities(model, rows, (*quantities, "determinant"), frame, settings)
    fields = {name: np.full(reached.shape, math.nan) for name in values}
    for name, field in fields.items():
        field[reached] = values[name]
    square = len(settings.joints) == len(settings.directions)
    maps = {}
    for name in quantities:
        field = fields[name]
        better = QUANTITIES[name].higher_is_better
        threshold = (good or {}).get(name)
        threshold = _best_share(field, better) if threshold is None else float(threshold)
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


def _best_share(values: np.ndarray, higher_is_better: bool) -> float:
    """The value that the best quarter of the postures reaches."""
    values = values[~np.isnan(values)]
    if not values.size:
        return math.nan
    return float(np.quantile(values, 1.0 - GOOD_SHARE if higher_is_better else GOOD_SHARE, method="nearest"))
