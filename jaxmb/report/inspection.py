"""Report on an inspection."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxmb.identify.plan.inspection import Inspection
from jaxmb.identify.plan.next_motion import NextMotion
from jaxmb.identify.plan.next_tests import NextTests
from jaxmb.identify.plan.why import points_text, posture_text
from jaxmb.report.section import (
    Cell,
    Facts,
    Lines,
    Part,
    Picture,
    Section,
    Table,
    deviation,
    drawn_by,
    left,
    number,
    percent,
    right,
    section,
)


class NextReport(NamedTuple):
    """Tables, figures and sentences on the next tests."""

    parts: tuple[Part, ...]
    lines: tuple[str, ...]
    base_std: tuple[float, ...] | None = None
    """Standard deviations of the base parameters after them, SI units; None for kinds without base parameters."""


def tests_report(found: Inspection, chosen: NextTests) -> NextReport:
    """The tests and the design criterion before and after them."""
    name = {"A": "sum of the variances", "D": "logarithm of the determinant of the covariance"}[chosen.part.criterion]
    values = [f"{number(chosen.before)} now" if math.isfinite(chosen.before) else "unbounded now"]
    values.append(f"{number(chosen.chosen)} with the chosen tests")
    if chosen.improved != chosen.chosen:
        values.append(f"{number(chosen.improved)} with their postures improved by gradient")
    return NextReport((next_table(found, chosen),), (f"{found.next_remark}; {name}: {', '.join(values)}",))


def next_table(found: Inspection, chosen: NextTests) -> Table:
    """Table of the proposed next tests."""
    rows = []
    for k, test in enumerate(chosen.tests, 1):
        outputs, inputs = (points_text(end) for end in test.probe.ends)
        first, last = test.probe.band_hz
        rows.append(
            (
                str(k), posture_text(found.study.model, test.q), outputs,
                inputs if test.probe.inputs is not None else "as outputs", f"{first:.3g} to {last:.3g}",
                str(test.probe.omega.size),
            )
        )  # fmt: skip
    columns = (*left("", "posture", "outputs", "inputs"), *right("band Hz", "lines"))
    return Table(f"Next tests, like {chosen.like}", columns, tuple(rows))


def motion_report(found: Inspection, chosen: NextMotion) -> NextReport:
    """Amplitudes of the motion, its figure, and the standard deviations of the base parameters after it."""
    draw = drawn_by("jaxmb.report.inspection_figures:motion_figure", found.study.name, chosen)
    return NextReport(
        (motion_table(chosen), Picture("next-motion", draw)),
        (f"{found.next_remark}; condition number {number(chosen.motion.condition_number)}",),
        tuple(row.std for row in chosen.motion.base),
    )


def motion_table(chosen: NextMotion) -> Table:
    """Start posture and Fourier coefficients of the proposed motion."""
    motion, series = chosen.motion, list(chosen.motion.motion.values())
    rows = [("start", *(f"{motion.posture[name]:.5f}" for name in motion.motion))]
    for kind, parts in (("sine", [m.sine for m in series]), ("cosine", [m.cosine for m in series])):
        rows += [
            (f"{kind} {k}", *(f"{value:.5f}" for value in row)) for k, row in enumerate(zip(*parts, strict=True), 1)
        ]
    title = (
        f"Next motion, like {chosen.like}: start + sum_k sine_k sin(k w t) + cosine_k (cos(k w t) - 1), rad or m,"
        f" base_hz {motion.base_hz:g}, {motion.duration_s:g} s"
    )
    return Table(title, (*left(""), *right(*motion.motion)), tuple(rows))


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
    return Picture(name, drawn_by(f"jaxmb.report.inspection_figures:{function}", found))


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


NEXT_REPORTS: dict[str, Callable[..., NextReport]] = {"frf": tests_report, "torque": motion_report}
"""(inspection, proposal) -> report on it, by kind of test."""


def next_report(found: Inspection) -> NextReport:
    """Report on the proposed next tests, or why there are none."""
    if found.next is None:
        return NextReport((), (found.next_remark,))
    report = NEXT_REPORTS[found.next.part.kind](found, found.next)
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
