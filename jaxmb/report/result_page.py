"""Report pages of results: one identification, several beside each other, or saved sections of other commands."""

import dataclasses
import math
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path

import numpy as np

from jaxmb.identify.assess.result import Outcome, Parameter, Result
from jaxmb.identify.assess.saved import RESULT, STUDY, load_result
from jaxmb.identify.assess.tests.deflections import DeflectionMetrics, DeflectionRow
from jaxmb.identify.experiments.test import Entry
from jaxmb.io.files import nearby
from jaxmb.io.validation import InputError, listed
from jaxmb.machine.families import STATION
from jaxmb.mechanics.kinematics import frame_pose
from jaxmb.report.charts import (
    FITTED,
    SERIES,
    Arrows,
    Axis,
    Chart,
    Line,
    Mark,
    Panel,
    Rule,
    Skeleton,
    named_rows,
)
from jaxmb.report.charts_of_tests import measured_rows
from jaxmb.report.inspection import next_sections
from jaxmb.report.modal import ANALYSIS, SavedAnalysis, compared_analyses
from jaxmb.report.mode_shapes import at_rest, mode_shape_skeleton
from jaxmb.report.modes import frequency_unit
from jaxmb.report.page import REPORT, Page, notebook_html, read_sections, versions_text
from jaxmb.report.parameters import LARGEST_FACTOR
from jaxmb.report.result_sections import by_verdict, data_sentences, doubts, sections, to_do
from jaxmb.report.section import (
    Facts,
    Group,
    Lines,
    Part,
    Picture,
    Section,
    Table,
    capital,
    hertz,
    left,
    number,
    percent,
    pictures,
    right,
    section,
    sentence,
    side_by_side,
)
from jaxmb.report.tests import more_tests
from jaxmb.response.modal import Modes, possible_modes

BUDGET = "Uncertainty budget"
NO_BUDGET = (
    "This result has no tolerances of the machine and the tests: the standard deviations are those of the noise and of"
    " the misfit."
)
MOST_MODES = 8
"""Largest number of modes of a machine in an animation."""
SHOWN_TESTS = 2
"""Number of tests whose mode shapes are shown at first."""
NOTABLE = 2.0
"""Difference of two values over its standard deviation from which they are called different."""


def result_page(result: Result, folder: Path | None = None, whole: bool = True) -> Page:
    """Page of an identification.

    Args:
        result: the identification.
        folder: where it was read from, for the provenance.
        whole: whether it has the next test, which takes some seconds, machines in space and further tests.
    """
    _, *others = sections(result)
    rest = [each for each in others if each.title != BUDGET]
    budget = [each for each in others if each.title == BUDGET] or [Section(BUDGET, (Lines((NO_BUDGET,)),))]
    proposed, further = list[Section](), list[Section]()
    if whole:
        groups = [Group(entry.name, tuple(parts)) for entry, parts in more_tests(result)]
        further = [*section("Every other test", groups), *arrow_sections(result), *mode_sections(result)]
        proposed = next_sections(result)
    verdicts = {p.identifiable for p in result.parameters.values()}
    color = "yes" if verdicts == {"yes"} and not result.doubts else "weak"
    color = "no" if not result.converged or verdicts == {"no"} else color
    return Page(
        f"{result.study.name}: identified parameters",
        result.study.description or f"Identification of {result.machine.name}",
        color,
        verdict_sentences(result),
        (*budget, *proposed, *rest[:-1], *further, rest[-1], provenance_section(result, folder)),
    )


def result_html(result: Result) -> str:
    """Verdict, tables and main charts of an identification as HTML for notebooks, for `Result` to show itself."""
    return notebook_html(result_page(result, whole=False))


def verdict_sentences(result: Result) -> list[str]:
    """The verdict in plain sentences: the fit, the data, identified, weakly identified and unidentified parameters."""
    found = by_verdict(result)
    count = sum(map(len, found.values()))
    good = {Outcome.CONVERGED: "The fit converged", Outcome.NOT_CONVERGED: "The fit did not converge",
            Outcome.NOT_REPRODUCED: "The best fit does not reproduce the data"}  # fmt: skip
    first = (
        f"{good.get(result.outcome, 'The fit converged with doubts')}; {len(found['yes'])} of {count} parameters are"
    )
    headings = {"yes": "Identified", "weak": "Weakly identified", "no": "Not identified"}
    return [
        f"{first} identified, {len(found['weak'])} weakly, {len(found['no'])} not.",
        *(sentence(f"Data: {text}") for text in data_sentences(result)),
        *(f"{headings[verdict]}: {listed(names, MOST_NAMED) or 'none'}." for verdict, names in found.items()),
        *(sentence(f"Doubt: {text}") for text in doubts(result)),
        *(sentence(f"To do: {text}") for text in to_do(result)),
    ]


MOST_NAMED = 12


def mode_sections(result: Result) -> list[Section]:
    """Section with the animated mode shapes of the identified machine at the postures of its vibration tests."""
    entries = [entry for entry in result.study.entries if entry.test.vibration is not None]
    distinct = {tuple(np.asarray(entry.test.vibration.q).tolist()): entry for entry in reversed(entries)}
    entries = sorted(distinct.values(), key=entries.index)
    found = [(entry, possible_modes(entry.test.view(result.model).tangent)) for entry in entries]
    drawn = [(entry, partial(_mode_shapes, result, entry, own)) for entry, own in found if own.frequency_hz.size]
    groups = [
        Group(f"Modes at the posture of {entry.name}", (Picture(f"modes-{k}", draw),), k <= SHOWN_TESTS)
        for k, (entry, draw) in enumerate(drawn, 1)
    ]
    return section("Mode shapes of the identified machine", groups)


def _mode_shapes(result: Result, entry: Entry, found: Modes) -> Skeleton:
    q = entry.test.vibration.q
    in_band = int(np.sum(np.asarray(found.frequency_hz) <= entry.test.vibration.band_end_hz))
    body = mode_shape_skeleton(result.model, q, min(max(in_band, 1), MOST_MODES), found)
    first = max(body.modes[0].energy, key=body.modes[0].energy.__getitem__)
    share = f"{100.0 * body.modes[0].energy[first]:.0f} % of the strain energy of mode 1 in {first}"
    return dataclasses.replace(
        body,
        modes=tuple(mode._replace(frequency_unit=entry.source.frequency_unit) for mode in body.modes),
        title=f"{entry.name}: {len(body.modes)} modes; {share}",
        caption=f"{body.caption} Parts are coloured by their share of the strain energy; the machine at rest is grey.",
    )


def arrow_sections(result: Result) -> list[Section]:
    """Section with the measured and predicted displacements of deflection tests as arrows in space."""
    metrics = result.metrics.of(DeflectionMetrics)
    rows = [] if metrics is None else measured_rows(metrics, "mm")
    arrows = Picture("deflection-arrows", partial(_deflection_arrows, result, rows)) if rows else None
    return section("Deflections in space", (arrows,))


def _deflection_arrows(result: Result, rows: Sequence[DeflectionRow]) -> Skeleton:
    every = result.study.entries
    # different tests may have load cases of one name
    postures = {(entry.name, case.name): case.q for entry in every for case in getattr(entry.source, "cases", ())}
    model, at = result.model, [(row.set, row.test) for row in rows]
    first = postures.get(at[0], np.asarray(model.reference))
    origin = np.array([
        np.asarray(frame_pose(model, postures.get(case, first), row.point))[:3, 3]
        for case, row in zip(at, rows, strict=True)
    ])  # fmt: skip
    parts = [
        np.nan_to_num(np.array([getattr(row, f"{what}_mm") for row in rows])) / 1e3
        for what in ("measured", "predicted")
    ]
    longest = 1e3 * float(np.linalg.norm(parts[0], axis=1).max())
    return dataclasses.replace(
        at_rest(model, first),
        arrows=(Arrows("measured", origin, parts[0], "#737373"), Arrows("predicted", origin, parts[1], FITTED)),
        title=f"{len(rows)} displacements, measured and predicted, up to {longest:.3g} mm",
        caption="The machine in the posture of the first test, and displacements where the points were in each test.",
    )


def provenance_section(result: Result, folder: Path | None) -> Section:
    """Section on the origin of a result: command that repeats the fit, seed, digests and versions."""
    saved = result.as_json()
    seeds = {"seed": result.seed, "noise-seed": saved["noise_seed"]}
    seeds = {name: seed for name, seed in seeds.items() if seed is not None}
    # the study in the folder contains options such as --search; that of the name may be another file, or none
    again = () if folder is None else ("jaxmb identify", shlex.quote(str(folder / STUDY)))
    again += tuple(f"--{name} {seed}" for name, seed in seeds.items() if again)
    rows = (
        ("study", result.study.name),
        ("machine", result.machine.name),
        *((name.replace("-", " "), str(seed)) for name, seed in seeds.items()),
        ("repeat the fit", " ".join(again)),
        ("read from", str(folder or "")),
        ("study digest", str(saved["study_digest"] or "")),
        ("machine digest", str(saved["machine_digest"] or "")),
        ("time", f"{result.seconds.get('total', math.nan):.1f} s"),
        ("versions", versions_text(result.versions)),
    )
    return Section("Provenance", (Facts(tuple(row for row in rows if row[1])),))


def comparison_page(results: Sequence[Result], names: Sequence[str]) -> Page:
    """Page of several identifications side by side: values, and their differences from the first one.

    Args:
        results: the identifications, the first is the reference.
        names: their headings.
    """
    repeated = set.intersection(*({n for tied in r.study.free.tied for n in tied[1:]} for r in results))
    # a station is where the measuring device stood in a test, and has a table there
    first = {n: p for n, p in results[0].parameters.items() if n not in repeated and n.split(".")[0] != STATION}
    shared = [name for name, p in first.items() if any(_same(r, p, name) for r in results[1:])]
    common = [_correlations(results[0], other) for other in results[1:]]
    changes = {
        name: [_difference(results[0], r, name, c.get(name, 0.0)) for r, c in zip(results[1:], common, strict=True)]
        for name in shared
    }
    moved = {name: max((abs(z) for z in zs if z is not None), default=0.0) for name, zs in changes.items()}
    notable = sorted((name for name in shared if moved[name] >= NOTABLE), key=lambda name: -moved[name])
    known = [name for name, zs in changes.items() if any(z is not None for z in zs)]
    compared = (
        f"{len(notable)} of {len(known)} common identifiable parameters differ by more than {NOTABLE:g}"
        f" standard deviations from {names[0]}"
    )
    sentences = [f"{compared if known else f'No parameter is identifiable both in {names[0]} and in another result'}."]
    sentences += [f"{n}: {', '.join(_change_text(results, names, n, changes[n]))}." for n in notable[:MOST_NAMED]]
    if len(notable) > MOST_NAMED:
        sentences.append(f"And {len(notable) - MOST_NAMED} more, in the table.")
    machines = list(dict.fromkeys(result.machine.name for result in results))
    if len(machines) > 1:
        sentences.append(f"The results are of different machines: {', '.join(machines)}.")
    said = {name: verdict_sentences(result) for name, result in zip(names, results, strict=True)}
    draw = partial(comparison_chart, results, names, known, compared)
    changed = (
        Facts(tuple((name, each[0]) for name, each in said.items())),
        comparison_table(results, names, changes) if shared else None,
        Picture("compared-parameters", draw) if known else None,
        *(Group(f"Verdict on {name}", (Lines(tuple(each)),)) for name, each in said.items()),
    )
    return Page(
        f"{' and '.join(names)} compared" if len(names) == 2 else f"{len(names)} results compared",
        ", ".join(r.study.description or r.study.name for r in results),
        "",
        sentences,
        [
            *section("What changed", changed),
            *_compared_modes(results, names),
            *side_by_side([(name, result_page(each).sections) for name, each in zip(names, results, strict=True)]),
        ],
    )


def _same(result: Result, reference: Parameter, name: str) -> Parameter | None:
    """The parameter of a result with this name and the unit of another one; None where there is none."""
    found = result.parameters.get(name)
    return None if found is None or found.unit != reference.unit else found


DESIGN = ("mass of ", "centre of mass of ", "moment of inertia of ", "rotor inertia of ")
"""Beginnings of the names of errors of a design, beside its parameters, which have names without spaces."""


def _correlations(one: Result, other: Result) -> dict[str, float]:
    """Correlation of each parameter in two results of one machine, by the errors of its design within tolerances: its
    masses are wrong by as much in both. Joint zeros, frames and its base may differ between robots of one design."""
    a, b = one.covariance_with_errors, other.covariance_with_errors
    if a is None or b is None or one.machine.name != other.machine.name:
        return {}
    shared = [key for key in a.errors if key in b.errors and (" " not in key or key.startswith(DESIGN))]
    effects, moments, stds = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
    for known in (a, b):
        size, own = len(known.matrix) - len(known.errors), [known.errors.index(key) for key in shared]
        of_errors = known.matrix[size:, size:]
        effects.append((known.matrix[:size, size:] @ np.linalg.pinv(of_errors))[:, own])
        moments.append(of_errors[np.ix_(own, own)])
        stds.append(np.sqrt(np.diag(known.matrix)[:size]))
    found, tied = dict[str, float](), [result.study.free.tied for result in (one, other)]
    rows = [{name: i for i, names in enumerate(each) for name in names} for each in tied]
    for name in rows[0].keys() & rows[1].keys():
        i, k = rows[0][name], rows[1][name]
        covariance = float(effects[0][i] @ (0.5 * (moments[0] + moments[1])) @ effects[1][k])
        scale = float(stds[0][i] * stds[1][k])
        found[name] = covariance / scale if scale > 0.0 and math.isfinite(covariance) else 0.0
    return found


def _difference(one: Result, other: Result, name: str, common: float) -> float | None:
    """Difference of a parameter over its standard deviation.

    None if it is unknown, or not identifiable in one of them, where the value is that of a prior or a start.

    Args:
        one: the reference.
        other: another result.
        name: of the parameter.
        common: correlation of its values.
    """
    a = one.parameters[name]
    b = _same(other, a, name)
    if b is None or "no" in (a.identifiable, b.identifiable):
        return None
    if one.is_logarithmic(name) and other.is_logarithmic(name) and a.value > 0.0 and b.value > 0.0:
        stds, change = (a.std_log, b.std_log), math.log(b.value / a.value)
    else:
        stds, change = (a.std, b.std), b.value - a.value
    if not all(map(math.isfinite, stds)):
        return None
    std = math.sqrt(max(stds[0] ** 2 + stds[1] ** 2 - 2.0 * common * stds[0] * stds[1], 0.0))
    return change / std if std > 0.0 else 0.0 if change == 0.0 else math.copysign(math.inf, change)


def _change_text(
    results: Sequence[Result], names: Sequence[str], name: str, changes: Sequence[float | None]
) -> Iterator[str]:
    a = results[0].parameters[name]
    for label, other, z in zip(names[1:], results[1:], changes, strict=True):
        if z is not None and abs(z) >= NOTABLE:
            b = other.parameters[name]
            relative = (
                f"{percent(100.0 * (b.value / a.value - 1.0), signed=True)} %" if a.value else number(b.value - a.value)
            )
            yield f"{relative} in {label}, {number(abs(z), 3)} standard deviations"


def _signed(z: float | None) -> str:
    return "-" if z is None else f"{'-' if z < 0.0 else '+'}{number(abs(z), 2)}"


def comparison_table(results: Sequence[Result], names: Sequence[str], changes: dict[str, list[float | None]]) -> Table:
    """Values of the common parameters in each result, and differences from the first over their standard deviation."""
    rows = []
    for name, zs in changes.items():
        found = [_same(result, results[0].parameters[name], name) for result in results]
        stds = ["" if p is None else f" ± {number(p.std, 2)}" if math.isfinite(p.std) else " (no std)" for p in found]
        cells = ["-" if p is None else f"{number(p.value)}{std}" for p, std in zip(found, stds, strict=True)]
        rows.append((name, results[0].parameters[name].unit, *cells, *map(_signed, zs)))
    return Table(
        "",
        (*left("parameter", "unit"), *right(*names), *right(*(f"{name}: difference / std" for name in names[1:]))),
        tuple(rows),
        f"± one standard deviation; difference from {names[0]} over the standard deviation of the difference, in which"
        " errors of masses, inertias and other stated numbers of one machine within their tolerances are common; apart"
        " from these the results are taken as independent, which they are not where they share data; - for a parameter"
        " that is not identifiable in one of them",
    )


LARGEST_CHANGE = 100.0
"""Difference in % above which values are compared by their ratio, on a logarithmic axis up to `LARGEST_FACTOR`."""


def comparison_chart(results: Sequence[Result], names: Sequence[str], shared: Sequence[str], title: str) -> Chart:
    """95 % intervals of parameters relative to the values of the first result."""
    rows = np.arange(len(shared))
    reference = np.array([results[0].parameters[name].value for name in shared])
    value, ends = np.full((len(results), len(shared)), np.nan), np.full((len(results), len(shared), 2), np.nan)
    for k, result in enumerate(results):
        for i, name in enumerate(shared):
            p = _same(result, results[0].parameters[name], name)
            if p is not None and p.identifiable != "no" and reference[i] != 0.0:
                value[k, i] = p.value / reference[i]
                ends[k, i] = sorted(end / reference[i] for end in p.interval_95 or (p.value, p.value))
    by_ratio = bool(np.nanmax(100.0 * np.abs(value - 1.0), initial=0.0) > LARGEST_CHANGE and not np.any(value <= 0.0))
    if by_ratio:
        within = np.clip(ends, 1.0 / LARGEST_FACTOR, LARGEST_FACTOR)
        end = 10.0 ** math.ceil(math.log10(np.nanmax(np.maximum(within, 1.0 / within))))
        label, log, limits = f"ratio to {names[0]}", True, (1.0 / end, end)
    else:
        value, ends, log = 100.0 * (value - 1.0), 100.0 * (ends - 1.0), False
        end = 1.1 * min(float(np.nanmax(np.abs(ends), initial=1e-3)), 2.0 * LARGEST_CHANGE)
        label, limits = f"difference from {names[0]} (%)", (-end, end)
    value, ends = np.clip(value, *limits), np.clip(ends, *limits)
    marks: list[Mark] = [Rule(1.0 if by_ratio else 0.0, "x")]
    for k, name in enumerate(names):
        at = rows + 0.8 / len(results) * (k - 0.5 * (len(results) - 1))
        reach = np.abs(ends[k].T - value[k])
        color = SERIES[k % len(SERIES)]
        marks.append(Line(value[k], at, name, color, 1.3, "", "o", 3.5, reach=reach, along="x"))
    height = max(0.24, 0.14 * len(results)) * len(shared) + 0.2
    return Chart(
        title,
        "Identifiable values with their 95 % intervals, cut at the ends of the axis: those that do not overlap have"
        " changed.",
        [[(Panel(marks, Axis(label, log, limits), named_rows(shared), height=height),)]],
        5.0,
    )


def _compared_modes(results: Sequence[Result], names: Sequence[str]) -> list[Section]:
    """Section on the modes in tests of the same name and posture, in the order of frequency."""
    parts = list[Part]()
    for posture in dict.fromkeys(mode.posture for result in results for mode in result.modes):
        found = [_coordinates(result, posture) for result in results]
        first = next(filter(None, found), {})
        same = [all(math.isclose(q[n], first[n], abs_tol=1e-9) for n in q.keys() & first.keys()) for q in found]
        columns = [
            [mode for mode in result.modes if is_same and mode.posture == posture]
            for result, is_same in zip(results, same, strict=True)
        ]
        if sum(map(bool, columns)) > 1:
            rows = [
                (
                    str(m),
                    *("-" if x is None else hertz(x.damped_frequency_hz) for x in own),
                    *("-" if x is None else f"{100.0 * x.damping_ratio:z.3f}" for x in own),
                )
                for m, own in enumerate(zip_longest(*columns), 1)
            ]
            unit = frequency_unit(e for result in results for e in result.study.entries if e.name == posture)
            columns_of = (
                *left("mode"),
                *right(*(f"{name}: {unit}" for name in names), *(f"{name}: damping %" for name in names)),
            )
            parts.append(Table(f"Modes, {posture}", columns_of, tuple(rows), "in the order of frequency"))
    return section("Modes compared", parts)


def _coordinates(result: Result, test: str) -> dict[str, float]:
    """Coordinates in the posture of a vibration test, rad or m; empty without this test."""
    tests = (e.test.vibration for e in result.study.entries if e.name == test and e.test.vibration is not None)
    return next((dict(zip(result.model.coordinates, np.asarray(own.q).tolist(), strict=True)) for own in tests), {})


SAVED = "Tables and charts are those that were saved with the result"
"""Beginning of the sentence on a result that cannot be read again, which is not compared with others."""
MOST_SENTENCES = 8
"""Largest number of sentences before the sections of a saved report."""


def page_of_folders(folders: Sequence[Path], report: Callable[[str], None] = lambda _: None) -> Page:
    """Page of the results in some folders.

    Args:
        folders: output folders of `jaxmb identify`, `modal`, `map`, `inspect` or `predict`.
        report: called with the current activity.

    Raises:
        InputError: a folder has no result that can be read.
    """
    if not folders:
        raise InputError("results: found none, expected a folder of a result")
    loaded = [_loaded(folder) for folder in folders]
    results = [found for found in loaded if isinstance(found, Result)]
    report("building the report")
    if len(results) == len(loaded) > 1:
        return comparison_page(results, _names(folders))
    pages = [result_page(f, folder) if isinstance(f, Result) else f for f, folder in zip(loaded, folders, strict=True)]
    if len(pages) == 1:
        return pages[0]
    names, changes = _names(folders), list[tuple[str, Table]]()
    named = list(zip(names, pages, strict=True))
    if all((folder / ANALYSIS).exists() for folder in folders):
        first, *others = map(SavedAnalysis.read, folders)
        changes = [compared_analyses(first, own, (names[0], name)) for own, name in zip(others, names[1:], strict=True)]
    sentences = [
        *(f"{finding}." for finding, _ in changes),
        *(f"{name}: {text}" for name, page in named for text in page.sentences[:1]),
        *(text for page in pages for text in page.sentences[1:] if text.startswith(SAVED)),
    ]
    return Page(
        f"{' and '.join(names)} compared" if changes and len(names) == 2 else f"{len(pages)} results",
        ", ".join(map(str, folders)),
        "",
        sentences,
        [
            *section("What changed", (table for _, table in changes)),
            *side_by_side([(name, page.sections) for name, page in named]),
        ],
    )


def _names(folders: Sequence[Path]) -> list[str]:
    """Short distinct names of folders."""
    plain = [folder.resolve().name for folder in folders]
    if len(set(plain)) == len(plain):
        return plain
    longer = ["/".join(folder.resolve().parts[-2:]) for folder in folders]
    return longer if len(set(longer)) == len(longer) else [f"{k}: {name}" for k, name in enumerate(plain, 1)]


def _loaded(folder: Path) -> Result | Page:
    """The result in a folder, or the page of its saved report."""
    if not folder.is_dir():
        found = "is no folder," if folder.exists() else f"does not exist{nearby(folder)}"
        raise InputError(f"{folder}: {found} expected the output folder of a command")
    reason = ""
    if (folder / RESULT).exists():
        try:
            return load_result(folder)
        except InputError as error:
            if not (folder / REPORT).exists():
                raise
            reason = str(error)
    elif not (folder / REPORT).exists():
        raise InputError(f"{folder}: found neither {RESULT} nor {REPORT}, expected the output folder of a command")
    return saved_page(folder, reason)


def saved_page(folder: Path, reason: str = "") -> Page:
    """Page of the sections that a command saved in its folder.

    Args:
        folder: the folder.
        reason: why the result itself cannot be read; empty otherwise.
    """
    title, origin, sections = read_sections(folder)
    facts = [row for section in sections[:1] for part in section.parts if isinstance(part, Facts) for row in part.rows]
    sentences = [f"{capital(about)}: {text}" if about else text for about, text in facts]
    findings = dict.fromkeys(
        chart.title for chart in (picture.chart() for picture in pictures(sections)) if chart.title
    )
    sentences = (sentences or [f"{finding}." for finding in findings])[:MOST_SENTENCES]
    if reason:
        sentences.append(f"{SAVED}: {reason}.")
    return Page(title, f"written by {origin.rows[0][1]}", "", sentences, [*sections, Section("Provenance", (origin,))])
