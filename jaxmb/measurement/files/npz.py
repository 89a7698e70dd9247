"""FRF sets as NPZ files, and NPZ files in general: plain arrays, nothing executed."""

from pathlib import Path

import numpy as np

from jaxmb.io.arrays import one_line, read_arrays
from jaxmb.io.validation import InputError
from jaxmb.measurement.files.named_arrays import ARRAY_NAMES, NEEDED, arrays_of_set, set_from_arrays
from jaxmb.measurement.frf_set import FrfSet


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
    """Write an FRF set as NPZ; `read_npz` reads the same set back.

    Raises:
        OSError: the file cannot be written.
    """
    with path.open("xb") as file:  # NumPy would add an ending to a path such as SET.NPZ
        np.savez_compressed(file, **arrays_of_set(frf_set))  # pyright: ignore[reportArgumentType]
