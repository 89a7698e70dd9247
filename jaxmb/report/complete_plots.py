"""Figures of a complete stiffness model, after Figure 3 of Klimchik et al. 2014."""

from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure

from jaxmb.identify.result import Result
from jaxmb.report.complete_tables import MODELS
from jaxmb.report.style import FITTED, INITIAL, MEASURED


def complete_figures(result: Result) -> Iterator[tuple[str, Figure]]:
    """Name and figure: what the models leave of the deflections, and the identified compliances."""
    for role in ("check", "fit"):
        if f"errors_mm_{role}" in result.metrics:
            yield f"errors-{role}", error_figure(result, role)
    yield "compliances", compliance_figure(result)


def error_figure(result: Result, role: str) -> Figure:
    """Histograms of the errors after compensation along x, y and z, the joints' model beside the complete one."""
    errors = result.metrics[f"errors_mm_{role}"]
    pair = ("J2", "C2") if "C2" in errors else ("J1", "C1")
    figure = Figure(figsize=(7.2, 2.6), layout="constrained")
    largest = max(float(np.abs(errors[name]).max()) for name in pair)
    bins = np.linspace(-largest, largest, 31)
    for i, (axes, axis) in enumerate(zip(figure.subplots(1, 3, sharey=True), "xyz", strict=True)):
        for name, colour in zip(pair, (MEASURED, FITTED), strict=True):
            values = np.asarray(errors[name])[:, i]
            label = f"{name}, {MODELS[name]}"
            axes.hist(values, bins, color=colour, alpha=0.9 if colour == MEASURED else 0.7, label=label)
        axes.set_xlabel(f"error along {axis} (mm)")
    figure.axes[0].set_ylabel("number of points")
    told = {"check": "not used in the fit", "fit": "used in the fit"}[role]
    figure.suptitle(f"{result.study.name}: errors after compensation, tests {told}", fontsize=9, x=0.01, ha="left")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


def compliance_figure(result: Result) -> Figure:
    """Identified compliances with twice their standard deviations, a panel for each unit."""
    groups: dict[str, list[str]] = {}
    for name, parameter in result.parameters.items():
        groups.setdefault(parameter.unit, []).append(name)
    sizes = [len(names) for names in groups.values()]
    figure = Figure(figsize=(6.4, 1.4 + 0.17 * sum(sizes)), layout="constrained")
    grid = figure.subplots(len(groups), 1, squeeze=False, height_ratios=sizes)[:, 0]
    for axes, (unit, names) in zip(grid, groups.items(), strict=True):
        value = np.array([result.parameters[name].value for name in names])
        std = np.array([result.parameters[name].std for name in names])
        place = np.arange(len(names))
        axes.axvline(0.0, color="0.5", lw=0.8)
        axes.errorbar(value, place, xerr=2.0 * std, fmt="none", ecolor=INITIAL, elinewidth=1.4)
        axes.plot(value, place, "o", ms=3.5, color=FITTED)
        axes.set_yticks(place, [name.removeprefix("compliance.") for name in names])
        axes.invert_yaxis()
        axes.set_xlabel(f"compliance ({unit})")
    figure.suptitle(f"{result.study.name}: compliances and 2 standard deviations", fontsize=9, x=0.01, ha="left")
    return figure
