"""Sections of a report as strict JSON, with their charts: `report.json` in the folder of a command's results."""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxmb.io.files import write_atomically
from jaxmb.io.records import read_strict, versions
from jaxmb.io.validation import InputError
from jaxmb.report import charts, section as parts
from jaxmb.report.charts import Chart, Patches, Skeleton
from jaxmb.report.interactive import DIGITS, raster
from jaxmb.report.section import Facts, Picture, Section

REPORT = "report.json"
SCHEMA = 1
CLASSES = {
    kind.__name__: kind
    for module, names in (
        (charts, "Axis Line Band Intervals Bars Span Rule Note Colors Cells Contours Panel Chart Structure ModeMotion"
                 " Arrows Skeleton"),
        (parts, "Lines Facts Column Cell Table Group Section"),
    )
    for kind in (getattr(module, name) for name in names.split())
}  # fmt: skip
"""Classes of the file by name."""


def with_charts(sections: Iterable[Section]) -> list[Section]:
    """The sections with all charts computed, so that several media use them."""

    def computed(part: parts.Part) -> parts.Part:
        if isinstance(part, parts.Group):
            return dataclasses.replace(part, parts=tuple(map(computed, part.parts)))
        if not isinstance(part, Picture):
            return part
        chart = part.chart()
        return dataclasses.replace(part, chart=lambda: chart)

    return [dataclasses.replace(each, parts=tuple(map(computed, each.parts))) for each in sections]


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
    data = {"schema": SCHEMA, "title": title, "command": command, "versions": versions()}
    data["sections"] = [_encoded(each) for each in sections]
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
    if isinstance(value, Picture):
        return {"kind": "Picture", "name": value.name, "chart": _encoded(value.chart())}
    if isinstance(value, Patches):
        value = raster(value)
    if isinstance(value, np.ndarray | range):
        return _array(np.asarray(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {"kind": type(value).__name__} | {name: _encoded(each) for name, each in fields.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {"kind": type(value).__name__} | {k: _encoded(v) for k, v in value._asdict().items()}  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(value, Mapping):
        return {"kind": "map", "items": {str(key): _encoded(each) for key, each in value.items()}}
    if isinstance(value, list | tuple):
        return [_encoded(each) for each in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def _array(values: np.ndarray) -> Any:
    if np.iscomplexobj(values):
        return {"kind": "complex", "real": _array(np.real(values)), "imag": _array(np.imag(values))}
    if values.ndim > 1:
        return {"kind": "array", "shape": list(values.shape), "values": _array(values.ravel())["values"]}
    numbers = [float(f"{x:.{DIGITS}g}") if np.isfinite(x) else None for x in values.astype(float).tolist()]
    return {"kind": "array", "shape": [values.size], "values": numbers}


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_decoded, value))
    if not isinstance(value, dict):
        return value
    kind = value["kind"]
    if kind == "array":
        return np.array(value["values"], dtype=float).reshape(value["shape"])
    if kind == "complex":
        return _decoded(value["real"]) + 1j * _decoded(value["imag"])
    if kind == "map":
        return {key: _decoded(each) for key, each in value["items"].items()}
    fields = {key: _decoded(each) for key, each in value.items() if key != "kind"}
    if kind == "Picture":
        chart: Chart | Skeleton = fields["chart"]
        return Picture(fields["name"], lambda: chart)
    return CLASSES[kind](**fields)
