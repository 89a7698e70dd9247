"""Conversion of records (frozen dataclasses) to data for JSON, and back."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

R = TypeVar("R")


def plain(value: Any) -> Any:
    """Records as dictionaries by field name, tuples as lists; arrays and numbers unchanged.

    A field that is None is omitted if None is its default, else it is null. A trailing underscore of a name, which
    avoids a Python keyword, is omitted.

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


def restored(kind: type[R], data: Mapping[str, Any]) -> R:
    """Record of a class from `data`, which was written by `plain` as strict JSON.

    A null is None where the field may be None, and NaN where it is a number.

    Raises:
        KeyError: a field is missing.
    """
    return _value(kind, data)


def _value(kind: Any, data: Any) -> Any:
    if hasattr(kind, "from_plain"):
        return kind.from_plain(data)
    if dataclasses.is_dataclass(kind):
        return _record(kind, data)
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


def _record(kind: Any, data: Mapping[str, Any]) -> Any:
    types_of = typing.get_type_hints(kind)
    return kind(
        **{
            field.name: _value(types_of[field.name], data[_name(field)])
            for field in dataclasses.fields(kind)
            if _name(field) in data or field.default is not None
        }
    )


def _name(field: "dataclasses.Field[Any]") -> str:
    return field.name.removesuffix("_")
