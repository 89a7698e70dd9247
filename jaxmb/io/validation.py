"""Validation of file contents, with one sentence on the first error."""

import difflib
import functools
import inspect
import json
import math
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any, NamedTuple, ParamSpec, TypeVar, get_args

from pydantic import BaseModel, ValidationError

EXPECTED = {
    "float_type": "a number",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "tuple_type": "a list",
    "list_type": "a list",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "string_type": "a text",
}
"""Names of the expected types in terms of the file, by pydantic's type of error."""
LIMITS = {
    "greater_than_equal": ("ge", "a number of at least {}"),
    "less_than_equal": ("le", "a number of at most {}"),
    "string_too_short": ("min_length", "a text of at least {} characters"),
    "string_too_long": ("max_length", "a text of at most {} characters"),
    "too_short": ("min_length", "at least {} items"),
}
"""The same for errors with a limit: pydantic's name of the limit, and a template."""

Table = dict[str, Any]
"""A table of a TOML file or object of a JSON file, before validation or for writing."""
T = TypeVar("T", bound=BaseModel)
Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")


class InputError(ValueError):
    """Wrong input from a file: the message names the file, the location, the value found and the expectation."""


def validated(
    cls: type[T],
    data: Table,
    source: str,
    prepare: Callable[[Table], Table] | None = None,
) -> T:
    """Description of class `cls` from the contents of a file.

    Args:
        cls: class of the description.
        data: contents of the file.
        source: name of the file, for messages.
        prepare: rewrites shorthand (such as DH tables) before validation; raises ValueError where it cannot.

    Raises:
        InputError: one sentence naming the file, the location, the value found and the expectation.
    """
    with error_location(source):
        try:
            data = prepare(data) if prepare else data
            return cls.model_validate(data)
        except ValidationError as error:
            raise ValueError(sentence(error, data, cls)) from None


CLOSE, CLOSE_NAME = 0.7, 0.65
"""Similarity of two keys or headings, and of two names, by `difflib`, from which on one may be meant by the other."""


Models = tuple[type[BaseModel], ...]


class _Error(NamedTuple):
    """An error of pydantic."""

    type: str
    loc: tuple[int | str, ...]
    """Keys and indices, without the tags and members of unions that pydantic inserts among them."""
    union: tuple[int | str, ...]
    """Location of the value of union type in which the error is; `loc` where there is none."""
    siblings: tuple[str, ...]
    """Valid keys at the last step of the location."""
    models: Models
    """Classes of the part at the location."""
    msg: str
    input: Any
    context: Table


def sentence(error: ValidationError, data: Table, cls: type[BaseModel]) -> str:
    """One sentence on the most informative error: the location, the value found and the expectation."""
    errors = [
        _Error(e["type"], *_located(cls, data, e["loc"]), e["msg"], e["input"], e.get("ctx", {}))
        for e in error.errors(include_url=False)
    ]
    errors = _of_intended_type(errors)
    # A list whose items are invalid is reported as too short as well.
    errors = [e for e in errors if e.type != "too_short"] or errors
    # A misspelt key is reported as unknown and as missing: the former is more informative.
    first = min(errors, key=lambda e: e.type != "extra_forbidden")
    location, context = _location_text(first.loc, data), first.context
    key = first.loc[-1] if first.loc else ""
    found_text = f"found {shown(first.input)}, expected"
    match first.type:
        case "extra_forbidden":
            hint = suggestion(str(key), first.siblings, CLOSE) or ";"
            text = f"unknown key{hint} expected one of: {', '.join(first.siblings)}"
        case "missing" if isinstance(key, int):
            location = _location_text(first.loc[:-1], data)
            text = f"{found_text} at least {key + 1} items"
        case "missing":
            text = "missing, expected a value"
        case "too_long":
            text = f"{found_text} {context.get('max_length')} items"
        case "union_tag_invalid" | "union_tag_not_found":
            key = str(context.get("discriminator", "kind")).strip("'_()")
            location = f"{location}, {key}"
            fields = [m.model_fields[key] for m in first.models if key in m.model_fields]
            tags = [tag for field in fields for tag in get_args(field.annotation)]
            tag_text, hint = "missing", ""
            if "tag" in context:
                tag_text, hint = f"found {shown(context['tag'])}", suggestion(str(context["tag"]), tags)
            text = f"{tag_text}{hint or ','} expected one of {', '.join(map(repr, tags))}"
        case "value_error" if isinstance(first.input, dict | BaseModel):
            text = str(context.get("error"))
        case "value_error":
            text = f"found {shown(first.input)}, {context.get('error')}"
        case _:
            text = f"{found_text} {_expected(first)}"
    more = len(errors) - 1
    text = f"{location}: {text}" if location else text
    return text + (f" (and {more} more {'error' if more == 1 else 'errors'})" if more else "")


def _expected(error: _Error) -> str:
    """The expectation of an error on the type of a value or on a limit."""
    if error.type in ("list_type", "tuple_type") and isinstance(error.input, dict) and error.models:
        return f"a list of tables, [[{error.loc[-1]}]]"
    if error.type in LIMITS:
        name, segments = LIMITS[error.type]
        limit = error.context.get(name)
        if error.type == "greater_than_equal" and limit == 0:
            return "a number not below 0"
        return re.sub(r"^(.*\b1 \w+)s$", r"\1", segments.format(f"{limit:g}" if isinstance(limit, float) else limit))
    return EXPECTED.get(error.type) or error.msg.removeprefix("Input should be ")


def _of_intended_type(errors: list[_Error]) -> list[_Error]:
    """Errors of values of union type reduced to those of the member that matches the value's type; where no member
    matches, one error that names them all."""
    by_value: dict[tuple[int | str, ...], list[_Error]] = {}
    for error in errors:
        by_value.setdefault(error.union, []).append(error)
    intended = []
    for group in by_value.values():
        wrong_type = [e for e in group if e.type in EXPECTED or e.type == "literal_error"]
        wrong_type = [e for e in wrong_type if e.loc == min((g.loc for g in group), key=len)]
        if len(wrong_type) == len(group) > 1:
            intended.append(group[0]._replace(type="none", msg=" or ".join(dict.fromkeys(map(_expected, group)))))
        else:
            intended += [e for e in group if e not in wrong_type] or group
    return intended


def _location_text(loc: tuple[int | str, ...], data: Any) -> str:
    """Location in the file as text, with names instead of indices where items have them."""
    segments: list[str] = []
    at: Any = data
    for step in loc:
        at = _entry(at, step, None)
        if isinstance(step, int):
            name = at.get("name") if isinstance(at, dict) else None
            segments[-1:] = [
                f"{segments[-1] if segments else 'item'} "
                + (f"'{_shortened(name)}'" if isinstance(name, str) else f"number {step + 1}")
            ]
        else:
            segments.append(_shortened(step) or '""')
    return ", ".join(segments)


def _located(
    cls: type[BaseModel], data: Table, loc: tuple[int | str, ...]
) -> tuple[tuple[int | str, ...], tuple[int | str, ...], tuple[str, ...], Models]:
    """Location of an error without the tags (such as "frf") and members of unions, which are no keys of the file; that
    of the value of union type, or the same without one; the valid keys at its last step; and the classes of the part
    there."""
    keys, union, at = list[int | str](), None, data
    models = siblings = (cls,)
    for step in loc:
        siblings = models
        tagged = tuple(m for m in models if len(models) > 1 and _is_tagged(m, step))
        holder = next((m for m in models if step in m.model_fields), None)
        if tagged and holder is None:
            models = tagged
        elif isinstance(step, str) and not (isinstance(at, dict) and (step in at or "[" not in step)):
            union = tuple(keys) if union is None else union
        else:
            keys.append(step)
            at = _entry(at, step, {})
        if holder is not None:
            models = tuple(_models_in(holder.model_fields[str(step)].annotation))
    fields = [f.alias or name for name, f in siblings[0].model_fields.items()] if siblings else []
    valid = (*fields, *(getattr(siblings[0], "FILE_KEYS", ()) if siblings else ()))
    return tuple(keys), tuple(keys) if union is None else union, valid, models


def _entry(at: Any, step: int | str, missing: Any) -> Any:
    try:
        return at[step]
    except (KeyError, IndexError, TypeError):
        return missing


def _is_tagged(model: type[BaseModel], tag: int | str) -> bool:
    """Whether a field of a model admits only this text, as the discriminator of a union does."""
    return any(get_args(f.annotation) == (tag,) for f in model.model_fields.values())


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Model classes in the annotation of a field, including lists, tables and unions."""
    if hasattr(annotation, "model_fields"):
        yield annotation
    else:
        for part in get_args(annotation):
            yield from _models_in(part)


def shown(value: Any) -> str:
    """A value for a message: on one line, at most 80 characters."""
    try:
        typed = json.dumps(value, ensure_ascii=False)
        text = typed if typed.isprintable() else json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = str(type(value).__name__)
    return text if len(text) <= 80 else text[:77] + "..."


def _shortened(name: str) -> str:
    return shown(name)[1:].removesuffix('"')


def known_name(label: str, name: str, names: Iterable[str], unlisted: Iterable[str] = ()) -> str:
    """Message for a name that does not exist, with the closest existing name, also of those that are not listed."""
    names = list(names)
    if not names:
        return f"{label} '{name}' does not exist, and there is no other"
    hint = suggestion(str(name), (*names, *unlisted))
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"{label} '{name}' does not exist{hint or ';'} expected one of: {shown}"


def suggestion(name: str, names: Iterable[str], close: float = CLOSE_NAME) -> str:
    """Clause ", did you mean '...'?" with the name closest to a wrong one; empty where none is close."""
    near = closest(name, names, close)
    return f", did you mean '{near}'?" if near is not None else ""


SHORTEST_BEGINNING = 3
"""Least length of a wrong name that is taken for the beginning of a right one."""


def closest(name: str, names: Iterable[str], close: float = CLOSE_NAME) -> str | None:
    """The name most similar to a wrong one, or that begins with it, ignoring case; None where none is close."""
    wanted = name.lower()
    matcher, nearest, best = difflib.SequenceMatcher(b=wanted), None, (close, False, 0.0)
    for candidate in names:
        matcher.set_seq1(candidate.lower())
        begins = len(wanted) >= SHORTEST_BEGINNING and candidate.lower().startswith(wanted)
        alike = matcher.quick_ratio()  # of the letters in any order, an upper bound of the ratio
        if not begins and alike < best[0]:
            continue
        rank = max(matcher.ratio(), CLOSE if begins else 0.0), begins, alike
        if rank > best:
            nearest, best = candidate, rank
    return nearest


def check_known(label: str, given: Iterable[str], names: Collection[str]) -> None:
    """Raise ValueError for the first of the given names that does not exist."""
    for name in given:
        if name not in names:
            raise ValueError(known_name(label, name, names))


def check_without_unit(heads: Iterable[str], names: Collection[str]) -> None:
    """Raise ValueError for the first heading that is a name and a unit, where columns are in rad or m."""
    for head in heads:
        name, space, _ = head.partition(" ")
        if space and name in names:
            raise ValueError(f"column '{head}' has a unit, expected the heading '{name}', in rad or m")


MADE_BY = {"Machine": "load_machine", "Model": "build_model", "Study": "load_study", "FrfSet": "read_frf"}
"""Function that returns an object of a class, for messages."""


def typed_arguments(function: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
    """Decorator: ValueError for an argument that is annotated with a class of jaxmb and is no object of it."""
    signature = inspect.signature(function)
    is_open = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())
    classes = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if isinstance(parameter.annotation, type) and parameter.annotation.__module__.startswith("jaxmb.")
    }

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
        unknown = [name for name in kwargs if name not in signature.parameters]
        if unknown and not is_open:
            raise TypeError(known_name(f"{function.__name__}: argument", unknown[0], signature.parameters))
        given = signature.bind_partial(*args, **kwargs).arguments  # Python names what is missing
        for name, expected in classes.items():
            if name in given and not isinstance(given[name], expected):
                made_by = MADE_BY.get(expected.__name__)
                hint = f", as returned by jaxmb.{made_by}" if made_by else ""
                raise ValueError(f"{name} is {shown(given[name])}, expected a {expected.__name__}{hint}")
        return function(*args, **kwargs)

    return call


def finite_number(
    label: str, value: Any, *, above: float = -math.inf, least: float = -math.inf, below: float = math.inf
) -> float:
    """The value as a float; ValueError where it is no finite real number within the limits."""
    try:
        if isinstance(value, str | bytes | bool):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{label} is {shown(value)}, expected a number") from None
    if not math.isfinite(number):
        raise ValueError(f"{label} is {number}, expected a finite number")
    if not (number > above and least <= number < below):
        limits = {"above": above, "of at least": least, "below": below}
        expected = " and ".join(f"{name} {limit:g}" for name, limit in limits.items() if math.isfinite(limit))
        raise ValueError(f"{label} is {value}, expected a number {expected}")
    return number


def whole_number(label: str, value: object, least: int) -> int:
    """The value as a whole number of at least `least`; ValueError for others."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{label} is {value!r}, expected a whole number of at least {least}")
    return int(value)


def check_choice(label: str, value: object, choices: Iterable[str]) -> None:
    """Raise ValueError for an argument that is none of its possible values."""
    choices = list(choices)
    if value not in choices:
        hint = suggestion(str(value), choices) or ","
        raise ValueError(f"{label} is '{value}'{hint} expected one of {', '.join(choices)}")


def check_distinct(names: Sequence[str], message: str) -> None:
    """Raise ValueError for the first name that occurs more than once, which replaces "{}" in the message."""
    seen: set[str] = set()
    twice = next((name for name in names if name in seen or seen.add(name)), None)
    if twice is not None:
        raise ValueError(message.format(twice))


Entry = TypeVar("Entry")


class Named(dict[str, Entry]):
    """Entries by name; the KeyError for a name that does not exist suggests the closest one."""

    def __missing__(self, name: str) -> Entry:
        raise KeyError(known_name("parameter", str(name), self))


@contextmanager
def error_location(text: str) -> Iterator[None]:
    """Prefix the messages of errors with a location.

    Raises:
        InputError: instead of a ValueError, with the location.
        NotImplementedError: likewise.
    """
    try:
        yield
    except NotImplementedError as error:
        raise NotImplementedError(_with_location(text, error)) from None
    except ValueError as error:
        raise InputError(_with_location(text, error)) from None


@contextmanager
def warnings_as_remarks() -> Iterator[list[str]]:
    """Texts of the warnings (UserWarning) raised inside, each once; other categories are warned of as elsewhere."""
    texts = list[str]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield texts
    for one in caught:
        if one.category is UserWarning:
            texts.append(str(one.message))
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    texts[:] = dict.fromkeys(texts)


def _with_location(text: str, error: Exception) -> str:
    """The message prefixed with the location, unless it already is."""
    return str(error) if str(error).startswith(f"{text}: ") else f"{text}: {error}"


MOST_NAMED = 5
"""Largest number of names listed in a sentence."""


def listed(names: Sequence[str], most: int = MOST_NAMED) -> str:
    """Names in a sentence, "and 3 more" for those beyond the first few."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


LARGEST_PERCENTAGE = 1000.0


def percentage(value: float, form: str = ".0f") -> str:
    """A percentage in a sentence or table, ">1000" or "<-1000" where it is larger."""
    if math.isfinite(value) and abs(value) > LARGEST_PERCENTAGE:
        return f">{LARGEST_PERCENTAGE:g}" if value > 0.0 else f"<-{LARGEST_PERCENTAGE:g}"
    return format(value, form)


def display_name(name: str) -> str:
    """A test in a sentence: "test 'arm'", and "test 1" where that is all its name."""
    return name if re.fullmatch(r"test \d+", name) else f"test '{name}'"
