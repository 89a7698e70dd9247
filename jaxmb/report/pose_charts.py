"""Charts of pose tests: the error of each row before and after a fit."""

from collections.abc import Sequence

import numpy as np

from jaxmb.identify.assess.result import INTERVAL
from jaxmb.identify.assess.tests.poses import PoseRow
from jaxmb.report.charts import AXIS, FITTED, INITIAL, OF_AXIS, Axis, Band, Chart, Intervals, Line, Mark, Panel, Rule

MANY = 80
"""Number of rows above which markers are small and intervals are bands."""


def pose_chart(rows: Sequence[PoseRow], title: str, angles: bool = False) -> Chart:
    """Error of each row before and after a fit, and its components after it with 95 % intervals.

    Args:
        rows: of one test and role.
        title: name and role of the test.
        angles: whether rotations are drawn instead of positions.
    """
    part, unit = (slice(3, 6), "mrad") if angles else (slice(0, 3), "mm")
    before, error, std = (
        1e3 * np.array([getattr(row, what)[part] for row in rows]) for what in ("before", "error", "std")
    )
    x, size = np.arange(1, len(rows) + 1), 4.0 if len(rows) <= MANY else 2.0
    lengths = _length(before), _length(error)
    upper = (
        Line(x, lengths[0], "before the fit", INITIAL, 0.0, "", "x", size),
        Line(x, lengths[1], "after the fit", FITTED, 0.0, "", "o", size),
    )
    rows_axis = Axis("row", whole=True)
    panels = [Panel(upper, rows_axis, Axis(f"error ({unit})", log=True), height=1.6)]
    for i, (axis, color, marker) in enumerate(zip(AXIS, OF_AXIS, "^sD", strict=True)):
        reach = INTERVAL * np.nan_to_num(std[:, i])
        if len(rows) > MANY:  # intervals would cover each other
            limits = Band(x, -reach, reach, f"95 % of {axis}", color)
            marks: list[Mark] = [Rule(0.0), limits, Line(x, error[:, i], axis, color, 0.0, "", marker, 0.8 * size)]
        else:
            marks = [Rule(0.0), Intervals(x, error[:, i], reach, "y", f"{axis}, 95 %", color, 0.6, marker, 0.8 * size)]
        label = f"{'about' if angles else 'along'} {axis} ({unit})"
        panels.append(Panel(tuple(marks), rows_axis, Axis(label), height=1.1))
    cell = tuple(panels)
    means = [f"{np.nanmean(each):.3g}" for each in lengths]
    finding = f"{title}: mean error {means[1]} {unit} after the fit, {means[0]} before"
    caption = (
        "Error (predicted minus measured) of each row before and after the fit, and its components after it with 95 %"
        " intervals."
    )
    return Chart(finding, caption, [[cell]], 6.8)


def _length(vectors: np.ndarray) -> np.ndarray:
    """Length of the measured components of each vector; NaN where none is measured."""
    seen = np.isfinite(vectors).any(axis=1)
    return np.where(seen, np.sqrt(np.nansum(vectors**2, axis=1)), np.nan)
