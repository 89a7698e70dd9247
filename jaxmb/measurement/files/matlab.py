"""MATLAB files, v5 to v7 and v7.3 (which is HDF5): numbers and texts, nothing else."""

from pathlib import Path
from typing import Any

from jaxmb.io.validation import InputError
from jaxmb.measurement.files import matlab_hdf5, matlab_v5
from jaxmb.measurement.files.matlab_variables import Choice, as_arrays, those_of_a_set
from jaxmb.measurement.files.named_arrays import set_from_arrays
from jaxmb.measurement.frf_set import FrfSet

HDF5_MARK = b"\x89HDF\r\n\x1a\n"
MATLAB_TEXT = 512
"""Bytes that MATLAB puts before what is HDF5."""


def read_mat(path: Path) -> FrfSet:
    """FRF set from a MATLAB file: variables frequency_hz, frf, kind and the optional ones, or one struct of them.

    Other variables in the file are left alone.

    Raises:
        InputError: the file cannot be read or does not hold a set; the message names the file and the variable.
        OSError: the file cannot be opened.
    """
    try:
        return set_from_arrays(as_arrays(read_variables(path, those_of_a_set)), str(path))
    except ValueError as error:
        raise InputError(f"{path}: {' '.join(str(error).split())}") from None


def read_variables(path: Path, choice: Choice) -> dict[str, Any]:
    """The chosen variables of a file by name: arrays, texts and lists of texts.

    Args:
        path: the file.
        choice: picks the variables by the shapes and classes of all, before any is read.

    Raises:
        ValueError: the file is damaged or no MATLAB file, or a chosen variable is not plain data.
        OSError: the file cannot be opened.
    """
    with path.open("rb") as file:
        start = file.read(MATLAB_TEXT + len(HDF5_MARK))
    room = matlab_hdf5 if start.startswith(HDF5_MARK) or start.endswith(HDF5_MARK) else matlab_v5
    return room.read_variables(path, choice)
