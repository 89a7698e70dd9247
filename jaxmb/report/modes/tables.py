"""Tables of modes: measured, true or initial ones beside those of the identified machine."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxmb.identify.assess.metrics import TrueMode
from jaxmb.identify.assess.modal_agreement import LonelyMode, ModePair
from jaxmb.identify.assess.result import Result
from jaxmb.identify.experiments.entry import Entry
from jaxmb.report.cells import hertz, signed
from jaxmb.report.modes.mode_pairs import ModePairs, fitted_modes
from jaxmb.report.section import Table, left, right
from jaxmb.response.modal import Modes, giving_way, spring_names


def measured_modes_table(result: Result, entry: Entry) -> Table:
    """Modes of a modal test beside those of the identified machine: frequency, then damping."""
    test: Any = entry.test
    columns = (
        *right("mode", "measured Hz", "identified Hz"), *right("error %", minor=1),
        *right("measured damping %", "identified damping %"), *left("content"),
        *right("its energy %", *(("MAC",) if test.outputs else ())),
    )  # fmt: skip
    fitted, names, rows = fitted_modes(result, test), spring_names(result.study.model), []
    known = np.array(giving_way(result.study.model))
    for m, measured_hz in enumerate(np.asarray(test.frequency_hz)):
        content = np.asarray(test.content[m])[known]
        rows.append(
            (
                str(m + 1),
                f"{measured_hz:.2f}",
                f"{fitted.frequency_hz[m]:.2f}",
                signed(100.0 * (fitted.frequency_hz[m] / measured_hz - 1.0)),
                f"{100.0 * float(test.damping_ratio[m]):.2f}",
                f"{fitted.damping_percent[m]:.2f}",
                ", ".join(n for n, on in zip(names, content, strict=True) if on) or "-",
                f"{100.0 * fitted.share[m][content].sum():.0f}" if content.any() else "-",
                *([f"{fitted.mac[m]:.3f}"] if test.outputs else []),
            )
        )
    return Table(f"Modes, {entry.name}: measured and identified", columns, tuple(rows))


def analysed_modes_table(name: str, pairs: Sequence[ModePair], alone: Sequence[LonelyMode]) -> Table:
    """Modes that modal analysis found in the FRFs of a test beside the identified machine's.

    A mode that was measured only, or that only the identified machine has, stands alone in its row; the mean errors
    (absolute, as all in the table) are of the pairs.
    """
    columns = (
        *left("mode"),
        *right("measured Hz", "identified Hz", "error Hz", "measured damping %", "identified damping %", "MAC"),
    )
    rows = []
    for pair in pairs:
        measured, found = pair.measured_frequency_hz, pair.frequency_hz
        damping = f"{pair.measured_damping_percent:.3f}", f"{pair.damping_percent:.3f}"
        likeness = "-" if pair.mac is None else f"{pair.mac:.3f}"
        rows.append((measured, (hertz(measured), hertz(found), signed(found - measured), *damping, likeness)))
    for mode in alone:
        frequency, damping = hertz(mode.frequency_hz), f"{mode.damping_percent:.3f}"
        if mode.of == "measured":
            rows.append((mode.frequency_hz, (frequency, "-", "-", damping, "-", "-")))
        else:
            rows.append((mode.frequency_hz, ("-", frequency, "-", "-", damping, "-")))
    numbered = [(str(m), *cells) for m, (_, cells) in enumerate(sorted(rows), 1)]
    if pairs:
        hz = np.mean([abs(p.frequency_hz - p.measured_frequency_hz) for p in pairs])
        percent = np.mean([abs(p.damping_percent - p.measured_damping_percent) for p in pairs])
        numbered.append(("mean error", "", "", f"{hz:.3f}", "", f"{percent:.3f}", ""))
    return Table(f"Modes, {name}: measured (modal analysis) and identified", columns, tuple(numbered))


def true_modes_table(name: str, pairs: Sequence[TrueMode]) -> Table:
    """Modes of the machine that was simulated beside the identified one's."""
    columns = right("mode", "true Hz", "identified Hz", "error %", "true damping %", "identified damping %")
    rows = [
        (
            str(m),
            hertz(pair.true_frequency_hz),
            hertz(pair.frequency_hz),
            signed(100.0 * (pair.frequency_hz / pair.true_frequency_hz - 1.0)),
            f"{pair.true_damping_percent:.3f}",
            f"{pair.damping_percent:.3f}",
        )
        for m, pair in enumerate(pairs, 1)
    ]
    return Table(f"Modes, {name}: true and identified", columns, tuple(rows))


def initial_modes_table(name: str, pairs: ModePairs) -> Table:
    """Modes of the identified machine below the end of a test's band, beside those of the initial parameters."""
    columns = right(
        "mode", "initial Hz", "identified Hz", "initial damping %", "identified damping %", "MAC with initial"
    )
    rows = []
    for m, partner in enumerate(pairs.partner):
        frequency, damping = _mode(pairs.fitted, m)
        before = ("-", "-") if partner is None else _mode(pairs.reference, partner)
        likeness = "-" if partner is None else f"{pairs.likeness[m, partner]:.2f}"
        rows.append((str(m + 1), before[0], frequency, before[1], damping, likeness))
    for left_over in sorted(set(range(pairs.reference.frequency_hz.size)) - set(pairs.partner)):
        frequency, damping = _mode(pairs.reference, left_over)
        rows.append(("-", frequency, "-", damping, "-", "-"))
    return Table(f"Modes, {name}: initial and identified", columns, tuple(rows))


def predicted_modes_table(found: Modes, title: str, most: int | None = None) -> Table:
    """Modes of a machine that is not fitted to anything; the first ones."""
    columns = (np.asarray(x)[:most] for x in (found.frequency_hz, found.damped_frequency_hz, found.damping_ratio))
    rows = [
        (str(m), hertz(frequency), hertz(damped), f"{100.0 * damping:.3f}")
        for m, (frequency, damped, damping) in enumerate(zip(*columns, strict=True), 1)
    ]
    return Table(title, right("mode", "frequency Hz", "damped frequency Hz", "damping %"), tuple(rows))


def _mode(found: Modes, m: int) -> tuple[str, str]:
    return hertz(float(found.damped_frequency_hz[m])), f"{100.0 * float(found.damping_ratio[m]):.3f}"
