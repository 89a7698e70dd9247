"""Time records as columns of numbers from .mat, .npz and .csv files."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from jaxmb.io.arrays import read_arrays
from jaxmb.io.files import check_regular
from jaxmb.io.validation import InputError
from jaxmb.measurement.files.matlab import read_variables
from jaxmb.measurement.files.matlab_variables import Shapes

ENDINGS = (".mat", ".npz", ".csv")
DATA_FOLDER = "JAXMB_DATA"
"""Environment variable that names the folder with data that others publish."""
LARGEST_RECORD = 200_000_000
"""Numbers in one record (1.6 GB): a file that claims more is refused before it is read."""


def read_columns(path: Path, variable: str | None, columns: Sequence[int]) -> np.ndarray:
    """Columns [n, column] of a matrix in a file, counted from 1.

    Args:
        path: a file ending in one of `ENDINGS`; a .csv file may have one line of names first.
        variable: of a .mat or .npz file; where not given, the only array of numbers in it that has more than one.
        columns: which ones, from 1.

    Raises:
        InputError: the file cannot be read, has no such variable or column, or holds no numbers there.
    """
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise InputError(f"{path}: cannot read time records from it, expected a file ending in {', '.join(ENDINGS)}")
    check_regular(path)
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    if ending == ".csv":
        if variable is not None:
            raise InputError(f"{path}: variable '{variable}' is asked for, expected none of a .csv file")
        name, matrix = "the table", _read_csv(path)
    else:
        name, matrix = (_read_npz if ending == ".npz" else _read_mat)(path, variable)
    if matrix.ndim == 1:
        matrix = matrix[:, None]
    if matrix.ndim != 2 or matrix.size == 0 or matrix.dtype.kind not in "iuf":
        raise InputError(
            f"{path}: {name} is an array of {matrix.dtype} of shape {matrix.shape}, expected real numbers"
            " [sample, column]"
        )
    if max(columns) > matrix.shape[1]:
        raise InputError(f"{path}: column {max(columns)} of {name} is asked for, expected at most {matrix.shape[1]}")
    return matrix[:, np.asarray(columns) - 1].astype(float)


def public_path(below: str, where: str) -> Path:
    """Path of a public data file below the folder that `JAXMB_DATA` names.

    Args:
        below: its path below that folder.
        where: where it can be had, for messages.

    Raises:
        InputError: the variable is not set, or there is no such file; the message says where to get it.
    """
    folder = os.environ.get(DATA_FOLDER)
    path = Path(folder or "") / below
    if folder and path.is_file():
        return path
    reason = f"there is no {path}" if folder else f"the environment variable {DATA_FOLDER} is not set"
    raise InputError(
        f"{below} is public data that do not come with jaxmb, and {reason}: expected {where}"
        f" as {below} in the folder that {DATA_FOLDER} names"
    )


def _read_npz(path: Path, variable: str | None) -> tuple[str, np.ndarray]:
    arrays = read_arrays(path)
    name = _chosen(path, variable, {name: array.shape for name, array in arrays.items() if array.dtype.kind in "iuf"})
    return f"array '{name}'", arrays[name]


def _read_mat(path: Path, variable: str | None) -> tuple[str, np.ndarray]:
    def choice(shapes: Shapes, _: object) -> tuple[str, list[str]]:
        return "", [_chosen(path, variable, {n: shape for n, (shape, kind) in shapes.items() if kind in _NUMBERS})]

    try:
        ((name, matrix),) = read_variables(path, choice).items()
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path}: {' '.join(str(error).split())}") from None
    return f"variable '{name}'", np.asarray(matrix)


_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
_NUMBERS = ("double", "single", "float64", "float32", *_INTEGERS)
"""Names of classes in MATLAB's words, and in HDF5's where another program wrote the file."""


def _chosen(path: Path, variable: str | None, found: Mapping[str, tuple[int, ...]]) -> str:
    listed = ", ".join(f"{name} {shape}" for name, shape in list(found.items())[:12]) or "none"
    if variable is None:
        # a sample rate beside the records is none
        records = [name for name, shape in found.items() if np.prod(np.array(shape, dtype=float)) != 1.0]
        records = records or list(found)
        variable = records[0] if len(records) == 1 else None
    if variable is None:
        raise InputError(f"{path}: holds {len(found)} arrays of numbers ({listed}), expected the name of one: variable")
    if variable not in found:
        raise InputError(f"{path}: has no array of numbers '{variable}', found {listed}")
    if np.prod(np.array(found[variable], dtype=float)) > LARGEST_RECORD:
        raise InputError(
            f"{path}: variable '{variable}' claims {found[variable]} numbers, expected at most {LARGEST_RECORD}"
        )
    return variable


def _read_csv(path: Path) -> np.ndarray:
    try:
        with path.open(encoding="utf-8-sig") as file:
            first = file.readline(1_000_000)
            if not first.strip():
                raise InputError(f"{path}: the first line is empty, expected names or numbers")
            separator = next((c for c in ";,\t" if c in first), None)
            names = 0 if _are_numbers(first, separator) else 1
        return np.loadtxt(path, delimiter=separator, skiprows=names, ndmin=2, encoding="utf-8-sig")
    except InputError:
        raise
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8 text, expected a table of text") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, MemoryError) as error:
        raise InputError(f"{path}: no table of numbers: {' '.join(str(error).split())}") from None


def _are_numbers(line: str, separator: str | None) -> bool:
    try:
        return bool([float(cell) for cell in line.split(separator)])
    except ValueError:
        return False
