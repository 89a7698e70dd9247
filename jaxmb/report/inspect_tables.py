"""An inspection as tables for the terminal."""

import math

import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from jaxmb.identify.plan.inspection import Inspection
from jaxmb.identify.plan.next_tests import NextTests
from jaxmb.identify.plan.why import points_text, posture_text
from jaxmb.report.cells import VERDICT_STYLE, new_table, number, percent

SHOWN = 6
"""Parameters that a line on a group names."""


def inspection_tables(found: Inspection) -> Group:
    """Everything a user wants to read of an inspection: parameters, why some will not be known, and the next tests."""
    parts: list[RenderableType] = [expected_table(found), legend(found)]
    doubtful = [name for names in found.study.free.tied for name in names[:1] if found.parameters[name].why]
    if doubtful:
        parts.append(Text("Why, and what would help", style="bold"))
        told = [Text(f"{name}: {found.parameters[name].why}") for name in doubtful]
        parts += [Padding(text, (0, 0, 0, 2), expand=False) for text in told]
        parts.append(Text(""))
    if found.groups:
        parts.append(group_table(found))
    if found.next is not None:
        parts.append(next_table(found, found.next))
    parts += [Text(line) for line in (*next_lines(found), *(f"remark: {remark}" for remark in found.remarks))]
    return Group(*parts)


def expected_table(found: Inspection) -> Table:
    """Parameters with the standard deviations that are to be expected, after the planned tests and after the next."""
    table = new_table(f"Predicted, at the {found.at}", "parameter", "unit")
    for heading in ("value", "std %", *(("std % after next",) if found.next is not None else ())):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("identifiable", no_wrap=True)
    for names in found.study.free.tied:
        p = found.parameters[names[0]]
        after = [] if p.next_std is None else [percent(100.0 * p.next_std)]
        table.add_row(
            Text(names[0] if len(names) == 1 else f"{names[0]} ({len(names)} tied)"),
            Text(p.unit),
            number(p.value),
            percent(100.0 * p.relative_std),
            *after,
            Text(p.identifiable, style=VERDICT_STYLE.get(p.identifiable, "")),
        )
    return table


def legend(found: Inspection) -> Text:
    """What "yes", "weak" and "no" are in this study."""
    if found.study.problem.prior is not None:
        return Text(
            " identifiable: yes where the tests halve the prior's std, weak where they take 5 % off it, else no\n"
        )
    linear = "" if all(found.study.free.logarithmic) else " (linear scale: of the width of the bounds)"
    return Text(f" std: of the logarithm; identifiable: yes below 10 %{linear}, weak below 100 %, else no\n")


def group_table(found: Inspection) -> Table:
    """Weak directions: parameters that are known only together, or not at all."""
    prior = found.study.problem.prior is not None
    table = new_table("Weak directions of the parameters", "", "% of prior" if prior else "std %")
    table.add_column("parts of the parameters", no_wrap=False)
    for place, group in enumerate(found.groups, 1):
        names = [found.study.free.names[i] for i in group.members]
        sizes = group.parts[list(group.members)]
        parts = [f"{size:+.2f} {name}" for size, name in zip(sizes, names, strict=True)]
        if group.dimension > 1:
            parts = [*names[:SHOWN], *(["..."] if len(names) > SHOWN else []), f"({group.dimension} directions)"]
        elif len(parts) > SHOWN:
            parts = [*parts[:SHOWN], f"and {len(parts) - SHOWN} more"]
        text = f"{names[0]} alone" if len(names) == 1 else "  ".join(parts)
        table.add_row(str(place), percent(100.0 * group.std), Text(text))
    return table


def next_table(found: Inspection, chosen: NextTests) -> Table:
    """The tests to make next."""
    table = new_table(f"Next tests, like {chosen.like}", "", "posture", "outputs", "inputs")
    for heading in ("band Hz", "lines"):
        table.add_column(heading, justify="right", no_wrap=True)
    for place, test in enumerate(chosen.tests, 1):
        outputs, inputs = (points_text(end) for end in test.probe.ends)
        first, last = test.probe.band_hz
        table.add_row(
            str(place),
            Text(posture_text(found.study.model, test.q)),
            Text(outputs),
            Text(inputs if test.probe.inputs is not None else "the same"),
            f"{first:.3g} to {last:.3g}",
            str(test.probe.omega.size),
        )
    return table


def next_lines(found: Inspection) -> list[str]:
    """Sentences on the next tests: by how much they better the criterion."""
    chosen = found.next
    if chosen is None:
        return [found.next_remark]
    what = {"A": "sum of the variances", "D": "logarithm of the determinant of the covariance"}[chosen.part.criterion]
    values = [f"{number(chosen.before)} now" if math.isfinite(chosen.before) else "unbounded now"]
    values.append(f"{number(chosen.chosen)} with the chosen tests")
    if chosen.improved != chosen.chosen:
        values.append(f"{number(chosen.improved)} with their postures improved by gradient")
    worst = int(np.argmax(chosen.known.std))
    std = percent(100.0 * float(chosen.known.std[worst]))
    return [
        f"{found.next_remark}; {what}: {', '.join(values)}",
        f"least known after them: {found.study.free.names[worst]}, std {std} %",
    ]
