"""Report on FRF tests."""

from collections.abc import Sequence

from jaxmb.identify.assess.result import Result
from jaxmb.identify.assess.tests.frf import FrfMetrics
from jaxmb.identify.experiments.entry import Entry
from jaxmb.report.modes.mode_pairs import measured_pairs
from jaxmb.report.modes.tables import (
    analysed_modes_table,
    identified_modes_table,
    modes_of_all_tests,
    true_modes_table,
)
from jaxmb.report.section import Part, Picture, Section, Table, drawn_by
from jaxmb.report.tests.common import MOST_TESTS, file_names, largest_residuals, mac_picture, score_table, shown_tests

_FIGURES = "jaxmb.report.frf.figures_of_test"
_OVERVIEW = "jaxmb.report.frf.overview"
_MODAL = "jaxmb.report.modal.figures"
MOST_DRAWN = 24
"""Largest number of tests in the figure of the FRFs of many tests."""


def frf_sections(result: Result, entries: Sequence[Entry]) -> list[Section]:
    """Section on the agreement of measured and predicted FRFs and on the modes at each test's posture.

    Args:
        result: the identification.
        entries: the FRF tests of its study.
    """
    files, many = file_names(result.study), len(entries) > MOST_TESTS
    parts: list[Part | None] = [score_table(result, entries)]
    if many:
        record = result.metrics.of(FrfMetrics) or FrfMetrics()
        drawn = largest_residuals(result, entries, MOST_DRAWN)
        note = f", the {len(drawn)} with the largest residual" if len(drawn) < len(entries) else ""
        pairs = (*(record.measured_modes or ()), *(result.metrics.true_modes or ()))
        parts += [
            modes_of_all_tests(result, entries, pairs, record.unmatched_modes or ()),
            Picture("frf-all-tests", drawn_by(f"{_OVERVIEW}:frf_overview", result, drawn, note)),
        ]
        if _noisy(result):
            parts.append(Picture("residual-all-tests", drawn_by(f"{_OVERVIEW}:residual_overview", result, entries)))
    for entry in shown_tests(result, entries):
        if entry.role == "fit" and not many:
            parts.append(_modes_table(result, entry))
        parts += _pictures(result, entry, files[entry])
    return [Section("FRF tests", tuple(part for part in parts if part is not None))]


def _pictures(result: Result, entry: Entry, file: str) -> list[Part | None]:
    held_out = "" if entry.role == "fit" else "check-"
    name = held_out or "frf-"
    parts: list[Part | None] = [Picture(f"{name}{file}", drawn_by(f"{_FIGURES}:frf_test_figure", result, entry))]
    if _noisy(result):
        draw = drawn_by(f"{_FIGURES}:residual_figure", result, entry)
        parts.append(Picture(f"{held_out}residual-{file}", draw))
    if entry.role == "fit" and entry.source.modal is not None:
        parts += [
            Picture(f"stabilization-{file}", drawn_by(f"{_MODAL}:stabilization_of_test", entry)),
            Picture(f"synthesized-{file}", drawn_by(f"{_MODAL}:synthesized_of_test", entry)),
            mac_picture(result, entry, measured_pairs(entry, result.model), file),
        ]
    return parts


def _noisy(result: Result) -> bool:
    """Whether the residual exceeds rounding errors."""
    return result.metrics.misfit is None or not result.metrics.misfit.exact


def _modes_table(result: Result, entry: Entry) -> Table:
    record = result.metrics.of(FrfMetrics) or FrfMetrics()
    pairs = [line for line in record.measured_modes or () if line.posture == entry.name]
    unpaired = [line for line in record.unmatched_modes or () if line.posture == entry.name]
    if pairs or unpaired:
        return analysed_modes_table(result, entry.name, pairs, unpaired)
    true = [line for line in result.metrics.true_modes or () if line.posture == entry.name]
    return true_modes_table(result, entry.name, true) if true else identified_modes_table(result, entry.name)
