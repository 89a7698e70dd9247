"""Report of `jaxmb modal`: poles, tables and figures, modal.json."""

import dataclasses
import json
from collections.abc import Sequence
from functools import partial

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from jaxmb.identify.experiments.entry import Entry
from jaxmb.io.records import strict, versions
from jaxmb.measurement.frf_set import FrfSet, in_band
from jaxmb.measurement.modal.analysis import ModalAnalysis
from jaxmb.measurement.modal.data import cmif, distinguishable, frac, modal_phase_collinearity, modal_phase_deviation
from jaxmb.measurement.modal.model import synthesize
from jaxmb.measurement.units import UNKNOWN
from jaxmb.report.frf_figures import Curve, Responses, frf_figure
from jaxmb.report.modes import data_label, mac_figure
from jaxmb.report.section import Lines, Picture, Section, Table, number, right
from jaxmb.report.style import ALERT, FITTED, INITIAL, MEASURED, TRUE
from jaxmb.response.frf_kind import DERIVATIVES
from jaxmb.response.modal import mac

SCHEMA = 1


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """Measured FRFs of the band and those of the modal model."""

    measured: FrfSet
    synthesized: FrfSet
    frac: np.ndarray
    """Frequency response assurance criterion [output, input]."""
    coherence: np.ndarray | None
    """Multiple coherence [f, output] or coherence [f, output, input] of the measured FRFs; None if unknown."""


def synthesized(analysis: ModalAnalysis, measured: FrfSet) -> Comparison:
    """Measured and synthesized FRFs within the band of an analysis.

    Args:
        analysis: the modal analysis.
        measured: the analysed FRFs.
    """
    model = analysis.model
    low, high = model.band_hz
    measured = in_band(measured, (max(low, 1e-9), high))  # some kinds have no finite value at 0 Hz
    synthetic = synthesize(model, measured.frequency_hz, decay_1_s=measured.decay_1_s)
    rows = [measured.outputs.index(name) for name in model.outputs]
    columns = [measured.inputs.index(name) for name in model.inputs]
    compared = dataclasses.replace(
        measured, frf=measured.frf[:, rows][:, :, columns], outputs=model.outputs, inputs=model.inputs, coherence=None
    )
    coherence = measured.coherence
    if coherence is not None:
        coherence = coherence[:, rows] if coherence.ndim == 2 else coherence[:, rows][:, :, columns]
    return Comparison(compared, synthetic, frac(compared.frf, synthetic.frf), coherence)


def modal_sections(
    name: str, analysis: ModalAnalysis, compared: Comparison, remarks: Sequence[str], records: Sequence[str] = ()
) -> list[Section]:
    """Sections on the poles, on the agreement of the modal model with the data, and on the data.

    Args:
        name: of the measurement.
        analysis: the modal analysis.
        compared: measured and synthesized FRFs.
        remarks: on the data.
        records: sentences on the time records behind the FRFs.
    """
    pictures = [
        Picture("stabilization", partial(stabilization_figure, name, analysis, compared.measured)),
        Picture("cmif", partial(cmif_figure, name, analysis, compared.measured)),
        Picture("synthesized", partial(synthesized_figure, name, compared)),
    ]
    if compared.coherence is not None and np.isfinite(compared.coherence).any():
        pictures.append(Picture("coherence", partial(coherence_figure, name, analysis, compared)))
    if distinguishable(len(analysis.points), analysis.frequency_hz.size):
        pictures.append(Picture("automac", partial(automac_figure, name, analysis)))
    return [
        Section(f"Modes of {name}", (modal_table(analysis), *pictures)),
        Section("Data and model", (Lines(tuple(_summary(analysis, compared, remarks, records))),)),
    ]


def modal_table(analysis: ModalAnalysis) -> Table:
    """Poles: frequency and damping with standard deviations, and the complexity of each shape (MPC, MPD)."""
    model, scatter, rows = analysis.model, analysis.scatter, []
    for r in range(model.frequency_hz.size):
        shape = analysis.shape[:, r]
        rows.append(
            (
                str(r + 1),
                f"{model.frequency_hz[r]:.4f}",
                number(float(model.frequency_std_hz[r]), 2),
                f"{model.damped_frequency_hz[r]:.4f}",
                f"{100.0 * model.damping_ratio[r]:.3f}",
                number(100.0 * float(model.damping_std[r]), 2),
                f"{modal_phase_collinearity(shape):.3f}",
                f"{np.degrees(modal_phase_deviation(shape)):.1f}",
                *([] if scatter is None else [number(100.0 * float(scatter.std[r]), 2)]),
            )
        )
    titles = ("mode", "frequency Hz", "± std", "damped Hz", "damping % of critical", "± std", "MPC", "MPD °")
    columns = right(*titles, *([] if scatter is None else ["scatter %"]))
    caption = "MPC, MPD: modal phase collinearity (1: real shape) and deviation (0°: real shape)"
    if scatter is not None:
        caption += f"; scatter: standard deviation of the frequency between {scatter.between}"
    return Table("", columns, tuple(rows), caption)


def _summary(
    analysis: ModalAnalysis, compared: Comparison, remarks: Sequence[str], records: Sequence[str]
) -> list[str]:
    worst = np.unravel_index(np.nanargmin(compared.frac), compared.frac.shape)
    pair = f"{compared.measured.outputs[worst[0]]} / {compared.measured.inputs[worst[1]]}"
    lines = [
        f"FRAC of synthesized and measured FRFs: median {np.nanmedian(compared.frac):.4f},"
        f" least {compared.frac[worst]:.4f} ({pair})",
        f"lines: {compared.measured.frequency_hz.size} from {compared.measured.frequency_hz[0]:g}"
        f" to {compared.measured.frequency_hz[-1]:g} Hz, {_counted(compared.measured.outputs, 'output')},"
        f" {_counted(compared.measured.inputs, 'input')}, unit {compared.measured.unit}",
        *records,
    ]
    return lines + [f"remark: {remark}" for remark in (*remarks, *analysis.remarks)]


def _counted(names: Sequence[str], noun: str) -> str:
    return f"{len(names)} {noun}" if len(names) == 1 else f"{len(names)} {noun}s"


def modal_json(name: str, analysis: ModalAnalysis, compared: Comparison, remarks: Sequence[str]) -> str:
    """The analysis as strict JSON, null for unknown numbers."""
    model = analysis.model
    poles = [
        {
            "frequency_hz": model.frequency_hz[r],
            "damped_frequency_hz": model.damped_frequency_hz[r],
            "damping_ratio": model.damping_ratio[r],
            "frequency_std_hz": model.frequency_std_hz[r],
            "damping_std": model.damping_std[r],
            "frequency_scatter": None if analysis.scatter is None else analysis.scatter.std[r],
            "mpc": modal_phase_collinearity(analysis.shape[:, r]),
            "mpd_deg": np.degrees(modal_phase_deviation(analysis.shape[:, r])),
            "mode_shape_real": np.real(analysis.shape[:, r]),
            "mode_shape_imag": np.imag(analysis.shape[:, r]),
            "shape_real": np.real(model.shape[:, r]),
            "shape_imag": np.imag(model.shape[:, r]),
            "participation_real": np.real(model.participation[r]),
            "participation_imag": np.imag(model.participation[r]),
        }
        for r in range(model.frequency_hz.size)
    ]
    data = {
        "schema": SCHEMA,
        "name": name,
        "source": compared.measured.source,
        "kind": model.kind,
        "unit": model.unit,
        "outputs": list(model.outputs),
        "inputs": list(model.inputs),
        "points": list(analysis.points),
        "options": dict(analysis.options),
        "poles": poles,
        "frac": compared.frac,
        "median_frac": np.nanmedian(compared.frac),
        "remarks": [*remarks, *analysis.remarks],
        "versions": versions(),
    }
    return json.dumps(strict(data), indent=1, allow_nan=False) + "\n"


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
    for k in range(min(values.shape[1], 6)):
        axes.semilogy(
            measured.frequency_hz, values[:, k], lw=1.1 if k == 0 else 0.9,
            color=(FITTED, INITIAL, TRUE, MEASURED, "0.55", "0.40")[k], label=f"singular value {k + 1}",
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
