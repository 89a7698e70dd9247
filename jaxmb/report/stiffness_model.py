"""Complete stiffness model in a report: tables and figures."""

from functools import partial

import numpy as np
from matplotlib.figure import Figure

from jaxmb.identify.assess.result import INTERVAL, Result
from jaxmb.identify.assess.stiffness_model_metrics import CompensatorOutcome, StiffnessModelMetrics
from jaxmb.report.section import Cell, Part, Picture, Section, Table, left, number, right, section
from jaxmb.report.style import FITTED, INITIAL, MEASURED
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
ROLES = {"check": "not used in the fit", "fit": "used in the fit"}


def stiffness_model_sections(result: Result) -> list[Section]:
    """Sections on the reduction of a complete stiffness model, the compensation by its variants and its compliances;
    empty for a study without one."""
    metrics = result.metrics.stiffness_model
    if metrics is None:
        return []
    roles = [role for role in ROLES if metrics.rows(role)]
    parts: list[Part | None] = [
        reduction_table(metrics),
        *(compensation_table(metrics, role) for role in roles),
        None if metrics.compensator is None else compensator_table(metrics.compensator),
        compliance_table(result),
        budget_table(metrics.budget),
    ]
    for role in roles:
        draw = partial(error_figure, result.study.name, metrics, role)
        parts.append(Picture(f"errors-{role}", draw))
    draw = partial(compliance_figure, result)
    return section("Complete stiffness model", [*parts, Picture("compliances", draw)])


def reduction_table(metrics: StiffnessModelMetrics) -> Table:
    """Number of parameters by step, in the layout of Table 1 of Klimchik et al. 2014."""
    published = metrics.published_reduction
    rows = [
        (step, STEPS[step], str(count), *((str(published[step]),) if published else ()))
        for step, count in metrics.reduction.items()
    ]
    columns = (*left("step", "model"), *right("parameters", *(("published",) if published else ())))
    return Table("Reduction of the model (layout of Klimchik et al. 2014, Table 1)", columns, tuple(rows))


def compensation_table(metrics: StiffnessModelMetrics, role: str) -> Table:
    """Errors after compensation by each model, mm, in the layout of Table 2 of Klimchik et al. 2014.

    Models that cannot be judged on these tests have dashes. With Monte-Carlo draws of the instrument errors, the last
    two columns are the standard deviations of the compensated percentage and of the predicted translations over the
    draws, for the tests on which compensation is judged.
    """
    drawn = metrics.monte_carlo if role == metrics.judged else None
    scatter = () if drawn is None else ("scatter %", "scatter mm")
    by_name, rows = {row.model: row for row in metrics.rows(role) or ()}, []
    for name in ("none", *metrics.parameters):
        label = name if name == "none" else f"{name}: {MODELS[name]}"
        row = by_name.get(name)
        if row is None:
            rows.append((label, str(metrics.parameters[name]), *["-"] * (len(AXES) + 1 + len(scatter))))
            continue
        cells = [f"{errors.max:.2f}  {errors.rms:.2f}" for errors in (row.x, row.y, row.z, row.position)]
        cells.append(f"{row.compensated_percent:.1f}")
        if drawn is not None:
            cells += [_scatter(std, name) for std in (drawn.compensated_percent_std, drawn.predicted_std_mm)]
        rows.append((label, str(row.parameters or "-"), *cells))
    columns = (
        *left("model"), *right("parameters", *(f"{axis} max, RMS" for axis in AXES), "compensated %", *scatter)
    )  # fmt: skip
    title = f"Errors after compensation, tests {ROLES[role]} (mm; layout of Klimchik et al. 2014, Table 2)"
    return Table(title, columns, tuple(rows))


def _scatter(deviations: dict[str, float], model: str) -> str:
    return number(deviations[model], 2) if model in deviations else "-"


def compensator_table(found: CompensatorOutcome) -> Table:
    """Compliance of the compensated joint at its angles, and that of the fitted compensator spring."""
    spring, rows, caption = found.spring, [], ""
    for i, angle in enumerate(found.angle_deg):
        cells = [number(float(found.compliance[i])), number(float(found.std[i]), 2)]
        if spring is not None:
            cells.append(number(float(spring.fitted_compliance[i])))
        rows.append((f"{angle:.4g} deg", *cells))
    if spring is not None:
        values = (
            ("joint", spring.joint_stiffness, spring.std["joint_stiffness"], "Nm/rad"),
            ("spring", spring.stiffness, spring.std["stiffness"], "N/m"),
            ("length", spring.free_length, spring.std["free_length"], "m"),
        )
        texts = [
            f"{name} {number(value)} +- {number(std, 2)} {unit}" if std < abs(value) else f"{name} not identifiable"
            for name, value, std, unit in values
        ]
        caption = f"compensator: {', '.join(texts)}"
    columns = (*left("angle"), *right("compliance", "std", *(("of the spring model",) if spring is not None else ())))
    title = f"Compliance of {found.joint} and the preceding link against the joint angle (rad/Nm)"
    return Table(title, columns, tuple(rows), caption)


def compliance_table(result: Result) -> Table:
    """The identified compliances with their standard deviations."""
    rows = [
        (
            name.removeprefix("compliance."), p.unit, number(p.value), number(p.std, 2), number(100.0 * p.std_log, 2),
            Cell(p.identifiable, p.identifiable),
        )
        for name, p in result.parameters.items()
    ]  # fmt: skip
    columns = (*left("parameter", "unit"), *right("value", "std", "std %"), *left("identifiable"))
    return Table("Compliances of the reduced model", columns, tuple(rows))


BINS = 31
"""Bins of a histogram of errors: odd, so that the middle one is centred on 0."""


def error_figure(study: str, metrics: StiffnessModelMetrics, role: str) -> Figure:
    """Histograms of the errors after compensation along x, y and z, one row per model.

    The middle bin is centred on 0; bins are the same for fitted and held-out tests.

    Args:
        study: name of the study.
        metrics: its stiffness-model metrics.
        role: "fit" or "check" tests.
    """
    errors, models = metrics.errors_mm(role) or {}, list(metrics.parameters)
    both = [metrics.errors_mm(each) or {} for each in ROLES]
    largest = max(float(np.abs(values).max()) for each in both for values in each.values()) or 1.0
    bins = np.linspace(-largest, largest, BINS + 1)
    figure = Figure(figsize=(7.2, 0.8 + 1.15 * len(models)), layout="constrained")
    grid = figure.subplots(len(models), 3, sharex=True, sharey="row", squeeze=False)
    for row, name in zip(grid, models, strict=True):
        for i, axes in enumerate(row):
            if name in errors:
                colour = MEASURED if name.startswith("J") else FITTED
                axes.hist(errors[name][:, i], bins, color=colour)
            else:
                axes.text(0.5, 0.5, "not judged", transform=axes.transAxes, ha="center", va="center")
                axes.set_yticks([])
            axes.axvline(0.0, color="0.3", lw=0.6)
        row[0].set_title(f"{name}: {MODELS[name]}", loc="left")
        row[0].set_ylabel("points")
    for axes, axis in zip(grid[-1], "xyz", strict=True):
        axes.set_xlim(-1.03 * largest, 1.03 * largest)
        axes.set_xlabel(f"error along {axis} (mm)")
    figure.suptitle(f"{study}: errors after compensation, tests {ROLES[role]}", fontsize=9, x=0.01, ha="left")
    return figure


def compliance_figure(result: Result) -> Figure:
    """Identified compliances with their 95 % intervals, one panel per unit."""
    groups: dict[str, list[str]] = {}
    for name, parameter in result.parameters.items():
        groups.setdefault(parameter.unit, []).append(name)
    sizes = [len(names) for names in groups.values()]
    figure = Figure(figsize=(6.4, 0.4 + 0.5 * len(sizes) + 0.17 * sum(sizes)), layout="constrained")
    grid = figure.subplots(len(groups), 1, squeeze=False, height_ratios=[size + 0.2 for size in sizes])[:, 0]
    for axes, (unit, names) in zip(grid, groups.items(), strict=True):
        value = np.array([result.parameters[name].value for name in names])
        std = np.array([result.parameters[name].std for name in names])
        row = np.arange(len(names))
        axes.axvline(0.0, color="0.5", lw=0.8)
        axes.errorbar(value, row, xerr=INTERVAL * std, fmt="none", ecolor=INITIAL, elinewidth=1.4)
        axes.plot(value, row, "o", ms=3.5, color=FITTED)
        axes.set_yticks(row, [name.removeprefix("compliance.") for name in names])
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlabel(f"compliance ({unit})")
    figure.suptitle(f"{result.study.name}: compliances and 95 % intervals", fontsize=9, x=0.01, ha="left")
    return figure
