"""Report on proposed next tests of any kind."""

from typing import NamedTuple

from jaxmb.report.section import Part


class NextReport(NamedTuple):
    """Tables, figures and sentences on the next tests."""

    parts: tuple[Part, ...]
    lines: tuple[str, ...]
    base_std: tuple[float, ...] | None = None
    """Standard deviations of the base parameters after them, SI units; None for kinds without base parameters."""
