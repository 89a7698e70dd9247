"""Parts of the report common to all kinds of tests, and the default section of a kind."""

import re
from collections.abc import Sequence

import numpy as np

from jaxmb.identify.assess.holdout import TestPrediction
from jaxmb.identify.assess.result import Result
from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.study.study import Study
from jaxmb.measurement.modal.indicators import distinguishable
from jaxmb.report.cells import number
from jaxmb.report.modes.mode_pairs import ModePairs, data_label
from jaxmb.report.section import Picture, Section, Table, drawn_by, left, right

MOST_TESTS = 3
"""Number of tests of a kind up to which each has a table of modes and figures; more share one of each."""
LONGEST_NAME = 60
"""Longest part of a file name taken from a test's name, characters."""


def plain_sections(result: Result, entries: Sequence[Entry]) -> list[Section]:
    """Default section of a kind of test: the prediction scores."""
    return [Section(f"Tests of kind {entries[0].kind}", (score_table(result, entries),))]


def score_table(result: Result, entries: Sequence[Entry]) -> Table:
    """Prediction scores of the identified machine for each test, with the columns that apply to any of the tests."""
    predictions = [(entry, _prediction(result, entry)) for entry in entries]
    kinds = [
        ("FRAC", lambda p: None if p.frac is None else f"{p.frac:.4f}"),
        ("error of log H", lambda p: None if p.log_error is None else number(p.log_error, 2)),
        ("frequency error Hz", lambda p: None if p.frequency_error_hz is None else number(p.frequency_error_hz, 2)),
        ("explained %", lambda p: None if p.explained_percent is None else f"{p.explained_percent:.1f}"),
    ]
    shown = [
        (heading, cell) for heading, cell in kinds if any(p is not None and cell(p) is not None for _, p in predictions)
    ]
    rows = [
        (
            entry.name,
            "fitted" if entry.role == "fit" else "held out",
            str(entry.test.rows),
            *((p is not None and cell(p)) or "-" for _, cell in shown),
        )
        for entry, p in predictions
    ]
    columns = (*left("test", "role"), *right("rows", *(heading for heading, _ in shown)))
    return Table("", columns, tuple(rows))


def _prediction(result: Result, entry: Entry) -> TestPrediction | None:
    verdict = result.metrics.fit if entry.role == "fit" else result.metrics.holdout
    return None if verdict is None else verdict.tests.get(entry.name)


def shown_tests(result: Result, entries: Sequence[Entry]) -> list[Entry]:
    """Tests with figures of their own: all up to `MOST_TESTS`, else the fitted and the held-out one with the largest
    residual."""
    if len(entries) <= MOST_TESTS:
        return list(entries)
    by_role = [[entry for entry in entries if entry.role == role] for role in ("fit", "check")]
    return [entry for some in by_role for entry in largest_residuals(result, some, 1)]


def largest_residuals(result: Result, entries: Sequence[Entry], most: int) -> list[Entry]:
    """The `most` tests with the largest residual, in their original order."""
    sizes = [float(np.mean(result.residual(entry.name, entry.role) ** 2)) for entry in entries]
    return [entries[i] for i in np.sort(np.argsort(sizes)[-most:])]


def mac_picture(result: Result, entry: Entry, pairs: ModePairs | None, file: str) -> Picture | None:
    """Figure of the MAC of identified and measured shapes; None if none were measured or the sensors do not distinguish
    them."""
    if pairs is None or not distinguishable(pairs.reference.shape.shape[0], *pairs.likeness.shape):
        return None
    unit = entry.source.frequency_unit if entry.kind == "frf" else "Hz"
    draw = drawn_by("jaxmb.report.modes.mac_figure:pairs_figure", result, entry.name, pairs, unit, data_label(entry))
    return Picture(f"mac-{file}", draw)


def file_names(study: Study) -> dict[Entry, str]:
    """Unique part of a file name for each test, from its name in portable characters."""
    found = {}
    for entries in (study.fitted, study.checks):
        plain = [re.sub(r"[^A-Za-z0-9]+", "-", e.name).strip("-").lower()[:LONGEST_NAME] or "test" for e in entries]
        distinct = len(set(plain)) == len(plain)
        found |= {
            e: name if distinct else f"{k}-{name}" for k, (e, name) in enumerate(zip(entries, plain, strict=True), 1)
        }
    return found
