"""Load cases from arrays and from CSV files with a unit in the heading of each column."""

import csv
import dataclasses
import io
import math
import os
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxmb.identify.experiments.deflections.load_cases import LoadCase, check_cases
from jaxmb.io.files import csv_table, number_of_cell
from jaxmb.io.validation import CLOSE, check_distinct, error_location, suggestion
from jaxmb.machine.build import Model
from jaxmb.mechanics.postures import closed_posture

DEGREE = math.pi / 180.0
LENGTH = {"m": 1.0, "mm": 1e-3, "um": 1e-6}
ANGLE = {"rad": 1.0, "mrad": 1e-3, "deg": DEGREE}
FORCE = {"N": 1.0, "kN": 1e3}
MOMENT = {"Nm": 1.0, "N m": 1.0, "kNm": 1e3}
WRENCH = ("fx", "fy", "fz", "mx", "my", "mz")
MOTION = ("dx", "dy", "dz", "rx", "ry", "rz")
SPREAD = ("sx", "sy", "sz", "srx", "sry", "srz")
UNITS = (
    dict.fromkeys(WRENCH[:3], FORCE)
    | dict.fromkeys(WRENCH[3:], MOMENT)
    | dict.fromkeys(MOTION[:3] + SPREAD[:3], LENGTH)
    | dict.fromkeys(MOTION[3:] + SPREAD[3:], ANGLE)
)
"""Units that a column may have; the first is that of a force or moment whose heading has none."""
MEASURED = "measured "
"""Prefix of a heading such as rx where a coordinate has the same name; the plain heading is the coordinate."""
WORDS = ("test", "load frame", "point")
"""Columns of text."""
DEFAULT_STD = np.array([3e-5] * 3 + [0.01 * DEGREE] * 3)
"""Standard deviations of displacements where none is stated: 0.03 mm, typical of a laser tracker, and 0.01 deg."""


def deflection_tests(
    model: Model,
    q: np.typing.ArrayLike,
    wrench: np.typing.ArrayLike,
    displacement: np.typing.ArrayLike,
    frame: str = "tool",
    points: Sequence[str] | None = None,
    std: np.typing.ArrayLike = DEFAULT_STD,
    names: Sequence[str] | None = None,
) -> list[LoadCase]:
    """Load cases from arrays or lists with one entry per case, all loaded and measured at the same frames.

    Args:
        model: the machine.
        q: postures [t, n], rad or m.
        wrench: force then moment on the machine at the frame's origin, ground axes [t, 6], N and Nm.
        displacement: of the points [t, p, 6] (of one point also [t, 6]), m and rad, ground axes; NaN: not measured.
        frame: at which the wrenches act.
        points: frames that were measured; the loaded one where not given.
        std: standard deviations of the displacements, in any shape that broadcasts to theirs.
        names: of the load cases; "1", "2", ... where not given.

    Raises:
        ValueError: counts differ, or a load case, which is named, is invalid (see `check_cases`).
    """
    q, wrench, displacement = (np.asarray(x, float) for x in (q, wrench, displacement))
    stds = np.broadcast_to(np.asarray(std, float), displacement.shape)
    if displacement.ndim == 2:
        displacement, stds = displacement[:, None, :], stds[:, None, :]
    counts = {"postures": len(q), "wrenches": len(wrench), "displacements": len(displacement)}
    case_names = [str(i + 1) for i in range(len(q))] if names is None else list(names)
    counts["names"] = len(case_names)
    if len({*counts.values()}) > 1:
        present = ", ".join(f"{count} {what}" for what, count in counts.items())
        raise ValueError(f"there are {present}, expected one of each for every deflection test")
    at = (frame,) if points is None else tuple(points)
    tests = [LoadCase(name, q[i], frame, wrench[i], at, displacement[i], stds[i]) for i, name in enumerate(case_names)]
    check_cases(model, tests)
    check_distinct(case_names, "deflection test '{}' is there twice, expected a name for each test")
    return tests


class DeflectionTable(NamedTuple):
    """Load cases read from a file."""

    cases: list[LoadCase]
    stated: list[np.ndarray]
    """Mask of the standard deviations [p, 6] stated in the file, for each load case."""
    absent: tuple[str, ...]
    """Independent coordinates without a column."""
    changed: tuple[str, ...]
    """A sentence on postures whose loops had to be closed after rounding; empty where there are none."""


def read_deflections(
    model: Model,
    path: str | os.PathLike[str],
    frame: str = "tool",
    posture: np.ndarray | None = None,
    std: np.ndarray = DEFAULT_STD,
) -> list[LoadCase]:
    """Load cases from a CSV file; its columns are described in docs/elastostatics.md.

    Args:
        model: the machine.
        path: the file.
        frame: at which loads act, without a column `load frame`.
        posture: coordinates [n] without a column, by default those of the reference posture.
        std: standard deviations [6] of displacements without a stated one.

    Raises:
        InputError: the file is not such a table; one sentence names the line or the test.
    """
    table = read_table(model, path, frame, posture, std)
    for change in table.changed:
        warnings.warn(change, stacklevel=2)
    return table.cases


def read_table(
    model: Model,
    path: str | os.PathLike[str],
    frame: str = "tool",
    posture: np.ndarray | None = None,
    std: np.ndarray = DEFAULT_STD,
) -> DeflectionTable:
    """`read_deflections` with information on the columns and values that the file omits.

    Raises:
        InputError: as of `read_deflections`.
    """
    path = Path(path)
    heads, lines = csv_table(path, "a line for each measured point")
    with error_location(str(path)):
        columns = _columns(model, heads)
        start = np.asarray(model.reference if posture is None else posture, float)
        cases, stated, changes = _tests(columns, lines, frame, start, np.asarray(std, float), model)
    follow = {model.coordinates[i] for i in model.dependent}
    more = f" ({len(changes)} tests in all)" if len(changes) > 1 else ""
    absent = tuple(name for name in model.joints if name not in columns and name not in follow)
    return DeflectionTable(cases, stated, absent, tuple(f"{path.name}: {change}{more}" for change in changes[:1]))


def deflections_csv(model: Model, tests: Sequence[LoadCase]) -> str:
    """CSV text of load cases in deg, mm, N and Nm, readable by `read_deflections`."""
    angle = [(DEGREE, "deg") if turns else (1e-3, "mm") for turns in model.revolute]
    scale = np.array([1e-3] * 3 + [DEGREE] * 3)
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow([
        "test", *(f"{name} {unit}" for name, (_, unit) in zip(model.coordinates, angle, strict=True)), "load frame",
        *(f"{_quantity(model, name)} {'N' if name[0] == 'f' else 'Nm'}" for name in WRENCH), "point",
        *(f"{_quantity(model, name)} {'mm' if UNITS[name] is LENGTH else 'deg'}" for name in (*MOTION, *SPREAD)),
    ])  # fmt: skip
    for test in tests:
        q = [repr(float(value) / unit) for value, (unit, _) in zip(test.q, angle, strict=True)]
        for point, moved, spread in zip(test.points, test.displacement / scale, test.std / scale, strict=True):
            cells = [repr(float(x)) if math.isfinite(x) else "" for x in (*moved, *spread)]
            table.writerow([test.name, *q, test.frame, *(repr(float(x)) for x in test.wrench), point, *cells])
    return out.getvalue()


def _columns(model: Model, headings: list[str]) -> dict[str, tuple[int, float]]:
    """Index and unit of each column by name."""
    found: dict[str, tuple[int, float]] = {}
    for index, heading in enumerate(headings):
        plain = heading.removeprefix(MEASURED)
        name, _, unit = (heading, "", "") if heading in WORDS else plain.partition(" ")
        if name in model.coordinates and plain == heading:
            units = ANGLE if model.revolute[model.coordinates.index(name)] else LENGTH
        elif name in UNITS:
            units, name = UNITS[name], _quantity(model, name)
        elif name in WORDS:
            units = {"": 1.0}
        else:
            names = (*WORDS, *model.coordinates, *(_quantity(model, unit) for unit in UNITS))
            raise ValueError(_unknown(heading, names) + _shared(model, [n for n in UNITS if n in model.coordinates]))
        unit = unit.strip(" ()[]") or (next(iter(units)) if units in (FORCE, MOMENT) else "")
        if unit not in units:
            found_unit = f"has the unit '{unit}'" if unit else "has no unit"
            shared = _shared(model, {name}.intersection(UNITS, model.coordinates))
            raise ValueError(
                f"column '{heading}' {found_unit}, expected '{name} {next(iter(units))}' or another of"
                f" {', '.join(units)}{shared}"
            )
        if name in found:
            raise ValueError(f"column '{name}' appears twice, expected it once")
        found[name] = (index, units[unit])
    for names in (("test",), WRENCH, MOTION):
        if not any(_quantity(model, name) in found for name in names):
            raise ValueError(f"there is no column of {' '.join(names)}, expected at least one")
    return found


def _quantity(model: Model, name: str) -> str:
    """Heading of a load or a measured displacement, prefixed by "measured" where a coordinate has the same name."""
    return MEASURED + name if name in model.coordinates else name


def _shared(model: Model, names: Collection[str]) -> str:
    """Clause on the headings of loads or displacements with the same names as coordinates."""
    headings = ", ".join(f"'{_quantity(model, name)}'" for name in names)
    return f"; since coordinates have these names, loads and displacements are headed {headings}" if names else ""


def _unknown(heading: str, names: Sequence[str]) -> str:
    """Sentence on an unknown heading, with the known one that is closest to it or to its first word."""
    word = heading.partition(" ")[0]
    # The whole heading may be nearer to another column than its first word is.
    hint = suggestion(word, names, 1.0) or suggestion(heading, names, CLOSE) or suggestion(word, names, CLOSE) or ";"
    return f"column '{heading}' does not exist{hint} expected one of: {', '.join(names)}"


def _tests(
    columns: dict[str, tuple[int, float]], lines: list[tuple[int, list[str]]], frame: str, start: np.ndarray,
    std: np.ndarray, model: Model,
) -> tuple[list[LoadCase], list[np.ndarray], list[str]]:  # fmt: skip
    groups: dict[str, list[tuple[str, dict[str, str]]]] = {}
    for number, row in lines:
        cells = {name: row[index] for name, (index, _) in columns.items()}
        if not cells["test"]:
            raise ValueError(f"line {number} has no test, expected its name or number")
        groups.setdefault(cells["test"], []).append((f"line {number}", cells))
    units = {name: unit for name, (_, unit) in columns.items()}
    found = [_test(name, units, rows, frame, start, std, model) for name, rows in groups.items()]
    return [test for test, _, _ in found], [s for _, s, _ in found], [change for *_, change in found if change]


def _check(model: Model, test: LoadCase, lines: Sequence[str]) -> None:
    """Raise ValueError where a load case is invalid, with the line of the invalid point."""
    measured = test.measured.any(axis=1)
    for i in np.flatnonzero(measured).tolist() if measured.any() else [0]:
        one = slice(i, i + 1)
        point = dataclasses.replace(
            test, points=test.points[one], displacement=test.displacement[one], std=test.std[one]
        )
        try:
            check_cases(model, [point])
        except ValueError as error:
            raise ValueError(f"{lines[i]}, {error}") from None


def _test(
    name: str, units: dict[str, float], rows: list[tuple[str, dict[str, str]]], frame: str, start: np.ndarray,
    std: np.ndarray, model: Model,
) -> tuple[LoadCase, np.ndarray, str]:  # fmt: skip
    """A load case, the mask of stated standard deviations, and a sentence on a posture whose loops had to be closed."""

    def values(location: str, cells: dict[str, str], names: Sequence[str], empty: np.ndarray) -> np.ndarray:
        return np.array([
            number_of_cell(f"{location}: {what}", cells[what]) * units[what] if cells.get(what) else missing
            for what, missing in zip(names, empty, strict=True)
        ])  # fmt: skip

    wrench_names, motion, spread = ([_quantity(model, n) for n in names] for names in (WRENCH, MOTION, SPREAD))
    none = np.full(6, np.nan)
    located = [(f"{line}, deflection test '{name}'", cells) for line, cells in rows]
    first, cells = located[0]
    for what in (*model.coordinates, *wrench_names):
        if cells.get(what) == "":
            raise ValueError(f"{first}: {what} is empty, expected a number")
    stated_q, change = values(first, cells, model.coordinates, start), ""
    q = stated_q
    if model.loops:
        given = {n: q for n, q in zip(model.coordinates, stated_q.tolist(), strict=True) if n in units}
        with error_location(first):
            q, change = closed_posture(model, given, start)
    wrench = values(first, cells, wrench_names, np.zeros(6))
    at = cells.get("load frame") or frame
    for location, more in located[1:]:
        # The lines of one test may omit values of its first line, but not contradict them.
        same = np.allclose(values(location, more, model.coordinates, stated_q), stated_q, rtol=1e-9, atol=1e-12)
        same &= np.allclose(values(location, more, wrench_names, wrench), wrench, rtol=1e-9, atol=1e-9)
        if not same or (more.get("load frame") or at) != at:
            raise ValueError(f"{location}: has another posture or load than the test's first line, expected the same")
    points = tuple(more.get("point") or at for _, more in rows)
    if len(set(points)) < len(points):
        raise ValueError(f"{first}: a point appears twice, expected a line for each point")
    stated = np.stack([values(location, more, spread, none) for location, more in located])
    test = LoadCase(
        name=name,
        q=q,
        frame=at,
        wrench=wrench,
        points=points,
        displacement=np.stack([values(location, more, motion, none) for location, more in located]),
        std=np.where(np.isfinite(stated), stated, std),
    )
    _check(model, test, [line for line, _ in rows])
    return test, np.isfinite(stated), f"{first}: {change}" if change else ""
