"""The kinds of tests: a row for each, the only place that distinguishes them.

Rows name what they need as texts, "module:object". So reading a study file loads no more than its format, and a row can
name the report, which stands above studies.
"""

import pkgutil
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from jaxmb.identify.experiments.entry import Entry


class Kind(NamedTuple):
    """One kind of test: where its parts are."""

    format_at: str
    reader_at: str = ""
    metrics_at: str = ""
    remarks_at: str = ""
    systematic_at: str = ""
    sections_at: str = ""
    next_at: str = ""
    next_report_at: str = ""

    @property
    def format(self) -> Any:
        """What a study file may say of it, a `TestPart`."""
        return pkgutil.resolve_name(self.format_at)

    @property
    def reader(self) -> Callable[..., Any]:
        """(part, label, setting) -> entries: tests with what is known of them."""
        return pkgutil.resolve_name(self.reader_at)

    @property
    def metrics(self) -> Any:
        """What a result tells of such tests beside what it tells of all, a `KindMetrics`; None where nothing."""
        return pkgutil.resolve_name(self.metrics_at) if self.metrics_at else None

    @property
    def remarks(self) -> Callable[..., Any] | None:
        """(finding, entries of the kind, its metrics) -> likely causes of data not followed, and other doubts."""
        return pkgutil.resolve_name(self.remarks_at) if self.remarks_at else None

    @property
    def systematic(self) -> Callable[..., Any] | None:
        """(linear finding, entries of the kind) -> covariance of u that systematic errors add, and remarks."""
        return pkgutil.resolve_name(self.systematic_at) if self.systematic_at else None

    @property
    def sections(self) -> Callable[..., Any] | None:
        """(result, entries of the kind) -> sections of the report."""
        return pkgutil.resolve_name(self.sections_at) if self.sections_at else None

    @property
    def next(self) -> Callable[..., Any]:
        """(study, place, what is known) -> `Planned`: what `[next]` of the kind asks for."""
        return pkgutil.resolve_name(self.next_at)

    @property
    def next_report(self) -> Callable[..., Any]:
        """(inspection, what `next` has found) -> `NextReport`."""
        return pkgutil.resolve_name(self.next_report_at)


_FORMAT = "jaxmb.identify.study.format"
_READING = "jaxmb.identify.study.reading"
_ASSESS = "jaxmb.identify.assess.tests"
_REPORT = "jaxmb.report.tests"
_PLAN = "jaxmb.identify.plan"
_INSPECTION = "jaxmb.report.inspection"

KINDS: dict[str, Kind] = {
    "frf": Kind(
        f"{_FORMAT}.frf_format:FrfTestPart", f"{_READING}.frf:read_frf_test", f"{_ASSESS}.frf:FrfMetrics",
        f"{_ASSESS}.frf:frf_remarks", sections_at=f"{_REPORT}:frf_sections",
        next_at=f"{_PLAN}.next_tests:plan_tests", next_report_at=f"{_INSPECTION}:tests_report",
    ),
    "modes": Kind(
        f"{_FORMAT}.modes_format:ModesTestPart", f"{_READING}.modes:read_modes_test", f"{_ASSESS}.frf:ModesMetrics",
        sections_at=f"{_REPORT}:modes_sections",
    ),
    "deflection": Kind(
        f"{_FORMAT}.deflection_format:DeflectionTestPart", f"{_READING}.deflections:read_deflection_test",
        f"{_ASSESS}.deflections:DeflectionMetrics", f"{_ASSESS}.deflections:deflection_remarks",
        sections_at=f"{_REPORT}:deflection_sections",
    ),
    "torque": Kind(
        f"{_FORMAT}.torque_format:TorqueTestPart", f"{_READING}.torque:read_torque_test",
        f"{_ASSESS}.torque:TorqueMetrics", f"{_ASSESS}.torque:torque_remarks", f"{_ASSESS}.joints:systematic_errors",
        f"{_REPORT}:torque_sections",
        f"{_PLAN}.next_motion:plan_motion", f"{_INSPECTION}:motion_report",
    ),
}  # fmt: skip


def by_kind(entries: "Sequence[Entry]") -> "list[tuple[str, list[Entry]]]":
    """Entries of each kind of test, in the order of the registry."""
    found = [(kind, [entry for entry in entries if entry.kind == kind]) for kind in KINDS]
    return [(kind, some) for kind, some in found if some]
