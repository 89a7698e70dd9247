"""Measured frequency responses as one immutable, validated set, and as NPZ files."""

import dataclasses
import os
import tokenize
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np

from jaxmb.machine.file import InputError, write_whole
from jaxmb.response.frf import DERIVATIVES, FrfKind

BROKEN = (
    ValueError, KeyError, EOFError, RuntimeError, OverflowError, MemoryError, SyntaxError, tokenize.TokenError,
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error,
)  # fmt: skip
"""What zipfile and NumPy raise on an archive that is not whole, is encrypted, or is none."""
LARGEST = 1e100
"""A response beyond this is none, and its square would overflow."""
LARGEST_SET = 50_000_000
"""Complex numbers in one set (800 MB): a file that claims more is refused before it is unpacked."""


@dataclasses.dataclass(frozen=True)
class FrfSet:
    """Frequency responses [freq, output, input] and what they are.

    Lines that are not finite are kept as they are; who uses the set masks and reports them.
    """

    frequency_hz: np.ndarray
    frf: np.ndarray
    kind: FrfKind
    outputs: tuple[str, ...] = ()
    """Degree of freedom of each output, "tool x" (or ("tool", "x"), kept as that text); numbered where not known."""
    inputs: tuple[str, ...] = ()
    coherence: np.ndarray | None = None
    """[freq, output] or [freq, output, input], 0 to 1, where it was measured."""
    source: str = ""
    """Where the set comes from, for messages and results."""

    def __post_init__(self) -> None:
        """Check and freeze.

        Raises:
            ValueError: shapes, kind, frequency axis or coherence cannot be those of one set.
        """
        frequency_hz = _numbers("frequency_hz", self.frequency_hz, float)
        h = _numbers("frf", self.frf, complex)
        if frequency_hz.ndim != 1 or frequency_hz.size == 0:
            raise ValueError(f"frequency_hz has shape {frequency_hz.shape}, expected one axis of at least one line")
        if h.ndim != 3 or h.shape[0] != frequency_hz.size or 0 in h.shape:
            raise ValueError(
                f"frf has shape {h.shape}, expected ({frequency_hz.size}, outputs, inputs) for"
                f" {frequency_hz.size} frequencies"
            )
        if not np.isfinite(frequency_hz).all():
            raise ValueError(
                f"frequency_hz holds {frequency_hz[~np.isfinite(frequency_hz)][0]}, expected finite numbers"
            )
        if frequency_hz[0] < 0.0:
            raise ValueError(f"frequency_hz starts at {frequency_hz[0]:g} Hz, expected 0 or more")
        falling = np.flatnonzero(np.diff(frequency_hz) <= 0.0)
        if falling.size:
            i = falling[0]
            raise ValueError(
                f"frequency_hz is not increasing: line {i + 2} is {frequency_hz[i + 1]:g} Hz"
                f" after {frequency_hz[i]:g} Hz"
            )
        if self.kind not in DERIVATIVES:
            raise ValueError(f"kind is '{self.kind}', expected one of {', '.join(DERIVATIVES)}")
        outputs = _point_names("outputs", self.outputs, h.shape[1])
        inputs = _point_names("inputs", self.inputs, h.shape[2])
        if (len(outputs), len(inputs)) != h.shape[1:]:
            raise ValueError(
                f"frf has {h.shape[1]} outputs and {h.shape[2]} inputs, but {len(outputs)} and {len(inputs)} names"
            )
        coherence = None if self.coherence is None else _numbers("coherence", self.coherence, float)
        if coherence is not None and coherence.shape not in (h.shape, h.shape[:2]):
            raise ValueError(f"coherence has shape {coherence.shape}, expected {h.shape[:2]} or {h.shape}")
        if coherence is not None and not np.all((coherence >= 0.0) & (coherence <= 1.0) | np.isnan(coherence)):
            raise ValueError("coherence goes beyond 0 to 1")
        parts = np.abs(np.stack([np.real(h), np.imag(h)]))
        if parts[np.isfinite(parts)].max(initial=0.0) > LARGEST:
            raise ValueError(f"frf holds numbers above {LARGEST:g}, expected a response in SI units")
        for name, value in (
            ("frequency_hz", frequency_hz),
            ("frf", h),
            ("outputs", outputs),
            ("inputs", inputs),
            ("coherence", coherence),
        ):
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
            object.__setattr__(self, name, value)


def in_band(frf_set: FrfSet, band_hz: Sequence[float]) -> FrfSet:
    """The lines of a set within [low, high] Hz, ends included.

    Raises:
        ValueError: the band is reversed or holds no line.
    """
    low, high = band_hz
    if not low < high:
        raise ValueError(f"band_hz is {low:g} to {high:g} Hz, expected the lower end first")
    slack = 1e-9 * max(abs(low), abs(high), 1.0)
    keep = (frf_set.frequency_hz >= low - slack) & (frf_set.frequency_hz <= high + slack)
    if not keep.any():
        raise ValueError(
            f"no line of the FRF lies in {low:g} to {high:g} Hz:"
            f" it goes from {frf_set.frequency_hz[0]:g} to {frf_set.frequency_hz[-1]:g} Hz"
        )
    coherence = None if frf_set.coherence is None else frf_set.coherence[keep]
    return dataclasses.replace(
        frf_set, frequency_hz=frf_set.frequency_hz[keep], frf=frf_set.frf[keep], coherence=coherence
    )


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


def _numbers(name: str, values: object, dtype: type) -> np.ndarray:
    """A copy of the values as an array of real or complex numbers."""
    try:
        array = np.array(values)
        if array.dtype.kind not in ("biuf" if dtype is float else "biufc"):
            raise ValueError(f"found {array.dtype}")
        return array.astype(dtype)
    except (TypeError, ValueError) as error:
        what = "real" if dtype is float else "real or complex"
        raise ValueError(f"{name} does not hold {what} numbers: {error}") from None


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


def _point_names(what: str, points: Sequence[str | tuple[str, str]] | None, count: int) -> tuple[str, ...]:
    """Names of degrees of freedom as texts, ("tool", "x") as "tool x"; numbered from 1 where there are none."""
    if points is None or len(points) == 0:
        return tuple(str(i + 1) for i in range(count))
    return tuple(point if isinstance(point, str) else " ".join(map(str, point)) for point in points)


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
