"""Complex displacements of the drawn points of a machine in its modes, scaled for drawing."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from jaxmb.compiled import compiled
from jaxmb.machine.build import Model
from jaxmb.mechanics.beams import section_poses
from jaxmb.mechanics.kinematics import node_poses, whole
from jaxmb.mechanics.loops import motion_basis
from jaxmb.mechanics.tangent import linearize, motion_coordinates
from jaxmb.report.mode_shapes.structure import SECTIONS, Structure, structure_of
from jaxmb.response.modal import Modes, modes

DRAWN_PART = 0.1
"""Largest drawn displacement over the machine's size."""
MOST_TURN = 1.0
"""Largest drawn rotation of a frame whose axes are drawn, rad."""
AXES_PART = 0.06
"""Length of the axes of frames over the machine's size."""
STILL = 1e-9
"""Displacement over the machine's size, for a mode shape of unit coordinates (m or rad), that may be rounding."""


class ModeMotion(NamedTuple):
    """The drawn displacements in one mode."""

    number: int
    """1 is the lowest frequency."""
    frequency_hz: float
    damping_ratio: float
    displacement: Complex[np.ndarray, "p 3"]
    """Of each point in ground axes, m: Re(displacement exp(j phase)) is drawn, largest at phase 0. Zero if no drawn
    point moves, as in a mode of a motor shaft alone."""


class MachineMotion(NamedTuple):
    """A machine at rest, and its displacements in some modes."""

    name: str
    structure: Structure
    points: Float[np.ndarray, "p 3"]
    """At rest in the ground frame, m."""
    size: float
    """Diagonal of the box around the points, m."""
    modes: tuple[ModeMotion, ...]


def found_modes(model: Model, q: Float[Array, "n"], found: Modes | None = None) -> Modes:
    """Modes of a machine linearized at q, or the given ones after a check of their size.

    Raises:
        ValueError: q does not have the machine's n coordinates, a loop is open at q, or the given modes have another
            number of degrees of freedom.
    """
    if found is None:
        return modes(linearize(model, q))
    components, expected = found.shape.shape[0], len(motion_coordinates(model))
    if components != expected:
        raise ValueError(
            f"found has shapes of {components} components, expected the {expected} degrees of freedom of '{model.name}'"
        )
    return found


def first_modes(found: Modes, count: int) -> range:
    """Numbers of the first modes, at most `count`.

    Raises:
        ValueError: count is below 1.
    """
    if count < 1:
        raise ValueError(f"count is {count}, expected 1 mode or more")
    return range(1, min(count, found.frequency_hz.size) + 1)


def check_mode(name: str, found: Modes, number: int) -> None:
    """Raise ValueError if the machine has no mode of this number."""
    count = found.frequency_hz.size
    if not 1 <= number <= count:
        has = f"1 to {count}" if count else "another machine: this one has none"
        raise ValueError(f"mode {number}: '{name}' has no such mode, expected {has}")


def machine_motion(model: Model, q: Float[Array, "n"], found: Modes, numbers: Sequence[int]) -> MachineMotion:
    """Displacements of the drawn points of a machine in some of its modes.

    A point is displaced by J phi exp(j omega t), J the Jacobian of its position by the degrees of freedom and phi the
    mode shape. A multiple of this linear displacement is drawn, so that loops stay closed: the largest displacement is
    `DRAWN_PART` of the machine's size, less if a drawn frame would rotate by more than `MOST_TURN`.

    Args:
        model: the machine.
        q: posture [n], rad or m.
        found: its modes at q.
        numbers: of the modes, 1 is the lowest frequency.
    """
    structure = structure_of(model)
    chosen = [number - 1 for number in numbers]
    shape = np.asarray(found.shape)[:, chosen]
    x = whole(model, jnp.asarray(q, float))
    arrays = (jax.device_put(part) for part in (structure.node, structure.offset, shape))
    points, displacements = (np.array(part) for part in _displace(model, x, *arrays))
    tips = [tip for _, *three in structure.ends for tip in three]
    body = np.delete(np.arange(len(points)), tips)
    size = float(np.linalg.norm(np.ptp(points[body], axis=0))) or 1.0
    for origin, *three in structure.ends:  # computed for axes of 1 m, linear in their length
        points[three] = points[origin] + AXES_PART * size * (points[three] - points[origin])
        displacements[:, three] = displacements[:, [origin]] + AXES_PART * size * (
            displacements[:, three] - displacements[:, [origin]]
        )
    frequency_hz, damping_ratio = np.asarray(found.frequency_hz), np.asarray(found.damping_ratio)
    drawn = tuple(
        ModeMotion(m + 1, float(frequency_hz[m]), float(damping_ratio[m]), _scaled(displacement, structure, body, size))
        for m, displacement in zip(chosen, displacements, strict=True)
    )
    return MachineMotion(model.name, structure, points, size, drawn)


def phase_of_largest_motion(displacement: Complex[np.ndarray, "*p"]) -> float:
    """Phase a [rad] that maximises the sum of squares of Re(displacement exp(j a)).

    The sum is (sum |d|^2 + Re(exp(2 j a) sum d^2)) / 2.
    """
    return -0.5 * float(np.angle(np.sum(displacement**2)))


def _scaled(displacement: np.ndarray, structure: Structure, body: np.ndarray, size: float) -> np.ndarray:
    """A displacement [p, 3] scaled for drawing; `body` are the points other than tips of axes."""
    d = displacement * np.exp(1j * phase_of_largest_motion(displacement))
    largest = _largest(d[body]) / size
    turn = max((_largest(d[tips] - d[origin]) for origin, *tips in structure.ends), default=0.0)
    turn /= AXES_PART * size
    if max(largest, turn) <= STILL:
        return np.zeros_like(d)
    return d * min(DRAWN_PART / max(largest, STILL), MOST_TURN / max(turn, STILL))


def _largest(displacement: np.ndarray) -> float:
    """Largest displacement at phase 0, m."""
    return float(np.max(np.linalg.norm(np.real(displacement), axis=-1)))


@compiled
def _displace(
    model: Model, x: Float[Array, "x"], node: Array, offset: Float[Array, "r 3"], shape: Complex[Array, "m k"]
) -> tuple[Float[Array, "p 3"], Complex[Array, "k p 3"]]:
    """Positions of the points of a structure at coordinates x, elastic ones included, and their displacements in the
    mode shapes."""
    first_elastic = len(model.coordinates) + 6 * len(model.virtual_springs)
    first_element = len(model.coordinates) + len(model.virtual_springs)

    def positions(x: Array) -> Array:
        poses = node_poses(model, x)
        of_nodes = jnp.einsum("rij,rj->ri", poses[node, :3, :3], offset) + poses[node, :3, 3]
        if not model.beams:
            return of_nodes
        begin = poses[jnp.array(model.parent[first_element:])] @ model.beam_start
        curves = begin[:, None] @ section_poses(model, x[first_elastic:].reshape(-1, 6), SECTIONS)
        return jnp.concatenate([of_nodes, curves[..., :3, 3].reshape(-1, 3)])

    def rate(direction: Array) -> Array:
        return jax.jvp(positions, (x,), (direction,))[1]

    directions = (motion_basis(model, x) @ shape).T
    real, imaginary = jnp.split(jax.vmap(rate)(jnp.concatenate([directions.real, directions.imag])), 2)
    return positions(x), jax.lax.complex(real, imaginary)
