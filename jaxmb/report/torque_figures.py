"""Figures of torque tests: torques over time, and relative standard deviations of base parameters."""

import textwrap
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from jaxmb.identify.assess.result import Result
from jaxmb.identify.assess.tests.torque import TorqueMetrics
from jaxmb.identify.experiments.torque.source import TorqueEntry
from jaxmb.report.section import ROLES
from jaxmb.report.style import ALERT, FITTED, TRUE, logarithmic_ticks

MEASURED = "0.45"
GAP = 1.5
"""Time step relative to the median above which a curve is interrupted."""

FEW = 100
"""Number of samples below which each is marked."""


def torque_figure(result: Result, entry: TorqueEntry) -> Figure:
    """Measured and predicted torque or force of each drive, and their residual, over time.

    Args:
        result: the identification.
        entry: one of its torque tests.
    """
    source = entry.source
    test = entry.test
    predicted = np.asarray(test.predict(test.view(result.model)))
    measured, number = np.asarray(test.effort), np.asarray(test.coordinate)
    count = len(source.coordinates)
    figure = Figure(figsize=(8.0, 1.0 + 1.9 * count), layout="constrained")
    panels: Any = figure.subplots(count, 1, squeeze=False, sharex=True)[:, 0]
    for i, (axes, name, turns) in enumerate(zip(panels, source.coordinates, source.revolute, strict=True)):
        own = number == i
        time, (effort, model) = source.time_s[own], (x[own] for x in (measured, predicted))
        # interrupt the curve at gaps in the record
        gaps = 1 + np.flatnonzero(np.diff(time) > GAP * np.median(np.diff(time)))
        time, effort, model = (np.insert(x, gaps, np.nan) for x in (time, effort, model))
        axes.plot(time, effort, color=MEASURED, lw=1.6, marker="." if own.sum() < FEW else "", label="measured")
        axes.plot(time, model, color=FITTED, lw=0.9, label="predicted")
        axes.plot(time, effort - model, color=ALERT, lw=0.6, label="residual")
        axes.axhline(0.0, color="0.8", lw=0.6, zorder=0)
        axes.set_ylabel(f"{name} ({'Nm' if turns else 'N'})")
        axes.margins(x=0.01)
    panels[-1].set_xlabel("time (s)")
    panels[0].set_title(f"{result.study.name}, {entry.name}, {ROLES[entry.role]}", loc="left")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


LONGEST = 46
"""Longest shown formula, characters."""


def base_figure(study: str, metrics: TorqueMetrics) -> Figure:
    """Relative standard deviation of each base parameter and, for simulated machines, its relative error.

    Args:
        study: name of the study.
        metrics: of its torque tests; base parameters without a standard deviation or with value 0 are omitted.
    """
    rows = [row for row in metrics.base if row.value and np.isfinite(row.std) and row.std > 0.0]
    figure = Figure(figsize=(7.4, 1.1 + 0.2 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xscale("log")
    for y, row in enumerate(rows):
        axes.plot(100.0 * row.std / abs(row.value), y, "o", ms=4.5, color=FITTED)
        if row.true:
            axes.plot(100.0 * abs(row.value / row.true - 1.0), y, "|", ms=9, mew=2.0, color=TRUE)
    axes.plot([], [], "o", ms=4.5, color=FITTED, label="standard deviation")
    if any(row.true for row in rows):
        axes.plot([], [], "|", ms=9, mew=2.0, color=TRUE, label="error")
    logarithmic_ticks(axes.xaxis)
    axes.set_xlabel("% of the value")
    axes.set_yticks(range(len(rows)), [textwrap.shorten(row.formula, LONGEST, placeholder=" ...") for row in rows])
    axes.tick_params(axis="y", labelsize=6.5)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    figure.legend(
        loc="outside upper center", ncols=2, frameon=False, title=f"{study}: base parameters", title_fontsize=9
    )
    return figure
