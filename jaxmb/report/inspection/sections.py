"""Report on an inspection."""

import math

import numpy as np

from jaxmb.identify.plan.inspection import Inspection
from jaxmb.identify.study.kinds import KINDS
from jaxmb.report.cells import deviation, number, percent
from jaxmb.report.inspection.next_report import NextReport
from jaxmb.report.section import Cell, Facts, Lines, Picture, Section, Table, drawn_by, left, right, section

SHOWN = 6
"""Largest number of parameters named in the line of a group."""


def inspection_sections(found: Inspection) -> list[Section]:
    """Sections on the expected standard deviations, why parameters are not identifiable, and the next tests."""
    doubtful = [name for names in found.study.free.tied for name in names[:1] if found.parameters[name].why]
    why = Facts(tuple((name, found.parameters[name].why) for name in doubtful)) if doubtful else None
    after = next_report(found)
    last = Lines((*after.lines, *(f"remark: {remark}" for remark in found.remarks)))
    return [
        *section(
            f"{found.study.name}: expected standard deviations at the {found.at}",
            [
                expected_table(found), base_table(found, after.base_std) if found.base else None,
                _picture("singular-values", "singular_value_figure", found),
                _picture("standard-deviations", "deviation_figure", found),
            ],
        ),
        *section("Causes and remedies", [why]),
        *section(
            "Weak directions of the parameters",
            [
                group_table(found) if found.groups else None,
                # without groups the figure of standard deviations is complete
                _picture("weak-directions", "direction_figure", found)
                if any(len(group.members) > 1 for group in found.groups)
                else None,
            ],
        ),
        *section("Next tests", [*after.parts, last]),
    ]  # fmt: skip


def _picture(name: str, function: str, found: Inspection) -> Picture:
    return Picture(name, drawn_by(f"jaxmb.report.inspection.figures:{function}", found))


def expected_table(found: Inspection) -> Table:
    """Parameters with their expected standard deviations after the planned tests and after the proposed next ones."""
    rows, linear = [], not all(found.study.free.logarithmic)
    for names in found.study.free.tied:
        p = found.parameters[names[0]]
        after = (
            [] if found.next is None else ["-" if p.next_std is None or p.value == 0.0 else percent(100.0 * p.next_std)]
        )
        label = names[0] if len(names) == 1 else f"{names[0]} ({len(names)} tied)"
        absolute = p.value == 0.0 and math.isfinite(p.std)  # a value of 0 has no relative deviation
        std = ([number(p.std)] if linear else []) + ["-" if absolute else deviation(100.0 * p.relative_std)]
        rows.append((label, p.unit, number(p.value), *std, *after, Cell(p.identifiable, p.identifiable)))
    after = () if found.next is None else ("std % after next",)
    columns = (
        *left("parameter", "unit"),
        *right("value", *(("std",) if linear else ()), "std %", *after),
        *left("identifiable"),
    )
    return Table("", columns, tuple(rows), legend(found))


def next_report(found: Inspection) -> NextReport:
    """Report on the proposed next tests, or why there are none."""
    if found.next is None:
        return NextReport((), (found.next_remark,))
    report = KINDS[found.next.part.kind].next_report(found, found.next)
    toml = found.next.as_toml(found.study).splitlines()
    proposal = Lines(("To append to the study file:", "", *toml), verbatim=True)
    parts = (*report.parts, proposal) if toml else report.parts
    return report._replace(
        parts=parts, lines=(*report.lines, _least_known(found.study.free.names, found.next.known.std))
    )


def _least_known(names: tuple[str, ...], std: np.ndarray) -> str:
    worst = int(np.argmax(std))
    return f"largest standard deviation after them: {names[worst]}, {percent(100.0 * float(std[worst]))} %"


def base_table(found: Inspection, std: tuple[float, ...] | None) -> Table:
    """Base parameters with their expected standard deviations, also after the next tests, SI units."""
    after = None if std is None else [number(value) for value in std]
    rows = [
        (row.formula, number(row.std) if math.isfinite(row.std) else "unknown", *([] if after is None else [after[i]]))
        for i, row in enumerate(found.base)
    ]
    columns = (
        *left("base parameter"),
        *right("std", *([] if after is None else ["std after next"])),
    )
    return Table("Base parameters: combinations identifiable from torques", columns, tuple(rows))


def legend(found: Inspection) -> str:
    """Legend of "yes", "weak" and "no" in this study."""
    if found.study.problem.prior is not None:
        return "identifiable: yes where the tests halve the prior's std, weak where they reduce it by 5 %, else no"
    linear = "" if all(found.study.free.logarithmic) else " (linear scale: of the width of the bounds)"
    return f"std: of the logarithm; identifiable: yes below 10 %{linear}, weak below 100 %, else no"


def group_table(found: Inspection) -> Table:
    """Weak directions: parameters identifiable only in combination, or not at all."""
    prior, rows = found.study.problem.prior is not None, []
    for k, group in enumerate(found.groups, 1):
        names = [found.study.free.names[i] for i in group.members]
        sizes = group.parts[list(group.members)]
        parts = [f"{size:+.2f} {name}" for size, name in zip(sizes, names, strict=True)]
        if group.dimension > 1:
            parts = [*names[:SHOWN], *(["..."] if len(names) > SHOWN else []), f"({group.dimension} directions)"]
        elif len(parts) > SHOWN:
            parts = [*parts[:SHOWN], f"and {len(parts) - SHOWN} more"]
        text = f"{names[0]} alone" if len(names) == 1 else "  ".join(parts)
        rows.append((str(k), percent(100.0 * group.std), text))
    columns = (*left(""), *right("% of prior" if prior else "std %"), *left("components of the parameters"))
    return Table("", columns, tuple(rows))
