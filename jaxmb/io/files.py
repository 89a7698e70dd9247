"""Files: descriptions by name, validated reading of text, TOML, tables, arrays and JSON, atomic writing."""

import csv
import dataclasses
import importlib.metadata
import io
import json
import math
import os
import platform
import re
import secrets
import stat
import tokenize
import tomllib
import types
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from pydantic_core import to_jsonable_python

from jaxmb.io.validation import InputError, Table, check_distinct, closest, known_name

LARGEST_FILE = 4_000_000
"""Largest size of a description, bytes; larger files are probably measured data, and slow to validate."""
LARGEST_TABLE = 200_000_000
"""Largest size of a CSV table of measurements, bytes: half an hour of six drives at 1 kHz."""
MOST_KEY_PARTS = 1000
_KEY_DOT = re.compile(r"""\.[ \t]*(?:["'A-Za-z_\-]|\d+[ \t]*\.)""")
"""A dot between the parts of a key, not the one of a decimal number."""


def library_names(kind: str) -> tuple[str, ...]:
    """Names of the built-in descriptions of one kind ("machines", "studies")."""
    folder = resources.files("jaxmb.library") / kind
    return tuple(sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")))


def find_description(name_or_path: str | os.PathLike[str], kind: str, label: str, endings: tuple[str, ...]) -> Path:
    """Path of a built-in description by name, or of the file the user names.

    Raises:
        InputError: neither a built-in name nor a file with one of the endings.
    """
    text = os.fspath(name_or_path)
    names = library_names(kind)
    if text in names:
        return Path(str(resources.files("jaxmb.library") / kind / f"{text}.toml"))
    path = Path(text)
    # For an invalid file name os.path.exists returns False, where Path.exists raises.
    if path.suffix.lower() not in endings and os.sep not in text and not os.path.exists(text):
        files = [name for name in _names_in(Path()) if name.endswith(endings)]
        raise InputError(known_name(label, text, names, files) + f", or a file ending in {' or '.join(endings)}")
    if path.suffix.lower() not in endings:
        found = "" if os.path.exists(text) else f"does not exist{nearby(path)} "
        raise InputError(f"{path}: {found}expected a file ending in {' or '.join(endings)}")
    return path


def read_toml(path: Path) -> Table:
    """Contents of a TOML file.

    Raises:
        InputError: the file cannot be read, or is no text or no TOML; the message gives line and column.
    """
    text = read_text(path)
    for number, line in enumerate(text.split("\n"), start=1):
        # The parser's time is quadratic in the parts of one key: a megabyte of "a.a.a" would take hours.
        if line.count(".") > MOST_KEY_PARTS and len(_KEY_DOT.findall(line)) > MOST_KEY_PARTS:
            raise InputError(f"{path}: line {number} is nested too deeply, expected at most a few levels")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise InputError(f"{path}: nested too deeply, expected at most a few levels") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not valid TOML: {error}{_toml_hint(str(error), text)}") from None
    except ValueError:  # Python reads no integer of more than 4300 digits
        raise InputError(f"{path}: holds an integer of thousands of digits, expected a physical number") from None


def _toml_hint(message: str, text: str) -> str:
    """Hint on a frequent mistake: text without quotes, a key stated twice, an item of a list in single brackets."""
    at = re.fullmatch(
        r"(Invalid value|Cannot overwrite a value|Cannot declare .*) \(at line (\d+), column (\d+)\)", message
    )
    if at is None:
        return ""
    line = text.replace("\r\n", "\n").split("\n")[int(at[2]) - 1]
    if at[1] == "Invalid value":
        return "; text needs quotes" if line[int(at[3]) - 1 :][:1].isalpha() else ""
    if line.lstrip().startswith("["):
        return "; a table is stated once, and each item of a list in double brackets, such as [[test]]"
    return "; the key is stated twice"


LARGEST_FOLDER = 1000
"""Largest number of files of a folder that are compared with a misspelt name."""


def _names_in(folder: Path) -> list[str]:
    """Names of the first files of a folder; empty where it cannot be read."""
    try:
        return os.listdir(folder)[:LARGEST_FOLDER]
    except (OSError, ValueError):
        return []


def nearby(path: Path) -> str:
    """Clause on a path that does not exist, before an expectation: the closest name in its folder, or that the folder
    does not exist."""
    if not path.parent.is_dir():
        return f", folder '{path.parent}' does not exist,"
    # an ending in common makes no name close; of two endings that of the path comes last, and is kept
    names = sorted(_names_in(path.parent), key=lambda name: (Path(name).suffix == path.suffix, name))
    by_stem = {Path(name).stem: name for name in names}
    near = closest(path.stem, by_stem)
    return "," if near is None else f", did you mean '{by_stem[near]}'?"


def check_regular(path: str | os.PathLike[str]) -> None:
    """Raise InputError for a pipe, a socket or a device, which might block when opened or read."""
    try:
        mode = os.stat(path).st_mode
    except ValueError as error:  # a zero byte in the path
        raise InputError(f"{os.fspath(path)}: cannot be read: {error}") from None
    except OSError:  # reported by the reader
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InputError(
            f"{os.fspath(path)}: is a pipe or a device, expected a regular file: write its data to one first"
        )


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Context in which a file is read: errors name the file.

    Raises:
        InputError: the file cannot be read, or instead of a ValueError raised inside.
    """
    check_regular(path)
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        hint = nearby(path).removesuffix(",") if isinstance(error, FileNotFoundError) else ""
        raise InputError(f"{path}: cannot be read: {error.strerror or error}{hint}") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        # a workbook is a ZIP archive
        hint = "; save a workbook as CSV" if error.object[:2] == b"PK" else f" in UTF-8 (the byte is in line {line})"
        raise InputError(f"{path}: byte {error.start} is not UTF-8 text, expected a text file{hint}") from None
    except ValueError as error:
        raise InputError(f"{path}: {one_line(error)}") from None


def read_text(path: Path, largest: int = LARGEST_FILE, expected: str = "a description, not measured data") -> str:
    """Contents of a UTF-8 text file of at most `largest` bytes.

    Raises:
        InputError: the file cannot be read, is larger than expected, or is not UTF-8 text.
    """
    with reading(path):
        with path.open("rb") as file:
            data = file.read(largest + 1)
        if len(data) > largest:
            raise InputError(f"{path}: larger than {largest} bytes, expected {expected}")
        text = data.decode("utf-8-sig")  # Windows editors put a byte order mark first
    if "\0" in text:
        raise InputError(f"{path}: holds a zero byte at {text.index(chr(0))}, expected a text file")
    return text


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Path of a temporary file in the same folder, to be written inside, which then replaces the file atomically."""
    temporary = path.with_name(f".{secrets.token_hex(8)}{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        if error.filename == os.fspath(temporary):
            error.filename = os.fspath(path)  # the file that the user knows
        raise
    finally:
        temporary.unlink(missing_ok=True)  # left over only where an error occurred


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file atomically."""
    with replaced(Path(path)) as temporary, temporary.open("xb") as file:
        file.write(data)


LARGEST_ARRAY = 50_000_000
"""Most entries of an array, or values of one measurement (800 MB of complex ones): a file that claims more is damaged,
and rejected before it is read."""
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
    with reading(path), path.open("rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                size = sum(entry.file_size for entry in archive.infolist())
            if size > 16 * LARGEST_ARRAY:
                raise InputError(f"{path}: unpacks to {size} bytes, expected at most {16 * LARGEST_ARRAY}")
            file.seek(0)
            with np.load(file, allow_pickle=False) as stored:
                return {name: _array(stored, name, path) for name in stored.files}
        except InputError:
            raise
        except BROKEN as error:
            raise ValueError(f"not a NPZ file of plain arrays: {error}") from None


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


def one_line(text: object) -> str:
    """A text without line breaks."""
    return " ".join(str(text).split())


def csv_lines(path: Path) -> list[tuple[int, list[str]]]:
    """Number and stripped cells of each line of a CSV file that is not blank.

    Raises:
        InputError: the file cannot be read, or is not CSV with commas; the line is named.
    """
    data = read_text(path, LARGEST_TABLE, f"a table of at most {LARGEST_TABLE} bytes").encode()
    table = csv.reader(io.TextIOWrapper(io.BytesIO(data), "utf-8", newline=""))  # StringIO has 4 bytes per character
    try:
        lines = [(table.line_num, [cell.strip() for cell in row]) for row in table]
    except csv.Error as error:
        raise InputError(f"{path}: line {table.line_num} is not a valid CSV line: {error}") from None
    lines = [(number, cells) for number, cells in lines if any(cells)]
    for separator, name in ((";", "semicolons"), ("\t", "tabs")):
        if lines and len(lines[0][1]) == 1 and separator in lines[0][1][0]:
            raise InputError(
                f"{path}: line {lines[0][0]}: cells are separated by {name}, expected commas, and points in numbers"
            )
    return lines


def csv_table(path: Path, expected: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Heading of a CSV file, and number and stripped cells of each line below that is not blank, without empty cells
    beyond the heading.

    Args:
        path: of the file.
        expected: description of the lines below the heading, for messages.

    Raises:
        InputError: the file cannot be read, or has no lines below its heading or lines of another length.
    """
    lines = csv_lines(path)
    if len(lines) < 2:
        raise InputError(f"{path}: found {len(lines)} lines, expected a heading and {expected}")
    (_, heads), *rows = lines
    for number, row in rows:
        if len(row) < len(heads) or any(row[len(heads) :]):
            raise InputError(f"{path}: line {number} has {len(row)} cells, expected {len(heads)} as in the heading")
    return heads, [(number, row[: len(heads)]) for number, row in rows]


def is_number(cell: str) -> bool:
    """Whether a cell of a table holds a number; one with an underscore, which Python's float() skips, does not."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def number_of_cell(what: str, text: str) -> float:
    """The number in a cell of a table.

    Raises:
        ValueError: the text is no finite number.
    """
    if is_number(text) and math.isfinite(number := float(text)):
        return number
    hint = "" if len(text.split()) < 2 else ": numbers are separated by commas"
    raise ValueError(f"{what} is '{text[:40]}', expected a finite number{hint}")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a result depends on."""
    names = ("jaxmb", "jax", "jaxlib", "numpy", "scipy", "evosax", "optax", "equinox")
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in names}


def strict(value: Any) -> Any:
    """A value as data for strict JSON: numbers, lists and dictionaries, None for numbers that are not finite."""
    return to_jsonable_python(value, fallback=lambda of_numpy: of_numpy.tolist(), inf_nan_mode="null")


def read_strict(path: Path, expected: str) -> Any:
    """Contents of a file of strict JSON.

    Args:
        path: of the file.
        expected: description of the expected file, for messages.

    Raises:
        InputError: the file cannot be read, is no strict JSON, or has a key twice in one object.
    """
    with reading(path):
        try:
            return json.loads(path.read_bytes(), parse_constant=_refused, object_pairs_hook=_without_duplicates)
        except (RecursionError, ValueError) as error:
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
            raise ValueError(f"is no JSON, so not {expected}: {reason}") from None


def _refused(constant: str) -> None:
    raise ValueError(f"found {constant}")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> Table:
    check_distinct([key for key, _ in pairs], "it has the key '{}' twice in one object")
    return dict(pairs)


R = TypeVar("R")


def plain(value: Any) -> Any:
    """Records as dictionaries by field name, tuples as lists; arrays and numbers unchanged.

    A field that is None is omitted if None is its default, else it is null. A trailing underscore of a name, which
    avoids a Python keyword, is omitted; the entry `key` of a field's metadata replaces its name.

    A record may define its own conversion by the methods `as_plain` and `from_plain`.
    """
    if hasattr(value, "as_plain"):
        return plain(value.as_plain())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {_name(field): plain(entry) for field, entry in fields if entry is not None or field.default is not None}
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value


def restored(kind: type[R], data: Mapping[str, object]) -> R:
    """Record of a class from `data`, which was written by `plain` as strict JSON.

    A null is None where the field may be None, and NaN where it is a number.

    Raises:
        KeyError: a field is missing.
    """
    return _value(kind, data)


def _value(kind: Any, data: Any) -> Any:
    if hasattr(kind, "from_plain"):
        return kind.from_plain(data)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        types_of: Any = get_type_hints(kind)
        given = (field for field in dataclasses.fields(kind) if _name(field) in data or field.default is not None)
        return kind(**{field.name: _value(types_of[field.name], data[_name(field)]) for field in given})
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (types.UnionType, Union):
        (other,) = (one for one in arguments if one is not types.NoneType)
        return None if data is None else _value(other, data)
    if origin is tuple:
        each = [arguments[0]] * len(data) if arguments[-1] is ... else arguments
        return tuple(_value(one, entry) for one, entry in zip(each, data, strict=True))
    if origin is dict:
        return {key: _value(arguments[1], entry) for key, entry in data.items()}
    if kind is np.ndarray or getattr(kind, "array_type", None) is np.ndarray:
        return np.array(data, dtype=float)  # converts None to NaN
    if kind is float:
        return float("nan") if data is None else float(data)
    return data


def _name(field: "dataclasses.Field[Any]") -> str:
    return field.metadata.get("key", field.name.removesuffix("_"))
