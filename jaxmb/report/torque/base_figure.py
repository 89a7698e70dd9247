"""Figure of the relative standard deviations of base parameters."""

import textwrap

import numpy as np
from matplotlib.figure import Figure

from jaxmb.identify.assess.tests.torque import TorqueMetrics
from jaxmb.report.style import FITTED, TRUE, logarithmic_ticks

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
