"""Figure of the proposed next motion."""

from typing import Any

import numpy as np
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from jaxmb.identify.estimation.identifiability import limits
from jaxmb.identify.plan.inspection import Inspection
from jaxmb.identify.plan.next_motion import NextMotion
from jaxmb.report.style import ALERT, FITTED, INITIAL, MEASURED, TRUE

MOST_DIRECTIONS = 12
"""Largest number of weak directions drawn, in order of their standard deviation."""
MOST_BARS = 60
"""Largest number of parameters drawn, those with the largest standard deviations."""
HIGHEST = 1e3
"""Standard deviation at which bars are cut: a parameter is not identifiable far below."""
COLOUR = {"yes": TRUE, "weak": INITIAL, "no": ALERT}


def singular_value_figure(found: Inspection) -> Figure:
    """Singular values of the Jacobian, with the limits of weakly identifiable and not identifiable directions."""
    values = found.singular_values
    shown = values[values > values.max(initial=0.0) * 1e-16]
    figure = Figure(figsize=(4.8, 3.0), layout="constrained")
    axes = figure.add_subplot()
    axes.semilogy(np.arange(1, shown.size + 1), shown, "o", ms=4.0, color=FITTED)
    if found.study.problem.prior is None and shown.size:
        yes, weak = (float(x) for x in limits(None))
        for limit, color, text in ((yes, INITIAL, "std 10 %"), (weak, ALERT, "std 100 %")):
            axes.axhline(1.0 / limit, color=color, lw=0.9, ls="--")
            axes.annotate(
                text, (1.0, 1.0 / limit), xycoords=("axes fraction", "data"), xytext=(-3, 2),
                textcoords="offset points", ha="right", va="bottom", color=color, fontsize=7,
            )  # fmt: skip
    zeros = values.size - shown.size
    note = f", {zeros} of {values.size} are zero" if zeros else ""
    axes.set_xlim(0.3, max(values.size, 2) + 0.7)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("direction of the parameters")
    axes.set_ylabel("singular value = 1 / std along it")
    axes.set_title(f"{found.study.name}: singular values{note}", loc="left")
    return figure


def deviation_figure(found: Inspection) -> Figure:
    """Predicted standard deviation of every parameter as a bar, with that after the proposed next tests if any."""
    free = found.study.free
    # a value of 0 has no relative deviation
    of_zero = [found.parameters[name].value == 0.0 and np.isfinite(found.parameters[name].std) for name in free.names]
    entries = np.flatnonzero(~np.array(of_zero))
    if entries.size > MOST_BARS:
        entries = np.sort(entries[np.argsort(-found.known.std[entries], kind="stable")[:MOST_BARS]])
    expected = [found.parameters[free.names[i]] for i in entries]
    now = np.array([p.relative_std for p in expected])
    after = None if found.next is None else np.array([np.inf if p.next_std is None else p.next_std for p in expected])
    finite = [x for part in (now, after) if part is not None for x in part[np.isfinite(part) & (part > 0.0)]]
    low = 10.0 ** np.floor(np.log10(min([0.03, *finite]))) / 2.0
    high = min(max([3.0, *(2.0 * x for x in finite)]), HIGHEST)
    if not np.isfinite(now).all():
        high = HIGHEST
    figure = Figure(figsize=(5.6, 1.3 + 0.24 * entries.size), layout="constrained")
    axes = figure.add_subplot()
    height = 0.62 if after is None else 0.36
    for row, (p, std) in enumerate(zip(expected, now, strict=True)):
        top = row if after is None else row - 0.2
        axes.barh(top, min(std, high) - low, left=low, height=height, color=COLOUR[p.identifiable])
        if not std <= high:
            end = "unknown" if not np.isfinite(std) else f"{std:.1g}"
            axes.annotate(end, (high, top), xytext=(-2, 0), textcoords="offset points", ha="right", va="center",
                          fontsize=6, color="white")  # fmt: skip
        if after is not None:
            axes.barh(row + 0.2, max(min(after[row], high) - low, 0.0), left=low, height=height, color=MEASURED)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    if found.study.problem.prior is None:
        for limit in limits(None):
            axes.axvline(float(limit), color="0.25", lw=0.9, ls="--")
    axes.set_yticks(range(entries.size), [free.names[i] for i in entries])
    axes.set_ylim(entries.size - 0.4, -0.6)
    axes.grid(False, axis="y")
    axes.set_xlabel("predicted standard deviation of the logarithm")
    handles = [Patch(color=COLOUR[v], label=v) for v in COLOUR if v in {p.identifiable for p in expected}]
    if after is not None:
        handles.append(Patch(color=MEASURED, label="after the next tests"))
    note = f", the {MOST_BARS} largest of {free.size}" if entries.size == MOST_BARS < free.size else ""
    figure.legend(
        handles=handles, loc="outside upper center", ncols=4, title=f"{found.study.name}: identifiable?{note}",
        title_fontsize=8,
    )  # fmt: skip
    return figure


def direction_figure(found: Inspection) -> Figure:
    """Components of the parameters in each weak direction, the largest deviation first; members only."""
    groups = found.groups[:MOST_DIRECTIONS]
    rows = sorted({i for group in groups for i in group.members})
    rows = rows[:MOST_BARS]
    parts = np.array([group.parts[rows] for group in groups]).T
    size = 1.5 + 0.42 * len(groups), 1.35 + 0.22 * len(rows)
    figure = Figure(figsize=(max(size[0] + 1.2, 4.2), max(size[1], 2.2)), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(parts, cmap="RdBu_r", norm=TwoSlopeNorm(0.0, -1.0, 1.0), aspect="auto")
    for row, column in np.argwhere(np.abs(parts) >= 0.095):
        value = parts[row, column]
        axes.text(
            column, row, f"{value:.1f}".replace("-0.", "-.").replace("0.", "."), ha="center", va="center",
            fontsize=6, color="white" if abs(value) > 0.6 else "black",
        )  # fmt: skip
    axes.set_xticks(range(len(groups)), [_std(group.std) for group in groups])
    axes.set_yticks(range(len(rows)), [found.study.free.names[i] for i in rows])
    axes.set_xticks(np.arange(len(groups) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
    axes.grid(False)
    axes.grid(which="minor", color="white", lw=1.0)
    axes.tick_params(which="minor", length=0)
    prior = ", of the prior's" if found.study.problem.prior is not None else ""
    axes.set_xlabel(f"weak direction: standard deviation along it{prior}")
    figure.colorbar(image, ax=axes, label="component of the parameter", shrink=0.9)
    note = f", {len(groups)} of {len(found.groups)}" if len(groups) < len(found.groups) else ""
    axes.set_title(f"{found.study.name}: weak directions{note}", loc="left", fontsize=8)
    return figure


def _std(std: float) -> str:
    if not np.isfinite(std):
        return "∞"
    return f"{std:.2g}" if std < 100.0 else f"{std:.0e}".replace("e+0", "e")


SAMPLES = 500
"""Samples per period."""


def motion_figure(study: str, chosen: NextMotion) -> Figure:
    """Position, speed and acceleration of each coordinate over one period, with their limits.

    Args:
        study: name of the study.
        chosen: the motion.
    """
    motion, limits = chosen.motion, chosen.limits
    names = tuple(motion.motion)
    time = np.linspace(0.0, 1.0 / motion.base_hz, SAMPLES)
    states = motion.states(time)
    ends = ((limits.lower, limits.upper), *((-most, most) for most in (limits.speed, limits.acceleration)))
    figure = Figure(figsize=(8.0, 1.1 + 1.25 * len(names)), layout="constrained")
    panels: Any = figure.subplots(len(names), 3, squeeze=False, sharex=True)
    kinds = ("", ""), ("'", "/s"), ("''", "/s²")
    for column, ((prime, per), parts, (low, high)) in enumerate(zip(kinds, states, ends, strict=True)):
        for i, name in enumerate(names):
            axes = panels[i, column]
            axes.plot(time, parts[:, i], color=FITTED, lw=1.2)
            for limit in (low[i], high[i]):
                if np.isfinite(limit):
                    axes.axhline(limit, color=ALERT, lw=0.9, ls="--")
            axes.margins(x=0.0, y=0.12)
            axes.set_ylabel(f"{name}{prime} ({'rad' if chosen.revolute[i] else 'm'}{per})")
    for axes, text in zip(panels[0], ("position", "speed", "acceleration"), strict=True):
        axes.set_title(text)
    for axes in panels[-1]:
        axes.set_xlabel("time (s)")
    figure.align_ylabels()
    handles = [Line2D([], [], color=FITTED, lw=1.2, label="motion"),
               Line2D([], [], color=ALERT, lw=0.9, ls="--", label="limits")]  # fmt: skip
    figure.legend(
        handles=handles, loc="outside upper center", ncols=2, title=f"{study}: the next motion, one period",
        title_fontsize=9,
    )  # fmt: skip
    return figure
