"""Whether one model does for all tests, and the laws that its parameters follow, as tables."""

from jaxmb.identify.assess.laws.law_record import Laws
from jaxmb.identify.assess.laws.one_model import OneModel
from jaxmb.identify.assess.result import Result
from jaxmb.report.cells import chance, number, percent
from jaxmb.report.section import Lines, Part, Picture, Section, Table, drawn_by, left, right, section

MOST_ROWS = 5
"""Parameters that are listed, those that explain most."""


def law_sections(result: Result) -> list[Section]:
    """Whether one model does for all tests, and which laws were considered and taken; nothing for a single test."""
    found, laws = result.metrics.one_model, result.metrics.laws
    parts: list[Part | None] = [None if found is None else one_model_part(found, len(result.study.tests))]
    if laws is not None:
        parts.append(law_table(laws))
        parts.append(Picture("laws", drawn_by("jaxmb.report.laws.law_figure:law_figure", result, laws)))
    return section("Does one model do for all tests?", parts)


def one_model_part(found: OneModel, tests: int) -> Lines | Table:
    """A line where one model does for all tests; else the parameters that would have to differ between them."""
    size = f"the residual is {number(found.residual_over_noise, 3)} times the noise"
    if found.does:
        return Lines((f"one model does for all {tests} tests: {size}",))
    rows = []
    for line in found.parameters[:MOST_ROWS]:
        left_over = "-" if line.leaves is None else number(line.leaves, 3)
        spread, drop = percent(100.0 * line.spread), number(line.drop, 3)
        rows.append((line.parameter, spread, left_over, drop, str(line.degrees), chance(line.p_holm)))
    every = found.separate
    rows.append(("all of them", "", "", number(every.drop, 3), str(every.degrees), chance(every.p)))
    columns = (
        *left("if this one differs"),
        *right("between them by %", "it leaves, times the noise", "chi2 drops by", "degrees", "p, corrected"),
    )
    return Table(f"One model does not do for all {tests} tests: {size}", columns, tuple(rows))


def law_table(laws: Laws) -> Table:
    """Every candidate that was judged by tests it did not see, a star where it was taken."""
    taken = {(line.parameter, line.term): line for line in laws.chosen}
    rows = [("", "one model", "", "", "", "", number(laws.holdout.without, 4))]
    for line in laws.considered:
        if line.holdout_error is None:
            continue
        if line.taken:
            chosen = taken[line.parameter, line.term]
            value, spread = chosen.coefficient, chosen.std
        else:
            value, spread = line.coefficient, abs(line.coefficient / line.z) if line.z else float("nan")
        rows.append(
            (
                f"{line.step}{'*' if line.taken else ''}", line.parameter, line.term, number(value),
                number(spread, 2), chance(line.p), number(line.holdout_error, 4),
            )
        )  # fmt: skip
    columns = (
        *left("step", "parameter", "term"),
        *right("coefficient", "std", "p, corrected", "hold-out error, times the noise"),
    )
    title = f"Laws of {', '.join(laws.by)}: ln parameter = ... + coefficient x term"
    return Table(title, columns, tuple(rows), "* taken" if laws.chosen else "")
