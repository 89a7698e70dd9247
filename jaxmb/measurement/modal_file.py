"""Modal models as universal files: dataset 55, one for each mode, and the positions of its nodes."""

import itertools
import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from jaxmb.io.files import write_atomically
from jaxmb.measurement.files.uff import MARK, nodes_dataset, trace_lines_datasets, units_dataset
from jaxmb.measurement.files.uff_function import node_and_direction
from jaxmb.measurement.frf_set import UNKNOWN, largest_of_rows, unit_scale
from jaxmb.measurement.modal.data import modal_scaling
from jaxmb.measurement.modal.model import ModalModel

STRUCTURAL, COMPLEX_EIGENVALUE, THREE_DOF, SIX_DOF, DISPLACEMENT, COMPLEX = 1, 3, 2, 3, 8, 5
"""Model type, analysis type, data characteristics, data type and number type of dataset 55."""


def write_modal_model(
    path: str | os.PathLike[str],
    model: ModalModel,
    nodes: Mapping[str, tuple[float, float, float]] | None = None,
    trace_lines: Sequence[Sequence[str]] = (),
) -> None:
    """Write a modal model as a universal file (.uff, .unv): dataset 55 with eigenvalue and complex shape of each mode.

    Eigenvalues are in rad/s, modal A is the scale of the residues, Q = 1 / a with R_oi = Q shape_o shape_i, in SI units
    unless that of the FRFs is unknown, and 1 where no force was measured at a sensor; modal B is -a lambda. Points
    whose name is no node number have numbers after the highest one, which ID lines 4 and 5 list as far as they go. The
    format has six digits.

    Args:
        path: of the file.
        model: from `modal_analysis(...).model`.
        nodes: positions by node, m, such as those of the FRF set.
        trace_lines: lines through these nodes (dataset 82).

    Raises:
        ValueError: another extension.
        OSError: the file cannot be written; no partial file remains.
    """
    path = Path(path)
    if path.suffix.lower() not in (".uff", ".unv"):
        raise ValueError(f"{path}: expected a file ending in .uff or .unv")
    # x of a point without direction
    points = (point.replace(" +", " ") for point in model.points)
    dofs = [(node, direction or 1) for node, direction in map(node_and_direction, points)]
    number = _node_numbers([*(node for node, _ in dofs), *itertools.chain(*trace_lines)])
    width = 6 if any(abs(direction) > 3 for _, direction in dofs) else 3
    names = "; ".join(f"{n} {node}" for node, n in number.items() if str(n) != node)
    listed = textwrap.wrap(names or "NONE", 80, max_lines=2, placeholder=" ...", break_on_hyphens=False)
    placed = {str(number[node]): position for node, position in (nodes or {}).items() if node in number}
    text = units_dataset() + (nodes_dataset(placed) if placed else "")
    text += trace_lines_datasets([[str(number[node]) for node in line] for line in trace_lines])
    for r, (eigenvalue, a) in enumerate(zip(model.eigenvalue, _modal_a(model), strict=True)):
        values: dict[int, np.ndarray] = {}
        for (node, direction), value in zip(dofs, model.mode_shape[:, r], strict=True):
            row = values.setdefault(number[node], np.zeros(width, complex))
            row[max(abs(direction), 1) - 1] = -value if direction < 0 else value
        frequency_hz = abs(eigenvalue) / (2.0 * np.pi)
        ids = [
            f"mode {r + 1}",
            f"{frequency_hz:.9g} Hz, damping ratio {-np.real(eigenvalue) / abs(eigenvalue):.9g}",
            "NONE",
        ]
        text += f"{MARK}{55:6d}\n" + "".join(f"{line:80}\n" for line in [*ids, *listed, "NONE"][:5])
        kind = SIX_DOF if width == 6 else THREE_DOF
        text += _whole(STRUCTURAL, COMPLEX_EIGENVALUE, kind, DISPLACEMENT, COMPLEX, width)
        text += _whole(2, 6, 1, r + 1) + _real(_parts([eigenvalue, a, -a * eigenvalue]))
        for node, row in values.items():
            text += _whole(node) + _real(_parts(row))
        text += MARK
    write_atomically(path, text.encode("ascii", "replace"))


def _node_numbers(nodes: list[str]) -> dict[str, int]:
    """Number of each node; names that are no numbers have the numbers after the highest."""
    result = {node: int(node) for node in nodes if node.isascii() and node.isdigit() and str(int(node)) == node}
    names = dict.fromkeys(node for node in nodes if node not in result)
    return result | {name: number for number, name in enumerate(names, start=max(result.values(), default=0) + 1)}


def _modal_a(model: ModalModel) -> np.ndarray:
    """Modal A [r] for the shapes `mode_shape`, SI where the unit of the FRFs is known; 1 without a driving point."""
    try:
        scaling = modal_scaling(model)  # Q of `shape`
    except ValueError:
        return np.ones(model.eigenvalue.size, complex)
    unit = 1.0 if model.unit == UNKNOWN else unit_scale(model.unit, model.kind)
    if model.points == model.outputs:
        return 1.0 / (unit * scaling)
    # participations Q shape, divided by the largest
    return scaling / (unit * largest_of_rows(model.participation)[:, 0] ** 2)


def _parts(values: list[complex] | np.ndarray) -> np.ndarray:
    return np.ravel([[np.real(value), np.imag(value)] for value in values])


def _whole(*numbers: int) -> str:
    return "".join(f"{number:10d}" for number in numbers) + "\n"


def _real(numbers: np.ndarray) -> str:
    lines = [numbers[i : i + 6] for i in range(0, len(numbers), 6)]
    return "".join("".join(f"{number:13.5e}" for number in line) + "\n" for line in lines)
