"""Elastic displacements of a loaded machine: joints by their stiffness, links by virtual springs or as beams.

The elastic degrees of freedom e are the coordinates [n] and then six for each virtual spring and each beam element,
translation and rotation in its own axes. The drives hold the coordinates at q; e is the deflection from there. Locked
coordinates, and those on which no spring acts, neither their own nor one between frames, are rigid.
"""

from collections.abc import Callable, Collection

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmb.compiled import compiled
from jaxmb.machine.build import Model
from jaxmb.mechanics.beams import element_stiffness
from jaxmb.mechanics.dynamics import gravity_energy, joint_rates, own_springs, spring_energy
from jaxmb.mechanics.equilibrium import loaded_without_gravity, tangent_solve
from jaxmb.mechanics.kinematics import (
    ancestor_matrix,
    ancestor_nodes,
    check_constant_stiffness,
    frame_index,
    frame_offsets,
    node_poses,
    whole,
)
from jaxmb.mechanics.loops import check_open_chain, constraint_forces, degrees_of_freedom, loop_gaps, motion_basis
from jaxmb.spatial import rotation_by, vee

MOST_STEPS = 100
LEAST_STABLE = 1e-10
"""Least eigenvalue of the stiffness, scaled to a unit diagonal, at or below which the machine is unstable."""


def elastic_jacobian(
    model: Model, q: Float[Array, "n"], frame: str | Int[Array, ""], e: Float[Array, "e"] | None = None
) -> Float[Array, "6 e"]:
    """Jacobian of a frame's twist, ground axes, with respect to the elastic degrees of freedom.

    A rotation about an axis a through o moves the frame's origin p by a x (p - o), a translation by a.

    Args:
        model: the machine.
        q: coordinates held by the drives [n], rad or m.
        frame: name of the frame, or its index.
        e: deflection [e]; by default 0.

    Returns:
        J [6, e], linear velocity then angular velocity.
    """
    n, springs = len(model.coordinates), len(model.elastic_nodes)
    index = frame_index(model, frame) if isinstance(frame, str) else frame
    node = jnp.array(model.frame_node)[index]
    deflection = None if e is None else e[n:].reshape(springs, 6)
    poses = node_poses(model, q if e is None else whole(model, q) + e)
    target = (poses[node] @ frame_offsets(model)[index])[:3, 3]
    # A coordinate does not move its own axis, which can therefore be taken from its node's pose.
    turn, axial = joint_rates(model, poses[:n])
    columns = jnp.concatenate([axial + jnp.cross(turn, target - poses[:n, :3, 3]), turn], axis=1)
    if springs:
        columns = jnp.concatenate([columns, _spring_columns(poses[n : n + springs], deflection, target)])
    is_ancestor = jnp.asarray(ancestor_matrix(model.parent))[node] > 0.0
    is_moving = jnp.concatenate([is_ancestor[:n], jnp.repeat(is_ancestor[n:], 6)])
    return jnp.where(is_moving[:, None], columns, 0.0).T


def compliance_matrix(model: Model, q: Float[Array, "n"], gravity: bool = False) -> Float[Array, "e e"]:
    """Compliance matrix of all elastic degrees of freedom: e = C J^T w under a wrench w, m, rad, N and Nm.

    For coordinates and beams the inverse of their stiffness, for virtual springs their compliance C_v, which may be
    singular. Springs between frames, and gravity, add a stiffness K to coordinates and beams (s) and to the virtual
    springs between their frames (v). With D = (1 + C_v K_vv)^-1 C_v,

        C_ss = (K_ss - K_sv D K_vs)^-1,  C_sv = -C_ss K_sv D,  C_vv = D + D K_vs C_ss K_sv D.

    A gear deflects against its locked motor, or against the stiffness of the motor's controller. NaN where springs
    between frames or gravity make the machine unstable or singular.

    Args:
        model: the machine.
        q: posture [n].
        gravity: whether the geometric stiffness of gravity is included, as in `linearize`.

    Raises:
        NotImplementedError: a coordinate has a stiffness that depends on its load, or a virtual spring has play.
    """
    if any(model.has_play):
        raise NotImplementedError(
            f"virtual spring '{model.virtual_springs[model.has_play.index(True)]}' has play, which is not linear in the"
            " load: only deflections under the machine's weight are supported, as in pose tests"
        )
    return _without_play(model, q, gravity)


def _without_play(model: Model, q: Float[Array, "n"], gravity: bool = False) -> Float[Array, "e e"]:
    """`compliance_matrix`, play omitted."""
    check_constant_stiffness(model, "compliance")
    if model.following:
        columns, stiffness = closed_stiffness(model, q, gravity)
        return columns @ stable_inverse(stiffness) @ columns.T
    n, first = len(model.coordinates), len(model.coordinates) + 6 * len(model.virtual_springs)
    size = first + 6 * len(model.elements)
    compliance = jnp.zeros((size, size), model.compliance.dtype)
    for s, ratio in enumerate(overlap_scale(model, q)):
        block = slice(n + 6 * s, n + 6 * s + 6)
        compliance = compliance.at[block, block].set(model.compliance[s] * ratio)
    indices, stiffness, elastic = elastic_stiffness(model, q, gravity)
    is_virtual = (indices >= n) & (indices < first)
    s, v = np.flatnonzero(~is_virtual), np.flatnonzero(is_virtual)
    at_s, at_v = indices[s], indices[v]
    k_ss, k_sv, k_vv = (stiffness[np.ix_(*ends)] for ends in ((s, s), (s, v), (v, v)))
    held, stable = _parallel(compliance[np.ix_(at_v, at_v)], k_vv)
    coupling = k_sv @ held
    both = elastic[s][:, None] & elastic[s][None, :]
    k_ss = k_ss - coupling @ k_sv.T
    diagonal = jnp.abs(jnp.diagonal(k_ss))
    # the root of a zero has no finite derivative in reverse mode
    scale = 1.0 / jnp.sqrt(jnp.where(elastic[s] & (diagonal > 0.0), diagonal, 1.0))
    scaled = jnp.where(both, k_ss * scale[:, None] * scale[None, :], jnp.eye(s.size))
    c_ss = jnp.where(both, jnp.linalg.inv(scaled) * scale[:, None] * scale[None, :], 0.0)
    if model.springs or gravity:
        c_ss = jnp.where(stable & (jnp.linalg.eigvalsh(scaled)[0] > LEAST_STABLE), c_ss, jnp.nan)
    c_sv = -c_ss @ coupling
    compliance = compliance.at[np.ix_(at_s, at_s)].set(c_ss).at[np.ix_(at_v, at_v)].set(held - coupling.T @ c_sv)
    return compliance.at[np.ix_(at_s, at_v)].set(c_sv).at[np.ix_(at_v, at_s)].set(c_sv.T)


def _parallel(compliance: Float[Array, "v v"], stiffness: Float[Array, "v v"]) -> tuple[Float[Array, "v v"], Array]:
    """Compliance of virtual springs, which may be singular, parallel to a stiffness, and whether the two are stable."""
    if not compliance.size:
        return compliance, jnp.asarray(True)
    value, vector = jnp.linalg.eigh(jax.lax.stop_gradient(compliance))
    root = vector * jnp.sqrt(jnp.maximum(value, 0.0)) @ vector.T
    one = jnp.eye(len(compliance))
    stable = jnp.linalg.eigvalsh(one + root @ stiffness @ root)[0] > LEAST_STABLE
    return jnp.linalg.solve(one + compliance @ stiffness, compliance), stable


def overlap_scale(model: Model, q: Float[Array, "n"]) -> tuple[Float[Array, ""] | float, ...]:
    """Compliance of each virtual spring at a posture over that where its guide's coordinate is 0.

    A power of the overlap of sliding stages; 1 without a guide, NaN where the stages do not overlap.
    """
    found: list[Array | float] = []
    for s, coordinate in enumerate(model.guides):
        if coordinate < 0:
            found.append(1.0)
        else:
            overlap, rate = model.guide_overlap[s]
            ratio = 1.0 + rate * q[coordinate] / overlap
            scale = jnp.where(ratio > 0.0, ratio, 1.0) ** -model.guide_exponent[s]
            found.append(jnp.where(ratio > 0.0, scale, jnp.nan))
    return tuple(found)


def has_guides(model: Model) -> bool:
    """Whether the compliance of a virtual spring depends on the extension of sliding stages."""
    return max(model.guides, default=-1) >= 0


def play_displacement(model: Model, q: Float[Array, "n"], load: Float[Array, "e"]) -> Float[Array, "e"]:
    """Displacement of all elastic degrees of freedom by the play of virtual springs under generalized loads [e].

    play * sqrt(scale of the compliance) * tanh(load / play_load): a clearance d over the overlap o tilts by d / o where
    the compliance is proportional to o^-2. 0 without load, and odd in it.
    """
    n, found = len(model.coordinates), jnp.zeros_like(load)
    for s, scale in enumerate(overlap_scale(model, q)):
        if model.has_play[s]:
            block = slice(n + 6 * s, n + 6 * s + 6)
            found = found.at[block].set(model.play[s] * jnp.sqrt(scale) * jnp.tanh(load[block] / model.play_load[s]))
    return found


def elastic_springs(model: Model, free: Collection[str] = ()) -> tuple[str, ...]:
    """Springs between frames with a stiffness, or a free one; the others are dampers, without effect on deflections.

    Args:
        model: not traced.
        free: names of free parameters.
    """
    pairs = zip(model.springs, np.asarray(model.spring_stiffness).tolist(), strict=True)
    return tuple(name for name, stiffness in pairs if stiffness > 0.0 or f"stiffness.{name}" in free)


def closed_stiffness(
    model: Model, q: Float[Array, "n"], gravity: bool
) -> tuple[Float[Array, "e r"], Float[Array, "r r"]]:
    """Basis R of the elastic motions that keep the loops closed, and their stiffness R^T K R.

    Includes the geometric stiffness of the loop-closing forces. A rigid motion has a column of zeros.

    Args:
        model: a machine with loops.
        q: posture [n].
        gravity: as in `compliance_matrix`.
    """
    _, stiffness, elastic = elastic_stiffness(model, q, gravity)
    x = whole(model, jnp.asarray(q))
    if model.springs or gravity:
        pull = jax.grad(lambda y: spring_energy(model, y, x) + (gravity_energy(model, y) if gravity else 0.0))(x)
        forces = loop_forces(model, x, pull)
        stiffness = stiffness - jax.hessian(lambda y: forces @ loop_gaps(model, y, rigid_only=True))(x)
    return _on_closing_motions(model, x, stiffness, elastic)


def _on_closing_motions(
    model: Model, x: Float[Array, "x"], stiffness: Float[Array, "x x"], elastic: Bool[Array, "x"]
) -> tuple[Float[Array, "x r"], Float[Array, "r r"]]:
    """Basis of `closed_stiffness`, and a stiffness projected on it; 1 for rigid motions."""
    is_compliant = elastic[jnp.array(degrees_of_freedom(model), dtype=int)]
    columns = jnp.where(is_compliant, motion_basis(model, x), 0.0)
    return columns, columns.T @ stiffness @ columns + jnp.diag(jnp.where(is_compliant, 0.0, 1.0))


def loop_forces(model: Model, x: Float[Array, "x"], effort: Float[Array, "x"]) -> Float[Array, "c"]:
    """Forces on the loop constraints, `constraint_forces`, with beams in loops sharing loads by their stiffness.

    The load distribution of a statically indeterminate loop depends on its mounting. Loops are assumed to be closed
    without stress before the load, and the stiffness is that of the machine as built, which a fit does not change. To
    first order these are the forces of the equilibrium.
    """
    built = model.as_built
    if built is None:
        return constraint_forces(model, x, effort)
    _, stiffness, elastic = elastic_stiffness(built, x[: len(model.coordinates)], gravity=False)
    columns, projected = _on_closing_motions(model, x, stiffness, elastic)
    elastic_shift = columns @ jnp.linalg.solve(projected, columns.T @ effort)
    return constraint_forces(model, x, effort - stiffness @ elastic_shift)


def elastic_stiffness(
    model: Model, q: Float[Array, "n"], gravity: bool
) -> tuple[Int[np.ndarray, "k"], Float[Array, "k k"], Bool[Array, "k"]]:
    """Indices of the elastic degrees of freedom on which a stiffness acts, that stiffness, and which are compliant.

    Those of virtual springs, whose own stiffness may be infinite, are included with the stiffness of springs between
    frames across them, and of gravity.
    """
    n, first = len(model.coordinates), len(model.coordinates) + 6 * len(model.virtual_springs)
    virtual = [n + 6 * s + axis for s in _with_outer_stiffness(model, gravity) for axis in range(6)]
    with_stiffness = np.array([*range(n), *virtual, *range(first, first + 6 * len(model.elements))])
    locked = jnp.array([*model.locked, *(False for _ in with_stiffness[n:])], dtype=bool)
    own = own_springs(model)
    stiffness = jax.scipy.linalg.block_diag(
        own.T @ (model.stiffness[:, None] * own), jnp.zeros((len(virtual), len(virtual))), *element_stiffness(model)
    )
    elastic = jnp.concatenate([model.stiffness > 0.0, jnp.ones(with_stiffness.size - n, bool)])

    def displaced(x: Array) -> Array:
        return whole(model, jnp.asarray(q)).at[with_stiffness].add(x)

    no_displacement = jnp.zeros(with_stiffness.size)
    if model.springs:
        # the whole second derivative includes the geometric stiffness of loaded springs
        from_springs = jax.hessian(lambda x: spring_energy(model, displaced(x), whole(model, q)))(no_displacement)
        stiffness, elastic = stiffness + from_springs, elastic | jnp.any(from_springs != 0.0, axis=1)
    if gravity:
        stiffness = stiffness + jax.hessian(lambda x: gravity_energy(model, displaced(x)))(no_displacement)
    return with_stiffness, stiffness, elastic & ~locked


def _with_outer_stiffness(model: Model, gravity: bool) -> list[int]:
    """Virtual springs on which gravity, or a spring between a frame before and one behind them, acts."""
    ends = [[ancestor_nodes(model, model.frame_node[frame]) for frame in pair] for pair in model.spring_frames]
    between = {node for a, b in ends for node in a ^ b}
    return [s for s in range(len(model.virtual_springs)) if gravity or len(model.coordinates) + s in between]


def stable_inverse(stiffness: Float[Array, "r r"]) -> Float[Array, "r r"]:
    """Inverse of a stiffness matrix; NaN where it is not positive definite."""
    size = jnp.sqrt(jnp.abs(jnp.diagonal(stiffness)))
    scaled = stiffness / (size[:, None] * size[None, :])
    stable = jnp.linalg.eigvalsh(jax.lax.stop_gradient(scaled))[0] > LEAST_STABLE
    return jnp.where(stable, jnp.linalg.inv(scaled) / (size[:, None] * size[None, :]), jnp.nan)


def elastic_deflection(
    model: Model, q: Float[Array, "n"], frame: str, wrench: Float[Array, "6"], hold: bool = False, weight: bool = False
) -> Float[Array, "e"]:
    """Deflection of a machine under a wrench, the fixed point of e = C J(q, e)^T w.

    The error decreases in each iteration by the ratio of the complementary stiffness to the machine's, about 1e-3; near
    buckling the iteration diverges. For a machine with loops: the equilibrium without gravity on the path of increasing
    load, loops closed.

    Args:
        model: the machine.
        q: coordinates held by the drives [n].
        frame: frame at whose origin the wrench acts.
        wrench: force then moment on the machine at the frame's origin, ground axes, of constant direction [6].
        hold: q is the posture under the load, and only virtual springs deflect.
        weight: whether the weight acts too, as in `weight_deflection`: e = C (J(q, e)^T w - g(q + e) - s(q)).

    Returns:
        e [e], differentiable with respect to all but names; NaN without an equilibrium.

    Raises:
        NotImplementedError: the machine has loops, and springs between frames or a weight that acts.
    """
    if weight:
        check_open_chain(model, "equilibrium under weight and load")
    if model.loops:
        if model.springs:
            raise NotImplementedError(
                f"'{model.name}' has loops and springs between frames: only linear deflections are supported"
            )
        return loaded_without_gravity(model, q, frame, wrench) - whole(model, q)
    compliance = compliance_matrix(model, q)
    compliance = compliance.at[: len(model.coordinates)].set(0.0) if hold else compliance

    x = whole(model, q)
    from_springs = jax.grad(lambda y: spring_energy(model, y, x))(x) if weight and model.springs else 0.0

    def excess(e: Array) -> Array:
        load = elastic_jacobian(model, q, frame, e).T @ wrench - from_springs
        if weight:
            load = load - jax.grad(lambda y: gravity_energy(model, y))(x + e)
        return e - compliance @ load

    def iterate(residual: Callable[[Array], Array], start: Array) -> Array:
        return repeated_steps(lambda e: -residual(e), start, 1e-16, MOST_STEPS)

    e = jax.lax.custom_root(excess, jnp.zeros(compliance.shape[0], compliance.dtype), iterate, tangent_solve)
    scale = jnp.maximum(jnp.max(jnp.abs(e)), 1e-12)
    return jnp.where(jnp.max(jnp.abs(excess(e))) <= 1e-9 * scale, e, jnp.nan)


def repeated_steps(
    change: Callable[[Array], Array], start: Float[Array, "n"], tolerance: float, most_steps: int
) -> Float[Array, "n"]:
    """Last iterate of x <- x + change(x), which ends where no component changes by more than the tolerance, or after
    most_steps."""

    def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, _, count = state
        by = change(x)
        return x + by, jnp.max(jnp.abs(by)), count + 1

    first = start, jnp.asarray(jnp.inf, start.dtype), jnp.asarray(0)
    return jax.lax.while_loop(lambda state: (state[1] > tolerance) & (state[2] < most_steps), step, first)[0]


@compiled
def cartesian_compliance(
    model: Model, q: Float[Array, "n"], frame: str, wrench: Float[Array, "6"] | None = None
) -> Float[Array, "6 6"]:
    """Cartesian compliance matrix of a frame [6, 6], ground axes, at the frame's origin: m/N, rad/N, rad/Nm.

    J (I - C K_C)^-1 C J^T with K_C = d(J^T w)/de, the complementary stiffness of the load. Without a load it is
    J C J^T.

    Args:
        model: the machine.
        q: coordinates under the load [n], to which deflections of virtual springs are added.
        frame: name of the frame.
        wrench: load [6], N and Nm; by default none.

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
    """Complementary stiffness K_C = d(J^T w)/de of a constant wrench [e, e], the negative of its geometric stiffness.

    Source: Dumas et al. 2011, eq. 6.
    """
    start = jnp.zeros_like(whole(model, q)) if e is None else e
    return jax.jacfwd(lambda x: elastic_jacobian(model, q, frame, x).T @ wrench)(start)


def _spring_columns(
    poses: Float[Array, "k 4 4"], deflection: Float[Array, "k 6"] | None, target: Float[Array, "3"]
) -> Array:
    """Twists [6 k, 6] of a target point for unit rates of the deflections of virtual springs, from their nodes' poses.

    Translations are along the undeflected axes. The rate of a rotation vector r maps to an angular velocity by its left
    Jacobian, dR R^T = [J_l(r) dr]x.
    """
    axes = jnp.swapaxes(poses[:, :3, :3], 1, 2)  # rows are the spring's axes in ground axes
    translation_axes = rotation_axes = axes
    if deflection is not None:
        translation_axes = jax.vmap(rotation_by)(deflection[:, 3:]) @ axes
        rotation_axes = jnp.swapaxes(jax.vmap(_rotation_vector_jacobian)(deflection[:, 3:]), 1, 2) @ translation_axes
    arm = jnp.broadcast_to(target - poses[:, None, :3, 3], axes.shape)
    linear = jnp.concatenate([translation_axes, jnp.cross(rotation_axes, arm)], axis=1)
    angular = jnp.concatenate([jnp.zeros_like(axes), rotation_axes], axis=1)
    return jnp.concatenate([linear, angular], axis=2).reshape(-1, 6)


def _rotation_vector_jacobian(vector: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """Left Jacobian J_l of a rotation vector r: [J_l(r) dr]x = dR R^T."""
    rotation = rotation_by(vector)
    return jax.vmap(lambda d: vee(d @ rotation.T), in_axes=2, out_axes=1)(jax.jacfwd(rotation_by)(vector))


def weight_deflection(model: Model, q: Float[Array, "n"]) -> Float[Array, "e"]:
    """Deflection of a machine under its weight, its drives holding q.

    e = -C(q) (g(q + e) + s(q)), g the effort that balances gravity and s that of springs loaded at q, in two
    evaluations: the error is e times the square of the ratio of gravity stiffness to stiffness, below 1e-4 of e for
    robots. With beams or loops: one Newton step with the stiffness of gravity.

    Args:
        model: the machine.
        q: coordinates held by the drives [n]; all other springs without a free length are unloaded there.

    Returns:
        e [e], differentiable; NaN where springs make the machine unstable.

    Raises:
        NotImplementedError: a spring between frames acts across a virtual spring with play.
    """
    x = whole(model, q)
    for s in _with_outer_stiffness(model, gravity=False):
        if model.has_play[s]:
            raise NotImplementedError(
                f"virtual spring '{model.virtual_springs[s]}' has play, and a spring between frames acts across it:"
                " expected play in other virtual springs only"
            )
    if model.loops or model.beams:
        pull = jax.grad(lambda y: gravity_energy(model, y) + spring_energy(model, y, x))(x)
        by_stiffness = -_without_play(model, q, gravity=True) @ pull
        return by_stiffness + play_displacement(model, q, -pull) if any(model.has_play) else by_stiffness
    compliance = _without_play(model, q)
    from_springs = jax.grad(lambda y: spring_energy(model, y, x))(x) if model.springs else 0.0

    def displaced(at: Array) -> Array:
        load = -(weight_effort(model, q, at) + from_springs)
        elastic = compliance @ load
        return elastic + play_displacement(model, q, load) if any(model.has_play) else elastic

    return displaced(displaced(jnp.zeros_like(x)))


def weight_effort(model: Model, q: Float[Array, "n"], e: Float[Array, "e"]) -> Float[Array, "e"]:
    """Generalized effort [e] that balances gravity at a deflection, of a machine without beams.

    The wrench of the weight behind each node at the ground's origin times the twist of each elastic degree of freedom
    there: `gravity_effort` in closed form, whose derivatives compile in a fraction of the time.

    Args:
        model: the machine.
        q: coordinates held by the drives [n], rad or m.
        e: deflection [e].
    """
    n, springs = len(model.coordinates), len(model.virtual_springs)
    nodes = node_poses(model, whole(model, q) + e)
    poses = nodes[jnp.array(model.mass_node, dtype=int)] @ model.mass_offset
    moments = jnp.einsum("bxy,by->bx", poses[:, :3, :3], model.first_moment) + model.mass[:, None] * poses[:, :3, 3]
    behind = jnp.asarray(ancestor_matrix(model.parent)[np.array(model.mass_node, dtype=int)])
    force = (behind.T @ model.mass)[:, None] * model.gravity
    moment = jnp.cross(behind.T @ moments, model.gravity)
    turn, axial = joint_rates(model, nodes[:n])
    linear = axial + jnp.cross(nodes[:n, :3, 3], turn)
    effort = jnp.sum(force[:n] * linear + moment[:n] * turn, axis=1)
    if springs:
        columns = _spring_columns(nodes[n : n + springs], e[n:].reshape(springs, 6), jnp.zeros(3))
        wrench = jnp.repeat(jnp.concatenate([force, moment], axis=1)[n : n + springs], 6, axis=0)
        effort = jnp.concatenate([effort, jnp.sum(columns * wrench, axis=1)])
    return -effort
