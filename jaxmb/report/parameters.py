"""Tables 5 and 6 of Huynh et al. 2020 in the paper's layout, one column per machine."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from jaxmb.identify.assess.result import Parameter, Result
from jaxmb.identify.assess.uncertainty.monte_carlo import Draws
from jaxmb.identify.assess.uncertainty.profile import RISE
from jaxmb.report.modes import ModePairs
from jaxmb.report.section import (
    Cell,
    Lines,
    Picture,
    Section,
    Table,
    deviation,
    drawn_by,
    left,
    number,
    percent,
    right,
    section,
    short,
)

_FIGURES = "jaxmb.report.parameter_figures"
STRONG = 0.9
"""Smallest absolute correlation that is listed."""
MOST_PAIRS = 5


def parameter_sections(result: Result) -> list[Section]:
    """Sections on the identified parameters and on those identifiable only in combination."""
    if result.study.complete is not None:
        return []
    figure = Picture("parameters", drawn_by(f"{_FIGURES}:parameter_figure", result))
    together = together_lines(result)
    return section("Parameters", (parameter_table(result), Lines(tuple(together)) if together else None, figure))


def parameter_table(result: Result) -> Table:
    """Identified parameters: value (* on a bound), standard deviation, initial value, bounds, identifiability."""
    truth, rows = result.study.truth, []
    for label, name in free_values(result):
        p = result.parameters[name]
        error = [_error(p, truth[name]) if truth.get(name) else "-"] if truth else []
        rows.append(
            (
                label, p.unit, f"{'*' if on_bound(p) else ''}{number(p.value)}", number(p.std, 2),
                deviation(100.0 * p.std_log), *error, number(p.initial), short(p.lower), short(p.upper),
                Cell(p.identifiable, p.identifiable),
            )
        )  # fmt: skip
    columns = (
        *left("parameter", "unit"), *right("value", "std"), *right("std %", minor=1),
        *right(*(("error %",) if truth else ())), *right("initial", minor=2), *right("lower", "upper", minor=3),
        *left("identifiable"),
    )  # fmt: skip
    return Table("", columns, tuple(rows), what_marks_mean(result))


def what_marks_mean(result: Result) -> str:
    """Legend of "yes", "weak", "no" and the star in this study."""
    prior = result.study.problem.prior
    if prior is not None:
        line = "identifiable: yes where the data halve the prior's std, weak where they reduce it by 5 %, else no"
        if not np.isfinite(np.asarray(prior.std)).all():
            line += "; without a prior yes where std is below 10 %, weak below 100 %"
    else:
        linear = "" if all(result.study.free.logarithmic) else " (linear scale: of the width of the bounds)"
        line = f"identifiable: yes where std is below 10 %{linear}, weak below 100 %, else no"
    starred = any(on_bound(result.parameters[name]) for _, name in free_values(result))
    return f"{line}{'; * on a bound' if starred else ''}"


def together_lines(result: Result) -> list[str]:
    """A line for each combination of parameters that is weakly or not identifiable."""
    lines = []
    for group in result.metrics.known_together or ():
        if len(group.parameters) < 2:
            continue  # a single parameter has its own standard deviation
        if group.dimension > 1:
            text = f"{', '.join(group.parameters)} ({group.dimension} directions)"
        else:
            text = "  ".join(f"{size:+.2f} {name}" for name, size in group.parameters.items())
        lines.append(
            f"identifiable only in combination: {text}, std of this sum {percent(100.0 * group.std)} %"
            if math.isfinite(group.std)
            else f"not identifiable: {text}"
        )
    return lines


def correlation_sections(result: Result) -> list[Section]:
    """Section on pairs of strongly correlated parameters with the correlation matrix; empty without such pairs."""
    names = result.study.free.names
    if len(names) < 2 or result.study.is_linear:
        return []
    known = [i for i, name in enumerate(names) if math.isfinite(result.parameters[name].std)]
    pairs = [(result.correlation[i, j], names[i], names[j]) for i in known for j in known if i < j]
    strong = sorted((pair for pair in pairs if abs(pair[0]) >= STRONG), key=lambda pair: -abs(pair[0]))
    lines = [f"correlation {r:+.3f}: {a}, {b}" for r, a, b in strong[:MOST_PAIRS]]
    if len(strong) > MOST_PAIRS:
        lines.append(f"and {len(strong) - MOST_PAIRS} more pairs above {STRONG:g}")
    if not strong:
        return []
    figure = Picture("correlation", drawn_by(f"{_FIGURES}:correlation_figure", result))
    return section("Correlation of the parameters", (Lines(tuple(lines)), figure))


def profile_sections(result: Result) -> list[Section]:
    """95 % intervals by the standard deviation and by the profile; a dash where the cost does not rise enough."""
    profiles, rows = result.metrics.profiles, []
    if profiles is None:
        return []
    for name, profile in profiles.items():
        ends = (*profile.linear_interval, *profile.interval)
        cells = ["-" if end is None else number(end) for end in ends]
        rows.append((name, result.parameters[name].unit, number(result.parameters[name].value), *cells))
    columns = (*left("parameter", "unit"), *right("value", "by std: from", "to", "by profile: from", "to"))
    caption = f"by profile: the cost, minimised over all other parameters, rises by {RISE:.2f} noise units"
    table = Table("", columns, tuple(rows), caption)
    figure = Picture("profiles", drawn_by(f"{_FIGURES}:profile_figure", result))
    return section("95 % intervals along profiles of the cost", (table, figure))


def free_values(result: Result) -> list[tuple[str, str]]:
    """Label and name of the free parameters, one per group of tied ones."""
    return [
        (names[0] if len(names) == 1 else f"{names[0]} ({len(names)} tied)", names[0])
        for names in result.study.free.tied
    ]


def on_bound(p: Parameter) -> bool:
    """Whether the value of a parameter is on one of its bounds."""
    # exp(log(bound)) may differ from the bound in the last digits
    return any(math.isclose(p.value, bound) for bound in (p.lower, p.upper))


def _error(p: Parameter, true: float) -> str:
    """Error of a parameter, %; "bound" where true and identified value are both on a bound."""
    relative = p.value / true - 1.0
    if abs(relative) > 1e-11:
        return percent(100.0 * relative, signed=True)
    if not math.isfinite(p.std):
        return "-"  # not identified: it kept the initial value
    return "bound" if on_bound(p) else "<1e-9"


def draws_sections(draws: Draws, result: Result, what: str) -> list[Section]:
    """Identified values, their standard deviations, and scatter, bias and coverage over the draws.

    Args:
        draws: fits to data drawn about the identified machine.
        result: the identification.
        what: description of the draws, for the caption.
    """
    interval = draws.interval()
    rows = []
    for k, name in enumerate(draws.names):
        parameter, log = result.parameters[name], bool(draws.logarithmic[k])
        scale = 100.0 if log else 1.0
        rows.append((
            name, parameter.unit, number(parameter.value), _size(scale * (parameter.std_log if log else parameter.std)),
            _size(scale * draws.scatter[k]), _size(scale * draws.bias[k]), number(interval[k, 0]),
            number(interval[k, 1]), f"{100.0 * draws.coverage[k]:.0f}",
        ))  # fmt: skip
    columns = (
        *left("parameter", "unit"), *right("value", "std", "scatter", "bias"),
        *right("from", "to", minor=1), *right("covered %"),
    )  # fmt: skip
    failed = len(draws.converged) - int(draws.converged.sum())
    caption = (
        f"std of the fit, scatter and bias of {len(draws.converged)} fits to {what}, in % for logarithmic parameters;"
        " from, to: central 95 % of the fits; covered: share of their 95 % intervals that contain the value drawn from"
        + (f"; {failed} fits did not converge and are excluded" if failed else "")
    )
    return section("Draws", (Table("", columns, tuple(rows), caption),))


def _size(value: float) -> str:
    return number(float(value), 2) if np.isfinite(value) else "-"


PAPER = "Huynh et al. 2020"


def parameters_table(columns: Mapping[str, Mapping[str, float]]) -> Table:
    """Table 5: one row per parameter of the last column, one column per machine; SI units.

    Args:
        columns: heading -> parameters by name.
    """
    names = list(columns.values())[-1]
    rows = tuple((name, *(f"{values[name]:.3g}" for values in columns.values())) for name in names)
    return Table(f"Parameters in SI units (layout of {PAPER}, Table 5)", (*left(""), *right(*columns)), rows)


def modes_table(name: str, columns: Mapping[str, ModePairs]) -> Table:
    """Table 6: frequencies, damping ratios, the mean errors of both, and MACs; one column per machine.

    "/" marks cells without a pair. Modes in the band without a measured partner follow at the end.

    Args:
        name: of the test.
        columns: heading -> the machine's modes paired with the same reference.
    """
    reference = next(iter(columns.values())).reference
    ordered, rows = [in_order(pairs) for pairs in columns.values()], []
    shown = np.asarray(reference.damped_frequency_hz), 100.0 * np.asarray(reference.damping_ratio)
    for label, unit, values, of_fitted in (
        ("f", "Hz", shown[0], [b.frequency_hz for b in ordered]),
        ("damping ", "%", shown[1], [b.damping_percent for b in ordered]),
    ):
        for m, value in enumerate(values):
            rows.append((f"{label}{m + 1} [{unit}]", f"{value:.2f}", *(_cell(fitted[m], 2) for fitted in of_fitted)))
        rows.append((f"mean error [{unit}]", "/", *(_cell(mean_error(values, fitted), 3) for fitted in of_fitted)))
    if reference.shape.shape[0] > 1:
        rows += [(f"MAC {m + 1}", "/", *(_cell(b.mac[m], 3) for b in ordered)) for m in range(shown[0].size)]
    for k in range(max(len(b.alone) for b in ordered)):
        rows.append(("not measured [Hz]", "/", *(b.alone[k] if k < len(b.alone) else "/" for b in ordered)))
    return Table(f"Modes, {name} (layout of {PAPER}, Table 6)", (*left(""), *right("measured", *columns)), tuple(rows))


class InOrder(NamedTuple):
    """A machine's modes in the order of the reference [mode], NaN for unpaired modes of the reference."""

    frequency_hz: np.ndarray
    damping_percent: np.ndarray
    mac: np.ndarray
    alone: list[str]
    """Damped frequencies of the machine's unpaired modes, Hz."""


def in_order(pairs: ModePairs) -> InOrder:
    """A machine's modes in the order of the reference."""
    fitted, count = pairs.fitted, pairs.reference.frequency_hz.size
    frequency_hz, damping_percent, mac = (np.full(count, np.nan) for _ in range(3))
    for f, m in enumerate(pairs.partner):
        if m is not None:
            frequency_hz[m] = fitted.damped_frequency_hz[f]
            damping_percent[m] = 100.0 * fitted.damping_ratio[f]
            mac[m] = pairs.likeness[f, m]
    alone = [f"{float(fitted.damped_frequency_hz[f]):.2f}" for f, m in enumerate(pairs.partner) if m is None]
    return InOrder(frequency_hz, damping_percent, mac, alone)


def mean_error(reference: np.ndarray, fitted: np.ndarray) -> float:
    """Mean absolute difference over the paired modes; NaN without pairs."""
    both = np.isfinite(fitted)
    return float(np.mean(np.abs(fitted - reference)[both])) if both.any() else float("nan")


def _cell(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if np.isfinite(value) else "/"
