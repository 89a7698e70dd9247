"""What a report says of an inspection."""

import math

import numpy as np

from jaxmb.identify.plan.inspection import Inspection
from jaxmb.identify.plan.motions.next_motion import NextMotion
from jaxmb.identify.plan.next_tests import NextTests
from jaxmb.identify.plan.why import points_text, posture_text
from jaxmb.report.cells import deviation, number, percent
from jaxmb.report.section import Cell, Column, Facts, Lines, Picture, Section, Table, drawn_by, left, right, section

SHOWN = 6
"""Parameters that a line on a group names."""


def inspection_sections(found: Inspection) -> list[Section]:
    """Everything a user wants to read of an inspection: parameters, why some will not be known, and the next tests."""
    doubtful = [name for names in found.study.free.tied for name in names[:1] if found.parameters[name].why]
    why = Facts(tuple((name, found.parameters[name].why) for name in doubtful)) if doubtful else None
    last = Lines((*next_lines(found), *(f"remark: {remark}" for remark in found.remarks)))
    return [
        *section(
            f"{found.study.name}: what its tests will tell, at the {found.at}",
            [
                expected_table(found), base_table(found) if found.base else None,
                _picture("singular-values", "singular_value_figure", found),
                _picture("standard-deviations", "deviation_figure", found),
            ],
        ),
        *section("Why, and what would help", [why]),
        *section(
            "Weak directions of the parameters",
            [
                group_table(found) if found.groups else None,
                # else the bars say all
                _picture("weak-directions", "direction_figure", found)
                if any(len(group.members) > 1 for group in found.groups)
                else None,
            ],
        ),
        *section("Next tests", [_next(found), last]),
    ]  # fmt: skip


def _picture(name: str, function: str, found: Inspection) -> Picture:
    return Picture(name, drawn_by(f"jaxmb.report.inspection.figures:{function}", found))


def expected_table(found: Inspection) -> Table:
    """Parameters with the standard deviations that are to be expected, after the planned tests and after the next."""
    rows, linear = [], not all(found.study.free.logarithmic)
    for names in found.study.free.tied:
        p = found.parameters[names[0]]
        after = (
            [] if found.next is None else ["-" if p.next_std is None or p.value == 0.0 else percent(100.0 * p.next_std)]
        )
        label = names[0] if len(names) == 1 else f"{names[0]} ({len(names)} tied)"
        alone = p.value == 0.0 and math.isfinite(p.std)  # the deviation of 0 is no share of it
        std = ([number(p.std)] if linear else []) + ["-" if alone else deviation(100.0 * p.relative_std)]
        rows.append((label, p.unit, number(p.value), *std, *after, Cell(p.identifiable, p.identifiable)))
    after = () if found.next is None else ("std % after next",)
    columns = (
        *left("parameter", "unit"),
        *right("value", *(("std",) if linear else ()), "std %", *after),
        *left("identifiable"),
    )
    return Table("", columns, tuple(rows), legend(found))


def base_table(found: Inspection) -> Table:
    """Base parameters with the standard deviations that are to be expected, SI units."""
    after = None if not isinstance(found.next, NextMotion) else [number(row.std) for row in found.next.motion.base]
    rows = [
        (row.formula, number(row.std) if math.isfinite(row.std) else "unknown", *([] if after is None else [after[i]]))
        for i, row in enumerate(found.base)
    ]
    columns = (
        Column("base parameter", "left", wraps=True),
        *right("std", *([] if after is None else ["std after next"])),
    )
    return Table("Base parameters: sums that torques tell", columns, tuple(rows))


def legend(found: Inspection) -> str:
    """What "yes", "weak" and "no" are in this study."""
    if found.study.problem.prior is not None:
        return "identifiable: yes where the tests halve the prior's std, weak where they take 5 % off it, else no"
    linear = "" if all(found.study.free.logarithmic) else " (linear scale: of the width of the bounds)"
    return f"std: of the logarithm; identifiable: yes below 10 %{linear}, weak below 100 %, else no"


def group_table(found: Inspection) -> Table:
    """Weak directions: parameters that are known only together, or not at all."""
    prior, rows = found.study.problem.prior is not None, []
    for place, group in enumerate(found.groups, 1):
        names = [found.study.free.names[i] for i in group.members]
        sizes = group.parts[list(group.members)]
        parts = [f"{size:+.2f} {name}" for size, name in zip(sizes, names, strict=True)]
        if group.dimension > 1:
            parts = [*names[:SHOWN], *(["..."] if len(names) > SHOWN else []), f"({group.dimension} directions)"]
        elif len(parts) > SHOWN:
            parts = [*parts[:SHOWN], f"and {len(parts) - SHOWN} more"]
        text = f"{names[0]} alone" if len(names) == 1 else "  ".join(parts)
        rows.append((str(place), percent(100.0 * group.std), text))
    columns = (*left("", "% of prior" if prior else "std %"), Column("parts of the parameters", "left", wraps=True))
    return Table("", columns, tuple(rows))


def _next(found: Inspection) -> Table | None:
    if found.next is None:
        return None
    return motion_table(found, found.next) if isinstance(found.next, NextMotion) else next_table(found, found.next)


def motion_table(found: Inspection, chosen: NextMotion) -> Table:
    """The motion to make next: where it starts, and its amplitudes."""
    motion, series = chosen.motion, list(chosen.motion.motion.values())
    rows = [("start", *(f"{motion.posture[name]:.5f}" for name in motion.motion))]
    for what, parts in (("sine", [m.sine for m in series]), ("cosine", [m.cosine for m in series])):
        rows += [
            (f"{what} {k}", *(f"{value:.5f}" for value in row)) for k, row in enumerate(zip(*parts, strict=True), 1)
        ]
    title = (
        f"Next motion, like {chosen.like}: start + sum_k sine_k sin(k w t) + cosine_k (cos(k w t) - 1), rad or m,"
        f" base_hz {motion.base_hz:g}, {motion.duration_s:g} s"
    )
    return Table(title, (*left(""), *right(*motion.motion)), tuple(rows))


def next_table(found: Inspection, chosen: NextTests) -> Table:
    """The tests to make next."""
    rows = []
    for place, test in enumerate(chosen.tests, 1):
        outputs, inputs = (points_text(end) for end in test.probe.ends)
        first, last = test.probe.band_hz
        rows.append(
            (
                str(place), posture_text(found.study.model, test.q), outputs,
                inputs if test.probe.inputs is not None else "the same", f"{first:.3g} to {last:.3g}",
                str(test.probe.omega.size),
            )
        )  # fmt: skip
    columns = (*left("", "posture", "outputs", "inputs"), *right("band Hz", "lines"))
    return Table(f"Next tests, like {chosen.like}", columns, tuple(rows))


def next_lines(found: Inspection) -> list[str]:
    """Sentences on the next tests: by how much they better the criterion."""
    chosen = found.next
    if chosen is None:
        return [found.next_remark]
    if isinstance(chosen, NextMotion):
        return [f"{found.next_remark}; condition number {number(chosen.motion.condition_number)}", _least_known(found)]
    what = {"A": "sum of the variances", "D": "logarithm of the determinant of the covariance"}[chosen.part.criterion]
    values = [f"{number(chosen.before)} now" if math.isfinite(chosen.before) else "unbounded now"]
    values.append(f"{number(chosen.chosen)} with the chosen tests")
    if chosen.improved != chosen.chosen:
        values.append(f"{number(chosen.improved)} with their postures improved by gradient")
    return [f"{found.next_remark}; {what}: {', '.join(values)}", _least_known(found)]


def _least_known(found: Inspection) -> str:
    std = np.zeros(0) if found.next is None else found.next.known.std
    worst = int(np.argmax(std))
    return f"least known after them: {found.study.free.names[worst]}, std {percent(100.0 * float(std[worst]))} %"
