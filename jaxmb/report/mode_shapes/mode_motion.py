"""How the drawn points of a machine move in its modes: complex displacements, scaled so that they can be seen."""

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
from jaxmb.mechanics.loops import motion_columns
from jaxmb.mechanics.tangent import linearize, motion_coordinates
from jaxmb.report.mode_shapes.structure import SECTIONS, Structure, structure_of
from jaxmb.response.modal import Modes, modes

DRAWN_PART = 0.1
"""Largest drawn displacement, as a part of the machine's size."""
MOST_TURN = 1.0
"""Largest drawn rotation of a frame whose axes are drawn, rad."""
AXES_PART = 0.06
"""Length of the axes of frames, as a part of the machine's size."""
STILL = 1e-9
"""Displacement, as a part of the machine's size where a coordinate moves by 1 (m or rad), that may be rounding."""


class ModeMotion(NamedTuple):
    """The drawn motion in one mode."""

    number: int
    """1 is the mode of the lowest frequency."""
    frequency_hz: float
    damping_ratio: float
    displacement: Complex[np.ndarray, "p 3"]
    """Of each point in ground axes, m, as drawn: Re(displacement exp(j phase)), the machine moving most at phase 0. All
    zero where no drawn point moves, as where the shaft of a motor turns alone."""


class MachineMotion(NamedTuple):
    """A machine at rest, and its motions."""

    name: str
    structure: Structure
    points: Float[np.ndarray, "p 3"]
    """At rest in the ground frame, m."""
    size: float
    """Diagonal of the box around the points, m."""
    modes: tuple[ModeMotion, ...]


def found_modes(model: Model, q: Float[Array, "n"], found: Modes | None = None) -> Modes:
    """Modes of a machine linearized at q, or those that were found already.

    Raises:
        ValueError: q does not have the machine's n coordinates, a loop is open there, or the modes that were found are
            those of another machine.
    """
    if found is None:
        return modes(linearize(model, q))
    components, expected = found.shape.shape[0], len(motion_coordinates(model))
    if components != expected:
        raise ValueError(
            f"found has shapes of {components} components, expected {expected}, one for each small motion of"
            f" '{model.name}'"
        )
    return found


def first_modes(found: Modes, count: int) -> range:
    """Numbers of the first modes, all where there are no more than `count`.

    Raises:
        ValueError: count is not 1 or more.
    """
    if count < 1:
        raise ValueError(f"count is {count}, expected 1 mode or more")
    return range(1, min(count, found.frequency_hz.size) + 1)


def check_mode(name: str, found: Modes, number: int) -> None:
    """Raise ValueError where a machine of that name has no mode of that number."""
    count = found.frequency_hz.size
    if not 1 <= number <= count:
        has = f"1 to {count}" if count else "another machine: this one has none"
        raise ValueError(f"mode {number}: '{name}' has no such mode, expected {has}")


def machine_motion(model: Model, q: Float[Array, "n"], found: Modes, numbers: Sequence[int]) -> MachineMotion:
    """How the drawn points of a machine move in some of its modes.

    Small motions displace a point by J phi exp(j omega t), J the derivative of its place by the coordinates of small
    motions and phi the mode shape. A multiple of it is drawn, without the curvature of large motions, so that loops
    stay closed: the largest displacement of a point is `DRAWN_PART` of the machine's size, less where a frame whose
    axes are drawn would turn by more than `MOST_TURN`.

    Args:
        model: the machine.
        q: posture [n], rad or m.
        found: its modes at q.
        numbers: of the modes, 1 that of the lowest frequency.
    """
    structure = structure_of(model)
    chosen = [number - 1 for number in numbers]
    shape = np.asarray(found.shape)[:, chosen]
    x = whole(model, jnp.asarray(q, float))
    places = (jax.device_put(part) for part in (structure.node, structure.offset, shape))
    points, moved = (np.array(part) for part in _displaced(model, x, *places))
    tips = [tip for _, *three in structure.ends for tip in three]
    body = np.delete(np.arange(len(points)), tips)
    size = float(np.linalg.norm(np.ptp(points[body], axis=0))) or 1.0
    for origin, *three in structure.ends:  # what is computed for axes of 1 m holds for those of any length
        points[three] = points[origin] + AXES_PART * size * (points[three] - points[origin])
        moved[:, three] = moved[:, [origin]] + AXES_PART * size * (moved[:, three] - moved[:, [origin]])
    frequency_hz, damping_ratio = np.asarray(found.frequency_hz), np.asarray(found.damping_ratio)
    drawn = tuple(
        ModeMotion(m + 1, float(frequency_hz[m]), float(damping_ratio[m]), _scaled(displacement, structure, body, size))
        for m, displacement in zip(chosen, moved, strict=True)
    )
    return MachineMotion(model.name, structure, points, size, drawn)


def phase_of_largest_motion(displacement: Complex[np.ndarray, "*p"]) -> float:
    """Phase a, rad, at which the sum of squares of Re(displacement exp(j a)) is largest.

    The sum is (sum |d|^2 + Re(exp(2 j a) sum d^2)) / 2.
    """
    return -0.5 * float(np.angle(np.sum(displacement**2)))


def _scaled(moved: np.ndarray, structure: Structure, body: np.ndarray, size: float) -> np.ndarray:
    """A displacement [p, 3] as it is drawn; `body` are the points that are no tips of axes."""
    moved = moved * np.exp(1j * phase_of_largest_motion(moved))
    largest = _largest(moved[body]) / size
    turn = max((_largest(moved[tips] - moved[origin]) for origin, *tips in structure.ends), default=0.0)
    turn /= AXES_PART * size
    if max(largest, turn) <= STILL:
        return np.zeros_like(moved)
    return moved * min(DRAWN_PART / max(largest, STILL), MOST_TURN / max(turn, STILL))


def _largest(moved: np.ndarray) -> float:
    """Largest displacement at phase 0, m."""
    return float(np.max(np.linalg.norm(np.real(moved), axis=-1)))


@compiled
def _displaced(
    model: Model, x: Float[Array, "x"], node: Array, offset: Float[Array, "r 3"], shape: Complex[Array, "m k"]
) -> tuple[Float[Array, "p 3"], Complex[Array, "k p 3"]]:
    """Places of the points of a structure at coordinates x, with the elastic ones, and their displacement in mode
    shapes."""
    first_elastic = len(model.coordinates) + 6 * len(model.virtual_springs)
    first_element = len(model.coordinates) + len(model.virtual_springs)

    def places(x: Array) -> Array:
        poses = node_poses(model, x)
        there = jnp.einsum("rij,rj->ri", poses[node, :3, :3], offset) + poses[node, :3, 3]
        if not model.beams:
            return there
        begin = poses[jnp.array(model.parent[first_element:])] @ model.beam_start
        curves = begin[:, None] @ section_poses(model, x[first_elastic:].reshape(-1, 6), SECTIONS)
        return jnp.concatenate([there, curves[..., :3, 3].reshape(-1, 3)])

    def rate(direction: Array) -> Array:
        return jax.jvp(places, (x,), (direction,))[1]

    directions = (motion_columns(model, x) @ shape).T
    real, imaginary = jnp.split(jax.vmap(rate)(jnp.concatenate([directions.real, directions.imag])), 2)
    return places(x), jax.lax.complex(real, imaginary)
