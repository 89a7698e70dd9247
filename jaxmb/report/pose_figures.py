"""Figures of pose tests: the error of each row before and after a fit."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxmb.identify.assess.result import INTERVAL
from jaxmb.identify.assess.tests.poses import PoseRow
from jaxmb.report.style import ALERT, FITTED, INITIAL, TRUE

MANY = 80
"""Number of rows above which markers are small."""


def pose_figure(rows: Sequence[PoseRow], title: str, angles: bool = False) -> Figure:
    """Error of each row before and after a fit, and its components after it with 95 % intervals.

    Args:
        rows: of one test and role.
        title: of the figure.
        angles: whether rotations are drawn instead of positions.
    """
    part, unit = (slice(3, 6), "mrad") if angles else (slice(0, 3), "mm")
    before, error, std = (
        1e3 * np.array([getattr(row, what)[part] for row in rows]) for what in ("before", "error", "std")
    )
    x, size = np.arange(1, len(rows) + 1), 4.0 if len(rows) <= MANY else 2.0
    figure = Figure(figsize=(8.0, 5.2), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    for values, colour, marker, label in (
        (before, INITIAL, "x", "before the fit"),
        (error, FITTED, "o", "after the fit"),
    ):
        upper.plot(x, _length(values), marker, ms=size, color=colour, label=label)
    upper.set_yscale("log")
    upper.set_ylabel(f"error ({unit})")
    upper.set_title(title, loc="left")
    _components(lower, x, error, std, size)
    lower.set_ylabel(f"predicted -\nmeasured ({unit})")
    lower.set_xlabel("row")
    lower.xaxis.set_major_locator(MaxNLocator(integer=True))
    handles = [*upper.get_legend_handles_labels()[0], *lower.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False)
    return figure


def _components(axes: Axes, x: np.ndarray, error: np.ndarray, std: np.ndarray, size: float) -> None:
    for i, (axis, colour, marker) in enumerate(zip("xyz", (ALERT, TRUE, FITTED), "^sD", strict=True)):
        axes.errorbar(
            x + 0.2 * (i - 1), error[:, i], INTERVAL * np.nan_to_num(std[:, i]), fmt=marker, ms=0.8 * size, lw=0.6,
            color=colour, label=f"{axis}, 95 %",
        )  # fmt: skip
    axes.axhline(0.0, color="0.5", lw=0.6)


def _length(vectors: np.ndarray) -> np.ndarray:
    """Length of the measured components of each vector; NaN where none is measured."""
    seen = np.isfinite(vectors).any(axis=1)
    return np.where(seen, np.sqrt(np.nansum(vectors**2, axis=1)), np.nan)
