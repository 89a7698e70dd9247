"""Figures of a modal test: measured and identified modes, and what moves in them."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from jaxmb.identify.assess.result import Result
from jaxmb.identify.experiments.entry import Entry
from jaxmb.report.modes.mac_figure import MOST_MODES
from jaxmb.report.modes.mode_pairs import data_word, fitted_modes
from jaxmb.report.style import FITTED, MEASURED
from jaxmb.response.modal import giving_way, spring_names

MOST_SPRINGS = 32
"""Bars of a mode."""


def measured_modes_figure(result: Result, entry: Entry) -> Figure:
    """Given and identified frequencies and damping ratios of a modal test, and their difference beside
    the spread of the data."""
    test: Any = entry.test
    given = data_word(entry)
    fitted = fitted_modes(result, test)
    rows = (
        ("frequency", "Hz", test.frequency_hz, fitted.frequency_hz, test.frequency_std),
        ("damping ratio", "%", 100.0 * test.damping_ratio, fitted.damping_percent, 100.0 * test.damping_std),
    )
    modes = np.arange(1, fitted.frequency_hz.size + 1)
    figure = Figure(figsize=(max(6.4, 2.6 + 0.45 * modes.size), 4.2), layout="constrained")
    grid = figure.subplots(2, 2, sharex=True, height_ratios=(1.6, 1.0))
    for (above, below), (name, unit, measured, found, std) in zip(grid.T, rows, strict=True):
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
        below.set_xlabel("mode")
        below.set_xticks(modes)
        for axes in (above, below):
            axes.grid(False, axis="x")
    handles = [h for axes in grid[:, 0] for h in axes.get_legend_handles_labels()[0]]
    figure.legend(
        handles=handles, loc="outside upper center", ncols=4, title=f"{test.name}: {given} and fitted modes",
        title_fontsize=9,
    )  # fmt: skip
    return figure


def energy_figure(result: Result, entry: Entry) -> Figure:
    """Share of each spring in the strain energy of each identified mode of a modal test; those that the measurement
    names stand out."""
    test: Any = entry.test
    fitted = fitted_modes(result, test)
    names, known = spring_names(result.study.model), np.array(giving_way(result.study.model))
    count = min(fitted.frequency_hz.size, MOST_MODES)
    # of a machine with many springs those that hold most in any mode
    largest = np.argsort(-np.max(np.abs(fitted.share[:count]), axis=0), kind="stable")[:MOST_SPRINGS]
    drawn = np.sort(largest)
    left_out, names = len(names) - drawn.size, [names[i] for i in drawn]
    figure = Figure(figsize=(max(4.2, 1.4 + 0.38 * len(names)), 0.9 + 0.95 * count), layout="constrained")
    grid = np.atleast_1d(figure.subplots(count, 1, sharex=True, sharey=True))
    lowest = 118.0 * min(float(fitted.share[:count].min()), 0.0)  # of a spring under load that turns with the mode
    for m, axes in enumerate(grid):
        named = np.asarray(test.content[m])[known][drawn]
        share = 100.0 * fitted.share[m][drawn]
        bars = axes.bar(range(len(names)), share, width=0.7, color=[FITTED if on else MEASURED for on in named])
        axes.bar_label(bars, labels=[f"{s:.0f}" if s >= 0.5 else "" for s in share], fontsize=6.5, padding=1)
        axes.set_title(f"mode {m + 1}, {fitted.frequency_hz[m]:.2f} Hz", loc="left", pad=2)
        axes.set_ylim(lowest, 118.0)
        axes.set_yticks([0, 50, 100])
        axes.grid(False, axis="x")
    grid[-1].set_xticks(range(len(names)), names, rotation=0 if len(names) <= 12 else 90)
    figure.supylabel("share of strain energy (%)", fontsize=8)
    model = result.study.model
    what = "coordinate" + " or spring" * bool(model.springs) + " or beam" * bool(model.beams)
    handles = [Patch(color=MEASURED, label=what)]
    if np.asarray(test.content).any():
        handles.append(Patch(color=FITTED, label="named in the measurement"))
    note = "" if count == fitted.frequency_hz.size else f" (first {count} of {fitted.frequency_hz.size} modes)"
    note += f", without the {left_out} that hold least" if left_out else ""
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=2,
        title=f"{test.name}: what gives way in each mode{note}",
        title_fontsize=9,
    )
    return figure
