"""Report of `jaxmb modal`: poles, tables and figures, modal.json."""

import dataclasses
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxmb.io.files import read_strict, strict, versions
from jaxmb.io.validation import InputError
from jaxmb.measurement.frf_set import UNKNOWN, FrfSet, in_band, select_channels, select_lines
from jaxmb.measurement.modal.analysis import ModalAnalysis, counted
from jaxmb.measurement.modal.data import cmif, distinguishable, frac, modal_phase_collinearity, modal_phase_deviation
from jaxmb.measurement.modal.model import synthesize
from jaxmb.report.charts import FITTED, INITIAL, MEASURED, TRUE, Axis, Band, Chart, Line, Mark, Panel, Rule, single
from jaxmb.report.frf_charts import Curve, Responses, frf_chart
from jaxmb.report.mode_shapes import measured_shapes
from jaxmb.report.modes import mac_panels
from jaxmb.report.section import Lines, Picture, Section, Table, hertz, number, right, section, signed, table
from jaxmb.response.frf_kind import DERIVATIVES
from jaxmb.response.modal import mac, paired_modes

SCHEMA = 1


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """Measured FRFs of the band and those of the modal model."""

    measured: FrfSet
    synthesized: FrfSet
    frac: np.ndarray
    """Frequency response assurance criterion [output, input]."""


def synthesized(analysis: ModalAnalysis, measured: FrfSet) -> Comparison:
    """Measured and synthesized FRFs within the band of an analysis.

    Args:
        analysis: the modal analysis.
        measured: the analysed FRFs.
    """
    model = analysis.model
    measured = in_band(measured, model.band_hz)
    measured = select_lines(measured, measured.frequency_hz > 0.0)  # some kinds have no finite value at 0 Hz
    synthetic = synthesize(model, measured.frequency_hz, decay_1_s=measured.decay_1_s)
    compared = select_channels(measured, model.outputs, model.inputs)
    return Comparison(compared, synthetic, frac(compared.frf, synthetic.frf))


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
    coherence = compared.measured.coherence
    has_coherence = coherence is not None and np.isfinite(coherence).any()
    has_mac = distinguishable(len(analysis.points), analysis.frequency_hz.size)
    shapes = measured_shapes(name, analysis, compared.measured)
    parts = (
        modal_table(analysis),
        Picture("stabilization", partial(stabilization_chart, name, analysis, compared.measured)),
        Picture("cmif", partial(cmif_chart, name, analysis, compared.measured)),
        Picture("synthesized", partial(synthesized_chart, name, compared)),
        None if shapes is None else Picture("mode-shapes", lambda: shapes),
        Picture("coherence", partial(coherence_chart, name, analysis, compared)) if has_coherence else None,
        Picture("automac", partial(automac_chart, name, analysis)) if has_mac else None,
    )
    worst = np.unravel_index(np.nanargmin(compared.frac), compared.frac.shape)
    measured = compared.measured
    summary = (
        f"FRAC of synthesized and measured FRFs: median {np.nanmedian(compared.frac):.4f},"
        f" least {compared.frac[worst]:.4f} ({measured.outputs[worst[0]]} / {measured.inputs[worst[1]]})",
        f"lines: {measured.frequency_hz.size} from {measured.frequency_hz[0]:g} to {measured.frequency_hz[-1]:g} Hz,"
        f" {counted(len(measured.outputs), 'output')}, {counted(len(measured.inputs), 'input')}, unit {measured.unit}",
        *records,
        *(f"remark: {remark}" for remark in (*remarks, *analysis.remarks)),
    )
    return [*section(f"Modes of {name}", parts), *section("Data and model", (Lines(summary),))]


def modal_table(analysis: ModalAnalysis) -> Table:
    """Poles: frequency and damping with standard deviations, and the complexity of each shape (MPC, MPD)."""
    model, scatter = analysis.model, analysis.scatter
    rows = [
        (
            str(r + 1),
            f"{model.frequency_hz[r]:.4f}",
            number(float(model.frequency_std_hz[r]), 2),
            f"{model.damped_frequency_hz[r]:.4f}",
            f"{100.0 * model.damping_ratio[r]:.3f}",
            number(100.0 * float(model.damping_std[r]), 2),
            f"{modal_phase_collinearity(shape):.3f}",
            f"{np.degrees(modal_phase_deviation(shape)):.1f}",
            None if scatter is None else number(100.0 * float(scatter.std[r]), 2),
        )
        for r, shape in enumerate(analysis.shape.T)
    ]
    columns = right(
        "mode", "frequency Hz", "± std", "damped Hz", "damping % of critical", "± std", "MPC", "MPD °", "scatter %"
    )
    caption = "MPC, MPD: modal phase collinearity (1: real shape) and deviation (0°: real shape)"
    between = "" if scatter is None else f"scatter: standard deviation of the frequency between {scatter.between}"
    return table("", columns, rows, caption, {"scatter %": between})


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


ANALYSIS = "modal.json"
FARTHEST, NOTABLE = 1.25, 2.0
"""Largest ratio of the frequencies of one mode in two analyses; difference over its standard deviation from which they
are called different."""


class SavedAnalysis(NamedTuple):
    """Modes of an analysis in a folder."""

    points: list[str]
    shape: np.ndarray
    """[point, mode]."""
    frequency_hz: np.ndarray
    frequency_std_hz: np.ndarray
    """By the noise, and the scatter between hits, inputs or outputs where known."""
    damping_ratio: np.ndarray

    @classmethod
    def read(cls, folder: Path) -> "SavedAnalysis":
        """Analysis of an output folder of `jaxmb modal`; raises InputError if it has none of this version."""
        saved = read_strict(folder / ANALYSIS, "a modal analysis of jaxmb")
        try:
            points, poles = saved["points"], saved["poles"]
            columns = {key: np.array([pole[key] for pole in poles], float) for key in COLUMNS}
            shape = columns["mode_shape_real"] + 1j * columns["mode_shape_imag"]
            hz, std, scatter, damping = (columns[key] for key in COLUMNS[:4])
            std = np.hypot(np.nan_to_num(std), np.nan_to_num(scatter) * hz)
            return cls(points, shape.reshape(len(poles), len(points)).T, hz, std, damping)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{folder / ANALYSIS}: was not written by this version of jaxmb: {error!r}") from None


COLUMNS = (
    "frequency_hz", "frequency_std_hz", "frequency_scatter", "damping_ratio", "mode_shape_real", "mode_shape_imag",
)  # fmt: skip


def compared_analyses(one: SavedAnalysis, other: SavedAnalysis, names: tuple[str, str]) -> tuple[str, Table]:
    """What changed between two modal analyses, in a sentence and a table.

    Modes are paired by MAC at common points, or by frequency where there are fewer than two.

    Args:
        one: the first analysis.
        other: the second one.
        names: their headings.
    """
    common = [point for point in one.points if point in other.points]
    rows_of = [[own.points.index(point) for point in common] for own in (one, other)]
    likeness = np.asarray(mac(one.shape[rows_of[0]], other.shape[rows_of[1]])) if len(common) > 1 else None
    pairs = paired_modes(one.frequency_hz, other.frequency_hz, likeness, FARTHEST)
    change = np.array([other.frequency_hz[j] - one.frequency_hz[i] for i, j in pairs])
    std = np.array([np.hypot(other.frequency_std_hz[j], one.frequency_std_hz[i]) for i, j in pairs])
    ratio = change / np.maximum(std, np.finfo(float).tiny)
    rows = [
        (
            one.frequency_hz[i], hertz(one.frequency_hz[i]), hertz(other.frequency_hz[j]),
            signed(100.0 * change[k] / one.frequency_hz[i]),
            f"{'-' if ratio[k] < 0.0 else '+'}{number(abs(ratio[k]), 2)}",
            f"{100.0 * one.damping_ratio[i]:.3f}", f"{100.0 * other.damping_ratio[j]:.3f}",
            None if likeness is None else f"{likeness[i, j]:.3f}",
        )
        for k, (i, j) in enumerate(pairs)
    ]  # fmt: skip
    used = list(map(set, zip(*pairs, strict=True))) or [set(), set()]
    single = [sorted(set(range(x.frequency_hz.size)) - of) for x, of in zip((one, other), used, strict=True)]
    for own, alone, is_first in ((one, single[0], True), (other, single[1], False)):
        for i in alone:
            cells = [hertz(own.frequency_hz[i]), "-"], [f"{100.0 * own.damping_ratio[i]:.3f}", "-"]
            (a, b), (c, d) = cells if is_first else (each[::-1] for each in cells)
            rows.append((own.frequency_hz[i], a, b, "-", "-", c, d, None if likeness is None else "-"))
    first, second = names
    headings = (f"{first}: Hz", f"{second}: Hz", "change %", "change / std", f"{first}: damping %",
                f"{second}: damping %", "MAC")  # fmt: skip
    moved = int(np.sum(np.abs(ratio) >= NOTABLE))
    finding = (
        f"{first} and {second}: {moved} of {counted(len(pairs), 'mode')} in both differ in frequency by more than"
        f" {NOTABLE:g} standard deviations; {len(single[0])} in {first} and {len(single[1])} in {second} have no"
        " partner"
    )
    caption = "std: by the noise, and by the scatter between hits, inputs or outputs where known"
    numbered = [(str(m), *cells) for m, (_, *cells) in enumerate(sorted(rows, key=lambda row: row[0]), 1)]
    return finding, table(f"{first} and {second}", right("mode", *headings), numbered, caption)


MARKS = {
    "new": ("new", "x", "#737373"),
    "frequency": ("frequency stable", "v", INITIAL),
    "damping": ("frequency and damping stable", "D", TRUE),
    "shape": ("shape stable as well", "o", FITTED),
}
"""Label, marker and colour of a pole by its stability."""
SHOWN = 3
"""Number of outputs and of inputs whose FRFs are drawn: outputs with the best, median and worst FRAC."""
LIGHT_ALERT = "#eeb98f"
SERIES = (FITTED, INITIAL, TRUE, MEASURED, "#8c8c8c", "#666666")


def stabilization_chart(name: str, analysis: ModalAnalysis, measured: FrfSet, hertz: str = "Hz") -> Chart:
    """Poles by frequency and model order, marked by stability, over the mode indicator; `hertz` is the unit of
    frequency."""
    chart, (low, high) = analysis.chart, analysis.model.band_hz
    labels = np.array(chart.label)
    marks: list[Mark] = pole_rules(analysis)
    for label, (text, marker, color) in MARKS.items():
        these = labels == label
        x, y = chart.frequency_hz[these], np.asarray(chart.order)[these]
        marks.append(Line(x, y, text, color, 0.0, "", marker, 2.2 if label == "new" else 2.6))
    orders = np.unique(chart.order)
    limits = (float(orders[0]) - 2, float(orders[0]) + 2) if orders.size == 1 else None  # poles chosen by hand
    indicator = Line(measured.frequency_hz, cmif(measured.frf)[:, 0], "mode indicator", "#737373")
    x = Axis(f"frequency ({hertz})", limits=(low, high))
    panels = (
        Panel(marks, x, Axis("order", limits=limits, whole=True), height=3.0),
        Panel((*pole_rules(analysis), indicator), x, Axis(f"indicator\n({_unit(measured)})", log=True), height=1.1),
    )
    count = analysis.frequency_hz.size
    poles = f"{counted(count, 'chosen pole')} from {low:.4g} to {high:.4g} {hertz}" if count else "no stable pole"
    return Chart(
        f"{name}: {poles}",
        "Stabilization chart: poles estimated at each model order; poles of the structure repeat from order to order,"
        " at peaks of the mode indicator below.",
        [[panels]],
        7.0,
    )


def cmif_chart(name: str, analysis: ModalAnalysis, measured: FrfSet) -> Chart:
    """Singular values of the FRF matrix against frequency, and the largest one of the residual of the modal model.

    Two singular values that peak together indicate two close modes, a peak of the residual a missed mode.
    """
    values = cmif(measured.frf)
    left = cmif(analysis.left)[:, 0]
    marks = (
        *pole_rules(analysis),
        *(
            Line(measured.frequency_hz, column, f"singular value {k + 1}", SERIES[k], 0.9 if k else 1.1)
            for k, column in enumerate(values.T[: len(SERIES)])
        ),
        Line(analysis.line_hz, left, "residual", "#000000", 0.7),
    )
    ends = float(measured.frequency_hz[0]), float(measured.frequency_hz[-1])
    panel = Panel(marks, Axis("frequency (Hz)", limits=ends), Axis(f"CMIF ({_unit(measured)})", log=True), height=2.4)
    peak = values[np.isin(measured.frequency_hz, analysis.line_hz), 0].max(initial=0.0)
    share = f"{100.0 * left.max(initial=0.0) / peak:.2g} % of the highest peak" if peak > 0.0 else "unknown"
    return single(
        panel,
        f"{name}: the largest residual of the modal model is {share}",
        "Complex mode indicator: singular values that peak together are close modes, a peak of the residual is a mode"
        " that was missed.",
        7.0,
    )


def coherence_chart(name: str, analysis: ModalAnalysis, compared: Comparison) -> Chart:
    """Coherence against frequency: median and central 80 % of the responses."""
    coherence = np.asarray(compared.measured.coherence)
    kind = "multiple coherence" if coherence.ndim == 2 and len(compared.measured.inputs) > 1 else "coherence"
    values = coherence.reshape(coherence.shape[0], -1)
    finite = np.isfinite(values).any(axis=1)
    low, middle, high = np.nanquantile(values[finite], (0.1, 0.5, 0.9), axis=1)
    frequency_hz = compared.measured.frequency_hz[finite]
    several = values.shape[1] > 1
    marks = (
        *pole_rules(analysis),
        *([Band(frequency_hz, low, high, "central 80 % of the responses", INITIAL, 0.35)] if several else []),
        Line(frequency_hz, middle, "median" if several else kind, FITTED, 0.9),
    )
    return single(
        Panel(marks, Axis("frequency (Hz)", limits=analysis.model.band_hz), Axis(kind, limits=(0.0, 1.03)), height=1.9),
        f"{name}: median {kind} {np.median(middle):.3f}, at least {np.min(middle):.2g}",
        f"{kind.capitalize()} of the measured FRFs: 1 without noise.",
        7.0,
    )


def synthesized_chart(name: str, compared: Comparison, given: str = "measured", hertz: str = "Hz") -> Chart:
    """Measured and synthesized FRFs of the outputs with the best, median and worst FRAC; `hertz` is the unit of
    frequency."""
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
        notes=[[f"FRAC {compared.frac[o, i]:.3f}" for i in columns] for o in picks], frequency_unit=hertz,
    )  # fmt: skip
    chart = frf_chart(f"{name}: median FRAC {np.nanmedian(compared.frac):.4f} of {given} and modal model", responses)
    count = len(compared.measured.inputs)
    best = f"of {ranked.size} outputs, by median FRAC, those explained best, in the middle and worst"
    first = f"the first {len(inputs)} of {count} inputs"
    note = (chart.note, best if len(outputs) < ranked.size else "", first if len(inputs) < count else "")
    return dataclasses.replace(chart, note="; ".join(filter(None, note)))


def automac_chart(name: str, analysis: ModalAnalysis) -> Chart:
    """MAC among the shapes: large off-diagonal values are modes that the sensors do not distinguish."""
    values = np.asarray(mac(jnp.asarray(analysis.shape), jnp.asarray(analysis.shape)))
    apart = values - np.diag(np.diag(values))
    label, frequency_hz = "modes (Hz)", analysis.frequency_hz
    return mac_panels(
        f"{name}: AutoMAC, at most {apart.max(initial=0.0):.2f} between two modes",
        [(label, values, frequency_hz, ())],
        (label, frequency_hz),
    )


def pole_rules(analysis: ModalAnalysis) -> list[Mark]:
    """Lines at the frequencies of the poles."""
    return [Rule(float(f), "x", "chosen pole", LIGHT_ALERT, 0.7) for f in analysis.frequency_hz]


def _unit(measured: FrfSet) -> str:
    return "unit unknown" if measured.unit == UNKNOWN else measured.unit
