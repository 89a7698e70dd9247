"""One figure of the FRFs and one of the residuals of all tests of a study."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullFormatter

from jaxmb.identify.assess.result import Result, initial_model
from jaxmb.identify.assess.tests.frf import FrfMetrics
from jaxmb.identify.experiments.frf.frf_test import FrfEntry, FrfSource, FrfTest
from jaxmb.measurement.frf_set import FrfSet, select_channels, select_lines
from jaxmb.report.modes import data_label
from jaxmb.report.style import ALERT, FITTED, INITIAL, MEASURED, PowersOfTen, logarithmic_ticks
from jaxmb.response.frf_kind import DERIVATIVES, dof_names, turns

FARTHEST = 270.0
"""Largest distance of an unwrapped phase from the middle of the axis before it is wrapped by 360 degrees, degrees."""


def continuous_deg(angle: np.ndarray, beside: np.ndarray | None = None) -> np.ndarray:
    """Unwrapped phase [f], deg; NaN stays NaN.

    Each value is the closest to the preceding one modulo 360 degrees, so that noise about 180 degrees causes no jumps.
    The phase is wrapped where it differs by more than `FARTHEST` from the middle of the axis or from a reference curve.
    Without a reference the initial turn is the one with the fewest wraps.

    Args:
        angle: phase [f] in -180 to 180.
        beside: drawn phase [f] of the curve to compare with; 0 is used where it is not finite.
    """
    finite = np.flatnonzero(np.isfinite(angle))
    continuous = np.array(angle, dtype=float)
    if not finite.size:
        return continuous
    middle = np.zeros(angle.size) if beside is None else np.where(np.isfinite(beside), beside, 0.0)
    first = float(angle[finite[0]])
    if beside is not None:
        starts = [_near(first, float(middle[finite[0]]))]
    else:
        starts = [start for start in (first, first - 360.0, first + 360.0) if abs(start) <= FARTHEST]
    paths = [_unwrap(angle[finite], middle[finite], start) for start in starts]
    continuous[finite] = min(paths, key=lambda path: int(np.sum(np.abs(np.diff(path)) > 180.0)))
    return continuous


def _unwrap(angle: np.ndarray, middle: np.ndarray, start: float) -> np.ndarray:
    path, last = np.empty(angle.size), start
    for k, value in enumerate(angle):
        phase = _near(float(value), last)
        if abs(phase - middle[k]) > FARTHEST:
            phase = _near(phase, middle[k])
        path[k] = last = phase
    return path


def _near(angle: float, other: float) -> float:
    """The angle equal to the first modulo 360 degrees that is closest to the other."""
    return angle + 360.0 * round((other - angle) / 360.0)


def unbroken(x: np.ndarray, angle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Curve of an unwrapped angle [deg], interrupted at its wraps."""
    jumps = np.flatnonzero(np.abs(np.diff(angle)) > 180.0) + 1
    return np.insert(x, jumps, x[jumps]), np.insert(angle, jumps, np.nan)


MOST_POINTS = 6
"""Largest number of outputs and of inputs in a figure."""
MOST_DECADES = 8
LONGEST_TITLE = 40
"""Characters of a title that fit a narrow figure; a wide one fits `LETTERS_PER_INCH`."""
LETTERS_PER_INCH = 13
ROUNDING = 1e-13
"""Magnitude relative to the largest of the set up to which an FRF is zero to rounding."""
HIGHEST_PHASE = 285.0
"""End of the phase axis, degrees: a continuous phase may pass 180 and reach 270."""
KIND = {count: kind for kind, count in DERIVATIVES.items()}


class Curve(NamedTuple):
    """One line of every panel."""

    label: str
    frf: np.ndarray
    """[f, o, i]; entries that are not finite are not drawn."""
    color: str
    width: float
    dashes: str


class Responses(NamedTuple):
    """FRFs of a figure: curves over the same lines, outputs and inputs."""

    frequency_hz: np.ndarray
    """Lines [f], Hz."""
    curves: list[Curve]
    """The first one sets the range of each row."""
    outputs: Sequence[Sequence[str]]
    """(frame, direction) or one name each; the first `MOST_POINTS` are shown."""
    inputs: Sequence[Sequence[str]]
    derivatives: int
    """0 receptance, 1 mobility, 2 accelerance."""
    weight: np.ndarray | None = None
    """Of every line [f, o, i]; lines above the smallest weight are shaded or, if these are the majority, lines below
    the median weight."""
    unit: str | None = None
    """Of all FRFs; default: SI unit of the kind and the directions."""
    notes: Sequence[Sequence[str]] | None = None
    """Text after the name of each panel [output][input]."""
    coherence: np.ndarray | None = None
    """Of every line [f, o, i], or multiple coherence [f, o]; drawn below the phase."""
    frequency_unit: str = "Hz"


def frf_figure(title: str, responses: Responses) -> Figure:
    """Magnitude over phase for each output (rows) and input (columns)."""
    outputs, inputs, coherence = responses.outputs, responses.inputs, responses.coherence
    if coherence is not None and coherence.ndim == 2:
        coherence = np.repeat(coherence[:, :, None], len(inputs), axis=2)
    if coherence is not None and not np.isfinite(coherence).any():
        coherence = None
    curves = [c._replace(frf=_without_rounding(c.frf)) for c in responses.curves]
    responses = responses._replace(curves=curves, coherence=coherence)
    rows, columns = min(len(outputs), MOST_POINTS), min(len(inputs), MOST_POINTS)
    cell = (3.0, 2.75) if max(rows, columns) <= 3 else (2.3, 2.3)
    if coherence is not None:
        cell = cell[0], cell[1] + 0.45
    # Margins are set in inches: a layout engine takes seconds for so many axes.
    shaded, shade_label = (None, "") if responses.weight is None else _unlike(responses.weight)
    entries = len(curves) + bool(shade_label)
    across = 4 if columns > 1 else 3 if entries == 3 else 2  # columns of the legend
    left, right, bottom, top = 0.75, 0.15, 0.45, 0.6 + 0.15 * -(-entries // across)
    width, height = left + right + cell[0] * columns, top + bottom + cell[1] * rows
    width = max(width, 4.6)
    figure = Figure(figsize=(width, height))
    grid = figure.add_gridspec(
        rows, columns, left=left / width, right=1 - right / width, bottom=bottom / height, top=1 - top / height,
        hspace=0.17, wspace=0.1,
    )  # fmt: skip
    for o in range(rows):
        limits = _magnitude_limits([c.frf[:, o, :columns] for c in curves])
        for i in range(columns):
            _draw_response(figure, grid, (o, i), responses, limits, shaded)
    shown = "" if (rows, columns) == (len(outputs), len(inputs)) else (
        f" (first {rows} of {len(outputs)} outputs, first {columns} of {len(inputs)} inputs)"
    )  # fmt: skip
    what = f": {KIND[responses.derivatives]}, output / input{shown}"
    room = max(LONGEST_TITLE, int(LETTERS_PER_INCH * (width - left - right)) - len(what))
    title = title if len(title) <= room else title[: room - 3] + "..."
    figure.text(left / width, 1 - 0.12 / height, f"{title}{what}", va="top", fontsize=9)
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=c.color, lw=c.width, ls=c.dashes, label=c.label) for c in curves
    ]
    if shade_label:
        handles.append(Patch(color="0.93", label=shade_label))
    by_rows = [
        handle for column in range(across) for handle in handles[column::across]
    ]  # a legend is filled by columns
    figure.legend(
        handles=by_rows, loc="upper left", bbox_to_anchor=(left / width, 1 - 0.27 / height), ncols=across,
        borderpad=0.0, borderaxespad=0.0, columnspacing=1.5,
    )  # fmt: skip
    return figure


def _draw_response(
    figure: Figure,
    grid: GridSpec,
    at: tuple[int, int],
    responses: Responses,
    limits: tuple[float, float] | None,
    shaded: np.ndarray | None,
) -> None:
    """Draw the FRF of output and input `at` in its cell of the grid."""
    (o, i), (rows, columns) = at, grid.get_geometry()
    frequency_hz, coherence, unit = responses.frequency_hz, responses.coherence, responses.unit
    ratios = (2.1, 1.0) if coherence is None else (2.1, 1.0, 0.5)
    inner = grid[o, i].subgridspec(len(ratios), 1, height_ratios=ratios, hspace=0.07)
    panels = [figure.add_subplot(inner[k]) for k in range(len(ratios))]
    magnitude, phase = panels[:2]
    curves = [c._replace(frf=c.frf[:, o, i]) for c in responses.curves]
    _magnitude(magnitude, frequency_hz, curves, limits)
    _phase(phase, frequency_hz, curves)
    units = {
        (r, c): unit or unit_in_si(responses.outputs[r], responses.inputs[c], responses.derivatives)
        for r in range(rows)
        for c in range(columns)
    }
    same_unit = len(set(units.values())) == 1
    heading = f"{' '.join(responses.outputs[o])} / {' '.join(responses.inputs[i])}"
    heading += "" if same_unit else f" ({units[at]})"
    magnitude.set_title(heading if responses.notes is None else f"{heading}: {responses.notes[o][i]}", pad=3, y=1.0)
    if coherence is not None:
        _coherence(panels[2], frequency_hz, coherence[:, o, i])
    if shaded is not None:
        _shade(magnitude, phase, frequency_hz, shaded[:, o, i])
    for axes in panels:
        axes.set_xlim(*_span(frequency_hz))
        axes.tick_params(labelleft=i == 0, labelbottom=o == rows - 1 and axes is panels[-1])
    if o == rows - 1:
        panels[-1].set_xlabel(f"frequency ({responses.frequency_unit})")
    if i == 0:
        if coherence is not None:
            panels[2].set_ylabel("coh.")
        magnitude.set_ylabel(f"magnitude ({units[at]})" if same_unit else "magnitude")
        phase.set_ylabel("phase (°)")
        figure.align_ylabels(panels)


def predicted_figure(
    title: str, frequency_hz: np.ndarray, frf: np.ndarray, points: tuple[Sequence[str], ...], derivatives: int
) -> Figure:
    """Predicted FRFs [f, point, point] of a machine."""
    curves = [Curve("predicted", frf, FITTED, 1.0, "-")]
    return frf_figure(title, Responses(frequency_hz, curves, points, points, derivatives))


def _without_rounding(frf: np.ndarray) -> np.ndarray:
    """FRFs [f, o, i], with those at the level of rounding set to zero."""
    size = np.where(np.isfinite(frf), np.abs(frf), 0.0)
    return np.where(size.max(axis=0, initial=0.0) <= ROUNDING * size.max(initial=0.0), 0.0 * frf, frf)


def _magnitude(axes: Axes, frequency_hz: np.ndarray, curves: list[Curve], limits: tuple[float, float] | None) -> None:
    for curve in curves:
        size = np.abs(curve.frf)
        seen = np.where(np.isfinite(size) & (size > 0.0), size, np.nan)
        axes.semilogy(
            frequency_hz, seen, color=curve.color, lw=curve.width, ls=curve.dashes, marker=_marker(frequency_hz)
        )
    finite = np.isfinite(curves[0].frf).any()
    if not (finite and any(np.nan_to_num(curve.frf).any() for curve in curves)):
        text = "zero" if finite else "no usable line"
        axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color="0.4")
    if limits is None:
        axes.set_yticks([])
        axes.set_yticks([], minor=True)
        return
    axes.set_ylim(*limits)
    axes.yaxis.set_major_locator(LogLocator(numticks=6))
    axes.yaxis.set_minor_locator(LogLocator(subs=(1.0,), numticks=20))
    axes.yaxis.set_major_formatter(PowersOfTen())
    axes.yaxis.set_minor_formatter(NullFormatter())


def _phase(axes: Axes, frequency_hz: np.ndarray, curves: list[Curve]) -> None:
    first = None
    for curve in curves:
        seen = np.isfinite(curve.frf) & (curve.frf != 0.0)
        angle = continuous_deg(np.where(seen, np.degrees(np.angle(np.where(seen, curve.frf, 1.0))), np.nan), first)
        first = angle if first is None else first
        x, y = unbroken(frequency_hz, angle)
        axes.plot(x, y, color=curve.color, lw=curve.width, ls=curve.dashes, marker=_marker(frequency_hz))
    axes.set_ylim(-HIGHEST_PHASE, HIGHEST_PHASE)
    axes.set_yticks([-180, 0, 180])


def _coherence(axes: Axes, frequency_hz: np.ndarray, coherence: np.ndarray) -> None:
    axes.plot(frequency_hz, coherence, color="0.35", lw=0.8, marker=_marker(frequency_hz))
    axes.set_ylim(-0.05, 1.05)
    axes.set_yticks([0, 1])


def _marker(frequency_hz: np.ndarray) -> str:
    """A marker for a single line, which has no curve."""
    return "o" if frequency_hz.size == 1 else "none"


def _shade(magnitude: Axes, phase: Axes, frequency_hz: np.ndarray, shaded: np.ndarray) -> None:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], shaded, [False]]).astype(int)))
    middle = np.concatenate([frequency_hz[:1], 0.5 * (frequency_hz[1:] + frequency_hz[:-1]), frequency_hz[-1:]])
    for first, end in zip(edges[::2], edges[1::2], strict=True):
        for axes in (magnitude, phase):
            axes.axvspan(float(middle[first]), float(middle[end]), color="0.93", lw=0, zorder=0)


def _unlike(weight: np.ndarray) -> tuple[np.ndarray, str]:
    """Mask [f, o, i] of the used lines whose weight differs from that of most, and its label; "" without any."""
    used = weight > 0.0
    if not used.any():
        return used, ""
    raised = used & (weight > 1.001 * weight[used].min())
    if 2 * raised.sum() <= used.sum():
        return raised, "lines of higher weight" if raised.any() else ""
    # Shading the higher weights would shade most lines.
    return used & (weight < 0.999 * np.median(weight[used])), "lines of lower weight"


def _magnitude_limits(sets: list[np.ndarray]) -> tuple[float, float] | None:
    """Range of the first set, slightly widened for the others; None where all are zero."""

    def finite(frf: np.ndarray) -> np.ndarray:
        size = np.abs(frf[np.isfinite(frf)])
        return size[size > 0.0]

    own, every = finite(sets[0]), np.concatenate([finite(s) for s in sets])
    if every.size == 0:
        return None
    own = own if own.size else every
    high = min(every.max(), 10.0 * own.max())
    low = max(min(own.min(), every.min()), 0.3 * own.min(), high / 10.0**MOST_DECADES)
    margin = max(1.6, float(np.sqrt(10.0 * low / high)))  # a power of ten is within
    return low / margin, high * margin


def _span(frequency_hz: np.ndarray) -> tuple[float, float]:
    first, last = float(frequency_hz[0]), float(frequency_hz[-1])
    return (first, last) if last > first else (first - 1.0, first + 1.0)


def unit_in_si(output: Sequence[str], force: Sequence[str], derivatives: int) -> str:
    """SI unit of one FRF."""
    response = "rad" if turns(output[1]) else "m"
    load = "N m" if turns(force[1]) else "N"
    per = ["", "/s", "/s²"][derivatives]
    return f"{response}{per}/{load}" if load == "N" else f"{response}{per}/({load})"


BAND = 2.0
"""Half width of the 95 % band of pure noise, standard deviations."""
WITHIN = 0.98
"""Share of the residuals within the axis."""
LEAST_REACH, LARGEST_REACH = 4.0, 60.0
"""Smallest and largest half range of the axis of residuals, standard deviations; points beyond are marked."""


def frf_test_figure(result: Result, entry: FrfEntry) -> Figure:
    """Measured, initial and identified FRFs of a test; lines of higher or lower weight than most are shaded.

    Where processed FRFs were fitted, the measured ones are drawn as well, and their coherence below where it is known.
    The legend says "simulated" for simulated data, and "predicted" for the identified FRFs of a held-out test.
    """
    test = entry.test
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
    responses = Responses(
        frequency_hz, curves, test.outputs, test.inputs, test.derivatives, weight,
        coherence=None if raw is None else raw.coherence, frequency_unit=data.frequency_unit,
    )  # fmt: skip
    return frf_figure(_title(entry), responses)


def _shown_weight(test: FrfTest) -> np.ndarray:
    """Weights [f, o, i] as drawn: the weight of a reciprocal pair is divided equally between the two FRFs."""
    weight = np.asarray(test.weight).copy()
    outputs, inputs = list(test.outputs), list(test.inputs)
    for o, i in np.argwhere(~weight.any(axis=0)):
        if outputs[o] in inputs and inputs[i] in outputs:
            one, other = (slice(None), o, i), (slice(None), outputs.index(inputs[i]), inputs.index(outputs[o]))
            weight[one] = weight[other] = weight[other] / 2.0
    return weight


def _title(entry: FrfEntry) -> str:
    return f"{entry.name}, held out" if entry.role == "check" else entry.name


def _as_measured(data: FrfSource, test: FrfTest, frequency_hz: np.ndarray) -> FrfSet | None:
    """Measured FRFs at the points and lines of a test; None if the study specifies other lines."""
    everything = data.everything
    if not np.isin(frequency_hz.round(9), everything.frequency_hz.round(9)).all():
        return None
    of_test = select_lines(everything, np.isin(everything.frequency_hz.round(9), frequency_hz.round(9)))
    return select_channels(of_test, dof_names(test.outputs), dof_names(test.inputs))


def noise_of(result: Result, entry: FrfEntry) -> tuple[float, bool]:
    """Standard deviation of log H of an FRF test, and whether it was estimated from the residual.

    The median over the used lines, if it varies with coherence or leakage.
    """
    test = entry.test
    level = float(np.median(_noise_std(result, entry)[np.asarray(test.weight) > 0.0]))
    return level, not test.noise.is_known


def _noise_std(result: Result, entry: FrfEntry) -> np.ndarray:
    """Standard deviation of log H [f, o, i]: the estimated one if there is one, else the stated one."""
    record = result.metrics.of(FrfMetrics) or FrfMetrics()
    estimated = (record.noise_log_std or {}).get(entry.name)
    test = entry.test if estimated is None else entry.test.noise.with_nominal(estimated)
    return np.asarray(test.noise_std)


def standard_residuals(result: Result, entry: FrfEntry) -> np.ndarray:
    """Standardised residual (log H identified - log H measured) / std [part, f, o, i], part 0 the logarithm of the
    magnitude and part 1 the phase; NaN for unused lines."""
    test = entry.test
    weight = np.asarray(test.weight)
    residual = result.residual(entry.name, entry.role).reshape(2, *weight.shape)
    size = np.asarray(test.noise_std) / _noise_std(result, entry)
    return np.where(weight > 0.0, residual / np.sqrt(np.where(weight > 0.0, weight, 1.0)), np.nan) * size


def residual_figure(result: Result, entry: FrfEntry) -> Figure:
    """Standardised residual of log H against frequency, outputs in rows and inputs in columns.

    Residuals of pure noise scatter about 0 without a pattern, 95 % of them within the band; arrows mark lines beyond
    the axis.
    """
    test = entry.test
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


COLUMNS = 3
LONGEST_NAME = 30
MOST_NAMES = 40
BINS = 200
"""Largest number of cells along frequency in the map of residuals."""


def frf_overview(result: Result, entries: Sequence[FrfEntry], note: str) -> Figure:
    """Root of the sum of squares of all FRFs of each test, measured and identified.

    Only lines used in every FRF of a test are drawn; `note` names the selection of tests in the title.
    """
    rows = -(-len(entries) // COLUMNS)
    figure = Figure(figsize=(8.4, 0.8 + 1.6 * rows), layout="constrained")
    grid = figure.subplots(rows, COLUMNS, squeeze=False)
    for axes, entry in zip(grid.ravel(), entries, strict=False):
        test = entry.test
        frequency_hz, weight = np.asarray(test.omega) / (2.0 * np.pi), np.asarray(test.weight) > 0.0
        used = weight[:, weight.any(axis=0)].all(axis=1)
        for frf, color, width, dashes in (
            (np.asarray(test.measured), MEASURED, 2.6, "-"),
            (result.predicted(entry.name, entry.role), FITTED, 1.0, "--"),
        ):
            size = np.sqrt(np.sum(np.where(weight, np.abs(frf), 0.0) ** 2, axis=(1, 2)))
            axes.semilogy(frequency_hz, np.where(used, size, np.nan), color=color, lw=width, ls=dashes)
        logarithmic_ticks(axes.yaxis)
        held_out = ", held out" if entry.role == "check" else ""
        axes.set_title(f"{entry.name[:LONGEST_NAME]}{held_out}", loc="left")
        axes.margins(x=0.0)
        units = {unit_in_si(o, i, test.derivatives) for o in test.outputs for i in test.inputs}
        axes.set_ylabel(f"magnitude ({units.pop()})" if len(units) == 1 else "magnitude, SI units", fontsize=7)
    for axes in grid.ravel()[len(entries) :]:
        axes.set_visible(False)
    for column in range(COLUMNS):
        grid[(len(entries) - 1 - column) // COLUMNS, column].set_xlabel("frequency (Hz)")
    handles = [*grid[0, 0].lines]
    labels = sorted({data_label(entry) for entry in entries})
    figure.legend(
        handles, [" or ".join(labels), "identified"], loc="outside upper center", ncols=2, title_fontsize=9,
        title=f"{result.study.name}: root of the sum of squares of all FRFs of each test{note}",
    )  # fmt: skip
    return figure


def residual_overview(result: Result, entries: Sequence[FrfEntry]) -> Figure:
    """Root mean square of the standardised residual of log H of each test against frequency."""
    spans = [np.asarray(entry.test.omega) / (2.0 * np.pi) for entry in entries]  # pyright: ignore[reportAttributeAccessIssue]
    low, high = min(s[0] for s in spans), max(s[-1] for s in spans)
    finest = min((float(np.median(np.diff(s))) for s in spans if s.size > 1), default=1.0)
    edges = np.linspace(low - finest / 2.0, high + finest / 2.0, min(int((high - low) / finest) + 2, BINS + 1))
    squares = np.full((len(entries), edges.size - 1), np.nan)
    for row, (entry, frequency_hz) in enumerate(zip(entries, spans, strict=True)):
        residual = standard_residuals(result, entry)
        bins = np.clip(np.digitize(frequency_hz, edges) - 1, 0, edges.size - 2)
        for k in np.unique(bins):
            inside = residual[:, bins == k]
            if np.isfinite(inside).any():
                squares[row, k] = np.nanmean(inside**2)
    figure = Figure(figsize=(8.4, 1.1 + 0.26 * min(len(entries), MOST_NAMES)), layout="constrained")
    axes = figure.add_subplot()
    image = axes.pcolormesh(
        edges, np.arange(len(entries) + 1) - 0.5, np.sqrt(squares), cmap="RdBu_r", norm=LogNorm(0.1, 10.0)
    )
    names = [f"{e.name[:LONGEST_NAME]}{', held out' if e.role == 'check' else ''}" for e in entries]
    if len(names) <= MOST_NAMES:
        axes.set_yticks(range(len(entries)), names)
    axes.set_ylim(len(entries) - 0.5, -0.5)
    axes.grid(False)
    axes.set_xlabel("frequency (Hz)")
    axes.set_title(f"{result.study.name}: RMS residual of log H / standard deviation of the noise", loc="left")
    figure.colorbar(image, ax=axes, extend="both", ticks=[0.1, 1.0, 10.0], format="%g")
    return figure
