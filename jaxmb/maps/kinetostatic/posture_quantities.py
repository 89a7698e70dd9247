"""Dexterity, stiffness and deflection at any number of postures, computed in batches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.io.validation import known_name
from jaxmb.machine.build import Model
from jaxmb.maps.batches import batch_size_for, in_batches
from jaxmb.maps.kinetostatic.characteristic_length import CHUNK
from jaxmb.maps.kinetostatic.dexterity import DIRECTIONS, inverse_condition, normalized_jacobian
from jaxmb.maps.kinetostatic.load_response import (
    load_influence,
    principal_stiffness,
    stiffness_along,
    translational_compliance,
)
from jaxmb.maps.postures.place_solver import check_all_closed
from jaxmb.mechanics.kinematics import joints_moving_frame
from jaxmb.mechanics.loops import check_open_chain
from jaxmb.response.static import check_wrench


@dataclass(frozen=True)
class Quantity:
    """Label, unit and sense of a quantity."""

    label: str
    unit: str
    higher_is_better: bool
    needs: tuple[str, ...] = ()
    """Required settings: "wrench", "direction"."""


QUANTITIES = {
    "dexterity": Quantity("inverse condition number $1/\\kappa_F(J_N)$", "", True),
    "nu_p": Quantity("influence of $K_C$ on the translation $\\nu_p$", "", False, ("wrench",)),
    "nu_r": Quantity("influence of $K_C$ on the rotation $\\nu_r$", "rad", False, ("wrench",)),
    "deflection": Quantity("deflection under the load", "m", False, ("wrench",)),
    "stiffness": Quantity("stiffness along the direction", "N/m", True, ("direction",)),
    "least_stiffness": Quantity("stiffness in the softest direction", "N/m", True),
    "greatest_stiffness": Quantity("stiffness in the stiffest direction", "N/m", True),
}
"""Quantities by name. Translational stiffness and deflection are of the frame's origin, to first order in the load."""


@dataclass(frozen=True)
class MapSettings:
    """Settings of the quantities other than the posture."""

    length_m: float
    """Characteristic length of the dexterity."""
    joints: tuple[str, ...]
    """Coordinates of the dexterity."""
    directions: tuple[str, ...] = DIRECTIONS
    """Components of the twist of the dexterity."""
    wrench: tuple[float, ...] | None = None
    """Force [N] then moment [Nm] on the frame, ground axes."""
    direction: tuple[float, ...] | None = None
    """Direction of "stiffness", ground axes, any length."""


def checked_settings(
    model: Model,
    quantities: Sequence[str],
    frame: str,
    length: float,
    joints: Sequence[str] | None,
    directions: Sequence[str],
    wrench: Sequence[float] | np.ndarray | None,
    direction: Sequence[float] | np.ndarray | None,
) -> MapSettings:
    """Settings for quantities of a frame, after validation.

    Raises:
        ValueError: a name is unknown, a number is out of its range, or a required setting is missing.
        NotImplementedError: a quantity is a change of stiffness under load and the machine has loops.
    """
    if not quantities:
        raise ValueError(f"quantities: found none, expected some of {', '.join(QUANTITIES)}")
    given = {"wrench": wrench, "direction": direction}
    for name in quantities:
        if name not in QUANTITIES:
            raise ValueError(known_name("quantity", name, QUANTITIES))
        if name in GROUPS["influence"]:
            check_open_chain(model, f"a map of '{name}'")
        for need in QUANTITIES[name].needs:
            if given[need] is None:
                raise ValueError(f"a map of '{name}' needs a {need}, found none")
    if not (np.isfinite(length) and length > 0.0):
        raise ValueError(f"length: {length:g} m, expected more than 0")
    load = None if wrench is None else np.asarray(wrench, dtype=float)
    if load is not None:
        check_wrench(jnp.asarray(load))
        if not np.all(np.isfinite(load)):
            raise ValueError(f"wrench: {load}, expected finite numbers")
    along = None if direction is None else np.asarray(direction, dtype=float)
    if along is not None and (along.shape != (3,) or not np.all(np.isfinite(along)) or not np.any(along)):
        raise ValueError(f"direction: {along}, expected three numbers, not all 0")
    return MapSettings(
        length_m=float(length),
        joints=joints_moving_frame(model, frame, joints),
        directions=tuple(directions),
        wrench=None if load is None else tuple(load.tolist()),
        direction=None if along is None else tuple(along.tolist()),
    )


def posture_quantities(
    model: Model, postures: Float[np.ndarray, "p n"], quantities: Sequence[str], frame: str, settings: MapSettings
) -> dict[str, Float[np.ndarray, "p"]]:
    """Quantities of a frame at postures, arrays [p] by name, computed in batches.

    Args:
        model: the machine.
        postures: coordinates of each posture [p, n], rad or m.
        quantities: of `QUANTITIES`; and "determinant", det J_N, 0 if J_N is not square.
        frame: name of the frame.
        settings: length, joints, components, wrench and direction.

    Raises:
        ValueError: loops of the machine are open at a posture.
    """
    check_all_closed(model, postures)
    size = batch_size_for(len(postures), CHUNK, len(model.coordinates) + 6 * len(model.elastic_nodes))
    wrench = jnp.zeros(6) if settings.wrench is None else jnp.asarray(settings.wrench)
    direction = jnp.array([0.0, 0.0, 1.0]) if settings.direction is None else jnp.asarray(settings.direction)
    arrays = (jnp.asarray(settings.length_m), wrench, direction)
    names = (frame, settings.joints, settings.directions)
    # One program per group, so that another selection of quantities reuses the compiled ones.
    groups = [group for group, given in GROUPS.items() if set(given) & set(quantities)]
    found = {}
    for group in groups:
        values = in_batches(lambda q, group=group: _batch(model, q, *arrays, group, *names), size, postures)
        found |= dict(zip(GROUPS[group], values, strict=True))
    return {name: found[name] for name in quantities}


GROUPS = {
    "dexterity": ("dexterity",),
    "determinant": ("determinant",),
    "influence": ("nu_p", "nu_r"),
    "compliance": ("deflection", "stiffness", "least_stiffness", "greatest_stiffness"),
}
"""Quantities computed by one program."""


@compiled
def _batch(
    model: Model,
    postures: Float[Array, "p n"],
    length: Float[Array, ""],
    wrench: Float[Array, "6"],
    direction: Float[Array, "3"],
    group: str,
    frame: str,
    joints: tuple[str, ...],
    directions: tuple[str, ...],
) -> tuple[Array, ...]:
    def condition(q: Array) -> tuple[Array, ...]:
        return (inverse_condition(normalized_jacobian(model, q, frame, length, joints, directions)),)

    def determinant(q: Array) -> tuple[Array, ...]:
        if len(joints) != len(directions):
            return (jnp.zeros(()),)
        return (jnp.linalg.det(normalized_jacobian(model, q, frame, length, joints, directions)),)

    def influence(q: Array) -> tuple[Array, ...]:
        return load_influence(model, q, frame, wrench)

    def compliance(q: Array) -> tuple[Array, ...]:
        c = translational_compliance(model, q, frame)
        least, greatest = principal_stiffness(c[:, :3])
        return jnp.linalg.norm(c @ wrench), stiffness_along(c[:, :3], direction), least, greatest

    computes = (condition, determinant, influence, compliance)
    compute: Callable[[Array], tuple[Array, ...]] = dict(zip(GROUPS, computes, strict=True))[group]
    return jax.vmap(compute)(postures)
