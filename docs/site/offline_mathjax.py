"""MathJax beside the pages, so that equations are shown without a network."""

import importlib.util
import shutil
from pathlib import Path
from typing import Any

PARTS = ("tex-chtml.js", "output/chtml/fonts")
"""What pages load, of the files of the package `sphinx-mathjax-offline`."""


def _copy(app: Any, error: Exception | None) -> None:
    spec = importlib.util.find_spec("sphinx-mathjax-offline")
    if error is not None or spec is None or spec.origin is None:
        return
    source, target = Path(spec.origin).parent / "static" / "mathjax", Path(app.outdir) / "_static" / "mathjax"
    for part in PARTS:
        (target / part).parent.mkdir(parents=True, exist_ok=True)
        if (source / part).is_dir():
            shutil.copytree(source / part, target / part, dirs_exist_ok=True)
        else:
            shutil.copy(source / part, target / part)


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.config.mathjax_path = "mathjax/tex-chtml.js"
    app.connect("build-finished", _copy)
    return {"parallel_read_safe": True}
