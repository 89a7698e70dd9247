"""Damping matrices of small motions, over all coordinates with the elastic ones behind them."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmb.machine.build import Model
from jaxmb.mechanics.dynamics import beam_effort, spring_effort, transmission_rates


def viscous_damping(
    model: Model, q_rest: Float[Array, "x"], point: Float[Array, "x"], mass: Float[Array, "x x"]
) -> Float[Array, "x x"]:
    """C of a machine at rest at a point: that of dampers, and alpha M + beta K_e of Rayleigh damping.

    K_e is the sum of J^T k J of all springs, J the derivative of the stretch, and of the stiffness matrices of elements
    of beams: beta k is a damper beside each spring. What gravity and preload add to the stiffness is not in it.

    Args:
        model: the machine.
        q_rest: where the springs are unloaded [x], rad or m.
        point: about which the machine moves [x].
        mass: M there [x, x].

    Source: Rayleigh, The Theory of Sound, 1877; Géradin and Rixen, Mechanical Vibrations, 2015.
    """
    own = model.damping, model.spring_damping
    damping = _of_rates(model, *own, q_rest, point, model.rayleigh_stiffness) + model.rayleigh_mass * mass
    if not model.transmissions:
        return damping
    c = transmission_rates(model, point)
    return damping + c.T @ (model.transmission_damping[:, None] * c)


def rayleigh_damping(
    model: Model, q_rest: Float[Array, "x"], point: Float[Array, "x"], mass: Float[Array, "x x"]
) -> Float[Array, "x x"]:
    """The part of `viscous_damping` that is not that of dampers."""
    none = jnp.zeros_like(model.damping), jnp.zeros_like(model.spring_damping)
    return _of_rates(model, *none, q_rest, point, model.rayleigh_stiffness) + model.rayleigh_mass * mass


def structural_damping(model: Model, q_rest: Float[Array, "x"], point: Float[Array, "x"]) -> Float[Array, "x x"] | None:
    """D of structural damping, the springs' stiffness times their loss factors; None where a machine has none."""
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
    """K_e (`viscous_damping`): what springs and beams make of a displacement from where they are, without preload."""
    none = jnp.zeros_like(model.damping), jnp.zeros_like(model.spring_damping)
    return _of_rates(model, *none, q_rest, point, 1.0)


def _of_rates(
    model: Model, damping: Float[Array, "n"], spring_damping: Float[Array, "s"], q_rest: Array, point: Array,
    beta: Array | float,
) -> Float[Array, "x x"]:  # fmt: skip
    """Derivative by the rates of the effort of dampers and of beta k beside each spring, and of beams."""
    damped = dataclasses.replace(
        model,
        damping=damping + beta * model.stiffness,
        spring_damping=spring_damping + beta * model.spring_stiffness,
    )

    def effort(rate: Array) -> Array:
        return spring_effort(damped, point, rate, q_rest) + beam_effort(model, rate, beta)

    return jax.jacfwd(effort)(jnp.zeros_like(point))
