"""Line drawing of a machine: points on its nodes and beams, and the lines between them."""

from typing import NamedTuple

import numpy as np

from jaxmb.machine.build import Model
from jaxmb.mechanics.kinematics import TOOL

SECTIONS = np.linspace(0.0, 1.0, 9)
"""Relative positions along a beam element between which its curve is drawn straight."""
SAME_POINT = 1e-9
"""Distance up to which two points of a node coincide, m."""
SLIDING = ("prismatic", "cylindrical")
"""Loop joints whose two frames may be apart."""

NodePoint = tuple[int, np.ndarray]
"""A node, -1 for the ground, and an offset in its axes [3], m."""


class Structure(NamedTuple):
    """Lines and markers of a machine by indices of points: points on nodes, then the sections of all beam elements."""

    node: np.ndarray
    """Node of each point on a node [r]; -1 is the ground."""
    offset: np.ndarray
    """Offset of these points in their node's axes [r, 3], m."""
    lines: tuple[tuple[int, ...], ...]
    """Rigid links, and beams as curves."""
    springs: tuple[tuple[int, int], ...]
    """Lines between the two frames of a spring or of a sliding loop joint."""
    joints: tuple[int, ...]
    ground: int
    ends: tuple[tuple[int, int, int, int], ...]
    """Origin and tips of the axes, 1 m long, of the tool or end frames."""
    end_names: tuple[str, ...]


class _Points:
    """Numbering of the points on nodes; coincident points share a number."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, float, float, float], int] = {}

    def number(self, point: NodePoint) -> int:
        x, y, z = (round(float(value) / SAME_POINT) * SAME_POINT for value in point[1])
        return self.known.setdefault((point[0], x, y, z), len(self.known))

    def link(self, point: NodePoint) -> tuple[int, int]:
        """Line from the origin of the point's node to the point."""
        return self.number((point[0], np.zeros(3))), self.number(point)


def structure_of(model: Model) -> Structure:
    """Line drawing of a machine.

    On every node lines connect its origin with the points on it: the next joints and beams, bodies, payloads, the
    frames of springs and loops, and the end frames (`_end_frames`). A node without such points has a line to its centre
    of mass.
    """
    points = _Points()
    frame_offset, mass_offset = np.asarray(model.frame_offset), np.asarray(model.mass_offset)
    frames: list[NodePoint] = [(n, o[:3, 3]) for n, o in zip(model.frame_node, frame_offset, strict=True)]
    frame_pairs = [*model.spring_frames, *model.loop_frames]
    ends, begins = _end_frames(model), _begins(model)

    carried = [*begins.values(), *((n, o[:3, 3]) for n, o in zip(model.mass_node, mass_offset, strict=True))]
    carried += [frames[f] for f in (*(frame for pair in frame_pairs for frame in pair), *ends)]
    reaching = {node for node, offset in carried if np.any(offset)} | {node for node, _ in begins.values()}
    carried += [(node, center) for node, center in _centers(model).items() if node not in reaching]
    links = dict.fromkeys(pair for pair in map(points.link, carried) if pair[0] != pair[1])

    joints = [i for i in begins if i < len(model.coordinates)]
    slides = [(points.number(begins[i]), points.number((i, np.zeros(3)))) for i in joints if not model.revolute[i]]
    loops = [pair for pair, kind in zip(model.loop_frames, model.loop_type, strict=True) if kind in SLIDING]
    springs = [(points.number(frames[a]), points.number(frames[b])) for a, b in (*model.spring_frames, *loops)]
    marks = tuple(points.number((i, np.zeros(3))) for i in joints)
    ground = points.number((-1, np.zeros(3)))
    axes = []
    for f in ends:
        node, origin = frames[f]
        x, y, z = (points.number((node, origin + frame_offset[f, :3, k])) for k in range(3))
        axes.append((points.number((node, origin)), x, y, z))
    return Structure(
        node=np.array([key[0] for key in points.known], dtype=int),
        offset=np.array([key[1:] for key in points.known], dtype=float),
        lines=(*links, *slides, *_beam_lines(model, len(points.known))),
        springs=tuple(springs),
        joints=marks,
        ground=ground,
        ends=tuple(axes),
        end_names=tuple(model.frames[f] for f in ends),
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
    numbers = (model.frames.index(name) for name in model.end_frames)
    return [f for f in numbers if model.frame_node[f] not in closing]


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
    lines, each = list[tuple[int, ...]](), SECTIONS.size
    for count in model.beam_elements:
        lines.append(tuple(first + each * w + s for w in range(count) for s in range(each) if s or not w))
        first += each * count
    return lines
