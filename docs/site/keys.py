"""Tables of keys in the pages of file formats, from the schemas: `python docs/site/keys.py` rewrites them.

A page marks a table by `<!-- keys: module.Class, ... -->` and `<!-- end of keys -->`; it has the keys that these
classes declare, with type, unit, default and the docstring below the key. A docstring may end with the unit in
brackets; otherwise the end of the key names it.
"""

import ast
import functools
import importlib
import inspect
import itertools
import json
import re
import sys
import textwrap
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple

from annotated_types import Ge, Gt
from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from jaxmb.machine.values import Origin, angle

ROOTS = (
    "jaxmb.identify.study.format.study_format.StudyFile",
    "jaxmb.machine.schema.Machine",
    "jaxmb.machine.tables.DhTable",
    "jaxmb.measurement.records.schema.RecordsFile",
    "jaxmb.measurement.motion.csv_motion.MotionFile",
)
"""What files hold; all other schemas are parts of these."""
BLOCK = re.compile(r"(<!-- keys: ([\w., ]+) -->\n).*?(<!-- end of keys -->)", re.DOTALL)
UNIT = re.compile(r"\s*\[([^\]]+)\]\.?$")
SUFFIXES = {
    "1_s": "1/s", "ppm": "ppm", "percent": "%", "mrad": "mrad", "deg": "deg", "mm": "mm", "kg": "kg", "hz": "Hz",
    "ns": "N s", "ms": "ms", "us": "us", "m": "m", "n": "N", "s": "s", "g": "g", "log_std": "1",
}  # fmt: skip
"""Units by the ends of keys."""


class Key(NamedTuple):
    """One key of a schema."""

    name: str
    type: str
    unit: str
    default: str
    text: str
    is_number: bool


def schema(path: str) -> type[BaseModel]:
    """The class of a dotted path."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@functools.cache
def docstrings(part: type[BaseModel]) -> dict[str, str]:
    """Texts below the keys that a class declares."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(part))).body
    found = {}
    for node, below in itertools.pairwise(typing.cast(ast.ClassDef, body).body):
        is_key = isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if is_key and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[node.target.id] = " ".join(str(below.value.value).split())
    return found


def text_of(part: type[BaseModel], key: str) -> str:
    """Docstring of a key, of the class or of the nearest one that it extends; "" without any."""
    return next(
        (
            docstrings(c)[key]
            for c in part.__mro__
            if issubclass(c, BaseModel) and c is not BaseModel and key in docstrings(c)
        ),
        "",
    )


def _number(metadata: Sequence[Any], kind: str) -> str:
    bounds = [m for entry in metadata for m in (entry.metadata if isinstance(entry, FieldInfo) else [entry])]
    for bound in bounds:
        if isinstance(bound, Gt):
            return f"{kind} > {bound.gt:g}"
        if isinstance(bound, Ge):
            return f"{kind} ≥ {bound.ge:g}"
    return kind


def type_of(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """Type of a key in the words of a file's author."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return type_of(arguments[0], [*metadata, *arguments[1:]])
    if origin in (typing.Union, UnionType):
        return " or ".join(dict.fromkeys(type_of(a, metadata) for a in arguments if a is not NoneType))
    if origin is Literal:
        return ", ".join(f'`"{value}"`' for value in arguments)
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return f"list of {type_of(arguments[0])}"
        kinds = list(dict.fromkeys(type_of(a) for a in arguments))
        return f"[{', '.join(kinds)}] x {len(arguments)}" if len(kinds) == 1 else f"[{', '.join(kinds)}]"
    if origin is dict:
        return f"table of {type_of(arguments[1])}"
    if annotation is bool:
        return "`true`, `false`"
    if annotation is float:
        is_angle = any(isinstance(m, BeforeValidator) and m.func is angle for m in metadata)
        return "angle" if is_angle else _number(metadata, "number")
    if annotation is int:
        return _number(metadata, "integer")
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return "origin" if annotation is Origin else "table"
    return "text" if annotation is str else "value"


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is PydanticUndefined and field.default_factory is None:
        return "required"
    if value is None or value in ((), {}, "") or isinstance(value, BaseModel):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f'`"{value}"`'
    if isinstance(value, tuple):
        return "0" if all(entry == 0 for entry in value) else f"`{json.dumps(value)}`"
    return f"`{value:.4g}`" if isinstance(value, float) else f"`{value}`"


def keys_of(part: type[BaseModel]) -> list[Key]:
    """Keys that a class itself declares."""
    hints = typing.get_type_hints(part, include_extras=True)
    found = []
    for name in [n for n in part.__annotations__ if n in part.model_fields]:
        field, text = part.model_fields[name], text_of(part, name)
        unit = UNIT.search(text)
        kind = type_of(hints[name])
        is_number = "number" in kind or "angle" in kind
        by_name = next((u for end, u in SUFFIXES.items() if name.endswith(f"_{end}")), "") if is_number else ""
        described = UNIT.sub(".", text).replace("..", ".") if unit else text
        found.append(Key(name, kind, unit[1] if unit else by_name, _default(field), described, is_number))
    return found


def _parts_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _parts_in(argument)


def all_schemas() -> list[type[BaseModel]]:
    """All schemas that files hold."""
    found: dict[type[BaseModel], None] = {}
    open_parts = [schema(root) for root in ROOTS]
    while open_parts:
        part = open_parts.pop()
        if part not in found:
            found[part] = None
            open_parts += [
                p for hint in typing.get_type_hints(part, include_extras=True).values() for p in _parts_in(hint)
            ]
    return list(found)


def table(parts: list[type[BaseModel]]) -> str:
    """Markdown table of the keys that classes declare; of a key of several, the last."""
    keys = {key.name: key for part in parts for key in keys_of(part)}
    has_units = any(key.unit for key in keys.values())
    head = ["key", "type", *(["unit"] if has_units else []), "default", "meaning"]
    rows = [head, ["---"] * len(head)]
    for key in keys.values():
        unit = [key.unit] if has_units else []
        rows.append([f"`{key.name}`", key.type, *unit, key.default, key.text.replace("|", "\\|")])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def with_tables(text: str) -> str:
    """A page with its tables of keys written anew."""

    def fill(block: re.Match[str]) -> str:
        return block[1] + table([schema(path.strip()) for path in block[2].split(",")]) + block[3]

    return BLOCK.sub(fill, text)


def documented(pages: list[str]) -> set[type[BaseModel]]:
    """Classes whose keys the pages list."""
    return {schema(path.strip()) for page in pages for block in BLOCK.finditer(page) for path in block[2].split(",")}


if __name__ == "__main__":
    docs = Path(__file__).parents[1]
    for page in sorted(docs.rglob("*.md")):
        old = page.read_text()
        if (new := with_tables(old)) != old:
            page.write_text(new)
            print(page.relative_to(docs.parent), file=sys.stderr)
