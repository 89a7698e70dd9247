"""Parameters in a report: tables and figures of values, uncertainty budgets, further springs, correlations, profiles,
draws and cost."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from jaxmb.identify.assess.budget import ParameterBudget
from jaxmb.identify.assess.result import Outcome, Parameter, Result
from jaxmb.identify.assess.uncertainty.monte_carlo import Draws
from jaxmb.identify.assess.uncertainty.nonlinear import RISE
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.identify.study.study import Solver, Study
from jaxmb.io.validation import listed
from jaxmb.machine.families import OF_GEOMETRY, STATION
from jaxmb.report.charts import (
    ALERT,
    FITTED,
    INITIAL,
    TRUE,
    Axis,
    Bars,
    Chart,
    Colors,
    Line,
    Mark,
    Panel,
    Rule,
    in_grid,
    matrix_panel,
    named_rows,
    single,
)  # fmt: skip
from jaxmb.report.section import (
    GEOMETRY_UNITS,
    Cell,
    Lines,
    Picture,
    Section,
    Table,
    left,
    number,
    percent,
    right,
    section,
    short,
    std_percent,
    table,
)

STRONG = 0.9
"""Smallest absolute correlation that is listed."""
MOST_PAIRS, MOST_SPRINGS = 5, 8


def parameter_sections(result: Result) -> list[Section]:
    """Sections on the identified parameters and on those identifiable only in combination."""
    if result.study.solver is Solver.STIFFNESS_MODEL:
        return []
    is_known = any(p.interval_95 is not None for *_, p in free_values(result))
    together = together_lines(result)
    return section(
        "Parameters",
        (
            parameter_table(result),
            Lines(tuple(together)) if together else None,
            Picture("parameters", partial(parameter_chart, result)) if is_known else None,
        ),
    )


def parameter_table(result: Result) -> Table:
    """Identified parameters: value (* on a bound), standard deviation, initial value, bounds, identifiability."""
    truth, values = result.study.truth, free_values(result)
    rows = [
        (
            label, p.unit, f"{'*' if is_on_bound(p) else ''}{number(p.value)}", number(p.std, 2),
            std_percent(100.0 * p.std_log), _error(p, truth[name]) if truth.get(name) else None, number(p.initial),
            short(p.lower), short(p.upper), Cell(p.identifiable, p.identifiable),
        )
        for label, name, p in values
    ]  # fmt: skip
    columns = (
        *left("parameter", "unit"), *right("value", "std"), *right("std %", minor=1),
        *right("error %"), *right("initial", minor=2), *right("lower", "upper", minor=3),
        *left("identifiable"),
    )  # fmt: skip
    starred = any(is_on_bound(p) for *_, p in values)
    return table("", columns, rows, verdict_legend(result.study, "data") + ("; * on a bound" if starred else ""))


def verdict_legend(study: Study, data: str) -> str:
    """Legend of "yes", "weak" and "no" in a study, of which `data` names the data or the planned tests."""
    free, prior = study.free, study.problem.prior
    if prior is not None:
        line = f"identifiable: yes where the {data} halve the prior's std, weak where they reduce it by 5 %, else no"
        if not np.isfinite(np.asarray(prior.std)).all():
            line += "; without a prior yes where std is below 10 %, weak below 100 %"
    else:
        linear = "" if all(free.logarithmic) else " (linear scale: of the width of the bounds)"
        line = f"identifiable: yes where std is below 10 %{linear}, weak below 100 %, else no"
    some = [f"{n} {percent(100.0 * x)} %" for n, x in zip(free.names, free.needed, strict=True) if x > 0.0]
    return line + (f"; needed, and ten times that for weak: {listed(some)}" if some else "")


def together_lines(result: Result) -> list[str]:
    """A line for each combination of parameters that is weakly or not identifiable."""
    lines = []
    # a single parameter has its own standard deviation
    for group in (each for each in result.metrics.known_together or () if len(each.parameters) > 1):
        if group.dimension > 1:
            text = f"{', '.join(group.parameters)} ({group.dimension} directions)"
        else:
            text = "  ".join(f"{size:+.2f} {name}" for name, size in group.parameters.items())
        lines.append(
            f"identifiable only in combination: {text}, std of this sum due to noise {percent(100.0 * group.std)} %"
            if math.isfinite(group.std)
            else f"not identifiable: {text}"
        )
    return lines


NAMED = 2
"""Sources of a parameter's uncertainty in the table."""
NOTABLE = 0.1
"""Part of a standard deviation from which a source is named."""


def budget_table(
    free: FreeParameters, known: Mapping[str, tuple[float, str, float]], budgets: Mapping[str, ParameterBudget]
) -> Table | Lines:
    """Parts of standard deviations: noise, and the tolerances of machine and tests; of parameters on a logarithmic
    scale over their value, of others, whose value may be 0, in their unit.

    Args:
        free: the free parameters.
        known: value, SI, unit and standard deviation, SI, of those that are listed.
        budgets: of these.
    """
    finite = {name: each for name, each in known.items() if math.isfinite(each[2])}
    if not finite:
        return Lines(("no standard deviation is known",))
    rows, logarithmic = [], dict(zip(free.names, free.logarithmic, strict=True))
    for name, (value, unit, std) in finite.items():
        own, factor, text = budgets[name], 1.0, partial(number, digits=2)
        if logarithmic[name]:
            factor, unit, text = 100.0 / value, "%", std_percent
        elif name.split(".")[0] in (*OF_GEOMETRY, STATION):
            factor, unit = GEOMETRY_UNITS[unit]
        sources = [
            f"{each.source} {text(factor * each.std)}"
            for each in own.sources[:NAMED]
            if each.std >= NOTABLE * (own.tolerances or 0.0)
        ]
        parts = ["-" if part is None else text(factor * part) for part in (std, own.noise, own.tolerances)]
        rows.append((name, unit, *parts, ", ".join(sources)))
    columns = (*left("parameter", "unit"), *right("std", "noise", "tolerances"), *left("largest sources"))
    caption = (
        "%: of the value; noise: also of a misfit that no tolerance explains; tolerances: [tolerances] of the study,"
        " else those usual in the field; sources: to first order"
    )
    if unknown := len(known) - len(finite):
        caption += f"; {unknown} parameter{'s' if unknown > 1 else ''} of unknown standard deviation left out"
    return Table("", columns, tuple(rows), caption)


def budget_sections(result: Result) -> list[Section]:
    """Section on the parts of each standard deviation; empty where all that is stated is exact."""
    known, budgets = {name: (p.value, p.unit, p.std) for _, name, p in free_values(result)}, result.metrics.uncertainty
    return section(
        "Uncertainty budget", (None if budgets is None else budget_table(result.study.free, known, budgets),)
    )


def further_spring_sections(result: Result) -> list[Section]:
    """Section on springs that would lower the residual; empty where there are none."""
    rows = [
        (spring.place, number(spring.stiffness), spring.unit, percent(100.0 * spring.explains))
        for spring in (result.metrics.further_springs or ())[:MOST_SPRINGS]
    ]
    springs = Table(
        "",
        (*left("spring"), *right("stiffness"), *left("unit"), *right("explains %")),
        tuple(rows),
        "explains: part of the misfit beyond noise, each spring fitted alone beside the free parameters; another"
        " error may explain more",
    )
    return section("Springs that the machine may lack", (springs,) if rows else ())


def correlation_sections(result: Result) -> list[Section]:
    """Section on pairs of strongly correlated parameters with the correlation matrix; empty without such pairs."""
    names = result.study.free.names
    if result.study.solver.is_linear:
        return []
    known = [i for i, name in enumerate(names) if math.isfinite(result.parameters[name].std)]
    pairs = [(result.correlation[i, j], names[i], names[j]) for i in known for j in known if i < j]
    strong = sorted((pair for pair in pairs if abs(pair[0]) >= STRONG), key=lambda pair: -abs(pair[0]))
    lines = [f"correlation {r:+.3f}: {a}, {b}" for r, a, b in strong[:MOST_PAIRS]]
    if len(strong) > MOST_PAIRS:
        lines.append(f"and {len(strong) - MOST_PAIRS} more pairs above {STRONG:g}")
    figure = Picture("correlation", partial(correlation_chart, result))
    return section("Correlation of the parameters", (Lines(tuple(lines)), figure) if strong else ())


def profile_sections(result: Result) -> list[Section]:
    """95 % intervals by the standard deviation and by the profile; a dash where the cost does not rise enough."""
    rows = [
        (
            name, result.parameters[name].unit, number(result.parameters[name].value),
            *("-" if end is None else number(end) for end in (*profile.linear_interval, *profile.interval)),
        )
        for name, profile in (result.metrics.profiles or {}).items()
    ]  # fmt: skip
    table = Table(
        "",
        (*left("parameter", "unit"), *right("value", "by std: from", "to", "by profile: from", "to")),
        tuple(rows),
        f"by profile: the cost, minimized over all other parameters, rises by {RISE:.2f} noise units",
    )
    figure = Picture("profiles", partial(profile_chart, result))
    return section("95 % intervals along profiles of the cost", (table, figure) if rows else ())


def free_values(result: Result) -> list[tuple[str, str, Parameter]]:
    """Label, name and value of the free parameters, one per group of tied ones; stations of pose tests have a table
    there."""
    tied = (names for names in result.study.free.tied if names[0].split(".")[0] != STATION)
    return [(tied_label(names), names[0], result.parameters[names[0]]) for names in tied]


def tied_label(names: Sequence[str]) -> str:
    """Label of a free parameter from its name and those of the ones tied to it."""
    return names[0] if len(names) == 1 else f"{names[0]} ({len(names)} tied)"


def is_on_bound(p: Parameter) -> bool:
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
    return "bound" if is_on_bound(p) else "<1e-9"


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


LARGEST_FACTOR = 1e3
"""Factor at the ends of the logarithmic axis; intervals are cut there."""


def cost_chart(result: Result) -> Chart:
    """Best cost against evaluations."""
    drawn = [(max(n, 1), cost) for n, cost in result.history if np.isfinite(cost) and cost > 0.0]
    initial = result.initial_cost
    start = [(1, initial)] if np.isfinite(initial) and initial > 0.0 else []
    curve = np.array(start + drawn, dtype=float).reshape(-1, 2)
    n, cost = curve.T
    low, high, tolerance = cost.min(initial=np.inf), cost.max(initial=0.0), result.study.settings.tolerance
    size = 2.5 if len(drawn) <= 60 else 1.5
    marks: list[Mark] = [
        Line(n, cost, steps=True, width=1.2),
        Line(n[len(start) :], cost[len(start) :], "best so far", width=0.0, dashes="", marker="o", size=size),
    ]
    if start:
        marks.append(Line(n[:1], cost[:1], "initial values", INITIAL, 1.4, "", "D", 5.0, filled=False, beyond=True))
    if low / 10.0 <= tolerance <= 10.0 * high:
        marks.append(Rule(tolerance, "y", "tolerance", ALERT, 0.9, "--"))
    log = bool(curve.size)  # a logarithmic axis needs positive data
    # less than a decade has one labelled tick or none
    limits = (low / 2.0, 3.0 * high) if log and high / low < 10.0 else None
    y = Axis("cost" if result.study.problem.prior is None else "cost, prior included", log, limits)
    count = sum(result.evaluations.get(part, 0) for part in ("search", "refine"))
    ended = "converged" if result.outcome is Outcome.NOT_IDENTIFIED else result.outcome
    return single(
        Panel(marks, Axis("evaluations of the cost", log), y),
        f"{result.study.name}: {ended} after {count} evaluations",
        "Smallest cost found so far against the number of evaluations of the cost.",
        4.0,
    )


class Scale(NamedTuple):
    """Axis of a panel; sorts in the order of the panels."""

    kind: int
    """0: relative change in %; 1: factor on the value, logarithmic; 2: the value itself, which may be 0."""
    unit: str
    decade: int
    """The axis ends at 10^decade."""

    @property
    def ends(self) -> tuple[float, float]:
        """Lower and upper end of the axis."""
        largest = LARGEST_FACTOR if self.kind == 1 else 10.0**self.decade
        return (1.0 / largest, largest) if self.kind == 1 else (-largest, largest)

    def along(self, x: float, value: float) -> float:
        """Position on the axis of a value x, relative to the identified value."""
        return x if self.kind == 2 else x / value if self.kind == 1 else 100.0 * (x / value - 1.0)


def scale_of(value: float, interval: tuple[float, float], unit: str) -> Scale:
    """The axis on which an interval covers at least a twentieth of the width."""
    low, high = interval
    if low * high > 0.0:
        relative = max(abs(low / value - 1.0), abs(high / value - 1.0))
        return Scale(0, "%", math.ceil(math.log10(max(100.0 * relative, 1e-12)))) if relative < 1.0 else Scale(1, "", 0)
    return Scale(2, unit, math.ceil(math.log10(max(abs(low), abs(high), 1e-12))))


LABELS = {"yes": "identified, 95 %", "weak": "weakly identified", "no": "not identifiable"}
MARKERS = {"yes": ("o", True), "weak": ("o", False), "no": ("x", True)}
"""Marker of a parameter by its verdict, and whether it is filled."""
BEYOND = "#e0e0e0"
MOST_LISTED = 12
"""Largest number of parameters without an interval that are named."""


def parameter_chart(result: Result) -> Chart:
    """95 % intervals of the identified parameters with the true values, each on a scale of its magnitude.

    One panel per magnitude of the interval: relative change in %, factor where the interval is wider than the value,
    absolute value where it contains 0. Parameters without an interval are listed below.
    """
    panels: dict[Scale, list[tuple[str, str]]] = {}
    values = free_values(result)
    for label, name, p in values:
        if p.interval_95 is not None:
            panels.setdefault(scale_of(p.value, p.interval_95, p.unit), []).append((label, name))
    unknown = [label for label, _, p in values if p.interval_95 is None]
    certain = sum(p.identifiable == "yes" and p.interval_95 is not None for *_, p in values)
    apart = ", stations apart" if len(values) < len(result.study.free.tied) else ""
    return Chart(
        f"{result.study.name}: {certain} of {len(values)} parameters identified{apart}",
        (
            "95 % intervals, each panel on a scale of its own about the identified values; grey is beyond the bounds"
            + (", green the true value." if result.study.truth else ".")
        ),
        [[(interval_panel(result, scale, panels[scale]),)] for scale in sorted(panels)],
        5.0,
        note=f"no interval: {listed(unknown, MOST_LISTED)}" if unknown else "",
    )


def _panel_ends(result: Result, scale: Scale, names: list[tuple[str, str]]) -> tuple[float, float]:
    """Ends of the axis of a panel: 1, 2 or 5 times a power of ten, beyond its intervals and near true values."""
    if scale.kind == 1:
        return scale.ends
    found = [(result.parameters[name], result.study.truth.get(name)) for _, name in names]
    drawn = [
        abs(scale.along(x, p.value))
        for p, true in found
        for x in (*(p.interval_95 or ()), p.value if true is None else true)
    ]
    largest = scale.ends[1]
    end = next((part * largest for part in (0.2, 0.5) if part * largest >= max(drawn)), largest)
    return -end, end


def interval_panel(result: Result, scale: Scale, names: list[tuple[str, str]]) -> Panel:
    """Intervals of parameters on one scale."""
    left, right = _panel_ends(result, scale, names)
    found = [result.parameters[name] for _, name in names]
    rows = np.arange(len(names))
    bounds = np.sort(np.clip([[scale.along(x, p.value) for x in (p.lower, p.upper)] for p in found], left, right))
    beyond = "beyond the bounds" if np.any(bounds != (left, right)) else ""
    marks: list[Mark] = [
        Bars(rows, np.full(rows.size, left), bounds[:, 0], "x", 0.7, beyond, BEYOND),
        Bars(rows, bounds[:, 1], np.full(rows.size, right), "x", 0.7, "", BEYOND),
    ]
    at = np.array([scale.along(p.value, p.value) for p in found])
    ends = np.sort(np.clip([[scale.along(x, p.value) for x in p.interval_95 or ()] for p in found], left, right))
    verdicts = np.array([p.identifiable for p in found])
    for verdict in (each for each in LABELS if each in verdicts):
        own, (marker, filled), label = verdicts == verdict, MARKERS[verdict], LABELS[verdict]
        reach = np.abs(ends[own] - at[own, None]).T
        look = (label, FITTED, 1.4, "", marker, 3.5, filled)
        marks.append(Line(at[own], rows[own], *look, reach=reach, along="x", cap=2.5))
    for row, ((_, name), p) in enumerate(zip(names, found, strict=True)):
        if name in result.study.truth:
            true = scale.along(result.study.truth[name], p.value)
            marker, size = (">", 5.0) if true > right else ("<", 5.0) if true < left else ("|", 9.0)
            marks.append(Line([np.clip(true, left, right)], [row], "true", TRUE, 0.0, "", marker, size, beyond=True))
    kinds = ("change from the identified value (%)", "factor on the identified value", f"value ({scale.unit})")
    ticks = None if scale.kind == 1 else [left, left / 2.0, 0.0, right / 2.0, right]
    texts = None if ticks is None else [f"{'-' if x < 0.0 else ''}{short(abs(x)) if x else '0'}" for x in ticks]
    labels = [
        f"{label}  {number(p.value)} {p.unit}".removesuffix(" 1") for (label, _), p in zip(names, found, strict=True)
    ]
    x = Axis(kinds[scale.kind], scale.kind == 1, (left, right), ticks, texts)
    return Panel(marks, x, named_rows(labels), height=0.22 * len(names) + 0.1)


MOST_NUMBERS = 12
"""Largest number of parameters for which the cells have numbers."""


def correlation_chart(result: Result) -> Chart:
    """Correlation matrix of the free parameters."""
    names, matrix = result.study.free.names, result.correlation
    unknown = [i for i, name in enumerate(names) if not np.isfinite(result.parameters[name].std)]
    labels = [f"{name} *" if i in unknown else name for i, name in enumerate(names)]
    few = len(names) <= MOST_NUMBERS
    colors = Colors("RdBu_r", (-1.0, 1.0), "correlation")
    size = 0.27 * (1.4 if few else 1.0)
    apart = np.abs(matrix - np.diag(np.diag(matrix)))
    i, j = np.unravel_index(int(np.nanargmax(apart)), apart.shape)
    starred = "; * not identifiable" if unknown else ""
    return single(
        matrix_panel(matrix, labels, labels, colors, cell=size, decimals=2 if few else None),
        f"{result.study.name}: strongest correlation {matrix[i, j]:+.2f}, {names[i]} and {names[j]}{starred}",
        "Correlation of the free parameters; parameters of strong colour are determined in combination only.",
        size * len(names),
    )


NARROW = 0.3
"""Range of the values relative to the identified one below which relative changes are drawn."""


def profile_chart(result: Result) -> Chart:
    """Rise of the cost along each profiled parameter, minimized over all others, with that implied by its std."""
    profiles, cells = result.metrics.profiles or {}, []
    for name, profile in profiles.items():
        values, identified = profile.values, result.parameters[name].value
        true = result.study.truth.get(name)
        narrow = identified != 0.0 and np.ptp(values) < NARROW * abs(identified)
        if narrow:  # numbers that differ only in their last digits are illegible
            values = 100.0 * (values / identified - 1.0)
            true = None if true is None else 100.0 * (true / identified - 1.0)
        marks: list[Mark] = [
            Rule(RISE, "y", "95 %", ALERT, 0.9, "--"),
            Line(values, profile.expected, "implied by the standard deviation", "#f5c76f", 4.0),
            Line(values, profile.rise, "minimized over all others", FITTED, 1.1, marker="o", size=2.5),
            *([] if true is None else [Rule(true, "x", "true", TRUE, 1.1)]),
        ]
        log = result.is_logarithmic(name) and not narrow and values.max() > 3.0 * values.min()
        x = Axis("change from the identified value (%)" if narrow else result.parameters[name].unit, log)
        y = Axis("" if len(cells) % 3 else "rise of the cost (noise units)", limits=(-0.3, 3.0 * RISE))
        cells.append((Panel(marks, x, y, name, 1.7),))
    wider = [name for name, p in profiles.items() if None in p.interval]
    return Chart(
        f"{result.study.name}: "
        + (f"the cost does not bound {', '.join(wider)}" if wider else "the cost bounds all profiled parameters"),
        "Rise of the cost along each parameter; the 95 % interval is where the blue curve is below the dashed line.",
        in_grid(cells, 3),
        2.2,
    )
