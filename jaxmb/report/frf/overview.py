"""One figure of the FRFs and one of the residuals of all tests of a study."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from jaxmb.identify.assess.result import Result
from jaxmb.identify.experiments.entry import Entry
from jaxmb.report.frf.figures_of_test import standard_residuals
from jaxmb.report.frf.frf_figure import unit_in_si
from jaxmb.report.modes.mode_pairs import data_label
from jaxmb.report.style import FITTED, MEASURED, logarithmic_ticks

COLUMNS = 3
LONGEST_TITLE = 30
MOST_NAMES = 40
BINS = 200
"""Largest number of cells along frequency in the map of residuals."""


def frf_overview(result: Result, entries: Sequence[Entry], note: str) -> Figure:
    """Root of the sum of squares of all FRFs of each test, measured and identified.

    Only lines used in every FRF of a test are drawn; `note` names the selection of tests in the title.
    """
    rows = -(-len(entries) // COLUMNS)
    figure = Figure(figsize=(8.4, 0.8 + 1.6 * rows), layout="constrained")
    grid = figure.subplots(rows, COLUMNS, squeeze=False)
    for axes, entry in zip(grid.ravel(), entries, strict=False):
        test: Any = entry.test
        frequency_hz, weight = np.asarray(test.omega) / (2.0 * np.pi), np.asarray(test.weight) > 0.0
        used = weight[:, weight.any(axis=0)].all(axis=1)
        for frf, color, width, dashes in (
            (np.asarray(test.measured), MEASURED, 2.6, "-"),
            (result.predicted(entry.name, entry.role), FITTED, 1.0, "--"),
        ):
            size = np.sqrt(np.sum(np.where(weight, np.abs(frf), 0.0) ** 2, axis=(1, 2)))
            axes.semilogy(frequency_hz, np.where(used, size, np.nan), color=color, lw=width, ls=dashes)
        logarithmic_ticks(axes.yaxis)
        held_out = ", held out" if entry.role == "check" else ""
        axes.set_title(f"{entry.name[:LONGEST_TITLE]}{held_out}", loc="left")
        axes.margins(x=0.0)
        units = {unit_in_si(o, i, test.derivatives) for o in test.outputs for i in test.inputs}
        axes.set_ylabel(f"magnitude ({units.pop()})" if len(units) == 1 else "magnitude, SI units", fontsize=7)
    for axes in grid.ravel()[len(entries) :]:
        axes.set_visible(False)
    for column in range(COLUMNS):
        grid[(len(entries) - 1 - column) // COLUMNS, column].set_xlabel("frequency (Hz)")
    handles = [*grid[0, 0].lines]
    labels = sorted({data_label(entry) for entry in entries})
    figure.legend(
        handles, [" or ".join(labels), "identified"], loc="outside upper center", ncols=2, title_fontsize=9,
        title=f"{result.study.name}: root of the sum of squares of all FRFs of each test{note}",
    )  # fmt: skip
    return figure


def residual_overview(result: Result, entries: Sequence[Entry]) -> Figure:
    """Root mean square of the standardised residual of log H of each test against frequency."""
    spans = [np.asarray(entry.test.omega) / (2.0 * np.pi) for entry in entries]  # pyright: ignore[reportAttributeAccessIssue]
    low, high = min(s[0] for s in spans), max(s[-1] for s in spans)
    finest = min((float(np.median(np.diff(s))) for s in spans if s.size > 1), default=1.0)
    edges = np.linspace(low - finest / 2.0, high + finest / 2.0, min(int((high - low) / finest) + 2, BINS + 1))
    squares = np.full((len(entries), edges.size - 1), np.nan)
    for row, (entry, frequency_hz) in enumerate(zip(entries, spans, strict=True)):
        residual = standard_residuals(result, entry)
        bins = np.clip(np.digitize(frequency_hz, edges) - 1, 0, edges.size - 2)
        for k in np.unique(bins):
            inside = residual[:, bins == k]
            if np.isfinite(inside).any():
                squares[row, k] = np.nanmean(inside**2)
    figure = Figure(figsize=(8.4, 1.1 + 0.26 * min(len(entries), MOST_NAMES)), layout="constrained")
    axes = figure.add_subplot()
    image = axes.pcolormesh(
        edges, np.arange(len(entries) + 1) - 0.5, np.sqrt(squares), cmap="RdBu_r", norm=LogNorm(0.1, 10.0)
    )
    names = [f"{e.name[:LONGEST_TITLE]}{', held out' if e.role == 'check' else ''}" for e in entries]
    if len(names) <= MOST_NAMES:
        axes.set_yticks(range(len(entries)), names)
    axes.set_ylim(len(entries) - 0.5, -0.5)
    axes.grid(False)
    axes.set_xlabel("frequency (Hz)")
    axes.set_title(f"{result.study.name}: RMS residual of log H / standard deviation of the noise", loc="left")
    figure.colorbar(image, ax=axes, extend="both", ticks=[0.1, 1.0, 10.0], format="%g")
    return figure
