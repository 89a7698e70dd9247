"""Figures of one FRF test: measured and identified FRFs, and the residual over the noise."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from jaxmb.identify.assess.result import Result, initial_model
from jaxmb.identify.assess.tests.frf import FrfMetrics
from jaxmb.identify.experiments.entry import Entry
from jaxmb.measurement.frf_set import FrfSet, lines, pick
from jaxmb.report.frf.frf_figure import LONGEST_TITLE, MOST_POINTS, Curve, frf_figure
from jaxmb.report.modes.mode_pairs import data_label
from jaxmb.report.style import ALERT, FITTED, INITIAL, MEASURED
from jaxmb.response.frf_kind import dof_names

BAND = 2.0
"""Half width of the 95 % band of pure noise, standard deviations."""
WITHIN = 0.98
"""Share of the residuals within the axis."""
LEAST_REACH, LARGEST_REACH = 4.0, 60.0
"""Smallest and largest half range of the axis of residuals, standard deviations; points beyond are marked."""


def frf_test_figure(result: Result, entry: Entry) -> Figure:
    """Measured, initial and identified FRFs of a test; lines of higher or lower weight than most are shaded.

    Where processed FRFs were fitted, the measured ones are drawn as well, and their coherence below where it is known.
    The legend says "simulated" for simulated data, and "predicted" for the identified FRFs of a held-out test.
    """
    test: Any = entry.test
    data = entry.source
    weight = _shown_weight(test)
    used = weight > 0.0
    before, after = (np.asarray(test.predict(test.view(model))) for model in (initial_model(result), result.model))
    frequency_hz = np.asarray(test.omega) / (2 * np.pi)
    raw = _as_measured(data, test, frequency_hz)
    given = data_label(entry)
    curves = [Curve(data.treatment or given, np.where(used, np.asarray(test.measured), np.nan), MEASURED, 3.2, "-")]
    if data.treatment and raw is not None:
        window = ", exponential window" if raw.decay_1_s > 0.0 and data.fitted.decay_1_s == 0.0 else ""
        curves.append(Curve(f"as {given}{window}", raw.frf, "0.35", 0.7, "-"))
    held_out = entry.role == "check"
    curves += [
        Curve("initial", before, INITIAL, 1.1, ":"),
        Curve("predicted" if held_out else "fitted", after, FITTED, 1.0, "--"),
    ]
    return frf_figure(
        _title(entry), frequency_hz, curves, test.outputs, test.inputs, test.derivatives, weight,
        coherence=None if raw is None else raw.coherence, frequency_unit=data.frequency_unit,
    )  # fmt: skip


def _shown_weight(test: Any) -> np.ndarray:
    """Weights [f, o, i] as drawn: the weight of a reciprocal pair is divided equally between the two FRFs."""
    weight = np.asarray(test.weight).copy()
    outputs, inputs = list(test.outputs), list(test.inputs)
    for o, i in np.argwhere(~weight.any(axis=0)):
        if outputs[o] in inputs and inputs[i] in outputs:
            one, other = (slice(None), o, i), (slice(None), outputs.index(inputs[i]), inputs.index(outputs[o]))
            weight[one] = weight[other] = weight[other] / 2.0
    return weight


def _title(entry: Entry) -> str:
    return f"{entry.name}, held out" if entry.role == "check" else entry.name


def _as_measured(data: Any, test: Any, frequency_hz: np.ndarray) -> FrfSet | None:
    """What was measured at the points and lines of a test; None where a study was given other lines by hand."""
    everything = data.everything
    if not np.isin(frequency_hz.round(9), everything.frequency_hz.round(9)).all():
        return None
    of_test = lines(everything, np.isin(everything.frequency_hz.round(9), frequency_hz.round(9)))
    return pick(of_test, dof_names(test.outputs), dof_names(test.inputs))


def noise_of(result: Result, entry: Entry) -> tuple[float, bool]:
    """Standard deviation of log H of an FRF test, and whether it was estimated from the residual.

    The median over the used lines, if it varies with coherence or leakage.
    """
    test: Any = entry.test
    level = float(np.median(_noise_std(result, entry)[np.asarray(test.weight) > 0.0]))
    return level, not test.noise_known


def _noise_std(result: Result, entry: Entry) -> np.ndarray:
    """Standard deviation of log H [f, o, i]: the estimated one if there is one, else the stated one."""
    record = result.metrics.of(FrfMetrics) or FrfMetrics()
    estimated = (record.noise_log_std or {}).get(entry.name)
    test: Any = entry.test if estimated is None else entry.test.with_noise(estimated)
    return np.asarray(test.noise_std)


def standard_residuals(result: Result, entry: Entry) -> np.ndarray:
    """Standardised residual (log H identified - log H measured) / std [part, f, o, i], part 0 the logarithm of the
    magnitude and part 1 the phase; NaN for unused lines."""
    test: Any = entry.test
    weight = np.asarray(test.weight)
    residual = result.residual(entry.name, entry.role).reshape(2, *weight.shape)
    size = np.asarray(test.noise_std) / _noise_std(result, entry)
    return np.where(weight > 0.0, residual / np.sqrt(np.where(weight > 0.0, weight, 1.0)), np.nan) * size


def residual_figure(result: Result, entry: Entry) -> Figure:
    """Standardised residual of log H against frequency, outputs in rows and inputs in columns.

    Residuals of pure noise scatter about 0 without a pattern, 95 % of them within the band; arrows mark lines beyond
    the axis.
    """
    test: Any = entry.test
    residual, frequency_hz = standard_residuals(result, entry), np.asarray(test.omega) / (2 * np.pi)
    rows, columns = (min(len(points), MOST_POINTS) for points in (test.outputs, test.inputs))
    residual = residual[:, :, :rows, :columns]
    size = np.abs(residual[np.isfinite(residual)])
    largest = float(np.quantile(size, WITHIN)) if size.size else 0.0
    reach = float(np.clip(1.15 * largest, LEAST_REACH, LARGEST_REACH))
    left_in, right_in, bottom_in, top_in, gap_in = 0.6, 0.15, 0.45, 0.75, 0.22
    width = max(left_in + 2.6 * columns + right_in, 4.6)
    height = bottom_in + 1.35 * rows + gap_in * (rows - 1) + top_in
    figure = Figure(figsize=(width, height))
    # Margins are set in inches instead of by a layout engine, as in `frf_figure`.
    edges = {
        "left": left_in / width,
        "right": 1 - right_in / width,
        "bottom": bottom_in / height,
        "top": 1 - top_in / height,
    }
    grid = figure.subplots(
        rows,
        columns,
        sharex=True,
        sharey=True,
        squeeze=False,
        gridspec_kw=edges | {"hspace": gap_in / 1.35, "wspace": 0.06},
    )
    outputs, inputs, shown = dof_names(test.outputs), dof_names(test.inputs), _shown_weight(test)
    for o in range(rows):
        for i, axes in enumerate(grid[o]):
            axes.axhspan(-BAND, BAND, color="0.92", lw=0, zorder=0)
            axes.axhline(0.0, color="0.5", lw=0.6)
            for part, (color, marker) in enumerate(((FITTED, "o"), (INITIAL, "D"))):
                values = residual[part, :, o, i]
                axes.plot(frequency_hz, np.clip(values, -reach, reach), marker, ms=1.6, mew=0.0, color=color)
                for sign, arrow in ((1, "^"), (-1, "v")):
                    beyond = sign * values > reach
                    if beyond.any():
                        axes.plot(
                            frequency_hz[beyond], np.full(beyond.sum(), sign * 0.96 * reach), arrow, ms=3, color=ALERT
                        )
            finite = residual[:, :, o, i][np.isfinite(residual[:, :, o, i])]
            none = "see the reciprocal FRF" if shown[:, o, i].any() else "no usable line"
            text = none if not finite.size else (
                f"RMS {np.sqrt(np.mean(finite**2)):.2g}, {100.0 * np.mean(np.abs(finite) > BAND):.0f} % beyond"
            )  # fmt: skip
            axes.set_title(f"{outputs[o]} / {inputs[i]}: {text}", pad=3, y=1.0, fontsize=7)
            axes.set_ylim(-reach, reach)
    for axes in grid[-1]:
        axes.set_xlabel(f"frequency ({entry.source.frequency_unit})")
    figure.supylabel("residual of log H / std", x=0.12 / width, fontsize=8)
    level, estimated = noise_of(result, entry)
    how = ("estimated" if estimated else "stated") + ("" if np.ptp(test.noise_std) == 0.0 else " (median of the lines)")
    title = _title(entry)
    title = title if len(title) <= LONGEST_TITLE else title[: LONGEST_TITLE - 3] + "..."
    handles: list[Line2D | Patch] = [
        Line2D([], [], ls="", marker="o", ms=3, color=FITTED, label="magnitude"),
        Line2D([], [], ls="", marker="D", ms=3, color=INITIAL, label="phase"),
        Patch(color="0.92", label=f"± {BAND:g} std (normal noise: 5 % beyond)"),
    ]
    figure.legend(
        handles=handles, loc="upper center", ncols=3, title_fontsize=9,
        title=f"{title}: residual; the standard deviation (std) of log H is {level:.2g}, {how}",
    )  # fmt: skip
    return figure
