"""Report on a machine at one posture: modes, FRFs and mode shapes, drawn by lines between points of the machine; and
measured mode shapes."""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from jaxmb.compiled import compiled
from jaxmb.io.validation import whole_number
from jaxmb.machine.build import Model
from jaxmb.measurement.files.uff_function import node_and_direction
from jaxmb.measurement.frf_set import FrfSet
from jaxmb.measurement.modal.analysis import ModalAnalysis
from jaxmb.mechanics.beams import section_poses
from jaxmb.mechanics.kinematics import TOOL, node_poses, whole
from jaxmb.mechanics.loops import motion_basis
from jaxmb.mechanics.tangent import linearize, motion_coordinates
from jaxmb.report.charts import FITTED, Arrows, Axis, Chart, Line, Mark, ModeMotion, Panel, Skeleton, Structure, in_grid
from jaxmb.report.frf_charts import Curve, Responses, frf_chart
from jaxmb.report.modes import predicted_modes_table
from jaxmb.report.section import Lines, Picture, Section, section
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

    carried = [
        *begins.values(),
        *((n, o[:3, 3]) for n, o in zip(model.mass_node, mass_offset, strict=True)),
        *(frames[f] for f in (*(frame for pair in frame_pairs for frame in pair), *ends)),
    ]
    reaching = {node for node, offset in carried if np.any(offset)} | {node for node, _ in begins.values()}
    carried += [(node, center) for node, center in _centers(model).items() if node not in reaching]
    pairs = [(number(node), number(node, offset)) for node, offset in carried]
    links = dict.fromkeys(pair for pair in pairs if pair[0] != pair[1])

    joints = [i for i in begins if i < len(model.coordinates)]
    slides = [(number(*begins[i]), number(i)) for i in joints if not model.revolute[i]]
    loops = [(pair, "") for pair, kind in zip(model.loop_frames, model.loop_type, strict=True) if kind in SLIDING]
    ends_of = (*zip(model.spring_frames, model.springs, strict=True), *loops)
    springs = [((number(*frames[a]), number(*frames[b])), name) for (a, b), name in ends_of]
    marks = tuple((number(i), model.coordinates[i]) for i in joints)
    ground = number(-1)
    axes = []
    for f in ends:
        node, origin = frames[f]
        x, y, z = (number(node, origin + frame_offset[f, :3, k]) for k in range(3))
        axes.append((number(node, origin), x, y, z))
    return Structure(
        node=np.array([key[0] for key in known], dtype=int),
        offset=np.array([key[1:] for key in known], dtype=float),
        lines=(*((line, "") for line in (*links, *slides)), *_beam_lines(model, len(known))),
        springs=tuple(springs),
        joints=marks,
        ground=ground,
        ends=tuple(axes),
        end_names=tuple(model.frames[f] for f in ends),
    )


def _begins(model: Model) -> dict[int, NodePoint]:
    """Start of the joint or the beam element of each node on its parent, motor shafts excluded."""
    shafts, first_element = {shaft for _, shaft in model.motors}, len(model.coordinates) + len(model.virtual_springs)
    begins = [
        *((i, origin) for i, origin in enumerate(np.asarray(model.origin)) if i not in shafts),
        *enumerate(np.asarray(model.beam_start), first_element),
    ]
    return {node: (model.parent[node], origin[:3, 3]) for node, origin in begins}


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


def _beam_lines(model: Model, first: int) -> list[tuple[tuple[int, ...], str]]:
    """Line of each beam through the sections of its elements, numbered from `first`, and its name; adjacent elements
    share a section."""
    lines, each = list[tuple[tuple[int, ...], str]](), STATIONS.size
    for name, count in zip(model.beams, model.beam_elements, strict=True):
        lines.append((tuple(first + each * w + s for w in range(count) for s in range(each) if s or not w), name))
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
    """Phase a [rad] that maximizes the sum of squares of Re(displacement exp(j a)).

    The sum is (sum |d|^2 + Re(exp(2 j a) sum d^2)) / 2.
    """
    return -0.5 * float(np.angle(np.sum(displacement**2)))


def _scaled(displacement: np.ndarray, structure: Structure, body: np.ndarray, size: float) -> np.ndarray:
    """A displacement [p, 3] scaled for drawing; `body` are the points other than tips of axes."""
    d = displacement * np.exp(1j * phase_of_largest_motion(displacement))
    largest = _largest(d[body]) / size
    turn = max((_largest(d[tips] - d[origin]) for origin, *tips in structure.ends), default=0.0) / (AXES_PART * size)
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


AT_REST, GROUND = "#9e9e9e", "#404040"
DISPLACED = FITTED
LEAST_EXTENT = 0.3
"""Smallest extent of the drawn box along an axis, over the largest."""
MARGIN = 0.04
COLUMNS = 3
CELL, SINGLE = 2.4, 4.0
"""Width of the views of a mode in a figure of several modes and of a single mode, inches."""
TALLEST = 1.6
"""Largest height of both views of a mode over their width."""
LONGEST_ARROW = 0.2
"""Length of the longest arrow over the size of the machine, as on pages."""
LEAST_GROWTH = 1e-2, 1e-6
"""Rate of growth, 1/s and over the largest angular frequency, up to which a positive eigenvalue of a machine is
rounding, as of rigid-body modes."""
NOTE = f"displaced by at most {100 * DRAWN_PART:.0f} % of its size"


def mode_shape_skeleton(model: Model, q: Float[Array, "n"], count: int = 6, found: Modes | None = None) -> Skeleton:
    """A machine with the displacements in its first modes, and the shares of its parts in the strain energy.

    Args:
        model: the machine.
        q: posture [n], rad or m.
        count: largest number of modes.
        found: its modes at q; computed if not given.

    Raises:
        ValueError: as `mode_shape_figures`, or the machine has no modes.
    """
    found = found_modes(model, q, found)
    numbers = first_modes(found, count)
    check_mode(model.name, found, 1)
    motion = machine_motion(model, q, found, numbers)
    shares = energy_of_parts(model, q, found, numbers)
    modes = tuple(mode._replace(energy=share) for mode, share in zip(motion.modes, shares, strict=True))
    ends = dict.fromkeys(f"{mode.frequency_hz:.4g}" for mode in (modes[0], modes[-1]))
    return dataclasses.replace(
        motion,
        modes=modes,
        title=f"{model.name}: first {f'{len(modes)} modes' if modes[1:] else 'mode'}, {' to '.join(ends)} Hz",
        caption=f"Mode shapes, {NOTE}.",
    )


MOST_SHAPES = 12
"""Largest number of measured mode shapes that are drawn."""


def measured_shapes(name: str, analysis: ModalAnalysis, measured: FrfSet, hertz: str = "Hz") -> Skeleton | None:
    """Measured mode shapes at the nodes with known positions; None where fewer than two of them have a translation.

    Args:
        name: of the measurement.
        analysis: the modal analysis.
        measured: the analysed FRFs.
        hertz: unit of frequency.
    """
    dofs = [node_and_direction(point) for point in analysis.points]
    along = [(k, node, dof) for k, (node, dof) in enumerate(dofs) if node in measured.nodes and 1 <= abs(dof) <= 3]
    nodes = list(dict.fromkeys([*itertools.chain(*measured.trace_lines), *(node for _, node, _ in along)]))
    if len({node for _, node, _ in along}) < 2 or not analysis.frequency_hz.size:
        return None
    points, number = np.array([measured.nodes[node] for node in nodes]), {node: i for i, node in enumerate(nodes)}
    structure = Structure(
        node=np.full(len(nodes), -1),
        offset=points,
        lines=tuple((tuple(number[node] for node in line), "") for line in measured.trace_lines),
        springs=(),
        joints=tuple(enumerate(nodes)),
        ground=None,
        ends=(),
        end_names=(),
    )
    size, model, drawn = float(np.linalg.norm(np.ptp(points, axis=0))) or 1.0, analysis.model, list[ModeMotion]()
    for r, shape in enumerate(analysis.shape.T[:MOST_SHAPES]):
        displacement = np.zeros(points.shape, complex)
        for k, node, dof in along:
            displacement[number[node], abs(dof) - 1] = np.sign(dof) * shape[k]
        displacement *= size / np.abs(displacement).max(initial=np.finfo(float).tiny)
        displacement = _scaled(displacement, structure, np.arange(len(points)), size)
        frequency_hz, damping_ratio = float(model.frequency_hz[r]), float(model.damping_ratio[r])
        drawn.append(ModeMotion(r + 1, frequency_hz, damping_ratio, displacement, frequency_unit=hertz))
    between = f"{drawn[0].frequency_hz:.4g} to {drawn[-1].frequency_hz:.4g} {hertz}"
    which = f"first {len(drawn)} of {analysis.frequency_hz.size}" if len(drawn) < analysis.frequency_hz.size else "all"
    return Skeleton(
        name, structure, points, size, tuple(drawn),
        title=f"{name}: measured shapes of {which} modes, {between}",
        caption=f"Mode shapes at the nodes of the measurement, {NOTE}; directions without a sensor are drawn at rest.",
    )  # fmt: skip


def displaced(motion: Skeleton, mode: ModeMotion, phase: float = 0.0) -> Float[np.ndarray, "p 3"]:
    """Drawn positions [m] of the points of a machine at a phase [rad] of a mode; frame axes keep their length."""
    points = motion.points + (mode.displacement * np.exp(1j * phase)).real
    for origin, *tips in motion.structure.ends:
        along = points[tips] - points[origin]
        points[tips] = points[origin] + AXES_PART * motion.size * along / np.linalg.norm(along, axis=1, keepdims=True)
    return points


def skeleton_chart(motion: Skeleton, phase: float = 0.0) -> Chart:
    """A machine from the side and from above at one scale: at rest in grey, and displaced in each of its modes.

    Args:
        motion: the machine; without modes its arrows are drawn, at one scale.
        phase: of the modes, rad.
    """
    longest = max((float(np.linalg.norm(a.vector, axis=1).max(initial=0.0)) for a in motion.arrows), default=0.0)
    magnified = LONGEST_ARROW * motion.size / longest if longest > 0.0 else 1.0
    arrows = [Arrows(a.label, a.origin, magnified * a.vector, a.color) for a in motion.arrows]
    reach = np.max([np.zeros(motion.points.shape), *(np.abs(mode.displacement) for mode in motion.modes)], axis=0)
    of_arrows = [end for a in arrows for end in (a.origin, a.origin + a.vector)]
    points = np.concatenate([motion.points - reach, motion.points + reach, *of_arrows])  # at all phases
    middle, extent = 0.5 * (points.min(axis=0) + points.max(axis=0)), np.ptp(points, axis=0)
    extent = (1.0 + 2.0 * MARGIN) * np.maximum(extent, LEAST_EXTENT * extent.max())
    along, across = (0, 1) if extent[0] >= extent[1] else (1, 0)
    width = CELL if len(motion.modes) > 1 else SINGLE
    scale = min(width / extent[along], TALLEST * width / (extent[2] + extent[across]))
    extent[along] = width / scale
    axes = [
        Axis(f"{name} (m)", limits=(m - e / 2.0, m + e / 2.0)) for name, m, e in zip("xyz", middle, extent, strict=True)
    ]
    drawn = [(_mode_title(mode), displaced(motion, mode, phase)) for mode in motion.modes] or [("", None)]
    cells = []
    for title, points in drawn:
        side, top = (
            Panel(_view(motion, points, arrows, [along, up]), axes[along], axes[up], height=scale * extent[up])
            for up in (2, across)
        )
        cells.append((dataclasses.replace(side, title=title), top))
    note = NOTE if motion.modes else f"displacements drawn {magnified:.3g} times as long, a dot at their end"
    return Chart(f"{motion.name}: {note}", motion.caption, in_grid(cells, COLUMNS), width, shared_y=True)


def _mode_title(mode: ModeMotion) -> str:
    return mode.title if np.any(mode.displacement) else f"{mode.title}\nno drawn point moves"


def _view(motion: Skeleton, points: np.ndarray | None, arrows: Sequence[Arrows], shown: list[int]) -> list[Mark]:
    """A machine at rest with its displaced points or its arrows, along two of the axes."""
    structure, rest = motion.structure, motion.points[:, shown]
    marks = _machine(structure, rest, "at rest", AT_REST, 0.9)
    if structure.ground is not None:
        marks.append(_line(rest[[structure.ground]], "ground", GROUND, 0.0, "", "^", 6.0))
    if structure.ends:
        label = structure.end_names[0] if len(structure.ends) == 1 else "end frames"
        marks.append(_line(rest[[origin for origin, *_ in structure.ends]], label, AT_REST, 0.0, "", "+", 6.0))
    if points is not None:
        marks += _machine(structure, points[:, shown], "displaced", DISPLACED, 1.3)
    for a in arrows:
        ends = np.stack([a.origin, a.origin + a.vector], axis=1)[..., shown]
        marks.append(_line(_one_line(ends), a.label, a.color, 1.3))
        marks.append(_line(ends[:, 1], "", a.color, 0.0, "", "o", 2.5))
    return marks


def _machine(structure: Structure, points: np.ndarray, label: str, color: str, width: float) -> list[Mark]:
    """Lines and joints of a machine, of points [p, 2]."""
    triads = [((origin, tip), "") for origin, *tips in structure.ends for tip in tips]
    kinds = (
        (structure.lines, label, width, "-"),
        (structure.springs, "", 0.6 * width, "--"),
        (triads, "", 0.8 * width, "-"),
    )
    marks: list[Mark] = [
        _line(_one_line([points[list(line)] for line, _ in lines]), name, color, thickness, dashes)
        for lines, name, thickness, dashes in kinds
        if lines
    ]
    if structure.joints:
        label = "node" if structure.ground is None else "joint"
        marks.append(_line(points[[index for index, _ in structure.joints]], label, color, 0.0, "", "o", 2.3 * width))
    return marks


def _one_line(lines: Iterable[np.ndarray]) -> np.ndarray:
    """Lines [n, 2] as one [m, 2], with NaN after each."""
    return np.concatenate([np.append(line, [[np.nan, np.nan]], axis=0) for line in lines])


def _line(
    points: np.ndarray, label: str, color: str, width: float, dashes: str = "-", marker: str = "", size: float = 0.0
) -> Mark:
    return Line(points[:, 0], points[:, 1], label, color, width, dashes, marker, size)


MOST_MODES = 6
"""Largest number of modes in a figure."""


def mode_shape_sections(model: Model, q: Float[Array, "n"], found: Modes) -> list[Section]:
    """Section with the shapes of the first modes of a machine; empty for a machine without modes.

    Args:
        model: the machine.
        q: posture [n], rad or m.
        found: its modes at q.
    """
    shapes = Picture("mode-shapes", partial(mode_shape_skeleton, model, q, MOST_MODES, found))
    return section(f"Mode shapes of {model.name}", (shapes if found.frequency_hz.size else None,))


LISTED_MODES = 20
"""Number of modes that are all shown; of more, such as with beams, only those in the band."""


def predicted_sections(
    name: str,
    found: Modes,
    frequency_hz: np.ndarray,
    frf: np.ndarray,
    points: tuple[Sequence[str], ...],
    derivatives: int,
    posture: Mapping[str, float],
    angles: Collection[str],
    std_of: Callable[[int], tuple[np.ndarray, np.ndarray]] | None = None,
) -> list[Section]:
    """Section on the modes and FRFs of a machine.

    Args:
        name: of the machine.
        found: its modes.
        frequency_hz: lines [f].
        frf: FRFs [f, point, point].
        points: of motion and force.
        derivatives: 0 receptance, 1 mobility, 2 accelerance.
        posture: coordinate name -> value, rad or m.
        angles: names of the revolute coordinates.
        std_of: standard deviations of so many modes, of frequencies, Hz, and damping ratios; None for a machine that
            was not identified.
    """
    stated = [
        f"{coordinate} {np.degrees(value):.4g} deg" if coordinate in angles else f"{coordinate} {value:.4g} m"
        for coordinate, value in posture.items()
        if value != 0.0
    ]
    at = f"at {', '.join(stated) or 'the zero posture'}"
    modes_hz = np.asarray(found.frequency_hz)
    count = modes_hz.size
    first = f": lowest mode at {modes_hz[0]:.4g} Hz" if count else ""
    draw = partial(
        frf_chart,
        f"{name} {at}{first}",
        Responses(frequency_hz, [Curve("predicted", frf, FITTED, 1.0, "-")], points, points, derivatives),
    )
    shown = count if count <= LISTED_MODES else max(int(np.sum(modes_hz <= frequency_hz[-1])), 1)
    more = (Lines((f"and {count - shown} more above {modes_hz[shown - 1]:.6g} Hz",)),) if shown < count else ()
    growth = float(np.max(found.overdamped, initial=0.0))
    if growth > max(LEAST_GROWTH[0], LEAST_GROWTH[1] * np.max(np.abs(found.eigenvalue), initial=0.0)):
        cause = "unstable: the weight or a loaded spring exceeds the stiffness"
        more = (*more, Lines((f"{cause}; a motion grows as exp({growth:.3g} t), t in s",)))
    table = predicted_modes_table(found, at, shown, std_of(shown) if std_of is not None and shown else None)
    return [Section(f"Modes of {name}", (table, *more, Picture("frf", draw)))]
