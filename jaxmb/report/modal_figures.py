"""Figures of a modal analysis: stabilization chart, mode indicator, AutoMAC, measured and synthesized FRFs."""

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from jaxmb.identify.experiments.entry import Entry
from jaxmb.measurement.frf_set import FrfSet
from jaxmb.measurement.modal.analysis import ModalAnalysis
from jaxmb.measurement.modal.data import cmif
from jaxmb.measurement.units import UNKNOWN
from jaxmb.report.frf_figures import Curve, Responses, frf_figure
from jaxmb.report.modal import Comparison, synthesized
from jaxmb.report.mode_figures import mac_figure
from jaxmb.report.modes import data_label
from jaxmb.report.style import ALERT, FITTED, INITIAL, MEASURED, TRUE
from jaxmb.response.frf_kind import DERIVATIVES
from jaxmb.response.modal import mac

MARKS = {
    "new": ("new", "x", "0.45"),
    "frequency": ("frequency stable", "v", INITIAL),
    "damping": ("frequency and damping stable", "D", TRUE),
    "shape": ("shape stable as well", "o", FITTED),
}
"""Label, marker and colour of a pole by its stability."""
BELOW_LEGEND = 0.34
"""Distance from the title of the figure of FRFs to below its legend, inches."""
SHOWN = 3
"""Number of outputs and of inputs whose FRFs are drawn: outputs with the best, median and worst FRAC."""


def stabilization_of_test(entry: Entry) -> Figure:
    """Stabilization chart of the modal analysis of an FRF test."""
    return stabilization_figure(entry.name, entry.source.modal, entry.source.everything)


def synthesized_of_test(entry: Entry) -> Figure:
    """Measured (or simulated) and synthesized FRFs of the modal analysis of an FRF test."""
    return synthesized_figure(entry.name, synthesized(entry.source.modal, entry.source.everything), data_label(entry))


def stabilization_figure(name: str, analysis: ModalAnalysis, measured: FrfSet) -> Figure:
    """Poles by frequency and model order, marked by stability, over the mode indicator."""
    chart = analysis.chart
    figure = Figure(figsize=(8.2, 4.6), layout="constrained")
    axes = figure.add_subplot()
    level = axes.twinx()
    level.semilogy(measured.frequency_hz, cmif(measured.frf)[:, 0], color="0.80", lw=1.0)
    level.set_ylabel(f"largest singular value ({_unit(measured)})", color="0.45")
    level.tick_params(axis="y", colors="0.45", which="both")
    level.grid(False)
    axes.set_zorder(level.get_zorder() + 1)
    axes.patch.set_visible(False)
    labels = np.array(chart.label)
    for label, (_, marker, color) in MARKS.items():
        these = labels == label
        size, line = (8.0, 0.6) if label == "new" else (9.0, 0.0)
        axes.scatter(chart.frequency_hz[these], chart.order[these], s=size, marker=marker, color=color, linewidths=line)
    for frequency_hz in analysis.frequency_hz:
        axes.axvline(frequency_hz, color=ALERT, lw=0.6, alpha=0.4, zorder=0)
    _mark_poles(axes, analysis)
    axes.set_xlim(*analysis.model.band_hz)
    axes.set_xlabel("frequency (Hz)")
    axes.set_ylabel("order")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    if np.unique(chart.order).size == 1:  # poles chosen by hand
        axes.set_ylim(chart.order[0] - 2, chart.order[0] + 2)
    handles = [Line2D([], [], ls="", marker=m, ms=4, color=c, label=text) for text, m, c in MARKS.values()]
    handles += [
        Line2D([], [], color=ALERT, lw=0.6, alpha=0.6, marker="v", ms=4, label="chosen pole"),
        Line2D([], [], color="0.80", lw=1.2, label="mode indicator"),
    ]
    figure.legend(
        handles=handles, loc="outside upper center", ncols=6, columnspacing=1.0, handletextpad=0.4,
        title=f"{name}: stabilization chart", title_fontsize=9,
    )  # fmt: skip
    return figure


def cmif_figure(name: str, analysis: ModalAnalysis, measured: FrfSet) -> Figure:
    """Singular values of the FRF matrix against frequency, and the largest one of the residual of the modal model.

    Two singular values that peak together indicate two close modes, a peak of the residual a missed mode.
    """
    figure = Figure(figsize=(8.2, 3.4), layout="constrained")
    axes = figure.add_subplot()
    values = cmif(measured.frf)
    for number in range(min(values.shape[1], 6)):
        axes.semilogy(
            measured.frequency_hz, values[:, number], lw=1.1 if number == 0 else 0.9,
            color=(FITTED, INITIAL, TRUE, MEASURED, "0.55", "0.40")[number], label=f"singular value {number + 1}",
        )  # fmt: skip
    axes.semilogy(analysis.line_hz, cmif(analysis.left)[:, 0], color="black", lw=0.7, label="residual")
    _mark_poles(axes, analysis)
    axes.set_xlim(float(measured.frequency_hz[0]), float(measured.frequency_hz[-1]))
    axes.set_xlabel("frequency (Hz)")
    axes.set_ylabel(f"CMIF ({_unit(measured)})")
    handles, _ = axes.get_legend_handles_labels()
    handles.append(Line2D([], [], ls="", marker="v", ms=4, color=ALERT, label="chosen pole"))
    figure.legend(
        handles=handles, loc="outside upper center", ncols=len(handles), title=f"{name}: complex mode indicator",
        title_fontsize=9,
    )  # fmt: skip
    return figure


def coherence_figure(name: str, analysis: ModalAnalysis, compared: Comparison) -> Figure:
    """Coherence against frequency: median and central 80 % of the responses."""
    coherence = np.asarray(compared.coherence)
    kind = "multiple coherence" if coherence.ndim == 2 and len(compared.measured.inputs) > 1 else "coherence"
    values = coherence.reshape(coherence.shape[0], -1)
    finite = np.isfinite(values).any(axis=1)
    low, middle, high = np.nanquantile(values[finite], (0.1, 0.5, 0.9), axis=1)
    frequency_hz = compared.measured.frequency_hz[finite]
    figure = Figure(figsize=(8.2, 3.0), layout="constrained")
    axes = figure.add_subplot()
    if values.shape[1] > 1:
        axes.fill_between(
            frequency_hz, low, high, color=INITIAL, alpha=0.35, lw=0.0, label="central 80 % of the responses"
        )
    axes.plot(frequency_hz, middle, color=FITTED, lw=0.9, label="median" if values.shape[1] > 1 else kind)
    _mark_poles(axes, analysis)
    axes.set_xlim(*analysis.model.band_hz)
    axes.set_ylim(0.0, 1.03)
    axes.set_xlabel("frequency (Hz)")
    axes.set_ylabel(kind)
    handles, _ = axes.get_legend_handles_labels()
    handles.append(Line2D([], [], ls="", marker="v", ms=4, color=ALERT, label="chosen pole"))
    figure.legend(
        handles=handles, loc="outside upper center", ncols=len(handles), title=f"{name}: {kind} of the measured FRFs",
        title_fontsize=9,
    )  # fmt: skip
    return figure


def synthesized_figure(name: str, compared: Comparison, given: str = "measured") -> Figure:
    """Measured and synthesized FRFs of the outputs with the best, median and worst FRAC."""
    ranked = np.argsort(-np.nanmedian(compared.frac, axis=1))
    picks = ranked[np.unique(np.linspace(0, ranked.size - 1, min(SHOWN, ranked.size)).round().astype(int))]
    outputs = [compared.measured.outputs[o] for o in picks]
    columns = range(min(SHOWN, len(compared.measured.inputs)))
    inputs = [compared.measured.inputs[i] for i in columns]
    block = np.ix_(np.arange(compared.measured.frequency_hz.size), picks, np.array(columns))
    curves = [
        Curve(given, compared.measured.frf[block], MEASURED, 2.2, "-"),
        Curve("synthesized", compared.synthesized.frf[block], FITTED, 0.9, "-"),
    ]
    responses = Responses(
        compared.measured.frequency_hz, curves, [(o,) for o in outputs], [(i,) for i in inputs],
        DERIVATIVES[compared.measured.kind], unit=_unit(compared.measured),
        notes=[[f"FRAC {compared.frac[o, i]:.3f}" for i in columns] for o in picks],
    )  # fmt: skip
    figure = frf_figure(name, responses)
    rules = []
    if len(outputs) < ranked.size:
        rules.append(f"of {ranked.size} outputs, by median FRAC, those explained best, in the middle and worst")
    if len(inputs) < len(compared.measured.inputs):
        rules.append(f"the first {len(inputs)} of {len(compared.measured.inputs)} inputs")
    if rules:
        title = figure.texts[0]
        x, y = title.get_position()
        figure.text(x, y - BELOW_LEGEND / figure.get_figheight(), "; ".join(rules), va="top", fontsize=7, color="0.35")
    return figure


def automac_figure(name: str, analysis: ModalAnalysis) -> Figure:
    """MAC among the shapes: large off-diagonal values are modes that the sensors do not distinguish."""
    modes = ("modes (Hz)", analysis.frequency_hz)
    return mac_figure(
        f"{name}: AutoMAC", np.asarray(mac(jnp.asarray(analysis.shape), jnp.asarray(analysis.shape))), modes, modes
    )


def _mark_poles(axes: Axes, analysis: ModalAnalysis) -> None:
    top = axes.get_xaxis_transform()
    axes.plot(
        analysis.frequency_hz, np.full(analysis.frequency_hz.size, 0.985), "v", ms=4, color=ALERT, transform=top,
        clip_on=False,
    )  # fmt: skip


def _unit(measured: FrfSet) -> str:
    return "unit unknown" if measured.unit == UNKNOWN else measured.unit
