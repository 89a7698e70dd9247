"""Report on a proposed next motion."""

from jaxmb.identify.plan.inspection import Inspection
from jaxmb.identify.plan.motions.next_motion import NextMotion
from jaxmb.report.cells import number
from jaxmb.report.inspection.next_report import NextReport
from jaxmb.report.section import Picture, Table, drawn_by, left, right


def motion_report(found: Inspection, chosen: NextMotion) -> NextReport:
    """Amplitudes of the motion, its figure, and the standard deviations of the base parameters after it."""
    draw = drawn_by("jaxmb.report.inspection.motion_figure:motion_figure", found.study.name, chosen)
    return NextReport(
        (motion_table(chosen), Picture("next-motion", draw)),
        (f"{found.next_remark}; condition number {number(chosen.motion.condition_number)}",),
        tuple(row.std for row in chosen.motion.base),
    )


def motion_table(chosen: NextMotion) -> Table:
    """Start posture and Fourier coefficients of the proposed motion."""
    motion, series = chosen.motion, list(chosen.motion.motion.values())
    rows = [("start", *(f"{motion.posture[name]:.5f}" for name in motion.motion))]
    for kind, parts in (("sine", [m.sine for m in series]), ("cosine", [m.cosine for m in series])):
        rows += [
            (f"{kind} {k}", *(f"{value:.5f}" for value in row)) for k, row in enumerate(zip(*parts, strict=True), 1)
        ]
    title = (
        f"Next motion, like {chosen.like}: start + sum_k sine_k sin(k w t) + cosine_k (cos(k w t) - 1), rad or m,"
        f" base_hz {motion.base_hz:g}, {motion.duration_s:g} s"
    )
    return Table(title, (*left(""), *right(*motion.motion)), tuple(rows))
