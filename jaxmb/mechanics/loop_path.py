"""Motions of closed chains: loops closed at every sample, each from the one before."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.machine.build import Model
from jaxmb.mechanics.loops import OPEN, check_closed, closing, independent_coordinates, loop_gaps, motion_map
from jaxmb.mechanics.postures import MOST_BESIDE

STEPS = 4
"""Newton's steps at each sample: each doubles the digits, and the first error is of the square of the way."""


def closed_along(
    model: Model, z: Float[np.ndarray, "k m"], near: Float[np.ndarray, "*k n"]
) -> Float[np.ndarray, "k n"]:
    """All coordinates along a motion of the independent ones, on the branch of a posture that is near its start.

    Each sample is predicted by the motion map from the one before, and closed by Newton's method.

    Args:
        model: the machine; one without loops has nothing that follows.
        z: independent coordinates, in the order of `independent_coordinates` [k, m], rad or m.
        near: a closed posture [n] at or near the first sample; or one for each sample [k, n], which are then closed
            all at once.

    Raises:
        ValueError: a loop opens on the way; the sample is named.
    """
    if not model.loops:
        return z
    if near.ndim == 2:
        q, left = map(np.asarray, _closed(model, jnp.asarray(z), jnp.asarray(near)))
    else:
        check_closed(model, near, "near")
        q, left = map(np.asarray, _followed(model, jnp.asarray(z), jnp.asarray(near)))
    open_at = np.flatnonzero(~(left <= OPEN))
    if open_at.size:
        names = ", ".join(
            f"{name} = {value:.4g}" for name, value in zip(independent_coordinates(model), z[open_at[0]], strict=True)
        )
        raise ValueError(
            f"a loop of '{model.name}' opens at sample {open_at[0] + 1}, {names}: it is out of reach there"
        )
    return q


@compiled
def _followed(model: Model, z: Float[Array, "k m"], near: Float[Array, "n"]) -> tuple[Array, Array]:
    def step(q: Array, there: Array) -> tuple[Array, tuple[Array, Array]]:
        found, left = closed_step(model, q, there)
        return found, (found, left)

    return jax.lax.scan(step, near, z)[1]


@compiled
def _closed(model: Model, z: Float[Array, "k m"], near: Float[Array, "k n"]) -> tuple[Array, Array]:
    return jax.vmap(lambda q, there: closed_step(model, q, there))(near, z)


@compiled
def closed_step(
    model: Model, q: Float[Array, "n"], there: Float[Array, "m"]
) -> tuple[Float[Array, "n"], Float[Array, ""]]:
    """The closed posture with given independent coordinates, from one nearby: where the motion map leads, closed by
    Newton's method. And what is left open, m or rad; infinite where another branch was reached."""
    given = np.array([model.coordinates.index(name) for name in independent_coordinates(model)], dtype=int)
    follow = np.array(model.dependent, dtype=int)
    way = motion_map(model, q) @ (there - q[given])

    def close(_: int, x: Array) -> Array:
        return x.at[follow].add(-closing(model, x))

    closed = jax.lax.fori_loop(0, STEPS, close, (q + way).at[given].set(there))
    beside = jnp.max(jnp.abs(closed - q - way)) > MOST_BESIDE * jnp.max(jnp.abs(way)) + OPEN
    return closed, jnp.where(beside, jnp.inf, jnp.max(jnp.abs(loop_gaps(model, closed))))
