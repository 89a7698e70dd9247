"""Maps of natural frequencies, damping and compliance over postures, with their standard deviations."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.identify.assess.estimate import CovarianceWithErrors
from jaxmb.identify.assess.result import Result, scale_of_values
from jaxmb.identify.assess.saved import read_saved
from jaxmb.identify.experiments.machine_errors import MachineErrors, corrected_machine, machine_errors
from jaxmb.identify.parameters.free_parameters import Bound, FreeParameters, free_parameters, matching_any
from jaxmb.identify.parameters.model_parameters import parameters
from jaxmb.io.files import strict
from jaxmb.io.validation import InputError, Table, check_choice, check_known
from jaxmb.machine.build import Model
from jaxmb.machine.families import OF_CHANNELS
from jaxmb.machine.file import load_machine
from jaxmb.maps.modal_properties import BY_MODE, MODAL_QUANTITIES, ComplianceOptions, modal_quantities, number_of_modes
from jaxmb.maps.workspace_grid import SCHEMA, Axis, PostureOptions, Postures, postures_along, postures_over
from jaxmb.mechanics.kinematics import TOOL, frame_name
from jaxmb.mechanics.postures import build_model
from jaxmb.mechanics.tangent import LinearizeAt

NO_EFFECT = 1e-9
"""Relative change of a quantity per unit of an entry of u below which the entry has no effect; rounding is 1e-14."""
LARGE_STD = 1.0
"""Standard deviation of an entry of u, mostly a logarithm, above which first-order propagation is inaccurate."""


class FreeModel(eqx.Module):
    """A machine as a function of the entries u of its free parameters, followed by the sizes of errors, if any."""

    model: Model
    free: FreeParameters
    errors: MachineErrors | None = None
    """Directions of the errors, stacked [e, ...]."""

    def __call__(self, u: Float[Array, "k"]) -> Model:
        values = self.free.values(u[: self.free.size])
        model = self.free.apply(self.model, values)
        if self.errors is None:
            return model
        total = jax.tree.map(lambda part: jnp.tensordot(u[self.free.size :], part, 1), self.errors)
        return self.free.apply(corrected_machine(model, total), values)


def logarithmic(model: Model, patterns: Sequence[str]) -> FreeParameters:
    """Free parameters by names or patterns such as "stiffness.*", on a logarithmic scale about the model's values.

    Raises:
        ValueError: a name or pattern matches no parameter, or a value is not positive.
    """
    if isinstance(patterns, str):
        raise ValueError(f"free: found '{patterns}', expected a list of names or patterns")
    values = parameters(model)
    chosen = (matching_any(list(values), [pattern], "free parameter or pattern") for pattern in patterns)
    names = dict.fromkeys(name for some in chosen for name in some)
    for name in names:
        _check_positive(name, values[name])
    return free_parameters(model, [Bound((name,), 0.5 * values[name], 2.0 * values[name]) for name in names])


def free_values(model: Model, free: FreeParameters) -> np.ndarray:
    """Values of the free parameters in the model [d].

    Raises:
        ValueError: a value on a logarithmic scale is not positive.
    """
    values = parameters(model)
    for name, log in zip(free.names, free.logarithmic, strict=True):
        if log:
            _check_positive(name, values[name])
    return np.array([values[name] for name in free.names])


def _check_positive(name: str, value: float) -> None:
    if not value > 0.0:
        raise ValueError(f"free parameter '{name}' is {value:g}, expected a positive value on a logarithmic scale")


def checked_covariance(
    free: FreeParameters, covariance: Sequence[Sequence[float | None]] | np.ndarray
) -> Float[np.ndarray, "d d"]:
    """Covariance of the entries of u [d, d], with NaN in the rows and columns of entries without finite variance.

    Raises:
        ValueError: the size is wrong, or the finite part is not symmetric with non-negative variances.
    """
    matrix = np.array(covariance, dtype=float)
    if matrix.shape != (free.size, free.size):
        raise ValueError(
            f"covariance has shape {matrix.shape}, expected ({free.size}, {free.size}): {', '.join(free.names)}"
        )
    known = np.isfinite(np.diagonal(matrix))
    inner = matrix[np.ix_(known, known)]
    size = np.sqrt(np.abs(np.diagonal(inner)))
    if not np.all(np.isfinite(inner)) or np.any(np.diagonal(inner) < 0.0):
        raise ValueError("covariance: found infinite or undefined covariances, or negative variances")
    if np.any(np.abs(inner - inner.T) > 1e-6 * np.outer(size, size)):
        raise ValueError("covariance: not symmetric")
    matrix[~np.logical_and.outer(known, known)] = np.nan
    return matrix


def propagated(
    values: Float[np.ndarray, "*p"],
    gradients: Float[np.ndarray, "*p d"],
    covariance: Float[np.ndarray, "d d"],
    names: Sequence[str],
) -> tuple[Float[np.ndarray, "*p"], dict[str, float]]:
    """Standard deviations sqrt(g^T P g) of values, and the parameters of unknown variance that affect them.

    Args:
        values: of a quantity [*p]; NaN where undefined.
        gradients: g, of each value by the entries of u [*p, d].
        covariance: P [d, d], NaN in the rows and columns of unidentified entries.
        names: names of the entries of u.

    Returns:
        Standard deviations [*p], NaN where an entry of unknown variance has an effect; by the name of each such entry
        the share of the values that it affects.
    """
    known = np.isfinite(np.diagonal(covariance))
    inner = gradients[..., known]
    variance = np.einsum("...i,ij,...j->...", inner, covariance[np.ix_(known, known)], inner, optimize=True)
    effective = np.abs(gradients[..., ~known]) > NO_EFFECT * np.abs(values)[..., None]
    std = np.where(np.any(effective, axis=-1) | np.isnan(values), np.nan, np.sqrt(np.maximum(variance, 0.0)))
    count = max(int(np.sum(~np.isnan(values))), 1)
    shares = effective.sum(axis=tuple(range(effective.ndim - 1))) / count
    unknown = [name for name, is_known in zip(names, known, strict=True) if not is_known]
    return std, {name: float(share) for name, share in zip(unknown, shares, strict=True) if share > 0.0}


@dataclass(frozen=True)
class Identified:
    """An identified machine with the covariance of its free parameters."""

    model: Model
    free: FreeParameters
    covariance: Float[np.ndarray, "d d"]
    """Of the entries u of the free parameters; NaN in the rows and columns of unidentified ones."""
    linearize_at: LinearizeAt = "posture"
    """Linearization point of the tests."""
    errors: Mapping[str, MachineErrors] = field(default_factory=dict)
    """Errors of the machine within their tolerances by key, of their likely size."""
    covariance_with_errors: Float[np.ndarray, "k k"] | None = None
    """Of u and of `errors` given the data [d + e, d + e]; None without errors."""


def identified(result: Result) -> Identified:
    """The machine of a result with the covariance of its parameters.

    Raises:
        ValueError: the fit was not of the study's free parameters, as with a complete stiffness model.
    """
    if result.covariance is None:
        raise ValueError(f"study '{result.study.name}': the fit has no covariance of the study's free parameters")
    return _identified(result.model, result.as_json())


def load_identified(folder: str | os.PathLike[str]) -> Identified:
    """The machine in an output folder of `jaxmb identify`, with the covariance of its parameters.

    Args:
        folder: with machine.toml and result.json.

    Raises:
        InputError: a file is missing or is not one written by `jaxmb identify`.
    """
    path = Path(folder) / "result.json"
    model, data = build_model(load_machine(folder)), read_saved(path, others=True)
    if not isinstance(data, dict) or data.get("covariance") is None:
        raise InputError(f"{path}: found no covariance of the parameters, expected one written by jaxmb identify")
    try:
        return _identified(model, data)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise InputError(f"{path}: not a result of an identification: {error}") from None


def _identified(model: Model, data: Table) -> Identified:
    """The machine with the covariances in result.json, without parameters of test channels."""
    saved, bounds = data["covariance"], []
    if any(name.startswith("compliance.") for name in saved["names"]):
        raise ValueError("the fitted parameters are compliances of a stiffness model, not parameters of the machine")
    for tied, scale in zip(saved["tied"], saved["scale"], strict=True):
        check_choice(f"covariance: the scale of {tied[0]}", scale, ("log", "linear"))
        first = data["parameters"][tied[0]]
        bounds.append(Bound(tuple(tied), float(first["lower"]), float(first["upper"]), None, scale == "log"))
    of_tests = [name for tied in saved["tied"] if _is_of_channel(tied) for name in tied]
    every = free_parameters(model, bounds, of_tests)
    width = scale_of_values(every)
    covariance = checked_covariance(every, saved["matrix"]) / np.outer(width, width)  # null becomes NaN
    at = data.get("linearize_at", "posture")
    check_choice("linearize_at", at, ("posture", "equilibrium"))
    kept = [i for i, bound in enumerate(bounds) if not _is_of_channel(bound.names)]
    free = free_parameters(model, [bounds[i] for i in kept])
    found = Identified(model, free, covariance[np.ix_(kept, kept)], at)
    errors = CovarianceWithErrors.read(data.get("covariance_with_errors"), width)
    if errors is None:
        return found
    known = {error.key: at for error, at in machine_errors(model, free, dict.fromkeys(model.frames, True))}
    check_known("error of the machine", errors.errors, known)
    sizes = zip(errors.errors, errors.std, strict=True)
    sized = {key: jax.tree.map(lambda part, size=size: size * part, known[key]) for key, size in sizes}
    kept = [*kept, *range(len(bounds), len(bounds) + len(sized))]
    return replace(found, errors=sized, covariance_with_errors=errors.matrix[np.ix_(kept, kept)])


def _is_of_channel(names: Sequence[str]) -> bool:
    return names[0].partition(".")[0] in OF_CHANNELS


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


class ModalMapOptions(PostureOptions, ComplianceOptions, total=False):
    """Keyword arguments of `modal_maps` that it passes on."""

    report: Callable[[int, int], None] | None
    """Callback with the number of finished postures and their total number."""


def modal_maps(
    machine: Model | Identified,
    over: Mapping[str, Axis] | Postures | None = None,
    path: Mapping[str, Axis] | None = None,
    modes: int | None = None,
    quantities: Sequence[str] = ("frequency", "damping"),
    frame: str = TOOL,
    free: FreeParameters | Sequence[str] | None = None,
    covariance: Float[np.ndarray, "d d"] | None = None,
    linearize_at: LinearizeAt | None = None,
    **options: Unpack[ModalMapOptions],
) -> ModalMaps:
    """Frequencies, damping and tool compliance over postures, with their standard deviations.

    std^2 = g^T P g, with P the covariance of the parameters u and g the gradient of the quantity by u (delta method).
    An identified machine has also the errors of its description in u, so that an error that the parameters compensate
    at the postures of the tests has no effect there.
    This first-order propagation requires a quantity nearly linear over the standard deviations in u, or in the
    parameter values; for those in `hardly_known` only the latter is possible. Modes are numbered by ascending frequency
    at every posture: where two cross, the n-th changes its character, and the linear range near the crossing is small.

    Args:
        machine: at the parameter values of the covariance; one of `load_identified` has its own covariance.
        over: see `postures_over`; or postures.
        path: see `postures_along`; instead of `over`.
        modes: number of modes; default: four, or all of a machine with fewer.
        quantities: of `MODAL_QUANTITIES`, see `modal_quantities`.
        frame: the tool.
        free: the parameters of the covariance; names or patterns imply a logarithmic scale.
        covariance: of the entries of u [d, d], NaN or infinite in the rows and columns of unidentified ones. A quantity
            that depends on such a parameter has no standard deviation, and `unknown` names the parameter.
        linearize_at: "posture", or "equilibrium" under gravity with springs unloaded at the posture; default: as in
            the tests of an identified machine, else "posture".
        options: held, joints, orientation and limits as in `postures_over`; direction, band_hz and report as in
            `modal_quantities`.

    Raises:
        ValueError: a name, a size or a number is wrong, no position is reached, or a mass matrix is singular.
        NotImplementedError: the machine has virtual springs or fractional damping.
    """
    if (over is None) == (path is None):
        raise ValueError("expected either 'over' or 'path'")
    model, known = (machine.model, machine) if isinstance(machine, Identified) else (machine, None)
    if known is not None and free is not None:
        raise ValueError("found 'free' with an identified machine, expected it without, as it has its own")
    if (free is None) != (covariance is None):
        raise ValueError("found only one of 'free' and 'covariance', expected both or none")
    linearize_at = linearize_at or ("posture" if known is None else known.linearize_at)
    if unknown := options.keys() - ModalMapOptions.__optional_keys__:
        raise TypeError(f"modal_maps() got an unexpected keyword argument '{min(unknown)}'")
    frame, direction, band_hz = frame_name(model, frame), options.get("direction"), options.get("band_hz")
    where = options.get("held"), frame, options.get("joints"), options.get("orientation"), options.get("limits")
    if isinstance(over, Postures):
        postures = over
    else:
        postures = postures_along(model, path or {}, *where) if over is None else postures_over(model, over, *where)
    vary, u, free_names, uncertain = None, None, (), ()
    if free is not None and covariance is not None:
        free = logarithmic(model, free) if isinstance(free, Sequence) else free
        covariance = checked_covariance(free, covariance)
        known = Identified(model, free, covariance)
    if known is not None:
        variance, free_names = np.diagonal(known.covariance), (*known.free.names, *known.errors)
        uncertain = tuple(n for n, v in zip(known.free.names, variance, strict=True) if v >= LARGE_STD**2)
        vary, u, covariance = _uncertain(known)
    rows = postures.coordinates[postures.reached]
    found = modal_quantities(
        model, rows, quantities, modes, frame, vary, u, linearize_at, options.get("report"), direction=direction,
        band_hz=band_hz,
    )  # fmt: skip

    maps = {}
    for name in dict.fromkeys(quantities):
        std, unknown = None, {}
        if covariance is not None:
            deviations, unknown = propagated(found.values[name], found.gradients[name], covariance, free_names)
            std = postures.on_grid(deviations)
        maps[name] = ModalMap(name, MODAL_QUANTITIES[name], postures.on_grid(found.values[name]), std, unknown)
    along = None if direction is None else tuple(map(float, direction))
    settings = ModalMapSettings(number_of_modes(model, modes), along, band_hz, free_names, linearize_at)
    peak_hz = None if found.peak_hz is None else postures.on_grid(found.peak_hz)
    return ModalMaps(model.name, frame, postures, maps, peak_hz, uncertain, settings)


def _uncertain(known: Identified) -> tuple[FreeModel, Float[np.ndarray, "d"], Float[np.ndarray, "d d"]]:
    """The machine as a function of u and of its errors, their values, and the covariance of both."""
    model, free, covariance, of_errors = known.model, known.free, known.covariance, None
    if known.covariance_with_errors is not None:
        errors = known.errors.values()
        covariance, of_errors = known.covariance_with_errors, jax.tree.map(lambda *parts: np.stack(parts), *errors)
    u = np.append(free.encode(free_values(model, free)), np.zeros(len(known.errors)))
    return FreeModel(model, free, of_errors), u, covariance


def std_of_modes(
    known: Identified, q: Float[Array, "n"] | Float[np.ndarray, "n"], modes: int
) -> tuple[Float[np.ndarray, "m"], Float[np.ndarray, "m"]]:
    """Standard deviations of the frequencies, Hz, and damping ratios of the first modes of an identified machine at a
    posture, by its covariance; NaN where unknown. See `modal_maps`.

    Args:
        known: from `load_identified`.
        q: posture, rad or m.
        modes: number of modes.
    """
    vary, u, covariance = _uncertain(known)
    found = modal_quantities(
        known.model, np.asarray(q)[None], BY_MODE, modes, vary=vary, u=u, at=known.linearize_at
    )  # fmt: skip
    names = (*known.free.names, *known.errors)
    frequency, damping = (propagated(found.values[n], found.gradients[n], covariance, names)[0] for n in BY_MODE)
    return frequency[0], damping[0]


def modal_maps_json(found: ModalMaps) -> str:
    """Text of `map.json` for maps of frequencies, damping and compliance over a grid or along a path."""
    postures = found.postures
    grid = dict(zip(postures.over, postures.grid, strict=True))
    content = {
        "schema": SCHEMA,
        "machine": found.machine,
        "frame": found.frame,
        "shown": postures.frame,
        **({"path_m": grid["path"]} if postures.is_path else {"over": grid}),
        "held": dict(postures.held),
        "postures": {name: postures.coordinates[..., postures.names.index(name)] for name in postures.varied},
        "reached": postures.reached,
        "settings": found.settings,
        "hardly_known": found.hardly_known,
        "position_m": postures.position,
        "maps": {
            name: {
                "unit": one.unit,
                "by_mode": one.by_mode,
                "values": one.values,
                "std": one.std,
                "unknown": dict(one.unknown),
            }
            for name, one in found.maps.items()
        },
        **({} if found.peak_hz is None else {"peak_hz": found.peak_hz}),
    }
    return json.dumps(strict(content), allow_nan=False)
