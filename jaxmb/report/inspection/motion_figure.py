"""Figure of the proposed next motion."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxmb.identify.plan.motions.next_motion import NextMotion
from jaxmb.report.style import ALERT, FITTED

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
