"""A report as a file: one HTML page that needs no network, with interactive charts and animated
skeletons, or strict JSON, `report.json` in the folder of a command's results, from which a page can be made later."""

import base64
import dataclasses
import gzip
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from importlib import resources, util
from pathlib import Path
from typing import Any, Literal

import numpy as np

from jaxmb.io.files import read_strict, versions, write_atomically
from jaxmb.io.validation import InputError
from jaxmb.report import charts as of_charts, section as of_sections
from jaxmb.report.charts import Bars, Chart, Intervals, Line, Mark, Rule, Skeleton
from jaxmb.report.interactive import DIGITS, PIXELS, Json, Table as Object, cell_figure, numbers
from jaxmb.report.rendering import png_of
from jaxmb.report.section import Cell, Facts, Group, Lines, Part, Picture, Section, Table

MISSING = "the report page needs plotly, which is not installed: pip install 'jaxmb[report]'"
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:;"
    " font-src data:"
)
"""Content of the page's security policy: nothing is loaded from a network."""
TALL = 900
"""Height of a figure in pixels from which it may be split between printed pages."""
LONG = 40
"""Characters of a cell of a table from which it may be wrapped."""


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
    draw = partial(_figure, data=data)
    body = []
    for k, section in enumerate(page.sections, 1):
        parts = "\n".join(_part(part, draw) for part in section.parts)
        body.append(f'<section id="s{k}"><h2>{escape(section.title)}</h2>\n{parts}\n</section>\n')
    toc = "".join(f'<li><a href="#s{k}">{escape(s.title)}</a></li>' for k, s in enumerate(page.sections, 1))
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    text = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")  # inside a script element
    bundle = f'<script type="text/plain" id="plotly">{_plotly()}</script>' if data["cells"] else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<link rel="icon" href="data:,">
<title>{escape(page.title)}</title>
<style>{_asset("page.css")}</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<div class="sheet">
<header><h1>{escape(page.title)}</h1><p>{escape(page.subtitle)}</p></header>
<noscript><p>Figures need JavaScript; texts and tables do not.</p></noscript>
{_verdict(page)}
<nav aria-label="Contents"><ol>{toc}</ol></nav>
<main id="content" tabindex="-1">
{"".join(body)}
</main>
<footer>Charts: drag to zoom, double-click to reset, click a legend entry to hide it; keys + and - zoom, arrows move, 0
resets. Machines: drag or arrow keys to turn, space to pause. The file is complete and needs no network.</footer>
</div>
<script type="application/json" id="data">{text}</script>
{bundle}
<script>{_asset("page.js")}</script>
</body>
</html>
"""


NOTEBOOK = (
    ".jaxmb .verdict{border-left:6px solid #0072b2;padding:0 1em}.jaxmb .verdict.yes{border-color:#009e73}"
    ".jaxmb .verdict.weak{border-color:#e69f00}.jaxmb .verdict.no{border-color:#d55e00}.jaxmb td.yes{color:#00704f}"
    ".jaxmb td,.jaxmb th{padding:0 0.6em;text-align:right}.jaxmb td.weak{color:#8a5a00}.jaxmb td.no{color:#a63a00}"
    ".jaxmb .left,.jaxmb caption{text-align:left}.jaxmb summary{font-weight:600}.jaxmb img{max-width:100%}"
)
"""Style of a page in a notebook, beside the notebook's own."""
MOST_PICTURES = 4
"""Largest number of charts of a page in a notebook."""


def notebook_html(page: Page) -> str:
    """Verdict, tables and the first charts of a page as a fragment of HTML for notebooks, charts as pictures."""
    left = MOST_PICTURES
    body = list[str]()
    for number, section in enumerate(page.sections):
        parts = [part for part in section.parts if not isinstance(part, Group)]
        charts = [part for part in parts if isinstance(part, Picture)][: min(left, 1)]
        left -= len(charts)
        inside = "\n".join(_part(part, _image) for part in parts if not isinstance(part, Picture) or part in charts)
        opened = " open" if number == 0 or charts else ""
        body.append(f"<details{opened}><summary>{escape(section.title)}</summary>\n{inside}\n</details>")
    title = f"<p><b>{escape(page.title)}</b></p>"
    return f'<div class="jaxmb"><style>{NOTEBOOK}</style>{title}{_verdict(page)}{"".join(body)}</div>'


def _image(picture: Picture) -> str:
    chart = picture.chart()
    data = base64.b64encode(png_of(chart, 100)).decode()
    return f'<p><img src="data:image/png;base64,{data}" alt="{escape(chart.alternative_text)}"></p>'


def _verdict(page: Page) -> str:
    sentences = "".join(f"<p>{_prose(sentence)}</p>" for sentence in page.sentences)
    return f'<section class="verdict {page.verdict}" aria-label="Verdict">{sentences}</section>' if sentences else ""


def _asset(name: str) -> str:
    return (resources.files("jaxmb.report") / name).read_text(encoding="utf-8")


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
    return base64.b64encode(gzip.compress(script.read_bytes(), 9, mtime=0)).decode()


def _prose(text: str) -> str:
    """A sentence, with commands in backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _part(part: Part, draw: Callable[[Picture], str]) -> str:
    match part:
        case Lines(lines, verbatim=True):
            return f"<pre>{escape(chr(10).join(lines))}</pre>"
        case Lines(lines):
            return "".join(f'<p class="line">{_prose(line)}</p>' for line in lines)
        case Facts(rows):
            facts = "".join(f"<dt>{escape(about)}</dt><dd>{_prose(text)}</dd>" for about, text in rows)
            return f'<dl class="facts">{facts}</dl>'
        case Table():
            return _table(part)
        case Group(title, parts, shown):
            inside = "\n".join(_part(each, draw) for each in parts)
            return f"<details{' open' if shown else ''}><summary>{escape(title)}</summary>\n{inside}\n</details>"
        case Picture():
            return draw(part)


def _table(table: Table) -> str:
    align = ["left" if column.align == "left" else "" for column in table.columns]

    def cell(content: str | Cell, kind: str) -> str:
        text, verdict = (content.text, content.verdict) if isinstance(content, Cell) else (content, "")
        classes = " ".join(filter(None, (kind, verdict, "long" if len(text) > LONG else "")))
        return f'<td class="{escape(classes)}">{escape(text)}</td>'

    columns = zip(table.columns, align, strict=True)
    head = "".join(f'<th scope="col" class="{kind}">{escape(column.heading)}</th>' for column, kind in columns)
    rows = "".join(f"<tr>{''.join(map(cell, row, align))}</tr>" for row in table.rows)
    caption = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    key = f'<p class="key">{escape(table.caption)}</p>' if table.caption else ""
    return (
        f'<div class="scroll" tabindex="0"><table>{caption}<thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{key}"
    )


def _figure(picture: Picture, data: Data) -> str:
    chart = picture.chart()
    inside = _skeleton(chart, data) if isinstance(chart, Skeleton) else _cells(chart, data)
    note = f'<p class="note">{escape(chart.note)}</p>' if isinstance(chart, Chart) and chart.note else ""
    legend = _legend(chart) if isinstance(chart, Chart) else ""
    tall = isinstance(chart, Chart) and sum(p.height for row in chart.rows for p in row[0]) * PIXELS > TALL
    return (
        f'<figure class="{"tall" if tall else ""}" data-name="{escape(picture.name)}">'
        f"<h3>{escape(chart.title)}</h3>{note}{legend}{inside}<figcaption>{escape(chart.caption)}</figcaption></figure>"
    )


def _cells(chart: Chart, data: Data) -> str:
    columns, figures = max(map(len, chart.rows)), ""
    width = round((chart.width + 1.6) * PIXELS * columns) + 20
    for cell in chart.cells:
        figure, of_panel = cell_figure(chart, cell), f" Panel: {cell[0].title}" if cell[0].title else ""
        figures += (
            f'<div class="cell"><div class="plot" role="img" aria-label="{escape(chart.alternative_text + of_panel)}"'
            f' data-cell="{len(data["cells"])}" style="height:{figure["height"]}px"></div></div>'
        )
        data["cells"].append(figure)
    return f'<div class="cells" style="--columns:{columns};--width:{width}px">{figures}</div>'


def _legend(chart: Chart) -> str:
    marks = [(escape(getattr(mark, "label", "")), _swatch(mark)) for mark in chart.legend()]
    entries = "".join(
        f'<li><button type="button" aria-pressed="true" data-name="{label}">{swatch}{label}</button></li>'
        for label, swatch in marks
    )
    return f'<ul class="legend" aria-label="Legend">{entries}</ul>' if marks else ""


SYMBOLS = {
    "o": "M10 7a3 3 0 1 0 6 0a3 3 0 1 0-6 0", "s": "M10 4H16V10H10Z", "D": "M13 3L17 7L13 11L9 7Z",
    "^": "M13 3L17 11H9Z", "v": "M13 11L17 3H9Z", "<": "M9 7L16 3V11Z", ">": "M17 7L10 3V11Z",
    "x": "M10 4L16 10M16 4L10 10", "+": "M13 3V11M9 7H17", "|": "M13 2V12", "_": "M8 7H18",
    "*": "M13 2L14.5 5.8L18 6L15.3 8.5L16.2 12L13 10L9.8 12L10.7 8.5L8 6L11.5 5.8Z",
}  # fmt: skip
"""Outline of a marker in the legend."""


def _swatch(mark: Mark) -> str:
    """Small picture of a mark for the legend."""
    color, body = escape(getattr(mark, "color", "#808080")), ""
    dashes = {"--": "5 3", ":": "1.5 3"}
    if isinstance(mark, Rule) or (isinstance(mark, Line | Intervals) and getattr(mark, "dashes", "-") and mark.width):
        dash = dashes.get(getattr(mark, "dashes", "-"), "")
        body = (
            f'<path d="M1 7H25" stroke="{color}" stroke-width="{max(mark.width, 1.2):.1f}" stroke-dasharray="{dash}"/>'
        )
    if isinstance(mark, Line | Intervals) and mark.marker:
        fill = color if mark.filled else "#fff"
        shape = SYMBOLS.get(mark.marker, SYMBOLS["o"])
        body += f'<path d="{shape}" fill="{fill}" stroke="{color}" stroke-width="1.4"/>'
    if not body:
        hatch = isinstance(mark, Bars) and mark.hatched
        fill = f'fill="#fff" stroke="{color}"' if hatch else f'fill="{color}"'
        body = f'<rect x="3" y="2" width="20" height="10" {fill} opacity="{getattr(mark, "opacity", 1.0)}"/>'
        body += f'<path d="M4 12L11 2M11 12L18 2" stroke="{color}"/>' if hatch else ""
    return f'<svg width="26" height="14" aria-hidden="true">{body}</svg>'


def _skeleton(body: Skeleton, data: Data) -> str:
    data["skeletons"].append(_body(body))
    options = "".join(f"<option>{escape(mode.title.replace(', damping', ','))}</option>" for mode in body.modes)
    what = "Amplitude" if body.modes else "Length of the arrows"
    scale = (
        '<div>Share of the strain energy<div class="scale"></div><div class="ends"><span>0 %</span>'
        '<span>100 %</span></div><ul class="shares"></ul></div>'
    )
    controls = (
        f"<label>Mode<select>{options}</select></label>" if body.modes else "",
        f'<label class="screen">{what}<input type="range" min="0" max="3" step="0.05" value="1"></label>',
        '<button type="button" class="screen">Pause</button>' if body.modes else "",
        scale if any(mode.energy for mode in body.modes) else "",
        *(
            f'<div><span style="color:{escape(each.color)}">&#8594;</span> {escape(each.label)}</div>'
            for each in body.arrows
        ),
    )
    return (
        f'<div class="skeleton" data-skeleton="{len(data["skeletons"]) - 1}"><canvas tabindex="0" role="img"'
        f' aria-label="{escape(body.alternative_text)}"></canvas><div class="controls">{"".join(controls)}</div></div>'
    )


def _body(body: Skeleton) -> Object:
    """Numbers of a skeleton."""
    s = body.structure
    first_beam = len(s.lines) - len(s.beam_names)
    return {
        "points": _rows(body.points), "size": body.size, "ground": s.ground, "ends": [list(end) for end in s.ends],
        "lines": [[list(line), s.beam_names[k - first_beam] if k >= first_beam else ""]
                  for k, line in enumerate(s.lines)],
        "springs": [[list(line), s.spring_names[k] if k < len(s.spring_names) else ""]
                    for k, line in enumerate(s.springs)],
        "joints": [[index, name] for index, name in zip(s.joints, s.joint_names, strict=True)],
        "modes": [{"re": _rows(np.real(mode.displacement)), "im": _rows(np.imag(mode.displacement)),
                   "energy": {name: float(f"{share:.4g}") for name, share in mode.energy.items()}}
                  for mode in body.modes],
        "arrows": [{"origin": _rows(a.origin), "vector": _rows(a.vector), "color": a.color} for a in body.arrows],
    }  # fmt: skip


def _rows(values: np.ndarray) -> list[Json]:
    return [numbers(row) for row in np.asarray(values, dtype=float)]


REPORT = "report.json"
SCHEMA = 1
CLASSES = {
    kind.__name__: kind
    for module, names in (
        (of_charts, "Axis Line Band Intervals Bars Span Rule Note Colors Cells Contours Panel Chart Structure"
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
