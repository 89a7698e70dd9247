"""What a map shows, at any number of postures, computed in batches."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.machine.build import Model
from jaxmb.maps.dexterity import CHUNK, inverse_condition, normalized_jacobian
from jaxmb.maps.posture_indices import load_influence, principal_stiffness, stiffness_along, translational_compliance
from jaxmb.mechanics.kinematics import frame_index, node_poses


def posture_quantities(
    model: Model,
    postures: np.ndarray,
    quantities: Sequence[str],
    frame: str,
    shown: str,
    length: float,
    wrench: np.ndarray,
    direction: np.ndarray,
    joints: Sequence[str],
    directions: Sequence[str],
) -> dict[str, np.ndarray]:
    """Quantities at any postures [p, n], computed in chunks: arrays [p, ...] by name.

    Beside `QUANTITIES` of `maps` there are "position" [p, 3] of the shown frame, and "side" [p], the sign of
    det J, 0 where J is not square.
    """
    count = len(postures)
    size = min(CHUNK, count)
    arrays = (jnp.asarray(length), jnp.asarray(wrench), jnp.asarray(direction))
    names = (frame, shown, tuple(joints), tuple(directions))
    # One program each, so that another choice of quantities compiles nothing that was compiled before.
    groups = [group for group, given in GROUPS.items() if set(given) & set(quantities)]
    found: dict[str, list[np.ndarray]] = {name: [] for name in quantities}
    for group in groups:
        for first in range(0, count, size):
            rows = postures[first : first + size]
            padded = np.concatenate([rows, np.tile(rows[-1:], (size - len(rows), 1))])
            for name, values in _batch(model, jnp.asarray(padded), *arrays, group, *names).items():
                if name in found:
                    found[name].append(np.asarray(values)[: len(rows)])
    return {name: np.concatenate(parts) for name, parts in found.items()}


GROUPS = {
    "kinematics": ("dexterity", "position"),
    "side": ("side",),
    "influence": ("nu_p", "nu_r"),
    "compliance": ("deflection", "stiffness", "least_stiffness", "greatest_stiffness"),
}
"""What is computed together."""


@eqx.filter_jit
def _batch(
    model: Model,
    postures: Float[Array, "p n"],
    length: Float[Array, ""],
    wrench: Float[Array, "6"],
    direction: Float[Array, "3"],
    group: str,
    frame: str,
    shown: str,
    joints: tuple[str, ...],
    directions: tuple[str, ...],
) -> dict[str, Array]:
    def kinematics(q: Array) -> tuple[Array, ...]:
        index = frame_index(model, shown)
        place = node_poses(model, q)[model.frame_node[index]] @ model.frame_offset[index]
        return inverse_condition(normalized_jacobian(model, q, frame, length, joints, directions)), place[:3, 3]

    def side(q: Array) -> tuple[Array, ...]:
        if len(joints) != len(directions):
            return (jnp.zeros(()),)
        return (jnp.linalg.slogdet(normalized_jacobian(model, q, frame, length, joints, directions))[0],)

    def influence(q: Array) -> tuple[Array, ...]:
        return load_influence(model, q, frame, wrench)

    def compliance(q: Array) -> tuple[Array, ...]:
        moved = translational_compliance(model, q, frame)
        least, greatest = principal_stiffness(moved[:, :3])
        return jnp.linalg.norm(moved @ wrench), stiffness_along(moved[:, :3], direction), least, greatest

    computes = (kinematics, side, influence, compliance)
    compute: Callable[[Array], tuple[Array, ...]] = dict(zip(GROUPS, computes, strict=True))[group]
    return dict(zip(GROUPS[group], jax.vmap(compute)(postures), strict=True))
