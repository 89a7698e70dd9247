"""Report of `jaxmb inspect`: expected uncertainty, next tests and motions, with their figures."""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from jaxmb.identify.assess.result import Result
from jaxmb.identify.estimation.design import Observability
from jaxmb.identify.estimation.identifiability import limits
from jaxmb.identify.experiments.components import can_be_planned
from jaxmb.identify.plan.exciting_motion import NextMotion
from jaxmb.identify.plan.inspection import PLANNERS, UNWEIGHTED, Inspection, inspect
from jaxmb.identify.plan.next_tests import NextPoses, NextTests
from jaxmb.identify.plan.why import points_text, posture_text
from jaxmb.identify.study.format.next_format import AnyNextPart, NextPart
from jaxmb.identify.study.study import Solver, Study
from jaxmb.report.charts import (
    ALERT,
    FITTED,
    INITIAL,
    MEASURED,
    TRUE,
    Axis,
    Bars,
    Chart,
    Colors,
    Line,
    Mark,
    Note,
    Panel,
    Rule,
    matrix_panel,
    named_rows,
    single,
)  # fmt: skip
from jaxmb.report.parameters import budget_table, tied_label, verdict_legend
from jaxmb.report.section import (
    Cell,
    Facts,
    Lines,
    Part,
    Picture,
    Section,
    Table,
    left,
    number,
    percent,
    right,
    section,
    sentence,
    std_percent,
    table,
)


class NextReport(NamedTuple):
    """Tables, figures and sentences on the next tests."""

    parts: tuple[Part, ...]
    lines: tuple[str, ...]
    base_std: tuple[float, ...] | None = None
    """Standard deviations of the base parameters after them, SI units; None for kinds without base parameters."""


def tests_report(found: Inspection, chosen: NextTests) -> NextReport:
    """The tests and the design criterion before and after them."""
    values = f"{_criterion(chosen)}, {number(chosen.chosen)} with the chosen tests"
    if chosen.improved != chosen.chosen:
        values += f", {number(chosen.improved)} with their postures improved by gradient"
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
    proposed = Table(f"Next tests, like {chosen.like}", columns, tuple(rows))
    return NextReport((proposed,), (f"{found.next_remark}; {values}",))


def _criterion(chosen: NextTests | NextPoses) -> str:
    """Clause on the design criterion before the next tests."""
    name = {"A": "sum of the variances", "D": "logarithm of the determinant of the covariance"}[chosen.part.criterion]
    return f"{name}: {number(chosen.before)} now" if math.isfinite(chosen.before) else f"{name}: unbounded now"


def motion_report(found: Inspection, chosen: NextMotion) -> NextReport:
    """Start posture and Fourier coefficients of the motion, its figure, and the standard deviations of the base
    parameters after it."""
    motion, series = chosen.motion, list(chosen.motion.motion.values())
    rows = [("start", *(f"{motion.posture[name]:.5f}" for name in motion.motion))]
    for kind, parts in (("sine", [m.sine for m in series]), ("cosine", [m.cosine for m in series])):
        rows += [
            (f"{kind} {k}", *(f"{value:.5f}" for value in row)) for k, row in enumerate(zip(*parts, strict=True), 1)
        ]
    amplitudes = Table(
        f"Next motion, like {chosen.like}: start + sum_k sine_k sin(k w t) + cosine_k (cos(k w t) - 1), rad or m,"
        f" base_hz {motion.base_hz:g}, {motion.duration_s:g} s",
        (*left(""), *right(*motion.motion)),
        tuple(rows),
    )
    return NextReport(
        (amplitudes, Picture("next-motion", partial(motion_chart, found.study.name, chosen))),
        (f"{found.next_remark}; condition number {number(motion.condition_number)}",),
        tuple(row.std for row in motion.base),
    )


def poses_report(found: Inspection, chosen: NextPoses) -> NextReport:
    """The postures, the design criterion and the observability indices with them."""
    model = found.study.model
    rows = tuple((str(k), *(f"{x:.4f}" for x in row)) for k, row in enumerate(chosen.q.tolist(), 1))
    seen = f", seen from {chosen.station}" if chosen.station else ""
    postures = Table(f"Next postures (rad, m), like {chosen.like}{seen}", right("", *model.coordinates), rows)
    indices, title = chosen.observability, "Observability of all rows with the next ones"
    return NextReport(
        (postures, *([] if indices is None else [observability_table(indices, title)])),
        (f"{found.next_remark}; {_criterion(chosen)}, {number(chosen.chosen)} with the chosen postures",),
    )


def observability_table(indices: Observability, title: str) -> Table:
    """Observability indices O1 to O5."""
    values = dataclasses.asdict(indices)
    return Table(
        title,
        right(*values),
        (tuple(number(value) for value in values.values()),),
        "of the machine's parameters (logarithms, or values over the width of their bounds), stations eliminated, rows"
        " in units of the noise",
    )


SHOWN = 6
"""Largest number of parameters named in the line of a group."""


def inspection_sections(found: Inspection) -> list[Section]:
    """Sections on the expected standard deviations, why parameters are not identifiable, and the next tests."""
    expected = {tied[0]: found.parameters[tied[0]] for tied in found.study.free.tied}
    known, budgets = {name: (p.value, p.unit, p.std) for name, p in expected.items()}, found.uncertainty
    after = next_report(found)
    why = tuple((name, p.why) for name, p in expected.items() if p.why)
    last = Lines((*after.lines, *(f"remark: {remark}" for remark in found.remarks)))
    return [
        *section(
            f"{found.study.name}: expected standard deviations at the {found.linearized_at}",
            [
                expected_table(found), base_table(found, after.base_std) if found.base else None,
                None if found.observability is None else observability_table(found.observability, "Observability"),
                Picture("singular-values", partial(singular_value_chart, found)),
                Picture("standard-deviations", partial(deviation_chart, found)),
            ],
        ),
        *section("Uncertainty budget", [None if budgets is None else budget_table(found.study.free, known, budgets)]),
        *section("Causes and remedies", [Facts(why) if why else None]),
        *section(
            "Weak directions of the parameters",
            [
                group_table(found) if found.groups else None,
                # without groups the figure of standard deviations is complete
                Picture("weak-directions", partial(direction_chart, found))
                if any(len(group.members) > 1 for group in found.groups)
                else None,
            ],
        ),
        *section("What to measure next", [*after.parts, last]),
    ]  # fmt: skip


def expected_table(found: Inspection) -> Table:
    """Parameters with their expected standard deviations after the planned tests and after the proposed next ones."""
    rows, linear = [], not all(found.study.free.logarithmic)
    for names in found.study.free.tied:
        p = found.parameters[names[0]]
        absolute = p.value == 0.0 and math.isfinite(p.std)  # a value of 0 has no relative deviation
        std = number(p.std) if linear else None, "-" if absolute else std_percent(100.0 * p.relative_std)
        after = None
        if p.next_std is not None and p.std_after_next is not None:
            after = number(p.std_after_next) if linear else percent(100.0 * p.next_std)
        rows.append(
            (
                tied_label(names), p.unit, number(p.value), *std, after,
                Cell(p.identifiable, p.identifiable),
            )
        )  # fmt: skip
    after = f"{'std' if found.uncertainty is None else 'noise'}{'' if linear else ' %'} after next"
    columns = (*left("parameter", "unit"), *right("value", "std", "std %", after), *left("identifiable"))
    of_log = "" if found.study.problem.prior is not None else "std: of the logarithm; "
    return table("", columns, rows, of_log + verdict_legend(found.study, "tests"))


NEXT_REPORTS: dict[str, Callable[..., NextReport]] = {
    "frf": tests_report,
    "torque": motion_report,
    "pose": poses_report,
}
"""(inspection, proposal) -> report on it, by kind of test."""


def next_report(found: Inspection) -> NextReport:
    """Report on the proposed next tests, or why there are none."""
    if found.next is None:
        return NextReport((), (found.next_remark,))
    report = NEXT_REPORTS[found.next.part.kind](found, found.next)
    toml = found.next.as_toml(found.study).splitlines()
    proposal = (Lines(("To append to the study file:",)), Lines(tuple(toml), verbatim=True)) if toml else ()
    std = found.next.known.std
    worst = int(np.argmax(std))
    of = "" if found.study.free.logarithmic[worst] else " of the width of its bounds"
    size = f"{percent(100.0 * float(std[worst]))} %{of}" if np.isfinite(std[worst]) else "not identifiable"
    largest = f"largest standard deviation due to noise after them: {found.study.free.names[worst]}, {size}"
    return report._replace(parts=(*report.parts, *proposal), lines=(*report.lines, largest))


def base_table(found: Inspection, std: tuple[float, ...] | None) -> Table:
    """Base parameters with their expected standard deviations, also after the next tests, SI units."""
    return table(
        "Base parameters: combinations identifiable from torques",
        (*left("base parameter"), *right("std", "std after next")),
        [
            (row.formula, number(row.std), None if std is None else number(std[i]))
            for i, row in enumerate(found.base)
        ],
    )  # fmt: skip


def group_table(found: Inspection) -> Table:
    """Weak directions: parameters identifiable only in combination, or not at all."""
    rows = []
    for k, group in enumerate(found.groups, 1):
        names = [found.study.free.names[i] for i in group.members]
        parts = [f"{size:+.2f} {name}" for size, name in zip(group.parts[list(group.members)], names, strict=True)]
        if group.dimension > 1:
            parts = [*names[:SHOWN], *(["..."] if len(names) > SHOWN else []), f"({group.dimension} directions)"]
        elif len(parts) > SHOWN:
            parts = [*parts[:SHOWN], f"and {len(parts) - SHOWN} more"]
        text = f"{names[0]} alone" if len(names) == 1 else "  ".join(parts)
        rows.append((str(k), percent(100.0 * group.std), text))
    return Table("", (*left(""), *right(_deviation_unit(found)), *left("components of the parameters")), tuple(rows))


def _deviation_unit(found: Inspection) -> str:
    """Unit of the standard deviations of weak directions: u is measured in those of the prior, where it has one."""
    std = found.study.problem.prior_std
    return "std %" if std is None else "% of prior" if np.isfinite(std).all() else "% of prior, if any"


MOST_DIRECTIONS = 12
"""Largest number of weak directions drawn, in order of their standard deviation."""
MOST_BARS = 60
"""Largest number of parameters drawn, those with the largest standard deviations."""
HIGHEST = 1e3
"""Standard deviation at which bars are cut: a parameter is not identifiable far below."""


def singular_value_chart(found: Inspection) -> Chart:
    """Singular values of the Jacobian, with the limits of weakly identifiable and not identifiable directions."""
    values, (yes, weak) = found.singular_values, map(float, limits())
    shown = values[values > values.max(initial=0.0) * 1e-16]
    marks: list[Mark] = [
        Line(np.arange(1, shown.size + 1), shown, "singular value", width=0.0, dashes="", marker="o", size=4.0)
    ]
    if found.study.problem.prior is None and shown.size:
        marks += [
            Rule(1.0 / yes, "y", "std 10 %", INITIAL, 0.9, "--"),
            Rule(1.0 / weak, "y", "std 100 %", ALERT, 0.9, "--"),
        ]
    zeros = values.size - shown.size
    x = Axis("direction of the parameters", limits=(0.3, max(values.size, 2) + 0.7), whole=True)
    return single(
        Panel(marks, x, Axis("singular value = 1 / std along it", log=bool(shown.size)), height=2.3),
        f"{found.study.name}: std below {percent(100.0 * yes)} % along {np.sum(shown > 1.0 / yes)} of {values.size}"
        f" directions of the parameters{f', {zeros} singular values are zero' if zeros else ''}",
        "Singular values of the Jacobian in units of the noise, of all parameters together. The weak directions in the"
        " table are of sets of correlated parameters, and their number may differ.",
        4.2,
    )


def deviation_chart(found: Inspection) -> Chart:
    """Predicted standard deviation of every parameter as a bar, with that after the proposed next tests if any.

    They are those of the verdicts: of the logarithm, on a linear scale over the width of the bounds.
    """
    free, color = found.study.free, {"yes": TRUE, "weak": INITIAL, "no": ALERT}
    entries = np.sort(np.argsort(-found.known.std, kind="stable")[:MOST_BARS])
    now, verdicts = found.known.std[entries], np.array(found.known.verdict)
    after = None if found.next is None else found.next.known.std[entries]
    finite = [x for part in (now, after) if part is not None for x in part[np.isfinite(part) & (part > 0.0)]]
    low = 10.0 ** np.floor(np.log10(min([0.03, *finite]))) / 2.0
    high = min(max([3.0, *(2.0 * x for x in finite)]), HIGHEST) if np.isfinite(now).all() else HIGHEST
    rows = np.arange(entries.size)
    top, height = (rows, 0.62) if after is None else (rows - 0.2, 0.36)
    marks: list[Mark] = []
    for verdict in (each for each in color if each in verdicts[entries]):
        own = verdicts[entries] == verdict
        ends = np.minimum(now[own], high)
        marks.append(Bars(top[own], np.full(own.sum(), low), ends, "x", height, verdict, color[verdict]))
    if after is not None:
        label = "after the next tests" if found.uncertainty is None else "after the next tests, noise alone"
        ends = np.clip(after, low, high)
        marks.append(Bars(rows + 0.2, np.full(rows.size, low), ends, "x", height, label, MEASURED))
    for row, std in zip(top, now, strict=True):
        if not std <= high:
            text = "unknown" if not np.isfinite(std) else f"{std:.1g}"
            marks.append(Note(f"{text} ", high, float(row), "#ffffff", align="right"))
    if found.study.problem.prior is None:
        yes, weak = map(float, limits())
        marks += [
            Rule(yes, "x", "limits of yes and weak", "#404040", 0.9, "--"),
            Rule(weak, "x", "", "#404040", 0.9, "--"),
        ]
    note = f", the {MOST_BARS} largest of {free.size}" if entries.size == MOST_BARS < free.size else ""
    scales = {True: "of the logarithm", False: "over the width of the bounds"}
    scale = " or ".join(text for log, text in scales.items() if log in free.logarithmic)
    x = Axis(f"predicted standard deviation {scale}", True, (low, high))
    return single(
        Panel(marks, x, named_rows([free.names[i] for i in entries]), height=0.24 * entries.size + 0.1),
        f"{found.study.name}: {np.sum(verdicts == 'yes')} of {free.size} parameters will be identified{note}",
        "Predicted standard deviation of each parameter; dashed lines are the limits of yes and weak.",
        4.2,
    )


def direction_chart(found: Inspection) -> Chart:
    """Components of the parameters in each weak direction, the largest deviation first; members only."""
    groups = found.groups[:MOST_DIRECTIONS]
    rows = sorted({i for group in groups for i in group.members})[:MOST_BARS]
    parts = np.array([group.parts[rows] for group in groups]).T
    colors = Colors("RdBu_r", (-1.0, 1.0), "component")
    names = [found.study.free.names[i] for i in rows]
    stds = [percent(100.0 * group.std) if np.isfinite(group.std) else "∞" for group in groups]
    label = f"standard deviation of the direction ({_deviation_unit(found).removeprefix('std ')})"
    shown = np.where(np.abs(parts) >= 0.095, parts, 0.0)
    note = f", {len(groups)} of them shown" if len(groups) < len(found.groups) else ""
    return single(
        matrix_panel(shown, names, stds, colors, cell=0.22, labels=("", label), decimals=1),
        f"{found.study.name}: standard deviation {stds[0]} % in the weakest of {len(found.groups)} directions{note}",
        "Components of the parameters in each weak direction, the least known first.",
        max(0.42 * len(groups), 2.6),
    )


SAMPLES = 500
"""Samples per period."""


def motion_chart(study: str, chosen: NextMotion) -> Chart:
    """Position, speed and acceleration of each coordinate over one period, with their limits.

    Args:
        study: name of the study.
        chosen: the motion.
    """
    motion, ends = chosen.motion, chosen.limits
    time = np.linspace(0.0, 1.0 / motion.base_hz, SAMPLES)
    x = Axis("time (s)", limits=(0.0, float(time[-1])))
    position, speed, acceleration = motion.states(time)

    def cell(i: int, kind: str, label: str, values: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[Panel]:
        rules = (Rule(float(x), "y", "limits", ALERT, 0.9, "--") for x in (low[i], high[i]) if np.isfinite(x))
        marks = (Line(time, values[:, i], "motion", FITTED, 1.2), *rules)
        return (Panel(marks, x, Axis(label), "" if i else kind, 1.0),)

    def row(i: int, name: str) -> list[tuple[Panel]]:
        unit = "rad" if chosen.revolute[i] else "m"
        return [
            cell(i, "position", f"{name} ({unit})", position, ends.lower, ends.upper),
            cell(i, "speed", f"{name}' ({unit}/s)", speed, -ends.speed, ends.speed),
            cell(i, "acceleration", f"{name}'' ({unit}/s²)", acceleration, -ends.acceleration, ends.acceleration),
        ]

    return Chart(
        f"{study}: the next motion, one period, condition number {number(motion.condition_number)}",
        "Position, speed and acceleration of each coordinate within their limits.",
        [row(i, name) for i, name in enumerate(motion.motion)],
        1.9,
        shared_x=True,
    )


def next_sections(result: Result) -> list[Section]:
    """Section on the next test, proposed at the identified values, with TOML for the study file, or the reason why
    there is none."""
    title = "What to measure next"
    if all(p.identifiable == "yes" for p in result.parameters.values()) and not result.doubts:
        return [Section(title, (Lines(("All parameters are identified: this study needs no further test.",)),))]
    sentences, found = list[str](), None
    part = _candidates(result.study) if result.converged else None
    if part is not None and not part.takes_minutes:
        values = np.array([result.parameters[names[0]].value for names in result.study.free.tied])
        start = dataclasses.replace(result.study.start, values=values)
        # without the true values, as at a real machine
        study = dataclasses.replace(result.study, next=part, start=start, truth={})
        try:
            found = inspect(study)
        except ValueError as error:
            sentences.append(sentence(str(error)))
    if found is None or found.next is None:
        return [Section(title, (Lines((*sentences, _why_none(result))),))]
    after = next_report(found)
    sentences += [sentence(line) for line in after.lines]
    sentences += [sentence(remark) for remark in found.remarks if remark == UNWEIGHTED]
    if result.study.next is None:
        sentences.append(DRAWN_FROM)
    return [Section(title, (Lines(tuple(sentences)), *after.parts))]


def _why_none(result: Result) -> str:
    """A sentence on the reason why no test is proposed, and how to get a proposal."""
    study = result.study
    kind = next((entry.kind for entry in study.fitted if entry.kind in PLANNERS), None)
    if kind is None or study.solver is Solver.STIFFNESS_MODEL:
        return f"No next test is proposed: tests of the kinds {', '.join(PLANNERS)} can be planned, other kinds cannot."
    if study.next is not None:
        return "`jaxmb inspect` of this study selects the next test from its table [next]."
    postures = ""
    if kind != "torque" and study.model.coordinates:  # a machine of beams alone has none
        ends = '"-30 deg", "30 deg"' if study.model.revolute[0] else "-0.1, 0.1"
        postures = f", postures = {{ {study.model.coordinates[0]} = [{ends}] }}"
    doubt = "" if result.converged else "No next test is proposed, since the identified values are in doubt. "
    return (
        f'{doubt}With candidates in the study file, such as `next = {{ kind = "{kind}"{postures} }}` at its top,'
        " `jaxmb inspect` selects the next test."
    )


DRAWN_FROM = (
    "Candidates are postures within the ranges of the coordinates, or within 45° of those of the tests; a table [next]"
    " of the study states others, and further points and bands."
)
CANDIDATES, AROUND = 60, math.radians(45.0)
"""Number of candidate postures without [next], and their largest distance from those of the tests, rad."""


def _candidates(study: Study) -> AnyNextPart | None:
    """`[next]` of a study; by default FRF tests at postures that differ in the coordinates named by the tests or, where
    they name none, in those with a range."""
    if study.next is not None or not any(map(can_be_planned, study.tests)):
        return study.next
    known = {c.name: c for c in study.machine.moving_parts}
    ranges, stated = dict[str, tuple[float, float]](), dict[str, list[float]]()
    for part in study.origin.file.test:
        for name, value in getattr(part, "posture", {}).items():
            stated.setdefault(name, []).append(value)
    for name, values in stated.items():
        c = known[name]
        if c.range is not None or c.type == "revolute":
            ranges[name] = c.range or (min(values) - AROUND, max(values) + AROUND)
    ranges = ranges or {c.name: c.range for c in known.values() if c.range is not None}
    return NextPart(postures=ranges, candidates=CANDIDATES) if ranges else None
