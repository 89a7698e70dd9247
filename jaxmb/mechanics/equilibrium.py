"""Static equilibrium of a machine with springs under gravity and a load."""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxmb.compiled import compiled, numeric_arguments
from jaxmb.io.validation import typed_arguments
from jaxmb.machine.build import Model
from jaxmb.mechanics.beams import element_stiffness
from jaxmb.mechanics.dynamics import elastic_effort, gravity_effort
from jaxmb.mechanics.kinematics import (
    check_constant_stiffness,
    check_coordinates,
    check_no_virtual_springs,
    check_wrench,
    elastic_coordinates,
    frame_jacobian,
    whole,
)
from jaxmb.mechanics.loops import closing, degrees_of_freedom, motion_basis

LOAD_STEPS = 20
"""Increments of a large load."""
MOST_STEPS = 50
SHORTEST_STEP = 1e-6
"""Least fraction of a Newton step in the line search."""


@typed_arguments
@numeric_arguments("q_rest", "wrench")
@compiled
def static_equilibrium(
    model: Model,
    q_rest: Float[Array, "n"],
    frame: str | None = None,
    wrench: Float[Array, "6"] | None = None,
) -> Float[Array, "n"]:
    """Coordinates at which springs, gravity and an external wrench balance, by Newton's method from q_rest.

    R^T (gravity(q) + K (q - q_rest) + (springs between frames and beams) - J_frame(q)^T wrench) = 0, R the `motion_map`
    of closed loops, else the identity.

    Locked coordinates and motor shafts without stiffness stay at q_rest: their drives carry constant loads.

    Args:
        model: the machine.
        q_rest: posture [n] in which all springs are unloaded, rad or m.
        frame: frame on which the wrench acts, or None for gravity alone.
        wrench: force [N] then moment [Nm] on the machine at the frame's origin, ground axes, of constant direction.

    Returns:
        q [n], followed by the elastic coordinates where the machine has beams; differentiable with respect to the model
        and the load (implicit function theorem).

    Raises:
        ValueError: an array has the wrong shape, the frame does not exist, or only one of frame and wrench is given.
        RuntimeError: no equilibrium was found (a coordinate without stiffness under load, or buckling).
        NotImplementedError: a coordinate has a stiffness that depends on its load, or the machine has virtual springs.
    """
    check_coordinates(model, q_rest=q_rest)
    check_no_virtual_springs(model)
    if (frame is None) != (wrench is None):
        raise ValueError("a load needs both a frame and a wrench")
    check_wrench(wrench)
    q = equilibrium_or_nan(model, q_rest, frame, wrench)
    return eqx.error_if(
        q,
        ~jnp.all(jnp.isfinite(q)),
        "no static equilibrium was found: the stiffness of a loaded coordinate is missing or too low",
    )


def equilibrium_or_nan(
    model: Model,
    q_rest: Float[Array, "n"],
    frame: str | None = None,
    wrench: Float[Array, "6"] | None = None,
    lock_without_stiffness: bool = False,
    start: Float[Array, "x"] | None = None,
) -> Float[Array, "n"]:
    """`static_equilibrium` with NaN where there is none, for searches that reject candidates of infinite cost.

    `lock_without_stiffness`: independent coordinates without stiffness stay at q_rest too. Newton's method starts at
    `start`, by default q_rest.
    """
    check_constant_stiffness(model, "static equilibrium")
    q_rest, locked = whole(model, q_rest), fixed_coordinates(model, lock_without_stiffness)

    def external_effort(q: Array) -> Array:
        effort = gravity_effort(model, q)
        if frame is not None and wrench is not None:
            effort = effort - frame_jacobian(model, q, frame).T @ wrench
        return jnp.where(locked, 0.0, effort)

    dependent, independent = (jnp.array(part, dtype=int) for part in (model.following, degrees_of_freedom(model)))

    def imbalance(q: Array) -> Array:
        effort = external_effort(q) + jnp.where(locked, q - q_rest, elastic_effort(model, q, jnp.zeros_like(q), q_rest))
        if not model.following:
            return effort
        projected = motion_basis(model, q).T @ jnp.where(locked, 0.0, effort)
        projected = jnp.where(locked[independent], (q - q_rest)[independent], projected)
        return (
            effort.at[independent].set(projected).at[dependent].set(closing(model, q, model.following, rigid_only=True))
        )

    q = jax.lax.custom_root(imbalance, q_rest if start is None else start, _newton, tangent_solve)
    # The tolerance covers rounding of the stiffest spring's force and of the load.
    stiffness = jnp.concatenate([model.stiffness, element_stiffness(model).diagonal(axis1=1, axis2=2).ravel()])
    largest = jnp.max(jnp.abs(jnp.stack([external_effort(q), external_effort(q_rest), stiffness * jnp.abs(q)])))
    rounding = 1e-14 * jnp.max(model.spring_stiffness, initial=0.0)
    return jnp.where(jnp.max(jnp.abs(imbalance(q))) <= 1e-8 * largest + rounding, q, jnp.nan)


def tangent_solve(linear: Callable[[Array], Array], right: Float[Array, "n"]) -> Float[Array, "n"]:
    """Solution of a dense linear equation, as `jax.lax.custom_root` needs it for derivatives of a root."""
    return jnp.linalg.solve(jax.jacfwd(linear)(right), right)


def loaded_without_gravity(
    model: Model, q_rest: Float[Array, "n"], frame: str, wrench: Float[Array, "6"]
) -> Float[Array, "x"]:
    """Equilibrium of a machine with loops on the path of a load that grows from zero, elastic coordinates last.

    NaN where it becomes unstable on that path or has no equilibrium. Without gravity; drives without stiffness are
    locked.
    """
    weightless = dataclasses.replace(model, gravity=jnp.zeros(3))
    independent = jnp.array(degrees_of_freedom(model), dtype=int)
    free = ~fixed_coordinates(model, without_stiffness=True)[independent]
    both = free[:, None] & free[None, :]
    rest = whole(model, q_rest)

    def effort(q: Array, share: Array) -> Array:
        load = share * frame_jacobian(weightless, q, frame).T @ wrench
        return motion_basis(weightless, q).T @ (elastic_effort(weightless, q, jnp.zeros_like(q), rest) - load)

    def step(q: Array, share: Array) -> tuple[Array, None]:
        balanced = equilibrium_or_nan(weightless, q_rest, frame, share * wrench, True, jax.lax.stop_gradient(q))
        stiffness = jax.jacfwd(lambda x: effort(x, share))(balanced) @ motion_basis(weightless, balanced)
        least = jnp.linalg.eigvalsh(jnp.where(both, 0.5 * (stiffness + stiffness.T), jnp.eye(independent.size)))[0]
        return jnp.where(jax.lax.stop_gradient(least) > 0.0, balanced, jnp.nan), None

    return jax.lax.scan(step, rest, jnp.linspace(1.0 / LOAD_STEPS, 1.0, LOAD_STEPS))[0]


def fixed_coordinates(model: Model, without_stiffness: bool = False) -> Bool[Array, "x"]:
    """Whether each coordinate is fixed: locked ones, motor shafts without stiffness and, if `without_stiffness`, all
    independent ones without stiffness."""
    shafts = {shaft for _, shaft in model.motors}
    may_lock = [i in shafts or (without_stiffness and i not in model.following) for i in range(len(model.coordinates))]
    locked = jnp.array(model.locked, dtype=bool) | (jnp.array(may_lock, dtype=bool) & (model.stiffness == 0.0))
    return jnp.concatenate([locked, jnp.zeros(len(elastic_coordinates(model)), dtype=bool)])


def _newton(residual: Callable[[Array], Array], start: Float[Array, "n"]) -> Float[Array, "n"]:
    """Root of the residual by Newton's method with step halving, or the last iterate where it did not converge."""

    def size(q: Array) -> Array:
        return jnp.linalg.norm(residual(q))

    def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        q, _, count = state
        newton_step = jnp.linalg.solve(jax.jacfwd(residual)(q), -residual(q))
        norm = size(q)

        def too_long(fraction: Array) -> Array:
            return (fraction > SHORTEST_STEP) & ~(size(q + fraction * newton_step) < norm)

        fraction = jax.lax.while_loop(too_long, lambda f: 0.5 * f, jnp.ones_like(norm))
        step_taken = jnp.where(fraction > SHORTEST_STEP, fraction, 0.0) * newton_step
        finite = jnp.all(jnp.isfinite(step_taken))
        return jnp.where(finite, q + step_taken, q), finite & (jnp.max(jnp.abs(step_taken)) > 0.0), count + 1

    first = start, jnp.array(True), jnp.array(0)
    return jax.lax.while_loop(lambda state: state[1] & (state[2] < MOST_STEPS), step, first)[0]
