"""Report on deflection tests."""

from collections.abc import Sequence

import numpy as np

from jaxmb.identify.assess.result import Result
from jaxmb.identify.assess.tests.deflections import DeflectionMetrics, ErrorRow
from jaxmb.identify.experiments.entry import Entry
from jaxmb.report.budget_table import budget_table
from jaxmb.report.cells import number
from jaxmb.report.section import Part, Picture, Section, Table, drawn_by, left, right, section

_FIGURES = "jaxmb.report.deflections"
MISSING = "-"


def deflection_sections(result: Result, entries: Sequence[Entry]) -> list[Section]:
    """Sections on the deflections explained by the identified machine and on the errors of the identified values.

    Args:
        result: the identification.
        entries: the deflection tests of its study.
    """
    metrics = result.metrics.of(DeflectionMetrics)
    if metrics is None:
        return []
    parts: list[Part | None] = [gap_table(metrics), budget_table(metrics.budget)]
    if metrics.table2 is not None:
        parts.append(instrument_table(result, metrics.table2))
    if metrics.convergence is not None:
        draw = drawn_by(f"{_FIGURES}.convergence_figure:convergence_figure", result, metrics.convergence)
        parts.append(Picture("convergence", draw))
    figures = f"{_FIGURES}.displacement_figures"
    if any(np.any(row.moved("mm").seen) for row in metrics.deflections):
        parts.append(Picture("displacements", drawn_by(f"{figures}:displacement_figure", metrics)))
    if any(np.any(row.moved("deg").seen) for row in metrics.deflections):
        parts.append(Picture("rotations", drawn_by(f"{figures}:rotation_figure", metrics)))
    return section("Deflection tests", parts)


def gap_table(metrics: DeflectionMetrics) -> Table:
    """Predicted against measured translations and rotations, one row per set of tests and kind."""
    rows = []
    for line in metrics.sets:
        for kind, errors in (("translation (mm)", line.translation), ("rotation (deg)", line.rotation)):
            if errors.explained_percent is None:
                continue
            lengths = errors.mean_measured, errors.max_measured, errors.mean_gap, errors.max_gap
            rows.append(
                (
                    line.set, "fitted" if line.role == "fit" else "held out", str(line.tests), kind,
                    *(MISSING if x is None else number(x, 3) for x in lengths), f"{errors.explained_percent:.1f}",
                )
            )  # fmt: skip
    columns = (
        *left("tests", "role"), *right("number"), *left("kind"),
        *right("mean", "max", "mean gap", "max gap", "explained %"),
    )  # fmt: skip
    return Table("Measured and predicted", columns, tuple(rows), "gap: between measured and predicted")


def instrument_table(result: Result, lines: Sequence[ErrorRow]) -> Table:
    """Identified values with their errors, in the layout of Table II of Dumas et al. 2011.

    The errors are the standard deviation over the Monte-Carlo draws, if any, and that by first-order propagation of the
    displacement errors. "on a bound" counts the draws that ended on a bound, which reduces the scatter.
    """
    draws = lines[0].draws if lines else 0
    columns_of_draws = (f"error, {draws} draws", "%", "on a bound") if draws else ()
    rows = []
    for row in lines:
        unit = result.parameters[row.parameter].unit
        if row.value is None:
            cells = ["not identifiable", *[MISSING] * len(columns_of_draws), MISSING, MISSING]
        else:
            by_draws = [number(row.error, 2), number(row.percent, 2), str(row.clipped)] if draws else []
            cells = [number(row.value), *by_draws, number(row.linear_error, 2), number(row.linear_percent, 2)]
        rows.append((row.parameter, unit, *cells))
    columns = (*left("parameter", "unit"), *right("value", *columns_of_draws, "error, first order", "%"))
    return Table("Values with their errors (layout of Dumas et al. 2011, Table II)", columns, tuple(rows))
