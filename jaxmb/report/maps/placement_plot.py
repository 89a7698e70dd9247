"""Figure of the placement of a task: cost of the tried placements, deflections along the path at the best one."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxmb.maps.placement.placement import PlacementResult
from jaxmb.maps.placement.tool_path import VARIABLES
from jaxmb.report.style import ALERT, INITIAL

AXIS = dict.fromkeys("xyz", ("m", 1.0)) | dict.fromkeys(("yaw", "spin"), ("deg", float(np.degrees(1.0))))
"""Unit of a placement variable in a figure and conversion factor from m or rad."""


def placement_figure(result: PlacementResult) -> Figure:
    """Cost over the two variables with most values, and deflections along the path at the best and naive placement."""
    figure = Figure(figsize=(8.2, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    counts = [len(result.grid[name]) for name in VARIABLES]
    first, second = sorted(np.argsort(counts, kind="stable")[-2:].tolist())
    others = tuple(i for i in range(len(VARIABLES)) if i not in (first, second))
    cost = np.min(result.cost, axis=others) * 1e3
    names = (VARIABLES[first], VARIABLES[second])
    grid = [result.grid[name] * AXIS[name][1] for name in names]
    image = np.where(np.isfinite(cost), cost, np.nan)
    drawn = left.pcolormesh(_edges(grid[0]), _edges(grid[1]), image.T, cmap="viridis_r")
    left.set_facecolor("0.85")
    for placement, marker, colour, label in ((result.naive, "s", INITIAL, "naive"), (result.best, "*", ALERT, "best")):
        at = [placement.place[name] * AXIS[name][1] for name in names]
        left.plot(*at, marker, color=colour, mec="white", ms=11 if marker == "*" else 7, label=label, clip_on=False)
        if placement.possible:
            right.plot(
                range(1, len(placement.deflection) + 1),
                placement.deflection * 1e3,
                marker + "-",
                color=colour,
                ms=4,
                label=f"{label}: {placement.cost * 1e3:.3g} mm",
            )
    left.set_xlabel(f"{names[0]} ({AXIS[names[0]][0]})")
    left.set_ylabel(f"{names[1]} ({AXIS[names[1]][0]})")
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    tried = [name for i, name in enumerate(VARIABLES) if i in others and counts[i] > 1]
    left.set_title("placements tried (grey: not possible)" + (f", best over {', '.join(tried)}" if tried else ""))
    left.grid(False)
    figure.colorbar(drawn, ax=left, label=f"{_criterion(result)} deflection along the path (mm)")
    right.set_xlabel("pose along the path")
    right.set_ylabel("deflection (mm)")
    right.set_ylim(bottom=0.0)
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.legend()
    fixed = [f"{n} = {result.grid[n][0] * AXIS[n][1]:.4g} {AXIS[n][0]}" for n in VARIABLES if len(result.grid[n]) == 1]
    figure.suptitle("; ".join([f"{result.machine}, {result.frame}: placement of a task", *fixed]), fontsize=8.0)
    return figure


def _criterion(result: PlacementResult) -> str:
    return {"max": "largest", "rms": "RMS"}[result.criterion]


def _edges(values: np.ndarray) -> np.ndarray:
    if len(values) == 1:
        return np.array([values[0] - 0.5, values[0] + 0.5])
    middle = 0.5 * (values[:-1] + values[1:])
    return np.concatenate([[2 * values[0] - middle[0]], middle, [2 * values[-1] - middle[-1]]])
