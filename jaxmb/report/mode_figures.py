"""Figure of a modal test: measured and identified modes."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxmb.identify.assess.result import Result
from jaxmb.identify.experiments.entry import Entry
from jaxmb.report.modes import FittedModes, ModePairs, data_label, marks
from jaxmb.report.style import FITTED

MOST_MODES = 20
"""Largest number of modes per axis of a figure."""

Panel = tuple[str, np.ndarray, np.ndarray, Sequence[int]]
"""Label of the rows, MAC [row, column], frequencies of the rows, and indices of those without a measured partner."""


def mac_figure(
    title: str, likeness: np.ndarray, rows: tuple[str, np.ndarray], columns: tuple[str, np.ndarray]
) -> Figure:
    """MAC between two sets of modes.

    Args:
        title: of the figure.
        likeness: MAC [row, column]; the first `MOST_MODES` of each are shown.
        rows: label and frequencies of the rows.
        columns: likewise.
    """
    return mac_panels(title, [(rows[0], likeness, rows[1], ())], columns)


def pairs_figure(result: Result, name: str, pairs: ModePairs, unit: str, given: str = "measured") -> Figure:
    """MAC between the identified machine's modes at the posture of a test and the measured ones.

    Args:
        result: the identification.
        name: of the test.
        pairs: the modes.
        unit: of their frequencies.
        given: label of the test's data, "measured" or "simulated".
    """
    found = (
        f"identified: modes ({unit})",
        pairs.likeness,
        np.asarray(pairs.fitted.damped_frequency_hz),
        pairs.unmeasured,
    )
    across = (f"{given}: modes ({unit})", np.asarray(pairs.reference.damped_frequency_hz))
    figure = mac_panels(f"{name}: MAC", [found], across, given)
    axes, frequency_hz = figure.axes[0], found[2]
    labels = [text.get_text() for text in axes.get_yticklabels()]
    marked = [marks(result, name, float(hz))[0] + text for hz, text in zip(frequency_hz, labels, strict=False)]
    axes.set_yticks(range(len(marked)), marked)
    if marked != labels:
        axes.set_ylabel(f"{axes.get_ylabel()}, ? uncertain")
    return figure


def mac_panels(title: str, panels: Sequence[Panel], columns: tuple[str, np.ndarray], given: str = "measured") -> Figure:
    """MAC between several sets of modes and a common reference, as Fig. 11 of Huynh et al. 2020.

    Args:
        title: of the figure.
        panels: one per set; the first `MOST_MODES` rows and columns are shown.
        columns: label and frequencies of the reference.
        given: label of the data, "measured" or "simulated".
    """
    count = min(max(panel[1].shape[0] for panel in panels), MOST_MODES)
    across = min(columns[1].size, MOST_MODES)
    size = 0.55 if max(count, across) <= 10 else 0.42
    single = 1.6 + size * across
    figure = Figure(figsize=(max(single * len(panels), 3.0), 1.2 + size * count), layout="constrained")
    grid = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (name, likeness, frequency_hz, unpaired) in zip(grid, panels, strict=True):
        shown = likeness[:MOST_MODES, :MOST_MODES]
        image = axes.imshow(shown, cmap="Blues", vmin=0.0, vmax=1.0, aspect="equal")
        _numbers(axes, shown, 7 if size > 0.5 else 6)
        axes.set_xticks(range(across), _frequencies(columns[1][:across]))
        labels = _frequencies(frequency_hz[: shown.shape[0]])
        axes.set_yticks(range(shown.shape[0]), [f"{f} *" if m in unpaired else f for m, f in enumerate(labels)])
        if across > 6:
            axes.tick_params(axis="x", rotation=90)
        axes.set_xlabel(columns[0])
        axes.set_ylabel(f"{name}, * not {given}" if unpaired else name)
        axes.grid(False)
    whole = panels[0][1].shape
    cut = len(panels) == 1 and whole != (count, across)
    note = f", first {count} of {whole[0]} and {across} of {whole[1]} modes" if cut else ""
    if len(panels) == 1:
        grid[0].set_title(f"{title}{note}")
    else:
        figure.suptitle(title, fontsize=9)
    figure.colorbar(image, ax=grid, shrink=0.8).set_label("MAC")
    return figure


def _frequencies(frequency_hz: np.ndarray) -> list[str]:
    """Labels with one decimal, or more for frequencies below 1 Hz."""
    smallest = float(np.min(frequency_hz, initial=np.inf))
    decimals = 1 if smallest >= 1.0 or smallest <= 0.0 else 2 - int(np.floor(np.log10(smallest)))
    return [f"{f:.{decimals}f}" for f in frequency_hz]


def _numbers(axes: Axes, likeness: np.ndarray, size: int) -> None:
    for (row, column), value in np.ndenumerate(likeness):
        axes.text(
            column, row, f"{value:.2f}", ha="center", va="center", fontsize=size,
            color="white" if value > 0.6 else "0.15",
        )  # fmt: skip


def measured_modes_figure(result: Result, entry: Entry, fitted: FittedModes) -> Figure:
    """Measured (or simulated) and identified frequencies and damping ratios of a modal test, and their differences with
    the standard deviations of the data."""
    test = entry.test
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
