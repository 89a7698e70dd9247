"""Tables of the identified parameters, of parameters identifiable only in combination, and of correlations."""

import math

import numpy as np

from jaxmb.identify.assess.result import Parameter, Result
from jaxmb.identify.assess.uncertainty.profile import RISE
from jaxmb.report.cells import deviation, number, percent, short
from jaxmb.report.section import Cell, Lines, Picture, Section, Table, drawn_by, left, right, section

_FIGURES = "jaxmb.report.parameters"
STRONG = 0.9
"""Smallest absolute correlation that is listed."""
MOST_PAIRS = 5


def parameter_sections(result: Result) -> list[Section]:
    """Sections on the identified parameters and on those identifiable only in combination."""
    if result.study.complete is not None:
        return []
    figure = Picture("parameters", drawn_by(f"{_FIGURES}.parameter_figure:parameter_figure", result))
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
    figure = Picture("correlation", drawn_by(f"{_FIGURES}.correlation_figure:correlation_figure", result))
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
    figure = Picture("profiles", drawn_by(f"{_FIGURES}.profile_figure:profile_figure", result))
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
