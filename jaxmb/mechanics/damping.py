"""Damping matrices of the linearized equations, over all coordinates followed by the elastic ones."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmb.machine.build import Model
from jaxmb.mechanics.dynamics import beam_effort, spring_effort, transmission_rates


def viscous_damping(
    model: Model, q_rest: Float[Array, "x"], point: Float[Array, "x"], mass: Float[Array, "x x"]
) -> Float[Array, "x x"]:
    """Viscous damping matrix C [x, x] of a machine at rest: dampers, and alpha M + beta K_e of Rayleigh damping.

    K_e is the sum of J^T k J of all springs, J the derivative of the stretch, and of the stiffness matrices of beam
    elements: a damper beta k parallel to each spring. It excludes the geometric stiffness of gravity and preload.

    Args:
        model: the machine.
        q_rest: configuration [x] in which the springs are unloaded, rad or m.
        point: configuration [x] of the linearization.
        mass: M there [x, x].

    Source: Rayleigh, The Theory of Sound, 1877; Géradin and Rixen, Mechanical Vibrations, 2015.
    """
    own = model.damping, model.spring_damping
    damping = _damping_matrix(model, *own, q_rest, point, model.rayleigh_stiffness) + model.rayleigh_mass * mass
    if not model.transmissions:
        return damping
    c = transmission_rates(model, point)
    return damping + c.T @ (model.transmission_damping[:, None] * c)


def rayleigh_damping(
    model: Model, q_rest: Float[Array, "x"], point: Float[Array, "x"], mass: Float[Array, "x x"]
) -> Float[Array, "x x"]:
    """Rayleigh part of `viscous_damping`, alpha M + beta K_e."""
    no_dampers = jnp.zeros_like(model.damping), jnp.zeros_like(model.spring_damping)
    return _damping_matrix(model, *no_dampers, q_rest, point, model.rayleigh_stiffness) + model.rayleigh_mass * mass


def structural_damping(model: Model, q_rest: Float[Array, "x"], point: Float[Array, "x"]) -> Float[Array, "x x"] | None:
    """D of structural damping, stiffness times loss factors; None where the machine has none."""
    if not model.structural:
        return None
    lossy = dataclasses.replace(
        model,
        stiffness=model.stiffness * model.loss_factor,
        spring_stiffness=model.spring_stiffness * model.spring_loss_factor,
    )

    def effort(x: Array) -> Array:
        elastic = spring_effort(lossy, x, jnp.zeros_like(x), q_rest)
        return elastic + beam_effort(model, x - q_rest, model.beam_loss_factor)

    return jax.jacfwd(effort)(point)


def elastic_stiffness(model: Model, q_rest: Float[Array, "x"], point: Float[Array, "x"]) -> Float[Array, "x x"]:
    """K_e (`viscous_damping`): stiffness matrix of springs and beams without preload."""
    no_dampers = jnp.zeros_like(model.damping), jnp.zeros_like(model.spring_damping)
    return _damping_matrix(model, *no_dampers, q_rest, point, 1.0)


def _damping_matrix(
    model: Model, damping: Float[Array, "n"], spring_damping: Float[Array, "s"], q_rest: Array, point: Array,
    beta: Array | float,
) -> Float[Array, "x x"]:  # fmt: skip
    """Damping matrix of dampers, and of dampers beta k parallel to each spring and beam."""
    damped = dataclasses.replace(
        model,
        damping=damping + beta * model.stiffness,
        spring_damping=spring_damping + beta * model.spring_stiffness,
    )

    def effort(rate: Array) -> Array:
        return spring_effort(damped, point, rate, q_rest) + beam_effort(model, rate, beta)

    return jax.jacfwd(effort)(jnp.zeros_like(point))
