"""Joint commands that compensate deviations of the geometry and deflections under weight and load, and the reverse."""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmb.compiled import compiled, numeric_arguments
from jaxmb.machine.build import Model
from jaxmb.mechanics.compliance import elastic_deflection, repeated_steps, weight_deflection
from jaxmb.mechanics.kinematics import (
    check_coordinates,
    check_wrench,
    frame_index,
    frame_jacobian,
    frame_offsets,
    frame_pose,
    node_poses,
    whole,
)
from jaxmb.mechanics.loops import check_open_chain
from jaxmb.spatial import displacement

MOST_STEPS = 30
CONVERGED = 1e-9
"""Largest last step of a coordinate, rad or m."""


def nominal_model(model: Model) -> Model:
    """The machine without deviations from its stated geometry, as its controller knows it."""
    return dataclasses.replace(
        model,
        origin_deviation=jnp.zeros_like(model.origin_deviation),
        zero=jnp.zeros_like(model.zero),
        reading_scale=jnp.ones_like(model.reading_scale),
        frame_deviation=jnp.zeros_like(model.frame_deviation),
        deviates=False,
    )


@numeric_arguments("q", "wrench")
@compiled
def actual_pose(
    model: Model, q: Float[Array, "n"], frame: str = "tool", wrench: Float[Array, "6"] | None = None
) -> Float[Array, "4 4"]:
    """Pose of a frame of the real machine at joint commands, deflected under its weight and a load.

    Args:
        model: the identified machine.
        q: commands [n], which its drives hold, rad or m.
        frame: name of the frame.
        wrench: force [N] then moment [Nm] at its origin, ground axes [6]; by default none.

    Returns:
        T [4, 4] in the ground frame. Deflections under weight and load are added, which holds to first order.

    Raises:
        ValueError: shapes or names are wrong.
        NotImplementedError: the machine has loops.
    """
    check_coordinates(model, q=q)
    check_wrench(wrench)
    check_open_chain(model, "compensation")
    deflection = weight_deflection(model, q)
    if wrench is not None:
        deflection = deflection + elastic_deflection(model, q, frame, wrench)
    index = frame_index(model, frame)
    return node_poses(model, whole(model, q) + deflection)[model.frame_node[index]] @ frame_offsets(model)[index]


@numeric_arguments("q", "wrench")
@compiled
def compensate(
    model: Model, q: Float[Array, "n"], frame: str = "tool", wrench: Float[Array, "6"] | None = None
) -> Float[Array, "n"]:
    """Joint commands with which the frame of the real machine is where that of the nominal machine would be.

    The nominal machine is rigid and has no deviations. Newton steps q_c <- q_c + J^+ d, d the displacement from the
    actual pose to the nominal one; with fewer than six coordinates the least squares of d, 1 m as much as 1 rad.

    Args:
        model: the identified machine.
        q: nominal joint values [n], rad or m.
        frame: name of the frame.
        wrench: load at its origin [6], see `actual_pose`.

    Returns:
        q_c [n]; NaN where the steps do not converge, as at a singular posture. Use `jax.vmap` for a path.

    Raises:
        ValueError: shapes or names are wrong.
        NotImplementedError: the machine has loops.
    """
    target = frame_pose(nominal_model(model), q, frame)
    return _solved(lambda x: displacement(actual_pose(model, x, frame, wrench), target), model, q, frame)


@numeric_arguments("q", "wrench")
@compiled
def nominal_values(
    model: Model, q: Float[Array, "n"], frame: str = "tool", wrench: Float[Array, "6"] | None = None
) -> Float[Array, "n"]:
    """Joint values at which the nominal machine has the pose of the real one at joint commands: the reverse of
    `compensate`.

    Args:
        model: the identified machine.
        q: commands [n], rad or m.
        frame: name of the frame.
        wrench: load at its origin [6], see `actual_pose`.

    Returns:
        Nominal joint values [n]; NaN where the steps do not converge.
    """
    target, nominal = actual_pose(model, q, frame, wrench), nominal_model(model)
    return _solved(lambda x: displacement(frame_pose(nominal, x, frame), target), nominal, q, frame)


def _solved(error: Callable[[Array], Array], model: Model, start: Float[Array, "n"], frame: str) -> Float[Array, "n"]:
    """Coordinates with the least displacement, by Newton steps with the Jacobian of the rigid machine."""

    def step(x: Array) -> Array:
        return jnp.linalg.pinv(frame_jacobian(model, x, frame), rtol=1e-9) @ error(x)

    found = repeated_steps(step, start, 1e-13, MOST_STEPS)
    return jnp.where(jnp.max(jnp.abs(step(found))) <= CONVERGED, found, jnp.nan)
