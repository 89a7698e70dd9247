"""FRF sets as NPZ files, and NPZ files in general: plain arrays, nothing executed."""

import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from jaxmb.machine.file import InputError
from jaxmb.measurement.files.named_arrays import ARRAY_NAMES, LARGEST_SET, NEEDED, arrays_of_set, set_from_arrays
from jaxmb.measurement.frf_set import FrfSet

BROKEN = (
    ValueError, KeyError, EOFError, RuntimeError, OverflowError, MemoryError, SyntaxError, tokenize.TokenError,
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error,
)  # fmt: skip
"""What zipfile and NumPy raise on an archive that is not whole, is encrypted, or is none."""


def read_npz(path: Path) -> FrfSet:
    """FRF set from an NPZ file: arrays frequency_hz [f], frf [f, output, input], kind; optional the other fields.

    Raises:
        InputError: the file cannot be read or does not hold a set; the message names the file and the array.
    """
    data = read_arrays(path)
    for name in NEEDED:
        if name not in data:
            raise InputError(f"{path}: array '{name}' is missing; found {_one_line(', '.join(sorted(data))) or 'none'}")
    unknown = sorted(set(data) - set(ARRAY_NAMES))
    if unknown:
        raise InputError(f"{path}: unknown array {unknown[0]!r}, expected {', '.join(sorted(ARRAY_NAMES))}")
    try:
        return set_from_arrays(data, str(path))
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None


def write_npz(path: Path, frf_set: FrfSet) -> None:
    """Write an FRF set as NPZ; `read_npz` reads the same set back.

    Raises:
        OSError: the file cannot be written.
    """
    with path.open("xb") as file:  # NumPy would add an ending to a path such as SET.NPZ
        np.savez_compressed(file, **arrays_of_set(frf_set))  # pyright: ignore[reportArgumentType]


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an NPZ file by name.

    Raises:
        InputError: the file cannot be read, is too large, or holds what is no array or one of Python objects.
    """
    data: dict[str, np.ndarray] = {}
    try:
        with path.open("rb") as file:
            _check_size(file, path)
            with np.load(file, allow_pickle=False) as stored:
                for name in stored.files:
                    data[name] = _array(stored, name, path)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except BROKEN as error:
        raise InputError(f"{path}: not a NPZ file of plain arrays: {_one_line(error)}") from None
    return data


def _array(stored: Mapping[str, np.ndarray], name: str, path: Path) -> np.ndarray:
    try:
        array = stored[name]
    except BROKEN as error:
        raise InputError(f"{path}: array {name!r} cannot be read: {_one_line(error)}") from None
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path}: {name!r} is not an array as NumPy writes it")
    if array.size > LARGEST_SET:
        raise InputError(f"{path}: array {name!r} claims {array.size} entries, expected at most {LARGEST_SET}")
    return array


def _check_size(file: BinaryIO, path: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    if size > 16 * LARGEST_SET:
        raise InputError(f"{path}: unpacks to {size} bytes, expected at most {16 * LARGEST_SET}")
    file.seek(0)


def _one_line(text: object) -> str:
    return " ".join(str(text).split())
