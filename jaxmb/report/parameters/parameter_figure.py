"""Identified parameters and the course of the fit as figures."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, SymmetricalLogLocator

from jaxmb.identify.assess.result import Parameter, Result
from jaxmb.report.parameters.parameter_table import free_values
from jaxmb.report.style import ALERT, FITTED, INITIAL, TRUE, logarithmic_ticks, signed_power

WIDE = 1.5
"""Times what is shown, up to which bounds are the ends of an axis."""
HIDDEN = 0.01
"""Share of an axis that half an interval must have to be seen."""


def cost_figure(result: Result) -> Figure:
    """Best cost against evaluations."""
    figure = Figure(figsize=(4.8, 3.2), layout="constrained")
    axes = figure.add_subplot()
    seen = [(max(n, 1), cost) for n, cost in result.history if np.isfinite(cost) and cost > 0.0]
    initial = result.initial_cost
    start = [(1, initial)] if np.isfinite(initial) and initial > 0.0 else []
    curve = np.array(start + seen).reshape(-1, 2)
    axes.step(*curve.T, where="post", color=FITTED, lw=1.2)
    axes.plot(*curve[len(start) :].T, "o", ms=2.5 if len(seen) <= 60 else 1.5, color=FITTED, label="best so far")
    if start:
        axes.plot(*start[0], "D", ms=5, mfc="white", mec=INITIAL, mew=1.4, label="initial values", clip_on=False)
    if curve.size:  # a logarithmic axis needs something to show
        axes.set_xscale("log")
        axes.set_yscale("log")
        logarithmic_ticks(axes.xaxis)
        logarithmic_ticks(axes.yaxis)
        low, high = curve[:, 1].min(), curve[:, 1].max()
        if low / 10.0 <= result.study.settings.tolerance <= 10.0 * high:
            axes.axhline(result.study.settings.tolerance, color=ALERT, lw=0.9, ls="--", label="tolerance")
        if high / low < 10.0:  # less than a decade shows one labelled tick, or none
            axes.set_ylim(low / 2.0, 3.0 * high)
    axes.set_xlabel("evaluations of the cost")
    axes.set_ylabel("cost" if result.study.problem.prior is None else "cost, prior included")
    axes.set_title(f"{result.study.name}: {'converged' if result.converged else 'not converged'}", loc="left")
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def parameter_figure(result: Result) -> Figure:
    """Identified parameters with 95 % intervals inside their bounds, one panel a family and unit."""
    panels: dict[tuple[str, str], list[str]] = {}
    for _, name in free_values(result):
        panels.setdefault((name.split(".")[0], result.parameters[name].unit), []).append(name)
    across = min(len(panels), 2)
    entries = [len(names) for names in panels.values()]
    heights = [0.6 + 0.27 * max(entries[i : i + across]) for i in range(0, len(entries), across)]
    figure = Figure(figsize=(0.4 + 3.7 * across, 0.75 + sum(heights)), layout="constrained")
    grid = figure.add_gridspec(len(heights), across, height_ratios=heights)
    for number, ((family, unit), names) in enumerate(panels.items()):
        axes = figure.add_subplot(grid[divmod(number, across)])
        _parameter_panel(axes, result, names)
        axes.set_xlabel(f"{family.replace('_', ' ')} ({unit})")
    verdicts = {p.identifiable for p in result.parameters.values()}
    handles: list[Line2D | Patch] = [
        Patch(color="0.88", label="bounds"),
        Line2D([], [], ls="", marker="D", ms=4.5, mfc="none", mec=INITIAL, mew=1.2, label="initial"),
    ]
    if result.study.truth:
        handles.append(Line2D([], [], ls="", marker="|", ms=11, mew=2.2, color=TRUE, label="true"))
    labels = {"yes": "identified, 95 %", "weak": "weakly identified", "no": "not identifiable"}
    handles += [Line2D([], [], color=FITTED, lw=1.4, label=labels[v], **_MARKER[v]) for v in labels if v in verdicts]
    figure.legend(
        handles=handles, loc="outside upper center", ncols=3 if across == 1 else 6, columnspacing=1.2,
        title=f"{result.study.name}: identified parameters", title_fontsize=9,
    )  # fmt: skip
    return figure


def linear_scale(axes: Axes, found: list[Parameter], true: list[float]) -> tuple[float, float]:
    """An axis from the least to the largest of what is shown, or over the bounds where these are not much wider.

    Linear about 0 and logarithmic farther out where intervals could not be seen otherwise.
    """
    ends = [end for p in found if np.isfinite(p.std) for end in p.interval_95 or ()]
    shown = np.array([*(p.value for p in found), *(p.initial for p in found), *true, *ends])
    shown = shown[np.isfinite(shown)]
    low, high = min(p.lower for p in found), max(p.upper for p in found)
    if WIDE * np.ptp(shown) < high - low and np.ptp(shown) > 0.0:
        low, high = float(shown.min()), float(shown.max())
    wide = [1.96 * p.std for p in found if 0.0 < p.std < np.inf]
    if wide and min(wide) < HIDDEN * (high - low):
        least = 10.0 ** round(np.log10(max(min(wide), 1e-4 * max(abs(low), abs(high)))))
        axes.set_xscale("symlog", linthresh=least, linscale=0.6)
        axes.xaxis.set_major_locator(SymmetricalLogLocator(base=10.0, linthresh=least))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: signed_power(x)))
        ends = [x * (1.6 if x * side > 0.0 else 1.0 / 1.6) for x, side in ((low, -1.0), (high, 1.0))]
        return min(ends[0], -0.5 * least), max(ends[1], 0.5 * least)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
    return low - 0.05 * (high - low), high + 0.05 * (high - low)


_MARKER = {
    "yes": {"marker": "o", "ms": 4.5, "mfc": FITTED, "mec": FITTED},
    "weak": {"marker": "o", "ms": 4.5, "mfc": "white", "mec": FITTED, "mew": 1.2},
    "no": {"marker": "x", "ms": 5.0, "mec": FITTED, "mew": 1.4},
}


def _parameter_panel(axes: Axes, result: Result, names: list[str]) -> None:
    found = [result.parameters[name] for name in names]
    low, high = min(p.lower for p in found), max(p.upper for p in found)
    if low > 0.0 and all(result.is_logarithmic(name) for name in names):
        axes.set_xscale("log")
        logarithmic_ticks(axes.xaxis)
        limits = low / 1.6, high * 1.6
    else:
        limits = linear_scale(axes, found, [result.study.truth[name] for name in names if name in result.study.truth])
    for row, (name, p) in enumerate(zip(names, found, strict=True)):
        axes.barh(row, p.upper - p.lower, left=p.lower, height=0.62, color="0.88")
        ends = np.clip(p.interval_95 or (-np.inf, np.inf), *limits)
        known = bool(np.isfinite(p.std))
        axes.plot(ends, [row, row], color=FITTED, lw=1.4 if known else 0.6, ls="-" if known else ":",
                  solid_capstyle="butt")  # fmt: skip
        axes.plot(p.initial, row, ls="", marker="D", ms=4.5, mfc="none", mec=INITIAL, mew=1.2)
        if name in result.study.truth:
            axes.plot(result.study.truth[name], row, ls="", marker="|", ms=11, mew=2.2, color=TRUE)
        axes.plot(p.value, row, ls="", **_MARKER[p.identifiable])
    axes.set_xlim(*limits)
    if axes.get_xscale() == "log" and limits[1] > 10.0 * limits[0]:
        axes.xaxis.set_minor_formatter(NullFormatter())  # powers of ten are enough
    axes.set_ylim(len(names) - 0.4, -0.6)
    labels = {name: label.split(".", 1)[1] for label, name in free_values(result)}
    axes.set_yticks(range(len(names)), [labels[name] for name in names])
    axes.grid(False, axis="y")
