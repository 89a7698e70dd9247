"""Charts of FRFs and their residuals, of one test and of all tests of a study."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from jaxmb.identify.assess.metrics import TestPrediction
from jaxmb.identify.assess.result import Result
from jaxmb.identify.assess.tests.frf import FrfMetrics
from jaxmb.identify.experiments.frf.frf_test import FrfEntry, FrfSource, FrfTest
from jaxmb.identify.experiments.test import Entry
from jaxmb.measurement.frf_set import FrfSet, select_channels, select_lines
from jaxmb.report.charts import (
    ALERT,
    FITTED,
    INITIAL,
    MEASURED,
    SHADE,
    Axis,
    Cell,
    Cells,
    Chart,
    Colors,
    Line,
    Mark,
    Note,
    Panel,
    Rule,
    Span,
    in_grid,
    single,
    spans_of,
)  # fmt: skip
from jaxmb.report.modes import data_label, frequency_unit
from jaxmb.report.section import number
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


def frf_chart(title: str, responses: Responses, caption: str = "", link: str = "") -> Chart:
    """Magnitude over phase for each output (rows) and input (columns).

    Args:
        title: the finding.
        responses: the FRFs.
        caption: one sentence; by default on the curves.
        link: as in `Chart`.
    """
    outputs, inputs, curves = responses.outputs, responses.inputs, responses.curves
    responses = responses._replace(curves=[c._replace(frf=_without_rounding(c.frf)) for c in curves])
    shaded, shade_label = (None, "") if responses.weight is None else _unlike(responses.weight)
    rows, columns = min(len(outputs), MOST_POINTS), min(len(inputs), MOST_POINTS)
    units = {
        (o, i): responses.unit or unit_in_si(outputs[o], inputs[i], responses.derivatives)
        for o in range(rows)
        for i in range(columns)
    }
    of_all = units[0, 0] if len(set(units.values())) == 1 else ""

    def cell(o: int, i: int) -> Cell:
        unit = "" if of_all else f" ({units[o, i]})"
        note = "" if responses.notes is None else f": {responses.notes[o][i]}"
        shades = [] if shaded is None else list(spans_of(responses.frequency_hz, shaded[:, o, i], shade_label))
        name = f"{' '.join(outputs[o])} / {' '.join(inputs[i])}{unit}{note}"
        return _response_cell(responses, (o, i), name, f"magnitude ({of_all})" if of_all else "magnitude", shades)

    shown = "" if (rows, columns) == (len(outputs), len(inputs)) else (
        f" (first {rows} of {len(outputs)} outputs, first {columns} of {len(inputs)} inputs)"
    )  # fmt: skip
    names = " and ".join(c.label for c in curves)
    caption = caption or f"Magnitude and phase of each FRF, {names}; titles name output / input."
    width = SINGLE if columns == 1 else 2.75 if max(rows, columns) <= 3 else 2.05
    note = f"{KIND[responses.derivatives]}, output / input{shown}"
    grid = [[cell(o, i) for i in range(columns)] for o in range(rows)]
    return Chart(title, caption, grid, width, shared_y=True, shared_x=True, note=note, link=link)


def _response_cell(responses: Responses, at: tuple[int, int], name: str, label: str, shades: list[Span]) -> Cell:
    """Magnitude, phase and coherence of the FRF of output and input `at`; magnitudes of an output have one range."""
    (o, i), frequency_hz, coherence = at, responses.frequency_hz, responses.coherence
    limits = _magnitude_limits([c.frf[:, o, :MOST_POINTS] for c in responses.curves])
    small = 0.75 if max(len(responses.outputs), len(responses.inputs)) > 3 else 1.0
    curves = [c._replace(frf=c.frf[:, o, i]) for c in responses.curves]
    x = Axis(f"frequency ({responses.frequency_unit})", limits=_span(frequency_hz))
    y = Axis(label, ticks=()) if limits is None else Axis(label, log=True, limits=limits)
    phase = Axis("phase (°)", limits=(-HIGHEST_PHASE, HIGHEST_PHASE), ticks=(-180, 0, 180))
    panels = [
        Panel((*shades, *_magnitude(frequency_hz, curves)), x, y, name, 1.6 * small),
        Panel((*shades, *_phase(frequency_hz, curves)), x, phase, height=0.75 * small),
    ]
    if coherence is not None and np.isfinite(coherence).any():
        own = coherence[:, o, i] if coherence.ndim == 3 else coherence[:, o]
        line = Line(frequency_hz, own, "", "#595959", 0.8, marker=_marker(frequency_hz))
        panels.append(Panel((line,), x, Axis("coh.", limits=(-0.05, 1.05), ticks=(0, 1)), height=0.38 * small))
    return tuple(panels)


def _without_rounding(frf: np.ndarray) -> np.ndarray:
    """FRFs [f, o, i], with those at the level of rounding set to zero."""
    size = np.where(np.isfinite(frf), np.abs(frf), 0.0)
    return np.where(size.max(axis=0, initial=0.0) <= ROUNDING * size.max(initial=0.0), 0.0 * frf, frf)


def _magnitude(frequency_hz: np.ndarray, curves: list[Curve]) -> list[Mark]:
    sizes = (np.where(c.frf == 0.0, np.nan, np.abs(c.frf)) for c in curves)
    marks: list[Mark] = _lines([(frequency_hz, size) for size in sizes], curves)
    finite = np.isfinite(curves[0].frf).any()
    if not (finite and any(np.nan_to_num(curve.frf).any() for curve in curves)):
        marks.append(Note("zero" if finite else "no usable line", 0.5, 0.5, "#666666", inside=True))
    return marks


def _phase(frequency_hz: np.ndarray, curves: list[Curve]) -> list[Mark]:
    seen = (np.isfinite(c.frf) & (c.frf != 0.0) for c in curves)
    first, *others = (np.where(s, np.angle(c.frf, deg=True), np.nan) for s, c in zip(seen, curves, strict=True))
    first = continuous_deg(first)
    angles = [first, *(continuous_deg(angle, first) for angle in others)]
    return _lines([unbroken(frequency_hz, angle) for angle in angles], curves)


def _lines(points: Iterable[tuple[np.ndarray, np.ndarray]], curves: Sequence[Curve]) -> list[Mark]:
    """Lines through points (x, y) in the looks of the curves."""
    pairs = zip(points, curves, strict=True)
    return [Line(x, y, c.label, c.color, c.width, c.dashes, _marker(x)) for (x, y), c in pairs]


def _marker(frequency_hz: np.ndarray) -> str:
    """A marker for a single line, which has no curve."""
    return "o" if frequency_hz.size == 1 else ""


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


SINGLE = 3.6
"""Width of the panels of one column, inches: of the texts above them."""
BAND = 2.0
"""Half width of the 95 % band of pure noise, standard deviations."""
WITHIN = 0.98
"""Share of the residuals within the axis."""
LEAST_REACH, LARGEST_REACH = 4.0, 60.0
"""Smallest and largest half range of the axis of residuals, standard deviations; points beyond are marked."""


def frf_test_chart(result: Result, entry: FrfEntry, link: str = "") -> Chart:
    """Measured, initial and identified FRFs of a test; lines of higher or lower weight than most are shaded.

    Where processed FRFs were fitted, the measured ones are drawn as well, and their coherence below where it is known.
    The legend says "simulated" for simulated data, and "predicted" for the identified FRFs of a held-out test.

    Args:
        result: the identification.
        entry: the test.
        link: as in `Chart`.
    """
    test = entry.test
    data = entry.source
    measured, weight = _shown(test)
    free = result.study.free
    initial = free.apply(result.study.model, np.array([result.parameters[name].initial for name in free.names]))
    before, after = (np.asarray(test.predict(test.view(model))) for model in (initial, result.model))
    frequency_hz = np.asarray(test.omega) / (2 * np.pi)
    raw = _as_measured(data, test, frequency_hz)
    given = data_label(entry)
    curves = [Curve(data.treatment or given, np.where(weight > 0.0, measured, np.nan), MEASURED, 3.2, "-")]
    if data.treatment and raw is not None:
        window = ", exponential window" if raw.decay_1_s > 0.0 and data.fitted.decay_1_s == 0.0 else ""
        curves.append(Curve(f"as {given}{window}", raw.frf, "#595959", 0.7, "-"))
    word = "predicted" if entry.role == "check" else "fitted"
    curves += [Curve("initial", before, INITIAL, 1.1, ":"), Curve(word, after, FITTED, 1.0, "--")]
    responses = Responses(
        frequency_hz, curves, test.outputs, test.inputs, test.derivatives, weight,
        coherence=None if raw is None else raw.coherence, frequency_unit=data.frequency_unit,
    )  # fmt: skip
    shaded = "; shaded lines have another weight" if _unlike(weight)[1] else ""
    return frf_chart(
        f"{_title(entry)}: {_agreement(result, entry, word, given)}",
        responses,
        f"Magnitude and phase of each FRF: {given}, of the initial and of the {word} machine; titles name output"
        f" / input{shaded}.",
        link,
    )


def score_of(result: Result, entry: Entry) -> TestPrediction | None:
    """Prediction scores of a test; None without any."""
    verdict = result.metrics.holdout if entry.role == "check" else result.metrics.fit
    return None if verdict is None else verdict.tests.get(entry.name)


def _agreement(result: Result, entry: FrfEntry, word: str, given: str) -> str:
    """Clause on the error of the FRFs of a test."""
    score = score_of(result, entry)
    if score is None or score.log_error is None:
        return f"{given} and {word} FRFs"
    factor = np.expm1(score.log_error)
    if factor < 1e-9:
        return f"{word} FRFs equal the {given} ones within rounding"
    size = f"{number(100.0 * factor, 2)} %" if factor < 1.0 else f"a factor of {number(1.0 + factor, 2)}"
    return f"{word} FRFs differ from the {given} ones by {size} (RMS)"


def _shown(test: FrfTest) -> tuple[np.ndarray, np.ndarray]:
    """FRFs and weights [f, o, i] as drawn: both of a reciprocal pair are equal, with half of its weight each."""
    measured, weight = np.array(test.measured), np.array(test.weight)
    outputs, inputs = list(test.outputs), list(test.inputs)
    for o, i in np.argwhere(~weight.any(axis=0)):
        if outputs[o] in inputs and inputs[i] in outputs:
            one, other = (slice(None), o, i), (slice(None), outputs.index(inputs[i]), inputs.index(outputs[o]))
            weight[one] = weight[other] = weight[other] / 2.0
            measured[one] = measured[other]
    return measured, weight


def _as_measured(data: FrfSource, test: FrfTest, frequency_hz: np.ndarray) -> FrfSet | None:
    """Measured FRFs at the points and lines of a test; None if the study specifies other lines."""
    measured = data.measured
    if not np.isin(frequency_hz.round(9), measured.frequency_hz.round(9)).all():
        return None
    of_test = select_lines(measured, np.isin(measured.frequency_hz.round(9), frequency_hz.round(9)))
    return select_channels(of_test, dof_names(test.outputs), dof_names(test.inputs))


def _at_level(result: Result, entry: FrfEntry) -> FrfTest:
    """A test with the estimated noise if there is one, else with the stated one."""
    record = result.metrics.of(FrfMetrics) or FrfMetrics()
    estimated = (record.noise_log_std or {}).get(entry.name)
    return entry.test if estimated is None else entry.test.noise.with_level(estimated)


def standard_residuals(result: Result, entry: FrfEntry) -> np.ndarray:
    """Standardised residual (log H identified - log H measured) / std [part, f, o, i], part 0 the logarithm of the
    magnitude and part 1 the phase; NaN for unused lines."""
    test = entry.test
    weight = np.asarray(test.weight)
    residual = result.residual(entry.name, entry.role).reshape(2, *weight.shape)
    size = np.asarray(test.noise_std) / np.asarray(_at_level(result, entry).noise_std)
    return np.where(weight > 0.0, residual / np.sqrt(np.where(weight > 0.0, weight, 1.0)), np.nan) * size


def residual_chart(result: Result, entry: FrfEntry, link: str = "") -> Chart:
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
    outputs, inputs, shown = dof_names(test.outputs), dof_names(test.inputs), _shown(test)[1]
    x = Axis(f"frequency ({entry.source.frequency_unit})", limits=_span(frequency_hz))
    y = Axis("residual / std", limits=(-reach, reach))

    def cell(o: int, i: int) -> Cell:
        own = residual[:, :, o, i]
        none = "see the reciprocal FRF" if shown[:, o, i].any() else "no usable line"
        title = f"{outputs[o]} / {inputs[i]}: {_scatter(own) or none}"
        return (Panel(_residual_marks(frequency_hz, own, reach), x, y, title, 1.25),)

    grid = [[cell(o, i) for i in range(columns)] for o in range(rows)]
    rms = f"RMS {np.sqrt(np.mean(size**2)):.2g}" if size.size else "none"
    caption = (
        "Difference of log H between model and data over its standard deviation: pure noise scatters without a pattern,"
        f" 5 % of it beyond the band of ± {BAND:g}; triangles are beyond the axis."
    )
    title, note = f"{_title(entry)}: residual over noise, {rms}", _noise_text(_at_level(result, entry))
    width = SINGLE if columns == 1 else 2.6
    return Chart(title, caption, grid, width, shared_y=True, shared_x=True, note=note, link=link)


def _noise_text(test: FrfTest) -> str:
    """Sentence on the standard deviation of log H, and on its parts that vary from line to line."""
    origin = "stated" if test.noise.is_known else "estimated"
    text = f"standard deviation (std) of log H: {test.noise.nominal:.2g}, {origin}"
    leak, known = np.asarray(test.leak), np.asarray(test.known_std)
    # the largest response of a line has no leakage
    parts = {"leakage between directions": leak.any(), "coherence": known[leak == 0.0].any()}
    if not any(parts.values()):
        return text
    median = float(np.median(np.asarray(test.noise_std)[np.asarray(test.weight) > 0.0]))
    return f"{text}; with {' and '.join(name for name, has in parts.items() if has)} {median:.2g}, median of all lines"


def _scatter(residual: np.ndarray) -> str:
    """Clause on the size of residuals; empty without any."""
    finite = residual[np.isfinite(residual)]
    if not finite.size:
        return ""
    return f"RMS {np.sqrt(np.mean(finite**2)):.2g}, {100.0 * np.mean(np.abs(finite) > BAND):.0f} % beyond"


def _residual_marks(frequency_hz: np.ndarray, residual: np.ndarray, reach: float) -> list[Mark]:
    marks: list[Mark] = [Span(-BAND, BAND, "y", f"± {BAND:g} std (normal noise: 5 % beyond)", SHADE), Rule(0.0)]
    for values, label, color, marker in zip(residual, ("magnitude", "phase"), (FITTED, INITIAL), "oD", strict=True):
        clipped = np.where(np.abs(values) <= reach, values, np.nan)
        marks.append(Line(frequency_hz, clipped, label, color, 0.0, "", marker, 1.6))
        for sign, arrow in ((1, "^"), (-1, "v")):
            at = frequency_hz[sign * values > reach]
            if at.size:
                y = np.full(at.size, sign * 0.96 * reach)
                marks.append(Line(at, y, "beyond the axis", ALERT, 0.0, "", arrow, 3.0))
    return marks


COLUMNS = 3
LONGEST_NAME = 30
MOST_NAMES = 40
BINS = 200
"""Largest number of cells along frequency in the map of residuals."""


def frf_overview(result: Result, entries: Sequence[FrfEntry], note: str) -> Chart:
    """Root of the sum of squares of all FRFs of each test, measured and identified.

    Only lines used in every FRF of a test are drawn; `note` names the selection of tests in the title.
    """
    given = " or ".join(sorted({data_label(entry) for entry in entries}))

    def cell(entry: FrfEntry) -> Cell:
        test = entry.test
        frequency_hz, weight = np.asarray(test.omega) / (2.0 * np.pi), np.asarray(test.weight) > 0.0
        used = weight[:, weight.any(axis=0)].all(axis=1)
        both = np.stack([np.asarray(test.measured), result.predicted(entry.name, entry.role)])
        sizes = np.sqrt(np.sum(np.where(weight, np.abs(both), 0.0) ** 2, axis=(2, 3)))
        measured, identified = np.where(used, sizes, np.nan)
        marks = (
            Line(frequency_hz, measured, given, MEASURED, 2.6),
            Line(frequency_hz, identified, "identified", FITTED, 1.0, "--"),
        )
        units = {unit_in_si(o, i, test.derivatives) for o in test.outputs for i in test.inputs}
        y = Axis(f"magnitude ({units.pop()})" if len(units) == 1 else "magnitude, SI units", log=True)
        x = Axis(f"frequency ({entry.source.frequency_unit})", limits=_span(frequency_hz))
        return (Panel(marks, x, y, _title(entry, LONGEST_NAME), 1.1),)

    scores = (result.metrics.fit, result.metrics.holdout)
    errors = [s.log_error for s in scores if s is not None and s.log_error is not None]
    error = f"error of log H {number(max(errors), 2)}" if errors else "agreement of the FRFs"
    return Chart(
        f"{result.study.name}: {error} over all tests{note}",
        "Root of the sum of squares of all FRFs of each test.",
        in_grid([cell(entry) for entry in entries], COLUMNS),
        2.1,
    )


def _title(entry: Entry, most: int | None = None) -> str:
    """Name of a test, at most its first `most` characters, and its role."""
    return f"{entry.name[:most]}{', held out' if entry.role == 'check' else ''}"


def residual_overview(result: Result, entries: Sequence[FrfEntry]) -> Chart:
    """Root mean square of the standardised residual of log H of each test against frequency."""
    spans = [np.asarray(entry.test.omega) / (2.0 * np.pi) for entry in entries]
    low, high = min(s[0] for s in spans), max(s[-1] for s in spans)
    finest = min((float(np.median(np.diff(s))) for s in spans if s.size > 1), default=1.0)
    edges = np.linspace(low - finest / 2.0, high + finest / 2.0, min(int((high - low) / finest) + 2, BINS + 1))
    squares = np.full((len(entries), edges.size - 1), np.nan)
    for row, (entry, frequency_hz) in enumerate(zip(entries, spans, strict=True)):
        residual = standard_residuals(result, entry)
        bins = np.clip(np.digitize(frequency_hz, edges) - 1, 0, edges.size - 2)
        for k in np.unique(bins[np.isfinite(residual).any(axis=(0, 2, 3))]):
            squares[row, k] = np.nanmean(residual[:, bins == k] ** 2)
    worst = int(np.nanargmax(np.nanmean(squares, axis=1)))
    names = [_title(entry, LONGEST_NAME) for entry in entries] if len(entries) <= MOST_NAMES else []
    colors = Colors("RdBu_r", (0.1, 10.0), "RMS residual / noise", log=True)
    mark = Cells(edges, np.arange(len(entries) + 1) - 0.5, np.sqrt(squares), colors)
    x = Axis(f"frequency ({frequency_unit(entries)})", limits=(float(edges[0]), float(edges[-1])))
    y = Axis("", limits=(len(entries) - 0.5, -0.5), ticks=range(len(names)), names=names)
    size = f"{np.sqrt(np.nanmean(squares[worst])):.2g} times the noise"
    return single(
        Panel((mark,), x, y, height=0.26 * min(len(entries), MOST_NAMES) + 0.3),
        f"{result.study.name}: largest residual of log H in test {entries[worst].name[:LONGEST_NAME]}, {size}",
        "RMS residual of log H over the standard deviation of the noise: 1 is noise alone, red is a misfit.",
        5.2,
    )
