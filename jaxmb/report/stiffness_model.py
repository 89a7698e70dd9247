"""Complete stiffness model in a report: tables and figures."""

from functools import partial

import numpy as np

from jaxmb.identify.assess.metrics import CompensatorOutcome, StiffnessModelMetrics
from jaxmb.identify.assess.result import INTERVAL, Result
from jaxmb.report.charts import FITTED, MEASURED, Axis, Bars, Chart, Line, Note, Panel, Rule, named_rows
from jaxmb.report.charts_of_tests import USE
from jaxmb.report.section import Cell, Picture, Section, Table, left, number, right, section, table
from jaxmb.report.tests import budget_table

STEPS = {
    "original": "joints and links, 36 compliances per link",
    "M1": "symmetric compliances",
    "M2": "links as beams",
    "M3": "joints added to the links before them",
    "G1": "of these identifiable",
    "G2": "without effect on the tests",
    "G3": "identifiable only in combination",
    "final": "independent, kept",
}
AXES = ("x", "y", "z", "position")
MODELS = {
    "none": "deflections without compensation",
    "J1": "joints",
    "J2": "joints and compensator",
    "C1": "joints and links",
    "C2": "joints, links and compensator",
}


def stiffness_model_sections(result: Result) -> list[Section]:
    """Sections on the reduction of a complete stiffness model, the compensation by its variants and its compliances;
    empty for a study without one."""
    metrics = result.metrics.stiffness_model
    if metrics is None:
        return []
    roles = [role for role in USE if metrics.rows(role)]
    parts = (
        reduction_table(metrics),
        *(compensation_table(metrics, role) for role in roles),
        None if metrics.compensator is None else compensator_table(metrics.compensator),
        compliance_table(result),
        budget_table(metrics.budget) if metrics.budget else None,
        *(Picture(f"errors-{role}", partial(error_chart, result.study.name, metrics, role)) for role in roles),
        Picture("compliances", partial(compliance_chart, result)),
    )
    return section("Complete stiffness model", parts)


def reduction_table(metrics: StiffnessModelMetrics) -> Table:
    """Number of parameters by step, in the layout of Table 1 of Klimchik et al. 2014."""
    published = metrics.published_reduction
    return table(
        "Reduction of the model (layout of Klimchik et al. 2014, Table 1)",
        (*left("step", "model"), *right("parameters", "published")),
        [
            (step, STEPS[step], str(count), str(published[step]) if published else None)
            for step, count in metrics.reduction.items()
        ],
    )


def compensation_table(metrics: StiffnessModelMetrics, role: str) -> Table:
    """Errors after compensation by each model, mm, in the layout of Table 2 of Klimchik et al. 2014.

    Models that cannot be judged on these tests have dashes. With Monte-Carlo draws of the instrument errors, the last
    two columns are the standard deviations of the compensated percentage and of the predicted translations over the
    draws, for the tests on which compensation is judged.
    """
    drawn = metrics.monte_carlo if role == metrics.evaluated_role else None
    by_name, rows = {row.model: row for row in metrics.rows(role) or ()}, []
    deviations = ({}, {}) if drawn is None else (drawn.compensated_percent_std, drawn.predicted_std_mm)
    for name in ("none", *metrics.parameters):
        label = name if name == "none" else f"{name}: {MODELS[name]}"
        row = by_name.get(name)
        if row is None:
            rows.append((label, str(metrics.parameters[name]), *[None] * (len(AXES) + 3)))
        else:
            cells = [f"{errors.max:.2f}  {errors.rms:.2f}" for errors in (row.x, row.y, row.z, row.position)]
            scatter = [number(std[name], 2) if name in std else None for std in deviations]
            rows.append((label, str(row.parameters or "-"), *cells, f"{row.compensated_percent:.1f}", *scatter))
    axes = (f"{axis} max, RMS" for axis in AXES)
    return table(
        f"Errors after compensation, tests {USE[role]} (mm; layout of Klimchik et al. 2014, Table 2)",
        (*left("model"), *right("parameters", *axes, "compensated %", "scatter %", "scatter mm")),
        rows,
    )


def compensator_table(found: CompensatorOutcome) -> Table:
    """Compliance of the compensated joint at its angles, and that of the fitted compensator spring."""
    spring, caption = found.spring, ""
    rows = [
        (
            f"{angle:.4g} deg", number(float(found.compliance[i])), number(float(found.std[i]), 2),
            None if spring is None else number(float(spring.fitted_compliance[i])),
        )
        for i, angle in enumerate(found.angle_deg)
    ]  # fmt: skip
    if spring is not None:
        values = (
            ("joint", spring.joint_stiffness, spring.std["joint_stiffness"], "N m/rad"),
            ("spring", spring.stiffness, spring.std["stiffness"], "N/m"),
            ("length", spring.free_length, spring.std["free_length"], "m"),
        )
        texts = [
            f"{name} {number(value)} ± {number(std, 2)} {unit}" if std < abs(value) else f"{name} not identifiable"
            for name, value, std, unit in values
        ]
        caption = f"compensator: {', '.join(texts)}"
    return table(
        f"Compliance of {found.joint} and the preceding link against the joint angle (rad/(N m))",
        (*left("angle"), *right("compliance", "std", "of the spring model")),
        rows,
        caption,
    )


def compliance_table(result: Result) -> Table:
    """The identified compliances with their standard deviations."""
    rows = [
        (
            name.removeprefix("compliance."), p.unit, number(p.value), number(p.std, 2), number(100.0 * p.std_log, 2),
            Cell(p.identifiable, p.identifiable),
        )
        for name, p in result.parameters.items()
    ]  # fmt: skip
    return Table(
        "Compliances of the reduced model",
        (*left("parameter", "unit"), *right("value", "std", "std %"), *left("identifiable")),
        tuple(rows),
    )


BINS = 31
"""Bins of a histogram of errors: odd, so that the middle one is centred on 0."""


def error_chart(study: str, metrics: StiffnessModelMetrics, role: str) -> Chart:
    """Histograms of the errors after compensation along x, y and z, one row per model.

    The middle bin is centred on 0; bins are the same for fitted and held-out tests.

    Args:
        study: name of the study.
        metrics: its stiffness-model metrics.
        role: "fit" or "check" tests.
    """
    errors = metrics.errors_mm(role) or {}
    both = [metrics.errors_mm(each) or {} for each in USE]
    largest = max(float(np.abs(values).max()) for each in both for values in each.values()) or 1.0
    bins = np.linspace(-largest, largest, BINS + 1)
    middle, zero = 0.5 * (bins[1:] + bins[:-1]), Rule(0.0, "x", color="#4d4d4d")

    def cell(name: str, i: int) -> tuple[Panel]:
        heading = "" if i else f"{name}: {MODELS[name]}"
        x = Axis(f"error along {'xyz'[i]} (mm)", limits=(-1.03 * largest, 1.03 * largest))
        if name not in errors:
            y = Axis("points", limits=(0.0, 1.1), ticks=())
            return (Panel((zero, Note("not judged", 0.5, 0.5, inside=True)), x, y, heading, 0.85),)
        counts = [np.histogram(column, bins)[0] for column in errors[name].T]
        color = MEASURED if name.startswith("J") else FITTED
        bars = Bars(middle, np.zeros(BINS), counts[i], "y", 2.0 * largest / BINS, "", color)
        return (Panel((bars, zero), x, Axis("points", limits=(0.0, 1.1 * np.max(counts))), heading, 0.85),)

    shares = {row.model: row.compensated_percent for row in metrics.rows(role) or () if row.model != "none"}
    best = max(shares, key=shares.__getitem__) if shares else ""
    found = f"{best} compensates {shares[best]:.1f} %" if shares else "errors after compensation"
    return Chart(
        f"{study}: {found} of the deflections; errors in the tests {USE[role]}",
        "Histograms of the errors that each model leaves along x, y and z; all rows have the same horizontal axis.",
        [[cell(name, i) for i in range(3)] for name in metrics.parameters],
        2.0,
        shared_y=True,
        shared_x=True,
    )


def compliance_chart(result: Result) -> Chart:
    """Identified compliances with their 95 % intervals, one panel per unit."""
    units = dict.fromkeys(p.unit for p in result.parameters.values())

    def panel(unit: str) -> Panel:
        own = {name.removeprefix("compliance."): p for name, p in result.parameters.items() if p.unit == unit}
        value, std = np.array([(p.value, p.std) for p in own.values()]).T
        rows, reach = range(len(own)), INTERVAL * std
        points = Line(value, rows, "value, 95 %", FITTED, 1.4, "", "o", 3.5, reach=reach, along="x")
        x, y = Axis(f"compliance ({unit})"), named_rows([*own])
        return Panel((Rule(0.0, "x", width=0.8), points), x, y, height=0.17 * len(own) + 0.1)

    known = sum(p.identifiable == "yes" for p in result.parameters.values())
    return Chart(
        f"{result.study.name}: {known} of {len(result.parameters)} compliances identified",
        "Compliances of the reduced model with their 95 % intervals, one panel per unit.",
        [[(panel(unit),)] for unit in units],
        4.6,
    )
