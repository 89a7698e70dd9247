"""MAC between two sets of modes as a picture with its numbers."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

MOST_MODES = 20
"""Modes that still can be read in one figure."""


def mac_figure(
    title: str, likeness: np.ndarray, rows: tuple[str, np.ndarray], columns: tuple[str, np.ndarray]
) -> Figure:
    """MAC between two sets of modes.

    Args:
        title: what stands above.
        likeness: MAC [row, column]; the first `MOST_MODES` of each are shown.
        rows: what the rows are, and their frequencies, Hz.
        columns: likewise.
    """
    whole = likeness.shape
    likeness = likeness[:MOST_MODES, :MOST_MODES]
    count, across = likeness.shape
    size = 0.55 if max(count, across) <= 10 else 0.42
    figure = Figure(figsize=(max(1.6 + size * across, 3.0), 1.2 + size * count), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(likeness, cmap="Blues", vmin=0.0, vmax=1.0, aspect="equal")
    _numbers(axes, likeness, 7 if size > 0.5 else 6)
    axes.set_xticks(range(across), _frequencies(columns[1][:across]))
    axes.set_yticks(range(count), _frequencies(rows[1][:count]))
    if across > 6:
        axes.tick_params(axis="x", rotation=90)
    axes.set_xlabel(columns[0])
    axes.set_ylabel(rows[0])
    axes.grid(False)
    note = "" if whole == likeness.shape else f", first {count} of {whole[0]} and {across} of {whole[1]} modes"
    axes.set_title(f"{title}{note}")
    figure.colorbar(image, ax=axes, shrink=0.8).set_label("MAC")
    return figure


def _frequencies(frequency_hz: np.ndarray) -> list[str]:
    """Labels with one decimal, or with as many as tell modes below 1 Hz apart."""
    smallest = float(np.min(frequency_hz, initial=np.inf))
    decimals = 1 if smallest >= 1.0 or smallest <= 0.0 else 2 - int(np.floor(np.log10(smallest)))
    return [f"{f:.{decimals}f}" for f in frequency_hz]


def _numbers(axes: Axes, likeness: np.ndarray, size: int) -> None:
    for (row, column), value in np.ndenumerate(likeness):
        axes.text(
            column, row, f"{value:.2f}", ha="center", va="center", fontsize=size,
            color="white" if value > 0.6 else "0.15",
        )  # fmt: skip
