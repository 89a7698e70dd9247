"""Forward dynamics: motions under efforts of drives, gravity and springs, integrated over time."""

import dataclasses
import warnings
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float

from jaxmb.compiled import compiled, numeric_arguments
from jaxmb.io.validation import finite_number, typed_arguments
from jaxmb.machine.build import Model
from jaxmb.machine.elements import TERMS
from jaxmb.machine.families import FAMILIES, OF_FRICTION
from jaxmb.mechanics.dynamics import inverse_dynamics, mass_matrix
from jaxmb.mechanics.kinematics import check_coordinates
from jaxmb.mechanics.loops import at_closed_posture, check_closed, independent_coordinates, loop_motion, motion_map
from jaxmb.mechanics.postures import closed_along

SLOWEST = 1e-9
"""Smallest rate of smoothed friction, rad/s or m/s."""


@numeric_arguments("q", "qd", "qdd", "q_rest")
@numeric_arguments("friction_speed", least=SLOWEST)
@at_closed_posture
@compiled
def actuator_effort(
    model: Model,
    q: Float[Array, "n"],
    qd: Float[Array, "m"],
    qdd: Float[Array, "m"],
    q_rest: Float[Array, "n"] | None = None,
    *,
    friction_speed: float | Float[Array, ""] | None = None,
) -> Float[Array, "m"]:
    """Effort [m] of the drives for a motion against inertia, gravity, springs and friction.

    tau = R^T (f(q, qd, qdd) + f_c sign(qd) + f_0 + sum_t c_t f_t sign(c_t . qd)), f the residual of the tree
    (`inverse_dynamics`), f_c the Coulomb friction and f_0 the offset of each coordinate, c_t and f_t rates and friction
    of each transmission, R the map from the independent coordinates to all of them (`motion_map`). It is linear in the
    numbers of `regressor_names`. Further friction adds c_s exp(-(qd / v_s)^2) sign(qd) + c_3 qd^3, and
    c_l |tau_0| sign(qd) at independent coordinates, tau_0 the effort without friction, damping and offset. Damping that
    depends on temperature is taken at the machine's reference temperature. The brake of a locked coordinate replaces
    its spring, damper and drive.

    Args:
        model: the machine.
        q: coordinates [n] of a posture whose loops are closed, rad or m. Beams are rigid.
        qd: rates of the m independent coordinates [m], which are all n without loops; or those of all [n].
        qdd: their accelerations, of as many coordinates.
        q_rest: posture [n] in which all springs are unloaded; by default the reference posture.
        friction_speed: rate v, rad/s or m/s, of tanh(qd / v) in place of sign(qd); by default the exact sign, 0 at
            rest.

    Returns:
        tau [m] at the independent coordinates, Nm or N.

    Raises:
        ValueError: an argument has not one value for each coordinate, a loop is open at q, or friction_speed is below
            1e-9.

    Source: Pyrhonen et al. 2024, eq. 11 and 17.
    """
    R, qd, qdd, q_rest = whole_motion(model, q, qd, qdd, q_rest)
    effort = R.T @ tree_effort(model, q, qd, qdd, q_rest, friction_speed)
    loaded = load_friction(model)
    if not loaded.any():
        return effort
    frictionless_effort = R.T @ tree_effort(frictionless(model), q, qd, qdd, q_rest, friction_speed)
    independent = _independent(model)
    coefficient = model.friction_terms[:, TERMS.index("load_friction")][independent]
    return effort + jnp.where(
        loaded[independent],
        coefficient * jnp.abs(frictionless_effort) * direction(qd[independent], friction_speed),
        0.0,
    )


def load_friction(model: Model) -> np.ndarray:
    """Whether each coordinate [n] has load-dependent friction."""
    present = ["load_friction" in terms for terms in model.further_friction]
    return np.array(present, dtype=bool) & ~np.array(model.locked, dtype=bool)


def direction(rate: Array, friction_speed: float | Float[Array, ""] | None) -> Array:
    """Sign of a rate, or tanh(rate / friction_speed) where that is given."""
    return jnp.sign(rate) if friction_speed is None else jnp.tanh(rate / friction_speed)


def frictionless(model: Model) -> Model:
    """The machine without any friction, damping and offset."""
    return dataclasses.replace(
        model, **{row.leaf: jnp.zeros_like(getattr(model, row.leaf)) for row in FAMILIES if row.name in OF_FRICTION}
    )


def whole_motion(
    model: Model, q: Float[Array, "n"], qd: Float[Array, "m"], qdd: Float[Array, "m"], q_rest: Float[Array, "n"] | None
) -> tuple[Float[Array, "n m"], Float[Array, "n"], Float[Array, "n"], Float[Array, "n"]]:
    """R, rates and accelerations of all coordinates and rest posture of the springs, from arguments of
    `actuator_effort`.

    Raises:
        ValueError: an argument has not one value for each coordinate.
    """
    n, m = len(model.coordinates), len(independent_coordinates(model))
    q_rest = model.reference if q_rest is None else q_rest
    for name, array, counts in (("q", q, (n,)), ("qd", qd, (m, n)), ("qdd", qdd, (m, n)), ("q_rest", q_rest, (n,))):
        if array.shape not in [(count,) for count in counts]:
            expected = " or ".join(f"({count},)" for count in dict.fromkeys(counts))
            raise ValueError(f"{name} has shape {array.shape}, expected {expected}: one value a coordinate")
    if qd.shape != qdd.shape:
        raise ValueError(f"qdd has shape {qdd.shape}, expected that of qd, {qd.shape}")
    R, bias = loop_motion(model, q, qd if qd.size == m else qd[_independent(model)])
    if qd.size == m:
        qd, qdd = R @ qd, R @ qdd + bias
    return R, qd, qdd, q_rest


def tree_effort(
    model: Model,
    q: Float[Array, "n"],
    qd: Float[Array, "n"],
    qdd: Float[Array, "n"],
    q_rest: Float[Array, "n"],
    friction_speed: float | Float[Array, ""] | None,
) -> Float[Array, "n"]:
    """Effort [n] of `actuator_effort` at all coordinates of the tree, before its projection by R^T."""
    locked = np.array(model.locked)
    free = dataclasses.replace(
        model,
        stiffness=jnp.where(locked, 0.0, model.stiffness),
        damping=jnp.where(locked, 0.0, model.damping),
        rotor_inertia=jnp.where(locked, 0.0, model.rotor_inertia),
    )
    friction = model.friction * direction(qd, friction_speed) + model.offset
    slow = jnp.exp(-((qd / model.stribeck_speed) ** 2))
    friction += model.friction_terms[:, TERMS.index("stribeck")] * slow * direction(qd, friction_speed)
    friction += model.friction_terms[:, TERMS.index("cubic_damping")] * qd**3
    c = model.transmission_rate
    friction = jnp.where(locked, 0.0, friction) + c.T @ (
        model.transmission_friction * direction(c @ qd, friction_speed)
    )
    return inverse_dynamics(free, q, qd, qdd, q_rest) + friction


def _independent(model: Model) -> np.ndarray:
    return np.array([i for i in range(len(model.coordinates)) if i not in model.dependent], dtype=int)


FRICTION_SPEED = 1e-3
"""Speed of tanh in place of the sign in Coulomb friction, rad/s or m/s: no integrator resolves the discontinuity."""
TOLERANCE = 1e-9
"""Relative tolerance of a step; the absolute one, in rad, m, rad/s and m/s, is a hundredth of it."""


LEAST_MASS = 1e-14
"""Ratio to the largest eigenvalue of the mass matrix up to which an eigenvalue is attributed to rounding."""


class Trajectory(NamedTuple):
    """A motion at k equally spaced times, loops closed."""

    time_s: Float[np.ndarray, "k"]
    q: Float[np.ndarray, "k n"]
    """All coordinates, rad or m."""
    qd: Float[np.ndarray, "k m"]
    """Rates of the independent coordinates."""
    qdd: Float[np.ndarray, "k m"]
    """Their accelerations."""
    effort: Float[np.ndarray, "k m"]
    """Efforts of the drives, Nm or N."""


@typed_arguments
def forward_dynamics(
    model: Model,
    q: Float[Array, "n"],
    qd: Float[Array, "m"],
    effort: Float[Array, "m"],
    *,
    friction_speed: float | Float[Array, ""] | None = None,
) -> Float[Array, "m"]:
    """Accelerations [m] of the independent coordinates under efforts of the drives.

    qdd = (R^T M R)^-1 (effort - tau(q, qd, 0)), tau the effort of a motion (`actuator_effort`), M the `mass_matrix` and
    R the `motion_map`. Locked coordinates do not move.

    Args:
        model: the machine; beams and virtual springs are taken as rigid, with a UserWarning.
        q: coordinates [n] of a posture whose loops are closed, rad or m.
        qd: rates of the m independent coordinates [m], which are all n without loops.
        effort: of the drives at the independent coordinates [m], Nm or N.
        friction_speed: as in `actuator_effort`.

    Returns:
        qdd [m], rad/s^2 or m/s^2; NaN where the mass matrix is singular.

    Raises:
        ValueError: an argument has not one value for each coordinate, or a loop is open at q.
        NotImplementedError: friction depends on the load, and so on the accelerations.
    """
    for name in (*model.beams, *model.virtual_springs)[:1]:
        warnings.warn(
            f"forward_dynamics: '{name}' is flexible and taken as rigid; for vibration about a posture use `linearize`,"
            " `modes` or `frf`",
            stacklevel=3,
        )
    return _accelerations(model, q, qd, effort, friction_speed)


@numeric_arguments("q", "qd", "effort")
@numeric_arguments("friction_speed", least=SLOWEST)
@at_closed_posture
@compiled
def _accelerations(
    model: Model,
    q: Float[Array, "n"],
    qd: Float[Array, "m"],
    effort: Float[Array, "m"],
    friction_speed: float | Float[Array, ""] | None = None,
) -> Float[Array, "m"]:
    """`forward_dynamics` of a machine whose beams and virtual springs are taken as rigid."""
    if load_friction(model).any():
        raise NotImplementedError(
            f"'{model.name}' has load_friction, expected friction that does not depend on accelerations"
        )
    is_free = np.array([not model.locked[model.coordinates.index(name)] for name in independent_coordinates(model)])
    if qd.shape != is_free.shape:
        raise ValueError(f"qd has shape {qd.shape}, expected {is_free.shape}: one rate an independent coordinate")
    if effort.shape != qd.shape:
        raise ValueError(f"effort has shape {effort.shape}, expected that of qd, {qd.shape}")
    bias_effort = actuator_effort(model, q, qd, jnp.zeros_like(qd), friction_speed=friction_speed)
    R = motion_map(model, q)[:, is_free]
    values = jax.scipy.linalg.solve(R.T @ mass_matrix(model, q) @ R, (effort - bias_effort)[is_free], assume_a="pos")
    return jnp.zeros_like(qd).at[np.flatnonzero(is_free)].set(values)


@numeric_arguments("q", "qd")
def simulate_motion(
    model: Model,
    q: Float[np.ndarray, "n"],
    qd: Float[np.ndarray, "m"],
    duration_s: float,
    rate_hz: float,
    effort: Callable[[float, np.ndarray, np.ndarray], np.ndarray] | None = None,
    friction_speed: float = FRICTION_SPEED,
) -> Trajectory:
    """Motion of a machine from an initial state, free or driven.

    Args:
        model: the machine, without flexible parts.
        q: initial coordinates [n], loops closed, rad or m.
        qd: initial rates of the m independent coordinates [m].
        duration_s: duration, s.
        rate_hz: sampling rate of the result, Hz; the steps of the integration are controlled by their error.
        effort: of the drives, effort(t, q, qd) -> [m], Nm or N; by default none.
        friction_speed: rate v of tanh(qd / v) in place of the sign in Coulomb friction, rad/s or m/s.

    Returns:
        Time, postures, rates, accelerations and efforts at each sample. `write_motion` writes them as a file of a
        torque test.

    Raises:
        ValueError: the start is not a state of the machine, its mass matrix is singular there, a number is not above 0,
            `effort` returns no m finite numbers, or the integration ends early, as at a dead point of a loop.
        NotImplementedError: the machine has beams or virtual springs, or friction that depends on the load.

    Source: Hairer, Nørsett and Wanner, Solving Ordinary Differential Equations I (1993); Petzold 1983 (LSODA).
    """
    if model.elements or model.virtual_springs:
        raise NotImplementedError(f"'{model.name}' has beams or virtual springs, expected rigid links and joints")
    names = independent_coordinates(model)
    n, m = len(model.coordinates), len(names)
    posture, rate = np.asarray(q, dtype=float), np.asarray(qd, dtype=float)
    for label, value in (("duration_s", duration_s), ("rate_hz", rate_hz), ("friction_speed", friction_speed)):
        finite_number(label, value, above=0.0)
    _check_start(model, posture, rate, names)
    time = np.arange(max(1, round(duration_s * rate_hz)) + 1) / rate_hz

    def effort_at(t: float, q: np.ndarray, qd: np.ndarray) -> np.ndarray:
        values = np.zeros(m) if effort is None else np.asarray(effort(t, q, qd), dtype=float)
        if values.shape != (m,):
            raise ValueError(f"effort(t, q, qd) has shape {values.shape}, expected ({m},): at {', '.join(names)}")
        if not np.isfinite(values).all():
            raise ValueError(f"effort(t, q, qd) holds {values[~np.isfinite(values)][0]} at {t:.4g} s, expected numbers")
        return values

    def state_derivative(t: float, state: np.ndarray) -> np.ndarray:
        values = np.asarray(_state_derivative(model, state, effort_at(t, state[:n], state[n:]), friction_speed))
        if not np.isfinite(values).all():
            raise ValueError(
                f"the motion of '{model.name}' cannot be integrated beyond {t:.4g} s: accelerations are not finite,"
                " as at a dead point of a loop, or for a massless part"
            )
        return values

    solution = scipy.integrate.solve_ivp(
        state_derivative, (0.0, time[-1]), np.concatenate([posture, rate]), method="LSODA", t_eval=time,
        rtol=TOLERANCE, atol=0.01 * TOLERANCE,
    )  # fmt: skip
    if not solution.success:
        raise ValueError(
            f"the motion of '{model.name}' cannot be integrated beyond {solution.t[-1]:.4g} s: {solution.message}"
        )
    raw_postures, rates = solution.y[:n].T, solution.y[n:].T
    independent = [model.coordinates.index(name) for name in names]
    postures = closed_along(model, raw_postures[:, independent], raw_postures)
    states = np.concatenate([postures, rates], axis=1)
    efforts = np.stack([effort_at(t, state[:n], state[n:]) for t, state in zip(time.tolist(), states, strict=True)])
    derivatives = [
        _state_derivative(model, state, effort, friction_speed) for state, effort in zip(states, efforts, strict=True)
    ]
    return Trajectory(time, postures, rates, np.stack(derivatives)[:, n:], efforts)


def _check_start(model: Model, q: np.ndarray, qd: np.ndarray, names: tuple[str, ...]) -> None:
    """Raise ValueError where an initial state is invalid or the mass matrix is singular there."""
    if qd.shape != (len(names),):
        raise ValueError(f"qd has shape {qd.shape}, expected ({len(names)},): rates of {', '.join(names)}")
    check_coordinates(model, q=q)
    check_closed(model, q, "q")
    for name, rate in zip(names, qd.tolist(), strict=True):
        if rate != 0.0 and model.locked[model.coordinates.index(name)]:
            raise ValueError(f"qd: '{name}' is locked and has a rate of {rate:g}, expected 0")
    posture = jnp.asarray(q)
    R, mass = np.asarray(motion_map(model, posture)), np.asarray(mass_matrix(model, posture))
    eigenvalues, directions = np.linalg.eigh(R.T @ mass @ R)
    if not eigenvalues[0] > LEAST_MASS * eigenvalues[-1]:
        massless = names[int(np.argmax(np.abs(directions[:, 0])))]
        raise ValueError(f"the mass matrix of '{model.name}' is singular: '{massless}' moves without mass or inertia")


@compiled
def _state_derivative(
    model: Model, state: Array | np.ndarray, effort: Array | np.ndarray, friction_speed: float
) -> Array:
    n = len(model.coordinates)
    q, qd, tau = (jnp.asarray(part) for part in (state[:n], state[n:], effort))
    return jnp.concatenate([
        motion_map(model, q) @ qd, _accelerations(model, q, qd, tau, friction_speed)
    ])  # fmt: skip
