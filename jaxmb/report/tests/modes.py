"""What a report says of modal tests."""

from collections.abc import Sequence
from typing import Any

from jaxmb.identify.assess.result import Result
from jaxmb.identify.experiments.entry import Entry
from jaxmb.report.modes.mode_pairs import data_word, pairs_of_modes_test
from jaxmb.report.modes.tables import measured_modes_table
from jaxmb.report.paper_tables import table_6
from jaxmb.report.section import Part, Picture, Section, drawn_by
from jaxmb.report.tests.common import file_names, score_table

_FIGURES = "jaxmb.report.modes.mode_figures"


def modes_sections(result: Result, entries: Sequence[Entry]) -> list[Section]:
    """Measured modes beside those of the identified machine, and what moves in them.

    Args:
        result: the identification.
        entries: the modal tests of its study.
    """
    files = file_names(result.study)
    parts: list[Part | None] = [score_table(result, entries)]
    for entry in entries:
        file, before = files[entry], "" if entry.role == "fit" else "check-"
        parts += [
            measured_modes_table(result, entry),
            Picture(f"{before}modes-{file}", drawn_by(f"{_FIGURES}:measured_modes_figure", result, entry)),
            Picture(f"{before}energy-{file}", drawn_by(f"{_FIGURES}:energy_figure", result, entry)),
        ]
        if entry.role == "check":
            continue
        pairs = pairs_of_modes_test(result, entry)
        parts.append(table_6(result, entry.name, pairs))
        test: Any = entry.test
        # One sensor tells nothing of a shape, and of one component all are alike.
        if pairs.likeness.size and min(len(test.outputs) or 2, pairs.fitted.shape.shape[0]) > 1:
            draw = drawn_by("jaxmb.report.modes.mac_figure:pairs_figure", entry.name, pairs, "Hz", data_word(entry))
            parts.append(Picture(f"mac-{file}", draw))
    return [Section("Modal tests", tuple(part for part in parts if part is not None))]
