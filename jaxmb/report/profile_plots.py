"""The cost along one parameter as a figure, and the intervals that follow from it as a table."""

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table
from rich.text import Text

from jaxmb.identify.assess.profile import RISE
from jaxmb.identify.assess.result import Result
from jaxmb.report.cells import new_table, number
from jaxmb.report.style import ALERT, FITTED, INITIAL, TRUE


def profile_figure(result: Result) -> Figure:
    """Rise of the cost along each profiled parameter, all others fitted again, beside what its std promises."""
    profiles = result.metrics["profiles"]
    across = min(len(profiles), 3)
    down = -(-len(profiles) // across)
    figure = Figure(figsize=(max(0.8 + 2.6 * across, 6.0), 0.9 + 2.2 * down), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False)
    for axes, (name, told) in zip(grid.ravel(), profiles.items(), strict=False):
        values = np.asarray(told["values"])
        axes.axhline(RISE, color=ALERT, lw=0.9, ls="--", label="95 %")
        axes.plot(values, told["expected"], color=INITIAL, lw=1.1, ls=":", label="by the standard deviation")
        axes.plot(values, told["rise"], "o-", ms=2.5, lw=1.1, color=FITTED, label="all others fitted again")
        if name in result.study.truth:
            axes.axvline(result.study.truth[name], color=TRUE, lw=1.1, label="true")
        if result.is_logarithmic(name) and values.max() > 3.0 * values.min():
            axes.set_xscale("log")
        axes.set_ylim(-0.3, 3.0 * RISE)
        axes.set_title(name, loc="left")
        axes.set_xlabel(result.parameters[name].unit)
    for axes in grid[:, 0]:
        axes.set_ylabel("rise of the cost (noise units)")
    for axes in grid.ravel()[len(profiles) :]:
        axes.set_visible(False)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def profile_table(result: Result) -> Table:
    """95 % intervals by the standard deviation and by the profile; a dash where the cost does not rise so far."""
    table = new_table("95 % intervals", "parameter", "unit")
    for heading in ("value", "by std: from", "to", "by profile: from", "to"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, told in result.metrics["profiles"].items():
        ends = (*told["linear_interval"], *told["interval"])
        cells = ["-" if end is None else number(end) for end in ends]
        table.add_row(Text(name), Text(result.parameters[name].unit), number(result.parameters[name].value), *cells)
    return table
