"""Sections of the report on a result, for the terminal, figures or a page."""

import os
from pathlib import Path

from jaxmb.identify.assess.result import Result
from jaxmb.identify.study.kinds import KINDS, by_kind
from jaxmb.report.cells import number, percent
from jaxmb.report.laws.law_tables import law_sections
from jaxmb.report.parameters.parameter_table import correlation_sections, parameter_sections, profile_sections
from jaxmb.report.pictures import write_pictures
from jaxmb.report.section import Lines, Picture, Section, drawn_by
from jaxmb.report.stiffness_model.tables import stiffness_model_sections
from jaxmb.report.tests.common import plain_sections
from jaxmb.report.verdict import doubts, verdict_section


def sections(result: Result) -> tuple[Section, ...]:
    """All sections of the report on a result, the verdict first.

    Args:
        result: from `identify` or `load_result`.
    """
    return (
        verdict_section(result),
        *parameter_sections(result),
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
    if result.study.complete is not None:
        return []  # `stiffness_model_sections` cover all its tests together
    found = []
    for kind, entries in by_kind(result.study.entries):
        found += (KINDS[kind].sections or plain_sections)(result, entries)
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
    searched = not (result.study.is_linear or result.study.complete is not None)
    draw = drawn_by("jaxmb.report.parameters.parameter_figure:cost_figure", result)
    return Section("The fit", (Lines(tuple(lines)), *((Picture("cost", draw),) if searched else ())))
