"""From the contents of a file to a description, or one clear sentence about the first thing that is wrong."""

import difflib
import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

EXPECTED = {
    "float_type": "a number",
    "greater_than_equal": "a number not below 0",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "string_type": "a text",
}
"""What stands in a file, in words for those who write it, by pydantic's type of error."""

T = TypeVar("T", bound=BaseModel)


class InputError(ValueError):
    """Wrong input from a file: the message names the file, the place, what stood there and what was expected."""


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
        data = prepare(data) if prepare else data
        return cls.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{source}: {sentence(error, data, cls)}") from None
    except NotImplementedError as error:
        raise NotImplementedError(f"{source}: {error}") from None
    except ValueError as error:
        raise InputError(f"{source}: {error}") from None


def sentence(error: ValidationError, data: dict[str, Any], cls: type[BaseModel]) -> str:
    """One sentence for the most telling of the errors: the place, what stood there and what was expected."""
    errors = error.errors(include_url=False)
    # A list whose items are wrong is called too short as well.
    errors = [e for e in errors if e["type"] != "too_short"] or errors
    # A misspelt key gives both an unknown and a missing one: the unknown one says more.
    first = min(errors, key=lambda e: e["type"] != "extra_forbidden")
    place = _place(first["loc"], data)
    key = first["loc"][-1] if first["loc"] else ""
    if first["type"] == "extra_forbidden":
        allowed = [k for e in _keys_beside(cls, first["loc"]) for k in e]
        near = difflib.get_close_matches(str(key), allowed, n=1)
        hint = f", did you mean '{near[0]}'?" if near else ";"
        text = f"{place}: unknown key{hint} expected one of: {', '.join(allowed)}"
    elif first["type"] == "missing" and isinstance(key, int):
        text = f"{_place(first['loc'][:-1], data)}: found {shown(first['input'])}, expected at least {key + 1} items"
    elif first["type"] == "missing":
        text = f"{place}: missing, expected a value"
    elif first["type"] == "too_long":
        text = f"{place}: found {shown(first['input'])}, expected {first.get('ctx', {}).get('max_length')} items"
    elif first["type"] in ("union_tag_invalid", "union_tag_not_found"):
        context = first.get("ctx", {})
        key = str(context.get("discriminator", "kind")).strip("'")
        stood = f"found {shown(context['tag'])}" if "tag" in context else "missing"
        text = f"{place}, {key}: {stood}, expected one of {context.get('expected_tags', 'the known kinds')}"
    elif first["type"] == "value_error":
        message = str(first.get("ctx", {}).get("error"))
        stood = "" if isinstance(first["input"], dict | BaseModel) else f"found {shown(first['input'])}, "
        text = f"{place}: {stood}{message}" if place else message
    else:
        expected = EXPECTED.get(first["type"]) or first["msg"].removeprefix("Input should be ")
        text = f"{place}: found {shown(first['input'])}, expected {expected}"
    more = len(errors) - 1
    return text + (f" (and {more} more {'error' if more == 1 else 'errors'})" if more else "")


def _place(loc: tuple[int | str, ...], data: Any) -> str:
    """Where in the file: names instead of numbers where the items have them."""
    words: list[str] = []
    at: Any = data
    for step in loc:
        try:
            at = at[step]
        except (KeyError, IndexError, TypeError):
            at = None
        if isinstance(step, int):
            name = at.get("name") if isinstance(at, dict) else None
            words[-1:] = [
                f"{words[-1] if words else 'item'} "
                + (f"'{_cut(name)}'" if isinstance(name, str) else f"number {step + 1}")
            ]
        else:
            words.append(_cut(step))
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


def shown(value: Any) -> str:
    """A value as it may stand in a message: on one line, and short."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = str(type(value).__name__)
    return text if len(text) <= 80 else text[:77] + "..."


def _cut(name: str) -> str:
    return shown(name)[1:].removesuffix('"')
