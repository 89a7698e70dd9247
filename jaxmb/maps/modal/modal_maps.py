"""Maps of natural frequencies, damping and compliance over postures, with their standard deviations."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.machine.build import Model
from jaxmb.maps.modal.modal_quantities import BY_MODE, MODAL_QUANTITIES, modal_quantities, number_of_modes
from jaxmb.maps.modal.uncertainty import (
    LARGE_STD,
    FreeModel,
    checked_covariance,
    free_values,
    logarithmic,
    propagated,
)
from jaxmb.maps.postures.workspace_grid import Axis, Postures, postures_along, postures_over
from jaxmb.mechanics.kinematics import TOOL, frame_name
from jaxmb.mechanics.tangent import LinearizeAt

INTERVAL_95 = 1.96
"""Half width of the 95 % interval of a normal distribution, standard deviations."""


@dataclass(frozen=True)
class ModalMap:
    """One quantity over postures."""

    quantity: str
    unit: str
    values: np.ndarray
    """[*grid, modes] or [*grid]; NaN where the posture is not reached or the mode does not exist."""
    std: np.ndarray | None
    """Standard deviations of the values, NaN where unknown; None without a covariance."""
    unknown: Mapping[str, float]
    """Parameters of unknown variance with the share of the values that depend on them and have unknown std."""

    @property
    def by_mode(self) -> bool:
        """Whether the last axis is the mode number."""
        return self.quantity in BY_MODE


@dataclass(frozen=True)
class ModalMapSettings:
    """Settings of modal maps."""

    modes: int
    direction: tuple[float, ...] | None
    """Direction of the compliance, ground axes; None for the softest one."""
    band_hz: tuple[float, float] | None
    """Band of the dynamic compliance; None for all frequencies."""
    free: tuple[str, ...]
    """Names of the entries of the covariance; empty without one."""
    linearize_at: LinearizeAt = "posture"
    """Linearization point: each posture, or its equilibrium under gravity."""


@dataclass(frozen=True)
class ModalMaps:
    """Quantities of a machine over the same postures."""

    machine: str
    frame: str
    """Frame of the compliance."""
    postures: Postures
    maps: Mapping[str, ModalMap]
    peak_hz: np.ndarray | None
    """Frequency of the dynamic compliance [*grid], Hz."""
    hardly_known: tuple[str, ...]
    """Parameters whose entry of u has a standard deviation of `LARGE_STD` or more."""
    settings: ModalMapSettings


def modal_maps(
    model: Model,
    over: Mapping[str, Axis] | Postures | None = None,
    path: Mapping[str, Axis] | None = None,
    modes: int | None = None,
    quantities: Sequence[str] = ("frequency", "damping"),
    frame: str = TOOL,
    held: Mapping[str, float] | None = None,
    joints: Sequence[str] | None = None,
    orientation: bool | None = None,
    limits: Mapping[str, tuple[float, float]] | None = None,
    direction: Sequence[float] | np.ndarray | None = None,
    band_hz: tuple[float, float] | None = None,
    free: FreeParameters | Sequence[str] | None = None,
    covariance: Float[np.ndarray, "d d"] | None = None,
    linearize_at: LinearizeAt = "posture",
    report: Callable[[int, int], None] | None = None,
) -> ModalMaps:
    """Frequencies, damping and tool compliance over postures, with their standard deviations.

    std^2 = g^T P g, with P the covariance of the parameters u and g the gradient of the quantity by u (delta method).
    This first-order propagation requires a quantity nearly linear over the standard deviations in u, or in the
    parameter values; for those in `hardly_known` only the latter is possible. Modes are numbered by ascending frequency
    at every posture: where two cross, the n-th changes its character, and the linear range near the crossing is small.

    Args:
        model: the machine, at the parameter values of the covariance.
        over: see `postures_over`; or postures.
        path: see `postures_along`; instead of `over`.
        modes: number of modes; default: four, or all of a machine with fewer.
        quantities: of `MODAL_QUANTITIES`, see `modal_quantities`.
        frame: the tool.
        held: fixed coordinates, rad or m; default: the reference posture.
        joints: see `postures_over`.
        orientation: see `postures_over`.
        limits: see `postures_over`.
        direction: of the compliance, ground axes; default: the softest one.
        band_hz: band of the dynamic compliance.
        free: the parameters of the covariance; names or patterns imply a logarithmic scale.
        covariance: of the entries of u [d, d], NaN or infinite in the rows and columns of unidentified ones. A quantity
            that depends on such a parameter has no standard deviation, and `unknown` names the parameter.
        linearize_at: "posture", or "equilibrium" under gravity with springs unloaded at the posture, as in the tests.
        report: callback with the number of finished postures and their total number.

    Raises:
        ValueError: a name, a size or a number is wrong, no position is reached, or a mass matrix is singular.
        NotImplementedError: the machine has virtual springs or fractional damping.
    """
    if (over is None) == (path is None):
        raise ValueError("expected either 'over' or 'path'")
    if (free is None) != (covariance is None):
        raise ValueError("found only one of 'free' and 'covariance', expected both or none")
    frame = frame_name(model, frame)
    if isinstance(over, Postures):
        postures = over
    elif over is not None:
        postures = postures_over(model, over, held, frame, joints, orientation, limits)
    else:
        postures = postures_along(model, path or {}, held, frame, joints, orientation, limits)
    reached = postures.reached
    vary, u, free_names, uncertain = None, None, (), ()
    if free is not None and covariance is not None:
        free = logarithmic(model, free) if isinstance(free, Sequence) else free
        covariance = checked_covariance(free, covariance)
        vary, u, free_names = FreeModel(model, free), free.encode(free_values(model, free)), free.names
        variance = np.diagonal(covariance)
        uncertain = tuple(n for n, v in zip(free_names, variance, strict=True) if v >= LARGE_STD**2)
    rows = postures.coordinates[reached]
    found = modal_quantities(model, rows, quantities, modes, frame, direction, band_hz, vary, u, linearize_at, report)

    def on_grid(values: np.ndarray) -> np.ndarray:
        grid = np.full((*reached.shape, *values.shape[1:]), math.nan)
        grid[reached] = values
        return grid

    maps = {}
    for name in dict.fromkeys(quantities):
        std, unknown = None, {}
        if covariance is not None:
            deviations, unknown = propagated(found.values[name], found.gradients[name], covariance, free_names)
            std = on_grid(deviations)
        maps[name] = ModalMap(name, MODAL_QUANTITIES[name], on_grid(found.values[name]), std, unknown)
    along = None if direction is None else tuple(map(float, direction))
    settings = ModalMapSettings(number_of_modes(model, modes), along, band_hz, free_names, linearize_at)
    peak_hz = None if found.peak_hz is None else on_grid(found.peak_hz)
    return ModalMaps(model.name, frame, postures, maps, peak_hz, uncertain, settings)
