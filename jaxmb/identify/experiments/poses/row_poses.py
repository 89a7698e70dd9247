"""Poses of points of a machine under its weight, row by row, with derivatives in reverse mode."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.machine.build import Model
from jaxmb.response.static import frame_poses_under_weight
from jaxmb.spatial import rotation_by, rotation_vector, skew


def row_poses(
    model: Model, q: Float[Array, "n"], device: Float[Array, "6"] | None, points: tuple[str, ...], elastic: bool
) -> Float[Array, "p 4 4"]:
    """Poses of points in the ground frame, gravity along the z axis of a levelled device."""
    if device is not None:
        size = jnp.linalg.norm(model.gravity)
        model = dataclasses.replace(model, gravity=-size * rotation_by(device[3:])[:, 2])
    return frame_poses_under_weight(model, q, points, elastic)


@eqx.filter_custom_jvp
def poses_by_row(
    model: Model,
    q: Float[Array, "t n"],
    device: Float[Array, "t 6"] | None,
    points: tuple[str, ...],
    elastic: bool,
    varied: tuple[tuple[bool, bool], ...],
) -> Float[Array, "t p 4 4"]:
    """Poses of points at all rows, differentiated row by row in reverse mode.

    A row has three or six components, a machine tens of free parameters: the derivatives of a row by the numbers of the
    machine are computed once, in reverse mode, and multiplied by all directions. `varied` says of each point whether
    those of its position and of its rotation are needed; the others are left out (0), since they take as much time.
    """
    return jax.vmap(lambda q, device: row_poses(model, q, device, points, elastic))(q, device)


@poses_by_row.def_jvp
def poses_by_row_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    model, q, device, points, elastic, needed = primals
    moving, turning = (np.flatnonzero(np.repeat(each, 3)) for each in np.array(needed).T)
    varies = jax.tree.map(lambda tangent: tangent is not None, tangents[0], is_leaf=lambda tangent: tangent is None)
    varied, constant = eqx.partition(model, varies)

    def row(q: Array, device: Any, by_q: Any, by_device: Any) -> tuple[Array, Array]:
        def twist(varied: Any, q: Array, device: Any) -> tuple[tuple[Array, Array], Array]:
            poses = row_poses(eqx.combine(varied, constant), q, device, points, elastic)
            turn = poses[:, :3, :3] @ jnp.swapaxes(jax.lax.stop_gradient(poses[:, :3, :3]), 1, 2)
            return (poses[:, :3, 3], jax.vmap(rotation_vector)(turn)), poses

        (shift, _), pull, poses = jax.vjp(twist, varied, q, device, has_aux=True)
        basis, zero = np.eye(shift.size).reshape(-1, *shift.shape), jnp.zeros_like(shift)
        directions = tangents[0], by_q, by_device

        def along(slope: Any, component: np.ndarray) -> Array:
            used = eqx.filter(slope, jax.tree.map(lambda t: t is not None, directions, is_leaf=lambda t: t is None))
            parts = zip(jax.tree.leaves(used), jax.tree.leaves(directions), strict=True)
            found = sum((s.reshape(len(s), -1) @ t.ravel() for s, t in parts), start=jnp.zeros(component.size))
            return jnp.zeros(shift.size).at[component].set(found).reshape(shift.shape)

        change = jnp.zeros_like(poses)
        if moving.size:
            moved = along(jax.vmap(lambda c: pull((c, zero)))(basis[moving]), moving)
            change = change.at[:, :3, 3].set(moved)
        if not turning.size:
            return poses, change
        turned = along(jax.vmap(lambda c: pull((zero, c)))(basis[turning]), turning)
        return poses, change.at[:, :3, :3].set(jax.vmap(skew)(turned) @ poses[:, :3, :3])

    return jax.vmap(row)(q, device, tangents[1], tangents[2])


compiled_poses = compiled(lambda *arguments: poses_by_row(*arguments))
