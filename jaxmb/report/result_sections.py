"""Sections of the report on a result, for the terminal, figures or a page: verdict, course of the fit, laws, and those
of parameters and tests from other modules."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from jaxmb.identify.assess.laws.law_problem import Laws, ValueInTest, covariates, in_tests
from jaxmb.identify.assess.laws.one_model import OneModel, variation_text
from jaxmb.identify.assess.metrics import PredictionScores
from jaxmb.identify.assess.result import INTERVAL, Outcome, Parameter, Result
from jaxmb.identify.experiments.test import by_kind
from jaxmb.identify.study.format.study_format import AMPLITUDE, LOAD
from jaxmb.identify.study.law_terms import Term
from jaxmb.identify.study.study import Solver
from jaxmb.io.validation import listed
from jaxmb.report.charts import FITTED, TRUE, Axis, Chart, Line, Mark, Panel, Rule
from jaxmb.report.charts_of_tests import USE
from jaxmb.report.modes import frequency_unit
from jaxmb.report.parameters import (
    budget_sections,
    correlation_sections,
    cost_chart,
    further_spring_sections,
    parameter_sections,
    profile_sections,
    tied_label,
)
from jaxmb.report.rendering import write_pictures
from jaxmb.report.section import (
    Facts,
    Lines,
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
from jaxmb.report.stiffness_model import stiffness_model_sections
from jaxmb.report.tests import SECTIONS, plain_sections

MOST_NAMED = 8
"""Largest number of parameters named in a line."""
MOST_DOUBTS = 5
"""Largest number of remarks in the verdict."""


def verdict_section(result: Result) -> Section:
    """Section on convergence, agreement with the data, identifiability of the parameters, warnings and next steps."""
    sentences = [
        ("fit", [result.status]),
        ("data", data_sentences(result)),
        *known(result),
        ("doubts", doubts(result)),
        ("to do", to_do(result)),
    ]
    rows = [(about if k == 0 else "", text) for about, texts in sentences for k, text in enumerate(texts)]
    return Section(f"{result.study.name}: the verdict", (Facts(tuple(rows)),))


def data_sentences(result: Result) -> list[str]:
    """Sentences on the residual in units of the noise, and on the share of the data explained."""
    sentences, stiffness = [_noise_line(result)], result.metrics.stiffness_model
    if stiffness is not None:
        percents = [f"{name} {p:.1f} %" for name, p in stiffness.compensated_percent.items() if p is not None]
        tests = f"share of the deflections {USE[stiffness.evaluated_role]} that the models below compensate"
        sentences.append(f"{tests}: {', '.join(percents)}")
    fit, holdout = (_scores_text(result, scores) for scores in (result.metrics.fit, result.metrics.holdout))
    fitted = "fitted tests: " if result.metrics.fit is not None and result.metrics.holdout is not None else ""
    sentences += [f"{fitted}{fit}" if fit else "", f"held-out tests: {holdout}" if holdout else ""]
    return [text for text in sentences if text]


def _noise_line(result: Result) -> str:
    misfit, one_model = result.metrics.misfit, result.metrics.one_model
    beyond_noise = misfit is not None and not misfit.explained
    is_followed = misfit is not None and (misfit.explained or result.metrics.tolerated)
    agreements = {
        "followed (held-out tests are NOT)": result.outcome is Outcome.NOT_REPRODUCED and is_followed,
        "NOT followed": result.outcome is Outcome.NOT_REPRODUCED,
        "followed within the stated tolerances": beyond_noise and result.metrics.tolerated,
        "NOT followed within the noise": beyond_noise,
        "NOT followed by one model for all tests": one_model is not None and not one_model.is_consistent,
        "in doubt": result.outcome is Outcome.NOT_IDENTIFIED,
    }
    agreement = next((text for text, applies in agreements.items() if applies), "followed")
    if misfit is None:
        unknown = (test for test in result.study.tests if not test.noise.is_known)
        levels = [
            *(f"standard deviation {test.noise.level_text} ({test.name})" for test in unknown),
            *(record.noise_text for record in result.metrics.tests.values() if record.noise_text),
        ]
        source = "noise estimated from the residual" if agreement == "followed" else "residual"
        return f"{agreement}; {source}: {', '.join(levels)}" if levels else ""
    if misfit.exact:
        return "followed exactly"
    return f"{agreement}, residual {number(misfit.factor, 3)} times the noise"


def _scores_text(result: Result, v: PredictionScores | None) -> str:
    """Clause on the agreement of measured and predicted values; empty without scores."""
    if v is None:
        return ""
    unit = frequency_unit(result.study.entries)
    parts = (
        "" if v.frac is None else f"FRAC {v.frac:.4f}",
        "" if v.log_error is None else f"error of log H {number(v.log_error, 2)}",
        "" if v.frequency_error_hz is None else f"mean frequency error {number(v.frequency_error_hz, 2)} {unit}",
        "" if v.explained_percent is None else f"{_explained(v.explained_percent)} of the measured values explained",
    )
    return ", ".join(filter(None, parts))


def _explained(share: float) -> str:
    return f"{share:.1f} %" if share > 0.0 else "none"


def by_verdict(result: Result) -> dict[str, list[str]]:
    """Labels of the free parameters by verdict, with the standard deviations of those that are not identifiable."""
    found: dict[str, list[str]] = {"yes": [], "weak": [], "no": []}
    free, prior = result.study.free, result.study.problem.prior
    is_model = result.study.solver is Solver.STIFFNESS_MODEL
    groups = [(name,) for name in result.parameters] if is_model else free.tied
    for i, names in enumerate(groups):
        p = result.parameters[names[0]]
        prior_std = (
            np.inf if prior is None else float(prior.std[i] * (p.value if free.logarithmic[i] else free.width[i]))
        )
        found[p.identifiable].append(tied_label(names) + ("" if p.identifiable == "yes" else _std(p, prior_std)))
    return found


def known(result: Result) -> list[tuple[str, list[str]]]:
    """Number of identifiable parameters, and the names of the weakly identifiable and the not identifiable ones."""
    found = by_verdict(result)
    counted = f"{len(found['yes'])} of {sum(map(len, found.values()))} parameters"
    texts = [record.known_text for record in result.metrics.tests.values() if record.known_text]
    if texts and not any(result.study.free.logarithmic) and result.study.problem.prior is None:
        counted += ", to a tenth of the width of their bounds"
    sentences = [("identifiable", [counted, *texts])]
    for verdict, heading in (("weak", "weakly identifiable"), ("no", "not identifiable")):
        if names := found[verdict]:
            sentences.append((heading, [f"{len(names)}: {listed(names, MOST_NAMED)}"]))
    return sentences


def _std(p: Parameter, prior_std: float) -> str:
    if np.isfinite(p.std) and np.isfinite(prior_std):
        return f" (std {percent(100.0 * p.std / prior_std)} % of the prior's)"
    return f" (std {percent(100.0 * p.std_log)} %)" if np.isfinite(p.std_log) else ""


def doubts(result: Result) -> list[str]:
    """The most important remarks that put the result in doubt."""
    more = len(result.doubts) - MOST_DOUBTS
    return [*result.doubts[:MOST_DOUBTS], *([f"and {more} more remarks, at the end"] if more > 0 else [])]


def to_do(result: Result) -> list[str]:
    """Recommendations where the data are not followed, the fit did not converge or parameters are not identifiable."""
    if result.outcome is Outcome.NOT_REPRODUCED:
        return ["first find out why the data are not followed: until then no identified value is reliable"]
    verdicts = [p.identifiable for p in result.parameters.values()]
    if result.outcome is Outcome.NOT_IDENTIFIED or (result.doubts and not result.converged and "yes" not in verdicts):
        return ["resolve the doubts first: further tests do not help before that"]
    explained = all(verdict == "yes" for verdict in verdicts) or result.study.solver is Solver.STIFFNESS_MODEL
    first = "resolve the doubts first; then " if result.doubts else ""
    sentences = (
        "" if result.converged else "more rounds or starts (rounds, [refine] starts) may let the fit converge",
        ""
        if explained
        else f"{first}`jaxmb inspect` of this study reports why parameters are not identifiable, and remedies",
    )
    return [*filter(None, sentences)]


@threadpool_limits.wrap(limits=1, user_api="blas")  # as in `identify`
def sections(result: Result) -> tuple[Section, ...]:
    """All sections of the report on a result, the verdict first.

    Args:
        result: from `identify` or `load_result`.
    """
    return (
        verdict_section(result),
        *parameter_sections(result),
        *budget_sections(result),
        *further_spring_sections(result),
        *sections_of_tests(result),
        *law_sections(result),
        *correlation_sections(result),
        *profile_sections(result),
        *stiffness_model_sections(result),
        fit_section(result),
    )


def write_report(result: Result, folder: str | os.PathLike[str]) -> list[Path]:
    """Draw all figures of a result and write them as PNG files.

    Args:
        result: from `identify` or `load_result`.
        folder: output folder, created if missing.

    Returns:
        Paths of the files.

    Raises:
        OSError: the folder or a file cannot be written; no partial file remains.
    """
    return write_pictures(sections(result), folder)


def sections_of_tests(result: Result) -> list[Section]:
    """Sections of each kind of test."""
    if result.study.solver is Solver.STIFFNESS_MODEL:
        return []  # `stiffness_model_sections` cover all its tests together
    found, others = [], [entry.kind for entry in result.study.entries]
    for kind, entries in by_kind(result.study.entries, dict.fromkeys([*SECTIONS, *others])):
        found += SECTIONS.get(kind, plain_sections)(result, entries)
    return found


def fit_section(result: Result) -> Section:
    """Course of the fit: status, cost, errors against the true values, remarks, evaluations and time."""
    metrics, counts, seconds = result.metrics, result.evaluations, result.seconds
    parameter, hertz = metrics.largest_parameter_error, metrics.largest_frequency_error_hz
    damping, unit = metrics.largest_damping_error_percent, frequency_unit(result.study.entries)
    shown = doubts(result)  # already in the verdict
    parts = {name: round(seconds.get(name, 0.0), 1) for name in ("read", "compile", "search", "refine")}
    parts["else"] = max(round(seconds["total"] - sum(parts.values()), 1), 0.0) + 0.0  # adding 0 makes 0 of -0
    each = ", ".join(f"{name} {spent:.1f}" for name, spent in parts.items())
    lines = (
        f"status: {result.status}",
        f"cost: {number(result.cost)} (initially {number(result.initial_cost)})",
        "" if parameter is None else f"largest parameter error: {percent(100.0 * parameter)} %",
        ""
        if hertz is None or damping is None
        else f"largest error of a mode: {number(hertz, 2)} {unit}, {number(damping, 2)} % damping",
        *(f"remark: {remark}" for remark in result.remarks if remark not in shown),
        f"evaluations: {counts['search']} search, {counts['refine']} refine, {counts['non_finite']} not finite",
        f"time: {sum(parts.values()):.1f} s ({each})",  # the sum of the rounded parts
    )
    cost = () if result.study.solver.is_linear else (Picture("cost", partial(cost_chart, result)),)
    return Section("The fit", (Lines(tuple(filter(None, lines))), *cost))


MOST_ROWS = 5
"""Largest number of listed parameters, in order of the misfit they explain."""


def law_sections(result: Result) -> list[Section]:
    """Section on the consistency of one model with all tests and on the laws considered; empty for a single test."""
    found, laws = result.metrics.one_model, result.metrics.laws
    parts = (
        None if found is None else one_model_part(found, result),
        None if laws is None else law_table(laws),
        None if laws is None else Picture("laws", partial(law_chart, result, laws)),
    )
    return section("Is one model consistent with all tests?", parts)


def one_model_part(found: OneModel, result: Result) -> Lines | Table:
    """A line if one model is consistent with all tests, else a table of the parameters that would have to vary."""
    tests = len(result.study.tests)
    included = ", tolerances included" if result.metrics.uncertainty else ""
    size = f"residual {number(found.residual_over_noise, 3)} times the noise{included}"
    if found.is_consistent:
        return Lines((f"one model is consistent with all {tests} tests: {size}",))
    rows = [
        (
            line.parameter, variation_text(line, result.study, result.parameters[line.parameter].value),
            "-" if line.residual is None else number(line.residual, 3), number(line.drop, 3), str(line.degrees),
            chance(line.p_holm),
        )
        for line in found.parameters[:MOST_ROWS]
    ]  # fmt: skip
    every = found.separate
    rows.append(("all of them", "", "", number(every.drop, 3), str(every.degrees), chance(every.p)))
    return Table(
        f"One model is not consistent with all {tests} tests: {size}",
        (
            *left("varying parameter"),
            *right("variation", "residual / noise", "drop of chi2", "degrees", "p, corrected"),
        ),
        tuple(rows),
    )


def law_table(laws: Laws) -> Table:
    """All candidate terms that were cross-validated, with a star for selected ones."""
    selected = {(line.parameter, line.term): line for line in laws.chosen}
    rows = [("", "one model", "", "", "", "", number(laws.holdout.without, 4))]
    for line in laws.considered:
        if line.holdout_error is not None:
            value, std = line.coefficient, abs(line.coefficient / line.z) if line.z else float("nan")
            if line.taken:
                chosen = selected[line.parameter, line.term]
                value, std = chosen.coefficient, chosen.std
            rows.append(
                (
                    f"{line.step}{'*' if line.taken else ''}", line.parameter, line.term, number(value),
                    number(std, 2), chance(line.p), number(line.holdout_error, 4),
                )
            )  # fmt: skip
    return Table(
        f"Laws of {', '.join(laws.by)}: ln parameter = ... + coefficient x term",
        (
            *left("step", "parameter", "term"),
            *right("coefficient", "std", "p, corrected", "hold-out error / noise"),
        ),
        tuple(rows),
        "* selected" if laws.chosen else "",
    )


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
    shown = dict.fromkeys((line.parameter, line.by) for line in laws.chosen or laws.considered[:1])
    errors = laws.holdout
    title = f"{result.study.name}: held-out tests {number(errors.without, 3)} times the noise with one model"
    if laws.chosen:
        title += f", {number(errors.with_, 3)} with the {'law' if len(laws.chosen) == 1 else 'laws'}"
    return Chart(
        title,
        "Each parameter against the covariate of its law, from all tests together and from single tests; below, the"
        " deviations of single tests from the law with 95 % intervals.",
        [[_cell(result, laws, parameter, by) for parameter, by in list(shown)[:MOST_PANELS]]],
        3.1,
    )


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
    single = ("single tests, 95 %", SINGLE, 0.9, "", "o", 4.0)
    above: list[Mark] = [
        Line(unit * dense, curve, "law" if laws.chosen else "one value for all tests", FITTED, 1.4),
        Line(unit * x[narrow], points[narrow], *single, reach=ends[:, narrow]),
    ]
    band = 100.0 * np.minimum(INTERVAL * law_std, 10.0)
    percent = 100.0 * (own / law - 1.0)
    reach = (100.0 * ends / (law / others))[:, narrow]
    below: list[Mark] = [
        Rule(0.0, "y", "", FITTED, 1.4),
        Line(unit * x, np.zeros(x.size), "95 % of the law", LIGHT, 4.0, "", reach=band),
        Line(unit * x[narrow], percent[narrow], *single, reach=reach, cap=2.0),
    ]
    truth, order = _column(lines, "truth"), np.argsort(x)
    if np.isfinite(truth).all():
        true, apart = truth / others, 100.0 * (truth / law - 1.0)
        above.append(Line(unit * x[order], true[order], "true", TRUE, 1.0, "--", "D", 4.5, filled=False))
        below.append(Line(unit * x[order], apart[order], "", TRUE, 1.0, "", "D", 4.5, filled=False))
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
