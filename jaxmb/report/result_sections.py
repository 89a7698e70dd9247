"""Sections of the report on a result, for the terminal, figures or a page."""

import math
import os
from functools import partial
from pathlib import Path

from threadpoolctl import threadpool_limits

from jaxmb.identify.assess.metrics import Verdict
from jaxmb.identify.assess.result import Outcome, Parameter, Result
from jaxmb.identify.experiments.test import by_kind
from jaxmb.identify.study.study import Solver
from jaxmb.report.laws import law_sections
from jaxmb.report.parameters import (
    budget_sections,
    correlation_sections,
    cost_chart,
    further_spring_sections,
    parameter_sections,
    profile_sections,
)
from jaxmb.report.rendering import write_pictures
from jaxmb.report.section import Facts, Lines, Picture, Section, number, percent
from jaxmb.report.stiffness_model import stiffness_model_sections
from jaxmb.report.tests import SECTIONS, plain_sections

MOST_NAMED = 8
"""Largest number of parameters named in a line."""
MOST_DOUBTS = 5
"""Largest number of remarks in the verdict."""


def verdict_section(result: Result) -> Section:
    """Section on convergence, agreement with the data, identifiability of the parameters, warnings and next steps."""
    sentences = [("fit", [result.status]), ("data", data_sentences(result)), *known(result)]
    sentences += [("doubts", doubts(result)), ("to do", to_do(result))]
    rows = [(about if k == 0 else "", text) for about, texts in sentences for k, text in enumerate(texts)]
    return Section(f"{result.study.name}: the verdict", (Facts(tuple(rows)),))


def data_sentences(result: Result) -> list[str]:
    """Sentences on the residual in units of the noise, and on the share of the data explained."""
    sentences, stiffness = [_noise_line(result)], result.metrics.stiffness_model
    if stiffness is not None:
        percents = [f"{name} {p:.1f} %" for name, p in stiffness.compensated_percent.items() if p is not None]
        tests = "not used in the fit" if stiffness.judged == "check" else "used in the fit"
        sentences.append(f"share of the deflections {tests} that the models below compensate: {', '.join(percents)}")
    metrics = result.metrics
    both = metrics.fit is not None and metrics.holdout is not None
    for verdict, tests in ((metrics.fit, "fitted tests: " if both else ""), (metrics.holdout, "held-out tests: ")):
        if verdict is not None and (parts := _parts(verdict)):
            sentences.append(f"{tests}{', '.join(parts)}")
    return [text for text in sentences if text]


def _noise_line(result: Result) -> str:
    misfit, one_model = result.metrics.misfit, result.metrics.one_model
    agreement = "followed"
    if result.outcome is Outcome.NOT_REPRODUCED:
        agreement = "NOT followed"
    elif misfit is not None and not misfit.explained and result.metrics.tolerated:
        agreement = "followed within the stated tolerances"
    elif misfit is not None and not misfit.explained:
        agreement = "NOT followed within the noise"
    elif one_model is not None and not one_model.is_consistent:
        agreement = "NOT followed by one model for all tests"
    elif result.outcome is Outcome.NOT_IDENTIFIED:
        agreement = "in doubt"
    if misfit is None:
        levels = [record.noise_text for record in result.metrics.tests.values() if record.noise_text]
        source = "noise estimated from the residual" if agreement == "followed" else "residual"
        return f"{agreement}; {source}: {', '.join(levels)}" if levels else ""
    if misfit.exact:
        return "followed exactly"
    return f"{agreement}, residual {number(misfit.factor, 3)} times the noise"


def _parts(verdict: Verdict) -> list[str]:
    parts = []
    if verdict.frac is not None:
        parts.append(f"FRAC {verdict.frac:.4f}")
    if verdict.log_error is not None:
        parts.append(f"error of log H {number(verdict.log_error, 2)}")
    if verdict.frequency_error_hz is not None:
        parts.append(f"mean frequency error {number(verdict.frequency_error_hz, 2)} Hz")
    if verdict.explained_percent is not None:
        parts.append(f"{verdict.explained_percent:.1f} % of the measured values explained")
    return parts


def known(result: Result) -> list[tuple[str, list[str]]]:
    """Number of identifiable parameters, and the names of the weakly identifiable and the not identifiable ones."""
    by_verdict: dict[str, list[str]] = {"yes": [], "weak": [], "no": []}
    labels = {names[0]: f" ({len(names)} tied)" for names in result.study.free.tied if len(names) > 1}
    tied = {name for names in result.study.free.tied for name in names[1:]}
    shown = {name: p for name, p in result.parameters.items() if name not in tied}
    free, prior = result.study.free, result.study.problem.prior
    prior_std: dict[str, float] = {}
    if prior is not None:
        for i, names in enumerate(free.tied):
            scale = shown[names[0]].value if free.logarithmic[i] else free.width[i]
            prior_std[names[0]] = float(prior.std[i]) * float(scale)
    for name, p in shown.items():
        by_verdict[p.identifiable].append(f"{name}{labels.get(name, '')}{_std(p, prior_std.get(name, math.inf))}")
    counted = f"{len(by_verdict['yes'])} of {len(shown)} parameters"
    texts = [record.known_text for record in result.metrics.tests.values() if record.known_text]
    if texts and not any(result.study.free.logarithmic) and result.study.problem.prior is None:
        counted += ", to a tenth of the width of their bounds"
    sentences = [("identifiable", [counted, *texts])]
    for verdict, heading in (("weak", "weakly identifiable"), ("no", "not identifiable")):
        if names := by_verdict[verdict]:
            more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
            sentences.append((heading, [f"{len(names)}: {', '.join(names[:MOST_NAMED])}{more}"]))
    return sentences


def _std(p: Parameter, prior_std: float) -> str:
    if math.isfinite(p.std) and math.isfinite(prior_std):
        return f" (std {percent(100.0 * p.std / prior_std)} % of the prior's)"
    return f" (std {percent(100.0 * p.std_log)} %)" if math.isfinite(p.std_log) else ""


def doubts(result: Result) -> list[str]:
    """The most important remarks that put the result in doubt."""
    more = len(result.doubts) - MOST_DOUBTS
    return [*result.doubts[:MOST_DOUBTS], *([f"and {more} more remarks, at the end"] if more > 0 else [])]


def to_do(result: Result) -> list[str]:
    """Recommendations where the data are not followed, the fit did not converge or parameters are not identifiable."""
    sentences = []
    if result.outcome is Outcome.NOT_REPRODUCED:
        return ["first find out why the data are not followed: until then no identified value is reliable"]
    verdicts = [p.identifiable for p in result.parameters.values()]
    if result.outcome is Outcome.NOT_IDENTIFIED or (result.doubts and not result.converged and "yes" not in verdicts):
        return ["resolve the doubts first: further tests do not help before that"]
    if not result.converged:
        sentences.append("more rounds or starts (rounds, [refine] starts) may let the fit converge")
    unknown = any(verdict != "yes" for verdict in verdicts)
    if unknown and result.study.solver is not Solver.STIFFNESS_MODEL:
        sentences.append("`jaxmb inspect` of this study reports why parameters are not identifiable, and remedies")
    return sentences


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
    metrics = result.metrics
    lines = [f"status: {result.status}", f"cost: {number(result.cost)} (initially {number(result.initial_cost)})"]
    if metrics.largest_parameter_error is not None:
        lines.append(f"largest parameter error: {percent(100.0 * metrics.largest_parameter_error)} %")
    if metrics.largest_frequency_error_hz is not None and metrics.largest_damping_error_percent is not None:
        lines.append(
            f"largest error of a mode: {number(metrics.largest_frequency_error_hz, 2)} Hz,"
            f" {number(metrics.largest_damping_error_percent, 2)} % damping"
        )
    shown = doubts(result)  # already in the verdict
    lines += [f"remark: {remark}" for remark in result.remarks if remark not in shown]
    counts, seconds = result.evaluations, result.seconds
    lines.append(
        f"evaluations: {counts['search']} search, {counts['refine']} refine, {counts['non_finite']} not finite"
    )
    parts = {name: round(seconds.get(name, 0.0), 1) for name in ("read", "compile", "search", "refine")}
    parts["else"] = max(round(seconds["total"] - sum(parts.values()), 1), 0.0) + 0.0  # adding 0 makes 0 of -0
    each = ", ".join(f"{name} {spent:.1f}" for name, spent in parts.items())
    lines.append(f"time: {sum(parts.values()):.1f} s ({each})")  # the sum of the rounded parts
    searched = not result.study.solver.is_linear
    draw = partial(cost_chart, result)
    return Section("The fit", (Lines(tuple(lines)), *((Picture("cost", draw),) if searched else ())))
