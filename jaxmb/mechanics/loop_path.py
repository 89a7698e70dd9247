"""Motions of closed kinematic chains: loops closed at every sample, each from the previous one."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.machine.build import Model
from jaxmb.mechanics.loops import OPEN, check_closed, closing, independent_coordinates, loop_gaps, motion_map
from jaxmb.mechanics.postures import MOST_BESIDE

STEPS = 4
"""Newton steps at each sample; they converge quadratically from an error of second order in the sample's step."""


def closed_along(
    model: Model, z: Float[np.ndarray, "k m"], near: Float[np.ndarray, "*k n"]
) -> Float[np.ndarray, "k n"]:
    """All coordinates [k, n] along a motion of the independent ones, on the branch of a posture near its start.

    Each sample is predicted by the motion map from the previous one, and closed by Newton's method.

    Args:
        model: the machine; without loops, z is returned.
        z: independent coordinates, in the order of `independent_coordinates` [k, m], rad or m.
        near: a closed posture [n] at or near the first sample; or one for each sample [k, n], which are then closed
            all at once.

    Raises:
        ValueError: a loop cannot be closed; the message names the sample.
    """
    if not model.loops:
        return z
    if near.ndim == 2:
        q, gap_size = map(np.asarray, _closed_each(model, jnp.asarray(z), jnp.asarray(near)))
    else:
        check_closed(model, near, "near")
        q, gap_size = map(np.asarray, _continued(model, jnp.asarray(z), jnp.asarray(near)))
    open_samples = np.flatnonzero(~(gap_size <= OPEN))
    if open_samples.size:
        names = ", ".join(
            f"{name} = {value:.4g}"
            for name, value in zip(independent_coordinates(model), z[open_samples[0]], strict=True)
        )
        raise ValueError(
            f"a loop of '{model.name}' opens at sample {open_samples[0] + 1}, {names}: the posture is out of reach"
        )
    return q


@compiled
def _continued(model: Model, z: Float[Array, "k m"], near: Float[Array, "n"]) -> tuple[Array, Array]:
    def step(q: Array, target: Array) -> tuple[Array, tuple[Array, Array]]:
        found, gap_size = closed_step(model, q, target)
        return found, (found, gap_size)

    return jax.lax.scan(step, near, z)[1]


@compiled
def _closed_each(model: Model, z: Float[Array, "k m"], near: Float[Array, "k n"]) -> tuple[Array, Array]:
    return jax.vmap(lambda q, target: closed_step(model, q, target))(near, z)


@compiled
def closed_step(
    model: Model, q: Float[Array, "n"], target: Float[Array, "m"]
) -> tuple[Float[Array, "n"], Float[Array, ""]]:
    """Closed posture with given independent coordinates, predicted from a nearby one by the motion map and closed by
    Newton's method; and its largest gap, m or rad, infinite where another branch was reached."""
    independent = np.array([model.coordinates.index(name) for name in independent_coordinates(model)], dtype=int)
    dependent = np.array(model.dependent, dtype=int)
    predicted_step = motion_map(model, q) @ (target - q[independent])

    def close(_: int, x: Array) -> Array:
        return x.at[dependent].add(-closing(model, x))

    closed = jax.lax.fori_loop(0, STEPS, close, (q + predicted_step).at[independent].set(target))
    deviates = jnp.max(jnp.abs(closed - q - predicted_step)) > MOST_BESIDE * jnp.max(jnp.abs(predicted_step)) + OPEN
    return closed, jnp.where(deviates, jnp.inf, jnp.max(jnp.abs(loop_gaps(model, closed))))
