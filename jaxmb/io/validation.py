"""From the contents of a file to a description, or one clear sentence about the first thing that is wrong."""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

EXPECTED = {
    "float_type": "a number",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "string_type": "a text",
}
"""What stands in a file, in words for those who write it, by pydantic's type of error."""
LIMITS = {
    "greater_than_equal": ("ge", "a number of at least {}"),
    "less_than_equal": ("le", "a number of at most {}"),
    "string_too_short": ("min_length", "a text of at least {} characters"),
    "string_too_long": ("max_length", "a text of at most {} characters"),
    "too_short": ("min_length", "at least {} items"),
}
"""The same where a limit belongs to it: by which name pydantic states that."""

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
    found: list[dict[str, Any]] = [dict(e) for e in error.errors(include_url=False)]
    for each in found:
        each["loc"], each["beside"] = _without_tags(cls, each["loc"])
    errors = _as_meant(found, data)
    # A list whose items are wrong is called too short as well.
    errors = [e for e in errors if e["type"] != "too_short"] or errors
    # A misspelt key gives both an unknown and a missing one: the unknown one says more.
    first = min(errors, key=lambda e: e["type"] != "extra_forbidden")
    place = _place(first["loc"], data)
    key = first["loc"][-1] if first["loc"] else ""
    if first["type"] == "extra_forbidden":
        allowed = list(first["beside"])
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
        text = f"{place}: found {shown(first['input'])}, expected {_expected(first)}"
    more = len(errors) - 1
    return text + (f" (and {more} more {'error' if more == 1 else 'errors'})" if more else "")


def _expected(error: dict[str, Any]) -> str:
    """What was expected where a value is of another kind or beyond a limit."""
    if error["type"] in LIMITS:
        name, words = LIMITS[error["type"]]
        limit = error.get("ctx", {}).get(name)
        if error["type"] == "greater_than_equal" and limit == 0:
            return "a number not below 0"
        return re.sub(r"^(.*\b1 \w+)s$", r"\1", words.format(f"{limit:g}" if isinstance(limit, float) else limit))
    return EXPECTED.get(error["type"]) or error["msg"].removeprefix("Input should be ")


def _as_meant(errors: list[dict[str, Any]], data: Any) -> list[dict[str, Any]]:
    """Errors of a value that may be of several kinds, where each kind has its own: those of the kind that it is of.

    Where it is of none of them, one error that names them all. Names of kinds, which pydantic puts among the keys, go.
    """
    by_value: dict[tuple[int | str, ...], list[dict[str, Any]]] = {}
    for error in errors:
        value, error["loc"] = _without_kinds(error["loc"], data)
        by_value.setdefault(value if value is not None else error["loc"], []).append(error)
    meant = []
    for group in by_value.values():
        other_kind = [e for e in group if e["type"] in EXPECTED or e["type"] == "literal_error"]
        other_kind = [e for e in other_kind if e["loc"] == min((g["loc"] for g in group), key=len)]
        if len(group) > 1 and len(other_kind) == len(group):
            meant.append(group[0] | {"type": "none", "msg": " or ".join(dict.fromkeys(map(_expected, group)))})
        elif len(group) > 1:
            meant += [e for e in group if e not in other_kind]
        else:
            meant += group
    return meant


def _without_kinds(loc: tuple[int | str, ...], data: Any) -> tuple[tuple[int | str, ...] | None, tuple[int | str, ...]]:
    """Place of the value that may be of several kinds, None where there is none, and the keys alone."""
    keys: list[int | str] = []
    value, at = None, data
    for step in loc:
        if isinstance(step, str) and not (isinstance(at, dict) and (step in at or "[" not in step)):
            value = tuple(keys) if value is None else value
            continue
        keys.append(step)
        try:
            at = at[step]
        except (KeyError, IndexError, TypeError):
            at = {}
    return value, tuple(keys)


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
            words.append(_cut(step) or '""')
    return ", ".join(words)


def _without_tags(cls: type[BaseModel], loc: tuple[int | str, ...]) -> tuple[tuple[int | str, ...], tuple[str, ...]]:
    """Place of an error without the tags of unions ("frf" of a test whose kind that is), which are no keys of the file;
    and the keys that there are beside the last step of it."""
    keys: list[int | str] = []
    models: list[type[BaseModel]] = [cls]
    beside: list[type[BaseModel]] = models
    for step in loc:
        beside = models
        tagged = [m for m in models if len(models) > 1 and _is_tagged(m, step)]
        holder = next((m for m in models if step in m.model_fields), None)
        if tagged and holder is None:
            models = tagged
            continue
        keys.append(step)
        if holder is not None:
            models = list(_models_in(holder.model_fields[str(step)].annotation))
    return tuple(keys), tuple(f.alias or name for name, f in beside[0].model_fields.items()) if beside else ()


def _is_tagged(model: type[BaseModel], tag: int | str) -> bool:
    """Whether one of a model's required fields can be this text alone: that is by what a union tells its members."""
    return any(f.is_required() and get_args(f.annotation) == (tag,) for f in model.model_fields.values())


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The classes that a field may hold, in lists, tables and unions too."""
    if hasattr(annotation, "model_fields"):
        yield annotation
    else:
        for part in get_args(annotation):
            yield from _models_in(part)


def shown(value: Any) -> str:
    """A value as it may stand in a message: on one line, and short."""
    try:
        typed = json.dumps(value, ensure_ascii=False)
        text = typed if typed.isprintable() else json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = str(type(value).__name__)
    return text if len(text) <= 80 else text[:77] + "..."


def _cut(name: str) -> str:
    return shown(name)[1:].removesuffix('"')


def known_name(what: str, name: str, names: Iterable[str]) -> str:
    """Sentence for a name that does not exist, with the nearest ones that do."""
    names = list(names)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f", did you mean '{near[0]}'?" if near else ""
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"{what} '{name}' does not exist{hint or ';'} expected one of: {shown}"


Entry = TypeVar("Entry")


class Named(dict[str, Entry]):
    """Entries by name; the KeyError for a name that does not exist suggests the nearest one."""

    def __missing__(self, name: str) -> Entry:
        raise KeyError(known_name("parameter", str(name), self))


@contextmanager
def place(text: str) -> Iterator[None]:
    """Name the place in front of what is wrong there.

    Raises:
        InputError: instead of a ValueError, the place in front.
        NotImplementedError: likewise.
    """
    try:
        yield
    except NotImplementedError as error:
        raise NotImplementedError(_placed(text, error)) from None
    except ValueError as error:
        raise InputError(_placed(text, error)) from None


def _placed(text: str, error: Exception) -> str:
    """The message with the place in front, unless it is there already."""
    return str(error) if str(error).startswith(f"{text}: ") else f"{text}: {error}"
