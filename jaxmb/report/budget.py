"""Table of the parts of standard deviations."""

import math
from collections.abc import Mapping

from jaxmb.identify.assess.budget import ParameterBudget
from jaxmb.report.section import Table, deviation, left, percent, right

NAMED = 2
"""Sources of a parameter's uncertainty in the table."""
NOTABLE = 0.1
"""Part of a standard deviation from which a source is named."""


def budget_table(known: Mapping[str, tuple[float, float]], budgets: Mapping[str, ParameterBudget]) -> Table:
    """Parts of standard deviations: noise, and the tolerances of machine and tests.

    Args:
        known: value, SI, and relative standard deviation of each parameter.
        budgets: of these.
    """
    rows = []
    for name, (value, std) in known.items():
        own, scale = budgets[name], 100.0 / abs(value) if value else math.inf
        sources = [
            f"{each.source} {percent(each.std * scale)}"
            for each in own.sources[:NAMED]
            if each.std >= NOTABLE * (own.tolerances or 0.0)
        ]
        each = ["-" if part is None else percent(part * scale) for part in (own.noise, own.tolerances)]
        rows.append((name, deviation(100.0 * std), *each, ", ".join(sources)))
    columns = (*left("parameter"), *right("std %", "noise %", "tolerances %"), *left("largest sources, %"))
    caption = (
        "noise: also of a misfit that no tolerance explains; tolerances: [tolerances] of the study, else those usual in"
        " the field"
    )
    return Table("", columns, tuple(rows), caption)
