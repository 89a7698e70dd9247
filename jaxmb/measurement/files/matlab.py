"""Variables of MATLAB files: numbers, strings, cells of strings and structs of these.

Version 7.3 is HDF5: axes reversed, complex numbers as pairs, cells as references. Versions 5 to 7 are a sequence of
elements, each a type, a size and that many bytes; a matrix is an element that holds elements: flags, dimensions, name,
then its contents. SciPy is not used for them because its reader crashes the process on a file with one wrong byte in a
tag.

Source: MathWorks, "MAT-File Format", level 5.
"""

import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from jaxmb.io.files import LARGEST_ARRAY

Shapes = Mapping[str, tuple[tuple[int, ...], str]]
"""Shape and class of variables by name."""
Choice = Callable[[Shapes, Callable[[str], Shapes]], tuple[str, list[str]]]
"""Function of the shapes of all variables and of the fields of a struct; returns the struct that holds the selected
variables ("" for the file itself) and their names."""

HDF5_MARK = b"\x89HDF\r\n\x1a\n"
MATLAB_TEXT = 512
"""Bytes of MATLAB's header before the HDF5 content."""
BROKEN_HDF5 = (TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, MemoryError, EOFError, OSError)
"""Exceptions that h5py raises, besides ValueError, on a damaged file."""
MOST_VARIABLES = 10_000
MOST_TEXTS = 100_000


def read_variables(path: Path, choice: Choice) -> dict[str, object]:
    """Selected variables of a file by name: arrays, strings and lists of strings.

    Args:
        path: the file.
        choice: selects the variables by the shapes and classes of all, before any is read.

    Raises:
        ValueError: the file is damaged or no MATLAB file, or a selected variable is not plain data.
        OSError: the file cannot be opened.
    """
    with path.open("rb") as file:
        start = file.read(MATLAB_TEXT + len(HDF5_MARK))
    read = _read_hdf5 if start.startswith(HDF5_MARK) or start.endswith(HDF5_MARK) else _read_v5
    return read(path, choice)


def _read_hdf5(path: Path, choice: Choice) -> dict[str, object]:
    import h5py

    try:
        with h5py.File(path, "r") as file:
            holder, names = choice(_hdf5_shapes(file), lambda name: _hdf5_shapes(file[name]))
            group: Any = file[holder] if holder else file
            return {name: _hdf5_value(file, group[name], name) for name in names}
    except BROKEN_HDF5 as error:
        raise ValueError(f"cannot be read as HDF5: {error or type(error).__name__}") from None


def _hdf5_shapes(group: Any) -> Shapes:
    """Shapes, axes in MATLAB's order, and classes of the variables of a group."""
    import h5py

    if len(group) > MOST_VARIABLES:
        raise ValueError(f"holds {len(group)} variables, expected at most {MOST_VARIABLES}")
    shapes: dict[str, tuple[tuple[int, ...], str]] = {}
    for name in group:
        # names with # are contents of cells; a link may lead out of the file
        if name.startswith("#") or not isinstance(group.get(name, getlink=True), h5py.HardLink):
            continue
        item = group[name]
        if isinstance(item, h5py.Group):
            shapes[name] = ((1, 1), "struct")
        elif isinstance(item, h5py.Dataset):
            shapes[name] = ((item.shape or ())[::-1], _hdf5_class(item))
    return shapes


def _hdf5_class(item: Any) -> str:
    name = item.attrs.get("MATLAB_class", b"")
    return name.decode("ascii", "replace") if isinstance(name, bytes) and name else str(item.dtype)


def _hdf5_value(file: Any, item: Any, name: str) -> Any:
    if not hasattr(item, "dtype"):
        raise ValueError(f"variable '{name}' is a struct, expected numbers, text or a column cell of texts")
    kind = _hdf5_class(item)
    if item.attrs.get("MATLAB_empty", 0):
        return "" if kind == "char" else [] if kind == "cell" else np.zeros(0)
    _check_stored(item, name)
    if kind == "cell":
        if item.size != max(item.shape):
            raise ValueError(f"variable '{name}' is a cell of shape {item.shape[::-1]}, expected a column of texts")
        if item.size > MOST_TEXTS or not _is_cell(item.dtype):
            raise ValueError(f"variable '{name}' is a cell of {item.size} {item.dtype}, expected texts")
        return ["".join(_hdf5_rows(file[reference], name)) for reference in np.asarray(item).T.reshape(-1)]
    if kind == "char":
        rows = _hdf5_rows(item, name)
        return rows[0] if len(rows) == 1 else rows
    numbers = np.asarray(item).T
    if numbers.dtype.names == ("real", "imag"):
        pairs, numbers = numbers, np.empty(numbers.shape, complex)
        numbers.real, numbers.imag = pairs["real"], pairs["imag"]
    if numbers.dtype.kind not in "biufc":
        raise ValueError(f"variable '{name}' is of class {kind}, expected numbers, text or a column cell of texts")
    return numbers


def _hdf5_rows(item: Any, name: str) -> list[str]:
    """Rows of a matrix of characters."""
    if not hasattr(item, "dtype") or _hdf5_class(item) != "char" or item.dtype.kind != "u":
        raise ValueError(f"variable '{name}' holds a cell that is no text")
    if item.attrs.get("MATLAB_empty", 0):
        return [""]
    _check_stored(item, name)
    units = np.atleast_2d(np.asarray(item).T).astype("<u2")
    return [row.tobytes().decode("utf-16-le", "replace") for row in units]


def _check_stored(item: Any, name: str) -> None:
    """Raise ValueError unless all numbers are stored in this file: HDF5 would substitute zeros."""
    if item.size is None or item.size > LARGEST_ARRAY:
        raise ValueError(f"variable '{name}' claims {item.size} entries, expected at most {LARGEST_ARRAY}")
    if item.is_virtual or item.external:
        raise ValueError(f"variable '{name}' is stored in another file")
    if not (_is_plain(item.dtype) or _is_cell(item.dtype)) or item.id.get_type().get_size() != item.dtype.itemsize:
        raise ValueError(f"variable '{name}' is of type {item.dtype}, expected numbers, text or a column cell of texts")
    if item.chunks is None:
        whole = item.id.get_storage_size() >= item.size * item.id.get_type().get_size()
    else:
        expected = int(np.prod([-(-n // c) for n, c in zip(item.shape, item.chunks, strict=True)]))
        whole = item.id.get_num_chunks() == expected
    if not whole:
        raise ValueError(f"variable '{name}' of {item.size} entries is not stored completely")


def _is_plain(dtype: np.dtype) -> bool:
    """Whether the type is a common number type or a complex pair; other HDF5 types trust offsets of a damaged file."""
    if dtype.names is None:
        return dtype.itemsize in {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (4, 8), "c": (8, 16)}.get(
            dtype.kind, ()
        )
    if dtype.names != ("real", "imag") or dtype.fields is None:
        return False
    (real, first), (imag, second) = (dtype.fields[name][:2] for name in ("real", "imag"))
    together = first == 0 and second == real.itemsize and dtype.itemsize == 2 * real.itemsize
    return real == imag and real.names is None and _is_plain(real) and together


def _is_cell(dtype: np.dtype) -> bool:
    import h5py

    return h5py.check_ref_dtype(dtype) is h5py.Reference


HEADER, TAG = 128, 8
MATRIX, COMPRESSED = 14, 15
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
"""NumPy type by type code of numbers."""
TEXTS = {1: "ascii", 2: "ascii", 16: "utf-8", 4: "utf-16", 17: "utf-16", 18: "utf-32"}
"""Encoding by type code of characters."""
CELL, STRUCT, CHAR, OPAQUE = 1, 2, 4, 17
CLASSES = {
    1: "cell", 2: "struct", 3: "object", 4: "char", 5: "sparse", 6: "double", 7: "single", 8: "int8", 9: "uint8",
    10: "int16", 11: "uint16", 12: "int32", 13: "uint32", 14: "int64", 15: "uint64", 16: "function handle",
    17: "object or string",
}  # fmt: skip
FIRST_NUMERIC, LAST_NUMERIC = 6, 15
COMPLEX_FLAG = 0x800
MOST_BYTES = 16 * LARGEST_ARRAY
ENOUGH_FOR_HEADER = 4096
DEEPEST = 3
"""Nesting depth of a struct of a cell of strings."""


def _read_v5(path: Path, choice: Choice) -> dict[str, object]:
    with path.open("rb") as file:
        header = file.read(HEADER)
        order = {b"IM": "<", b"MI": ">"}.get(header[126:128])
        if len(header) < HEADER or order is None:
            raise ValueError("not a MATLAB file of version 5, 7 or 7.3, expected one saved with -v7 or -v7.3")
        end = path.stat().st_size
        elements: dict[str, tuple[int, int, int]] = {}
        shapes: dict[str, tuple[tuple[int, ...], str]] = {}
        while (position := file.tell()) < end:
            tag = file.read(TAG)
            if len(tag) < TAG:
                raise ValueError("the file ends within the tag of a variable: it is truncated")
            kind, size = struct.unpack(f"{order}II", tag)
            if kind not in (MATRIX, COMPRESSED) or position + TAG + size > end:
                raise ValueError(
                    f"byte {position}: found an element of type {kind} and {size} bytes, expected a variable"
                    f" within the {end} bytes of the file"
                )
            start = _contents(file, order, kind, min(size, ENOUGH_FOR_HEADER), ENOUGH_FOR_HEADER, whole=False)
            file.seek(position + TAG + size)
            cls, shape, name, _ = _about(start, order)
            if name in shapes:
                raise ValueError(f"variable '{name}' occurs twice")
            elements[name] = (kind, position + TAG, size)
            shapes[name] = (shape, CLASSES.get(cls, "unknown"))

        def load(name: str) -> Any:
            kind, position, size = elements[name]
            file.seek(position)
            return _value(_contents(file, order, kind, size, MOST_BYTES, whole=True), order, name, 0)

        loaded: dict[str, Any] = {}

        def fields(name: str) -> Shapes:
            value = loaded[name] = load(name)
            return {n: (np.shape(x), class_of(x)) for n, x in value.items()} if isinstance(value, dict) else {}

        holder, names = choice(shapes, fields)
        return {name: loaded[holder][name] if holder else load(name) for name in names}


def _contents(file: BinaryIO, order: str, kind: int, size: int, most: int, whole: bool) -> memoryview:
    """Contents of a variable's matrix, decompressed, at most `most` bytes unless `whole`."""
    data = file.read(size)
    if kind == MATRIX:
        return memoryview(data)
    decompressor = zlib.decompressobj()
    try:
        unpacked = decompressor.decompress(data, most + 1)
    except zlib.error as error:
        raise ValueError(f"a compressed variable is damaged: {error}") from None
    if whole and len(unpacked) > most:
        raise ValueError(f"a variable unpacks to more than {most} bytes, expected no more")
    if whole and not decompressor.eof:
        raise ValueError("a compressed variable is damaged: it is incomplete")
    inner = _word(memoryview(unpacked), 0, order)
    if inner != MATRIX:
        raise ValueError(f"a compressed element is of type {inner}, expected a variable")
    return memoryview(unpacked)[TAG:]


def _about(data: memoryview, order: str) -> tuple[int, tuple[int, ...], str, int]:
    """Class, shape and name of a matrix, and the offset of its contents.

    A compressed matrix includes its own tag.
    """
    flags_type, flags, at = _element(data, 0, order, "flags")
    if flags_type in (5, 6) and len(flags) == 8 and _word(flags, 0, order) & 0xFF == OPAQUE:
        _, name, at = _element(data, at, order, "name")  # an object has no dimensions
        return OPAQUE, (), bytes(name).decode("ascii", "replace"), at
    dimensions_type, dimensions, at = _element(data, at, order, "dimensions")
    name_type, name, at = _element(data, at, order, "name")
    if (
        flags_type not in (5, 6)
        or len(flags) != 8
        or dimensions_type != 5
        or len(dimensions) % 4
        or name_type not in (1, 2)
    ):
        raise ValueError("the header of a variable is damaged")
    shape = tuple(np.frombuffer(dimensions, f"{order}i4").tolist())
    if len(shape) < 2 or min(shape) < 0:
        raise ValueError(f"a variable has the dimensions {shape}, expected at least two, none below 0")
    return _word(flags, 0, order) & 0xFF, shape, bytes(name).decode("ascii", "replace"), at


def _value(data: memoryview, order: str, name: str, depth: int) -> Any:
    """Array, string, list of strings, or dictionary of a struct; the class name in brackets for anything else."""
    cls, shape, _, at = _about(data, order)
    flags = _word(data, TAG, order)
    size = int(np.prod([float(n) for n in shape]))
    if size > LARGEST_ARRAY or size > len(data):
        raise ValueError(
            f"variable '{name}' claims {size} entries of {len(data)} bytes, expected at most {LARGEST_ARRAY}"
        )
    if FIRST_NUMERIC <= cls <= LAST_NUMERIC:
        real, at = _numbers(data, at, order, name, size)
        if not flags & COMPLEX_FLAG:
            return real.reshape(shape, order="F")
        values = np.empty(size, complex)
        values.real, (values.imag, at) = real, _numbers(data, at, order, name, size)
        return values.reshape(shape, order="F")
    if cls == CHAR:
        return _text(data, at, order, name, shape)
    if depth >= DEEPEST or cls not in (CELL, STRUCT):
        return {f"({CLASSES.get(cls, 'unknown')})": None}
    names = [""]
    if cls == STRUCT:
        _, width, at = _element(data, at, order, name)
        _, text, at = _element(data, at, order, name)
        step = _word(width, 0, order) if len(width) == 4 else 0
        if not 0 < step <= 64 or len(text) % step:
            raise ValueError(f"the names of the fields of struct '{name}' are damaged")
        names = [
            bytes(text[i : i + step]).split(b"\0")[0].decode("ascii", "replace") for i in range(0, len(text), step)
        ]
    values = []
    for _ in range(size * len(names)):
        element, inner, at = _element(data, at, order, name)
        if element != MATRIX:
            raise ValueError(f"variable '{name}' holds an element of type {element}, expected a matrix")
        values.append(_value(inner, order, name, depth + 1) if len(inner) else np.zeros((0, 0)))
    if cls == STRUCT:
        return dict(zip(names, values, strict=True)) if size == 1 else {"(struct array)": None}
    texts = ["" if isinstance(x, np.ndarray) and x.size == 0 else x for x in values]
    if all(isinstance(x, str) for x in texts) and size == max(shape):
        return texts
    return {"(cell of other than texts)": None}


def _numbers(data: memoryview, at: int, order: str, name: str, size: int) -> tuple[np.ndarray, int]:
    kind, found, at = _element(data, at, order, name)
    if kind not in NUMBERS:
        raise ValueError(f"variable '{name}' holds an element of type {kind}, expected numbers")
    dtype = np.dtype(f"{order}{NUMBERS[kind]}")
    if len(found) != size * dtype.itemsize:
        raise ValueError(f"variable '{name}' has {len(found)} bytes of numbers, expected {size * dtype.itemsize}")
    return np.frombuffer(found, dtype).astype(float), at


def _text(data: memoryview, at: int, order: str, name: str, shape: tuple[int, ...]) -> str | list[str]:
    """A string, or the rows of a character matrix."""
    kind, found, _ = _element(data, at, order, name)
    if kind not in TEXTS:
        raise ValueError(f"variable '{name}' holds an element of type {kind}, expected text")
    wide = {"<": "-le", ">": "-be"}[order] if TEXTS[kind] in ("utf-16", "utf-32") else ""
    characters = bytes(found).decode(TEXTS[kind] + wide, "replace")
    if len(shape) != 2 or len(characters) != shape[0] * shape[1]:
        raise ValueError(f"variable '{name}' has {len(characters)} characters, expected {'x'.join(map(str, shape))}")
    rows = [characters[i :: shape[0]] for i in range(shape[0])]
    return rows if len(rows) > 1 else "".join(rows)


def _element(data: memoryview, at: int, order: str, name: str) -> tuple[int, memoryview, int]:
    """Type and bytes of the element at an offset, and the offset of the next one."""
    word = _word(data, at, order)
    if word >> 16:  # up to four bytes are stored in the tag itself
        kind, size, start, step = word & 0xFFFF, word >> 16, at + 4, TAG
        whole = size <= 4 and at + TAG <= len(data)
    else:
        kind, size, start = word, _word(data, at + 4, order), at + TAG
        step = TAG + -(-size // TAG) * TAG
        whole = start + size <= len(data)
    if not whole:
        raise ValueError(f"variable '{name}' ends within an element of {size} bytes: the file is damaged")
    return kind, data[start : start + size], at + step


def _word(data: memoryview, at: int, order: str) -> int:
    if at + 4 > len(data):
        raise ValueError("a variable ends within its header: the file is damaged")
    return int(struct.unpack_from(f"{order}I", data, at)[0])


def class_of(value: Any) -> str:
    """Class of a variable, or of the content that is not plain data."""
    if isinstance(value, dict):
        return next((n.strip("()") for n, x in value.items() if x is None), "struct")
    return "double" if isinstance(value, np.ndarray) else "char" if isinstance(value, str) else "cell"
