"""FRF sets from MATLAB files, v4 to v7 through SciPy and v7.3 (HDF5) through h5py: numbers and texts, nothing else."""

import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxmb.machine.file import InputError
from jaxmb.measurement.frf_set import FrfSet
from jaxmb.measurement.named_arrays import ARRAY_NAMES, LARGEST_SET, NEEDED, set_from_arrays

BROKEN = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, MemoryError, EOFError, OSError,
    AssertionError, struct.error, zlib.error,
)  # fmt: skip
"""What SciPy and h5py raise on a file that is not whole or is none."""
TEXTS = ("kind", "unit", "source")
LISTS = ("outputs", "inputs", "posture_names", "node_names")
VECTORS = ("frequency_hz", "posture_values")
MATLAB_HEADER = 128
COMPRESSED = 15

Shapes = Mapping[str, tuple[tuple[int, ...], str]]
"""Shape and class of variables by name."""


def read_mat(path: Path) -> FrfSet:
    """FRF set from a MATLAB file: variables frequency_hz, frf, kind and the optional ones, or one struct of them.

    What MATLAB cannot tell apart is taken so: a 2-D `frf` is [f, output] of one input, vectors may lie or stand.
    Other variables in the file are left alone.

    Raises:
        InputError: the file cannot be read or does not hold a set; the message names the file and the variable.
        OSError: the file cannot be opened.
    """
    with path.open("rb") as file:
        hdf5 = b"\x89HDF\r\n\x1a\n" in file.read(520)  # MATLAB's own text of 512 bytes stands first
    try:
        if hdf5:
            from jaxmb.measurement.matlab_hdf5 import read_variables
        else:
            read_variables = _read_variables
        variables = read_variables(path)
        return set_from_arrays(_arrays(variables), str(path))
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path}: {_one_line(error)}") from None


def choose(shapes: Shapes, fields: Callable[[str], Shapes]) -> tuple[str, list[str]]:
    """The struct that holds the set ("" where variables of the file do), and the names of its arrays.

    Args:
        shapes: the variables of the file.
        fields: those of a struct, by its name.

    Raises:
        ValueError: there is no such struct or more than one, or an array is too large.
    """
    structs = (
        {} if set(NEEDED) <= set(shapes) else {n: fields(n) for n, (_, kind) in shapes.items() if kind == "struct"}
    )
    holders = [name for name, found in structs.items() if set(NEEDED) <= set(found)]
    if not set(NEEDED) <= set(shapes) and len(holders) != 1:
        missing = [name for name in NEEDED if name not in shapes]
        if holders:
            raise ValueError(f"structs {', '.join(holders)} hold an FRF set each, expected one")
        raise ValueError(f"variable '{missing[0]}' is missing, expected {', '.join(NEEDED)}; found {listed(shapes)}")
    holder = holders[0] if holders else ""
    found = structs[holder] if holders else shapes
    names = [name for name in ARRAY_NAMES if name in found]
    for name in names:
        size = int(np.prod([float(n) for n in found[name][0]]))
        if size > LARGEST_SET:
            raise ValueError(f"variable '{name}' claims {size} entries, expected at most {LARGEST_SET}")
    return holder, names


def listed(shapes: Shapes) -> str:
    """Variables with their shapes and classes, for a message."""
    words = [f"{name} ({'x'.join(map(str, shape))} {kind})" for name, (shape, kind) in list(shapes.items())[:12]]
    return ", ".join(words) + (f" and {len(shapes) - 12} more" if len(shapes) > 12 else "") if words else "none"


def _read_variables(path: Path) -> dict[str, Any]:
    """Variables of a file of v4 to v7 by name: arrays, texts and lists of texts."""
    import scipy.io

    _check_size(path)
    try:
        found = scipy.io.whosmat(path)
    except BROKEN as error:
        raise InputError(f"{path}: not a whole MATLAB file: {_one_line(error)}") from None
    shapes = {str(name): (tuple(shape), str(kind)) for name, shape, kind in found}
    if len(shapes) != len(found):
        raise InputError(f"{path}: holds a variable twice; found {', '.join(str(x[0]) for x in found[:20])}")

    def load(names: list[str]) -> dict[str, Any]:
        try:
            return scipy.io.loadmat(path, variable_names=names, chars_as_strings=True)
        except BROKEN as error:
            raise InputError(f"{path}: variable '{names[0]}' cannot be read: {_one_line(error)}") from None

    loaded: dict[str, Any] = {}

    def fields(name: str) -> Shapes:
        value = load([name]).get(name)
        if not isinstance(value, np.ndarray) or value.dtype.names is None or value.size != 1:
            return {}
        loaded[name] = {field: value.reshape(-1)[0][field] for field in value.dtype.names}
        return {field: (np.shape(x), _class(x)) for field, x in loaded[name].items()}

    try:
        holder, names = choose(shapes, fields)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    values = loaded[holder] if holder else {name: load([name]).get(name) for name in names}
    return {name: _plain(values[name], name) for name in names}


def _plain(value: Any, name: str) -> Any:
    """A number array as it is, a text as str, a cell or matrix of texts as a list of str."""
    array = np.asarray(value)
    if array.dtype.kind == "U":
        rows = [str(x) for x in array.reshape(-1)]
        return "".join(rows) if name in TEXTS and len(rows) <= 1 else rows
    if array.dtype == object and array.dtype.names is None:
        cells = [np.asarray(x) for x in array.reshape(-1)]
        if array.size == max(array.shape, default=1) and all(x.dtype.kind == "U" and x.size <= 1 for x in cells):
            return ["".join(map(str, x.reshape(-1))) for x in cells]
    if array.dtype.kind in "biufc":
        return array
    raise ValueError(f"variable '{name}' is of class {_class(value)}, expected numbers, text or a cell of texts")


def _class(value: Any) -> str:
    if type(value).__name__ in ("MatlabFunction", "MatlabObject", "MatlabOpaque"):
        return "object (a string array? save cellstr of it)"
    dtype = np.asarray(value).dtype
    return "struct" if dtype.names else {"U": "char", "O": "cell"}.get(dtype.kind, str(dtype))


def _arrays(variables: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Variables with the shapes that they have in an FRF set."""
    arrays: dict[str, np.ndarray] = {}
    for name, value in variables.items():
        if name in TEXTS or name in LISTS:
            if isinstance(value, np.ndarray) and value.size == 0:
                value = "" if name in TEXTS else []
            if isinstance(value, np.ndarray):
                raise ValueError(f"variable '{name}' holds numbers, expected text")
            if name in TEXTS and not isinstance(value, str):
                raise ValueError(f"variable '{name}' holds {len(value)} texts, expected one")
            if name in LISTS:
                # A matrix of characters has rows of one length, filled up with blanks
                value = [x.rstrip() for x in ([value] if isinstance(value, str) else value)]
            arrays[name] = np.array(value, dtype=str)
        elif not isinstance(value, np.ndarray):
            raise ValueError(f"variable '{name}' holds text, expected numbers")
        else:
            arrays[name] = value.reshape(-1) if name in VECTORS and 1 in value.shape else value
    h, size = arrays["frf"], arrays["frequency_hz"].size
    while h.ndim < 3:  # MATLAB has no axes of one entry at the end
        h = h[..., None]
    if h.shape[0] != size and size in h.shape:
        axis = h.shape.index(size) + 1
        raise ValueError(
            f"frf has shape {h.shape} and its axis {axis} is as long as frequency_hz, expected [f, output, input]:"
            f" permute it"
        )
    arrays["frf"] = h
    return arrays


def _check_size(path: Path) -> None:
    """Raise InputError where a compressed variable of a v5 file would fill the memory."""
    with path.open("rb") as file:
        header = file.read(MATLAB_HEADER)
        if len(header) < MATLAB_HEADER or header[126:128] not in (b"IM", b"MI"):
            return  # v4 is not compressed
        order = "<" if header[126:128] == b"IM" else ">"
        while len(tag := file.read(8)) == 8:
            kind, size = struct.unpack(f"{order}II", tag)
            end = file.tell() + size
            if kind == COMPRESSED:
                unpacked, decompressor, left = 0, zlib.decompressobj(), size
                while left > 0 and (piece := file.read(min(left, 1 << 14))):
                    left -= len(piece)
                    try:
                        while piece:
                            unpacked += len(decompressor.decompress(piece, 1 << 20))
                            piece = decompressor.unconsumed_tail
                    except zlib.error as error:
                        raise InputError(f"{path}: not a whole MATLAB file: {error}") from None
                    if unpacked > 16 * LARGEST_SET:
                        raise InputError(f"{path}: unpacks to more than {16 * LARGEST_SET} bytes")
            file.seek(end)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
