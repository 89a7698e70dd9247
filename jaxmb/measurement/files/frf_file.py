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

from jaxmb.io.files import LARGEST_ARRAY, read_arrays, reading, replaced
from jaxmb.io.validation import InputError, check_distinct, typed_arguments
from jaxmb.measurement.files.csv_table import read_csv, write_csv
from jaxmb.measurement.files.matlab import Shapes, read_variables
from jaxmb.measurement.files.uff import read_uff, write_uff
from jaxmb.measurement.frf_set import SI_UNITS, UNKNOWN, FrfSet, unit_scale

NEEDED = ("frequency_hz", "frf", "kind")
OPTIONAL = (
    "coherence", "outputs", "inputs", "unit", "averages", "decay_1_s",
    "posture_names", "posture_values", "node_names", "node_positions", "source",
)  # fmt: skip
ARRAY_NAMES = NEEDED + OPTIONAL


def set_from_arrays(arrays: Mapping[str, np.ndarray], source: str) -> FrfSet:
    """FRF set from arrays by name, `frequency_hz` [f], `frf` [f, output, input], `kind`, and the optional ones.

    Args:
        arrays: by name; strings are string arrays.
        source: origin of the arrays, unless they specify it.

    Raises:
        ValueError: an array has a wrong shape or type, or the arrays are inconsistent.
    """
    posture_names = _texts(arrays, "posture_names")
    posture_values = _real(arrays.get("posture_values", np.zeros(0)), "posture_values")
    if posture_values.shape != (len(posture_names),):
        raise ValueError(
            f"posture_values has shape {posture_values.shape}, expected ({len(posture_names)},) as posture_names"
        )
    node_names = _texts(arrays, "node_names")
    positions = arrays.get("node_positions", np.zeros((0, 3)))
    if positions.shape != (len(node_names), 3):
        raise ValueError(f"node_positions has shape {positions.shape}, expected ({len(node_names)}, 3) as node_names")
    for name, names in (("posture_names", posture_names), ("node_names", node_names)):
        check_distinct(names, f"{name} holds '{{}}' more than once")
    return FrfSet(
        frequency_hz=arrays["frequency_hz"],
        frf=arrays["frf"],
        kind=_text(arrays["kind"], "kind"),  # pyright: ignore[reportArgumentType]  (checked by FrfSet)
        outputs=_texts(arrays, "outputs"),
        inputs=_texts(arrays, "inputs"),
        coherence=arrays.get("coherence"),
        averages=_whole(arrays["averages"], "averages") if "averages" in arrays else None,
        decay_1_s=_number(arrays["decay_1_s"], "decay_1_s") if "decay_1_s" in arrays else 0.0,
        unit=_text(arrays["unit"], "unit") if "unit" in arrays else "",
        posture=dict(zip(posture_names, posture_values.tolist(), strict=True)),
        nodes={name: tuple(_real(x, "node_positions").tolist()) for name, x in zip(node_names, positions, strict=True)},  # pyright: ignore[reportArgumentType]  (three of them)
        source=_text(arrays["source"], "source") if "source" in arrays else source,
    )


def arrays_of_set(frf_set: FrfSet) -> dict[str, np.ndarray]:
    """The arrays of a set by name, inverse of `set_from_arrays`."""
    arrays = {
        "frequency_hz": frf_set.frequency_hz,
        "frf": frf_set.frf,
        "kind": np.array(frf_set.kind),
        "outputs": np.array(frf_set.outputs),
        "inputs": np.array(frf_set.inputs),
        "unit": np.array(frf_set.unit),
        "decay_1_s": np.array(float(frf_set.decay_1_s)),
        "source": np.array(frf_set.source),
    }
    if frf_set.coherence is not None:
        arrays["coherence"] = frf_set.coherence
    if frf_set.averages is not None:
        arrays["averages"] = np.array(frf_set.averages)
    if frf_set.posture:
        arrays["posture_names"] = np.array(list(frf_set.posture))
        arrays["posture_values"] = np.array(list(frf_set.posture.values()))
    if frf_set.nodes:
        arrays["node_names"] = np.array(list(frf_set.nodes))
        arrays["node_positions"] = np.array(list(frf_set.nodes.values()))
    return arrays


def _text(array: np.ndarray, name: str) -> str:
    if array.size != 1 or array.dtype.kind not in "US":
        raise ValueError(f"{name} is an array of {array.dtype} with {array.size} entries, expected one text")
    return str(array.reshape(()).astype(str))


def _texts(arrays: Mapping[str, np.ndarray], name: str) -> tuple[str, ...]:
    if name not in arrays:
        return ()
    array = arrays[name]
    if array.dtype.kind not in "US" or not (array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 2)):
        raise ValueError(f"{name} is an array of {array.dtype} of shape {array.shape}, expected a list of texts")
    return tuple(" ".join(map(str, x)) if array.ndim == 2 else str(x) for x in array.astype(str))


def _number(array: np.ndarray, name: str) -> float:
    if array.size != 1:
        raise ValueError(f"{name} has {array.size} entries, expected one number")
    return float(_real(array, name).reshape(()))


def _whole(array: np.ndarray, name: str) -> int:
    value = _number(array, name)
    if not value.is_integer():
        raise ValueError(f"{name} is {value}, expected a whole number")
    return int(value)


def _real(array: np.ndarray, name: str) -> np.ndarray:
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{name} is an array of {array.dtype}, expected real numbers")
    return array.astype(float)


TEXTS = ("kind", "unit", "source")
LISTS = ("outputs", "inputs", "posture_names", "node_names")
VECTORS = ("frequency_hz", "posture_values")
LISTED = 12


def those_of_a_set(shapes: Shapes, fields: Callable[[str], Shapes]) -> tuple[str, list[str]]:
    """The struct that holds the set ("" for the file itself), and the names of its arrays.

    Args:
        shapes: of the variables of the file.
        fields: shapes of the fields of a struct, by its name.

    Raises:
        ValueError: there is no such struct or more than one, or an array is too large.
    """
    complete = set(NEEDED) <= set(shapes)
    structs = {} if complete else {name: fields(name) for name, (_, kind) in shapes.items() if kind == "struct"}
    holders = [name for name, found in structs.items() if set(NEEDED) <= set(found)]
    if len(holders) > 1:
        raise ValueError(f"structs {', '.join(holders)} hold an FRF set each, expected one")
    if not complete and not holders:
        missing = next(name for name in NEEDED if name not in shapes)
        raise ValueError(f"variable '{missing}' is missing, expected {', '.join(NEEDED)}; found {_listed(shapes)}")
    holder = holders[0] if holders else ""
    found = structs[holder] if holders else shapes
    names = [name for name in ARRAY_NAMES if name in found]
    for name in names:
        size = int(np.prod([float(n) for n in found[name][0]]))
        if size > LARGEST_ARRAY:
            raise ValueError(f"variable '{name}' claims {size} entries, expected at most {LARGEST_ARRAY}")
    return holder, names


def as_arrays(variables: Mapping[str, object]) -> dict[str, np.ndarray]:
    """Variables with the shapes of an FRF set.

    Vectors may be rows or columns; a 2-D `frf` is [f, output] of one input, as MATLAB drops trailing axes of size 1.

    Raises:
        ValueError: text is found instead of numbers or the reverse, or the axes of `frf` are in another order.
    """
    arrays = {name: _as_array(name, value) for name, value in variables.items()}
    h, size = arrays["frf"], arrays["frequency_hz"].size
    if h.ndim == 2 and h.shape == (1, size):
        h = h.T
    while h.ndim < 3:
        h = h[..., None]
    if h.shape[0] != size and size in h.shape:
        raise ValueError(
            f"frf has shape {h.shape}, its axis {h.shape.index(size) + 1} as long as frequency_hz,"
            f" expected [f, output, input]: permute it"
        )
    return arrays | {"frf": h}


def _as_array(name: str, value: Any) -> np.ndarray:
    if isinstance(value, dict):
        kind = next((n.strip("()") for n, x in value.items() if x is None), "struct")
        raise ValueError(f"variable '{name}' is a {kind}, expected numbers, text or a column cell of texts")
    is_text = not isinstance(value, np.ndarray)
    if name not in TEXTS + LISTS:
        if is_text:
            raise ValueError(f"variable '{name}' holds text, expected numbers")
        return value.reshape(-1) if name in VECTORS and 1 in value.shape else value
    if not is_text:
        if value.size:
            raise ValueError(f"variable '{name}' holds numbers, expected text")
        value = ""
    if name in TEXTS:
        if not isinstance(value, str):
            raise ValueError(f"variable '{name}' holds {len(value)} texts, expected one")
        return np.array(value, dtype=str)
    texts = ([value] if value else []) if isinstance(value, str) else value
    # A matrix of characters has rows of one length, filled up with blanks
    return np.array([text.rstrip() for text in texts], dtype=str)


def _listed(shapes: Shapes) -> str:
    """Variables with their shapes and classes, for a message."""
    words = [f"{name} ({'x'.join(map(str, shape))} {kind})" for name, (shape, kind) in shapes.items()]
    more = f" and {len(words) - LISTED} more" if len(words) > LISTED else ""
    return ", ".join(words[:LISTED]) + more if words else "none"


def read_npz(path: Path) -> FrfSet:
    """FRF set from an NPZ file: arrays frequency_hz [f], frf [f, output, input], kind; optional the other fields.

    Raises:
        ValueError: the file does not hold a set; the message names the array.
    """
    data = read_arrays(path)
    for name in NEEDED:
        if name not in data:
            raise ValueError(f"array '{name}' is missing; found {', '.join(sorted(data)) or 'none'}")
    unknown = sorted(set(data) - set(ARRAY_NAMES))
    if unknown:
        raise ValueError(f"unknown array {unknown[0]!r}, expected {', '.join(sorted(ARRAY_NAMES))}")
    return set_from_arrays(data, str(path))


def write_npz(path: Path, frf_set: FrfSet) -> None:
    """Write an FRF set as NPZ that `read_npz` reads back unchanged.

    Raises:
        OSError: the file cannot be written.
    """
    with path.open("xb") as file:  # NumPy would add an ending to a path such as SET.NPZ
        np.savez_compressed(file, **arrays_of_set(frf_set))  # pyright: ignore[reportArgumentType]


def read_mat(path: Path) -> FrfSet:
    """FRF set from a MATLAB file: variables frequency_hz, frf, kind and the optional ones, or one struct of them.

    Other variables in the file are ignored.

    Raises:
        ValueError: the file does not hold a set; the message names the variable.
        OSError: the file cannot be opened.
    """
    return set_from_arrays(as_arrays(read_variables(path, those_of_a_set)), str(path))


Reader = Callable[[Path], tuple[FrfSet, tuple[str, ...]]]


def _without_remarks(reader: Callable[[Path], FrfSet]) -> Reader:
    return lambda path: (reader(path), ())


FRF_READERS: dict[str, Reader] = {
    ".npz": _without_remarks(read_npz),
    ".uff": read_uff,
    ".unv": read_uff,
    ".mat": _without_remarks(read_mat),
    ".csv": _without_remarks(read_csv),
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
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
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
    if a.shape != b.shape:
        return f"has shape {a.shape}, found {b.shape}"
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
