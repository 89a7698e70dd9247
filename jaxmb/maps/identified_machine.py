"""Maps of frequencies, damping and compliance of an identified machine, with what is known of its parameters."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from jaxmb.identify.assess.result import Result
from jaxmb.identify.parameters.free_parameters import Bound, FreeParameters, free_parameters, matching
from jaxmb.identify.parameters.model_parameters import parameters
from jaxmb.io.validation import InputError, known_name
from jaxmb.machine.build import Model, build_model
from jaxmb.machine.file import load_machine
from jaxmb.maps.modal_maps import MODAL_QUANTITIES, modal_quantities
from jaxmb.maps.workspace_grid import Axis, Postures, postures_along, postures_over

NO_PART = 1e-9
"""Change of a quantity, relative, for a unit change of an entry of u, below which the entry has no part in it: of what
does not act rounding leaves 1e-14."""
HARDLY_KNOWN = 1.0
"""Standard deviation of an entry of u, of a logarithm above all, from which on first order is said to be rough."""
INTERVAL_95 = 1.96
"""Standard deviations either side of a value that hold 95 % of a normal distribution."""


@dataclass(frozen=True)
class Identified:
    """A machine with what is known of its parameters."""

    model: Model
    free: FreeParameters
    covariance: Float[np.ndarray, "d d"]
    """Of the entries of u; NaN beside what is not known."""


@dataclass(frozen=True)
class ModalMap:
    """One quantity over postures."""

    quantity: str
    unit: str
    values: np.ndarray
    """[*grid, modes] or [*grid]; NaN where the place is not reached, or where there is no such mode."""
    std: np.ndarray | None
    """Their standard deviations, NaN where unknown; None where no covariance was given."""
    unknown: Mapping[str, float]
    """Parameters of which nothing is known, and on which share of the values each acts: their std is unknown."""

    @property
    def by_mode(self) -> bool:
        """Whether the last axis counts modes."""
        return self.quantity in ("frequency", "damping")


@dataclass(frozen=True)
class ModalMaps:
    """Quantities of a machine over the same postures."""

    machine: str
    frame: str
    """Where the compliance is."""
    postures: Postures
    maps: Mapping[str, ModalMap]
    peak_hz: np.ndarray | None
    """Frequency of the dynamic compliance [*grid], Hz."""
    hardly_known: tuple[str, ...]
    """Parameters whose entry of u has a standard deviation of `HARDLY_KNOWN` or more."""
    settings: Mapping[str, object]


class _FreeModel(eqx.Module):
    """The model at u."""

    model: Model
    free: FreeParameters

    def __call__(self, u: Float[Array, "d"]) -> Model:
        return self.free.apply(self.model, self.free.values(u))


def modal_maps(
    model: Model,
    over: Mapping[str, Axis] | Postures | None = None,
    path: Mapping[str, Axis] | None = None,
    modes: int = 4,
    quantities: Sequence[str] = ("frequency", "damping"),
    frame: str = "tool",
    held: Mapping[str, float] | None = None,
    joints: Sequence[str] | None = None,
    orientation: bool | None = None,
    limits: Mapping[str, tuple[float, float]] | None = None,
    direction: Sequence[float] | np.ndarray | None = None,
    band_hz: tuple[float, float] | None = None,
    free: FreeParameters | Sequence[str] | None = None,
    covariance: Float[np.ndarray, "d d"] | None = None,
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
        modes: how many modes.
        quantities: of `MODAL_QUANTITIES`, see `modal_quantities`.
        frame: the tool.
        held: coordinates that do not vary, rad or m; the rest as in the reference posture.
        joints: see `postures_over`.
        orientation: see `postures_over`.
        limits: see `postures_over`.
        direction: of the compliance, ground axes; the worst one where not given.
        band_hz: frequencies of the dynamic compliance.
        free: the parameters of which the covariance is; names or patterns are taken on a logarithmic scale.
        covariance: of the entries of u [d, d], NaN or infinite beside what is not known. A quantity on which such a
            parameter acts has no standard deviation, and `unknown` names the parameter.

    Raises:
        ValueError: a name, a size or a number is wrong, or no place is reached.
        NotImplementedError: the machine has virtual springs.
    """
    if (over is None) == (path is None):
        raise ValueError("expected either 'over' or 'path'")
    if (free is None) != (covariance is None):
        raise ValueError("free parameters and their covariance go together, found one of them")
    where = {"held": held, "frame": frame, "joints": joints, "orientation": orientation, "limits": limits}
    if isinstance(over, Postures):
        postures = over
    elif over is not None:
        postures = postures_over(model, over, **where)
    else:
        postures = postures_along(model, path or {}, **where)
    reached = postures.reached
    vary, u = None, None
    if free is not None:
        free = free if not isinstance(free, Sequence) else logarithmic(model, free)
        vary, u = _FreeModel(model, free), free.encode(_values(model, free))
        covariance = _checked(free, covariance)
    rows = postures.coordinates[reached]
    found = modal_quantities(model, rows, quantities, modes, frame, direction, band_hz, vary, u)

    def placed(values: np.ndarray) -> np.ndarray:
        whole = np.full((*reached.shape, *values.shape[1:]), math.nan)
        whole[reached] = values
        return whole

    maps = {}
    for name in dict.fromkeys(quantities):
        std, unknown = None, {}
        if free is not None and covariance is not None:
            spread, unknown = propagated(found.values[name], found.gradients[name], covariance, free.names)
            std = placed(spread)
        maps[name] = ModalMap(name, MODAL_QUANTITIES[name], placed(found.values[name]), std, unknown)
    settings = {"modes": modes, "direction": None if direction is None else tuple(map(float, direction))}
    settings |= {"band_hz": band_hz, "free": () if free is None else free.names}
    peak_hz = None if found.peak_hz is None else placed(found.peak_hz)
    rough: tuple[str, ...] = ()
    if free is not None and covariance is not None:
        variance = np.diagonal(covariance)
        rough = tuple(n for n, v in zip(free.names, variance, strict=True) if v >= HARDLY_KNOWN**2)
    return ModalMaps(model.name, frame, postures, maps, peak_hz, rough, settings)


def propagated(
    values: Float[np.ndarray, "*p"],
    gradients: Float[np.ndarray, "*p d"],
    covariance: Float[np.ndarray, "d d"],
    names: Sequence[str],
) -> tuple[Float[np.ndarray, "*p"], dict[str, float]]:
    """Standard deviations sqrt(g^T P g), and the parameters of which nothing is known that act on the values.

    Args:
        values: of a quantity; NaN where it has none.
        gradients: of each by the entries of u.
        covariance: P, NaN beside what is not known.
        names: of the entries.

    Returns:
        Standard deviations, NaN where an unknown entry acts; the share of the values on which each such entry acts.
    """
    known = np.isfinite(np.diagonal(covariance))
    inner = gradients[..., known]
    variance = np.einsum("...i,ij,...j->...", inner, covariance[np.ix_(known, known)], inner, optimize=True)
    acts = np.abs(gradients[..., ~known]) > NO_PART * np.abs(values)[..., None]
    std = np.where(np.any(acts, axis=-1) | np.isnan(values), math.nan, np.sqrt(np.maximum(variance, 0.0)))
    count = max(int(np.sum(~np.isnan(values))), 1)
    shares = acts.sum(axis=tuple(range(acts.ndim - 1))) / count
    lost = [name for name, is_known in zip(names, known, strict=True) if not is_known]
    return std, {name: float(share) for name, share in zip(lost, shares, strict=True) if share > 0.0}


def logarithmic(model: Model, patterns: Sequence[str]) -> FreeParameters:
    """Parameters by names or patterns such as "stiffness.*", on a logarithmic scale about the model's values.

    Raises:
        ValueError: nothing has such a name, or a value is not above 0.
    """
    if isinstance(patterns, str):
        raise ValueError(f"free: found '{patterns}', expected a list of names or patterns")
    values = parameters(model)
    names: dict[str, None] = {}
    for pattern in patterns:
        found = matching(list(values), pattern)
        if not found:
            raise ValueError(known_name("free parameter or pattern", pattern, values))
        names |= dict.fromkeys(found)
    for name in names:
        if not values[name] > 0.0:
            raise ValueError(f"free parameter '{name}' is {values[name]:g}, expected above 0 on a logarithmic scale")
    return free_parameters(model, [Bound((name,), 0.5 * values[name], 2.0 * values[name]) for name in names])


def identified(result: Result) -> Identified:
    """The machine that an identification found, with the covariance of its parameters.

    Raises:
        ValueError: what was fitted are not the study's free parameters, as in a complete stiffness model.
        NotImplementedError: the tests were linearized at the equilibrium under gravity.
    """
    _check_linearized(result.linearize_at, f"study '{result.study.name}'")
    covariance = result.covariance
    if covariance is None:
        raise ValueError(f"study '{result.study.name}': the fit has no covariance of the study's free parameters")
    return Identified(result.model, result.study.free, covariance)


def load_identified(folder: str | os.PathLike[str]) -> Identified:
    """The machine that `jaxmb identify` wrote in a folder, with the covariance of its parameters.

    Args:
        folder: with machine.toml and result.json.

    Raises:
        InputError: a file is missing or cannot be what `jaxmb identify` writes.
        NotImplementedError: the tests were linearized at the equilibrium under gravity.
    """
    path = Path(folder) / "result.json"
    model = build_model(load_machine(Path(folder) / "machine.toml"))
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise InputError(f"{path}: not a result of an identification: {error}") from None
    _check_linearized(data.get("linearize_at") if isinstance(data, dict) else None, str(path))
    told = data.get("covariance") if isinstance(data, dict) else None
    if told is None:
        raise InputError(f"{path}: found no covariance of the parameters, expected one as jaxmb identify writes it")
    try:
        bounds = [
            _bound(data["parameters"][tied[0]], tied, scale)
            for tied, scale in zip(told["tied"], told["scale"], strict=True)
        ]
        free = free_parameters(model, bounds)
        width = np.where(free.logarithmic, 1.0, free.width)
        covariance = _checked(free, told["matrix"]) / np.outer(width, width)  # null becomes NaN
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise InputError(f"{path}: not a result of an identification: {error}") from None
    return Identified(model, free, covariance)


def _check_linearized(at: str | None, source: str) -> None:
    """Raise where maps, which linearize at the postures themselves, would contradict what was identified."""
    if at == "equilibrium":
        raise NotImplementedError(
            f"{source}: the machine was identified at its equilibrium under gravity, and maps are at the posture itself"
        )


def _bound(told: Mapping[str, Any], tied: Sequence[str], scale: str) -> Bound:
    if scale not in ("log", "linear"):
        raise ValueError(f"covariance: the scale of {tied[0]} is '{scale}', expected 'log' or 'linear'")
    return Bound(tuple(tied), float(told["lower"]), float(told["upper"]), None, scale == "log")


def _values(model: Model, free: FreeParameters) -> np.ndarray:
    """Values of the free parameters in the model [d]."""
    values = parameters(model)
    for name, log in zip(free.names, free.logarithmic, strict=True):
        if log and not values[name] > 0.0:
            raise ValueError(f"free parameter '{name}' is {values[name]:g}, expected above 0 on a logarithmic scale")
    return np.array([values[name] for name in free.names])


def _checked(free: FreeParameters, covariance: Any) -> np.ndarray:
    """The covariance with NaN beside whatever has no finite variance."""
    matrix = np.array(covariance, dtype=float)
    if matrix.shape != (free.size, free.size):
        raise ValueError(
            f"covariance has shape {matrix.shape}, expected ({free.size}, {free.size}): {', '.join(free.names)}"
        )
    known = np.isfinite(np.diagonal(matrix))
    inner = matrix[np.ix_(known, known)]
    size = np.sqrt(np.abs(np.diagonal(inner)))
    if not np.all(np.isfinite(inner)) or np.any(np.diagonal(inner) < 0.0):
        raise ValueError("covariance: found numbers that are not finite, or variances below 0, beside known parameters")
    if np.any(np.abs(inner - inner.T) > 1e-6 * np.outer(size, size)):
        raise ValueError("covariance: not symmetric")
    matrix[~known] = math.nan
    matrix[:, ~known] = math.nan
    return matrix
