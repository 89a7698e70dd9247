"""Report pages of results: one identification, several beside each other, or saved sections of other commands."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jaxmb.identify.assess.result import Outcome, Parameter, Result
from jaxmb.identify.assess.tests.deflections import DeflectionMetrics
from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.study.study import Solver
from jaxmb.mechanics.kinematics import frame_pose
from jaxmb.mechanics.tangent import linearize
from jaxmb.report.charts import (
    ALERT,
    FITTED,
    INITIAL,
    TRUE,
    Arrows,
    Axis,
    Chart,
    Intervals,
    Mark,
    Panel,
    Rule,
    Skeleton,
)
from jaxmb.report.mode_shapes import mode_shape_skeleton
from jaxmb.report.page import Page
from jaxmb.report.parameters import free_values
from jaxmb.report.result_sections import data_sentences, doubts, sections, to_do
from jaxmb.report.section import (
    Facts,
    Group,
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
)
from jaxmb.report.structure import at_rest
from jaxmb.report.tests import more_tests
from jaxmb.response.modal import modes

BUDGET = "Uncertainty budget"
NO_BUDGET = (
    "The standard deviations are those of the noise alone: this result has no tolerances of the machine and the tests."
)
MOST_MODES = 8
"""Largest number of modes of a machine in an animation."""
SHOWN_TESTS = 2
"""Number of tests whose mode shapes are shown at first."""
COLORS = (FITTED, ALERT, TRUE, INITIAL, "#CC79A7", "#56B4E9")
NOTABLE = 2.0
"""Difference of two values over its standard deviation from which they are called different."""


def result_page(result: Result, folder: Path | None = None) -> Page:
    """Page of an identification.

    Args:
        result: the identification.
        folder: where it was read from, for the provenance.
    """
    _, *others = sections(result)
    budget = [each for each in others if each.title == BUDGET]
    rest = [each for each in others if each not in budget]
    budget = budget or [Section(BUDGET, (Lines((NO_BUDGET,)),))]
    shown = (
        *budget, *next_sections(result), *rest[:-1], *more_sections(result), *arrow_sections(result),
        *mode_sections(result), rest[-1], provenance_section(result, folder),
    )  # fmt: skip
    subtitle = result.study.description or f"Identification of {result.machine.name}"
    return Page(
        f"{result.study.name}: identified parameters", subtitle, _colour(result), verdict_sentences(result), shown
    )


def _colour(result: Result) -> str:
    verdicts = {p.identifiable for p in result.parameters.values()}
    if not result.converged or verdicts == {"no"}:
        return "no"
    return "yes" if verdicts == {"yes"} and not result.doubts else "weak"


def verdict_sentences(result: Result) -> list[str]:
    """The verdict in plain sentences: the fit, the data, identified, weakly identified and unidentified parameters."""
    found = {"yes": list[str](), "weak": list[str](), "no": list[str]()}
    for label, name in _values(result):
        p = result.parameters[name]
        std = f" (standard deviation {percent(100.0 * p.std_log)} %)" if math.isfinite(p.std_log) else ""
        found[p.identifiable].append(f"{label}{std if p.identifiable != 'yes' else ''}")
    count = sum(map(len, found.values()))
    good = {Outcome.CONVERGED: "The fit converged", Outcome.NOT_CONVERGED: "The fit did not converge",
            Outcome.NOT_REPRODUCED: "The best fit does not reproduce the data"}  # fmt: skip
    first = (
        f"{good.get(result.outcome, 'The fit converged with doubts')}; {len(found['yes'])} of {count} parameters are"
    )
    sentences = [f"{first} identified, {len(found['weak'])} weakly, {len(found['no'])} not."]
    sentences += [_sentence(f"Data: {text}") for text in data_sentences(result)]
    sentences.append(f"Identified: {_listed(found['yes'])}.")
    sentences.append(f"Weakly identified: {_listed(found['weak'])}.")
    sentences.append(f"Not identified: {_listed(found['no'])}.")
    sentences += [_sentence(f"Doubt: {text}") for text in doubts(result)]
    return sentences + [_sentence(f"To do: {text}") for text in to_do(result)]


def _values(result: Result) -> list[tuple[str, str]]:
    """Label and name of each parameter."""
    if result.study.solver is Solver.STIFFNESS_MODEL:
        return [(name, name) for name in result.parameters]
    return free_values(result)


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


MOST_NAMED = 12


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}" if names else "none"


def next_sections(result: Result) -> list[Section]:
    """Section on the next test; what the command `inspect` proposes takes too long for a page."""
    title = "What to measure next"
    if all(p.identifiable == "yes" for p in result.parameters.values()) and not result.doubts:
        text = "All parameters are identified: this study needs no further test."
        return [Section(title, (Lines((text,)),))]
    hint = "`jaxmb inspect` proposes the next test for a study with a table [next]."
    return [Section(title, (Lines((*map(_sentence, to_do(result)), hint)),))]


def more_sections(result: Result) -> list[Section]:
    """Section with the charts of the tests that the other sections do not show one by one."""
    groups = [Group(entry.name, tuple(parts)) for entry, parts in more_tests(result)]
    return section("Every other test", groups)


def mode_sections(result: Result) -> list[Section]:
    """Section with the animated mode shapes of the identified machine at the postures of its vibration tests."""
    entries = [entry for entry in result.study.entries if entry.test.vibration is not None]
    distinct = {tuple(np.asarray(entry.test.vibration.q).tolist()): entry for entry in reversed(entries)}
    entries = list(distinct.values())[::-1]
    groups = list[Part]()
    for k, entry in enumerate(entries):
        picture = Picture(f"modes-{k + 1}", partial(_mode_shapes, result, entry))
        groups.append(Group(f"Modes at the posture of {entry.name}", (picture,), k < SHOWN_TESTS))
    return section("Mode shapes of the identified machine", groups)


def _mode_shapes(result: Result, entry: Entry) -> Skeleton:
    q = entry.test.vibration.q
    found = modes(linearize(result.model, q))
    in_band = int(np.sum(np.asarray(found.frequency_hz) <= entry.test.vibration.band_end_hz))
    body = mode_shape_skeleton(result.model, q, min(max(in_band, 1), MOST_MODES), found, energy=True)
    first = max(body.modes[0].energy, key=body.modes[0].energy.__getitem__)
    share = f"{100.0 * body.modes[0].energy[first]:.0f} % of the strain energy of mode 1 in {first}"
    title = f"{entry.name}: {len(body.modes)} modes; {share}"
    caption = f"{body.caption} Parts are coloured by their share of the strain energy; the machine at rest is grey."
    return dataclasses.replace(body, title=title, caption=caption)


def arrow_sections(result: Result) -> list[Section]:
    """Section with the measured and predicted displacements of deflection tests as arrows in space."""
    metrics = result.metrics.of(DeflectionMetrics)
    if metrics is None or not any(np.any(row.displacement("mm").seen) for row in metrics.deflections):
        return []
    return section(
        "Deflections in space", (Picture("deflection-arrows", partial(_deflection_arrows, result, metrics)),)
    )


def _deflection_arrows(result: Result, metrics: DeflectionMetrics) -> Skeleton:
    postures = {case.name: case.q for entry in result.study.entries if entry.kind == "deflection"
                for case in _cases(entry)}  # fmt: skip
    model, rows = result.model, [row for row in metrics.deflections if np.any(row.displacement("mm").seen)]
    first = postures.get(rows[0].test, np.asarray(model.reference))
    origin = np.array([
        np.asarray(frame_pose(model, postures.get(row.test, first), row.point))[:3, 3] for row in rows
    ])  # fmt: skip
    parts = [
        np.nan_to_num(np.array([getattr(row, f"{what}_mm") for row in rows])) / 1e3
        for what in ("measured", "predicted")
    ]
    arrows = (Arrows("measured", origin, parts[0], "#737373"), Arrows("predicted", origin, parts[1], FITTED))
    found = at_rest(model, first)
    longest = 1e3 * float(np.linalg.norm(parts[0], axis=1).max())
    title = f"{len(rows)} displacements, measured and predicted, up to {longest:.3g} mm"
    caption = "The machine in the posture of the first test, and displacements where the points were in each test."
    return dataclasses.replace(found, arrows=arrows, title=title, caption=caption)


def _cases(entry: Entry) -> Iterator[Any]:
    yield from getattr(entry.source, "cases", ())


def provenance_section(result: Result, folder: Path | None) -> Section:
    """Section on the origin of a result: command, seed, digests and versions."""
    saved = result.as_json()
    rows = [("study", result.study.name), ("machine", result.machine.name)]
    noise = saved["noise_seed"]
    command = f"jaxmb identify {result.study.name} --seed {result.seed}"
    rows.append(("command", command + (f" --noise-seed {noise}" if noise is not None else "")))
    rows += [("read from", str(folder))] if folder is not None else []
    for key in ("study_digest", "machine_digest"):
        rows += [(key.replace("_", " "), str(saved[key]))] if saved[key] else []
    rows.append(("time", f"{result.seconds.get('total', math.nan):.1f} s"))
    rows.append(("versions", ", ".join(f"{name} {version}" for name, version in result.versions.items())))
    return Section("Provenance", (Facts(tuple(rows)),))


def comparison_page(results: Sequence[Result], names: Sequence[str]) -> Page:
    """Page of several identifications side by side: values, and their differences from the first one.

    Args:
        results: the identifications, the first is the reference.
        names: their headings.
    """
    shared = [name for name in results[0].parameters if any(name in other.parameters for other in results[1:])]
    changes = {name: [_difference(results[0], other, name) for other in results[1:]] for name in shared}
    moved = {name: max((abs(z) for z in zs if z is not None), default=0.0) for name, zs in changes.items()}
    notable = sorted((name for name in shared if moved[name] >= NOTABLE), key=lambda name: -moved[name])
    sentences = [
        f"{len(notable)} of {len(shared)} common parameters differ by more than {NOTABLE:g} standard deviations from"
        f" {names[0]}."
    ]
    sentences += [f"{name}: {', '.join(_change_text(results, names, name))}." for name in notable[:MOST_NAMED]]
    if len(notable) > MOST_NAMED:
        sentences.append(f"And {len(notable) - MOST_NAMED} more, in the table.")
    counts = [(name, f"{sum(p.identifiable == 'yes' for p in r.parameters.values())} of {len(r.parameters)} identified,"
               f" {r.status}") for name, r in zip(names, results, strict=True)]  # fmt: skip
    pictures = (Picture("compared-parameters", partial(comparison_chart, results, names, shared)),) if shared else ()
    parts = (
        Facts(tuple(counts)), comparison_table(results, names, changes), *pictures,
    )  # fmt: skip
    found = [Section("What changed", parts), *_compared_modes(results, names)]
    for name, result in zip(names, results, strict=True):
        own = result_page(result)
        for each in own.sections:
            found.append(dataclasses.replace(each, title=f"{name}: {each.title}"))
    title = f"{' and '.join(names)} compared" if len(names) == 2 else f"{len(names)} results compared"
    return Page(title, ", ".join(r.study.description or r.study.name for r in results), "", sentences, found)


def _difference(one: Result, other: Result, name: str) -> float | None:
    """Difference of a parameter over its standard deviation, the results taken as independent; None if unknown."""
    if name not in other.parameters:
        return None
    a, b = one.parameters[name], other.parameters[name]
    if one.is_logarithmic(name) and other.is_logarithmic(name) and a.value > 0.0 and b.value > 0.0:
        std = math.hypot(a.std_log, b.std_log)
        change = math.log(b.value / a.value)
    else:
        std, change = math.hypot(a.std, b.std), b.value - a.value
    if not math.isfinite(std):
        return None
    return change / std if std > 0.0 else 0.0 if change == 0.0 else math.copysign(math.inf, change)


def _change_text(results: Sequence[Result], names: Sequence[str], name: str) -> Iterator[str]:
    a = results[0].parameters[name]
    for label, other in zip(names[1:], results[1:], strict=True):
        z = _difference(results[0], other, name)
        if z is not None:
            b = other.parameters[name]
            relative = (
                f"{percent(100.0 * (b.value / a.value - 1.0), signed=True)} %" if a.value else number(b.value - a.value)
            )
            yield f"{relative} in {label}, {abs(z):.3g} standard deviations"


def comparison_table(results: Sequence[Result], names: Sequence[str], changes: dict[str, list[float | None]]) -> Table:
    """Values of the common parameters in each result, and differences from the first over their standard deviation."""
    rows = []
    for name, zs in changes.items():
        cells = [_value_text(result.parameters.get(name)) for result in results]
        rows.append((name, results[0].parameters[name].unit, *cells, *("-" if z is None else f"{z:+.2g}" for z in zs)))
    columns = (*left("parameter", "unit"), *right(*names), *right(*(f"{name}: difference / std" for name in names[1:])))
    caption = (
        f"± one standard deviation; difference from {names[0]} over the standard deviation of the difference, with the"
        " results taken as independent, which they are not where they share data"
    )
    return Table("", columns, tuple(rows), caption)


def _value_text(p: Parameter | None) -> str:
    if p is None:
        return "-"
    return f"{number(p.value)} ± {number(p.std, 2)}" if math.isfinite(p.std) else f"{number(p.value)} (no std)"


def comparison_chart(results: Sequence[Result], names: Sequence[str], shared: Sequence[str]) -> Chart:
    """95 % intervals of the common parameters relative to the values of the first result."""
    rows = np.arange(len(shared))
    reference = np.array([results[0].parameters[name].value for name in shared])
    marks: list[Mark] = [Rule(0.0, "x")]
    factor = 0.8 / max(len(results), 1)
    for k, (label, result) in enumerate(zip(names, results, strict=True)):
        found = [result.parameters.get(name) for name in shared]
        own = np.array([p is not None and p.interval_95 is not None for p in found]) & (reference != 0.0)
        if not own.any():
            continue
        kept = [p for p, keep in zip(found, own, strict=True) if keep and p is not None and p.interval_95 is not None]
        value = np.array([p.value for p in kept])
        ends = np.array([p.interval_95 for p in kept], dtype=float)
        scale = np.abs(reference[own])
        reach = np.abs(100.0 * (ends - value[:, None]) / scale[:, None]).T
        at = rows[own] + factor * (k - 0.5 * (len(results) - 1))
        change = 100.0 * (value - reference[own]) / scale
        marks.append(Intervals(change, at, reach, "x", label, COLORS[k % len(COLORS)], 1.3, "o", 3.5))
    y = Axis("", limits=(len(shared) - 0.4, -0.6), ticks=rows, names=list(shared))
    widest = [float(np.max(np.abs(m.x) + m.reach.max(axis=0))) for m in marks if isinstance(m, Intervals)]  # pyright: ignore[reportAttributeAccessIssue]
    end = 1.1 * min(max(widest, default=1.0), 200.0)
    x = Axis(f"difference from {names[0]} (%)", limits=(-end, end))
    panel = Panel(marks, x, y, height=max(0.24, 0.14 * len(results)) * len(shared) + 0.2)
    caption = "Values with their 95 % intervals: those that do not overlap have changed."
    return Chart(f"Parameters of {', '.join(names)}, relative to {names[0]}", caption, [[(panel,)]], 5.0)


def _compared_modes(results: Sequence[Result], names: Sequence[str]) -> list[Section]:
    """Section on the modes at postures of the same name, in the order of frequency."""
    parts = list[Part]()
    for posture in dict.fromkeys(mode.posture for result in results for mode in result.modes):
        columns = [[mode for mode in result.modes if mode.posture == posture] for result in results]
        if sum(map(bool, columns)) < 2:
            continue
        rows = []
        for m in range(max(map(len, columns))):
            own = [column[m] if m < len(column) else None for column in columns]
            rows.append((
                str(m + 1),
                *("-" if x is None else f"{x.damped_frequency_hz:.3f}" for x in own),
                *("-" if x is None else f"{100.0 * x.damping_ratio:.3f}" for x in own),
            ))  # fmt: skip
        columns_of = (
            *left("mode"),
            *right(*(f"{name}: Hz" for name in names), *(f"{name}: damping %" for name in names)),
        )
        parts.append(Table(f"Modes, {posture}", columns_of, tuple(rows), "in the order of frequency"))
    return section("Modes compared", parts)
