"""One function of a universal file (dataset 58): header and values, read by the columns of their format."""

import contextlib
import dataclasses
import io
import itertools
import json
import math
import re
from array import array
from collections.abc import Mapping

import numpy as np

from jaxmb.io.validation import Table
from jaxmb.measurement.files.uff_datasets import Dataset
from jaxmb.measurement.frf_set import UNKNOWN, unit_over, unit_scale
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
_AXIS = (
    (10, int, "data type"), *(((5, int, "exponent of a unit"),) * 3), (21, str, "label"), (21, str, "unit")
)  # fmt: skip
COLUMNS: Mapping[int, tuple[tuple[int, type, str], ...]] = {
    0: (
        (6, int, "dataset"), (1, str, "mark of binary data"), (6, int, "byte order"),
        (6, int, "floating point format"), (12, int, "number of header lines"), (12, int, "number of data bytes"),
    ),
    6: (
        (5, int, "function type"), (10, int, "function number"), (5, int, "version"), (10, int, "load case"),
        (11, str, "response entity"), (10, int, "response node"), (4, int, "response direction"),
        (11, str, "reference entity"), (10, int, "reference node"), (4, int, "reference direction"),
    ),
    7: (
        (10, int, "ordinate data type"), (10, int, "number of points"), (10, int, "abscissa spacing"),
        (13, float, "abscissa minimum"), (13, float, "abscissa increment"), (13, float, "z-axis value"),
    ),
    8: _AXIS, 9: _AXIS, 10: _AXIS, 11: _AXIS,
}  # fmt: skip
"""Width, type and name of the fields of each record; 0 is the line with the number of the dataset."""
CONTENTS = {int: "a whole number", float: "a number"}
DOF_PARTS = ("entity", "node", "direction")
DIRECTIONS = range(-6, 7)
LIMITS = (
    (6, "response direction", DIRECTIONS, "-6 to 6"),
    (6, "reference direction", DIRECTIONS, "-6 to 6"),
    (7, "ordinate data type", VALUES, "2, 4, 5 or 6"),
    (7, "number of points", range(1, 10**10), "at least 1"),
    (7, "abscissa spacing", (0, 1), "0 or 1"),
)
"""Record, name, valid values of a field and their description."""
OWN_START, OWN_END = "jaxmb ", "|"
"""Delimiters of the pieces of one JSON text in ID lines 2 to 5, for fields that dataset 58 lacks."""
OWN_FIELDS = {"averages", "decay_1_s", "posture", "source"}


@dataclasses.dataclass(frozen=True)
class Function:
    """Header of one dataset 58."""

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
    def location(self) -> str:
        """Location in the file, for messages."""
        return self.dataset.location

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


def read_function(dataset: Dataset) -> Function:
    """Header of a dataset 58.

    Raises:
        ValueError: a field of the header is invalid; the message names record and line.
    """
    fields = {record: _fields(dataset, record) for record in range(6, 12)}
    for record, name, valid, expected in LIMITS:
        if fields[record][name] not in valid:
            raise ValueError(
                f"{dataset.location}, record {record}, line {dataset.line + record}: {name} is {fields[record][name]},"
                f" expected {expected}"
            )
    dofs, values = fields[6], fields[7]
    abscissa, numerator, denominator = ((fields[n]["data type"], fields[n]["unit"]) for n in (8, 9, 10))
    return Function(
        dataset=dataset,
        type=dofs["function type"],
        response=_dof(*(dofs[f"response {part}"] for part in DOF_PARTS)),
        reference=_dof(*(dofs[f"reference {part}"] for part in DOF_PARTS)),
        response_rotates=abs(dofs["response direction"]) > 3,
        reference_rotates=abs(dofs["reference direction"]) > 3,
        data_type=values["ordinate data type"],
        points=values["number of points"],
        even=values["abscissa spacing"] == 1,
        minimum=values["abscissa minimum"],
        increment=values["abscissa increment"],
        abscissa=abscissa,
        numerator=numerator,
        denominator=denominator,
        ids=tuple(_label(line) for line in dataset.header[:5]),
    )


def own_record(function: Function) -> Table:
    """Posture, averages, decay and source that jaxmb wrote into the ID lines; empty where there are none.

    Raises:
        ValueError: the ID lines begin as those of jaxmb, but their content is invalid.
    """
    if not function.own:
        return {}
    location = f"{function.location}, records 2 to 5"
    try:
        record = json.loads(function.own)
    except ValueError as error:
        raise ValueError(f"{location}: the ID lines of jaxmb are damaged: {error}") from None
    if not isinstance(record, dict) or not record.keys() <= OWN_FIELDS:
        raise ValueError(f"{location}: the ID lines of jaxmb are damaged, expected {', '.join(sorted(OWN_FIELDS))}")
    return record


def _fields(dataset: Dataset, record: int) -> Table:
    """Fields of a record by name; a blank number is 0, as in Fortran."""
    line, start, fields = (dataset.first, *dataset.header)[record], 0, {}
    for width, contents, name in COLUMNS[record]:
        field = line[start : start + width].strip()
        start += width
        try:
            fields[name] = _label(field) if contents is str else contents(fortran(field) or "0")
        except ValueError:
            raise ValueError(
                f"{dataset.location}, record {record}, line {dataset.line + record}:"
                f" {name} is '{field}' in columns {start - width + 1} to {start}, expected {CONTENTS[contents]}"
            ) from None
    return fields


def fortran(number: str) -> str:
    """A Fortran number for Python: double precision has the exponent letter D; ValueError where it has a _."""
    if "_" in number or not number.isascii():  # Python accepts 1_000 as a number
        raise ValueError
    return number.replace("D", "E").replace("d", "e")


def _dof(entity: str, node: int, direction: int) -> str:
    name = entity if entity and node == 0 else f"{entity}:{node}" if entity else str(node)
    return f"{name} {'-' if direction < 0 else ''}{DIRECTION_NAMES[abs(direction)]}" if direction else name


def node_and_direction(name: str) -> tuple[str, int]:
    """Node and direction of a degree of freedom such as "12 -x", 1 to 6 and negative where its sign is reversed; the
    whole name and 0 where it has no direction."""
    node, _, axis = name.rpartition(" ")
    direction = axis.removeprefix("-")
    if not node or direction not in DIRECTION_NAMES[1:]:
        return name, 0
    return node, DIRECTION_NAMES.index(direction) * (-1 if axis.startswith("-") else 1)


def _label(label: str) -> str:
    return "" if label.strip().upper() == "NONE" else label.strip()


FRF_KINDS: dict[int, FrfKind] = {8: "receptance", 11: "mobility", 12: "accelerance"}
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
    10: ("mm", "N", 1e3, 1.0),
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


def read_units(text: str, location: str) -> Units:
    """Units of the records of a dataset 164.

    Raises:
        ValueError: the code is invalid, or the factors are not those of the code.
    """
    first, _, factors = text.partition("\n")
    try:
        code = int(first[:10].strip() or "0")
        length, force, *temperatures = map(float, fortran(factors).split())
    except ValueError:
        temperatures = []
    if len(temperatures) < 2:
        raise ValueError(f"{location}: cannot be read, expected a units code and four factors")
    if not (0.0 < length < math.inf and 0.0 < force < math.inf):
        raise ValueError(f"{location}: factors of length and force are {length} and {force}, expected positive numbers")
    if code not in (0, *SYSTEMS, 9):
        raise ValueError(f"{location}: units code is {code}, expected 1 to 10")
    for number, (length_unit, force_unit, per_metre, per_newton) in SYSTEMS.items():
        same = math.isclose(length, per_metre, rel_tol=SAME) and math.isclose(force, per_newton, rel_tol=SAME)
        if same and code in (0, number, 9):
            return Units(length_unit, force_unit, length)
    if code in SYSTEMS:
        raise ValueError(
            f"{location}: code {code} means {' and '.join(SYSTEMS[code][:2])}, but the factors {length:g} and {force:g}"
            " are not theirs"
        )
    return Units("", "", length)  # user-defined system: lengths are known, responses need labels


def kind_and_unit(function: Function, system: Units | None) -> tuple[FrfKind, str]:
    """Kind of a frequency response and its unit; "unknown" where the file does not specify it.

    Labels of the axes take precedence over the units of the file, as in the format's specification.

    Raises:
        ValueError: it is not the response of a displacement, velocity or acceleration to a force, or the unit is not
            that of the kind.
    """
    (type_above, above), (type_below, below) = function.numerator, function.denominator
    where = f"{function.location}, record 9, line {function.dataset.line + 9}"
    if type_below not in (*FORCES, *NOT_SAID):
        raise ValueError(
            f"{function.location}, record 10, line {function.dataset.line + 10}: denominator has data type"
            f" {type_below}, expected excitation force (13)"
        )
    above, below = _spelt(above, function.response_rotates), _spelt(below, False)
    if function.reference_rotates and re.sub(r"[ *.()]", "", below) == "Nm":
        below = "N"  # moment in SI: with rad counted as m, rotational responses have the units of translational ones
    if type_above in FRF_KINDS:
        return FRF_KINDS[type_above], _unit(FRF_KINDS[type_above], above, below, system, function, where)
    if type_above not in NOT_SAID:
        raise ValueError(f"{where}: ordinate has data type {type_above}, expected displacement (8), velocity (11)"
                         f" or acceleration (12)")  # fmt: skip
    for kind in FRF_KINDS.values() if above else ():
        with contextlib.suppress(ValueError):
            return kind, _unit(kind, above, below, system, function, where)
    raise ValueError(f"{where}: ordinate has data type {type_above} (not specified) and unit '{above}',"
                     f" expected displacement (8), velocity (11) or acceleration (12)")  # fmt: skip


def motion_unit(function: Function) -> str:
    """Unit of the motion alone, in pint's spelling; "" where not specified."""
    return _spelt(function.numerator[1], function.response_rotates)


def _unit(kind: FrfKind, above: str, below: str, system: Units | None, function: Function, where: str) -> str:
    seconds = {"receptance": "", "mobility": "/s", "accelerance": "/s^2"}[kind]
    if system is not None and system.length:
        # rad counts as m, and N m as N
        length = "m" if function.response_rotates else system.length
        lever = f" {system.length}/m" if function.reference_rotates and system.length != "m" else ""
        above, below = above or f"{length}{seconds}", below or f"{system.force}{lever}"
    if not above:
        return UNKNOWN
    # some programs write the unit of the whole ratio as that of the response; the unit of the force may be missing
    ratio = unit_over(above, below or "N")
    candidates = {ratio: ratio, above: above} if below else {above: above, ratio: UNKNOWN}
    reasons = []
    for unit, found in candidates.items():
        try:
            unit_scale(unit, kind)
            return found
        except ValueError as error:
            reasons.append(str(error))
    raise ValueError(f"{where}: {reasons[0]}")


def _spelt(label: str, rotates: bool) -> str:
    """A unit's label in pint's spelling: m/s2 as m/s^2, lb as lbf, and rad as m for a rotation."""
    label = label.strip("[] ")
    label = label.replace("²", "^2").replace("³", "^3").replace("·", "*").replace("**", "^")
    label = re.sub(r"(?<=[A-Za-z])(-?\d)", r"^\1", label)
    label = re.sub(r"[A-Za-z']+", lambda word: _SPELT.get(word[0], word[0]), label)
    return re.sub(r"\brad\b", "m", label) if rotates else label


BYTE_ORDERS = {1: "<", 2: ">"}
"""NumPy byte order by the field of dataset 58b: little endian (DEC, Intel), big endian (IBM, HP, Sun)."""
IEEE_754 = 2


def binary_size(dataset: Dataset) -> int:
    """Number of bytes of data of a dataset 58b with this header.

    Raises:
        ValueError: the first line specifies another number, or a format other than IEEE.
    """
    function = read_function(dataset)
    _, _, order, form, lines, declared = _fields(dataset, 0).values()
    if order not in BYTE_ORDERS or form != IEEE_754 or lines != 11:
        raise ValueError(
            f"{function.location}: byte order {order}, format {form}, {lines} header lines,"
            f" expected 1 or 2, 2 (IEEE 754), 11"
        )
    size = function.points * _numbers_per_point(function) * _width(function)
    # pyuff writes the size of the real parts alone
    if declared not in (size, function.points * _width(function)):
        raise ValueError(
            f"{function.location}, record 7, line {function.dataset.line + 7}: {function.points} points have {size}"
            f" bytes, but line {function.dataset.line} specifies {declared}"
        )
    return size


def values_of(function: Function) -> tuple[np.ndarray, np.ndarray]:
    """Abscissa and values of a function.

    Raises:
        ValueError: a value is no number, or their count differs from the header; the message names the line.
    """
    if function.dataset.binary:
        order = BYTE_ORDERS[int(function.dataset.first[7:13])]
        numbers = np.frombuffer(function.dataset.data, f"{order}f{_width(function)}").astype(float)
    else:
        numbers = _text_numbers(function)
    parts = numbers.reshape(-1, _numbers_per_point(function))
    abscissa = function.minimum + np.arange(len(parts)) * function.increment if function.even else parts[:, 0]
    if VALUES[function.data_type] == 1:
        return abscissa, parts[:, -1]
    # real + 1j * imaginary would turn an infinite part into NaN
    return abscissa, np.ascontiguousarray(parts[:, -2:]).view(complex)[:, 0]


def _text_numbers(function: Function) -> np.ndarray:
    columns, counts = _columns(function)
    numbers = array("d")
    first = function.dataset.line + 1 + len(function.dataset.header)
    for number, line in enumerate(io.BytesIO(function.dataset.data), start=first):
        text = line.rstrip().decode("ascii", "replace")
        if len(text) not in counts:
            raise ValueError(
                f"{function.location}, line {number}: the values end in column {len(text)},"
                f" expected one of {', '.join(map(str, list(counts)[1:]))} for ordinate data type {function.data_type}"
            )
        for column in columns[: counts[len(text)]]:
            try:
                numbers.append(float(fortran(text[column])))
            except ValueError:
                raise ValueError(
                    f"{function.location}, line {number}: found '{text[column].strip()}' in columns {column.start + 1}"
                    f" to {column.stop}, expected a number"
                ) from None
    points, incomplete = divmod(len(numbers), _numbers_per_point(function))
    if incomplete or points != function.points:
        raise ValueError(
            f"{function.location}, record 7, line {function.dataset.line + 7}: specifies {function.points} points, but"
            f" {points} follow{' and a part of one' if incomplete else ''}"
        )
    return np.frombuffer(numbers)


def _numbers_per_point(function: Function) -> int:
    return VALUES[function.data_type] + (0 if function.even else 1)


def _width(function: Function) -> int:
    return 8 if function.data_type in DOUBLE else 4


def _columns(function: Function) -> tuple[list[slice], dict[int, int]]:
    """Columns of the numbers in a full line of values, and the count of numbers by valid length of a line."""
    if function.data_type not in DOUBLE:
        widths, step = [13] * 6, 1
    elif function.even:
        widths, step = [20] * 4, 1
    else:
        widths, step = ([13, 20] * 2, 2) if function.data_type == 4 else ([13, 20, 20], 3)
    ends = [0, *itertools.accumulate(widths)]
    return [slice(a, b) for a, b in itertools.pairwise(ends)], {ends[n]: n for n in range(0, len(ends), step)}
