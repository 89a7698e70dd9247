"""Report on proposed next FRF tests."""

import math

from jaxmb.identify.plan.inspection import Inspection
from jaxmb.identify.plan.next_tests import NextTests
from jaxmb.identify.plan.why import points_text, posture_text
from jaxmb.report.cells import number
from jaxmb.report.inspection.next_report import NextReport
from jaxmb.report.section import Table, left, right


def tests_report(found: Inspection, chosen: NextTests) -> NextReport:
    """The tests and the design criterion before and after them."""
    name = {"A": "sum of the variances", "D": "logarithm of the determinant of the covariance"}[chosen.part.criterion]
    values = [f"{number(chosen.before)} now" if math.isfinite(chosen.before) else "unbounded now"]
    values.append(f"{number(chosen.chosen)} with the chosen tests")
    if chosen.improved != chosen.chosen:
        values.append(f"{number(chosen.improved)} with their postures improved by gradient")
    return NextReport((next_table(found, chosen),), (f"{found.next_remark}; {name}: {', '.join(values)}",))


def next_table(found: Inspection, chosen: NextTests) -> Table:
    """Table of the proposed next tests."""
    rows = []
    for k, test in enumerate(chosen.tests, 1):
        outputs, inputs = (points_text(end) for end in test.probe.ends)
        first, last = test.probe.band_hz
        rows.append(
            (
                str(k), posture_text(found.study.model, test.q), outputs,
                inputs if test.probe.inputs is not None else "as outputs", f"{first:.3g} to {last:.3g}",
                str(test.probe.omega.size),
            )
        )  # fmt: skip
    columns = (*left("", "posture", "outputs", "inputs"), *right("band Hz", "lines"))
    return Table(f"Next tests, like {chosen.like}", columns, tuple(rows))
