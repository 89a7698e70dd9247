"""Maps of a robot: how good its postures are, over a grid of some coordinates, with the zones where they are good."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from jaxmb.io.validation import known_name
from jaxmb.machine.build import Model
from jaxmb.maps.dexterity import characteristic_length, moving_joints
from jaxmb.maps.posture_batches import posture_quantities
from jaxmb.maps.zones import Zone, find_zones
from jaxmb.mechanics.kinematics import frame_index, posture
from jaxmb.response.static import check_wrench

GOOD_SHARE = 0.25
"""Share of the postures that are called good where no threshold is given."""


@dataclass(frozen=True)
class Quantity:
    """What a map can show."""

    label: str
    unit: str
    higher_is_better: bool
    needs: tuple[str, ...] = ()


QUANTITIES = {
    "dexterity": Quantity("inverse condition number $1/\\kappa_F(J_N)$", "", True),
    "nu_p": Quantity("influence of $K_C$ on the translation $\\nu_p$", "", False, ("wrench",)),
    "nu_r": Quantity("influence of $K_C$ on the rotation $\\nu_r$", "rad", False, ("wrench",)),
    "deflection": Quantity("deflection under the load", "m", False, ("wrench",)),
    "stiffness": Quantity("stiffness along the direction", "N/m", True, ("direction",)),
    "least_stiffness": Quantity("stiffness in the softest direction", "N/m", True),
    "greatest_stiffness": Quantity("stiffness in the stiffest direction", "N/m", True),
}
"""Translational stiffness and deflection are those of the frame's origin, first order in the load."""


@dataclass(frozen=True)
class Map:
    """One quantity over a grid of coordinates."""

    machine: str
    quantity: str
    values: np.ndarray
    """One for each point of the grid, in the unit of the quantity."""
    over: tuple[str, ...]
    """Coordinates along the axes of the grid."""
    grid: tuple[np.ndarray, ...]
    """Their values, ascending, rad or m."""
    revolute: tuple[bool, ...]
    """Whether each of them is an angle."""
    held: Mapping[str, float]
    """The other coordinates, rad or m."""
    frame: str
    """Where the quantity is taken."""
    shown: str
    """Frame whose place stands for the posture in the workspace."""
    position: np.ndarray
    """Place of that frame [grid, 3], m, ground axes."""
    side: np.ndarray | None
    """Sign of det J [grid], which changes across a singularity; None where J is not square."""
    threshold: float
    """The least good value, or the greatest where less is better."""
    zones: tuple[Zone, ...]
    """Connected regions of good postures, largest first."""
    settings: Mapping[str, object]
    """Characteristic length, wrench, direction, joints and components, as they were used."""
    angles: tuple[str, ...] = ()
    """Which of the robot's coordinates are angles."""

    @property
    def about(self) -> Quantity:
        """Label, unit and sense of the quantity."""
        return QUANTITIES[self.quantity]


def posture_maps(
    model: Model,
    over: Mapping[str, Sequence[float] | np.ndarray],
    quantities: Sequence[str] = ("dexterity",),
    frame: str = "tool",
    held: Mapping[str, float] | None = None,
    length: float | None = None,
    wrench: Sequence[float] | np.ndarray | None = None,
    direction: Sequence[float] | np.ndarray | None = None,
    joints: Sequence[str] | None = None,
    directions: Sequence[str] = ("x", "y", "z", "rx", "ry", "rz"),
    shown: str | None = None,
    good: Mapping[str, float] | None = None,
    least_points: int = 2,
) -> dict[str, Map]:
    """Maps of some quantities over the same grid of postures.

    Args:
        model: the machine.
        over: values of each coordinate that varies, rad or m, ascending; the grid holds all their combinations.
        quantities: of `QUANTITIES`.
        frame: where the quantities are taken.
        held: values of other coordinates, rad or m; the rest as in the reference posture.
        length: characteristic length of the dexterity, m; found by `characteristic_length` where not given.
        wrench: force [N] then moment [Nm] at the frame's origin, ground axes. Postures are those under the load.
        direction: where "stiffness" is asked for, in ground axes; its size does not count.
        joints: coordinates that count for the dexterity; all that move the frame where not given.
        directions: components of the twist that count for the dexterity.
        shown: frame whose place stands for a posture in the workspace; the same where not given.
        good: threshold by quantity; where not given the value that the best quarter of the postures reaches.
        least_points: zones of fewer grid points are left out.

    Returns:
        The map of each quantity.

    Raises:
        ValueError: a name is unknown, a grid is not ascending and finite, or what a quantity needs was not given.

    Source: Dumas et al. 2011, eq. 7-11, Fig. 2-3.
    """
    shown = frame if shown is None else shown
    frame_index(model, shown)
    grid = _checked_grid(model, over)
    held = dict(held or {})
    start = np.asarray(posture(model, held))
    for name in held:
        if name in over:
            raise ValueError(f"held: coordinate '{name}' is varied by the map too")
    load, along = _checked_loads(quantities, wrench, direction)
    for name in good or {}:
        if name not in quantities:
            raise ValueError(known_name("good: quantity", name, quantities))
    counted, directions = moving_joints(model, frame, joints), tuple(directions)
    shape = tuple(len(values) for values in grid)
    postures = np.tile(start, (math.prod(shape), 1))
    columns = [model.coordinates.index(name) for name in over]
    postures[:, columns] = np.stack(np.meshgrid(*grid, indexing="ij"), axis=-1).reshape(-1, len(grid))
    if length is not None and not (math.isfinite(length) and length > 0.0):
        raise ValueError(f"length: {length:g} m, expected more than 0")
    if length is None:
        needed = "dexterity" in quantities
        length = characteristic_length(model, jnp.asarray(postures), frame, counted, directions) if needed else 1.0

    settings = {"length_m": length, "joints": counted, "directions": directions}
    settings |= {} if wrench is None else {"wrench": tuple(load.tolist())}
    settings |= {} if direction is None else {"direction": tuple(along.tolist())}
    values = posture_quantities(
        model, postures, (*quantities, "position", "side"), frame, shown, length, load, along, counted, directions
    )
    side = values["side"].reshape(shape) if len(counted) == len(directions) else None
    free = {name: float(v) for name, v in zip(model.coordinates, start, strict=True) if name not in over}
    maps = {}
    for name in quantities:
        field = values[name].reshape(shape)
        sense = QUANTITIES[name].higher_is_better
        threshold = (good or {}).get(name)
        threshold = _best_share(field, sense) if threshold is None else float(threshold)
        maps[name] = Map(
            machine=model.name,
            quantity=name,
            values=field,
            over=tuple(over),
            grid=grid,
            revolute=tuple(model.revolute[column] for column in columns),
            held=free,
            frame=frame,
            shown=shown,
            position=values["position"].reshape(*shape, 3),
            side=side,
            threshold=threshold,
            zones=find_zones(field, grid, threshold, sense, least_points),
            settings=settings,
            angles=tuple(name for name, turns in zip(model.coordinates, model.revolute, strict=True) if turns),
        )
    return maps


def _best_share(values: np.ndarray, higher_is_better: bool) -> float:
    """The value that the best quarter reaches."""
    known = values[~np.isnan(values)]
    if not known.size:
        return math.nan
    return float(np.quantile(known, 1.0 - GOOD_SHARE if higher_is_better else GOOD_SHARE, method="nearest"))


def _checked_grid(model: Model, over: Mapping[str, Sequence[float] | np.ndarray]) -> tuple[np.ndarray, ...]:
    if not over:
        raise ValueError("over: found no coordinate, expected one or more")
    grid = []
    for name, values in over.items():
        if name not in model.coordinates:
            raise ValueError(known_name("over: coordinate", name, model.coordinates))
        axis = np.asarray(values, dtype=float)
        if axis.ndim != 1 or len(axis) < 2 or not np.all(np.isfinite(axis)) or not np.all(np.diff(axis) > 0.0):
            raise ValueError(f"over: {name} has values {axis}, expected two or more, ascending and finite")
        if model.revolute[model.coordinates.index(name)] and np.abs(axis).max() > math.tau:
            ends = f"{axis[0]:g} to {axis[-1]:g} rad"
            raise ValueError(f"over: {name} goes from {ends}, more than a turn; np.radians makes degrees to radians")
        grid.append(axis)
    return tuple(grid)


def _checked_loads(
    quantities: Sequence[str],
    wrench: Sequence[float] | np.ndarray | None,
    direction: Sequence[float] | np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    if not quantities:
        raise ValueError(f"quantities: found none, expected some of {', '.join(QUANTITIES)}")
    given = {"wrench": wrench, "direction": direction}
    for name in quantities:
        if name not in QUANTITIES:
            raise ValueError(known_name("quantity", name, QUANTITIES))
        for need in QUANTITIES[name].needs:
            if given[need] is None:
                raise ValueError(f"a map of '{name}' needs a {need}, found none")
    load = np.zeros(6) if wrench is None else np.asarray(wrench, dtype=float)
    check_wrench(jnp.asarray(load))
    along = np.array([0.0, 0.0, 1.0]) if direction is None else np.asarray(direction, dtype=float)
    if along.shape != (3,) or not np.all(np.isfinite(along)) or not np.any(along):
        raise ValueError(f"direction: {along}, expected three numbers, not all 0")
    if not np.all(np.isfinite(load)):
        raise ValueError(f"wrench: {load}, expected finite numbers")
    return load, along
