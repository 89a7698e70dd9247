"""Small motions about a posture: their coordinates, mass, damping and stiffness, and how a frame moves with them.

What the coordinates of small motions are is said here and nowhere else: the coordinates of the machine that are not
locked, then the elastic coordinates of beams, less those that follow from others where loops close.
"""

import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Literal, ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float
from scipy.linalg import eigh

from jaxmb.compiled import compiled, takes_numbers
from jaxmb.machine.build import Model
from jaxmb.mechanics.body_motion import rigid_gravity_stiffness
from jaxmb.mechanics.compliance import loop_forces
from jaxmb.mechanics.damping import elastic_stiffness, rayleigh_damping, structural_damping, viscous_damping
from jaxmb.mechanics.dynamics import (
    elastic_effort,
    gravity_effort,
    inverse_dynamics,
    mass_matrix,
)
from jaxmb.mechanics.equilibrium import static_equilibrium
from jaxmb.mechanics.joint_load import at_load, check_constant_stiffness
from jaxmb.mechanics.kinematics import (
    check_coordinates,
    check_no_virtual_springs,
    elastic_coordinates,
    frame_index,
    frame_poses,
    pose_change_to_twist,
    whole,
)
from jaxmb.mechanics.loops import (
    at_closed_posture,
    closing_forces,
    is_traced,
    loop_gaps,
    motion_columns,
    moving_independently,
)

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")

MOUNTING = 0.01
"""Relative change of a natural frequency from which on it is reported that it depends on how loops were mounted."""
LEAST_RATE = 1e-2
"""rad/s: motions that are slower are free."""
LinearizeAt = Literal["posture", "equilibrium"]


class Tangent(eqx.Module):
    """Tangent matrices [m, m] of the equations of motion: M dz'' + C dz' + K dz = 0, z as `motion_coordinates`."""

    mass: Float[Array, "m m"]
    damping: Float[Array, "m m"]
    stiffness: Float[Array, "m m"]
    structural: Float[Array, "m m"] | None = None
    """D of structural damping: K + j D stands for K where a motion is harmonic, of positive frequency. None without."""
    fractional: "FractionalStiffness | None" = None
    """E s^a, added to K at s = j omega. None without."""


class FractionalStiffness(eqx.Module):
    """Fractional damping of small motions: E s^a, E = tau^a K_e."""

    matrix: Float[Array, "m m"]
    """E."""
    order: Float[Array, ""]
    """a."""

    def power(self, s: Complex[Array, "f"]) -> Complex[Array, "f"]:
        """s^a on the principal branch, 0 at 0."""
        still = s == 0.0
        return jnp.where(still, 0.0, jnp.exp(self.order * jnp.log(jnp.where(still, 1.0, s))))


def motion_coordinates(model: Model) -> tuple[str, ...]:
    """Names of the m coordinates of small motions."""
    every = (*model.coordinates, *elastic_coordinates(model))
    return tuple(every[i] for i in moving_independently(model))


def motion_stiffness(model: Model) -> Float[Array, "m"]:
    """Stiffness of the own spring of each coordinate of small motions, N/m or N m/rad, of an open machine without
    beams."""
    return model.stiffness[jnp.array(moving_independently(model), dtype=int)]


def motion_jacobian(model: Model, q: Float[Array, "n"], frame: str) -> Float[Array, "6 m"]:
    """Twist of a frame, velocity of its origin then angular velocity in ground axes, for each unit of small motion.

    Args:
        model: the machine.
        q: about which it moves [n], rad or m.
        frame: name of the frame.

    Raises:
        ValueError: there is no such frame.
    """
    return motion_jacobians(model, q, [frame])[0]


def motion_jacobians(model: Model, q: Float[Array, "n"], frames: Sequence[str]) -> Float[Array, "k 6 m"]:
    """`motion_jacobian` of several frames, from one derivative."""
    x = whole(model, q)
    chosen = np.array([frame_index(model, frame) for frame in frames])

    def poses(x: Array) -> Float[Array, "k 4 4"]:
        return frame_poses(model, x)[chosen]

    twists = jax.vmap(pose_change_to_twist)(poses(x), jax.jacfwd(poses)(x))
    return twists @ motion_columns(model, x)


def working_point(model: Model, q: Float[Array, "n"], at: LinearizeAt = "posture") -> Float[Array, "n"]:
    """Coordinates, with the elastic ones, about which a test at posture q is linearized, the springs unloaded at q.

    "posture": q itself, as in Huynh et al. 2020, eq. 17; "equilibrium": where the machine sags to under gravity.
    """
    if at not in ("posture", "equilibrium"):
        raise ValueError(f"at is '{at}', expected 'posture' or 'equilibrium'")
    return whole(model, q) if at == "posture" else static_equilibrium(model, q)


def reports_mounting(function: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
    """Lets a function of a model and a posture q warn where natural frequencies depend on how loops were mounted."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
        found = function(*args, **kwargs)
        bound = signature.bind(*args, **kwargs).arguments
        model, q = bound["model"], bound["q"]
        if bound.get("at", "posture") == "posture" and model.as_built is not None and not is_traced(model, q):
            for doubt in mounting_doubt(model, q):
                warnings.warn(doubt, stacklevel=2)
        return found

    return call


def mounting_doubt(model: Model, q: Float[Array, "n"]) -> tuple[str, ...]:
    """A sentence on natural frequencies at a posture that depend on how beams in loops share the weight; none where
    statics decides it, or where they change by less than 1 %.

    The frequencies with `loop_forces` are compared, to first order, with those where the beams' coordinates that follow
    from others carry nothing.
    """
    if model.as_built is None:
        return ()
    known = hash(tuple(np.asarray(leaf).tobytes() for leaf in (q, *jax.tree.leaves(model))))
    if known not in _DOUBTS:
        mass, stiffness, change = (np.asarray(part) for part in _mountings(model, jnp.asarray(q, float)))
        squares, shapes = eigh(stiffness, mass)
        changes = np.abs(np.einsum("im,ij,jm->m", shapes, change, shapes)) / 2.0
        share = changes / np.maximum(np.abs(squares), LEAST_RATE**2)
        worst = int(np.argmax(share))
        text = (
            f"natural frequencies of '{model.name}' depend on how beams in its loops were mounted: the one at"
            f" {np.sqrt(np.abs(squares[worst])) / (2.0 * np.pi):.3g} Hz changes by up to {100.0 * share[worst]:.2g} %"
            " with how they share the weight; loops are taken as closed without stress before gravity acts"
        )
        _DOUBTS[known] = (text,) if share[worst] > MOUNTING else ()
    return _DOUBTS[known]


_DOUBTS: dict[int, tuple[str, ...]] = {}
"""Sentences by machine and posture: each is looked at once."""


@compiled
def _mountings(model: Model, q: Float[Array, "n"]) -> tuple[Array, Array, Array]:
    """Mass and stiffness of small motions, and the change of the stiffness with how beams in loops share the weight."""
    tangent, x = tangent_about(model, q, whole(model, q)), whole(model, q)
    effort = gravity_effort(model, x) + elastic_effort(model, x, jnp.zeros_like(x), x)
    forces, columns = closing_forces(model, x, effort) - loop_forces(model, x, effort), motion_columns(model, x)
    turned = jax.hessian(lambda y: forces @ loop_gaps(model, y, rigid_only=True))(x)
    return tangent.mass, tangent.stiffness, columns.T @ turned @ columns


@reports_mounting
@takes_numbers("q")
@at_closed_posture
@compiled
def linearize(model: Model, q: Float[Array, "n"], at: LinearizeAt = "posture") -> Tangent:
    """Tangent matrices of the machine at rest in a posture, the springs unloaded there.

    M = df/dqdd, C = df/dqd, K = df/dq of the residual f (`inverse_dynamics`); gravity enters K by its geometric
    stiffness; of beams in loops see `mounting_doubt`. Rayleigh damping adds alpha M + beta K_e to C, K_e the stiffness
    of springs and beams. All three are symmetric. Beside them loss factors of springs make D of structural damping,
    and fractional damping K_e (j omega tau)^a. Stiffness that depends on the load is that at q (`at_load`).

    Args:
        model: the machine.
        q: posture [n], rad or m.
        at: "posture" takes the derivatives at q, as the paper does; "equilibrium" first lets the machine sag under
            gravity and takes them there.

    Raises:
        ValueError: q does not have the machine's n coordinates, a loop is open there, or `at` is neither of the two.
        RuntimeError: no equilibrium was found.
        NotImplementedError: a coordinate has a `stiffness_slope` and `at` is "equilibrium".

    Source: Huynh et al. 2020, eq. 15-17.
    """
    check_coordinates(model, q=q)
    return tangent_about(model, q, working_point(model, q, at), at)


def tangent_about(
    model: Model,
    q_rest: Float[Array, "n"],
    point: Float[Array, "n"],
    at: LinearizeAt = "posture",
    weightless: bool = False,
) -> Tangent:
    """Tangent matrices of the machine at rest at a point, its `working_point`, the springs unloaded at q_rest.

    What beams in loops carry of gravity at a posture is that of `loop_forces`. Weightless: without gravity, at a
    posture, for derivatives by numbers that it does not act on.
    """
    check_no_virtual_springs(model)
    model = at_load(model, q_rest)
    q_rest, point = whole(model, q_rest), whole(model, point)

    # At rest df/dq and df/dqd see only gravity, springs and dampers: the inertial terms are of second order there.
    rest, columns = jnp.zeros_like(point), motion_columns(model, point)

    def elastic(x: Array) -> Array:
        return elastic_effort(model, x, rest, q_rest)

    stiffness, effort = jax.jacfwd(elastic)(point), elastic(point)
    if not weightless:
        stiffness, effort = stiffness + _gravity_stiffness(model, point), effort + gravity_effort(model, point)
    if model.following and (model.springs or not weightless):
        forces = loop_forces(model, point, effort)  # that keep loops closed turn with them; unloaded there are none
        stiffness = stiffness - jax.hessian(lambda x: forces @ loop_gaps(model, x, rigid_only=True))(point)
    mass = mass_matrix(model, point)
    damping, lost = viscous_damping(model, q_rest, point, mass), structural_damping(model, q_rest, point)
    mass, damping, stiffness = (columns.T @ part @ columns for part in (mass, damping, stiffness))
    lost = None if lost is None else columns.T @ lost @ columns
    return Tangent(mass, damping, stiffness, lost, _fractional(model, q_rest, point, columns))


def _gravity_stiffness(model: Model, point: Float[Array, "x"]) -> Float[Array, "x x"]:
    if model.elastic_nodes:
        return jax.jacfwd(lambda x: gravity_effort(model, x))(point)
    return rigid_gravity_stiffness(model, point)


def _fractional(
    model: Model, q_rest: Float[Array, "x"], point: Float[Array, "x"], columns: Float[Array, "x m"]
) -> FractionalStiffness | None:
    if not model.fractional:
        return None
    elastic = columns.T @ elastic_stiffness(model, q_rest, point) @ columns
    return FractionalStiffness(model.fractional_time**model.fractional_order * elastic, model.fractional_order)


@takes_numbers("q", "qd", "qdd", "q_rest")
@compiled
def linearize_moving(
    model: Model,
    q: Float[Array, "n"],
    qd: Float[Array, "n"],
    qdd: Float[Array, "n"],
    q_rest: Float[Array, "n"] | None = None,
) -> Tangent:
    """Tangent matrices of the machine in motion: C and K then hold gyroscopic, centrifugal and inertial terms.

    Rayleigh damping adds alpha M + beta K_e to C here too; it damps small motions alone, not the motion itself.

    Args:
        model: the machine.
        q: coordinates [n], rad or m.
        qd: their velocities [n].
        qdd: their accelerations [n].
        q_rest: where the springs are unloaded [n]; the reference posture where not given.

    Raises:
        ValueError: an argument does not have the machine's n coordinates.
        NotImplementedError: the machine has loops, or a stiffness that depends on the load.

    Source: Huynh et al. 2020, eq. 14 and 17, at non-zero velocity.
    """
    if model.loops:
        raise NotImplementedError(f"'{model.name}' has loops: it is linearized at rest only")
    check_constant_stiffness(model, "linearize_moving")

    rest = whole(model, model.reference if q_rest is None else q_rest)
    q, qd, qdd = (whole(model, part) for part in (q, qd, qdd))

    def residual(x: Array, xd: Array, xdd: Array) -> Array:
        return inverse_dynamics(model, x, xd, xdd, rest)

    free = jnp.array(moving_independently(model), dtype=int)
    stiffness, damping, mass = jax.jacfwd(residual, argnums=(0, 1, 2))(q, qd, qdd)
    damping, lost = damping + rayleigh_damping(model, rest, q, mass), structural_damping(model, rest, q)
    mass, damping, stiffness = (part[free][:, free] for part in (mass, damping, stiffness))
    lost = None if lost is None else lost[free][:, free]
    return Tangent(mass, damping, stiffness, lost, _fractional(model, rest, q, jnp.eye(q.size)[:, free]))
