"""Charts of pose tests: the error of each row before and after a fit."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxmb.identify.assess.result import INTERVAL
from jaxmb.identify.assess.tests.poses import PoseRow
from jaxmb.identify.experiments.pose_test import INCLINATION, POSITION, ROTATION
from jaxmb.report.charts import AXIS, FITTED, INITIAL, OF_AXIS, Axis, Band, Chart, Intervals, Line, Mark, Panel, Rule

MANY = 80
"""Number of rows above which markers are small and intervals are bands."""


class Quantity(NamedTuple):
    """A measured quantity of a point."""

    name: str
    prefix: str
    """Of its entries in `PoseErrors`."""
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
    Quantity("position", "", "poses", POSITION, "mm", tuple(f"along {axis}" for axis in AXIS)),
    Quantity("rotation", "angle_", "pose-angles", ROTATION, "mrad", tuple(f"about {axis}" for axis in AXIS)),
    Quantity(
        "inclination",
        "inclination_",
        "inclinations",
        INCLINATION,
        "mrad",
        ("1st direction", "2nd direction"),
        " Components of an inclination: in two perpendicular directions across the measured vertical.",
    ),
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
    lengths = _length(before), _length(error)
    upper = (
        Line(x, lengths[0], "before the fit", INITIAL, 0.0, "", "x", size),
        Line(x, lengths[1], "after the fit", FITTED, 0.0, "", "o", size),
    )
    one_point = len({row.point for row in rows}) == 1
    rows_axis = Axis("row" if one_point else "row and point", whole=True)
    panels = [Panel(upper, rows_axis, Axis(f"error ({unit})", log=True), height=1.6)]
    for i, (label, color, marker) in enumerate(zip(quantity.labels, OF_AXIS, "^sD", strict=False)):
        reach = INTERVAL * np.nan_to_num(std[:, i])
        if len(rows) > MANY:  # intervals would cover each other
            limits = Band(x, -reach, reach, f"95 %, {label}", color)
            marks: list[Mark] = [Rule(0.0), limits, Line(x, error[:, i], label, color, 0.0, "", marker, 0.8 * size)]
        else:
            marks = [Rule(0.0), Intervals(x, error[:, i], reach, "y", f"{label}, 95 %", color, 0.6, marker, 0.8 * size)]
        panels.append(Panel(tuple(marks), rows_axis, Axis(f"{label} ({unit})"), height=1.1))
    cell = tuple(panels)
    means = [f"{np.nanmean(each):.3g}" for each in lengths]
    finding = f"{title}: mean error {means[1]} {unit} after the fit, {means[0]} before"
    caption = (
        "Error (predicted minus measured) of each row before and after the fit, and its components after it with 95 %"
        " intervals." + quantity.note
    )
    return Chart(finding, caption, [[cell]], 6.8)


def _length(vectors: np.ndarray) -> np.ndarray:
    """Length of the measured components of each vector; NaN where none is measured."""
    seen = np.isfinite(vectors).any(axis=1)
    return np.where(seen, np.sqrt(np.nansum(vectors**2, axis=1)), np.nan)
