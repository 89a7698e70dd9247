"""Where a machine with springs comes to rest under gravity and a load."""

import equinox as eqx
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Float

from jaxmb.machine.build import Model
from jaxmb.mechanics.dynamics import elastic_effort, gravity_effort
from jaxmb.mechanics.kinematics import check_coordinates, frame_jacobian


@eqx.filter_jit
def static_equilibrium(
    model: Model,
    q_rest: Float[Array, "n"],
    frame: str | None = None,
    wrench: Float[Array, "6"] | None = None,
) -> Float[Array, "n"]:
    """Coordinates at which springs, gravity and an outer wrench balance, found by Newton's method from q_rest.

    gravity(q) + K (q - q_rest) + (springs between frames) = J_frame(q)^T wrench

    Args:
        model: the machine.
        q_rest: where all springs are unloaded [n], rad or m.
        frame: where the wrench acts, or None for gravity alone.
        wrench: force [N] then moment [Nm] on the machine at the frame's origin, ground axes, of constant direction.

    Returns:
        q [n], differentiable with respect to the model and the load (implicit function theorem).

    Raises:
        ValueError: sizes or the frame's name are wrong.
        RuntimeError: no equilibrium was found (a coordinate without stiffness under load, or buckling).
    """
    check_coordinates(model, q_rest=q_rest)
    if (frame is None) != (wrench is None):
        raise ValueError("a load needs both a frame and a wrench")
    if wrench is not None and jnp.shape(wrench) != (6,):
        raise ValueError(f"wrench has shape {jnp.shape(wrench)}, expected (6,): force then moment")

    def imbalance(q: Array, load: tuple[Model, Array, Array | None]) -> Array:
        machine, rest, applied = load
        effort = gravity_effort(machine, q) + elastic_effort(machine, q, jnp.zeros_like(q), rest)
        if frame is not None and applied is not None:
            effort = effort - frame_jacobian(machine, q, frame).T @ applied
        return effort

    # Newton's own rate of convergence ends it: in Nm the residual's rounding never reaches a fixed tolerance.
    solver = optx.Newton(rtol=1e-10, atol=1e-12, cauchy_termination=False)
    solution = optx.root_find(imbalance, solver, q_rest, (model, q_rest, wrench), max_steps=50, throw=False)
    failed = (solution.result != optx.RESULTS.successful) | ~jnp.all(jnp.isfinite(solution.value))
    return eqx.error_if(
        solution.value,
        failed,
        "no static equilibrium was found: a loaded coordinate has too little stiffness to hold it",
    )
