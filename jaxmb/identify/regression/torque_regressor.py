"""Torque regressor: joint torques as a linear function of a machine's parameters; drive gains from motor currents along
motions with and without a known payload."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmb.compiled import compiled, in_batches, numeric_arguments
from jaxmb.identify.estimation.identifiability import RANK_TOLERANCE, scaled_svd
from jaxmb.identify.parameters.free_parameters import matching, matching_any
from jaxmb.identify.parameters.model_parameters import ParameterSpec, parameter_table, parameters
from jaxmb.io.validation import check_known, typed_arguments
from jaxmb.machine.build import Model
from jaxmb.machine.families import FAMILIES, OF_BODIES, OF_FRICTION, OF_TORQUE
from jaxmb.mechanics.dynamics import body_motion, total_energy
from jaxmb.mechanics.forward import SLOWEST, direction, load_friction, tree_effort, whole_motion
from jaxmb.mechanics.loops import OPEN, at_closed_posture, independent_coordinates, loop_gaps, loop_motion

BLOCK = 512
"""Samples per call of a compiled program, limited by memory."""


@typed_arguments
def regressor_names(model: Model) -> tuple[str, ...]:
    """Names of the p columns of `torque_regressor`, in their order, as in `parameters`.

    stiffness.*, damping.*, rotor_inertia.*, friction.*, offset.* of coordinates, stiffness.* and damping.* of springs,
    rotor_inertia.*, damping.* and friction.* of transmissions, density.* of beams, mass.*, first_moment.* and inertia.*
    of bodies and payloads, stribeck.*, cubic_damping.*, load_friction.* and damping_slope.* of coordinates with these
    friction terms, each only if the machine has it. All other parameters are assumed known.
    """
    return tuple(_linear_parameters(model))


@typed_arguments
@numeric_arguments("q", "qd", "qdd", "q_rest")
@numeric_arguments("friction_speed", least=SLOWEST)
@at_closed_posture
@compiled
def torque_regressor(
    model: Model,
    q: Float[Array, "n"],
    qd: Float[Array, "m"],
    qdd: Float[Array, "m"],
    q_rest: Float[Array, "n"] | None = None,
    *,
    friction_speed: float | Float[Array, ""] | None = None,
) -> Float[Array, "m p"]:
    """Regressor Y [m, p] with `actuator_effort` = Y @ [value of each of `regressor_names`], at one state.

    Y = d tau / d K, tau = R^T (f(q, qd, qdd; K) + friction + offset), exact since tau is linear in K: first moments and
    inertias are about the origins of the bodies' frames, and each of the ten parameters of a body varies independently
    (in contrast to `set_parameters`, where a mass scales its moments and inertia).

    Args:
        model: the machine; Y does not depend on the values of these parameters, except for columns of load_friction.*,
            |torque without friction| sign(qd), which use the machine's own. Columns of damping_slope.* are 0, the value
            at the reference temperature of the damping.
        q: coordinates [n] of a closed posture, rad or m.
        qd: rates of the m independent coordinates [m] (m = n without loops), or of all [n].
        qdd: accelerations of the same coordinates.
        q_rest: posture of unloaded springs [n]; default: the reference posture.
        friction_speed: as in `actuator_effort`.

    Returns:
        Y [m, p], Nm or N at the independent coordinates per unit of each parameter.

    Raises:
        ValueError: an argument has the wrong size, or a loop is open at q.

    Source: Pyrhonen et al. 2024, eq. 11 and 16.
    """
    R, qd, qdd, q_rest = whole_motion(model, q, qd, qdd, q_rest)
    others = [leaf for leaf in _leaves(model) if leaf not in OF_BODIES]
    slopes = _slopes(model, lambda m: tree_effort(m, q, qd, qdd, q_rest, friction_speed), others)
    Y = _columns(model, slopes | _body_slopes(model, q, qd, qdd))
    Y = R.T @ Y if model.dependent else Y
    return _with_load_friction(model, Y, qd, friction_speed)


def stacked_torque_regressor(
    model: Model,
    q: Float[Array, "k n"] | np.ndarray,
    qd: Float[Array, "k m"] | np.ndarray,
    qdd: Float[Array, "k m"] | np.ndarray,
    q_rest: Float[Array, "n"] | None = None,
    *,
    names: Sequence[str] | None = None,
    friction_speed: float | None = None,
) -> Float[np.ndarray, "k m p"]:
    """Regressors [k, m, p] of k samples of a motion (`torque_regressor`), computed in blocks that fit into memory.

    Args:
        model: the machine.
        q: coordinates [k, n] of closed postures, rad or m.
        qd: rates of the independent coordinates [k, m], or of all [k, n].
        qdd: accelerations of the same coordinates.
        q_rest: posture of unloaded springs [n]; default: the reference posture.
        names: of the columns to return; default: all of `regressor_names`.
        friction_speed: as in `actuator_effort`.

    Raises:
        ValueError: numbers of samples differ, an argument has the wrong size, a name is not one of `regressor_names`,
            or a loop is open at a sample.
    """
    known = regressor_names(model)
    check_known("parameter of the regressor", names or (), known)
    chosen = np.array([known.index(name) for name in names or ()], dtype=int)
    states = [np.asarray(part, dtype=float) for part in (q, qd, qdd)]
    count = states[0].shape[0]
    for name, part in zip(("q", "qd", "qdd"), states, strict=True):
        if part.ndim != 2 or part.shape[0] != count:
            raise ValueError(f"{name} has shape {part.shape}, expected a row for each of the {count} samples of q")
        if not np.isfinite(part).all():
            raise ValueError(f"{name} holds {part[~np.isfinite(part)][0]:g}, expected finite numbers")

    def block(q: Array, qd: Array, qdd: Array) -> tuple[Array, Array]:
        Y, gaps = _block(model, q, qd, qdd, q_rest, friction_speed)
        return Y if names is None else Y[:, :, chosen], gaps

    found, gaps = in_batches(block, BLOCK, *states)
    if not (gaps <= OPEN).all():
        sample = int(np.argmax(~(gaps <= OPEN)))
        raise ValueError(
            f"q: the loops of '{model.name}' are open by {gaps[sample]:.3g} at sample {sample};"
            " `close_loops` closes them"
        )
    return found


@numeric_arguments("q", "qd")
@compiled
def energy_regressor(model: Model, q: Float[Array, "n"], qd: Float[Array, "m"]) -> Float[Array, "p"]:
    """Energy regressor h [p]: T + V at a state minus V in the reference posture = h @ [value of each of
    `regressor_names`].

    Springs are unloaded in the reference posture. Constants of the energy are omitted. Dampers, friction and offsets
    have no energy.

    Args:
        model: the machine.
        q: coordinates [n] of a closed posture, rad or m.
        qd: rates of the independent coordinates [m].

    Returns:
        h [p], J per unit of each parameter.

    Source: Pyrhonen et al. 2024, eq. 2.
    """
    rest = model.reference
    rates = loop_motion(model, q, qd)[0] @ qd

    def energy(changed: Model) -> Array:
        at_rest = total_energy(changed, rest, jnp.zeros_like(rest), rest)
        return jnp.atleast_1d(total_energy(changed, q, rates, rest) - at_rest)

    return _columns(model, _slopes(model, energy, _leaves(model)))[0]


def load_columns(names: Sequence[str]) -> Bool[np.ndarray, "p"]:
    """Mask of the columns of the regressor other than friction, which load a gear."""
    return np.array([name.split(".")[0] not in OF_FRICTION for name in names], dtype=bool)


def payload_columns(model: Model, payloads: Sequence[str], known: Sequence[str], what: str = "payload") -> list[int]:
    """Columns of the regressor that belong to some payloads of the machine.

    Args:
        model: the machine.
        payloads: names of the payloads.
        known: names of all payloads.
        what: noun of a payload in an error message.

    Raises:
        ValueError: a payload is not known.
    """
    check_known(what, payloads, known)
    parts = [name.split(".") for name in regressor_names(model)]
    return [i for i, (family, item, *_) in enumerate(parts) if family in OF_BODIES and item in payloads]


def _with_load_friction(
    model: Model, Y: Float[Array, "m p"], qd: Float[Array, "n"], friction_speed: float | Float[Array, ""] | None
) -> Float[Array, "m p"]:
    """The regressor with columns of load-dependent friction, from its other columns and the machine's parameters."""
    if not load_friction(model).any():
        return Y
    specs = _linear_parameters(model)
    names, loads = list(specs), load_columns(list(specs))
    values = jnp.stack([getattr(model, spec.leaf)[spec.entries[0]] for spec in specs.values()])
    load = jnp.abs(Y[:, loads] @ values[loads])
    for row, name in enumerate(independent_coordinates(model)):
        if f"load_friction.{name}" in names:
            column = load[row] * direction(qd[model.coordinates.index(name)], friction_speed)
            Y = Y.at[row, names.index(f"load_friction.{name}")].set(column)
    return Y


def _linear_parameters(model: Model) -> dict[str, ParameterSpec]:
    return {name: spec for name, spec in parameter_table(model).items() if name.split(".")[0] in OF_TORQUE}


def _leaves(model: Model) -> list[str]:
    return list(dict.fromkeys(spec.leaf for spec in _linear_parameters(model).values()))


def _columns(model: Model, slopes: Mapping[str, Float[Array, "n ..."]]) -> Float[Array, "n p"]:
    """Columns of `regressor_names` from the derivatives by the leaves of the model."""
    specs = _linear_parameters(model).values()
    found = [sum(slopes[spec.leaf][(slice(None), *entry)] for entry in spec.entries) for spec in specs]
    return jnp.stack(found, axis=-1)


def _slopes(model: Model, linear: Callable[[Model], Float[Array, "n"]], leaves: Iterable[str]) -> dict[str, Array]:
    """Derivatives of a linear function of a machine by some of its leaves."""
    values = {leaf: getattr(model, leaf) for leaf in leaves}
    return jax.jacrev(lambda changed: linear(dataclasses.replace(model, **changed)))(values)


def _body_slopes(
    model: Model, q: Float[Array, "n"], qd: Float[Array, "n"], qdd: Float[Array, "n"]
) -> dict[str, Float[Array, "n ..."]]:
    """Derivatives of the torque at all coordinates by masses, first moments and inertias of bodies and payloads.

    With the pseudo-inertia P_b the torque trace(dT_b/dq_j P_b (T_b'' - G)^T) of a body has the derivative
    (dT_b/dq_j)^T (T_b'' - G), G with gravity as its last column; P_b holds mass, first moment and tr(I) / 2 E - I.
    """
    change, acceleration = body_motion(model, q, qd, qdd)
    slope = jnp.einsum("bxyj,bxz->jbyz", change, acceleration.at[:, :, 3].add(-model.gravity))
    of_second = slope[..., :3, :3]
    half_trace = 0.5 * jnp.trace(of_second, axis1=-2, axis2=-1)[..., None, None] * jnp.eye(3)
    return {
        "mass": slope[..., 3, 3],
        "first_moment": slope[..., :3, 3] + slope[..., 3, :3],
        "inertia": half_trace - of_second,
    }


@compiled
def _block(
    model: Model, q: Array, qd: Array, qdd: Array, q_rest: Array | None, friction_speed: float | None
) -> tuple[Float[Array, "k m p"], Float[Array, "k"]]:
    def of_sample(posture: Array, rate: Array, acceleration: Array) -> tuple[Array, Array]:
        gaps = jnp.max(jnp.abs(loop_gaps(model, posture)), initial=0.0)
        return torque_regressor(model, posture, rate, acceleration, q_rest, friction_speed=friction_speed), gaps

    return jax.vmap(of_sample)(q, qd, qdd)


USUALLY_UNKNOWN = tuple(
    dict.fromkeys(
        f"{family.name}.*"
        for family in FAMILIES
        if family.torque and family.matrix != "stiffness" and family.leaf != "friction_terms"
    )
)
"""Patterns of inertial and friction parameters: all but stiffnesses and further friction terms."""
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
    unknown: Sequence[str] = USUALLY_UNKNOWN,
    ratio: Mapping[str, Mapping[str, float]] | None = None,
) -> dict[str, DriveGain]:
    """Absolute gains of the drives from runs with and without a known payload.

    tau_j = g_j i_j at each joint j, so i_j = Y_j theta_j + (1 / g_j) Y_load,j p_load with theta_j = p / g_j: linear in
    theta_j and 1 / g_j, with the known payload's torque as a column and all noise on the left-hand side, so that least
    squares is unbiased. For motors coupled to several joints tau = N^T (g i) with their ratios N, and rows of N^-T Y
    replace those of Y. Each joint or motor is solved separately. Errors of successive samples are assumed independent.

    Args:
        model: the machine with its payload, whose ten parameters are known; the values of its other parameters have no
            effect. Springs are left out unless `unknown` has their stiffness.
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
    # a machine may have none of the parameters that are unknown by default
    patterns = [pattern for pattern in unknown if pattern not in USUALLY_UNKNOWN or matching(names, pattern)]
    chosen = matching_any(names, patterns, "unknown parameter")
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
    own, rest = svd.beside(load), svd.beside(signal)
    if not np.linalg.norm(own) > IDENTIFIABLE * np.linalg.norm(load):
        raise ValueError(
            f"the gain of '{name}' is not identifiable: the torque of payload '{payload}' depends linearly on those of"
            " unknown parameters, expected a run with and a run without it that move it"
        )
    slope = float(own @ rest / (own @ own))
    variance = float(np.sum((rest - slope * own) ** 2)) / max(len(signal) - svd.rank - 1, 1)
    return DriveGain(1.0 / slope, float(np.sqrt(variance / (own @ own))) / slope**2)
