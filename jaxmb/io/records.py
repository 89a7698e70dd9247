"""Conversion of records (frozen dataclasses) to data for JSON, and back."""

import dataclasses
import importlib.metadata
import json
import math
import platform
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from jaxmb.io.files import check_regular
from jaxmb.io.validation import InputError, Table


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a result depends on."""
    names = ("jaxmb", "jax", "jaxlib", "numpy", "scipy", "evosax", "optax", "equinox")
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in names}


def strict(value: Any) -> Any:
    """A value as data for strict JSON: numbers, lists and dictionaries, None for numbers that are not finite."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return strict(dataclasses.asdict(value))
    if isinstance(value, dict):
        return {str(k): strict(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [strict(v) for v in value]
    if isinstance(value, np.ndarray):
        return strict(value.tolist())
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value


def read_strict(path: Path, expected: str) -> Any:
    """Contents of a file of strict JSON.

    Args:
        path: of the file.
        expected: description of the expected file, for messages.

    Raises:
        InputError: the file cannot be read, is no strict JSON, or has a key twice in one object.
    """
    check_regular(path)
    try:
        return json.loads(path.read_bytes(), parse_constant=_refused, object_pairs_hook=_without_duplicates)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}, expected {expected}") from None
    except RecursionError:
        raise InputError(f"{path}: is nested too deeply, so not {expected}") from None
    except KeyError as error:
        raise InputError(f"{path}: has the key {error} twice in one object, so not {expected}") from None
    except ValueError:
        raise InputError(f"{path}: is no JSON, so not {expected}") from None


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> Table:
    values: Table = {}
    for key, value in pairs:
        if key in values:
            raise KeyError(key)
        values[key] = value
    return values


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
        types_of: Any = typing.get_type_hints(kind)
        given = (field for field in dataclasses.fields(kind) if _name(field) in data or field.default is not None)
        return kind(**{field.name: _value(types_of[field.name], data[_name(field)]) for field in given})
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
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
