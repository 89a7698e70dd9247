"""Report on a machine at one posture: predicted modes, FRFs and mode shapes."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

import numpy as np
from jaxtyping import Array, Float

from jaxmb.machine.build import Model
from jaxmb.report.charts import FITTED, Arrows, Axis, Chart, Line, Mark, ModeMotion, Panel, Skeleton, Structure, in_grid
from jaxmb.report.frf_charts import Curve, Responses, frf_chart
from jaxmb.report.modes import predicted_modes_table
from jaxmb.report.section import Lines, Picture, Section
from jaxmb.report.structure import (
    AXES_PART,
    DRAWN_PART,
    check_mode,
    energy_of_parts,
    first_modes,
    found_modes,
    machine_motion,
)
from jaxmb.response.modal import Modes

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


def mode_shape_skeleton(
    model: Model, q: Float[Array, "n"], count: int = 6, found: Modes | None = None, energy: bool = False
) -> Skeleton:
    """A machine with the displacements in its first modes.

    Args:
        model: the machine.
        q: posture [n], rad or m.
        count: largest number of modes.
        found: its modes at q; computed if not given.
        energy: whether the share of each part in the strain energy is computed.

    Raises:
        ValueError: as `mode_shape_figures`, or the machine has no modes.
    """
    found = found_modes(model, q, found)
    numbers = first_modes(found, count)
    check_mode(model.name, found, 1)
    motion = machine_motion(model, q, found, numbers)
    modes = motion.modes
    if energy:
        shares = energy_of_parts(model, q, found, numbers)
        modes = tuple(mode._replace(energy=share) for mode, share in zip(modes, shares, strict=True))
    lowest, highest = modes[0].frequency_hz, modes[-1].frequency_hz
    return dataclasses.replace(
        motion,
        modes=modes,
        title=f"{model.name}: first {len(modes)} modes, {lowest:.4g} to {highest:.4g} Hz",
        caption=f"Mode shapes, {NOTE}.",
    )


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
    triads = [(origin, tip) for origin, *tips in structure.ends for tip in tips]
    kinds = (
        (structure.lines, label, width, "-"),
        (structure.springs, "", 0.6 * width, "--"),
        (triads, "", 0.8 * width, "-"),
    )
    marks: list[Mark] = [
        _line(_one_line([points[list(line)] for line in lines]), name, color, thickness, dashes)
        for lines, name, thickness, dashes in kinds
        if lines
    ]
    if structure.joints:
        marks.append(_line(points[list(structure.joints)], "joint", color, 0.0, "", "o", 2.3 * width))
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
    if not found.frequency_hz.size:
        return []
    shapes = partial(mode_shape_skeleton, model, q, MOST_MODES, found)
    return [Section(f"Mode shapes of {model.name}", (Picture("mode-shapes", shapes),))]


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
    return [Section(f"Modes of {name}", (predicted_modes_table(found, at, shown), *more, Picture("frf", draw)))]
