"""Mass, damping and stiffness of small motions about a posture."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmb.machine.build import Model
from jaxmb.mechanics.dynamics import elastic_effort, gravity_effort, inverse_dynamics, mass_matrix
from jaxmb.mechanics.equilibrium import static_equilibrium
from jaxmb.mechanics.kinematics import check_coordinates, check_rigid_links

LinearizeAt = Literal["posture", "equilibrium"]


class Tangent(eqx.Module):
    """Tangent matrices [n, n] of the equations of motion: M dq'' + C dq' + K dq = 0."""

    mass: Float[Array, "n n"]
    damping: Float[Array, "n n"]
    stiffness: Float[Array, "n n"]


def working_point(model: Model, q: Float[Array, "n"], at: LinearizeAt = "posture") -> Float[Array, "n"]:
    """Coordinates about which a test at posture q is linearized, the springs being unloaded at q.

    "posture": q itself, as in Huynh et al. 2020, eq. 17; "equilibrium": where the machine sags to under gravity.
    """
    if at not in ("posture", "equilibrium"):
        raise ValueError(f"at is '{at}', expected 'posture' or 'equilibrium'")
    return q if at == "posture" else static_equilibrium(model, q)


@eqx.filter_jit
def linearize(model: Model, q: Float[Array, "n"], at: LinearizeAt = "posture") -> Tangent:
    """Tangent matrices of the machine at rest in a posture, the springs unloaded there.

    M = df/dqdd, C = df/dqd, K = df/dq of the residual f (`inverse_dynamics`); gravity enters K by its geometric
    stiffness. All three are symmetric.

    Args:
        model: the machine.
        q: posture [n], rad or m.
        at: "posture" takes the derivatives at q, as the paper does; "equilibrium" first lets the machine sag under
            gravity and takes them there.

    Raises:
        ValueError: q does not have the machine's n coordinates, or `at` is neither of the two.
        RuntimeError: no equilibrium was found.

    Source: Huynh et al. 2020, eq. 15-17.
    """
    check_coordinates(model, q=q)
    return tangent_about(model, q, working_point(model, q, at))


def tangent_about(model: Model, q_rest: Float[Array, "n"], point: Float[Array, "n"]) -> Tangent:
    """Tangent matrices of the machine at rest at a point, the springs unloaded at q_rest."""

    check_rigid_links(model)

    # At rest df/dq and df/dqd see only gravity, springs and dampers: the inertial terms are of second order there.
    rest = jnp.zeros_like(point)
    stiffness = jax.jacfwd(lambda x: gravity_effort(model, x) + elastic_effort(model, x, rest, q_rest))(point)
    damping = jax.jacfwd(lambda xd: elastic_effort(model, point, xd, q_rest))(rest)
    return Tangent(mass_matrix(model, point), damping, stiffness)


@eqx.filter_jit
def linearize_moving(
    model: Model,
    q: Float[Array, "n"],
    qd: Float[Array, "n"],
    qdd: Float[Array, "n"],
    q_rest: Float[Array, "n"] | None = None,
) -> Tangent:
    """Tangent matrices of the machine in motion: C and K then hold gyroscopic, centrifugal and inertial terms.

    Args:
        model: the machine.
        q: coordinates [n], rad or m.
        qd: their velocities [n].
        qdd: their accelerations [n].
        q_rest: where the springs are unloaded [n]; the reference posture where not given.

    Raises:
        ValueError: an argument does not have the machine's n coordinates.

    Source: Huynh et al. 2020, eq. 14 and 17, at non-zero velocity.
    """

    def residual(x: Array, xd: Array, xdd: Array) -> Array:
        return inverse_dynamics(model, x, xd, xdd, q_rest)

    stiffness, damping, mass = jax.jacfwd(residual, argnums=(0, 1, 2))(q, qd, qdd)
    return Tangent(mass, damping, stiffness)
