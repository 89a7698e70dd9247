"""Docstrings as reStructuredText: text in backticks is code, and a link where it is a public name; equations and shapes
in plain text contain characters that would be markup."""

import re
from collections.abc import Mapping
from typing import Any

import api_pages

CODE = re.compile(r"(``.*?``|`[^`]*`)", re.DOTALL)
MARKUP = re.compile(r"(\*|\||(?<=\w)_(?!\w))")


def as_markup(text: str, public: Mapping[str, str]) -> str:
    """The text with names in backticks as code or links, and characters of inline markup escaped elsewhere.

    Args:
        text: of a docstring.
        public: full names of public objects by the names that docstrings use.
    """
    parts = []
    for part in CODE.split(text):
        name = part.strip("`")
        if not part.startswith("`"):
            parts.append(MARKUP.sub(r"\\\1", part))
        elif name in public:
            parts.append(f":py:obj:`{name} <{public[name]}>`")
        else:
            parts.append(f"``{name}``")
    return "".join(parts)


def _as_markup(_app: Any, kind: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    lines[:] = as_markup("\n".join(lines), api_pages.links()).split("\n")
    if kind in ("attribute", "property"):
        lines.insert(0, "")  # napoleon takes the first line up to a colon for a type


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx, before napoleon reads the sections of a docstring."""
    app.connect("autodoc-process-docstring", _as_markup, priority=400)
    return {"parallel_read_safe": True}
