"""Gains of drives from motor currents along motions with and without a known payload."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxmb.identify.estimation.identifiability import RANK_TOLERANCE, scaled_svd
from jaxmb.identify.parameters.free_parameters import matching
from jaxmb.identify.parameters.model_parameters import parameters
from jaxmb.identify.regression.torque_regressor import regressor_names, stacked_torque_regressor
from jaxmb.io.validation import known_name
from jaxmb.machine.build import Model
from jaxmb.mechanics.loops import independent_coordinates

UNKNOWN = (
    "mass.*", "first_moment.*", "inertia.*", "density.*", "rotor_inertia.*", "damping.*", "friction.*", "offset.*",
)  # fmt: skip
TOLD = 1e-6
"""Part of the payload's effort that the unknown parameters leave, below which nothing tells the gain."""


class CurrentRun(NamedTuple):
    """A motion with what its drives drew: k samples, m independent coordinates."""

    q: Float[np.ndarray, "k n"]
    """All coordinates, loops closed, rad or m."""
    qd: Float[np.ndarray, "k m"]
    qdd: Float[np.ndarray, "k m"]
    signal: Float[np.ndarray, "k m"]
    """Current at each independent coordinate, or of each drive where these are given, in any unit; NaN throughout where
    it was not measured."""
    without: tuple[str, ...] = ()
    """Payloads of the machine that it did not carry."""


class DriveGain(NamedTuple):
    """Effort at a coordinate, Nm or N, or torque of a motor, for one unit of the signal."""

    gain: float
    std: float


def drive_gains(
    model: Model,
    runs: Sequence[CurrentRun],
    payload: str,
    *,
    unknown: Sequence[str] = UNKNOWN,
    ratio: Mapping[str, Mapping[str, float]] | None = None,
) -> dict[str, DriveGain]:
    """Absolute gains of the drives from runs with and without a known payload.

    tau_j = g_j i_j at each joint j, so i_j = Y_j theta_j + (1 / g_j) Y_load,j p_load with theta_j = p / g_j: linear in
    theta_j and 1 / g_j, the known payload's effort among the columns and all noise on the left, so that least squares
    has no bias. Motors that turn several joints have tau = N^T (g i) with their ratios N, so that rows of N^-T Y stand
    for those of Y. Each joint or motor is solved by itself. Of neighbouring samples the errors are taken as
    independent.

    Args:
        model: the machine with its payload, whose ten parameters are known; its other numbers do not matter, but those
            of springs, which it must not have.
        runs: at least one with the payload and one without, both moving every joint that carries it.
        payload: its name.
        unknown: names or patterns of what is not known of the machine; numbers of the payload are always known.

        ratio: turns of each motor for one of each coordinate, by name, as in the description of a recording: as many
            motors as independent coordinates. Signals are those at the coordinates where not given.

    Returns:
        Gain and standard deviation by coordinate, or by motor, of those whose signal was measured in all runs.

    Raises:
        ValueError: the payload is none of the machine's, arrays do not fit, or a gain is not told: the payload does not
            load the joint, or only as unknown parameters do.

    Source: Gautier and Briot 2014, "Global identification of joint drive gains and dynamic parameters of robots".
    """
    names, values = regressor_names(model), parameters(model)
    if payload not in model.masses or f"mass.{payload}" not in names:
        raise ValueError(known_name("payload", payload, model.masses))
    of_load = [name.split(".")[0] in ("mass", "first_moment", "inertia") and name.split(".")[1] == payload
               for name in names]  # fmt: skip
    known = np.array([values[name] if own else 0.0 for name, own in zip(names, of_load, strict=True)])
    if not runs:
        raise ValueError("runs is empty, expected at least one with the payload and one without it")
    chosen = set[str]()
    for pattern in unknown:
        found = matching(names, pattern)
        if not found and pattern not in UNKNOWN:
            raise ValueError(known_name("unknown parameter", pattern, names))
        chosen.update(found)
    free = [i for i, name in enumerate(names) if name in chosen and not of_load[i]]
    coordinates = independent_coordinates(model)
    drives, to_drives = _drives(coordinates, ratio)
    rows, loads, signals = [], [], []
    for number, run in enumerate(runs, 1):
        signal = np.asarray(run.signal, dtype=float)
        if signal.shape != (len(run.q), len(coordinates)):
            expected = (len(run.q), len(coordinates))
            raise ValueError(f"signal of run {number} has shape {signal.shape}, expected {expected}")
        for name in run.without:
            if name not in model.masses:
                raise ValueError(known_name(f"payload that run {number} is without", name, model.masses))
        for name, column in zip(drives, signal.T, strict=True):
            if np.isnan(column).any() and not np.isnan(column).all():
                sample = int(np.argmax(np.isnan(column)))
                raise ValueError(f"signal of run {number}: '{name}' is NaN at sample {sample}, expected all or none")
        Y = stacked_torque_regressor(model, run.q, run.qd, run.qdd)
        absent = [name.split(".")[1] in run.without and name.split(".")[0] in ("mass", "first_moment", "inertia")
                  for name in names]  # fmt: skip
        Y[..., absent] = 0.0
        Y = Y if ratio is None else np.einsum("dm,kmp->kdp", to_drives, Y)
        rows.append(Y[..., free])
        loads.append(Y @ known)
        signals.append(signal)
    Y, load, signal = (np.concatenate(parts) for parts in (rows, loads, signals))
    return {
        name: _gain(name, payload, Y[:, j], load[:, j], signal[:, j])
        for j, name in enumerate(drives)
        if not np.isnan(signal[:, j]).any()
    }


def _drives(
    coordinates: Sequence[str], ratio: Mapping[str, Mapping[str, float]] | None
) -> tuple[tuple[str, ...], Float[np.ndarray, "m m"]]:
    """Names of the drives, and the matrix that takes efforts at the coordinates to torques of the motors."""
    if ratio is None:
        return tuple(coordinates), np.eye(len(coordinates))
    for drive, turns in ratio.items():
        for name in turns:
            if name not in coordinates:
                raise ValueError(known_name(f"ratio of '{drive}': coordinate", name, coordinates))
    matrix = np.array([[turns.get(name, 0.0) for name in coordinates] for turns in ratio.values()])
    if len(matrix) != len(coordinates) or np.linalg.matrix_rank(matrix) < len(coordinates):
        raise ValueError(
            f"ratio: {len(matrix)} drives do not decide where {', '.join(coordinates)} are, expected one for each"
        )
    return tuple(ratio), np.linalg.inv(matrix.T)


def _gain(name: str, payload: str, Y: np.ndarray, load: np.ndarray, signal: np.ndarray) -> DriveGain:
    """Of one joint: what of the payload's effort and of the signal the unknown parameters cannot give decides."""
    svd = scaled_svd(Y, RANK_TOLERANCE)
    basis = svd.left[: len(Y), : svd.rank]
    own, left = (part - basis @ (basis.T @ part) for part in (load, signal))
    if not np.linalg.norm(own) > TOLD * np.linalg.norm(load):
        raise ValueError(
            f"the gain of '{name}' is not told: payload '{payload}' loads it in no other way than unknown parameters,"
            " expected a run with and a run without it that move it"
        )
    slope = float(own @ left / (own @ own))
    variance = float(np.sum((left - slope * own) ** 2)) / max(len(signal) - svd.rank - 1, 1)
    return DriveGain(1.0 / slope, float(np.sqrt(variance / (own @ own))) / slope**2)
