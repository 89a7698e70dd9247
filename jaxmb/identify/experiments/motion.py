"""Small motions of a machine about a posture, as the sensors and shakers of a test see them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmb.linalg import Support
from jaxmb.machine.build import Model
from jaxmb.mechanics.equilibrium import equilibrium_or_nan
from jaxmb.mechanics.tangent import LinearizeAt, Tangent, tangent_about
from jaxmb.response.frf import Point, response_rows


class Scene(eqx.Module):
    """What a test sees of a machine at its posture."""

    tangent: Tangent
    stiffness: Float[Array, "n"]
    """Stiffness of each coordinate's own spring."""
    output_rows: Float[Array, "o n"]
    input_rows: Float[Array, "i n"] | None
    """None where the inputs are the outputs."""
    support: Support | None = eqx.field(static=True, default=None)
    """Entries of the tangent that the free parameters move, where that is known."""


@eqx.filter_jit
def observe(
    model: Model, q: Float[Array, "n"], at: LinearizeAt, outputs: tuple[Point, ...], inputs: tuple[Point, ...]
) -> Scene:
    """What a test at posture q sees of a machine: its tangent there, and the rows of sensors and shakers.

    NaN where the test is linearized at an equilibrium that does not exist, so that a fit counts it and goes elsewhere.
    """
    point = q if at == "posture" else equilibrium_or_nan(model, q)
    output_rows = response_rows(model, point, outputs) if outputs else jnp.zeros((0, q.size))
    input_rows = None if inputs == outputs else response_rows(model, point, inputs)
    tangent = tangent_about(model, q, point)
    if at == "equilibrium":  # some tangents do not depend on the point, and would look right without one
        there = jnp.all(jnp.isfinite(point))
        tangent = jax.tree.map(lambda part: jnp.where(there, part, jnp.nan), tangent)
    return Scene(tangent, model.stiffness, output_rows, input_rows)


def scene(test: Any, model: Model) -> Scene:
    """What a test sees of a machine."""
    return observe(model, test.q, test.at, test.outputs, test.inputs)
