"""Tables of an identification from deflection tests."""

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from jaxmb.identify.assess.result import Result
from jaxmb.report.cells import new_table, number

MISSING = "-"


def deflection_tables(result: Result) -> list[RenderableType]:
    """What the identified machine explains of each set of tests, and what the instruments' errors do to the values."""
    return [gap_table(result), *([instrument_table(result)] if "table2" in result.metrics else [])]


def gap_table(result: Result) -> Table:
    """Predicted against measured translations and rotations, a row for each set of tests and kind."""
    table = new_table("Deflections: measured and predicted", "tests", "role", "number", "kind")
    for heading in ("mean", "max", "mean gap", "max gap", "explained %"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in result.metrics["sets"]:
        for kind, unit in (("translation", "mm"), ("rotation", "deg")):
            told = line[kind]
            if told["explained_percent"] is None:
                continue
            cells = [told[f"{which}_{what}_{unit}"] for what in ("measured", "gap") for which in ("mean", "max")]
            table.add_row(
                Text(line["set"]), line["role"], str(line["tests"]), f"{kind} ({unit})", *(number(x, 3) for x in cells),
                f"{told['explained_percent']:.1f}",
            )  # fmt: skip
    return table


def instrument_table(result: Result) -> Table:
    """Each value with its error, in the layout of Table II of Dumas et al. 2011.

    The error is the standard deviation of Monte-Carlo draws where there are any; beside it stands the one that follows
    from the standard deviations of the displacements to first order. "on a bound" counts the draws that ended there,
    whose scatter is too small for that.
    """
    rows = result.metrics["table2"]
    draws = rows[0]["draws"] if rows else 0
    table = new_table("Values with their errors (layout of Dumas et al. 2011, Table II)", "parameter", "unit")
    drawn = (f"error, {draws} draws", "%") if draws else ()
    for heading in ("value", *drawn, *(("on a bound",) if draws else ()), "error, first order", "%"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        if row["value"] is None:
            cells = ["cannot be determined", *([MISSING] * 3 if draws else []), MISSING, MISSING]
        else:
            cells = [number(row["value"])]
            for error, percent in (("error", "percent"), ("linear_error", "linear_percent"))[0 if draws else 1 :]:
                cells += [number(row[error], 2), number(row[percent], 2)]
                cells += [str(row["clipped"])] if error == "error" else []
        table.add_row(Text(row["parameter"]), Text(result.parameters[row["parameter"]].unit), *cells)
    return table
