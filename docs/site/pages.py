"""Differences between a page on a code host and on the site: links to files that are pages here, and navigation."""

import re
from pathlib import Path
from typing import Any

ENTRIES = {
    "CONTRIBUTING": "experiments/*/README",
    "docs/decisions/README": "*",
    "docs/theory/README": "*",
    "docs/study-format": "study/*",
    "docs/machine-format": "machine/*",
    "docs/result": "result/*",
}
"""Pages that list others, and the pages they list, for the navigation."""
NOTEBOOK = re.compile(r"\]\((\.\./)*notebooks/(\w+)\.py\)")


def _read(app: Any, name: str, source: list[str]) -> None:
    source[0] = NOTEBOOK.sub(_up_to(name) + r"gallery/\2.rst)", source[0])
    if name in ENTRIES:
        shown = "" if name == "CONTRIBUTING" else ":hidden:\n"
        source[0] += f"\n```{{toctree}}\n:glob:\n:titlesonly:\n{shown}\n{ENTRIES[name]}\n```\n"


def _up_to(name: str) -> str:
    """Beginning of a link from a page to the folder of documents."""
    depth = name.count("/")
    return "](" + ("" if name.startswith("docs/") and depth == 1 else "../" * depth + "docs/")


def _include(_app: Any, path: Path, _parent: str, source: list[str]) -> None:
    if path.name == "README.md":
        text = NOTEBOOK.sub(r"](gallery/\2.rst)", source[0]).replace("](docs/", "](")
        source[0] = re.sub(r"\]\((experiments/|CHANGELOG|CONTRIBUTING)", r"](../\1", text)


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("source-read", _read)
    app.connect("include-read", _include)
    return {"parallel_read_safe": True}
