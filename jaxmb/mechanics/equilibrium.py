"""Where a machine with springs comes to rest under gravity and a load."""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxmb.compiled import compiled, takes_numbers
from jaxmb.machine.build import Model
from jaxmb.mechanics.beams import element_stiffness
from jaxmb.mechanics.dynamics import elastic_effort, gravity_effort
from jaxmb.mechanics.joint_load import check_constant_stiffness
from jaxmb.mechanics.kinematics import (
    check_coordinates,
    check_no_virtual_springs,
    elastic_coordinates,
    frame_jacobian,
    whole,
)
from jaxmb.mechanics.loops import closing_steps, motion_columns, moving_independently

LOAD_STEPS = 20
"""In which a large load grows."""
MOST_STEPS = 50
SHORTEST_STEP = 1e-6
"""Fraction of Newton's step below which no part of it is taken."""


@takes_numbers("q_rest", "wrench")
@compiled
def static_equilibrium(
    model: Model,
    q_rest: Float[Array, "n"],
    frame: str | None = None,
    wrench: Float[Array, "6"] | None = None,
) -> Float[Array, "n"]:
    """Coordinates at which springs, gravity and an outer wrench balance, found by Newton's method from q_rest.

    gravity(q) + K (q - q_rest) + (springs between frames) = J_frame(q)^T wrench

    Locked coordinates stay at q_rest, and so do shafts of motors without stiffness: drives carry constant loads.

    Args:
        model: the machine.
        q_rest: where all springs are unloaded [n], rad or m.
        frame: where the wrench acts, or None for gravity alone.
        wrench: force [N] then moment [Nm] on the machine at the frame's origin, ground axes, of constant direction.

    Returns:
        q [n], with the elastic coordinates behind it where the machine has beams; differentiable with respect to the
        model and the load (implicit function theorem).

    Raises:
        ValueError: sizes or the frame's name are wrong.
        RuntimeError: no equilibrium was found (a coordinate without stiffness under load, or buckling).
        NotImplementedError: a coordinate has a stiffness that depends on its load.
    """
    check_coordinates(model, q_rest=q_rest)
    check_no_virtual_springs(model)
    if (frame is None) != (wrench is None):
        raise ValueError("a load needs both a frame and a wrench")
    if wrench is not None and jnp.shape(wrench) != (6,):
        raise ValueError(f"wrench has shape {jnp.shape(wrench)}, expected (6,): force then moment")
    q = equilibrium_or_nan(model, q_rest, frame, wrench)
    return eqx.error_if(
        q,
        ~jnp.all(jnp.isfinite(q)),
        "no static equilibrium was found: a loaded coordinate has too little stiffness to hold it",
    )


def equilibrium_or_nan(
    model: Model,
    q_rest: Float[Array, "n"],
    frame: str | None = None,
    wrench: Float[Array, "6"] | None = None,
    without_stiffness_held: bool = False,
    start: Float[Array, "x"] | None = None,
) -> Float[Array, "n"]:
    """`static_equilibrium` with NaN where there is none, for searches that count what has no finite cost.

    Where asked for, coordinates that neither have a stiffness nor follow from loops stay at q_rest too. Newton's method
    begins at q_rest, unless another place is given.
    """
    check_constant_stiffness(model, "static equilibrium")
    q_rest, held = whole(model, q_rest), _held(model, without_stiffness_held)

    def pull(q: Array) -> Array:
        effort = gravity_effort(model, q)
        if frame is not None and wrench is not None:
            effort = effort - frame_jacobian(model, q, frame).T @ wrench
        return jnp.where(held, 0.0, effort)

    follow, lead = (jnp.array(part, dtype=int) for part in (model.following, moving_independently(model)))

    def imbalance(q: Array) -> Array:
        effort = pull(q) + jnp.where(held, q - q_rest, elastic_effort(model, q, jnp.zeros_like(q), q_rest))
        if not model.following:
            return effort
        along = motion_columns(model, q).T @ jnp.where(held, 0.0, effort)
        along = jnp.where(held[lead], (q - q_rest)[lead], along)
        return effort.at[lead].set(along).at[follow].set(closing_steps(model, q))

    def tangent_solve(linear: Callable[[Array], Array], right: Array) -> Array:
        return jnp.linalg.solve(jax.jacfwd(linear)(right), right)

    q = jax.lax.custom_root(imbalance, q_rest if start is None else start, _newton, tangent_solve)
    # What is left of a balanced load is rounding: of the stiffest spring's force, or of the load itself.
    stiffness = jnp.concatenate([model.stiffness, element_stiffness(model).diagonal(axis1=1, axis2=2).ravel()])
    largest = jnp.max(jnp.abs(jnp.stack([pull(q), pull(q_rest), stiffness * jnp.abs(q)])))
    rounding = 1e-14 * jnp.max(model.spring_stiffness, initial=0.0)
    failed = ~(jnp.max(jnp.abs(imbalance(q))) <= 1e-8 * largest + rounding)
    return jnp.where(failed, jnp.nan, q)


def loaded_without_gravity(
    model: Model, q_rest: Float[Array, "n"], frame: str, wrench: Float[Array, "6"]
) -> Float[Array, "x"]:
    """Where a machine with loops comes to rest as a load grows from zero, elastic coordinates behind the others.

    NaN where it loses its stability on the way, or has no equilibrium. Gravity is left out, and drives without
    stiffness stay where they are.
    """
    weightless = dataclasses.replace(model, gravity=jnp.zeros(3))
    lead = jnp.array(moving_independently(model), dtype=int)
    gives_way = ~_held(model, without_stiffness=True)[lead]
    both = gives_way[:, None] & gives_way[None, :]
    rest = whole(model, q_rest)

    def effort(q: Array, share: Array) -> Array:
        load = share * frame_jacobian(weightless, q, frame).T @ wrench
        return motion_columns(weightless, q).T @ (elastic_effort(weightless, q, jnp.zeros_like(q), rest) - load)

    def step(q: Array, share: Array) -> tuple[Array, None]:
        there = equilibrium_or_nan(weightless, q_rest, frame, share * wrench, True, jax.lax.stop_gradient(q))
        stiffness = jax.jacfwd(lambda x: effort(x, share))(there) @ motion_columns(weightless, there)
        least = jnp.linalg.eigvalsh(jnp.where(both, 0.5 * (stiffness + stiffness.T), jnp.eye(lead.size)))[0]
        return jnp.where(jax.lax.stop_gradient(least) > 0.0, there, jnp.nan), None

    return jax.lax.scan(step, rest, jnp.linspace(1.0 / LOAD_STEPS, 1.0, LOAD_STEPS))[0]


def _held(model: Model, without_stiffness: bool) -> Bool[Array, "x"]:
    """Which coordinates stay where they are: locked ones, shafts of motors without stiffness, and where asked for all
    without stiffness that do not follow from loops."""
    shafts = {shaft for _, shaft in model.motors}
    n = len(model.coordinates)
    may = [i in shafts or (without_stiffness and i not in model.following) for i in range(n)]
    held = jnp.array(model.locked, dtype=bool) | (jnp.array(may, dtype=bool) & (model.stiffness == 0.0))
    return jnp.concatenate([held, jnp.zeros(len(elastic_coordinates(model)), dtype=bool)])


def _newton(residual: Callable[[Array], Array], start: Float[Array, "n"]) -> Float[Array, "n"]:
    """Root of the residual, or where the search for it ended: Newton's method, each step halved until it helps."""

    def size(q: Array) -> Array:
        return jnp.linalg.norm(residual(q))

    def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        q, _, count = state
        full = jnp.linalg.solve(jax.jacfwd(residual)(q), -residual(q))
        now = size(q)

        def worse(fraction: Array) -> Array:
            return (fraction > SHORTEST_STEP) & ~(size(q + fraction * full) < now)

        fraction = jax.lax.while_loop(worse, lambda f: 0.5 * f, jnp.ones_like(now))
        taken = jnp.where(fraction > SHORTEST_STEP, fraction, 0.0) * full
        finite = jnp.all(jnp.isfinite(taken))
        return jnp.where(finite, q + taken, q), finite & (jnp.max(jnp.abs(taken)) > 0.0), count + 1

    def going(state: tuple[Array, Array, Array]) -> Array:
        _, moving, count = state
        return moving & (count < MOST_STEPS)

    q, _, _ = jax.lax.while_loop(going, step, (start, jnp.array(True), jnp.array(0)))
    return q
