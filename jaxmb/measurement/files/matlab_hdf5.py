"""Variables of MATLAB v7.3 files, which are HDF5: axes reversed, complex numbers as pairs, cells as references."""

from pathlib import Path
from typing import Any

import numpy as np

from jaxmb.measurement.files.named_arrays import LARGEST_SET, Choice, Shapes

BROKEN = (TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, MemoryError, EOFError, OSError)
"""Exceptions that h5py raises, besides ValueError, on a damaged file."""
MOST_VARIABLES = 10_000
MOST_TEXTS = 100_000


def read_variables(path: Path, choice: Choice) -> dict[str, object]:
    """Selected variables by name: arrays, strings and lists of strings.

    Raises:
        ValueError: the file cannot be read, or a variable is not plain data stored in the file itself.
    """
    import h5py

    try:
        with h5py.File(path, "r") as file:
            top: Any = file
            holder, names = choice(_shapes(top), lambda name: _shapes(top[name]))
            group = top[holder] if holder else top
            return {name: _value(file, group[name], name) for name in names}
    except BROKEN as error:
        raise ValueError(f"cannot be read as HDF5: {error or type(error).__name__}") from None


def _shapes(group: Any) -> Shapes:
    """Shapes, axes in MATLAB's order, and classes of the variables of a group."""
    import h5py

    if len(group) > MOST_VARIABLES:
        raise ValueError(f"holds {len(group)} variables, expected at most {MOST_VARIABLES}")
    shapes: dict[str, tuple[tuple[int, ...], str]] = {}
    for name in group:
        if name.startswith("#"):  # contents of cells
            continue
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            continue  # a link may lead out of the file
        item = group[name]
        if isinstance(item, h5py.Group):
            shapes[name] = ((1, 1), "struct")
        elif isinstance(item, h5py.Dataset):
            shapes[name] = (_shape(item), _class(item))
    return shapes


def _shape(item: Any) -> tuple[int, ...]:
    return tuple(reversed(item.shape or ()))


def _class(item: Any) -> str:
    name = item.attrs.get("MATLAB_class", b"")
    return name.decode("ascii", "replace") if isinstance(name, bytes) and name else str(item.dtype)


def _value(file: Any, item: Any, name: str) -> Any:
    if not hasattr(item, "dtype"):
        raise ValueError(f"variable '{name}' is a struct, expected numbers, text or a column cell of texts")
    kind = _class(item)
    if item.attrs.get("MATLAB_empty", 0):
        return "" if kind == "char" else [] if kind == "cell" else np.zeros(0)
    _check_stored(item, name)
    if kind == "cell":
        if item.size != max(item.shape):
            raise ValueError(f"variable '{name}' is a cell of shape {_shape(item)}, expected a column of texts")
        if item.size > MOST_TEXTS or not _is_cell(item.dtype):
            raise ValueError(f"variable '{name}' is a cell of {item.size} {item.dtype}, expected texts")
        return ["".join(_rows(file[reference], name)) for reference in np.asarray(item).T.reshape(-1)]
    if kind == "char":
        rows = _rows(item, name)
        return rows[0] if len(rows) == 1 else rows
    numbers = np.asarray(item).T
    if numbers.dtype.names == ("real", "imag"):
        pairs, numbers = numbers, np.empty(numbers.shape, complex)
        numbers.real, numbers.imag = pairs["real"], pairs["imag"]
    if numbers.dtype.kind not in "biufc":
        raise ValueError(f"variable '{name}' is of class {kind}, expected numbers, text or a column cell of texts")
    return numbers


def _rows(item: Any, name: str) -> list[str]:
    """Rows of a matrix of characters."""
    if not hasattr(item, "dtype") or _class(item) != "char" or item.dtype.kind != "u":
        raise ValueError(f"variable '{name}' holds a cell that is no text")
    if item.attrs.get("MATLAB_empty", 0):
        return [""]
    _check_stored(item, name)
    units = np.atleast_2d(np.asarray(item).T).astype("<u2")
    return [row.tobytes().decode("utf-16-le", "replace") for row in units]


def _check_stored(item: Any, name: str) -> None:
    """Raise ValueError unless all numbers are stored in this file: HDF5 would substitute zeros."""
    if item.size is None or item.size > LARGEST_SET:
        raise ValueError(f"variable '{name}' claims {item.size} entries, expected at most {LARGEST_SET}")
    if item.is_virtual or item.external:
        raise ValueError(f"variable '{name}' is stored in another file")
    if not (_is_plain(item.dtype) or _is_cell(item.dtype)) or item.id.get_type().get_size() != item.dtype.itemsize:
        raise ValueError(f"variable '{name}' is of type {item.dtype}, expected numbers, text or a column cell of texts")
    if item.size == 0:
        return
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
