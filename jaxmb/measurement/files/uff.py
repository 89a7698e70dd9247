"""Universal files (UFF) of FRFs: reading and writing of datasets 58 and 58b."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from jaxmb.io.files import LARGEST_ARRAY
from jaxmb.measurement.files.uff_datasets import Dataset, datasets
from jaxmb.measurement.files.uff_function import (
    FRF_KINDS,
    OWN_END,
    OWN_START,
    VALUES,
    Function,
    Units,
    binary_size,
    fortran,
    kind_and_unit,
    motion_unit,
    node_and_direction,
    own_record,
    read_function,
    read_units,
    values_of,
)
from jaxmb.measurement.frf_set import SI_UNITS, UNKNOWN, FrfSet, same_unit
from jaxmb.response.frf_kind import FrfKind

FIELDS = 7
Positions = dict[str, tuple[float, float, float]]
"""Positions by node."""


def read_positions(dataset: Dataset, positions: Positions) -> set[int]:
    """Add the nodes of a dataset 15 or 2411, in the file's unit of length.

    Returns:
        Numbers of the coordinate systems of positions and displacements, 1 for the first and for none.

    Raises:
        ValueError: a record is invalid, or a node occurs twice.
    """
    location = dataset.location
    numbers: list[float] = []
    for number, line in enumerate(dataset.data.splitlines(), start=dataset.line + 1):
        for word in line.decode("ascii", "replace").split():
            try:
                numbers.append(float(fortran(word)))
            except ValueError:
                raise ValueError(f"{location}, line {number}: found '{word[:40]}', expected a number") from None
    if not numbers or len(numbers) % FIELDS:
        raise ValueError(f"{location}: holds {len(numbers)} numbers, expected {FIELDS} for each node")
    rows = np.reshape(numbers, (-1, FIELDS)).tolist()
    for label, *_, x, y, z in rows:
        if not label.is_integer():
            raise ValueError(f"{location}: the label of a node is {label}, expected a whole number")
        name = str(int(label))
        position = (x, y, z)
        if not all(abs(c) < 1e30 for c in position):
            raise ValueError(f"{location}: node {name} is at {position}, expected finite coordinates")
        if positions.setdefault(name, position) != position:
            raise ValueError(f"{location}: node {name} has two positions in the file")
    return {max(int(system), 1) for _, *systems, _, _, _, _ in rows for system in systems}


def read_trace_lines(dataset: Dataset) -> list[tuple[str, ...]]:
    """Lines through nodes of a dataset 82; a node 0 begins another one.

    Raises:
        ValueError: the dataset is damaged.
    """
    head, _, *rows = [*dataset.data.decode("ascii", "replace").splitlines(), "", ""]
    words, size = " ".join(rows).split(), [*head.split(), ""][1]
    if not size.isdigit() or len(words) != int(size) or not all(word.isdigit() for word in words):
        raise ValueError(f"{dataset.location}: holds {len(words)} nodes, expected {size or 'some'} whole numbers")
    lines = (line.split() for line in " ".join(str(int(word)) if int(word) else ";" for word in words).split(";"))
    return [tuple(line) for line in lines if len(line) > 1]


TIME_RESPONSE, FRF, COHERENCE, MULTIPLE_COHERENCE = 1, 4, 6, 26
SAME_FREQUENCY = 1e-6
"""Relative tolerance of equal frequencies: the format has six digits."""
ROUNDING = 1e-6
"""Excess over 1 tolerated in a coherence of single precision or six digits."""
SILENT = (151,)
"""Datasets skipped without a remark: the header, which names the writing program."""


def read_uff(path: Path) -> tuple[FrfSet, tuple[str, ...]]:
    """FRF set from a universal file, and remarks on other content that is skipped.

    All frequency response functions of the file form one set: they share frequency axis, kind and unit. Pairs of output
    and input without a function are NaN. Coherence functions are included.

    Raises:
        ValueError: the file is no universal file, is damaged, holds no frequency response function, or holds functions
            that do not form one set; the message names the function and the line.
        OSError: the file cannot be opened.
    """
    functions: list[Function] = []
    others: Counter[str] = Counter()
    positions, traces, systems, has_systems, system = Positions(), list[tuple[str, ...]](), set[int](), False, None
    with path.open("rb") as file:
        for dataset in datasets(file, binary_size):
            if dataset.number == 58:
                functions.append(read_function(dataset))
            elif dataset.number in (15, 2411):
                systems |= read_positions(dataset, positions)
            elif dataset.number == 82:
                traces += read_trace_lines(dataset)
            elif dataset.number == 164:
                units = read_units(dataset.data.decode("ascii", "replace"), dataset.location)
                if system not in (None, units):
                    raise ValueError(
                        f"{dataset.location}: units differ from those specified before, expected one system of units in"
                        " a file"
                    )
                system = units
            elif dataset.number not in SILENT:
                others[f"dataset {dataset.number}"] += 1
                has_systems |= dataset.number in (18, 2420)  # coordinate systems
    responses = [f for f in functions if f.type == FRF]
    if not responses:
        found = Counter(f.name for f in functions) + others
        hint = "; a .toml describes time records" if any(f.type == TIME_RESPONSE for f in functions) else ""
        raise ValueError(f"holds no frequency response function (dataset 58, type 4); found {_counted(found)}{hint}")
    kind, unit = kind_and_unit(responses[0], system)
    _check_consistent(responses, kind, unit, system)
    record = own_record(responses[0])
    coherences = _coherences(functions, responses, others)
    outputs = tuple(dict.fromkeys(f.response for f in responses))
    inputs = tuple(dict.fromkeys(f.reference for f in responses))
    frequency_hz, frf, coherence = _values(responses, coherences, (outputs, inputs))
    others.update(f.name for f in functions if f.type not in (FRF, COHERENCE, MULTIPLE_COHERENCE))
    if len(systems) > 1 or (has_systems and systems - {1}):
        others["geometry in local coordinate systems"] += 1
        positions = {}
    drawn = [line for line in traces if positions.keys() >= set(line)]
    others["trace lines through nodes without positions"] += len(traces) - len(drawn)
    per_metre = 1.0 if system is None else system.per_metre  # unconverted where the file specifies no units
    ids = "; ".join(x for x in responses[0].ids if x)
    remarks = (f"{path}: skipped {_counted(others)}",) if others.total() else ()
    frf_set = FrfSet(
        frequency_hz=frequency_hz,
        frf=frf,
        kind=kind,
        outputs=outputs,
        inputs=inputs,
        coherence=coherence,
        averages=record.get("averages"),
        decay_1_s=record.get("decay_1_s", 0.0),
        unit=unit,
        posture=record.get("posture", {}),
        nodes={node: (x / per_metre, y / per_metre, z / per_metre) for node, (x, y, z) in positions.items()},
        trace_lines=tuple(drawn),
        source=record.get("source", f"{path} ({ids})" if ids else str(path)),
    )
    return frf_set, remarks


def _check_consistent(responses: Sequence[Function], kind: FrfKind, unit: str, system: Units | None) -> None:
    """Raise ValueError where a response has another kind, unit or record of jaxmb than the first."""
    first, *others = responses
    for function in others:
        also, its_unit = kind_and_unit(function, system)
        if also != kind or not same_unit(its_unit, unit, kind):
            raise ValueError(f"{function.location}: {also} in {its_unit}, but {first.location}: {kind} in {unit}")
        if unit == UNKNOWN and motion_unit(function) != motion_unit(first):
            raise ValueError(
                f"{function.location}: ordinate has unit '{function.numerator[1].strip()}',"
                f" but {first.location}: '{first.numerator[1].strip()}'"
            )
        if function.own != first.own:
            raise ValueError(f"{function.location}: posture or averages differ from those of {first.location}")


def _coherences(functions: Sequence[Function], responses: Sequence[Function], others: Counter[str]) -> list[Function]:
    """The coherence functions of the responses: ordinary ones if any, else multiple ones."""
    ordinary = [f for f in functions if f.type == COHERENCE]
    multiple = [f for f in functions if f.type == MULTIPLE_COHERENCE]
    used, skipped = (ordinary, multiple) if ordinary else (multiple, [])
    pairs = {(f.response, f.reference) for f in responses}
    outputs = {f.response for f in responses}
    known = [f for f in used if (f.response in outputs if f.type != COHERENCE else (f.response, f.reference) in pairs)]
    others["multiple coherence besides ordinary"] += len(skipped)
    others["coherence without a response"] += len(used) - len(known)
    return known


def _values(
    responses: Sequence[Function], coherences: Sequence[Function], names: tuple[tuple[str, ...], tuple[str, ...]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Frequency axis, responses and coherence, for these names of outputs and inputs."""
    first, shape = responses[0], (responses[0].points, *map(len, names))
    if float(np.prod(shape, dtype=float)) > LARGEST_ARRAY or first.points > len(first.dataset.data):
        raise ValueError(
            f"{first.location}: {shape[0]} points of {shape[1]} outputs and {shape[2]} inputs, expected at most"
            f" {LARGEST_ARRAY} values and no more than there are"
        )
    frequency_hz, arrays = np.full(first.points, np.nan), {FRF: np.full(shape, complex(np.nan, np.nan))}
    if coherences:
        known = coherences[0].type
        arrays[known] = np.full(shape[:2] if known == MULTIPLE_COHERENCE else shape, np.nan)
    seen: dict[tuple[str, ...], Function] = {}
    for function in (*responses, *coherences):
        dofs = (function.response, *([] if function.type == MULTIPLE_COHERENCE else [function.reference]))
        of = (function.name, *dofs)
        if of in seen:
            raise ValueError(f"{function.location}: the {' '.join(of[:2])} from {function.reference} duplicates "
                             f"{seen[of].location}")  # fmt: skip
        seen[of] = function
        if function.points != first.points:
            raise ValueError(
                f"{function.location}: has {function.points} points, but {first.location} has {first.points}"
            )
        index = (known.index(name) for name, known in zip(dofs, names, strict=False))
        _fill(function, arrays[function.type][:, *index], frequency_hz, first)
    frf, *coherence = arrays.values()
    for values in coherence:
        values[(values > 1.0) & (values <= 1.0 + ROUNDING)] = 1.0
    for array in (frequency_hz, *arrays.values()):
        array.setflags(write=False)
    return frequency_hz, frf, coherence[0] if coherence else None


def _fill(function: Function, target: np.ndarray, frequency_hz: np.ndarray, first: Function) -> None:
    """Store the values of a function and check its frequency axis, which the first function defines."""
    kind, label = function.abscissa
    if kind not in (0, 1, 18) or label.strip("[] ").lower() not in ("", "hz", "cps", "1/s"):
        raise ValueError(
            f"{function.location}, record 8, line {function.dataset.line + 8}: abscissa has data type {kind}"
            f" and unit '{label}', expected frequency (18) in Hz"
        )
    axis, values = values_of(function)
    if not np.iscomplexobj(target):
        if np.any(np.imag(values) != 0.0):
            raise ValueError(f"{function.location}: {function.name} has imaginary parts, expected real numbers")
        values = np.real(values)
        if np.any((values < 0.0) | (values > 1.0 + ROUNDING)):
            raise ValueError(f"{function.location}: {function.name} holds values outside 0 to 1")
    target[:] = values
    if not np.isfinite(axis).all():
        raise ValueError(f"{function.location}: the frequency of a point is not finite")
    if function is first:
        frequency_hz[:] = axis
        if np.any(np.diff(axis) <= 0.0) or axis[0] < 0.0:
            raise ValueError(f"{function.location}: the frequencies of its points do not increase from 0 or more")
    elif not np.allclose(axis, frequency_hz, rtol=SAME_FREQUENCY, atol=0.0):
        i = int(np.argmax(~np.isclose(axis, frequency_hz, rtol=SAME_FREQUENCY, atol=0.0)))
        raise ValueError(
            f"{function.location}: point {i + 1} is at {axis[i]:.6g} Hz,"
            f" but that of {first.location} at {frequency_hz[i]:.6g} Hz"
        )


def _counted(found: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(found.items()) if count) or "nothing else"


def read_time_histories(path: Path) -> tuple[np.ndarray, float, tuple[str, ...]]:
    """Time histories [sample, function] of a universal file, functions of type 1 in the order of the file, their
    sample rate, Hz, and the unit of each, "" where not specified.

    Raises:
        ValueError: the file is no universal file, is damaged, or holds no time histories of one sampling; the message
            names the function and the line.
        OSError: the file cannot be opened.
    """
    with path.open("rb") as file:
        functions = [read_function(dataset) for dataset in datasets(file, binary_size) if dataset.number == 58]
    found = [function for function in functions if function.type == TIME_RESPONSE]
    if not found:
        counts = Counter(function.name for function in functions)
        raise ValueError(f"holds no time response (dataset 58, type 1); found {_counted(counts)}")
    first = found[0]
    if first.points * len(found) > LARGEST_ARRAY:
        raise ValueError(f"{first.location}: {len(found)} functions of {first.points} samples, expected fewer")
    values = np.empty((first.points, len(found)))
    for column, function in enumerate(found):
        if not (function.even and function.increment > 0.0) or VALUES[function.data_type] == 2:
            raise ValueError(f"{function.location}: expected real samples at equal steps of time above 0")
        steps = np.isclose(function.increment, first.increment, rtol=1e-6)
        starts = np.isclose(function.minimum, first.minimum, rtol=SAME_FREQUENCY, atol=0.01 * first.increment)
        if not (function.points == first.points and steps and starts):
            raise ValueError(
                f"{function.location}: {function.points} samples at steps of {function.increment:g} s from"
                f" {function.minimum:g} s, but {first.location}: {first.points} at {first.increment:g} s from"
                f" {first.minimum:g} s"
            )
        values[:, column] = values_of(function)[1]
    return values, 1.0 / first.increment, tuple(map(motion_unit, found))


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
            file.write(units_dataset().encode())
        if frf_set.nodes:
            file.write((nodes_dataset(frf_set.nodes) + trace_lines_datasets(frf_set.trace_lines)).encode())
        axis, none = (18, "Frequency", "Hz"), (0, "", "")
        numerator = next(number for number, kind in FRF_KINDS.items() if kind == frf_set.kind)
        for o, i in np.ndindex(len(rows), len(columns)):
            above, below = unit
            if frf_set.unit == SI_UNITS[frf_set.kind]:
                above = above.replace("m", "rad", 1) if abs(rows[o][2]) > 3 else above
                below = "N m" if abs(columns[i][2]) > 3 else below
            ids = [f"{frf_set.kind} {frf_set.outputs[o]} / {frf_set.inputs[i]}", *own]
            axes = (axis, (numerator, LABELS[frf_set.kind], above), (13, "Force", below), none)
            _write_function(file, FRF, ids, rows[o], columns[i], frf_set.frequency_hz, frf_set.frf[:, o, i], axes)
        coherence = frf_set.coherence
        if coherence is None:
            return
        axes, multiple = (axis, (1, "Coherence", ""), none, none), coherence.ndim == 2
        for o, i in np.ndindex(len(rows), 1 if multiple else len(columns)):
            of = frf_set.outputs[o] if multiple else f"{frf_set.outputs[o]} / {frf_set.inputs[i]}"
            number, name = (MULTIPLE_COHERENCE, "multiple coherence") if multiple else (COHERENCE, "coherence")
            column, values = (("", 0, 0), coherence[:, o]) if multiple else (columns[i], coherence[:, o, i])
            _write_function(file, number, [f"{name} {of}", *own], rows[o], column, frf_set.frequency_hz, values, axes)


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
    step = frequency_hz[1] - frequency_hz[0] if len(frequency_hz) > 1 else 0.0
    minimum, increment = f"{frequency_hz[0]:13.5e}", f"{step:13.5e}"
    # whether first frequency and step in the format's digits reproduce the axis exactly
    even = np.array_equal(float(minimum) + np.arange(len(frequency_hz)) * float(increment), frequency_hz)
    axis = minimum + increment if even else f"{0:13.5e}{0:13.5e}"
    parts = [np.real(values), np.imag(values)] if np.iscomplexobj(values) else [values]
    data = np.stack(parts if even else [frequency_hz, *parts], axis=1).astype("<f8").tobytes()
    records = [f"{line[:ID_WIDTH] or 'NONE':80}" for line in (*ids, *[""] * (5 - len(ids)))]
    records.append(
        f"{function_type:5d}{0:10d}{0:5d}{0:10d}"
        + "".join(f" {name or 'NONE':10}{node:10d}{direction:4d}" for name, node, direction in (response, reference))
    )
    records.append(f"{6 if np.iscomplexobj(values) else 4:10d}{len(values):10d}{int(even):10d}{axis}{0:13.5e}")
    records += [f"{kind:10d}{0:5d}{0:5d}{0:5d} {name or 'NONE':20} {unit or 'NONE':20}" for kind, name, unit in axes]
    first = f"{58:6d}b{1:6d}{2:6d}{11:12d}{len(data):12d}{0:6d}{0:6d}{0:12d}{0:12d}"
    file.write((MARK + first + "\n" + "".join(f"{record}\n" for record in records)).encode("ascii"))
    file.write(data)
    file.write(MARK.encode())


def _dof(what: str, name: str) -> Dof:
    """Entity, node and direction of a degree of freedom by its name, such as "12 -x".

    Raises:
        ValueError: the format cannot represent the name.
    """
    node, direction = node_and_direction(name)
    entity, _, digits = node.rpartition(":")
    if not (digits.isascii() and digits.isdigit() and str(int(digits)) == digits and int(digits) <= LARGEST_NODE):
        entity, digits = node, "0"
    if len(entity) > ENTITY_WIDTH or not (entity.isascii() and entity.isprintable()):
        raise ValueError(
            f"{what} '{name}': expected a node number of at most 10 digits, a name of at most {ENTITY_WIDTH}"
            f" ASCII characters, or NAME:NUMBER"
        )
    return entity, int(digits), direction


def _own_lines(frf_set: FrfSet) -> list[str]:
    """ID lines from 2 on, at most four."""
    record = {
        "source": frf_set.source,
        "averages": frf_set.averages,
        "decay_1_s": frf_set.decay_1_s or None,
        "posture": dict(frf_set.posture) or None,
    }
    text = json.dumps({key: value for key, value in record.items() if value is not None}, separators=(",", ":"))
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


def units_dataset() -> str:
    """Dataset 164 of SI units."""
    first = f"{1:10d}{'SI':20}{2:10d}\n"
    factors = f"{1.0:25.17e}{1.0:25.17e}{1.0:25.17e}\n{273.15:25.17e}\n".replace("e", "D")
    return f"{MARK}{164:6d}\n{first}{factors}{MARK}"


def nodes_dataset(nodes: Mapping[str, tuple[float, float, float]]) -> str:
    """Dataset 2411 of positions by node, m."""
    text = f"{MARK}{2411:6d}\n"
    for name, position in nodes.items():
        if not (name.isascii() and name.isdigit() and str(int(name)) == name and int(name) <= LARGEST_NODE):
            raise ValueError(
                f"node '{name}' has a position, expected a node number: the format identifies positions by number"
            )
        text += f"{int(name):10d}{1:10d}{1:10d}{11:10d}\n" + "".join(f"{x:25.16e}" for x in position) + "\n"
    return text + MARK


def trace_lines_datasets(lines: Sequence[Sequence[str]]) -> str:
    """A dataset 82 for each line through nodes."""
    text = ""
    for number, line in enumerate(lines, 1):
        rows = ("".join(f"{int(name):10d}" for name in line[k : k + 8]) for k in range(0, len(line), 8))
        text += f"{MARK}{82:6d}\n{number:10d}{len(line):10d}{1:10d}\nNONE\n" + "\n".join(rows) + f"\n{MARK}"
    return text
