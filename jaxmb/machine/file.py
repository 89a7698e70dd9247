"""Machines and other descriptions in files: read with one clear sentence where they are wrong, written whole or not."""

import difflib
import json
import os
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import tomli_w
from pydantic import BaseModel, ValidationError

from jaxmb.machine.schema import Machine, known_name
from jaxmb.machine.tables import expand_tables
from jaxmb.machine.urdf import machine_from_urdf

LARGEST_FILE = 4_000_000
"""Bytes; a description larger than this is no description but data, and would only be slow to refuse."""


T = TypeVar("T", bound=BaseModel)


class InputError(ValueError):
    """Wrong input from a file: the message names the file, the place, what stood there and what was expected."""


def load_machine(name_or_path: str | os.PathLike[str]) -> Machine:
    """Machine from a built-in name, a `.toml` file or a `.urdf` file.

    Args:
        name_or_path: "kuka-kr90", "robots/mine.toml", "robots/mine.urdf". The coordinates of a URDF have the names of
            its joints, its frames those of its links.

    Raises:
        InputError: (a ValueError) the name or file does not exist, cannot be read, or describes no possible machine.
        NotImplementedError: the file asks for something that jaxmb does not have (a floating joint, say).
    """
    path = find_description(name_or_path, "machines", "machine", (".toml", ".urdf"))
    if path.suffix == ".urdf":
        try:
            return machine_from_urdf(read_text(path), path.stem)
        except NotImplementedError as error:
            raise NotImplementedError(f"{path}: {error}") from None
        except ValidationError as error:
            raise InputError(f"{path}: {_sentence(error, {}, Machine)}") from None
        except ValueError as error:
            raise InputError(f"{path}: {error}") from None
    return validated(Machine, read_toml(path), str(path), prepare=expand_tables)


def machine_names() -> tuple[str, ...]:
    """Names of the machines that come with jaxmb."""
    return library_names("machines")


def write_machine(machine: Machine, path: str | os.PathLike[str]) -> None:
    """Write a machine as TOML; `load_machine` reads the same machine back.

    Raises:
        OSError: the file cannot be written; nothing is left half-written.
    """
    write_whole(path, machine_toml(machine).encode())


def machine_toml(machine: Machine) -> str:
    """A machine as TOML text, what has its default value left out."""
    data = machine.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    return tomli_w.dumps(data)


def library_names(room: str) -> tuple[str, ...]:
    """Names of the descriptions of one kind ("machines", "studies") that come with jaxmb."""
    folder = resources.files("jaxmb.library") / room
    return tuple(sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")))


def find_description(
    name_or_path: str | os.PathLike[str], room: str, what: str, endings: tuple[str, ...]
) -> Path:
    """Path of a built-in description by name, or of the file the user names.

    Raises:
        InputError: neither a built-in name nor a file with one of the endings.
    """
    text = os.fspath(name_or_path)
    names = library_names(room)
    if text in names:
        return Path(str(resources.files("jaxmb.library") / room / f"{text}.toml"))
    path = Path(text)
    if path.suffix not in endings and os.sep not in text and not path.exists():
        raise InputError(known_name(f"{what}", text, names) + f", or a file ending in {' or '.join(endings)}")
    if path.suffix not in endings:
        raise InputError(f"{path}: expected a file ending in {' or '.join(endings)}")
    return path


def read_toml(path: Path) -> dict[str, Any]:
    """Contents of a TOML file.

    Raises:
        InputError: the file cannot be read, is no text, or is no TOML; the message gives line and column.
    """
    text = read_text(path)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise InputError(f"{path}: nested too deeply, expected at most a few levels") from None
    except ValueError as error:  # TOMLDecodeError, and integers too long for Python
        raise InputError(f"{path}: not valid TOML: {error}") from None


def read_text(path: Path) -> str:
    """Contents of a small UTF-8 text file.

    Raises:
        InputError: the file cannot be read, is larger than `LARGEST_FILE`, or is no text.
    """
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > LARGEST_FILE:
        raise InputError(f"{path}: larger than {LARGEST_FILE} bytes, expected a description, not measured data")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8 text, expected a text file") from None
    if "\0" in text:
        raise InputError(f"{path}: holds a zero byte at {text.index(chr(0))}, expected a text file")
    return text


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file by writing a new one beside it and renaming, so that it is never seen half-written."""
    target = Path(path)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def validated(
    cls: type[T],
    data: dict[str, Any],
    source: str,
    prepare: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> T:
    """Description of class `cls` from the contents of a file.

    Args:
        cls: what the file describes.
        data: what stands in it.
        source: name of the file, for messages.
        prepare: rewrites shorthand (such as DH tables) before validation; raises ValueError where it cannot.

    Raises:
        InputError: one sentence naming the file, the place, what stood there and what was expected.
    """
    try:
        return cls.model_validate(prepare(data) if prepare else data)
    except ValidationError as error:
        raise InputError(f"{source}: {_sentence(error, data, cls)}") from None
    except ValueError as error:
        raise InputError(f"{source}: {error}") from None


def _sentence(error: ValidationError, data: dict[str, Any], cls: type[BaseModel]) -> str:
    errors = error.errors(include_url=False)
    # A misspelt key gives both an unknown and a missing one: the unknown one says more.
    first = min(errors, key=lambda e: e["type"] != "extra_forbidden")
    place = _place(first["loc"], data)
    key = first["loc"][-1] if first["loc"] else ""
    if first["type"] == "extra_forbidden":
        allowed = [k for e in _keys_beside(cls, first["loc"]) for k in e]
        near = difflib.get_close_matches(str(key), allowed, n=1)
        hint = f", did you mean '{near[0]}'?" if near else ";"
        text = f"{place}: unknown key{hint} expected one of: {', '.join(allowed)}"
    elif first["type"] == "missing":
        text = f"{place}: missing, expected a value"
    elif first["type"] == "value_error":
        message = str(first["ctx"]["error"])
        shown = "" if isinstance(first["input"], dict | BaseModel) else f"found {_shown(first['input'])}, "
        text = f"{place}: {shown}{message}" if place else message
    else:
        expected = first["msg"].removeprefix("Input should be ").removeprefix("a ").removeprefix("valid ")
        text = f"{place}: found {_shown(first['input'])}, expected {expected}"
    more = len(errors) - 1
    return text + (f" (and {more} more {'error' if more == 1 else 'errors'})" if more else "")


def _place(loc: tuple[int | str, ...], data: Any) -> str:
    """Where in the file: names instead of numbers where the items have them."""
    words: list[str] = []
    at = data
    for step in loc:
        try:
            at = at[step]
        except (KeyError, IndexError, TypeError):
            at = None
        if isinstance(step, int):
            name = at.get("name") if isinstance(at, dict) else None
            words[-1:] = [f"{words[-1] if words else 'item'} " + (f"'{name}'" if name else f"number {step + 1}")]
        else:
            words.append(str(step))
    return ", ".join(words)


def _keys_beside(cls: type[BaseModel], loc: tuple[int | str, ...]) -> Iterator[tuple[str, ...]]:
    at: Any = cls
    for step in loc[:-1]:
        if isinstance(step, str) and hasattr(at, "model_fields") and step in at.model_fields:
            at = _inner_model(at.model_fields[step].annotation)
    if hasattr(at, "model_fields"):
        yield tuple(at.model_fields)


def _inner_model(annotation: Any) -> Any:
    if hasattr(annotation, "model_fields"):
        return annotation
    found = [_inner_model(a) for a in getattr(annotation, "__args__", ())]
    return next((f for f in found if f is not None), None)


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = str(type(value).__name__)
    return text if len(text) <= 80 else text[:77] + "..."


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
