"""One function of a universal file (dataset 58): header, checked column by column and read by pyuff, and values.

pyuff reads an invalid header field as zero and does not count points; the columns are therefore checked before and the
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
from typing import BinaryIO

import numpy as np

from jaxmb.io.validation import Table
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
"""Delimiters of the pieces of one JSON text in ID lines 2 to 5, for fields that dataset 58 lacks."""


@dataclasses.dataclass(frozen=True)
class Function:
    """Header of one dataset 58."""

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
        """Location in the file, for messages."""
        return at_function(self.number, self.dataset.line)

    @property
    def name(self) -> str:
        """Name of the function type."""
        return FUNCTION_TYPES.get(self.type, f"function of type {self.type}")

    @property
    def own(self) -> str:
        """JSON text that jaxmb wrote into the ID lines; empty where there is none."""
        return "".join(
            x[len(OWN_START) : -len(OWN_END)] for x in self.ids[1:] if x.startswith(OWN_START) and x.endswith(OWN_END)
        )


def read_function(dataset: Dataset, number: int) -> Function:
    """Header of the n-th dataset 58.

    Raises:
        ValueError: a field of the header is invalid; the message names record and line.
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


def own_record(function: Function) -> Table:
    """Posture, averages, decay and source that jaxmb wrote into the ID lines; empty where there are none.

    Raises:
        ValueError: the ID lines begin as those of jaxmb, but their content is invalid.
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


def through_pyuff(block: bytes, header_only: bool = False) -> Table | None:
    """Fields of one dataset read by pyuff; None where it fails.

    pyuff reads files only and searches the data for the end of a dataset; it gets one dataset without binary data.
    """
    import pyuff

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "dataset.uff"
        path.write_bytes(block)
        try:
            fields = pyuff.UFF(str(path)).read_sets(0, header_only=header_only)
        except Exception:  # noqa: BLE001  (pyuff raises Exception for any error)
            return None
    return fields if isinstance(fields, dict) else None


def _block(dataset: Dataset, data: bytes) -> bytes:
    """One dataset as a file; the blank before a line end keeps pyuff from taking a final -1 for a mark."""
    lines = "".join(f"{line.rstrip()} \n" for line in dataset.header)
    return MARK + b"\n" + f"{dataset.number:6d}{'':74}\n".encode() + lines.encode() + data + MARK + b"\n"


def function_block(function: Function, data_lines: list[bytes]) -> bytes:
    """A file for pyuff with a function and some of its data lines."""
    data = b"".join(line + b" \n" for line in data_lines)
    return _block(function.dataset, data.replace(b"D", b"E").replace(b"d", b"e"))  # Fortran's exponents


def _checked(dataset: Dataset, record: int, columns: tuple[tuple[int, str, str], ...], place: str) -> str:
    """The record with its number fields checked; a blank field is 0, as in Fortran."""
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
    """A Fortran double-precision number with the exponent letter of Python."""
    return number.replace("D", "E").replace("d", "e")


def _dof(entity: str, node: int, direction: int) -> str:
    entity = _said(entity)
    name = entity if entity and node == 0 else f"{entity}:{node}" if entity else str(node)
    axis = DIRECTION_NAMES[abs(direction)] if abs(direction) <= 6 else ""
    return f"{name} {'-' if direction < 0 else ''}{axis}" if axis else name


def _axis(fields: Table, name: str) -> tuple[int, str]:
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
"""Units of length and force by the code of dataset 164, with their number per m and per N."""
SAME = 1e-4
"""Relative tolerance of equal unit factors: files have at least four digits."""
_SPELT = {"lb": "lbf", "lbs": "lbf", "g's": "g", "gn": "g", "G": "g"}


@dataclasses.dataclass(frozen=True)
class Units:
    """Units of a file, used where a function does not specify its own."""

    length: str
    force: str
    per_metre: float
    """The file's units of length per metre."""


def units_of_dataset(fields: Table, place: str) -> Units:
    """Units specified by dataset 164.

    Raises:
        ValueError: the code is invalid, or the factors are not those of the code.
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
        return Units("", "", length)  # user-defined system: lengths are known, responses need labels
    raise ValueError(f"{place}: units code is {code}, expected 1 to 9")


def kind_and_unit(function: Function, system: Units | None) -> tuple[FrfKind, str]:
    """Kind of a frequency response and its unit; "unknown" where the file does not specify it.

    Labels of the axes take precedence over the units of the file, as in the format's specification.

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
        below = "N"  # moment in SI: with rad counted as m, rotational responses have the units of translational ones
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
    raise ValueError(f"{where}: ordinate has data type {type_above} (not specified) and unit '{above}',"
                     f" expected displacement (8), velocity (11) or acceleration (12)")  # fmt: skip


def motion_unit(function: Function) -> str:
    """Unit of the motion alone, in pint's spelling; "" where not specified."""
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
    """Kind of response by its unit of displacement, velocity or acceleration; None for others."""
    for kind in KINDS.values():
        try:
            unit_scale(f"{unit}/N", kind)
        except ValueError:
            continue
        return kind
    return None


def _spelt(label: str, rotates: bool) -> str:
    """A unit's label in pint's spelling: m/s2 as m/s^2, lb as lbf, and rad as m for a rotation."""
    label = label.strip("[] ")
    label = label.replace("²", "^2").replace("³", "^3").replace("·", "*").replace("**", "^")
    label = re.sub(r"(?<=[A-Za-z])(-?\d)", r"^\1", label)
    label = re.sub(r"[A-Za-z']+", lambda word: _SPELT.get(word[0], word[0]), label)
    return re.sub(r"\brad\b", "m", label) if rotates else label


TEXT_PIECE = 4_000_000
"""Bytes of text passed to pyuff at once; it needs about ten times as much memory."""
BINARY_PIECE = 250_000
BYTE_ORDERS = {1: "<", 2: ">"}
"""NumPy byte order by the field of dataset 58b: little endian (DEC, Intel), big endian (IBM, HP, Sun)."""
IEEE_754 = 2

Piece = tuple[int, np.ndarray | None, np.ndarray]
"""Number of the first point, abscissa (None where even) and values."""


def binary_size(function: Function) -> int:
    """Number of bytes of data of a dataset 58b with this header.

    Raises:
        ValueError: the first line specifies another number, or a format other than IEEE.
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
    # pyuff writes the size of the real parts alone
    if declared not in (size, function.points * _width(function)):
        raise ValueError(
            f"{function.place}, record 7, line {function.dataset.line + 7}: {function.points} points have {size} bytes,"
            f" but line {function.dataset.line} specifies {declared}"
        )
    return size


def pieces(file: BinaryIO, function: Function) -> Iterator[Piece]:
    """The values of a function, in pieces.

    Raises:
        ValueError: a value is no number, or their count differs from the header; the message names the line.
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
    line, done, remaining = function.dataset.data_line, 0, function.dataset.end - function.dataset.start
    file.seek(function.dataset.start)
    while remaining > 0:
        raw = file.readlines(min(remaining, TEXT_PIECE))
        size = sum(map(len, raw))
        while size > remaining:  # readlines returns whole lines, beyond the size requested
            size -= len(raw.pop())
        file.seek(function.dataset.end - remaining + size)
        remaining -= size
        lines = [x.rstrip() for x in raw]
        if any(len(x) not in widths for x in lines):
            _name_wrong_line(function, lines, line, widths)
        filled = [x for x in lines if x]
        if not filled:
            continue
        fields = through_pyuff(function_block(function, filled))
        if fields is None:
            _name_wrong_line(function, lines, line, widths)
            raise ValueError(f"{function.place}: the values from line {line} on cannot be read")
        values = np.asarray(fields["data"])
        if done + len(values) > function.points:
            raise ValueError(_miscount(function, "more follow"))
        if sum(widths[len(x)] for x in filled) != len(values) * _numbers_per_point(function):
            raise ValueError(f"{function.place}: a value is incomplete before line {line + len(raw)}")
        yield done, None if function.even else np.asarray(fields["x"]), values
        done += len(values)
        line += len(raw)
    if done != function.points:
        raise ValueError(_miscount(function, f"{done} follow"))


def _miscount(function: Function, found: str) -> str:
    where = f"{function.place}, record 7, line {function.dataset.line + 7}"
    return f"{where}: specifies {function.points} points, but {found}"


def _values(function: Function, numbers: np.ndarray) -> np.ndarray:
    """Values [point] from their real numbers [point, part]."""
    if VALUES[function.data_type] == 1:
        return numbers[:, 0]
    values = np.empty(len(numbers), complex)  # real + 1j * imaginary would turn an infinite part into NaN
    values.real, values.imag = numbers[:, 0], numbers[:, 1]
    return values


def _numbers_per_point(function: Function) -> int:
    return VALUES[function.data_type] + (0 if function.even else 1)


def _width(function: Function) -> int:
    return 8 if function.data_type in DOUBLE else 4


def _widths(function: Function) -> dict[int, int]:
    """Count of numbers in a line of values by its length, for the valid lengths."""
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
