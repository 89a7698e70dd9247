"""Statics of a loaded machine: Cartesian stiffness at a frame, deflections of frames, and their compensation."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmb.compiled import compiled, numeric_arguments
from jaxmb.io.validation import typed_arguments
from jaxmb.machine.build import Model
from jaxmb.mechanics.compliance import (
    cartesian_compliance,
    closed_stiffness,
    compliance_matrix,
    elastic_deflection,
    elastic_jacobian,
    repeated_steps,
    weight_deflection,
)
from jaxmb.mechanics.kinematics import (
    check_coordinates,
    check_wrench,
    frame_index,
    frame_jacobian,
    frame_offsets,
    frame_pose,
    joints_moving_frame,
    node_poses,
    whole,
)
from jaxmb.mechanics.loops import at_closed_posture, check_closed, check_open_chain, constraint_rank, is_traced
from jaxmb.spatial import displacement


@typed_arguments
@numeric_arguments("q", "wrench")
def cartesian_stiffness(
    model: Model, q: Float[Array, "n"], frame: str, wrench: Float[Array, "6"] | None = None
) -> Float[Array, "6 6"]:
    """Cartesian stiffness matrix K_X [6, 6] of a frame, ground axes, at the frame's origin.

    K_X = J^-T (K - K_C) J^-1 for six compliant joints; in general the inverse of J (I - C K_C)^-1 C J^T. Gravity is
    omitted. Coordinates on which no spring acts and virtual springs without compliance are rigid.

    Args:
        model: the machine.
        q: actual coordinates under the load [n], rad or m, not the targets of the drives.
        frame: name of the frame.
        wrench: force [N] then moment [Nm] on the machine at the frame's origin [6], with constant components in ground
            axes; by default no load.

    Returns:
        K_X [6, 6]: N/m and N/rad in the rows of the force, Nm/m and Nm/rad in those of the moment. Not symmetric under
        a moment.

    Raises:
        ValueError: shapes or names are wrong, a loop is open at q, the machine is unstable there, or the frame is rigid
            in one of the six directions.
        NotImplementedError: a coordinate has a `stiffness_slope`, a virtual spring has play, or there is a load and the
            machine has loops.

    Source: Dumas et al. 2011, eq. 4 and 6; Klimchik et al. 2014, eq. 2.
    """
    check_coordinates(model, q=q)
    check_closed(model, q, "q")
    check_wrench(wrench)
    if not is_traced(model, q):
        _check_compliant_in_all_directions(model, q, frame)
    return jnp.linalg.inv(cartesian_compliance(model, q, frame, wrench))


@typed_arguments
@numeric_arguments("q", "wrench")
@at_closed_posture
@compiled
def deflection(
    model: Model,
    q: Float[Array, "n"],
    frame: str,
    wrench: Float[Array, "6"],
    points: Sequence[str] | None = None,
    linear: bool = True,
    weight: bool = False,
) -> Float[Array, "p 6"]:
    """Deflections of frames under a wrench on one of them: translation, then rotation vector, ground axes.

    Linear: J_p C J^T w at q. Otherwise from the equilibrium of the deflected machine, e = C J(q, e)^T w, in which
    springs between frames keep the stiffness they have at q. Gravity is omitted, unless `weight` is true: then the
    deflections are those from the equilibrium under the weight to the equilibrium under weight and load.

    Args:
        model: the machine.
        q: coordinates held by the drives [n], rad or m.
        frame: frame on which the wrench acts.
        wrench: force [N] then moment [Nm] at its origin, ground axes, of constant direction [6].
        points: frames whose deflections are returned; by default the loaded one.
        linear: first order in the load.
        weight: whether the machine deflects under its weight before; with linear = False.

    Returns:
        [p, 6], m and rad. NaN where no equilibrium was found.

    Raises:
        ValueError: shapes or names are wrong, a loop is open at q, or the weight acts and `linear` is true.
        NotImplementedError: a coordinate has a `stiffness_slope`, a virtual spring has play, or the load is nonlinear
            and the machine has loops and springs between frames; or loops, and the weight acts.

    Source: Klimchik et al. 2014, eq. 3.
    """
    check_coordinates(model, q=q)
    check_wrench(wrench)
    points = (frame,) if points is None else _names(points)
    if linear:
        if weight:
            raise ValueError("the weight acts on a deflected machine, expected linear = False")
        e = compliance_matrix(model, q) @ (elastic_jacobian(model, q, frame).T @ wrench)
        return jnp.stack([elastic_jacobian(model, q, point) @ e for point in points])
    x = whole(model, q)
    unloaded = x + elastic_deflection(model, q, frame, jnp.zeros(6), weight=True) if weight else x
    loaded = x + elastic_deflection(model, q, frame, wrench, weight=weight)
    return jnp.stack(
        [displacement(frame_pose(model, unloaded, point), frame_pose(model, loaded, point)) for point in points]
    )


def _names(points: Sequence[str]) -> tuple[str, ...]:
    if isinstance(points, str) or not isinstance(points, Sequence) or not all(isinstance(p, str) for p in points):
        raise ValueError(f"points is {points!r}, expected a sequence of names of frames, as ('tool',)")
    if not points:
        raise ValueError("points is empty, expected at least one frame, or None for the loaded one")
    return tuple(points)


@compiled
def _compliant_motion(model: Model, q: Float[Array, "n"], frame: str) -> tuple[Float[Array, "6 k"], Array]:
    """Twists of a frame that span its deflections under any load, and whether the machine is stable.

    They follow from elastic motions that keep the loops closed; in open machines from the columns of the compliance
    matrix, since that of a virtual spring may be singular.
    """
    compliance = compliance_matrix(model, q)
    size = jnp.where(jnp.diagonal(compliance) > 0.0, jnp.diagonal(compliance), 1.0)
    motion = closed_stiffness(model, q, gravity=False)[0] if model.following else compliance / size
    return elastic_jacobian(model, q, frame) @ motion, jnp.all(jnp.isfinite(compliance))


def _check_compliant_in_all_directions(model: Model, q: Array, frame: str) -> None:
    twists, is_stable = (np.asarray(part) for part in _compliant_motion(model, jnp.asarray(q), frame))
    if not is_stable:
        raise ValueError(f"machine '{model.name}' is unstable at this posture: its stiffness is not positive definite")
    length = np.linalg.norm(twists[:3], axis=0).max(initial=0.0) or 1.0
    rank = constraint_rank(twists * np.array([1.0 / length] * 3 + [1.0] * 3)[:, None])
    if rank < 6:
        raise ValueError(
            f"frame '{frame}' is rigid in {6 - rank} of six directions at this posture (the elastic Jacobian has rank"
            f" {rank}): its stiffness is infinite"
        )


def frame_poses_under_weight(
    model: Model, q: Float[Array, "n"], names: Sequence[str], elastic: bool = True
) -> Float[Array, "p 4 4"]:
    """Poses of frames in the ground frame, of a machine that deflects under its weight while its drives hold q.

    Args:
        model: the machine.
        q: recorded values of its coordinates [n], rad or m.
        names: of the frames.
        elastic: False: rigid, whatever the stiffness.
    """
    x = whole(model, q)
    poses = node_poses(model, x + weight_deflection(model, q) if elastic else x)
    index = np.array([frame_index(model, name) for name in names])
    return poses[np.array(model.frame_node)[index]] @ frame_offsets(model)[index]


@numeric_arguments("q", "wrench")
@at_closed_posture
@compiled
def loaded_pose(
    model: Model, q: Float[Array, "n"], frame: str, wrench: Float[Array, "6"], load_frame: str | None = None
) -> Float[Array, "4 4"]:
    """Pose of a frame of a machine whose drives hold q, under a load.

    Args:
        model: the machine.
        q: targets of the drives [n], rad or m.
        frame: name of the frame.
        wrench: force [N] then moment [Nm], ground axes [6].
        load_frame: frame at whose origin it acts; by default the frame itself.

    Returns:
        T [4, 4] in the ground frame, NaN without an equilibrium.

    Raises:
        ValueError: shapes or names are wrong, or a loop is open at q.
        NotImplementedError: as of the nonlinear `deflection`.
    """
    check_coordinates(model, q=q)
    check_wrench(wrench)
    e = elastic_deflection(model, q, frame if load_frame is None else load_frame, wrench)
    return frame_pose(model, whole(model, q) + e, frame)


@numeric_arguments("q", "wrench")
@compiled
def corrected_target(
    model: Model,
    q: Float[Array, "n"],
    frame: str,
    wrench: Float[Array, "6"],
    load_frame: str | None = None,
    joints: Sequence[str] | None = None,
) -> Float[Array, "n"]:
    """Targets of the drives with which the loaded frame has the pose of the unloaded machine at q.

    By the steps of `compensate`; use `vmap` for off-line compensation of a trajectory.

    Args:
        model: the machine, its stiffness identified.
        q: targets without compensation [n], rad or m.
        frame: the tool.
        wrench: process load [6], N and Nm, ground axes.
        load_frame: frame at whose origin it acts; by default the tool.
        joints: as in `compensate`.

    Returns:
        q_c [n]; NaN where the pose cannot be reached under the load.

    Raises:
        ValueError: shapes or names are wrong.
        NotImplementedError: the machine has loops, or as of the nonlinear `deflection`.

    Source: Klimchik et al. 2013, "Compliance error compensation technique for parallel robots composed of non-perfect
    serial chains".
    """
    target_pose = frame_pose(model, q, frame)

    def error(target: Array) -> Array:
        return displacement(loaded_pose(model, target, frame, wrench, load_frame), target_pose)

    target = _solved(error, model, q, frame, joints)
    return jnp.where(jnp.max(jnp.abs(error(target))) <= CONVERGED, target, jnp.nan)


MOST_COMPENSATION_STEPS = 30
CONVERGED = 1e-9
"""Largest last step of a coordinate, rad or m, and largest displacement from a pose that is reached."""
LEAST_MOTION = 1e-4
"""Ratio to the largest singular value of the nominal Jacobian up to which the nominal machine does not move in a
direction: axes are parallel up to the rounding of stated angles."""
GENERIC = 3
"""Number of postures of which the number of directions of motion is the largest."""


def nominal_model(model: Model) -> Model:
    """The machine without deviations from its stated geometry, as its controller knows it."""
    return dataclasses.replace(
        model,
        origin_deviation=jnp.zeros_like(model.origin_deviation),
        zero=jnp.zeros_like(model.zero),
        reading_scale=jnp.ones_like(model.reading_scale),
        frame_deviation=jnp.zeros_like(model.frame_deviation),
        deviates=False,
    )


@numeric_arguments("q", "wrench")
@compiled
def actual_pose(
    model: Model, q: Float[Array, "n"], frame: str = "tool", wrench: Float[Array, "6"] | None = None
) -> Float[Array, "4 4"]:
    """Pose of a frame of the real machine at joint commands, deflected under its weight and a load.

    Args:
        model: the identified machine.
        q: commands [n], which its drives hold, rad or m.
        frame: name of the frame.
        wrench: force [N] then moment [Nm] at its origin, ground axes [6]; by default none.

    Returns:
        T [4, 4] in the ground frame. Deflections under weight and load are added, which holds to first order.

    Raises:
        ValueError: shapes or names are wrong.
        NotImplementedError: the machine has loops.
    """
    check_coordinates(model, q=q)
    check_wrench(wrench)
    check_open_chain(model, "compensation")
    deflection = weight_deflection(model, q)
    deflection = deflection if wrench is None else deflection + elastic_deflection(model, q, frame, wrench)
    return frame_pose(model, whole(model, q) + deflection, frame)


@typed_arguments
@numeric_arguments("q", "wrench")
@compiled
def compensate(
    model: Model,
    q: Float[Array, "n"],
    frame: str = "tool",
    wrench: Float[Array, "6"] | None = None,
    joints: Sequence[str] | None = None,
) -> Float[Array, "n"]:
    """Joint commands with which the frame of the identified machine reaches its pose in the nominal machine.

    The nominal machine is rigid and has no deviations. Newton steps q_c <- q_c + J^+ d, d the displacement from the
    actual pose to the nominal one. A machine whose nominal frame moves in r < 6 directions reaches the least squares of
    d, 1 m as much as 1 rad: J^+ is that of the r largest singular values, since small tilts of redundant parallel axes
    would add directions that need large motions.

    Args:
        model: the identified machine.
        q: nominal joint values [n], rad or m.
        frame: name of the frame.
        wrench: load at its origin [6], see `actual_pose`.
        joints: coordinates that drives can command; the others, such as elastic ones without a drive, stay at q. By
            default all.

    Returns:
        q_c [n]; NaN where the steps do not converge, or end with a displacement at a posture with fewer than r
        directions: a singular one. Use `jax.vmap` for a path.

    Raises:
        ValueError: shapes or names are wrong.
        NotImplementedError: the machine has loops.
    """
    target = frame_pose(nominal_model(model), q, frame)
    return _solved(lambda x: displacement(actual_pose(model, x, frame, wrench), target), model, q, frame, joints)


@numeric_arguments("q", "wrench")
@compiled
def nominal_values(
    model: Model,
    q: Float[Array, "n"],
    frame: str = "tool",
    wrench: Float[Array, "6"] | None = None,
    joints: Sequence[str] | None = None,
) -> Float[Array, "n"]:
    """Joint values at which the nominal machine has the pose of the real one at joint commands: the reverse of
    `compensate`.

    Args:
        model: the identified machine.
        q: commands [n], rad or m.
        frame: name of the frame.
        wrench: load at its origin [6], see `actual_pose`.
        joints: as in `compensate`.

    Returns:
        Nominal joint values [n]; NaN where the steps do not converge.

    Raises:
        ValueError: shapes or names are wrong.
        NotImplementedError: the machine has loops.
    """
    target, nominal = actual_pose(model, q, frame, wrench), nominal_model(model)
    return _solved(lambda x: displacement(frame_pose(nominal, x, frame), target), nominal, q, frame, joints)


def _solved(
    error: Callable[[Array], Array], model: Model, start: Float[Array, "n"], frame: str, joints: Sequence[str] | None
) -> Float[Array, "n"]:
    """Coordinates with the least displacement, by Newton steps with the Jacobian of the rigid machine in as many
    directions as the joints move the nominal machine; NaN as of `compensate`."""
    check_open_chain(model, "compensation")
    moving = np.isin(model.coordinates, joints_moving_frame(model, frame, joints))
    most = _directions(nominal_model(model), start, frame, moving)

    def step_and_directions(x: Array) -> tuple[Array, Array]:
        left, values, right = jnp.linalg.svd(frame_jacobian(model, x, frame) * moving, full_matrices=False)
        used = (values > 1e-9 * values.max(initial=0.0)) & (jnp.arange(values.size) < most)
        return right.T @ (jnp.where(used, 1.0 / jnp.where(used, values, 1.0), 0.0) * (left.T @ error(x))), used.sum()

    found = repeated_steps(lambda x: step_and_directions(x)[0], start, 1e-13, MOST_COMPENSATION_STEPS)
    step, directions = step_and_directions(found)
    is_regular = (directions == most) | (jnp.max(jnp.abs(error(found))) <= CONVERGED)
    return jnp.where(is_regular & (jnp.max(jnp.abs(step)) <= CONVERGED), found, jnp.nan)


def _directions(model: Model, q: Float[Array, "n"], frame: str, moving: np.ndarray) -> Int[Array, ""]:
    """Number of directions in which some coordinates move a frame at postures near q that are not singular."""
    near = q + np.random.default_rng(0).uniform(-1.0, 1.0, (GENERIC, q.size))
    values = jax.vmap(lambda x: jnp.linalg.svd(frame_jacobian(model, x, frame) * moving, compute_uv=False))(near)
    return (values > LEAST_MOTION * values.max(axis=1, keepdims=True, initial=0.0)).sum(axis=1).max()
