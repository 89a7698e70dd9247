"""Forward kinematics: poses and Jacobians of the frames of a machine."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled, numeric_arguments
from jaxmb.io.validation import check_distinct, check_known, known_name, typed_arguments
from jaxmb.machine.build import Model
from jaxmb.spatial import rotation_about_axis, rotation_by, transform, vee

FULL_TURN = 2.0 * np.pi
MOST_SEQUENTIAL = 24
"""Nodes up to which poses are computed one after the other, with least arithmetic; compile time grows with them."""
ELASTIC_AXES = ("x", "y", "z", "rx", "ry", "rz")
"""Degrees of freedom of a virtual spring and of the end of a beam element."""
TOOL = "tool"
"""Name of the default frame."""


@typed_arguments
def coordinates(model: Model) -> tuple[str, ...]:
    """Names of the coordinates, in the order of q."""
    return model.coordinates


@typed_arguments
def frames(model: Model) -> tuple[str, ...]:
    """Names of the frames: ground, the bodies' own, the ends of the beam elements, then the named ones."""
    return model.frames


@typed_arguments
def reference_posture(model: Model) -> Float[Array, "n"]:
    """Reference posture q [n] of the machine, rad or m."""
    return model.reference


def elastic_coordinates(model: Model) -> tuple[str, ...]:
    """Names of the elastic coordinates, which follow the coordinates in q: six for each virtual spring and beam
    element, translations then rotations, "arm/1.x" to "arm/1.rz"."""
    return tuple(f"{node}.{axis}" for node in model.elastic_nodes for axis in ELASTIC_AXES)


def whole(model: Model, q: Float[Array, "n"]) -> Float[Array, "n+e"]:
    """Coordinates followed by the elastic ones, which are 0 unless given."""
    missing = len(model.coordinates) + 6 * len(model.elastic_nodes) - q.shape[0]
    return jnp.concatenate([q, jnp.zeros(missing, q.dtype)]) if missing else q


def check_coordinates(model: Model, **arrays: Array | np.ndarray) -> None:
    """Raise ValueError where an array has not one entry for each coordinate, with or without the elastic ones."""
    n, e = len(model.coordinates), 6 * len(model.elastic_nodes)
    for name, array in arrays.items():
        if jnp.shape(array) not in ((n,), (n + e,)):
            with_elastic = f", or ({n + e},) with the elastic ones" if e else ""
            raise ValueError(
                f"{name} has shape {jnp.shape(array)}, expected ({n},): one value a coordinate{with_elastic}"
            )


def check_wrench(wrench: Array | np.ndarray | None) -> None:
    """Raise ValueError where a wrench does not have its six components."""
    if wrench is not None and jnp.shape(wrench) != (6,):
        raise ValueError(f"wrench has shape {jnp.shape(wrench)}, expected (6,): force then moment")


def check_no_virtual_springs(model: Model) -> None:
    """Raise NotImplementedError where the machine has virtual springs, which are massless."""
    if model.virtual_springs:
        raise NotImplementedError(
            f"'{model.name}' has virtual springs ('{model.virtual_springs[0]}' ...), which are for deflections"
            " under load only: for FRFs, modes and equilibria write flexible links as [[beam]], joints with several"
            " compliant directions as coordinates with stiffness, and no [[virtual_spring]]"
        )


def check_constant_stiffness(model: Model, label: str) -> None:
    """Raise NotImplementedError where the stiffness of a coordinate depends on its load."""
    if any(model.load_dependent):
        raise NotImplementedError(
            f"{label}: '{model.coordinates[model.load_dependent.index(True)]}' of '{model.name}' has a stiffness_slope,"
            " expected joints of constant stiffness"
        )


def frame_name(model: Model, frame: str) -> str:
    """Name of a frame of the machine; "tool" means its only end frame where no frame has that name, as in many URDFs.

    An end frame is a named frame of a moving terminal body, or that body's own frame where it has none.

    Raises:
        ValueError: the machine has no such frame, or several end frames and none named "tool".
    """
    if frame in model.frames:
        return frame
    if frame != TOOL:
        raise ValueError(known_name("frame", frame, model.frames))
    if len(model.end_frames) != 1:
        ends = ", ".join(model.end_frames[:20]) + (", ..." if len(model.end_frames) > 20 else "")
        raise ValueError(
            f"frame '{TOOL}' does not exist and '{model.name}' has {len(model.end_frames)} end frames ({ends}),"
            " expected the name of one of them"
        )
    return model.end_frames[0]


def frame_index(model: Model, frame: str) -> int:
    """Index of a frame in `frames(model)` by its name, or by "tool", see `frame_name`.

    Raises:
        ValueError: the machine has no such frame.
    """
    return model.frames.index(frame_name(model, frame))


def joints_moving_frame(model: Model, frame: str, joints: Sequence[str] | None = None) -> tuple[str, ...]:
    """Names of the coordinates that move a frame, in the order of q, restricted to `joints` if given.

    In a machine with loops only independent coordinates count, and those of a loop move all that the loop moves.

    Raises:
        ValueError: a given name is not a coordinate or is given twice, none moves the frame, or there is no such frame.
    """
    behind = ancestor_nodes(model, model.frame_node[frame_index(model, frame)])
    ends = [[ancestor_nodes(model, model.frame_node[frame]) for frame in pair] for pair in model.loop_frames]
    loop_nodes = [*(one ^ other for one, other in ends), *(set(pair) for pair in model.couplings)]
    for _ in loop_nodes:  # loops that share coordinates move each other
        behind = behind.union(*(loop for loop in loop_nodes if loop & behind))
    behind -= set(model.dependent)
    check_known("joints: coordinate", joints or (), model.coordinates)
    for name in joints or ():
        if model.coordinates.index(name) in model.dependent:
            raise ValueError(f"joints: '{name}' is a dependent coordinate of a loop, expected independent ones")
    check_distinct(joints or (), "joints: '{}' occurs twice, expected every coordinate once")
    found = tuple(c for i, c in enumerate(model.coordinates) if i in behind and (joints is None or c in joints))
    if not found:
        raise ValueError(f"joints: none of them moves frame '{frame}' of '{model.name}'")
    return found


def ancestor_nodes(model: Model, node: int) -> set[int]:
    """Indices of a node and its ancestors up to the ground."""
    return set(np.flatnonzero(ancestor_matrix(model.parent)[node]).tolist())


def joint_origins(model: Model) -> Float[Array, "n 4 4"]:
    """Actual pose of the origin of each coordinate in its parent node: the stated one times its deviation."""
    return model.origin @ _deviations(model.origin_deviation) if model.deviates else model.origin


def joint_axes(model: Model) -> Float[Array, "n 3"]:
    """Motion of each coordinate for a unit change of its reading, in its own axes: along or about."""
    return model.axis * model.reading_scale[:, None] if model.deviates else model.axis


def frame_offsets(model: Model) -> Float[Array, "f 4 4"]:
    """Actual pose of each frame in its node: the stated one times its deviation."""
    return model.frame_offset @ _deviations(model.frame_deviation) if model.deviates else model.frame_offset


def _deviations(vectors: Float[Array, "k 6"]) -> Float[Array, "k 4 4"]:
    """Transforms of translations and rotation vectors."""
    return jax.vmap(lambda v: transform(rotation_by(v[3:]), v[:3]))(vectors)


@compiled
def node_poses(model: Model, q: Float[Array, "n"]) -> Float[Array, "nodes 4 4"]:
    """Pose of every node in the ground frame: coordinates, virtual springs, beam elements (ends), ground (index -1).

    T_0i = T_0parent(i) T_origin_i T_motion(q_i), eq. 1-4 of Huynh et al. 2020; the motion of a virtual spring or beam
    element is its translation and rotation vector, which follow the coordinates in q and are 0 by default. The
    coordinates are readings, from which the actual values follow by scale and zero.
    """
    n = len(model.coordinates)
    revolute = jnp.array(model.revolute, dtype=bool)
    actual = q[:n] * model.reading_scale + model.zero if model.deviates else q[:n]
    angle = jnp.where(revolute, actual, 0.0)
    displacement = jnp.where(revolute, 0.0, actual)

    def motion(origin: Array, axis: Array, angle: Array, displacement: Array) -> Array:
        return origin @ transform(rotation_about_axis(axis, angle), axis * displacement)

    steps = [jax.vmap(motion)(joint_origins(model), model.axis, angle, displacement)] if n else []
    if model.elastic_nodes:
        ends = model.beam_start.at[:, :3, 3].add(
            model.beam_start[:, :3, 0] * model.beam_length[model.element_beam, None]
        )
        origins = jnp.concatenate([model.virtual_spring_origin, ends])
        steps.append(origins if q.shape[0] == n else origins @ _deviations(q[n:].reshape(-1, 6)))
    steps = jnp.concatenate(steps)
    if len(model.order) <= MOST_SEQUENTIAL:
        sequential: dict[int, Array] = {-1: jnp.eye(4)}
        for node in model.order:
            sequential[node] = sequential[model.parent[node]] @ steps[node]
        return jnp.stack([*(sequential[i] for i in range(len(model.order))), sequential[-1]])
    return _products(model.parent, steps)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _products(parent: tuple[int, ...], steps: Float[Array, "k 4 4"]) -> Float[Array, "nodes 4 4"]:
    """Pose of every node from its pose in its parent, and of the ground, last."""
    poses, ancestor = jnp.concatenate([steps, jnp.eye(4)[None]]), np.array([*parent, -1])
    # each round doubles the number of ancestors in each product; the ground is its own parent
    while np.any(ancestor >= 0):
        poses, ancestor = poses[ancestor] @ poses, ancestor[ancestor]
    return poses


@_products.defjvp
def _products_jvp(
    parent: tuple[int, ...], primals: tuple[Array], tangents: tuple[Array]
) -> tuple[Float[Array, "nodes 4 4"], Float[Array, "nodes 4 4"]]:
    """dT = (sum of the twists of the node and its ancestors) T, the twist of a step dS being T_parent dS T^-1."""
    poses = _products(parent, *primals)
    own = poses[:-1]
    inverse_rotation = jnp.swapaxes(own[:, :3, :3], 1, 2)
    inverse = jax.vmap(transform)(inverse_rotation, -jnp.einsum("kij,kj->ki", inverse_rotation, own[:, :3, 3]))
    twists = poses[np.array(parent)] @ tangents[0] @ inverse
    return poses, jnp.einsum("nk,kij->nij", ancestor_matrix(parent), twists) @ poses


@functools.lru_cache(maxsize=64)
def ancestor_matrix(parent: tuple[int, ...]) -> np.ndarray:
    """1 where a node (column) is another (row) or an ancestor of it [nodes + 1, nodes]; the last row is the ground."""
    is_ancestor = np.zeros((len(parent) + 1, len(parent)))
    for node in range(len(parent)):
        ancestor = node
        while ancestor >= 0:
            is_ancestor[node, ancestor] = 1.0
            ancestor = parent[ancestor]
    return is_ancestor


def frame_poses(model: Model, q: Float[Array, "n"]) -> Float[Array, "f 4 4"]:
    """Pose in the ground frame of every frame, in the order of `frames(model)`."""
    return node_poses(model, q)[jnp.array(model.frame_node)] @ frame_offsets(model)


@typed_arguments
@numeric_arguments("q")
@compiled
def frame_pose(model: Model, q: Float[Array, "n"], frame: str) -> Float[Array, "4 4"]:
    """Pose of one frame in the ground frame, as a homogeneous transform T_0frame.

    Args:
        model: the machine.
        q: coordinates [n], rad or m.
        frame: name of the frame.

    Raises:
        ValueError: q does not have the machine's n coordinates, or there is no such frame.

    Source: Huynh et al. 2020, eq. 1.
    """
    check_coordinates(model, q=q)
    index = frame_index(model, frame)
    return node_poses(model, q)[model.frame_node[index]] @ frame_offsets(model)[index]


@typed_arguments
@numeric_arguments("q")
@compiled
def frame_jacobian(model: Model, q: Float[Array, "n"], frame: str) -> Float[Array, "6 n"]:
    """Jacobian of one frame's twist: velocity of its origin, then angular velocity, both in ground axes.

    v = d e / d q, [w]x = dR / dq R^T, by differentiation of the pose.

    Args:
        model: the machine.
        q: coordinates [n], rad or m.
        frame: name of the frame.

    Returns:
        J [6, n], m or 1 by coordinate (m/rad, rad/rad ...).

    Raises:
        ValueError: q does not have the machine's n coordinates, or there is no such frame.

    Source: Huynh et al. 2020, eq. 5-6.
    """
    change = jax.jacfwd(lambda x: frame_pose(model, x, frame))(q)
    return pose_change_to_twist(frame_pose(model, q, frame), change)


def pose_change_to_twist(pose: Float[Array, "4 4"], change: Float[Array, "4 4 n"]) -> Float[Array, "6 n"]:
    """Twist [6, n] in ground axes of the derivative of a pose with respect to n coordinates."""
    angular = jax.vmap(lambda d: vee(d @ pose[:3, :3].T), in_axes=2, out_axes=1)(change[:3, :3])
    return jnp.concatenate([change[:3, 3], angular])
