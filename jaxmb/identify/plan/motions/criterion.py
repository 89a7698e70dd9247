"""How much a motion tells of parameters: its information, and the criterion that is made small."""

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

WAY = 256
"""Steps from the reference posture to the start of a motion, along which loops are closed."""
SMOOTH = 0.1
"""Of the slowest coordinate's speed limit: below this rate the sign of Coulomb friction is smooth while motions are
improved."""


class Aim(eqx.Module):
    """What motions are to tell, by which machine, and what is known already."""

    model: Model
    moved: Int[np.ndarray, "m"]
    """Places of the coordinates that move among the independent ones."""
    rest: Float[np.ndarray, "i"]
    """All independent coordinates where nothing moves them."""
    columns: Float[np.ndarray, "runs p r"]
    """For each run of the motion, from the directions of the parameters that can be told to the columns of Y."""
    weight: Float[np.ndarray, "i"]
    """1 / standard deviation of the effort at each independent coordinate; 0 where it is not measured."""
    samples: float
    """Independent ones, in one run."""
    made: Float[np.ndarray, "k r"]
    """Rows of what is known before."""
    wanted: Float[np.ndarray, "w r"]
    """Wanted parameters over their tolerances, in these directions; none where all count."""
    by_condition: bool = eqx.field(static=True, default=False)
    """Whether the condition number of the rows is made small, and not what is left unknown."""


class Along(NamedTuple):
    """States along a motion, of the independent coordinates."""

    z: Float[np.ndarray, "K i"]
    zd: Float[np.ndarray, "K i"]
    zdd: Float[np.ndarray, "K i"]


def criterion_of(aim: Aim, rows: np.ndarray) -> float:
    """-log det M of the directions; log of the sum of squares of wanted deviations over their tolerances; or log of the
    condition number of the rows, their columns scaled to length 1."""
    return float(compiled(_criterion)(aim, jax.device_put(rows)))


def rows_along(aim: Aim, along: Along) -> Float[np.ndarray, "runs K i p"]:
    """Rows of Y over their standard deviations, so that their squares sum up to the information of a whole motion."""
    Y = stacked_torque_regressor(aim.model, closed(aim, along.z), along.zd, along.zdd)
    return Y * (aim.weight * np.sqrt(aim.samples / len(along.z)))[:, None]


def closed(aim: Aim, z: np.ndarray) -> np.ndarray:
    """All coordinates along a motion, on the branch of the reference posture.

    Raises:
        ValueError: a loop opens on the way.
    """
    model = aim.model
    if not model.loops:
        return z
    reference = np.asarray(model.reference)
    before = reference[[model.coordinates.index(name) for name in independent_coordinates(model)]]
    way = before + np.linspace(0.0, 1.0, WAY, endpoint=False)[:, None] * (z[0] - before)
    return closed_along(model, np.concatenate([way, z]), reference)[WAY:]


def states(aim: Aim, series: Series, c: np.ndarray, start: np.ndarray) -> Along:
    """Of all independent coordinates, by NumPy."""
    z = np.tile(aim.rest, (len(series.position), 1))
    zd, zdd = np.zeros_like(z), np.zeros_like(z)
    z[:, aim.moved] = start + series.position @ c.T
    zd[:, aim.moved] = series.velocity @ c.T
    zdd[:, aim.moved] = series.acceleration @ c.T
    return Along(z, zd, zdd)


@compiled
def positions(aim: Aim, series: Series, choice: Array) -> Float[Array, "K i"]:
    """Independent coordinates of a choice."""
    return _states(aim, series, choice)[0]


@compiled
def value_and_slope(
    aim: Aim, series: Series, choice: Array, q_closed: Array, z_closed: Array
) -> tuple[Float[Array, ""], Float[Array, "m v+1"]]:
    """Criterion of a choice, and its gradient.

    Args:
        aim: what is to be told.
        series: of the motion.
        choice: see `within`.
        q_closed: all coordinates at the choice, loops closed.
        z_closed: the independent ones there.
    """
    slowest = SMOOTH * jnp.min(jnp.asarray(series.limits.speed))

    def of_sample(q: Array, at: Array, z: Array, zd: Array, zdd: Array) -> Array:
        # to first order, which is what the gradient needs
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
