"""Parameter laws of a report: table and figure of each law."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from jaxmb.identify.assess.laws.law_problem import Laws, ValueInTest, covariates, in_tests
from jaxmb.identify.assess.laws.one_model import OneModel
from jaxmb.identify.assess.result import Result
from jaxmb.identify.study.format.study_format import AMPLITUDE, LOAD
from jaxmb.identify.study.law_terms import Term
from jaxmb.report.section import (
    Lines,
    Part,
    Picture,
    Section,
    Table,
    chance,
    left,
    number,
    percent,
    right,
    section,
)
from jaxmb.report.style import FITTED, MEASURED, TRUE

MOST_ROWS = 5
"""Largest number of listed parameters, in order of the misfit they explain."""


def law_sections(result: Result) -> list[Section]:
    """Section on the consistency of one model with all tests and on the laws considered; empty for a single test."""
    found, laws = result.metrics.one_model, result.metrics.laws
    parts: list[Part | None] = [None if found is None else one_model_part(found, len(result.study.tests))]
    if laws is not None:
        parts.append(law_table(laws))
        parts.append(Picture("laws", partial(law_figure, result, laws)))
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


INTERVAL = 1.96
"""Half width of the 95 % interval of a normal distribution, standard deviations."""
MOST_PANELS = 4
WIDEST = 0.5
"""Standard deviation of the logarithm above which the estimate from a single test is not drawn."""


def law_figure(result: Result, laws: Laws) -> Figure:
    """Each parameter against the covariate of its law: the law, the estimate from each single test, and the true value
    if it is known.

    The lower panels show the relative deviations from the law with 95 % intervals. Terms in other covariates are
    divided out. If no law was selected, the best candidate is shown at its constant value.
    """
    panels = _panels(laws)
    figure = Figure(figsize=(max(1.2 + 3.3 * len(panels), 4.8), 4.4), layout="constrained")
    grid = figure.subplots(2, len(panels), sharex="col", squeeze=False, height_ratios=(1.7, 1.0))
    for (above, below), (parameter, by) in zip(grid.T, panels, strict=True):
        _panel(above, below, result, laws, parameter, by)
    handles = [
        Line2D([], [], color=FITTED, lw=1.4, label="law" if laws.chosen else "one value for all tests"),
        Line2D([], [], color=FITTED, lw=4.0, alpha=0.35, label="its 95 %"),
        Line2D([], [], color="black", ls="", marker="o", ms=4, mfc=MEASURED, label="single tests, 95 %"),
    ]
    if any(line.truth is not None for lines in laws.values.values() for line in lines):
        handles.append(Line2D([], [], color=TRUE, lw=1.0, ls="--", marker="D", ms=4.5, mfc="none", label="true"))
    errors = laws.holdout
    title = f"{result.study.name}\nheld-out tests: {number(errors.without, 3)} times the noise with one model"
    if laws.chosen:
        title += f", {number(errors.with_, 3)} with the {'law' if len(laws.chosen) == 1 else 'laws'}"
    figure.legend(handles=handles, loc="outside upper center", ncols=2, title=title, title_fontsize=8)
    return figure


def _panels(laws: Laws) -> list[tuple[str, str]]:
    shown = [(line.parameter, line.by) for line in laws.chosen or laws.considered[:1]]
    return list(dict.fromkeys(shown))[:MOST_PANELS]


def _panel(above: Axes, below: Axes, result: Result, laws: Laws, parameter: str, by: str) -> None:
    study, lines = result.study, laws.values[parameter]
    terms = [(line.as_term(), line.coefficient) for line in laws.chosen if line.parameter == parameter]
    mine = [(term, c) for term, c in terms if term.by == by]
    others = np.exp(np.sum([c * in_tests(study, term) for term, c in terms if term.by != by] or [[0.0]], axis=0))
    x = covariates(study, Term(parameter, by, "linear", 1.0, 0.0))
    angle = by not in (AMPLITUDE, LOAD) and study.model.revolute[study.model.coordinates.index(by)]
    unit = 180.0 / np.pi if angle else 1.0
    reach = np.ptp(x)
    if by == AMPLITUDE:
        above.set_xscale("log")
        levels = np.unique(x) if np.unique(x).size <= 8 else np.geomspace(x.min(), x.max(), 5)
        below.set_xticks(levels, [f"{level:.3g}" for level in levels])
        below.xaxis.set_minor_locator(NullLocator())
        dense = np.geomspace(x.min() / 1.05, x.max() * 1.05, 200)
    else:
        dense = np.linspace(x.min() - 0.05 * reach, x.max() + 0.05 * reach, 200)
    curve = laws.centre[parameter] * np.exp(sum((c * term.value(dense) for term, c in mine), np.zeros(dense.size)))
    above.plot(unit * dense, curve, color=FITTED, lw=1.4)
    below.axhline(0.0, color=FITTED, lw=1.4)
    law, own, std, law_std = (_column(lines, key) for key in ("law", "own", "own_std_log", "law_std_log"))
    narrow = np.isfinite(own) & (std < WIDEST)
    points = own / others
    ends = np.abs(np.exp(np.array([[-1.0], [1.0]]) * INTERVAL * std) - 1.0) * points
    style = {"fmt": "o", "ms": 4, "mfc": MEASURED, "mec": "black", "ecolor": "black", "elinewidth": 0.9, "mew": 0.7}
    above.errorbar(unit * x[narrow], points[narrow], yerr=ends[:, narrow], **style)
    percent = 100.0 * (own / law - 1.0)
    below.errorbar(
        unit * x[narrow], percent[narrow], yerr=(100.0 * ends / (law / others))[:, narrow], capsize=2, **style
    )  # fmt: skip
    below.errorbar(
        unit * x, np.zeros(x.size), yerr=100.0 * np.minimum(INTERVAL * law_std, 10.0), fmt="none", ecolor=FITTED,
        elinewidth=4.0, alpha=0.35,
    )  # fmt: skip
    truth = _column(lines, "truth")
    order = np.argsort(x)
    if np.isfinite(truth).all():
        look = {"color": TRUE, "lw": 1.0, "ls": "--", "marker": "D", "ms": 4.5, "mfc": "none"}
        above.plot(unit * x[order], (truth / others)[order], **look)
        below.plot(unit * x[order], (100.0 * (truth / law - 1.0))[order], **{**look, "lw": 0.0})
    above.set_ylabel(f"{parameter} ({result.parameters[parameter].unit})")
    below.set_ylabel("deviation from the law (%)" if mine else "deviation from one value (%)")
    below.set_xlabel(_axis(result, parameter, by, bool(angle)))


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
