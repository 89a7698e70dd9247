"""What is shown of results: sections built once, on a terminal or as pictures.

The public names are imported when they are first used.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from jaxmb.io.lazy import lazy

if TYPE_CHECKING:
    from jaxmb.identify.assess.result import Result
    from jaxmb.report.maps.placement_plot import placement_figure
    from jaxmb.report.modes.mac_figure import mac_panels
    from jaxmb.report.modes.mode_pairs import ModePairs, measured_pairs
    from jaxmb.report.paper_tables import in_order, mean_error, modes_table, parameters_table
    from jaxmb.report.section import Section
    from jaxmb.report.style import drawing, write_figure
    from jaxmb.report.terminal import on_terminal

__all__ = [
    "ModePairs",
    "Section",
    "drawing",
    "in_order",
    "mac_panels",
    "mean_error",
    "measured_pairs",
    "modes_table",
    "on_terminal",
    "parameters_table",
    "placement_figure",
    "write_figure",
    "write_report",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "ModePairs": "jaxmb.report.modes.mode_pairs",
        "Section": "jaxmb.report.section",
        "drawing": "jaxmb.report.style",
        "in_order": "jaxmb.report.paper_tables",
        "mac_panels": "jaxmb.report.modes.mac_figure",
        "mean_error": "jaxmb.report.paper_tables",
        "measured_pairs": "jaxmb.report.modes.mode_pairs",
        "modes_table": "jaxmb.report.paper_tables",
        "on_terminal": "jaxmb.report.terminal",
        "parameters_table": "jaxmb.report.paper_tables",
        "placement_figure": "jaxmb.report.maps.placement_plot",
        "write_figure": "jaxmb.report.style",
    },
)


def write_report(result: "Result", folder: str | os.PathLike[str]) -> list[Path]:
    """Draw everything there is to see of a result and write it as PNG files.

    Args:
        result: from `identify` or `load_result`.
        folder: where the files go; it is made where it does not exist.

    Returns:
        The files.

    Raises:
        OSError: the folder or a file cannot be written; no file is left half-written.
    """
    from jaxmb.report.pictures import write_pictures
    from jaxmb.report.result_sections import sections

    return write_pictures(sections(result), folder)
