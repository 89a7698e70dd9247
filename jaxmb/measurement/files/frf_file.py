"""FRF sets in files: the format follows the file extension; a file written is read back and verified.

NPZ and MATLAB files hold a set as named arrays.
"""

import dataclasses
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxmb.io.files import read_arrays, reading, replaced
from jaxmb.io.validation import InputError, Table, check_distinct, check_known, listed, shown, typed_arguments
from jaxmb.measurement.files.csv_table import read_csv, write_csv
from jaxmb.measurement.files.matlab import Shapes, class_of, read_variables
from jaxmb.measurement.files.uff import read_uff, write_uff
from jaxmb.measurement.frf_set import SI_UNITS, UNKNOWN, FrfSet, unit_scale

NEEDED = ("frequency_hz", "frf", "kind")
OPTIONAL = (
    "coherence", "outputs", "inputs", "unit", "averages", "decay_1_s",
    "posture_names", "posture_values", "node_names", "node_positions", "trace_lines", "source",
)  # fmt: skip
ARRAY_NAMES = NEEDED + OPTIONAL
ARRAYS = ("frequency_hz", "frf", "coherence")
SINGLE = ("kind", "unit", "averages", "decay_1_s", "source")
"""Fields of one entry."""


def set_of_fields(fields: Table, source: str) -> FrfSet:
    """FRF set from the fields of a file, `NEEDED` and `OPTIONAL`.

    Args:
        fields: by name; `ARRAYS` as arrays, others as texts, numbers or lists of them.
        source: origin of the fields, unless they specify it.

    Raises:
        ValueError: a field has a wrong shape or type, or the fields are inconsistent.
    """
    given = {"source": source, **fields}
    for field, keys, values in (
        ("posture", "posture_names", "posture_values"), ("nodes", "node_names", "node_positions"),
    ):  # fmt: skip
        names, entries = given.pop(keys, []), given.pop(values, [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"{keys} is {shown(names)}, expected a list of texts")
        if np.shape(entries)[:1] != (len(names),):
            raise ValueError(f"{values} has shape {np.shape(entries)}, expected {len(names)} entries as {keys}")
        check_distinct(names, f"{keys} holds '{{}}' more than once")
        given[field] = dict(zip(names, entries, strict=True))
    return FrfSet(**given)


def _field(name: str, array: np.ndarray) -> Any:
    """A stored array as an argument of `set_of_fields`."""
    if name in ARRAYS:
        return array
    array = array.astype(str) if array.dtype.kind == "S" else array
    return array.item() if name in SINGLE and array.size == 1 else array.tolist()


LISTS = ("outputs", "inputs", "posture_names", "node_names", "trace_lines")
VECTORS = ("frequency_hz", "posture_values")
LISTED = 12


def those_of_a_set(shapes: Shapes, fields: Callable[[str], Shapes]) -> tuple[str, list[str]]:
    """The struct that holds the set ("" for the file itself), and the names of its arrays.

    Args:
        shapes: of the variables of the file.
        fields: shapes of the fields of a struct, by its name.

    Raises:
        ValueError: there is no such struct, or more than one.
    """
    complete = set(NEEDED) <= set(shapes)
    structs = {} if complete else {name: fields(name) for name, (_, kind) in shapes.items() if kind == "struct"}
    holders = [name for name, found in structs.items() if set(NEEDED) <= set(found)]
    if len(holders) > 1:
        raise ValueError(f"structs {', '.join(holders)} hold an FRF set each, expected one")
    if not complete and not holders:
        missing = next(name for name in NEEDED if name not in shapes)
        words = [f"{name} ({'x'.join(map(str, shape))} {kind})" for name, (shape, kind) in shapes.items()]
        raise ValueError(
            f"variable '{missing}' is missing, expected {', '.join(NEEDED)}; found {listed(words, LISTED) or 'none'}"
        )
    holder = holders[0] if holders else ""
    found = structs[holder] if holders else shapes
    return holder, [name for name in ARRAY_NAMES if name in found]


def fields_of_matlab(variables: Mapping[str, object]) -> Table:
    """Variables as fields of an FRF set.

    Vectors may be rows or columns, also `frf` and `coherence` of one response; a 2-D `frf` is [f, output] of one input,
    as MATLAB drops trailing axes of size 1.

    Raises:
        ValueError: a variable is no plain data, or the axes of `frf` are in another order.
    """
    fields = {name: _of_matlab(name, value) for name, value in variables.items()}
    h, size = np.asarray(fields["frf"]), np.size(fields["frequency_hz"])
    if h.shape == (1, size):
        h = h.T
    if h.shape == (size, 1) and np.shape(fields.get("coherence", 0.0)) == (1, size):
        fields["coherence"] = np.transpose(fields["coherence"])
    while h.ndim < 3:
        h = h[..., None]
    if h.shape[0] != size and size in h.shape:
        raise ValueError(
            f"frf has shape {h.shape}, its axis {h.shape.index(size) + 1} as long as frequency_hz,"
            f" expected [f, output, input]: permute it"
        )
    return fields | {"frf": h}


def _of_matlab(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        raise ValueError(f"variable '{name}' is a {class_of(value)}, expected numbers, text or a column cell of texts")
    if isinstance(value, np.ndarray) and (value.size or name not in ("unit", "source", *LISTS)):
        return _field(name, value.reshape(-1) if name in VECTORS and 1 in value.shape else value)
    if not len(value):
        return [] if name in LISTS else ""
    # A matrix of characters has rows of one length, filled up with blanks
    texts = [text.rstrip() for text in ([value] if isinstance(value, str) else value)]
    return texts if name in LISTS or len(texts) > 1 else texts[0]


def read_npz(path: Path) -> FrfSet:
    """FRF set from an NPZ file: arrays frequency_hz [f], frf [f, output, input], kind; optional the other fields.

    Raises:
        ValueError: the file does not hold a set; the message names the array.
    """
    data = read_arrays(path)
    for name in NEEDED:
        if name not in data:
            raise ValueError(f"array '{name}' is missing; found {', '.join(sorted(data)) or 'none'}")
    check_known("array", data, sorted(ARRAY_NAMES))
    return set_of_fields({name: _field(name, array) for name, array in data.items()}, str(path))


def write_npz(path: Path, frf_set: FrfSet) -> None:
    """Write an FRF set as NPZ that `read_npz` reads back unchanged.

    Raises:
        OSError: the file cannot be written.
    """
    fields = {
        "frequency_hz": frf_set.frequency_hz,
        "frf": frf_set.frf,
        "kind": frf_set.kind,
        "outputs": frf_set.outputs,
        "inputs": frf_set.inputs,
        "unit": frf_set.unit,
        "decay_1_s": float(frf_set.decay_1_s),
        "source": frf_set.source,
        "coherence": frf_set.coherence,
        "averages": frf_set.averages,
        "posture_names": list(frf_set.posture) or None,
        "posture_values": list(frf_set.posture.values()) or None,
        "node_names": list(frf_set.nodes) or None,
        "node_positions": list(frf_set.nodes.values()) or None,
        "trace_lines": list(map("; ".join, frf_set.trace_lines)) or None,
    }
    arrays = {name: np.asarray(value) for name, value in fields.items() if value is not None}
    with path.open("xb") as file:  # NumPy would add an ending to a path such as SET.NPZ
        np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]


def read_mat(path: Path) -> FrfSet:
    """FRF set from a MATLAB file: variables frequency_hz, frf, kind and the optional ones, or one struct of them.

    Other variables in the file are ignored.

    Raises:
        ValueError: the file does not hold a set; the message names the variable.
        OSError: the file cannot be opened.
    """
    return set_of_fields(fields_of_matlab(read_variables(path, those_of_a_set)), str(path))


Reader = Callable[[Path], tuple[FrfSet, tuple[str, ...]]]


FRF_READERS: dict[str, Reader] = {
    ".npz": lambda path: (read_npz(path), ()),
    ".uff": read_uff,
    ".unv": read_uff,
    ".mat": lambda path: (read_mat(path), ()),
    ".csv": lambda path: (read_csv(path), ()),
}
WRITERS: dict[str, Callable[[Path, FrfSet], None]] = {
    ".npz": write_npz, ".uff": write_uff, ".unv": write_uff, ".csv": write_csv,
}  # fmt: skip


def read_frf(path: str | os.PathLike[str]) -> FrfSet:
    """FRF set from a file: NPZ, universal file (UFF, UNV), MATLAB (v5 to v7.3) or CSV, by its extension.

    docs/frf-files.md describes the formats. Other content of a file is skipped with a warning.

    Raises:
        InputError: the file cannot be read or does not hold a set; the message names the file and the location.
    """
    frf_set, remarks = read_frf_and_remarks(path)
    for remark in remarks:
        warnings.warn(remark, stacklevel=2)
    return frf_set


def read_frf_and_remarks(path: str | os.PathLike[str]) -> tuple[FrfSet, tuple[str, ...]]:
    """FRF set from a file, see `read_frf`, and remarks on skipped content."""
    path = Path(path)
    reader = FRF_READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(
            f"{path}: cannot read FRFs from '{path.suffix or 'a file without ending'}', expected {_list(FRF_READERS)}"
        )
    with reading(path):
        found, remarks = reader(path)
        if found.unit not in (SI_UNITS[found.kind], UNKNOWN):
            unit_scale(found.unit, found.kind)
    return found, remarks


@typed_arguments
def write_frf(path: str | os.PathLike[str], frf_set: FrfSet) -> None:
    """Write an FRF set as NPZ, universal file (58b) or CSV, by the extension; `read_frf` reads it back unchanged.

    A temporary file is written, read back and compared before it replaces an existing one; an error leaves the existing
    file unchanged.

    Raises:
        ValueError: the extension is none of these, or the format cannot represent the set; the message names the field.
        OSError: the file cannot be written.
    """
    path = Path(path)
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise ValueError(f"{path}: expected a file ending in {_list(WRITERS)}")
    with replaced(path) as temporary:
        try:
            writer(temporary, frf_set)
            mismatch = difference(frf_set, read_frf(temporary))
            if mismatch:
                raise ValueError(mismatch)
        except ValueError as error:
            reason = str(error).removeprefix(f"{temporary}: ")
            raise ValueError(f"{path}: a {path.suffix} file cannot hold this set: {reason}") from None


def difference(expected: FrfSet, found: FrfSet) -> str:
    """Description of the first difference of two sets; empty where they are equal. NaN equals NaN, and -0 equals 0."""
    for field in dataclasses.fields(FrfSet):
        a, b = getattr(expected, field.name), getattr(found, field.name)
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.shape == b.shape:
            text = _array_difference(a, b)
        elif field.name in ("outputs", "inputs"):
            differing = [(i, x, y) for i, (x, y) in enumerate(zip(a, b, strict=True), start=1) if x != y]
            text = "number {} is '{}', found '{}'".format(*differing[0]) if differing else ""
        elif isinstance(a, np.ndarray) or isinstance(b, np.ndarray) or a != b:
            text = f"is {_shown(a)}, found {_shown(b)}"
        else:
            text = ""
        if text:
            return f"{field.name} {text}"
    return ""


def _array_difference(a: np.ndarray, b: np.ndarray) -> str:
    for i, (x, y) in enumerate(zip(a, b, strict=True)):  # line by line: a set may fill half of the memory
        # real and imaginary parts are compared separately: one of them may be NaN
        x, y = np.ascontiguousarray(x).reshape(-1).view(float), np.ascontiguousarray(y).reshape(-1).view(float)
        if not np.array_equal(x, y, equal_nan=True):
            k = int(np.argmin((x == y) | (np.isnan(x) & np.isnan(y))))
            return f"of line {i + 1} is {float(x[k])!r}, found {float(y[k])!r}"
    return ""


def _shown(value: object) -> str:
    text = f"an array {value.shape}" if isinstance(value, np.ndarray) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _list(endings: dict[str, Callable]) -> str:
    *first, last = endings
    return f"{', '.join(first)} or {last}"
