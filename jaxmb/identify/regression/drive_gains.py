"""Drive gains from motor currents along motions with and without a known payload."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxmb.identify.estimation.identifiability import RANK_TOLERANCE, scaled_svd
from jaxmb.identify.parameters.free_parameters import matching
from jaxmb.identify.parameters.model_parameters import parameters
from jaxmb.identify.regression.torque_regressor import payload_columns, regressor_names, stacked_torque_regressor
from jaxmb.io.validation import check_known, known_name
from jaxmb.machine.build import Model
from jaxmb.mechanics.loops import independent_coordinates

UNKNOWN = (
    "mass.*", "first_moment.*", "inertia.*", "density.*", "rotor_inertia.*", "damping.*", "friction.*", "offset.*",
)  # fmt: skip
IDENTIFIABLE = 1e-6
"""Share of the payload's torque that is independent of the unknown parameters, above which the gain is identifiable."""


class CurrentRun(NamedTuple):
    """A motion with the motor currents: k samples, m independent coordinates."""

    q: Float[np.ndarray, "k n"]
    """All coordinates, loops closed, rad or m."""
    qd: Float[np.ndarray, "k m"]
    qdd: Float[np.ndarray, "k m"]
    signal: Float[np.ndarray, "k m"]
    """Current at each independent coordinate or, with `ratio`, of each drive, in any unit; a column of NaN if not
    measured."""
    without: tuple[str, ...] = ()
    """Payloads of the machine that were absent."""


class DriveGain(NamedTuple):
    """Torque or force at a coordinate, or torque of a motor, per unit of the signal, with its standard deviation."""

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
    theta_j and 1 / g_j, with the known payload's torque as a column and all noise on the left-hand side, so that least
    squares is unbiased. For motors coupled to several joints tau = N^T (g i) with their ratios N, and rows of N^-T Y
    replace those of Y. Each joint or motor is solved separately. Errors of successive samples are assumed independent.

    Args:
        model: the machine with its payload, whose ten parameters are known; the values of its other parameters have no
            effect. It must not have springs.
        runs: at least one with the payload and one without, both moving every joint that carries it.
        payload: its name.
        unknown: names or patterns of the unknown parameters of the machine; those of the payload are always known.
        ratio: motor turns per unit of each coordinate, by name, as in the description of a recording, for as many
            motors as independent coordinates. Default: signals are those at the coordinates.

    Returns:
        Gain and standard deviation by coordinate, or by motor, for those whose signal was measured in all runs.

    Raises:
        ValueError: the machine has no such payload, sizes of arrays differ, or a gain is not identifiable: the payload
            does not load the joint, or only as the unknown parameters do.

    Source: Gautier and Briot 2014, "Global identification of joint drive gains and dynamic parameters of robots".
    """
    names, values = regressor_names(model), parameters(model)
    of_load = payload_columns(model, [payload], model.masses)
    known = np.array([values[name] if i in of_load else 0.0 for i, name in enumerate(names)])
    if not runs:
        raise ValueError("runs is empty, expected at least one with the payload and one without it")
    chosen = set[str]()
    for pattern in unknown:
        found = matching(names, pattern)
        if not found and pattern not in UNKNOWN:
            raise ValueError(known_name("unknown parameter", pattern, names))
        chosen.update(found)
    free = [i for i, name in enumerate(names) if name in chosen and i not in of_load]
    coordinates = independent_coordinates(model)
    drives, to_drives = _drives(coordinates, ratio)
    rows, loads, signals = [], [], []
    for number, run in enumerate(runs, 1):
        signal = np.asarray(run.signal, dtype=float)
        if signal.shape != (len(run.q), len(coordinates)):
            expected = (len(run.q), len(coordinates))
            raise ValueError(f"signal of run {number} has shape {signal.shape}, expected {expected}")
        absent = payload_columns(model, run.without, model.masses, f"payload that run {number} is without")
        for name, column in zip(drives, signal.T, strict=True):
            if np.isnan(column).any() and not np.isnan(column).all():
                sample = int(np.argmax(np.isnan(column)))
                raise ValueError(f"signal of run {number}: '{name}' is NaN at sample {sample}, expected all or none")
        Y = stacked_torque_regressor(model, run.q, run.qd, run.qdd)
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
    """Names of the drives, and the matrix from torques at the coordinates to torques of the motors."""
    if ratio is None:
        return tuple(coordinates), np.eye(len(coordinates))
    for drive, turns in ratio.items():
        check_known(f"ratio of '{drive}': coordinate", turns, coordinates)
    matrix = np.array([[turns.get(name, 0.0) for name in coordinates] for turns in ratio.values()])
    if len(matrix) != len(coordinates) or np.linalg.matrix_rank(matrix) < len(coordinates):
        raise ValueError(
            f"ratio: {len(matrix)} drives do not determine {', '.join(coordinates)}, expected as many independent ones"
        )
    return tuple(ratio), np.linalg.inv(matrix.T)


def _gain(name: str, payload: str, Y: np.ndarray, load: np.ndarray, signal: np.ndarray) -> DriveGain:
    """Gain of one drive, by regression of the signal on the payload's torque, both orthogonal to the columns Y."""
    svd = scaled_svd(Y, RANK_TOLERANCE)
    basis = svd.range(len(Y))
    own, rest = (part - basis @ (basis.T @ part) for part in (load, signal))
    if not np.linalg.norm(own) > IDENTIFIABLE * np.linalg.norm(load):
        raise ValueError(
            f"the gain of '{name}' is not identifiable: the torque of payload '{payload}' depends linearly on those of"
            " unknown parameters, expected a run with and a run without it that move it"
        )
    slope = float(own @ rest / (own @ own))
    variance = float(np.sum((rest - slope * own) ** 2)) / max(len(signal) - svd.rank - 1, 1)
    return DriveGain(1.0 / slope, float(np.sqrt(variance / (own @ own))) / slope**2)
