"""FRF sets as NPZ files, and NPZ files in general: plain arrays, nothing executed."""

import dataclasses
import os
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np

from jaxmb.machine.file import InputError, write_whole
from jaxmb.measurement.frf_set import FrfSet

BROKEN = (
    ValueError, KeyError, EOFError, RuntimeError, OverflowError, MemoryError, SyntaxError, tokenize.TokenError,
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error,
)  # fmt: skip
"""What zipfile and NumPy raise on an archive that is not whole, is encrypted, or is none."""
LARGEST_SET = 50_000_000
"""Complex numbers in one set (800 MB): a file that claims more is refused before it is unpacked."""


def read_frf(path: str | os.PathLike[str]) -> FrfSet:
    """FRF set from an NPZ file: arrays frequency_hz [f], frf [f, output, input], kind; optional the other fields.

    Raises:
        InputError: the file cannot be read or does not hold a set; the message names the file and the array.
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise InputError(f"{path}: cannot read FRFs from '{path.suffix or 'a file without ending'}', expected .npz")
    data = read_arrays(path)
    for name in ("frequency_hz", "frf", "kind"):
        if name not in data:
            raise InputError(f"{path}: array '{name}' is missing; found {', '.join(sorted(data)) or 'none'}")
    names = {f.name for f in dataclasses.fields(FrfSet)}
    unknown = sorted(set(data) - names)
    if unknown:
        raise InputError(f"{path}: unknown array '{unknown[0]}', expected {', '.join(sorted(names))}")
    try:
        return FrfSet(
            frequency_hz=data["frequency_hz"],
            frf=data["frf"],
            kind=_text(data["kind"], "kind"),  # pyright: ignore[reportArgumentType]  (checked by FrfSet)
            outputs=_texts(data.get("outputs"), "outputs"),
            inputs=_texts(data.get("inputs"), "inputs"),
            coherence=data.get("coherence"),
            source=_text(data["source"], "source") if "source" in data else str(path),
        )
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None


def write_frf(path: str | os.PathLike[str], frf_set: FrfSet) -> None:
    """Write an FRF set as NPZ; `read_frf` reads the same set back.

    Raises:
        ValueError: the path does not end in .npz.
        OSError: the file cannot be written; nothing is left half-written.
    """
    if Path(path).suffix != ".npz":
        raise ValueError(f"{path}: expected a file ending in .npz")
    arrays = {f.name: getattr(frf_set, f.name) for f in dataclasses.fields(FrfSet)}
    buffer = BytesIO()
    given = {name: np.asarray(a) for name, a in arrays.items() if a is not None}
    np.savez_compressed(buffer, **given)  # pyright: ignore[reportArgumentType]
    write_whole(path, buffer.getvalue())


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
        raise InputError(f"{path}: not a NPZ file of plain arrays: {error}") from None
    return data


def _array(stored: Mapping[str, np.ndarray], name: str, path: Path) -> np.ndarray:
    try:
        array = stored[name]
    except BROKEN as error:
        raise InputError(f"{path}: array '{name}' cannot be read: {error}") from None
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path}: '{name}' is not an array as NumPy writes it")
    if array.size > LARGEST_SET:
        raise InputError(f"{path}: array '{name}' claims {array.size} entries, expected at most {LARGEST_SET}")
    return array


def _check_size(file: BinaryIO, path: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    if size > 16 * LARGEST_SET:
        raise InputError(f"{path}: unpacks to {size} bytes, expected at most {16 * LARGEST_SET}")
    file.seek(0)


def _text(array: np.ndarray, name: str) -> str:
    if array.size != 1 or array.dtype.kind not in "US":
        raise ValueError(f"{name} is an array of {array.dtype} with {array.size} entries, expected one text")
    return str(array.reshape(()).astype(str))


def _texts(array: np.ndarray | None, name: str) -> tuple[str, ...]:
    if array is None:
        return ()
    if array.dtype.kind not in "US" or not (array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 2)):
        raise ValueError(f"{name} is an array of {array.dtype} of shape {array.shape}, expected a list of texts")
    return tuple(" ".join(map(str, x)) if array.ndim == 2 else str(x) for x in array.astype(str))
