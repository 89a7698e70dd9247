"""Joints with load-dependent stiffness."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmb.machine.build import Model
from jaxmb.mechanics.damping import elastic_stiffness
from jaxmb.mechanics.dynamics import gravity_effort, spring_effort
from jaxmb.mechanics.kinematics import whole
from jaxmb.mechanics.loops import motion_basis


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
