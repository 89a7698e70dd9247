"""Information of a motion on the parameters, and the minimised design criterion."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmb.compiled import compiled
from jaxmb.identify.plan.motions.series import Series, within
from jaxmb.identify.regression.torque_regressor import stacked_torque_regressor, torque_regressor
from jaxmb.machine.build import Model
from jaxmb.mechanics.loop_path import closed_along
from jaxmb.mechanics.loops import independent_coordinates, loop_motion

APPROACH_STEPS = 256
"""Steps from the reference posture to the start of a motion, along which loops are closed."""
SMOOTH = 0.1
"""Speed over the smallest speed limit below which the sign of Coulomb friction is smoothed during the optimization."""


class Aim(eqx.Module):
    """Design objective of motions: machine, parameters, noise and prior information."""

    model: Model
    moved: Int[np.ndarray, "m"]
    """Indices of the driven coordinates among the independent ones."""
    rest: Float[np.ndarray, "i"]
    """All independent coordinates at rest, rad or m."""
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


class Along(NamedTuple):
    """Trajectory samples of the independent coordinates: positions, rates and accelerations, SI units."""

    z: Float[np.ndarray, "K i"]
    zd: Float[np.ndarray, "K i"]
    zdd: Float[np.ndarray, "K i"]


def criterion_of(aim: Aim, rows: np.ndarray) -> float:
    """Design criterion: -log det M over the directions; log of the sum of squares of the target parameters' standard
    deviations over their tolerances; or log of the condition number of the rows with columns scaled to length 1."""
    return float(compiled(_criterion)(aim, jax.device_put(rows)))


def rows_along(aim: Aim, along: Along) -> Float[np.ndarray, "runs K i p"]:
    """Rows of Y over their standard deviations, scaled so that they sum up to the information of a whole motion."""
    Y = stacked_torque_regressor(aim.model, closed(aim, along.z), along.zd, along.zdd)
    return Y * (aim.weight * np.sqrt(aim.samples / len(along.z)))[:, None]


def closed(aim: Aim, z: np.ndarray) -> np.ndarray:
    """All coordinates [K, n] along a motion, on the branch of the reference posture.

    Raises:
        ValueError: a loop cannot be closed along the motion.
    """
    model = aim.model
    if not model.loops:
        return z
    reference = np.asarray(model.reference)
    first = reference[[model.coordinates.index(name) for name in independent_coordinates(model)]]
    approach = first + np.linspace(0.0, 1.0, APPROACH_STEPS, endpoint=False)[:, None] * (z[0] - first)
    return closed_along(model, np.concatenate([approach, z]), reference)[APPROACH_STEPS:]


def states(aim: Aim, series: Series, c: np.ndarray, start: np.ndarray) -> Along:
    """Trajectory samples of all independent coordinates, in NumPy."""
    z = np.tile(aim.rest, (len(series.position), 1))
    zd, zdd = np.zeros_like(z), np.zeros_like(z)
    z[:, aim.moved] = start + series.position @ c.T
    zd[:, aim.moved] = series.velocity @ c.T
    zdd[:, aim.moved] = series.acceleration @ c.T
    return Along(z, zd, zdd)


@compiled
def positions(aim: Aim, series: Series, choice: Array) -> Float[Array, "K i"]:
    """Independent coordinates along the motion of an optimization vector."""
    return _states(aim, series, choice)[0]


@compiled
def value_and_slope(
    aim: Aim, series: Series, choice: Array, q_closed: Array, z_closed: Array
) -> tuple[Float[Array, ""], Float[Array, "m v+1"]]:
    """Criterion of an optimization vector, and its gradient.

    Args:
        aim: design objective.
        series: of the motion.
        choice: optimization vector [m, v+1], see `within`.
        q_closed: all coordinates along the motion [K, n], loops closed.
        z_closed: independent coordinates along the motion [K, i].
    """
    slowest = SMOOTH * jnp.min(jnp.asarray(series.limits.speed))

    def of_sample(q: Array, at: Array, z: Array, zd: Array, zdd: Array) -> Array:
        # first order suffices for the gradient
        q = q + (loop_motion(aim.model, q, zd)[0] @ (z - at) if aim.model.loops else z - at)
        return torque_regressor(aim.model, q, zd, zdd, friction_speed=slowest)

    def value(x: Array) -> Array:
        z, zd, zdd = _states(aim, series, x)
        Y = jax.vmap(of_sample)(q_closed, z_closed, z, zd, zdd)
        Y = Y * (jnp.asarray(aim.weight) * jnp.sqrt(aim.samples / len(Y)))[:, None]
        rows = jnp.einsum("kip,upr->ukir", Y, jnp.asarray(aim.columns))
        return _criterion(aim, rows.reshape(-1, rows.shape[-1]))

    return jax.value_and_grad(value)(choice)


def _states(aim: Aim, series: Series, choice: Array) -> tuple[Array, Array, Array]:
    c, start = within(series, choice)
    rest = jnp.tile(jnp.asarray(aim.rest), (len(series.position), 1))
    z = rest.at[:, aim.moved].set(start + series.position @ c.T)
    zd, zdd = (jnp.zeros_like(rest).at[:, aim.moved].set(p @ c.T) for p in (series.velocity, series.acceleration))
    return z, zd, zdd


def _criterion(aim: Aim, rows: Array) -> Array:
    made, wanted = jnp.asarray(aim.made), jnp.asarray(aim.wanted)
    information = made.T @ made + rows.T @ rows
    if aim.by_condition:
        size = jnp.sqrt(jnp.diag(information))
        values = jnp.linalg.eigvalsh(information / jnp.outer(size, size))
        return 0.5 * (jnp.log(values[-1]) - jnp.log(values[0]))
    factor = jnp.linalg.cholesky(information)
    if not wanted.shape[0]:
        return -2.0 * jnp.sum(jnp.log(jnp.diag(factor)))
    return jnp.log(jnp.sum(jax.scipy.linalg.solve_triangular(factor, wanted.T, lower=True) ** 2))
