"""One function of a universal file (dataset 58): what its header says, checked column by column, then read by pyuff.

pyuff takes what it cannot read in a header for zero, and counts no points; so the columns are checked before and the
points after.
"""

import dataclasses
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxmb.measurement.files.uff_datasets import MARK, Dataset, at_function

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
