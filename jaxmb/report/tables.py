"""An identification as tables for the terminal."""

import math
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from jaxmb.identify.assess.result import Parameter, Result
from jaxmb.identify.experiments.modes_test import ModesTest
from jaxmb.identify.experiments.test import Test
from jaxmb.report.cells import VERDICT_STYLE, new_table, number, percent
from jaxmb.report.comparison import fitted_modes, mode_pairs
from jaxmb.report.complete_tables import complete_tables
from jaxmb.report.deflection_tables import deflection_tables
from jaxmb.report.law_tables import law_tables
from jaxmb.report.profile_plots import profile_table
from jaxmb.response.modal import Modes

WIDE = 100
"""Columns that the table of parameters needs to be complete."""


def result_tables(result: Result, width: int = WIDE) -> Group:
    """Everything a user wants to read of a result: parameters, modes of each test, quality of the fit, time.

    Args:
        result: the identification.
        width: columns of the terminal; below `WIDE` the less important ones of the table are left out.
    """
    if result.study.complete is not None:
        return Group(*complete_tables(result), summary(result))
    parts: list[RenderableType] = [parameter_table(result, width >= WIDE), what_marks_mean(result)]
    for place, entry in enumerate(result.study.fitted):
        test = entry.test
        if test.posture is None:
            continue
        if isinstance(test, ModesTest):
            parts.append(measured_modes_table(result, test))
        elif any(
            line["posture"] == test.name
            for kind in ("measured_modes", "unmatched_modes")
            for line in result.metrics.get(kind, ())
        ):
            parts.append(analysed_modes_table(result, test))
        elif entry.truth is not None and entry.truth.modes is not None:
            parts.append(true_modes_table(result, test))
        else:
            parts.append(modes_table(result, place))
    if "deflections" in result.metrics:
        parts += deflection_tables(result)
    if "profiles" in result.metrics:
        parts.append(profile_table(result))
    parts += law_tables(result)
    return Group(*parts, summary(result))


def parameter_table(result: Result, complete: bool = True) -> Table:
    """Identified parameters: value, with a star on a bound, standard deviation, bounds, and whether the data fix it."""
    truth = result.study.truth
    table = new_table("Parameters", "parameter", "unit")
    for heading in ("value", "std", *(("std %",) if complete else ()), *(("error %",) if truth else ())):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in (*(("initial",) if complete else ()), "lower", "upper"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("identifiable", no_wrap=True)
    for label, name in free_values(result):
        p = result.parameters[name]
        relative = [percent(100.0 * p.std_log)] if complete else []
        error = [_error(p, truth[name]) if truth.get(name) else "-"] if truth else []
        initial = [number(p.initial)] if complete else []
        table.add_row(
            Text(label),
            Text(p.unit),
            f"{'*' if _on_bound(p) else ''}{number(p.value)}",
            number(p.std, 2),
            *relative,
            *error,
            *initial,
            number(p.lower, 3 if complete else 2),
            number(p.upper, 3 if complete else 2),
            Text(p.identifiable, style=VERDICT_STYLE.get(p.identifiable, "")),
        )
    return table


def together_lines(result: Result) -> list[str]:
    """A line on each group of parameters that the data know only together, or not at all."""
    lines = []
    for group in result.metrics.get("known_together", ()):
        parts = group["parameters"]
        if len(parts) < 2:
            continue  # which its own standard deviation tells
        if group["dimension"] > 1:
            what = f"{', '.join(parts)} ({group['dimension']} directions)"
        else:
            what = "  ".join(f"{size:+.2f} {name}" for name, size in parts.items())
        std = percent(100.0 * group["std"])
        lines.append(f"known only together: {what}, std {std} %" if np.isfinite(group["std"]) else f"not known: {what}")
    return lines


def what_marks_mean(result: Result) -> Text:
    """The line below the table of parameters: what "yes", "weak" and "no" are in this study, and a star."""
    if result.study.problem.prior is not None:
        line = (
            "identifiable: yes where the data halve the prior's std or more, weak where they take 5 % off it, else no"
        )
        if not np.isfinite(np.asarray(result.study.problem.prior.std)).all():
            line += "; without a prior yes where std is below 10 %, weak below 100 %"
    else:
        linear = "" if all(result.study.free.logarithmic) else " (linear scale: of the width of the bounds)"
        line = f"identifiable: yes where std is below 10 %{linear}, weak below 100 %, else no"
    starred = any(_on_bound(result.parameters[name]) for _, name in free_values(result))
    return Text(f" {line}{'; * on a bound' if starred else ''}\n")


def free_values(result: Result) -> list[tuple[str, str]]:
    """Label and name of everything that was free, once for what is tied together."""
    return [
        (names[0] if len(names) == 1 else f"{names[0]} ({len(names)} tied)", names[0])
        for names in result.study.free.tied
    ]


def measured_modes_table(result: Result, test: ModesTest) -> Table:
    """Measured beside fitted modes, in the layout of Table 6 of Huynh et al. 2020: frequency, then damping."""
    table = new_table(f"Modes, {test.name}: measured and fitted", "mode")
    for heading in ("measured Hz", "fitted Hz", "error %", "measured damping %", "fitted damping %"):
        table.add_column(heading, justify="right")
    table.add_column("content", no_wrap=True)
    table.add_column("its energy %", justify="right")
    if test.outputs:
        table.add_column("MAC", justify="right")
    fitted = fitted_modes(result, test)
    names = result.study.model.coordinates
    for m, measured_hz in enumerate(np.asarray(test.frequency_hz)):
        content = np.asarray(test.content[m])
        table.add_row(
            str(m + 1),
            f"{measured_hz:.2f}",
            f"{fitted.frequency_hz[m]:.2f}",
            _signed(100.0 * (fitted.frequency_hz[m] / measured_hz - 1.0)),
            f"{100.0 * float(test.damping_ratio[m]):.2f}",
            f"{fitted.damping_percent[m]:.2f}",
            Text(", ".join(n for n, on in zip(names, content, strict=True) if on) or "-"),
            f"{100.0 * fitted.share[m][content].sum():.0f}" if content.any() else "-",
            *([f"{fitted.mac[m]:.3f}"] if test.outputs else []),
        )
    return table


def analysed_modes_table(result: Result, test: Test) -> Table:
    """Modes found in the test's FRFs beside the identified machine's, in the layout of Table 6 of Huynh et al. 2020.

    A mode that was measured only, or that only the identified machine has, stands alone in its row; the mean errors
    (absolute, as all in the table) are of the pairs.
    """
    table = new_table(f"Modes, {test.name}: measured (modal analysis) and identified", "mode")
    for heading in ("measured Hz", "identified Hz", "error Hz", "measured damping %", "identified damping %", "MAC"):
        table.add_column(heading, justify="right")
    pairs = [m for m in result.metrics.get("measured_modes", ()) if m["posture"] == test.name]
    alone = [m for m in result.metrics.get("unmatched_modes", ()) if m["posture"] == test.name]
    rows = []
    for pair in pairs:
        measured, found = pair["measured_frequency_hz"], pair["frequency_hz"]
        damping = f"{pair['measured_damping_percent']:.3f}", f"{pair['damping_percent']:.3f}"
        likeness = "-" if pair["mac"] is None else f"{pair['mac']:.3f}"
        rows.append((measured, (_hz(measured), _hz(found), _signed(found - measured), *damping, likeness)))
    for mode in alone:
        frequency, damping = _hz(mode["frequency_hz"]), f"{mode['damping_percent']:.3f}"
        if mode["of"] == "measured":
            rows.append((mode["frequency_hz"], (frequency, "-", "-", damping, "-", "-")))
        else:
            rows.append((mode["frequency_hz"], ("-", frequency, "-", "-", damping, "-")))
    for m, (_, cells) in enumerate(sorted(rows), 1):
        table.add_row(str(m), *cells)
    if pairs:
        hz = np.mean([abs(p["frequency_hz"] - p["measured_frequency_hz"]) for p in pairs])
        percent = np.mean([abs(p["damping_percent"] - p["measured_damping_percent"]) for p in pairs])
        table.add_row("mean error", "", "", f"{hz:.3f}", "", f"{percent:.3f}", "")
    return table


def true_modes_table(result: Result, test: Test) -> Table:
    """Modes of the machine that was simulated beside the identified one's, in the layout of the same Table 6."""
    table = new_table(f"Modes, {test.name}: true and identified", "mode")
    for heading in ("true Hz", "identified Hz", "error %", "true damping %", "identified damping %"):
        table.add_column(heading, justify="right")
    pairs = [p for p in result.metrics.get("true_modes", ()) if p["posture"] == test.name]
    for m, pair in enumerate(pairs, 1):
        true_hz, found_hz = pair["true_frequency_hz"], pair["frequency_hz"]
        table.add_row(
            str(m),
            _hz(true_hz),
            _hz(found_hz),
            _signed(100.0 * (found_hz / true_hz - 1.0)),
            f"{pair['true_damping_percent']:.3f}",
            f"{pair['damping_percent']:.3f}",
        )
    return table


def modes_table(result: Result, number: int) -> Table:
    """Modes of the identified machine below the end of a test's band, beside those of the initial parameters."""
    pairs = mode_pairs(result, number)
    table = new_table(f"Modes, {result.study.tests[number].name}: initial and identified", "mode")
    for heading in ("initial Hz", "identified Hz", "initial damping %", "identified damping %", "MAC"):
        table.add_column(heading, justify="right")
    for m, partner in enumerate(pairs.partner):
        frequency, damping = _mode(pairs.fitted, m)
        before = ("-", "-") if partner is None else _mode(pairs.reference, partner)
        likeness = "-" if partner is None else f"{pairs.likeness[m, partner]:.2f}"
        table.add_row(str(m + 1), before[0], frequency, before[1], damping, likeness)
    for left in sorted(set(range(pairs.reference.frequency_hz.size)) - set(pairs.partner)):
        frequency, damping = _mode(pairs.reference, left)
        table.add_row("-", frequency, "-", damping, "-", "-")
    return table


def predicted_modes_table(found: Modes, title: str) -> Table:
    """Modes of a machine that is not fitted to anything."""
    table = new_table(title, "mode")
    for heading in ("frequency Hz", "damped frequency Hz", "damping %"):
        table.add_column(heading, justify="right")
    columns = (np.asarray(x) for x in (found.frequency_hz, found.damped_frequency_hz, found.damping_ratio))
    for m, (frequency, damped, damping) in enumerate(zip(*columns, strict=True), 1):
        table.add_row(str(m), _hz(frequency), _hz(damped), f"{100.0 * damping:.3f}")
    return table


def summary(result: Result) -> Group:
    """Cost, error of the fit, remarks and time, a line each."""
    lines = [f"status: {result.status}", f"cost: {number(result.cost)} (initially {number(result.initial_cost)})"]
    for name, error in result.metrics.get("log_error", {}).items():
        lines.append(f"mean error of log H, {name}: {number(error, 2)}")
    for kind, what in (("fit", "fitted"), ("holdout", "held out")):
        if "holdout" in result.metrics and kind in result.metrics:
            lines.append(f"{what}: {_verdict(result.metrics[kind])}")
    if "largest_parameter_error" in result.metrics:
        lines.append(f"largest parameter error: {percent(100.0 * result.metrics['largest_parameter_error'])} %")
    if "largest_frequency_error_hz" in result.metrics:
        lines.append(
            f"largest error of a mode: {number(result.metrics['largest_frequency_error_hz'], 2)} Hz,"
            f" {number(result.metrics['largest_damping_error_percent'], 2)} % damping"
        )
    lines += together_lines(result)
    lines += [f"remark: {remark}" for remark in result.remarks]
    counts, seconds = result.evaluations, result.seconds
    lines.append(
        f"evaluations: {counts['search']} search, {counts['refine']} refine, {counts['non_finite']} not finite"
    )
    parts = {name: round(seconds[name], 1) for name in ("compile", "search", "refine")}
    parts["else"] = max(round(seconds["total"] - sum(parts.values()), 1), 0.0)
    told = ", ".join(f"{name} {spent:.1f}" for name, spent in parts.items())
    lines.append(f"time: {sum(parts.values()):.1f} s ({told})")  # the sum of what is told, and the total to 0.2 s
    return Group(*(Text(line) for line in lines))


def _verdict(told: dict[str, Any]) -> str:
    """How well tests are predicted, in words."""
    parts = []
    if told["frac"] is not None:
        parts += [f"FRAC {told['frac']:.4f}", f"error of log H {number(told['log_error'], 2)}"]
    if told["frequency_error_hz"] is not None:
        parts.append(f"frequencies off by {number(told['frequency_error_hz'], 2)} Hz on average")
    return ", ".join(parts) or "nothing to compare"


def _hz(frequency_hz: float) -> str:
    """A frequency to a thousandth of a hertz, or to four digits where it is below one."""
    return f"{frequency_hz:.3f}" if frequency_hz >= 1.0 else f"{frequency_hz:.4g}"


def _error(p: Parameter, true: float) -> str:
    """Error of a parameter, %; where the truth is a bound and the fit ends there, that no data were needed for it."""
    relative = p.value / true - 1.0
    if abs(relative) > 1e-11:
        return percent(100.0 * relative, signed=True)
    return "bound" if _on_bound(p) else "<1e-9"


def _on_bound(p: Parameter) -> bool:
    # exp(log(bound)) may differ from the bound in the last digits
    return any(math.isclose(p.value, bound) for bound in (p.lower, p.upper))


def _signed(value: float) -> str:
    return f"{round(value, 3) + 0.0:+.3f}"  # adding 0 makes +0 of -0


def _mode(found: Modes, m: int) -> tuple[str, str]:
    return _hz(float(found.damped_frequency_hz[m])), f"{100.0 * float(found.damping_ratio[m]):.3f}"
