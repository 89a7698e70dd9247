"""Tables of the test of one common model for all tests, and of the laws of its parameters."""

from jaxmb.identify.assess.laws.law_problem import Laws
from jaxmb.identify.assess.laws.one_model import OneModel
from jaxmb.identify.assess.result import Result
from jaxmb.report.section import (
    Lines,
    Part,
    Picture,
    Section,
    Table,
    chance,
    drawn_by,
    left,
    number,
    percent,
    right,
    section,
)

MOST_ROWS = 5
"""Largest number of listed parameters, in order of the misfit they explain."""


def law_sections(result: Result) -> list[Section]:
    """Section on the consistency of one model with all tests and on the laws considered; empty for a single test."""
    found, laws = result.metrics.one_model, result.metrics.laws
    parts: list[Part | None] = [None if found is None else one_model_part(found, len(result.study.tests))]
    if laws is not None:
        parts.append(law_table(laws))
        parts.append(Picture("laws", drawn_by("jaxmb.report.law_figures:law_figure", result, laws)))
    return section("Is one model consistent with all tests?", parts)


def one_model_part(found: OneModel, tests: int) -> Lines | Table:
    """A line if one model is consistent with all tests, else a table of the parameters that would have to vary."""
    size = f"the residual is {number(found.residual_over_noise, 3)} times the noise"
    if found.is_consistent:
        return Lines((f"one model is consistent with all {tests} tests: {size}",))
    rows = []
    for line in found.parameters[:MOST_ROWS]:
        residual = "-" if line.leaves is None else number(line.leaves, 3)
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
