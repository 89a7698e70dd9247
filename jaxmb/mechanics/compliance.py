"""Elastic displacements of a loaded machine: joints by their stiffness, links by virtual springs or as beams.

The elastic degrees of freedom e are the coordinates [n] and then six for each virtual spring and each element of a
beam, translation and rotation in its own axes. The drives hold the coordinates at q; e is how far the machine gives way
from there. A coordinate that is locked or without stiffness does not give way.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmb.compiled import compiled
from jaxmb.machine.build import Model
from jaxmb.mechanics.beams import element_stiffness
from jaxmb.mechanics.dynamics import gravity_energy, own_springs, spring_energy
from jaxmb.mechanics.equilibrium import loaded_without_gravity
from jaxmb.mechanics.joint_load import check_constant_stiffness
from jaxmb.mechanics.kinematics import ELASTIC_AXES, frame_index, node_poses, nodes_behind, whole
from jaxmb.mechanics.loops import check_open_chain, closing_forces, loop_gaps, motion_columns, moving_independently
from jaxmb.spatial import rotation_by, vee

MOST_STEPS = 100
LEAST_STABLE = 1e-10
"""Eigenvalue of the joints' stiffness, of unit diagonal, at or below which the machine does not hold itself."""


def elastic_jacobian(
    model: Model, q: Float[Array, "n"], frame: str, e: Float[Array, "e"] | None = None
) -> Float[Array, "6 e"]:
    """Twist of a frame, ground axes, for the rate of each elastic degree of freedom.

    A rotation about an axis a through o moves the frame's origin p by a x (p - o), a translation by a.

    Args:
        model: the machine.
        q: where the drives hold the coordinates [n], rad or m.
        frame: name of the frame.
        e: how far it has given way [e]; not at all where not given.

    Returns:
        J [6, e], linear velocity then angular velocity.
    """
    n, springs = len(model.coordinates), len(model.elastic_nodes)
    index = frame_index(model, frame)
    by = None if e is None else e[n:].reshape(springs, 6)
    poses = node_poses(model, q if e is None else whole(model, q) + e)
    behind = nodes_behind(model, model.frame_node[index])
    target = (poses[model.frame_node[index]] @ model.frame_offset[index])[:3, 3]
    # The motion of a coordinate leaves its own axis where it is, so the axis may be seen from the node behind it.
    axis = jnp.einsum("nij,nj->ni", poses[:n, :3, :3], model.axis)
    turned = jnp.cross(axis, target - poses[:n, :3, 3])
    revolute = jnp.array(model.revolute)[:, None]
    columns = jnp.concatenate([jnp.where(revolute, turned, axis), jnp.where(revolute, axis, 0.0)], axis=1)
    if springs:
        columns = jnp.concatenate([columns, _spring_columns(poses[n : n + springs], by, target)])
    on_the_way = [i in behind for i in range(n)] + [n + s in behind for s in range(springs) for _ in ELASTIC_AXES]
    return jnp.where(jnp.asarray(on_the_way)[:, None], columns, 0.0).T


def compliance_matrix(model: Model, q: Float[Array, "n"], gravity: bool = False) -> Float[Array, "e e"]:
    """Compliance of all elastic degrees of freedom: e = C J^T w under a wrench w, m, rad, N and Nm.

    Of coordinates and beams the inverse of their stiffness, springs between frames added; of virtual springs their
    own. A gear gives way against a motor that is held, or against what its controller holds it with.
    NaN where springs between frames or gravity make the machine unstable, or leave a motion without stiffness.

    Args:
        model: the machine.
        q: posture [n].
        gravity: whether what gravity's pull changes as the coordinates move is part of their stiffness, as in
            `linearize`.

    Raises:
        NotImplementedError: a coordinate has a stiffness that depends on its load.
    """
    check_constant_stiffness(model, "compliance")
    if model.following:
        return _inverse(*closed_stiffness(model, q, gravity))
    n, first = len(model.coordinates), len(model.coordinates) + 6 * len(model.virtual_springs)
    stiff, stiffness, elastic = _stiffness(model, q, gravity)
    both = elastic[:, None] & elastic[None, :]
    diagonal = jnp.sqrt(jnp.abs(jnp.diagonal(stiffness)))
    scale = 1.0 / jnp.where(elastic & (diagonal > 0.0), diagonal, 1.0)
    scaled = jnp.where(both, stiffness * scale[:, None] * scale[None, :], jnp.eye(stiff.size))
    inverse = jnp.where(both, jnp.linalg.inv(scaled) * scale[:, None] * scale[None, :], 0.0)
    if model.springs or gravity:
        stable = jnp.linalg.eigvalsh(scaled)[0] > LEAST_STABLE
        inverse = jnp.where(stable, inverse, jnp.nan)
    size = first + 6 * len(model.elements)
    compliance = jnp.zeros((size, size), inverse.dtype).at[np.ix_(stiff, stiff)].set(inverse)
    for s in range(len(model.virtual_springs)):
        block = slice(n + 6 * s, n + 6 * s + 6)
        compliance = compliance.at[block, block].set(model.compliance[s])
    return compliance


def closed_stiffness(
    model: Model, q: Float[Array, "n"], gravity: bool = False
) -> tuple[Float[Array, "e r"], Float[Array, "r r"]]:
    """Motions R of the elastic degrees of freedom that keep the loops closed, and their stiffness R^T K R.

    The forces that keep the loops closed turn with them. A motion that does not give way has a column of zeros.

    Args:
        model: a machine with loops.
        q: posture [n].
        gravity: as in `compliance_matrix`.
    """
    _, stiffness, elastic = _stiffness(model, q, gravity)
    x = whole(model, jnp.asarray(q))
    if model.springs or gravity:
        pull = jax.grad(lambda y: spring_energy(model, y, x) + (gravity_energy(model, y) if gravity else 0.0))(x)
        forces = loop_forces(model, x, pull)
        stiffness = stiffness - jax.hessian(lambda y: forces @ loop_gaps(model, y, rigid_only=True))(x)
    gives_way = elastic[jnp.array(moving_independently(model), dtype=int)]
    columns = jnp.where(gives_way, motion_columns(model, x), 0.0)
    still = jnp.diag(jnp.where(gives_way, 0.0, 1.0))
    return columns, columns.T @ stiffness @ columns + still


def loop_forces(model: Model, x: Float[Array, "x"], effort: Float[Array, "x"]) -> Float[Array, "c"]:
    """Forces on the gaps of the loops, `closing_forces`, where beams in them share loads.

    How they share a load that statics does not distribute depends on how they were mounted. It is taken as of loops
    that were closed without stress before the load, by the stiffness that the machine was built with: a fit does not
    change it. To first order these are the forces of the equilibrium.
    """
    built = model.as_built
    if built is None:
        return closing_forces(model, x, effort)
    _, stiffness, elastic = _stiffness(built, x[: len(model.coordinates)], gravity=False)
    gives_way = elastic[jnp.array(moving_independently(model), dtype=int)]
    columns = jnp.where(gives_way, motion_columns(model, x), 0.0)
    still = jnp.diag(jnp.where(gives_way, 0.0, 1.0))
    bent = columns @ jnp.linalg.solve(columns.T @ stiffness @ columns + still, columns.T @ effort)
    return closing_forces(model, x, effort - stiffness @ bent)


def _stiffness(
    model: Model, q: Float[Array, "n"], gravity: bool
) -> tuple[Int[np.ndarray, "k"], Float[Array, "k k"], Bool[Array, "k"]]:
    """Which elastic degrees of freedom have a stiffness and not a compliance, that stiffness, and which give way."""
    n, first = len(model.coordinates), len(model.coordinates) + 6 * len(model.virtual_springs)
    size = first + 6 * len(model.elements)
    # coordinates and beams have a stiffness, virtual springs a compliance that may have none
    stiff = np.array([*range(n), *range(first, size)])
    held = jnp.array([*model.locked, *(False for _ in range(first, size))], dtype=bool)
    own = own_springs(model)
    stiffness = jax.scipy.linalg.block_diag(own.T @ (model.stiffness[:, None] * own), *element_stiffness(model))
    elastic = jnp.concatenate([model.stiffness > 0.0, jnp.ones(size - first, bool)])

    def moved(x: Array) -> Array:
        return whole(model, jnp.asarray(q)).at[stiff].add(x)

    still = jnp.zeros(stiff.size)
    if model.springs:
        # the whole second derivative: one under load is stiff, or the reverse, by turning
        from_springs = jax.hessian(lambda x: spring_energy(model, moved(x), whole(model, q)))(still)
        stiffness, elastic = stiffness + from_springs, elastic | jnp.any(from_springs != 0.0, axis=1)
    if gravity:
        stiffness = stiffness + jax.hessian(lambda x: gravity_energy(model, moved(x)))(still)
    return stiff, stiffness, elastic & ~held


def _inverse(columns: Float[Array, "e r"], stiffness: Float[Array, "r r"]) -> Float[Array, "e e"]:
    """R (R^T K R)^-1 R^T; NaN where it is not stable."""
    return columns @ stable_inverse(stiffness) @ columns.T


def stable_inverse(stiffness: Float[Array, "r r"]) -> Float[Array, "r r"]:
    """Inverse of a stiffness; NaN where that does not hold itself."""
    size = jnp.sqrt(jnp.abs(jnp.diagonal(stiffness)))
    scaled = stiffness / (size[:, None] * size[None, :])
    stable = jnp.linalg.eigvalsh(jax.lax.stop_gradient(scaled))[0] > LEAST_STABLE
    return jnp.where(stable, jnp.linalg.inv(scaled) / (size[:, None] * size[None, :]), jnp.nan)


def elastic_deflection(
    model: Model, q: Float[Array, "n"], frame: str, wrench: Float[Array, "6"], hold: bool = False
) -> Float[Array, "e"]:
    """How far a machine gives way under a wrench, e = C J(q, e)^T w, found by iterating just that.

    Each step is nearer by the part that the load's own stiffness is of the machine's, a thousandth or so; under a load
    near buckling there is no end. Of a machine with loops: the equilibrium without gravity that keeps them closed,
    followed as the load grows.

    Args:
        model: the machine.
        q: where the drives hold the coordinates [n].
        frame: where the wrench acts.
        wrench: force then moment on the machine at the frame's origin, ground axes, of constant direction [6].
        hold: the coordinates stay at q, and only virtual springs give way: q is then the posture under the load.

    Returns:
        e [e], differentiable with respect to all but names; NaN where there is none.

    Raises:
        NotImplementedError: the machine has loops and springs between frames.
    """
    if model.loops:
        if model.springs:
            raise NotImplementedError(
                f"'{model.name}' has loops and springs between frames: its deflections are linear in the load only"
            )
        return loaded_without_gravity(model, q, frame, wrench) - whole(model, q)
    n = len(model.coordinates)
    compliance = compliance_matrix(model, q)
    if hold:
        compliance = compliance.at[:n].set(0.0)

    def excess(e: Array) -> Array:
        return e - compliance @ (elastic_jacobian(model, q, frame, e).T @ wrench)

    def tangent_solve(linear: Callable[[Array], Array], right: Array) -> Array:
        return jnp.linalg.solve(jax.jacfwd(linear)(right), right)

    def iterate(residual: Callable[[Array], Array], start: Array) -> Array:
        def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            e, _, count = state
            change = -residual(e)
            return e + change, jnp.max(jnp.abs(change)), count + 1

        def going(state: tuple[Array, Array, Array]) -> Array:
            return (state[1] > 1e-16) & (state[2] < MOST_STEPS)

        return jax.lax.while_loop(going, step, (start, jnp.asarray(jnp.inf, start.dtype), jnp.asarray(0)))[0]

    e = jax.lax.custom_root(excess, jnp.zeros(compliance.shape[0], compliance.dtype), iterate, tangent_solve)
    scale = jnp.maximum(jnp.max(jnp.abs(e)), 1e-12)
    return jnp.where(jnp.max(jnp.abs(excess(e))) <= 1e-9 * scale, e, jnp.nan)


@compiled
def cartesian_compliance(
    model: Model, q: Float[Array, "n"], frame: str, wrench: Float[Array, "6"] | None = None
) -> Float[Array, "6 6"]:
    """Twist of a frame for a small change of the wrench on it, ground axes, at the frame's origin.

    J (I - C K_C)^-1 C J^T with K_C = d(J^T w)/de, the complementary stiffness that the load makes by moving with the
    machine. Without a load it is J C J^T.

    Args:
        model: the machine.
        q: coordinates under the load [n]; virtual springs give way to the load from there.
        frame: name of the frame.
        wrench: the load; none where not given.

    Source: Klimchik et al. 2014, eq. 2-3; Dumas et al. 2011, eq. 4-6.
    """
    compliance = compliance_matrix(model, q)
    if wrench is None:
        jacobian = elastic_jacobian(model, q, frame)
        return jacobian @ compliance @ jacobian.T
    check_open_chain(model, "a stiffness under load")
    e = elastic_deflection(model, q, frame, wrench, hold=True)
    jacobian = elastic_jacobian(model, q, frame, e)
    load = complementary_stiffness(model, q, frame, wrench, e)
    return jacobian @ jnp.linalg.solve(jnp.eye(e.size) - compliance @ load, compliance @ jacobian.T)


def complementary_stiffness(
    model: Model, q: Float[Array, "n"], frame: str, wrench: Float[Array, "6"], e: Float[Array, "e"] | None = None
) -> Float[Array, "e e"]:
    """K_C = d(J^T w)/de of a constant wrench [e, e]: what the load adds to the stiffness, with a minus sign.

    Source: Dumas et al. 2011, eq. 6.
    """
    start = jnp.zeros_like(whole(model, q)) if e is None else e
    return jax.jacfwd(lambda x: elastic_jacobian(model, q, frame, x).T @ wrench)(start)


def _spring_columns(poses: Float[Array, "k 4 4"], by: Float[Array, "k 6"] | None, target: Float[Array, "3"]) -> Array:
    """Twists [6 k, 6] of a target for rates of the deflections of virtual springs, whose nodes have these poses.

    A spring moves along its axes before the deflection. At a rotation vector r its rate turns by the left Jacobian of
    r, dR R^T = [J_l(r) dr]x.
    """
    axes = jnp.swapaxes(poses[:, :3, :3], 1, 2)  # rows are the spring's axes, in the ground's
    along = about = axes
    if by is not None:
        turned = jax.vmap(rotation_by)(by[:, 3:])
        along = turned @ axes
        about = jnp.swapaxes(jax.vmap(_left_jacobian)(by[:, 3:]), 1, 2) @ along
    arm = jnp.broadcast_to(target - poses[:, None, :3, 3], axes.shape)
    linear = jnp.concatenate([along, jnp.cross(about, arm)], axis=1)
    angular = jnp.concatenate([jnp.zeros_like(axes), about], axis=1)
    return jnp.concatenate([linear, angular], axis=2).reshape(-1, 6)


def _left_jacobian(vector: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """[J_l(r) dr]x = dR R^T for R the rotation by r."""
    rotation = rotation_by(vector)
    change = jax.jacfwd(rotation_by)(vector)
    return jax.vmap(lambda d: vee(d @ rotation.T), in_axes=2, out_axes=1)(change)
