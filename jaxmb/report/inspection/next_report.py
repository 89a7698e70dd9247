"""What a report says of the next tests, whatever kind they are."""

from typing import NamedTuple

from jaxmb.report.section import Part


class NextReport(NamedTuple):
    """Parts and sentences on the next tests."""

    parts: tuple[Part, ...]
    lines: tuple[str, ...]
    base_std: tuple[float, ...] | None = None
    """Standard deviations of the base parameters after them, SI units, where they tell of these."""
