"""Tables of whether one model does for all tests, and of the laws that its parameters follow."""

from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from jaxmb.identify.assess.result import Result
from jaxmb.report.cells import new_table, number, percent

MOST_ROWS = 5
"""Parameters that are listed, those that explain most."""


def law_tables(result: Result) -> list[RenderableType]:
    """Whether one model does for all tests, and which laws were considered and taken; nothing for a single test."""
    parts: list[RenderableType] = []
    if "one_model" in result.metrics:
        parts.append(one_model_table(result.metrics["one_model"], len(result.study.tests)))
    if "laws" in result.metrics:
        parts.append(law_table(result.metrics["laws"]))
    return parts


def one_model_table(told: dict[str, Any], tests: int) -> RenderableType:
    """A line where one model does for all tests; else the parameters that would have to differ between them."""
    size = f"the residual is {number(told['residual_over_noise'], 3)} times the noise"
    if told["does"]:
        return Text(f" one model does for all {tests} tests: {size}\n")
    table = new_table(f"One model does not do for all {tests} tests: {size}", "if this one differs")
    for heading in ("between them by %", "it leaves, times the noise", "chi2 drops by", "degrees", "p, corrected"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in told["parameters"][:MOST_ROWS]:
        left = "-" if line["leaves"] is None else number(line["leaves"], 3)
        cells = percent(100.0 * line["spread"]), left, number(line["drop"], 3), str(line["degrees"]), _p(line["p_holm"])
        table.add_row(Text(line["parameter"]), *cells)
    all_of_them = told["separate"]
    row = number(all_of_them["drop"], 3), str(all_of_them["degrees"]), _p(all_of_them["p"])
    table.add_row("all of them", "", "", *row)
    return table


def law_table(laws: dict[str, Any]) -> Table:
    """Every candidate that was judged by tests it did not see, a star where it was taken."""
    table = new_table(f"Laws of {', '.join(laws['by'])}: ln parameter = ... + coefficient x term", "step", "parameter")
    table.add_column("term", no_wrap=True)
    for heading in ("coefficient", "std", "p, corrected", "hold-out error, times the noise"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_row("", "one model", "", "", "", "", number(laws["holdout"]["without"], 4))
    std = {(line["parameter"], line["term"]): line["std"] for line in laws["chosen"]}
    coefficient = {(line["parameter"], line["term"]): line["coefficient"] for line in laws["chosen"]}
    for line in laws["considered"]:
        if line["holdout_error"] is None:
            continue
        name = (line["parameter"], line["term"])
        value = coefficient[name] if line["taken"] else line["coefficient"]
        spread = std[name] if line["taken"] else abs(line["coefficient"] / line["z"]) if line["z"] else float("nan")
        table.add_row(
            f"{line['step']}{'*' if line['taken'] else ''}", Text(line["parameter"]), Text(line["term"]),
            number(value), number(spread, 2), _p(line["p"]), number(line["holdout_error"], 4),
        )  # fmt: skip
    if laws["chosen"]:
        table.caption, table.caption_justify = "* taken", "left"
    return table


def _p(value: float) -> str:
    return "<1e-9" if value < 1e-9 else number(value, 2)
