"""Figure of a modal test: measured and identified modes."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from jaxmb.identify.assess.result import Result
from jaxmb.identify.experiments.entry import Entry
from jaxmb.report.modes.mode_pairs import FittedModes, data_label
from jaxmb.report.modes.tables import marks
from jaxmb.report.style import FITTED


def measured_modes_figure(result: Result, entry: Entry, fitted: FittedModes) -> Figure:
    """Measured (or simulated) and identified frequencies and damping ratios of a modal test, and their differences with
    the standard deviations of the data."""
    test: Any = entry.test
    given = data_label(entry)
    rows = (
        ("frequency", "Hz", test.frequency_hz, fitted.frequency_hz, test.frequency_std),
        ("damping ratio", "%", 100.0 * test.damping_ratio, fitted.damping_percent, 100.0 * test.damping_std),
    )
    modes = np.arange(1, fitted.frequency_hz.size + 1)
    figure = Figure(figsize=(max(6.4, 2.6 + 0.45 * modes.size), 4.2), layout="constrained")
    grid = figure.subplots(2, 2, sharex=True, height_ratios=(1.6, 1.0))
    for kind, ((above, below), (name, unit, measured, found, std)) in enumerate(zip(grid.T, rows, strict=True)):
        measured, found, std = (np.asarray(x) for x in (measured, found, std))
        above.bar(modes, measured, width=0.6, color="0.80", label=given)
        above.plot(modes, found, "_", ms=19, mew=2.0, color=FITTED, label="fitted")
        above.set_ylabel(f"{name} ({unit})")
        above.set_ylim(0.0, 1.15 * float(max(measured.max(), found.max())))
        for x, value in zip(modes, measured, strict=True):
            above.annotate(
                f"{value:#.3g}".removesuffix("."),
                (x, 0.0),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=7,
            )
        below.bar(
            modes, 2 * std, bottom=-std, width=0.6, color="white", edgecolor="0.45", lw=0.8, hatch="////",
            label="± 1 standard deviation",
        )  # fmt: skip
        below.plot(modes, found - measured, "o", ms=4.5, color=FITTED, label=f"fitted - {given}")
        below.axhline(0.0, color="0.4", lw=0.6)
        below.set_ylabel(f"difference ({unit})")
        below.set_ylim(*(np.array([-1.8, 1.8]) * float(max(std.max(), np.abs(found - measured).max()))))
        marked = [marks(result, entry.name, float(hz))[kind] for hz in fitted.frequency_hz]
        below.set_xlabel("mode" + (", ? uncertain" if any(marked) else ""))
        below.set_xticks(modes, [f"{m}{mark}" for m, mark in zip(modes, marked, strict=True)])
        for axes in (above, below):
            axes.grid(False, axis="x")
    handles = [h for axes in grid[:, 0] for h in axes.get_legend_handles_labels()[0]]
    figure.legend(
        handles=handles, loc="outside upper center", ncols=4, title=f"{test.name}: {given} and fitted modes",
        title_fontsize=9,
    )  # fmt: skip
    return figure
