"""What the sensors and shakers of a test see of the small motions of a machine about a posture."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.linalg import Support
from jaxmb.machine.build import Model
from jaxmb.mechanics.equilibrium import equilibrium_or_nan
from jaxmb.mechanics.joint_load import with_loaded_stiffness
from jaxmb.mechanics.kinematics import whole
from jaxmb.mechanics.tangent import LinearizeAt, Tangent, motion_stiffness, tangent_about
from jaxmb.response.frf import response_rows
from jaxmb.response.frf_kind import Point
from jaxmb.response.modal import check_mass_matrix, is_unlocked, spring_matrices
from jaxmb.response.sensor import tilt_rows


class MotionView(eqx.Module):
    """What a test at one posture sees of a machine: m coordinates of small motions."""

    tangent: Tangent
    stiffness: Float[Array, "m"] | Float[Array, "s m m"] | None
    """Stiffness of each coordinate's own spring; where there are gears, springs between frames or beams, what each of
    them adds to the stiffness matrix (`spring_matrices`). None for tests that do not ask for it."""
    output_rows: Float[Array, "o m"]
    input_rows: Float[Array, "i m"] | None
    """None where the inputs are the outputs."""
    is_unlocked: tuple[bool, ...] = eqx.field(static=True)
    """See `is_unlocked`."""
    tilt_rows: Float[Array, "o m"] | None = None
    """What gravity adds to the accelerations at the outputs; None where the sensors do not feel it."""
    support: Support | None = eqx.field(static=True, default=None)
    """Entries of the tangent that the free parameters move, where that is known."""


@compiled
def motion_view(
    model: Model,
    q: Float[Array, "n"],
    at: LinearizeAt,
    outputs: tuple[Point, ...],
    inputs: tuple[Point, ...],
    feels_gravity: bool = False,
    shares_energy: bool = False,
    weightless: bool = False,
) -> MotionView:
    """What a test at posture q sees of a machine: its tangent there, and the rows of sensors and shakers.

    With the stiffness of each spring where its share in the strain energy of modes is asked for. NaN where the test is
    linearized at an equilibrium that does not exist, so that a fit counts it and goes elsewhere. Weightless: see
    `tangent_about`.
    """
    model = with_loaded_stiffness(model, q) if at == "posture" else model
    point = whole(model, q) if at == "posture" else equilibrium_or_nan(model, q)
    output_rows = response_rows(model, point, outputs)
    input_rows = None if inputs == outputs else response_rows(model, point, inputs)
    tilt = tilt_rows(model, point, outputs) if feels_gravity else None
    tangent = tangent_about(model, q, point, at, weightless)
    if at == "equilibrium":  # some tangents do not depend on the point, and would look right without one
        there = jnp.all(jnp.isfinite(point))
        tangent = jax.tree.map(lambda part: jnp.where(there, part, jnp.nan), tangent)
    coupled, stiffness = model.springs or model.motors or model.beams or model.following, None
    if shares_energy:
        stiffness = spring_matrices(model, q, point) if coupled else motion_stiffness(model)
    return MotionView(tangent, stiffness, output_rows, input_rows, is_unlocked(model), tilt)


def check_motion(view: MotionView, names: Sequence[str]) -> None:
    """Raise ValueError where a test cannot see a machine: no equilibrium, or a motion without mass.

    Args:
        view: of the machine.
        names: of the coordinates of its small motions.
    """
    if not np.isfinite(np.asarray(view.tangent.stiffness)).all():
        raise ValueError("no static equilibrium was found: a loaded coordinate has too little stiffness to hold it")
    check_mass_matrix(np.asarray(view.tangent.mass), names)
