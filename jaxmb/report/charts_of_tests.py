"""Charts of deflection, pose and torque tests."""

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxmb.identify.assess.result import INTERVAL, Result
from jaxmb.identify.assess.tests.deflections import ConvergenceBands, DeflectionMetrics, DeflectionRow, Unit
from jaxmb.identify.assess.tests.poses import PoseRow, lengths_of
from jaxmb.identify.assess.tests.torque import TorqueMetrics
from jaxmb.identify.experiments.poses.pose_rows import DISTANCE, INCLINATION, POSITION, ROTATION
from jaxmb.identify.experiments.test import ROLES
from jaxmb.identify.experiments.torque.torque_test import TorqueEntry
from jaxmb.io.validation import percentage
from jaxmb.report.charts import (
    ALERT,
    AXIS,
    FITTED,
    INITIAL,
    OF_AXIS,
    TRUE,
    Axis,
    Band,
    Cell,
    Chart,
    Line,
    Mark,
    Panel,
    Rule,
    in_grid,
    named_rows,
    single,
)  # fmt: skip
from jaxmb.report.section import percent

MANY = 80
"""Number of rows in a panel above which markers are small, names are left out and intervals of poses are bands."""
LONGEST = 30
"""Longest shown test name, characters."""
MEASURED_POINT = "#595959"
USE = {"check": "not used in the fit", "fit": "used in the fit"}
"""Text for each role of a test."""


def measured_rows(metrics: DeflectionMetrics, unit: Unit) -> list[DeflectionRow]:
    """Points with a measured translation ("mm") or rotation ("deg")."""
    return [row for row in metrics.deflections if np.any(row.displacement(unit).seen)]


def displacement_chart(metrics: DeflectionMetrics) -> Chart:
    """Measured and predicted length of the translation of each point in each test, with 95 % intervals (Fig. 6).

    Lower panels: residual along x, y and z, since a prediction of the right length may have the wrong direction.
    """

    def cell(title: str, rows: list[DeflectionRow]) -> Cell:
        lengths = np.array([
            [_length(d.measured, d.measured_std, d.seen), _length(d.predicted, d.predicted_std, d.seen)]
            for d in (row.displacement("mm") for row in rows)
        ])  # fmt: skip
        top = 1.08 * float(np.nanmax(lengths[..., 0] + INTERVAL * np.nan_to_num(lengths[..., 1])))
        return (
            Panel(_compared(rows, lengths), _tests(rows), Axis("displacement (mm)", limits=(0.0, top)), title, 1.7),
            Panel(_residuals(rows), _tests(rows), Axis("residual (mm)"), height=1.3),
        )

    return Chart(
        f"Displacements: {_explained(metrics, 'mm')}",
        "Length of the translation of each point, measured and predicted, and the difference along each ground axis.",
        [[cell(title, rows)] for title, rows in _sets(metrics, "mm")],
        6.8,
    )


def _explained(metrics: DeflectionMetrics, unit: Unit) -> str:
    known = [share for line in metrics.sets if (share := line.explained_percent(unit)) is not None]
    ends = dict.fromkeys(percentage(share, ".1f") for share in (min(known), max(known)))
    return f"{' to '.join(ends)} % explained"


def _residuals(rows: list[DeflectionRow]) -> list[Mark]:
    """Measured minus predicted translation along the ground's axes, with the 95 % intervals of the measurement."""
    residual = np.array([row.displacement("mm").missed for row in rows])
    reach = INTERVAL * np.array([row.displacement("mm").measured_std for row in rows])
    x, offset, size = np.arange(len(rows)), 0.22 * _marker_offset(rows), 3.2 if len(rows) <= MANY else 1.5
    looks = zip(AXIS, OF_AXIS, "^sD", strict=True)
    components = (
        Line(x + offset * (i - 1), residual[:, i], f"residual along {axis}", color, 0.7, "", marker, size,
             reach=reach[:, i])
        for i, (axis, color, marker) in enumerate(looks)
    )  # fmt: skip
    return [Rule(0.0), *components]


def rotation_chart(metrics: DeflectionMetrics) -> Chart:
    """Measured and predicted rotation of each point about x, y and z of the ground in each test (Fig. 7)."""

    def cell(title: str, rows: list[DeflectionRow]) -> Cell:
        rotations = (row.displacement("deg") for row in rows)
        values = np.array([[(r.measured, r.measured_std), (r.predicted, r.predicted_std)] for r in rotations])
        return tuple(
            Panel((Rule(0.0), *_compared(rows, values[..., k])), _tests(rows), Axis(f"about {axis} (deg)"),
                  "" if k else title, 1.25)
            for k, axis in enumerate(AXIS)
        )  # fmt: skip

    return Chart(
        f"Rotations: {_explained(metrics, 'deg')}",
        "Rotation of each point about the ground axes, measured and predicted, with 95 % intervals.",
        [[cell(title, rows)] for title, rows in _sets(metrics, "deg")],
        6.8,
    )


def _sets(metrics: DeflectionMetrics, unit: Unit) -> list[tuple[str, list[DeflectionRow]]]:
    """Title and rows of each set with measurements in this unit."""
    found = []
    for line in metrics.sets:
        share = line.explained_percent(unit)
        if share is not None:
            rows = [row for row in metrics.deflections if row.set == line.set]
            found.append(
                (f"{line.set}: {line.tests} tests {USE[line.role]}, {percentage(share, '.1f')} % explained", rows)
            )
    return found


def _length(vector: np.ndarray, std: np.ndarray, seen: np.ndarray) -> tuple[float, float]:
    """Length of the measured components of a displacement with its standard deviation."""
    if not seen.any():
        return np.nan, np.nan
    length = float(np.linalg.norm(vector[seen]))
    return length, float(np.linalg.norm(vector[seen] * std[seen]) / length) if length > 0.0 else float(std[seen].max())


def _compared(rows: Sequence[DeflectionRow], values: np.ndarray) -> list[Mark]:
    """Values [row, (measured, predicted), (value, std)] side by side."""
    x, offset, few = np.arange(len(rows)), 0.12 * _marker_offset(rows), len(rows) <= MANY
    (measured, predicted), (reach, predicted_reach) = values[..., 0].T, INTERVAL * values[..., 1].T
    return [
        Line(x - offset, measured, "measured, 95 %", MEASURED_POINT, 0.9, "", "x", 4.5 if few else 2.0, reach=reach),
        Line(x + offset, predicted, "predicted, 95 %", FITTED, 0.9, "", "o", 4.0 if few else 2.0, filled=False,
             reach=predicted_reach),
    ]  # fmt: skip


def _marker_offset(rows: Sequence[DeflectionRow]) -> float:
    """Factor on the distance between the markers of a test, smaller for few tests."""
    return min(1.0, len(rows) / 10.0)


def _tests(rows: list[DeflectionRow]) -> Axis:
    """Axis with the names of the tests, if they are few."""
    limits = (-0.7, len(rows) - 0.3)
    if len(rows) > MANY:
        return Axis("tests, in their order", limits=limits, whole=True)
    points = {row.point for row in rows}
    names = [row.test if len(points) == 1 else f"{row.test} {row.point}" for row in rows]
    short = [name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..." for name in names]
    return Axis("test", limits=limits, ticks=range(len(rows)), names=short)


SETTLED = 0.1
"""Relative difference from the final value up to which a value has converged."""


def convergence_chart(result: Result, found: ConvergenceBands) -> Chart:
    """Identified values against the number of tests in random orders: median and central 90 % of the orders (Fig. 5).

    The band shrinks to zero at the full set, where all orders agree: it shows convergence, not uncertainty. The 95 %
    interval of the value is drawn at the end.
    """
    names = [name for name in result.study.free.names if np.isfinite(found.values[name].median).any()]
    cells = [(_convergence_panel(result, found, name),) for name in names] or [(Panel(()),)]
    absent = [name for name in result.study.free.names if name not in names]
    apart = np.zeros(len(found.tests), dtype=bool)
    for name in names:
        end, band = result.parameters[name].value, found.values[name]
        apart |= ~(np.maximum(np.abs(band.lower - end), np.abs(band.upper - end)) <= SETTLED * abs(end))
    count = found.tests[min(int(np.max(np.flatnonzero(apart), initial=-1)) + 1, apart.size - 1)]
    settled = f"within {100.0 * SETTLED:.0f} % of the final values from {count} tests on"
    return Chart(
        f"{result.study.name}: {settled if names else 'no value is identifiable in all orders of the tests'}",
        f"Values against the number of tests in {found.orders} random orders: the band shrinks where all orders agree,"
        " it shows convergence, not uncertainty.",
        in_grid(cells, 3),
        1.9,
        note=f"not identifiable: {', '.join(absent)}" if absent else "",
    )


def _convergence_panel(result: Result, found: ConvergenceBands, name: str) -> Panel:
    parameter = result.parameters[name]
    unit = 10.0 ** (3 * int(np.floor(np.log10(abs(parameter.value)) / 3.0))) if parameter.value else 1.0
    counts, band = found.tests, found.values[name]
    lower, median, upper = band.lower / unit, band.median / unit, band.upper / unit
    interval = INTERVAL * parameter.std / unit if np.isfinite(parameter.std) else 0.0
    end = parameter.value / unit
    marks: list[Mark] = [
        Band(counts, lower, upper, "central 90 % of the orders, not a confidence band"),
        Line(counts, median, "median", FITTED, 1.0, marker="o", size=2.5),
        Line(counts[-1:], [end], "95 % interval of the value", INITIAL, 1.6, "", reach=[interval], cap=2.5),
    ]
    shown = [end - interval, end + interval, *lower, *upper]
    if name in result.study.truth:
        marks.append(Rule(result.study.truth[name] / unit, "y", "true", TRUE, 1.0, "--"))
        shown.append(result.study.truth[name] / unit)
    # Values from a few tests may be off by decades: the range is limited to twice the final value.
    low, high = max(np.nanmin(shown), end - abs(end)), min(np.nanmax(shown), end + abs(end))
    margin = 0.08 * (high - low) or 0.05 * abs(end) or 1.0
    title = f"{name} ({unit:.0e} {parameter.unit})".replace("e+0", "e").replace("(1e0 ", "(")
    x = Axis("number of tests", limits=(0.0, float(counts[-1]) + 1.0), whole=True)
    return Panel(marks, x, Axis("", limits=(low - margin, high + margin)), title, 1.35)


class Quantity(NamedTuple):
    """A measured quantity of a point."""

    name: str
    prefix: str
    """Of its entries in `PoseErrorStatistics`."""
    count: str
    """Entry in `PoseErrorStatistics` with the number of measured ones."""
    file: str
    """Beginning of the name of its picture."""
    part: slice
    """Components in `PoseRow`."""
    unit: str
    """In which errors are shown, a thousandth of the SI unit."""
    labels: tuple[str, ...]
    """Of the components."""
    note: str = ""
    """On the components, at the end of the caption."""


QUANTITIES = (
    Quantity("position", "", "points", "poses", POSITION, "mm", tuple(f"along {axis}" for axis in AXIS)),
    Quantity("rotation", "angle_", "points", "pose-angles", ROTATION, "mrad", tuple(f"about {axis}" for axis in AXIS)),
    Quantity(
        "inclination",
        "inclination_",
        "inclinations",
        "inclinations",
        INCLINATION,
        "mrad",
        ("1st direction", "2nd direction"),
        " Components of an inclination: in two perpendicular directions across the measured vertical.",
    ),
    Quantity("distance", "distance_", "distances", "distances", DISTANCE, "mm", ("signed error",)),
)


def pose_chart(rows: Sequence[PoseRow], title: str, quantity: Quantity) -> Chart:
    """Error of each row before and after a fit, and its components after it with 95 % intervals.

    Args:
        rows: of one test and role.
        title: name and role of the test.
        quantity: to be drawn.
    """
    part, unit = quantity.part, quantity.unit
    before, error, std = (
        1e3 * np.array([getattr(row, what)[part] for row in rows]) for what in ("before", "error", "std")
    )
    x, size = np.arange(1, len(rows) + 1), 4.0 if len(rows) <= MANY else 2.0
    lengths = lengths_of(before), lengths_of(error)
    upper = (
        Line(x, lengths[0], "before the fit", INITIAL, 0.0, "", "x", size),
        Line(x, lengths[1], "after the fit", FITTED, 0.0, "", "o", size),
    )
    positive = np.concatenate(lengths)[np.concatenate(lengths) > 0.0]
    limits = (positive.min() / 1.5, 1.5 * positive.max()) if positive.size else None
    rows_axis = Axis("row" if len({row.point for row in rows}) == 1 else "row and point", whole=True)
    panels = [Panel(upper, rows_axis, Axis(f"error ({unit})", True, limits), height=1.6)]
    for i, (label, color, marker) in enumerate(zip(quantity.labels, OF_AXIS, "^sD", strict=False)):
        reach = INTERVAL * np.nan_to_num(std[:, i])
        if len(rows) > MANY:  # intervals would cover each other
            marks: list[Mark] = [
                Rule(0.0),
                Band(x, -reach, reach, f"95 %, {label}", color),
                Line(x, error[:, i], label, color, 0.0, "", marker, 0.8 * size),
            ]
        else:
            points = Line(x, error[:, i], f"{label}, 95 %", color, 0.6, "", marker, 0.8 * size, reach=reach)
            marks = [Rule(0.0), points]
        panels.append(Panel(tuple(marks), rows_axis, Axis(f"{label} ({unit})"), height=1.1))
    means = [f"{np.nanmean(each):.3g}" for each in lengths]
    return Chart(
        f"{title}: mean error {means[1]} {unit} after the fit, {means[0]} before",
        "Error (predicted minus measured) of each row before and after the fit, and its components after it with 95 %"
        " intervals." + quantity.note,
        [[tuple(panels)]],
        6.8,
    )


GAP = 1.5
"""Time step relative to the median above which a curve is interrupted."""
FEW = 100
"""Number of samples below which each is marked."""


def torque_chart(result: Result, entry: TorqueEntry) -> Chart:
    """Measured and predicted torque or force of each drive, and their residual, over time.

    Args:
        result: the identification.
        entry: one of its torque tests.
    """
    source, test = entry.source, entry.test
    predicted = np.asarray(test.predict(test.view(result.model)))
    measured, number = np.asarray(test.effort), np.asarray(test.coordinate)
    cell, errors = list[Panel](), dict[str, float]()
    for i, (name, turns) in enumerate(zip(source.coordinates, source.revolute, strict=True)):
        own = number == i
        time, (effort, model) = source.time_s[own], (x[own] for x in (measured, predicted))
        errors[name] = 100.0 * float(np.sqrt(np.mean((effort - model) ** 2) / max(np.mean(effort**2), 1e-300)))
        # interrupt the curve at gaps in the record
        gaps = 1 + np.flatnonzero(np.diff(time) > GAP * np.median(np.diff(time)))
        time, effort, model = (np.insert(x, gaps, np.nan) for x in (time, effort, model))
        marks: list[Mark] = [
            Rule(0.0, color="#cccccc"),
            Line(time, effort, "measured", "#737373", 1.6, marker="." if own.sum() < FEW else ""),
            Line(time, model, "predicted", FITTED, 0.9),
            Line(time, model - effort, "residual", ALERT, 0.6),
        ]
        span = float(np.nanmax(time) - np.nanmin(time))
        limits = (float(np.nanmin(time)) - 0.01 * span, float(np.nanmax(time)) + 0.01 * span)
        unit = "N m" if turns else "N"
        cell.append(Panel(marks, Axis("time (s)", limits=limits), Axis(f"{name} ({unit})"), height=1.55))
    worst = max(errors, key=errors.__getitem__)
    ends = " to ".join(dict.fromkeys((percent(min(errors.values())), percent(errors[worst]))))
    of_worst = f", the largest of {worst}" if len(errors) > 1 else ""
    return Chart(
        f"{result.study.name}, {entry.name}, {ROLES[entry.role]}: RMS error {ends} % of the measurement{of_worst}",
        "Measured and predicted torque or force of each drive over time, and the residual, predicted minus measured.",
        [[tuple(cell)]],
        7.0,
    )


LONGEST_FORMULA = 46
"""Longest shown formula, characters."""


def base_chart(study: str, metrics: TorqueMetrics) -> Chart:
    """Relative standard deviation of each base parameter and, for simulated machines, its relative error.

    Args:
        study: name of the study.
        metrics: of its torque tests; base parameters without a standard deviation or with value 0 are omitted.
    """
    rows = [row for row in metrics.base if row.value and np.isfinite(row.std) and row.std > 0.0]
    at, std = np.arange(len(rows)), np.array([100.0 * row.std / abs(row.value) for row in rows])
    marks: list[Mark] = [Line(std, at, "standard deviation", width=0.0, dashes="", marker="o", size=4.5)]
    known = [(100.0 * abs(row.value / row.true - 1.0), y) for y, row in enumerate(rows) if row.true]
    if known:
        errors, places = np.array(known).T
        marks.append(Line(errors, places, "error", TRUE, 0.0, "", "|", 9.0))
    y = named_rows([textwrap.shorten(row.formula, LONGEST_FORMULA, placeholder=" ...") for row in rows])
    return single(
        Panel(marks, Axis("% of the value", log=bool(rows)), y, height=0.2 * len(rows) + 0.2),
        f"{study}: {np.sum(std < 10.0)} of {len(metrics.base)} base parameters have a standard deviation below 10 %",
        "Standard deviation of each base parameter in % of its value.",
        4.4,
    )
