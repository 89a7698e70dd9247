"""Records, frozen dataclasses of numbers, as the plain data that JSON holds, and back."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

R = TypeVar("R")


def plain(value: Any) -> Any:
    """Records as dictionaries by the names of their fields, tuples as lists; arrays and numbers as they are.

    A field whose default is None is left out where it is None; of any other, None is null. An underscore at the end of
    a name, which a keyword of Python needs, is left out.

    A record with a method `as_plain` says itself how it is written, and then has `from_plain` as well.
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
    """The record of a class that was written as `data`, by `plain` and then as strict JSON.

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
        return np.array(data, dtype=float)  # which makes NaN of None
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
