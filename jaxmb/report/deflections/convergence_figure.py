"""Convergence of identified values with the number of load cases, after Figure 5 of Dumas et al. 2011."""

import textwrap

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxmb.identify.assess.result import INTERVAL, Result
from jaxmb.identify.assess.tests.deflections import Settling
from jaxmb.report.style import FITTED, INITIAL, TRUE


def convergence_figure(result: Result, found: Settling) -> Figure:
    """Identified values against the number of tests in random orders: median and central 90 % of the orders (Fig. 5).

    The band shrinks to zero at the full set, where all orders agree: it shows convergence, not uncertainty. The 95 %
    interval of the value is drawn at the end.
    """
    names = [name for name in result.study.free.names if np.isfinite(found.values[name].median).any()]
    across = min(max(len(names), 1), 3)
    down = max(-(-len(names) // across), 1)
    figure = Figure(figsize=(0.6 + 2.4 * across, 0.9 + 1.8 * down), layout="constrained")
    grid = np.atleast_1d(figure.subplots(down, across, squeeze=False)).ravel()
    for axes, name in zip(grid, names, strict=False):
        _convergence_panel(axes, result, found, name)
    for axes in grid[len(names) :]:
        axes.set_visible(False)
    absent = [name for name in result.study.free.names if name not in names]
    note = f"; not identifiable: {', '.join(absent)}" if absent else ""
    title = f"{result.study.name}: {found.orders} random orders of the tests{note}"
    figure.suptitle("\n".join(textwrap.wrap(title, 46 * across)), fontsize=9, x=0.01, ha="left")
    for axes in grid[max(len(names) - across, 0) : len(names)]:  # the lowest of each column
        axes.set_xlabel("number of tests")
    if names:
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 2 * across))
    return figure


def _convergence_panel(axes: Axes, result: Result, found: Settling, name: str) -> None:
    parameter = result.parameters[name]
    unit = 10.0 ** (3 * int(np.floor(np.log10(abs(parameter.value)) / 3.0))) if parameter.value else 1.0
    counts, band = found.tests, found.values[name]
    lower, median, upper = band.lower / unit, band.median / unit, band.upper / unit
    axes.fill_between(
        counts,
        lower,
        upper,
        color=FITTED,
        alpha=0.25,
        lw=0,
        label="central 90 % of the orders, not a confidence band",
    )
    axes.plot(counts, median, "o-", ms=2.5, lw=1.0, color=FITTED, label="median")
    interval = INTERVAL * parameter.std / unit if np.isfinite(parameter.std) else 0.0
    axes.errorbar(
        counts[-1], parameter.value / unit, interval, fmt="none", ecolor=INITIAL, elinewidth=1.6, capsize=2.5,
        label="95 % interval of the value",
    )  # fmt: skip
    shown = [x for x in (*lower, *upper) if np.isfinite(x)]
    if name in result.study.truth:
        axes.axhline(result.study.truth[name] / unit, color=TRUE, lw=1.0, ls="--", label="true")
        shown.append(result.study.truth[name] / unit)
    # Values from a few tests may be off by decades: the range is limited to twice the final value.
    end = parameter.value / unit
    shown += [end - interval, end + interval]
    low, high = max(min(shown), end - abs(end)), min(max(shown), end + abs(end))
    margin = 0.08 * (high - low) or 0.05 * abs(end) or 1.0
    axes.set_ylim(low - margin, high + margin)
    axes.set_xlim(0, counts[-1] + 1)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_title(f"{name} ({unit:.0e} {parameter.unit})".replace("e+0", "e").replace("(1e0 ", "("), loc="left")
