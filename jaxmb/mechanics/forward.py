"""Motions that efforts of drives, gravity and springs give a machine: forward dynamics, integrated over time."""

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.integrate import solve_ivp

from jaxmb.compiled import compiled, takes_numbers
from jaxmb.machine.build import Model
from jaxmb.mechanics.actuators import SLOWEST, actuator_effort, load_friction
from jaxmb.mechanics.dynamics import mass_matrix
from jaxmb.mechanics.loop_path import closed_along
from jaxmb.mechanics.loops import at_closed_posture, check_closed, independent_coordinates, motion_map

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")

FRICTION_SPEED = 1e-3
"""rad/s or m/s: Coulomb friction is a sign that no integrator can follow; below this rate it grows evenly from 0."""
TOLERANCE = 1e-9
"""Relative error of a step; the absolute one, in rad, m, rad/s and m/s, is a hundredth of it."""


LEAST_MASS = 1e-14
"""Of the largest eigenvalue of the mass matrix, up to which one is rounding of 0."""


class Trajectory(NamedTuple):
    """A motion at k even steps of time, its postures with loops closed."""

    time_s: Float[np.ndarray, "k"]
    q: Float[np.ndarray, "k n"]
    """All coordinates, rad or m."""
    qd: Float[np.ndarray, "k m"]
    """Rates of the independent coordinates."""
    qdd: Float[np.ndarray, "k m"]
    """Their accelerations."""
    effort: Float[np.ndarray, "k m"]
    """Of the drives, Nm or N."""


def _warns_of_beams(function: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
    """Lets a function of a model warn, before it is compiled, that it takes beams and virtual springs as rigid."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
        model: Model = signature.bind(*args, **kwargs).arguments["model"]
        for name in (*model.beams, *model.virtual_springs)[:1]:
            warnings.warn(
                f"{function.__name__}: '{name}' is flexible and taken as rigid; vibration about a posture is that of"
                " `linearize`, `modes` and `frf`",
                stacklevel=2,
            )
        return function(*args, **kwargs)

    return call


@_warns_of_beams
@takes_numbers("q", "qd", "effort")
@takes_numbers("friction_speed", least=SLOWEST)
@at_closed_posture
@compiled
def forward_dynamics(
    model: Model,
    q: Float[Array, "n"],
    qd: Float[Array, "m"],
    effort: Float[Array, "m"],
    *,
    friction_speed: float | Float[Array, ""] | None = None,
) -> Float[Array, "m"]:
    """Accelerations [m] of the independent coordinates under efforts of the drives.

    qdd = (R^T M R)^-1 (effort - tau(q, qd, 0)), tau the effort that a motion needs (`actuator_effort`), M the
    `mass_matrix` and R the `motion_map`. Locked coordinates stay where they are.

    Args:
        model: the machine; beams and virtual springs are rigid here, of which a UserWarning warns.
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
    if load_friction(model).any():
        raise NotImplementedError(
            f"'{model.name}' has load_friction, expected friction that does not depend on accelerations"
        )
    moving = np.array([not model.locked[model.coordinates.index(name)] for name in independent_coordinates(model)])

    if effort.shape != qd.shape:
        raise ValueError(f"effort has shape {effort.shape}, expected that of qd, {qd.shape}")
    needed = actuator_effort(model, q, qd, jnp.zeros_like(qd), friction_speed=friction_speed)
    R = motion_map(model, q)[:, moving]
    found = jax.scipy.linalg.solve(R.T @ mass_matrix(model, q) @ R, (effort - needed)[moving], assume_a="pos")
    return jnp.zeros_like(qd).at[np.flatnonzero(moving)].set(found)


def simulate_motion(
    model: Model,
    q: Float[np.ndarray, "n"],
    qd: Float[np.ndarray, "m"],
    duration_s: float,
    rate_hz: float,
    effort: Callable[[float, np.ndarray, np.ndarray], np.ndarray] | None = None,
    friction_speed: float = FRICTION_SPEED,
) -> Trajectory:
    """The motion of a machine from a state on, free or driven.

    Args:
        model: the machine, its beams rigid.
        q: coordinates [n] at the start, loops closed, rad or m.
        qd: rates of the m independent coordinates at the start [m].
        duration_s: how long.
        rate_hz: samples per second of what comes back; steps of the integration follow from its error.
        effort: of the drives, effort(t, q, qd) -> [m], Nm or N; none where not given.
        friction_speed: rate v at which tanh(qd / v) stands for the sign in Coulomb friction.

    Returns:
        Time, postures, rates, accelerations and efforts at each sample. `write_motion` writes them as a torque test
        reads them.

    Raises:
        ValueError: the start is not a state of the machine, or the integration ends before its time, as it does at a
            dead point of a loop.
        NotImplementedError: the machine has parts that give way.

    Source: Hairer, Nørsett and Wanner, Solving Ordinary Differential Equations I (1993); Petzold 1983 (LSODA).
    """
    if model.elements or model.virtual_springs:
        raise NotImplementedError(f"'{model.name}' has beams or virtual springs, expected rigid links and joints")
    names = independent_coordinates(model)
    n, m = len(model.coordinates), len(names)
    place, rate = np.asarray(q, dtype=float), np.asarray(qd, dtype=float)
    for what, given in (("duration_s", duration_s), ("rate_hz", rate_hz), ("friction_speed", friction_speed)):
        if not (isinstance(given, int | float) and 0.0 < given < np.inf):
            raise ValueError(f"{what} is {given}, expected a finite number above 0")
    _check_start(model, place, rate, names)
    time = np.arange(max(1, round(duration_s * rate_hz)) + 1) / rate_hz

    def driven(t: float, q: np.ndarray, qd: np.ndarray) -> np.ndarray:
        found = np.zeros(m) if effort is None else np.asarray(effort(t, q, qd), dtype=float)
        if found.shape != (m,):
            raise ValueError(f"effort(t, q, qd) has shape {found.shape}, expected ({m},): at {', '.join(names)}")
        if not np.isfinite(found).all():
            raise ValueError(f"effort(t, q, qd) holds {found[~np.isfinite(found)][0]} at {t:.4g} s, expected numbers")
        return found

    def slope(t: float, state: np.ndarray) -> np.ndarray:
        found = np.asarray(_slope(model, state, driven(t, state[:n], state[n:]), friction_speed))
        if not np.isfinite(found).all():
            raise ValueError(
                f"the motion of '{model.name}' cannot be followed beyond {t:.4g} s: accelerations are not finite there,"
                " as at a dead point of a loop, or where something moves without mass"
            )
        return found

    run = solve_ivp(
        slope, (0.0, time[-1]), np.concatenate([place, rate]), method="LSODA", t_eval=time,
        rtol=TOLERANCE, atol=0.01 * TOLERANCE,
    )  # fmt: skip
    if not run.success:
        raise ValueError(f"the motion of '{model.name}' cannot be followed beyond {run.t[-1]:.4g} s: {run.message}")
    drifted, speeds = run.y[:n].T, run.y[n:].T
    given = [model.coordinates.index(name) for name in names]
    postures = closed_along(model, drifted[:, given], drifted)
    states = np.concatenate([postures, speeds], axis=1)
    efforts = np.stack([driven(t, state[:n], state[n:]) for t, state in zip(time.tolist(), states, strict=True)])
    slopes = [_slope(model, state, effort, friction_speed) for state, effort in zip(states, efforts, strict=True)]
    return Trajectory(time, postures, speeds, np.stack(slopes)[:, n:], efforts)


def _check_start(model: Model, q: np.ndarray, qd: np.ndarray, names: tuple[str, ...]) -> None:
    """Raise ValueError where a machine cannot start with rates of the named coordinates."""
    if qd.shape != (len(names),):
        raise ValueError(f"qd has shape {qd.shape}, expected ({len(names)},): rates of {', '.join(names)}")
    if q.shape != (len(model.coordinates),):
        raise ValueError(f"q has shape {q.shape}, expected ({len(model.coordinates)},): a value for each coordinate")
    for what, values in (("q", q), ("qd", qd)):
        if not np.isfinite(values).all():
            raise ValueError(f"{what} holds {values[~np.isfinite(values)][0]}, expected finite numbers")
    check_closed(model, q, "q")
    for name, rate in zip(names, qd.tolist(), strict=True):
        if rate != 0.0 and model.locked[model.coordinates.index(name)]:
            raise ValueError(f"qd: '{name}' is locked and has a rate of {rate:g}, expected 0")
    place = jnp.asarray(q)
    R, mass = np.asarray(motion_map(model, place)), np.asarray(mass_matrix(model, place))
    size, directions = np.linalg.eigh(R.T @ mass @ R)
    if not size[0] > LEAST_MASS * size[-1]:
        alone = names[int(np.argmax(np.abs(directions[:, 0])))]
        raise ValueError(f"the mass matrix of '{model.name}' is singular: '{alone}' moves without mass or inertia")


@compiled
def _slope(model: Model, state: Array | np.ndarray, effort: Array | np.ndarray, friction_speed: float) -> Array:
    n = len(model.coordinates)
    q, qd, tau = (jnp.asarray(part) for part in (state[:n], state[n:], effort))
    return jnp.concatenate([
        motion_map(model, q) @ qd, forward_dynamics(model, q, qd, tau, friction_speed=friction_speed)
    ])  # fmt: skip
