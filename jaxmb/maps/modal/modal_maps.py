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
    HARDLY_KNOWN,
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
"""Standard deviations on either side of a value that hold 95 % of a normal distribution."""


@dataclass(frozen=True)
class ModalMap:
    """One quantity over postures."""

    quantity: str
    unit: str
    values: np.ndarray
    """[*grid, modes] or [*grid]; NaN where the posture is not reached, or where there is no such mode."""
    std: np.ndarray | None
    """Standard deviations of the values, NaN where unknown; None where no covariance was given."""
    unknown: Mapping[str, float]
    """Parameters of unknown variance, and the share of the values on which each acts: their std is unknown."""

    @property
    def by_mode(self) -> bool:
        """Whether the last axis counts modes."""
        return self.quantity in BY_MODE


@dataclass(frozen=True)
class ModalMapSettings:
    """How modal maps were asked for."""

    modes: int
    direction: tuple[float, ...] | None
    """Of the compliance, ground axes; None for the softest one."""
    band_hz: tuple[float, float] | None
    """Frequencies of the dynamic compliance; None for all."""
    free: tuple[str, ...]
    """Names of the entries of the covariance; empty where none was given."""
    linearize_at: LinearizeAt = "posture"
    """Where the machine is linearized: at each posture, or at the equilibrium under gravity behind it."""


@dataclass(frozen=True)
class ModalMaps:
    """Quantities of a machine over the same postures."""

    machine: str
    frame: str
    """The frame whose compliance is mapped."""
    postures: Postures
    maps: Mapping[str, ModalMap]
    peak_hz: np.ndarray | None
    """Frequency at which the dynamic compliance is reached [*grid], Hz."""
    hardly_known: tuple[str, ...]
    """Parameters whose entry of u has a standard deviation of `HARDLY_KNOWN` or more."""
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
    That is first order: it holds where the quantity is nearly linear in u, or in the values themselves, over their
    standard deviations; `hardly_known` names those for which only the latter can be. Modes are counted by ascending
    frequency at every posture: where two cross, the n-th changes its character, and near the crossing the first order
    does not reach far.

    Args:
        model: the machine, at the values about which the covariance is.
        over: see `postures_over`; or postures.
        path: see `postures_along`; instead of `over`.
        modes: how many modes; four, or all where the machine has fewer coordinates, where not given.
        quantities: of `MODAL_QUANTITIES`, see `modal_quantities`.
        frame: the tool.
        held: coordinates that do not vary, rad or m; the rest as in the reference posture.
        joints: see `postures_over`.
        orientation: see `postures_over`.
        limits: see `postures_over`.
        direction: of the compliance, ground axes; the softest one where not given.
        band_hz: frequencies of the dynamic compliance.
        free: the parameters of which the covariance is; names or patterns are taken on a logarithmic scale.
        covariance: of the entries of u [d, d], NaN or infinite in the rows and columns of what is not known. A quantity
            on which such a parameter acts has no standard deviation, and `unknown` names the parameter.
        linearize_at: at the postures, or at the "equilibrium" under gravity behind each, springs unloaded at the
            posture, as the tests of an identification were.
        report: called now and then with the number of postures that are done, and of all.

    Raises:
        ValueError: a name, a size or a number is wrong, no place is reached, or a mass matrix is singular.
        NotImplementedError: the machine has virtual springs or fractional damping.
    """
    if (over is None) == (path is None):
        raise ValueError("expected either 'over' or 'path'")
    if (free is None) != (covariance is None):
        raise ValueError("free parameters and their covariance go together, found one of them")
    frame = frame_name(model, frame)
    if isinstance(over, Postures):
        postures = over
    elif over is not None:
        postures = postures_over(model, over, held, frame, joints, orientation, limits)
    else:
        postures = postures_along(model, path or {}, held, frame, joints, orientation, limits)
    reached = postures.reached
    vary, u, free_names, rough = None, None, (), ()
    if free is not None and covariance is not None:
        free = logarithmic(model, free) if isinstance(free, Sequence) else free
        covariance = checked_covariance(free, covariance)
        vary, u, free_names = FreeModel(model, free), free.encode(free_values(model, free)), free.names
        variance = np.diagonal(covariance)
        rough = tuple(n for n, v in zip(free_names, variance, strict=True) if v >= HARDLY_KNOWN**2)
    rows = postures.coordinates[reached]
    found = modal_quantities(model, rows, quantities, modes, frame, direction, band_hz, vary, u, linearize_at, report)

    def placed(values: np.ndarray) -> np.ndarray:
        whole = np.full((*reached.shape, *values.shape[1:]), math.nan)
        whole[reached] = values
        return whole

    maps = {}
    for name in dict.fromkeys(quantities):
        std, unknown = None, {}
        if covariance is not None:
            spread, unknown = propagated(found.values[name], found.gradients[name], covariance, free_names)
            std = placed(spread)
        maps[name] = ModalMap(name, MODAL_QUANTITIES[name], placed(found.values[name]), std, unknown)
    along = None if direction is None else tuple(map(float, direction))
    settings = ModalMapSettings(number_of_modes(model, modes), along, band_hz, free_names, linearize_at)
    peak_hz = None if found.peak_hz is None else placed(found.peak_hz)
    return ModalMaps(model.name, frame, postures, maps, peak_hz, rough, settings)
