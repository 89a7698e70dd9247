"""Correlation matrix of the identified parameters as a heat map."""

import numpy as np
from matplotlib.figure import Figure

from jaxmb.identify.assess.result import Result

MOST_NUMBERS = 12
"""Largest number of parameters for which the cells have numbers."""


def correlation_figure(result: Result) -> Figure:
    """Correlation matrix of the free parameters."""
    names = result.study.free.names
    matrix = result.correlation
    size = 1.6 + 0.27 * len(names) * (1.4 if len(names) <= MOST_NUMBERS else 1.0)
    figure = Figure(figsize=(size + 0.7, size), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(matrix, cmap="RdBu_r", vmin=-1.0, vmax=1.0)
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set_yticks(range(len(names)), names)
    axes.grid(False)
    if len(names) <= MOST_NUMBERS:
        for i, j in np.ndindex(*matrix.shape):
            dark = abs(matrix[i, j]) > 0.6
            text = f"{matrix[i, j]:.2f}"
            axes.text(j, i, text, ha="center", va="center", fontsize=6, color="white" if dark else "0.2")
    unknown = [i for i, name in enumerate(names) if not np.isfinite(result.parameters[name].std)]
    for i in unknown:
        axes.get_yticklabels()[i].set_color("0.6")
        axes.get_xticklabels()[i].set_color("0.6")
    note = ", grey: not identifiable" if unknown else ""
    axes.set_title(f"{result.study.name}: correlation of the parameters{note}", loc="left")
    figure.colorbar(image, ax=axes, shrink=0.8, label="correlation")
    return figure
