"""Charts of deflection tests: displacements and convergence of the values with the number of load cases."""

from collections.abc import Sequence

import numpy as np

from jaxmb.identify.assess.deflections import DeflectionRow, Displacement, Unit
from jaxmb.identify.assess.result import INTERVAL, Result
from jaxmb.identify.assess.tests.deflections import DeflectionMetrics, Settling
from jaxmb.report.charts import (
    AXIS,
    FITTED,
    INITIAL,
    OF_AXIS,
    TRUE,
    Axis,
    Band,
    Chart,
    Intervals,
    Line,
    Mark,
    Panel,
    Rule,
    in_grid,
)  # fmt: skip

MANY = 80
"""Number of points in a panel above which they are drawn small and without names."""
LONGEST = 30
"""Longest shown test name, characters."""
MEASURED_POINT = "#595959"


def displacement_chart(metrics: DeflectionMetrics) -> Chart:
    """Measured and predicted length of the translation of each point in each test, with 95 % intervals (Fig. 6).

    Lower panels: residual along x, y and z, since a prediction of the right length may have the wrong direction.
    """
    cells = []
    for title, rows in _sets(metrics, "mm"):
        lengths = np.array([_lengths(row.displacement("mm")) for row in rows])
        marks = _compared(rows, lengths[:, 0], lengths[:, 1])
        top = 1.08 * float(np.nanmax(lengths[..., 0] + INTERVAL * np.nan_to_num(lengths[..., 1])))
        upper = Panel(marks, Axis(), Axis("displacement (mm)", limits=(0.0, top)), title, 1.7)
        cells.append([(upper, Panel(_residuals(rows), _tests(rows), Axis("measured -\npredicted (mm)"), height=1.3))])
    return Chart(
        f"Displacements: {_explained(metrics, 'mm')}",
        "Length of the translation of each point, measured and predicted, and the difference along each ground axis.",
        cells, 6.8,
    )  # fmt: skip


def _explained(metrics: DeflectionMetrics, unit: Unit) -> str:
    shares = [line.gaps(unit).explained_percent for line in metrics.sets]
    known = [share for share in shares if share is not None]
    return f"{min(known):.1f} % explained" if len(known) == 1 else f"{min(known):.1f} to {max(known):.1f} % explained"


def _residuals(rows: list[DeflectionRow]) -> list[Mark]:
    """Measured minus predicted translation along the ground's axes, with the 95 % intervals of the measurement."""
    marks: list[Mark] = [Rule(0.0)]
    for i, (axis, color, marker) in enumerate(zip(AXIS, OF_AXIS, "^sD", strict=True)):
        residual = np.array([row.displacement("mm").missed[i] for row in rows])
        std = np.array([row.displacement("mm").measured_std[i] for row in rows])
        x = np.arange(len(rows)) + 0.22 * _marker_offset(rows) * (i - 1)
        size = 3.2 if len(rows) <= MANY else 1.5
        marks.append(Intervals(x, residual, INTERVAL * std, "y", f"residual along {axis}", color, 0.7, marker, size))
    return marks


def rotation_chart(metrics: DeflectionMetrics) -> Chart:
    """Measured and predicted rotation of each point about x, y and z of the ground in each test (Fig. 7)."""
    cells = []
    for title, rows in _sets(metrics, "deg"):
        panels, rotations = [], [row.displacement("deg") for row in rows]
        for axis in range(3):
            measured = np.array([[r.measured[axis], r.measured_std[axis]] for r in rotations])
            predicted = np.array([[r.predicted[axis], r.predicted_std[axis]] for r in rotations])
            marks = (Rule(0.0), *_compared(rows, measured, predicted))
            y = Axis(f"about {AXIS[axis]} (deg)")
            panels.append(Panel(marks, _tests(rows), y, "" if axis else title, 1.25))
        cells.append([tuple(panels)])
    caption = "Rotation of each point about the ground axes, measured and predicted, with 95 % intervals."
    return Chart(f"Rotations: {_explained(metrics, 'deg')}", caption, cells, 6.8)


def _sets(metrics: DeflectionMetrics, unit: Unit) -> list[tuple[str, list[DeflectionRow]]]:
    """Title and rows of each set with measurements in this unit."""
    found = []
    for line in metrics.sets:
        share = line.gaps(unit).explained_percent
        if share is not None:
            role = "used in the fit" if line.role == "fit" else "not used in the fit"
            rows = [row for row in metrics.deflections if row.set == line.set]
            found.append((f"{line.set}: {line.tests} tests {role}, {share:.1f} % explained", rows))
    return found


def _lengths(displacement: Displacement) -> tuple[tuple[float, float], tuple[float, float]]:
    """Length of the measured components of a displacement with its standard deviation, measured and predicted."""
    d = displacement
    return _length(d.measured, d.measured_std, d.seen), _length(d.predicted, d.predicted_std, d.seen)


def _length(vector: np.ndarray, std: np.ndarray, seen: np.ndarray) -> tuple[float, float]:
    if not seen.any():
        return np.nan, np.nan
    length = float(np.linalg.norm(vector[seen]))
    return length, float(np.linalg.norm(vector[seen] * std[seen]) / length) if length > 0.0 else float(std[seen].max())


def _compared(rows: Sequence[DeflectionRow], measured: np.ndarray, predicted: np.ndarray) -> list[Mark]:
    """Measured and predicted values [row, (value, std)] side by side."""
    x, offset, few = np.arange(len(rows)), 0.12 * _marker_offset(rows), len(rows) <= MANY
    return [
        Intervals(x - offset, measured[:, 0], INTERVAL * measured[:, 1], "y", "measured, 95 %", MEASURED_POINT, 0.9,
                  "x", 4.5 if few else 2.0),
        Intervals(x + offset, predicted[:, 0], INTERVAL * predicted[:, 1], "y", "predicted, 95 %", FITTED, 0.9, "o",
                  4.0 if few else 2.0, filled=False),
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


def convergence_chart(result: Result, found: Settling) -> Chart:
    """Identified values against the number of tests in random orders: median and central 90 % of the orders (Fig. 5).

    The band shrinks to zero at the full set, where all orders agree: it shows convergence, not uncertainty. The 95 %
    interval of the value is drawn at the end.
    """
    names = [name for name in result.study.free.names if np.isfinite(found.values[name].median).any()]
    cells = [(_convergence_panel(result, found, name),) for name in names] or [(Panel(()),)]
    absent = [name for name in result.study.free.names if name not in names]
    note = f"not identifiable: {', '.join(absent)}" if absent else ""
    title = f"{result.study.name}: values against the number of tests, {found.orders} random orders"
    caption = "The band shrinks where all orders agree: it shows convergence, not uncertainty."
    return Chart(title, caption, in_grid(cells, 3), 1.9, note=note)


def _convergence_panel(result: Result, found: Settling, name: str) -> Panel:
    parameter = result.parameters[name]
    unit = 10.0 ** (3 * int(np.floor(np.log10(abs(parameter.value)) / 3.0))) if parameter.value else 1.0
    counts, band = found.tests, found.values[name]
    lower, median, upper = band.lower / unit, band.median / unit, band.upper / unit
    interval = INTERVAL * parameter.std / unit if np.isfinite(parameter.std) else 0.0
    end = parameter.value / unit
    marks: list[Mark] = [
        Band(counts, lower, upper, "central 90 % of the orders, not a confidence band"),
        Line(counts, median, "median", FITTED, 1.0, marker="o", size=2.5),
        Intervals(counts[-1:], [end], [interval], "y", "95 % interval of the value", INITIAL, 1.6, "", cap=2.5),
    ]
    shown = [x for x in (*lower, *upper) if np.isfinite(x)]
    if name in result.study.truth:
        marks.append(Rule(result.study.truth[name] / unit, "y", "true", TRUE, 1.0, "--"))
        shown.append(result.study.truth[name] / unit)
    # Values from a few tests may be off by decades: the range is limited to twice the final value.
    shown += [end - interval, end + interval]
    low, high = max(min(shown), end - abs(end)), min(max(shown), end + abs(end))
    margin = 0.08 * (high - low) or 0.05 * abs(end) or 1.0
    title = f"{name} ({unit:.0e} {parameter.unit})".replace("e+0", "e").replace("(1e0 ", "(")
    x = Axis("number of tests", limits=(0.0, float(counts[-1]) + 1.0), whole=True)
    return Panel(marks, x, Axis("", limits=(low - margin, high + margin)), title, 1.35)
