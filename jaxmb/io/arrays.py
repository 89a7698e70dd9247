"""NPZ files of numeric arrays, read without unpickling."""

import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from jaxmb.io.files import check_regular
from jaxmb.io.validation import InputError

LARGEST_ARRAY = 50_000_000
"""Most entries of an array; a file with more is damaged or no measurement."""
BROKEN = (
    ValueError, KeyError, EOFError, RuntimeError, OverflowError, MemoryError, SyntaxError, tokenize.TokenError,
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error,
)  # fmt: skip
"""Exceptions of zipfile and NumPy for a file that is damaged, encrypted, or no archive."""


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an NPZ file by name.

    Raises:
        InputError: the file cannot be read, is too large, or holds an entry that is no array or has Python objects.
    """
    check_regular(path)
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
        raise InputError(f"{path}: not a NPZ file of plain arrays: {one_line(error)}") from None
    return data


def _array(stored: Mapping[str, np.ndarray], name: str, path: Path) -> np.ndarray:
    try:
        array = stored[name]
    except BROKEN as error:
        raise InputError(f"{path}: array {name!r} cannot be read: {one_line(error)}") from None
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path}: {name!r} is not an array as NumPy writes it")
    if array.size > LARGEST_ARRAY:
        raise InputError(f"{path}: array {name!r} claims {array.size} entries, expected at most {LARGEST_ARRAY}")
    return array


def _check_size(file: BinaryIO, path: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    if size > 16 * LARGEST_ARRAY:
        raise InputError(f"{path}: unpacks to {size} bytes, expected at most {16 * LARGEST_ARRAY}")
    file.seek(0)


def one_line(text: object) -> str:
    """A text without line breaks."""
    return " ".join(str(text).split())
