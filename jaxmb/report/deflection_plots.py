"""Figures of an identification from deflection tests, after Figures 5 to 7 of Dumas et al. 2011."""

import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from jaxmb.identify.assess.result import Result
from jaxmb.report.style import ALERT, FITTED, INITIAL, TRUE

INTERVAL = 1.96
"""Standard deviations to either side that hold 95 % of a normal distribution."""
MANY = 80
"""Points in a panel above which they are drawn small and without names."""
WIDTH = 110
"""Characters of names of tests that stand beside each other below a panel."""
LONGEST = 30
"""Characters of a name that are shown."""
SIDE = 0.08
"""Inches left at the sides: the layout is made before it is known how wide the numbers at the axes will be."""
MEASURED_POINT = "0.35"


def deflection_figures(result: Result) -> Iterator[tuple[str, Figure]]:
    """Name and figure: values against the number of tests of a linear fit; displacements and rotations of all."""
    if "convergence" in result.metrics:
        yield "convergence", convergence_figure(result)
    for name, unit in (("displacements", "mm"), ("rotations", "deg")):
        if any(np.isfinite(row[f"measured_{unit}"]).any() for row in result.metrics["deflections"]):
            yield name, displacement_figure(result) if unit == "mm" else rotation_figure(result)


def convergence_figure(result: Result) -> Figure:
    """Each value from so many tests in random orders: median and central 90 % of the orders (Fig. 5).

    With all tests all orders are the same, and the band has no width: it tells when more tests change nothing, and not
    how sure the value is. The 95 % interval of that stands at the end.
    """
    told = result.metrics["convergence"]
    names = [name for name in result.study.free.names if np.isfinite(told[name]["median"]).any()]
    across = min(max(len(names), 1), 3)
    down = max(-(-len(names) // across), 1)
    figure = Figure(figsize=(0.6 + 2.4 * across, 0.9 + 1.8 * down), layout="constrained")
    grid = np.atleast_1d(figure.subplots(down, across, squeeze=False)).ravel()
    for axes, name in zip(grid, names, strict=False):
        _convergence_panel(axes, result, told, name)
    for axes in grid[len(names) :]:
        axes.set_visible(False)
    lost = [name for name in result.study.free.names if name not in names]
    note = f"; not determined: {', '.join(lost)}" if lost else ""
    title = f"{result.study.name}: {told['orders']} random orders of the tests{note}"
    figure.suptitle("\n".join(textwrap.wrap(title, 46 * across)), fontsize=9, x=0.01, ha="left")
    for axes in grid[across * (down - 1) : len(names)]:
        axes.set_xlabel("number of tests")
    if names:
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 2 * across))
    return figure


def _convergence_panel(axes: Axes, result: Result, told: dict[str, Any], name: str) -> None:
    parameter = result.parameters[name]
    unit = 10.0 ** (3 * int(np.floor(np.log10(abs(parameter.value)) / 3.0))) if parameter.value else 1.0
    counts, band = told["tests"], {what: np.asarray(values) / unit for what, values in told[name].items()}
    axes.fill_between(
        counts,
        band["lower"],
        band["upper"],
        color=FITTED,
        alpha=0.25,
        lw=0,
        label="middle 90 % of the orders, no confidence band",
    )
    axes.plot(counts, band["median"], "o-", ms=2.5, lw=1.0, color=FITTED, label="median")
    interval = INTERVAL * parameter.std / unit if np.isfinite(parameter.std) else 0.0
    axes.errorbar(
        counts[-1], parameter.value / unit, interval, fmt="none", ecolor=INITIAL, elinewidth=1.6, capsize=2.5,
        label="95 % interval of the value",
    )  # fmt: skip
    shown = [x for x in (*band["lower"], *band["upper"]) if np.isfinite(x)]
    if name in result.study.truth:
        axes.axhline(result.study.truth[name] / unit, color=TRUE, lw=1.0, ls="--", label="true")
        shown.append(result.study.truth[name] / unit)
    # A few tests may miss by decades; what the figure is for is the way to the end.
    end = parameter.value / unit
    shown += [end - interval, end + interval]
    low, high = max(min(shown), end - abs(end)), min(max(shown), end + abs(end))
    margin = 0.08 * (high - low) or 0.05 * abs(end) or 1.0
    axes.set_ylim(low - margin, high + margin)
    axes.set_xlim(0, counts[-1] + 1)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_title(f"{name} ({unit:.0e} {parameter.unit})".replace("e+0", "e").replace("(1e0 ", "("), loc="left")


def displacement_figure(result: Result) -> Figure:
    """Length of the translation of each point in each test, measured and predicted, with 95 % intervals (Fig. 6).

    Below it what is missed along x, y and z: a prediction of the right length may point elsewhere.
    """
    sets = _sets(result, "mm")
    figure = Figure(
        figsize=(8.0, 0.6 + sum(3.2 + _room(rows) for _, rows in sets)), layout=ConstrainedLayoutEngine(w_pad=SIDE)
    )
    grid = figure.subplots(2 * len(sets), 1, squeeze=False, height_ratios=[1.3, 1.0] * len(sets))[:, 0]
    for axes, missed, (title, rows) in zip(grid[::2], grid[1::2], sets, strict=True):
        measured, predicted = (
            np.array([_length(row, what, "mm") for row in rows]) for what in ("measured", "predicted")
        )
        _panel(axes, rows, measured, predicted, names=False)
        axes.set_ylim(bottom=0.0)
        axes.set_ylabel("displacement (mm)")
        axes.set_title(title, loc="left")
        _missed_panel(missed, rows)
    _legend(figure, grid[0], grid[1])
    return figure


def _missed_panel(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """Measured less predicted translation along the ground's axes, with the 95 % intervals of what was measured."""
    few = len(rows) <= MANY
    for i, (axis, colour, marker) in enumerate(zip("xyz", (ALERT, TRUE, FITTED), "^sD", strict=True)):
        missed = np.array([row["measured_mm"][i] - row["predicted_mm"][i] for row in rows])
        std = np.array([row["measured_std_mm"][i] for row in rows])
        place = np.arange(len(rows)) + 0.22 * _spread(rows) * (i - 1)
        axes.errorbar(
            place, missed, INTERVAL * std, fmt=marker, ms=3.2 if few else 1.5, lw=0.7, color=colour,
            label=f"missed along {axis}",
        )  # fmt: skip
    axes.axhline(0.0, color="0.5", lw=0.6)
    axes.set_ylabel("measured -\npredicted (mm)")
    _test_axis(axes, rows, few, True)


def rotation_figure(result: Result) -> Figure:
    """Rotation of each point about x, y and z of the ground in each test, measured and predicted (Fig. 7)."""
    sets = _sets(result, "deg")
    figure = Figure(
        figsize=(8.0, 0.6 + sum(4.2 + _room(rows) for _, rows in sets)), layout=ConstrainedLayoutEngine(w_pad=SIDE)
    )
    grid = figure.subplots(3 * len(sets), 1, squeeze=False)[:, 0]
    for number, (title, rows) in enumerate(sets):
        for axis, axes in enumerate(grid[3 * number : 3 * number + 3]):
            measured, predicted = (
                np.array([[row[f"{what}_deg"][axis], row[f"{what}_std_deg"][axis]] for row in rows])
                for what in ("measured", "predicted")
            )
            _panel(axes, rows, measured, predicted, names=axis == 2)
            axes.axhline(0.0, color="0.5", lw=0.6)
            axes.set_ylabel(f"about {'xyz'[axis]} (deg)")
            if axis == 0:
                axes.set_title(title, loc="left")
    _legend(figure, grid[0])
    return figure


def _sets(result: Result, unit: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """Title and rows of each set in which something of the kind was measured."""
    found = []
    kind = {"mm": "translation", "deg": "rotation"}[unit]
    for line in result.metrics["sets"]:
        share = line[kind]["explained_percent"]
        if share is not None:
            used = "used in the fit" if line["role"] == "fit" else "not used in the fit"
            rows = [row for row in result.metrics["deflections"] if row["set"] == line["set"]]
            found.append((f"{line['set']}: {line['tests']} tests {used}, {share:.1f} % explained", rows))
    return found


def _length(row: dict[str, Any], what: str, unit: str) -> tuple[float, float]:
    """Length of what was measured of a displacement, and its deviation along it."""
    vector, std = row[f"{what}_{unit}"], row[f"{what}_std_{unit}"]
    seen = np.isfinite(row[f"measured_{unit}"])
    if not seen.any():
        return np.nan, np.nan
    length = float(np.linalg.norm(vector[seen]))
    return length, float(np.linalg.norm(vector[seen] * std[seen]) / length) if length > 0.0 else float(std[seen].max())


def _panel(
    axes: Axes, rows: list[dict[str, Any]], measured: np.ndarray, predicted: np.ndarray, names: bool = True
) -> None:
    x, aside = np.arange(len(rows)), 0.12 * _spread(rows)
    few = len(rows) <= MANY
    axes.errorbar(
        x - aside, measured[:, 0], INTERVAL * measured[:, 1], fmt="x", ms=4.5 if few else 2.0, mew=1.1, lw=0.9,
        color=MEASURED_POINT, label="measured, 95 %",
    )  # fmt: skip
    axes.errorbar(
        x + aside, predicted[:, 0], INTERVAL * predicted[:, 1], fmt="o", ms=4.0 if few else 2.0, mfc="none", lw=0.9,
        color=FITTED, label="predicted, 95 %",
    )  # fmt: skip
    _test_axis(axes, rows, few, names)


def _spread(rows: list[dict[str, Any]]) -> float:
    """How far what belongs to one test stands apart, beside what it does where there are many."""
    return min(1.0, len(rows) / 10.0)


def _test_names(rows: list[dict[str, Any]]) -> list[str]:
    points = {row["point"] for row in rows}
    return [row["test"] if len(points) == 1 else f"{row['test']} {row['point']}" for row in rows]


def _upright(rows: list[dict[str, Any]]) -> bool:
    """Whether the names of the tests have to be turned to stand beside each other."""
    return len(rows) * (2 + max(map(len, _test_names(rows)))) > WIDTH


def _room(rows: list[dict[str, Any]]) -> float:
    """Height of the names of the tests, inches."""
    turned = len(rows) <= MANY and _upright(rows)
    return 0.06 * min(max(map(len, _test_names(rows))), LONGEST) if turned else 0.1


def _test_axis(axes: Axes, rows: list[dict[str, Any]], few: bool, names: bool) -> None:
    axes.set_xlim(-0.7, len(rows) - 0.3)
    axes.grid(False, axis="x")
    if few and names:
        labels = [name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..." for name in _test_names(rows)]
        axes.set_xticks(np.arange(len(rows)), labels, rotation=90 if _upright(rows) else 0, fontsize=6.5)
    else:
        axes.set_xticks([])
        if names:
            axes.set_xlabel("tests, in their order")


def _legend(figure: Figure, *panels: Axes) -> None:
    found = [pair for axes in panels for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
    handles, labels = zip(*found, strict=True)
    figure.legend(handles, labels, loc="outside upper right", ncols=len(labels))
