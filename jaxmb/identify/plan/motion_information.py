"""Information of a motion on the parameters, and the minimized design criterion."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float, Int

from jaxmb.compiled import compiled
from jaxmb.identify.experiments.torque.effort_rows import closed_from
from jaxmb.identify.regression.torque_regressor import stacked_torque_regressor, torque_regressor
from jaxmb.identify.study.format.next_format import LimitsPart
from jaxmb.io.validation import check_known
from jaxmb.machine.build import Model
from jaxmb.machine.schema import Machine
from jaxmb.machine.values import check_travel, check_turns
from jaxmb.mechanics.loops import loop_motion


class Limits(NamedTuple):
    """Limits of m coordinates, rad or m and s; infinite without a limit."""

    lower: Float[np.ndarray, "m"]
    upper: Float[np.ndarray, "m"]
    speed: Float[np.ndarray, "m"]
    acceleration: Float[np.ndarray, "m"]


def limits_of(machine: Machine, names: Sequence[str], given: Mapping[str, LimitsPart]) -> Limits:
    """Limits of coordinates: those of the machine, or the given ones in their place, and those of coupled coordinates.

    Args:
        machine: with `range`, `speed_limit` and `acceleration_limit` of its coordinates.
        names: of the coordinates.
        given: limits by coordinate that replace those of the machine.

    Raises:
        ValueError: a coordinate is unknown, or one has no speed limit.
    """
    check_known("limits: coordinate", given, names)
    own, rows = {c.name: c for c in machine.moving_parts}, []
    for name in names:
        part, coordinate = given.get(name, LimitsPart()), own[name]
        low, high = part.range or coordinate.range or (-np.inf, np.inf)
        for end in part.range or ():
            (check_travel if coordinate.type == "prismatic" else check_turns)(f"limits of {name}: range", end)
        speed = part.speed or coordinate.speed_limit
        if speed is None:
            raise ValueError(f"'{name}' has no speed limit, expected one in the machine or in limits")
        acceleration = part.acceleration or coordinate.acceleration_limit or np.inf
        for coupling in machine.coupling:
            if coupling.follows == name and coupling.ratio:
                follower, ratio = own[coupling.coordinate], coupling.ratio
                ends = sorted((end - coupling.offset) / ratio for end in follower.range or (-np.inf, np.inf))
                low, high = max(low, ends[0]), min(high, ends[1])
                speed = min(speed, (follower.speed_limit or np.inf) / abs(ratio))
                acceleration = min(acceleration, (follower.acceleration_limit or np.inf) / abs(ratio))
        rows.append((low, high, speed, acceleration))
    return Limits(*np.array(rows, dtype=float).T)


Vector = TypeVar("Vector", np.ndarray, Array)

SAMPLES = 16
"""Samples per period and harmonic during the optimization."""
FINE = 64
"""Samples per period and harmonic for the scaling to limits and the final criterion."""
SHARP = 40.0
"""Exponent of the p-norm that approximates the largest of many ratios, 2 to 10 % above it."""
SHARP_RANGE = 100.0
"""Sharpness of the log-sum-exp that approximates the largest of many positions."""


class Series(NamedTuple):
    """Values of the series at K samples of a period: for each coordinate z = start + position c, and its derivatives.

    Their coefficients c span those amplitudes a_k of sines and b_k of cosines with sum k a_k = 0 and sum k^2 b_k = 0,
    so that rate and acceleration are 0 at either end of a period.
    """

    position: Float[np.ndarray, "K v"]
    """0 at the start."""
    velocity: Float[np.ndarray, "K v"]
    acceleration: Float[np.ndarray, "K v"]
    amplitudes: Float[np.ndarray, "2h v"]
    """Null-space basis of the amplitudes, sines then cosines."""
    limits: Limits
    around: Float[np.ndarray, "m"]
    """Reference start of coordinates without a range."""
    margin: float
    """Bound of a series between the samples if it is at most 1 at the samples."""


def series_of(harmonics: int, base_hz: float, limits: Limits, around: Float[np.ndarray, "m"], density: int) -> Series:
    """Series of `harmonics` harmonics.

    Args:
        harmonics: number of harmonics, 2 or more: with one only the zero motion starts and ends at rest.
        base_hz: frequency of the first.
        limits: of the coordinates.
        around: reference start of coordinates without a range.
        density: samples per period and harmonic.

    Source: Swevers et al. 1997, "Optimal robot excitation and identification"; for the bound between samples, Ehlich
    and Zeller 1964, "Schwankung von Polynomen zwischen Gitterpunkten".
    """
    k = np.arange(1, harmonics + 1)
    phase = 2.0 * np.pi * np.outer(np.arange(density * harmonics) / (density * harmonics), k)
    w = 2.0 * np.pi * base_hz * k
    rest = np.asarray(scipy.linalg.block_diag(*(scipy.linalg.null_space(row[None]) for row in (1.0 * k, k**2.0))))
    sine, cosine = np.sin(phase), np.cos(phase)
    return Series(
        position=np.hstack([sine, cosine - 1.0]) @ rest,
        velocity=np.hstack([w * cosine, -w * sine]) @ rest,
        acceleration=np.hstack([-(w**2) * sine, -(w**2) * cosine]) @ rest,
        amplitudes=rest,
        limits=limits,
        around=around,
        margin=1.0 / float(np.cos(np.pi / density)),
    )


def random_choice(series: Series, draw: np.random.Generator) -> Float[np.ndarray, "m v+1"]:
    """Random optimization vector: coefficients of amplitudes that decrease with the harmonic, and a start."""
    count, harmonics = len(series.around), len(series.amplitudes) // 2
    drawn = draw.normal(size=(count, 2 * harmonics)) / np.tile(np.arange(1, harmonics + 1), 2)
    return np.hstack([drawn @ series.amplitudes, draw.normal(size=(count, 1))])


@compiled
def within(series: Series, choice: Float[Array, "m v+1"]) -> tuple[Float[Array, "m v"], Float[Array, "m"]]:
    """Coefficients and starts [m] of a motion within all limits, a smooth function of any optimization vector.

    A series is scaled by (1 + sum r^p)^(-1/p), r the ratios of its values to their limits, which is below 1 / max r.
    """
    c, limits = choice[:, :-1], series.limits
    low, high = _ends(c @ series.position.T)
    ratios = jnp.concatenate(
        [
            jnp.abs(c @ series.velocity.T) / jnp.asarray(limits.speed)[:, None],
            jnp.abs(c @ series.acceleration.T) / jnp.asarray(limits.acceleration)[:, None],
            ((high - low) / jnp.asarray(limits.upper - limits.lower))[:, None],
        ],
        axis=1,
    )
    ratios = jnp.maximum(series.margin * ratios, 1e-9)
    above = jax.lax.stop_gradient(jnp.maximum(jnp.max(ratios, axis=1), 1.0))
    norm = above * (above**-SHARP + jnp.sum((ratios / above[:, None]) ** SHARP, axis=1)) ** (1.0 / SHARP)
    return c / norm[:, None], _start(series, choice[:, -1], low / norm, high / norm)


def at_limits(series: Series, c: np.ndarray, where: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The motion scaled to its limits, and its starts [m].

    Args:
        series: at fine samples.
        c: coefficients [m, v].
        where: start variable [m], -inf to inf over the range; for coordinates without a range the distance from
            `around`.
    """
    limits = series.limits
    position = c @ series.position.T
    span = np.ptp(position, axis=1)
    ratios = np.stack(
        [
            np.abs(c @ series.velocity.T).max(axis=1) / limits.speed,
            np.abs(c @ series.acceleration.T).max(axis=1) / limits.acceleration,
            span / (limits.upper - limits.lower),
        ]
    )
    scale = 1.0 / np.maximum(np.max(ratios, axis=0) * series.margin, 1e-12)
    beyond = 0.5 * (series.margin - 1.0) * scale * span
    low, high = scale * position.min(axis=1) - beyond, scale * position.max(axis=1) + beyond
    return c * scale[:, None], _start(series, where, low, high)


def _ends(position: Array) -> tuple[Array, Array]:
    """Smooth lower and upper bound of the values of each row."""
    size = jax.lax.stop_gradient(jnp.ptp(position, axis=1, keepdims=True)) / SHARP_RANGE + 1e-12
    high = size * jax.nn.logsumexp(position / size, axis=1, keepdims=True)
    low = -size * jax.nn.logsumexp(-position / size, axis=1, keepdims=True)
    return low[:, 0], high[:, 0]


def _start(series: Series, where: Vector, low: Vector, high: Vector) -> Vector:
    """Start of the motion within the part of its range that contains the whole motion."""
    xp = where.__array_namespace__()
    bounded = xp.isfinite(xp.asarray(series.limits.lower))
    lower, upper = (xp.where(bounded, xp.asarray(limit), 0.0) for limit in series.limits[:2])
    room = (upper - lower) - (high - low)
    part = 0.5 * (1.0 + xp.tanh(0.5 * where))
    return xp.where(bounded, lower - low + part * room, series.around + where)


SMOOTH = 0.1
"""Speed over the smallest speed limit below which the sign of Coulomb friction is smoothed during the optimization."""


class MotionObjective(eqx.Module):
    """Design objective of motions: machine, parameters, noise and prior information."""

    model: Model
    moved: Int[np.ndarray, "m"]
    """Indices of the driven coordinates among the independent ones."""
    rest: Float[np.ndarray, "i"]
    """All independent coordinates at rest, rad or m."""
    gears: Float[np.ndarray, "i i"]
    """Motion of all independent coordinates per unit of each through rigid gears: 1, and the ratio at shafts of
    motors."""
    columns: Float[np.ndarray, "runs p r"]
    """For each run of the motion, map from the identifiable directions of the parameters to the columns of Y."""
    weight: Float[np.ndarray, "i"]
    """1 / standard deviation of the torque or force at each independent coordinate; 0 if it is not measured."""
    samples: float
    """Number of independent samples in one run."""
    made: Float[np.ndarray, "k r"]
    """Information rows of the planned tests and the prior."""
    wanted: Float[np.ndarray, "w r"]
    """Target parameters over their tolerances, in these directions; empty if all parameters count."""
    by_condition: bool = eqx.field(static=True, default=False)
    """Whether the criterion is the condition number of the rows instead of the variances."""


def criterion_of(objective: MotionObjective, rows: np.ndarray) -> float:
    """Design criterion: -log det M over the directions; log of the sum of squares of the target parameters' standard
    deviations over their tolerances; or log of the condition number of the rows with columns scaled to length 1."""
    return float(compiled(_criterion)(objective, jax.device_put(rows)))


def rows_along(
    objective: MotionObjective, motion: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> Float[np.ndarray, "runs K i p"]:
    """Rows of Y over their standard deviations, scaled so that they sum up to the information of a whole motion; at
    joints with motors those of the drives."""
    z, zd, zdd = motion
    q = closed_from(objective.model, z, np.asarray(objective.model.reference))
    Y = objective.gears @ stacked_torque_regressor(objective.model, q, zd, zdd)
    return Y * (objective.weight * np.sqrt(objective.samples / len(z)))[:, None]


def trajectory(objective: MotionObjective, series: Series, c: Vector, start: Vector) -> tuple[Vector, Vector, Vector]:
    """Positions, rates and accelerations [K, i] of the i independent coordinates along a motion, in NumPy or JAX.

    Args:
        objective: with the driven coordinates and the others at rest.
        series: of the motion.
        c: coefficients [m, v].
        start: of the driven coordinates [m].
    """
    driven = (objective.moved[:, None] == np.arange(len(objective.rest))).astype(float) @ objective.gears
    z = (start + series.position @ c.T) @ driven + objective.rest * (driven == 0.0).all(axis=0)
    return z, series.velocity @ c.T @ driven, series.acceleration @ c.T @ driven


@compiled
def positions(objective: MotionObjective, series: Series, choice: Array) -> Float[Array, "K i"]:
    """Independent coordinates along the motion of an optimization vector."""
    return trajectory(objective, series, *within(series, choice))[0]


@compiled
def value_and_slope(
    objective: MotionObjective, series: Series, choice: Array, q_closed: Array, z_closed: Array
) -> tuple[Float[Array, ""], Float[Array, "m v+1"]]:
    """Criterion of an optimization vector, and its gradient.

    Args:
        objective: design objective.
        series: of the motion.
        choice: optimization vector [m, v+1], see `within`.
        q_closed: all coordinates along the motion [K, n], loops closed.
        z_closed: independent coordinates along the motion [K, i].
    """
    slowest = SMOOTH * jnp.min(jnp.asarray(series.limits.speed))

    def of_sample(q: Array, at: Array, z: Array, zd: Array, zdd: Array) -> Array:
        # first order suffices for the gradient
        q = q + (loop_motion(objective.model, q, zd)[0] @ (z - at) if objective.model.loops else z - at)
        return jnp.asarray(objective.gears) @ torque_regressor(objective.model, q, zd, zdd, friction_speed=slowest)

    def value(x: Array) -> Array:
        z, zd, zdd = trajectory(objective, series, *within(series, x))
        Y = jax.vmap(of_sample)(q_closed, z_closed, z, zd, zdd)
        Y = Y * (jnp.asarray(objective.weight) * jnp.sqrt(objective.samples / len(Y)))[:, None]
        rows = jnp.einsum("kip,upr->ukir", Y, jnp.asarray(objective.columns))
        return _criterion(objective, rows.reshape(-1, rows.shape[-1]))

    return jax.value_and_grad(value)(choice)


def _criterion(objective: MotionObjective, rows: Array) -> Array:
    made, wanted = jnp.asarray(objective.made), jnp.asarray(objective.wanted)
    information = made.T @ made + rows.T @ rows
    if objective.by_condition:
        size = jnp.sqrt(jnp.diag(information))
        values = jnp.linalg.eigvalsh(information / jnp.outer(size, size))
        return 0.5 * (jnp.log(values[-1]) - jnp.log(values[0]))
    factor = jnp.linalg.cholesky(information)
    if not wanted.shape[0]:
        return -2.0 * jnp.sum(jnp.log(jnp.diag(factor)))
    return jnp.log(jnp.sum(jax.scipy.linalg.solve_triangular(factor, wanted.T, lower=True) ** 2))
