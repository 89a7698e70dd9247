"""Parameter laws of a report: table and figure of each law."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from jaxmb.identify.assess.laws.law_problem import Laws, ValueInTest, covariates, in_tests
from jaxmb.identify.assess.laws.one_model import OneModel
from jaxmb.identify.assess.result import INTERVAL, Result
from jaxmb.identify.study.format.study_format import AMPLITUDE, LOAD
from jaxmb.identify.study.law_terms import Term
from jaxmb.report.charts import FITTED, TRUE, Axis, Chart, Intervals, Line, Mark, Panel, Rule
from jaxmb.report.section import Lines, Part, Picture, Section, Table, chance, left, number, percent, right, section

MOST_ROWS = 5
"""Largest number of listed parameters, in order of the misfit they explain."""


def law_sections(result: Result) -> list[Section]:
    """Section on the consistency of one model with all tests and on the laws considered; empty for a single test."""
    found, laws = result.metrics.one_model, result.metrics.laws
    parts: list[Part | None] = [None if found is None else one_model_part(found, len(result.study.tests))]
    if laws is not None:
        parts.append(law_table(laws))
        parts.append(Picture("laws", partial(law_chart, result, laws)))
    return section("Is one model consistent with all tests?", parts)


def one_model_part(found: OneModel, tests: int) -> Lines | Table:
    """A line if one model is consistent with all tests, else a table of the parameters that would have to vary."""
    size = f"the residual is {number(found.residual_over_noise, 3)} times the noise"
    if found.is_consistent:
        return Lines((f"one model is consistent with all {tests} tests: {size}",))
    rows = []
    for line in found.parameters[:MOST_ROWS]:
        residual = "-" if line.residual is None else number(line.residual, 3)
        variation, drop = percent(100.0 * line.spread), number(line.drop, 3)
        rows.append((line.parameter, variation, residual, drop, str(line.degrees), chance(line.p_holm)))
    every = found.separate
    rows.append(("all of them", "", "", number(every.drop, 3), str(every.degrees), chance(every.p)))
    columns = (
        *left("varying parameter"),
        *right("variation %", "residual / noise", "drop of chi2", "degrees", "p, corrected"),
    )
    return Table(f"One model is not consistent with all {tests} tests: {size}", columns, tuple(rows))


def law_table(laws: Laws) -> Table:
    """All candidate terms that were cross-validated, with a star for selected ones."""
    selected = {(line.parameter, line.term): line for line in laws.chosen}
    rows = [("", "one model", "", "", "", "", number(laws.holdout.without, 4))]
    for line in laws.considered:
        if line.holdout_error is None:
            continue
        if line.taken:
            chosen = selected[line.parameter, line.term]
            value, std = chosen.coefficient, chosen.std
        else:
            value, std = line.coefficient, abs(line.coefficient / line.z) if line.z else float("nan")
        rows.append(
            (
                f"{line.step}{'*' if line.taken else ''}", line.parameter, line.term, number(value),
                number(std, 2), chance(line.p), number(line.holdout_error, 4),
            )
        )  # fmt: skip
    columns = (
        *left("step", "parameter", "term"),
        *right("coefficient", "std", "p, corrected", "hold-out error / noise"),
    )
    title = f"Laws of {', '.join(laws.by)}: ln parameter = ... + coefficient x term"
    return Table(title, columns, tuple(rows), "* selected" if laws.chosen else "")


MOST_PANELS = 4
SINGLE, LIGHT = "#404040", "#a6cae3"
WIDEST = 0.5
"""Standard deviation of the logarithm above which the estimate from a single test is not drawn."""


def law_chart(result: Result, laws: Laws) -> Chart:
    """Each parameter against the covariate of its law: the law, the estimate from each single test, and the true value
    if it is known.

    The lower panels show the relative deviations from the law with 95 % intervals. Terms in other covariates are
    divided out. If no law was selected, the best candidate is shown at its constant value.
    """
    cells = [_cell(result, laws, parameter, by) for parameter, by in _panels(laws)]
    errors = laws.holdout
    title = f"{result.study.name}: held-out tests {number(errors.without, 3)} times the noise with one model"
    if laws.chosen:
        title += f", {number(errors.with_, 3)} with the {'law' if len(laws.chosen) == 1 else 'laws'}"
    caption = (
        "Each parameter against the covariate of its law, from all tests together and from single tests; below, the"
        " deviations of single tests from the law with 95 % intervals."
    )
    return Chart(title, caption, [cells], 3.1)


def _panels(laws: Laws) -> list[tuple[str, str]]:
    shown = [(line.parameter, line.by) for line in laws.chosen or laws.considered[:1]]
    return list(dict.fromkeys(shown))[:MOST_PANELS]


def _cell(result: Result, laws: Laws, parameter: str, by: str) -> tuple[Panel, Panel]:
    study, lines = result.study, laws.values[parameter]
    terms = [(line, line.coefficient) for line in laws.chosen if line.parameter == parameter]
    mine = [(term, c) for term, c in terms if term.by == by]
    others = np.exp(np.sum([c * in_tests(study, term) for term, c in terms if term.by != by] or [[0.0]], axis=0))
    x = covariates(study, Term(parameter, by, "linear", 1.0, 0.0))
    angle = by not in (AMPLITUDE, LOAD) and bool(study.model.revolute[study.model.coordinates.index(by)])
    unit = 180.0 / np.pi if angle else 1.0
    dense = np.linspace(x.min() - 0.05 * np.ptp(x), x.max() + 0.05 * np.ptp(x), 200)
    axis = Axis(_axis(result, parameter, by, angle))
    if by == AMPLITUDE:
        levels = np.unique(x) if np.unique(x).size <= 8 else np.geomspace(x.min(), x.max(), 5)
        dense = np.geomspace(x.min() / 1.05, x.max() * 1.05, 200)
        axis = Axis(axis.label, True, ticks=levels, names=[f"{level:.3g}" for level in levels])
    curve = laws.centre[parameter] * np.exp(sum((c * term.value(dense) for term, c in mine), np.zeros(dense.size)))
    law, own, std, law_std = (_column(lines, key) for key in ("law", "own", "own_std_log", "law_std_log"))
    narrow = np.isfinite(own) & (std < WIDEST)
    points = own / others
    ends = np.abs(np.exp(np.array([[-1.0], [1.0]]) * INTERVAL * std) - 1.0) * points
    label = "law" if laws.chosen else "one value for all tests"
    above: list[Mark] = [
        Line(unit * dense, curve, label, FITTED, 1.4),
        Intervals(unit * x[narrow], points[narrow], ends[:, narrow], "y", "single tests, 95 %", SINGLE),
    ]
    band = 100.0 * np.minimum(INTERVAL * law_std, 10.0)
    percent = 100.0 * (own / law - 1.0)
    reach = (100.0 * ends / (law / others))[:, narrow]
    below: list[Mark] = [
        Rule(0.0, "y", "", FITTED, 1.4),
        Intervals(unit * x, np.zeros(x.size), band, "y", "95 % of the law", LIGHT, 4.0, ""),
        Intervals(unit * x[narrow], percent[narrow], reach, "y", "single tests, 95 %", SINGLE, cap=2.0),
    ]
    truth, order = _column(lines, "truth"), np.argsort(x)
    if np.isfinite(truth).all():
        true = (truth / others)[order]
        above.append(Line(unit * x[order], true, "true", TRUE, 1.0, "--", "D", 4.5, filled=False))
        apart = (100.0 * (truth / law - 1.0))[order]
        below.append(Line(unit * x[order], apart, "", TRUE, 1.0, "", "D", 4.5, filled=False))
    value = Axis(f"{parameter} ({result.parameters[parameter].unit})")
    deviation = Axis("deviation from the\nlaw (%)" if mine else "deviation from\none value (%)")
    return Panel(above, axis, value, height=2.0), Panel(below, axis, deviation, height=1.2)


def _axis(result: Result, parameter: str, by: str, angle: bool) -> str:
    if by == AMPLITUDE:
        return "amplitude"
    if by == LOAD:
        joint = parameter.split(".", 1)[1]
        turns = result.study.model.revolute[result.study.model.coordinates.index(joint)]
        return f"gravity load on {joint} ({'N m' if turns else 'N'})"
    return f"{by} ({'deg' if angle else 'm'})"


def _column(lines: Sequence[ValueInTest], field: str) -> np.ndarray:
    return np.array([getattr(line, field) for line in lines], dtype=float)  # None becomes NaN
