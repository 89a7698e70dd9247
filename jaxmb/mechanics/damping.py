"""Damping matrices of the linearized equations, over all coordinates followed by the elastic ones."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmb.machine.build import Model
from jaxmb.mechanics.dynamics import beam_effort, gravity_effort, spring_effort, transmission_rates
from jaxmb.mechanics.kinematics import whole
from jaxmb.mechanics.loops import motion_basis


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


def with_loaded_stiffness(model: Model, q: Float[Array, "n"]) -> Model:
    """The model with the stiffness of its coordinates under load at a posture; unchanged where it is constant.

    k = k0 (1 + c |effort|), c the `stiffness_slope`, effort the static effort at q against gravity and springs of a
    free length (gravity compensators), N m or N. In closed loops, whose members share the load, it is the coordinate's
    share for the first-order deflection from q with stiffnesses k0, all springs being unloaded at q.

    Args:
        model: the machine.
        q: posture [n], rad or m; elastic coordinates behind it are ignored, beams are straight.

    Source: Rognant et al. 2010, section II-E, "stiffness value expressed as a function of the local effort".
    """
    if not any(model.load_dependent):
        return model
    n = len(model.coordinates)
    configuration = whole(model, q[:n])
    effort = gravity_effort(model, configuration) + spring_effort(
        model, configuration, jnp.zeros_like(configuration), configuration
    )
    if model.loops:
        columns = motion_basis(model, configuration)
        stiffness_matrix = columns.T @ elastic_stiffness(model, configuration, configuration) @ columns
        effort = (
            model.stiffness * (columns @ jnp.linalg.pinv(stiffness_matrix, hermitian=True) @ columns.T @ effort)[:n]
        )
    else:
        effort = effort[:n]
    stiffness = model.stiffness * (1.0 + model.stiffness_slope * jnp.abs(effort))
    return dataclasses.replace(
        model,
        stiffness=stiffness,
        stiffness_slope=jnp.zeros_like(model.stiffness_slope),
        load_dependent=(False,) * n,
    )


def check_constant_stiffness(model: Model, label: str) -> None:
    """Raise NotImplementedError where the stiffness of a coordinate depends on its load."""
    if any(model.load_dependent):
        name = model.coordinates[model.load_dependent.index(True)]
        raise NotImplementedError(
            f"{label}: '{name}' of '{model.name}' has a stiffness_slope, expected joints of constant stiffness"
        )
