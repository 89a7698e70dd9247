"""FRF sets as CSV tables: comment lines with the metadata, then one line per frequency; numbers are stored exactly."""

import csv
import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from jaxmb.io.files import LARGEST_ARRAY, is_number
from jaxmb.measurement.frf_set import FrfSet

LONGEST_LINE = 10_000_000
KEYS = ("kind", "unit", "averages", "decay_1_s", "lines", "source")
"""Keys of `# key: value` lines, each at most once; `posture NAME`, `node NAME` and `trace NUMBER` once for each."""
_COMMENT = re.compile(r"#\s*(?:(posture|node|trace) (.*)|(\w+)\s*):\s*(.*)")
_RESPONSE = re.compile(r"H\((.*)\) (real|imag)")
_COHERENCE = re.compile(r"coherence\((.*)\)")
Column = tuple[str, ...]
"""Content of a column: ("real" or "imag", output, input) or ("coherence", output[, input])."""


def read_csv(path: Path) -> FrfSet:
    """FRF set from a CSV table in the format of `write_csv`; an empty cell is a missing value.

    Raises:
        ValueError: the table is no FRF set; the message names line and column.
        OSError: the file cannot be opened.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = _lines(file)
        about, number, header = _comments(lines)
        return _set(path, about, _columns(header, number), _rows(lines, header))


def write_csv(path: Path, frf_set: FrfSet) -> None:
    """Write an FRF set as a CSV table that `read_csv` reads back unchanged.

    Raises:
        ValueError: a name or the source holds a character reserved in the table.
        OSError: the file cannot be written.
    """
    for name in (*frf_set.outputs, *frf_set.inputs, *frf_set.posture, *frf_set.nodes):
        if ";" in name or not name.isprintable() or name != name.strip():
            raise ValueError(
                f"the name {name!r} holds a semicolon, a leading or trailing blank or an unprintable character"
            )
    if not (frf_set.source + frf_set.unit).isprintable():
        raise ValueError(f"source {frf_set.source!r} or unit {frf_set.unit!r} holds a character that cannot be printed")
    about = {
        "kind": frf_set.kind,
        "unit": frf_set.unit,
        "averages": frf_set.averages,
        "decay_1_s": float(frf_set.decay_1_s),
        "lines": frf_set.frequency_hz.size,
        **{f"posture {name}": value for name, value in frf_set.posture.items()},
        **{f"node {name}": ", ".join(map(repr, position)) for name, position in frf_set.nodes.items()},
        **{f"trace {number}": "; ".join(line) for number, line in enumerate(frf_set.trace_lines, 1)},
        "source": frf_set.source,
    }
    pairs = [f"{o}; {i}" for o in frf_set.outputs for i in frf_set.inputs]
    header = ["frequency_hz"] + [f"H({pair}) {part}" for pair in pairs for part in ("real", "imag")]
    coherence = frf_set.coherence
    if coherence is not None:
        header += [f"coherence({x})" for x in (frf_set.outputs if coherence.ndim == 2 else pairs)]
    with path.open("x", encoding="utf-8", newline="") as file:
        file.writelines(f"# {key}: {value}\n" for key, value in about.items() if value is not None)
        csv.writer(file, lineterminator="\n").writerow(header)
        for k, frequency in enumerate(frf_set.frequency_hz.tolist()):
            row = [frequency, *frf_set.frf[k].reshape(-1).view(float).tolist()]
            if coherence is not None:
                row += coherence[k].reshape(-1).tolist()
            file.write(",".join(map(repr, row)) + "\n")


def _lines(file: TextIO) -> Iterator[tuple[int, str]]:
    """Numbered lines; ValueError for one that is too long or not terminated."""
    for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), ""), start=1):
        if not line.endswith(("\n", "\r")):
            what = "is too long" if len(line) == LONGEST_LINE else "does not end: the file may be truncated"
            raise ValueError(f"line {number} {what}, expected a line end after every line")
        yield number, line.rstrip("\r\n")


def _comments(lines: Iterator[tuple[int, str]]) -> tuple[dict[str, str], int, list[str]]:
    """Keys and values of the comment lines, and the number and cells of the header line."""
    about: dict[str, str] = {}
    for number, line in lines:
        # spreadsheets pad every line to the same number of cells
        text = line.strip().rstrip(",").rstrip()
        if not text:
            continue
        if not text.startswith("#"):
            return about, number, _header(line, number)
        found = _COMMENT.fullmatch(text)
        if found is None:
            continue
        of, name, key, value = found.groups()
        if of is not None:  # the name may hold a colon itself
            name, _, value = f"{name}: {value}".rpartition(":")
            key = f"{of} {name}".strip()
        elif key not in KEYS:
            raise ValueError(
                f"line {number}: unknown '{key}', expected one of {', '.join(KEYS)}, posture NAME, node NAME,"
                " trace NUMBER"
            )
        if key in about:
            raise ValueError(f"line {number}: '{key}' occurs twice")
        about[key] = value.strip()
    raise ValueError("holds no table, expected a line that begins with frequency_hz")


def _header(line: str, number: int) -> list[str]:
    for separator, what in ((";", "semicolons"), ("\t", "tabs")):
        if re.match(rf'"?frequency_hz"?\s*{separator}', line.strip()):
            raise ValueError(f"line {number}: cells are separated by {what}, expected commas, and points in numbers")
    try:
        return [name.strip() for name in next(csv.reader([line], strict=True))]
    except csv.Error as error:
        raise ValueError(f"line {number}: {error}") from None


def _columns(header: list[str], number: int) -> list[Column]:
    """Content of each column after the first."""
    if header[0] != "frequency_hz":
        raise ValueError(f"line {number}, column 1: found '{header[0][:80]}', expected frequency_hz")
    columns: dict[Column, int] = {}
    for index, name in enumerate(header[1:], start=2):
        response, coherence = _RESPONSE.fullmatch(name), _COHERENCE.fullmatch(name)
        what, of = (response[2], response[1]) if response else ("coherence", coherence[1]) if coherence else ("", "")
        column = (what, *(x.strip() for x in of.split(";")))
        if not what or not (len(column) == 3 or (what == "coherence" and len(column) == 2)) or "" in column:
            raise ValueError(
                f"line {number}, column {index}: found '{name[:80]}',"
                f" expected H(output; input) real, the same with imag, or coherence(output; input)"
            )
        if column in columns:
            raise ValueError(f"line {number}, column {index}: '{name[:80]}' occurs twice")
        columns[column] = index
    for what, other in (("real", "imag"), ("imag", "real")):
        alone = [c for c in columns if c[0] == what and (other, *c[1:]) not in columns]
        if alone:
            raise ValueError(f"line {number}: H({'; '.join(alone[0][1:])}) has a column {what} but none {other}")
    if not any(c[0] == "real" for c in columns):
        raise ValueError(f"line {number}: no column holds a response, expected H(output; input) real")
    if len({len(c) for c in columns if c[0] == "coherence"}) > 1:
        raise ValueError(
            f"line {number}: coherence is given both by output and by output and input, expected one of them"
        )
    return list(columns)


def _rows(lines: Iterator[tuple[int, str]], header: list[str]) -> np.ndarray:
    """Values [line, column]."""
    values, before = array("d"), -np.inf
    for number, line in lines:
        if not line.strip(", "):
            continue
        cells = line.split(",")
        if len(cells) != len(header):
            raise ValueError(
                f"line {number} has {len(cells)} cells, expected {len(header)} (a comma in a number would be one more)"
            )
        try:
            if "_" in line:  # Python accepts 1_000 as a number
                raise ValueError
            values.extend(map(float, cells))
        except ValueError:
            del values[len(values) // len(header) * len(header) :]
            values.extend(_number(cell, number, column, header) for column, cell in enumerate(cells))
        frequency = values[-len(header)]
        if not (np.isfinite(frequency) and frequency > before):
            raise ValueError(f"line {number}, column 1: frequency_hz is {frequency:g} after {before:g}, expected more")
        before = frequency
        if len(values) > 3 * LARGEST_ARRAY:
            raise ValueError(f"line {number}: more than {3 * LARGEST_ARRAY} numbers, expected no more")
    return np.frombuffer(values, dtype=float).reshape(-1, len(header)) if values else np.zeros((0, len(header)))


def _number(cell: str, number: int, column: int, header: list[str]) -> float:
    text = cell.strip().strip('"')
    if not text:
        return np.nan
    if not is_number(text):
        raise ValueError(
            f"line {number}, column {column + 1} ({header[column][:80]}): found '{text[:80]}', expected a number"
        )
    return float(text)


def _set(path: Path, about: dict[str, str], columns: list[Column], values: np.ndarray) -> FrfSet:
    if "kind" not in about:
        raise ValueError("a line '# kind: ...' is missing, expected receptance, mobility or accelerance")
    if "lines" in about and about["lines"] != str(len(values)):
        raise ValueError(f"has {len(values)} lines, but '# lines' is {about['lines']}: the file may be truncated")
    outputs = list(dict.fromkeys(c[1] for c in columns if c[0] == "real"))
    inputs = list(dict.fromkeys(c[2] for c in columns if c[0] == "real"))
    if len(values) * len(outputs) * len(inputs) > LARGEST_ARRAY:
        raise ValueError(f"{len(outputs)} outputs, {len(inputs)} inputs: more than {LARGEST_ARRAY} numbers")
    frf = np.full((len(values), len(outputs), len(inputs)), complex(np.nan, np.nan))
    parts = frf.view(float).reshape(*frf.shape, 2)
    by_pair = {len(c) == 3 for c in columns if c[0] == "coherence"}
    coherence = np.full(frf.shape if True in by_pair else frf.shape[:2], np.nan) if by_pair else None
    for column, (what, *point) in enumerate(columns, start=1):
        for name, known in zip(point, (outputs, inputs), strict=False):
            if name not in known:
                raise ValueError(f"column {column + 1}: coherence of '{name}', which has no response")
        index = (slice(None), *(known.index(x) for x, known in zip(point, (outputs, inputs), strict=False)))
        target = {"real": parts[..., 0], "imag": parts[..., 1], "coherence": coherence}[what]
        target[index] = values[:, column]  # pyright: ignore[reportOptionalSubscript]  (not None where a column of it exists)
    return FrfSet(
        frequency_hz=values[:, 0],
        frf=frf,
        kind=about["kind"],  # pyright: ignore[reportArgumentType]  (checked by FrfSet)
        outputs=tuple(outputs),
        inputs=tuple(inputs),
        coherence=coherence,
        averages=_number_or_text(about["averages"]) if "averages" in about else None,
        decay_1_s=_number_or_text(about.get("decay_1_s", "0")),
        unit=about.get("unit", ""),
        posture={k.removeprefix("posture "): _number_or_text(v) for k, v in about.items() if k.startswith("posture ")},
        nodes={
            k.removeprefix("node "): [*map(_number_or_text, v.split(","))]  # pyright: ignore[reportArgumentType]  (checked by FrfSet)
            for k, v in about.items()
            if k.startswith("node ")
        },
        trace_lines=[v for k, v in about.items() if k.startswith("trace ")],  # pyright: ignore[reportArgumentType]  (checked by FrfSet)
        source=about.get("source", str(path)),
    )


def _number_or_text(text: str) -> Any:
    """The value of a key, whose type `FrfSet` checks."""
    return float(text) if is_number(text) else text
