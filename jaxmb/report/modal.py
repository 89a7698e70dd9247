"""Report on a modal analysis, as sections and as JSON."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxmb.io.records import strict, versions
from jaxmb.measurement.frf_set import FrfSet, in_band
from jaxmb.measurement.modal.analysis import ModalAnalysis
from jaxmb.measurement.modal.data import distinguishable, frac, modal_phase_collinearity, modal_phase_deviation
from jaxmb.measurement.modal.model import synthesize
from jaxmb.report.section import Lines, Picture, Section, Table, drawn_by, number, right

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
        _picture("stabilization", "stabilization_figure", name, analysis, compared.measured),
        _picture("cmif", "cmif_figure", name, analysis, compared.measured),
        _picture("synthesized", "synthesized_figure", name, compared),
    ]
    if compared.coherence is not None and np.isfinite(compared.coherence).any():
        pictures.append(_picture("coherence", "coherence_figure", name, analysis, compared))
    if distinguishable(len(analysis.points), analysis.frequency_hz.size):
        pictures.append(_picture("automac", "automac_figure", name, analysis))
    return [
        Section(f"Modes of {name}", (modal_table(analysis), *pictures)),
        Section("Data and model", (Lines(tuple(_summary(analysis, compared, remarks, records))),)),
    ]


def _picture(name: str, function: str, *arguments: Any) -> Picture:
    return Picture(name, drawn_by(f"jaxmb.report.modal_figures:{function}", *arguments))


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
