"""Figure of profiles of the cost."""

import numpy as np
from matplotlib.figure import Figure

from jaxmb.identify.assess.result import Result
from jaxmb.identify.assess.uncertainty.profile import RISE
from jaxmb.report.style import ALERT, FITTED, INITIAL, TRUE

NARROW = 0.3
"""Range of the values relative to the identified one below which relative changes are drawn."""


def profile_figure(result: Result) -> Figure:
    """Rise of the cost along each profiled parameter, minimised over all others, with that implied by its std."""
    profiles = result.metrics.profiles or {}
    across = min(len(profiles), 3)
    down = -(-len(profiles) // across)
    figure = Figure(figsize=(max(0.8 + 2.6 * across, 6.0), 0.9 + 2.2 * down), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False)
    for axes, (name, profile) in zip(grid.ravel(), profiles.items(), strict=False):
        values, identified = profile.values, result.parameters[name].value
        true = result.study.truth.get(name)
        narrow = identified != 0.0 and np.ptp(values) < NARROW * abs(identified)
        if narrow:  # numbers that differ only in their last digits are illegible
            values = 100.0 * (values / identified - 1.0)
            true = None if true is None else 100.0 * (true / identified - 1.0)
        axes.axhline(RISE, color=ALERT, lw=0.9, ls="--", label="95 %")
        axes.plot(values, profile.expected, color=INITIAL, lw=4.0, alpha=0.5, label="implied by the standard deviation")
        axes.plot(values, profile.rise, "o-", ms=2.5, lw=1.1, color=FITTED, label="minimised over all others")
        if true is not None:
            axes.axvline(true, color=TRUE, lw=1.1, label="true")
        if result.is_logarithmic(name) and not narrow and values.max() > 3.0 * values.min():
            axes.set_xscale("log")
        axes.set_ylim(-0.3, 3.0 * RISE)
        axes.set_title(name, loc="left")
        axes.set_xlabel("change from the identified value (%)" if narrow else result.parameters[name].unit)
    for axes in grid[:, 0]:
        axes.set_ylabel("rise of the cost (noise units)")
    for axes in grid.ravel()[len(profiles) :]:
        axes.set_visible(False)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure
