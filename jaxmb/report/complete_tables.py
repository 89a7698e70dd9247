"""Tables of a complete stiffness model: how it was reduced, what its variants compensate, and its parameters."""

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from jaxmb.identify.assess.result import Result
from jaxmb.report.cells import VERDICT_STYLE, new_table, number

STEPS = {
    "original": "joints and links, 36 compliances a link",
    "M1": "symmetric compliances",
    "M2": "links as beams",
    "M3": "joints added to the links before them",
    "G1": "of these identifiable",
    "G2": "without effect on the tests",
    "G3": "known only together with others",
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


def complete_tables(result: Result) -> list[RenderableType]:
    """Everything a user wants to read of a complete stiffness model."""
    metrics = result.metrics
    tables: list[RenderableType] = [reduction_table(result)]
    for role, title in (("check", "not used in the fit"), ("fit", "used in the fit")):
        if f"table2_{role}" in metrics:
            tables.append(compensation_table(result, role, title))
    if "compensator" in metrics:
        tables.append(compensator_table(result))
    return [*tables, compliance_table(result)]


def reduction_table(result: Result) -> Table:
    """Number of parameters by step, in the layout of Table 1 of Klimchik et al. 2014."""
    table = new_table("Reduction of the model (layout of Klimchik et al. 2014, Table 1)", "step", "model")
    published = result.metrics.get("published_reduction")  # of the machine of that paper alone
    for heading in ("parameters", *(("published",) if published else ())):
        table.add_column(heading, justify="right")
    for step, count in result.metrics["reduction"].items():
        table.add_row(step, STEPS[step], str(count), *((str(published[step]),) if published else ()))
    return table


def compensation_table(result: Result, role: str, title: str) -> Table:
    """What each model leaves of the deflections, mm, in the layout of Table 2 of Klimchik et al. 2014.

    Models that cannot be judged on these tests have dashes. Of the tests on which compensation is judged the last two
    columns say, where the errors of the instruments were drawn, how far the compensated percent and the predicted
    translations scatter with them (standard deviations).
    """
    table = new_table(f"Errors after compensation, tests {title} (mm; layout of Table 2)", "model")
    judged = role == ("check" if "table2_check" in result.metrics else "fit")
    drawn = result.metrics.get("monte_carlo") if judged else None
    scatter = () if drawn is None else ("scatter %", "scatter mm")
    for heading in ("parameters", *(f"{axis} max, RMS" for axis in AXES), "compensated %", *scatter):
        table.add_column(heading, justify="right")
    rows = {row["model"]: row for row in result.metrics[f"table2_{role}"]}
    for name in ("none", *result.metrics["parameters"]):
        label = name if name == "none" else f"{name}: {MODELS[name]}"
        if name not in rows:
            table.add_row(label, str(result.metrics["parameters"][name]), *["-"] * (len(AXES) + 1 + len(scatter)))
            continue
        row = rows[name]
        cells = [f"{row[axis]['max']:.2f}  {row[axis]['rms']:.2f}" for axis in AXES]
        cells.append(f"{row['compensated_percent']:.1f}")
        if drawn is not None:
            cells += [_scatter(drawn[key], name) for key in ("compensated_percent_std", "predicted_std_mm")]
        table.add_row(label, str(row["parameters"] or "-"), *cells)
    return table


def _scatter(told: dict[str, float], model: str) -> str:
    return number(told[model], 2) if model in told else "-"


def compensator_table(result: Result) -> Table:
    """Compliance of the compensated joint at its angles, and of the spring that was fitted to them."""
    told = result.metrics["compensator"]
    spring = told.get("spring")
    table = new_table(f"Compliance of {told['joint']} by its angle, with the link before it (rad/Nm)", "angle")
    for heading in ("compliance", "std", *(("by the spring",) if spring else ())):
        table.add_column(heading, justify="right")
    for i, angle in enumerate(told["angle_deg"]):
        cells = [number(float(told["compliance"][i])), number(float(told["std"][i]), 2)]
        if spring:
            cells.append(number(float(spring["fitted_compliance"][i])))
        table.add_row(f"{angle:.4g} deg", *cells)
    if spring:
        names = (("joint_stiffness", "joint", "Nm/rad"), ("stiffness", "spring", "N/m"), ("free_length", "length", "m"))
        said = [f"{name} {number(spring[key])} +- {number(spring['std'][key], 2)} {unit}" for key, name, unit in names]
        table.caption = f"compensator: {', '.join(said)}"
        table.caption_justify = "left"
    return table


def compliance_table(result: Result) -> Table:
    """The identified compliances with their standard deviations."""
    table = new_table("Compliances of the reduced model", "parameter", "unit")
    for heading in ("value", "std", "std %"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("identifiable", no_wrap=True)
    for name, p in result.parameters.items():
        table.add_row(
            Text(name.removeprefix("compliance.")), p.unit, number(p.value), number(p.std, 2),
            number(100.0 * p.std_log, 2), Text(p.identifiable, style=VERDICT_STYLE.get(p.identifiable, "")),
        )  # fmt: skip
    return table
