"""A report as a file: one HTML page that needs no network, with interactive charts and animated
skeletons, or strict JSON, `report.json` in the folder of a command's results, from which a page can be made later."""

import dataclasses
import gzip
import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from importlib import util
from pathlib import Path
from typing import Any, Literal

import numpy as np

from jaxmb.io.files import read_strict, versions, write_atomically
from jaxmb.io.validation import InputError
from jaxmb.report import charts as of_charts, section as of_sections
from jaxmb.report.charts import Chart, Skeleton
from jaxmb.report.interactive import DIGITS, PIXELS, Json, Table as Object, cell_figure, numbers
from jaxmb.report.rendering import png_of
from jaxmb.report.section import Facts, Group, Picture, Section

MISSING = "the report page needs plotly, which is not installed: pip install 'jaxmb[report]'"
TALL = 900
"""Height of a figure in pixels from which it may be split between printed pages."""


@dataclasses.dataclass(frozen=True)
class Page:
    """Contents of a report page."""

    title: str
    subtitle: str
    verdict: str
    """"yes", "weak" or "no", its colour; "" for none."""
    sentences: Sequence[str]
    """The verdict, its main statement first."""
    sections: Sequence[Section]


Data = dict[Literal["cells", "skeletons"], list[Object]]
"""Numbers of the figures of a page."""


def page_html(page: Page) -> str:
    """The page as text.

    Raises:
        ModuleNotFoundError: plotly is not installed.
    """
    data: Data = {"cells": [], "skeletons": []}
    return _rendered("page.html", page=page, data=data, drawn=partial(_drawn, data=data), plotly=_plotly)


MOST_PICTURES = 4
"""Largest number of charts of a page in a notebook."""


def notebook_html(page: Page) -> str:
    """Verdict, tables and the first charts of a page as a fragment of HTML for notebooks, charts as pictures."""
    left, shown = MOST_PICTURES, []
    for section in page.sections:
        parts = [part for part in section.parts if not isinstance(part, Group)]
        charts = [part for part in parts if isinstance(part, Picture)][: min(left, 1)]
        left -= len(charts)
        kept = [part for part in parts if not isinstance(part, Picture) or part in charts]
        shown.append((section.title, kept, charts or not shown))
    return _rendered("notebook.html", page=page, sections=shown, png=_png)


def _png(chart: Chart | Skeleton) -> str:
    """Picture of a chart as base64 text."""
    return b64encode(png_of(chart, 100)).decode()


def _rendered(template: str, **values: object) -> str:
    """A template of this folder with values, whose texts are escaped."""
    from jinja2 import Environment, PackageLoader  # imported here: only pages need it

    templates = Environment(loader=PackageLoader("jaxmb.report", ""), autoescape=True, trim_blocks=True,
                            lstrip_blocks=True)  # fmt: skip
    templates.filters |= {"kind": lambda part: type(part).__name__, "prose": _prose}
    templates.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return templates.get_template(template).render(values)


def _prose(text: str) -> str:
    """A sentence as HTML, with commands in backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def plotly_folder() -> Path:
    """Folder of the package plotly.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    spec = util.find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(MISSING)
    return Path(spec.submodule_search_locations[0])


def _plotly() -> str:
    """plotly's JavaScript, compressed, as base64 text: 40 % of its size."""
    script = plotly_folder() / "package_data" / "plotly.min.js"
    return b64encode(gzip.compress(script.read_bytes(), 9, mtime=0)).decode()


def _drawn(picture: Picture, data: Data) -> Mapping[str, object]:
    """Chart of a figure, the number of its first cell or its skeleton in the data, to which its numbers are appended,
    and the layout of its cells."""
    chart = picture.chart()
    if isinstance(chart, Skeleton):
        data["skeletons"].append(_body(chart))
        return {"chart": chart, "number": len(data["skeletons"]) - 1}
    figures, columns = [cell_figure(chart, cell) for cell in chart.cells], max(map(len, chart.rows))
    data["cells"] += figures
    return {
        "chart": chart,
        "number": len(data["cells"]) - len(figures),
        "figures": figures,
        "columns": columns,
        "width": round((chart.width + 1.6) * PIXELS * columns) + 20,
        "tall": sum(panel.height for row in chart.rows for panel in row[0]) * PIXELS > TALL,
    }


def _body(body: Skeleton) -> Object:
    """Numbers of a skeleton."""
    s = body.structure
    return {
        "points": _rows(body.points), "size": body.size, "ground": s.ground, "ends": s.ends, "lines": s.lines,
        "springs": s.springs, "joints": s.joints,
        "modes": [{"re": _rows(np.real(mode.displacement)), "im": _rows(np.imag(mode.displacement)),
                   "energy": {name: float(f"{share:.4g}") for name, share in mode.energy.items()}}
                  for mode in body.modes],
        "arrows": [{"origin": _rows(a.origin), "vector": _rows(a.vector), "color": a.color} for a in body.arrows],
    }  # fmt: skip


def _rows(values: np.ndarray) -> list[Json]:
    return [numbers(row) for row in np.asarray(values, dtype=float)]


REPORT = "report.json"
SCHEMA = 2
CLASSES = {
    kind.__name__: kind
    for module, names in (
        (of_charts, "Axis Line Band Bars Span Rule Note Colors Cells Panel Chart Structure"
                    " ModeMotion Arrows Skeleton"),
        (of_sections, "Lines Facts Column Cell Table Group Section"),
    )
    for kind in (getattr(module, name) for name in names.split())
}  # fmt: skip
"""Classes of the file by name."""


def versions_text(found: Mapping[str, str]) -> str:
    """Versions of packages in a sentence."""
    return ", ".join(f"{name} {version}" for name, version in found.items())


def write_sections(path: Path, title: str, command: str, sections: Sequence[Section]) -> None:
    """Write the sections of a report.

    Args:
        path: of the file.
        title: of the report.
        command: that wrote it.
        sections: of the report.
    """
    data = {
        "schema": SCHEMA,
        "title": title,
        "command": command,
        "versions": versions(),
        "sections": [_encoded(each) for each in sections],
    }
    write_atomically(path, (json.dumps(data, allow_nan=False, separators=(",", ":")) + "\n").encode())


def read_sections(folder: Path) -> tuple[str, Facts, list[Section]]:
    """Title, provenance and sections of a report.

    Args:
        folder: in which a command wrote `report.json`.

    Raises:
        InputError: the file is missing or not of this version of jaxmb.
    """
    saved = read_strict(folder / REPORT, "a report of jaxmb")
    try:
        if saved["schema"] != SCHEMA:
            raise ValueError(f"schema {saved['schema']}")
        facts = [("command", str(saved["command"])), ("read from", str(folder))]
        if "versions" in saved:
            facts.append(("versions", versions_text(saved["versions"])))
        return str(saved["title"]), Facts(tuple(facts)), [_decoded(each) for each in saved["sections"]]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder / REPORT}: was not written by this version of jaxmb: {error!r}") from None


def _encoded(value: Any) -> Any:
    """A value of strict JSON for a part of a report."""
    match value:
        case Picture(name, chart):
            return {"kind": "Picture", "name": name, "chart": _encoded(chart())}
        case np.ndarray() | range():
            return _array(np.asarray(value))
        case _ if type(value).__name__ in CLASSES:
            names = getattr(value, "_fields", None) or [field.name for field in dataclasses.fields(value)]
            return {"kind": type(value).__name__} | {name: _encoded(getattr(value, name)) for name in names}
        case Mapping():
            return {"kind": "map", "items": {str(key): _encoded(each) for key, each in value.items()}}
        case list() | tuple():
            return [_encoded(each) for each in value]
        case float() | np.floating():
            return float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None
        case _:
            return value.item() if isinstance(value, np.generic) else value


def _array(values: np.ndarray) -> Any:
    if np.iscomplexobj(values):
        return {"kind": "complex", "real": _array(np.real(values)), "imag": _array(np.imag(values))}
    return {"kind": "array", "shape": list(values.shape), "values": numbers(values)}


def _decoded(value: Any) -> Any:
    match value:
        case list():
            return tuple(map(_decoded, value))
        case {"kind": "array", "shape": shape, "values": values}:
            return np.array(values, dtype=float).reshape(shape)
        case {"kind": "complex", "real": real, "imag": imag}:
            return _decoded(real) + 1j * _decoded(imag)
        case {"kind": "map", "items": items}:
            return {key: _decoded(each) for key, each in items.items()}
        case {"kind": "Picture", "name": name, "chart": chart}:
            decoded = _decoded(chart)
            return Picture(name, lambda: decoded)
        case dict():
            return CLASSES[value["kind"]](**{key: _decoded(each) for key, each in value.items() if key != "kind"})
        case _:
            return value
