"""FRF sets as universal files: binary functions (dataset 58b) in double precision, nodes (2411) and units (164).

pyuff is not used for writing: it specifies half the size of complex values, on which other programs rely, turns NaN
into 0, and writes six digits of a frequency, too few for a fine axis.
"""

import json
from pathlib import Path
from typing import BinaryIO

import numpy as np

from jaxmb.measurement.files.uff_function import DIRECTION_NAMES, KINDS, OWN_END, OWN_START
from jaxmb.measurement.frf_set import FrfSet
from jaxmb.measurement.units import SI_UNITS, UNKNOWN

ID_WIDTH, ENTITY_WIDTH, LABEL_WIDTH, LARGEST_NODE = 80, 10, 20, 9_999_999_999
OWN_LINES = 4
LABELS = {"receptance": "Displacement", "mobility": "Velocity", "accelerance": "Acceleration"}
MARK = "    -1\n"

Dof = tuple[str, int, int]
"""Entity name, node and direction of a degree of freedom."""


def write_uff(path: Path, frf_set: FrfSet) -> None:
    """Write an FRF set as a universal file that `read_uff` reads back unchanged.

    Posture, averages, decay and source are written as JSON into ID lines 2 to 5. Frequencies are written individually
    where six digits of the first one and of the step do not reproduce them exactly.

    Raises:
        ValueError: a name, the unit or the content of the ID lines is too long, or a position has no node number.
        OSError: the file cannot be written.
    """
    rows = [_dof("output", name) for name in frf_set.outputs]
    columns = [_dof("input", name) for name in frf_set.inputs]
    own = _own_lines(frf_set)
    unit = _unit_labels(frf_set.unit)
    with path.open("xb") as file:
        if frf_set.unit != UNKNOWN:
            file.write(_units().encode())
        if frf_set.nodes:
            file.write(_nodes(frf_set).encode())
        axis = (18, "Frequency", "Hz")
        numerator = next(number for number, kind in KINDS.items() if kind == frf_set.kind)
        for o, row in enumerate(rows):
            for i, column in enumerate(columns):
                ids = [f"{frf_set.kind} {frf_set.outputs[o]} / {frf_set.inputs[i]}", *own]
                above, below = unit
                if frf_set.unit == SI_UNITS[frf_set.kind]:
                    above = above.replace("m", "rad", 1) if abs(row[2]) > 3 else above
                    below = "N m" if abs(column[2]) > 3 else below
                axes = (axis, (numerator, LABELS[frf_set.kind], above), (13, "Force", below), (0, "", ""))
                _write_function(file, 4, ids, row, column, frf_set.frequency_hz, frf_set.frf[:, o, i], axes)
        coherence = frf_set.coherence
        if coherence is None:
            return
        axes = (axis, (1, "Coherence", ""), (0, "", ""), (0, "", ""))
        for o, row in enumerate(rows):
            if coherence.ndim == 2:
                ids = [f"multiple coherence {frf_set.outputs[o]}", *own]
                _write_function(file, 26, ids, row, ("", 0, 0), frf_set.frequency_hz, coherence[:, o], axes)
                continue
            for i, column in enumerate(columns):
                ids = [f"coherence {frf_set.outputs[o]} / {frf_set.inputs[i]}", *own]
                _write_function(file, 6, ids, row, column, frf_set.frequency_hz, coherence[:, o, i], axes)


def _write_function(
    file: BinaryIO,
    function_type: int,
    ids: list[str],
    response: Dof,
    reference: Dof,
    frequency_hz: np.ndarray,
    values: np.ndarray,
    axes: tuple[tuple[int, str, str], ...],
) -> None:
    even, minimum, increment = _even(frequency_hz)
    parts = [np.real(values), np.imag(values)] if np.iscomplexobj(values) else [values]
    data = np.stack(parts if even else [frequency_hz, *parts], axis=1).astype("<f8").tobytes()
    records = [f"{line[:ID_WIDTH] or 'NONE':80}" for line in (*ids, *[""] * (5 - len(ids)))]
    records.append(
        f"{function_type:5d}{0:10d}{0:5d}{0:10d}"
        + "".join(f" {name or 'NONE':10}{node:10d}{direction:4d}" for name, node, direction in (response, reference))
    )
    records.append(
        f"{6 if np.iscomplexobj(values) else 4:10d}{len(values):10d}{int(even):10d}{minimum}{increment}{0:13.5e}"
    )
    records += [f"{kind:10d}{0:5d}{0:5d}{0:5d} {name or 'NONE':20} {unit or 'NONE':20}" for kind, name, unit in axes]
    first = f"{58:6d}b{1:6d}{2:6d}{11:12d}{len(data):12d}{0:6d}{0:6d}{0:12d}{0:12d}"
    file.write((MARK + first + "\n" + "".join(f"{record}\n" for record in records)).encode("ascii"))
    file.write(data)
    file.write(MARK.encode())


def _even(frequency_hz: np.ndarray) -> tuple[bool, str, str]:
    """Whether first frequency and step in the format's digits reproduce the axis exactly, and both as strings."""
    step = frequency_hz[1] - frequency_hz[0] if len(frequency_hz) > 1 else 0.0
    first, step = f"{frequency_hz[0]:13.5e}", f"{step:13.5e}"
    even = np.array_equal(float(first) + np.arange(len(frequency_hz)) * float(step), frequency_hz)
    return (True, first, step) if even else (False, f"{0:13.5e}", f"{0:13.5e}")


def _dof(what: str, name: str) -> Dof:
    node, _, axis = name.rpartition(" ")
    direction = axis.removeprefix("-")
    number = DIRECTION_NAMES.index(direction) if node and direction in DIRECTION_NAMES[1:] else 0
    if number == 0:
        node = name
    sign = -1 if axis.startswith("-") else 1
    entity, _, digits = node.rpartition(":")
    if not (digits.isascii() and digits.isdigit() and str(int(digits)) == digits and int(digits) <= LARGEST_NODE):
        entity, digits = node, "0"
    if len(entity) > ENTITY_WIDTH or not (entity.isascii() and entity.isprintable()):
        raise ValueError(
            f"{what} '{name}': expected a node number of at most 10 digits, a name of at most {ENTITY_WIDTH}"
            f" ASCII characters, or NAME:NUMBER"
        )
    return entity, int(digits), sign * number


def _own_lines(frf_set: FrfSet) -> list[str]:
    """ID lines from 2 on, at most four."""
    record: dict[str, object] = {"source": frf_set.source}
    if frf_set.averages is not None:
        record["averages"] = frf_set.averages
    if frf_set.decay_1_s:
        record["decay_1_s"] = frf_set.decay_1_s
    if frf_set.posture:
        record["posture"] = dict(frf_set.posture)
    text = json.dumps(record, separators=(",", ":"))
    room = ID_WIDTH - len(OWN_START) - len(OWN_END)
    if len(text) > OWN_LINES * room:
        raise ValueError(f"source and posture need {len(text)} characters, expected at most {OWN_LINES * room}")
    return [f"{OWN_START}{text[i : i + room]}{OWN_END}" for i in range(0, len(text), room)]


def _unit_labels(unit: str) -> tuple[str, str]:
    """Labels of ordinate and denominator."""
    if unit == UNKNOWN:
        return "", ""
    above, _, below = unit.rpartition("/")
    if above and len(above) <= LABEL_WIDTH and len(below) <= LABEL_WIDTH and unit.isascii():
        return above, below
    raise ValueError(f"unit '{unit}' does not fit, expected two labels of {LABEL_WIDTH} characters with / between them")


def _units() -> str:
    first = f"{1:10d}{'SI':20}{2:10d}\n"
    factors = f"{1.0:25.17e}{1.0:25.17e}{1.0:25.17e}\n{273.15:25.17e}\n".replace("e", "D")
    return f"{MARK}{164:6d}\n{first}{factors}{MARK}"


def _nodes(frf_set: FrfSet) -> str:
    text = f"{MARK}{2411:6d}\n"
    for name, position in frf_set.nodes.items():
        if not (name.isascii() and name.isdigit() and str(int(name)) == name and int(name) <= LARGEST_NODE):
            raise ValueError(
                f"node '{name}' has a position, expected a node number: the format identifies positions by number"
            )
        text += f"{int(name):10d}{1:10d}{1:10d}{11:10d}\n" + "".join(f"{x:25.16e}" for x in position) + "\n"
    return text + MARK
