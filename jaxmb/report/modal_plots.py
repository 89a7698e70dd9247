"""Figures of a modal analysis: stabilization chart, mode indicator, AutoMAC, measured and synthesized FRFs."""

import os
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxmb.measurement.frf_set import FrfSet
from jaxmb.measurement.modal.analysis import ModalAnalysis
from jaxmb.measurement.modal.indicators import cmif
from jaxmb.measurement.units import UNKNOWN
from jaxmb.report.frf_plot import Curve, frf_figure
from jaxmb.report.mac_plot import mac_figure
from jaxmb.report.modal_report import Comparison
from jaxmb.report.style import ALERT, FITTED, INITIAL, MEASURED, TRUE, drawing, write_figure
from jaxmb.response.frf import DERIVATIVES
from jaxmb.response.modal import mac

MARKS = {
    "new": ("new", ".", "0.75"),
    "frequency": ("frequency stable", "v", INITIAL),
    "damping": ("frequency and damping stable", "D", TRUE),
    "shape": ("shape stable as well", "o", FITTED),
}
"""Label, marker and colour of a pole by what of it came back."""
SHOWN = 3
"""Outputs and inputs whose FRFs are drawn: those that the model explains best, in the middle, and worst."""


def write_modal_figures(
    name: str, analysis: ModalAnalysis, compared: Comparison, folder: str | os.PathLike[str]
) -> list[Path]:
    """Draw everything there is to see of a modal analysis and write it as PNG files.

    Args:
        name: what stands above the figures.
        analysis: the modal analysis.
        compared: its data and what its model gives.
        folder: where the files go; it is made where it does not exist.

    Raises:
        OSError: the folder or a file cannot be written; no file is left half-written.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with drawing():
        figures = [
            ("stabilization", stabilization_figure(name, analysis, compared.measured)),
            ("cmif", cmif_figure(name, analysis, compared.measured)),
            ("synthesized", synthesized_figure(name, compared)),
        ]
        if analysis.frequency_hz.size:
            figures.append(("automac", automac_figure(name, analysis)))
        return [write_figure(figure, folder / f"{kind}.png") for kind, figure in figures]


def stabilization_figure(name: str, analysis: ModalAnalysis, measured: FrfSet) -> Figure:
    """Poles by frequency and order, marked by what of them comes back, over the mode indicator."""
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
        size = 4.0 if label == "new" else 7.0
        axes.scatter(chart.frequency_hz[these], chart.order[these], s=size, marker=marker, color=color, linewidths=0.0)
    for frequency_hz in analysis.frequency_hz:
        axes.axvline(frequency_hz, color=ALERT, lw=0.7, alpha=0.8, zorder=0)
    axes.set_xlim(*analysis.model.band_hz)
    axes.set_xlabel("frequency (Hz)")
    axes.set_ylabel("order")
    handles = [Line2D([], [], ls="", marker=m, ms=4, color=c, label=text) for text, m, c in MARKS.values()]
    handles += [
        Line2D([], [], color=ALERT, lw=0.9, label="chosen pole"),
        Line2D([], [], color="0.80", lw=1.2, label="mode indicator"),
    ]
    figure.legend(
        handles=handles, loc="outside upper center", ncols=6, columnspacing=1.0, handletextpad=0.4,
        title=f"{name}: stabilization chart", title_fontsize=9,
    )  # fmt: skip
    return figure


def cmif_figure(name: str, analysis: ModalAnalysis, measured: FrfSet) -> Figure:
    """Singular values of the FRF matrix line by line: where two are high at once, two modes are near each other."""
    figure = Figure(figsize=(8.2, 3.4), layout="constrained")
    axes = figure.add_subplot()
    values = cmif(measured.frf)
    for number in range(min(values.shape[1], 6)):
        axes.semilogy(
            measured.frequency_hz, values[:, number], lw=1.1 if number == 0 else 0.9,
            color=(FITTED, INITIAL, TRUE, MEASURED, "0.55", "0.40")[number], label=f"singular value {number + 1}",
        )  # fmt: skip
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


def synthesized_figure(name: str, compared: Comparison) -> Figure:
    """Measured and synthesized FRFs of the outputs that are explained best, in the middle, and worst."""
    ranked = np.argsort(-np.nanmedian(compared.frac, axis=1))
    picks = ranked[np.unique(np.linspace(0, ranked.size - 1, min(SHOWN, ranked.size)).round().astype(int))]
    outputs = [compared.measured.outputs[o] for o in picks]
    columns = range(min(SHOWN, len(compared.measured.inputs)))
    inputs = [compared.measured.inputs[i] for i in columns]
    block = np.ix_(np.arange(compared.measured.frequency_hz.size), picks, np.array(columns))
    curves = [
        Curve("measured", compared.measured.frf[block], MEASURED, 2.2, "-"),
        Curve("synthesized", compared.synthesized.frf[block], FITTED, 0.9, "-"),
    ]
    return frf_figure(
        name, compared.measured.frequency_hz, curves, tuple((o,) for o in outputs), tuple((i,) for i in inputs),
        DERIVATIVES[compared.measured.kind], unit=_unit(compared.measured),
        notes=[[f"FRAC {compared.frac[o, i]:.3f}" for i in columns] for o in picks],
    )  # fmt: skip


def automac_figure(name: str, analysis: ModalAnalysis) -> Figure:
    """MAC of the shapes among themselves: what is alike off the diagonal, the sensors cannot tell apart."""
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
