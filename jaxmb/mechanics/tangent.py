"""Linearized equations of motion about a posture: degrees of freedom, tangent matrices and frame Jacobians.

The degrees of freedom are the unlocked coordinates of the machine, then the elastic coordinates of beams, without those
that are dependent by loops.
"""

import dataclasses
import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float
from scipy.linalg import eigh

from jaxmb.compiled import Arguments, Value, compiled, numeric_arguments
from jaxmb.io.validation import check_choice, typed_arguments
from jaxmb.machine.build import Model
from jaxmb.mechanics.compliance import loop_forces
from jaxmb.mechanics.dynamics import (
    beam_effort,
    elastic_effort,
    gravity_effort,
    inverse_dynamics,
    joint_rates,
    mass_matrix,
    own_stretch,
    rigid_gravity_stiffness,
    spring_effort,
    transmission_rates,
)
from jaxmb.mechanics.equilibrium import fixed_coordinates, static_equilibrium
from jaxmb.mechanics.kinematics import (
    ancestor_matrix,
    check_constant_stiffness,
    check_coordinates,
    check_no_virtual_springs,
    elastic_coordinates,
    frame_index,
    frame_offsets,
    frame_poses,
    node_poses,
    pose_change_to_twist,
    whole,
)
from jaxmb.mechanics.loops import (
    at_closed_posture,
    constraint_forces,
    degrees_of_freedom,
    is_traced,
    loop_gaps,
    motion_basis,
)

MOUNTING = 0.01
"""Relative change of a natural frequency above which its dependence on the mounting of loops is reported."""
LEAST_RATE = 1e-2
"""Natural frequency up to which a mode is a rigid-body mode, rad/s."""
LinearizeAt = Literal["posture", "equilibrium"]


class Tangent(eqx.Module):
    """Tangent matrices [m, m] of the equations of motion, M dz'' + C dz' + K dz = 0, z the `motion_coordinates`."""

    mass: Float[Array, "m m"]
    damping: Float[Array, "m m"]
    stiffness: Float[Array, "m m"]
    structural: Float[Array, "m m"] | None = None
    """D of structural damping, K + j D in harmonic motion of positive frequency; None without."""
    fractional: "FractionalStiffness | None" = None
    """E s^a, added to K at s = j omega; None without."""


class FractionalStiffness(eqx.Module):
    """Fractional damping of the linearized equations: E s^a, E = tau^a K_e."""

    matrix: Float[Array, "m m"]
    """E."""
    order: Float[Array, ""]
    """a."""

    def power(self, s: Complex[Array, "f"]) -> Complex[Array, "f"]:
        """s^a on the principal branch, 0 at 0."""
        at_rest = s == 0.0
        return jnp.where(at_rest, 0.0, jnp.exp(self.order * jnp.log(jnp.where(at_rest, 1.0, s))))


def motion_coordinates(model: Model) -> tuple[str, ...]:
    """Names of the m degrees of freedom of the linearized equations."""
    names = (*model.coordinates, *elastic_coordinates(model))
    return tuple(names[i] for i in degrees_of_freedom(model))


def motion_stiffness(model: Model) -> Float[Array, "m"]:
    """Spring stiffness of each degree of freedom [m], N/m or N m/rad, of an open machine without beams."""
    return model.stiffness[jnp.array(degrees_of_freedom(model), dtype=int)]


def motion_jacobian(model: Model, q: Float[Array, "n"], frame: str) -> Float[Array, "6 m"]:
    """Jacobian of a frame's twist, velocity of its origin then angular velocity, ground axes, by `motion_coordinates`.

    Args:
        model: the machine.
        q: posture [n] of the linearization, rad or m.
        frame: name of the frame.

    Raises:
        ValueError: there is no such frame.
    """
    return motion_jacobians(model, q, [frame])[0]


def motion_jacobians(model: Model, q: Float[Array, "n"], frames: Sequence[str]) -> Float[Array, "k 6 m"]:
    """`motion_jacobian` of several frames."""
    x, n = whole(model, q), len(model.coordinates)
    chosen = np.array([frame_index(model, frame) for frame in frames])
    if model.elastic_nodes:

        def poses(x: Array) -> tuple[Float[Array, "k 4 4"], Float[Array, "k 4 4"]]:
            found = frame_poses(model, x)[chosen]
            return found, found

        changes, found = jax.jacfwd(poses, has_aux=True)(x)  # traced once for both
        return jax.vmap(pose_change_to_twist)(found, changes) @ motion_basis(model, x)
    nodes, carriers = node_poses(model, x), np.array(model.frame_node)[chosen]
    turn, axial = joint_rates(model, nodes[:n])
    origins = (nodes[carriers] @ frame_offsets(model)[chosen])[:, :3, 3]
    velocity = axial + jnp.cross(turn, origins[:, None] - nodes[:n, :3, 3])
    twists = jnp.concatenate([velocity, jnp.broadcast_to(turn, velocity.shape)], axis=2)
    is_moved = ancestor_matrix(model.parent)[carriers, :n] > 0.0
    return jnp.where(is_moved[:, :, None], twists, 0.0).transpose(0, 2, 1) @ motion_basis(model, x)


def operating_point(model: Model, q: Float[Array, "n"], at: LinearizeAt = "posture") -> Float[Array, "n"]:
    """Coordinates, elastic ones last, about which a test at posture q is linearized, the springs unloaded at q.

    "posture": q itself, as in Huynh et al. 2020, eq. 17; "equilibrium": the static equilibrium under gravity.
    """
    check_choice("at", at, ("posture", "equilibrium"))
    return whole(model, q) if at == "posture" else static_equilibrium(model, q)


def warns_of_mounting(function: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
    """Decorate a function of a model and a posture q with the warnings of `mounting_warning`."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
        value = function(*args, **kwargs)
        bound = signature.bind(*args, **kwargs).arguments
        model, q = bound["model"], bound["q"]
        if bound.get("at", "posture") == "posture" and model.as_built is not None and not is_traced(model, q):
            for message in mounting_warning(model, q):
                warnings.warn(message, stacklevel=2)
        return value

    return call


def mounting_warning(model: Model, q: Float[Array, "n"]) -> tuple[str, ...]:
    """Warning where natural frequencies at a posture depend on the distribution of weight among beams in loops; empty
    where it is statically determinate, or the frequencies change by less than 1 %.

    The frequencies with `loop_forces` are compared, to first order, with those for unloaded dependent coordinates of
    beams.
    """
    if model.as_built is None:
        return ()
    leaves, structure = jax.tree.flatten((model, q))  # names and topology belong to the structure, not to its hash
    key = structure, hash(tuple(np.asarray(leaf).tobytes() for leaf in leaves))
    if key not in _MESSAGES:
        mass, stiffness, change = (np.asarray(part) for part in _mounting_change(model, jnp.asarray(q, float)))
        squares, shapes = eigh(stiffness, mass)
        changes = np.abs(np.einsum("im,ij,jm->m", shapes, change, shapes)) / 2.0
        relative_change = changes / np.maximum(np.abs(squares), LEAST_RATE**2)
        worst = int(np.argmax(relative_change))
        message = (
            f"natural frequencies of '{model.name}' depend on the mounting of beams in its loops: the one at"
            f" {np.sqrt(np.abs(squares[worst])) / (2.0 * np.pi):.3g} Hz changes by up to"
            f" {100.0 * relative_change[worst]:.2g} % with the distribution of weight; loops are assumed to be closed"
            " without stress before gravity acts"
        )
        _MESSAGES[key] = (message,) if relative_change[worst] > MOUNTING else ()
    return _MESSAGES[key]


_MESSAGES: dict[tuple[Any, int], tuple[str, ...]] = {}
"""Cached messages by machine and posture."""


@compiled
def _mounting_change(model: Model, q: Float[Array, "n"]) -> tuple[Array, Array, Array]:
    """Mass and stiffness matrices, and the change of stiffness with the distribution of weight among beams in loops."""
    tangent, x = tangent_about(model, q, whole(model, q)), whole(model, q)
    effort = gravity_effort(model, x) + elastic_effort(model, x, jnp.zeros_like(x), x)
    forces, columns = constraint_forces(model, x, effort) - loop_forces(model, x, effort), motion_basis(model, x)
    stiffness_change = jax.hessian(lambda y: forces @ loop_gaps(model, y, rigid_only=True))(x)
    return tangent.mass, tangent.stiffness, columns.T @ stiffness_change @ columns


def viscous_damping(
    model: Model, q_rest: Float[Array, "x"], point: Float[Array, "x"], mass: Float[Array, "x x"]
) -> Float[Array, "x x"]:
    """Viscous damping matrix C [x, x] of a machine at rest: dampers, and alpha M + beta K_e of Rayleigh damping.

    K_e is the sum of J^T k J of all springs, J the derivative of the stretch, and of the stiffness matrices of beam
    elements: a damper beta k parallel to each spring. It excludes the geometric stiffness of gravity and preload.

    Args:
        model: the machine.
        q_rest: configuration [x] in which the springs are unloaded, rad or m.
        point: configuration [x] of the linearization.
        mass: M there [x, x].

    Source: Rayleigh, The Theory of Sound, 1877; Géradin and Rixen, Mechanical Vibrations, 2015.
    """
    beta = model.rayleigh_stiffness
    own, between = model.damping + beta * model.stiffness, model.spring_damping + beta * model.spring_stiffness
    damping = _damping_matrix(model, own, between, beta, q_rest, point) + model.rayleigh_mass * mass
    c = transmission_rates(model, point)
    return damping + c.T @ (model.transmission_damping[:, None] * c)


def structural_damping(model: Model, q_rest: Float[Array, "x"], point: Float[Array, "x"]) -> Float[Array, "x x"] | None:
    """D of structural damping, stiffness without preload times loss factors; None where the machine has none."""
    if not model.structural:
        return None
    own, between = model.stiffness * model.loss_factor, model.spring_stiffness * model.spring_loss_factor
    return _damping_matrix(model, own, between, model.beam_loss_factor, q_rest, point)


def elastic_stiffness(model: Model, q_rest: Float[Array, "x"], point: Float[Array, "x"]) -> Float[Array, "x x"]:
    """K_e (`viscous_damping`): stiffness matrix of springs and beams without preload."""
    return _damping_matrix(model, model.stiffness, model.spring_stiffness, 1.0, q_rest, point)


def _damping_matrix(
    model: Model, own: Float[Array, "n"], between: Float[Array, "s"], of_beams: Array | float, q_rest: Array,
    point: Array,
) -> Float[Array, "x x"]:  # fmt: skip
    """Damping matrix of dampers parallel to the springs of coordinates and between frames, and of dampers parallel to
    beams, a factor times their stiffness."""
    damped = dataclasses.replace(model, damping=own, spring_damping=between)
    return jax.jacfwd(lambda rate: spring_effort(damped, point, rate, q_rest) + beam_effort(model, rate, of_beams))(
        jnp.zeros_like(point)
    )


def with_loaded_stiffness(model: Model, q: Float[Array, "n"]) -> Model:
    """The model with the stiffness of its coordinates under load at a posture; unchanged where it is constant.

    k = k0 (1 + c |effort|), c the `stiffness_slope`, effort the static effort at q against gravity and springs of a
    free length (gravity compensators), N m or N (`coordinate_loads`).

    Args:
        model: the machine.
        q: posture [n], rad or m; elastic coordinates behind it are ignored, beams are straight.

    Source: Rognant et al. 2010, section II-E, "stiffness value expressed as a function of the local effort".
    """
    if not any(model.load_dependent):
        return model
    n = len(model.coordinates)
    configuration = whole(model, q[:n])
    effort = gravity_effort(model, configuration) + spring_effort(
        model, configuration, jnp.zeros_like(configuration), configuration
    )
    load = coordinate_loads(model, configuration, effort)
    return dataclasses.replace(
        model,
        stiffness=model.stiffness * (1.0 + model.stiffness_slope * jnp.abs(load)),
        stiffness_slope=jnp.zeros_like(model.stiffness_slope),
        load_dependent=(False,) * n,
    )


def coordinate_loads(model: Model, x: Float[Array, "x"], effort: Float[Array, "x"]) -> Float[Array, "n"]:
    """Load [n] of each coordinate under a static effort [x] on all coordinates of the tree, N m or N.

    In an open chain it is the effort. In closed loops, whose members share the load, it is the coordinate's share for
    the first-order deflection from x, all springs being unloaded there and motor shafts without stiffness being held.
    """
    if not model.loops:
        return effort[: len(model.coordinates)]
    fixed = fixed_coordinates(model)[jnp.array(degrees_of_freedom(model), dtype=int)]
    columns = jnp.where(fixed, 0.0, motion_basis(model, x))
    stiffness = columns.T @ elastic_stiffness(model, x, x) @ columns
    return model.stiffness * own_stretch(
        model, columns @ jnp.linalg.pinv(stiffness, hermitian=True) @ columns.T @ effort
    )


@typed_arguments
@warns_of_mounting
@numeric_arguments("q")
@at_closed_posture
@compiled
def linearize(model: Model, q: Float[Array, "n"], at: LinearizeAt = "posture") -> Tangent:
    """Tangent matrices of the machine at rest in a posture, in which the springs are unloaded.

    M = df/dqdd, C = df/dqd, K = df/dq of the residual f (`inverse_dynamics`); gravity enters K by its geometric
    stiffness; for beams in loops see `mounting_warning`. Rayleigh damping adds alpha M + beta K_e to C, K_e the
    stiffness of springs and beams. All three are symmetric. Loss factors give D of structural damping, and fractional
    damping K_e (j omega tau)^a. Load-dependent stiffness is evaluated at q (`with_loaded_stiffness`).

    Args:
        model: the machine.
        q: posture [n], rad or m.
        at: "posture" linearizes at q, as in the paper; "equilibrium" at the static equilibrium under gravity.

    Raises:
        ValueError: q does not have the machine's n coordinates, a loop is open, or `at` is neither of the two.
        RuntimeError: no equilibrium was found.
        NotImplementedError: the machine has virtual springs, or a coordinate has a `stiffness_slope` and `at` is
            "equilibrium".

    Source: Huynh et al. 2020, eq. 15-17.
    """
    check_coordinates(model, q=q)
    return tangent_about(model, q, operating_point(model, q, at))


@compiled  # also within programs, so that it is traced once for all of them
def tangent_about(
    model: Model,
    q_rest: Float[Array, "n"],
    point: Float[Array, "n"],
    weightless: bool = False,
) -> Tangent:
    """Tangent matrices of the machine at rest at a point, its `operating_point`, the springs unloaded at q_rest.

    Beams in loops share gravity loads by `loop_forces`. Weightless: without gravity, for derivatives by parameters
    whose derivatives gravity does not affect.
    """
    check_no_virtual_springs(model)
    model = with_loaded_stiffness(model, q_rest)
    q_rest, point = whole(model, q_rest), whole(model, point)

    # At rest inertial terms are of second order: only gravity, springs and dampers enter df/dq and df/dqd.
    rest, columns = jnp.zeros_like(point), motion_basis(model, point)

    def elastic_effort_at(x: Array) -> Array:
        return elastic_effort(model, x, rest, q_rest)

    stiffness = jax.jacfwd(elastic_effort_at)(point)
    if not weightless:
        if model.elastic_nodes:
            by_gravity = jax.jacfwd(lambda x: gravity_effort(model, x))(point)
        else:
            by_gravity = rigid_gravity_stiffness(model, point)
        stiffness = stiffness + by_gravity
    if model.following and (model.springs or not weightless):
        effort = elastic_effort_at(point)
        effort = effort if weightless else effort + gravity_effort(model, point)
        forces = loop_forces(model, point, effort)  # their geometric stiffness is 0 without a load
        stiffness = stiffness - jax.hessian(lambda x: forces @ loop_gaps(model, x, rigid_only=True))(point)
    mass = mass_matrix(model, point)
    damping, structural = viscous_damping(model, q_rest, point, mass), structural_damping(model, q_rest, point)
    mass, damping, stiffness = (columns.T @ part @ columns for part in (mass, damping, stiffness))
    structural = None if structural is None else columns.T @ structural @ columns
    return Tangent(mass, damping, stiffness, structural, _fractional(model, q_rest, point, columns))


def _fractional(
    model: Model, q_rest: Float[Array, "x"], point: Float[Array, "x"], columns: Float[Array, "x m"]
) -> FractionalStiffness | None:
    if not model.fractional:
        return None
    elastic = columns.T @ elastic_stiffness(model, q_rest, point) @ columns
    return FractionalStiffness(model.fractional_time**model.fractional_order * elastic, model.fractional_order)


@typed_arguments
@numeric_arguments("q", "qd", "qdd", "q_rest")
@compiled
def linearize_moving(
    model: Model,
    q: Float[Array, "n"],
    qd: Float[Array, "n"],
    qdd: Float[Array, "n"],
    q_rest: Float[Array, "n"] | None = None,
) -> Tangent:
    """Tangent matrices of the machine in motion, with gyroscopic, centrifugal and inertial terms in C and K.

    Rayleigh damping adds alpha M + beta K_e to C; it damps vibration about the motion, not the motion itself.

    Args:
        model: the machine.
        q: coordinates [n], rad or m.
        qd: their velocities [n].
        qdd: their accelerations [n].
        q_rest: posture [n] in which the springs are unloaded; by default the reference posture.

    Raises:
        ValueError: an argument does not have the machine's n coordinates.
        NotImplementedError: the machine has loops, virtual springs, or a stiffness that depends on the load.

    Source: Huynh et al. 2020, eq. 14 and 17, at non-zero velocity.
    """
    if model.loops:
        raise NotImplementedError(f"'{model.name}' has loops: linearization is supported at rest only")
    check_constant_stiffness(model, "linearize_moving")
    check_no_virtual_springs(model)

    q_rest = model.reference if q_rest is None else q_rest
    check_coordinates(model, q=q, qd=qd, qdd=qdd, q_rest=q_rest)
    rest = whole(model, q_rest)
    q, qd, qdd = (whole(model, part) for part in (q, qd, qdd))

    free = jnp.array(degrees_of_freedom(model), dtype=int)
    stiffness, damping, mass = jax.jacfwd(inverse_dynamics, argnums=(1, 2, 3))(model, q, qd, qdd, rest)
    rayleigh = model.rayleigh_mass * mass + model.rayleigh_stiffness * elastic_stiffness(model, rest, q)
    damping, structural = damping + rayleigh, structural_damping(model, rest, q)
    mass, damping, stiffness = (part[free][:, free] for part in (mass, damping, stiffness))
    structural = None if structural is None else structural[free][:, free]
    return Tangent(mass, damping, stiffness, structural, _fractional(model, rest, q, jnp.eye(q.size)[:, free]))
