"""One function of a universal file (dataset 58): what its header says, checked column by column, then read by pyuff.

pyuff takes what it cannot read in a header for zero, and counts no points; so the columns are checked before and the
points after.
"""

import dataclasses
import itertools
import json
import math
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from jaxmb.measurement.files.uff_datasets import MARK, Dataset, at_function
from jaxmb.measurement.units import SI_UNITS, UNKNOWN, unit_over, unit_scale
from jaxmb.response.frf_kind import FrfKind

FUNCTION_TYPES: Mapping[int, str] = {
    0: "general function", 1: "time response", 2: "auto spectrum", 3: "cross spectrum",
    4: "frequency response function", 5: "transmissibility", 6: "coherence", 7: "auto correlation",
    8: "cross correlation", 9: "power spectral density", 10: "energy spectral density", 12: "spectrum",
    18: "mode indicator function", 21: "partial coherence", 26: "multiple coherence",
}  # fmt: skip
DIRECTION_NAMES = ("", "x", "y", "z", "rx", "ry", "rz")
VALUES = {2: 1, 4: 1, 5: 2, 6: 2}
"""Real numbers per value by ordinate data type: real single, real double, complex single, complex double."""
DOUBLE = (4, 6)
_WHOLE, _REAL, _TEXT = "a whole number", "a number", ""
_AXIS = ((10, _WHOLE, "data type"), *(((5, _WHOLE, "exponent of a unit"),) * 3))
COLUMNS: Mapping[int, tuple[tuple[int, str, str], ...]] = {
    6: (
        (5, _WHOLE, "function type"), (10, _WHOLE, "function number"), (5, _WHOLE, "version"),
        (10, _WHOLE, "load case"), (11, _TEXT, ""), (10, _WHOLE, "response node"), (4, _WHOLE, "response direction"),
        (11, _TEXT, ""), (10, _WHOLE, "reference node"), (4, _WHOLE, "reference direction"),
    ),
    7: (
        (10, _WHOLE, "ordinate data type"), (10, _WHOLE, "number of points"), (10, _WHOLE, "abscissa spacing"),
        (13, _REAL, "abscissa minimum"), (13, _REAL, "abscissa increment"), (13, _REAL, "z-axis value"),
    ),
    8: _AXIS, 9: _AXIS, 10: _AXIS, 11: _AXIS,
}  # fmt: skip
"""Width, contents and name of the fields of each record; labels of axes follow in 8 to 11."""
OWN_START, OWN_END = "jaxmb ", "|"
"""ID lines 2 to 5 that hold what dataset 58 has no place for: pieces of one JSON text between these."""


@dataclasses.dataclass(frozen=True)
class Function:
    """What the header of one dataset 58 says."""

    number: int
    """1 for the first dataset 58 of the file."""
    dataset: Dataset
    type: int
    response: str
    """Degree of freedom, "12 -x", "ARM:5 rz", "tool x"; without direction where that is a scalar."""
    reference: str
    response_rotates: bool
    reference_rotates: bool
    data_type: int
    points: int
    even: bool
    minimum: float
    increment: float
    abscissa: tuple[int, str]
    """Specific data type and unit label of the axes."""
    numerator: tuple[int, str]
    denominator: tuple[int, str]
    ids: tuple[str, ...]

    @property
    def place(self) -> str:
        """Where it stands, for messages."""
        return at_function(self.number, self.dataset.line)

    @property
    def name(self) -> str:
        """What type of function it is, in words."""
        return FUNCTION_TYPES.get(self.type, f"function of type {self.type}")

    @property
    def own(self) -> str:
        """JSON text in its ID lines that jaxmb wrote there; empty where there is none."""
        return "".join(
            x[len(OWN_START) : -len(OWN_END)] for x in self.ids[1:] if x.startswith(OWN_START) and x.endswith(OWN_END)
        )


def read_function(dataset: Dataset, number: int) -> Function:
    """What the header of the n-th dataset 58 says.

    Raises:
        ValueError: a field of the header is not what it must be; the message names record and line.
    """
    place = at_function(number, dataset.line)
    header = list(dataset.header)
    for record, columns in COLUMNS.items():
        header[record - 1] = _checked(dataset, record, columns, place)
    dataset = dataclasses.replace(dataset, header=tuple(header))
    fields = through_pyuff(_block(dataset, b""), header_only=True)
    if fields is None:
        raise ValueError(f"{place}: the header cannot be read")
    wrong = {
        ("record 6", "response direction", fields["rsp_dir"]): abs(fields["rsp_dir"]) > 6,
        ("record 6", "reference direction", fields["ref_dir"]): abs(fields["ref_dir"]) > 6,
        ("record 7", "ordinate data type", fields["ord_data_type"]): fields["ord_data_type"] not in VALUES,
        ("record 7", "number of points", fields["num_pts"]): fields["num_pts"] < 1,
        ("record 7", "abscissa spacing", fields["abscissa_spacing"]): fields["abscissa_spacing"] not in (0, 1),
    }
    expected = {
        "ordinate data type": "2, 4, 5 or 6", "number of points": "at least 1", "abscissa spacing": "0 or 1",
    }  # fmt: skip
    for (record, name, value), is_wrong in wrong.items():
        if is_wrong:
            line = dataset.line + int(record[-1])
            raise ValueError(
                f"{place}, {record}, line {line}: {name} is {value}, expected {expected.get(name, '-6 to 6')}"
            )
    return Function(
        number=number,
        dataset=dataset,
        type=fields["func_type"],
        response=_dof(fields["rsp_ent_name"], fields["rsp_node"], fields["rsp_dir"]),
        reference=_dof(fields["ref_ent_name"], fields["ref_node"], fields["ref_dir"]),
        response_rotates=abs(fields["rsp_dir"]) > 3,
        reference_rotates=abs(fields["ref_dir"]) > 3,
        data_type=fields["ord_data_type"],
        points=fields["num_pts"],
        even=fields["abscissa_spacing"] == 1,
        minimum=fields["abscissa_min"],
        increment=fields["abscissa_inc"],
        abscissa=_axis(fields, "abscissa"),
        numerator=_axis(fields, "ordinate"),
        denominator=_axis(fields, "orddenom"),
        ids=tuple(_said(fields[f"id{i}"]) for i in range(1, 6)),
    )


def own_record(function: Function) -> dict[str, Any]:
    """Posture, averages, decay and source as jaxmb wrote them into the ID lines; empty where it did not.

    Raises:
        ValueError: the ID lines begin as those of jaxmb, but what follows is not what it writes.
    """
    if not function.own:
        return {}
    place = f"{function.place}, records 2 to 5"
    try:
        record = json.loads(function.own)
    except ValueError as error:
        raise ValueError(f"{place}: the ID lines of jaxmb are damaged: {error}") from None
    types: dict[str, tuple[type, ...]] = {
        "averages": (int,), "decay_1_s": (int, float), "posture": (dict,), "source": (str,)
    }  # fmt: skip
    if not isinstance(record, dict) or any(not isinstance(v, types.get(k, ())) for k, v in record.items()):
        raise ValueError(f"{place}: the ID lines of jaxmb are damaged, expected {', '.join(types)}")
    if any(not isinstance(v, int | float) for v in record.get("posture", {}).values()):
        raise ValueError(f"{place}: the posture in the ID lines of jaxmb is damaged, expected numbers")
    return record


def through_pyuff(block: bytes, header_only: bool = False) -> dict[str, Any] | None:
    """Fields of one dataset as pyuff reads them; None where it cannot.

    It reads files only, and looks for the end of a dataset in its data; so it is given one dataset without binary data.
    """
    import pyuff

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "dataset.uff"
        path.write_bytes(block)
        try:
            fields = pyuff.UFF(str(path)).read_sets(0, header_only=header_only)
        except Exception:  # noqa: BLE001  (it raises this very class, whatever is wrong)
            return None
    return fields if isinstance(fields, dict) else None


def _block(dataset: Dataset, data: bytes) -> bytes:
    """One dataset as a file of its own; after a blank, a -1 that ends a line is no mark to pyuff."""
    lines = "".join(f"{line.rstrip()} \n" for line in dataset.header)
    return MARK + b"\n" + f"{dataset.number:6d}{'':74}\n".encode() + lines.encode() + data + MARK + b"\n"


def function_block(function: Function, data_lines: list[bytes]) -> bytes:
    """A function with some of its data lines as a file for pyuff."""
    data = b"".join(line + b" \n" for line in data_lines)
    return _block(function.dataset, data.replace(b"D", b"E").replace(b"d", b"e"))  # exponents as Fortran writes them


def _checked(dataset: Dataset, record: int, columns: tuple[tuple[int, str, str], ...], place: str) -> str:
    """A record in which every number is one; a blank is 0, as FORTRAN reads it."""
    line = dataset.header[record - 1]
    start, fields = 0, []
    for width, contents, name in columns:
        field = line[start : start + width].strip()
        start += width
        try:
            if contents and field:
                _ = int(field) if contents == _WHOLE else float(_e_for_d(field))
                if "_" in field or not field.isascii():
                    raise ValueError
        except ValueError:
            raise ValueError(
                f"{place}, record {record}, line {dataset.line + record}:"
                f" {name} is '{field}' in columns {start - width + 1} to {start}, expected {contents}"
            ) from None
        kept = "0" if contents and not field else line[start - width : start]
        fields.append(f"{_e_for_d(kept) if contents == _REAL else kept:>{width}}")
    return "".join(fields) + line[start:]


def _e_for_d(number: str) -> str:
    """A number of FORTRAN's double precision with an exponent that Python reads."""
    return number.replace("D", "E").replace("d", "e")


def _dof(entity: str, node: int, direction: int) -> str:
    entity = _said(entity)
    name = entity if entity and node == 0 else f"{entity}:{node}" if entity else str(node)
    axis = DIRECTION_NAMES[abs(direction)] if abs(direction) <= 6 else ""
    return f"{name} {'-' if direction < 0 else ''}{axis}" if axis else name


def _axis(fields: Mapping[str, Any], name: str) -> tuple[int, str]:
    return fields[f"{name}_spec_data_type"], _said(fields[f"{name}_axis_units_lab"])


def _said(label: str) -> str:
    return "" if label.strip().upper() == "NONE" else label.strip()


KINDS: dict[int, FrfKind] = {8: "receptance", 11: "mobility", 12: "accelerance"}
"""By specific data type of the ordinate: displacement, velocity, acceleration."""
NOT_SAID = (0, 1)
"""Specific data types "unknown" and "general"."""
FORCES = (9, 13)
"""Reaction force, excitation force."""
SYSTEMS: dict[int, tuple[str, str, float, float]] = {
    1: ("m", "N", 1.0, 1.0),
    2: ("ft", "lbf", 3.280839895, 0.2248089431),
    3: ("m", "kgf", 1.0, 0.1019716213),
    4: ("ft", "poundal", 3.280839895, 7.233013851),
    5: ("mm", "mN", 1e3, 1e3),
    6: ("cm", "cN", 1e2, 1e2),
    7: ("in", "lbf", 39.37007874, 0.2248089431),
    8: ("mm", "kgf", 1e3, 0.1019716213),
}
"""Units of length and force by the code of dataset 164, and how many of them one m and one N are."""
SAME = 1e-4
"""Relative difference below which two factors of units are one: files state four digits of them at least."""
_SPELT = {"lb": "lbf", "lbs": "lbf", "g's": "g", "gn": "g", "G": "g"}


@dataclasses.dataclass(frozen=True)
class Units:
    """Units of a file that are not said function by function."""

    length: str
    force: str
    per_metre: float
    """How many of the file's lengths one metre has."""


def units_of_dataset(fields: dict[str, Any], place: str) -> Units:
    """Units that dataset 164 states.

    Raises:
        ValueError: the code is none, or the factors are not those of the code.
    """
    code, length, force = fields["units_code"], fields["length"], fields["force"]
    if not (0.0 < length < math.inf and 0.0 < force < math.inf):
        raise ValueError(f"{place}: factors of length and force are {length} and {force}, expected positive numbers")
    candidates = SYSTEMS if code in (0, 9) else {code: SYSTEMS[code]} if code in SYSTEMS else {}
    for length_unit, force_unit, per_metre, per_newton in candidates.values():
        if math.isclose(length, per_metre, rel_tol=SAME) and math.isclose(force, per_newton, rel_tol=SAME):
            return Units(length_unit, force_unit, length)
    if candidates and code not in (0, 9):
        name = f"{candidates[code][0]} and {candidates[code][1]}"
        raise ValueError(f"{place}: code {code} means {name}, but the factors {length:g} and {force:g} are not theirs")
    if code in (0, 9):
        return Units("", "", length)  # a system of the user's own: lengths are known, responses need labels
    raise ValueError(f"{place}: units code is {code}, expected 1 to 9")


def kind_and_unit(function: Function, system: Units | None) -> tuple[FrfKind, str]:
    """Kind of a frequency response and the unit it stands in; "unknown" where the file does not tell.

    Labels of the axes go before the units of the file, as the format's description has it.

    Raises:
        ValueError: it is not the response of a displacement, velocity or acceleration to a force, or the unit is not
            that of the kind.
    """
    (type_above, above), (type_below, below) = function.numerator, function.denominator
    where = f"{function.place}, record 9, line {function.dataset.line + 9}"
    if type_below not in (*FORCES, *NOT_SAID):
        raise ValueError(
            f"{function.place}, record 10, line {function.dataset.line + 10}: denominator has data type {type_below},"
            f" expected excitation force (13)"
        )
    above, below = _spelt(above, function.response_rotates), _spelt(below, False)
    if function.reference_rotates and re.sub(r"[ *.()]", "", below) == "Nm":
        below = "N"  # a moment in SI; with rad for m, responses of rotations have the units of those of translations
    if type_above in KINDS:
        return KINDS[type_above], _unit(KINDS[type_above], above, below, system, where)
    if type_above not in NOT_SAID:
        raise ValueError(f"{where}: ordinate has data type {type_above}, expected displacement (8), velocity (11)"
                         f" or acceleration (12)")  # fmt: skip
    for kind in KINDS.values():
        if above:
            try:
                return kind, _unit(kind, above, below, system, where)
            except ValueError:
                continue
    raise ValueError(f"{where}: ordinate has data type {type_above} (not said) and unit '{above}',"
                     f" expected displacement (8), velocity (11) or acceleration (12)")  # fmt: skip


def motion_unit(function: Function) -> str:
    """Unit of the motion alone, as pint reads it; "" where the file does not tell."""
    return _spelt(function.numerator[1], function.response_rotates)


def _unit(kind: FrfKind, above: str, below: str, system: Units | None, where: str) -> str:
    seconds = {"receptance": "", "mobility": "/s", "accelerance": "/s^2"}[kind]
    if system is not None and system.length:
        above, below = above or f"{system.length}{seconds}", below or system.force
    if not above:
        return UNKNOWN
    candidates = [unit_over(above, below)] if below else []
    candidates.append(above)  # some programs write the unit of the whole ratio there
    for unit in candidates:
        if unit == SI_UNITS[kind]:
            return unit
    reasons = []
    for unit in candidates:
        try:
            unit_scale(unit, kind)
        except ValueError as error:
            reasons.append(str(error))
        else:
            return unit
    if not below and kind == _motion(above):
        return UNKNOWN  # the unit of the force is missing
    raise ValueError(f"{where}: {reasons[0]}")


def _motion(unit: str) -> FrfKind | None:
    """Kind of a unit that is one of displacement, velocity or acceleration."""
    for kind in KINDS.values():
        try:
            unit_scale(f"{unit}/N", kind)
        except ValueError:
            continue
        return kind
    return None


def _spelt(label: str, rotates: bool) -> str:
    """A unit's label as pint reads it: m/s2 as m/s^2, lb as lbf, and rad as m where it is a rotation."""
    label = label.strip("[] ")
    label = label.replace("²", "^2").replace("³", "^3").replace("·", "*").replace("**", "^")
    label = re.sub(r"(?<=[A-Za-z])(-?\d)", r"^\1", label)
    label = re.sub(r"[A-Za-z']+", lambda word: _SPELT.get(word[0], word[0]), label)
    return re.sub(r"\brad\b", "m", label) if rotates else label


TEXT_PIECE = 4_000_000
"""Bytes of text given to pyuff at once: it needs some ten times as many."""
BINARY_PIECE = 250_000
BYTE_ORDERS = {1: "<", 2: ">"}
"""By the field of dataset 58b: little endian (DEC, Intel), big endian (IBM, HP, Sun)."""
IEEE_754 = 2

Piece = tuple[int, np.ndarray | None, np.ndarray]
"""Number of the first point, abscissa (None where even) and values."""


def binary_size(function: Function) -> int:
    """Bytes of data that a dataset 58b with this header has.

    Raises:
        ValueError: the line of the number says that they are others, or in another form than IEEE numbers.
    """
    header = function.dataset.first[7:].ljust(73)
    names = ("byte order", "floating point format", "number of header lines", "number of data bytes")
    ends = (0, 6, 12, 24, 36)
    found = [header[a:b].strip() for a, b in itertools.pairwise(ends)]
    for name, field in zip(names, found, strict=True):
        if not (field.isascii() and field.isdigit()):
            raise ValueError(f"{function.place}: {name} is '{field}', expected a whole number")
    order, form, lines, declared = map(int, found)
    if order not in BYTE_ORDERS or form != IEEE_754 or lines != 11:
        raise ValueError(
            f"{function.place}: byte order {order}, format {form}, {lines} header lines,"
            f" expected 1 or 2, 2 (IEEE 754), 11"
        )
    size = function.points * _numbers_per_point(function) * _width(function)
    # pyuff states the bytes of the real parts alone, and no others' programs care
    if declared not in (size, function.points * _width(function)):
        raise ValueError(
            f"{function.place}, record 7, line {function.dataset.line + 7}: {function.points} points have {size} bytes,"
            f" but line {function.dataset.line} says {declared}"
        )
    return size


def pieces(file: BinaryIO, function: Function) -> Iterator[Piece]:
    """The values of a function, in pieces.

    Raises:
        ValueError: a value is no number, or there are not as many as the header says; the message names the line.
    """
    return _binary_pieces(file, function) if function.dataset.binary else _text_pieces(file, function)


def _binary_pieces(file: BinaryIO, function: Function) -> Iterator[Piece]:
    per_point = _numbers_per_point(function)
    order = BYTE_ORDERS[int(function.dataset.first[7:13])]
    file.seek(function.dataset.start)
    for start in range(0, function.points, BINARY_PIECE):
        count = min(BINARY_PIECE, function.points - start)
        data = file.read(count * per_point * _width(function))
        if len(data) != count * per_point * _width(function):
            raise ValueError(f"{function.place}: the file changed while it was read")
        numbers = np.frombuffer(data, dtype=f"{order}f{_width(function)}").astype(float).reshape(count, per_point)
        yield (
            start,
            None if function.even else numbers[:, 0],
            _values(function, numbers[:, 0 if function.even else 1 :]),
        )


def _text_pieces(file: BinaryIO, function: Function) -> Iterator[Piece]:
    widths = _widths(function)
    line, done, left = function.dataset.data_line, 0, function.dataset.end - function.dataset.start
    file.seek(function.dataset.start)
    while left > 0:
        raw = file.readlines(min(left, TEXT_PIECE))
        size = sum(map(len, raw))
        while size > left:  # readlines goes on to the end of a line, and takes more than one
            size -= len(raw.pop())
        file.seek(function.dataset.end - left + size)
        left -= size
        lines = [x.rstrip() for x in raw]
        if any(len(x) not in widths for x in lines):
            _name_wrong_line(function, lines, line, widths)
        lines_there = [x for x in lines if x]
        if not lines_there:
            continue
        fields = through_pyuff(function_block(function, lines_there))
        if fields is None:
            _name_wrong_line(function, lines, line, widths)
            raise ValueError(f"{function.place}: the values from line {line} on cannot be read")
        values = np.asarray(fields["data"])
        if done + len(values) > function.points:
            raise ValueError(_miscount(function, "more follow"))
        if sum(widths[len(x)] for x in lines_there) != len(values) * _numbers_per_point(function):
            raise ValueError(f"{function.place}: a value is not whole before line {line + len(raw)}")
        yield done, None if function.even else np.asarray(fields["x"]), values
        done += len(values)
        line += len(raw)
    if done != function.points:
        raise ValueError(_miscount(function, f"{done} follow"))


def _miscount(function: Function, found: str) -> str:
    where = f"{function.place}, record 7, line {function.dataset.line + 7}"
    return f"{where}: says {function.points} points, but {found}"


def _values(function: Function, numbers: np.ndarray) -> np.ndarray:
    """Values [point] from their real numbers [point, part]."""
    if VALUES[function.data_type] == 1:
        return numbers[:, 0]
    values = np.empty(len(numbers), complex)  # not real + 1j * imaginary, which makes NaN of one infinite part
    values.real, values.imag = numbers[:, 0], numbers[:, 1]
    return values


def _numbers_per_point(function: Function) -> int:
    return VALUES[function.data_type] + (0 if function.even else 1)


def _width(function: Function) -> int:
    return 8 if function.data_type in DOUBLE else 4


def _widths(function: Function) -> dict[int, int]:
    """Lengths that a line of values may have, and how many numbers it holds then."""
    if function.data_type not in DOUBLE:
        columns = [13] * 6
    elif function.even:
        columns = [20] * 4
    else:
        columns = [13, 20] * 2 if function.data_type == 4 else [13, 20, 20]
    allowed = {sum(columns[:n]): n for n in range(len(columns) + 1)}
    if function.data_type == 6 and not function.even:
        return {0: 0, 53: 3}
    return {k: n for k, n in allowed.items() if function.data_type != 4 or function.even or n % 2 == 0}


def _name_wrong_line(function: Function, lines: list[bytes], first: int, widths: dict[int, int]) -> None:
    """Raise ValueError at the first line that does not hold numbers in the columns of its format."""
    longest = sorted(widths)
    for number, line in enumerate(lines, start=first):
        if len(line) not in widths:
            raise ValueError(
                f"{function.place}, line {number}: the values end in column {len(line)},"
                f" expected one of {', '.join(map(str, longest[1:]))} for ordinate data type {function.data_type}"
            )
        start = 0
        for end in [x for x in _ends(function) if x <= len(line)]:
            field = line[start:end].strip()
            if not re.fullmatch(
                rb"[+-]?(\d+\.?\d*|\.\d+)([eEdD][+-]?\d+)?|[+-]?(nan|inf|infinity)", field, re.IGNORECASE
            ):
                shown = field.decode("ascii", "replace")
                raise ValueError(
                    f"{function.place}, line {number}: found '{shown}' in columns {start + 1} to {end},"
                    f" expected a number"
                )
            start = end


def _ends(function: Function) -> list[int]:
    if function.data_type not in DOUBLE:
        return [13 * k for k in range(1, 7)]
    if function.even:
        return [20 * k for k in range(1, 5)]
    return [13, 33, 46, 66] if function.data_type == 4 else [13, 33, 53]
