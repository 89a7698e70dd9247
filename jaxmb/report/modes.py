"""Modes in a report: frequencies, damping and MAC of measured and identified modes."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import jax
import numpy as np

from jaxmb.identify.assess.metrics import TrueMode
from jaxmb.identify.assess.modal_agreement import ModePair, UnpairedMode, modal_agreement
from jaxmb.identify.assess.result import Result
from jaxmb.identify.experiments.modes_test import REPEATED, ModesTest, predict_modes
from jaxmb.identify.experiments.test import Entry
from jaxmb.machine.build import Model
from jaxmb.mechanics.tangent import operating_point
from jaxmb.report.charts import Axis, Bars, Chart, Colors, Line, Note, Panel, Rule, matrix_panel
from jaxmb.report.section import Column, Table, hertz, left, number, right, signed, table
from jaxmb.response.modal import (
    Modes,
    energy_shares,
    is_unlocked,
    mac,
    modes,
    select_modes,
    spring_matrices,
    spring_names,
)


@dataclasses.dataclass(frozen=True)
class ModePairs:
    """Modes of a machine at the posture of one test, paired with measured ones at the sensors."""

    reference: Modes
    """Measured modes."""
    fitted: Modes
    likeness: np.ndarray
    """MAC [fitted, reference]."""
    partner: tuple[int | None, ...]
    """Index of the measured mode paired with each fitted one; None if unpaired."""
    mac: Sequence[float]
    """MAC of each pair; for repeated modes, in a modal test, with the span of their shapes."""

    @property
    def unmeasured(self) -> tuple[int, ...]:
        """Indices of the unpaired fitted modes."""
        return tuple(f for f, m in enumerate(self.partner) if m is None)


def data_label(entry: Entry) -> str:
    """Label of the data of a test: "measured" or "simulated"."""
    return "measured" if entry.truth is None else "simulated"


def measured_pairs(entry: Entry, model: Model) -> ModePairs | None:
    """Modes of a machine paired with those of the modal analysis of a test's FRFs; None without a modal analysis.

    Args:
        entry: the test.
        model: the machine.
    """
    agreement = modal_agreement(entry, entry.test.view(model), model)
    if agreement is None or entry.test.vibration is None:
        return None
    fitted, measured, likeness, *_ = agreement
    of_pairs = [float(likeness[pair]) for pair in agreement.pairs]
    return _in_band(measured, fitted, likeness, dict(agreement.pairs), of_pairs, entry.test.vibration.band_end_hz)


def _in_band(
    measured: Modes, fitted: Modes, likeness: np.ndarray, partner: Mapping[int, int], of_pairs: Sequence[float],
    end_hz: float,
) -> ModePairs:  # fmt: skip
    """Pairs of modes, with the unpaired fitted ones up to the end of the band.

    Args:
        measured: measured modes.
        fitted: modes of the machine.
        likeness: MAC [fitted, measured].
        partner: measured mode of each paired fitted one.
        of_pairs: MAC of each pair.
        end_hz: end of the band.
    """
    keep = np.asarray(fitted.frequency_hz) <= end_hz
    keep[list(partner)] = True
    partners = tuple(partner.get(int(f)) for f in np.flatnonzero(keep))
    return ModePairs(measured, select_modes(fitted, keep), likeness[keep], partners, of_pairs)


@dataclasses.dataclass(frozen=True)
class FittedModes:
    """Modes of the identified machine paired with those of a modal test."""

    frequency_hz: np.ndarray
    damping_percent: np.ndarray
    share: np.ndarray
    """Share of the strain energy [mode, spring], springs as in `spring_names`; each row sums to 1."""
    mac: np.ndarray
    """MAC of each shape at the sensors with the measured one; 1 without a measured shape."""
    pairs: ModePairs | None
    """All modes of the machine in the test's band and the measured ones; None without measured shapes."""


def fitted_modes(model: Model, test: ModesTest) -> FittedModes:
    """The modes of a machine paired with the measured ones as in the fit, in the order of the latter."""
    from scipy.optimize import linear_sum_assignment  # imported here: it takes 0.06 s

    view = test.view(model)
    found, paired = modes(view.tangent), predict_modes(test, view)
    springs = spring_matrices(model, test.q, operating_point(model, test.q, test.at))
    frequency, damping = np.asarray(paired.frequency_hz), np.asarray(paired.damping_ratio)
    # The pairing of the test returns frequencies and damping ratios, which identify the modes. Repeated modes, of which
    # only the span is determined, are paired one to one by their shapes.
    apart = np.abs(np.asarray(found.damped_frequency_hz) - frequency[:, None])
    apart += np.abs(np.asarray(found.damping_ratio) - damping[:, None])
    pairs, likeness = None, np.zeros(apart.T.shape)
    if test.outputs:
        likeness = np.asarray(mac(np.asarray(view.output_rows) @ np.asarray(found.shape), np.asarray(test.shape.T)))
    apart -= REPEATED * frequency[:, None] * np.nan_to_num(likeness.T)
    places = np.argmin(apart, axis=1)
    paired_rows, partners = linear_sum_assignment(apart)
    places[paired_rows] = partners  # not all, if too few modes of the machine oscillate
    shares = np.asarray(energy_shares(jax.device_put(np.asarray(found.shape)[:, places]), springs)).T
    if test.outputs:
        eigenvalue = 2.0 * np.pi * np.asarray(test.frequency_hz) * (1j - np.asarray(test.damping_ratio))
        measured = Modes(
            frequency_hz=jax.device_put(np.abs(eigenvalue) / (2.0 * np.pi)),
            damped_frequency_hz=test.frequency_hz,
            damping_ratio=test.damping_ratio,
            eigenvalue=jax.device_put(eigenvalue),
            shape=test.shape.T,
            overdamped=jax.device_put(np.zeros(0)),
        )
        partner, of_pairs = {int(f): m for m, f in enumerate(places)}, np.asarray(paired.mac).tolist()
        pairs = _in_band(measured, found, likeness, partner, of_pairs, test.vibration.band_end_hz)
    return FittedModes(frequency, 100.0 * damping, shares, np.asarray(paired.mac), pairs)


UNCERTAIN = 0.1
"""Relative standard deviation above which a frequency or damping ratio is marked."""
UNDAMPED = 1e-9
"""Damping ratio up to which a mode is undamped."""
MARK = "?: standard deviation above 10 %, depends on parameters that are not identifiable"
NOTABLE_SHARE = 0.1
"""Smallest listed share of a spring in the strain energy of a mode."""


def marks(result: Result, name: str, damped_hz: float) -> tuple[str, str]:
    """Marks of the frequency and of the damping of an identified mode: "?" if uncertain, else "".

    Args:
        result: the identification.
        name: of the test at whose posture the mode is.
        damped_hz: damped frequency of the mode.
    """
    of_test = [mode for mode in result.modes if mode.posture == name]
    if not of_test:
        return "", ""
    mode = min(of_test, key=lambda mode: abs(mode.damped_frequency_hz - damped_hz))
    return (
        "?" if mode.frequency_std_hz > UNCERTAIN * mode.frequency_hz else "",
        "?" if mode.damping_ratio_std > UNCERTAIN * max(mode.damping_ratio, UNDAMPED) else "",
    )


def _table(
    title: str,
    columns: tuple[Column, ...],
    rows: Sequence[tuple[str | None, ...]],
    caption: str = "",
    unit: str = "Hz",
) -> Table:
    """A table of modes with a unit of frequency, with the legend of the mark in its caption if it occurs."""
    columns = tuple(dataclasses.replace(column, heading=column.heading.replace("Hz", unit)) for column in columns)
    marked = MARK if any(cell.startswith("?") or ", ?" in cell for row in rows for cell in row if cell) else ""
    return table(title, columns, rows, "; ".join(text for text in (caption, marked) if text))


def frequency_unit(entries: Iterable[Entry]) -> str:
    """Unit of frequency of some tests, or all of their units."""
    units = {entry.source.frequency_unit for entry in entries if entry.test.vibration is not None}
    return " or ".join(sorted(units)) or "Hz"


def measured_modes_table(result: Result, entry: Entry, fitted: FittedModes) -> Table:
    """Modes of a modal test and of the identified machine: frequency, damping, strain energy and MAC."""
    test = entry.test
    columns = (
        *right("mode", "measured Hz", "identified Hz"), *right("error %", minor=1),
        *right("measured damping %", "identified damping %"), *left("strain energy %"), *right("MAC"),
    )  # fmt: skip
    names, rows = spring_names(result.study.model), []
    compliant, named = np.array(is_unlocked(result.study.model)), False
    for m, measured_hz in enumerate(np.asarray(test.frequency_hz)):
        content, share = np.asarray(test.content[m])[compliant], fitted.share[m]
        springs = [i for i in np.argsort(-share, kind="stable") if content[i] or share[i] >= NOTABLE_SHARE]
        named |= bool(content.any())
        of_frequency, of_damping = marks(result, entry.name, fitted.frequency_hz[m])
        rows.append(
            (
                str(m + 1),
                f"{measured_hz:.2f}",
                f"{of_frequency}{fitted.frequency_hz[m]:.2f}",
                signed(100.0 * (fitted.frequency_hz[m] / measured_hz - 1.0)),
                f"{100.0 * float(test.damping_ratio[m]):.2f}",
                f"{of_damping}{fitted.damping_percent[m]:z.2f}",
                ", ".join(f"{names[i]}{'*' if content[i] else ''} {100.0 * share[i]:.0f}" for i in springs) or "-",
                f"{fitted.mac[m]:.3f}" if test.outputs else None,
            )
        )
    return _table(
        f"Modes, {entry.name}: measured and identified, damped frequencies",
        columns,
        rows,
        f"strain energy: springs with {100.0 * NOTABLE_SHARE:.0f} % and more"
        + (", * named in the measurement" if named else ""),
    )


def analysed_modes_table(
    result: Result, name: str, pairs: Sequence[ModePair], unpaired: Sequence[UnpairedMode], unit: str = "Hz"
) -> Table:
    """Modes of the modal analysis of a test's FRFs and of the identified machine.

    Unpaired modes have rows of their own; mean absolute errors are over the pairs.
    """

    def cells(mode: ModePair | UnpairedMode) -> tuple[float, tuple[str, ...]]:
        """Frequency by which rows are sorted, and the cells of a row."""
        found, damping = hertz(mode.frequency_hz), f"{mode.damping_percent:z.3f}"
        if isinstance(mode, UnpairedMode) and mode.of == "measured":
            return mode.frequency_hz, (found, "-", "-", damping, "-", "-")
        of_frequency, of_damping = marks(result, name, mode.frequency_hz)
        found, damping = of_frequency + found, of_damping + damping
        if isinstance(mode, UnpairedMode):
            return mode.frequency_hz, ("-", found, "-", "-", damping, "-")
        known, known_damping = mode.measured_frequency_hz, f"{mode.measured_damping_percent:z.3f}"
        likeness = "-" if mode.mac is None else f"{mode.mac:.3f}"
        error = signed(mode.frequency_hz - known)
        return known, (hertz(known), found, error, known_damping, damping, likeness)

    numbered = [(str(m), *row) for m, (_, row) in enumerate(sorted(map(cells, (*pairs, *unpaired))), 1)]
    if pairs:
        hz = np.mean([abs(p.frequency_hz - p.measured_frequency_hz) for p in pairs])
        percent = np.mean([abs(p.damping_percent - p.measured_damping_percent) for p in pairs])
        numbered.append(("mean error", "", "", f"{hz:.3f}", "", f"{percent:.3f}", ""))
    return _table(
        f"Modes, {name}: measured (modal analysis) and identified",
        (
            *left("mode"),
            *right("measured Hz", "identified Hz", "error Hz", "measured damping %", "identified damping %", "MAC"),
        ),
        numbered,
        unit=unit,
    )


def true_modes_table(result: Result, name: str, pairs: Sequence[TrueMode], unit: str = "Hz") -> Table:
    """Modes of the simulated and of the identified machine."""
    rows = []
    for m, pair in enumerate(pairs, 1):
        of_frequency, of_damping = marks(result, name, pair.frequency_hz)
        rows.append(
            (
                str(m),
                hertz(pair.true_frequency_hz),
                of_frequency + hertz(pair.frequency_hz),
                signed(100.0 * (pair.frequency_hz / pair.true_frequency_hz - 1.0)),
                f"{pair.true_damping_percent:z.3f}",
                f"{of_damping}{pair.damping_percent:z.3f}",
            )
        )
    return _table(
        f"Modes, {name}: true and identified, damped frequencies",
        right("mode", "true Hz", "identified Hz", "error %", "true damping %", "identified damping %"),
        rows,
        unit=unit,
    )


def identified_modes_table(result: Result, name: str, unit: str = "Hz") -> Table:
    """Modes of the identified machine at the posture of a test without known modes."""
    rows = []
    for mode in (mode for mode in result.modes if mode.posture == name):
        of_frequency, of_damping = marks(result, name, mode.damped_frequency_hz)
        rows.append(
            (
                str(len(rows) + 1),
                of_frequency + hertz(mode.damped_frequency_hz), number(mode.frequency_std_hz, 2),
                f"{of_damping}{100.0 * mode.damping_ratio:z.3f}", number(100.0 * mode.damping_ratio_std, 2),
            )
        )  # fmt: skip
    return _table(
        f"Modes, {name}: identified, damped frequencies",
        right("mode", "identified Hz", "std", "damping %", "std"),
        rows,
        unit=unit,
    )


def modes_of_all_tests(
    result: Result,
    entries: Sequence[Entry],
    pairs: Sequence[TrueMode | ModePair],
    unpaired: Sequence[UnpairedMode] = (),
) -> Table:
    """Identified modes at the postures of many tests, one row per test, with the largest errors.

    Args:
        result: the identification.
        entries: the tests.
        pairs: pairs of true or measured and identified modes of all tests.
        unpaired: measured and identified modes without a partner.
    """
    rows, unit = [], frequency_unit(entries)
    for name in (entry.name for entry in entries if entry.role == "fit"):
        found = [mode.damped_frequency_hz for mode in result.modes if mode.posture == name]
        errors = np.array([_errors(pair) for pair in pairs if pair.posture == name]).reshape(-1, 2)
        largest = [number(x, 2) for x in np.max(errors, axis=0)] if errors.size else ["-", "-"]
        listed = ", ".join(marks(result, name, hz)[0] + number(hz, 4) for hz in found) or "-"
        count = str(sum(mode.posture == name for mode in unpaired)) if unpaired else None
        rows.append((name, listed, *largest, count))
    return _table(
        "Modes of all tests",
        (*left("test", f"identified modes, {unit}"), *right(f"largest error {unit}", "of damping %", "unpaired")),
        rows,
    )


def _errors(pair: TrueMode | ModePair) -> tuple[float, float]:
    known = (
        (pair.true_frequency_hz, pair.true_damping_percent)
        if isinstance(pair, TrueMode)
        else (pair.measured_frequency_hz, pair.measured_damping_percent)
    )
    return abs(pair.frequency_hz - known[0]), abs(pair.damping_percent - known[1])


def predicted_modes_table(
    found: Modes, caption: str, most: int, std: tuple[np.ndarray, np.ndarray] | None = None
) -> Table:
    """Table of the first predicted modes of a machine.

    Args:
        found: its modes.
        caption: of the table.
        most: number of modes.
        std: standard deviations of frequencies, Hz, and damping ratios; NaN where unknown.
    """
    columns = (np.asarray(x)[:most] for x in (found.frequency_hz, found.damped_frequency_hz, found.damping_ratio))
    rows = [
        [str(m), hertz(frequency), hertz(damped), f"{100.0 * damping:z.3f}"]
        for m, (frequency, damped, damping) in enumerate(zip(*columns, strict=True), 1)
    ]
    heads = ["mode", "frequency Hz", "damped frequency Hz", "damping %"]
    for place, what, each in [] if std is None else ((4, "± %", 100.0 * std[1]), (2, "± Hz", std[0])):
        heads.insert(place, what)
        for row, own in zip(rows, each.tolist(), strict=True):
            row.insert(place, number(own, 2) if np.isfinite(own) else "-")
    caption += "" if std is None else "; ± one standard deviation"
    return Table("", right(*heads), tuple(map(tuple, rows)), caption)


MOST_MODES = 20
"""Largest number of modes per axis of a figure."""

Panels = tuple[str, np.ndarray, np.ndarray, Sequence[int]]
"""Label of the rows, MAC [row, column], frequencies of the rows, and indices of those without a measured partner."""


def pairs_chart(result: Result, name: str, pairs: ModePairs, unit: str, given: str = "measured") -> Chart:
    """MAC between the identified machine's modes at the posture of a test and the measured ones.

    Args:
        result: the identification.
        name: of the test.
        pairs: the modes.
        unit: of their frequencies.
        given: label of the test's data, "measured" or "simulated".
    """
    frequency_hz = np.asarray(pairs.fitted.damped_frequency_hz)
    marked = [marks(result, name, float(hz))[0] for hz in frequency_hz]
    label = f"identified: modes ({unit}){', ? uncertain' if any(marked) else ''}"
    found = f"smallest MAC of {len(pairs.mac)} paired modes {min(pairs.mac):.2f}" if pairs.mac else "no mode is paired"
    across = (f"{given}: modes ({unit})", np.asarray(pairs.reference.damped_frequency_hz))
    return mac_panels(
        f"{name}: {found}", [(label, pairs.likeness, frequency_hz, pairs.unmeasured)], across, given, marked
    )


def mac_panels(
    title: str,
    panels: Sequence[Panels],
    columns: tuple[str, np.ndarray],
    given: str = "measured",
    marked: Sequence[str] = (),
) -> Chart:
    """MAC between several sets of modes and a common reference, as Fig. 11 of Huynh et al. 2020.

    Args:
        title: of the figure.
        panels: one per set; the first `MOST_MODES` rows and columns are shown.
        columns: label and frequencies of the reference.
        given: label of the data, "measured" or "simulated".
        marked: prefixes of the labels of the rows.
    """
    count = min(max(panel[1].shape[0] for panel in panels), MOST_MODES)
    across = min(columns[1].size, MOST_MODES)
    size = 0.5 if max(count, across) <= 10 else 0.38
    cells = []
    for k, (name, likeness, frequency_hz, unpaired) in enumerate(panels):
        shown = likeness[:MOST_MODES, :MOST_MODES]
        rows = zip(marked or [""] * len(shown), _frequencies(frequency_hz[: len(shown)]), strict=False)
        labels = [f"{before}{f}{' *' if m in unpaired else ''}" for m, (before, f) in enumerate(rows)]
        label = f"{name}\n* not {given}" if unpaired else name
        colors = Colors("Blues", (0.0, 1.0), "MAC", bar=k + 1 == len(panels))
        names = _frequencies(columns[1][:across])
        cells.append((matrix_panel(shown, labels, names, colors, cell=size, labels=(label, columns[0])),))
    whole = panels[0][1].shape
    cut = len(panels) == 1 and whole != (count, across)
    return Chart(
        title,
        "Modal assurance criterion: 1 for the same shape, near 0 for different ones.",
        [cells],
        size * across,
        note=f"first {count} of {whole[0]} and {across} of {whole[1]} modes" if cut else "",
    )


def _frequencies(frequency_hz: np.ndarray) -> list[str]:
    """Labels with one decimal, or more for frequencies below 1 Hz."""
    smallest = float(np.min(frequency_hz, initial=np.inf))
    decimals = 1 if smallest >= 1.0 or smallest <= 0.0 else 2 - int(np.floor(np.log10(smallest)))
    return [f"{f:.{decimals}f}" for f in frequency_hz]


def measured_modes_chart(result: Result, entry: Entry, fitted: FittedModes) -> Chart:
    """Measured (or simulated) and identified frequencies and damping ratios of a modal test, and their differences with
    the standard deviations of the data."""
    test, given = entry.test, data_label(entry)
    rows = (
        ("frequency", "Hz", test.frequency_hz, fitted.frequency_hz, test.frequency_std),
        ("damping ratio", "%", 100.0 * test.damping_ratio, fitted.damping_percent, 100.0 * test.damping_std),
    )
    at, cells, beyond = np.arange(1, fitted.frequency_hz.size + 1), [], 0
    for kind, (name, unit, *values) in enumerate(rows):
        measured, found, std = (np.asarray(x) for x in values)
        beyond += int(np.sum(np.abs(found - measured) > 2.0 * std))
        top = 1.15 * float(max(measured.max(), found.max()))
        texts = [Note(f"{v:#.3g}".removesuffix("."), float(x), 0.05 * top) for x, v in zip(at, measured, strict=True)]
        above = (
            Bars(at, 0.0 * measured, measured, "y", 0.6, given, "#cccccc"),
            Line(at, found, "fitted", width=0.0, dashes="", marker="_", size=19.0),
            *texts,
        )
        reach = 1.8 * float(max(std.max(), np.abs(found - measured).max()))
        below = (
            Bars(at, -std, std, "y", 0.6, "± 1 standard deviation", "#737373", hatched=True),
            Line(at, found - measured, f"fitted - {given}", width=0.0, dashes="", marker="o", size=4.5),
            Rule(0.0),
        )
        marked = [marks(result, entry.name, float(hz))[kind] for hz in fitted.frequency_hz]
        x = Axis(
            "mode" + (", ? uncertain" if any(marked) else ""),
            limits=(0.3, at.size + 0.7),
            ticks=at,
            names=[f"{m}{mark}" for m, mark in zip(at, marked, strict=True)],
        )
        cells.append(
            (
                Panel(above, x, Axis(f"{name} ({unit})", limits=(0.0, top)), height=1.7),
                Panel(below, x, Axis(f"difference ({unit})", limits=(-reach, reach)), height=1.1),
            )
        )
    return Chart(
        f"{test.name}: {given} and fitted modes, {beyond} of {2 * at.size} values beyond 2 standard deviations",
        "Frequency and damping ratio of each mode, and their differences beside the standard deviation of the data.",
        [cells],
        max(2.4, 0.22 * at.size),
    )
