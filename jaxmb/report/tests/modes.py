"""Report on modal tests."""

from collections.abc import Sequence
from typing import Any

from jaxmb.identify.assess.result import Result
from jaxmb.identify.assess.tests.modes import ModesMetrics
from jaxmb.identify.experiments.entry import Entry
from jaxmb.report.modes.mode_pairs import fitted_modes
from jaxmb.report.modes.tables import measured_modes_table, modes_of_all_tests
from jaxmb.report.section import Part, Picture, Section, drawn_by
from jaxmb.report.tests.common import MOST_TESTS, file_names, mac_picture, score_table, shown_tests

_FIGURES = "jaxmb.report.modes.mode_figures"


def modes_sections(result: Result, entries: Sequence[Entry]) -> list[Section]:
    """Section on the measured modes and those of the identified machine.

    Args:
        result: the identification.
        entries: the modal tests of its study.
    """
    files, many = file_names(result.study), len(entries) > MOST_TESTS
    parts: list[Part | None] = [score_table(result, entries)]
    if many:
        record = result.metrics.of(ModesMetrics) or ModesMetrics()
        parts.append(modes_of_all_tests(result, entries, record.measured_modes or ()))
    for entry in shown_tests(result, entries):
        file, prefix = files[entry], "" if entry.role == "fit" else "check-"
        test: Any = entry.test
        fitted = fitted_modes(result.model, test)
        parts += [
            measured_modes_table(result, entry, fitted),
            Picture(f"{prefix}modes-{file}", drawn_by(f"{_FIGURES}:measured_modes_figure", result, entry, fitted)),
        ]
        if entry.role == "fit":
            parts.append(mac_picture(result, entry, fitted.pairs, file))
    return [Section("Modal tests", tuple(part for part in parts if part is not None))]
