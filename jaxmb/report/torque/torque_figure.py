"""Measured and predicted joint torques over time, after Figures 4, 7 and 9 of Pyrhonen et al. 2024."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from jaxmb.identify.assess.result import Result
from jaxmb.identify.experiments.entry import Entry
from jaxmb.report.style import ALERT, FITTED

MEASURED = "0.45"
GAP = 1.5
"""Time step relative to the median above which a curve is interrupted."""

FEW = 100
"""Number of samples below which each is marked."""


def torque_figure(result: Result, entry: Entry) -> Figure:
    """Measured and predicted torque or force of each drive, and their residual, over time.

    Args:
        result: the identification.
        entry: one of its torque tests.
    """
    source: Any = entry.source
    test: Any = entry.test
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
    panels[0].set_title(
        f"{result.study.name}, {entry.name}, {'fitted' if entry.role == 'fit' else 'held out'}", loc="left"
    )
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure
