"""Convergence of identified values with the number of load cases, after Figure 5 of Dumas et al. 2011."""

import textwrap

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from jaxmb.identify.assess.deflections import DeflectionRow, Displacement, Unit
from jaxmb.identify.assess.result import INTERVAL, Result
from jaxmb.identify.assess.tests.deflections import DeflectionMetrics, Settling
from jaxmb.report.style import ALERT, FITTED, INITIAL, TRUE

MANY = 80
"""Number of points in a panel above which they are drawn small and without names."""
WIDTH = 110
"""Characters of horizontal test names that fit below a panel."""
LONGEST = 30
"""Longest shown test name, characters."""
SIDE = 0.08
"""Side margins, inches: the layout precedes the tick labels, whose width is unknown then."""
MEASURED_POINT = "0.35"


def displacement_figure(metrics: DeflectionMetrics) -> Figure:
    """Measured and predicted length of the translation of each point in each test, with 95 % intervals (Fig. 6).

    Lower panels: residual along x, y and z, since a prediction of the right length may have the wrong direction.
    """
    sets = _sets(metrics, "mm")
    figure = Figure(
        figsize=(8.0, 0.6 + sum(3.2 + _room(rows) for _, rows in sets)), layout=ConstrainedLayoutEngine(w_pad=SIDE)
    )
    grid = figure.subplots(2 * len(sets), 1, squeeze=False, height_ratios=[1.3, 1.0] * len(sets))[:, 0]
    for axes, lower, (title, rows) in zip(grid[::2], grid[1::2], sets, strict=True):
        lengths = np.array([_lengths(row.displacement("mm")) for row in rows])
        measured, predicted = lengths[:, 0], lengths[:, 1]
        _panel(axes, rows, measured, predicted, names=False)
        axes.set_ylim(0.0, 1.08 * axes.get_ylim()[1])
        axes.set_ylabel("displacement (mm)")
        axes.set_title(title, loc="left")
        _residual_panel(lower, rows)
    _legend(figure, grid[0], grid[1])
    return figure


def _residual_panel(axes: Axes, rows: list[DeflectionRow]) -> None:
    """Measured minus predicted translation along the ground's axes, with the 95 % intervals of the measurement."""
    few = len(rows) <= MANY
    for i, (axis, colour, marker) in enumerate(zip("xyz", (ALERT, TRUE, FITTED), "^sD", strict=True)):
        residual = np.array([row.displacement("mm").missed[i] for row in rows])
        std = np.array([row.displacement("mm").measured_std[i] for row in rows])
        x = np.arange(len(rows)) + 0.22 * _marker_offset(rows) * (i - 1)
        axes.errorbar(
            x, residual, INTERVAL * std, fmt=marker, ms=3.2 if few else 1.5, lw=0.7, color=colour,
            label=f"residual along {axis}",
        )  # fmt: skip
    axes.axhline(0.0, color="0.5", lw=0.6)
    axes.set_ylabel("measured -\npredicted (mm)")
    _test_axis(axes, rows, few, True)


def rotation_figure(metrics: DeflectionMetrics) -> Figure:
    """Measured and predicted rotation of each point about x, y and z of the ground in each test (Fig. 7)."""
    sets = _sets(metrics, "deg")
    figure = Figure(
        figsize=(8.0, 0.6 + sum(4.2 + _room(rows) for _, rows in sets)), layout=ConstrainedLayoutEngine(w_pad=SIDE)
    )
    grid = figure.subplots(3 * len(sets), 1, squeeze=False)[:, 0]
    for number, (title, rows) in enumerate(sets):
        for axis, axes in enumerate(grid[3 * number : 3 * number + 3]):
            rotations = [row.displacement("deg") for row in rows]
            measured = np.array([[r.measured[axis], r.measured_std[axis]] for r in rotations])
            predicted = np.array([[r.predicted[axis], r.predicted_std[axis]] for r in rotations])
            _panel(axes, rows, measured, predicted, names=axis == 2)
            axes.axhline(0.0, color="0.5", lw=0.6)
            axes.set_ylabel(f"about {'xyz'[axis]} (deg)")
            if axis == 0:
                axes.set_title(title, loc="left")
    _legend(figure, grid[0])
    return figure


def _sets(metrics: DeflectionMetrics, unit: Unit) -> list[tuple[str, list[DeflectionRow]]]:
    """Title and rows of each set with measurements in this unit."""
    found = []
    for line in metrics.sets:
        share = line.gaps(unit).explained_percent
        if share is not None:
            role = "used in the fit" if line.role == "fit" else "not used in the fit"
            rows = [row for row in metrics.deflections if row.set == line.set]
            found.append((f"{line.set}: {line.tests} tests {role}, {share:.1f} % explained", rows))
    return found


def _lengths(displacement: Displacement) -> tuple[tuple[float, float], tuple[float, float]]:
    """Length of the measured components of a displacement with its standard deviation, measured and predicted."""
    d = displacement
    return _length(d.measured, d.measured_std, d.seen), _length(d.predicted, d.predicted_std, d.seen)


def _length(vector: np.ndarray, std: np.ndarray, seen: np.ndarray) -> tuple[float, float]:
    if not seen.any():
        return np.nan, np.nan
    length = float(np.linalg.norm(vector[seen]))
    return length, float(np.linalg.norm(vector[seen] * std[seen]) / length) if length > 0.0 else float(std[seen].max())


def _panel(
    axes: Axes, rows: list[DeflectionRow], measured: np.ndarray, predicted: np.ndarray, names: bool = True
) -> None:
    x, offset = np.arange(len(rows)), 0.12 * _marker_offset(rows)
    few = len(rows) <= MANY
    axes.errorbar(
        x - offset, measured[:, 0], INTERVAL * measured[:, 1], fmt="x", ms=4.5 if few else 2.0, mew=1.1, lw=0.9,
        color=MEASURED_POINT, label="measured, 95 %",
    )  # fmt: skip
    axes.errorbar(
        x + offset, predicted[:, 0], INTERVAL * predicted[:, 1], fmt="o", ms=4.0 if few else 2.0, mfc="none", lw=0.9,
        color=FITTED, label="predicted, 95 %",
    )  # fmt: skip
    _test_axis(axes, rows, few, names)


def _marker_offset(rows: list[DeflectionRow]) -> float:
    """Factor on the distance between the markers of a test, smaller for few tests."""
    return min(1.0, len(rows) / 10.0)


def _test_names(rows: list[DeflectionRow]) -> list[str]:
    points = {row.point for row in rows}
    return [row.test if len(points) == 1 else f"{row.test} {row.point}" for row in rows]


def _upright(rows: list[DeflectionRow]) -> bool:
    """Whether the test names must be vertical to fit."""
    return len(rows) * (2 + max(map(len, _test_names(rows)))) > WIDTH


def _room(rows: list[DeflectionRow]) -> float:
    """Height of the test names, inches."""
    vertical = len(rows) <= MANY and _upright(rows)
    return 0.06 * min(max(map(len, _test_names(rows))), LONGEST) if vertical else 0.1


def _test_axis(axes: Axes, rows: list[DeflectionRow], few: bool, names: bool) -> None:
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


def convergence_figure(result: Result, found: Settling) -> Figure:
    """Identified values against the number of tests in random orders: median and central 90 % of the orders (Fig. 5).

    The band shrinks to zero at the full set, where all orders agree: it shows convergence, not uncertainty. The 95 %
    interval of the value is drawn at the end.
    """
    names = [name for name in result.study.free.names if np.isfinite(found.values[name].median).any()]
    across = min(max(len(names), 1), 3)
    down = max(-(-len(names) // across), 1)
    figure = Figure(figsize=(0.6 + 2.4 * across, 0.9 + 1.8 * down), layout="constrained")
    grid = np.atleast_1d(figure.subplots(down, across, squeeze=False)).ravel()
    for axes, name in zip(grid, names, strict=False):
        _convergence_panel(axes, result, found, name)
    for axes in grid[len(names) :]:
        axes.set_visible(False)
    absent = [name for name in result.study.free.names if name not in names]
    note = f"; not identifiable: {', '.join(absent)}" if absent else ""
    title = f"{result.study.name}: {found.orders} random orders of the tests{note}"
    figure.suptitle("\n".join(textwrap.wrap(title, 46 * across)), fontsize=9, x=0.01, ha="left")
    for axes in grid[max(len(names) - across, 0) : len(names)]:  # the lowest of each column
        axes.set_xlabel("number of tests")
    if names:
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 2 * across))
    return figure


def _convergence_panel(axes: Axes, result: Result, found: Settling, name: str) -> None:
    parameter = result.parameters[name]
    unit = 10.0 ** (3 * int(np.floor(np.log10(abs(parameter.value)) / 3.0))) if parameter.value else 1.0
    counts, band = found.tests, found.values[name]
    lower, median, upper = band.lower / unit, band.median / unit, band.upper / unit
    axes.fill_between(
        counts,
        lower,
        upper,
        color=FITTED,
        alpha=0.25,
        lw=0,
        label="central 90 % of the orders, not a confidence band",
    )
    axes.plot(counts, median, "o-", ms=2.5, lw=1.0, color=FITTED, label="median")
    interval = INTERVAL * parameter.std / unit if np.isfinite(parameter.std) else 0.0
    axes.errorbar(
        counts[-1], parameter.value / unit, interval, fmt="none", ecolor=INITIAL, elinewidth=1.6, capsize=2.5,
        label="95 % interval of the value",
    )  # fmt: skip
    shown = [x for x in (*lower, *upper) if np.isfinite(x)]
    if name in result.study.truth:
        axes.axhline(result.study.truth[name] / unit, color=TRUE, lw=1.0, ls="--", label="true")
        shown.append(result.study.truth[name] / unit)
    # Values from a few tests may be off by decades: the range is limited to twice the final value.
    end = parameter.value / unit
    shown += [end - interval, end + interval]
    low, high = max(min(shown), end - abs(end)), min(max(shown), end + abs(end))
    margin = 0.08 * (high - low) or 0.05 * abs(end) or 1.0
    axes.set_ylim(low - margin, high + margin)
    axes.set_xlim(0, counts[-1] + 1)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_title(f"{name} ({unit:.0e} {parameter.unit})".replace("e+0", "e").replace("(1e0 ", "("), loc="left")
