"""What is shown of results: sections built once, and shown on a terminal or drawn as pictures.

The public names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from jaxmb.io.lazy import lazy

if TYPE_CHECKING:
    from jaxmb.report.maps.placement_plot import placement_figure
    from jaxmb.report.modes.mac_figure import mac_panels
    from jaxmb.report.modes.mode_pairs import ModePairs, measured_pairs
    from jaxmb.report.paper_tables import in_order, mean_error, modes_table, parameters_table
    from jaxmb.report.result_sections import sections, write_report
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
    "sections",
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
        "sections": "jaxmb.report.result_sections",
        "write_figure": "jaxmb.report.style",
        "write_report": "jaxmb.report.result_sections",
    },
)
