"""Joints whose stiffness depends on the load that they carry."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmb.machine.build import Model
from jaxmb.mechanics.damping import elastic_stiffness
from jaxmb.mechanics.dynamics import gravity_effort, spring_effort
from jaxmb.mechanics.kinematics import whole
from jaxmb.mechanics.loops import motion_columns


def at_load(model: Model, q: Float[Array, "n"]) -> Model:
    """The model with the stiffness that its coordinates have under load at a posture; itself where it is constant.

    k = k0 (1 + c |effort|), c the `stiffness_slope`, effort what holds the coordinate at q against gravity and springs
    of a free length (gravity compensators), N m or N. In closed loops, whose members share the load, it is the
    coordinate's share where the machine sags from q, where no spring carries anything, by stiffnesses k0 and to first
    order.

    Args:
        model: the machine.
        q: posture [n], rad or m; elastic coordinates behind it do not count, beams are straight.

    Source: Rognant et al. 2010, section II-E, "stiffness value expressed as a function of the local effort".
    """
    if not any(model.load_dependent):
        return model
    n = len(model.coordinates)
    place = whole(model, q[:n])
    effort = gravity_effort(model, place) + spring_effort(model, place, jnp.zeros_like(place), place)
    if model.loops:
        columns = motion_columns(model, place)
        held = columns.T @ elastic_stiffness(model, place, place) @ columns
        effort = model.stiffness * (columns @ jnp.linalg.pinv(held, hermitian=True) @ columns.T @ effort)[:n]
    else:
        effort = effort[:n]
    stiffness = model.stiffness * (1.0 + model.stiffness_slope * jnp.abs(effort))
    return dataclasses.replace(
        model,
        stiffness=stiffness,
        stiffness_slope=jnp.zeros_like(model.stiffness_slope),
        load_dependent=(False,) * n,
    )


def check_constant_stiffness(model: Model, what: str) -> None:
    """Raise NotImplementedError where the stiffness of a coordinate depends on its load, which is not known there."""
    if any(model.load_dependent):
        name = model.coordinates[model.load_dependent.index(True)]
        raise NotImplementedError(
            f"{what}: '{name}' of '{model.name}' has a stiffness_slope, expected joints of constant stiffness"
        )
