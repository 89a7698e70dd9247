"""Figures of an identification, as one would print them in a paper."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from jaxmb.identify.assess.result import Result
from jaxmb.identify.experiments.frf_test import FrfTest
from jaxmb.identify.experiments.modes_test import ModesTest
from jaxmb.identify.experiments.test import Test
from jaxmb.report.comparison import FittedModes, fitted_modes, mode_pairs
from jaxmb.report.complete_plots import complete_figures
from jaxmb.report.correlation_plot import correlation_figure
from jaxmb.report.deflection_plots import deflection_figures
from jaxmb.report.frf_plot import frf_test_figure
from jaxmb.report.law_plots import law_figures
from jaxmb.report.mac_plot import MOST_MODES, mac_panels
from jaxmb.report.modal_plots import stabilization_figure, synthesized_figure
from jaxmb.report.modal_report import synthesized
from jaxmb.report.profile_plots import profile_figure
from jaxmb.report.style import ALERT, FITTED, INITIAL, MEASURED, TRUE, drawing, write_figure
from jaxmb.report.tables import free_values


def write_figures(result: Result, folder: str | os.PathLike[str]) -> list[Path]:
    """Draw everything there is to see of a result and write it as PNG files.

    Args:
        result: the identification.
        folder: where the files go; it is made where it does not exist.

    Returns:
        The files: cost, parameters, and for each test its FRFs and MAC, or its modes and their energy; of a test with a
        modal analysis its stabilization chart, and measured and synthesized FRFs.

    Raises:
        OSError: the folder or a file cannot be written; no file is left half-written.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with drawing():
        return [write_figure(figure, folder / f"{name}.png") for name, figure in result_figures(result)]


def result_figures(result: Result) -> Iterator[tuple[str, Figure]]:
    """Name and figure of everything there is to see of a result."""
    if result.study.complete is not None:
        yield from complete_figures(result)
        return
    if result.study.is_linear:
        yield "parameters", parameter_figure(result)
        yield from deflection_figures(result)
        return
    yield "cost", cost_figure(result)
    yield "parameters", parameter_figure(result)
    if result.study.free.size > 1:
        yield "correlation", correlation_figure(result)
    if "profiles" in result.metrics:
        yield "profiles", profile_figure(result)
    yield from law_figures(result)
    fits = [entry for entry in result.study.fitted if entry.test.posture is not None]
    for entry, name in zip(fits, _file_names([entry.test for entry in fits]), strict=True):
        test: Any = entry.test
        number, data = result.study.fitted.index(entry), entry.source
        if isinstance(test, ModesTest):
            fitted = fitted_modes(result, test)
            yield f"modes-{name}", measured_modes_figure(test, fitted)
            yield f"energy-{name}", energy_figure(result, test, fitted)
        else:
            yield f"frf-{name}", frf_test_figure(result, test, data)
            if data.modal is not None:
                yield f"stabilization-{name}", stabilization_figure(test.name, data.modal, data.everything)
                yield f"synthesized-{name}", synthesized_figure(test.name, synthesized(data.modal, data.everything))
        pairs = mode_pairs(result, number)
        # One sensor tells nothing of a shape, and of one component all are alike.
        if pairs.likeness.size and min(len(test.outputs) or 2, pairs.fitted.shape.shape[0]) > 1:
            unit = getattr(data, "frequency_unit", "Hz")
            panel = (
                f"identified: modes ({unit})",
                pairs.likeness,
                np.asarray(pairs.fitted.damped_frequency_hz),
                pairs.unmeasured,
            )
            measured = pairs.reference_name == "measured"
            title = f"{test.name}: MAC" if measured else f"{test.name}: MAC with the {pairs.reference_name} model"
            across = f"measured: modes ({unit})" if measured else f"{pairs.reference_name} parameters: modes ({unit})"
            yield (
                f"mac-{name}",
                mac_panels(title, [panel], (across, np.asarray(pairs.reference.damped_frequency_hz))),
            )
    for check, name in zip(result.study.checks, _file_names([c.test for c in result.study.checks]), strict=True):
        if isinstance(check.test, FrfTest):
            yield f"check-{name}", frf_test_figure(result, check.test, check.source, held_out=True)
    if "deflections" in result.metrics:
        yield from deflection_figures(result)


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


_MARKER = {
    "yes": {"marker": "o", "ms": 4.5, "mfc": FITTED, "mec": FITTED},
    "weak": {"marker": "o", "ms": 4.5, "mfc": "white", "mec": FITTED, "mew": 1.2},
    "no": {"marker": "x", "ms": 5.0, "mec": FITTED, "mew": 1.4},
}


def _parameter_panel(axes: Axes, result: Result, names: list[str]) -> None:
    logarithmic = {name: result.is_logarithmic(name) for name in names}
    found = [result.parameters[name] for name in names]
    low, high = min(p.lower for p in found), max(p.upper for p in found)
    if low > 0.0 and all(logarithmic[name] for name in names):
        axes.set_xscale("log")
        limits = low / 1.6, high * 1.6
    else:
        limits = low - 0.05 * (high - low), high + 0.05 * (high - low)
    for row, (name, p) in enumerate(zip(names, found, strict=True)):
        axes.barh(row, p.upper - p.lower, left=p.lower, height=0.62, color="0.88")
        ends = np.clip(p.interval_95 or (-np.inf, np.inf), *limits)
        axes.plot(ends, [row, row], color=FITTED, lw=1.4, solid_capstyle="butt")
        axes.plot(p.initial, row, ls="", marker="D", ms=4.5, mfc="none", mec=INITIAL, mew=1.2)
        if name in result.study.truth:
            axes.plot(result.study.truth[name], row, ls="", marker="|", ms=11, mew=2.2, color=TRUE)
        axes.plot(p.value, row, ls="", **_MARKER[p.identifiable])
    axes.set_xlim(*limits)
    axes.set_ylim(len(names) - 0.4, -0.6)
    labels = {name: label.split(".", 1)[1] for label, name in free_values(result)}
    axes.set_yticks(range(len(names)), [labels[name] for name in names])
    axes.grid(False, axis="y")


def measured_modes_figure(test: ModesTest, fitted: FittedModes) -> Figure:
    """Measured and fitted frequencies and damping ratios, and their difference beside the measurement's own spread."""
    rows = (
        ("frequency", "Hz", test.frequency_hz, fitted.frequency_hz, test.frequency_std),
        ("damping ratio", "%", 100.0 * test.damping_ratio, fitted.damping_percent, 100.0 * test.damping_std),
    )
    modes = np.arange(1, fitted.frequency_hz.size + 1)
    figure = Figure(figsize=(max(6.4, 2.6 + 0.45 * modes.size), 4.2), layout="constrained")
    grid = figure.subplots(2, 2, sharex=True, height_ratios=(1.6, 1.0))
    for (above, below), (name, unit, measured, found, std) in zip(grid.T, rows, strict=True):
        measured, found, std = (np.asarray(x) for x in (measured, found, std))
        above.bar(modes, measured, width=0.6, color="0.80", label="measured")
        above.plot(modes, found, "_", ms=19, mew=2.0, color=FITTED, label="fitted")
        above.set_ylabel(f"{name} ({unit})")
        above.set_ylim(0.0, 1.15 * float(max(measured.max(), found.max())))
        for x, value in zip(modes, measured, strict=True):
            above.annotate(
                f"{value:#.3g}".removesuffix("."),
                (x, 0.0),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=7,
            )
        below.bar(
            modes, 2 * std, bottom=-std, width=0.6, color="white", edgecolor="0.45", lw=0.8, hatch="////",
            label="± 1 standard deviation",
        )  # fmt: skip
        below.plot(modes, found - measured, "o", ms=4.5, color=FITTED, label="fitted - measured")
        below.axhline(0.0, color="0.4", lw=0.6)
        below.set_ylabel(f"difference ({unit})")
        below.set_ylim(*(np.array([-1.8, 1.8]) * float(max(std.max(), np.abs(found - measured).max()))))
        below.set_xlabel("mode")
        below.set_xticks(modes)
        for axes in (above, below):
            axes.grid(False, axis="x")
    handles = [h for axes in grid[:, 0] for h in axes.get_legend_handles_labels()[0]]
    figure.legend(
        handles=handles, loc="outside upper center", ncols=4, title=f"{test.name}: measured and fitted modes",
        title_fontsize=9,
    )  # fmt: skip
    return figure


def energy_figure(result: Result, test: ModesTest, fitted: FittedModes) -> Figure:
    """Share of each coordinate in the strain energy of each fitted mode; those named by the measurement stand out."""
    names = result.study.model.coordinates
    count = min(fitted.frequency_hz.size, MOST_MODES)
    figure = Figure(figsize=(max(4.2, 1.4 + 0.38 * len(names)), 0.9 + 0.95 * count), layout="constrained")
    grid = np.atleast_1d(figure.subplots(count, 1, sharex=True, sharey=True))
    for m, axes in enumerate(grid):
        named = np.asarray(test.content[m])
        share = 100.0 * fitted.share[m]
        bars = axes.bar(range(len(names)), share, width=0.7, color=[FITTED if on else MEASURED for on in named])
        axes.bar_label(bars, labels=[f"{s:.0f}" if s >= 0.5 else "" for s in share], fontsize=6.5, padding=1)
        axes.set_title(f"mode {m + 1}, {fitted.frequency_hz[m]:.2f} Hz", loc="left", pad=2)
        axes.set_ylim(0.0, 118.0)
        axes.set_yticks([0, 50, 100])
        axes.grid(False, axis="x")
    grid[-1].set_xticks(range(len(names)), names, rotation=0 if len(names) <= 12 else 90)
    figure.supylabel("share of strain energy (%)", fontsize=8)
    handles = [Patch(color=MEASURED, label="coordinate")]
    if np.asarray(test.content).any():
        handles.append(Patch(color=FITTED, label="named in the measurement"))
    note = "" if count == fitted.frequency_hz.size else f" (first {count} of {fitted.frequency_hz.size} modes)"
    figure.legend(handles=handles, loc="outside upper center", ncols=2, title=f"{test.name}{note}", title_fontsize=9)
    return figure


def _file_names(tests: Sequence[Test]) -> list[str]:
    """A part of a file name for each test: its own name in letters that every file system takes, made distinct."""
    plain = [re.sub(r"[^A-Za-z0-9]+", "-", t.name).strip("-").lower()[:60] or "test" for t in tests]
    return plain if len(set(plain)) == len(plain) else [f"{k}-{n}" for k, n in enumerate(plain, 1)]
