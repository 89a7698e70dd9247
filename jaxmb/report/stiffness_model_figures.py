"""Figures of a complete stiffness model, after Figure 3 of Klimchik et al. 2014."""

import numpy as np
from matplotlib.figure import Figure

from jaxmb.identify.assess.result import INTERVAL, Result
from jaxmb.identify.assess.stiffness_model_metrics import StiffnessModelMetrics
from jaxmb.report.stiffness_model import MODELS, ROLES
from jaxmb.report.style import FITTED, INITIAL, MEASURED

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
