"""What a report says of FRF tests."""

from collections.abc import Sequence
from typing import Any

from jaxmb.identify.assess.result import Result
from jaxmb.identify.assess.tests.frf import FrfMetrics
from jaxmb.identify.experiments.entry import Entry
from jaxmb.report.modes.mode_pairs import ModePairs, data_word, pairs_of_frf_test
from jaxmb.report.modes.tables import analysed_modes_table, initial_modes_table, true_modes_table
from jaxmb.report.paper_tables import table_6
from jaxmb.report.section import Part, Picture, Section, Table, drawn_by
from jaxmb.report.tests.common import file_names, score_table

_FIGURES = "jaxmb.report.frf.figures_of_test"
_MODAL = "jaxmb.report.modal.figures"


def frf_sections(result: Result, entries: Sequence[Entry]) -> list[Section]:
    """How well the FRFs are followed, the modes at each test's posture, and figures of both.

    Args:
        result: the identification.
        entries: the FRF tests of its study.
    """
    files = file_names(result.study)
    parts: list[Part | None] = [score_table(result, entries)]
    for entry in entries:
        parts += _fitted(result, entry, files[entry]) if entry.role == "fit" else _held_out(result, entry, files[entry])
    return [Section("FRF tests", tuple(part for part in parts if part is not None))]


def _fitted(result: Result, entry: Entry, file: str) -> list[Part | None]:
    pairs = pairs_of_frf_test(result, entry)
    parts: list[Part | None] = [_modes_table(result, entry, pairs), table_6(result, entry.name, pairs)]
    parts += [
        Picture(f"frf-{file}", drawn_by(f"{_FIGURES}:frf_test_figure", result, entry)),
        Picture(f"residual-{file}", drawn_by(f"{_FIGURES}:residual_figure", result, entry)),
    ]
    if entry.source.modal is not None:
        parts += [
            Picture(f"stabilization-{file}", drawn_by(f"{_MODAL}:stabilization_of_test", entry)),
            Picture(f"synthesized-{file}", drawn_by(f"{_MODAL}:synthesized_of_test", entry)),
        ]
    test: Any = entry.test
    # One sensor tells nothing of a shape, and of one component all are alike.
    if pairs.likeness.size and min(len(test.outputs), pairs.fitted.shape.shape[0]) > 1:
        unit = entry.source.frequency_unit
        parts.append(
            Picture(
                f"mac-{file}",
                drawn_by("jaxmb.report.modes.mac_figure:pairs_figure", entry.name, pairs, unit, data_word(entry)),
            )
        )
    return parts


def _held_out(result: Result, entry: Entry, file: str) -> list[Part | None]:
    return [
        Picture(f"check-{file}", drawn_by(f"{_FIGURES}:frf_test_figure", result, entry)),
        Picture(f"check-residual-{file}", drawn_by(f"{_FIGURES}:residual_figure", result, entry)),
    ]


def _modes_table(result: Result, entry: Entry, pairs: ModePairs) -> Table:
    record = result.metrics.of(FrfMetrics) or FrfMetrics()
    found = [line for line in record.measured_modes or () if line.posture == entry.name]
    alone = [line for line in record.unmatched_modes or () if line.posture == entry.name]
    if found or alone:
        return analysed_modes_table(entry.name, found, alone)
    if entry.truth is not None and entry.truth.modes is not None:
        return true_modes_table(entry.name, [m for m in result.metrics.true_modes or () if m.posture == entry.name])
    return initial_modes_table(entry.name, pairs)
