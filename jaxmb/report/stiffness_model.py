"""Tables of a complete stiffness model: reduction, compensation by its variants, and parameters."""

from jaxmb.identify.assess.result import Result
from jaxmb.identify.assess.stiffness_model_metrics import CompensatorOutcome, StiffnessModelMetrics
from jaxmb.report.section import Cell, Part, Picture, Section, Table, drawn_by, left, number, right, section
from jaxmb.report.tests import budget_table

STEPS = {
    "original": "joints and links, 36 compliances per link",
    "M1": "symmetric compliances",
    "M2": "links as beams",
    "M3": "joints added to the links before them",
    "G1": "of these identifiable",
    "G2": "without effect on the tests",
    "G3": "identifiable only in combination",
    "final": "independent, kept",
}
AXES = ("x", "y", "z", "position")
MODELS = {
    "none": "deflections without compensation",
    "J1": "joints",
    "J2": "joints and compensator",
    "C1": "joints and links",
    "C2": "joints, links and compensator",
}
ROLES = {"check": "not used in the fit", "fit": "used in the fit"}


def stiffness_model_sections(result: Result) -> list[Section]:
    """Sections on the reduction of a complete stiffness model, the compensation by its variants and its compliances;
    empty for a study without one."""
    metrics = result.metrics.stiffness_model
    if metrics is None:
        return []
    roles = [role for role in ROLES if metrics.rows(role)]
    parts: list[Part | None] = [
        reduction_table(metrics),
        *(compensation_table(metrics, role) for role in roles),
        None if metrics.compensator is None else compensator_table(metrics.compensator),
        compliance_table(result),
        budget_table(metrics.budget),
    ]
    for role in roles:
        draw = drawn_by("jaxmb.report.stiffness_model_figures:error_figure", result.study.name, metrics, role)
        parts.append(Picture(f"errors-{role}", draw))
    draw = drawn_by("jaxmb.report.stiffness_model_figures:compliance_figure", result)
    return section("Complete stiffness model", [*parts, Picture("compliances", draw)])


def reduction_table(metrics: StiffnessModelMetrics) -> Table:
    """Number of parameters by step, in the layout of Table 1 of Klimchik et al. 2014."""
    published = metrics.published_reduction  # only for the machine of that paper
    rows = [
        (step, STEPS[step], str(count), *((str(published[step]),) if published else ()))
        for step, count in metrics.reduction.items()
    ]
    columns = (*left("step", "model"), *right("parameters", *(("published",) if published else ())))
    return Table("Reduction of the model (layout of Klimchik et al. 2014, Table 1)", columns, tuple(rows))


def compensation_table(metrics: StiffnessModelMetrics, role: str) -> Table:
    """Errors after compensation by each model, mm, in the layout of Table 2 of Klimchik et al. 2014.

    Models that cannot be judged on these tests have dashes. With Monte-Carlo draws of the instrument errors, the last
    two columns are the standard deviations of the compensated percentage and of the predicted translations over the
    draws, for the tests on which compensation is judged.
    """
    drawn = metrics.monte_carlo if role == metrics.judged else None
    scatter = () if drawn is None else ("scatter %", "scatter mm")
    by_name, rows = {row.model: row for row in metrics.rows(role) or ()}, []
    for name in ("none", *metrics.parameters):
        label = name if name == "none" else f"{name}: {MODELS[name]}"
        row = by_name.get(name)
        if row is None:
            rows.append((label, str(metrics.parameters[name]), *["-"] * (len(AXES) + 1 + len(scatter))))
            continue
        cells = [f"{errors.max:.2f}  {errors.rms:.2f}" for errors in (row.x, row.y, row.z, row.position)]
        cells.append(f"{row.compensated_percent:.1f}")
        if drawn is not None:
            cells += [_scatter(std, name) for std in (drawn.compensated_percent_std, drawn.predicted_std_mm)]
        rows.append((label, str(row.parameters or "-"), *cells))
    columns = (
        *left("model"), *right("parameters", *(f"{axis} max, RMS" for axis in AXES), "compensated %", *scatter)
    )  # fmt: skip
    title = f"Errors after compensation, tests {ROLES[role]} (mm; layout of Klimchik et al. 2014, Table 2)"
    return Table(title, columns, tuple(rows))


def _scatter(deviations: dict[str, float], model: str) -> str:
    return number(deviations[model], 2) if model in deviations else "-"


def compensator_table(found: CompensatorOutcome) -> Table:
    """Compliance of the compensated joint at its angles, and that of the fitted compensator spring."""
    spring, rows, caption = found.spring, [], ""
    for i, angle in enumerate(found.angle_deg):
        cells = [number(float(found.compliance[i])), number(float(found.std[i]), 2)]
        if spring is not None:
            cells.append(number(float(spring.fitted_compliance[i])))
        rows.append((f"{angle:.4g} deg", *cells))
    if spring is not None:
        values = (
            ("joint", spring.joint_stiffness, spring.std["joint_stiffness"], "Nm/rad"),
            ("spring", spring.stiffness, spring.std["stiffness"], "N/m"),
            ("length", spring.free_length, spring.std["free_length"], "m"),
        )
        texts = [
            f"{name} {number(value)} +- {number(std, 2)} {unit}" if std < abs(value) else f"{name} not identifiable"
            for name, value, std, unit in values
        ]
        caption = f"compensator: {', '.join(texts)}"
    columns = (*left("angle"), *right("compliance", "std", *(("of the spring model",) if spring is not None else ())))
    title = f"Compliance of {found.joint} and the preceding link against the joint angle (rad/Nm)"
    return Table(title, columns, tuple(rows), caption)


def compliance_table(result: Result) -> Table:
    """The identified compliances with their standard deviations."""
    rows = [
        (
            name.removeprefix("compliance."), p.unit, number(p.value), number(p.std, 2), number(100.0 * p.std_log, 2),
            Cell(p.identifiable, p.identifiable),
        )
        for name, p in result.parameters.items()
    ]  # fmt: skip
    columns = (*left("parameter", "unit"), *right("value", "std", "std %"), *left("identifiable"))
    return Table("Compliances of the reduced model", columns, tuple(rows))
