"""Line drawing of a machine, and the complex displacements of its points in modes, scaled for drawing."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from jaxmb.compiled import compiled
from jaxmb.io.validation import whole_number
from jaxmb.machine.build import Model
from jaxmb.mechanics.beams import section_poses
from jaxmb.mechanics.kinematics import TOOL, node_poses, whole
from jaxmb.mechanics.loops import motion_basis
from jaxmb.mechanics.tangent import linearize, motion_coordinates
from jaxmb.report.charts import ModeMotion, Skeleton, Structure
from jaxmb.response.modal import Modes, energy_shares, modes, spring_matrices, spring_names

STATIONS = np.linspace(0.0, 1.0, 9)
"""Relative positions along a beam element between which its curve is drawn straight."""
SAME_POINT = 1e-9
"""Distance up to which two points of a node coincide, m."""
SLIDING = ("prismatic", "cylindrical")
"""Loop joints whose two frames may be apart."""

NodePoint = tuple[int, np.ndarray]
"""A node, -1 for the ground, and an offset in its axes [3], m."""


def structure_of(model: Model) -> Structure:
    """Line drawing of a machine.

    On every node lines connect its origin with the points on it: the next joints and beams, bodies, payloads, the
    frames of springs and loops, and the end frames (`_end_frames`). A node without such points has a line to its centre
    of mass.
    """
    known: dict[tuple[int, float, float, float], int] = {}

    def number(node: int, offset: np.ndarray | tuple[float, ...] = (0.0, 0.0, 0.0)) -> int:
        x, y, z = (round(float(value) / SAME_POINT) * SAME_POINT for value in offset)
        return known.setdefault((node, x, y, z), len(known))

    frame_offset, mass_offset = np.asarray(model.frame_offset), np.asarray(model.mass_offset)
    frames: list[NodePoint] = [(n, o[:3, 3]) for n, o in zip(model.frame_node, frame_offset, strict=True)]
    frame_pairs = [*model.spring_frames, *model.loop_frames]
    ends, begins = _end_frames(model), _begins(model)

    carried = [*begins.values(), *((n, o[:3, 3]) for n, o in zip(model.mass_node, mass_offset, strict=True))]
    carried += [frames[f] for f in (*(frame for pair in frame_pairs for frame in pair), *ends)]
    reaching = {node for node, offset in carried if np.any(offset)} | {node for node, _ in begins.values()}
    carried += [(node, center) for node, center in _centers(model).items() if node not in reaching]
    pairs = [(number(node), number(node, offset)) for node, offset in carried]
    links = dict.fromkeys(pair for pair in pairs if pair[0] != pair[1])

    joints = [i for i in begins if i < len(model.coordinates)]
    slides = [(number(*begins[i]), number(i)) for i in joints if not model.revolute[i]]
    loops = [pair for pair, kind in zip(model.loop_frames, model.loop_type, strict=True) if kind in SLIDING]
    springs = [(number(*frames[a]), number(*frames[b])) for a, b in (*model.spring_frames, *loops)]
    marks = tuple(number(i) for i in joints)
    ground = number(-1)
    axes = []
    for f in ends:
        node, origin = frames[f]
        x, y, z = (number(node, origin + frame_offset[f, :3, k]) for k in range(3))
        axes.append((number(node, origin), x, y, z))
    return Structure(
        node=np.array([key[0] for key in known], dtype=int),
        offset=np.array([key[1:] for key in known], dtype=float),
        lines=(*links, *slides, *_beam_lines(model, len(known))),
        springs=tuple(springs),
        joints=marks,
        ground=ground,
        ends=tuple(axes),
        end_names=tuple(model.frames[f] for f in ends),
        joint_names=tuple(model.coordinates[i] for i in joints),
        spring_names=tuple(model.springs),
        beam_names=tuple(model.beams),
    )


def _begins(model: Model) -> dict[int, NodePoint]:
    """Start of the joint or the beam element of each node on its parent, motor shafts excluded."""
    shafts, first_element = {shaft for _, shaft in model.motors}, len(model.coordinates) + len(model.virtual_springs)
    begins = {i: origin for i, origin in enumerate(np.asarray(model.origin)) if i not in shafts}
    begins |= {first_element + w: start for w, start in enumerate(np.asarray(model.beam_start))}
    return {node: (model.parent[node], origin[:3, 3]) for node, origin in begins.items()}


def _end_frames(model: Model) -> list[int]:
    """The frame "tool" or, without it, the end frames on nodes that are not part of a loop closure."""
    if TOOL in model.frames:
        return [model.frames.index(TOOL)]
    closing = {model.frame_node[frame] for pair in model.loop_frames for frame in pair}
    return [f for f in (model.frames.index(name) for name in model.end_frames) if model.frame_node[f] not in closing]


def _centers(model: Model) -> dict[int, np.ndarray]:
    """Centre of mass of the bodies on each node, in its axes, m; massless nodes are excluded."""
    moments: dict[int, np.ndarray] = {}
    columns = (np.asarray(part) for part in (model.mass_offset, model.mass, model.first_moment))
    for node, pose, mass, moment in zip(model.mass_node, *columns, strict=True):
        moments[node] = moments.get(node, np.zeros(4)) + pose @ np.append(moment, mass)
    return {node: total[:3] / total[3] for node, total in moments.items() if total[3] > 0.0}


def _beam_lines(model: Model, first: int) -> list[tuple[int, ...]]:
    """Line of each beam through the sections of its elements, numbered from `first`; adjacent elements share a
    section."""
    lines, each = list[tuple[int, ...]](), STATIONS.size
    for count in model.beam_elements:
        lines.append(tuple(first + each * w + s for w in range(count) for s in range(each) if s or not w))
        first += each * count
    return lines


DRAWN_PART = 0.1
"""Largest drawn displacement over the machine's size."""
MOST_TURN = 1.0
"""Largest drawn rotation of a frame whose axes are drawn, rad."""
AXES_PART = 0.06
"""Length of the axes of frames over the machine's size."""
STILL = 1e-9
"""Displacement over the machine's size, for a mode shape of unit coordinates (m or rad), that may be rounding."""


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
    return range(1, min(whole_number("count", count, 1), found.frequency_hz.size) + 1)


def check_mode(name: str, found: Modes, number: int) -> None:
    """Raise ValueError if the machine has no mode of this number."""
    count = found.frequency_hz.size
    if not 1 <= number <= count:
        has = f"1 to {count}" if count else "another machine: this one has none"
        raise ValueError(f"mode {number}: '{name}' has no such mode, expected {has}")


def machine_motion(model: Model, q: Float[Array, "n"], found: Modes, numbers: Sequence[int]) -> Skeleton:
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
    body = np.delete(np.arange(len(points)), [tip for _, *three in structure.ends for tip in three])
    size = float(np.linalg.norm(np.ptp(points[body], axis=0))) or 1.0
    for origin, *three in structure.ends:  # computed for axes of 1 m, linear in their length
        points[three] = points[origin] + AXES_PART * size * (points[three] - points[origin])
        displacements[:, three] = displacements[:, [origin]] + AXES_PART * size * (
            displacements[:, three] - displacements[:, [origin]]
        )
    damped_hz, damping_ratio = np.asarray(found.damped_frequency_hz), np.asarray(found.damping_ratio)
    drawn = tuple(
        ModeMotion(m + 1, float(damped_hz[m]), float(damping_ratio[m]), _scaled(displacement, structure, body, size))
        for m, displacement in zip(chosen, displacements, strict=True)
    )
    return Skeleton(model.name, structure, points, size, drawn)


def at_rest(model: Model, q: Float[Array, "n"]) -> Skeleton:
    """A machine without displacements.

    Args:
        model: the machine.
        q: posture [n], rad or m.
    """
    none = jnp.zeros(0)
    shape = jnp.zeros((len(motion_coordinates(model)), 0), complex)
    return machine_motion(model, q, Modes(none, none, none, none + 0j, shape, none), ())


def energy_of_parts(model: Model, q: Float[Array, "n"], found: Modes, numbers: Sequence[int]) -> list[dict[str, float]]:
    """Share of each coordinate, spring and beam in the strain energy of some modes, by name; 0 for a pendulum, whose
    mode has none.

    Args:
        model: the machine.
        q: posture [n], rad or m.
        found: its modes at q.
        numbers: of the modes, 1 is the lowest frequency.
    """
    shape = jax.device_put(np.asarray(found.shape)[:, [number - 1 for number in numbers]])
    shares = np.nan_to_num(np.asarray(energy_shares(shape, spring_matrices(model, q))))
    return [dict(zip(spring_names(model), column.tolist(), strict=True)) for column in shares.T]


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
        curves = begin[:, None] @ section_poses(model, x[first_elastic:].reshape(-1, 6), STATIONS)
        return jnp.concatenate([of_nodes, curves[..., :3, 3].reshape(-1, 3)])

    def rate(direction: Array) -> Array:
        return jax.jvp(positions, (x,), (direction,))[1]

    directions = (motion_basis(model, x) @ shape).T
    real, imaginary = jnp.split(jax.vmap(rate)(jnp.concatenate([directions.real, directions.imag])), 2)
    return positions(x), jax.lax.complex(real, imaginary)
