"""Efforts of the drives of a machine along a motion, with friction: the quantity that a torque test measures."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled, numeric_arguments
from jaxmb.machine.build import Model
from jaxmb.machine.friction import TERMS
from jaxmb.mechanics.dynamics import inverse_dynamics
from jaxmb.mechanics.loops import at_closed_posture, independent_coordinates, loop_motion

SLOWEST = 1e-9
"""Smallest rate of smoothed friction, rad/s or m/s."""


@numeric_arguments("q", "qd", "qdd", "q_rest")
@numeric_arguments("friction_speed", least=SLOWEST)
@at_closed_posture
@compiled
def actuator_effort(
    model: Model,
    q: Float[Array, "n"],
    qd: Float[Array, "m"],
    qdd: Float[Array, "m"],
    q_rest: Float[Array, "n"] | None = None,
    *,
    friction_speed: float | Float[Array, ""] | None = None,
) -> Float[Array, "m"]:
    """Effort [m] of the drives for a motion against inertia, gravity, springs and friction.

    tau = R^T (f(q, qd, qdd) + f_c sign(qd) + f_0 + sum_t c_t f_t sign(c_t . qd)), f the residual of the tree
    (`inverse_dynamics`), f_c the Coulomb friction and f_0 the offset of each coordinate, c_t and f_t rates and friction
    of each transmission, R the map from the independent coordinates to all of them (`motion_map`). It is linear in the
    numbers of `regressor_names`. Further friction adds c_s exp(-(qd / v_s)^2) sign(qd) + c_3 qd^3, and
    c_l |tau_0| sign(qd) at independent coordinates, tau_0 the effort without friction, damping and offset. Damping that
    depends on temperature is taken at the machine's reference temperature. The brake of a locked coordinate replaces
    its spring, damper and drive.

    Args:
        model: the machine.
        q: coordinates [n] of a posture whose loops are closed, rad or m. Beams are rigid.
        qd: rates of the m independent coordinates [m], which are all n without loops; or those of all [n].
        qdd: their accelerations, of as many coordinates.
        q_rest: posture [n] in which all springs are unloaded; by default the reference posture.
        friction_speed: rate v, rad/s or m/s, of tanh(qd / v) in place of sign(qd); by default the exact sign, 0 at
            rest.

    Returns:
        tau [m] at the independent coordinates, Nm or N.

    Raises:
        ValueError: an argument has not one value for each coordinate, or a loop is open at q.

    Source: Pyrhonen et al. 2024, eq. 11 and 17.
    """
    R, qd, qdd, q_rest = whole_motion(model, q, qd, qdd, q_rest)
    effort = R.T @ tree_effort(model, q, qd, qdd, q_rest, friction_speed)
    loaded = load_friction(model)
    if not loaded.any():
        return effort
    frictionless_effort = R.T @ tree_effort(frictionless(model), q, qd, qdd, q_rest, friction_speed)
    independent = _independent(model)
    coefficient = model.friction_terms[:, TERMS.index("load_friction")][independent]
    return effort + jnp.where(
        loaded[independent],
        coefficient * jnp.abs(frictionless_effort) * direction(qd[independent], friction_speed),
        0.0,
    )


def load_friction(model: Model) -> np.ndarray:
    """Whether each coordinate [n] has load-dependent friction."""
    present = ["load_friction" in terms for terms in model.further_friction]
    return np.array(present, dtype=bool) & ~np.array(model.locked, dtype=bool)


def direction(rate: Array, friction_speed: float | Float[Array, ""] | None) -> Array:
    """Sign of a rate, or tanh(rate / friction_speed) where that is given."""
    return jnp.sign(rate) if friction_speed is None else jnp.tanh(rate / friction_speed)


def frictionless(model: Model) -> Model:
    """The machine without any friction, damping and offset."""
    none = {
        leaf: jnp.zeros_like(getattr(model, leaf))
        for leaf in (
            "damping", "spring_damping", "transmission_damping", "transmission_friction", "friction", "offset",
            "friction_terms",
        )
    }  # fmt: skip
    return dataclasses.replace(model, **none)


def whole_motion(
    model: Model, q: Float[Array, "n"], qd: Float[Array, "m"], qdd: Float[Array, "m"], q_rest: Float[Array, "n"] | None
) -> tuple[Float[Array, "n m"], Float[Array, "n"], Float[Array, "n"], Float[Array, "n"]]:
    """R, rates and accelerations of all coordinates and rest posture of the springs, from arguments of
    `actuator_effort`.

    Raises:
        ValueError: an argument has not one value for each coordinate.
    """
    n, m = len(model.coordinates), len(independent_coordinates(model))
    q_rest = model.reference if q_rest is None else q_rest
    for name, array, counts in (("q", q, (n,)), ("qd", qd, (m, n)), ("qdd", qdd, (m, n)), ("q_rest", q_rest, (n,))):
        if array.shape not in [(count,) for count in counts]:
            expected = " or ".join(f"({count},)" for count in dict.fromkeys(counts))
            raise ValueError(f"{name} has shape {array.shape}, expected {expected}: one value a coordinate")
    if qd.shape != qdd.shape:
        raise ValueError(f"qdd has shape {qdd.shape}, expected that of qd, {qd.shape}")
    R, bias = loop_motion(model, q, qd if qd.size == m else qd[_independent(model)])
    if qd.size == m:
        qd, qdd = R @ qd, R @ qdd + bias
    return R, qd, qdd, q_rest


def tree_effort(
    model: Model,
    q: Float[Array, "n"],
    qd: Float[Array, "n"],
    qdd: Float[Array, "n"],
    q_rest: Float[Array, "n"],
    friction_speed: float | Float[Array, ""] | None,
) -> Float[Array, "n"]:
    """Effort [n] of `actuator_effort` at all coordinates of the tree, before its projection by R^T."""
    locked = np.array(model.locked)
    free = dataclasses.replace(
        model,
        stiffness=jnp.where(locked, 0.0, model.stiffness),
        damping=jnp.where(locked, 0.0, model.damping),
        rotor_inertia=jnp.where(locked, 0.0, model.rotor_inertia),
    )
    friction = model.friction * direction(qd, friction_speed) + model.offset
    if any("stribeck" in terms for terms in model.further_friction):
        slow = jnp.exp(-((qd / model.stribeck_speed) ** 2))
        friction += model.friction_terms[:, TERMS.index("stribeck")] * slow * direction(qd, friction_speed)
    if any("cubic_damping" in terms for terms in model.further_friction):
        friction += model.friction_terms[:, TERMS.index("cubic_damping")] * qd**3
    friction = jnp.where(locked, 0.0, friction)
    if model.transmissions:
        c = model.transmission_rate
        friction = friction + c.T @ (model.transmission_friction * direction(c @ qd, friction_speed))
    return inverse_dynamics(free, q, qd, qdd, q_rest) + friction


def _independent(model: Model) -> np.ndarray:
    return np.array([i for i in range(len(model.coordinates)) if i not in model.dependent], dtype=int)
