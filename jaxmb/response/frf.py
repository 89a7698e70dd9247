"""Frequency responses between frames of a machine, with the time convention e^{+j omega t}."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Complex, Float

from jaxmb.compiled import compiled, numeric_arguments
from jaxmb.io.validation import check_known, finite_number, typed_arguments
from jaxmb.linalg.responses import Support, receptance
from jaxmb.machine.build import Model
from jaxmb.mechanics.kinematics import check_coordinates, frame_index, frame_pose, frame_poses, whole
from jaxmb.mechanics.loops import at_closed_posture, motion_basis
from jaxmb.mechanics.tangent import (
    LinearizeAt,
    Tangent,
    linearize,
    motion_coordinates,
    motion_jacobian,
    motion_jacobians,
    operating_point,
    warns_of_mounting,
)
from jaxmb.response.frf_kind import (
    ALL_DIRECTIONS,
    DIRECTIONS,
    GROUND_DIRECTIONS,
    JOINT_DIRECTIONS,
    FrfKind,
    Point,
    check_kind,
    endpoints,
)


class Sensor(NamedTuple):
    """Properties of the sensors of a test."""

    gravity: bool = False
    """Whether they measure gravity as they tilt, as accelerometers with DC response do."""
    high_pass_hz: float = 0.0
    """Corner frequency f of a first-order high-pass s / (s + 2 pi f), Hz; 0 for none."""


IDEAL = Sensor()
LEAST_FORCE = 1e-9
"""Smallest force of `frf_finite_force`, N: displacements under smaller ones are rounding of poses."""


@typed_arguments
@warns_of_mounting
@numeric_arguments("q")
@numeric_arguments("frequency_hz", least=0.0)
@at_closed_posture
@compiled
def frf(
    model: Model,
    q: Float[Array, "n"],
    frequency_hz: Float[Array, "f"] | Float[np.ndarray, "f"],
    frame: str = "tool",
    kind: FrfKind = "accelerance",
    outputs: Sequence[Point] | None = None,
    inputs: Sequence[Point] | None = None,
    at: LinearizeAt = "posture",
    sensor: Sensor = IDEAL,
) -> Complex[Array, "f o i"]:
    """Frequency responses [freq, output, input] of the machine at rest in a posture, springs unloaded there.

    H = (j w)^d O (K + j w C - w^2 M)^-1 I^T, rows of O and I the Jacobians of the outputs and inputs along their
    directions, d = 0, 1, 2 for receptance, mobility, accelerance. K includes structural and fractional damping.
    Accelerometers that measure gravity as they tilt add (j w)^(d-2) T (K + j w C - w^2 M)^-1 I^T, rows of T by
    `tilt_rows`.

    Args:
        model: the machine.
        q: posture [n], rad or m.
        frequency_hz: frequencies [f], Hz.
        frame: frame whose x, y, z are the default outputs and inputs; "tool" means the only end frame of a machine
            without a frame of that name.
        kind: "receptance" (m/N), "mobility" (m/s/N) or "accelerance" (m/s^2/N).
        outputs: sensors as (frame, direction), direction x y z rx ry rz in the frame's axes, X Y Z RX RY RZ in the
            ground's, "-x" for reversed sign; or (coordinate, "angle"), (coordinate, "travel") of a prismatic one.
        inputs: forces (moments for rx ry rz) likewise. If only outputs or only inputs are given, they serve as both.
        at: linearize at the "posture" or at the static "equilibrium" under gravity.
        sensor: of all outputs; by default ideal, measuring only the motion of its point.

    Returns:
        H [f, o, i]; at 0 Hz NaN, or any large number by rounding, where a motion of the machine has no stiffness.

    Raises:
        ValueError: a shape, a frame, a direction, `at` or the kind is wrong, a coordinate is locked, a loop is open at
            q, frequency_hz is no list, or there is a NaN or a frequency below 0; there is no "tool" and several end
            frames; or the sensor's corner frequency is below 0.
        RuntimeError: no equilibrium was found.
        NotImplementedError: as of `linearize`.

    Source: Huynh et al. 2020, eq. 23-28, in the limit of a small force.
    """
    outputs, inputs = endpoints(frame, outputs, inputs)
    derivatives = check_kind(kind)
    finite_number("sensor: high_pass_hz", sensor.high_pass_hz, least=0.0)
    omega = _omega(frequency_hz)
    tangent = linearize(model, q, at)
    point = operating_point(model, q, at)
    output_rows = response_rows(model, point, outputs)
    input_rows = output_rows if inputs == outputs else response_rows(model, point, inputs)
    tilt = tilt_rows(model, point, outputs) if sensor.gravity else None
    return sensed_receptance(tangent, omega, 0.0, derivatives, output_rows, input_rows, tilt, sensor)


def sensed_receptance(
    t: Tangent,
    omega: Float[Array, "f"],
    decay: Float[Array, ""] | float,
    derivatives: int,
    output_rows: Float[Array, "o m"],
    input_rows: Float[Array, "i m"],
    tilt: Float[Array, "o m"] | None,
    sensor: Sensor,
    support: Support | None = None,
) -> Complex[Array, "f o i"]:
    """Frequency responses at s = j omega + decay as measured by the sensors [f, o, i].

    M s^2 + C s + K equals the dynamic stiffness at j omega of a machine with C + 2 decay M and K + decay C +
    decay^2 M. Structural damping is evaluated at j omega, fractional damping at s.
    """
    s = laplace(omega, decay)
    rows = output_rows if tilt is None else jnp.concatenate([output_rows, tilt])
    h = tangent_receptance(with_decay(t, decay), omega, rows, input_rows, support, s)
    if tilt is None:
        return h * sensor_factor(s, derivatives, sensor)
    moved, tilt_response = jnp.split(h, 2, axis=1)
    return moved * sensor_factor(s, derivatives, sensor) + tilt_response * sensor_factor(s, derivatives - 2, sensor)


def laplace(omega: Float[Array, "f"], decay: Float[Array, ""] | float) -> Complex[Array, "f"]:
    """s = j omega + decay."""
    return jax.lax.complex(jnp.broadcast_to(jnp.asarray(decay, dtype=omega.dtype), omega.shape), omega)


def with_decay(t: Tangent, decay: Float[Array, ""] | float) -> Tangent:
    """Tangent whose responses at j omega are those of the given one at j omega + decay."""
    damping = t.damping + 2.0 * decay * t.mass
    stiffness = t.stiffness + decay * t.damping + decay**2 * t.mass
    return Tangent(t.mass, damping, stiffness, t.structural, t.fractional)


def sensor_factor(s: Complex[Array, "f"], derivatives: int, sensor: Sensor) -> Complex[Array, "f 1 1"]:
    """Sensor output per displacement, s^d times the high-pass."""
    high_pass = s / (s + 2.0 * jnp.pi * sensor.high_pass_hz) if sensor.high_pass_hz > 0.0 else jnp.ones_like(s)
    return (s**derivatives * high_pass)[:, None, None]


def tangent_receptance(
    t: Tangent,
    omega: Float[Array, "f"],
    output_rows: Float[Array, "o m"],
    input_rows: Float[Array, "i m"],
    support: Support | None = None,
    s: Complex[Array, "f"] | None = None,
) -> Complex[Array, "f o i"]:
    """`receptance` of a linearized machine; fractional damping is evaluated at s, by default j omega."""
    fractional = None
    if t.fractional is not None:
        fractional = t.fractional.matrix, t.fractional.power(1j * omega if s is None else s)
    return receptance(t.mass, t.damping, t.stiffness, omega, output_rows, input_rows, support, t.structural, fractional)


@typed_arguments
@numeric_arguments("q")
@numeric_arguments("frequency_hz", least=0.0)
@numeric_arguments("force_n", least=LEAST_FORCE)
@at_closed_posture
@compiled
def frf_finite_force(
    model: Model,
    q: Float[Array, "n"],
    frequency_hz: Float[Array, "f"] | Float[np.ndarray, "f"],
    frame: str = "tool",
    kind: FrfKind = "accelerance",
    force_n: float = 1.0,
) -> Complex[Array, "f 3 3"]:
    """Frequency responses at one frame in the paper's form: the pose displaced by a finite force, minus the pose at
    rest.

    Eq. 23-28 literally, the frame displaced by Re(dq) and by Im(dq) through the full kinematics. It converges to `frf`
    as the force goes to zero, with an error linear in the force.

    Args:
        model: the machine.
        q: posture [n], rad or m.
        frequency_hz: frequencies [f], Hz.
        frame: the sensor's frame.
        kind: "receptance", "mobility" or "accelerance".
        force_n: the force F_EMA, N, at least 1e-9.

    Raises:
        ValueError: a shape, the frame or the kind is wrong, a loop is open at q, a frequency is below 0, or the force
            is too small.
        NotImplementedError: the machine has virtual springs.

    Source: Huynh et al. 2020, eq. 23-28.
    """
    derivatives = check_kind(kind)
    omega = _omega(frequency_hz)
    tangent = linearize(model, q)
    pose = frame_pose(model, q, frame)
    efforts = force_n * response_rows(model, q, endpoints(frame, None, None)[0])
    q = whole(model, q)
    identity, columns = jnp.eye(efforts.shape[1]), motion_basis(model, q)
    dq = tangent_receptance(tangent, omega, identity, efforts)

    def displacement(dz: Array) -> Array:
        return pose[:3, :3].T @ (frame_pose(model, q + columns @ dz, frame)[:3, 3] - pose[:3, 3])

    each = jax.vmap(jax.vmap(displacement, in_axes=1, out_axes=1))
    h = jax.lax.complex(each(dq.real), each(dq.imag)) / force_n
    return h * ((1j * omega) ** derivatives)[:, None, None]


def _omega(frequency_hz: Float[Array, "f"] | Float[np.ndarray, "f"]) -> Float[Array, "f"]:
    omega = 2 * jnp.pi * jnp.asarray(frequency_hz, dtype=float)
    if omega.ndim != 1:
        found = "a single number" if omega.ndim == 0 else f"an array of {omega.ndim} dimensions"
        raise ValueError(f"frequency_hz: found {found}, expected a list of frequencies, as [5.0]")
    return omega


@numeric_arguments("frequency_hz", least=0.0)
def convert_frf(
    frf: Complex[Array, "f o i"] | Complex[np.ndarray, "f o i"],
    frequency_hz: Float[Array, "f"] | Float[np.ndarray, "f"],
    from_kind: FrfKind,
    to_kind: FrfKind,
) -> Complex[Array, "f o i"]:
    """Frequency responses converted to another kind, by a power of j omega.

    Args:
        frf: responses [f, o, i].
        frequency_hz: their frequencies [f], Hz.
        from_kind: kind of `frf`.
        to_kind: kind of the result.

    Raises:
        ValueError: a kind is unknown, `frf` does not have one line for each frequency, or the conversion integrates at
            0 Hz, where it is undefined; `as_kind` of an `FrfSet` omits that line.
    """
    power = check_kind(to_kind) - check_kind(from_kind)
    omega = _omega(frequency_hz)
    if jnp.ndim(frf) != 3 or len(frf) != omega.size:
        raise ValueError(f"frf has shape {jnp.shape(frf)}, expected ({omega.size}, outputs, inputs)")
    if power < 0 and not isinstance(omega, Tracer) and bool(jnp.any(omega == 0.0)):
        raise ValueError(f"a {from_kind} at 0 Hz has no {to_kind}: remove that line first")
    return jnp.asarray(frf) * ((1j * omega) ** power)[:, None, None]


@compiled
def response_rows(model: Model, q: Float[Array, "n"], points: Sequence[Point]) -> Float[Array, "p m"]:
    """Jacobian of the displacement at each point along its direction, by `motion_coordinates`.

    At a frame the twist of its origin along an axis of the frame or of the ground; at a coordinate its own change,
    whose conjugate force or moment is the effort of its drive.

    Raises:
        ValueError: q does not have the machine's n coordinates, a frame, a coordinate or a direction does not exist, or
            a coordinate is locked.
    """
    check_coordinates(model, q=q)
    check_points(model, points)
    at_joints = [direction.removeprefix("-") in JOINT_DIRECTIONS.values() for _, direction in points]
    frame_names = list(dict.fromkeys(name for (name, _), joint in zip(points, at_joints, strict=True) if not joint))
    x, rows = whole(model, q), list[Array]()
    columns = motion_basis(model, x)
    if frame_names:
        rotations = frame_poses(model, x)[np.array([frame_index(model, name) for name in frame_names])][:, :3, :3]
        twists = motion_jacobians(model, q, frame_names).reshape(
            len(frame_names), 2, 3, -1
        )  # velocity, angular velocity
        in_frame = jnp.einsum("kji,kpjm->kpim", rotations, twists).reshape(len(frame_names), 6, -1)
        in_ground = twists.reshape(len(frame_names), 6, -1)
    for (name, signed), joint in zip(points, at_joints, strict=True):
        direction = signed.removeprefix("-")
        if joint:
            row = columns[model.coordinates.index(name)]
        elif direction in GROUND_DIRECTIONS:
            row = in_ground[frame_names.index(name), GROUND_DIRECTIONS.index(direction)]
        else:
            row = in_frame[frame_names.index(name), DIRECTIONS.index(direction)]
        rows.append(-row if signed != direction else row)
    return jnp.stack(rows) if rows else jnp.zeros((0, columns.shape[1]))


def tilt_rows(model: Model, q: Float[Array, "n"], points: Sequence[Point]) -> Float[Array, "p m"]:
    """Derivative of the gravity signal at each point by `motion_coordinates`, m/s^2 per m or rad.

    An accelerometer measures d . (a - g) along its axis d, which rotates with its frame: a small rotation theta adds
    -(theta x d) . g = -(d x g) . theta. Rows of rotations and coordinates are 0.
    """
    rows = []
    for name, signed in points:
        axis = signed.removeprefix("-")
        if axis.lower() not in DIRECTIONS[:3]:
            rows.append(jnp.zeros(len(motion_coordinates(model))))
            continue
        direction = jnp.eye(3)[DIRECTIONS.index(axis.lower())]
        direction = direction if axis in GROUND_DIRECTIONS else frame_pose(model, q, name)[:3, :3] @ direction
        row = -jnp.cross(direction, model.gravity) @ motion_jacobian(model, q, name)[3:]
        rows.append(-row if signed != axis else row)
    return jnp.stack(rows) if rows else jnp.zeros((0, len(motion_coordinates(model))))


def check_points(model: Model, points: Sequence[Point]) -> None:
    """Raise ValueError where a point is not (a frame of the machine, a direction), or a coordinate that moves."""
    for point in points:
        if len(point) != 2 or point[1].removeprefix("-") not in ALL_DIRECTIONS:
            raise ValueError(
                f"point {tuple(point)}: expected (frame, direction), direction one of {', '.join(DIRECTIONS)}, in the"
                f' ground\'s axes {", ".join(GROUND_DIRECTIONS)}, or (coordinate, "angle" or "travel")'
            )
        if point[1].removeprefix("-") in JOINT_DIRECTIONS.values():
            name, direction = point
            check_known("coordinate", [name], model.coordinates)
            if model.locked[model.coordinates.index(name)]:
                raise ValueError(f"point ('{name}', '{direction}'): '{name}' is locked")
            own = JOINT_DIRECTIONS[model.revolute[model.coordinates.index(name)]]
            if direction.removeprefix("-") != own:
                raise ValueError(f"point ('{name}', '{direction}'): expected '{own}' of a coordinate of its type")
        else:
            frame_index(model, point[0])
