"""Report on torque tests."""

from collections.abc import Sequence

from jaxmb.identify.assess.result import Result
from jaxmb.identify.assess.tests.torque import TorqueMetrics
from jaxmb.identify.experiments.entry import Entry
from jaxmb.report.cells import number
from jaxmb.report.section import Part, Picture, Section, Table, drawn_by, left, right, section
from jaxmb.report.tests.common import file_names


def torque_sections(result: Result, entries: Sequence[Entry]) -> list[Section]:
    """Section on the measured and predicted torques or forces of each drive.

    Args:
        result: the identification.
        entries: the torque tests of its study.
    """
    metrics = result.metrics.of(TorqueMetrics)
    if metrics is None:
        return []
    files = file_names(result.study)
    parts: list[Part | None] = [torque_table(metrics), centre_table(metrics), base_table(metrics)]
    if metrics.base:
        draw = drawn_by("jaxmb.report.torque.base_figure:base_figure", result.study.name, metrics)
        parts.append(Picture("base-parameters", draw))
    for entry in entries:
        draw = drawn_by("jaxmb.report.torque.torque_figure:torque_figure", result, entry)
        parts.append(Picture(f"torques-{files[entry]}", draw))
    return section("Torque tests", parts)


def torque_table(metrics: TorqueMetrics) -> Table:
    """Errors of predicted torques and forces, one row per test and coordinate."""
    reduced = any(row.essential_percent is not None for row in metrics.torques)
    rows = tuple(
        (
            row.test, "fitted" if row.role == "fit" else "held out", row.coordinate, number(row.rms, 3),
            number(row.rms_error, 3), f"{row.relative_percent:.2f}",
            *([] if row.essential_percent is None else [f"{row.essential_percent:.2f}"]),
        )
        for row in metrics.torques
    )  # fmt: skip
    columns = (
        *left("test", "role", "coordinate"),
        *right("rms", "rms error", "error %", *(("essential %",) if reduced else ())),
    )
    caption = "error %: root mean square of measured less predicted over measured"
    if reduced:
        caption += "; essential %: with the essential parameters alone"
    return Table("Torques (Nm) and forces (N)", columns, rows, caption)


def centre_table(metrics: TorqueMetrics) -> Table | None:
    """Centres of mass of bodies with identified mass and first moments; None without any."""
    if not metrics.centres:
        return None
    rows = tuple(
        (row.body, row.axis, number(row.value), number(row.std, 2), *(number(end) for end in row.interval_95))
        for row in metrics.centres
    )
    columns = (*left("body", "axis"), *right("centre", "std", "from", "to"))
    return Table("Centres of mass, m", columns, rows, "of 95 % intervals, in the axes of each body")


def base_table(metrics: TorqueMetrics) -> Table | None:
    """Base parameters, with their errors for simulated machines; None without any."""
    if not metrics.base:
        return None
    rows = []
    essential = sum(row.essential_value is not None for row in metrics.base)
    reduced = any(row.essential_percent is not None for row in metrics.torques)
    for row in metrics.base:
        error = "-" if not row.true else f"{100.0 * (row.value / row.true - 1.0):+.2g}"
        cells = ["-", "-"]
        if row.essential_value is not None:
            cells = [number(row.essential_value), "-" if row.essential_std is None else number(row.essential_std, 2)]
        rows.append((row.formula, number(row.value), number(row.std, 2), error, *(cells if reduced else [])))
    columns = (
        *left("base parameter"),
        *right("value", "std", "error %", *(("essential", "std") if reduced else ())),
    )
    caption = "each row: a combination of parameters that the torques of this machine determine"
    if reduced:
        caption += f"; {essential} of {len(rows)} are essential: they fit the torques equally well with the others at 0"
    return Table("Base parameters, SI units", columns, tuple(rows), caption)
