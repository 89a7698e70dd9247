"""FRF sets from MATLAB files, v5 to v7 and v7.3 (which is HDF5): numbers and texts, nothing else."""

from pathlib import Path

from jaxmb.machine.file import InputError
from jaxmb.measurement.files import matlab_hdf5, matlab_v5
from jaxmb.measurement.files.matlab_variables import as_arrays
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
    with path.open("rb") as file:
        start = file.read(MATLAB_TEXT + len(HDF5_MARK))
    room = matlab_hdf5 if start.startswith(HDF5_MARK) or start.endswith(HDF5_MARK) else matlab_v5
    try:
        return set_from_arrays(as_arrays(room.read_variables(path)), str(path))
    except ValueError as error:
        raise InputError(f"{path}: {' '.join(str(error).split())}") from None
