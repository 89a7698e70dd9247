"""FRF sets in files: the format follows the file extension; a file written is read back and verified."""

import dataclasses
import os
import secrets
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from jaxmb.io.files import check_regular, one_line, read_arrays
from jaxmb.io.validation import InputError
from jaxmb.measurement.files.csv_table import read_csv, write_csv
from jaxmb.measurement.files.matlab import read_variables
from jaxmb.measurement.files.named_arrays import (
    ARRAY_NAMES,
    NEEDED,
    arrays_of_set,
    as_arrays,
    set_from_arrays,
    those_of_a_set,
)
from jaxmb.measurement.files.uff import read_uff, write_uff
from jaxmb.measurement.frf_set import SI_UNITS, UNKNOWN, FrfSet, unit_scale


def read_npz(path: Path) -> FrfSet:
    """FRF set from an NPZ file: arrays frequency_hz [f], frf [f, output, input], kind; optional the other fields.

    Raises:
        InputError: the file cannot be read or does not hold a set; the message names the file and the array.
    """
    data = read_arrays(path)
    for name in NEEDED:
        if name not in data:
            raise InputError(f"{path}: array '{name}' is missing; found {one_line(', '.join(sorted(data))) or 'none'}")
    unknown = sorted(set(data) - set(ARRAY_NAMES))
    if unknown:
        raise InputError(f"{path}: unknown array {unknown[0]!r}, expected {', '.join(sorted(ARRAY_NAMES))}")
    try:
        return set_from_arrays(data, str(path))
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None


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
        InputError: the file cannot be read or does not hold a set; the message names the file and the variable.
        OSError: the file cannot be opened.
    """
    try:
        return set_from_arrays(as_arrays(read_variables(path, those_of_a_set)), str(path))
    except ValueError as error:
        raise InputError(f"{path}: {' '.join(str(error).split())}") from None


Reader = Callable[[Path], tuple[FrfSet, tuple[str, ...]]]


def _without_remarks(reader: Callable[[Path], FrfSet]) -> Reader:
    return lambda path: (reader(path), ())


READERS: dict[str, Reader] = {
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
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(
            f"{path}: cannot read FRFs from '{path.suffix or 'a file without ending'}', expected {_list(READERS)}"
        )
    check_regular(path)
    try:
        found, remarks = reader(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    if found.unit not in (SI_UNITS[found.kind], UNKNOWN):
        try:
            unit_scale(found.unit, found.kind)
        except ValueError as error:
            raise InputError(f"{path}: {error}") from None
    return found, remarks


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
    temporary = path.with_name(f".{secrets.token_hex(8)}{path.suffix}")
    try:
        writer(temporary, frf_set)
        mismatch = difference(frf_set, read_frf(temporary))
        if mismatch:
            raise ValueError(mismatch)
        os.replace(temporary, path)
    except ValueError as error:
        reason = str(error).removeprefix(f"{temporary}: ")
        raise ValueError(f"{path}: a {path.suffix} file cannot hold this set: {reason}") from None
    finally:
        temporary.unlink(missing_ok=True)


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
